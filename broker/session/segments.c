/* SPDX-License-Identifier: MIT */
/*
 * Segments: a plan of a session that is cut into plans of their own
 *
 * The arena of crossing blocks belongs to the broker alone. Each block is written before it is
 * read, by the segments of one task, so no task sees what another left there.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "memory/residency.h"
#include "plan/cut-points.h"
#include "plan/exec-arena.h"
#include "session/arena-memory.h"
#include "session/description.h"
#include "session/segments.h"
#include "session/server-private.h"
#include "shm/plan-wire.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/number.h"

enum {
	/*
	 * Tasks of a plan whose segments run at a time: enough for each of a few devices to have
	 * one while the next waits
	 */
	SETS_MOST = 8,
	SETS_LEAST = 2,
	SETS_OF_FASTER = 4, /* least for RBK_CUT_FASTER */
	/*
	 * A plan stays whole if its segments would have more tensors together than so many times
	 * its own: thousands of nodes may share thousands of constants.
	 */
	TENSORS_MOST = 4,
};

/* Memory of crossing blocks above which there are fewer than SETS_MOST */
static const uint64_t sets_bytes = 64ull << 20;

void plan_set_state(struct session_plan *plan, enum slot_state state)
{
	plan->state = (uint8_t)state;
	for (uint32_t i = 0; plan->segments && i < plan->segments->n; i++)
		plan->segments->of[i].plan.state = (uint8_t)state;
}

bool segments_wish(const struct session *session, struct cut_wish *ret)
{
	const struct server_options *options = &session->server->options;
	uint64_t room_bytes;

	*ret = (struct cut_wish){.memory_bytes = 0, .seed = options->cut_seed};
	for (uint32_t i = RBK_DEVICE_GPU; i < options->n_executors; i++) {
		room_bytes = residency_room(options->residency, i, session->tenant);
		/* Nothing can be on a device whose memory the tenant may not use. */
		if (room_bytes == 0)
			continue;
		ret->devices = OP_ON_VULKAN;
		if (room_bytes <= ret->memory_bytes)
			continue;
		ret->memory_bytes = room_bytes;
		ret->types = options->executors[i]->info.types;
	}
	return ret->devices || ret->seed;
}

uint64_t segments_most_bytes(size_t desc_bytes)
{
	const uint64_t n_nodes = desc_bytes / sizeof(struct rbk_plan_node);
	const uint64_t n = n_nodes < CUT_MAX_SEGMENTS ? n_nodes : CUT_MAX_SEGMENTS;

	/* The cut's own tensors and a description; the segments' plans, with a fixed part each */
	return plan_new_bytes(desc_bytes) + 2 * desc_bytes +
	       TENSORS_MOST * plan_new_bytes(desc_bytes) + sizeof(struct session_segments) +
	       SETS_MOST *
		       (sizeof(struct segment_set) + (SEGMENTS_AT_ONCE - 1) * SEGMENT_SLOT_BYTES) +
	       SETS_MOST * CUT_MAX_SEGMENTS * sizeof(struct segment_run) +
	       n * (sizeof(struct session_segment) + plan_new_bytes(0));
}

static struct session_segments *segments_new(struct session_plan *plan, uint32_t n)
{
	struct session_segments *segments = calloc(1, sizeof(*segments));

	if (!segments)
		return NULL;
	segments->n = n;
	segments->of = calloc(n, sizeof(*segments->of));
	segments->sets = calloc(SETS_MOST, sizeof(*segments->sets));
	if (!segments->of || !segments->sets)
		return segments_free(segments);
	segments->arena.fd = -1;
	for (uint32_t i = 0; i < n; i++) {
		segments->of[i].plan.session = plan->session;
		segments->of[i].plan.whole = plan;
		segments->of[i].plan.state = plan->state;
		list_init(&segments->of[i].plan.check);
	}
	return segments;
}

/* Return the least size of the pieces of an arena that a device reaches apart; 0: none does. */
static uint64_t piece_bytes(const struct server_options *options)
{
	uint64_t least = 0;

	for (uint32_t i = 0; i < options->n_executors; i++) {
		const uint64_t bytes = options->executors[i]->info.arena_segment_bytes;

		if (bytes > 0 && (least == 0 || bytes < least))
			least = bytes;
	}
	return least;
}

