/* SPDX-License-Identifier: MIT */
/*
 * Waits for processors and their causes, as this machine's kernel reports them
 *
 *	test-run-queue-kernel proc    by /proc, source by source
 *	test-run-queue-kernel ebpf    by probes; skipped, with the reason, without them
 *
 * The load is a thread with a worker's name, and a process on the same processor.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/fake-proc.h"
#include "../unit/run-queue-read.h"
#include "support/test.h"
#include "util/clock.h"
#include "util/proc.h"
#include "util/thread.h"

static const uint64_t ms_ns = 1000000u;

enum { SKIPPED = 77, LIMIT_S = 110 };

/* --- Load --- */

struct worker {
	pthread_t thread;
	_Atomic bool stop;
	_Atomic pid_t tid;
};

static void pin(void)
{
	static int processor = -1;
	cpu_set_t set;

	if (processor < 0) {
		assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
		for (processor = 0; !CPU_ISSET(processor, &set); processor++)
			;
	}
	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	sched_setaffinity(0, sizeof(set), &set);
	/* If allowed, raise the priority, so that other processes take little of the processor. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), -15);
}

static void *work(void *data)
{
	struct worker *worker = data;

	pin();
	atomic_store(&worker->tid, gettid());
	while (!atomic_load(&worker->stop)) {
		/* Work, then wait for more. */
		uint64_t start_ns = clock_now_ns();

		while (clock_now_ns() - start_ns < ms_ns / 4)
			;
		if (start_ns / ms_ns % 4 == 0)
			fake_moment();
	}
	return NULL;
}

static void worker_start(struct worker *worker)
{
	atomic_init(&worker->stop, false);
	atomic_init(&worker->tid, 0);
	assert_int_equal(thread_start(&worker->thread, "rb-cpu-0", work, worker), 0);
	WAIT_UNTIL(atomic_load(&worker->tid));
}

static void worker_stop(struct worker *worker)
{
	atomic_store(&worker->stop, true);
	pthread_join(worker->thread, NULL);
}

/* Start a process named @name on the worker's processor, in the cgroup at @folder unless NULL. */
static pid_t hog_start(const char *name, const char *folder)
{
	char path[512], text[16];
	pid_t pid = fork();
	int fd;

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, name);
	alarm(LIMIT_S);
	pin();
	if (folder) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
		snprintf(text, sizeof(text), "%d", getpid());
		fd = open(path, O_WRONLY);
		if (fd < 0 || write(fd, text, strlen(text)) < 0)
			_exit(1);
	}
	for (;;)
		;
}

