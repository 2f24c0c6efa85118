/* SPDX-License-Identifier: MIT */
/*
 * Tile Cholesky by StarPU with our kernels
 *
 * Tasks are submitted in the order of tiles.h; StarPU derives their dependencies from the buffers.
 * Tasks on early columns have the highest priority; within a column, Cholesky comes before
 * TriangularSolve, and both before updates.
 */
#include "starpu-cholesky.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "crew.h"
#include "starpu-runtime.h"
#include "starpu-tasks.h"
#include "tiles.h"

_Static_assert((int)STARPU_E_ABSENT == (int)STARPU_TASKS_E_ABSENT, "one status for all callers");

struct starpu_cholesky {
	struct starpu_runtime runtime;
	const struct cpu_kernels *kernels;
	struct starpu_codelet codelets[TILE_KINDS];
	struct starpu_perfmodel models[TILE_KINDS];
	starpu_data_handle_t *handles;
	struct tile_task *tasks;
	void *workspaces[STARPU_NMAXWORKERS];
	uint32_t n, side, n_handles;
};

static void *workspace_of(const struct starpu_cholesky *cholesky)
{
	return cholesky->workspaces[cholesky->runtime.starpu_worker_get_id()];
}

static void run_factor(void *buffers[], void *argument)
{
	const struct starpu_cholesky *cholesky = argument;
	const struct cpu_cholesky args = {
		.a = starpu_runtime_floats(buffers[0]),
		.y = starpu_runtime_floats(buffers[1]),
		.batch = 1,
		.n = cholesky->side,
		.type = CPU_F32,
	};

	cholesky->kernels->cholesky(&args, 0, 1, workspace_of(cholesky));
}

static void run_solve(void *buffers[], void *argument)
{
	const struct starpu_cholesky *cholesky = argument;
	const struct cpu_solve args = {
		.a = starpu_runtime_floats(buffers[0]),
		.b = starpu_runtime_floats(buffers[1]),
		.y = starpu_runtime_floats(buffers[2]),
		.batch = 1,
		.sides = cholesky->side,
		.n = cholesky->side,
		.trans = true,
		.type = CPU_F32,
	};

	cholesky->kernels->solve(&args, 0, cpu_solve_units(&args), workspace_of(cholesky));
}

static void update(const struct starpu_cholesky *cholesky, const float *left, const float *right,
		   const float *old, float *new)
{
	const uint32_t side = cholesky->side;
	const struct cpu_gemm args = {
		.m = side,
		.n = side,
		.k = side,
		.a = left,
		.a_rs = side,
		.a_cs = 1,
		.b = right,
		.b_rs = 1,
		.b_cs = side,
		.y = new,
		.y_rs = side,
		.c = old,
		.c_rs = side,
		.c_cs = 1,
		.alpha = -1,
		.beta = 1,
	};
	const struct cpu_gemm_tile all = {.m_end = side, .n_end = side};

	cholesky->kernels->gemm(&args, &all, workspace_of(cholesky));
}

static void run_update_self(void *buffers[], void *argument)
{
	const float *factor = starpu_runtime_floats(buffers[0]);

	update(argument, factor, factor, starpu_runtime_floats(buffers[1]),
	       starpu_runtime_floats(buffers[2]));
}

static void run_update(void *buffers[], void *argument)
{
	update(argument, starpu_runtime_floats(buffers[0]), starpu_runtime_floats(buffers[1]),
	       starpu_runtime_floats(buffers[2]), starpu_runtime_floats(buffers[3]));
}

static void describe(struct starpu_cholesky *cholesky)
{
	static const struct {
		starpu_cpu_func_t run;
		const char *name;
		int n_buffers;
	} kinds[TILE_KINDS] = {
		[TILE_FACTOR] = {run_factor, "factor", 2},
		[TILE_SOLVE] = {run_solve, "solve", 3},
		[TILE_UPDATE_SELF] = {run_update_self, "update-self", 3},
		[TILE_UPDATE] = {run_update, "update", 4},
	};

	for (int kind = 0; kind < TILE_KINDS; kind++) {
		struct starpu_codelet *codelet = &cholesky->codelets[kind];

		cholesky->models[kind] = (struct starpu_perfmodel){.type = STARPU_HISTORY_BASED,
								   .symbol = kinds[kind].name};
		*codelet = (struct starpu_codelet){
			.where = STARPU_CPU,
			.cpu_funcs = {kinds[kind].run},
			.nbuffers = kinds[kind].n_buffers,
			.model = &cholesky->models[kind],
		};
		for (int i = 0; i < codelet->nbuffers; i++)
			codelet->modes[i] = i + 1 < codelet->nbuffers ? STARPU_R : STARPU_W;
	}
}

