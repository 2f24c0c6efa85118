/* SPDX-License-Identifier: MIT */
/* See random-windows.h. */
#include "reference/random-windows.h"

#include <string.h>

struct random {
	uint64_t *state;
	struct describe *d;
	bool dynamic;

	unsigned int n;              /* spatial dimensions */
	uint32_t dims[RBK_MAX_RANK]; /* dimensions of the input */
	int64_t kernel[OP_MAX_SPATIAL];
	int64_t dilations[OP_MAX_SPATIAL];
};

static uint32_t pick(struct random *r, uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(r->state) % (to - from + 1));
}

static void input(struct random *r, uint8_t dtype, const char *name, unsigned int rank,
		  const uint32_t *dims)
{
	describe_tensor(r->d, name, RBK_TENSOR_INPUT, dtype, 0, rank, dims);
}

/* Half of the time the weights are constants. */
static void weights(struct random *r, const uint32_t *dims)
{
	if (pick(r, 0, 1))
		describe_constant(r->d, "w", RBK_REF(REFERENCE_ARENA, 64), 2 + r->n, dims);
	else
		input(r, RBK_DTYPE_F32, "w", 2 + r->n, dims);
}

/* Choose a kernel, and an input of @channels that the kernel fits into. */
static void pick_sizes(struct random *r, uint32_t channels)
{
	r->n = pick(r, 1, 3);
	r->dims[0] = r->dynamic ? DESCRIBE_COUNT : pick(r, 1, 3);
	r->dims[1] = channels;
	for (unsigned int i = 0; i < r->n; i++) {
		const bool last = i + 1 == r->n;

		r->kernel[i] = pick(r, 1, 5);
		r->dilations[i] = pick(r, 0, 2) ? 1 : pick(r, 2, 3);
		r->dims[2 + i] =
			(uint32_t)((r->kernel[i] - 1) * r->dilations[i]) + pick(r, 1,
										last        ? 40
										: r->n == 3 ? 5
											    : 9);
	}
}

/* Add strides, dilations and padding up to @most. */
static void window_attrs(struct random *r, uint32_t most)
{
	static const char *const same[] = {"SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"};
	int64_t strides[OP_MAX_SPATIAL], pads[2 * OP_MAX_SPATIAL];
	const uint32_t how = pick(r, 0, 7);

	for (unsigned int i = 0; i < r->n; i++)
		strides[i] = pick(r, 1, 3);
	for (unsigned int i = 0; i < 2 * r->n; i++)
		pads[i] = pick(r, 0, most);
	describe_attr_ints(r->d, "strides", r->n, strides);
	describe_attr_ints(r->d, "dilations", r->n, r->dilations);
	if (how < 4)
		describe_attr_string(r->d, "auto_pad", same[how]);
	if (how >= 3)
		describe_attr_ints(r->d, "pads", 2 * r->n, pads);
}

