#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The policy file: what administrators write about tenants
 *
 * An ini file in the style of systemd units, and drop-ins in a folder beside it, read in the order
 * of their names. Read as a whole and checked as a whole: policy_load() gives a complete policy or
 * sentences that say what is wrong where. Immutable once made. Any thread.
 *
 *   [broker]                     # once, in the main file
 *   vram-headroom = 5%           # of each device, left free; default 5%
 *
 *   [tenant web]                 # names: letters, digits, '-', '_', '.', at most 40; "broker" is
 *                                # taken
 *   match-uid = www-data, 1001   # each key matches any of its values; all keys of a section must
 *   match-gid = web              # match; supplementary groups count
 *   match-cgroup = /system.slice/web-*.service      # anchored; '*' within one component, and a
 *                                                   # '**' component for any number of them
 *   match-exe = /usr/bin/imgd    # compared by device and inode; grants no reserve
 *   vram-max = 2GiB              # hard; sizes in bytes, KiB, MiB, GiB, or % of the device's
 *   vram-reserve = 512MiB        # total; default 100%, 0, vram-max
 *   vram-high = 75%              # above it, evicted first
 *   gtt-max, host-max            # bytes in GTT; host bytes: default 50%, 75% of memory
 *   weight = 100                 # 1..10000
 *   priority-max = urgent        # low, normal, high, urgent
 *   sessions-max, arenas-max, arena-bytes-max, plans-max, tasks-max
 *
 * A section "tenant default" is for who matches no other; it has no match keys. Without a file
 * there is only this one, with the defaults of policy_defaults().
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ringbroker/abi.h>

#include "tenant/account.h"
#include "util/cleanup.h"

struct policy;

enum {
	POLICY_E_INVALID = 1, /* sentences say what is wrong */
	POLICY_MAX_TENANTS = 256,
};

/* A size as people write it. */
struct policy_size {
	bool is_percent;
	uint64_t value; /* bytes, or hundredths of a percent */
};

/* What a section says about a tenant; every key that is absent has its default. */
struct tenant_policy {
	char name[ACCOUNT_NAME_BYTES];
	struct policy_size vram_max, vram_reserve, vram_high, gtt_max, host_max;
	uint32_t weight;
	uint8_t priority_max; /* enum rbk_priority */
	uint64_t sessions_max, arenas_max, arena_bytes_max, plans_max, tasks_max;
	bool matches_exe; /* by executable: no reserve counts */
};

/* Who a client is, by the kernel's word. */
struct peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	const gid_t *groups; /* supplementary */
	uint32_t n_groups;
	const char *cgroup; /* path in the unified hierarchy; NULL: unknown */
	bool has_exe;       /* its executable could be looked at */
	dev_t exe_dev;
	ino_t exe_ino;
};

/*
 * Reads @path and every *.conf in @path's folder tenants.d. A missing file or folder is as an empty
 * one unless @is_required.
 * Return: 0; POLICY_E_INVALID, with sentences in *ret_errors ("FILE:LINE: KEY: what is wrong, what
 * is allowed", one a line, to be freed); negative errno.
 */
int policy_load(const char *path, bool is_required, struct policy **ret, char **ret_errors);
/* What there is without any file. Return: 0 or negative errno. */
int policy_defaults(struct policy **ret);
struct policy *policy_free(struct policy *policy);

/* Hundredths of a percent of each device that stay free. */
struct policy_size policy_headroom(const struct policy *policy);
uint32_t policy_n_tenants(const struct policy *policy);
/* Tenant 0 is the default one. */
const struct tenant_policy *policy_tenant(const struct policy *policy, uint32_t index);

/*
 * Which tenant a client belongs to: the section that matches most specifically. More kinds of keys
 * beat fewer; of as many, executable beats cgroup beats uid beats gid; of two cgroup patterns, the
 * one with more literal characters; else the earlier in the files.
 * Return: an index for policy_tenant().
 */
uint32_t policy_match(const struct policy *policy, const struct peer *peer);

/* @size of @total_bytes. */
uint64_t policy_size_bytes(struct policy_size size, uint64_t total_bytes);

/*
 * Do the sums of reserves fit into devices of these sizes, headroom left free? Sizes in bytes, a
 * device without memory of its own 0.
 * Return: 0; POLICY_E_INVALID, with a sentence in *ret_errors as above.
 */
int policy_check_devices(const struct policy *policy, const uint64_t *device_bytes,
			 uint32_t n_devices, char **ret_errors);

DEFINE_CLEANUP(struct policy *, policy_free)
