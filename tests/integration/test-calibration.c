/* SPDX-License-Identifier: MIT */
/*
 * Sources of brokerd's device profiles: measured at the first start and cached for the next;
 * measured again if the cached profile cannot be trusted; or neither, as --calibration says.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "integration/harness.h"
#include "support/test.h"

struct fixture {
	char cache[64];
};

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	strcpy(fixture->cache, "/tmp/rbk-test-cache-XXXXXX");
	assert_non_null(mkdtemp(fixture->cache));
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;
	char command[128];

	snprintf(command, sizeof(command), "rm -r '%s'", fixture->cache);
	assert_int_equal(system(command), 0);
	free(fixture);
	return 0;
}

/* Start and end a broker whose log must contain @text but not @other. */
static void expect_log(const struct fixture *fixture, const char *calibration, const char *text,
		       const char *other)
{
	const char *args[] = {"--gpu",         "none",      "--cache", fixture->cache,
			      "--calibration", calibration, NULL};
	const struct broker_options options = {.args = args};

	BROKER(broker, &options);
	if ((text && !broker_log_has(&broker, text)) || (other && broker_log_has(&broker, other))) {
		broker_show_log(&broker);
		fail_msg("the log has not '%s', or it has '%s'", text ? text : "",
			 other ? other : "");
	}
}

/*
 * Start and end a broker that must measure: at the start, or while idle if the machine is too busy
 * at the start.
 */
static void expect_measured(const struct fixture *fixture, const char *calibration,
			    const char *text)
{
	const char *args[] = {"--gpu",         "none",      "--cache", fixture->cache,
			      "--calibration", calibration, NULL};
	const struct broker_options options = {.args = args};

	BROKER(broker, &options);
	if (!broker_log_has(&broker, "device 0 measured"))
		broker_wait_log(&broker, "device 0 was measured while it was idle");
	if (text)
		broker_wait_log(&broker, text);
	assert_false(broker_log_has(&broker, "device 0 cached"));
}

/* Find the only profile that may exist. Return: false if there is none. */
static bool has_profile(const struct fixture *fixture, char ret[static 512])
{
	DIR *folder = opendir(fixture->cache);
	struct dirent *entry;
	unsigned int n = 0;

	assert_non_null(folder);
	while ((entry = readdir(folder))) {
		const char *suffix = strrchr(entry->d_name, '.');

		/* Skip the temporary file of a profile being written. */
		if (!suffix || strcmp(suffix, ".profile") != 0)
			continue;
		n++;
		snprintf(ret, 512, "%s/%s", fixture->cache, entry->d_name);
	}
	closedir(folder);
	assert_in_range(n, 0, 1);
	return n == 1;
}

static void find_profile(const struct fixture *fixture, char ret[static 512])
{
	assert_true(has_profile(fixture, ret));
}

TEST(test_start__cached, setup, teardown)
{
	struct fixture *fixture = *state;
	struct stat before, after;
	char path[512];

	expect_measured(fixture, "auto", NULL);
	find_profile(fixture, path);
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(before.st_mode & 0777, 0600);
	expect_log(fixture, "auto", "device 0 cached", "measured");
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);

	expect_measured(fixture, "now", NULL);
	assert_int_equal(stat(path, &after), 0);
	assert_int_not_equal(before.st_ino, after.st_ino);
	expect_log(fixture, "none", NULL, "profiles");
}

