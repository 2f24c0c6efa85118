/* SPDX-License-Identifier: MIT */
/*
 * Reactions to contention: broker/contention/contention.h
 *
 * The real judge and real statistics pages run between a fake run queue and fakes of the modules
 * that react. The fake machine follows real time: in each span, its two workers run and wait for
 * the shares that the test sets.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "contention/contention.h"
#include "cpu/cpu.h"
#include "dispatch/dispatch.h"
#include "fail-alloc.h"
#include "loop/loop.h"
#include "session/session.h"
#include "stats/stats.h"
#include "support/test.h"
#include "tenant-page.h"
#include "tenant/policy-private.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"

enum { SOFTWARE_GPU = 2 };

enum { N_WORKERS = 2, N_SLOTS = 2, N_PROCESSORS = 2 };

/* --- The run queue --- */

struct run_queue {
	enum run_queue_source source;
	enum run_queue_pace pace;
	const char *sentences[8];
	double run, wait, others; /* share of time, all workers and processors together */
	double caused[N_SLOTS];   /* share of time, by tenant slot */
	uint64_t last_ns;
	struct run_queue_totals totals;
	uint64_t caused_ns[N_SLOTS];
	bool is_used[N_SLOTS];
	int n_processes[N_SLOTS], n_cgroups[N_SLOTS]; /* watched now */
	int pidfd;
	bool is_full; /* no further process can be watched */
	char cgroup[64];
	unsigned int n_resets;
	uint32_t n_threads;
	struct run_queue_report report; /* returned for every tenant */
};

static void pass(struct run_queue *rq)
{
	const uint64_t now_ns = clock_now_ns();
	const double ns = (double)(now_ns - rq->last_ns);

	rq->last_ns = now_ns;
	rq->totals.at_ns = now_ns;
	rq->totals.run_ns += (uint64_t)(ns * rq->run);
	rq->totals.wait_ns += (uint64_t)(ns * rq->wait);
	rq->totals.others_ns += (uint64_t)(ns * rq->others);
	rq->totals.n_preemptions += rq->wait > 0;
	for (unsigned int i = 0; i < N_SLOTS; i++)
		rq->caused_ns[i] += (uint64_t)(ns * rq->caused[i]);
}

void run_queue_read(struct run_queue *rq, struct run_queue_totals *ret)
{
	pass(rq);
	*ret = rq->totals;
}

uint64_t run_queue_caused_ns(struct run_queue *rq, uint16_t tenant)
{
	return tenant < N_SLOTS ? rq->caused_ns[tenant] : 0;
}

enum run_queue_source run_queue_source(const struct run_queue *rq)
{
	return rq->source;
}

const char *run_queue_sentence(const struct run_queue *rq, unsigned int i)
{
	return i < ARRAY_SIZE(rq->sentences) ? rq->sentences[i] : NULL;
}

void run_queue_set_pace(struct run_queue *rq, enum run_queue_pace pace)
{
	rq->pace = pace;
}

uint16_t run_queue_add_tenant(struct run_queue *rq)
{
	for (uint16_t i = 0; i < N_SLOTS; i++) {
		if (rq->is_used[i])
			continue;
		rq->is_used[i] = true;
		return i;
	}
	return RUN_QUEUE_NO_TENANT;
}

void run_queue_remove_tenant(struct run_queue *rq, uint16_t tenant)
{
	if (tenant == RUN_QUEUE_NO_TENANT)
		return;
	assert_true(rq->is_used[tenant]);
	assert_int_equal(rq->n_processes[tenant] + rq->n_cgroups[tenant], 0);
	rq->is_used[tenant] = false;
}

bool run_queue_watch_process(struct run_queue *rq, pid_t pid, int pidfd, uint16_t tenant)
{
	assert_true(pid > 0);
	rq->pidfd = pidfd;
	if (tenant >= N_SLOTS || rq->is_full)
		return false;
	rq->n_processes[tenant]++;
	return true;
}

