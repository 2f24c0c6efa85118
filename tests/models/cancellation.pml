/* SPDX-License-Identifier: MIT */
/*
 * Cancellation against execution
 *
 * Property: a task and the CANCELs that name it complete once each; the task completes with -ECANCELED
 * if and only if a CANCEL completed with 0 or its chain failed; and no state is updated by half.
 *
 * check safety
 * mutant BEGIN_WITHOUT_SWAP: assertion
 * mutant END_WITHOUT_SWAP: assertion
 * mutant STATE_BROKEN_OFF: assertion
 * mutant RECALLED_IS_CANCELLED: assertion
 * mutant RECALLED_HAS_BEGUN: assertion
 * mutant STATE_STARTS_OVER: assertion
 * mutant UNFINISHED_IS_DONE: assertion
 * mutant UNFINISHED_GOES_ON: assertion
 * mutant NAMED_FOR_EVER: assertion
 * mutant NOT_WITHDRAWN: assertion
 * mutant CHAIN_FORGETS: assertion
 *
 * The reactor is broker/dispatch/: admit-hot.c, task-hot.c, run-hot.c, wait.c, work-hot.c. The executor
 * is broker/cpu/pool-hot.c with plan/executor.h, or one that does not stop tasks. The task may wait for
 * the end of its predecessor in a chain, for device memory, and in a queue; it may be recalled from its
 * executor, or stopped to let another task run. Left out: tasks that are split over devices, and
 * failing devices.
 */

/* results; NONE: not completed */
#define NONE     0
#define OK       1
#define ECANCELED 2
#define ENOENT   3
#define EALREADY 4
#define EIO      5

/* enum task_phase, of the task that is cancelled; OUT: it has no slot */
#define OUT     0
#define HELD    1
#define PLACED  2
#define WAITING 3
#define WOKEN   4

/* enum exec_state */
#define QUEUED    0
#define RUNNING   1
#define CANCELLED 2
#define STOPPING  3
#define ENDED     4

/* exec_task.res */
#define R_DONE       0
#define R_CANCELED   1
#define R_UNFINISHED 2

#define RECALLS 2 /* times that the reactor recalls or stops the task */

/* The scenario */
bool is_linked;    /* the task follows another one in a chain */
bool can_stop;     /* executor_ops.abandon: the executor stops tasks that have begun */
bool has_state;    /* the task updates a state */
bool needs_memory; /* the task waits for device memory */

/* exec_task, shared by reactor and executor */
byte state;
byte exec_res;
bool is_submitted, is_returned; /* in the executor's queues */
bool has_progress;
bool has_begun_once, is_done; /* the executor has begun it; it has computed all of a piece */

byte task_res, cancel_res[2];
bool has_failed; /* the chain before the task */

/* ---- The executor ---- */

active proctype executor()
{
	bool is_stopped, is_kept;

end:
	do
	:: atomic {
		is_submitted ->
		is_submitted = false;
		/* exec_task_begin() */
#ifdef BEGIN_WITHOUT_SWAP
	}
		if
		:: state == QUEUED -> state = RUNNING
		:: else
		fi;
		atomic {
#else
		if
		:: state == QUEUED -> state = RUNNING
		:: else
		fi;
#endif
		if
		:: state == RUNNING || state == STOPPING ->
			/* A state is not updated from the beginning again. */
			assert(!has_state || !has_begun_once || has_progress);
			has_begun_once = true
		:: else ->
			has_progress = false;
			exec_res = R_CANCELED;
			is_returned = true;
			goto end
		fi
	}
		is_stopped = false;
		is_kept = false;
		/* worker_compute(): pieces, between which layer_answer() answers a request to stop */
		do
		:: break
		:: atomic {
			can_stop && state == CANCELLED ->
			is_stopped = true;
			break
		}
		:: atomic {
			can_stop && state == STOPPING ->
			if
			:: is_stopped = true;
			   is_kept = true
			/* plan_count_stopped() has failed */
			:: state = RUNNING
			fi
		}
			if
			:: is_stopped -> break
			:: else
			fi
		od;
		if
		:: is_stopped && is_kept && state == CANCELLED -> is_kept = false
		:: else
		fi;
		if
		:: is_stopped && is_kept ->
			atomic {
				has_progress = true;
				exec_res = R_UNFINISHED;
				is_returned = true
			}
		:: else ->
			/* exec_task_end(), where the executor can stop tasks */
			atomic {
				has_progress = false;
				exec_res = R_DONE;
				if
#ifdef END_WITHOUT_SWAP
				:: is_stopped -> exec_res = R_CANCELED
#else
				:: is_stopped || state == CANCELLED -> exec_res = R_CANCELED
#endif
				:: else -> is_done = true
				fi;
				state = ENDED;
				is_returned = true
			}
		fi
	od
}

