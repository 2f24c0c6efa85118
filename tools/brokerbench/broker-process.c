/* SPDX-License-Identifier: MIT */
/*
 * A private broker
 *
 * A benchmark that leaves a daemon behind falsifies the next one. There are three ways out: the
 * ordinary one frees each broker; the handler of SIGINT, SIGTERM, SIGHUP and SIGQUIT kills those
 * that are listed, removes their files with the few calls that handlers may make, and dies of the
 * same signal; and where this process is killed outright, PR_SET_PDEATHSIG ends the broker, whose
 * directory is then left in the temporary directory.
 */
#include "broker-process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "util/cleanup.h"
#include "util/clock.h"

#define MAX_BROKERS      4
#define MAX_ARGUMENTS    16

#define START_TIMEOUT_NS 20000000000u
#define STOP_TIMEOUT_NS  5000000000u
#define POLL_NS          2000000u

struct broker_process {
	pid_t pid;
	char directory[64];
	char socket[80];
	char log[80];
};

/* Read by the signal handler: a slot is filled last and emptied first. */
static struct broker_process *volatile live[MAX_BROKERS];

static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/* The daemon's sockets, if it was killed, and the locks beside them. */
static void remove_files(const struct broker_process *broker)
{
	static const char *const in_folder[] = {"/socket.admin", "/socket.admin.lock"};
	char path[96];

	unlink(broker->socket);
	unlink(broker->log);
	strcpy(path, broker->socket);
	strcat(path, ".lock");
	unlink(path);
	for (size_t i = 0; i < sizeof(in_folder) / sizeof(in_folder[0]); i++) {
		strcpy(path, broker->directory);
		strcat(path, in_folder[i]);
		unlink(path);
	}
	rmdir(broker->directory);
}

static void on_fatal_signal(int signal)
{
	int saved_errno = errno;

	for (int i = 0; i < MAX_BROKERS; i++) {
		struct broker_process *broker = live[i];

		if (!broker)
			continue;
		/* It may have ended by itself, and -1 would be everybody. */
		if (broker->pid > 0) {
			kill(broker->pid, SIGKILL);
			waitpid(broker->pid, NULL, 0);
		}
		remove_files(broker);
	}
	/* SA_RESETHAND: this time it kills, once this handler has returned. */
	raise(signal);
	errno = saved_errno;
}

/* A broker is listed, or it is not there: what stops us comes before or after that. */
static void hold_signals(sigset_t *ret_old)
{
	sigset_t held;

	sigemptyset(&held);
	for (size_t i = 0; i < sizeof(fatal_signals) / sizeof(fatal_signals[0]); i++)
		sigaddset(&held, fatal_signals[i]);
	sigprocmask(SIG_BLOCK, &held, ret_old);
}

void broker_process_init(void)
{
	struct sigaction action = {.sa_handler = on_fatal_signal, .sa_flags = SA_RESETHAND};

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(fatal_signals) / sizeof(fatal_signals[0]); i++)
		sigaddset(&action.sa_mask, fatal_signals[i]);
	for (size_t i = 0; i < sizeof(fatal_signals) / sizeof(fatal_signals[0]); i++)
		sigaction(fatal_signals[i], &action, NULL);
}

