/* SPDX-License-Identifier: MIT */
/*
 * Start of a broker under unusual limits: too few open files, too little memory, all capabilities,
 * and a path whose former broker is still ending
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/capability.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "support/test.h"

enum { PATH_BYTES = 64, LOCK_PATH_BYTES = 80 };

/*
 * Make the folder, and hold the lock of a broker's socket in it. The paths of both are stored.
 * Return: the lock's descriptor.
 */
static int hold_lock(char *folder, char path[static PATH_BYTES],
		     char lock_path[static LOCK_PATH_BYTES])
{
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(path, PATH_BYTES, "%s/sock", folder);
	snprintf(lock_path, LOCK_PATH_BYTES, "%s.lock", path);
	fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	return fd;
}

/* A killed broker holds its lock until a driver or the kernel has released its memory. */
TEST(test_start__while_killed_broker_ends)
{
	char folder[] = "/tmp/rbk-test-leaving-XXXXXX", path[PATH_BYTES],
	     lock_path[LOCK_PATH_BYTES];
	struct broker broker;
	int lock_fd;
	pid_t pid;

	lock_fd = hold_lock(folder, path, lock_path);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dprintf(lock_fd, "%d\n", (int)getpid());
		if (fork() == 0)
			harness_sleep_ms(1000);
		_exit(0);
	}
	close(lock_fd);
	/*
	 * The holder's parent is not waited for yet: it has ended, but the lock is still held when
	 * the broker starts.
	 */
	broker_start(&broker,
		     &(struct broker_options){.socket_path = path,
					      .args = (const char *const[]){"--gpu=none", NULL},
					      .is_undisturbed = true});
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	broker_stop(&broker);
	unlink(lock_path);
	snprintf(lock_path, sizeof(lock_path), "%s/sock.admin.lock", folder);
	unlink(lock_path);
	assert_int_equal(rmdir(folder), 0);
}

/*
 * The holder of a lock may be in another PID namespace, as two containers may share a folder. It is
 * not said to have ended, nor waited for as if it had.
 */
TEST(test_start__while_a_foreign_broker_runs)
{
	char folder[] = "/tmp/rbk-test-foreign-XXXXXX", path[PATH_BYTES],
	     lock_path[LOCK_PATH_BYTES];
	struct broker broker;
	int lock_fd, status = 0;

	lock_fd = hold_lock(folder, path, lock_path);
	/* One more than the kernel's largest id */
	dprintf(lock_fd, "4194304\n");
	assert_false(broker_try_start(
		&broker, &(struct broker_options){.socket_path = path, .is_undisturbed = true},
		&status));
	assert_int_equal(status, 2 << 8);
	assert_true(broker_log_has(&broker, "another brokerd, or a service manager"));
	assert_false(broker_log_has(&broker, "has ended"));
	broker_remove(&broker);
	close(lock_fd);
	unlink(lock_path);
	assert_int_equal(rmdir(folder), 0);
}

/* ---- What root's broker may do ---- */

/* Return the effective capabilities of one thread. */
static uint64_t capabilities_of(pid_t pid, pid_t thread)
{
	char path[128], line[256];
	uint64_t has = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)thread);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "CapEff:", 7) == 0)
			has = strtoull(line + 7, NULL, 16);
	if (file)
		fclose(file);
	return has;
}

/* Count the threads that have any capability of @mask; the first thread must have none. */
static unsigned int count_threads_with(pid_t pid, uint64_t mask)
{
	struct dirent *entry;
	unsigned int n = 0;
	char path[64];
	DIR *directory;

	assert_int_equal(capabilities_of(pid, pid) & mask, 0);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	directory = opendir(path);
	assert_non_null(directory);
	while ((entry = readdir(directory)))
		n += (capabilities_of(pid, atoi(entry->d_name)) & mask) != 0;
	closedir(directory);
	return n;
}

