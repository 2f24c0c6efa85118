/* SPDX-License-Identifier: MIT */
/* brokerd's options: placement options on the command line and as keys of a file */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "daemon/options.h"
#include "support/test.h"
#include "util/checked.h"

static int parse(struct options *ret, const char *first, const char *second)
{
	char *argv[] = {(char *)"brokerd", (char *)first, (char *)second, NULL};

	/* 0 makes glibc's getopt start over. */
	optind = 0;
	return options_parse(first ? second ? 3 : 2 : 1, argv, ret);
}

static int read_key(struct options *options, const char *key, const char *value)
{
	char wanted[POLICY_WANTED_BYTES];

	return options_read_key(options, key, value, wanted);
}

/* Return the suggestion for the unknown key @key. */
static const char *near_key(struct options *options, const char *key)
{
	static char wanted[POLICY_WANTED_BYTES];

	assert_int_equal(options_read_key(options, key, "1", wanted), POLICY_E_UNKNOWN);
	return wanted;
}

/* Return the text of the placement options; the caller frees it. */
static char *place_text(const struct options *options)
{
	char *text = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&text, &bytes);

	assert_non_null(stream);
	options_print_place(stream, options);
	assert_int_equal(fclose(stream), 0);
	return text;
}

static void expect_place(const struct options *options, const char *expected)
{
	char *text = place_text(options);

	assert_string_equal(text, expected);
	free(text);
}

static bool is_same_place(const struct options *a, const struct options *b)
{
	char *text_a = place_text(a), *text_b = place_text(b);
	bool is_same = strcmp(text_a, text_b) == 0;

	free(text_a);
	free(text_b);
	return is_same;
}

TEST(test_place__defaults)
{
	struct options options;

	assert_int_equal(parse(&options, NULL, NULL), -1);
	expect_place(&options,
		     "threshold = 1MiB; min-count = 64; strategy = automatic; energy-slack = 2; "
		     "speedup-threshold = 1.5; window = 100; exploration = 1%; success-rate = 95%; "
		     "partition-min-size = 10MiB; partition-min-gain = 20%; balance-high = 1.2; "
		     "balance-low = 0.8; submission-max = 10ms; force-cpu = no; contention-action "
		     "= act");
}

static const struct {
	const char *key, *value;
	const char *wanted; /* values named in the error; NULL: no error */
} cases[] = {
	{"threshold", "2MiB", NULL},
	{"threshold", "lots", "a size such as 64MiB"},
	{"min-count", "0", NULL},
	{"min-count", "2147483648", "a number from 0 to 2147483647"},
	{"min-count", "-1", "a number from 0 to 2147483647"},
	{"strategy", "energy", NULL},
	{"strategy", "latency", NULL},
	{"strategy", "fastest", "automatic, latency or energy"},
	{"energy-slack", "1", NULL},
	{"energy-slack", "0.9", "a factor from 1 to 1000"},
	{"energy-slack", "nan", "a factor from 1 to 1000"},
	{"energy-slack", "1e3", "a factor from 1 to 1000"},
	{"speedup-threshold", "1000", NULL},
	{"speedup-threshold", "0", "a factor from 0.01 to 1000"},
	{"speedup-threshold", "inf", "a factor from 0.01 to 1000"},
	{"speedup-threshold", "1.5x", "a factor from 0.01 to 1000"},
	{"window", "8", NULL},
	{"window", "7", "a number from 8 to 1000"},
	{"exploration", "0", NULL},
	{"exploration", "50%", NULL},
	{"exploration", "0.5", NULL},
	{"exploration", "51%", "a share from 0% to 50%, such as 25%"},
	{"exploration", "-1%", "a share from 0% to 50%, such as 25%"},
	{"exploration", "1 %", "a share from 0% to 50%, such as 25%"},
	{"success-rate", "100%", NULL},
	{"success-rate", "2", "a share from 0% to 100%, such as 50%"},
	{"partition-min-size", "1GiB", NULL},
	{"partition-min-gain", "100%", NULL},
	{"partition-min-gain", "", "a share from 0% to 100%, such as 50%"},
	{"balance-high", "1.01", NULL},
	{"balance-high", "1", "a factor from 1.01 to 100"},
	{"balance-low", "0.99", NULL},
	{"balance-low", "1", "a factor from 0.01 to 0.99"},
	{"balance-low", "0", "a factor from 0.01 to 0.99"},
	{"submission-max", "100us", NULL},
	{"submission-max", "5", NULL},
	{"submission-max", "1s", NULL},
	{"submission-max", "99us", "a time from 0.1ms to 1000ms, such as 10ms"},
	{"submission-max", "1min", "a time from 0.1ms to 1000ms, such as 10ms"},
	{"force-cpu", "yes", NULL},
	{"force-cpu", "on", "yes or no"},
	{"contention-action", "observe", NULL},
	{"contention-action", "ignore", "act or observe"},
};

