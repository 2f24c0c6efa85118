/* SPDX-License-Identifier: MIT */
/*
 * decisions: who computes, who waits awake, and who sleeps
 *
 * brokerd's reactor and libringbroker decide by time: they predict the ends of tasks, and remember
 * how long entries stayed away and what a sleep costs. Here both run on the simulated machine,
 * without failures. In a scene a client does the same task again and again, beside a neighbour with
 * NOPs, in phases that differ. The figures of a phase are virtual times, so that a bound may be as
 * tight as the decision is, on the slowest machine.
 *
 * A step takes STEP_NS, and threads that run at the same time take turns. A thread that is woken by
 * another runs up to the scene's lag later; one that a timer wakes, at once.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/apart.h"
#include "simulator/broker.h"
#include "simulator/client-private.h"
#include "simulator/machine.h"
#include "util/checked.h"

enum {
	STEP_NS = 10,
	TURN_STEPS = 8, /* mean steps until another thread runs */
	MAX_PHASES = 4,
	BRANCHES_SEED = 3, /* for which a plan of branches is cut before each node */
	CLIENT = SIM_CLIENT,
	NEIGHBOUR,
	SECOND_NEIGHBOUR,
};

/* The work of the client, and the state of the machine meanwhile */
struct phase {
	unsigned int n;        /* tasks */
	uint32_t n_rows;       /* of a task; 0: it is a NOP */
	bool on_card, on_any;  /* neither: on a processor */
	uint64_t gap_ns;       /* from a completion to the next task */
	uint64_t piece_ns;     /* longest piece of a task on a processor; 0: as usual */
	uint64_t neighbour_ns; /* between the neighbour's NOPs; 0: it has none; a step: no sleep */
	bool has_card_tasks;   /* the neighbour has tasks of the card instead of NOPs */
	bool is_contended;
};

/* Figures of a phase. Times and sleeps are sums. */
struct figures {
	uint64_t n;
	uint64_t wait_ns, longest_ns; /* of the client's waits */
	uint64_t late_ns;             /* from the end of a task to the end of the client's wait */
	uint64_t neighbour_ns;        /* the neighbour's longest wait */
	uint64_t client_ran_ns, broker_ran_ns;
	uint64_t n_client_sleeps, n_reactor_sleeps;
	uint64_t n_bells;                /* that the client rang */
	struct sim_device_counts counts; /* of tasks of the processor */
};

struct scene {
	const char *name;
	bool has_branches; /* the client's plan is cut into two branches and the node that joins
			      them */
	uint64_t task_ns, row_ns; /* duration of a task on a processor, and of each of its rows */
	uint64_t card_ns;         /* on a card */
	uint64_t reactor_task_ns;
	int64_t spin_ns; /* as brokerd's option */
	unsigned int n_processors;
	bool has_quota;
	bool has_two_neighbours;
	bool is_one_place; /* all threads seem to be on one of them */
	uint64_t lag_ns;
	struct phase phases[MAX_PHASES];
	void (*check)(const struct figures *figures);
};

static struct {
	const struct scene *scene;
	struct sim_broker_options broker;
	char socket_path[128];
	unsigned int phase; /* in which the client is */
	bool has_ended, is_stopped;
	struct figures figures[MAX_PHASES];
} sim __attribute__((__section__("sim_variables")));

static uint64_t seed __attribute__((__section__("sim_variables")));

#define expect(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			sim_violation("%s, phase %td: %s", sim.scene->name, figures - sim.figures, \
				      #condition);                                                 \
	} while (0)

/* --- Clients --- */

struct party {
	struct rbk *rbk;
	struct rbk_arena *arena, *constants;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	uint64_t refs[2];
};

static void must(int r, const struct rbk_error *error)
{
	if (r)
		sim_violation("a request failed: %d %s", r, error->text);
}

static struct rbk_arena *make_constants(struct party *party)
{
	struct rbk_arena *arena = NULL;
	struct rbk_error error = {""};