/* Choose the number of crossing blocks, and where they are: none crosses a piece if it fits. */
static void place_sets(const struct server_options *options, struct session_segments *segments,
		       uint64_t block_bytes)
{
	const uint64_t piece = piece_bytes(options);
	const uint64_t n_per_piece = block_bytes && block_bytes <= piece ? piece / block_bytes : 0;
	uint64_t n = block_bytes ? sets_bytes / block_bytes : SETS_MOST;

	n = n < SETS_LEAST ? SETS_LEAST : n;
	segments->n_sets = n < SETS_MOST ? (uint32_t)n : SETS_MOST;
	for (uint32_t i = 0; i < segments->n_sets; i++) {
		segments->sets[i].offset =
			n_per_piece ? i / n_per_piece * piece + i % n_per_piece * block_bytes
				    : i * block_bytes;
		segments->sets[i].next = i > 0 ? &segments->sets[i - 1] : NULL;
	}
	segments->free_sets = &segments->sets[segments->n_sets - 1];
	list_init(&segments->waiting);
	/* Cannot overflow: see PLAN_MAX_BYTES. */
	if (block_bytes > 0)
		checked_align(segments->free_sets->offset + block_bytes,
			      (uint64_t)sysconf(_SC_PAGESIZE), &segments->arena.bytes);
}

/*
 * Make the records of the segments of tasks, and the slots for those that may run at once.
 * Return: 0; -ENOMEM.
 */
static int make_runs(struct session_plan *plan)
{
	struct session_segments *segments = plan->segments;
	const size_t n_runs = (size_t)segments->n * segments->n_batches;
	uint32_t n = min_u32(cut_width(segments->cut), SEGMENTS_AT_ONCE);

	/* A state is updated as a whole, as the segments would one by one. */
	if (plan->plan->has_state)
		n = 1;
	segments->n_at_once = n;
	/* Micro-batches run at once, too, whatever the plan's segments do. */
	if (segments->n_batches > 1)
		n = SEGMENTS_AT_ONCE;
	segments->n_slots = n;
	segments->runs = calloc(segments->n_sets * n_runs, sizeof(*segments->runs));
	if (!segments->runs)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < segments->n_sets; i++)
		segments->sets[i].runs = &segments->runs[i * n_runs];
	if (n == 1)
		return 0;
	segments->slots = calloc((size_t)segments->n_sets * (n - 1), SEGMENT_SLOT_BYTES);
	if (!segments->slots)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < segments->n_sets; i++)
		segments->sets[i].slots = (void *)((uint8_t *)segments->slots +
						   (size_t)i * (n - 1) * SEGMENT_SLOT_BYTES);
	return 0;
}

/*
 * Cut the plan where @choice says.
 * Return: 0; CUT_E_REFS, CUT_E_BYTES: segments would be too large; -ENOMEM.
 */
static int cut_at(struct session_plan *plan, const struct cut_choice *choice)
{
	const struct description *description = plan->description;
	struct session_segments *segments = segments_new(plan, choice->n + 1);
	uint64_t most_bytes = UINT64_MAX;
	int r;

	if (!segments)
		return error_origin(-ENOMEM);
	/* A plan that a device could have whole must not have fewer tasks in flight. */
	if (choice->why == RBK_CUT_FASTER)
		most_bytes = sets_bytes / SETS_OF_FASTER;
	r = cut_new(description->bytes, description->n_bytes, plan->plan, choice->firsts, choice->n,
		    &segments->cut);
	if (r == 0 && cut_n_tensors(segments->cut) > TENSORS_MOST * plan->plan->n_tensors)
		r = CUT_E_REFS;
	if (r == 0 && cut_crossing_bytes(segments->cut) > most_bytes)
		r = CUT_E_BYTES;
	if (r) {
		segments_free(segments);
		return r;
	}
	segments->is_random = description->wish.seed != 0;
	segments->n_batches = cut_n_batches(segments->cut);
	segments->grain_rows = cut_grain_rows(segments->cut);
	segments->grain_bytes = cut_grain_bytes(segments->cut);
	place_sets(&plan->session->server->options, segments, cut_crossing_bytes(segments->cut));
	plan->segments = segments;
	return make_runs(plan);
}

