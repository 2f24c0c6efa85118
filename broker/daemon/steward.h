#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The steward: a thread without a filter of system calls
 *
 * The reactor and the setup threads may not make all calls that brokerd has to make at times:
 * execute the next broker, remove its sockets, write its last files (util/sandbox.h). The steward
 * makes these, and otherwise waits. It has its original nice level, too. An order must not wait for
 * anything that may take long: the reactor waits for the steward when brokerd stops.
 */
struct steward;

/*
 * Start the thread. Call before sandbox_enter(), on the reactor.
 * Return: 0; as thread_start().
 */
int steward_new(struct steward **ret);
/* Reactor. Return: NULL. */
struct steward *steward_free(struct steward *steward);

/*
 * Have @fn called by the steward, with all signals blocked, and wait until it returns. Without a
 * steward, and on the steward, call @fn. Any thread.
 */
void steward_do(struct steward *steward, void (*fn)(void *context), void *context);
