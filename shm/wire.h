#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The control protocol
 *
 * Cold traffic between a client and brokerd uses a SOCK_SEQPACKET Unix socket: one message per
 * packet, little endian, fixed layout. The client sends a request with a cookie of its choice. The
 * broker answers each request exactly once, with the same type and cookie, in any order. Unread
 * answers take host memory of the client's tenant; the session ends when there is no room for more.
 * The first request must be RBK_WIRE_HELLO. A request that violates this file (length, reserved
 * bytes, number of descriptors, order) ends the session. A valid request that cannot be fulfilled
 * is answered with a negative errno in res and a sentence in text.
 *
 * Descriptors travel as SCM_RIGHTS and are received with MSG_CMSG_CLOEXEC. A received descriptor
 * belongs to the receiver; neither side closes the other's. Before the broker has answered the
 * hello, the kernel may refuse a client's message with descriptors (EPERM).
 *
 * Versions: within a major version a message keeps its type, its length and its members, so that a
 * client works with brokers of later minors, and with earlier ones that offer the features it
 * needs. An addition takes
 *   - a new request, which a client sends only if the broker offered the feature it belongs to;
 *   - reserved bytes or a flag of a request, likewise: a broker that does not know them ends the
 *     session;
 *   - reserved bytes or a flag of an answer: the broker may set them for any client, 0 means what
 *     their absence meant, and a client ignores those that it does not know;
 *   - a feature bit: both sides ignore unknown ones;
 *   - a value of an enumeration in an answer, which a client treats as unknown.
 * An answer's minor may therefore be above the client's. tests/integration/test-wire.c holds both
 * sides to this, with what a client of each minor and its broker once sent.
 */
#include <stddef.h>
#include <stdint.h>
#include <ringbroker/abi.h>

#define RBK_WIRE_MAGIC          0x4b425252u /* "RRBK" */
#define RBK_WIRE_MAX_BYTES      65536u      /* bytes of one message, its header included */
#define RBK_WIRE_MAX_FDS        4u
#define RBK_WIRE_TEXT_BYTES     512u /* bytes of a sentence for people, with the NUL */
#define RBK_WIRE_NAME_BYTES     64u
#define RBK_WIRE_PLAN_MAX_BYTES (2u << 20) /* bytes of a plan description in a memfd */

enum rbk_wire_type {
	RBK_WIRE_HELLO = 1,        /* rbk_wire_hello -> rbk_wire_welcome */
	RBK_WIRE_RING_ADD = 2,     /* rbk_wire_ring_add -> rbk_wire_ring, fds: sq, cq, bell */
	RBK_WIRE_RING_REMOVE = 3,  /* rbk_wire_id -> rbk_wire_reply */
	RBK_WIRE_ARENA_ADD = 4,    /* rbk_wire_arena_add, fd: memfd -> rbk_wire_id_reply */
	RBK_WIRE_ARENA_REMOVE = 5, /* rbk_wire_id -> rbk_wire_reply */
	RBK_WIRE_PLAN_ADD = 6,     /* rbk_wire_plan_add, description or fd -> rbk_wire_plan */
	RBK_WIRE_PLAN_REMOVE = 7,  /* rbk_wire_id -> rbk_wire_reply */
	RBK_WIRE_DEVICES = 8,      /* rbk_wire_request -> rbk_wire_devices */
	RBK_WIRE_STATS = 9,        /* rbk_wire_request -> rbk_wire_stats */
	RBK_WIRE_ARENA_NEW = 10,   /* rbk_wire_arena_new -> rbk_wire_id_reply, fd: dma-buf */
	RBK_WIRE_PLAN_MEMORY = 11, /* RBK_FEAT_RESIDENCY: rbk_wire_id -> rbk_wire_plan_memory */
	RBK_WIRE_TENANT = 12,      /* RBK_FEAT_TENANTS: rbk_wire_request -> rbk_wire_tenant */
	/* RBK_FEAT_STATS: */
	RBK_WIRE_STATS_PAGE = 13,  /* rbk_wire_stats_of -> rbk_wire_stats_page, fd: memfd */
	RBK_WIRE_STATS_RESET = 14, /* rbk_wire_stats_of -> rbk_wire_reply */
	RBK_WIRE_CONTROL = 15,     /* rbk_wire_control -> rbk_wire_setting */
	/* RBK_FEAT_ADMIN, on the administrators' socket only: */
	RBK_WIRE_ADMIN_SET = 16,   /* rbk_wire_admin_set -> rbk_wire_reply */
	RBK_WIRE_ADMIN_EVICT = 17, /* rbk_wire_admin_evict -> rbk_wire_admin_result */
	RBK_WIRE_ADMIN_DRAIN = 18, /* rbk_wire_admin_drain -> rbk_wire_admin_result */
	/* RBK_FEAT_CATALOGUE, on both sockets: */
	RBK_WIRE_CATALOGUE = 19, /* rbk_wire_request -> rbk_wire_catalogue */
	/* RBK_FEAT_LEASES, on the clients' socket; LEASE_RESIZE also on the administrators': */
	RBK_WIRE_LEASE_OPEN = 20,   /* rbk_wire_lease_open -> rbk_wire_lease, fd: memfd */
	RBK_WIRE_LEASE_CREDIT = 21, /* rbk_wire_lease_credit -> rbk_wire_lease_given */
	RBK_WIRE_LEASE_OBJECT = 22, /* rbk_wire_lease_object -> rbk_wire_lease_given */
	RBK_WIRE_LEASE_RESIZE = 23, /* rbk_wire_lease_resize -> rbk_wire_lease_given */
	RBK_WIRE_LEASE_CGROUP = 24, /* rbk_wire_lease_cgroup, fd -> rbk_wire_lease_region */
	/* RBK_FEAT_ADMIN_LIMITS, on the administrators' socket only: */
	RBK_WIRE_ADMIN_LIMIT = 25, /* rbk_wire_admin_limit -> rbk_wire_limit */
	/* RBK_FEAT_REATTACH, on the clients' socket: */
	RBK_WIRE_WANT_ID = 26,      /* rbk_wire_id -> rbk_wire_reply */
	RBK_WIRE_RING_RESTORE = 27, /* rbk_wire_ring_add, fds: sq, cq -> rbk_wire_ring, its fds */
	/* RBK_FEAT_TIMESLICE, on the clients' socket: */
	RBK_WIRE_LEASE_TIMESLICE = 28, /* rbk_wire_lease_timeslice -> rbk_wire_reply */
	/* RBK_FEAT_SHARES, on both sockets: */
	RBK_WIRE_LEASE_SHARE = 29, /* rbk_wire_lease_share -> rbk_wire_reply */
	/* RBK_FEAT_RESTART, on the administrators' socket only: */
	RBK_WIRE_ADMIN_RESTART = 30, /* rbk_wire_admin_restart -> rbk_wire_restart */
	/* RBK_FEAT_PARTS, on the clients' socket: */
	RBK_WIRE_LEASE_PARTS = 31, /* rbk_wire_lease_parts -> rbk_wire_reply */
	/* RBK_FEAT_LOST, on the clients' socket: */
	RBK_WIRE_LEASE_LOST = 32, /* rbk_wire_lease_lost -> rbk_wire_id_reply */
	/* RBK_FEAT_SLEEP, LEASE_SLEEP on both sockets, LEASE_MOVED on the clients': */
	RBK_WIRE_LEASE_SLEEP = 33, /* rbk_wire_lease_sleep -> rbk_wire_reply */
	RBK_WIRE_LEASE_MOVED = 34, /* rbk_wire_lease_moved -> rbk_wire_reply */
};

