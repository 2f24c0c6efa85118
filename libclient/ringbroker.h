#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * libringbroker: run ONNX operators on this machine's devices, through brokerd
 *
 * A program connects, fills arenas (shared memory) and describes its computation once, as a plan.
 * It then runs the plan by writing one entry into a ring. Names and conventions are those of
 * liburing:
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
 * Errors. Functions that can fail return 0 (or a count) or a negative errno. Functions that take a
 * struct rbk_error write a sentence for people into it when they fail; the pointer may be NULL.
 * Results are written on success only. Any function may return:
 *   -EINVAL      the arguments are impossible
 *   -ECHILD      another process made the connection: a fork()ed child must connect anew
 *   -ECONNRESET  the broker ended this session, or it is gone, and the session could not be
 *                restored at another one: see rbk_connect()
 *   -EPROTO      the broker violated the protocol; the connection is lost
 *   -ETIME       the broker did not answer a request within the connection's timeout, or none was
 *                there
 *   -ENOMEM      no memory
 *   -EMFILE      this process has no free descriptor; the object that the broker made was given
 *                back
 *
 * Descriptors. A connection, a ring and an arena take one descriptor each. A statistics page, a
 * sealed arena and a large plan take one for a moment. If the connection may re-attach, it takes
 * two, a ring three or, with rbk_ring_fd(), four, and an arena keeps its own until no plan has
 * constants in it. While it re-attaches, it takes one more, two more for each ring until the ring's
 * thread uses the ring again, and two more for a moment. Remedy where there are too few: raise the
 * soft limit of open files (ulimit -n, setrlimit(RLIMIT_NOFILE), LimitNOFILE= of the service), use
 * fewer and larger arenas, or free what is unused.
 *
 * Threads. The library keeps no global state. Functions on a connection (struct rbk) may be called
 * from any thread at any time. A ring, an arena and a builder are each used by one thread at a
 * time. Different rings are independent, so each thread can have its own ring. No function is safe
 * in a signal handler. SIGPIPE is never raised. The library has no thread, except one for each
 * connection that re-attaches, until it has done so.
 *
 * fork(). The child shares the parent's memory, but not its rings. Every call in the child returns
 * -ECHILD (rbk_get_sqe() NULL, counts 0). The free functions are the exception: they release what
 * the child has inherited without disturbing the parent. Arena memory stays readable and is still
 * shared, until the parent's connection re-attaches. A child that neither calls exec() nor frees
 * keeps the broker from noticing its parent's death.
 *
 * Lifetime. Rings, arenas and plans may be freed in any order, also after rbk_disconnect(), which
 * ends the session at once. Objects that still exist then return -ECONNRESET until they are freed.
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
struct rbk_builder; /* a plan under construction */
struct rbk_plan;    /* a prepared computation */
struct rbk_ring;    /* a submission and a completion ring */
struct rbk_stats_view;

#define RBK_ERROR_BYTES 512

/* A sentence that describes the failure, NUL-terminated, without a newline. */
struct rbk_error {
	char text[RBK_ERROR_BYTES];
};

/* ---- Connections ------------------------------------------------------------------------- */

/* struct rbk_options.flags: the connection is lost when its broker dies. */
#define RBK_CONNECT_NO_REATTACH (1u << 0)

/* Outcome of a re-attachment, see rbk_connect(). */
struct rbk_reattachment {
	uint64_t gap_ns;   /* time from the notice of the broker's death to the end */
	uint64_t wait_ns;  /* part of it until the next broker answered */
	uint32_t n_arenas; /* objects that were restored */
	uint32_t n_plans;
	uint32_t n_rings;
	uint32_t n_tasks;  /* that the earlier broker had taken and not completed; they run again */
	int r;             /* 0; negative errno: the connection is lost */
	const char *text;  /* why, if r is not 0, as a sentence; lives until the callback returns */
	uint32_t n_leases; /* leases that were restored */
	uint32_t reserved;
};

/*
 * Options of rbk_connect(). Zero-initialise the struct and set size to sizeof(struct rbk_options).
 * A member that is 0 has its default; a later version can therefore add members.
 */
struct rbk_options {
	size_t size;
	/*
	 * Path of the broker's socket. Default: $RINGBROKER_SOCKET; else
	 * $XDG_RUNTIME_DIR/ringbroker/brokerd.sock if it exists; else /run/ringbroker/brokerd.sock.
	 */
	const char *socket_path;
	const char *name; /* this client's name in listings, < 64 bytes. Default: the program's */
	uint64_t timeout_ns;  /* timeout of each request. Default: 30 s */
	unsigned int flags;   /* RBK_CONNECT_* */
	uint64_t reattach_ns; /* longest wait for a broker after the last one died. Default: 30 s */
	/*
	 * Called at the end of each re-attachment, on a thread of the library that handles no
	 * signals; not if rbk_disconnect() ended it. The function must not use rings, and must not
	 * call rbk_disconnect() or functions that make requests or free objects. It may call those
	 * that only read, such as rbk_n_reattached(). rbk_disconnect() waits until it returns.
	 */
	void (*on_reattach)(struct rbk *rbk, const struct rbk_reattachment *about, void *data);
	void *on_reattach_data;
};

