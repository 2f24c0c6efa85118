/* SPDX-License-Identifier: MIT */
/* See random-fused.h. */
#include "reference/random-fused.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 8 };

struct random {
	uint64_t *state;
	struct describe *d;
	bool dynamic;
	unsigned int rank; /* rank of the result */
	uint32_t dims[RBK_MAX_RANK];
	unsigned int n_made;
	char last[NAME_BYTES]; /* name of the result so far */
};

static uint32_t pick(struct random *r, uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(r->state) % (to - from + 1));
}

/* Add the next node's output, which is scratch unless it @is_last. */
static const char *next(struct random *r, bool is_last)
{
	snprintf(r->last, sizeof(r->last), "t%u", r->n_made++);
	describe_inferred(r->d, r->last, is_last ? RBK_TENSOR_OUTPUT : RBK_TENSOR_SCRATCH,
			  RBK_DTYPE_F32);
	return r->last;
}

static void matmul(struct random *r)
{
	const uint32_t k = pick(r, 1, 40), m = pick(r, 1, 20),
		       n = pick(r, 0, 3) ? pick(r, 1, 140) : 1;
	const uint32_t first = r->dynamic ? DESCRIBE_COUNT : pick(r, 1, 4);

	r->rank = pick(r, 2, 4);
	memcpy(r->dims, (uint32_t[]){first, r->rank == 3 ? m : 2, m}, 3 * sizeof(r->dims[0]));
	r->dims[r->rank - 1] = k;
	describe_input(r->d, "x", r->rank, r->dims);
	r->dims[r->rank - 1] = n;
	/* One matrix for the whole batch, or one per batch element. */
	if (r->rank == 2 || pick(r, 0, 1))
		describe_input(r->d, "w", DESCRIBE_DIMS(k, n));
	else if (r->rank == 3)
		describe_input(r->d, "w", DESCRIBE_DIMS(first, k, n));
	else
		describe_input(r->d, "w", DESCRIBE_DIMS(2, k, n));
	describe_node(r->d, "MatMul", "", "x,w", next(r, false));
}

/* Add an input that broadcasts to the result, or has its size, as either operand. */
static void add(struct random *r)
{
	const uint32_t n = pick(r, 0, 3) ? r->dims[r->rank - 1] : 1;
	const bool is_whole = pick(r, 0, 2) == 0;
	const unsigned int rank = is_whole ? r->rank : pick(r, 0, 4) ? pick(r, 1, r->rank) : 0;
	uint32_t dims[RBK_MAX_RANK];
	char in[2 * NAME_BYTES];

	for (unsigned int i = 0; i < rank; i++)
		dims[i] = is_whole ? r->dims[i] : i + 1 == rank ? n : 1;
	describe_input(r->d, "b", rank, dims);
	snprintf(in, sizeof(in), pick(r, 0, 1) ? "%s,b" : "b,%s", r->last);
	describe_node(r->d, "Add", "", in, next(r, false));
}

static void gemm(struct random *r)
{
	const uint32_t k = pick(r, 1, 40), n = pick(r, 1, 140), bias = pick(r, 0, 2);

	r->rank = 2;
	r->dims[0] = r->dynamic ? DESCRIBE_COUNT : pick(r, 1, 70);
	r->dims[1] = n;
	describe_input(r->d, "x", DESCRIBE_DIMS(r->dims[0], k));
	describe_input(r->d, "w", DESCRIBE_DIMS(n, k));
	if (bias == 1)
		describe_input(r->d, "b", DESCRIBE_DIMS(n));
	else if (bias == 2)
		describe_input(r->d, "b", DESCRIBE_DIMS(r->dims[0], 1));
	describe_node(r->d, "Gemm", "", bias ? "x,w,b" : "x,w", next(r, false));
	describe_attr_int(r->d, "transB", 1);
	describe_attr_float(r->d, "alpha", pick(r, 0, 1) ? 1 : 0.75f);
}

