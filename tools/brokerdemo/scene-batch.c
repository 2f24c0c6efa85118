/* SPDX-License-Identifier: MIT */
/*
 * Scene: a mixed batch
 *
 * Some two hundred tasks of eight operators and many sizes are submitted at once: on devices of the
 * broker's choice, all on the CPU, all on the GPU. Each plan has run several times on each device
 * before, so the broker has learned its times, as for services that have run for a second.
 */
#include "scenes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_WARM = 6, N_MODES = 3 };

static const struct kind {
	struct work_shape shape;
	unsigned int n;
} kinds[] = {
	{{.name = "MatMul 92", .op = WORK_MATMUL, .rows = 92, .inner = 92, .columns = 92}, 80},
	{{.name = "MatMul 256", .op = WORK_MATMUL, .rows = 256, .inner = 256, .columns = 256}, 24},
	{{.name = "MatMul 384", .op = WORK_MATMUL, .rows = 384, .inner = 384, .columns = 384}, 8},
	{{.name = "Conv", .op = WORK_CONV, .rows = 8, .channels = 16, .side = 28, .filters = 32},
	 12},
	{{.name = "MaxPool", .op = WORK_MAX_POOL, .rows = 64, .channels = 16, .side = 28}, 12},
	{{.name = "Add", .op = WORK_ADD, .rows = 256, .columns = 1024}, 24},
	{{.name = "Relu", .op = WORK_RELU, .rows = 512, .columns = 1024}, 16},
	{{.name = "Softmax", .op = WORK_SOFTMAX, .rows = 256, .columns = 1000}, 12},
	{{.name = "ReduceSum", .op = WORK_REDUCE_SUM, .rows = 512, .columns = 1024}, 12},
	{{.name = "Transpose", .op = WORK_TRANSPOSE, .rows = 64, .inner = 64, .columns = 64}, 12},
};

enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static const struct mode {
	const char *name;
	uint8_t strategy;
} modes[N_MODES] = {
	{"as it chooses", RBK_STRATEGY_AUTO},
	{"CPU only", RBK_STRATEGY_ONLY_CPU},
	{"GPU only", RBK_STRATEGY_ONLY_GPU},
};

struct batch {
	struct work works[N_KINDS];
	struct lab_task *tasks;
	unsigned int n;
};

/* Figures of one mode */
struct total {
	uint64_t wall_ns;
	unsigned int tasks[RBK_MAX_DEVICES];
	unsigned int reasons[RBK_REASON_COUNT][RBK_MAX_DEVICES];
	double use[RBK_MAX_DEVICES]; /* use of the device's time, 0 to 1 */
};

static void batch_deinit(struct batch *batch)
{
	for (unsigned int k = 0; k < N_KINDS; k++)
		work_deinit(&batch->works[k]);
	free(batch->tasks);
}

/* Shuffle the tasks, in the same order on every run. */
static void shuffle(struct lab_task *tasks, unsigned int n)
{
	uint32_t state = 12345;

	for (unsigned int i = n - 1; i > 0; i--) {
		struct lab_task swapped = tasks[i];
		unsigned int j;

		state = state * 1664525 + 1013904223;
		j = (state >> 8) % (i + 1);
		tasks[i] = tasks[j];
		tasks[j] = swapped;
	}
}

static int batch_init(struct lab *lab, struct batch *batch)
{
	unsigned int t = 0;
	int r = 0;

	*batch = (struct batch){0};
	for (unsigned int k = 0; k < N_KINDS; k++)
		batch->n += kinds[k].n;
	batch->tasks = calloc(batch->n, sizeof(*batch->tasks));
	if (!batch->tasks)
		return lab_fail(lab, -ENOMEM, "out of memory");
	for (unsigned int k = 0; k < N_KINDS && r == 0; k++) {
		r = lab_work(lab, &batch->works[k], &kinds[k].shape, kinds[k].n);
		for (unsigned int i = 0; i < kinds[k].n; i++)
			batch->tasks[t++] = (struct lab_task){
				.work = &batch->works[k], .rows = kinds[k].shape.rows, .output = i};
	}
	shuffle(batch->tasks, batch->n);
	return r;
}

static int warm_up(struct lab *lab, struct batch *batch)
{
	int r = 0;

	for (unsigned int k = 0; k < N_KINDS; k++) {
		for (unsigned int i = 0; i < N_WARM * lab->n_devices && r == 0; i++) {
			struct lab_task task = {
				.work = &batch->works[k],
				.rows = kinds[k].shape.rows,
				.strategy = (uint8_t)RBK_STRATEGY_DEVICE(i % lab->n_devices)};

			r = lab_run(lab, &task);
		}
	}
	return r;
}

