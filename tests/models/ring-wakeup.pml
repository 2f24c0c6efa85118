/* SPDX-License-Identifier: MIT */
/*
 * A ring with its wake-up flags on both sides
 *
 * Property: while an entry or a completion is to be looked at, the side that is to look is awake, or
 * will be woken; so all entries are consumed and all their completions seen.
 *
 * check safety
 * check all_seen TOTAL=2
 * mutant CLIENT_FLAG_AFTER_LOOK: end state
 * mutant BROKER_FLAG_AFTER_LOOK: end state
 * mutant CLIENT_TOKEN_BEFORE_PUBLISH: end state
 * mutant BROKER_TOKEN_BEFORE_PUBLISH: end state
 * mutant NO_SECOND_ANNOUNCEMENT: end state
 * mutant NO_LISTENING_AGAIN: end state
 * mutant NO_WAKE_FOR_ROOM: end state
 * mutant NO_ACTIVATION_AFTER_COMPLETION N=4: end state
 * mutant SAME_TOKEN: end state
 *
 * The client is libclient/ring-hot.c, the broker broker/dispatch/; each step is marked with the
 * function that makes it. Steps are atomic, and in the order of the program: test-weak-memory checks
 * which fences that takes. A sleep token differs from all earlier ones, so a side that sees one needs
 * to know only whether it has rung for the last one. Left out: indices that wrap around, muted rings,
 * quotas and tables (the broker then looks again by itself), and a broker that dies (reattach.pml).
 */
#ifndef N
#define N      2 /* entries of the ring */
#endif
#ifndef TOTAL
#define TOTAL  3 /* entries that the client submits */
#endif
#define ALARMS 1 /* sleeps of the client that a deadline or a signal ends */
#define FULL   1 /* bytes that fit into a bell's socket */

/* struct rbk_sq_area, written by the client; cq_wait: it is not 0 */
byte sq_tail, cq_head;
bool cq_wait;
/* struct rbk_cq_area, written by the broker; sq_wait: it is not 0 */
byte sq_head, cq_tail;
bool sq_wait = true; /* ring_start(): the broker sleeps on a new ring */
/* bytes in the bells' sockets */
byte broker_bell, client_bell;
/* tasks that the executor computes, and those that it has handed back */
byte n_running, n_returned;
/* rbk_ring.sq_rung is the broker's last token; dispatch_ring.rung_token is the client's. */
bool has_rung, has_broker_rung;

ltl all_seen { <> (cq_head == TOTAL) }

/* send(MSG_DONTWAIT): a full socket has bytes that will wake the other side. */
#define RING(bell) bell = (bell < FULL -> bell + 1 : FULL)

/* ---- The client ---- */

inline wake_broker()
{
	if
	:: atomic {
		sq_wait && !has_rung ->
		has_rung = true
	}
		RING(broker_bell)
	:: else
	fi
}

inline rbk_submit()
{
#ifdef CLIENT_TOKEN_BEFORE_PUBLISH
	wake_broker();
#endif
	atomic {
		select(n : 1 .. 2);
		if
		:: n > TOTAL - published || n > N - (published - sq_head) -> n = 1
		:: else
		fi;
		published = published + n;
		sq_tail = published
	}
#ifndef CLIENT_TOKEN_BEFORE_PUBLISH
	wake_broker();
#endif
}

/* announce_sleep(): the broker has not rung for the new token. */
inline announce_sleep()
{
	atomic {
#ifndef SAME_TOKEN
		has_broker_rung = false;
#endif
		cq_wait = true
	}
}

/* disarm(), which refill() calls */
inline disarm()
{
	if
	:: is_armed ->
		atomic {
			is_armed = false;
			cq_wait = false
		}
		client_bell = 0
	:: else
	fi
}

/* wake_broker_for_rest() */
inline wake_for_rest()
{
#ifdef NO_WAKE_FOR_REST
	skip
#else
	if
	:: sq_head != published -> wake_broker()
	:: else
	fi
#endif
}

