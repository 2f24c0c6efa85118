/* SPDX-License-Identifier: MIT */
/*
 * Dispatches of torture-client, and what is bound for them
 *
 * A recorder knows which sets and push constants are valid, by the rules of compatible layouts.
 * Before a dispatch it plans the sets, and binds those that are missing or that it likes to change.
 * So a set stays bound for several dispatches and pipelines.
 */
#include "support/torture.h"

/* The pipeline and sets of the next dispatch. */
struct plan {
	const struct torture_pipeline *pipeline;
	const struct torture_layout *layout;
	struct torture_bound sets[TORTURE_MOST_SETS];
	bool is_new[TORTURE_MOST_SETS];
};

/* The workgroups of the next dispatch. */
struct extent {
	uint32_t counts[3], base[3];
	uint32_t strides[2]; /* the smallest ones that number each workgroup differently */
};

struct torture_window torture_draw_window(struct torture_random *random)
{
	struct torture_window window = {.buffer = torture_below(random, TORTURE_BUFFERS)};

	window.n = torture_chance(random, 6) ? 4 : 1 + torture_below(random, 2);
	window.first = torture_below(random, TORTURE_REGIONS - window.n + 1);
	return window;
}

void torture_forget_state(struct torture_recorder *recorder)
{
	recorder->pipeline = NULL;
	recorder->pushed = 0;
	recorder->push_words = 0;
	recorder->has_new_words = false;
	recorder->has_triangle = false;
	for (unsigned int i = 0; i < TORTURE_MOST_SETS; i++)
		recorder->bound[i].valid = false;
}

/* Tell whether two layouts are compatible for set @set. */
static bool are_compatible(unsigned int a, unsigned int b, unsigned int set)
{
	const struct torture_layout *x = &torture.layouts[a], *y = &torture.layouts[b];

	if (a == b)
		return true;
	if (x->push_words != y->push_words || set >= x->n_sets || set >= y->n_sets)
		return false;
	for (unsigned int i = 0; i <= set; i++)
		if (x->kinds[i] != y->kinds[i])
			return false;
	return true;
}

static bool is_usable(const struct torture_recorder *recorder, unsigned int layout,
		      unsigned int set)
{
	const struct torture_bound *bound = &recorder->bound[set];

	return bound->valid && are_compatible(bound->layout, layout, set);
}

/* ---- Plans ---- */

static const struct torture_pipeline *draw_pipeline(struct torture_recorder *recorder)
{
	const struct torture_kit *kit = recorder->about.kit;
	unsigned int i = torture_below(recorder->random, torture.n_pipelines + kit->n_own);

	if (recorder->pipeline && torture_chance(recorder->random, 2))
		return recorder->pipeline;
	return i < torture.n_pipelines ? &torture.pipelines[i] : &kit->own[i - torture.n_pipelines];
}

static void draw_dynamic(struct torture_recorder *recorder, struct torture_bound *set)
{
	unsigned int number = torture_below(recorder->random, TORTURE_DYNAMICS);

	set->set = recorder->about.kit->dynamic_sets[number];
	for (unsigned int i = 0; i < 2; i++) {
		struct torture_window *window = &set->windows[i];
		unsigned int shift;

		*window = recorder->about.kit->dynamics[number][i];
		shift = torture_below(recorder->random,
				      TORTURE_REGIONS - window->first - window->n + 1);
		/* Synchronization validation of 1.3.239 ignores dynamic offsets. */
		if (torture.is_validated)
			shift = 0;
		window->first += shift;
		set->offsets[i] = shift * TORTURE_REGION_BYTES;
	}
}

static void draw_sums(struct torture_recorder *recorder, enum torture_use use,
		      struct torture_bound *set)
{
	unsigned int number = torture_below(recorder->random, TORTURE_SUMS);

	set->is_arguments = use == TORTURE_WRITES_ARGUMENTS;
	set->set = set->is_arguments ? torture.argument_set : torture.sum_sets[number];
	set->writes =
		1ull << (set->is_arguments ? TORTURE_BIT_ARGUMENTS : TORTURE_BIT_SUMS + number);
}

