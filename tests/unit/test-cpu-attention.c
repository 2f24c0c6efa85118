/* SPDX-License-Identifier: MIT */
/*
 * Attention on the CPU against its definition, at every SIMD level and split: shared heads, masks
 * of every form, past keys, valid lengths, caps, and what is asked for in between.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel-rig.h"
#include "support/test.h"

static void run_attention(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_attention args = *(const struct cpu_attention *)call->args;

	/* The scores lie behind the output. */
	args.y = y;
	if (args.qk)
		args.qk = y + args.batch * args.q_heads * args.q_len * args.v_head;
	call->kernels->attention(&args, begin, end, call->workspace);
}

/* Does key @j count for query @i; what is added to its score? */
static bool counts(const struct cpu_attention *args, size_t b, size_t h, size_t i, size_t j,
		   double *add)
{
	const size_t at = b * args->mask_batch + h * args->mask_head + i * args->mask_row + j;
	int64_t offset = (int64_t)args->past_len;

	*add = 0;
	if (args->valid) {
		if ((int64_t)j >= args->valid[b])
			return false;
		if (args->past_len == 0)
			offset = args->valid[b] - (int64_t)args->q_len;
	}
	if (args->causal && (int64_t)j > (int64_t)i + offset)
		return false;
	if (!args->mask)
		return true;
	if (j >= args->mask_cols)
		return false;
	if (args->mask_is_bool)
		return ((const uint8_t *)args->mask)[at];
	*add = (double)((const float *)args->mask)[at];
	return *add != -INFINITY;
}

static const float *key_at(const struct cpu_attention *args, size_t b, size_t kv, size_t j)
{
	if (j < args->past_len)
		return args->past_k + ((b * args->kv_heads + kv) * args->past_len + j) * args->head;
	return args->k + b * args->k_batch + kv * args->k_head + (j - args->past_len) * args->k_row;
}

static const float *value_at(const struct cpu_attention *args, size_t b, size_t kv, size_t j)
{
	if (j < args->past_len)
		return args->past_v +
		       ((b * args->kv_heads + kv) * args->past_len + j) * args->v_head;
	return args->v + b * args->v_batch + kv * args->v_head_stride +
	       (j - args->past_len) * args->v_row;
}

/* One query; @scores has room for all keys. */
static void reference_row(const struct cpu_attention *args, size_t b, size_t h, size_t i,
			  double *scores, float *y, float *qk)
{
	const size_t total = args->past_len + args->kv_len,
		     kv = h / (args->q_heads / args->kv_heads);
	const float *q = args->q + b * args->q_batch + h * args->q_head + i * args->q_row;
	double most = -INFINITY, sum = 0;

	for (size_t j = 0; j < total; j++) {
		const float *k = key_at(args, b, kv, j);
		double s = 0, add;
		bool in = counts(args, b, h, i, j, &add);

		for (size_t d = 0; d < args->head; d++)
			s += (double)q[d] * (double)k[d];
		s *= (double)args->scale;
		if (qk && args->qk_mode == CPU_QK_SCALED)
			qk[j] = (float)s;
		if (args->softcap > 0)
			s = tanh(s / (double)args->softcap) * (double)args->softcap;
		if (qk && args->qk_mode == CPU_QK_CAPPED)
			qk[j] = (float)s;
		scores[j] = in ? s + add : -INFINITY;
		if (qk && args->qk_mode == CPU_QK_MASKED)
			qk[j] = (float)scores[j];
		most = fmax(most, scores[j]);
	}
	for (size_t j = 0; j < total; j++)
		sum += scores[j] == -INFINITY ? 0 : exp(scores[j] - most);
	for (size_t d = 0; d < args->v_head; d++) {
		double out = 0;

		for (size_t j = 0; j < total; j++)
			if (scores[j] != -INFINITY)
				out += exp(scores[j] - most) * (double)value_at(args, b, kv, j)[d];
		y[d] = (float)(sum == 0 ? 0 : out / sum);
	}
	for (size_t j = 0; qk && args->qk_mode == CPU_QK_SOFTMAX && j < total; j++)
		qk[j] = (float)(scores[j] == -INFINITY ? 0 : exp(scores[j] - most) / sum);
}

