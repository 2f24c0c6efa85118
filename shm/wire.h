#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The control protocol
 *
 * Cold traffic between a client and brokerd, over a SOCK_SEQPACKET Unix socket: one message per
 * packet, little endian, fixed layout. The client sends a request with a cookie of its choice; the
 * broker answers each request exactly once, with the same type and cookie, in any order. Answers
 * that a client does not read take host memory of its tenant; where there is no room for more the
 * session ends. The first request must be RBK_WIRE_HELLO. A request that this file does not allow
 * (length, reserved bytes, number of descriptors, order) ends the session; one that merely cannot
 * be fulfilled is answered with a negative errno in res and a sentence in text.
 *
 * Descriptors travel as SCM_RIGHTS and are received with MSG_CMSG_CLOEXEC. Nobody closes the
 * other's: a received descriptor belongs to the receiver. Before the broker has answered the hello,
 * the kernel may refuse a client's message with descriptors (EPERM).
 */
#include <stddef.h>
#include <stdint.h>
#include <ringbroker/abi.h>

#define RBK_WIRE_MAGIC          0x4b425252u /* "RRBK" */
#define RBK_WIRE_MAX_BYTES      65536u      /* of one message, its header included */
#define RBK_WIRE_MAX_FDS        4u
#define RBK_WIRE_TEXT_BYTES     512u /* of a sentence for people, with the NUL */
#define RBK_WIRE_NAME_BYTES     64u
#define RBK_WIRE_PLAN_MAX_BYTES (2u << 20) /* of a plan description in a memfd */

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
	/* RBK_FEAT_CATALOGUE, on both: */
	RBK_WIRE_CATALOGUE = 19, /* rbk_wire_request -> rbk_wire_catalogue */
	/* RBK_FEAT_LEASES, on the clients' socket; LEASE_RESIZE also on the administrators': */
	RBK_WIRE_LEASE_OPEN = 20,   /* rbk_wire_lease_open -> rbk_wire_lease, fd: memfd */
	RBK_WIRE_LEASE_CREDIT = 21, /* rbk_wire_lease_credit -> rbk_wire_lease_given */
	RBK_WIRE_LEASE_OBJECT = 22, /* rbk_wire_lease_object -> rbk_wire_lease_given */
	RBK_WIRE_LEASE_RESIZE = 23, /* rbk_wire_lease_resize -> rbk_wire_lease_given */
	RBK_WIRE_LEASE_CGROUP = 24, /* rbk_wire_lease_cgroup, fd -> rbk_wire_lease_region */
};

/* Every request begins with it. */
struct rbk_wire_request {
	uint32_t type;   /* enum rbk_wire_type */
	uint32_t cookie; /* returned in the answer */
};

/* Every answer begins with it. text is empty unless res is negative. */
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
 * HELLO. The broker answers with -EPROTONOSUPPORT, naming both versions in text, and closes, if the
 * major differs or the client's minor is above its own. So a client names the lowest minor that it
 * can work with, and uses what came later only where the broker offers the feature: a broker that
 * does not know a request ends the session.
 */
struct rbk_wire_hello {
	struct rbk_wire_request request;
	uint32_t magic; /* RBK_WIRE_MAGIC */
	uint16_t abi_major;
	uint16_t abi_minor;
	uint64_t features; /* RBK_FEAT_* that the client wants; unknown bits are fine */
	char name[RBK_WIRE_NAME_BYTES]; /* of the client, for listings; NUL-terminated */
};

/* Arenas that the broker makes (ARENA_NEW) are reached in place; memfds are copied. */
#define RBK_WIRE_WELCOME_EXPORTS (1u << 0)

struct rbk_wire_welcome {
	struct rbk_wire_reply reply;
	uint16_t abi_major;
	uint16_t abi_minor;
	uint32_t n_devices;
	uint64_t features; /* those of the client's that the broker offers */
	uint32_t max_ring_entries;
	uint32_t max_rings;
	uint32_t max_arenas;
	uint32_t max_plans;
	uint64_t max_arena_bytes; /* all arenas of the session together */
	/*
	 * Not 0: in memfds, some device cannot reach a tensor in place that lies on both sides of a
	 * multiple of it. Its tasks run all the same, elsewhere or through copies.
	 */
	uint64_t arena_segment_bytes;
	uint32_t flags; /* RBK_WIRE_WELCOME_* */
	uint32_t reserved;
	char broker[RBK_WIRE_NAME_BYTES];
};