/* Begins every request. */
struct rbk_wire_request {
	uint32_t type;   /* enum rbk_wire_type */
	uint32_t cookie; /* returned in the answer */
};

/*
 * Begins every answer. text is empty unless res is negative, or the request is ADMIN_SET,
 * ADMIN_DRAIN, ADMIN_RESTART or LEASE_LOST.
 */
struct rbk_wire_reply {
	uint32_t type;
	uint32_t cookie;
	int32_t res; /* 0 or -errno */
	uint32_t reserved;
	char text[RBK_WIRE_TEXT_BYTES]; /* NUL-terminated, printable ASCII or UTF-8 */
};

/* Requests that name one object: RING_REMOVE, ARENA_REMOVE, PLAN_REMOVE, PLAN_MEMORY. */
struct rbk_wire_id {
	struct rbk_wire_request request;
	uint32_t id;
	uint32_t reserved;
};

struct rbk_wire_id_reply {
	struct rbk_wire_reply reply;
	uint32_t id;
	uint32_t reserved;
};

/*
 * HELLO. If the major differs or the client's minor is above the broker's, the broker answers
 * -EPROTONOSUPPORT, names both versions in text, and closes the connection. So a client names the
 * lowest minor that it can work with, and uses later requests only if the broker offers the
 * feature: an unknown request ends the session.
 */
struct rbk_wire_hello {
	struct rbk_wire_request request;
	uint32_t magic; /* RBK_WIRE_MAGIC */
	uint16_t abi_major;
	uint16_t abi_minor;
	uint64_t features; /* RBK_FEAT_* that the client wants; unknown bits are ignored */
	char name[RBK_WIRE_NAME_BYTES]; /* client's name, for listings; NUL-terminated */
};

/* Devices reach arenas that the broker makes (ARENA_NEW) in place; memfds are copied. */
#define RBK_WIRE_WELCOME_EXPORTS (1u << 0)

struct rbk_wire_welcome {
	struct rbk_wire_reply reply;
	uint16_t abi_major;
	uint16_t abi_minor;
	uint32_t n_devices;
	uint64_t features; /* features wanted by the client that the broker offers */
	uint32_t max_ring_entries;
	uint32_t max_rings;
	uint32_t max_arenas;
	uint32_t max_plans;
	uint64_t max_arena_bytes; /* all arenas of the session together */
	/*
	 * If not 0: some device cannot reach a tensor of a memfd in place if the tensor crosses a
	 * multiple of this size. Tasks with such tensors run on another device or through copies.
	 */
	uint64_t arena_segment_bytes;
	uint32_t flags; /* RBK_WIRE_WELCOME_* */
	uint32_t reserved;
	char broker[RBK_WIRE_NAME_BYTES];
};

/*
 * RING_ADD: makes a submission and completion ring of n_entries each (a power of two).
 *   -EBUSY  the tenant is drained, since before the session began; ARENA_ADD, ARENA_NEW and
 *           PLAN_ADD answer likewise, while requests that only read are answered as usual
 *   -EBUSY  any request that is answered with descriptors: too many descriptors are under way
 *           in unread answers
 *
 * The memory of a removed ring, and its bell, stay charged to the tenant until the client has
 * closed and unmapped them.
 */
struct rbk_wire_ring_add {
	struct rbk_wire_request request;
	uint32_t n_entries;
	uint32_t reserved;
};

/*
 * Descriptors: [0] submission area, to be mapped read-write before the first bell; [1] completion
 * area, to be mapped read-only; [2] the client's end of the bell, a socket pair of its own.
 */
struct rbk_wire_ring {
	struct rbk_wire_reply reply;
	uint32_t id;
	uint32_t n_entries;
	uint64_t sq_bytes; /* bytes of the memfd, to map whole */
	uint64_t cq_bytes;
};

