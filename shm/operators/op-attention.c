/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Attention-24, RotaryEmbedding-23
 *
 * Heads are a dimension of their own, [batch][heads][sequence][size], or, with three dimensions, an
 * attribute gives their number, [batch][sequence][heads * size]. A position outside the caches of a
 * RotaryEmbedding is clamped to the nearest one inside. A masked key of an Attention contributes
 * nothing, whatever it holds. softmax_precision is accepted: all is computed in float32.
 */
#include <math.h>

#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

enum {
	ATTENTION_Q,
	ATTENTION_K,
	ATTENTION_V,
	ATTENTION_MASK,
	ATTENTION_PAST_K,
	ATTENTION_PAST_V,
	ATTENTION_VALID
};

/* Dimensions of an input with heads. */
struct heads {
	struct dim batch;
	uint32_t n, seq, size;
};

/* Read the shape of input @i, with @n heads if it has three dimensions. */
static int read_heads(struct op_call *call, unsigned int i, const char *attr, int64_t n,
		      struct heads *ret)
{
	const struct op_tensor *x = call->in[i];
	const uint32_t *dims = x->shape.dims;

	if (x->shape.rank != 3 && x->shape.rank != 4)
		return op_call_refuse(call, "input \"%s\" has shape %s, expected 3 or 4 dimensions",
				      x->name, SHAPE_TEXT(&x->shape));
	if (x->shape.rank == 3 && n == 0)
		return op_call_refuse(call,
				      "attribute \"%s\" is missing, but input \"%s\" has 3 "
				      "dimensions",
				      attr, x->name);
	if (x->shape.rank == 3 && dims[2] % (uint64_t)n != 0)
		return op_call_refuse(call,
				      "attribute \"%s\" is %lld, expected a divisor of the last "
				      "dimension of input \"%s\" %s",
				      attr, (long long)n, x->name, SHAPE_TEXT(&x->shape));
	if (x->shape.rank == 4 && n != 0 && dims[1] != n)
		return op_call_refuse(call,
				      "attribute \"%s\" is %lld, expected dimension 1 of input "
				      "\"%s\" %s",
				      attr, (long long)n, x->name, SHAPE_TEXT(&x->shape));
	ret->batch = shape_get(&x->shape, 0);
	if (x->shape.rank == 4)
		*ret = (struct heads){ret->batch, dims[1], dims[2], dims[3]};
	else
		*ret = (struct heads){ret->batch, (uint32_t)n, dims[1], (uint32_t)(dims[2] / n)};
	return 0;
}

/* Check that input @i has exactly this shape. */
static int check_shape(struct op_call *call, unsigned int i, unsigned int rank,
		       const struct dim *dims)
{
	const struct op_tensor *x = call->in[i];
	struct shape expected = {.rank = (uint8_t)rank, .dynamic = dims[0].is_count};

	for (unsigned int d = 0; d < rank; d++)
		expected.dims[d] = dims[d].n;
	if (shape_equal(&x->shape, &expected))
		return 0;
	return op_call_refuse(call, "input \"%s\" has shape %s, expected %s", x->name,
			      SHAPE_TEXT(&x->shape), SHAPE_TEXT(&expected));
}

static int rotary_infer(struct op_call *call)
{
	const struct op_tensor *positions = op_call_input(call, 3);
	const struct op_tensor *cos_cache = call->in[1];
	int64_t n_heads, dim;
	struct heads x;
	bool interleaved;
	int r;

	r = op_call_int(call, "num_heads", 0, OP_MAX_DIM, 0, &n_heads);
	if (!r)
		r = op_call_bool(call, "interleaved", false, &interleaved);
	if (!r)
		r = read_heads(call, 0, "num_heads", n_heads, &x);
	if (!r)
		r = op_call_int(call, "rotary_embedding_dim", 0, x.size, 0, &dim);
	if (r)
		return r;
	dim = dim ? dim : x.size;
	if (dim % 2 != 0)
		return op_call_refuse(call,
				      "%lld elements of each head are rotated, expected an even "
				      "number",
				      (long long)dim);

	const struct dim half = {.n = (uint32_t)(dim / 2)}, seq = {.n = x.seq};

	if (positions) {
		const struct dim cache[2] = {shape_get(&cos_cache->shape, 0), half};

		if (cos_cache->shape.dynamic || cos_cache->shape.rank == 0)
			return op_call_refuse(call,
					      "input \"%s\" has shape %s, expected a fixed one",
					      cos_cache->name, SHAPE_TEXT(&cos_cache->shape));
		r = check_shape(call, 3, 2, (struct dim[]){x.batch, seq});
		for (unsigned int i = 1; !r && i < 3; i++)
			r = check_shape(call, i, 2, cache);
	} else {
		for (unsigned int i = 1; !r && i < 3; i++)
			r = check_shape(call, i, 3, (struct dim[]){x.batch, seq, half});
	}
	if (r)
		return r;
	call->params.rotary.heads = x.n;
	call->params.rotary.dim = (uint32_t)dim;
	call->params.rotary.interleaved = interleaved;
	call->out_shape[0] = call->in[0]->shape;
	return 0;
}

