/*
 * A saga of two steps, both with a compensation (src/core/saga.h, src/saga/): workers that report on its commands, the
 * handler of saga_internal, the operator. One step after the other, or with -DPARALLEL both at once.
 *
 * Proves for these bounds, whatever the interleaving:
 * - the saga ends, and nothing is left to do: no answer of parallel steps is lost;
 * - it is completed, and each step was done once and none compensated; or it has failed, and what was done of each step,
 *   also late, was undone after that, or the step is uncompensated;
 * - nothing leaves completed or failed, and steps change their status only as core/saga.cpp lists it;
 * - each command is sent once: it is one of a step, a direction and a round;
 * - compensations are sent one at a time, and none while a later step has still to be undone;
 * - no worker claims a command that was given up, unless it is replayed;
 * - no work commits that nothing would undo.
 *
 * Shape: a call is two steps. The first locks the saga and reads it; the second is all that the transaction does, at its
 * commit. Instead of the second its transaction may be lost at any time: a crash, an error, a lease that has expired.
 * A lease may expire, a worker may die and a timeout may be over at any time.
 *
 * What a command does is part of the transaction of saga.succeed. With -DOUTSIDE it is not: it is done before the report,
 * if at all, by a participant that remembers what it has done, undone and refused (docs/saga.md). With -DREPLIES a relay
 * delivers the commands, the participant stores its answer with its work, and the answer is delivered at least once. It
 * need not remember what it has undone.
 *
 * Broken variants, for `run`: each -D leaves out one thing that the protocol needs.
 */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef MOST
#define MOST 1		/* max_attempts */
#endif
/* How often each may happen */
#ifndef AGAIN
#define AGAIN 0		/* an answer is repeated */
#endif
#ifndef RETRIES
#define RETRIES 0
#endif
#ifndef ABORTS
#define ABORTS 0
#endif
#ifndef REPLAYS
#define REPLAYS 0	/* a command that is dead is replayed */
#endif

#ifdef PARALLEL
#define STAGE(s) 1
#define STAGES 1
#else
#define STAGE(s) ((s) + 1)
#define STAGES 2
#endif

/* Commands by step, direction and round: forward ones first. A late answer makes a second round, each retry another. */
#define STEPS 2
#define ROUNDS (2 + RETRIES)
#define COMMANDS (STEPS + STEPS * ROUNDS)
#define NONE COMMANDS
#define IS_FORWARD(c) ((c) < STEPS)
#define UNDO(s, round) (STEPS + ((round) - 1) * STEPS + (s))
#define STEP_OF(c) ((c) % STEPS)
#define ROUND_OF(c) ((c) / STEPS)

/* saga.instances, and its row lock */
#define RUNNING 1
#define IS_COMPENSATING 2
#define COMPLETED 3
#define HAS_FAILED 4
#define NOBODY 255
byte saga = RUNNING;
byte locker = NOBODY;

/* saga.steps */
#define ABSENT 0
#define SENT 1
#define SUCCEEDED 2
#define FAILED 3
#define UNKNOWN 4
#define COMPENSATING 5
#define COMPENSATED 6
#define UNCOMPENSATED 7
byte status[STEPS];
bool answered[STEPS];
byte rounds[STEPS];

/* The messages of the commands. A worker holds one lease at most. */
#define UNSENT 0
#define PENDING 1
#define LEASED 2
#define DISPATCHED 3
#define DEAD 4
byte message[COMMANDS];
byte holder[COMMANDS];
byte attempts[COMMANDS];
bool is_replay[STEPS];
#define IS_OPEN(c) (message[c] == PENDING || message[c] == LEASED)

/* The messages of saga_internal */
bool timer[COMMANDS];
bool letter[COMMANDS];

/* What the participants have done */
bool done[STEPS];
bool ever_done[STEPS];
bool refused[STEPS];

/* With -DREPLIES */
#define YES 1
#define NO 2
#define GIVEN_UP 3
byte reply[COMMANDS];
bool is_told[COMMANDS];

byte again = AGAIN, retries = RETRIES, aborts = ABORTS, replays = REPLAYS;

