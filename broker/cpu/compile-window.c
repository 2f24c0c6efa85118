/* SPDX-License-Identifier: MIT */
/*
 * Conv and MaxPool
 *
 * Operators over one spatial dimension are those over two with a height of 1. Constant weights are
 * packed as the register tile of the matrix product wants them.
 */
#include "cpu/compile.h"

#include "cpu/internal.h"
#include "util/error.h"

void compile_window(const struct shape *x, const struct shape *y, const union op_params *params,
		    struct cpu_window *args, struct cpu_extent *batch)
{
	*batch = extent_aligned(x, x->rank, 0);
	args->channels = x->dims[1];
	args->height = x->rank == 4 ? x->dims[2] : 1;
	args->width = x->dims[x->rank - 1];
	args->out_channels = y->dims[1];
	args->out_height = y->rank == 4 ? y->dims[2] : 1;
	args->out_width = y->dims[y->rank - 1];
	args->group = params->window.group;
	for (unsigned int i = 0; i < 2; i++) {
		args->kernel[i] = params->window.kernel[i];
		args->stride[i] = params->window.stride[i];
		args->dilation[i] = params->window.dilation[i];
		args->pad_begin[i] = params->window.pad_begin[i];
	}
}

static void window(struct compiler *c)
{
	compile_window(&node_in(c, 0)->shape, &node_out(c, 0)->shape, &c->node->params,
		       &c->step->window.args, &c->step->window.batch);
}

int compile_max_pool(struct compiler *c)
{
	window(c);
	c->step->run = cpu_run_max_pool;
	c->step->units = cpu_units_max_pool;
	return 0;
}

int compile_conv(struct compiler *c)
{
	const struct cpu_kernels *kernels = c->cpu->kernels;
	struct cpu_window args;
	struct cpu_pack *pack;
	bool is_new;
	int r;

	window(c);
	c->step->run = cpu_run_conv;
	c->step->units = cpu_units_conv;
	args = c->step->window.args;
	if (!node_in_is_constant(c, 1) || cpu_conv_is_depthwise(&args))
		return 0;

	args.weights = (const float *)c->step->in[1].offset;
	r = compile_pack(c, 1, PACK_CONV,
			 (uint64_t[]){args.channels, args.out_channels, args.kernel[0],
				      args.kernel[1], args.group},
			 5, kernels->pack_conv_size(&args), &pack, &is_new);
	if (r)
		return error_fold(r);
	if (is_new)
		kernels->pack_conv(&args, pack->data);
	c->step->window.weights_are_packed = true;
	return 0;
}
