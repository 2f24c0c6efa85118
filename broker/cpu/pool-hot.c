/* SPDX-License-Identifier: MIT */
/*
 * Workers
 *
 * The reactor puts tasks into one queue per worker, in turn. A queue has a single producer, so
 * pushing is two plain stores; it may be popped by anybody, by compare-and-swap on its head, so an
 * idle worker steals from the others without their help and in the order of submission. A deque per
 * worker would only pay if workers made tasks themselves, which they do not. A head never returns
 * to an earlier value (64 bits), so a stale compare-and-swap fails.
 *
 * A step that is long enough is shared: its leader opens its team, idle workers join by counting
 * themselves in, and everybody including the leader takes chunks from one counter until none is
 * left. The last chunk closes the team, and the leader waits for those inside only: a worker that
 * never came is not waited for. Steps follow each other, so this is the barrier between nodes.
 *
 * Finished tasks return to the reactor through a queue per worker that is as large as the number of
 * tasks in flight, so it is never full. How workers sleep and are woken is in worker.c.
 */
#include <errno.h>

#include "cpu/internal.h"
#include "util/clock.h"
#include "util/waker.h"

/* A step is shared if it takes one thread longer; then it is cut into chunks of about this. */
static const double share_min_ns = 60000, chunk_ns = 20000;
/* Sleeping workers are woken for a step that takes longer: waking one costs several us. */
static const double wake_min_ns = 200000;

/* Reactor. Return: false if full. */
static bool queue_push(struct cpu_queue *queue, struct exec_task *task)
{
	const uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);

	/* Pairs with the exchange in queue_pop(): the slot was read. */
	if (tail - atomic_load_explicit(&queue->head, memory_order_acquire) > queue->mask)
		return false;
	atomic_store_explicit(&queue->slots[tail & queue->mask], task, memory_order_relaxed);
	/* Pairs with the acquire in queue_pop(): the task and its slot are visible. */
	atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
	return true;
}

/* Any worker. Return: the oldest task, NULL if there is none. */
static struct exec_task *queue_pop(struct cpu_queue *queue)
{
	uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);

	for (;;) {
		struct exec_task *task;

		if (head == atomic_load_explicit(&queue->tail, memory_order_acquire))
			return NULL;
		/* Overwritten only after the head has moved on, and then the exchange fails. */
		task = atomic_load_explicit(&queue->slots[head & queue->mask],
					    memory_order_relaxed);
		if (atomic_compare_exchange_weak_explicit(&queue->head, &head, head + 1,
							  memory_order_acq_rel,
							  memory_order_relaxed))
			return task;
	}
}

static uint32_t queue_length(struct cpu_queue *queue)
{
	const uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
	const uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);

	return tail > head ? (uint32_t)(tail - head) : 0;
}

/*
 * Takes chunks of a step until none is left. Who takes the last one closes the team, so that nobody
 * joins in vain while it is being computed.
 */
static void team_work(struct cpu_executor *cpu, struct cpu_team *team, void *workspace)
{
	for (;;) {
		const size_t chunk =
			atomic_fetch_add_explicit(&team->next_chunk, 1, memory_order_relaxed);

		if (chunk >= team->n_chunks)
			return;
		if (chunk + 1 == team->n_chunks) {
			atomic_fetch_sub_explicit(&cpu->n_teams, 1, memory_order_relaxed);
			atomic_fetch_and_explicit(&team->state, ~(uint32_t)CPU_TEAM_OPEN,
						  memory_order_relaxed);
		}
		team->step->run(team->step, team->frame, team->n_units * chunk / team->n_chunks,
				team->n_units * (chunk + 1) / team->n_chunks, workspace);
	}
}

static void team_lead(struct cpu_worker *worker, const struct cpu_step *step,
		      const struct cpu_frame *frame, size_t n_units, size_t n_chunks,
		      bool worth_waking)
{
	struct cpu_executor *cpu = worker->cpu;
	struct cpu_team *team = &worker->team;

	team->step = step;
	team->frame = frame;
	team->n_units = n_units;
	team->n_chunks = n_chunks;
	atomic_store_explicit(&team->next_chunk, 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&cpu->n_teams, 1, memory_order_relaxed);
	/* Pairs with the acquire in team_help(): the fields are visible. */
	atomic_store_explicit(&team->state, CPU_TEAM_OPEN, memory_order_release);
	if (worth_waking) {
		/* Pairs with the fence in worker_sleep() of worker.c. */
		atomic_thread_fence(memory_order_seq_cst);
		if (atomic_load_explicit(&cpu->n_sleeping, memory_order_relaxed) > 0)
			cpu_pool_wake(cpu, (unsigned int)n_chunks - 1);
	}

	team_work(cpu, team, worker->workspace);
	/* Pairs with the release in team_help(): what the helpers computed is visible. */
	if (atomic_load_explicit(&team->state, memory_order_acquire) != 0)
		cpu_team_wait(team);
}

/* Return: whether the worker helped somebody. */
static bool team_help(struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;

	if (atomic_load_explicit(&cpu->n_teams, memory_order_relaxed) == 0)
		return false;
	for (unsigned int i = 1; i < cpu->n_workers; i++) {
		struct cpu_team *team = &cpu->workers[(worker->index + i) % cpu->n_workers].team;
		uint32_t state = atomic_load_explicit(&team->state, memory_order_relaxed);

		while (state & CPU_TEAM_OPEN) {
			if (!atomic_compare_exchange_weak_explicit(&team->state, &state, state + 1,
								   memory_order_acquire,
								   memory_order_relaxed))
				continue;
			atomic_fetch_sub_explicit(&cpu->n_looking, 1, memory_order_relaxed);
			team_work(cpu, team, worker->workspace);
			atomic_fetch_sub_explicit(&team->state, 1, memory_order_release);
			atomic_fetch_add_explicit(&cpu->n_looking, 1, memory_order_relaxed);
			return true;
		}
	}
	return false;
}

