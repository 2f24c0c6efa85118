#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The operator catalogue
 *
 * One row describes every operator once: its ONNX name, arity, attributes, element types, shape
 * rule, cost, and the devices that run it. The client's description names operators; the executors
 * look their kernels up by enum op_kind. A new operator needs a line of OP_LIST, a row beside its
 * shape rule, a CPU kernel and a shader. The broker verifies plans by these rules and clients infer
 * shapes by them: there is one rule for each operator.
 *
 * Shapes are symbolic in one place only: dims[0] may be the task's count.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ringbroker/abi.h>

#include "shm/operators/op-elementwise.h"

struct op_call;

/*
 * The operators: OP_LIST(X) is X(KIND, row, ...) for each, with commas between. enum op_kind has
 * OP_KIND, the file of the operator's family defines the row op_row with ONNX's name and opset, and
 * every table by kind takes its lines from this list. Element-wise operators, whose kinds are
 * adjacent, are listed with their rows in op-elementwise.h.
 */
/* clang-format off */
#define OP_LIST(X) \
	X(MATMUL, matmul), \
	X(GEMM, gemm), \
	OP_ELEMENTWISE(X), \
	X(SOFTMAX, softmax), \
	X(REDUCE_SUM, reduce_sum),        /* this and the nine below: axes as an attribute */ \
	X(REDUCE_MEAN, reduce_mean), \
	X(REDUCE_SUM_SQUARE, reduce_sum_square), \
	X(REDUCE_L1, reduce_l1), \
	X(REDUCE_L2, reduce_l2), \
	X(REDUCE_LOG_SUM, reduce_log_sum), \
	X(REDUCE_LOG_SUM_EXP, reduce_log_sum_exp), \
	X(REDUCE_PROD, reduce_prod), \
	X(REDUCE_MAX, reduce_max), \
	X(REDUCE_MIN, reduce_min), \
	X(ARG_MAX, arg_max), \
	X(ARG_MIN, arg_min), \
	X(CUM_SUM, cum_sum),              /* axis as an attribute */ \
	X(LOG_SOFTMAX, log_softmax), \
	X(LAYER_NORM, layer_norm), \
	X(RMS_NORM, rms_norm), \
	X(INSTANCE_NORM, instance_norm), \
	X(GROUP_NORM, group_norm), \
	X(BATCH_NORM, batch_norm),        /* without training */ \
	X(LP_NORM, lp_norm), \
	X(ROTARY, rotary), \
	X(ATTENTION, attention), \
	X(TRANSPOSE, transpose), \
	X(SLICE, slice), /* this and the next: all operands but data are attributes */ \
	X(CONCAT, concat), \
	X(SPLIT, split), \
	X(EXPAND, expand), \
	X(TILE, tile), \
	X(PAD, pad), \
	X(RESHAPE, reshape),              /* shape as an attribute */ \
	X(CONV, conv),                    /* one to three spatial dimensions, as the next four */ \
	X(MAX_POOL, max_pool), \
	X(AVERAGE_POOL, average_pool), \
	X(LP_POOL, lp_pool), \
	X(CONV_TRANSPOSE, conv_transpose), \
	X(TOP_K, top_k),                  /* k as an attribute */ \
	X(QUANTIZE_LINEAR, quantize_linear), /* to eight bits */ \
	X(DEQUANTIZE_LINEAR, dequantize_linear), /* from eight bits or int32 */ \
	X(DYNAMIC_QUANTIZE_LINEAR, dynamic_quantize_linear), \
	X(MATMUL_INTEGER, matmul_integer), \
	X(QLINEAR_MATMUL, qlinear_matmul), \
	X(CONV_INTEGER, conv_integer),    /* one or two spatial dimensions */ \
	X(QLINEAR_CONV, qlinear_conv),    /* one or two spatial dimensions */ \
	X(MATMUL_NBITS, matmul_nbits),    /* ONNX Runtime MatMulNBits-1, four bits, without g_idx */ \
	X(GATHER, gather), \
	X(GATHER_ELEMENTS, gather_elements), \
	X(GATHER_ND, gather_nd), \
	X(SCATTER_ELEMENTS, scatter_elements), \
	X(SCATTER_ND, scatter_nd), \
	X(ONE_HOT, one_hot),              /* depth as an attribute */ \
	X(TRILU, trilu),                  /* k as an attribute */ \
	X(GRID_SAMPLE, grid_sample),      /* two or three spatial dimensions; cubic: two */ \
	X(CHOLESKY, cholesky),            /* this and the next are not ONNX's: op-triangular.c */ \
	X(TRIANGULAR_SOLVE, triangular_solve)
