// What it means that the extension and the model agree.
//
// Everything must be equal, but times: the model has the time at which the call began,
// the extension read its clock later, within the call. A model's '*' stands for
// whatever the contract leaves open.
#pragma once

#include <string>
#include <vector>

#include "connection.h"

struct Disagreement {
	std::string what;
};

std::string shown(const Answer &answer);

// Both answers of one call. slack_us: by how much times may be later.
void compare_answers(const Answer &extension, const Answer &model, int64_t slack_us);

// The tables: pending, queues, sequences and blocked keys whole, of messages and attempts the rows
// made since the time $1. with_views: the views as well.
std::vector<std::string> table_queries(const std::string &schema, bool with_views);
void compare_tables(const std::vector<Answer> &extension, const std::vector<Answer> &model, const std::string &seen_by);