static void conv(struct random *r, const char *op)
{
	const uint32_t group = pick(r, 0, 1) ? 1 : pick(r, 1, 4);
	const uint32_t per_group = pick(r, 1, 4), filters = group * pick(r, 1, 18);
	const bool bias = pick(r, 0, 1);
	uint32_t dims[2 + OP_MAX_SPATIAL] = {filters, per_group};

	pick_sizes(r, group * per_group);
	for (unsigned int i = 0; i < r->n; i++)
		dims[2 + i] = (uint32_t)r->kernel[i];
	input(r, RBK_DTYPE_F32, "x", 2 + r->n, r->dims);
	weights(r, dims);
	if (bias)
		input(r, RBK_DTYPE_F32, "b", 1, &filters);
	describe_inferred(r->d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(r->d, op, "", bias ? "x,w,b" : "x,w", "y");
	describe_attr_int(r->d, "group", group);
	window_attrs(r, 5);
}

static void conv_transpose(struct random *r, const char *op)
{
	const uint32_t group = pick(r, 0, 1) ? 1 : pick(r, 1, 3);
	const uint32_t channels = group * pick(r, 1, 5), per_group = pick(r, 1, 15);
	const uint32_t filters = group * per_group, how = pick(r, 0, 7);
	const bool bias = pick(r, 0, 1);
	uint32_t dims[2 + OP_MAX_SPATIAL] = {channels, per_group};
	int64_t strides[OP_MAX_SPATIAL], pads[2 * OP_MAX_SPATIAL], more[OP_MAX_SPATIAL];
	int64_t sizes[OP_MAX_SPATIAL];

	pick_sizes(r, channels);
	for (unsigned int i = 0; i < r->n; i++) {
		const int64_t extent = (r->kernel[i] - 1) * r->dilations[i] + 1;

		r->dims[2 + i] = pick(r, 1, r->n == 3 ? 4 : 12);
		dims[2 + i] = (uint32_t)r->kernel[i];
		strides[i] = pick(r, 1, 4);
		more[i] = pick(r, 0, 3);
		sizes[i] = pick(r, 1, (uint32_t)(r->dims[2 + i] * strides[i] + extent + 3));
		/*
		 * Padding is less than half of the extent, so that no spread element is cropped
		 * away entirely.
		 */
		pads[i] = pick(r, 0, (uint32_t)(extent - 1) / 2);
		pads[r->n + i] = pick(r, 0, (uint32_t)(extent - 1) / 2);
	}
	input(r, RBK_DTYPE_F32, "x", 2 + r->n, r->dims);
	weights(r, dims);
	if (bias)
		input(r, RBK_DTYPE_F32, "b", 1, &filters);
	describe_inferred(r->d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(r->d, op, "", bias ? "x,w,b" : "x,w", "y");
	describe_attr_int(r->d, "group", group);
	describe_attr_ints(r->d, "strides", r->n, strides);
	describe_attr_ints(r->d, "dilations", r->n, r->dilations);
	if (how == 0)
		describe_attr_string(r->d, "auto_pad", "SAME_UPPER");
	else if (how == 1)
		describe_attr_string(r->d, "auto_pad", "SAME_LOWER");
	else if (how > 3)
		describe_attr_ints(r->d, "pads", 2 * r->n, pads);
	if (how == 2 || how == 4)
		describe_attr_ints(r->d, "output_shape", r->n, sizes);
	if (how & 1)
		describe_attr_ints(r->d, "output_padding", r->n, more);
}

static void pool(struct random *r, const char *op)
{
	const bool is_max = !strcmp(op, "MaxPool");
	const bool indices = is_max && pick(r, 0, 1);
	const uint32_t bytes = is_max ? pick(r, 0, 5) : 0;
	const uint8_t dtype = bytes == 1 ? RBK_DTYPE_I8 : bytes == 2 ? RBK_DTYPE_U8 : RBK_DTYPE_F32;

	pick_sizes(r, pick(r, 1, 4));
	input(r, dtype, "x", 2 + r->n, r->dims);
	describe_inferred(r->d, "y", RBK_TENSOR_OUTPUT, dtype);
	if (indices)
		describe_inferred(r->d, "i", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
	describe_node(r->d, op, "", "x", indices ? "y,i" : "y");
	describe_attr_ints(r->d, "kernel_shape", r->n, r->kernel);
	/* Padding may exceed the window, so that a window may lie in the padding entirely. */
	window_attrs(r, 7);
	describe_attr_int(r->d, "ceil_mode", pick(r, 0, 1));
	if (is_max)
		describe_attr_int(r->d, "storage_order", pick(r, 0, 1));
	else if (!strcmp(op, "AveragePool"))
		describe_attr_int(r->d, "count_include_pad", pick(r, 0, 1));
	else
		describe_attr_int(r->d, "p", pick(r, 1, 5));
}

/*
 * Choose the channels and pixels for which kernels with channels last have tiles: few channels in
 * each of many groups, or many channels in each of few groups; one group cut into strips; one
 * channel per group; and windows close to each other.
 */
static void picture(struct random *r, const char *op, unsigned int form)
{
	const bool is_conv = !strcmp(op, "Conv");
	const bool is_thin = form == 2 || (form == 0 && pick(r, 0, 1));
	const uint32_t group = form == 2   ? (pick(r, 0, 2) ? pick(r, 1, 80) : 16 * pick(r, 1, 4))
			       : is_thin   ? pick(r, 1, 50)
			       : form == 1 ? 1
					   : pick(r, 1, 3);
	const uint32_t per_group = form == 2   ? 1
				   : is_thin   ? pick(r, 1, 4)
				   : form == 1 ? pick(r, 1, pick(r, 0, 3) ? 18 : 60)
					       : pick(r, 1, 30);
	const uint32_t filters = is_thin     ? group * per_group
				 : form == 1 ? pick(r, 1, 34)
					     : group * pick(r, 1, 50);
	const bool bias = pick(r, 0, 1);
	/* Square kernels of sides 2, 3 and 5; many of them have specialised code. */
	const uint32_t side = pick(r, 0, 1) ? (const uint32_t[]){2, 3, 3, 5}[pick(r, 0, 3)] : 0;
	const uint32_t stride = pick(r, 1, 3);
	uint32_t dims[2 + OP_MAX_SPATIAL] = {filters, per_group};
	int64_t strides[OP_MAX_SPATIAL], pads[2 * OP_MAX_SPATIAL];

	r->n = side || pick(r, 0, 3) ? 2 : 3;
	r->dims[0] = r->dynamic ? DESCRIBE_COUNT : pick(r, 1, 2);
	r->dims[1] = group * per_group;
	for (unsigned int i = 0; i < r->n; i++) {
		const bool is_row = i + 1 == r->n;

		r->kernel[i] = side                  ? side
			       : r->n == 3 && i == 0 ? pick(r, 1, 3)
			       : is_row && form == 2 ? 3 + 2 * pick(r, 0, 1)
						     : pick(r, 1, 5);
		r->dilations[i] = side || form == 2 ? 1 : pick(r, 1, 2);
		strides[i] = side ? stride : pick(r, 1, form == 3 ? 2 : 3);
		pads[i] = pads[r->n + i] = pick(r, 0, 1) ? pick(r, 0, (uint32_t)r->kernel[i]) : 0;
		r->dims[2 + i] =
			(uint32_t)((r->kernel[i] - 1) * r->dilations[i]) + pick(r, 1,
										is_row      ? 30
										: r->n == 3 ? 3
											    : 7);
		dims[2 + i] = (uint32_t)r->kernel[i];
	}
	input(r, RBK_DTYPE_F32, "x", 2 + r->n, r->dims);
	if (is_conv)
		describe_constant(r->d, "w", RBK_REF(REFERENCE_ARENA, 0), 2 + r->n, dims);
	if (is_conv && bias)
		input(r, RBK_DTYPE_F32, "b", 1, &filters);
	describe_inferred(r->d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(r->d, op, "", !is_conv ? "x" : bias ? "x,w,b" : "x,w", "y");
	if (is_conv)
		describe_attr_int(r->d, "group", group);
	else
		describe_attr_ints(r->d, "kernel_shape", r->n, r->kernel);
	if (!strcmp(op, "AveragePool"))
		describe_attr_int(r->d, "count_include_pad", bias);
	else if (!strcmp(op, "LpPool"))
		describe_attr_int(r->d, "p", pick(r, 1, 4));
	describe_attr_ints(r->d, "strides", r->n, strides);
	describe_attr_ints(r->d, "dilations", r->n, r->dilations);
	describe_attr_ints(r->d, "pads", 2 * r->n, pads);
}

struct plan *random_picture(uint64_t *state, unsigned int round, uint32_t max_count,
			    struct exec_arena *arena)
{
	static const char *const ops[] = {"Conv", "Conv", "MaxPool", "AveragePool", "LpPool"};
	struct random r = {.state = state, .dynamic = round & 1};

	r.d = describe_new("picture", r.dynamic ? max_count : 1);
	picture(&r, ops[round / 8 % 5], round / 2 % 4);
	return reference_plan(r.d, arena);
}

struct plan *random_window(uint64_t *state, unsigned int round, uint32_t max_count,
			   struct exec_arena *(*arena_of)(enum rbk_dtype floats))
{
	static const struct {
		const char *op;
		void (*describe)(struct random *r, const char *op);
	} operators[RANDOM_WINDOWS_OPERATORS] = {
		{"Conv", conv},
		{"MaxPool", pool},
		{"AveragePool", pool},
		{"MaxPool", pool},
		{"ConvTranspose", conv_transpose},
		{"LpPool", pool},
		{"AveragePool", pool},
	};
	const unsigned int which = round % RANDOM_WINDOWS_OPERATORS;
	struct random r = {.state = state, .dynamic = round / RANDOM_WINDOWS_OPERATORS & 1};
	enum rbk_dtype floats = RBK_DTYPE_F32;

	r.d = describe_new(operators[which].op, r.dynamic ? max_count : 1);
	operators[which].describe(&r, operators[which].op);
	if (pick(&r, 0, 3) == 0)
		floats = RBK_DTYPE_F16;
	else if (pick(&r, 0, 3) == 0)
		floats = RBK_DTYPE_F64;
	describe_floats(r.d, floats);
	return reference_plan(r.d, arena_of(floats));
}
