/* SPDX-License-Identifier: MIT */
/* Figures of the probes: totals, reports, watched processes, loss of the probes */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contention/cgroup-name.h"
#include "fail-alloc.h"
#include "fake-probes.h"
#include "fake-proc.h"
#include "run-queue-read.h"
#include "support/test.h"
#include "util/clock.h"
#include "util/proc.h"

static const uint64_t second_ns = 1000000000u;

/* Thread numbers that no thread of this test has. */
enum { WORKER_0 = 99000001, WORKER_1 = 99000002, CLIENT = 99000010 };

static struct run_queue *start(void)
{
	struct run_queue_options options = {
		.source = RUN_QUEUE_SOURCE_AUTO,
		.proc_path = fake_proc,
		.cgroup_path = fake_cgroup,
	};
	struct run_queue *rq = NULL;

	fake_put_stat(1024, 100, 200, 3);
	fake_link_own_schedstat();
	fake_put_thread(WORKER_0, "rb-cpu-0", 5, 1000, 200, 3);
	fake_put_thread(WORKER_1, "rb-cpu-1", 5, 2000, 50, 4);
	assert_int_equal(run_queue_new(&options, &rq), 0);
	return rq;
}

/* Start, and wait until the workers are known. */
static struct run_queue *start_busy(void)
{
	struct run_queue *rq = start();

	assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_EBPF);
	run_queue_set_pace(rq, RUN_QUEUE_PACE_CONTENDED);
	WAIT_UNTIL(fake_probes_of(WORKER_0) && fake_probes_of(WORKER_1) && fake_probes.n_walks > 0);
	return rq;
}

static int set_up(void **state)
{
	fake_probes_reset();
	return fake_proc_set_up(state);
}

TEST(test_ladder__unavailable, set_up, fake_proc_tear_down)
{
	struct run_queue *rq;

	fake_probes.is_unavailable = true;
	rq = start();
	assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_SCHEDSTAT);
	assert_string_equal(run_queue_sentence(rq, 0), "ebpf: not here; elsewhere they would do.");
	assert_null(run_queue_sentence(rq, 1));
	run_queue_free(rq);
	assert_int_equal(fake_probes.n_freed, 0);
}

