// The messages of sagas: commands of steps, and timeouts.
//
// Guarantees: a command is a new message, and the step that names it commits with it, under the lock of the saga, so no
// race or retry sends it twice. Its headers are those of saga.start and those that name the step; what has such headers
// is a command only if the saga has sent it.
#pragma once

#include "saga/run.h"

namespace outbox {

// What a message is a command of, by its headers; a replay of a command is one too. Anybody who may enqueue can write
// such headers: require_sent() says whether the saga has sent it.
struct CommandOf {
	core::Uuid id;
	Jsonb *headers;
	bool has_saga;
	core::Uuid saga_id;
	text *step; // nullptr: null
	core::Direction direction;
	int round; // -1: null
};
// id: nullptr is NULL, and no message. P7007 if it is no command.
CommandOf read_command_of(Call *call, const core::Uuid *id);
// Whether it is the command of the step at that place, or its last compensation, or a replay of one.
bool is_sent(Run *run, int place, const CommandOf *command);
// P7007 unless it is.
void require_sent(Run *run, int place, const CommandOf *command);
core::Direction direction_of(const text *name);
// As casts of SQL: 22P02. False: NULL.
bool uuid_in_text(const text *value, core::Uuid *id);
int round_in_text(const text *value);

// Enqueues the command of a step at that place, or its compensation, and its timeout if it has a deadline.
core::Uuid send_command(Run *run, int place, core::Direction direction);
// Ends a command that is still pending: a worker that has it loses its lease, and no other begins.
void withdraw_command(Run *run, const core::Uuid &id, const char *reason);

// The deadline of what is sent now to a step that has a timeout.
TimestampTz deadline_from(TimestampTz now, const DefinedStep *defined);

} // namespace outbox
