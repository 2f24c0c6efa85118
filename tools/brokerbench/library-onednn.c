/* SPDX-License-Identifier: MIT */
/*
 * oneDNN 2 as a baseline
 *
 * Weights are declared with format "any" and reordered once into the layout that the primitive asks
 * for, as inference programs do. One OpenMP thread computes, unless an operator is given more.
 * Version 3 has different interfaces for all of this; a build against it has no oneDNN.
 */
#include "library-onednn.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "util/checked.h"
#include "util/cleanup.h"

struct onednn_matmul {
	struct library_matmul matmul;
	dnnl_memory_t a, b, packed_b, c;
	dnnl_primitive_t primitive;
};

static void onednn_free(struct library *library)
{
	struct onednn *dnn = container_of(library, struct onednn, library);

	if (dnn->stream)
		dnn->dnnl_stream_destroy(dnn->stream);
	if (dnn->engine)
		dnn->dnnl_engine_destroy(dnn->engine);
	free(dnn);
}

static void onednn_matmul_free(struct library_matmul *base)
{
	struct onednn *dnn = container_of(base->library, struct onednn, library);
	struct onednn_matmul *matmul = container_of(base, struct onednn_matmul, matmul);
	dnnl_memory_t memories[] = {matmul->a, matmul->b, matmul->packed_b, matmul->c};

	if (matmul->primitive)
		dnn->dnnl_primitive_destroy(matmul->primitive);
	for (size_t i = 0; i < ARRAY_SIZE(memories); i++)
		if (memories[i])
			dnn->dnnl_memory_destroy(memories[i]);
	free(matmul);
}

static int matmul_new(struct library *library, uint32_t m, uint32_t k, uint32_t n, const void *a,
		      dnnl_data_type_t a_type, const void *b, dnnl_data_type_t b_type, void *c,
		      dnnl_data_type_t c_type, struct library_matmul **ret)
{
	struct onednn *dnn = container_of(library, struct onednn, library);
	const dnnl_dims_t a_dims = {m, k}, b_dims = {k, n}, c_dims = {m, n};
	dnnl_memory_desc_t a_desc, b_desc, any_desc, c_desc;
	dnnl_primitive_desc_t description = NULL;
	const dnnl_memory_desc_t *packed;
	dnnl_matmul_desc_t operation;
	struct onednn_matmul *matmul;
	dnnl_status_t status = dnnl_success;

	matmul = calloc(1, sizeof(*matmul));
	if (!matmul)
		return -ENOMEM;
	matmul->matmul.library = library;

	status |= dnn->dnnl_memory_desc_init_by_tag(&a_desc, 2, a_dims, a_type, dnnl_ab);
	status |= dnn->dnnl_memory_desc_init_by_tag(&b_desc, 2, b_dims, b_type, dnnl_ab);
	status |= dnn->dnnl_memory_desc_init_by_tag(&any_desc, 2, b_dims, b_type,
						    dnnl_format_tag_any);
	status |= dnn->dnnl_memory_desc_init_by_tag(&c_desc, 2, c_dims, c_type, dnnl_ab);
	if (!status)
		status = dnn->dnnl_matmul_desc_init(&operation, &a_desc, &any_desc, NULL, &c_desc);
	if (!status)
		status = dnn->dnnl_primitive_desc_create(&description, &operation, NULL,
							 dnn->engine, NULL);
	if (!status) {
		packed = dnn->dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0);
		status |= dnn->dnnl_memory_create(&matmul->a, &a_desc, dnn->engine, (void *)a);
		status |= dnn->dnnl_memory_create(&matmul->b, &b_desc, dnn->engine, (void *)b);
		status |= dnn->dnnl_memory_create(&matmul->packed_b, packed, dnn->engine,
						  DNNL_MEMORY_ALLOCATE);
		status |= dnn->dnnl_memory_create(&matmul->c, &c_desc, dnn->engine, c);
		if (!status)
			status = onednn_reorder(dnn, matmul->b, &b_desc, matmul->packed_b, packed);
		if (!status)
			status = dnn->dnnl_primitive_create(&matmul->primitive, description);
		dnn->dnnl_primitive_desc_destroy(description);
	}
	if (status) {
		onednn_matmul_free(&matmul->matmul);
		return status == dnnl_out_of_memory ? -ENOMEM : -EIO;
	}
	*ret = &matmul->matmul;
	return 0;
}

static int onednn_matmul_new(struct library *library, uint32_t m, uint32_t k, uint32_t n,
			     const float *a, const float *b, float *c, struct library_matmul **ret)
{
	return matmul_new(library, m, k, n, a, dnnl_f32, b, dnnl_f32, c, dnnl_f32, ret);
}

static int onednn_matmul8_new(struct library *library, uint32_t m, uint32_t k, uint32_t n,
			      const uint8_t *a, const int8_t *b, int32_t *c,
			      struct library_matmul **ret)
{
	return matmul_new(library, m, k, n, a, dnnl_u8, b, dnnl_s8, c, dnnl_s32, ret);
}

static int onednn_matmul_run(struct library_matmul *base)
{
	struct onednn *dnn = container_of(base->library, struct onednn, library);
	struct onednn_matmul *matmul = container_of(base, struct onednn_matmul, matmul);
	const dnnl_exec_arg_t arguments[] = {
		{DNNL_ARG_SRC, matmul->a},
		{DNNL_ARG_WEIGHTS, matmul->packed_b},
		{DNNL_ARG_DST, matmul->c},
	};

	if (dnn->dnnl_primitive_execute(matmul->primitive, dnn->stream, 3, arguments) ||
	    dnn->dnnl_stream_wait(dnn->stream))
		return -EIO;
	return 0;
}

static const struct library_ops onednn_ops = {
	.matmul_new = onednn_matmul_new,
	.matmul8_new = onednn_matmul8_new,
	.matmul_run = onednn_matmul_run,
	.matmul_free = onednn_matmul_free,
	.operator_new = onednn_operator_new,
	.operator_run = onednn_operator_run,
	.operator_fetch = onednn_operator_fetch,
	.operator_free = onednn_operator_free,
	.free = onednn_free,
};

int library_open_onednn(struct library **ret, const char **ret_reason)
{
	struct onednn *dnn;
	bool is_complete = true;
	void *handle;

	handle = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		*ret_reason = "libdnnl.so.2 is not installed";
		return LIBRARY_E_ABSENT;
	}
	dnn = calloc(1, sizeof(*dnn));
	if (!dnn) {
		*ret_reason = "no memory for oneDNN";
		return LIBRARY_E_ABSENT;
	}
	dnn->library.ops = &onednn_ops;
	snprintf(dnn->library.name, sizeof(dnn->library.name), "onednn");

#define LOOK_UP(name)                                         \
	dnn->name = (__typeof__(name) *)dlsym(handle, #name); \
	is_complete = is_complete && dnn->name
	ONEDNN_FUNCTIONS(LOOK_UP);
#undef LOOK_UP
	dnn->omp_set_num_threads = (void (*)(int))dlsym(handle, "omp_set_num_threads");
	if (!is_complete || !dnn->omp_set_num_threads) {
		*ret_reason = "libdnnl.so.2 lacks functions, or is not the OpenMP build";
		free(dnn);
		return LIBRARY_E_ABSENT;
	}
	dnn->omp_set_num_threads(1);
	if (dnn->dnnl_engine_create(&dnn->engine, dnnl_cpu, 0) ||
	    dnn->dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags)) {
		*ret_reason = "oneDNN has no engine here";
		onednn_free(&dnn->library);
		return LIBRARY_E_ABSENT;
	}
	*ret = &dnn->library;
	return 0;
}
