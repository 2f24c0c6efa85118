/* SPDX-License-Identifier: MIT */
/*
 * The sandbox of a real brokerd
 *
 * Every thread but the steward has a filter, before and after a restart; a call that is refused is
 * in the log. All other tests with brokers fail if a call was refused: see broker_stop().
 */
#include <dirent.h>
#include <errno.h>
#include <linux/securebits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ringbroker/admin.h>
#include <ringbroker/stats.h>

#include "integration/harness.h"
#include "support/test.h"

enum { SKIPPED = 77 };

/* Threads of a broker */
struct threads {
	unsigned int n;
	unsigned int n_free;       /* without a filter */
	unsigned int n_reactor;    /* filters of the first one */
	unsigned long long masked; /* signals that the first one blocks */
};

static const char *const cpu_only[] = {"--gpu=none", NULL};
/* A thread that watches the run queue starts at once. */
static const char *const watching[] = {"--gpu=none", "--contention=schedstat", NULL};
static const char *const logging[] = {"--gpu=none", "--sandbox=log", NULL};
static const char *const off[] = {"--gpu=none", "--sandbox=off", NULL};

/* Return the number of the broker's thread called @name. */
static pid_t find_thread(const struct broker *broker, const char *name)
{
	char path[64], comm[32];
	struct dirent *entry;
	pid_t found = 0;
	DIR *folder;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)broker->pid);
	folder = opendir(path);
	assert_non_null(folder);
	while (!found && (entry = readdir(folder))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/comm", (int)broker->pid,
			 entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(comm, sizeof(comm), file) && strcmp(comm, name) == 0)
			found = (pid_t)atoi(entry->d_name);
		if (file)
			fclose(file);
	}
	closedir(folder);
	return found;
}

/* Stop a thread where it waits in a system call. */
static void stop_waiting(pid_t thread, struct user_regs_struct *ret)
{
	int status;

	do {
		harness_sleep_ms(10);
		if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) < 0) {
			print_message("cannot trace: %s\n", strerror(errno));
			exit(SKIPPED);
		}
		assert_int_equal(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
		assert_int_equal(waitpid(thread, &status, __WALL), thread);
		assert_int_equal(ptrace(PTRACE_GETREGS, thread, NULL, ret), 0);
		if (ret->orig_rax == (unsigned long long)-1)
			ptrace(PTRACE_DETACH, thread, NULL, NULL);
	} while (ret->orig_rax == (unsigned long long)-1);
}

/*
 * Have a thread that waits in a system call make another one instead. The C library's functions
 * expect the registers of arguments to change.
 */
static void inject(pid_t thread, long number, uint64_t argument)
{
	struct user_regs_struct registers;

	stop_waiting(thread, &registers);
	/* It goes back to the instruction, which has two bytes. */
	registers.orig_rax = (unsigned long long)-1;
	registers.rip -= 2;
	registers.rax = (unsigned long long)number;
	registers.rdi = argument;
	registers.rsi = SOCK_STREAM;
	registers.rdx = 0;
	assert_int_equal(ptrace(PTRACE_SETREGS, thread, NULL, &registers), 0);
	assert_int_equal(ptrace(PTRACE_DETACH, thread, NULL, NULL), 0);
}

/* Return a number of /proc/PID/task/TID/status. */
static unsigned long long read_status(pid_t pid, const char *tid, const char *key, int base)
{
	unsigned long long value = 0;
	char path[64], line[128];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%.16s/status", (int)pid, tid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, key, strlen(key)) == 0)
			value = strtoull(line + strlen(key), NULL, base);
	if (file)
		fclose(file);
	return value;
}

static struct threads count_threads(pid_t pid)
{
	struct threads threads = {.n = 0};
	char path[64], first[16];
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	folder = opendir(path);
	assert_non_null(folder);
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		threads.n++;
		threads.n_free += read_status(pid, entry->d_name, "Seccomp_filters:", 10) == 0;
	}
	closedir(folder);
	snprintf(first, sizeof(first), "%d", (int)pid);
	threads.n_reactor = (unsigned int)read_status(pid, first, "Seccomp_filters:", 10);
	threads.masked = read_status(pid, first, "SigBlk:", 16);
	return threads;
}

/* Wait until all threads of the broker but the steward have filters, as @n have. */
static struct threads await_filters(const struct broker *broker, unsigned int n)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000u);
	struct threads threads;

	/* The reactor has its filter when it answers; other threads when they have run. */
	rbk_disconnect(broker_connect(broker, "look"));
	do {
		harness_sleep_ms(5);
		threads = count_threads(broker->pid);
	} while ((threads.n_free != 1 || (n && threads.n != n)) && harness_now_ns() < end_ns);
	assert_int_equal(threads.n_free, 1);
	assert_int_equal(threads.n_reactor, 2);
	return threads;
}

/* Start a broker; skip where it has no filters, as in a container that forbids them. */
static void start(struct broker *broker, const char *const *args)
{
	broker_start(broker, &(struct broker_options){.args = args, .is_undisturbed = true});
	broker_wait_log(broker, "listening on");
	if (broker_log_has(broker, "threads may make all system calls")) {
		broker_stop(broker);
		exit(SKIPPED);
	}
}

/* ---- Restarts ---- */

/* Restart the broker, and wait until the next one serves. */
static void restart(const struct broker *broker)
{
	struct rbk_error error = {""};
	struct rbk *admin = broker_connect_admin(broker, "administrator");

	assert_int_equal(rbk_admin_restart(admin, RBK_RESTART_BEGIN, 1000, NULL, &error), 0);
	rbk_disconnect(admin);
	while (broker_log_count(broker, "listening on") < 2)
		harness_sleep_ms(5);
}

