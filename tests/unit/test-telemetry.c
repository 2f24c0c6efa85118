/* SPDX-License-Identifier: MIT */
/* Watching devices through their drivers' reports; needs no amdgpu */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support/test.h"
#include "telemetry/telemetry.h"
#include "tests/unit/fail-alloc.h"
#include "util/clock.h"
#include "util/waker.h"

#define MIB(n) ((uint64_t)(n) << 20)

static const uint64_t long_ns = 20000000000u;

struct driver {
	_Atomic uint64_t used_bytes, own_bytes;
	_Atomic bool has_memory;
	_Atomic uint32_t n_calls;
};

static void driver_sample(void *context, struct device_reading *reading)
{
	struct driver *driver = context;

	atomic_fetch_add(&driver->n_calls, 1);
	assert_false(reading->vram.total.is_valid);
	if (!atomic_load(&driver->has_memory))
		return;
	snprintf(reading->source, sizeof(reading->source), "a driver");
	reading->vram.total = reading->vram.usable = (struct reading){MIB(1000), true};
	reading->vram.used = (struct reading){atomic_load(&driver->used_bytes), true};
	reading->vram.own = (struct reading){atomic_load(&driver->own_bytes), true};
}

static void pause_a_moment(void)
{
	const struct timespec moment = {0, 1000000};

	nanosleep(&moment, NULL);
}