/*
 * WANT_ID: the session's next ARENA_ADD, ARENA_NEW or PLAN_ADD makes an object with this id, or is
 * answered with -EBUSY if the id is in use, -EINVAL if no such object can have it. A client whose
 * broker died so restores the objects that its entries name. The upper half of a plan's id counts
 * the plans with the same lower half. The session's new plans get later numbers than any that was
 * wanted, so that an entry still fails if it names a plan that an earlier broker has removed. A
 * client therefore names the latest id that any of its plans had, before it wants others.
 *
 * RING_RESTORE: takes over a ring of n_entries that an earlier broker made for the client.
 * Descriptors: [0] its submission area, [1] its completion area. The entries of live records (see
 * abi.h) are admitted again, then those from the committed sq_head on; their arenas and plans must
 * therefore exist. The answer brings the submission area, in which the client may publish
 * meanwhile, a new completion area that begins with the completions the client has not consumed,
 * and a new bell. As for a new ring, the broker begins when the client rings the bell: until then,
 * it has run no entry, and the ring can be restored again from the same areas. ARENA_REMOVE and
 * PLAN_REMOVE, and requests behind them, wait until the entries of all records were admitted.
 * Beside the errors of RING_ADD:
 *   -EINVAL  the areas are no areas of such a ring; text says why
 */

/*
 * ARENA_ADD: registers a memfd of exactly bytes (a multiple of the page size), sealed with
 * F_SEAL_SHRINK and F_SEAL_GROW, every page allocated, not hugetlb. A memfd that is also sealed
 * with F_SEAL_WRITE is immutable and may hold constants. If one of these conditions fails, the
 * answer is -EINVAL and text names it.
 *
 * With RBK_FEAT_FIXED_ARENAS, RBK_WIRE_ARENA_FIX may be added to bytes: when the broker has mapped
 * the memfd it adds F_SEAL_FUTURE_WRITE. From then on no process, the broker included, can map the
 * memfd writable or punch holes into it; existing mappings stay. Small tasks are run at once only
 * if all of their tensors are in arenas without holes: fixed ones, immutable ones, and those of
 * ARENA_NEW. An argument table in another arena takes longer to read.
 */
#define RBK_WIRE_ARENA_FIX 1ull
/*
 * With RBK_FEAT_RESTORE, RBK_WIRE_ARENA_DMA_BUF may be added to bytes: the descriptor is not a
 * memfd but the dma-buf of an ARENA_NEW, which an earlier broker answered. The new arena is one as
 * of ARENA_NEW, with the bytes that it has. A dma-buf is the memory of at most one arena.
 *   -EINVAL  not a dma-buf, or not of that size; text says which
 *   -ENODEV  no device of this broker makes such memory, and the processor cannot do without
 *   -EBUSY   the dma-buf is an arena, of this session or of another one of the tenant
 *   -EPERM   another tenant has it as an arena, or had
 */
#define RBK_WIRE_ARENA_DMA_BUF 2ull
struct rbk_wire_arena_add {
	struct rbk_wire_request request;
	uint64_t bytes;
};

/*
 * ARENA_NEW: has the broker make an arena of bytes (a positive multiple of the page size), zeroed,
 * in memory that a device shares with the processor. The descriptor is a dma-buf, to be mapped
 * whole, read-write and shared. It cannot be sealed, so it holds no constants. After ARENA_REMOVE
 * it stays charged until the client has unmapped it and closed the descriptor.
 *   -EOPNOTSUPP  no device can do so, or not at present: use ARENA_ADD
 *   -ENOMEM, -EDQUOT  no memory, or above a limit
 */
struct rbk_wire_arena_new {
	struct rbk_wire_request request;
	uint64_t bytes;
};

/*
 * PLAN_ADD: prepares a plan. Its description (shm/plan-wire.h) of desc_bytes follows in this
 * message, or, with RBK_WIRE_PLAN_FD, is at the start of a memfd sealed with F_SEAL_SHRINK. The
 * plan is prepared in the background: the broker may answer other requests first.
 *   -EINVAL  the description is impossible; text names node, tensor and what was expected
 *   -ENOMEM, -EDQUOT  no memory, or above a limit
 */
#define RBK_WIRE_PLAN_FD (1u << 0)
struct rbk_wire_plan_add {
	struct rbk_wire_request request;
	uint32_t desc_bytes;
	uint32_t flags; /* RBK_WIRE_PLAN_FD */
};

struct rbk_wire_plan {
	struct rbk_wire_reply reply;
	uint32_t id;
	uint32_t devices;        /* bit i: device i can run the plan */
	uint64_t constant_bytes; /* bytes read from arenas, copied once to each device */
	uint64_t scratch_bytes;
	uint64_t flops_fixed; /* floating-point operations of one task: fixed + count * row */
	uint64_t flops_row;
	/* bytes of inputs, outputs, states and constants: fixed + count * row */
	uint64_t bytes_fixed;
	uint64_t bytes_row;
};

enum rbk_wire_device_kind {
	RBK_WIRE_DEVICE_CPU = 0,
	RBK_WIRE_DEVICE_GPU = 1,
	RBK_WIRE_DEVICE_SOFTWARE_GPU = 2,
};

struct rbk_wire_device {
	uint32_t index; /* RBK_DEVICE_* */
	uint32_t kind;  /* enum rbk_wire_device_kind */
	uint64_t memory_bytes;
	char name[RBK_WIRE_NAME_BYTES];
	char driver[RBK_WIRE_NAME_BYTES];
	/* memory paths, comma separated; for the CPU the SIMD level */
	char paths[RBK_WIRE_NAME_BYTES];
};

struct rbk_wire_devices {
	struct rbk_wire_reply reply;
	uint32_t n_devices;
	uint32_t reserved;
	struct rbk_wire_device devices[RBK_MAX_DEVICES];
};

/*
 * STATS: counters since start. The members named session_ are those of the caller's session. The
 * others sum over its tenant's sessions, ended ones included; on the administrators' socket they
 * are the whole broker's. Sums over more than a few sessions may be a tenth of a second old.
 */
