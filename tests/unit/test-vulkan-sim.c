/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan executor over simulated amdgpu cards: real RADV, memory as the kernel counts it, a
 * second tier, a separate upload queue, memory that runs out, resets and unplugging. The simulator
 * executes nothing, so results are not checked.
 *
 * test-vulkan-sim SIMULATOR card|apu, run by "amdgpu-sim run".
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "reference/reference.h"
#include "support/test.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/waker.h"
#include "vulkan/vulkan.h"

#define N DESCRIBE_COUNT
#define D DESCRIBE_DIMS

enum { GPU = RBK_DEVICE_GPU, MAX = 8, LARGE_BYTES = 24 << 20 };

static const char *sim_path;

static void sim(const char *command)
{
	char line[512];

	snprintf(line, sizeof(line), "'%s' %s >&2", sim_path, command);
	assert_int_equal(system(line), 0);
}

/* Return the simulated kernel's value of @key for card0. */
static uint64_t sim_value(const char *key)
{
	unsigned long long value = UINT64_MAX;
	char line[512], name[64];
	FILE *out;

	snprintf(line, sizeof(line), "'%s' show", sim_path);
	out = popen(line, "r");
	assert_non_null(out);
	while (fgets(line, sizeof(line), out))
		if (sscanf(line, " %63s %llu", name, &value) == 2 && strcmp(name, key) == 0)
			break;
	/* Read to the end, or the simulator would get SIGPIPE. */
	while (fgets(line, sizeof(line), out))
		;
	assert_int_equal(pclose(out), 0);
	return value;
}

struct card {
	struct waker waker;
	struct vulkan *vulkan;
	struct executor *executor;
	const struct executor_ops *ops;
};

static void card_open(struct card *card)
{
	const struct vulkan_options options = {.mode = VULKAN_AUTO};

	assert_int_equal(waker_init(&card->waker), 0);
	assert_int_equal(vulkan_open(&options, &card->waker, &card->vulkan), 0);
	if (vulkan_n_executors(card->vulkan) == 0)
		fprintf(stderr, "%s\n", vulkan_sentence(card->vulkan, 0));
	assert_int_equal(vulkan_n_executors(card->vulkan), 1);
	card->executor = vulkan_executor(card->vulkan, 0);
	card->executor->index = GPU;
	card->ops = card->executor->ops;
}

static void card_close(struct card *card)
{
	struct vulkan_usage usage;

	vulkan_usage(card->executor, &usage);
	assert_int_equal(usage.device_bytes, 0);
	assert_int_equal(usage.host_bytes, 0);
	vulkan_free(card->vulkan);
	waker_deinit(&card->waker);
}

/* y = x * w, with the memory that a task of it needs. */
struct work {
	struct exec_arena constants, tensors;
	struct plan *plan;
	struct exec_ref refs[2];
	struct exec_task task;
	struct exec_constant constant;
	struct exec_block block;
};

/*
 * Initialise the work. If @in_parts, the plan has two operators, cannot be split by rows, and runs
 * in as many parts as possible.
 */
static void work_init_as(struct card *card, struct work *work, bool in_parts)
{
	struct describe *d = describe_new("product", MAX);
	uint8_t *base;

	memset(work, 0, sizeof(*work));
	reference_arena_init(&work->constants, LARGE_BYTES, 3);
	base = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	work->tensors = (struct exec_arena){.base = base, .bytes = 65536, .fd = -1};
	card->ops->arena_import(card->executor, &work->tensors);
	describe_input(d, "x", D(N, 64));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), D(64, 64));
	describe_output(d, "y", D(N, 64));
	if (in_parts) {
		describe_scratch(d, "xw");
		describe_node(d, "MatMul", "", "x,w", "xw");
		describe_node(d, "Relu", "", "xw", "y");
	} else {
		describe_node(d, "MatMul", "", "x,w", "y");
	}
	work->plan = reference_plan(d, &work->constants);
	if (in_parts)
		work->plan->row_grain = MAX;
	card->executor->part_bytes = in_parts ? 64 : 0;
	assert_int_equal(card->ops->plan_prepare(card->executor, work->plan), 0);
	assert_true((work->plan->n_parts[GPU] > 1) == in_parts);
	for (unsigned int i = 0; i < 2; i++)
		work->refs[i] = (struct exec_ref){&work->tensors, 4096 * i};
	work->task.plan = work->plan;
	work->task.refs = work->refs;
	work->task.count = 3;
	work->constant = (struct exec_constant){.arena = &work->constants, .bytes = LARGE_BYTES};
	work->block = (struct exec_block){.n_constants = 1, .constants = &work->constant};
	assert_int_equal(exec_block_layout(&work->block, &card->executor->info), 0);
}

