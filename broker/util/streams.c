/* SPDX-License-Identifier: MIT */
/* Substitutes for missing standard streams. */
#include "util/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void streams_init(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		int made;

		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		/* The file gets the lowest free number, which is fd. */
		made = open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR);
		if (made < 0)
			made = open("/", O_RDONLY | O_DIRECTORY);
		if (made != fd)
			abort();
	}
	signal(SIGXFSZ, SIG_IGN);
}

int streams_finish(const char *program, int status)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	/* The errno of an earlier write is no longer known. */
	fprintf(stderr, "%s: cannot write%s%s\n", program, errno ? ": " : " everything",
		errno ? strerror(errno) : "");
	return EXIT_FAILURE;
}
