/* SPDX-License-Identifier: MIT */
/*
 * The checkpoint: one file in the cache folder
 *
 *	head      magic, checksum of the rest, time, lengths of the sections
 *	times     learned times of plans (place/saved.c)
 *	memory    which plans were in which device's memory (memory/residency-saved.c)
 *
 * Each section is its room's, and checks itself. A file of another version, or one that is damaged,
 * too old or not the broker's own, is not used, with a line in the log: it would only have improved
 * estimates. The checksum detects damage, not forgery; a forged file can do no more.
 *
 * The file is written when the broker ends or is restarted, and every few minutes, so that a crash
 * loses little. While the broker goes on, only the newest plans are described, because clients wait
 * for that, and the setup thread writes the file.
 */
#include "daemon/checkpoint.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "calibrate/calibrate-cache.h"
#include "daemon/options.h"
#include "daemon/parts.h"
#include "daemon/steward.h"
#include "dispatch/dispatch.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "memory/residency.h"
#include "place/placer.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/log.h"
#include "util/state-file.h"

static const char file_name[] = "checkpoint";
static const char magic[8] = {'R', 'B', 'K', 'C', 'H', 'K', '0', '1'};

enum {
	MAX_BYTES = 8 << 20,
	FEW_PLANS = 256, /* in one turn of the reactor, while clients are served */
};

/* After this time, clients have other plans. */
static const uint64_t max_age_s = 30 * 86400;
/* The working set is of interest only just after the end of a broker. */
static const uint64_t max_memory_age_s = 600;
static const uint64_t interval_ns = 300000000000;
static const uint64_t fresh_s = 60;

struct head {
	char magic[8];
	uint64_t checksum; /* of everything behind it */
	uint64_t written_s;
	uint64_t times_bytes, memory_bytes;
};

struct checkpoint {
	struct broker *broker;
	const char *folder;
	uint64_t keys[RBK_MAX_DEVICES];
	struct loop_timer *timer;
	struct offload_job job;
	bool is_writing;
	char *bytes; /* while is_writing */
	size_t n_bytes;
	int result;
	bool has_failed; /* and the log says so */
};

/* FNV-1a */
static uint64_t hash(const void *bytes, size_t n)
{
	const unsigned char *at = bytes;
	uint64_t state = 14695981039346656037u;

	for (size_t i = 0; i < n; i++)
		state = (state ^ at[i]) * 1099511628211u;
	return state;
}

static uint64_t now_s(void)
{
	return (uint64_t)time(NULL);
}

static uint64_t checksum_of(const char *bytes, size_t n)
{
	const size_t at = offsetof(struct head, written_s);

	return hash(bytes + at, n - at);
}

/* --- Reading --- */

static const char *use_sections(struct checkpoint *checkpoint, const struct head *head,
				uint64_t age_s, int *ret_error)
{
	struct broker *broker = checkpoint->broker;
	const char *times = (const char *)(head + 1);
	int r;

	r = placer_restore(dispatch_placer(broker->dispatch), checkpoint->keys, now_s(), times,
			   head->times_bytes);
	if (r < 0)
		*ret_error = error_fold(r);
	if (r)
		return "its times are impossible";
	if (age_s > max_memory_age_s)
		return NULL;
	r = residency_restore(broker->residency, checkpoint->keys, times + head->times_bytes,
			      head->memory_bytes);
	if (r < 0)
		*ret_error = error_fold(r);
	return r ? "its list of plans in memory is impossible" : NULL;
}

/* Return: NULL if the file was used; otherwise a phrase that says why not. */
static const char *use(struct checkpoint *checkpoint, const char *bytes, size_t n, int *ret_error)
{
	struct head head;
	uint64_t age_s;

	if (n < sizeof(head) || memcmp(bytes, magic, sizeof(magic)) != 0)
		return "it has another format";
	memcpy(&head, bytes, sizeof(head));
	if (head.checksum != checksum_of(bytes, n) || head.times_bytes > n - sizeof(head) ||
	    head.memory_bytes != n - sizeof(head) - head.times_bytes || head.times_bytes % 8 != 0)
		return "it is damaged or truncated";
	age_s = now_s() - head.written_s;
	if (head.written_s > now_s() || age_s > max_age_s)
		return "it is too old, or from the future";
	return use_sections(checkpoint, (const struct head *)bytes, age_s, ret_error);
}

static int restore(struct checkpoint *checkpoint)
{
	_cleanup_(freep) char *bytes = NULL;
	const char *why = NULL;
	int error = 0, r;
	size_t n;

	r = state_file_read(checkpoint->folder, file_name, MAX_BYTES, &bytes, &n, &why);
	if (r == STATE_FILE_E_ABSENT)
		return 0;
	if (r < 0)
		return error_fold(r);
	if (r == 0)
		why = use(checkpoint, bytes, n, &error);
	if (why)
		log_warning(LOG_CHECKPOINT,
			    "%s/%s is not used: %s; times are learned anew, as at a first start",
			    checkpoint->folder, file_name, why);
	return error;
}

bool checkpoint_is_fresh(const struct options *options)
{
	const char *folder = options->vulkan.cache_dir;
	struct stat status;
	char path[PATH_MAX];

	return folder &&
	       (size_t)snprintf(path, sizeof(path), "%s/%s", folder, file_name) < sizeof(path) &&
	       stat(path, &status) == 0 && now_s() - (uint64_t)status.st_mtime < fresh_s;
}

