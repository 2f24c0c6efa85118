/* SPDX-License-Identifier: MIT */
/*
 * Recordings: reading pages
 *
 * Pages are copied when read, so that truncating the file does no harm, and they are validated like
 * a broker's page. Most of a page in plain form is a hole in the file.
 */
#include "recording.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t max_page_bytes = 1ull << 28;

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

/* A page in the file. */
struct page_head {
	uint32_t kind, tenant;
	uint64_t at_ns, page_bytes;
	uint64_t data, data_bytes; /* place in the file of the page, or of its difference */
	uint64_t base;
	bool is_compact;
};

/* Read the head of a page in plain form. Return: as read_head(). */
static int read_plain_head(int fd, uint64_t at, struct page_head *ret)
{
	struct rbk_stats_header header;
	const struct rbk_stats_section *section = &header.sections[RBK_STATS_SECTION_TENANTS];
	struct {
		uint32_t sequence, number; /* as in struct rbk_stats_tenant */
	} head = {.number = 0};
	int r = read_at(fd, at, &header, sizeof(header));

	if (r)
		return r;
	if (header.page_bytes < sizeof(header))
		return RECORDING_E_INVALID;
	if (header.kind != RBK_STATS_ROOT && section->offset &&
	    section->offset <= header.page_bytes - sizeof(head))
		r = read_at(fd, at + section->offset, &head, sizeof(head));
	*ret = (struct page_head){
		.kind = header.kind,
		.tenant = head.number,
		.at_ns = header.updated_at_ns,
		.page_bytes = header.page_bytes,
		.data = at,
		.data_bytes = header.page_bytes,
	};
	return r;
}

/* Read the head of a page in compact form. Return: as read_head(). */
static int read_compact_head(int fd, uint64_t at, struct page_head *ret)
{
	struct recording_page page;
	int r = read_at(fd, at, &page, sizeof(page));

	if (r)
		return r;
	*ret = (struct page_head){
		.kind = page.kind,
		.tenant = page.tenant,
		.at_ns = page.at_ns,
		.page_bytes = page.page_bytes,
		.data = at + sizeof(page),
		.data_bytes = page.data_bytes,
		.base = page.base,
		.is_compact = true,
	};
	return page.page_bytes < sizeof(struct rbk_stats_header) ? RECORDING_E_INVALID : 0;
}

/*
 * Read the head of the page at @at, which may end outside of the file.
 * Return: 0, RECORDING_E_* or -errno.
 */
static int peek_head(int fd, uint64_t at, uint64_t file_bytes, struct page_head *ret)
{
	uint32_t magic;
	int r;

	if (at >= file_bytes)
		return RECORDING_E_END;
	r = read_at(fd, at, &magic, sizeof(magic));
	if (r)
		return r;
	if (magic == RBK_STATS_MAGIC)
		r = read_plain_head(fd, at, ret);
	else if (magic == RECORDING_MAGIC)
		r = read_compact_head(fd, at, ret);
	else
		r = RECORDING_E_INVALID;
	return r;
}

static bool is_whole(const struct page_head *head, uint64_t file_bytes)
{
	return head->page_bytes <= max_page_bytes && head->data <= file_bytes &&
	       head->data_bytes <= file_bytes - head->data;
}

/*
 * Read the head of the page at @at.
 * Return: 0, RECORDING_E_* or -errno.
 */
