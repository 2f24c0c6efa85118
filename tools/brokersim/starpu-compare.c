/* SPDX-License-Identifier: MIT */
/*
 * The tasks of a scenario on StarPU's schedulers
 *
 * StarPU runs in real time. Two CPU workers play the two devices. A task sleeps for the time that
 * the device would take with all its servers, scaled so that the run takes a second or two. Both
 * workers are of one kind to StarPU; the cost function distinguishes them by the address of the
 * worker's description. The cost of waking up is excluded: a task that begins soon after the end of
 * the task before it is taken to have begun at that end. Models are given twice: by profile, as
 * brokerd begins with, and as the true means, which no calibration could improve on.
 *
 * The library is loaded on request. Its files about the machine are written to a temporary folder
 * of this run.
 */
#include "starpu-compare.h"

#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <starpu.h>

#include "optimum.h"
#include "policies.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/cleanup.h"
#include "util/error.h"

#define RUN_NS     1.5e9
#define WAKE_UP_NS 2e6

#define STARPU_FUNCTIONS(f)          \
	f(starpu_conf_init);         \
	f(starpu_init);              \
	f(starpu_shutdown);          \
	f(starpu_pause);             \
	f(starpu_resume);            \
	f(starpu_task_create);       \
	f(starpu_task_submit);       \
	f(starpu_task_wait_for_all); \
	f(starpu_worker_get_id);     \
	f(starpu_worker_get_perf_archtype)

struct job {
	double true_ns[SCENARIO_DEVICES];  /* scaled */
	double model_us[SCENARIO_DEVICES]; /* duration given to StarPU's model, scaled */
};

static struct {
#define DECLARE(name) __typeof__(name) *name
	STARPU_FUNCTIONS(DECLARE);
#undef DECLARE
	double free_at_ns[SCENARIO_DEVICES]; /* by worker: end of its last task */
} library;

static bool load_library(void)
{
	void *handle = dlopen("libstarpu-1.3.so.9", RTLD_NOW | RTLD_LOCAL);
	bool is_complete = handle != NULL;

#define LOAD(name) is_complete = is_complete && (library.name = dlsym(handle, #name))
	STARPU_FUNCTIONS(LOAD);
#undef LOAD
	return is_complete;
}

/* --- Called by StarPU --- */

static void run_job(void *buffers[], void *argument)
{
	const struct job *job = argument;
	unsigned int worker = (unsigned int)library.starpu_worker_get_id();
	double now_ns = (double)clock_now_ns(), *free_at_ns;
	struct timespec until;

	if (worker >= SCENARIO_DEVICES)
		return;
	free_at_ns = &library.free_at_ns[worker];
	if (now_ns - *free_at_ns > WAKE_UP_NS)
		*free_at_ns = now_ns;
	*free_at_ns += job->true_ns[worker];
	until.tv_sec = (time_t)(*free_at_ns / 1e9);
	until.tv_nsec = (long)(*free_at_ns - (double)until.tv_sec * 1e9);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static double cost_us(struct starpu_task *task, struct starpu_perfmodel_arch *arch, unsigned nimpl)
{
	const struct job *job = task->cl_arg;
	struct starpu_perfmodel_arch *second = library.starpu_worker_get_perf_archtype(1, 0);

	return job->model_us[arch == second];
}

/* --- Runs --- */

static int submit_all(const struct job *jobs, uint32_t n_jobs, struct starpu_codelet *codelet)
{
	for (uint32_t i = 0; i < n_jobs; i++) {
		struct starpu_task *task = library.starpu_task_create();
		double mean_us = (jobs[i].model_us[0] + jobs[i].model_us[1]) / 2;

		task->cl = codelet;
		task->cl_arg = (void *)&jobs[i];
		task->cl_arg_size = sizeof(jobs[i]);
		/* Sorting schedulers use the priority: the longest task first, as HEFT's rank. */
		task->priority = mean_us < INT_MAX / 2 ? (int)mean_us : INT_MAX / 2;
		if (library.starpu_task_submit(task))
			return -EIO;
	}
	return 0;
}

/*
 * Run all jobs under one scheduler. The makespan in *ret_ns is scaled.
 * Return: 0; -EIO if StarPU would not run.
 */
static int run_scheduler(const char *scheduler, const struct job *jobs, uint32_t n_jobs,
			 double *ret_ns)
{
	static struct starpu_perfmodel model;
	static struct starpu_codelet codelet;
	struct starpu_conf conf;
	double begin_ns;
	int r;

	model = (struct starpu_perfmodel){
		.type = STARPU_PER_ARCH, .symbol = "brokersim", .arch_cost_function = cost_us};
	codelet = (struct starpu_codelet){
		.where = STARPU_CPU, .cpu_funcs = {run_job}, .model = &model, .name = "task"};
	if (library.starpu_conf_init(&conf) < 0)
		return -EIO;
	conf.precedence_over_environment_variables = 1;
	conf.sched_policy_name = scheduler;
	conf.ncpus = SCENARIO_DEVICES;
	conf.ncuda = conf.nopencl = 0;
	conf.catch_signals = 0;
	if (library.starpu_init(&conf))
		return -EIO;
	library.starpu_pause();
	r = submit_all(jobs, n_jobs, &codelet);
	begin_ns = (double)clock_now_ns();
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
		library.free_at_ns[d] = begin_ns;
	library.starpu_resume();
	library.starpu_task_wait_for_all();
	library.starpu_shutdown();
	*ret_ns = fmax(library.free_at_ns[0], library.free_at_ns[1]) - begin_ns;
	return r;
}

static struct job *make_jobs(const struct world *world, double scale, bool with_means)
{
	_cleanup_(freep) struct optimum_task *tasks = outcome_optimum_tasks(world);
	struct job *jobs = calloc(world->n_tasks + 1, sizeof(*jobs));

	for (uint32_t i = 0; tasks && jobs && i < world->n_tasks; i++) {
		const struct sim_task *task = &world->tasks[i];

		for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
			struct world_cost cost =
				with_means
					? world_cost(world, task, (uint8_t)d, task->count, 0, false)
					: world_estimate(world, task->plan, (uint8_t)d,
							 task->count);
			double n_servers = world->scenario->profiles[d].n_servers;

			jobs[i].true_ns[d] = tasks[i].ns[d] * scale;
			jobs[i].model_us[d] =
				(cost.serial_ns + cost.shared_ns) / n_servers * scale / 1000;
		}
	}
	if (!tasks)
		free(steal_ptr(jobs));
	return jobs;
}