TEST(test_place__ranges)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		char wanted[POLICY_WANTED_BYTES] = "", option[128];
		struct options options, other, defaults;
		int r;

		assert_int_equal(parse(&options, NULL, NULL), -1);
		defaults = options;
		r = options_read_key(&options, cases[i].key, cases[i].value, wanted);
		assert_true(options_key_is_live(cases[i].key));
		snprintf(option, sizeof(option), "--%s=%s", cases[i].key, cases[i].value);
		if (cases[i].wanted) {
			assert_int_equal(r, POLICY_E_INVALID);
			assert_string_equal(wanted, cases[i].wanted);
			assert_true(is_same_place(&options, &defaults));
			assert_int_equal(parse(&other, option, NULL), OPTIONS_EXIT_USAGE);
			continue;
		}
		assert_int_equal(r, 0);
		assert_false(is_same_place(&options, &defaults));
		assert_int_equal(parse(&other, option, NULL), -1);
		assert_true(is_same_place(&options, &other));
	}
}

TEST(test_place__values)
{
	static const char *const keys[][2] = {
		{"threshold", "1"},
		{"min-count", "2"},
		{"strategy", "latency"},
		{"energy-slack", "3.5"},
		{"speedup-threshold", "4"},
		{"window", "50"},
		{"exploration", "0.06"},
		{"success-rate", "70%"},
		{"partition-min-size", "8"},
		{"partition-min-gain", "9%"},
		{"balance-high", "10"},
		{"balance-low", "0.11"},
		{"submission-max", "12"},
		{"force-cpu", "yes"},
		{"contention-action", "observe"},
	};
	struct options options;

	assert_int_equal(parse(&options, NULL, NULL), -1);
	for (unsigned int i = 0; i < ARRAY_SIZE(keys); i++)
		assert_int_equal(read_key(&options, keys[i][0], keys[i][1]), 0);
	expect_place(&options,
		     "threshold = 1; min-count = 2; strategy = latency; energy-slack = 3.5; "
		     "speedup-threshold = 4; window = 50; exploration = 6%; success-rate = 70%; "
		     "partition-min-size = 8; partition-min-gain = 9%; balance-high = 10; "
		     "balance-low = 0.11; submission-max = 12ms; force-cpu = yes; "
		     "contention-action = observe");
}

TEST(test_contention)
{
	static const struct {
		const char *word;
		enum run_queue_source source;
	} words[] = {
		{"auto", RUN_QUEUE_SOURCE_AUTO},           {"ebpf", RUN_QUEUE_SOURCE_EBPF},
		{"schedstat", RUN_QUEUE_SOURCE_SCHEDSTAT}, {"psi", RUN_QUEUE_SOURCE_PSI},
		{"stat", RUN_QUEUE_SOURCE_STAT},           {"none", RUN_QUEUE_SOURCE_NONE},
	};
	char wanted[POLICY_WANTED_BYTES] = "";
	struct options options;

	assert_int_equal(parse(&options, NULL, NULL), -1);
	assert_int_equal(options.contention, RUN_QUEUE_SOURCE_AUTO);
	assert_false(options.observes_contention);
	for (unsigned int i = 0; i < ARRAY_SIZE(words); i++) {
		assert_int_equal(read_key(&options, "contention", words[i].word), 0);
		assert_int_equal(options.contention, words[i].source);
	}
	assert_int_equal(options_read_key(&options, "contention", "perf", wanted),
			 POLICY_E_INVALID);
	assert_string_equal(wanted, "auto, ebpf, schedstat, psi, stat or none");
	assert_int_equal(options.contention, RUN_QUEUE_SOURCE_NONE);
	assert_false(options_key_is_live("contention"));
	assert_true(options_key_is_live("contention-action"));
}

TEST(test_watts)
{
	struct options options;

	assert_int_equal(parse(&options, "--cpu-watts=95", NULL), -1);
	assert_float_equal(options.cpu_watts, 95, 0);
	assert_float_equal(options.gpu_watts, 0, 0);
	assert_int_equal(read_key(&options, "gpu-watts", "185.5W"), 0);
	assert_float_equal(options.gpu_watts, 185.5, 0);
	assert_int_equal(read_key(&options, "gpu-watts", "-1"), POLICY_E_INVALID);
	assert_int_equal(read_key(&options, "gpu-watts", "inf"), POLICY_E_INVALID);
	assert_int_equal(read_key(&options, "gpu-watts", "100001"), POLICY_E_INVALID);
	assert_false(options_key_is_live("gpu-watts"));
}

