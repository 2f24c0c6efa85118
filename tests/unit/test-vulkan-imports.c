/* SPDX-License-Identifier: MIT */
/*
 * Imports that fail, with a driver that has no memory from then on until its device is made anew
 *
 * The driver is the card of tests/support/card-driver.c, which does as NVIDIA's does.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/test.h"
#include "vulkan-rig.h"
#include "vulkan/device.h"

enum { GPU = RBK_DEVICE_GPU, ARENA_BYTES = 64 * 64 * 4, BREAKING = 3 };

static void begin(struct rig *rig, const char *imports)
{
	setenv("RBK_CARD_IMPORTS", imports, 1);
	rig_init(rig, &(struct vulkan_options){0});
}

static void end(struct rig *rig)
{
	rig_deinit(rig);
	unsetenv("RBK_CARD_IMPORTS");
}

/* Make an arena that the driver cannot pin: its mapping has only @protection. */
static void arena_init(struct rig *rig, struct exec_arena *arena, bool immutable, int protection)
{
	rig_arena_init(NULL, arena, ARENA_BYTES);
	reference_fill((float *)arena->base, ARENA_BYTES / 4, 3);
	assert_int_equal(mprotect(arena->base, arena->bytes, protection), 0);
	arena->immutable = immutable;
	rig->executor->ops->arena_import(rig->executor, arena);
}

static void arena_deinit(struct rig *rig, struct exec_arena *arena)
{
	rig->executor->ops->arena_release(rig->executor, arena);
	assert_int_equal(mprotect(arena->base, arena->bytes, PROT_READ | PROT_WRITE), 0);
	rig_arena_deinit(NULL, arena);
}

static bool is_lost(const struct rig *rig)
{
	return rig->executor->ops->is_lost(rig->executor);
}

static void reopen(struct rig *rig)
{
	assert_int_equal(rig->executor->ops->reopen(rig->executor), 0);
}

/* Run a product with a constant of @arena on the device. */
static void run_product(struct rig *rig, struct exec_arena *arena)
{
	struct plan *plan = rig_product_plan(arena, 0, 64, 64);
	struct job job;

	rig_prepare(rig, plan);
	job_init(rig, &job, plan, 3, 1);
	rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	assert_true(job_check(&job, 1e-5, 1e-5));
	/* Inputs and outputs are still reached in place. */
	assert_int_equal(job.task.copied_bytes, 0);
	job_deinit(rig, &job);
	rig_release(rig, plan);
}

/* An unknown driver breaks once; after that no immutable arena is imported. */
TEST(test_immutable__breaks_once)
{
	struct exec_arena first, second;
	struct rig rig;

	begin(&rig, "breaks");
	arena_init(&rig, &first, true, PROT_READ);
	assert_null(first.import[GPU]);
	assert_true(is_lost(&rig));
	reopen(&rig);
	assert_false(is_lost(&rig));
	arena_init(&rig, &second, true, PROT_READ);
	assert_null(second.import[GPU]);
	assert_false(is_lost(&rig));
	arena_deinit(&rig, &first);
	arena_deinit(&rig, &second);
	end(&rig);
}

/* NVIDIA's driver is known: nothing breaks, and constants reach the device by a copy. */
TEST(test_immutable__of_nvidia)
{
	struct exec_arena arena;
	struct rig rig;

	begin(&rig, "nvidia");
	arena_init(&rig, &arena, true, PROT_READ);
	assert_null(arena.import[GPU]);
	assert_false(is_lost(&rig));
	run_product(&rig, &arena);
	arena_deinit(&rig, &arena);
	end(&rig);
}

/* An arena that was registered while the device was lost breaks the reopened one, once. */
TEST(test_reopen__breaks_once)
{
	struct exec_arena immutable, good, bad;
	struct rig rig;

	begin(&rig, "breaks");
	arena_init(&rig, &immutable, true, PROT_READ);
	assert_true(is_lost(&rig));
	arena_init(&rig, &bad, false, PROT_NONE);
	rig_arena_init(&rig, &good, ARENA_BYTES);
	reopen(&rig);
	assert_true(is_lost(&rig));
	reopen(&rig);
	assert_false(is_lost(&rig));
	reference_fill((float *)good.base, ARENA_BYTES / 4, 3);
	run_product(&rig, &good);
	rig_arena_deinit(&rig, &good);
	arena_deinit(&rig, &bad);
	arena_deinit(&rig, &immutable);
	end(&rig);
}

/* A client that makes imports fail costs the others the fast path in the end, but not the device.
 */
TEST(test_import__given_up)
{
	struct exec_arena bad[BREAKING + 1], good;
	struct rig rig;

	begin(&rig, "nvidia");
	for (unsigned int i = 0; i < BREAKING; i++) {
		arena_init(&rig, &bad[i], false, PROT_NONE);
		assert_null(bad[i].import[GPU]);
		assert_true(is_lost(&rig));
		reopen(&rig);
		assert_false(is_lost(&rig));
	}
	arena_init(&rig, &bad[BREAKING], false, PROT_NONE);
	rig_arena_init(&rig, &good, ARENA_BYTES);
	assert_null(good.import[GPU]);
	assert_false(is_lost(&rig));
	rig_arena_deinit(&rig, &good);
	for (unsigned int i = 0; i <= BREAKING; i++)
		arena_deinit(&rig, &bad[i]);
	end(&rig);
}

/* Arenas that were registered while the device was lost break it as often as others, together. */
TEST(test_reopen__given_up)
{
	struct exec_arena bad[BREAKING + 2];
	unsigned int n_reopened = 0;
	struct rig rig;

	begin(&rig, "nvidia");
	rig.executor->ops->lose(rig.executor, "the test loses it");
	for (unsigned int i = 0; i < BREAKING + 2; i++)
		arena_init(&rig, &bad[i], false, PROT_NONE);
	for (; is_lost(&rig); n_reopened++)
		reopen(&rig);
	assert_int_equal(n_reopened, BREAKING + 1);
	for (unsigned int i = 0; i < BREAKING + 2; i++)
		arena_deinit(&rig, &bad[i]);
	end(&rig);
}

static enum vulkan_fault lose_at_allocation(void *context, enum vulkan_fault_point point)
{
	struct executor **executor = context;

	if (point != VULKAN_FAULT_ALLOC || !*executor)
		return VULKAN_FAULT_NONE;
	(*executor)->ops->lose(*executor, "the test loses it");
	return VULKAN_FAULT_NO_MEMORY;
}

/* An import that fails because the device was lost has not broken it. */
TEST(test_import__of_lost_device)
{
	struct executor *executor = NULL;
	struct exec_arena arena;
	struct rig rig;

	rig_init(&rig,
		 &(struct vulkan_options){.fault = lose_at_allocation, .fault_context = &executor});
	rig_arena_init(NULL, &arena, ARENA_BYTES);
	/* Without the alignment that drivers want */
	arena.base += 1;
	executor = rig.executor;
	executor->ops->arena_import(executor, &arena);
	assert_null(arena.import[GPU]);
	assert_true(is_lost(&rig));
	assert_int_equal(container_of(executor, struct vk_device, executor)->paths.n_breaking, 0);
	executor->ops->arena_release(executor, &arena);
	executor = NULL;
	arena.base -= 1;
	rig_arena_deinit(NULL, &arena);
	end(&rig);
}

int main(void)
{
	return rig_main();
}
