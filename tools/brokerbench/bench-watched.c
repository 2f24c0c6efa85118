/* SPDX-License-Identifier: MIT */
/*
 * The cost of being watched for the broker, and of watching for the watcher
 *
 * watched: two brokers on one processor, one with fifty brokertops and one with none, measured by
 * turns. The watchers use processor time of their own during both sides' rounds. The remaining
 * difference is the broker's extra work, updating its pages four times a second, and the effect of
 * reads on its caches. The rows without watchers show how far two equal brokers differ.
 *
 * brokertop: two instances side by side, in unattended terminals, over a broker with a hundred
 * tenants, each with a session. One draws ten times a second, the other once. A second row is the
 * time from an instance's start to its first picture, against a start without a picture.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker/admin.h>

#include "bench.h"
#include "broker-process/broker-process.h"
#include "target.h"
#include "util/checked.h"
#include "util/clock.h"

enum {
	N_WATCHERS = 50,
	N_TENANTS = 100,
	FIRST_UID = 40001,
	MIN_ROUNDS = 3,
	STARTS_PER_ROUND = 10,
	FIRST_LIMIT_MS = 50,
	CPU_LIMIT_PERCENT = 1,
};
static const double least_watched = 0.99;
#define START_TIMEOUT_NS 20000000000u
#define ROUND_NS         1000000000u

/* Find brokertop: in its own folder of the build tree, or installed beside this program. */
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
	/* The child is killed however this program ends. */
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

/*
 * Connect as administrator, because tenants see only their own sessions, and watchers belong to no
 * tenant.
 */
static int connect_admin(const char *socket, struct rbk **ret)
{
	char path[PATH_MAX];
	struct rbk_options options = {
		.size = sizeof(options), .socket_path = path, .name = "brokerbench"};
	int r = rbk_admin_socket_path(socket, path, sizeof(path));

	return r ? r : rbk_admin_connect(&options, ret, NULL);
}

/*
 * Start the watchers and wait until they are connected.
 * Return: 0 with all connected; a negative errno with none running.
 */
static int start_watchers(struct bench_env *env, struct target *target, const char *path,
			  pid_t pids[N_WATCHERS])
{
	const uint64_t end_ns = clock_now_ns() + START_TIMEOUT_NS;
	struct rbk_stats stats = {.sessions = 0};
	const pid_t parent = getpid();
	struct rbk *admin = NULL;
	unsigned int n = 0;
	int r = 0;

	/* Watchers may run on any processor. */
	bench_pin(env, -1);
	for (; n < N_WATCHERS; n++) {
		pids[n] = fork();
		if (pids[n] < 0)
			break;
		if (pids[n] == 0)
			watcher_main(path, target_socket(target, env), parent);
	}
	bench_pin(env, env->client_cpu);
	r = n < N_WATCHERS ? -EAGAIN : connect_admin(target_socket(target, env), &admin);
	/* The target's session and this one are counted, too. */
	while (r == 0 && stats.sessions < N_WATCHERS + 2) {
		bench_settle(20000000);
		r = rbk_stats(admin, &stats);
		if (r == 0 && clock_now_ns() > end_ns)
			r = -ETIMEDOUT;
	}
	rbk_disconnect(admin);
	if (r)
		stop_watchers(pids, n);
	return r;
}

static const uint32_t batches[] = {1, 64};

/*
 * Compare both brokers. @ratios: set without watchers, and the basis of the targets with watchers.
 */
static int compare(struct bench_env *env, const struct target *ours, const struct target *alone,
		   unsigned int n_watchers, double ratios[ARRAY_SIZE(batches)])
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(batches) && !r; i++) {
		struct target_task our_task = {.ring = ours->ring, .batch = batches[i]};
		struct target_task alone_task = {.ring = alone->ring, .batch = batches[i]};
		struct bench_row row = {.unit = "M/s", .is_rate = true, .baseline = "unwatched"};
		char params[32];

		snprintf(params, sizeof(params), "watchers=%u batch=%u", n_watchers, batches[i]);
		row.params = params;
		row.target = n_watchers > 0 ? least_watched * ratios[i] : 0;
		r = bench_compare(env, &row, (struct bench_side){target_throughput, &our_task},
				  (struct bench_side){target_throughput, &alone_task});
		if (r)
			bench_fail(env, r, "measuring failed");
		else if (n_watchers == 0)
			ratios[i] = env->ratio;
	}
	return r;
}

