#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plan descriptions on the wire
 *
 * A client sends a description to have a plan prepared: a graph of ONNX operators over typed
 * tensors of fixed shape, except that a leading dimension may be the task's count. The description
 * is one block, in this order and without gaps:
 *
 *   struct rbk_plan_header
 *   struct rbk_plan_tensor [n_tensors]
 *   struct rbk_plan_node   [n_nodes]       in execution order
 *   struct rbk_plan_attr   [n_attrs]
 *   uint16_t               [n_edges]       padded to a multiple of 8 bytes: tensor indices
 *   uint8_t                [blob_bytes]    attribute values, each 8-byte aligned
 *
 * The sum must be the description's length exactly. All numbers are little endian. Names are
 * printable ASCII, NUL-terminated, and zeros from there on. Nodes may share edges and attributes.
 */
#include <stddef.h>
#include <stdint.h>
#include <ringbroker/abi.h>

#define RBK_PLAN_MAGIC   0x4e4c5052u /* "RPLN" */
#define RBK_PLAN_VERSION 1

/* rbk_plan_header.flags */
#define RBK_PLAN_PINNED (1u << 0) /* runs on pinned_device only: the same bits every time */
/* nodes run one by one, each into its own bytes, with elements in ONNX's order (channels first) */
#define RBK_PLAN_NO_FUSION (1u << 1)

struct rbk_plan_header {
	uint32_t magic;
	uint16_t version;
	uint16_t flags;     /* RBK_PLAN_* */
	uint32_t max_count; /* largest count of a task, below 2^31; 1 if no tensor is dynamic */
	uint16_t n_tensors;
	uint16_t n_nodes;
	uint32_t n_attrs;
	uint32_t n_edges;
	uint32_t blob_bytes;
	uint8_t pinned_device; /* RBK_PLAN_PINNED: RBK_DEVICE_*; otherwise 0 */
	uint8_t reserved[3];
	char name[RBK_NAME_BYTES]; /* for listings; NUL-terminated */
};

/* rbk_plan_tensor.flags */
#define RBK_PLAN_TENSOR_DYNAMIC (1u << 0) /* dims[0] is the task's count; it must be 0 here */
#define RBK_PLAN_TENSOR_INFER   (1u << 1) /* OUTPUT, SCRATCH: rank 0, the shape is inferred */

/*
 * A tensor. Tasks bind inputs, outputs and states in the order of this array. Elements are
 * row-major without gaps. The names of one plan are distinct and not empty.
 */
struct rbk_plan_tensor {
	char name[RBK_NAME_BYTES];
	uint8_t kind;                /* enum rbk_tensor_kind */
	uint8_t dtype;               /* enum rbk_dtype */
	uint8_t rank;                /* 0..RBK_MAX_RANK */
	uint8_t flags;               /* RBK_PLAN_TENSOR_* */
	uint32_t dims[RBK_MAX_RANK]; /* 0 beyond rank */
	uint32_t reserved;
	uint64_t constant_ref; /* CONSTANT: RBK_REF() into an immutable arena; otherwise 0 */
};

/* An absent optional input or output. */
#define RBK_PLAN_NO_TENSOR 0xffffu

/* A node: op, an ONNX operator, reads edges [first_in, +n_in) and writes [first_out, +n_out). */
struct rbk_plan_node {
	char name[RBK_NAME_BYTES]; /* may be empty */
	char op[RBK_NAME_BYTES];   /* "MatMul" */
	uint32_t first_in;
	uint32_t first_out;
	uint32_t first_attr;
	uint16_t n_in;
	uint16_t n_out;
	uint16_t n_attrs;
	uint16_t reserved[3];
};

enum rbk_plan_attr_type {
	RBK_ATTR_INT = 1,    /* int64_t[1] */
	RBK_ATTR_FLOAT = 2,  /* float[1] */
	RBK_ATTR_INTS = 3,   /* int64_t[n] */
	RBK_ATTR_FLOATS = 4, /* float[n] */
	RBK_ATTR_STRING = 5, /* char[n], without a NUL */
};

struct rbk_plan_attr {
	char name[RBK_NAME_BYTES];
	uint32_t type; /* enum rbk_plan_attr_type */
	uint32_t n;    /* elements */
	uint32_t blob_offset;
	uint32_t reserved;
};

_Static_assert(sizeof(struct rbk_plan_header) == 64, "wire");
_Static_assert(sizeof(struct rbk_plan_tensor) == 80, "wire");
_Static_assert(offsetof(struct rbk_plan_tensor, dims) == 36, "wire");
_Static_assert(offsetof(struct rbk_plan_tensor, constant_ref) == 72, "wire");
_Static_assert(sizeof(struct rbk_plan_node) == 88, "wire");
_Static_assert(sizeof(struct rbk_plan_attr) == 48, "wire");
