/* SPDX-License-Identifier: MIT */
/*
 * Rules: quantized convolutions over three spatial dimensions
 *
 * The catalogue has convolutions over one and two. The third dimension is folded: window elements
 * along depth and height become channels, and window positions along both become one dimension,
 *
 *	[N, C, D, H, W] -> [N, C * kD * kH, D' * H', W]
 *
 * with weights [M, C / group * kD * kH, 1, kW], whose memory layout is unchanged. The folding takes
 * two Gathers and a Transpose of bytes; the channels of a group stay contiguous.
 */
#include "libclient/onnx/canon.h"

enum { DEPTH = 2, WIDTH = 4, RANK = 5 };

/* Index of the input that is x's zero point, for both operators. */
enum { ZERO_AT = 2 };

/* The window along one spatial dimension. */
struct window {
	int64_t kernel, stride, dilation, before, after, n;
};

static bool read_list(struct graph *graph, const char *name, unsigned int n, int64_t least,
		      int64_t *ret)
{
	unsigned int n_given;
	const int64_t *given = canon_ints(graph, name, &n_given);

	if (!given)
		return true;
	if (n_given != n) {
		graph_refuse(graph, "attribute \"%s\" has %u element%s, expected %u", name, n_given,
			     onnx_plural(n_given), n);
		return false;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (given[i] < least || given[i] > OP_MAX_DIM) {
			graph_refuse(graph, "attribute \"%s\" has %lld, expected %lld to %u", name,
				     (long long)given[i], (long long)least, OP_MAX_DIM);
			return false;
		}
		ret[i] = given[i];
	}
	return true;
}

static bool read_windows(struct graph *graph, const struct shape *x, const struct shape *w,
			 struct window ret[3])
{
	const char *mode = canon_string(graph, "auto_pad", "NOTSET");
	int64_t kernel[] = {w->dims[2], w->dims[3], w->dims[4]};
	int64_t strides[] = {1, 1, 1}, dilations[] = {1, 1, 1}, pads[6] = {0};
	const bool is_same = !strcmp(mode, "SAME_UPPER") || !strcmp(mode, "SAME_LOWER");

	if (!read_list(graph, "kernel_shape", 3, 1, kernel) ||
	    !read_list(graph, "strides", 3, 1, strides) ||
	    !read_list(graph, "dilations", 3, 1, dilations) ||
	    !read_list(graph, "pads", 6, 0, pads))
		return false;
	if (!is_same && strcmp(mode, "NOTSET") && strcmp(mode, "VALID")) {
		graph_refuse(graph, "attribute \"auto_pad\" is \"%s\"", mode);
		return false;
	}
	for (unsigned int i = 0; i < 3; i++) {
		const int64_t size = x->dims[DEPTH + i];
		const int64_t span = (kernel[i] - 1) * dilations[i] + 1;
		struct window *window = &ret[i];
		int64_t total, room;

		*window = (struct window){kernel[i], strides[i], dilations[i], 0, 0, 0};
		if (kernel[i] != w->dims[DEPTH + i]) {
			graph_refuse(graph,
				     "attribute \"kernel_shape\" has %lld, but the weights have %u",
				     (long long)kernel[i], w->dims[DEPTH + i]);
			return false;
		}
		if (is_same) {
			total = ((size + strides[i] - 1) / strides[i] - 1) * strides[i] + span -
				size;
			total = total > 0 ? total : 0;
			window->before = !strcmp(mode, "SAME_LOWER") ? (total + 1) / 2 : total / 2;
			window->after = total - window->before;
		} else if (!strcmp(mode, "NOTSET")) {
			window->before = pads[i];
			window->after = pads[3 + i];
		}
		room = size + window->before + window->after;
		if (room < span || room > OP_MAX_DIM) {
			graph_refuse(graph, "windows of %lld do not fit into %lld elements",
				     (long long)span, (long long)room);
			return false;
		}
		window->n = (room - span) / strides[i] + 1;
	}
	return true;
}

/* Pad depth and height with the zero point. */
static struct tensor *padded(struct graph *graph, struct tensor *x, struct tensor *zero,
			     const struct window *windows)
{
	int64_t *pads = graph_zero(graph, 2 * (size_t)RANK, sizeof(*pads));
	double number = 0;
	bool pads_any = false;

	for (unsigned int i = 0; pads && i < 2; i++) {
		pads[DEPTH + i] = windows[i].before;
		pads[RANK + DEPTH + i] = windows[i].after;
		pads_any |= windows[i].before || windows[i].after;
	}
	if (!pads || !pads_any)
		return x;
	if (zero && !canon_known_number(graph, zero, "x_zero_point", &number))
		return graph_unknown(graph);
	{
		const struct attr attrs[] = {
			ATTR_STRING("mode", "constant"),
			ATTR_INTS("pads", pads, 2 * RANK),
			ATTR_INT("int_value", (int64_t)number),
		};

		return canon_unary(graph, "Pad", x, attrs, ARRAY_SIZE(attrs));
	}
}

