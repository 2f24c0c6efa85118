#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The operator catalogue
 *
 * One table describes every operator once: its ONNX name, arity, attributes, shape rule, what it
 * costs, and which devices run it. The client's description names operators; the executors look
 * their kernels up by enum op_kind. Adding an operator means a row here, a shape rule, a CPU kernel
 * and a shader, and nothing else.
 *
 * Shapes are symbolic in one place only: dims[0] may be the task's count.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ringbroker/abi.h>

struct op_call;

enum op_kind {
	OP_MATMUL,     /* ONNX MatMul-13 */
	OP_GEMM,       /* ONNX Gemm-13 */
	OP_ADD,        /* ONNX Add-14 */
	OP_MUL,        /* ONNX Mul-14 */
	OP_RELU,       /* ONNX Relu-14 */
	OP_SOFTMAX,    /* ONNX Softmax-13 */
	OP_REDUCE_SUM, /* ONNX ReduceSum-13, axes as an attribute */
	OP_TRANSPOSE,  /* ONNX Transpose-13 */
	OP_CONV,       /* ONNX Conv-11, one or two spatial dimensions */
	OP_MAX_POOL,   /* ONNX MaxPool-12, one or two spatial dimensions, first output */
	OP_TOP_K,      /* ONNX TopK-11, k as an attribute */
	OP_KIND_COUNT,
};

/* Operators that a device runs about equally well: what its speed is known by. */
enum op_family {
	OP_FAMILY_MATMUL,
	OP_FAMILY_GEMM,
	OP_FAMILY_CONVOLUTION,
	OP_FAMILY_ELEMENTWISE,
	OP_FAMILY_ACTIVATION,
	OP_FAMILY_POOLING,
	OP_FAMILY_REDUCTION,
	OP_FAMILY_SOFTMAX,
	OP_FAMILY_TRANSPOSE,
	OP_FAMILY_SELECTION,
	OP_FAMILY_COUNT,
};

enum {
	OP_MAX_INPUTS = 8,
	OP_MAX_OUTPUTS = 2,
	OP_MAX_SPATIAL = 2,
};

/* A tensor's shape. Where dynamic, dims[0] holds the plan's max_count until resolved. */
struct shape {
	uint8_t rank;
	bool dynamic;
	uint32_t dims[RBK_MAX_RANK];
};

/* Numbers of elements at a given count. Never overflow once the plan is verified. */
static inline uint64_t shape_elems(const struct shape *shape, uint32_t count)
{
	uint64_t n = 1;

	for (unsigned int i = 0; i < shape->rank; i++)
		n *= i == 0 && shape->dynamic ? count : shape->dims[i];
	return n;
}

static inline uint32_t shape_dim(const struct shape *shape, unsigned int i, uint32_t count)
{
	return i == 0 && shape->dynamic ? count : shape->dims[i];
}

/* Attributes after verification, with ONNX's defaults filled in and axes made non-negative. */
union op_params {
	struct {
		float alpha, beta;
		bool trans_a, trans_b;
	} gemm;
	struct {
		uint8_t axis;
	} softmax;
	struct {
		uint8_t axes; /* bit i: dimension i is summed; 0: identity */
		bool keepdims;
	} reduce;
	struct {
		uint8_t perm[RBK_MAX_RANK];
	} transpose;
	struct {
		/*
		 * A 1-D operator has kernel[0] = stride[0] = dilation[0] = 1 and no pads there.
		 * Tap t of output o is at o * stride + t * dilation - pad_begin of the input; taps
		 * outside count as 0 (Conv) or not at all (MaxPool, whose windows without any tap
		 * inside give minus infinity). With ceil_mode windows may reach beyond pad_end.
		 * (kernel - 1) * dilation + 1 and input + pad_begin + pad_end are below 2^31.
		 */
		uint32_t kernel[OP_MAX_SPATIAL];
		uint32_t stride[OP_MAX_SPATIAL];
		uint32_t dilation[OP_MAX_SPATIAL];
		uint32_t pad_begin[OP_MAX_SPATIAL];
		uint32_t pad_end[OP_MAX_SPATIAL];
		uint32_t group; /* Conv */
	} window;
	struct {
		uint32_t k;
		uint8_t axis;
		bool largest;
		bool sorted;
	} top_k;
};

/* Work of one node, as fixed + row * count. */
struct cost {
	uint64_t flops_fixed, flops_row;
	uint64_t bytes_fixed, bytes_row; /* read and written */
};

enum {
	OP_ON_CPU = 1u << 0,
	OP_ON_VULKAN = 1u << 1,
};

/* What may follow a name in a description's attributes. */
struct op_attr {
	const char *name;
	uint32_t type; /* enum rbk_plan_attr_type */
	bool required;
};

struct op {
	enum op_kind kind;
	enum op_family family;
	const char *name; /* ONNX's */
	uint8_t opset;    /* of ONNX's: since which it is as it is here */
	uint8_t min_in, max_in;
	uint8_t min_out, max_out;
	uint8_t devices;       /* OP_ON_* */
	bool in_place;         /* element i of the output depends on element i of the inputs only */
	bool data_independent; /* run time does not depend on tensor contents */
	bool splits_rows;      /* rows of a dynamic leading dimension are computed independently */
	const struct op_attr *attrs; /* ends with a NULL name */

	/*
	 * Checks inputs and attributes, fills call->params and infers the outputs' shapes and
	 * types. Return: 0, or OP_E_INVALID after op_call_refuse() has said why.
	 */
	int (*infer)(struct op_call *call);

	/* Fills @ret; shapes are inferred and verified. */
	void (*cost)(const struct op_call *call, struct cost *ret);
};

enum { OP_E_INVALID = 1 };

/* Return: the row of that name or kind; NULL if there is no such name. */
const struct op *op_by_name(const char *name);
const struct op *op_by_kind(enum op_kind kind);

/* "matmul": as profile files write it. */
const char *op_family_name(enum op_family family);
