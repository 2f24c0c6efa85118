/* SPDX-License-Identifier: MIT */
/* The table of a row, for readers and for programs; see attack.h. */
#include <string.h>

#include "attack/attack.h"
#include "support/test.h"

/*
 * Limits of a neighbour's times; p50 and p99 are ratios of attacked to friendly. Times above them
 * are reported, but fail no test: the machine may have other load.
 */
struct limits {
	double p50, p99;
	uint64_t longest_ns;
	/* Below these times, in ns, a ratio shows the machine's scheduler, not the broker. */
	uint64_t p50_floor_ns, p99_floor_ns;
};
static const struct limits limits[ATTACK_N_KINDS] = {
	[ATTACK_INLINE] = {1.5, 2, 10000000, 100000, 2000000},
};

/* Limit of the reactor's longest turn, reported alike. */
static const uint64_t turn_limit_ns = 1000000;

static const char *const kinds[ATTACK_N_KINDS] = {"inline", "product", "gpu", "set-up", "connect"};

static const char *const causes[RBK_TURN_CAUSES] = {
	[RBK_TURN_ENTRIES] = "entries",     [RBK_TURN_COMPLETIONS] = "completions",
	[RBK_TURN_MESSAGES] = "messages",   [RBK_TURN_PLANS] = "plans",
	[RBK_TURN_RINGS] = "rings",         [RBK_TURN_CONNECTIONS] = "connections",
	[RBK_TURN_ENDS] = "ends",           [RBK_TURN_BELLS] = "bells",
	[RBK_TURN_RESIDENCY] = "residency", [RBK_TURN_JOBS] = "jobs",
	[RBK_TURN_TIMERS] = "timers",       [RBK_TURN_STATISTICS] = "statistics",
	[RBK_TURN_KERNEL] = "kernel",       [RBK_TURN_OTHER] = "other",
};

/* Figures of one kind in one phase, in ns. */
enum { P50, P99, LONGEST, N_FIGURES };
static const char *const figure_names[N_FIGURES] = {"p50_ns", "p99_ns", "longest_ns"};

static void figures_of(const struct attack *attack, enum attack_phase phase, unsigned int kind,
		       uint64_t ret[N_FIGURES])
{
	const struct attack_times *times = &attack->times[phase][kind];

	ret[P50] = attack_times_percentile(times, 50);
	ret[P99] = attack_times_percentile(times, 99);
	ret[LONGEST] = times->longest_ns;
}

