/* SPDX-License-Identifier: MIT */
/*
 * Operators of oneDNN 2
 *
 * Weights are declared with format "any" and reordered once. With the library's own layout pictures
 * are reordered, too: inputs beforehand, outputs when they are fetched. Poolings accept any input
 * layout, so their pictures are declared in blocks of 16 channels, or channels-last if channels are
 * no multiple of 16.
 */
#include "library-onednn.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "operator.h"
#include "util/checked.h"
#include "util/cleanup.h"

enum { X, WEIGHTS, BIAS, Y, N_OPERANDS };

struct onednn_operator {
	struct library_operator operator;
	unsigned int n_threads;
	dnnl_memory_desc_t plain_desc[N_OPERANDS], own_desc[N_OPERANDS];
	/* own: NULL if its layout equals plain's */
	dnnl_memory_t plain[N_OPERANDS], own[N_OPERANDS];
	dnnl_primitive_t primitive;
	int n_arguments;
	dnnl_exec_arg_t arguments[N_OPERANDS];
};

dnnl_status_t onednn_reorder(struct onednn *dnn, dnnl_memory_t from,
			     const dnnl_memory_desc_t *from_desc, dnnl_memory_t to,
			     const dnnl_memory_desc_t *to_desc)
{
	const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
	dnnl_primitive_desc_t description = NULL;
	dnnl_primitive_t primitive = NULL;
	dnnl_status_t status;

	status = dnn->dnnl_reorder_primitive_desc_create(&description, from_desc, dnn->engine,
							 to_desc, dnn->engine, NULL);
	if (!status)
		status = dnn->dnnl_primitive_create(&primitive, description);
	if (!status)
		status = dnn->dnnl_primitive_execute(primitive, dnn->stream, 2, arguments);
	if (!status)
		status = dnn->dnnl_stream_wait(dnn->stream);
	if (primitive)
		dnn->dnnl_primitive_destroy(primitive);
	if (description)
		dnn->dnnl_primitive_desc_destroy(description);
	return status;
}

/* The description of any operation */
union operation {
	dnnl_matmul_desc_t matmul;
	dnnl_convolution_desc_t convolution;
	dnnl_pooling_v2_desc_t pooling;
	dnnl_softmax_desc_t softmax;
	dnnl_layer_normalization_desc_t norm;
	dnnl_eltwise_desc_t eltwise;
};

/* State of a preparation */
struct preparation {
	struct onednn *dnn;
	const struct operator_shape *shape;
	struct onednn_operator *operator;
	dnnl_memory_desc_t wanted[N_OPERANDS]; /* layouts declared to the operation */
	bool is_there[N_OPERANDS];
	int names[N_OPERANDS];            /* DNNL_ARG_* */
	dnnl_query_t queries[N_OPERANDS]; /* query for the chosen layout; 0: as wanted */
	union operation operation;
	dnnl_primitive_attr_t attributes; /* NULL: none */
	dnnl_status_t status;
};

/* Declare an operand: its plain layout, and the layout declared to the operation. */
static void operand(struct preparation *p, int which, int name, dnnl_query_t query, int n_dims,
		    const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t plain,
		    dnnl_format_tag_t wanted)
{
	p->status |= p->dnn->dnnl_memory_desc_init_by_tag(&p->operator->plain_desc[which], n_dims,
							  dims, type, plain);
	p->status |=
		p->dnn->dnnl_memory_desc_init_by_tag(&p->wanted[which], n_dims, dims, type, wanted);
	p->is_there[which] = true;
	p->names[which] = name;
	p->queries[which] = query;
}

