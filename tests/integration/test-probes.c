/* SPDX-License-Identifier: MIT */
/*
 * The scheduler probes, on the kernel that runs this test
 *
 * No check depends on a duration: the tests wait for conditions. Before a test checks that a
 * process is not counted, the process has run.
 */
#include <errno.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/probes-rig.h"
#include "support/test.h"

#define MS 1000000ull

/* Each case has a slot of its own, so that each slot begins at 0. */
enum {
	THREAD = 3,
	TENANT_PROCESS = 0,
	TENANT_CGROUP = 5,
	TENANT_THROTTLED = 17,
	TENANT_REUSED = 63,
	TENANT_CHURN = 20,
	TENANT_PID = 21,
};

static struct probes *probes;
static int processor;
static struct rig_cgroup home; /* parent of the test's own cgroups; empty if none can be made */

static void walk(void)
{
	assert_int_equal(probes_walk(probes), 0);
}

/* Wait until @pid has used another @ns of processor time. */
static void let_run(pid_t pid, uint64_t ns)
{
	uint64_t from_ns = rig_cpu_ns(pid);

	rig_until(rig_cpu_ns(pid) >= from_ns + ns, harness_sleep_ms(1));
}

static void watch_self(void)
{
	assert_int_equal(probes_set_thread(probes, THREAD, (pid_t)syscall(SYS_gettid)), 0);
	walk();
}

/* --- A thread of the test --- */

static uint64_t attributed_ns(const struct run_queue_record *record)
{
	uint64_t sum_ns = 0;

	for (unsigned int i = 0; i < RUN_QUEUE_CAUSERS; i++)
		sum_ns += record->causers[i].wait_ns;
	return sum_ns;
}

TEST(test_thread__waits_for_hog)
{
	const struct run_queue_record *record = probes_thread(probes, THREAD);
	const char *name = "hog\x01\n\x1b[1m";
	const struct run_queue_causer *causer = NULL;
	struct rig_process hog = {0};
	struct rig_cgroup cgroup = {0};
	uint64_t total = 0;
	uint32_t i;

	watch_self();
	rig_start(&hog, name);
	if (home.id && rig_cgroup_make(&cgroup, &home, "hogs-of-a-name-longer-than-fits-there"))
		rig_cgroup_enter(&cgroup, hog.pid);
	rig_tell(&hog, RIG_SPIN);
	rig_until(record->wait_ns > 50 * MS && record->n_preemptions > 3 &&
			  (causer = rig_causer(record, name, cgroup.id)) &&
			  causer->wait_ns > 20 * MS && causer->n_preemptions > 0,
		  rig_work());

	assert_int_equal(causer->process, hog.pid);
	assert_int_equal(causer->who, 0);
	if (cgroup.id) {
		assert_true(causer->cgroup == cgroup.id);
		assert_string_equal(causer->cgroup_name, "hogs-of-a-name-longer-than-fits");
	}
	assert_true(record->run_ns > 0);
	assert_true(record->n_involuntary >= record->n_preemptions);
	assert_true(record->max_wait_ns <= record->wait_ns + record->idle_wait_ns);
	/* The test's thread is running now. */
	assert_true(record->running_since_ns != 0);
	assert_true(record->running_since_ns <= harness_now_ns());
	for (i = 0; i < RUN_QUEUE_BUCKETS; i++)
		total += record->buckets[i];
	assert_int_equal(total, record->n_waits + record->n_idle_waits);
	/*
	 * At least 90 % of the wait is attributed to causers. A wait behind more tasks than a
	 * processor has accounts, on a busy machine, is an exception that longer waits outweigh.
	 */
	assert_true(attributed_ns(record) <= record->wait_ns + record->idle_wait_ns);
	rig_until(attributed_ns(record) >= record->wait_ns / 10 * 9, rig_work());
	rig_end(&hog);
	rig_cgroup_remove(&cgroup);
}