static int run_watched(struct bench_env *env)
{
	struct target ours, alone = TARGET_INIT;
	double ratios[ARRAY_SIZE(batches)];
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
	r = compare(env, &ours, &alone, 0, ratios);
	if (r)
		goto out;
	r = start_watchers(env, &ours, path, pids);
	if (r) {
		bench_fail(env, r, "the watchers did not start");
		goto out;
	}
	r = compare(env, &ours, &alone, N_WATCHERS, ratios);
	stop_watchers(pids, N_WATCHERS);
out:
	target_deinit(&alone);
	target_deinit(&ours);
	return r;
}

const struct bench bench_watched = {
	.name = "watched",
	.summary = "NOPs per second while 50 brokertops watch the broker",
	.baseline = "the same without brokertops, on a second broker",
	.run = run_watched,
};

/* ---- The cost for the watcher ---- */

/* A brokertop in a terminal of its own */
struct shown {
	pid_t pid; /* 0: not running */
	int terminal;
	clockid_t clock; /* clock of its processor time */
	uint64_t cpu_ns; /* processor time at the last look */
};

static void shown_stop(struct shown *shown)
{
	if (shown->pid <= 0)
		return;
	kill(shown->pid, SIGKILL);
	waitpid(shown->pid, NULL, 0);
	close(shown->terminal);
	shown->pid = 0;
}

/* Return: 0; a negative errno. */
static int shown_start(struct shown *shown, const char *const arguments[])
{
	const struct winsize size = {.ws_row = 40, .ws_col = 120};
	const pid_t parent = getpid();

	shown->pid = forkpty(&shown->terminal, NULL, NULL, &size);
	if (shown->pid < 0)
		return -errno;
	if (shown->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setenv("TERM", "xterm", 1);
		if (getppid() == parent)
			execv(arguments[0], (char *const *)arguments);
		_exit(127);
	}
	fcntl(shown->terminal, F_SETFD, FD_CLOEXEC);
	fcntl(shown->terminal, F_SETFL, O_NONBLOCK);
	return clock_getcpuclockid(shown->pid, &shown->clock) ? -ESRCH : 0;
}

/*
 * Read the drawn output and the processor time since the last look.
 * Return: 0; -ECHILD if the process has ended.
 */
static int shown_look(struct shown *shown, uint64_t *ret_cpu_ns)
{
	struct timespec cpu;
	char drawn[4096];

	while (read(shown->terminal, drawn, sizeof(drawn)) > 0)
		;
	if (waitpid(shown->pid, NULL, WNOHANG) != 0 || clock_gettime(shown->clock, &cpu)) {
		shown->pid = 0;
		close(shown->terminal);
		return -ECHILD;
	}
	*ret_cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec - shown->cpu_ns;
	shown->cpu_ns += *ret_cpu_ns;
	return 0;
}

/*
 * Watch both for a second and add their processor time in percent of a processor to @samples,
 * unless NULL.
 */
static int watch_both(struct shown shown[2], struct samples samples[2])
{
	const uint64_t begin_ns = clock_now_ns();
	uint64_t sums_ns[2] = {0, 0}, elapsed_ns = 0, cpu_ns;
	int r = 0;

	while (r == 0 && elapsed_ns < ROUND_NS) {
		/* Read often, so that neither waits for room in its terminal. */
		bench_settle(50000000);
		elapsed_ns = clock_now_ns() - begin_ns;
		for (unsigned int i = 0; i < 2 && r == 0; i++) {
			r = shown_look(&shown[i], &cpu_ns);
			sums_ns[i] += r ? 0 : cpu_ns;
		}
	}
	for (unsigned int i = 0; i < 2 && r == 0 && samples; i++)
		samples_add(&samples[i], 100 * (double)sums_ns[i] / (double)elapsed_ns);
	return r;
}