void run_queue_unwatch_process(struct run_queue *rq, pid_t pid, uint16_t tenant)
{
	if (tenant < N_SLOTS)
		rq->n_processes[tenant]--;
}

bool run_queue_watch_cgroup(struct run_queue *rq, const char *path, uint16_t tenant)
{
	snprintf(rq->cgroup, sizeof(rq->cgroup), "%s", path);
	if (tenant >= N_SLOTS || rq->is_full)
		return false;
	rq->n_cgroups[tenant]++;
	return true;
}

void run_queue_unwatch_cgroup(struct run_queue *rq, const char *path, uint16_t tenant)
{
	assert_string_equal(rq->cgroup, path);
	if (tenant < N_SLOTS)
		rq->n_cgroups[tenant]--;
}

bool run_queue_thread(const struct run_queue *rq, uint32_t i, struct run_queue_thread_report *ret)
{
	if (i >= rq->n_threads)
		return false;
	*ret = (struct run_queue_thread_report){
		.tid = 100 + (pid_t)i,
		.role = i ? RUN_QUEUE_WORKER : RUN_QUEUE_REACTOR,
		.name = "thread",
		.report = rq->report,
	};
	return true;
}

bool run_queue_tenant(const struct run_queue *rq, uint16_t tenant, struct run_queue_report *ret)
{
	*ret = rq->report;
	return tenant < N_SLOTS;
}

bool run_queue_workers(const struct run_queue *rq, struct run_queue_report *ret)
{
	*ret = rq->report;
	return true;
}

void run_queue_reset(struct run_queue *rq)
{
	rq->n_resets++;
}

void run_queue_cost(struct run_queue *rq, struct run_queue_cost *ret)
{
	*ret = (struct run_queue_cost){.n_events = 5, .event_ns = 600};
}

/* --- The modules that react --- */

static struct told {
	bool is_working;
	float factor, logged;
	float software_factor; /* of the other device that computes on the processors */
	uint32_t n_servers;
	unsigned int n_workers;
	bool is_executor_contended, is_reactor_contended;
	const struct tenant *tenant; /* tenant of the last reported share */
	float share;
	bool is_needed; /* the placer's next answer */
} told;

void placer_set_contention(struct placer *placer, uint8_t device, float factor, uint64_t now_ns)
{
	if (device == SOFTWARE_GPU) {
		told.software_factor = factor;
		return;
	}
	assert_int_equal(device, RBK_DEVICE_CPU);
	told.factor = factor;
}

void placer_limit_servers(struct placer *placer, uint8_t device, uint32_t n_servers)
{
	assert_int_equal(device, RBK_DEVICE_CPU);
	told.n_servers = n_servers;
}

bool placer_is_needed(struct placer *placer, uint8_t device)
{
	const bool is_needed = told.is_needed;

	assert_int_equal(device, RBK_DEVICE_CPU);
	told.is_needed = false;
	return is_needed;
}

void cpu_executor_limit(struct executor *executor, unsigned int n_workers, bool is_contended)
{
	told.n_workers = n_workers;
	told.is_executor_contended = is_contended;
}

struct placer *dispatch_placer(struct dispatch *dispatch)
{
	return NULL;
}

bool dispatch_is_working(struct dispatch *dispatch)
{
	return told.is_working;
}

void dispatch_set_contended(struct dispatch *dispatch, bool is_contended)
{
	told.is_reactor_contended = is_contended;
}

void dispatch_log_contention(struct dispatch *dispatch, float factor)
{
	told.logged = factor;
}

void dispatch_set_own_contention(struct dispatch *dispatch, const struct tenant *tenant,
				 float share)
{
	told.tenant = tenant;
	told.share = share;
}

/* --- The bench --- */

