#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the files of the interpreter share: numbers, results, walks
 */
#include "libclient/onnx/graph.h"

/* eval-number.c, beside what graph.h has of it */

int64_t eval_load_int(uint32_t dtype, const void *data, uint64_t i);
void eval_store_int(uint32_t dtype, void *data, uint64_t i, int64_t value);
bool eval_is_int(uint32_t dtype);

/* eval-result.c */

/*
 * Makes room for a result, zeroed, within what the graph may compute. The data is written through a
 * cast: it is only constant once published. Return: 0; EVAL_E_UNKNOWN: too large; -errno.
 */
int eval_result(struct graph *graph, uint32_t dtype, uint32_t rank, const int64_t *dims,
		bool with_rows, struct constant *ret);

/* Makes it what @tensor is. Return: 0; -errno. */
int eval_publish(struct graph *graph, struct tensor *tensor, const struct constant *result);

/* An attribute's values; NULL and 0 where there is none. */
const int64_t *eval_ints(const struct step *step, const char *name, unsigned int *ret_n);
int64_t eval_int(const struct step *step, const char *name, int64_t fallback);
/* Return: false: there is none. */
bool eval_float(const struct step *step, const char *name, double *ret);

/* A walk over all indices in C order, and where that is in up to three arrays, by strides. */
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

/* Where ONNX's range of a dimension of @dim starts, and how many indices it has. */
int64_t eval_slice_range(int64_t dim, int64_t start, int64_t end, int64_t step, int64_t *ret_n);

/* eval-quantize.c */

/* Where the scale of each element is: elements of @inner have one, if @size does not count them. */
struct eval_scales {
	unsigned int axis;
	int64_t inner;  /* elements behind the axis */
	int64_t size;   /* of the axis */
	int64_t block;  /* of the axis that share a scale */
	bool is_single; /* one for all of them */
	bool is_list;   /* one along the axis, else of each block of everything */
};

/* By DequantizeLinear's attributes. Return: false: they are not of @x's shape. */
bool eval_find_scales(int64_t axis, int64_t block, const struct constant *x,
		      const struct constant *scale, struct eval_scales *ret);
/* Which scale element @i has. */
uint64_t eval_scale_at(const struct eval_scales *scales, uint64_t i);
int eval_dequantize(struct graph *graph, struct step *step, int arg);

/* eval-move.c: as the catalogue defines the operators, constant inputs being attributes. */
int eval_reshape(struct graph *graph, struct step *step, int arg);
int eval_transpose(struct graph *graph, struct step *step, int arg);
int eval_slice(struct graph *graph, struct step *step, int arg);
int eval_concat(struct graph *graph, struct step *step, int arg);
int eval_gather(struct graph *graph, struct step *step, int arg);
int eval_expand(struct graph *graph, struct step *step, int arg);
int eval_split(struct graph *graph, struct step *step, int arg);
int eval_tile(struct graph *graph, struct step *step, int arg);