	must(rbk_arena_new(party->rbk, 2 * CONSTANT_WORDS * 4, &arena, &error), &error);
	must(rbk_arena_seal(arena, &error), &error);
	return arena;
}

/* @kind: of the plan */
static void party_begin(struct party *party, enum plan_kind kind)
{
	const struct rbk_options options = {.size = sizeof(options),
					    .socket_path = sim.socket_path};
	struct rbk_error error = {""};
	struct rbk_builder *builder;

	/* The broker starts at the same time. */
	for (unsigned int i = 0; rbk_connect(&options, &party->rbk, &error); i++) {
		sim_check(i < 1000);
		client_sleep_ns(1000000);
	}
	must(rbk_arena_new(party->rbk, 2 * SLOT_BYTES, &party->arena, &error), &error);
	for (unsigned int i = 0; i < 2; i++)
		party->refs[i] = rbk_ref(party->arena, rbk_arena_alloc(party->arena, SLOT_BYTES));
	party->constants = kind == PLAN_BRANCHES ? make_constants(party) : NULL;
	builder = client_build_plan(party->constants, kind);
	must(rbk_plan_new(party->rbk, builder, MAX_ROWS, &party->plan, &error), &error);
	rbk_builder_free(builder);
	must(rbk_ring_new(party->rbk, 16, &party->ring, &error), &error);
}

static void party_end(struct party *party)
{
	rbk_ring_free(party->ring);
	rbk_plan_free(party->plan);
	rbk_arena_free(party->arena);
	rbk_arena_free(party->constants);
	rbk_disconnect(party->rbk);
}

/* Run a task, and wait for it. Return: the time until its completion. */
static uint64_t party_run(struct party *party, uint32_t n_rows, uint8_t strategy)
{
	struct rbk_sqe *sqe = rbk_get_sqe(party->ring);
	const uint64_t begin_ns = sim_now_ns();
	const struct rbk_cqe *cqe;

	if (n_rows == 0) {
		rbk_prep_nop(sqe);
	} else {
		rbk_prep_run(sqe, rbk_plan_id(party->plan), n_rows, party->refs, 2);
		rbk_sqe_set_strategy(sqe, strategy);
		if (strategy == RBK_STRATEGY_ONLY_GPU)
			rbk_sqe_set_wait_memory(sqe);
	}
	sim_check(rbk_submit(party->ring) == 1);
	sim_check(rbk_wait_cqe(party->ring, &cqe) == 0);
	sim_check(cqe->res == 0);
	rbk_cqe_seen(party->ring, cqe);
	return sim_now_ns() - begin_ns;
}

/* Add what processes and devices have done so far, @sign times. */
static void count(struct figures *figures, uint64_t sign)
{
	const struct sim_device_counts *counts = sim_device_counts();

	figures->client_ran_ns += sign * sim_ran_ns(CLIENT);
	figures->broker_ran_ns += sign * sim_ran_ns(SIM_BROKER);
	figures->n_client_sleeps += sign * sim_n_sleeps(CLIENT);
	figures->n_reactor_sleeps += sign * sim_n_sleeps(SIM_BROKER);
	figures->n_bells += sign * sim_n_bells(CLIENT);
	figures->counts.n_here += sign * counts->n_here;
	figures->counts.n_left += sign * counts->n_left;
	figures->counts.n_worker += sign * counts->n_worker;
}

static void run_phase(struct party *party, const struct phase *phase, struct figures *figures)
{
	const uint8_t strategy = phase->on_any    ? RBK_STRATEGY_AUTO
				 : phase->on_card ? RBK_STRATEGY_ONLY_GPU
						  : RBK_STRATEGY_ONLY_CPU;
	uint64_t wait_ns;

	sim_device_set_piece(phase->piece_ns);
	sim_broker_set_contended(phase->is_contended);
	count(figures, -1ull);
	for (; figures->n < phase->n; figures->n++) {
		wait_ns = party_run(party, phase->n_rows, strategy);
		figures->wait_ns += wait_ns;
		if (phase->n_rows > 0)
			figures->late_ns += sim_now_ns() - sim_device_done_ns();
		if (wait_ns > figures->longest_ns)
			figures->longest_ns = wait_ns;
		if (phase->gap_ns > 0)
			client_sleep_ns(phase->gap_ns);
	}
	count(figures, 1);
}

