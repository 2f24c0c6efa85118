/* SPDX-License-Identifier: MIT */
/*
 * faultsim: one program that tries everything
 *
 * Runs rounds, one for each seed. Each round has a process of its own, so a violation, a crash or a
 * hang ends that round alone.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "simulator/apart.h"
#include "simulator/real.h"
#include "simulator/round.h"

static const char usage[] =
	"usage: faultsim [--seed=N] [--rounds=N] [--seconds=N] [--first] [--twice] [--verbose]\n"
	"Simulates brokerd, its clients and everything that can go wrong, in virtual time.\n"
	"\n"
	"  --seed=N     the first round's seed, a number or \"random\"; then N+1, ... (default: "
	"1)\n"
	"  --rounds=N   end after N rounds (default: 1)\n"
	"  --seconds=N  run rounds for N seconds instead\n"
	"  --first      end after the first violation\n"
	"  --twice      run each round twice: it must do the same\n"
	"  --verbose    trace what happens; use it with the seed of a violation\n"
	"\n"
	"A violation prints the seed. With FAULTSIM_ABORT=1 it aborts, for a debugger.\n"
	"Exit status: 0: no violation; 1: a violation; 2: wrong use.\n";

struct options {
	uint64_t seed, n_rounds, seconds;
	bool is_verbose, is_over_at_first, runs_twice;
};

static volatile sig_atomic_t must_end;

/* End after this round, whose folder is then removed. */
static void on_term(int number)
{
	must_end = 1;
}

static uint64_t real_ms(void)
{
	struct timespec now;

	__real_clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool number_of(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno == 0 && end != text && *end == '\0' && *text != '-';
}

/* Return: -1 to go on; otherwise the exit status. */
static int parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{"seed", required_argument, NULL, 's'},    {"rounds", required_argument, NULL, 'r'},
		{"seconds", required_argument, NULL, 't'}, {"first", no_argument, NULL, 'f'},
		{"twice", no_argument, NULL, '2'},         {"verbose", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
	};
	bool is_right = true;
	int option;

	*options = (struct options){.seed = 1, .n_rounds = 1};
	while ((option = getopt_long(argc, argv, "h", known, NULL)) >= 0) {
		switch (option) {
		case 's':
			if (strcmp(optarg, "random") == 0)
				options->seed = (uint64_t)time(NULL) * 1000003 % 1000000000;
			else
				is_right &= number_of(optarg, &options->seed);
			break;
		case 'r':
			is_right &= number_of(optarg, &options->n_rounds);
			break;
		case 't':
			is_right &= number_of(optarg, &options->seconds);
			options->n_rounds = UINT64_MAX;
			break;
		case '2':
			options->runs_twice = true;
			break;
		case 'v':
			options->is_verbose = true;
			break;
		case 'f':
			options->is_over_at_first = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			is_right = false;
		}
	}
	if (is_right && optind == argc)
		return -1;
	fputs(usage, stderr);
	return 2;
}

struct round {
	const struct options *options;
	uint64_t seed;
	struct sim_round_figures *figures;
};

static void run_here(const char *folder, void *data)
{
	const struct round *round = data;

	sim_round(round->seed, folder, round->options->is_verbose, round->figures);
}

/* Run a round in a process of its own. Return: true: nothing was violated. */
static bool run_round(const struct options *options, uint64_t seed,
		      struct sim_round_figures *figures)
{
	struct round round = {options, seed, figures};

	if (sim_run_apart(run_here, &round))
		return true;
	fprintf(stderr, "to repeat it: faultsim --seed=%llu --verbose\n", (unsigned long long)seed);
	return false;
}

/* Run a round again and compare. Return: true: it did the same. */
static bool repeat_round(const struct options *options, uint64_t seed,
			 struct sim_round_figures *figures)
{
	const struct sim_round_figures first = *figures;

	if (!run_round(options, seed, figures))
		return false;
	if (memcmp(&first, figures, sizeof(first)) == 0)
		return true;
	fprintf(stderr, "the round of seed %llu took %llu steps, and then %llu\n",
		(unsigned long long)seed, (unsigned long long)first.n_steps,
		(unsigned long long)figures->n_steps);
	return false;
}

static void add(struct sim_round_figures *sum, const struct sim_round_figures *figures)
{
	const uint64_t *from = (const uint64_t *)figures;
	uint64_t *to = (uint64_t *)sum;

	for (unsigned int i = 0; i < sizeof(*sum) / sizeof(uint64_t); i++)
		to[i] += from[i];
}

static unsigned long long ull(uint64_t n)
{
	return n;
}

static void report(const struct sim_round_figures *sum, uint64_t n_rounds, uint64_t n_bad,
		   uint64_t ms)
{
	const double seconds = (double)ms / 1e3 + 1e-3;

	printf("%llu rounds, %llu violations, in %.1f s: %.0f virtual seconds (%.0f a second), "
	       "%llu steps (%.1f million a minute)\n",
	       ull(n_rounds), ull(n_bad), seconds, (double)sum->virtual_ns / 1e9,
	       (double)sum->virtual_ns / 1e9 / seconds, ull(sum->n_steps),
	       (double)sum->n_steps * 60 / seconds / 1e6);
	printf("%llu entries, %llu completions (%llu failed, %llu cancelled); %llu tasks on "
	       "devices; deaths: %llu of brokers, %llu of clients; %llu re-attachments, %llu "
	       "losses "
	       "of devices, %llu sessions lost, %llu states lost, %llu reloads, %llu leases\n",
	       ull(sum->n_entries), ull(sum->n_completions), ull(sum->n_failed),
	       ull(sum->n_cancelled), ull(sum->n_tasks), ull(sum->n_broker_deaths),
	       ull(sum->n_client_deaths), ull(sum->n_reattached), ull(sum->n_losses),
	       ull(sum->n_sessions_lost), ull(sum->n_states_lost), ull(sum->n_reloads),
	       ull(sum->n_leases));
}

int main(int argc, char **argv)
{
	struct sim_round_figures sum = {0}, *figures;
	struct options options;
	uint64_t begin_ms = real_ms(), n_rounds = 0, n_bad = 0;
	int r;

	sim_fix_addresses(argv);
	r = parse(argc, argv, &options);
	if (r >= 0)
		return r;
	figures = mmap(NULL, sizeof(*figures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (figures == MAP_FAILED)
		return 2;
	signal(SIGTERM, on_term);
	for (; n_rounds < options.n_rounds && !(n_bad > 0 && options.is_over_at_first) && !must_end;
	     n_rounds++) {
		if (options.seconds > 0 && real_ms() - begin_ms >= options.seconds * 1000)
			break;
		*figures = (struct sim_round_figures){0};
		if (!run_round(&options, options.seed + n_rounds, figures) ||
		    (options.runs_twice &&
		     !repeat_round(&options, options.seed + n_rounds, figures)))
			n_bad++;
		add(&sum, figures);
	}
	report(&sum, n_rounds, n_bad, real_ms() - begin_ms);
	return n_bad > 0;
}
