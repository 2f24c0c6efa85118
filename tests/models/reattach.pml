/* SPDX-License-Identifier: MIT */
/*
 * Re-attachment against the death of the broker at any point
 *
 * Property: whenever brokers die, each entry completes once for the client, with a result that a broker
 * which does not die could have given (or -ECONNRESET for a state that may have been updated); no entry
 * of a chain runs again once its successor has begun; and nothing that was consumed is lost.
 *
 * check safety
 * check safety SCRIPTS=2
 * mutant COMMIT_AFTER_PUBLISH: assertion
 * mutant COMMIT_BEFORE_COMPLETION: assertion
 * mutant NO_COMMIT_BEFORE_SUCCESSOR: assertion
 * mutant COMMIT_OF_FAILURE: assertion
 * mutant NO_COMMIT_IN_BATCH: assertion
 * mutant FLAGS_BEFORE_INDEX: assertion
 * mutant SLOT_BEFORE_COMMIT: end state
 * mutant BEGUN_AFTER_HAND_OVER: assertion
 * mutant CANCELLED_AT_ONCE: assertion
 * mutant NO_BREAK SCRIPTS=2: assertion
 * mutant LINK_NOT_CUT: assertion
 * mutant CHAIN_NOT_COMMITTED: assertion
 * mutant NOT_IN_ORDER: assertion
 * mutant PUBLISHED_COUNT: end state
 *
 * A broker is broker/dispatch/ (admit-hot.c, task-hot.c, complete-hot.c, record.h, restore.c): each of
 * its stores to the completion area is a step, and it may die between any two. The next broker begins
 * as broker/session/ring-restore.c does; it cannot be seen before it has copied all, so that is one
 * step. The client is libclient/ring-hot.c and ring-recover.c: it reads the old area until it installs
 * the new one, at any time. It sees of an area only what was published, so the stores before that are
 * one step where no death is between them. Left out: wake-ups, tables, deadlines, indices that wrap
 * around, and undo memory: a state here is one for which there was no room (broker/dispatch/undo-hot.c),
 * and test-dispatch-restore-state has the others. Stores become visible in their order: test-weak-memory has the client beside the broker.
 */
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef SCRIPTS
#define SCRIPTS 1
#endif
#define NONE 15

/* kinds of entries */
#define NOP     0 /* does nothing */
#define INVALID 1 /* is rejected */
#define TASK    2 /* runs on an executor */
#define FAILING 3 /* fails there */
#define HOMELESS 4 /* takes a slot, and finds no device */
#define STATE   5 /* updates a state */
#define CANCEL  6 /* cancels entry target */
#define BARRIER 7
#define INLINE  8 /* a task that runs inline if it waits for nothing, otherwise on an executor */

/* results */
#define OK         1
#define ECANCELED  2
#define ENOENT     3
#define EALREADY   4
#define EIO        5
#define EINVAL     6
#define ECONNRESET 7

#if SCRIPTS == 1
#define E 3 /* entries in all */
#define N 2 /* entries of the ring, and slots of tasks */
#else
#define E 4
#define N 4
#endif

/* ---- What outlives a broker ---- */

/* struct rbk_sq_area; entry i is at index i. */
byte sq_tail, cq_head;
byte sqes[N];
byte kind[E];
bool is_linked[E];
byte target;

/* struct rbk_cq_area of the last broker: the committed word, and the published indices */
typedef commit_word {
	byte sq_head, cq_tail;
	bool is_open, is_broken
}
commit_word commit;
byte sq_head, cq_tail;
typedef completion {
	byte entry, res
}
completion cqes[N];

/* struct rbk_task_record */
typedef task_record {
	byte sq_index, cq_index, cancel_index, entry;
	bool is_linked, is_taken, is_posted, is_cancelled, is_begun
}
task_record records[N];

/* the area that the client has mapped, once another one has taken its place */
bool is_away;
byte old_sq_head, old_cq_tail;
completion old_cqes[N];

byte n_deaths;

/* ---- What the property names ---- */

