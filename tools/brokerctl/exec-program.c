/* SPDX-License-Identifier: MIT */
/*
 * brokerctl exec: the program as a child process
 *
 * The program is in brokerctl's process group, so the terminal treats it as if it had been started
 * alone. The program receives the terminal's signals directly: those come from the kernel.
 * brokerctl passes on only signals that a process sent to it. When the terminal stops the program,
 * brokerctl stops too, so that the shell notices, and is continued together with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "exec.h"
#include "monitor/text.h"
#include "util/clock.h"

static const int passed_on[] = {
	SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGCONT, SIGTSTP,
};

enum { TICK_MS = 1000 };

/*
 * Set the variable to the program's process if it names brokerctl's: a service manager names the
 * process that its sockets and watchdog are meant for.
 */
static void take_over(const char *variable)
{
	const char *value = getenv(variable);
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)getppid());
	if (!value || strcmp(value, pid) != 0)
		return;
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv(variable, pid, 1);
}

/* Become the program, in the new process. */
static void become(const struct exec_program *program, const sigset_t *mask, int report)
{
	int error;

	signal(SIGPIPE, program->sigpipe);
	program->prepare(program->data);
	take_over("LISTEN_PID");
	take_over("WATCHDOG_PID");
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(program->argv[0], program->argv);
	error = errno;
	if (write(report, &error, sizeof(error)) < 0)
		_exit(EXEC_FAILED);
	_exit(error == ENOENT ? EXEC_NOT_FOUND : EXEC_NOT_EXECUTABLE);
}

/*
 * Start the program.
 * Return: EXIT_OK with its process in *@ret_pid, or EXEC_* after an error message.
 */
static int start(const struct exec_program *program, const sigset_t *mask, pid_t *ret_pid)
{
	int ends[2], error = 0;
	ssize_t n;

	if (pipe2(ends, O_CLOEXEC))
		return control_fail(EXEC_FAILED, "cannot make a pipe: %s", strerror(errno));
	fflush(NULL);
	*ret_pid = fork();
	if (*ret_pid == 0)
		become(program, mask, ends[1]);
	close(ends[1]);
	if (*ret_pid < 0) {
		close(ends[0]);
		return control_fail(EXEC_FAILED, "cannot fork: %s", strerror(errno));
	}
	do
		n = read(ends[0], &error, sizeof(error));
	while (n < 0 && errno == EINTR);
	close(ends[0]);
	if (n != sizeof(error))
		return EXIT_OK;
	while (waitpid(*ret_pid, NULL, 0) < 0 && errno == EINTR)
		;
	return control_fail(error == ENOENT ? EXEC_NOT_FOUND : EXEC_NOT_EXECUTABLE,
			    "cannot run %s: %s", text_name(program->argv[0]), strerror(error));
}

/*
 * Stop as the program was stopped. The kernel discards the signal in an orphaned process group,
 * where no process could continue brokerctl.
 */
static void stop_too(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

/*
 * Reap the program's state changes.
 * Return: true if the program has ended, with its exit status in *@ret_status.
 */
static bool look(pid_t pid, int *ret_status)
{
	int status;

	while (waitpid(pid, &status, WNOHANG | WUNTRACED) == pid) {
		if (WIFEXITED(status) || WIFSIGNALED(status)) {
			*ret_status =
				WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			return true;
		}
		if (WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP)
			stop_too();
	}
	return false;
}

static void pass_on(pid_t pid, int signals)
{
	struct signalfd_siginfo info;

	while (read(signals, &info, sizeof(info)) == sizeof(info))
		if (info.ssi_signo != SIGCHLD && info.ssi_code != SI_KERNEL)
			kill(pid, (int)info.ssi_signo);
}

/* Return true if a tick is due. The first one is due at once. */
static bool is_due(uint64_t *next_ms)
{
	const uint64_t now_ms = clock_now_ns() / 1000000;

	if (now_ms < *next_ms)
		return false;
	*next_ms = now_ms + TICK_MS;
	return true;
}

static int wait_for(const struct exec_program *program, pid_t pid, int signals)
{
	int status = EXEC_FAILED;
	uint64_t next_ms = 0;

	while (!look(pid, &status)) {
		int lost = program->fd(program->data);
		struct pollfd fds[] = {{.fd = signals, .events = POLLIN}, {.fd = lost}};
		int n;

		if (program->tick && is_due(&next_ms))
			program->tick(program->data);
		n = poll(fds, 2, lost < 0 || program->tick ? TICK_MS : -1);
		if (n > 0 && fds[0].revents)
			pass_on(pid, signals);
		if ((n == 0 && lost < 0) || (n > 0 && fds[1].revents))
			program->mend(program->data);
	}
	return status;
}

int exec_program_run(const struct exec_program *program, bool *ret_was_run)
{
	sigset_t set, mask;
	int signals, status;
	pid_t pid = 0;

	sigemptyset(&set);
	for (unsigned int i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(&set, passed_on[i]);
	sigaddset(&set, SIGCHLD);
	/* A process that ignores SIGCHLD does not receive the exit status of children. */
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_BLOCK, &set, &mask);
	*ret_was_run = false;
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		return control_fail(EXEC_FAILED, "cannot receive signals: %s", strerror(errno));
	status = start(program, &mask, &pid);
	*ret_was_run = status == EXIT_OK;
	if (*ret_was_run)
		status = wait_for(program, pid, signals);
	close(signals);
	return status;
}
