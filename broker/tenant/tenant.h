#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tenants: the owners of sessions, with their limits
 *
 * A tenant is the runtime object of a section of the policy file: an account in the ledger, and
 * shares of each device. A tenant lives from the first policy that names it until a later policy
 * does not and its last session has ended. A reload changes the limits of tenants that stay;
 * sessions keep their tenant. Reactor thread only.
 */
#include <stdbool.h>
#include <stdint.h>

#include "tenant/account.h"
#include "tenant/policy.h"
#include "util/cleanup.h"
#include "util/fair.h"
#include "util/list.h"

struct tenant_leases;
struct tenant_memory;
struct tenants;

enum { TENANT_VALUE_BYTES = 96 };

/* Totals over a tenant's ended sessions, since the broker's start. */
struct tenant_past {
	uint64_t n_completed; /* tasks */
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t n_ended_hostile; /* sessions ended for breaking a rule */
};

/* A tenant's share of one device's VRAM, in bytes. */
struct tenant_share {
	uint64_t max;     /* never exceeded */
	uint64_t reserve; /* never denied */
	uint64_t high;    /* plans of tenants above it are evicted first */
};

struct tenant {
	struct list_node link;   /* in tenants.list */
	struct tenants *tenants; /* set with the number */
	struct tenant *next;     /* in the same bucket of tenants->buckets */
	struct account *account; /* named like the tenant */
	struct tenant_share shares[RBK_MAX_DEVICES];
	uint32_t weight;      /* 1..10000 */
	float cpu_max;        /* processors' worth of CPU time; 0: unlimited */
	uint8_t priority_max; /* enum rbk_priority */
	uint32_t number;      /* never 0, never reused */
	uint32_t n_refs;
	struct list_node overrides; /* see override.c */
	bool is_named;              /* the policy in force names the tenant */
	bool is_drained;            /* an administrator drains the tenant: no new work */
	bool is_emptied;            /* drained without tasks: its plans leave the devices */
	bool is_changed;            /* @overrides is not empty */
	uint8_t lease_audit;        /* enum policy_audit */
	bool is_lease_required;     /* programs that use a device by themselves need leases */
	bool is_lowered;      /* weight and priority_max are lowered; see tenant_set_lowered() */
	uint32_t full_weight; /* weight when not lowered */
	uint8_t full_priority_max;
	uint64_t lease_tolerance; /* bytes for each process */
	/* of leased programs that name none, see struct tenant_policy */
	uint8_t exec_priority;
	uint64_t exec_max_part_ns;
	struct tenant_past past; /* totals of ended sessions */

	struct fair_flow setup;  /* turns and time used on the setup thread */
	struct list_node checks; /* plans waiting for verification, oldest first (session-plan.c) */
	bool is_checking;        /* a plan taken from checks is being verified */

	/*
	 * Records of other rooms. A room allocates its record on the tenant's first use of it;
	 * NULL: not used yet. tenant_free() frees them.
	 */
	struct tenant_memory *memory; /* residency's record */
	struct tenant_leases *leases; /* lease.h */
};

/*
 * Totals to which the policy's percentages apply. Device 0 is the CPU and has no memory of its own.
 * The process's limits of descriptors, mappings and inotify watches are divided among the tenants
 * of the policy. n_watches 0: the limit is unknown, and watches are unlimited.
 */
struct tenants_machine {
	uint64_t host_bytes;
	uint64_t vram_bytes[RBK_MAX_DEVICES];
	uint64_t gtt_bytes[RBK_MAX_DEVICES];
	uint32_t n_devices;
	uint64_t n_fds, n_mappings, n_watches;
};

/*
 * Create the tenants of @policy. @machine is copied. @policy belongs to the tenants on success.
 * Return: 0; POLICY_E_INVALID: the reserves do not fit (*ret_errors as in policy.h); a negative
 * errno.
 */