static void hog_stop(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* --- Reports --- */

static struct run_queue *start(enum run_queue_source source)
{
	struct run_queue_options options = {.source = source};
	struct run_queue *rq = NULL;

	assert_int_equal(run_queue_new(&options, &rq), 0);
	return rq;
}

/* Return the id of the thread named @name; 0 if there is none yet. */
static pid_t find_named(const struct run_queue *rq, const char *name)
{
	struct run_queue_thread_report report;

	for (uint32_t i = 0; run_queue_thread(rq, i, &report); i++)
		if (strcmp(report.name, name) == 0)
			return report.tid;
	return 0;
}

/* Return the worker's cause with that name and tenant, or a cause with no time. */
static struct run_queue_cause find_cause(const struct run_queue *rq, const char *comm,
					 uint16_t tenant)
{
	struct run_queue_report report;

	for (uint32_t i = 0;
	     i < RUN_QUEUE_TOP && run_queue_workers(rq, &report) && i < report.n_causes; i++)
		if (strcmp(report.causes[i].comm, comm) == 0 && report.causes[i].tenant == tenant)
			return report.causes[i];
	return (struct run_queue_cause){.wait_ns = 0};
}

/* Start with @source and a busy worker; skip if the kernel does not have the source. */
static struct run_queue *start_busy(enum run_queue_source source)
{
	struct run_queue *rq = start(source);

	if (run_queue_source(rq) != source) {
		print_message("%s\n", run_queue_sentence(rq, 0));
		run_queue_free(rq);
		skip();
	}
	run_queue_set_pace(rq, RUN_QUEUE_PACE_CONTENDED);
	return rq;
}

/* --- By /proc --- */

TEST_IN("proc", test_schedstat)
{
	struct run_queue *rq = start_busy(RUN_QUEUE_SOURCE_SCHEDSTAT);
	struct run_queue_totals before, after;
	struct run_queue_report report;
	struct worker worker;
	uint16_t slot;
	pid_t hog;

	worker_start(&worker);
	WAIT_UNTIL(read_totals(rq).has_workers && read_totals(rq).run_ns > 0);
	before = read_totals(rq);
	hog = hog_start("rb-hog", NULL);
	slot = run_queue_add_tenant(rq);
	run_queue_watch_process(rq, hog, -1, slot);
	WAIT_UNTIL(read_totals(rq).wait_ns - before.wait_ns > 50 * ms_ns &&
		   read_totals(rq).n_preemptions > before.n_preemptions + 3);
	after = read_totals(rq);
	assert_true(after.run_ns > before.run_ns);
	assert_true(after.has_processors);
	WAIT_UNTIL(find_thread(rq, worker.tid).report.wait_ns > 50 * ms_ns);
	assert_int_equal(find_thread(rq, worker.tid).role, RUN_QUEUE_WORKER);
	assert_int_equal(find_thread(rq, getpid()).role, RUN_QUEUE_REACTOR);
	assert_false(find_thread(rq, worker.tid).report.has_delays);
	WAIT_UNTIL(find_tenant(rq, slot, 0).run_ns > 50 * ms_ns);
	hog_stop(hog);
	worker_stop(&worker);
	WAIT_UNTIL(!run_queue_workers(rq, &report));
	run_queue_free(rq);
}

TEST_IN("proc", test_pressure)
{
	struct run_queue *rq = start_busy(RUN_QUEUE_SOURCE_PSI);
	struct run_queue_totals before;
	struct worker worker;
	pid_t hog;

	WAIT_UNTIL(read_totals(rq).has_stall);
	before = read_totals(rq);
	worker_start(&worker);
	hog = hog_start("rb-hog", NULL);
	WAIT_UNTIL(read_totals(rq).stall_ns - before.stall_ns > 50 * ms_ns);
	hog_stop(hog);
	worker_stop(&worker);
	run_queue_free(rq);
}

TEST_IN("proc", test_stat)
{
	struct run_queue *rq = start_busy(RUN_QUEUE_SOURCE_STAT);
	struct run_queue_totals before;
	pid_t hog;

	WAIT_UNTIL(read_totals(rq).has_processors);
	before = read_totals(rq);
	hog = hog_start("rb-hog", NULL);
	WAIT_UNTIL(read_totals(rq).others_ns - before.others_ns > 100 * ms_ns);
	hog_stop(hog);
	run_queue_free(rq);
}

static uint64_t count_sleeps(pid_t tid)
{
	char text[4096], *at;

	assert_true(proc_read(text, sizeof(text), "/proc/self/task/%d/status", tid) > 0);
	at = strstr(text, "\nvoluntary_ctxt_switches:");
	assert_non_null(at);
	return strtoull(at + strlen("\nvoluntary_ctxt_switches:"), NULL, 10);
}

/* Return true if the thread has slept for longer than from one round to the next. */
static bool is_still(pid_t tid, uint64_t *before, uint64_t *since_ns)
{
	uint64_t now = count_sleeps(tid), now_ns = clock_now_ns();

	if (now != *before) {
		*before = now;
		*since_ns = now_ns;
	}
	return now_ns - *since_ns > 1200 * ms_ns;
}

/* At idle pace the thread sleeps and does not wake. */
static void is_quiet(enum run_queue_source source)
{
	struct run_queue *rq = start_busy(source);
	uint64_t before, since_ns;
	pid_t tid;

	/* The thread sets its name a little after its start. */
	WAIT_UNTIL((tid = find_named(rq, "rb-run-queue")) > 0);
	run_queue_set_pace(rq, RUN_QUEUE_PACE_IDLE);
	/*
	 * The thread falls asleep in the end: it runs a moment longer, and postpones expensive work
	 * that is due.
	 */
	before = count_sleeps(tid);
	since_ns = clock_now_ns();
	WAIT_UNTIL(is_still(tid, &before, &since_ns));
	/* At busy pace the thread wakes again. */
	run_queue_set_pace(rq, RUN_QUEUE_PACE_BUSY);
	WAIT_UNTIL(count_sleeps(tid) > before);
	run_queue_free(rq);
}

TEST_IN("proc", test_quiet)
{
	is_quiet(RUN_QUEUE_SOURCE_STAT);
}

/* --- By probes --- */

TEST_IN("ebpf", test_quiet__probes)
{
	is_quiet(RUN_QUEUE_SOURCE_EBPF);
}

/* The hog is named, with its cgroup if one can be made. */
TEST_IN("ebpf", test_hog)
{
	struct run_queue *rq = start_busy(RUN_QUEUE_SOURCE_EBPF);
	char root[256], folder[300], text[65536];
	char name[RUN_QUEUE_NAME_BYTES], shown[RUN_QUEUE_NAME_BYTES];
	struct run_queue_totals before, after;
	struct run_queue_cause cause;
	struct run_queue_report report;
	struct worker worker;
	bool has_cgroup;
	uint16_t slot;
	pid_t hog;

	/* No other process on this machine has this name. */
	snprintf(name, sizeof(name), "hog\n%d", getpid());
	snprintf(shown, sizeof(shown), "hog?%d", getpid());
	has_cgroup = proc_parse_mounts(text, proc_read(text, sizeof(text), "/proc/self/mounts"),
				       NULL, root, sizeof(root));
	snprintf(folder, sizeof(folder), "%s/rb-test-%d", root, getpid());
	has_cgroup = has_cgroup && mkdir(folder, 0755) == 0;
	worker_start(&worker);
	WAIT_UNTIL(read_totals(rq).has_workers && read_totals(rq).run_ns > 0);
	before = read_totals(rq);
	hog = hog_start(name, has_cgroup ? folder : NULL);
	WAIT_UNTIL((cause = find_cause(rq, shown, RUN_QUEUE_NO_TENANT)).wait_ns > 50 * ms_ns);
	assert_int_equal(cause.pid, hog);
	assert_false(cause.is_own);
	if (has_cgroup)
		assert_string_equal(cause.cgroup, folder + strlen(root));
	/*
	 * The worker's affinity, and thus that no other processor can run it, is known a little
	 * later.
	 */
	WAIT_UNTIL((after = read_totals(rq), after.wait_ns - before.wait_ns >= 50 * ms_ns &&
						     after.n_preemptions > before.n_preemptions));
	WAIT_UNTIL(read_totals(rq).others_ns > after.others_ns);
	WAIT_UNTIL(find_thread(rq, worker.tid).report.wait_ns >= 50 * ms_ns);
	assert_true(find_thread(rq, worker.tid).report.has_delays);
	WAIT_UNTIL((report = find_thread(rq, worker.tid).report).p99_ns > 0);
	assert_true(report.max_ns >= report.p99_ns);

	/* From now on the hog belongs to a tenant, by its process; then by its cgroup. */
	slot = run_queue_add_tenant(rq);
	run_queue_watch_process(rq, hog, -1, slot);
	WAIT_UNTIL(find_tenant(rq, slot, 0).caused_ns > 20 * ms_ns);
	WAIT_UNTIL(find_cause(rq, shown, slot).wait_ns > 0);
	assert_true(run_queue_caused_ns(rq, slot) > 20 * ms_ns);
	WAIT_UNTIL(find_tenant(rq, slot, 0).run_ns > 20 * ms_ns);
	WAIT_UNTIL(find_tenant(rq, slot, 0).n_causes > 0);
	run_queue_remove_tenant(rq, slot);
	WAIT_UNTIL(run_queue_caused_ns(rq, slot) == 0);
	if (has_cgroup) {
		slot = run_queue_add_tenant(rq);
		run_queue_watch_cgroup(rq, folder + strlen(root), slot);
		WAIT_UNTIL(find_tenant(rq, slot, 0).caused_ns > 20 * ms_ns);
	}
	hog_stop(hog);
	worker_stop(&worker);
	/* The hog may take a moment to end. */
	WAIT_UNTIL(!has_cgroup || rmdir(folder) == 0);
	run_queue_free(rq);
}

/* Close the links of the probes, as if another process had detached them. Return: their number. */
static unsigned int detach(void)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned int n = 0;
	char text[4096];

	assert_true(null >= 0 && folder);
	while ((entry = readdir(folder))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] == '.' || fd == dirfd(folder) ||
		    proc_read(text, sizeof(text), "/proc/self/fdinfo/%d", fd) == 0 ||
		    (!strstr(text, "link_type:\ttracing") &&
		     !strstr(text, "link_type:\traw_tracepoint")))
			continue;
		/*
		 * Keep the descriptor's number in use, so that its owner does not close another
		 * file.
		 */
		assert_int_equal(dup3(null, fd, O_CLOEXEC), fd);
		n++;
	}
	closedir(folder);
	close(null);
	return n;
}

