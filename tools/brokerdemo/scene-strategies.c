/* SPDX-License-Identifier: MIT */
/*
 * Scene: strategies of an entry, and force-CPU
 *
 * The same task runs under each strategy. Then it runs without a pause, as in a service, while an
 * administrator switches force-CPU on and off with brokerctl. Only the device changes.
 */
#include "scenes.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { N_WARM = 12, N_AFTER = 5, NO_SUCH_DEVICE = 15 };

static const struct work_shape shape = {
	.name = "MatMul", .op = WORK_MATMUL, .rows = 512, .inner = 384, .columns = 384};

/* A strategy with the devices and reasons that it allows, as bits; 0: any. */
struct strategy {
	const char *name;
	uint8_t strategy;
	uint32_t devices, reasons;
	int res;
};

#define ON(device)  (1u << (device))
#define FOR(reason) (1u << RBK_REASON_##reason)

static const struct strategy with_gpu[] = {
	{"automatic", RBK_STRATEGY_AUTO, 0, 0, 0},
	{"prefer-gpu", RBK_STRATEGY_PREFER_GPU, ON(1), FOR(USER_PREFERENCE), 0},
	{"prefer-cpu", RBK_STRATEGY_PREFER_CPU, ON(0), FOR(USER_PREFERENCE), 0},
	{"only-gpu", RBK_STRATEGY_ONLY_GPU, ON(1), FOR(USER_PREFERENCE), 0},
	{"only-cpu", RBK_STRATEGY_ONLY_CPU, ON(0), FOR(USER_PREFERENCE), 0},
	{"device 0", RBK_STRATEGY_DEVICE(0), ON(0), FOR(USER_PREFERENCE), 0},
	{"device 1", RBK_STRATEGY_DEVICE(1), ON(1), FOR(USER_PREFERENCE), 0},
	{"device 15, missing", RBK_STRATEGY_DEVICE(NO_SUCH_DEVICE), ON(0), FOR(GPU_UNAVAILABLE), 0},
	{"latency", RBK_STRATEGY_LATENCY, 0, 0, 0},
	{"energy", RBK_STRATEGY_ENERGY, 0, 0, 0},
};

static const struct strategy without_gpu[] = {
	{"automatic", RBK_STRATEGY_AUTO, ON(0), FOR(GPU_UNAVAILABLE), 0},
	{"prefer-gpu", RBK_STRATEGY_PREFER_GPU, ON(0), FOR(GPU_UNAVAILABLE), 0},
	{"prefer-cpu", RBK_STRATEGY_PREFER_CPU, ON(0), FOR(USER_PREFERENCE), 0},
	{"only-gpu", RBK_STRATEGY_ONLY_GPU, 0, 0, -ENODEV},
	{"only-cpu", RBK_STRATEGY_ONLY_CPU, ON(0), FOR(USER_PREFERENCE), 0},
};

static int run_strategy(struct lab *lab, struct work *work, const struct strategy *s)
{
	struct lab_task task = {.work = work, .rows = shape.rows, .strategy = s->strategy};
	int r;

	r = lab_run(lab, &task);
	if (r)
		return r;
	if (task.cqe.res) {
		printf("  %-22s refused: %s\n", s->name, strerror(-task.cqe.res));
	} else {
		printf("  %-22s %-14s %-17s %s\n", s->name, lab_device(lab, task.cqe.device),
		       rbk_reason_name(task.cqe.reason), text_time((double)task.cqe.exec_ns).text);
		lab_expect(lab,
			   (!s->devices || s->devices & ON(task.cqe.device)) &&
				   (!s->reasons || s->reasons & 1u << task.cqe.reason),
			   "%s ran on the %s for %s", s->name, lab_device(lab, task.cqe.device),
			   rbk_reason_name(task.cqe.reason));
	}
	lab_expect(lab, task.cqe.res == s->res, "%s ended with %d", s->name, task.cqe.res);
	return 0;
}

static int run_strategies(struct lab *lab, struct work *work)
{
	const struct strategy *list = lab_has_gpu(lab) ? with_gpu : without_gpu;
	const size_t n = lab_has_gpu(lab) ? sizeof(with_gpu) / sizeof(with_gpu[0])
					  : sizeof(without_gpu) / sizeof(without_gpu[0]);
	int r = 0;

	for (unsigned int i = 0; i < N_WARM * lab->n_devices && r == 0; i++) {
		struct lab_task task = {.work = work,
					.rows = shape.rows,
					.strategy =
						(uint8_t)RBK_STRATEGY_DEVICE(i % lab->n_devices)};

		r = lab_run(lab, &task);
	}
	printf("  %-22s %-14s %-17s %s\n", "strategy", "ran on", "reason", "took");
	for (size_t i = 0; i < n && r == 0; i++)
		r = run_strategy(lab, work, &list[i]);
	return r;
}

