/* SPDX-License-Identifier: MIT */
/*
 * The device gate on this kernel, without a broker: it loads, it passes exactly the holders, and a
 * user without privilege can change the holders
 *
 * Device nodes have no driver, so that the result of open() is EPERM from the gate or ENXIO from
 * the kernel behind it. Needs root and cgroups of version 2; else skipped (77), with the reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "brokerctl/gate.h"
#include "util/cgroup.h"
#include "util/gate-path.h"
#include "util/pinned-map.h"

enum { SKIP = 77, SOMEBODY = 64000, DRM = 226, DEEP = DEVICE_GATE_MAX_LEVELS + 2, TRIES = 1500 };

static char folder[] = "/tmp/rbk-device-gate-XXXXXX";
static char cgroup[PATH_MAX / 4];
static bool has_mounted;

/* --- Cleaning up --- */

static void remove_cgroups(char *path, size_t n)
{
	static const char *const names[] = {"/below", "/other"};

	for (unsigned int i = 0; i < 2; i++) {
		strcpy(path + n, names[i]);
		if (access(path, F_OK) == 0)
			remove_cgroups(path, strlen(path));
		path[n] = '\0';
	}
	rmdir(path);
}

static void clean_up(void)
{
	char path[PATH_MAX];

	if (cgroup[0]) {
		strcpy(path, cgroup);
		remove_cgroups(path, strlen(path));
	}
	if (has_mounted)
		umount2(folder, MNT_DETACH);
	rmdir(folder);
}

__attribute__((noreturn, format(printf, 2, 3))) static void finish(int status, const char *format,
								   ...)
{
	va_list args;

	va_start(args, format);
	printf("%s", status == SKIP ? "skipped: " : status ? "failed: " : "");
	vprintf(format, args);
	putchar('\n');
	va_end(args);
	clean_up();
	exit(status);
}

static void expect(bool condition, const char *what)
{
	if (!condition)
		finish(1, "%s (%s)", what, strerror(errno));
}

/* --- Folders and cgroups --- */

static void path_of(char ret[PATH_MAX], const char *name)
{
	snprintf(ret, PATH_MAX, "%s/%s", folder, name);
}

static void prepare(void)
{
	char root[PATH_MAX / 8], path[PATH_MAX];

	if (geteuid() != 0)
		finish(SKIP, "attaching a program to a cgroup is for root");
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		finish(SKIP, "no mount namespace of its own: %s", strerror(errno));
	expect(mkdtemp(folder) && mount("gate", folder, "tmpfs", 0, "mode=755") == 0, "tmpfs");
	has_mounted = true;
	path_of(path, "cgroup");
	if (!cgroup_find_root(root, sizeof(root))) {
		mkdir(path, 0755);
		if (mount("gate", path, "cgroup2", 0, NULL))
			finish(SKIP, "no cgroups of version 2: %s", strerror(errno));
		expect(cgroup_find_root(root, sizeof(root)), "cgroups that were mounted");
	}
	snprintf(cgroup, sizeof(cgroup), "%s/rbk-device-gate-%d", root, (int)getpid());
	expect(mkdir(cgroup, 0755) == 0, "a cgroup");
	path_of(path, "gate");
	expect(mkdir(path, 0755) == 0, "a folder");
	if (mount("gate", path, "bpf", 0, "mode=0751"))
		finish(SKIP, "no file system of BPF's: %s", strerror(errno));
	path_of(path, "node");
	umask(0);
	expect(mknod(path, S_IFCHR | 0666, makedev(DRM, 128)) == 0, "a node");
}

static uint64_t make_cgroup(const char *name)
{
	char path[PATH_MAX];
	struct stat status;

	snprintf(path, sizeof(path), "%s%s", cgroup, name);
	expect((mkdir(path, 0755) == 0 || errno == EEXIST) && stat(path, &status) == 0, path);
	return status.st_ino;
}

/* --- Opening nodes --- */

static int try_in(const char *name, uid_t uid)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s%s/cgroup.procs", cgroup, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1 || setresuid(uid, uid, uid))
		return 255;
	path_of(path, "node");
	return open(path, O_RDWR | O_CLOEXEC) >= 0 ? 0 : errno;
}

/* Return the errno of open() by a process in cgroup @name. */
static int opens(const char *name, uid_t uid)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(try_in(name, uid));
	expect(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status), "a child");
	return WEXITSTATUS(status);
}