/* Choose where the plan is cut, by times if they are known and @by_time, and cut it. */
static int choose(struct session_plan *plan, bool by_time)
{
	const struct server_hooks *hooks = &plan->session->server->options.hooks;
	const struct description *description = plan->description;
	struct cut_choice choice;

	if (!by_time || !description->cut_basis ||
	    !hooks->cut_choose(description->cut_basis, plan->plan, &description->wish, &choice))
		cut_points(plan->plan, &description->wish, &choice);
	plan->cut = (uint8_t)choice.why;
	plan->cut_ns = choice.cut_ns;
	plan->whole_ns = choice.whole_ns;
	return choice.n > 0 ? cut_at(plan, &choice) : 0;
}

/*
 * Decide whether and where the plan is cut.
 * Return: 0: see plan->segments; -ENOMEM.
 */
static int cut(struct session_plan *plan)
{
	int r = choose(plan, true);

	if (r > 0)
		r = choose(plan, false);
	if (r > 0)
		plan->cut = RBK_CUT_REFUSED;
	return r < 0 ? error_fold(r) : 0;
}

/* Do a part of the work of making segment @i's plan. Return: as plan_maker_work(). */
static int make_one(struct session_plan *plan, uint32_t i)
{
	struct session_segments *segments = plan->segments;
	struct session_segment *segment = &segments->of[i];
	struct description *description = plan->description;
	int r = 0;

	if (!segments->desc)
		r = cut_describe(segments->cut, i, &segments->desc, &segments->desc_bytes);
	if (r == 0 && !segments->maker)
		r = plan_maker_new(
			segments->desc, segments->desc_bytes,
			&(struct plan_arena_lookup){description_find_arena, &description->pins},
			description->message, &segments->maker);
	if (r == 0)
		r = plan_maker_work(segments->maker, &segment->plan.plan);
	if (r == PLAN_E_MORE)
		return r;
	segments->maker = plan_maker_free(segments->maker);
	free(segments->desc);
	segments->desc = NULL;
	segment->cut = *cut_segment(segments->cut, i);
	return r;
}

bool segments_make(struct session_plan *plan)
{
	struct description *description = plan->description;
	int r = 0;

	description->result = -ECANCELED;
	if (!plan->segments)
		r = cut(plan);
	for (uint32_t i = 0; r == 0 && plan->segments && i < plan->segments->n; i++) {
		if (plan->segments->of[i].plan.plan)
			continue;
		r = make_one(plan, i);
		if (r == PLAN_E_MORE || (r == 0 && i + 1 < plan->segments->n))
			return true;
	}
	if (r) {
		plan->cut = RBK_CUT_REFUSED;
		plan->segments = segments_free(plan->segments);
	} else if (plan->segments) {
		plan->segments->cut = cut_free(plan->segments->cut);
	}
	description->result = 0;
	return false;
}

uint64_t segments_bytes(const struct session_segments *segments)
{
	return sizeof(*segments) + segments->n * sizeof(*segments->of) +
	       SETS_MOST * sizeof(*segments->sets) +
	       (uint64_t)segments->n_sets * segments->n * segments->n_batches *
		       sizeof(*segments->runs) +
	       (uint64_t)segments->n_sets * (segments->n_slots - 1) * SEGMENT_SLOT_BYTES;
}

uint64_t segments_arena_bytes(const struct session_segments *segments)
{
	return segments->arena.bytes;
}

static bool wraps(const struct executor *executor)
{
	return executor->ops->arena_wrap && executor->info.arena_segment_bytes > 0;
}

uint64_t segments_n_wraps(const struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;
	uint64_t n = 0;

	for (uint32_t i = 0; i < options->n_executors; i++)
		if (wraps(options->executors[i]))
			n += div_up(plan->segments->arena.bytes,
				    options->executors[i]->info.arena_segment_bytes);
	return n;
}

/* Import the arena, whose pages are all there, into the executors. */
static void import_arena(struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;
	struct session_segments *segments = plan->segments;
	struct exec_arena *arena = &segments->arena;

	arena->owner = tenant_owner(plan->session->tenant, plan->session->uid);
	for (uint32_t i = 0; i < options->n_executors; i++) {
		struct executor *executor = options->executors[i];

		if (segments->may_wrap && wraps(executor))
			executor->ops->arena_wrap(executor, arena);
		executor->ops->arena_import(executor, arena);
	}
	arena->fd = close_fd(arena->fd);
	segments->is_imported = true;
}

