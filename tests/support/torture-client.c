/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan program that records random command buffers, and tells what they computed
 *
 *     torture-client SEED CASES [--count] [--core] [--times] [--validated]
 *
 * Each case is drawn from a number: SEED, SEED + 1, and so on. The program prints a line for each,
 * with the number and a hash of all memory that the case's command buffers wrote. The hash depends
 * on the number alone, so a test compares the lines with those of the same program under a layer
 * that cuts its command buffers.
 *
 * With RBK_TORTURE_QUEUES in the environment the program uses one queue.
 *
 * With --count, the program prints to standard error how many cases used each feature. With --core,
 * it does not use optional features, and prints the same hashes. With --times, it prints after each
 * line the case's microseconds to standard error. With --validated, cases leave out valid commands
 * that validation layers report.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/torture.h"

static const char *const texts[] = {
#define X(name, text) [TORTURE_##name] = (text),
	TORTURE_FEATURES(X)
#undef X
};

static atomic_bool is_used[TORTURE_N_FEATURES]; /* by this case */
static unsigned int n_cases_with[TORTURE_N_FEATURES];

void torture_expect(VkResult result, const char *what)
{
	if (result == VK_SUCCESS)
		return;
	fprintf(stderr, "torture-client: %s returned %d.\n", what, result);
	exit(1);
}

void torture_count(enum torture_feature feature)
{
	atomic_store_explicit(&is_used[feature], true, memory_order_relaxed);
}

uint64_t torture_draw(struct torture_random *random)
{
	uint64_t word = random->state += 0x9e3779b97f4a7c15u;

	word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
	word = (word ^ word >> 27) * 0x94d049bb133111ebu;
	return word ^ word >> 31;
}

uint32_t torture_below(struct torture_random *random, uint32_t n)
{
	return (uint32_t)((torture_draw(random) >> 32) * n >> 32);
}

bool torture_chance(struct torture_random *random, uint32_t one_of)
{
	return torture_below(random, one_of) == 0;
}

static void note_used(void)
{
	for (unsigned int i = 0; i < TORTURE_N_FEATURES; i++)
		n_cases_with[i] += atomic_exchange(&is_used[i], false);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static bool has_option(int argc, char **argv, const char *name)
{
	for (int i = 3; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	uint64_t seed, n_cases;
	bool has_times;

	if (argc < 3) {
		fprintf(stderr, "usage: torture-client SEED CASES [--count] [--core] [--times] "
				"[--validated]\n");
		return 2;
	}
	seed = strtoull(argv[1], NULL, 10);
	n_cases = strtoull(argv[2], NULL, 10);
	has_times = has_option(argc, argv, "--times");
	torture.is_validated = has_option(argc, argv, "--validated");
	torture_device_init(has_option(argc, argv, "--core"));
	for (uint64_t i = 0; i < n_cases; i++) {
		double begin_us = now_us();
		uint64_t hash = torture_run_case(seed + i);

		printf("%llu %016llx\n", (unsigned long long)(seed + i), (unsigned long long)hash);
		fflush(stdout);
		if (has_times)
			fprintf(stderr, "%.0f\n", now_us() - begin_us);
		note_used();
	}
	for (unsigned int i = 0; has_option(argc, argv, "--count") && i < TORTURE_N_FEATURES; i++)
		fprintf(stderr, "%6u %s\n", n_cases_with[i], texts[i]);
	torture_device_deinit();
	return 0;
}
