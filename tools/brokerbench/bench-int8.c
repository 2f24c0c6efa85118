/* SPDX-License-Identifier: MIT */
/*
 * matmul-int8
 *
 * C = A * B of eight-bit numbers, with B a constant that both sides pack beforehand. A is unsigned
 * and B signed, as in quantized models, without zero points; C has 32 bits. A has 7 bits, so that
 * the library's result is exact without VNNI, too. One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cpu/int8.h"
#include "crew.h"
#include "direct.h"
#include "library.h"
#include "util/checked.h"

/* A product of one size; both sides write c. */
struct int8_matmul {
	const struct cpu_int8_kernels *kernels;
	struct cpu_int8_gemm gemm;
	uint8_t *a;
	int8_t *b;
	int32_t *c, *expected;
	void *packed, *workspace;
	struct library_matmul *library;
};

static void int8_deinit(struct int8_matmul *matmul)
{
	library_matmul_free(matmul->library);
	free(matmul->a);
	free(matmul->b);
	free(matmul->c);
	free(matmul->expected);
	free(matmul->packed);
	free(matmul->workspace);
}

static int int8_init(struct int8_matmul *matmul, struct library *library, uint32_t m, uint32_t k,
		     uint32_t n)
{
	const size_t c_bytes = (size_t)m * n * sizeof(int32_t);
	uint32_t random = 1;

	*matmul = (struct int8_matmul){.kernels = cpu_int8_best(CPU_SIMD_AUTO)};
	matmul->a = crew_memory((size_t)m * k);
	matmul->b = crew_memory((size_t)k * n);
	matmul->c = crew_memory(c_bytes);
	matmul->expected = crew_memory(c_bytes);
	matmul->packed = crew_memory(matmul->kernels->pack_b_size(k, n));
	matmul->workspace = crew_memory(CPU_WORKSPACE_BYTES);
	if (!matmul->a || !matmul->b || !matmul->c || !matmul->expected || !matmul->packed ||
	    !matmul->workspace)
		return -ENOMEM;
	for (size_t i = 0; i < (size_t)m * k; i++)
		matmul->a[i] = (uint8_t)((random = random * 1664525u + 1013904223u) >>
					 (32 - LIBRARY_U8_BITS));
	for (size_t i = 0; i < (size_t)k * n; i++)
		matmul->b[i] = (int8_t)((random = random * 1664525u + 1013904223u) >> 24);
	memset(matmul->workspace, 0, CPU_WORKSPACE_BYTES);
	matmul->gemm = (struct cpu_int8_gemm){
		.m = m,
		.n = n,
		.k = k,
		.a = matmul->a,
		.a_rs = k,
		.b = matmul->b,
		.b_rs = n,
		.b_signed = true,
		.b_packed = matmul->packed,
		.y = matmul->c,
		.y_rs = n,
	};
	matmul->kernels->pack_b(&matmul->gemm, 0, SIZE_MAX, matmul->packed);
	return library_matmul8_new(library, m, k, n, matmul->a, matmul->b, matmul->c,
				   &matmul->library);
}

static int run_kernel(void *data)
{
	const struct int8_matmul *matmul = data;

	matmul->kernels->gemm(
		&matmul->gemm,
		&(struct cpu_gemm_tile){.m_end = matmul->gemm.m, .n_end = matmul->gemm.n},
		matmul->workspace);
	return 0;
}

static int run_library(void *data)
{
	return library_matmul_run(((struct int8_matmul *)data)->library);
}

static int compare(struct bench_env *env, struct library *library, uint32_t m, uint32_t k,
		   uint32_t n)
{
	const size_t c_bytes = (size_t)m * n * sizeof(int32_t);
	struct int8_matmul matmul;
	struct bench_row row = {.unit = "us", .baseline = library_name(library)};
	struct direct ours = {env, env->client_cpu, run_kernel, &matmul};
	struct direct theirs = {env, env->client_cpu, run_library, &matmul};
	char params[64];
	int r;

	r = int8_init(&matmul, library, m, k, n);
	if (r) {
		bench_fail(env, r, "cannot prepare %u x %u x %u", m, k, n);
		goto out;
	}
	if (m == k && k == n)
		snprintf(params, sizeof(params), "n=%u %s", n, matmul.kernels->name);
	else
		snprintf(params, sizeof(params), "%ux%ux%u %s", m, k, n, matmul.kernels->name);
	row.params = params;

	memset(matmul.c, 0xff, c_bytes);
	r = run_library(&matmul);
	memcpy(matmul.expected, matmul.c, c_bytes);
	memset(matmul.c, 0xff, c_bytes);
	if (!r)
		r = run_kernel(&matmul);
	if (!r && memcmp(matmul.expected, matmul.c, c_bytes))
		r = -EILSEQ;
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){direct_round, &ours},
				  (struct bench_side){direct_round, &theirs});
	if (r)
		bench_fail(env, r, "%u x %u x %u failed, or differs from the result of %s", m, k, n,
			   library_name(library));
out:
	int8_deinit(&matmul);
	return r;
}

static int run(struct bench_env *env)
{
	static const uint32_t sizes[][3] = {
		{8, 8, 8},          {16, 16, 16},     {32, 32, 32},    {64, 64, 64},
		{128, 128, 128},    {256, 256, 256},  {512, 512, 512}, {1024, 1024, 1024},
		{2048, 2048, 2048}, {64, 768, 10000}, {1, 768, 768},   {16, 768, 3072},
	};
	struct library *library = NULL;
	const char *reason = NULL;
	int r = 0;

	if (library_open_onednn(&library, &reason))
		return bench_skip(env, NULL, "%s", reason);
	for (size_t i = 0; i < ARRAY_SIZE(sizes) && !r; i++)
		r = compare(env, library, sizes[i][0], sizes[i][1], sizes[i][2]);
	library_free(library);
	return r;
}

const struct bench bench_matmul_int8 = {
	.name = "matmul-int8",
	.summary = "products of eight-bit numbers with a constant, by our kernel, one thread",
	.baseline = "oneDNN, one thread",
	.run = run,
};