struct bench {
	struct loop *loop;
	struct run_queue rq;
	struct executor cpu;
	struct contention *contention;
	struct server_observer observer;
	struct account_book *book;
	struct tenants *tenants;
	struct tenant *of_uid[3]; /* tenants a and b, then the default tenant */
	struct session sessions[4];
};

static int setup_with(void **state, enum run_queue_source source)
{
	static const char text[] = "[tenant a]\nmatch-uid = 0\n[tenant b]\nmatch-uid = 1\n";
	const struct tenants_machine machine = {.n_devices = 1, .n_fds = 100, .n_mappings = 100};
	static struct bench bench;
	struct contention_options options = {.own_cgroup = "/us/here",
					     .software_gpus = 1u << SOFTWARE_GPU};
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};

	clock_init();
	told = (struct told){.is_working = true, .factor = 1, .software_factor = 1};
	bench = (struct bench){.cpu.info.n_threads = N_WORKERS};
	bench.rq.source = source;
	bench.rq.last_ns = clock_now_ns();
	bench.rq.totals = (struct run_queue_totals){
		.has_workers = true, .has_processors = true, .n_processors = N_PROCESSORS};
	assert_int_equal(loop_new(&bench.loop), 0);
	assert_int_equal(account_book_new(&bench.book), 0);
	assert_int_equal(policy_load_text("f", text, strlen(text), NULL, &policy, &errors), 0);
	assert_int_equal(tenants_new(bench.book, &machine, policy, &bench.tenants, &errors), 0);
	for (uid_t uid = 0; uid < ARRAY_SIZE(bench.of_uid); uid++)
		bench.of_uid[uid] = tenants_find(bench.tenants, &(struct peer){.uid = uid});
	options.loop = bench.loop;
	options.run_queue = &bench.rq;
	options.cpu = &bench.cpu;
	assert_int_equal(contention_new(&options, &bench.contention), 0);
	contention_start(bench.contention, (struct dispatch *)&bench);
	bench.observer = contention_observer(bench.contention);
	*state = &bench;
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, RUN_QUEUE_SOURCE_EBPF);
}

static int setup_none(void **state)
{
	return setup_with(state, RUN_QUEUE_SOURCE_NONE);
}

static int teardown(void **state)
{
	struct bench *bench = *state;

	for (unsigned int i = 0; i < ARRAY_SIZE(bench->sessions); i++)
		bench->observer.session_removed(bench->observer.context, &bench->sessions[i]);
	for (unsigned int i = 0; i < N_SLOTS; i++)
		assert_false(bench->rq.is_used[i]);
	assert_null(contention_free(bench->contention));
	for (unsigned int i = 0; i < ARRAY_SIZE(bench->of_uid); i++)
		tenant_unref(bench->of_uid[i]);
	tenants_free(bench->tenants);
	account_book_free(bench->book);
	loop_free(bench->loop);
	return 0;
}

static void add(struct bench *bench, unsigned int i, uid_t uid, const char *cgroup)
{
	bench->sessions[i] = (struct session){.pid = 1000 + (pid_t)i, .tenant = bench->of_uid[uid]};
	bench->observer.session_added(bench->observer.context, &bench->sessions[i], 77, cgroup);
}

static struct contention_status status_of(const struct bench *bench)
{
	struct contention_status status;

	contention_status(bench->contention, &status);
	return status;
}

/* Two hogs on two processors: each worker gets half a processor. */
static void be_contended(struct bench *bench)
{
	pass(&bench->rq);
	bench->rq.run = 1;
	bench->rq.wait = 1;
	bench->rq.others = 1;
}

static void be_calm(struct bench *bench)
{
	pass(&bench->rq);
	bench->rq.run = 1;
	bench->rq.wait = bench->rq.others = 0;
}

static void await(struct bench *bench, bool is_contended)
{
	while (status_of(bench).is_contended != is_contended)
		assert_true(loop_turn(bench->loop, true) >= 0);
}

