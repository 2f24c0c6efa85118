/* SPDX-License-Identifier: MIT */
/*
 * Attention
 *
 * The full matrix of scores is never stored. A block of queries visits the keys in blocks of
 * ATTENTION_KEYS. The scores of a block are a matrix product in the workspace. They are scaled,
 * capped, masked, and turned into exponentials relative to the largest score so far. Their product
 * with the values is added to the output. If a later block has a larger score, the accumulated
 * output is scaled down. At the end every row is divided by the sum of its exponentials.
 *
 * Queries of different heads that share keys are rows of one product if their memory layout allows:
 * then the heads of a single new token read the cache once. With very few rows, rearranging the
 * keys for the product would cost more than it saves, so those scores are plain dot products.
 *
 * The scale is applied after the product, where it costs the least. A product that is infinite may
 * be finite when scaled first, as in ONNX. A row with a score that is not finite gets its scores
 * again, from the scaled query.
 *
 * A masked key has the exponential 0, and its product with the value is 0, unless the value is
 * infinite or a NaN. So a row that is not finite, although its sum of exponentials is, is computed
 * again key by key, without the masked keys.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec-exp.h"
#include "cpu/vec.h"

/* Keys of one block. The block size affects rounding, so it is equal at all levels. */
enum { ATTENTION_KEYS = 128 };

/* Up to this number of rows, scores are dot products. */
enum { ATTENTION_FEW = 3 };

/* Offset of the scores in the workspace, behind the part that the matrix product uses */
enum { ATTENTION_SCORES_AT = 512 << 10 };

_Static_assert(ATTENTION_SCORES_AT + (CPU_ATTENTION_ROWS * (ATTENTION_KEYS + 2)) * sizeof(float) <=
		       CPU_WORKSPACE_BYTES,
	       "the workspace holds a block of scores");

/* Common properties of the rows of one unit */
struct attention_unit {
	const struct cpu_attention *args;
	size_t batch, kv_head, head; /* head: of its first row */
	size_t row, n_rows;          /* its first row among those that share keys, and its rows */
	const float *q;
	float *y;
	size_t q_stride, y_stride;
	int64_t valid;  /* keys from here on are masked */
	int64_t offset; /* query i sees keys up to i + offset */
	bool few;
	float *scores; /* [rows][ATTENTION_KEYS] */
	float *most;   /* largest score, by row */
	float *sum;    /* sum of exponentials, by row */
	void *workspace;
};

/* Some adjacent keys and their values */
struct attention_keys {
	const float *k, *v;
	size_t k_stride, v_stride;
	size_t first, n;
};

static size_t attention_total(const struct cpu_attention *args)
{
	return args->past_len + args->kv_len;
}

/*
 * Find the block of keys from @at on. A block never spans past and present keys. Return: false
 * after the last block.
 */
static bool attention_block(const struct attention_unit *unit, size_t at, size_t end,
			    struct attention_keys *ret)
{
	const struct cpu_attention *args = unit->args;
	const size_t past = args->past_len;

	if (at >= end)
		return false;
	ret->first = at;
	ret->n = end - at < ATTENTION_KEYS ? end - at : ATTENTION_KEYS;
	if (at < past) {
		const size_t line = (unit->batch * args->kv_heads + unit->kv_head) * past + at;

		ret->k = args->past_k + line * args->head;
		ret->v = args->past_v + line * args->v_head;
		ret->k_stride = args->head;
		ret->v_stride = args->v_head;
		if (ret->n > past - at)
			ret->n = past - at;
		return true;
	}
	ret->k = args->k + unit->batch * args->k_batch + unit->kv_head * args->k_head +
		 (at - past) * args->k_row;
	ret->v = args->v + unit->batch * args->v_batch + unit->kv_head * args->v_head_stride +
		 (at - past) * args->v_row;
	ret->k_stride = args->k_row;
	ret->v_stride = args->v_row;
	return true;
}

