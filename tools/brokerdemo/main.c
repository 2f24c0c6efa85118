/* SPDX-License-Identifier: MIT */
/*
 * brokerdemo: one client of the demo
 *
 * tools/demo starts a broker and several of these clients, and makes a table of their output. Each
 * line is "NAME KEY VALUE..." and one write, so that several clients may share a pipe. With
 * --rounds the client is a service that stays: it reads commands from standard input and answers
 * each with "NAME done COMMAND".
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker.h>

#include "classify.h"
#include "images.h"
#include "neighbours.h"
#include "overhead.h"

enum { EXIT_USAGE = 2 };

/* images between two progress lines of the reference */
enum { REFERENCE_STEP = 50 };

static const char usage_text[] =
	"Usage: brokerdemo --devices | --overhead | --classify cpu|gpu|prefer-gpu | --reference\n"
	"                  [OPTION...]\n"
	"Classifies Fashion-MNIST images by their 5 nearest neighbours; see tools/demo.\n"
	"\n"
	"  --devices           list the broker's devices: index, kind, name\n"
	"  --overhead          measure the broker's overhead for a small task: p10, p50\n"
	"  --classify cpu|gpu  classify through the broker, on that kind of device only\n"
	"  --classify prefer-gpu  on the GPU where its memory suffices, else on the CPU\n"
	"  --reference         classify without a broker, in exact integer arithmetic\n"
	"  --socket PATH       the broker's socket (default: the client library's)\n"
	"  --data FOLDER       folder of the images (default: " IMAGES_FOLDER ")\n"
	"  --images N          classify the first N test images (default: 1000)\n"
	"  --index N           compare with the first N training images (default: all)\n"
	"  --batch N           images of one task, at most 256 (default: 64)\n"
	"  --name NAME         first word of each line (default: the mode)\n"
	"  --rounds            with --classify: execute the lines of standard input:\n"
	"      run NAME          classify the images; NAME is the first word of the results\n"
	"      look NAME         print the state of the plan and the tenant's memory\n"
	"      await STATE       wait until the GPU has the plan in STATE (resident, evicted\n"
	"                        or never-fits), and the tenant within its budget; 60 s at most\n"
	"  --help\n"
	"\n"
	"Exit status: 0 done, 1 something failed, 2 wrong options.\n";

enum mode { MODE_NONE, MODE_DEVICES, MODE_OVERHEAD, MODE_CLASSIFY, MODE_REFERENCE };

struct options {
	enum mode mode;
	const char *name; /* first word of each line */
	unsigned int strategy;
	const char *socket_path, *data_folder;
	unsigned int n_images, n_index, batch;
	bool has_rounds;
};

/* States of a plan on the GPU, as named by "await" and by the table of tools/demo. */
static const char *const state_names[RBK_MEMORY_STATE_COUNT] = {
	[RBK_MEMORY_UNSUPPORTED] = "unsupported",
	[RBK_MEMORY_RESIDENT] = "resident",
	[RBK_MEMORY_EVICTED] = "evicted",
	[RBK_MEMORY_NEVER_FITS] = "never-fits",
	[RBK_MEMORY_LOST] = "lost",
};

static const char *state_name(const struct classify_memory *memory)
{
	return memory->plan.state < RBK_MEMORY_STATE_COUNT ? state_names[memory->plan.state]
							   : "unknown";
}

static const char *const kind_names[] = {
	[RBK_DEVICE_KIND_CPU] = "cpu",
	[RBK_DEVICE_KIND_GPU] = "gpu",
	[RBK_DEVICE_KIND_SOFTWARE_GPU] = "software-gpu",
};

static const char *kind_name(const struct rbk_device *device)
{
	return device->kind < 3 ? kind_names[device->kind] : "unknown";
}

