#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The simulated driver's state
 *
 * One sparse file, DIR/state, mapped by every process over the simulator and by the control
 * program. It holds what a kernel would hold in struct amdgpu_device, struct drm_file and struct
 * amdgpu_bo. Everything below is read and written with sim_lock() held, except where it says
 * otherwise.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_MAGIC        0x3130736d69736761ull
#define SIM_PATH_MAX     4096
#define SIM_PAGE_BYTES   4096u
#define SIM_MAX_CARDS    4u
#define SIM_MAX_CLIENTS  128u
#define SIM_MAX_OBJECTS  16384u
#define SIM_MAX_HANDLES  32768u
#define SIM_MAX_CONTEXTS 1024u
#define SIM_MAX_SYNCOBJS 16384u
#define SIM_MAX_BO_LISTS 1024u
#define SIM_MAX_FAILURES 16u
#define SIM_N_ENGINES    3u
/* Where in a descriptor an object is mapped: 1 TiB for each, so heaps are smaller than that. */
#define SIM_MMAP_SHIFT 40

/* drivers/gpu/drm/drm_drv.c: DRM_MAJOR; primary nodes from 0, render nodes from 128. */
#define SIM_DRM_MAJOR    226u
#define SIM_RENDER_MINOR 128u

/* A client's slot + 1 is the file offset of its descriptor; it holds a lock on LOCK + slot. */
#define SIM_LOCK_BASE (1ll << 61)

/* A failure that stays until it is taken back. */
#define SIM_FOREVER UINT32_MAX
/* Any query of an INFO, any sensor of a SENSOR query. */
#define SIM_ANY UINT32_MAX

/* Where an object's bytes are; the kernel's TTM_PL_*. */
enum sim_place {
	SIM_PLACE_CPU,  /* TTM_PL_SYSTEM: not bound to the GPU, counted nowhere */
	SIM_PLACE_GTT,  /* TTM_PL_TT */
	SIM_PLACE_VRAM, /* TTM_PL_VRAM */
	SIM_PLACE_CHIP, /* GDS, GWS, OA: on the chip, counted nowhere */
};

enum sim_object_kind {
	SIM_OBJECT_NONE,
	SIM_OBJECT_MEMORY,  /* its bytes are the file DIR/cardN-bo/ID */
	SIM_OBJECT_USERPTR, /* a process's own pages */
	SIM_OBJECT_IMPORT,  /* a dma-buf of somebody else */
};

/* Which keys fdinfo has, which sensors there are, whether spilled buffers come back. */
enum sim_kernel {
	SIM_KERNEL_6_1,  /* Debian 12's */
	SIM_KERNEL_6_14, /* drm-total-* and friends, GPU_INPUT_POWER */
};

/* Sensors: each can be absent. The order is that of sim_sensor_names[]. */
enum sim_sensor {
	SIM_SENSOR_LOAD,        /* percent */
	SIM_SENSOR_MEM_LOAD,    /* percent */
	SIM_SENSOR_SCLK,        /* MHz */
	SIM_SENSOR_MCLK,        /* MHz */
	SIM_SENSOR_TEMPERATURE, /* thousandths of a degree Celsius */
	SIM_SENSOR_POWER,       /* microwatts */
	SIM_SENSOR_VDDGFX,      /* millivolts */
	SIM_N_SENSORS,
};

struct sim_client {
	bool is_used;
	uint32_t generation; /* of the card, when it was opened */
	uint32_t node_minor;
	int32_t pid; /* who opened it */
	uint64_t client_id;
	uint64_t seq; /* of its last submission */
	uint64_t engine_ns[SIM_N_ENGINES];
};

struct sim_metadata {
	uint64_t flags;
	uint64_t tiling;
	uint32_t n_bytes;
	uint32_t data[64];
};

struct sim_object {
	enum sim_object_kind kind;
	enum sim_place place;
	bool is_exported;
	uint32_t n_handles;
	uint64_t id; /* of the file, never used again */
	uint64_t bytes;
	uint64_t visible_bytes; /* of those in VRAM, how many the CPU can reach */
	uint64_t alignment;
	uint64_t preferred; /* AMDGPU_GEM_DOMAIN_* */
	uint64_t flags;     /* AMDGPU_GEM_CREATE_* */
	uint64_t last_use;  /* of the card's use_clock: the least is evicted first */
	uint64_t ino;       /* of its file, or of what was imported */
	uint64_t import_dev;
	uint64_t import_offset;
	struct sim_metadata metadata;
};

struct sim_handle {
	uint32_t owner; /* slot + 1; 0: free */
	uint32_t object;
};

