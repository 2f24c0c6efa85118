/* SPDX-License-Identifier: MIT */
/*
 * Random plans of the operators that only move elements
 *
 * Dimensions are small, except for one now and then. Ranks reach eight, where nearly all dimensions
 * are 1.
 */
#include "reference/random-moves.h"

#include <stdio.h>
#include <string.h>

struct random {
	uint64_t *state;
	struct describe *d;
	enum rbk_dtype dtype;
	bool dynamic;
	unsigned int rank;
	uint32_t dims[RBK_MAX_RANK]; /* dimensions of the input; the count is 1 */
};

static int64_t pick(struct random *r, int64_t from, int64_t to)
{
	return from + (int64_t)(reference_random(r->state) % (uint64_t)(to - from + 1));
}

static void pick_shape(struct random *r, unsigned int max_rank)
{
	const unsigned int large = (unsigned int)pick(r, 0, 7);

	r->rank = (unsigned int)pick(r, 1, max_rank);
	for (unsigned int i = 0; i < r->rank; i++) {
		r->dims[i] = (uint32_t)pick(r, 1, r->rank > 4 ? 3 : 7);
		if (i == large)
			r->dims[i] = (uint32_t)pick(r, 1, r->rank == 1 ? 5000 : 200);
	}
	if (r->dynamic)
		r->dims[0] = 1;
}

static void add_input(struct random *r, const char *name, const uint32_t *dims)
{
	uint32_t all[RBK_MAX_RANK];

	memcpy(all, dims, r->rank * sizeof(*dims));
	if (r->dynamic)
		all[0] = DESCRIBE_COUNT;
	describe_tensor(r->d, name, RBK_TENSOR_INPUT, r->dtype, 0, r->rank, all);
}

static void add_node(struct random *r, const char *op, const char *in)
{
	describe_inferred(r->d, "y", RBK_TENSOR_OUTPUT, r->dtype);
	describe_node(r->d, op, "node", in, "y");
}

/* Return an axis other than the count's; the shape has one. */
static unsigned int pick_axis(struct random *r)
{
	if (r->dynamic && r->rank == 1)
		r->dims[r->rank++] = (uint32_t)pick(r, 1, 900);
	return (unsigned int)pick(r, r->dynamic, r->rank - 1);
}

static void transpose(struct random *r)
{
	int64_t perm[RBK_MAX_RANK];

	pick_shape(r, 6);
	add_input(r, "x", r->dims);
	add_node(r, "Transpose", "x");
	for (unsigned int i = 0; i < r->rank; i++)
		perm[i] = i;
	for (unsigned int i = r->rank - 1; i > r->dynamic; i--) {
		const unsigned int j = (unsigned int)pick(r, r->dynamic, i);
		const int64_t t = perm[i];

		perm[i] = perm[j];
		perm[j] = t;
	}
	describe_attr_ints(r->d, "perm", r->rank, perm);
}

static void slice(struct random *r)
{
	int64_t starts[RBK_MAX_RANK], ends[RBK_MAX_RANK], axes[RBK_MAX_RANK], steps[RBK_MAX_RANK];
	unsigned int n = 0;

	pick_shape(r, 6);
	add_input(r, "x", r->dims);
	add_node(r, "Slice", "x");
	for (unsigned int i = r->dynamic; i < r->rank; i++) {
		const int64_t dim = r->dims[i], first = pick(r, 0, dim - 1);
		const bool backwards = pick(r, 0, 1);
		const int64_t last = backwards ? pick(r, 0, first) : pick(r, first, dim - 1);

		if (pick(r, 0, 3) == 0)
			continue;
		axes[n] = pick(r, 0, 1) ? i : (int64_t)i - r->rank;
		starts[n] = pick(r, 0, 1) ? first : first - dim;
		ends[n] = backwards ? (last == 0 ? -dim - 1 : last - 1) : last + 1;
		steps[n] = pick(r, 1, 4) * (backwards ? -1 : 1);
		if (pick(r, 0, 9) == 0)
			steps[n] = backwards ? INT64_MIN : INT64_MAX;
		n++;
	}
	describe_attr_ints(r->d, "starts", n, starts);
	describe_attr_ints(r->d, "ends", n, ends);
	describe_attr_ints(r->d, "axes", n, axes);
	describe_attr_ints(r->d, "steps", n, steps);
}

static void concat(struct random *r)
{
	const unsigned int n = pick(r, 0, 5) ? (unsigned int)pick(r, 1, 4) : 32;
	char in[OP_MAX_INPUTS * 4] = "";
	unsigned int axis;

	pick_shape(r, 5);
	axis = pick_axis(r);
	for (unsigned int i = 0; i < n; i++) {
		char name[8];

		snprintf(name, sizeof(name), "x%u", i);
		r->dims[axis] = (uint32_t)pick(r, 1, pick(r, 0, 1) ? 4 : 90);
		add_input(r, name, r->dims);
		strcat(strcat(in, i ? "," : ""), name);
	}
	add_node(r, "Concat", in);
	describe_attr_int(r->d, "axis", pick(r, 0, 1) ? axis : (int64_t)axis - r->rank);
}