/* clang-format on */

#define OP_KIND_OF(KIND, ...) OP_##KIND

enum op_kind { OP_LIST(OP_KIND_OF), OP_KIND_COUNT };

#undef OP_KIND_OF

static inline bool op_is_elementwise(enum op_kind kind)
{
	return kind >= OP_ADD && kind <= OP_BITWISE_NOT;
}

/* Operators that a device runs about equally well. A device profile has a speed per family. */
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
	OP_MAX_INPUTS = 32,
	OP_MAX_OUTPUTS = 32,
	OP_MAX_SPATIAL = 3,
	OP_MAX_CLASSES = 6,
	OP_WORK_ALIGN = 256,    /* of each piece of work memory, in bytes */
	OP_RANGES = 64,         /* pieces of DynamicQuantizeLinear's input, with a range each */
	OP_MESSAGE_BYTES = 512, /* bytes of the sentence that says why a node is refused */
};

#define OP_MAX_DIM RBK_MAX_DIM

/* Sets of element types: bit RBK_DTYPE_*. */
#define OP_TYPE(dtype) (1u << (dtype))
#define OP_FLOAT32     OP_TYPE(RBK_DTYPE_F32)
#define OP_FLOATS      (OP_FLOAT32 | OP_TYPE(RBK_DTYPE_F16))
#define OP_FLOAT64     OP_TYPE(RBK_DTYPE_F64)
#define OP_INDICES     (OP_TYPE(RBK_DTYPE_I32) | OP_TYPE(RBK_DTYPE_I64))
#define OP_BYTES       (OP_TYPE(RBK_DTYPE_I8) | OP_TYPE(RBK_DTYPE_U8))
#define OP_NUMBERS     (OP_FLOATS | OP_INDICES | OP_BYTES)
#define OP_ALL_FLOATS  (OP_FLOATS | OP_FLOAT64)
#define OP_ALL_NUMBERS (OP_NUMBERS | OP_FLOAT64)
#define OP_BOOL        OP_TYPE(RBK_DTYPE_BOOL)
#define OP_BFLOAT16    OP_TYPE(RBK_DTYPE_BF16) /* no operator computes with it */
#define OP_TWO_BYTES   (OP_TYPE(RBK_DTYPE_F16) | OP_BFLOAT16)
#define OP_COMPUTABLE  (OP_NUMBERS | OP_BOOL)
#define OP_ANY_TYPE    (OP_COMPUTABLE | OP_BFLOAT16 | OP_FLOAT64)

/* A tensor's shape. If dynamic, dims[0] holds the plan's max_count until it is resolved. */
struct shape {
	uint8_t rank;
	bool dynamic;
	uint32_t dims[RBK_MAX_RANK];
};

/* Return the number of elements at a given count. It cannot overflow once the plan is verified. */
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

/*
 * Return the extent of spatial dimension @i of a shape with batch and channels: depth, height,
 * width; 1 for a missing one.
 */
static inline uint32_t shape_spatial(const struct shape *shape, unsigned int i)
{
	const unsigned int missing = 2 + OP_MAX_SPATIAL - shape->rank;

	return i < missing ? 1 : shape->dims[2 + i - missing];
}

