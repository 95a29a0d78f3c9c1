// What a queue protects by itself: {"subject": "$.customer_id", "fields": ["$.email", "ssn"]}.
#pragma once

#include "privacy/fields.h"

namespace outbox {

struct Rule {
	Field subject; // where the subject's name is
	Field *fields;
	int count;
};

// 22023 for anything else.
Rule parse_rule(Jsonb *rule);

// The text or the number at its place; nullptr if there is none.
text *subject_in(const Rule &rule, Jsonb *payload);

} // namespace outbox