/*
 * RING_ADD: a submission and completion ring of n_entries each (a power of two).
 *   -EBUSY  the tenant is drained, since before the session came; ARENA_ADD, ARENA_NEW and PLAN_ADD
 *           answer likewise, while whatever only looks is answered as ever
 *   -EBUSY  also of every request that is answered with descriptors: too many of these are under
 *           way in unread answers
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
	uint64_t sq_bytes; /* of the memfds, to map whole */
	uint64_t cq_bytes;
};

/*
 * ARENA_ADD: a memfd of exactly bytes (a multiple of the page size), sealed with F_SEAL_SHRINK and
 * F_SEAL_GROW, every page allocated, not hugetlb. Sealed with F_SEAL_WRITE as well it is immutable
 * and may hold constants. -EINVAL says which of these is not so.
 *
 * With RBK_FEAT_FIXED_ARENAS, RBK_WIRE_ARENA_FIX may be added to bytes: when the broker has mapped
 * the memfd it adds F_SEAL_FUTURE_WRITE. No process, the broker included, can map the memfd
 * writable from then on, or punch holes into it; mappings that exist stay as they are. Small
 * tasks are run at once only where all of their tensors are in arenas without holes: such as these,
 * immutable ones, and those of ARENA_NEW. An argument table elsewhere takes longer to be read.
 */
#define RBK_WIRE_ARENA_FIX 1ull
struct rbk_wire_arena_add {
	struct rbk_wire_request request;
	uint64_t bytes;
};

/*
 * ARENA_NEW: has the broker make an arena of bytes (a positive multiple of the page size), zeroed,
 * of memory that a device shares with the processor. The descriptor is a dma-buf, to be mapped
 * read-write and shared, whole. It cannot be sealed, so it holds no constants. After
 * ARENA_REMOVE it stays charged until the client has unmapped it and closed the descriptor.
 *   -EOPNOTSUPP  no device does that, or not now: use ARENA_ADD
 *   -ENOMEM, -EDQUOT  no memory, or above a limit
 */
struct rbk_wire_arena_new {
	struct rbk_wire_request request;
	uint64_t bytes;
};

/*
 * PLAN_ADD: a description (shm/plan-wire.h) of desc_bytes follows in this message, or, with
 * RBK_WIRE_PLAN_FD, lies at the start of a memfd sealed with F_SEAL_SHRINK. Prepared in the
 * background: other requests may be answered before.
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
	uint32_t devices;        /* bit i: device i can run it */
	uint64_t constant_bytes; /* read from arenas, once mirrored on each device */
	uint64_t scratch_bytes;
	uint64_t flops_fixed; /* floating-point operations of one task: fixed + count * row */
	uint64_t flops_row;
	uint64_t bytes_fixed; /* bytes of inputs, outputs, states and constants, likewise */
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
	char paths[RBK_WIRE_NAME_BYTES]; /* memory paths, comma separated; CPU: SIMD level */
};

struct rbk_wire_devices {
	struct rbk_wire_reply reply;
	uint32_t n_devices;
	uint32_t reserved;
	struct rbk_wire_device devices[RBK_MAX_DEVICES];
};

/*
 * STATS: counters since start. "session" is the caller's own; the rest is of its tenant's sessions
 * together, those that have ended included, and on the administrators' socket the whole broker's.
 * Sums over more than a few sessions may be a tenth of a second old.
 */
