#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The simulated driver's state
 *
 * One sparse file, DIR/state, is mapped by every process over the simulator and by the control
 * program. It holds the kernel's state of struct amdgpu_device, struct drm_file and struct
 * amdgpu_bo. All members are read and written with sim_lock() held, except where their comment says
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
#define SIM_MAX_JOBS     1024u
#define SIM_MAX_WAITS    64u /* submissions that a submission waits for */
#define SIM_MAX_SIGNALS  16u /* syncobjs that a submission signals */
#define SIM_MAX_LISTED   16u /* buffers that a list remembers */
#define SIM_N_PRIORITIES 3u  /* low, normal, high */
/* Each object has 1 TiB of mapping offsets in a descriptor, so heaps are smaller than that. */
#define SIM_MMAP_SHIFT 40

/* drivers/gpu/drm/drm_drv.c: DRM_MAJOR; primary nodes from 0, render nodes from 128. */
#define SIM_DRM_MAJOR    226u
#define SIM_RENDER_MINOR 128u

/* A client's descriptor has file offset slot + 1, and holds a lock on LOCK + slot. */
#define SIM_LOCK_BASE (1ll << 61)

/* Count of a failure that stays until it is removed. */
#define SIM_FOREVER UINT32_MAX
/* Any query of an INFO, any sensor of a SENSOR query. */
#define SIM_ANY UINT32_MAX

/* Place of an object's bytes; the kernel's TTM_PL_*. */
enum sim_place {
	SIM_PLACE_CPU,  /* TTM_PL_SYSTEM: not bound to the GPU, counted in no heap */
	SIM_PLACE_GTT,  /* TTM_PL_TT */
	SIM_PLACE_VRAM, /* TTM_PL_VRAM */
	SIM_PLACE_CHIP, /* GDS, GWS, OA: on the chip, counted in no heap */
};

enum sim_object_kind {
	SIM_OBJECT_NONE,
	SIM_OBJECT_MEMORY,  /* bytes in the file DIR/cardN-bo/ID */
	SIM_OBJECT_USERPTR, /* pages of a process */
	SIM_OBJECT_IMPORT,  /* a dma-buf of another exporter */
};

/*
 * Kernel version: it determines the keys of fdinfo, the sensors, and whether spilled buffers
 * return.
 */
enum sim_kernel {
	SIM_KERNEL_6_1,  /* kernel of Debian 12 */
	SIM_KERNEL_6_14, /* has drm-total-*, related keys, and GPU_INPUT_POWER */
};

/* Sensors, each of which can be absent. The order is that of sim_sensor_names[]. */
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
	uint32_t generation; /* the card's generation at the client's open() */
	uint32_t node_minor;
	int32_t pid; /* process that opened it */
	uint64_t client_id;
	uint64_t seq; /* sequence number of the last submission */
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
	uint64_t id; /* number of the file, never reused */
	uint64_t bytes;
	uint64_t visible_bytes; /* bytes in VRAM that the CPU can reach */
	uint64_t alignment;
	uint64_t preferred; /* AMDGPU_GEM_DOMAIN_* */
	uint64_t flags;     /* AMDGPU_GEM_CREATE_* */
	uint64_t last_use;  /* value of the card's use_clock; the lowest is evicted first */
	uint64_t ino;       /* inode of its file, or of the import */
	uint64_t import_dev;
	uint64_t import_offset;
	uint64_t job; /* number of the last submission that listed it */
	struct sim_metadata metadata;
};

struct sim_handle {
	uint32_t owner; /* slot + 1; 0: free */
	uint32_t object;
	/* where the client's GPU address space has it; map_bytes 0: nowhere */
	uint64_t map_address, map_offset, map_bytes;
};

struct sim_context {
	uint32_t owner;
	uint32_t reset_counter;
	uint32_t query_counter; /* last value that QUERY_STATE reported */
	uint32_t vram_lost_counter;
	bool is_guilty;
	uint32_t priority; /* below SIM_N_PRIORITIES */
	uint64_t used_ns;  /* time of engines, weighted by priority */
};

struct sim_syncobj {
	uint32_t owner;
	bool has_fence;
	uint64_t job; /* number of the submission whose fence it has; 0: a signalled fence */
	/* for timelines: the last point with a fence, and the last one whose own fence signalled */
	uint64_t point, passed;
	uint64_t value; /* the last point that has signalled with all points before it */
};

struct sim_signal {
	uint32_t syncobj; /* index */
	uint64_t point;   /* 0: binary */
};

/* A submission whose fence has not signalled. */
struct sim_job {
	uint64_t number;  /* of the card's submissions, from 1 */
	uint32_t owner;   /* slot + 1; 0: the client has ended */
	uint32_t context; /* index */
	uint32_t engine;
	uint64_t seq;     /* of the client's submissions */
	uint64_t work_ns; /* time that it takes */
	bool is_running;
	uint64_t ready_ns; /* time before which it cannot begin */
	uint64_t began_ns, ends_ns;
	uint32_t n_waits, n_signals;
	uint64_t waits[SIM_MAX_WAITS]; /* numbers of submissions */
	struct sim_signal signals[SIM_MAX_SIGNALS];
	uint64_t fence_object; /* id of the user fence's buffer; 0: none */
	uint32_t fence_offset;
};