/* Draw a set; @old is the bound one, if a part of it may stay. */
static struct torture_bound draw_set(struct torture_recorder *recorder, const struct plan *plan,
				     unsigned int i, const struct torture_bound *old)
{
	const struct torture_kit *kit = recorder->about.kit;
	struct torture_bound set = {.valid = true, .layout = plan->pipeline->layout};
	enum torture_set_kind kind = plan->layout->kinds[i];
	unsigned int number = torture_below(recorder->random, TORTURE_PAIRS);

	if (kind == TORTURE_SET_PAIR) {
		set.set = kit->pair_sets[number];
		set.windows[0] = kit->pairs[number][0];
		set.windows[1] = kit->pairs[number][1];
	} else if (kind == TORTURE_SET_DYNAMIC) {
		draw_dynamic(recorder, &set);
	} else if (kind == TORTURE_SET_PUSHED) {
		set.windows[0] = torture_draw_window(recorder->random);
		set.windows[1] = torture_draw_window(recorder->random);
		if (old && torture_chance(recorder->random, 2))
			set.windows[0] = old->windows[0];
	} else if (kind == TORTURE_SET_IMAGE) {
		set.set = torture.image_set;
		set.writes = 1ull << TORTURE_BIT_IMAGE;
		return set;
	} else {
		draw_sums(recorder, plan->pipeline->use, &set);
		return set;
	}
	set.writes = torture_window_bits(&set.windows[0]);
	set.reads = torture_window_bits(&set.windows[1]);
	return set;
}

/* Invocations must not access words that others write. */
static bool is_free_of_races(const struct plan *plan)
{
	uint64_t reads = 0, writes = 0;

	for (unsigned int i = 0; i < plan->layout->n_sets; i++) {
		if (writes & plan->sets[i].writes)
			return false;
		reads |= plan->sets[i].reads;
		writes |= plan->sets[i].writes;
	}
	return !(reads & writes);
}

static void draw_sets(struct torture_recorder *recorder, struct plan *plan, unsigned int keep_of)
{
	bool is_writer = plan->pipeline->use == TORTURE_WRITES_ARGUMENTS;

	for (unsigned int i = 0; i < plan->layout->n_sets; i++) {
		const struct torture_bound *old =
			is_usable(recorder, plan->pipeline->layout, i) ? &recorder->bound[i] : NULL;
		bool is_sums = plan->layout->kinds[i] == TORTURE_SET_SUMS;

		plan->is_new[i] = !old || torture_chance(recorder->random, keep_of) ||
				  (is_sums && old->is_arguments != is_writer);
		plan->sets[i] = plan->is_new[i] ? draw_set(recorder, plan, i, old) : *old;
	}
}

static bool draw_plan(struct torture_recorder *recorder, struct plan *plan)
{
	plan->pipeline = draw_pipeline(recorder);
	plan->layout = &torture.layouts[plan->pipeline->layout];
	for (unsigned int i = 0; i < 12; i++) {
		draw_sets(recorder, plan, i < 4 ? 4 : 1);
		if (is_free_of_races(plan))
			return true;
	}
	return false;
}

/* ---- Bindings ---- */

/* Note that sets were bound with the layout, which disturbs sets that were bound with others. */
static void note_bound(struct torture_recorder *recorder, const struct plan *plan,
		       unsigned int first, unsigned int n)
{
	unsigned int layout = plan->pipeline->layout, last = first + n - 1;
	bool keeps_higher = true;

	for (unsigned int i = first; i <= last; i++)
		keeps_higher &= is_usable(recorder, layout, i);
	for (unsigned int i = 0; i < TORTURE_MOST_SETS; i++) {
		if (i >= first && i <= last)
			recorder->bound[i] = plan->sets[i];
		else if (i < first)
			recorder->bound[i].valid &=
				are_compatible(recorder->bound[i].layout, layout, i);
		else
			recorder->bound[i].valid &=
				keeps_higher &&
				are_compatible(recorder->bound[i].layout, layout, last);
	}
	/* Sets that are bound with a compatible layout later remain usable with either. */
	for (unsigned int i = first; i <= last; i++)
		recorder->bound[i].layout = layout;
}

static void bind_run(struct torture_recorder *recorder, const struct plan *plan, unsigned int first,
		     unsigned int n)
{
	VkDescriptorSet sets[TORTURE_MOST_SETS];
	uint32_t offsets[2 * TORTURE_MOST_SETS];
	unsigned int n_offsets = 0;

	for (unsigned int i = 0; i < n; i++) {
		const struct torture_bound *set = &plan->sets[first + i];

		sets[i] = set->set;
		if (plan->layout->kinds[first + i] != TORTURE_SET_DYNAMIC)
			continue;
		offsets[n_offsets++] = set->offsets[0];
		offsets[n_offsets++] = set->offsets[1];
	}
	if (n_offsets > 0)
		torture_count(n_offsets > 2 ? TORTURE_OFFSETS_TOGETHER : TORTURE_OFFSETS);
	if (n > 1)
		torture_count(TORTURE_SETS_TOGETHER);
	vkCmdBindDescriptorSets(recorder->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
				plan->layout->handle, first, n, sets, n_offsets, offsets);
	note_bound(recorder, plan, first, n);
}

