/* SPDX-License-Identifier: MIT */
/*
 * Recorder: pages as differences
 *
 * Most of a page is empty, and most of the rest does not change from one second to the next. So a
 * page is combined by exclusive or with an earlier copy of it, its base, and the result, which is
 * mostly zeros, is stored as runs: the number of zeros, the number of other bytes, and these bytes.
 * The numbers are stored in 7 bits per byte, the low bits first; the high bit says that more
 * follow.
 *
 * A reader needs a page and its base only, so that it can begin at any moment. A page becomes a new
 * base after MAX_MOMENTS.
 */
#include "recorder.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "recording.h"

enum {
	MAX_MOMENTS = 60,
	BLOCK_BYTES = 4096,
	NUMBER_BYTES = 10, /* the longest number */
	/* Zeros that are stored as other bytes, since a run of them costs as much. */
	SHORT_RUN = 3,
};

void recorder_init(struct recorder *recorder, FILE *file)
{
	*recorder = (struct recorder){.file = file};
}

static void base_deinit(struct recorder_base *base)
{
	if (base->page)
		munmap(base->page, (size_t)base->bytes);
}

void recorder_deinit(struct recorder *recorder)
{
	for (unsigned int i = 0; i < recorder->n_bases; i++)
		base_deinit(&recorder->bases[i]);
	free(recorder->bases);
	free(recorder->data);
	*recorder = (struct recorder){.file = NULL};
}

/* --- Runs --- */

/* Make room for @n more bytes. Return: 0, or -ENOMEM. */
static int grow(struct recorder *recorder, size_t n)
{
	size_t n_room = recorder->n_room ? recorder->n_room : BLOCK_BYTES;
	char *grown;

	while (n_room - recorder->n_data < n)
		n_room *= 2;
	if (n_room == recorder->n_room)
		return 0;
	grown = realloc(recorder->data, n_room);
	if (!grown)
		return -ENOMEM;
	recorder->data = grown;
	recorder->n_room = n_room;
	return 0;
}

static void add_number(struct recorder *recorder, uint64_t number)
{
	for (; number >= 0x80; number >>= 7)
		recorder->data[recorder->n_data++] = (char)(number | 0x80);
	recorder->data[recorder->n_data++] = (char)number;
}

/* Add a run of @n_zeros zeros and @n other bytes. Return: 0, or -ENOMEM. */
static int add_run(struct recorder *recorder, uint64_t n_zeros, const char *bytes, size_t n)
{
	if (grow(recorder, n + (size_t)(2 * NUMBER_BYTES)))
		return -ENOMEM;
	add_number(recorder, n_zeros);
	add_number(recorder, n);
	memcpy(recorder->data + recorder->n_data, bytes, n);
	recorder->n_data += n;
	return 0;
}

static size_t count_zeros(const char *bytes, size_t n)
{
	size_t i = 0;

	while (i < n && bytes[i] == 0)
		i++;
	return i;
}

/* Return the number of bytes before the next zeros that are worth a run. */
static size_t count_others(const char *bytes, size_t n)
{
	size_t i = 0;

	while (i < n) {
		size_t n_zeros = count_zeros(bytes + i, n - i);

		if (n_zeros > SHORT_RUN || i + n_zeros == n)
			return i;
		i += n_zeros + (i + n_zeros < n);
	}
	return i;
}

/*
 * Add a block's runs. *@n_zeros is the number of zeros before the block, and afterwards of those at
 * its end.
 * Return: 0, or -ENOMEM.
 */
static int add_block(struct recorder *recorder, const char *block, size_t n, uint64_t *n_zeros)
{
	size_t at = 0;

	while (at < n) {
		size_t n_others;

		*n_zeros += count_zeros(block + at, n - at);
		at += count_zeros(block + at, n - at);
		if (at == n)
			return 0;
		n_others = count_others(block + at, n - at);
		if (add_run(recorder, *n_zeros, block + at, n_others))
			return -ENOMEM;
		*n_zeros = 0;
		at += n_others;
	}
	return 0;
}

