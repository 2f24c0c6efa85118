/* SPDX-License-Identifier: MIT */
/*
 * Moving queued tasks to devices where they are done earlier
 *
 * Decisions are made one by one when tasks arrive. Later tasks, and actual execution times, leave
 * one device with more work than another, or with work that another is better at. Tasks that have
 * not started move then. To choose them, each device keeps its movable tasks in buckets by how many
 * times longer they take here than there. The best bucket is looked at first, and in a bucket the
 * task that would start last (Agullo et al., HeteroPrio, 2016). There are three ways:
 *
 *  - where the balance tips, a task moves that is predicted to be done earlier there, at the end of
 *    the queue, than here; so it never moves back for the same reason
 *  - where the best task of one device and the best of another should change places, they are
 *    exchanged, which leaves both devices with less work
 *  - where few tasks can move, a search over all of them at once (rebalance-private.h) finds the
 *    assignment with the earliest end of all; every long queue ends that way
 *
 * The last two consider a device's whole work, not one task. They leave alone a task that has a
 * deadline or is urgent, or whose flow has a quota or gets its turn long before the device is
 * through. So they do with a task of a plan that has advice (place_plan_advise()). Without a
 * deadline such a task moves only if it is late, at first to devices that are idle. One of a stream
 * moves to an idle device in any case.
 *
 * A call looks at REBALANCE_CANDIDATES tasks at most. Tasks that did not move go to the end of
 * their bucket, and later calls look at the rest. A call that moves nothing is followed by a pause.
 */
#include "place/placer-private.h"
#include "place/rebalance-private.h"

enum { REBALANCE_CANDIDATES = 64 };

/* Less work than this per movable task is not worth the search. */
#define REBALANCE_WORTH_NS 10000.0f /* 10 us */
/* Pause after a call that moved nothing, per task that can move */
#define REBALANCE_PAUSE_NS 2000ull /* 2 us */
/* Least gain, relative to the time until all is done */
#define REBALANCE_GAIN 0.01f
/*
 * Times of its own by which a task is late before it leaves the device that it is advised for one
 * that is idle, and for any other
 */
#define ADVISED_LEAST 0.05f
#define ADVISED_MOST  4.0f

struct balance {
	struct placer *placer;
	uint64_t now_ns; /* caller's clock */
	uint64_t now;
	uint32_t n_left;                /* candidates left to look at */
	float load_ns[RBK_MAX_DEVICES]; /* time until the device is idle */
};

static float device_load_ns(const struct placer *placer, uint32_t device, uint64_t now)
{
	const struct place_queue *queue = &placer->devices[device].queue;
	float work_ns =
		(float)(queue->queued_ns + queue->waiting_ns) + queue_running_ns(queue, now);

	return work_ns * queue->inverse_servers * placer->devices[device].slowdown;
}

static float exec_ns(const struct balance *balance, const struct place_task *task, uint32_t device)
{
	return place_predict_now_ns(balance->placer, task->place_plan, (uint8_t)device, task->count,
				    place_contention(balance->placer, task->flow, (uint8_t)device));
}

/* Return the load that a task adds to a device. */
static float adds_ns(const struct balance *balance, const struct place_task *task, uint32_t device)
{
	const struct place_device *of = &balance->placer->devices[device];

	return place_work_ns(balance->placer, task->place_plan, (uint8_t)device, task->count) *
	       of->queue.inverse_servers * of->slowdown;
}

static void move(struct balance *balance, struct place_task *task, uint8_t to)
{
	struct placer *placer = balance->placer;
	uint8_t from = task->device;
	float other_ns = 0;

	for (uint32_t i = 0; i < placer->n_devices; i++) {
		float ns;

		if (i == to || !place_can_move(placer, task->place_plan, (uint8_t)i))
			continue;
		ns = exec_ns(balance, task, i);
		if (other_ns == 0 || ns < other_ns)
			other_ns = ns;
	}
	schedule_move(placer, task, to, exec_ns(balance, task, to), other_ns);
	balance->load_ns[from] = device_load_ns(placer, from, balance->now);
	balance->load_ns[to] = device_load_ns(placer, to, balance->now);
}

/* --- Tipped balances --- */

