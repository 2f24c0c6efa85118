/* SPDX-License-Identifier: MIT */
/*
 * Workers: task queues, teams, urgent tasks
 *
 * The reactor pushes tasks round-robin into one queue per worker. A queue has a single producer, so
 * a push is two stores without a read-modify-write. Any worker may pop, by a compare-and-swap on
 * the head. So an idle worker steals from other queues without their owners' help and in the order
 * of submission. A deque per worker would pay only if workers created tasks, which they do not. A
 * head counts up in 64 bits and never returns to an earlier value, so a stale compare-and-swap
 * fails.
 *
 * A long step is shared, as share-hot.c decides. Its leader opens its team; idle workers join by
 * incrementing the team's helper count, up to as many as the step is worth. Helpers take chunks
 * from the back, the leader from the front. So the same worker tends to compute the same part of
 * successive tensors, which is then in its cache. The worker that takes the last chunk closes the
 * team, and the leader waits only for the helpers that have joined. Steps follow each other, so
 * this wait is the barrier between nodes.
 *
 * Urgent tasks have a queue of their own, which all workers share and poll before any other queue.
 * A busy worker polls the counter of urgent tasks between its chunks; kernels whose units can take
 * long poll it within (struct cpu_pause). The worker then runs an urgent task at once, on top of
 * its stack, with a workspace and a team of its own, and afterwards resumes the preempted task. A
 * plan has a scratch block for each task that has begun, and one more for an urgent task that
 * preempts a task of the same plan. If another worker holds that extra block, the urgent task is
 * postponed to the next poll. Urgent tasks are never preempted.
 *
 * A task can be cancelled wherever a kernel polls. Then the poll does not return to the kernel, of
 * the leader or of a helper, but jumps to where the worker began with the task.
 *
 * A task can be stopped between two steps, rounds or chunks. Its leader takes no more chunks, waits
 * for its helpers, and hands the task back with its progress. The next worker resumes the task
 * there, with the same scratch. Each submission does some work before it stops, so a task that is
 * stopped repeatedly still completes. The workers do not know whether other tasks wait: the reactor
 * requests the stop by the task's state, or sets a time slice in advance.
 *
 * The reactor itself runs a task where the dispatcher says so: as a worker does, with a scratch
 * block of its own, without a queue. Workers may help it, except one, so that no more threads
 * compute than there are workers. It looks at its rings wherever a worker polls, and cuts steps
 * into short chunks where kernels do not poll.
 *
 * A client that polls keeps a processor busy. The worker pinned to that processor is not chosen for
 * the client's tasks, and does not help with them: a leader would wait for a helper that has lost
 * its processor for milliseconds.
 *
 * Under contention only the first n_active workers are used. The reactor pushes nothing to the
 * other queues, and tasks already in them are taken first. A limited worker leaves the team that it
 * helps between two chunks.
 *
 * Completed tasks return to the reactor through one queue per worker. Each such queue has a slot
 * for every task in flight, so it is never full. worker.c puts workers to sleep, wake.c wakes them.
 */
#include <errno.h>
#include <sched.h>

#include "cpu/internal.h"
#include "util/crash.h"
#include "util/clock.h"
#include "util/number.h"
#include "util/waker.h"

const _Atomic uint8_t cpu_calm_state = EXEC_RUNNING;
const _Atomic uint32_t cpu_none_waiting = 0;
const _Atomic uint32_t cpu_one_waiting = 1;

/*
 * Push a task; reactor only. There is room for every task in flight: a reaped task was popped
 * before, so its slot has been read.
 */
static void queue_push(struct cpu_queue *queue, struct exec_task *task)
{
	const uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);

	atomic_store_explicit(&queue->slots[tail & queue->mask], task, memory_order_relaxed);
	/* Pairs with the acquire in queue_pop(): the task and its slot are visible. */
	atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
}

/* Pop the oldest task. Any worker. Return: the task; NULL if there is none. */
static struct exec_task *queue_pop(struct cpu_queue *queue)
{
	uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);

	for (;;) {
		struct exec_task *task;

		if (head == atomic_load_explicit(&queue->tail, memory_order_acquire))
			return NULL;
		/*
		 * The slot is overwritten only after the head has moved on, and then the exchange
		 * fails.
		 */
		task = atomic_load_explicit(&queue->slots[head & queue->mask],
					    memory_order_relaxed);
		if (atomic_compare_exchange_weak_explicit(&queue->head, &head, head + 1,
							  memory_order_acq_rel,
							  memory_order_relaxed))
			return task;
	}
}

/* Sleeping workers that one thread wakes for a step */
enum { WAKES_EACH = 2 };

/* Queues that a helper checks after each chunk. */
enum { HELPER_LOOKS = 16 };

