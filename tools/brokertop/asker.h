#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Asking the broker on a thread of its own
 *
 * One request at a time runs on a separate thread, so that drawing continues while the broker takes
 * its time. The caller does not touch the request's data until the request has completed.
 */
#include <pthread.h>
#include <stdbool.h>

struct asker {
	/* a request is under way, and asker_is_done() has not returned true for it */
	bool is_asking;
	bool is_done; /* set by the thread */
	int fd;       /* eventfd that becomes readable when the request is done; -1: poll is_done */
	pthread_t thread;
	void (*question)(void *);
	void *about;
};

void asker_init(struct asker *asker);
/* Wait for the request under way, if any, and free the asker. */
void asker_deinit(struct asker *asker);

/*
 * Run @question with @about. Return only after it is done if @waits is set or no thread can be
 * created. No request may be under way.
 */
void asker_begin(struct asker *asker, void (*question)(void *), void *about, bool waits);

/* Return true, once per request, when the request is done. Wait at most @timeout_ms. */
bool asker_is_done(struct asker *asker, int timeout_ms);