static int list_devices(const struct options *options)
{
	const struct rbk_options connect_options = {.size = sizeof(connect_options),
						    .socket_path = options->socket_path,
						    .name = "demo"};
	struct rbk_device devices[RBK_MAX_DEVICES];
	struct rbk_error error = {"cannot list the devices"};
	unsigned int n = 0;
	struct rbk *rbk;
	int r;

	r = rbk_connect(&connect_options, &rbk, &error);
	if (r == 0) {
		r = rbk_devices(rbk, devices, RBK_MAX_DEVICES, &n);
		rbk_disconnect(rbk);
	}
	if (r) {
		fprintf(stderr, "brokerdemo: %s\n", error.text);
		return EXIT_FAILURE;
	}
	for (unsigned int i = 0; i < n; i++)
		printf("%u %s %s\n", devices[i].index, kind_name(&devices[i]), devices[i].name);
	return EXIT_SUCCESS;
}

static int print_overhead(const struct options *options)
{
	struct rbk_error error = {"cannot measure the overhead"};
	uint64_t overhead_ns[2];

	if (overhead_measure(options->socket_path, overhead_ns, &error)) {
		fprintf(stderr, "brokerdemo: %s\n", error.text);
		return EXIT_FAILURE;
	}
	printf("%" PRIu64 " %" PRIu64 "\n", overhead_ns[0], overhead_ns[1]);
	return EXIT_SUCCESS;
}

static int read_images(const struct options *options, struct images *train, struct images *test)
{
	char path[4096];
	int r;

	r = images_read(options->data_folder, "train", options->n_index, train, path, sizeof(path));
	if (r == 0)
		r = images_read(options->data_folder, "t10k", options->n_images, test, path,
				sizeof(path));
	if (r == -EBADMSG)
		fprintf(stderr, "brokerdemo: %s is damaged, or does not hold such images\n", path);
	else if (r)
		fprintf(stderr, "brokerdemo: %s: %s\n", path, strerror(-r));
	else if (train->n < CLASSIFY_NEIGHBOURS || test->n < options->n_images)
		fprintf(stderr, "brokerdemo: %s holds only %zu images\n", options->data_folder,
			test->n);
	else
		return 0;
	return EXIT_FAILURE;
}

static void say(const char *name, const char *key, uint64_t value)
{
	printf("%s %s %" PRIu64 "\n", name, key, value);
}

static void say_result(const char *name, const struct classify_result *result)
{
	say(name, "right", result->n_right);
	say(name, "right-nearest", result->n_right_nearest);
	say(name, "neighbours", result->fingerprint);
	say(name, "tasks", result->n_tasks);
	say(name, "prepare-ns", result->prepare_ns);
	say(name, "run-ns", result->run_ns);
	say(name, "round-trip-p50-ns", result->round_trip_ns[0]);
	say(name, "round-trip-p99-ns", result->round_trip_ns[1]);
	say(name, "exec-p50-ns", result->exec_ns[0]);
	say(name, "exec-p99-ns", result->exec_ns[1]);
	say(name, "copied-bytes", result->copied_bytes);
	say(name, "transferred-bytes", result->transferred_bytes);
	say(name, "constant-bytes", result->constant_bytes);
	say(name, "host-bytes", result->host_bytes);
	say(name, "device-bytes", result->device_bytes);
	for (unsigned int d = 0; d < RBK_MAX_DEVICES; d++)
		for (unsigned int r = 0; r < RBK_REASON_COUNT; r++)
			if (result->tasks[d][r])
				printf("%s ran %u %s %s\n", name, result->tasks[d][r],
				       rbk_reason_name(r), result->devices[d].name);
}

static int say_progress(void *data, struct classifier *classifier, size_t n_done)
{
	const struct options *options = data;

	(void)classifier;
	say(options->name, "progress", n_done);
	return 0;
}

