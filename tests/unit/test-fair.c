/* SPDX-License-Identifier: MIT */
/*
 * Fair queues in virtual time: weights, order, flows that were idle, floods, tags that wrap around.
 */
#include <stdlib.h>

#include "support/test.h"
#include "util/checked.h"
#include "util/fair.h"

enum { N_ITEMS = 20000 };

struct item {
	struct list_node link;
	struct fair_flow *flow;
};

static struct item items[N_ITEMS];

static struct item *item_of(struct list_node *node)
{
	return container_of(node, struct item, link);
}

static void add(struct fair_queue *queue, struct fair_flow *flow, struct item *item)
{
	item->flow = flow;
	fair_add(queue, flow, &item->link);
}

/*
 * Take the next item and charge @cost.
 * Return: the item.
 */
static struct item *serve(struct fair_queue *queue, uint64_t cost)
{
	struct list_node *node = NULL;
	struct fair_flow *flow = fair_take(queue, &node);

	if (!flow)
		return NULL;
	assert_ptr_equal(item_of(node)->flow, flow);
	fair_charge(queue, flow, cost, cost);
	return item_of(node);
}

TEST(test_fair__order_in_a_flow)
{
	struct fair_queue queue;
	struct fair_flow flow;

	fair_queue_init(&queue);
	fair_flow_init(&flow);
	assert_null(queue.flows);
	assert_null(serve(&queue, 1));
	for (unsigned int i = 0; i < 100; i++)
		add(&queue, &flow, &items[i]);
	fair_remove(&queue, &flow, &items[50].link);
	for (unsigned int i = 0; i < 100; i++)
		if (i != 50)
			assert_ptr_equal(serve(&queue, i), &items[i]);
	assert_null(queue.flows);
	assert_true(fair_flow_is_idle(&flow));
	assert_int_equal(flow.spent, 99 * 100 / 2 - 50);
	/* The only item of a flow. */
	add(&queue, &flow, &items[0]);
	fair_remove(&queue, &flow, &items[0].link);
	assert_null(queue.flows);
}

/*
 * Weights of 10 : 1 and even 10000 : 1 hold, with items whose very different costs are not known
 * beforehand.
 */
TEST(test_fair__weights)
{
	static const uint32_t weights[][2] = {{1000, 100}, {100, 10}, {10, 1}, {10000, 1}, {7, 3}};

	for (unsigned int w = 0; w < ARRAY_SIZE(weights); w++) {
		uint64_t spent[2] = {0, 0};
		struct fair_queue queue;
		struct fair_flow flows[2];

		fair_queue_init(&queue);
		for (unsigned int i = 0; i < 2; i++) {
			fair_flow_init(&flows[i]);
			flows[i].weight = weights[w][i];
			add(&queue, &flows[i], &items[2 * i]);
			add(&queue, &flows[i], &items[2 * i + 1]);
		}
		srand(1);
		for (unsigned int n = 0; n < 200000; n++) {
			/* The second flow's items are ten times as long. */
			bool is_second = queue.flows == &flows[1].node;
			uint64_t cost = (uint64_t)(1 + rand() % 1000) * (is_second ? 10 : 1);
			struct item *item = serve(&queue, cost);

			spent[item->flow == &flows[1]] += cost;
			add(&queue, item->flow, item);
		}
		assert_int_equal(spent[0], flows[0].spent);
		/* Within an item of the longest cost, and 2%. */
		assert_true(spent[0] / weights[w][0] <= spent[1] / weights[w][1] +
								spent[1] / weights[w][1] / 50 +
								10000 / weights[w][1]);
		assert_true(spent[1] / weights[w][1] <= spent[0] / weights[w][0] +
								spent[0] / weights[w][0] / 50 +
								10000 / weights[w][1]);
	}
}

/* However many items one flow has, another flow's only item is served second at the latest. */
TEST(test_fair__flood)
{
	struct fair_queue queue;
	struct fair_flow flood, other;

	fair_queue_init(&queue);
	fair_flow_init(&flood);
	fair_flow_init(&other);
	for (unsigned int i = 1; i < N_ITEMS; i++)
		add(&queue, &flood, &items[i]);
	for (unsigned int n = 0; n < 1000; n++) {
		assert_ptr_equal(serve(&queue, 1000000)->flow, &flood);
		add(&queue, &other, &items[0]);
		if (serve(&queue, 10)->flow == &flood)
			assert_ptr_equal(serve(&queue, 10)->flow, &other);
	}
}

