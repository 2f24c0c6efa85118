#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Probes: small plans by which a device's speed is known, and a bench that one of them lies on
 *
 * A probe is one operator of a family on tensors of one size class, or a chain of tiny operators
 * that shows what starting a task and a node costs. A bench holds what running one takes: memory
 * that the device can reach, the plan, its working memory on the device. Who runs the task on the
 * bench, and when, is somebody else's: see calibrate.h.
 *
 * Setup thread, or before there are threads; one bench at a time for one device.
 */
#include <stdbool.h>
#include <stdint.h>

#include "place/profile.h"
#include "plan/executor.h"

enum {
	/* Classes up to here are measured; the largest is as the one before it. */
	CALIBRATE_CLASSES = 5,
	CALIBRATE_CHAIN_SHORT = 2, /* of probes: one tiny node */
	CALIBRATE_CHAIN_LONG = 3,  /* CALIBRATE_CHAIN_NODES of them */
	CALIBRATE_PROBES = 2 + OP_FAMILY_COUNT * CALIBRATE_CLASSES,
	CALIBRATE_CHAIN_NODES = 9,
};
_Static_assert(CALIBRATE_PROBES <= 64, "sets of probes are masks of 64 bits");

struct calibrate_probe {
	enum op_family family;
	uint8_t size_class;
	uint8_t n_nodes;
};

/* The @index-th probe, the most informative ones first. */
struct calibrate_probe calibrate_probe(unsigned int index);

static inline bool calibrate_probe_is_chain(unsigned int index)
{
	return index == CALIBRATE_CHAIN_SHORT || index == CALIBRATE_CHAIN_LONG;
}

/* The index of a family's probe at a size class below CALIBRATE_CLASSES. */
unsigned int calibrate_probe_index(enum op_family family, unsigned int size_class);

/* What a probe's task does, in all. */
struct calibrate_work {
	uint32_t n_nodes;
	double flops, bytes;         /* read and written by its nodes */
	double up_bytes, down_bytes; /* of what is bound to it */
};

struct calibrate_bench {
	struct executor *executor;
	struct exec_arena arena; /* base NULL: not there */
	struct plan *plan;       /* NULL: none lies on it */
	bool is_loaded;
	bool is_overwritten; /* by results that are no numbers to measure with */
	struct exec_ref refs[RBK_MAX_REFS];
	struct exec_task task; /* of the plan; state and results are whose runs it */
	struct calibrate_work work;
};

/* Bytes of memory that a bench for probes up to @size_class takes. */
uint64_t calibrate_bench_bytes(unsigned int size_class);

/*
 * Makes the memory for probes up to @size_class and shows it to the device.
 * Return: 0; negative errno.
 */
int calibrate_bench_init(struct calibrate_bench *bench, struct executor *executor,
			 unsigned int size_class);

/*
 * Lays a probe on the empty bench: makes and prepares its plan. What loading it takes is in
 * plan->footprint, for one slot. Return: 0; EXECUTOR_E_UNSUPPORTED; negative errno.
 */
int calibrate_bench_prepare(struct calibrate_bench *bench, unsigned int probe);

/* Gets it ready to run, if the device wants that. Return: as executor_ops.plan_load(). */
int calibrate_bench_load(struct calibrate_bench *bench);

/*
 * Shapes of tiles (plan/executor.h): a probe is a problem of one class with one of the shapes. It
 * is wanted of a device that has this shape and another one.
 */
enum { CALIBRATE_TILE_PROBES = EXEC_TILE_OPS * EXEC_TILE_CLASSES * EXEC_MAX_TILES };
bool calibrate_tile_is_wanted(struct executor *executor, unsigned int index);

/* As calibrate_bench_prepare(), of the @index-th probe of tiles. */
int calibrate_bench_prepare_tile(struct calibrate_bench *bench, unsigned int index);

/* After that one ran: is what it computed right, as far as a plain sum here and there can tell? */
bool calibrate_bench_tile_is_right(const struct calibrate_bench *bench, unsigned int index);

/* What they took, in nanoseconds; 0: not measured, or wrong. */
struct calibrate_tiles {
	float exec_ns[CALIBRATE_TILE_PROBES];
};

/* Puts the fastest into @tiles, which are those in use: they stay where others win by little. */
void calibrate_tiles_choose(const struct calibrate_tiles *measured, struct exec_tiles *tiles);

/* Takes the probe off, whatever has become of it. */
void calibrate_bench_clear(struct calibrate_bench *bench);

/* Clears it and gives the memory back. */
void calibrate_bench_deinit(struct calibrate_bench *bench);
