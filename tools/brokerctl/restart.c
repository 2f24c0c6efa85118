/* SPDX-License-Identifier: MIT */
/*
 * brokerctl restart: the next broker takes the place of the running one
 *
 * The broker answers when it has drained, and is gone a moment later. From then on only the next
 * broker can tell whether the restart succeeded, so this command asks at the same socket until one
 * answers that began to serve later. Sessions re-attach by themselves; the command waits for them
 * for a while only, because a client may be stopped.
 *
 * A signal that ends this command cancels the restart as long as the broker waits for tasks: the
 * handler ends the connection, on which the broker would answer. Then the broker tells whether it
 * goes on.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <ringbroker/admin.h>

#include "command.h"
#include "monitor/json.h"
#include "monitor/text.h"
#include "util/clock.h"
#include "util/plural.h"

static const double default_drain_s = 5, most_drain_s = 3600;

/* Time for the check of the next broker, beside draining */
static const uint64_t check_ns = 15000000000;
/* Time until the next broker answers, and then until sessions have re-attached */
static const uint64_t start_ns = 30000000000, sessions_ns = 1000000000;
/* Time in which a broker that answers notices the end of another connection */
static const uint64_t notice_ns = 2000000000;

struct restarting {
	struct control *control;
	struct rbk_admin_restart before, last, after;
};

/* A signal wants this command to end */
static volatile sig_atomic_t is_interrupted;
/* The connection that waits for the broker's answer; -1: none */
static volatile sig_atomic_t waiting_fd = -1;

static void on_signal(int number)
{
	const int fd = waiting_fd, saved_errno = errno;

	is_interrupted = 1;
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
	errno = saved_errno;
}

/* Handle signals that end this command, but those that are ignored, as in a background job. */
static void catch_signals(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;

	sigemptyset(&action.sa_mask);
	for (unsigned int i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
}

static void pause_a_moment(void)
{
	const struct timespec pause = {.tv_nsec = 2000000};

	nanosleep(&pause, NULL);
}

/* Ask whichever broker is there now. Return: 0; negative errno with a sentence. */
static int ask(struct restarting *restarting, struct rbk_admin_restart *ret,
	       struct rbk_error *error)
{
	struct control *control = restarting->control;
	char path[512];
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = path,
		.name = "brokerctl",
		.timeout_ns = control->timeout_ns,
	};
	int r = 0;

	if (!control->rbk) {
		control_admin_path(control, path, sizeof(path));
		r = rbk_admin_connect(&options, &control->rbk, error);
	}
	if (r == 0)
		r = rbk_admin_restart(control->rbk, RBK_RESTART_ASK, 0, ret, error);
	if (r)
		control_disconnect(control);
	return r;
}

/* Have the broker drain. Return: as rbk_admin_restart(). */
static int begin(struct restarting *restarting, uint32_t drain_ms, struct rbk_error *error)
{
	struct rbk *rbk = restarting->control->rbk;
	int r;

	/* Only the library closes the descriptor, not before the request has ended. */
	waiting_fd = rbk_fd(rbk);
	r = is_interrupted
		    ? -ECONNRESET
		    : rbk_admin_restart(rbk, RBK_RESTART_BEGIN, drain_ms, &restarting->last, error);
	waiting_fd = -1;
	return r;
}

/*
 * Say what has become of an interrupted restart. A broker that restarts names no cause of a failed
 * restart; when it sees the end of the connection, it names that.
 * Return: EXIT_*.
 */
static int say_interrupted(struct restarting *restarting)
{
	const uint64_t begin_ns = clock_now_ns();
	struct rbk_error error;
	bool is_same;
	int r;

	for (;;) {
		error.text[0] = '\0';
		r = ask(restarting, &restarting->after, &error);
		is_same = r == 0 && restarting->after.ready_ns == restarting->before.ready_ns;
		if (r == 0 && !is_same)
			return control_fail(EXIT_FAILED,
					    "interrupted too late: the next broker has taken over");
		/* Without a cause: it has not received the request. */
		if (is_same && (error.text[0] || clock_now_ns() - begin_ns >= notice_ns))
			return control_fail(EXIT_FAILED,
					    "the restart is cancelled: the same broker goes on");
		if (clock_now_ns() - begin_ns >= start_ns)
			return control_fail(
				EXIT_NO_BROKER,
				"interrupted, and no broker answers after %g s: %s: see "
				"brokerd's log",
				(double)start_ns / 1e9, text_name(error.text));
		pause_a_moment();
	}
}

