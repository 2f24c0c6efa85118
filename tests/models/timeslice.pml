/* SPDX-License-Identifier: MIT */
/*
 * Timeslices: leased programs that share a device
 *
 * Property: the device never has counted work of two leases, or of a lease and the plans' turn; a member that is
 * not done is never taken for done; no part begins after its timeslice was closed; urgent tasks never wait for a
 * timeslice; and every submission and task is made in the end, without requests being repeated, whoever leaves,
 * dies or hangs, or if the broker dies. Work is not counted, since the broker does not wait for it, if
 *  - its member has told ENDING, has left, is dead, or its lease is overdue
 *  - it began while the member was let pass: the broker was gone, or the member had not joined
 *
 * check safety FIRST=1
 * check safety SOLO=1 OTHERS=2
 * check safety SOLO=1 EARLY=1 DEPTH=2
 * check safety LEAVES=1 FIRST=1 SECOND=1 OTHERS=0
 * check safety SOLO=1 LEAVES=1 FIRST=1 EARLY=1
 * check safety SOLO=1 KILLS=1 FIRST=1 EARLY=1
 * check safety SOLO=1 HANGS=1 FIRST=1 EARLY=1
 * check safety SOLO=1 DEATHS=1 FIRST=1 EARLY=1
 * check safety SOLO=1 DEATHS=1 FIRST=1 NEXT=0
 * check safety SOLO=1 DEATHS=2 FIRST=1
 * check safety SOLO=1 DEATHS=1 FIRST=1 LEAVES=1 OTHERS=0
 * check safety SOLO=1 PLANS=2 FIRST=1
 * check safety SOLO=1 PLANS=2 FIRST=1 URGENT=1
 * check safety SOLO=1 PLANS=1 FIRST=1 LEAVES=1 OTHERS=0
 * mutant WANT_PASSES_DONE SOLO=1: assertion
 * mutant LATE_ANSWER_COUNTS FIRST=1 SECOND=1: assertion
 * mutant DONE_WHILE_UNDER_WAY SOLO=1: assertion
 * mutant ONE_MEMBER_ENDS_IT SECOND=1: assertion
 * mutant NOT_ASKED_AGAIN SOLO=1: end state
 * mutant WANT_IS_FORGOTTEN: end state
 * mutant OLD_WORD_COUNTS SOLO=1 LEAVES=1 FIRST=1: assertion
 * mutant ENDING_KEEPS_ANSWER SOLO=1 EARLY=1: end state
 * mutant ENDING_IS_NOT_DONE SOLO=1 EARLY=1 DEPTH=2: end state
 * mutant LEAVE_KEEPS_ANSWER LEAVES=1 FIRST=1 SECOND=1 OTHERS=0: assertion
 * mutant LATE_ERROR_OPENS SOLO=1 LEAVES=1 FIRST=1: assertion
 * mutant LEAVE_DOES_NOT_CHECK LEAVES=1 FIRST=1 SECOND=1: end state
 * mutant LEAVE_DOES_NOT_OPEN SOLO=1 LEAVES=1: end state
 * mutant DEATH_IS_NOT_SEEN SOLO=1 KILLS=1 FIRST=1: end state
 * mutant NEVER_OVERDUE SOLO=1 HANGS=1 FIRST=1: end state
 * mutant CUT_DOES_NOT_OPEN SOLO=1 DEATHS=1 FIRST=1 NEXT=0: end state
 * mutant RESTORE_KEEPS_USE DEATHS=1 FIRST=1 SECOND=1: end state
 * mutant RESTORE_KEEPS_ANSWER DEATHS=1 FIRST=1 SECOND=1 OTHERS=0: assertion
 * mutant RESTORE_STAYS_OPEN SOLO=1 DEATHS=1 FIRST=1: assertion
 * mutant PLANS_START_BESIDE SOLO=1 PLANS=1 FIRST=1: assertion
 * mutant PLANS_DO_NOT_PRESS SOLO=1 PLANS=1 FIRST=1: end state
 * mutant TURN_DOES_NOT_WAIT SOLO=1 PLANS=2 FIRST=1: assertion
 * mutant TURN_STAYS_OPEN SOLO=1 PLANS=2 FIRST=1: assertion
 * mutant TURN_COMES_AGAIN SOLO=1 PLANS=2 FIRST=1: assertion
 * mutant URGENT_WAITS SOLO=1 PLANS=1 FIRST=1 URGENT=1: assertion
 *
 * Two leases, of which the first has two members; the second one of these submits nothing, but where SECOND=1. A
 * member has a thread that submits and one that watches the page (libclient/layer/timeslice.c); their lock makes
 * each of their steps atomic, except requests. The second thread also follows the priority (LEAVES) and moves to
 * the next broker (DEATHS). The reactor (broker/lease/timeslice.c, timeslice-plans.c) handles one message at a time,
 * in the order of a member's connection. It ends a timeslice or turn at any time if another contender waits.
 *
 * The word is loaded with acquire and stored with release, and messages are ordered by the kernel. So a member that
 * has an answer sees the word as of then, and the model may take one step after the other. A sleep on the word ends
 * with each change, since the kernel compares it: a guard that waits for a state stands for it.
 *
 * Left out: time, so a member that does not hang is never overdue; priorities of leases; shares, but that plans and
 * leases of the same priority take turns; the rule for those that have waited long; GIVE_UP; a turn's own GRACE; tasks
 * of the same priority that start beside a lease since their tenant is far behind; programs that hang and go on.
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
/* parts of a member that may be under way together */
#ifndef DEPTH
#define DEPTH 1
#endif
/* 1: members tell ENDING */
#ifndef EARLY
#define EARLY 0
#endif
/* times that the first member leaves and may join again; members that die; that hang; brokers that die */
#ifndef LEAVES
#define LEAVES 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef HANGS
#define HANGS 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
/* tasks of a client's plans; 1: their priority is higher than that of the leases */
#ifndef PLANS
#define PLANS 0
#endif
#ifndef URGENT
#define URGENT 0
#endif
/* 1: the first lease has one member */
#ifndef SOLO
#define SOLO 0
#endif
/* 0: no broker comes after the one that dies */
#ifndef NEXT
#define NEXT 1
#endif
#define NONE 9