/*
 * Wait until the picture is complete: the keys in the lowest line, drawn last, and the broker's
 * tenants. With an empty @last wait until the process ends.
 * Return: 0; a negative errno.
 */
static int shown_await(struct shown *shown, const char *last)
{
	const uint64_t end_ns = clock_now_ns() + START_TIMEOUT_NS;
	struct pollfd drawn = {.fd = shown->terminal, .events = POLLIN};
	static char text[65536];
	bool has_tenants = !last[0];
	size_t n = 0;

	while (clock_now_ns() < end_ns && n < sizeof(text) - 1) {
		ssize_t n_read;

		poll(&drawn, 1, 100);
		n_read = read(shown->terminal, text + n, sizeof(text) - 1 - n);
		if (n_read < 0 && errno == EAGAIN)
			continue;
		/* The terminal is closed. */
		if (n_read <= 0)
			return last[0] ? -ECHILD : 0;
		n += (size_t)n_read;
		text[n] = '\0';
		has_tenants |= strstr(text, " tenants") != NULL;
		if (last[0] && has_tenants && strstr(text, last))
			return 0;
	}
	return -ETIMEDOUT;
}

static int start_once(const char *const arguments[], const char *last, struct samples *samples)
{
	const uint64_t begin_ns = clock_now_ns();
	struct shown shown = {.pid = 0};
	int r = shown_start(&shown, arguments);

	if (!r)
		r = shown_await(&shown, last);
	if (!r)
		samples_add(samples, (double)(clock_now_ns() - begin_ns) / 1e6);
	shown_stop(&shown);
	/* Wait until the broker has ended the session, too. */
	bench_settle(20000000);
	return r;
}

static int measure_start(struct bench_env *env, const char *path, const char *socket)
{
	const struct bench_row row = {
		.params = "tenants=100 terminal=120x40 first picture",
		.unit = "ms",
		.baseline = "brokertop --version",
		.limit = FIRST_LIMIT_MS,
	};
	const char *const picture[] = {path, "--socket", socket, NULL};
	const char *const version[] = {path, "--version", NULL};
	struct samples samples[2] = {SAMPLES_INIT, SAMPLES_INIT};
	const unsigned int n_rounds =
		env->seconds > MIN_ROUNDS ? (unsigned int)env->seconds : MIN_ROUNDS;
	int r = 0;

	for (unsigned int i = 0; i < 2 && !r; i++)
		r = samples_reserve(&samples[i], n_rounds * STARTS_PER_ROUND);
	for (unsigned int i = 0; i < n_rounds * STARTS_PER_ROUND && !r; i++) {
		r = start_once(picture, "Quit", &samples[0]);
		if (!r)
			r = start_once(version, "", &samples[1]);
	}
	if (r)
		bench_fail(env, r, "brokertop shows nothing: %s", strerror(-r));
	else
		bench_report(env, &row, &samples[0], &samples[1]);
	for (unsigned int i = 0; i < 2; i++)
		samples_deinit(&samples[i]);
	return r;
}

static int measure_brokertop(struct bench_env *env, const char *path, const char *socket)
{
	const struct bench_row row = {
		.params = "tenants=100 terminal=120x40 updates=10/s",
		.unit = "%",
		.baseline = "updates=1/s",
		.limit = CPU_LIMIT_PERCENT,
	};
	const char *const often[] = {path, "--socket", socket, "-d", "0.1", NULL};
	const char *const seldom[] = {path, "--socket", socket, "-d", "1", NULL};
	struct samples samples[2] = {SAMPLES_INIT, SAMPLES_INIT};
	struct shown shown[2] = {{.pid = 0}, {.pid = 0}};
	const unsigned int n_rounds =
		env->seconds > MIN_ROUNDS ? (unsigned int)env->seconds : MIN_ROUNDS;
	int r;

	r = shown_start(&shown[0], often);
	if (!r)
		r = shown_start(&shown[1], seldom);
	for (unsigned int i = 0; i < 2 && !r; i++)
		r = samples_reserve(&samples[i], n_rounds);
	/* Exclude the cost of starting. */
	for (unsigned int i = 0; i < 2 && !r; i++)
		r = watch_both(shown, NULL);
	for (unsigned int i = 0; i < n_rounds && !r; i++)
		r = watch_both(shown, samples);
	if (r)
		bench_fail(env, r, "brokertop cannot be watched: %s", strerror(-r));
	else
		bench_report(env, &row, &samples[0], &samples[1]);
	for (unsigned int i = 0; i < 2; i++) {
		shown_stop(&shown[i]);
		samples_deinit(&samples[i]);
	}
	return r;
}

