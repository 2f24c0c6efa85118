/* SPDX-License-Identifier: MIT */
/* A reading is read whole, while the next ones are written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "telemetry/publish.h"

enum { N_READERS = 3, N_READS = 2000, N_DIFFERENT = 30 };

struct race {
	struct publish publish;
	_Atomic uint32_t n_reading; /* readers that are not done */
	_Atomic uint32_t n_torn;
};

/* Every part of reading @n tells of @n. */
static void fill(struct device_reading *reading, uint32_t n)
{
	reading->sampled_ns = n;
	reading->vram.used = (struct reading){n, true};
	reading->n_processes = n;
	for (uint32_t i = 0; i < TELEMETRY_MAX_PROCESSES; i++)
		reading->processes[i].vram_bytes = n;
	reading->processes[TELEMETRY_MAX_PROCESSES - 1].busy_percent = (struct reading){n, true};
}

static bool is_whole(const struct device_reading *reading)
{
	uint32_t n = reading->n_samples;

	if (reading->sampled_ns != n || reading->vram.used.value != n || reading->n_processes != n)
		return false;
	for (uint32_t i = 0; i < TELEMETRY_MAX_PROCESSES; i++)
		if (reading->processes[i].vram_bytes != n)
			return false;
	return reading->processes[TELEMETRY_MAX_PROCESSES - 1].busy_percent.value == n;
}

static void test_read__before_the_first(void **state)
{
	static struct publish publish;
	struct device_reading reading = {.sampled_ns = 5};

	assert_false(publish_read(&publish, &reading));
	assert_int_equal(reading.sampled_ns, 5);
	assert_int_equal(publish_count(&publish), 0);
}

static void test_read__the_last(void **state)
{
	static struct publish publish;
	struct device_reading reading = {.sampled_ns = 0}, seen;

	for (uint32_t n = 1; n <= 5; n++) {
		fill(&reading, n);
		publish_write(&publish, &reading);
		assert_int_equal(reading.n_samples, n);
		assert_int_equal(publish_count(&publish), n);
		assert_true(publish_read(&publish, &seen));
		assert_memory_equal(&seen, &reading, sizeof(seen));
	}
}

static void *reader(void *data)
{
	struct race *race = data;
	struct device_reading reading;
	uint32_t last = 0, n_different = 0;

	/* Until it has seen that there are others, too. */
	for (uint32_t i = 0; i < N_READS || n_different < N_DIFFERENT;) {
		if (!publish_read(&race->publish, &reading)) {
			sched_yield();
			continue;
		}
		i++;
		if (!is_whole(&reading) || reading.n_samples < last)
			atomic_fetch_add(&race->n_torn, 1);
		n_different += reading.n_samples != last;
		last = reading.n_samples;
	}
	atomic_fetch_sub(&race->n_reading, 1);
	return NULL;
}

static void test_read__while_it_is_written(void **state)
{
	static struct race race;
	static struct device_reading reading, seen;
	pthread_t threads[N_READERS];
	uint32_t n = 0;

	atomic_store(&race.n_reading, N_READERS);
	for (unsigned int i = 0; i < N_READERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, reader, &race), 0);
	while (atomic_load(&race.n_reading) > 0) {
		fill(&reading, ++n);
		publish_write(&race.publish, &reading);
		/* Back to back, a reader might never get through. */
		for (int i = 0; i < 4; i++)
			assert_true(publish_read(&race.publish, &seen) && is_whole(&seen));
	}
	for (unsigned int i = 0; i < N_READERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&race.n_torn), 0);
	assert_int_equal(publish_count(&race.publish), n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read__before_the_first),
		cmocka_unit_test(test_read__the_last),
		cmocka_unit_test(test_read__while_it_is_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