/* Say how long there was no broker, and how many tasks run again. */
static void say_gap(struct rbk *rbk, const struct rbk_reattachment *about, void *data)
{
	const struct options *options = data;

	(void)rbk;
	if (about->r == 0)
		printf("%s gap %llu %llu %u\n", options->name, (unsigned long long)about->gap_ns,
		       (unsigned long long)about->wait_ns, about->n_tasks);
}

/*
 * Make the classifier.
 * Return: 0; EXIT_FAILURE after an error message.
 */
static int prepare(const struct options *options, const struct images *train,
		   const struct images *test,
		   int (*progress)(void *data, struct classifier *classifier, size_t n_done),
		   void *data, struct classifier **ret)
{
	const struct classify_options classify_options = {
		.socket_path = options->socket_path,
		.strategy = options->strategy,
		.batch = options->batch,
		.progress = progress,
		.on_reattach = say_gap,
		.on_reattach_data = (void *)options,
		.data = data,
	};
	struct rbk_error error = {"out of memory"};

	if (classifier_new(&classify_options, train, test, ret, &error) == 0)
		return 0;
	fprintf(stderr, "brokerdemo: %s: %s\n", options->name, error.text);
	return EXIT_FAILURE;
}

static int classify_images(const struct options *options, const struct images *train,
			   const struct images *test)
{
	struct rbk_error error = {"out of memory"};
	struct classifier *classifier = NULL;
	struct classify_result result;
	int r;

	r = prepare(options, train, test, say_progress, (void *)options, &classifier);
	if (r)
		return r;
	r = classifier_run(classifier, &result, &error);
	classifier_free(classifier);
	if (r) {
		fprintf(stderr, "brokerdemo: %s: %s\n", options->name, error.text);
		return EXIT_FAILURE;
	}
	say_result(options->name, &result);
	return EXIT_SUCCESS;
}

/* ---- Rounds: a client that stays connected ---- */

struct rounds {
	const struct options *options;
	struct classifier *classifier;
	struct rbk_error error;
	uint64_t vram_used_max; /* maximum seen in this round */
};

static int watch_memory(void *data, struct classifier *classifier, size_t n_done)
{
	struct rounds *rounds = data;
	struct classify_memory memory;
	int r;

	r = classifier_memory(classifier, &memory, &rounds->error);
	if (r)
		return r;
	if (memory.tenant.devices[RBK_DEVICE_GPU].vram.used > rounds->vram_used_max)
		rounds->vram_used_max = memory.tenant.devices[RBK_DEVICE_GPU].vram.used;
	say(rounds->options->name, "progress", n_done);
	return 0;
}

static void say_memory(const char *name, const struct classify_memory *memory,
		       uint64_t vram_used_max)
{
	const struct rbk_tenant_device *device = &memory->tenant.devices[RBK_DEVICE_GPU];

	printf("%s tenant %s\n", name, memory->tenant.name);
	printf("%s state %s\n", name, state_name(memory));
	say(name, "vram-max", device->vram.max);
	say(name, "vram-reserve", device->vram_reserve);
	say(name, "vram-used-max", vram_used_max);
	say(name, "required", memory->plan.required_bytes);
	say(name, "available", memory->plan.available_bytes);
	say(name, "evictions", memory->tenant.n_evictions);
	say(name, "returns", memory->tenant.n_returns);
	say(name, "constraints", memory->tenant.n_memory_constraints);
}

static int run_round(struct rounds *rounds, const char *name)
{
	struct classify_memory memory;
	struct classify_result result;
	int r;

	rounds->vram_used_max = 0;
	r = classifier_run(rounds->classifier, &result, &rounds->error);
	if (r == 0)
		r = classifier_memory(rounds->classifier, &memory, &rounds->error);
	if (r)
		return r;
	say_result(name, &result);
	say_memory(name, &memory, rounds->vram_used_max);
	return 0;
}