static void prepare_matmul(struct preparation *p)
{
	const struct operator_shape *shape = p->shape;
	const bool is_int8 = shape->kind == OPERATOR_MATMUL8,
		   is_gemm = shape->kind == OPERATOR_GEMM;
	const dnnl_dims_t x = {shape->m, shape->k}, weights = {shape->k, shape->n};
	const dnnl_dims_t bias = {1, shape->n}, y = {shape->m, shape->n};

	operand(p, X, DNNL_ARG_SRC, dnnl_query_src_md, 2, x, is_int8 ? dnnl_u8 : dnnl_f32, dnnl_ab,
		dnnl_ab);
	operand(p, WEIGHTS, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 2, weights,
		is_int8 ? dnnl_s8 : dnnl_f32, is_gemm ? dnnl_ba : dnnl_ab, dnnl_format_tag_any);
	if (is_gemm)
		operand(p, BIAS, DNNL_ARG_BIAS, 0, 2, bias, dnnl_f32, dnnl_ab, dnnl_ab);
	operand(p, Y, DNNL_ARG_DST, dnnl_query_dst_md, 2, y, is_int8 ? dnnl_s32 : dnnl_f32, dnnl_ab,
		dnnl_ab);
	p->status |= p->dnn->dnnl_matmul_desc_init(
		&p->operation.matmul, &p->wanted[X], &p->wanted[WEIGHTS],
		is_gemm ? &p->wanted[BIAS] : NULL, &p->wanted[Y]);
}

static void prepare_convolution(struct preparation *p, bool own_layout)
{
	const struct operator_shape *s = p->shape;
	const bool is_int8 = operator_is_int8(s), is_grouped = s->group > 1;
	const dnnl_format_tag_t picture = own_layout ? dnnl_format_tag_any : dnnl_abcd;
	const dnnl_dims_t x = {1, s->channels, s->size, s->size}, bias = {s->out_channels};
	const dnnl_dims_t weights = {s->out_channels, s->channels, s->kernel, s->kernel};
	const dnnl_dims_t grouped = {s->group, s->out_channels / s->group, s->channels / s->group,
				     s->kernel, s->kernel};
	const dnnl_dims_t y = {1, s->out_channels, operator_out_size(s), operator_out_size(s)};
	const dnnl_dims_t strides = {s->stride, s->stride}, pads = {s->pad, s->pad};
	const dnnl_dims_t dilates = {s->dilation - 1, s->dilation - 1};

	operand(p, X, DNNL_ARG_SRC, dnnl_query_src_md, 4, x, is_int8 ? dnnl_u8 : dnnl_f32,
		dnnl_abcd, picture);
	operand(p, WEIGHTS, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, is_grouped ? 5 : 4,
		is_grouped ? grouped : weights, is_int8 ? dnnl_s8 : dnnl_f32,
		is_grouped ? dnnl_abcde : dnnl_abcd, dnnl_format_tag_any);
	if (!is_int8)
		operand(p, BIAS, DNNL_ARG_BIAS, 0, 1, bias, dnnl_f32, dnnl_a, dnnl_a);
	operand(p, Y, DNNL_ARG_DST, dnnl_query_dst_md, 4, y,
		s->kind == OPERATOR_CONV8_QUANTIZED ? dnnl_s8
		: is_int8                           ? dnnl_s32
						    : dnnl_f32,
		dnnl_abcd, picture);
	p->status |= p->dnn->dnnl_dilated_convolution_forward_desc_init(
		&p->operation.convolution, dnnl_forward_inference, dnnl_convolution_direct,
		&p->wanted[X], &p->wanted[WEIGHTS], is_int8 ? NULL : &p->wanted[BIAS],
		&p->wanted[Y], strides, dilates, pads, pads);
}

static void prepare_pooling(struct preparation *p, bool own_layout)
{
	const struct operator_shape *s = p->shape;
	const dnnl_format_tag_t picture = !own_layout             ? dnnl_abcd
					  : s->channels % 16 == 0 ? dnnl_aBcd16b
								  : dnnl_acdb;
	const dnnl_dims_t x = {1, s->channels, s->size, s->size};
	const dnnl_dims_t y = {1, s->channels, operator_out_size(s), operator_out_size(s)};
	const dnnl_dims_t strides = {s->stride, s->stride}, kernel = {s->kernel, s->kernel};
	const dnnl_dims_t dilates = {s->dilation - 1, s->dilation - 1}, pads = {s->pad, s->pad};

	operand(p, X, DNNL_ARG_SRC, dnnl_query_src_md, 4, x, dnnl_f32, dnnl_abcd, picture);
	operand(p, Y, DNNL_ARG_DST, dnnl_query_dst_md, 4, y, dnnl_f32, dnnl_abcd, picture);
	p->status |= p->dnn->dnnl_pooling_v2_forward_desc_init(
		&p->operation.pooling, dnnl_forward_inference,
		s->kind == OPERATOR_MAX_POOL ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding,
		&p->wanted[X], &p->wanted[Y], strides, kernel, dilates, pads, pads);
}

