// Each kind of sink, defined in the file of its name.
#pragma once

#include "sinks/kind.h"

namespace relay {

extern const SinkKind file_kind, stdout_kind, discard_kind, postgres_kind, http_kind;
#ifdef HAVE_KAFKA
extern const SinkKind kafka_kind;
#endif
#ifdef HAVE_RABBITMQ
extern const SinkKind rabbitmq_kind;
#endif
#ifdef HAVE_NATS
extern const SinkKind nats_kind;
#endif

} // namespace relay
