/* SPDX-License-Identifier: MIT */
/*
 * Memory that clients may keep
 *
 * An exported arena is the kernel's for as long as anybody holds its dma-buf, and the client
 * has a descriptor of it. So that it cannot have the broker make memory, give the arena back and
 * keep the memory uncharged, a descriptor of our own stays open after the arena is gone, with the
 * charges; the kernel tells with it how many hold the dma-buf (util/dma-buf.h). When that is only
 * us it is closed, which frees the pages, on the thread that closes things.
 *
 * Looking takes a system call or three per arena, so it happens on a slow timer and for a few at a
 * time. What the kernel does not count is a client that has opened the dma-buf with the driver of
 * the same card; that memory is then in the client's own name there, as if it had allocated it, and
 * no more than it could have had without us.
 */
#include <errno.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "util/dma-buf.h"
#include "util/error.h"

enum { HOLD_BATCH = 16 };

static const uint64_t hold_period_ns = 250000000;

struct hold {
	struct list_node link; /* in server->holds */
	struct closers_job job;
	struct server *server;
	struct charge charges[HOLD_CHARGES];
	int fd;
};

static void hold_free(struct hold *hold)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(hold->charges); i++)
		charge_deinit(&hold->charges[i]);
	list_remove(&hold->link);
	close_fd(hold->fd);
	free(hold);
}

static void close_run(struct closers_job *job)
{
	struct hold *hold = container_of(job, struct hold, job);

	hold->fd = close_fd(hold->fd);
}

static void close_done(struct closers_job *job)
{
	struct hold *hold = container_of(job, struct hold, job);

	hold_free(hold);
}

/* Return: false if others hold it still, or if that cannot be known. */
static bool hold_try_close(struct hold *hold)
{
	struct server *server = hold->server;
	uint64_t n_holders;

	if (dma_buf_holders(hold->fd, &n_holders) || n_holders > 1)
		return false;
	hold->job = (struct closers_job){.run = close_run, .done = close_done};
	list_remove(&hold->link);
	closers_submit(server->closers, hold->charges[0].account, &hold->job);
	return true;
}

static void on_timer(void *data)
{
	struct server *server = data;
	struct list_node *node, *first_kept = NULL;

	/* Those that stay go to the end of the list, so that all have their turn. */
	for (unsigned int i = 0; i < HOLD_BATCH; i++) {
		node = server->holds.next;
		if (node == &server->holds || node == first_kept)
			break;
		if (hold_try_close(container_of(node, struct hold, link)))
			continue;
		list_remove(node);
		list_append(&server->holds, node);
		first_kept = first_kept ? first_kept : node;
	}
	if (!list_is_empty(&server->holds))
		loop_timer_arm(server->hold_timer, hold_period_ns);
}

int holds_init(struct server *server)
{
	list_init(&server->holds);
	return loop_timer_new(server->options.loop, on_timer, server, &server->hold_timer);
}

void holds_deinit(struct server *server)
{
	server->hold_timer = loop_timer_free(server->hold_timer);
	list_for_each_safe (node, &server->holds)
		hold_free(container_of(node, struct hold, link));
}

int hold_new(struct server *server, struct hold **ret)
{
	struct hold *hold = calloc(1, sizeof(*hold));

	if (!hold)
		return error_origin(-ENOMEM);
	list_init(&hold->link);
	hold->server = server;
	hold->fd = -1;
	*ret = hold;
	return 0;
}

void hold_leave(struct hold *hold, int fd, struct charge *const charges[HOLD_CHARGES])
{
	struct server *server = hold->server;

	if (fd < 0) {
		hold_free(hold);
		return;
	}
	hold->fd = fd;
	for (unsigned int i = 0; i < HOLD_CHARGES; i++)
		hold->charges[i] = charge_steal(charges[i]);
	list_append(&server->holds, &hold->link);
	if (!hold_try_close(hold))
		loop_timer_arm(server->hold_timer, hold_period_ns);
}
