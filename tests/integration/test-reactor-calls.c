/* SPDX-License-Identifier: MIT */
/*
 * System calls that the reactor makes while clients connect, work and leave
 *
 * A load of many kinds runs in a process of its own. The test traces the broker's first thread,
 * which is the reactor, and records its system calls. Each must be in the list below. A call that
 * may sleep, or that holds the lock of the address space for long, belongs in another thread. A
 * call outside of the list is therefore a mistake, or needs a reason in the list.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ringbroker/lease.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "integration/raw.h"
#include "support/test.h"
#include "util/sandbox-calls.h"

enum { N_ROUNDS = 12, MAX_CALLS = 1024, N_ROWS = 64, SKIPPED = 77 };

static const struct {
	long number;
	const char *letters; /* of threads */
} allowed[] = {
#define CALL(name, letters, why)                                {SYS_##name, letters},
#define CALL_IF(name, letters, argument, condition, value, why) {SYS_##name, letters},
	SANDBOX_CALLS(CALL, CALL, CALL_IF)
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	/*
	 * The sanitizer's allocator; every few seconds, AddressSanitizer's gives memory back in the
	 * thread that frees. At each mmap, ThreadSanitizer prepares shadow memory.
	 */
	{SYS_mmap, "R"},
	{SYS_munmap, "R"},
	{SYS_madvise, "R"},
#endif
};

struct calls {
	bool seen[MAX_CALLS];
	unsigned int n;
};

/* ---- The load ---- */

static void run_tasks(struct rbk_ring *ring, const struct rbk_plan *plan,
		      const struct rbk_arena *arena)
{
	const uint64_t refs[] = {rbk_arena_ref(arena, 0), rbk_arena_ref(arena, 4096),
				 rbk_arena_ref(arena, 8192)};
	const struct rbk_cqe *cqe;

	for (unsigned int i = 0; i < 64; i++) {
		rbk_prep_run(rbk_get_sqe(ring), rbk_plan_id(plan), i % 2 ? 1 : N_ROWS, refs, 3);
		if (rbk_submit_and_wait(ring, 1) < 0 || rbk_peek_cqe(ring, &cqe) || cqe->res)
			_exit(3);
		rbk_cqe_seen(ring, cqe);
		if (i % 16 == 0)
			harness_sleep_ms(1);
	}
	/* A client that publishes in a row leaves its fences to the reactor: membarrier(). */
	for (unsigned int i = 0; i < 64 * 32; i++) {
		rbk_prep_nop(rbk_get_sqe(ring));
		if (rbk_submit(ring) < 0)
			_exit(3);
		for (unsigned int k = 0; i % 32 == 31 && k < 32; k++) {
			if (rbk_wait_cqe(ring, &cqe))
				_exit(3);
			rbk_cqe_seen(ring, cqe);
		}
	}
	harness_sleep_ms(1);
}

/* Open a lease if there is a device with memory to lease. */
static void open_lease(struct rbk *rbk)
{
	const struct rbk_lease_options options = {
		.device = RBK_DEVICE_GPU,
		.min_bytes = 1 << 20,
		.wish_bytes = 1 << 20,
		.max_bytes = 1 << 20,
		.program = "load",
	};
	struct rbk_lease *lease;

	if (!broker_has_gpu(rbk))
		return;
	if (rbk_lease_open(rbk, &options, &lease, NULL))
		_exit(5);
	rbk_lease_close(lease);
}

/* Run a session that uses every kind of object, and ends with them or after freeing them. */
static void run_session(const struct broker *broker, bool gives_back, size_t arena_bytes,
			unsigned int n_entries)
{
	struct rbk *rbk = broker_connect(broker, "load");
	struct rbk_arena *arena, *constants;
	struct rbk_ring *ring;
	struct rbk_plan *plan;

	if (rbk_arena_new(rbk, arena_bytes, &arena, NULL) ||
	    plan_constants(rbk, 65536, &constants) || rbk_ring_new(rbk, n_entries, &ring, NULL) ||
	    plan_elements(rbk, "Add", 2, N_ROWS, 16, &plan, NULL))
		_exit(4);
	run_tasks(ring, plan, arena);
	open_lease(rbk);
	if (gives_back) {
		rbk_plan_free(plan);
		rbk_ring_free(ring);
		rbk_arena_free(arena);
		rbk_arena_free(constants);
	}
	rbk_disconnect(rbk);
}

