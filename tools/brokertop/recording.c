/* SPDX-License-Identifier: MIT */
/*
 * Writing and reading pages
 *
 * Most of a page is empty, and becomes a hole in the file. What is read is a copy, so that nothing
 * happens if somebody cuts the file short, and it is looked at as suspiciously as a broker's page.
 */
#include "recording.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
		/* The last block is written, so that the file is as long as it should be. */
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

/* Return: 0, mapped; RECORDING_E_*; -errno. The file is where it was if there is none. */
static int read_page(FILE *file, struct rbk_stats_view *ret)
{
	struct rbk_stats_header header;
	size_t n = fread(&header, 1, sizeof(header), file);
	void *page;

	if (n == 0)
		return ferror(file) ? -EIO : RECORDING_E_END;
	if (n < sizeof(header) || header.magic != RBK_STATS_MAGIC ||
	    header.page_bytes < sizeof(header) || header.page_bytes > max_page_bytes)
		return RECORDING_E_INVALID;
	page = mmap(NULL, (size_t)header.page_bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return -errno;
	memcpy(page, &header, sizeof(header));
	n = (size_t)header.page_bytes - sizeof(header);
	if (fread((char *)page + sizeof(header), 1, n, file) != n ||
	    !rbk_stats_view(ret, page, header.page_bytes)) {
		munmap(page, (size_t)header.page_bytes);
		return RECORDING_E_INVALID;
	}
	return 0;
}

static int add_tenant(struct pages *pages, struct rbk_stats_view *view)
{
	struct tenant_page *grown, *page;
	struct rbk_stats_tenant tenant;

	grown = realloc(pages->tenants, (pages->n_tenants + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	pages->tenants = grown;
	page = &grown[pages->n_tenants++];
	page_copy(view, RBK_STATS_SECTION_TENANTS, 0, &tenant, sizeof(tenant));
	page->view = *view;
	page->number = tenant.number;
	memcpy(page->name, tenant.name, sizeof(page->name));
	page->name[sizeof(page->name) - 1] = '\0';
	return 0;
}

static bool has_tenant(const struct pages *pages, const struct rbk_stats_view *view)
{
	const struct rbk_stats_tenant *tenant =
		rbk_stats_record(view, RBK_STATS_SECTION_TENANTS, 0);

	for (unsigned int i = 0; i < pages->n_tenants && tenant; i++)
		if (pages->tenants[i].number == tenant->number)
			return true;
	return false;
}

int recording_read(FILE *file, struct pages *ret)
{
	struct pages pages = {.tenants = NULL};
	struct rbk_stats_view view;
	int r;

	for (;;) {
		const bool has_some = pages.root.page || pages.n_tenants > 0;

		r = read_page(file, &view);
		if (r == RECORDING_E_END && has_some)
			r = 0;
		else if (r == 0 &&
			 (view.page->kind == RBK_STATS_ROOT ? has_some
							    : has_tenant(&pages, &view))) {
			/* That is the next moment's. */
			if (fseeko(file, -(off_t)view.bytes, SEEK_CUR))
				r = -errno;
			rbk_stats_unmap(&view);
		} else if (r == 0) {
			if (view.page->kind == RBK_STATS_ROOT)
				pages.root = view;
			else
				r = add_tenant(&pages, &view);
			if (r == 0)
				continue;
			rbk_stats_unmap(&view);
		}
		break;
	}
	if (r)
		pages_unmap(&pages);
	else
		*ret = pages;
	return r;
}
