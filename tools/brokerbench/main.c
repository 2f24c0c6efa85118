/* SPDX-License-Identifier: MIT */
/*
 * brokerbench: the broker's costs, against baselines without it
 *
 * Exit status: 0 if every row was measured or skipped with a reason; 1 if something failed; 2 if
 * the command line is wrong.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "broker-process/broker-process.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/streams.h"

#define DEFAULT_SECONDS 1.0
#define QUICK_SECONDS   0.2
#define MAX_SECONDS     3600.0

static const struct bench *const benches[] = {
	&bench_nop_round_trip, &bench_nop_throughput, &bench_wake_latency,
	&bench_task_overhead,  &bench_sessions,       &bench_mid,
	&bench_clients,        &bench_matmul_cpu,     &bench_matmul_library,
	&bench_matmul_int8,    &bench_operators,      &bench_nets,
	&bench_fusion,         &bench_device_tasks,   &bench_matmul_vulkan,
	&bench_copied_bytes,   &bench_starpu,         &bench_cholesky,
	&bench_graphs,         &bench_pipeline,       &bench_cut,
	&bench_residency,      &bench_ledger,         &bench_decision,
	&bench_churn,          &bench_contention,     &bench_probes,
	&bench_scrape,         &bench_watched,        &bench_brokertop,
	&bench_lease,          &bench_time_lease,
};

static const char help[] =
	"Usage: brokerbench [OPTION...] [NAME...]\n"
	"\n"
	"Measures what the broker costs, each figure beside a baseline that is measured in the\n"
	"same run by turns. Without NAME every bench is run; --list names them.\n"
	"\n"
	"  -l, --list         list the benches and their baselines, then exit\n"
	"  -j, --json         one JSON object per row and line instead of a table\n"
	"  -q, --quick        0.2 seconds per row: too short for figures to publish\n"
	"  -t, --seconds=N    measuring time of one row, both sides together (default 1)\n"
	"  -r, --rows=TEXT    print only rows whose params contain TEXT; mid, clients,\n"
	"                     operators, nets, fusion, task-overhead, device-tasks, cholesky, "
	"graphs,\n"
	"                     pipeline, matmul-vulkan and time-lease also measure only those\n"
	"  -m, --model=FILE,INPUT...\n"
	"                     let mid measure an ONNX model, too, with an array (.npy or .pb) for\n"
	"                     each of its inputs; may be given up to 16 times\n"
	"  -s, --socket=PATH  measure the broker that listens there; by default a private brokerd\n"
	"                     is started as each bench needs it and stopped afterwards\n"
	"  -h, --help         show this text, then exit\n"
	"  -V, --version      show the version, then exit\n"
	"\n"
	"Columns and JSON fields: bench; params; unit; p50 and p99 of ours; baseline, its name;\n"
	"baseline_p50 and baseline_p99; ratio, which is p50 / baseline_p50 in the row's unit, so\n"
	"that below 1 is better for times and above 1 is better for rates (\"/s\"). p99 is the\n"
	"value that 99 of 100 samples are at least as good as; p999, in JSON alone, that of 999\n"
	"of 1,000. target is the ratio's, if there is one. What this machine cannot measure is a\n"
	"line on standard error that says why, and no row.\n"
	"\n"
	"mid's rows \"cpu\" are the processor time per task, of the client and the broker\n"
	"together. Its rows in % are brokerd's share of a processor.\n"
	"\n"
	"clients' samples are every task of every client; of its rows \"rate\", one per client\n"
	"for all windows, so that p99 is the slowest client's.\n"
	"\n"
	"operators has some 150 rows, of --seconds each: three minutes, or one with --quick. Its\n"
	"targets are 0.9, and 1 for small shapes; where pictures are computed, beside\n"
	"oneDNN on the same memory and on memory laid out as it likes it best. With --quick there\n"
	"are no rows of two threads, which mean something only while nobody else computes.\n"
	"\n"
	"fusion's rows of a GPU, matmul-vulkan and copied-bytes are measured on the software\n"
	"Vulkan driver where there is no GPU, and say nothing about one then.\n"
	"\n"
	"residency plays all its patterns at once, over modelled cards, for six times the\n"
	"measuring time; its rows are one sample each. Of ledger's rows the target is that a task\n"
	"on a device takes at most 10 ns more than its baselines. decision's are 25 ns at p50 and\n"
	"60 ns at p99, up to 10,000 plans.\n"
	"\n"
	"churn's baselines are the client alone, and beside a process that takes as much\n"
	"processor time as the churning one, without a broker. Its targets are 0.95 of the rate\n"
	"and 1.2 of the p99 beside that process. It needs root.\n"
	"\n"
	"contention's rounds take 5 seconds each, by turns; its targets are half the baseline of\n"
	"row \"hogs p99\", 50 ms and 200 ms. Whoever else uses the processors is not told apart.\n"
	"\n"
	"watched's target is 0.99 of the ratio that its first rows have, without watchers.\n"
	"\n"
	"probes' targets are 3%, and 0.5% for the mixture. Of its \"cost\" rows p50 is the median\n"
	"of the pairs of rounds, of which --quick has one, and p99 the upper end of its 95%\n"
	"interval. \"empty\" is what the kernel takes to call probes that do nothing. It needs\n"
	"root, or what brokerd needs to watch the scheduler.\n"
	"\n"
	"brokertop's targets are 1%, at 10 updates a second, and 50 ms from its start to its "
	"first\n"
	"picture. It needs root.\n"
	"\n"
	"scrape's target is 5 ms for 100 tenants.\n"
	"\n"
	"lease's targets are 150 ns above the baseline for 64 KiB, and 2 us for the budget, each\n"
	"told as the ratio that this would be; its ffmpeg, where one is installed, should make as\n"
	"many frames/s as without, but for 1%, which is what its runs differ by.\n"
	"\n"
	"time-lease's targets are 60 ns above the baseline for a recorded dispatch, 3 us for a\n"
	"part of a command buffer, and 0.99 of the rate. Its rows of an urgent program need a "
	"GPU.\n"
	"\n"
	"brokerd is looked for in the build tree and beside this program, then in $PATH.\n"
	"\n"
	"Exit status: 0, all rows were measured or skipped; 1, something failed; 2, the command\n"
	"line is wrong.\n";

static const struct option long_options[] = {
	{"list", no_argument, NULL, 'l'},         {"json", no_argument, NULL, 'j'},
	{"quick", no_argument, NULL, 'q'},        {"seconds", required_argument, NULL, 't'},
	{"rows", required_argument, NULL, 'r'},   {"model", required_argument, NULL, 'm'},
	{"socket", required_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0},
};

static const struct bench *find_bench(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(benches); i++)
		if (strcmp(benches[i]->name, name) == 0)
			return benches[i];
	return NULL;
}

static void list_benches(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(benches); i++)
		printf("%-15s %s\n%-15s   beside %s\n", benches[i]->name, benches[i]->summary, "",
		       benches[i]->baseline);
}

static int parse_seconds(const char *text, double *ret)
{
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	if (errno || end == text || *end || !isfinite(value) || value < 0.01 || value > MAX_SECONDS)
		return -EINVAL;
	*ret = value;
	return 0;
}

/* Find the first two processors that this process may use. */
static void find_cpus(struct bench_env *env)
{
	cpu_set_t cpus;
	int cpu;

	CPU_ZERO(&cpus);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	env->n_cpus = CPU_COUNT(&cpus);
	env->client_cpu = env->peer_cpu = -1;
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &cpus))
			continue;
		if (env->client_cpu < 0) {
			env->client_cpu = env->peer_cpu = cpu;
		} else {
			env->peer_cpu = cpu;
			break;
		}
	}
}

