/*
 * The watermark of seals (src/commit/record_floor.h, src/seals/closing.h): transactions that record, a sealer that
 * publishes a floor, keeps marks, and closes windows of time, and a worker that fills the copy of the floor.
 *
 * Proves for these bounds, whatever the interleaving and whatever the clock says:
 * - no row becomes visible with a time before the end of a closed window, unless its seal has it;
 * - what the sealer's own transaction recorded before (OWN) is in its seal or a later one; what it records of the seal
 *   has a time after the window;
 * - where no other transaction runs, the window closes at the mark just made: open transactions delay, and nothing else.
 *
 * Shape: a step is one access to what is shared: the next id and the list of running transactions, the sequence, its
 * copy in shared memory, or all visible rows. A commit makes rows visible and leaves the list in one step, because
 * snapshots are made from that list. Each look at the clock gives any time. A crash loses the copy, open transactions that are
 * not prepared, and maybe what was not flushed: the sequence, and ids of transactions that left nothing. That
 * sealers go one after the other is taken for granted, and savepoints are left out.
 *
 * Broken variants, for `run`: each -D leaves out one thing that the protocol needs.
 */

#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef TICKS
#define TICKS 2		/* of the sealer that end */
#endif
#ifndef CLOCKS
#define CLOCKS 2	/* the clock says 0 to CLOCKS - 1 */
#endif
#ifndef CRASHES
#define CRASHES 0
#endif

#define UNKNOWN 255	/* of the copy: the sequence is to be read */
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* the server */
byte next = 1;
byte xid[WRITERS];		/* 0: does not run */
bool prepared[WRITERS];
byte epoch;			/* crashes so far */
byte flushed_next = 1;		/* no committed or prepared transaction has this id or a later one */

/* outbox.seal_floor, and its copy */
byte sequence;
byte flushed_sequence;
byte copy = UNKNOWN;

/* outbox.messages, attempts and events: one row of each writer */
byte at[WRITERS];
bool visible[WRITERS];
bool sealed[WRITERS];

/* outbox.seal_marks, and the end of the last seal */
byte mark_at[TICKS];
byte mark_next[TICKS];
byte marks;
byte closed;

/* ---- pieces */

inline look_at_clock(time)
{
	if
	:: time = 0
	:: time = 1
#if CLOCKS > 2
	:: time = 2
#endif
#if CLOCKS > 3
	:: time = 3
#endif
	fi
}

inline read_floor(floor)
{
	floor = (copy == UNKNOWN -> sequence : copy)
}

inline flush_id(id)
{
	flushed_next = MAX(flushed_next, id + 1)
}

/* No row that is visible lies in a closed window without its seal. */
inline check_seals()
{
	i = 0;
	do
	:: i < WRITERS -> assert(!(visible[i] && at[i] < closed && !sealed[i])); i++
	:: else -> break
	od;
	i = 0
}

#define LOST(started) ((started) != epoch)

/* ---- record_time(), and the end of a transaction */

proctype writer(byte me)
{
	byte floor, time, started, i;

again:
	started = epoch;
#ifdef TIME_BEFORE_ID
	atomic { read_floor(floor); look_at_clock(time) }
#endif
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		xid[me] = next;
		next++
	}
	atomic {
		if :: LOST(started) -> goto again :: else fi;
#ifndef TIME_BEFORE_ID
		read_floor(floor);
		look_at_clock(time);
#endif
#ifdef FLOOR_NOT_CONSULTED
		floor = 0;
#endif
		at[me] = MAX(time, floor);
		floor = 0;
		time = 0
	}
	if
	:: atomic {
#ifdef PREPARES
		!LOST(started);
		prepared[me] = true;
		flush_id(xid[me])
#else
		false
#endif
	}
	:: skip
	fi;
	atomic {
		if
		:: LOST(started) && !prepared[me] -> goto again
		:: else
		fi;
		if
		:: visible[me] = true; flush_id(xid[me])
#ifdef ROLLBACKS
		:: skip
#endif
		fi;
		xid[me] = 0;
		check_seals()
	}
}

/* ---- src/seals/closing.cpp */

/* Of the transactions that run, except its own. */
inline oldest_other()
{
	oldest = next;
	i = 0;
	do
#ifdef PREPARED_NOT_LISTED
	:: i < WRITERS && xid[i] != 0 && !prepared[i] -> oldest = MIN(oldest, xid[i]); i++
	:: i < WRITERS && (xid[i] == 0 || prepared[i]) -> i++
#else
	:: i < WRITERS && xid[i] != 0 -> oldest = MIN(oldest, xid[i]); i++
	:: i < WRITERS && xid[i] == 0 -> i++
#endif
	:: i == WRITERS -> break
	od;
	alone = oldest == next;
	i = 0
}

