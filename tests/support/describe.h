#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plan descriptions for tests
 *
 * Builds what shm/plan-wire.h describes, tensor by tensor and node by node. It checks nothing about
 * the plan, so that tests can describe impossible ones; describe_view() lets them damage the bytes
 * afterwards. Running out of memory and naming an unknown tensor abort: both are bugs of the test.
 *
 *	struct describe *d = describe_new("knn", 256);
 *
 *	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 784));
 *	describe_constant(d, "w", RBK_REF(1, 0), DESCRIBE_DIMS(784, 10));
 *	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 10));
 *	describe_node(d, "MatMul", "scores", "x,w", "y");
 *	desc = describe_finish(d, &desc_bytes);
 */
#include <stddef.h>
#include <stdint.h>
#include <ringbroker/abi.h>

#include "shm/plan-wire.h"

struct describe;

/* As the first dimension: the task's count. */
#define DESCRIBE_COUNT UINT32_MAX

/* The two last arguments of describe_tensor() and its relatives: rank and dimensions. */
#define DESCRIBE_DIMS(...)                                                       \
	sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (const uint32_t[]) \
	{                                                                        \
		__VA_ARGS__                                                      \
	}
#define DESCRIBE_SCALAR 0, NULL

struct describe *describe_new(const char *name, uint32_t max_count);

/* Frees what was not finished. Return: NULL. */
struct describe *describe_free(struct describe *describe);

/* Another max_count than describe_new() was told. */
void describe_set_max_count(struct describe *describe, uint32_t max_count);

/* Header flag RBK_PLAN_PINNED. */
void describe_pin(struct describe *describe, uint8_t device);
/* Header flag RBK_PLAN_NO_FUSION. */
void describe_disable_fusion(struct describe *describe);

/* @constant_ref is RBK_REF() for constants, else 0. Return: the tensor's index. */
unsigned int describe_tensor(struct describe *describe, const char *name, enum rbk_tensor_kind kind,
			     enum rbk_dtype dtype, uint64_t constant_ref, unsigned int rank,
			     const uint32_t *dims);

/* Float tensors of each kind. */
unsigned int describe_input(struct describe *describe, const char *name, unsigned int rank,
			    const uint32_t *dims);
unsigned int describe_output(struct describe *describe, const char *name, unsigned int rank,
			     const uint32_t *dims);
unsigned int describe_state(struct describe *describe, const char *name, unsigned int rank,
			    const uint32_t *dims);
unsigned int describe_constant(struct describe *describe, const char *name, uint64_t constant_ref,
			       unsigned int rank, const uint32_t *dims);

/* A tensor of @kind (output, scratch) whose shape is inferred. */
unsigned int describe_inferred(struct describe *describe, const char *name,
			       enum rbk_tensor_kind kind, enum rbk_dtype dtype);

/* A float scratch tensor whose shape is inferred. */
unsigned int describe_scratch(struct describe *describe, const char *name);

/* Makes every float tensor so far one of another type of floats; of float16. */
void describe_floats(struct describe *describe, enum rbk_dtype dtype);
void describe_halve(struct describe *describe);

/*
 * Adds a node. @in and @out are tensor names separated by commas; an empty name between or before
 * commas, or "-", is an absent one. Attributes that follow belong to it.
 */
void describe_node(struct describe *describe, const char *op, const char *name, const char *in,
		   const char *out);
void describe_attr_int(struct describe *describe, const char *name, int64_t value);
void describe_attr_float(struct describe *describe, const char *name, float value);
void describe_attr_ints(struct describe *describe, const char *name, unsigned int n,
			const int64_t *values);
void describe_attr_string(struct describe *describe, const char *name, const char *value);

/* The value as describe_attr_ints() takes it. */
#define DESCRIBE_INTS(...)                                                    \
	sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]) \
	{                                                                     \
		__VA_ARGS__                                                   \
	}

/* Frees @describe. Return: the description, on the heap, of exactly *ret_bytes. */
void *describe_finish(struct describe *describe, size_t *ret_bytes);

/* The sections of a well-formed description. */
struct describe_view {
	struct rbk_plan_header *header;
	struct rbk_plan_tensor *tensors;
	struct rbk_plan_node *nodes;
	struct rbk_plan_attr *attrs;
	uint16_t *edges;
	uint8_t *blob;
};
struct describe_view describe_view(void *desc);