TEST(test_new__no_memory, set_up, fake_proc_tear_down)
{
	struct run_queue_options options = {.proc_path = fake_proc, .cgroup_path = fake_cgroup};
	struct run_queue *rq = NULL;

	fake_link_own_schedstat();
	fake_probes.has_no_memory = true;
	assert_int_equal(run_queue_new(&options, &rq), -ENOMEM);
	fake_probes.has_no_memory = false;
	for (unsigned int n = 1;; n++) {
		int r;

		fail_alloc_at(n);
		r = run_queue_new(&options, &rq);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	run_queue_free(rq);
	assert_true(fake_probes.n_freed >= 1);
}

TEST(test_read__sums, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	struct run_queue_record *first = fake_probes_of(WORKER_0),
				*second = fake_probes_of(WORKER_1);
	struct run_queue_totals totals;

	fake_probes_set(first->run_ns, 1000);
	fake_probes_set(second->run_ns, 500);
	fake_probes_set(first->wait_ns, 70);
	fake_probes_set(second->wait_ns, 7);
	fake_probes_set(first->idle_wait_ns, 3);
	fake_probes_set(second->n_preemptions, 9);
	for (unsigned int i = 0; i < FAKE_PROCESSORS; i++) {
		fake_probes_set(fake_probes.processors[i].idle_ns, 10000);
		fake_probes_set(fake_probes.processors[i].others_ns, 2000);
		fake_probes_set(fake_probes.processors[i].n_dropped, 1);
	}
	totals = read_totals(rq);
	assert_true(totals.has_workers);
	assert_fields(totals, (run_ns, 1500), (wait_ns, 77), (idle_wait_ns, 3), (n_preemptions, 9));
	assert_true(totals.has_processors);
	assert_true(totals.n_processors >= 1 && totals.n_processors <= FAKE_PROCESSORS);
	assert_fields(totals, (idle_ns, 10000 * totals.n_processors),
		      (others_ns, 2000 * totals.n_processors), (n_dropped, 2));
	assert_true(totals.steal_ns > 0);
	assert_false(totals.has_stall);
	/* A thread ends, and its figures are no longer counted. */
	fake_remove("proc/self/task/%d", WORKER_1);
	WAIT_UNTIL(read_totals(rq).run_ns == 1000);
	run_queue_free(rq);
}

/*
 * Delays and run times in progress are included. Totals never decrease when they end differently.
 */
TEST(test_read__includes_waits_in_progress, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	struct run_queue_record *first = fake_probes_of(WORKER_0);
	struct run_queue_totals totals, later;
	uint64_t since_ns = clock_now_ns() - second_ns;

	for (unsigned int i = 0; i < FAKE_PROCESSORS; i++) {
		fake_probes_set(fake_probes.processors[i].since_ns, since_ns);
		fake_probes_set(fake_probes.processors[i].now, RUN_QUEUE_OTHERS);
	}
	fake_probes_set(first->waiting_since_ns, since_ns);
	totals = read_totals(rq);
	assert_true(totals.wait_ns >= second_ns);
	assert_int_equal(totals.idle_wait_ns, 0);
	assert_true(totals.others_ns >= second_ns * totals.n_processors);
	assert_int_equal(totals.idle_ns, 0);

	/* The wait ended, and was due to a quota. */
	fake_probes_set(first->waiting_since_ns, 0);
	fake_probes_set(first->idle_wait_ns, second_ns);
	later = read_totals(rq);
	assert_fields(later, (wait_ns, totals.wait_ns), (idle_wait_ns, second_ns));
	assert_true(later.others_ns >= totals.others_ns);

	/* The thread runs. */
	fake_probes_set(first->running_since_ns, since_ns);
	assert_true(read_totals(rq).run_ns >= second_ns);
	fake_probes_set(first->running_since_ns, 0);
	fake_probes_set(first->run_ns, 5);
	assert_true(read_totals(rq).run_ns >= second_ns);
	run_queue_free(rq);
}

/* A wait while a processor is idle, or for a quota, is not caused by another thread. */
TEST(test_read__idle, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	struct run_queue_record *first = fake_probes_of(WORKER_0);
	uint64_t since_ns = clock_now_ns() - second_ns;
	struct run_queue_totals totals;

	for (unsigned int i = 0; i < FAKE_PROCESSORS; i++)
		fake_probes_set(fake_probes.processors[i].now, RUN_QUEUE_IDLE);
	fake_probes_set(first->waiting_since_ns, since_ns);
	totals = read_totals(rq);
	assert_int_equal(totals.wait_ns, 0);
	assert_true(totals.idle_wait_ns >= second_ns);
	run_queue_free(rq);

	fake_probes_reset();
	fake_remove("proc");
	rq = start_busy();
	first = fake_probes_of(WORKER_0);
	for (unsigned int i = 0; i < FAKE_PROCESSORS; i++)
		fake_probes_set(fake_probes.processors[i].now, RUN_QUEUE_OTHERS);
	read_totals(rq);
	fake_probes_set(first->n_throttled, 1);
	fake_probes_set(first->waiting_since_ns, since_ns);
	for (unsigned int i = 0; i < 3; i++) {
		totals = read_totals(rq);
		assert_int_equal(totals.wait_ns, 0);
		assert_true(totals.idle_wait_ns >= second_ns);
	}
	/* The next wait is not due to a quota, so it counts. */
	fake_probes_set(first->waiting_since_ns, since_ns + 1);
	assert_true(read_totals(rq).wait_ns >= second_ns / 2);
	run_queue_free(rq);
}

static void put_causer(struct run_queue_causer *causer, const char *comm, uint64_t cgroup,
		       uint32_t who, uint64_t wait_ns)
{
	struct run_queue_causer made = {.cgroup = cgroup, .who = who, .process = 77};
	uint64_t words[sizeof(made) / sizeof(uint64_t)];

	snprintf(made.comm, sizeof(made.comm), "%s", comm);
	snprintf(made.cgroup_name, sizeof(made.cgroup_name), "gone.slice\n");
	made.n_preemptions = 2;
	/* Written word by word, as the probes do while a reader reads. */
	memcpy(words, &made, sizeof(made));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		fake_probes_set(((uint64_t *)causer)[i], words[i]);
	/* The time is written last: an entry without time is unused. */
	fake_probes_set(causer->wait_ns, wait_ns);
}

TEST(test_report__threads, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	struct run_queue_record *first = fake_probes_of(WORKER_0);
	struct run_queue_report report;
	struct cgroup_names *names;
	struct run_queue_cost cost;
	uint16_t slot;
	uint64_t id;

	fake_put("", "cgroup/services/hog/cgroup.procs");
	assert_int_equal(cgroup_names_new(fake_cgroup, &names), 0);
	id = cgroup_names_id(names, "/services/hog");
	cgroup_names_free(names);
	slot = run_queue_add_tenant(rq);
	WAIT_UNTIL(run_queue_tenant(rq, slot, &report));
	/* By now the worker's report has begun. */
	WAIT_UNTIL(find_thread(rq, WORKER_0).tid);

	for (unsigned int i = 0; i < 100; i++)
		fake_probes_set(first->buckets[run_queue_bucket(i < 90 ? 5000 : 2000000)],
				i < 90 ? i + 1 : i - 89);
	fake_probes_set(first->max_wait_ns, 2000001);
	fake_probes_set(first->wait_ns, 20450000);
	fake_probes_set(first->n_waits, 100);
	fake_probes_set(first->n_migrations, 4);
	put_causer(&first->causers[0], "hog\033[1m", id, 0, 9000);
	put_causer(&first->causers[1], "rb-cpu-1", 1, RUN_QUEUE_THREAD << 16 | 1, 8000);
	put_causer(&first->causers[2], "client", 999999999, RUN_QUEUE_TENANT << 16 | slot, 7000);
	put_causer(&first->causers[3], "fourth", 1, 0, 6000);
	/* A report may fall into the middle of this update. */
	WAIT_UNTIL((report = find_thread(rq, WORKER_0).report,
		    report.n_causes == 3 && report.n_waits == 100 && report.n_migrations == 4 &&
			    report.p99_ns > 1000000));
	assert_true(report.has_delays);
	assert_int_equal(report.wait_ns, 20450000);
	assert_true(report.p50_ns > 5000 * 15 / 16 && report.p50_ns < 5000 * 17 / 16);
	assert_true(report.p99_ns > 2000000 / 16 * 15 && report.p99_ns <= 2000001);
	assert_int_equal(report.max_ns, 2000001);
	assert_string_equal(report.causes[0].comm, "hog?[1m");
	assert_string_equal(report.causes[0].cgroup, "/services/hog");
	assert_fields(report.causes[0], (pid, 77), (wait_ns, 9000), (n_preemptions, 2),
		      (tenant, RUN_QUEUE_NO_TENANT));
	assert_false(report.causes[0].is_own);
	assert_true(report.causes[1].is_own);
	assert_int_equal(report.causes[2].tenant, slot);
	assert_string_equal(report.causes[2].cgroup, "gone.slice?");
	/* All workers together. */
	WAIT_UNTIL(run_queue_workers(rq, &report) && report.n_waits == 100 && report.n_causes == 3);
	assert_string_equal(report.causes[0].comm, "hog?[1m");
	run_queue_cost(rq, &cost);
	assert_fields(cost, (n_events, 1000), (event_ns, 50000));

	/* A removed tenant is no longer named as a cause. */
	run_queue_remove_tenant(rq, slot);
	WAIT_UNTIL(fake_probes.cleared[slot] == 1);
	WAIT_UNTIL(find_thread(rq, WORKER_0).report.causes[2].tenant == RUN_QUEUE_NO_TENANT);
	/* After a reset, figures count from zero. */
	run_queue_reset(rq);
	WAIT_UNTIL(find_thread(rq, WORKER_0).report.n_waits == 0);
	run_queue_free(rq);
}

TEST(test_report__tenants, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	struct run_queue_report report;
	uint16_t slot = run_queue_add_tenant(rq);

	WAIT_UNTIL(run_queue_tenant(rq, slot, &report));
	for (unsigned int i = 0; i < FAKE_PROCESSORS; i++) {
		struct run_queue_record *record = &fake_probes.tenants[slot][i];

		put_causer(&record->causers[0], "hog", 1, 0, 500);
		fake_probes_set(record->buckets[run_queue_bucket(1000 << (i * 10))], 5);
		fake_probes_set(record->max_wait_ns, 1000 << (i * 10));
		fake_probes_set(record->caused_ns, 30);
		fake_probes_set(record->run_ns, 1000);
		fake_probes_set(record->n_throttled, 2);
	}
	/* A report may fall into the middle of this update. */
	WAIT_UNTIL((report = find_tenant(rq, slot, UINT64_MAX),
		    report.n_throttled == 4 && report.n_causes == 1 && report.run_ns == 2000 &&
			    report.caused_ns == 60 && report.max_ns == 1000 << 10 &&
			    report.causes[0].wait_ns == 1000));
	assert_true(report.has_delays);
	assert_int_equal(report.causes[0].n_preemptions, 4);
	assert_int_equal(run_queue_caused_ns(rq, slot), 60);
	run_queue_free(rq);
}

/* Processes and cgroups that the probes are told to watch. */
TEST(test_watch, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	uint16_t slot = run_queue_add_tenant(rq), second = run_queue_add_tenant(rq);
	struct cgroup_names *names;
	uint64_t id;

	fake_put("", "cgroup/services/one/cpu.stat");
	assert_int_equal(cgroup_names_new(fake_cgroup, &names), 0);
	id = cgroup_names_id(names, "/services/one");
	fake_put_process(CLIENT, "client", 77, 1, 1);
	run_queue_watch_process(rq, CLIENT, -1, slot);
	run_queue_watch_process(rq, CLIENT, -1, slot);
	WAIT_UNTIL(fake_probes_process(CLIENT) == slot);
	/*
	 * If two tenants watch a process, the last one counts. When it stops, the first counts
	 * again.
	 */
	run_queue_watch_process(rq, CLIENT, -1, second);
	WAIT_UNTIL(fake_probes_process(CLIENT) == second);
	run_queue_unwatch_process(rq, CLIENT, second);
	WAIT_UNTIL(fake_probes_process(CLIENT) == slot);
	run_queue_unwatch_process(rq, CLIENT, slot);
	run_queue_watch_cgroup(rq, "/services/one", second);
	WAIT_UNTIL(fake_probes_cgroup(id) == second);
	assert_int_equal(fake_probes_process(CLIENT), slot);
	run_queue_unwatch_process(rq, CLIENT, slot);
	WAIT_UNTIL(fake_probes_process(CLIENT) == -1);

	/* The process ends, and another process gets its number. */
	run_queue_watch_process(rq, CLIENT, -1, slot);
	WAIT_UNTIL(fake_probes_process(CLIENT) == slot);
	fake_put_process(CLIENT, "other", 78, 1, 1);
	WAIT_UNTIL(fake_probes_process(CLIENT) == -1);

	/* Removing a tenant ends all its watches. */
	run_queue_watch_process(rq, CLIENT, -1, second);
	WAIT_UNTIL(fake_probes_process(CLIENT) == second);
	run_queue_remove_tenant(rq, second);
	WAIT_UNTIL(fake_probes.cleared[second] == 1);
	assert_int_equal(fake_probes_process(CLIENT), -1);
	assert_int_equal(fake_probes_cgroup(id), -1);
	/* A watch for a removed tenant does nothing. */
	run_queue_watch_process(rq, CLIENT, -1, second);
	WAIT_UNTIL(run_queue_add_tenant(rq) == second);
	run_queue_watch_cgroup(rq, "/services/one", slot);
	WAIT_UNTIL(fake_probes_cgroup(id) == slot);
	assert_int_equal(fake_probes_process(CLIENT), -1);
	cgroup_names_free(names);
	run_queue_free(rq);
}

/* The process ended before the thread examined it, as its descriptor shows. */
TEST(test_watch__ended, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	uint16_t slot = run_queue_add_tenant(rq);
	int ends[2];

	/* A pipe without writers is readable, like the pidfd of a process that ended. */
	assert_int_equal(pipe(ends), 0);
	close(ends[1]);
	fake_put_process(CLIENT, "client", 77, 1, 1);
	fake_put_process(CLIENT + 1, "client", 77, 1, 1);
	run_queue_watch_process(rq, CLIENT, ends[0], slot);
	run_queue_watch_process(rq, CLIENT + 1, -1, slot);
	close(ends[0]);
	WAIT_UNTIL(fake_probes_process(CLIENT + 1) == slot);
	assert_int_equal(fake_probes_process(CLIENT), -1);
	run_queue_free(rq);
}

/* A process that /proc does not show, but whose descriptor proves that it lives. */
TEST(test_watch__hidden, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	uint16_t slot = run_queue_add_tenant(rq);
	pid_t pid = fork();
	int ends[2];

	assert_true(pid >= 0);
	if (pid == 0) {
		pause();
		_exit(0);
	}
	/* A pipe with a writer is not readable, like the pidfd of a live process. */
	assert_int_equal(pipe(ends), 0);
	run_queue_watch_process(rq, pid, ends[0], slot);
	WAIT_UNTIL(fake_probes_process(pid) == slot);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	WAIT_UNTIL(fake_probes_process(pid) == -1);
	close(ends[0]);
	close(ends[1]);
	run_queue_free(rq);
}

/* Walks of all processes are rare, however many processes are watched. */
TEST(test_walk__few, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	uint16_t slot = run_queue_add_tenant(rq);
	uint32_t before, n_walks;
	uint64_t start_ns;

	for (pid_t pid = CLIENT; pid < CLIENT + 50; pid++)
		fake_put_process(pid, "client", 77, 1, 1);
	start_ns = clock_now_ns();
	before = fake_probes.n_walks;
	for (unsigned int i = 0; i < 10; i++)
		for (pid_t pid = CLIENT; pid < CLIENT + 50; pid++)
			run_queue_watch_process(rq, pid, -1, slot);
	WAIT_UNTIL(fake_probes_process(CLIENT + 49) == slot);
	/* At most one walk per 5 ms. */
	n_walks = fake_probes.n_walks - before;
	assert_true(n_walks <= (clock_now_ns() - start_ns) / 5000000 + 2);
	/* A failed walk is counted. */
	before = (uint32_t)read_totals(rq).n_dropped;
	fake_probes.walk_fails = true;
	run_queue_unwatch_process(rq, CLIENT, slot);
	run_queue_remove_tenant(rq, slot);
	WAIT_UNTIL(read_totals(rq).n_dropped > before);
	run_queue_free(rq);
}

TEST(test_lost__switches, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	struct run_queue_report report;
	uint16_t slot = run_queue_add_tenant(rq);

	WAIT_UNTIL(run_queue_tenant(rq, slot, &report));
	assert_null(run_queue_sentence(rq, 0));
	/* The thread reads its own schedstat, to see whether the kernel counts there. */
	for (unsigned int i = 0; i < RUN_QUEUE_MAX_THREADS; i++)
		assert_int_equal(fake_probes.threads[i].n_waits, 0);
	fake_probes.is_detached = true;
	WAIT_UNTIL(run_queue_source(rq) != RUN_QUEUE_SOURCE_EBPF);
	assert_non_null(strstr(run_queue_sentence(rq, 0), "detached"));
	/* The thread has no schedstat in this folder, so the last source but one is used. */
	assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_STAT);
	WAIT_UNTIL(read_totals(rq).has_processors && !read_totals(rq).has_workers);
	WAIT_UNTIL(!find_tenant(rq, slot, UINT64_MAX).has_delays);
	run_queue_remove_tenant(rq, slot);
	WAIT_UNTIL(run_queue_add_tenant(rq) == slot);
	/* The source does not change back. */
	fake_probes.is_detached = false;
	assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_STAT);
	run_queue_free(rq);
	assert_int_equal(fake_probes.n_freed, 1);
}

