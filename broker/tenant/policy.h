#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The policy file: the administrator's settings for tenants
 *
 * The policy is an ini file in the style of systemd units, with drop-ins in a folder beside it that
 * are read in the order of their names. policy_load() reads and checks everything, and returns a
 * complete policy or sentences that say what is wrong where. A policy is immutable. Any thread.
 * brokerd.conf(5) describes the keys:
 *
 *   [broker]
 *   vram-headroom = 5%
 *
 *   [tenant web]
 *   match-uid = www-data, 1001
 *   match-gid = web
 *   match-cgroup = /system.slice/web-*.service
 *   match-exe = /usr/bin/imgd
 *   vram-max = 2GiB
 *   vram-reserve = 512MiB
 *   vram-high = 75%
 *
 * shm/policy-keys.h lists the keys of tenants. The section "tenant default" has no match keys and
 * takes the clients that match no other section. Without a file this section is the only one, with
 * the values of policy_defaults().
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ringbroker/abi.h>

#include "tenant/account.h"
#include "util/cleanup.h"

struct policy;

enum {
	POLICY_E_INVALID = 1, /* *ret_errors says what is wrong */
	POLICY_E_UNKNOWN = 2, /* no such key */
	POLICY_MAX_TENANTS = 1024,
	POLICY_WANTED_BYTES = 160,
};

#define POLICY_HEADROOM_KEY "vram-headroom" /* the key of [broker] that this room reads */

/* A size, as written in the file. */
struct policy_size {
	bool is_percent;
	uint64_t value; /* bytes, or hundredths of a percent */
};

/* Action on processes that use more device memory than their leases allow; see audit.h. */
enum policy_audit {
	POLICY_AUDIT_OFF,
	POLICY_AUDIT_WARN,     /* log the processes */
	POLICY_AUDIT_PRIORITY, /* WARN, and lower the tenant meanwhile: tenant_set_lowered() */
	POLICY_AUDIT_STOP,     /* end the processes */
	POLICY_AUDIT_COUNT,
};

/* A tenant's section; absent keys have their defaults. */
struct tenant_policy {
	char name[ACCOUNT_NAME_BYTES];
	struct policy_size vram_max, vram_reserve, vram_high, gtt_max, host_max;
	uint32_t weight;      /* 1..10000 */
	float cpu_max;        /* processors' worth of CPU time; 0: unlimited */
	uint8_t priority_max; /* enum rbk_priority; its values are not in order */
	uint64_t sessions_max, arenas_max, arena_bytes_max, plans_max, tasks_max;
	uint8_t lease_audit;      /* enum policy_audit */
	uint8_t lease_required;   /* 0 or 1: programs that use a device by themselves need leases */
	uint64_t lease_tolerance; /* bytes of driver overhead allowed to each process */
	/* for leased programs that name none: 1 + enum rbk_priority, 0: they do not share devices
	 */
	uint8_t exec_priority;
	uint64_t exec_max_part_ns; /* longest part of their command buffers; 0: not given */
};

/* Kinds of match keys, as bits; a higher bit is more specific. */
enum {
	POLICY_MATCH_GID = 1 << 0,
	POLICY_MATCH_UID = 1 << 1,
	POLICY_MATCH_CGROUP = 1 << 2,
	POLICY_MATCH_EXE = 1 << 3,
};

/* Identity of a client, as the kernel reports it. */
struct peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	const gid_t *groups; /* supplementary */
	uint32_t n_groups;
	const char *cgroup; /* path in the unified hierarchy; NULL: unknown */
	bool has_exe;       /* exe_dev and exe_ino are known */
	dev_t exe_dev;
	ino_t exe_ino;
};

/* Reader of the keys of [broker] that other rooms own. */
struct policy_broker_keys {
	/*
	 * Return: 0; POLICY_E_INVALID: @ret_wanted says what is allowed, "a size such as 64MiB";
	 * POLICY_E_UNKNOWN: @ret_wanted names a similar key or is empty.
	 */
	int (*read)(void *context, const char *key, const char *value,
		    char ret_wanted[POLICY_WANTED_BYTES]);
	void *context;
};

