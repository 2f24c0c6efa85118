#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * An exhaustive checker of small concurrent programs under the memory model of C11
 *
 * A scenario is two or three threads that execute a few operations of real code, which is compiled
 * with -fsanitize=thread. The compiler then calls a function at each access to memory;
 * weak-memory.c has these functions instead of ThreadSanitizer's library. The threads are
 * coroutines of one thread: each stops before each atomic operation, and the checker decides which
 * one goes on, and which of the values that the model permits a load returns. It repeats the
 * scenario until it has tried all of these decisions, but for orders of independent operations,
 * which make no difference.
 *
 * It finds: two plain accesses to the same bytes, one of them a store, that no synchronization
 * orders, and atomic loads of bytes that another thread stored plainly, in no order; threads that
 * all wait, so that no one will wake them; and what the scenario checks.
 *
 * The model: all stores to a location are in one order, the order in which they were executed. A
 * load returns the value of any store that is not older than the latest one that its thread knows
 * of. An acquire load of a release store lets its thread know what the storing thread knew. Fences
 * do so for relaxed accesses before and after them, and each sequentially consistent fence lets its
 * thread know what the threads of all earlier ones knew. A read-modify-write reads the latest
 * store. This is the view-based formulation of RC11 (Lahav et al., "Repairing sequential
 * consistency in C/C++11", PLDI 2017; Kang et al., "A promising semantics for relaxed-memory
 * concurrency", POPL 2017, section 3) without some behaviours: a load returns no value that is
 * stored later; no store is placed before one that was executed earlier, which makes no difference
 * where a location has one writer, or is changed by read-modify-writes; a compare-and-swap fails
 * only for the latest value, and never by itself; a sequentially consistent access is a fence and
 * the access. A release sequence goes on through read-modify-writes alone (C23). Accesses to one
 * location have one size.
 *
 * The orders of operations: C. Flanagan, P. Godefroid, "Dynamic partial-order reduction for model
 * checking software", POPL 2005, with sleep sets.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEAK_MAX_THREADS = 3 };

struct weak_name {
	const void *address; /* of an atomic object or a bell */
	const char *name;
};

struct weak_scenario {
	const char *name;
	unsigned int n_threads;
	/*
	 * Executions end after so many atomic operations and waits; 0: not before all threads
	 * return. Loops that retry have executions without end.
	 */
	unsigned int max_operations;
	const struct weak_name *names; /* for traces, up to an address that is NULL; or NULL */
	/* Prepare memory for one execution; no thread runs. */
	void (*set_up)(void);
	void (*threads[WEAK_MAX_THREADS])(void);
	/* Check the end of an execution in which all threads returned; NULL: nothing to check. */
	void (*tear_down)(void);
};

/* Bits: orders that are taken from the program, which should then fail. */
enum weak_without {
	WEAK_WITHOUT_FENCES = 1 << 0,
	WEAK_WITHOUT_RELEASE = 1 << 1,  /* no store, read-modify-write or fence releases */
	WEAK_WITHOUT_ACQUIRE = 1 << 2,  /* no load, read-modify-write or fence acquires */
	WEAK_WITHOUT_BARRIERS = 1 << 3, /* weak_fence_all() does nothing */
};

struct weak_result {
	uint64_t n_executions;
	bool is_complete;  /* all were tried, up to max_operations, or a failure was found */
	char failure[256]; /* one sentence; empty: none */
	char trace[4096];  /* the operations of the failed execution, one on each line */
};

/* Try all executions of @scenario, at most @max_executions. Not reentrant. */
void weak_explore(const struct weak_scenario *scenario, unsigned int without,
		  uint64_t max_executions, struct weak_result *ret);

/* --- For threads of a scenario --- */

/* End the execution as a failure unless @condition holds. */
#define weak_check(condition)                                      \
	do {                                                       \
		if (!(condition))                                  \
			weak_fail(__FILE__, __LINE__, #condition); \
	} while (0)
_Noreturn void weak_fail(const char *file, int line, const char *text);

/*
 * A bell: bytes in a socket or an eventfd. A thread that gets bytes knows what those that sent them
 * knew. A futex's wake-up tells nothing.
 */
struct weak_bell {
	unsigned int n_bytes;
	bool is_futex;
};
void weak_bell_ring(struct weak_bell *bell);
/* Return true if there were bytes, and take them; waits for some if @waits. */
bool weak_bell_hear(struct weak_bell *bell, bool waits);

/* Execute a sequentially consistent fence in this thread, in each other one, and here again. */
void weak_fence_all(void);

/*
 * Return the latest value of a futex's word, as the kernel reads it for a thread that is about to
 * wait: futex_wait() sees what any thread stored before a futex_wake() that found no waiter.
 */
uint32_t weak_futex_word(const void *address);

/*
 * Wait until another thread has stored something that this thread has not seen, and see the latest
 * value of each location, as after a long time: for loops that poll.
 */
void weak_wait_for_news(void);
