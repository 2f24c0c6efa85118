/* SPDX-License-Identifier: MIT */
/* Two processes that wake each other through eventfds */
#include "ping-pong.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/cleanup.h"

static void answer(const struct ping_pong *ping_pong, int cpu, pid_t parent)
{
	eventfd_t value;
	cpu_set_t cpus;

	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	while (eventfd_read(ping_pong->ping_fd, &value) == 0)
		if (eventfd_write(ping_pong->pong_fd, 1) < 0)
			break;
	_exit(1);
}

void ping_pong_deinit(struct ping_pong *ping_pong)
{
	if (ping_pong->pid > 0) {
		kill(ping_pong->pid, SIGKILL);
		waitpid(ping_pong->pid, NULL, 0);
	}
	close_fd(ping_pong->ping_fd);
	close_fd(ping_pong->pong_fd);
	*ping_pong = (struct ping_pong)PING_PONG_INIT;
}

int ping_pong_init(struct ping_pong *ping_pong, int cpu)
{
	pid_t parent = getpid();
	int r;

	*ping_pong = (struct ping_pong)PING_PONG_INIT;
	ping_pong->ping_fd = eventfd(0, EFD_CLOEXEC);
	ping_pong->pong_fd = eventfd(0, EFD_CLOEXEC);
	if (ping_pong->ping_fd < 0 || ping_pong->pong_fd < 0)
		goto error;
	ping_pong->pid = fork();
	if (ping_pong->pid < 0)
		goto error;
	if (ping_pong->pid == 0)
		answer(ping_pong, cpu, parent);
	return 0;

error:
	r = -errno;
	ping_pong_deinit(ping_pong);
	return r;
}

int ping_pong_once(const struct ping_pong *ping_pong)
{
	eventfd_t value;

	if (eventfd_write(ping_pong->ping_fd, 1) < 0)
		return -errno;
	while (eventfd_read(ping_pong->pong_fd, &value) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}
