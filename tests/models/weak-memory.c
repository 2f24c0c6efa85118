/* SPDX-License-Identifier: MIT */
/*
 * The checker: see weak-memory.h. This file and weak-calls.c are compiled without
 * -fsanitize=thread.
 *
 * An execution is a path of nodes, one for each operation. A node notes which thread went on, which
 * other threads are to be tried there, and which of several values a load returned. The next
 * execution repeats the path up to the last node that has something left to try.
 */
#include "models/weak-memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "models/weak-private.h"

enum {
	MAX_LOCATIONS = 64,
	MAX_STORES = 64, /* to one location in one execution */
	MAX_PATH = 512,
	MAX_GRANULES = 4096, /* 8 bytes each; a power of two */
	STACK_BYTES = 256 * 1024,
};

/* The latest stretch of each thread that is known; a thread begins one when it synchronizes. */
struct clock {
	uint32_t at[WEAK_MAX_THREADS];
};

/* Knowledge of a thread: the oldest store that it may still read of each location; a clock. */
struct view {
	uint8_t store[MAX_LOCATIONS];
	struct clock clock;
};

struct message {
	uint64_t value;
	struct clock path; /* indices of the path, by thread, before and including its store */
	struct view view;  /* passed to a thread that acquires it */
};

/* A location of atomic operations, or a bell, or the order of sequentially consistent fences. */
struct location {
	const void *address;
	unsigned int n_messages; /* the first one is the value before the execution */
	struct message messages[MAX_STORES];
	/* The same of the last store or read-modify-write, and of all loads */
	struct clock stored, loaded;
};

/* Plain accesses to a byte; times are in the clock of the thread. */
struct byte {
	uint8_t writer;                     /* 1 + thread; 0: none */
	uint32_t written_at;                /* its last store */
	uint32_t read_at[WEAK_MAX_THREADS]; /* last load; 0: none */
};

struct granule {
	uintptr_t key;      /* address / 8 */
	uint32_t execution; /* of these accesses; another one's are void */
	struct byte bytes[8];
};

enum kind {
	LOAD,
	STORE,
	MODIFY,
	FENCE,     /* sequentially consistent */
	FENCE_ALL, /* one in each thread: membarrier() */
	RING,
	HEAR,
	AWAIT, /* HEAR that waits for bytes */
	NEWS,
};

struct operation {
	enum kind kind;
	unsigned int location;
};

struct thread {
	ucontext_t context; /* to begin it */
	jmp_buf resume;
	void *stack;
	bool has_begun, has_ended;
	struct operation next; /* the operation before which it has stopped */
	struct view view;
	struct view acquirable; /* known after an acquire fence */
	struct view released;   /* published by relaxed stores */
	struct clock path;      /* indices of the path that happened before, by thread */
};

struct node {
	struct operation operation;
	uint8_t thread;
	uint8_t enabled, to_try, tried, asleep; /* masks of threads */
	uint8_t choice, n_choices;
	/*
	 * The oldest store that a thread's next load may return here: where it is known that the
	 * load was tried before a store, it need not return an older one after the store.
	 */
	uint8_t oldest[WEAK_MAX_THREADS];
	struct operation next[WEAK_MAX_THREADS];
};

static struct {
	const struct weak_scenario *scenario;
	unsigned int without;
	struct weak_result *result;
	uint32_t execution;
	struct thread threads[WEAK_MAX_THREADS];
	unsigned int current;
	bool is_running; /* a thread of the scenario runs, not the checker */
	bool has_failed;
	jmp_buf checker;
	struct location locations[MAX_LOCATIONS];
	unsigned int n_locations;
	struct view fences;      /* known to the threads of all sequentially consistent fences */
	struct clock fenced_all; /* indices of the path, by thread, before the last FENCE_ALL */
	struct granule granules[MAX_GRANULES];
	struct node path[MAX_PATH];
	unsigned int n_path, depth;
} weak;

enum { FENCES = 0 }; /* index of their location */

/* --- Failures --- */

