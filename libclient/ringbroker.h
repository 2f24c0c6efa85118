#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * libringbroker: run ONNX operators on whatever this machine has, through brokerd
 *
 * A program connects, fills arenas (shared memory), describes its computation once as a plan, and
 * then runs it by writing one entry into a ring. Names and habits are liburing's:
 *
 *	struct rbk_sqe *sqe = rbk_get_sqe(ring);
 *
 *	rbk_prep_run(sqe, rbk_plan_id(plan), 1, refs, 3);
 *	rbk_sqe_set_data64(sqe, 42);
 *	rbk_submit_and_wait(ring, 1);
 *	while (!rbk_peek_cqe(ring, &cqe)) {
 *		use(rbk_cqe_get_data64(cqe), cqe->res);
 *		rbk_cqe_seen(ring, cqe);
 *	}
 *
 * Errors. Functions that can fail return 0 (or a count) or a negative errno. Those that take a
 * struct rbk_error fill it with a sentence for people when they fail; it may be NULL. Results are
 * written on success only. Everywhere:
 *   -EINVAL      the arguments are impossible
 *   -ECHILD      the connection was made by another process: a fork()ed child must connect anew
 *   -ECONNRESET  the broker is gone, or it ended this session
 *   -EPROTO      the broker said something that the protocol does not allow; as if it were gone
 *   -ETIME       the broker did not answer a request within the connection's time-out
 *   -ENOMEM      no memory
 *   -EMFILE      this process may not have another file open; what the broker made was given back
 *
 * Threads. The library keeps no global state. Functions on a connection (struct rbk) may be called
 * from any thread at any time. A ring, an arena and a builder are each used by one thread at a
 * time; different ones are independent, so that each thread has a ring of its own. Nothing here is
 * for signal handlers. SIGPIPE is never raised.
 *
 * fork(). The child shares the parent's memory, but not its rings: every call there returns
 * -ECHILD (rbk_get_sqe() NULL, counts 0), except that the free functions release what the child
 * has inherited without disturbing the parent. Arena memory stays readable and is still shared. A
 * child that neither calls exec() nor frees keeps the broker from noticing its parent's death.
 *
 * Lifetime. Rings, arenas and plans may be freed in any order, also after rbk_disconnect(), which
 * ends the session at once: what still exists then answers -ECONNRESET until it is freed.
 * Destructors take NULL and return NULL.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <ringbroker/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rbk;         /* a connection: one session at the broker */
struct rbk_arena;   /* memory that devices read and write in place */
struct rbk_builder; /* a plan being described */
struct rbk_plan;    /* a prepared computation */
struct rbk_ring;    /* a submission and a completion ring */
struct rbk_stats_view;

#define RBK_ERROR_BYTES 512

/* A sentence that says what went wrong, NUL-terminated, without a newline. */
struct rbk_error {
	char text[RBK_ERROR_BYTES];
};

/* ---- Connections ------------------------------------------------------------------------- */

/*
 * How to connect. Zero-initialise it and set size to sizeof(struct rbk_options); what is 0 has its
 * default, so that members can be added.
 */
struct rbk_options {
	size_t size;
	/*
	 * Of the broker's socket. Default: $RINGBROKER_SOCKET; else, if it exists,
	 * $XDG_RUNTIME_DIR/ringbroker/brokerd.sock; else /run/ringbroker/brokerd.sock.
	 */
	const char *socket_path;
	const char *name;    /* of this client, for listings, < 64 bytes. Default: the program's */
	uint64_t timeout_ns; /* for each request to the broker. Default: 30 s */
};

/*
 * Connects to the broker and agrees on a version. @options may be NULL.
 * Return: 0 and the connection, owned by the caller;
 *   -ENOENT, -ECONNREFUSED  no broker listens there
 *   -EACCES                 no permission for the socket
 *   -EPROTONOSUPPORT        the broker speaks another version; the sentence names both
 *   -ENAMETOOLONG           the path does not fit a socket address
 *   -EDQUOT                 above a limit of the tenant or of all; the sentence names it
 *   -EAGAIN                 too many connections of this user wait to be served: later
 *   -EMFILE                 the broker has no descriptor left
 *   or another errno of the socket functions, or what the broker refuses with.
 * Any thread.
 */
int rbk_connect(const struct rbk_options *options, struct rbk **ret, struct rbk_error *error);

/* Ends the session: tasks in flight are abandoned. Return: NULL. Once, when no other call on
 * @rbk itself is running. */
