/* SPDX-License-Identifier: MIT */
/*
 * Segments: tasks of plans that are cut
 *
 * The segments of a task run one after the other, each placed by itself, in the task's one slot.
 * While a segment runs, the slot describes a task of that segment alone: plan, count and references
 * are the segment's, so that placement, residency, falling back and withdrawal know nothing of
 * segments. A set (session/segments.h) keeps the plan's references and count until the task ends,
 * and adds up its times. Tasks of one plan overlap: while one device runs a segment of one task,
 * another device runs a segment of another task.
 *
 * Where segments need not wait for each other, they run at once, each in a slot of its own
 * (at-once-hot.c). Tasks with states, and those that an earlier broker has begun, run one segment
 * after the other.
 *
 * A task that finds no free set waits in phase TASK_BLOCKED. A task that ends gives its set to the
 * task that has waited longest. So at most n_sets tasks of a plan have begun, and nothing is
 * allocated on the way.
 *
 * A segment that fails ends the task. A segment without states that fails with its device runs
 * again on the CPU if the task may run there (run-hot.c); what earlier segments left is in the
 * crossing block, which every device can reach.
 *
 * States are updated as a whole, as far as devices and memory permit: once a segment that updates
 * one has begun, the task is not cancelled any more while its client is there, nor does it wait for
 * memory. Before the first segment with states begins, the states of all segments are copied
 * (undo-hot.c): the next broker runs the whole task again, maybe cut otherwise.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"
#include "place/graph.h"
#include "session/segments.h"
#include "util/number.h"

static bool updates_state(const struct plan *plan)
{
	for (uint32_t i = 0; plan->has_state && i < plan->n_nodes; i++)
		for (uint32_t k = 0; k < plan->nodes[i].n_out; k++)
			if (plan->tensors[plan->nodes[i].out[k]].kind == RBK_TENSOR_STATE)
				return true;
	return false;
}

/* Note what the segment reads of what earlier ones wrote, except states. */
static void note_crossing(struct session_segment *segment)
{
	segment->from = segment->crossed_fixed_bytes = segment->crossed_row_bytes = 0;
	for (uint32_t b = 0; b < segment->cut.n_refs; b++) {
		const struct plan_binding *binding = &segment->plan.plan->bindings[b];
		const uint16_t writer = segment->cut.refs[b].writer;

		if (writer == CUT_NO_WRITER)
			continue;
		segment->from |= UINT64_C(1) << writer;
		segment->crossed_fixed_bytes += binding->fixed_bytes;
		segment->crossed_row_bytes += binding->row_bytes;
	}
}

/* Prepare the slots of a plan whose segments run at once. */
static void prepare_slots(struct session_segments *segments)
{
	for (uint32_t i = 0; i < segments->n_sets; i++)
		for (uint32_t k = 1; k < segments->n_slots; k++) {
			struct task *slot = segments_slot(&segments->sets[i], k);
			struct segment_slot *memory = container_of(slot, struct segment_slot, task);

			slot->phase = TASK_IDLE;
			slot->run.refs = memory->refs;
			slot->run.exec.refs = memory->refs;
		}
}

void segments_ready(struct session_plan *plan)
{
	for (uint32_t i = 0; i < plan->segments->n; i++) {
		plan->segments->of[i].updates_state =
			updates_state(plan->segments->of[i].plan.plan);
		note_crossing(&plan->segments->of[i]);
	}
	prepare_slots(plan->segments);
	list_init(&plan->waiting);
	list_init(&plan->ending);
}

/* Reset the results of a slot's last segment, except those that the next placement sets. */
static void reset_slot(struct task *task)
{
	task->n_rows_done[0] = task->n_rows_done[1] = 0;
	task->start_ticks = task->end_ticks = 0;
	task->split_count = 0;
	task->predicted_ns = task->other_ns = 0;
	task->is_explored = task->is_moved = task->was_held_back = false;
	task->has_waited = false;
	task->wait_res = 0;
	task->res = 0;
}