static void client_main(void *data)
{
	struct party party;

	party_begin(&party, sim.scene->has_branches ? PLAN_BRANCHES : PLAN_ELEMENTS);
	for (; sim.phase < MAX_PHASES && sim.scene->phases[sim.phase].n > 0; sim.phase++)
		run_phase(&party, &sim.scene->phases[sim.phase], &sim.figures[sim.phase]);
	sim.has_ended = true;
	party_end(&party);
}

static void neighbour_main(void *data)
{
	struct party party;

	party_begin(&party, PLAN_ELEMENTS);
	while (!sim.has_ended) {
		const unsigned int phase = sim.phase;
		const uint64_t pause_ns = sim.scene->phases[phase].neighbour_ns;
		uint64_t wait_ns;

		if (pause_ns == 0) {
			client_sleep_ns(1000000);
			continue;
		}
		wait_ns = sim.scene->phases[phase].has_card_tasks
				  ? party_run(&party, 1, RBK_STRATEGY_ONLY_GPU)
				  : party_run(&party, 0, RBK_STRATEGY_AUTO);
		if (wait_ns > sim.figures[phase].neighbour_ns)
			sim.figures[phase].neighbour_ns = wait_ns;
		if (pause_ns > STEP_NS)
			client_sleep_ns(pause_ns);
	}
	party_end(&party);
}

/* --- Scenes --- */

/* Short tasks run on the reactor. Longer ones do not. */
static void check_reactor(const struct figures *figures)
{
	figures++;
	expect(figures->counts.n_here == figures->n);
	expect(figures->wait_ns / figures->n < 210000);
	figures++;
	expect(figures->counts.n_here < 3);
	expect(figures->counts.n_worker + 3 > figures->n);
}

/* A neighbour's entry waits for one piece of a task. */
static void check_neighbour(const struct figures *figures)
{
	figures++;
	expect(figures->counts.n_here >= figures->n * 9 / 10);
	expect(figures->neighbour_ns < 40000);
}

/* While a neighbour has entries all the time, workers have the tasks; later the reactor has them.
 */
static void check_busy_neighbour(const struct figures *figures)
{
	figures++;
	expect(figures->counts.n_here <= figures->n / 10);
	expect(figures->counts.n_left <= figures->n / 10);
	expect(figures->neighbour_ns < 40000);
	figures++;
	expect(figures->counts.n_here > figures->n * 9 / 10);
}

/*
 * A plan with pieces that are too long leaves the reactor after eight tasks, is tried once in 100
 * ms, and comes back when its pieces are short.
 */
static void check_overruns(const struct figures *figures)
{
	figures++;
	expect(figures->counts.n_here >= 8);
	expect(figures->counts.n_here <= 8 + figures->wait_ns / 100000000);
	expect(figures->counts.n_here >= 4 + figures->wait_ns / 100000000);
	/* The reactor polls the ring again before the client sees the completion. */
	expect(figures->n_bells < figures->n / 20);
	figures++;
	expect(figures->counts.n_here > figures->n / 2);
}

/* A reactor is awake while entries come every 100 us, and sleeps soon where they are rarer. */
static void check_gaps(const struct figures *figures)
{
	figures++;
	expect(figures->n_reactor_sleeps == 0);
	figures++;
	expect(figures->n_reactor_sleeps >= figures->n - 1);
	expect(figures->broker_ran_ns / figures->n < 10000);
}

/* A neighbour's task of a card is taken back while the reactor computes, and its client is told. */
static void check_card_beside(const struct figures *figures)
{
	figures += 2;
	expect(figures->counts.n_here >= figures->n * 9 / 10);
	expect(figures->neighbour_ns < sim.scene->card_ns + 60000);
}

