/* SPDX-License-Identifier: MIT */
/* See fused.h. */
#include "fused.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "plans.h"

int fused_init(struct fused *fused, struct bench_env *env, enum target_kind kind,
	       uint32_t constant_bytes, uint32_t tensor_bytes)
{
	struct rbk_error error = {"out of memory"};
	int r;

	*fused = (struct fused){
		.tensor_bytes = tensor_bytes,
		.strategy = kind == TARGET_GPU ? RBK_STRATEGY_ONLY_GPU : RBK_STRATEGY_ONLY_CPU,
	};
	r = target_init(&fused->target, env, kind);
	if (r)
		return r;
	r = rbk_arena_new(fused->target.rbk, constant_bytes, &fused->constants, &error);
	if (!r) {
		plans_fill(rbk_arena_data(fused->constants), constant_bytes / sizeof(float), 2);
		r = rbk_arena_seal(fused->constants, &error);
	}
	if (!r)
		r = rbk_arena_new(fused->target.rbk, 3 * (uint64_t)tensor_bytes, &fused->arena,
				  &error);
	if (r) {
		bench_refused(env, r, error.text);
		fused_deinit(fused);
		return r;
	}
	plans_fill(rbk_arena_data(fused->arena), tensor_bytes / sizeof(float), 1);
	return 0;
}

void fused_deinit(struct fused *fused)
{
	fused->arena = rbk_arena_free(fused->arena);
	fused->constants = rbk_arena_free(fused->constants);
	target_deinit(&fused->target);
}

/*
 * Return true if both results are equal up to rounding. Outputs that were not computed are zeros on
 * both sides and do not count as equal.
 */
static bool is_same(const float *a, const float *b, size_t n)
{
	float largest = 0;

	for (size_t i = 0; i < n; i++)
		largest = fmaxf(largest, fabsf(b[i]));
	for (size_t i = 0; i < n; i++)
		if (!(fabsf(a[i] - b[i]) <= 1e-4f * largest))
			return false;
	return largest > 0;
}

static int make_plan(const struct fused *fused, fused_describe_fn describe, const void *what,
		     bool fuses, struct rbk_plan **ret, struct rbk_error *error)
{
	struct rbk_builder *builder = rbk_builder_new("bench-fused");
	int r;

	if (!builder)
		return -ENOMEM;
	if (!fuses)
		rbk_builder_disable_fusion(builder);
	describe(builder, what, fused->constants);
	r = rbk_plan_new(fused->target.rbk, builder, 1, ret, error);
	rbk_builder_free(builder);
	return r;
}

int fused_compare(struct fused *fused, struct bench_env *env, const struct bench_row *row,
		  fused_describe_fn describe, const void *what)
{
	const size_t n_floats = fused->tensor_bytes / sizeof(float);
	float *const y = (float *)rbk_arena_data(fused->arena) + n_floats;
	struct rbk_plan *plans[2] = {NULL, NULL};
	struct rbk_error error = {"out of memory"};
	struct target_task tasks[2];
	int r = 0;

	if (!bench_is_wanted(env, row->params))
		return 0;
	memset(y, 0, 2 * (size_t)fused->tensor_bytes);
	for (unsigned int i = 0; i < 2 && !r; i++) {
		r = make_plan(fused, describe, what, i == 0, &plans[i], &error);
		if (r) {
			bench_refused(env, r, error.text);
			goto out;
		}
		tasks[i] = (struct target_task){
			.ring = fused->target.ring,
			.plan_id = rbk_plan_id(plans[i]),
			.count = 1,
			.refs = {rbk_arena_ref(fused->arena, 0),
				 rbk_arena_ref(fused->arena,
					       (i + 1) * (uint64_t)fused->tensor_bytes)},
			.n_refs = 2,
			.strategy = fused->strategy,
			.depth = 1,
		};
		r = target_run_once(&tasks[i]);
	}
	if (!r && !is_same(y, y + n_floats, n_floats))
		r = -EILSEQ;
	if (!r)
		r = bench_compare(env, row, (struct bench_side){target_waits, &tasks[0]},
				  (struct bench_side){target_waits, &tasks[1]});
	if (r)
		bench_fail(env, r, "%s failed, or its two results differ", row->params);
out:
	rbk_plan_free(plans[0]);
	rbk_plan_free(plans[1]);
	return r;
}
