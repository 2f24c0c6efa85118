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
 * environment (restart-check.c), and with what it cannot know of this broker (config_state_facts()
 * in config.h). The path is the one by which this program was executed, links included, so that an
 * upgrade can move a link.
 */
#include "daemon/restart.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/checkpoint.h"
#include "daemon/config.h"
#include "daemon/keeper.h"
#include "daemon/options.h"
#include "daemon/parts.h"
#include "daemon/restart-check.h"
#include "daemon/service.h"
#include "daemon/steward.h"
#include "dispatch/dispatch.h"
#include "loop/loop.h"
#include "session/closers.h"
#include "session/server.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/number.h"
#include "util/plural.h"
#include "util/systemd.h"

/* Set in the environment to the process that passes its own sockets to its next program. */
#define MARK "RINGBROKER_RESTARTED"

/* The path of the program when it was replaced on disk ends like this. */
#define DELETED " (deleted)"

enum {
	N_PASSED = 2,      /* sockets */
	N_VARIABLES = 5,   /* of the environment, for them; with the end */
	LOOK_MS = 50,      /* between looks whether descriptors are closed */
	CLOSERS_MS = 1000, /* for clients' descriptors that are being closed */
};

struct restart {
	struct broker *broker;
	char path[4096];
	char **argv, **environment;
	char **check_argv; /* argv, and --check-config */
	bool is_managed;   /* a service manager starts the next broker */
	uint64_t ready_ns;

	/* The reactor's: execve() keeps those of the thread that calls it */
	sigset_t mask;
	int death_signal;

	/* The restart in progress, or the last one */
	bool is_running;
	uint32_t session, cookie; /* of the administrator; session 0: answered */
	uint64_t drain_ns;
	uint64_t held_ns;
	uint64_t patient_ns;            /* end of the wait for closers.h; 0: not begun */
	uint64_t n_completed;           /* tasks completed when it began to drain */
	struct restart_check *check;    /* NULL: none is in progress */
	int passing_error;              /* errno of become_next() */
	char facts[CONFIG_FACTS_BYTES]; /* of this broker, for the check */
	char why[RBK_WIRE_TEXT_BYTES];  /* why the last restart failed; empty: it did not */
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
		    is_of(*variable, "LISTEN_FDNAMES") || is_of(*variable, MARK) ||
		    is_of(*variable, CONFIG_FACTS))
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

static bool is_below(const char *path, const char *folder)
{
	return strncmp(path, folder, strlen(folder)) == 0;
}

/*
 * Find the path by which this program was executed: an upgrade may move a link there to another
 * program. The path is trusted as far as it leads to this program now. Paths of descriptors lead
 * nowhere later. Return: false if it is not known.
 */
static bool find_link(char *path, size_t bytes)
{
	const char *name = (const char *)getauxval(AT_EXECFN);
	struct stat there, here;
	char folder[2048];
	int n;

	if (!name || !name[0] || is_below(name, "/dev/") || is_below(name, "/proc/"))
		return false;
	if (name[0] != '/' && !getcwd(folder, sizeof(folder)))
		return false;
	n = name[0] == '/' ? snprintf(path, bytes, "%s", name)
			   : snprintf(path, bytes, "%s/%s", folder, name);
	return n > 0 && (size_t)n < bytes && stat(path, &there) == 0 &&
	       stat("/proc/self/exe", &here) == 0 && there.st_dev == here.st_dev &&
	       there.st_ino == here.st_ino;
}

/* Find the file of this program, which may have been replaced meanwhile. */
static bool find_program(char *path, size_t bytes)
{
	ssize_t n = readlink("/proc/self/exe", path, bytes - 1);

	if (n <= 0)
		return false;
	path[n] = '\0';
	n -= (ssize_t)strlen(DELETED);
	if (n > 0 && strcmp(path + n, DELETED) == 0)
		path[n] = '\0';
	return true;
}

struct restart *restart_new(char **argv, struct broker *broker)
{
	struct restart *restart = calloc(1, sizeof(*restart));

	reserve_numbers();
	if (!restart)
		return NULL;
	restart->broker = broker;
	restart->is_managed = has_manager();
	if ((!find_link(restart->path, sizeof(restart->path)) &&
	     !find_program(restart->path, sizeof(restart->path))) ||
	    !copy_environment(restart) || !copy_arguments(restart, argv))
		return restart_free(restart);
	return restart;
}