/* Return where in its crossing block a task, or its present micro-batch, has a tensor. */
static uint64_t crossing_offset(const struct task *task, const struct cut_ref *ref)
{
	const struct session_segments *segments = task->whole->segments;
	const struct segment_set *set = task->set;
	uint64_t before;

	if (set->n_batches == 1)
		return ref->offset;
	before = (uint64_t)task->batch * (set->batch_rows / segments->grain_rows);
	return before * segments->grain_bytes +
	       ((task->count - 1) / segments->grain_rows + 1) * ref->grain_offset;
}

void segments_describe(struct task *task, uint32_t i, uint32_t batch)
{
	struct session_segments *segments = task->whole->segments;
	struct session_segment *segment = &segments->of[i];
	const struct segment_set *set = task->set;
	struct exec_ref *refs = task->run.refs;

	const uint32_t first_row = batch * set->batch_rows;

	reset_slot(task);
	task->segment = (uint16_t)i;
	task->batch = (uint16_t)batch;
	task->set->runs[segments_instance(task)].begun_device = RBK_DEVICE_NONE;
	task->plan = &segment->plan;
	task->count =
		segment->cut.is_counted ? min_u32(set->count - first_row, set->batch_rows) : 1;
	for (uint32_t b = 0; b < segment->cut.n_refs; b++) {
		const struct cut_ref *ref = &segment->cut.refs[b];

		if (ref->binding == CUT_NO_BINDING) {
			refs[b] = (struct exec_ref){&segments->arena,
						    set->offset + crossing_offset(task, ref)};
			continue;
		}
		refs[b] = set->refs[ref->binding];
		refs[b].offset += first_row * segment->plan.plan->bindings[b].row_bytes;
	}
}

/*
 * Return -ENODEV or -ENOMEM if a task for GPUs alone has states, and one of its segments can run on
 * no GPU; otherwise 0. What is evicted now can run.
 */
static int refuse(const struct dispatch *dispatch, const struct task *task)
{
	const struct session_segments *segments = task->plan->segments;
	bool can_run = true, lacks_memory = false;

	if (!task->plan->plan->has_state || task->strategy != RBK_STRATEGY_ONLY_GPU)
		return 0;
	for (uint32_t i = 0; i < segments->n && can_run; i++) {
		const struct plan *plan = segments->of[i].plan.plan;

		can_run = lacks_memory = false;
		for (uint32_t k = RBK_DEVICE_GPU; k < dispatch->n_executors; k++) {
			lacks_memory |= plan->device_state[k] == PLAN_DEVICE_NO_MEMORY;
			can_run |= plan->device_state[k] == PLAN_DEVICE_READY ||
				   plan->device_state[k] == PLAN_DEVICE_EVICTED;
		}
	}
	return can_run ? 0 : lacks_memory ? -ENOMEM : -ENODEV;
}

/* Have the slots of a task's set know the task, beside its own, which has the first segment. */
static void spread(struct segment_set *set, struct task *task)
{
	set->begun = bit_u64(segments_instance(task));
	set->done = 0;
	set->n_busy = 1;
	set->res = 0;
	for (uint32_t i = 1; i < set->n_slots; i++) {
		struct task *slot = segments_slot(set, i);

		slot->ring = task->ring;
		slot->whole = task->whole;
		slot->set = set;
		slot->user_data = task->user_data;
		slot->admit_ticks = task->admit_ticks;
		slot->deadline_ticks = task->deadline_ticks;
		slot->opcode = task->opcode;
		slot->strategy = task->strategy;
		slot->priority = task->priority;
		slot->place_flags = task->place_flags;
		slot->waits_for_memory = task->waits_for_memory;
	}
}