struct rbk *rbk_disconnect(struct rbk *rbk);

/* Features (RBK_FEAT_*) that the broker offers and this library knows. Any thread. */
uint64_t rbk_features(const struct rbk *rbk);

/* The broker's name and version, as it says: "ringbroker 0.1.0". As long as @rbk. Any thread. */
const char *rbk_broker_name(const struct rbk *rbk);

/*
 * For event loops of programs that wait for nothing else of the broker: a descriptor on which
 * poll() reports POLLHUP when it is gone, or has ended the session. Owned by @rbk; only ever polled
 * by the caller, for no events. Return: the descriptor; -ECHILD in a fork()ed child. Any thread.
 */
int rbk_fd(const struct rbk *rbk);

enum rbk_device_kind {
	RBK_DEVICE_KIND_CPU = 0,
	RBK_DEVICE_KIND_GPU = 1,
	RBK_DEVICE_KIND_SOFTWARE_GPU = 2, /* Vulkan on the CPU, for tests */
};

struct rbk_device {
	uint32_t index;        /* RBK_DEVICE_CPU, RBK_DEVICE_GPU, ...: as in rbk_cqe.device */
	uint32_t kind;         /* enum rbk_device_kind */
	uint64_t memory_bytes; /* of its own */
	char name[64];         /* NUL-terminated, as the next two */
	char driver[64];
	char paths[64]; /* memory paths in use, comma separated; CPU: the SIMD level */
};

/*
 * Lists the broker's devices: the first @max_devices into @devices, how many there are into
 * @ret_n_devices (may be more). There are at most RBK_MAX_DEVICES. Asks the broker.
 * Return: 0; errors as above. Any thread.
 */
int rbk_devices(struct rbk *rbk, struct rbk_device *devices, unsigned int max_devices,
		unsigned int *ret_n_devices);

/*
 * Counters since start. "session" is the caller's own; the rest is of all sessions of its tenant,
 * those that have ended included. On the administrators' socket it is the whole broker's. Sums over
 * more than a few sessions may be a tenth of a second old.
 */
