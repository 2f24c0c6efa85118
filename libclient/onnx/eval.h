#pragma once
/* SPDX-License-Identifier: MIT */
/* Declarations that the files of the interpreter share: numbers, results, walks */
#include "libclient/onnx/graph.h"

/* ---- eval-number.c, beside its declarations in graph.h ---- */

int64_t eval_load_int(uint32_t dtype, const void *data, uint64_t i);
void eval_store_int(uint32_t dtype, void *data, uint64_t i, int64_t value);
bool eval_is_int(uint32_t dtype);

/* eval-result.c */

/*
 * Allocate a zeroed result, within the limits of computing. The data is written through a cast: it
 * is constant only once published. Return: 0; EVAL_E_UNKNOWN: too large; -errno.
 */
int eval_result(struct graph *graph, uint32_t dtype, uint32_t rank, const int64_t *dims,
		bool with_rows, struct constant *ret);

/* Make the result the contents of @tensor. Return: 0; -errno. */
int eval_publish(struct graph *graph, struct tensor *tensor, const struct constant *result);

/* Return an attribute's values; NULL and 0 if it is absent. */
const int64_t *eval_ints(const struct step *step, const char *name, unsigned int *ret_n);
int64_t eval_int(const struct step *step, const char *name, int64_t fallback);
/* Read an attribute. Return: false: it is absent. */
bool eval_float(const struct step *step, const char *name, double *ret);

/* A row-major iteration over all indices, with the offset in up to three arrays, by strides. */
struct eval_walk {
	uint32_t rank;
	unsigned int n_in;
	int64_t dims[RBK_MAX_RANK];
	int64_t strides[3][RBK_MAX_RANK];
	int64_t index[RBK_MAX_RANK];
	int64_t at[3];
	bool is_set[RBK_MAX_RANK];
};
void eval_step_walk(struct eval_walk *walk);

/* eval-move.c */

/* Return the start of ONNX's range in a dimension of size @dim, and store its number of indices. */
int64_t eval_slice_range(int64_t dim, int64_t start, int64_t end, int64_t step, int64_t *ret_n);

/* eval-quantize.c */

/* Mapping from elements to their scales, along one axis. */
struct eval_scales {
	unsigned int axis;
	int64_t inner;  /* number of elements behind the axis */
	int64_t size;   /* size of the axis */
	int64_t block;  /* elements along the axis that share a scale */
	bool is_single; /* one scale for all elements */
	bool is_list;   /* one scale per index of the axis, else one per block */
};

/* Fill in @ret for DequantizeLinear's attributes. Return: false: they do not match @x's shape. */
bool eval_find_scales(int64_t axis, int64_t block, const struct constant *x,
		      const struct constant *scale, struct eval_scales *ret);
/* Return the index of element @i's scale. */
uint64_t eval_scale_at(const struct eval_scales *scales, uint64_t i);
int eval_dequantize(struct graph *graph, struct step *step, int arg);

/* eval-move.c: as the catalogue defines the operators; constant inputs are attributes. */
int eval_reshape(struct graph *graph, struct step *step, int arg);
int eval_transpose(struct graph *graph, struct step *step, int arg);
int eval_slice(struct graph *graph, struct step *step, int arg);
int eval_concat(struct graph *graph, struct step *step, int arg);
int eval_gather(struct graph *graph, struct step *step, int arg);
int eval_expand(struct graph *graph, struct step *step, int arg);
int eval_split(struct graph *graph, struct step *step, int arg);
int eval_tile(struct graph *graph, struct step *step, int arg);
