/* SPDX-License-Identifier: MIT */
/* A build without the loader of ONNX models: see network.h. */
#include "network.h"

int network_file_new(struct network *network, struct bench_env *env, struct rbk *rbk,
		     const char *model)
{
	return bench_skip(env, model,
			  "this build has no loader of ONNX models (meson option onnx)");
}

struct network_file *network_file_free(struct network_file *file)
{
	return NULL;
}
