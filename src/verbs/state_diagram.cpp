// state_diagram: the table of transitions as Graphviz DOT.

#include "server/boundary.h"
#include "core/state.h"

namespace outbox {

OUTBOX_FUNCTION(outbox_state_diagram)
{
	size_t size = core::write_dot(nullptr, 0) + 1;
	char *dot = static_cast<char *>(palloc(size));

	core::write_dot(dot, size);
	PG_RETURN_TEXT_P(cstring_to_text(dot));
}

} // namespace outbox