/*
 * Connect to the broker and agree on a version. @options may be NULL.
 *
 * If the broker offers RBK_FEAT_REATTACH and dies, or is restarted, the connection re-attaches by
 * itself: a thread of the library connects to the next broker at the same socket, and restores
 * leases, arenas, plans and rings there; all but leases under the same numbers. Tasks that were
 * submitted and had not completed run again, and each completes exactly once; meanwhile more can be
 * submitted. Waits and requests go on, at most until reattach_ns. What a task wrote into its
 * outputs before may be written again. States of a task that had begun are first written back as
 * they were before it, so that each update is applied once. The broker keeps them for up to 64 KiB
 * in all of the states that a ring's tasks in flight update (in units of 1 KiB for each task), with
 * RBK_FEAT_UNDO; a task that had begun without room for its states completes with -ECONNRESET, and
 * they may be half updated. A task that crashes two brokers (a kill is no crash) does not run
 * again: it completes with -ECONNABORTED. While the session is being restored, calls that make,
 * seal or free objects wait for that, too. Arenas keep their addresses, but are new memory if the
 * broker had fixed them (RBK_FEAT_FIXED_ARENAS): see rbk_arena_new().
 *
 * The library has no thread while there is a broker, so an idle program notices the death at its
 * next call or wait, or when an event loop reports it (rbk_ring_fd(), rbk_fd()); on_reattach is
 * called after that. So does one that is stopped (SIGSTOP) and continued; the time that it was
 * stopped before it noticed the death does not count, and one that was stopped during a
 * re-attachment has at least one more try. A fork()ed child has no part in this: it is told
 * -ECHILD as before, and keeps the old memory of arenas that move. The thread connects to the path
 * that the socket had when the connection was made, with the credentials that the program has then:
 * one that has dropped privileges may be another user's, in another tenant, or not be let in. It
 * has the scheduling policy SCHED_OTHER and the processors (sched_setaffinity()) of the thread that
 * noticed the death.
 *
 * The connection is lost for ever (-ECONNRESET) if no broker comes back within options.reattach_ns,
 * or if the next broker does not offer a feature that this one did, or does not restore an object.
 * The sentences of later errors say why. It is also lost if the broker ended this session alone, if
 * it has an arena that cannot be restored (see rbk_arena_new()), if it has or had a lease and the
 * broker does not offer RBK_FEAT_RESTORE, or with RBK_CONNECT_NO_REATTACH. Then free the session's
 * objects, connect anew after a pause, and make arenas, plans and rings again, as the example
 * reconnect.c of the documentation does.
 *
 * Return: 0 and the connection, owned by the caller;
 *   -ENOENT, -ECONNREFUSED  no broker listens on the socket
 *   -EACCES                 no permission for the socket
 *   -EPROTONOSUPPORT        the broker speaks another version; the sentence names both
 *   -ENAMETOOLONG           the path does not fit a socket address
 *   -EDQUOT                 above a limit of the tenant or of the broker; the sentence names it
 *   -EAGAIN                 too many connections of this user are pending; retry later
 *   -EMFILE                 this process has no free descriptor, or the broker has none: the
 *                           sentence says which. The broker's limit is LimitNOFILE= of
 *                           brokerd.service.
 * or another errno of the socket functions, or the broker's errno. Any thread.
 */
int rbk_connect(const struct rbk_options *options, struct rbk **ret, struct rbk_error *error);

/*
 * End the session and abandon its tasks in flight. A re-attachment ends, too. Call once, when no
 * other call on @rbk is running.
 * Return: NULL.
 */
struct rbk *rbk_disconnect(struct rbk *rbk);

/*
 * Return the features (RBK_FEAT_*) that the broker offers and this library knows. A re-attachment
 * does not change them. Any thread.
 */
uint64_t rbk_features(const struct rbk *rbk);

/* Return the number of re-attachments so far, see rbk_connect(). Any thread. */
unsigned int rbk_n_reattached(const struct rbk *rbk);

/*
 * Return the broker's name and version as the broker reports them: "ringbroker 0.1.0". The string
 * lives as long as @rbk. Any thread.
 */
const char *rbk_broker_name(const struct rbk *rbk);

/*
 * Return a descriptor for event loops of programs that wait for nothing else from the broker.
 * poll() reports POLLHUP on the descriptor when the broker is gone or has ended the session. After
 * a re-attachment the same number is the next broker's socket: an epoll set has lost it then, and
 * it must be added again. @rbk owns the descriptor; the caller may only poll it, with no events
 * requested.
 * Return: the descriptor; -ECHILD in a fork()ed child. Any thread.
 */
int rbk_fd(const struct rbk *rbk);

enum rbk_device_kind {
	RBK_DEVICE_KIND_CPU = 0,
	RBK_DEVICE_KIND_GPU = 1,
	RBK_DEVICE_KIND_SOFTWARE_GPU = 2, /* Vulkan on the CPU, for tests */
};

struct rbk_device {
	/* index of the device, RBK_DEVICE_CPU, RBK_DEVICE_GPU, ...; as in rbk_cqe.device */
	uint32_t index;
	uint32_t kind;         /* enum rbk_device_kind */
	uint64_t memory_bytes; /* size of the device's own memory */
	char name[64];         /* NUL-terminated, as are driver and paths */
	char driver[64];
	char paths[64]; /* memory paths in use, comma separated; CPU: the SIMD level */
};

/*
 * List the broker's devices: store the first @max_devices in @devices and the total number, which
 * may be larger, in @ret_n_devices. The broker has at most RBK_MAX_DEVICES. Sends a request to the
 * broker.
 * Return: 0; errors as above. Any thread.
 */
int rbk_devices(struct rbk *rbk, struct rbk_device *devices, unsigned int max_devices,
		unsigned int *ret_n_devices);

/* List the devices as rbk_devices() does, with a sentence in @error if that fails. Any thread. */
int rbk_get_devices(struct rbk *rbk, struct rbk_device *devices, unsigned int max_devices,
		    unsigned int *ret_n_devices, struct rbk_error *error);

/*
 * Counters since the broker's start. Members that begin with "session" count the caller's session.
 * The other members sum over all sessions of its tenant, including ended sessions; on the
 * administrators' socket they sum over the whole broker. Sums over more than a few sessions may be
 * a tenth of a second old.
 */