struct sim_context {
	uint32_t owner;
	uint32_t reset_counter;
	uint32_t query_counter; /* last told by QUERY_STATE */
	uint32_t vram_lost_counter;
	bool is_guilty;
};

struct sim_syncobj {
	uint32_t owner;
	bool has_fence;
	uint64_t point;
};

struct sim_bo_list {
	uint32_t owner;
};

/* The next @n_left calls that match return -@error. */
struct sim_failure {
	uint32_t nr;     /* _IOC_NR */
	uint32_t query;  /* AMDGPU_INFO_*, or SIM_ANY */
	uint32_t sensor; /* AMDGPU_INFO_SENSOR_*, or SIM_ANY */
	int32_t error;
	uint32_t n_left; /* 0: this entry is free */
};

struct sim_card {
	uint32_t chip; /* row of sim_chips[] */
	uint32_t bus;  /* of its PCI address */
	uint64_t ino;  /* of DIR/cardN, which descriptors are opened on */

	uint64_t vram_bytes;
	uint64_t visible_bytes;
	uint64_t gtt_bytes;

	/* What the control program changes. */
	uint64_t other_vram_bytes;
	uint64_t other_gtt_bytes;
	uint64_t sensor[SIM_N_SENSORS];
	bool is_absent[SIM_N_SENSORS];
	bool may_spill;
	enum sim_kernel kernel;
	uint32_t drm_minor;
	uint64_t job_ns; /* engine time that a submission counts as */
	struct sim_failure failures[SIM_MAX_FAILURES];
	bool is_plugged;
	uint32_t generation;   /* counts plugs */
	uint32_t is_suspended; /* a futex */

	/* What the driver counts. */
	uint64_t vram_used_bytes;
	uint64_t visible_used_bytes;
	uint64_t gtt_used_bytes;
	uint64_t n_evictions;
	uint64_t n_bytes_moved;
	uint64_t n_cpu_page_faults;
	uint32_t reset_counter;
	uint32_t vram_lost_counter;
	uint64_t n_ioctls;

	uint64_t next_client_id;
	uint64_t next_object_id;
	uint64_t use_clock;
	uint32_t sync_clock; /* a futex: changes whenever a syncobj does */

	/* How far the tables below have been used: the end of every search. */
	uint32_t n_objects;
	uint32_t n_handles;
	uint32_t n_contexts;
	uint32_t n_syncobjs;
	uint32_t n_bo_lists;
	uint32_t n_orphans; /* exported objects without handles */

	struct sim_client clients[SIM_MAX_CLIENTS];
	struct sim_object objects[SIM_MAX_OBJECTS];
	struct sim_handle handles[SIM_MAX_HANDLES];
	struct sim_context contexts[SIM_MAX_CONTEXTS];
	struct sim_syncobj syncobjs[SIM_MAX_SYNCOBJS];
	struct sim_bo_list bo_lists[SIM_MAX_BO_LISTS];
};

enum sim_udmabuf_mode {
	SIM_UDMABUF_PRESENT,
	SIM_UDMABUF_ABSENT,
	SIM_UDMABUF_HOST, /* whatever this machine has */
};

struct sim_state {
	uint64_t magic;
	pthread_mutex_t mutex; /* robust, shared between processes */
	uint32_t n_cards;
	enum sim_udmabuf_mode udmabuf_mode;
	uint64_t udmabuf_limit_bytes;
	uint64_t udmabuf_ino;
	uint32_t n_udmabuf_parts; /* made so far that do not begin at the memfd's begin */
	struct sim_card cards[SIM_MAX_CARDS];
};

/* This process's view. */
struct sim {
	struct sim_state *state; /* NULL: no simulator here */
	char dir[SIM_PATH_MAX];  /* absolute, resolved */
	dev_t dev;               /* of the files in it */
};

extern struct sim sim;

/* Makes DIR/state with no card in it. @dir must exist. Return: 0 or -errno. */
int sim_state_create(const char *dir);

/* Maps DIR/state as @sim. Return: 0, -EPROTO if it is not ours, or -errno. */
int sim_state_open(const char *dir);

/*
 * For everything in the state. A holder that died is no obstacle: what it may have left half done
 * is put right. Any thread; not from signal handlers.
 */
void sim_lock(void);
void sim_unlock(void);

/* Opens a file in the state's directory: never interposed. Return: descriptor or -errno. */
int sim_open_file(const char *name, int flags);
void sim_card_file_name(const struct sim_card *card, char name[32]);
void sim_object_file_name(const struct sim_card *card, uint64_t id, char name[64]);

static inline unsigned sim_card_index(const struct sim_card *card)
{
	return (unsigned)(card - sim.state->cards);
}
