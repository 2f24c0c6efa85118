/* SPDX-License-Identifier: MIT */
/*
 * Nearest neighbours as a plan
 *
 * |a - b|^2 = |a|^2 - 2 (a.b - |b|^2 / 2). The training images b nearest to an image a are
 * therefore those with the largest a.b - |b|^2 / 2. With the training images as the columns of a
 * constant B, a batch of images needs three operators: MatMul, Add, TopK.
 *
 * Numbers. Subtracting the same value from every pixel does not change distances. With 128
 * subtracted, every partial sum of a product stays below 784 * 128 * 128 < 2^24, which is exact in
 * 32-bit floats in any order of additions, fused or not. Half of |b|^2 is below 2^23, where floats
 * still represent halves. So is the result of every neighbour that matters, at most |a|^2 / 2. Any
 * device that computes in 32-bit floats therefore finds exactly the neighbours that integer
 * arithmetic finds.
 *
 * Memory. B and the norms lie in one arena, which is filled here and then sealed. The broker shares
 * it, and packs or mirrors it per device; its bytes never change. Images and results lie in a
 * second arena, with a slot for each task in flight.
 *
 * A classifier is made once and may run often, as in a service. Nothing in it changes between two
 * runs, so any difference is caused by the broker.
 */
#include "classify.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"
#include "neighbours.h"

enum { K = CLASSIFY_NEIGHBOURS, OFFSET = 128 };

struct slot {
	float *pixels;    /* [batch][IMAGE_PIXELS] */
	float *scores;    /* [batch][K] */
	int64_t *nearest; /* [batch][K] */
	size_t first;     /* index of the first image in the set */
	size_t n;
	uint64_t submitted_ns;
};

struct classifier {
	struct classify_options options;
	const struct images *train, *images;
	struct rbk *rbk;
	struct rbk_arena *constants, *io;
	struct rbk_builder *builder;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct slot slots[CLASSIFY_IN_FLIGHT];
	uint64_t *round_trips_ns, *execs_ns; /* [n_tasks] */
	uint64_t prepare_ns;
	struct classify_result result; /* result of the current run */
	struct rbk_error *error;       /* error of the current call */
};

__attribute__((format(printf, 3, 4))) static int fail(struct classifier *c, int error,
						      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->error->text, sizeof(c->error->text), format, args);
	va_end(args);
	return error;
}

static float centred(uint8_t pixel)
{
	return (float)(pixel - OFFSET);
}

/* Write the training images as columns, in blocks so that source and target stay in the cache. */
static void fill_columns(const struct images *train, float *ret)
{
	enum { BLOCK = 64 };

	for (size_t begin = 0; begin < train->n; begin += BLOCK) {
		const size_t end = begin + BLOCK < train->n ? begin + BLOCK : train->n;

		for (size_t p = 0; p < IMAGE_PIXELS; p++)
			for (size_t i = begin; i < end; i++)
				ret[p * train->n + i] =
					centred(train->pixels[i * IMAGE_PIXELS + p]);
	}
}

static void fill_norms(const struct images *train, float *ret)
{
	for (size_t i = 0; i < train->n; i++) {
		int32_t sum = 0;

		for (size_t p = 0; p < IMAGE_PIXELS; p++) {
			const int32_t x = train->pixels[i * IMAGE_PIXELS + p] - OFFSET;

			sum += x * x;
		}
		ret[i] = -0.5f * (float)sum;
	}
}

static int make_constants(struct classifier *c, uint64_t *ret_norms_offset)
{
	const size_t columns_bytes = IMAGE_PIXELS * c->train->n * sizeof(float);
	const size_t norms_bytes = c->train->n * sizeof(float);
	float *columns, *norms;
	int r;

	r = rbk_arena_new(c->rbk, aligned(columns_bytes) + norms_bytes, &c->constants, c->error);
	if (r)
		return r;
	columns = rbk_arena_alloc(c->constants, columns_bytes);
	norms = rbk_arena_alloc(c->constants, norms_bytes);
	if (!columns || !norms)
		return fail(c, -ENOMEM, "the constants do not fit their arena");
	fill_columns(c->train, columns);
	fill_norms(c->train, norms);
	*ret_norms_offset = aligned(columns_bytes);
	return rbk_arena_seal(c->constants, c->error);
}

