/* SPDX-License-Identifier: MIT */
/*
 * Learned times that outlive the broker
 *
 * The histories of plans are written one after the other, with the estimates that have
 * observations, and found again by fingerprint when clients bring their plans to the next broker.
 * That broker may have other devices or other profiles: a device is known by its key, and observed
 * times are kept as ratios to the prior of the profile that they were observed with, which
 * place_plan_derive() converts.
 *
 * The bytes come from a file, and a file may be anything. So all of them are checked before any is
 * used, and stay as they are until a plan takes its history. A fingerprint can be forged. It then
 * leads to a wrong estimate, which learning corrects.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "place/placer-private.h"
#include "util/error.h"

enum {
	MAX_WINDOW = 1000,
};

/* A history is of use for so long after its plan was last there. */
static const uint64_t max_age_s = 30 * 86400;

struct saved_head {
	uint32_t n_devices;
	uint32_t n_histories;
	uint64_t keys[RBK_MAX_DEVICES];
};

/* Followed by n_devices records and n_estimates estimates. */
struct saved_history {
	uint64_t fingerprint;
	uint64_t seen_s; /* since 1970 */
	uint64_t n_done;
	uint32_t n_buckets;
	uint32_t n_estimates;
};

struct saved_record {
	uint64_t n_done, n_failed, n_explored;
	double mean_ns, mean_error;
	uint32_t n_mean, n_errors;
	uint32_t is_wrong;
	uint32_t reserved;
};

struct saved_estimate {
	uint32_t bucket;
	uint32_t device;
	uint32_t n;
	float prior_base_ns, prior_slope_ns, prior_servers;
	float ratio, servers, deviation;
	float first[PLACE_TRUST];
	float felt, felt_before[2];
	uint32_t reserved;
};

/* The bytes, and where the histories are that no plan has taken; in placer->saved. */
struct place_saved {
	uint32_t n;
	uint8_t device_of[RBK_MAX_DEVICES]; /* present device, by saved one; RBK_DEVICE_NONE */
	uint32_t n_devices;
	const char *histories[PLACER_SAVE_ALL];
	char bytes[];
};

static size_t history_bytes(const struct saved_history *history, uint32_t n_devices)
{
	return sizeof(*history) + n_devices * sizeof(struct saved_record) +
	       history->n_estimates * sizeof(struct saved_estimate);
}

/* --- Writing --- */

static void write_estimate(FILE *stream, const struct place_estimate *estimate, uint32_t bucket,
			   uint32_t device)
{
	struct saved_estimate saved = {
		.bucket = bucket,
		.device = device,
		.n = estimate->n,
		.prior_base_ns = estimate->prior_base_ns,
		.prior_slope_ns = estimate->prior_slope_ns,
		.prior_servers = estimate->prior_servers,
		.ratio = estimate->ratio,
		.servers = estimate->servers,
		.deviation = estimate->deviation,
		.felt = estimate->felt,
		.felt_before = {estimate->felt_before[0], estimate->felt_before[1]},
	};

	memcpy(saved.first, estimate->first, sizeof(saved.first));
	fwrite(&saved, sizeof(saved), 1, stream);
}

static void write_history(FILE *stream, const struct place_history *history, uint64_t now_s)
{
	const uint32_t n = history->n_buckets * history->n_devices;
	struct saved_history head = {
		.fingerprint = history->fingerprint,
		.seen_s = now_s,
		.n_done = history->n_done,
		.n_buckets = history->n_buckets,
	};

	for (uint32_t i = 0; i < n; i++)
		head.n_estimates += history->estimates[i].n > 0;
	fwrite(&head, sizeof(head), 1, stream);
	for (uint32_t i = 0; i < history->n_devices; i++) {
		const struct place_record *record = &history->records[i];
		const struct saved_record saved = {
			.n_done = record->n_done,
			.n_failed = record->n_failed,
			.n_explored = record->n_explored,
			.mean_ns = record->mean_ns,
			.mean_error = record->mean_error,
			.n_mean = record->n_mean,
			.n_errors = record->n_errors,
			.is_wrong = record->is_wrong,
		};

		fwrite(&saved, sizeof(saved), 1, stream);
	}
	for (uint32_t i = 0; i < n; i++)
		if (history->estimates[i].n > 0)
			write_estimate(stream, &history->estimates[i], i / history->n_devices,
				       i % history->n_devices);
}

/* Write the histories of @list that are of use, up to @max; NULL: count them. Return: their number.
 */