#if RETRIES > 0
#define CHOOSE_COMMAND(is) \
	if :: is(0) -> c = 0 :: is(1) -> c = 1 :: is(2) -> c = 2 :: is(3) -> c = 3 \
	:: is(4) -> c = 4 :: is(5) -> c = 5 :: is(6) -> c = 6 :: is(7) -> c = 7 fi
#else
#define CHOOSE_COMMAND(is) \
	if :: is(0) -> c = 0 :: is(1) -> c = 1 :: is(2) -> c = 2 :: is(3) -> c = 3 :: is(4) -> c = 4 :: is(5) -> c = 5 fi
#endif

/* ---- a call: struct Run, src/saga/run.cpp */

#define DECLARE \
	byte r_saga, r_status[STEPS], r_rounds[STEPS]; \
	bool r_answered[STEPS], r_changed[STEPS]; \
	byte c, s, outcome, got, i, last; \
	bool goes_on, is_late, is_rescheduled

#ifdef SAGA_NOT_LOCKED
#define MAY_LOCK true
#else
#define MAY_LOCK (locker == NOBODY)
#endif

/* begin_run(), read_steps() */
inline begin_run()
{
	d_step {
#ifndef SAGA_NOT_LOCKED
		locker = me;
#endif
		s = STEP_OF(c);
		r_saga = saga;
		i = 0;
		do
		:: i < STEPS ->
			r_status[i] = status[i]; r_answered[i] = answered[i]; r_rounds[i] = rounds[i];
			i++
		:: else -> break
		od;
		i = 0
	}
}

/* The end of a transaction, whatever became of it. */
inline forget()
{
	d_step {
		if :: locker == me -> locker = NOBODY :: else fi;
		r_saga = 0;
		i = 0;
		do
		:: i < STEPS ->
			r_status[i] = 0; r_answered[i] = false; r_rounds[i] = 0; r_changed[i] = false;
			i++
		:: else -> break
		od;
		c = 0; s = 0; outcome = 0; got = 0; i = 0; last = 0;
		goes_on = false; is_late = false; is_rescheduled = false
	}
}

/* write_run() */
inline write_run()
{
	assert(saga == RUNNING || r_saga == saga || (saga == IS_COMPENSATING && r_saga == HAS_FAILED));
	saga = r_saga;
	i = 0;
	do
	:: i < STEPS && r_changed[i] ->
		status[i] = r_status[i]; answered[i] = r_answered[i]; rounds[i] = r_rounds[i];
		i++
	:: i < STEPS && !r_changed[i] -> i++
	:: else -> break
	od
}

/* core/saga.cpp, step_transitions */
#define MAY_FOLLOW(from, to) ( \
	(from) == (to) || \
	(from) == ABSENT && (to) == SENT || \
	(from) == SENT && ((to) == SUCCEEDED || (to) == FAILED || (to) == UNKNOWN) || \
	(from) == UNKNOWN && ((to) == SUCCEEDED || (to) == FAILED || (to) == COMPENSATING) || \
	(from) == SUCCEEDED && (to) == COMPENSATING || \
	(from) == COMPENSATING && ((to) == COMPENSATED || (to) == UNCOMPENSATED || (to) == SUCCEEDED) || \
	(from) == COMPENSATED && (to) == SUCCEEDED || \
	(from) == UNCOMPENSATED && ((to) == SUCCEEDED || (to) == COMPENSATED || (to) == UNKNOWN))

inline put_status(which, to)
{
	assert(MAY_FOLLOW(r_status[which], to));
	r_status[which] = to;
	r_changed[which] = true
}

/* ---- messages */

inline end_message(which, as)
{
	message[which] = as;
	holder[which] = 0;
	attempts[which] = 0;
#ifndef DEAD_LETTER_FORGOTTEN
	letter[which] = (as == DEAD)
#endif
}

/* An attempt that did not end the message, unless it was the last. */
inline count_attempt(which)
{
	attempts[which]++;
	holder[which] = 0;
	message[which] = PENDING;
	if
	:: attempts[which] >= MOST -> end_message(which, DEAD)
	:: else
	fi
}

