/* SPDX-License-Identifier: MIT */
/* Simulated devices: see device.h */
#include "simulator/device.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/broker.h"
#include "simulator/compute.h"
#include "simulator/machine.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/crash.h"
#include "util/error.h"
#include "util/thread.h"
#include "util/waker.h"

enum {
	MAX_TASKS = 256,
	LOAD_PARTS = 3,
	LOOK_NS = 1000,   /* between two looks of a thread that spins */
	PIECE_NS = 10000, /* between two looks of a task that can be stopped */
	STALL_NS = 30000000,
	SLOW_NS = 100000000,
	REOPEN_TRIES = 2,
	/* of plans without states; words of each tensor between their nodes */
	MAX_NODES = 4,
	MAX_TENSORS = 8,
	MAX_BETWEEN_WORDS = 256,
};

struct device {
	struct executor executor;
	struct sim_device_options options;
	struct place_profile profile;
	/* Tasks in the order of submission; reactor and thread, between steps. */
	struct exec_task *todo[MAX_TASKS];
	unsigned int n_todo;
	struct exec_task *done[MAX_TASKS];
	unsigned int n_done;
	uint64_t done_ns; /* when the oldest of them was handed back */
	pthread_t thread;
	bool has_thread;
	bool is_stopping;
	bool is_lost;
	unsigned int n_failed_reopens;
	uint64_t allocated[EXEC_TIER_COUNT];
	unsigned int n_imports;
	unsigned int n_loading; /* calls that load */
};

/* A plan as a device prepared it: plan->exec */
struct prepared {
	bool is_loaded;
	unsigned int n_load_calls;
	enum exec_tier tier;
	uint64_t bytes;
	const struct exec_block **blocks; /* copied; NULL without constants */
	uint64_t *offsets;
};

/* Memory of a block */
struct loaded {
	uint8_t *bytes;
	unsigned int n_parts;
};

/* Devices of the broker @generation, by their numbers */
static struct {
	unsigned int generation;
	bool is_telling;
	uint64_t told_ns;           /* 0: all tasks that it has done are taken back */
	uint64_t rings_ns, rang_ns; /* begin and end of its last waker_ring() */
} tellings[RBK_MAX_DEVICES] __attribute__((__section__("sim_variables")));

static uint64_t n_tasks __attribute__((__section__("sim_variables")));
static uint64_t n_losses __attribute__((__section__("sim_variables")));
static struct sim_device_counts counts __attribute__((__section__("sim_variables")));
static uint64_t done_ns __attribute__((__section__("sim_variables")));
static uint64_t piece_of_task_ns __attribute__((__section__("sim_variables"))) = PIECE_NS;

uint64_t sim_device_n_tasks(void)
{
	return n_tasks;
}

uint64_t sim_device_n_losses(void)
{
	return n_losses;
}

const struct sim_device_counts *sim_device_counts(void)
{
	return &counts;
}

uint64_t sim_device_done_ns(void)
{
	return done_ns;
}

void sim_device_set_piece(uint64_t ns)
{
	piece_of_task_ns = ns > 0 ? ns : PIECE_NS;
}

static struct device *device_of(struct executor *executor)
{
	return container_of(executor, struct device, executor);
}

static void lose_now(struct device *device)
{
	if (device->is_lost)
		return;
	sim_trace("device %u is lost", device->executor.index);
	device->is_lost = true;
	device->n_failed_reopens = (unsigned int)sim_below(REOPEN_TRIES + 1);
	n_losses++;
	sim_wake(device, 1);
}

/* --- Arenas and plans --- */

static void arena_import(struct executor *executor, struct exec_arena *arena)
{
	struct device *device = device_of(executor);

	sim_check(!arena->import[executor->index]);
	arena->import[executor->index] = device;
	device->n_imports++;
}

static void arena_release(struct executor *executor, struct exec_arena *arena)
{
	struct device *device = device_of(executor);

	if (!arena->import[executor->index])
		return;
	sim_check(device->n_imports > 0);
	arena->import[executor->index] = NULL;
	device->n_imports--;
}