static int make_plan(struct classifier *c)
{
	const uint32_t n = (uint32_t)c->train->n;
	const uint32_t image_dims[] = {RBK_DIM_COUNT, IMAGE_PIXELS}, norms_dims[] = {n};
	const uint32_t columns_dims[] = {IMAGE_PIXELS, n}, top_dims[] = {RBK_DIM_COUNT, K};
	unsigned int image, columns, norms, products, scores, top[2], node;
	struct rbk_builder *b;
	uint64_t norms_offset = 0;
	int r;

	r = make_constants(c, &norms_offset);
	if (r)
		return r;
	b = c->builder = rbk_builder_new("nearest neighbours");
	if (!b)
		return fail(c, -ENOMEM, "out of memory");
	image = rbk_builder_input(b, "image", RBK_DTYPE_F32, 2, image_dims);
	top[0] = rbk_builder_output(b, "score", RBK_DTYPE_F32, 2, top_dims);
	top[1] = rbk_builder_output(b, "nearest", RBK_DTYPE_I64, 2, top_dims);
	columns = rbk_builder_constant(b, "train", RBK_DTYPE_F32, 2, columns_dims, c->constants, 0);
	norms = rbk_builder_constant(b, "norms", RBK_DTYPE_F32, 1, norms_dims, c->constants,
				     norms_offset);
	products = rbk_builder_scratch(b, "products", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
	scores = rbk_builder_scratch(b, "scores", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);

	rbk_builder_binary(b, "MatMul", image, columns, products);
	rbk_builder_binary(b, "Add", products, norms, scores);
	node = rbk_builder_node(b, "TopK", "nearest", &scores, 1, top, 2);
	rbk_builder_attr_int(b, node, "k", K);
	/*
	 * Without a pin the other device would keep a copy of the training images that this client
	 * never uses.
	 */
	if (c->options.strategy == RBK_STRATEGY_ONLY_GPU)
		rbk_builder_pin_device(b, RBK_DEVICE_GPU);
	else if (c->options.strategy == RBK_STRATEGY_ONLY_CPU)
		rbk_builder_pin_device(b, RBK_DEVICE_CPU);
	return rbk_plan_new(c->rbk, b, c->options.batch, &c->plan, c->error);
}

static int make_slots(struct classifier *c)
{
	const size_t pixels_bytes = c->options.batch * (size_t)IMAGE_PIXELS * sizeof(float);
	const size_t scores_bytes = c->options.batch * (size_t)K * sizeof(float);
	const size_t nearest_bytes = c->options.batch * (size_t)K * sizeof(int64_t);
	const size_t slot_bytes =
		aligned(pixels_bytes) + aligned(scores_bytes) + aligned(nearest_bytes);
	int r;

	r = rbk_arena_new(c->rbk, slot_bytes * CLASSIFY_IN_FLIGHT, &c->io, c->error);
	if (r)
		return r;
	for (unsigned int i = 0; i < CLASSIFY_IN_FLIGHT; i++) {
		struct slot *slot = &c->slots[i];

		slot->pixels = rbk_arena_alloc(c->io, pixels_bytes);
		slot->scores = rbk_arena_alloc(c->io, scores_bytes);
		slot->nearest = rbk_arena_alloc(c->io, nearest_bytes);
		if (!slot->pixels || !slot->scores || !slot->nearest)
			return fail(c, -ENOMEM, "the images do not fit their arena");
	}
	return rbk_ring_new(c->rbk, CLASSIFY_IN_FLIGHT, &c->ring, c->error);
}

/* Write the next images into a slot and submit their task. */
static int submit(struct classifier *c, struct slot *slot, size_t first)
{
	const uint64_t refs[] = {rbk_ref(c->io, slot->pixels), rbk_ref(c->io, slot->scores),
				 rbk_ref(c->io, slot->nearest)};
	const size_t left = c->images->n - first;
	struct rbk_sqe *sqe;
	int r;

	slot->first = first;
	slot->n = left < c->options.batch ? left : c->options.batch;
	for (size_t i = 0; i < slot->n * IMAGE_PIXELS; i++)
		slot->pixels[i] = centred(c->images->pixels[first * IMAGE_PIXELS + i]);
	sqe = rbk_get_sqe(c->ring);
	if (!sqe)
		return fail(c, -ECONNRESET, "the broker ended the session");
	rbk_prep_run(sqe, rbk_plan_id(c->plan), (uint32_t)slot->n, refs, 3);
	rbk_sqe_set_data(sqe, slot);
	rbk_sqe_set_strategy(sqe, c->options.strategy);
	slot->submitted_ns = now_ns();
	r = rbk_submit(c->ring);
	return r < 0 ? fail(c, r, "cannot submit: %s", strerror(-r)) : 0;
}

static int count_right(struct classifier *c, const struct slot *slot)
{
	for (size_t i = 0; i < slot->n; i++) {
		const unsigned int label = c->images->labels[slot->first + i];
		const int64_t *nearest = slot->nearest + i * K;

		/* A faulty device's answer must not index out of bounds. */
		for (unsigned int k = 0; k < K; k++)
			if (nearest[k] < 0 || (uint64_t)nearest[k] >= c->train->n)
				return fail(c, -EBADMSG, "image %zu: neighbour %u is number %lld",
					    slot->first + i, k, (long long)nearest[k]);
		c->result.fingerprint += neighbours_fingerprint(slot->first + i, nearest, K);
		c->result.n_right += neighbours_vote(nearest, K, c->train->labels) == label;
		c->result.n_right_nearest += c->train->labels[nearest[0]] == label;
	}
	return 0;
}

/*
 * Take one completion.
 * Return: 0 with the task's slot in *ret, free for the next task; a negative errno.
 */
static int complete(struct classifier *c, struct slot **ret)
{
	const struct rbk_cqe *cqe;
	struct slot *slot;
	int r;

	do
		r = rbk_wait_cqe(c->ring, &cqe);
	while (r == -EINTR);
	if (r)
		return fail(c, r, "cannot wait for a task: %s", strerror(-r));
	slot = rbk_cqe_get_data(cqe);
	if (cqe->res)
		return fail(c, cqe->res, "images %zu to %zu: the task failed: %s", slot->first,
			    slot->first + slot->n - 1, strerror(-cqe->res));
	if (cqe->device >= RBK_MAX_DEVICES || cqe->reason >= RBK_REASON_COUNT)
		return fail(c, -EPROTO, "a task ran on device %u for reason %u", cqe->device,
			    cqe->reason);
	c->round_trips_ns[c->result.n_tasks] = now_ns() - slot->submitted_ns;
	c->execs_ns[c->result.n_tasks] = cqe->exec_ns;
	c->result.n_tasks++;
	c->result.tasks[cqe->device][cqe->reason]++;
	rbk_cqe_seen(c->ring, cqe);
	*ret = slot;
	return 0;
}

static int run(struct classifier *c)
{
	const uint64_t begin_ns = now_ns();
	size_t next = 0, n_done = 0;
	struct slot *slot = NULL;
	int r;

	for (unsigned int i = 0; i < CLASSIFY_IN_FLIGHT && next < c->images->n; i++) {
		r = submit(c, &c->slots[i], next);
		if (r)
			return r;
		next += c->slots[i].n;
	}
	while (n_done < c->images->n) {
		r = complete(c, &slot);
		if (r == 0)
			r = count_right(c, slot);
		if (r)
			return r;
		n_done += slot->n;
		if (next < c->images->n) {
			r = submit(c, slot, next);
			if (r)
				return r;
			next += slot->n;
		}
		if (c->options.progress) {
			r = c->options.progress(c->options.data, c, n_done);
			if (r)
				return r;
		}
	}
	c->result.run_ns = now_ns() - begin_ns;
	return 0;
}

/* Compute the 50th and the 99th percentile of the samples, which are sorted in place. */
static void percentiles(uint64_t *samples, unsigned int n, uint64_t ret[2])
{
	static const unsigned int percent[2] = {50, 99};

	qsort(samples, n, sizeof(*samples), compare_ns);
	for (unsigned int i = 0; i < 2; i++)
		ret[i] = samples[(n * percent[i] + 99) / 100 - 1];
}

static int summarise(struct classifier *c)
{
	struct rbk_plan_info info;
	struct rbk_stats stats;
	unsigned int n;
	int r;

	percentiles(c->round_trips_ns, c->result.n_tasks, c->result.round_trip_ns);
	percentiles(c->execs_ns, c->result.n_tasks, c->result.exec_ns);
	r = rbk_stats(c->rbk, &stats);
	if (r == 0)
		r = rbk_devices(c->rbk, c->result.devices, RBK_MAX_DEVICES, &n);
	if (r)
		return fail(c, r, "cannot read the broker's counters: %s", strerror(-r));
	rbk_plan_info(c->plan, &info);
	c->result.constant_bytes = info.constant_bytes;
	c->result.copied_bytes = stats.session_copied_bytes;
	c->result.transferred_bytes = stats.session_transferred_bytes;
	c->result.host_bytes = stats.host_bytes;
	c->result.device_bytes = stats.device_bytes;
	return 0;
}

static int make(struct classifier *c)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = c->options.socket_path,
		.name = "demo",
		.on_reattach = c->options.on_reattach,
		.on_reattach_data = c->options.on_reattach_data,
	};
	const uint64_t begin_ns = now_ns();
	const size_t n_tasks = (c->images->n + c->options.batch - 1) / c->options.batch;
	int r;

	c->round_trips_ns = calloc(n_tasks, sizeof(*c->round_trips_ns));
	c->execs_ns = calloc(n_tasks, sizeof(*c->execs_ns));
	if (!c->round_trips_ns || !c->execs_ns)
		return fail(c, -ENOMEM, "out of memory");
	r = rbk_connect(&options, &c->rbk, c->error);
	if (r == 0)
		r = make_plan(c);
	if (r == 0)
		r = make_slots(c);
	c->prepare_ns = now_ns() - begin_ns;
	return r;
}

