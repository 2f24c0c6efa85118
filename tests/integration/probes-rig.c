/* SPDX-License-Identifier: MIT */
/*
 * Processes that compete for a processor
 *
 * Each process receives its commands as bytes in a pipe, so that the test can watch and move it
 * before it begins.
 */
#include "integration/probes-rig.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "integration/harness.h"
#include "support/test.h"

enum { LIFE_SECONDS = 120, BRIEF_NS = 2000000 };

int rig_pin(void)
{
	cpu_set_t set;
	int i, last = -1;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	for (i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set))
			last = i;
	CPU_ZERO(&set);
	CPU_SET(last, &set);
	assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
	return last;
}

struct probes *rig_probes(void)
{
	char why[RUN_QUEUE_WHY_BYTES] = "";
	struct probes *probes;
	int r = probes_new(why, &probes);

	if (!r)
		return probes;
	fprintf(stderr, "no probes: %s\n", why);
	/* These errors are faults of the probes, not of the machine. */
	if (r != PROBES_E_UNAVAILABLE || strstr(why, "verifier") || strstr(why, "could not be") ||
	    strstr(why, "interrupted"))
		exit(1);
	return NULL;
}

uint64_t rig_cpu_ns(pid_t pid)
{
	struct timespec time;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &time))
		return 0;
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* --- Processes --- */

static volatile unsigned int n_rounds;

static void spin(void)
{
	for (;;)
		n_rounds++;
}

static void *spin_thread(void *unused)
{
	spin();
	return NULL;
}

static void spin_briefly(void)
{
	struct timespec time;

	do {
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	} while (time.tv_sec == 0 && time.tv_nsec < BRIEF_NS);
}

static void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	alarm(LIFE_SECONDS);
}

static void do_as_told(int fd)
{
	pid_t self = getpid(), child;
	pthread_t thread;
	char what;

	for (;;) {
		if (read(fd, &what, 1) != 1)
			_exit(0);
		switch (what) {
		case RIG_SPIN:
			spin();
			break;
		case RIG_THREADS:
			pthread_create(&thread, NULL, spin_thread, NULL);
			pthread_create(&thread, NULL, spin_thread, NULL);
			break;
		case RIG_FORK:
			if (fork() == 0) {
				die_with(self);
				spin();
			}
			break;
		case RIG_BRIEF:
			for (;;) {
				child = fork();
				if (child == 0) {
					die_with(self);
					spin_briefly();
					_exit(0);
				}
				if (child > 0)
					waitpid(child, NULL, 0);
			}
		default:
			break;
		}
	}
}

void rig_start(struct rig_process *process, const char *name)
{
	pid_t parent = getpid();
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	process->pid = fork();
	assert_true(process->pid >= 0);
	if (process->pid == 0) {
		signal(SIGALRM, SIG_DFL);
		die_with(parent);
		close(fds[1]);
		if (name)
			prctl(PR_SET_NAME, name);
		do_as_told(fds[0]);
	}
	close(fds[0]);
	process->fd = fds[1];
}

void rig_tell(const struct rig_process *process, enum rig_what what)
{
	char byte = (char)what;

	assert_int_equal(write(process->fd, &byte, 1), 1);
}

void rig_end(struct rig_process *process)
{
	if (process->pid <= 0)
		return;
	kill(process->pid, SIGKILL);
	waitpid(process->pid, NULL, 0);
	close(process->fd);
	*process = (struct rig_process){0};
}

/* --- Cgroups --- */

/* Set by rig_throttle(); the next rig_cgroup_remove() disables the controller again. */
static bool was_controller_enabled;

static bool write_file(const char *folder, const char *name, const char *text)
{
	char path[320];
	int fd;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return ok;
}

/*
 * Find the mount point of a file system of type @kind with @option, which may be NULL. Return:
 * false if none is mounted.
 */
static bool find_mount(const char *kind, const char *option, char ret[static 200])
{
	char line[1024], at[200], type[32], options[512];
	FILE *file = fopen("/proc/mounts", "re");
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = sscanf(line, "%*s %199s %31s %511s", at, type, options) == 3 &&
			strcmp(type, kind) == 0 && (!option || strstr(options, option));
	if (file)
		fclose(file);
	if (found)
		strcpy(ret, at);
	return found;
}