struct rbk_stats {
	uint64_t session_tasks[RBK_MAX_DEVICES];    /* tasks completed, by device */
	uint64_t session_reasons[RBK_REASON_COUNT]; /* tasks completed, by reason (enum rbk_reason)
						     */
	uint64_t session_errors;                    /* tasks completed with a negative result */
	uint64_t session_copied_bytes;              /* tensor bytes copied by a CPU */
	uint64_t session_transferred_bytes; /* tensor bytes copied by a device's own engine */
	uint64_t sessions;                  /* sessions that exist now */
	uint64_t rings;
	uint64_t arenas;
	uint64_t plans;
	uint64_t tasks_in_flight;
	uint64_t host_bytes;   /* charged now: arenas, rings, packed weights, scratch */
	uint64_t device_bytes; /* charged now: constants, scratch, staging */
	uint64_t tasks_completed;
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t sessions_ended_hostile; /* sessions closed for violating a rule */
};

/* Read the counters. Sends a request to the broker. Return: 0; errors as above. Any thread. */
int rbk_stats(struct rbk *rbk, struct rbk_stats *ret);

/* Read the counters as rbk_stats() does, with a sentence in @error if that fails. Any thread. */
int rbk_get_stats(struct rbk *rbk, struct rbk_stats *ret, struct rbk_error *error);

/* Current use of a resource, and its limit; UINT64_MAX: no limit. */
struct rbk_use {
	uint64_t used;
	uint64_t max;
};

/*
 * A tenant's memory on one device, in bytes. The CPU has no memory of its own: all members are 0.
 */
struct rbk_tenant_device {
	struct rbk_use vram;   /* the device's own memory */
	uint64_t vram_reserve; /* reserve: never denied, whatever other tenants use */
	uint64_t vram_high;    /* above this many bytes the tenant's plans are evicted first */
	struct rbk_use gtt;    /* host memory that the device uses */
};

/*
 * The tenant that the broker charges for this session. The administrator's policy assigns a session
 * to a tenant by user, group, cgroup or executable. The figures include the tenant's other
 * sessions.
 */
struct rbk_tenant {
	char name[64]; /* NUL-terminated */
	struct rbk_use host_bytes;
	struct rbk_use arena_bytes; /* also counted in host_bytes */
	struct rbk_use arenas;
	struct rbk_use plans;
	struct rbk_use sessions;
	uint64_t n_evictions;          /* plans evicted from a device, since start */
	uint64_t n_returns;            /* evicted plans loaded again, since start */
	uint64_t n_memory_constraints; /* tasks placed elsewhere, or rejected, for lack of memory */
	uint64_t n_refused;            /* requests rejected because of a limit */
	uint32_t n_devices;
	uint32_t reserved;
	struct rbk_tenant_device devices[RBK_MAX_DEVICES]; /* indexed by RBK_DEVICE_* */
};

/*
 * Read the limits and the use of the session's own tenant. Sends a request to the broker.
 * Return: 0; -EOPNOTSUPP: the broker does not offer RBK_FEAT_TENANTS; errors as above. Any thread.
 */
int rbk_tenant(struct rbk *rbk, struct rbk_tenant *ret);

/* Read the limits as rbk_tenant() does, with a sentence in @error if that fails. Any thread. */
int rbk_get_tenant(struct rbk *rbk, struct rbk_tenant *ret, struct rbk_error *error);

/*
 * Return the name of a selection reason, such as "cost-model"; "unknown" for other numbers. The
 * string is static. Any thread.
 */
const char *rbk_reason_name(unsigned int reason);

/*
 * Map a statistics page, read-only. Statistics pages hold everything that the broker counts and are
 * read without a request; see <ringbroker/stats.h>, which defines struct rbk_stats_view and the
 * functions that read it.
 *
 * @whose is enum rbk_stats_whose. @tenant is a tenant's number for RBK_STATS_OF_TENANT, else 0. The
 * caller owns the mapping until rbk_stats_unmap(). The mapping stays readable whatever becomes of
 * the connection and the broker; its figures are updated as long as that broker serves the
 * connection. After a re-attachment (rbk_n_reattached()), map the next broker's page.
 * Return: 0;
 *   -EOPNOTSUPP  the broker does not offer RBK_FEAT_STATS
 *   -EPERM       only root and the user that the broker runs as may read figures of others
 *   -ENOENT      the tenant does not exist, or it has no page
 *   -EDQUOT      the tenant's limits leave no room for a page; its tasks run all the same
 *   -EBUSY       too many descriptors are in flight to clients that do not receive them
 * or as above. Any thread.
 */
int rbk_stats_map(struct rbk *rbk, unsigned int whose, uint32_t tenant, struct rbk_stats_view *ret,
		  struct rbk_error *error);

/* Unmap a page, if @view is mapped. Call once. Any thread. */
void rbk_stats_unmap(struct rbk_stats_view *view);

/*
 * Reset the counters, and have the broker forget what it learned from the counted tasks.
 * RBK_STATS_ALL resets every tenant's. Arguments and errors as rbk_stats_map(). Any thread.
 */
int rbk_stats_reset(struct rbk *rbk, unsigned int whose, uint32_t tenant, struct rbk_error *error);

/*
 * Switch force-CPU mode on or off, or ask for its state. While it is on, every task that may run on
 * the CPU does. @value 1 switches it on for the whole broker until the broker ends, 0 switches it
 * off, RBK_ASK only asks. The resulting state is stored in @ret_value, which may be NULL.
 * Return: 0; -EOPNOTSUPP: the broker does not offer RBK_FEAT_STATS, or cannot force the CPU;
 * -EPERM: only root and the user that the broker runs as may change the mode; errors as above. Any
 * thread.
 */
#define RBK_ASK (-1)
int rbk_force_cpu(struct rbk *rbk, int value, int *ret_value, struct rbk_error *error);

/* ---- Arenas ------------------------------------------------------------------------------ */

/* A reference to no arena: a task that uses it completes with -EBADF. */
#define RBK_REF_INVALID RBK_REF(0xffffu, 0)

