/* SPDX-License-Identifier: MIT */
/*
 * Scene: the decision table
 *
 * Five tasks with well-known expectations run on the broker's devices, with nothing learned
 * beforehand. Each task then runs on the device that was not chosen, if that is predicted to take
 * at most MAX_OTHER_NS, which shows the value of the decision. The table also shows the caller's
 * own figures, such as those of a simulated card.
 *
 * A task has fewer rows where memory or the processor's speed would make this scene take long; the
 * table shows its bytes.
 */
#include "scenes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { N_TASKS = 5, N_PROBES = 5, ROWS_STEP = 64 };

#define MAX_TASK_NS  2.5e9 /* limit on the CPU */
#define MAX_OTHER_NS 1.5e9 /* predicted limit on the device that was not chosen */

/* the tasks of tools/brokersim/scenarios/decisions.scenario */
static const struct work_shape shapes[N_TASKS] = {
	{.name = "100 KB MatMul", .op = WORK_MATMUL, .rows = 91, .inner = 91, .columns = 91},
	{.name = "2 MB MatMul", .op = WORK_MATMUL, .rows = 120, .inner = 600, .columns = 600},
	{.name = "100 MB convolution",
	 .op = WORK_CONV,
	 .rows = 64,
	 .channels = 64,
	 .side = 56,
	 .filters = 64},
	{.name = "10 MB elementwise", .op = WORK_ADD, .rows = 833, .columns = 1000},
	{.name = "500 MB MatMul", .op = WORK_MATMUL, .rows = 48000, .inner = 512, .columns = 2048},
};

/* The last task may be split. */
static bool may_split(unsigned int i)
{
	return i == N_TASKS - 1;
}

/* Return the bytes that this machine can spare, a third of its available memory. */
static uint64_t spare_bytes(void)
{
	uint64_t kib, ret = UINT64_MAX;
	char line[128];
	FILE *file;

	file = fopen("/proc/meminfo", "re");
	if (!file)
		return ret;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
			ret = kib * 1024 / 3;
	fclose(file);
	return ret;
}

/* Measure the CPU's operations per nanosecond in a matrix product. */
static int measure_rate(struct lab *lab, double *ret)
{
	static const struct work_shape shape = {
		.name = "probe", .op = WORK_MATMUL, .rows = 512, .inner = 512, .columns = 512};
	struct lab_task task = {.rows = shape.rows, .strategy = RBK_STRATEGY_ONLY_CPU};
	struct work work;
	double best = 0;
	int r;

	r = lab_work(lab, &work, &shape, 1);
	if (r)
		return r;
	task.work = &work;
	for (unsigned int i = 0; i < N_PROBES && r == 0; i++) {
		r = lab_run(lab, &task);
		if (r == 0 && task.cqe.exec_ns) {
			const double rate =
				(double)work_flops(&work, shape.rows) / (double)task.cqe.exec_ns;

			best = rate > best ? rate : best;
		}
	}
	work_deinit(&work);
	*ret = best > 0 ? best : 1;
	return r;
}

static double flops_per_row(const struct work_shape *shape)
{
	if (shape->op == WORK_MATMUL)
		return 2.0 * shape->inner * shape->columns;
	if (shape->op == WORK_CONV)
		return 2.0 * 9 * shape->channels * shape->filters * shape->side * shape->side;
	return shape->columns;
}

static double bytes_per_row(const struct work_shape *shape)
{
	if (shape->op == WORK_CONV)
		return 4.0 * (shape->channels + shape->filters) * shape->side * shape->side;
	return 4.0 * (shape->inner + shape->columns);
}

/* Return the rows for which time and memory suffice, at least one. */
static uint32_t affordable_rows(const struct work_shape *shape, double rate)
{
	const double by_time = MAX_TASK_NS * rate / flops_per_row(shape);
	const double by_memory = (double)spare_bytes() / bytes_per_row(shape);
	const double least = by_time < by_memory ? by_time : by_memory;
	const uint32_t step = shape->rows < 2 * ROWS_STEP ? 1 : ROWS_STEP;

	if (least >= shape->rows)
		return shape->rows;
	return least > 2 * step ? (uint32_t)least / step * step : step;
}

/*
 * Find a task's text in @path, whose lines are TASK<tab>TEXT.
 * Return: "" if there is none.
 */
static const char *find_beside(const char *path, const char *name, char *text, size_t bytes)
{
	const size_t n = strlen(name);
	char line[256];
	FILE *file;

	text[0] = '\0';
	file = path ? fopen(path, "re") : NULL;
	if (!file)
		return text;
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, name, n) == 0 && line[n] == '\t')
			snprintf(text, bytes, "%s", line + n + 1);
	}
	fclose(file);
	return text;
}