/* Attributes after verification, with ONNX's defaults filled in and axes made non-negative. */
union op_params {
	struct {
		float alpha, beta;
		bool trans_a, trans_b;
	} gemm;
	struct {
		/*
		 * alpha and beta or gamma; Clip's limits: d for float64, i for integers, within the
		 * type's range; IsInf: i[0], the sum of 1 to find negative and 2 to find positive
		 * infinities.
		 */
		union {
			float f[2];
			double d[2];
			int64_t i[2];
		};
		uint8_t form; /* Gelu: 1 by tanh; Mod: 1 as fmod(); BitShift: 1 to the right */
	} elementwise;
	struct {
		uint8_t axis;
	} softmax;
	struct {
		uint8_t axes; /* bit i: dimension i is reduced; 0: identity */
		bool keepdims;
	} reduce;
	struct {
		uint8_t axis;
		bool last; /* true: the last of equal elements, not the first */
	} arg;
	struct {
		uint8_t axis;
		bool exclusive, reverse;
	} cum_sum;
	struct {
		float epsilon;
		uint8_t axis;    /* Layer-, RMSNormalization: first normalised dimension */
		uint32_t groups; /* Instance-, GroupNormalization: groups of channels */
	} norm;
	struct {
		uint8_t axis;
		uint8_t p; /* 1 or 2 */
	} lp_norm;
	struct {
		uint32_t heads;
		uint32_t dim; /* elements of each head that are rotated */
		bool interleaved;
	} rotary;
	struct {
		uint32_t q_heads, kv_heads;
		float scale;
		float softcap;   /* 0: no softcap */
		uint8_t qk_mode; /* ONNX's qk_matmul_output_mode */
		bool causal;
	} attention;
	struct {
		uint8_t perm[RBK_MAX_RANK];
	} transpose;
	struct {
		uint32_t start[RBK_MAX_RANK];
		int32_t step[RBK_MAX_RANK];
	} slice;
	struct {
		uint8_t axis;
	} along; /* Concat, Split */
	struct {
		uint64_t value; /* the element's bits, repeated to fill 64 bits */
		/*
		 * Elements added in front of each dimension; negative: removed. Shapes give those
		 * behind.
		 */
		int32_t begin[RBK_MAX_RANK];
		uint8_t mode; /* constant, reflect, edge, wrap */
	} pad;
	struct {
		/*
		 * Depth, height, width. For dimensions that the input lacks, kernel, stride and
		 * dilation are 1, without pads. Tap t of output o is at o * stride + t * dilation -
		 * pad_begin of the input. Taps outside count as 0 (Conv, LpPool) or are ignored
		 * (MaxPool, AveragePool). A window without taps inside gives minus infinity or the
		 * least integer (MaxPool), or 0 (AveragePool). With ceil_mode windows may reach
		 * beyond pad_end.
		 *
		 * ConvTranspose is the reverse: input i adds to o = i * stride + t * dilation -
		 * pad_begin, unless that is outside the output; pad_end is 0.
		 *
		 * (kernel - 1) * dilation + 1 and input + pad_begin + pad_end are below 2^31.
		 */
		uint32_t kernel[OP_MAX_SPATIAL];
		uint32_t stride[OP_MAX_SPATIAL];
		uint32_t dilation[OP_MAX_SPATIAL];
		uint32_t pad_begin[OP_MAX_SPATIAL];
		uint32_t pad_end[OP_MAX_SPATIAL];
		uint32_t group;       /* Conv */
		uint32_t p;           /* LpPool: p of its norm */
		bool includes_pad;    /* AveragePool: taps in the padding count in the divisor */
		bool is_column_major; /* MaxPool: indices are column-major */
	} window;
	struct {
		uint32_t k;
		uint8_t axis;
		bool largest;
		bool sorted;
	} top_k;
	struct {
		uint32_t block; /* elements along the axis per scale; 0: one scale for all */
		uint8_t axis;
		bool is_blocked; /* scales have the tensor's rank */
	} quantize;
	struct {
		uint32_t n;
		uint32_t block; /* terms per scale */
	} nbits;
	struct {
		uint8_t axis;       /* not for GatherND, ScatterND */
		uint8_t batch_dims; /* GatherND */
		uint8_t reduction;  /* enum op_scatter: ScatterElements, ScatterND */
	} gather;
	struct {
		uint32_t depth;
		uint8_t axis; /* axis of the output */
	} one_hot;
	struct {
		int64_t k; /* number of the diagonal, clamped to 32 bits */
		bool upper;
	} trilu;
	struct {
		uint8_t mode;    /* enum op_sample */
		uint8_t padding; /* enum op_sample_padding */
		bool align_corners;
	} grid_sample;
	struct {
		bool left, upper, trans, unit;
	} triangular; /* TriangularSolve */
};