struct rbk_stats {
	uint64_t session_tasks[RBK_MAX_DEVICES];    /* completed, by device */
	uint64_t session_reasons[RBK_REASON_COUNT]; /* completed, by reason (enum rbk_reason) */
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

/* Reads the counters. Asks the broker. Return: 0; errors as above. Any thread. */
int rbk_stats(struct rbk *rbk, struct rbk_stats *ret);

/* What is used of something, and how much may be; UINT64_MAX: no limit. */
struct rbk_use {
	uint64_t used;
	uint64_t max;
};

/* A tenant's memory on one device, in bytes. The CPU has none of its own: all 0. */
struct rbk_tenant_device {
	struct rbk_use vram;   /* the device's memory */
	uint64_t vram_reserve; /* never denied, whatever other tenants do */
	uint64_t vram_high;    /* above it, its plans are evicted first */
	struct rbk_use gtt;    /* host memory that the device uses */
};

/*
 * Whom the broker charges what this session holds to: a tenant, which the administrator's policy
 * knows by user, group, cgroup or executable. Other sessions of the same tenant are counted too.
 */
struct rbk_tenant {
	char name[64]; /* NUL-terminated */
	struct rbk_use host_bytes;
	struct rbk_use arena_bytes; /* also counted as host bytes */
	struct rbk_use arenas;
	struct rbk_use plans;
	struct rbk_use sessions;
	uint64_t n_evictions;          /* plans that left a device, since start */
	uint64_t n_returns;            /* plans that came back */
	uint64_t n_memory_constraints; /* tasks placed elsewhere, or refused, for want of memory */
	uint64_t n_refused;            /* requests beyond a limit */
	uint32_t n_devices;
	uint32_t reserved;
	struct rbk_tenant_device devices[RBK_MAX_DEVICES]; /* by RBK_DEVICE_* */
};

/*
 * Asks the broker about the session's own tenant.
 * Return: 0; -EOPNOTSUPP: the broker does not offer RBK_FEAT_TENANTS; errors as above. Any thread.
 */
int rbk_tenant(struct rbk *rbk, struct rbk_tenant *ret);

/* The name of a selection reason, "cost-model"; "unknown" for others. Static. Any thread. */
const char *rbk_reason_name(unsigned int reason);

/*
 * Statistics pages: what the broker counts, for reading without asking; see <ringbroker/stats.h>,
 * which has struct rbk_stats_view and the functions that read it.
 *
 * Maps a page, read-only: @whose is enum rbk_stats_whose, @tenant the number of a tenant for
 * RBK_STATS_OF_TENANT, else 0. The mapping is the caller's until rbk_stats_unmap(), and stays
 * readable whatever becomes of the connection and the broker; its figures are kept up to date as
 * long as the connection is open.
 * Return: 0;
 *   -EOPNOTSUPP  the broker does not offer RBK_FEAT_STATS
 *   -EPERM       others' figures are for root, and the user that the broker runs as
 *   -ENOENT      there is no such tenant, or it has no page
 *   -EDQUOT      the tenant has no room for a page; its tasks run all the same
 *   -EBUSY       too many descriptors are under way to clients that do not receive them
 *   or the above. Any thread.
 */
int rbk_stats_map(struct rbk *rbk, unsigned int whose, uint32_t tenant, struct rbk_stats_view *ret,
		  struct rbk_error *error);

/* Unmaps it, if it is mapped; once. Any thread. */
void rbk_stats_unmap(struct rbk_stats_view *view);

/*
 * Begins counts anew, and has the broker forget what it learned from the tasks that were counted;
 * of RBK_STATS_ALL every tenant's. Arguments and errors as rbk_stats_map(). Any thread.
 */
int rbk_stats_reset(struct rbk *rbk, unsigned int whose, uint32_t tenant, struct rbk_error *error);

/*
 * Force-CPU: while it is on, every task that may runs on the CPU. @value 1 switches it on for the
 * whole broker until it ends, 0 off, RBK_ASK only asks. Whether it is on now goes to @ret_value,
 * which may be NULL.
 * Return: 0; -EOPNOTSUPP: the broker does not offer RBK_FEAT_STATS, or cannot; -EPERM: changing it
 * is for root, and the user that the broker runs as; errors as above. Any thread.
 */
#define RBK_ASK (-1)
int rbk_force_cpu(struct rbk *rbk, int value, int *ret_value, struct rbk_error *error);

/* ---- Arenas ------------------------------------------------------------------------------ */

/* A reference that no arena has: a task that uses it completes with -EBADF. */
#define RBK_REF_INVALID RBK_REF(0xffffu, 0)

/*
 * Makes an arena of @bytes (rounded up to whole pages), zeroed, all of its memory allocated, and
 * shares it with the broker. Devices read and write it in place. Where the broker offers
 * RBK_FEAT_FIXED_ARENAS no process can map it writable anew from then on, or take pages away from
 * it.
 * Return: 0 and the arena, owned by the caller;
 *   -ENOSPC, -ENOMEM  no memory
 *   -EDQUOT           above the broker's limit; the sentence says which
 *   -EBUSY            an administrator drains the tenant, since before this connection, or too many
 *                     descriptors are under way to clients that do not receive them
 *   or the above. Any thread.
 */
int rbk_arena_new(struct rbk *rbk, size_t bytes, struct rbk_arena **ret, struct rbk_error *error);

/* Always memory of this process, which can be sealed and passed on; on some machines devices cannot
 * reach that, and tensors are copied. Right for constants. */
#define RBK_ARENA_MEMFD (1u << 0)

/*
 * rbk_arena_new() with a choice: @flags are RBK_ARENA_* or 0. Without RBK_ARENA_MEMFD the memory is
 * what the broker's first device reaches in place: shared memory of this process where it can, else
 * memory that the device's driver makes (a dma-buf), which the broker's tenant is charged for until
 * it is unmapped everywhere. That makes no difference to any function here.
 */
int rbk_arena_new_flags(struct rbk *rbk, size_t bytes, unsigned int flags, struct rbk_arena **ret,
			struct rbk_error *error);

/*
 * Unmaps the arena and takes it from the broker, once no plan has constants in it and its tasks in
 * flight have completed, for which the last of them waits. Pointers into it are invalid
 * afterwards. Return: NULL.
 */
struct rbk_arena *rbk_arena_free(struct rbk_arena *arena);

/* Its first byte, page-aligned; the same address for its whole life. Read-only once sealed. */
void *rbk_arena_data(const struct rbk_arena *arena);

/* Its size, whole pages. */
size_t rbk_arena_bytes(const struct rbk_arena *arena);

/*
 * Takes @bytes from the arena, aligned to RBK_REF_ALIGN as tensors must be, one after the other.
 * There is no function to give them back but rbk_arena_reset(). The memory holds what it held.
 * Where devices reach large arenas in segments only, it avoids their ends as long as there is room.
 * Return: NULL if they do not fit, or if the arena is sealed.
 */
void *rbk_arena_alloc(struct rbk_arena *arena, size_t bytes);

/* Gives everything back that rbk_arena_alloc() took. */
void rbk_arena_reset(struct rbk_arena *arena);

/*
 * Makes the arena immutable for everybody, for ever, as constants must be: takes it from the
 * broker, maps it read-only at the same address, seals it, and shares it again. References made
 * before are invalid, also if it fails; make them anew. Waits for tasks in flight that use it.
 * Memory that a device's driver made is replaced by a copy.
 * Nothing happens if it is sealed already.
 * Return: 0;
 *   -EBUSY  another process (a fork()ed child, perhaps) maps it writable; it is as it was, or,
 *           where the broker offers RBK_FEAT_FIXED_ARENAS, a copy that the other process does not
 *           share
 *   -ETIME  tasks use it for longer than the connection's time-out
 *   or the above. If it can be sealed but not be shared again, references are RBK_REF_INVALID
 *   and another call tries to share it again.
 */
int rbk_arena_seal(struct rbk_arena *arena, struct rbk_error *error);

/*
 * The reference of a place in the arena, for entries and tables: by @offset in bytes, or by
 * @pointer into its memory. It must be a multiple of RBK_REF_ALIGN, which the broker checks.
 * Return: RBK_REF_INVALID outside the arena.
 */
uint64_t rbk_arena_ref(const struct rbk_arena *arena, uint64_t offset);
uint64_t rbk_ref(const struct rbk_arena *arena, const void *pointer);

/* ---- Describing plans -------------------------------------------------------------------- */

/*
 * A builder collects tensors and nodes. Its functions check what they can at once. The first
 * mistake sticks: later calls do nothing and rbk_plan_new() returns it, so that it is enough to
 * look once. Names of tensors are distinct, not empty, printable ASCII below RBK_NAME_BYTES.
 */

/* The leading dimension that is each task's count, as dims[0]. */
#define RBK_DIM_COUNT 0xffffffffu
/* As rank, with dims NULL, of outputs and scratch: the shape is inferred. */
#define RBK_RANK_INFERRED (-1)
/* As a node's input or output: an optional one that is absent. Also returned on mistakes. */
#define RBK_TENSOR_NONE 0xffffu

/* Return: a builder, owned by the caller; NULL without memory. @name is for listings. Any thread.
 */
struct rbk_builder *rbk_builder_new(const char *name);
struct rbk_builder *rbk_builder_free(struct rbk_builder *builder);

/* The first mistake, a sentence that lives as long as the builder; NULL if there is none. */
const char *rbk_builder_error(const struct rbk_builder *builder);

/*
 * Declares a tensor of @rank dimensions @dims, outermost first, elements in C order. Inputs,
 * outputs and states are bound per task, in the order in which they are declared:
 *   input    read
 *   output   written completely; the shape may be RBK_RANK_INFERRED
 *   state    read, then updated in place: a node may read it, and one may write it
 *   scratch  between nodes, owned by the broker; the shape may be RBK_RANK_INFERRED
 * Return: its id for rbk_builder_node(), or RBK_TENSOR_NONE on a mistake.
 */
unsigned int rbk_builder_input(struct rbk_builder *builder, const char *name, enum rbk_dtype dtype,
			       int rank, const uint32_t *dims);
unsigned int rbk_builder_output(struct rbk_builder *builder, const char *name, enum rbk_dtype dtype,
				int rank, const uint32_t *dims);
unsigned int rbk_builder_state(struct rbk_builder *builder, const char *name, enum rbk_dtype dtype,
			       int rank, const uint32_t *dims);
unsigned int rbk_builder_scratch(struct rbk_builder *builder, const char *name,
				 enum rbk_dtype dtype, int rank, const uint32_t *dims);

/*
 * Declares a constant, which lies at @offset (a multiple of RBK_REF_ALIGN) in @arena. The arena
 * must be sealed when a plan is made, and stay until then; the plan keeps the memory afterwards.
 */
unsigned int rbk_builder_constant(struct rbk_builder *builder, const char *name,
				  enum rbk_dtype dtype, int rank, const uint32_t *dims,
				  const struct rbk_arena *arena, uint64_t offset);

/*
 * Adds a node: the ONNX operator @op ("MatMul") reads @inputs and writes @outputs, by tensor id.
 * Nodes run in the order in which they are added: what one reads is given or was written before.
 * @name is for messages, may be NULL and need not be unique.
 * Return: the node for rbk_builder_attr_*(); after a mistake some number, which those ignore.
 */
unsigned int rbk_builder_node(struct rbk_builder *builder, const char *op, const char *name,
			      const unsigned int *inputs, unsigned int n_inputs,
			      const unsigned int *outputs, unsigned int n_outputs);

/* rbk_builder_node() for the many operators with one or two inputs and one output. */
unsigned int rbk_builder_unary(struct rbk_builder *builder, const char *op, unsigned int input,
			       unsigned int output);
unsigned int rbk_builder_binary(struct rbk_builder *builder, const char *op, unsigned int left,
				unsigned int right, unsigned int output);

/* Sets an attribute of a node, once. Values are copied; ints and floats may be none at all. */
void rbk_builder_attr_int(struct rbk_builder *builder, unsigned int node, const char *name,
			  int64_t value);
void rbk_builder_attr_float(struct rbk_builder *builder, unsigned int node, const char *name,
			    float value);
void rbk_builder_attr_ints(struct rbk_builder *builder, unsigned int node, const char *name,
			   const int64_t *values, unsigned int n_values);
void rbk_builder_attr_floats(struct rbk_builder *builder, unsigned int node, const char *name,
			     const float *values, unsigned int n_values);
void rbk_builder_attr_string(struct rbk_builder *builder, unsigned int node, const char *name,
			     const char *value);

/* The plan runs on @device only (RBK_DEVICE_*), so that its results are always the same bits. */
void rbk_builder_pin_device(struct rbk_builder *builder, unsigned int device);

/*
 * Has the broker compute every node by itself, into memory of its own, and every picture channel
 * after channel. Otherwise it computes an activation (Relu, Clip, Gelu and others, which
 * brokerctl(1) lists) along with the MatMul, Gemm, Conv or ConvTranspose before it, likewise an Add
 * behind a MatMul of what is the same for every row, or as large as the product by one matrix, and
 * elementwise nodes in place, where nobody reads what lies between; float16 is rounded less often
 * then. Nothing is computed along with products of float64. And on the CPU pictures of float32 that
 * Conv, pooling and what is between them read may have their channels last, where that takes less
 * time; terms are summed up in another order then.
 */
void rbk_builder_disable_fusion(struct rbk_builder *builder);

/* ---- Plans ------------------------------------------------------------------------------- */

/*
 * Has the broker prepare what @builder describes, for tasks of 1..@max_count rows (1 if no tensor
 * has RBK_DIM_COUNT). May take long: devices compile and pack. The builder stays the caller's.
 * Return: 0 and the plan, owned by the caller;
 *   -EINVAL  the description is impossible; the sentence names node, tensor and what was expected
 *   -E2BIG   the description is larger than 2 MiB
 *   -EDQUOT  above the broker's limit
 *   -EBUSY   an administrator drains the tenant, since before this connection
 *   or the above. Any thread, as long as no other one uses the builder.
 */
int rbk_plan_new(struct rbk *rbk, const struct rbk_builder *builder, uint32_t max_count,
		 struct rbk_plan **ret, struct rbk_error *error);

/* Takes the plan from the broker, once its tasks in flight have completed. Return: NULL. */
struct rbk_plan *rbk_plan_free(struct rbk_plan *plan);

/* For rbk_prep_run(). Any thread. */
uint32_t rbk_plan_id(const struct rbk_plan *plan);

struct rbk_plan_info {
	uint32_t id;
	uint32_t devices;        /* bit i: device i can run it */
	uint32_t n_refs;         /* references of a task: inputs, outputs and states */
	uint32_t max_count;      /* of a task */
	uint64_t constant_bytes; /* read from arenas, mirrored once on each device */
	uint64_t scratch_bytes;
	uint64_t flops_fixed; /* floating-point operations of one task: fixed + count * row */
	uint64_t flops_row;
	uint64_t bytes_fixed; /* bytes of inputs, outputs, states and constants, likewise */
	uint64_t bytes_row;
};

/* What the broker found out about the plan; makes no request. Any thread. */
void rbk_plan_info(const struct rbk_plan *plan, struct rbk_plan_info *ret);

/* Where a plan stands on one device, in bytes. The CPU has no memory of its own: bytes are 0. */
struct rbk_plan_memory {
	uint32_t state;           /* enum rbk_memory_state */
	uint32_t tier;            /* enum rbk_memory_tier */
	uint64_t required_bytes;  /* to be resident: constants, and working memory of one task */
	uint64_t available_bytes; /* that the tenant could have there for it now, by its right */
	uint64_t resident_bytes;  /* its share of what is there now */
	uint64_t n_evictions;     /* how often it left the device */
	uint64_t n_returns;       /* how often it came back */
};

/*
 * What the plan needs of each device's memory, whether that is there, and if not, why: a plan whose
 * required_bytes exceed available_bytes does not fit, and its tasks complete with
 * RBK_REASON_MEMORY_CONSTRAINT on the CPU, or with -ENOMEM. By device (RBK_DEVICE_*): the first
 * @max_devices into @devices, how many there are into @ret_n_devices (may be more). How many of the
 * plan's tasks were placed elsewhere, or refused, for want of memory goes to @ret_n_constrained,
 * which may be NULL. Asks the broker; what it says may have changed by the time it arrives.
 * Return: 0; -EOPNOTSUPP: the broker does not offer RBK_FEAT_RESIDENCY; errors as above. Any
 * thread.
 */
int rbk_plan_memory(const struct rbk_plan *plan, struct rbk_plan_memory *devices,
		    unsigned int max_devices, unsigned int *ret_n_devices,
		    uint64_t *ret_n_constrained);

/* ---- Rings ------------------------------------------------------------------------------- */

/*
 * Makes a submission and a completion ring of @entries each (rounded up to a power of two, at
 * most RBK_MAX_RING_ENTRIES). Any thread; the ring is then used by one thread at a time.
 * Return: 0 and the ring, owned by the caller; -EDQUOT: above the broker's limit; -EBUSY: an
 * administrator drains the tenant, since before this connection, or too many descriptors are under
 * way to clients that do not receive them; or the above.
 */
int rbk_ring_new(struct rbk *rbk, unsigned int entries, struct rbk_ring **ret,
		 struct rbk_error *error);

/* Gives the ring back. Tasks in flight are finished without a completion. Return: NULL. */
struct rbk_ring *rbk_ring_free(struct rbk_ring *ring);

/*
 * How long a wait spins before it sleeps. By default this follows recent waits (50 us at most, not
 * at all on one processor); after this call it is @spin_ns. A sleep costs 5 to 50 us of latency,
 * spinning costs the processor.
 */
void rbk_ring_set_spin_ns(struct rbk_ring *ring, uint64_t spin_ns);

/*
 * The next free entry, to be filled by one of the rbk_prep_*() functions, which are needed
 * because it holds old contents. The broker sees it after rbk_submit(). An entry is free again once
 * its completion was seen, and often before.
 * Return: NULL if the ring is full (submit, and consume completions), which it stays without a
 * broker, or in a fork()ed child; rbk_submit() tells.
 */
struct rbk_sqe *rbk_get_sqe(struct rbk_ring *ring);

/*
 * Publishes the entries taken since the last call and wakes the broker if it sleeps.
 * Return: how many; -ECONNRESET, -EPROTO or -ECHILD as above, and the entries will not run.
 * Whether a broker that was killed is noticed here or by the next wait depends on the moment.
 */
int rbk_submit(struct rbk_ring *ring);

/*
 * rbk_submit(), then waits until @wait_n completions can be consumed. If fewer tasks than that
 * are in flight, it waits for ever; above the ring's entries it is -EINVAL.
 * Return: the number submitted, also if the wait was interrupted or the broker lost (the next
 * wait says so); if that is 0, what rbk_wait_cqe() would return; or as rbk_submit().
 */
int rbk_submit_and_wait(struct rbk_ring *ring, unsigned int wait_n);

/*
 * The oldest completion that was not consumed. It stays valid until rbk_cqe_seen() or
 * rbk_cq_advance(). Completions that arrived before the broker was lost are still returned.
 * Return:
 *   peek  0; -EAGAIN if there is none
 *   wait  0; -EINTR if a signal was handled while sleeping
 *   wait_cqe_timeout  likewise; -ETIME after @timeout_ns without one
 *   -ECONNRESET, -EPROTO, -ECHILD as above. Peeking alone notices a killed broker within 100 ms
 *   if done at least once a millisecond; waiting notices at once.
 */
int rbk_peek_cqe(struct rbk_ring *ring, const struct rbk_cqe **ret);
int rbk_wait_cqe(struct rbk_ring *ring, const struct rbk_cqe **ret);
int rbk_wait_cqe_timeout(struct rbk_ring *ring, const struct rbk_cqe **ret, uint64_t timeout_ns);

/*
 * Up to @max_cqes completions, oldest first, without consuming them. Return: how many, 0 if there
 * are none; errors as rbk_peek_cqe().
 */
int rbk_peek_batch_cqe(struct rbk_ring *ring, const struct rbk_cqe **cqes, unsigned int max_cqes);

/* Consumes the @n oldest completions; more than there are is cut down to those. */
void rbk_cq_advance(struct rbk_ring *ring, unsigned int n);

/* Entries taken but not consumed by the broker; entries that can be taken; completions to consume.
 */
unsigned int rbk_sq_ready(const struct rbk_ring *ring);
unsigned int rbk_sq_space_left(const struct rbk_ring *ring);
unsigned int rbk_cq_ready(const struct rbk_ring *ring);

/* The completion @index after the oldest one, without consuming it; NULL if there is none yet. */
const struct rbk_cqe *rbk_cq_at(struct rbk_ring *ring, unsigned int index);

/*
 * For event loops: a descriptor that becomes readable at the next completion after
 * rbk_ring_arm(), or when the broker is lost. Owned by the ring; only ever polled by the caller,
 * never read, written or made to do anything else. With epoll:
 *
 *	epoll_ctl(epoll, EPOLL_CTL_ADD, rbk_ring_fd(ring), &event);
 *	for (;;) {
 *		while (!(r = rbk_peek_cqe(ring, &cqe))) {
 *			use(cqe);
 *			rbk_cqe_seen(ring, cqe);
 *		}
 *		if (r != -EAGAIN)
 *			break;
 *		if (rbk_ring_arm(ring) == 0)
 *			epoll_wait(epoll, &event, 1, -1);
 *	}
 *
 * Peeking and waiting disarm it. Return: the descriptor; -ECHILD in a fork()ed child.
 */
int rbk_ring_fd(const struct rbk_ring *ring);

/* Return: 0, now armed: sleep; 1, completions are there: do not; errors as rbk_peek_cqe(). */
int rbk_ring_arm(struct rbk_ring *ring);

/* ---- Entries: inline, on memory of the ring ---------------------------------------------- */

/*
 * Each rbk_prep_*() overwrites the whole entry; what the rbk_sqe_set_*() functions set is set
 * after it. See struct rbk_sqe for the meaning of everything and the errors of completions.
 */

/* Completes with 0. */
static inline void rbk_prep_nop(struct rbk_sqe *sqe)
{
	memset(sqe, 0, sizeof(*sqe));
}

/*
 * Runs a plan over @count rows (1 if no tensor has RBK_DIM_COUNT), with @n_refs references in the
 * order in which inputs, outputs and states were declared, at most RBK_SQE_REFS.
 */
static inline void rbk_prep_run(struct rbk_sqe *sqe, uint32_t plan_id, uint32_t count,
				const uint64_t *refs, unsigned int n_refs)
{
	unsigned int i;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_RUN;
	sqe->plan_id = plan_id;
	sqe->count = count;
	for (i = 0; i < RBK_SQE_REFS && i < n_refs; i++)
		sqe->refs[i] = refs[i];
}

/*
 * Likewise for up to RBK_MAX_REFS references, which lie in an arena as uint64_t[n_refs] at
 * @table_ref. They are copied when the broker takes the entry: leave them until it completes.
 */
static inline void rbk_prep_run_table(struct rbk_sqe *sqe, uint32_t plan_id, uint32_t count,
				      uint64_t table_ref, uint32_t n_refs)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_RUN;
	sqe->flags = RBK_SQE_ARG_TABLE;
	sqe->plan_id = plan_id;
	sqe->count = count;
	sqe->table = table_ref;
	sqe->n_refs = n_refs;
}