/* ---- The reactor ---- */

/* task_post() */
inline complete(res)
{
	assert(task_res == NONE);
	task_res = res;
	phase = OUT;
	is_named = false;
	assert(res != ECANCELED || has_failed || cancel_res[0] == OK || cancel_res[1] == OK);
	assert(res == ECANCELED || (cancel_res[0] != OK && cancel_res[1] != OK));
	assert(res == ECANCELED || (!has_failed && is_done));
	/* A state that the executor has begun to update is updated as a whole. */
	assert(res != ECANCELED || !has_state || !has_begun_once)
}

/* task_start(), task_begin() */
inline start()
{
	if
	:: is_cancelled -> complete(ECANCELED)
	:: !is_cancelled && needs_memory && !has_waited ->
		/* wait_begin() */
		has_waited = true;
		is_asked = true;
		phase = WAITING
	:: else ->
		/* runs_place() */
		phase = PLACED;
		is_queued = true
	fi
}

/* task_wake(): the task enters dispatch.woken. */
inline wake()
{
	phase = WOKEN;
	n_woken++
}

#ifdef STATE_BROKEN_OFF
#define MAY_BREAK_OFF can_stop
#else
#define MAY_BREAK_OFF (can_stop && !has_state)
#endif

/* run_may_stop(), run_stop(), runs_withdraw(). The result is @res. */
inline withdraw(res)
{
	if
	:: has_begun && !MAY_BREAK_OFF -> res = EALREADY
	:: (!has_begun || MAY_BREAK_OFF) && is_queued ->
		/* run_abandon(), place_dequeue(), run_over() */
		has_progress = false;
		is_queued = false;
		is_cancelled = true;
		wake();
		res = OK
	:: else ->
		/* run_cancel_held(), exec_task_stop() */
		if
#ifdef RECALLED_HAS_BEGUN
		:: state == QUEUED ||
#else
		:: state == QUEUED || state == CANCELLED ||
#endif
		   (MAY_BREAK_OFF && (state == RUNNING || state == STOPPING)) ->
			state = CANCELLED;
			is_cancelled = true;
			res = OK
		:: else -> res = EALREADY
		fi
	fi
}

/* dispatch_cancel(), task_cancel() */
inline cancel(res)
{
	if
	:: !is_named -> res = ENOENT
	:: is_named && is_cancelled ->
#ifdef NAMED_FOR_EVER
		res = OK
#else
		res = ENOENT;
		is_named = false /* unreached: a name is removed with the first success, or at the end */
#endif
	:: is_named && !is_cancelled && (phase == HELD || phase == WOKEN) ->
		is_cancelled = true;
		res = OK
	:: is_named && !is_cancelled && phase == PLACED -> withdraw(res)
	:: is_named && !is_cancelled && phase == WAITING ->
		is_cancelled = true;
		/* wait_cancel(): residency_withdraw() */
#ifndef NOT_WITHDRAWN
		is_asked = false;
#endif
		wake();
		res = OK
	fi;
#ifndef NAMED_FOR_EVER
	is_named = is_named && res != OK
#endif
}

/* The task's completion, and that of each CANCEL, follows its admission. */
#define ALL_DONE (task_res != NONE && cancel_res[0] != NONE && cancel_res[1] != NONE)

