/* SPDX-License-Identifier: MIT */
/*
 * The simulated machine: see machine.h
 *
 * The simulator's own stack runs the director, which chooses the next thread and switches to it;
 * threads switch back to the director.
 */
#include "simulator/machine.h"
#include "simulator/real.h"
#include "util/crash.h"

#include <errno.h>
#include <execinfo.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum {
	MAX_THREADS = 64,
	STACK_BYTES = 512 << 10,
	MAX_FDS = 4096,
	MAX_MAPPINGS = 4096,
	DIRECTOR_SLOTS = 16,
	MAX_POLLED = 2048,
	MAX_CALLS = 10,
	NAP_NS = 500, /* shortest time of a preemption */
	SPARED_SHIFTS = 14,
};

/* Ranks of new threads begin there; those of threads that were switched are below. */
#define RANKS ((uint64_t)1 << 32)

/* Apart from other mappings: accesses.c takes those for memory that processes share. */
static const uintptr_t stacks_base = 0x300000000000;

enum thread_state { THREAD_NONE, THREAD_READY, THREAD_WAITS, THREAD_ENDED };

struct thread {
	enum thread_state state;
	unsigned int number;
	unsigned int process;
	char name[16];
	void *(*main)(void *data);
	void *data;
	char *stack;
	bool has_begun;
	uint64_t rank; /* of those that can run, the thread of the highest may */
	jmp_buf context;
	int saved_errno;
	int used_fd;               /* 1 + the descriptor that its call uses; 0: none */
	struct crash_thread crash; /* of the broker */

	/* While it waits */
	const struct pollfd *fds;
	unsigned int n_fds;
	const void *address;
	uint64_t deadline_ns;
	bool is_woken;
	uint64_t rest_ns, woken_ns; /* when it began to wait last, and when that ended */
	void *calls[MAX_CALLS];     /* that led to the wait, in a trace */
	int n_calls;
};

struct process {
	bool exists;
	unsigned int generation;
	char name[16];
	struct thread *first;
	void (*main)(void *data);
	void *data;
	uint64_t kill_in;       /* its steps until it is killed; 0: it is not */
	uint64_t n_stores;      /* to memory that processes share */
	uint64_t ran_ns;        /* for which its threads have run */
	uint64_t n_sleeps;      /* of its first thread */
	uint64_t n_bells;       /* that its threads rang */
	uint64_t spared_stores; /* before which no chance kills it, so that some get to work */
};

struct mapping {
	uintptr_t base, end; /* 0: none */
	unsigned int process;
};

struct director_slot {
	uint64_t at_ns; /* 0: none */
	void (*fn)(void *data);
	void *data;
};

static struct machine {
	struct sim_machine_options options;
	uint64_t random;
	uint64_t lowest_rank;
	uint64_t now_ns, n_steps, n_touched, n_polled;
	uint64_t touched_ns; /* the first touch that poll_waiting() has not seen */
	unsigned int n_calm;
	struct thread threads[MAX_THREADS];
	unsigned int n_threads; /* the first of these, in which there has been a thread */
	struct thread *running; /* NULL: the director */
	struct process processes[SIM_PROCESSES];
	unsigned int variables_of; /* process whose values the library's variables have */
	uint8_t fd_owner[MAX_FDS]; /* 1 + process; 0: none */
	struct mapping mappings[MAX_MAPPINGS];
	unsigned int n_mappings;
	struct director_slot slots[DIRECTOR_SLOTS];
	bool is_due;            /* the director has something to do before the thread goes on */
	unsigned int condemned; /* 1 + process that the director kills; 0: none */
	void (*on_death)(unsigned int number);
	bool (*on_end)(void);
	jmp_buf director;
	ucontext_t director_ucontext;
} machine __attribute__((__section__("sim_variables")));

/* --- Random choices --- */

/* xorshift64*, Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016 */
uint64_t sim_random(void)
{
	machine.random ^= machine.random >> 12;
	machine.random ^= machine.random << 25;
	machine.random ^= machine.random >> 27;
	return machine.random * 2685821657736338717u;
}

