/* SPDX-License-Identifier: MIT */
/*
 * Scene: a service
 *
 * The service runs a few plans on both devices, prints "ready", and stays connected without a task
 * until it is stopped. The broker keeps a tenant's plans and decisions as long as the tenant has a
 * session, so that brokerctl can show them.
 */
#include "scenes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N_RUNS = 30 };

static const struct work_shape shapes[] = {
	{.name = "MatMul", .op = WORK_MATMUL, .rows = 256, .inner = 384, .columns = 384},
	{.name = "Softmax", .op = WORK_SOFTMAX, .rows = 256, .columns = 1000},
	{.name = "Add", .op = WORK_ADD, .rows = 256, .columns = 1024},
};

enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static int run(struct lab *lab, struct work *work)
{
	int r = 0;

	for (unsigned int i = 0; i < N_RUNS && r == 0; i++) {
		struct lab_task task = {.work = work, .rows = work->shape.rows};

		/* Alternate between the devices first, then let the broker choose. */
		if (i < N_RUNS / 2)
			task.strategy = (uint8_t)RBK_STRATEGY_DEVICE(i % lab->n_devices);
		r = lab_run(lab, &task);
		if (r == 0)
			lab_expect(lab, task.cqe.res == 0, "%s failed: %s", work->shape.name,
				   strerror(-task.cqe.res));
	}
	return r;
}

int scene_service(struct lab *lab, const struct scene_options *options)
{
	struct work works[N_SHAPES] = {0};
	int r = 0;

	(void)options;
	for (unsigned int i = 0; i < N_SHAPES && r == 0; i++) {
		r = lab_work(lab, &works[i], &shapes[i], 1);
		if (r == 0)
			r = run(lab, &works[i]);
	}
	if (r == 0)
		r = lab_settle(lab);
	if (r == 0) {
		printf("%s\n", lab->n_wrong ? "wrong" : "ready");
		fflush(stdout);
		pause();
	}
	for (unsigned int i = 0; i < N_SHAPES; i++)
		work_deinit(&works[i]);
	return r;
}
