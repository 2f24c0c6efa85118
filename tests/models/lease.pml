/* SPDX-License-Identifier: MIT */
/*
 * Growth of leases against release, eviction and death
 *
 * Property: leases and plans together never hold more than the card has; a request that is granted gets
 * its bytes; a lease that has ended leaves nothing; and waits that wait only for each other are found,
 * unless it is their order that keeps them waiting: only then do they wait for their time limits.
 *
 * check safety
 * mutant LEAVING_IS_FREE: assertion
 * mutant TRIM_BELOW_CREDIT: assertion
 * mutant LEAVE_KEEPS_CREDIT: assertion
 * mutant WITHDRAWN_KEEPS_AWAITED: assertion
 * mutant ANSWERED_OUT_OF_TURN: assertion
 * mutant NO_SEARCH: assertion
 * mutant SEARCH_WITHOUT_CREDIT: assertion
 * mutant NO_PASS_AFTER_RETURN: assertion
 * mutant NO_PASS_AFTER_EVICTION: assertion
 *
 * The reactor handles one message at a time, so that each request is a step of the member that sends it:
 * broker/session/session-lease.c. The steps of broker/memory/residency-lease.c (a pass over the waits)
 * and residency-load.c (the end of an eviction or a load) come between them, as does lease/lease-wait.c
 * (the search). One member may die while it waits. Left out: several tenants, reserves and
 * parts, objects and resizing.
 */
#define CARD    3 /* memory that leases and plans of the tenant can have */
#define PLAN    1 /* size of the plan */
#define LEASES  2
#define MEMBERS 3
#define ASKS    (m == 1 -> 1 : 2) /* requests of a member */
#define LOADS   1 /* times that the plan is loaded again */

#define NONE 9
#define LEASE(m) ((m) / 2) /* members 0 and 1 share a lease */

byte wish[LEASES], limit[LEASES];
byte granted[LEASES];  /* lease.charge */
byte credited[LEASES]; /* lease.credited_bytes */
byte n_members[LEASES];
byte credit[MEMBERS];  /* lease_member.credit_bytes */

/* leases.waits: members in the order of their requests */
byte waits[MEMBERS], n_waits;
byte least[MEMBERS], awaited[MEMBERS];
#define WAITING 1
#define GRANTED 2
#define EDEADLK 3
byte answer[MEMBERS];

/* the plan: residence.state */
#define OUT     0
#define LOADING 1
#define IN      2
#define LEAVING 3
byte plan = IN;

bool must_serve, has_new_waits;
byte mortal = NONE; /* a member that may die while it waits */

#define LEASED        (granted[0] + granted[1])
#define CHARGED       (LEASED + (plan == OUT -> 0 : PLAN))
#define LEAVING_BYTES (plan == LEAVING -> PLAN : 0)
#define AWAITED       (awaited[0] + awaited[1] + awaited[2])

inline check()
{
	assert(CHARGED <= CARD);
	assert(credit[0] + credit[1] == credited[0] && credit[2] == credited[1]);
	assert(credited[0] <= granted[0] && credited[1] <= granted[1]);
	assert(AWAITED <= CARD)
}

/* ---- lease/ ---- */

/* lease_trim() */
inline lease_trim(l)
{
#ifdef TRIM_BELOW_CREDIT
	granted[l] = (granted[l] > wish[l] -> wish[l] : granted[l])
#else
	kept = (wish[l] > credited[l] -> wish[l] : credited[l]);
	granted[l] = (granted[l] > kept -> kept : granted[l]);
	kept = 0
#endif
}

/* give_credit(): up to @bytes of the ungiven bytes */
inline give_credit(m, bytes)
{
	given = granted[LEASE(m)] - credited[LEASE(m)];
	given = (given > bytes -> bytes : given);
	credit[m] = credit[m] + given;
	credited[LEASE(m)] = credited[LEASE(m)] + given;
	/* A request that is granted gets what it needs at least. */
	assert(given >= least[m]);
	answer[m] = GRANTED;
	given = 0
}

/* lease_wait_end() of the wait at @at */
inline wait_end(at)
{
	for (j : at .. MEMBERS - 2) {
		waits[j] = waits[j + 1]
	}
	waits[MEMBERS - 1] = 0;
	n_waits--;
	j = 0
}

/* ---- Members ---- */

#define HAS_WAIT(l)                                                                    \
	((n_waits > 0 && LEASE(waits[0]) == l) || (n_waits > 1 && LEASE(waits[1]) == l) || \
	 (n_waits > 2 && LEASE(waits[2]) == l))

/* session_lease_credit(), residency_lease_ask(): at least @bytes, and no more */
inline ask(m, bytes)
{
	least[m] = bytes;
	if
#ifdef ANSWERED_OUT_OF_TURN
	:: granted[LEASE(m)] > credited[LEASE(m)] ->
#else
	:: !HAS_WAIT(LEASE(m)) && granted[LEASE(m)] - credited[LEASE(m)] >= bytes ->
#endif
		give_credit(m, bytes)
	:: else ->
		answer[m] = WAITING;
		waits[n_waits] = m;
		n_waits++;
		has_new_waits = true;
		must_serve = true
	fi
}

