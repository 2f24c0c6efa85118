#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Fair queues: weighted turns
 *
 * Start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996). A flow is an owner with waiting
 * items, in order. Each flow has a tag, the virtual time at which its next item begins. The flow
 * with the least tag is served first; afterwards the actual cost of its item, divided by the flow's
 * weight, is added to the tag. So flows that always have items share the cost in proportion to
 * their weights, off by one item at most, although the cost is known only afterwards. A flow that
 * had no items begins at the present virtual time. It has saved up no time, and waits only for the
 * item being served and for flows whose turn has come already.
 *
 * When no flow has an item and none is being served, virtual time advances to the greatest tag. A
 * flow that becomes active later did not wait for earlier items, so no flow owes it any time.
 *
 * Every function takes O(log n) of the flows that have items, whatever the flows do. The caller
 * serialises them.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/checked.h"
#include "util/heap.h"
#include "util/list.h"

enum {
	FAIR_WEIGHT = 100, /* default weight of a flow; the unit of virtual time */
	FAIR_MAX_WEIGHT = 10000,
	FAIR_SCALE = 64, /* keeps a small cost above 0 after division by a large weight */
};

struct fair_flow {
	struct heap_node node;  /* in fair_queue.flows while there are items */
	struct list_node early; /* items served before those of items */
	struct list_node items; /* first come, first served, as is early */
	uint64_t tag;
	uint64_t turn; /* orders equal tags: the longer wait first */
	uint32_t weight;
	_Atomic uint64_t spent; /* of all its items; any thread may read it */
};

struct fair_queue {
	struct heap_node *flows;
	uint64_t now;      /* virtual time: the tag of the flow served last */
	uint64_t last_tag; /* greatest tag after a charge */
	uint64_t n_turns;
	bool is_serving; /* an item was taken and not charged yet */
};

static inline bool fair_is_before_(const struct heap_node *a, const struct heap_node *b)
{
	const struct fair_flow *x = container_of(a, const struct fair_flow, node);
	const struct fair_flow *y = container_of(b, const struct fair_flow, node);

	/* A difference, so that tags may wrap around. */
	if (x->tag != y->tag)
		return (int64_t)(x->tag - y->tag) < 0;
	return (int64_t)(x->turn - y->turn) < 0;
}

static inline void fair_queue_init(struct fair_queue *queue)
{
	*queue = (struct fair_queue){.flows = NULL};
}

/* Initialize @flow, which must not move while it has items. */
static inline void fair_flow_init(struct fair_flow *flow)
{
	*flow = (struct fair_flow){.weight = FAIR_WEIGHT};
	atomic_init(&flow->spent, 0);
	list_init(&flow->early);
	list_init(&flow->items);
}

static inline bool fair_flow_is_idle(const struct fair_flow *flow)
{
	return list_is_empty(&flow->early) && list_is_empty(&flow->items);
}

/* Return true if the flow got more than its share relative to always active flows. */
static inline bool fair_flow_owes(const struct fair_queue *queue, const struct fair_flow *flow)
{
	return (int64_t)(flow->tag - queue->now) > 0;
}

/* Insert @item before @next, which is an item of @flow or one of its lists. */
static inline void fair_insert_(struct fair_queue *queue, struct fair_flow *flow,
				struct list_node *next, struct list_node *item)
{
	bool was_idle = fair_flow_is_idle(flow);

	list_append(next, item);
	if (!was_idle)
		return;
	if ((int64_t)(flow->tag - queue->now) < 0)
		flow->tag = queue->now;
	flow->turn = queue->n_turns++;
	heap_insert(&queue->flows, &flow->node, fair_is_before_);
}

/* Add @item, which is in no list, behind the other items of @flow. */
static inline void fair_add(struct fair_queue *queue, struct fair_flow *flow,
			    struct list_node *item)
{
	fair_insert_(queue, flow, &flow->items, item);
}

/* Add @item behind the early items of @flow only; the flow's own turn is not earlier. */
static inline void fair_add_early(struct fair_queue *queue, struct fair_flow *flow,
				  struct list_node *item)
{
	fair_insert_(queue, flow, &flow->early, item);
}

/* Add @item before all items of @flow. */
static inline void fair_add_first(struct fair_queue *queue, struct fair_flow *flow,
				  struct list_node *item)
{
	fair_insert_(queue, flow, flow->early.next, item);
}

/* End the busy period if no flow has an item and none is being served. */
static inline void fair_settle_(struct fair_queue *queue)
{
	if (!queue->flows && !queue->is_serving && (int64_t)(queue->last_tag - queue->now) > 0)
		queue->now = queue->last_tag;
}

/* Remove an item of @flow out of turn. */
static inline void fair_remove(struct fair_queue *queue, struct fair_flow *flow,
			       struct list_node *item)
{
	assert(!fair_flow_is_idle(flow));
	list_remove(item);
	if (fair_flow_is_idle(flow))
		heap_remove(&queue->flows, &flow->node, fair_is_before_);
	fair_settle_(queue);
}

/*
 * Take the next item.
 * Return: its flow, to be charged before the next item is taken; NULL if there is none.
 */
static inline struct fair_flow *fair_take(struct fair_queue *queue, struct list_node **ret)
{
	struct fair_flow *flow;

	if (!queue->flows)
		return NULL;
	flow = container_of(queue->flows, struct fair_flow, node);
	*ret = list_is_empty(&flow->early) ? flow->items.next : flow->early.next;
	queue->now = flow->tag;
	queue->is_serving = true;
	fair_remove(queue, flow, *ret);
	return flow;
}

/*
 * Charge @flow for the item that was taken last: add its weighted cost to the tag, and @spent, the
 * part of the cost that is the flow's own fault, to flow.spent.
 */
static inline void fair_charge(struct fair_queue *queue, struct fair_flow *flow, uint64_t cost,
			       uint64_t spent)
{
	uint64_t weight = flow->weight > 0 ? flow->weight : 1;
	uint64_t virtual_cost;

	atomic_fetch_add_explicit(&flow->spent, spent, memory_order_relaxed);
	if (!checked_mul(cost, (uint64_t)FAIR_WEIGHT * FAIR_SCALE, &virtual_cost))
		virtual_cost = (uint64_t)INT64_MAX;
	flow->tag += virtual_cost / weight;
	flow->turn = queue->n_turns++;
	if ((int64_t)(flow->tag - queue->last_tag) > 0)
		queue->last_tag = flow->tag;
	if (!fair_flow_is_idle(flow))
		heap_update(&queue->flows, &flow->node, fair_is_before_);
	queue->is_serving = false;
	fair_settle_(queue);
}