#ifdef NOT_WITHDRAWN
#define MAY_WITHDRAW(which) (IS_OPEN(which) && !IS_FORWARD(which))
#else
#define MAY_WITHDRAW(which) (IS_OPEN(which) && !(IS_FORWARD(which) && is_replay[STEP_OF(which)]))
#endif

inline withdraw(which)
{
	if
	:: MAY_WITHDRAW(which) -> end_message(which, DEAD)
	:: else
	fi
}

/* command.cpp, send_command() */
inline send(which, has_timeout)
{
	assert(message[which] == UNSENT);
	message[which] = PENDING;
	timer[which] = has_timeout
}

#if defined(TIMEOUTS) || defined(REPLIES)
#define COMMAND_TIMEOUT true
#else
#define COMMAND_TIMEOUT false
#endif
#ifdef REPLIES
#define UNDO_TIMEOUT true
#else
#define UNDO_TIMEOUT false
#endif

/* ---- what comes next: core/saga.cpp */

inline send_step(which)
{
	put_status(which, SENT);
	send(which, COMMAND_TIMEOUT)
}

inline send_compensation(which)
{
	i = 0;
	do
	:: i < STEPS ->
		assert(i == which || r_status[i] != COMPENSATING);
		assert(i <= which || (r_status[i] != SUCCEEDED && r_status[i] != UNKNOWN && r_status[i] != SENT));
		assert(r_rounds[i] == 0 || !IS_OPEN(UNDO(i, r_rounds[i])));
		i++
	:: else -> break
	od;
	assert(r_saga == IS_COMPENSATING || r_saga == HAS_FAILED);
#ifdef ROUND_NOT_RAISED
	r_rounds[which] = 1;
#else
	r_rounds[which] = r_rounds[which] + 1;
#endif
	assert(r_rounds[which] <= ROUNDS);
	put_status(which, COMPENSATING);
	send(UNDO(which, r_rounds[which]), UNDO_TIMEOUT)
}

#ifdef UNKNOWN_IS_FAILED
#define HAS_TO_BE_UNDONE(status) ((status) == SUCCEEDED)
#else
#define HAS_TO_BE_UNDONE(status) ((status) == SUCCEEDED || (status) == UNKNOWN)
#endif
#ifdef FIRST_STEP_FIRST
#define IS_TAKEN (last == NONE)
#else
#define IS_TAKEN true
#endif
#ifdef GIVING_UP_STOPS
#define IS_WAITED_ON(status) ((status) == COMPENSATING || (status) == UNCOMPENSATED)
#else
#ifdef ALL_AT_ONCE
#define IS_WAITED_ON(status) false
#else
#define IS_WAITED_ON(status) ((status) == COMPENSATING)
#endif
#endif

/* next_to_undo() */
inline compensate_next()
{
	last = NONE;
	i = 0;
	do
	:: i < STEPS && IS_WAITED_ON(r_status[i]) -> last = COMMANDS + 1; break
	:: i < STEPS && HAS_TO_BE_UNDONE(r_status[i]) && IS_TAKEN -> last = i; i++
	:: i < STEPS && !IS_WAITED_ON(r_status[i]) && !(HAS_TO_BE_UNDONE(r_status[i]) && IS_TAKEN) -> i++
	:: else -> break
	od;
	if
	:: last < STEPS -> send_compensation(last)
	:: last == NONE -> r_saga = HAS_FAILED
	:: else
	fi
}

inline begin_compensation()
{
	r_saga = IS_COMPENSATING;
	i = 0;
	do
	:: i < STEPS && r_status[i] == SENT ->
		withdraw(i);
		put_status(i, UNKNOWN);
		i++
	:: i < STEPS && r_status[i] != SENT -> i++
	:: else -> break
	od;
	compensate_next()
}

#ifdef ANY_ANSWER_GOES_ON
#define IS_WAITED_FOR(which) false
#else
#define IS_WAITED_FOR(which) (r_status[which] == SENT)
#endif