/* --- Writing --- */

/* Describe the present state, with at most @max plans. Return: false without memory. */
static bool describe(struct checkpoint *checkpoint, uint32_t max, char **ret, size_t *ret_n)
{
	struct broker *broker = checkpoint->broker;
	struct head head = {.written_s = now_s()};
	FILE *stream = open_memstream(ret, ret_n);
	bool is_good;

	if (!stream)
		return false;
	memcpy(head.magic, magic, sizeof(magic));
	fwrite(&head, sizeof(head), 1, stream);
	placer_save(dispatch_placer(broker->dispatch), checkpoint->keys, head.written_s, max,
		    stream);
	head.times_bytes = (uint64_t)ftell(stream) - sizeof(head);
	residency_save(broker->residency, checkpoint->keys, stream);
	head.memory_bytes = (uint64_t)ftell(stream) - sizeof(head) - head.times_bytes;
	is_good = !ferror(stream);
	if (fclose(stream) || !is_good) {
		free(*ret);
		*ret = NULL;
		return false;
	}
	memcpy(*ret, &head, sizeof(head));
	head.checksum = checksum_of(*ret, *ret_n);
	memcpy(*ret, &head, sizeof(head));
	return true;
}

static void note_result(struct checkpoint *checkpoint, int r)
{
	if (r && !checkpoint->has_failed)
		log_warning(LOG_CHECKPOINT,
			    "cannot write %s/%s: %s; the next broker learns times anew",
			    checkpoint->folder, file_name, strerror(-r));
	checkpoint->has_failed = r != 0;
}

static void write_run(struct offload_job *job)
{
	struct checkpoint *checkpoint = container_of(job, struct checkpoint, job);

	checkpoint->result = state_file_write(checkpoint->folder, file_name, checkpoint->bytes,
					      checkpoint->n_bytes);
}

static void write_done(struct offload_job *job)
{
	struct checkpoint *checkpoint = container_of(job, struct checkpoint, job);

	checkpoint->is_writing = false;
	free(checkpoint->bytes);
	checkpoint->bytes = NULL;
	if (job->has_begun)
		note_result(checkpoint, checkpoint->result);
}

static void on_timer(void *data)
{
	struct checkpoint *checkpoint = data;

	loop_timer_arm(checkpoint->timer, interval_ns);
	if (checkpoint->is_writing ||
	    !describe(checkpoint, FEW_PLANS, &checkpoint->bytes, &checkpoint->n_bytes))
		return;
	checkpoint->is_writing = true;
	checkpoint->job = (struct offload_job){
		.run = write_run,
		.done = write_done,
		.cause = OFFLOAD_FILE,
	};
	offload_submit(checkpoint->broker->offload, &checkpoint->job);
}

/* The steward's. @context: the checkpoint. */
static void write_now(void *context)
{
	struct checkpoint *checkpoint = context;
	_cleanup_(freep) char *bytes = NULL;
	uint32_t max = PLACER_SAVE_ALL;
	bool is_good;
	size_t n;

	/* A larger file would not be read. */
	while ((is_good = describe(checkpoint, max, &bytes, &n)) && n > MAX_BYTES && max > 0) {
		free(bytes);
		bytes = NULL;
		max /= 2;
	}
	note_result(checkpoint,
		    is_good ? state_file_write(checkpoint->folder, file_name, bytes, n) : -ENOMEM);
}

void checkpoint_write(struct checkpoint *checkpoint)
{
	if (checkpoint)
		steward_do(checkpoint->broker->steward, write_now, checkpoint);
}

/* --- Creation and end --- */

/* Devices keep their keys if the version of the broker changes, but not if the driver does. */
static void set_keys(struct checkpoint *checkpoint)
{
	const struct broker *broker = checkpoint->broker;
	char key[CALIBRATE_KEY_BYTES];

	for (uint32_t i = 0; i < broker->n_executors; i++) {
		calibrate_cache_key(&broker->executors[i]->info, "", key);
		checkpoint->keys[i] = hash(key, strlen(key));
	}
}

int checkpoint_new(struct broker *broker, struct checkpoint **ret)
{
	_cleanup_(checkpoint_freep) struct checkpoint *checkpoint = NULL;
	const char *folder = broker->options.vulkan.cache_dir;
	int r;

	if (!folder || !folder[0])
		return 0;
	checkpoint = calloc(1, sizeof(*checkpoint));
	if (!checkpoint)
		return error_origin(-ENOMEM);
	checkpoint->broker = broker;
	checkpoint->folder = folder;
	set_keys(checkpoint);
	r = restore(checkpoint);
	if (r == 0)
		r = loop_timer_new(broker->loop, on_timer, checkpoint, &checkpoint->timer);
	if (r)
		return error_fold(r);
	loop_timer_arm(checkpoint->timer, interval_ns);
	*ret = steal_ptr(checkpoint);
	return 0;
}

struct checkpoint *checkpoint_free(struct checkpoint *checkpoint)
{
	if (!checkpoint)
		return NULL;
	loop_timer_free(checkpoint->timer);
	free(checkpoint->bytes);
	free(checkpoint);
	return NULL;
}
