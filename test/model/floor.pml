/*
 * Scan floors (src/commit/floor.h): one floor, rows that move under it, scans that raise it, commits
 * that lower it, a worker that a commit wakes. What a row stands for is left out: any
 * transaction may make, move or end any row.
 *
 * Proves for these bounds, whatever the interleaving:
 * - a scan that begins after a commit has lowered the floor begins at or below the commit's
 *   rows, and so does the next one of the transaction that has not committed them yet;
 * - what a commit makes is met by a scan of whom it wakes, with no look at everything;
 * - in the end no row lies below the floor, no session holds it, and a second owner never had;
 * - of all this nothing depends on sessions and server living on.
 *
 * Shape: a step is what is done under the floor's lock, one page of the index, or one row.
 * A walk keeps a page of entries, as an index scan does, and looks at their rows later: what
 * moved meanwhile is not met. Clocks are arbitrary: each scan takes any time for now.
 *
 * Broken variants, for `run`: each -D leaves out one thing that the protocol needs.
 */

#ifndef ROWS
#define ROWS 2
#endif
#ifndef KEYS
#define KEYS 2
#endif
#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef WORKERS
#define WORKERS 1
#endif
#ifndef CHANGES
#define CHANGES 2	/* in a producer's transaction, besides one scan */
#endif
#ifndef SCANS
#define SCANS 1
#endif

#define SESSIONS (PRODUCERS + WORKERS)
/* With -DPREPARED: producers' commits tell nothing, as COMMIT PREPARED by replication, and one
   more, init, sweeps at the end. */
#ifdef PREPARED
#define ALL (SESSIONS + 1)
#else
#define ALL SESSIONS
#endif
#define BOTTOM 0
#define NEVER (KEYS + 1)
#define ABSENT (KEYS + 2)
#define NOBODY 255
#define NO_ROW 255
#define MIN(a, b) ((a) < (b) -> (a) : (b))
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* outbox.pending, and its index */
byte committed[ROWS] = ABSENT;
byte own[ROWS] = ABSENT;		/* of the open transaction that has the row */
byte owner[ROWS] = NOBODY;

/* struct Floor */
byte at = BOTTOM;
byte noted = NEVER;
byte raiser = NOBODY;

bool wake;


/* Of the page that a session walks on: entries of rows, committed and open when it was read,
   whose versions are still there. */
#define PAGE(session, row) ((session) * ROWS + (row))
bool old_entry[ALL * ROWS];
bool new_entry[ALL * ROWS];

bool undisturbed[SESSIONS];	/* it serves no interrupt: only the server can crash */
bool killed[SESSIONS];

/* What the claims above are told by: who committed the row and has not lowered the floor yet;
   that a scan is still to meet it; that the scan that is about to begin must. */
byte teller[ROWS] = NOBODY;
bool owed[ROWS];
bool told[ALL * ROWS];

/* ---- commit and abort: src/commit/transaction.cpp, act_at() */

inline end_versions(r)
{
	s = 0;
	do
	:: s < ALL ->
		old_entry[PAGE(s, r)] = new_entry[PAGE(s, r)];
		new_entry[PAGE(s, r)] = false;
		told[PAGE(s, r)] = false;
		s++
	:: else -> break
	od
}

inline forget_new_versions(r)
{
	s = 0;
	do :: s < ALL -> new_entry[PAGE(s, r)] = false; s++ :: else -> break od
}

inline become_visible()
{
	d_step {
		r = 0;
		do
		:: r < ROWS && owner[r] == me ->
			committed[r] = own[r];
			own[r] = ABSENT;
			owner[r] = NOBODY;
			end_versions(r);
			teller[r] = (committed[r] == ABSENT -> NOBODY : me);
			owed[r] = committed[r] != ABSENT;
			r++
		:: r < ROWS && owner[r] != me -> r++
		:: r == ROWS -> break
		od;
		r = 0; s = 0
	}
}

