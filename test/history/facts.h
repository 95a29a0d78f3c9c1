// What a history says happened to messages: its calls taken apart, one effect each, and the
// tables as they were in the end.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "history.h"

// One effect of a call, or what it asked for in vain.
struct Effect {
	const Transaction *transaction;
	const Call *call;
	Outcome outcome; // of the call's transaction

	bool done() const { return outcome == Outcome::done; }
	bool certainly_not() const { return outcome == Outcome::undone; }
};

struct Enqueued : Effect {
	std::string tag, queue, key, event, partition_key;
	std::string id; // empty: there was no answer
	int64_t number = 0;
	bool created = false;
};

struct Leased : Effect {
	std::string id, token, worker, tag, queue;
	int64_t expires = 0;
};

struct Reported : Effect {
	std::string id, token, worker, state, reference;
	std::string refused; // SQLSTATE
	int64_t number = 0;  // of the attempt, 0: there was no answer
	std::string recorded;

	bool accepted() const { return refused.empty() && number > 0; }
};

// Of renew and release.
struct Changed : Effect {
	std::string id, token;
	std::string refused;
	bool answered = false;
	int64_t expires = 0;
	bool is_due = false; // again, after a release

	bool accepted() const { return answered && refused.empty(); }
};

struct Repaired : Effect {
	std::string id, state, lost_by;
	int64_t number = 0;
};

// Of an operator: cancel and break_lease.
struct Intervened : Effect {
	std::string id, reason;
	int64_t number = 0; // 0: there was no answer
};

// Also of an operator: cancel_many and replay_many, which tell how many they have done, not which.
struct Many : Effect {
	std::string reason; // of cancel_many
	int64_t told = -1;  // -1: there was no answer
	int64_t there = 0;
};

struct Rescheduled : Effect {
	std::string id;
	int64_t due = 0; // 0: there was no answer
};

struct Replayed : Effect {
	std::string id;
	std::string replay; // empty: there was no answer
};

struct Message {
	std::string id, tag, queue, key, event, partition_key, replay_of;
	int64_t number = 0;
};

struct Attempt {
	std::string id, state, worker, token, reference, error_code, error_message;
	int64_t number = 0;
	int64_t created_at = 0;

	bool terminal() const { return state == "DISPATCHED" || state == "FAILED"; }
	bool lost() const { return error_code == "LEASE_EXPIRED"; }
	bool cancelled() const { return error_code == "CANCELLED"; }
	bool broken() const { return error_code == "LEASE_BROKEN"; }
	bool released() const { return error_code == "RELEASES_EXHAUSTED"; }
};

// Of one message in an audit event.
struct AuditEvent {
	std::string event, queue, worker, id, replay;
	int64_t number = 0; // of the attempt, 0: none
};

// When the clock of the server was moved, and from how far to how far from the true time.
struct ClockStep {
	int64_t at, from, to;
};

// The server lost its memory after the first time and was back at the second.
struct Crash {
	int64_t from, until;
};

struct Facts {
	std::vector<Enqueued> enqueued;
	std::vector<Leased> leased;
	std::vector<Reported> reported;
	std::vector<Changed> renewed, released;
	std::vector<Repaired> repaired;
	std::vector<Intervened> cancelled, broken;
	std::vector<Many> cancelled_many, replayed_many;
	std::vector<Rescheduled> rescheduled;
	std::vector<Replayed> replayed;

	std::map<std::string, Message> messages;              // by id
	std::map<std::string, std::vector<Attempt>> attempts; // by id, in order of their numbers
	std::vector<AuditEvent> events;
	std::set<std::string> audited; // queues
	std::set<std::string> pending;
	std::map<std::string, int64_t> ceilings;      // by queue, 0: none
	std::set<std::string> ordered, blocking;      // queues: fifo; and those where dead heads block
	std::map<std::string, int64_t> most_releases; // by queue that limits them
	std::map<std::string, int64_t> most_leased;   // the same
	std::vector<ClockStep> steps;
	std::vector<Crash> crashes;
	std::vector<Event> left;                 // due, and not returned by a claim that had room for them
	std::vector<const Transaction *> halves; // of unknown outcome, and only in part in the tables

	const Attempt *attempt_of_token(const std::string &id, const std::string &token) const;
	const Attempt *attempt_number(const std::string &id, int64_t number) const;

	// What the server's clock showed, and whether that is in doubt because it stepped then.
	int64_t server_time(int64_t at) const;
	bool stepped_near(int64_t server_time) const;
	// A call may wait for a row, and judge a lease only then.
	bool stepped_during(const Call &call) const;
	// When the server's clock may first have shown the time, if it did not step when it was `at`.
	int64_t earliest(int64_t at, int64_t server_time) const;
};

// The history must stay where it is. Transactions whose outcome nobody was told get the one
// that the tables show.
Facts facts_of(History &history);
