/* SPDX-License-Identifier: MIT */
/* See random-nets.h. */
#include "reference/random-nets.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PICTURES = 24, NAME_BYTES = 16 };

struct picture {
	char name[NAME_BYTES];
	uint32_t channels, size[OP_MAX_SPATIAL];
};

struct net {
	uint64_t state;
	struct describe *d;
	unsigned int n;      /* spatial dimensions */
	uint32_t batch;      /* batch size, or DESCRIBE_COUNT */
	unsigned int n_made; /* tensors made, of any kind, for their names */
	unsigned int n_pictures;
	struct picture pictures[MAX_PICTURES];
};

static uint32_t pick(struct net *net, uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(&net->state) % (to - from + 1));
}

/* Add a constant of the arena. */
static void constant(struct net *net, char name[NAME_BYTES], unsigned int rank,
		     const uint32_t *dims)
{
	uint64_t floats = 1;

	for (unsigned int i = 0; i < rank; i++)
		floats *= dims[i];
	snprintf(name, NAME_BYTES, "c%u", net->n_made++);
	describe_constant(net->d, name,
			  RBK_REF(REFERENCE_ARENA, pick(net, 0,
							(uint32_t)((RANDOM_NETS_ARENA_BYTES -
								    floats * sizeof(float)) /
								   RBK_REF_ALIGN)) *
							   RBK_REF_ALIGN),
			  rank, dims);
}

/* Add a node's result: scratch, or an output. */
static struct picture *result(struct net *net, const struct picture *like)
{
	struct picture *picture = &net->pictures[net->n_pictures++];