static bool is_idle(const struct place_queue *queue)
{
	return queue->n_queued == 0 && queue_has_free_server(queue);
}

static bool is_tipped(const struct balance *balance, uint32_t from, uint32_t to)
{
	const struct place_config *config = &balance->placer->config;

	return balance->load_ns[from] > balance->load_ns[to] * config->balance_high ||
	       balance->load_ns[to] < balance->load_ns[from] * config->balance_low ||
	       is_idle(&balance->placer->devices[to].queue);
}

/* Return true if the flow's quota holds it up, however idle the device is. */
static bool is_held_up(const struct place_flow *flow, uint32_t device)
{
	return device == RBK_DEVICE_CPU && flow->is_throttled;
}

/* Return the time at which @task would be done at the end of @device's queue. */
static float done_ns(const struct balance *balance, const struct place_task *task, uint32_t device)
{
	const struct placer *placer = balance->placer;
	const float slowdown = placer->devices[device].slowdown;
	float ns = exec_ns(balance, task, device);

	if (is_held_up(task->flow, device))
		return ns + (float)place_flow_wait_ns(placer, task->flow, (uint8_t)device,
						      balance->now_ns);
	if (is_idle(&placer->devices[device].queue))
		return ns;
	/* Contention that the flow causes itself does not count on either device. */
	return ns + balance->load_ns[device] / slowdown *
			    place_of_others(task->flow, (uint8_t)device, slowdown);
}

/*
 * Return true if a task that has advice is not to move to @device: it is not late where it is, and
 * not one of a stream; or it is not late by much, and @device has work itself.
 */
static bool is_advised(const struct balance *balance, const struct place_task *task,
		       uint32_t device)
{
	float ns, late_ns;

	if (!(task->decision.flags & PLACE_ADVISED) || task->deadline_ns != UINT64_MAX ||
	    is_held_up(task->flow, task->device))
		return false;
	ns = exec_ns(balance, task, task->device);
	late_ns = (float)(int64_t)(balance->now_ns - task->advised_ns) + ns;
	if (late_ns > ns * ADVISED_MOST)
		return false;
	return (late_ns <= ns * ADVISED_LEAST && !(task->decision.flags & PLACE_STREAMED)) ||
	       !is_idle(&balance->placer->devices[device].queue);
}

/* Move @task if another device is predicted to be done with it earlier. */
static bool try_to_move(struct balance *balance, struct place_task *task)
{
	struct placer *placer = balance->placer;
	uint8_t from = task->device, best = RBK_DEVICE_NONE;
	/* The wait includes the task's own work, as if it were the last of its flow. */
	float best_ns = (float)place_flow_wait_ns(placer, task->flow, from, balance->now_ns);

	for (uint32_t i = 0; i < placer->n_devices; i++) {
		float there_ns;

		if (i == from || !place_can_move(placer, task->place_plan, (uint8_t)i) ||
		    !(is_tipped(balance, from, i) || is_held_up(task->flow, from)) ||
		    is_advised(balance, task, i))
			continue;
		there_ns = done_ns(balance, task, i);
		if (there_ns < best_ns) {
			best = (uint8_t)i;
			best_ns = there_ns;
		}
	}
	if (best == RBK_DEVICE_NONE)
		return false;
	move(balance, task, best);
	return true;
}

/* Return true if another device would take some of @from's tasks. */
static bool is_worth_looking(const struct balance *balance, uint32_t from)
{
	const struct placer *placer = balance->placer;

	if (!placer->devices[from].queue.n_movable)
		return false;
	if (from == RBK_DEVICE_CPU && placer->schedule.throttled)
		return true;
	for (uint32_t i = 0; i < placer->n_devices; i++)
		if (i != from && is_tipped(balance, from, i))
			return true;
	return false;
}

/* Make a task that did not move the last one to be looked at again. */
static void look_later(struct list_node *list, struct list_node *node)
{
	list_remove(node);
	list_append(list->next, node);
}