/* A broker that root starts by hand drops capabilities: no thread can change the machine. */
TEST(test_root__drops_capabilities)
{
	static const unsigned int gone[] = {12 /* NET_ADMIN */, 16 /* SYS_MODULE */,
					    17 /* SYS_RAWIO */, 21 /* SYS_ADMIN */,
					    22 /* SYS_BOOT */,  38 /* PERFMON */};
	unsigned int n_others = 0;
	uint64_t mask = 0;

#ifdef __SANITIZE_THREAD__
	/*
	 * ThreadSanitizer starts its own thread with the program's first one. That one is the
	 * probes' thread, which begins with the capabilities for the probes; ThreadSanitizer's
	 * thread keeps them.
	 */
	n_others = 1;
#endif
	if (geteuid() != 0)
		skip();
	for (unsigned int i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		mask |= 1ull << gone[i];
	BROKER(broker, NULL);
	assert_true(count_threads_with(broker.pid, mask) <= n_others);
}

/* ---- The reactor's nice level ---- */

static int nice_of(pid_t pid, pid_t thread)
{
	char path[128], text[1024];
	int nice = 100;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)thread);
	file = fopen(path, "re");
	if (file && fgets(text, sizeof(text), file))
		/* proc(5): field 19; parsing starts after the name, which may contain spaces. */
		sscanf(strrchr(text, ')') + 1,
		       " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d",
		       &nice);
	if (file)
		fclose(file);
	return nice;
}

static void check_nices(pid_t pid, int reactor)
{
	const int own = getpriority(PRIO_PROCESS, 0);
	struct dirent *entry;
	char path[64];
	DIR *directory;
	int nice;

	assert_int_equal(nice_of(pid, pid), reactor);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	directory = opendir(path);
	assert_non_null(directory);
	while ((entry = readdir(directory))) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == pid)
			continue;
		nice = nice_of(pid, atoi(entry->d_name));
		/* 100: the thread has ended. */
		assert_true(nice == own || nice == 100);
	}
	closedir(directory);
}

static void forbid_nice(void)
{
	const struct rlimit none = {0, 0};

	setrlimit(RLIMIT_NICE, &none);
	prctl(PR_CAPBSET_DROP, CAP_SYS_NICE);
}

TEST(test_nice)
{
	const int own = getpriority(PRIO_PROCESS, 0);
	char text[64];
	struct broker broker;

	if (geteuid() != 0 || own < -10)
		skip();
	broker_start(&broker, NULL);
	check_nices(broker.pid, own - 10);
	assert_false(broker_log_has(&broker, "nice level"));
	broker_stop(&broker);

	broker_start(&broker, &(struct broker_options){
				      .args = (const char *const[]){"--reactor-nice=3", NULL}});
	check_nices(broker.pid, 3);
	broker_stop(&broker);

	/* A broker that may not set its nice level runs all the same. */
	broker_start(&broker, &(struct broker_options){.in_child = forbid_nice});
	check_nices(broker.pid, own);
	snprintf(text, sizeof(text), "may not have nice level %d (LimitNICE=%d in", own - 10,
		 own - 10);
	assert_true(broker_log_has(&broker, text));
	broker_stop(&broker);
}

/* ---- Limits ---- */

static rlim_t few_fds;

static void allow_few_fds(void)
{
	const struct rlimit few = {few_fds, few_fds};

	setrlimit(RLIMIT_NOFILE, &few);
}

/* However low the limit, the number that the broker asks for is the same, and enough. */
TEST(test_descriptors__asks_once)
{
	static const rlim_t limits[] = {20, 36, 44, 60};
	unsigned int n_refused = 0;
	struct broker broker;
	rlim_t needed = 0;
	char text[32];
	int status;

	for (unsigned int i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		few_fds = limits[i];
		if (broker_try_start(&broker, &(struct broker_options){.in_child = allow_few_fds},
				     &status)) {
			broker_stop(&broker);
			continue;
		}
		for (needed = needed ? needed : 61; needed < 1024; needed++) {
			snprintf(text, sizeof(text), "needs %u: ", (unsigned int)needed);
			if (broker_log_has(&broker, text))
				break;
			/* The first refusal reveals the number; later ones must name the same. */
			assert_int_equal(n_refused, 0);
		}
		assert_true(needed < 1024);
		n_refused++;
		broker_remove(&broker);
	}
	assert_true(n_refused > 0);
	few_fds = needed;
	broker_start(&broker, &(struct broker_options){.in_child = allow_few_fds});
	broker_stop(&broker);
}