	*picture = *like;
	snprintf(picture->name, NAME_BYTES, "t%u", net->n_made++);
	describe_inferred(net->d, picture->name,
			  pick(net, 0, 5) ? RBK_TENSOR_SCRATCH : RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	return picture;
}

static void node(struct net *net, const char *op, const char *a, const char *b, const char *out)
{
	char in[2 * NAME_BYTES];

	snprintf(in, sizeof(in), "%s%s%s", a, b ? "," : "", b ? b : "");
	describe_node(net->d, op, "", in, out);
}

/* Add the attributes of a window over @x, and set the size of its result in @y. */
static void window(struct net *net, const struct picture *x, struct picture *y, bool is_pool)
{
	int64_t kernel[OP_MAX_SPATIAL], strides[OP_MAX_SPATIAL], dilations[OP_MAX_SPATIAL];
	int64_t pads[2 * OP_MAX_SPATIAL];
	const bool ceil_mode = is_pool && pick(net, 0, 1);

	for (unsigned int i = 0; i < net->n; i++) {
		const uint32_t size = x->size[i];
		int64_t extent, over;

		kernel[i] = y->size[i];
		dilations[i] = pick(net, 0, 3) ? 1 : 2;
		strides[i] = pick(net, 0, 2) ? 1 : pick(net, 2, 3);
		extent = (kernel[i] - 1) * dilations[i] + 1;
		pads[i] = pick(net, 0, (uint32_t)kernel[i] - 1);
		pads[net->n + i] = pick(net, 0, (uint32_t)kernel[i] - 1);
		if (size + pads[i] + pads[net->n + i] < extent)
			pads[i] = extent - size - pads[net->n + i];
		over = size + pads[i] + pads[net->n + i] - extent;
		y->size[i] = (uint32_t)((over + (ceil_mode ? strides[i] - 1 : 0)) / strides[i] + 1);
		if (ceil_mode && (y->size[i] - 1) * strides[i] >= size + pads[i])
			y->size[i]--;
	}
	if (is_pool) {
		describe_attr_ints(net->d, "kernel_shape", net->n, kernel);
		describe_attr_int(net->d, "ceil_mode", ceil_mode);
	}
	describe_attr_ints(net->d, "strides", net->n, strides);
	describe_attr_ints(net->d, "dilations", net->n, dilations);
	describe_attr_ints(net->d, "pads", 2 * net->n, pads);
}

static void conv(struct net *net, const struct picture *x)
{
	static const char *const activations[] = {"Relu", "LeakyRelu", "Clip"};
	const uint32_t how = pick(net, 0, 3), channels = x->channels;
	uint32_t group = how == 0 ? channels : how == 1 && channels % 4 == 0 ? 4 : 1, filters;
	uint32_t weights[2 + OP_MAX_SPATIAL];
	char w[NAME_BYTES], b[NAME_BYTES], in[3 * NAME_BYTES];
	struct picture shape = *x, *y;

	filters = how == 0 ? channels : group * pick(net, 1, 40 / group);
	weights[0] = filters;
	weights[1] = channels / group;
	for (unsigned int i = 0; i < net->n; i++)
		weights[2 + i] = shape.size[i] = pick(net, 0, 2) ? pick(net, 1, 3) : 1;
	constant(net, w, 2 + net->n, weights);
	snprintf(in, sizeof(in), "%s,%s", x->name, w);
	if (pick(net, 0, 1)) {
		constant(net, b, 1, &filters);
		snprintf(in, sizeof(in), "%s,%s,%s", x->name, w, b);
	}
	shape.channels = filters;
	y = result(net, &shape);
	describe_node(net->d, "Conv", "", in, y->name);
	describe_attr_int(net->d, "group", group);
	window(net, x, y, false);
	if (pick(net, 0, 1)) {
		const struct picture *active = result(net, y);

		node(net, activations[pick(net, 0, 2)], y->name, NULL, active->name);
	}
}

static void pool(struct net *net, const struct picture *x, const char *op)
{
	struct picture shape = *x, *y;

	for (unsigned int i = 0; i < net->n; i++)
		shape.size[i] = pick(net, 1, 3);
	y = result(net, &shape);
	node(net, op, x->name, NULL, y->name);
	window(net, x, y, true);
	if (!strcmp(op, "AveragePool"))
		describe_attr_int(net->d, "count_include_pad", pick(net, 0, 1));
}

static void batch_norm(struct net *net, const struct picture *x)
{
	char in[5 * NAME_BYTES], names[3][NAME_BYTES], var[NAME_BYTES], positive[NAME_BYTES];
	const struct picture *y;

	for (unsigned int i = 0; i < 3; i++)
		constant(net, names[i], 1, &x->channels);
	constant(net, var, 1, &x->channels);
	snprintf(positive, sizeof(positive), "v%u", net->n_made++);
	describe_scratch(net->d, positive);
	describe_node(net->d, "Exp", "", var, positive);
	y = result(net, x);
	snprintf(in, sizeof(in), "%s,%s,%s,%s,%s", x->name, names[0], names[1], names[2], positive);
	describe_node(net->d, "BatchNormalization", "", in, y->name);
}

/* Return any image of the same size. */
static const struct picture *another(struct net *net, const struct picture *x, bool any_channels)
{
	const unsigned int first = pick(net, 0, net->n_pictures - 1);

	for (unsigned int i = 0; i < net->n_pictures; i++) {
		const struct picture *other = &net->pictures[(first + i) % net->n_pictures];

		if (!memcmp(other->size, x->size, net->n * sizeof(x->size[0])) &&
		    (any_channels || other->channels == x->channels))
			return other;
	}
	return x;
}

static void concat(struct net *net, const struct picture *x)
{
	const struct picture *other = another(net, x, true);
	struct picture shape = *x;
	const struct picture *y;

	if (x->channels + other->channels > 90)
		return;
	shape.channels += other->channels;
	y = result(net, &shape);
	node(net, "Concat", x->name, other->name, y->name);
	describe_attr_int(net->d, "axis", 1);
}

/* Combine @x with another image, or with one number for all elements, per channel, or per pixel. */
static void elementwise(struct net *net, const struct picture *x)
{
	static const char *const ops[] = {"Add", "Mul", "Sub", "Max"};
	const uint32_t how = pick(net, 0, 5), ones[] = {1, x->channels, 1, 1, 1};
	const uint32_t channel[] = {x->channels, 1, 1, 1}, line = x->size[net->n - 1];
	const char *op = ops[pick(net, 0, 3)], *b;
	char name[NAME_BYTES];

	if (how < 3) {
		b = another(net, x, false)->name;
	} else {
		if (how == 3)
			constant(net, name, 2 + net->n, ones);
		else if (how == 4)
			constant(net, name, pick(net, 0, 1) ? 1 + net->n : 0, channel);
		else
			constant(net, name, 1, &line);
		b = name;
	}
	node(net, op, x->name, b, result(net, x)->name);
}

/* Multiply each channel by its average. */
static void attend(struct net *net, const struct picture *x)
{
	char mean[NAME_BYTES];

	snprintf(mean, sizeof(mean), "m%u", net->n_made++);
	describe_scratch(net->d, mean);
	node(net, "ReduceMean", x->name, NULL, mean);
	describe_attr_ints(net->d, "axes", net->n, (const int64_t[]){2, 3, 4});
	describe_attr_int(net->d, "keepdims", 1);
	node(net, "Mul", x->name, mean, result(net, x)->name);
}

/* Swap channels and pixels, and swap them back. */
static void transpose(struct net *net, const struct picture *x)
{
	const int64_t perm[] = {0, 2, 1, 3, 4};
	char turned[NAME_BYTES];

	snprintf(turned, sizeof(turned), "p%u", net->n_made++);
	describe_scratch(net->d, turned);
	node(net, "Transpose", x->name, NULL, turned);
	describe_attr_ints(net->d, "perm", 2 + net->n, perm);
	node(net, "Transpose", turned, NULL, result(net, x)->name);
	describe_attr_ints(net->d, "perm", 2 + net->n, perm);
}

/* Flatten @x to rows, which are an output. */
static void flatten(struct net *net, const struct picture *x)
{
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), "f%u", net->n_made++);
	describe_inferred(net->d, name, RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	node(net, "Reshape", x->name, NULL, name);
	describe_attr_ints(net->d, "shape", 2, (const int64_t[]){0, -1});
}

