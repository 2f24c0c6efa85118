/* SPDX-License-Identifier: MIT */
/*
 * Conv and pooling
 *
 * Operators over fewer than three spatial dimensions have depth and height of 1. Constant weights
 * are packed for the register tile of the matrix product, except those of float64.
 */
#include "cpu/compile.h"

#include "cpu/internal.h"
#include "cpu/run-window.h"
#include "util/error.h"

void compile_window(const struct shape *x, const struct shape *y, const union op_params *params,
		    struct cpu_window *args, struct cpu_extent *batch)
{
	*batch = extent_aligned(x, x->rank, 0);
	args->channels = x->dims[1];
	args->depth = shape_spatial(x, 0);
	args->height = shape_spatial(x, 1);
	args->width = shape_spatial(x, 2);
	args->out_channels = y->dims[1];
	args->out_depth = shape_spatial(y, 0);
	args->out_height = shape_spatial(y, 1);
	args->out_width = shape_spatial(y, 2);
	args->group = params->window.group;
	args->includes_pad = params->window.includes_pad;
	args->p = params->window.p;
	for (unsigned int i = 0; i < OP_MAX_SPATIAL; i++) {
		args->kernel[i] = params->window.kernel[i];
		args->stride[i] = params->window.stride[i];
		args->dilation[i] = params->window.dilation[i];
		args->pad_begin[i] = params->window.pad_begin[i];
		args->pad_end[i] = params->window.pad_end[i];
	}
}

static struct cpu_step_window *window(struct compiler *c)
{
	struct cpu_step_window *step = compile_args(c);

	compile_window(&node_in(c, 0)->shape, &node_out(c, 0)->shape, &c->node->params, &step->args,
		       &step->batch);
	step->is_last = c->is_last;
	return step;
}

/* Set the step's function to @run, which computes float64. */
static void set_double(struct compiler *c, cpu_run_fn *run)
{
	c->step->run = run;
	c->speed_up = COMPILE_DOUBLE_SPEED_UP;
}

static int compile_pool(struct compiler *c)
{
	const struct cpu_kernels *kernels = c->cpu->kernels;
	const enum op_kind kind = c->node->op->kind;
	struct cpu_step_window *step = window(c);

	c->step->run = cpu_run_pool;
	c->step->units = cpu_units_pool;
	if (node_is_double(c)) {
		set_double(c, cpu_run_pool_f64);
		step->pool_f64 = kind == OP_AVERAGE_POOL ? kernels->average_pool_f64
				 : kind == OP_LP_POOL    ? kernels->lp_pool_f64
							 : kernels->max_pool_f64;
		return 0;
	}
	if (c->is_last) {
		step->pool = kind == OP_AVERAGE_POOL ? kernels->average_pool_last
						     : kernels->max_pool_last;
		return 0;
	}
	step->pool = kind == OP_AVERAGE_POOL ? kernels->average_pool
		     : kind == OP_LP_POOL    ? kernels->lp_pool
					     : kernels->max_pool;
	return 0;
}

static int compile_max_pool(struct compiler *c)
{
	struct cpu_step_window *step = compile_args(c);
	const uint8_t dtype = node_in(c, 0)->dtype;

	compile_pool(c);
	if (!node_out(c, 1) && dtype != RBK_DTYPE_I8 && dtype != RBK_DTYPE_U8)
		return 0;
	c->step->run = cpu_run_pool_any;
	step->type = dtype == RBK_DTYPE_I8    ? CPU_I8
		     : dtype == RBK_DTYPE_U8  ? CPU_U8
		     : dtype == RBK_DTYPE_F64 ? CPU_F64
					      : CPU_F32;
	step->is_column_major = c->node->params.window.is_column_major;
	return 0;
}

enum { FILL_BYTES = 1 << 20 }; /* approximate bytes of a packed form that are filled at a time */

typedef size_t pack_fn(const struct cpu_window *args, size_t begin, size_t end, float *to);

struct window_fill {
	pack_fn *pack;
	struct cpu_window args;
};
CPU_STEP_HOLDS(struct window_fill);

