/* SPDX-License-Identifier: MIT */
/*
 * The broker that a bench measures
 *
 * The loops equal those of bare-ring.c, through the library: the same number of entries in flight,
 * the same order of publishing and consuming. Every completion's result is checked, so that no
 * failed entry counts as fast.
 */
#include "target.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <ringbroker/stats.h>

#include "broker-process/broker-process.h"
#include "cost.h"
#include "util/clock.h"

#define RING_ENTRIES 1024u

/* as in bare-ring.c */
#define ROUND_SAMPLES 8192u
#define WARM_UP       512u
#define SLICE_ENTRIES (RING_ENTRIES * 16)

/* warm-up where tasks may take long */
#define WARM_UP_WAITS 2u

static bool is_gpu(const struct rbk_device *device)
{
	return device->kind == RBK_DEVICE_KIND_GPU || device->kind == RBK_DEVICE_KIND_SOFTWARE_GPU;
}

static int find_gpu(struct rbk *rbk, struct rbk_device *ret)
{
	struct rbk_device devices[RBK_MAX_DEVICES];
	unsigned int n = 0;
	int r;

	r = rbk_devices(rbk, devices, RBK_MAX_DEVICES, &n);
	if (r)
		return r;
	for (unsigned int i = 0; i < n && i < RBK_MAX_DEVICES; i++)
		if (is_gpu(&devices[i])) {
			*ret = devices[i];
			return 0;
		}
	return -ENODEV;
}

static int connect_to(struct target *target, struct bench_env *env, const char *socket)
{
	struct rbk_options options = {.size = sizeof(options), .socket_path = socket};
	struct rbk_error error;
	int r;

	options.name = "brokerbench";
	r = rbk_connect(&options, &target->rbk, &error);
	if (r)
		return bench_refused(env, r, error.text);
	r = rbk_ring_new(target->rbk, RING_ENTRIES, &target->ring, &error);
	if (r)
		return bench_refused(env, r, error.text);
	return 0;
}

int target_connect(struct target *target, struct bench_env *env, const char *socket)
{
	*target = (struct target)TARGET_INIT;
	return connect_to(target, env, socket);
}

static bool is_pinned(enum target_kind kind)
{
	return kind == TARGET_PINNED || kind == TARGET_INLINE;
}

/* @device: an option for a device, or NULL */
static int start_private(struct target *target, struct bench_env *env, enum target_kind kind,
			 const char *gpu, const char *const *more)
{
	const char *arguments[8];
	unsigned int n = 0;
	int r;

	arguments[n++] = gpu;
	arguments[n++] = "--cache=none";
	if (kind == TARGET_ONE_WORKER || kind == TARGET_INLINE)
		arguments[n++] = "--workers=1";
	for (; more && *more; more++)
		arguments[n++] = *more;
	arguments[n] = NULL;
	r = broker_process_new(arguments, is_pinned(kind) ? env->peer_cpu : -1, &target->process);
	if (r == -ENOENT)
		return bench_refused(env, r, "there is no brokerd beside this program or in PATH");
	if (r)
		return bench_fail(env, r, "the private brokerd did not start");
	return connect_to(target, env, broker_process_socket(target->process));
}

int target_init(struct target *target, struct bench_env *env, enum target_kind kind)
{
	int r;

	*target = (struct target)TARGET_INIT;
	if (is_pinned(kind) && env->n_cpus < 2)
		return bench_skip(env, NULL, "a client and a broker that spin need two processors");
	/* The broker inherits the caller's affinity. */
	bench_pin(env, -1);

	if (env->socket)
		r = connect_to(target, env, env->socket);
	else
		r = start_private(target, env, kind,
				  kind == TARGET_GPU ? "--gpu=auto" : "--gpu=none", NULL);
	if (r)
		goto error;
	bench_pin(env, is_pinned(kind) ? env->client_cpu : -1);
	if (kind != TARGET_GPU)
		return 0;

	r = find_gpu(target->rbk, &target->gpu);
	if (r == -ENODEV && !env->socket) {
		target_deinit(target);
		r = start_private(target, env, kind, "--gpu=software", NULL);
		if (r)
			goto error;
		r = find_gpu(target->rbk, &target->gpu);
	}
	if (r == -ENODEV) {
		r = bench_skip(env, NULL, "the broker has no GPU, nor a software one");
		goto error;
	}
	if (r) {
		bench_fail(env, r, "cannot list the devices");
		goto error;
	}
	return 0;

error:
	target_deinit(target);
	return r;
}

/* Start a broker of all workers with a device for tests, and find the device. */
static int start_with_device(struct target *target, struct bench_env *env,
			     const char *const *options)
{
	int r;

	*target = (struct target)TARGET_INIT;
	bench_pin(env, -1);
	r = start_private(target, env, TARGET_WORKERS, "--gpu=none", options);
	if (!r) {
		r = find_gpu(target->rbk, &target->gpu);
		if (r)
			bench_fail(env, r, "the broker has no device for tests");
	}
	if (r)
		target_deinit(target);
	return r;
}

