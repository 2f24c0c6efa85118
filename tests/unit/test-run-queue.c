/* SPDX-License-Identifier: MIT */
/* The fall-back order of sources, on imitated files of /proc; figures that are read and reported */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail-alloc.h"
#include "fake-proc.h"
#include "run-queue-read.h"
#include "support/test.h"
#include "util/clock.h"

static const uint64_t second_ns = 1000000000u;

/* Thread numbers that no thread of this test has. */
enum { WORKER_0 = 99000001, WORKER_1 = 99000002, OTHER = 99000003, CLIENT = 99000010 };

static struct run_queue *start(enum run_queue_source source)
{
	struct run_queue_options options = {
		.source = source,
		.proc_path = fake_proc,
		.cgroup_path = fake_cgroup,
	};
	struct run_queue *rq = NULL;

	assert_int_equal(run_queue_new(&options, &rq), 0);
	assert_non_null(rq);
	return rq;
}

/* Write the files of a kernel that has everything. */
static void put_all(void)
{
	fake_put_stat(1024, 100, 200, 3);
	fake_put("some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\n"
		 "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		 "proc/pressure/cpu");
	fake_put("0::/\n", "proc/self/cgroup");
	fake_link_own_schedstat();
}

TEST(test_ladder__schedstat, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue *rq;

	put_all();
	rq = start(RUN_QUEUE_SOURCE_SCHEDSTAT);
	assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_SCHEDSTAT);
	assert_null(run_queue_sentence(rq, 0));
	run_queue_free(rq);
}

TEST(test_ladder__no_schedstat, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue *rq;

	put_all();
	fake_remove("proc/self/task/%d/schedstat", gettid());
	rq = start(RUN_QUEUE_SOURCE_SCHEDSTAT);
	assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_PSI);
	assert_non_null(strstr(run_queue_sentence(rq, 0), "schedstat: "));
	assert_non_null(strstr(run_queue_sentence(rq, 0), "CONFIG_SCHED_INFO"));
	assert_null(run_queue_sentence(rq, 1));
	run_queue_free(rq);
}

/*
 * A /proc of another PID namespace has other numbers, so probes could not identify threads either.
 */
TEST(test_ladder__proc_of_another_namespace, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue *rq;

	put_all();
	fake_remove("proc/self/task/%d", gettid());
	rq = start(RUN_QUEUE_SOURCE_AUTO);
	assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_PSI);
	assert_non_null(strstr(run_queue_sentence(rq, 0), "ebpf: "));
	assert_non_null(strstr(run_queue_sentence(rq, 0), "mount -t proc proc"));
	assert_non_null(strstr(run_queue_sentence(rq, 1), "schedstat: "));
	assert_non_null(strstr(run_queue_sentence(rq, 1), "mount -t proc proc"));
	assert_null(run_queue_sentence(rq, 2));
	run_queue_free(rq);
}

/* Files of kernels that do not count, and of one whose figures stand still. */
TEST(test_ladder__dead_schedstat, fake_proc_set_up, fake_proc_tear_down)
{
	static const char *const texts[] = {"0 0 0\n", "5000 0 1\n", "", "1 2\n", "x y z\n"};

	put_all();
	fake_remove("proc/self/task/%d/schedstat", gettid());
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct run_queue *rq;

		fake_put(texts[i], "proc/self/task/%d/schedstat", gettid());
		rq = start(RUN_QUEUE_SOURCE_SCHEDSTAT);
		assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_PSI);
		assert_non_null(strstr(run_queue_sentence(rq, 0),
				       i < 2 ? "do not change" : "cannot be read"));
		run_queue_free(rq);
	}
}

TEST(test_ladder__no_pressure, fake_proc_set_up, fake_proc_tear_down)
{
	static const char *const texts[] = {"", "full avg10=0.00 total=7\n", "some total=\n",
					    "some avg10=0.00 total=-1\n"};

	put_all();
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct run_queue *rq;

		fake_put(texts[i], "proc/pressure/cpu");
		rq = start(RUN_QUEUE_SOURCE_PSI);
		assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_STAT);
		assert_non_null(strstr(run_queue_sentence(rq, 0), "psi: "));
		assert_non_null(strstr(run_queue_sentence(rq, 0), "psi=1"));
		run_queue_free(rq);
	}
}

