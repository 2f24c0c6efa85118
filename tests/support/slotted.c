/* SPDX-License-Identifier: MIT */
/* Devices in virtual time whose plans have slots; see slotted.h. */
#include "support/slotted.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

static void check(bool is_fine, const char *what, int line)
{
	if (is_fine)
		return;
	fprintf(stderr, "slotted.c:%d: %s\n", line, what);
	abort();
}

#define CHECK(condition) check(condition, #condition, __LINE__)

/* --- time --- */

/* Other threads of the broker read it, too. */
static _Atomic uint64_t virtual_ns = 1000000000;

void __wrap_clock_init(void);
uint64_t __wrap_clock_now_ns(void);

void __wrap_clock_init(void)
{
	clock_state_ = (struct clock){.ns_mult = 1ull << 32, .tick_mult = 1ull << 32};
}

uint64_t __wrap_clock_now_ns(void)
{
	return virtual_ns;
}

uint64_t slotted_now_ns(void)
{
	return virtual_ns;
}

void slotted_pass(uint64_t until_ns)
{
	if (virtual_ns < until_ns)
		virtual_ns = until_ns;
}

/* --- slots --- */

static uint32_t slots_of(const struct slotted *device, const struct plan *plan)
{
	return plan->n_slots[device->fake->executor.index];
}

static uint32_t parts_of(const struct slotted *device, const struct plan *plan)
{
	return plan->n_parts[device->fake->executor.index];
}

static int find_slot(const struct slotted *device, const struct exec_task *task)
{
	for (unsigned int i = 0; i < device->n_slots; i++)
		if (device->slots[i] == task)
			return (int)i;
	return -1;
}

static bool take_slot(struct slotted *device, struct exec_task *task)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < device->n_slots; i++)
		n += device->slots[i]->plan == task->plan;
	if (n >= slots_of(device, task->plan))
		return false;
	CHECK(device->n_slots < SLOTTED_MAX_SLOTS);
	device->slots[device->n_slots++] = task;
	if (device->most_slots < n + 1)
		device->most_slots = n + 1;
	return true;
}

static void give_slot(struct slotted *device, const struct exec_task *task)
{
	int i = find_slot(device, task);

	if (i >= 0)
		device->slots[i] = device->slots[--device->n_slots];
}

/* --- running --- */

void slotted_init(struct slotted *device, struct fake *fake, uint64_t task_ns)
{
	*device = (struct slotted){.fake = fake, .task_ns = task_ns};
	fake->capacity = 256;
}

static void end(struct slotted *device, struct exec_task *task, int32_t res, uint64_t exec_ns)
{
	fake_finish(device->fake, fake_user_data(task), res);
	if (task->res != 0 || task->part + 1u >= parts_of(device, task->plan))
		give_slot(device, task);
	task->end_ticks = slotted_now_ns();
	task->start_ticks = task->end_ticks - exec_ns;
}

/* Begin or end a task if possible; return true if it ended or began, and so is no longer held. */
static bool try_begin(struct slotted *device, struct exec_task *task)
{
	bool has_slots = slots_of(device, task->plan) > 0;

	if (atomic_load(&task->state) == EXEC_CANCELLED) {
		end(device, task, -ECANCELED, 0);
		return true;
	}
	if (device->is_stuck)
		return false;
	if (device->fails || (task->part > 0 && has_slots && find_slot(device, task) < 0)) {
		end(device, task, device->fails ? device->fails : -EIO, 0);
		return true;
	}
	if (has_slots && task->part == 0 && !take_slot(device, task))
		return false;
	CHECK(exec_task_begin(task));
	if (device->n_begun == 0)
		device->free_ns = slotted_now_ns() + device->task_ns;
	device->begun[device->n_begun++] = task;
	return true;
}

static bool begin_one(struct slotted *device, bool is_urgent)
{
	struct fake *fake = device->fake;

	for (unsigned int i = 0; i < fake->n_tasks; i++)
		if (fake->tasks[i]->is_urgent == is_urgent &&
		    atomic_load(&fake->tasks[i]->state) != EXEC_RUNNING &&
		    try_begin(device, fake->tasks[i]))
			return true;
	return false;
}

void slotted_begin(struct slotted *device)
{
	while (begin_one(device, true) || begin_one(device, false))
		;
}

uint64_t slotted_next_ns(const struct slotted *device)
{
	return device->n_begun > 0 && !device->is_stuck ? device->free_ns : UINT64_MAX;
}

unsigned int slotted_run(struct slotted *device)
{
	unsigned int n = 0;

	slotted_begin(device);
	while (slotted_next_ns(device) <= slotted_now_ns()) {
		struct exec_task *task = device->begun[0];

		memmove(device->begun, device->begun + 1,
			--device->n_begun * sizeof(*device->begun));
		end(device, task, device->fails, device->task_ns);
		device->free_ns = slotted_now_ns() + device->task_ns;
		n++;
	}
	slotted_begin(device);
	return n;
}

void slotted_lose(struct slotted *device)
{
	device->n_begun = 0;
	device->n_slots = 0;
	while (device->fake->n_tasks > 0)
		end(device, device->fake->tasks[0], -EIO, 1000);
}