static void rotary_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->in[0]->shape, 3);
	cost_tensors(call, ret);
}

/* Check the mask: it broadcasts to [batch][heads][queries][keys], but may have fewer keys. */
static int check_mask(struct op_call *call, const struct heads *q, uint32_t n_keys)
{
	const struct op_tensor *mask = op_call_input(call, ATTENTION_MASK);
	const struct dim full[4] = {q->batch, {.n = q->n}, {.n = q->seq}, {.n = n_keys}};
	bool fits = true;

	if (!mask)
		return 0;
	if (mask->shape.rank < 2 || mask->shape.rank > 4)
		fits = false;
	for (unsigned int d = 0; fits && d < mask->shape.rank; d++) {
		const unsigned int to = 4 - mask->shape.rank + d;
		const struct dim dim = shape_get(&mask->shape, d);

		if (to == 3)
			fits = !dim.is_count && dim.n <= n_keys;
		else
			fits = dim_is(dim, 1) || dim_equal(dim, full[to]);
	}
	if (fits)
		return 0;
	return op_call_refuse(call,
			      "input \"%s\" has shape %s, expected one that broadcasts to %u heads "
			      "of %u queries and at most %u keys",
			      mask->name, SHAPE_TEXT(&mask->shape), q->n, q->seq, n_keys);
}

static int attention_shapes(struct op_call *call, struct heads *q, struct heads *k, struct heads *v,
			    uint32_t *ret_past)
{
	const struct op_tensor *past_k = op_call_input(call, ATTENTION_PAST_K);
	const struct op_tensor *past_v = op_call_input(call, ATTENTION_PAST_V);
	int64_t q_heads, kv_heads;
	int r;

	r = op_call_int(call, "q_num_heads", 0, OP_MAX_DIM, 0, &q_heads);
	if (!r)
		r = op_call_int(call, "kv_num_heads", 0, OP_MAX_DIM, 0, &kv_heads);
	if (!r)
		r = read_heads(call, ATTENTION_Q, "q_num_heads", q_heads, q);
	if (!r)
		r = read_heads(call, ATTENTION_K, "kv_num_heads", kv_heads, k);
	if (!r)
		r = read_heads(call, ATTENTION_V, "kv_num_heads", kv_heads, v);
	if (r)
		return r;
	if (call->in[1]->shape.rank != call->in[0]->shape.rank ||
	    call->in[2]->shape.rank != call->in[0]->shape.rank || !dim_equal(q->batch, k->batch) ||
	    !dim_equal(k->batch, v->batch) || q->size != k->size || k->n != v->n ||
	    k->seq != v->seq || k->n == 0 || q->n % k->n != 0)
		return op_call_refuse(
			call,
			"inputs \"%s\" %s, \"%s\" %s and \"%s\" %s do not fit together: %u heads "
			"of %u queries by %u, %u of %u keys by %u, %u of %u values",
			call->in[0]->name, SHAPE_TEXT(&call->in[0]->shape), call->in[1]->name,
			SHAPE_TEXT(&call->in[1]->shape), call->in[2]->name,
			SHAPE_TEXT(&call->in[2]->shape), q->n, q->seq, q->size, k->n, k->seq,
			k->size, v->n, v->seq);
	if (!past_k != !past_v)
		return op_call_refuse(call,
				      "input past_key or past_value is absent, expected both or "
				      "neither");
	if (!past_k)
		return 0;
	*ret_past = past_k->shape.rank == 4 ? past_k->shape.dims[2] : 0;
	r = check_shape(call, ATTENTION_PAST_K, 4,
			(struct dim[]){k->batch, {.n = k->n}, {.n = *ret_past}, {.n = k->size}});
	if (!r)
		r = check_shape(
			call, ATTENTION_PAST_V, 4,
			(struct dim[]){v->batch, {.n = v->n}, {.n = *ret_past}, {.n = v->size}});
	return r;
}

