/* SPDX-License-Identifier: MIT */
/*
 * The CPU kernel of MatMul without a broker
 *
 * The other threads are handed a product by a generation counter and take parts of it from a
 * shared counter until none is left, so that a thread whose processor is taken away for a moment
 * delays nobody for longer than one part. A helper spins a little between products and then sleeps
 * on a futex, because the rounds of the other side need its processor.
 */
#include "kernel-matmul.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/kernels.h"
#include "util/clock.h"

#define MAX_THREADS 64u

/* Parts of a product per thread, if it is large enough. */
#define PARTS_PER_THREAD 4u

#define HELPER_SPIN_NS   50000u

struct kernel_matmul {
	const struct cpu_kernels *kernels;
	struct cpu_gemm gemm;
	float *packed;
	size_t rows_per_part;
	uint32_t n_parts;
	unsigned int n_threads;
	unsigned int n_helpers; /* started */
	pthread_t helpers[MAX_THREADS];
	void *workspaces[MAX_THREADS];
	_Atomic uint32_t next_helper;

	_Alignas(128) _Atomic uint32_t generation; /* of the product; GENERATION_END */
	_Alignas(128) _Atomic uint32_t next_part;
	_Alignas(128) _Atomic uint32_t n_running; /* helpers that have not finished */
};

#define GENERATION_END UINT32_MAX

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static void compute(struct kernel_matmul *matmul, void *workspace)
{
	struct cpu_gemm_tile tile = {.n_begin = 0, .n_end = matmul->gemm.n};
	uint32_t part;

	for (;;) {
		part = atomic_fetch_add_explicit(&matmul->next_part, 1, memory_order_relaxed);
		if (part >= matmul->n_parts)
			return;
		tile.m_begin = part * matmul->rows_per_part;
		tile.m_end = tile.m_begin + matmul->rows_per_part;
		if (tile.m_end > matmul->gemm.m)
			tile.m_end = matmul->gemm.m;
		matmul->kernels->gemm(&matmul->gemm, &tile, workspace);
	}
}

/* Waits for a generation other than @seen. Pairs with the release in kernel_matmul_run(). */
static uint32_t wait_generation(struct kernel_matmul *matmul, uint32_t seen)
{
	uint64_t start = clock_ticks(), spin = clock_ns_to_ticks(HELPER_SPIN_NS);
	uint32_t generation;

	for (;;) {
		generation = atomic_load_explicit(&matmul->generation, memory_order_acquire);
		if (generation != seen)
			return generation;
		if (clock_ticks() - start > spin)
			syscall(SYS_futex, &matmul->generation, FUTEX_WAIT_PRIVATE, seen, NULL,
				NULL, 0);
		else
			relax();
	}
}

static void *helper_main(void *data)
{
	struct kernel_matmul *matmul = data;
	uint32_t index = atomic_fetch_add(&matmul->next_helper, 1);
	uint32_t generation = 0;

	for (;;) {
		generation = wait_generation(matmul, generation);
		if (generation == GENERATION_END)
			return NULL;
		compute(matmul, matmul->workspaces[index + 1]);
		/* Pairs with the acquire in kernel_matmul_run(): the result is visible. */
		atomic_fetch_sub_explicit(&matmul->n_running, 1, memory_order_release);
	}
}

static void set_generation(struct kernel_matmul *matmul, uint32_t generation)
{
	atomic_store_explicit(&matmul->generation, generation, memory_order_release);
	syscall(SYS_futex, &matmul->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void kernel_matmul_run(struct kernel_matmul *matmul)
{
	uint32_t generation;

	atomic_store_explicit(&matmul->next_part, 0, memory_order_relaxed);
	if (matmul->n_helpers > 0) {
		atomic_store_explicit(&matmul->n_running, matmul->n_helpers, memory_order_relaxed);
		generation = atomic_load_explicit(&matmul->generation, memory_order_relaxed) + 1;
		set_generation(matmul, generation == GENERATION_END ? 1 : generation);
	}
	compute(matmul, matmul->workspaces[0]);
	while (matmul->n_helpers > 0 &&
	       atomic_load_explicit(&matmul->n_running, memory_order_acquire) > 0)
		relax();
}

struct kernel_matmul *kernel_matmul_free(struct kernel_matmul *matmul)
{
	if (!matmul)
		return NULL;
	if (matmul->n_helpers > 0)
		set_generation(matmul, GENERATION_END);
	for (unsigned int i = 0; i < matmul->n_helpers; i++)
		pthread_join(matmul->helpers[i], NULL);
	for (unsigned int i = 0; i < matmul->n_threads; i++)
		free(matmul->workspaces[i]);
	free(matmul->packed);
	free(matmul);
	return NULL;
}

static size_t round_up(size_t value, size_t unit)
{
	return (value + unit - 1) / unit * unit;
}

int kernel_matmul_new(uint32_t m, uint32_t k, uint32_t n, const float *a, const float *b, float *c,
		      unsigned int n_threads, struct kernel_matmul **ret)
{
	struct kernel_matmul *matmul;
	size_t rows, n_packed;
	int r;

	if (n_threads > MAX_THREADS)
		return -EINVAL;
	matmul = aligned_alloc(128, round_up(sizeof(*matmul), 128));
	if (!matmul)
		return -ENOMEM;
	memset(matmul, 0, sizeof(*matmul));
	matmul->kernels = cpu_kernels_get(CPU_SIMD_AUTO);
	matmul->n_threads = n_threads;

	n_packed = matmul->kernels->pack_b_size(k, n);
	matmul->packed = aligned_alloc(CPU_WORKSPACE_ALIGN,
				       round_up(n_packed * sizeof(float), CPU_WORKSPACE_ALIGN));
	if (!matmul->packed)
		goto no_memory;
	matmul->kernels->pack_b(k, n, b, n, 1, matmul->packed);
	for (unsigned int i = 0; i < n_threads; i++) {
		matmul->workspaces[i] = aligned_alloc(CPU_WORKSPACE_ALIGN, CPU_WORKSPACE_BYTES);
		if (!matmul->workspaces[i])
			goto no_memory;
		memset(matmul->workspaces[i], 0, CPU_WORKSPACE_BYTES);
	}
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
	rows = m;
	if (n_threads > 1)
		rows = round_up((m + n_threads * PARTS_PER_THREAD - 1) /
					(n_threads * PARTS_PER_THREAD),
				matmul->kernels->gemm_mr);
	matmul->rows_per_part = rows;
	matmul->n_parts = (uint32_t)((m + rows - 1) / rows);

	for (; matmul->n_helpers + 1 < n_threads; matmul->n_helpers++) {
		r = -pthread_create(&matmul->helpers[matmul->n_helpers], NULL, helper_main, matmul);
		if (r) {
			kernel_matmul_free(matmul);
			return r;
		}
	}
	*ret = matmul;
	return 0;

no_memory:
	kernel_matmul_free(matmul);
	return -ENOMEM;
}