byte results[E]; /* that the client has seen */
bool has_begun[E];

/* An entry begins. It may run again after its broker died, but not after its successor has begun. */
inline begin(number)
{
	assert(!is_linked[number] || number + 1 >= E || !has_begun[number + 1]);
	assert(!(kind[number] == STATE && has_begun[number]));
	has_begun[number] = true
}

/* ---- The client ---- */

#define SQ_HEAD (is_away -> old_sq_head : sq_head)
#define CQ_TAIL (is_away -> old_cq_tail : cq_tail)

inline check_results()
{
	for (i : 0 .. E - 1) {
		r = results[i];
		if
		:: i > 0 && is_linked[i - 1] && results[i - 1] != OK ->
			assert(r == ECANCELED || (kind[i] == INVALID && r == EINVAL))
		:: else ->
			was_cancelled = false;
			for (k : 0 .. E - 1) {
				if
				:: kind[k] == CANCEL && results[k] == OK && i == target -> was_cancelled = true
				:: else
				fi
			}
			assert(was_cancelled == (r == ECANCELED));
			if
			:: r == ECANCELED -> assert(kind[i] != STATE || !has_begun[i])
			:: kind[i] == NOP || kind[i] == TASK || kind[i] == INLINE || kind[i] == BARRIER ->
				assert(r == OK || r == ECANCELED)
			:: kind[i] == INVALID -> assert(r == EINVAL)
			:: kind[i] == FAILING || kind[i] == HOMELESS -> assert(r == EIO || r == ECANCELED)
			:: kind[i] == STATE ->
				assert(r == OK || r == ECANCELED || (r == ECONNRESET && n_deaths > 0))
			:: kind[i] == CANCEL -> assert(r == OK || r == ENOENT || r == EALREADY)
			fi
		fi
	}
}

#define ENTRY(i, what, linked) kind[i] = what; is_linked[i] = linked

active proctype client()
{
	byte i, k, r;
	bool was_cancelled;

	atomic {
		if
#if SCRIPTS == 1
		:: ENTRY(0, TASK, true); ENTRY(1, TASK, true); ENTRY(2, INLINE, false)
		:: ENTRY(0, INLINE, true); ENTRY(1, INLINE, true); ENTRY(2, TASK, false)
		:: ENTRY(0, TASK, false); ENTRY(1, CANCEL, true); ENTRY(2, TASK, false)
		:: ENTRY(0, TASK, true); ENTRY(1, CANCEL, false); ENTRY(2, CANCEL, false)
		:: ENTRY(0, FAILING, true); ENTRY(1, TASK, true); ENTRY(2, TASK, false)
		:: ENTRY(0, FAILING, true); ENTRY(1, INVALID, false); ENTRY(2, TASK, false)
		:: ENTRY(0, TASK, true); ENTRY(1, INVALID, false); ENTRY(2, INLINE, false)
		:: ENTRY(0, INVALID, true); ENTRY(1, INLINE, true); ENTRY(2, TASK, false)
		:: ENTRY(0, HOMELESS, false); ENTRY(1, HOMELESS, true); ENTRY(2, TASK, false)
		:: ENTRY(0, STATE, true); ENTRY(1, TASK, true); ENTRY(2, INLINE, false)
		:: ENTRY(0, TASK, false); ENTRY(1, BARRIER, false); ENTRY(2, STATE, false)
#else
		:: ENTRY(0, TASK, false); ENTRY(1, TASK, true); ENTRY(2, CANCEL, true); ENTRY(3, STATE, false)
		:: ENTRY(0, TASK, false); ENTRY(1, TASK, true); ENTRY(2, NOP, true); ENTRY(3, TASK, false)
		:: ENTRY(0, TASK, true); ENTRY(1, TASK, false); ENTRY(2, CANCEL, false); ENTRY(3, BARRIER, false);
		   target = 1
		:: ENTRY(0, TASK, true); ENTRY(1, TASK, true); ENTRY(2, TASK, false); ENTRY(3, CANCEL, false)
#endif
		fi
	}
	do
	:: cq_head == E -> break
	/* rbk_get_sqe(), rbk_submit() */
	:: atomic {
		sq_tail < E && sq_tail - SQ_HEAD < N ->
		sqes[sq_tail % N] = sq_tail;
		sq_tail++
	}
	/* rbk_peek_cqe(), rbk_cq_advance() */
	:: atomic {
		cq_head < CQ_TAIL ->
		i = (is_away -> old_cqes[cq_head % N].entry : cqes[cq_head % N].entry);
		r = (is_away -> old_cqes[cq_head % N].res : cqes[cq_head % N].res);
		assert(results[i] == 0);
		results[i] = r;
		cq_head++;
		i = 0;
		r = 0
	}
	/* install() */
	:: atomic {
		is_away ->
		assert(sq_head >= old_sq_head && cq_tail >= old_cq_tail);
		is_away = false;
		d_step {
			old_sq_head = 0;
			old_cq_tail = 0;
			for (i : 0 .. N - 1) {
				old_cqes[i].entry = 0;
				old_cqes[i].res = 0
			}
			i = 0
		}
	}
	od;
	skip;
	d_step {
		check_results();
		i = 0;
		k = 0;
		r = 0
	}
}

