#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans: verified graphs, immutable once made
 *
 * plan_new() turns a hostile description (shm/plan-wire.h) into a struct plan. In it every index is
 * in range, every shape is known, every byte count is computed without overflow, and every node
 * comes after the writers of its inputs. Executors and the dispatcher read the plan without checks,
 * from any thread, as long as the session that owns it keeps it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <ringbroker/abi.h>

#include "plan/exec-block.h"
#include "shm/operators/op.h"
#include "util/cleanup.h"

struct exec_arena;
struct plan_maker;

/* Upper bound of a tensor's bytes at max_count, and of the scratch block's. */
#define PLAN_MAX_BYTES (1ull << 47)

enum {
	PLAN_E_INVALID = 1, /* the description is impossible; the message says why */
	PLAN_E_MORE = 2,    /* a part is done: call plan_maker_work() again */
	PLAN_MESSAGE_BYTES = OP_MESSAGE_BYTES,
	PLAN_SCRATCH_ALIGN = 256, /* alignment of every scratch tensor, in bytes */
	PLAN_NO_TENSOR = 0xffff,
	PLAN_NO_NODE = 0xffff,
	/* Steps of one plan_maker_work(), except those of its last item: half a millisecond. */
	PLAN_PART_STEPS = 8192,
};

struct tensor {
	char name[RBK_NAME_BYTES];
	uint8_t kind;  /* enum rbk_tensor_kind */
	uint8_t dtype; /* enum rbk_dtype */
	struct shape shape;
	/* Bytes at count c are fixed_bytes + c * row_bytes; one of the two is 0. */
	uint64_t fixed_bytes;
	uint64_t row_bytes;
	uint64_t max_bytes;      /* bytes at max_count */
	uint16_t binding;        /* input, output, state: index of the task's reference */
	uint16_t constant;       /* constant: index into plan->constants */
	uint64_t scratch_offset; /* scratch: offset in the plan's scratch block, at any count */
	/*
	 * The tensor that has the bytes: the tensor itself, unless it is scratch and a view of
	 * another tensor of the same size. Reshape and nodes that work in place make such views.
	 * Executors look for bytes in the root; a root's root is itself.
	 */
	uint16_t root;
};

struct node {
	const struct op *op;
	char name[RBK_NAME_BYTES];
	/*
	 * Numbers of operands, without absent ones at the end. With sum, a MatMul has a third
	 * input.
	 */
	uint8_t n_in, n_out;
	uint16_t in[OP_MAX_INPUTS]; /* tensor index, or PLAN_NO_TENSOR if absent */
	uint16_t out[OP_MAX_OUTPUTS];
	union op_params params;
	uint8_t devices; /* OP_ON_*: devices that have the operator with these types */
	struct cost cost;
	/*
	 * Upper bound of the memory that an executor needs beside the tensors while the node runs,
	 * at max_count.
	 */
	uint64_t work_bytes;
	/*
	 * The nodes that are computed along with this one, element by element, or PLAN_NO_NODE: an
	 * Add, whose other operand is in[2] here as well, and an activation after it. They work in
	 * place on output 0; their costs are included here, and their own are 0. See fuse.c for the
	 * operators.
	 */
	uint16_t sum, activation;
	uint16_t computed_by; /* node that this one is computed along with, or PLAN_NO_NODE */
};

/*
 * Nodes of about the same work. Predictions use these groups, since going through thousands of
 * nodes would take long. Nodes that are computed along with others are in no group.
 */
struct plan_work {
	enum op_family family;
	uint32_t n;       /* nodes */
	struct cost cost; /* sum over these nodes */
};
enum { PLAN_MAX_WORKS = 64 };

/*
 * A constant: bytes of an immutable arena. (dev, ino, offset, bytes) identifies them for sharing
 * between plans of one session.
 */
struct plan_constant {
	uint16_t tensor;
	struct exec_arena *arena; /* kept alive by the session as long as the plan */
	uint64_t offset;
	uint64_t bytes;
};

