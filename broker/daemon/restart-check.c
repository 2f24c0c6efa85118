/* SPDX-License-Identifier: MIT */
/*
 * The check of the next program: see restart-check.h
 *
 * A thread of its own starts the process, because execve() may wait for a disk, and the setup
 * thread waits for that thread. The steward starts the thread, so that it has no filter of system
 * calls. It does not wait itself, because the reactor waits for the steward when brokerd stops.
 *
 * The reactor waits for the process: for what it prints, for its end (a pidfd), and for the time
 * limit. The process may close its standard error long before it ends, or leave it to a child, so
 * only its end counts.
 */
#include "daemon/restart-check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/steward.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "util/cleanup.h"
#include "util/crash.h"
#include "util/error.h"
#include "util/thread.h"

enum {
	CHECK_S = 10,
	REASON_BYTES = 384,
	MOST_READS =
		16, /* in one turn; what the process prints is of no use beyond the first line */
};

struct restart_check {
	struct restart_check_options options;
	struct offload_job job;
	struct loop_timer *timer;
	struct loop_watch *exit_watch, *text_watch;
	pthread_t starter; /* the thread that starts the process */
	pid_t pid;         /* 0: none, or it has been waited for */
	int exit_fd, text_fd;
	int error_fd;        /* the process's standard error, until it has started */
	int error;           /* why the process could not be started; 0: it was */
	const char *give_up; /* why the check was given up; NULL: it was not */
	bool is_late;
	size_t n; /* bytes of reason[] */
	char reason[REASON_BYTES];
};

static void check_delete(struct restart_check *check)
{
	loop_timer_free(check->timer);
	loop_unwatch(check->exit_watch);
	loop_unwatch(check->text_watch);
	close_fd(check->exit_fd);
	close_fd(check->text_fd);
	free(check);
}

/* The steward's. @context: the check. */
static void send_kill(void *context)
{
	const struct restart_check *check = context;

	kill(check->pid, SIGKILL);
}

static void check_kill(struct restart_check *check)
{
	if (check->pid > 0)
		steward_do(check->options.steward, send_kill, check);
}

/* --- The setup thread, the steward, and the thread that starts the process --- */

/* Start the process with ->error_fd as standard error. Return: 0 with ->pid; an errno. */
static int spawn(struct restart_check *check)
{
	const struct restart_check_options *options = &check->options;
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
		r = posix_spawn_file_actions_adddup2(&actions, check->error_fd, STDERR_FILENO);
	if (r == 0)
		r = posix_spawnattr_setsigmask(&attributes, &none);
	if (r == 0)
		r = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	if (r == 0)
		r = posix_spawn(&check->pid, options->path, &actions, &attributes, options->argv,
				options->environment);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

/* Return: as spawn(). */
static void *start_main(void *data)
{
	crash_thread.is_own = true;
	return (void *)(intptr_t)spawn(data);
}

/* The steward's. @context: the check. */
static void start_thread(void *context)
{
	struct restart_check *check = context;

	check->error = -thread_start(&check->starter, "rb-start", start_main, check);
}

static void start(struct restart_check *check)
{
	void *error;

	steward_do(check->options.steward, start_thread, check);
	if (check->error)
		return;
	pthread_join(check->starter, &error);
	check->error = (int)(intptr_t)error;
}

static void check_run(struct offload_job *job)
{
	struct restart_check *check = container_of(job, struct restart_check, job);
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0) {
		check->error = errno;
		return;
	}
	check->text_fd = fds[0];
	check->error_fd = fds[1];
	/* The other end is the process's, which may expect its writes to wait. */
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		check->error = errno;
	else
		start(check);
	close(fds[1]);
	if (check->error)
		return;
	check->exit_fd = (int)syscall(SYS_pidfd_open, check->pid, 0);
	if (check->exit_fd < 0)
		check->error = errno;
}

/* --- The reactor --- */

/* Call done(), and free the check. */
static void finish(struct restart_check *check, const char *why)
{
	check->options.done(check->options.context, why);
	check_delete(check);
}

/*
 * Read what the process has printed, and keep the beginning.
 * Return: false if the pipe has ended.
 */