bool rig_cgroup_make(struct rig_cgroup *cgroup, const struct rig_cgroup *parent, const char *name)
{
	char root[200];
	struct stat st;

	*cgroup = (struct rig_cgroup){0};
	if (!find_mount("cgroup2", NULL, root))
		return false;
	if ((size_t)snprintf(cgroup->path, sizeof(cgroup->path), "%s/%s",
			     parent ? parent->path : root, name) >= sizeof(cgroup->path))
		return false;
	if (mkdir(cgroup->path, 0755) < 0 || stat(cgroup->path, &st) < 0)
		return false;
	cgroup->id = st.st_ino;
	return true;
}

void rig_cgroup_enter(const struct rig_cgroup *cgroup, pid_t pid)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	assert_true(write_file(cgroup->path, "cgroup.procs", text));
}

void rig_cgroup_remove(struct rig_cgroup *cgroup)
{
	uint64_t since_ns = 0;
	char root[200];

	if (!cgroup->id)
		return;
	/* The last process may still be ending. */
	while (rmdir(cgroup->path) < 0 && errno == EBUSY && rig_may_go_on(&since_ns))
		harness_sleep_ms(1);
	*cgroup = (struct rig_cgroup){0};
	if (was_controller_enabled && find_mount("cgroup2", NULL, root)) {
		write_file(root, "cgroup.subtree_control", "-cpu");
		was_controller_enabled = false;
	}
}

bool rig_throttle(struct rig_cgroup *cgroup, pid_t pid)
{
	char root[200], text[16];
	bool ok;

	*cgroup = (struct rig_cgroup){0};
	snprintf(text, sizeof(text), "%d", pid);
	if (find_mount("cgroup", "cpu", root)) {
		snprintf(cgroup->path, sizeof(cgroup->path), "%s/rb-test-%d", root, pid);
		if (mkdir(cgroup->path, 0755) < 0)
			return false;
		ok = write_file(cgroup->path, "cpu.cfs_quota_us", "5000") &&
		     write_file(cgroup->path, "cpu.cfs_period_us", "50000");
	} else if (find_mount("cgroup2", NULL, root)) {
		snprintf(cgroup->path, sizeof(cgroup->path), "%s/rb-test-%d", root, pid);
		/*
		 * An init system has usually enabled the controller; else it is enabled until
		 * rig_cgroup_remove().
		 */
		if (mkdir(cgroup->path, 0755) < 0)
			return false;
		ok = write_file(cgroup->path, "cpu.max", "5000 50000");
		if (!ok) {
			was_controller_enabled = write_file(root, "cgroup.subtree_control", "+cpu");
			ok = write_file(cgroup->path, "cpu.max", "5000 50000");
		}
	} else {
		return false;
	}
	cgroup->id = 1;
	ok = ok && write_file(cgroup->path, "cgroup.procs", text);
	if (!ok)
		rig_cgroup_remove(cgroup);
	return ok;
}

/* --- Waiting, and figures --- */

void rig_work(void)
{
	uint64_t until_ns = harness_now_ns() + 1000000;

	while (harness_now_ns() < until_ns)
		n_rounds++;
	harness_sleep_ms(1);
}

bool rig_may_go_on(uint64_t *since_ns)
{
	uint64_t now_ns = harness_now_ns();

	if (!*since_ns)
		*since_ns = now_ns;
	return now_ns - *since_ns < harness_slow_ns(30000000000);
}

struct rig_sum rig_tenant(const struct probes *probes, uint16_t tenant)
{
	struct rig_sum sum = {0};
	uint32_t i;

	for (i = 0; i < probes_n_processors(probes); i++) {
		const struct run_queue_record *record = probes_tenant(probes, tenant, i);

		sum.run_ns += record->run_ns;
		sum.wait_ns += record->wait_ns;
		sum.idle_wait_ns += record->idle_wait_ns;
		sum.n_throttled += record->n_throttled;
		sum.n_preemptions += record->n_preemptions;
		sum.n_involuntary += record->n_involuntary;
		sum.caused_ns += record->caused_ns;
	}
	return sum;
}

const struct run_queue_causer *rig_causer(const struct run_queue_record *record, const char *comm,
					  uint64_t cgroup)
{
	uint32_t i;

	for (i = 0; i < RUN_QUEUE_CAUSERS; i++) {
		const struct run_queue_causer *causer = &record->causers[i];

		if (strncmp(causer->comm, comm, sizeof(causer->comm)) == 0 &&
		    (!cgroup || causer->cgroup == cgroup))
			return causer;
	}
	return NULL;
}
