#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Small networks: one task, prepared with a broker
 *
 * The measuring thread calls all functions here.
 */
#include <stdint.h>

#include <ringbroker.h>

#include "bench.h"

struct network_file;

/* A network with the memory of one task. Equal networks of two brokers compute equal results. */
struct network {
	struct rbk_plan *plan; /* of the perceptron; the objects of a file are in @file */
	struct rbk_arena *constants, *arena;
	struct network_file *file;

	uint32_t plan_id, count;
	unsigned int n_refs;
	uint64_t refs[RBK_SQE_REFS];
	const void *tensors[RBK_SQE_REFS]; /* memory of the references, and its size */
	uint64_t bytes[RBK_SQE_REFS];
};

#define NETWORK_INIT \
	{            \
		0    \
	}

#define NETWORK_NAME_BYTES 64

/*
 * Prepare a network with @rbk: that of --model's value @model, or, with NULL, a perceptron of three
 * layers of 256 over one row. Free it with network_deinit(), also after a failure.
 * Return: 0; BENCH_E_SKIP or a negative errno, which has been reported.
 */
int network_init(struct network *network, struct bench_env *env, struct rbk *rbk,
		 const char *model);
void network_deinit(struct network *network);

/* Write the name for rows: the last folder and the file of @model, or the perceptron's. */
void network_name(const char *model, char ret[NETWORK_NAME_BYTES]);

/*
 * Prepare the ONNX model of "FILE,INPUT...", with an array of a file for each input in the model's
 * order, and fill in *network.
 * Return: as network_init().
 */
int network_file_new(struct network *network, struct bench_env *env, struct rbk *rbk,
		     const char *model);
/* Accepts NULL. Return: NULL. */
struct network_file *network_file_free(struct network_file *file);
