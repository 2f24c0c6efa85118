/* SPDX-License-Identifier: MIT */
/*
 * A broker whose processors other processes use
 *
 *	test-contended         by the best source that this machine allows
 *	test-contended soak    by each source, and the broker's own cost: for a quiet machine
 *
 * Hogs compute on every processor. Tasks that belong on the CPU must then run on a device that uses
 * no processor (brokerd --test-device), with reason contention, and return later. No check depends
 * on a fixed duration: each step repeats until its condition holds, within the test's time limit.
 * The statistics page names the source. A source that this machine does not allow is left out, with
 * the reason.
 *
 * Processes other than the hogs can make a step impossible. If they make the CPU slower than the
 * device, tasks move for that reason instead; while they run, contention does not end. Each step
 * therefore checks its preconditions; if they do not hold, the rest is left out, with the reason.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hogs.h"
#include "integration/placement.h"
#include "support/test.h"

enum { CPU = RBK_DEVICE_CPU, DEVICE = RBK_DEVICE_GPU, WIDTH = 512, MAX_ROWS = 4096, N_WORKERS = 2 };

#define DEVICE_TIME "8ms"

static const uint64_t device_ns = 8000000, limit_ns = 30000000000u, calm_limit_ns = 3000000000u;

/*
 * Share of the device's time that a task takes on the CPU. Above the second share, the CPU is no
 * longer clearly faster.
 */
static const double cpu_part = 0.35, most_cpu_part = 0.55;

struct kit {
	struct broker broker;
	struct customer customer;
	struct rbk *admin;
	struct rbk_stats_view root;
	struct hogs *hogs;
	uint32_t count; /* rows of a task that takes the CPU somewhat less time than the device */
};

static struct rbk_stats_contention contention(const struct kit *kit)
{
	struct rbk_stats_contention ret;

	assert_true(
		harness_stats_copy(&kit->root, RBK_STATS_SECTION_CONTENTION, 0, &ret, sizeof(ret)));
	return ret;
}

static bool is_contended(const struct kit *kit)
{
	return contention(kit).flags & RBK_STATS_CONTENDED;
}

/* ---- A broker and a client ---- */