TEST(test_ladder__no_source, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue_totals totals;
	struct run_queue_thread_report thread;
	struct run_queue_report report;
	struct run_queue_cost cost;
	struct run_queue *rq;

	rq = start(RUN_QUEUE_SOURCE_SCHEDSTAT);
	assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_NONE);
	for (unsigned int i = 0; i < 3; i++)
		assert_non_null(run_queue_sentence(rq, i));
	assert_null(run_queue_sentence(rq, 3));

	/* All functions may be called without a source; they do nothing. */
	run_queue_set_pace(rq, RUN_QUEUE_PACE_BUSY);
	assert_int_equal(run_queue_add_tenant(rq), RUN_QUEUE_NO_TENANT);
	run_queue_watch_process(rq, 1, -1, RUN_QUEUE_NO_TENANT);
	run_queue_unwatch_process(rq, 1, RUN_QUEUE_NO_TENANT);
	run_queue_watch_cgroup(rq, "/", RUN_QUEUE_NO_TENANT);
	run_queue_unwatch_cgroup(rq, "/", RUN_QUEUE_NO_TENANT);
	run_queue_remove_tenant(rq, RUN_QUEUE_NO_TENANT);
	run_queue_reset(rq);
	run_queue_read(rq, &totals);
	assert_false(totals.has_workers || totals.has_processors || totals.has_stall);
	assert_int_equal(run_queue_caused_ns(rq, RUN_QUEUE_NO_TENANT), 0);
	assert_false(run_queue_thread(rq, 0, &thread));
	assert_false(run_queue_tenant(rq, 0, &report));
	assert_false(run_queue_workers(rq, &report));
	run_queue_cost(rq, &cost);
	assert_int_equal(cost.n_events, 0);
	run_queue_free(rq);
}

TEST(test_names, fake_proc_set_up, fake_proc_tear_down)
{
	assert_string_equal(run_queue_source_name(RUN_QUEUE_SOURCE_AUTO), "auto");
	assert_string_equal(run_queue_source_name(RUN_QUEUE_SOURCE_EBPF), "ebpf");
	assert_string_equal(run_queue_source_name(RUN_QUEUE_SOURCE_SCHEDSTAT), "schedstat");
	assert_string_equal(run_queue_source_name(RUN_QUEUE_SOURCE_PSI), "psi");
	assert_string_equal(run_queue_source_name(RUN_QUEUE_SOURCE_STAT), "stat");
	assert_string_equal(run_queue_source_name(RUN_QUEUE_SOURCE_NONE), "none");
}

