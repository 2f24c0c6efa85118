#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Where pages come from: a broker, whatever becomes of it
 *
 * Its heartbeat, in the page, tells whether it works. A broker that hangs is asked now and then
 * whether it is still there; one that is gone leaves its last figures behind, and is looked for
 * until there is one again.
 */
#include "asker.h"
#include "input.h"
#include "model.h"
#include "monitor/pages.h"

enum source_state {
	SOURCE_NONE, /* there was no broker yet */
	SOURCE_LIVE,
	SOURCE_SILENT, /* connected, but its figures are old */
	SOURCE_GONE,   /* figures are of a broker that is gone */
};

/* What the broker is being asked, and what it says. */
enum source_question {
	SOURCE_CONNECT,
	SOURCE_PROBE,
	SOURCE_FETCH, /* pages of tenants */
	SOURCE_CHANGE,
};
struct source_request {
	enum source_question kind;
	const char *socket_path, *tenant;
	struct rbk *rbk;
	uint32_t *numbers; /* of tenants, to be fetched; owned */
	unsigned int n_numbers;
	struct change change;

	int r;
	struct pages pages;
	uint32_t only;
	struct rbk_error error;
	char text[600]; /* what came of the change */
};

struct source {
	const char *socket_path; /* NULL: the library's choice */
	const char *tenant;      /* NULL: all that may be seen */
	bool waits;              /* for every answer; else the broker is asked meanwhile */

	enum source_state state;
	struct rbk *rbk; /* NULL: not connected */
	struct pages pages;
	uint32_t only; /* number of @tenant; 0: all */
	int r;         /* of connecting */
	struct rbk_error error;

	uint64_t n_updates, heard_at_ns; /* the heartbeat, and when it was seen to change */
	uint64_t next_ns;                /* to look for tenants, or for the broker */
	uint64_t pause_ns;               /* until it is asked again */
	bool has_all_pages;

	struct asker asker;
	struct source_request request; /* the asker's while it asks */
	struct change change;          /* that waits to be asked for; or none */
	bool has_said;                 /* of a change */
	int said_r;
	char said[600];
};

/*
 * Begins to connect, and waits for that @patience_ms; or, if the source waits, as long as it takes.
 * Return: 0; a negative errno or PAGES_E_NO_TENANT with a sentence in source->error:
 * source_update() goes on trying all the same; SOURCE_E_LATER: nothing is known yet.
 */
enum { SOURCE_E_LATER = 2 };
int source_open(struct source *source, const char *socket_path, const char *tenant, bool waits,
		int patience_ms);
/* Also of one that is all zeros. */
void source_close(struct source *source);

/* Looks after the connection. @wants_pages: of tenants, too. @now_ns is CLOCK_MONOTONIC. */
void source_update(struct source *source, bool wants_pages, uint64_t now_ns);

/* Readable when there is an answer, for source_update(); -1: look now and then. */
int source_fd(const struct source *source);

/*
 * Asks for a change, as soon as what the broker is being asked already is answered. Return: false:
 * one is under way, or there is no broker.
 */
bool source_change(struct source *source, const struct change *change);
/* What came of it, told once: 0 or a negative errno in *ret_r. Return: NULL: nothing yet. */
const char *source_said(struct source *source, int *ret_r);

/* A sentence for whoever reads the figures; empty if they are the broker's last. */
void source_warning(const struct source *source, uint64_t now_ns, char *text, size_t bytes);