/* ---- The broker ---- */

/* The broker may die before each store to the completion area. */
#define MAY_DIE                     \
	if                              \
	:: n_deaths < DEATHS ->         \
		n_deaths++;                 \
		goto dead                   \
	:: true                         \
	fi

/* enum task_phase; FREE: the slot has no task, RUNNING: an executor has it */
#define FREE    0
#define HELD    1
#define PLACED  2
#define RUNNING 3
#define WOKEN   4
#define WAITS   5 /* a barrier */

typedef task {
	byte entry, phase, chain_next;
	bool is_cancelled
}

/* ring_post(); the caller has made sure that there is room. */
inline ring_post(number, result)
{
	assert(posted - cq_head < N);
	MAY_DIE;
	cqes[posted % N].entry = number;
	cqes[posted % N].res = result;
	posted++
}

#define IS_RESTORING (n_readmitted < n_restored)

/* ring_commit() of all completions, and of the entries before @index */
inline ring_commit(index)
{
	MAY_DIE;
	commit.sq_head = index;
	commit.cq_tail = posted;
#ifdef CHAIN_NOT_COMMITTED
	commit.is_open = false;
	commit.is_broken = false
#else
	if
	:: IS_RESTORING ->
		commit.is_open = restored_open;
		commit.is_broken = restored_broken
	:: else ->
		commit.is_open = chain_open;
		commit.is_broken = chain_broken
	fi
#endif
}

inline ring_publish()
{
#ifndef COMMIT_AFTER_PUBLISH
	atomic {
		ring_commit(head)
	}
#endif
	atomic {
		MAY_DIE;
		sq_head = head
	}
	atomic {
		MAY_DIE;
		cq_tail = posted
	}
#ifdef COMMIT_AFTER_PUBLISH
	;
	atomic {
		ring_commit(head)
	}
#endif
}

/* record_post() of the record of slot @s */
inline record_post(slot)
{
	MAY_DIE;
	records[slot].cq_index = posted - 1;
	MAY_DIE;
	records[slot].is_posted = true
}

/* record_break() after the entry of record @s failed */
inline record_break(slot)
{
#ifdef NO_BREAK
	skip
#else
	if
	:: slot + 1 < N && records[slot].is_linked && slot + 1 < n_restored && slot + 1 >= n_readmitted &&
		!records[slot + 1].is_cancelled ->
		MAY_DIE;
		records[slot + 1].cancel_index = records[slot].sq_index;
		MAY_DIE;
		records[slot + 1].is_cancelled = true
	:: else
	fi
#endif
}

/* RBK_TASK_TAKEN alone */
inline record_set_taken()
{
	MAY_DIE;
	records[s].is_taken = true;
	records[s].is_posted = false;
	records[s].is_cancelled = false;
	records[s].is_begun = false
}