static void split(struct random *r)
{
	const unsigned int n = pick(r, 0, 5) ? (unsigned int)pick(r, 1, 4) : 32;
	int64_t sizes[OP_MAX_OUTPUTS], sum = 0;
	char out[OP_MAX_OUTPUTS * 4] = "";
	unsigned int axis;

	pick_shape(r, 5);
	axis = pick_axis(r);
	for (unsigned int i = 0; i < n; i++)
		sum += sizes[i] = pick(r, 1, pick(r, 0, 1) ? 4 : 90);
	r->dims[axis] = (uint32_t)sum;
	add_input(r, "x", r->dims);
	for (unsigned int i = 0; i < n; i++) {
		char name[8];

		snprintf(name, sizeof(name), "y%u", i);
		describe_inferred(r->d, name, RBK_TENSOR_OUTPUT, r->dtype);
		strcat(strcat(out, i ? "," : ""), name);
	}
	describe_node(r->d, "Split", "node", "x", out);
	describe_attr_int(r->d, "axis", axis);
	describe_attr_ints(r->d, "split", n, sizes);
}

static void expand(struct random *r)
{
	int64_t shape[RBK_MAX_RANK];
	const unsigned int more = r->dynamic ? 0 : (unsigned int)pick(r, 0, 2);

	pick_shape(r, 6);
	for (unsigned int i = r->dynamic; i < r->rank; i++)
		r->dims[i] = pick(r, 0, 1) ? r->dims[i] : 1;
	add_input(r, "x", r->dims);
	add_node(r, "Expand", "x");
	for (unsigned int i = 0; i < more; i++)
		shape[i] = pick(r, 1, 4);
	for (unsigned int i = 0; i < r->rank; i++)
		shape[more + i] = i == 0 && r->dynamic                  ? 1
				  : r->dims[i] > 1                      ? pick(r, 0, 1) * r->dims[i]
				  : r->rank + more > 4 || pick(r, 0, 1) ? pick(r, 1, 3)
									: pick(r, 1, 70);
	for (unsigned int i = 0; i < r->rank; i++)
		shape[more + i] = shape[more + i] ? shape[more + i] : 1;
	describe_attr_ints(r->d, "shape", more + r->rank, shape);
}

static void tile(struct random *r)
{
	int64_t repeats[RBK_MAX_RANK];

	pick_shape(r, pick(r, 0, 3) ? 4 : 8);
	for (unsigned int i = 0; r->rank > 5 && i < r->rank; i++)
		r->dims[i] = r->dims[i] > 2 ? 2 : r->dims[i];
	add_input(r, "x", r->dims);
	add_node(r, "Tile", "x");
	for (unsigned int i = 0; i < r->rank; i++)
		repeats[i] = i == 0 && r->dynamic ? 1 : pick(r, 1, r->rank > 4 ? 2 : 4);
	describe_attr_ints(r->d, "repeats", r->rank, repeats);
}

static void pad(struct random *r)
{
	static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
	int64_t pads[2 * RBK_MAX_RANK];

	pick_shape(r, 5);
	add_input(r, "x", r->dims);
	add_node(r, "Pad", "x");
	for (unsigned int i = 0; i < r->rank; i++) {
		const int64_t dim = r->dims[i];

		for (unsigned int side = 0; side < 2; side++)
			pads[side * r->rank + i] =
				pick(r, 0, 1) && !(i == 0 && r->dynamic)
					? pick(r, -(dim - 1) / 2, pick(r, 0, 3) ? dim / 2 : 9)
					: 0;
	}
	describe_attr_ints(r->d, "pads", 2 * r->rank, pads);
	describe_attr_string(r->d, "mode", modes[pick(r, 0, 3)]);
	if (r->dtype == RBK_DTYPE_F32 || r->dtype == RBK_DTYPE_F16 || r->dtype == RBK_DTYPE_F64 ||
	    r->dtype == RBK_DTYPE_BF16)
		describe_attr_float(r->d, "value", 1.25f);
	else if (pick(r, 0, 1))
		describe_attr_int(r->d, "int_value", -123456789012345678);
}

struct plan *random_moves(uint64_t *state, unsigned int round, uint32_t max_count)
{
	static void (*const describers[RANDOM_MOVES_OPERATORS])(struct random * r) = {
		transpose, slice, concat, split, expand, tile, pad};
	static const enum rbk_dtype types[] = {RBK_DTYPE_F32, RBK_DTYPE_U8,   RBK_DTYPE_F16,
					       RBK_DTYPE_I64, RBK_DTYPE_BOOL, RBK_DTYPE_I32,
					       RBK_DTYPE_I8,  RBK_DTYPE_BF16, RBK_DTYPE_F64};
	const unsigned int which = round % RANDOM_MOVES_OPERATORS;
	const unsigned int rest = round / RANDOM_MOVES_OPERATORS;
	struct random r = {.state = state,
			   .dtype = types[rest / 2 % (sizeof(types) / sizeof(types[0]))],
			   .dynamic = rest & 1};

	r.d = describe_new("moves", r.dynamic ? max_count : 1);
	describers[which](&r);
	return reference_plan(r.d, NULL);
}