TEST(test_thread__idle)
{
	const struct run_queue_record *record = probes_thread(probes, THREAD);
	const struct run_queue_processor *figures = probes_processor(probes, (uint32_t)processor);
	uint64_t n = record->n_idle_waits, idle_ns = figures->idle_ns, own_ns = figures->own_ns;
	uint64_t n_switches = figures->n_switches, since_ns = harness_now_ns(), until_ns;

	/* Until the thread was woken on an idle processor, which other tests may delay. */
	until_ns = since_ns + harness_slow_ns(10000 * MS);
	while ((figures->idle_ns == idle_ns || record->n_idle_waits == n ||
		figures->own_ns == own_ns) &&
	       harness_now_ns() < until_ns)
		harness_sleep_ms(1);
	assert_true(figures->n_switches > n_switches);
	/*
	 * The thread sleeps until a clock's moment: of thousands of these, a tenth meets a
	 * processor that is idle for a tenth of the time; but perhaps none meets one that hardly
	 * ever is.
	 */
	if (record->n_idle_waits == n &&
	    figures->idle_ns - idle_ns < (harness_now_ns() - since_ns) / 10) {
		print_message("the processor was hardly ever idle\n");
		skip();
	}
	assert_true(record->n_idle_waits > n);
	assert_true(figures->own_ns > own_ns);
}

static _Atomic pid_t worker;
static _Atomic bool is_enough;

static void *sleep_and_wake(void *unused)
{
	worker = (pid_t)syscall(SYS_gettid);
	while (!is_enough)
		harness_sleep_ms(1);
	return NULL;
}

TEST(test_thread__waits_of_new_thread)
{
	const struct run_queue_record *record = probes_thread(probes, THREAD + 1);
	pthread_t thread;
	uint64_t ended_ns;

	assert_int_equal(pthread_create(&thread, NULL, sleep_and_wake, NULL), 0);
	rig_until(worker != 0, harness_sleep_ms(1));
	assert_int_equal(probes_set_thread(probes, THREAD + 1, worker), 0);
	walk();
	rig_until(record->run_ns > 0 && record->n_waits + record->n_idle_waits > 3,
		  harness_sleep_ms(1));
	is_enough = true;
	pthread_join(thread, NULL);
	/* The kernel ends the thread a little after pthread_join(). */
	rig_until(record->running_since_ns == 0 && record->waiting_since_ns == 0,
		  harness_sleep_ms(1));
	ended_ns = record->run_ns;
	rig_work();
	walk();
	assert_true(record->run_ns == ended_ns);
	assert_int_equal(probes_set_thread(probes, THREAD + 1, 0), 0);
}

/* Setting a slot's thread again clears the slot; a slot without a thread counts nothing. */
TEST(test_thread__slot_reused)
{
	const struct run_queue_record *record = probes_thread(probes, THREAD);
	struct run_queue_record nothing = {0};
	struct rig_process other = {0};
	uint64_t before_ns = record->run_ns;

	rig_until(record->run_ns > before_ns + 50 * MS, rig_work());
	before_ns = record->run_ns;
	watch_self();
	assert_true(record->run_ns < before_ns);
	rig_start(&other, "other");
	rig_until(record->n_waits + record->n_idle_waits > 3, rig_work());

	assert_int_equal(probes_set_thread(probes, THREAD, 0), 0);
	rig_tell(&other, RIG_SPIN);
	let_run(other.pid, 20 * MS);
	assert_memory_equal(record, &nothing, sizeof(nothing));
	walk();
	rig_end(&other);
	assert_memory_equal(record, &nothing, sizeof(nothing));
	assert_int_equal(probes_set_thread(probes, RUN_QUEUE_MAX_THREADS, 1), -ENOSPC);
	watch_self();
}

/* --- Tenants --- */

static uint64_t run_ns(uint16_t tenant)
{
	return rig_tenant(probes, tenant).run_ns;
}

