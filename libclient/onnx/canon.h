#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Rules that convert a node to the catalogue's canonical form
 *
 * Each ONNX operator has a rule (some share one), in canon-FAMILY.c by family, listed in
 * canon-list.h. A rule reads the inputs and attributes of graph->node, with the meaning of the
 * model's opset, emits steps, and sets the outputs. The canonical form has these properties:
 * - The meaning is that of the newest opset.
 * - Attributes with a default may be left out.
 * - An ONNX input whose value shapes or compiled kernels depend on is an attribute of the input's
 * name.
 * - Numbers that depend on the rank are resolved: axes are not negative, sizes are complete.
 * canon-list.h lists the resulting attributes of some operators.
 *
 * Rules need not check for failures: unknown tensors stay unknown, graph->fatal ends the pass after
 * the node, and a refusal is recorded once.
 */
#include <math.h>
#include <string.h>

#include "libclient/onnx/canon-list.h"
#include "libclient/onnx/graph.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

struct canon {
	const char *op; /* with another domain: "com.microsoft.MatMulNBits" */
	uint8_t since;  /* first opset that has the operator */
	uint8_t until;  /* last opset that has the operator; 0: it was not removed */
	uint8_t min_in, max_in;
	uint8_t max_out;
	const char *needs; /* operator that the catalogue must have to emit steps; NULL: op */
	void (*rule)(struct graph *graph);
	uint8_t values; /* bit i: the elements of input i must be known */
};

/* Convert @node into steps, or refuse it. */
void canon_node(struct graph *graph, const struct model_node *node);

/* ---- nearest.c ---- */

/*
 * Refuse the node, whose operator is in none of @rows, and suggest the operator that may have been
 * meant.
 */
void nearest_refuse(struct graph *graph, const struct canon *rows, size_t n_rows,
		    bool knows_domain);

/* ---- Inputs and outputs of the node ---- */

/* Return the node's @i-th input; NULL: absent. */
struct tensor *canon_in(struct graph *graph, unsigned int i);
/* Return the node's @i-th input, without converting a four-bit matrix to floats. */
struct tensor *canon_narrow_in(struct graph *graph, unsigned int i);
/* Return true if output @i is read. */
bool canon_wants(const struct graph *graph, unsigned int i);
/* Set the node's @i-th output. */
void canon_out(struct graph *graph, unsigned int i, struct tensor *tensor);

/* ---- canon-attr.c ---- */

bool canon_has_attr(const struct graph *graph, const char *name);
/*
 * Return the attribute's value, or @fallback if it is absent. Refuse an attribute of another type.
 */
int64_t canon_int(struct graph *graph, const char *name, int64_t fallback);
float canon_float(struct graph *graph, const char *name, float fallback);
/* Return the attribute's values; NULL and 0 if it is absent. */
const int64_t *canon_ints(struct graph *graph, const char *name, unsigned int *ret_n);
const float *canon_floats(struct graph *graph, const char *name, unsigned int *ret_n);
/* Return the attribute in the graph's memory, or @fallback if it is absent. */
const char *canon_string(struct graph *graph, const char *name, const char *fallback);
/* Return an attribute of TENSOR type; NULL if it is absent. */
const struct constant *canon_tensor(struct graph *graph, const char *name);
/* Return an attribute of SPARSE_TENSOR type, made dense; NULL if it is absent. */
const struct constant *canon_sparse_tensor(struct graph *graph, const char *name);
/* Accept and ignore an attribute that has no effect. */
void canon_ignore(struct graph *graph, const char *name);

/* ---- canon-util.c: axes, and known elements ---- */

/* Convert @axis to a non-negative axis of @rank dimensions. Return: false after a refusal. */
bool canon_axis(struct graph *graph, int64_t axis, unsigned int rank, unsigned int *ret);
/*
 * Convert a list of distinct axes, sorted ascending, into @ret of RBK_MAX_RANK. Return: false after
 * a refusal.
 */
bool canon_axes(struct graph *graph, const int64_t *axes, unsigned int n, unsigned int rank,
		unsigned int *ret);

/*
 * Require that the elements of an input are known. Return: false after a refusal, which also marks
 * the model's inputs from which they are computed.
 */
bool canon_known(struct graph *graph, struct tensor *tensor, const char *what);
/*
 * Return the known elements of an input as integers. @what names the input in the refusal, which
 * also marks the model's inputs from which they are computed. Return: NULL after a refusal.
 */
const int64_t *canon_known_ints(struct graph *graph, struct tensor *tensor, const char *what,
				unsigned int *ret_n);
/*
 * Return the known elements as canon_known_ints() does; they may depend on the count: *ret_rows, or
 * NULL.
 */
const int64_t *canon_known_sizes(struct graph *graph, struct tensor *tensor, const char *what,
				 unsigned int *ret_n, const int64_t **ret_rows);
/* Read one known number, of any type. Return: false after a refusal. */
bool canon_known_number(struct graph *graph, struct tensor *tensor, const char *what, double *ret);
/* Read one known integer, of any type, without loss: 64 bits. Return: false after a refusal. */
bool canon_known_whole(struct graph *graph, struct tensor *tensor, const char *what, int64_t *ret);

