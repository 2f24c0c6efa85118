/* SPDX-License-Identifier: MIT */
/* See kernel-rig.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel-rig.h"
#include "support/test.h"

static uint64_t seed = 4711;

size_t pick(size_t from, size_t to)
{
	return from + reference_random(&seed) % (to - from + 1);
}

struct guarded guarded_new(size_t n)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t bytes = n * sizeof(float), rounded = (bytes + page - 1) / page * page;
	struct guarded g = {.map_bytes = rounded + page};

	g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(g.map != MAP_FAILED);
	assert_int_equal(mprotect((char *)g.map + rounded, page, PROT_NONE), 0);
	g.data = (float *)((char *)g.map + rounded - bytes);
	reference_fill(g.data, n, pick(1, 1000));
	return g;
}

void guarded_free(struct guarded *g)
{
	munmap(g->map, g->map_bytes);
}

#define RUN(name)                                                                    \
	void run_##name(const struct call *call, size_t begin, size_t end, float *y) \
	{                                                                            \
		struct cpu_##name args = *(const struct cpu_##name *)call->args;     \
                                                                                     \
		args.y = (void *)y;                                                  \
		call->kernels->name(&args, begin, end);                              \
	}

RUN(reduce)
RUN(arg)
RUN(scan)
RUN(softmax)
RUN(lp_norm)
RUN(batch_norm)

void run_norm(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_norm args = *(const struct cpu_norm *)call->args;

	args.y = y;
	if (args.mean) {
		args.mean = y + args.rows * args.len;
		args.inv_std = args.mean + args.rows;
	}
	call->kernels->norm(&args, begin, end);
}

void check_splits(const struct call *call)
{
	struct guarded want = guarded_new(call->n_out);

	call->run(call, 0, call->units, want.data);
	for (unsigned int round = 0; round < 3; round++) {
		struct guarded got = guarded_new(call->n_out);
		size_t cuts[6] = {0}, order[5] = {0, 1, 2, 3, 4};

		for (unsigned int i = 1; i < 5; i++)
			cuts[i] = pick(cuts[i - 1], call->units);
		cuts[5] = call->units;
		for (unsigned int i = 0; i < 5; i++) {
			const size_t j = pick(i, 4), t = order[i];

			order[i] = order[j];
			order[j] = t;
			call->run(call, cuts[order[i]], cuts[order[i] + 1], got.data);
		}
		assert_memory_equal(got.data, want.data, call->n_out * sizeof(float));
		guarded_free(&got);
	}
	guarded_free(&want);
}

void for_each_level(void (*check)(const struct cpu_kernels *kernels, void *workspace))
{
	void *workspace = aligned_alloc(CPU_WORKSPACE_ALIGN, CPU_WORKSPACE_BYTES);

	assert_non_null(workspace);
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		const struct cpu_kernels *kernels = cpu_kernels_get((enum cpu_simd)level);

		if (kernels)
			check(kernels, workspace);
	}
	free(workspace);
}

/* Bits, but any NaN is as good as another. */
static void assert_same(const float *a, const float *b, size_t n, bool floats)
{
	for (size_t i = 0; i < n; i++) {
		if (!floats || a[i] == a[i] || b[i] == b[i])
			assert_memory_equal(&a[i], &b[i], sizeof(float));
	}
}

void check_levels(const char *what, struct call call, const void *want, double rtol, double atol)
{
	struct guarded first = {0};

	call.workspace = aligned_alloc(CPU_WORKSPACE_ALIGN, CPU_WORKSPACE_BYTES);
	assert_non_null(call.workspace);
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		struct guarded got = guarded_new(call.n_out);

		call.kernels = cpu_kernels_get((enum cpu_simd)level);
		if (!call.kernels) {
			guarded_free(&got);
			continue;
		}
		call.run(&call, 0, call.units, got.data);
		if (rtol < 0)
			assert_memory_equal(got.data, want, call.n_out * sizeof(float));
		else
			assert_true(reference_close(what, got.data, want, call.n_out, rtol, atol));
		check_splits(&call);
		if (level == CPU_SIMD_SSE2) {
			guarded_free(&got);
			continue;
		}
		if (first.data) {
			assert_same(got.data, first.data, call.n_out, rtol >= 0);
			guarded_free(&first);
		}
		first = got;
	}
	if (first.data)
		guarded_free(&first);
	free(call.workspace);
}
