#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Confining brokerd's threads, and reporting the system calls that were refused
 *
 * Reactor thread.
 */
struct broker;

/*
 * Have threads that start later confine themselves, in the mode of the options. Call before any
 * thread starts. A machine without filters, and a mode that refuses nothing, are mentioned in the
 * log, and brokerd goes on.
 * Return: 0; negative errno without memory or descriptors.
 */
int confine_prepare(struct broker *broker);

/*
 * Start the steward, then confine this thread, and with it those that drivers start. Call when the
 * privileges that the steward must not have are given up.
 * Return: 0; negative errno of the steward.
 */
int confine_begin(struct broker *broker);

/* Confine this thread to what the reactor needs while clients are served. */
void confine_reactor(struct broker *broker);

/* Report what was refused and not reported yet, and stop watching. */
void confine_end(struct broker *broker);
