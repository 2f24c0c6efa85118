/* SPDX-License-Identifier: MIT */
/* Upkeep figures, and the problems in them that an operator must know: see upkeep.h. */
#include "upkeep.h"

#include <inttypes.h>
#include <stdio.h>

#include "monitor/json-figures.h"
#include "monitor/json.h"
#include "monitor/text.h"
#include "objects.h"
#include "output.h"
#include "util/plural.h"

/* Fraction of a limit above which the next request may exceed it. */
static const double nearly = 0.95;
/* Longer than a driver needs to compile a large shader. */
static const uint64_t hanging_ns = 10000000000;

enum { TEXT_BYTES = 320 };

void upkeep_read(struct upkeep *upkeep, const struct rbk_stats_view *root)
{
	*upkeep = (struct upkeep){.root = root};
	if (!root)
		return;
	broker_copy(root, &upkeep->broker);
	upkeep->has_figures = upkeep_copy(root, &upkeep->figures);
}

/* Return ", tenant web", or "" if the tenant is not known. Valid until the next call. */
static const char *of_tenant(const struct upkeep *upkeep, uint32_t number)
{
	const char *name = number && upkeep->root ? tenant_name(upkeep->root, number) : NULL;
	static char text[2 * RBK_STATS_NAME_BYTES];

	if (!name)
		return "";
	snprintf(text, sizeof(text), ", tenant %s", text_name(name));
	return text;
}

static bool has_host_limit(const struct rbk_stats_broker *broker)
{
	return broker->host_max != 0 && broker->host_max != UINT64_MAX;
}

/* Return the longest slice of all causes; ns is 0 if there was none. */
static struct rbk_stats_setup_time longest_slice(const struct rbk_stats_upkeep *figures)
{
	struct rbk_stats_setup_time longest = {.ns = 0};

	for (uint32_t i = 0; i < RBK_STATS_MAX_SETUP_CAUSES; i++)
		if (figures->setup[i].longest_ns > longest.ns)
			longest = (struct rbk_stats_setup_time){
				.ns = figures->setup[i].longest_ns,
				.cause = i,
				.tenant = figures->setup[i].longest_tenant,
			};
	return longest;
}

const struct rbk_stats_mended *upkeep_mended(const struct upkeep *upkeep, uint32_t device)
{
	static const struct rbk_stats_mended nothing;

	return device < RBK_MAX_DEVICES ? &upkeep->figures.mended[device] : &nothing;
}

/* --- What is wrong --- */

static void judge_host(const struct rbk_stats_broker *broker, void (*warn)(void *, const char *),
		       void *data)
{
	char text[TEXT_BYTES];

	if (!has_host_limit(broker) ||
	    (double)broker->host_bytes < nearly * (double)broker->host_max)
		return;
	snprintf(text, sizeof(text),
		 "all tenants together have %s of the %s of host memory that they may have "
		 "(--host-max)",
		 text_bytes(broker->host_bytes), text_bytes(broker->host_max));
	warn(data, text);
}

/* Warn where the sandbox refuses less than it could, and where it has refused something. */
static void judge_sandbox(const struct rbk_stats_upkeep *figures,
			  void (*warn)(void *, const char *), void *data)
{
	char text[TEXT_BYTES];

	if (figures->sandbox == RBK_STATS_SANDBOX_LOG ||
	    figures->sandbox == RBK_STATS_SANDBOX_OFF ||
	    figures->sandbox == RBK_STATS_SANDBOX_REFUSED) {
		snprintf(text, sizeof(text), "the sandbox is %s (brokerctl check)",
			 stats_sandbox(figures->sandbox)->text);
		warn(data, text);
	}
	if (figures->n_calls_refused > 0) {
		snprintf(text, sizeof(text),
			 "brokerd's threads made %" PRIu64
			 " system call%s that they should not need: see the log (call-refused)",
			 figures->n_calls_refused, plural(figures->n_calls_refused));
		warn(data, text);
	}
}