/* wait_asleep(): @n completions are wanted */
inline wait_asleep()
{
	do
	:: true ->
#ifndef CLIENT_FLAG_AFTER_LOOK
		announce_sleep();
#endif
		atomic {
			known_tail = cq_tail;
			if
			:: known_tail - cq_head >= n -> break
			:: else
			fi
		}
#ifdef CLIENT_FLAG_AFTER_LOOK
		announce_sleep();
#endif
		wake_for_rest();
		if
		:: atomic {
			client_bell > 0 -> /* sleep_on_bell() */
			client_bell--
		}
		:: atomic {
			n_alarms < ALARMS -> /* -ETIME or -EINTR; the program waits again, or not */
			n_alarms++;
			break
		}
		fi
	od;
	cq_wait = false;
	known_tail = cq_tail
}

/* rbk_ring_arm(); a program whose event loop waits may submit meanwhile */
inline rbk_ring_arm()
{
	disarm();
	known_tail = cq_tail;
	if
	:: known_tail != cq_head
	:: else ->
		is_armed = true;
		announce_sleep();
		known_tail = cq_tail;
		if
		:: known_tail == cq_head ->
			wake_for_rest();
			if
			:: client_bell > 0 /* the event loop: the descriptor is readable */
			:: published < TOTAL && published - sq_head < N /* the program has more to do */
			fi
		:: else
		fi
	fi
}

/* rbk_cq_advance(): @n completions were consumed */
inline rbk_cq_advance()
{
	atomic {
		was_full = published - cq_head > N;
		cq_head = cq_head + n
	}
	if
#ifndef NO_WAKE_FOR_ROOM
	:: was_full -> wake_broker()
#endif
	:: else
	fi
}

active proctype client()
{
	byte published;  /* rbk_ring.sq_published */
	byte known_tail; /* rbk_ring.cq_tail */
	bool is_armed;   /* rbk_ring.armed */
	bool was_full, is_polling, is_blocking;
	byte n, n_alarms;

	/* A program polls, blocks, or has an event loop. */
	if
	:: is_polling = true
	:: is_blocking = true
	:: true
	fi;
	do
	:: cq_head == TOTAL -> break
	/* rbk_get_sqe() finds room. */
	:: published < TOTAL && published - sq_head < N -> rbk_submit()
	/* rbk_peek_cqe(), again and again */
	:: is_polling && known_tail == cq_head && cq_tail != cq_head -> known_tail = cq_tail
	/* rbk_wait_cqe() and rbk_submit_and_wait(): refill(), then looks, of which some may spin */
	:: atomic {
		is_blocking && published != cq_head && known_tail == cq_head ->
		n = 1
	}
		wait_asleep()
	:: atomic {
		is_blocking && published - cq_head > 1 && known_tail - cq_head < 2 ->
		n = 2
	}
		wait_asleep()
	:: !is_polling && !is_blocking && published != cq_head && known_tail == cq_head ->
		rbk_ring_arm()
	:: known_tail != cq_head ->
		/* rbk_peek_cqe() and rbk_peek_batch_cqe() */
		atomic {
			if
			:: n = 1
			:: n = known_tail - cq_head
			fi
		}
		rbk_cq_advance()
	od
}

/* ---- The executors ---- */

active proctype executor()
{
end:
	do
	:: atomic {
		n_running > 0 ->
		n_running--;
		n_returned++
	}
	od
}

/* ---- The broker ---- */

inline read_client_token()
{
	if
	:: atomic {
		cq_wait && !has_broker_rung ->
		has_broker_rung = true;
		has_wake_job = true
	}
	:: else
	fi
}

inline ring_publish()
{
	sq_head = consumed;
	if
	:: posted == cq_published
	:: else ->
#ifdef BROKER_TOKEN_BEFORE_PUBLISH
		read_client_token();
#endif
		atomic {
			cq_published = posted;
			cq_tail = posted
		}
#ifndef BROKER_TOKEN_BEFORE_PUBLISH
		read_client_token()
#endif
	fi
}

/* dispatch_ring_has_work() */
inline look_for_work()
{
	if
	:: sq_tail == consumed || has_barrier -> has_work = false
	:: else -> has_work = (posted - cq_head + n_in_flight < N)
	fi
}