/*
 * Cancels the oldest task of this ring whose user_data is @target: that task completes with
 * -ECANCELED. One that has begun on the CPU is stopped, unless it updates a state; its outputs may
 * hold anything then. Completes with
 *   -ENOENT      there is no such task
 *   -EALREADY    it is running and cannot be stopped
 */
static inline void rbk_prep_cancel(struct rbk_sqe *sqe, uint64_t target)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_CANCEL;
	sqe->target = target;
}

/* Completes after all earlier entries; later ones start after it. */
static inline void rbk_prep_barrier(struct rbk_sqe *sqe)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_BARRIER;
}

/*
 * Brings what a plan needs into a device's memory, evicting what may be evicted; completes with 0
 * when it is there, and says on which device. rbk_sqe_set_strategy() with
 * RBK_STRATEGY_DEVICE(index) names one; without, any that can run the plan. With
 * rbk_sqe_set_wait_memory() it waits for room. Completes with
 *   -ENOMEM      there is no room, or it never fits; rbk_plan_memory() tells
 *   -ENODEV      there is no such device, or it cannot run the plan, or has no memory of its own
 *   -EIO         the device was lost
 *   -ENOENT      there is no such plan
 *   -ECANCELED   cancelled, or the plan was removed, or evicted before it was there: by
 *                rbk_prep_evict() or an administrator
 *   -EOPNOTSUPP  the broker does not offer RBK_FEAT_RESIDENCY
 */