static const char *const kind_names[] = {
	[LOAD] = "load",   [STORE] = "store",         [MODIFY] = "modify",
	[FENCE] = "fence", [FENCE_ALL] = "fence all", [RING] = "ring",
	[HEAR] = "hear",   [AWAIT] = "wait",          [NEWS] = "poll",
};

static const char *name_of(const struct location *location)
{
	for (const struct weak_name *name = weak.scenario->names; name && name->address; name++)
		if (name->address == location->address)
			return name->name;
	return location->address ? "?" : "";
}

static void trace(void)
{
	char *const text = weak.result->trace;
	const size_t bytes = sizeof(weak.result->trace);
	size_t n = 0;

	for (unsigned int i = 0; i < weak.depth; i++) {
		const struct node *node = &weak.path[i];
		char choice[32] = "";
		int n_line;

		if (node->n_choices > 1)
			snprintf(choice, sizeof(choice), ", %u stores ago", node->choice);
		n_line = snprintf(text + n, bytes - n, "thread %u: %s %s%s\n", node->thread,
				  kind_names[node->operation.kind],
				  name_of(&weak.locations[node->operation.location]), choice);
		if (n_line < 0 || (size_t)n_line >= bytes - n)
			return;
		n += (size_t)n_line;
	}
}

static __attribute__((__format__(__printf__, 1, 2))) void note_failure(const char *format, ...)
{
	va_list list;

	weak.has_failed = true;
	va_start(list, format);
	vsnprintf(weak.result->failure, sizeof(weak.result->failure), format, list);
	va_end(list);
	trace();
}

static _Noreturn void back_to_checker(void)
{
	weak.is_running = false;
	_longjmp(weak.checker, 1);
}

_Noreturn void weak_fail(const char *file, int line, const char *text)
{
	note_failure("%s:%d: %s", file, line, text);
	back_to_checker();
}

static _Noreturn void give_up(const char *what)
{
	fprintf(stderr, "weak: %s: %s\n", weak.scenario->name, what);
	abort();
}

/* --- Knowledge --- */

static void clock_join(struct clock *to, const struct clock *from)
{
	for (unsigned int i = 0; i < WEAK_MAX_THREADS; i++)
		if (to->at[i] < from->at[i])
			to->at[i] = from->at[i];
}

static void stores_join(struct view *to, const struct view *from)
{
	for (unsigned int i = 0; i < weak.n_locations; i++)
		if (to->store[i] < from->store[i])
			to->store[i] = from->store[i];
}

static void view_join(struct view *to, const struct view *from)
{
	stores_join(to, from);
	clock_join(&to->clock, &from->clock);
}

static struct thread *current(void)
{
	return &weak.threads[weak.current];
}

/* Begin another stretch of the current thread, whose accesses are not yet known to others. */
static void clock_advance(void)
{
	current()->view.clock.at[weak.current]++;
}

static unsigned int find_location(const void *address, uint64_t value)
{
	struct location *location;

	for (unsigned int i = 1; i < weak.n_locations; i++)
		if (weak.locations[i].address == address)
			return i;
	if (weak.n_locations == MAX_LOCATIONS)
		give_up("too many locations");
	location = &weak.locations[weak.n_locations];
	memset(location, 0, offsetof(struct location, messages) + sizeof(location->messages[0]));
	memset(&location->stored, 0, sizeof(location->stored));
	memset(&location->loaded, 0, sizeof(location->loaded));
	location->address = address;
	location->n_messages = 1;
	location->messages[0].value = value;
	return weak.n_locations++;
}

/* --- Threads --- */

/* Stop before an operation until the checker chooses this thread. */
static void stop_before(enum kind kind, unsigned int location)
{
	struct thread *thread = current();

	thread->next = (struct operation){kind, location};
	if (_setjmp(thread->resume) == 0)
		back_to_checker();
}

static void thread_main(void)
{
	weak.scenario->threads[weak.current]();
	current()->has_ended = true;
	back_to_checker();
}

/* Let a thread execute its next operation, and go on until the one after it. */
static void let_run(unsigned int i)
{
	struct thread *thread = &weak.threads[i];

	weak.current = i;
	if (_setjmp(weak.checker) != 0)
		return;
	weak.is_running = true;
	if (thread->has_begun)
		_longjmp(thread->resume, 1);
	thread->has_begun = true;
	setcontext(&thread->context);
}

