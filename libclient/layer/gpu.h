#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The leases of this process, one of each device that it uses
 *
 * A device is what Vulkan's deviceUUID names, whichever instances and devices of Vulkan the process
 * makes of it. All of it is gone in a fork()ed child: a device that the child makes itself gets it
 * a connection and leases of its own; one that it has inherited allocates no more.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/layer/account.h"

struct rbk_lease;
struct rbk_lease_use;

enum { GPU_MAX_HEAPS = 16, GPU_UUID_BYTES = 16 };

enum gpu_state {
	GPU_WITHOUT, /* no lease could be had */
	GPU_LEASED,
	GPU_FOREIGN, /* a renderer on the processor, beside the broker's card: not held to any */
};

/* Which device it is. A program of Vulkan 1.0 gets no UUID: then it is the name that counts. */
struct gpu_identity {
	bool has_uuid;
	bool is_cpu; /* a renderer on the processor */
	uint8_t uuid[GPU_UUID_BYTES];
	char name[256]; /* VkPhysicalDeviceProperties.deviceName */
};

struct gpu {
	struct account account; /* of a lease */
	/* Atomic, of all heaps: allocated and imported; */
	uint64_t live_bytes[GPU_MAX_HEAPS];
	/* of that imported once more, or exported to this very process. */
	uint64_t twice_bytes[GPU_MAX_HEAPS];
	uint64_t n_allocated; /* atomic: allocations so far, */
	uint64_t n_freed;     /* and of them freed */
	uint64_t kept_bytes;  /* atomic: freed, but there are descriptors of it */
	uint64_t peak_bytes;  /* atomic: the most of all that since the broker was told */
	uint64_t told_bytes;  /* atomic: how much of all that was in use then */

	uint32_t is_ours; /* 0 in a fork()ed child */
	struct gpu_identity identity;
	uint32_t local_heaps; /* atomic; bits: those that are the device's own memory */
	uint32_t n_devices;   /* atomic: VkDevice of it */
	enum gpu_state state; /* atomic */
	struct gpu *next;

	/* gpu.c's */
	struct rbk_lease *lease;
	uint64_t connection; /* of which the lease is, counted from 1 */
	uint64_t retry_at_ns;
	bool is_unanswered; /* the broker did not answer when it was asked last */
	bool has_waited;    /* for room, as long as it may, in vain */
	char error[512];    /* why there is none */

	/* objects.c's; the lock is held for requests to the broker, but never for Vulkan. */
	pthread_mutex_t objects_lock;
	struct object *objects;
	uint64_t n_kept;      /* atomic: objects that only descriptors have */
	uint64_t sweep_at_ns; /* atomic */
};

/*
 * The device of that identity, with a lease of it if one can be had; where it could not, that is
 * tried again not more often than once a second, but always if @insist and the broker answers. Asks
 * the broker. Room is waited for once.
 * Return: it, for ever; NULL without memory.
 */
struct gpu *gpu_get(const struct gpu_identity *identity, bool insist);

/* Is it of this process, not inherited? */
static inline bool gpu_is_ours(const struct gpu *gpu)
{
	return gpu->is_ours;
}

static inline enum gpu_state gpu_state(const struct gpu *gpu)
{
	return __atomic_load_n(&gpu->state, __ATOMIC_ACQUIRE);
}

/* Tells the broker what is used, as each request for credit does, unless leases are moving. Does
 * not wait. */
void gpu_report(struct gpu *gpu);

/* ---- gpu-use.c ---- */

/* What counts: each byte of the device's own memory once. */
uint64_t gpu_used_bytes(const struct gpu *gpu);

/* Before it is less: what it is now may have been the most. */
void gpu_note_peak(struct gpu *gpu);

/* Describe what is used now, for the broker. */
void gpu_describe_use(struct gpu *gpu, struct rbk_lease_use *ret);
/* Note that the broker knows @use: the next peak is one of what comes now. */
void gpu_note_told(struct gpu *gpu, const struct rbk_lease_use *use);
/* Return: true if the broker knows what is used, and the most that was. */
bool gpu_is_told(const struct gpu *gpu);

/*
 * What the driver says that the process has of the device's own memory, all allocations included:
 * what is beside them is charged, too.
 */
void gpu_set_driver_bytes(struct gpu *gpu, uint64_t bytes);
