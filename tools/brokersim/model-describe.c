/* SPDX-License-Identifier: MIT */
/*
 * Descriptions of compiled models: see model-describe.h. This file sees the insides of the
 * libraries, whose names are also those of other structs in the broker and in the tools.
 */
#include "model-describe.h"

#include "libclient/onnx/graph.h"
#include "libclient/private.h"

int model_describe(struct rbk_onnx *onnx, void **ret_desc, size_t *ret_bytes,
		   struct rbk_error *error)
{
	struct rbk_arena arena = {.bytes = 1ull << RBK_REF_OFFSET_BITS, .id = 1};
	struct rbk_builder *builder;
	uint32_t max_count;
	int r;

	r = graph_declare(onnx->graph, &arena, &builder, &max_count, error);
	if (r)
		return r;
	arena.sealed = true;
	r = client_describe(builder, NULL, max_count, ret_desc, ret_bytes, error);
	rbk_builder_free(builder);
	return r;
}