/* Check whether a task that @worker could begin waits in a nearby queue. */
static bool worker_is_wanted(const struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;
	const unsigned int n = cpu->n_workers < HELPER_LOOKS ? cpu->n_workers : HELPER_LOOKS;

	for (unsigned int i = 0, other = worker->index; i < n; i++) {
		if (cpu_queue_length(&cpu->workers[other].queue) > 0)
			return true;
		other = other + 1 < cpu->n_workers ? other + 1 : 0;
	}
	return false;
}

static void chunk_run(const struct cpu_team *team, size_t chunk, const struct cpu_context *context)
{
	team->step->run(team->step, team->frame, team->n_units * chunk / team->n_chunks,
			team->n_units * (chunk + 1) / team->n_chunks, context);
}

/* Check whether the worker that leads the task was asked to stop. */
static inline bool task_is_asked(const struct exec_task *task)
{
	return __builtin_expect(
		atomic_load_explicit(&task->state, memory_order_relaxed) != EXEC_RUNNING, 0);
}

/*
 * Count one more stopped task. Return: false if no spare block is left for another task to begin
 * with.
 */
static bool plan_count_stopped(struct cpu_plan *plan)
{
	if (!plan->blocks)
		return true;
	if (atomic_fetch_add_explicit(&plan->n_stopped, 1, memory_order_relaxed) < plan->n_spare)
		return true;
	atomic_fetch_sub_explicit(&plan->n_stopped, 1, memory_order_relaxed);
	return false;
}

static __attribute__((__cold__, __noinline__)) bool layer_answer(struct cpu_layer *layer,
								 struct exec_task *task)
{
	uint8_t state = atomic_load_explicit(&task->state, memory_order_relaxed);

	if (state == EXEC_CANCELLED)
		return true;
	layer->is_kept = plan_count_stopped(layer->plan);
	if (layer->is_kept)
		return true;
	/* The task goes on, with its helpers; the reactor may request a stop again. */
	state = EXEC_STOPPING;
	atomic_compare_exchange_strong_explicit(&task->state, &state, EXEC_RUNNING,
						memory_order_relaxed, memory_order_relaxed);
	return false;
}

/*
 * Check, as the leader between two pieces of work, whether the task stops here. Return: true if the
 * task was cancelled, or is now counted among its plan's stopped tasks.
 */
static inline bool layer_must_stop(struct cpu_layer *layer, struct exec_task *task)
{
	if (!layer->has_worked)
		return false;
	if (task_is_asked(task))
		return layer_answer(layer, task);
	if (__builtin_expect(task->slice_ticks == 0, 1) ||
	    clock_ticks() - task->start_ticks < task->slice_ticks)
		return false;
	layer->is_kept = plan_count_stopped(layer->plan);
	return layer->is_kept;
}

/* Let no more helpers join the team. Only the first call changes anything. */
static void team_close(struct cpu_executor *cpu, struct cpu_team *team)
{
	if (atomic_fetch_and_explicit(&team->state, ~(uint32_t)CPU_TEAM_OPEN,
				      memory_order_relaxed) &
	    CPU_TEAM_OPEN)
		atomic_fetch_sub_explicit(&cpu->n_teams, 1, memory_order_relaxed);
}

/*
 * Take chunks of a step until none is left. The worker that takes the last chunk closes the team,
 * so that no helper joins in vain meanwhile.
 *
 * @helper: the helping worker. It leaves early if it is limited now, if the task is to stop, or if
 * a task that it could begin waits: only idle workers help. NULL: the caller is the leader, with
 * @layer and @task.
 * Return: false if the leader stops the task.
 */
static bool team_work(struct cpu_executor *cpu, struct cpu_team *team,
		      const struct cpu_context *context, const struct cpu_worker *helper,
		      struct cpu_layer *layer, struct exec_task *task)
{
	for (;;) {
		enum ends_take take;
		size_t chunk;

		/* Before a chunk is taken: no thread waits for this worker then. */
		cpu_pause(context->pause);
		if (helper && (cpu_worker_is_limited(helper) || task_is_asked(team->task) ||
			       worker_is_wanted(helper)))
			return true;
		if (!helper && layer_must_stop(layer, task))
			return false;
		take = ends_take(&team->chunks, team->n_chunks, helper != NULL, &chunk);
		if (take == ENDS_NONE)
			return true;
		if (take == ENDS_LAST)
			team_close(cpu, team);
		chunk_run(team, chunk, context);
		if (!helper)
			layer->has_worked = true;
	}
}

/* Detach the layer's pause from the task that it computed or helped with. */
static inline void layer_calm(struct cpu_layer *layer)
{
	layer->may_leave = false;
	layer->pause.state = &cpu_calm_state;
}

