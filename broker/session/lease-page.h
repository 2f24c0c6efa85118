#pragma once
/* SPDX-License-Identifier: MIT */
/* Lease pages: a page of each lease, which its members read */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session/closers.h"
#include "session/hold.h"
#include "stats/stats.h"
#include "tenant/account.h"
#include "util/cleanup.h"

struct session;

/* The page of one lease. */
struct lease_page {
	struct closers_job job;
	struct server *server;
	struct session *session; /* waits for the page; NULL: the page was given up */
	bool is_made;
	int result; /* of making the page: 0 or a negative errno */
	struct charge charges[4];
	struct hold *hold;
	void *map;
	size_t bytes;
	int fd;
	uint32_t opener; /* number of the session that opened the lease; 0: has not come back */
	struct stats_shown shown;
};

/*
 * Have a closers.h thread make a page, then resume @session, which the caller suspends. The page
 * and the lease are charged to the session's account. Reactor.
 * Return: 0; ACCOUNT_E_QUOTA; a negative errno.
 */
int lease_page_new(struct session *session, struct lease_page **ret);

/*
 * Have a closers.h thread unmap the page, even one that is still being made. Its memory stays
 * charged until no client has it any more. Reactor.
 * Return: NULL.
 */
struct lease_page *lease_page_free(struct lease_page *page);

DEFINE_CLEANUP(struct lease_page *, lease_page_free)
