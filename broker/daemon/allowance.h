#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Limits that the system sets for this process
 *
 * At the start: the number of open files, and which limit to raise after a refusal. Main thread.
 */
#include <stdbool.h>
#include <stdint.h>

enum { ALLOWANCE_E_FILES = 1 };

/*
 * Raises the soft limit of open files, after all that brokerd opens for itself is open but its
 * sockets: *ret is how many tenants may have, so that some are left for brokerd and administrators.
 * Return: 0; ALLOWANCE_E_FILES: there are too few, which was logged.
 */
int allowance_descriptors(bool has_metrics, uint64_t *ret);

/*
 * Reads how many inotify watches tenants may have: half of those that the kernel allows our user,
 * because the user may have other programs. Return: 0 if the kernel does not say.
 */
uint64_t allowance_watches(void);

/*
 * Logs what to raise, if @r, a negative errno of something that could not be made at the start, is
 * one of a lack. Return: was it?
 */
bool allowance_explain(int r, bool has_metrics);