TEST(test_schedstat__totals, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue_totals totals;
	struct run_queue *rq;

	put_all();
	fake_put_thread(WORKER_0, "rb-cpu-0", 5, 1000, 200, 3);
	fake_put_thread(WORKER_1, "rb-cpu-1", 5, 2000, 50, 4);
	fake_put_thread(OTHER, "rb-telemetry", 5, 70000, 80000, 90);
	rq = start(RUN_QUEUE_SOURCE_SCHEDSTAT);
	/* While no client is connected, nothing is read. */
	assert_false(read_totals(rq).has_workers);
	run_queue_set_pace(rq, RUN_QUEUE_PACE_BUSY);
	WAIT_UNTIL(read_totals(rq).has_workers);
	totals = read_totals(rq);
	assert_fields(totals, (run_ns, 3000), (wait_ns, 250), (n_preemptions, 7),
		      (idle_wait_ns, 0));
	assert_true(totals.has_processors);
	assert_true(totals.n_processors > 0);
	/* One tick is usually 10 ms. */
	assert_fields(
		totals,
		(idle_ns, 200 * (second_ns / (uint64_t)sysconf(_SC_CLK_TCK)) * totals.n_processors),
		(steal_ns, 3 * (second_ns / (uint64_t)sysconf(_SC_CLK_TCK)) * totals.n_processors));
	assert_true(totals.others_ns > 0);
	assert_false(totals.has_stall);
	assert_true(totals.at_ns > 0 && totals.at_ns <= clock_now_ns());

	/* The figures increase. */
	fake_put_thread(WORKER_1, "rb-cpu-1", 5, 5000, 60, 14);
	/* The thread's two files may have been read before and after the change. */
	WAIT_UNTIL(read_totals(rq).n_preemptions == 17 && read_totals(rq).run_ns == 6000);
	assert_int_equal(read_totals(rq).wait_ns, 260);
	/* A file that cannot be parsed leaves the known figures unchanged. */
	fake_put("garbage\n", "proc/self/task/%d/schedstat", WORKER_0);
	fake_put_thread(WORKER_1, "rb-cpu-1", 5, 5000, 60, 15);
	WAIT_UNTIL(read_totals(rq).n_preemptions == 18);
	assert_int_equal(read_totals(rq).run_ns, 6000);
	/* A worker ends. */
	fake_remove("proc/self/task/%d", WORKER_0);
	WAIT_UNTIL(read_totals(rq).run_ns == 5000);
	run_queue_free(rq);
}

TEST(test_schedstat__reports, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue_report workers;
	struct run_queue *rq;

	put_all();
	fake_put("1 (brokerd) S 1 1 1 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 3 0 5 1000 100\n",
		 "proc/self/task/%d/stat", getpid());
	fake_put_thread(WORKER_0, "rb-cpu-0", 5, 1000, 200, 3);
	fake_put_thread(OTHER, "odd) \033[1m", 5, 70000, 80000, 90);
	rq = start(RUN_QUEUE_SOURCE_SCHEDSTAT);
	run_queue_set_pace(rq, RUN_QUEUE_PACE_CONTENDED);
	WAIT_UNTIL(find_thread(rq, WORKER_0).report.run_ns == 0 && find_thread(rq, WORKER_0).tid);
	assert_int_equal(find_thread(rq, getpid()).role, RUN_QUEUE_REACTOR);
	assert_int_equal(find_thread(rq, WORKER_0).role, RUN_QUEUE_WORKER);
	assert_string_equal(find_thread(rq, WORKER_0).name, "rb-cpu-0");
	assert_int_equal(find_thread(rq, OTHER).role, RUN_QUEUE_OTHER);
	assert_string_equal(find_thread(rq, OTHER).name, "odd) ?[1m");
	/* Figures count from the time when the thread was first watched. */
	fake_put_thread(WORKER_0, "rb-cpu-0", 5, 4000, 700, 9);
	WAIT_UNTIL(find_thread(rq, WORKER_0).report.n_involuntary == 6 &&
		   find_thread(rq, WORKER_0).report.run_ns == 3000);
	assert_false(find_thread(rq, WORKER_0).report.has_delays);
	assert_int_equal(find_thread(rq, WORKER_0).report.wait_ns, 500);
	WAIT_UNTIL(run_queue_workers(rq, &workers) && workers.wait_ns == 500);
	assert_false(workers.has_delays);
	/* When a thread's name becomes known, so does its role. */
	fake_put_thread(OTHER, "rb-cpu-1", 5, 70000, 80000, 90);
	WAIT_UNTIL(find_thread(rq, OTHER).role == RUN_QUEUE_WORKER);
	/* A new thread with the same number starts at zero. */
	fake_put_thread(WORKER_0, "rb-cpu-0", 6, 5000, 900, 9);
	WAIT_UNTIL(find_thread(rq, WORKER_0).report.run_ns == 0);
	run_queue_reset(rq);
	/* Both threads end, and their reports are removed. */
	fake_remove("proc/self/task/%d", WORKER_0);
	fake_remove("proc/self/task/%d", OTHER);
	WAIT_UNTIL(!run_queue_workers(rq, &workers));
	assert_int_equal(find_thread(rq, WORKER_0).tid, 0);
	run_queue_free(rq);
}

