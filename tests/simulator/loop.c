/* SPDX-License-Identifier: MIT */
/*
 * The event loop of the simulated machine: loop/loop.h without io_uring
 *
 * Watches are edge-triggered epoll entries. Like a multishot poll, such an entry reports a
 * descriptor when it is added, and then each time something arrives. It promises as little as
 * loop.h does: a handler that leaves data behind is not called again for them.
 */
#include "loop/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "loop/turn.h"
#include "simulator/broker.h"
#include "simulator/device.h"
#include "simulator/machine.h"
#include "simulator/real.h"
#include "util/error.h"

enum {
	MAX_TIMERS = 256,
	MAX_EVENTS = 64,
	SLEEP_STEPS = 16, /* in which a wake-up takes effect */
};

struct loop_watch {
	struct loop *loop;
	bool is_once;
	int fd;
	uint32_t events;
	loop_watch_fn fn;
	void *data;
};

struct loop_timer {
	struct loop *loop;
	loop_timer_fn fn;
	void *data;
	uint64_t deadline_ns; /* SIM_NEVER: not armed */
};

struct loop {
	struct turn turn;
	int epoll_fd;
	unsigned int n_watches;
	struct loop_timer *timers[MAX_TIMERS];
	unsigned int n_timers;
	uint64_t n_touched; /* sim_n_touched() at the last look that found nothing */
	struct epoll_event events[MAX_EVENTS];
	int n_events; /* found by loop_has_news(), for the next turn */
};

int loop_new(struct loop **ret)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	int fd;

	if (!loop)
		return error_origin(-ENOMEM);
	fd = epoll_create1(EPOLL_CLOEXEC);
	if (fd < 0) {
		free(loop);
		return error_origin(-errno);
	}
	loop->epoll_fd = fd;
	turn_init(&loop->turn, TURN_BUDGET_US * 1000);
	*ret = loop;
	return 0;
}

struct loop *loop_free(struct loop *loop)
{
	if (!loop)
		return NULL;
	sim_check(loop->n_watches == 0 && loop->n_timers == 0);
	close(loop->epoll_fd);
	free(loop);
	return NULL;
}

struct turn *loop_current(struct loop *loop)
{
	return &loop->turn;
}

/* Add or change the entry of a watch, which looks at the descriptor's state anew. */
static void arm(struct loop_watch *watch, int how)
{
	struct epoll_event event = {
		.events = watch->events | EPOLLET | (watch->is_once ? EPOLLONESHOT : 0),
		.data.ptr = watch,
	};

	if (epoll_ctl(watch->loop->epoll_fd, how, watch->fd, &event))
		sim_violation("descriptor %d cannot be watched: errno %d", watch->fd, errno);
	sim_touched();
}

static int watch_new(struct loop *loop, int fd, uint32_t events, bool is_once, loop_watch_fn fn,
		     void *data, struct loop_watch **ret)
{
	struct loop_watch *watch = malloc(sizeof(*watch));

	if (!watch)
		return error_origin(-ENOMEM);
	*watch = (struct loop_watch){
		.loop = loop,
		.is_once = is_once,
		.fd = fd,
		.events = events,
		.fn = fn,
		.data = data,
	};
	loop->n_watches++;
	arm(watch, EPOLL_CTL_ADD);
	*ret = watch;
	return 0;
}

int loop_watch(struct loop *loop, int fd, uint32_t events, loop_watch_fn fn, void *data,
	       struct loop_watch **ret)
{
	return watch_new(loop, fd, events, false, fn, data, ret);
}

int loop_watch_once(struct loop *loop, int fd, uint32_t events, loop_watch_fn fn, void *data,
		    struct loop_watch **ret)
{
	return watch_new(loop, fd, events, true, fn, data, ret);
}

void loop_rewatch(struct loop_watch *watch)
{
	arm(watch, EPOLL_CTL_MOD);
}

struct loop_watch *loop_unwatch(struct loop_watch *watch)
{
	struct loop *loop;

	if (!watch)
		return NULL;
	loop = watch->loop;
	loop->n_watches--;
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL))
		sim_violation("descriptor %d was closed before loop_unwatch()", watch->fd);
	/* Handlers of this turn that are still to be called */
	for (int i = 0; i < loop->n_events; i++)
		if (loop->events[i].data.ptr == watch)
			loop->events[i].data.ptr = NULL;
	free(watch);
	return NULL;
}