/* One reference of a task, in binding order; the dispatcher checks references against these. */
struct plan_binding {
	uint64_t fixed_bytes;
	uint64_t row_bytes;
	uint16_t tensor;
	bool written; /* output or state */
};

enum plan_device_state {
	PLAN_DEVICE_UNSUPPORTED = 0, /* the device cannot run one of the operators */
	PLAN_DEVICE_READY,
	PLAN_DEVICE_NO_MEMORY, /* larger than the device or the tenant's maximum */
	PLAN_DEVICE_FAILED,    /* the device is gone, drained, or refused the plan */
	PLAN_DEVICE_EVICTED,   /* prepared, but its memory is not resident */
};

struct plan {
	char name[RBK_NAME_BYTES];
	/* Members that checking a task and placing it read, in one cache line. */
	uint32_t max_count;
	uint16_t n_tensors, n_nodes, n_constants, n_bindings;
	uint8_t device_state[RBK_MAX_DEVICES]; /* enum plan_device_state; see exec */
	struct tensor *tensors;
	struct node *nodes;
	struct plan_constant *constants;
	struct plan_work *works; /* NULL in a plan made by hand: predictions use nodes */
	struct plan_binding bindings[RBK_MAX_REFS];
	uint64_t constant_bytes; /* sum over constants */
	uint64_t scratch_bytes;  /* bytes of one run at max_count */
	uint64_t work_bytes;     /* maximum of node.work_bytes; executors reuse it for each node */
	struct cost cost;        /* sum over nodes */
	/* the part of cost's flops in nodes with blocked kernels: MatMul, Gemm, Conv */
	uint64_t blocked_flops_fixed, blocked_flops_row;
	uint32_t n_works;       /* at most PLAN_MAX_WORKS */
	uint64_t touched_fixed; /* bytes of bound tensors and constants: fixed + count * row */
	uint64_t touched_row;
	uint8_t ops_devices; /* OP_ON_*: devices that have every operator */
	uint32_t n_pieces;   /* operands and moves of all nodes: the size of its translation */
	bool fuses;          /* false: the description forbids fusion */
	bool pinned;         /* runs on pinned_device only */
	uint8_t pinned_device;
	bool data_independent; /* every operator is data-independent */
	bool has_state;
	bool splits_rows; /* every node and output can be computed row by row */
	/*
	 * If splits_rows: tasks are cut at multiples of this many rows, so that the references of
	 * every part stay aligned to RBK_REF_ALIGN. At most RBK_REF_ALIGN.
	 */
	uint32_t row_grain;
	/*
	 * Hash of the description. Plans of one fingerprint have the same operators, shapes and
	 * types, whatever their names and constants. The hash is not secret, and collisions can be
	 * constructed, so it may only guide estimates.
	 */
	uint64_t fingerprint;

	/*
	 * Per device, written by the setup thread before a task can name the plan: the executor's
	 * data, whether the plan can run there (device_state), and its footprint. Afterwards only
	 * the reactor changes device_state, as the plan is loaded and evicted.
	 */
	void *exec[RBK_MAX_DEVICES];
	uint64_t host_bytes[RBK_MAX_DEVICES]; /* host memory held by that executor for the plan */
	struct exec_footprint footprint[RBK_MAX_DEVICES];
	uint64_t block_bytes[RBK_MAX_DEVICES]; /* exec_constants_bytes(), on devices with memory */
	/*
	 * Number of submissions in which one task is run: see struct exec_task.part; 0 counts as 1.
	 * Set by plan_prepare() from the device's part_flops and part_bytes.
	 */
	uint16_t n_parts[RBK_MAX_DEVICES];
	/*
	 * Tasks of a plan in parts that the device can have begun at a time; 0: any number. Each
	 * keeps its working memory until its last part is done. The reactor changes it when the
	 * plan is loaded (struct exec_load.n_slots).
	 */
	uint32_t n_slots[RBK_MAX_DEVICES];
	/*
	 * Pieces of work that the CPU's executor computes for one task, one after the other; each
	 * takes some time however small it is. Set by plan_prepare(); 0: not known.
	 */
	uint32_t n_steps;
	/*
	 * Time of a task on the CPU's executor without the operations and bytes of its cost, in
	 * picoseconds, as fixed + row * count: rows, matrices and windows take time to begin. Set
	 * by plan_measure(); 0: unknown.
	 */
	uint64_t overhead_fixed_ps, overhead_row_ps;
};

