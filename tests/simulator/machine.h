#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The simulated machine: processes, threads and time, on one thread, from one seed
 *
 * brokerd's rooms and libringbroker run unchanged in this process, as they would in processes and
 * threads of their own. Four things are replaced, each at an interface that exists: the loop
 * (loop/loop.h), the clock (util/clock.h), the devices (plan/executor.h), and the calls to the
 * kernel and the C library that wait, tell the time, start threads or allocate memory. Sockets,
 * memfds and mappings are the kernel's own; a call that would wait never reaches it.
 *
 * A thread is a stack. It runs until it makes a step: a call that is replaced, or a reading of the
 * clock. At a step time passes, and the machine may let another thread run, kill a process, or fail
 * the call, as the seed decides. Without a runnable thread, time jumps to the next deadline. So a
 * run is a function of its options alone, and can be repeated under a debugger.
 *
 * A process that is killed stops within a step, at any depth of its calls. Its descriptors are
 * closed, its mappings and its heap are gone, and its variables get their first values again.
 */
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>

enum {
	SIM_BROKER, /* the broker's process */
	SIM_CLIENT, /* of the first client */
	SIM_MAX_CLIENTS = 8,
	SIM_PROCESSES = SIM_CLIENT + SIM_MAX_CLIENTS,
	SIM_HOST = SIM_PROCESSES, /* the simulator itself */
};

#define SIM_NEVER UINT64_MAX

/* Time at the beginning */
#define SIM_BEGIN_NS ((uint64_t)1000000000)

/*
 * Chances, each of 2^32.
 *
 * Threads run in one of two ways. Either any thread that can run does, or the one of the highest
 * rank: a thread's rank is random, until a switch makes it the lowest. The second way finds what
 * takes few switches at the right steps (Burckhardt et al., "A Randomized Scheduler with
 * Probabilistic Guarantees of Finding Bugs", 2010).
 */
struct sim_chances {
	uint64_t step_ns; /* mean time of a step */
	bool is_ranked;
	uint32_t switches;  /* another thread runs, at each step */
	uint32_t naps;      /* the thread is preempted for a time, at each step */
	uint32_t call_naps; /* and at each call to the kernel */
	uint64_t nap_ns;    /* longest such time */
	uint32_t lags;      /* a thread that is woken does not run for a time */
	uint64_t lag_ns;    /* longest such time */
	uint32_t alloc;     /* an allocation of the broker fails */
	uint32_t call;      /* a call of the broker to the kernel fails */
	uint32_t client_alloc, client_call;
	uint32_t unfixed; /* the broker cannot seal an arena */
	/* The broker is killed soon after any thread was preempted, or a message of its own, */
	uint32_t fatal_naps, fatal_messages;
	uint32_t fatal_stores; /* or a store of its own to memory that processes share */
	uint32_t crashes;      /* of the broker's deaths within a step, those that are crashes */
	uint32_t ends;         /* of these deaths, requests to end in order instead */
};

struct sim_machine_options {
	uint64_t seed;
	struct sim_chances chances;
	unsigned int n_processors; /* that programs are told of */
	bool is_one_place;         /* every thread is told to be on the first one */
	bool is_parallel;          /* others run while a thread computes */
	bool is_verbose;           /* trace what happens to stderr */
};

void sim_machine_init(const struct sim_machine_options *options);
/* Change the chances from now on. */
void sim_set_chances(const struct sim_chances *chances);

/* --- Random choices. Each call changes what follows, so the order of calls matters. --- */
uint64_t sim_random(void);
/* Return a number below @n, which is not 0. */
uint64_t sim_below(uint64_t n);
/* Return an index of @n weights, of which one at least is not 0, as often as its weight says. */
unsigned int sim_pick(const uint16_t *weights, unsigned int n);
/* Return true with a chance of @chance / 2^32. */
bool sim_chance(uint32_t chance);

/* --- Processes --- */

/*
 * Start process @number, which must not exist, with one thread. It ends when main() of its first
 * thread returns, or is killed.
 */
void sim_process_start(unsigned int number, const char *name, void (*main)(void *data), void *data);
bool sim_process_exists(unsigned int number);
/* Return the number of the running thread's process, or SIM_HOST. */
unsigned int sim_process(void);
/* Return the number of times that the process was started. */
unsigned int sim_process_generation(unsigned int number);
/* Return the running thread's number, unique among those that exist. */
unsigned int sim_thread(void);
/* Return the number of processors, and the one that the running thread is told. */
unsigned int sim_n_processors(void);
unsigned int sim_processor(void);
/* Return the time for which a process's threads have run, and the sleeps of its first thread. */
uint64_t sim_ran_ns(unsigned int number);
uint64_t sim_n_sleeps(unsigned int number);
/* Note that the running thread rings a bell. Return the bells that a process's threads rang. */
void sim_rings(void);
uint64_t sim_n_bells(unsigned int number);