/* Return which of @n values a load returns in this execution. */
static unsigned int choose(unsigned int n)
{
	struct node *node = &weak.path[weak.depth - 1];

	node->n_choices = (uint8_t)n;
	return node->choice;
}

/* --- Atomic operations --- */

static bool acquires(int order)
{
	return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE &&
	       !(weak.without & WEAK_WITHOUT_ACQUIRE);
}

static bool releases(int order)
{
	return order != __ATOMIC_RELAXED && order != __ATOMIC_ACQUIRE &&
	       order != __ATOMIC_CONSUME && !(weak.without & WEAK_WITHOUT_RELEASE);
}

static void learn(const struct message *message, int order)
{
	struct thread *thread = current();

	view_join(&thread->acquirable, &message->view);
	if (acquires(order))
		view_join(&thread->view, &message->view);
}

static void append(struct location *location, unsigned int index, uint64_t value, int order,
		   const struct message *continued)
{
	struct thread *thread = current();
	struct message *message;

	if (location->n_messages == MAX_STORES)
		give_up("too many stores to one location");
	message = &location->messages[location->n_messages];
	thread->view.store[index] = (uint8_t)location->n_messages++;
	message->value = value;
	message->path = thread->path;
	message->view = releases(order) ? thread->view : thread->released;
	message->view.store[index] = thread->view.store[index];
	/* A read-modify-write continues the release sequence of what it read. */
	if (continued)
		view_join(&message->view, &continued->view);
	clock_advance();
}

static void fence_between_all(void)
{
	struct thread *thread = current();

	view_join(&thread->view, &thread->acquirable);
	/* The order of fences does not order plain accesses. */
	stores_join(&weak.fences, &thread->view);
	stores_join(&thread->view, &weak.fences);
	thread->released = thread->view;
	clock_advance();
}

void weak_fence_all(void)
{
	const unsigned int caller = weak.current;

	if (!weak.is_running || (weak.without & WEAK_WITHOUT_BARRIERS))
		return;
	stop_before(FENCE_ALL, FENCES);
	fence_between_all();
	for (unsigned int i = 0; i < weak.scenario->n_threads; i++) {
		weak.current = i;
		if (i != caller)
			fence_between_all();
	}
	weak.current = caller;
	fence_between_all();
}

void weak_fence(int order)
{
	struct thread *thread = current();

	if (!weak.is_running || (weak.without & WEAK_WITHOUT_FENCES))
		return;
	if (order == __ATOMIC_SEQ_CST) {
		stop_before(FENCE, FENCES);
		fence_between_all();
		return;
	}
	if (acquires(order))
		view_join(&thread->view, &thread->acquirable);
	if (releases(order)) {
		thread->released = thread->view;
		clock_advance();
	}
}

static uint64_t read_real(const void *address, unsigned int bytes)
{
	uint64_t value = 0;

	memcpy(&value, address, bytes);
	return value;
}

static bool is_private(const void *address)
{
	const char *stack = current()->stack;

	return (const char *)address >= stack && (const char *)address < stack + STACK_BYTES;
}

static struct granule *find_granule(uintptr_t key)
{
	unsigned int i = (unsigned int)(key * 0x9e3779b97f4a7c15ull >> 40) % MAX_GRANULES;
	unsigned int n = 0;

	while (weak.granules[i].execution == weak.execution && weak.granules[i].key != key) {
		i = (i + 1) % MAX_GRANULES;
		if (++n == MAX_GRANULES)
			give_up("too much memory");
	}
	if (weak.granules[i].execution != weak.execution)
		weak.granules[i] = (struct granule){.key = key, .execution = weak.execution};
	return &weak.granules[i];
}

static bool is_written(const void *address)
{
	return find_granule((uintptr_t)address / 8)->bytes[(uintptr_t)address % 8].writer != 0;
}