/*
 * The caller's look-up of arenas for constants. find() returns the arena if it exists and is
 * immutable. Otherwise it returns NULL with *ret_why set to a phrase such as "arena 3 is not sealed
 * against writing".
 */
struct plan_arena_lookup {
	struct exec_arena *(*find)(void *context, uint16_t arena_id, const char **ret_why);
	void *context;
};

/*
 * Verify @desc (private memory, aligned to 8 bytes, @desc_bytes long) and make a plan of it, which
 * does not refer to @desc any more. Allocates in proportion to the description. Any thread.
 *
 * Rules for a plan, beyond shm/plan-wire.h:
 *   - nodes stand in execution order; each output and scratch tensor has one writer, before all its
 *     readers; inputs and constants have none; at least one bound tensor is written
 *   - a state has at most one writer. Nodes before the writer, and the writer, read the old
 *     value, later nodes the new. Only operators that work in place (struct op) may read and
 *     write the same state
 *   - only dims[0] may be the task's count; all other dimensions, and max_count, are 1..2^31-1;
 *     tensors have at most PLAN_MAX_BYTES; a constant's dimensions are fixed
 *   - at most RBK_MAX_REFS inputs, outputs and states
 *
 * Scratch tensors share bytes of the scratch block where no node needs both. A caller that runs two
 * nodes at once must treat overlapping bytes as a dependency.
 *
 * Return: 0; PLAN_E_INVALID: @message names node, tensor and what was expected; negative errno.
 */
int plan_new(const void *desc, size_t desc_bytes, const struct plan_arena_lookup *lookup,
	     char message[PLAN_MESSAGE_BYTES], struct plan **ret);

/*
 * Begin plan_new() in parts, between which a thread can do something else. @desc, @lookup->context
 * and @message are borrowed until plan_maker_free(). Any thread, one at a time. Return: 0; -ENOMEM.
 */
int plan_maker_new(const void *desc, size_t desc_bytes, const struct plan_arena_lookup *lookup,
		   char message[PLAN_MESSAGE_BYTES], struct plan_maker **ret);
/*
 * Do a part of the work.
 * Return: PLAN_E_MORE; or as plan_new(), after which only plan_maker_free() may follow.
 */
int plan_maker_work(struct plan_maker *maker, struct plan **ret);
/* Free a maker at any stage, or NULL. Return: NULL. */
struct plan_maker *plan_maker_free(struct plan_maker *maker);

/*
 * Return the most bytes that plan_new() allocates for a description of @desc_bytes, the plan itself
 * included, so that they can be charged first.
 */
uint64_t plan_new_bytes(size_t desc_bytes);

/* Free a plan that the executors have released. Return: NULL. */
struct plan *plan_free(struct plan *plan);

DEFINE_CLEANUP(struct plan *, plan_free)
DEFINE_CLEANUP(struct plan_maker *, plan_maker_free)

/*
 * Return the tensor that holds output @i of @node in the end: that of the last node computed along
 * with it.
 */
static inline uint16_t plan_result(const struct plan *plan, const struct node *node, unsigned int i)
{
	const uint16_t last = node->activation != PLAN_NO_NODE ? node->activation : node->sum;

	return last == PLAN_NO_NODE ? node->out[i] : plan->nodes[last].out[0];
}

static inline uint64_t tensor_bytes(const struct tensor *tensor, uint32_t count)
{
	return tensor->fixed_bytes + tensor->row_bytes * count;
}

/* Return the bytes that one task reads and writes outside scratch: the size of the task. */
static inline uint64_t plan_touched_bytes(const struct plan *plan, uint32_t count)
{
	return plan->touched_fixed + plan->touched_row * count;
}

static inline uint64_t plan_flops(const struct plan *plan, uint32_t count)
{
	return plan->cost.flops_fixed + plan->cost.flops_row * count;
}