TEST(test_tenant__process)
{
	const struct run_queue_record *own =
		probes_tenant(probes, TENANT_PROCESS, (uint32_t)processor);
	struct rig_process client = {0}, hog = {0};
	uint64_t before_ns;

	watch_self();
	rig_start(&client, "client");
	assert_int_equal(probes_set_process(probes, client.pid, TENANT_PROCESS), 0);
	walk();
	before_ns = run_ns(TENANT_PROCESS);

	/* The client's new threads are counted. */
	rig_tell(&client, RIG_THREADS);
	rig_until(run_ns(TENANT_PROCESS) > before_ns + 20 * MS, rig_work());
	/* The test's thread waits for them, and they wait for the hog. */
	rig_start(&hog, "hog");
	rig_tell(&hog, RIG_SPIN);
	rig_until(rig_tenant(probes, TENANT_PROCESS).caused_ns > 5 * MS &&
			  rig_tenant(probes, TENANT_PROCESS).n_preemptions > 3 &&
			  rig_tenant(probes, TENANT_PROCESS).wait_ns > 20 * MS &&
			  rig_causer(own, "hog", 0) && rig_causer(own, "hog", 0)->wait_ns > MS,
		  rig_work());
	assert_int_equal(rig_causer(probes_thread(probes, THREAD), "client", 0)->who,
			 RUN_QUEUE_TENANT << RUN_QUEUE_KIND_SHIFT | TENANT_PROCESS);
	rig_end(&hog);
	rig_end(&client);

	/* The client's child is counted; the client itself does not run. */
	rig_start(&client, "client");
	assert_int_equal(probes_set_process(probes, client.pid, TENANT_PROCESS), 0);
	walk();
	rig_tell(&client, RIG_FORK);
	before_ns = run_ns(TENANT_PROCESS);
	rig_until(run_ns(TENANT_PROCESS) > before_ns + 20 * MS, rig_work());
	/* The child is counted after another walk too, until the process is removed. */
	walk();
	before_ns = run_ns(TENANT_PROCESS);
	rig_until(run_ns(TENANT_PROCESS) > before_ns + 20 * MS, rig_work());
	assert_int_equal(probes_unset_process(probes, client.pid), 0);
	assert_int_equal(probes_unset_process(probes, client.pid), 0);
	walk();
	before_ns = run_ns(TENANT_PROCESS);
	rig_start(&hog, "hog");
	rig_tell(&hog, RIG_SPIN);
	let_run(hog.pid, 50 * MS);
	assert_true(run_ns(TENANT_PROCESS) == before_ns);
	rig_end(&hog);
	rig_end(&client);
	assert_int_equal(probes_set_process(probes, 1, RUN_QUEUE_MAX_TENANTS), -ENOSPC);
}

TEST(test_tenant__cgroup)
{
	struct rig_process inside = {0}, later = {0};
	struct rig_cgroup cgroup = {0}, below = {0};
	uint64_t before_ns;

	if (!home.id || !rig_cgroup_make(&cgroup, &home, "tenant") ||
	    !rig_cgroup_make(&below, &cgroup, "below")) {
		print_message("no cgroups may be made here\n");
		skip();
	}
	rig_start(&inside, "inside");
	rig_cgroup_enter(&below, inside.pid);
	rig_start(&later, "later");
	rig_tell(&later, RIG_SPIN);
	assert_int_equal(probes_set_cgroup(probes, cgroup.id, TENANT_CGROUP), 0);
	walk();
	let_run(later.pid, 20 * MS);
	before_ns = run_ns(TENANT_CGROUP);
	assert_true(before_ns < 10 * MS);

	/* A process that enters the cgroup is counted without a walk. */
	rig_cgroup_enter(&cgroup, later.pid);
	rig_until(run_ns(TENANT_CGROUP) > before_ns + 20 * MS, rig_work());
	/* A process that leaves is not counted. */
	rig_cgroup_enter(&home, later.pid);
	let_run(later.pid, 10 * MS);
	before_ns = run_ns(TENANT_CGROUP);
	let_run(later.pid, 40 * MS);
	/* Only a thread of ThreadSanitizer in the process inside may be counted. */
	assert_true(run_ns(TENANT_CGROUP) < before_ns + 10 * MS);
	rig_end(&later);

	/* A process that was in a child cgroup at the walk is counted, and so is its child. */
	rig_tell(&inside, RIG_FORK);
	rig_until(run_ns(TENANT_CGROUP) > before_ns + 20 * MS, rig_work());
	rig_end(&inside);
	assert_int_equal(probes_unset_cgroup(probes, cgroup.id), 0);
	rig_cgroup_remove(&below);
	rig_cgroup_remove(&cgroup);
}