static void conv(struct random *r, const char *op)
{
	static const uint32_t groups[] = {1, 1, 2, 4};
	const bool is_transposed = !strcmp(op, "ConvTranspose");
	const uint32_t group = groups[pick(r, 0, 3)], per_group = pick(r, 1, 5);
	const uint32_t per_filter = pick(r, 0, 3) ? pick(r, 1, 20) : pick(r, 30, 70);
	const uint32_t channels = group * per_group, filters = group * per_filter;
	const unsigned int n = pick(r, 0, 3) ? 2 : pick(r, 1, 3);
	uint32_t x[RBK_MAX_RANK], w[RBK_MAX_RANK];
	const bool has_bias = pick(r, 0, 1), is_point = pick(r, 0, 3) == 0;

	r->rank = 2 + n;
	r->dims[0] = x[0] = r->dynamic ? DESCRIBE_COUNT : pick(r, 1, 3);
	x[1] = channels;
	r->dims[1] = filters;
	w[0] = is_transposed ? channels : filters;
	w[1] = is_transposed ? per_filter : per_group;
	for (unsigned int i = 0; i < n; i++) {
		w[2 + i] = is_point ? 1 : pick(r, 1, 3);
		x[2 + i] = w[2 + i] + pick(r, 0, n == 3 ? 3 : 11);
		r->dims[2 + i] = is_transposed ? x[2 + i] + w[2 + i] - 1 : x[2 + i] - w[2 + i] + 1;
	}
	describe_input(r->d, "x", r->rank, x);
	describe_input(r->d, "w", r->rank, w);
	if (has_bias)
		describe_input(r->d, "b", 1, &filters);
	describe_node(r->d, op, "", has_bias ? "x,w,b" : "x,w", next(r, false));
	describe_attr_int(r->d, "group", group);
}

/* Apply an activation to the result. */
static void activate(struct random *r, unsigned int which)
{
	static const char *const ops[] = {
		"Relu",    "LeakyRelu",   "Clip",      "Tanh",  "Elu",  "Gelu",  "Gelu",
		"Sigmoid", "HardSigmoid", "HardSwish", "Swish", "Mish", "Shrink"};
	char in[NAME_BYTES];

	memcpy(in, r->last, sizeof(in));
	describe_node(r->d, ops[which], "", in, next(r, true));
	if (which == 1 || which == 4 || which == 8 || which == 10)
		describe_attr_float(r->d, "alpha", which == 8 ? 0.3f : 0.7f);
	if (which == 2) {
		describe_attr_float(r->d, "min", -0.5f);
		describe_attr_float(r->d, "max", 1.25f);
	}
	/* Without a step: rounding could move an element across a step. */
	if (which == 12) {
		describe_attr_float(r->d, "lambd", 0.4f);
		describe_attr_float(r->d, "bias", 0.4f);
	}
	if (which == 6)
		describe_attr_string(r->d, "approximate", "tanh");
}

struct plan *random_fused(uint64_t *state, unsigned int round, uint32_t max_count, bool fuses)
{
	struct random r = {.state = state, .dynamic = round / RANDOM_FUSED_ROUNDS % 2};
	const unsigned int what = round % 4, which = round / 4 % 13;

	r.d = describe_new("fused", r.dynamic ? max_count : 1);
	if (!fuses)
		describe_disable_fusion(r.d);
	if (what == 0)
		matmul(&r);
	else if (what == 1)
		gemm(&r);
	else
		conv(&r, what == 2 ? "Conv" : "ConvTranspose");
	if (what == 0 && pick(&r, 0, 3))
		add(&r);
	activate(&r, which);
	if (pick(&r, 0, 3) == 0)
		describe_halve(r.d);
	return reference_plan(r.d, NULL);
}

void random_fused_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		       uint64_t *state)
{
	static const float special[] = {INFINITY, -INFINITY, NAN, -0.0f};
	static const uint16_t special_half[] = {0x7c00, 0xfc00, 0x7e00, 0x8000};

	for (unsigned int i = 0; i < 3; i++) {
		const bool is_half = plan->tensors[plan->bindings[0].tensor].dtype == RBK_DTYPE_F16;
		const size_t n = buffers->bytes[0] / (is_half ? 2 : sizeof(float));
		const uint64_t at = reference_random(state) % n,
			       which = reference_random(state) % 4;

		if (is_half)
			((uint16_t *)buffers->bindings[0])[at] = special_half[which];
		else
			((float *)buffers->bindings[0])[at] = special[which];
	}
}