uint64_t weak_load(const void *address, unsigned int bytes, int order)
{
	struct location *location;
	unsigned int index, oldest, chosen;
	uint64_t value = read_real(address, bytes);

	if (!weak.is_running || is_private(address))
		return value;
	/* Bytes that a thread wrote by plain stores must be known to the reader. */
	if (is_written(address)) {
		weak_plain(address, bytes, false);
		return value;
	}
	if (order == __ATOMIC_SEQ_CST)
		weak_fence(order);
	index = find_location(address, value);
	stop_before(LOAD, index);
	location = &weak.locations[index];
	oldest = current()->view.store[index];
	if (oldest < weak.path[weak.depth - 1].oldest[weak.current])
		oldest = weak.path[weak.depth - 1].oldest[weak.current];
	/* The newest one first: that is how executions end soonest. */
	chosen = location->n_messages - 1 - choose(location->n_messages - oldest);
	current()->view.store[index] = (uint8_t)chosen;
	/* Stores that it does not see may as well come later. */
	clock_join(&current()->path, &location->messages[chosen].path);
	clock_join(&location->loaded, &current()->path);
	learn(&location->messages[chosen], order);
	return location->messages[chosen].value;
}

void weak_store(void *address, unsigned int bytes, uint64_t value, int order)
{
	unsigned int index;

	if (weak.is_running && !is_private(address)) {
		if (order == __ATOMIC_SEQ_CST)
			weak_fence(order);
		index = find_location(address, read_real(address, bytes));
		stop_before(STORE, index);
		append(&weak.locations[index], index, value, order, NULL);
	}
	memcpy(address, &value, bytes);
}

/*
 * Begin a read-modify-write: stop before it, then read the latest store. Return: that store; NULL
 * outside of executions.
 */
static const struct message *modify(void *address, unsigned int bytes, int order,
				    struct location **ret_location, unsigned int *ret_index)
{
	struct location *location;

	if (!weak.is_running || is_private(address))
		return NULL;
	if (order == __ATOMIC_SEQ_CST)
		weak_fence(order);
	*ret_index = find_location(address, read_real(address, bytes));
	stop_before(MODIFY, *ret_index);
	location = *ret_location = &weak.locations[*ret_index];
	current()->view.store[*ret_index] = (uint8_t)(location->n_messages - 1);
	return &location->messages[location->n_messages - 1];
}

/* End it with a store; @latest is the store that it read. */
static void modify_end(struct location *location, unsigned int index, const struct message *latest,
		       uint64_t value, int order)
{
	if (!latest)
		return;
	learn(latest, order);
	append(location, index, value, order, latest);
}

uint64_t weak_exchange_n(void *address, unsigned int bytes, uint64_t value, int order)
{
	struct location *location = NULL;
	unsigned int index = 0;
	const struct message *latest = modify(address, bytes, order, &location, &index);
	const uint64_t before = latest ? latest->value : read_real(address, bytes);

	modify_end(location, index, latest, value, order);
	memcpy(address, &value, bytes);
	return before;
}

uint64_t weak_fetch(void *address, unsigned int bytes, enum weak_fetch how, uint64_t operand,
		    int order)
{
	struct location *location = NULL;
	unsigned int index = 0;
	const struct message *latest = modify(address, bytes, order, &location, &index);
	const uint64_t before = latest ? latest->value : read_real(address, bytes);
	uint64_t after = how == WEAK_FETCH_ADD  ? before + operand
			 : how == WEAK_FETCH_OR ? before | operand
						: before & operand;

	/* Only the lower bytes are stored. */
	after &= UINT64_MAX >> (64 - 8 * bytes);
	modify_end(location, index, latest, after, order);
	memcpy(address, &after, bytes);
	return before;
}

bool weak_compare_exchange(void *address, unsigned int bytes, void *expected, uint64_t value,
			   int order, int failure_order)
{
	struct location *location = NULL;
	unsigned int index = 0;
	const struct message *latest = modify(address, bytes, order, &location, &index);
	const uint64_t before = latest ? latest->value : read_real(address, bytes);

	if (before != read_real(expected, bytes)) {
		if (latest)
			learn(latest, failure_order);
		memcpy(expected, &before, bytes);
		return false;
	}
	modify_end(location, index, latest, value, order);
	memcpy(address, &value, bytes);
	return true;
}