static void prepare_rows(struct preparation *p)
{
	const struct operator_shape *shape = p->shape;
	const dnnl_dims_t rows = {shape->m, shape->n}, row = {shape->n}, column = {shape->m};
	dnnl_memory_desc_t statistics;
	struct onednn *dnn = p->dnn;

	operand(p, X, DNNL_ARG_SRC, 0, 2, rows, dnnl_f32, dnnl_ab, dnnl_ab);
	operand(p, Y, DNNL_ARG_DST, 0, 2, rows, dnnl_f32, dnnl_ab, dnnl_ab);
	if (shape->kind == OPERATOR_SOFTMAX) {
		p->status |= dnn->dnnl_softmax_forward_desc_init(
			&p->operation.softmax, dnnl_forward_inference, &p->wanted[X], 1);
	} else if (shape->kind == OPERATOR_GELU) {
		p->status |= dnn->dnnl_eltwise_forward_desc_init(
			&p->operation.eltwise, dnnl_forward_inference, dnnl_eltwise_gelu_erf,
			&p->wanted[X], 0, 0);
	} else {
		operand(p, WEIGHTS, DNNL_ARG_SCALE, 0, 1, row, dnnl_f32, dnnl_a, dnnl_a);
		operand(p, BIAS, DNNL_ARG_SHIFT, 0, 1, row, dnnl_f32, dnnl_a, dnnl_a);
		p->status |=
			dnn->dnnl_memory_desc_init_by_tag(&statistics, 1, column, dnnl_f32, dnnl_a);
		p->status |= dnn->dnnl_layer_normalization_forward_desc_init(
			&p->operation.norm, dnnl_forward_inference, &p->wanted[X], &statistics,
			1e-5f, dnnl_use_scale | dnnl_use_shift);
	}
}

/*
 * Give an operand memory: @data in the plain layout, and a reordered copy if the primitive wants
 * another layout.
 */
static void place(struct preparation *p, const_dnnl_primitive_desc_t description, int which,
		  const void *data)
{
	struct onednn_operator *operator= p->operator;
	struct onednn *dnn = p->dnn;
	dnnl_memory_desc_t *own = &operator->own_desc[which];

	*own = p->queries[which]
		       ? *dnn->dnnl_primitive_desc_query_md(description, p->queries[which], 0)
		       : p->wanted[which];
	p->status |= dnn->dnnl_memory_create(&operator->plain[which], &operator->plain_desc[which],
					     dnn->engine, (void *)data);
	if (!p->status && !dnn->dnnl_memory_desc_equal(&operator->plain_desc[which], own)) {
		p->status |= dnn->dnnl_memory_create(&operator->own[which], own, dnn->engine,
						     DNNL_MEMORY_ALLOCATE);
		if (!p->status && which != Y)
			p->status = onednn_reorder(
				dnn, operator->plain[which],
				&operator->plain_desc[which], operator->own[which], own);
	}
	operator->arguments[operator->n_arguments++] =(dnnl_exec_arg_t){
		p->names[which],
		operator->own[which] ? operator->own[which]: operator->plain[which], };
}

static void describe(struct preparation *p, bool own_layout)
{
	switch (p->shape->kind) {
	case OPERATOR_MATMUL:
	case OPERATOR_MATMUL8:
	case OPERATOR_GEMM:
		prepare_matmul(p);
		break;
	case OPERATOR_CONV:
	case OPERATOR_CONV8:
	case OPERATOR_CONV8_QUANTIZED:
		prepare_convolution(p, own_layout);
		break;
	case OPERATOR_MAX_POOL:
	case OPERATOR_AVERAGE_POOL:
	case OPERATOR_GLOBAL_AVERAGE_POOL:
		prepare_pooling(p, own_layout);
		break;
	default:
		prepare_rows(p);
		break;
	}
}