TEST(test_tenant__throttled)
{
	struct rig_process client = {0}, hog = {0};
	struct rig_cgroup quota = {0};
	struct rig_sum before, after;

	rig_start(&client, "client");
	if (!rig_throttle(&quota, client.pid)) {
		rig_end(&client);
		print_message("no cgroup with a quota may be made here\n");
		skip();
	}
	assert_int_equal(probes_set_process(probes, client.pid, TENANT_THROTTLED), 0);
	walk();
	rig_tell(&client, RIG_SPIN);
	rig_until(rig_tenant(probes, TENANT_THROTTLED).n_throttled >= 3 &&
			  rig_tenant(probes, TENANT_THROTTLED).idle_wait_ns > 50 * MS,
		  harness_sleep_ms(1));
	/* Throttling is counted even if other threads run on the processor meanwhile. */
	rig_start(&hog, "hog");
	rig_tell(&hog, RIG_SPIN);
	let_run(hog.pid, 20 * MS);
	before = rig_tenant(probes, TENANT_THROTTLED);
	rig_until((after = rig_tenant(probes, TENANT_THROTTLED),
		   after.n_throttled >= before.n_throttled + 3 &&
			   after.idle_wait_ns > before.idle_wait_ns + 50 * MS),
		  harness_sleep_ms(1));
	rig_end(&hog);
	rig_end(&client);
	rig_cgroup_remove(&quota);
}

/* A slot is given to a new tenant while processes of the former tenant still run. */
TEST(test_tenant__slot_reused)
{
	const struct run_queue_record *record = probes_thread(probes, THREAD);
	struct run_queue_record nothing = {0};
	struct rig_process former = {0}, latter = {0};
	uint64_t before_ns;
	uint32_t i;

	watch_self();
	rig_start(&former, "former");
	assert_int_equal(probes_set_process(probes, former.pid, TENANT_REUSED), 0);
	walk();
	rig_tell(&former, RIG_SPIN);
	rig_until(run_ns(TENANT_REUSED) > 20 * MS && rig_causer(record, "former", 0) &&
			  rig_causer(record, "former", 0)->who != 0,
		  rig_work());

	/* No walk: only the number of the slot's owner has changed. */
	probes_clear_tenant(probes, TENANT_REUSED);
	assert_int_equal(rig_causer(record, "former", 0)->who, 0);
	let_run(former.pid, 50 * MS);
	for (i = 0; i < probes_n_processors(probes); i++)
		assert_memory_equal(probes_tenant(probes, TENANT_REUSED, i), &nothing,
				    sizeof(nothing));
	rig_until(rig_causer(record, "former", 0)->wait_ns > 0, rig_work());
	assert_int_equal(rig_causer(record, "former", 0)->who, 0);

	rig_start(&latter, "latter");
	assert_int_equal(probes_set_process(probes, latter.pid, TENANT_REUSED), 0);
	walk();
	/*
	 * The former process's time is not counted for the new tenant. Some of the latter's is,
	 * which may still be starting, and what a hypervisor takes from the latter meanwhile.
	 */
	before_ns = rig_cpu_ns(former.pid);
	rig_until(rig_cpu_ns(former.pid) >= before_ns + 20 * MS + 4 * run_ns(TENANT_REUSED),
		  harness_sleep_ms(1));
	rig_tell(&latter, RIG_SPIN);
	before_ns = run_ns(TENANT_REUSED);
	rig_until(run_ns(TENANT_REUSED) > before_ns + 5 * MS, rig_work());
	rig_end(&former);
	rig_end(&latter);
}

/* --- Starts and ends --- */