/* With one processor, no thread polls but for the looks before a sleep. */
static void check_one_processor(const struct figures *figures)
{
	figures++;
	expect(figures->broker_ran_ns / figures->n < 1500);
	expect(figures->client_ran_ns / figures->n < 1500);
}

/* Reactor and client hardly spin under contention, or on the same processor. */
static void check_no_spin(const struct figures *figures)
{
	figures++;
	expect(figures->broker_ran_ns / figures->n < 5000);
	expect(figures->client_ran_ns / figures->n < 5000);
}

/*
 * A client whose entries are rare rings once for each. While neighbours keep the reactor awake
 * anyway, it hardly rings, under contention as well, if there are more rings than processors.
 */
static void check_awake_beside(const struct figures *figures)
{
	figures++;
	expect(figures->n_bells >= figures->n - 1);
	figures++;
	expect(figures->n_bells < figures->n / 2);
}

/* With a quota the reactor spins for about as long as a sleep and a wake-up take. */
static void check_quota(const struct figures *figures)
{
	figures++;
	expect(figures->broker_ran_ns / figures->n < 15000);
}

/* Client and reactor are awake at the end of a card's task, and otherwise asleep. */
static void check_card(const struct figures *figures)
{
	figures++;
	expect(figures->late_ns / figures->n < 15000);
	expect(figures->broker_ran_ns / figures->n < 60000);
	expect(figures->client_ran_ns / figures->n < 60000);
	figures++;
	expect(figures->broker_ran_ns / figures->n < 10000);
}

/* After a card's task the reactor is awake for the next one, also when pauses are over. */
static void check_card_after_pauses(const struct figures *figures)
{
	figures += 2;
	expect(figures->n_reactor_sleeps < figures->n * 8 / 5);
}

/* While a worker computes, the others are asleep, but for the client shortly before the end. */
static void check_worker(const struct figures *figures)
{
	figures++;
	expect(figures->counts.n_worker == figures->n);
	expect(figures->broker_ran_ns / figures->n < 15000);
	expect(figures->client_ran_ns / figures->n < 90000);
}

/*
 * Two branches take as long as one: the card has one, a worker the other, and what joins them. One
 * after the other, the three segments would take 3 ms.
 */
static void check_branches(const struct figures *figures)
{
	figures++;
	expect(figures->wait_ns / figures->n < 2200000);
	expect(figures->counts.n_worker > figures->n);
}

