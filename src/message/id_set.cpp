// See id_set.h.

#include "message/id_set.h"

#include <algorithm>

namespace outbox {

IdSet
make_id_set()
{
	constexpr int first_room = 16;

	return {static_cast<core::Uuid *>(palloc(sizeof(core::Uuid) * first_room)), 0, first_room};
}

void
put_id(IdSet *set, const core::Uuid &id)
{
	if (set->count == set->room)
	{
		set->room *= 2;
		set->ids = static_cast<core::Uuid *>(repalloc(set->ids, sizeof(core::Uuid) * static_cast<Size>(set->room)));
	}
	set->ids[set->count++] = id;
}

int
drop_doubles(IdSet *set)
{
	std::sort(set->ids, set->ids + set->count,
			  [](const core::Uuid &a, const core::Uuid &b) { return compare(a, b) < 0; });
	set->count = static_cast<int>(std::unique(set->ids, set->ids + set->count,
											  [](const core::Uuid &a, const core::Uuid &b) { return equal(a, b); }) -
								  set->ids);
	return set->count;
}

} // namespace outbox