/*
 * Make an arena of @bytes (rounded up to whole pages), zeroed, with all of its memory allocated,
 * and share it with the broker. Devices read and write it in place. Where the broker offers
 * RBK_FEAT_FIXED_ARENAS, no process can from then on map the arena writable anew, or remove pages
 * from it.
 *
 * A re-attachment moves such an arena to new memory at the same address, and needs twice its memory
 * for a moment. Threads that write it meanwhile wait; threads that read it do not. But:
 *   - System calls that write into the arena, such as read() and recv(), fail with EFAULT or end
 *     early meanwhile: repeat them. With CAP_SYS_PTRACE, or where the sysctl
 *     vm.unprivileged_userfaultfd is 1, they wait, except for futex operations.
 *   - Writes that do not pass through the mapping are lost: O_DIRECT, buffers registered with
 *     io_uring, DMA, other mappings of the memfd. fork()ed children, and processes to which the
 *     program passed the arena, keep the old memory.
 *   - The new memory does not inherit mlock(), madvise() and mbind().
 * This takes Linux 5.19 and the permission to use userfaultfd, which seccomp filters of containers
 * may deny. Where these are missing, a connection does not re-attach while it has such an arena,
 * unless the arena is sealed.
 *
 * An arena in memory of a device (see rbk_arena_new_flags()) stays where it is: with
 * RBK_FEAT_RESTORE the next broker takes over the same memory. It need not have the device: other
 * devices and the CPU then use the memory through copies. A connection whose broker does not offer
 * RBK_FEAT_RESTORE does not re-attach while it has such an arena.
 * Return: 0 and the arena, owned by the caller;
 *   -ENOSPC, -ENOMEM  no memory
 *   -EDQUOT           above a limit of the broker; the sentence names it
 *   -EBUSY            draining of the tenant began before this connection, or too many
 *                     descriptors are in flight to clients that do not receive them
 * or as above. Any thread.
 */
int rbk_arena_new(struct rbk *rbk, size_t bytes, struct rbk_arena **ret, struct rbk_error *error);

/*
 * Use memory of this process, which can be sealed and passed on. On some machines devices cannot
 * reach such memory in place, and tensors are copied. Suitable for constants.
 */
#define RBK_ARENA_MEMFD (1u << 0)

/*
 * Make an arena as rbk_arena_new() does, with @flags: RBK_ARENA_* or 0. Without RBK_ARENA_MEMFD the
 * memory is of a kind that the broker's first device reaches in place. That is shared memory of
 * this process where the device can reach it, else memory that the device's driver makes (a
 * dma-buf). A dma-buf is charged to the tenant until it is unmapped everywhere. All functions here
 * work on both kinds.
 */
int rbk_arena_new_flags(struct rbk *rbk, size_t bytes, unsigned int flags, struct rbk_arena **ret,
			struct rbk_error *error);

/*
 * Unmap the arena and remove it from the broker. The broker keeps the arena until no plan has
 * constants in it, and until its tasks in flight have completed; freeing the last reference waits
 * for these tasks, as rbk_plan_free() does. Pointers into the arena become invalid. Return: NULL.
 */
struct rbk_arena *rbk_arena_free(struct rbk_arena *arena);

/*
 * Return the arena's first byte. The address is page-aligned and the same for the arena's whole
 * life. The memory is read-only once sealed.
 */
void *rbk_arena_data(const struct rbk_arena *arena);

/* Return the arena's size in bytes, a multiple of the page size. */
size_t rbk_arena_bytes(const struct rbk_arena *arena);

/*
 * Allocate @bytes from the arena, aligned to RBK_REF_ALIGN as tensors must be. Allocations are
 * consecutive, and only rbk_arena_reset() frees them. The memory keeps its previous contents. Where
 * devices reach large arenas in segments only, an allocation does not straddle the end of a segment
 * as long as there is room.
 * Return: the memory; NULL if @bytes do not fit, or if the arena is sealed.
 */
void *rbk_arena_alloc(struct rbk_arena *arena, size_t bytes);

/* Free everything that rbk_arena_alloc() allocated. */
void rbk_arena_reset(struct rbk_arena *arena);

/*
 * Seal the arena: make it immutable in every process, for ever, as constants must be. The call
 * removes the arena from the broker, maps it read-only at the same address, seals it, and shares it
 * again. References made before are invalid, also if the call fails; make them anew. The call waits
 * for tasks in flight that use the arena, also if another broker completes them. Memory that a
 * device's driver made is replaced by a copy. The call does nothing if the arena is sealed already.
 * Return: 0;
 *   -EBUSY  another process (a fork()ed child, perhaps) maps the arena writable. The arena is
 *           unchanged, or, where the broker offers RBK_FEAT_FIXED_ARENAS, a copy that the other
 *           process does not share
 *   -ETIME  tasks use the arena for longer than the connection's timeout, or no broker was there
 * or as above. If the arena was sealed but could not be shared again, references are
 * RBK_REF_INVALID and another call tries to share it again.
 */
int rbk_arena_seal(struct rbk_arena *arena, struct rbk_error *error);

/*
 * Return the reference of a place in the arena, for entries and tables: by @offset in bytes, or by
 * @pointer into its memory. The offset must be a multiple of RBK_REF_ALIGN, which the broker
 * checks.
 * Return: the reference; RBK_REF_INVALID outside the arena.
 */
uint64_t rbk_arena_ref(const struct rbk_arena *arena, uint64_t offset);
uint64_t rbk_ref(const struct rbk_arena *arena, const void *pointer);

/* ---- Describing plans -------------------------------------------------------------------- */

/*
 * A builder collects tensors and nodes. Its functions check at once what they can. The first
 * mistake is kept: later calls do nothing, and rbk_plan_new() returns that mistake, so one check is
 * enough. Names of tensors are distinct, not empty, printable ASCII below RBK_NAME_BYTES.
 */

