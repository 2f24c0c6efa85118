/* SPDX-License-Identifier: MIT */
/*
 * Starting, watching and ending brokers
 *
 * Every wait is bounded. A broker is a child with a parent-death signal, so a test that fails or is
 * killed leaves no broker behind. A broker is signalled by its process id only, and only before it
 * has been waited for.
 */
#include "integration/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker/admin.h>

#include "support/test.h"

enum { MAX_ARGS = 32 };

/* Limit on waits for events that always happen, even on a slow machine; a longer wait is a hang. */
static const uint64_t patience_ns = 60000000000;

void harness_limit_seconds(unsigned int seconds)
{
	const char *factor = getenv("RBK_TEST_SLOW");

	/* Triple the time: other processes may use the processors. */
	alarm(3 * seconds * (factor ? (unsigned int)atoi(factor) : 1));
}

uint64_t harness_slow_ns(uint64_t ns)
{
	const char *factor = getenv("RBK_TEST_SLOW");

	return ns * (factor ? strtoull(factor, NULL, 10) : 1);
}

pid_t harness_start_as(uid_t uid, void (*be)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	/* The time limit applies to the parent only. */
	alarm(0);
	if (setgid((gid_t)uid) == 0 && setuid(uid) == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		be();
	}
	_exit(1);
}

void harness_become(uid_t uid)
{
	assert_int_equal(syscall(SYS_setresuid, -1, uid, -1), 0);
}

void harness_sleep_ms(unsigned int ms)
{
	const struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};

	nanosleep(&time, NULL);
}

uint64_t harness_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

bool harness_stats_copy(const struct rbk_stats_view *view, unsigned int id, uint32_t index,
			void *to, size_t bytes)
{
	uint64_t end_ns = harness_now_ns() + harness_slow_ns(10000000000);

	while (!rbk_stats_copy_record(view, id, index, to, bytes)) {
		if (harness_now_ns() >= end_ns)
			return false;
		harness_sleep_ms(1);
	}
	return true;
}

struct rbk_stats_tenant harness_tenant(const struct rbk_stats_view *view)
{
	struct rbk_stats_tenant tenant;

	assert_true(
		harness_stats_copy(view, RBK_STATS_SECTION_TENANTS, 0, &tenant, sizeof(tenant)));
	return tenant;
}