/* Allocate the next pages of the arena, and fault them in. Return: 0; a negative errno. */
static int fill_arena(struct session_segments *segments)
{
	const uint64_t bytes =
		min_u64(ARENA_STEP_BYTES, segments->arena.bytes - segments->n_bytes_done);
	int r = exec_arena_fill(&segments->arena, segments->n_bytes_done, bytes);

	if (r)
		return error_fold(r);
	arena_populate(&segments->arena, segments->n_bytes_done, bytes);
	segments->n_bytes_done += bytes;
	return 0;
}

bool segments_map(struct session_plan *plan)
{
	struct session_segments *segments = plan->segments;
	struct exec_arena *arena = &segments->arena;

	if (!arena->base) {
		segments->map_result = exec_arena_make("ringbroker-crossing", arena->bytes, arena);
	} else if (segments->n_bytes_done < arena->bytes) {
		segments->map_result = fill_arena(segments);
	} else {
		import_arena(plan);
		return false;
	}
	return !segments->map_result;
}

bool segments_unmap(struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;
	struct session_segments *segments = plan->segments;
	struct exec_arena *arena = &segments->arena;

	if (!arena->base)
		return false;
	arena->fd = close_fd(arena->fd);
	for (uint32_t i = 0; segments->is_imported && i < options->n_executors; i++)
		options->executors[i]->ops->arena_release(options->executors[i], arena);
	segments->is_imported = false;
	exec_arena_unwrap(arena);
	return !arena_unmap(arena);
}

struct session_segments *segments_free(struct session_segments *segments)
{
	if (!segments)
		return NULL;
	plan_maker_free(segments->maker);
	free(segments->desc);
	cut_free(segments->cut);
	for (uint32_t i = 0; segments->of && i < segments->n; i++)
		plan_free(segments->of[i].plan.plan);
	free(segments->of);
	free(segments->sets);
	free(segments->runs);
	free(segments->slots);
	free(segments);
	return NULL;
}

/* Return the state that says more of a plan: of two segments', the first of this list. */
static uint8_t better_state(uint8_t a, uint8_t b)
{
	static const uint8_t ranks[] = {
		[PLAN_DEVICE_READY] = 0,       [PLAN_DEVICE_EVICTED] = 1,
		[PLAN_DEVICE_FAILED] = 2,      [PLAN_DEVICE_NO_MEMORY] = 3,
		[PLAN_DEVICE_UNSUPPORTED] = 4,
	};

	return ranks[a] < ranks[b] ? a : b;
}

/* As plan_segment(), which also permits changes. */
static const struct session_plan *segment_of(const struct session_plan *plan, uint32_t i)
{
	return plan->segments ? &plan->segments->of[i].plan : plan;
}

void plan_describe(const struct session_plan *plan, unsigned int device,
		   struct residency_about *ret)
{
	const struct residency *residency = plan->session->server->options.residency;

	*ret = (struct residency_about){.device_state = PLAN_DEVICE_UNSUPPORTED};
	for (uint32_t i = 0; i < plan_n_segments(plan); i++) {
		const struct session_plan *segment = segment_of(plan, i);
		struct residency_about about = {.device_state =
							segment->plan->device_state[device]};

		if (device != RBK_DEVICE_CPU && segment->memory.residency)
			residency_about(residency, &segment->memory, device, &about);
		if (about.device_state == PLAN_DEVICE_READY)
			ret->tier = about.tier;
		ret->device_state = better_state(ret->device_state, about.device_state);
		ret->required_bytes += about.required_bytes;
		ret->available_bytes = max_u64(ret->available_bytes, about.available_bytes);
		ret->resident_bytes += about.resident_bytes;
		ret->n_evictions += about.n_evictions;
		ret->n_returns += about.n_returns;
	}
}

uint32_t plan_n_resident(const struct session_plan *plan)
{
	const uint32_t n_devices = plan->session->server->options.n_executors;
	uint32_t n = 0;

	for (uint32_t i = 0; i < plan_n_segments(plan); i++) {
		const struct plan *segment = segment_of(plan, i)->plan;
		bool is_resident = false;

		for (uint32_t k = RBK_DEVICE_GPU; k < n_devices; k++)
			is_resident |= segment->device_state[k] == PLAN_DEVICE_READY;
		n += is_resident;
	}
	return n;
}

uint64_t plan_n_constrained(const struct session_plan *plan)
{
	uint64_t n = plan->memory.n_constrained;

	for (uint32_t i = 0; plan->segments && i < plan->segments->n; i++)
		n += plan->segments->of[i].plan.memory.n_constrained;
	return n;
}