static bool read_text(struct restart_check *check)
{
	char rest[4096];
	ssize_t r = 0;

	for (unsigned int i = 0; i < MOST_READS; i++) {
		size_t left = sizeof(check->reason) - 1 - check->n;

		r = left > 0 ? read(check->text_fd, check->reason + check->n, left)
			     : read(check->text_fd, rest, sizeof(rest));
		if (r <= 0 && (r == 0 || errno != EINTR))
			break;
		if (r > 0 && left > 0)
			check->n += (size_t)r;
	}
	return r > 0 || (r < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Return the first line that is not empty. */
static const char *first_line(struct restart_check *check)
{
	char *line;

	check->reason[check->n] = '\0';
	line = check->reason + strspn(check->reason, "\n");
	line[strcspn(line, "\n")] = '\0';
	return line;
}

static void on_text(void *data, uint32_t events)
{
	struct restart_check *check = data;

	if (read_text(check))
		loop_rewatch(check->text_watch);
	else
		check->text_watch = loop_unwatch(check->text_watch);
}

static void on_exit_seen(void *data, uint32_t events)
{
	struct restart_check *check = data;
	const char *path = check->options.path;
	char why[REASON_BYTES + 128];
	int status = 0, error = 0;
	pid_t pid = waitpid(check->pid, &status, WNOHANG);

	if (pid == 0) {
		loop_rewatch(check->exit_watch);
		return;
	}
	if (pid < 0)
		error = errno;
	check->pid = 0;
	read_text(check);
	if (check->give_up)
		snprintf(why, sizeof(why), "%s", check->give_up);
	else if (check->is_late)
		snprintf(why, sizeof(why), "%.300s did not check its configuration in %d s", path,
			 CHECK_S);
	else if (error)
		snprintf(why, sizeof(why), "the result of the check of %.300s is not known: %s",
			 path, strerror(error));
	else if (WIFSIGNALED(status))
		snprintf(why, sizeof(why),
			 "%.300s was ended by signal %d when it checked its configuration", path,
			 WTERMSIG(status));
	else if (status != 0)
		snprintf(why, sizeof(why), "the next broker would not start: %s",
			 first_line(check));
	else
		why[0] = '\0';
	finish(check, why[0] ? why : NULL);
}

static void on_timer(void *data)
{
	struct restart_check *check = data;

	check->is_late = true;
	check_kill(check);
}

/* Watch the process that the setup thread has started. Return: 0; -ENOMEM. */
static int watch(struct restart_check *check)
{
	struct loop *loop = check->options.loop;
	int r = loop_watch_once(loop, check->exit_fd, POLLIN, on_exit_seen, check,
				&check->exit_watch);

	if (r == 0)
		r = loop_watch_once(loop, check->text_fd, POLLIN, on_text, check,
				    &check->text_watch);
	if (r)
		return error_fold(r);
	loop_timer_arm(check->timer, CHECK_S * 1000000000ull);
	if (check->give_up)
		check_kill(check);
	return 0;
}

static void check_started(struct offload_job *job)
{
	struct restart_check *check = container_of(job, struct restart_check, job);
	char why[REASON_BYTES + 128];
	int error = check->error;

	if (error == 0)
		error = -watch(check);
	if (error == 0)
		return;
	if (check->pid > 0) {
		check_kill(check);
		while (waitpid(check->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	snprintf(why, sizeof(why), "cannot execute %.300s: %s", check->options.path,
		 strerror(error));
	finish(check, why);
}

struct restart_check *restart_check_new(const struct restart_check_options *options)
{
	struct restart_check *check = calloc(1, sizeof(*check));

	if (!check)
		return NULL;
	check->options = *options;
	check->exit_fd = check->text_fd = -1;
	if (loop_timer_new(options->loop, on_timer, check, &check->timer)) {
		free(check);
		return NULL;
	}
	check->job = (struct offload_job){
		.run = check_run,
		.done = check_started,
		.cause = OFFLOAD_FILE,
	};
	offload_submit(options->offload, &check->job);
	return check;
}

void restart_check_give_up(struct restart_check *check, const char *why)
{
	check->give_up = why;
	if (check->exit_watch)
		check_kill(check);
}