/* A flow without items for a long time gets no more than others from then on. */
TEST(test_fair__idle_flow_saves_nothing)
{
	struct fair_queue queue;
	struct fair_flow flows[2];
	unsigned int n[2] = {0, 0};

	fair_queue_init(&queue);
	for (unsigned int i = 0; i < 2; i++)
		fair_flow_init(&flows[i]);
	add(&queue, &flows[0], &items[0]);
	for (unsigned int i = 0; i < 1000; i++)
		add(&queue, &flows[0], serve(&queue, 1000));
	add(&queue, &flows[1], &items[1]);
	for (unsigned int i = 0; i < 100; i++) {
		struct item *item = serve(&queue, 1000);

		n[item->flow == &flows[1]]++;
		add(&queue, item->flow, item);
	}
	assert_in_range(n[0], 49, 51);
	assert_in_range(n[1], 49, 51);

	/* A flow does not owe the time that it took while it was alone. */
	while (serve(&queue, 1000000000))
		;
	add(&queue, &flows[0], &items[0]);
	add(&queue, &flows[1], &items[1]);
	n[0] = n[1] = 0;
	for (unsigned int i = 0; i < 100; i++) {
		struct item *item = serve(&queue, 1000000000);

		n[item->flow == &flows[1]]++;
		add(&queue, item->flow, item);
	}
	assert_in_range(n[0], 49, 51);
}

/* Return: the items of flows[1] that are served before an item of flows[0]; both have items. */
static unsigned int n_ahead(struct fair_queue *queue, struct fair_flow flows[2], uint64_t cost)
{
	struct item *item;
	unsigned int n = 0;

	add(queue, &flows[0], &items[0]);
	add(queue, &flows[1], &items[1]);
	while ((item = serve(queue, cost))->flow == &flows[1]) {
		n++;
		add(queue, item->flow, item);
	}
	while (!fair_flow_is_idle(&flows[1]))
		fair_remove(queue, &flows[1], flows[1].items.next);
	return n;
}

/*
 * No debt outlasts the busy period in which it was made. A flow that comes after that period has
 * not waited for a long item in it, whichever flow was served last.
 */
TEST(test_fair__debts_end_with_the_busy_period)
{
	enum { LONG = 1000000, SHORT = 1000 };
	struct fair_queue queue;
	struct fair_flow flows[2];
	struct list_node *node;

	fair_queue_init(&queue);
	for (unsigned int i = 0; i < 2; i++)
		fair_flow_init(&flows[i]);

	/* A short item comes while the long one is served, and waits for it. */
	add(&queue, &flows[0], &items[0]);
	assert_ptr_equal(fair_take(&queue, &node), &flows[0]);
	add(&queue, &flows[1], &items[1]);
	fair_charge(&queue, &flows[0], LONG, LONG);
	assert_true(fair_flow_owes(&queue, &flows[0]));
	assert_ptr_equal(serve(&queue, SHORT), &items[1]);
	assert_false(fair_flow_owes(&queue, &flows[0]));
	assert_in_range(n_ahead(&queue, flows, SHORT), 0, 1);

	/* The short item is removed, before and after the long one has been served. */
	for (unsigned int is_after = 0; is_after < 2; is_after++) {
		add(&queue, &flows[0], &items[0]);
		assert_ptr_equal(fair_take(&queue, &node), &flows[0]);
		add(&queue, &flows[1], &items[1]);
		if (!is_after)
			fair_remove(&queue, &flows[1], &items[1].link);
		fair_charge(&queue, &flows[0], LONG, LONG);
		if (is_after)
			fair_remove(&queue, &flows[1], &items[1].link);
		assert_in_range(n_ahead(&queue, flows, SHORT), 0, 1);
	}

	/* While the period lasts, the flow pays for its long item, also if it is idle meanwhile. */
	add(&queue, &flows[0], &items[0]);
	assert_ptr_equal(fair_take(&queue, &node), &flows[0]);
	add(&queue, &flows[1], &items[1]);
	add(&queue, &flows[1], &items[2]);
	fair_charge(&queue, &flows[0], LONG, LONG);
	assert_ptr_equal(serve(&queue, SHORT), &items[1]);
	assert_in_range(n_ahead(&queue, flows, SHORT), LONG / SHORT - 2, LONG / SHORT);
}

