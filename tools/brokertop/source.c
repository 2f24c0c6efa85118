/* SPDX-License-Identifier: MIT */
/*
 * A broker that may hang, die and come back
 *
 * Nothing here waits for long: requests to a broker that has not been heard of for a while are few,
 * ever fewer, and limited in time. Pages of a broker that is gone stay mapped until there are
 * others: they are its last words.
 */
#include "source.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "figures.h"

static const uint64_t request_ns = 500000000;
static const uint64_t look_ns = 500000000;
static const uint64_t silent_ns = 2000000000;
static const uint64_t first_pause_ns = 4000000000;
static const uint64_t max_pause_ns = 16000000000;
enum { SILENT_PERIODS = 8 };

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const struct rbk_stats_header *first_page(const struct source *source)
{
	if (source->pages.root.page)
		return source->pages.root.page;
	return source->pages.n_tenants ? source->pages.tenants[0].view.page : NULL;
}

/* Return: 0; as pages_map(). Pages that there were are replaced. */
static int connect_broker(struct source *source)
{
	struct rbk *rbk = NULL;
	struct pages pages;
	uint32_t only = 0;
	unsigned int whose;
	int r;

	r = pages_connect_best(source->socket_path, "brokertop", request_ns, &rbk, &source->error);
	if (r)
		return r;
	r = pages_map_root(rbk, &pages, &source->error);
	if (r == 0 && source->tenant && !pages_find_number(&pages, source->tenant, &only)) {
		/* One's own has no root page to be found in; and for the sentence. */
		r = pages_find_tenant(rbk, source->tenant, &whose, &only, &source->error);
		if (r)
			pages_unmap(&pages);
	}
	if (r) {
		rbk_disconnect(rbk);
		return r;
	}
	pages_unmap(&source->pages);
	source->rbk = rbk;
	source->pages = pages;
	source->only = only;
	source->has_all_pages = false;
	source->state = SOURCE_LIVE;
	source->n_updates = rbk_stats_load(&first_page(source)->n_updates);
	source->heard_at_ns = clock_ns();
	source->next_ns = 0;
	return 0;
}

int source_open(struct source *source, const char *socket_path, const char *tenant)
{
	*source = (struct source){.socket_path = socket_path, .tenant = tenant};
	return connect_broker(source);
}

void source_close(struct source *source)
{
	pages_unmap(&source->pages);
	source->rbk = rbk_disconnect(source->rbk);
}

static void lose(struct source *source)
{
	source->rbk = rbk_disconnect(source->rbk);
	source->state = SOURCE_GONE;
	source->next_ns = 0;
}

/* The broker is asked something that costs it nothing. */
static void probe(struct source *source, uint64_t now_ns)
{
	int value, r = rbk_force_cpu(source->rbk, RBK_ASK, &value, NULL);

	if (r == -ECONNRESET || r == -EPROTO) {
		lose(source);
		return;
	}
	source->next_ns = now_ns + source->pause_ns;
	if (source->pause_ns < max_pause_ns)
		source->pause_ns *= 2;
}

static void look_for_tenants(struct source *source, bool wants_pages, uint64_t now_ns)
{
	uint32_t only;
	int r = 0;

	source->next_ns = now_ns + look_ns;
	if (source->tenant && pages_find_number(&source->pages, source->tenant, &only))
		source->only = only;
	if (wants_pages && source->pages.root.page) {
		r = pages_update(source->rbk, &source->pages, &source->error);
		source->has_all_pages = true;
	}
	if (r == -ECONNRESET || r == -EPROTO)
		lose(source);
}

/* Is there one, as far as this one sees? */
static bool has_process(uint32_t pid)
{
	return pid > 0 && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

void source_update(struct source *source, bool wants_pages, uint64_t now_ns)
{
	const struct rbk_stats_header *page;
	uint64_t n_updates, patience_ns;

	if (!source->rbk) {
		if (now_ns < source->next_ns)
			return;
		if (connect_broker(source))
			source->next_ns = clock_ns() + look_ns;
		return;
	}
	page = first_page(source);
	n_updates = rbk_stats_load(&page->n_updates);
	if (n_updates != source->n_updates) {
		source->n_updates = n_updates;
		source->heard_at_ns = now_ns;
		if (source->state == SOURCE_SILENT)
			source->next_ns = 0;
		source->state = SOURCE_LIVE;
	}
	patience_ns = silent_ns;
	if (page->period_ns < max_pause_ns && page->period_ns * SILENT_PERIODS > patience_ns)
		patience_ns = page->period_ns * SILENT_PERIODS;
	if (source->state == SOURCE_LIVE && now_ns - source->heard_at_ns > patience_ns) {
		source->state = SOURCE_SILENT;
		source->pause_ns = first_pause_ns;
		/* Asking a process that does not answer takes time. */
		source->next_ns = has_process(page->pid) ? now_ns + first_pause_ns : 0;
	}
	if (source->state == SOURCE_SILENT && now_ns >= source->next_ns)
		probe(source, now_ns);
	else if (source->state == SOURCE_LIVE &&
		 (now_ns >= source->next_ns || (wants_pages && !source->has_all_pages)))
		look_for_tenants(source, wants_pages, now_ns);
}

void source_warning(const struct source *source, uint64_t now_ns, char *text, size_t bytes)
{
	const uint64_t age_ns = now_ns > source->heard_at_ns ? now_ns - source->heard_at_ns : 0;

	text[0] = '\0';
	if (source->state == SOURCE_NONE)
		snprintf(text, bytes, "no broker: %s; it is waited for", source->error.text);
	else if (source->state == SOURCE_SILENT)
		snprintf(text, bytes, "brokerd does not answer: these figures are %s old",
			 figure_ns((double)age_ns).text);
	else if (source->state == SOURCE_GONE)
		snprintf(text, bytes,
			 "brokerd is gone: these are its last figures, %s old; it is waited for",
			 figure_ns((double)age_ns).text);
}