/* Wait, as the leader, until all helpers have left. */
static void team_end(struct cpu_layer *layer)
{
	struct cpu_team *team = &layer->team;
	uint64_t since;

	since = atomic_load_explicit(&team->state, memory_order_relaxed) ? clock_ticks() : 0;
	for (unsigned int spins = 0; cpu_team_has_helpers(team); spins++) {
		cpu_pause(layer->context.pause);
		cpu_team_wait(layer->worker, team, spins);
	}
	/* No helper can join a closed team. */
	atomic_store_explicit(&team->state, 0, memory_order_relaxed);
	if (since)
		layer->waited_ticks += clock_ticks() - since;
	layer->helper_ticks += atomic_load_explicit(&team->helper_ticks, memory_order_relaxed);
	atomic_store_explicit(&team->helper_ticks, 0, memory_order_relaxed);
}

/* Advance the progress past a completed round of a step that has @n_rounds. */
static inline void progress_next(struct exec_progress *progress, uint32_t n_rounds)
{
	progress->n_chunks = progress->front = progress->back = 0;
	if (++progress->round < n_rounds)
		return;
	progress->round = 0;
	progress->step++;
}

/*
 * Wake @n sleeping workers to help. The leader wakes at most WAKES_EACH itself, as each helper does
 * when it comes: a leader that woke all of them would compute nothing meanwhile.
 */
static void team_wake(const struct cpu_worker *worker, struct cpu_layer *layer, unsigned int n)
{
	struct cpu_team *team = &layer->team;
	const unsigned int n_own = n < WAKES_EACH ? n : WAKES_EACH;
	uint64_t since;

	if (n == 0)
		return;
	since = clock_ticks();
	atomic_store_explicit(&team->n_wakes, (int32_t)(n - n_own), memory_order_relaxed);
	cpu_pool_wake_helpers(worker, team, n_own);
	layer->waited_ticks += clock_ticks() - since;
}

/* Wake more helpers, as one that has come, if the leader of @team wants some. */
static void team_wake_more(const struct cpu_worker *leader, struct cpu_team *team)
{
	for (unsigned int i = 0; i < WAKES_EACH; i++) {
		if (atomic_load_explicit(&team->n_wakes, memory_order_relaxed) <= 0 ||
		    atomic_fetch_sub_explicit(&team->n_wakes, 1, memory_order_relaxed) <= 0)
			break;
		cpu_pool_wake_helpers(leader, team, 1);
	}
}

/*
 * Compute the round that the team of @layer is set to, from @progress on, together with any helpers
 * that join. Return: false if the task stops here; @progress holds where to resume.
 */
static bool team_lead(struct cpu_worker *worker, struct cpu_layer *layer, struct exec_task *task,
		      struct exec_progress *progress, double ns, unsigned int n_helpers)
{
	struct cpu_executor *cpu = worker->cpu;
	struct cpu_team *team = &layer->team;
	bool is_stopped;

	ends_reset(&team->chunks, progress->front, progress->back);
	atomic_store_explicit(&team->busy_processor, task->busy_processor, memory_order_relaxed);
	atomic_store_explicit(&team->max_helpers, n_helpers, memory_order_relaxed);
	atomic_store_explicit(&team->n_wakes, 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&cpu->n_teams, 1, memory_order_relaxed);
	/* Pairs with the acquire in team_join(): the fields are visible. */
	atomic_store_explicit(&team->state, CPU_TEAM_OPEN, memory_order_release);
	/* Pairs with the fence in worker_sleep() of worker.c. */
	atomic_thread_fence(memory_order_seq_cst);
	team_wake(worker, layer, cpu_step_wakes(worker, ns, n_helpers));

	is_stopped = !team_work(cpu, team, &layer->context, NULL, layer, task);
	if (is_stopped)
		team_close(cpu, team);
	team_end(layer);
	worker->shared_ticks = clock_ticks();
	if (!is_stopped)
		return true;
	progress->n_chunks = (uint32_t)team->n_chunks;
	/* All chunks were taken meanwhile: the task resumes at the next round. */
	if (!ends_left(&team->chunks, team->n_chunks, &progress->front, &progress->back))
		progress_next(progress, team->frame->n_rounds);
	return false;
}

/* Help until no chunk is left, the helper is to leave, or the task is cancelled. */
static __attribute__((__noinline__)) void helper_work(struct cpu_worker *worker,
						      struct cpu_team *team)
{
	struct cpu_layer *layer = &worker->layers[CPU_LAYER_BASE];

	layer->pause.state = &team->task->state;
	if (setjmp(layer->leave) == 0) {
		layer->may_leave = true;
		team_work(worker->cpu, team, &layer->context, worker, NULL, NULL);
	}
	layer_calm(layer);
}