/* Return the processor time of a process, in ns. */
static uint64_t cpu_ns(pid_t pid)
{
	struct timespec time;
	clockid_t clock;

	assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
	assert_int_equal(clock_gettime(clock, &time), 0);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static unsigned int n_processors(void)
{
	cpu_set_t cpus;

	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	return (unsigned int)CPU_COUNT(&cpus);
}

/*
 * Return the processor time of one task, averaged over @n tasks. It does not include waiting for a
 * processor.
 */
static uint64_t task_cpu_ns(struct kit *kit, uint32_t count, unsigned int n)
{
	uint64_t ns = cpu_ns(kit->broker.pid);

	for (unsigned int i = 0; i < n; i++)
		customer_run(&kit->customer, count, RBK_STRATEGY_ONLY_CPU);
	return (cpu_ns(kit->broker.pid) - ns) / n / N_WORKERS + 1;
}

/*
 * Choose kit->count, and run it on both devices until the estimates are trusted. With one worker of
 * two, the CPU still completes a task before the device does. It does not with half a processor,
 * the least that the coarser sources can report.
 */
static void train(struct kit *kit)
{
	const double rows =
		MAX_ROWS * (double)device_ns * cpu_part / (double)task_cpu_ns(kit, MAX_ROWS, 20);

	kit->count = (uint32_t)(rows < 1 ? 1 : rows > MAX_ROWS ? MAX_ROWS : rows);
	for (unsigned int i = 0; i < 30; i++) {
		customer_run(&kit->customer, kit->count, RBK_STRATEGY_ONLY_CPU);
		customer_run(&kit->customer, kit->count, RBK_STRATEGY_ONLY_GPU);
	}
}

static void kit_begin(struct kit *kit, const char *source, const char *action)
{
	const struct customer_options customer = {.width = WIDTH,
						  .max_rows = MAX_ROWS,
						  .n_entries = 2,
						  .is_careless = true,
						  .has_constant = true,
						  .has_test_device = true};
	const struct hogs_options hogs = {.n_per_cpu = 4,
					  .comm = "test-hog",
					  .cgroup = "ringbroker-test-hogs",
					  .limit_s = 60};
	char source_arg[32], action_arg[32];
	const char *const args[] = {"--gpu=none",
				    "--test-device=" DEVICE_TIME,
				    "--threshold=1",
				    "--min-count=0",
				    source_arg,
				    action_arg,
				    NULL};
	struct rbk_error error = {""};

	*kit = (struct kit){.count = 0};
	snprintf(source_arg, sizeof(source_arg), "--contention=%s", source);
	snprintf(action_arg, sizeof(action_arg), "--contention-action=%s", action);
	assert_int_equal(hogs_new(&hogs, &kit->hogs), 0);
	broker_start(&kit->broker, &(struct broker_options){.args = args});
	kit->admin = broker_connect_admin(&kit->broker, "admin");
	if (rbk_stats_map(kit->admin, RBK_STATS_ALL, 0, &kit->root, &error))
		fail_msg("%s", error.text);
	customer_init(&kit->customer, &kit->broker, &customer);
	train(kit);
}

static void kit_end(struct kit *kit)
{
	hogs_free(kit->hogs);
	customer_deinit(&kit->customer);
	rbk_stats_unmap(&kit->root);
	rbk_disconnect(kit->admin);
	broker_stop(&kit->broker);
}

#define KIT(name, ...) SCOPED(kit, name, kit_begin, kit_end, __VA_ARGS__)

/* ---- Steps ---- */

typedef bool is_so_fn(const struct kit *kit, const struct rbk_cqe *cqe);

/*
 * Run tasks until @is_so holds.
 * Return: false if it did not hold within @ns; *ret_last is the last completion.
 */
static bool try_until(struct kit *kit, is_so_fn *is_so, uint64_t ns, struct rbk_cqe *ret_last)
{
	uint64_t end_ns = harness_now_ns() + harness_slow_ns(ns);

	do {
		*ret_last = customer_run(&kit->customer, kit->count, RBK_STRATEGY_AUTO);
		if (is_so(kit, ret_last))
			return true;
	} while (harness_now_ns() < end_ns);
	return false;
}

/* Fail the test: the condition did not hold in time. */
static void fail_never(struct kit *kit, const struct rbk_cqe *last, const char *what)
{
	struct rbk_stats_contention now = contention(kit);
	struct rbk_stats_plan_device devices[2];
	struct rbk_stats_plan plan;

	customer_plan_stats(&kit->customer, &plan, devices, 2);
	broker_show_log(&kit->broker);
	fail_msg("%s: never; the last task of %u rows ran on device %u (%s), factor %g, %u of %u "
		 "workers; estimates of %u rows are %g and %g us",
		 what, kit->count, last->device, rbk_reason_name(last->reason), now.factor,
		 now.n_workers, now.n_workers_total, plan.count, devices[CPU].estimate_ns / 1e3,
		 devices[DEVICE].estimate_ns / 1e3);
}

static void run_until(struct kit *kit, is_so_fn *is_so, const char *what)
{
	struct rbk_cqe cqe;

	if (!try_until(kit, is_so, limit_ns, &cqe))
		fail_never(kit, &cqe, what);
}

/*
 * Print why the rest of a test is left out: the machine does not meet a precondition. Return:
 * false.
 */
static bool left_out(const char *why)
{
	print_message("left out: %s\n", why);
	return false;
}

static bool is_over(const struct kit *kit, const struct rbk_cqe *cqe)
{
	struct rbk_stats_contention now = contention(kit);

	return !(now.flags & RBK_STATS_CONTENDED) && now.n_workers == now.n_workers_total;
}

static bool is_calm(const struct kit *kit, const struct rbk_cqe *cqe)
{
	return cqe->device == CPU && is_over(kit, cqe);
}

/*
 * Return true if there is no contention and the CPU's estimate is clearly less than the device's.
 */
static bool is_ready(const struct kit *kit, const struct rbk_cqe *cqe)
{
	struct rbk_stats_plan_device devices[2];
	struct rbk_stats_plan plan;

	customer_plan_stats(&kit->customer, &plan, devices, 2);
	return is_calm(kit, cqe) && plan.count == kit->count &&
	       (double)devices[CPU].estimate_ns < (double)device_ns * most_cpu_part;
}

static bool run_until_ready(struct kit *kit)
{
	struct rbk_cqe cqe;

	return try_until(kit, is_ready, calm_limit_ns, &cqe) ||
	       left_out("others use the processors of this machine, too");
}

/* ---- Other processes ---- */

/*
 * Processor time of this machine so far, in ns: in all, and of processes other than this test and
 * its broker.
 */
struct usage {
	double all, others;
};

static struct usage usage_now(const struct kit *kit)
{
	const double tick_ns = 1e9 / (double)sysconf(_SC_CLK_TCK);
	struct usage usage = {0, -(double)cpu_ns(kit->broker.pid) - (double)cpu_ns(getpid())};
	unsigned long long v[8];
	cpu_set_t cpus;
	char line[1024];
	double ns;
	int cpu;
	FILE *file = fopen("/proc/stat", "re");

	assert_non_null(file);
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "cpu%d %llu %llu %llu %llu %llu %llu %llu %llu", &cpu, &v[0],
			   &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) != 9 ||
		    !CPU_ISSET(cpu, &cpus))
			continue;
		for (unsigned int i = 0; i < 8; i++) {
			ns = (double)v[i] * tick_ns;
			usage.all += ns;
			/* Fields 4 and 5 are idle time and I/O wait. */
			usage.others += i == 3 || i == 4 ? 0 : ns;
		}
	}
	fclose(file);
	return usage;
}

