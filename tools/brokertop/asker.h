#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Asking something that may take long, while the picture goes on
 *
 * One question at a time, on a thread of its own. Who asks leaves alone what the question is about
 * until it is answered.
 */
#include <pthread.h>
#include <stdbool.h>

struct asker {
	bool is_asking; /* and asker_is_done() has not said so yet */
	bool is_done;   /* by the thread */
	int fd;         /* becomes readable when it is; -1: poll */
	pthread_t thread;
	void (*question)(void *);
	void *about;
};

void asker_init(struct asker *asker);
/* Waits for an answer. */
void asker_deinit(struct asker *asker);

/*
 * Has @question called; with @waits, or where there can be no thread, before this returns. Nothing
 * is being asked.
 */
void asker_begin(struct asker *asker, void (*question)(void *), void *about, bool waits);

/* Is there an answer, told once? At most @timeout_ms are waited for it. */
bool asker_is_done(struct asker *asker, int timeout_ms);
