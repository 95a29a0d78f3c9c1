/*
 * Claim, expiry, renewal, release, completion, repair and cancellation of messages, leases that are broken and
 * messages that are rescheduled (src/message/lease.h, lost_lease.h, try_report.cpp, src/verbs/claim.cpp, renew.cpp,
 * repair.cpp, cancel.cpp, break_lease.cpp, reschedule.cpp), by workers that die or believe for too long that they live,
 * on a server that crashes.
 *
 * Proves for these bounds, whatever the interleaving:
 * - a message is pending or has one terminal attempt, never both, never none, never two;
 * - attempts are numbered without gaps, and no more than max_attempts;
 * - a lease leaves one attempt at most, and only who holds it at that moment reports on it;
 * - a lease ends by an attempt, or is given back by its worker; nothing else takes it away;
 * - no more than max_releases are untried before one that leaves an attempt;
 * - what was acknowledged is there after a crash, with claims that commit asynchronously too;
 * - every run comes to its end, and in the end each message has ended: crashes, rollbacks,
 *   renewals and releases are counted, so that a run which goes on for ever fails nothing else.
 *
 * Shape: a step is one look at a row or ledger, one change of a row, or one commit: what the
 * verbs do to one buffer under its lock. Rows have versions: `fresh` says that the one a session
 * looked at is still the newest. A claim finds any row that is due: that none is overlooked is
 * floor.pml's business. A lease may expire at any moment after it became visible.
 *
 * Broken variants, for `run`: each -D leaves out one thing that the protocol needs.
 */

#ifndef MESSAGES
#define MESSAGES 1
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef MOST
#define MOST 2		/* max_attempts */
#endif
/* How often each may happen; with -DCANCELS, -DBREAKS or -DRESCHEDULES an operator cancels the first message, breaks
   its lease or makes it due at another time, once. With -DMAX_RELEASES so many releases are untried. */
#ifndef ROLLBACKS
#define ROLLBACKS 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef EXTRAS
#define EXTRAS 0	/* renewals and releases */
#endif

/* Session numbers: workers first. */
#define REPAIRER WORKERS
#define OPERATOR (WORKERS + 1)
#define SESSIONS (WORKERS + 2)
#define NOBODY 255
#define NO_LEASE 0

/* A message: its row of outbox.pending, its rows of outbox.attempts. */
typedef Message {
	bool pending;
	byte token;			/* NO_LEASE, or the lease's */
	byte attempts;
	byte terminals;
#ifdef MAX_RELEASES
	byte releases;		/* untried, since one counted as a try */
#endif
}
Message newest[MESSAGES];	/* committed */
Message durable[MESSAGES];	/* what a crash leaves at the least */
byte owner[MESSAGES] = NOBODY;	/* whose open transaction has changed the row */
bool expired[MESSAGES];		/* the newest version's lease */
bool fresh[SESSIONS * MESSAGES];
#define FRESH(m) fresh[me * MESSAGES + (m)]

byte tokens;				/* issued: 1 to so many, no two are the same */
int recorded;				/* bit n: token n has left an attempt */
byte rollbacks, kills, crashes, extras;
bool killed[SESSIONS];		/* its transaction is gone, and its memory too */
bool cut_off[SESSIONS];		/* its transaction only: the server has crashed */

#define IS_FREE(m) (owner[m] == NOBODY && newest[m].pending)
#define IS_LOST(m) (IS_FREE(m) && newest[m].token != NO_LEASE && expired[m])
#define IS_CLAIMABLE(m) (IS_FREE(m) && newest[m].token == NO_LEASE || IS_LOST(m))

inline copy(to, from)
{
	to.pending = from.pending;
	to.token = from.token;
	to.attempts = from.attempts;
	to.terminals = from.terminals;
#ifdef MAX_RELEASES
	to.releases = from.releases
#endif
}

inline check(message)
{
	assert(message.terminals <= 1);
	assert(message.pending == (message.terminals == 0));
	assert(message.attempts <= MOST)
}

/* ---- transactions: of one verb, on one message */

inline forget_version(which)
{
	s = 0;
	do
	:: s < SESSIONS -> fresh[s * MESSAGES + which] = false; s++
	:: else -> break
	od;
	s = 0
}

