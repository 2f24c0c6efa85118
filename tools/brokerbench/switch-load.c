/* SPDX-License-Identifier: MIT */
/*
 * Processes that switch
 *
 * Units are related to processor time, not to elapsed time: other programs on the processors extend
 * the elapsed time, but not the processor time. The cost of a switch is included, since neither of
 * a pair is idle between two switches.
 *
 * After the order to stop, a process finishes its current unit; a process that waits for a token
 * keeps waiting.
 */
#include "switch-load.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_MEMBERS = 256, UNIT_STEPS = 400, TOKEN_UNITS = 40, TICK_UNITS = 100 };

/* seconds after which children end, longer than any measurement */
static const unsigned int limit_s = 600;

enum order { SLEEP, WORK };

struct progress {
	_Alignas(64) _Atomic uint64_t n;
};

struct shared {
	_Atomic uint32_t order;
	struct progress progress[MAX_MEMBERS];
};

struct member {
	pid_t pid;
	clockid_t clock;
};

struct switch_load {
	struct shared *shared;
	unsigned int n;
	struct member members[MAX_MEMBERS];
};

/* Description of a child */
struct job {
	void (*main)(struct shared *shared, struct progress *progress, const struct job *job);
	int cpu;
	int read_fd, write_fd;
	bool has_token;
	unsigned int n_units; /* units of computing for each token */
};

/* ---- Children ---- */

static void compute(unsigned int n_units, struct progress *progress)
{
	static volatile uint64_t result;
	uint64_t value = result;

	for (unsigned int i = 0; i < n_units * UNIT_STEPS; i++)
		value = value * 6364136223846793005u + 1442695040888963407u;
	result = value;
	atomic_fetch_add_explicit(&progress->n, n_units, memory_order_relaxed);
}

static void wait_for_work(struct shared *shared)
{
	while (atomic_load_explicit(&shared->order, memory_order_relaxed) == SLEEP)
		syscall(SYS_futex, &shared->order, FUTEX_WAIT, SLEEP, NULL, NULL, 0);
}

/* Pass a token. Only the first of a pair stops on order; the second then waits for the token. */
static void pass_token(struct shared *shared, struct progress *progress, const struct job *job)
{
	char token = 0;

	if (job->has_token) {
		wait_for_work(shared);
		if (write(job->write_fd, &token, 1) != 1)
			_exit(1);
	}
	for (;;) {
		if (read(job->read_fd, &token, 1) != 1)
			_exit(1);
		if (job->has_token)
			wait_for_work(shared);
		if (job->n_units > 0)
			compute(job->n_units, progress);
		else
			atomic_fetch_add_explicit(&progress->n, 1, memory_order_relaxed);
		if (write(job->write_fd, &token, 1) != 1)
			_exit(1);
	}
}

static void compute_on(struct shared *shared, struct progress *progress, const struct job *job)
{
	for (;;) {
		wait_for_work(shared);
		compute(1, progress);
	}
}

static void compute_at_ticks(struct shared *shared, struct progress *progress,
			     const struct job *job)
{
	const struct timespec tick = {.tv_nsec = 1000000};

	for (;;) {
		wait_for_work(shared);
		compute(TICK_UNITS, progress);
		nanosleep(&tick, NULL);
	}
}

static void child_main(struct shared *shared, struct progress *progress, const struct job *job,
		       pid_t parent)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	cpu_set_t cpus;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	alarm(limit_s);
	CPU_ZERO(&cpus);
	CPU_SET(job->cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	job->main(shared, progress, job);
}

/* ---- The caller ---- */

static int add(struct switch_load *load, const struct job *job)
{
	struct member *member = &load->members[load->n];
	pid_t parent = getpid();

	if (load->n == MAX_MEMBERS)
		return 0;
	member->pid = fork();
	if (member->pid < 0)
		return -errno;
	if (member->pid == 0)
		child_main(load->shared, &load->shared->progress[load->n], job, parent);
	load->n++;
	return -clock_getcpuclockid(member->pid, &member->clock);
}

static int add_pair(struct switch_load *load, int cpu, unsigned int n_units)
{
	int there[2] = {-1, -1}, back[2] = {-1, -1}, r = 0;

	if (pipe2(there, O_CLOEXEC) < 0 || pipe2(back, O_CLOEXEC) < 0)
		r = -errno;
	if (!r)
		r = add(load, &(struct job){.main = pass_token,
					    .cpu = cpu,
					    .read_fd = back[0],
					    .write_fd = there[1],
					    .has_token = true,
					    .n_units = n_units});
	if (!r)
		r = add(load, &(struct job){.main = pass_token,
					    .cpu = cpu,
					    .read_fd = there[0],
					    .write_fd = back[1],
					    .n_units = n_units});
	for (unsigned int i = 0; i < 2; i++) {
		close_fd(there[i]);
		close_fd(back[i]);
	}
	return r;
}

static int add_mixture(struct switch_load *load, int cpu)
{
	int r;

	r = add_pair(load, cpu, TOKEN_UNITS);
	if (!r)
		r = add(load, &(struct job){.main = compute_on, .cpu = cpu});
	if (!r)
		r = add(load, &(struct job){.main = compute_at_ticks, .cpu = cpu});
	return r;
}

int switch_load_new(enum switch_load_kind kind, int cpu, struct switch_load **ret)
{
	_cleanup_(switch_load_freep) struct switch_load *load = calloc(1, sizeof(*load));
	cpu_set_t cpus;
	int r = 0;

	if (!load)
		return -ENOMEM;
	load->shared = mmap(NULL, sizeof(*load->shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (load->shared == MAP_FAILED || sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return -errno;
	if (kind == SWITCH_LOAD_PIPE)
		r = add_pair(load, cpu, 0);
	else if (kind == SWITCH_LOAD_PACED)
		r = add_pair(load, cpu, SWITCH_LOAD_PACED_UNITS);
	for (cpu = 0; cpu < CPU_SETSIZE && kind == SWITCH_LOAD_MIXED && !r; cpu++)
		if (CPU_ISSET(cpu, &cpus))
			r = add_mixture(load, cpu);
	if (r)
		return r;
	*ret = steal_ptr(load);
	return 0;
}

struct switch_load *switch_load_free(struct switch_load *load)
{
	if (!load)
		return NULL;
	for (unsigned int i = 0; i < load->n; i++) {
		kill(load->members[i].pid, SIGKILL);
		while (waitpid(load->members[i].pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (load->shared != MAP_FAILED)
		munmap(load->shared, sizeof(*load->shared));
	free(load);
	return NULL;
}

void switch_load_begin(struct switch_load *load)
{
	atomic_store(&load->shared->order, WORK);
	syscall(SYS_futex, &load->shared->order, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void switch_load_end(struct switch_load *load)
{
	atomic_store(&load->shared->order, SLEEP);
}

void switch_load_read(const struct switch_load *load, uint64_t *ret_units, uint64_t *ret_cpu_ns)
{
	struct timespec time;

	*ret_units = *ret_cpu_ns = 0;
	for (unsigned int i = 0; i < load->n; i++) {
		if (clock_gettime(load->members[i].clock, &time) == 0)
			*ret_cpu_ns += (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
		*ret_units +=
			atomic_load_explicit(&load->shared->progress[i].n, memory_order_relaxed);
	}
}

unsigned int switch_load_n(const struct switch_load *load)
{
	return load->n;
}

pid_t switch_load_pid(const struct switch_load *load, unsigned int i)
{
	return load->members[i].pid;
}
