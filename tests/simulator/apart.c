/* SPDX-License-Identifier: MIT */
/* Rounds in processes of their own: see apart.h */
#include "simulator/apart.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Longest time of a round, in seconds of a processor */
enum { ROUND_SECONDS = 60 };

void sim_fix_addresses(char **argv)
{
	if (personality(0xffffffff) & ADDR_NO_RANDOMIZE)
		return;
	/* Containers may refuse it: without the check, this program would start itself for ever. */
	if (personality((unsigned long)personality(0xffffffff) | ADDR_NO_RANDOMIZE) >= 0)
		execv("/proc/self/exe", argv);
	fputs("addresses stay random: a seed may not repeat its run\n", stderr);
}

static void remove_folder(const char *folder)
{
	static const char *const names[] = {"socket", "socket.lock", "brokerd.conf"};
	char path[128];

	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
}

bool sim_run_apart(void (*fn)(const char *folder, void *data), void *data)
{
	const struct rlimit limit = {ROUND_SECONDS, ROUND_SECONDS + 1};
	/* A disk is slow. */
	char in_memory[] = "/dev/shm/faultsim-XXXXXX", in_tmp[] = "/tmp/faultsim-XXXXXX";
	char *folder = mkdtemp(in_memory);
	pid_t pid;
	int status = 0;

	if (!folder)
		folder = mkdtemp(in_tmp);
	if (!folder) {
		perror("cannot make a folder in /tmp");
		exit(2);
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		setrlimit(RLIMIT_CPU, &limit);
		fn(folder, data);
		fflush(stdout);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	remove_folder(folder);
	if (WIFSIGNALED(status))
		fprintf(stderr, "the round was ended by signal %d (%s)\n", WTERMSIG(status),
			WTERMSIG(status) == SIGXCPU ? "it takes too long"
						    : strsignal(WTERMSIG(status)));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
