/* SPDX-License-Identifier: MIT */
/*
 * Restarting: the next broker takes this one's place
 *
 * To clients a restart is the death of a broker at a convenient moment: few tasks are in flight,
 * the checkpoint is written, and the next broker exists a moment later. They re-attach as they do
 * after a crash; there is no second way of recovery. So nothing is torn down. Until the last system
 * call, this broker can go on as if nothing had happened.
 *
 * Where the sockets are a service manager's, this process ends, with a status that has the manager
 * start the next one. Only the manager can give it the privileges that this one has dropped after
 * it loaded the probes, the sandbox of a new unit file, and a clean process. Connections wait in
 * the manager's sockets. A unit without the status restarts it as after a failure; and without any
 * rule, the first client that re-attaches activates it.
 *
 * Otherwise the process executes the program again. Its number stays, so whoever started it still
 * owns it. The sockets stay open, and are passed as a service manager passes them ($LISTEN_FDS);
 * connections wait in them. The numbers for them are reserved at the start, so that passing them
 * replaces no descriptor that another thread uses. A mark in the environment says that the sockets'
 * paths belong to the next broker. The clients' connections outlive the execution in another
 * process (keeper.c), because closing what is unread in them may take long.
 *
 * A wrong option, an invalid configuration or a missing program must not end a running broker. So
 * the program that is now at the path checks its configuration first, with the same arguments and
 * environment.
 */
#include "daemon/restart.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/checkpoint.h"
#include "daemon/keeper.h"
#include "daemon/options.h"
#include "daemon/parts.h"
#include "daemon/service.h"
#include "dispatch/dispatch.h"
#include "loop/offload.h"
#include "session/closers.h"
#include "session/server.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/number.h"
#include "util/plural.h"
#include "util/systemd.h"
#include "util/thread.h"

/* Set in the environment to the process that passes its own sockets to its next program. */
#define MARK "RINGBROKER_RESTARTED"

/* The path of the program when it was replaced on disk ends like this. */
#define DELETED " (deleted)"

enum {
	N_PASSED = 2,    /* sockets */
	N_VARIABLES = 5, /* of the environment, for them; with the end */
	CHECK_MS = 10000,
	LOOK_MS = 50,      /* between looks whether the check is cancelled, or jobs are done */
	CLOSERS_MS = 1000, /* for clients' descriptors that are being closed */
};

struct restart {
	struct broker *broker;
	char path[4096];
	char **argv, **environment;
	char **check_argv; /* argv, and --check-config */
	bool is_managed;   /* a service manager starts the next broker */
	int nice;
	uint64_t ready_ns;

	/* The restart in progress, or the last one */
	bool is_running;
	uint32_t session, cookie; /* of the administrator */
	uint64_t drain_ns;
	uint64_t held_ns;
	uint64_t patient_ns;  /* end of the wait for closers.h; 0: not begun */
	uint64_t n_completed; /* tasks completed when it began to drain */
	struct offload_job job;
	int check_result;              /* 0, or 1 with the reason */
	char why[RBK_WIRE_TEXT_BYTES]; /* why the last restart failed; empty: it did not */
};

extern char **environ;

/* --- What the next broker is started with --- */

static unsigned int count(char **list)
{
	unsigned int n = 0;

	while (list[n])
		n++;
	return n;
}

static bool is_of(const char *variable, const char *name)
{
	const size_t bytes = strlen(name);

	return strncmp(variable, name, bytes) == 0 && variable[bytes] == '=';
}

/* Copy the environment but for what concerns sockets. Return: false without memory. */
static bool copy_environment(struct restart *restart)
{
	unsigned int n = 0;

	restart->environment = calloc(count(environ) + N_VARIABLES, sizeof(char *));
	if (!restart->environment)
		return false;
	for (char **variable = environ; *variable; variable++) {
		if (is_of(*variable, "LISTEN_PID") || is_of(*variable, "LISTEN_FDS") ||
		    is_of(*variable, "LISTEN_FDNAMES") || is_of(*variable, MARK))
			continue;
		restart->environment[n] = strdup(*variable);
		if (!restart->environment[n++])
			return false;
	}
	return true;
}

static bool copy_arguments(struct restart *restart, char **argv)
{
	const unsigned int n = count(argv);

	/* getopt_long() permutes the original. */
	restart->argv = calloc(n + 1, sizeof(char *));
	restart->check_argv = calloc(n + 2, sizeof(char *));
	if (!restart->argv || !restart->check_argv)
		return false;
	memcpy(restart->argv, argv, n * sizeof(char *));
	memcpy(restart->check_argv, argv, n * sizeof(char *));
	restart->check_argv[n] = (char *)"--check-config";
	return true;
}