/* Pack some units of the weights. */
static bool fill_window(const struct cpu_fill *fill, uint64_t number)
{
	const size_t n_parts = div_up(fill->pack->map_bytes, FILL_BYTES);
	const struct window_fill *window = (const void *)fill->args;
	struct cpu_window args = window->args;
	size_t n_units, step;

	args.weights = fill->from[0];
	n_units = window->pack(&args, 0, 0, fill->pack->data);
	step = div_up(n_units, n_parts);
	window->pack(&args, number * step, (number + 1) * step, fill->pack->data);
	return (number + 1) * step < n_units;
}

/* Pack constant weights with @pack, whose result has @floats floats. */
static int pack_weights(struct compiler *c, enum pack_form form, size_t floats, pack_fn *pack)
{
	struct cpu_step_window *step = compile_args(c);
	const struct cpu_window args = step->args;
	const uintptr_t from = c->step->in[1].offset;
	struct cpu_fill *fill;
	int r;

	r = compile_pack(c, 1, form,
			 (uint64_t[]){args.channels, args.out_channels, args.kernel[0],
				      args.kernel[1], args.kernel[2], args.group},
			 6, floats, &fill);
	if (r)
		return error_fold(r);
	if (fill) {
		fill->part = fill_window;
		*(struct window_fill *)fill->args = (struct window_fill){pack, args};
		compile_fill_from(c, fill, 0, from);
	}
	step->weights_are_packed = true;
	return 0;
}

static int compile_conv(struct compiler *c)
{
	const struct cpu_kernels *kernels = c->cpu->kernels;
	struct cpu_step_window *step = window(c);
	int r;

	c->step->run = cpu_run_conv;
	c->step->units = cpu_units_conv;
	if (node_is_double(c)) {
		set_double(c, cpu_run_conv_f64);
		return 0;
	}
	c->step->rounds = cpu_rounds_conv;
	if (c->is_last) {
		r = pack_weights(
			c, cpu_conv_last_strips(&step->args) ? PACK_CONV_STRIPS : PACK_CONV_LAST,
			kernels->pack_conv_last_size(&step->args), kernels->pack_conv_last);
		return r ? error_fold(r) : 0;
	}
	if (!node_in_is_constant(c, 1) || cpu_conv_is_depthwise(&step->args))
		return 0;
	r = pack_weights(c, PACK_CONV, kernels->pack_conv_size(&step->args), kernels->pack_conv);
	return r ? error_fold(r) : 0;
}

static int compile_conv_transpose(struct compiler *c)
{
	const struct cpu_kernels *kernels = c->cpu->kernels;
	struct cpu_step_window *step = window(c);
	int r;

	c->step->run = cpu_run_conv_transpose;
	c->step->units = cpu_units_conv_transpose;
	if (node_is_double(c)) {
		set_double(c, cpu_run_conv_transpose_f64);
		c->step->units = cpu_units_conv_transpose_f64;
		return 0;
	}
	if (!node_in_is_constant(c, 1))
		return 0;
	r = pack_weights(c, PACK_CONV_TRANSPOSE, kernels->pack_conv_transpose_size(&step->args),
			 kernels->pack_conv_transpose);
	return r ? error_fold(r) : 0;
}

/* ---- Channels last: see layout.c ---- */

static bool window_may(const struct plan *plan, const struct node *node)
{
	const struct tensor *x = cpu_layout_tensor(plan, node->in[0]), *weights;

	if (!cpu_layout_is_float(x) || x->shape.rank < 3)
		return false;
	if (node->op->kind != OP_CONV)
		return node->n_out == 1 || node->out[1] == PLAN_NO_TENSOR;
	weights = cpu_layout_tensor(plan, node->in[1]);
	return cpu_layout_is_float(weights) && cpu_layout_is_constant(plan, weights);
}

/* Operations per nanosecond on Zen 4, with channels first and with channels last */
struct rates {
	double plain, last;
};

/* Return true if a convolution with channels last gathers nothing. */
static bool is_direct(const struct plan *plan, const struct node *node)
{
	struct cpu_window args = {0};
	struct cpu_extent batch;

	compile_window(&cpu_layout_tensor(plan, node->in[0])->shape,
		       &cpu_layout_tensor(plan, node->out[0])->shape, &node->params, &args, &batch);
	return cpu_conv_last_is_direct(&args);
}