static unsigned int unload(struct balance *balance, uint8_t from)
{
	struct place_queue *queue = &balance->placer->devices[from].queue;
	uint64_t left = queue->movable_mask;
	unsigned int n_moved = 0;

	while (left && balance->n_left) {
		uint32_t bucket = 63 - (uint32_t)__builtin_clzll(left);
		struct list_node *list = &queue->movable[bucket];
		struct list_node *first_failed = NULL;

		while (balance->n_left && !list_is_empty(list) && list->prev != first_failed) {
			struct list_node *node = list->prev;

			balance->n_left--;
			if (try_to_move(balance, container_of(node, struct place_task, moving))) {
				n_moved++;
				if (!is_worth_looking(balance, from))
					return n_moved;
				continue;
			}
			look_later(list, node);
			if (!first_failed)
				first_failed = node;
		}
		left &= ~(1ull << bucket);
	}
	return n_moved;
}

/* --- Exchanges --- */

/* Return true if the flow would be better off elsewhere only because of its own contention. */
static bool is_culprit(const struct balance *balance, const struct place_flow *flow)
{
	return flow->own_contention > 0 && balance->placer->devices[RBK_DEVICE_CPU].contention > 1;
}

/* Return true if only the end of the device's whole work matters, not that of this task. */
static bool is_for_all(const struct balance *balance, const struct place_task *task)
{
	float wait_ns = (float)place_flow_wait_ns(balance->placer, task->flow, task->device,
						  balance->now_ns);

	return task->deadline_ns == UINT64_MAX && task->class >= 2 && task->flow->cpu_max == 0 &&
	       !(task->decision.flags & PLACE_ADVISED) && !is_culprit(balance, task->flow) &&
	       wait_ns * 2 >= balance->load_ns[task->device];
}

/* Return the queued task that would gain most on another device. */
static struct place_task *best_movable(const struct place_queue *queue)
{
	uint32_t bucket = 63 - (uint32_t)__builtin_clzll(queue->movable_mask);

	return container_of(queue->movable[bucket].prev, struct place_task, moving);
}

/* Return true if the best of @a and the best of @b would take less time in all if exchanged. */
static bool is_crossed(const struct place_queue *a, const struct place_queue *b)
{
	/*
	 * Above the middle bucket a task is better off on the other device; the sum of both counts.
	 */
	return a->movable_mask && b->movable_mask &&
	       (63 - __builtin_clzll(a->movable_mask)) + (63 - __builtin_clzll(b->movable_mask)) >
		       SCHEDULE_BUCKETS;
}

/*
 * Let the device with more work give the other a task that the other is better at, until neither
 * has such a task. Two moves in succession make an exchange; the next call evens out a last single
 * move.
 */
static unsigned int exchange(struct balance *balance, uint8_t a, uint8_t b)
{
	struct placer *placer = balance->placer;
	unsigned int n_moved = 0;

	while (balance->n_left &&
	       is_crossed(&placer->devices[a].queue, &placer->devices[b].queue)) {
		uint8_t from = balance->load_ns[a] > balance->load_ns[b] ? a : b;
		uint8_t to = from == a ? b : a;
		struct place_queue *queue = &placer->devices[from].queue;
		struct place_task *task = best_movable(queue);

		balance->n_left--;
		if (!place_can_move(placer, task->place_plan, to) || !is_for_all(balance, task)) {
			look_later(&queue->movable[task->bucket], &task->moving);
			break;
		}
		move(balance, task, to);
		n_moved++;
	}
	return n_moved;
}

static unsigned int exchange_all(struct balance *balance)
{
	unsigned int n_moved = 0;

	for (uint32_t a = 0; a < balance->placer->n_devices; a++)
		for (uint32_t b = a + 1; b < balance->placer->n_devices; b++)
			n_moved += exchange(balance, (uint8_t)a, (uint8_t)b);
	return n_moved;
}

/* --- Searches of few tasks --- */

static void add_to_search(const struct balance *balance, struct search *search,
			  struct place_task **tasks, struct place_task *task)
{
	uint32_t n = search->n_tasks;

	if (n == SEARCH_MAX_TASKS || !is_for_all(balance, task))
		return;
	for (uint32_t i = 0; i < search->n_devices; i++) {
		bool may_be_there = i == task->device ||
				    place_can_move(balance->placer, task->place_plan, (uint8_t)i);

		search->adds_ns[n][i] = may_be_there ? adds_ns(balance, task, i) : __builtin_inff();
		search->takes_ns[n][i] =
			may_be_there ? exec_ns(balance, task, i) : __builtin_inff();
	}
	search->at[n] = task->device;
	tasks[n] = task;
	search->n_tasks++;
}