/* The log is flushed up to this commit, and so are all before it. */
inline flush()
{
	s = 0;
	do
	:: s < MESSAGES && CRASHES > 0 -> copy(durable[s], newest[s]); s++
	:: else -> break
	od;
	s = 0
}

/* A worker that has given its lease back holds none. */
#define IS_GIVEN_BACK (me < WORKERS && held == NO_LEASE)

inline become_visible()
{
	assert(owner[m] == me);
	assert(newest[m].token == NO_LEASE || next.token == newest[m].token || next.attempts > newest[m].attempts || IS_GIVEN_BACK);
#ifdef MAX_RELEASES
	assert(next.releases <= MAX_RELEASES);
	assert(next.releases >= newest[m].releases || next.attempts > newest[m].attempts);
#endif
	if
	:: newest[m].token != next.token || renewed -> expired[m] = false
	:: else
	fi;
	if
	:: next.attempts > newest[m].attempts && newest[m].token != NO_LEASE ->
		assert(!(recorded & (1 << newest[m].token)));
		recorded = recorded | (1 << newest[m].token)
	:: else
	fi;
	copy(newest[m], next);
	check(newest[m]);
	owner[m] = NOBODY;
	forget_version(m)
}

inline forget()
{
	changed = false; renewed = false; claims = false; late = false;
	seen = 0; numbered = 0;
	next.pending = false; next.token = 0; next.attempts = 0; next.terminals = 0;
#ifdef MAX_RELEASES
	next.releases = 0;
#endif
	FRESH(m) = false;
	m = 0
}

inline commit()
{
	atomic {
		if
		:: changed ->
			/* transaction.cpp, commit_leases_asynchronously(): a crash may take it back. */
			if
#ifdef ASYNCHRONOUS_ALWAYS
			:: become_visible()
#else
			:: next.attempts == newest[m].attempts && next.token != NO_LEASE && !renewed -> become_visible()
#endif
			:: become_visible(); flush()
			fi
		:: else
		fi;
		forget()
	}
}

inline undo(who)
{
	s = 0;
	do
	:: s < MESSAGES && owner[s] == who -> owner[s] = NOBODY; s++
	:: s < MESSAGES && owner[s] != who -> s++
	:: s == MESSAGES -> break
	od;
	s = 0
}

inline commit_or_not()
{
	if
	:: commit()
	:: atomic { changed && rollbacks < ROLLBACKS -> rollbacks++; undo(me); forget() }
	fi
}

/* ---- what the verbs share */

/* pending_row.cpp, find_pending(), load() */
inline look()
{
	FRESH(m) = true;
	seen = (newest[m].pending -> newest[m].token : NO_LEASE);
}

/* ledger.cpp, tried(): the number for the next attempt is the greatest + 1 */
inline read_ledger() { numbered = newest[m].attempts + 1 }

/* pending_row.cpp, store() and remove(): of the very version that was looked at, or not at all. */
#ifdef ANY_VERSION
#define MAY_CHANGE (owner[m] == NOBODY)
#else
#define MAY_CHANGE (owner[m] == NOBODY && FRESH(m))
#endif

inline change(still_pending, new_token)
{
	owner[m] = me;
	copy(next, newest[m]);
	next.pending = still_pending;
	next.token = new_token;
	changed = true
}

/* record.cpp, append(). The unique index would refuse a number that is there, none a gap. */
inline append(terminal)
{
	assert(numbered == next.attempts + 1);
	next.attempts = numbered;
	next.terminals = next.terminals + terminal
}

inline new_token()
{
	tokens++;
	assert(tokens < 32);
	held = tokens;
	held_of = m
}

/* lost_lease.h, recover_expired(): of a row whose expired lease was looked at. It goes on free, or
   under a new one. */
inline recover()
{
	read_ledger();
	atomic {
		if
#ifdef REPAIR_IGNORES_LOCK
		:: FRESH(m) ->
#else
		:: MAY_CHANGE ->
#endif
			if
			:: numbered >= MOST -> change(false, NO_LEASE); append(1)
			:: else ->
				if
				:: claims -> new_token(); change(true, held)
				:: else -> change(true, NO_LEASE)
				fi;
#ifdef LOSS_NOT_RECORDED
				numbered = 0
#else
				append(0)
#endif
			fi
		:: else
		fi
	}
}

/* ---- verbs */