proctype member(byte m)
{
	byte n_asks, n, i, j, kept, given;

	do
	/* session_lease_credit(): a request that the lease's limit allows */
	:: atomic {
		n_asks < ASKS && credit[m] < limit[LEASE(m)] ->
		n_asks++;
		if
		:: n = 1
		:: credit[m] + 2 <= limit[LEASE(m)] -> n = 2
		fi;
		ask(m, n);
		check();
		n = 0
	}
		/* The program waits for the answer, or dies. */
		if
		:: atomic {
			answer[m] == GRANTED ->
			answer[m] = 0;
			least[m] = 0
		}
		/* A program that is refused gives back what it has. */
		:: atomic {
			answer[m] == EDEADLK ->
			answer[m] = 0;
			least[m] = 0;
			n_asks = ASKS
		}
			break
		:: answer[m] == WAITING && m == mortal -> break
		fi
	/* session_lease_credit() with return_bytes, residency_leases_changed() */
	:: d_step {
		credit[m] > 0 && m != 1 ->
		credit[m]--;
		credited[LEASE(m)]--;
		lease_trim(LEASE(m));
#ifndef NO_PASS_AFTER_RETURN
		must_serve = true;
#endif
		check()
	}
	:: break
	od;
	/* session_leases_discard() */
	skip;
	d_step {
		if
		:: answer[m] == WAITING ->
			/* residency_lease_withdraw() */
#ifndef WITHDRAWN_KEEPS_AWAITED
			awaited[m] = 0;
#endif
			i = 0;
			do
			:: waits[i] != m -> i++
			:: else -> break
			od;
			wait_end(i);
			i = 0;
			must_serve = true
		:: else
		fi;
		answer[m] = 0;
		least[m] = 0
	}
	/* held_leave(), lease_leave(); the last member ends the lease. */
	d_step {
#ifndef LEAVE_KEEPS_CREDIT
		credited[LEASE(m)] = credited[LEASE(m)] - credit[m];
#endif
		credit[m] = 0;
		n_members[LEASE(m)]--;
		lease_trim(LEASE(m));
		if
		:: n_members[LEASE(m)] == 0 ->
			/* lease_discard(), lease_free() */
			assert(!HAS_WAIT(LEASE(m)));
			assert(credited[LEASE(m)] == 0);
			granted[LEASE(m)] = 0
		:: else
		fi;
#ifndef NO_PASS_AFTER_RETURN
		must_serve = true;
#endif
		check();
		if
		:: n_members[0] + n_members[1] == 0 -> assert(AWAITED == 0 && LEASED == 0 && n_waits == 0)
		:: else
		fi
	}
}

/* ---- Residency ---- */

/* seeker_room(): the bytes that a wait may be granted now */
inline look_for_room(m)
{
#ifdef LEAVING_IS_FREE
	used = CHARGED - LEAVING_BYTES;
#else
	used = CHARGED;
#endif
	kept = CHARGED - LEAVING_BYTES + AWAITED - awaited[m];
	used = (kept > used -> kept : used);
	room = (used > CARD -> 0 : CARD - used);
	used = 0;
	kept = 0
}

/* look_at(), try_grant(), try_bytes(): sets verdict */
inline look_at(m)
{
	verdict = 0;
	l = LEASE(m);
	more = credited[l] + least[m];
	if
	:: is_lease_blocked[l]
	:: !is_lease_blocked[l] && more <= granted[l] -> verdict = GRANTED
	:: !is_lease_blocked[l] && more > granted[l] &&
		(more > limit[l] || is_tenant_blocked) ->
		is_lease_blocked[l] = true;
		awaited[m] = 0
	:: else ->
		more = more - granted[l];
		look_for_room(m);
		if
		/* the bytes that were set aside, or free ones */
		:: room >= (awaited[m] >= more -> awaited[m] : more) ->
			awaited[m] = 0;
			granted[l] = granted[l] + more;
			verdict = GRANTED
		/* is_still_awaited() */
		:: room < awaited[m] && awaited[m] >= more && (plan == LEAVING || plan == LOADING) ->
			verdict = WAITING
		:: else ->
			awaited[m] = 0;
			/* seeker_displace() */
			used = CHARGED - LEAVING_BYTES - (plan == IN -> PLAN : 0) + AWAITED + more;
			if
			:: LEASED + more <= CARD && used <= CARD ->
				plan = (plan == IN -> LEAVING : plan);
				awaited[m] = more;
				verdict = WAITING
			:: else ->
				is_tenant_blocked = true
			fi;
			used = 0
		fi;
		is_lease_blocked[l] = verdict != GRANTED
	fi;
	more = 0;
	room = 0
}