inline undo(who)
{
	d_step {
		r = 0;
		do
		:: r < ROWS && owner[r] == who ->
			own[r] = ABSENT;
			owner[r] = NOBODY;
			forget_new_versions(r);
			r++
		:: r < ROWS && owner[r] != who -> r++
		:: r == ROWS -> break
		od;
		if :: raiser == who -> raiser = NOBODY :: else fi;
		r = 0; s = 0
	}
}

/* floor.cpp, lower() */
inline lower_floor()
{
#ifdef TWO_STEPS
	at = MIN(at, made);
	noted = MIN(noted, made);
#else
	atomic {
#ifndef NOT_NOTED
		noted = MIN(noted, made);
#endif
		at = MIN(at, made)
	}
#endif
}

inline is_told()
{
	d_step {
		r = 0;
		do
		:: r < ROWS && teller[r] == me -> teller[r] = NOBODY; r++
		:: r < ROWS && teller[r] != me -> r++
		:: r == ROWS -> break
		od;
		r = 0
	}
}

inline commit()
{
	undisturbed[me] = true;
#ifdef LOWER_BEFORE_VISIBLE
	lower_floor();
	become_visible();
#else
	become_visible();
#ifdef PREPARED
	if :: me < PRODUCERS -> made = NEVER :: else fi;
#endif
#ifdef WAKE_BEFORE_LOWER
	wake = wake || made != NEVER;
#endif
	if :: made != NEVER -> lower_floor() :: else fi;
#endif
	atomic {
#ifdef PREPARED
		if :: me >= PRODUCERS -> is_told() :: else fi;
#else
		is_told();
#endif
		undisturbed[me] = false;
#ifndef WAKE_BEFORE_LOWER
		wake = wake || made != NEVER;
#endif
		made = NEVER; removed = NEVER; changes = 0; scanned = false
	}
}

/* ---- changes: src/message/pending_row.cpp, store() and remove() */

inline change(r, to)
{
	d_step {
		removed = MIN(removed, (owner[r] == me -> own[r] : committed[r]));
		made = MIN(made, to);
		if :: owner[r] == me -> forget_new_versions(r) :: else fi;
		own[r] = to;
		owner[r] = me;
		s = 0
	}
}

/* ---- scans: floor.cpp, due.cpp */

/* What the transaction itself sees of a row, of entries that others' open transactions made nothing. */
#define KEY(r) (owner[r] == me -> own[r] : committed[r])

inline expect_told()
{
	d_step {
		r = 0;
		do :: r < ROWS -> told[PAGE(me, r)] = KEY(r) != ABSENT && (owner[r] == me || teller[r] == NOBODY); r++ :: else -> break od;
		r = 0
	}
}

inline check_told()
{
	d_step {
		r = 0;
		do :: r < ROWS -> assert(!told[PAGE(me, r)] || KEY(r) >= from); told[PAGE(me, r)] = false; r++ :: else -> break od;
		r = 0
	}
}

/* begin_at_floor() */
inline begin_scan()
{
	atomic {
		expect_told();
		raising = false;
		from = at;
		if
		:: from == NEVER || made < from
#ifdef TWO_RAISERS
		:: else -> raising = true
#else
		:: else -> raising = raiser == NOBODY
#endif
		fi;
		if
		:: raising ->
			raiser = me;
#ifndef RESET_LATE
			noted = NEVER
#endif
		:: else
		fi;
#ifndef NO_MADE
		from = MIN(from, made);
#endif
		most = removed;
		check_told()
	}
}

/* raise_floor(): v is what was found */
inline raise()
{
#ifdef RESET_LATE
	noted = NEVER;
#endif
#ifndef NO_REMOVED
	v = MIN(v, most);
#endif
	atomic {
#ifndef NOTES_NOT_READ
		v = MIN(v, noted);
#endif
		if
#ifdef TWO_RAISERS
		:: v > at -> at = v
#else
		:: raiser == me && v > at -> at = v
#endif
		:: else
		fi
	}
	atomic { v = 0; release_floor() }
}

inline release_floor()
{
	if :: raiser == me -> raiser = NOBODY :: else fi;
	raising = false
}