uint64_t harness_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* Return true if a process accepts connections at @socket_path. */
static bool accepts(const char *socket_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool is_there;

	assert_true(fd >= 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
	is_there = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	close(fd);
	return is_there;
}

static bool has_software_gpu(const struct broker_options *options)
{
	for (unsigned int i = 0; options && options->args && options->args[i]; i++)
		if (strcmp(options->args[i], "--gpu=software") == 0)
			return true;
	return false;
}

/*
 * Return the argument, without --gpu=software if RBK_TEST_GPU=real: tests of devices then use the
 * machine's GPU.
 */
static const char *gpu_argument(const char *argument)
{
	const char *wanted = getenv("RBK_TEST_GPU");

	if (wanted && strcmp(wanted, "real") == 0 && strcmp(argument, "--gpu=software") == 0)
		return "--gpu=auto";
	return argument;
}

static bool watch_all; /* see broker_watch_all() */

void broker_watch_all(void)
{
	watch_all = !test_is_scaled_down();
}

/* Return true if a broker with @options watches contention for processors. */
static bool is_watching(const struct broker_options *options)
{
	if (has_software_gpu(options) || (options && options->is_undisturbed))
		return false;
	return watch_all || (options && options->in_child);
}

static void exec_broker(const struct broker *broker, const struct broker_options *options,
			bool watching)
{
	const char *args[MAX_ARGS] = {"brokerd",           "--socket",         broker->socket_path,
				      "--cache",           broker->cache_path, "--config",
				      broker->config_path, "--calibration",    "none"};
	const char *program = getenv("BROKERD");
	unsigned int n = 9;
	int log_fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* A shell's background jobs inherit an ignored SIGINT. */
	signal(SIGINT, SIG_DFL);
	log_fd = open(broker->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log_fd < 0 || dup2(log_fd, STDERR_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0)
		_exit(126);
	if (!watching) {
		args[n++] = "--contention";
		args[n++] = "none";
	}
	for (unsigned int i = 0; options && options->args && options->args[i] && n + 1 < MAX_ARGS;
	     i++)
		args[n++] = gpu_argument(options->args[i]);
	if (options && options->in_child)
		options->in_child();
	execv(program ? program : BROKERD_PATH, (char *const *)args);
	_exit(127);
}

/* Running brokers, for show_left(); pid 0 marks a free slot. */
static struct broker running[16];
static pid_t test_pid;

static void forget(pid_t pid)
{
	for (unsigned int i = 0; i < sizeof(running) / sizeof(running[0]); i++)
		if (running[i].pid == pid)
			running[i].pid = 0;
}

/*
 * Show the logs of brokers that a failed test left running, and the wait status of those that died,
 * which may explain the failure. tools/test does not repeat a test whose broker crashed.
 */
static void show_left(void)
{
	int status;

	if (getpid() != test_pid)
		return;
	for (unsigned int i = 0; i < sizeof(running) / sizeof(running[0]); i++) {
		if (running[i].pid == 0)
			continue;
		if (waitpid(running[i].pid, &status, WNOHANG) == running[i].pid)
			print_message("brokerd has died: wait status 0x%x%s%s\n", status,
				      WIFSIGNALED(status) ? ", SIG" : "",
				      WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : "");
		broker_show_log(&running[i]);
	}
}

static void remember(const struct broker *broker)
{
	if (test_pid != getpid()) {
		test_pid = getpid();
		memset(running, 0, sizeof(running));
		atexit(show_left);
	}
	for (unsigned int i = 0; i < sizeof(running) / sizeof(running[0]); i++) {
		if (running[i].pid != 0)
			continue;
		running[i] = *broker;
		return;
	}
}

bool broker_try_start(struct broker *broker, const struct broker_options *options, int *ret_status)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(patience_ns);
	const bool watching = is_watching(options);

	*broker = (struct broker){.dir = "/tmp/rbk-test-XXXXXX"};
	assert_non_null(mkdtemp(broker->dir));
	snprintf(broker->socket_path, sizeof(broker->socket_path), "%s/sock", broker->dir);
	if (options && options->socket_path)
		snprintf(broker->socket_path, sizeof(broker->socket_path), "%s",
			 options->socket_path);
	assert_int_equal(rbk_admin_socket_path(broker->socket_path, broker->admin_path,
					       sizeof(broker->admin_path)),
			 0);
	snprintf(broker->log_path, sizeof(broker->log_path), "%s/log", broker->dir);
	snprintf(broker->cache_path, sizeof(broker->cache_path), "%s/cache", broker->dir);
	snprintf(broker->config_path, sizeof(broker->config_path), "/dev/null");
	if (options && options->policy) {
		snprintf(broker->config_path, sizeof(broker->config_path), "%s/brokerd.conf",
			 broker->dir);
		broker_write_policy(broker, options->policy);
	}

	broker->pid = fork();
	assert_true(broker->pid >= 0);
	if (broker->pid == 0)
		exec_broker(broker, options, watching);
	remember(broker);

	while (harness_now_ns() < end_ns) {
		if (waitpid(broker->pid, ret_status, WNOHANG) == broker->pid) {
			forget(broker->pid);
			broker->pid = 0;
			return false;
		}
		if (broker_log_has(broker, "listening on") && accepts(broker->socket_path))
			return true;
		harness_sleep_ms(2);
	}
	broker_show_log(broker);
	broker_kill(broker);
	fail_msg("brokerd accepts no connections");
	return false;
}

void broker_start(struct broker *broker, const struct broker_options *options)
{
	int status = 0;

	if (broker_try_start(broker, options, &status))
		return;
	broker_show_log(broker);
	broker_remove(broker);
	fail_msg("brokerd ended with wait status 0x%x instead of starting", status);
}

int broker_wait(struct broker *broker)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(patience_ns);
	int status = 0;

	while (harness_now_ns() < end_ns) {
		if (waitpid(broker->pid, &status, WNOHANG) == broker->pid) {
			forget(broker->pid);
			broker->pid = 0;
			return status;
		}
		harness_sleep_ms(2);
	}
	broker_show_log(broker);
	harness_show_threads("brokerd", broker->pid);
	broker_kill(broker);
	fail_msg("brokerd did not end");
	return -1;
}

