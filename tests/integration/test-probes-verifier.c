/* SPDX-License-Identifier: MIT */
/*
 * The kernel's verifier on the probes
 *
 * Each program is loaded. Of on_switch and on_switch_untold, a kernel needs only one; the other is
 * loaded, too, where the kernel accepts it. The test prints the number of instructions that the
 * verifier processed. The verifier gives up at a million. The limits here detect a growing program
 * early, before older kernels, whose verifiers prune less, reject it.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <run-queue.skel.h>

#include "integration/probes-rig.h"

enum { LOG_BYTES = 1 << 20, LOG_STATISTICS = 4, MAX_PROGRAMS = 16 };

static const struct {
	const char *name;
	unsigned int max; /* about twice what Linux 6.18 needs */
} bounds[] = {
	{"on_wakeup", 500},          {"on_wakeup_new", 500}, {"on_switch", 66000},
	{"on_switch_untold", 66000}, {"walk", 25000},        {"on_new_task", 25000},
	{"on_cgroup_attach", 25000},
};

static int say(enum libbpf_print_level level, const char *format, va_list args)
{
	return level == LIBBPF_DEBUG ? 0 : vfprintf(stderr, format, args);
}

static unsigned int bound(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
		if (strcmp(bounds[i].name, name) == 0)
			return bounds[i].max;
	return 0;
}

/*
 * Return true if the log says that sched_switch has no fourth argument, as before Linux 5.18: then
 * on_switch cannot be loaded, and is not needed.
 */
static bool was_untold(char *const *logs, int n)
{
	for (int i = 0; i < n; i++)
		if (logs[i] && strstr(logs[i], "func 'sched_switch' doesn't have 4-th argument"))
			return true;
	return false;
}

/* Load the programs and check their sizes. Return: 0, or 1 if a check failed. */
static int check(bool is_told)
{
	char *logs[MAX_PROGRAMS] = {0};
	struct bpf_program *program;
	struct run_queue_bpf *skeleton;
	int i = 0, failed = 0;

	skeleton = run_queue_bpf__open();
	if (!skeleton)
		return 1;
	bpf_program__set_autoload(skeleton->progs.on_switch, is_told);
	bpf_program__set_autoload(skeleton->progs.on_switch_untold, !is_told);
	bpf_object__for_each_program (program, skeleton->obj) {
		if (i == MAX_PROGRAMS)
			break;
		logs[i] = calloc(1, LOG_BYTES);
		bpf_program__set_log_level(program, LOG_STATISTICS);
		bpf_program__set_log_buf(program, logs[i++], LOG_BYTES);
	}
	failed = run_queue_bpf__load(skeleton);
	if (failed && is_told && was_untold(logs, i)) {
		printf("on_switch: this kernel does not tell the state of who ran\n");
		failed = 0;
		goto done;
	}
	i = 0;
	bpf_object__for_each_program (program, skeleton->obj) {
		const char *name = bpf_program__name(program);
		const char *at = logs[i] ? strstr(logs[i], "processed ") : NULL;
		unsigned long n = at ? strtoul(at + strlen("processed "), NULL, 10) : 0;

		i++;
		if (!bpf_program__autoload(program))
			continue;
		printf("%-18s %6lu instructions verified, of at most %u\n", name, n, bound(name));
		if (failed && logs[i - 1])
			fputs(logs[i - 1], stderr);
		if (n == 0 || n > bound(name))
			failed = 1;
	}
done:
	run_queue_bpf__destroy(skeleton);
	for (i = 0; i < MAX_PROGRAMS; i++)
		free(logs[i]);
	return failed;
}

int main(void)
{
	struct probes *probes = rig_probes();

	if (!probes)
		return 77;
	probes_free(probes);
	libbpf_set_print(say);
	return check(true) | check(false) ? 1 : 0;
}
