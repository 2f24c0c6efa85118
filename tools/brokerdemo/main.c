/* SPDX-License-Identifier: MIT */
/*
 * brokerdemo: one client of the demo
 *
 * tools/demo starts a broker and several of these, and makes a table of what they say: lines of
 * "NAME KEY VALUE...", one write each, so that several may share a pipe.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ringbroker.h>

#include "classify.h"
#include "images.h"
#include "neighbours.h"

enum { EXIT_USAGE = 2 };

/* At most this many images between two lines of progress of the reference. */
enum { REFERENCE_STEP = 50 };

static const char usage_text[] =
	"Usage: brokerdemo --devices | --classify cpu|gpu | --reference  [OPTION...]\n"
	"Classifies Fashion-MNIST images by their 5 nearest neighbours; see tools/demo.\n"
	"\n"
	"  --devices           list the broker's devices: index, kind, name\n"
	"  --classify cpu|gpu  classify through the broker, on that kind of device only\n"
	"  --reference         classify without a broker, in exact integer arithmetic\n"
	"  --socket PATH       of the broker (default: the client library's)\n"
	"  --data FOLDER       of the images (default: " IMAGES_FOLDER ")\n"
	"  --images N          classify the first N test images (default: 1000)\n"
	"  --batch N           images of one task, at most 256 (default: 64)\n"
	"  --help\n"
	"\n"
	"Exit status: 0 done, 1 something failed, 2 wrong options.\n";

enum mode { MODE_NONE, MODE_DEVICES, MODE_CLASSIFY, MODE_REFERENCE };

struct options {
	enum mode mode;
	const char *name; /* first word of each line */
	unsigned int strategy;
	const char *socket_path, *data_folder;
	unsigned int n_images, batch;
};

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

static int read_images(const struct options *options, struct images *train, struct images *test)
{
	char path[4096];
	int r;

	r = images_read(options->data_folder, "train", SIZE_MAX, train, path, sizeof(path));
	if (r == 0)
		r = images_read(options->data_folder, "t10k", options->n_images, test, path,
				sizeof(path));
	if (r == -EBADMSG)
		fprintf(stderr, "brokerdemo: %s: damaged, or no such images\n", path);
	else if (r)
		fprintf(stderr, "brokerdemo: %s: %s\n", path, strerror(-r));
	else if (train->n < CLASSIFY_NEIGHBOURS || test->n < options->n_images)
		fprintf(stderr, "brokerdemo: %s holds only %zu images\n", options->data_folder,
			test->n);
	else
		return 0;
	return EXIT_FAILURE;
}

static void say_progress(void *data, size_t n_done)
{
	const struct options *options = data;

	printf("%s progress %zu\n", options->name, n_done);
}

static void say(const struct options *options, const char *key, uint64_t value)
{
	printf("%s %s %" PRIu64 "\n", options->name, key, value);
}

static void say_result(const struct options *options, const struct classify_result *result)
{
	say(options, "right", result->n_right);
	say(options, "right-nearest", result->n_right_nearest);
	say(options, "neighbours", result->fingerprint);
	say(options, "tasks", result->n_tasks);
	say(options, "prepare-ns", result->prepare_ns);
	say(options, "run-ns", result->run_ns);
	say(options, "round-trip-p50-ns", result->round_trip_ns[0]);
	say(options, "round-trip-p99-ns", result->round_trip_ns[1]);
	say(options, "exec-p50-ns", result->exec_ns[0]);
	say(options, "exec-p99-ns", result->exec_ns[1]);
	say(options, "copied-bytes", result->copied_bytes);
	say(options, "transferred-bytes", result->transferred_bytes);
	say(options, "constant-bytes", result->constant_bytes);
	say(options, "host-bytes", result->host_bytes);
	say(options, "device-bytes", result->device_bytes);
	for (unsigned int d = 0; d < RBK_MAX_DEVICES; d++)
		for (unsigned int r = 0; r < RBK_REASON_COUNT; r++)
			if (result->tasks[d][r])
				printf("%s ran %u %s %s\n", options->name, result->tasks[d][r],
				       rbk_reason_name(r), result->devices[d].name);
}

static int classify_images(const struct options *options, const struct images *train,
			   const struct images *test)
{
	const struct classify_options classify_options = {
		.socket_path = options->socket_path,
		.strategy = options->strategy,
		.batch = options->batch,
		.progress = say_progress,
		.data = (void *)options,
	};
	struct rbk_error error = {"out of memory"};
	struct classify_result result;

	if (classify(&classify_options, train, test, &result, &error)) {
		fprintf(stderr, "brokerdemo: %s: %s\n", options->name, error.text);
		return EXIT_FAILURE;
	}
	say_result(options, &result);
	return EXIT_SUCCESS;
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
			say(options, "progress", i + 1);
	}
	say(options, "right", n_right);
	say(options, "right-nearest", n_right_nearest);
	say(options, "neighbours", fingerprint);
	return EXIT_SUCCESS;
}

static int refuse(const char *option, const char *value, const char *wanted)
{
	fprintf(stderr, "brokerdemo: --%s wants %s, not '%s'\n", option, wanted, value);
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
	if (strcmp(value, "cpu") == 0)
		options->strategy = RBK_STRATEGY_ONLY_CPU;
	else if (strcmp(value, "gpu") == 0)
		options->strategy = RBK_STRATEGY_ONLY_GPU;
	else
		return refuse("classify", value, "cpu or gpu");
	options->mode = MODE_CLASSIFY;
	options->name = value;
	return 0;
}

/* Return: 0 to go on; -1 if help was given; EXIT_USAGE. */
static int parse_options(int argc, char **argv, struct options *options)
{
	static const struct option long_options[] = {
		{"devices", no_argument, NULL, 'd'},
		{"classify", required_argument, NULL, 'c'},
		{"reference", no_argument, NULL, 'r'},
		{"socket", required_argument, NULL, 's'},
		{"data", required_argument, NULL, 'f'},
		{"images", required_argument, NULL, 'i'},
		{"batch", required_argument, NULL, 'b'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option, r = 0;

	while (r == 0 && (option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case 'd':
			options->mode = MODE_DEVICES;
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
		case 'b':
			r = parse_number("batch", optarg, CLASSIFY_MAX_BATCH, &options->batch);
			break;
		case 'h':
			fputs(usage_text, stdout);
			return -1;
		default:
			/* getopt has said what was wrong. */
			return EXIT_USAGE;
		}
	}
	if (r == 0 && (optind < argc || options->mode == MODE_NONE)) {
		fputs("brokerdemo: say what to do; see brokerdemo --help\n", stderr);
		return EXIT_USAGE;
	}
	return r;
}

int main(int argc, char **argv)
{
	struct options options = {.data_folder = IMAGES_FOLDER, .n_images = 1000, .batch = 64};
	struct images train = {0}, test = {0};
	int r;

	r = parse_options(argc, argv, &options);
	if (r)
		return r < 0 ? EXIT_SUCCESS : r;
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	if (options.mode == MODE_DEVICES)
		return list_devices(&options);
	r = read_images(&options, &train, &test);
	if (r == 0)
		r = options.mode == MODE_REFERENCE ? compute_reference(&options, &train, &test)
						   : classify_images(&options, &train, &test);
	images_deinit(&train);
	images_deinit(&test);
	return r;
}
