#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans in parts
 *
 * A plan whose tasks would keep a device busy for long runs in several submissions, its parts. Its
 * steps are divided into sections, with one recorded command buffer each. A section is either a few
 * steps that form one part, or one large step that is cut into several parts. All parts of a cut
 * step run the same commands; the parameter block selects the workgroups, so the number of parts
 * costs no memory.
 */
#include <stdint.h>

#include "plan/plan.h"
#include "vulkan/lower.h"

struct vk_section {
	uint32_t first_step, n_steps;
	uint32_t first_part;
	/* Number of parts: n_ranges * n_batches; above 1 only for a section of a single step. */
	uint32_t n_ranges;  /* ranges of workgroups over x and y */
	uint32_t n_batches; /* ranges of workgroups over z */
};

static inline uint32_t vk_section_n_parts(const struct vk_section *section)
{
	return section->n_ranges * section->n_batches;
}

/*
 * Divide @n_steps into sections. @ret has room for @n_steps sections. No part exceeds @part_flops
 * of work or @part_bytes of traffic at max_count, unless a single workgroup does or the limit of
 * UINT16_MAX parts requires it. 0: no limit; both 0: one section.
 * Return: the number of sections; *ret_n_parts: the number of parts.
 */
uint32_t vk_sections_make(const struct plan *plan, const struct vk_step *steps, uint32_t n_steps,
			  uint64_t part_flops, uint64_t part_bytes, struct vk_section *ret,
			  uint16_t *ret_n_parts);

/* Return the one of @n sections to which @part belongs. */
const struct vk_section *vk_section_of(const struct vk_section *sections, uint32_t n,
				       uint32_t part);

/*
 * Narrow the parameter block of a step, just filled, to part @index of its section. Every workgroup
 * belongs to exactly one part; some parts may have no workgroups.
 */
void vk_params_cut(struct vk_params *params, const struct vk_section *section, uint32_t index);