static void work_init(struct card *card, struct work *work)
{
	work_init_as(card, work, false);
}

static void work_deinit(struct card *card, struct work *work)
{
	card->ops->plan_release(card->executor, work->plan);
	plan_free(work->plan);
	card->ops->arena_release(card->executor, &work->tensors);
	munmap(work->tensors.base, 65536);
	reference_arena_deinit(&work->constants);
}

static int block_load(struct card *card, struct exec_block *block)
{
	int r;

	do {
		r = card->ops->block_load(card->executor, block);
	} while (r == EXECUTOR_E_MORE);
	return r;
}

static int plan_load(struct card *card, struct work *work, enum exec_tier tier)
{
	const struct exec_block *blocks[] = {&work->block};
	const uint64_t offsets[] = {0};
	const struct exec_load load = {
		.tier = tier, .n_slots = 2, .blocks = blocks, .offsets = offsets};

	int r;

	do
		r = card->ops->plan_load(card->executor, work->plan, &load);
	while (r == EXECUTOR_E_MORE);
	return r;
}

static void unload(struct card *card, struct work *work)
{
	card->ops->plan_unload(card->executor, work->plan);
	card->ops->block_unload(card->executor, &work->block);
	for (int tier = 0; tier < EXEC_TIER_COUNT; tier++)
		assert_int_equal(card->ops->memory_used(card->executor, (enum exec_tier)tier), 0);
}

static int run_part(struct card *card, struct work *work, uint16_t part)
{
	uint64_t deadline_ns = clock_now_ns() + 60ull * 1000 * 1000 * 1000;
	struct exec_task *done = NULL;

	work->task.part = part;
	atomic_store(&work->task.state, EXEC_QUEUED);
	assert_int_equal(card->ops->submit(card->executor, &work->task), 0);
	card->ops->flush(card->executor);
	while (card->ops->reap(card->executor, &done, 1) == 0) {
		struct pollfd pollfd = {.fd = card->waker.fd, .events = POLLIN};

		waker_arm(&card->waker);
		if (card->ops->reap(card->executor, &done, 1) == 1) {
			waker_disarm(&card->waker);
			break;
		}
		poll(&pollfd, 1, 1000);
		waker_disarm(&card->waker);
		assert_true(clock_now_ns() < deadline_ns);
	}
	assert_ptr_equal(done, &work->task);
	return work->task.res;
}

static int run(struct card *card, struct work *work)
{
	int r = 0;

	for (uint16_t part = 0; !r && part < work->plan->n_parts[GPU]; part++)
		r = run_part(card, work, part);
	return r;
}

/* The device's description, and the kernel's view of it. */
TEST_IN("card", test_card__info)
{
	const struct executor_info *info;
	struct vulkan_rates rates;
	struct card card;

	card_open(&card);
	info = &card.executor->info;
	assert_non_null(strstr(info->name, "RX 580"));
	assert_int_equal(info->kind, EXECUTOR_GPU);
	assert_false(info->is_integrated);
	assert_true(info->identity.has_pci);
	assert_int_equal(info->identity.pci_bus, 0xe3);
	assert_true(info->identity.has_render);
	assert_int_equal(info->identity.render_major, 226);
	assert_true(info->memory_bytes > 7ull << 30);
	assert_true(info->gtt_bytes > 1ull << 30);
	vulkan_rates(card.executor, &rates);
	assert_true(rates.has_queue);
	assert_true(rates.staged.up_bytes_per_s > 0);
	assert_true(rates.staged.down_bytes_per_s > 0);
	/* Only 256 MiB of device memory are mapped. */
	assert_int_equal(rates.direct.up_bytes_per_s, 0);
	card_close(&card);
}