static uint32_t write_list(FILE *stream, const struct list_node *list, uint64_t now_s, uint32_t max)
{
	uint32_t n = 0;

	/* Newest first: if there are too many, older ones are left out. */
	for (const struct list_node *node = list->prev; node != list && n < max;
	     node = node->prev) {
		const struct place_history *history =
			container_of((struct list_node *)node, struct place_history, link);

		if (!history->fingerprint || !history->n_done)
			continue;
		if (stream)
			write_history(stream, history, now_s);
		n++;
	}
	return n;
}

/*
 * Write the saved histories that no plan has taken, likewise: their clients may still come. They
 * are lost if the devices are not the same any more.
 */
static uint32_t write_untaken(FILE *stream, const struct place_saved *saved,
			      const struct saved_head *head, uint32_t max)
{
	const struct saved_head *old = saved ? (const struct saved_head *)saved->bytes : NULL;
	uint32_t n = 0;

	if (!saved || old->n_devices != head->n_devices ||
	    memcmp(old->keys, head->keys, sizeof(head->keys)) != 0)
		return 0;
	for (uint32_t i = 0; i < saved->n && n < max; i++) {
		const struct saved_history *history = (const void *)saved->histories[i];

		if (!history)
			continue;
		if (stream)
			fwrite(history, history_bytes(history, saved->n_devices), 1, stream);
		n++;
	}
	return n;
}

static uint32_t write_all(const struct placer *placer, const struct saved_head *head,
			  uint64_t now_s, uint32_t max, FILE *stream)
{
	uint32_t n = write_list(stream, &placer->plans, now_s, max);

	n += write_list(stream, &placer->histories, now_s, max - n);
	return n + write_untaken(stream, placer->saved, head, max - n);
}

void placer_save(const struct placer *placer, const uint64_t *keys, uint64_t now_s, uint32_t max,
		 FILE *stream)
{
	struct saved_head head = {.n_devices = placer->n_devices};

	memcpy(head.keys, keys, placer->n_devices * sizeof(*keys));
	head.n_histories = write_all(placer, &head, now_s, max, NULL);
	fwrite(&head, sizeof(head), 1, stream);
	write_all(placer, &head, now_s, max, stream);
}

/* --- Reading --- */

static bool is_within(float value, float low, float high)
{
	return value >= low && value <= high;
}

static bool check_estimate(const struct saved_estimate *estimate, uint32_t n_buckets,
			   uint32_t n_devices)
{
	const float end_ns = estimate->prior_base_ns + estimate->prior_slope_ns;
	bool is_good = estimate->bucket < n_buckets && estimate->device < n_devices &&
		       estimate->n > 0 && estimate->n <= MAX_WINDOW && estimate->reserved == 0;

	is_good &= is_within(estimate->prior_base_ns, PLACE_MIN_NS, PLACE_MAX_NS);
	is_good &= is_within(end_ns, PLACE_MIN_NS, PLACE_MAX_NS);
	is_good &= is_within(estimate->prior_servers, 1e-3f, 1e6f);
	is_good &= is_within(estimate->ratio, 1e-12f, 1e12f);
	is_good &= is_within(estimate->servers, 0, 1e6f);
	is_good &= is_within(estimate->deviation, 0, 1e12f);
	for (uint32_t i = 0; i < PLACE_TRUST; i++)
		is_good &= is_within(estimate->first[i], 0, 1e12f);
	is_good &= is_within(estimate->felt, -1, 1e3f);
	for (uint32_t i = 0; i < 2; i++)
		is_good &= is_within(estimate->felt_before[i], -1, 1e3f);
	return is_good;
}

static bool check_record(const struct saved_record *record, uint64_t n_done)
{
	return record->n_done <= n_done && record->n_failed <= n_done &&
	       record->n_explored <= n_done && record->n_mean <= MAX_WINDOW &&
	       record->n_errors <= MAX_WINDOW && record->is_wrong <= 1 && record->reserved == 0 &&
	       record->mean_ns >= 0 && record->mean_ns <= (double)PLACE_MAX_NS &&
	       record->mean_error >= 0 && record->mean_error <= 1;
}

/* Return the bytes of a history at @bytes if it is right; 0 otherwise. */
static size_t check_history(const char *bytes, size_t n_bytes, uint32_t n_devices)
{
	const struct saved_history *history = (const void *)bytes;
	const struct saved_record *records;
	const struct saved_estimate *estimates;

	if (n_bytes < sizeof(*history) || history->n_buckets == 0 ||
	    history->n_buckets > PLACE_MAX_BUCKETS || history->fingerprint == 0 ||
	    history->n_estimates > history->n_buckets * n_devices || history->n_done > 1ull << 62 ||
	    n_bytes < history_bytes(history, n_devices))
		return 0;
	records = (const void *)(history + 1);
	estimates = (const void *)(records + n_devices);
	for (uint32_t i = 0; i < n_devices; i++)
		if (!check_record(&records[i], history->n_done))
			return 0;
	for (uint32_t i = 0; i < history->n_estimates; i++)
		if (!check_estimate(&estimates[i], history->n_buckets, n_devices))
			return 0;
	return history_bytes(history, n_devices);
}