/* Assert that no timer is due for 30 ms: loop_turn() must run no handler. */
static void expect_asleep(struct bench *bench)
{
	const uint64_t until_ns = clock_now_ns() + 30000000;

	int n;

	while (clock_now_ns() < until_ns) {
		n = loop_turn(bench->loop, false);
		/* A thread that lost its processor may see an event that is due much later. */
		if (clock_now_ns() < until_ns)
			assert_int_equal(n, 0);
	}
}

/*
 * Run turns until a handler has run; a signal also ends a turn.
 * Return: the number of handlers that ran.
 */
static int turn(struct bench *bench)
{
	int n;

	do
		n = loop_turn(bench->loop, true);
	while (n == 0);
	return n;
}

/* --- Watched sessions --- */

TEST(test_sessions, setup, teardown)
{
	struct bench *bench = *state;
	struct run_queue *rq = &bench->rq;

	add(bench, 0, 0, NULL);
	assert_fields(*rq, (n_processes[0], 1), (pidfd, 77));
	assert_int_equal(contention_slot(bench->contention, bench->of_uid[0]->number), 0);
	assert_int_equal(contention_tenant(bench->contention, 0), bench->of_uid[0]->number);
	assert_int_equal(contention_slot(bench->contention, bench->of_uid[1]->number),
			 RUN_QUEUE_NO_TENANT);
	assert_int_equal(contention_tenant(bench->contention, 1), 0);
	assert_int_equal(contention_tenant(bench->contention, RUN_QUEUE_NO_TENANT), 0);

	/*
	 * A tenant has one slot, however many sessions. Its cgroup is watched if it is only this
	 * tenant's.
	 */
	add(bench, 1, 0, "/them");
	assert_fields(*rq, (n_processes[0], 2), (n_cgroups[0], 1));
	assert_string_equal(rq->cgroup, "/them");
	assert_false(rq->is_used[1]);

	/* Tenants beyond the slots work, but are not watched. */
	add(bench, 2, 1, NULL);
	add(bench, 3, 2, "/more");
	assert_int_equal(contention_slot(bench->contention, bench->of_uid[2]->number),
			 RUN_QUEUE_NO_TENANT);
	bench->observer.session_removed(bench->observer.context, &bench->sessions[3]);
	bench->observer.session_removed(bench->observer.context, &bench->sessions[2]);
	assert_false(rq->is_used[1]);

	snprintf(rq->cgroup, sizeof(rq->cgroup), "/them");
	bench->observer.session_removed(bench->observer.context, &bench->sessions[1]);
	assert_int_equal(rq->n_cgroups[0], 0);
	assert_true(rq->is_used[0]);
	bench->observer.session_removed(bench->observer.context, &bench->sessions[0]);
	assert_false(rq->is_used[0]);
}

/* A session in brokerd's own cgroup or a parent: the cgroup holds processes of no tenant. */
TEST(test_sessions__in_our_cgroup, setup, teardown)
{
	static const char *const cgroups[] = {"/", "/us", "/us/here"};
	struct bench *bench = *state;

	for (unsigned int i = 0; i < ARRAY_SIZE(cgroups); i++) {
		add(bench, 0, 0, cgroups[i]);
		assert_fields(bench->rq, (n_processes[0], 1), (n_cgroups[0], 0));
		bench->observer.session_removed(bench->observer.context, &bench->sessions[0]);
	}
	add(bench, 0, 0, "/us/her");
	assert_int_equal(bench->rq.n_cgroups[0], 1);
}

/* A session that could not be watched is not unwatched: that would unwatch another one. */
TEST(test_sessions__no_room, setup, teardown)
{
	struct bench *bench = *state;
	struct run_queue *rq = &bench->rq;

	add(bench, 0, 0, "/them");
	rq->is_full = true;
	add(bench, 1, 0, "/them");
	assert_int_equal(rq->n_processes[0], 1);
	bench->observer.session_removed(bench->observer.context, &bench->sessions[1]);
	assert_fields(*rq, (n_processes[0], 1), (n_cgroups[0], 1));
	bench->observer.session_removed(bench->observer.context, &bench->sessions[0]);
	assert_false(rq->is_used[0]);
}