int target_init_timed(struct target *target, struct bench_env *env, uint32_t task_us,
		      uint32_t row_ns, unsigned int seed)
{
	char device[48], row[48], cut[32];
	const char *const more[] = {device, row, cut, NULL};

	snprintf(device, sizeof(device), "--test-device=%uus", task_us);
	snprintf(row, sizeof(row), "--test-device-row=%u.%03uus", row_ns / 1000, row_ns % 1000);
	snprintf(cut, sizeof(cut), "--cut=%u", seed);
	return start_with_device(target, env, more);
}

int target_init_rated(struct target *target, struct bench_env *env, uint32_t flops_per_ns,
		      uint64_t memory_bytes, uint32_t link_mb_per_s)
{
	char rate[48], memory[48], link[48];
	const char *more[5] = {"--test-device=20us", rate};
	unsigned int n = 2;

	snprintf(rate, sizeof(rate), "--test-device-rate=%u", flops_per_ns);
	snprintf(memory, sizeof(memory), "--device-memory=%llu", (unsigned long long)memory_bytes);
	snprintf(link, sizeof(link), "--test-device-link=%u", link_mb_per_s);
	if (memory_bytes)
		more[n++] = memory;
	if (link_mb_per_s)
		more[n++] = link;
	return start_with_device(target, env, more);
}

int target_init_cut(struct target *target, struct bench_env *env, unsigned int seed)
{
	char cut[32];
	const char *const more[] = {cut, NULL};
	int r;

	*target = (struct target)TARGET_INIT;
	snprintf(cut, sizeof(cut), "--cut=%u", seed);
	bench_pin(env, -1);
	r = start_private(target, env, TARGET_ONE_WORKER, "--gpu=none", more);
	if (r)
		target_deinit(target);
	return r;
}

int target_n_segments(const struct target *target, const struct rbk_plan *wanted)
{
	struct rbk_stats_plan plan;
	struct rbk_stats_view view;
	int n = -ENOENT;
	int r = rbk_stats_map(target->rbk, RBK_STATS_OWN, 0, &view, NULL);

	if (r)
		return r;
	for (uint32_t i = 0; i < rbk_stats_count(&view, RBK_STATS_SECTION_PLANS) && n < 0; i++) {
		const void *record = rbk_stats_record(&view, RBK_STATS_SECTION_PLANS, i);

		if (rbk_stats_copy(&plan, record, sizeof(plan)) &&
		    plan.state == RBK_STATS_PLAN_LIVE && plan.plan_id == rbk_plan_id(wanted))
			n = (int)plan.n_segments;
	}
	rbk_stats_unmap(&view);
	return n;
}

void target_deinit(struct target *target)
{
	target->ring = rbk_ring_free(target->ring);
	target->rbk = rbk_disconnect(target->rbk);
	target->process = broker_process_free(target->process);
}

const char *target_socket(const struct target *target, const struct bench_env *env)
{
	return target->process ? broker_process_socket(target->process) : env->socket;
}

static inline void prepare(const struct target_task *task, struct rbk_sqe *sqe)
{
	if (task->count == 0) {
		rbk_prep_nop(sqe);
		return;
	}
	rbk_prep_run(sqe, task->plan_id, task->count, task->refs, task->n_refs);
	rbk_sqe_set_strategy(sqe, task->strategy);
	rbk_sqe_set_flags(sqe, task->flags);
}

/* Submit the task's entry; @output_offset is added to its last reference. */
static int submit_one(const struct target_task *task, uint64_t output_offset)
{
	struct rbk_sqe *sqe;
	int r;

	sqe = rbk_get_sqe(task->ring);
	if (!sqe) {
		r = rbk_submit(task->ring);
		return r < 0 ? r : -ENOBUFS;
	}
	prepare(task, sqe);
	sqe->refs[task->n_refs - (task->n_refs > 0)] += output_offset;
	r = rbk_submit(task->ring);
	return r < 0 ? r : 0;
}

static int round_trip(const struct target_task *task)
{
	const struct rbk_cqe *cqe;
	int r;

	r = submit_one(task, 0);
	if (r)
		return r;
	do {
		r = rbk_peek_cqe(task->ring, &cqe);
	} while (r == -EAGAIN);
	if (r)
		return r;
	r = cqe->res;
	rbk_cqe_seen(task->ring, cqe);
	return r;
}

/* Wait for one completion with rbk_wait_cqe(), as programs do. */
static int wait_one(const struct target_task *task)
{
	const struct rbk_cqe *cqe;
	int r;

	do {
		r = rbk_wait_cqe(task->ring, &cqe);
	} while (r == -EINTR);
	if (r)
		return r;
	r = cqe->res;
	rbk_cqe_seen(task->ring, cqe);
	return r;
}

int target_run_once(const struct target_task *task)
{
	int r;

	r = submit_one(task, 0);
	return r ? r : wait_one(task);
}

