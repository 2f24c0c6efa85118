#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The policy file: what administrators write about tenants
 *
 * An ini file in the style of systemd units, and drop-ins in a folder beside it, read in the order
 * of their names. Read as a whole and checked as a whole: policy_load() gives a complete policy or
 * sentences that say what is wrong where. Immutable once made. Any thread. brokerd.conf(5) says
 * what each key means:
 *
 *	[broker]
 *	vram-headroom = 5%
 *
 *	[tenant web]
 *	match-uid = www-data, 1001
 *	match-gid = web
 *	match-cgroup = /system.slice/web-*.service
 *	match-exe = /usr/bin/imgd
 *	vram-max = 2GiB
 *	vram-reserve = 512MiB
 *	vram-high = 75%
 *
 * shm/policy-keys.h lists the keys of tenants. A section "tenant default" is for who matches no
 * other; it has no match keys. Without a file there is only this one, with the defaults of
 * policy_defaults().
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
	POLICY_E_UNKNOWN = 2, /* there is no such key */
	POLICY_MAX_TENANTS = 1024,
	POLICY_WANTED_BYTES = 160,
};

#define POLICY_HEADROOM_KEY "vram-headroom" /* the key of [broker] that is read here */

/* A size as people write it. */
struct policy_size {
	bool is_percent;
	uint64_t value; /* bytes, or hundredths of a percent */
};

/* What becomes of processes that use more of a device's memory than leases allow: see audit.h. */
enum policy_audit {
	POLICY_AUDIT_OFF,
	POLICY_AUDIT_WARN,     /* the log names them */
	POLICY_AUDIT_PRIORITY, /* and their tenant comes after others meanwhile */
	POLICY_AUDIT_STOP,     /* or they are ended */
	POLICY_AUDIT_COUNT,
};

/* What a section says about a tenant; every key that is absent has its default. */
struct tenant_policy {
	char name[ACCOUNT_NAME_BYTES];
	struct policy_size vram_max, vram_reserve, vram_high, gtt_max, host_max;
	uint32_t weight;      /* 1..10000 */
	float cpu_max;        /* processors' worth of CPU time; 0: no quota */
	uint8_t priority_max; /* enum rbk_priority, whose numbers are not in order */
	uint64_t sessions_max, arenas_max, arena_bytes_max, plans_max, tasks_max;
	uint8_t lease_audit;      /* enum policy_audit */
	uint8_t lease_required;   /* 0 or 1: programs that use a device themselves need leases */
	uint64_t lease_tolerance; /* bytes of each process that its driver may need besides */
};

/* Kinds of match keys; a higher one is more specific. */
enum {
	POLICY_MATCH_GID = 1 << 0,
	POLICY_MATCH_UID = 1 << 1,
	POLICY_MATCH_CGROUP = 1 << 2,
	POLICY_MATCH_EXE = 1 << 3,
};

/* The identity of a client, as the kernel reports it. */
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

/* Who reads the keys of [broker] that are not this room's. */
struct policy_broker_keys {
	/*
	 * Return: 0; POLICY_E_INVALID, with what is allowed in @ret_wanted: "a size such as
	 * 64MiB"; POLICY_E_UNKNOWN, with the key there that may have been meant, or nothing.
	 */
	int (*read)(void *context, const char *key, const char *value,
		    char ret_wanted[POLICY_WANTED_BYTES]);
	void *context;
};

/*
 * Reads @path and every *.conf in @path's folder tenants.d. A missing file or folder is as an empty
 * one unless @is_required. Keys of [broker] go to @keys; NULL: there are no others.
 * Looks up users and groups, which may take as long as the system's name service likes.
 * Return: 0; POLICY_E_INVALID, with sentences in *ret_errors ("FILE:LINE: KEY: what is wrong; what
 * is allowed", one a line, each with a line break, to be freed); negative errno.
 */
int policy_load(const char *path, bool is_required, const struct policy_broker_keys *keys,
		struct policy **ret, char **ret_errors);
/* What there is without any file. Return: 0 or negative errno. */
int policy_defaults(struct policy **ret);
struct policy *policy_free(struct policy *policy);

/* POLICY_MATCH_* that some section asks for; the rest of a peer need not be known. */
uint32_t policy_match_kinds(const struct policy *policy);

/* POLICY_MATCH_* of one section: all have to match. 0: of who matches no other. */
uint32_t policy_tenant_kinds(const struct policy *policy, uint32_t index);

/* What stays free of each device. */
struct policy_size policy_headroom(const struct policy *policy);
uint32_t policy_n_tenants(const struct policy *policy);
/* Tenant 0 is the default one; the others are in the order of the files. Borrowed. */
const struct tenant_policy *policy_tenant(const struct policy *policy, uint32_t index);

/*
 * Which tenant a client belongs to: the section that matches most specifically. More kinds of keys
 * beat fewer; of as many, executable beats cgroup beats uid beats gid; of two cgroup patterns, the
 * one with more literal characters; else the earlier in the files.
 * Return: an index for policy_tenant().
 */
uint32_t policy_match(const struct policy *policy, const struct peer *peer);

/*
 * The keys of [broker] that somebody else has read, to show or compare them.
 * Return: how many; the @index-th. Borrowed.
 */
uint32_t policy_n_settings(const struct policy *policy);
void policy_setting(const struct policy *policy, uint32_t index, const char **ret_key,
		    const char **ret_value);

/*
 * A tenant in one line: "NAME: match-uid = 33; vram-max = 2GiB; ...", every limit, with @host_bytes
 * what percentages of host memory are of. Return: to be freed; NULL: out of memory.
 */
char *policy_describe(const struct policy *policy, uint32_t index, uint64_t host_bytes);

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
