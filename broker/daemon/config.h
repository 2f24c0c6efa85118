#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The policy file's part in brokerd
 *
 * It combines the two readers of the file: tenant/ reads the tenants, options.c the keys that may
 * also stand on the command line. Any thread.
 */
#include "daemon/options.h"
#include "tenant/policy.h"

/*
 * Load the file that @options name, and read its keys into @options; the command line has
 * precedence. On failure, the contents of @options are undefined.
 * Return: 0; POLICY_E_INVALID with *ret_errors as policy_load(); negative errno.
 */
int config_load(struct options *options, struct policy **ret, struct policy_errors *ret_errors);

/*
 * Implement brokerd --check-config: print the errors, or the policy. With the facts of a running
 * broker in the environment, also check what would keep the next broker from starting in its place.
 * Return: an exit status.
 */
int config_check(const struct options *options);

/* The environment's variable with facts of the running broker, for the check of the next one. */
#define CONFIG_FACTS "RINGBROKER_RUNNING"
enum { CONFIG_FACTS_BYTES = 768 };

/*
 * Describe the broker that runs with @options and devices of these sizes in bytes, for
 * config_check() in another process: NAME=VALUE.
 */
void config_state_facts(const struct options *options, const uint64_t *device_bytes,
			uint32_t n_devices, char ret[CONFIG_FACTS_BYTES]);

/* Log each sentence of @errors, then their consequence @what as @event. Frees the sentences. */
void config_log_errors(enum log_event event, const char *what, struct policy_errors *errors);

/*
 * Describe in one line what a reload changed, with the keys of [broker] by when they take effect.
 * The caller frees the line. Return: NULL if out of memory.
 */
char *config_changes(const struct options *options, const struct policy *before,
		     const struct policy *after);

/*
 * Copy the keys of [broker] and their values, for config_waiting().
 * Return: a copy that the caller frees; NULL if out of memory.
 */
char *config_remember(const struct policy *policy);

/*
 * List the keys of [broker] in @policy that take effect at the next start: their values are not
 * those of @started, which config_remember() has made, and the command line does not have them.
 * Return: their names, separated by ", ", which the caller frees, with their number; NULL if out of
 * memory.
 */
char *config_waiting(const struct options *options, const char *started,
		     const struct policy *policy, uint32_t *ret_n);

/*
 * Return the bytes of host memory that there are for this process: the machine's memory, or the
 * least memory.max of the process's cgroups if that is less.
 */
uint64_t config_host_memory(void);

/*
 * Return the bytes of host memory that all tenants together may have, of which a tenant's host-max
 * is a part: the value in @options, or three quarters of config_host_memory().
 */
uint64_t config_host_max(const struct options *options);