bool segments_begin(const struct dispatch *dispatch, struct task *task, int *ret_res)
{
	struct session_plan *whole = task->plan;
	struct session_segments *segments = whole->segments;
	struct segment_set *set = task->set;

	*ret_res = refuse(dispatch, task);
	if (*ret_res)
		return false;
	if (!set) {
		set = segments->free_sets;
		if (!set) {
			task->phase = TASK_BLOCKED;
			list_append(&segments->waiting, &task->waiting);
			return false;
		}
		segments->free_sets = set->next;
		segments->n_begun++;
	}
	for (uint32_t i = 0; i < whole->plan->n_bindings; i++)
		set->refs[i] = task->run.refs[i];
	set->count = task->count;
	set->start_ticks = set->end_ticks = 0;
	for (uint32_t i = 0; i < RBK_MAX_DEVICES; i++) {
		set->ran_ticks[i] = 0;
		set->ended[i].at_ns = 0;
	}
	set->longest_ticks = 0;
	set->predicted_ns = 0;
	set->reason = RBK_REASON_NONE;
	set->is_explored = set->is_moved = set->is_partitioned = false;
	set->has_updated = false;
	set->noted = 0;
	set->last_device = RBK_DEVICE_NONE;
	/* A crash handler follows a task to its slots (blame.c), so they are known before. */
	set->task = task;
	set->n_batches = 1;
	set->batch_rows = set->count;
	set->n_slots = task->is_rerun || task->is_suspect ? 1 : segments->n_at_once;
	if (segments->n_batches > 1 && !task->is_rerun && !task->is_suspect)
		stream_begin(dispatch, task, set);
	atomic_thread_fence(memory_order_release);
	task->whole = whole;
	task->set = set;
	if (set->n_batches == 1 && (set->n_slots > 1 || segments_in_stream(segments)))
		segments_advise(dispatch, segments, task);
	/* The first in order needs none: whatever it needs begins earlier in any schedule. */
	segments_describe(task, set->n_slots > 1 ? segments_in_order(segments, set, 0) : 0, 0);
	if (set->n_slots > 1) {
		set->begin_ns = dispatch_now_ns(dispatch);
		spread(set, task);
	}
	return true;
}

/* Return true if reason @a says more of a task than @b, wherever its longest part ran. */
static bool says_more(uint8_t a, uint8_t b)
{
	if (a == RBK_REASON_CPU_FALLBACK || b == RBK_REASON_CPU_FALLBACK)
		return b != RBK_REASON_CPU_FALLBACK;
	return a == RBK_REASON_MEMORY_CONSTRAINT && b != RBK_REASON_MEMORY_CONSTRAINT;
}

/*
 * Note the reason of a segment: a failed device comes first, then lack of memory, then the reason
 * of the longest segment.
 */
static void note_reason(struct segment_set *set, uint8_t reason, uint64_t ticks)
{
	if (says_more(set->reason, reason) ||
	    (!says_more(reason, set->reason) && set->reason && ticks <= set->longest_ticks))
		return;
	set->reason = reason;
	set->longest_ticks = ticks;
}

/* Return when the present segment could begin: after those that it needs, or the one before. */
static uint64_t ready_ticks(const struct task *task)
{
	const struct segment_run *runs = task->set->runs;
	uint64_t needs = segments_needs(task), ticks = task->admit_ticks;

	if (!segments_at_once(task))
		return task->segment > 0 ? runs[task->segment - 1].end_ticks : ticks;
	for (; needs; needs &= needs - 1)
		if (runs[__builtin_ctzll(needs)].end_ticks > ticks)
			ticks = runs[__builtin_ctzll(needs)].end_ticks;
	return ticks;
}

/*
 * Return true if the present segment's constants came to its device just for this task. If it ran
 * elsewhere, whoever runs it there later does not owe it to this.
 */
static bool is_streamed(const struct task *task, uint8_t device)
{
	struct session_segments *segments = task->whole->segments;
	struct session_segment *segment = &segments->of[task->segment];
	const bool has_come = segment->came_to && segment->came_to == device;

	segment->came_to = 0;
	segments->n_streamed += has_come;
	return has_come;
}

