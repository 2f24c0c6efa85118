#pragma once
/* SPDX-License-Identifier: MIT */
/* The interface between library.c and the files of each library */
#include <stdint.h>

#include "library.h"

struct library_ops {
	int (*matmul_new)(struct library *library, uint32_t m, uint32_t k, uint32_t n,
			  const float *a, const float *b, float *c, struct library_matmul **ret);
	/* NULL: not available */
	int (*matmul8_new)(struct library *library, uint32_t m, uint32_t k, uint32_t n,
			   const uint8_t *a, const int8_t *b, int32_t *c,
			   struct library_matmul **ret);
	int (*matmul_run)(struct library_matmul *matmul);
	void (*matmul_free)(struct library_matmul *matmul);
	/* operator_*: NULL, all four: not available */
	int (*operator_new)(struct library *library, const struct operator_shape *shape,
			    const struct operator_data *data, bool own_layout,
			    unsigned int n_threads, struct library_operator **ret);
	int (*operator_run)(struct library_operator *operator);
	int (*operator_fetch)(struct library_operator *operator);
	void (*operator_free)(struct library_operator *operator);
	void (*free)(struct library *library);
};

/* head of each library's own structure */
struct library {
	const struct library_ops *ops;
	char name[48];
};

struct library_matmul {
	struct library *library;
};

struct library_operator {
	struct library *library;
};