static int attention_infer(struct op_call *call)
{
	struct heads q, k, v;
	int64_t qk_mode, precision;
	uint32_t past = 0, total;
	float scale, softcap;
	bool causal;
	int r;

	r = attention_shapes(call, &q, &k, &v, &past);
	if (!r)
		r = op_call_bool(call, "is_causal", false, &causal);
	if (!r)
		r = op_call_int(call, "qk_matmul_output_mode", 0, 3, 0, &qk_mode);
	/* float32, float16, float64, bfloat16 */
	if (!r)
		r = op_call_int(call, "softmax_precision", 1, 16, 1, &precision);
	if (!r)
		r = op_call_float(call, "softcap", 0, &softcap);
	if (!r)
		r = op_call_float(call, "scale", 1 / sqrtf((float)q.size), &scale);
	if (r)
		return r;
	if ((uint64_t)past + k.seq > OP_MAX_DIM)
		return op_call_refuse(call, "%u past keys and %u new keys are too many", past,
				      k.seq);
	total = past + k.seq;
	r = check_mask(call, &q, total);
	if (!r && op_call_input(call, ATTENTION_VALID))
		r = check_shape(call, ATTENTION_VALID, 1, &q.batch);
	if (r)
		return r;
	call->params.attention.q_heads = q.n;
	call->params.attention.kv_heads = k.n;
	call->params.attention.scale = scale;
	call->params.attention.softcap = softcap > 0 ? softcap : 0;
	call->params.attention.causal = causal;
	call->params.attention.qk_mode = (uint8_t)qk_mode;

	const struct shape outputs[4] = {
		call->in[0]->shape.rank == 4
			? (struct shape){.rank = 4, .dims = {q.batch.n, q.n, q.seq, v.size}}
			: (struct shape){.rank = 3, .dims = {q.batch.n, q.seq, q.n * v.size}},
		{.rank = 4, .dims = {q.batch.n, k.n, total, k.size}},
		{.rank = 4, .dims = {q.batch.n, v.n, total, v.size}},
		{.rank = 4, .dims = {q.batch.n, q.n, q.seq, total}},
	};

	for (unsigned int i = 0; i < call->n_out; i++) {
		call->out_shape[i] = outputs[i];
		call->out_shape[i].dynamic = q.batch.is_count;
	}
	return 0;
}

static void attention_cost(const struct op_call *call, struct cost *ret)
{
	const struct shape *q = &call->in[0]->shape, *k = &call->in[1]->shape;
	uint64_t keys = k->rank == 4 ? k->dims[2] : k->dims[1];

	if (op_call_input(call, ATTENTION_PAST_K))
		keys += call->in[ATTENTION_PAST_K]->shape.dims[2];
	/* One product with the keys and one with the values. */
	cost_elems(ret, q, 2 * keys);
	cost_elems(ret, &call->out_shape[0], 2 * keys);
	cost_tensors(call, ret);
}

/* Past and present keys and values together, if they are not outputs. */
static uint64_t attention_work(const struct op_call *call)
{
	const struct shape *in[2] = {&call->in[1]->shape, &call->in[2]->shape};
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < 2; i++) {
		uint64_t one = shape_elems(in[i], in[i]->dims[0]);

		if (op_call_input(call, ATTENTION_PAST_K + i))
			one += shape_elems(&call->in[ATTENTION_PAST_K + i]->shape, in[i]->dims[0]);
		bytes += round_up(one * sizeof(float), OP_WORK_ALIGN);
	}
	return bytes;
}

static const struct op_attr rotary_attrs[] = {
	{"interleaved", RBK_ATTR_INT, false},
	{"num_heads", RBK_ATTR_INT, false},
	{"rotary_embedding_dim", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr attention_attrs[] = {
	{"is_causal", RBK_ATTR_INT, false},         {"kv_num_heads", RBK_ATTR_INT, false},
	{"q_num_heads", RBK_ATTR_INT, false},       {"qk_matmul_output_mode", RBK_ATTR_INT, false},
	{"scale", RBK_ATTR_FLOAT, false},           {"softcap", RBK_ATTR_FLOAT, false},
	{"softmax_precision", RBK_ATTR_INT, false}, {0},
};

const struct op op_rotary = {
	.kind = OP_ROTARY,
	.family = OP_FAMILY_ELEMENTWISE,
	.name = "RotaryEmbedding",
	.opset = 23,
	.min_in = 3,
	.max_in = 4,
	.min_out = 1,
	.max_out = 1,
	.classes = {{'T', OP_FLOATS, OP_FLOATS},
		    {'I', OP_TYPE(RBK_DTYPE_I64), OP_TYPE(RBK_DTYPE_I64)}},
	.in_classes = "TTTI",
	.out_classes = "T",
	.data_independent = true,
	.splits_rows = true,
	.is_like_first = true,
	.attrs = rotary_attrs,
	.infer = rotary_infer,
	.cost = rotary_cost,
};

/*
 * Run time depends on data: lengths limit the number of keys, and some values need a second pass
 * over a row.
 */
const struct op op_attention = {
	.kind = OP_ATTENTION,
	.family = OP_FAMILY_MATMUL,
	.name = "Attention",
	.opset = 24,
	.min_in = 3,
	.max_in = 7,
	.min_out = 1,
	.max_out = 4,
	.classes = {{'T', OP_FLOATS, OP_FLOATS},
		    {'M', OP_FLOATS | OP_BOOL, OP_FLOATS | OP_BOOL},
		    {'I', OP_TYPE(RBK_DTYPE_I64), OP_TYPE(RBK_DTYPE_I64)}},
	.in_classes = "TTTMTTI",
	.out_classes = "T",
	.splits_rows = true,
	.attrs = attention_attrs,
	.infer = attention_infer,
	.cost = attention_cost,
	.work = attention_work,
};
