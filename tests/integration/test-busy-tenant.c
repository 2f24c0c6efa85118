/* SPDX-License-Identifier: MIT */
/*
 * test-busy-tenant [SECONDS]
 *
 * Measures how much a neighbour's rate of tasks suffers from a busy tenant, which makes and removes
 * plans without a pause, or opens sessions until its limit stops it. Both rates, alone and beside
 * the busy tenant, are measured in turn, several times, in one process. The test prints the rates,
 * and asserts only that the neighbour keeps a quarter of its rate: test machines are busy. The busy
 * tenant's processes have nice level 19, so that only the broker's work for them is measured.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/test.h"

enum {
	BUSY_UID = 40111,
	N_ROUNDS = 4,
	SIDE = 512, /* width and height of a matrix of 1 MiB */
	MAX_SESSIONS = 10000,
	SESSIONS_ALLOWED = 200,
};

static struct broker broker;
static unsigned int window_ms = 500;

static struct rbk *try_connect(void)
{
	struct rbk_options options = {
		.size = sizeof(options), .socket_path = broker.socket_path, .name = "busy"};
	struct rbk *rbk = NULL;

	return rbk_connect(&options, &rbk, NULL) ? NULL : rbk;
}

/* Make and remove plans with a constant; each is loaded and evicted. */
static void make_plans(void)
{
	struct rbk *rbk = try_connect();
	struct rbk_arena *constants;
	struct rbk_plan *plan;

	if (!rbk || plan_constants(rbk, SIDE * SIDE * sizeof(float), &constants))
		_exit(1);
	for (;;) {
		if (plan_product(rbk, 4, SIDE, SIDE, constants, &plan, NULL))
			_exit(1);
		rbk_plan_free(plan);
	}
}

/* Open as many sessions as possible, then replace one again and again. */
static void open_sessions(void)
{
	struct rbk *sessions[SESSIONS_ALLOWED + 1] = {NULL};
	unsigned int n = 0;

	for (unsigned int i = 0; i < MAX_SESSIONS; i++) {
		struct rbk *rbk = try_connect();

		if (rbk && n > SESSIONS_ALLOWED)
			_exit(1);
		if (rbk)
			sessions[n++] = rbk;
	}
	for (;;) {
		sessions[0] = rbk_disconnect(sessions[0]);
		while (!(sessions[0] = try_connect()))
			;
		rbk_disconnect(try_connect());
	}
}

static void stop(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
}

static uint64_t results_in_window(const struct neighbour *neighbour)
{
	uint64_t before = neighbour_results(neighbour);

	harness_sleep_ms(window_ms);
	return neighbour_results(neighbour) - before;
}

static void measure(const char *what, void (*be_busy)(void))
{
	struct neighbour *neighbour = neighbour_start(&broker);
	uint64_t alone = 0, beside = 0;
	struct rbk *rbk = broker_connect_admin(&broker, "watcher");

	results_in_window(neighbour);
	for (unsigned int i = 0; i < N_ROUNDS; i++) {
		pid_t pid;

		alone += results_in_window(neighbour);
		pid = harness_start_as(BUSY_UID, be_busy);
		setpriority(PRIO_PROCESS, (id_t)pid, 19);
		harness_sleep_ms(100);
		beside += results_in_window(neighbour);
		stop(pid);
		broker_wait_sessions(rbk, 2);
	}
	print_message("%s: %llu tasks/s alone, %llu beside it: %.1f %%\n", what,
		      (unsigned long long)(alone * 1000 / N_ROUNDS / window_ms),
		      (unsigned long long)(beside * 1000 / N_ROUNDS / window_ms),
		      100.0 * (double)beside / (double)alone);
	assert_true(beside * 4 > alone);
	rbk_disconnect(rbk);
	neighbour_stop(neighbour);
}

TEST(test_plans__added_in_a_loop)
{
	measure("plans made and removed in a loop", make_plans);
}

TEST(test_sessions__opened_in_a_loop)
{
	measure("10,000 sessions", open_sessions);
}

static int begin(void **state)
{
	broker_start(&broker,
		     &(struct broker_options){
			     .args = (const char *const[]){"--socket-mode=0666", "--gpu=software",
							   "--device-memory=64MiB", NULL},
			     .policy = "[tenant busy]\nmatch-uid = 40111\nsessions-max = 200\n"
				       "plans-max = 16\nvram-max = 16MiB\n"});
	assert_int_equal(chmod(broker.dir, 0711), 0);
	return 0;
}

static int end(void **state)
{
	broker_stop(&broker);
	return 0;
}

int main(int argc, char **argv)
{
	if (geteuid() != 0) {
		print_message("only root can be another tenant: skipped\n");
		return 77;
	}
	if (argc > 1)
		window_ms = (unsigned int)atoi(argv[1]) * 1000 / (4 * N_ROUNDS);
	harness_limit_seconds(120 + window_ms / 1000 * 4 * N_ROUNDS);
	return test_run(begin, end);
}