/* GridSample: interpolation, over 2, 1 or 4 neighbours along each dimension. */
enum op_sample { OP_SAMPLE_LINEAR, OP_SAMPLE_NEAREST, OP_SAMPLE_CUBIC };

/* Value of pixels outside the picture: zero, the nearest pixel, or the mirrored picture. */
enum op_sample_padding {
	OP_SAMPLE_ZEROS,
	OP_SAMPLE_BORDER,
	OP_SAMPLE_REFLECTION,
};

/*
 * Effect of updates on an element: NONE keeps the last update; the others combine all updates with
 * the old value.
 */
enum op_scatter {
	OP_SCATTER_NONE,
	OP_SCATTER_ADD,
	OP_SCATTER_MUL,
	OP_SCATTER_MAX,
	OP_SCATTER_MIN,
};

/* Work of one node, as fixed + row * count. */
struct cost {
	uint64_t flops_fixed, flops_row;
	uint64_t bytes_fixed, bytes_row; /* bytes read and written */
};

enum {
	OP_ON_CPU = 1u << 0,
	OP_ON_VULKAN = 1u << 1,
};

/* A tensor, as rules see it. Its name is for messages only. */
struct op_tensor {
	const char *name;
	uint8_t dtype; /* enum rbk_dtype */
	struct shape shape;
};

/*
 * A class: inputs and outputs with the same element type, as with ONNX's type constraints. An
 * operator runs on a device if the device supports the types of all classes. A type that no device
 * supports is refused.
 */
struct op_class {
	char name;            /* a letter; 0: unused class */
	uint32_t cpu, vulkan; /* OP_TYPE() of the types that the device's executor supports */
};

/* An attribute that an operator accepts. */
struct op_attr {
	const char *name;
	uint32_t type; /* enum rbk_plan_attr_type */
	bool required;
	float otherwise; /* ONNX's default of a float of an elementwise function; else unused */
};

struct op {
	enum op_kind kind;
	enum op_family family;
	const char *name; /* ONNX name */
	uint8_t opset;    /* ONNX opset in which it got the semantics implemented here */
	uint8_t min_in, max_in;
	uint8_t min_out, max_out;
	struct op_class classes[OP_MAX_CLASSES]; /* listings show the first */
	/* Class letter of each input and output; the last letter holds for all further ones. */
	const char *in_classes, *out_classes;
	bool in_place;         /* element i of the output depends on element i of the inputs only */
	bool data_independent; /* run time does not depend on tensor contents */
	bool splits_rows;      /* rows of a dynamic leading dimension are computed independently */
	bool is_activation;    /* may be fused into the product in front of it: plan/fuse.c */
	bool takes_activation; /* a product into which an activation may be fused */
	bool is_like_first;    /* with one output, that output has the first input's shape */
	const struct op_attr *attrs; /* ends with a NULL name */

	/*
	 * Check shapes and attributes, fill call->params and infer the outputs' shapes. Input types
	 * have been checked, and output types are filled in if their class determines them. A rule
	 * sets the type of an output whose class has several types and no input.
	 * Return: 0, or OP_E_INVALID after op_call_refuse() has said why.
	 */
	int (*infer)(struct op_call *call);

	/* Fill @ret; shapes are inferred and verified. */
	void (*cost)(const struct op_call *call, struct cost *ret);

	/*
	 * Return the most bytes of work memory that an executor may need for one run at max_count,
	 * beside inputs and outputs. Each piece is a multiple of OP_WORK_ALIGN. Saturates. Shapes
	 * are inferred and verified. NULL: none.
	 */
	uint64_t (*work)(const struct op_call *call);
};

enum { OP_E_INVALID = 1 };

/* Return the row of that name or kind; NULL: there is none. */
const struct op *op_by_name(const char *name);
const struct op *op_by_kind(enum op_kind kind);

/* Return the types of the first class on a device, of OP_ON_*; 0: it does not run on the device. */
uint32_t op_types(const struct op *op, uint8_t device);

/* Return the name of a family in profile files, such as "matmul". */
const char *op_family_name(enum op_family family);