static int plan_prepare(struct executor *executor, struct plan *plan)
{
	struct device *device = device_of(executor);
	struct prepared *prepared = calloc(1, sizeof(*prepared));

	sim_step();
	if (!prepared)
		return -ENOMEM;
	plan->exec[executor->index] = prepared;
	plan->host_bytes[executor->index] = sizeof(*prepared);
	if (device->options.is_honest) {
		plan->overhead_fixed_ps = 1000 * device->options.task_ns;
		plan->overhead_row_ps = 1000 * device->options.row_ns;
	}
	plan->footprint[executor->index] = (struct exec_footprint){
		.slot_device_bytes = device->options.is_card ? 3 * SIM_CARD_PAGE : 0,
		.slot_host_bytes = 256,
		.max_slots = 4,
	};
	if (device->options.is_card && device->options.parts > 0)
		plan->n_parts[executor->index] =
			1 + (uint16_t)((plan->fingerprint + device->options.parts) % 3);
	plan->device_state[executor->index] =
		device->options.is_card ? PLAN_DEVICE_EVICTED : PLAN_DEVICE_READY;
	return 0;
}

static void plan_release(struct executor *executor, struct plan *plan)
{
	struct prepared *prepared = plan->exec[executor->index];

	sim_step();
	if (!prepared)
		return;
	sim_check(!prepared->is_loaded && !prepared->blocks);
	free(prepared);
	plan->exec[executor->index] = NULL;
}

static int take(struct device *device, enum exec_tier tier, uint64_t bytes)
{
	sim_check(bytes % SIM_CARD_PAGE == 0);
	if (sim_chance(device->options.faults.refusal))
		return EXECUTOR_E_NO_MEMORY;
	device->allocated[tier] += bytes;
	/* The ledger is charged first, and never with more than the device has. */
	if (tier == EXEC_TIER_VRAM && device->allocated[tier] > device->options.memory_bytes)
		sim_violation("device %u has %llu bytes, and was told to allocate %llu",
			      device->executor.index,
			      (unsigned long long)device->options.memory_bytes,
			      (unsigned long long)device->allocated[tier]);
	return 0;
}

static void give(struct device *device, enum exec_tier tier, uint64_t bytes)
{
	sim_check(device->allocated[tier] >= bytes);
	device->allocated[tier] -= bytes;
}

static void work_slowly(struct device *device)
{
	device->n_loading++;
	if (sim_chance(device->options.faults.slow))
		sim_wait(NULL, 0, NULL, sim_now_ns() + SLOW_NS);
	if (sim_chance(device->options.faults.loss))
		lose_now(device);
	sim_step();
	device->n_loading--;
}

/* Return the bytes of a block up to the end of its last constant. */
static uint64_t copied_bytes(const struct exec_block *block)
{
	uint64_t bytes = 1;

	for (uint32_t i = 0; i < block->n_constants; i++) {
		const struct exec_constant *constant = &block->constants[i];

		sim_check(constant->block_offset + constant->bytes <= block->bytes);
		if (constant->block_offset + constant->bytes > bytes)
			bytes = constant->block_offset + constant->bytes;
	}
	return bytes;
}

static int block_load(struct executor *executor, struct exec_block *block)
{
	struct device *device = device_of(executor);
	struct loaded *loaded = block->memory;
	int r;

	sim_step();
	if (atomic_load(&block->is_cancelled))
		return EXECUTOR_E_CANCELLED;
	if (device->is_lost)
		return -EIO;
	if (!loaded) {
		r = take(device, block->tier, block->bytes);
		if (r)
			return r;
		loaded = calloc(1, sizeof(*loaded));
		if (loaded)
			loaded->bytes = calloc(1, copied_bytes(block));
		if (!loaded || !loaded->bytes) {
			free(loaded);
			give(device, block->tier, block->bytes);
			return -ENOMEM;
		}
		block->memory = loaded;
	}
	work_slowly(device);
	if (device->is_lost)
		return -EIO;
	sim_check(loaded->n_parts < LOAD_PARTS);
	if (++loaded->n_parts < LOAD_PARTS)
		return EXECUTOR_E_MORE;
	for (uint32_t i = 0; i < block->n_constants; i++) {
		const struct exec_constant *constant = &block->constants[i];

		memcpy(loaded->bytes + constant->block_offset,
		       constant->arena->base + constant->offset, constant->bytes);
	}
	block->loaded_bytes = block->bytes;
	return 0;
}

static void block_unload(struct executor *executor, struct exec_block *block)
{
	struct loaded *loaded = block->memory;

	sim_step();
	if (!loaded)
		return;
	give(device_of(executor), block->tier, block->bytes);
	free(loaded->bytes);
	free(loaded);
	block->memory = NULL;
}