TEST(test_schedstat__tenants, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue_report report;
	uint16_t slot, second;
	struct run_queue *rq;

	put_all();
	fake_put_process(CLIENT, "client", 77, 1000, 100);
	fake_put("usage_usec 5\nnr_throttled 1\nthrottled_usec 50\n",
		 "cgroup/services/one/cpu.stat");
	rq = start(RUN_QUEUE_SOURCE_SCHEDSTAT);
	run_queue_set_pace(rq, RUN_QUEUE_PACE_CONTENDED);
	slot = run_queue_add_tenant(rq);
	assert_int_not_equal(slot, RUN_QUEUE_NO_TENANT);
	run_queue_watch_process(rq, CLIENT, -1, slot);
	/* A process watched twice must be unwatched twice. */
	run_queue_watch_process(rq, CLIENT, -1, slot);
	run_queue_unwatch_process(rq, CLIENT, slot);
	/* Watching a process that does not exist does nothing. */
	run_queue_watch_process(rq, CLIENT + 1, -1, slot);
	run_queue_unwatch_process(rq, CLIENT + 1, slot);
	WAIT_UNTIL(run_queue_tenant(rq, slot, &report));

	/* Figures from before the watch do not count. Then they increase. */
	for (uint64_t ns = 2000; find_tenant(rq, slot, UINT64_MAX).run_ns < 5000; ns += 1000) {
		fake_put_process(CLIENT, "client", 77, ns, ns / 10);
		for (unsigned int i = 0; i < 100; i++)
			fake_moment();
	}
	assert_false(find_tenant(rq, slot, UINT64_MAX).has_delays);
	assert_true(find_tenant(rq, slot, UINT64_MAX).wait_ns >= 500);
	fake_put("usage_usec 5\nnr_throttled 1\nthrottled_usec 75\n",
		 "cgroup/services/one/cpu.stat");
	WAIT_UNTIL(find_tenant(rq, slot, UINT64_MAX).throttled_ns == 25000);
	run_queue_reset(rq);
	WAIT_UNTIL(find_tenant(rq, slot, UINT64_MAX).throttled_ns == 0);

	/* The number belongs to another process now, so it does not count. */
	fake_put_process(CLIENT, "somebody", 78, 90000000000u, 1000);
	fake_put_process(CLIENT + 2, "other", 79, 1, 1);
	second = run_queue_add_tenant(rq);
	assert_int_not_equal(second, slot);
	run_queue_watch_process(rq, CLIENT + 2, -1, second);
	WAIT_UNTIL(run_queue_tenant(rq, second, &report));
	for (uint64_t ns = 1000; find_tenant(rq, second, UINT64_MAX).run_ns == 0; ns += 1000) {
		fake_put_process(CLIENT + 2, "other", 79, ns, 1);
		for (unsigned int i = 0; i < 100; i++)
			fake_moment();
	}
	assert_true(find_tenant(rq, slot, UINT64_MAX).run_ns < 90000000u);
	run_queue_remove_tenant(rq, slot);
	WAIT_UNTIL(!run_queue_tenant(rq, slot, &report));
	assert_int_equal(run_queue_add_tenant(rq), slot);
	run_queue_free(rq);
}

TEST(test_tenants__more_than_slots, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue *rq;
	uint16_t slots[64];

	put_all();
	rq = start(RUN_QUEUE_SOURCE_STAT);
	for (unsigned int i = 0; i < 64; i++)
		slots[i] = run_queue_add_tenant(rq);
	for (unsigned int i = 0; i < 64; i++)
		for (unsigned int j = 0; j < i; j++)
			assert_int_not_equal(slots[i], slots[j]);
	assert_int_equal(run_queue_add_tenant(rq), RUN_QUEUE_NO_TENANT);
	assert_int_equal(run_queue_add_tenant(rq), RUN_QUEUE_NO_TENANT);
	assert_int_equal(read_totals(rq).n_unwatched, 2);
	/* A slot given back can be used again soon. */
	run_queue_remove_tenant(rq, slots[7]);
	run_queue_remove_tenant(rq, slots[7]);
	WAIT_UNTIL(run_queue_add_tenant(rq) == slots[7]);
	run_queue_free(rq);
}

