/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages: memory that the broker writes and others read
 *
 * A page is mapped writable here and then sealed with F_SEAL_FUTURE_WRITE. From then on no process,
 * including the broker, can map it writable again, write to its descriptor or punch holes into it.
 * Memory that the broker writes is allocated in advance: a store into a page for which the system
 * has no memory would raise SIGBUS. A tenant's page is allocated as a whole, because reading an
 * unallocated part allocates it, on the reader's account. The root page has room for more than most
 * machines need, and gets memory in pieces when records there are used.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/number.h"
#include "shm/stats-layout.h"
#include "stats/stats-private.h"
#include "util/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
	/* Alignment of sections: two cache lines, which processors fetch together. */
	SECTION_ALIGN = 128,
	/* Unit in which a page gets its memory on demand. */
	PIECE_BYTES = 65536,
};

static void layout_add(struct stats_layout *layout, enum rbk_stats_section_id id, uint64_t stride,
		       uint32_t count)
{
	layout->bytes = round_up(layout->bytes, SECTION_ALIGN);
	layout->sections[id] = (struct rbk_stats_section){
		.offset = (uint32_t)layout->bytes,
		.stride = (uint32_t)stride,
		.count = count,
	};
	layout->bytes += stride * count;
}

static void layout_end(struct stats_layout *layout)
{
	layout->bytes = round_up(layout->bytes, (uint64_t)sysconf(_SC_PAGESIZE));
}

void stats_layout_tenant(const struct stats *stats, struct stats_layout *ret)
{
	*ret = (struct stats_layout){
		.kind = RBK_STATS_TENANT,
		.bytes = sizeof(struct rbk_stats_header),
	};
	layout_add(ret, RBK_STATS_SECTION_TENANTS,
		   sizeof(struct rbk_stats_tenant) +
			   RBK_STATS_RESETS * sizeof(struct rbk_stats_reset),
		   1);
	layout_add(ret, RBK_STATS_SECTION_DEVICES, sizeof(struct rbk_stats_device),
		   stats->n_devices);
	layout_add(ret, RBK_STATS_SECTION_DECISIONS, sizeof(struct rbk_stats_decision),
		   STATS_LOG_RECORDS);
	layout_add(ret, RBK_STATS_SECTION_SEGMENTS, sizeof(struct rbk_stats_segment),
		   STATS_SEGMENT_RECORDS);
	layout_add(ret, RBK_STATS_SECTION_SLICES, sizeof(struct rbk_stats_slice),
		   STATS_SLICE_RECORDS);
	layout_add(ret, RBK_STATS_SECTION_PLANS, stats->plan_stride, STATS_MAX_PLANS);
	layout_add(ret, RBK_STATS_SECTION_DELAYS, sizeof(struct rbk_stats_delay), 1);
	layout_add(ret, RBK_STATS_SECTION_SESSIONS, sizeof(struct rbk_stats_session),
		   STATS_OWN_SESSIONS);
	layout_add(ret, RBK_STATS_SECTION_LEASES, sizeof(struct rbk_stats_lease), STATS_OWN_LEASES);
	layout_add(ret, RBK_STATS_SECTION_REFUSED, sizeof(struct rbk_stats_refused),
		   STATS_REFUSED_RECORDS);
	layout_end(ret);
	ret->backed_bytes = ret->bytes;
}

void stats_layout_root(const struct stats *stats, struct stats_layout *ret)
{
	*ret = (struct stats_layout){
		.kind = RBK_STATS_ROOT,
		.bytes = sizeof(struct rbk_stats_header),
	};
	layout_add(ret, RBK_STATS_SECTION_BROKER, sizeof(struct rbk_stats_broker), 1);
	layout_add(ret, RBK_STATS_SECTION_DEVICES, sizeof(struct rbk_stats_device),
		   stats->n_devices);
	layout_add(ret, RBK_STATS_SECTION_CONTENTION, sizeof(struct rbk_stats_contention), 1);
	layout_add(ret, RBK_STATS_SECTION_UPKEEP, sizeof(struct rbk_stats_upkeep), 1);
	layout_add(ret, RBK_STATS_SECTION_RELOAD, sizeof(struct rbk_stats_reload), 1);
	layout_add(ret, RBK_STATS_SECTION_WAITING, sizeof(struct rbk_stats_waiting), 1);
	layout_add(ret, RBK_STATS_SECTION_THREADS, sizeof(struct rbk_stats_thread),
		   STATS_MAX_THREADS);
	/* Few machines use all records of the sections below. */
	ret->backed_bytes = ret->bytes;
	layout_add(ret, RBK_STATS_SECTION_TENANTS, sizeof(struct rbk_stats_tenant),
		   STATS_MAX_TENANTS);
	layout_add(ret, RBK_STATS_SECTION_DELAYS, sizeof(struct rbk_stats_delay),
		   STATS_MAX_TENANTS);
	layout_add(ret, RBK_STATS_SECTION_SESSIONS, sizeof(struct rbk_stats_session),
		   STATS_MAX_SESSIONS);
	layout_add(ret, RBK_STATS_SECTION_LEASES, sizeof(struct rbk_stats_lease), STATS_MAX_LEASES);
	layout_end(ret);
}

uint64_t stats_tenant_page_bytes(const struct stats *stats)
{
	struct stats_layout layout;

	stats_layout_tenant(stats, &layout);
	return layout.bytes;
}

uint64_t stats_root_page_bytes(const struct stats *stats)
{
	struct stats_layout layout;

	stats_layout_root(stats, &layout);
	return layout.bytes;
}