void upkeep_judge(const struct upkeep *upkeep, void (*warn)(void *data, const char *text),
		  void *data)
{
	const struct rbk_stats_upkeep *figures = &upkeep->figures;
	const struct rbk_stats_setup_time *running = &figures->setup_running;
	char text[TEXT_BYTES];

	judge_host(&upkeep->broker, warn, data);
	if (running->ns >= hanging_ns) {
		snprintf(text, sizeof(text),
			 "the setup thread has worked on one job for %s (%s%s), and %" PRIu64
			 " job%s for it",
			 text_ns((double)running->ns), stats_setup_cause(running->cause)->text,
			 of_tenant(upkeep, running->tenant), figures->n_setup_waiting,
			 figures->n_setup_waiting == 1 ? " waits" : "s wait");
		warn(data, text);
	}
	if (figures->n_closers_stuck > 0) {
		snprintf(text, sizeof(text),
			 "%" PRIu32 " of at most %" PRIu32
			 " threads that close descriptors of ended clients %s stuck",
			 figures->n_closers_stuck, figures->n_closers_max,
			 figures->n_closers_stuck == 1 ? "is" : "are");
		warn(data, text);
	}
	judge_sandbox(figures, warn, data);
}

/* --- Printing --- */

static void print_host(const struct rbk_stats_broker *broker)
{
	printf("host     %s charged", text_bytes(broker->host_bytes));
	if (has_host_limit(broker))
		printf(", of %s", text_bytes(broker->host_max));
	putchar('\n');
}

static void print_turns(const struct upkeep *upkeep)
{
	const struct rbk_stats_broker *broker = &upkeep->broker;
	uint64_t n = 0;

	/* Older brokers do not report turns. */
	if (broker->longest_turn_ns == 0)
		return;
	for (unsigned int i = 0; i < RBK_TURN_CAUSES; i++)
		n += broker->n_turn_overruns[i];
	printf("reactor  longest turn %s", text_ns((double)broker->longest_turn_ns));
	/*
	 * This is the most processor time of any turn; during the rest of the longest turn other
	 * programs had the processor.
	 */
	if (upkeep->figures.longest_turn_cpu_ns > 0)
		printf(" (%s of processor time at most)",
		       text_ns((double)upkeep->figures.longest_turn_cpu_ns));
	printf(": %s%s; %" PRIu64 " overrun%s", stats_turn_cause(broker->longest_turn_cause)->text,
	       of_tenant(upkeep, broker->longest_turn_tenant), n, plural(n));
	for (unsigned int i = 0, n_said = 0; i < RBK_TURN_CAUSES; i++)
		if (broker->n_turn_overruns[i] > 0)
			printf("%s %s %" PRIu64, n_said++ ? "," : ":", stats_turn_cause(i)->text,
			       broker->n_turn_overruns[i]);
	putchar('\n');
}

static void print_setup(const struct upkeep *upkeep)
{
	const struct rbk_stats_upkeep *figures = &upkeep->figures;
	const struct rbk_stats_setup_time slice = longest_slice(figures);

	printf("setup    %" PRIu64 " job%s", figures->n_setup_waiting,
	       figures->n_setup_waiting == 1 ? " waits" : "s wait");
	if (figures->longest_wait.ns > 0)
		printf(", longest wait %s: %s%s", text_ns((double)figures->longest_wait.ns),
		       stats_setup_cause(figures->longest_wait.cause)->text,
		       of_tenant(upkeep, figures->longest_wait.tenant));
	if (slice.ns > 0)
		printf("; longest slice %s: %s%s", text_ns((double)slice.ns),
		       stats_setup_cause(slice.cause)->text, of_tenant(upkeep, slice.tenant));
	putchar('\n');
}

static bool is_restarting(const struct upkeep *upkeep)
{
	return upkeep->figures.restart_at_ns > 0;
}

static void print_restart(const struct upkeep *upkeep)
{
	const uint64_t until_ns = upkeep->figures.restart_until_ns, n = upkeep->broker.n_in_flight;
	const uint64_t now_ns = rbk_stats_load(&upkeep->root->page->updated_at_ns);

	printf("restart  in progress: nothing new is admitted, %" PRIu64
	       " task%s left, for %.1f s at most\n",
	       n, n == 1 ? " is" : "s are",
	       until_ns > now_ns ? (double)(until_ns - now_ns) / 1e9 : 0);
}