/* Return true if a team in @state is open, and wants one more helper. */
static inline bool team_has_room(const struct cpu_team *team, uint32_t state)
{
	return (state & CPU_TEAM_OPEN) &&
	       (state & CPU_TEAM_HELPERS) <
		       atomic_load_explicit(&team->max_helpers, memory_order_relaxed);
}

/* Join an open team and help. Return: true if the team wanted the worker. */
static bool team_join(struct cpu_worker *worker, const struct cpu_worker *leader,
		      struct cpu_team *team)
{
	struct cpu_executor *cpu = worker->cpu;
	uint32_t state = atomic_load_explicit(&team->state, memory_order_relaxed);

	while (team_has_room(team, state)) {
		uint64_t since, between;
		const void *outer;

		if (!atomic_compare_exchange_weak_explicit(&team->state, &state, state + 1,
							   memory_order_acquire,
							   memory_order_relaxed))
			continue;
		atomic_fetch_sub_explicit(&cpu->n_looking, 1, memory_order_relaxed);
		team_wake_more(leader, team);
		since = clock_ticks();
		between = worker->between_ticks;
		outer = crash_enter(team->task);
		helper_work(worker, team);
		crash_enter(outer);
		atomic_fetch_add_explicit(&team->helper_ticks,
					  clock_ticks() - since - (worker->between_ticks - between),
					  memory_order_relaxed);
		/* Before the leader sees it leave: it cuts its next step for idle workers. */
		atomic_fetch_add_explicit(&cpu->n_looking, 1, memory_order_relaxed);
		cpu_team_leave(team);
		return true;
	}
	return false;
}

/* Help the first open team found, of urgent tasks first. Return: true if the worker helped. */
static bool team_help(struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;

	if (atomic_load_explicit(&cpu->n_teams, memory_order_relaxed) == 0)
		return false;
	for (unsigned int layer = CPU_LAYERS; layer-- > 0;)
		for (unsigned int i = 1; i <= cpu->n_workers; i++) {
			const unsigned int other = (worker->index + i) % (cpu->n_workers + 1);
			const struct cpu_worker *leader = &cpu->workers[other];
			struct cpu_team *team = &cpu->workers[other].layers[layer].team;

			if (cpu_worker_may_help(worker, leader, team) &&
			    team_join(worker, leader, team))
				return true;
		}
	return false;
}

static inline void frame_init(struct cpu_frame *frame, const struct cpu_plan *plan,
			      const struct exec_task *task, unsigned int block,
			      _Atomic bool *is_out_of_range)
{
	const unsigned int n_bindings = plan->n_bindings;
	const struct exec_ref *refs = task->refs;

	frame->count = task->count;
	frame->round = frame->n_rounds = 0;
	frame->is_out_of_range = is_out_of_range;
	frame->base[CPU_BASE_ABSOLUTE] = 0;
	frame->base[CPU_BASE_SCRATCH] = (uintptr_t)plan->scratch + block * plan->scratch_stride;
	for (unsigned int i = 0; i < n_bindings; i++)
		frame->base[CPU_BASE_BINDING + i] = (uintptr_t)refs[i].arena->base + refs[i].offset;
}

/* Return the result of a completed task; its helpers must have left. */
static inline int32_t task_result(const _Atomic bool *is_out_of_range)
{
	return atomic_load_explicit(is_out_of_range, memory_order_relaxed) ? -EDOM : 0;
}

static inline unsigned int inline_block(const struct cpu_executor *cpu)
{
	return cpu->n_workers + 1;
}

static inline unsigned int second_block(const struct cpu_executor *cpu)
{
	return cpu->n_workers + 2;
}

void cpu_pool_run_inline(struct executor *executor, struct exec_task *task)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	const struct cpu_plan *plan = task->plan->exec[executor->index];
	_Atomic bool is_out_of_range = false;
	struct cpu_frame frame;

	frame_init(&frame, plan, task, inline_block(cpu), &is_out_of_range);
	for (const struct cpu_step *step = plan->steps, *end = step + plan->n_steps; step < end;
	     step++)
		step->run(step, &frame, 0, SIZE_MAX, &cpu->inline_context);
	task->res = task_result(&is_out_of_range);
	if (!task->has_end)
		task->end_ticks = clock_ticks();
}

/*
 * Compute the round that the team of @layer is set to, on this thread alone, but for the chunks
 * that helpers computed before a stop: if these counted twice, no chunk could be left, and the next
 * team would wait for its last one. Return: as team_lead().
 */
static bool layer_run_chunks(struct cpu_layer *layer, struct exec_task *task,
			     struct exec_progress *progress)
{
	struct cpu_team *team = &layer->team;