/* --- Plain accesses --- */

static bool is_known(const struct thread *thread, unsigned int by, uint32_t at)
{
	return by == weak.current || at <= thread->view.clock.at[by];
}

static void plain_byte(struct byte *byte, bool is_write)
{
	const struct thread *thread = current();
	bool races = byte->writer && !is_known(thread, byte->writer - 1u, byte->written_at);

	for (unsigned int i = 0; is_write && i < weak.scenario->n_threads; i++)
		races |= !is_known(thread, i, byte->read_at[i]);
	if (races) {
		note_failure("thread %u %s bytes that another thread accesses, in no order",
			     weak.current, is_write ? "writes" : "reads");
		back_to_checker();
	}
	if (is_write) {
		byte->writer = (uint8_t)(weak.current + 1);
		byte->written_at = thread->view.clock.at[weak.current];
	} else {
		byte->read_at[weak.current] = thread->view.clock.at[weak.current];
	}
}

void weak_plain(const void *address, unsigned int bytes, bool is_write)
{
	const uintptr_t begin = (uintptr_t)address, end = begin + bytes;
	struct granule *granule = NULL;

	if (!weak.is_running || is_private(address))
		return;
	for (uintptr_t at = begin; at < end; at++) {
		if (!granule || at % 8 == 0)
			granule = find_granule(at / 8);
		plain_byte(&granule->bytes[at % 8], is_write);
	}
}

/* --- Bells and polling --- */

static unsigned int find_bell(const struct weak_bell *bell)
{
	return find_location(bell, 0);
}

/* Note that the bell has changed, which passes on what the thread knows if it @tells. */
static void change_bell(struct location *location, unsigned int index, bool tells)
{
	const unsigned int without = weak.without;

	/* The kernel's locks are not on trial. */
	weak.without = 0;
	append(location, index, 0, tells ? __ATOMIC_RELEASE : __ATOMIC_RELAXED,
	       &location->messages[location->n_messages - 1]);
	weak.without = without;
}

void weak_bell_ring(struct weak_bell *bell)
{
	const unsigned int index = find_bell(bell);

	stop_before(RING, index);
	bell->n_bytes++;
	change_bell(&weak.locations[index], index, !bell->is_futex);
}

bool weak_bell_hear(struct weak_bell *bell, bool waits)
{
	const unsigned int index = find_bell(bell);
	struct location *location = &weak.locations[index];
	bool was_rung;

	stop_before(waits ? AWAIT : HEAR, index);
	was_rung = bell->n_bytes > 0;
	bell->n_bytes = 0;
	if (was_rung && !bell->is_futex)
		view_join(&current()->view, &location->messages[location->n_messages - 1].view);
	change_bell(location, index, false);
	return was_rung;
}

uint32_t weak_futex_word(const void *address)
{
	const unsigned int index = find_location(address, read_real(address, sizeof(uint32_t)));
	const struct location *location = &weak.locations[index];

	stop_before(MODIFY, index);
	current()->view.store[index] = (uint8_t)(location->n_messages - 1);
	return (uint32_t)location->messages[location->n_messages - 1].value;
}

static bool has_news(const struct thread *thread)
{
	for (unsigned int i = 1; i < weak.n_locations; i++)
		if (thread->view.store[i] + 1u < weak.locations[i].n_messages)
			return true;
	return false;
}

void weak_wait_for_news(void)
{
	struct thread *thread = current();

	stop_before(NEWS, FENCES);
	for (unsigned int i = 1; i < weak.n_locations; i++)
		thread->view.store[i] = (uint8_t)(weak.locations[i].n_messages - 1);
}

/* --- Exploration --- */

static bool is_enabled(unsigned int i)
{
	const struct thread *thread = &weak.threads[i];

	if (thread->has_ended)
		return false;
	if (thread->next.kind == AWAIT)
		return ((const struct weak_bell *)weak.locations[thread->next.location].address)
			       ->n_bytes > 0;
	return thread->next.kind != NEWS || has_news(thread);
}