TEST(test_restart__starts_in_full)
{
	struct threads before, after;
	struct broker broker;

	start(&broker, watching);
	before = await_filters(&broker, 0);
	restart(&broker);
	after = await_filters(&broker, before.n);
	assert_int_equal(after.n, before.n);
	assert_true(after.masked == before.masked);
	/* SIGTERM goes to a descriptor, as before. */
	broker_stop(&broker);
}

/* Execute brokerd without privileges: the kernel forgets the signal when a program gets some. */
static void keep_unprivileged(void)
{
	prctl(PR_SET_SECUREBITS, SECBIT_NOROOT);
}

/* A broker that dies with its parent still does so when it was restarted. */
TEST(test_restart__dies_with_its_parent)
{
	struct pollfd end = {.events = POLLIN};
	int pid_fds[2], end_fds[2];
	pid_t parent, pid = 0;

	assert_int_equal(pipe(pid_fds) + pipe(end_fds), 0);
	parent = fork();
	assert_true(parent >= 0);
	if (parent == 0) {
		struct broker broker;
		char byte;

		broker_start(&broker, &(struct broker_options){
					      .args = cpu_only,
					      .is_undisturbed = true,
					      .in_child = keep_unprivileged,
				      });
		restart(&broker);
		(void)!write(pid_fds[1], &broker.pid, sizeof(broker.pid));
		close(end_fds[1]);
		(void)!read(end_fds[0], &byte, 1);
		_exit(0);
	}
	close(pid_fds[1]);
	assert_int_equal(read(pid_fds[0], &pid, sizeof(pid)), sizeof(pid));
	/* The process may stay as a zombie. */
	end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	assert_true(end.fd >= 0);
	assert_int_equal(poll(&end, 1, 0), 0);
	close(end_fds[1]);
	assert_int_equal(poll(&end, 1, -1), 1);
	waitpid(parent, NULL, 0);
	close(end.fd);
	close(end_fds[0]);
	close(pid_fds[0]);
}

/* ---- Calls that are refused ---- */

/* Expect the state of the sandbox in the root page, and the number of calls refused. */
static void expect_shown(const struct broker *broker, enum rbk_stats_sandbox state, uint64_t n)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000u);
	struct rbk *admin = broker_connect_admin(broker, "look");
	struct rbk_stats_upkeep upkeep;
	struct rbk_stats_view root;

	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, NULL), 0);
	do
		assert_true(harness_stats_copy(&root, RBK_STATS_SECTION_UPKEEP, 0, &upkeep,
					       sizeof(upkeep)));
	while (upkeep.n_calls_refused != n && harness_now_ns() < end_ns);
	assert_int_equal(upkeep.n_calls_refused, n);
	assert_int_equal(upkeep.sandbox, state);
	rbk_stats_unmap(&root);
	rbk_disconnect(admin);
}

/* Have a worker make a socket, twice. */
static void misbehave(const struct broker *broker, enum rbk_stats_sandbox state)
{
	struct rbk *rbk;
	pid_t worker;

	expect_shown(broker, state, 0);

	/* A thread names itself. */
	while (!(worker = find_thread(broker, "rb-cpu-0\n")))
		harness_sleep_ms(5);
	inject(worker, SYS_socket, AF_INET);
	broker_wait_log(broker, "the system call ");
	/* It is logged once, and the worker goes on. */
	inject(worker, SYS_socket, AF_INET);
	rbk = broker_connect(broker, "look");
	rbk_disconnect(rbk);
	assert_int_equal(broker_log_count(broker, "the system call "), 1);
	expect_shown(broker, state, 1);
}

TEST(test_refused__is_logged)
{
	struct broker broker;

	start(&broker, cpu_only);
	misbehave(&broker, RBK_STATS_SANDBOX_ON);
	assert_true(broker_log_has(&broker, "the system call socket of a CPU worker (rb-cpu) was "
					    "refused (Operation not permitted)"));
	broker_kill(&broker);
	broker_remove(&broker);
}

static void block_signals(void)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
}

/*
 * The kernel ends a process at a refused call in a thread that blocks the signal. The reactor,
 * which waits in vain here, leaves, and says why.
 */
TEST(test_refused__where_signals_were_blocked)
{
	struct broker broker;
	int status;

	broker_start(&broker, &(struct broker_options){.args = cpu_only,
						       .is_undisturbed = true,
						       .in_child = block_signals});
	broker_wait_log(&broker, "listening on");
	if (broker_log_has(&broker, "threads may make all system calls")) {
		broker_kill(&broker);
		broker_remove(&broker);
		exit(SKIPPED);
	}
	await_filters(&broker, 0);
	inject(broker.pid, SYS_socket, AF_INET);
	status = broker_wait(&broker);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	assert_true(broker_log_has(&broker, "the system call socket of the reactor was refused"));
	broker_remove(&broker);
}

TEST(test_refused__mode_log)
{
	struct broker_usage before, after;
	struct broker broker;

	start(&broker, logging);
	broker_usage(&broker, &before);
	misbehave(&broker, RBK_STATS_SANDBOX_LOG);
	assert_true(broker_log_has(&broker, "the system call socket of a CPU worker (rb-cpu) "
					    "happened"));
	broker_usage(&broker, &after);
	assert_true(after.n_fds >= before.n_fds + 2);
	broker_kill(&broker);
	broker_remove(&broker);
}

TEST(test_refused__mode_off)
{
	struct threads threads;
	struct broker broker;

	start(&broker, off);
	threads = count_threads(broker.pid);
	assert_int_equal(threads.n_free, threads.n);
	expect_shown(&broker, RBK_STATS_SANDBOX_OFF, 0);
	broker_stop(&broker);
}
