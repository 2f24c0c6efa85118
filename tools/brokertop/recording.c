/* SPDX-License-Identifier: MIT */
/*
 * Recordings: writing and reading pages
 *
 * Most of a page is empty and becomes a hole in the file. Pages are copied when read, so that
 * truncating the file does no harm, and they are validated like a broker's page.
 */
#include "recording.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4096 };
static const uint64_t max_page_bytes = 1ull << 28;

/* --- Writing --- */

static int write_page(FILE *file, const struct rbk_stats_view *view)
{
	static const char zeros[BLOCK_BYTES];
	const char *page = (const char *)view->page;

	for (uint64_t at = 0; at < view->bytes; at += BLOCK_BYTES) {
		size_t n =
			view->bytes - at < BLOCK_BYTES ? (size_t)(view->bytes - at) : BLOCK_BYTES;
		/* Write the last block even if empty, so that the file has its full length. */
		const bool is_last = at + n == view->bytes;

		if (!is_last && memcmp(page + at, zeros, n) == 0) {
			if (fseeko(file, (off_t)n, SEEK_CUR))
				return -errno;
		} else if (fwrite(page + at, 1, n, file) != n) {
			return -errno;
		}
	}
	return 0;
}

int recording_write(FILE *file, const struct pages *pages)
{
	int r = pages->root.page ? write_page(file, &pages->root) : 0;

	for (unsigned int i = 0; i < pages->n_tenants && r == 0; i++)
		r = write_page(file, &pages->tenants[i].view);
	if (r == 0 && fflush(file))
		r = -errno;
	return r;
}

/* --- Reading --- */

/*
 * Read exactly @bytes.
 * Return: 0; RECORDING_E_INVALID: the file ends earlier; -errno.
 */
