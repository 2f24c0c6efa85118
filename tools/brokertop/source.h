#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Source: pages of a broker, across hangs and restarts
 *
 * The heartbeat in the page shows whether the broker works. A broker that hangs is probed from time
 * to time. After a broker has ended, its last figures stay, and the source tries to connect until a
 * broker runs again.
 */
#include "asker.h"
#include "input.h"
#include "model.h"
#include "monitor/pages.h"

enum source_state {
	SOURCE_NONE, /* no broker was found yet */
	SOURCE_LIVE,
	SOURCE_SILENT, /* connected, but its figures are old */
	SOURCE_GONE,   /* the figures are of a broker that has ended */
};

/* Requests to the broker. */
enum source_question {
	SOURCE_CONNECT,
	SOURCE_PROBE,
	SOURCE_FETCH, /* fetch pages of tenants */
	SOURCE_CHANGE,
};
struct source_request {
	enum source_question kind;
	const char *socket_path, *tenant;
	struct rbk *rbk;
	uint32_t *numbers; /* tenants to fetch, owned */
	unsigned int n_numbers;
	struct change change;

	int r;
	struct pages pages;
	uint32_t only;
	struct rbk_error error;
	struct admin_attempt admin; /* result at the administrators' socket */
	char text[600];             /* result of the change */
};

struct source {
	const char *socket_path; /* NULL: the library's default */
	const char *tenant;      /* NULL: all that this user may see */
	bool waits;              /* wait for every answer; else the asker's thread waits */

	enum source_state state;
	struct rbk *rbk; /* NULL: not connected */
	struct pages pages;
	uint32_t only; /* number of @tenant; 0: all */
	int r;         /* result of connecting */
	struct rbk_error error;
	/* why the connection may not make changes; "": it may */
	char why_not[ADMIN_TEXT_BYTES];

	uint64_t n_updates, heard_at_ns; /* heartbeat, and the time of its last change */
	bool is_settled;   /* the broker has updated the pages since they were mapped */
	uint64_t next_ns;  /* time to look for tenants or for the broker */
	uint64_t pause_ns; /* interval until the next probe or attempt */
	bool has_all_pages;

	struct asker asker;
	struct source_request request; /* belongs to the asker while a request is under way */
	struct change change;          /* change that waits for the asker; CHANGE_NONE: none */
	bool has_said;                 /* the result of a change is ready */
	int said_r;
	char said[600];
};

/*
 * Begin to connect, and wait at most @patience_ms, or without limit if @waits is set.
 * source_update() retries after an error.
 * Return: 0, a negative errno or PAGES_E_NO_TENANT, with a sentence in source->error;
 * SOURCE_E_LATER: no result yet.
 */
enum { SOURCE_E_LATER = 2 };
int source_open(struct source *source, const char *socket_path, const char *tenant, bool waits,
		int patience_ms);
/* Close the source; one that is all zeros is permitted. */
void source_close(struct source *source);

/* Maintain the connection. @wants_pages: also keep tenants' pages. @now_ns: CLOCK_MONOTONIC. */
void source_update(struct source *source, bool wants_pages, uint64_t now_ns);

/*
 * Return a descriptor that becomes readable when source_update() has an answer to process; -1: call
 * it periodically.
 */
int source_fd(const struct source *source);

/*
 * Request a change, after the request under way.
 * Return: false if another change is pending or no broker is connected.
 */
bool source_change(struct source *source, const struct change *change);
/*
 * Return the result of a change as a sentence, once, with 0 or a negative errno in *@ret_r; NULL:
 * no result yet.
 */
const char *source_said(struct source *source, int *ret_r);

/* Write a warning for the reader of the figures; "" if the figures are current. */
void source_warning(const struct source *source, uint64_t now_ns, char *text, size_t bytes);
