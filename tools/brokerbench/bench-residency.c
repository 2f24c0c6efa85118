/* SPDX-License-Identifier: MIT */
/*
 * residency: the gain of deciding which plans are resident in the card's memory
 *
 * Brokers in this process each have a modelled card of 8 GiB (model-executor.h), after an RX 580 in
 * a PC. Plans take 0.75 of the card or similar fractions. Tasks read their constants once: at 256
 * GB/s on the card, at a tenth of that on the processor. A bus of 10 GB/s loads plans, and serves
 * plans that the driver has moved out of the card. To end soon, time passes ten times as fast, and
 * bytes are divided by 4,096. The brokers' own times (half-lives, hold-offs) are real: to them the
 * card has the size that matches its bus's speed, 0.8 GiB.
 *
 * Every access pattern runs under all policies at once, each with its own broker, card, client and
 * session. Other load on the machine affects all alike, and sleeping threads hardly disturb each
 * other. A client runs one task after the other, so its rate is what a client would see. The least
 * wanted plan is prepared first, which is the worst case for a policy that does not evict.
 *
 *   wanted     the broker's policy
 *   lru        a request evicts the least recently used plan; tasks run on the CPU meanwhile
 *   paging     as lru, but tasks wait for their memory, as under a driver
 *   stay       the first plans stay resident; the others run on the CPU
 *   unmanaged  as stay, without yielding to other programs: the driver moves plans out of the card
 *   cpu        everything runs on the CPU
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

#include <ringbroker.h>

#include "bench.h"
#include "model-broker.h"
#include "plans.h"
#include "util/checked.h"
#include "util/clock.h"

enum {
	MAX_PLANS = 3,
	RUN_SECONDS = 6, /* run time with env->seconds 1 */
	PLAN_ROWS = 512,
	TIME_SCALE = 10,
	BYTE_SCALE = 4096,
};

static const double card_bytes = 8.0 * 1024 * 1024 * 1024;
static const double card_bytes_per_s = 256e9;
static const double cpu_bytes_per_s = 25.6e9;
static const double bus_bytes_per_s = 10e9;

/*
 * Access patterns: return the next plan, after @n tasks and at @progress of the run, from 0 to 1.
 */

static unsigned int by_turns(unsigned long n, double progress)
{
	return n & 1;
}

static unsigned int nine_to_one(unsigned long n, double progress)
{
	return n % 10 == 9 ? 0 : 1;
}

static unsigned int in_phases(unsigned long n, double progress)
{
	return (unsigned int)(progress * 3) & 1;
}

static unsigned int four_two_one(unsigned long n, double progress)
{
	static const unsigned int order[] = {2, 1, 2, 0, 2, 1, 2};

	return order[n % ARRAY_SIZE(order)];
}

static unsigned int four_to_one(unsigned long n, double progress)
{
	return n % 5 == 4 ? 0 : 1;
}

/*
 * Return the bytes that other programs use: half the card for about one second in two, allocated
 * and freed within a tenth of a second.
 */
static uint64_t half_the_card(uint64_t elapsed_ns)
{
	double half = card_bytes / BYTE_SCALE / 2;
	double at = (double)(elapsed_ns % 2000000000u) / 1e9;

	if (at < 0.9)
		return 0;
	if (at < 1)
		return (uint64_t)(half * (at - 0.9) * 10);
	return at < 1.9 ? (uint64_t)half : (uint64_t)(half * (2 - at) * 10);
}

enum way { WAY_WANTED, WAY_LRU, WAY_PAGING, WAY_STAY, WAY_UNMANAGED, WAY_CPU, N_WAYS };

static const char *const way_names[] = {"wanted", "lru", "paging", "stay", "unmanaged", "cpu"};

struct pattern {
	const char *name;
	unsigned int n_plans;
	double cards; /* size of each plan, in cards */
	unsigned int (*next)(unsigned long n, double progress);
	uint64_t (*outside)(uint64_t elapsed_ns);
	unsigned int ways; /* mask of 1 << enum way */
};

#define WAYS_WITHOUT_PRESSURE \
	(1u << WAY_WANTED | 1u << WAY_LRU | 1u << WAY_PAGING | 1u << WAY_STAY | 1u << WAY_CPU)

static const struct pattern patterns[] = {
	{"2x0.75 1:1", 2, 0.75, by_turns, NULL, WAYS_WITHOUT_PRESSURE},
	{"2x0.75 9:1", 2, 0.75, nine_to_one, NULL, WAYS_WITHOUT_PRESSURE},
	{"2x0.75 phases", 2, 0.75, in_phases, NULL, WAYS_WITHOUT_PRESSURE},
	{"3x0.6 4:2:1", 3, 0.6, four_two_one, NULL, WAYS_WITHOUT_PRESSURE},
	{"2x0.4 4:1 pressure", 2, 0.4, four_to_one, half_the_card,
	 1u << WAY_WANTED | 1u << WAY_LRU | 1u << WAY_UNMANAGED | 1u << WAY_CPU},
};