static int look(struct rounds *rounds, const char *name)
{
	struct classify_memory memory;
	int r;

	r = classifier_memory(rounds->classifier, &memory, &rounds->error);
	if (r == 0)
		say_memory(name, &memory, memory.tenant.devices[RBK_DEVICE_GPU].vram.used);
	return r;
}

/*
 * Wait without submitting a task, so that only the broker changes the state. A lower budget is in
 * force before the device has freed the excess.
 */
static int await_state(struct rounds *rounds, const char *wanted)
{
	enum { STEP_MS = 5, LIMIT_MS = 60000 };

	for (unsigned int ms = 0; ms < LIMIT_MS; ms += STEP_MS) {
		struct classify_memory memory;
		const struct rbk_use *vram;
		int r;

		r = classifier_memory(rounds->classifier, &memory, &rounds->error);
		if (r)
			return r;
		vram = &memory.tenant.devices[RBK_DEVICE_GPU].vram;
		if (strcmp(state_name(&memory), wanted) == 0 && vram->used <= vram->max)
			return 0;
		nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
	}
	snprintf(rounds->error.text, sizeof(rounds->error.text), "the plan is not %s after %d s",
		 wanted, LIMIT_MS / 1000);
	return -ETIMEDOUT;
}

static int obey(struct rounds *rounds, const char *line)
{
	if (strncmp(line, "run ", 4) == 0)
		return run_round(rounds, line + 4);
	if (strncmp(line, "look ", 5) == 0)
		return look(rounds, line + 5);
	if (strncmp(line, "await ", 6) == 0)
		return await_state(rounds, line + 6);
	snprintf(rounds->error.text, sizeof(rounds->error.text), "no such command: %.100s", line);
	return -EINVAL;
}

static int classify_rounds(const struct options *options, const struct images *train,
			   const struct images *test)
{
	struct rounds rounds = {.options = options};
	char line[128];
	int r;

	r = prepare(options, train, test, watch_memory, &rounds, &rounds.classifier);
	if (r)
		return r;
	printf("%s done prepare\n", options->name);
	while (r == 0 && fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		r = obey(&rounds, line);
		if (r == 0)
			printf("%s done %s\n", options->name, line);
	}
	classifier_free(rounds.classifier);
	if (r == 0)
		return EXIT_SUCCESS;
	fprintf(stderr, "brokerdemo: %s: %s\n", options->name, rounds.error.text);
	return EXIT_FAILURE;
}

static int compute_reference(const struct options *options, const struct images *train,
			     const struct images *test)
{
	size_t n_right = 0, n_right_nearest = 0;
	uint64_t fingerprint = 0;

	for (size_t i = 0; i < test->n; i++) {
		int64_t nearest[CLASSIFY_NEIGHBOURS];

		neighbours_find(train, test->pixels + i * IMAGE_PIXELS, CLASSIFY_NEIGHBOURS,
				nearest);
		fingerprint += neighbours_fingerprint(i, nearest, CLASSIFY_NEIGHBOURS);
		n_right += neighbours_vote(nearest, CLASSIFY_NEIGHBOURS, train->labels) ==
			   test->labels[i];
		n_right_nearest += train->labels[nearest[0]] == test->labels[i];
		if ((i + 1) % REFERENCE_STEP == 0)
			say(options->name, "progress", i + 1);
	}
	say(options->name, "right", n_right);
	say(options->name, "right-nearest", n_right_nearest);
	say(options->name, "neighbours", fingerprint);
	return EXIT_SUCCESS;
}

static int refuse(const char *option, const char *value, const char *wanted)
{
	fprintf(stderr, "brokerdemo: --%s takes %s, not '%s'\n", option, wanted, value);
	return EXIT_USAGE;
}

static int parse_number(const char *option, const char *value, unsigned int max, unsigned int *ret)
{
	char wanted[64], *end;
	unsigned long number;

	errno = 0;
	number = strtoul(value, &end, 10);
	if (errno || end == value || *end || value[0] == '-' || number == 0 || number > max) {
		snprintf(wanted, sizeof(wanted), "a number from 1 to %u", max);
		return refuse(option, value, wanted);
	}
	*ret = (unsigned int)number;
	return 0;
}