static int read_head(int fd, uint64_t at, uint64_t file_bytes, struct page_head *ret)
{
	int r = peek_head(fd, at, file_bytes, ret);

	return r == 0 && !is_whole(ret, file_bytes) ? RECORDING_E_INVALID : r;
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
	uint32_t *tenants = NULL, *grown;
	struct page_head head;
	unsigned int n_tenants = 0, room = 0;
	struct stat about;
	int r;

	if (fstat(fd, &about))
		return -errno;
	for (;;) {
		const bool has_some = moment.end > at;

		r = peek_head(fd, moment.end, (uint64_t)about.st_size, &head);
		/* The page, which may be cut, belongs to the next moment. */
		if (r == 0 && has_some &&
		    (head.kind == RBK_STATS_ROOT || is_among(tenants, n_tenants, head.tenant)))
			break;
		if (r == 0 && !is_whole(&head, (uint64_t)about.st_size))
			r = RECORDING_E_INVALID;
		if (r)
			break;
		if (!has_some)
			moment.at_ns = head.at_ns;
		moment.end = head.data + head.data_bytes;
		if (head.kind == RBK_STATS_ROOT)
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
		tenants[n_tenants++] = head.tenant;
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

/* The bytes of a difference that are still to be read. */
struct runs {
	const unsigned char *at, *end;
};

/* Read a number of a run. Return: false if there is none. */
static bool next_number(struct runs *runs, uint64_t *ret)
{
	uint64_t number = 0;

	for (unsigned int shift = 0; shift < 64 && runs->at < runs->end; shift += 7) {
		const unsigned char byte = *runs->at++;

		number |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = number;
			return true;
		}
	}
	return false;
}

/* Change a page by a difference. Return: 0, or RECORDING_E_INVALID. */
static int apply(struct runs runs, unsigned char *page, uint64_t bytes)
{
	uint64_t at = 0, n_zeros, n;

	while (runs.at < runs.end) {
		if (!next_number(&runs, &n_zeros) || !next_number(&runs, &n) ||
		    n_zeros > bytes - at || n > bytes - at - n_zeros ||
		    n > (uint64_t)(runs.end - runs.at))
			return RECORDING_E_INVALID;
		at += n_zeros;
		for (; n > 0; n--)
			page[at++] ^= *runs.at++;
	}
	return 0;
}

/* Change a page by the difference of @head. Return: 0, RECORDING_E_INVALID, -ENOMEM or -errno. */
static int read_difference(int fd, const struct page_head *head, char *page)
{
	unsigned char *data = malloc((size_t)head->data_bytes + 1);
	int r;

	if (!data)
		return -ENOMEM;
	r = read_at(fd, head->data, data, (size_t)head->data_bytes);
	if (r == 0)
		r = apply((struct runs){data, data + head->data_bytes}, (unsigned char *)page,
			  head->page_bytes);
	free(data);
	return r;
}

/* Read a page in compact form. Return: as read_difference(). */
static int read_compact(int fd, const struct page_head *head, uint64_t file_bytes, char *page)
{
	struct page_head base;
	int r = 0;

	if (head->base != RECORDING_NO_BASE) {
		r = read_head(fd, head->base, file_bytes, &base);
		if (r == RECORDING_E_END ||
		    (r == 0 && (!base.is_compact || base.base != RECORDING_NO_BASE ||
				base.page_bytes != head->page_bytes)))
			r = RECORDING_E_INVALID;
		if (r == 0)
			r = read_difference(fd, &base, page);
	}
	return r ? r : read_difference(fd, head, page);
}

/* Return: 0 with the page mapped, RECORDING_E_INVALID, -ENOMEM or -errno. */
static int read_page(int fd, const struct page_head *head, uint64_t file_bytes,
		     struct rbk_stats_view *ret)
{
	const uint64_t bytes = head->page_bytes;
	char *page = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	int r;

	if (page == MAP_FAILED)
		return -errno;
	r = head->is_compact ? read_compact(fd, head, file_bytes, page)
			     : read_data(fd, head->data, page, bytes);
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
	struct rbk_stats_view view;
	struct page_head head;
	struct stat about;
	int r = 0;

	if (fstat(fd, &about))
		return -errno;
	if ((uint64_t)about.st_size < moment->end)
		return RECORDING_E_INVALID;
	for (uint64_t at = moment->offset; at < moment->end && r == 0;
	     at = head.data + head.data_bytes) {
		r = read_head(fd, at, moment->end, &head);
		if (r == 0)
			r = read_page(fd, &head, moment->end, &view);
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