/*
 * More commands than the queue has room for, also for cgroups that do not exist: the excess is
 * counted, and no call blocks.
 */
TEST(test_commands__flood, fake_proc_set_up, fake_proc_tear_down)
{
	unsigned int n_watched = 0;
	struct run_queue *rq;
	uint64_t n_dropped;
	uint16_t slot;

	put_all();
	rq = start(RUN_QUEUE_SOURCE_STAT);
	slot = run_queue_add_tenant(rq);
	for (pid_t pid = CLIENT; pid < CLIENT + 1100; pid++)
		fake_put_process(pid, "client", 1, 0, 0);
	/* No more than fit into the queue, in case the thread does not run. */
	for (pid_t pid = CLIENT; pid < CLIENT + 1100; pid++)
		assert_true(run_queue_watch_process(rq, pid, -1, slot));
	for (unsigned int i = 0; i < 300; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/none/%u", i);
		run_queue_watch_cgroup(rq, path, slot);
	}
	WAIT_UNTIL(read_totals(rq).n_dropped >= 1100 - 1024 + 300 - 256);
	/* Commands at full speed, also if the thread does not run. */
	for (unsigned int i = 0; i < 10000; i++)
		n_watched += run_queue_watch_cgroup(rq, "/none/0", slot);
	n_dropped = read_totals(rq).n_dropped;
	assert_true(n_watched < 4096);
	/* Each accepted watch can be undone. */
	for (unsigned int i = 0; i < n_watched; i++)
		run_queue_unwatch_cgroup(rq, "/none/0", slot);
	for (unsigned int i = 0; i < 30; i++)
		fake_moment();
	assert_int_equal(read_totals(rq).n_dropped, n_dropped);
	for (unsigned int i = 0; i < 100000; i++)
		run_queue_unwatch_process(rq, 1, slot);
	run_queue_remove_tenant(rq, slot);
	WAIT_UNTIL(run_queue_add_tenant(rq) == slot);
	run_queue_free(rq);
}

static unsigned int count_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/*
 * The number of open descriptors is limited, however many clients connect before the thread runs.
 */
TEST(test_commands__no_descriptors, fake_proc_set_up, fake_proc_tear_down)
{
	unsigned int n, most = 0;
	struct run_queue *rq;
	int ends[2];
	uint16_t slot;

	put_all();
	fake_put_process(CLIENT, "client", 1, 0, 0);
	rq = start(RUN_QUEUE_SOURCE_STAT);
	slot = run_queue_add_tenant(rq);
	/* A pipe with a writer is not readable, like the pidfd of a live process. */
	assert_int_equal(pipe(ends), 0);
	n = count_descriptors();
	for (unsigned int i = 0; i < 1000; i++)
		assert_true(run_queue_watch_process(rq, CLIENT, ends[0], slot));
	most = count_descriptors();
	/* The thread may have one or two descriptors open. */
	assert_true(most <= n + 4);
	run_queue_free(rq);
	close(ends[0]);
	close(ends[1]);
}

TEST(test_psi__totals, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue_totals totals;
	struct run_queue *rq;

	put_all();
	fake_put_thread(WORKER_0, "rb-cpu-0", 5, 1000, 200, 3);
	rq = start(RUN_QUEUE_SOURCE_PSI);
	assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_PSI);
	run_queue_set_pace(rq, RUN_QUEUE_PACE_BUSY);
	WAIT_UNTIL(read_totals(rq).has_stall);
	totals = read_totals(rq);
	assert_int_equal(totals.stall_ns, 1234000);
	assert_false(totals.has_workers);
	assert_true(totals.has_processors);
	fake_put("some avg10=0.00 avg60=0.00 avg300=0.00 total=2000\n", "proc/pressure/cpu");
	WAIT_UNTIL(read_totals(rq).stall_ns == 2000000);
	run_queue_free(rq);
}

