/* SPDX-License-Identifier: MIT */
/*
 * Resets: programs in leases that lose their device, and learn who is the reason
 *
 * lease/resets.h finds the culprit. Here the answer becomes a sentence for the program's user, a
 * line of the log, and a record in the tenant's page. Users are told of programs of their own
 * tenant only; the log names all.
 */
#include <stdio.h>

#include "lease/lease.h"
#include "loop/loop.h"
#include "memory/residency.h"
#include "session/server-private.h"
#include "tenant/tenant.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"

enum { SENTENCE_BYTES = 384 };

static struct resets *resets_of(struct server *server)
{
	return &residency_leases(server->options.residency)->resets;
}

static void arm(void *context)
{
	struct server *server = context;
	const uint64_t now_ns = clock_now_ns();
	const uint64_t next_ns = resets_next_ns(resets_of(server));

	if (next_ns == UINT64_MAX)
		loop_timer_disarm(server->reset_timer);
	else
		loop_timer_arm(server->reset_timer, next_ns > now_ns ? next_ns - now_ns : 0);
}

static void on_timer(void *data)
{
	struct server *server = data;

	resets_run(resets_of(server), clock_now_ns());
	arm(server);
}

/* Name a program: "lease 4, llama-server (pid 12)". */
static void name_program(const struct resets_party *party, char *ret, size_t bytes)
{
	if (party->pid > 0)
		snprintf(ret, bytes, "%s (pid %d) of lease %u", party->name, (int)party->pid,
			 party->lease);
	else
		snprintf(ret, bytes, "%s of lease %u", party->name, party->lease);
}

/* Describe another program that is the culprit. */
static void describe_other(const struct resets_party *party, const struct resets_answer *answer,
			   bool shows_all, char *ret, size_t bytes)
{
	const struct resets_party *culprit = answer->culprit;
	const bool is_own_tenant = culprit->tenant == party->tenant;
	char program[128], who[256];

	name_program(culprit, program, sizeof(program));
	if (!shows_all && !is_own_tenant)
		snprintf(who, sizeof(who),
			 "a program of another tenant, which brokerd's log names,");
	else
		snprintf(who, sizeof(who), "%s%s%s", program, is_own_tenant ? "" : ", tenant ",
			 is_own_tenant ? "" : culprit->tenant_name);
	if (answer->is_certain)
		snprintf(ret, bytes,
			 "%s is the reason: its work took longer than the kernel allows, or was "
			 "faulty",
			 who);
	else
		snprintf(ret, bytes,
			 "%s had the device for %.1f s until then, so its work may have taken "
			 "longer "
			 "than the kernel allows",
			 who, (double)answer->culprit_ns * 1e-9);
}

static void describe(const struct resets_party *party, const struct resets_answer *answer,
		     bool shows_all, char *ret, size_t bytes)
{
	if (answer->is_own && answer->is_certain)
		snprintf(
			ret, bytes,
			"its own work is the reason: it took longer than the kernel allows, or was "
			"faulty; long work can be divided (brokerctl exec --max-part)");
	else if (answer->is_own)
		snprintf(ret, bytes,
			 "its own work may be the reason: it had the device for %.1f s until then; "
			 "long work can be divided (brokerctl exec --max-part)",
			 (double)answer->culprit_ns * 1e-9);
	else if (answer->culprit && answer->culprit->lease == 0)
		snprintf(ret, bytes,
			 "the broker's own work is the reason: a plan's task took longer than the "
			 "kernel allows, or was faulty");
	else if (answer->culprit)
		describe_other(party, answer, shows_all, ret, bytes);
	else if (party->verdict == RESET_VERDICT_INNOCENT)
		snprintf(ret, bytes,
			 "by the kernel's judgement other work is the reason; whose is not known, "
			 "perhaps that of a program without a lease");
	else
		snprintf(ret, bytes, "the reason is not known");
}

