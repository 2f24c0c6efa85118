/* SPDX-License-Identifier: MIT */
/*
 * Scene: one task, described
 *
 * The scene shows what the broker derives from a description (bytes, operations), its prediction,
 * its decision and the outcome: first for a plan that never ran, then after learning.
 */
#include "scenes.h"

#include <math.h>
#include <stdio.h>

enum { N_RUNS = 24 };

static const struct work_shape shape = {
	.name = "MatMul", .op = WORK_MATMUL, .rows = 384, .inner = 384, .columns = 384};

static void print_prediction(struct lab *lab, const struct lab_task *task)
{
	const struct rbk_stats_decision *d = &task->decision;
	const unsigned int other = d->device == RBK_DEVICE_CPU ? RBK_DEVICE_GPU : RBK_DEVICE_CPU;

	printf("  predicted      %s on the %s", text_time((double)d->predicted_ns).text,
	       lab_device(lab, d->device));
	if (d->other_ns > 0)
		printf(", %s on the %s", text_time((double)d->other_ns).text,
		       lab_device(lab, other));
	printf("\n  decided        %s: %s, %s\n", lab_device(lab, d->device),
	       rbk_reason_name(d->reason), text_reason(d->reason));
}

static void print_result(struct lab *lab, const struct lab_task *task)
{
	const double took = (double)task->cqe.exec_ns;
	const double predicted = (double)task->decision.predicted_ns;

	printf("  it took        %s after %s in the queue; ", text_time(took).text,
	       text_time((double)task->cqe.queue_ns).text);
	if (took > 0 && predicted > 0)
		printf("the prediction was off by %.0f%%\n", 100 * fabs(predicted - took) / took);
	else
		printf("nothing was predicted\n");
	lab_expect(lab, task->cqe.res == 0, "the task failed");
}

static int run_once(struct lab *lab, struct lab_task *task)
{
	int r = lab_run(lab, task);

	if (r)
		return r;
	if (!lab_expect(lab, task->has_decision, "the task is not in the decision log"))
		return 0;
	print_prediction(lab, task);
	print_result(lab, task);
	return 0;
}

/* Run the task repeatedly on each device, then as the broker chooses. */
static int run_learned(struct lab *lab, struct lab_task *task)
{
	struct rbk_stats_plan_device devices[RBK_MAX_DEVICES];
	int r = 0;

	for (unsigned int i = 0; i < N_RUNS && r == 0; i++) {
		task->strategy = (uint8_t)RBK_STRATEGY_DEVICE(i % lab->n_devices);
		r = lab_run(lab, task);
	}
	task->strategy = RBK_STRATEGY_AUTO;
	if (r == 0)
		r = lab_settle(lab);
	printf("\nThe same after %u executions on each device\n", N_RUNS / lab->n_devices);
	if (r == 0)
		r = run_once(lab, task);
	if (r == 0)
		r = lab_plan(lab, task, devices);
	if (r)
		return r;
	for (unsigned int i = 0; i < lab->n_devices; i++) {
		const struct rbk_stats_plan_device *d = &devices[i];

		printf("  learned        %s: %s +- %.0f%%, %llu tasks, %s", lab_device(lab, i),
		       text_time(d->estimate_ns).text, 100 * d->spread,
		       (unsigned long long)d->n_tasks,
		       d->is_trusted ? "trusted" : "not yet trusted");
		if (i != RBK_DEVICE_CPU)
			printf("; %.2f times the CPU's speed", d->speedup);
		if (d->break_even)
			printf(", faster from %u rows on", d->break_even);
		printf("\n");
		lab_expect(lab, d->n_tasks >= N_RUNS / lab->n_devices,
			   "%llu tasks are counted on the %s", (unsigned long long)d->n_tasks,
			   lab_device(lab, i));
		lab_expect(lab, d->estimate_ns > 0, "nothing is known of the %s",
			   lab_device(lab, i));
	}
	return 0;
}

int scene_task(struct lab *lab, const struct scene_options *options)
{
	struct work work;
	struct lab_task task = {.work = &work, .rows = shape.rows};
	char text[128];
	int r;

	(void)options;
	r = lab_work(lab, &work, &shape, 1);
	if (r)
		return r;
	work_describe(&work, shape.rows, text, sizeof(text));
	printf("  task           %s, %s\n", shape.name, text);
	printf("  derived        %s read and written, of which %s are weights, prepared once\n",
	       text_bytes((double)work_bytes(&work, shape.rows)).text,
	       text_bytes((double)work.info.constant_bytes).text);
	printf("                 %s\n", text_flops((double)work_flops(&work, shape.rows)).text);
	r = run_once(lab, &task);
	if (r == 0)
		r = run_learned(lab, &task);
	work_deinit(&work);
	if (r == 0 && lab->n_wrong == 0)
		printf("All %u results are what a plain computation gives.\n", N_RUNS + 2);
	return r;
}