static int charged(struct lab *lab, uint64_t ret_ns[RBK_MAX_DEVICES])
{
	struct rbk_stats_tenant tenant;
	int r = lab_settle(lab);

	if (r == 0)
		r = lab_tenant_stats(lab, &tenant);
	for (unsigned int i = 0; r == 0 && i < lab->n_devices; i++)
		ret_ns[i] = tenant.devices[i].device_ns;
	return r;
}

/* Compute the batch's share of each device's time, over all servers of the device. */
static int measure_use(struct lab *lab, const uint64_t *before_ns, struct total *total)
{
	uint64_t after_ns[RBK_MAX_DEVICES];
	int r = charged(lab, after_ns);

	for (unsigned int i = 0; i < lab->n_devices && r == 0; i++) {
		struct rbk_stats_device device;

		r = lab_device_stats(lab, i, &device);
		if (r == 0 && device.n_servers && total->wall_ns)
			total->use[i] = (double)(after_ns[i] - before_ns[i]) /
					((double)total->wall_ns * device.n_servers);
	}
	return r;
}

static int run_mode(struct lab *lab, struct batch *batch, const struct mode *mode,
		    struct total *total)
{
	uint64_t before_ns[RBK_MAX_DEVICES];
	int r;

	*total = (struct total){0};
	for (unsigned int i = 0; i < batch->n; i++)
		batch->tasks[i].strategy = mode->strategy;
	r = charged(lab, before_ns);
	if (r == 0)
		r = lab_run_all(lab, batch->tasks, batch->n, &total->wall_ns);
	if (r == 0)
		r = measure_use(lab, before_ns, total);
	for (unsigned int i = 0; i < batch->n && r == 0; i++) {
		const struct rbk_cqe *cqe = &batch->tasks[i].cqe;

		if (cqe->device >= RBK_MAX_DEVICES || cqe->reason >= RBK_REASON_COUNT)
			continue;
		total->tasks[cqe->device]++;
		total->reasons[cqe->reason][cqe->device]++;
	}
	return r;
}

static void print_totals(struct lab *lab, const struct total *totals, unsigned int n_modes)
{
	printf("  %-28s", "");
	for (unsigned int m = 0; m < n_modes; m++)
		printf("%-17s", modes[m].name);
	printf("\n  %-28s", "total time");
	for (unsigned int m = 0; m < n_modes; m++)
		printf("%-17s", text_time((double)totals[m].wall_ns).text);
	for (unsigned int d = 0; d < lab->n_devices; d++) {
		printf("\n  tasks on the %-15s", lab_device(lab, d));
		for (unsigned int m = 0; m < n_modes; m++)
			printf("%-17u", totals[m].tasks[d]);
		printf("\n    its time in use           ");
		for (unsigned int m = 0; m < n_modes; m++)
			printf("%3.0f%%             ", 100 * totals[m].use[d]);
		for (unsigned int r = 0; r < RBK_REASON_COUNT; r++) {
			unsigned int n = 0;

			for (unsigned int m = 0; m < n_modes; m++)
				n += totals[m].reasons[r][d];
			if (n == 0)
				continue;
			printf("\n    for %-22s", rbk_reason_name(r));
			for (unsigned int m = 0; m < n_modes; m++)
				printf("%-17u", totals[m].reasons[r][d]);
		}
	}
	printf("\n");
}

int scene_batch(struct lab *lab, const struct scene_options *options)
{
	const unsigned int n_modes = lab_has_gpu(lab) ? N_MODES : N_MODES - 1;
	struct total totals[N_MODES];
	struct batch batch;
	int r;

	(void)options;
	r = batch_init(lab, &batch);
	if (r == 0)
		r = warm_up(lab, &batch);
	for (unsigned int m = 0; m < n_modes && r == 0; m++)
		r = run_mode(lab, &batch, &modes[m], &totals[m]);
	if (r == 0) {
		printf("  %u tasks of %u plans\n\n", batch.n, N_KINDS);
		print_totals(lab, totals, n_modes);
		lab_expect(lab, totals[1].tasks[RBK_DEVICE_CPU] == batch.n,
			   "with CPU only, %u tasks ran there", totals[1].tasks[RBK_DEVICE_CPU]);
		if (n_modes == N_MODES)
			lab_expect(lab, totals[2].tasks[RBK_DEVICE_CPU] == 0,
				   "with GPU only, %u tasks ran on the CPU",
				   totals[2].tasks[RBK_DEVICE_CPU]);
		if (lab->n_wrong == 0)
			printf("All %u results are right.\n", n_modes * batch.n);
	}
	batch_deinit(&batch);
	return r;
}