#if MESSAGES > 1
#define CHOOSE_MESSAGE(condition) if :: condition(0) -> m = 0 :: condition(1) -> m = 1 fi
#else
#define CHOOSE_MESSAGE(condition) condition(0)
#endif

/* claim.cpp, take() and settle_and_take(), of a row that was found: passes by what somebody else has. */
inline claim()
{
	if
	:: seen != NO_LEASE -> claims = true; recover()
	:: else ->
		atomic {
			if
			:: MAY_CHANGE -> new_token(); change(true, held)
			:: else
			fi
		}
	fi
}

/* lease.cpp, judge_lease(), of the row looked at in this very step */
#ifdef TOKEN_NOT_CHECKED
#define IS_MY_LEASE(m) (seen != NO_LEASE && !expired[m])
#else
#ifdef EXPIRY_NOT_CHECKED
#define IS_MY_LEASE(m) (seen == held)
#else
#define IS_MY_LEASE(m) (seen == held && !expired[m])
#endif
#endif

/* try_report.cpp, settle(): waits for who has the row, and looks again. */
inline complete()
{
	atomic {
		m = held_of;
		late = newest[m].token == held && expired[m]
	}
	do
	:: atomic {
			look();
			if
			:: IS_MY_LEASE(m) -> skip
			:: else -> held = NO_LEASE; break
			fi
		}
		read_ledger();
		atomic {
			owner[m] == NOBODY;
			if
			:: MAY_CHANGE ->
				assert(newest[m].token == held && !late);
				if
				:: change(false, NO_LEASE); append(1)		/* DISPATCHED, FAILED */
				:: numbered < MOST -> change(true, NO_LEASE); append(0)		/* RETRYABLE */
				fi;
				break
			:: else
			fi
		}
	od
}

#ifdef MAX_RELEASES
#define COUNT_RELEASE next.releases++
#else
#define COUNT_RELEASE skip
#endif
#if defined(MAX_RELEASES) && !defined(RELEASES_UNLIMITED)
#define MAY_RELEASE (newest[m].releases < MAX_RELEASES)
#else
#define MAY_RELEASE true
#endif

/* renew.cpp: waits for nobody. */
inline renew_or_release()
{
	atomic { extras++; m = held_of; look(); changed = IS_MY_LEASE(m) }
	atomic {
		if
		:: changed && MAY_CHANGE ->
			if
			:: change(true, held); renewed = true
			:: MAY_RELEASE -> change(true, NO_LEASE); COUNT_RELEASE; held = NO_LEASE
			:: !MAY_RELEASE -> changed = false
			fi
		:: else -> changed = false
		fi
	}
}

#ifdef MAX_RELEASES
/* renew.cpp, count_releases(), of a row of which renew_or_release() has found that; try_report.cpp, settle(), which
   does not wait here. */
inline count_release()
{
	atomic { extras++; m = held_of; look(); changed = IS_MY_LEASE(m) && !MAY_RELEASE }
	read_ledger();
	atomic {
		if
		:: changed && MAY_CHANGE ->
			if
			:: numbered >= MOST -> change(false, NO_LEASE); append(1)
#ifdef RELEASE_NOT_RECORDED
			:: numbered < MOST -> change(true, NO_LEASE); numbered = 0
#else
			:: numbered < MOST -> change(true, NO_LEASE); append(0)
#endif
			fi;
			next.releases = 0;
			held = NO_LEASE
		:: else -> changed = false
		fi
	}
}
#endif