/*
 * The pressure of the broker's own cgroup takes precedence over the machine's. Tenants have that of
 * their cgroups.
 */
TEST(test_psi__cgroups, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue_report report;
	struct run_queue *rq;
	uint16_t slot;

	put_all();
	fake_put("1:cpu:/x\n0::/broker\n", "proc/self/cgroup");
	fake_put("some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", "cgroup/broker/cpu.pressure");
	fake_put("some avg10=0.00 avg60=0.00 avg300=0.00 total=100\n",
		 "cgroup/services/two/cpu.pressure");
	rq = start(RUN_QUEUE_SOURCE_PSI);
	run_queue_set_pace(rq, RUN_QUEUE_PACE_CONTENDED);
	WAIT_UNTIL(read_totals(rq).has_stall);
	assert_int_equal(read_totals(rq).stall_ns, 7000);
	slot = run_queue_add_tenant(rq);
	run_queue_watch_cgroup(rq, "/services/two", slot);
	WAIT_UNTIL(run_queue_tenant(rq, slot, &report));
	for (unsigned int total = 200; find_tenant(rq, slot, UINT64_MAX).wait_ns < 100000;
	     total += 100) {
		char text[64];

		snprintf(text, sizeof(text), "some avg10=0.00 total=%u\n", total);
		fake_put(text, "cgroup/services/two/cpu.pressure");
		for (unsigned int i = 0; i < 100; i++)
			fake_moment();
	}
	run_queue_free(rq);
}

TEST(test_stat__totals, fake_proc_set_up, fake_proc_tear_down)
{
	const uint64_t tick_ns = second_ns / (uint64_t)sysconf(_SC_CLK_TCK);
	struct run_queue_totals totals, later;
	struct run_queue *rq;

	put_all();
	fake_put_stat(1024, 1000000, 200, 3);
	rq = start(RUN_QUEUE_SOURCE_STAT);
	run_queue_set_pace(rq, RUN_QUEUE_PACE_BUSY);
	WAIT_UNTIL(read_totals(rq).has_processors);
	totals = read_totals(rq);
	assert_false(totals.has_workers || totals.has_stall);
	/* All time except that of this process. */
	assert_true(totals.others_ns < 1000000 * tick_ns * totals.n_processors);
	assert_true(totals.others_ns > 900000 * tick_ns * totals.n_processors);
	/* A short reading with ticks that went back, as kernels allow for idle time. */
	fake_put_stat(1024, 999999, 300, 3);
	WAIT_UNTIL(read_totals(rq).idle_ns == 300 * tick_ns * totals.n_processors);
	later = read_totals(rq);
	assert_int_equal(later.others_ns, totals.others_ns);
	/* The file is empty. */
	fake_put("", "proc/stat");
	WAIT_UNTIL(!read_totals(rq).has_processors);
	run_queue_free(rq);
}

TEST(test_new__no_memory, fake_proc_set_up, fake_proc_tear_down)
{
	struct run_queue_options options = {
		.source = RUN_QUEUE_SOURCE_STAT,
		.proc_path = fake_proc,
		.cgroup_path = fake_cgroup,
	};
	struct run_queue *rq;
	int r;

	put_all();
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = run_queue_new(&options, &rq);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_int_equal(r, 0);
	/* A command that there is no memory for is dropped. */
	run_queue_set_pace(rq, RUN_QUEUE_PACE_BUSY);
	fake_put_process(getpid(), "client", 1, 0, 0);
	fail_alloc_at(1);
	assert_false(run_queue_watch_process(rq, getpid(), -1, run_queue_add_tenant(rq)));
	assert_true(fail_alloc_stop());
	assert_int_equal(read_totals(rq).n_dropped, 1);
	run_queue_free(rq);
	assert_null(run_queue_free(NULL));
}