/* As dims[0]: the leading dimension is each task's count. */
#define RBK_DIM_COUNT 0xffffffffu
/* As rank of an output or scratch tensor, with dims NULL: the shape is inferred. */
#define RBK_RANK_INFERRED (-1)
/* As a node's input or output: an absent optional tensor. Also returned on mistakes. */
#define RBK_TENSOR_NONE 0xffffu

/*
 * Make a builder. @name is for listings. Any thread.
 * Return: a builder, owned by the caller; NULL without memory.
 */
struct rbk_builder *rbk_builder_new(const char *name);
struct rbk_builder *rbk_builder_free(struct rbk_builder *builder);

/*
 * Return the first mistake as a sentence that lives as long as the builder; NULL if there is none.
 */
const char *rbk_builder_error(const struct rbk_builder *builder);

/*
 * Declare a tensor of @rank dimensions @dims, outermost first, elements in C order. Inputs, outputs
 * and states are bound per task, in the order of their declarations:
 *   input    read
 *   output   written completely; the shape may be RBK_RANK_INFERRED
 *   state    read, then updated in place: a node may read it, and one may write it
 *   scratch  between nodes, owned by the broker; the shape may be RBK_RANK_INFERRED
 * Return: the tensor's id for rbk_builder_node(), or RBK_TENSOR_NONE on a mistake.
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
 * Declare a constant, which lies at @offset (in bytes, a multiple of RBK_REF_ALIGN) in @arena. The
 * arena must be sealed before a plan is made, and must exist until then. Afterwards the plan keeps
 * the memory.
 */
unsigned int rbk_builder_constant(struct rbk_builder *builder, const char *name,
				  enum rbk_dtype dtype, int rank, const uint32_t *dims,
				  const struct rbk_arena *arena, uint64_t offset);

/*
 * Add a node: the ONNX operator @op ("MatMul") reads @inputs and writes @outputs, by tensor id.
 * Nodes run in the order in which they are added: a node reads tensors that the task gives or that
 * an earlier node wrote. @name is for messages, may be NULL and need not be unique.
 * Return: the node for rbk_builder_attr_*(); after a mistake some number, which these functions
 * ignore.
 */
unsigned int rbk_builder_node(struct rbk_builder *builder, const char *op, const char *name,
			      const unsigned int *inputs, unsigned int n_inputs,
			      const unsigned int *outputs, unsigned int n_outputs);

/* Add a node with one or two inputs and one output, as rbk_builder_node() does. */
unsigned int rbk_builder_unary(struct rbk_builder *builder, const char *op, unsigned int input,
			       unsigned int output);
unsigned int rbk_builder_binary(struct rbk_builder *builder, const char *op, unsigned int left,
				unsigned int right, unsigned int output);

/* Set an attribute of a node, once. Values are copied; ints and floats may be empty. */
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

/* Run the plan on @device only (RBK_DEVICE_*), so that its results are always the same bits. */
void rbk_builder_pin_device(struct rbk_builder *builder, unsigned int device);

/*
 * Disable fusion: have the broker compute every node by itself, into memory of its own, and every
 * picture channel after channel.
 *
 * With fusion, the broker computes an activation (Relu, Clip, Gelu and others, which brokerctl(1)
 * lists) together with the MatMul, Gemm, Conv or ConvTranspose before it. It also fuses an Add
 * after a MatMul if the addend is the same for every row, or if the right operand is one matrix and
 * the addend is as large as the product. It computes elementwise nodes in place. All of this
 * happens only where no other node reads the intermediate result; float16 is then rounded less
 * often. Products of float64 are not fused with anything.
 *
 * On the CPU, float32 pictures that Conv, pooling and the nodes between them read may also be
 * stored channels-last where that takes less time. Terms are then summed in another order.
 */
void rbk_builder_disable_fusion(struct rbk_builder *builder);

/* ---- Plans ------------------------------------------------------------------------------- */

/*
 * Have the broker prepare the computation that @builder describes, for tasks of 1..@max_count rows
 * (1 if no tensor has RBK_DIM_COUNT). Preparing may take long: devices compile and pack. The
 * builder stays the caller's.
 * Return: 0 and the plan, owned by the caller;
 *   -EINVAL  the description is impossible; the sentence names node, tensor and what was expected
 *   -E2BIG   the description is larger than 2 MiB
 *   -EDQUOT  above a limit of the broker
 *   -EBUSY   draining of the tenant began before this connection
 * or as above. Any thread, as long as no other thread uses the builder.
 */
int rbk_plan_new(struct rbk *rbk, const struct rbk_builder *builder, uint32_t max_count,
		 struct rbk_plan **ret, struct rbk_error *error);

/*
 * Remove the plan from the broker, once its tasks in flight have completed. If the broker dies
 * meanwhile, or was gone before, the call waits for the next one, which completes them. It waits
 * for the connection's timeout at most; tasks that have not completed by then may fail.
 * Return: NULL.
 */
struct rbk_plan *rbk_plan_free(struct rbk_plan *plan);

/* Return the plan's id, for rbk_prep_run(). Any thread. */
uint32_t rbk_plan_id(const struct rbk_plan *plan);

struct rbk_plan_info {
	uint32_t id;
	uint32_t devices;        /* bit i: device i can run the plan, now or once it is back */
	uint32_t n_refs;         /* references of a task: inputs, outputs and states */
	uint32_t max_count;      /* most rows of a task */
	uint64_t constant_bytes; /* read from arenas, mirrored once on each device */
	uint64_t scratch_bytes;
	uint64_t flops_fixed; /* floating-point operations of a task: fixed + count * row */
	uint64_t flops_row;
	/* bytes of inputs, outputs, states and constants of a task: fixed + count * row */
	uint64_t bytes_fixed;
	uint64_t bytes_row;
};

/*
 * Return the properties that the broker determined of the plan when it was made; makes no request.
 * A re-attachment does not change them, though the next broker may have other devices. Any thread.
 */