static double ratio(uint64_t after, uint64_t before)
{
	return before ? (double)after / (double)before : 0;
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

static bool is_shown(const struct attack *attack, unsigned int kind)
{
	return kind != ATTACK_GPU || attack->has_gpu;
}

/*
 * Print the figures of one kind.
 * Return: true if they are within their limits.
 */
static bool print_kind(const struct attack_result *result, unsigned int kind)
{
	const struct attack *attack = result->attack;
	const struct limits *limit = &limits[kind];
	uint64_t before[N_FIGURES], after[N_FIGURES];

	figures_of(attack, ATTACK_BESIDE_FRIEND, kind, before);
	figures_of(attack, ATTACK_BESIDE_ATTACKER, kind, after);
	print_message("%3u %8u %-8s", result->row->number, attack->n_sessions, kinds[kind]);
	for (unsigned int i = 0; i < N_FIGURES; i++) {
		if (result->options->is_quick)
			print_message(" | %9s %9.3f %7s", "-", (double)after[i] / 1e6, "-");
		else
			print_message(" | %9.3f %9.3f %7.2f", (double)before[i] / 1e6,
				      (double)after[i] / 1e6, ratio(after[i], before[i]));
	}
	print_message(" | %llu %llu\n",
		      (unsigned long long)attack->times[ATTACK_BESIDE_FRIEND][kind].n,
		      (unsigned long long)attack->times[ATTACK_BESIDE_ATTACKER][kind].n);
	if (limit->longest_ns == 0 || attack->is_slow || result->options->is_quick)
		return true;
	return (ratio(after[P50], before[P50]) <= limit->p50 ||
		after[P50] <= limit->p50_floor_ns) &&
	       (ratio(after[P99], before[P99]) <= limit->p99 ||
		after[P99] <= limit->p99_floor_ns) &&
	       after[LONGEST] <=
		       (before[LONGEST] > limit->longest_ns ? before[LONGEST] : limit->longest_ns);
}

static void print_turns(const char *beside, const struct attack_turns *turns)
{
	if (turns->longest_ns == 0) {
		print_message("  reactor beside the %s: no turn took long\n", beside);
		return;
	}
	print_message("  reactor beside the %s: longest turn %.3f ms (%s%s%s), %llu overruns\n",
		      beside, (double)turns->longest_ns / 1e6,
		      turns->cause < RBK_TURN_CAUSES ? causes[turns->cause] : "unknown",
		      turns->tenant[0] ? ", tenant " : "", turns->tenant,
		      (unsigned long long)turns->n_overruns);
}

static double part(uint64_t ns, uint64_t of_ns)
{
	return of_ns ? (double)ns / (double)of_ns : 0;
}

static void print_load(const struct attack_result *result, const char *beside,
		       enum attack_phase phase)
{
	const struct attack_load *load = &result->loads[phase];
	uint64_t gap_ns = result->attack->gap_ns[phase];

	print_message("  processors beside the %s: it used %.2f, brokerd %.2f; ", beside,
		      part(load->member_ns, load->wall_ns), part(load->broker_ns, load->wall_ns));
	if (gap_ns > 0)
		print_message("the machine itself stood still for up to %.3f ms\n",
			      (double)gap_ns / 1e6);
	else
		print_message("nobody may tell whether the machine stood still\n");
}

/* Print the attacker's rate, and the results of entries, in rows that count them. */
static void print_odd(const struct attack_result *result)
{
	const struct attack_load *load = &result->loads[ATTACK_BESIDE_ATTACKER];
	const struct attack *attack = result->attack;

	if (attack->n_changed == 0)
		return;
	print_message("  %.0f a second, %llu not valid, %llu sessions ended;",
		      (double)attack->n_done * 1e9 / (double)(load->wall_ns ? load->wall_ns : 1),
		      (unsigned long long)attack->n_changed, (unsigned long long)attack->n_ended);
	for (int i = 0; i < ATTACK_N_ERRORS; i++)
		if (attack->n_by_errno[i])
			print_message(" %s %llu", i ? strerrorname_np(i) : "0",
				      (unsigned long long)attack->n_by_errno[i]);
	print_message("\n");
}

void attack_print_table(struct attack_result *result)
{
	const struct attack *attack = result->attack;
	const struct attack_rest *before = &result->before, *after = &result->after;

	print_message("row %u, %s: %s\n", result->row->number, result->row->name,
		      result->row->what);
	print_message("row sessions neighbour | p50 ms: friend, attack, ratio | p99 | longest | "
		      "tasks\n");
	result->is_within = true;
	for (unsigned int kind = 0; kind < ATTACK_N_KINDS; kind++)
		if (is_shown(attack, kind))
			result->is_within &= print_kind(result, kind);
	if (!result->options->is_quick)
		print_turns("friend", &result->turns[ATTACK_BESIDE_FRIEND]);
	print_turns("attacker", &result->turns[ATTACK_BESIDE_ATTACKER]);
	if (!result->options->is_quick)
		print_load(result, "friend", ATTACK_BESIDE_FRIEND);
	print_load(result, "attacker", ATTACK_BESIDE_ATTACKER);
	print_message("  attacker: %llu done, %llu refused; its longest %.3f ms; longest answer to "
		      "an administrator %.3f ms\n",
		      (unsigned long long)attack->n_done, (unsigned long long)attack->n_refused,
		      (double)attack->longest_ns / 1e6, (double)result->longest_answer_ns / 1e6);
	print_odd(result);
	print_message("  brokerd's memory: %.1f MiB more than before at most, charged %.1f MiB; "
		      "above charges at most %.1f MiB; %u open files at most\n",
		      mib(result->memory_bytes), mib(result->charged_bytes),
		      mib(result->excess_bytes), result->most_fds);
	print_message("  before and after: %u %u descriptors, %u %u threads, %.1f %.1f MiB of "
		      "memory, %.1f %.1f MiB charged; all gone after %.1f ms\n",
		      before->usage.n_fds, after->usage.n_fds, before->usage.n_threads,
		      after->usage.n_threads, mib(before->usage.rss_bytes),
		      mib(after->usage.rss_bytes), mib(before->stats.host_bytes),
		      mib(after->stats.host_bytes), (double)result->rest_ns / 1e6);
	if (!result->is_within)
		print_message("  times: above what is to be reached\n");
	if (result->turns[ATTACK_BESIDE_ATTACKER].longest_ns > turn_limit_ns)
		print_message("  longest turn: above what is to be reached\n");
}

static void json_figures(FILE *file, const char *name, const uint64_t figures[N_FIGURES],
			 uint64_t n)
{
	fprintf(file, "\"%s\": {\"n\": %llu", name, (unsigned long long)n);
	for (unsigned int i = 0; i < N_FIGURES; i++)
		fprintf(file, ", \"%s\": %llu", figure_names[i], (unsigned long long)figures[i]);
	fprintf(file, "}");
}

static void json_phase(FILE *file, const char *name, const struct attack_result *result,
		       enum attack_phase phase)
{
	const struct attack_turns *turns = &result->turns[phase];
	const struct attack_load *load = &result->loads[phase];

	fprintf(file, ", \"load_%s\": {\"member\": %.3f, \"broker\": %.3f, \"gap_ns\": %llu}", name,
		part(load->member_ns, load->wall_ns), part(load->broker_ns, load->wall_ns),
		(unsigned long long)result->attack->gap_ns[phase]);
	fprintf(file, ", \"turns_%s\": {\"longest_ns\": %llu, \"cause\": ", name,
		(unsigned long long)turns->longest_ns);
	if (turns->longest_ns && turns->cause < RBK_TURN_CAUSES)
		fprintf(file, "\"%s\"", causes[turns->cause]);
	else
		fprintf(file, "null");
	/* The referee chooses these tenants' names: they need no escaping. */
	fprintf(file, ", \"tenant\": \"%s\", \"overruns\": %llu}", turns->tenant,
		(unsigned long long)turns->n_overruns);
}

static void json_rest(FILE *file, const char *name, const struct attack_rest *rest)
{
	fprintf(file,
		", \"%s\": {\"descriptors\": %u, \"threads\": %u, \"memory_bytes\": %llu, "
		"\"charged_bytes\": %llu, \"sessions\": %llu, \"plans\": %llu}",
		name, rest->usage.n_fds, rest->usage.n_threads,
		(unsigned long long)rest->usage.rss_bytes,
		(unsigned long long)rest->stats.host_bytes,
		(unsigned long long)rest->stats.sessions, (unsigned long long)rest->stats.plans);
}

void attack_print_json(const struct attack_result *result, FILE *file)
{
	const struct attack *attack = result->attack;
	uint64_t figures[ATTACK_N_PHASES][N_FIGURES];
	const char *comma = "";

	fprintf(file,
		"{\"row\": %u, \"name\": \"%s\", \"sessions\": %u, \"windows\": %u, "
		"\"window_ns\": %llu, \"neighbour\": {",
		result->row->number, result->row->name, attack->n_sessions,
		result->options->n_windows, (unsigned long long)result->options->window_ns);
	for (unsigned int kind = 0; kind < ATTACK_N_KINDS; kind++) {
		if (!is_shown(attack, kind))
			continue;
		fprintf(file, "%s\"%s\": {", comma, kinds[kind]);
		for (enum attack_phase i = ATTACK_BESIDE_FRIEND; i <= ATTACK_BESIDE_ATTACKER; i++) {
			figures_of(attack, i, kind, figures[i]);
			json_figures(file, i == ATTACK_BESIDE_FRIEND ? "friend" : "attack",
				     figures[i], attack->times[i][kind].n);
			fprintf(file, ", ");
		}
		fprintf(file, "\"ratio\": {\"p50\": %.3f, \"p99\": %.3f, \"longest\": %.3f}}",
			ratio(figures[ATTACK_BESIDE_ATTACKER][P50],
			      figures[ATTACK_BESIDE_FRIEND][P50]),
			ratio(figures[ATTACK_BESIDE_ATTACKER][P99],
			      figures[ATTACK_BESIDE_FRIEND][P99]),
			ratio(figures[ATTACK_BESIDE_ATTACKER][LONGEST],
			      figures[ATTACK_BESIDE_FRIEND][LONGEST]));
		comma = ", ";
	}
	fprintf(file, "}");
	json_phase(file, "friend", result, ATTACK_BESIDE_FRIEND);
	json_phase(file, "attack", result, ATTACK_BESIDE_ATTACKER);
	fprintf(file,
		", \"attacker\": {\"done\": %llu, \"refused\": %llu, \"longest_ns\": %llu}"
		", \"longest_answer_ns\": %llu, \"memory_bytes\": %llu, \"charged_bytes\": %llu"
		", \"excess_bytes\": %llu, \"open_files\": %u",
		(unsigned long long)attack->n_done, (unsigned long long)attack->n_refused,
		(unsigned long long)attack->longest_ns,
		(unsigned long long)result->longest_answer_ns,
		(unsigned long long)result->memory_bytes, (unsigned long long)result->charged_bytes,
		(unsigned long long)result->excess_bytes, result->most_fds);
	json_rest(file, "before", &result->before);
	json_rest(file, "after", &result->after);
	fprintf(file, ", \"rest_ns\": %llu, \"within\": %s, \"wrong\": %u}\n",
		(unsigned long long)result->rest_ns,
		result->options->is_quick ? "null"
		: result->is_within       ? "true"
					  : "false",
		result->n_wrong);
	fflush(file);
}