struct rbk_wire_stats {
	struct rbk_wire_reply reply;
	uint64_t session_tasks[RBK_MAX_DEVICES];    /* completed, by device */
	uint64_t session_reasons[RBK_REASON_COUNT]; /* completed, by reason */
	uint64_t session_errors;                    /* completed with a negative result */
	uint64_t session_copied_bytes;              /* tensor bytes copied by a CPU */
	uint64_t session_transferred_bytes; /* tensor bytes moved by a device's own engine */
	uint64_t sessions;                  /* now */
	uint64_t rings;
	uint64_t arenas;
	uint64_t plans;
	uint64_t tasks_in_flight;
	uint64_t host_bytes;   /* charged now: arenas, rings, packed weights, scratch */
	uint64_t device_bytes; /* charged now: constants, scratch, staging */
	uint64_t tasks_completed;
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t sessions_ended_hostile; /* closed for breaking a rule */
};

/* PLAN_MEMORY: of a plan of this session; -ENOENT: there is none of that id. In bytes. */
struct rbk_wire_plan_device {
	uint32_t state;           /* enum rbk_memory_state */
	uint32_t tier;            /* enum rbk_memory_tier */
	uint64_t required_bytes;  /* to be resident: constants, and working memory of one task */
	uint64_t available_bytes; /* that the tenant could have there for it now, by its right */
	uint64_t resident_bytes;  /* its share of what is there now */
	uint64_t n_evictions;     /* how often it left */
	uint64_t n_returns;       /* how often it came back */
};

struct rbk_wire_plan_memory {
	struct rbk_wire_reply reply;
	uint32_t n_devices;
	uint32_t reserved;
	uint64_t n_constrained; /* tasks placed elsewhere, or refused, for want of memory */
	struct rbk_wire_plan_device devices[RBK_MAX_DEVICES];
};

/* TENANT: whom the session's resources are charged to. A limit of UINT64_MAX is none. */
struct rbk_wire_use {
	uint64_t used;
	uint64_t max;
};

struct rbk_wire_tenant_device {
	struct rbk_wire_use vram; /* in bytes, as all of these */
	uint64_t vram_reserve;    /* never denied, whatever others do */
	uint64_t vram_high;       /* above it, evicted first */
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
	uint64_t n_evictions;          /* of its plans, since start, as the next three */
	uint64_t n_returns;            /* plans that came back */
	uint64_t n_memory_constraints; /* tasks placed elsewhere, or refused, for want of memory */
	uint64_t n_refused;            /* requests beyond a limit */
	uint32_t n_devices;
	uint32_t reserved;
	struct rbk_wire_tenant_device devices[RBK_MAX_DEVICES];
};

/*
 * STATS_PAGE: hands out a statistics page (<ringbroker/stats.h>), to be mapped whole and read-only.
 * STATS_RESET: begins its counts anew, and forgets what was learned from the tasks counted there;
 * of RBK_WIRE_STATS_ALL every page's. Of all but the session's own tenant's on the administrators'
 * socket only, and resetting there for those who may change something. The answer comes when all is
 * reset, and the session's next message is read after that; whether tasks that complete meanwhile
 * are counted is left open.
 *   -EPERM   not on this socket, or not for this user
 *   -ENOENT  there is no such tenant, or it has no page: it has no sessions, or no room for one
 *   -EDQUOT, -ENOMEM  no room for the page
 *   -EBUSY   as RING_ADD; eight pages, sent to the session and not received, are the most
 */
enum rbk_wire_stats_whose {
	RBK_WIRE_STATS_OWN = 0,    /* the session's tenant's */
	RBK_WIRE_STATS_ALL = 1,    /* the root page */
	RBK_WIRE_STATS_TENANT = 2, /* that of tenant */
};

struct rbk_wire_stats_of {
	struct rbk_wire_request request;
	uint32_t whose;  /* enum rbk_wire_stats_whose */
	uint32_t tenant; /* RBK_WIRE_STATS_TENANT: its number, else 0 */
};

struct rbk_wire_stats_page {
	struct rbk_wire_reply reply;
	uint64_t bytes;  /* of the memfd */
	uint32_t kind;   /* enum rbk_stats_kind */
	uint32_t tenant; /* whose it is; 0: the root page */
};

/*
 * CONTROL: a setting of the whole broker, until it ends. Anybody may ask; changed on the
 * administrators' socket, by those who may.
 *   -EPERM       not on this socket, or not for this user
 *   -ENOENT      no such setting
 *   -EINVAL      no such value
 *   -EOPNOTSUPP  this broker cannot
 */
