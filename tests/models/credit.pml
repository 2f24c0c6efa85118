/* SPDX-License-Identifier: MIT */
/*
 * Credit for completions
 *
 * Property: unread completions and tasks in flight together never exceed the ring, so no completion
 * is overwritten and no entry lost; and a client that reads late only delays its own entries.
 *
 * check safety
 * check safety HOSTILE=1
 * check all_seen TOTAL=4
 * mutant NO_IN_FLIGHT: assertion
 * mutant NO_IN_FLIGHT HOSTILE=1: assertion
 * mutant NO_UNREAD: assertion
 * mutant SEEN_TOO_FAR: assertion
 * mutant TAIL_BEFORE_HEAD: assertion
 * mutant HEAD_BEFORE_COPY: assertion
 * mutant NO_FRESH_LOOK TOTAL=4: cycle of all_seen
 *
 * The client is libclient/ring-hot.c; HOSTILE: its indices have any value at any time. The broker is
 * broker/dispatch/: admit-hot.c, task-hot.c, complete-hot.c. The broker polls without end:
 * ring-wakeup.pml has sleeping. Indices wrap around at WRAP, which is more than twice the ring, as 2^32
 * is.
 */
#define N    2 /* entries of the ring */
#define WRAP 8
#ifndef TOTAL
#define TOTAL 5 /* entries that the client submits, at most 5 */
#endif

#define LESS(a, b) (((a) + WRAP - (b)) % WRAP)

byte sq_tail, cq_head; /* struct rbk_sq_area */
byte sqes[N];
byte sq_head, cq_tail; /* struct rbk_cq_area */
byte cqes[N];

/* a task of the entry: not one, computed by an executor, handed back */
#define IDLE     0
#define RUNNING  1
#define RETURNED 2
byte tasks[5];

byte n_consumed; /* without wrapping */
byte n_seen;
bool is_seen[5];
bool is_over; /* the broker has ended the session of a hostile client */

ltl all_seen { <> (n_seen == TOTAL) }

/* ---- The client ---- */

#ifdef HOSTILE
active proctype client()
{
end:
	do
	:: atomic {
		!is_over ->
		sq_tail = (sq_tail + 1) % WRAP
	}
	:: atomic {
		!is_over ->
		cq_head = (cq_head + 1) % WRAP
	}
	od
}
#else
active proctype client()
{
	byte n_submitted, known_head, known_tail, n, id;

	do
	:: n_seen == TOTAL -> break
	/* rbk_get_sqe(), and get_sqe_slow() when the index that it knows leaves no room */
	:: n_submitted < TOTAL && LESS(sq_tail, known_head) < N ->
		sqes[sq_tail % N] = n_submitted;
		/* rbk_submit() */
		atomic {
			n_submitted++;
			sq_tail = (sq_tail + 1) % WRAP
		}
	:: atomic {
		n_submitted < TOTAL && LESS(sq_tail, known_head) == N && known_head != sq_head ->
		known_head = sq_head
	}
	/* look() */
	:: atomic {
		known_tail == cq_head && cq_tail != cq_head ->
		known_tail = cq_tail;
		assert(LESS(known_tail, cq_head) <= N)
	}
		/* A client that has seen an entry's completion finds room for another entry. */
		assert(LESS(sq_head, n_seen % WRAP) >= LESS(known_tail, cq_head) &&
		       LESS(sq_head, n_seen % WRAP) <= 2 * N)
	/* rbk_peek_batch_cqe(), rbk_cq_advance() */
	:: known_tail != cq_head ->
		atomic {
			if
			:: n = 1
			:: n = LESS(known_tail, cq_head)
			fi
		}
		do
		:: atomic {
			n > 0 ->
			id = cqes[(cq_head + n - 1) % N];
			assert(!is_seen[id]);
			is_seen[id] = true;
			n--;
			n_seen++;
			id = 0
		}
		:: atomic {
			n == 0 ->
			cq_head = n_seen % WRAP;
			break
		}
		od
	od
}
#endif

/* ---- The executors ---- */

#define RETURN(entry) atomic { tasks[entry] == RUNNING -> tasks[entry] = RETURNED }

active proctype executor()
{
end:
	do
	:: RETURN(0)
	:: RETURN(1)
	:: RETURN(2)
	:: RETURN(3)
	:: RETURN(4)
	od
}

/* ---- The broker ---- */