static void check_attention(const char *what, const struct cpu_attention *args)
{
	const size_t total = args->past_len + args->kv_len;
	const size_t rows = args->batch * args->q_heads * args->q_len;
	const size_t n_y = rows * args->v_head, n_qk = args->qk ? rows * total : 0;
	double *scores = malloc(total * sizeof(*scores));
	float *want = malloc((n_y + n_qk) * sizeof(*want));

	assert_true(scores && want);
	for (size_t b = 0; b < args->batch; b++)
		for (size_t h = 0; h < args->q_heads; h++)
			for (size_t i = 0; i < args->q_len; i++)
				reference_row(
					args, b, h, i, scores,
					want + b * args->y_batch + h * args->y_head +
						i * args->y_row,
					args->qk ? want + n_y +
							   ((b * args->q_heads + h) * args->q_len +
							    i) * total
						 : NULL);
	check_levels(what,
		     (struct call){.run = run_attention,
				   .args = args,
				   .units = cpu_attention_units(args),
				   .n_out = n_y + n_qk},
		     want, 1e-4, 1e-5);
	free(scores);
	free(want);
}

/* A problem with memory of its own; what is not said is filled by init(). */
struct problem {
	struct cpu_attention args;
	struct guarded q, k, v, past_k, past_v, mask;
	int64_t valid[4];
};

static void problem_init(struct problem *p, bool heads_last)
{
	struct cpu_attention *args = &p->args;
	const size_t past = args->batch * args->kv_heads * args->past_len;

	p->q = guarded_new(args->batch * args->q_heads * args->q_len * args->head);
	p->k = guarded_new(args->batch * args->kv_heads * args->kv_len * args->head);
	p->v = guarded_new(args->batch * args->kv_heads * args->kv_len * args->v_head);
	p->past_k = guarded_new(past * args->head + 1);
	p->past_v = guarded_new(past * args->v_head + 1);
	args->q = p->q.data;
	args->k = p->k.data;
	args->v = p->v.data;
	args->past_k = p->past_k.data;
	args->past_v = p->past_v.data;
	args->q_batch = args->q_heads * args->q_len * args->head;
	args->q_head = heads_last ? args->head : args->q_len * args->head;
	args->q_row = heads_last ? args->q_heads * args->head : args->head;
	args->k_batch = args->kv_heads * args->kv_len * args->head;
	args->k_head = heads_last ? args->head : args->kv_len * args->head;
	args->k_row = heads_last ? args->kv_heads * args->head : args->head;
	args->v_batch = args->kv_heads * args->kv_len * args->v_head;
	args->v_head_stride = heads_last ? args->v_head : args->kv_len * args->v_head;
	args->v_row = heads_last ? args->kv_heads * args->v_head : args->v_head;
	args->y_batch = args->q_heads * args->q_len * args->v_head;
	args->y_head = heads_last ? args->v_head : args->q_len * args->v_head;
	args->y_row = heads_last ? args->q_heads * args->v_head : args->v_head;
	if (args->scale == 0)
		args->scale = 1 / sqrtf((float)args->head);
	p->mask = (struct guarded){0};
}

/* A mask of random sort. */
static void problem_mask(struct problem *p, bool is_bool)
{
	struct cpu_attention *args = &p->args;
	const size_t total = args->past_len + args->kv_len, cols = pick(1, total);
	const size_t n_rows = pick(0, 1) ? args->q_len : 1;
	const size_t n_heads = pick(0, 1) ? args->q_heads : 1;
	const size_t n_batch = pick(0, 1) ? args->batch : 1;
	const size_t n = n_batch * n_heads * n_rows * cols;

	p->mask = guarded_new(is_bool ? (n + 3) / 4 : n);
	args->mask = p->mask.data;
	if (is_bool)
		args->mask = (uint8_t *)p->mask.data + ((n + 3) / 4 * 4 - n);
	args->mask_is_bool = is_bool;
	args->mask_cols = cols;
	args->mask_row = n_rows > 1 ? cols : 0;
	args->mask_head = n_heads > 1 ? n_rows * cols : 0;
	args->mask_batch = n_batch > 1 ? n_heads * n_rows * cols : 0;
	for (size_t i = 0; i < n; i++) {
		if (is_bool)
			((uint8_t *)args->mask)[i] = pick(0, 2) > 0;
		else if (pick(0, 3) == 0)
			p->mask.data[i] = -INFINITY;
	}
}

static void problem_deinit(struct problem *p)
{
	guarded_free(&p->q);
	guarded_free(&p->k);
	guarded_free(&p->v);
	guarded_free(&p->past_k);
	guarded_free(&p->past_v);
	if (p->mask.map)
		guarded_free(&p->mask);
}