void broker_write_policy(const struct broker *broker, const char *policy)
{
	int fd = open(broker->config_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, policy, strlen(policy)), strlen(policy));
	close(fd);
}

void broker_wait_log_times(const struct broker *broker, const char *text, unsigned int n)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(patience_ns);

	while (broker_log_count(broker, text) < n) {
		if (harness_now_ns() > end_ns) {
			broker_show_log(broker);
			fail_msg("the log does not say '%s' %u times", text, n);
		}
		harness_sleep_ms(2);
	}
}

void broker_wait_log(const struct broker *broker, const char *text)
{
	broker_wait_log_times(broker, text, 1);
}

void broker_reload(const struct broker *broker, const char *text)
{
	unsigned int n = broker_log_count(broker, text);

	assert_int_equal(kill(broker->pid, SIGHUP), 0);
	broker_wait_log_times(broker, text, n + 1);
}

void broker_stop(struct broker *broker)
{
	int status;

	assert_true(broker->pid > 0);
	kill(broker->pid, SIGTERM);
	status = broker_wait(broker);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || broker_log_has(broker, "Sanitizer") ||
	    broker_log_has(broker, "runtime error:") ||
	    broker_log_has(broker, "the system call ")) {
		broker_show_log(broker);
		fail_msg("brokerd ended badly: wait status 0x%x", status);
	}
	assert_int_not_equal(access(broker->socket_path, F_OK), 0);
	broker_remove(broker);
}

void broker_kill(struct broker *broker)
{
	int status;

	if (broker->pid <= 0)
		return;
	forget(broker->pid);
	kill(broker->pid, SIGKILL);
	while (waitpid(broker->pid, &status, 0) < 0 && errno == EINTR)
		;
	broker->pid = 0;
}

static void remove_tree(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	char child[512];

	while (directory && (entry = readdir(directory))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
		if (unlink(child) < 0)
			remove_tree(child);
	}
	if (directory)
		closedir(directory);
	rmdir(path);
}

void broker_remove(struct broker *broker)
{
	if (broker->dir[0])
		remove_tree(broker->dir);
	broker->dir[0] = '\0';
}

/* Return the whole file as a string for free(); NULL if it cannot be read. */
static char *read_file(const char *path)
{
	size_t used = 0, size = 65536;
	char *text = malloc(size);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	assert_non_null(text);
	while (fd >= 0 && (n = read(fd, text + used, size - used - 1)) > 0) {
		used += (size_t)n;
		if (size - used > 1)
			continue;
		size *= 2;
		text = realloc(text, size);
		assert_non_null(text);
	}
	text[used] = '\0';
	if (fd >= 0)
		close(fd);
	return text;
}

bool broker_log_has(const struct broker *broker, const char *text)
{
	char *log = read_file(broker->log_path);
	bool has = strstr(log, text) != NULL;

	free(log);
	return has;
}

unsigned int broker_log_count(const struct broker *broker, const char *text)
{
	char *log = read_file(broker->log_path);
	unsigned int n = 0;

	for (const char *at = log; (at = strstr(at, text)); at++)
		n++;
	free(log);
	return n;
}

unsigned int broker_log_lines(const struct broker *broker)
{
	char *log = read_file(broker->log_path);
	unsigned int n = 0;

	for (const char *c = log; *c; c++)
		n += *c == '\n';
	free(log);
	return n;
}

void broker_show_log(const struct broker *broker)
{
	char *log = read_file(broker->log_path);
	size_t length = strlen(log);

	print_message("--- log of brokerd%s\n", length > 8192 ? " (its end)" : "");
	/* cmocka cuts longer messages, and the end of a log tells why a broker died. */
	for (size_t at = length > 8192 ? length - 8192 : 0; at < length; at += 512)
		print_message("%.512s", log + at);
	print_message("---\n");
	free(log);
}

/* Print the state of a thread: R runs or waits for a processor, S and D sleep, T is stopped. */
static void show_thread_state(pid_t pid, const char *tid)
{
	char path[64], *text, *end;

	snprintf(path, sizeof(path), "/proc/%d/task/%.10s/stat", (int)pid, tid);
	text = read_file(path);
	end = strrchr(text, ')');
	print_message(" | %.1s", end ? end + 2 : "");
	free(text);
}