/* Wait until the next broker answers. Return: EXIT_*. */
static int await_next(struct restarting *restarting)
{
	const uint64_t end_ns = clock_now_ns() + start_ns;
	struct rbk_error error = {""};
	int r;

	for (;;) {
		if (is_interrupted)
			return control_fail(EXIT_FAILED,
					    "interrupted too late: the next broker takes over");
		r = ask(restarting, &restarting->after, &error);
		if (r == 0 && restarting->after.ready_ns != restarting->before.ready_ns)
			return EXIT_OK;
		if (r == 0 && error.text[0])
			return control_fail(EXIT_FAILED, "%s; the same broker goes on",
					    text_name(error.text));
		/* The same broker may still be about to go. */
		if (clock_now_ns() >= end_ns)
			return control_fail(EXIT_NO_BROKER,
					    "the next broker does not answer after %g s%s%s: see "
					    "brokerd's log",
					    (double)start_ns / 1e9, r ? ": " : "",
					    r ? text_name(error.text) : "");
		pause_a_moment();
	}
}

static void await_sessions(struct restarting *restarting)
{
	const uint64_t end_ns = clock_now_ns() + sessions_ns;
	struct rbk_error error;

	while (restarting->after.n_restored < restarting->last.n_sessions &&
	       clock_now_ns() < end_ns && !is_interrupted) {
		pause_a_moment();
		/* A broker that dies now is another matter. */
		if (ask(restarting, &restarting->after, &error))
			return;
	}
}

/* Return the time from the last admission until clients were served again. */
static uint64_t gap_ns(const struct restarting *restarting)
{
	const struct rbk_admin_restart *after = &restarting->after;
	const uint64_t end_ns =
		after->restored_ns > after->ready_ns ? after->restored_ns : after->ready_ns;

	return end_ns > restarting->last.held_ns ? end_ns - restarting->last.held_ns : 0;
}

static void print_restart(const struct restarting *restarting)
{
	const struct rbk_admin_restart *last = &restarting->last, *after = &restarting->after;

	printf("drained %llu task%s in %s; %llu task%s left to the next broker\n",
	       (unsigned long long)last->n_drained, plural(last->n_drained),
	       text_ns((double)last->drain_ns), (unsigned long long)last->n_left,
	       last->n_left == 1 ? " was" : "s were");
	printf("restarted: no task was admitted for %s", text_ns((double)gap_ns(restarting)));
	if (last->n_sessions > 0)
		printf("; %u of %u session%s with rings came back", after->n_restored,
		       last->n_sessions, plural(last->n_sessions));
	putchar('\n');
}

static void print_json(const struct restarting *restarting)
{
	json_begin();
	json_string("type", "restart");
	json_unsigned("drained", restarting->last.n_drained);
	json_unsigned("drain_ns", restarting->last.drain_ns);
	json_unsigned("left", restarting->last.n_left);
	json_unsigned("gap_ns", gap_ns(restarting));
	json_unsigned("sessions", restarting->last.n_sessions);
	json_unsigned("sessions_back", restarting->after.n_restored);
	json_end();
}

int run_restart(struct control *control, const struct arguments *arguments)
{
	struct restarting restarting = {.control = control};
	const char *drain = arguments->values[OPT_DRAIN];
	struct rbk_error error = {""};
	double drain_s = default_drain_s;
	uint64_t least_ns;
	int status, r;

	if (drain && !control_seconds(drain, most_drain_s, &drain_s))
		return control_misuse(arguments, "--drain takes 0 to %g seconds, not %s",
				      most_drain_s, text_name(drain));
	least_ns = (uint64_t)(drain_s * 1e9) + check_ns;
	if (control->timeout_ns < least_ns)
		control->timeout_ns = least_ns;
	status = control_connect_to_change(control);
	if (status)
		return status;
	r = ask(&restarting, &restarting.before, &error);
	catch_signals();
	if (r == 0)
		r = begin(&restarting, (uint32_t)(drain_s * 1e3), &error);
	if (r && !(r == -ECONNRESET && is_interrupted))
		return control_refused(control, r, &error);
	control_disconnect(control);
	status = r ? say_interrupted(&restarting) : await_next(&restarting);
	if (status)
		return status;
	await_sessions(&restarting);
	if (arguments->values[OPT_JSON])
		print_json(&restarting);
	else
		print_restart(&restarting);
	return EXIT_OK;
}