/* Split dimension @axis into two: elements of a window, and windows. */
static struct tensor *windows_along(struct graph *graph, struct tensor *x, unsigned int axis,
				    const struct window *window)
{
	const struct attr attr = ATTR_INT("axis", axis);
	struct constant *places = graph_zero(graph, 1, sizeof(*places));
	const uint64_t n = (uint64_t)(window->kernel * window->n);
	int64_t *data;
	struct tensor *in[2] = {x};

	if (!places || window->kernel > OP_MAX_DIM / window->n || n > GRAPH_MAX_EVAL_ELEMS) {
		graph_refuse(graph, "it has too many windows");
		return graph_unknown(graph);
	}
	data = graph_take(graph, n * sizeof(*data));
	if (!data)
		return graph_unknown(graph);
	*places = (struct constant){.dtype = RBK_ONNX_I64,
				    .rank = 2,
				    .dims = {window->kernel, window->n},
				    .data = data};
	for (uint64_t i = 0; i < n; i++)
		data[i] = (int64_t)(i / (uint64_t)window->n) * window->dilation +
			  (int64_t)(i % (uint64_t)window->n) * window->stride;
	if (!constant_measure(places))
		return graph_unknown(graph);
	in[1] = graph_constant(graph, places);
	return graph_emit_1(graph, "Gather", in, 2, &attr, 1);
}

/* Reshape @x to @dims, with the leading dimension of @shape. */
static struct tensor *shaped(struct graph *graph, struct tensor *x, struct shape shape,
			     const uint64_t *dims)
{
	for (unsigned int i = 1; i < shape.rank; i++) {
		if (dims[i] > OP_MAX_DIM) {
			graph_refuse(graph, "dimension %u would have %llu elements", i,
				     (unsigned long long)dims[i]);
			return graph_unknown(graph);
		}
		shape.dims[i] = (uint32_t)dims[i];
	}
	return canon_reshape(graph, x, &shape);
}

static struct tensor *folded_input(struct graph *graph, struct tensor *x, struct tensor *zero,
				   const struct window *windows)
{
	/* batch, channels, window elements along depth and height, windows along both, width */
	static const int64_t order[] = {0, 1, 2, 4, 3, 5, 6};
	const struct attr perm = ATTR_INTS("perm", order, 7);
	const uint64_t taps = (uint64_t)(windows[0].kernel * windows[1].kernel);
	const uint64_t dims[] = {0, x->shape.dims[1] * taps,
				 (uint64_t)windows[0].n * (uint64_t)windows[1].n,
				 x->shape.dims[WIDTH]};
	struct shape shape = x->shape;

	shape.rank = 4;
	x = padded(graph, x, zero, windows);
	x = windows_along(graph, x, DEPTH, &windows[0]);
	x = windows_along(graph, x, DEPTH + 2, &windows[1]);
	return shaped(graph, canon_unary(graph, "Transpose", x, &perm, 1), shape, dims);
}

static void conv_volume(struct graph *graph, unsigned int w_at)
{
	const char *op = graph->node->proto->op_type;
	struct tensor *in[9] = {NULL}, *x = canon_in(graph, 0), *w = canon_in(graph, w_at), *y;
	int64_t *ints = graph_zero(graph, 8, sizeof(*ints));
	const int64_t group = canon_int(graph, "group", 1);
	struct window windows[3];
	unsigned int n_in = 0;

	if (!ints || !read_windows(graph, &x->shape, &w->shape, windows))
		return;
	for (unsigned int i = 0; i < graph->node->n_in && i < ARRAY_SIZE(in); i++) {
		in[i] = canon_in(graph, i);
		if (in[i])
			n_in = i + 1;
	}
	in[0] = folded_input(graph, x, in[ZERO_AT], windows);
	{
		const uint64_t taps = (uint64_t)(windows[0].kernel * windows[1].kernel);
		const uint64_t w_dims[] = {0, w->shape.dims[1] * taps, 1, w->shape.dims[WIDTH]};
		const uint64_t y_dims[] = {0, w->shape.dims[0], (uint64_t)windows[0].n,
					   (uint64_t)windows[1].n, (uint64_t)windows[2].n};
		const struct attr attrs[] = {
			ATTR_INT("group", group),
			ATTR_INTS("strides", ints, 2),
			ATTR_INTS("dilations", ints + 2, 2),
			ATTR_INTS("pads", ints + 4, 4),
		};
		struct shape w_shape = w->shape;

		w_shape.rank = 4;
		ints[0] = ints[2] = 1;
		ints[1] = windows[2].stride;
		ints[3] = windows[2].dilation;
		ints[5] = windows[2].before;
		ints[7] = windows[2].after;
		in[w_at] = shaped(graph, w, w_shape, w_dims);
		y = graph_emit_1(graph, op, in, n_in, attrs, ARRAY_SIZE(attrs));
		canon_out(graph, 0, shaped(graph, y, x->shape, y_dims));
	}
}

void canon_conv_bytes(struct graph *graph)
{
	const bool is_integer = !strcmp(graph->node->proto->op_type, "ConvInteger");
	const unsigned int w_at = is_integer ? 1 : 3;
	const struct tensor *x = canon_in(graph, 0), *w = canon_in(graph, w_at);

	if (x->shape.rank == RANK && w->shape.rank == RANK && !w->shape.dynamic &&
	    !shape_is_empty(&x->shape) && !shape_is_empty(&w->shape))
		conv_volume(graph, w_at);
	else
		canon_same(graph);
}