/* task_from_entry(), record_take(): entry e takes slot s. */
inline task_take(a_phase)
{
	if
	:: IS_RESTORING -> s = n_readmitted
	:: else ->
		s = 0;
		do
		:: tasks[s].phase != FREE -> s++
		:: else -> break
		od
	fi;
	assert(s < N && tasks[s].phase == FREE);
	tasks[s].entry = e;
	tasks[s].phase = a_phase;
	tasks[s].chain_next = NONE;
	tasks[s].is_cancelled = false;
	n_in_flight++;
	if
	:: IS_RESTORING
	:: else ->
#ifdef FLAGS_BEFORE_INDEX
		record_set_taken();
#endif
		MAY_DIE;
		records[s].sq_index = head - 1;
		MAY_DIE;
		records[s].entry = e;
		records[s].is_linked = is_linked[e];
#ifndef FLAGS_BEFORE_INDEX
		record_set_taken()
#endif
	fi
}

/* dispatch_cancel() of entry target by an entry with slot @own, or NONE. The result is res. */
inline dispatch_cancel(own)
{
	k = 0;
	do
	:: k < N && !(tasks[k].phase != FREE && tasks[k].entry == target) -> k++
	:: else -> break
	od;
	res = ENOENT;
	if
	:: k == N
	:: k < N && tasks[k].is_cancelled
	:: k < N && !tasks[k].is_cancelled ->
		/* task_cancel() */
		if
		:: tasks[k].phase == WAITS -> res = EALREADY
		:: tasks[k].phase == HELD || tasks[k].phase == WOKEN -> res = OK
		:: tasks[k].phase == PLACED ||
			(tasks[k].phase == RUNNING && kind[tasks[k].entry] != STATE) ->
			/* runs_withdraw() */
			tasks[k].phase = WOKEN;
			res = OK
		:: tasks[k].phase == RUNNING -> res = EALREADY
		fi;
		tasks[k].is_cancelled = (res == OK)
	fi;
	if
	:: res == OK ->
		/* record_cancel() */
#ifdef CANCELLED_AT_ONCE
		MAY_DIE;
		records[k].cancel_index = 0;
#else
		MAY_DIE;
		if
		:: own != NONE -> records[k].cancel_index = records[own % N].sq_index
		:: own == NONE && IS_RESTORING ->
			records[k].cancel_index = records[n_readmitted].sq_index
		:: else -> records[k].cancel_index = head - 1
		fi;
#endif
		MAY_DIE;
		records[k].is_cancelled = true
	:: else
	fi;
	k = 0
}

/* task_complete() of slot t with res; t is the successor then, or NONE. */
inline task_complete()
{
#ifdef COMMIT_BEFORE_COMPLETION
	commit.cq_tail = posted + 1;
#endif
	ring_post(tasks[t].entry, res);
	record_post(t);
	is_dirty = true;
	s = tasks[t].chain_next;
	if
	:: s != NONE ->
		tasks[s].is_cancelled = tasks[s].is_cancelled || res != OK
	:: else
	fi;
	must_break = false;
	if
	:: chain_last == t ->
		chain_last = NONE;
		chain_broken = (res != OK);
		must_break = IS_RESTORING && chain_broken
	:: else
	fi;
	if
	:: must_break -> record_break(t)
	:: else
	fi;
	tasks[t].phase = FREE;
	tasks[t].entry = 0;
	tasks[t].is_cancelled = false;
	n_in_flight--;
	t = s;
	s = 0;
	must_break = false
}

/* task_begin() of slot t: sets is_done and res if the task completes at once. */
inline task_begin()
{
	if
	:: tasks[t].is_cancelled -> res = ECANCELED; is_done = true
	:: else ->
		if
		:: kind[tasks[t].entry] == NOP -> res = OK; is_done = true
		:: kind[tasks[t].entry] == HOMELESS -> res = EIO; is_done = true
		:: kind[tasks[t].entry] == CANCEL ->
			dispatch_cancel(t);
			is_done = true
		:: else ->
			tasks[t].phase = PLACED;
			t = NONE
		fi
	fi
}