struct rbk_wire_stats {
	struct rbk_wire_reply reply;
	uint64_t session_tasks[RBK_MAX_DEVICES];    /* completed, by device */
	uint64_t session_reasons[RBK_REASON_COUNT]; /* completed, by reason */
	uint64_t session_errors;                    /* completed with a negative result */
	uint64_t session_copied_bytes;              /* tensor bytes copied by a CPU */
	uint64_t session_transferred_bytes; /* tensor bytes moved by a device's own engine */
	uint64_t sessions;                  /* sessions now */
	uint64_t rings;
	uint64_t arenas;
	uint64_t plans;
	uint64_t tasks_in_flight;
	uint64_t host_bytes;   /* bytes charged now: arenas, rings, packed weights, scratch */
	uint64_t device_bytes; /* bytes charged now: constants, scratch, staging buffers */
	uint64_t tasks_completed;
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t sessions_ended_hostile; /* sessions closed for breaking a rule */
};

/* PLAN_MEMORY: device memory of a plan of this session, in bytes; -ENOENT: no plan has that id. */
struct rbk_wire_plan_device {
	uint32_t state; /* enum rbk_memory_state */
	uint32_t tier;  /* enum rbk_memory_tier */
	/* bytes to be resident: constants, and working memory of one task */
	uint64_t required_bytes;
	/* bytes that the tenant's limits and reserve allow for the plan now */
	uint64_t available_bytes;
	uint64_t resident_bytes; /* its share of the bytes on the device now */
	uint64_t n_evictions;    /* evictions from the device */
	uint64_t n_returns;      /* reloads after evictions */
};

struct rbk_wire_plan_memory {
	struct rbk_wire_reply reply;
	uint32_t n_devices;
	uint32_t reserved;
	uint64_t n_constrained; /* tasks placed elsewhere, or rejected, for lack of memory */
	struct rbk_wire_plan_device devices[RBK_MAX_DEVICES];
};

/* TENANT: use and limits of the tenant that the session is charged to. UINT64_MAX: no limit. */
struct rbk_wire_use {
	uint64_t used;
	uint64_t max;
};

struct rbk_wire_tenant_device {
	struct rbk_wire_use vram; /* bytes, as all members of this struct */
	uint64_t vram_reserve;    /* bytes that the tenant is never denied */
	uint64_t vram_high;       /* bytes above which its plans are evicted first */
	struct rbk_wire_use gtt;
};

struct rbk_wire_tenant {
	struct rbk_wire_reply reply;
	char name[RBK_WIRE_NAME_BYTES];
	struct rbk_wire_use host_bytes;
	struct rbk_wire_use arena_bytes;
	struct rbk_wire_use arenas;
	struct rbk_wire_use plans;
	struct rbk_wire_use sessions;
	uint64_t n_evictions; /* evictions of its plans since start */
	uint64_t n_returns;   /* reloads of evicted plans since start */
	/* tasks placed elsewhere, or rejected, for lack of memory, since start */
	uint64_t n_memory_constraints;
	uint64_t n_refused; /* requests beyond a limit since start */
	uint32_t n_devices;
	uint32_t reserved;
	struct rbk_wire_tenant_device devices[RBK_MAX_DEVICES];
};

/*
 * STATS_PAGE: hands out a statistics page (<ringbroker/stats.h>), to be mapped whole and read-only.
 * STATS_RESET: restarts the page's counts, and discards what was learned from the tasks counted
 * there; RBK_WIRE_STATS_ALL resets every page. Pages other than the session's own tenant's are only
 * available on the administrators' socket; resetting them there needs the right to change settings.
 * STATS_RESET is answered when all is reset, and the session's next message is read after that.
 * Tasks that complete meanwhile may or may not be counted.
 *   -EPERM   not on this socket, or not for this user
 *   -ENOENT  there is no such tenant, or it has no page: it has no sessions, or no room for a page
 *   -EDQUOT, -ENOMEM  no room for the page
 *   -EBUSY   as RING_ADD; at most eight pages may be sent to the session and not yet received
 */
enum rbk_wire_stats_whose {
	RBK_WIRE_STATS_OWN = 0,    /* the session's own tenant */
	RBK_WIRE_STATS_ALL = 1,    /* the root page */
	RBK_WIRE_STATS_TENANT = 2, /* the tenant of the given number */
};

struct rbk_wire_stats_of {
	struct rbk_wire_request request;
	uint32_t whose;  /* enum rbk_wire_stats_whose */
	uint32_t tenant; /* RBK_WIRE_STATS_TENANT: number of the tenant; otherwise 0 */
};

struct rbk_wire_stats_page {
	struct rbk_wire_reply reply;
	uint64_t bytes;  /* bytes of the memfd */
	uint32_t kind;   /* enum rbk_stats_kind */
	uint32_t tenant; /* number of its tenant; 0: the root page */
};

/*
 * CONTROL: reads or changes a setting of the whole broker, which lasts until the broker ends. Any
 * client may read settings; changing them needs the administrators' socket and a user with that
 * right.
 *   -EPERM       not on this socket, or not for this user
 *   -ENOENT      no such setting
 *   -EINVAL      no such value
 *   -EOPNOTSUPP  this broker cannot
 */
enum rbk_wire_control_setting {
	RBK_WIRE_FORCE_CPU = 1, /* 1: every task that may run on the CPU does */
	RBK_WIRE_LOG_LEVEL = 2, /* 3 error, 4 warning, 6 info, 7 debug: syslog's numbers */
};

/* sets it to value; without this flag, value is 0 and the setting is read */
#define RBK_WIRE_CONTROL_SET (1u << 0)
struct rbk_wire_control {
	struct rbk_wire_request request;
	uint32_t setting; /* enum rbk_wire_control_setting */
	uint32_t flags;   /* RBK_WIRE_CONTROL_SET */
	uint64_t value;
};

struct rbk_wire_setting {
	struct rbk_wire_reply reply;
	uint64_t value; /* the setting's value now */
};