/* One policy in one pattern */
struct contender {
	struct bench_env *env;
	const struct pattern *pattern;
	enum way way;
	struct model_broker *broker;
	struct rbk *rbk;
	struct rbk_ring *ring;
	struct plans_matmul plans[MAX_PLANS];
	pthread_t broker_thread, client_thread;
	bool has_broker_thread, has_client_thread;
	sem_t is_set_up; /* posted by the broker's thread */
	int set_up_result;
	uint64_t duration_ns;

	int result; /* result of the client's thread, 0 or a negative errno */
	double tasks_per_s;
	double evictions, moved_gb;
};

static int connect_client(void *data)
{
	struct contender *contender = data;
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = model_broker_socket(contender->broker),
		.name = "brokerbench",
	};
	uint32_t columns = (uint32_t)(contender->pattern->cards * card_bytes / BYTE_SCALE /
				      (PLAN_ROWS * sizeof(float)));
	struct rbk_error error;
	int r;

	r = rbk_connect(&options, &contender->rbk, &error);
	if (r)
		return bench_refused(contender->env, r, error.text);
	r = rbk_ring_new(contender->rbk, 16, &contender->ring, &error);
	if (r)
		return bench_refused(contender->env, r, error.text);
	rbk_ring_set_spin_ns(contender->ring, 0);
	for (unsigned int i = 0; i < contender->pattern->n_plans && !r; i++)
		r = plans_matmul_init(&contender->plans[i], contender->env, contender->rbk, 1,
				      PLAN_ROWS, columns, true);
	return r;
}

static int run_task(struct contender *contender, const struct plans_matmul *matmul)
{
	struct rbk_sqe *sqe = rbk_get_sqe(contender->ring);
	const struct rbk_cqe *cqe;
	int r;

	rbk_prep_run(sqe, rbk_plan_id(matmul->plan), 1, matmul->refs, matmul->n_refs);
	if (contender->way == WAY_CPU)
		rbk_sqe_set_strategy(sqe, RBK_STRATEGY_ONLY_CPU);
	if (contender->way == WAY_PAGING)
		rbk_sqe_set_wait_memory(sqe);
	r = rbk_submit(contender->ring);
	if (r >= 0)
		r = rbk_wait_cqe(contender->ring, &cqe);
	if (r)
		return r;
	r = cqe->res;
	rbk_cqe_seen(contender->ring, cqe);
	return r;
}

static void *run_client(void *data)
{
	struct contender *contender = data;
	uint64_t start_ns = clock_now_ns(), now_ns = start_ns;
	unsigned long n = 0;
	unsigned int plan;
	int r = 0;

	while (!r && now_ns - start_ns < contender->duration_ns) {
		plan = contender->pattern->next(n++, (double)(now_ns - start_ns) /
							     (double)contender->duration_ns);
		r = run_task(contender, &contender->plans[plan]);
		now_ns = clock_now_ns();
	}
	contender->result = r;
	contender->tasks_per_s = (double)n * 1e9 / (double)(now_ns - start_ns);
	return NULL;
}

static int set_up(struct contender *contender)
{
	const double scale = (double)TIME_SCALE / BYTE_SCALE;
	const struct model_broker_options options = {
		.policy = contender->way == WAY_LRU || contender->way == WAY_PAGING ? RESIDENCY_LRU
			  : contender->way == WAY_WANTED ? RESIDENCY_WANTED
							 : RESIDENCY_STAY,
		.devices = {{.name = "model CPU",
			     .read_bytes_per_s = (uint64_t)(cpu_bytes_per_s * scale)},
			    {.name = "model card",
			     .memory_bytes = (uint64_t)(card_bytes / BYTE_SCALE),
			     .read_bytes_per_s = (uint64_t)(card_bytes_per_s * scale),
			     .bus_bytes_per_s = (uint64_t)(bus_bytes_per_s * scale)}},
		.n_devices = 2,
		.outside = contender->pattern->outside,
		.is_told = contender->way != WAY_UNMANAGED,
	};
	int r;

	r = model_broker_new(&options, &contender->broker);
	if (r)
		return bench_fail(contender->env, r, "cannot make a broker");
	return model_broker_serve(contender->broker, connect_client, contender);
}

static void *run_broker(void *data)
{
	struct contender *contender = data;

	contender->set_up_result = set_up(contender);
	sem_post(&contender->is_set_up);
	/* The broker runs until contender_deinit() stops it, after the client has disconnected. */
	if (contender->broker && model_broker_run(contender->broker) < 0)
		contender->result = -EIO;
	model_broker_free(contender->broker);
	return NULL;
}

static int contender_init(struct contender *contender)
{
	int r;

	sem_init(&contender->is_set_up, 0, 0);
	r = -pthread_create(&contender->broker_thread, NULL, run_broker, contender);
	if (r)
		return bench_fail(contender->env, r, "cannot start a thread");
	contender->has_broker_thread = true;
	while (sem_wait(&contender->is_set_up) < 0)
		;
	return contender->set_up_result;
}

