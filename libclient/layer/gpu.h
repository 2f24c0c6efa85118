#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The leases of this process, one for each device that it uses
 *
 * A device is identified by Vulkan's deviceUUID, whichever instances and devices of Vulkan the
 * process makes of it. A fork()ed child inherits no lease: a device that the child makes gets its
 * own connection and leases; an inherited device allocates no more.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/layer/account.h"
#include "libclient/layer/timeslice.h"

struct rbk_lease;
struct rbk_lease_use;

enum { GPU_MAX_HEAPS = 16, GPU_UUID_BYTES = 16 };

enum gpu_state {
	GPU_WITHOUT, /* no lease was granted */
	GPU_LEASED,
	GPU_FOREIGN, /* CPU renderer beside the broker's card: needs no lease */
};

/*
 * Identity of a device. A program of Vulkan 1.0 gets no UUID; the name then identifies the device.
 */
struct gpu_identity {
	bool has_uuid;
	bool is_cpu; /* a CPU renderer */
	uint8_t uuid[GPU_UUID_BYTES];
	char name[256]; /* VkPhysicalDeviceProperties.deviceName */
};

struct gpu {
	struct account account; /* the lease's credit */
	/* atomic: bytes allocated and imported, by heap */
	uint64_t live_bytes[GPU_MAX_HEAPS];
	/* atomic: part of live_bytes imported again, or exported to this process, by heap */
	uint64_t twice_bytes[GPU_MAX_HEAPS];
	uint64_t n_allocated;   /* atomic: number of allocations so far */
	uint64_t n_freed;       /* atomic: number of these that were freed */
	uint64_t kept_bytes;    /* atomic: bytes freed, but kept by descriptors */
	uint64_t peak_bytes;    /* atomic: peak of used + extra bytes since the last report */
	uint64_t told_bytes;    /* atomic: used + extra bytes at the last report */
	uint64_t movable_bytes; /* atomic: bytes that can be moved or were, see mover.h */
	uint64_t moved_bytes;   /* atomic: of these, bytes that are in host memory */
	uint64_t told_movable_bytes, told_moved_bytes; /* atomic: as the broker knows them */
	pthread_mutex_t moved_lock;                    /* held while they are told */
	uint32_t is_cut; /* atomic: the broker has ended, and the lease was not restored yet */

	uint32_t is_ours; /* 0 in a fork()ed child */
	struct gpu_identity identity;
	uint32_t local_heaps; /* atomic: bits of the device-local heaps */
	uint32_t n_devices;   /* atomic: number of VkDevices */
	enum gpu_state state; /* atomic */
	struct gpu *next;
	struct timeslice timeslice; /* private to timeslice.c */

	/* private to gpu.c */
	struct rbk_lease *lease;
	uint64_t connection; /* number of the lease's connection, counted from 1 */
	uint64_t retry_at_ns;
	bool is_unanswered; /* the last request to the broker timed out */
	bool has_waited;    /* the lease was waited for in vain up to the limit */
	char error[512];    /* reason why there is no lease */

	/*
	 * private to objects.c; the lock is held during requests to the broker, but never during
	 * calls of Vulkan
	 */
	pthread_mutex_t objects_lock;
	struct object *objects;
	uint64_t n_kept;      /* atomic: number of objects kept only by descriptors */
	uint64_t sweep_at_ns; /* atomic */
};

/*
 * Find or make the device of @identity, and open its lease if it has none. A failed attempt is
 * repeated at most once a second, or at any call with @insist unless the broker did not answer. May
 * send requests to the broker. Waits for room in only one attempt.
 * Return: the device, which is never freed; NULL without memory.
 */
struct gpu *gpu_get(const struct gpu_identity *identity, bool insist);

/* Return true if the device belongs to this process and was not inherited. */
static inline bool gpu_is_ours(const struct gpu *gpu)
{
	return gpu->is_ours;
}

static inline enum gpu_state gpu_state(const struct gpu *gpu)
{
	return __atomic_load_n(&gpu->state, __ATOMIC_ACQUIRE);
}

/*
 * Report the current use to the broker, as each request for credit does. Does nothing while the
 * leases move to another connection. Does not wait.
 */
void gpu_report(struct gpu *gpu);
/* Report how much memory can be moved and was (mover.h), if that has changed. As gpu_report(). */
void gpu_report_moved(struct gpu *gpu);

/* ---- gpu-use.c ---- */

/* Return the bytes in use: each byte of the device's own memory once. */
uint64_t gpu_used_bytes(const struct gpu *gpu);

/* Record the current use as a possible peak. Call before the use falls. */
void gpu_note_peak(struct gpu *gpu);

/* Describe the current use for the broker. */
void gpu_describe_use(struct gpu *gpu, struct rbk_lease_use *ret);
/* Record that the broker knows @use, and begin a new peak. */
void gpu_note_told(struct gpu *gpu, const struct rbk_lease_use *use);
/* Return true if the broker knows the current use and its peak. */
bool gpu_is_told(const struct gpu *gpu);

/*
 * Set the bytes of device memory that the driver reports for this process, allocations included.
 * The difference to the counted bytes is charged as driver overhead.
 */
void gpu_set_driver_bytes(struct gpu *gpu, uint64_t bytes);