void session_lost(struct session *session, const struct rbk_wire_lease_lost *lost)
{
	const struct rbk_wire_request *request = &lost->request;
	struct lease_member *member = session_lease_member(session, request, lost->lease);
	struct rbk_wire_id_reply reply = {
		.reply = {.type = request->type, .cookie = request->cookie},
	};
	struct resets_party party = {.verdict = lost->verdict};
	struct resets_answer answer;

	if (!member)
		return;
	party.tenant = member->lease->tenant->number;
	answer = resets_report(member, lost->verdict, clock_now_ns());
	describe(&party, &answer, false, reply.reply.text, sizeof(reply.reply.text));
	reply.id = answer.is_final;
	session_reply(session, &reply.reply, sizeof(reply));
}

static uint8_t cause_of(const struct resets_party *party, const struct resets_answer *answer)
{
	if (answer->is_own)
		return RBK_STATS_RESET_OWN;
	if (!answer->culprit)
		return RBK_STATS_RESET_UNKNOWN;
	if (answer->culprit->lease == 0)
		return RBK_STATS_RESET_PLANS;
	return answer->culprit->tenant == party->tenant ? RBK_STATS_RESET_LEASE
							: RBK_STATS_RESET_OTHERS;
}

/* Count a program's loss, and show it in its tenant's page. */
static void show(struct server *server, uint8_t device, const struct resets_party *party,
		 const struct resets_answer *answer)
{
	const struct tenant *tenant = tenants_get(server->options.tenants, party->tenant);
	/* Pages have times of the broker's own clock. */
	const uint64_t offset_ns = clock_ticks_to_ns(clock_ticks()) - clock_now_ns();
	struct rbk_stats_reset shown = {
		.at_ns = answer->at_ns + offset_ns,
		.tenant = party->tenant,
		.lease = party->lease,
		.pid = (uint32_t)party->pid,
		.device = device,
		.cause = cause_of(party, answer),
		.flags = (uint16_t)((answer->is_certain ? RBK_STATS_RESET_CERTAIN : 0) |
				    (answer->is_seen ? RBK_STATS_RESET_SEEN : 0)),
		.had_ms = (uint32_t)(answer->culprit_ns / 1000000),
	};

	if (shown.cause == RBK_STATS_RESET_LEASE)
		shown.by_lease = answer->culprit->lease;
	snprintf(shown.name, sizeof(shown.name), "%.*s", (int)sizeof(shown.name) - 1, party->name);
	stats_lost(server->pages, stats_tenant_find(server->pages, party->tenant), &shown);
	if (!tenant || !tenant->leases)
		return;
	if (answer->is_own)
		tenant->leases->shared.n_lost_own++;
	else
		tenant->leases->shared.n_lost++;
}

static void on_judged(void *context, uint8_t device, const struct resets_party *party,
		      const struct resets_answer *answer)
{
	struct server *server = context;
	char sentence[SENTENCE_BYTES], program[128];

	describe(party, answer, true, sentence, sizeof(sentence));
	if (party->lease == 0) {
		if (!answer->is_own)
			log_warning_of(LOG_OF_DEVICE(device), LOG_LEASE_LOST,
				       "device %u was reset under the broker's plans, which are "
				       "loaded again: %s",
				       device, sentence);
		else
			log_warning_of(LOG_OF_DEVICE(device), LOG_LEASE_LOST,
				       "device %u was reset because of a plan's task, which took "
				       "longer than the kernel allows, or was faulty",
				       device);
		return;
	}
	name_program(party, program, sizeof(program));
	log_warning_of(LOG_OF(.tenant = party->tenant_name, .has_device = true, .device = device),
		       LOG_LEASE_LOST, "device %u was reset under the work of %s, tenant %s: %s%s",
		       device, program, party->tenant_name, sentence,
		       answer->is_seen || answer->is_certain
			       ? ""
			       : " (the program says so; the broker saw no reset)");
	show(server, device, party, answer);
}

int server_resets_start(struct server *server)
{
	struct resets *resets = resets_of(server);
	int r = loop_timer_new(server->options.loop, on_timer, server, &server->reset_timer);

	if (r)
		return error_fold(r);
	resets->judged = on_judged;
	resets->changed = arm;
	resets->context = server;
	return 0;
}

void server_resets_stop(struct server *server)
{
	if (server->reset_timer) {
		resets_of(server)->judged = NULL;
		resets_of(server)->changed = NULL;
	}
	server->reset_timer = loop_timer_free(server->reset_timer);
}