static inline void rbk_prep_prefetch(struct rbk_sqe *sqe, uint32_t plan_id)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_PREFETCH;
	sqe->plan_id = plan_id;
}

/*
 * Gives a plan's device memory back, once its tasks on the device have completed, and completes
 * when it is gone. Until somebody wants it again (a task, a PREFETCH) it stays away. On the device
 * that rbk_sqe_set_strategy() names, else on all. Errors as rbk_prep_prefetch(), but for -ENOMEM.
 */
static inline void rbk_prep_evict(struct rbk_sqe *sqe, uint32_t plan_id)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_EVICT;
	sqe->plan_id = plan_id;
}

/* What the completion returns as user_data: a number or a pointer. */
static inline void rbk_sqe_set_data64(struct rbk_sqe *sqe, uint64_t data)
{
	sqe->user_data = data;
}

static inline void rbk_sqe_set_data(struct rbk_sqe *sqe, void *data)
{
	sqe->user_data = (uint64_t)(uintptr_t)data;
}

/* Adds RBK_SQE_* flags, such as RBK_SQE_LINK: the next entry starts after this one succeeded. */
static inline void rbk_sqe_set_flags(struct rbk_sqe *sqe, unsigned int flags)
{
	sqe->flags = (uint8_t)(sqe->flags | flags);
}