uint64_t sim_below(uint64_t n)
{
	return (sim_random() >> 11) % n;
}

unsigned int sim_pick(const uint16_t *weights, unsigned int n)
{
	unsigned int i = 0;
	uint64_t sum = 0, choice;

	for (unsigned int k = 0; k < n; k++)
		sum += weights[k];
	for (choice = sim_below(sum); choice >= weights[i]; i++)
		choice -= weights[i];
	return i;
}

bool sim_chance(uint32_t chance)
{
	return chance > 0 && (uint32_t)(sim_random() >> 32) < chance;
}

/* --- Traces --- */

bool sim_is_verbose(void)
{
	return machine.options.is_verbose;
}

/* Printing allocates, which must not change what the thread does next. */
static void say(const char *format, va_list args)
{
	struct thread *thread = machine.running;
	char text[1000];
	int n;

	machine.running = NULL;
	n = snprintf(text, sizeof(text), "%12.6f %-14s ", (double)machine.now_ns / 1e9,
		     thread ? thread->name : "director");
	vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
	dprintf(STDERR_FILENO, "%s\n", text);
	machine.running = thread;
}

void sim_trace(const char *format, ...)
{
	va_list args;

	if (!machine.options.is_verbose)
		return;
	va_start(args, format);
	say(format, args);
	va_end(args);
}

noreturn void sim_violation(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
	dprintf(STDERR_FILENO, "violation at step %llu of seed %llu\n",
		(unsigned long long)machine.n_steps, (unsigned long long)machine.options.seed);
	for (unsigned int i = 0; i < MAX_THREADS; i++) {
		const struct thread *thread = &machine.threads[i];

		if (thread->state == THREAD_READY || thread->state == THREAD_WAITS)
			dprintf(STDERR_FILENO, "  thread %s of process %u %s\n", thread->name,
				thread->process,
				thread->state == THREAD_READY ? "can run" : "waits");
		else
			continue;
		backtrace_symbols_fd(thread->calls, thread->n_calls, STDERR_FILENO);
	}
	if (getenv("FAULTSIM_ABORT"))
		abort();
	_exit(1);
}

/* --- Processes --- */

unsigned int sim_process(void)
{
	return machine.running ? machine.running->process : SIM_HOST;
}

unsigned int sim_process_generation(unsigned int number)
{
	return machine.processes[number].generation;
}

bool sim_process_exists(unsigned int number)
{
	return machine.processes[number].exists;
}

unsigned int sim_thread(void)
{
	return machine.running ? machine.running->number : MAX_THREADS;
}

unsigned int sim_n_processors(void)
{
	return machine.options.n_processors;
}

unsigned int sim_processor(void)
{
	return machine.options.is_one_place ? 0 : sim_thread() % machine.options.n_processors;
}

uint64_t sim_ran_ns(unsigned int number)
{
	return machine.processes[number].ran_ns;
}

uint64_t sim_n_sleeps(unsigned int number)
{
	return machine.processes[number].n_sleeps;
}

void sim_rings(void)
{
	if (machine.running)
		machine.processes[machine.running->process].n_bells++;
}

uint64_t sim_n_bells(unsigned int number)
{
	return machine.processes[number].n_bells;
}

int sim_own_fd(int fd)
{
	const int saved_errno = errno;

	if (fd >= 0 && machine.running) {
		sim_check(fd < MAX_FDS);
		machine.fd_owner[fd] = (uint8_t)(1 + machine.running->process);
	}
	errno = saved_errno;
	return fd;
}

void sim_disown_fd(int fd)
{
	if (fd < 0 || fd >= MAX_FDS || !machine.running)
		return;
	if (machine.fd_owner[fd] != 1 + machine.running->process)
		sim_violation("process %s closes descriptor %d, which it does not have",
			      machine.processes[machine.running->process].name, fd);
	machine.fd_owner[fd] = 0;
}

void sim_use_fd(int fd)
{
	if (machine.running)
		machine.running->used_fd = 1 + fd;
}