void rbk_plan_info(const struct rbk_plan *plan, struct rbk_plan_info *ret);

/* A plan's memory on one device, in bytes. The CPU has no memory of its own: bytes are 0. */
struct rbk_plan_memory {
	uint32_t state; /* enum rbk_memory_state */
	uint32_t tier;  /* enum rbk_memory_tier */
	/* required to be resident: constants, and working memory of one task */
	uint64_t required_bytes;
	uint64_t available_bytes; /* most that the tenant is entitled to for the plan now */
	uint64_t resident_bytes;  /* resident now: the plan's share of the blocks */
	uint64_t n_evictions;     /* times the plan was evicted from the device */
	uint64_t n_returns;       /* times it was loaded again */
};

/*
 * Report what the plan requires of each device's memory, whether it is resident, and if not, why.
 * Tasks of a plan that never fits complete with RBK_REASON_MEMORY_CONSTRAINT on the CPU, or with
 * -ENOMEM. A plan in segments (brokerd(8)) has sums, and is resident if any segment is. The first
 * @max_devices devices, in the order of RBK_DEVICE_*, are stored in @devices, their number, which
 * may be larger, in @ret_n_devices, and in @ret_n_constrained, which may be NULL, the number of
 * tasks (of such a plan, segments of tasks) that were placed elsewhere, or rejected, for lack of
 * memory. Sends a request to the broker; the figures may have changed by the time they arrive.
 * Return: 0; -EOPNOTSUPP: the broker does not offer RBK_FEAT_RESIDENCY; errors as above. Any
 * thread.
 */
int rbk_plan_memory(const struct rbk_plan *plan, struct rbk_plan_memory *devices,
		    unsigned int max_devices, unsigned int *ret_n_devices,
		    uint64_t *ret_n_constrained);

/* Report as rbk_plan_memory() does, with a sentence in @error if that fails. Any thread. */
int rbk_get_plan_memory(const struct rbk_plan *plan, struct rbk_plan_memory *devices,
			unsigned int max_devices, unsigned int *ret_n_devices,
			uint64_t *ret_n_constrained, struct rbk_error *error);

/* ---- Rings ------------------------------------------------------------------------------- */

/*
 * Make a submission and a completion ring of @entries each (rounded up to a power of two, at most
 * RBK_MAX_RING_ENTRIES). Any thread; the ring is then used by one thread at a time. Calls
 * membarrier(), the first time for some ms in a process with threads.
 * Return: 0 and the ring, owned by the caller; -EDQUOT: above a limit of the broker; -EBUSY:
 * draining of the tenant began before this connection, or too many descriptors are in flight to
 * clients that do not receive them; or as above.
 */
int rbk_ring_new(struct rbk *rbk, unsigned int entries, struct rbk_ring **ret,
		 struct rbk_error *error);

/*
 * Free the ring. Its tasks in flight finish without a completion. Without a broker the call does
 * not wait for one, but for a restoration that is running. Return: NULL.
 */
struct rbk_ring *rbk_ring_free(struct rbk_ring *ring);

/*
 * Set how long a wait spins before it sleeps. By default the time follows recent waits, what sleeps
 * cost, and the broker's prediction: 50 us at most, 100 us where waking up takes that long, 0
 * on a machine with one processor. After this call it is @spin_ns. A sleep costs 5 to 50 us of
 * latency, more in virtual machines; spinning costs processor time.
 */
void rbk_ring_set_spin_ns(struct rbk_ring *ring, uint64_t spin_ns);

/*
 * Return the next free entry, which one of the rbk_prep_*() functions must fill because the entry
 * holds old contents. The broker sees the entry after rbk_submit(). An entry is free again once its
 * completion was seen, and often before.
 * Return: the entry; NULL if the ring is full (submit, and consume completions). Without a broker,
 * an entry is free only once its completion was seen; in a fork()ed child, a full ring stays full.
 * If no broker will come, rbk_submit() returns the reason.
 */
struct rbk_sqe *rbk_get_sqe(struct rbk_ring *ring);

/*
 * Return the index of an entry among all that rbk_get_sqe() has returned, modulo 2^32. Valid until
 * the entry is returned again.
 */
uint32_t rbk_sqe_index(const struct rbk_ring *ring, const struct rbk_sqe *sqe);

/*
 * Let @sqe, which rbk_prep_*() has filled, start after @n earlier entries of the ring have
 * succeeded, at most RBK_SQE_AFTER_MAX: @indices are those of rbk_sqe_index(). If one fails, @sqe
 * completes with -ECANCELED. A second call replaces the first. A RUN can have RBK_SQE_AFTER_REFS
 * references, more in a table. A broker without RBK_FEAT_AFTER refuses the entry: -EINVAL.
 * Return: 0, or with @sqe unchanged
 *   -EINVAL  @n is too large, an index is not that of an earlier entry, @sqe is a BARRIER or has
 *            more references than fit
 *   -ERANGE  an entry is farther back than the ring has entries: wait for its completion instead
 *   -ECHILD  in a fork()ed child
 */
int rbk_sqe_set_after(const struct rbk_ring *ring, struct rbk_sqe *sqe, const uint32_t *indices,
		      unsigned int n);

/*
 * Publish the entries taken since the last call and wake the broker if it sleeps. While the
 * connection re-attaches, the entries wait for the next broker.
 * Return: the number of entries; -ECONNRESET, -EPROTO or -ECHILD as above, and the entries will not
 * run. Timing decides whether this call or the next wait notices that the broker was killed.
 */
int rbk_submit(struct rbk_ring *ring);

/*
 * Submit as rbk_submit() does, then wait until @wait_n completions can be consumed. If fewer than
 * @wait_n tasks are in flight, the call waits for ever; if @wait_n exceeds the ring's entries, it
 * returns -EINVAL.
 * Return: the number of entries submitted, also if the wait was interrupted or the broker lost (the
 * next wait returns the error); if no entry was submitted, the value of rbk_wait_cqe(); or as
 * rbk_submit().
 */