/* Return the number of the thread of that name. */
static pid_t find_tid(const char *name)
{
	struct dirent *entry;
	pid_t tid = 0;
	char text[32];
	DIR *folder;

	folder = opendir("/proc/self/task");
	assert_non_null(folder);
	while (!tid && (entry = readdir(folder)))
		if (proc_read(text, sizeof(text), "/proc/self/task/%s/comm", entry->d_name) > 0 &&
		    strncmp(text, name, strlen(name)) == 0)
			tid = atoi(entry->d_name);
	closedir(folder);
	return tid;
}

/* Switches are reported, wake-ups are not: the thread wakes itself, and no wait is reported. */
TEST(test_lost__wake_ups, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();
	pid_t tid = 0;

	WAIT_UNTIL((tid = find_tid("rb-run-queue")) > 0);
	fake_put_thread(tid, "rb-run-queue", 5, 1, 1, 1);
	WAIT_UNTIL(fake_probes_of(tid));
	for (uint64_t n = 1; n < 20; n++) {
		fake_probes_set(fake_probes_of(tid)->n_idle_waits, n);
		for (unsigned int i = 0; i < 10; i++)
			fake_moment();
	}
	WAIT_UNTIL(run_queue_source(rq) != RUN_QUEUE_SOURCE_EBPF);
	assert_non_null(strstr(run_queue_sentence(rq, 0), "detached"));
	run_queue_free(rq);
}

/*
 * While no client is connected, the loss is not checked. Nor is a loss reported while all is well.
 */
TEST(test_lost__not_without_clients, set_up, fake_proc_tear_down)
{
	struct run_queue *rq = start_busy();

	for (unsigned int i = 0; i < 3; i++) {
		uint64_t at_ns = clock_now_ns();

		run_queue_set_pace(rq, (enum run_queue_pace)i);
		WAIT_UNTIL(clock_now_ns() - at_ns > second_ns / 4);
	}
	assert_int_equal(run_queue_source(rq), RUN_QUEUE_SOURCE_EBPF);
	assert_null(run_queue_sentence(rq, 0));
	run_queue_free(rq);
}