/*
 * task_start() of slot t, or, if is_done, task_finish() with res: entries that complete at once free
 * their successors; then ring_after_completion().
 */
inline task_go_on()
{
	do
	:: t != NONE && !is_done -> task_begin()
	:: t != NONE && is_done ->
		task_complete();
		is_done = false;
		if
#ifdef COMMIT_OF_FAILURE
		:: t != NONE -> ring_commit(head)
#elif !defined(NO_COMMIT_BEFORE_SUCCESSOR)
		:: t != NONE && !tasks[t % N].is_cancelled -> ring_commit(head)
#endif
		:: else
		fi
	:: t == NONE && barrier != NONE && n_in_flight == 1 ->
		t = barrier;
		barrier = NONE;
		res = OK;
		is_done = true;
	:: t == NONE && !(barrier != NONE && n_in_flight == 1) -> break
	od
}

/* admit_entry() of entry e */
inline admit_entry()
{
	is_waiting = chain_open && (chain_last != NONE || chain_broken);
	res = OK;
	if
	:: kind[e] == INVALID || (chain_open && kind[e] == BARRIER) -> res = EINVAL
	:: else
	fi;
	if
	/* admit_waiting() */
	:: is_waiting && (res != OK || chain_broken) ->
		res = (res != OK -> res : ECANCELED);
		ring_post(e, res);
		chain_last = NONE;
		chain_broken = true;
	:: is_waiting && res == OK && !chain_broken ->
		task_take(HELD);
		tasks[chain_last].chain_next = s;
		chain_last = s
	:: !is_waiting ->
		if
#ifndef NO_COMMIT_IN_BATCH
		:: chain_open -> ring_commit(head - !IS_RESTORING)
#endif
		:: else
		fi;
		if
		/* start_entry() */
		:: res == OK && (kind[e] == TASK || kind[e] == FAILING || kind[e] == HOMELESS ||
				 kind[e] == STATE) ->
			task_take(HELD);
			chain_last = s;
			chain_broken = false;
			t = s;
			task_go_on();
			t = chain_last;
			res = (chain_broken -> ECANCELED : OK)
		:: res == OK && kind[e] == BARRIER && n_in_flight > 0 ->
			task_take(WAITS);
			barrier = s
		:: else ->
			if
			:: res == OK && kind[e] == CANCEL -> dispatch_cancel(NONE)
			:: res == OK && kind[e] == INLINE -> begin(e)
			:: else
			fi;
			ring_post(e, res)
		fi;
		chain_last = t;
		chain_broken = (res != OK)
	fi;
	chain_open = is_link;
	if
	:: !chain_open ->
		chain_last = NONE;
		chain_broken = false
	:: else
	fi;
	is_waiting = false;
	res = 0;
	s = 0;
	t = NONE
}

/* restore_end() */
inline restore_end()
{
	if
	:: !chain_open ->
		chain_open = restored_open;
		chain_broken = restored_broken
	:: else
	fi
}

/* restore_finish() */
inline restore_finish()
{
	if
	:: tasks[n_readmitted].phase == FREE && !records[n_readmitted].is_posted ->
		record_post(n_readmitted)
	:: else
	fi;
	if
	:: chain_broken -> record_break(n_readmitted)
	:: else
	fi;
	n_readmitted++;
	if
	:: n_readmitted == n_restored -> restore_end()
	:: else
	fi
}