static int parse_classify(const char *value, struct options *options)
{
	if (strcmp(value, "prefer-gpu") == 0)
		options->strategy = RBK_STRATEGY_PREFER_GPU;
	else if (strcmp(value, "cpu") == 0)
		options->strategy = RBK_STRATEGY_ONLY_CPU;
	else if (strcmp(value, "gpu") == 0)
		options->strategy = RBK_STRATEGY_ONLY_GPU;
	else
		return refuse("classify", value, "cpu, gpu or prefer-gpu");
	options->mode = MODE_CLASSIFY;
	options->name = value;
	return 0;
}

/* Return: 0 to continue; -1 if help was printed; EXIT_USAGE. */
static int parse_options(int argc, char **argv, struct options *options)
{
	static const struct option long_options[] = {
		{"devices", no_argument, NULL, 'd'},
		{"classify", required_argument, NULL, 'c'},
		{"reference", no_argument, NULL, 'r'},
		{"socket", required_argument, NULL, 's'},
		{"data", required_argument, NULL, 'f'},
		{"images", required_argument, NULL, 'i'},
		{"index", required_argument, NULL, 'x'},
		{"batch", required_argument, NULL, 'b'},
		{"name", required_argument, NULL, 'n'},
		{"rounds", no_argument, NULL, 'R'},
		{"overhead", no_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	const char *name = NULL;
	int option, r = 0;

	while (r == 0 && (option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case 'd':
			options->mode = MODE_DEVICES;
			break;
		case 'o':
			options->mode = MODE_OVERHEAD;
			break;
		case 'c':
			r = parse_classify(optarg, options);
			break;
		case 'r':
			options->mode = MODE_REFERENCE;
			options->name = "reference";
			break;
		case 's':
			options->socket_path = optarg;
			break;
		case 'f':
			options->data_folder = optarg;
			break;
		case 'i':
			r = parse_number("images", optarg, 10000, &options->n_images);
			break;
		case 'x':
			r = parse_number("index", optarg, UINT_MAX, &options->n_index);
			break;
		case 'n':
			name = optarg;
			break;
		case 'R':
			options->has_rounds = true;
			break;
		case 'b':
			r = parse_number("batch", optarg, CLASSIFY_MAX_BATCH, &options->batch);
			break;
		case 'h':
			fputs(usage_text, stdout);
			return -1;
		default:
			/* getopt has printed the mistake. */
			return EXIT_USAGE;
		}
	}
	if (name)
		options->name = name;
	if (r == 0 && (optind < argc || options->mode == MODE_NONE ||
		       (options->has_rounds && options->mode != MODE_CLASSIFY))) {
		fputs("brokerdemo: give --devices, --overhead, --classify or --reference; see "
		      "brokerdemo "
		      "--help\n",
		      stderr);
		return EXIT_USAGE;
	}
	return r;
}

int main(int argc, char **argv)
{
	struct options options = {
		.data_folder = IMAGES_FOLDER, .n_images = 1000, .n_index = UINT_MAX, .batch = 64};
	struct images train = {0}, test = {0};
	int r;

	r = parse_options(argc, argv, &options);
	if (r)
		return r < 0 ? EXIT_SUCCESS : r;
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	if (options.mode == MODE_DEVICES)
		return list_devices(&options);
	if (options.mode == MODE_OVERHEAD)
		return print_overhead(&options);
	r = read_images(&options, &train, &test);
	if (r == 0)
		r = options.mode == MODE_REFERENCE ? compute_reference(&options, &train, &test)
		    : options.has_rounds           ? classify_rounds(&options, &train, &test)
						   : classify_images(&options, &train, &test);
	images_deinit(&train);
	images_deinit(&test);
	return r;
}