/* Find the histories in saved->bytes. Return: false if something there is impossible. */
static bool index_histories(struct place_saved *saved, size_t n_bytes, uint64_t now_s)
{
	const struct saved_head *head = (const void *)saved->bytes;
	size_t at = sizeof(*head), n;

	for (uint32_t i = 0; i < head->n_histories; i++) {
		const struct saved_history *history = (const void *)(saved->bytes + at);

		n = check_history(saved->bytes + at, n_bytes - at, head->n_devices);
		if (n == 0)
			return false;
		if (history->seen_s <= now_s && now_s - history->seen_s <= max_age_s)
			saved->histories[saved->n++] = saved->bytes + at;
		at += n;
	}
	return at == n_bytes;
}

int placer_restore(struct placer *placer, const uint64_t *keys, uint64_t now_s, const void *bytes,
		   size_t n_bytes)
{
	const struct saved_head *head = bytes;
	struct place_saved *saved;

	_Static_assert(sizeof(struct saved_head) % 8 == 0 &&
			       sizeof(struct saved_history) % 8 == 0 &&
			       sizeof(struct saved_record) % 8 == 0 &&
			       sizeof(struct saved_estimate) % 8 == 0,
		       "aligned");
	if (n_bytes < sizeof(*head) || head->n_devices == 0 || head->n_devices > RBK_MAX_DEVICES ||
	    head->n_histories > PLACER_SAVE_ALL)
		return PLACER_E_IMPOSSIBLE;
	saved = calloc(1, sizeof(*saved) + n_bytes);
	if (!saved)
		return error_origin(-ENOMEM);
	memcpy(saved->bytes, bytes, n_bytes);
	saved->n_devices = head->n_devices;
	if (!index_histories(saved, n_bytes, now_s)) {
		free(saved);
		return PLACER_E_IMPOSSIBLE;
	}
	for (uint32_t i = 0; i < head->n_devices; i++) {
		saved->device_of[i] = RBK_DEVICE_NONE;
		for (uint32_t k = 0; k < placer->n_devices; k++)
			if (keys[k] == head->keys[i])
				saved->device_of[i] = (uint8_t)k;
	}
	free(placer->saved);
	placer->saved = saved;
	return 0;
}

static void take(const struct place_saved *saved, const struct saved_history *from,
		 struct place_history *to)
{
	const struct saved_record *records = (const void *)(from + 1);
	const struct saved_estimate *estimates = (const void *)(records + saved->n_devices);

	to->n_done = from->n_done;
	for (uint32_t i = 0; i < saved->n_devices; i++) {
		if (saved->device_of[i] == RBK_DEVICE_NONE)
			continue;
		to->records[saved->device_of[i]] = (struct place_record){
			.n_done = records[i].n_done,
			.n_failed = records[i].n_failed,
			.n_explored = records[i].n_explored,
			.n_mean = records[i].n_mean,
			.n_errors = records[i].n_errors,
			.mean_ns = records[i].mean_ns,
			.mean_error = records[i].mean_error,
			.is_wrong = records[i].is_wrong,
		};
	}
	for (uint32_t i = 0; i < from->n_estimates; i++) {
		const struct saved_estimate *estimate = &estimates[i];
		const uint8_t device = saved->device_of[estimate->device];
		struct place_estimate *at;

		if (device == RBK_DEVICE_NONE)
			continue;
		at = &to->estimates[estimate->bucket * to->n_devices + device];
		*at = (struct place_estimate){
			.prior_base_ns = estimate->prior_base_ns,
			.prior_slope_ns = estimate->prior_slope_ns,
			.prior_servers = estimate->prior_servers,
			.ratio = estimate->ratio,
			.servers = estimate->servers,
			.deviation = estimate->deviation,
			.n = estimate->n,
			.seen = from->n_done,
			.began = 0,
			.felt = estimate->felt,
			.felt_before = {estimate->felt_before[0], estimate->felt_before[1]},
		};
		memcpy(at->first, estimate->first, sizeof(at->first));
	}
}

void place_saved_take(struct placer *placer, uint64_t fingerprint, struct place_history *history)
{
	struct place_saved *saved = placer->saved;

	for (uint32_t i = 0; saved && fingerprint && i < saved->n; i++) {
		const struct saved_history *from = (const void *)saved->histories[i];

		if (!from || from->fingerprint != fingerprint ||
		    from->n_buckets != history->n_buckets)
			continue;
		take(saved, from, history);
		saved->histories[i] = NULL;
		return;
	}
}