VEC_INLINE float attention_dot(const float *a, const vf scale, const float *b, size_t n)
{
	vf acc[VEC_REGS] = {0};
	size_t i = 0;

	for (; i + VEC_LANES <= n; i += VEC_LANES) {
		VEC_UNROLL
		for (size_t v = 0; v < VEC_REGS; v++)
			acc[v] += vf_load(a + i + v * VW) * scale * vf_load(b + i + v * VW);
	}
	VEC_UNROLL
	for (size_t v = 0; v < VEC_REGS; v++) {
		const size_t at = i + v * VW, left = n - at < VW ? n - at : VW;

		if (at < n)
			acc[v] += vf_load_partial(a + at, left) * scale *
				  vf_load_partial(b + at, left);
	}
	return vec_sum(acc);
}

/* Multiply rows [begin, end) by the keys. */
static void attention_product(const struct attention_unit *unit, const struct attention_keys *keys,
			      size_t begin, size_t end)
{
	const struct cpu_attention *args = unit->args;
	const struct cpu_gemm gemm = {
		.m = end - begin,
		.n = keys->n,
		.k = args->head,
		.a = unit->q + begin * unit->q_stride,
		.a_rs = unit->q_stride,
		.a_cs = 1,
		.b = keys->k,
		.b_rs = 1,
		.b_cs = keys->k_stride,
		.y = unit->scores + begin * ATTENTION_KEYS,
		.y_rs = ATTENTION_KEYS,
		.alpha = 1,
		.pause = args->pause,
	};

	if (!unit->few) {
		CPU_FN(gemm)(&gemm, &(struct cpu_gemm_tile){0, gemm.m, 0, gemm.n}, unit->workspace);
		return;
	}
	cpu_pause(args->pause);
	for (size_t j = 0; j < keys->n; j++) {
		for (size_t i = begin; i < end; i++)
			unit->scores[i * ATTENTION_KEYS + j] =
				attention_dot(unit->q + i * unit->q_stride, vf_set(1),
					      keys->k + j * keys->k_stride, args->head);
	}
}

/* Return the mask's line for row @i; NULL: none. */
static const void *attention_mask(const struct attention_unit *unit, size_t i)
{
	const struct cpu_attention *args = unit->args;
	const size_t row = unit->row + i;
	const size_t at = unit->batch * args->mask_batch +
			  (unit->head + row / args->q_len) * args->mask_head +
			  row % args->q_len * args->mask_row;

	if (!args->mask)
		return NULL;
	return args->mask_is_bool ? (const void *)((const uint8_t *)args->mask + at)
				  : (const void *)((const float *)args->mask + at);
}

static float *attention_qk(const struct attention_unit *unit, size_t i)
{
	const struct cpu_attention *args = unit->args;
	const size_t row = unit->row + i;

	if (!args->qk)
		return NULL;
	return args->qk +
	       (((unit->batch * args->q_heads + unit->head + row / args->q_len) * args->q_len) +
		row % args->q_len) *
		       attention_total(args);
}

/* Return the limit of row @i: keys from there on are masked. */
static size_t attention_limit(const struct attention_unit *unit, size_t i)
{
	const size_t total = attention_total(unit->args);
	int64_t limit = unit->valid;

	if (unit->args->causal) {
		const int64_t seen =
			(int64_t)((unit->row + i) % unit->args->q_len) + unit->offset + 1;

		limit = seen < limit ? seen : limit;
	}
	if (unit->args->mask && limit > (int64_t)unit->args->mask_cols)
		limit = (int64_t)unit->args->mask_cols;
	if (limit < 0)
		return 0;
	return (uint64_t)limit < total ? (size_t)limit : total;
}

/* Return @n bytes as lane masks. */
VEC_INLINE vi attention_bytes(const uint8_t *from, size_t n)
{
	vi mask = {0};

	for (size_t i = 0; i < n; i++)
		mask[i] = from[i] ? -1 : 0;
	return mask;
}