/*
 * The administrators' socket. Its sessions belong to no tenant and have no arenas, plans or rings:
 * requests for these are answered with -EPERM. The features of the welcome tell a user's rights:
 * with RBK_FEAT_ADMIN it may read all statistics pages, with RBK_FEAT_ADMIN_CHANGE it may use the
 * requests below, STATS_RESET, and changes by CONTROL.
 *
 * ADMIN_SET: gives a tenant another limit, as the key of its section in the policy file would
 * (brokerd.conf(5)). The limit lasts until the broker ends, or until the policy is read again with
 * another value for this key than before. The value "default" restores the policy's. If the value
 * is above what the machine has, which then limits the tenant, text says so.
 *   -EPERM   not for this user
 *   -ENOENT  no such tenant
 *   -EINVAL  no such key, not one that can be changed (match-*), or no such value: text says what
 *            is allowed; or the sum of all reserves would exceed the device's memory
 */
#define RBK_WIRE_KEY_BYTES   32u
#define RBK_WIRE_VALUE_BYTES 96u
struct rbk_wire_admin_set {
	struct rbk_wire_request request;
	uint32_t tenant; /* number of the tenant */
	uint32_t reserved;
	char key[RBK_WIRE_KEY_BYTES];     /* "vram-max"; NUL-terminated */
	char value[RBK_WIRE_VALUE_BYTES]; /* "2GiB"; NUL-terminated */
};

/*
 * ADMIN_LIMIT: tells the value of one key that ADMIN_SET can change; index counts the keys in their
 * order, from 0 to n_limits - 1. Values are written as in the policy file.
 *   -ENOENT  no such tenant, or no key of that index
 */
struct rbk_wire_admin_limit {
	struct rbk_wire_request request;
	uint32_t tenant; /* number of the tenant */
	uint32_t index;
};

struct rbk_wire_limit {
	struct rbk_wire_reply reply;
	char key[RBK_WIRE_KEY_BYTES];      /* NUL-terminated, as the values */
	char value[RBK_WIRE_VALUE_BYTES];  /* in force */
	char policy[RBK_WIRE_VALUE_BYTES]; /* the policy file's, or its default */
	uint32_t n_limits;                 /* number of keys */
	uint32_t is_changed;               /* 1: ADMIN_SET has given the value in force */
};

/*
 * ADMIN_EVICT: evicts a tenant's plans, one plan, or all plans from device memory, as RBK_OP_EVICT
 * does: tasks that run on the device complete first, and a plan that is needed again is reloaded in
 * its turn. Answered when the eviction has begun: n counts plans being evicted, bytes is what they
 * release.
 *   -EPERM, -ENOENT (no such tenant, session or plan), -EINVAL (no such device)
 */
struct rbk_wire_admin_evict {
	struct rbk_wire_request request;
	uint32_t tenant;  /* number of the tenant; 0: all */
	uint32_t session; /* number of the session, with plan_id; 0: all plans of the tenant */
	uint32_t plan_id;
	uint32_t device; /* RBK_DEVICE_NONE: all devices */
};

/*
 * ADMIN_DRAIN: admits no new work from now on. Device: nothing new is placed on it, waiting tasks
 * move to other devices, its memory is released; running tasks complete. Tenant: the broker stops
 * reading its sessions' rings and refuses new sessions of it, until it is resumed; admitted tasks
 * complete. Answered at once: n counts tasks in flight, bytes is the device memory still in use;
 * asking again reports progress. A restart ends draining. When the tasks have completed and the
 * plans have left, bytes is memory that only clients can release: is_held is 1, and text names who
 * holds it.
 *   -EPERM, -ENOENT (no such tenant or device), -EINVAL (the CPU cannot be drained)
 */
enum rbk_wire_drain_what {
	RBK_WIRE_DRAIN_TENANT = 1,
	RBK_WIRE_DRAIN_DEVICE = 2,
};
enum rbk_wire_drain_action {
	RBK_WIRE_DRAIN_ASK = 0,
	RBK_WIRE_DRAIN_BEGIN = 1,
	RBK_WIRE_DRAIN_END = 2, /* resume */
};
struct rbk_wire_admin_drain {
	struct rbk_wire_request request;
	uint32_t what;   /* enum rbk_wire_drain_what */
	uint32_t number; /* number of the tenant, or RBK_DEVICE_* */
	uint32_t action; /* enum rbk_wire_drain_action */
	uint32_t reserved;
};

struct rbk_wire_admin_result {
	struct rbk_wire_reply reply;
	uint64_t n;
	uint64_t bytes;
	uint32_t is_drained; /* ADMIN_DRAIN: 1: draining or drained */
	uint32_t is_held;    /* ADMIN_DRAIN: 1: clients hold bytes; 0 from older brokers */
};

/*
 * ADMIN_RESTART: BEGIN checks that the program and its configuration can start; admits no entry and
 * no connection any more; lets tasks in flight complete within drain_ms; writes the checkpoint;
 * answers; and lets the next broker take its place. Sessions re-attach to that broker, which runs
 * the tasks that are left. ASK reports on this broker; text names the cause if its last restart
 * failed. Times are of CLOCK_MONOTONIC, 0: not yet.
 *   -EPERM
 *   -EBUSY   the broker is restarting or stopping
 *   -EINVAL  the next broker could not start; text says why, and nothing has changed
 */
enum rbk_wire_restart_action {
	RBK_WIRE_RESTART_ASK = 0,
	RBK_WIRE_RESTART_BEGIN = 1,
};
struct rbk_wire_admin_restart {
	struct rbk_wire_request request;
	uint32_t action;   /* enum rbk_wire_restart_action */
	uint32_t drain_ms; /* of BEGIN, at most RBK_WIRE_RESTART_MOST_MS */
};
#define RBK_WIRE_RESTART_MOST_MS 3600000u

