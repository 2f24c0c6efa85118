#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The choice of nodes that are computed with channels last. Private to broker/cpu; setup thread
 * only.
 */
#include <stdbool.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "plan/plan.h"

struct chooser;

struct cpu_layout {
	const struct plan *plan;
	/* By node: its pictures are read and written with channels last. */
	bool *is_last;
	/* By tensor: lies with channels last in memory. Only for pictures in scratch. */
	bool *lies_last;
	struct chooser *chooser; /* until the choice is complete */
};

/* @plan is borrowed. Return: 0, -ENOMEM. */
int cpu_layout_init(struct cpu_layout *layout, const struct plan *plan, enum cpu_layout_wish wish);
/* Choose for all nodes, a part per call. Return: 0, complete; EXECUTOR_E_MORE. */
int cpu_layout_choose(struct cpu_layout *layout);
void cpu_layout_deinit(struct cpu_layout *layout);

/* compile-layout.c: functions for cpu_op.may_be_last and cpu_op.last_gain_ns of the operators. */

/* Return true for a float32 tensor [batch][channels][...] whose two orders differ. */
bool cpu_layout_is_picture(const struct tensor *tensor);

/* Return true if input or output @i of a node is one of its pictures. */
bool cpu_layout_has_in(const struct plan *plan, const struct node *node, unsigned int i);
bool cpu_layout_has_out(const struct plan *plan, const struct node *node, unsigned int i);

/* Return: the tensor, NULL if absent. */
static inline const struct tensor *cpu_layout_tensor(const struct plan *plan, uint16_t t)
{
	return t == PLAN_NO_TENSOR ? NULL : &plan->tensors[t];
}

/* Return the elements of the dimensions from @from on; @from is at least 1. */
uint64_t cpu_layout_pixels(const struct shape *shape, unsigned int from);
bool cpu_layout_is_float(const struct tensor *tensor);
bool cpu_layout_is_constant(const struct plan *plan, const struct tensor *tensor);
/*
 * Return the part of the lanes that @channels fill in vectors of @width channels. Vectors of
 * narrower levels are fuller, but take longer.
 */
double cpu_layout_filled(uint32_t channels, uint32_t width);
/* Return the same where few channels are computed in half vectors. */
double cpu_layout_filled_narrow(uint32_t channels);
/* cpu_op.last_gain_ns of poolings, and of means that are poolings */
double cpu_layout_pool_gain_ns(const struct plan *plan, const struct node *node);