struct sim_bo_list {
	uint32_t owner;
	uint32_t n_objects; /* the first of its buffers, for sim_object.job */
	uint32_t objects[SIM_MAX_LISTED];
};

/* A failure: the next @n_left matching calls return -@error. */
struct sim_failure {
	uint32_t nr;     /* _IOC_NR */
	uint32_t query;  /* AMDGPU_INFO_*, or SIM_ANY */
	uint32_t sensor; /* AMDGPU_INFO_SENSOR_*, or SIM_ANY */
	int32_t error;
	uint32_t n_left; /* 0: this entry is free */
};

struct sim_card {
	uint32_t chip; /* row of sim_chips[] */
	uint32_t bus;  /* PCI bus number */
	uint64_t ino;  /* inode of DIR/cardN, to which descriptors refer */

	uint64_t vram_bytes;
	uint64_t visible_bytes;
	uint64_t gtt_bytes;

	/* Set by the control program. */
	uint64_t other_vram_bytes;
	uint64_t other_gtt_bytes;
	uint64_t sensor[SIM_N_SENSORS];
	bool is_absent[SIM_N_SENSORS];
	bool may_spill;
	enum sim_kernel kernel;
	uint32_t drm_minor;
	uint64_t job_ns;     /* engine time per submission, in ns */
	uint64_t group_ns;   /* engine time per workgroup that a submission dispatches, in ns */
	bool is_timed;       /* submissions take their time */
	uint64_t timeout_ns; /* time after which a submission counts as hung; 0: none */
	bool is_fair;        /* policy between contexts: the one that has used least time first */
	struct sim_failure failures[SIM_MAX_FAILURES];
	bool is_plugged;
	uint32_t generation;   /* number of times plugged in */
	uint32_t is_suspended; /* a futex; 1: suspended */

	/* Counted by the driver. */
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
	uint32_t sync_clock; /* a futex: changes with every change of a syncobj or a submission */
	uint64_t last_job;   /* number of the last submission */
	uint64_t fair_ns;    /* used_ns of the context whose submission began last */
	uint64_t free_ns[SIM_N_ENGINES]; /* time at which an idle engine became idle */

	/* Used part of each table below: the end of every search. */
	uint32_t n_objects;
	uint32_t n_handles;
	uint32_t n_contexts;
	uint32_t n_syncobjs;
	uint32_t n_bo_lists;
	uint32_t n_jobs;    /* all used: a job that is done is replaced by the last one */
	uint32_t n_orphans; /* exported objects without handles */

	struct sim_client clients[SIM_MAX_CLIENTS];
	struct sim_object objects[SIM_MAX_OBJECTS];
	struct sim_handle handles[SIM_MAX_HANDLES];
	struct sim_context contexts[SIM_MAX_CONTEXTS];
	struct sim_syncobj syncobjs[SIM_MAX_SYNCOBJS];
	struct sim_bo_list bo_lists[SIM_MAX_BO_LISTS];
	struct sim_job jobs[SIM_MAX_JOBS];
};

enum sim_udmabuf_mode {
	SIM_UDMABUF_PRESENT,
	SIM_UDMABUF_ABSENT,
	SIM_UDMABUF_HOST, /* as on the host */
};

struct sim_state {
	uint64_t magic;
	pthread_mutex_t mutex; /* robust, shared between processes */
	uint32_t n_cards;
	enum sim_udmabuf_mode udmabuf_mode;
	uint64_t udmabuf_limit_bytes;
	uint64_t udmabuf_ino;
	uint32_t n_udmabuf_parts; /* udmabufs made so far at a nonzero offset of their memfd */
	struct sim_card cards[SIM_MAX_CARDS];
};

/* View of this process. */
struct sim {
	struct sim_state *state; /* NULL: the process is not over a simulator */
	char dir[SIM_PATH_MAX];  /* absolute, resolved */
	dev_t dev;               /* device of the files in dir */
};

extern struct sim sim;

/*
 * Make DIR/state without cards. @dir must exist.
 * Return: 0 or a negative errno.
 */
int sim_state_create(const char *dir);

/*
 * Map DIR/state as @sim.
 * Return: 0; -EPROTO if the file is no state of this simulator; or another negative errno.
 */
int sim_state_open(const char *dir);

/*
 * Lock the whole state. After the death of a holder, the next locker repairs its unfinished
 * changes. Any thread; not from signal handlers.
 */
void sim_lock(void);
void sim_unlock(void);

/*
 * Open a file in the state's directory, never interposed.
 * Return: descriptor or a negative errno.
 */
int sim_open_file(const char *name, int flags);
void sim_card_file_name(const struct sim_card *card, char name[32]);
void sim_object_file_name(const struct sim_card *card, uint64_t id, char name[64]);

static inline unsigned sim_card_index(const struct sim_card *card)
{
	return (unsigned)(card - sim.state->cards);
}