/*
 * Like run_until(), for a condition that processes other than the hogs can prevent.
 * Return: false if the condition did not hold and such processes used more than 5 % of the
 * processors.
 */
static bool run_until_unless_used(struct kit *kit, is_so_fn *is_so, const char *what)
{
	struct usage before = usage_now(kit), after;
	struct rbk_cqe cqe;

	if (try_until(kit, is_so, limit_ns, &cqe))
		return true;
	after = usage_now(kit);
	if (after.others - before.others > 0.05 * (after.all - before.all))
		return left_out("others use the processors of this machine by now");
	fail_never(kit, &cqe, what);
	return false;
}

/*
 * Like run_until(has_shifted).
 * Return: false if no task moved and the CPU is no longer clearly faster than the device, even
 * without waiting. Shared caches, or a hypervisor that slows the whole machine, are contention that
 * the broker cannot see.
 */
static bool run_until_shifted(struct kit *kit, is_so_fn *has_shifted, const char *what)
{
	struct rbk_cqe cqe;

	if (try_until(kit, has_shifted, limit_ns, &cqe))
		return true;
	if ((double)task_cpu_ns(kit, kit->count, 20) > (double)device_ns * most_cpu_part)
		return left_out("the processors of this machine are slower by now");
	fail_never(kit, &cqe, what);
	return false;
}

static bool has_shifted(const struct kit *kit, const struct rbk_cqe *cqe)
{
	return cqe->device == DEVICE && cqe->reason == RBK_REASON_CONTENTION;
}

static bool has_fewer_workers(const struct kit *kit, const struct rbk_cqe *cqe)
{
	struct rbk_stats_contention now = contention(kit);

	return now.flags & RBK_STATS_CONTENDED &&
	       (now.n_workers < now.n_workers_total || now.n_workers_total == 1);
}

static bool sees_contention(const struct kit *kit, const struct rbk_cqe *cqe)
{
	return is_contended(kit);
}