/* Return true if the order of two operations of different threads may make a difference. */
static bool are_dependent(struct operation a, struct operation b)
{
	/* Wherever the other thread is, it executes a fence there. */
	if (a.kind == FENCE_ALL || b.kind == FENCE_ALL)
		return true;
	/* A poll sees all that was stored before. */
	if (a.kind == NEWS || b.kind == NEWS)
		return a.kind != LOAD && b.kind != LOAD;
	return a.location == b.location && (a.kind != LOAD || b.kind != LOAD);
}

/* Note where another order of a thread's next operation and an earlier one is to be tried. */
static void plan_reversal(unsigned int i)
{
	const struct thread *thread = &weak.threads[i];
	struct node *node;

	for (unsigned int k = weak.depth; k-- > 0;) {
		node = &weak.path[k];
		if (node->thread == i || !are_dependent(node->operation, thread->next))
			continue;
		/* After a store a load may return what it would have returned before it. */
		if (thread->next.kind == LOAD && node->operation.kind != FENCE_ALL)
			continue;
		/* Indices begin at 1 there. */
		if (k + 1 <= thread->path.at[node->thread])
			continue;
		if (node->enabled & 1u << i)
			node->to_try |= (uint8_t)(1u << i);
		else
			node->to_try |= node->enabled;
		return;
	}
}

/* Note what happened before the operation that is about to be executed. */
static void order_operation(unsigned int i, struct operation operation)
{
	struct location *location = &weak.locations[operation.location];
	struct thread *thread = &weak.threads[i];

	/* Each operation is ordered with those in all threads. */
	clock_join(&thread->path, &weak.fenced_all);
	if (operation.kind == LOAD) {
		/* weak_load() notes the rest, once it has chosen a store. */
		thread->path.at[i] = weak.depth + 1;
		return;
	}
	if (operation.kind == NEWS) {
		for (unsigned int k = 0; k < weak.n_locations; k++)
			clock_join(&thread->path, &weak.locations[k].stored);
	} else if (operation.kind == FENCE_ALL) {
		for (unsigned int k = 0; k < weak.scenario->n_threads; k++)
			clock_join(&thread->path, &weak.threads[k].path);
	} else {
		clock_join(&thread->path, &location->stored);
		clock_join(&thread->path, &location->loaded);
	}
	thread->path.at[i] = weak.depth + 1;
	if (operation.kind == FENCE_ALL)
		weak.fenced_all = thread->path;
	location->stored = thread->path;
}

static uint8_t pick(uint8_t mask)
{
	return (uint8_t)__builtin_ctz(mask);
}

/* Make the node for the next operation. Return: false if all that may run was tried elsewhere. */
static bool node_begin(struct node *node, uint8_t enabled)
{
	const struct node *before = weak.depth > 0 ? node - 1 : NULL;
	uint8_t awake;

	*node = (struct node){.enabled = enabled, .n_choices = 1};
	for (unsigned int i = 0; i < weak.scenario->n_threads; i++) {
		node->next[i] = weak.threads[i].next;
		if (!before || before->thread == i)
			continue;
		node->oldest[i] = before->oldest[i];
		if (!(before->asleep & 1u << i))
			continue;
		if (!are_dependent(before->operation, before->next[i]))
			node->asleep |= (uint8_t)(1u << i);
		else if (before->next[i].kind == LOAD && before->operation.kind != FENCE_ALL)
			node->oldest[i] =
				(uint8_t)(weak.locations[before->next[i].location].n_messages - 1);
	}
	awake = enabled & (uint8_t)~node->asleep;
	if (!awake)
		return false;
	node->thread = pick(awake);
	node->to_try = (uint8_t)(1u << node->thread);
	return true;
}

