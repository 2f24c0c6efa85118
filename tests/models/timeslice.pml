/* SPDX-License-Identifier: MIT */
/*
 * Timeslices: leased programs that share a device
 *
 * Property: the device never has work of two leases, unless one of them is overdue; a member that is not
 * done is never taken for done; and every submission is made in the end, without requests being repeated.
 *
 * check safety
 * check safety FIRST=1 OTHERS=2
 * mutant WANT_PASSES_DONE: assertion
 * mutant LATE_ANSWER_COUNTS FIRST=1 SECOND=1: assertion
 * mutant DONE_WHILE_UNDER_WAY: assertion
 * mutant ONE_MEMBER_ENDS_IT SECOND=1: assertion
 * mutant NOT_ASKED_AGAIN: end state
 * mutant WANT_IS_FORGOTTEN: end state
 *
 * Two leases, of which the first has two members; the second one of these submits nothing, but in a mutant. A member has a thread that submits and one that watches
 * the page (libclient/layer/timeslice.c); their lock makes each of their steps atomic, except requests. The
 * reactor (broker/lease/timeslice.c) handles one message at a time, in the order of a member's connection. It ends
 * a timeslice at any time if the other lease waits. Left out: time, and so overdue leases; priorities and
 * shares; plans; members that join or leave; more than one submission under way.
 */
#define LEASES  2
#define MEMBERS 3
#define LEASE(m) ((m) / 2) /* members 0 and 1 share a lease */
/* submissions of the members */
#ifndef FIRST
#define FIRST 2
#endif
#ifndef SECOND
#define SECOND 0
#endif
#ifndef OTHERS
#define OTHERS 1
#endif
#define SUBMISSIONS (m == 0 -> FIRST : (m == 1 -> SECOND : OTHERS))
#define NONE 9

mtype = {HELD, WANTED, CLOSED, WANT, DONE};

/* the pages: rbk_lease_page.timeslice */
mtype state[LEASES];
/*
 * In place of the numbers of changes: members that have told DONE for the present word, and their DONE
 * that are under way, of which so many are of older words
 */
bool is_told[MEMBERS];
byte n_sent[MEMBERS], n_old[MEMBERS];

/* the broker */
byte holder = 0;
bool is_under_way[LEASES];
bool is_wanting[MEMBERS], is_done[MEMBERS];

/* messages of each member, in order; answers to WANT */
chan sent[MEMBERS] = [2] of {mtype};
chan answer[MEMBERS] = [1] of {bit};

/* the members: struct timeslice */
bit n_under_way[MEMBERS], n_waiting[MEMBERS];
bool has_told[MEMBERS]; /* since the last ask(): struct timeslice.n_told */
bool has_asked[MEMBERS], is_using[MEMBERS], is_telling[MEMBERS], may_ask[MEMBERS];
byte n_ended;

#define OTHER(l)     (1 - (l))
#define WANTS(l)     ((l) == 0 -> (is_wanting[0] || is_wanting[1]) : is_wanting[2])
#define IS_WAITING(l) (WANTS(l) && !is_under_way[l])
#ifdef ONE_MEMBER_ENDS_IT
#define ALL_DONE(l)  ((l) == 0 -> (is_done[0] || is_done[1]) : is_done[2])
#else
#define ALL_DONE(l)  ((l) == 0 -> (is_done[0] && is_done[1]) : is_done[2])
#endif
#define USED(l)      ((l) == 0 -> n_under_way[0] + n_under_way[1] : n_under_way[2])

inline publish(l, new)
{
	state[l] = new;
	if
	:: l == 0 ->
		is_told[0] = false;
		is_told[1] = false;
		n_old[0] = n_sent[0];
		n_old[1] = n_sent[1]
	:: else ->
		is_told[2] = false;
		n_old[2] = n_sent[2]
	fi
}

inline clear_wanting(m)
{
	if
	:: is_wanting[m] ->
		is_wanting[m] = false;
		is_done[m] = false
	:: else
	fi
}

/* device_run(), without ending a timeslice */
inline device_run()
{
	if
	:: holder == NONE && (IS_WAITING(0) || IS_WAITING(1)) ->
		/* Shares decide between them. */
		if
		:: IS_WAITING(0) -> holder = 0
		:: IS_WAITING(1) -> holder = 1
		fi;
		is_under_way[holder] = true;
		if
		:: holder == 0 ->
			clear_wanting(0);
			clear_wanting(1)
		:: else ->
			clear_wanting(2)
		fi;
		publish(holder, HELD)
	:: else
	fi
}