int rbk_submit_and_wait(struct rbk_ring *ring, unsigned int wait_n);

/*
 * Return the oldest completion that was not consumed. It stays valid until rbk_cqe_seen() or
 * rbk_cq_advance(). Completions that arrived before the broker was lost are still returned. While
 * the connection re-attaches, peeking finds no others, and waiting goes on.
 * Return:
 *   peek  0; -EAGAIN if there is no completion
 *   wait  0; -EINTR if a signal was handled while sleeping
 *   wait_cqe_timeout  as wait; -ETIME after @timeout_ns without a completion
 *   -ECONNRESET, -EPROTO, -ECHILD as above. Peeking alone notices a killed broker within 100 ms
 *   if done at least once a millisecond; waiting notices at once.
 */
int rbk_peek_cqe(struct rbk_ring *ring, const struct rbk_cqe **ret);
int rbk_wait_cqe(struct rbk_ring *ring, const struct rbk_cqe **ret);
int rbk_wait_cqe_timeout(struct rbk_ring *ring, const struct rbk_cqe **ret, uint64_t timeout_ns);

/*
 * Return up to @max_cqes completions, oldest first, without consuming them.
 * Return: the number of completions, 0 if there are none; errors as rbk_peek_cqe().
 */
int rbk_peek_batch_cqe(struct rbk_ring *ring, const struct rbk_cqe **cqes, unsigned int max_cqes);

/* Consume the @n oldest completions, or all of them if there are fewer. */
void rbk_cq_advance(struct rbk_ring *ring, unsigned int n);

/*
 * Return the number of entries taken but not consumed by the broker, of entries that can be taken,
 * and of completions to consume. They consume nothing, but notice a killed broker as
 * rbk_peek_cqe() does, and go on with the next one, so they belong to the ring's thread. If the
 * connection is lost, the numbers no longer change: rbk_submit() and rbk_peek_cqe() return the
 * reason.
 */
unsigned int rbk_sq_ready(const struct rbk_ring *ring);
unsigned int rbk_sq_space_left(const struct rbk_ring *ring);
unsigned int rbk_cq_ready(const struct rbk_ring *ring);

/*
 * Return the completion @index places after the oldest one, without consuming it; NULL if it has
 * not arrived yet.
 */
const struct rbk_cqe *rbk_cq_at(struct rbk_ring *ring, unsigned int index);

/*
 * Return a descriptor for event loops. It becomes readable at the next completion after
 * rbk_ring_arm(), or when the broker is lost, and stays the same when the connection re-attaches.
 * The ring owns the descriptor; the caller may only poll it. With epoll:
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
 * Peeking and waiting disarm the ring.
 * Return: the descriptor; -ECHILD in a fork()ed child; -EMFILE, -ENOMEM, -ENOSPC as epoll_create1()
 * and epoll_ctl(), if the connection may re-attach.
 */
int rbk_ring_fd(const struct rbk_ring *ring);

/*
 * Arm the descriptor of rbk_ring_fd().
 * Return: 0, armed: the caller may sleep; 1, not armed: look again, because completions may have
 * arrived; errors as rbk_peek_cqe().
 */
int rbk_ring_arm(struct rbk_ring *ring);

/*
 * Check an entry before rbk_submit(), as the broker will: a completion has room for an errno only,
 * while @error names the field at fault, what is wrong and what would be right. Sends nothing and
 * changes nothing; takes about a microsecond, and a lock of the connection. Made for tests and for
 * looking into a refused entry: submit without it otherwise.
 *
 * The library knows the plans and arenas of @rbk, with the number of references, names, sizes and
 * kinds of tensors. It cannot know everything: the broker may still refuse an entry for the size of
 * a tensor with an inferred shape, for a table in an arena that was freed or that is written
 * meanwhile, for a BARRIER behind an entry with RBK_SQE_LINK, for the name of an entry that is not
 * there, or for what a plan or an arena has become. What it refuses is refused with that errno.
 * Return: 0 if no fault was found, the errno that the completion would have (struct rbk_sqe lists
 * them), or, without a connection, -ECONNRESET, -EPROTO or -ECHILD. Any thread; @sqe must not be
 * changed meanwhile. -EINVAL if @sqe is NULL.
 */
int rbk_sqe_check(struct rbk *rbk, const struct rbk_sqe *sqe, struct rbk_error *error);

/* ---- Entries: inline, on memory of the ring ---------------------------------------------- */

/*
 * Each rbk_prep_*() overwrites the whole entry, so call the rbk_sqe_set_*() functions after it. See
 * struct rbk_sqe for the meaning of every field and the errors of completions.
 */

/* Prepare an entry that completes with 0. */
static inline void rbk_prep_nop(struct rbk_sqe *sqe)
{
	memset(sqe, 0, sizeof(*sqe));
}

/*
 * Run a plan over @count rows (1 if no tensor has RBK_DIM_COUNT). @n_refs references (at most
 * RBK_SQE_REFS; -EINVAL if not the plan's number) are of inputs, outputs and states as declared.
 * Until the entry completes, do not write to the inputs, and leave the outputs and states alone.
 */
static inline void rbk_prep_run(struct rbk_sqe *sqe, uint32_t plan_id, uint32_t count,
				const uint64_t *refs, unsigned int n_refs)
{
	unsigned int i;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_RUN;
	sqe->plan_id = plan_id;
	sqe->count = count;
	/* More do not fit: a table without references is refused, whatever the plan takes. */
	if (n_refs > RBK_SQE_REFS) {
		sqe->flags = RBK_SQE_ARG_TABLE;
		return;
	}
	for (i = 0; i < n_refs; i++)
		sqe->refs[i] = refs[i];
}