/* Fork a child with process id @pid. Return: -1 if the id cannot be chosen here. */
static pid_t fork_as(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

TEST(test_process_number_reused)
{
	struct rig_process client = {0};
	uint64_t before_ns;
	pid_t pid, again;

	rig_start(&client, "client");
	pid = client.pid;
	assert_int_equal(probes_set_process(probes, pid, TENANT_PID), 0);
	walk();
	rig_tell(&client, RIG_SPIN);
	rig_until(run_ns(TENANT_PID) > 5 * MS, rig_work());
	rig_end(&client);
	before_ns = run_ns(TENANT_PID);

	/* The process was not removed: its end has not been noticed yet. */
	again = fork_as(pid);
	if (again < 0) {
		print_message("numbers of processes may not be chosen here: %s\n", strerror(errno));
		assert_int_equal(probes_unset_process(probes, pid), 0);
		skip();
	}
	if (again == 0) {
		alarm(60);
		for (;;)
			;
	}
	assert_int_equal(again, pid);
	let_run(pid, 20 * MS);
	walk();
	let_run(pid, 20 * MS);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(run_ns(TENANT_PID) == before_ns);
	assert_int_equal(probes_unset_process(probes, pid), 0);
}

static void *end_at_once(void *unused)
{
	return NULL;
}

static uint64_t n_dropped(void)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < probes_n_processors(probes); i++)
		n += probes_processor(probes, i)->n_dropped;
	return n;
}

/* Start and end thousands of processes, threads and cgroups, some of them watched. */
TEST(test_churn)
{
	uint64_t dropped = n_dropped(), n = test_scaled(2000), i;
	struct rig_process bystander = {0};
	uint32_t n_tasks;
	pid_t child, pid;
	int status;

	rig_start(&bystander, "bystander");
	walk();
	n_tasks = probes_n_tasks(probes);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* also while it is stopped */
		harness_limit_seconds(100);
		/* A client whose threads are watched from their first moment. */
		for (i = 0; i < n; i++) {
			pthread_t thread;

			if (pthread_create(&thread, NULL, end_at_once, NULL) == 0)
				pthread_join(thread, NULL);
			pid = fork();
			if (pid == 0)
				_exit(0);
			waitpid(pid, NULL, 0);
			if (i == n / 2)
				raise(SIGSTOP);
		}
		_exit(0);
	}
	assert_int_equal(probes_set_process(probes, child, TENANT_CHURN), 0);
	walk();
	for (i = 0; i < n / 4 && home.id; i++) {
		struct rig_cgroup cgroup;
		char name[32];

		snprintf(name, sizeof(name), "churn-%d", (int)i);
		assert_true(rig_cgroup_make(&cgroup, &home, name));
		assert_int_equal(probes_set_cgroup(probes, cgroup.id, TENANT_CHURN + 10), 0);
		if (i % 64 == 0)
			walk();
		assert_int_equal(probes_unset_cgroup(probes, cgroup.id), 0);
		assert_int_equal(rmdir(cgroup.path), 0);
	}
	/* Half of the threads and processes have ended: their records are gone. */
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	walk();
	/*
	 * The child itself and a sanitizer's threads remain; the last threads may still be ending.
	 */
	assert_true(probes_n_tasks(probes) <= n_tasks + 16);
	kill(child, SIGCONT);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	walk();
	assert_true(probes_n_tasks(probes) <= n_tasks);
	assert_true(n_dropped() == dropped);
	assert_true(run_ns(TENANT_CHURN) > 0);
	/* The watched cgroups had no processes. */
	assert_int_equal(run_ns(TENANT_CHURN + 10), 0);
	assert_int_equal(probes_unset_process(probes, child), 0);
	rig_end(&bystander);
}

/* Excess tasks are rejected with an error, and removed tasks make room. */
TEST(test_full_tables_refuse_tasks)
{
	uint64_t i;
	int r;

	for (i = 0;; i++) {
		r = probes_set_cgroup(probes, 1ull << 40 | i, 1);
		if (r)
			break;
	}
	assert_int_equal(r, -ENOSPC);
	assert_true(i >= RUN_QUEUE_MAX_CGROUPS - 1 && i <= RUN_QUEUE_MAX_CGROUPS);
	while (i--)
		assert_int_equal(probes_unset_cgroup(probes, 1ull << 40 | i), 0);
	assert_int_equal(probes_set_cgroup(probes, 1ull << 40, 1), 0);
	assert_int_equal(probes_unset_cgroup(probes, 1ull << 40), 0);
}