void sim_check_unused(int fd)
{
	for (unsigned int i = 0; machine.running && i < MAX_THREADS; i++) {
		const struct thread *thread = &machine.threads[i];

		if (thread != machine.running && thread->process == machine.running->process &&
		    (thread->state == THREAD_READY || thread->state == THREAD_WAITS) &&
		    thread->used_fd == 1 + fd)
			sim_violation("descriptor %d is closed or replaced while thread %s uses it",
				      fd, thread->name);
	}
}

unsigned int sim_n_fds(void)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < MAX_FDS; i++)
		n += machine.fd_owner[i] != 0;
	return n;
}

unsigned int sim_n_fds_of(unsigned int number)
{
	unsigned int n = 0;

	for (int fd = 0; fd < MAX_FDS; fd++)
		n += machine.fd_owner[fd] == 1 + number;
	return n;
}

unsigned int sim_n_mappings_of(unsigned int number)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < machine.n_mappings; i++)
		n += machine.mappings[i].process == number;
	return n;
}

static void mapping_add(uintptr_t base, uintptr_t end, unsigned int process)
{
	sim_check(machine.n_mappings < MAX_MAPPINGS);
	machine.mappings[machine.n_mappings++] = (struct mapping){base, end, process};
}

void sim_disown_mapping(void *base, size_t bytes)
{
	const uintptr_t from = (uintptr_t)base, to = from + bytes;

	for (unsigned int i = 0; i < machine.n_mappings;) {
		struct mapping old = machine.mappings[i];

		if (old.end <= from || old.base >= to) {
			i++;
			continue;
		}
		machine.mappings[i] = machine.mappings[--machine.n_mappings];
		if (old.base < from)
			mapping_add(old.base, from, old.process);
		if (old.end > to)
			mapping_add(to, old.end, old.process);
	}
}

void sim_own_mapping(void *base, size_t bytes)
{
	if (!machine.running)
		return;
	bytes = (bytes + 4095) & ~(size_t)4095;
	sim_disown_mapping(base, bytes);
	mapping_add((uintptr_t)base, (uintptr_t)base + bytes, machine.running->process);
}

static struct thread *thread_new(unsigned int process, const char *name)
{
	struct thread *thread = machine.threads;

