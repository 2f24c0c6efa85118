/* SPDX-License-Identifier: MIT */
/* A crash is noted with what the thread computes; the program then ends as it would have ended. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/crash.h"

/* Notes of a child that crashes */
struct notes {
	atomic_uint n;
	const void *_Atomic task;
};

static struct notes *notes;
static int *volatile nowhere; /* memory without access */
static const char task_bytes;

static void note(void *context, const void *task)
{
	struct notes *to = context;

	atomic_fetch_add(&to->n, 1);
	atomic_store(&to->task, task);
}

/* Run @crash in a process with the handlers; it must end by a signal, or a sanitizer's report. */
static void expect_crash(void (*crash)(void), int signal_number, unsigned int n, const void *task)
{
	pid_t pid;
	int status;

	notes = mmap(NULL, sizeof(*notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_ptr_not_equal(notes, MAP_FAILED);
	nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(nowhere, MAP_FAILED);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* cmocka and the sanitizers have handlers, which print. */
		for (int i = 1; i < 32; i++)
			if (i != SIGKILL && i != SIGSTOP)
				signal(i, SIG_DFL);
		crash_thread = (struct crash_thread){.is_own = true};
		if (crash_init())
			_exit(1);
		crash_watch(note, notes);
		crash();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), signal_number);
	assert_int_equal(notes->n, n);
	assert_ptr_equal(notes->task, task);
	munmap(notes, sizeof(*notes));
	munmap(nowhere, 4096);
}

static void write_nowhere(void)
{
	*nowhere = 1;
}

static void write_nowhere_for_a_task(void)
{
	crash_enter(&task_bytes);
	*nowhere = 1;
}

static void write_nowhere_after_a_task(void)
{
	assert_null(crash_enter(&task_bytes));
	assert_ptr_equal(crash_enter(NULL), &task_bytes);
	*nowhere = 1;
}

static void write_nowhere_elsewhere(void)
{
	crash_thread.is_own = false;
	*nowhere = 1;
}

static void trap(void)
{
	crash_enter(&task_bytes);
	__builtin_trap();
}

static void give_up(void)
{
	crash_enter(&task_bytes);
	abort();
}

static void be_killed(void)
{
	crash_enter(&task_bytes);
	kill(getpid(), SIGSEGV);
	for (;;)
		pause();
}

static void be_barked_at(void)
{
	crash_enter(&task_bytes);
	kill(getpid(), SIGABRT);
	for (;;)
		pause();
}

TEST(test_crash__of_a_task)
{
	expect_crash(write_nowhere_for_a_task, SIGSEGV, 1, &task_bytes);
	expect_crash(trap, SIGILL, 1, &task_bytes);
	expect_crash(give_up, SIGABRT, 1, &task_bytes);
}

TEST(test_crash__of_no_task)
{
	expect_crash(write_nowhere, SIGSEGV, 0, NULL);
	expect_crash(write_nowhere_after_a_task, SIGSEGV, 0, NULL);
}

TEST(test_crash__of_a_drivers_thread)
{
	expect_crash(write_nowhere_elsewhere, SIGSEGV, 1, NULL);
}

TEST(test_crash__by_kill)
{
	expect_crash(be_killed, SIGSEGV, 0, NULL);
	expect_crash(be_barked_at, SIGABRT, 1, &task_bytes);
}

/* A worker of the CPU's executor says which task it computes, and the one that it has preempted. */
static struct cpu_rig rig;
static struct cpu_job job;

static void compute_nowhere(void)
{
	const struct cpu_options options = {.n_workers = 2};
	struct plan *plan;

	cpu_rig_init(&rig, &options);
	plan = cpu_rig_binary_plan("Add");
	cpu_rig_prepare(&rig, plan);
	cpu_job_init(&job, plan, 64, 1);
	cpu_rig_run(&rig, &job);
	job.arenas[0].base = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cpu_rig_run(&rig, &job);
}

TEST(test_crash__of_a_worker)
{
	expect_crash(compute_nowhere, SIGSEGV, 1, &job.task);
}