TEST(test_sessions__nothing_to_watch, setup, teardown)
{
	struct bench *bench = *state;

	bench->sessions[0] = (struct session){.pid = 0, .tenant = bench->of_uid[0]};
	bench->observer.session_added(bench->observer.context, &bench->sessions[0], -1, NULL);
	assert_null(bench->sessions[0].observed);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		add(bench, 0, 0, "/them");
		if (!fail_alloc_stop())
			break;
		bench->observer.session_removed(bench->observer.context, &bench->sessions[0]);
		assert_false(bench->rq.is_used[0]);
	}
	assert_int_equal(bench->rq.n_cgroups[0], 1);
}

TEST(test_none__sleeps, setup_none, teardown)
{
	struct bench *bench = *state;

	add(bench, 0, 0, "/them");
	assert_int_equal(bench->rq.n_processes[0], 0);
	contention_work_begins(bench->contention);
	expect_asleep(bench);
	assert_string_equal(contention_watched_by(bench->contention), "not watched");
}

/* --- Sampling --- */

TEST(test_work__begins_and_ends, setup, teardown)
{
	struct bench *bench = *state;

	expect_asleep(bench);
	assert_int_equal(bench->rq.pace, RUN_QUEUE_PACE_IDLE);
	be_calm(bench);
	contention_work_begins(bench->contention);
	assert_int_equal(bench->rq.pace, RUN_QUEUE_PACE_BUSY);
	for (unsigned int i = 0; i < 5; i++)
		assert_int_equal(turn(bench), 1);
	assert_false(status_of(bench).is_contended);
	told.is_working = false;
	assert_int_equal(turn(bench), 1);
	expect_asleep(bench);
	assert_int_equal(bench->rq.pace, RUN_QUEUE_PACE_IDLE);

	/* A new watcher of statistics gets fresh figures soon, then at a slow pace. */
	contention_set_watched(bench->contention, true);
	assert_int_equal(bench->rq.pace, RUN_QUEUE_PACE_CONTENDED);
	contention_set_watched(bench->contention, false);
	assert_int_equal(bench->rq.pace, RUN_QUEUE_PACE_IDLE);
	contention_set_watched(bench->contention, true);
	assert_int_equal(turn(bench), 1);
	assert_int_equal(bench->rq.pace, RUN_QUEUE_PACE_SESSIONS);
	expect_asleep(bench);
}

TEST(test_contended__acts, setup, teardown)
{
	struct bench *bench = *state;
	struct contention_status status;

	contention_work_begins(bench->contention);
	be_contended(bench);
	await(bench, true);
	status = status_of(bench);
	assert_int_equal(status.n_began, 1);
	assert_true(status.began_at_ns > 0);
	assert_true(told.factor >= 1.25f);
	/* A software device computes on the same processors, and is disturbed as much. */
	assert_true(told.software_factor == told.factor);
	assert_true(told.logged == told.factor);
	assert_true(told.is_executor_contended && told.is_reactor_contended);
	assert_int_equal(bench->rq.pace, RUN_QUEUE_PACE_CONTENDED);
	while (told.n_workers != 1)
		loop_turn(bench->loop, true);
	assert_int_equal(told.n_servers, 1);
	assert_int_equal(status_of(bench).n_workers, 1);

	/* Some work can run on no other device. */
	told.is_needed = true;
	while (told.n_workers != N_WORKERS)
		loop_turn(bench->loop, true);
	assert_true(told.is_executor_contended && status_of(bench).is_contended);
	while (told.n_workers != 1)
		loop_turn(bench->loop, true);

	/* In observe mode all reactions are undone, and the figures stay. */
	contention_set_observes(bench->contention, true);
	assert_true(told.factor == 1 && told.software_factor == 1);
	assert_true(told.logged > 1);
	assert_int_equal(told.n_workers, N_WORKERS);
	assert_false(told.is_executor_contended || told.is_reactor_contended);
	loop_turn(bench->loop, true);
	status = status_of(bench);
	assert_true(status.is_contended && status.observes && status.factor > 1);
	assert_int_equal(status.n_workers, N_WORKERS);
	contention_set_observes(bench->contention, false);
	assert_true(told.factor > 1 && told.is_reactor_contended);

	be_calm(bench);
	await(bench, false);
	while (told.n_workers != N_WORKERS || told.factor > 1)
		loop_turn(bench->loop, true);
	assert_true(told.logged == 1);
	assert_false(told.is_executor_contended || told.is_reactor_contended);
	status = status_of(bench);
	assert_true(status.contended_ns > 0);
	assert_int_equal(status.n_began, 1);
	contention_reset(bench->contention);
	assert_int_equal(bench->rq.n_resets, 1);
	assert_int_equal(status_of(bench).n_began, 0);
	assert_int_equal(status_of(bench).contended_ns, 0);
}

