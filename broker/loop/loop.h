#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The event loop
 *
 * The loop hides io_uring from every other room. It offers watches on descriptors, timers, and one
 * call per turn of the reactor. Only the reactor thread calls these functions. A turn without ready
 * events costs a few loads and no system call.
 *
 * Handlers may unwatch any watch, including their own. After loop_unwatch() or loop_timer_free()
 * the loop does not call the handler again; it frees the watch's memory when the kernel has ended
 * the request.
 */
#include <stdbool.h>
#include <stdint.h>

#include "util/cleanup.h"

struct loop;
struct loop_watch;
struct loop_timer;
struct turn;

/* @events: the POLL* bits that are ready, POLLHUP and POLLERR included. */
typedef void (*loop_watch_fn)(void *data, uint32_t events);
typedef void (*loop_timer_fn)(void *data);

/*
 * Create a loop. The caller's log line about a failure should name io_uring.
 * Return: 0; -ENOSYS or -EPERM if the kernel has no io_uring or forbids it; another negative errno.
 */
int loop_new(struct loop **ret);

/* Free the loop. Its watches and timers must be freed before. Return: NULL. */
struct loop *loop_free(struct loop *loop);

/*
 * Watch @fd (borrowed: must stay open until unwatched) for @events (POLLIN, ...). The handler runs
 * in loop_turn() each time the descriptor becomes ready anew (multishot poll). It must drain the
 * descriptor, or call loop_rewatch() if it leaves data behind. If polling fails, the handler is
 * called once with POLLERR (POLLNVAL if @fd is no descriptor) and not again; if the kernel lacks
 * memory, the loop only retries some milliseconds later.
 * Return: 0 and the watch, owned by the caller; -ENOMEM.
 */
int loop_watch(struct loop *loop, int fd, uint32_t events, loop_watch_fn fn, void *data,
	       struct loop_watch **ret);

/*
 * Watch @fd as loop_watch() does, but call the handler once and then not before loop_rewatch().
 * Until then, events on the descriptor cost the loop nothing, so the peer cannot make the kernel
 * work on the reactor's account at will.
 */
int loop_watch_once(struct loop *loop, int fd, uint32_t events, loop_watch_fn fn, void *data,
		    struct loop_watch **ret);

/*
 * Check the descriptor's state again. If the descriptor is ready now, the handler runs in a later
 * turn.
 */
void loop_rewatch(struct loop_watch *watch);

/* Stop watching. NULL is allowed. Return: NULL. */
struct loop_watch *loop_unwatch(struct loop_watch *watch);

/*
 * One-shot timers on CLOCK_MONOTONIC. Arming an armed timer moves it; arming and disarming cannot
 * fail. Timers run in the order of their deadlines, never before the deadline, and only while
 * armed. loop_timer_new() returns 0 and the timer, owned by the caller, or -ENOMEM.
 * loop_timer_free() disarms the timer and returns NULL.
 */
int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret);
void loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns);
void loop_timer_disarm(struct loop_timer *timer);
struct loop_timer *loop_timer_free(struct loop_timer *timer);

/* Return the turn of this loop's thread (turn.h). It lives as long as the loop. */
struct turn *loop_current(struct loop *loop);

/*
 * End the turn, begin the next one, and run the handlers of ready events until they have used half
 * of a turn's budget. Remaining events, and events that become ready meanwhile, wait for the next
 * turn. With @block, sleep until an event is ready. Handlers must not call this function.
 * Return: the number of handlers run (may be 0 even with @block); negative errno.
 */
int loop_turn(struct loop *loop, bool block);

/* Return true if the kernel has events for loop_turn() now. Makes no system call. */
bool loop_has_news(const struct loop *loop);

DEFINE_CLEANUP(struct loop *, loop_free)