static const struct scene scenes[] = {
	{
		.name = "reactor",
		.task_ns = 100000,
		.row_ns = 100000,
		.reactor_task_ns = 500000,
		.phases = {{.n = 30, .n_rows = 1}, {.n = 100, .n_rows = 1}, {.n = 30, .n_rows = 8}},
		.check = check_reactor,
	},
	{
		.name = "neighbour",
		.task_ns = 1500000,
		.phases = {{.n = 30, .n_rows = 1}, {.n = 100, .n_rows = 1, .neighbour_ns = 700000}},
		.check = check_neighbour,
	},
	{
		.name = "card beside",
		.task_ns = 1900000,
		.card_ns = 1000000,
		.phases =
			{{.n = 30, .n_rows = 1},
			 {.n = 30, .n_rows = 1, .neighbour_ns = 1000000, .has_card_tasks = true},
			 {.n = 100, .n_rows = 1, .neighbour_ns = 1000000, .has_card_tasks = true}},
		.check = check_card_beside,
	},
	{
		.name = "busy neighbour",
		.task_ns = 100000,
		.phases = {{.n = 30, .n_rows = 1},
			   {.n = 100, .n_rows = 1, .neighbour_ns = 10000},
			   {.n = 100, .n_rows = 1}},
		.check = check_busy_neighbour,
	},
	{
		.name = "overruns",
		.task_ns = 400000,
		.phases = {{.n = 30, .n_rows = 1},
			   {.n = 1000, .n_rows = 1, .piece_ns = 100000},
			   {.n = 500, .n_rows = 1}},
		.check = check_overruns,
	},
	{
		.name = "gaps",
		.phases = {{.n = 30, .gap_ns = 100000},
			   {.n = 300, .gap_ns = 100000},
			   {.n = 100, .gap_ns = 5000000}},
		.check = check_gaps,
	},
	{
		.name = "one processor",
		.n_processors = 1,
		.phases = {{.n = 30, .gap_ns = 100000}, {.n = 300, .gap_ns = 100000}},
		.check = check_one_processor,
	},
	{
		.name = "contention",
		.phases = {{.n = 30, .gap_ns = 100000},
			   {.n = 300, .gap_ns = 100000, .is_contended = true}},
		.check = check_no_spin,
	},
	{
		.name = "quota",
		.has_quota = true,
		.phases = {{.n = 30, .gap_ns = 100000}, {.n = 300, .gap_ns = 100000}},
		.check = check_quota,
	},
	{
		.name = "one place",
		.is_one_place = true,
		.phases = {{.n = 30, .gap_ns = 100000}, {.n = 300, .gap_ns = 100000}},
		.check = check_no_spin,
	},
	{
		.name = "awake beside",
		.n_processors = 2, /* fewer than rings */
		.has_two_neighbours = true,
		.phases = {{.n = 30, .gap_ns = 100000, .is_contended = true},
			   {.n = 100, .gap_ns = 100000, .is_contended = true},
			   {.n = 100,
			    .gap_ns = 100000,
			    .neighbour_ns = STEP_NS,
			    .is_contended = true}},
		.check = check_awake_beside,
	},
	{
		.name = "card",
		.card_ns = 5000000,
		.lag_ns = 40000,
		.phases = {{.n = 30, .n_rows = 1, .on_card = true},
			   {.n = 100, .n_rows = 1, .on_card = true},
			   {.n = 100, .n_rows = 1, .on_card = true, .is_contended = true}},
		.check = check_card,
	},
	{
		.name = "card, pauses",
		.card_ns = 1000000,
		.lag_ns = 40000,
		.phases = {{.n = 100, .n_rows = 1, .on_card = true, .gap_ns = 5000},
			   {.n = 30, .n_rows = 1, .on_card = true, .gap_ns = 5000000},
			   {.n = 100, .n_rows = 1, .on_card = true, .gap_ns = 5000}},
		.check = check_card_after_pauses,
	},
	{
		.name = "worker",
		.task_ns = 3000000,
		.n_processors = 2,
		.lag_ns = 40000,
		.phases = {{.n = 30, .n_rows = 1}, {.n = 100, .n_rows = 1}},
		.check = check_worker,
	},
	{
		.name = "branches",
		.has_branches = true,
		.task_ns = 1000000,
		.card_ns = 1000000,
		.reactor_task_ns = 1,
		.phases = {{.n = 100, .n_rows = 1, .on_any = true},
			   {.n = 100, .n_rows = 1, .on_any = true}},
		.check = check_branches,
	},
};

/* --- A scene --- */

/* Called between threads: end the broker after the clients. */
static bool is_over(void)
{
	if (sim_process_exists(CLIENT) || sim_process_exists(NEIGHBOUR))
		return false;
	if (!sim.is_stopped)
		sim.is_stopped = sim_broker_stop();
	return sim.is_stopped && !sim_process_exists(SIM_BROKER);
}