/* A busy period lasts while an item is served: a flow that comes then begins with that item. */
TEST(test_fair__busy_while_serving)
{
	struct fair_queue queue;
	struct fair_flow flows[3];
	struct list_node *node;

	fair_queue_init(&queue);
	for (unsigned int i = 0; i < 3; i++)
		fair_flow_init(&flows[i]);
	add(&queue, &flows[0], &items[0]);
	add(&queue, &flows[1], &items[1]);
	assert_ptr_equal(serve(&queue, 1000000), &items[0]);
	assert_ptr_equal(fair_take(&queue, &node), &flows[1]);
	assert_null(queue.flows);
	add(&queue, &flows[2], &items[2]);
	fair_charge(&queue, &flows[1], 1000, 1000);
	add(&queue, &flows[1], &items[1]);
	assert_ptr_equal(serve(&queue, 1000), &items[2]);
	assert_ptr_equal(serve(&queue, 1000), &items[1]);
}

/* A flow whose items are removed and added again neither gains nor loses a turn. */
TEST(test_fair__removed_and_added_again)
{
	struct fair_queue queue;
	struct fair_flow flows[2];
	unsigned int n[2] = {0, 0};

	fair_queue_init(&queue);
	for (unsigned int i = 0; i < 2; i++) {
		fair_flow_init(&flows[i]);
		add(&queue, &flows[i], &items[2 * i]);
		add(&queue, &flows[i], &items[2 * i + 1]);
	}
	for (unsigned int i = 0; i < 1000; i++) {
		struct item *item = serve(&queue, 1 + (unsigned int)rand() % 1000);

		add(&queue, item->flow, item);
		n[item->flow - flows]++;
		for (unsigned int k = 0; k < 2; k++)
			fair_remove(&queue, &flows[0], &items[k].link);
		for (unsigned int k = 0; k < 2; k++)
			add(&queue, &flows[0], &items[k]);
	}
	assert_in_range(n[0], 470, 530);
	assert_in_range(flows[0].spent, flows[1].spent - 1000, flows[1].spent + 1000);
}

TEST(test_fair__tags_wrap)
{
	struct fair_queue queue;
	struct fair_flow flows[3];
	unsigned int n[3] = {0, 0, 0};

	fair_queue_init(&queue);
	queue.now = UINT64_MAX - 50000;
	for (unsigned int i = 0; i < 3; i++) {
		fair_flow_init(&flows[i]);
		add(&queue, &flows[i], &items[i]);
	}
	for (unsigned int i = 0; i < 3000; i++) {
		struct item *item = serve(&queue, 1000);

		n[item->flow - flows]++;
		add(&queue, item->flow, item);
	}
	assert_true(queue.now < UINT64_MAX / 2);
	for (unsigned int i = 0; i < 3; i++)
		assert_in_range(n[i], 999, 1001);
}

/* A thousand flows, items removed at random: the remaining items are served once each. */
TEST(test_fair__removal)
{
	enum { N_FLOWS = 1000 };
	static struct fair_flow flows[N_FLOWS];
	static bool is_in[N_ITEMS];
	struct fair_queue queue;
	unsigned int n_in = 0;
	struct item *item;

	fair_queue_init(&queue);
	for (unsigned int i = 0; i < N_FLOWS; i++) {
		fair_flow_init(&flows[i]);
		flows[i].weight = 1 + i * 10;
	}
	srand(2);
	for (unsigned int n = 0; n < 200000; n++) {
		unsigned int i = (unsigned int)rand() % N_ITEMS;

		if (!is_in[i])
			add(&queue, &flows[i % N_FLOWS], &items[i]);
		else
			fair_remove(&queue, items[i].flow, &items[i].link);
		is_in[i] = !is_in[i];
		n_in += is_in[i] ? 1 : -1u;
		if (n % 8 == 0 && (item = serve(&queue, (unsigned int)rand() % 1000))) {
			assert_true(is_in[item - items]);
			is_in[item - items] = false;
			n_in--;
		}
	}
	while ((item = serve(&queue, 1))) {
		assert_true(is_in[item - items]);
		is_in[item - items] = false;
		n_in--;
	}
	assert_int_equal(n_in, 0);
	for (unsigned int i = 0; i < N_FLOWS; i++)
		assert_true(fair_flow_is_idle(&flows[i]));
}