static unsigned int search_few(struct balance *balance, float most_ns)
{
	struct placer *placer = balance->placer;
	struct place_task *tasks[SEARCH_MAX_TASKS];
	struct search search;
	unsigned int n_moved = 0;

	search.n_tasks = 0;
	search.n_devices = placer->n_devices;
	for (uint32_t i = 0; i < placer->n_devices; i++) {
		const struct place_queue *queue = &placer->devices[i].queue;

		search.load_ns[i] = balance->load_ns[i];
		/* Add the tasks that would start last first: of equal tasks these are moved. */
		for (uint64_t left = queue->movable_mask; left; left &= left - 1) {
			const struct list_node *list = &queue->movable[__builtin_ctzll(left)];

			for (struct list_node *node = list->prev; node != list; node = node->prev)
				add_to_search(balance, &search, tasks,
					      container_of(node, struct place_task, moving));
		}
	}
	if (search.n_tasks == 0 || !(search_run(&search) < most_ns * (1 - REBALANCE_GAIN)))
		return 0;
	for (uint32_t i = 0; i < search.n_tasks; i++) {
		if (search.at[i] == tasks[i]->device)
			continue;
		move(balance, tasks[i], search.at[i]);
		n_moved++;
	}
	return n_moved;
}

/* --- The interface --- */

/* Return true if rebalancing may gain time. */
static bool is_worth_while(const struct balance *balance, uint32_t n_movable, float *ret_most_ns)
{
	const struct placer *placer = balance->placer;
	float most_ns = 0, least_ns = __builtin_inff();

	for (uint32_t i = 0; i < placer->n_devices; i++) {
		float load_ns = balance->load_ns[i];

		most_ns = load_ns > most_ns ? load_ns : most_ns;
		least_ns = load_ns < least_ns ? load_ns : least_ns;
	}
	*ret_most_ns = most_ns;
	if (placer->schedule.throttled)
		return true;
	if (most_ns < REBALANCE_WORTH_NS * (float)(n_movable < 32 ? n_movable : 32))
		return false;
	if (most_ns - least_ns > REBALANCE_GAIN * most_ns)
		return true;
	for (uint32_t a = 0; a < placer->n_devices; a++)
		for (uint32_t b = a + 1; b < placer->n_devices; b++)
			if (is_crossed(&placer->devices[a].queue, &placer->devices[b].queue))
				return true;
	return false;
}

static bool is_any_idle(const struct placer *placer)
{
	for (uint32_t i = 0; i < placer->n_devices; i++)
		if (placer->devices[i].queue.n_released == 0)
			return true;
	return false;
}

unsigned int place_rebalance(struct placer *placer, uint64_t now_ns)
{
	struct place_schedule *schedule = &placer->schedule;
	struct balance balance = {
		.placer = placer,
		.now_ns = now_ns,
		.now = schedule_time(schedule, now_ns),
		.n_left = REBALANCE_CANDIDATES,
	};
	uint32_t n_movable = 0;
	unsigned int n_moved = 0;
	float most_ns;

	for (uint32_t i = 0; i < placer->n_devices; i++)
		n_movable += placer->devices[i].queue.n_movable;
	if (n_movable == 0)
		return 0;
	if (balance.now < schedule->rebalance_ns &&
	    (schedule->sequence == schedule->rebalance_sequence || !is_any_idle(placer)))
		return 0;
	for (uint32_t i = 0; i < placer->n_devices; i++)
		balance.load_ns[i] = device_load_ns(placer, i, balance.now);
	if (!is_worth_while(&balance, n_movable, &most_ns))
		return 0;

	if (n_movable <= SEARCH_MAX_TASKS)
		n_moved += search_few(&balance, most_ns);
	else
		n_moved += exchange_all(&balance);
	for (uint32_t i = 0; i < placer->n_devices; i++)
		if (is_worth_looking(&balance, i))
			n_moved += unload(&balance, (uint8_t)i);

	schedule->rebalance_sequence = schedule->sequence;
	if (n_moved == 0)
		schedule->rebalance_ns = balance.now + n_movable * REBALANCE_PAUSE_NS;
	return n_moved;
}