mtype = {OPEN, HELD, WANTED, CLOSED, WANT, DONE, ENDING, LEAVE, JOIN};

/* the pages: rbk_lease_page.timeslice; those of the broker that died last */
mtype state[LEASES], old_state[LEASES];
/*
 * In place of the numbers of changes: members that have told DONE for the present word, and their DONE
 * that are under way, of which so many are of older words
 */
bool is_told[MEMBERS];
byte n_sent[MEMBERS], n_old[MEMBERS];

/* the broker */
byte holder = 0;
bool is_under_way[LEASES];
bool is_sharing[MEMBERS], is_wanting[MEMBERS], is_done[MEMBERS];
bool is_closed[MEMBERS]; /* the member's connection */
byte n_deaths;

/* the broker's view of plans: struct timeslice_plans, struct timeslice_device */
bool is_task_waiting, is_task_under_way, is_open_to_tasks = true;
bool are_plans_recent; /* there are tasks, or were within TIMESLICE_PAUSE_NS */
bool is_plan_new; /* they have changed, and timeslice.c was not told */
bool is_plans_turn, is_turn_closed;
byte n_turns; /* begun while a lease waited, since the last timeslice began */
bool are_plans_ahead; /* in place of tags: the plans had the last turn among equals */
bool is_beside;       /* the task under way began outside of a turn */

/* messages of each member, in order, with room for all; answers to WANT and JOIN: 1: success */
chan sent[MEMBERS] = [6] of {mtype};
chan answer[MEMBERS] = [1] of {bit};
chan joins[MEMBERS] = [1] of {bit};

/* the members: struct timeslice */
byte n_under_way[MEMBERS];
byte n_free[MEMBERS]; /* of these, the oldest ones, which are not counted */
bit n_waiting[MEMBERS];
bool has_told[MEMBERS]; /* since the last ask(): struct timeslice.n_told */
bool has_asked[MEMBERS], is_using[MEMBERS], is_telling[MEMBERS], may_ask[MEMBERS];
bool is_joined[MEMBERS], is_attached[MEMBERS], is_cut[MEMBERS];
bool is_asking[MEMBERS];  /* ask() is under way */
bool is_in_tell[MEMBERS]; /* a request holds process.using */
bool is_restoring[MEMBERS];
bool is_gone[MEMBERS];    /* it is dead, or hangs */
bool is_ended[MEMBERS + 1];
byte n_lost;

