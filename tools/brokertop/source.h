#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Where pages come from: a broker, whatever becomes of it
 *
 * Its heartbeat, in the page, tells whether it works. A broker that hangs is asked now and then
 * whether it is still there; one that is gone leaves its last figures behind, and is looked for
 * until there is one again.
 */
#include "model.h"
#include "monitor/pages.h"

enum source_state {
	SOURCE_NONE, /* there was no broker yet */
	SOURCE_LIVE,
	SOURCE_SILENT, /* connected, but its figures are old */
	SOURCE_GONE,   /* figures are of a broker that is gone */
};

struct source {
	const char *socket_path; /* NULL: the library's choice */
	const char *tenant;      /* NULL: all that may be seen */

	enum source_state state;
	struct rbk *rbk; /* NULL: not connected */
	struct pages pages;
	uint32_t only; /* number of @tenant; 0: all */
	struct rbk_error error;

	uint64_t n_updates, heard_at_ns; /* the heartbeat, and when it was seen to change */
	uint64_t next_ns;                /* to look for tenants, or for the broker */
	uint64_t pause_ns;               /* until it is asked again */
	bool has_all_pages;
};

/*
 * Connects for the first time. Return: 0; a negative errno or PAGES_E_NO_TENANT with a sentence in
 * source->error: source_update() goes on trying all the same.
 */
int source_open(struct source *source, const char *socket_path, const char *tenant);
void source_close(struct source *source);

/* Looks after the connection. @wants_pages: of tenants, too. @now_ns is CLOCK_MONOTONIC. */
void source_update(struct source *source, bool wants_pages, uint64_t now_ns);

/* A sentence for whoever reads the figures; empty if they are the broker's last. */
void source_warning(const struct source *source, uint64_t now_ns, char *text, size_t bytes);