/* Reads a page: the entries from k to page_end. */
inline read_page()
{
	atomic {
		page_end = k;
		do :: page_end < limit -> page_end++ :: break od;
		skip;	/* a break may not lead into a d_step */
		d_step {
			r = 0;
			do
			:: r < ROWS ->
				old_entry[PAGE(me, r)] = owner[r] != me && committed[r] >= k && committed[r] <= page_end;
				new_entry[PAGE(me, r)] = owner[r] != me && owner[r] != NOBODY && own[r] >= k && own[r] <= page_end;
				r++
			:: else -> break
			od;
			r = 0
		}
	}
}

#define IS_MET(r) ((owner[r] == me && own[r] == k) || (old_entry[PAGE(me, r)] && committed[r] == k))
#define IS_ENTRY(r) (IS_MET(r) || (new_entry[PAGE(me, r)] && own[r] == k))

/* Goes from k to limit and stops at a live row, `met`, or at the end. */
inline walk()
{
	met = NO_ROW;
	do
	:: k > limit || met != NO_ROW -> break
	:: k <= limit && met == NO_ROW && page_end < k -> read_page()
	:: k <= limit && met == NO_ROW && page_end >= k ->
		atomic {
			do
			:: met_row < ROWS && IS_MET(met_row) -> met = met_row; met_row++; break
			:: met_row < ROWS && !IS_MET(met_row) && IS_ENTRY(met_row) -> met_row++; break
			:: met_row < ROWS && !IS_ENTRY(met_row) -> met_row++
			:: met_row == ROWS && k < page_end -> met_row = 0; k++
			:: met_row == ROWS && k == page_end -> met_row = 0; k++; break
			od
		}
	od
}

inline start_walk(first)
{
	k = first;
	page_end = 0;
	met_row = 0
}

inline forget_page(who)
{
	r = 0;
	do :: r < ROWS -> old_entry[PAGE(who, r)] = false; new_entry[PAGE(who, r)] = false; told[PAGE(who, r)] = false; r++ :: else -> break od;
	r = 0
}

inline end_walk()
{
	d_step {
		forget_page(me);
		k = 0; page_end = 0; met_row = 0; from = 0; most = 0; proving = false; limit = 0
	}
}

inline try_to_claim()
{
	atomic {
		if
		:: owner[met] == me || (owner[met] == NOBODY && old_entry[PAGE(me, met)]) ->
			claimed = met;
			owed[met] = false;
			change(met, to)
		/* Somebody else was faster, or is at it: who has changed it tells of it. */
		:: owner[met] != NOBODY && owner[met] != me && old_entry[PAGE(me, met)] -> owed[met] = false
		:: else
		fi
	}
}

/* next_due(): claims one row that is due at `now`, and leaves its number in `claimed`. Where
   none is, raise_over_due(): the floor rises to `now`, or above everything if a walk from there
   on, which may tire, finds nothing. */
inline scan()
{
	begin_scan();
	atomic { claimed = NO_ROW; limit = now; start_walk(from) }
	do
	:: walk();
		atomic {
			if
			:: raising && !proving && met == NO_ROW -> proving = true; limit = KEYS; start_walk(now)
			:: raising && !proving && met != NO_ROW -> v = k
			:: raising && proving -> v = now
			:: raising && proving && met == NO_ROW -> v = NEVER
			:: else
			fi
		}
		if :: v != 0 -> raise() :: else fi;
		if :: met != NO_ROW && !proving -> try_to_claim() :: else fi;
		if :: claimed != NO_ROW || !raising && (proving || met == NO_ROW) -> break :: else fi
	od;
	end_walk()
}

/* Of a session: its transaction (floor.cpp, struct Entries), its scan (struct FloorScan, struct Probe). */
#define DECLARE \
	byte made = NEVER, removed = NEVER, changes; \
	byte from, most; \
	bool raising, scanned; \
	bool proving; \
	byte k, page_end, met, met_row, v, now, limit, claimed; \
	byte which, to; \
	byte r, s

