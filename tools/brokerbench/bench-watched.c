/* SPDX-License-Identifier: MIT */
/*
 * What being watched costs the broker
 *
 * Two brokers on one processor, one with fifty brokertops and one that nobody looks at, measured by
 * turns. The watchers take processor time of their own, during both sides' rounds: what is left
 * between the two is what the broker does more for them, updating its pages four times a second,
 * and what reading takes from its caches. The rows without watchers say how far two equal brokers
 * differ.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "broker-process/broker-process.h"
#include "target.h"
#include "util/checked.h"
#include "util/clock.h"

enum { N_WATCHERS = 50 };
#define START_TIMEOUT_NS 20000000000u

/* In the build tree it lies in a folder of its own, installed beside this program. */
static int find_brokertop(char ret_path[PATH_MAX])
{
	static const char *const places[] = {"brokertop/brokertop", "brokertop"};
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return -ENOENT;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if ((size_t)snprintf(ret_path, PATH_MAX, "%s/%s", self, places[i]) < PATH_MAX &&
		    access(ret_path, X_OK) == 0)
			return 0;
	return -ENOENT;
}

static void watcher_main(const char *path, const char *socket, pid_t parent)
{
	int null = open("/dev/null", O_RDWR);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    dup2(null, STDERR_FILENO) < 0)
		_exit(127);
	/* However this program ends. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	execl(path, path, "--batch", "--socket", socket, (char *)NULL);
	_exit(127);
}

static void stop_watchers(const pid_t *pids, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	for (unsigned int i = 0; i < n; i++)
		waitpid(pids[i], NULL, 0);
}

/* Return: 0, all of them are connected; negative errno, none is left running. */
static int start_watchers(struct bench_env *env, struct target *target, const char *path,
			  pid_t pids[N_WATCHERS])
{
	const uint64_t end_ns = clock_now_ns() + START_TIMEOUT_NS;
	struct rbk_stats stats = {.sessions = 0};
	const pid_t parent = getpid();
	unsigned int n = 0;
	int r = 0;

	/* They run wherever there is time. */
	bench_pin(env, -1);
	for (; n < N_WATCHERS; n++) {
		pids[n] = fork();
		if (pids[n] < 0)
			break;
		if (pids[n] == 0)
			watcher_main(path, target_socket(target, env), parent);
	}
	bench_pin(env, env->client_cpu);
	if (n < N_WATCHERS)
		r = -EAGAIN;
	while (r == 0 && stats.sessions <= N_WATCHERS) {
		bench_settle(20000000);
		r = rbk_stats(target->rbk, &stats);
		if (r == 0 && clock_now_ns() > end_ns)
			r = -ETIMEDOUT;
	}
	if (r)
		stop_watchers(pids, n);
	return r;
}

static int compare(struct bench_env *env, const struct target *ours, const struct target *alone,
		   unsigned int n_watchers)
{
	static const uint32_t batches[] = {1, 64};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(batches) && !r; i++) {
		struct target_task our_task = {.ring = ours->ring, .batch = batches[i]};
		struct target_task alone_task = {.ring = alone->ring, .batch = batches[i]};
		struct bench_row row = {.unit = "M/s", .is_rate = true, .baseline = "unwatched"};
		char params[32];

		snprintf(params, sizeof(params), "watchers=%u batch=%u", n_watchers, batches[i]);
		row.params = params;
		r = bench_compare(env, &row, (struct bench_side){target_throughput, &our_task},
				  (struct bench_side){target_throughput, &alone_task});
		if (r)
			bench_fail(env, r, "measuring failed");
	}
	return r;
}

static int run_watched(struct bench_env *env)
{
	struct target ours, alone = TARGET_INIT;
	pid_t pids[N_WATCHERS];
	char path[PATH_MAX];
	int r;

	if (env->socket)
		return bench_skip(env, NULL, "needs two brokers of its own, not --socket");
	if (find_brokertop(path))
		return bench_skip(env, NULL, "there is no brokertop beside this program");
	r = target_init(&ours, env, TARGET_PINNED);
	if (!r)
		r = target_init(&alone, env, TARGET_PINNED);
	if (r)
		goto out;
	r = compare(env, &ours, &alone, 0);
	if (r)
		goto out;
	r = start_watchers(env, &ours, path, pids);
	if (r) {
		bench_fail(env, r, "the watchers did not start");
		goto out;
	}
	r = compare(env, &ours, &alone, N_WATCHERS);
	stop_watchers(pids, N_WATCHERS);
out:
	target_deinit(&alone);
	target_deinit(&ours);
	return r;
}

const struct bench bench_watched = {
	.name = "watched",
	.summary = "NOPs per second while 50 brokertops look at the broker",
	.baseline = "the same while nobody does, on a second broker",
	.run = run_watched,
};
