/* SPDX-License-Identifier: MIT */
/*
 * Filling packed forms
 *
 * A plan is compiled first, which determines the size of its packed forms without allocating them.
 * Then the forms get memory and are filled one after the other, some megabytes per call, so that
 * other jobs can run on the setup thread in between. Float16 sources of float32 forms are converted
 * to temporary memory, which is freed when the form is complete.
 *
 * Two plans that share a form may fill it at the same time: each continues where the other stopped.
 */
#include "cpu/compile.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "cpu/internal.h"
#include "plan/executor.h"
#include "util/error.h"

enum {
	FILL_CALL_BYTES = 4 << 20, /* approximate bytes of packed forms that one call fills */
	CONVERT_FLOATS = 1 << 19,  /* floats that one call converts */
};

void compile_fill_from(const struct compiler *c, struct cpu_fill *fill, unsigned int source,
		       uintptr_t address)
{
	fill->from[source] = (const void *)address;
	for (unsigned int i = 0; i < c->node->n_in; i++) {
		if (!c->half_constants[i] || address != compile_half_address(i))
			continue;
		fill->from[source] = NULL;
		fill->half[source].from = (const uint16_t *)c->half_constants[i];
		fill->half[source].n = shape_elems(&node_in(c, i)->shape, c->plan->max_count);
	}
}

/*
 * Convert some more of the form's sources.
 * Return: 0, all are converted; EXECUTOR_E_MORE; -ENOMEM.
 */
static int convert(struct chunks *memory, struct cpu_fill *fill)
{
	for (unsigned int i = 0; i < FILL_SOURCES; i++) {
		const uint64_t left = fill->half[i].n - fill->half[i].n_done;
		const uint64_t n = left < CONVERT_FLOATS ? left : CONVERT_FLOATS;
		float *to = (float *)fill->from[i];

		if (left == 0)
			continue;
		if (!to)
			to = chunks_map(memory, fill->half[i].n * sizeof(float),
					&fill->half[i].map_bytes);
		if (!to)
			return error_origin(-ENOMEM);
		fill->from[i] = to;
		fill->kernels->half_load(n, fill->half[i].from + fill->half[i].n_done,
					 to + fill->half[i].n_done);
		fill->half[i].n_done += n;
		return EXECUTOR_E_MORE;
	}
	return 0;
}

/*
 * Free a part of the converted sources. Return: true if a part was freed, so that another call is
 * needed.
 */
static bool drop_some_converted(struct chunks *memory, struct cpu_fill *fill)
{
	for (unsigned int i = 0; i < FILL_SOURCES; i++)
		if (fill->half[i].map_bytes > 0) {
			chunks_unmap_some(memory, (void *)fill->from[i], &fill->half[i].map_bytes,
					  CHUNKS_UNMAP_BYTES);
			return true;
		}
	return false;
}

static void drop_converted(struct chunks *memory, struct cpu_fill *fill)
{
	for (unsigned int i = 0; i < FILL_SOURCES; i++)
		if (fill->half[i].map_bytes > 0) {
			chunks_unmap(memory, (void *)fill->from[i], fill->half[i].map_bytes);
			fill->half[i].map_bytes = 0;
		}
}

/* Return: 0, the form is filled; EXECUTOR_E_MORE; -ENOMEM. */
static int fill_some(struct cpu_executor *cpu, struct cpu_fill *fill)
{
	struct cpu_pack *pack = fill->pack;
	int r;

	if (pack->is_filled)
		return 0;
	r = convert(&cpu->memory, fill);
	if (r)
		return r < 0 ? error_fold(r) : r;
	r = cpu_pack_commit(&cpu->packs, pack);
	if (r)
		return error_fold(r);
	pack->is_filled = !fill->part(fill, pack->n_filled++);
	return pack->is_filled ? 0 : EXECUTOR_E_MORE;
}

int cpu_fill(struct cpu_executor *cpu, struct cpu_plan *compiled)
{
	uint64_t bytes = 0;
	int r;

	while (compiled->n_filled < compiled->n_fills) {
		struct cpu_fill *fill = &compiled->fills[compiled->n_filled];

		if (bytes >= FILL_CALL_BYTES)
			return EXECUTOR_E_MORE;
		r = fill_some(cpu, fill);
		if (r < 0)
			return error_fold(r);
		/* A form that is filled in parts has parts of about this size. */
		bytes += fill->pack->map_bytes < FILL_CALL_BYTES / 2 ? fill->pack->map_bytes
								     : FILL_CALL_BYTES / 2;
		if (r == EXECUTOR_E_MORE)
			continue;
		if (drop_some_converted(&cpu->memory, fill))
			return EXECUTOR_E_MORE;
		compiled->n_filled++;
	}
	cpu_fill_deinit(cpu, compiled);
	return 0;
}

bool cpu_fill_shrink(struct cpu_executor *cpu, struct cpu_plan *compiled)
{
	return compiled->n_filled < compiled->n_fills &&
	       drop_some_converted(&cpu->memory, &compiled->fills[compiled->n_filled]);
}

uint64_t cpu_fill_bytes(const struct cpu_plan *compiled)
{
	uint64_t most = 0;

	for (unsigned int i = 0; i < compiled->n_fills; i++) {
		uint64_t bytes = 0;

		for (unsigned int k = 0; k < FILL_SOURCES; k++)
			bytes += chunks_map_bytes(compiled->fills[i].half[k].n * sizeof(float));
		most = bytes > most ? bytes : most;
	}
	return most + compiled->n_fills * sizeof(*compiled->fills);
}

void cpu_fill_deinit(struct cpu_executor *cpu, struct cpu_plan *compiled)
{
	for (unsigned int i = 0; i < compiled->n_fills; i++)
		drop_converted(&cpu->memory, &compiled->fills[i]);
	free(compiled->fills);
	compiled->fills = NULL;
	compiled->n_fills = compiled->n_filled = 0;
}