enum rbk_wire_control_setting {
	RBK_WIRE_FORCE_CPU = 1, /* 1: every task that may runs on the CPU */
	RBK_WIRE_LOG_LEVEL = 2, /* 3 error, 4 warning, 6 info, 7 debug: syslog's numbers */
};

#define RBK_WIRE_CONTROL_SET (1u << 0) /* to value; without it, value is 0: what is it? */
struct rbk_wire_control {
	struct rbk_wire_request request;
	uint32_t setting; /* enum rbk_wire_control_setting */
	uint32_t flags;   /* RBK_WIRE_CONTROL_SET */
	uint64_t value;
};

struct rbk_wire_setting {
	struct rbk_wire_reply reply;
	uint64_t value; /* now */
};

/*
 * The administrators' socket. Its sessions belong to no tenant and have no arenas, plans or rings:
 * the requests for those are answered with -EPERM. What a user may do there is in the features of
 * the welcome: RBK_FEAT_ADMIN to read everybody's statistics pages, RBK_FEAT_ADMIN_CHANGE for the
 * requests below, STATS_RESET, and changing by CONTROL.
 *
 * ADMIN_SET: gives a tenant another limit, as the key of its section in the policy file would
 * (brokerd.conf(5)); until the broker ends, or the policy is read again and has another value for
 * this key than before. "default" as the value: what the policy says.
 *   -EPERM   not for this user
 *   -ENOENT  no such tenant
 *   -EINVAL  no such key, not one that can be changed (match-*), or no such value: text says what
 *            is allowed; or the reserves of all would not fit their device any more
 */
#define RBK_WIRE_KEY_BYTES   32u
#define RBK_WIRE_VALUE_BYTES 96u
struct rbk_wire_admin_set {
	struct rbk_wire_request request;
	uint32_t tenant; /* its number */
	uint32_t reserved;
	char key[RBK_WIRE_KEY_BYTES];     /* "vram-max"; NUL-terminated */
	char value[RBK_WIRE_VALUE_BYTES]; /* "2GiB"; NUL-terminated */
};

/*
 * ADMIN_EVICT: takes the device memory of a tenant's plans, of one of them, or of all plans; as
 * RBK_OP_EVICT does it: tasks that run there end first, and what is wanted again returns in its
 * turn. Answered when it has begun: n is of plans that leave, bytes what they give back.
 *   -EPERM, -ENOENT (no such tenant, session or plan), -EINVAL (no such device)
 */
struct rbk_wire_admin_evict {
	struct rbk_wire_request request;
	uint32_t tenant;  /* 0: every tenant's */
	uint32_t session; /* its number, with plan_id; 0: all plans of the tenant */
	uint32_t plan_id;
	uint32_t device; /* RBK_DEVICE_NONE: every one */
};

/*
 * ADMIN_DRAIN: from now on no new work. Of a device: nothing new is placed there, what waits for it
 * goes elsewhere, its memory is given back; what runs there ends. Of a tenant: its sessions' rings
 * are not read any further and new sessions of it are refused, until it is resumed; what was
 * admitted completes. Answered at once: n is of tasks that have still to end, bytes what it still
 * has of device memory; asking again tells how far it is. Not kept over a restart.
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
	uint32_t number; /* of the tenant, or RBK_DEVICE_* */
	uint32_t action; /* enum rbk_wire_drain_action */
	uint32_t reserved;
};

struct rbk_wire_admin_result {
	struct rbk_wire_reply reply;
	uint64_t n;
	uint64_t bytes;
	uint32_t is_drained; /* ADMIN_DRAIN: 1: it is being drained, or is */
	uint32_t reserved;
};

/*
 * CATALOGUE: which operators there are, and which device runs them on which element types: bit
 * RBK_DTYPE_* of types[device]; 0: not at all.
 */
