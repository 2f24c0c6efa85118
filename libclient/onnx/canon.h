#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Rules that bring a node into the catalogue's form
 *
 * One rule per ONNX operator (some share one), by family in canon-FAMILY.c, listed in
 * canon-list.h. A rule reads the inputs and attributes of graph->node, as the model's opset means
 * them, emits steps and says what the outputs are. Canonical means: the newest opset's meaning;
 * attributes that have a default may be left out; whatever ONNX gives as an input that must be
 * known to know shapes, or that kernels are compiled for, is an attribute of the input's name;
 * numbers that depend on the rank are resolved: axes are not negative, sizes are complete.
 * canon-list.h says what that makes of some operators.
 *
 * Rules need not care whether something failed: what is unknown stays unknown, graph->fatal ends
 * the pass after the node, and a refusal is written down once.
 */
#include <math.h>
#include <string.h>

#include "libclient/onnx/canon-list.h"
#include "libclient/onnx/graph.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

struct canon {
	const char *op; /* of another domain: "com.microsoft.MatMulNBits" */
	uint8_t since;  /* opset */
	uint8_t until;  /* the last opset that has it; 0: it still is there */
	uint8_t min_in, max_in;
	uint8_t max_out;
	const char *needs; /* in the catalogue, if anything is to be emitted; NULL: itself */
	void (*rule)(struct graph *graph);
	uint8_t values; /* bit i: the elements of input i must be known */
};

/* Brings @node into steps, or refuses it. */
void canon_node(struct graph *graph, const struct model_node *node);

/* ---- nearest.c ---- */

/* Refuses the node, whose operator has none of @rows, and says which one may have been meant. */
void nearest_refuse(struct graph *graph, const struct canon *rows, size_t n_rows,
		    bool knows_domain);

/* ---- What a node says ---- */

/* Its @i-th input; NULL: absent. */
struct tensor *canon_in(struct graph *graph, unsigned int i);
/* The same, but a matrix of four bits is not made floats. */
struct tensor *canon_narrow_in(struct graph *graph, unsigned int i);
/* Is somebody interested in output @i? */
bool canon_wants(const struct graph *graph, unsigned int i);
/* Says what its @i-th output is. */
void canon_out(struct graph *graph, unsigned int i, struct tensor *tensor);

/* ---- canon-attr.c ---- */

bool canon_has_attr(const struct graph *graph, const char *name);
/* The value, or @fallback where there is none. Of another type: a refusal. */
int64_t canon_int(struct graph *graph, const char *name, int64_t fallback);
float canon_float(struct graph *graph, const char *name, float fallback);
/* NULL and 0 where there is none. */
const int64_t *canon_ints(struct graph *graph, const char *name, unsigned int *ret_n);
const float *canon_floats(struct graph *graph, const char *name, unsigned int *ret_n);
/* In the graph's memory, or @fallback. */
const char *canon_string(struct graph *graph, const char *name, const char *fallback);
/* Of TENSOR type. NULL where there is none. */
const struct constant *canon_tensor(struct graph *graph, const char *name);
/* Of SPARSE_TENSOR type, made dense. */
const struct constant *canon_sparse_tensor(struct graph *graph, const char *name);
/* An attribute that changes nothing. */
void canon_ignore(struct graph *graph, const char *name);

/* ---- canon-util.c: axes, and known elements ---- */

/* @axis made non-negative for @rank dimensions. Return: false after a refusal. */
bool canon_axis(struct graph *graph, int64_t axis, unsigned int rank, unsigned int *ret);
/* A list of distinct axes; sorted ascending, into @ret of RBK_MAX_RANK. */
bool canon_axes(struct graph *graph, const int64_t *axes, unsigned int n, unsigned int rank,
		unsigned int *ret);

/*
 * The elements of an input must be known. Return: false after a refusal, which also marks the
 * model's inputs that they come from.
 */
bool canon_known(struct graph *graph, struct tensor *tensor, const char *what);
/*
 * The elements of an input that must be known, as integers. @what names it in the refusal, which
 * also marks the model's inputs that it comes from. Return: NULL after a refusal.
 */
const int64_t *canon_known_ints(struct graph *graph, struct tensor *tensor, const char *what,
				unsigned int *ret_n);
/* The same, where elements may depend on count: *ret_rows, or NULL. */
const int64_t *canon_known_sizes(struct graph *graph, struct tensor *tensor, const char *what,
				 unsigned int *ret_n, const int64_t **ret_rows);
/* One number, of any type. Return: false after a refusal. */
bool canon_known_number(struct graph *graph, struct tensor *tensor, const char *what, double *ret);
/* One whole number, of any type, as it is: 64 bits of it. */
bool canon_known_whole(struct graph *graph, struct tensor *tensor, const char *what, int64_t *ret);