static void header_init(const struct stats *stats, const struct stats_layout *layout,
			uint64_t now_ns, struct rbk_stats_header *header)
{
	*header = (struct rbk_stats_header){
		.magic = RBK_STATS_MAGIC,
		.abi_major = RBK_STATS_ABI_MAJOR,
		.abi_minor = RBK_STATS_ABI_MINOR,
		.kind = layout->kind,
		.n_devices = stats->n_devices,
		.page_bytes = layout->bytes,
		.pid = (uint32_t)getpid(),
		.n_sections = RBK_STATS_SECTION_COUNT,
		.started_at_ns = stats->started_ns,
		.period_ns = stats->period_ns,
		.n_updates = 1,
		.updated_at_ns = now_ns,
		.monotonic_offset_ns = stats->monotonic_offset_ns,
		.realtime_offset_ns = stats->realtime_offset_ns,
		.n_resets = stats->n_resets,
		.reset_at_ns = stats->n_resets ? stats->reset_ns : stats->started_ns,
	};
	memcpy(header->sections, layout->sections, sizeof(layout->sections));
}

int stats_page_new(const struct stats_layout *layout, struct stats_page *ret)
{
	_cleanup_(close_fdp) int fd =
		memfd_create("ringbroker-stats", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *map;
	int r;

	assert(layout->bytes <= (uint64_t)PIECE_BYTES * 64 * STATS_BACKED_WORDS);
	if (fd < 0)
		return error_origin(-errno);
	if (ftruncate(fd, (off_t)layout->bytes) < 0 ||
	    fallocate(fd, 0, 0, (off_t)layout->backed_bytes) < 0)
		return error_origin(-errno);
	map = mmap(NULL, layout->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return error_origin(-errno);
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
		r = error_origin(-errno);
		munmap(map, layout->bytes);
		return r;
	}
	*ret = (struct stats_page){.header = map, .bytes = layout->bytes, .fd = steal_fd(&fd)};
	for (uint64_t i = 0; i < layout->backed_bytes / PIECE_BYTES; i++)
		ret->backed[i / 64] |= 1ull << i % 64;
	return 0;
}

void stats_page_open(const struct stats *stats, const struct stats_layout *layout, uint64_t now_ns,
		     const struct stats_page *page)
{
	header_init(stats, layout, now_ns, page->header);
}

void stats_page_close(const struct stats_page *page, uint64_t now_ns)
{
	struct rbk_stats_header *header = page->header;

	if (!header)
		return;
	stats_store(&header->updated_at_ns, now_ns);
	stats_add(&header->n_updates, 1);
	/* A thread that sees the flag sees all earlier counts. */
	__atomic_store_n(&header->flags, RBK_STATS_CLOSED, __ATOMIC_RELEASE);
}

int stats_tenant_page_new(const struct stats *stats, struct stats_page *ret)
{
	struct stats_layout layout;

	stats_layout_tenant(stats, &layout);
	return stats_page_new(&layout, ret);
}

void stats_page_free(struct stats_page *page)
{
	if (!page->header)
		return;
	munmap(page->header, page->bytes);
	page->header = NULL;
	page->fd = close_fd(page->fd);
}

/*
 * Allocate a piece. fallocate() is avoided because it takes a lock that writers to the file hold. A
 * reader has a descriptor, and before Linux 6.16 the kernel checks the seal of a write only under
 * that lock.
 */
static bool back_piece(const struct stats_page *page, uint64_t offset, uint64_t bytes)
{
	void *piece = (char *)page->header + offset;
	int r;

	do
		r = madvise(piece, bytes, MADV_POPULATE_WRITE);
	while (r < 0 && (errno == EINTR || errno == EAGAIN));
	/* Linux before 5.14 supports only this. */
	if (r < 0 && errno == EINVAL)
		r = fallocate(page->fd, 0, (off_t)offset, (off_t)bytes);
	return r == 0;
}

bool stats_page_back(struct stats_page *page, unsigned int section, uint32_t index)
{
	const struct rbk_stats_section *at = &page->header->sections[section];
	uint64_t begin = at->offset + (uint64_t)at->stride * index, end = begin + at->stride;

	for (uint64_t i = begin / PIECE_BYTES; i <= (end - 1) / PIECE_BYTES; i++) {
		uint64_t bytes = page->header->page_bytes - i * PIECE_BYTES;

		if (page->backed[i / 64] & 1ull << i % 64)
			continue;
		if (bytes > PIECE_BYTES)
			bytes = PIECE_BYTES;
		if (!back_piece(page, i * PIECE_BYTES, bytes))
			return false;
		page->backed[i / 64] |= 1ull << i % 64;
	}
	return true;
}

void stats_page_touch(const struct stats *stats, const struct stats_page *page)
{
	struct rbk_stats_header *header = page->header;

	if (!header)
		return;
	__atomic_store_n(&header->monotonic_offset_ns, stats->monotonic_offset_ns,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&header->realtime_offset_ns, stats->realtime_offset_ns, __ATOMIC_RELAXED);
	stats_store(&header->updated_at_ns, stats->updated_ns);
	__atomic_store_n(&header->n_updates, header->n_updates + 1, __ATOMIC_RELEASE);
}

void stats_page_reset(const struct stats_page *page, uint64_t now_ns)
{
	if (!page->header)
		return;
	stats_store(&page->header->reset_at_ns, now_ns);
	__atomic_store_n(&page->header->n_resets, page->header->n_resets + 1, __ATOMIC_RELEASE);
}
