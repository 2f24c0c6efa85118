/* SPDX-License-Identifier: MIT */
/* Running the segments of a cut by the plain reference */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/segments.h"

static void expect(bool is_right, uint32_t segment, const char *what)
{
	if (is_right)
		return;
	fprintf(stderr, "segment %u: %s\n", segment, what);
	abort();
}

/* Compare the references that the cut lists with the bindings of the segment's plan. */
static void check_refs(const struct cut *cut, uint32_t i, const struct plan *plan)
{
	const struct cut_segment *segment = cut_segment(cut, i);
	uint64_t end;

	expect(plan->n_bindings == segment->n_refs, i, "its bindings are not those of the cut");
	expect(plan->n_nodes == segment->n_nodes, i, "its nodes are not those of the cut");
	for (uint16_t b = 0; b < plan->n_bindings; b++) {
		const struct cut_ref *ref = &segment->refs[b];

		if (ref->binding != CUT_NO_BINDING)
			continue;
		end = ref->offset + plan->tensors[plan->bindings[b].tensor].max_bytes;
		expect(ref->offset % RBK_REF_ALIGN == 0, i, "a tensor that crosses is unaligned");
		expect(end <= cut_crossing_bytes(cut), i, "a tensor is beyond the crossing block");
	}
}

struct plan *reference_segment(const struct cut *cut, uint32_t i,
			       const struct plan_arena_lookup *lookup)
{
	char message[PLAN_MESSAGE_BYTES] = "";
	struct plan *plan = NULL;
	void *desc = NULL;
	size_t bytes;

	expect(cut_describe(cut, i, &desc, &bytes) == 0, i, "no description");
	expect(plan_new(desc, bytes, lookup, message, &plan) == 0, i, message);
	free(desc);
	check_refs(cut, i, plan);
	return plan;
}

/* Return true if two references to the crossing block, one of which is written, share bytes. */
static bool collide(const struct plan *a, const struct cut_ref *a_ref, uint32_t a_binding,
		    const struct plan *b, const struct cut_ref *b_ref, uint32_t b_binding)
{
	const struct plan_binding *a_bound = &a->bindings[a_binding];
	const struct plan_binding *b_bound = &b->bindings[b_binding];

	return a_ref->binding == CUT_NO_BINDING && b_ref->binding == CUT_NO_BINDING &&
	       (a_bound->written || b_bound->written) &&
	       a_ref->offset < b_ref->offset + b->tensors[b_bound->tensor].max_bytes &&
	       b_ref->offset < a_ref->offset + a->tensors[a_bound->tensor].max_bytes;
}

/* Check that segments @a and @b, of which neither waits for the other, share no bytes. */
static void check_pair(const struct cut *cut, struct plan *const *plans, uint32_t a, uint32_t b)
{
	for (uint16_t i = 0; i < plans[a]->n_bindings; i++)
		for (uint16_t k = 0; k < plans[b]->n_bindings; k++)
			expect(!collide(plans[a], &cut_segment(cut, a)->refs[i], i, plans[b],
					&cut_segment(cut, b)->refs[k], k),
			       b, "it writes what another uses at the same time");
}

void reference_check_beside(const struct cut *cut, const struct plan_arena_lookup *lookup)
{
	uint64_t before[CUT_MAX_SEGMENTS];
	struct plan *plans[CUT_MAX_SEGMENTS];

	for (uint32_t i = 0; i < cut_n_segments(cut); i++) {
		plans[i] = reference_segment(cut, i, lookup);
		before[i] = cut_segment(cut, i)->needs;
		expect(!(before[i] >> i), i, "it needs a later one");
		for (uint32_t k = 0; k < i; k++)
			if (before[i] & UINT64_C(1) << k)
				before[i] |= before[k];
		for (uint32_t k = 0; k < i; k++)
			if (!(before[i] & UINT64_C(1) << k))
				check_pair(cut, plans, k, i);
	}
	for (uint32_t i = 0; i < cut_n_segments(cut); i++)
		plan_free(plans[i]);
}

/* Return a segment that needs only segments in @done: the first, or a random one. */
static uint32_t next_segment(const struct cut *cut, uint64_t done, uint64_t *order)
{
	uint32_t ready[CUT_MAX_SEGMENTS], n = 0;

	for (uint32_t i = 0; i < cut_n_segments(cut); i++)
		if (!(done & UINT64_C(1) << i) && !(cut_segment(cut, i)->needs & ~done))
			ready[n++] = i;
	expect(n > 0, cut_n_segments(cut), "none can begin");
	return ready[order ? reference_random(order) % n : 0];
}

void reference_run_segments(const struct cut *cut, const struct plan_arena_lookup *lookup,
			    uint32_t count, void *const *bindings, uint64_t *order)
{
	uint8_t *block = reference_alloc(cut_crossing_bytes(cut));
	void *refs[RBK_MAX_REFS];
	uint64_t done = 0;

	memset(block, 0xa5, cut_crossing_bytes(cut));
	for (uint32_t n = 0; n < cut_n_segments(cut); n++) {
		const uint32_t i = next_segment(cut, done, order);
		const struct cut_segment *segment = cut_segment(cut, i);
		struct plan *plan = reference_segment(cut, i, lookup);

		done |= UINT64_C(1) << i;
		for (uint16_t b = 0; b < segment->n_refs; b++)
			refs[b] = segment->refs[b].binding == CUT_NO_BINDING
					  ? block + segment->refs[b].offset
					  : bindings[segment->refs[b].binding];
		reference_run(plan, segment->is_counted ? count : 1, refs);
		plan_free(plan);
	}
	free(block);
}

uint32_t reference_firsts(const struct plan *plan, uint64_t *state, uint16_t *ret_firsts)
{
	/* From a cut before each node to a single cut, or none. */
	const uint64_t part = 1 + reference_random(state) % (plan->n_nodes < 8 ? plan->n_nodes : 8);
	uint32_t n = 0;

	for (uint16_t i = 1; i < plan->n_nodes && n < CUT_MAX_SEGMENTS - 1; i++)
		if (reference_random(state) % part == 0)
			ret_firsts[n++] = i;
	return n;
}