static bool is_zero(const char *block, size_t n)
{
	static const char zeros[BLOCK_BYTES];

	return memcmp(block, zeros, n) == 0;
}

/*
 * Compute the difference of a page from its base, or from zeros if @is_new; then the page becomes
 * the base. The broker may change the page meanwhile, so each byte is read once.
 * Return: 0, or -ENOMEM.
 */
static int differ(struct recorder *recorder, const struct rbk_stats_view *view,
		  struct recorder_base *base, bool is_new)
{
	const char *page = (const char *)view->page;
	uint64_t n_zeros = 0;

	recorder->n_data = 0;
	for (uint64_t at = 0; at < view->bytes; at += BLOCK_BYTES) {
		const size_t n =
			view->bytes - at < BLOCK_BYTES ? (size_t)(view->bytes - at) : BLOCK_BYTES;
		char *kept = base->page + at, block[BLOCK_BYTES];

		memcpy(block, page + at, n);
		if (is_new) {
			/* Untouched blocks of the base need no memory. */
			if (!is_zero(block, n) || !is_zero(kept, n))
				memcpy(kept, block, n);
		} else {
			for (size_t i = 0; i < n; i++)
				block[i] ^= kept[i];
		}
		if (is_zero(block, n))
			n_zeros += n;
		else if (add_block(recorder, block, n, &n_zeros))
			return -ENOMEM;
	}
	return 0;
}

/* --- Bases --- */

/*
 * Find the base of a tenant's page, or make one.
 * Return: NULL: there is no memory.
 */
static struct recorder_base *base_of(struct recorder *recorder, uint32_t tenant, uint64_t bytes)
{
	struct recorder_base *base = NULL, *grown;

	for (unsigned int i = 0; i < recorder->n_bases && !base; i++)
		if (recorder->bases[i].tenant == tenant)
			base = &recorder->bases[i];
	if (!base) {
		grown = realloc(recorder->bases, (recorder->n_bases + 1) * sizeof(*grown));
		if (!grown)
			return NULL;
		recorder->bases = grown;
		base = &grown[recorder->n_bases++];
		*base = (struct recorder_base){.tenant = tenant};
	}
	if (base->page && base->bytes == bytes)
		return base;
	base_deinit(base);
	base->page = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base->page == MAP_FAILED)
		base->page = NULL;
	base->bytes = bytes;
	base->n_moments = 0;
	return base->page ? base : NULL;
}

/* --- Pages --- */

static int write_page(struct recorder *recorder, const struct rbk_stats_view *view, uint32_t tenant)
{
	struct recorder_base *base = base_of(recorder, tenant, view->bytes);
	const bool is_new = base && base->n_moments % MAX_MOMENTS == 0;
	struct recording_page head = {
		.magic = RECORDING_MAGIC,
		.kind = view->page->kind,
		.tenant = tenant,
		.page_bytes = view->bytes,
		.at_ns = rbk_stats_load(&view->page->updated_at_ns),
		.base = RECORDING_NO_BASE,
	};

	if (!base || differ(recorder, view, base, is_new))
		return -ENOMEM;
	if (is_new)
		base->offset = recorder->offset;
	else
		head.base = base->offset;
	base->n_moments++;
	head.data_bytes = (uint32_t)recorder->n_data;
	if (fwrite(&head, sizeof(head), 1, recorder->file) != 1 ||
	    fwrite(recorder->data, 1, recorder->n_data, recorder->file) != recorder->n_data)
		return -errno;
	recorder->offset += sizeof(head) + recorder->n_data;
	return 0;
}

int recorder_write(struct recorder *recorder, const struct pages *pages)
{
	int r = pages->root.page ? write_page(recorder, &pages->root, 0) : 0;

	for (unsigned int i = 0; i < pages->n_tenants && r == 0; i++)
		r = write_page(recorder, &pages->tenants[i].view, pages->tenants[i].number);
	if (r == 0 && fflush(recorder->file))
		r = -errno;
	return r;
}