void upkeep_print(const struct upkeep *upkeep)
{
	const struct rbk_stats_upkeep *figures = &upkeep->figures;

	if (!upkeep->root)
		return;
	print_host(&upkeep->broker);
	print_turns(upkeep);
	if (!upkeep->has_figures)
		return;
	print_setup(upkeep);
	if (figures->n_closers_ever_stuck > 0 || figures->n_closings_waiting > 0)
		printf("closing  %" PRIu64 " wait%s, %" PRIu32 " thread%s, %" PRIu32
		       " stuck, %" PRIu64 " since the start\n",
		       figures->n_closings_waiting, figures->n_closings_waiting == 1 ? "s" : "",
		       figures->n_closers, plural(figures->n_closers), figures->n_closers_stuck,
		       figures->n_closers_ever_stuck);
	if (figures->sandbox != RBK_STATS_SANDBOX_UNKNOWN)
		printf("sandbox  %s\n", stats_sandbox(figures->sandbox)->text);
	if (is_restarting(upkeep))
		print_restart(upkeep);
}

/* --- JSON --- */

static uint64_t known(uint64_t value)
{
	return value ? value : UINT64_MAX;
}

static void json_time(const struct upkeep *upkeep, const char *name,
		      const struct rbk_stats_setup_time *time)
{
	json_object(name);
	json_unsigned("ns", time->ns);
	json_string("cause", time->ns ? stats_setup_cause(time->cause)->name : NULL);
	json_string("tenant",
		    time->tenant && upkeep->root ? tenant_name(upkeep->root, time->tenant) : NULL);
	json_object_end();
}

static void json_setup(const struct upkeep *upkeep)
{
	const struct rbk_stats_upkeep *figures = &upkeep->figures;
	const struct rbk_stats_setup_time slice = longest_slice(figures);

	json_object("setup");
	json_unsigned("waiting", figures->n_setup_waiting);
	json_time(upkeep, "running", &figures->setup_running);
	json_time(upkeep, "longest_wait", &figures->longest_wait);
	json_time(upkeep, "longest_slice", &slice);
	json_object("slices");
	for (unsigned int i = 0; i < RBK_SETUP_CAUSES; i++) {
		json_object(stats_setup_cause(i)->name);
		json_figures(slices_figures, &figures->setup[i]);
		json_object_end();
	}
	json_object_end();
	json_object_end();
}

static void json_turns(const struct upkeep *upkeep)
{
	const struct rbk_stats_broker *broker = &upkeep->broker;

	json_optional("longest_turn_ns", known(broker->longest_turn_ns));
	json_optional("longest_turn_cpu_ns", known(upkeep->figures.longest_turn_cpu_ns));
	json_string("longest_turn_cause",
		    broker->longest_turn_ns ? stats_turn_cause(broker->longest_turn_cause)->name
					    : NULL);
	json_string("longest_turn_tenant",
		    upkeep->root ? tenant_name(upkeep->root, broker->longest_turn_tenant) : NULL);
	json_object("turn_overruns");
	for (unsigned int i = 0; i < RBK_TURN_CAUSES; i++)
		json_unsigned(stats_turn_cause(i)->name, broker->n_turn_overruns[i]);
	json_object_end();
}

void upkeep_json(const struct upkeep *upkeep)
{
	json_turns(upkeep);
	json_optional("host_bytes", upkeep->root ? upkeep->broker.host_bytes : UINT64_MAX);
	json_optional("host_max_bytes", known(upkeep->broker.host_max));
	if (!upkeep->has_figures)
		return;
	json_setup(upkeep);
	json_figures(upkeep_figures, &upkeep->figures);
	json_string("sandbox", upkeep->figures.sandbox == RBK_STATS_SANDBOX_UNKNOWN
				       ? NULL
				       : stats_sandbox(upkeep->figures.sandbox)->name);
	json_boolean("restarting", is_restarting(upkeep));
	json_optional(
		"restart_until_ns",
		is_restarting(upkeep)
			? (uint64_t)since_1970_ns(upkeep->root, upkeep->figures.restart_until_ns)
			: UINT64_MAX);
}
