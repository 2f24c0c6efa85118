#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plan descriptions for tests
 *
 * Builds the format of shm/plan-wire.h tensor by tensor and node by node. The builder checks
 * nothing about the plan, so that tests can describe impossible plans; describe_view() lets them
 * damage the bytes afterwards. Running out of memory and naming an unknown tensor abort: both are
 * bugs of the test.
 *
 *   struct describe *d = describe_new("knn", 256);
 *
 *   describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 784));
 *   describe_constant(d, "w", RBK_REF(1, 0), DESCRIBE_DIMS(784, 10));
 *   describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 10));
 *   describe_node(d, "MatMul", "scores", "x,w", "y");
 *   desc = describe_finish(d, &desc_bytes);
 */
#include <stddef.h>
#include <stdint.h>
#include <ringbroker/abi.h>

#include "shm/plan-wire.h"

struct describe;

/* First dimension that stands for the task's count. */
#define DESCRIBE_COUNT UINT32_MAX

/* Rank and dimensions: the last two arguments of describe_tensor() and its relatives. */
#define DESCRIBE_DIMS(...)                                                       \
	sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (const uint32_t[]) \
	{                                                                        \
		__VA_ARGS__                                                      \
	}
#define DESCRIBE_SCALAR 0, NULL

struct describe *describe_new(const char *name, uint32_t max_count);

/*
 * Free an unfinished description.
 * Return: NULL.
 */
struct describe *describe_free(struct describe *describe);

/* Replace the max_count that describe_new() was given. */
void describe_set_max_count(struct describe *describe, uint32_t max_count);

/* Set RBK_PLAN_PINNED in the header. */
void describe_pin(struct describe *describe, uint8_t device);
/* Set RBK_PLAN_NO_FUSION in the header. */
void describe_disable_fusion(struct describe *describe);

/*
 * Add a tensor; @constant_ref is RBK_REF() for constants, else 0.
 * Return: the tensor's index.
 */
unsigned int describe_tensor(struct describe *describe, const char *name, enum rbk_tensor_kind kind,
			     enum rbk_dtype dtype, uint64_t constant_ref, unsigned int rank,
			     const uint32_t *dims);

/* Add a float32 tensor of the kind in the name. */
unsigned int describe_input(struct describe *describe, const char *name, unsigned int rank,
			    const uint32_t *dims);
unsigned int describe_output(struct describe *describe, const char *name, unsigned int rank,
			     const uint32_t *dims);
unsigned int describe_state(struct describe *describe, const char *name, unsigned int rank,
			    const uint32_t *dims);
unsigned int describe_constant(struct describe *describe, const char *name, uint64_t constant_ref,
			       unsigned int rank, const uint32_t *dims);

/* Add a tensor of @kind (output, scratch) whose shape is inferred. */
unsigned int describe_inferred(struct describe *describe, const char *name,
			       enum rbk_tensor_kind kind, enum rbk_dtype dtype);

/* Add a float32 scratch tensor whose shape is inferred. */
unsigned int describe_scratch(struct describe *describe, const char *name);

/* Change the type of every float32 tensor added so far to @dtype, or to float16. */
void describe_floats(struct describe *describe, enum rbk_dtype dtype);
void describe_halve(struct describe *describe);

/*
 * Add a node. @in and @out are tensor names separated by commas; an empty name between or before
 * commas, or "-", means absent. Attributes added afterwards belong to this node.
 */
void describe_node(struct describe *describe, const char *op, const char *name, const char *in,
		   const char *out);
void describe_attr_int(struct describe *describe, const char *name, int64_t value);
void describe_attr_float(struct describe *describe, const char *name, float value);
void describe_attr_ints(struct describe *describe, const char *name, unsigned int n,
			const int64_t *values);
void describe_attr_string(struct describe *describe, const char *name, const char *value);

/* A list of int64 values, as describe_attr_ints() takes it. */
#define DESCRIBE_INTS(...)                                                    \
	sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]) \
	{                                                                     \
		__VA_ARGS__                                                   \
	}

/*
 * Free @describe.
 * Return: the description, on the heap, of exactly *ret_bytes.
 */
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