/* what_next() */
inline go_on()
{
	if
	:: r_saga != RUNNING ->
#ifdef ENDED_IS_DEAF
		if :: r_saga == IS_COMPENSATING -> compensate_next() :: else fi
#else
		compensate_next()
#endif
	:: r_saga == RUNNING && got != SUCCEEDED -> begin_compensation()
	:: r_saga == RUNNING && got == SUCCEEDED ->
		if
		:: IS_WAITED_FOR(0) || IS_WAITED_FOR(1)
		:: !(IS_WAITED_FOR(0) || IS_WAITED_FOR(1)) && r_status[1] == ABSENT && STAGE(0) < STAGES -> send_step(1)
		:: else -> r_saga = COMPLETED
		fi
	fi
}

/* ---- answers: core::effect(), take_answer() */

#ifdef ANSWERED_TWICE
#define IS_COMMAND_AWAITED true
#else
#define IS_COMMAND_AWAITED (!r_answered[s])
#endif
#ifdef ANY_ROUND
#define IS_ROUND true
#else
#define IS_ROUND (r_rounds[s] == ROUND_OF(c))
#endif
#define IS_AWAITED \
	(IS_FORWARD(c) && IS_COMMAND_AWAITED || \
	 !IS_FORWARD(c) && (r_status[s] == COMPENSATING || r_status[s] == UNCOMPENSATED) && IS_ROUND)

inline answer_command()
{
	r_answered[s] = outcome != GIVEN_UP;
	goes_on = true;
	if
	:: outcome == NO && (r_status[s] == COMPENSATING || r_status[s] == COMPENSATED || r_status[s] == UNCOMPENSATED) ->
		got = r_status[s];
		goes_on = false
	:: outcome == YES ->
		got = SUCCEEDED;
#ifndef NOT_TAKEN_BACK
		if :: r_status[s] == COMPENSATING -> withdraw(UNDO(s, r_rounds[s])) :: else fi
#endif
	:: else ->
		assert(r_status[s] != COMPENSATING);
		got = (outcome == NO -> FAILED : UNKNOWN)
	fi
}

inline answer_compensation()
{
	goes_on = outcome == YES || r_status[s] == COMPENSATING;
	got = (outcome == YES -> COMPENSATED : UNCOMPENSATED)
}

inline take_answer()
{
	if
	:: IS_FORWARD(c) -> answer_command()
	:: else -> answer_compensation()
	fi;
	put_status(s, got);
	if
	:: goes_on -> go_on()
	:: else
	fi;
	write_run()
}

/* ---- participants */

#ifndef REPLIES

#ifdef OUTSIDE
/* Of what has been done or refused before nothing is done again. */
inline work()
{
	d_step {
		s = STEP_OF(mine);
		if
		:: IS_FORWARD(mine) -> done[s] = true; ever_done[s] = true
		:: else -> done[s] = false; refused[s] = true
		fi;
		s = 0
	}
}
#define HAS_WORK (mine != NONE && \
	(IS_FORWARD(mine) && !ever_done[STEP_OF(mine)] && !refused[STEP_OF(mine)] || \
	 !IS_FORWARD(mine) && (done[STEP_OF(mine)] || !refused[STEP_OF(mine)])))
#define MAY_SAY_YES ((IS_FORWARD(mine) && ever_done[STEP_OF(mine)]) || (!IS_FORWARD(mine) && refused[STEP_OF(mine)]))
#define MAY_SAY_NO (!IS_FORWARD(mine) || !ever_done[STEP_OF(mine)])
#else
#define MAY_SAY_YES true
#define MAY_SAY_NO true
#endif

/* What has been done is done at the commit. */
inline do_work()
{
#ifdef OUTSIDE
	skip
#else
	if
	:: outcome == YES && IS_FORWARD(c) -> assert(!ever_done[s] || is_replay[s]); done[s] = true; ever_done[s] = true
	:: outcome == YES && !IS_FORWARD(c) -> done[s] = false
	:: else
	fi
#endif
}

#define IS_LATE (IS_FORWARD(c) && !r_answered[s] && r_status[s] != SENT)
#define NEEDS_LEASE (!IS_LATE || IS_OPEN(c))
#define HAS_LEASE (message[c] == LEASED && holder[c] == me)
#ifdef FORGOTTEN_WORK
#define IS_REFUSED false
#else
#define IS_REFUSED (outcome == YES && IS_FORWARD(c) && r_answered[s] && r_status[s] != SUCCEEDED)
#endif