	while (thread < machine.threads + MAX_THREADS && thread->state != THREAD_NONE)
		thread++;
	sim_check(thread < machine.threads + MAX_THREADS);
	if (thread == machine.threads + machine.n_threads)
		machine.n_threads++;
	if (!thread->stack) {
		thread->stack = __real_mmap64(
			(void *)(stacks_base + (uintptr_t)(thread - machine.threads) * STACK_BYTES),
			STACK_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
		sim_check(thread->stack != MAP_FAILED);
		mprotect(thread->stack, 4096, PROT_NONE);
	}
	/* Nothing remains of the thread before, which may have been killed while it waited. */
	*thread = (struct thread){
		.state = THREAD_READY,
		.number = (unsigned int)(thread - machine.threads),
		.process = process,
		.stack = thread->stack,
		.rank = RANKS + sim_below(RANKS),
		.deadline_ns = SIM_NEVER,
	};
	snprintf(thread->name, sizeof(thread->name), "%s", name);
	return thread;
}

static void *process_main(void *data)
{
	struct process *process = data;

	process->main(process->data);
	return NULL;
}

void sim_process_start(unsigned int number, const char *name, void (*main)(void *data), void *data)
{
	struct process *process = &machine.processes[number];

	sim_check(!process->exists);
	*process = (struct process){
		.exists = true,
		.generation = process->generation + 1,
		.main = main,
		.data = data,
		.spared_stores = sim_below(2) ? sim_below(1ull << sim_below(SPARED_SHIFTS)) : 0,
	};
	snprintf(process->name, sizeof(process->name), "%s", name);
	sim_trace("%s starts", name);
	process->first = thread_new(number, name);
	process->first->main = process_main;
	process->first->data = process;
}

/* Switch from a thread to the director, until the director switches back. */
static void leave(void)
{
	struct thread *thread = machine.running;

	thread->saved_errno = errno;
	thread->crash = crash_thread;
	if (_setjmp(thread->context) == 0)
		_longjmp(machine.director, 1);
	crash_thread = thread->crash;
	errno = thread->saved_errno;
}

/* On the director's stack: nothing of the process is left afterwards, and nothing of it runs. */
static void bury(unsigned int number)
{
	struct process *process = &machine.processes[number];

	if (!process->exists)
		return;
	sim_trace("%s ends", process->name);
	process->exists = false;
	process->kill_in = 0;
	for (unsigned int i = 0; i < MAX_THREADS; i++)
		if (machine.threads[i].process == number)
			machine.threads[i].state = THREAD_NONE;
	for (int fd = 0; fd < MAX_FDS; fd++) {
		if (machine.fd_owner[fd] != 1 + number)
			continue;
		machine.fd_owner[fd] = 0;
		sim_close(fd);
	}
	for (unsigned int i = 0; i < machine.n_mappings;) {
		const struct mapping old = machine.mappings[i];

		if (old.process != number) {
			i++;
			continue;
		}
		__real_munmap((void *)old.base, old.end - old.base);
		machine.mappings[i] = machine.mappings[--machine.n_mappings];
	}
	sim_heap_reset(number);
	if (number == SIM_BROKER)
		sim_variables_reset_broker();
	else
		sim_variables_reset_client(number);
	if (machine.variables_of == number) {
		sim_variables_switch(SIM_HOST, SIM_HOST);
		machine.variables_of = SIM_HOST;
	}
	sim_touched();
	if (machine.on_death)
		machine.on_death(number);
}

/* Ask the broker to end in order. Return: false if it does not listen. */
static bool end_here(void)
{
	bool is_asked;

	sim_calm_begin();
	is_asked = machine.on_end && machine.on_end();
	sim_calm_end();
	return is_asked;
}

/* Kill the running thread's process, or let the thread crash; returns if the process only ends. */
static void die_here(unsigned int number)
{
	if (number == SIM_BROKER && sim_chance(machine.options.chances.ends) && end_here())
		return;
	sim_trace("%s is killed", machine.processes[number].name);
	if (number == SIM_BROKER && sim_chance(machine.options.chances.crashes)) {
		sim_trace("the thread crashes");
		sim_calm_begin();
		crash_note();
		sim_calm_end();
	}
	machine.condemned = 1 + number;
	leave();
}

void sim_kill_at(unsigned int number, uint64_t step)
{
	machine.processes[number].kill_in = step;
}

void sim_kill(unsigned int number)
{
	sim_check(!machine.running);
	if (machine.processes[number].exists)
		sim_trace("%s is killed", machine.processes[number].name);
	bury(number);
}

void sim_on_death(void (*fn)(unsigned int number))
{
	machine.on_death = fn;
}

void sim_on_end(bool (*fn)(void))
{
	machine.on_end = fn;
}

/* --- Time and threads --- */

uint64_t sim_now_ns(void)
{
	return machine.now_ns;
}

void sim_pass(uint64_t ns)
{
	machine.now_ns += ns;
	if (machine.running)
		machine.processes[machine.running->process].ran_ns += ns;
}

uint64_t sim_step_ns(void)
{
	return machine.options.chances.step_ns;
}

uint64_t sim_n_steps(void)
{
	return machine.n_steps;
}

/* Let the running thread wait for @until_ns, or for what it has said that it waits for. */
static void rest(uint64_t until_ns)
{
	struct thread *thread = machine.running;

	thread->deadline_ns = until_ns;
	thread->rest_ns = machine.now_ns;
	thread->is_woken = false;
	thread->state = THREAD_WAITS;
	leave();
}

void sim_work(uint64_t ns)
{
	struct thread *thread = machine.running;

	if (!machine.options.is_parallel) {
		sim_pass(ns);
		return;
	}
	machine.processes[thread->process].ran_ns += ns;
	rest(machine.now_ns + ns);
}

/* Kill the broker within a few of its steps, if its time comes no sooner. */
static void kill_soon(uint32_t chance)
{
	struct process *process = &machine.processes[SIM_BROKER];
	uint64_t in;

	if (!process->exists || process->n_stores < process->spared_stores || !sim_chance(chance))
		return;
	in = 1 + sim_below(1ull << sim_below(10));
	if (process->kill_in == 0 || process->kill_in > in)
		process->kill_in = in;
}

/* Return a time of at most about @most_ns; each order of magnitude is as likely. */
static uint64_t some_time(uint64_t most_ns)
{
	unsigned int shift = 0;

	while ((uint64_t)NAP_NS << shift < most_ns)
		shift++;
	return (uint64_t)NAP_NS << sim_below(shift + 1);
}

/* Return such a time, or, in half of the cases, any up to @most_ns: others get far meanwhile. */
static uint64_t some_lag(uint64_t most_ns)
{
	return sim_below(2) ? some_time(most_ns) : 1 + sim_below(most_ns);
}

/* Let the running thread be preempted for a while. */
static void nap(void)
{
	/* Otherwise it could take another thread's wake-up. */
	sim_check(!machine.running->address && machine.running->n_fds == 0);
	kill_soon(machine.options.chances.fatal_naps);
	rest(machine.now_ns + some_time(machine.options.chances.nap_ns));
}

void sim_message(void)
{
	if (sim_process() == SIM_BROKER)
		kill_soon(machine.options.chances.fatal_messages);
}

void sim_stored(void)
{
	if (sim_process() != SIM_BROKER)
		return;
	machine.processes[SIM_BROKER].n_stores++;
	kill_soon(machine.options.chances.fatal_stores);
}

void sim_calm_begin(void)
{
	machine.n_calm++;
}

void sim_calm_end(void)
{
	sim_check(machine.n_calm > 0);
	machine.n_calm--;
}

static void step(uint32_t naps)
{
	const uint64_t most_ns = 2 * machine.options.chances.step_ns;
	struct process *process;
	struct thread *thread = machine.running;

	machine.n_steps++;
	if (most_ns > 0)
		sim_pass(1 + (machine.n_steps * 40503u >> 4) % most_ns);
	if (!thread || machine.n_calm > 0)
		return;
	process = &machine.processes[thread->process];
	if (process->kill_in > 0 && --process->kill_in == 0)
		die_here(thread->process);
	if (sim_chance(machine.options.chances.switches)) {
		thread->rank = machine.lowest_rank--;
		leave();
	} else if (sim_chance(naps)) {
		nap();
	}
}

void sim_step(void)
{
	step(machine.options.chances.naps);
}

void sim_call(void)
{
	step(machine.options.chances.call_naps);
}

uint64_t sim_read_clock(void)
{
	sim_step();
	return machine.now_ns;
}

unsigned int sim_thread_start(const char *name, void *(*main)(void *data), void *data)
{
	struct thread *thread = thread_new(sim_process(), name);

	thread->main = main;
	thread->data = data;
	return thread->number;
}

void sim_thread_join(unsigned int number)
{
	struct thread *thread = &machine.threads[number];

	sim_check(thread->process == sim_process() && thread->state != THREAD_NONE);
	while (thread->state != THREAD_ENDED)
		sim_wait(NULL, 0, thread, SIM_NEVER);
	thread->state = THREAD_NONE;
}

bool sim_wait(const struct pollfd *fds, unsigned int n_fds, const void *address,
	      uint64_t deadline_ns)
{
	struct thread *thread = machine.running;
	uint64_t woken_ns;
	bool is_woken;

	if (!thread || machine.n_calm > 0)
		sim_violation("a wait where the simulator cannot wait");
	thread->fds = fds;
	thread->n_fds = n_fds;
	thread->address = address;
	if (machine.options.is_verbose) {
		machine.running = NULL;
		thread->n_calls = backtrace(thread->calls, MAX_CALLS);
		machine.running = thread;
	}
	/* The descriptors may be ready already. */
	if (n_fds > 0) {
		if (machine.n_polled == machine.n_touched)
			machine.touched_ns = machine.now_ns;
		machine.n_polled = machine.n_touched - 1;
	}
	machine.processes[thread->process].n_sleeps +=
		machine.processes[thread->process].first == thread;
	rest(deadline_ns);
	is_woken = thread->is_woken;
	woken_ns = thread->woken_ns;
	thread->n_fds = 0;
	thread->address = NULL;
	if (is_woken && sim_chance(machine.options.chances.lags))
		rest(machine.now_ns + some_lag(machine.options.chances.lag_ns));
	thread->woken_ns = woken_ns;
	return is_woken;
}

uint64_t sim_woken_ns(void)
{
	return machine.running->woken_ns;
}

static void wake(struct thread *thread, bool is_woken, uint64_t now_ns)
{
	thread->state = THREAD_READY;
	thread->is_woken = is_woken;
	thread->woken_ns = now_ns > thread->rest_ns ? now_ns : thread->rest_ns;
}

unsigned int sim_wake(const void *address, unsigned int n)
{
	unsigned int n_woken = 0;
	/* Any of them may wake first. */
	const unsigned int first = n < MAX_THREADS ? (unsigned int)sim_below(MAX_THREADS) : 0;

	for (unsigned int i = 0; i < MAX_THREADS && n_woken < n; i++) {
		struct thread *thread = &machine.threads[(first + i) % MAX_THREADS];

		if (thread->state == THREAD_WAITS && thread->address == address) {
			wake(thread, true, machine.now_ns);
			n_woken++;
		}
	}
	return n_woken;
}

void sim_touched(void)
{
	if (machine.n_polled == machine.n_touched)
		machine.touched_ns = machine.now_ns;
	machine.n_touched++;
}

uint64_t sim_n_touched(void)
{
	return machine.n_touched;
}

static bool fails(uint32_t of_broker, uint32_t of_client)
{
	if (!machine.running || machine.n_calm > 0)
		return false;
	return sim_chance(machine.running->process == SIM_BROKER ? of_broker : of_client);
}

bool sim_call_fails(void)
{
	const struct sim_chances *chances = &machine.options.chances;

	return fails(chances->call, chances->client_call);
}

bool sim_alloc_fails(void)
{
	const struct sim_chances *chances = &machine.options.chances;

	return fails(chances->alloc, chances->client_alloc);
}

bool sim_seal_fails(void)
{
	return fails(machine.options.chances.unfixed, 0);
}

/* --- The director --- */

void sim_at(unsigned int slot, uint64_t at_ns, void (*fn)(void *data), void *data)
{
	sim_check(slot < DIRECTOR_SLOTS);
	machine.slots[slot] = (struct director_slot){.at_ns = at_ns, .fn = fn, .data = data};
}

void sim_at_none(unsigned int slot)
{
	machine.slots[slot].at_ns = 0;
}

static void run_slots(void)
{
	for (unsigned int i = 0; i < DIRECTOR_SLOTS; i++) {
		struct director_slot *slot = &machine.slots[i];

		if (slot->at_ns == 0 || slot->at_ns > machine.now_ns)
			continue;
		slot->at_ns = 0;
		slot->fn(slot->data);
	}
}

/*
 * Wake the threads whose descriptors are ready. The kernel would have when these became so; the
 * thread that touched them has gone on since.
 */
static void poll_waiting(void)
{
	static struct pollfd fds[MAX_POLLED] __attribute__((__section__("sim_variables")));
	static unsigned int owner[MAX_POLLED] __attribute__((__section__("sim_variables")));
	unsigned int n = 0;

	machine.n_polled = machine.n_touched;
	for (unsigned int i = 0; i < machine.n_threads; i++) {
		const struct thread *thread = &machine.threads[i];

		if (thread->state != THREAD_WAITS)
			continue;
		sim_check(n + thread->n_fds <= MAX_POLLED);
		for (unsigned int k = 0; k < thread->n_fds; k++) {
			fds[n] = thread->fds[k];
			fds[n].revents = 0;
			owner[n++] = i;
		}
	}
	if (n == 0 || __real_poll(fds, n, 0) <= 0)
		return;
	for (unsigned int i = 0; i < n; i++)
		if (fds[i].revents && machine.threads[owner[i]].state == THREAD_WAITS)
			wake(&machine.threads[owner[i]], true, machine.touched_ns);
}

/* Wake the threads whose deadline has come. Return: the next deadline, of the director too. */
static uint64_t wake_due(void)
{
	uint64_t next_ns = SIM_NEVER;

	for (unsigned int i = 0; i < machine.n_threads; i++) {
		struct thread *thread = &machine.threads[i];

		if (thread->state != THREAD_WAITS)
			continue;
		if (thread->deadline_ns <= machine.now_ns)
			wake(thread, false, machine.now_ns);
		else if (thread->deadline_ns < next_ns)
			next_ns = thread->deadline_ns;
	}
	for (unsigned int i = 0; i < DIRECTOR_SLOTS; i++)
		if (machine.slots[i].at_ns > 0 && machine.slots[i].at_ns < next_ns)
			next_ns = machine.slots[i].at_ns;
	return next_ns;
}

/* Return a thread that can run; NULL: none. */
static struct thread *choose(void)
{
	unsigned int n_ready = 0, choice;
	struct thread *highest = NULL;

