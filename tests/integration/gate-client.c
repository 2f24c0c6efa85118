/* SPDX-License-Identifier: MIT */
/*
 * gate-client: the program that device-gate.py runs behind a gate
 *
 *     gate-client open
 *         Prints "ready", and answers each line of its standard input with one line:
 *         open NODE    opens the node: opened; closed (EPERM); passed (no driver); or the error
 *         child NODE   has a child open it
 *         mknod PATH   makes a GPU's node at PATH, and removes it
 *         move CGROUP  moves into CGROUP
 *         below ROOT   makes a cgroup below its own, and moves into it
 *         user UID     becomes that user
 *     gate-client tell SOCKET CGROUP...
 *         Opens a lease of 1 MiB, and names each CGROUP to the broker as its cgroup. Prints the
 *         replies, and ends with its standard input.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
#include <ringbroker/lease.h>

static const char *result(int r)
{
	if (r >= 0)
		return "opened";
	if (errno == EPERM)
		return "closed";
	return errno == ENXIO || errno == ENODEV ? "passed" : strerror(errno);
}

static const char *open_node(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	const char *text = result(fd);

	if (fd >= 0)
		close(fd);
	return text;
}

static const char *make_node(const char *path)
{
	if (mknod(path, S_IFCHR | 0666, makedev(226, 77)))
		return result(-1);
	unlink(path);
	return "passed";
}

static const char *move(const char *cgroup)
{
	char path[2 * PATH_MAX + 16];
	int fd, n;

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : (int)write(fd, "0", 1);
	if (fd >= 0)
		close(fd);
	return n == 1 ? "moved" : strerror(errno);
}

static const char *move_below(const char *root)
{
	char line[PATH_MAX] = "", path[2 * PATH_MAX];
	FILE *file = fopen("/proc/self/cgroup", "re");

	while (file && fgets(line, sizeof(line), file) && strncmp(line, "0::/", 4) != 0)
		;
	if (file)
		fclose(file);
	line[strcspn(line, "\n")] = '\0';
	snprintf(path, sizeof(path), "%s%s/below", root, line + 3);
	return mkdir(path, 0755) ? strerror(errno) : move(path);
}

static const char *answer(const char *word, const char *argument)
{
	uid_t uid = (uid_t)strtoul(argument, NULL, 10);

	if (strcmp(word, "open") == 0)
		return open_node(argument);
	if (strcmp(word, "mknod") == 0)
		return make_node(argument);
	if (strcmp(word, "move") == 0)
		return move(argument);
	if (strcmp(word, "below") == 0)
		return move_below(argument);
	if (strcmp(word, "user") == 0)
		return setresuid(uid, uid, uid) ? strerror(errno) : "changed";
	return "unknown";
}

static int run_opener(void)
{
	char line[PATH_MAX + 16], *argument;
	pid_t pid;

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		argument = strchr(line, ' ');
		if (!argument)
			return 2;
		*argument++ = '\0';
		if (strcmp(line, "child") == 0) {
			pid = fork();
			if (pid != 0) {
				waitpid(pid, NULL, 0);
				continue;
			}
			puts(open_node(argument));
			fflush(stdout);
			_exit(0);
		}
		puts(answer(line, argument));
		fflush(stdout);
	}
	return 0;
}

static int tell(const char *socket_path, char *const *cgroups, int n)
{
	struct rbk_lease_options lease_options = {.device = RBK_DEVICE_NONE,
						  .min_bytes = 1 << 20,
						  .wish_bytes = 1 << 20,
						  .max_bytes = 1 << 20};
	struct rbk_options options = {.size = sizeof(options), .socket_path = socket_path};
	struct rbk_error error = {""};
	struct rbk_lease *lease;
	struct rbk *rbk;
	char byte;

	if (rbk_connect(&options, &rbk, &error) ||
	    rbk_lease_open(rbk, &lease_options, &lease, &error)) {
		fprintf(stderr, "gate-client: %s\n", error.text);
		return 1;
	}
	for (int i = 0; i < n; i++) {
		int fd = open(cgroups[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int r = rbk_lease_set_cgroup(lease, fd, NULL, &error);

		printf("%s%s", i ? " " : "", r ? strerrorname_np(-r) : "0");
	}
	putchar('\n');
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	/* End without disconnecting. */
	_exit(0);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "open") == 0)
		return run_opener();
	if (argc > 2 && strcmp(argv[1], "tell") == 0)
		return tell(argv[2], argv + 3, argc - 3);
	return 2;
}