/* Check that the kernel counts the charged bytes exactly, in either tier. */
static void check_exact(bool in_parts)
{
	static const char *const keys[] = {
		[EXEC_TIER_VRAM] = "vram-used", [EXEC_TIER_GTT] = "gtt-used"};
	struct exec_memory before, during;
	struct card card;
	struct work work;

	card_open(&card);
	work_init_as(&card, &work, in_parts);
	/* Allocate the driver's own memory and the staging buffers once before. */
	assert_int_equal(block_load(&card, &work.block), 0);
	assert_int_equal(plan_load(&card, &work, EXEC_TIER_VRAM), 0);
	assert_int_equal(run(&card, &work), 0);
	unload(&card, &work);
	for (int tier = 0; tier < EXEC_TIER_COUNT; tier++) {
		uint64_t used = sim_value(keys[tier]), plan_bytes;

		card.ops->memory_sample(card.executor, &before);
		assert_true(before.has_budget);
		work.block.tier = (enum exec_tier)tier;
		assert_int_equal(block_load(&card, &work.block), 0);
		assert_int_equal(sim_value(keys[tier]), used + work.block.bytes);
		assert_int_equal(card.ops->memory_used(card.executor, work.block.tier),
				 work.block.bytes);
		if (tier == EXEC_TIER_VRAM) {
			assert_int_equal(work.block.transferred_bytes, work.block.bytes);
			card.ops->memory_sample(card.executor, &during);
			assert_int_equal(during.usage_bytes, before.usage_bytes + work.block.bytes);
		} else {
			assert_int_equal(work.block.transferred_bytes, 0);
		}
		assert_int_equal(work.block.copied_bytes, LARGE_BYTES);
		assert_int_equal(plan_load(&card, &work, work.block.tier), 0);
		plan_bytes = exec_footprint_device_bytes(&work.plan->footprint[GPU],
							 &card.executor->info, 2);
		assert_int_equal(card.ops->memory_used(card.executor, work.block.tier),
				 work.block.bytes + plan_bytes);
		if (tier == EXEC_TIER_VRAM)
			assert_int_equal(sim_value(keys[tier]),
					 used + work.block.bytes + plan_bytes);
		assert_int_equal(run(&card, &work), 0);
		unload(&card, &work);
		assert_int_equal(sim_value(keys[tier]), used);
	}
	work_deinit(&card, &work);
	card_close(&card);
}

TEST_IN("card", test_card__exact)
{
	check_exact(false);
}

TEST_IN("card", test_card__exact_in_parts)
{
	check_exact(true);
}

/* Return the number of mappings of this process. */
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

/* Plans and blocks take no more mappings than charged. */
TEST_IN("card", test_card__mappings)
{
	enum { N_WORKS = 20, SPARE = 10 };
	const struct executor_info *info;
	struct work works[N_WORKS];
	unsigned int n_before;
	uint64_t n = 0;
	struct card card;

	card_open(&card);
	info = &card.executor->info;
	work_init(&card, &works[0]);
	assert_int_equal(block_load(&card, &works[0].block), 0);
	n_before = count_mappings();
	for (unsigned int i = 1; i < N_WORKS; i++) {
		work_init(&card, &works[i]);
		assert_int_equal(block_load(&card, &works[i].block), 0);
		assert_int_equal(plan_load(&card, &works[i], EXEC_TIER_VRAM), 0);
		n += exec_footprint_mappings(&works[i].plan->footprint[GPU], info, 2) +
		     info->allocation_mappings;
	}
	print_message("%u mappings, %u charged\n", count_mappings() - n_before, (unsigned int)n);
	assert_in_range(count_mappings(), n_before + N_WORKS, n_before + n + SPARE);
	for (unsigned int i = 1; i < N_WORKS; i++) {
		card.ops->plan_unload(card.executor, works[i].plan);
		card.ops->block_unload(card.executor, &works[i].block);
		work_deinit(&card, &works[i]);
	}
	card.ops->block_unload(card.executor, &works[0].block);
	work_deinit(&card, &works[0]);
	card_close(&card);
}