/* ring_post() */
inline ring_post(entry)
{
#ifndef HOSTILE
	assert(LESS(posted, cq_head) < N);
#endif
	cqes[posted % N] = entry;
	posted = (posted + 1) % WRAP
}

inline ring_publish()
{
#ifdef TAIL_BEFORE_HEAD
	cq_tail = posted;
#endif
	sq_head = head;
	cq_tail = posted
}

#define IS_RETURNED \
	(tasks[0] == RETURNED || tasks[1] == RETURNED || tasks[2] == RETURNED || \
	 tasks[3] == RETURNED || tasks[4] == RETURNED)

#define REAP(i) atomic { tasks[i] == RETURNED -> task_complete(i) }

/* task_complete(), ring_after_completion() */

inline task_complete(i)
{
	tasks[i] = IDLE;
	n_in_flight--;
	ring_post(i);
	if
	:: barrier != TOTAL && n_in_flight == 1 ->
		n_in_flight--;
		ring_post(barrier);
		barrier = TOTAL
	:: else
	fi
}

/* dispatch_poll_ring(), where the last index that it read leaves too little room */
inline look_for_room()
{
	atomic {
#ifdef NO_FRESH_LOOK
		unread = LESS(posted, cq_head_seen);
#else
		unread = LESS(posted, cq_head);
#endif
		if
		:: unread > N ->
			is_over = true;
			room = 0
#ifdef NO_IN_FLIGHT
		:: else ->
			cq_head_seen = LESS(posted, unread);
			room = N - unread
#else
		:: unread <= N && unread + n_in_flight >= N ->
#ifdef SEEN_TOO_FAR
			cq_head_seen = posted;
#else
			cq_head_seen = LESS(posted, N - n_in_flight);
#endif
			room = 0
		:: unread <= N && unread + n_in_flight < N ->
			cq_head_seen = LESS(posted, unread);
			room = N - unread - n_in_flight
#endif
		fi;
		unread = 0
	}
}

/* dispatch_poll_ring() */
inline poll_ring()
{
	n = LESS(sq_tail, head);
	if
	:: n > N -> is_over = true
	:: else ->
#ifdef NO_UNREAD
		room = N - n_in_flight;
#elif defined(NO_IN_FLIGHT)
		room = N - LESS(posted, cq_head_seen);
#else
		room = N - LESS(posted, cq_head_seen) - n_in_flight;
#endif
		if
		:: room < n -> look_for_room()
		:: else
		fi;
		n = (n > room -> room : n)
	fi;
	if
	:: is_over || n == 0
	:: else ->
#ifdef HEAD_BEFORE_COPY
		sq_head = (head + n) % WRAP;
#endif
		do
		:: n == 0 || barrier != TOTAL -> break
		:: else ->
			/* rbk_sqe_load(), admit_entry() */
			entry = sqes[head % N];
			atomic {
#ifdef HOSTILE
				entry = n_consumed % TOTAL;
#endif
				assert(entry == n_consumed % TOTAL);
				head = (head + 1) % WRAP;
				n_consumed = (n_consumed + 1) % WRAP;
				n--;
				if
				/* completes at once */
				:: ring_post(entry)
				/* task_from_entry(): a task that an executor computes */
				:: tasks[entry] == IDLE ->
					tasks[entry] = RUNNING;
					n_in_flight++
				/* a barrier */
				:: n_in_flight > 0 ->
					barrier = entry;
					n_in_flight++
				fi;
				assert(n_in_flight <= N)
			}
		od;
		ring_publish()
	fi;
	n = 0;
	room = 0;
	entry = 0
}

active proctype broker()
{
	byte head;            /* session_ring.sq_head */
	byte posted;          /* session_ring.cq_tail */
	byte cq_head_seen;    /* session_ring.cq_head_seen */
	byte n_in_flight;     /* session_ring.n_in_flight */
	byte barrier = TOTAL; /* dispatch_ring.barrier; TOTAL: none */
	byte n, unread, room, entry;

end:
	do
	/* a turn */
	:: !is_over && ((sq_tail != head && barrier == TOTAL) || IS_RETURNED) ->
		if
		:: sq_tail != head && barrier == TOTAL -> poll_ring()
		:: else
		fi;
		/* dispatch_reap(): tasks have ended in any order; dispatch_publish_dirty() */
		do
		:: REAP(0)
		:: REAP(1)
		:: REAP(2)
		:: REAP(3)
		:: REAP(4)
		:: !IS_RETURNED -> break
		od;
		ring_publish()
	od
}