/* Print the first line of a file of a thread, or the whole file if @is_whole. */
static void show_thread_file(pid_t pid, const char *tid, const char *name, bool is_whole)
{
	char path[64], *text;

	snprintf(path, sizeof(path), "/proc/%d/task/%.10s/%s", (int)pid, tid, name);
	text = read_file(path);
	if (!is_whole)
		text[strcspn(text, "\n")] = '\0';
	print_message(is_whole ? "%s" : " | %s", text);
	free(text);
}

void harness_show_threads(const char *name, pid_t pid)
{
	struct dirent *entry;
	DIR *directory;
	char path[64];

	for (unsigned int look = 0; look < 2; look++) {
		snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
		directory = opendir(path);
		print_message("--- threads of %s (%d), look %u: thread | name | state | ns run, ns "
			      "waited for a processor, times | waits in | system call\n",
			      name, (int)pid, look + 1);
		while (directory && (entry = readdir(directory))) {
			if (entry->d_name[0] == '.')
				continue;
			print_message("%s", entry->d_name);
			show_thread_file(pid, entry->d_name, "comm", false);
			show_thread_state(pid, entry->d_name);
			show_thread_file(pid, entry->d_name, "schedstat", false);
			show_thread_file(pid, entry->d_name, "wchan", false);
			show_thread_file(pid, entry->d_name, "syscall", false);
			print_message("\n");
			show_thread_file(pid, entry->d_name, "stack", true);
		}
		if (directory)
			closedir(directory);
		if (look == 0)
			harness_sleep_ms(500);
	}
	print_message("---\n");
}

static uint64_t status_number(const char *status, const char *key)
{
	const char *at = strstr(status, key);

	assert_non_null(at);
	return strtoull(at + strlen(key), NULL, 10);
}

/* Return the thread's context switches; 0 if it has just ended. */
static uint64_t thread_switches(pid_t pid, pid_t tid)
{
	uint64_t n = 0;
	char path[64];
	char *text;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, (int)tid);
	text = read_file(path);
	/* Skip ThreadSanitizer's own thread: it wakes every 100 ms, and has the process's name. */
	if (tid != pid && strncmp(text, "brokerd", 7) == 0) {
		free(text);
		return 0;
	}
	free(text);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	text = read_file(path);
	if (strstr(text, "voluntary_ctxt_switches:"))
		n = status_number(text, "\nvoluntary_ctxt_switches:") +
		    status_number(text, "nonvoluntary_ctxt_switches:");
	free(text);
	return n;
}

static uint64_t count_switches(pid_t pid)
{
	struct dirent *entry;
	DIR *directory;
	char path[64];
	uint64_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	directory = opendir(path);
	assert_non_null(directory);
	while ((entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			n += thread_switches(pid, atoi(entry->d_name));
	closedir(directory);
	return n;
}

/*
 * Count the descriptors, except files of /proc, which the broker opens for a moment.
 * Return: true if a pidfd is among them. The broker holds one from a session's begin or end until
 * it has read the process's data.
 */
static bool count_fds(const struct broker *broker, unsigned int *ret_n)
{
	static const char pidfd[] = "anon_inode:[pidfd]";
	char path[64], target[64];
	struct dirent *entry;
	bool has_pidfd = false;
	DIR *directory;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)broker->pid);
	directory = opendir(path);
	assert_non_null(directory);
	*ret_n = 0;
	while ((entry = readdir(directory))) {
		n = readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		has_pidfd |= strcmp(target, pidfd) == 0;
		*ret_n += strncmp(target, "/proc/", 6) != 0;
	}
	closedir(directory);
	return has_pidfd;
}

void broker_usage(const struct broker *broker, struct broker_usage *ret)
{
	char path[64], *text;

	*ret = (struct broker_usage){0};
	/* A pidfd that stays open is counted after the last try. */
	for (unsigned int i = 0; i < 500 && count_fds(broker, &ret->n_fds); i++)
		harness_sleep_ms(2);

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)broker->pid);
	text = read_file(path);
	for (const char *c = text; *c; c++)
		ret->n_mappings += *c == '\n';
	free(text);

	snprintf(path, sizeof(path), "/proc/%d/status", (int)broker->pid);
	text = read_file(path);
	ret->n_threads = (unsigned int)status_number(text, "Threads:");
	ret->rss_bytes = status_number(text, "VmRSS:") * 1024;
	free(text);

	ret->n_switches = count_switches(broker->pid);
}