int classifier_new(const struct classify_options *options, const struct images *train,
		   const struct images *images, struct classifier **ret, struct rbk_error *error)
{
	struct classifier *c;
	int r;

	c = calloc(1, sizeof(*c));
	if (!c) {
		snprintf(error->text, sizeof(error->text), "out of memory");
		return -ENOMEM;
	}
	c->options = *options;
	c->train = train;
	c->images = images;
	c->error = error;
	if (options->batch == 0 || options->batch > CLASSIFY_MAX_BATCH || train->n < K ||
	    train->n > UINT32_MAX || images->n == 0)
		r = fail(c, -EINVAL, "impossible numbers of images");
	else
		r = make(c);
	if (r) {
		classifier_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct classifier *classifier_free(struct classifier *c)
{
	if (!c)
		return NULL;
	rbk_ring_free(c->ring);
	rbk_plan_free(c->plan);
	rbk_builder_free(c->builder);
	rbk_arena_free(c->io);
	rbk_arena_free(c->constants);
	if (c->rbk)
		rbk_disconnect(c->rbk);
	free(c->round_trips_ns);
	free(c->execs_ns);
	free(c);
	return NULL;
}

int classifier_run(struct classifier *c, struct classify_result *ret, struct rbk_error *error)
{
	int r;

	c->error = error;
	c->result = (struct classify_result){.prepare_ns = c->prepare_ns};
	r = run(c);
	if (r == 0)
		r = summarise(c);
	if (r == 0)
		*ret = c->result;
	return r;
}

int classifier_memory(struct classifier *c, struct classify_memory *ret, struct rbk_error *error)
{
	struct rbk_plan_memory plan[RBK_MAX_DEVICES];
	struct classify_memory memory = {0};
	unsigned int n = 0;
	int r;

	c->error = error;
	r = rbk_tenant(c->rbk, &memory.tenant);
	if (r == 0)
		r = rbk_plan_memory(c->plan, plan, RBK_MAX_DEVICES, &n, NULL);
	if (r)
		return fail(c, r, "cannot ask about device memory: %s", strerror(-r));
	if (n <= RBK_DEVICE_GPU || memory.tenant.n_devices <= RBK_DEVICE_GPU)
		return fail(c, -ENODEV, "the broker has no GPU");
	memory.plan = plan[RBK_DEVICE_GPU];
	*ret = memory;
	return 0;
}
