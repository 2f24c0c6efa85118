/* SPDX-License-Identifier: MIT */
/*
 * Scene: one task on two devices
 *
 * The rows of a product are split between the CPU and the GPU, which both write one output in
 * place. Inputs are small integers, so the split result must equal the unsplit one bit by bit.
 */
#include "scenes.h"

#include <stdio.h>
#include <string.h>

enum { N_RUNS = 6, SPLIT = 0, WHOLE = 1 /* outputs */ };

static const struct work_shape shape = {
	.name = "MatMul", .op = WORK_MATMUL, .rows = 8192, .inner = 192, .columns = 192};

static int run_whole(struct lab *lab, struct work *work)
{
	int r = 0;

	for (unsigned int i = 0; i < lab->n_devices && r == 0; i++) {
		struct lab_task task = {.work = work,
					.rows = shape.rows,
					.output = WHOLE,
					.strategy = (uint8_t)RBK_STRATEGY_DEVICE(i)};

		/* The first run of a plan on a device may include warm-up. */
		r = lab_run(lab, &task);
		if (r == 0)
			r = lab_run(lab, &task);
		if (r)
			return r;
		lab_expect(lab, task.cqe.res == 0 && task.cqe.device == i,
			   "asked for the %s, it ran on the %s", lab_device(lab, i),
			   lab_device(lab, task.cqe.device));
		printf("  unsplit        %s on the %s\n", text_time((double)task.cqe.exec_ns).text,
		       lab_device(lab, i));
	}
	return r;
}

static int run_split(struct lab *lab, struct work *work, struct lab_task *task)
{
	const struct rbk_stats_decision *d = &task->decision;
	int r;

	r = lab_run(lab, task);
	if (r)
		return r;
	if (!lab_expect(lab, task->cqe.res == 0, "the split task failed: %s",
			strerror(-task->cqe.res)) ||
	    !lab_expect(lab, task->has_decision, "the split task is not in the decision log"))
		return 0;
	printf("  split          %5u rows on the %s, predicted %s; %u on the CPU, %s: took %s\n",
	       d->split_count, lab_device(lab, RBK_DEVICE_GPU),
	       text_time((double)d->predicted_ns).text, d->count - d->split_count,
	       text_time((double)d->other_ns).text, text_time((double)task->cqe.exec_ns).text);
	lab_expect(lab, (task->cqe.flags & RBK_CQE_PARTITIONED) != 0,
		   "the completion does not say that the task was split");
	lab_expect(lab,
		   task->decision.split_count > 0 &&
			   task->decision.split_count < task->decision.count,
		   "%u of %u rows cannot be one part of a split", task->decision.split_count,
		   task->decision.count);
	lab_expect(lab,
		   memcmp(work_output(work, SPLIT), work_output(work, WHOLE),
			  work_output_elems(work, shape.rows) * sizeof(float)) == 0,
		   "the split result is not the unsplit one");
	return 0;
}

int scene_split(struct lab *lab, const struct scene_options *options)
{
	struct work work;
	struct lab_task task = {.work = &work,
				.rows = shape.rows,
				.output = SPLIT,
				.strategy = RBK_STRATEGY_PARTITION};
	char text[128];
	int r;

	(void)options;
	if (!lab_has_gpu(lab)) {
		printf("  There is no Vulkan device to share a task with.\n");
		return 0;
	}
	r = lab_work(lab, &work, &shape, 2);
	if (r)
		return r;
	work_describe(&work, shape.rows, text, sizeof(text));
	printf("  task           %s, %s: %s\n", shape.name, text,
	       text_bytes((double)work_bytes(&work, shape.rows)).text);
	r = run_whole(lab, &work);
	for (unsigned int i = 0; i < N_RUNS && r == 0; i++)
		r = run_split(lab, &work, &task);
	work_deinit(&work);
	if (r == 0 && lab->n_wrong == 0)
		printf("The split results are the unsplit ones, bit by bit.\n");
	return r;
}