/* cancel.cpp, try_cancel(): with force, whoever has the lease. */
inline cancel()
{
	do
#ifdef NUMBERED_FIRST
	:: read_ledger();
		atomic {
#else
	:: atomic {
#endif
			look();
			if
			:: newest[m].pending
			:: else -> break
			fi
		}
#ifndef NUMBERED_FIRST
		read_ledger();
#endif
		atomic {
			owner[m] == NOBODY;
			if
			:: MAY_CHANGE -> change(false, NO_LEASE); append(1); break
			:: else
			fi
		}
	od
}

/* break_lease.cpp: recover_lease() of a lease that need not have expired, which waits for whoever has the row. */
inline break_lease()
{
	do
	:: atomic {
			look();
			if
			:: seen != NO_LEASE
			:: else -> break
			fi
		}
		read_ledger();
		atomic {
			owner[m] == NOBODY;
			if
			:: MAY_CHANGE ->
				if
				:: numbered >= MOST -> change(false, NO_LEASE); append(1)
#ifdef BREAK_KEEPS_LEASE
				:: numbered < MOST -> change(true, seen); append(0)
#else
				:: numbered < MOST -> change(true, NO_LEASE); append(0)
#endif
				fi;
				break
			:: else
			fi
		}
	od
}

/* reschedule.cpp: of a row that no worker holds. */
inline reschedule()
{
	do
	:: atomic {
			look();
			if
			:: newest[m].pending && seen == NO_LEASE
			:: else -> break
			fi
		}
		atomic {
			owner[m] == NOBODY;
			if
#ifdef RESCHEDULE_ANY_VERSION
			:: true -> change(true, seen); break
#else
			:: MAY_CHANGE -> change(true, seen); break
			:: else
#endif
			fi
		}
	od
}

/* ---- who calls them */

#if defined(BREAKS)
#define INTERVENE break_lease()
#elif defined(RESCHEDULES)
#define INTERVENE reschedule()
#elif defined(CANCELS)
#define INTERVENE cancel()
#endif

#if MESSAGES > 1
#define ALL_ENDED (!newest[0].pending && !newest[1].pending)
#define ANY(condition) (condition(0) || condition(1))
#else
#define ALL_ENDED (!newest[0].pending)
#define ANY(condition) (condition(0))
#endif

/* A worker keeps the token of its claim until it was answered, over lost connections and failed
   transactions too: it cannot know. */
proctype session(byte me)
{
	Message next;
	byte m, s, seen, numbered, held, held_of;
	bool changed, renewed, claims, late;

	do
	:: {
			do
#ifdef INTERVENE
			:: me == OPERATOR ->
				INTERVENE;
				commit_or_not();
				goto gone
#endif
			:: atomic { me == REPAIRER && ANY(IS_LOST) -> CHOOSE_MESSAGE(IS_LOST); look() }
				recover();
				commit_or_not()
			:: atomic { me < WORKERS && held == NO_LEASE && ANY(IS_CLAIMABLE) -> CHOOSE_MESSAGE(IS_CLAIMABLE); look() }
				claim();
				commit_or_not()
			:: me < WORKERS && held != NO_LEASE ->
				complete();
				commit_or_not()
			:: me < WORKERS && held != NO_LEASE && extras < EXTRAS ->
				renew_or_release();
				commit_or_not()
#ifdef MAX_RELEASES
			:: me < WORKERS && held != NO_LEASE && extras < EXTRAS ->
				count_release();
				commit_or_not()
#endif
			:: ALL_ENDED && held == NO_LEASE -> goto gone
			od
		} unless {
			atomic {
				killed[me] || cut_off[me] ->
				forget();
				if
				:: killed[me] -> held = NO_LEASE
				:: else
				fi;
				killed[me] = false;
				cut_off[me] = false
			}
		}
	od;
gone:	skip
}

/* Time, and what befalls sessions and server. */
proctype fate()
{
	byte s, who;

	do
	:: atomic { newest[0].token != NO_LEASE && !expired[0] -> expired[0] = true }
#if MESSAGES > 1
	:: atomic { newest[1].token != NO_LEASE && !expired[1] -> expired[1] = true }
#endif
	:: atomic { kills < KILLS && !ALL_ENDED ->
			kills++;
			if
			:: who = 0
			:: who = 1
			:: who = REPAIRER
			fi;
			undo(who);
			killed[who] = true;
			who = 0
		}
	:: atomic { crashes < CRASHES ->
			crashes++;
			who = 0;
			do
			:: who < SESSIONS -> undo(who); cut_off[who] = true; who++
			:: else -> break
			od;
			who = 0;
			if
			:: true
			:: do
				:: who < MESSAGES -> assert(durable[who].attempts == newest[who].attempts); copy(newest[who], durable[who]); forget_version(who); who++
				:: else -> break
				od
			fi;
			who = 0
		}
	:: ALL_ENDED -> break
	od
}

init
{
	byte i, s;

	atomic {
		do
		:: i < MESSAGES -> newest[i].pending = true; durable[i].pending = true; i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < WORKERS || i == REPAIRER -> run session(i); i++
#ifdef INTERVENE
		:: i == OPERATOR -> run session(i); i++
#else
		:: i == OPERATOR -> i++
#endif
		:: i == SESSIONS -> break
		od;
		run fate()
	}
}