#define OTHER(l)     (1 - (l))
#define SHARES(l)    ((l) == 0 -> (is_sharing[0] || is_sharing[1]) : is_sharing[2])
#define N_LEASES     (SHARES(0) + SHARES(1))
#define WANTS(l)     ((l) == 0 -> (is_wanting[0] || is_wanting[1]) : is_wanting[2])
#define IS_WAITING(l) (WANTS(l) && !is_under_way[l])
#define IS_DONE(m)   (is_done[m] || !is_sharing[m])
#ifdef ONE_MEMBER_ENDS_IT
#define ALL_DONE(l)  ((l) == 0 -> (is_done[0] || is_done[1]) : is_done[2])
#else
#define ALL_DONE(l)  ((l) == 0 -> (IS_DONE(0) && IS_DONE(1)) : IS_DONE(2))
#endif
#define COUNTED(m)   (n_under_way[m] - n_free[m])
#define USED(l)      ((l) == 0 -> COUNTED(0) + COUNTED(1) : COUNTED(2))
#define HANGS_IN(l)  ((l) == 0 -> (is_gone[0] || is_gone[1]) : is_gone[2])
#define ARE_TASKS    (is_task_waiting || is_task_under_way)
/* is_shared() */
#define IS_SHARED    (N_LEASES > 1 || (N_LEASES == 1 && (ARE_TASKS || are_plans_recent)))
#define ANY_WAITS    (IS_WAITING(0) || IS_WAITING(1))

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

inline device_give(l)
{
	holder = l;
	is_under_way[l] = true;
	are_plans_ahead = false;
	n_turns = 0;
	if
	:: l == 0 ->
		clear_wanting(0);
		clear_wanting(1)
	:: else ->
		clear_wanting(2)
	fi;
	publish(l, HELD)
}

inline device_open(l)
{
	holder = l;
	is_under_way[l] = false;
	if
	:: l == 0 ->
		is_wanting[0] = false;
		is_wanting[1] = false;
		is_done[0] = false;
		is_done[1] = false
	:: else ->
		is_wanting[2] = false;
		is_done[2] = false
	fi;
#ifndef LEAVE_DOES_NOT_OPEN
	if
	:: state[l] != OPEN -> publish(l, OPEN)
	:: else
	fi
#endif
}

inline restrain(l)
{
	if
	:: SHARES(l) && state[l] == OPEN && l == holder -> device_give(l)
	:: SHARES(l) && state[l] == OPEN && l != holder -> publish(l, CLOSED)
	:: else
	fi
}

/* device_go_on(), device_begin() */
inline device_begin()
{
	/* plans_go_on(): the turn is over if there is nothing of it, or if it was closed and its tasks have ended. */
	if
#ifdef TURN_DOES_NOT_WAIT
	:: is_plans_turn && (!ARE_TASKS || (ANY_WAITS && is_turn_closed)) ->
#else
	:: is_plans_turn && (!ARE_TASKS || (ANY_WAITS && is_turn_closed && (!is_task_under_way || URGENT))) ->
#endif
		is_plans_turn = false;
		is_turn_closed = false;
#ifndef TURN_COMES_AGAIN
		are_plans_ahead = true
#endif
	:: else
	fi;
	if
	:: is_plans_turn -> skip
	:: !is_plans_turn && ((ARE_TASKS && !ANY_WAITS) ||
			      (is_task_waiting && !are_plans_ahead && ANY_WAITS)) ->
		is_plans_turn = true;
		is_turn_closed = false;
		n_turns = n_turns + ANY_WAITS;
		/* A lease that waits is behind one turn of its own priority. */
		assert(n_turns <= 1)
	:: !is_plans_turn && ANY_WAITS && !(is_task_waiting && !are_plans_ahead) ->
		/* Shares decide between them. */
		if
		:: IS_WAITING(0) -> device_give(0)
		:: IS_WAITING(1) -> device_give(1)
		fi
	:: else
	fi
}