/* Without push descriptors, bind a set with the same contents. */
static void bind_pushed(struct torture_recorder *recorder, struct plan *plan, unsigned int i)
{
	struct torture_kit *kit = recorder->about.kit;
	VkDescriptorSetAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
		.descriptorPool = kit->pool,
		.descriptorSetCount = 1,
		.pSetLayouts = &torture.set_layouts[TORTURE_SET_PUSHED],
	};

	EXPECT(vkAllocateDescriptorSets(torture.handle, &info, &plan->sets[i].set));
	torture_write_pair(plan->sets[i].set, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
			   plan->sets[i].windows);
	bind_run(recorder, plan, i, 1);
}

static void push_set(struct torture_recorder *recorder, struct plan *plan, unsigned int i)
{
	const struct torture_window *windows = plan->sets[i].windows;
	const struct torture_bound *old = &recorder->bound[i];
	bool is_part = is_usable(recorder, plan->pipeline->layout, i) &&
		       torture_window_bits(&old->windows[0]) == torture_window_bits(&windows[0]);
	bool by_template = torture_chance(recorder->random, 3);
	VkDescriptorBufferInfo buffers[2];
	VkWriteDescriptorSet writes[2];

	if (!torture.has_push_sets) {
		bind_pushed(recorder, plan, i);
		return;
	}
	for (unsigned int k = 0; k < 2; k++) {
		buffers[k] = (VkDescriptorBufferInfo){torture.buffers[windows[k].buffer].handle,
						      windows[k].first * TORTURE_REGION_BYTES,
						      windows[k].n * TORTURE_REGION_BYTES};
		writes[k] = (VkWriteDescriptorSet){
			.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
			.dstBinding = k,
			.descriptorCount = 1,
			.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
			.pBufferInfo = &buffers[k],
		};
	}
	note_bound(recorder, plan, i, 1);
	torture_count(is_part ? TORTURE_PUSH_PART : TORTURE_PUSH_SET);
	if (by_template && !is_part) {
		torture_count(TORTURE_PUSH_TEMPLATE);
		vkCmdPushDescriptorSetWithTemplateKHR(recorder->commands, torture.push_template,
						      plan->layout->handle, i, buffers);
		return;
	}
	vkCmdPushDescriptorSetKHR(recorder->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
				  plan->layout->handle, i, is_part ? 1 : 2, &writes[is_part]);
}

static void bind_one(struct torture_recorder *recorder, struct plan *plan, unsigned int i)
{
	if (plan->layout->kinds[i] == TORTURE_SET_PUSHED)
		push_set(recorder, plan, i);
	else
		bind_run(recorder, plan, i, 1);
	plan->is_new[i] = false;
}

/* Bind neighbours that are new by one call. */
static void bind_together(struct torture_recorder *recorder, struct plan *plan)
{
	for (unsigned int i = 0; i < plan->layout->n_sets; i++) {
		unsigned int n = 0;

		while (i + n < plan->layout->n_sets && plan->is_new[i + n] &&
		       plan->layout->kinds[i + n] != TORTURE_SET_PUSHED)
			plan->is_new[i + n++] = false;
		if (n > 0) {
			bind_run(recorder, plan, i, n);
			i += n - 1;
		} else if (plan->is_new[i]) {
			bind_one(recorder, plan, i);
		}
	}
}

static void count_bindings(const struct plan *plan)
{
	unsigned int n_new = 0;

	for (unsigned int i = 0; i < plan->layout->n_sets; i++)
		n_new += plan->is_new[i];
	if (n_new == 0)
		torture_count(TORTURE_KEPT_SETS);
	else if (n_new < plan->layout->n_sets)
		torture_count(TORTURE_SOME_SETS);
}

static void bind_sets(struct torture_recorder *recorder, struct plan *plan)
{
	unsigned int how = torture_below(recorder->random, 3);

	count_bindings(plan);
	if (how == 0)
		bind_together(recorder, plan);
	for (unsigned int i = plan->layout->n_sets; how == 1 && i-- > 0;) {
		if (!plan->is_new[i])
			continue;
		torture_count(TORTURE_SETS_BACKWARDS);
		bind_one(recorder, plan, i);
	}
	/* The other sets, and those that a binding has disturbed. */
	for (unsigned int i = 0; i < plan->layout->n_sets; i++)
		if (plan->is_new[i] || !is_usable(recorder, plan->pipeline->layout, i))
			bind_one(recorder, plan, i);
}