/* Set one scale per output channel. */
static void scale_channels(struct preparation *p, const float *scales)
{
	struct onednn *dnn = p->dnn;

	p->status |= dnn->dnnl_primitive_attr_create(&p->attributes);
	if (!p->status)
		p->status = dnn->dnnl_primitive_attr_set_output_scales(
			p->attributes, p->shape->out_channels, 1 << 1, scales);
}

int onednn_operator_new(struct library *library, const struct operator_shape *shape,
			const struct operator_data *data, bool own_layout, unsigned int n_threads,
			struct library_operator **ret)
{
	const void *operands[N_OPERANDS] = {data->x, data->weights, data->bias, data->y};
	struct onednn *dnn = container_of(library, struct onednn, library);
	struct preparation p = {.dnn = dnn, .shape = shape};
	dnnl_primitive_desc_t description = NULL;

	p.operator= calloc(1, sizeof(*p.operator));
	if (!p.operator)
		return -ENOMEM;
	p.operator->operator.library = library;
	p.operator->n_threads = n_threads;
	/* The division of work is fixed when a primitive is made. */
	dnn->omp_set_num_threads((int)n_threads);
	describe(&p, own_layout);
	if (shape->kind == OPERATOR_CONV8_QUANTIZED)
		scale_channels(&p, data->bias);
	if (!p.status)
		p.status = dnn->dnnl_primitive_desc_create(&description, &p.operation, p.attributes,
							   dnn->engine, NULL);
	for (int i = 0; i < N_OPERANDS && !p.status; i++)
		if (p.is_there[i])
			place(&p, description, i, operands[i]);
	if (!p.status)
		p.status = dnn->dnnl_primitive_create(&p.operator->primitive, description);
	if (description)
		dnn->dnnl_primitive_desc_destroy(description);
	if (p.attributes)
		dnn->dnnl_primitive_attr_destroy(p.attributes);
	dnn->omp_set_num_threads(1);
	if (p.status) {
		onednn_operator_free(&p.operator->operator);
		return p.status == dnnl_out_of_memory   ? -ENOMEM
		       : p.status == dnnl_unimplemented ? -ENOSYS
							: -EIO;
	}
	*ret = &p.operator->operator;
	return 0;
}

void onednn_operator_free(struct library_operator *base)
{
	struct onednn *dnn = container_of(base->library, struct onednn, library);
	struct onednn_operator *operator= container_of(base, struct onednn_operator, operator);

	if (operator->primitive)
		dnn->dnnl_primitive_destroy(operator->primitive);
	for (int i = 0; i < N_OPERANDS; i++) {
		if (operator->plain[i])
			dnn->dnnl_memory_destroy(operator->plain[i]);
		if (operator->own[i])
			dnn->dnnl_memory_destroy(operator->own[i]);
	}
	free(operator);
}

int onednn_operator_run(struct library_operator *base)
{
	struct onednn *dnn = container_of(base->library, struct onednn, library);
	struct onednn_operator *operator= container_of(base, struct onednn_operator, operator);

	dnn->omp_set_num_threads((int)operator->n_threads);
	if (dnn->dnnl_primitive_execute(operator->primitive,
					dnn->stream, operator->n_arguments, operator->arguments) ||
	    dnn->dnnl_stream_wait(dnn->stream))
		return -EIO;
	return 0;
}

int onednn_operator_fetch(struct library_operator *base)
{
	struct onednn *dnn = container_of(base->library, struct onednn, library);
	struct onednn_operator *operator= container_of(base, struct onednn_operator, operator);

	if (operator->own[Y] &&
	    onednn_reorder(dnn, operator->own[Y], &operator->own_desc[Y], operator->plain[Y],
			   &operator->plain_desc[Y]))
		return -EIO;
	return 0;
}
