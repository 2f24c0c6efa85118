/* SPDX-License-Identifier: MIT */
/*
 * The offline optimum, exactly, by GLPK
 *
 * One binary variable x per task that may run on both devices, 1 for the second device, and the
 * makespan T:
 *
 *   least T with  sum ns1 x <= speed1 T,  sum ns0 (1 - x) <= speed0 T,
 *                 alone1 x <= T,  alone0 (1 - x) <= T
 *
 * Times are scaled to a makespan of about 1, for which the solver's tolerances are made.
 */
#include "optimum.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <glpk.h>

#include "util/cleanup.h"
#include "util/error.h"

/*
 * Relative gap of a proof. A smaller gap takes minutes, because many assignments are that close to
 * the optimum.
 */
#define GAP 1e-3

/* Add the row "sum of ns x + ... <= speed T"; device 0 has 1 - x in place of x. */
static void add_load(glp_prob *problem, const struct optimum_task *tasks, uint32_t n_tasks,
		     unsigned int device, double speed, double scale, int *columns, double *values)
{
	int row = glp_add_rows(problem, 1), n = 0;
	double fixed = 0;

	for (uint32_t i = 0; i < n_tasks; i++) {
		double ns = tasks[i].ns[device] / scale;

		if (isinf(ns))
			continue;
		if (isinf(tasks[i].ns[!device])) {
			fixed += ns;
			continue;
		}
		columns[++n] = (int)i + 2;
		values[n] = device ? ns : -ns;
		fixed += device ? 0 : ns;
	}
	columns[++n] = 1;
	values[n] = -speed;
	glp_set_mat_row(problem, row, n, columns, values);
	glp_set_row_bnds(problem, row, GLP_UP, 0, -fixed);
}

/* Bound the makespan from below by the duration of a task that may run on both devices. */
static void add_longest(glp_prob *problem, const struct optimum_task *task, int column,
			double scale)
{
	for (unsigned int d = 0; d < OPTIMUM_DEVICES; d++) {
		double ns = task->alone_ns[d] / scale;
		int row;

		if (isinf(task->ns[0]) || isinf(task->ns[1]))
			continue;
		row = glp_add_rows(problem, 1);
		glp_set_mat_row(problem, row, 2, (int[]){0, 1, column},
				(double[]){0, -1, d ? ns : -ns});
		glp_set_row_bnds(problem, row, GLP_UP, 0, d ? 0 : -ns);
	}
}

int optimum_exact(const struct optimum_task *tasks, uint32_t n_tasks,
		  const double speeds[OPTIMUM_DEVICES], double seconds, double *ret_ns)
{
	_cleanup_(freep) int *columns = calloc(n_tasks + 3, sizeof(*columns));
	_cleanup_(freep) double *values = calloc(n_tasks + 3, sizeof(*values));
	double scale = 0, least = 0;
	glp_prob *problem;
	glp_iocp options;
	int r;

	if (!columns || !values)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < n_tasks; i++) {
		scale += fmin(tasks[i].ns[0], tasks[i].ns[1]);
		if (isinf(tasks[i].ns[0]) || isinf(tasks[i].ns[1]))
			least = fmax(least, fmin(tasks[i].alone_ns[0], tasks[i].alone_ns[1]));
	}
	if (!(scale > 0)) {
		*ret_ns = 0;
		return 0;
	}
	glp_term_out(GLP_OFF);
	problem = glp_create_prob();
	glp_set_obj_dir(problem, GLP_MIN);
	glp_add_cols(problem, (int)n_tasks + 1);
	glp_set_col_bnds(problem, 1, GLP_LO, least / scale, 0);
	glp_set_obj_coef(problem, 1, 1);
	for (uint32_t i = 0; i < n_tasks; i++) {
		glp_set_col_kind(problem, (int)i + 2, GLP_BV);
		add_longest(problem, &tasks[i], (int)i + 2, scale);
	}
	for (unsigned int d = 0; d < OPTIMUM_DEVICES; d++)
		add_load(problem, tasks, n_tasks, d, speeds[d], scale, columns, values);

	glp_init_iocp(&options);
	options.presolve = GLP_ON;
	options.mip_gap = GAP;
	options.tm_lim = (int)fmin(seconds * 1000, 1e6);
	r = glp_intopt(problem, &options);
	if ((r == 0 && glp_mip_status(problem) == GLP_OPT) || r == GLP_EMIPGAP) {
		/* The solver has proven that no makespan is below the result divided by 1 + GAP. */
		*ret_ns = glp_mip_obj_val(problem) / (1 + GAP) * scale;
		r = 0;
	} else {
		r = OPTIMUM_E_LIMIT;
	}
	glp_delete_prob(problem);
	return r;
}