/* Keep what the slot says of the present segment, for the statistics. */
static void note_run(const struct task *task, bool is_partitioned)
{
	const uint32_t instance = segments_instance(task);
	struct segment_run *run = &task->set->runs[instance];

	task->set->noted |= bit_u64(instance);
	run->ready_ticks = ready_ticks(task);
	run->start_ticks = task->start_ticks;
	run->end_ticks = task->end_ticks;
	run->predicted_ns = task->predicted_ns;
	run->other_ns = task->other_ns;
	run->device = task->start_ticks ? task->device : RBK_DEVICE_NONE;
	run->reason = task->reason;
	run->flags = 0;
	if (run->device == RBK_DEVICE_CPU)
		run->flags |= task->ring->dispatch->contention_flags;
	if (is_partitioned)
		run->flags |= RBK_DECISION_PARTITIONED;
	if (task->whole->segments->streamed_to && is_streamed(task, run->device))
		run->flags |= RBK_DECISION_STREAMED;
	if (task->is_explored)
		run->flags |= RBK_DECISION_EXPLORED;
	if (task->is_moved)
		run->flags |= RBK_DECISION_MOVED;
}

void segments_run_returned(const struct dispatch *dispatch, const struct run *run)
{
	struct segment_run *segment = &run->task->set->runs[segments_instance(run->task)];
	const struct session *session = run->task->ring->ring->session;
	const uint8_t device = run->place.decision.device;

	if (segment->begun_device == device || !run->exec.start_ticks)
		return;
	segment->begun_device = device;
	segment->begun = (struct stats_moment){clock_ticks_to_ns(run->exec.start_ticks),
					       session->tenant_stats->devices[device].device_ns};
	segment->is_shared = device == RBK_DEVICE_CPU && dispatch->loads[device].n_held > 0;
}

/*
 * Count the present segment, and the time for which its device was idle since the task's last
 * segment there, while others ran elsewhere. Between two segments in a row the broker is at work.
 */
static void count_segment(const struct task *task, bool is_partitioned)
{
	struct segment_set *set = task->set;
	const struct segment_run *run = &set->runs[segments_instance(task)];
	struct stats_moment *ended = &set->ended[task->device];

	if (is_partitioned || run->is_shared || run->begun_device != task->device ||
	    set->last_device == task->device)
		ended->at_ns = 0;
	set->last_device = task->device;
	stats_segment_ran(task->ring->ring->session->tenant_stats, task->device, ended, run->begun,
			  clock_ticks_to_ns(task->end_ticks));
}

void segments_add_up(struct task *task)
{
	struct segment_set *set = task->set;
	const uint64_t ticks = task->end_ticks - task->start_ticks;
	const bool is_partitioned = task->n_rows_done[0] > 0 && task->n_rows_done[1] > 0;

	note_run(task, is_partitioned);
	set->predicted_ns += task->predicted_ns;
	set->is_explored |= task->is_explored;
	set->is_moved |= task->is_moved;
	set->is_partitioned |= is_partitioned;
	note_reason(set, task->reason, task->start_ticks ? ticks : 0);
	if (!task->start_ticks)
		return;
	if (!task->res)
		count_segment(task, is_partitioned);
	set->ran_ticks[task->device] += ticks;
	/* The time between two segments is not execution. */
	if (!set->start_ticks)
		set->start_ticks = task->start_ticks;
	else if (task->start_ticks > set->end_ticks)
		set->start_ticks += task->start_ticks - set->end_ticks;
	set->end_ticks = task->end_ticks;
}

bool segments_go_on(struct task *task)
{
	const uint32_t next = task->segment + 1u;

	if (task->res || next == task->whole->segments->n)
		return false;
	segments_add_up(task);
	if (task->whole->segments->of[task->segment].updates_state) {
		task->set->has_updated = true;
		/* A wait could not be cancelled here, and would hold the chain up. */
		task->waits_for_memory = false;
	}
	segments_describe(task, next, 0);
	return true;
}

void segments_begin_wish(struct task *task)
{
	task->whole = task->plan;
	task->segment = 0;
	task->batch = 0;
	task->plan = &task->whole->segments->of[0].plan;
	task->res = -ENODEV;
}

/*
 * Return true if the device of a PREFETCH has room for the segments up to @last: further ones would
 * only displace the first.
 */