/*
 * Read the attribute @name (older opsets) or the second input (newer ones), whichever is present,
 * as integers.
 * Return: false after a refusal; else *ret, NULL if neither is present.
 */
bool canon_attr_or_input(struct graph *graph, const char *name, const int64_t **ret,
			 unsigned int *ret_n);

/* ---- canon-emit.c ---- */

/* Return @tensor with another shape of as many elements; @tensor itself if it has that shape. */
struct tensor *canon_reshape(struct graph *graph, struct tensor *tensor, const struct shape *shape);
/* Return @tensor for a node that changes nothing, or a copy if such nodes are to be kept. */
struct tensor *canon_nothing(struct graph *graph, struct tensor *tensor);
/* Return a copy of @tensor, as another tensor. */
struct tensor *canon_copy(struct graph *graph, struct tensor *tensor);
struct tensor *canon_unary(struct graph *graph, const char *op, struct tensor *a,
			   const struct attr *attrs, unsigned int n_attrs);
struct tensor *canon_binary(struct graph *graph, const char *op, struct tensor *a,
			    struct tensor *b);
struct tensor *canon_cast(struct graph *graph, struct tensor *a, uint32_t dtype);

/* Return the accumulator type for sums over @x: float64 for float64, float32 for all others. */
static inline uint32_t canon_wide(const struct tensor *x)
{
	return x->dtype == RBK_ONNX_F64 ? RBK_ONNX_F64 : RBK_ONNX_F32;
}

/* Return a bfloat16 tensor as float32: always the same tensor. */
struct tensor *bfloat_widen(struct graph *graph, struct tensor *tensor);

/* ---- bfloat.c ---- */

/*
 * Determine whether the node, of row @canon or NULL, computes with bfloat16. Call before its
 * checks.
 */
void bfloat_begin(struct graph *graph, const struct canon *canon);
/*
 * Return the tensor that the node reads for its input @tensor: float32 where it computes with
 * bfloat16.
 */
struct tensor *bfloat_in(struct graph *graph, struct tensor *tensor);
/* Return the node's @i-th output for the rule's @tensor: rounded if the output is bfloat16. */
struct tensor *bfloat_out(struct graph *graph, unsigned int i, struct tensor *tensor);

/* ---- nibbles.c ---- */

/*
 * Represent a four-bit matrix, not yet converted to floats, of elements, scales, and zero points or
 * NULL.
 * Return: NULL: @in is no such matrix, or its scales do not match; the catalogue then reports the
 * error.
 */
struct tensor *nibbles_keep(struct graph *graph, struct tensor *const *in,
			    const struct attr *attrs);
/* Emit DequantizeLinear of @in, after widening its constants of four and of 16 bits. */
struct tensor *nibbles_dequantize(struct graph *graph, struct tensor *const *in,
				  const struct attr *attrs);
/*
 * Return @tensor; if it represents a four-bit matrix, the matrix as floats: always the same tensor.
 */
struct tensor *nibbles_widen(struct graph *graph, struct tensor *tensor);
/* Transpose a four-bit matrix. */
struct tensor *nibbles_transpose(struct graph *graph, struct tensor *tensor);
/*
 * Multiply @a by the four-bit matrix @b, and add @bias unless it is NULL. Return: NULL: not
 * supported by a step.
 */
struct tensor *nibbles_multiply(struct graph *graph, struct tensor *a, struct tensor *b,
				struct tensor *bias);

/* ---- Rules ---- */

#define CANON_RULE(op, since, until, min_in, max_in, max_out, needs, rule, values) \
	void rule(struct graph *graph);
CANON_LIST(CANON_RULE)

/* Emit @op with the node's inputs, except those whose bit in @absent is set. */
void canon_same_without(struct graph *graph, const char *op, uint32_t absent);

/* Emit Softmax, LogSoftmax or Hardmax @op of @x; @flattens: as before opset 13. */
struct tensor *canon_softmax_of(struct graph *graph, const char *op, struct tensor *x, int64_t axis,
				bool flattens);

/* Cast @n inputs @in of several float types to the type that holds all of them. */
void canon_unmix_floats(struct graph *graph, struct tensor **in, unsigned int n);
/* Emit BatchNormalization of five inputs @in, in training mode. */
void canon_batch_training(struct graph *graph, struct tensor *const *in, float epsilon);
/* Emit Hardmax of @x along @axis: canon_softmax_of() calls it. */
struct tensor *canon_hardmax(struct graph *graph, struct tensor *x, unsigned int axis);

/*
 * Emit a product of matrices of int32 or int64. Return: NULL: other types or shapes, or too large.
 */
struct tensor *canon_whole_product(struct graph *graph, struct tensor *a, struct tensor *b);
/* Emit a reduction @op with @attrs "axes" and "keepdims"; integers use integer operators. */
struct tensor *canon_whole_reduce(struct graph *graph, const char *op, struct tensor *x,
				  const struct attr attrs[2]);
/*
 * Emit Gemm of integers: inputs @in, the last one NULL if absent. Return: NULL: other types, shapes
 * or factors, or too large.
 */
struct tensor *canon_whole_gemm(struct graph *graph, struct tensor *const *in, float alpha,
				float beta, bool trans_a, bool trans_b);
