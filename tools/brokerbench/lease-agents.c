/* SPDX-License-Identifier: MIT */
/* Agents of time-lease: see lease-agents.h. */
#include "lease-agents.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/clock.h"

/* Time for which an answer may be late; a driver compiles for the first one. */
static const uint64_t patience_ns = 60000000000u;

struct lease_agent {
	pid_t pid;
	int fd;
	bool has_layer;
	bool is_cpu;
	char said[256];
};

/* ---- The child ---- */

static _Noreturn void become_program(const struct lease_program *program, int fd, pid_t parent)
{
	static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

	/* The parent's handlers would stop its brokers. */
	for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
		signal(handled[i], SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	lease_program_run(program, fd);
}

/* ---- The parent ---- */

/* Note why the agent has ended without a word. */
static int say_end(struct lease_agent *agent)
{
	const char *kind = agent->has_layer ? "with the layer" : "without the layer";
	int status = 0;

	kill(agent->pid, SIGKILL);
	while (waitpid(agent->pid, &status, 0) < 0 && errno == EINTR)
		;
	agent->pid = -1;
	if (WIFSIGNALED(status))
		snprintf(agent->said, sizeof(agent->said), "a program %s was killed by signal %d",
			 kind, WTERMSIG(status));
	else
		snprintf(agent->said, sizeof(agent->said), "a program %s ended with status %d",
			 kind, WEXITSTATUS(status));
	return -ECHILD;
}

/* Note that the agent does not answer, and end it. */
static int say_late(struct lease_agent *agent)
{
	say_end(agent);
	snprintf(agent->said, sizeof(agent->said), "a program %s did not answer in time",
		 agent->has_layer ? "with the layer" : "without the layer");
	return -ETIMEDOUT;
}

/* Read all of @bytes, at most until @end_ns. */
static int take(struct lease_agent *agent, void *data, size_t bytes, uint64_t end_ns)
{
	struct pollfd ready = {.fd = agent->fd, .events = POLLIN};
	uint64_t now_ns;
	ssize_t n;

	while (bytes > 0) {
		now_ns = clock_now_ns();
		if (now_ns >= end_ns)
			return say_late(agent);
		if (poll(&ready, 1, (int)((end_ns - now_ns) / 1000000u) + 1) <= 0)
			continue;
		n = recv(agent->fd, data, bytes, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return say_end(agent);
		data = (char *)data + n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Await an answer that takes @ns, and add its samples. */
static int await_answer(struct lease_agent *agent, uint64_t ns, struct samples *samples)
{
	const uint64_t end_ns = clock_now_ns() + ns + patience_ns;
	struct lease_answer answer;
	int r = take(agent, &answer, sizeof(answer), end_ns);

	if (r)
		return r;
	if (answer.error) {
		memcpy(agent->said, answer.said, sizeof(agent->said));
		return answer.error;
	}
	agent->is_cpu = answer.is_cpu;
	if (answer.n == 0)
		return 0;
	if (samples_reserve(samples, answer.n)) {
		snprintf(agent->said, sizeof(agent->said), "no memory");
		return -ENOMEM;
	}
	r = take(agent, samples->values + samples->n, answer.n * sizeof(*samples->values), end_ns);
	if (!r)
		samples->n += answer.n;
	return r;
}

static int tell(struct lease_agent *agent, enum lease_action action, uint64_t ns)
{
	const struct lease_command command = {.action = action, .ns = ns};

	/* It fits into the socket's buffer. */
	if (send(agent->fd, &command, sizeof(command), MSG_NOSIGNAL) != sizeof(command))
		return say_end(agent);
	return 0;
}

int lease_agent_new(const struct lease_program *program, struct lease_agent **ret, char *said,
		    size_t said_bytes)
{
	_cleanup_(lease_agent_freep) struct lease_agent *agent = calloc(1, sizeof(*agent));
	const pid_t parent = getpid();
	int fds[2], r;

	snprintf(said, said_bytes, "no process can be started");
	if (!agent)
		return -ENOMEM;
	agent->pid = agent->fd = -1;
	agent->has_layer = program->socket != NULL;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	agent->fd = fds[0];
	/* A program that fails writes to standard error, but must not write what is buffered. */
	agent->pid = fork();
	if (agent->pid == 0) {
		close(fds[0]);
		become_program(program, fds[1], parent);
	}
	r = -errno;
	close(fds[1]);
	if (agent->pid < 0)
		return r;
	r = await_answer(agent, 0, NULL);
	if (r)
		snprintf(said, said_bytes, "%s", agent->said);
	else
		*ret = steal_ptr(agent);
	return r;
}

struct lease_agent *lease_agent_free(struct lease_agent *agent)
{
	struct pollfd end = {.fd = -1, .events = POLLIN};

	if (!agent)
		return NULL;
	if (agent->pid > 0) {
		/* The program destroys its device and ends; later agents hold the socket, too. */
		shutdown(agent->fd, SHUT_RDWR);
		end.fd = (int)syscall(SYS_pidfd_open, agent->pid, 0);
		if (poll(&end, 1, (int)(patience_ns / 1000000u)) <= 0)
			kill(agent->pid, SIGKILL);
		while (waitpid(agent->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	close_fd(end.fd);
	close_fd(agent->fd);
	free(agent);
	return NULL;
}

bool lease_agent_is_cpu(const struct lease_agent *agent)
{
	return agent->is_cpu;
}

const char *lease_agent_said(const struct lease_agent *agent)
{
	return agent->said;
}

int lease_agent_measure(struct lease_agent *agent, enum lease_action action, uint64_t ns,
			struct samples *samples)
{
	int r = tell(agent, action, ns);

	return r ? r : await_answer(agent, ns, samples);
}

int lease_agent_work(struct lease_agent *agent)
{
	return tell(agent, LEASE_RATE_BEGIN, 0);
}

int lease_agent_rest(struct lease_agent *agent, struct samples *samples)
{
	int r = tell(agent, LEASE_RATE_END, 0);

	return r ? r : await_answer(agent, 0, samples);
}