static void add_nodes(struct net *net)
{
	/* Mostly the last image. */
	const unsigned int back = pick(net, 0, 3) ? 0 : pick(net, 0, net->n_pictures - 1);
	const struct picture x = net->pictures[net->n_pictures - 1 - back];

	switch (pick(net, 0, 16)) {
	case 0:
		batch_norm(net, &x);
		break;
	case 1:
	case 2:
		concat(net, &x);
		break;
	case 3:
	case 4:
	case 5:
		elementwise(net, &x);
		break;
	case 6:
		attend(net, &x);
		break;
	case 7:
		transpose(net, &x);
		break;
	case 8:
		flatten(net, &x);
		break;
	case 9:
		node(net, "Softmax", x.name, NULL, result(net, &x)->name);
		describe_attr_int(net->d, "axis", 1);
		break;
	case 10:
		node(net, "Sigmoid", x.name, NULL, result(net, &x)->name);
		break;
	case 11:
		pool(net, &x, "MaxPool");
		break;
	case 12:
		pool(net, &x, "AveragePool");
		break;
	default:
		conv(net, &x);
		break;
	}
}

struct describe *random_net_describe(uint64_t seed, uint32_t max_count, bool fuses)
{
	struct net net = {.state = seed * 0x9e3779b97f4a7c15u + 1};
	uint32_t dims[2 + OP_MAX_SPATIAL];
	unsigned int n_steps;
	struct picture *x;

	net.n = pick(&net, 0, 3) ? 2 : pick(&net, 1, 3);
	net.batch = seed & 1 ? DESCRIBE_COUNT : pick(&net, 1, 2);
	net.d = describe_new("net", seed & 1 ? max_count : 1);
	if (!fuses)
		describe_disable_fusion(net.d);
	x = &net.pictures[net.n_pictures++];
	*x = (struct picture){.name = "x", .channels = pick(&net, 1, 24)};
	dims[0] = net.batch;
	dims[1] = x->channels;
	for (unsigned int i = 0; i < net.n; i++)
		dims[2 + i] = x->size[i] = pick(&net, 1, net.n == 3 ? 6 : 12);
	describe_input(net.d, "x", 2 + net.n, dims);
	n_steps = pick(&net, 2, 9);
	for (unsigned int i = 0; i < n_steps; i++)
		add_nodes(&net);
	describe_inferred(net.d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	node(&net, "Neg", net.pictures[net.n_pictures - 1].name, NULL, "y");
	return net.d;
}

struct plan *random_net(uint64_t seed, uint32_t max_count, struct exec_arena *arena, bool fuses)
{
	return reference_plan(random_net_describe(seed, max_count, fuses), arena);
}
