/*
 * The order within a key (src/message/order.h): a producer that enqueues, workers that end the head, an operator
 * who cancels any message, sessions that settle the marks which they leave.
 *
 * Proves for these bounds, whatever the interleaving:
 * - a key never has two heads, and no message that has not ended lies before its head;
 * - none is stranded: once all transactions have ended, and one pass has settled what they left, a key that holds
 *   messages has a head. So each run ends with each message ended.
 *
 * Shape: a step is one look at a row, at the rows of the key or at its marks, one change, or one commit. A look sees
 * open transactions, as a probe does; that an index scan may miss a row is left out. Leases are left out, but for a
 * claim in the transaction that ends the message: it makes a version which the same transaction ends. Whoever
 * waits for a row is left out: it comes later. A pass begins when a transaction has ended since the last one.
 *
 * Broken variants, for `run`: each -D leaves out one thing that the protocol needs.
 */

#ifndef MESSAGES
#define MESSAGES 3	/* 2 or 3; the first is there at the beginning */
#endif
#ifndef WORKERS
#define WORKERS 1
#endif
#ifndef SETTLERS
#define SETTLERS 1
#endif
#ifndef ROLLBACKS
#define ROLLBACKS 1
#endif
#ifndef CANCELS
#define CANCELS 0
#endif

/* Session numbers. */
#define PRODUCER 0
#define OPERATOR 1
#define FIRST_WORKER 2
#define FIRST_SETTLER (FIRST_WORKER + WORKERS)
#define NOBODY 255

/* outbox.pending: committed versions, and those of the open transaction that has the row. */
#define ABSENT 0
#define BEHIND 1
#define HEAD 2
#define GONE 3
#define ROWS (MESSAGES + 1)
byte committed[ROWS];
byte own[ROWS];
byte owner[ROWS] = NOBODY;
bool claimed[ROWS];		/* the open transaction had made a version before */

/* outbox.key_marks: what a producer, one who ended a message in its turn, or out of turn left behind that message. */
#define BY_PRODUCER(n) (n)
#define BY_END(n) (ROWS + (n))
#define GAP(n) (2 * ROWS + (n))
#define MARKS (3 * ROWS)
bool mark[MARKS];
byte changer[MARKS] = NOBODY;	/* whose open transaction leaves or removes it */

byte last = 1;			/* outbox.key_numbers */
byte rollbacks, cancels;
bool all_enqueued, all_cancelled;
bool news;			/* a transaction has ended since the last pass began */

#define IS_OTHERS(who) ((who) != NOBODY && (who) != me)
#define IS_PENDING(n) (committed[n] == BEHIND || committed[n] == HEAD)
#define IS_FREE(n, state) (owner[n] == NOBODY && committed[n] == state)

/* ---- looking */

#define LIVE 0
#define GOING 1
#define ENDED 2

inline look_at(n)
{
	d_step {
		if
		:: owner[n] == NOBODY -> seen = (committed[n] == GONE -> ENDED : LIVE)
		:: owner[n] == me -> seen = (own[n] == GONE -> ENDED : LIVE)
		:: else ->
#ifdef MADE_VERSION_IS_LIVE
			seen = (own[n] == GONE && !claimed[n] -> GOING : LIVE)
#else
			seen = (own[n] == GONE -> GOING : LIVE)
#endif
		fi
	}
}

/* The first row from there on: 0 = none. */
inline look_behind(from)
{
	d_step {
		found = from;
		do
		:: found == ROWS -> found = 0; break
		:: found < ROWS && IS_OTHERS(owner[found]) -> break
		:: found < ROWS && owner[found] == me && own[found] != GONE -> break
		:: found < ROWS && IS_FREE(found, BEHIND) -> break
		:: found < ROWS && IS_FREE(found, HEAD) -> break
		:: else -> found++
		od;
		is_open = found != 0 && IS_OTHERS(owner[found]);
		is_behind = found != 0 && !is_open && committed[found] == BEHIND
	}
}

/* ---- changing */

