#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans in parts
 *
 * A plan whose tasks would keep a device busy for long is run in several submissions, its parts.
 * Its steps are divided into sections, one recorded command buffer each: either a few steps that
 * are one part together, or one large step that is cut into several parts. Those run the same
 * commands; which workgroups is told by the parameter block, so the number of parts costs no
 * memory.
 */
#include <stdint.h>

#include "plan/plan.h"
#include "vulkan/lower.h"

struct vk_section {
	uint32_t first_step, n_steps;
	uint32_t first_part;
	/* Parts are n_ranges * n_batches; more than one only of a single step. */
	uint32_t n_ranges;  /* of workgroups over x and y */
	uint32_t n_batches; /* ranges over z */
};

static inline uint32_t vk_section_n_parts(const struct vk_section *section)
{
	return section->n_ranges * section->n_batches;
}

/*
 * Divides @n_steps into sections, @n_steps of which there is room for in @ret, so that no part is
 * more than @part_flops of work or @part_bytes of traffic at max_count: as far as workgroups can be
 * told apart, and there are at most UINT16_MAX parts. 0: any number; both 0: one section.
 * Return: the number of sections; *ret_n_parts: of parts.
 */
uint32_t vk_sections_make(const struct plan *plan, const struct vk_step *steps, uint32_t n_steps,
			  uint64_t part_flops, uint64_t part_bytes, struct vk_section *ret,
			  uint16_t *ret_n_parts);

/* The section that @part belongs to, of @n. */
const struct vk_section *vk_section_of(const struct vk_section *sections, uint32_t n,
				       uint32_t part);

/*
 * Narrows the block of a step, just filled, to part @index of its section. Every workgroup is in
 * exactly one of them; those of some parts may be none.
 */
void vk_params_cut(struct vk_params *params, const struct vk_section *section, uint32_t index);