struct starpu_cholesky *starpu_cholesky_free(struct starpu_cholesky *cholesky)
{
	if (!cholesky)
		return NULL;
	if (cholesky->runtime.is_running) {
		cholesky->runtime.starpu_resume();
		for (uint32_t i = 0; i < cholesky->n_handles; i++)
			cholesky->runtime.starpu_data_unregister(cholesky->handles[i]);
	}
	starpu_runtime_stop(&cholesky->runtime);
	for (unsigned int i = 0; i < STARPU_NMAXWORKERS; i++)
		free(cholesky->workspaces[i]);
	free(cholesky->handles);
	free(cholesky->tasks);
	free(cholesky);
	return NULL;
}

int starpu_cholesky_new(unsigned int n_workers, uint32_t n, uint32_t side, float *tiles,
			struct starpu_cholesky **ret, const char **ret_reason)
{
	const uint32_t n_handles = 2 * tiles_n_stored(n);
	struct starpu_cholesky *cholesky;
	int r;

	if (n_workers > STARPU_NMAXWORKERS)
		return -EINVAL;
	cholesky = calloc(1, sizeof(*cholesky));
	if (!cholesky)
		return -ENOMEM;
	cholesky->n = n;
	cholesky->side = side;
	cholesky->kernels = cpu_kernels_get(CPU_SIMD_AUTO);
	cholesky->handles = calloc(n_handles, sizeof(*cholesky->handles));
	cholesky->tasks = calloc(tiles_n_tasks(n), sizeof(*cholesky->tasks));
	r = cholesky->handles && cholesky->tasks ? 0 : -ENOMEM;
	for (unsigned int i = 0; i < n_workers && !r; i++) {
		cholesky->workspaces[i] = crew_memory(CPU_WORKSPACE_BYTES);
		r = cholesky->workspaces[i] ? 0 : -ENOMEM;
	}
	if (!r)
		r = starpu_runtime_start(&cholesky->runtime, n_workers, -1, "dmdas", ret_reason);
	if (r) {
		starpu_cholesky_free(cholesky);
		return r;
	}
	tiles_tasks(n, cholesky->tasks);
	describe(cholesky);
	for (uint32_t i = 0; i < n_handles; i++)
		cholesky->runtime.starpu_vector_data_register(
			&cholesky->handles[i], STARPU_MAIN_RAM,
			(uintptr_t)(tiles + (size_t)i * side * side), side * side, sizeof(float));
	cholesky->n_handles = n_handles;
	*ret = cholesky;
	return 0;
}

void starpu_cholesky_resume(struct starpu_cholesky *cholesky)
{
	cholesky->runtime.starpu_resume();
}

void starpu_cholesky_pause(struct starpu_cholesky *cholesky)
{
	cholesky->runtime.starpu_pause();
}

int starpu_cholesky_run(struct starpu_cholesky *cholesky)
{
	static const int urgency[TILE_KINDS] = {[TILE_FACTOR] = 2, [TILE_SOLVE] = 1};
	uint32_t buffers[TILE_BUFFERS];

	for (uint32_t i = 0; i < tiles_n_tasks(cholesky->n); i++) {
		const struct tile_task *tile = &cholesky->tasks[i];
		struct starpu_task *task = cholesky->runtime.starpu_task_create();
		unsigned int n = tiles_buffers(tile, buffers);

		if (!task)
			return -ENOMEM;
		task->cl = &cholesky->codelets[tile->kind];
		task->cl_arg = cholesky;
		task->priority = 3 * (int)(cholesky->n - tile->j) + urgency[tile->kind];
		for (unsigned int k = 0; k < n; k++)
			task->handles[k] = cholesky->handles[buffers[k]];
		if (cholesky->runtime.starpu_task_submit(task))
			return -EIO;
	}
	return cholesky->runtime.starpu_task_wait_for_all() ? -EIO : 0;
}