static void bind_pipeline(struct torture_recorder *recorder, const struct plan *plan)
{
	if (plan->pipeline == recorder->pipeline) {
		if (!torture_chance(recorder->random, 6))
			return;
		torture_count(TORTURE_SAME_PIPELINE);
	}
	torture_count(TORTURE_PIPELINE);
	vkCmdBindPipeline(recorder->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
			  plan->pipeline->handle);
	recorder->pipeline = plan->pipeline;
}

/* ---- Push constants ---- */

static void push_words(struct torture_recorder *recorder, const struct torture_layout *layout,
		       uint32_t words, const uint32_t *values)
{
	unsigned int n_ranges = 0;

	for (unsigned int i = 0; i < layout->push_words; i++) {
		unsigned int n = 0;

		while (i + n < layout->push_words && words >> (i + n) & 1)
			n++;
		if (n == 0)
			continue;
		/* Split some ranges. */
		if (n > 1 && torture_chance(recorder->random, 3))
			n = 1 + torture_below(recorder->random, n - 1);
		vkCmdPushConstants(recorder->commands, layout->handle, VK_SHADER_STAGE_COMPUTE_BIT,
				   4 * i, 4 * n, &values[i]);
		n_ranges++;
		i += n - 1;
	}
	if (n_ranges > 1)
		torture_count(TORTURE_PUSH_RANGES);
}

/* Push the words of which @needed are missing, some others, and strides that are too small. */
static void push(struct torture_recorder *recorder, const struct torture_layout *layout,
		 const uint32_t strides[2], bool all)
{
	uint32_t mask = (1u << layout->push_words) - 1, words = 0, values[16];

	if (layout->push_words == 0)
		return;
	if (recorder->push_words != layout->push_words)
		recorder->pushed = 0;
	recorder->push_words = layout->push_words;
	for (unsigned int i = 0; i < 16; i++)
		values[i] = (uint32_t)torture_draw(recorder->random);
	if (all)
		words = mask & ~recorder->pushed;
	if (torture_chance(recorder->random, 2))
		words |= (uint32_t)(torture_draw(recorder->random) &
				    torture_draw(recorder->random)) &
			 mask;
	for (unsigned int i = 0; i < 2; i++) {
		if (recorder->strides[i] < strides[i])
			words |= 4u << i;
		values[2 + i] = strides[i] + torture_below(recorder->random, 4);
		if (words >> (2 + i) & 1)
			recorder->strides[i] = values[2 + i];
	}
	push_words(recorder, layout, words, values);
	recorder->pushed |= words;
	recorder->has_new_words |= words != 0;
}

/* Push constants of a drawn layout, with or without a pipeline. */
void torture_push_some(struct torture_recorder *recorder)
{
	static const uint32_t strides[2] = {1, 1};
	unsigned int i = torture_below(recorder->random, TORTURE_N_LAYOUTS);

	if (!recorder->pipeline)
		torture_count(TORTURE_PUSH_FIRST);
	push(recorder, &torture.layouts[i], strides, false);
}

/* ---- Dispatches ---- */

static struct extent draw_extent(struct torture_recorder *recorder, bool has_base)
{
	struct torture_random *random = recorder->random;
	uint32_t most = 1u << torture_below(random, 13),
		 left = most - torture_below(random, most) / 2;
	unsigned int n_dimensions = 1 + torture_below(random, 3);
	struct extent extent = {.counts = {1, 1, 1}};

	for (unsigned int i = 0; i < n_dimensions; i++) {
		unsigned int at = torture_below(random, 3);
		uint32_t n = i + 1 == n_dimensions
				     ? left
				     : 1 + torture_below(random, left < 40 ? left : 40);

		if (extent.counts[at] > 1)
			continue;
		extent.counts[at] = n;
		left = left / n > 0 ? left / n : 1;
	}
	if (torture_chance(random, 25))
		extent.counts[torture_below(random, 3)] = 0;
	for (unsigned int i = 0; i < 3; i++)
		extent.base[i] =
			has_base ? torture_below(random, torture_chance(random, 6) ? 40 : 4) : 0;
	for (unsigned int i = 0; i < 2; i++)
		extent.strides[i] = extent.base[i] + extent.counts[i];
	return extent;
}