/* dispatch_poll_ring() and poll_restored() */
inline poll_ring()
{
	was_restoring = IS_RESTORING;
	n = (was_restoring -> n_restored - n_readmitted : sq_tail - head);
	if
	:: !was_restoring && n > N - (posted - cq_head) - n_in_flight ->
		n = N - (posted - cq_head) - n_in_flight
	:: else
	fi;
	/* A batch may end before all is done: RESTORE_BATCH, is_batch_over. */
	if
	:: n > 1 -> n = 1
	:: true
	fi;
	do
	:: n > 0 && barrier == NONE ->
		n--;
		if
		:: was_restoring ->
			e = records[n_readmitted].entry;
			is_link = records[n_readmitted].is_linked
		:: else ->
			assert(sqes[head % N] == head);
			e = head;
			is_link = is_linked[e];
			head++
		fi;
		if
		/* restore_prepare(), restore_refuse() */
		:: was_restoring && (records[n_readmitted].is_cancelled || records[n_readmitted].is_begun) ->
			res = (records[n_readmitted].is_cancelled -> ECANCELED : ECONNRESET);
			ring_post(e, res);
			res = 0;
			chain_last = NONE;
			chain_open = is_link;
			chain_broken = is_link;
		:: else -> admit_entry()
		fi;
		if
		:: was_restoring -> restore_finish()
		:: else
		fi
	:: else -> break
	od;
	n = 0;
	e = 0;
	is_link = false
}

/* ---- The next broker ---- */

#define IS_LIVE(r)                                                  \
	(records[r].is_taken && records[r].sq_index < commit.sq_head && \
	 !(records[r].is_posted && records[r].cq_index < commit.cq_tail))

#define SWAP(member)                          \
	n = records[s].member;                    \
	records[s].member = records[s + 1].member; \
	records[s + 1].member = n

/* ring_restore(), restore_begin() */
inline restore()
{
	d_step {
		/* The client goes on reading the area that it has mapped. */
		if
		:: !is_away ->
			is_away = true;
			old_sq_head = sq_head;
			old_cq_tail = cq_tail;
			for (k : 0 .. N - 1) {
				old_cqes[k].entry = cqes[k].entry;
				old_cqes[k].res = cqes[k].res
			}
		:: else
		fi;
#ifdef PUBLISHED_COUNT
		commit.sq_head = sq_head;
		commit.cq_tail = cq_tail;
#endif
		/* rest_init(): sort the live records to the front, by their index. */
		n_restored = 0;
		for (k : 0 .. N - 1) {
			records[k].is_taken = IS_LIVE(k);
			n_restored = n_restored + records[k].is_taken
		}
		assert(n_restored <= N - (commit.cq_tail - cq_head));
		for (k : 0 .. N - 2) {
			for (s : 0 .. N - 2) {
				if
#ifdef NOT_IN_ORDER
				:: !records[s].is_taken && records[s + 1].is_taken ->
#else
				:: records[s + 1].is_taken && (!records[s].is_taken ||
					records[s + 1].sq_index < records[s].sq_index) ->
#endif
					SWAP(entry);
					SWAP(sq_index);
					SWAP(cancel_index);
					SWAP(is_linked);
					SWAP(is_taken);
					SWAP(is_cancelled);
					SWAP(is_begun)
				:: else
				fi
			}
		}
		/* rest_next() */
		for (k : 0 .. N - 1) {
			records[k].is_posted = false;
			records[k].cq_index = 0;
			if
			:: !records[k].is_taken || records[k].cancel_index >= commit.sq_head ->
				records[k].is_cancelled = false
			:: else
			fi;
			for (s : 0 .. N - 1) {
				if
				:: records[s].is_taken && records[s].sq_index == records[k].cancel_index ->
					records[k].is_cancelled = false
				:: else
				fi
			}
#ifndef LINK_NOT_CUT
			if
			:: k + 1 < n_restored && records[(k + 1) % N].sq_index == records[k].sq_index + 1
			:: k + 1 == n_restored && commit.sq_head == records[k].sq_index + 1 && commit.is_open
			:: else -> records[k].is_linked = false
			fi
#endif
		}
		for (k : 0 .. N - 1) {
			tasks[k].phase = FREE;
			tasks[k].entry = 0;
			tasks[k].chain_next = 0;
			tasks[k].is_cancelled = false;
			if
			:: !records[k].is_taken ->
				records[k].entry = 0;
				records[k].sq_index = 0;
				records[k].cancel_index = 0;
				records[k].is_linked = false;
				records[k].is_begun = false
			:: else
			fi
		}
		head = commit.sq_head;
		posted = commit.cq_tail;
		sq_head = head;
		cq_tail = posted;
		restored_open = commit.is_open;
		restored_broken = commit.is_broken;
		n_readmitted = 0;
		n_in_flight = 0;
		chain_last = NONE;
		barrier = NONE;
		chain_open = false;
		chain_broken = false;
		is_dirty = false;
		must_publish = false;
		is_waiting = false;
		must_break = false;
		res = 0;
		t = NONE;
		s = 0;
		k = 0;
		n = 0;
		e = 0;
		is_done = false;
		is_link = false;
		was_restoring = false;
		if
		:: n_restored == 0 -> restore_end()
		:: else
		fi
	}
}