struct rbk_wire_restart {
	struct rbk_wire_reply reply;
	uint64_t ready_ns;    /* when this broker began to serve clients */
	uint64_t restored_ns; /* when it last took a ring of an earlier broker over */
	uint32_t n_sessions;  /* sessions with rings that will re-attach */
	uint32_t n_restored;  /* sessions that came with a ring of an earlier broker */
	/* Set in answers to BEGIN only: */
	uint64_t held_ns;   /* when it ceased to admit entries */
	uint64_t drain_ns;  /* how long it waited for tasks */
	uint64_t n_drained; /* tasks that completed meanwhile */
	uint64_t n_left;    /* tasks that the next broker runs */
};

/*
 * CATALOGUE: lists the operators, and the element types on which each device runs them: bit
 * RBK_DTYPE_* of types[device]; 0: not at all.
 */
#define RBK_WIRE_MAX_OPERATORS 256u
struct rbk_wire_operator {
	char name[32];  /* ONNX name; NUL-terminated */
	uint32_t opset; /* opset in which the operator got the semantics implemented here */
	uint32_t reserved;
	uint32_t types[RBK_MAX_DEVICES];
};
struct rbk_wire_catalogue {
	struct rbk_wire_reply reply;
	uint32_t n_operators;
	uint32_t n_devices;
	struct rbk_wire_operator operators[]; /* n_operators */
};

/*
 * Leases (RBK_FEAT_LEASES): device memory for programs that drive a device themselves.
 * <ringbroker/lease.h> defines their semantics. A lease is a charge of granted_bytes to its tenant.
 * Sessions are its members; it ends with the last member. Members are given bytes of the lease as
 * credit, out of which they allocate without asking.
 *
 * LEASE_OPEN: makes a lease, or joins a lease that a session of the same tenant and user has made.
 * A session is a member of at most one lease of a device. The descriptor is struct rbk_lease_page
 * (<ringbroker/abi.h>), to be mapped read-only. With wait_ms the answer comes when there is room;
 * until then the session's other requests are answered.
 *   -EINVAL     min, wish and max are not in that order, or 0; text says which
 *   -ENODEV     the broker has no such device, or none with memory; JOIN and BY_UUID: the lease is
 *               of another device
 *   -ENOENT     join: there is no such lease
 *   -EPERM      join: it belongs to another tenant or user
 *   -EALREADY   the session is a member of a lease of that device
 *   -EBUSY      an administrator drains the device or the tenant, or the device is lost; or 1024
 *               requests of the tenant wait for room on the device, or 64 of the session, the most
 *               that may; or as RING_ADD and STATS_PAGE
 *   -EDQUOT     min is more than the tenant may ever have there (vram-max)
 *   -ENOMEM     no room for min now; text names required, available, tenant
 *   -ETIMEDOUT  no room for min within wait_ms
 *   -EDEADLK    the holders of the room wait as well
 */
#define RBK_WIRE_LEASE_JOIN    (1u << 0) /* joins the lease of that number, whatever its device */
#define RBK_WIRE_LEASE_RESTORE (1u << 1) /* restores a lease of a broker that ended: see below */
#define RBK_WIRE_LEASE_BY_UUID (1u << 2) /* uuid names the device; device is 0 */
/* With RESTORE and RBK_FEAT_RESTORE; without the feature, the first member counts as the opener. */
#define RBK_WIRE_LEASE_RESIZED (1u << 3) /* wish_bytes is that of the last LEASE_RESIZE */
#define RBK_WIRE_LEASE_OPENER  (1u << 4) /* the member opened the lease, and may resize it */
struct rbk_wire_lease_open {
	struct rbk_wire_request request;
	uint32_t flags;      /* RBK_WIRE_LEASE_* */
	uint32_t number;     /* JOIN, RESTORE: number of the lease; otherwise 0 */
	uint32_t device;     /* RBK_DEVICE_*; RBK_DEVICE_NONE: the first with memory; BY_UUID: 0 */
	uint32_t wait_ms;    /* longest wait, in the order of requests; 0: none */
	uint8_t uuid[16];    /* VkPhysicalDeviceIDProperties.deviceUUID; otherwise 0 */
	uint64_t min_bytes;  /* with less the request fails */
	uint64_t wish_bytes; /* granted at once, as far as there is room; 0 with JOIN */
	uint64_t max_bytes;  /* upper limit of the lease's growth; 0 with JOIN */
	/*
	 * RESTORE: bytes that the member held when the broker ended, credit included. That memory
	 * is in use, so it is charged without waiting, also above max. The broker accepts the
	 * number unless other tenants have that memory or have it reserved: -ENOMEM. The first
	 * member makes the lease anew with its former min, wish and max, others join. While members
	 * come back to a broker that has just started, requests for more memory wait for a moment.
	 */
	uint64_t held_bytes;
	char program[RBK_WIRE_NAME_BYTES]; /* for listings; NUL-terminated */
};

struct rbk_wire_lease {
	struct rbk_wire_reply reply;
	uint32_t number; /* number of the lease: never 0, unique until the broker ends */
	uint32_t device; /* RBK_DEVICE_* */
	uint64_t granted_bytes;
	uint64_t max_bytes;
	uint64_t page_bytes; /* bytes of the memfd, to be mapped whole */
};

/*
 * LEASE_CREDIT: asks for credit of a lease, or returns it, and reports what the member uses. A
 * lease that has no credit left to give grows, up to its maximum, if its tenant and the device have
 * room.
 *   -ENOENT     the session is no member of it
 *   -ENOMEM, -ETIMEDOUT, -EDEADLK  as LEASE_OPEN, if not even least_bytes can be had
 *   -EINVAL     it returns more than it has
 *   -EBUSY      the session's waiting requests, or the tenant's for that device, are at their limit
 * A request for 0 bytes, or with least_bytes 0, is never refused.
 */