/* answer.cpp: settle_command(), outbox_saga_succeed, outbox_saga_fail */
inline report()
{
	d_step {
		is_late = IS_LATE;
		if
		:: !NEEDS_LEASE
		:: NEEDS_LEASE && outcome == YES -> end_message(c, DISPATCHED)
		:: NEEDS_LEASE && outcome == NO -> end_message(c, DEAD)
		:: NEEDS_LEASE && outcome == GIVEN_UP -> count_attempt(c); is_rescheduled = message[c] == PENDING
		fi;
		do_work();
		if
#ifdef LATE_ANSWER_IGNORED
		:: is_late
#endif
		:: !is_rescheduled && !(outcome == GIVEN_UP && is_late) && IS_AWAITED -> take_answer()
		:: else
		fi
	}
}

#define IS_CLAIMABLE(which) (mine == NONE && message[which] == PENDING)

proctype worker(byte me)
{
	byte mine = NONE;
	DECLARE;

end:
	do
	:: atomic {
			CHOOSE_COMMAND(IS_CLAIMABLE);
			assert(!IS_FORWARD(c) || status[STEP_OF(c)] == SENT || is_replay[STEP_OF(c)]);
			message[c] = LEASED;
			holder[c] = me;
			mine = c;
			c = 0
		}
#ifdef OUTSIDE
	:: atomic { HAS_WORK -> work() }
#endif
	:: atomic {
			mine != NONE && MAY_LOCK ->
			c = mine;
			if
			:: MAY_SAY_YES -> outcome = YES
			:: MAY_SAY_NO -> outcome = NO;
#ifdef OUTSIDE
				if :: IS_FORWARD(c) -> refused[STEP_OF(c)] = true :: else fi
#endif
			:: outcome = GIVEN_UP
			fi;
			begin_run()
		}
		if
		:: atomic {
				!NEEDS_LEASE || HAS_LEASE && !IS_REFUSED ->
				report();
				forget();
				if
				:: mine = NONE
				:: again > 0 -> again--
				fi
			}
		:: atomic { forget() }
		fi
	/* It dies, or has no more to say. */
	:: atomic { mine != NONE -> mine = NONE }
	od
}

#define IS_LOST(which) (message[which] == LEASED)

/* The lease of a worker that does not come back in time. */
proctype repairer()
{
	byte c;

end:
	do
	:: atomic { CHOOSE_COMMAND(IS_LOST); d_step { count_attempt(c); c = 0 } }
	od
}

#else

#define IS_PENDING(which) (message[which] == PENDING)

proctype relay()
{
	byte c;

end:
	do
	:: atomic {
			CHOOSE_COMMAND(IS_PENDING);
			assert(!IS_FORWARD(c) || status[STEP_OF(c)] == SENT);
			if
			:: end_message(c, DISPATCHED)
			:: end_message(c, DEAD)
			fi;
			c = 0
		}
	od
}

#define IS_DELIVERED(which) (message[which] == DISPATCHED && reply[which] == 0)

/* From some time on it may do nothing more. */
proctype participant()
{
	byte c;

	do
	:: atomic {
			CHOOSE_COMMAND(IS_DELIVERED);
			if
			:: reply[c] = YES;
				done[STEP_OF(c)] = IS_FORWARD(c);
				ever_done[STEP_OF(c)] = ever_done[STEP_OF(c)] || IS_FORWARD(c)
			:: reply[c] = NO
			fi;
			c = 0
		}
	:: break
	od
}

#define IS_ANSWERED(which) (MAY_LOCK && reply[which] != 0 && (!is_told[which] || again > 0))

/* outbox_saga_reply */
proctype worker(byte me)
{
	DECLARE;

end:
	do
	:: atomic { CHOOSE_COMMAND(IS_ANSWERED); outcome = reply[c]; begin_run() };
		if
		:: atomic {
				d_step {
					again = (is_told[c] && again > 0 -> again - 1 : again);
					is_told[c] = true;
					if
#ifdef LATE_ANSWER_IGNORED
					:: IS_FORWARD(c) && r_status[s] != SENT
#endif
					:: IS_AWAITED -> take_answer()
					:: else
					fi
				}
				forget()
			}
		:: atomic { forget() }
		fi
	od
}