#define IS_ENDED(i)  (i < N && (tasks[(i) % N].phase == RUNNING || tasks[(i) % N].phase == WOKEN))
#define IS_PLACED(i) (i < N && tasks[(i) % N].phase == PLACED)

/* dispatch_release() of slot t, and exec_task_begin() by its thread */
inline hand_over()
{
#ifndef BEGUN_AFTER_HAND_OVER
	if
	:: kind[tasks[t].entry] == STATE ->
		MAY_DIE;
		records[t].is_begun = true
	:: else
	fi;
#endif
	atomic {
		begin(tasks[t].entry);
		tasks[t].phase = RUNNING
	}
#ifdef BEGUN_AFTER_HAND_OVER
	if
	:: kind[tasks[t].entry] == STATE ->
		MAY_DIE;
		records[t].is_begun = true
	:: else
	fi
#endif
}

/* work_on_tasks() publishes completions before the next entry is admitted. */
#ifdef SLOT_BEFORE_COMMIT
#define MAY_ADMIT true
#else
#define MAY_ADMIT !is_dirty
#endif

active proctype broker()
{
	task tasks[N];
	byte head;                /* session_ring.sq_head */
	byte posted;              /* session_ring.cq_tail */
	byte n_in_flight;         /* session_ring.n_in_flight */
	byte n_restored, n_readmitted;
	byte chain_last = NONE, barrier = NONE; /* slots */
	bool chain_open, chain_broken, restored_open, restored_broken;
	bool is_dirty, must_publish, is_waiting, must_break, is_done, is_link, was_restoring;
	byte res, s, t = NONE, k, n, e;

end:
	do
	/* a batch of entries */
	:: atomic {
		barrier == NONE && !must_publish && MAY_ADMIT && (IS_RESTORING ||
			(sq_tail > head && posted - cq_head + n_in_flight < N)) ->
		poll_ring();
		must_publish = true
	}
	/* dispatch_reap(), dispatch_wake() */
	:: atomic {
		!must_publish && (IS_ENDED(0) || IS_ENDED(1) || IS_ENDED(2) || IS_ENDED(3)) ->
		if
		:: IS_ENDED(0) -> t = 0
		:: IS_ENDED(1) -> t = 1
		:: IS_ENDED(2) -> t = 2
		:: IS_ENDED(3) -> t = 3
		fi;
		res = OK;
		if
		:: tasks[t].phase == WOKEN -> res = ECANCELED
		:: tasks[t].phase == RUNNING && kind[tasks[t].entry] == FAILING -> res = EIO
		:: else
		fi;
		is_done = true;
		task_go_on();
		res = 0
	}
	:: atomic {
		!must_publish && (IS_PLACED(0) || IS_PLACED(1) || IS_PLACED(2) || IS_PLACED(3)) ->
		if
		:: IS_PLACED(0) -> t = 0
		:: IS_PLACED(1) -> t = 1
		:: IS_PLACED(2) -> t = 2
		:: IS_PLACED(3) -> t = 3
		fi;
		hand_over();
		t = NONE
	}
	/* the end of a batch; dispatch_publish_dirty() */
	:: is_dirty || must_publish ->
		ring_publish();
		is_dirty = false;
		must_publish = false
	/* The broker dies while it does nothing. */
	:: n_deaths < DEATHS ->
		n_deaths++;
		goto dead
	od;
dead:
	restore();
	goto end
}