/*
 * Return the rates of a convolution that is a matrix product. Both layouts take time for
 * operations, including those in unused lanes of partial vectors, and for gathering what pixels
 * see. With channels first, each tap is gathered; with channels last, runs are gathered, or
 * nothing. Few pixels do not fill vectors of pixels.
 */
static struct rates product_rates(const struct plan *plan, const struct node *node,
				  uint32_t channels, uint32_t out_channels, uint64_t pixels)
{
	const uint32_t *kernel = node->params.window.kernel;
	const double taps = (double)kernel[0] * kernel[1] * kernel[2];
	const double flops = 2 * taps * channels * out_channels;
	const double runs = taps / kernel[2] * (node->params.window.group > 1 ? kernel[2] : 1);
	const double gathers_last =
		taps == 1 || is_direct(plan, node) ? 0 : 4 * runs + taps * channels / 25;

	return (struct rates){
		flops / (flops / 110 * (pixels < 64 ? 1.25 : 1) + 3 + taps * channels / 12),
		flops / (flops / 113 / cpu_layout_filled(out_channels, 16) + 3 + gathers_last),
	};
}

/*
 * Return the rate of a convolution from strips: nothing is gathered, and edges cost no more than
 * the inside.
 */
static double strip_rate(const struct cpu_window *args)
{
	const double terms = (double)(args->kernel[1] * args->kernel[2] * args->channels);
	const double flops = 2 * terms * (double)args->out_channels;

	return flops / (flops / 118 / cpu_layout_filled_narrow((uint32_t)args->out_channels) + 2);
}

static struct rates conv_rates(const struct plan *plan, const struct node *node)
{
	const uint32_t group = node->params.window.group;
	const uint32_t channels = cpu_layout_tensor(plan, node->in[0])->shape.dims[1];
	const uint32_t out_channels = cpu_layout_tensor(plan, node->out[0])->shape.dims[1];
	const uint64_t pixels = cpu_layout_pixels(&cpu_layout_tensor(plan, node->out[0])->shape, 2);
	const bool is_apart = node->params.window.stride[2] > 1;
	struct cpu_window args = {0};
	struct cpu_extent batch;
	struct rates rates;

	if (group == channels && out_channels == channels)
		return (struct rates){pixels < 196 ? 13
				      : is_apart   ? 19
						   : 46,
				      (is_apart ? 43 : 75) * cpu_layout_filled_narrow(channels)};
	if (group > 1 && out_channels == channels &&
	    (channels / group == 2 || channels / group == 4))
		return (struct rates){30, 70};
	rates = product_rates(plan, node, channels / group, out_channels / group, pixels);
	compile_window(&cpu_layout_tensor(plan, node->in[0])->shape,
		       &cpu_layout_tensor(plan, node->out[0])->shape, &node->params, &args, &batch);
	if (cpu_conv_last_strips(&args))
		rates.last = strip_rate(&args);
	return rates;
}

static double conv_gain_ns(const struct plan *plan, const struct node *node)
{
	const double work = (double)(node->cost.flops_fixed + node->cost.flops_row);
	const struct rates rates = conv_rates(plan, node);

	return work / rates.plain - work / rates.last;
}

const struct cpu_op cpu_op_conv = {.compile = compile_conv,
				   .may_be_last = window_may,
				   .last_gain_ns = conv_gain_ns,
				   .overhead = {25, 20, 0}};
const struct cpu_op cpu_op_max_pool = {.compile = compile_max_pool,
				       .may_be_last = window_may,
				       .last_gain_ns = cpu_layout_pool_gain_ns,
				       .overhead = {15, 20, 0}};
const struct cpu_op cpu_op_average_pool = {.compile = compile_pool,
					   .may_be_last = window_may,
					   .last_gain_ns = cpu_layout_pool_gain_ns,
					   .overhead = {25, 15, 0}};
const struct cpu_op cpu_op_lp_pool = {.compile = compile_pool, .overhead = {20, 40, 32}};
/* unit_ns is per tap, see compile_overhead_ns(). */
const struct cpu_op cpu_op_conv_transpose = {.compile = compile_conv_transpose,
					     .overhead = {60, 20, 0}};