/*
 * Return true if this process was started by a manager that keeps its sockets and waits for it. A
 * program that passes sockets and then becomes brokerd, for example, is none.
 */
static bool has_manager(void)
{
	const char *pid = getenv("SYSTEMD_EXEC_PID");

	if (!getenv("LISTEN_FDS") || !getenv("NOTIFY_SOCKET") || getenv(MARK))
		return false;
	return pid ? strtol(pid, NULL, 10) == (long)getpid() : getppid() == 1;
}

/* Occupy the numbers of descriptors with which sockets are passed. */
static void reserve_numbers(void)
{
	for (int fd = SYSTEMD_FIRST_FD; fd < SYSTEMD_FIRST_FD + N_PASSED; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
}

struct restart *restart_new(char **argv, struct broker *broker)
{
	struct restart *restart = calloc(1, sizeof(*restart));
	ssize_t n;

	reserve_numbers();
	if (!restart)
		return NULL;
	restart->broker = broker;
	restart->is_managed = has_manager();
	n = readlink("/proc/self/exe", restart->path, sizeof(restart->path) - 1);
	if (n <= 0 || !copy_environment(restart) || !copy_arguments(restart, argv))
		return restart_free(restart);
	n -= (ssize_t)strlen(DELETED);
	if (n > 0 && strcmp(restart->path + n, DELETED) == 0)
		restart->path[n] = '\0';
	return restart;
}

struct restart *restart_free(struct restart *restart)
{
	if (!restart)
		return NULL;
	for (char **variable = restart->environment; variable && *variable; variable++)
		free(*variable);
	free(restart->environment);
	free(restart->argv);
	free(restart->check_argv);
	free(restart);
	return NULL;
}

bool restart_was_passed(void)
{
	const char *pid = getenv(MARK);
	const bool was_passed = pid && strtol(pid, NULL, 10) == (long)getpid();

	unsetenv(MARK);
	return was_passed;
}

void restart_ready(struct restart *restart, int nice)
{
	if (!restart)
		return;
	restart->ready_ns = clock_now_ns();
	restart->nice = nice;
}

/* --- The check --- */

/*
 * Read what the check prints until it ends, or @end_ns has come, and keep the first line. Return:
 * false if it takes longer, or is cancelled.
 */
static bool read_reason(struct offload_job *job, int fd, uint64_t end_ns, char *why, size_t bytes)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	char rest[512];
	size_t n = 0;
	ssize_t r = 1;

	while (r != 0) {
		if (clock_now_ns() >= end_ns || atomic_load(&job->is_cancelled))
			return false;
		if (poll(&poll_fd, 1, LOOK_MS) == 0)
			continue;
		r = n < bytes - 1 ? read(fd, why + n, bytes - 1 - n) : read(fd, rest, sizeof(rest));
		if (r > 0 && n < bytes - 1)
			n += (size_t)r;
		if (r < 0 && errno != EINTR && errno != EAGAIN)
			break;
	}
	why[n] = '\0';
	/* The first line that is not empty */
	memmove(why, why + strspn(why, "\n"), n + 1 - strspn(why, "\n"));
	why[strcspn(why, "\n")] = '\0';
	return true;
}

/*
 * Wait for the end of a process, which may have closed its standard error long before. Return:
 * false: it has not ended at @end_ns, or the job was cancelled.
 */
static bool await_exit(struct offload_job *job, pid_t pid, uint64_t end_ns, int *ret_status)
{
	pid_t r;

	while ((r = waitpid(pid, ret_status, WNOHANG)) == 0) {
		if (clock_now_ns() >= end_ns || atomic_load(&job->is_cancelled))
			return false;
		poll(NULL, 0, 1);
	}
	return r == pid;
}

/* Start the check. Return: 0 with *ret_pid; an errno. */
static int spawn_check(struct restart *restart, int error_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int r;

	r = posix_spawn_file_actions_init(&actions);
	if (r)
		return r;
	r = posix_spawnattr_init(&attributes);
	if (r) {
		posix_spawn_file_actions_destroy(&actions);
		return r;
	}
	sigemptyset(&none);
	r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY,
						     0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, error_fd, STDERR_FILENO);
	if (r == 0)
		r = posix_spawnattr_setsigmask(&attributes, &none);
	if (r == 0)
		r = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	if (r == 0)
		r = posix_spawn(ret_pid, restart->path, &actions, &attributes, restart->check_argv,
				restart->environment);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

