/* SPDX-License-Identifier: MIT */
/*
 * scrape: the time of a Prometheus scrape for a number of tenants on two devices
 *
 * A sample covers the whole scrape: connecting to the endpoint, the endpoint's thread, which copies
 * the page, writes the text and sends it, and reading the answer to its end. The page changes
 * before each scrape, so no answer is reused. The baseline is the same scrape of an unchanged page,
 * which is only sent. Target: 5 ms for 100 tenants.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench.h"
#include "control/metrics.h"
#include "stats/stats.h"
#include "util/cleanup.h"
#include "util/clock.h"

enum {
	DEVICES = 2,
	UPDATED_TENANTS = 64,
	LIMIT_MS = 5, /* for 100 tenants */
};

struct side {
	struct stats *stats;
	struct metrics_options options;
	struct metrics *metrics;
	bool changes; /* the page changes before each scrape */
	uint64_t n_bytes;
};

/* Fill in numbers as long as those of a broker that has run for days. */
static void fill_tenant(struct stats_tenant *tenant, unsigned int index)
{
	struct rbk_stats_tenant *totals = tenant->totals;
	uint64_t *word = &totals->n_tasks, *end = (uint64_t *)(totals + 1);

	for (; word < end; word++)
		*word = 123456789012 + 1000 * index + (uint64_t)(end - word);
	for (unsigned int i = 0; i < DEVICES; i++)
		totals->devices[i].share = 0.123456;
	tenant->is_changed = true;
}

static int make_page(struct side *side, unsigned int n_tenants)
{
	const struct rbk_stats_device device = {.name = "AMD Radeon RX 580 Series"};
	struct stats_tenant *tenant;
	char name[32];
	int r;

	r = stats_new(DEVICES, 1, &side->stats);
	for (unsigned int i = 0; i < n_tenants && !r; i++) {
		snprintf(name, sizeof(name), "tenant-%u", i);
		r = stats_tenant_new(side->stats, i + 1, name, &tenant);
		if (!r)
			fill_tenant(tenant, i);
	}
	if (!r)
		r = stats_root_map(side->stats, 1);
	/* One update brings UPDATED_TENANTS tenants into the page. */
	for (unsigned int i = 0; i < n_tenants && !r; i += UPDATED_TENANTS)
		stats_update_root(side->stats);
	for (unsigned int i = 0; i < DEVICES && !r; i++)
		stats_set_device(side->stats, i, &device);
	return r;
}

static int ask(struct side *side)
{
	static const char request[] =
		"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n";
	const struct metrics_address *address = &side->options.address;
	_cleanup_(close_fdp) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static char buffer[1 << 17];
	ssize_t n;

	if (fd < 0 || connect(fd, &address->socket.any, address->bytes) < 0 ||
	    send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) < 0)
		return -errno;
	side->n_bytes = 0;
	while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
		if (side->n_bytes == 0 && (n < 15 || memcmp(buffer + 8, " 200 OK", 7) != 0))
			return -EPROTO;
		side->n_bytes += (uint64_t)n;
	}
	return n < 0 ? -errno : 0;
}

static int scrape_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t end_ns = clock_now_ns() + budget_ns, start_ns, now_ns;
	struct side *side = data;
	int r;

	r = samples_reserve(samples, budget_ns / 10000 + 2);
	if (!r)
		r = ask(side);
	do {
		if (side->changes)
			stats_heartbeat(side->stats, clock_now_ns(), 0, 0);
		start_ns = clock_now_ns();
		if (!r)
			r = ask(side);
		now_ns = clock_now_ns();
		if (!r)
			samples_add(samples, (double)(now_ns - start_ns) / 1e6);
	} while (!r && now_ns < end_ns && samples_room(samples) > 0);
	return r;
}

static int run_row(struct bench_env *env, const char *folder, unsigned int n_tenants)
{
	char params[48], text[METRICS_ADDRESS_BYTES];
	const struct bench_row row = {
		.params = params,
		.unit = "ms",
		.baseline = "unchanged-page",
		.limit = n_tenants == 100 ? LIMIT_MS : 0,
	};
	struct side ours = {.changes = true, .options = {.gid = (gid_t)-1, .version = "0"}}, same;
	const struct stats_page *page;
	int r;

	r = make_page(&ours, n_tenants);
	if (!r) {
		page = stats_root(ours.stats);
		if (!rbk_stats_view(&ours.options.view, page->header, page->header->page_bytes))
			r = -EPROTO;
	}
	snprintf(text, sizeof(text), "unix:%s/sock", folder);
	if (!r && metrics_address_parse(text, &ours.options.address))
		r = -EINVAL;
	if (!r)
		r = metrics_new(&ours.options, &ours.metrics);
	snprintf(params, sizeof(params), "tenants=%u", n_tenants);
	if (r == METRICS_E_NO_LIBRARY) {
		r = bench_skip(env, params, "built without libmicrohttpd");
	} else if (!r) {
		same = ours;
		same.changes = false;
		r = bench_compare(env, &row, (struct bench_side){scrape_round, &ours},
				  (struct bench_side){scrape_round, &same});
	}
	metrics_free(ours.metrics);
	stats_free(ours.stats);
	return r < 0 ? bench_fail(env, r, "cannot scrape: %s", strerror(-r)) : 0;
}

static int run(struct bench_env *env)
{
	const char *temporary = getenv("TMPDIR");
	char folder[64];
	int r;

	/* Socket paths must be short, so a long TMPDIR is not used. */
	if (!temporary || strlen(temporary) > 40)
		temporary = "/tmp";
	snprintf(folder, sizeof(folder), "%s/brokerbench-XXXXXX", temporary);
	if (!mkdtemp(folder))
		return bench_fail(env, -errno, "no folder in %s", temporary);
	r = run_row(env, folder, 3);
	if (!r)
		r = run_row(env, folder, 100);
	if (!r)
		r = run_row(env, folder, STATS_MAX_TENANTS);
	rmdir(folder);
	return r;
}

const struct bench bench_scrape = {
	.name = "scrape",
	.summary = "a Prometheus scrape of the metrics of many tenants (target: 5 ms for 100)",
	.baseline = "the same with no change since the last scrape",
	.run = run,
};