/* Return true if the process has a telemetry thread. */
static bool has_thread(void)
{
	struct dirent *entry;
	char path[300], name[32] = "";
	bool has = false;
	DIR *dir = opendir("/proc/self/task");
	FILE *file;

	while ((entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (fgets(name, sizeof(name), file) && strcmp(name, "rb-telemetry\n") == 0)
			has = true;
		fclose(file);
	}
	closedir(dir);
	return has;
}

TEST(test_new__nothing)
{
	struct telemetry *telemetry;
	struct device_reading reading;

	assert_int_equal(telemetry_new(NULL, 0, NULL, &telemetry), 0);
	assert_false(has_thread());
	assert_false(telemetry_read(telemetry, 0, &reading));
	assert_int_equal(telemetry_n_samples(telemetry, 0), 0);
	assert_true(telemetry_wait(telemetry, 0));
	telemetry_set_pace(telemetry, TELEMETRY_BUSY);
	assert_null(telemetry_free(telemetry));
	assert_null(telemetry_free(NULL));
}

/* A device without any source is not watched, and its reading says so. */
TEST(test_new__no_source)
{
	const struct telemetry_device device = {.index = 1};
	struct telemetry *telemetry;
	struct device_reading reading;
	bool is_said = false;

	assert_int_equal(telemetry_new(&device, 1, NULL, &telemetry), 0);
	assert_false(has_thread());
	assert_false(telemetry_read(telemetry, 1, &reading));
	for (unsigned int i = 0; telemetry_sentence(telemetry, i); i++)
		is_said |= strncmp(telemetry_sentence(telemetry, i), "device 1 is not watched",
				   23) == 0;
	assert_true(is_said);
	telemetry_free(telemetry);
}

TEST(test_driver)
{
	struct driver driver = {.used_bytes = MIB(300), .own_bytes = MIB(100), .has_memory = true};
	const struct telemetry_device device = {.index = 3, .driver = {driver_sample, &driver}};
	struct device_reading reading;
	struct telemetry *telemetry;
	struct waker waker;

	assert_int_equal(waker_init(&waker), 0);
	assert_int_equal(telemetry_new(&device, 1, &waker, &telemetry), 0);
	/* The first sample is available at once. */
	assert_true(telemetry_read(telemetry, 3, &reading));
	assert_string_equal(reading.source, "a driver");
	assert_int_equal(reading.state, TELEMETRY_PRESENT);
	assert_true(reading.sampled_ns > 0);
	assert_true(reading.n_samples > 0);
	assert_fields(reading.vram, (used.value, MIB(300)), (own.value, MIB(100)));
	/* Values that the driver does not report are absent. */
	assert_false(reading.gtt.total.is_valid);
	assert_false(reading.load_percent.is_valid);
	assert_false(reading.temperature_millicelsius.is_valid);
	assert_false(reading.n_evictions.is_valid);
	assert_false(reading.n_resets.is_valid);
	assert_true(reading.n_suspends.is_valid);
	assert_false(reading.processes_ns.is_valid);
	assert_false(telemetry_read(telemetry, 0, &reading));
	assert_true(telemetry_wait(telemetry, long_ns));
	assert_true(has_thread());
	telemetry_free(telemetry);
	assert_false(has_thread());
	waker_deinit(&waker);
}

TEST(test_driver__without_readings)
{
	struct driver driver = {.has_memory = false};
	const struct telemetry_device device = {.index = 1, .driver = {driver_sample, &driver}};
	struct device_reading reading;
	struct telemetry *telemetry;
	struct waker waker;

	assert_int_equal(waker_init(&waker), 0);
	assert_int_equal(telemetry_new(&device, 1, &waker, &telemetry), 0);
	assert_true(telemetry_read(telemetry, 1, &reading));
	assert_string_equal(reading.source, "none");
	assert_false(reading.vram.used.is_valid);
	telemetry_free(telemetry);
	waker_deinit(&waker);
}

static void wait_for_samples(const struct telemetry *telemetry, uint32_t n)
{
	uint32_t start = telemetry_n_samples(telemetry, 1);
	uint64_t start_ns = clock_now_ns();

	while (telemetry_n_samples(telemetry, 1) - start < n) {
		assert_true(clock_now_ns() - start_ns < long_ns);
		pause_a_moment();
	}
}

/* At the idle pace nothing happens for ten seconds; a faster pace applies at once. */
TEST(test_pace)
{
	struct driver driver = {.used_bytes = MIB(300), .has_memory = true};
	const struct telemetry_device device = {.index = 1, .driver = {driver_sample, &driver}};
	struct telemetry *telemetry;
	struct waker waker;
	uint64_t start_ns;

	assert_int_equal(waker_init(&waker), 0);
	start_ns = clock_now_ns();
	assert_int_equal(telemetry_new(&device, 1, &waker, &telemetry), 0);
	assert_true(telemetry_wait(telemetry, long_ns));
	for (int i = 0; i < 100; i++)
		pause_a_moment();
	if (clock_now_ns() - start_ns < 9000000000u)
		assert_int_equal(telemetry_n_samples(telemetry, 1), 2);

	telemetry_set_pace(telemetry, TELEMETRY_BUSY);
	wait_for_samples(telemetry, 5);
	telemetry_set_pace(telemetry, TELEMETRY_SESSIONS);
	wait_for_samples(telemetry, 1);
	/* With little free memory the pace is as if busy. */
	atomic_store(&driver.used_bytes, MIB(950));
	wait_for_samples(telemetry, 10);
	telemetry_free(telemetry);
	waker_deinit(&waker);
}

static bool is_rung(struct waker *waker, int timeout_ms)
{
	struct pollfd pollfd = {.fd = waker->fd, .events = POLLIN};

	return poll(&pollfd, 1, timeout_ms) == 1;
}

/* The reactor is woken for changes of others' memory, not for its own and not without a change. */
TEST(test_waker)
{
	struct driver driver = {.used_bytes = MIB(300), .own_bytes = MIB(100), .has_memory = true};
	const struct telemetry_device device = {.index = 1, .driver = {driver_sample, &driver}};
	struct telemetry *telemetry;
	struct waker waker;

	assert_int_equal(waker_init(&waker), 0);
	assert_int_equal(telemetry_new(&device, 1, &waker, &telemetry), 0);
	telemetry_set_pace(telemetry, TELEMETRY_BUSY);
	wait_for_samples(telemetry, 2);
	waker_arm(&waker);
	wait_for_samples(telemetry, 3);
	assert_false(is_rung(&waker, 0));
	/* Own memory changes first, so that no sample shows others' memory growing. */
	atomic_store(&driver.own_bytes, MIB(101));
	atomic_store(&driver.used_bytes, MIB(301));
	wait_for_samples(telemetry, 3);
	assert_false(is_rung(&waker, 0));
	/* Small changes add up until they are worth a wake-up. */
	for (int i = 1; i <= 3; i++) {
		atomic_store(&driver.used_bytes, MIB(301 + i));
		wait_for_samples(telemetry, 2);
		assert_false(is_rung(&waker, 0));
	}
	atomic_store(&driver.used_bytes, MIB(305));
	assert_true(is_rung(&waker, 20000));
	waker_disarm(&waker);
	telemetry_free(telemetry);
	waker_deinit(&waker);
}

TEST(test_pool)
{
	struct device_reading reading = {
		.vram = {.total = {10, true}, .used = {3, true}, .own = {1, true}},
		.gtt = {.total = {20, true}, .used = {5, true}},
	};
	struct memory_reading pool = telemetry_pool(&reading);

	assert_fields(pool, (total.value, 10), (used.value, 3));
	reading.is_integrated = true;
	pool = telemetry_pool(&reading);
	assert_true(pool.total.is_valid);
	assert_fields(pool, (total.value, 30), (used.value, 8));
	assert_false(pool.own.is_valid);
	assert_false(pool.usable.is_valid);
}

TEST(test_new__no_memory)
{
	struct driver driver = {.has_memory = true};
	const struct telemetry_device device = {.index = 1, .driver = {driver_sample, &driver}};
	struct telemetry *telemetry;
	struct waker waker;
	int r;

	assert_int_equal(waker_init(&waker), 0);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = telemetry_new(&device, 1, &waker, &telemetry);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	telemetry_free(telemetry);
	waker_deinit(&waker);
}