	for (size_t chunk = progress->front; chunk < team->n_chunks - progress->back; chunk++) {
		cpu_pause(layer->context.pause);
		if (layer_must_stop(layer, task)) {
			progress->n_chunks = (uint32_t)team->n_chunks;
			progress->front = (uint32_t)chunk;
			return false;
		}
		chunk_run(team, chunk, &layer->context);
		layer->has_worked = true;
	}
	return true;
}

/*
 * Run a round that takes @ns. Return: false if the task stops within it; @progress holds where to
 * resume.
 */
static bool worker_run_round(struct cpu_worker *worker, struct cpu_layer *layer,
			     const struct cpu_step *step, const struct cpu_frame *frame, double ns,
			     struct exec_task *task, struct exec_progress *progress)
{
	struct cpu_team *team = &layer->team;
	unsigned int n_helpers;

	team->step = step;
	team->frame = frame;
	team->task = task;
	team->n_units = step->units(step, frame->count);
	/* A step that was begun keeps its chunks. */
	team->n_chunks = progress->n_chunks ? progress->n_chunks
					    : cpu_step_chunks(worker, step, ns, team->n_units);
	if (team->n_chunks <= 1) {
		step->run(step, frame, 0, SIZE_MAX, &layer->context);
		layer->has_worked = true;
		return true;
	}
	n_helpers = cpu_step_helpers(worker, ns, team->n_chunks);
	if (n_helpers == 0)
		return layer_run_chunks(layer, task, progress);
	return team_lead(worker, layer, task, progress, ns, n_helpers);
}

/* Run a step. Return: false if the task stops within it; @progress holds where to resume. */
static bool worker_run_step(struct cpu_worker *worker, struct cpu_layer *layer,
			    const struct cpu_step *step, struct cpu_frame *frame,
			    struct exec_task *task, struct exec_progress *progress)
{
	const double ns = (step->cost_fixed_ns + step->cost_row_ns * frame->count) * layer->pace;
	const uint32_t at = progress->step;

	frame->n_rounds = 1;
	/* Another thread may have cut the step, which must not compute a part of it twice. */
	if (progress->round == 0 && progress->n_chunks == 0 &&
	    cpu_step_is_whole(worker, step, ns)) {
		step->run(step, frame, 0, SIZE_MAX, &layer->context);
		layer->has_worked = true;
		progress_next(progress, 1);
		return true;
	}
	if (step->rounds)
		frame->n_rounds = step->rounds(step, frame->count);
	while (progress->step == at) {
		cpu_pause(layer->context.pause);
		frame->round = progress->round;
		if (layer_must_stop(layer, task) ||
		    !worker_run_round(worker, layer, step, frame, ns / frame->n_rounds, task,
				      progress))
			return false;
		progress_next(progress, frame->n_rounds);
	}
	return true;
}

/* --- scratch --- */

/*
 * Try to take a block. Pairs with the release in block_free(): earlier writes to the block are
 * complete.
 */
static inline bool block_try(struct cpu_block *block)
{
	return !atomic_exchange_explicit(&block->is_taken, true, memory_order_acquire);
}

static inline void block_free(struct cpu_plan *plan, unsigned int block)
{
	if (plan->blocks)
		atomic_store_explicit(&plan->blocks[block].is_taken, false, memory_order_release);
}

/*
 * Take a block for a task that begins. Beside the two blocks for special cases, there is one for
 * each worker and the reactor, and a spare one for each stopped task, so a free block exists.
 */
static unsigned int block_take(const struct cpu_worker *worker, struct cpu_plan *plan)
{
	const struct cpu_executor *cpu = worker->cpu;

	if (!plan->blocks || block_try(&plan->blocks[worker->index]))
		return worker->index;
	for (;;)
		for (unsigned int i = plan->n_blocks; i-- > 0;)
			if (i != inline_block(cpu) && i != second_block(cpu) &&
			    block_try(&plan->blocks[i]))
				return i;
}

/* Count one stopped task less: its block is in use again, or free. */
static inline void plan_uncount_stopped(struct cpu_plan *plan)
{
	if (plan->blocks)
		atomic_fetch_sub_explicit(&plan->n_stopped, 1, memory_order_relaxed);
}

void cpu_pool_abandon(struct executor *executor, struct exec_task *task)
{
	struct cpu_plan *plan = task->plan->exec[executor->index];

	task->has_progress = false;
	block_free(plan, task->progress.block);
	plan_uncount_stopped(plan);
}

/* --- tasks --- */

/*
 * Run the steps from @progress on. Return: false if the task stops here; @progress holds where to
 * resume.
 */