active proctype reactor()
{
	byte phase;        /* task.phase */
	bool is_named;     /* task.named is in its bucket */
	bool is_cancelled; /* task.is_cancelled */
	bool has_begun;    /* run.has_begun */
	bool is_queued;    /* run.place is PLACE_QUEUED */
	bool is_asked;     /* residency has the task's request */
	bool has_waited;   /* task.has_waited */
	byte n_woken;      /* times that the task is in dispatch.woken */
	byte n_admitted;   /* 1: the predecessor, 2: the task, 3 and 4: CANCELs */
	byte n_pieces;     /* pieces of the task that are done; a state is updated in one */
	bool is_ahead;     /* the predecessor is in flight */
	byte n_recalls;

	atomic {
		if
		:: is_linked = true
		:: true
		fi;
		if
		:: can_stop = true
		:: true
		fi;
		if
		:: has_state = true
		:: true
		fi;
		if
		:: needs_memory = true
		:: true
		fi
	}
	do
	/* admit_entry(): the predecessor, or another entry */
	:: atomic {
		n_admitted == 0 ->
		is_ahead = is_linked;
		n_admitted++
	}
	:: atomic {
		n_admitted == 1 ->
		n_admitted++;
		if
		:: has_failed -> complete(ECANCELED) /* admit_waiting() */
		:: !has_failed && is_ahead ->
			phase = HELD;
			is_named = true
		:: else ->
			is_named = true;
			start()
		fi
	}
	:: atomic {
		n_admitted == 2 ->
		n_admitted++;
		cancel(cancel_res[0]);
		assert(cancel_res[0] != EALREADY || has_begun_once);
		assert(cancel_res[0] != ENOENT || task_res != NONE)
	}
	:: atomic {
		n_admitted == 3 ->
		n_admitted++;
		cancel(cancel_res[1]);
		assert(cancel_res[1] != EALREADY || has_begun_once);
		assert(cancel_res[1] != ENOENT || task_res != NONE || cancel_res[0] == OK);
		assert(cancel_res[0] != OK || cancel_res[1] != OK)
	}
	/* task_complete() of the predecessor */
	:: atomic {
		is_ahead ->
		is_ahead = false;
		if
		:: has_failed = true
		:: true
		fi;
		if
		:: phase == HELD ->
#ifndef CHAIN_FORGETS
			is_cancelled = is_cancelled || has_failed;
#endif
			start()
		:: else
		fi
	}
	/* on_answer(): memory is there */
	:: atomic {
		is_asked ->
		is_asked = false;
		wake()
	}
	/* dispatch_wake() */
	:: atomic {
		n_woken > 0 ->
		n_woken--;
		if
		:: is_cancelled -> complete(ECANCELED)
		:: else -> start()
		fi
	}
	/* dispatch_release(), run_submit() */
	:: atomic {
		is_queued ->
		is_queued = false;
		state = QUEUED;
		is_submitted = true
	}
	/* recall_run() */
	:: atomic {
		phase == PLACED && !is_queued && n_recalls < RECALLS && state == QUEUED &&
#ifdef STATE_STARTS_OVER
			true ->
#else
			!(has_begun && has_state) ->
#endif
		n_recalls++;
		state = CANCELLED
	}
	/* dispatch_preempt(): exec_task_stop() */
	:: atomic {
		phase == PLACED && !is_queued && n_recalls < RECALLS && can_stop && state == RUNNING ->
		n_recalls++;
		state = STOPPING
	}
	/* dispatch_reap(), run_returned() */
	:: atomic {
		is_returned ->
		is_returned = false;
		if
		:: exec_res == R_UNFINISHED ->
			/* run_stopped() */
			has_begun = true;
			if
#ifndef UNFINISHED_GOES_ON
			:: is_cancelled ->
				has_progress = false;
				complete(ECANCELED)
#endif
#ifdef UNFINISHED_IS_DONE
			:: else -> complete(OK)
#else
			:: else -> is_queued = true
#endif
			fi
		:: exec_res == R_DONE ->
			/* run_go_on(): rows or parts are left, or none */
			has_begun = true;
			if
			:: n_pieces < 1 && !has_state ->
				n_pieces++;
				is_queued = true
			:: complete(OK)
			fi
		:: exec_res == R_CANCELED ->
			if
#ifndef RECALLED_IS_CANCELLED
			:: !is_cancelled -> is_queued = true
#endif
			:: else -> complete(ECANCELED)
			fi
		fi
	}
	:: ALL_DONE && !is_ahead && n_woken == 0 -> break
	od
}