void broker_usage_least(const struct broker *broker, struct broker_usage *ret)
{
	broker_usage(broker, ret);
	for (unsigned int i = 0; i < 20; i++) {
		struct broker_usage usage;

		harness_sleep_ms(5);
		broker_usage(broker, &usage);
		if (usage.n_fds < ret->n_fds)
			*ret = usage;
	}
}

void broker_wait_fds(const struct broker *broker, unsigned int n_fds)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(10000000000);
	struct broker_usage usage;

	do {
		broker_usage(broker, &usage);
		if (usage.n_fds == n_fds)
			return;
		harness_sleep_ms(5);
	} while (harness_now_ns() < end_ns);
	assert_int_equal(usage.n_fds, n_fds);
}

/* Connect to the client socket or to the administrators' socket. */
static struct rbk *connect_to(const char *path, bool is_admin, const char *name)
{
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = path,
		.name = name,
		.timeout_ns = 60000000000,
		.flags = RBK_CONNECT_NO_REATTACH,
	};
	struct rbk_error error = {"no sentence"};
	struct rbk *rbk = NULL;
	int r;

	r = is_admin ? rbk_admin_connect(&options, &rbk, &error)
		     : rbk_connect(&options, &rbk, &error);
	if (r)
		fail_msg("cannot connect: %s (%s)", error.text, strerror(-r));
	return rbk;
}

struct rbk *broker_connect(const struct broker *broker, const char *name)
{
	return connect_to(broker->socket_path, false, name);
}

struct rbk *broker_connect_admin(const struct broker *broker, const char *name)
{
	return connect_to(broker->admin_path, true, name);
}

struct rbk *broker_start_gpu(struct broker *broker, const struct broker_options *options,
			     const char *name)
{
	struct rbk *rbk;

	broker_start(broker, options);
	rbk = broker_connect(broker, name);
	if (broker_has_gpu(rbk))
		return rbk;
	rbk_disconnect(rbk);
	broker_stop(broker);
	print_message("no software Vulkan device here\n");
	_exit(77);
}

void broker_wait_sessions(struct rbk *rbk, uint64_t n_sessions)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(patience_ns);
	struct rbk_stats stats = {0};

	do {
		assert_int_equal(rbk_stats(rbk, &stats), 0);
		if (stats.sessions == n_sessions)
			return;
		harness_sleep_ms(2);
	} while (harness_now_ns() < end_ns);
	fail_msg("the broker has %llu sessions, expected %llu", (unsigned long long)stats.sessions,
		 (unsigned long long)n_sessions);
}

void broker_wait_host_bytes(struct rbk *rbk, uint64_t bytes)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(patience_ns);
	struct rbk_stats stats = {0};

	do {
		assert_int_equal(rbk_stats(rbk, &stats), 0);
		if (stats.host_bytes == bytes)
			return;
		harness_sleep_ms(2);
	} while (harness_now_ns() < end_ns);
	fail_msg("%llu bytes of host memory are charged, expected %llu",
		 (unsigned long long)stats.host_bytes, (unsigned long long)bytes);
}

uint64_t broker_vram_used(struct rbk *rbk)
{
	struct rbk_tenant tenant;

	assert_int_equal(rbk_tenant(rbk, &tenant), 0);
	return tenant.devices[RBK_DEVICE_GPU].vram.used;
}

void broker_wait_vram(struct rbk *rbk, uint64_t bytes)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000);

	while (broker_vram_used(rbk) != bytes && harness_now_ns() < end_ns)
		harness_sleep_ms(2);
	assert_int_equal(broker_vram_used(rbk), bytes);
}

bool broker_has_gpu(struct rbk *rbk)
{
	unsigned int n_devices = 0;

	assert_int_equal(rbk_devices(rbk, NULL, 0, &n_devices), 0);
	return n_devices > 1;
}