static struct run_queue_report report_of(pid_t pid)
{
	return (struct run_queue_report){
		.n_causes = 1,
		.causes = {{.comm = "cc1",
			    .cgroup = "/x",
			    .pid = pid,
			    .tenant = RUN_QUEUE_NO_TENANT}},
	};
}

/*
 * Assert the log line when the workers wait for process @pid, whose name is known only after
 * @told_after_ns of contention.
 * Return: ns for which contention had lasted when the line came.
 */
static uint64_t expect_said(struct bench *bench, pid_t pid, uint64_t told_after_ns,
			    const char *expected)
{
	const int fd = memfd_create("log", MFD_CLOEXEC), old = dup(STDERR_FILENO);
	uint64_t began_ns, lasted_ns = 0;
	char text[1000] = "";

	assert_true(fd >= 0 && old >= 0);
	contention_work_begins(bench->contention);
	be_contended(bench);
	await(bench, true);
	began_ns = clock_now_ns();
	dup2(fd, STDERR_FILENO);
	while (pread(fd, text, sizeof(text) - 1, 0) == 0) {
		lasted_ns = clock_now_ns() - began_ns;
		if (lasted_ns >= told_after_ns)
			bench->rq.report = report_of(pid);
		loop_turn(bench->loop, true);
	}
	dup2(old, STDERR_FILENO);
	close(old);
	close(fd);
	if (!strstr(text, expected))
		fail_msg("%s", text);
	return lasted_ns;
}

TEST(test_contended__by_process, setup, teardown)
{
	expect_said(*state, 4711, 0, "contended (most by cc1, process 4711 in /x): ");
}

/* The collector of names waits for a processor, too: the log line waits for the name. */
TEST(test_contended__name_comes_late, setup, teardown)
{
	expect_said(*state, 4711, 1000000000, "contended (most by cc1, process 4711 in /x): ");
}

/* The log line waits for a name for a limited time. */
TEST(test_contended__name_never_comes, setup, teardown)
{
	uint64_t lasted_ns = expect_said(*state, 0, UINT64_MAX,
					 "contended (eBPF does not tell by which program): ");

	assert_true(lasted_ns >= 4000000000);
}

/* Sources other than eBPF never give a name. */
TEST(test_contended__source_without_names, setup, teardown)
{
	struct bench *bench = *state;

	bench->rq.source = RUN_QUEUE_SOURCE_PSI;
	expect_said(bench, 0, 3000000000,
		    "contended (/proc/pressure/cpu does not tell by which program): ");
}

/* A process outside the broker's container has a name, but no number. */
TEST(test_contended__by_other_namespace, setup, teardown)
{
	expect_said(*state, 0, 0, "contended (most by cc1, in another PID namespace, in /x): ");
}