static int plan_load(struct executor *executor, struct plan *plan, const struct exec_load *load)
{
	struct device *device = device_of(executor);
	struct prepared *prepared = plan->exec[executor->index];
	int r;

	sim_step();
	sim_check(prepared && !prepared->is_loaded);
	if (device->is_lost)
		return -EIO;
	if (++prepared->n_load_calls % 2 == 1)
		return EXECUTOR_E_MORE;
	work_slowly(device);
	prepared->tier = load->tier;
	prepared->bytes = exec_footprint_device_bytes(&plan->footprint[executor->index],
						      &executor->info, load->n_slots);
	r = device->is_lost ? -EIO : take(device, load->tier, prepared->bytes);
	if (r)
		return r;
	prepared->is_loaded = true;
	if (plan->n_constants == 0)
		return 0;
	prepared->blocks = calloc(plan->n_constants, sizeof(*prepared->blocks));
	prepared->offsets = calloc(plan->n_constants, sizeof(*prepared->offsets));
	if (!prepared->blocks || !prepared->offsets)
		return -ENOMEM;
	for (uint16_t i = 0; i < plan->n_constants; i++) {
		const struct loaded *loaded = load->blocks[i]->memory;

		sim_check(loaded && loaded->n_parts == LOAD_PARTS);
		sim_check(load->offsets[i] + plan->constants[i].bytes <= load->blocks[i]->bytes);
		prepared->blocks[i] = load->blocks[i];
		prepared->offsets[i] = load->offsets[i];
	}
	return 0;
}

static void plan_unload(struct executor *executor, struct plan *plan)
{
	struct prepared *prepared = plan->exec[executor->index];

	sim_step();
	if (!prepared)
		return;
	for (unsigned int i = 0; i < device_of(executor)->n_todo; i++)
		if (device_of(executor)->todo[i]->plan == plan)
			sim_violation("plan %s is unloaded with a task on device %u", plan->name,
				      executor->index);
	if (prepared->is_loaded)
		give(device_of(executor), prepared->tier, prepared->bytes);
	free(prepared->blocks);
	free(prepared->offsets);
	*prepared = (struct prepared){.is_loaded = false};
}

/* --- Losing and reopening --- */

static int reopen(struct executor *executor)
{
	struct device *device = device_of(executor);

	sim_step();
	sim_check(device->allocated[EXEC_TIER_VRAM] == 0 && device->allocated[EXEC_TIER_GTT] == 0);
	sim_check(device->n_loading == 0);
	if (device->n_failed_reopens > 0) {
		device->n_failed_reopens--;
		return -EIO;
	}
	sim_trace("device %u is back", executor->index);
	device->is_lost = false;
	return 0;
}

static void lose(struct executor *executor, const char *why)
{
	lose_now(device_of(executor));
}

static bool is_lost(struct executor *executor)
{
	return device_of(executor)->is_lost;
}

static uint64_t memory_used(struct executor *executor, enum exec_tier tier)
{
	return device_of(executor)->allocated[tier];
}

/* --- Tasks --- */

/* Return the salt of a node, or of the constant that it reads. */
static uint32_t salt_of(const struct device *device, const struct plan *plan,
			const struct node *node)
{
	const struct prepared *prepared = plan->exec[device->executor.index];
	uint32_t salt = 1;

	for (unsigned int k = 0; k < node->n_in; k++) {
		const struct tensor *tensor = &plan->tensors[node->in[k]];
		const struct plan_constant *constant = &plan->constants[tensor->constant];
		const uint8_t *bytes;

		if (tensor->kind != RBK_TENSOR_CONSTANT)
			continue;
		bytes = constant->arena->base + constant->offset;
		if (device->options.is_card) {
			const struct loaded *loaded = prepared->blocks[tensor->constant]->memory;

			bytes = loaded->bytes + prepared->offsets[tensor->constant];
		}
		salt = sim_salt(salt, (const uint32_t *)bytes, constant->bytes / 4);
	}
	return salt;
}

/*
 * Compute nodes one after the other. Each has one or two operands of the task's rows, beside
 * constants, and a result of the same shape.
 */