/* Compute the scores of row @i from the scaled query, where unscaled scores are infinite. */
static void attention_scaled(const struct attention_unit *unit, const struct attention_keys *keys,
			     size_t i)
{
	const vf scale = vf_set(unit->args->scale);

	cpu_pause(unit->args->pause);
	for (size_t j = 0; j < keys->n; j++)
		unit->scores[i * ATTENTION_KEYS + j] =
			attention_dot(unit->q + i * unit->q_stride, scale,
				      keys->k + j * keys->k_stride, unit->args->head);
}

/*
 * Multiply the scores of row @i by @factor, cap and mask them.
 * Return: the largest score; *ret_finite: all products were finite.
 */
VEC_INLINE float attention_masked(const struct attention_unit *unit,
				  const struct attention_keys *keys, size_t i, const bool caps,
				  float factor, bool *ret_finite)
{
	const struct cpu_attention *args = unit->args;
	const size_t limit = attention_limit(unit, i), first = keys->first;
	const size_t n_seen = limit <= first            ? 0
			      : limit - first < keys->n ? limit - first
							: keys->n;
	const vf scale = vf_set(factor), none = vf_set(-INFINITY);
	const vf cap = vf_set(args->softcap), inverse = vf_set(caps ? 1 / args->softcap : 0);
	const void *mask = attention_mask(unit, i);
	float *s = unit->scores + i * ATTENTION_KEYS, *qk = attention_qk(unit, i);
	vf most = none, finite = {0};

	for (size_t j = 0; j < keys->n; j += VW) {
		const size_t n = keys->n - j < VW ? keys->n - j : VW;
		const size_t seen = n_seen <= j ? 0 : n_seen - j < VW ? n_seen - j : VW;
		vi counts = vi_first(seen);
		vf x = vf_load_partial(s + j, n) * scale;

		finite += x * (vf){0};
		if (qk && args->qk_mode == CPU_QK_SCALED)
			vf_store_partial(qk + first + j, x, n);
		if (caps)
			x = vf_tanh(x * inverse) * cap;
		if (qk && args->qk_mode == CPU_QK_CAPPED)
			vf_store_partial(qk + first + j, x, n);
		if (mask && args->mask_is_bool) {
			counts &= attention_bytes((const uint8_t *)mask + first + j, seen);
		} else if (mask) {
			const vf add = vf_load_partial((const float *)mask + first + j, seen);

			counts &= ~(vi)(add == none);
			x += add;
		}
		x = vf_select(counts, x, none);
		if (qk && args->qk_mode >= CPU_QK_MASKED)
			vf_store_partial(qk + first + j, x, n);
		vf_store_partial(s + j, x, n);
		most = vf_select((vi)(x > most) & vi_first(n), x, most);
	}
	for (size_t lane = 1; lane < VW; lane++)
		most[0] = most[lane] > most[0] ? most[lane] : most[0];
	*ret_finite = !vi_any((vi)(finite != (vf){0}));
	return most[0];
}

/* Scale, cap and mask the scores of row @i. Return: the largest score. */
VEC_INLINE float attention_scores(const struct attention_unit *unit,
				  const struct attention_keys *keys, size_t i, const bool caps)
{
	bool is_finite;
	float most = attention_masked(unit, keys, i, caps, unit->args->scale, &is_finite);

	if (is_finite)
		return most;
	attention_scaled(unit, keys, i);
	return attention_masked(unit, keys, i, caps, 1, &is_finite);
}