TEST(test_attention__random)
{
	for (unsigned int round = 0; round < 120; round++) {
		struct problem p = {.args = {
					    .batch = pick(1, 3),
					    .kv_heads = pick(1, 3),
					    .q_len = round % 5 == 0 ? 1 : pick(1, 20),
					    .kv_len = round % 7 == 0 ? pick(100, 300) : pick(1, 40),
					    .past_len = round % 3 == 0 ? pick(1, 150) : 0,
					    .head = pick(1, 80),
					    .v_head = pick(1, 80),
					    .causal = round & 1,
					    .softcap = round % 4 == 2 ? 0.7f : 0,
					    .qk = round % 3 == 1 ? (float *)&p : NULL,
					    .qk_mode = (enum cpu_attention_qk)pick(0, 3),
				    }};

		p.args.q_heads = p.args.kv_heads * pick(1, 4);
		problem_init(&p, round & 2);
		if (round & 4)
			problem_mask(&p, round & 8);
		for (unsigned int b = 0; b < 4; b++)
			p.valid[b] = (int64_t)pick(0, p.args.kv_len + p.args.past_len);
		if (round % 6 == 5)
			p.args.valid = p.valid;
		check_attention("attention", &p.args);
		problem_deinit(&p);
	}
}

/* More queries than a unit has, more keys than a block. */
TEST(test_attention__many_blocks)
{
	for (unsigned int round = 0; round < 4; round++) {
		struct problem p = {.args = {.batch = 1,
					     .kv_heads = 1,
					     .q_heads = 2,
					     .q_len = 130,
					     .kv_len = 390,
					     .head = 64,
					     .v_head = round == 3 ? 200 : 64,
					     .causal = round & 1}};

		problem_init(&p, round & 2);
		/* Scores that grow: every block's are larger than all before. */
		for (size_t i = 0; i < 390 * 64; i++)
			p.k.data[i] *= 1 + (float)(i / 64) / 20;
		check_attention("blocks", &p.args);
		problem_deinit(&p);
	}
}

/* What keys that do not count hold makes no difference; without any the result is 0. */
TEST(test_attention__nothing_counts)
{
	struct problem p = {.args = {.batch = 2,
				     .kv_heads = 1,
				     .q_heads = 2,
				     .q_len = 3,
				     .kv_len = 200,
				     .head = 8,
				     .v_head = 5,
				     .mask_is_bool = true,
				     .mask_cols = 200,
				     .mask_row = 200,
				     .qk_mode = CPU_QK_SOFTMAX,
				     .qk = (float *)&p}};
	uint8_t mask[3 * 200];

	problem_init(&p, false);
	p.args.mask = mask;
	for (size_t i = 0; i < sizeof(mask); i++)
		mask[i] = i >= 200 && i % 3 == 0;
	for (size_t j = 0; j < 400; j++) {
		/* Columns 0 modulo 3 count for row 2, and 1 modulo 3 for row 1. */
		if (j % 200 % 3 == 2) {
			p.v.data[j * 5] = NAN;
			p.v.data[j * 5 + 1] = INFINITY;
		}
	}
	check_attention("nothing counts", &p.args);
	problem_deinit(&p);
}

/* Scores that are no numbers are no zeros, either. */
TEST(test_attention__nan)
{
	struct problem p = {.args = {.batch = 1,
				     .kv_heads = 1,
				     .q_heads = 1,
				     .q_len = 60,
				     .kv_len = 4,
				     .head = 8,
				     .v_head = 5}};

	problem_init(&p, false);
	p.q.data[8] = NAN;
	p.k.data[9] = INFINITY;
	check_attention("nan", &p.args);
	problem_deinit(&p);
}

/* Products beyond what a float holds, which are within it once they are scaled. */
TEST(test_attention__large)
{
	for (unsigned int round = 0; round < 8; round++) {
		struct problem p = {.args = {.batch = 1,
					     .kv_heads = 1,
					     .q_heads = 2,
					     .q_len = round & 1 ? 1 : 40,
					     .kv_len = 150,
					     .head = 24,
					     .v_head = 5,
					     .scale = 2e-38f,
					     .causal = round & 2,
					     .qk = (float *)&p,
					     .qk_mode = (enum cpu_attention_qk)(round % 4)}};

		problem_init(&p, round & 4);
		for (size_t i = 0; i < 2 * p.args.q_len * 24; i++)
			p.q.data[i] *= 3e19f;
		for (size_t i = 0; i < 150 * 24; i++)
			p.k.data[i] *= 3e19f;
		check_attention("large", &p.args);
		problem_deinit(&p);
	}
}
