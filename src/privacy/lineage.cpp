// See lineage.h.

#include "privacy/lineage.h"

namespace outbox {

text *
lineage_of_database()
{
	if (RecoveryInProgress())
		return nullptr;
	return cstring_to_text(
		psprintf(UINT64_FORMAT "/%u/%u", GetSystemIdentifier(), MyDatabaseId, GetWALInsertionTimeLine()));
}

} // namespace outbox