TEST_IN("ebpf", test_detached)
{
	struct run_queue *rq = start_busy(RUN_QUEUE_SOURCE_EBPF);
	struct worker worker;

	worker_start(&worker);
	WAIT_UNTIL(read_totals(rq).has_workers && read_totals(rq).run_ns > 0);
	assert_null(run_queue_sentence(rq, 0));
	assert_true(detach() >= 3);
	WAIT_UNTIL(run_queue_source(rq) != RUN_QUEUE_SOURCE_EBPF);
	assert_non_null(strstr(run_queue_sentence(rq, 0), "detached"));
	/* The next source takes over. */
	WAIT_UNTIL(read_totals(rq).has_processors);
	if (run_queue_source(rq) == RUN_QUEUE_SOURCE_SCHEDSTAT)
		WAIT_UNTIL(read_totals(rq).has_workers && read_totals(rq).run_ns > 0);
	worker_stop(&worker);
	run_queue_free(rq);
}

static uint64_t capabilities(pid_t tid, const char *which)
{
	char text[4096], *at;

	assert_true(proc_read(text, sizeof(text), "/proc/self/task/%d/status", tid) > 0);
	at = strstr(text, which);
	assert_non_null(at);
	return strtoull(at + strlen(which), NULL, 16);
}

/* The probes load with exactly two capabilities, and work on without any. */
static void with_least_privilege(void)
{
	cap_value_t values[] = {CAP_BPF, CAP_PERFMON};
	cap_t caps = cap_init();
	struct worker worker;
	struct run_queue *rq;
	pid_t hog, own;
	uint16_t slot;

	/* Inherited capabilities must be dropped too. */
	cap_set_flag(caps, CAP_PERMITTED, 2, values, CAP_SET);
	cap_set_flag(caps, CAP_EFFECTIVE, 2, values, CAP_SET);
	cap_set_flag(caps, CAP_INHERITABLE, 2, values, CAP_SET);
	assert_int_equal(cap_set_proc(caps), 0);
	cap_free(caps);
	assert_int_equal(cap_set_ambient(CAP_BPF, CAP_SET), 0);

	rq = start(RUN_QUEUE_SOURCE_EBPF);
	if (run_queue_source(rq) != RUN_QUEUE_SOURCE_EBPF)
		fail_msg("%s", run_queue_sentence(rq, 0));
	assert_int_equal(run_queue_drop_privileges(), 0);
	assert_int_equal(capabilities(gettid(), "\nCapEff:"), 0);
	assert_int_equal(capabilities(gettid(), "\nCapPrm:"), 0);
	assert_int_equal(capabilities(gettid(), "\nCapInh:"), 0);
	assert_int_equal(capabilities(gettid(), "\nCapAmb:"), 0);
	run_queue_set_pace(rq, RUN_QUEUE_PACE_CONTENDED);

	/* New threads and tenants are still watched. */
	worker_start(&worker);
	WAIT_UNTIL(find_thread(rq, worker.tid).report.run_ns > 0);
	WAIT_UNTIL((own = find_named(rq, "rb-run-queue")) > 0);
	/* On old kernels the thread keeps CAP_BPF. */
	assert_int_equal(capabilities(own, "\nCapEff:") & ~((uint64_t)1 << CAP_BPF), 0);
	hog = hog_start("rb-hog", NULL);
	slot = run_queue_add_tenant(rq);
	run_queue_watch_process(rq, hog, -1, slot);
	WAIT_UNTIL(find_tenant(rq, slot, 0).caused_ns > 20 * ms_ns);
	assert_int_equal(read_totals(rq).n_dropped, 0);
	hog_stop(hog);
	worker_stop(&worker);
	run_queue_free(rq);
}

TEST_IN("ebpf", test_privilege)
{
	pid_t pid;
	int status;

	if (geteuid() != 0)
		skip();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		with_least_privilege();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* --- */

/* Return true if the probes can be loaded; else print the reason. */
static bool has_probes(void)
{
	struct run_queue_options options = {.source = RUN_QUEUE_SOURCE_EBPF};
	struct run_queue *rq = NULL;
	bool has;

	if (run_queue_new(&options, &rq))
		return true; /* the test will fail */
	has = run_queue_source(rq) == RUN_QUEUE_SOURCE_EBPF;
	if (!has)
		printf("skipped: %s\n", run_queue_sentence(rq, 0));
	run_queue_free(rq);
	return has;
}

int main(int argc, char **argv)
{
	alarm(LIMIT_S);
	if (argc != 2)
		return 2;
	if (strcmp(argv[1], "ebpf") == 0 && !has_probes())
		return SKIPPED;
	return test_run_group(argv[1], NULL, NULL);
}