/* Return the descriptors of a broker limited to @limit, once a tenant has all that it can get. */
static unsigned int most_descriptors(rlim_t limit)
{
	enum { MAX_SESSIONS = 16, MAX_RINGS = 600 };
	struct rbk_options options = {
		.size = sizeof(options),
		.timeout_ns = harness_slow_ns(10000000000),
	};
	unsigned int n_sessions = 0, n_rings = 0;
	struct rbk *sessions[MAX_SESSIONS];
	struct rbk_ring *rings[MAX_RINGS];
	struct broker_usage usage;
	struct broker broker;

	few_fds = limit;
	broker_start(&broker,
		     &(struct broker_options){.args = (const char *const[]){"--gpu=none", NULL},
					      .in_child = allow_few_fds});
	options.socket_path = broker.socket_path;
	/* The limit of one session's rings may be below the tenant's. */
	while (n_sessions < MAX_SESSIONS &&
	       rbk_connect(&options, &sessions[n_sessions], NULL) == 0) {
		n_sessions++;
		while (rbk_ring_new(sessions[n_sessions - 1], 8, &rings[n_rings], NULL) == 0)
			assert_in_range(++n_rings, 1, MAX_RINGS - 1);
	}
	assert_true(n_rings > 0);
	broker_usage(&broker, &usage);
	while (n_rings > 0)
		rbk_ring_free(rings[--n_rings]);
	while (n_sessions > 0)
		rbk_disconnect(sessions[--n_sessions]);
	broker_stop(&broker);
	return usage.n_fds;
}

/*
 * A tenant with all descriptors that it can get leaves room for pending connections, for the
 * greatest number of closer threads and, with a limit above 1,024, for administrators.
 */
TEST(test_descriptors__some_for_waiting)
{
	static const rlim_t limits[] = {300, 500, 2400};

	for (unsigned int i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		/* Pending connections, and threads besides those of the start. */
		const rlim_t part = limits[i] / 16, uncharged = 3 * part + 8 + 64,
			     n_threads = (part < 64 ? 64 : part) - 4,
			     admins = limits[i] > 1024 ? 256 : 0;

		assert_in_range(most_descriptors(limits[i]) + uncharged + n_threads + admins, 0,
				limits[i]);
	}
}

/* Return the number of descriptors that fit before the kernel grows the table. */
static uint64_t table_size(pid_t pid)
{
	char path[64], line[256];
	unsigned long long n = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "FDSize: %llu", &n);
	if (file)
		fclose(file);
	return n;
}

/* The table must not grow later: the reactor would sleep in accept() meanwhile. */
TEST(test_descriptors__table)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	BROKER(broker, NULL);
	assert_true(table_size(broker.pid) >= (limit.rlim_max < 131072 ? limit.rlim_max : 131072));
}

static void allow_little_memory(void)
{
	const struct rlimit little = {60000 << 10, 60000 << 10};

	setrlimit(RLIMIT_AS, &little);
}

TEST(test_memory__shortage_is_logged)
{
	struct broker broker;
	int status;

	/* Sanitizers need more than that themselves. */
	if (harness_slow_ns(1) > 1)
		skip();
	assert_false(broker_try_start(
		&broker,
		&(struct broker_options){.in_child = allow_little_memory, .is_undisturbed = true},
		&status));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	assert_false(broker_log_has(&broker, "cannot listen"));
	broker_remove(&broker);
}

/* With a host-max above the machine's memory, the broker starts, with a warning. */
TEST(test_host_max__exceeds_the_machine)
{
	BROKER(broker,
	       &(struct broker_options){.args = (const char *const[]){"--host-max=999TiB", NULL}});
	assert_true(broker_log_has(&broker, "--host-max allows them 1022976.0 GiB, of"));
}

/* An administrator's request for a page is rejected with the name of the limit. */
TEST(test_host_max__refuses_pages_by_name)
{
	struct rbk_stats_view view;
	struct rbk_error error;
	struct rbk *admin;

	BROKER(broker,
	       &(struct broker_options){.args = (const char *const[]){"--host-max=1MiB", NULL}});
	admin = broker_connect_admin(&broker, "admin");
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &view, &error), -EDQUOT);
	assert_non_null(strstr(error.text, "(the broker's host-max)"));
	rbk_disconnect(admin);
}

TEST_MAIN(NULL, NULL, broker_watch_all(), harness_limit_seconds(60))