static bool has_room(const struct dispatch *dispatch, const struct task *task, uint32_t last)
{
	const uint8_t device =
		task->waiter.device == RBK_DEVICE_NONE ? RBK_DEVICE_GPU : task->waiter.device;
	struct residency_about about;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i <= last; i++) {
		residency_about(dispatch->options.residency,
				&task->whole->segments->of[i].plan.memory, device, &about);
		bytes += about.required_bytes;
	}
	return about.required_bytes == 0 || bytes <= about.available_bytes;
}

bool segments_go_on_wish(const struct dispatch *dispatch, struct task *task)
{
	const uint32_t next = task->segment + 1u;

	/* Some segments may have operators that no device but the CPU has. */
	if (task->wait_res == 0)
		task->res = 0;
	if ((task->wait_res && task->wait_res != -ENODEV) || next == task->whole->segments->n ||
	    (task->opcode == RBK_OP_PREFETCH && !task->waits_for_memory &&
	     !has_room(dispatch, task, next))) {
		if (task->wait_res == -ENODEV)
			task->wait_res = task->res;
		return false;
	}
	task->segment = (uint16_t)next;
	task->plan = &task->whole->segments->of[next].plan;
	return true;
}

void segments_withdraw(struct dispatch *dispatch, struct task *task)
{
	list_remove(&task->waiting);
	task->phase = TASK_WOKEN;
	task->next = NULL;
	*dispatch->woken.end = task;
	dispatch->woken.end = &task->next;
}

/* Give a set to the task that has waited longest, which is woken. */
static void give_back(struct dispatch *dispatch, struct session_segments *segments,
		      struct segment_set *set)
{
	struct task *task;

	if (list_is_empty(&segments->waiting)) {
		set->next = segments->free_sets;
		segments->free_sets = set;
		segments->n_begun--;
		return;
	}
	task = container_of(segments->waiting.next, struct task, waiting);
	task->set = set;
	segments_withdraw(dispatch, task);
}

/* Predict the time of a task whose segments run at once: that of the longest way through them. */
static float longest_ns(const struct segment_set *set, const struct session_segments *segments)
{
	float end_ns[CUT_MAX_SEGMENTS], most_ns = 0;

	for (uint32_t i = 0; i < segments->n; i++) {
		end_ns[i] = 0;
		for (uint64_t needs = segments->of[i].cut.needs; needs; needs &= needs - 1)
			if (end_ns[__builtin_ctzll(needs)] > end_ns[i])
				end_ns[i] = end_ns[__builtin_ctzll(needs)];
		if (set->noted & bit_u64(i))
			end_ns[i] += set->runs[i].predicted_ns;
		most_ns = end_ns[i] > most_ns ? end_ns[i] : most_ns;
	}
	return most_ns;
}

/*
 * Set the time of a task whose segments run at once: the first start, later by the pauses in which
 * no segment ran, and the last end. Segments may have returned in any order.
 */