static void report(void)
{
	for (unsigned int i = 0; i < MAX_PHASES && sim.figures[i].n > 0; i++) {
		const struct figures *figures = &sim.figures[i];
		const double n = 1e3 * (double)figures->n;

		printf("%-15s %5u %6llu %8.1f %8.1f %6.1f %8.1f %8.1f %8.1f %6llu %6llu %6llu "
		       "%6llu %6llu %6llu\n",
		       i == 0 ? sim.scene->name : "", i, (unsigned long long)figures->n,
		       (double)figures->wait_ns / n, (double)figures->longest_ns / 1e3,
		       (double)figures->late_ns / n, (double)figures->neighbour_ns / 1e3,
		       (double)figures->client_ran_ns / n, (double)figures->broker_ran_ns / n,
		       (unsigned long long)figures->n_client_sleeps,
		       (unsigned long long)figures->n_reactor_sleeps,
		       (unsigned long long)figures->n_bells,
		       (unsigned long long)figures->counts.n_here,
		       (unsigned long long)figures->counts.n_left,
		       (unsigned long long)figures->counts.n_worker);
	}
}

static void play(const char *folder, void *data)
{
	const struct scene *scene = data;
	const struct sim_machine_options options = {
		.seed = seed,
		.n_processors = scene->n_processors ? scene->n_processors : 4,
		.is_one_place = scene->is_one_place,
		.is_parallel = true,
		.chances = {
			.step_ns = STEP_NS,
			.switches = (1ull << 32) / TURN_STEPS,
			.lags = scene->lag_ns > 0 ? UINT32_MAX : 0,
			.lag_ns = scene->lag_ns,
		}};

	sim_machine_init(&options);
	sim.scene = scene;
	sim.broker = (struct sim_broker_options){
		.folder = folder,
		.devices = {{.is_honest = true,
			     .task_ns = scene->task_ns,
			     .row_ns = scene->row_ns,
			     .late_ns = SIM_NEVER},
			    {.is_card = true,
			     .memory_bytes = 64 * SIM_CARD_PAGE,
			     .task_ns = scene->card_ns,
			     .late_ns = SIM_NEVER}},
		.first_hostile = SIM_PROCESSES,
		.first_holder = SIM_PROCESSES,
		.spin_ns = -1,
		.reactor_task_ns = scene->reactor_task_ns ? scene->reactor_task_ns : 2000000,
		.has_quota = scene->has_quota,
		.cut_seed = scene->has_branches ? BRANCHES_SEED : 0,
	};
	snprintf(sim.socket_path, sizeof(sim.socket_path), "%s/socket", folder);
	sim_policy_write(folder, 0, 16, SIM_PROCESSES);
	sim_process_start(SIM_BROKER, "broker", sim_broker_main, &sim.broker);
	sim_process_start(CLIENT, "client", client_main, NULL);
	sim_process_start(NEIGHBOUR, "neighbour", neighbour_main, NULL);
	if (scene->has_two_neighbours)
		sim_process_start(SECOND_NEIGHBOUR, "second neighbour", neighbour_main, NULL);
	if (!sim_run(is_over))
		sim_violation("nothing can run any more: a wake-up is lost");
	report();
	fflush(stdout);
	scene->check(sim.figures);
}

static const char usage[] =
	"usage: decisions [SEED]\n"
	"Plays scenes with brokerd's reactor and clients in virtual time, and checks who computes, "
	"who\n"
	"waits awake, and who sleeps. SEED (default: 1) decides how threads take turns.\n";

int main(int argc, char **argv)
{
	unsigned int n_bad = 0;
	char *end = "";

	sim_fix_addresses(argv);
	seed = argc > 1 ? strtoull(argv[1], &end, 10) : 1;
	if (argc > 2 || *end != '\0') {
		fputs(usage, stderr);
		return 2;
	}
	printf("times per task in microseconds; \"here\": run by the reactor; \"left\": begun by "
	       "it\n"
	       "%-15s %5s %6s %8s %8s %6s %8s %8s %8s %6s %6s %6s %6s %6s %6s\n",
	       "scene", "phase", "tasks", "wait", "longest", "late", "NOP's", "client", "broker",
	       "sleeps", "reac's", "bells", "here", "left", "worker");
	for (size_t i = 0; i < ARRAY_SIZE(scenes); i++)
		n_bad += !sim_run_apart(play, (void *)&scenes[i]);
	return n_bad > 0;
}