static bool layer_run_steps(struct cpu_worker *worker, struct cpu_layer *layer,
			    const struct cpu_plan *plan, struct cpu_frame *frame,
			    struct exec_task *task, struct exec_progress *progress)
{
	while (progress->step < plan->n_steps) {
		cpu_pause(layer->context.pause);
		if (layer_must_stop(layer, task) ||
		    !worker_run_step(worker, layer, &plan->steps[progress->step], frame, task,
				     progress))
			return false;
	}
	return true;
}

/* Like layer_run_steps(), but the task may also be cancelled within a unit. */
static __attribute__((__noinline__)) bool layer_compute(
	struct cpu_worker *worker, struct cpu_layer *layer, const struct cpu_plan *plan,
	struct cpu_frame *frame, struct exec_task *task, struct exec_progress *progress)
{
	layer->pause.state = &task->state;
	if (setjmp(layer->leave) == 0) {
		bool is_done;

		layer->may_leave = true;
		is_done = layer_run_steps(worker, layer, plan, frame, task, progress);
		layer_calm(layer);
		return is_done;
	}
	/* Helpers may still compute chunks of the task; they leave them as well. */
	layer_calm(layer);
	team_close(worker->cpu, &layer->team);
	team_end(layer);
	return false;
}

/* Run a task that has begun, with the scratch block progress.block, from @progress on. */
static void worker_compute(struct cpu_worker *worker, struct cpu_layer *layer,
			   struct exec_task *task, struct exec_progress progress)
{
	struct cpu_plan *plan = task->plan->exec[worker->cpu->executor.index];
	const uint64_t between = worker->between_ticks;
	const bool is_resumed = task->has_progress;
	_Atomic bool is_out_of_range = progress.is_out_of_range;
	struct cpu_frame frame;
	bool is_stopped;

	layer->plan = plan;
	layer->helper_ticks = layer->waited_ticks = 0;
	layer->has_worked = layer->is_kept = false;
	layer->pace = cpu_plan_pace(plan);
	task->start_ticks = clock_ticks();
	frame_init(&frame, plan, task, progress.block, &is_out_of_range);
	is_stopped = !layer_compute(worker, layer, plan, &frame, task, &progress);
	task->end_ticks = clock_ticks();
	task->start_ticks += worker->between_ticks - between;
	task->busy_ticks = task->end_ticks - task->start_ticks + layer->helper_ticks;
	layer->plan = NULL;
	if (!is_stopped && !is_resumed)
		cpu_plan_learn(plan, task->count,
			       saturating_sub(task->busy_ticks, layer->waited_ticks));
	task->has_progress = false;
	/*
	 * A helper that saw the cancellation has left a chunk incomplete: the task cannot resume.
	 */
	if (is_stopped && layer->is_kept &&
	    atomic_load_explicit(&task->state, memory_order_relaxed) == EXEC_CANCELLED) {
		plan_uncount_stopped(plan);
		layer->is_kept = false;
	}
	/* Also if it is cancelled from now on: the reactor then calls cpu_pool_abandon(). */
	if (is_stopped && layer->is_kept) {
		progress.is_out_of_range =
			atomic_load_explicit(&is_out_of_range, memory_order_relaxed);
		task->progress = progress;
		task->has_progress = true;
		task->res = EXEC_UNFINISHED;
		return;
	}
	block_free(plan, progress.block);
	task->res = !is_stopped && exec_task_end(task) ? task_result(&is_out_of_range) : -ECANCELED;
}

/* Run a task. @block: the scratch block taken for it; negative: none was taken. */
static void worker_carry_out(struct cpu_worker *worker, struct cpu_layer *layer,
			     struct exec_task *task, int block)
{
	struct cpu_executor *cpu = worker->cpu;
	struct cpu_plan *plan = task->plan->exec[cpu->executor.index];
	struct exec_progress progress = {0};
	const void *outer;

	task->copied_bytes = 0;
	task->transferred_bytes = 0;
	if (exec_task_begin(task)) {
		if (task->has_progress) {
			progress = task->progress;
			plan_uncount_stopped(plan);
		} else {
			progress.block = (uint16_t)(block < 0 ? block_take(worker, plan)
							      : (unsigned int)block);
		}
		outer = crash_enter(task);
		worker_compute(worker, layer, task, progress);
		crash_enter(outer);
	} else {
		if (task->has_progress)
			cpu_pool_abandon(&cpu->executor, task);
		else if (block >= 0)
			block_free(plan, (unsigned int)block);
		task->start_ticks = task->end_ticks = clock_ticks();
		task->busy_ticks = 0;
		task->res = -ECANCELED;
	}
}