/* Note descriptors and mappings that the running process got and gave back. */
int sim_own_fd(int fd); /* Return: @fd, which may be negative. */
void sim_disown_fd(int fd);
/* Note that the running thread's call uses a descriptor; -1: none any more. */
void sim_use_fd(int fd);
/* Check that no other thread of the running process uses a descriptor. */
void sim_check_unused(int fd);
void sim_own_mapping(void *base, size_t bytes);
void sim_disown_mapping(void *base, size_t bytes);
/* Return the number of descriptors that the processes have. */
unsigned int sim_n_fds(void);
/* Return the number of descriptors, and of mappings, that a process has. */
unsigned int sim_n_fds_of(unsigned int number);
unsigned int sim_n_mappings_of(unsigned int number);

/* --- Time and threads --- */

uint64_t sim_now_ns(void);
/* Read the clock as a program does: a step that takes some nanoseconds. */
uint64_t sim_read_clock(void);
/* Count events, steps included, since the beginning. */
uint64_t sim_n_steps(void);
/* Return the mean time of a step. */
uint64_t sim_step_ns(void);

/* Make a step: time passes; other threads may run; the process may be killed here. */
void sim_step(void);
/* Make a step that is a call to the kernel. */
void sim_call(void);
/* Let time pass. */
void sim_pass(uint64_t ns);
/* Let the running thread compute for a time. */
void sim_work(uint64_t ns);
/* Do not switch threads, kill or fail calls until sim_calm_end(); they nest. */
void sim_calm_begin(void);
void sim_calm_end(void);

/* Start a thread of the running process. Return: its number. */
unsigned int sim_thread_start(const char *name, void *(*main)(void *data), void *data);
/* Wait for the end of a thread of the running process. */
void sim_thread_join(unsigned int thread);

/*
 * Let the running thread sleep until a descriptor of @fds has an event, sim_wake() is called with
 * @address (NULL: none), or the deadline has come. @fds must stay valid; revents are not set.
 * Return: false if the deadline came first.
 */
bool sim_wait(const struct pollfd *fds, unsigned int n_fds, const void *address,
	      uint64_t deadline_ns);
/* Return the time at which the last wait of the running thread ended. */
uint64_t sim_woken_ns(void);
/* Wake at most @n threads that wait for @address. Return: their number. */
unsigned int sim_wake(const void *address, unsigned int n);
/* Note that descriptors may have become ready. */
void sim_touched(void);
/* Return a number that changes with each sim_touched(). */
uint64_t sim_n_touched(void);

/* Return true if the running process's call, or allocation, shall fail now. */
bool sim_call_fails(void);
bool sim_alloc_fails(void);
/* Return true if the running process cannot seal an arena now. */
bool sim_seal_fails(void);
/* Note that the running process has sent or received a message. */
void sim_message(void);
/* Note that the running process has stored something into memory that processes share. */
void sim_stored(void);

/* --- The director: the simulator's own code between the steps of threads --- */

/* Run @fn on the simulator's stack at @at_ns; at most one for each @slot below 16. */
void sim_at(unsigned int slot, uint64_t at_ns, void (*fn)(void *data), void *data);
void sim_at_none(unsigned int slot);
/*
 * Kill a process at its step number @step from now on, which other processes' steps do not count;
 * 0: do not.
 */
void sim_kill_at(unsigned int number, uint64_t step);
/* Kill a process, if it exists, while its threads wait or are preempted. */
void sim_kill(unsigned int number);
/* A function to call after each death; NULL: none. */
void sim_on_death(void (*fn)(unsigned int number));
/* A function that asks the broker to end in order. Return: false if it does not listen. */
void sim_on_end(bool (*fn)(void));

/*
 * Run threads until @is_over returns true, which is asked between threads.
 * Return: false if nothing can run any more.
 */
bool sim_run(bool (*is_over)(void));

/* --- Violations and traces --- */

/* Say what is wrong, with the seed and the step, and end the simulator with status 1. */
noreturn void sim_violation(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));
#define sim_check(condition)                                                        \
	do {                                                                        \
		if (!(condition))                                                   \
			sim_violation("%s:%d: %s", __FILE__, __LINE__, #condition); \
	} while (0)
void sim_trace(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));
bool sim_is_verbose(void);

/* --- heap.c --- */

/* Empty the heap of a process that is gone. */
void sim_heap_reset(unsigned int number);
/* Return the bytes that a process has allocated and not freed. */
uint64_t sim_heap_bytes(unsigned int number);

/* --- variables.c --- */

/* Remember the first values of the variables of the broker and the library. */
void sim_variables_init(void);
/* Give the broker's variables their first values. */
void sim_variables_reset_broker(void);
/* Exchange the library's variables for those of the process @to; forget those of @from if it is
 * gone. */
void sim_variables_switch(unsigned int from, unsigned int to);
void sim_variables_reset_client(unsigned int number);