/* A second broker's probes are independent. */
TEST(test_two_brokers_are_independent)
{
	char why[RUN_QUEUE_WHY_BYTES];
	struct probes *other;

	assert_int_equal(probes_new(why, &other), 0);
	assert_int_equal(probes_set_thread(other, 0, (pid_t)syscall(SYS_gettid)), 0);
	assert_int_equal(probes_walk(other), 0);
	assert_int_equal(probes_n_tasks(other), 1);
	rig_until(probes_thread(other, 0)->run_ns > 0, rig_work());
	assert_null(probes_free(other));
	assert_null(probes_free(NULL));
}

static void ignore(int number)
{
}

/* The verifier aborts on a signal, and these signals arrive faster than it works. */
TEST(test_signalled)
{
	const struct itimerspec often = {{0, 200000}, {0, 200000}};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	char why[RUN_QUEUE_WHY_BYTES] = "";
	struct probes *other = NULL;
	timer_t timer;
	sigset_t now;
	int r;

	assert_true(signal(SIGUSR1, ignore) != SIG_ERR);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	assert_int_equal(timer_settime(timer, 0, &often, NULL), 0);
	r = probes_new(why, &other);
	assert_int_equal(timer_delete(timer), 0);
	if (r)
		fail_msg("%s", why);
	probes_free(other);
	/* The probes have unblocked signals again. */
	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
	assert_false(sigismember(&now, SIGUSR1));
	signal(SIGUSR1, SIG_DFL);
}

/* Without the capabilities, the error names the remedy. */
TEST(test_no_privilege)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
		struct __user_cap_data_struct none[2] = {{0}};
		char why[RUN_QUEUE_WHY_BYTES] = "";
		struct probes *other;

		alarm(60);
		if (syscall(SYS_capset, &header, none) ||
		    probes_new(why, &other) != PROBES_E_UNAVAILABLE)
			_exit(1);
		_exit(strstr(why, "CAP_BPF and CAP_PERFMON") ? 0 : 2);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* CAP_PERFMON and CAP_BPF suffice. */
TEST(test_least_privilege)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
		struct __user_cap_data_struct two[2] = {{0}};
		char why[RUN_QUEUE_WHY_BYTES] = "";
		struct probes *other;
		int i;

		alarm(60);
		for (i = 38; i <= 39; i++) { /* CAP_PERFMON, CAP_BPF */
			two[CAP_TO_INDEX(i)].permitted |= CAP_TO_MASK(i);
			two[CAP_TO_INDEX(i)].effective |= CAP_TO_MASK(i);
		}
		if (syscall(SYS_capset, &header, two) || probes_new(why, &other)) {
			fprintf(stderr, "%s\n", why);
			_exit(1);
		}
		/* If the probes promise it, they also work after both capabilities were dropped. */
		if (!probes_need_privilege(other)) {
			memset(two, 0, sizeof(two));
			if (syscall(SYS_capset, &header, two) ||
			    probes_set_thread(other, 0, getpid()) || probes_walk(other) ||
			    probes_n_tasks(other) != 1)
				_exit(2);
		}
		probes_free(other);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static int set_up(void **state)
{
	char name[32];

	snprintf(name, sizeof(name), "rb-probes-%d", getpid());
	if (!rig_cgroup_make(&home, NULL, name))
		print_message("no cgroups may be made here\n");
	return 0;
}

static int tear_down(void **state)
{
	rig_cgroup_remove(&home);
	return 0;
}

int main(void)
{
	int r;

	harness_limit_seconds(120);
	processor = rig_pin();
	probes = rig_probes();
	if (!probes)
		return 77;
	r = test_run(set_up, tear_down);
	probes_free(probes);
	return r;
}