static void compute_nodes(const struct device *device, const struct plan *plan,
			  const struct sim_operand *operands, bool in_steps)
{
	uint32_t between[MAX_NODES][MAX_BETWEEN_WORDS], *words[MAX_TENSORS] = {NULL};
	struct sim_operand step[3];

	sim_check(plan->n_nodes <= MAX_NODES && plan->n_tensors <= MAX_TENSORS &&
		  operands[0].n_words <= MAX_BETWEEN_WORDS);
	for (uint16_t i = 0; i < plan->n_bindings; i++)
		words[plan->bindings[i].tensor] = operands[i].words;
	for (uint16_t i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];
		unsigned int n = 0;

		for (uint32_t k = 0; k < node->n_in; k++) {
			if (plan->tensors[node->in[k]].kind == RBK_TENSOR_CONSTANT)
				continue;
			step[n] = operands[0];
			step[n].is_written = false;
			step[n++].words = words[node->in[k]];
		}
		if (!words[node->out[0]])
			words[node->out[0]] = between[i];
		step[n] = step[0];
		step[n].is_written = true;
		step[n++].words = words[node->out[0]];
		sim_compute(step, n, salt_of(device, plan, node), in_steps);
	}
}

/* Compute nodes that each update a state, with the operand that they share. */
static void compute_states(const struct device *device, const struct plan *plan,
			   const struct sim_operand *operands, bool in_steps)
{
	for (uint16_t i = 0; i < plan->n_nodes; i++) {
		struct sim_operand step[2] = {operands[0], operands[1 + i]};

		sim_check(plan->bindings[1 + i].tensor == plan->nodes[i].out[0]);
		sim_compute(step, 2, salt_of(device, plan, &plan->nodes[i]), in_steps);
	}
}

static void compute(const struct device *device, const struct exec_task *task, bool in_steps)
{
	const struct plan *plan = task->plan;
	struct sim_operand operands[RBK_MAX_REFS];

	if (device->options.is_card)
		sim_check(((const struct prepared *)plan->exec[device->executor.index])->is_loaded);
	for (uint16_t i = 0; i < plan->n_bindings; i++) {
		const struct plan_binding *binding = &plan->bindings[i];
		const struct exec_ref *ref = &task->refs[i];
		const uint64_t bytes = binding->fixed_bytes + binding->row_bytes * task->count;

		sim_check(ref->offset + bytes <= ref->arena->bytes);
		operands[i] = (struct sim_operand){
			.words = (uint32_t *)(ref->arena->base + ref->offset),
			.n_words = bytes / 4,
			.row_words = binding->row_bytes / 4,
			.is_written = binding->written,
			.is_state = plan->tensors[binding->tensor].kind == RBK_TENSOR_STATE,
		};
		sim_check(!binding->written || !ref->arena->immutable);
	}
	if (plan->has_state)
		compute_states(device, plan, operands, in_steps);
	else
		compute_nodes(device, plan, operands, in_steps);
	n_tasks++;
	done_ns = sim_now_ns();
}

static uint64_t duration_ns(const struct device *device, const struct exec_task *task)
{
	return device->options.task_ns + device->options.row_ns * task->count;
}

static bool is_last_part(const struct device *device, const struct exec_task *task)
{
	const uint16_t n_parts = task->plan->n_parts[device->executor.index];

	sim_check(task->part < (n_parts > 0 ? n_parts : 1));
	return task->part + 1 >= (n_parts > 0 ? n_parts : 1);
}

/* Run a task that has begun on a card. */
static void run_on_card(struct device *device, struct exec_task *task)
{
	uint64_t end_ns = sim_now_ns() + duration_ns(device, task);

	if (sim_chance(device->options.faults.stall))
		end_ns += STALL_NS * (1 + sim_below(1000));
	if (sim_chance(device->options.faults.loss))
		lose_now(device);
	while (!device->is_lost && sim_now_ns() < end_ns)
		sim_wait(NULL, 0, device, end_ns);
	task->res = device->is_lost ? -EIO : 0;
	/* A device that is lost may have done the task before. */
	if (is_last_part(device, task) && (!device->is_lost || sim_below(2)))
		compute(device, task, true);
}

/*
 * Run a task that has begun on the processor, until it ends or is stopped.
 * @look: called between pieces; NULL: a worker, which sleeps in between.
 */