/* Have the next program check its options and its configuration. Setup thread. */
static int check(struct restart *restart)
{
	const uint64_t end_ns = clock_now_ns() + CHECK_MS * 1000000ull;
	char *why = restart->why, reason[sizeof(restart->why) - 128] = "";
	int fds[2], status = 0, r;
	pid_t pid;
	bool ends;

	if (pipe2(fds, O_CLOEXEC) < 0) {
		snprintf(why, sizeof(restart->why), "cannot make a pipe: %s", strerror(errno));
		return 1;
	}
	r = spawn_check(restart, fds[1], &pid);
	close(fds[1]);
	if (r) {
		close(fds[0]);
		snprintf(why, sizeof(restart->why), "cannot execute %.300s: %s", restart->path,
			 strerror(r));
		return 1;
	}
	ends = read_reason(&restart->job, fds[0], end_ns, reason, sizeof(reason)) &&
	       await_exit(&restart->job, pid, end_ns, &status);
	close(fds[0]);
	if (!ends) {
		kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	if (!ends)
		snprintf(why, sizeof(restart->why),
			 "%.300s did not check its configuration in %d s", restart->path,
			 CHECK_MS / 1000);
	else if (WIFSIGNALED(status))
		snprintf(why, sizeof(restart->why),
			 "%.300s was ended by signal %d when it checked its configuration",
			 restart->path, WTERMSIG(status));
	else if (status != 0)
		snprintf(why, sizeof(restart->why), "the next broker would not start: %s", reason);
	return !ends || status != 0;
}

static void check_run(struct offload_job *job)
{
	struct restart *restart = container_of(job, struct restart, job);

	restart->check_result = check(restart);
}

/* --- Passing on --- */

static void restart_failed(struct restart *restart)
{
	log_error(LOG_RESTART_FAILED, "cannot restart: %s; this broker goes on", restart->why);
	service_reloaded(restart->broker->service);
	restart->is_running = false;
}

/*
 * Put the listening sockets at the numbers that were reserved, and describe them in the
 * environment. Return: 0; an errno.
 */
static int pass_sockets(struct restart *restart, char texts[N_VARIABLES - 1][80])
{
	char **end = restart->environment + count(restart->environment);
	int fds[N_PASSED], n = 0;

	server_sockets(restart->broker->server, &fds[0], &fds[1]);
	for (; n < N_PASSED && fds[n] >= 0; n++)
		if (dup3(fds[n], SYSTEMD_FIRST_FD + n, 0) < 0)
			return errno;
	snprintf(texts[0], sizeof(texts[0]), "LISTEN_PID=%d", (int)getpid());
	snprintf(texts[1], sizeof(texts[1]), "LISTEN_FDS=%d", n);
	snprintf(texts[2], sizeof(texts[2]), "LISTEN_FDNAMES=brokerd.sock%s",
		 n > 1 ? ":admin.sock" : "");
	snprintf(texts[3], sizeof(texts[3]), MARK "=%d", (int)getpid());
	for (unsigned int i = 0; i < N_VARIABLES - 1; i++)
		end[i] = texts[i];
	return 0;
}

/* Become the next broker. Return: the errno for which this was impossible. */
static int become_next(struct restart *restart)
{
	const unsigned int n = count(restart->environment);
	char texts[N_VARIABLES - 1][80];
	int r = pass_sockets(restart, texts), keeper_fd = -1;

	if (r == 0)
		r = -keeper_start(&keeper_fd);
	if (r == 0) {
		/* The next broker makes its reactor faster than this level again. */
		(void)thread_set_nice(restart->nice);
		/* Drivers may have opened files without O_CLOEXEC. */
		(void)close_range(SYSTEMD_FIRST_FD + N_PASSED, ~0u, CLOSE_RANGE_CLOEXEC);
		execve(restart->path, restart->argv, restart->environment);
		r = errno;
		(void)thread_set_nice(restart->broker->options.reactor_nice);
	}
	close_fd(keeper_fd);
	memset(restart->environment + n, 0, N_VARIABLES * sizeof(char *) - sizeof(char *));
	for (int i = 0; i < N_PASSED; i++)
		fcntl(SYSTEMD_FIRST_FD + i, F_SETFD, FD_CLOEXEC);
	return r;
}

/*
 * Return true if a thread may never end, because a client decides when its descriptor is closed:
 * then this process cannot become another program.
 */
static bool is_held_up(const struct restart *restart)
{
	struct closers_report closers;

	server_describe_closers(restart->broker->server, &closers);
	return closers.n_stuck > 0;
}

static void set_held_up(struct restart *restart)
{
	snprintf(restart->why, sizeof(restart->why),
		 "a thread waits for a client's descriptor to be closed, and may wait for ever: "
		 "stop brokerd and start it again");
}

static void refuse(struct restart *restart)
{
	log_clean(restart->why);
	server_restart_answer(restart->broker->server, restart->session, restart->cookie, -EINVAL,
			      restart->why, NULL);
	restart_failed(restart);
}

/* Return: 0; the time after which to call again, while clients' descriptors are being closed. */
static uint64_t on_paused(void *context)
{
	struct restart *restart = context;
	struct broker *broker = restart->broker;
	struct rbk_wire_restart about = {
		.ready_ns = restart->ready_ns,
		.held_ns = restart->held_ns,
		.drain_ns = clock_now_ns() - restart->held_ns,
		.n_drained = dispatch_n_completed(broker->dispatch) - restart->n_completed,
		.n_left = dispatch_n_in_flight(broker->dispatch),
	};
	int r;

	if (!restart->is_managed && server_n_discards(broker->server) > 0) {
		if (restart->patient_ns == 0)
			restart->patient_ns = clock_now_ns() + CLOSERS_MS * 1000000ull;
		if (clock_now_ns() < restart->patient_ns)
			return LOOK_MS * 1000000ull;
		set_held_up(restart);
		refuse(restart);
		return 0;
	}
	log_info(LOG_RESTART,
		 "the next broker takes over: %llu task%s completed in %.1f ms, %llu task%s left",
		 ull(about.n_drained), plural(about.n_drained), (double)about.drain_ns / 1e6,
		 ull(about.n_left), about.n_left == 1 ? " is" : "s are");
	checkpoint_write(broker->checkpoint);
	server_restart_answer(broker->server, restart->session, restart->cookie, 0, NULL, &about);
	if (restart->is_managed)
		_exit(OPTIONS_EXIT_RESTART);
	r = become_next(restart);
	snprintf(restart->why, sizeof(restart->why), "cannot execute %.300s: %s", restart->path,
		 strerror(r));
	restart_failed(restart);
	return 0;
}

static void check_done(struct offload_job *job)
{
	struct restart *restart = container_of(job, struct restart, job);
	struct broker *broker = restart->broker;

	if (restart->check_result == 0 && !broker->is_stopping && !restart->is_managed &&
	    is_held_up(restart)) {
		set_held_up(restart);
		restart->check_result = 1;
	}
	if (broker->is_stopping) {
		/* The server may be gone already. */
		restart->is_running = false;
		return;
	}
	if (restart->check_result) {
		refuse(restart);
		return;
	}
	restart->held_ns = clock_now_ns();
	restart->n_completed = dispatch_n_completed(broker->dispatch);
	service_restarting(broker->service);
	dispatch_pause(broker->dispatch, restart->drain_ns, on_paused, restart);
}

static int restart_begin(void *context, uint32_t number, uint32_t cookie, uint64_t drain_ns)
{
	struct restart *restart = context;

	if (restart->is_running || restart->broker->is_stopping)
		return -EBUSY;
	restart->is_running = true;
	restart->session = number;
	restart->cookie = cookie;
	restart->drain_ns = drain_ns;
	restart->patient_ns = 0;
	restart->why[0] = '\0';
	restart->job = (struct offload_job){
		.run = check_run,
		.done = check_done,
		.cause = OFFLOAD_FILE,
	};
	offload_submit(restart->broker->offload, &restart->job);
	return 0;
}

void restart_stop(struct restart *restart)
{
	if (restart && restart->is_running)
		offload_cancel(restart->broker->offload, &restart->job);
}

static void restart_describe(void *context, struct rbk_wire_restart *ret)
{
	const struct restart *restart = context;

	ret->ready_ns = restart->ready_ns;
	snprintf(ret->reply.text, sizeof(ret->reply.text), "%s",
		 restart->is_running ? "" : restart->why);
}

struct server_restarter restart_hooks(struct restart *restart)
{
	if (!restart)
		return (struct server_restarter){.begin = NULL};
	return (struct server_restarter){
		.begin = restart_begin,
		.describe = restart_describe,
		.context = restart,
	};
}
