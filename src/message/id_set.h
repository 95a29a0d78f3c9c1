// The messages that a count has met: each once, though the versions of a row that changes stand in an index side by
// side.
#pragma once

#include "server/values.h"

namespace outbox {

struct IdSet {
	core::Uuid *ids;
	int count; // with doubles, until they are dropped
	int room;
};

IdSet make_id_set();
void put_id(IdSet *set, const core::Uuid &id);
int drop_doubles(IdSet *set);

} // namespace outbox