static void run_on_processor(struct device *device, struct exec_task *task, exec_look_fn *look,
			     void *context)
{
	uint64_t left_ns = duration_ns(device, task);
	const void *outer = crash_enter(task);
	bool is_stopped = false;

	sim_check(is_last_part(device, task));
	if (task->has_progress)
		left_ns = task->progress.front * (uint64_t)PIECE_NS;
	while (!is_stopped && left_ns > 0) {
		const uint64_t piece_ns = left_ns < piece_of_task_ns ? left_ns : piece_of_task_ns;

		if (look) {
			sim_work(piece_ns);
			look(context);
		} else {
			sim_wait(NULL, 0, NULL, sim_now_ns() + piece_ns);
		}
		left_ns -= piece_ns;
		is_stopped = atomic_load(&task->state) != EXEC_RUNNING;
	}
	task->has_progress = false;
	if (is_stopped && left_ns > 0) {
		task->has_progress = true;
		task->progress.front = (uint32_t)(left_ns / PIECE_NS + 1);
		task->res = EXEC_UNFINISHED;
	} else {
		compute(device, task, true);
		task->res = 0;
	}
	if (!exec_task_end(task)) {
		if (!task->has_progress)
			task->res = -ECANCELED;
	}
	crash_enter(outer);
}

static void hand_back(struct device *device, struct exec_task *task)
{
	const unsigned int index = device->executor.index;

	memmove(device->todo, device->todo + 1, --device->n_todo * sizeof(*device->todo));
	sim_check(device->n_done < MAX_TASKS);
	if (device->n_done == 0)
		device->done_ns = sim_now_ns();
	device->done[device->n_done++] = task;
	tellings[index].generation = sim_process_generation(SIM_BROKER);
	tellings[index].is_telling = true;
	tellings[index].rings_ns = sim_now_ns();
	waker_ring(device->executor.waker);
	tellings[index].is_telling = false;
	tellings[index].rang_ns = sim_now_ns();
	tellings[index].told_ns = device->n_done > 0 ? sim_now_ns() : 0;
}

uint64_t sim_device_told_ns(void)
{
	uint64_t told_ns = 0;

	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		if (tellings[i].generation != sim_process_generation(SIM_BROKER))
			continue;
		if (tellings[i].is_telling)
			return 0;
		if (tellings[i].told_ns > told_ns)
			told_ns = tellings[i].told_ns;
	}
	/* Another device may have taken the waker's flag before, and have rung only afterwards. */
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		if (tellings[i].generation == sim_process_generation(SIM_BROKER) &&
		    tellings[i].rings_ns <= told_ns && tellings[i].rang_ns > told_ns)
			told_ns = tellings[i].rang_ns;
	return told_ns;
}

static void *device_main(void *data)
{
	struct device *device = data;
	struct exec_task *task;
	uint64_t spin_end_ns = 0;
	bool has_begun;

	for (;;) {
		while (device->n_todo == 0 && !device->is_stopping)
			sim_wait(NULL, 0, device,
				 sim_now_ns() < spin_end_ns ? sim_now_ns() + LOOK_NS : SIM_NEVER);
		if (device->n_todo == 0)
			return NULL;
		task = device->todo[0];
		sim_step();
		task->start_ticks = clock_ticks();
		has_begun = exec_task_begin(task);
		if (has_begun)
			sim_broker_check_begin(task);
		if (!has_begun)
			task->res = -ECANCELED;
		else if (device->options.is_card)
			run_on_card(device, task);
		else
			run_on_processor(device, task, NULL, NULL);
		task->end_ticks = clock_ticks();
		hand_back(device, task);
		spin_end_ns = sim_now_ns() + device->options.spin_ns;
	}
}

static void run_inline(struct executor *executor, struct exec_task *task)
{
	const struct device *device = device_of(executor);

	sim_work(duration_ns(device, task));
	compute(device, task, true);
	task->res = 0;
	task->end_ticks = clock_ticks();
}

static void run_here(struct executor *executor, struct exec_task *task, unsigned int n_helpers,
		     exec_look_fn *look, void *context)
{
	task->start_ticks = clock_ticks();
	if (exec_task_begin(task)) {
		sim_broker_check_begin(task);
		run_on_processor(device_of(executor), task, look, context);
		counts.n_here += task->res == 0;
		counts.n_left += task->res == EXEC_UNFINISHED;
	} else {
		task->res = -ECANCELED;
	}
	task->end_ticks = clock_ticks();
}

static void abandon(struct executor *executor, struct exec_task *task)
{
	sim_check(task->has_progress);
	task->has_progress = false;
}

static int submit(struct executor *executor, struct exec_task *task)
{
	struct device *device = device_of(executor);

	sim_step();
	if (device->n_todo + device->n_done == MAX_TASKS)
		return EXECUTOR_E_BUSY;
	device->todo[device->n_todo++] = task;
	counts.n_worker += !device->options.is_card;
	return 0;
}