static inline void frame_init(struct cpu_frame *frame, const struct cpu_plan *plan,
			      const struct exec_task *task, unsigned int block)
{
	frame->count = task->count;
	frame->base[CPU_BASE_ABSOLUTE] = 0;
	frame->base[CPU_BASE_SCRATCH] = (uintptr_t)plan->scratch + block * plan->scratch_stride;
	for (unsigned int i = 0; i < plan->n_bindings; i++)
		frame->base[CPU_BASE_BINDING + i] =
			(uintptr_t)task->refs[i].arena->base + task->refs[i].offset;
}

void cpu_pool_run_inline(struct executor *executor, struct exec_task *task)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	const struct cpu_plan *plan = task->plan->exec[executor->index];
	struct cpu_frame frame;

	frame_init(&frame, plan, task, cpu->n_workers);
	for (unsigned int i = 0; i < plan->n_steps; i++)
		plan->steps[i].run(&plan->steps[i], &frame, 0, SIZE_MAX, cpu->inline_workspace);
	task->res = 0;
	task->copied_bytes = 0;
	task->transferred_bytes = 0;
	task->end_ticks = clock_ticks();
}

static void worker_run_step(struct cpu_worker *worker, const struct cpu_step *step,
			    const struct cpu_frame *frame)
{
	const double ns = step->cost_fixed_ns + step->cost_row_ns * frame->count;

	if (ns > share_min_ns && worker->cpu->n_workers > 1) {
		const size_t n_units = step->units(step, frame->count);
		const size_t most = 8 * (size_t)worker->cpu->n_workers;
		size_t n_chunks = ns / chunk_ns < (double)most ? (size_t)(ns / chunk_ns) : most;

		if (n_chunks > n_units)
			n_chunks = n_units;
		if (n_chunks > 1) {
			team_lead(worker, step, frame, n_units, n_chunks, ns > wake_min_ns);
			return;
		}
	}
	step->run(step, frame, 0, SIZE_MAX, worker->workspace);
}

static void worker_run(struct cpu_worker *worker, struct exec_task *task)
{
	struct cpu_executor *cpu = worker->cpu;

	task->copied_bytes = 0;
	task->transferred_bytes = 0;
	if (exec_task_begin(task)) {
		const struct cpu_plan *plan = task->plan->exec[cpu->executor.index];
		struct cpu_frame frame;

		task->start_ticks = clock_ticks();
		frame_init(&frame, plan, task, worker->index);
		for (unsigned int i = 0; i < plan->n_steps; i++)
			worker_run_step(worker, &plan->steps[i], &frame);
		task->end_ticks = clock_ticks();
		task->res = 0;
	} else {
		task->start_ticks = task->end_ticks = clock_ticks();
		task->res = -ECANCELED;
	}
	/* Never full: there is a slot for every task in flight. */
	spsc_push(&worker->done, task);
	waker_ring(cpu->executor.waker);
}

/* Own work first, then anybody's, then a step to help with. Return: whether there was any. */
bool cpu_worker_work(struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;

	for (unsigned int i = 0; i < cpu->n_workers; i++) {
		struct cpu_worker *from = &cpu->workers[(worker->index + i) % cpu->n_workers];
		struct exec_task *task = queue_pop(&from->queue);

		if (task) {
			atomic_fetch_sub_explicit(&cpu->n_looking, 1, memory_order_relaxed);
			worker_run(worker, task);
			atomic_fetch_add_explicit(&cpu->n_looking, 1, memory_order_relaxed);
			return true;
		}
	}
	return team_help(worker);
}

bool cpu_worker_sees_work(struct cpu_worker *worker)
{
	struct cpu_executor *cpu = worker->cpu;

	if (atomic_load_explicit(&cpu->stop, memory_order_relaxed) ||
	    atomic_load_explicit(&cpu->n_teams, memory_order_relaxed) > 0)
		return true;
	for (unsigned int i = 0; i < cpu->n_workers; i++)
		if (queue_length(&cpu->workers[i].queue) > 0)
			return true;
	return false;
}

int cpu_pool_submit(struct executor *executor, struct exec_task *task)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	struct cpu_worker *worker = &cpu->workers[cpu->next_worker];

	if (cpu->n_in_flight == cpu->max_tasks)
		return EXECUTOR_E_BUSY;
	/* The release of the push publishes it. */
	atomic_store_explicit(&task->state, EXEC_QUEUED, memory_order_relaxed);
	/* A queue has room for every task in flight, so this cannot fail. */
	if (!queue_push(&worker->queue, task))
		return EXECUTOR_E_BUSY;
	cpu->next_worker = cpu->next_worker + 1 < cpu->n_workers ? cpu->next_worker + 1 : 0;
	cpu->n_in_flight++;
	cpu->submitted = true;
	return 0;
}

void cpu_pool_flush(struct executor *executor)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	uint32_t waiting = 0, looking;

	if (!cpu->submitted)
		return;
	cpu->submitted = false;
	/* Pairs with the fence in worker_sleep() of worker.c. */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&cpu->n_sleeping, memory_order_relaxed) == 0)
		return;
	for (unsigned int i = 0; i < cpu->n_workers; i++)
		waiting += queue_length(&cpu->workers[i].queue);
	/* Those who are looking find it by themselves; a wrong guess is made good by the last look.
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
	/* Begins where it ended, so that a busy worker does not keep others' tasks waiting. */
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