int target_round_trips(void *data, uint64_t budget_ns, struct samples *samples)
{
	const struct target_task *task = data;
	uint64_t start, last, now, budget;
	unsigned int i;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	if (r)
		return r;
	budget = clock_ns_to_ticks(budget_ns);
	start = clock_ticks();
	for (i = 0; i < WARM_UP && clock_ticks() - start < budget; i++) {
		r = round_trip(task);
		if (r)
			return r;
	}
	cost_begin(task->cost);
	start = last = clock_ticks();
	for (i = 0; i < ROUND_SAMPLES && (i == 0 || last - start < budget); i++) {
		r = round_trip(task);
		if (r)
			return r;
		now = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(last, now));
		last = now;
	}
	cost_end(task->cost, i);
	return 0;
}

/*
 * Wait for a completion and submit the next task. Tasks in flight use the outputs in turn;
 * completions may overtake each other.
 */
static int wait_and_submit(const struct target_task *task, unsigned int *turn)
{
	int r;

	r = wait_one(task);
	if (r)
		return r;
	*turn = *turn + 1 == task->depth ? 0 : *turn + 1;
	return submit_one(task, *turn * task->output_stride);
}

static int waits_deep(const struct target_task *task, uint64_t budget, struct samples *samples)
{
	unsigned int i, n, n_ahead, turn;
	uint64_t start, last, now;
	int r = 0;

	for (n_ahead = 0; n_ahead < task->depth && !r; n_ahead++)
		r = submit_one(task, n_ahead * task->output_stride);
	turn = n_ahead - 1;
	for (i = 0; i < task->depth && !r; i++)
		r = wait_and_submit(task, &turn);
	/* A sample is as many completions as are in flight, since they tend to arrive together. */
	cost_begin(task->cost);
	start = last = clock_ticks();
	for (i = 0; !r && i < ROUND_SAMPLES && (i == 0 || last - start < budget); i++) {
		for (n = 0; n < task->depth && !r; n++)
			r = wait_and_submit(task, &turn);
		now = clock_ticks();
		if (!r)
			samples_add(samples, (double)clock_elapsed_ns(last, now) / task->depth);
		last = now;
	}
	cost_end(task->cost, (uint64_t)i * task->depth);
	for (; n_ahead > 0 && !r; n_ahead--)
		r = wait_one(task);
	return r;
}

int target_waits(void *data, uint64_t budget_ns, struct samples *samples)
{
	const struct target_task *task = data;
	uint64_t start, last, now, budget;
	unsigned int i;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	if (r)
		return r;
	budget = clock_ns_to_ticks(budget_ns);
	if (task->depth > 1)
		return waits_deep(task, budget, samples);

	for (i = 0; i < WARM_UP_WAITS && !r; i++)
		r = target_run_once(task);
	cost_begin(task->cost);
	start = last = clock_ticks();
	for (i = 0; !r && i < ROUND_SAMPLES && (i == 0 || last - start < budget); i++) {
		r = target_run_once(task);
		now = clock_ticks();
		if (!r)
			samples_add(samples, (double)clock_elapsed_ns(last, now));
		last = now;
	}
	cost_end(task->cost, i);
	return r;
}

/*
 * Consume every completion that has arrived.
 * Return: their number; a negative errno.
 */
static int take_completions(const struct target_task *task)
{
	const struct rbk_cqe *cqes[64];
	int32_t failed = 0;
	int n, i;

	n = rbk_peek_batch_cqe(task->ring, cqes, 64);
	if (n <= 0)
		return n == -EAGAIN ? 0 : n;
	for (i = 0; i < n; i++)
		failed |= cqes[i]->res;
	rbk_cq_advance(task->ring, (unsigned int)n);
	return failed ? -EIO : n;
}

/* Move @n entries like stream() of bare-ring.c. */
static int stream(const struct target_task *task, uint32_t n)
{
	uint32_t sent = 0, got = 0, i;
	struct rbk_sqe *sqe;
	int r;

	while (got < n) {
		while (sent < n && sent - got + task->batch <= RING_ENTRIES) {
			for (i = 0; i < task->batch; i++) {
				sqe = rbk_get_sqe(task->ring);
				if (!sqe)
					break;
				prepare(task, sqe);
			}
			r = rbk_submit(task->ring);
			if (r < 0)
				return r;
			sent += i;
			if (i < task->batch)
				break;
		}
		r = take_completions(task);
		if (r < 0)
			return r;
		got += (uint32_t)r;
	}
	return 0;
}

int target_throughput(void *data, uint64_t budget_ns, struct samples *samples)
{
	const struct target_task *task = data;
	uint64_t start, last, now, budget;
	unsigned int i;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	if (r)
		return r;
	r = stream(task, SLICE_ENTRIES);
	if (r)
		return r;
	budget = clock_ns_to_ticks(budget_ns);
	start = last = clock_ticks();
	for (i = 0; i < ROUND_SAMPLES && (i == 0 || last - start < budget); i++) {
		r = stream(task, SLICE_ENTRIES);
		if (r)
			return r;
		now = clock_ticks();
		samples_add(samples, SLICE_ENTRIES * 1e3 / (double)clock_elapsed_ns(last, now));
		last = now;
	}
	return 0;
}