static void count_extent(const struct extent *extent)
{
	const uint32_t *n = extent->counts;

	if (n[0] * n[1] * n[2] == 0)
		torture_count(TORTURE_DISPATCH_0);
	if (n[0] * n[1] * n[2] >= 1000)
		torture_count(TORTURE_DISPATCH_LARGE);
	if (n[0] > 1 && n[1] > 1 && n[2] > 1)
		torture_count(TORTURE_DISPATCH_3D);
}

static void use_sets(struct torture_recorder *recorder, const struct plan *plan, bool is_indirect)
{
	uint64_t reads = is_indirect ? 1ull << TORTURE_BIT_ARGUMENTS : 0, writes = 0;

	for (unsigned int i = 0; i < plan->layout->n_sets; i++) {
		reads |= plan->sets[i].reads;
		writes |= plan->sets[i].writes;
	}
	torture_sync_use(recorder, reads, writes);
	if (++recorder->n_all_dispatches == 30)
		torture_count(TORTURE_MANY_DISPATCHES);
	if (recorder->n_dispatches++ > 0)
		torture_count(TORTURE_NO_BARRIER);
}

static void emit_dispatch(struct torture_recorder *recorder, const struct extent *extent,
			  bool has_base)
{
	const uint32_t *n = extent->counts, *base = extent->base;

	torture_count(has_base ? TORTURE_DISPATCH_BASE : TORTURE_DISPATCH);
	count_extent(extent);
	if (recorder->skips)
		return;
	recorder->has_base = has_base;
	if (has_base)
		vkCmdDispatchBase(recorder->commands, base[0], base[1], base[2], n[0], n[1], n[2]);
	else
		vkCmdDispatch(recorder->commands, n[0], n[1], n[2]);
}

static void emit_indirect(struct torture_recorder *recorder, uint32_t slot)
{
	torture_count(recorder->has_written_arguments ? TORTURE_INDIRECT_WRITTEN
						      : TORTURE_INDIRECT);
	if (recorder->skips)
		return;
	/* Without workgroups, and without a base. */
	if (torture.keeps_base && recorder->has_base)
		vkCmdDispatch(recorder->commands, 0, 0, 0);
	recorder->has_base = false;
	vkCmdDispatchIndirect(recorder->commands, torture.arguments.handle,
			      slot * TORTURE_ARGUMENT_BYTES);
}

/* Bind the plan's pipeline and sets, and push constants, in any order. */
static void prepare(struct torture_recorder *recorder, struct plan *plan, const uint32_t strides[2])
{
	unsigned int first = torture_below(recorder->random, 3);

	if (first == 1 && !recorder->pipeline)
		torture_count(TORTURE_PUSH_FIRST);
	for (unsigned int i = 0; i < 3; i++) {
		unsigned int step = (first + i) % 3;

		if (step == 0)
			bind_pipeline(recorder, plan);
		else if (step == 1)
			push(recorder, plan->layout, strides, true);
		else
			bind_sets(recorder, plan);
	}
}

void torture_dispatch(struct torture_recorder *recorder)
{
	static const uint32_t most[2] = {TORTURE_MOST_INDIRECT, TORTURE_MOST_INDIRECT};
	struct plan plan;
	struct extent extent;
	bool is_indirect, has_base;
	uint32_t slot;

	if (!draw_plan(recorder, &plan))
		return;
	is_indirect = torture_chance(recorder->random, 8) &&
		      plan.pipeline->use != TORTURE_WRITES_ARGUMENTS;
	has_base = plan.pipeline->has_base && torture_chance(recorder->random, 3) && !is_indirect;
	extent = draw_extent(recorder, has_base);
	slot = torture_below(recorder->random, TORTURE_ARGUMENTS);
	prepare(recorder, &plan, is_indirect ? most : extent.strides);
	/*
	 * lavapipe (Mesa 22.3) forgets new words if the dispatch's layout has no room for them. The
	 * layer pushes words anew where a command buffer stays whole, which graphics is a reason
	 * for.
	 */
	if (plan.layout->push_words == 0 && (recorder->has_new_words || torture.has_graphics))
		recorder->pushed = 0;
	recorder->has_new_words &= recorder->skips;
	use_sets(recorder, &plan, is_indirect);
	if (is_indirect)
		emit_indirect(recorder, slot);
	else
		emit_dispatch(recorder, &extent, has_base);
	if (plan.pipeline->use == TORTURE_WRITES_ARGUMENTS)
		recorder->has_written_arguments = true;
}
