/* SPDX-License-Identifier: MIT */
/*
 * The product with weights of four bits called directly: every block size and kind of zero point,
 * depths that end anywhere, few rows and many, against sums in double precision; the same bits
 * however it is cut, and at AVX2 and AVX-512.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "reference/reference.h"
#include "support/test.h"

static uint64_t seed = 4242;

static size_t pick(size_t from, size_t to)
{
	return from + reference_random(&seed) % (to - from + 1);
}

static float *floats(size_t n)
{
	float *data = reference_alloc(n * sizeof(float));

	reference_fill(data, n, pick(1, 1000));
	return data;
}

struct problem {
	struct cpu_nbits args;
	struct cpu_nbits_weights weights;
	float *a, *scales, *zeros_float, *bias, *want;
	uint8_t *b, *zeros;
};

static void problem_init(struct problem *p, size_t m, size_t n, size_t k, size_t block)
{
	const size_t blocks = (k + block - 1) / block, zero_bytes = n * ((blocks + 1) / 2);
	const size_t kind = pick(0, 2);

	*p = (struct problem){
		.a = floats(m * k),
		.scales = floats(n * blocks),
		.zeros_float = floats(n * blocks),
		.bias = floats(n),
		.want = reference_alloc(m * n * sizeof(float)),
		.b = reference_alloc(n * blocks * block / 2),
		.zeros = reference_alloc(zero_bytes),
	};
	for (size_t i = 0; i < n * blocks * block / 2; i++)
		p->b[i] = (uint8_t)(reference_random(&seed) >> 20);
	for (size_t i = 0; i < zero_bytes; i++)
		p->zeros[i] = (uint8_t)(reference_random(&seed) >> 20);
	for (size_t i = 0; i < n * blocks; i++)
		p->zeros_float[i] = p->zeros_float[i] * 8 + 8;
	p->weights = (struct cpu_nbits_weights){
		.k = k,
		.n = n,
		.block = block,
		.b = p->b,
		.scales = p->scales,
		.zeros = kind == 1 ? p->zeros : NULL,
		.zeros_float = kind == 2 ? p->zeros_float : NULL,
	};
	p->args = (struct cpu_nbits){
		.m = m,
		.n = n,
		.k = k,
		.k_end = k,
		.block = block,
		.a = p->a,
		.a_rs = k,
		.bias = pick(0, 1) ? p->bias : NULL,
		.y_rs = n,
	};
	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < n; j++) {
			double sum = p->args.bias ? (double)p->bias[j] : 0;

			for (size_t q = 0; q < k; q++) {
				const size_t at = j * blocks + q / block;
				const uint8_t byte = p->b[at * block / 2 + q % block / 2];
				const uint8_t two =
					p->zeros[j * ((blocks + 1) / 2) + q / block / 2];
				const double zero =
					kind == 2   ? (double)p->zeros_float[at]
					: kind == 1 ? (double)(two >> (q / block % 2 ? 4 : 0) & 15)
						    : 8;

				sum += (double)p->a[i * k + q] *
				       ((double)(byte >> (q % 2 ? 4 : 0) & 15) - zero) *
				       (double)p->scales[at];
			}
			p->want[i * n + j] = (float)sum;
		}
}

static void problem_deinit(struct problem *p)
{
	free(p->a);
	free(p->scales);
	free(p->zeros_float);
	free(p->bias);
	free(p->want);
	free(p->b);
	free(p->zeros);
}

static void check(const struct problem *p, void *workspace)
{
	const size_t bytes = p->args.m * p->args.n * sizeof(float);
	float *avx2 = NULL;

	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		const struct cpu_kernels *kernels = cpu_kernels_get((enum cpu_simd)level);
		struct cpu_nbits args = p->args;
		float *whole = reference_alloc(bytes), *pieces = reference_alloc(bytes);
		size_t m, n;
		void *packed;

		if (!kernels) {
			free(whole);
			free(pieces);
			continue;
		}
		packed = reference_alloc(kernels->pack_nbits_size(args.k, args.n, args.block));
		kernels->pack_nbits(&p->weights, packed);
		args.packed = packed;
		args.y = whole;
		kernels->nbits(&args, &(struct cpu_gemm_tile){0, args.m, 0, args.n}, workspace);
		assert_true(reference_close(kernels->name, whole, p->want, args.m * args.n, 1e-4,
					    1e-3));
		m = pick(0, args.m);
		n = pick(0, args.n / kernels->gemm_nr) * kernels->gemm_nr;
		args.y = pieces;
		kernels->nbits(&args, &(struct cpu_gemm_tile){0, m, n, args.n}, workspace);
		kernels->nbits(&args, &(struct cpu_gemm_tile){m, args.m, 0, n}, workspace);
		kernels->nbits(&args, &(struct cpu_gemm_tile){m, args.m, n, args.n}, workspace);
		kernels->nbits(&args, &(struct cpu_gemm_tile){0, m, 0, n}, workspace);
		assert_memory_equal(whole, pieces, bytes);
		if (avx2)
			assert_memory_equal(whole, avx2, bytes);
		if (level == CPU_SIMD_AVX2)
			avx2 = whole;
		else
			free(whole);
		free(pieces);
		free(packed);
	}
	free(avx2);
}

TEST(test_nbits__every_form)
{
	static const size_t blocks[] = {16, 32, 64, 128, 256};
	void *workspace = aligned_alloc(CPU_WORKSPACE_ALIGN, CPU_WORKSPACE_BYTES);

	assert_non_null(workspace);
	for (unsigned int round = 0; round < 60; round++) {
		struct problem p;

		problem_init(&p, round % 2 ? pick(1, 6) : pick(1, 30), pick(1, 80),
			     round % 5 ? pick(1, 300) : pick(380, 1000), blocks[round % 5]);
		check(&p, workspace);
		problem_deinit(&p);
	}
	free(workspace);
}
