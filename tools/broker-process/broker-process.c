/* SPDX-License-Identifier: MIT */
/*
 * A private broker
 *
 * A daemon left behind by a program falsifies the next benchmark and fills the machine. The broker
 * is therefore the child of a guardian, a process between the program and the broker. The guardian
 * waits until a pipe from the program tells it to stop the broker, or until the pipe closes because
 * the program has ended in any way. Then the guardian stops the broker and removes its directory.
 *
 * The program waits for the guardian in two places: where it frees the broker, and in a handler of
 * fatal signals. The handler tells the guardians, waits for them, and ends the program with the
 * same signal. Guardians are in a process group of their own, so that Ctrl-C does not stop the
 * broker before the program. They close the program's descriptors. If a guardian is killed,
 * PR_SET_PDEATHSIG signals the broker.
 *
 * The broker's log is a memfd, which is read only if the broker does not start.
 */
#include "broker-process/broker-process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/clock.h"

#define MAX_BROKERS      4
#define MAX_ARGUMENTS    24
#define MAX_TMPDIR_BYTES 32

#define START_TIMEOUT_NS 20000000000u
#define STOP_TIMEOUT_MS  5000
#define POLL_MS          2

struct broker_process {
	pid_t guardian;
	pid_t pid;     /* the broker's process id */
	int order_fd;  /* a byte, or end of file: stop */
	int report_fd; /* delivers the broker's process id; end of file: it ended */
	int log_fd;
	char directory[64];
	char socket[80];
};

/* Read by the signal handler, so a slot is filled last and cleared first. */
static struct broker_process *volatile live[MAX_BROKERS];

static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

enum { N_FATAL_SIGNALS = sizeof(fatal_signals) / sizeof(fatal_signals[0]) };

/* ---- The guardian, and what it becomes ---------------------------------------------------- */

/* Descriptors of a guardian; all others are closed. */
enum { ORDER_FD = 3, REPORT_FD, LOG_FD, FIRST_OTHER_FD };

/* Remove the daemon's sockets, which remain if it was killed, and their locks. */
static void remove_files(const struct broker_process *broker)
{
	static const char *const names[] = {"socket", "socket.lock", "socket.admin",
					    "socket.admin.lock"};
	char path[96];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", broker->directory, names[i]);
		unlink(path);
	}
	rmdir(broker->directory);
}

static void become_broker(const struct broker_process *broker, const char *path,
			  const char *const *arguments, pid_t guardian)
{
	const char *argv[MAX_ARGUMENTS + 2] = {"brokerd"};
	sigset_t none;

	setpgid(0, 0);
	for (size_t i = 0; i < N_FATAL_SIGNALS; i++)
		signal(fatal_signals[i], SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != guardian)
		_exit(1);
	if (dup2(LOG_FD, STDOUT_FILENO) < 0 || dup2(LOG_FD, STDERR_FILENO) < 0)
		_exit(126);
	close_range(ORDER_FD, ~0u, 0);
	if (setenv("RINGBROKER_SOCKET", broker->socket, 1) < 0 ||
	    unsetenv("RINGBROKER_ADMIN_SOCKET") < 0)
		_exit(126);
	for (int i = 0; i < MAX_ARGUMENTS && arguments && arguments[i]; i++)
		argv[i + 1] = arguments[i];
	execv(path, (char *const *)argv);
	_exit(127);
}

/* Close all descriptors except those that the guardian needs. */
static void keep_descriptors(const struct broker_process *broker, int order_fd, int report_fd)
{
	/* Duplicate above the numbers that the descriptors will get. */
	const int from[] = {fcntl(order_fd, F_DUPFD, FIRST_OTHER_FD),
			    fcntl(report_fd, F_DUPFD, FIRST_OTHER_FD),
			    fcntl(broker->log_fd, F_DUPFD, FIRST_OTHER_FD)};
	int null_fd = open("/dev/null", O_RDWR);

	for (int i = 0; i < 3; i++)
		if (null_fd < 0 || from[i] < 0 || dup2(null_fd, i) < 0)
			_exit(126);
	for (int i = 0; i < 3; i++)
		if (dup2(from[i], ORDER_FD + i) < 0)
			_exit(126);
	close_range(FIRST_OTHER_FD, ~0u, 0);
}

/*
 * Wait until the broker ends or the program orders it to stop.
 * Return: true if the broker has ended.
 */
static bool wait_for_order(pid_t pid, int pid_fd)
{
	struct pollfd fds[] = {{.fd = ORDER_FD, .events = POLLIN},
			       {.fd = pid_fd, .events = POLLIN}};

	for (;;) {
		/* Poll every 100 ms if the kernel has no process descriptors. */
		poll(fds, 2, pid_fd < 0 ? 100 : -1);
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return true;
		if (fds[0].revents)
			return false;
	}
}

