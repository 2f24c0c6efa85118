/* SPDX-License-Identifier: MIT */
/*
 * Plans in parts: see parts.h.
 *
 * The load of a step is its work relative to the limits of a part: a part may have a load of 1.
 * Consecutive steps are merged while their sum stays within 1; a step above 1 is cut, by itself.
 * Two neighbouring parts that are not cut have a load above 1 together, and a cut step of load l
 * has at most 2 * (l + 1) parts. So a plan of load L has at most 5 * L + 1 parts.
 */
#include "vulkan/parts.h"

#include <assert.h>

#include "util/number.h"

/* Maximum load of a plan; a plan of more is cut into larger parts. */
static const double most_loads = 13000;

static double step_load(const struct plan *plan, const struct vk_step *step, uint64_t part_flops,
			uint64_t part_bytes)
{
	double flops = 0, bytes, load = 0;

	if (step->node) {
		const struct cost *cost = &step->node->cost;

		flops = (double)cost->flops_fixed + (double)cost->flops_row * plan->max_count;
		bytes = (double)cost->bytes_fixed + (double)cost->bytes_row * plan->max_count;
		flops /= step->share;
		bytes /= step->share;
	} else {
		bytes = 2.0 * (double)plan->tensors[step->operands[0].tensor].max_bytes;
	}
	if (part_flops)
		load = flops / (double)part_flops;
	if (part_bytes && bytes / (double)part_bytes > load)
		load = bytes / (double)part_bytes;
	return load;
}

/* Cut the step into @n_parts or a few more; into fewer if it has fewer workgroups. */
static void section_cut(const struct plan *plan, const struct vk_step *step, uint32_t n_parts,
			struct vk_section *section)
{
	struct vk_params params = {0};

	step->fill(step, plan, plan->max_count, &params);
	section->n_batches = min_u32(n_parts, params.w[BATCH_END]);
	section->n_ranges = min_u32(div_up(n_parts, section->n_batches), params.w[ALL_GROUPS]);
}

uint32_t vk_sections_make(const struct plan *plan, const struct vk_step *steps, uint32_t n_steps,
			  uint64_t part_flops, uint64_t part_bytes, struct vk_section *ret,
			  uint16_t *ret_n_parts)
{
	double all = 0, scale = 1, load, sum = 0;
	uint32_t n = 0, n_parts = 0;

	for (uint32_t i = 0; i < n_steps; i++)
		all += step_load(plan, &steps[i], part_flops, part_bytes);
	if (all > most_loads)
		scale = most_loads / all;
	for (uint32_t i = 0; i < n_steps; i++) {
		load = scale * step_load(plan, &steps[i], part_flops, part_bytes);
		if (n > 0 && sum + load <= 1) {
			sum += load;
			ret[n - 1].n_steps++;
			continue;
		}
		ret[n] = (struct vk_section){
			.first_step = i,
			.n_steps = 1,
			.first_part = n_parts,
			.n_ranges = 1,
			.n_batches = 1,
		};
		if (load > 1)
			section_cut(plan, &steps[i], (uint32_t)load + (load > (uint32_t)load),
				    &ret[n]);
		n_parts += vk_section_n_parts(&ret[n]);
		/* No step is merged with a step that is cut. */
		sum = load;
		n++;
	}
	assert(n_parts <= UINT16_MAX);
	*ret_n_parts = (uint16_t)n_parts;
	return n;
}

const struct vk_section *vk_section_of(const struct vk_section *sections, uint32_t n, uint32_t part)
{
	uint32_t low = 0, high = n;

	/* Find the last section that begins at or before @part. */
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (sections[middle].first_part <= part)
			low = middle;
		else
			high = middle;
	}
	return &sections[low];
}

void vk_params_cut(struct vk_params *params, const struct vk_section *section, uint32_t index)
{
	const uint32_t n = params->w[ALL_GROUPS], batch = params->w[BATCH_END];
	const uint64_t range = index % section->n_ranges, share = index / section->n_ranges;
	const uint64_t batch_size = div_up(batch, section->n_batches);
	uint64_t size = div_up(n, section->n_ranges), begin, end;

	/*
	 * Round up to whole rows of the folded grid: in all parts but the last, workgroups beyond
	 * the end would run twice.
	 */
	if (size > VK_MAX_GROUPS)
		size = round_up(size, VK_MAX_GROUPS);
	begin = range * size < n ? range * size : n;
	end = begin + size < n ? begin + size : n;
	params->groups[0] = min_u32((uint32_t)(end - begin), VK_MAX_GROUPS);
	params->groups[1] = div_up(end - begin, VK_MAX_GROUPS);
	params->groups[3] = (uint32_t)begin;

	begin = share * batch_size < batch ? share * batch_size : batch;
	end = begin + batch_size < batch ? begin + batch_size : batch;
	params->groups[2] = min_u32((uint32_t)(end - begin), VK_MAX_GROUPS);
	params->w[BATCH_BEGIN] = (uint32_t)begin;
	params->w[BATCH_END] = (uint32_t)end;
}