/*
 * Sentences about a policy that was refused, one a line, each with a line break. Zeroed: none.
 */
struct policy_errors {
	char *text;     /* "FILE:LINE: KEY: what is wrong; what is allowed"; NULL: none */
	char *warnings; /* as policy_warnings(), but owned; NULL: none */
	uint32_t n;     /* number of errors, more than the text has if it ends in "and N more" */
};

/* Free the sentences, and leave none. */
void policy_errors_deinit(struct policy_errors *errors);

/*
 * Read @path and all *.conf in the folder tenants.d beside it. A missing file or folder counts as
 * empty unless @is_required. @keys reads the other keys of [broker]; NULL: no other keys exist. The
 * lookup of users and groups may block for as long as the name service takes.
 * Return: 0; POLICY_E_INVALID: *ret_errors has the errors and warnings, to be freed; a negative
 * errno.
 */
int policy_load(const char *path, bool is_required, const struct policy_broker_keys *keys,
		struct policy **ret, struct policy_errors *ret_errors);
/* Return the number of files that policy_load() read, and the path of one, borrowed. */
uint32_t policy_n_files(const struct policy *policy);
const char *policy_file(const struct policy *policy, uint32_t index);
/*
 * Return sentences about what is allowed in the files but probably not meant, one a line, in the
 * form of errors: comments that are part of values, tenants that match the same clients. Borrowed;
 * NULL: none.
 */
const char *policy_warnings(const struct policy *policy);
/* Create the policy that applies without a file. Return: 0, or a negative errno. */
int policy_defaults(struct policy **ret);
struct policy *policy_free(struct policy *policy);

/* Return the POLICY_MATCH_* kinds that any section uses; the rest of a peer need not be known. */
uint32_t policy_match_kinds(const struct policy *policy);

/*
 * Return the POLICY_MATCH_* kinds of one section, all of which must match; 0: the default section.
 */
uint32_t policy_tenant_kinds(const struct policy *policy, uint32_t index);

/* Return the memory to keep free on each device. */
struct policy_size policy_headroom(const struct policy *policy);
uint32_t policy_n_tenants(const struct policy *policy);
/*
 * Return a tenant's section, borrowed. Index 0 is the default tenant; the others follow the order
 * of the files.
 */
const struct tenant_policy *policy_tenant(const struct policy *policy, uint32_t index);

/*
 * Find the most specific section that matches a client. More kinds of keys beat fewer. With equally
 * many kinds, executable beats cgroup beats uid beats gid. Of two cgroup patterns, the one with
 * more literal characters wins; otherwise the earlier section does.
 * Return: an index for policy_tenant().
 */
uint32_t policy_match(const struct policy *policy, const struct peer *peer);

/*
 * Return the number of [broker] keys that @keys of policy_load() read, and the @index-th, to show
 * or compare them. Borrowed.
 */
uint32_t policy_n_settings(const struct policy *policy);
void policy_setting(const struct policy *policy, uint32_t index, const char **ret_key,
		    const char **ret_value);
/* Return "FILE:LINE" of such a key, borrowed; NULL if the files do not have it. */
const char *policy_setting_place(const struct policy *policy, const char *key);

/*
 * Describe a tenant in one line: "NAME: match-uid = 33; vram-max = 2GiB; ...". Percentages of host
 * memory are converted to bytes of @host_bytes.
 * Return: text to be freed; NULL: out of memory.
 */
char *policy_describe(const struct policy *policy, uint32_t index, uint64_t host_bytes);

/* Convert @size to bytes; percentages refer to @total_bytes. */
uint64_t policy_size_bytes(struct policy_size size, uint64_t total_bytes);

/*
 * Check that the sums of the reserves and the headroom fit into devices of these sizes in bytes. A
 * device without memory of its own has size 0.
 * Return: 0; POLICY_E_INVALID: *ret_errors has the errors, to be freed; -ENOMEM.
 */
int policy_check_devices(const struct policy *policy, const uint64_t *device_bytes,
			 uint32_t n_devices, struct policy_errors *ret_errors);

DEFINE_CLEANUP(struct policy *, policy_free)