/* Any row comes to stand anywhere, or nowhere. */
inline change_something()
{
	atomic {
		which = 0;
		do :: which + 1 < ROWS -> which++ :: break od;
		if
		:: owner[which] == NOBODY || owner[which] == me ->
			to = 1;
			do
			:: to < KEYS -> to++
			:: break
			:: KEY(which) != ABSENT -> to = ABSENT; break
			od;
			skip;
			change(which, to)
		:: else
		fi;
		changes++;
		which = 0; to = 0
	}
}

/* A producer makes one transaction. A worker takes the flag, then claims until nothing is left;
   a new one begins by looking. */
proctype session(byte me)
{
	DECLARE;

	{
		skip;
produce:	if
		:: me < PRODUCERS ->
			do
			:: changes < CHANGES -> change_something()
			:: me < SCANS && !scanned ->
				atomic {
					scanned = true;
					if :: now = 1 :: now = KEYS fi;
					if :: to = ABSENT :: to = KEYS fi;
					goto claim
				}
			:: goto finish
			:: undo(me); goto gone
			od
		:: else
		fi;
end:		atomic { wake -> wake = false; now = KEYS; to = ABSENT }
claim:		scan();
		if
		:: me < PRODUCERS -> goto produce
		:: me >= PRODUCERS && claimed == NO_ROW -> goto end
		:: else
		fi;
finish:		commit();
		if
		:: me >= PRODUCERS -> now = KEYS; to = ABSENT; goto claim
		:: else
		fi;
gone:		skip
	} unless { killed[me] }
}

inline kill(who)
{
	d_step {
		undo(who);
		forget_page(who);
		killed[who] = true
	}
}

/* Kills a session, or the server with all of them, at any moment. Shared memory is new then;
   another worker comes. */
proctype fate()
{
	byte r, s, who;

	if
	:: true
#ifdef CRASHES
	:: atomic {
			who = 0;
			do :: who + 1 < SESSIONS -> who++ :: break od;
			!undisturbed[who];
			kill(who)
		}
	:: atomic {
			who = 0;
			do
			:: who < SESSIONS -> kill(who); teller[who % ROWS] = NOBODY; who++
			:: else -> break
			od;
			at = BOTTOM; noted = NEVER; raiser = NOBODY; wake = true;
		}
#endif
	fi
}

/* due.cpp, sweep_due(), with sweep.h */
inline sweep()
{
	atomic { start_walk(1); limit = (at == BOTTOM -> BOTTOM : at - 1) }
	walk();
	if :: met != NO_ROW -> made = k; lower_floor() :: else fi
}

/* Any state that can be there when nothing goes on. */
inline choose_beginning()
{
	do :: at < NEVER -> at++ :: break od;
	if :: noted = at :: noted = NEVER fi;
	r = 0;
	do
	:: r == ROWS -> break
	:: r < ROWS -> r++
	:: r < ROWS && at <= KEYS ->
		committed[r] = MAX(at, 1);
		do :: committed[r] < KEYS -> committed[r]++ :: break od;
		r++
	od
}

init
{
	byte me = SESSIONS;
	DECLARE;

	atomic {
#ifdef ANY_BEGINNING
		choose_beginning();
#endif
		me = 0;
		do
		:: me < SESSIONS -> run session(me); me++
		:: me == SESSIONS -> break
		od;
		run fate()
	}
	timeout;
	atomic {
		me = PRODUCERS;
		do
		:: me < SESSIONS && killed[me] -> killed[me] = false; wake = true; run session(me); me++
		:: me < SESSIONS && !killed[me] -> me++
		:: me == SESSIONS -> break
		od
	}
	timeout;
#ifdef PREPARED
#ifndef NO_SWEEP
	sweep();
#endif
	wake = true;
	timeout;
#endif
	atomic {
		assert(raiser == NOBODY);
		r = 0;
		do :: r < ROWS -> assert(committed[r] == ABSENT || committed[r] >= at); assert(!owed[r]); r++ :: else -> break od
	}
}