/* The test device is an option of the command line only, for tests. */
TEST(test_test_device)
{
	struct options options;

	assert_int_equal(parse(&options, NULL, NULL), -1);
	assert_int_equal(options.test_device_ns, 0);
	assert_int_equal(parse(&options, "--test-device=1.5ms", NULL), -1);
	assert_int_equal(options.test_device_ns, 1500000);
	assert_int_equal(parse(&options, "--test-device=0", NULL), OPTIONS_EXIT_USAGE);
	assert_int_equal(parse(&options, "--test-device=2s", NULL), OPTIONS_EXIT_USAGE);
	assert_int_equal(read_key(&options, "test-device", "1ms"), POLICY_E_UNKNOWN);
	assert_int_equal(options.test_device_row_ns, 0);
	assert_int_equal(parse(&options, "--test-device-row=1.5us", NULL), OPTIONS_EXIT_USAGE);
	assert_int_equal(parse(&options, "--test-device=1ms", "--test-device-row=1.5us"), -1);
	assert_int_equal(options.test_device_row_ns, 1500);
	assert_int_equal(options.test_device_gflops, 0);
	assert_int_equal(parse(&options, "--test-device-rate=9", NULL), OPTIONS_EXIT_USAGE);
	assert_int_equal(parse(&options, "--test-device=1ms", "--test-device-rate=9"), -1);
	assert_int_equal(options.test_device_gflops, 9);
	assert_int_equal(options.test_device_link, 0);
	assert_int_equal(parse(&options, "--test-device-link=12", NULL), OPTIONS_EXIT_USAGE);
	assert_int_equal(parse(&options, "--test-device=1ms", "--test-device-link=12"), -1);
	assert_int_equal(options.test_device_link, 12);
}

/* The command line takes precedence over the file, for every option: each has its own bit. */
TEST(test_read_key__command_line_wins)
{
	struct options options;

	assert_int_equal(parse(&options, "--force-cpu=yes", "--workers=3"), -1);
	assert_int_equal(read_key(&options, "force-cpu", "no"), 0);
	assert_int_equal(read_key(&options, "workers", "4"), 0);
	assert_int_equal(read_key(&options, "min-count", "4"), 0);
	assert_true(options.place.force_cpu);
	assert_int_equal(options.cpu.n_workers, 3);
	assert_int_equal(options.place.min_count, 4);
	/* An invalid value in the file is an error even if the command line overrides the key. */
	assert_int_equal(read_key(&options, "force-cpu", "maybe"), POLICY_E_INVALID);
}

TEST(test_read_key__unknown)
{
	struct options options;

	assert_int_equal(parse(&options, NULL, NULL), -1);
	assert_int_equal(read_key(&options, "speed", "1"), POLICY_E_UNKNOWN);
	assert_int_equal(read_key(&options, "config", "x"), POLICY_E_UNKNOWN);
	assert_int_equal(read_key(&options, "help", ""), POLICY_E_UNKNOWN);
	assert_string_equal(near_key(&options, "threshhold"), "threshold");
	assert_string_equal(near_key(&options, "vram-hedroom"), "vram-headroom");
	assert_string_equal(near_key(&options, "confg"), ""); /* not a configuration key */
	assert_string_equal(near_key(&options, "xyzzy"), "");
	assert_false(options_key_is_live("workers"));
	assert_false(options_key_is_live("nonsense"));
	assert_true(options_key_is_live("threshold"));
	assert_true(options_key_is_live("force-cpu"));
}

/*
 * A default path that is too long is refused when the broker listens on it. A truncated path could
 * name another broker's socket.
 */
TEST(test_socket__default_too_long)
{
	static const char *const names[] = {"RINGBROKER_SOCKET", "XDG_RUNTIME_DIR"};
	struct options options;
	char path[600];

	for (size_t bytes = 100; bytes < sizeof(path); bytes += 400) {
		memset(path, 'x', bytes);
		memcpy(path, "/nonexistent/", 13);
		path[bytes] = '\0';
		for (unsigned int i = 0; i < 2; i++) {
			unsetenv(names[1 - i]);
			setenv(names[i], path, 1);
			assert_int_equal(parse(&options, "--cache=none", NULL), -1);
			options_complete(&options);
			if (i == 0 && bytes == 100)
				assert_string_equal(options.socket_path, path);
			else
				assert_true(strlen(options.socket_path) >=
					    sizeof(((struct sockaddr_un *)0)->sun_path));
			unsetenv(names[i]);
		}
	}
}

/* A socket path given explicitly is refused at once if too long. */
TEST(test_socket__too_long)
{
	char argument[128] = "--socket=";
	struct options options;

	memset(argument + 9, 'x', 107);
	assert_int_equal(parse(&options, argument, NULL), -1);
	memset(argument + 9, 'x', 108);
	assert_int_equal(parse(&options, argument, NULL), OPTIONS_EXIT_USAGE);
}