/* In the build tree programs lie in tools/ and broker/, installed ones in bin/ and beside it. */
static int find_brokerd(char *ret_path, size_t path_bytes)
{
	static const char *const places[] = {"../broker/brokerd", "brokerd", "../sbin/brokerd",
					     "../libexec/brokerd", "../libexec/ringbroker/brokerd"};
	const char *search, *end;
	char self[PATH_MAX];
	ssize_t n;

	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n > 0) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';
		for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
			if ((size_t)snprintf(ret_path, path_bytes, "%s/%s", self, places[i]) <
				    path_bytes &&
			    access(ret_path, X_OK) == 0)
				return 0;
		}
	}
	for (search = getenv("PATH"); search && *search; search = *end ? end + 1 : end) {
		end = strchrnul(search, ':');
		if ((size_t)snprintf(ret_path, path_bytes, "%.*s/brokerd", (int)(end - search),
				     search) < path_bytes &&
		    access(ret_path, X_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

static bool socket_answers(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, r;

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	r = connect(fd, (struct sockaddr *)&address, sizeof(address));
	close(fd);
	return r == 0;
}

static void show_log(const struct broker_process *broker)
{
	char text[4096];
	ssize_t n;
	int fd;

	fd = open(broker->log, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while ((n = read(fd, text, sizeof(text))) > 0)
		if (write(STDERR_FILENO, text, (size_t)n) < 0)
			break;
	close(fd);
}

static void child_main(const struct broker_process *broker, const char *path,
		       const char *const *arguments, pid_t parent, const sigset_t *signals)
{
	const char *argv[MAX_ARGUMENTS + 2] = {"brokerd"};
	struct sigaction action = {.sa_handler = SIG_DFL};
	int fd;

	for (size_t i = 0; i < sizeof(fatal_signals) / sizeof(fatal_signals[0]); i++)
		sigaction(fatal_signals[i], &action, NULL);
	sigprocmask(SIG_SETMASK, signals, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	fd = open(broker->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(126);
	if (setenv("RINGBROKER_SOCKET", broker->socket, 1) < 0)
		_exit(126);
	for (int i = 0; i < MAX_ARGUMENTS && arguments && arguments[i]; i++)
		argv[i + 1] = arguments[i];
	execv(path, (char *const *)argv);
	_exit(127);
}

static int wait_for_socket(struct broker_process *broker)
{
	uint64_t deadline_ns = clock_now_ns() + START_TIMEOUT_NS;

	while (!socket_answers(broker->socket)) {
		if (waitpid(broker->pid, NULL, WNOHANG) == broker->pid) {
			broker->pid = -1;
			return -ECHILD;
		}
		if (clock_now_ns() > deadline_ns)
			return -ETIMEDOUT;
		bench_settle(POLL_NS);
	}
	return 0;
}

static void stop(struct broker_process *broker)
{
	uint64_t deadline_ns = clock_now_ns() + STOP_TIMEOUT_NS;

	kill(broker->pid, SIGTERM);
	while (waitpid(broker->pid, NULL, WNOHANG) == 0) {
		if (clock_now_ns() > deadline_ns) {
			kill(broker->pid, SIGKILL);
			waitpid(broker->pid, NULL, 0);
			return;
		}
		bench_settle(POLL_NS);
	}
}

static void set_live(const struct broker_process *old, struct broker_process *new)
{
	for (int i = 0; i < MAX_BROKERS; i++)
		if (live[i] == old) {
			live[i] = new;
			return;
		}
}

struct broker_process *broker_process_free(struct broker_process *broker)
{
	sigset_t old;

	if (!broker)
		return NULL;
	if (broker->pid > 0)
		stop(broker);
	hold_signals(&old);
	set_live(broker, NULL);
	remove_files(broker);
	sigprocmask(SIG_SETMASK, &old, NULL);
	free(broker);
	return NULL;
}

DEFINE_CLEANUP(struct broker_process *, broker_process_free)

/* Makes its directory below @temporary, and the process. */
static int start(struct broker_process *broker, const char *path, const char *const *arguments,
		 const char *temporary)
{
	pid_t parent = getpid();
	sigset_t signals;
	int r = 0;

	hold_signals(&signals);
	snprintf(broker->directory, sizeof(broker->directory), "%s/brokerbench-XXXXXX", temporary);
	if (!mkdtemp(broker->directory)) {
		r = -errno;
		broker->directory[0] = '\0';
		goto out;
	}
	snprintf(broker->socket, sizeof(broker->socket), "%s/socket", broker->directory);
	snprintf(broker->log, sizeof(broker->log), "%s/log", broker->directory);
	broker->pid = fork();
	if (broker->pid < 0)
		r = -errno;
	else if (broker->pid == 0)
		child_main(broker, path, arguments, parent, &signals);
	else
		set_live(NULL, broker);
out:
	sigprocmask(SIG_SETMASK, &signals, NULL);
	return r;
}

int broker_process_new(const char *const *arguments, int cpu, struct broker_process **ret)
{
	_cleanup_(broker_process_freep) struct broker_process *broker = NULL;
	const char *temporary = getenv("TMPDIR");
	char path[PATH_MAX];
	cpu_set_t cpus;
	int r;

	r = find_brokerd(path, sizeof(path));
	if (r)
		return r;

	broker = calloc(1, sizeof(*broker));
	if (!broker)
		return -ENOMEM;
	broker->pid = -1;
	/* Socket names are short: a long TMPDIR is not used. */
	if (!temporary || strlen(temporary) > 32)
		temporary = "/tmp";
	r = start(broker, path, arguments, temporary);
	if (r)
		return r;

	r = wait_for_socket(broker);
	if (r) {
		show_log(broker);
		return r;
	}
	if (cpu >= 0) {
		CPU_ZERO(&cpus);
		CPU_SET(cpu, &cpus);
		sched_setaffinity(broker->pid, sizeof(cpus), &cpus);
	}
	*ret = steal_ptr(broker);
	return 0;
}

const char *broker_process_socket(const struct broker_process *broker)
{
	return broker->socket;
}

pid_t broker_process_pid(const struct broker_process *broker)
{
	return broker->pid;
}
