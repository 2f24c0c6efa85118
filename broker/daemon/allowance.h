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
 * Raise the soft limit of open files. Call after brokerd has opened everything but its sockets.
 * *ret is the number of descriptors that tenants may have, so that some are left for brokerd and
 * administrators.
 * Return: 0; ALLOWANCE_E_FILES if there are too few, which was logged.
 */
int allowance_descriptors(bool has_metrics, uint64_t *ret);

/*
 * Return the number of inotify watches that tenants may have: half of the kernel's limit for our
 * user, because the user may have other programs. Return: 0 if the kernel does not say.
 */
uint64_t allowance_watches(void);

/*
 * Log which limit to raise if @r is a negative errno that reports a lack of a resource at the
 * start.
 * Return: true if it is.
 */
bool allowance_explain(int r, bool has_metrics);