struct restart *restart_free(struct restart *restart)
{
	if (!restart)
		return NULL;
	for (char **variable = restart->environment; variable && *variable; variable++)
		if (*variable != restart->facts)
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

void restart_ready(struct restart *restart)
{
	if (!restart)
		return;
	restart->ready_ns = clock_now_ns();
	pthread_sigmask(SIG_SETMASK, NULL, &restart->mask);
	prctl(PR_GET_PDEATHSIG, &restart->death_signal);
}

/* --- Passing on --- */

/* Show a drain no longer. */
static void hide_drain(struct restart *restart)
{
	struct publish_self *self = &restart->broker->self;

	self->restart_at_ns = self->restart_until_ns = 0;
}

static void restart_failed(struct restart *restart)
{
	hide_drain(restart);
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

/*
 * Become the next broker. The steward's: what the kernel keeps of a thread that executes a program
 * is as it was at the start, or is made so here, and a filter would be inherited.
 * @context: the restart, whose passing_error gets the errno for which this was impossible.
 */
static void become_next(void *context)
{
	struct restart *restart = context;
	const unsigned int n = count(restart->environment);
	char texts[N_VARIABLES - 1][80];
	int r = pass_sockets(restart, texts), keeper_fd = -1;
	sigset_t own_mask;

	pthread_sigmask(SIG_BLOCK, NULL, &own_mask);
	if (r == 0)
		r = -keeper_start(&keeper_fd);
	if (r == 0) {
		prctl(PR_SET_PDEATHSIG, restart->death_signal);
		/* Drivers may have opened files without O_CLOEXEC. */
		(void)close_range(SYSTEMD_FIRST_FD + N_PASSED, ~0u, CLOSE_RANGE_CLOEXEC);
		pthread_sigmask(SIG_SETMASK, &restart->mask, NULL);
		execve(restart->path, restart->argv, restart->environment);
		r = errno;
		pthread_sigmask(SIG_SETMASK, &own_mask, NULL);
	}
	close_fd(keeper_fd);
	memset(restart->environment + n, 0, N_VARIABLES * sizeof(char *) - sizeof(char *));
	for (int i = 0; i < N_PASSED; i++)
		fcntl(SYSTEMD_FIRST_FD + i, F_SETFD, FD_CLOEXEC);
	restart->passing_error = r;
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

/* Return the session to answer. Its end no longer matters: it may come with the answer. */
static uint32_t steal_session(struct restart *restart)
{
	uint32_t session = restart->session;

	restart->session = 0;
	return session;
}

static void refuse(struct restart *restart)
{
	log_clean(restart->why);
	server_restart_answer(restart->broker->server, steal_session(restart), restart->cookie,
			      -EINVAL, restart->why, NULL);
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
	server_restart_answer(broker->server, steal_session(restart), restart->cookie, 0, NULL,
			      &about);
	if (restart->is_managed)
		_exit(OPTIONS_EXIT_RESTART);
	steward_do(broker->steward, become_next, restart);
	snprintf(restart->why, sizeof(restart->why), "cannot execute %.300s: %s", restart->path,
		 strerror(restart->passing_error));
	restart_failed(restart);
	return 0;
}

static void forget_facts(struct restart *restart)
{
	restart->environment[count(restart->environment) - 1] = NULL;
}

/* Admit nothing more, and let the tasks in flight complete. */
static void drain(struct restart *restart)
{
	struct broker *broker = restart->broker;
	const uint64_t n_left = dispatch_n_in_flight(broker->dispatch);

	log_info(LOG_RESTART, "restarting within %g s: %llu task%s in flight",
		 (double)restart->drain_ns / 1e9, ull(n_left), n_left == 1 ? " is" : "s are");
	restart->held_ns = clock_now_ns();
	restart->n_completed = dispatch_n_completed(broker->dispatch);
	broker->self.restart_at_ns = clock_ticks_to_ns(clock_ticks());
	broker->self.restart_until_ns = broker->self.restart_at_ns + restart->drain_ns;
	service_restarting(broker->service);
	dispatch_pause(broker->dispatch, restart->drain_ns, on_paused, restart);
}

static void check_done(void *context, const char *why)
{
	struct restart *restart = context;
	struct broker *broker = restart->broker;

	restart->check = NULL;
	forget_facts(restart);
	if (broker->is_stopping) {
		/* The server may be gone already. */
		restart->is_running = false;
		return;
	}
	if (why)
		snprintf(restart->why, sizeof(restart->why), "%s", why);
	else if (!restart->is_managed && is_held_up(restart))
		set_held_up(restart);
	if (restart->why[0])
		refuse(restart);
	else
		drain(restart);
}

/* Describe this broker to the check, in the environment. */
static void state_facts(struct restart *restart)
{
	const struct broker *broker = restart->broker;
	uint64_t bytes[RBK_MAX_DEVICES];

	for (uint32_t i = 0; i < broker->n_executors; i++)
		bytes[i] = broker->executors[i]->info.memory_bytes;
	config_state_facts(&broker->options, bytes, broker->n_executors, restart->facts);
	restart->environment[count(restart->environment)] = restart->facts;
}

static int restart_begin(void *context, uint32_t number, uint32_t cookie, uint64_t drain_ns)
{
	struct restart *restart = context;
	const struct restart_check_options options = {
		.loop = restart->broker->loop,
		.offload = restart->broker->offload,
		.steward = restart->broker->steward,
		.path = restart->path,
		.argv = restart->check_argv,
		.environment = restart->environment,
		.done = check_done,
		.context = restart,
	};

	if (restart->is_running || restart->broker->is_stopping)
		return -EBUSY;
	state_facts(restart);
	restart->check = restart_check_new(&options);
	if (!restart->check) {
		forget_facts(restart);
		return -ENOMEM;
	}
	restart->is_running = true;
	restart->session = number;
	restart->cookie = cookie;
	restart->drain_ns = drain_ns;
	restart->patient_ns = 0;
	restart->why[0] = '\0';
	return 0;
}

/* An administrator who interrupts "brokerctl restart" wants no restart. */
static void restart_session_ended(void *context, uint32_t number)
{
	static const char why[] = "the administrator who asked for it has not waited";
	struct restart *restart = context;

	if (!restart->is_running || restart->broker->is_stopping || number != restart->session)
		return;
	restart->session = 0;
	if (restart->check) {
		restart_check_give_up(restart->check, why);
		return;
	}
	snprintf(restart->why, sizeof(restart->why), "%s", why);
	dispatch_resume(restart->broker->dispatch);
	restart_failed(restart);
}

void restart_stop(struct restart *restart)
{
	if (restart)
		hide_drain(restart);
	if (restart && restart->check)
		restart_check_give_up(restart->check, "this broker stops");
}

void restart_end(struct restart *restart)
{
	while (restart && restart->check)
		loop_turn(restart->broker->loop, true);
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
		.session_ended = restart_session_ended,
		.describe = restart_describe,
		.context = restart,
	};
}