static void join_times(struct segment_set *set)
{
	const struct segment_run *sorted[CUT_MAX_SEGMENTS];
	uint64_t pauses_ticks = 0, end_ticks = 0;
	uint32_t n = 0, at;

	for (uint64_t rest = set->noted; rest; rest &= rest - 1) {
		const struct segment_run *run = &set->runs[__builtin_ctzll(rest)];

		if (!run->start_ticks)
			continue;
		for (at = n++; at > 0 && sorted[at - 1]->start_ticks > run->start_ticks; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = run;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (i > 0 && sorted[i]->start_ticks > end_ticks)
			pauses_ticks += sorted[i]->start_ticks - end_ticks;
		if (sorted[i]->end_ticks > end_ticks)
			end_ticks = sorted[i]->end_ticks;
	}
	set->start_ticks = n > 0 ? sorted[0]->start_ticks + pauses_ticks : 0;
	set->end_ticks = end_ticks;
}

/* Have the slot describe the whole task, for its completion. */
static void describe_whole(struct task *task)
{
	struct segment_set *set = task->set;
	uint32_t n_devices = 0;

	if (set->n_slots == 1)
		segments_add_up(task);
	else
		join_times(set);
	task->count = set->count;
	for (uint32_t i = 0; i < task->whole->plan->n_bindings; i++)
		task->run.refs[i] = set->refs[i];
	/* Report the device that worked longest, and whether others did. */
	task->device = RBK_DEVICE_CPU;
	for (uint8_t i = 0; i < RBK_MAX_DEVICES; i++) {
		n_devices += set->ran_ticks[i] > 0;
		if (set->ran_ticks[i] > set->ran_ticks[task->device])
			task->device = i;
	}
	task->n_rows_done[0] = task->n_rows_done[1] = set->is_partitioned || n_devices > 1;
	task->reason = set->reason;
	task->start_ticks = set->start_ticks;
	task->end_ticks = set->end_ticks;
	if (set->n_batches > 1)
		task->predicted_ns = set->stream_ns;
	else
		task->predicted_ns = set->n_slots == 1 ? set->predicted_ns
						       : longest_ns(set, task->whole->segments);
	task->other_ns = 0;
	task->split_count = 0;
	task->is_explored = set->is_explored;
	task->is_moved = set->is_moved;
}

/*
 * Log the segments up to the last that has begun, by micro-batch, before task_count() logs the
 * task.
 */
static void log_segments(const struct task *task)
{
	const struct session_segments *segments = task->whole->segments;
	const struct segment_set *set = task->set;

	for (uint32_t i = 0; i < segments->n * set->n_batches && set->noted >> i; i++) {
		/* After a failure, one before the last may not have begun. */
		static const struct segment_run none = {.device = RBK_DEVICE_NONE};
		const struct session_segment *segment = &segments->of[i % segments->n];
		const uint32_t first_row = i / segments->n * set->batch_rows;
		const struct segment_run *run = set->noted & bit_u64(i) ? &set->runs[i] : &none;
		const bool has_run = run->start_ticks != 0;
		const struct stats_segment record = {
			.ended_ns = has_run ? clock_ticks_to_ns(run->end_ticks) : 0,
			.queue_ns =
				has_run ? clock_elapsed_ns(run->ready_ticks, run->start_ticks) : 0,
			.exec_ns = has_run ? clock_elapsed_ns(run->start_ticks, run->end_ticks) : 0,
			.predicted_ns = run->predicted_ns,
			.other_ns = run->other_ns,
			.segment = (uint16_t)(i % segments->n),
			.batch = (uint16_t)(i / segments->n),
			.n_batches = (uint16_t)set->n_batches,
			.n_segments = (uint16_t)segments->n,
			.flags = run->flags,
			.device = run->device,
			.reason = run->reason,
			.from = segment->from,
			.crossed_bytes = segment->crossed_fixed_bytes +
					 segment->crossed_row_bytes *
						 min_u32(set->count - first_row, set->batch_rows),
			.first_node = segment->cut.first_node,
			.n_nodes = segment->cut.n_nodes,
		};

		stats_segment_done(&task->whole->stats, &record);
	}
}

int segments_end(struct dispatch *dispatch, struct task *task, int res)
{
	struct segment_set *set = task->set;

	/*
	 * Both errors say that states are as they were. Some are updated: the plan was removed
	 * while a segment was loaded, or no device is left for one.
	 */
	if (segments_have_updated(task) && !task->ring->ring->is_closing)
		res = res == -ECANCELED ? -ENOMEM : res == -ENODEV ? -EIO : res;
	if (task->whole) {
		if (set)
			describe_whole(task);
		/* A cancelled task is not logged, unless its client is told that it was lost. */
		if (set && task->opcode == RBK_OP_RUN &&
		    (res != -ECANCELED || (task->is_rerun && !task->is_undone)))
			log_segments(task);
		task->plan = task->whole;
		task->whole = NULL;
		task->batch = 0;
	}
	task->set = NULL;
	if (set)
		give_back(dispatch, task->plan->segments, set);
	return res;
}
