/* SPDX-License-Identifier: MIT */
/*
 * Lease pages
 *
 * Like a statistics page, a lease's page can only be written by the broker. Making and unmapping it
 * may sleep, so a closers.h thread does both, in the account's turn.
 */
#include "session/lease-page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lease/lease.h"
#include "session/server-private.h"
#include "util/error.h"

static void page_delete(struct lease_page *page)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(page->charges); i++)
		charge_deinit(&page->charges[i]);
	free(page);
}

static void unmake_run(struct closers_job *job)
{
	struct lease_page *page = container_of(job, struct lease_page, job);

	if (page->map)
		munmap(page->map, page->bytes);
	close_fd(page->fd);
}

static void unmake_done(struct closers_job *job)
{
	page_delete(container_of(job, struct lease_page, job));
}

struct lease_page *lease_page_free(struct lease_page *page)
{
	if (!page)
		return NULL;
	page->session = NULL;
	if (!page->is_made) {
		/* make_done() frees it. */
		closers_let_close(&page->job);
		return NULL;
	}
	hold_leave_files(page->hold,
			 (struct charge *[]){&page->charges[0], &page->charges[3], NULL});
	page->job = (struct closers_job){.run = unmake_run, .done = unmake_done, .closes = true};
	closers_submit(page->server->closers, page->charges[1].account, &page->job);
	return NULL;
}

static int page_map(struct lease_page *page)
{
	int r;

	page->fd = memfd_create("ringbroker-lease", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (page->fd < 0)
		return error_origin(-errno);
	r = hold_watch(page->hold, page->fd);
	if (r)
		return error_fold(r);
	if (ftruncate(page->fd, (off_t)page->bytes) < 0 ||
	    fallocate(page->fd, 0, 0, (off_t)page->bytes) < 0)
		return error_origin(-errno);
	page->map = mmap(NULL, page->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, page->fd, 0);
	if (page->map == MAP_FAILED) {
		page->map = NULL;
		return error_origin(-errno);
	}
	if (fcntl(page->fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return error_origin(-errno);
	return 0;
}

static void make_run(struct closers_job *job)
{
	struct lease_page *page = container_of(job, struct lease_page, job);

	page->result = page_map(page);
}

static void make_done(struct closers_job *job)
{
	struct lease_page *page = container_of(job, struct lease_page, job);

	page->is_made = true;
	if (page->session)
		session_resume(page->session);
	else
		lease_page_free(page);
}

int lease_page_new(struct session *session, struct lease_page **ret)
{
	struct account *account = session->account;
	struct lease_page *page = calloc(1, sizeof(*page));
	int r;

	if (!page)
		return error_origin(-ENOMEM);
	page->fd = -1;
	page->bytes = (size_t)sysconf(_SC_PAGESIZE);
	page->opener = session->number;
	page->server = session->server;
	page->session = session;
	if (account_charge(account, &page->charges[0], ACCOUNT_HOST_BYTES,
			   sizeof(struct lease) + sizeof(*page) + page->bytes + HOLD_FILE_BYTES +
				   HOLD_BYTES) ||
	    account_charge(account, &page->charges[1], ACCOUNT_FDS, 1) ||
	    account_charge(account, &page->charges[2], ACCOUNT_MAPPINGS, 1) ||
	    account_charge(account, &page->charges[3], ACCOUNT_WATCHES, 1))
		r = ACCOUNT_E_QUOTA;
	else
		r = hold_new(session->server, 1, &page->hold);
	if (r) {
		page_delete(page);
		return r;
	}
	page->job = (struct closers_job){.run = make_run, .done = make_done};
	closers_submit(session->server->closers, account, &page->job);
	*ret = page;
	return 0;
}