#define RBK_WIRE_MAX_OPERATORS 256u
struct rbk_wire_operator {
	char name[32];  /* ONNX's; NUL-terminated */
	uint32_t opset; /* since which the operator is as it is here */
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
 * Leases (RBK_FEAT_LEASES): device memory for programs that drive a device themselves; what they
 * mean is in <ringbroker/lease.h>. A lease is a charge of granted_bytes to its tenant. Sessions are
 * members of it; it is gone with the last of them. Bytes of a lease are given to members as credit,
 * out of which they allocate without asking.
 *
 * LEASE_OPEN: makes a lease, or joins one that a session of the same tenant and user has made. A
 * session is a member of at most one lease of a device. The descriptor is struct rbk_lease_page
 * (<ringbroker/lease.h>), to be mapped read-only. With wait_ms the answer comes when there is room;
 * until then the session's other requests are answered.
 *   -EINVAL     min, wish and max are not in that order, or 0; text says which
 *   -ENODEV     the broker has no such device, or none with memory; JOIN and BY_UUID: the lease is
 *               of another device
 *   -ENOENT     join: there is no such lease
 *   -EPERM      join: it is another tenant's or user's
 *   -EALREADY   the session is a member of a lease of that device
 *   -EBUSY      an administrator drains the device or the tenant, or the device is lost; or 1024
 *               requests of the tenant wait for room on the device, or 64 of the session, and no
 *               more may; or as RING_ADD and STATS_PAGE
 *   -EDQUOT     min is more than the tenant may ever have there (vram-max)
 *   -ENOMEM     no room for min now; text names required, available, tenant
 *   -ETIMEDOUT  nor within wait_ms
 *   -EDEADLK    who has the room waits as well
 */
#define RBK_WIRE_LEASE_JOIN    (1u << 0) /* the lease of that number, of whatever device */
#define RBK_WIRE_LEASE_RESTORE (1u << 1) /* was had of a broker that ended: see below */
#define RBK_WIRE_LEASE_BY_UUID (1u << 2) /* the device is that of uuid; device is 0 */
struct rbk_wire_lease_open {
	struct rbk_wire_request request;
	uint32_t flags;      /* RBK_WIRE_LEASE_* */
	uint32_t number;     /* JOIN, RESTORE: of the lease, else 0 */
	uint32_t device;     /* RBK_DEVICE_*; RBK_DEVICE_NONE: the first with memory; BY_UUID: 0 */
	uint32_t wait_ms;    /* at most so long, in the order of asking; 0: not at all */
	uint8_t uuid[16];    /* VkPhysicalDeviceIDProperties.deviceUUID; else 0 */
	uint64_t min_bytes;  /* below it, rather none; the next two are 0 with JOIN */
	uint64_t wish_bytes; /* granted at once, as far as there is room */
	uint64_t max_bytes;  /* it never grows above that */
	/*
	 * RESTORE: what the member held when the broker ended, credit included: it is there, so it
	 * is charged without waiting, also above max. It is believed as far as nobody else has that
	 * memory or has it reserved: -ENOMEM. The first member makes the lease anew, min, wish and
	 * max as they were, others join.
	 */
	uint64_t held_bytes;
	char program[RBK_WIRE_NAME_BYTES]; /* for listings; NUL-terminated */
};

struct rbk_wire_lease {
	struct rbk_wire_reply reply;
	uint32_t number; /* of the lease: never 0, unique until the broker ends */
	uint32_t device; /* RBK_DEVICE_* */
	uint64_t granted_bytes;
	uint64_t max_bytes;
	uint64_t page_bytes; /* of the memfd, to be mapped whole */
};

/*
 * LEASE_CREDIT: asks for credit of a lease, or gives it back, and says what the member uses. A
 * lease of which all is given away grows, up to its maximum, if its tenant and the device have
 * room.
 *   -ENOENT     the session is no member of it
 *   -ENOMEM, -ETIMEDOUT, -EDEADLK  as above, if not even least_bytes can be had
 *   -EINVAL     it gives back more than it has
 *   -EBUSY      as many of the session's requests wait as may, or of the tenant's for that device
 * Nothing, or a least of 0, is never refused.
 */
struct rbk_wire_lease_credit {
	struct rbk_wire_request request;
	uint32_t lease; /* its number */
	uint32_t wait_ms;
	uint64_t want_bytes;  /* 0: none */
	uint64_t least_bytes; /* at most want_bytes; with less than that, none */
	uint64_t
		return_bytes; /* credit given back, before anything else; with it want_bytes is 0 */
	uint64_t used_bytes;  /* what the member holds of device memory, as it counts, */
	uint64_t extra_bytes; /* and what the driver has beside it, as far as it can be seen: this
				 is within the credit, too */
	uint32_t n_objects;   /* of its allocations, now */
	uint32_t n_refused;   /* since it joined */
	uint64_t peak_bytes;  /* the most that both were since it last said so */
};

/*
 * LEASE_OBJECT: an allocation that can be had by several processes, named by what fstat() says of
 * its descriptor. It is charged once to a tenant, to the first of its leases that names it or to
 * one that says that it is larger, and stays charged, to another that named it if need be, until
 * all have let it go. A member names each once.
 *   ADD   given_bytes is 0: it was charged already, or bytes: now to this member's lease. The
 *         member has from_credit_bytes less credit from then on, in either case. -ENOMEM: the lease
 *         has no room for it; -EINVAL: it has not that much credit, or the object no size;
 *         -EALREADY: it has named it; -ENOSPC: too many.
 *   DROP  the member has no more of it; gives it no credit. -ENOENT: it had not.
 */
#define RBK_WIRE_LEASE_MAX_OBJECTS 4096u /* of a member */
enum rbk_wire_lease_object_action {
	RBK_WIRE_OBJECT_ADD = 1,
	RBK_WIRE_OBJECT_DROP = 2,
};
struct rbk_wire_lease_object {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t action; /* enum rbk_wire_lease_object_action */
	uint64_t dev, ino;
	uint64_t bytes; /* ADD: rounded up to pages */
	/* ADD: of the member's credit, that pays for it: an export of what it has allocated. */
	uint64_t from_credit_bytes;
};

/*
 * LEASE_RESIZE: another wish for a lease: it grows at once, as far as there is free room, or is
 * asked to shrink: what is not given as credit is taken back now, the rest as members give it back.
 * It grows no further than that wish from then on. By who opened it, or an administrator who may
 * change something.
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
 * LEASE_CGROUP: the cgroup that the lease's programs are in, which need not be members themselves.
 * The descriptor is its folder in the unified hierarchy. It stays the lease's to the end.
 *   -ENOENT     the session is no member of it
 *   -ENOTDIR    the descriptor is no such folder
 *   -EPERM      the folder is another user's than the lease
 *   -EALREADY   the lease has another one
 *   -EBUSY      another lease of the device has it
 *   -EDQUOT     too many descriptors
 */
struct rbk_wire_lease_cgroup {
	struct rbk_wire_request request;
	uint32_t lease;
	uint32_t reserved;
};

struct rbk_wire_lease_region {
	struct rbk_wire_reply reply;
	/*
	 * What regions of the device's memory are called by the kernel's dmem controller, without
	 * the number that some end with; NUL-terminated; empty: not known.
	 */
	char region[RBK_WIRE_NAME_BYTES];
};

struct rbk_wire_lease_given {
	struct rbk_wire_reply reply;
	uint64_t given_bytes;   /* CREDIT: credit beside what the member had */
	uint64_t granted_bytes; /* the lease has now */
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
_Static_assert(sizeof(struct rbk_wire_admin_evict) == 24, "wire");
_Static_assert(sizeof(struct rbk_wire_admin_drain) == 24, "wire");
_Static_assert(sizeof(struct rbk_wire_admin_result) == 552, "wire");
_Static_assert(sizeof(struct rbk_wire_operator) == 104, "wire");
_Static_assert(sizeof(struct rbk_wire_catalogue) == 536, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_open) == 136, "wire");
_Static_assert(sizeof(struct rbk_wire_lease) == 560, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_credit) == 72, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_object) == 48, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_resize) == 24, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_cgroup) == 16, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_region) == 592, "wire");
_Static_assert(sizeof(struct rbk_wire_lease_given) == 544, "wire");