static void contender_note_moves(struct contender *contender)
{
	struct rbk_tenant tenant;
	uint64_t moved_bytes;

	if (contender->result)
		return;
	contender->result = rbk_tenant(contender->rbk, &tenant);
	moved_bytes = model_executor_moved_bytes(model_broker_device(contender->broker, 1));
	contender->evictions = (double)tenant.n_evictions;
	contender->moved_gb = (double)moved_bytes * BYTE_SCALE / 1e9;
}

static void contender_deinit(struct contender *contender)
{
	for (unsigned int i = 0; i < MAX_PLANS; i++)
		plans_matmul_deinit(&contender->plans[i]);
	rbk_ring_free(contender->ring);
	rbk_disconnect(contender->rbk);
	if (!contender->has_broker_thread)
		return;
	if (contender->broker)
		model_broker_stop(contender->broker);
	pthread_join(contender->broker_thread, NULL);
	sem_destroy(&contender->is_set_up);
}

/* ---- Reports ---- */

static int report_row(struct bench_env *env, const struct bench_row *row, double ours,
		      double baseline)
{
	struct samples samples[2] = {SAMPLES_INIT, SAMPLES_INIT};
	int r;

	r = samples_reserve(&samples[0], 1);
	if (!r)
		r = samples_reserve(&samples[1], 1);
	if (!r) {
		samples_add(&samples[0], ours);
		samples_add(&samples[1], baseline);
		bench_report(env, row, &samples[0], &samples[1]);
	}
	samples_deinit(&samples[0]);
	samples_deinit(&samples[1]);
	return r;
}

static int report_pair(struct bench_env *env, const struct contender *ours,
		       const struct contender *baseline)
{
	bool has_moves = baseline->way == WAY_LRU || baseline->way == WAY_PAGING;
	char params[64];
	struct bench_row row = {
		.params = ours->pattern->name,
		.unit = "/s",
		.is_rate = true,
		.baseline = way_names[baseline->way],
	};
	int r;

	r = report_row(env, &row, ours->tasks_per_s, baseline->tasks_per_s);
	if (r || !has_moves)
		return r;
	row.params = params;
	row.is_rate = false;
	row.unit = "times";
	snprintf(params, sizeof(params), "%s evicted", ours->pattern->name);
	r = report_row(env, &row, ours->evictions, baseline->evictions);
	if (r)
		return r;
	row.unit = "GB";
	snprintf(params, sizeof(params), "%s moved", ours->pattern->name);
	return report_row(env, &row, ours->moved_gb, baseline->moved_gb);
}

static int report(struct bench_env *env, const struct contender *contenders, unsigned int n)
{
	const struct contender *ours = NULL;
	int r = 0;

	for (unsigned int i = 0; i < n && !r; i++) {
		if (contenders[i].way == WAY_WANTED)
			ours = &contenders[i];
		else
			r = report_pair(env, ours, &contenders[i]);
	}
	return r ? bench_fail(env, r, "cannot report") : 0;
}

static int run_all(struct bench_env *env, struct contender *contenders, unsigned int n)
{
	int r = 0;

	for (unsigned int i = 0; i < n && !r; i++)
		r = contender_init(&contenders[i]);
	if (r)
		return r;
	for (unsigned int i = 0; i < n && !r; i++) {
		contenders[i].duration_ns = (uint64_t)(env->seconds * RUN_SECONDS * 1e9);
		r = -pthread_create(&contenders[i].client_thread, NULL, run_client, &contenders[i]);
		contenders[i].has_client_thread = r == 0;
	}
	for (unsigned int i = 0; i < n; i++)
		if (contenders[i].has_client_thread)
			pthread_join(contenders[i].client_thread, NULL);
	for (unsigned int i = 0; i < n && !r; i++) {
		contender_note_moves(&contenders[i]);
		r = contenders[i].result;
	}
	return r ? bench_fail(env, r, "a task failed") : 0;
}

static int run(struct bench_env *env)
{
	static struct contender contenders[ARRAY_SIZE(patterns) * N_WAYS];
	unsigned int n = 0;
	int r;

	for (unsigned int i = 0; i < ARRAY_SIZE(patterns); i++)
		for (unsigned int way = 0; way < N_WAYS; way++)
			if (patterns[i].ways & 1u << way)
				contenders[n++] = (struct contender){
					.env = env,
					.pattern = &patterns[i],
					.way = (enum way)way,
				};
	r = run_all(env, contenders, n);
	if (!r)
		r = report(env, contenders, n);
	for (unsigned int i = 0; i < n; i++)
		contender_deinit(&contenders[i]);
	return r;
}

const struct bench bench_residency = {
	.name = "residency",
	.summary = "tasks per second and moves of plans that do not fit a modelled card together",
	.baseline = "plain LRU; no eviction; the CPU alone; a driver without the broker's help",
	.run = run,
};
