/* SPDX-License-Identifier: MIT */
/*
 * The size of the checkpoint: what is written can be read. The placer, residency and the files are
 * replaced; the placer has plans that take PLAN_BYTES each.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/calibrate-cache.h"
#include "daemon/checkpoint.h"
#include "daemon/parts.h"
#include "dispatch/dispatch.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "memory/residency.h"
#include "place/placer.h"
#include "support/test.h"
#include "util/state-file.h"

enum { PLAN_BYTES = 24 << 10 };

static uint32_t n_plans; /* that the placer knows */
static uint32_t max_seen, n_restored_bytes;
static char *file;
static size_t file_bytes;

struct placer *dispatch_placer(struct dispatch *dispatch)
{
	return NULL;
}

void placer_save(const struct placer *placer, const uint64_t *keys, uint64_t now_s, uint32_t max,
		 FILE *stream)
{
	static const char plan[PLAN_BYTES];

	max_seen = max;
	for (uint32_t i = 0; i < n_plans && i < max; i++)
		fwrite(plan, sizeof(plan), 1, stream);
}

int placer_restore(struct placer *placer, const uint64_t *keys, uint64_t now_s, const void *bytes,
		   size_t n)
{
	n_restored_bytes = (uint32_t)n;
	return 0;
}

void residency_save(const struct residency *residency, const uint64_t *keys, FILE *stream)
{
}

int residency_restore(struct residency *residency, const uint64_t *keys, const void *bytes,
		      size_t n)
{
	return 0;
}

void calibrate_cache_key(const struct executor_info *info, const char *version,
			 char ret[CALIBRATE_KEY_BYTES])
{
}

int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret)
{
	*ret = NULL;
	return 0;
}

void loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns)
{
}

struct loop_timer *loop_timer_free(struct loop_timer *timer)
{
	return NULL;
}

void offload_submit(struct offload *offload, struct offload_job *job)
{
}

int state_file_write(const char *folder, const char *name, const char *bytes, size_t n)
{
	free(file);
	file = malloc(n);
	assert_non_null(file);
	memcpy(file, bytes, n);
	file_bytes = n;
	return 0;
}

int state_file_read(const char *folder, const char *name, size_t max, char **ret, size_t *ret_n,
		    const char **ret_why)
{
	if (!file)
		return STATE_FILE_E_ABSENT;
	/* The next broker takes no file above its limit. */
	assert_true(file_bytes <= max);
	*ret = malloc(file_bytes);
	assert_non_null(*ret);
	memcpy(*ret, file, file_bytes);
	*ret_n = file_bytes;
	return 0;
}

/* Write a checkpoint with @n plans, and read it. Return: the plans that come back. */
static uint32_t survive(uint32_t n)
{
	static struct broker broker = {.options.vulkan.cache_dir = "folder"};
	struct checkpoint *checkpoint = NULL;

	free(file);
	file = NULL;
	n_plans = n;
	n_restored_bytes = 0;
	assert_int_equal(checkpoint_new(&broker, &checkpoint), 0);
	checkpoint_write(checkpoint);
	checkpoint = checkpoint_free(checkpoint);
	assert_non_null(file);
	assert_int_equal(checkpoint_new(&broker, &checkpoint), 0);
	checkpoint_free(checkpoint);
	free(file);
	file = NULL;
	assert_int_equal(n_restored_bytes % PLAN_BYTES, 0);
	return n_restored_bytes / PLAN_BYTES;
}

/* Plans are left out by halves until the rest can be read. */
TEST(test_checkpoint__largest)
{
	const uint32_t fits = (8 << 20) / PLAN_BYTES - 1;

	assert_int_equal(survive(0), 0);
	assert_int_equal(survive(fits), fits);
	assert_int_equal(max_seen, PLACER_SAVE_ALL);
	assert_int_equal(survive(2 * fits), PLACER_SAVE_ALL / 4);
	assert_int_equal(survive(PLACER_SAVE_ALL), PLACER_SAVE_ALL / 4);
}
