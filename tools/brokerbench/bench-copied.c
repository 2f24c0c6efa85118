/* SPDX-License-Identifier: MIT */
/*
 * copied-bytes: bytes of a task's tensors that the broker copies
 *
 * The session's own counters, per task. On the CPU and on the memory path host-import no byte may
 * be copied. The baseline is the bytes that a broker would copy that copied each tensor once.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "plans.h"
#include "target.h"
#include "util/checked.h"

#define N_TASKS 8

/* Return true if @path is one of the device's comma-separated memory paths. */
static bool has_path(const struct rbk_device *device, const char *path)
{
	const char *at = device->paths;
	size_t n = strlen(path);

	while (at) {
		if (strncmp(at, path, n) == 0 && (at[n] == '\0' || at[n] == ','))
			return true;
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
	return false;
}

static int measure(struct bench_env *env, const struct target *target,
		   const struct plans_matmul *matmul, const struct bench_row *row,
		   unsigned int strategy)
{
	struct samples copied = SAMPLES_INIT, moved = SAMPLES_INIT;
	struct rbk_stats before, after;
	struct rbk_plan_info info;
	struct target_task task = {
		.ring = target->ring,
		.plan_id = rbk_plan_id(matmul->plan),
		.count = 1,
		.n_refs = matmul->n_refs,
		.strategy = strategy,
	};
	int r;

	memcpy(task.refs, matmul->refs, sizeof(matmul->refs));
	rbk_plan_info(matmul->plan, &info);
	r = samples_reserve(&copied, N_TASKS);
	if (!r)
		r = samples_reserve(&moved, N_TASKS);
	for (int i = 0; i < N_TASKS && !r; i++) {
		r = rbk_stats(target->rbk, &before);
		if (!r)
			r = target_run_once(&task);
		if (!r)
			r = rbk_stats(target->rbk, &after);
		if (r)
			break;
		samples_add(&copied,
			    (double)(after.session_copied_bytes - before.session_copied_bytes));
		samples_add(&moved, (double)(info.bytes_fixed + info.bytes_row));
	}
	if (r)
		bench_fail(env, r, "a task failed (%s)", row->params);
	else
		bench_report(env, row, &copied, &moved);
	samples_deinit(&copied);
	samples_deinit(&moved);
	return r;
}

static int run(struct bench_env *env)
{
	const struct bench_row cpu = {"n=512 cpu", "bytes", false, "tensor-bytes"};
	const struct bench_row gpu = {"n=512 host-import", "bytes", false, "tensor-bytes"};
	struct plans_matmul matmul;
	struct target target;
	int r;

	r = target_init(&target, env, TARGET_GPU);
	if (r)
		return r;
	/* without constants: all three tensors are the client's */
	r = plans_matmul_init(&matmul, env, target.rbk, 512, 512, 512, false);
	if (r)
		goto out;
	r = measure(env, &target, &matmul, &cpu, RBK_STRATEGY_ONLY_CPU);
	if (!r) {
		if (has_path(&target.gpu, "host-import"))
			r = measure(env, &target, &matmul, &gpu,
				    RBK_STRATEGY_DEVICE(target.gpu.index));
		else
			bench_skip(env, gpu.params, "%s has no host-import, only %s",
				   target.gpu.name, target.gpu.paths);
	}
	plans_matmul_deinit(&matmul);
out:
	target_deinit(&target);
	return r;
}

const struct bench bench_copied_bytes = {
	.name = "copied-bytes",
	.summary = "bytes of tensors that a CPU copies per task, on the CPU and on host-import",
	.baseline = "the bytes of the task's tensors",
	.run = run,
};