static bool says_so(const struct kit *kit, const struct rbk_cqe *cqe)
{
	return broker_log_has(&kit->broker, "the CPU is contended");
}

/* ---- Tests ---- */

/* Return false if the broker does not use @source; the reason is printed. */
static bool has_source(const struct kit *kit, const char *name, uint32_t source)
{
	struct rbk_stats_contention now = contention(kit);

	if (now.source == source)
		return true;
	print_message("left out: %s cannot be had here: %s\n", name, now.sentences[0]);
	return false;
}

static void shift(struct kit *kit)
{
	uint32_t source = contention(kit).source;
	/*
	 * Without knowing how long workers wait, the broker also learns the longer execution times.
	 */
	is_so_fn *is_as_before =
		source == RBK_STATS_SOURCE_EBPF || source == RBK_STATS_SOURCE_SCHEDSTAT ? is_calm
											: is_over;

	if (!run_until_ready(kit))
		return;
	hogs_begin(kit->hogs);
	if (!run_until_shifted(kit, has_shifted, "hogs compute, and a task goes to the device"))
		return;
	run_until(kit, has_fewer_workers, "hogs compute, and fewer workers are used");
	run_until(kit, says_so, "hogs compute, and the log says so");
	hogs_end(kit->hogs);
	if (!run_until_unless_used(kit, is_as_before, "hogs have ended, and it is as before"))
		return;
	assert_true(contention(kit).n_began > 0);
}

/* Use the best source that the machine allows. */
TEST(test_shift)
{
	KIT(kit, "auto", "act");
	if (contention(&kit).source != RBK_STATS_SOURCE_NONE || left_out("nothing can be watched"))
		shift(&kit);
}

static void shift_by(const char *name, uint32_t source)
{
	KIT(kit, name, "act");
	if (has_source(&kit, name, source))
		shift(&kit);
}

TEST_IN("soak", test_shift__ebpf)
{
	shift_by("ebpf", RBK_STATS_SOURCE_EBPF);
}

TEST_IN("soak", test_shift__schedstat)
{
	shift_by("schedstat", RBK_STATS_SOURCE_SCHEDSTAT);
}

TEST_IN("soak", test_shift__psi)
{
	shift_by("psi", RBK_STATS_SOURCE_PSI);
}

TEST_IN("soak", test_shift__stat)
{
	shift_by("stat", RBK_STATS_SOURCE_STAT);
}

/* Wait until the decision log records, with a task, how busy other processes keep the CPU. */
static void await_logged(struct kit *kit)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(limit_ns);
	struct rbk_stats_decision decision;

	for (;;) {
		customer_run(&kit->customer, kit->count, RBK_STRATEGY_ONLY_CPU);
		while (customer_next_decision(&kit->customer, &decision))
			if (decision.device == CPU &&
			    decision.flags >> RBK_DECISION_CONTENTION_SHIFT > 0)
				return;
		assert_true(harness_now_ns() < end_ns);
	}
}

/* With action "observe", contention is published, but placement ignores it. */
TEST(test_observe)
{
	KIT(kit, "auto", "observe");
	if (contention(&kit).source != RBK_STATS_SOURCE_NONE ||
	    left_out("nothing can be watched")) {
		hogs_begin(kit.hogs);
		run_until(&kit, sees_contention, "hogs compute, and it is seen");
		for (unsigned int i = 0; i < 50; i++)
			customer_run(&kit.customer, kit.count, RBK_STRATEGY_AUTO);
		assert_int_equal(kit.customer.reasons[RBK_REASON_CONTENTION], 0);
		await_logged(&kit);
		assert_false(contention(&kit).flags & RBK_STATS_CONTENTION_ACTS);
		assert_int_equal(contention(&kit).n_workers, contention(&kit).n_workers_total);
	}
}