static void flush(struct executor *executor)
{
	sim_step();
	sim_wake(device_of(executor), 1);
}

static unsigned int reap(struct executor *executor, struct exec_task **ret, unsigned int max)
{
	struct device *device = device_of(executor);
	const unsigned int n = device->n_done < max ? device->n_done : max;

	sim_step();
	if (n > 0 && sim_now_ns() - device->done_ns > device->options.late_ns)
		sim_violation("a task of device %u is taken back after %llu us", executor->index,
			      (unsigned long long)(sim_now_ns() - device->done_ns) / 1000);
	device->done_ns = sim_now_ns();
	memcpy(ret, device->done, n * sizeof(*ret));
	memmove(device->done, device->done + n, (device->n_done - n) * sizeof(*ret));
	device->n_done -= n;
	if (device->n_done == 0)
		tellings[executor->index].told_ns = 0;
	return n;
}

/* --- Beginning and end --- */

static struct executor *device_free(struct executor *executor)
{
	struct device *device = device_of(executor);

	if (device->has_thread) {
		device->is_stopping = true;
		sim_wake(device, 1);
		pthread_join(device->thread, NULL);
	}
	sim_check(device->n_todo == 0 && device->n_done == 0 && device->n_imports == 0);
	sim_check(device->allocated[EXEC_TIER_VRAM] == 0 && device->allocated[EXEC_TIER_GTT] == 0);
	free(device);
	return NULL;
}

static const struct executor_ops processor_ops = {
	.arena_import = arena_import,
	.arena_release = arena_release,
	.plan_prepare = plan_prepare,
	.plan_release = plan_release,
	.run_inline = run_inline,
	.run_here = run_here,
	.submit = submit,
	.flush = flush,
	.reap = reap,
	.abandon = abandon,
	.free = device_free,
};

static const struct executor_ops card_ops = {
	.arena_import = arena_import,
	.arena_release = arena_release,
	.plan_prepare = plan_prepare,
	.plan_release = plan_release,
	.block_load = block_load,
	.block_unload = block_unload,
	.plan_load = plan_load,
	.plan_unload = plan_unload,
	.reopen = reopen,
	.lose = lose,
	.is_lost = is_lost,
	.memory_used = memory_used,
	.submit = submit,
	.flush = flush,
	.reap = reap,
	.free = device_free,
};

static void describe(struct place_profile *profile, const struct sim_device_options *options)
{
	*profile = (struct place_profile){
		.name = "simulated",
		.source = "simulated",
		.is_valid = true,
		.n_servers = 1,
		.n_servers_per_task = 1,
		.task_ns = (float)options->task_ns,
	};
	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
		for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++)
			profile->rates[i][k] = options->is_card ? (struct place_rate){100, 100}
								: (struct place_rate){1, 1};
}

int sim_device_new(const struct sim_device_options *options, uint8_t index, struct waker *waker,
		   struct executor **ret)
{
	struct device *device = calloc(1, sizeof(*device));
	int r;

	if (!device)
		return error_origin(-ENOMEM);
	device->options = *options;
	device->executor = (struct executor){
		.ops = options->is_card ? &card_ops : &processor_ops,
		.waker = waker,
		.index = index,
		.info = {.kind = options->is_card ? EXECUTOR_GPU : EXECUTOR_CPU,
			 .name = options->is_card ? "simulated card" : "simulated processor",
			 .driver = "none",
			 .paths = "",
			 .memory_bytes = options->memory_bytes,
			 .memory_page_bytes = options->is_card ? SIM_CARD_PAGE : 0,
			 .memory_align_bytes = options->is_card ? 256 : 0,
			 .gtt_bytes = options->gtt_bytes,
			 .n_threads = options->is_card ? 0 : 1},
	};
	describe(&device->profile, options);
	r = thread_start(&device->thread, options->is_card ? "card" : "worker", device_main,
			 device);
	if (r) {
		free(device);
		return error_fold(r);
	}
	device->has_thread = true;
	*ret = &device->executor;
	return 0;
}

const struct place_profile *sim_device_profile(const struct executor *executor)
{
	return &container_of(executor, const struct device, executor)->profile;
}

bool sim_device_is_idle(const struct executor *executor)
{
	const struct device *device = container_of(executor, const struct device, executor);

	return device->n_todo == 0 && device->n_done == 0;
}
