/*
 * Sessions that wait inside the server (src/commit/waiters.h): producers that make messages claimable, sessions that
 * look, sleep, are called, leave, and roll back, and the worker that counts and calls. Each session wants one message.
 *
 * Proves for these bounds, whatever the interleaving:
 * - when nothing more happens, no session sleeps while a message is claimable;
 * - if all sleep before the only message comes (ALL_ASLEEP), one is called.
 *
 * Shape: a step is one atomic operation in shared memory, a look at all messages, or a count. A look decides by what it
 * has seen at its beginning, so it misses what comes while it is under way. Without a worker sessions look by themselves:
 * that is left out.
 *
 * Broken variants, for `run`: each -D leaves out one thing that the protocol needs.
 */

#ifndef WAITERS
#define WAITERS 2
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef ROLLBACKS
#define ROLLBACKS 0
#endif
#ifndef ELSEWHERE
#define ELSEWHERE 0	/* how often a session finds something in another queue */
#endif
#ifndef ROUNDS
#define ROUNDS 1	/* how often a session waits */
#endif

#define ABSENT 0
#define CLAIMABLE 1
#define CHANGING 2
#define GONE 3

/* outbox.pending */
byte message[MESSAGES] = ABSENT;

/* struct Waiter */
bool registered[WAITERS];
bool called[WAITERS];
bool looking[WAITERS];
bool asleep[WAITERS];
bool again[WAITERS];

bool rouse;	/* of the slot, also for its flag */

byte cancels = CANCELS;
byte rollbacks = ROLLBACKS;
byte elsewhere = ELSEWHERE;
byte calls;
bool disturbed;	/* a session has left without a message of the queue, or given it back */

proctype producer(byte which)
{
#ifdef ALL_ASLEEP
	asleep[0] && asleep[1] && asleep[WAITERS - 1];
#endif
	message[which] = CLAIMABLE;
	rouse = true
}

/* stop_waiting(): what is left to others */
inline leave(is_done)
{
	registered[id] = false;
	was_looking = looking[id];
	looking[id] = false;
	was_called = called[id];
	called[id] = false;
	asleep[id] = false;
#ifndef NOTHING_HANDED_ON
	if
	:: was_called || (was_looking && (!is_done || again[id])) -> rouse = true
	:: else
	fi
#endif
}

proctype session(byte id)
{
	byte rounds = ROUNDS;
	byte taken;
	bool seen[MESSAGES];
	bool was_looking, was_called;
	byte i;

wait:
	registered[id] = true;
look:
	again[id] = false;
	d_step {
		for (i : 0 .. MESSAGES - 1) {
			seen[i] = message[i] == CLAIMABLE
		}
		i = 0
	}
	taken = MESSAGES;
	atomic {
		if
		:: elsewhere > 0 -> elsewhere--; disturbed = true; goto found_elsewhere
		:: true
		fi;
		for (i : 0 .. MESSAGES - 1) {
			if
			:: taken == MESSAGES && seen[i] && message[i] == CLAIMABLE -> taken = i; message[i] = CHANGING
			:: else
			fi
		}
		i = 0
	}
	if
	:: taken < MESSAGES ->
		leave(true);
		if
		:: message[taken] = GONE
		:: atomic { rollbacks > 0 -> rollbacks--; disturbed = true; message[taken] = CLAIMABLE };
#ifndef SILENT_ABORT
			rouse = true
#endif
		fi;
		goto done
	:: else
	fi;

	/* fall_asleep() */
	was_looking = looking[id];
	looking[id] = false;
	if
	:: again[id] -> looking[id] = was_looking
	:: else
	fi;
	asleep[id] = true;
end_asleep:
	if
	:: called[id] || again[id]
	:: atomic { cancels > 0 -> cancels--; disturbed = true }; leave(false); goto done
	fi;

	/* wake_up() */
	was_looking = looking[id] || called[id];
	looking[id] = was_looking;
	atomic { was_called = called[id]; called[id] = false };
	was_looking = was_looking || was_called;
	looking[id] = was_looking;
	asleep[id] = false;
	if
	:: atomic { cancels > 0 -> cancels--; disturbed = true }; leave(false); goto done
	:: true
	fi;
	goto look;

found_elsewhere:
#ifdef ELSEWHERE_IS_DONE
	leave(true);
#else
	leave(false);
#endif
done:
	rounds--;
	if
	:: rounds > 0 -> goto wait
	:: else
	fi
}

inline have_look_again(who)
{
#ifndef NOT_ASKED_AGAIN
	if
	:: registered[who] && !asleep[who] -> again[who] = true
	:: else
	fi
#else
	skip
#endif
}

proctype worker()
{
	short count;
	byte standing, before;
	byte n, i;
	bool any;

end:
	do
	:: atomic { rouse -> rouse = false };
look_at_all:
		/* count_sleepers() */
		any = false;
		before = 0;
		n = 0;
		do
		:: n < WAITERS -> have_look_again(n);
			any = any || (registered[n] && asleep[n] && !called[n] && !again[n]);
			before = before + (registered[n] && (called[n] || looking[n]));
			n++
		:: else -> break
		od;
		if
		:: !any -> goto end
		:: else
		fi;
		/* count_claimable() */
		d_step {
			count = 0;
			for (i : 0 .. MESSAGES - 1) {
				count = count + (message[i] == CLAIMABLE)
			}
			i = 0
		}
		/* wake_for() */
		standing = 0;
		n = 0;
		do
		:: n < WAITERS -> have_look_again(n);
			standing = standing + (registered[n] && (called[n] || looking[n]));
			n++
		:: else -> break
		od;
		if
		:: standing < before -> goto look_at_all
		:: else
		fi;
		count = count - standing;
		n = 0;
		do
		:: n < WAITERS ->
			if
#ifdef ALL_CALLED
			:: registered[n] && asleep[n] ->
#else
			:: count > 0 && registered[n] && asleep[n] && !called[n] && !again[n] ->
#endif
				called[n] = true;
				if
#ifdef NOT_READ_AGAIN
				:: true ->
#else
				:: registered[n] ->
#endif
					count--; calls++;
#ifdef ALL_ASLEEP
					assert(disturbed || calls <= MESSAGES)
#endif
				:: else
				fi
			:: else
			fi;
			n++
		:: else -> break
		od
	od
}

init
{
	byte n;

	atomic {
		run worker();
		for (n : 0 .. MESSAGES - 1) {
			run producer(n)
		}
		for (n : 0 .. WAITERS - 1) {
			run session(n)
		}
		n = 0
	}
	/* When nothing more happens. */
	timeout ->
	for (n : 0 .. MESSAGES * WAITERS - 1) {
		assert(message[n / WAITERS] != CLAIMABLE || !asleep[n % WAITERS])
	}
}