/* Contention without work is not checked for its end, unless a client watches statistics. */
TEST(test_contended__without_work, setup, teardown)
{
	struct bench *bench = *state;

	contention_work_begins(bench->contention);
	be_contended(bench);
	await(bench, true);
	told.is_working = false;
	while (bench->rq.pace != RUN_QUEUE_PACE_IDLE)
		assert_int_equal(turn(bench), 1);
	assert_true(status_of(bench).is_contended);
	expect_asleep(bench);

	be_calm(bench);
	contention_set_watched(bench->contention, true);
	await(bench, false);
	while (bench->rq.pace != RUN_QUEUE_PACE_SESSIONS)
		assert_int_equal(turn(bench), 1);
	expect_asleep(bench);
}

static void await_share(struct bench *bench, float least, float most)
{
	while (told.share < least || told.share > most)
		assert_true(loop_turn(bench->loop, true) >= 0);
}

/*
 * The dispatcher gets the share of contention that a tenant causes. The share stays when no thread
 * waits any more.
 */
TEST(test_share, setup, teardown)
{
	struct bench *bench = *state;

	add(bench, 0, 0, NULL);
	contention_work_begins(bench->contention);
	bench->rq.caused[0] = 1;
	be_contended(bench);
	await(bench, true);
	await_share(bench, 0.9f, 1);
	assert_ptr_equal(told.tenant, bench->of_uid[0]);
	pass(&bench->rq);
	bench->rq.caused[0] = 0.25;
	await_share(bench, 0.2f, 0.3f);
	pass(&bench->rq);
	bench->rq.caused[0] = bench->rq.wait = bench->rq.run = 0;
	for (unsigned int i = 0; i < 5; i++)
		loop_turn(bench->loop, true);
	assert_true(told.share > 0.15f && told.share < 0.35f);
	/* A tenant without sessions causes nothing. */
	bench->observer.session_removed(bench->observer.context, &bench->sessions[0]);
	assert_true(told.share == 0);
}

/* --- Pages --- */

static const struct run_queue_cause causes[] = {
	{.comm = "stress\n", .cgroup = "/x", .pid = 5, .tenant = RUN_QUEUE_NO_TENANT, .wait_ns = 9},
	{.comm = "other", .cgroup = "/b", .pid = 6, .tenant = 1, .wait_ns = 8, .n_preemptions = 2},
	{.comm = "rb-cpu-0",
	 .cgroup = "/us/here",
	 .pid = 7,
	 .tenant = RUN_QUEUE_NO_TENANT,
	 .is_own = true},
};

static void delay_of(const struct stats_page *page, uint32_t index, struct rbk_stats_delay *ret)
{
	struct rbk_stats_view view = {.page = NULL};

	assert_true(rbk_stats_view(&view, page->header, page->header->page_bytes));
	assert_true(rbk_stats_copy(ret, rbk_stats_record(&view, RBK_STATS_SECTION_DELAYS, index),
				   sizeof(*ret)));
}

