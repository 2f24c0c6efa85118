/* SPDX-License-Identifier: MIT */
/*
 * Source: a broker that may hang, end and restart
 *
 * This thread never blocks on the broker: the asker does, while pages are read and drawn. A broker
 * that has been silent for a while receives few requests, at growing intervals, each with a
 * timeout. Pages of a broker that has ended stay mapped until new ones replace them, since they
 * hold its last figures.
 */
#include "source.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "change.h"
#include "figures.h"
#include "util/clock.h"

static const uint64_t request_ns = 500000000;
static const uint64_t look_ns = 500000000;
static const uint64_t silent_ns = 2000000000;
static const uint64_t first_pause_ns = 4000000000;
static const uint64_t max_pause_ns = 16000000000;
enum { SILENT_PERIODS = 8 };

static const struct rbk_stats_header *first_page(const struct source *source)
{
	if (source->pages.root.page)
		return source->pages.root.page;
	return source->pages.n_tenants ? source->pages.tenants[0].view.page : NULL;
}

/* --- Questions: what the asker's thread does --- */

static void ask_connect(struct source_request *request)
{
	struct rbk *rbk = NULL;
	unsigned int whose;
	int r;

	r = pages_connect_best(request->socket_path, "brokertop", request_ns, &rbk, &request->admin,
			       &request->error);
	if (r == 0)
		r = pages_map_root(rbk, &request->pages, &request->error);
	if (r == 0 && request->tenant &&
	    !pages_find_number(&request->pages, request->tenant, &request->only)) {
		/*
		 * An ordinary user has no root page to search; this call also supplies the error
		 * sentence.
		 */
		r = pages_find_tenant(rbk, request->tenant, &whose, &request->only,
				      &request->error);
		if (r)
			pages_unmap(&request->pages);
	}
	if (r)
		rbk = rbk_disconnect(rbk);
	request->rbk = rbk;
	request->r = r;
}

static void ask(void *data)
{
	struct source_request *request = data;
	int value;

	switch (request->kind) {
	case SOURCE_CONNECT:
		ask_connect(request);
		break;
	case SOURCE_PROBE:
		/* A query that is cheap for the broker. */
		request->r = rbk_force_cpu(request->rbk, RBK_ASK, &value, NULL);
		break;
	case SOURCE_FETCH:
		request->r = pages_fetch(request->rbk, request->numbers, request->n_numbers,
					 &request->pages, &request->error);
		break;
	case SOURCE_CHANGE:
		request->r = change_carry_out(request->rbk, &request->change, request->text,
					      sizeof(request->text));
		break;
	}
}

/* --- Answers --- */

static void lose(struct source *source)
{
	source->rbk = rbk_disconnect(source->rbk);
	source->state = SOURCE_GONE;
	source->next_ns = 0;
}

static void take_connection(struct source *source)
{
	struct source_request *request = &source->request;

	source->r = request->r;
	source->error = request->error;
	source->next_ns = clock_now_ns() + look_ns;
	if (request->r)
		return;
	pages_unmap(&source->pages);
	source->rbk = request->rbk;
	source->pages = request->pages;
	source->only = request->only;
	source->why_not[0] = '\0';
	if (!(rbk_features(source->rbk) & RBK_FEAT_ADMIN_CHANGE))
		admin_socket_explain(&request->admin, source->why_not, sizeof(source->why_not));
	source->has_all_pages = false;
	source->state = SOURCE_LIVE;
	source->n_updates = rbk_stats_load(&first_page(source)->n_updates);
	source->is_settled = false;
	source->heard_at_ns = clock_now_ns();
	source->next_ns = 0;
}

/* Process the result of the request that has completed. */
static void take_answer(struct source *source)
{
	struct source_request *request = &source->request;

	switch (request->kind) {
	case SOURCE_CONNECT:
		take_connection(source);
		return;
	case SOURCE_PROBE:
		source->next_ns = clock_now_ns() + source->pause_ns;
		if (source->pause_ns < max_pause_ns)
			source->pause_ns *= 2;
		break;
	case SOURCE_FETCH:
		/* Pages that could not be added are requested again later. */
		if (pages_take(&source->pages, &request->pages))
			pages_unmap(&request->pages);
		free(request->numbers);
		request->numbers = NULL;
		break;
	case SOURCE_CHANGE:
		source->has_said = true;
		source->said_r = request->r;
		memcpy(source->said, request->text, sizeof(source->said));
		break;
	}
	if (request->r == -ECONNRESET || request->r == -EPROTO)
		lose(source);
}

static void begin(struct source *source, enum source_question kind)
{
	struct source_request *request = &source->request;

	request->kind = kind;
	request->socket_path = source->socket_path;
	request->tenant = source->tenant;
	request->rbk = source->rbk;
	request->r = 0;
	request->pages = (struct pages){.tenants = NULL};
	request->only = 0;
	request->error.text[0] = '\0';
	asker_begin(&source->asker, ask, request, source->waits);
	if (source->waits && asker_is_done(&source->asker, 0))
		take_answer(source);
}

int source_open(struct source *source, const char *socket_path, const char *tenant, bool waits,
		int patience_ms)
{
	*source = (struct source){.socket_path = socket_path, .tenant = tenant, .waits = waits};
	asker_init(&source->asker);
	begin(source, SOURCE_CONNECT);
	if (asker_is_done(&source->asker, patience_ms))
		take_answer(source);
	return source->asker.is_asking ? SOURCE_E_LATER : source->r;
}

