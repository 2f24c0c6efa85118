/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor's plans in parts
 *
 * Packed constants, scratch and translations are made and freed in parts, so that the setup thread
 * can run other jobs in between.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/internal.h"
#include "cpu/run-quantize.h"
#include "support/big-plan.h"
#include "support/describe.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "unit/fail-alloc.h"

enum { PART_BYTES = 8 << 20, MOST_STEPS = 1024 + 64 /* of a part */ };
enum { THREE_PARTS = 8 << 20 /* floats of scratch */ };

/* Weights of eight bits are packed in parts, between which the setup thread runs other jobs. */
TEST(test_pack__integer_in_parts)
{
	enum { K = 1000, N_COLUMNS = 9000 };
	struct cpu_int8_gemm gemm = {.n = N_COLUMNS, .k = K, .b_rs = N_COLUMNS};
	struct describe *d = describe_new("", 2);
	const struct cpu_int8_kernels *kernels;
	const struct cpu_plan *compiled;
	struct exec_arena arena;
	struct cpu_rig rig;
	struct plan *plan;
	size_t bytes;
	void *to;

	reference_arena_init(&arena, K * N_COLUMNS, 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	kernels = cpu_int8_best(cpu_executor_from(rig.executor)->kernels->level);
	describe_tensor(d, "x", RBK_TENSOR_INPUT, RBK_DTYPE_U8, 0,
			DESCRIBE_DIMS(DESCRIBE_COUNT, K));
	describe_tensor(d, "w", RBK_TENSOR_CONSTANT, RBK_DTYPE_U8, RBK_REF(REFERENCE_ARENA, 0),
			DESCRIBE_DIMS(K, N_COLUMNS));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_I32);
	describe_node(d, "MatMulInteger", "", "x,w", "y");
	plan = reference_plan(d, &arena);
	cpu_rig_prepare(&rig, plan);
	compiled = plan->exec[RBK_DEVICE_CPU];
	assert_true(compiled->packs[0]->n_filled >= 4);

	bytes = kernels->pack_b_size(K, N_COLUMNS);
	to = aligned_alloc(64, (bytes + 63) / 64 * 64);
	assert_non_null(to);
	gemm.b = arena.base;
	kernels->pack_b(&gemm, 0, SIZE_MAX, to);
	assert_memory_equal(compiled->packs[0]->data, to, bytes);
	free(to);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* Integer weights of convolutions are packed in parts as well, by output channels. */
TEST(test_pack__integer_conv_in_parts)
{
	enum { M = 512, CHANNELS = 2048, TAPS = 9 };
	const struct cpu_int8_kernels *kernels;
	const struct cpu_plan *compiled;
	struct describe *d = describe_new("", 1);
	const struct cpu_step_integer_conv *step;
	struct cpu_int8_conv conv;
	struct exec_arena arena;
	struct cpu_rig rig;
	struct plan *plan;
	size_t bytes;
	void *to;

	reference_arena_init(&arena, M * CHANNELS * TAPS, 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	kernels = cpu_int8_best(cpu_executor_from(rig.executor)->kernels->level);
	describe_tensor(d, "x", RBK_TENSOR_INPUT, RBK_DTYPE_U8, 0,
			DESCRIBE_DIMS(1, CHANNELS, 4, 4));
	describe_tensor(d, "w", RBK_TENSOR_CONSTANT, RBK_DTYPE_U8, RBK_REF(REFERENCE_ARENA, 0),
			DESCRIBE_DIMS(M, CHANNELS, 3, 3));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_I32);
	describe_node(d, "ConvInteger", "", "x,w", "y");
	plan = reference_plan(d, &arena);
	cpu_rig_prepare(&rig, plan);
	compiled = plan->exec[RBK_DEVICE_CPU];
	assert_true(compiled->packs[0]->n_filled >= 4);

	step = cpu_step_args(&compiled->steps[0]);
	conv = (struct cpu_int8_conv){.window = step->args};
	conv.window.weights = (const float *)(const void *)arena.base;
	bytes = kernels->pack_conv_size(&conv.window);
	to = aligned_alloc(64, (bytes + 63) / 64 * 64);
	assert_non_null(to);
	kernels->pack_conv(&conv, 0, SIZE_MAX, to);
	assert_memory_equal(compiled->packs[0]->data, to, bytes);
	free(to);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* Return: a plan with scratch of @n floats for each task. */
static struct plan *scratch_plan(uint32_t n)
{
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(n));
	describe_scratch(d, "s");
	describe_output(d, "y", DESCRIBE_DIMS(n));
	describe_node(d, "Neg", "", "x", "s");
	describe_node(d, "Neg", "", "s", "y");
	return reference_plan(d, NULL);
}

/* Scratch is unmapped in parts, because long tasks may have touched all of it. */
TEST(test_shrink__scratch)
{
	const struct cpu_plan *compiled;
	struct cpu_rig rig;
	struct plan *plan = scratch_plan(THREE_PARTS);
	size_t n_parts;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	cpu_rig_prepare(&rig, plan);
	compiled = plan->exec[RBK_DEVICE_CPU];
	n_parts = compiled->scratch_map_bytes / PART_BYTES;
	assert_true(n_parts >= 3);
	while (rig.executor->ops->plan_shrink(rig.executor, plan) == EXECUTOR_E_MORE)
		assert_int_equal(compiled->scratch_map_bytes / PART_BYTES, --n_parts);
	assert_null(compiled->scratch);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
}

/* Scratch that was measured but never mapped: no other mapping is unmapped in its place. */
TEST(test_shrink__scratch_measured)
{
	const struct cpu_plan *compiled;
	struct cpu_rig rig;
	struct plan *plan = scratch_plan(THREE_PARTS);
	uint8_t *other;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	assert_int_equal(rig.executor->ops->plan_measure(rig.executor, plan), 0);
	compiled = plan->exec[RBK_DEVICE_CPU];
	assert_null(compiled->scratch);
	assert_true(compiled->scratch_map_bytes >= 3 * PART_BYTES);
	/* An address that equals an offset into the scratch. */
	other = mmap((void *)(uintptr_t)(80 << 20), 4096, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	while (rig.executor->ops->plan_shrink(rig.executor, plan) == EXECUTOR_E_MORE)
		;
	if (other != MAP_FAILED) {
		assert_int_equal(msync(other, 4096, MS_ASYNC), 0);
		munmap(other, 4096);
	}
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
}

/* Return a plan of about 4,096 tensors or nodes. */
static struct plan *large_plan(enum big_plan kind)
{
	const struct plan_arena_lookup nothing = {.find = NULL};
	char message[PLAN_MESSAGE_BYTES];
	struct plan *plan;
	size_t bytes;
	void *desc = big_plan(kind, 4096, &bytes);

	assert_int_equal(plan_new(desc, bytes, &nothing, message, &plan), 0);
	free(desc);
	return plan;
}

/*
 * Measure at most @max parts of @plan.
 * Return: the number of parts; *ret_result is the result of the last.
 */
static unsigned int measure_parts(struct cpu_rig *rig, struct plan *plan, unsigned int max,
				  int *ret_result)
{
	const struct cpu_plan *compiled;
	uint32_t n_steps = 0;
	unsigned int n = 0;

	do {
		*ret_result = rig->executor->ops->plan_measure(rig->executor, plan);
		compiled = plan->exec[RBK_DEVICE_CPU];
		assert_true(compiled->n_steps - n_steps <= MOST_STEPS);
		n_steps = compiled->n_steps;
		n++;
	} while (*ret_result == EXECUTOR_E_MORE && n < max);
	return n;
}

/*
 * A plan with more than a hundred thousand steps is translated some steps at a time, and its
 * translation is freed likewise. It can be released after any part.
 */
TEST(test_measure__parts)
{
	static const enum big_plan kinds[] = {BIG_CHAIN, BIG_ATTRS, BIG_FAN_IN};

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct plan *plan = large_plan(kinds[i]);
		struct cpu_plan *compiled;
		unsigned int n_parts;
		struct cpu_rig rig;
		int r;

		cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
		n_parts = measure_parts(&rig, plan, UINT_MAX, &r);
		assert_int_equal(r, 0);
		compiled = plan->exec[RBK_DEVICE_CPU];
		print_message("%-16s %6u steps, %3u parts\n", big_plan_name(kinds[i]),
			      compiled->n_steps, n_parts);
		assert_true(n_parts >= 4 && n_parts >= compiled->n_steps / MOST_STEPS);
		for (uint32_t before = compiled->n_steps; before > MOST_STEPS;) {
			r = rig.executor->ops->plan_shrink(rig.executor, plan);
			assert_true(before - compiled->n_steps <= 4096);
			before = compiled->n_steps;
			if (r == 0)
				break;
		}
		assert_true(compiled->n_steps <= 4096);
		rig.executor->ops->plan_release(rig.executor, plan);
		for (unsigned int n = 1; n < n_parts; n += 1 + n / 4) {
			assert_int_equal(measure_parts(&rig, plan, n, &r), n);
			assert_int_equal(r, EXECUTOR_E_MORE);
			while (rig.executor->ops->plan_shrink(rig.executor, plan) ==
			       EXECUTOR_E_MORE)
				;
			rig.executor->ops->plan_release(rig.executor, plan);
			assert_null(plan->exec[RBK_DEVICE_CPU]);
		}
		plan_free(plan);
		cpu_rig_deinit(&rig);
	}
}

/* Return the bucket of 1,024 that a client would guess if the hash were FNV-1a without a secret. */
static unsigned int guessed_bucket(const struct cpu_pack_key *key)
{
	const uint8_t *bytes = (const uint8_t *)key;
	uint64_t hash = 14695981039346656037ull;

	for (size_t i = 0; i < sizeof(*key); i++)
		hash = (hash ^ bytes[i]) * 1099511628211ull;
	return (hash >> 32) % 1024;
}

/* Return the number of packs that a lookup of @pack visits, including @pack. */
static unsigned int packs_passed(struct cpu_pack_cache *cache, const struct cpu_pack *pack)
{
	struct index_node *node;
	unsigned int n;

	node = *index_locate(&cache->root, pack->node.hash, &n);
	while (node && node != &pack->node) {
		node = index_next(node);
		n++;
	}
	assert_non_null(node);
	return n;
}

/* A client chooses the offsets of its constants, but finding their packs still takes few steps. */
TEST(test_pack__offsets_chosen)
{
	enum { N = 500, MOST_PASSED = 40 };
	struct cpu_pack_key key = {.owner = 1, .dev = 2, .ino = 3, .bytes = 2048, .form = {1}};
	struct cpu_pack *packs[N], *again;
	struct cpu_pack_cache cache;
	struct chunks memory;

	chunks_init(&memory, CHUNKS_LARGE);
	cpu_pack_cache_init(&cache, &memory);
	for (unsigned int i = 0; i < N; i++) {
		do
			key.offset += 64;
		while (guessed_bucket(&key) != 0);
		assert_int_equal(cpu_pack_get(&cache, &key, 1, &packs[i]), 0);
	}
	for (unsigned int i = 0; i < N; i++) {
		assert_true(packs_passed(&cache, packs[i]) <= MOST_PASSED);
		assert_int_equal(cpu_pack_get(&cache, &packs[i]->key, 1, &again), 0);
		assert_ptr_equal(again, packs[i]);
		cpu_pack_unref(&cache, again);
	}
	for (unsigned int i = 0; i < N; i++)
		cpu_pack_unref(&cache, packs[i]);
	assert_null(cache.root);
	assert_int_equal(cache.bytes, 0);
	chunks_deinit(&memory);
}

/*
 * Return a plan of @n products with one matrix, or with separate matrices that lie @stride bytes
 * apart.
 */
static struct plan *products_plan(struct exec_arena *arena, unsigned int n, unsigned int stride)
{
	struct describe *d = describe_new("", 1);
	char inputs[40], output[16], w[16];

	describe_input(d, "x", DESCRIBE_DIMS(200, 200));
	describe_output(d, "y", DESCRIBE_DIMS(200, 200));
	for (unsigned int i = 0; i < n; i++) {
		if (i == 0 || stride) {
			snprintf(w, sizeof(w), "w%u", i);
			describe_constant(d, w, RBK_REF(REFERENCE_ARENA, i * stride),
					  DESCRIBE_DIMS(200, 200));
		}
		snprintf(output, sizeof(output), i + 1 < n ? "s%u" : "y", i);
		if (i + 1 < n)
			describe_tensor(d, output, RBK_TENSOR_SCRATCH, RBK_DTYPE_F32, 0,
					DESCRIBE_DIMS(200, 200));
		if (i == 0)
			snprintf(inputs, sizeof(inputs), "x,%s", w);
		else
			snprintf(inputs, sizeof(inputs), "s%u,%s", i - 1, w);
		describe_node(d, "MatMul", "", inputs, output);
	}
	return reference_plan(d, arena);
}

/* Two plans that are translated in turns each hold one reference to a shared packed form. */
TEST(test_measure__in_turns)
{
	const struct cpu_plan *compiled;
	struct exec_arena arena;
	struct plan *plans[2];
	struct cpu_rig rig;
	int r[2] = {EXECUTOR_E_MORE, EXECUTOR_E_MORE};

	reference_arena_init(&arena, 200 * 200 * sizeof(float), 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (unsigned int i = 0; i < 2; i++)
		plans[i] = products_plan(&arena, 2000, 0);
	for (unsigned int n = 0; r[0] || r[1]; n++) {
		assert_true(r[0] == r[1] || n % 2 == 1);
		r[n % 2] = rig.executor->ops->plan_measure(rig.executor, plans[n % 2]);
		assert_true(r[n % 2] == 0 || r[n % 2] == EXECUTOR_E_MORE);
	}
	for (unsigned int i = 0; i < 2; i++) {
		compiled = plans[i]->exec[RBK_DEVICE_CPU];
		assert_int_equal(compiled->n_packs, 1);
		assert_int_equal(compiled->packs[0]->n_refs, 2);
	}
	assert_int_equal(plans[0]->host_bytes[RBK_DEVICE_CPU],
			 plans[1]->host_bytes[RBK_DEVICE_CPU]);
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plans[i]), 0);
		cpu_rig_release(&rig, plans[i]);
	}
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* Making a pack takes system calls, so a part makes fewer packs than it compiles products. */
TEST(test_measure__packs)
{
	enum { STRIDE = 64, MOST_PACKS = 256 };
	const struct cpu_plan *compiled;
	struct exec_arena arena;
	uint32_t n_before = 0;
	struct cpu_rig rig;
	struct plan *plan;
	int r;

	reference_arena_init(&arena, 200 * 200 * sizeof(float) + 2000 * STRIDE, 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	plan = products_plan(&arena, 2000, STRIDE);
	do {
		r = rig.executor->ops->plan_measure(rig.executor, plan);
		compiled = plan->exec[RBK_DEVICE_CPU];
		assert_true(compiled->n_packs - n_before <= MOST_PACKS);
		n_before = compiled->n_packs;
	} while (r == EXECUTOR_E_MORE);
	assert_int_equal(r, 0);
	assert_int_equal(compiled->n_packs, 2000);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* Return the mappings of this process. The kernel allows some 65,000 (vm.max_map_count). */
static unsigned int count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned int n = 0;
	int c;

	assert_non_null(maps);
	while ((c = getc(maps)) != EOF)
		n += c == '\n';
	fclose(maps);
	return n;
}

/* A plan that runs out of memory frees its packs some at a time. */
TEST(test_measure__out_of_memory)
{
	enum { STRIDE = 64, MOST_PACKS = 256 };
	const struct cpu_plan *compiled;
	unsigned int n_calls = 0;
	struct exec_arena arena;
	struct cpu_rig rig;
	struct plan *plan;
	uint32_t n_before;
	int r;

	reference_arena_init(&arena, 200 * 200 * sizeof(float) + 2000 * STRIDE, 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	plan = products_plan(&arena, 2000, STRIDE);
	do {
		assert_int_equal(rig.executor->ops->plan_measure(rig.executor, plan),
				 EXECUTOR_E_MORE);
		compiled = plan->exec[RBK_DEVICE_CPU];
	} while (compiled->n_packs < 5 * MOST_PACKS);
	fail_alloc_at(1);
	do {
		n_before = compiled->n_packs;
		r = rig.executor->ops->plan_measure(rig.executor, plan);
		assert_true(r == -ENOMEM || n_before - compiled->n_packs <= MOST_PACKS);
		n_calls++;
	} while (r == EXECUTOR_E_MORE);
	assert_true(fail_alloc_stop());
	assert_int_equal(r, -ENOMEM);
	assert_true(n_before <= MOST_PACKS && n_calls >= 5);
	assert_null(plan->exec[RBK_DEVICE_CPU]);
	assert_null(cpu_executor_from(rig.executor)->packs.root);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* A plan with all of its packs, but no memory for its scratch, also frees them in parts. */
TEST(test_compile__out_of_memory)
{
	enum { STRIDE = 64, N = 600 };
	const struct cpu_pack_cache *packs;
	uint64_t most_bytes = 0, before;
	const struct cpu_plan *compiled;
	struct exec_arena arena;
	struct cpu_rig rig;
	struct plan *plan;
	int r;

	reference_arena_init(&arena, 200 * 200 * sizeof(float) + N * STRIDE, 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	packs = &cpu_executor_from(rig.executor)->packs;
	plan = products_plan(&arena, N, STRIDE);
	while ((r = rig.executor->ops->plan_measure(rig.executor, plan)) == EXECUTOR_E_MORE)
		;
	assert_int_equal(r, 0);
	compiled = plan->exec[RBK_DEVICE_CPU];
	fail_alloc_at(1);
	do {
		before = packs->committed_bytes;
		r = rig.executor->ops->plan_compile(rig.executor, plan);
		most_bytes = before > most_bytes ? before : most_bytes;
		/* The last pack of a part may be as large as another part. */
		assert_true(before < packs->committed_bytes + 2 * PART_BYTES);
	} while (r == EXECUTOR_E_MORE);
	assert_true(fail_alloc_stop());
	assert_true(most_bytes >= 10 * PART_BYTES);
	assert_int_equal(r, 0);
	assert_int_equal(compiled->n_packs, 0);
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan), -ENOMEM);
	assert_int_equal(plan->device_state[RBK_DEVICE_CPU], PLAN_DEVICE_NO_MEMORY);
	assert_int_equal(plan->host_bytes[RBK_DEVICE_CPU], 0);
	assert_null(plan->exec[RBK_DEVICE_CPU]);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* Small packs share mappings, also when every second pack is freed. */
TEST(test_pack__mappings)
{
	enum { N = 4000, MOST_MAPPINGS = 100 };
	struct cpu_pack_key key = {.owner = 1, .dev = 2, .ino = 3, .bytes = 2048, .form = {1}};
	const unsigned int n_before = count_mappings();
	static struct cpu_pack *packs[N];
	struct cpu_pack_cache cache;
	struct chunks memory;
	unsigned int n;

	chunks_init(&memory, CHUNKS_LARGE);
	cpu_pack_cache_init(&cache, &memory);
	for (unsigned int i = 0; i < N; i++) {
		key.offset = i;
		assert_int_equal(cpu_pack_get(&cache, &key, 512 << i % 3, &packs[i]), 0);
	}
	for (unsigned int i = 0; i < N; i++) {
		assert_int_equal(cpu_pack_commit(&cache, packs[i]), 0);
		packs[i]->data[0] = 1;
	}
	for (unsigned int i = 0; i < N; i += 2)
		packs[i] = cpu_pack_unref(&cache, packs[i]);
	n = count_mappings();
	print_message("%u packs: %u mappings, %u before\n", N / 2, n, n_before);
	for (unsigned int i = 1; i < N; i += 2)
		cpu_pack_unref(&cache, packs[i]);
	assert_int_equal(cache.bytes, 0);
	chunks_deinit(&memory);
	assert_true(n <= n_before + MOST_MAPPINGS);
	assert_true(count_mappings() <= n_before + MOST_MAPPINGS);
}

/* The scratch of small plans shares mappings. */
TEST(test_scratch__mappings)
{
	enum { N = 1000, MOST_MAPPINGS = 100 };
	static struct plan *plans[N];
	unsigned int n, n_before;
	struct cpu_rig rig;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	n_before = count_mappings();
	for (unsigned int i = 0; i < N; i++) {
		plans[i] = scratch_plan(1024);
		cpu_rig_prepare(&rig, plans[i]);
	}
	for (unsigned int i = 0; i < N; i += 2)
		cpu_rig_release(&rig, plans[i]);
	n = count_mappings();
	print_message("%u plans: %u mappings, %u before\n", N / 2, n, n_before);
	for (unsigned int i = 1; i < N; i += 2)
		cpu_rig_release(&rig, plans[i]);
	cpu_rig_deinit(&rig);
	/* A sanitizer's allocator may have fewer than before. */
	assert_true(n <= n_before + MOST_MAPPINGS);
}
