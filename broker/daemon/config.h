#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The policy file's part in brokerd
 *
 * Its two readers put together: tenant/ reads the tenants, options.c what could as well stand on
 * the command line. Any thread.
 */
#include "daemon/options.h"
#include "tenant/policy.h"

/*
 * Loads the file that @options name, and reads what it says about options into @options, under the
 * command line. On failure @options are in no particular state.
 * Return: 0; POLICY_E_INVALID with sentences in *ret_errors as policy_load(); negative errno.
 */
int config_load(struct options *options, struct policy **ret, char **ret_errors);

/* brokerd --check-config: prints what is wrong, or what is in force. Return: an exit status. */
int config_check(const struct options *options);

/* Logs sentences, a line each, before @what came of them, an @event. Frees them. */
void config_log_errors(enum log_event event, const char *what, char *errors);

/* What a reload changed, in one line, to be freed; NULL: out of memory. */
char *config_changes(const struct policy *before, const struct policy *after);

/*
 * Return the bytes of host memory that there are for this process: the machine's memory, or the
 * least memory.max of the process's cgroups if that is less.
 */
uint64_t config_host_memory(void);

/*
 * Return the bytes of host memory that all tenants together may have, of which a tenant's host-max
 * is a part: what @options say, or three quarters of config_host_memory().
 */
uint64_t config_host_max(const struct options *options);