/* Run a task as worker_carry_out() does, and hand it back. */
static void worker_run(struct cpu_worker *worker, struct cpu_layer *layer, struct exec_task *task,
		       int block)
{
	struct cpu_executor *cpu = worker->cpu;

	if (task->is_urgent)
		atomic_fetch_sub_explicit(&cpu->n_urgent, 1, memory_order_relaxed);
	worker_carry_out(worker, layer, task, block);
	/*
	 * The queue has a slot for every task in flight. The plan may be freed once the task is
	 * pushed.
	 */
	spsc_push(&worker->done, task);
	waker_ring(cpu->executor.waker);
}

/*
 * Preempt the worker's task with an urgent task. Return: false if the urgent task's scratch is not
 * free.
 */
static bool worker_run_between(struct cpu_worker *worker, struct exec_task *task)
{
	struct cpu_executor *cpu = worker->cpu;
	struct cpu_plan *plan = task->plan->exec[cpu->executor.index];
	const bool is_second =
		plan->blocks && !task->has_progress && plan == worker->layers[CPU_LAYER_BASE].plan;
	const uint64_t since = clock_ticks();

	if (is_second && !block_try(&plan->blocks[second_block(cpu)]))
		return false;
	worker_run(worker, &worker->layers[CPU_LAYER_BETWEEN], task,
		   is_second ? (int)second_block(cpu) : -1);
	worker->between_ticks += clock_ticks() - since;
	return true;
}

static struct exec_task *worker_next_urgent(struct cpu_worker *worker)
{
	struct exec_task *task = worker->put_off;

	worker->put_off = NULL;
	return task ? task : queue_pop(&worker->cpu->urgent);
}

/*
 * Return the next task: first urgent tasks, then tasks in queues of limited workers, then the
 * worker's own, then tasks of other workers. Return: NULL if there is none.
 */
static struct exec_task *worker_next(struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;
	struct exec_task *task = worker_next_urgent(worker);

	for (unsigned int i = atomic_load_explicit(&cpu->n_active, memory_order_relaxed);
	     !task && i < cpu->n_workers; i++)
		task = queue_pop(&cpu->workers[i].queue);
	for (unsigned int i = 0; !task && i < cpu->n_workers; i++)
		task = queue_pop(&cpu->workers[(worker->index + i) % cpu->n_workers].queue);
	return task;
}

void cpu_worker_serve(struct cpu_pause *pause)
{
	struct cpu_layer *layer =
		(struct cpu_layer *)((char *)pause - offsetof(struct cpu_layer, pause));
	struct cpu_worker *worker = layer->worker;
	struct exec_task *task;

	while (layer != &worker->layers[CPU_LAYER_BETWEEN] && (task = worker_next_urgent(worker)))
		if (!worker_run_between(worker, task)) {
			worker->put_off = task;
			break;
		}
	if (layer->may_leave &&
	    atomic_load_explicit(pause->state, memory_order_relaxed) == EXEC_CANCELLED)
		longjmp(layer->leave, 1);
}

void cpu_reactor_serve(struct cpu_pause *pause)
{
	struct cpu_layer *layer =
		(struct cpu_layer *)((char *)pause - offsetof(struct cpu_layer, pause));
	struct cpu_executor *cpu = layer->worker->cpu;
	const uint64_t now_ticks = clock_ticks();

	if (now_ticks - cpu->looked_ticks < cpu->look_ticks)
		return;
	cpu->looked_ticks = now_ticks;
	cpu->look(cpu->look_context);
	/* Other work, and pauses for other clients, are no time of the task. */
	layer->worker->between_ticks += clock_ticks() - now_ticks;
	if (layer->may_leave &&
	    atomic_load_explicit(pause->state, memory_order_relaxed) == EXEC_CANCELLED)
		longjmp(layer->leave, 1);
}

/* Choose the worker that does not help the reactor: the one on its processor, else the last. */
static void choose_kept_off(struct cpu_executor *cpu)
{
	const int processor = sched_getcpu();
	unsigned int i = 0;

	while (i + 1 < cpu->n_in_use && cpu->workers[i].processor != processor)
		i++;
	atomic_store_explicit(&cpu->kept_off, i, memory_order_relaxed);
}

void cpu_pool_run_here(struct executor *executor, struct exec_task *task, unsigned int n_helpers,
		       exec_look_fn *look, void *context)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	struct cpu_worker *worker = cpu_reactor_worker(cpu);

	cpu->n_helpers = n_helpers < cpu->n_in_use ? n_helpers : cpu->n_in_use - 1;
	if (cpu->n_helpers > 0)
		choose_kept_off(cpu);
	cpu->look = look;
	cpu->look_context = context;
	cpu->looked_ticks = clock_ticks();
	worker_carry_out(worker, &worker->layers[CPU_LAYER_BASE], task, -1);
}