/*
 * lease_find_deadlocked(): serve in thought all waits that fit, each of which gives back what its member
 * holds. Refuse the newest one of those that remain, and so on.
 */
inline thought_of(l)
{
	/* think_of() */
	kept = 0;
	is_keeping = false;
	for (k : 0 .. n_waits - 1) {
		if
		:: LEASE(waits[k]) == l && !is_served[k] ->
			is_keeping = true;
#ifndef SEARCH_WITHOUT_CREDIT
			kept = kept + credit[waits[k]]
#endif
		:: else
		fi
	}
	bytes = (wish[l] < granted[l] -> wish[l] : granted[l]);
	bytes = (kept > bytes -> kept : bytes);
	bytes = (is_keeping -> bytes : 0)
}

inline find_deadlocked()
{
	for (i : 0 .. MEMBERS - 1) {
		is_served[i] = false
	}
	i = 0;
	do
	:: i < n_waits ->
		if
		:: !is_served[i] ->
			thought_of(1 - LEASE(waits[i]));
			others = bytes;
			thought_of(LEASE(waits[i]));
			more = kept + least[waits[i]];
			bytes = (more > bytes -> more : bytes);
			if
			:: more <= limit[LEASE(waits[i])] && others + bytes <= CARD ->
				is_served[i] = true;
				i = 0
			:: else -> i++
			fi
		:: else -> i++
		fi
	:: else -> break
	od;
	i = n_waits;
	do
	:: i > 0 && is_served[i - 1] -> i--
	:: else -> break
	od;
	others = 0;
	bytes = 0;
	more = 0;
	kept = 0;
	is_keeping = false;
	k = 0
}

active proctype residency()
{
	byte i, j, k, l, m, more, room, used, kept, given, verdict, bytes, others, n_loads;
	bool is_lease_blocked[LEASES], is_tenant_blocked, is_keeping, would_fit;
	bool is_served[MEMBERS];

	atomic {
		wish[0] = 1;
		limit[0] = 2;
		granted[0] = 1;
		n_members[0] = 2;
		wish[1] = 1;
		limit[1] = 3;
		granted[1] = 1;
		n_members[1] = 1;
		if
		:: mortal = 0
		:: true
		fi;
		run member(0);
		run member(1);
		run member(2)
	}
end:
	do
	/* residency_leases_serve() */
	:: d_step {
		must_serve ->
		must_serve = false;
		is_tenant_blocked = false;
		is_lease_blocked[0] = false;
		is_lease_blocked[1] = false;
		i = 0;
		do
		:: i < n_waits ->
			m = waits[i];
			look_at(m);
			if
			:: verdict == GRANTED ->
				/* finish(), on_credit() */
				awaited[m] = 0;
				wait_end(i);
				give_credit(m, least[m]);
				is_lease_blocked[l] = false
			:: else -> i++
			fi
		:: else -> break
		od;
		i = 0;
		m = 0;
		l = 0;
		check();
		verdict = 0;
		if
		:: has_new_waits && plan != LEAVING && plan != LOADING ->
#ifndef NO_SEARCH
			/* refuse_deadlocked() */
			find_deadlocked();
			has_new_waits = i > 0;
			if
			:: i > 0 ->
				m = waits[i - 1];
				awaited[m] = 0;
				wait_end(i - 1);
				answer[m] = EDEADLK;
				must_serve = true
			:: else
			fi;
			i = 0;
			m = 0;
#endif
			verdict = 0
		:: else
		fi;
		verdict = 0;
		check()
	}
	/* the end of an eviction */
	:: atomic {
		plan == LEAVING ->
		plan = OUT;
#ifndef NO_PASS_AFTER_EVICTION
		must_serve = true
#endif
	}
	/* residency_review(): the plan is loaded where it has room, seeker_room(). */
	:: atomic {
		plan == OUT && n_loads < LOADS && LEASED + AWAITED + PLAN <= CARD ->
		plan = LOADING;
		n_loads++;
		check()
	}
	:: atomic {
		plan == LOADING ->
		plan = IN;
		must_serve = true
	}
	/*
	 * Nothing else can happen: the time limit of the oldest wait ends it. The search leaves that to
	 * time limits only where a wait behind it would fit if it were the first.
	 */
	:: d_step {
		timeout && n_waits > 0 ->
		do
		:: i + 1 < n_waits ->
			i++;
			l = LEASE(waits[i]);
			more = credited[l] + least[waits[i]];
			would_fit = would_fit || (more <= limit[l] && LEASED - granted[l] + more <= CARD)
		:: else -> break
		od;
		assert(would_fit);
		would_fit = false;
		answer[waits[0]] = EDEADLK;
		wait_end(0);
		must_serve = true;
		i = 0;
		l = 0;
		more = 0
	}
	od
}