	for (unsigned int i = 0; i < machine.n_threads; i++) {
		if (machine.threads[i].state != THREAD_READY)
			continue;
		n_ready++;
		if (!highest || machine.threads[i].rank > highest->rank)
			highest = &machine.threads[i];
	}
	if (n_ready == 0 || machine.options.chances.is_ranked)
		return highest;
	choice = n_ready == 1 ? 0 : (unsigned int)sim_below(n_ready);
	for (unsigned int i = 0;; i++)
		if (machine.threads[i].state == THREAD_READY && choice-- == 0)
			return &machine.threads[i];
}

static void thread_entry(void)
{
	struct thread *thread = machine.running;

	thread->main(thread->data);
	thread->state = THREAD_ENDED;
	sim_wake(thread, MAX_THREADS);
	if (machine.processes[thread->process].first == thread)
		machine.condemned = 1 + thread->process;
	_longjmp(machine.director, 1);
}

/* Let @thread run until it leaves. */
static void enter(struct thread *thread)
{
	ucontext_t context;

	if (machine.variables_of != thread->process) {
		sim_variables_switch(machine.variables_of, thread->process);
		machine.variables_of = thread->process;
	}
	machine.running = thread;
	if (_setjmp(machine.director) == 0) {
		if (thread->has_begun)
			_longjmp(thread->context, 1);
		thread->has_begun = true;
		crash_thread = (struct crash_thread){.task = NULL};
		getcontext(&context);
		context.uc_stack.ss_sp = thread->stack;
		context.uc_stack.ss_size = STACK_BYTES;
		context.uc_link = NULL;
		makecontext(&context, thread_entry, 0);
		swapcontext(&machine.director_ucontext, &context);
	}
	machine.running = NULL;
}

bool sim_run(bool (*is_over)(void))
{
	struct thread *thread;
	uint64_t next_ns;

	while (!is_over()) {
		run_slots();
		if (machine.n_polled != machine.n_touched)
			poll_waiting();
		next_ns = wake_due();
		thread = choose();
		if (!thread) {
			if (next_ns == SIM_NEVER)
				return false;
			if (next_ns > machine.now_ns)
				machine.now_ns = next_ns;
			continue;
		}
		enter(thread);
		if (machine.condemned) {
			const unsigned int number = machine.condemned - 1;

			machine.condemned = 0;
			bury(number);
		}
	}
	return true;
}

void sim_set_chances(const struct sim_chances *chances)
{
	machine.options.chances = *chances;
}

void sim_machine_init(const struct sim_machine_options *options)
{
	machine.options = *options;
	/* A generator that is all zeros stays so. */
	machine.random = options->seed * 0x9e3779b97f4a7c15u | 1;
	machine.now_ns = SIM_BEGIN_NS;
	machine.variables_of = SIM_HOST;
	machine.lowest_rank = RANKS;
	for (unsigned int i = 0; i < 8; i++)
		sim_random();
	/* Its first call loads a library. */
	backtrace(machine.threads[0].calls, MAX_CALLS);
	sim_variables_init();
}