#endif

/* ---- hint.cpp: time_out(), bury() */

#define IS_HINT(which) (MAY_LOCK && (timer[which] || letter[which]))
#define IS_STILL_WAITED_FOR (r_status[s] == (IS_FORWARD(c) -> SENT : COMPENSATING) && IS_AWAITED)

inline give_up()
{
	outcome = GIVEN_UP;
	take_answer()
}

proctype handler()
{
	byte me = WORKERS;
	DECLARE;
	bool is_timer;

end:
	do
	:: atomic {
			CHOOSE_COMMAND(IS_HINT);
			if
			:: timer[c] -> is_timer = true
			:: letter[c]
			fi;
			begin_run()
		}
		if
		:: atomic {
				d_step {
					if
					:: is_timer -> timer[c] = false
					:: else -> letter[c] = false
					fi;
					if
					:: !IS_STILL_WAITED_FOR
					:: IS_STILL_WAITED_FOR && is_timer -> withdraw(c); give_up()
					:: IS_STILL_WAITED_FOR && !is_timer -> assert(message[c] == DEAD || is_replay[s]); give_up()
					fi;
					is_timer = false
				}
				forget()
			}
		:: atomic { forget(); is_timer = false }
		fi
	od
}

#define IS_DEAD(which) (replays > 0 && IS_FORWARD(which) && message[which] == DEAD)

/* ---- start.cpp: outbox_saga_abort, outbox_saga_retry; replay of a command */

proctype operator()
{
	byte me = WORKERS + 1;
	DECLARE;

end:
	do
	:: atomic {
			CHOOSE_COMMAND(IS_DEAD);
			replays--;
			is_replay[c] = true;
			message[c] = PENDING;
			c = 0
		}
	:: atomic { aborts > 0 && MAY_LOCK -> aborts--; begin_run() };
		atomic {
			d_step {
				if
				:: r_saga == RUNNING -> begin_compensation(); write_run()
				:: else
				fi
			}
			forget()
		}
	:: atomic {
			retries > 0 && MAY_LOCK && (status[0] == UNCOMPENSATED || status[1] == UNCOMPENSATED) ->
			retries--;
			begin_run()
		}
		atomic {
			d_step {
				if :: r_status[0] == UNCOMPENSATED -> put_status(0, UNKNOWN) :: else fi;
				if :: r_status[1] == UNCOMPENSATED -> put_status(1, UNKNOWN) :: else fi;
				compensate_next();
				write_run()
			}
			forget()
		}
	od
}

inline check_end()
{
	c = 0;
	do
	:: c < COMMANDS ->
		assert(!IS_OPEN(c) && !timer[c] && !letter[c]);
		assert(saga != COMPLETED || IS_FORWARD(c) || message[c] == UNSENT);
		c++
	:: else -> break
	od;
	assert(saga == COMPLETED || saga == HAS_FAILED);
	s = 0;
	do
	:: s < STEPS ->
		assert(saga != COMPLETED || (status[s] == SUCCEEDED && done[s]));
		assert(saga == COMPLETED || status[s] == ABSENT || status[s] == FAILED || status[s] == COMPENSATED || status[s] == UNCOMPENSATED);
		assert(saga == COMPLETED || !done[s] || status[s] == UNCOMPENSATED);
		s++
	:: else -> break
	od
}

init
{
	byte c, s;

	atomic {
		status[0] = SENT;
		send(0, COMMAND_TIMEOUT);
#ifdef PARALLEL
		status[1] = SENT;
		send(1, COMMAND_TIMEOUT);
#endif
		do
		:: c < WORKERS -> run worker(c); c++
		:: else -> break
		od;
		c = 0;
		run handler();
#ifdef REPLIES
		run relay();
		run participant();
#else
		run repairer();
#endif
#if ABORTS + RETRIES + REPLAYS > 0
		run operator()
#endif
	}
	/* When nothing more happens. */
	timeout ->
	d_step { check_end() }
}