static void print_row(struct lab *lab, const struct lab_task *task, double other_ns,
		      const char *beside)
{
	const struct rbk_stats_decision *d = &task->decision;
	const bool is_cpu = d->device == RBK_DEVICE_CPU;
	const bool is_split = (task->cqe.flags & RBK_CQE_PARTITIONED) != 0;
	double cpu_ns = (double)(is_cpu ? d->predicted_ns : d->other_ns);
	double gpu_ns = (double)(is_cpu ? d->other_ns : d->predicted_ns);

	printf("  %-19s %-9s %-9s %-9s %-13s %-15s %-9s %-9s %s\n", task->work->shape.name,
	       text_bytes((double)work_bytes(task->work, task->rows)).text,
	       is_split || cpu_ns <= 0 ? "-" : text_time(cpu_ns).text,
	       is_split || gpu_ns <= 0 ? "-" : text_time(gpu_ns).text,
	       is_split ? "both" : lab_device(lab, task->cqe.device),
	       rbk_reason_name(task->cqe.reason), text_time((double)task->cqe.exec_ns).text,
	       other_ns > 0 ? text_time(other_ns).text : "-", beside);
}

/* Measure the task on the device that was not chosen; 0 in *ret_ns: not measured. */
static int run_other(struct lab *lab, const struct lab_task *decided, double *ret_ns)
{
	struct lab_task task = {.work = decided->work, .rows = decided->rows};
	const bool was_cpu = decided->cqe.device == RBK_DEVICE_CPU;
	int r = 0;

	*ret_ns = 0;
	if (!lab_has_gpu(lab) || (double)decided->decision.other_ns > MAX_OTHER_NS ||
	    decided->cqe.flags & RBK_CQE_PARTITIONED)
		return 0;
	task.strategy = was_cpu ? RBK_STRATEGY_ONLY_GPU : RBK_STRATEGY_ONLY_CPU;
	/* The first run warms the device up; the second run is measured. */
	for (unsigned int i = 0; i < 2 && r == 0; i++)
		r = lab_run(lab, &task);
	if (r == 0 && task.cqe.res == 0)
		*ret_ns = (double)task.cqe.exec_ns;
	return r;
}

static void check_decision(struct lab *lab, unsigned int i, const struct lab_task *task)
{
	const char *name = shapes[i].name;

	lab_expect(lab, task->cqe.res == 0, "%s failed: %s", name, strerror(-task->cqe.res));
	if (!lab_expect(lab, task->has_decision, "%s is not in the decision log", name))
		return;
	lab_expect(lab,
		   (task->cqe.flags & RBK_CQE_PARTITIONED) ||
			   (task->decision.flags & RBK_DECISION_INLINE) ||
			   task->decision.predicted_ns > 0,
		   "%s: nothing was predicted", name);
	/* This task's placement does not depend on the devices. */
	if (i == 0)
		lab_expect(lab,
			   task->cqe.device == RBK_DEVICE_CPU &&
				   task->cqe.reason == RBK_REASON_BELOW_THRESHOLD,
			   "%s ran on the %s for %s", name, lab_device(lab, task->cqe.device),
			   rbk_reason_name(task->cqe.reason));
	else if (!lab_has_gpu(lab))
		lab_expect(lab, task->cqe.reason == RBK_REASON_GPU_UNAVAILABLE,
			   "%s: %s without a GPU", name, rbk_reason_name(task->cqe.reason));
	if (!may_split(i))
		lab_expect(lab, !(task->cqe.flags & RBK_CQE_PARTITIONED),
			   "%s was split, although its entry does not allow it", name);
}

static int run_row(struct lab *lab, const struct scene_options *options, unsigned int i,
		   double rate)
{
	struct work_shape shape = shapes[i];
	struct work work;
	struct lab_task task = {.work = &work, .flags = may_split(i) ? RBK_SQE_PARTITION : 0};
	double other_ns = 0;
	char beside[128];
	int r;

	shape.rows = task.rows = affordable_rows(&shape, rate);
	r = lab_work(lab, &work, &shape, 1);
	if (r)
		return r;
	r = lab_run(lab, &task);
	if (r == 0) {
		check_decision(lab, i, &task);
		r = run_other(lab, &task, &other_ns);
	}
	if (r == 0)
		print_row(lab, &task, other_ns,
			  find_beside(options->beside, shape.name, beside, sizeof(beside)));
	if (r == 0 && (task.decision.flags & RBK_DECISION_INLINE))
		printf("  %19s (so short that it ran on the reactor, whose log has no "
		       "predictions)\n",
		       "");
	if (r == 0 && task.rows < shapes[i].rows)
		printf("  %19s (%u of %u rows, for want of memory or speed)\n", "", task.rows,
		       shapes[i].rows);
	work_deinit(&work);
	return r;
}

int scene_table(struct lab *lab, const struct scene_options *options)
{
	char beside[128];
	double rate = 1;
	int r;

	r = lab_reset(lab);
	if (r == 0)
		r = measure_rate(lab, &rate);
	printf("  %-29s %-19s %-29s %-9s %-9s %s\n", "", "predicted", "", "", "else-",
	       find_beside(options->beside, "head", beside, sizeof(beside)));
	printf("  %-19s %-9s %-9s %-9s %-13s %-15s %-9s %-9s %s\n", "task", "bytes", "CPU", "GPU",
	       "ran on", "reason", "took", "where",
	       find_beside(options->beside, "task", beside, sizeof(beside)));
	for (unsigned int i = 0; i < N_TASKS && r == 0; i++)
		r = run_row(lab, options, i, rate);
	return r;
}