/* Without a source, nothing is observed and nothing is done. */
TEST(test_none)
{
	KIT(kit, "none", "act");
	assert_int_equal(contention(&kit).source, RBK_STATS_SOURCE_NONE);
	hogs_begin(kit.hogs);
	for (unsigned int i = 0; i < 50; i++)
		customer_run(&kit.customer, kit.count, RBK_STRATEGY_AUTO);
	assert_int_equal(kit.customer.reasons[RBK_REASON_CONTENTION], 0);
	assert_false(is_contended(&kit));
}

/* ---- Contention by the client itself ---- */

enum { MAX_THREADS = 64 };

static atomic_bool has_ended;

static void *compute(void *data)
{
	volatile uint64_t value = 1;

	while (!atomic_load_explicit(&has_ended, memory_order_relaxed))
		for (unsigned int i = 0; i < 1000; i++)
			value = value * 6364136223846793005u + 1;
	return NULL;
}

/* Tasks that wait for the client's own threads stay on the CPU. */
TEST_IN("soak", test_own)
{
	unsigned int n = n_processors() * 4, n_shifted, n_run = 0;
	pthread_t threads[MAX_THREADS];
	uint64_t end_ns;
	struct kit kit;

	n = n < MAX_THREADS ? n : MAX_THREADS;
	kit_begin(&kit, "ebpf", "act");
	/* Contention by other processes would justify a move to the device. */
	if (!has_source(&kit, "ebpf", RBK_STATS_SOURCE_EBPF) || !run_until_ready(&kit)) {
		kit_end(&kit);
		return;
	}
	atomic_store(&has_ended, false);
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, compute, NULL), 0);
	run_until(&kit, sees_contention, "the client's threads compute, and it is seen");
	/*
	 * Until the broker has attributed the contention to the client; then tasks no longer move.
	 */
	end_ns = harness_now_ns() + harness_slow_ns(limit_ns);
	do {
		n_shifted = (unsigned int)kit.customer.reasons[RBK_REASON_CONTENTION];
		for (n_run = 0; n_run < 30 && is_contended(&kit); n_run++)
			customer_run(&kit.customer, kit.count, RBK_STRATEGY_AUTO);
		if (harness_now_ns() > end_ns) {
			broker_show_log(&kit.broker);
			fail_msg("the client gains by what it does itself: %u of %u tasks go to "
				 "the device for it",
				 (unsigned int)kit.customer.reasons[RBK_REASON_CONTENTION] -
					 n_shifted,
				 n_run);
		}
		/* Contention ended before 30 tasks were run: try again. */
		if (n_run < 30)
			customer_run(&kit.customer, kit.count, RBK_STRATEGY_ONLY_CPU);
	} while (n_run < 30 ||
		 kit.customer.reasons[RBK_REASON_CONTENTION] - n_shifted > n_run / 10);
	atomic_store(&has_ended, true);
	for (unsigned int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	kit_end(&kit);
}

/* ---- The broker as a neighbour ---- */

/*
 * While the CPU is contended and no task is there, the broker uses at most a tenth of a processor.
 */
TEST_IN("soak", test_quiet)
{
	uint64_t begin_ns, used_ns;

	KIT(kit, "auto", "act");
	hogs_begin(kit.hogs);
	if (contention(&kit).source != RBK_STATS_SOURCE_NONE)
		run_until(&kit, sees_contention, "hogs compute, and it is seen");
	begin_ns = harness_now_ns();
	used_ns = cpu_ns(kit.broker.pid);
	harness_sleep_ms(1000);
	used_ns = cpu_ns(kit.broker.pid) - used_ns;
	begin_ns = harness_now_ns() - begin_ns;
	if (used_ns * 10 > begin_ns)
		fail_msg("%u us of processor time in %u us", (unsigned int)(used_ns / 1000),
			 (unsigned int)(begin_ns / 1000));
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "soak") == 0) {
		harness_limit_seconds(600);
		return test_run_group("soak", NULL, NULL);
	}
	harness_limit_seconds(170);
	return test_run(NULL, NULL);
}