int tenants_new(struct account_book *book, const struct tenants_machine *machine,
		struct policy *policy, struct tenants **ret, struct policy_errors *ret_errors);
/* Free the tenants, none of which may have a reference. Return: NULL. */
struct tenants *tenants_free(struct tenants *tenants);

/*
 * Replace the policy in force, with the ownership and return values of tenants_new(). On failure
 * nothing changes.
 */
int tenants_reload(struct tenants *tenants, struct policy *policy,
		   struct policy_errors *ret_errors);

/*
 * Override a key of a tenant's section with @value, written as in the file. The override lasts
 * until tenants_reload() finds that the file's value changed. The value "default" removes the
 * override. On failure nothing changes.
 * Return: 0; POLICY_E_INVALID: a sentence is in *ret_errors, to be freed; a negative errno.
 */
int tenants_set(struct tenants *tenants, struct tenant *tenant, const char *key, const char *value,
		char **ret_errors);

/* The value of a key that tenants_set() can change. */
struct tenant_key {
	const char *name;
	char value[TENANT_VALUE_BYTES];        /* in force, written as in the file */
	char policy_value[TENANT_VALUE_BYTES]; /* without an override */
	bool is_changed;                       /* by tenants_set() */
};
/* Return the number of these keys. */
uint32_t tenants_n_keys(void);
/*
 * Describe key @index of a tenant.
 * Return: false if there is no such key, the policy does not name the tenant, or out of memory.
 */
bool tenants_key(const struct tenants *tenants, const struct tenant *tenant, uint32_t index,
		 struct tenant_key *ret);

/*
 * Return a note on the value in force of a tenant's key, if the machine limits the tenant to less:
 * "above the 8 GiB of device 1, ...". NULL: there is none, or no memory. To be freed.
 */
char *tenants_note(const struct tenants *tenants, const struct tenant *tenant, const char *key);

struct account_book *tenants_book(const struct tenants *tenants);
const struct policy *tenants_policy(const struct tenants *tenants);
/* Return the account for charges that no client caused, such as driver overhead. Borrowed. */
struct account *tenants_broker_account(struct tenants *tenants);
/*
 * Return the bytes of a device (VRAM and GTT) charged to all tenants together, without the broker's
 * account.
 */
uint64_t tenants_device_bytes(const struct tenants *tenants, uint32_t device);

/* Return the tenant of a client, with a reference; never NULL. */
struct tenant *tenants_find(struct tenants *tenants, const struct peer *peer);
struct tenant *tenant_ref(struct tenant *tenant);
/* Drop a reference. Return: NULL. */
struct tenant *tenant_unref(struct tenant *tenant);

/*
 * Lower a tenant's weight to a tenth and its highest priority to RBK_PRIORITY_LOW, or restore both.
 * Clients are not notified.
 */
void tenant_set_lowered(struct tenant *tenant, bool is_lowered);

const char *tenant_name(const struct tenant *tenant);

/* Return true if the policy in force matches this tenant by cgroup alone. */
bool tenants_is_cgroup(const struct tenants *tenants, const struct tenant *tenant);

/*
 * Return the owner of a user's constants (struct exec_arena.owner). Two users of one tenant share a
 * budget, but no memory. Neither can learn that the other has the same bytes.
 */
static inline uint64_t tenant_owner(const struct tenant *tenant, uid_t uid)
{
	return (uint64_t)tenant->number << 32 | (uint32_t)uid;
}

/* Return the tenant with this number, or NULL. */
struct tenant *tenants_get(const struct tenants *tenants, uint32_t number);
/* Iterate over the tenants, in no particular order. NULL: no further tenant. */
struct tenant *tenants_first(const struct tenants *tenants);
struct tenant *tenants_next(const struct tenants *tenants, const struct tenant *tenant);

DEFINE_CLEANUP(struct tenants *, tenants_free)
DEFINE_CLEANUP(struct tenant *, tenant_unref)