/* lease_check_done() */
inline check_done(l)
{
	if
	:: ALL_DONE(l) ->
		is_under_way[l] = false;
		if
		:: holder == l ->
			holder = NONE;
			if
			:: state[l] != CLOSED -> publish(l, CLOSED)
			:: else
			fi
		:: else
		fi
	:: else
	fi
}

/* timeslice_want(), timeslice_done() */
inline handle(m)
{
	if
	:: type == WANT ->
		if
		:: state[LEASE(m)] != CLOSED -> is_done[m] = false
#ifdef WANT_IS_FORGOTTEN
		:: state[LEASE(m)] == CLOSED && is_under_way[LEASE(m)] -> skip
		:: state[LEASE(m)] == CLOSED && !is_under_way[LEASE(m)] -> is_wanting[m] = true
#else
		:: else -> is_wanting[m] = true
#endif
		fi;
		answer[m]!1
	:: type == DONE ->
		is_old = n_old[m] > 0;
		n_sent[m]--;
		n_old[m] = (n_old[m] > 0 -> n_old[m] - 1 : 0);
		if
		:: !is_done[m] && !is_old ->
			is_done[m] = true;
			check_done(LEASE(m))
		:: else
		fi;
		is_old = false
	fi;
	device_run();
	type = 0
}

#define ENDS (holder != NONE && IS_WAITING(OTHER(holder)))

proctype broker()
{
	mtype type;
	bool is_old;

	do
	:: atomic { sent[0]?type -> handle(0) }
	:: atomic { sent[1]?type -> handle(1) }
	:: atomic { sent[2]?type -> handle(2) }
	/* holder_press(): the other lease waits, and the timeslice ends later or now */
	:: atomic { ENDS && state[holder] == HELD -> publish(holder, WANTED) }
	:: atomic { ENDS && state[holder] != CLOSED -> publish(holder, CLOSED) }
	:: n_ended == MEMBERS && len(sent[0]) + len(sent[1]) + len(sent[2]) == 0 -> break
	od
}

#define IS_HELD(m)                                                  \
	((state[LEASE(m)] == HELD || state[LEASE(m)] == WANTED) && \
	 (is_using[m] || has_asked[m]))
#ifdef WANT_PASSES_DONE
#define MAY_ASK(m) may_ask[m]
#else
#define MAY_ASK(m) (may_ask[m] && !is_telling[m])
#endif

/* vkQueueSubmit() */
proctype submitter(byte m)
{
	byte n;

	do
	:: n < SUBMISSIONS ->
		n_waiting[m]++;
		do
		/* await_slice() and the rest of begin() */
		:: atomic {
			IS_HELD(m) ->
			is_using[m] = true;
			has_asked[m] = false;
			may_ask[m] = true;
			n_waiting[m]--;
			n_under_way[m]++;
			assert(USED(OTHER(LEASE(m))) == 0);
			assert(!is_done[m]);
			break
		   }
		/* ask() */
		:: atomic {
			!IS_HELD(m) && MAY_ASK(m) ->
			may_ask[m] = false;
			has_told[m] = false
		   }
			sent[m]!WANT;
			answer[m]?1;
#ifdef LATE_ANSWER_COUNTS
			has_asked[m] = true
#else
			has_asked[m] = (has_asked[m] || !has_told[m])
#endif
		od;
		/* The work ends: note_ends(). */
		skip;
		d_step {
			n_under_way[m]--;
			n++
		}
	:: else -> break
	od;
	n_ended++
}

/* watch_word() */
proctype watcher(byte m)
{
	do
	:: atomic {
		(state[LEASE(m)] == CLOSED || (state[LEASE(m)] == WANTED && n_waiting[m] == 0)) &&
#ifndef DONE_WHILE_UNDER_WAY
		n_under_way[m] == 0 &&
#endif
		!is_told[m] ->
		is_told[m] = true;
		n_sent[m]++;
		is_using[m] = false;
		has_asked[m] = false;
#ifndef NOT_ASKED_AGAIN
		may_ask[m] = true;
#endif
		is_telling[m] = true;
		has_told[m] = true
	   }
		sent[m]!DONE;
		is_telling[m] = false
	:: n_ended == MEMBERS -> break
	od
}

init
{
	atomic {
		/* The first lease was alone, and the second one has joined. */
		state[0] = HELD;
		state[1] = CLOSED;
		is_under_way[0] = true;
		may_ask[0] = true;
		may_ask[1] = true;
		may_ask[2] = true;
		run broker();
		run submitter(0);
		run submitter(1);
		run submitter(2);
		run watcher(0);
		run watcher(1);
		run watcher(2)
	}
}