static int read_at(int fd, uint64_t at, void *to, size_t bytes)
{
	while (bytes > 0) {
		ssize_t n = pread(fd, to, bytes, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : RECORDING_E_INVALID;
		to = (char *)to + n;
		at += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

/*
 * Read the header of the page at @at and the number of its tenant.
 * Return: 0, RECORDING_E_* or -errno.
 */
static int read_head(int fd, uint64_t at, uint64_t file_bytes, struct rbk_stats_header *ret,
		     uint32_t *ret_tenant)
{
	const struct rbk_stats_section *section = &ret->sections[RBK_STATS_SECTION_TENANTS];
	struct {
		uint32_t sequence, number; /* as in struct rbk_stats_tenant */
	} head = {.number = 0};
	int r;

	if (at >= file_bytes)
		return RECORDING_E_END;
	r = read_at(fd, at, ret, sizeof(*ret));
	if (r)
		return r;
	if (ret->magic != RBK_STATS_MAGIC || ret->page_bytes < sizeof(*ret) ||
	    ret->page_bytes > max_page_bytes || ret->page_bytes > file_bytes - at)
		return RECORDING_E_INVALID;
	if (ret->kind != RBK_STATS_ROOT && section->offset &&
	    section->offset <= ret->page_bytes - sizeof(head))
		r = read_at(fd, at + section->offset, &head, sizeof(head));
	*ret_tenant = head.number;
	return r;
}

static bool is_among(const uint32_t *numbers, unsigned int n, uint32_t number)
{
	for (unsigned int i = 0; i < n; i++)
		if (numbers[i] == number)
			return true;
	return false;
}

int recording_find(int fd, uint64_t at, struct recording_moment *ret)
{
	struct recording_moment moment = {.offset = at, .end = at};
	struct rbk_stats_header header;
	uint32_t *tenants = NULL, *grown, tenant;
	unsigned int n_tenants = 0, room = 0;
	struct stat about;
	int r;

	if (fstat(fd, &about))
		return -errno;
	for (;;) {
		const bool has_some = moment.end > at;

		r = read_head(fd, moment.end, (uint64_t)about.st_size, &header, &tenant);
		/* The page belongs to the next moment. */
		if (r == 0 && has_some &&
		    (header.kind == RBK_STATS_ROOT || is_among(tenants, n_tenants, tenant)))
			break;
		if (r)
			break;
		if (!has_some)
			moment.at_ns = header.updated_at_ns;
		moment.end += header.page_bytes;
		if (header.kind == RBK_STATS_ROOT)
			continue;
		if (n_tenants == room) {
			room = room ? 2 * room : 16;
			grown = realloc(tenants, room * sizeof(*tenants));
			if (!grown) {
				r = -ENOMEM;
				break;
			}
			tenants = grown;
		}
		tenants[n_tenants++] = tenant;
	}
	free(tenants);
	if (r == RECORDING_E_END && moment.end > at)
		r = 0;
	if (r == 0)
		*ret = moment;
	return r;
}

/*
 * Read a page's data, skipping holes, which are most of a page.
 * Return: as read_at().
 */
static int read_data(int fd, uint64_t at, char *page, uint64_t bytes)
{
	const uint64_t end = at + bytes;
	uint64_t from = at;

	while (from < end) {
		off_t data = lseek(fd, (off_t)from, SEEK_DATA), hole;
		uint64_t to = end;
		int r;

		if (data < 0 && errno == ENXIO)
			return 0;
		/* The file system does not report holes. */
		hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
		if (data > 0 && (uint64_t)data > from)
			from = (uint64_t)data;
		if (from >= end)
			return 0;
		if (hole > 0 && (uint64_t)hole > from && (uint64_t)hole < end)
			to = (uint64_t)hole;
		r = read_at(fd, from, page + (from - at), (size_t)(to - from));
		if (r)
			return r;
		from = to;
	}
	return 0;
}

/* Return: 0 with the page mapped, RECORDING_E_INVALID or -errno. */
static int read_page(int fd, uint64_t at, uint64_t bytes, struct rbk_stats_view *ret)
{
	char *page = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	int r;

	if (page == MAP_FAILED)
		return -errno;
	r = read_data(fd, at, page, bytes);
	if (r == 0 && !rbk_stats_view(ret, page, bytes))
		r = RECORDING_E_INVALID;
	if (r)
		munmap(page, (size_t)bytes);
	return r;
}

static int add_tenant(struct pages *pages, struct rbk_stats_view *view)
{
	struct tenant_page *grown, *page;
	struct tenant_head tenant;

	grown = realloc(pages->tenants, (pages->n_tenants + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	pages->tenants = grown;
	page = &grown[pages->n_tenants++];
	page_copy_tenant_head(view, 0, &tenant);
	page->view = *view;
	page->number = tenant.number;
	memcpy(page->name, tenant.name, sizeof(page->name));
	return 0;
}

int recording_read(int fd, const struct recording_moment *moment, struct pages *ret)
{
	struct pages pages = {.tenants = NULL};
	struct rbk_stats_header header;
	struct rbk_stats_view view;
	uint32_t tenant;
	struct stat about;
	int r = 0;

	if (fstat(fd, &about))
		return -errno;
	if ((uint64_t)about.st_size < moment->end)
		return RECORDING_E_INVALID;
	for (uint64_t at = moment->offset; at < moment->end && r == 0; at += header.page_bytes) {
		r = read_head(fd, at, moment->end, &header, &tenant);
		if (r == 0)
			r = read_page(fd, at, header.page_bytes, &view);
		if (r)
			break;
		if (view.page->kind == RBK_STATS_ROOT && !pages.root.page) {
			pages.root = view;
			continue;
		}
		/* The file has changed since the moment was found. */
		r = view.page->kind == RBK_STATS_ROOT ? RECORDING_E_INVALID
						      : add_tenant(&pages, &view);
		if (r)
			rbk_stats_unmap(&view);
	}
	if (r == 0 && !pages.root.page && pages.n_tenants == 0)
		r = RECORDING_E_INVALID;
	if (r)
		pages_unmap(&pages);
	else
		*ret = pages;
	return r;
}