/* Turn the scores of row @i into exponentials, and update its sum and its accumulated output. */
static void attention_row(const struct attention_unit *unit, const struct attention_keys *keys,
			  size_t i)
{
	const struct cpu_attention *args = unit->args;
	float *s = unit->scores + i * ATTENTION_KEYS, *y = unit->y + i * unit->y_stride;
	const float block_most = args->softcap > 0 ? attention_scores(unit, keys, i, true)
						   : attention_scores(unit, keys, i, false);
	const float was = unit->most[i], most = block_most > was ? block_most : was;
	/* While all keys so far are masked, any base is correct. */
	const vf base = vf_set(most == -INFINITY ? 0 : most);
	vf acc[VEC_REGS] = {0};

	for (size_t j = 0; j < keys->n; j += VEC_LANES) {
		VEC_UNROLL
		for (size_t v = 0; v < VEC_REGS; v++) {
			const size_t at = j + v * VW, left = keys->n - at < VW ? keys->n - at : VW;
			vf e;

			if (at >= keys->n)
				continue;
			e = vf_exp_neg(vf_load_partial(s + at, left) - base);
			vf_store_partial(s + at, e, left);
			acc[v] += vf_select(vi_first(left), e, (vf){0});
		}
	}
	if (most > was && keys->first > 0) {
		/* All keys so far were masked, so reset the output: even a NaN must not remain. */
		const float factor = was == -INFINITY ? 0 : f_exp_neg(was - most);

		unit->sum[i] *= factor;
		for (size_t j = 0; j < args->v_head; j += VW) {
			const size_t n = args->v_head - j < VW ? args->v_head - j : VW;
			const vf so_far = vf_load_partial(y + j, n);

			vf_store_partial(y + j,
					 was == -INFINITY ? (vf){0} : so_far * vf_set(factor), n);
		}
	}
	unit->most[i] = most;
	unit->sum[i] += vec_sum(acc);
}

/* Add exponentials times values to the output of all rows. */
static void attention_add(const struct attention_unit *unit, const struct attention_keys *keys)
{
	const struct cpu_attention *args = unit->args;
	const struct cpu_gemm gemm = {
		.m = unit->n_rows,
		.n = args->v_head,
		.k = keys->n,
		.a = unit->scores,
		.a_rs = ATTENTION_KEYS,
		.a_cs = 1,
		.b = keys->v,
		.b_rs = keys->v_stride,
		.b_cs = 1,
		.y = unit->y,
		.y_rs = unit->y_stride,
		.alpha = 1,
		.accumulate = keys->first > 0,
		.pause = args->pause,
	};

	CPU_FN(gemm)(&gemm, &(struct cpu_gemm_tile){0, gemm.m, 0, gemm.n}, unit->workspace);
}

/* Compute row @i again without masked keys. Its largest score and its sum are known. */
static void attention_again(const struct attention_unit *unit, size_t i)
{
	const struct cpu_attention *args = unit->args;
	const vf base = vf_set(unit->most[i]);
	const float *s = unit->scores + i * ATTENTION_KEYS;
	float *y = unit->y + i * unit->y_stride;
	struct attention_keys keys;

	for (size_t j = 0; j < args->v_head; j++)
		y[j] = 0;
	for (size_t at = 0; attention_block(unit, at, attention_limit(unit, i), &keys);
	     at += keys.n) {
		attention_product(unit, &keys, i, i + 1);
		if (args->softcap > 0)
			attention_scores(unit, &keys, i, true);
		else
			attention_scores(unit, &keys, i, false);
		for (size_t k = 0; k < keys.n; k++) {
			const float *from = keys.v + k * keys.v_stride;
			const vf e = vf_exp_neg(vf_set(s[k]) - base);

			if (s[k] == -INFINITY)
				continue;
			for (size_t j = 0; j < args->v_head; j += VW) {
				const size_t n = args->v_head - j < VW ? args->v_head - j : VW;

				vf_store_partial(y + j,
						 vf_load_partial(y + j, n) +
							 e * vf_load_partial(from + j, n),
						 n);
			}
		}
	}
}