/*
 * The attribute @name (older opsets) or the input @i (newer ones), whichever there is, as integers.
 * Return: false after a refusal; else *ret, NULL where there is neither.
 */
bool canon_attr_or_input(struct graph *graph, const char *name, unsigned int i, const int64_t **ret,
			 unsigned int *ret_n);

/* ---- canon-emit.c ---- */

/* @tensor with another shape of as many elements; itself if it has that one. */
struct tensor *canon_reshape(struct graph *graph, struct tensor *tensor, const struct shape *shape);
/* @tensor, of a node that changes nothing: a copy if those are to be kept. */
struct tensor *canon_nothing(struct graph *graph, struct tensor *tensor);
/* A copy of it, as another tensor. */
struct tensor *canon_copy(struct graph *graph, struct tensor *tensor);
struct tensor *canon_unary(struct graph *graph, const char *op, struct tensor *a,
			   const struct attr *attrs, unsigned int n_attrs);
struct tensor *canon_binary(struct graph *graph, const char *op, struct tensor *a,
			    struct tensor *b);
struct tensor *canon_cast(struct graph *graph, struct tensor *a, uint32_t dtype);

/* The type in which sums over @x are computed: float64 for float64, float32 for all others. */
static inline uint32_t canon_wide(const struct tensor *x)
{
	return x->dtype == RBK_ONNX_F64 ? RBK_ONNX_F64 : RBK_ONNX_F32;
}

/* A bfloat16 tensor as float32: always the same one. */
struct tensor *bfloat_widen(struct graph *graph, struct tensor *tensor);

/* ---- bfloat.c ---- */

/* Finds out whether the node, of row @canon or NULL, computes with bfloat16; before its checks. */
void bfloat_begin(struct graph *graph, const struct canon *canon);
/* What the node reads in the place of its input @tensor: float32 where it computes with it. */
struct tensor *bfloat_in(struct graph *graph, struct tensor *tensor);
/* What its @i-th output is, where the rule made @tensor: rounded if it is to be bfloat16. */
struct tensor *bfloat_out(struct graph *graph, unsigned int i, struct tensor *tensor);

/* ---- nibbles.c ---- */

/*
 * A matrix of four bits that is not yet floats, of elements, scales, and zero points or NULL.
 * Return: NULL: it is none, or its scales are not its own; the catalogue says what is wrong then.
 */
struct tensor *nibbles_keep(struct graph *graph, struct tensor *const *in,
			    const struct attr *attrs);
/* A DequantizeLinear of @in, whose constants of four bits and of 16 are made wider. */
struct tensor *nibbles_dequantize(struct graph *graph, struct tensor *const *in,
				  const struct attr *attrs);
/* @tensor; if it stands for a matrix of four bits, that as floats: always the same tensor. */
struct tensor *nibbles_widen(struct graph *graph, struct tensor *tensor);
/* A matrix of four bits with its dimensions changed. */
struct tensor *nibbles_transpose(struct graph *graph, struct tensor *tensor);
/* @a by the matrix of four bits @b, and @bias or NULL added. Return: NULL: there is no such step.
 */
struct tensor *nibbles_multiply(struct graph *graph, struct tensor *a, struct tensor *b,
				struct tensor *bias);

/* ---- Rules ---- */

#define CANON_RULE(op, since, until, min_in, max_in, max_out, needs, rule, values) \
	void rule(struct graph *graph);
CANON_LIST(CANON_RULE)

/* The same as @op, without those inputs whose bit is set. */
void canon_same_without(struct graph *graph, const char *op, uint32_t absent);

/* Softmax, LogSoftmax or Hardmax @op of @x; @flattens: as before opset 13. */
struct tensor *canon_softmax_of(struct graph *graph, const char *op, struct tensor *x, int64_t axis,
				bool flattens);

/* Where @n inputs @in are floats of several types, makes all of them that which holds the others.
 */
void canon_unmix_floats(struct graph *graph, struct tensor **in, unsigned int n);
/* BatchNormalization of five inputs @in, in training. */
void canon_batch_training(struct graph *graph, struct tensor *const *in, float epsilon);
/* Hardmax of @x along @axis: Softmax's rule tells. */
struct tensor *canon_hardmax(struct graph *graph, struct tensor *x, unsigned int axis);

/* A product of matrices of int32 or int64. NULL: there is no such thing here. */
struct tensor *canon_whole_product(struct graph *graph, struct tensor *a, struct tensor *b);
/* A reduction @op, @attrs "axes" and "keepdims"; of integers by what there is for them. */
struct tensor *canon_whole_reduce(struct graph *graph, const char *op, struct tensor *x,
				  const struct attr attrs[2]);
/* Gemm of integers: inputs @in, the last one NULL if absent. NULL: there is no such thing here. */
struct tensor *canon_whole_gemm(struct graph *graph, struct tensor *const *in, float alpha,
				float beta, bool trans_a, bool trans_b);