/* Run a task or, if there is none, help with a step. Return: true if there was either. */
bool cpu_worker_work(struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;
	struct exec_task *task = worker_next(worker);

	if (!task)
		return team_help(worker);
	atomic_fetch_sub_explicit(&cpu->n_looking, 1, memory_order_relaxed);
	/* Urgent tasks are never preempted, even if they preempt no task themselves. */
	worker_run(worker, &worker->layers[task->is_urgent ? CPU_LAYER_BETWEEN : CPU_LAYER_BASE],
		   task, -1);
	atomic_fetch_add_explicit(&cpu->n_looking, 1, memory_order_relaxed);
	return true;
}

/* Return true if a team is open that the worker may help: another one would only make it spin. */
static bool worker_sees_team(const struct cpu_worker *worker)
{
	const struct cpu_executor *cpu = worker->cpu;

	if (atomic_load_explicit(&cpu->n_teams, memory_order_relaxed) == 0)
		return false;
	for (unsigned int i = 0; i <= cpu->n_workers; i++)
		for (unsigned int layer = 0; layer < CPU_LAYERS; layer++) {
			const struct cpu_team *team = &cpu->workers[i].layers[layer].team;

			if (team_has_room(team, atomic_load_explicit(&team->state,
								     memory_order_relaxed)) &&
			    cpu_worker_may_help(worker, &cpu->workers[i], team))
				return true;
		}
	return false;
}

bool cpu_worker_sees_work(struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;

	if (atomic_load_explicit(&cpu->stop, memory_order_relaxed) || worker_sees_team(worker) ||
	    cpu_queue_length(&cpu->urgent) > 0)
		return true;
	for (unsigned int i = 0; i < cpu->n_workers; i++)
		if (cpu_queue_length(&cpu->workers[i].queue) > 0)
			return true;
	return false;
}

static unsigned int worker_after(const struct cpu_executor *cpu, unsigned int worker)
{
	return worker + 1 < cpu->n_in_use ? worker + 1 : 0;
}

/* Choose the worker that gets a task: not one at a busy processor, if there is another. */
static unsigned int choose_worker(struct cpu_executor *cpu, const struct exec_task *task)
{
	unsigned int chosen = cpu->next_worker;

	if (cpu_worker_is_at(&cpu->workers[chosen], task->busy_processor))
		chosen = worker_after(cpu, chosen);
	cpu->next_worker = worker_after(cpu, chosen);
	return chosen;
}

int cpu_pool_submit(struct executor *executor, struct exec_task *task)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	struct cpu_queue *queue;

	if (cpu->n_in_flight == cpu->max_tasks)
		return EXECUTOR_E_BUSY;
	queue = task->is_urgent ? &cpu->urgent : &cpu->workers[choose_worker(cpu, task)].queue;
	/* Published by the release in queue_push(). */
	atomic_store_explicit(&task->state, EXEC_QUEUED, memory_order_relaxed);
	/* Only a hint; decremented when the task begins. */
	if (task->is_urgent)
		atomic_fetch_add_explicit(&cpu->n_urgent, 1, memory_order_relaxed);
	/* The queue has room for every task in flight. */
	queue_push(queue, task);
	cpu->n_in_flight++;
	cpu->submitted = true;
	return 0;
}

void cpu_pool_flush(struct executor *executor)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	uint32_t waiting, looking;

	if (!cpu->submitted)
		return;
	cpu->submitted = false;
	/* Pairs with the fence in worker_sleep() of worker.c. */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&cpu->n_sleeping, memory_order_relaxed) == 0)
		return;
	waiting = cpu_queue_length(&cpu->urgent);
	for (unsigned int i = 0; i < cpu->n_workers; i++)
		waiting += cpu_queue_length(&cpu->workers[i].queue);
	/*
	 * Polling workers find the tasks themselves; if n_looking is out of date, their last poll
	 * before sleeping corrects it.
	 */
	looking = atomic_load_explicit(&cpu->n_looking, memory_order_relaxed);
	if (waiting > looking)
		cpu_pool_wake(cpu, waiting - looking);
}

unsigned int cpu_pool_reap(struct executor *executor, struct exec_task **ret, unsigned int max)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	unsigned int n = 0;

	if (cpu->n_in_flight == 0)
		return 0;
	/*
	 * Resume at the worker where the last call ended, so that a busy worker does not delay
	 * other workers' tasks.
	 */
	for (unsigned int i = 0; i < cpu->n_workers && n < max; i++) {
		struct cpu_worker *worker = &cpu->workers[cpu->next_reap];

		while (n < max && (ret[n] = spsc_pop(&worker->done)))
			n++;
		if (n < max)
			cpu->next_reap =
				cpu->next_reap + 1 < cpu->n_workers ? cpu->next_reap + 1 : 0;
	}
	cpu->n_in_flight -= n;
	return n;
}