/* Execute the scenario once, along the path as far as it is given. */
static void execute(void)
{
	const unsigned int n = weak.scenario->n_threads;
	uint8_t enabled, alive;
	struct node *node;

	for (;;) {
		enabled = alive = 0;
		for (unsigned int i = 0; i < n; i++) {
			alive |= (uint8_t)(!weak.threads[i].has_ended << i);
			enabled |= (uint8_t)(is_enabled(i) << i);
		}
		if (!alive)
			return;
		if (!enabled) {
			note_failure("all threads wait");
			return;
		}
		if (weak.depth == MAX_PATH)
			give_up("an execution is too long");
		if (weak.depth == weak.scenario->max_operations && weak.depth > 0)
			return;
		node = &weak.path[weak.depth];
		if (weak.depth == weak.n_path) {
			for (unsigned int i = 0; i < n; i++)
				if (!weak.threads[i].has_ended)
					plan_reversal(i);
			if (!node_begin(node, enabled))
				return;
			weak.n_path++;
		}
		node->operation = weak.threads[node->thread].next;
		order_operation(node->thread, node->operation);
		weak.depth++;
		let_run(node->thread);
		if (weak.has_failed)
			return;
	}
}

/* Set up the threads, and let each get to its first operation. */
static void begin_execution(void)
{
	weak.execution++;
	weak.n_locations = 1;
	memset(&weak.locations[FENCES], 0, offsetof(struct location, messages));
	memset(&weak.locations[FENCES].stored, 0, sizeof(struct clock));
	memset(&weak.locations[FENCES].loaded, 0, sizeof(struct clock));
	memset(&weak.fences, 0, sizeof(weak.fences));
	memset(&weak.fenced_all, 0, sizeof(weak.fenced_all));
	weak.depth = 0;
	weak.scenario->set_up();
	for (unsigned int i = 0; i < weak.scenario->n_threads; i++) {
		struct thread *thread = &weak.threads[i];
		void *stack = thread->stack;

		memset(thread, 0, sizeof(*thread));
		thread->stack = stack;
		/* All threads know the memory that was set up, in no stretch of theirs. */
		for (unsigned int k = 0; k < WEAK_MAX_THREADS; k++)
			thread->view.clock.at[k] = k == i;
		getcontext(&thread->context);
		thread->context.uc_stack.ss_sp = stack;
		thread->context.uc_stack.ss_size = STACK_BYTES;
		makecontext(&thread->context, thread_main, 0);
		let_run(i);
		if (weak.has_failed)
			return;
	}
}

/* Choose what the next execution tries instead. Return: false if nothing is left. */
static bool backtrack(void)
{
	while (weak.n_path > 0) {
		struct node *node = &weak.path[weak.n_path - 1];
		uint8_t left;

		if (node->choice + 1 < node->n_choices) {
			node->choice++;
			return true;
		}
		node->tried |= (uint8_t)(1u << node->thread);
		node->asleep |= (uint8_t)(1u << node->thread);
		left = node->to_try & node->enabled & (uint8_t) ~(node->tried | node->asleep);
		if (left) {
			node->thread = pick(left);
			node->choice = 0;
			node->n_choices = 1;
			return true;
		}
		weak.n_path--;
	}
	return false;
}

void weak_explore(const struct weak_scenario *scenario, unsigned int without,
		  uint64_t max_executions, struct weak_result *ret)
{
	*ret = (struct weak_result){.n_executions = 0};
	weak.scenario = scenario;
	weak.without = without;
	weak.result = ret;
	weak.has_failed = false;
	weak.n_path = 0;
	for (unsigned int i = 0; i < scenario->n_threads; i++)
		if (!weak.threads[i].stack && !(weak.threads[i].stack = malloc(STACK_BYTES)))
			give_up("out of memory");
	do {
		if (ret->n_executions == max_executions)
			return;
		begin_execution();
		if (!weak.has_failed)
			execute();
		ret->n_executions++;
		/* The checks of the end run outside of all threads. */
		if (!weak.has_failed && weak.depth == weak.n_path && scenario->tear_down) {
			bool all_ended = true;

			for (unsigned int i = 0; i < scenario->n_threads; i++)
				all_ended &= weak.threads[i].has_ended;
			if (all_ended && _setjmp(weak.checker) == 0)
				scenario->tear_down();
		}
	} while (!weak.has_failed && backtrack());
	ret->is_complete = true;
}