/* Divide a row by the sum of its exponentials. */
static void attention_finish(const struct attention_unit *unit, size_t i)
{
	const struct cpu_attention *args = unit->args;
	const size_t total = attention_total(args);
	/* A score that is a NaN makes the sum a NaN, which differs from 0. */
	const bool none = unit->sum[i] == 0;
	const vf inv = vf_set(none ? 0 : 1 / unit->sum[i]);
	float *y = unit->y + i * unit->y_stride, *qk = attention_qk(unit, i);
	vf finite = {0};

	for (size_t j = 0; j < args->v_head; j += VW) {
		const size_t n = args->v_head - j < VW ? args->v_head - j : VW;

		finite += vf_load_partial(y + j, n) * (vf){0};
	}
	if (!none && unit->sum[i] == unit->sum[i] && vi_any((vi)(finite != (vf){0})))
		attention_again(unit, i);
	for (size_t j = 0; j < args->v_head; j += VW) {
		const size_t n = args->v_head - j < VW ? args->v_head - j : VW;

		vf_store_partial(y + j, none ? (vf){0} : vf_load_partial(y + j, n) * inv, n);
	}
	for (size_t j = 0; qk && args->qk_mode == CPU_QK_SOFTMAX && j < total; j += VW) {
		const size_t n = total - j < VW ? total - j : VW;
		const vf e = vf_exp_neg(vf_load_partial(qk + j, n) - vf_set(unit->most[i]));

		vf_store_partial(qk + j, none ? (vf){0} : e * inv, n);
	}
}

/* Return unit @index; rows.h describes the order of units. */
static struct attention_unit attention_unit(const struct cpu_attention *args, size_t index,
					    void *workspace)
{
	const bool merges = cpu_attention_merges(args);
	const size_t blocks = cpu_attention_blocks(args), rows = cpu_attention_rows(args);
	const size_t group = args->q_heads / args->kv_heads;
	const size_t heads = merges ? args->kv_heads : args->q_heads;
	const size_t head = index / blocks % heads;
	struct attention_unit unit = {
		.args = args,
		.batch = index / blocks / heads,
		.kv_head = merges ? head : head / group,
		.head = merges ? head * group : head,
		.row = index % blocks * CPU_ATTENTION_ROWS,
		.few = rows <= ATTENTION_FEW,
		.valid = INT64_MAX,
		.offset = (int64_t)args->past_len,
		.scores = (float *)((char *)workspace + ATTENTION_SCORES_AT),
		.workspace = workspace,
	};

	unit.n_rows = rows - unit.row < CPU_ATTENTION_ROWS ? rows - unit.row : CPU_ATTENTION_ROWS;
	unit.q_stride = args->q_len == 1 ? args->q_head : args->q_row;
	unit.y_stride = args->q_len == 1 ? args->y_head : args->y_row;
	unit.q = args->q + unit.batch * args->q_batch + unit.head * args->q_head +
		 unit.row * unit.q_stride;
	unit.y = args->y + unit.batch * args->y_batch + unit.head * args->y_head +
		 unit.row * unit.y_stride;
	unit.most = unit.scores + CPU_ATTENTION_ROWS * ATTENTION_KEYS;
	unit.sum = unit.most + CPU_ATTENTION_ROWS;
	if (args->valid) {
		const int64_t total = (int64_t)attention_total(args);

		/* Read once, and clamped so that no sum with it overflows. */
		unit.valid = *(const volatile int64_t *)&args->valid[unit.batch];
		unit.valid = unit.valid < 0 ? 0 : unit.valid < total ? unit.valid : total;
		if (args->past_len == 0)
			unit.offset = unit.valid - (int64_t)args->q_len;
	}
	return unit;
}

void CPU_FN(attention)(const struct cpu_attention *args, size_t begin, size_t end, void *workspace)
{
	for (size_t index = begin; index < end; index++) {
		const struct attention_unit unit = attention_unit(args, index, workspace);
		struct attention_keys keys;
		size_t n_keys = 0;

		for (size_t i = 0; i < unit.n_rows; i++) {
			const size_t limit = attention_limit(&unit, i);

			n_keys = limit > n_keys ? limit : n_keys;
			unit.most[i] = -INFINITY;
			unit.sum[i] = 0;
		}
		if (args->qk)
			n_keys = attention_total(args);
		for (size_t at = 0; attention_block(&unit, at, n_keys, &keys); at += keys.n) {
			attention_product(&unit, &keys, 0, unit.n_rows);
			for (size_t i = 0; i < unit.n_rows; i++)
				attention_row(&unit, &keys, i);
			attention_add(&unit, &keys);
		}
		for (size_t i = 0; i < unit.n_rows; i++)
			attention_finish(&unit, i);
	}
}
