#pragma once
/* SPDX-License-Identifier: MIT */
/* oneDNN 2: declarations shared by its files */
#include <oneapi/dnnl/dnnl.h>

#include "library-ops.h"

_Static_assert(DNNL_VERSION_MAJOR == 2, "built only with headers of version 2");

/* functions used, looked up by name */
#define ONEDNN_FUNCTIONS(f)                            \
	f(dnnl_engine_create);                         \
	f(dnnl_engine_destroy);                        \
	f(dnnl_stream_create);                         \
	f(dnnl_stream_destroy);                        \
	f(dnnl_stream_wait);                           \
	f(dnnl_memory_desc_init_by_tag);               \
	f(dnnl_memory_desc_equal);                     \
	f(dnnl_memory_create);                         \
	f(dnnl_memory_destroy);                        \
	f(dnnl_matmul_desc_init);                      \
	f(dnnl_dilated_convolution_forward_desc_init); \
	f(dnnl_pooling_v2_forward_desc_init);          \
	f(dnnl_softmax_forward_desc_init);             \
	f(dnnl_layer_normalization_forward_desc_init); \
	f(dnnl_eltwise_forward_desc_init);             \
	f(dnnl_primitive_attr_create);                 \
	f(dnnl_primitive_attr_destroy);                \
	f(dnnl_primitive_attr_set_output_scales);      \
	f(dnnl_primitive_desc_create);                 \
	f(dnnl_primitive_desc_destroy);                \
	f(dnnl_primitive_desc_query_md);               \
	f(dnnl_primitive_create);                      \
	f(dnnl_primitive_destroy);                     \
	f(dnnl_primitive_execute);                     \
	f(dnnl_reorder_primitive_desc_create)

struct onednn {
	struct library library;
#define DECLARE(name) __typeof__(name) *name
	ONEDNN_FUNCTIONS(DECLARE);
#undef DECLARE
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	/* OpenMP's setting for the calling thread; oneDNN has no limit of its own. */
	void (*omp_set_num_threads)(int);
};

/* Copy @from to @to, whatever their layouts. */
dnnl_status_t onednn_reorder(struct onednn *dnn, dnnl_memory_t from,
			     const dnnl_memory_desc_t *from_desc, dnnl_memory_t to,
			     const dnnl_memory_desc_t *to_desc);

/* members of struct library_ops, in library-onednn-operator.c */
int onednn_operator_new(struct library *library, const struct operator_shape *shape,
			const struct operator_data *data, bool own_layout, unsigned int n_threads,
			struct library_operator **ret);
int onednn_operator_run(struct library_operator *base);
int onednn_operator_fetch(struct library_operator *base);
void onednn_operator_free(struct library_operator *base);
