#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tenants: who a session belongs to, and what it may have
 *
 * A tenant is a section of the policy file come to life: an account in the ledger, and shares of
 * each device. Tenants live from the first policy that names them until a later one does not and
 * their last session has ended; a reload changes the limits of those that stay and moves no
 * session. Reactor thread only.
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

/* Totals of a tenant's ended sessions, since start. */
struct tenant_past {
	uint64_t n_completed; /* tasks */
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t n_ended_hostile; /* of these sessions, those that broke a rule */
};

/* A tenant's share of one device's VRAM, in bytes. */
struct tenant_share {
	uint64_t max;     /* never more */
	uint64_t reserve; /* never denied, whatever others do */
	uint64_t high;    /* above it, evicted first */
};

struct tenant {
	struct list_node link;   /* in tenants */
	struct tenants *tenants; /* once it has a number, by which it is */
	struct tenant *next;     /* in one of their buckets */
	struct account *account; /* its name is the tenant's */
	struct tenant_share shares[RBK_MAX_DEVICES];
	uint32_t weight;      /* 1..10000 */
	float cpu_max;        /* processors' worth of CPU time; 0: no quota */
	uint8_t priority_max; /* enum rbk_priority */
	uint32_t number;      /* never 0, never reused */
	uint32_t n_refs;
	struct list_node overrides; /* see override.c */
	bool is_named;              /* by the policy in force */
	bool is_drained;            /* an administrator wants no new work of it */
	bool is_changed;            /* or gave it limits beside the policy's */
	uint8_t lease_audit;        /* enum policy_audit */
	bool is_lease_required;     /* of its programs that use a device themselves */
	bool is_lowered;            /* weight and priority_max are, see tenant_set_lowered() */
	uint32_t full_weight;       /* what they are otherwise */
	uint8_t full_priority_max;
	uint64_t lease_tolerance; /* bytes of each process */
	struct tenant_past past;  /* the sessions' */

	struct fair_flow setup; /* its turns on the setup thread, and the time that these took */
	struct list_node
		checks;   /* plans that wait to be verified, oldest first; session-plan.c's */
	bool is_checking; /* one that left the list is being verified; likewise */

	/*
	 * Records of other rooms, each made by its room with the first that the tenant has there,
	 * and freed with the tenant; NULL: there was none yet.
	 */
	struct tenant_memory *memory; /* residency's */
	struct tenant_leases *leases; /* see lease.h */
};

/*
 * Sizes of what percentages are of; device 0 is the CPU and has no memory of its own. What the
 * process can have of descriptors, mappings and inotify watches is divided among the tenants of the
 * policy; n_watches 0: it is not known, and not limited.
 */
struct tenants_machine {
	uint64_t host_bytes;
	uint64_t vram_bytes[RBK_MAX_DEVICES];
	uint64_t gtt_bytes[RBK_MAX_DEVICES];
	uint32_t n_devices;
	uint64_t n_fds, n_mappings, n_watches;
};

/*
 * @machine is copied. Takes over @policy on success.
 * Return: 0; POLICY_E_INVALID if the reserves do not fit (*ret_errors as in policy.h); errno.
 */
int tenants_new(struct account_book *book, const struct tenants_machine *machine,
		struct policy *policy, struct tenants **ret, char **ret_errors);
/* No tenant may be referred to. Return: NULL. */
struct tenants *tenants_free(struct tenants *tenants);

/* As tenants_new(), for a policy that replaces the one in force; on failure nothing changed. */
int tenants_reload(struct tenants *tenants, struct policy *policy, char **ret_errors);

/*
 * Gives a tenant that the policy names another value for a key of its section, in its words, until
 * tenants_reload() finds that the file has changed it; "default" is what the file says. On failure
 * nothing changed.
 * Return: 0; POLICY_E_INVALID, with a sentence in *ret_errors, to be freed; negative errno.
 */
int tenants_set(struct tenants *tenants, struct tenant *tenant, const char *key, const char *value,
		char **ret_errors);

struct account_book *tenants_book(const struct tenants *tenants);
const struct policy *tenants_policy(const struct tenants *tenants);
/* Where charges go that no client made: what drivers take for themselves. Borrowed. */
struct account *tenants_broker_account(struct tenants *tenants);
/* What all tenants together are charged for on a device; what its driver takes is not theirs. */
uint64_t tenants_device_bytes(const struct tenants *tenants, uint32_t device);

/* The tenant of a client, with a reference; never NULL. */
struct tenant *tenants_find(struct tenants *tenants, const struct peer *peer);
struct tenant *tenant_ref(struct tenant *tenant);
/* Return: NULL. */
struct tenant *tenant_unref(struct tenant *tenant);

/*
 * Has its tasks come after others', or no longer: a tenth of its weight, and the lowest class.
 * Nobody is told.
 */
void tenant_set_lowered(struct tenant *tenant, bool is_lowered);

const char *tenant_name(const struct tenant *tenant);

/* By the policy in force, is this the tenant of whoever is in certain cgroups, and of nobody else?
 */
bool tenants_is_cgroup(const struct tenants *tenants, const struct tenant *tenant);

/*
 * Whose constants these are (struct exec_arena.owner): two users of one tenant share a budget, but
 * neither memory nor the knowledge that the other has the same bytes.
 */
static inline uint64_t tenant_owner(const struct tenant *tenant, uid_t uid)
{
	return (uint64_t)tenant->number << 32 | (uint32_t)uid;
}

/* The tenant of that number; NULL: there is none. */
struct tenant *tenants_get(const struct tenants *tenants, uint32_t number);
/* The first tenant, the one after @tenant; NULL: none. In no particular order. */
struct tenant *tenants_first(const struct tenants *tenants);
struct tenant *tenants_next(const struct tenants *tenants, const struct tenant *tenant);

DEFINE_CLEANUP(struct tenants *, tenants_free)
DEFINE_CLEANUP(struct tenant *, tenant_unref)
