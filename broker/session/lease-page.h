#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The page of a lease, which its members read
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session/closers.h"
#include "session/hold.h"
#include "stats/stats.h"
#include "tenant/account.h"
#include "util/cleanup.h"

struct session;

/* A lease's own. */
struct lease_page {
	struct closers_job job;
	struct server *server;
	struct session *session; /* that waits for it to be made; NULL: it was given up */
	bool is_made;
	int result; /* of making it: 0 or negative errno */
	struct charge charges[4];
	struct hold *hold;
	void *map;
	size_t bytes;
	int fd;
	uint32_t opener; /* number of the session */
	struct stats_lease shown;
};

/*
 * Has a thread of closers.h make one, charged to the session's account, with what the lease itself
 * takes, and then resumes @session, which is to be suspended. Reactor.
 * Return: 0; ACCOUNT_E_QUOTA; negative errno.
 */
int lease_page_new(struct session *session, struct lease_page **ret);

/*
 * Has such a thread unmap it; it may still be being made. Its memory stays charged until no client
 * has it any more. Reactor. Return: NULL.
 */
struct lease_page *lease_page_free(struct lease_page *page);

DEFINE_CLEANUP(struct lease_page *, lease_page_free)