/* ---- Force-CPU ---- */

struct phase {
	const char *name;
	const char *value; /* value set with brokerctl force-cpu first; NULL: none */
	unsigned int tasks[RBK_MAX_DEVICES][RBK_REASON_COUNT];
};

/* Run one more task that prefers the GPU. */
static int run_one(struct lab *lab, struct work *work, struct phase *phase)
{
	struct lab_task task = {
		.work = work, .rows = shape.rows, .strategy = RBK_STRATEGY_PREFER_GPU};
	int r = lab_run(lab, &task);

	if (r)
		return r;
	if (lab_expect(lab, task.cqe.res == 0, "a task failed: %s", strerror(-task.cqe.res)) &&
	    task.cqe.device < RBK_MAX_DEVICES && task.cqe.reason < RBK_REASON_COUNT)
		phase->tasks[task.cqe.device][task.cqe.reason]++;
	return 0;
}

/* Set force-cpu with brokerctl while tasks run. */
static int set_force_cpu(struct lab *lab, const char *brokerctl, struct work *work,
			 struct phase *phase)
{
	char *argv[] = {(char *)brokerctl, "--socket",           (char *)lab->socket_path,
			"force-cpu",       (char *)phase->value, NULL};
	char *plain[] = {(char *)brokerctl, "force-cpu", (char *)phase->value, NULL};
	posix_spawn_file_actions_t actions;
	int status = 0, r;
	pid_t pid;

	fflush(stdout);
	/* brokerctl prints the state that it has set. */
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	r = posix_spawnp(&pid, brokerctl, &actions, NULL, lab->socket_path ? argv : plain, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (r)
		return lab_fail(lab, -r, "cannot run %s: %s", brokerctl, strerror(r));
	while (waitpid(pid, &status, WNOHANG) == 0) {
		r = run_one(lab, work, phase);
		if (r) {
			waitpid(pid, &status, 0);
			return r;
		}
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return lab_fail(lab, -EIO, "%s force-cpu %s failed", brokerctl, phase->value);
	return 0;
}

static int run_phase(struct lab *lab, const char *brokerctl, struct work *work, struct phase *phase)
{
	struct phase change = {.value = phase->value};
	int r = 0;

	if (phase->value)
		r = set_force_cpu(lab, brokerctl, work, &change);
	for (unsigned int i = 0; i < N_AFTER && r == 0; i++)
		r = run_one(lab, work, phase);
	if (r)
		return r;
	for (unsigned int d = 0; d < lab->n_devices; d++)
		for (unsigned int i = 0; i < RBK_REASON_COUNT; i++)
			if (phase->tasks[d][i])
				printf("  %-22s %-14s %-17s %u tasks\n", phase->name,
				       lab_device(lab, d), rbk_reason_name(i), phase->tasks[d][i]);
	return 0;
}

static int run_force_cpu(struct lab *lab, const char *brokerctl, struct work *work)
{
	struct phase phases[] = {
		{.name = "prefer-gpu"},
		{.name = "and force-cpu on", .value = "on"},
		{.name = "and force-cpu off", .value = "off"},
	};
	const unsigned int last = sizeof(phases) / sizeof(phases[0]) - 1;
	int r = 0;

	printf("\n  without a pause, while brokerctl force-cpu is run:\n");
	for (unsigned int i = 0; i <= last && r == 0; i++)
		r = run_phase(lab, brokerctl, work, &phases[i]);
	if (r || !lab_has_gpu(lab))
		return r;
	lab_expect(lab,
		   phases[0].tasks[RBK_DEVICE_GPU][RBK_REASON_USER_PREFERENCE] == N_AFTER &&
			   phases[last].tasks[RBK_DEVICE_GPU][RBK_REASON_USER_PREFERENCE] ==
				   N_AFTER,
		   "tasks that prefer the GPU do not run there");
	lab_expect(lab, phases[1].tasks[RBK_DEVICE_CPU][RBK_REASON_GPU_UNAVAILABLE] == N_AFTER,
		   "with force-cpu on, tasks do not run on the CPU");
	return 0;
}

int scene_strategies(struct lab *lab, const struct scene_options *options)
{
	struct work work;
	int r;

	r = lab_work(lab, &work, &shape, 1);
	if (r)
		return r;
	r = run_strategies(lab, &work);
	if (r == 0)
		r = run_force_cpu(lab, options->brokerctl, &work);
	work_deinit(&work);
	return r;
}