struct rbk_wire_lease_credit {
	struct rbk_wire_request request;
	uint32_t lease; /* number of the lease */
	uint32_t wait_ms;
	uint64_t want_bytes;   /* 0: none */
	uint64_t least_bytes;  /* at most want_bytes; with less room, no credit is given */
	uint64_t return_bytes; /* credit returned, before anything else; want_bytes is then 0 */
	uint64_t used_bytes;   /* device memory that the member holds, by its own count */
	/* driver overhead beside used_bytes, as far as visible; also within the credit */
	uint64_t extra_bytes;
	uint32_t n_objects;  /* allocations of the member now */
	uint32_t n_refused;  /* refused allocations since it joined */
	uint64_t peak_bytes; /* highest sum of used_bytes and extra_bytes since its last report */
};

/*
 * LEASE_OBJECT: names an allocation that several processes can share, by its device and inode
 * numbers of fstat(). It is charged once per tenant: to the first of its leases that names it, or
 * to a lease that names it with a larger size. It stays charged, if need be to another lease that
 * named it, until all have dropped it. A member names each object once.
 *   ADD   given_bytes is 0: it was charged already, or bytes: now charged to this member's
 *         lease. In either case the member's credit shrinks by from_credit_bytes. -ENOMEM: the
 *         lease has no room for it; -EINVAL: too little credit, or the object has no size;
 *         -EALREADY: the member has named it; -ENOSPC: too many objects.
 *   DROP  the member no longer has it; returns no credit. -ENOENT: the member had not named it.
 */
#define RBK_WIRE_LEASE_MAX_OBJECTS 4096u /* objects of a member */
enum rbk_wire_lease_object_action {
	RBK_WIRE_OBJECT_ADD = 1,
	RBK_WIRE_OBJECT_DROP = 2,
};
struct rbk_wire_lease_object {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t action; /* enum rbk_wire_lease_object_action */
	uint64_t dev, ino;
	uint64_t bytes; /* ADD: size of the object, rounded up to pages */
	/* ADD: bytes of the member's credit that pay for it, if it exports its own allocation. */
	uint64_t from_credit_bytes;
};

/*
 * LEASE_RESIZE: changes the wish of a lease. It grows at once, as far as there is free room, or is
 * asked to shrink: bytes not given as credit are taken back now, the rest as members return it.
 * From then on it grows no further than that wish. Allowed for the process that opened it, and for
 * an administrator who may change settings.
 *   -EPERM, -ENOENT (no such lease)
 *   -EINVAL  0, or above its maximum
 */
struct rbk_wire_lease_resize {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t reserved;
	uint64_t wish_bytes;
};

/*
 * LEASE_CGROUP: sets the cgroup of the lease's programs, which need not be members themselves. The
 * descriptor is its folder in the unified hierarchy. The lease keeps it to its end.
 *   -ENOENT     the session is no member of it
 *   -ENOTDIR    the descriptor is no such folder
 *   -EPERM      another user owns the folder
 *   -EALREADY   the lease has another cgroup
 *   -EBUSY      another lease of the device has the cgroup
 *   -EDQUOT     too many descriptors
 */
struct rbk_wire_lease_cgroup {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t reserved;
};

/*
 * LEASE_TIMESLICE (RBK_FEAT_TIMESLICE): shares the device's time with other leases. The broker
 * gives the timeslice to one lease after the other, and writes it to their pages; enum
 * rbk_timeslice says what members may do. It is for the members of the lease that have joined, and
 * have asked for it since they last told DONE.
 *   JOIN  the member obeys from now on. priority is an enum rbk_priority: LOW for background work,
 *         NORMAL, HIGH or URGENT. One above the tenant's priority-max counts as that. The lease
 *         has the highest priority of its members. A member may join again with another priority.
 *   WANT  the member has work. If the lease has the timeslice, the member may begin once this is
 *         answered; otherwise, when the page says so.
 *   DONE  nothing of the member is under way on the device, and it submits nothing more before it
 *         asks again. Without effect if rbk_lease_page.timeslice is no longer word.
 *   GIVE_UP (RBK_FEAT_SHARES)  as DONE, but work of the member is still under way, since it waits
 *         for something, perhaps for what the member submits later
 *   LEAVE (RBK_FEAT_UNSHARE)  the member neither obeys nor is waited for any more, until it joins
 *         again
 *   ENDING (RBK_FEAT_ENDING)  as DONE, but work of the member is still under way, which ends in
 *         about rest_us. The next lease begins at once, and is not charged for that time.
 * A lease whose members do not tell DONE within 50 ms is overdue: the next lease begins, and the
 * overdue one gets no timeslice before they do. Its time counts until then.
 *   -ENOENT  the session is no member of it, or all but JOIN: has not joined
 *   -EBUSY   too many leases of the tenant share the device, or members of the lease
 */
enum rbk_wire_timeslice_action {
	RBK_WIRE_TIMESLICE_JOIN = 1,
	RBK_WIRE_TIMESLICE_WANT = 2,
	RBK_WIRE_TIMESLICE_DONE = 3,
	RBK_WIRE_TIMESLICE_GIVE_UP = 4,
	RBK_WIRE_TIMESLICE_LEAVE = 5,
	RBK_WIRE_TIMESLICE_ENDING = 6,
};
struct rbk_wire_lease_timeslice {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t action; /* enum rbk_wire_timeslice_action */
	union {
		uint32_t priority; /* JOIN: enum rbk_priority; otherwise 0, except with ENDING */
		uint32_t
			rest_us; /* ENDING: until the member's work has ended; at most 1000 count */
	};
	/* DONE, GIVE_UP, ENDING: rbk_lease_page.timeslice as the member saw it; otherwise 0 */
	uint32_t word;
};

/*
 * LEASE_SHARE (RBK_FEAT_SHARES): sets how a lease shares its device's time. Allowed as
 * LEASE_RESIZE. The priority applies to all members, and those that do not share yet begin to share
 * the device. One above the tenant's priority-max counts as that. With RBK_PRIORITY_NONE
 * (RBK_FEAT_UNSHARE) members are asked to leave.
 *   -EPERM, -ENOENT (no such lease)
 *   -EINVAL  an unknown priority, a share above 10000, or both are 0
 */
