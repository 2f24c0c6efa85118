#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Probes: small plans that show a device's speed, and a bench that holds one probe
 *
 * A probe is one operator of a family on tensors of one size class. Two further probes are chains
 * of tiny operators, which show the cost of starting a task and a node. A bench holds what a run of
 * the probe needs: memory that the device can reach, the plan, its working memory on the device.
 * The caller runs the task, see calibrate.h.
 *
 * Setup thread, or before there are threads; one bench at a time for one device.
 */
#include <stdbool.h>
#include <stdint.h>

#include "place/profile.h"
#include "plan/executor.h"

enum {
	/*
	 * Classes below this are measured; the largest class takes the rate of the one before it.
	 */
	CALIBRATE_CLASSES = 5,
	CALIBRATE_CHAIN_SHORT = 2, /* probe of one tiny node */
	CALIBRATE_CHAIN_LONG = 3,  /* probe of CALIBRATE_CHAIN_NODES tiny nodes */
	CALIBRATE_PROBES = 2 + OP_FAMILY_COUNT * CALIBRATE_CLASSES,
	CALIBRATE_CHAIN_NODES = 9,
};
_Static_assert(CALIBRATE_PROBES <= 64, "sets of probes are masks of 64 bits");

struct calibrate_probe {
	enum op_family family;
	uint8_t size_class;
	uint8_t n_nodes;
};

/* Return the @index-th probe; the most informative probes come first. */
struct calibrate_probe calibrate_probe(unsigned int index);

static inline bool calibrate_probe_is_chain(unsigned int index)
{
	return index == CALIBRATE_CHAIN_SHORT || index == CALIBRATE_CHAIN_LONG;
}

/* Return the index of a family's probe at a size class below CALIBRATE_CLASSES. */
unsigned int calibrate_probe_index(enum op_family family, unsigned int size_class);

/* Work of a probe's task */
struct calibrate_work {
	uint32_t n_nodes;
	double flops, bytes;         /* read and written by its nodes */
	double up_bytes, down_bytes; /* of its bound tensors */
};

struct calibrate_bench {
	struct executor *executor;
	struct exec_arena arena; /* base NULL: no memory */
	struct plan *plan;       /* NULL: the bench is empty */
	bool is_loaded;
	bool is_overwritten; /* by results that are unsuitable as operands */
	struct exec_ref refs[RBK_MAX_REFS];
	struct exec_task task; /* of the plan; the caller sets state and results */
	struct calibrate_work work;
};

/* Return the bytes of memory that a bench for probes up to @size_class takes. */
uint64_t calibrate_bench_bytes(unsigned int size_class);

/*
 * Make the memory for probes up to @size_class and import it into the device.
 * Return: 0; negative errno.
 */
int calibrate_bench_init(struct calibrate_bench *bench, struct executor *executor,
			 unsigned int size_class);

/*
 * Make and prepare a probe's plan on the empty bench. The memory for loading it is in
 * plan->footprint, for one slot.
 * Return: 0; EXECUTOR_E_UNSUPPORTED; negative errno.
 */
int calibrate_bench_prepare(struct calibrate_bench *bench, unsigned int probe);

/*
 * Load the plan, if the device needs that.
 * Return: as executor_ops.plan_load().
 */
int calibrate_bench_load(struct calibrate_bench *bench);

/*
 * Probes of tile shapes (plan/executor.h): a probe is a problem of one class with one of the
 * shapes. Return true if the device has this shape and another one, so that the probe is needed.
 */
enum { CALIBRATE_TILE_PROBES = EXEC_TILE_OPS * EXEC_TILE_CLASSES * EXEC_MAX_TILES };
bool calibrate_tile_is_wanted(struct executor *executor, unsigned int index);

/* Prepare the @index-th probe of tiles, as calibrate_bench_prepare() does. */
int calibrate_bench_prepare_tile(struct calibrate_bench *bench, unsigned int index);

/*
 * After a probe of tiles ran, return true if its results are right, as far as a sample of plain
 * sums can tell.
 */
bool calibrate_bench_tile_is_right(const struct calibrate_bench *bench, unsigned int index);

/* Times of tile probes, in nanoseconds; 0: not measured, or wrong results */
struct calibrate_tiles {
	float exec_ns[CALIBRATE_TILE_PROBES];
};

/* Put the fastest shapes into @tiles, the shapes in use, which stay where others win by little. */
void calibrate_tiles_choose(const struct calibrate_tiles *measured, struct exec_tiles *tiles);

/* Remove the probe from the bench, whatever state it is in. */
void calibrate_bench_clear(struct calibrate_bench *bench);

/* Clear the bench and free its memory. */
void calibrate_bench_deinit(struct calibrate_bench *bench);