int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret)
{
	struct loop_timer *timer = malloc(sizeof(*timer));

	if (!timer)
		return error_origin(-ENOMEM);
	sim_check(loop->n_timers < MAX_TIMERS);
	*timer =
		(struct loop_timer){.loop = loop, .fn = fn, .data = data, .deadline_ns = SIM_NEVER};
	loop->timers[loop->n_timers++] = timer;
	*ret = timer;
	return 0;
}

void loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns)
{
	const uint64_t now_ns = sim_now_ns();

	timer->deadline_ns = delay_ns < SIM_NEVER - now_ns - 1 ? now_ns + delay_ns : SIM_NEVER - 1;
}

void loop_timer_disarm(struct loop_timer *timer)
{
	timer->deadline_ns = SIM_NEVER;
}

struct loop_timer *loop_timer_free(struct loop_timer *timer)
{
	struct loop *loop;
	unsigned int i = 0;

	if (!timer)
		return NULL;
	loop = timer->loop;
	while (loop->timers[i] != timer)
		i++;
	loop->timers[i] = loop->timers[--loop->n_timers];
	free(timer);
	return NULL;
}

static struct loop_timer *first_timer(const struct loop *loop)
{
	struct loop_timer *first = NULL;

	for (unsigned int i = 0; i < loop->n_timers; i++)
		if (!first || loop->timers[i]->deadline_ns < first->deadline_ns)
			first = loop->timers[i];
	return first && first->deadline_ns < SIM_NEVER ? first : NULL;
}

/* Look for events, if there may be new ones. Return: true if there are any. */
static bool look(struct loop *loop)
{
	if (loop->n_events > 0)
		return true;
	if (loop->n_touched == sim_n_touched())
		return false;
	loop->n_events = epoll_wait(loop->epoll_fd, loop->events, MAX_EVENTS, 0);
	if (loop->n_events <= 0) {
		loop->n_events = 0;
		loop->n_touched = sim_n_touched();
	}
	return loop->n_events > 0;
}

bool loop_has_news(const struct loop *loop)
{
	const struct loop_timer *timer = first_timer(loop);

	return (timer && timer->deadline_ns <= sim_now_ns()) || look((struct loop *)loop);
}

/* Run the timers whose time has come. Return: their number. */
static int run_timers(struct loop *loop)
{
	const uint64_t now_ns = sim_now_ns();
	struct loop_timer *timer;
	int n = 0;

	while ((timer = first_timer(loop)) && timer->deadline_ns <= now_ns) {
		timer->deadline_ns = SIM_NEVER;
		timer->fn(timer->data);
		n++;
	}
	return n;
}

/* Call the handlers of the events, in any order. Return: their number. */
static int run_handlers(struct loop *loop)
{
	const unsigned int n = (unsigned int)loop->n_events;
	const unsigned int first = n > 1 ? (unsigned int)sim_below(n) : 0;
	int n_run = 0;

	for (unsigned int i = 0; i < n; i++) {
		const struct epoll_event event = loop->events[(first + i) % n];
		struct loop_watch *watch = event.data.ptr;

		if (!watch)
			continue;
		watch->fn(watch->data, event.events);
		n_run++;
	}
	loop->n_events = 0;
	return n_run;
}

/* A device that has done a task must not have let the reactor sleep. */
static void check_sleep(uint64_t begin_ns, uint64_t end_ns)
{
	const uint64_t told_ns = sim_device_told_ns();
	const uint64_t from_ns = told_ns > begin_ns ? told_ns : begin_ns;

	if (told_ns > 0 && end_ns > from_ns + SLEEP_STEPS * sim_step_ns())
		sim_violation("the reactor sleeps for %llu us while a device has done a task",
			      (unsigned long long)(end_ns - from_ns) / 1000);
}

int loop_turn(struct loop *loop, bool block)
{
	const struct pollfd poll_fd = {.fd = loop->epoll_fd, .events = POLLIN};
	const struct loop_timer *timer;
	uint64_t begin_ns;

	sim_call();
	turn_end(&loop->turn);
	timer = first_timer(loop);
	if (!look(loop) && block && !(timer && timer->deadline_ns <= sim_now_ns())) {
		sim_broker_check_sleep();
		begin_ns = sim_now_ns();
		sim_wait(&poll_fd, 1, NULL, timer ? timer->deadline_ns : SIM_NEVER);
		check_sleep(begin_ns, sim_woken_ns());
		loop->n_touched = sim_n_touched() - 1;
		look(loop);
	}
	return run_handlers(loop) + run_timers(loop);
}