TEST(test_start__bad_cache, setup, teardown)
{
	struct fixture *fixture = *state;
	struct stat status;
	char path[512];

	expect_measured(fixture, "auto", NULL);
	find_profile(fixture, path);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(truncate(path, status.st_size / 2), 0);
	expect_measured(fixture, "auto", "cannot be used: it is damaged or truncated");
	/* The new profile is cached again. */
	expect_log(fixture, "auto", "device 0 cached", "cannot be used");

	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	expect_measured(fixture, "auto", "cannot be used: it is a symbolic link");
	expect_log(fixture, "auto", "device 0 cached", "cannot be used");

	/* A profile that cannot be written does not keep the broker from starting. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	expect_measured(fixture, "auto", "cannot keep the profile of");
	assert_int_equal(rmdir(path), 0);
}

static bool file_has(const char *path, const char *text)
{
	static char content[65536];
	FILE *file = fopen(path, "r");
	size_t n;

	assert_non_null(file);
	n = fread(content, 1, sizeof(content) - 1, file);
	content[n] = '\0';
	fclose(file);
	return strstr(content, text) != NULL;
}

/* Figures for which the start had no time are measured while the broker is idle, and cached. */
TEST(test_idle__measures_the_rest, setup, teardown)
{
	struct fixture *fixture = *state;
	const char *args[] = {"--gpu",         "none", "--cache", fixture->cache,
			      "--calibration", "auto", NULL};
	const struct broker_options options = {.args = args};
	struct broker broker;
	char path[512];

	broker_start(&broker, &options);
	/* On a busy machine, nothing may have been measured at the start. */
	if (broker_log_has(&broker, "device 0 measured")) {
		find_profile(fixture, path);
		assert_true(file_has(path, " partial\n"));
	}
	broker_wait_log(&broker, "device 0 was measured while it was idle");
	while (!has_profile(fixture, path) || !file_has(path, " complete\n"))
		harness_sleep_ms(5);
	assert_true(file_has(path, " complete\n"));
	broker_stop(&broker);
	expect_log(fixture, "auto", "device 0 cached", "measured");
}

/* While a client has tasks nothing is measured; afterwards the device is. */
TEST(test_idle__does_not_measure_beside_tasks, setup, teardown)
{
	static const uint64_t pause_ns = 900000000u;
	struct fixture *fixture = *state;
	const char *args[] = {"--gpu",         "none", "--cache", fixture->cache,
			      "--calibration", "auto", NULL};
	const struct broker_options options = {.args = args};
	uint64_t begin_ns = harness_now_ns(), longest_ns;
	struct neighbour *neighbour;
	bool is_measured;

	BROKER(broker, &options);
	neighbour = neighbour_start(&broker);
	while (neighbour_results(neighbour) == 0)
		harness_sleep_ms(1);
	longest_ns = harness_now_ns() - begin_ns;
	neighbour_take_longest_ns(neighbour);
	harness_sleep_ms(2000);
	is_measured = broker_log_has(&broker, "was measured while it was idle");
	neighbour_finish_round(neighbour);
	if (longest_ns < pause_ns)
		longest_ns = neighbour_take_longest_ns(neighbour);
	/* After a round of more than pause_ns, the broker may have been idle and have measured. */
	if (longest_ns < pause_ns)
		assert_false(is_measured);
	neighbour_stop(neighbour);
	broker_wait_log(&broker, "device 0 was measured while it was idle");
}

/* Stop the broker while it measures, if possible on a device with memory of its own. */
TEST(test_idle__stop_while_measuring, setup, teardown)
{
	struct fixture *fixture = *state;
	const char *args[] = {"--gpu=software", "--cache", fixture->cache,
			      "--calibration",  "auto",    NULL};
	const struct broker_options options = {.args = args};

	BROKER(broker, &options);
	broker_wait_log(&broker, "device 0 was measured while it was idle");
	harness_sleep_ms(20);
}

/* Placement options take effect when the file is read again; the log names what has changed. */
TEST(test_reload__placement, setup, teardown)
{
	const char *const args[] = {"--gpu=none", "--workers=2", NULL};
	const struct broker_options options = {.args = args,
					       .policy = "[broker]\nthreshold = 2MiB\n"};

	BROKER(broker, &options);
	broker_write_policy(&broker, "[broker]\nthreshold = 2MiB\nforce-cpu = yes\n");
	broker_reload(&broker, "placement keys changed: force-cpu; 1 tenant in all");
	broker_write_policy(&broker, "[broker]\nthreshold = 2MiB\nforce-cpu = yes\n");
	broker_reload(&broker, "nothing changed; 1 tenant in all");
	broker_write_policy(&broker, "[broker]\nforce-cpu = yes\nbalance-low = 1.1\n");
	broker_reload(&broker, ":3: balance-low: '1.1' is not allowed; a factor from 0.01 to 0.99 "
			       "is");
	/* One has another value, the other one is gone. */
	broker_write_policy(&broker, "[broker]\nthreshold = 3MiB\n");
	broker_reload(&broker, "placement keys changed: threshold, force-cpu; 1 tenant in all");
	/* The command line has --workers; spin and log-level wait for the next start. */
	broker_write_policy(&broker, "[broker]\nthreshold = 3MiB\nspin = 5\nmin-count = 9\n"
				     "workers = 1\nlog-level = debug\n");
	broker_reload(&broker,
		      "placement keys changed: min-count; keys changed that take effect at "
		      "the next start (brokerctl restart): spin, log-level; keys changed "
		      "that have no effect, because the command line has them: workers; 1 "
		      "tenant in all");
	broker_write_policy(&broker, "[broker]\nthreshold = 3MiB\nspin = 6\nmin-count = 9\n"
				     "workers = 1\nlog-level = debug\n");
	broker_reload(&broker, ": keys changed that take effect at the next start (brokerctl "
			       "restart): spin; 1 tenant in all");
}

TEST_MAIN(NULL, NULL, broker_watch_all(), harness_limit_seconds(50))