static void end_broker(pid_t pid, int pid_fd)
{
	struct pollfd fd = {.fd = pid_fd, .events = POLLIN};
	int left_ms = STOP_TIMEOUT_MS;

	kill(pid, SIGTERM);
	while (waitpid(pid, NULL, WNOHANG) == 0) {
		if (left_ms <= 0) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			return;
		}
		poll(&fd, 1, 10);
		left_ms -= 10;
	}
}

static void become_guardian(const struct broker_process *broker, const char *path,
			    const char *const *arguments, int order_fd, int report_fd)
{
	pid_t guardian = getpid(), pid;
	struct pollfd order = {.fd = ORDER_FD, .events = POLLIN};
	int pid_fd = -1;

	setpgid(0, 0);
	for (size_t i = 0; i < N_FATAL_SIGNALS; i++)
		signal(fatal_signals[i], SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	keep_descriptors(broker, order_fd, report_fd);
	pid = fork();
	if (pid == 0)
		become_broker(broker, path, arguments, guardian);
	if (pid > 0) {
		pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
		if (write(REPORT_FD, &pid, sizeof(pid)) < 0 || !wait_for_order(pid, pid_fd))
			end_broker(pid, pid_fd);
	}
	/* If the broker has ended, the directory stays until the program has noticed. */
	close(REPORT_FD);
	poll(&order, 1, -1);
	remove_files(broker);
	_exit(0);
}

/* ---- The program's side ------------------------------------------------------------------- */

/* Stop the guardian and wait for it. Async-signal-safe. */
static void dismiss(const struct broker_process *broker)
{
	static const char stop = 's';

	/* A child of this process may hold the pipe open, too, so closing it is not enough. */
	if (write(broker->order_fd, &stop, 1) < 0 && errno != EPIPE)
		kill(broker->pid, SIGKILL);
	close(broker->order_fd);
	while (waitpid(broker->guardian, NULL, 0) < 0 && errno == EINTR)
		;
}

static void on_fatal_signal(int signal)
{
	int saved_errno = errno;

	for (int i = 0; i < MAX_BROKERS; i++)
		if (live[i])
			dismiss(live[i]);
	/* SA_RESETHAND: the signal now has its default action, once this handler has returned. */
	raise(signal);
	errno = saved_errno;
}

/* Block fatal signals, so that a broker is either listed or not started when one arrives. */
static void hold_signals(sigset_t *ret_old)
{
	sigset_t held;

	sigemptyset(&held);
	for (size_t i = 0; i < N_FATAL_SIGNALS; i++)
		sigaddset(&held, fatal_signals[i]);
	/* Raised by an order to a guardian that was killed. */
	sigaddset(&held, SIGPIPE);
	sigprocmask(SIG_BLOCK, &held, ret_old);
}

/* Restore the signal mask, discarding a pending SIGPIPE of our own. */
static void release_signals(const sigset_t *old)
{
	const struct timespec now = {0};
	sigset_t pipe;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	if (!sigismember(old, SIGPIPE))
		sigtimedwait(&pipe, NULL, &now);
	sigprocmask(SIG_SETMASK, old, NULL);
}

void broker_process_init(void)
{
	struct sigaction action = {.sa_handler = on_fatal_signal, .sa_flags = SA_RESETHAND}, old;

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < N_FATAL_SIGNALS; i++)
		sigaddset(&action.sa_mask, fatal_signals[i]);
	sigaddset(&action.sa_mask, SIGPIPE);
	for (size_t i = 0; i < N_FATAL_SIGNALS; i++) {
		/*
		 * An ignored signal does not end the program, for example in the background or
		 * under nohup(1).
		 */
		if (sigaction(fatal_signals[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
			continue;
		sigaction(fatal_signals[i], &action, NULL);
	}
}

/*
 * Find brokerd. In the build tree programs are in tools/ and broker/; installed ones are in bin/
 * and beside it.
 */
static int find_brokerd(char *ret_path, size_t path_bytes)
{
	static const char *const places[] = {
		"../broker/brokerd", "../../broker/brokerd", "brokerd",
		"../sbin/brokerd",   "../libexec/brokerd",   "../libexec/ringbroker/brokerd",
	};
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

/* Copy the end of the broker's log. */
static void read_log(const struct broker_process *broker, char *said, size_t said_bytes)
{
	off_t end = lseek(broker->log_fd, 0, SEEK_END);
	off_t start = end > (off_t)said_bytes - 1 ? end - ((off_t)said_bytes - 1) : 0;
	ssize_t n = pread(broker->log_fd, said, said_bytes - 1, start);

	said[n > 0 ? n : 0] = '\0';
}

/* Return: 0; -ECHILD: the broker ended; -ETIMEDOUT. */
static int wait_for_socket(struct broker_process *broker)
{
	uint64_t deadline_ns = clock_now_ns() + START_TIMEOUT_NS;
	struct pollfd report = {.fd = broker->report_fd, .events = POLLIN};
	ssize_t n;

	while (!socket_answers(broker->socket)) {
		if (clock_now_ns() > deadline_ns)
			return -ETIMEDOUT;
		if (poll(&report, 1, POLL_MS) <= 0)
			continue;
		n = read(broker->report_fd, &broker->pid, sizeof(broker->pid));
		if (n != sizeof(broker->pid) && !(n < 0 && errno == EINTR))
			return -ECHILD;
	}
	/* The process id is reported before the socket answers. */
	if (broker->pid < 0 &&
	    read(broker->report_fd, &broker->pid, sizeof(broker->pid)) != sizeof(broker->pid))
		return -ECHILD;
	return 0;
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
	hold_signals(&old);
	if (broker->guardian > 0) {
		dismiss(broker);
		set_live(broker, NULL);
	}
	release_signals(&old);
	close_fd(broker->report_fd);
	close_fd(broker->log_fd);
	free(broker);
	return NULL;
}

DEFINE_CLEANUP(struct broker_process *, broker_process_free)

/*
 * @is_named: @temporary is the value of TMPDIR.
 * Return: 0, or -ENOTDIR with a sentence.
 */
static int make_directory(struct broker_process *broker, const char *temporary, bool is_named,
			  char *said, size_t said_bytes)
{
	snprintf(broker->directory, sizeof(broker->directory), "%s/ringbroker-XXXXXX", temporary);
	if (mkdtemp(broker->directory))
		return 0;
	snprintf(said, said_bytes, "cannot make a folder in %s%s: %s\n", temporary,
		 is_named ? ", which TMPDIR names" : "", strerror(errno));
	return -ENOTDIR;
}

/* Make the broker's directory and the guardian, with signals blocked. */
static int start(struct broker_process *broker, const char *path, const char *const *arguments,
		 char *said, size_t said_bytes)
{
	_cleanup_(close_fdp) int order_fd = -1, report_fd = -1;
	const char *temporary = getenv("TMPDIR");
	/* A long TMPDIR is not used, since socket paths are limited. */
	const bool is_named = temporary && temporary[0] && strlen(temporary) <= MAX_TMPDIR_BYTES;
	int fds[2], r;

	broker->log_fd = memfd_create("brokerd-log", MFD_CLOEXEC);
	if (broker->log_fd < 0 || fcntl(broker->log_fd, F_SETFL, O_APPEND) < 0)
		return -errno;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	broker->report_fd = fds[0];
	report_fd = fds[1];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	order_fd = fds[0];
	broker->order_fd = fds[1];

	r = make_directory(broker, is_named ? temporary : "/tmp", is_named, said, said_bytes);
	if (r)
		return r;
	snprintf(broker->socket, sizeof(broker->socket), "%s/socket", broker->directory);
	broker->guardian = fork();
	if (broker->guardian == 0)
		become_guardian(broker, path, arguments, order_fd, report_fd);
	if (broker->guardian < 0) {
		r = -errno;
		rmdir(broker->directory);
		return r;
	}
	set_live(NULL, broker);
	return 0;
}

int broker_process_try(const char *const *arguments, int cpu, struct broker_process **ret,
		       char *said, size_t said_bytes)
{
	_cleanup_(broker_process_freep) struct broker_process *broker = NULL;
	char path[PATH_MAX];
	sigset_t signals;
	cpu_set_t cpus;
	int r;

	said[0] = '\0';
	r = find_brokerd(path, sizeof(path));
	if (r)
		return r;

	broker = calloc(1, sizeof(*broker));
	if (!broker)
		return -ENOMEM;
	broker->pid = broker->order_fd = broker->report_fd = broker->log_fd = -1;
	hold_signals(&signals);
	r = start(broker, path, arguments, said, said_bytes);
	if (r)
		broker->order_fd = close_fd(broker->order_fd);
	release_signals(&signals);
	if (r)
		return r;

	r = wait_for_socket(broker);
	if (r) {
		read_log(broker, said, said_bytes);
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

int broker_process_new(const char *const *arguments, int cpu, struct broker_process **ret)
{
	char said[4096];
	int r = broker_process_try(arguments, cpu, ret, said, sizeof(said));

	if (r)
		fputs(said, stderr);
	return r;
}

const char *broker_process_socket(const struct broker_process *broker)
{
	return broker->socket;
}

pid_t broker_process_pid(const struct broker_process *broker)
{
	return broker->pid;
}