TEST(test_publish, setup, teardown)
{
	struct bench *bench = *state;
	struct stats_tenant *tenants[3];
	const struct rbk_stats_contention *contention;
	const struct rbk_stats_thread *threads;
	struct rbk_stats_view root = {.page = NULL};
	struct rbk_stats_delay delay;
	struct stats *stats;

	add(bench, 0, 0, NULL);
	add(bench, 1, 1, NULL);
	bench->rq.report = (struct run_queue_report){
		.has_delays = true, .wait_ns = 17, .p99_ns = 4, .caused_ns = 3, .n_causes = 3};
	memcpy(bench->rq.report.causes, causes, sizeof(causes));
	bench->rq.n_threads = 3;
	bench->rq.sentences[0] = "no\tsuch thing.";
	bench->rq.totals.n_unwatched = 5;
	bench->rq.totals.n_dropped = 6;
	assert_int_equal(stats_new(1, 0, &stats), 0);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(
			stats_tenant_new(stats, bench->of_uid[i]->number, "name", &tenants[i]), 0);
		assert_int_equal(tenant_page_map(tenants[i], 0), 0);
	}
	assert_int_equal(stats_root_map(stats, 0), 0);
	contention_publish(bench->contention, stats);

	assert_true(rbk_stats_view(&root, stats_root(stats)->header,
				   stats_root(stats)->header->page_bytes));
	contention = rbk_stats_record(&root, RBK_STATS_SECTION_CONTENTION, 0);
	assert_fields(*contention, (source, RBK_STATS_SOURCE_EBPF),
		      (flags, RBK_STATS_CONTENTION_ACTS), (n_workers_total, N_WORKERS),
		      (probe_ns, 600));
	assert_string_equal(contention->sentences[0], "no?such thing.");
	assert_string_equal(contention->sentences[1], "");
	/* These counts are published even without work. */
	assert_fields(*contention, (n_unwatched, 5), (n_dropped, 6));
	threads = rbk_stats_record(&root, RBK_STATS_SECTION_THREADS, 0);
	assert_int_equal(threads[0].role, RBK_STATS_ROLE_REACTOR);
	assert_fields(threads[2], (tid, 102), (role, RBK_STATS_ROLE_WORKER));
	assert_string_equal(threads[2].name, "thread");
	assert_int_equal(threads[2].delay.causes[0].wait_ns, 9);
	assert_int_equal(threads[3].tid, 0);

	/* Administrators see all causes. */
	delay_of(stats_root(stats), 0, &delay);
	assert_fields(delay, (flags, RBK_STATS_DELAY_USED | RBK_STATS_DELAY_KNOWN), (wait_ns, 17),
		      (p99_ns, 4), (caused_ns, 3), (n_causes, 3));
	assert_string_equal(delay.causes[0].comm, "stress?");
	assert_fields(delay, (causes[0].pid, 5), (causes[0].tenant, 0),
		      (causes[1].tenant, bench->of_uid[1]->number), (causes[1].pid, 6),
		      (causes[2].flags, RBK_STATS_CAUSE_BROKER));

	/* A tenant sees of other tenants what /proc shows, which may be nothing. */
	delay_of(&tenants[0]->page, 0, &delay);
	assert_fields(delay, (wait_ns, 17), (causes[0].pid, 0), (causes[0].wait_ns, 9),
		      (causes[1].pid, 0), (causes[1].tenant, 0), (causes[1].flags, 0));
	assert_string_equal(delay.causes[1].comm,
			    contention_hides_others(bench->contention) ? "" : "other");
	assert_fields(delay, (causes[1].n_preemptions, 2),
		      (causes[2].flags, RBK_STATS_CAUSE_BROKER), (causes[2].pid, 7));
	/* A tenant sees its own processes. */
	delay_of(&tenants[1]->page, 0, &delay);
	assert_fields(delay.causes[1], (flags, RBK_STATS_CAUSE_OWN), (pid, 6));
	assert_string_equal(delay.causes[1].comm, "other");
	assert_int_equal(delay.causes[1].tenant, bench->of_uid[1]->number);

	/* A tenant that is not watched has no delays, and none of earlier ones. */
	delay_of(&tenants[2]->page, 0, &delay);
	assert_int_equal(delay.flags, 0);
	bench->observer.session_removed(bench->observer.context, &bench->sessions[1]);
	bench->rq.n_threads = 1;
	bench->rq.report.has_delays = false;
	contention_publish(bench->contention, stats);
	delay_of(&tenants[1]->page, 0, &delay);
	assert_fields(delay, (flags, 0), (n_causes, 0));
	delay_of(stats_root(stats), 0, &delay);
	assert_int_equal(delay.flags, RBK_STATS_DELAY_USED);
	assert_int_equal(threads[0].tid, 100);
	assert_int_equal(threads[1].tid, 0);
	stats_free(stats);
}