struct rbk_wire_lease_share {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t priority; /* 1 + enum rbk_priority; 0: unchanged */
	uint32_t share;    /* of its tenant's time, 1 to 10000; 0: unchanged */
	uint32_t reserved;
};

/*
 * LEASE_PARTS (RBK_FEAT_PARTS): reports how the member's work is divided, for listings. Counts are
 * those since the member joined the lease; one below that of an earlier report is ignored. A member
 * reports at most about once a second, and when something has changed.
 *   -ENOENT  the session is no member of it
 */
struct rbk_wire_lease_parts {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t reserved;
	uint64_t n_submissions; /* of command buffers to the driver, in parts or whole */
	uint64_t n_parts;       /* parts that were recorded behind the first one of each buffer */
	uint64_t n_slices;      /* slices into which dispatches were divided */
	uint64_t n_whole;       /* command buffers that stayed whole from some command on */
	uint64_t n_unsliced;    /* dispatches that take longer than a part and stayed whole */
	uint64_t longest_ns;    /* longest part since the last report; 0: none was measured */
};

/*
 * LEASE_LOST (RBK_FEAT_LOST): a Vulkan device of the member was lost; the member asks who is the
 * reason. verdict is its own statement, which is believed only as far as it speaks against itself.
 * The answer's text is a sentence for the program's user. It names programs of the own tenant only.
 * Its id is 0 if the sentence may change within two seconds, in which other members may tell; the
 * member then asks again, as often as it likes.
 *   -ENOENT  the session is no member of it
 */
struct rbk_wire_lease_lost {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t verdict; /* enum reset_verdict: the kernel's, of the member's process */
};

/*
 * LEASE_SLEEP (RBK_FEAT_SLEEP): says where the memory of a lease's programs should be. Allowed as
 * LEASE_RESIZE.
 *   -EPERM, -ENOENT (no such lease)
 *   -EINVAL  an unknown state
 */
struct rbk_wire_lease_sleep {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t sleep; /* enum rbk_lease_sleep, but not RBK_LEASE_ASKED */
};

/*
 * LEASE_MOVED (RBK_FEAT_SLEEP): reports how much of a member's memory can be moved to host memory
 * while its program is idle, and how much was. For listings, and for the choice of leases that are
 * asked to sleep. A member reports at most some times a second, and when something has changed.
 *   -ENOENT  the session is no member of it
 */
struct rbk_wire_lease_moved {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t reserved;
	uint64_t movable_bytes; /* bytes that can be moved, those that were included */
	uint64_t moved_bytes;   /* bytes that are in host memory */
};

struct rbk_wire_lease_region {
	struct rbk_wire_reply reply;
	/*
	 * Name of the device's memory regions in the kernel's dmem controller, without the number
	 * that some names end with; NUL-terminated; empty: unknown.
	 */
	char region[RBK_WIRE_NAME_BYTES];
};

struct rbk_wire_lease_given {
	struct rbk_wire_reply reply;
	uint64_t given_bytes;   /* CREDIT: bytes of credit added */
	uint64_t granted_bytes; /* bytes of the lease now */
};

_Static_assert(sizeof(struct rbk_wire_request) == 8, "wire");
_Static_assert(sizeof(struct rbk_wire_reply) == 528, "wire");
_Static_assert(sizeof(struct rbk_wire_id) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_id_reply) == 536, "wire");
_Static_assert(sizeof(struct rbk_wire_hello) == 88, "wire");
_Static_assert(offsetof(struct rbk_wire_hello, features) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_welcome) == 648, "wire");
_Static_assert(sizeof(struct rbk_wire_ring_add) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_ring) == 552, "wire");
_Static_assert(sizeof(struct rbk_wire_arena_add) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_arena_new) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_plan_add) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_plan) == 584, "wire");
_Static_assert(sizeof(struct rbk_wire_device) == 208, "wire");
_Static_assert(sizeof(struct rbk_wire_devices) == 3864, "wire");
_Static_assert(sizeof(struct rbk_wire_stats) == 848, "wire");
_Static_assert(sizeof(struct rbk_wire_plan_device) == 48, "wire");
_Static_assert(sizeof(struct rbk_wire_plan_memory) == 1312, "wire");
_Static_assert(sizeof(struct rbk_wire_tenant_device) == 48, "wire");
_Static_assert(sizeof(struct rbk_wire_tenant) == 1480, "wire");
_Static_assert(sizeof(struct rbk_wire_stats_of) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_stats_page) == 544, "wire");
_Static_assert(sizeof(struct rbk_wire_control) == 24, "wire");
_Static_assert(sizeof(struct rbk_wire_setting) == 536, "wire");
_Static_assert(sizeof(struct rbk_wire_admin_set) == 144, "wire");
_Static_assert(sizeof(struct rbk_wire_admin_limit) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_limit) == 760, "wire");
_Static_assert(sizeof(struct rbk_wire_admin_evict) == 24, "wire");
_Static_assert(sizeof(struct rbk_wire_admin_drain) == 24, "wire");
_Static_assert(sizeof(struct rbk_wire_admin_result) == 552, "wire");
_Static_assert(sizeof(struct rbk_wire_admin_restart) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_restart) == 584, "wire");
_Static_assert(sizeof(struct rbk_wire_operator) == 104, "wire");
_Static_assert(sizeof(struct rbk_wire_catalogue) == 536, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_open) == 136, "wire");
_Static_assert(sizeof(struct rbk_wire_lease) == 560, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_credit) == 72, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_object) == 48, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_resize) == 24, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_cgroup) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_timeslice) == 24, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_share) == 24, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_sleep) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_moved) == 32, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_parts) == 64, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_lost) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_region) == 592, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_given) == 544, "wire");