/* The newest mark below which all have ended; 0: none. */
inline find_end()
{
	end = 0;
	i = 0;
	do
#ifdef NEXT_ID_NOT_COMPARED
	:: i <= marks -> end = MAX(end, mark_at[i]); i++
#else
	:: i <= marks && mark_next[i] <= oldest -> end = MAX(end, mark_at[i]); i++
	:: i <= marks && mark_next[i] > oldest -> i++
#endif
	:: i > marks -> break
	od;
	i = 0
}

inline read_rows(from)
{
	i = 0;
	do
	:: i < WRITERS -> taken[i] = visible[i] && at[i] >= closed && at[i] < from; i++
	:: else -> break
	od;
	i = 0
}

inline forget_tick()
{
	mark_at[marks] = 0;
	mark_next[marks] = 0;
	i = 0;
	do :: i < WRITERS -> taken[i] = false; i++ :: else -> break od;
	i = 0;
	floor = 0; time = 0; end = 0; oldest = 0; alone = false; own_at = 0
}

proctype sealer()
{
	byte started, id, floor, time, own_at, end, oldest, i;
	bool alone;
#ifdef ROLLBACKS
	bool rolled_back;
#endif
	bool taken[WRITERS];

again:
	atomic {
		forget_tick();
		started = epoch;
		id = next;
		next++
	}
#ifdef OWN
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		read_floor(floor);
		look_at_clock(time);
		own_at = MAX(time, floor);
		floor = 0;
		time = 0
	}
#endif

	/* make_mark() */
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		look_at_clock(time);
		mark_at[marks] = MAX(time, MAX(sequence, closed) + 1);
		time = 0;
#ifdef ID_BEFORE_FLOOR
		mark_next[marks] = next
#endif
	}
#ifndef SEQUENCE_LATE
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		sequence = mark_at[marks]
	}
#endif
#ifndef UNPRELOADED
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		copy = (copy == UNKNOWN -> mark_at[marks] : MAX(copy, mark_at[marks]))
	}
#endif
#ifndef ID_BEFORE_FLOOR
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		mark_next[marks] = next
	}
#endif
#ifdef SEQUENCE_LATE
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		sequence = mark_at[marks]
	}
#endif

	/* close_window() */
#ifdef ROWS_BEFORE_LIST
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		read_rows(mark_at[marks])
	}
#endif
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		oldest_other();
		find_end();
		assert(!alone || end == mark_at[marks] || epoch > 0)
	}
#ifndef ROWS_BEFORE_LIST
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		read_rows(end)
	}
#endif
	atomic {
		if :: LOST(started) -> goto again :: else fi;
		if
		:: end > closed ->
#ifdef OWN
#ifdef OWN_NOT_READ
			assert(own_at >= end);
#else
			/* It is visible to its own transaction, so a time before `end` is in the seal. */
			assert(own_at >= closed);
#endif
#endif
			/* The record of the seal itself. */
			look_at_clock(time);
#ifndef OWN_TIME_BY_CLOCK
			time = MAX(time, mark_at[marks]);
#endif
			assert(time >= end)
		:: else -> end = closed
		fi;
#ifdef ROLLBACKS
		if
		:: !rolled_back -> rolled_back = true; goto again
		:: skip
		fi;
#endif
		/* commit */
		i = 0;
		do :: i < WRITERS -> sealed[i] = sealed[i] || taken[i] && at[i] < end; i++ :: else -> break od;
		i = 0;
		closed = end;
		flush_id(id);
		flushed_sequence = sequence;
		marks++;
		check_seals();
		if
		:: marks < TICKS -> goto again
		:: else
		fi
	}
}

/* share_floor(), of a worker that starts */
proctype worker()
{
	byte floor, started;

again:
	atomic { started = epoch; floor = sequence }
	atomic {
		if :: LOST(started) -> goto again :: else fi;
#ifdef COPY_OVERWRITTEN
		copy = floor
#else
		copy = (copy == UNKNOWN -> floor : MAX(copy, floor))
#endif
	}
	/* The next one comes after a crash. */
	do
	:: epoch == CRASHES && !LOST(started) -> break
	:: LOST(started) -> goto again
	od
}

proctype crash()
{
	byte i;

	atomic {
		epoch++;
		do
		:: i < WRITERS && !prepared[i] && !visible[i] -> xid[i] = 0; at[i] = 0; i++
		:: i < WRITERS && (prepared[i] || visible[i]) -> i++
		:: else -> break
		od;
		i = 0;
		if :: next = flushed_next :: skip fi;
#ifdef SEQUENCE_LOST
		sequence = 0;
#else
		if :: sequence = flushed_sequence :: skip fi;
#endif
#ifdef FLOOR_NOT_RESTORED
		copy = 0
#else
		copy = UNKNOWN
#endif
	}
}

init
{
	byte w;

	atomic {
		do
		:: w < WRITERS -> run writer(w); w++
		:: else -> break
		od;
		run sealer();
#ifndef UNPRELOADED
		run worker();
#endif
#if CRASHES
		run crash();
#endif
	}
}