static void run_load(const struct broker *broker)
{
	const struct rbk_wire_request nonsense = {.type = 4711};
	int fd;

	for (unsigned int i = 0; i < N_ROUNDS; i++) {
		run_session(broker, i % 2, i % 4 == 0 ? 64 << 20 : 65536,
			    i % 3 == 0 ? RBK_MAX_RING_ENTRIES : 64);
		/* Connect and leave; send an unknown request; send an unexpected descriptor. */
		close(raw_connect(broker));
		fd = raw_connect(broker);
		raw_send(fd, &nonsense, sizeof(nonsense), NULL, 0);
		close(fd);
		fd = raw_connect(broker);
		raw_send(fd, &nonsense, sizeof(nonsense), &fd, 1);
		close(fd);
	}
	_exit(0);
}

/* ---- Tracing ---- */

static void note(pid_t pid, struct calls *calls)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0 ||
	    info.op != PTRACE_SYSCALL_INFO_ENTRY)
		return;
	calls->n++;
	if (info.entry.nr < MAX_CALLS)
		calls->seen[info.entry.nr] = true;
}

/* Trace until @load has ended. Return: its wait status. */
static int trace(pid_t pid, pid_t load, struct calls *calls)
{
	int status, signal_number, load_status;
	pid_t who;

	for (;;) {
		who = waitpid(-1, &status, __WALL);
		assert_true(who > 0);
		if (who == load) {
			load_status = status;
			break;
		}
		if (who != pid)
			continue;
		assert_true(WIFSTOPPED(status));
		signal_number = WSTOPSIG(status);
		if (signal_number == (SIGTRAP | 0x80)) {
			note(pid, calls);
			signal_number = 0;
		} else if (status >> 16) {
			signal_number = 0; /* our own stops */
		}
		ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal_number);
	}
	/* Any stop will do: if another stop is pending, the kernel drops the requested one. */
	ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
	assert_int_equal(waitpid(pid, &status, __WALL), pid);
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
	return load_status;
}

static bool is_allowed(long number)
{
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		if (allowed[i].number == number && strchr(allowed[i].letters, 'R'))
			return true;
	return false;
}

TEST(test_reactor__calls)
{
	struct calls calls = {.n = 0};
	unsigned int n_bad = 0;
	struct broker broker;
	int status;
	pid_t load;

	broker_start(&broker, &(struct broker_options){
				      .args = (const char *const[]){
					      "--gpu=software", "--device-memory=64MiB", NULL}});
	/* When it answers, the start is over, and the reactor has its filter. */
	rbk_disconnect(broker_connect(&broker, "look"));
	if (ptrace(PTRACE_SEIZE, broker.pid, NULL, (void *)(intptr_t)PTRACE_O_TRACESYSGOOD) < 0) {
		print_message("cannot trace: %s\n", strerror(errno));
		broker_stop(&broker);
		exit(SKIPPED);
	}
	load = fork();
	assert_true(load >= 0);
	if (load == 0)
		run_load(&broker);
	assert_int_equal(ptrace(PTRACE_INTERRUPT, broker.pid, NULL, NULL), 0);
	status = trace(broker.pid, load, &calls);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);

	for (long i = 0; i < MAX_CALLS; i++) {
		if (!calls.seen[i] || is_allowed(i))
			continue;
		print_message("the reactor made system call %ld, which is not in the list\n", i);
		n_bad++;
	}
	/* Fewer calls mean that tracing did not work. */
	assert_true(calls.n > 1000);
	assert_true(calls.seen[SYS_io_uring_enter] && calls.seen[SYS_accept4]);
	assert_int_equal(n_bad, 0);
	broker_stop(&broker);
}