static int makespans(FILE *file, const struct scenario *scenario, const struct world *world,
		     double ours_ns, double bound_ns)
{
	static const char *const schedulers[] = {"dmda", "dmdas", "modular-heft", "lws", "eager"};
	double scale = RUN_NS / bound_ns;

	fprintf(file, "%s, %u tasks: StarPU's makespan over ours (%.6g s) and over the bound\n",
		scenario->name, world->n_tasks, ours_ns / 1e9);
	for (unsigned int with_means = 0; with_means < 2; with_means++) {
		_cleanup_(freep) struct job *jobs = make_jobs(world, scale, with_means);

		if (!jobs)
			return error_origin(-ENOMEM);
		for (size_t i = 0; i < ARRAY_SIZE(schedulers); i++) {
			double ns = 0;

			if (run_scheduler(schedulers[i], jobs, world->n_tasks, &ns))
				continue;
			fprintf(file, "  %-14s %-12s %8.3f %8.3f\n", schedulers[i],
				with_means ? "true means" : "by profile", ns / scale / ours_ns,
				ns / scale / bound_ns);
			fflush(file);
		}
	}
	return 0;
}

static int compare(FILE *file, const struct scenario *scenario, uint64_t seed)
{
	_cleanup_(world_freep) struct world *world = NULL;
	char message[SCENARIO_MESSAGE_BYTES];
	struct outcome outcome;
	struct run_options once = {
		.policies = {&policy_ours}, .seed = seed, .n_runs = 1, .solver_seconds = 10};
	int r;

	r = world_new(scenario, seed, UINT32_MAX, message, &world);
	if (!r)
		r = outcome_run(&outcome, scenario, &once, message);
	if (r)
		return r;
	for (uint32_t i = 0; !r && i < world->n_tasks; i++) {
		if (world->tasks[i].arrive_ns > 0 || !world_may_run(world, &world->tasks[i], 1))
			r = SCENARIO_E_INVALID;
	}
	if (!r)
		r = makespans(file, scenario, world,
			      outcome.measures[0].figures[FIG_MAKESPAN] * 1e9,
			      outcome.measures[0].figures[FIG_BOUND] * 1e9);
	outcome_deinit(&outcome);
	return r;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	return remove(path);
}

int starpu_compare(FILE *file, const struct scenario *scenario, const struct run_options *options)
{
	char home[] = "/tmp/brokersim-starpu-XXXXXX";
	int r;

	if (!load_library()) {
		fprintf(stderr, "brokersim: StarPU 1.3 cannot be loaded: %s\n", dlerror());
		return 1;
	}
	if (!mkdtemp(home)) {
		fprintf(stderr, "brokersim: %s: %s\n", home, strerror(errno));
		return 1;
	}
	setenv("STARPU_SILENT", "1", 1);
	setenv("STARPU_HOME", home, 1);
	setenv("STARPU_PERF_MODEL_DIR", home, 1);
	setenv("STARPU_WORKERS_NOBIND", "1", 1);
	r = compare(file, scenario, options->seed ? options->seed : scenario->seed);
	nftw(home, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	if (r == SCENARIO_E_INVALID)
		fprintf(stderr,
			"brokersim: %s: a comparison with StarPU needs tasks that arrive at once "
			"and may run on both devices\n",
			scenario->name);
	else if (r)
		fprintf(stderr, "brokersim: %s: %s\n", scenario->name, strerror(-r));
	return r ? 1 : 0;
}