/*
 * Open a session for each tenant, as that tenant's user.
 * Return: 0; a negative errno.
 */
static int connect_tenants(const char *socket, struct rbk *tenants[N_TENANTS])
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = socket,
		.name = "brokerbench",
	};
	int r = 0;

	for (unsigned int i = 0; i < N_TENANTS && !r; i++) {
		if (seteuid(FIRST_UID + i))
			return -errno;
		/* Only root may reach the folder of the socket. */
		setfsuid(0);
		r = rbk_connect(&options, &tenants[i], NULL);
		if (seteuid(0))
			return -errno;
	}
	return r;
}

/*
 * Write a policy with all tenants; @path names it as long as *ret_fd is open.
 * Return: 0; a negative errno.
 */
static int write_policy(int *ret_fd, char *path, size_t bytes)
{
	*ret_fd = memfd_create("brokerbench-policy", MFD_CLOEXEC);
	if (*ret_fd < 0)
		return -errno;
	for (unsigned int i = 0; i < N_TENANTS; i++)
		if (dprintf(*ret_fd, "[tenant t%u]\nmatch-uid = %u\n", i, FIRST_UID + i) < 0)
			return -errno;
	snprintf(path, bytes, "/proc/%d/fd/%d", (int)getpid(), *ret_fd);
	return 0;
}

static int run_brokertop(struct bench_env *env)
{
	char brokertop[PATH_MAX], policy[64] = "";
	const char *const arguments[] = {"--gpu",
					 "none",
					 "--contention",
					 "none",
					 "--cache",
					 "none",
					 "--calibration",
					 "none",
					 "--socket-mode",
					 "0666",
					 "--config",
					 policy,
					 NULL};
	struct rbk *tenants[N_TENANTS] = {NULL};
	struct broker_process *broker = NULL;
	int fd = -1, r;

	if (env->socket)
		return bench_skip(env, NULL, "needs a broker of its own, not --socket");
	if (geteuid() != 0)
		return bench_skip(env, NULL, "needs root, to be %d users", N_TENANTS);
	if (find_brokertop(brokertop))
		return bench_skip(env, NULL, "there is no brokertop beside this program");
	bench_pin(env, -1);
	r = write_policy(&fd, policy, sizeof(policy));
	if (!r)
		r = broker_process_new(arguments, -1, &broker);
	if (!r)
		r = connect_tenants(broker_process_socket(broker), tenants);
	if (r)
		bench_fail(env, r, "no broker with %d tenants: %s", N_TENANTS, strerror(-r));
	else
		r = measure_brokertop(env, brokertop, broker_process_socket(broker));
	if (!r)
		r = measure_start(env, brokertop, broker_process_socket(broker));
	for (unsigned int i = 0; i < N_TENANTS; i++)
		rbk_disconnect(tenants[i]);
	broker_process_free(broker);
	if (fd >= 0)
		close(fd);
	return r;
}

const struct bench bench_brokertop = {
	.name = "brokertop",
	.summary =
		"a brokertop over 100 tenants: processor time (target: 1% at 10 updates/s), first "
		"picture (target: 50 ms)",
	.baseline = "one that draws once a second, over the same broker; a start without a picture",
	.run = run_brokertop,
};