inline change(n, state)
{
	own[n] = state;
	owner[n] = me
}

inline leave(which)
{
	atomic {
		assert(!mark[which] && changer[which] == NOBODY);
		changer[which] = me
	}
}

/* If it is still the version that was looked at. */
inline promote(n)
{
	atomic {
		if
		:: IS_FREE(n, BEHIND) -> change(n, HEAD)
		:: else -> is_open = true
		fi
	}
}

inline end_transaction(is_commit)
{
	d_step {
		i = 0;
		do
		:: i < ROWS ->
			if
			:: owner[i] == me ->
				committed[i] = (is_commit -> own[i] : committed[i]);
				owner[i] = NOBODY;
				own[i] = ABSENT;
				claimed[i] = false
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < MARKS ->
			if
			:: changer[i] == me ->
				mark[i] = (is_commit -> !mark[i] : mark[i]);
				changer[i] = NOBODY
			:: else
			fi;
			i++
		:: else -> break
		od;
		news = true;
		i = 1;
		is_open = false;
		do
		:: i < ROWS ->
			assert(committed[i] != HEAD || !is_open);	/* two heads, or one out of turn */
			is_open = is_open || IS_PENDING(i);
			i++
		:: else -> break
		od;
		i = 0;
		is_open = false
	}
}

inline commit_or_roll_back()
{
	if
	:: is_committed = true
	:: atomic { rollbacks < ROLLBACKS -> rollbacks++; is_committed = false }
	fi;
	end_transaction(is_committed)
}

/* ---- src/message/order.cpp: waits_for_turn(), look_at_turns_again() */

#define NOW 0
#define LATER 1
#define UNKNOWN 2

inline turn_behind(n)
{
	look_at(n);
	if
	:: seen == LIVE -> turn = LATER
	:: seen == GOING -> turn = UNKNOWN
	:: seen == ENDED ->
		d_step {
			turn = NOW;
			i = 0;
			do
			:: i < MARKS -> turn = (mark[i] || IS_OTHERS(changer[i]) -> UNKNOWN : turn); i++
			:: else -> break
			od;
			i = 0
		}
	fi
}

proctype producer()
{
	byte me = PRODUCER, i, seen, turn, before;
	bool is_open, is_committed;

	do
	:: last < MESSAGES ->
		before = last;
		turn_behind(before);
		if
		:: turn == UNKNOWN -> leave(BY_PRODUCER(before))
		:: else
		fi;
		atomic { change(before + 1, (turn == NOW -> HEAD : BEHIND)) };
#ifndef NO_SECOND_LOOK
		if
		:: turn == LATER ->
			turn_behind(before);
			if
			:: turn != LATER -> leave(BY_PRODUCER(before))
			:: else
			fi
		:: else
		fi;
#endif
		atomic {
			commit_or_roll_back();
			last = (is_committed -> last + 1 : last)
		}
	:: last == MESSAGES -> break
	od;
	all_enqueued = true
}

/* ---- pass_turn(), go_on() */

inline go_on(n)
{
	is_open = false;
#ifndef NO_LOOK_BEHIND
	look_behind(n + 1);
	if
	:: is_behind -> promote(found)
	:: else
	fi;
#ifndef OPEN_ROW_PASSED_BY
	if
	:: is_open -> leave(BY_END(n))
	:: else
	fi
#endif
#endif
}

#if MESSAGES > 2
#define IS_EMPTY (!IS_PENDING(1) && !IS_PENDING(2) && !IS_PENDING(3))
#else
#define IS_EMPTY (!IS_PENDING(1) && !IS_PENDING(2))
#endif
#define ALL_ENDED (all_enqueued && all_cancelled && IS_EMPTY)

inline choose(state)
{
	if
	:: IS_FREE(1, state) -> n = 1
	:: IS_FREE(2, state) -> n = 2
#if MESSAGES > 2
	:: IS_FREE(3, state) -> n = 3
#endif
	fi
}