/* Add or remove a holder as a user that may only write the map. Return: 0, or an errno. */
static int let_in(uint64_t id, uid_t uid, bool is_in)
{
	const struct device_gate_key key = {.cgroup = id, .uid = uid};
	const struct device_gate_holder holder = {.lease = 7};
	char path[PATH_MAX];
	int status = 0, fd, r;
	pid_t pid = fork();

	if (pid == 0) {
		path_of(path, "gate/" GATE_HOLDERS);
		if (setresuid(SOMEBODY, SOMEBODY, SOMEBODY))
			_exit(errno);
		r = pinned_map_open(path, true, sizeof(key), sizeof(holder), &fd);
		if (!r)
			r = is_in ? pinned_map_put(fd, &key, &holder) : pinned_map_delete(fd, &key);
		_exit(-r);
	}
	expect(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status), "a child");
	return WEXITSTATUS(status);
}

/* --- The test --- */

static void check_holders(void)
{
	uint64_t own = make_cgroup("/below"), deep = 0;
	char name[16 * DEEP] = "/below";

	make_cgroup("/other");
	make_cgroup("/below/below");
	expect(opens("/below", 0) == EPERM, "a holder before it is one");
	errno = let_in(own, 0, true);
	expect(errno == 0, "the map cannot be written without privilege");
	expect(opens("/below", 0) == ENXIO, "a holder");
	expect(opens("/below/below", 0) == ENXIO, "below a holder");
	expect(opens("/below", SOMEBODY) == EPERM, "another user");
	expect(opens("/other", 0) == EPERM && opens("", 0) == EPERM, "neighbours");
	expect(let_in(own, 0, false) == 0 && let_in(own, 0, false) == ENOENT, "taking it out");
	expect(opens("/below", 0) == EPERM, "a holder that is one no more");
	/* Unused entries of the map are zeros; they must not match. */
	expect(let_in(0, 0, true) == 0 && opens("/below", 0) == EPERM, "cgroup 0");
	for (unsigned int i = 0; i < DEEP; i++) {
		strcat(name, "/below");
		deep = make_cgroup(name);
	}
	expect(let_in(deep, 0, true) == 0 && opens(name, 0) == EPERM, "deeper than is looked");
	expect(let_in(own, 0, true) == 0 && opens(name, 0) == ENXIO, "far below a holder");
}

static void check_record(uint64_t id)
{
	const struct device_gate_refusal *last;
	struct device_gate_record record;
	char name[64], path[PATH_MAX];
	unsigned int zero = 0;
	int fd = -1;

	snprintf(name, sizeof(name), "gate/%llu" GATE_RECORD, (unsigned long long)id);
	path_of(path, name);
	expect(pinned_map_open(path, false, sizeof(zero), sizeof(record), &fd) == 0 &&
		       pinned_map_get(fd, &zero, &record) == 0,
	       "the record");
	expect(pinned_map_put(fd, &zero, &record) == -EPERM, "a map that is opened to be read");
	close(fd);
	expect(record.n_passed == 3 && record.n_refused == 8, "what is counted");
	last = &record.refusals[record.n_refused % DEVICE_GATE_REFUSALS];
	expect(last->number == 8 && last->uid == 0 && last->major == DRM && last->minor == 128 &&
		       last->at_ns > 0,
	       "the last refusal");
	printf("refused last: process %u (%.16s)\n", last->pid, last->comm);
	expect(last->pid > 0 && strncmp(last->comm, "test-device-gat", 15) == 0,
	       "who was refused last");
}

int main(void)
{
	struct gate_plan plan = {.uid = SOMEBODY, .gid = 0, .record.n_ranges = 1};
	char path[PATH_MAX], name[64], text[GATE_TEXT_BYTES] = "";
	struct gate_load *load;
	struct utsname about;

	prepare();
	uname(&about);
	path_of(path, "gate");
	plan.record.ranges[0] = (struct device_gate_range){DRM, 0, 255};
	plan.record.cgroup = make_cgroup("");
	plan.folder_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	plan.cgroup_fd = open(cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	load = gate_load_new(&plan, text);
	if (!load)
		finish(strstr(text, "needs Linux") || strstr(text, "without programs") ? SKIP : 1,
		       "%s: %s", about.release, text);
	expect(opens("", 0) == ENXIO, "before it is closed");
	if (!gate_load_attach(load, text))
		finish(1, "%s: %s", about.release, text);
	gate_load_free(load);
	expect(opens("", 0) == EPERM, "closed");
	check_holders();
	check_record(plan.record.cgroup);
	snprintf(name, sizeof(name), "gate/%llu", (unsigned long long)plan.record.cgroup);
	path_of(path, name);
	expect(unlink(path) == 0, "removing the link");
	/* The kernel detaches the program some time after unlink(). */
	for (unsigned int i = 0; i < TRIES && opens("", 0) == EPERM; i++)
		usleep(20000);
	expect(opens("", 0) == ENXIO, "opened again");
	finish(0, "%s: whom it lets pass is as it should be", about.release);
}