/*
 * Run a plan as rbk_prep_run() does, with up to RBK_MAX_REFS references, which lie in an arena as
 * uint64_t[n_refs] at @table_ref. The broker copies the references when it takes the entry: leave
 * them unchanged until the entry completes.
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
 * Cancel the oldest task of this ring whose user_data is @target: that task completes with
 * -ECANCELED. A task that has begun on the CPU is stopped, unless it updates a state; the contents
 * of its outputs are then undefined. A task that was passed to a GPU's driver is not stopped. The
 * cancelling entry completes with 0, or
 *   -ENOENT      there is no such task
 *   -EALREADY    the task has begun and cannot be stopped
 */
static inline void rbk_prep_cancel(struct rbk_sqe *sqe, uint64_t target)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_CANCEL;
	sqe->target = target;
}

/* Complete after all earlier entries; later entries start after the barrier. */
static inline void rbk_prep_barrier(struct rbk_sqe *sqe)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_BARRIER;
}

/*
 * Load a plan into a device's memory, evicting other plans as far as the rules allow. The entry
 * completes with 0 when the plan is resident, and names the device. rbk_sqe_set_strategy() with
 * RBK_STRATEGY_DEVICE(index) selects the device; without it, the broker chooses a device that can
 * run the plan. With rbk_sqe_set_wait_memory() the entry waits for room. It completes with
 *   -ENOMEM      there is no room, or the plan never fits; see rbk_plan_memory()
 *   -ENODEV      there is no such device, or it cannot run the plan, or has no memory of its own
 *   -EIO         the device was lost
 *   -ENOENT      there is no such plan
 *   -ECANCELED   the entry was cancelled, or the plan was removed, or rbk_prep_evict() or an
 *                administrator evicted it before it was resident
 *   -EOPNOTSUPP  the broker does not offer RBK_FEAT_RESIDENCY
 */
static inline void rbk_prep_prefetch(struct rbk_sqe *sqe, uint32_t plan_id)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_PREFETCH;
	sqe->plan_id = plan_id;
}

/*
 * Evict a plan once its tasks on the device have completed. The entry completes when the plan's
 * device memory is free. The plan stays evicted until a task or a PREFETCH requests it again.
 * rbk_sqe_set_strategy() selects the device; without it, all devices. Errors as
 * rbk_prep_prefetch(), except -ENOMEM.
 */
static inline void rbk_prep_evict(struct rbk_sqe *sqe, uint32_t plan_id)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = RBK_OP_EVICT;
	sqe->plan_id = plan_id;
}

/*
 * Set the user_data of the completion: a number or a pointer. Statistics and the log name a task by
 * it, as a decimal number: "brokerctl why task 42". A number that is unique among recent tasks
 * finds that task.
 */
static inline void rbk_sqe_set_data64(struct rbk_sqe *sqe, uint64_t data)
{
	sqe->user_data = data;
}

static inline void rbk_sqe_set_data(struct rbk_sqe *sqe, void *data)
{
	sqe->user_data = (uint64_t)(uintptr_t)data;
}

/* Add RBK_SQE_* flags, such as RBK_SQE_LINK: the next entry starts after this entry succeeded. */
static inline void rbk_sqe_set_flags(struct rbk_sqe *sqe, unsigned int flags)
{
	sqe->flags = (uint8_t)(sqe->flags | flags);
}

/* Set where the task runs: enum rbk_strategy, or RBK_STRATEGY_DEVICE(index). */
static inline void rbk_sqe_set_strategy(struct rbk_sqe *sqe, unsigned int strategy)
{
	sqe->strategy = (uint8_t)strategy;
}

/*
 * Let the task, made by rbk_prep_run() or rbk_prep_run_table(), wait for its plan's memory instead
 * of running on the CPU. The task waits until the plan, or the segment that it has reached, is
 * resident, without a time limit, and can be cancelled meanwhile. It does not wait for what never
 * fits, nor after an update of a state. A broker without RBK_FEAT_RESIDENCY: -EINVAL.
 */
static inline void rbk_sqe_set_wait_memory(struct rbk_sqe *sqe)
{
	sqe->flags = (uint8_t)(sqe->flags | RBK_SQE_WAIT_MEMORY);
}

/* Set the priority (enum rbk_priority) among the caller's own tasks. */
static inline void rbk_sqe_set_priority(struct rbk_sqe *sqe, unsigned int priority)
{
	sqe->priority = (uint8_t)priority;
}

/*
 * Set the deadline in microseconds after the broker takes the entry; 0: none. A task that misses it
 * is not stopped: its completion has RBK_CQE_DEADLINE_MISSED. rbk_wait_cqe_timeout() limits the
 * caller's wait.
 */
static inline void rbk_sqe_set_deadline_us(struct rbk_sqe *sqe, uint32_t deadline_us)
{
	sqe->deadline_us = deadline_us;
}

/* Return the user_data that rbk_sqe_set_data64() or rbk_sqe_set_data() set. */
static inline uint64_t rbk_cqe_get_data64(const struct rbk_cqe *cqe)
{
	return cqe->user_data;
}

static inline void *rbk_cqe_get_data(const struct rbk_cqe *cqe)
{
	return (void *)(uintptr_t)cqe->user_data;
}

/* Consume the oldest completion, which is @cqe. Does nothing if @cqe is NULL. */
static inline void rbk_cqe_seen(struct rbk_ring *ring, const struct rbk_cqe *cqe)
{
	if (cqe)
		rbk_cq_advance(ring, 1);
}

/*
 * Iterate over the completions that have arrived, without consuming them; then call
 * rbk_cq_advance(ring, head). @head is an unsigned int, @cqe a const struct rbk_cqe pointer.
 */
#define rbk_for_each_cqe(ring, head, cqe) \
	for ((head) = 0; ((cqe) = rbk_cq_at((ring), (head))) != NULL; (head)++)

#ifdef __cplusplus
}
#endif