/* No memory although the ledger has some. The device still works afterwards. */
TEST_IN("card", test_card__out_of_memory)
{
	struct card card;
	struct work work;

	card_open(&card);
	work_init(&card, &work);
	sim("fail GEM_CREATE ENOMEM 1");
	assert_int_equal(block_load(&card, &work.block), EXECUTOR_E_NO_MEMORY);
	assert_null(work.block.memory);
	assert_int_equal(block_load(&card, &work.block), 0);
	sim("fail GEM_CREATE ENOMEM forever");
	assert_int_equal(plan_load(&card, &work, EXEC_TIER_VRAM), EXECUTOR_E_NO_MEMORY);
	card.ops->plan_unload(card.executor, work.plan);
	sim("fail GEM_CREATE ENOMEM 0");
	assert_false(card.ops->is_lost(card.executor));
	assert_int_equal(plan_load(&card, &work, EXEC_TIER_VRAM), 0);
	assert_int_equal(run(&card, &work), 0);
	unload(&card, &work);
	work_deinit(&card, &work);
	card_close(&card);
}

static void load_and_run(struct card *card, struct work *work)
{
	assert_int_equal(block_load(card, &work->block), 0);
	assert_int_equal(plan_load(card, work, EXEC_TIER_VRAM), 0);
	assert_int_equal(run(card, work), 0);
}

/* After a reset the device is lost until it is reopened; then everything works. */
TEST_IN("card", test_card__reset)
{
	struct card card;
	struct work work;

	card_open(&card);
	work_init(&card, &work);
	for (int round = 0; round < 3; round++) {
		load_and_run(&card, &work);
		sim("reset --vram-lost");
		assert_int_equal(run(&card, &work), -EIO);
		assert_true(card.ops->is_lost(card.executor));
		unload(&card, &work);
		assert_int_equal(block_load(&card, &work.block), -EIO);
		assert_int_equal(card.ops->reopen(card.executor), 0);
		assert_false(card.ops->is_lost(card.executor));
	}
	load_and_run(&card, &work);
	unload(&card, &work);
	/* A reset may also be detected during an upload. */
	sim("reset");
	assert_int_equal(block_load(&card, &work.block), -EIO);
	card.ops->block_unload(card.executor, &work.block);
	assert_true(card.ops->is_lost(card.executor));
	assert_int_equal(card.ops->reopen(card.executor), 0);
	load_and_run(&card, &work);
	unload(&card, &work);
	work_deinit(&card, &work);
	card_close(&card);
}

/* The card is unplugged and plugged in again: only a new instance sees it. */
TEST_IN("card", test_card__unplugged)
{
	struct card card;
	struct work work;

	card_open(&card);
	work_init(&card, &work);
	load_and_run(&card, &work);
	sim("unplug");
	assert_int_equal(run(&card, &work), -EIO);
	unload(&card, &work);
	for (int i = 0; i < 3; i++)
		assert_int_equal(card.ops->reopen(card.executor), -EIO);
	assert_true(card.ops->is_lost(card.executor));
	sim("plug");
	assert_int_equal(card.ops->reopen(card.executor), 0);
	load_and_run(&card, &work);
	unload(&card, &work);
	work_deinit(&card, &work);
	card_close(&card);
}

/* An APU has one pool and no second tier. */
TEST_IN("apu", test_apu__info)
{
	struct exec_memory before, during;
	struct card card;
	struct work work;

	card_open(&card);
	assert_true(card.executor->info.is_integrated);
	assert_int_equal(card.executor->info.gtt_bytes, 0);
	/* The carve-out is half a GiB. */
	assert_true(card.executor->info.memory_bytes > 6ull << 30);
	work_init(&card, &work);
	card.ops->memory_sample(card.executor, &before);
	load_and_run(&card, &work);
	card.ops->memory_sample(card.executor, &during);
	assert_true(during.usage_bytes >= before.usage_bytes + work.block.bytes);
	unload(&card, &work);
	work_deinit(&card, &work);
	card_close(&card);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	sim_path = argv[1];
	clock_init();
	log_set_level(LOG_LEVEL_ERROR);
	return test_run_group(argv[2], NULL, NULL);
}
