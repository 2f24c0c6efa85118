/* SPDX-License-Identifier: MIT */
/* MatMul's CPU kernel without a broker */
#include "kernel-matmul.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/kernels.h"
#include "crew.h"
#include "shm/number.h"

struct kernel_matmul {
	const struct cpu_kernels *kernels;
	struct cpu_gemm gemm;
	float *packed;
	struct crew *crew;
};

static void compute(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_matmul *matmul = data;
	const size_t mr = matmul->kernels->gemm_mr, m = matmul->gemm.m;
	const struct cpu_gemm_tile tile = {
		.m_begin = begin * mr,
		.m_end = end * mr < m ? end * mr : m,
		.n_end = matmul->gemm.n,
	};

	matmul->kernels->gemm(&matmul->gemm, &tile, workspace);
}

void kernel_matmul_run(struct kernel_matmul *matmul)
{
	const size_t mr = matmul->kernels->gemm_mr;

	crew_run(matmul->crew, compute, matmul, div_up(matmul->gemm.m, mr));
}

struct kernel_matmul *kernel_matmul_free(struct kernel_matmul *matmul)
{
	if (!matmul)
		return NULL;
	crew_free(matmul->crew);
	free(matmul->packed);
	free(matmul);
	return NULL;
}

int kernel_matmul_new(uint32_t m, uint32_t k, uint32_t n, const float *a, const float *b, float *c,
		      unsigned int n_threads, struct kernel_matmul **ret)
{
	struct kernel_matmul *matmul = calloc(1, sizeof(*matmul));
	size_t n_packed;
	int r;

	if (!matmul)
		return -ENOMEM;
	matmul->kernels = cpu_kernels_get(CPU_SIMD_AUTO);
	n_packed = matmul->kernels->pack_b_size(k, n);
	matmul->packed = crew_memory(n_packed * sizeof(float));
	r = matmul->packed ? crew_new(n_threads, &matmul->crew) : -ENOMEM;
	if (r) {
		kernel_matmul_free(matmul);
		return r;
	}
	matmul->kernels->pack_b(k, n, b, n, 1, matmul->packed);
	matmul->gemm = (struct cpu_gemm){
		.m = m,
		.n = n,
		.k = k,
		.a = a,
		.a_rs = k,
		.a_cs = 1,
		.b = b,
		.b_rs = n,
		.b_cs = 1,
		.b_packed = matmul->packed,
		.y = c,
		.y_rs = n,
		.alpha = 1.0f,
	};
	*ret = matmul;
	return 0;
}