inline ring_announce_sleep()
{
	atomic {
		has_rung = false;
		sq_wait = true
	}
}

inline ring_activate()
{
	atomic {
		is_active = true;
		sq_wait = false
	}
}

/* dispatch_poll_ring(): an entry completes at once, is a task, or a barrier. */
inline poll_ring()
{
	n_entries = sq_tail - consumed;
	if
	:: n_entries == 0 || has_barrier
	:: else ->
		atomic {
			room = N - (posted - cq_head) - n_in_flight;
			n_entries = (n_entries > room -> room : n_entries);
			room = 0;
			do
			:: n_entries == 0 || has_barrier -> break
			:: else ->
				n_entries--;
				consumed++;
				if
				:: posted++
				:: n_in_flight++;
				   n_running++
				:: n_in_flight > 0 ->
				   n_in_flight++;
				   has_barrier = true
				fi
			od;
			n_entries = 0
		}
		ring_publish()
	fi
}

/* dispatch_reap(), ring_after_completion(), dispatch_publish_dirty(), ring_go_on() */
inline work_on_tasks()
{
	if
	:: n_returned == 0
	:: else ->
		atomic {
			posted = posted + n_returned;
			n_in_flight = n_in_flight - n_returned;
			n_returned = 0;
			if
			:: has_barrier && n_in_flight == 1 ->
				has_barrier = false;
				n_in_flight = 0;
				posted++
			:: else
			fi
		}
#ifndef NO_ACTIVATION_AFTER_COMPLETION
		if
		:: !is_active ->
			look_for_work();
			if
			:: has_work -> ring_activate()
			/* The client is expected to go on. */
			:: ring_activate()
			:: !has_work
			fi
		:: else
		fi;
#endif
		ring_publish()
	fi
}

/* dispatch_sleep_rings(), for a ring whose spin budget is used up */
inline sleep_rings()
{
#ifndef BROKER_FLAG_AFTER_LOOK
	ring_announce_sleep();
#endif
	look_for_work();
	if
	:: has_work -> sq_wait = false
	:: else ->
#ifdef BROKER_FLAG_AFTER_LOOK
		ring_announce_sleep();
#endif
		/* ring_listen(), ring_deactivate() */
		atomic {
			is_listening = true;
			is_active = false
		}
	fi
}

/* session_ring_drain_bell(), ring_was_rung() */
inline answer_bell()
{
	broker_bell = 0;
	if
	:: is_active
	:: else ->
		look_for_work();
#ifndef NO_SECOND_ANNOUNCEMENT
		if
		:: !has_work -> ring_announce_sleep()
		:: else
		fi;
		look_for_work();
#endif
		if
		:: has_work -> ring_activate()
		:: else ->
#ifndef NO_LISTENING_AGAIN
			is_listening = true
#else
			skip
#endif
		fi
	fi
}

active proctype broker()
{
	byte consumed;           /* session_ring.sq_head */
	byte posted;             /* session_ring.cq_tail */
	byte cq_published;       /* dispatch_ring.cq_published */
	byte n_in_flight;        /* session_ring.n_in_flight */
	bool has_barrier;        /* dispatch_ring.barrier */
	bool is_active;          /* the ring is polled */
	bool is_listening = true; /* the loop watches the bell, once */
	bool has_wake_job;       /* dispatch.bells has the ring's job */
	bool has_work;
	byte n_entries, room;

end:
	do
	/* dispatch_run(): a turn, if there is reason for one */
	:: is_active || n_returned > 0 || (is_listening && broker_bell > 0) ->
		/* look_at_kernel(), dispatch_answer_bells() */
		if
		:: is_listening && broker_bell > 0 ->
			is_listening = false;
			answer_bell()
		:: else
		fi;
		if
		:: is_active -> poll_ring()
		:: else
		fi;
		work_on_tasks();
		if
		:: is_active ->
			if
			:: sleep_rings()
			:: true
			fi
		:: else
		fi;
		/* dispatch_ring_bells() */
		if
		:: has_wake_job ->
			atomic {
				has_wake_job = false;
				RING(client_bell)
			}
		:: else
		fi
	od
}