/* Where to run: enum rbk_strategy, or RBK_STRATEGY_DEVICE(index). */
static inline void rbk_sqe_set_strategy(struct rbk_sqe *sqe, unsigned int strategy)
{
	sqe->strategy = (uint8_t)strategy;
}

/*
 * The task, made by rbk_prep_run() or rbk_prep_run_table(), does not run on the CPU because its
 * plan's memory is not on the device: it waits until it is, however long that takes, and can be
 * cancelled meanwhile. It does not wait for a plan that never fits. A broker without
 * RBK_FEAT_RESIDENCY does not know the flag: -EINVAL. For a PREFETCH: it waits for room.
 */
static inline void rbk_sqe_set_wait_memory(struct rbk_sqe *sqe)
{
	sqe->flags = (uint8_t)(sqe->flags | RBK_SQE_WAIT_MEMORY);
}

/* enum rbk_priority, among the caller's own tasks. */
static inline void rbk_sqe_set_priority(struct rbk_sqe *sqe, unsigned int priority)
{
	sqe->priority = (uint8_t)priority;
}

/* Relative to when the broker takes the entry; 0: none. */
static inline void rbk_sqe_set_deadline_us(struct rbk_sqe *sqe, uint32_t deadline_us)
{
	sqe->deadline_us = deadline_us;
}

/* What rbk_sqe_set_data64() or rbk_sqe_set_data() was given. */
static inline uint64_t rbk_cqe_get_data64(const struct rbk_cqe *cqe)
{
	return cqe->user_data;
}

static inline void *rbk_cqe_get_data(const struct rbk_cqe *cqe)
{
	return (void *)(uintptr_t)cqe->user_data;
}

/* Consumes the oldest completion, which is @cqe. Nothing happens if it is NULL. */
static inline void rbk_cqe_seen(struct rbk_ring *ring, const struct rbk_cqe *cqe)
{
	if (cqe)
		rbk_cq_advance(ring, 1);
}

/*
 * Walks over the completions that are there, without consuming them; then call
 * rbk_cq_advance(ring, head). @head is an unsigned int, @cqe a const struct rbk_cqe pointer.
 */
#define rbk_for_each_cqe(ring, head, cqe) \
	for ((head) = 0; ((cqe) = rbk_cq_at((ring), (head))) != NULL; (head)++)

#ifdef __cplusplus
}
#endif
