/* SPDX-License-Identifier: MIT */
/*
 * Clients and a broker that are paused at random
 *
 * Clients and the reactor spin, nap and sleep by what each tells the other: when the broker rang,
 * when a task is due, which processor each is on. Either may lose its processors at any moment for
 * longer than all of these times. Here a third process stops the clients and the broker, by turns
 * and together, between any two instructions, and lets them go on.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "integration/harness.h"
#include "support/test.h"

enum {
	MOST_PAUSE_NS = 1000000,
	MOST_GAP_NS = 500000,
	N_NEIGHBOURS = 2,
	RUN_MS = 1500,
};

static void sleep_at_most(uint64_t *random, uint64_t ns)
{
	const struct timespec time = {.tv_nsec = (long)(harness_random(random) % ns)};

	nanosleep(&time, NULL);
}

/* Leaves both running when @is_over is set. */
static void pause_until(const _Atomic bool *is_over, pid_t clients, pid_t broker)
{
	uint64_t random = 3;

	while (!atomic_load(is_over)) {
		const uint64_t which = harness_random(&random) % 3;

		if (which != 0)
			kill(clients, SIGSTOP);
		if (which != 1)
			kill(broker, SIGSTOP);
		sleep_at_most(&random, MOST_PAUSE_NS);
		kill(clients, SIGCONT);
		/* One side goes on before the other. */
		if (which == 2)
			sleep_at_most(&random, MOST_PAUSE_NS);
		kill(broker, SIGCONT);
		sleep_at_most(&random, MOST_GAP_NS);
	}
}

static pid_t pauser_start(_Atomic bool *is_over, pid_t broker)
{
	const pid_t clients = getpid(), pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pause_until(is_over, clients, broker);
	_exit(0);
}

/* The pauser ends by itself: one that is killed may just have stopped this process, for ever. */
static void pauser_stop(_Atomic bool *is_over, pid_t pauser)
{
	int status;

	atomic_store(is_over, true);
	assert_int_equal(waitpid(pauser, &status, 0), pauser);
	assert_int_equal(status, 0);
}

static void run_paused(const char *const *args)
{
	struct neighbour *neighbours[N_NEIGHBOURS];
	_Atomic bool *is_over;
	pid_t pauser;

	is_over = mmap(NULL, sizeof(*is_over), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	assert_ptr_not_equal(is_over, MAP_FAILED);

	BROKER(broker, &(struct broker_options){.args = args});
	for (unsigned int i = 0; i < N_NEIGHBOURS; i++)
		neighbours[i] = neighbour_start(&broker);
	pauser = pauser_start(is_over, broker.pid);
	harness_sleep_ms(RUN_MS);
	pauser_stop(is_over, pauser);
	munmap(is_over, sizeof(*is_over));
	for (unsigned int i = 0; i < N_NEIGHBOURS; i++)
		neighbour_stop(neighbours[i]);
}

TEST(test_paused__tasks_on_reactor)
{
	harness_limit_seconds(60);
	run_paused(NULL);
}

/* Every task that does not run inline goes to a worker and back. */
TEST(test_paused__tasks_on_workers)
{
	static const char *const args[] = {"--reactor-task=0", "--workers=2", NULL};

	harness_limit_seconds(60);
	run_paused(args);
}
