#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Confining brokerd's threads, and reporting the system calls that were refused
 *
 * Reactor thread.
 */
struct broker;

/*
 * Start the steward, then confine this thread and those that start later, in the mode of the
 * options. A machine without filters is mentioned in the log, and brokerd goes on.
 * Return: 0; negative errno of the steward, or without memory or descriptors.
 */
int confine_begin(struct broker *broker);

/* Confine this thread to what the reactor needs while clients are served. */
void confine_reactor(void);

/* Report what was refused and not reported yet, and stop watching. */
void confine_end(struct broker *broker);