/* plans_show(): may_start() */
inline plans_show()
{
#ifdef PLANS_START_BESIDE
	is_open_to_tasks = true
#else
	if
	:: is_plans_turn ->
#ifdef TURN_STAYS_OPEN
		is_open_to_tasks = true
#else
		is_open_to_tasks = !ANY_WAITS || URGENT || !is_turn_closed
#endif
	:: !is_plans_turn && holder != NONE && state[holder] != OPEN ->
#ifdef URGENT_WAITS
		is_open_to_tasks = false
#else
		is_open_to_tasks = URGENT
#endif
	:: else -> is_open_to_tasks = !ANY_WAITS || URGENT
	fi
#endif
}

/* device_run(), without ending a timeslice */
inline device_run()
{
	if
	:: !IS_SHARED ->
		is_plans_turn = false;
		is_turn_closed = false;
		if
		:: SHARES(0) -> device_open(0)
		:: !SHARES(0) && SHARES(1) -> device_open(1)
		:: else
		fi
	:: else ->
		restrain(0);
		restrain(1);
		if
		:: holder == NONE -> device_begin()
		:: else
		fi
	fi;
	plans_show()
}

/* lease_check_done() */
inline check_done(l)
{
	if
	:: ALL_DONE(l) && state[l] != OPEN ->
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

/* timeslice_leave() */
inline leave(m)
{
	if
	:: is_sharing[m] ->
		is_sharing[m] = false;
		is_wanting[m] = false;
		is_done[m] = false;
		n_free[m] = n_under_way[m];
#ifndef LEAVE_DOES_NOT_CHECK
		check_done(LEASE(m));
#endif
		if
		:: !SHARES(LEASE(m)) ->
			if
			:: holder == LEASE(m) -> holder = NONE
			:: else
			fi;
			is_under_way[LEASE(m)] = false;
			publish(LEASE(m), OPEN)
		:: else
		fi
	:: else
	fi
}

/* session_timeslice() */
inline handle()
{
	if
	:: type == WANT && !is_sharing[m] -> answer[m]!0
	:: type == WANT && is_sharing[m] ->
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
	/* timeslice_done(), timeslice_ending() */
	:: type == DONE || type == ENDING ->
#ifdef OLD_WORD_COUNTS
		is_old = false;
#else
		is_old = n_old[m] > 0;
#endif
		n_sent[m]--;
		n_old[m] = (n_old[m] > 0 -> n_old[m] - 1 : 0);
		if
#ifdef ENDING_IS_NOT_DONE
		:: type == ENDING -> skip
		:: type == DONE && is_sharing[m] && !is_done[m] && !is_old ->
#else
		:: is_sharing[m] && !is_done[m] && !is_old ->
#endif
			is_done[m] = true;
			check_done(LEASE(m))
		:: else
		fi;
		is_old = false
	:: type == LEAVE -> leave(m)
	/* timeslice_join() */
	:: type == JOIN ->
		is_sharing[m] = true;
		is_done[m] = state[LEASE(m)] != OPEN;
		joins[m]!1
	fi;
	type = 0
}

/* All connections close, and no member has joined at the next broker yet. */
inline lose(m)
{
	is_attached[m] = false;
	is_sharing[m] = false;
	is_wanting[m] = false;
	is_done[m] = false;
	n_sent[m] = 0;
	n_old[m] = 0;
	n_free[m] = n_under_way[m];
	do
	:: sent[m]?_
	:: empty(sent[m]) -> break
	od
}

#ifdef PLANS_DO_NOT_PRESS
#define DO_PLANS_PRESS false
#else
#define DO_PLANS_PRESS is_task_waiting
#endif
#define ENDS (holder != NONE && state[holder] != OPEN && (IS_WAITING(OTHER(holder)) || DO_PLANS_PRESS))
#define TASKS MEMBERS
#define ALL_ENDED (is_ended[0] && is_ended[1] && is_ended[2] && is_ended[TASKS])

proctype broker()
{
	mtype type;
	bool is_old;
	byte m;

end:	do
	:: atomic {
		if
		:: sent[0]?type -> m = 0
		:: sent[1]?type -> m = 1
		:: sent[2]?type -> m = 2
#ifndef DEATH_IS_NOT_SEEN
		/* timeslices_leave(): what the member had sent is read before. */
		:: is_closed[0] && empty(sent[0]) -> is_closed[0] = false; type = LEAVE; m = 0
		:: is_closed[2] && empty(sent[2]) -> is_closed[2] = false; type = LEAVE; m = 2
#endif
		/* server_share_plans(): tasks came, began or ended, or TIMESLICE_PAUSE_NS is over. */
		:: is_plan_new -> is_plan_new = false; are_plans_recent = true
		:: are_plans_recent && !ARE_TASKS && !is_plan_new -> are_plans_recent = false
		/* takes_part(): a turn goes on for a while. */
		:: is_plans_turn && !is_turn_closed && ANY_WAITS -> is_turn_closed = true
		/* holder_press(): another one waits, and the timeslice ends later or now, or is overdue */
		:: ENDS && state[holder] == HELD -> publish(holder, WANTED)
		:: ENDS && state[holder] != CLOSED -> publish(holder, CLOSED)
#ifndef NEVER_OVERDUE
		:: ENDS && state[holder] == CLOSED && HANGS > 0 && HANGS_IN(holder) ->
			n_free[2 * holder] = n_under_way[2 * holder];
			holder = NONE
#endif
		:: n_deaths < DEATHS ->
			n_deaths++;
			old_state[0] = state[0];
			old_state[1] = state[1];
			lose(0);
			lose(1);
			lose(2);
			publish(0, OPEN);
			publish(1, OPEN);
			holder = NONE;
			is_under_way[0] = false;
			is_under_way[1] = false
		fi;
		if
		:: type != 0 -> handle()
		:: else
		fi;
		m = 0;
		device_run()
	   }
	od
}

/*
 * A client of plans, and the dispatcher, which belongs to the reactor: it submits what may start before it
 * tells timeslice.c about the tasks.
 */
inline start_task()
{
	is_task_waiting = false;
	is_task_under_way = true;
	is_plan_new = true;
	is_beside = !is_plans_turn;
	/* In a turn, or while no lease has the device, nothing of a timeslice is in front of tasks. */
	assert(URGENT || USED(0) + USED(1) == 0 || (holder != NONE && state[holder] == OPEN));
	assert(URGENT || !ANY_WAITS || !is_turn_closed)
}

proctype client()
{
	byte n;

	do
	:: n < PLANS ->
		atomic {
			if
			:: is_open_to_tasks -> start_task()
			:: else ->
				/* An urgent task is behind what the device has, and behind nothing else. */
				assert(!URGENT);
				is_task_waiting = true;
				is_plan_new = true
			fi
		}
		if
		:: atomic { is_task_waiting && is_open_to_tasks -> start_task() }
		:: is_task_under_way
		fi;
		d_step {
			is_task_under_way = false;
			is_beside = false;
			is_plan_new = true;
			n++
		}
	:: else -> break
	od;
	is_ended[TASKS] = true
}

#define WORD(m)    (is_attached[m] -> state[LEASE(m)] : old_state[LEASE(m)])
#define IS_OPEN(m) (WORD(m) == OPEN || is_cut[m] || !is_joined[m])
#define IS_HELD(m) ((WORD(m) == HELD || WORD(m) == WANTED) && (is_using[m] || has_asked[m]))
#ifdef WANT_PASSES_DONE
#define MAY_ASK(m) may_ask[m]
#else
#define MAY_ASK(m) (may_ask[m] && !is_telling[m])
#endif
#ifdef LATE_ERROR_OPENS
#define DOES_ERROR_COUNT(m) true
#else
#define DOES_ERROR_COUNT(m) (!has_told[m])
#endif

/* count(), and the submission */
inline begin(m)
{
	n_waiting[m] = 0;
	n_under_way[m]++;
	if
	:: is_cut[m] || !is_joined[m] ->
		/* The member is let pass, but not at a broker that it has joined. */
		assert(!is_cut[m] || !is_joined[m] || !is_attached[m]);
		n_free[m] = n_under_way[m]
	:: is_attached[m] && is_joined[m] && !is_cut[m] ->
		assert(USED(OTHER(LEASE(m))) == 0);
		assert(!is_done[m]);
		assert(URGENT || !is_task_under_way || is_beside)
	/* The broker is dead, and the member has not noticed it. */
	:: else -> n_free[m] = n_under_way[m]
	fi
}

/* vkQueueSubmit() */
proctype submitter(byte m)
{
	byte n;
	bool has_turn; /* await_room() is under way */
	bit r;

	{
		do
		:: n < SUBMISSIONS ->
			n_waiting[m] = 1;
			do
			/* await_slice(), and the rest of timeslice_begin() if there is room */
			:: atomic {
				!has_turn && (IS_OPEN(m) || IS_HELD(m)) ->
				is_using[m] = !IS_OPEN(m);
				has_asked[m] = false;
				may_ask[m] = true;
				if
				:: n_under_way[m] < DEPTH ->
					begin(m);
					break
				:: else -> has_turn = true
				fi
			   }
			/* await_room(), and the end of await_turn()'s loop */
			:: atomic {
				has_turn && n_under_way[m] < DEPTH ->
				has_turn = false;
				if
				:: IS_OPEN(m) || IS_HELD(m) ->
					begin(m);
					break
				:: else
				fi
			   }
			/* ask() */
			:: atomic {
				!has_turn && !IS_OPEN(m) && !IS_HELD(m) && MAY_ASK(m) ->
				may_ask[m] = false;
				is_asking[m] = true
			   }
			   atomic {
				!is_restoring[m] ->
				is_in_tell[m] = true;
				if
				:: is_attached[m] ->
					/* No message of the model waits for room. */
					assert(nfull(sent[m]));
					sent[m]!WANT
				:: else
				fi
			   }
			   atomic {
				if
				:: answer[m]?r
				:: !is_attached[m] && empty(answer[m]) -> r = 0
				fi;
				is_in_tell[m] = false
			   }
			   atomic {
				if
				:: !r && is_joined[m] && DOES_ERROR_COUNT(m) -> is_cut[m] = true
				:: else
				fi;
#ifdef LATE_ANSWER_COUNTS
				has_asked[m] = (has_asked[m] || r);
#else
				has_asked[m] = (has_asked[m] || (r && !has_told[m]));
#endif
				r = 0;
				has_told[m] = false;
				is_asking[m] = false
			   }
			od;
			n++
		:: else -> break
		od;
		is_ended[m] = true
	} unless { is_gone[m] }
}

/* Forget what belongs to the present timeslice: an answer that comes now is for an earlier one. */
inline forget_turn()
{
	is_using[m] = false;
	has_asked[m] = false;
	has_told[m] = is_asking[m];
#ifndef NOT_ASKED_AGAIN
	may_ask[m] = true
#endif
}

/* The rest of join(), which fails if the broker dies. */
inline await_join(m)
{
	if
	:: atomic { joins[m]?_ -> is_joined[m] = true }
	:: !is_attached[m] && empty(joins[m])
	fi
}

/* watch_word() */
proctype watcher(byte m)
{
	mtype kind;
	bit n_left;

	{
		do
		/* end_slice() */
		:: atomic {
			is_attached[m] && is_joined[m] && !is_told[m] &&
			(WORD(m) == CLOSED || (WORD(m) == WANTED && n_waiting[m] == 0)) &&
#ifndef DONE_WHILE_UNDER_WAY
			(n_under_way[m] == 0 || (EARLY && WORD(m) == CLOSED)) &&
#endif
			true ->
			kind = (n_under_way[m] > 0 && EARLY -> ENDING : DONE);
			n_free[m] = (kind == ENDING -> n_under_way[m] : n_free[m]);
			is_told[m] = true;
			n_sent[m]++;
#ifdef ENDING_KEEPS_ANSWER
			if
			:: kind == DONE -> forget_turn()
			:: else
			fi;
#else
			forget_turn();
#endif
			is_telling[m] = true
		   }
		   atomic {
			if
			:: is_attached[m] -> sent[m]!kind
			:: else
			fi;
			kind = 0;
			is_telling[m] = false
		   }
#if LEAVES
		/* follow_priority(): leave() */
		:: atomic {
			m == 0 && is_attached[m] && is_joined[m] && n_left < LEAVES ->
			n_left++;
			is_joined[m] = false;
#ifdef LEAVE_KEEPS_ANSWER
			is_using[m] = false;
			has_asked[m] = false;
			may_ask[m] = true
#else
			forget_turn()
#endif
		   }
		   atomic {
			if
			:: is_attached[m] -> sent[m]!LEAVE
			:: else
			fi
		   }
		/* join() */
		:: atomic { is_attached[m] && !is_joined[m] -> sent[m]!JOIN }
			await_join(m)
#endif
#if DEATHS
		/* timeslice_cut() */
		:: atomic {
			!is_attached[m] && !is_cut[m] ->
#ifndef CUT_DOES_NOT_OPEN
			is_cut[m] = true
#else
			false
#endif
		   }
#if NEXT
		/* timeslice_restore(), while process.using is write-locked */
		:: atomic {
			!is_attached[m] && !is_in_tell[m] ->
			is_restoring[m] = true;
			is_attached[m] = true;
			is_joined[m] = false;
			is_told[m] = false;
#ifndef RESTORE_STAYS_OPEN
			is_cut[m] = false;
#endif
#if defined(RESTORE_KEEPS_ANSWER)
			is_using[m] = false;
			has_asked[m] = false;
			may_ask[m] = true;
#elif defined(RESTORE_KEEPS_USE)
			has_asked[m] = false;
			may_ask[m] = true;
			has_told[m] = is_asking[m];
#else
			forget_turn();
#endif
			sent[m]!JOIN
		   }
			await_join(m);
			is_restoring[m] = false
#endif
#endif
		:: ALL_ENDED -> break
		od
	} unless { is_gone[m] }
}

/* note_ends() */
inline note_end(m)
{
	n_under_way[m]--;
	n_free[m] = (n_free[m] > 0 -> n_free[m] - 1 : 0)
}

proctype device()
{
	do
	:: d_step { n_under_way[0] > 0 -> note_end(0) }
	:: d_step { n_under_way[1] > 0 -> note_end(1) }
	:: d_step { n_under_way[2] > 0 -> note_end(2) }
	:: ALL_ENDED && n_under_way[0] + n_under_way[1] + n_under_way[2] == 0 -> break
	od
}

#if KILLS || HANGS
/* A program dies, and the kernel takes its work from the device; or it hangs, and its connection stays. */
inline take(m)
{
	n_lost++;
	is_ended[m] = true;
	is_gone[m] = true;
	is_closed[m] = KILLS > 0;
	n_under_way[m] = (KILLS > 0 -> 0 : n_under_way[m]);
	n_free[m] = (KILLS > 0 -> 0 : n_free[m])
}

proctype fate()
{
	do
	:: d_step { n_lost < KILLS + HANGS && !is_gone[0] -> take(0) }
	:: d_step { n_lost < KILLS + HANGS && !is_gone[2] -> take(2) }
	:: ALL_ENDED -> break
	od
}
#endif

init
{
	atomic {
		/* The first lease was alone, and the second one has joined. */
		state[0] = HELD;
		state[1] = CLOSED;
		is_under_way[0] = true;
		byte m;
		for (m : 0 .. MEMBERS - 1) {
			may_ask[m] = true;
			is_sharing[m] = m != 1 || !SOLO;
			is_joined[m] = is_sharing[m];
			is_attached[m] = is_sharing[m];
			is_ended[m] = !is_sharing[m]
		}
		is_open_to_tasks = URGENT;
		is_ended[TASKS] = PLANS == 0;
		run broker();
		run device();
		run submitter(0);
		run submitter(2);
		run watcher(0);
#if !SOLO
		run submitter(1);
		run watcher(1);
#endif
		run watcher(2);
#if KILLS || HANGS
		run fate();
#endif
#if PLANS
		run client()
#endif
	}
}
