#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The event loop
 *
 * io_uring, wrapped so that no other room sees it: watches on descriptors, timers, and one call per
 * turn of the reactor. One thread, the reactor, makes every call here. A turn without anything
 * ready costs a few loads and no system call.
 *
 * Handlers may unwatch anything, themselves included. After loop_unwatch() or loop_timer_free()
 * the handler is never called again; the loop keeps its own memory until the kernel is done.
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
 * Return: 0; -ENOSYS or -EPERM where the kernel has no io_uring or forbids it; other errno. The
 * caller's log line should name io_uring.
 */
int loop_new(struct loop **ret);

/* All watches and timers must be gone. Return: NULL. */
struct loop *loop_free(struct loop *loop);

/*
 * Watches @fd (borrowed: must stay open until unwatched) for @events (POLLIN, ...). The handler
 * runs in loop_turn() each time that the descriptor becomes ready anew (multishot poll), so it has
 * to drain it, or call loop_rewatch() to be told again if it left something behind. If polling
 * fails the handler is called with POLLERR (POLLNVAL if @fd is no descriptor), and not again; for
 * want of memory it is only tried again, some milliseconds later.
 * Return: 0 and the watch, owned by the caller; -ENOMEM.
 */
int loop_watch(struct loop *loop, int fd, uint32_t events, loop_watch_fn fn, void *data,
	       struct loop_watch **ret);

/*
 * Watches likewise, but calls the handler once and then not before loop_rewatch(): whatever happens
 * to the descriptor meanwhile costs the loop nothing, so the other end cannot make the kernel work
 * in the reactor's name as often as it likes.
 */
int loop_watch_once(struct loop *loop, int fd, uint32_t events, loop_watch_fn fn, void *data,
		    struct loop_watch **ret);

/* Checks the descriptor's state again: if it is ready now, the handler runs in a later turn. */
void loop_rewatch(struct loop_watch *watch);

/* Return: NULL. */
struct loop_watch *loop_unwatch(struct loop_watch *watch);

/*
 * One-shot timers on CLOCK_MONOTONIC. Arming an armed timer moves it; arming and disarming cannot
 * fail. They run in the order of their deadlines, not before them, and only one that is armed runs.
 * loop_timer_new() returns 0 and the timer, owned by the caller; -ENOMEM. loop_timer_free() disarms
 * and returns NULL.
 */
int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret);
void loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns);
void loop_timer_disarm(struct loop_timer *timer);
struct loop_timer *loop_timer_free(struct loop_timer *timer);

/* The turn that this loop's thread is in, see turn.h. Lives as long as the loop. */
struct turn *loop_current(struct loop *loop);

/*
 * Ends the turn, begins the next one, and runs the handlers of what is ready until these have taken
 * half of a turn's budget. The rest, and what becomes ready meanwhile, waits for the next turn.
 * With @block, sleeps until something is ready. A handler must not call it.
 * Return: the number of handlers run (0 is possible also with @block); negative errno.
 */
int loop_turn(struct loop *loop, bool block);

/* Return true if the kernel has something for loop_turn() now. Makes no system call. */
bool loop_has_news(const struct loop *loop);

DEFINE_CLEANUP(struct loop *, loop_free)