proctype worker(byte me)
{
	byte i, n, found;
	bool is_open, is_behind, is_committed;

	do
	:: atomic {
			choose(HEAD);
			if
			:: change(n, GONE)
			:: change(n, HEAD); claimed[n] = true
			fi
		}
		own[n] = GONE;
		go_on(n);
		atomic { commit_or_roll_back(); n = 0; found = 0; is_behind = false }
	:: ALL_ENDED -> break
	od
}

proctype operator()
{
	byte me = OPERATOR, i, n, found;
	bool is_open, is_behind, is_committed;

	do
	:: atomic { cancels < CANCELS -> cancels++ };
		if
		:: atomic { choose(HEAD); change(n, GONE) };
			go_on(n)
		:: atomic { choose(BEHIND); change(n, GONE) };
#ifndef NO_GAP
			leave(GAP(n))
#endif
		:: all_enqueued && IS_EMPTY -> goto done
		fi;
		atomic { commit_or_roll_back(); n = 0; found = 0; is_behind = false }
	:: cancels == CANCELS -> break
	od;
done:
	all_cancelled = true
}

/* ---- settle_key() */

#define IS_THERE(i) ((read_marks >> (i)) & 1)

inline read_all_marks()
{
	d_step {
		i = 0;
		read_marks = 0;
		do
		:: i < MARKS ->
			read_marks = (mark[i] -> read_marks | (1 << i) : read_marks);
			is_unsettled = is_unsettled || IS_OTHERS(changer[i]);
			i++
		:: else -> break
		od;
		i = 0
	}
}

inline look_at_kinds()
{
	d_step {
		i = 1;
		do
		:: i < ROWS ->
			has_gap = has_gap || mark[GAP(i)];
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < MARKS -> is_unsettled = is_unsettled || IS_OTHERS(changer[i]); i++
		:: else -> break
		od;
		i = 0
	}
}

/* A gap until the key has come past it. */
inline remove_marks()
{
	d_step {
		i = 0;
		do
		:: i < MARKS ->
			if
			:: IS_THERE(i) && mark[i] && changer[i] == NOBODY && (i < GAP(0) || found == 0 || i - GAP(0) < found) -> changer[i] = me
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	}
}

proctype settler(byte me)
{
	byte i, seen, found, upto;
	int read_marks;
	bool is_open, is_behind, is_unsettled, is_committed, has_gap;

	do
	:: atomic { news -> news = false };
		read_all_marks();
#ifdef MARKS_READ_ONCE
		look_at_kinds();
#endif
		found = 1;
		do
		:: found < ROWS && (IS_THERE(BY_PRODUCER(found)) || IS_THERE(BY_END(found))) ->
			look_at(found);
			is_unsettled = is_unsettled || seen == GOING;
			upto = (seen == ENDED -> found : upto);
			found++
		:: found < ROWS && !(IS_THERE(BY_PRODUCER(found)) || IS_THERE(BY_END(found))) -> found++
		:: found == ROWS -> break
		od;
#ifndef MARKS_READ_ONCE
		look_at_kinds();
#endif
		if
		:: read_marks != 0 && !is_unsettled ->
			look_behind((has_gap || upto == 0 -> 1 : upto));
			if
			:: is_behind -> promote(found)
			:: else
			fi;
			if
			:: !is_open -> remove_marks()
			:: else
			fi;
			commit_or_roll_back()
#ifdef REMOVED_UNSEEN
		:: read_marks != 0 && is_unsettled -> found = 0; remove_marks(); commit_or_roll_back()
#endif
		:: else
		fi;
		atomic { read_marks = 0; found = 0; upto = 0; seen = 0; is_open = false; is_behind = false; is_unsettled = false; has_gap = false; is_committed = false }
	:: ALL_ENDED -> break
	od
}

init
{
	byte i;

	atomic {
		committed[1] = HEAD;
		run producer();
		run operator();
		do
		:: i < WORKERS -> run worker(FIRST_WORKER + i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < SETTLERS -> run settler(FIRST_SETTLER + i); i++
		:: else -> break
		od
	}
}