/*
 * Run a bench.
 * Return: the exit status.
 */
static int run(struct bench_env *env, const struct bench *bench)
{
	int r;

	env->bench = bench->name;
	r = bench->run(env);
	bench_pin(env, -1);
	return r < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct bench_env env = {.seconds = DEFAULT_SECONDS};
	bool has_seconds = false;
	int option, status = 0;

	streams_init();
	/* getopt's own messages are not always one line that names the program. */
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":ljqt:r:m:s:hV", long_options, NULL)) != -1) {
		switch (option) {
		case 'l':
			list_benches();
			return streams_finish("brokerbench", 0);
		case 'j':
			env.json = true;
			break;
		case 'q':
			env.quick = true;
			break;
		case 't':
			if (parse_seconds(optarg, &env.seconds) < 0) {
				fprintf(stderr,
					"brokerbench: --seconds takes a number from 0.01 to %.0f, "
					"not '%s'\n",
					MAX_SECONDS, optarg);
				return 2;
			}
			has_seconds = true;
			break;
		case 'r':
			env.rows = optarg;
			break;
		case 'm':
			if (env.n_models == BENCH_MAX_MODELS) {
				fprintf(stderr,
					"brokerbench: --model can be given %d times, not more\n",
					BENCH_MAX_MODELS);
				return 2;
			}
			env.models[env.n_models++] = optarg;
			break;
		case 's':
			env.socket = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			return streams_finish("brokerbench", 0);
		case 'V':
			puts("brokerbench " RINGBROKER_VERSION);
			return streams_finish("brokerbench", 0);
		case ':':
			fprintf(stderr, "brokerbench: option '%s' needs a value\n",
				argv[optind - 1]);
			return 2;
		default:
			fprintf(stderr, "brokerbench: unknown option '%s', try --help\n",
				argv[optind - 1]);
			return 2;
		}
	}
	for (int i = optind; i < argc; i++)
		if (!find_bench(argv[i])) {
			fprintf(stderr, "brokerbench: unknown bench '%s', try --list\n", argv[i]);
			return 2;
		}
	if (env.quick && !has_seconds)
		env.seconds = QUICK_SECONDS;

	clock_init();
	find_cpus(&env);
	bench_pin(&env, -1);
	broker_process_init();

	if (optind == argc) {
		for (size_t i = 0; i < ARRAY_SIZE(benches); i++)
			status |= run(&env, benches[i]);
	} else {
		for (int i = optind; i < argc; i++)
			status |= run(&env, find_bench(argv[i]));
	}
	if (!status && env.rows && env.n_rows + env.n_skipped == 0) {
		fprintf(stderr, "brokerbench: no row has '%s' in its params\n", env.rows);
		status = 2;
	}
	return streams_finish("brokerbench", status);
}