void source_close(struct source *source)
{
	if (source->asker.is_asking) {
		asker_deinit(&source->asker);
		take_answer(source);
	} else if (source->asker.question) {
		asker_deinit(&source->asker);
	}
	pages_unmap(&source->pages);
	source->rbk = rbk_disconnect(source->rbk);
}

int source_fd(const struct source *source)
{
	/* A recording has no asker. */
	return source->asker.question ? source->asker.fd : -1;
}

bool source_change(struct source *source, const struct change *change)
{
	if (!source->rbk || source->change.kind != CHANGE_NONE ||
	    (source->asker.is_asking && source->request.kind == SOURCE_CHANGE))
		return false;
	source->change = *change;
	return true;
}

const char *source_said(struct source *source, int *ret_r)
{
	if (!source->has_said)
		return NULL;
	source->has_said = false;
	*ret_r = source->said_r;
	return source->said;
}

/* --- What there is to ask --- */

static void ask_for_change(struct source *source)
{
	source->request.change = source->change;
	source->change.kind = CHANGE_NONE;
	begin(source, SOURCE_CHANGE);
}

/* Report that the broker ended before the change was requested. */
static void give_up_change(struct source *source)
{
	if (source->change.kind == CHANGE_NONE)
		return;
	source->change.kind = CHANGE_NONE;
	source->has_said = true;
	source->said_r = -ECONNRESET;
	snprintf(source->said, sizeof(source->said), "the broker is gone: nothing was changed");
}

static void look_for_tenants(struct source *source, bool wants_pages, uint64_t now_ns)
{
	struct source_request *request = &source->request;
	uint32_t only;

	source->next_ns = now_ns + look_ns;
	if (source->tenant && pages_find_number(&source->pages, source->tenant, &only))
		source->only = only;
	if (!wants_pages || !source->pages.root.page)
		return;
	source->has_all_pages = true;
	pages_forget_closed(&source->pages);
	if (pages_missing(&source->pages, &request->numbers, &request->n_numbers))
		return;
	if (request->n_numbers > 0) {
		begin(source, SOURCE_FETCH);
		return;
	}
	free(request->numbers);
	request->numbers = NULL;
}

/* Return true if the process exists, as far as this process can see. */
static bool has_process(uint32_t pid)
{
	return pid > 0 && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

static uint64_t age_ns(const struct source *source, uint64_t now_ns)
{
	return now_ns > source->heard_at_ns ? now_ns - source->heard_at_ns : 0;
}

void source_update(struct source *source, bool wants_pages, uint64_t now_ns)
{
	const struct rbk_stats_header *page;
	uint64_t n_updates, patience_ns;

	if (asker_is_done(&source->asker, 0))
		take_answer(source);
	if (!source->rbk) {
		give_up_change(source);
		if (now_ns >= source->next_ns && !source->asker.is_asking)
			begin(source, SOURCE_CONNECT);
		return;
	}
	page = first_page(source);
	n_updates = rbk_stats_load(&page->n_updates);
	if (n_updates != source->n_updates) {
		source->n_updates = n_updates;
		source->is_settled = true;
		source->heard_at_ns = now_ns;
		if (source->state == SOURCE_SILENT)
			source->next_ns = 0;
		source->state = SOURCE_LIVE;
	}
	patience_ns = silent_ns;
	if (page->period_ns < max_pause_ns && page->period_ns * SILENT_PERIODS > patience_ns)
		patience_ns = page->period_ns * SILENT_PERIODS;
	if (source->state == SOURCE_LIVE && age_ns(source, now_ns) > patience_ns) {
		source->state = SOURCE_SILENT;
		source->pause_ns = first_pause_ns;
		/*
		 * Probing a process that does not answer takes time, so wait first; if the process
		 * is gone, probe at once.
		 */
		source->next_ns = has_process(page->pid) ? now_ns + first_pause_ns : 0;
	}
	if (source->asker.is_asking)
		return;
	if (source->change.kind != CHANGE_NONE)
		ask_for_change(source);
	else if (source->state == SOURCE_SILENT && now_ns >= source->next_ns)
		begin(source, SOURCE_PROBE);
	else if (source->state == SOURCE_LIVE &&
		 (now_ns >= source->next_ns || (wants_pages && !source->has_all_pages)))
		look_for_tenants(source, wants_pages, now_ns);
}

void source_warning(const struct source *source, uint64_t now_ns, char *text, size_t bytes)
{
	const double old_ns = (double)age_ns(source, now_ns);

	text[0] = '\0';
	if (source->state == SOURCE_NONE && !source->r && source->asker.is_asking)
		snprintf(text, bytes, "the broker has not answered yet");
	else if (source->state == SOURCE_NONE && source->r == -ETIME)
		snprintf(text, bytes, "%s; waiting for it", source->error.text);
	else if (source->state == SOURCE_NONE)
		snprintf(text, bytes, "no broker: %s; waiting for it", source->error.text);
	else if (source->state == SOURCE_SILENT)
		snprintf(text, bytes, "brokerd does not answer: these figures are %s old",
			 figure_ns(old_ns).text);
	else if (source->state == SOURCE_GONE)
		snprintf(text, bytes,
			 "brokerd is gone: these are its last figures, %s old; waiting for it",
			 figure_ns(old_ns).text);
}
