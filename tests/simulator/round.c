/* SPDX-License-Identifier: MIT */
/* Rounds: see round.h */
#include "simulator/round.h"

#include <stdio.h>
#include <string.h>

#include "simulator/broker.h"
#include "simulator/client.h"
#include "simulator/holder.h"
#include "simulator/hostile.h"
#include "simulator/machine.h"

/* The director's slots */
enum { AT_END, AT_BROKER, AT_DEATH, AT_STOP, AT_RELOAD, AT_CLIENT, AT_OTHERS };

/* A round that has come so far ends: another one finds more. */
enum { MAX_STEPS = 400000, MIN_STEPS = 20000 };

/* One round in so many is quiet. */
enum { QUIET_ROUNDS = 5 };

/* Longest end of a round; clients wait two minutes for a broker that does not come back. */
static const uint64_t max_end_ns = 3600000000000u;

struct round {
	const char *folder;
	char socket_path[128];
	struct sim_broker_options broker;
	struct sim_client_options client;
	struct sim_holder_options holder;
	/* In the order of their numbers */
	unsigned int n_clients, n_hostile, n_holders;
	struct sim_chances chances;
	uint64_t length_ns, max_steps;
	unsigned int vram_mib; /* of device memory for the tenants that get least */
	/* Mean steps or times until such an event; 0: there are none. */
	uint64_t broker_dies_steps, broker_dies_ns, client_dies_steps, stop_ns, reload_ns;
	uint64_t others_ns;
	uint64_t outage_ns; /* mean time until the next broker */
	uint64_t switch_steps;
	uint64_t nap_steps; /* mean steps between preemptions; 0: there are none */

	bool is_ending, is_stopped;
	uint64_t end_began_ns;
	unsigned int n_reloads;
	struct sim_round_figures figures;
};

static struct round sim __attribute__((__section__("sim_variables")));

/* Return a number between 1 and twice the mean. */
static uint64_t about(uint64_t mean)
{
	return 1 + sim_below(2 * mean);
}

/* Return such a number, or, in half of the cases, any order of magnitude below. */
static uint64_t life(uint64_t mean)
{
	return 1 + (about(mean) >> (sim_below(2) ? 0 : sim_below(8)));
}

/* Return true in one of @n rounds. */
static bool one_of(uint64_t n)
{
	return sim_below(n) == 0;
}

static uint32_t chance_of(uint64_t one_in)
{
	return one_in == 0 ? 0 : (uint32_t)((1ull << 32) / one_in);
}

/* Choose the faults of a card. @seldom: tasks between two losses, at least. */
static void choose_faults(struct sim_device_faults *faults, uint64_t seldom)
{
	if (one_of(3))
		faults->loss = chance_of(seldom + sim_below(10 * seldom));
	if (one_of(4))
		faults->stall = chance_of(300 + sim_below(3000));
	if (one_of(4))
		faults->refusal = chance_of(10 + sim_below(seldom));
	if (one_of(4))
		faults->slow = chance_of(20 + sim_below(200));
}

static void choose_devices(void)
{
	struct sim_device_options *processor = &sim.broker.devices[0];
	struct sim_device_options *card = &sim.broker.devices[1];

	*processor = (struct sim_device_options){
		.task_ns = 200ull << sim_below(14),
		.row_ns = 50ull << sim_below(8),
	};
	*card = (struct sim_device_options){
		.is_card = true,
		.memory_bytes = (64 + sim_below(512)) * SIM_CARD_PAGE,
		.gtt_bytes = one_of(3) ? sim_below(64) * SIM_CARD_PAGE : 0,
		.task_ns = 3000ull << sim_below(12),
		.row_ns = 10ull << sim_below(8),
		.parts = 1 + (unsigned int)sim_below(3),
	};
	for (unsigned int i = 0; i < SIM_DEVICES; i++)
		sim.broker.devices[i].spin_ns = one_of(2) ? 20000 : 0;
	choose_faults(&card->faults, 5ull << sim_below(7));
	sim.vram_mib = 16u << sim_below(3);
}

/* Decide how threads take turns. */
static void choose_schedule(void)
{
	/* Threads that spin take fewer steps on a slow machine. */
	sim.chances.step_ns = 60ull << sim_below(5);
	sim.chances.is_ranked = one_of(2);
	sim.switch_steps = (sim.chances.is_ranked ? 16ull : 4ull) << sim_below(10);
	sim.chances.switches = chance_of(sim.switch_steps);
	if (one_of(2)) {
		/* Longer ones are rarer. */
		const uint64_t shift = sim_below(11);
		uint64_t call_steps;

		sim.nap_steps = 64ull << shift;
		sim.chances.naps = chance_of(sim.nap_steps);
		call_steps = sim.nap_steps >> sim_below(shift + 3);
		sim.chances.call_naps = chance_of(call_steps);
		/* About one step in ten is a call. */
		if (10 * call_steps < sim.nap_steps)
			sim.nap_steps = 10 * call_steps;
		sim.chances.nap_ns = 16000ull << (shift + sim_below(3));
	}
	if (one_of(2)) {
		sim.chances.lags = chance_of(2ull << sim_below(4));
		sim.chances.lag_ns = 1000ull << sim_below(16);
	}
}

/* Set @n weights, each in one of two rounds; the first one remains. */
static void choose_weights(uint16_t *weights, unsigned int n, unsigned int max_shift)
{
	for (unsigned int i = 1; i < n; i++)
		weights[i] = one_of(2) ? 0 : (uint16_t)(1u << sim_below(max_shift + 1));
}

/*
 * Have many tasks of one plan in flight, one of those with several nodes: tasks then wait for what
 * a plan has a few of, such as crossing blocks.
 */
static void make_crowded(struct sim_client_mix *mix)
{
	memset(mix->plans, 0, sizeof(mix->plans));
	mix->plans[SIM_PLANS - 1 - sim_below(2)] = 1;
	mix->n_slots = 24;
	mix->burst = 32;
	mix->max_ring_shift = 4;
}

/*
 * Decide what clients do. All features in each round would keep some from meeting often: a random
 * half of them finds more (Groce et al., "Swarm Testing", 2012).
 */
static void choose_mix(struct sim_client_mix *mix)
{
	*mix = (struct sim_client_mix){
		.acts = {600, 150, 180, 20, 20, 10, 5, 4, 4, 2},
		.entries = {5, 2, 2, 2, 1, 1, 1, 1, 1, 1},
		.ways = {5, 1, 1, 1},
		.plans = {1, 1, 1, 1, 1},
		.devices = {4, 1, 1},
		.n_slots = 24,
		.burst = 8,
		.max_ring_shift = 4,
		.tables = {3, 1},
		.n_helpers = one_of(2),
		.haste = (unsigned int)sim_below(8),
		.pause_ns = one_of(2) ? 1000ull << sim_below(11) : 0,
	};
	if (one_of(3))
		return;
	choose_weights(mix->acts + SIM_CONSUME, SIM_ACTS - SIM_CONSUME, 7);
	mix->acts[SIM_LEAVE] /= 8;
	choose_weights(mix->entries, SIM_ENTRIES, 3);
	choose_weights(mix->ways, SIM_WAYS, 6);
	choose_weights(mix->plans, SIM_PLANS, 4);
	choose_weights(mix->devices, 3, 5);
	choose_weights(mix->tables, 2, 4);
	mix->n_slots = 4 + (unsigned int)sim_below(21);
	mix->burst = 1u << sim_below(6);
	mix->max_ring_shift = (unsigned int)sim_below(5);
	mix->n_helpers = one_of(2) ? 0 : 1 + (unsigned int)sim_below(SIM_MAX_HELPERS);
	if (one_of(8))
		make_crowded(mix);
}

/* Decide where brokers die. Each needs a few thousand steps for what clients give it back. */
static void choose_deaths(void)
{
	if (one_of(3))
		sim.broker_dies_steps = 2000ull << sim_below(9);
	if (one_of(3))
		sim.broker_dies_ns = 1000000ull << sim_below(8);
	if (one_of(3))
		sim.chances.fatal_messages = chance_of(8ull << sim_below(6));
	if (one_of(3))
		sim.chances.fatal_naps = chance_of(
			sim.nap_steps ? 1 + (1000ull << sim_below(8)) / sim.nap_steps : 0);
	if (one_of(3))
		sim.chances.fatal_stores = chance_of(16ull << sim_below(7));
	if (one_of(3))
		sim.chances.ends = chance_of(1ull << sim_below(4));
}

/* Decide when what ends, and changes. */
static void choose_ends(void)
{
	choose_deaths();
	if (one_of(2))
		sim.client_dies_steps = 500ull << sim_below(12);
	if (one_of(3))
		sim.stop_ns = 2000000ull << sim_below(11);
	if (one_of(3))
		sim.reload_ns = 10000000ull << sim_below(8);
	if (one_of(3))
		sim.others_ns = 10000000ull << sim_below(9);
	sim.outage_ns = one_of(3) ? 1000 : 10000000;
	if (one_of(3)) {
		sim.chances.crashes = chance_of(1ull << sim_below(3));
		sim.client.has_crashes = true;
	}
}

/*
 * Decide how late may be what is not lost. A thread may be preempted several times, and the one of
 * the lowest rank waits for several switches. A device that stalls keeps what it has.
 */
static void choose_bounds(void)
{
	const struct sim_device_options *card = &sim.broker.devices[1];
	const uint64_t preempted_ns = 20 * (sim.chances.nap_ns + sim.chances.lag_ns);
	const uint64_t steps_ns = (20000 + 50 * sim.switch_steps) * sim.chances.step_ns;

	for (unsigned int i = 0; i < SIM_DEVICES; i++)
		sim.broker.devices[i].late_ns = 50000000 + preempted_ns + steps_ns;
	if (card->faults.stall > 0)
		sim.broker.above_max_ns = 100000000000u;
	else
		sim.broker.above_max_ns = (card->faults.slow > 0 ? 1500000000u : 2000000u) +
					  80 * card->task_ns + preempted_ns + steps_ns;
}

/* Decide what the round is like. */
static void choose(void)
{
	const bool is_small = !one_of(4);

	sim.n_clients = 1 + (unsigned int)sim_below(is_small ? 2 : 5);
	sim.n_hostile = one_of(is_small ? 8 : 2) ? 1 + (unsigned int)sim_below(2) : 0;
	sim.n_holders = one_of(is_small ? 8 : 2) ? 1 : 0;
	sim.broker.first_hostile = SIM_CLIENT + sim.n_clients;
	sim.broker.first_holder = SIM_CLIENT + sim.n_clients + sim.n_hostile;
	sim.client.think_ns = one_of(3) ? 0 : (1ull << sim_below(28));
	sim.length_ns = 100000000 + sim_below(1000000000) + sim.client.think_ns * sim_below(10000);
	sim.max_steps = is_small ? MIN_STEPS << sim_below(5) : MAX_STEPS;
	choose_mix(&sim.client.mix);
	choose_schedule();
	choose_devices();
	choose_ends();
	choose_bounds();
	sim.broker.spin_ns = one_of(2) ? 0 : one_of(2) ? -1 : 20000;
	sim.broker.reactor_task_ns = one_of(3) ? 0 : 2000000;
	if (one_of(3))
		sim.chances.unfixed = chance_of(1 + sim_below(3));
	sim.broker.cut_seed = one_of(2) ? 1 + sim_below(1000) : 0;
}

/*
 * Make a round of which most time passes while nothing happens: timers of seconds and minutes come
 * to their ends, and clients find a reactor, workers and devices that have slept for long.
 */
static void make_quiet(void)
{
	static const uint64_t longer = 1000;
	/* A broker that dies takes thousands of steps for what clients give it back, in no time. */
	static const uint32_t fewer = 64;

	sim.n_hostile = sim.n_holders = 0;
	sim.client.think_ns = (uint64_t)1 << (29 + sim_below(9));
	sim.client.mix.n_helpers = 0;
	sim.length_ns = sim.client.think_ns * (1000 + sim_below(10000));
	sim.broker_dies_ns *= longer;
	sim.stop_ns *= longer;
	sim.reload_ns *= longer;
	sim.others_ns *= longer;
	sim.broker_dies_steps *= fewer;
	sim.client_dies_steps *= fewer;
	sim.chances.fatal_messages /= fewer;
	sim.chances.fatal_naps /= fewer;
	sim.chances.fatal_stores /= fewer;
}

/* Let allocations and calls fail. Then clients accept that they lose connections, and nothing else.
 */
static void choose_failures(void)
{
	sim.client.is_strict = false;
	if (!one_of(3))
		sim.chances.alloc = chance_of(30ull << sim_below(10));
	if (!one_of(3))
		sim.chances.call = chance_of(30ull << sim_below(10));
	if (one_of(3))
		sim.chances.client_alloc = chance_of(30ull << sim_below(10));
	if (one_of(3))
		sim.chances.client_call = chance_of(30ull << sim_below(10));
}

static void broker_dies(void *data)
{
	sim_kill(SIM_BROKER);
}

static void broker_start(void *data)
{
	if (sim_process_exists(SIM_BROKER))
		return;
	sim_process_start(SIM_BROKER, "broker", sim_broker_main, &sim.broker);
	if (sim.broker_dies_steps > 0 && !sim.is_ending)
		sim_kill_at(SIM_BROKER, life(sim.broker_dies_steps));
	if (sim.broker_dies_ns > 0 && !sim.is_ending)
		sim_at(AT_DEATH, sim_now_ns() + life(sim.broker_dies_ns), broker_dies, NULL);
	if (sim.is_stopped)
		sim_violation("the broker starts after the end");
}

static void client_start(unsigned int number)
{
	char name[24];

	if (number >= SIM_CLIENT + sim.n_clients + sim.n_hostile) {
		snprintf(name, sizeof(name), "holder-%u", number);
		sim_process_start(number, name, sim_holder_main, &sim.holder);
	} else if (number >= SIM_CLIENT + sim.n_clients) {
		snprintf(name, sizeof(name), "hostile-%u", number);
		sim_process_start(number, name, sim_hostile_main, sim.socket_path);
	} else {
		snprintf(name, sizeof(name), "client-%u", number);
		sim_process_start(number, name, sim_client_main, &sim.client);
	}
	if (sim.client_dies_steps > 0)
		sim_kill_at(number, about(sim.client_dies_steps));
}

/* Start the clients that have died, some time later. */
static void clients_start(void *data)
{
	const unsigned int n = sim.n_clients + sim.n_hostile + sim.n_holders;

	for (unsigned int i = SIM_CLIENT; i < SIM_CLIENT + n; i++)
		if (!sim_process_exists(i) && !sim.is_ending)
			client_start(i);
}

static void on_death(unsigned int number)
{
	if (number == SIM_BROKER) {
		sim.figures.n_broker_deaths++;
		sim_at_none(AT_DEATH);
		/* A broker that has ended in order at the end has freed everything. */
		if (!sim.is_stopped)
			sim_at(AT_BROKER, sim_now_ns() + about(sim.outage_ns), broker_start, NULL);
		return;
	}
	sim.figures.n_client_deaths++;
	sim_holder_ended(number);
	if (!sim.is_ending)
		sim_at(AT_CLIENT, sim_now_ns() + about(10000000), clients_start, NULL);
}

static void on_stop(void *data)
{
	sim_broker_stop();
	sim_at(AT_STOP, sim_now_ns() + about(sim.stop_ns), on_stop, NULL);
}

static void write_policy(unsigned int generation)
{
	sim_policy_write(sim.folder, generation, sim.vram_mib,
			 sim.n_hostile > 0 ? SIM_CLIENT + sim.n_clients : SIM_PROCESSES);
}

static void on_reload(void *data)
{
	write_policy(++sim.n_reloads);
	sim_broker_reload();
	sim_at(AT_RELOAD, sim_now_ns() + about(sim.reload_ns), on_reload, NULL);
}

/* Another program takes memory of the card, or gives it back; leased programs use its time. */
static void on_others(void *data)
{
	sim_broker_charge_leased();
	sim_broker_others(sim_below(2) ? 0 : sim_below(sim.broker.devices[1].memory_bytes));
	sim_at(AT_OTHERS, sim_now_ns() + about(sim.others_ns), on_others, NULL);
}

static void on_end(void *data);

static bool clients_exist(void)
{
	for (unsigned int i = SIM_CLIENT; i < SIM_PROCESSES; i++)
		if (sim_process_exists(i))
			return true;
	return false;
}

/* Called between threads: check, and find the end. */
static bool is_over(void)
{
	sim_broker_check(sim.figures.n_broker_deaths == 0);
	if (!sim.is_ending && sim_n_steps() > sim.max_steps)
		on_end(NULL);
	if (sim.is_ending && sim_now_ns() - sim.end_began_ns > max_end_ns)
		sim_violation("the round does not end");
	if (!sim.is_ending || clients_exist())
		return false;
	if (!sim.is_stopped && sim_process_exists(SIM_BROKER)) {
		/* One that is just starting does not listen yet. */
		sim.is_stopped = sim_broker_stop();
	}
	return sim.is_stopped && !sim_process_exists(SIM_BROKER);
}

/* Let everything end in order, without further deaths and failures. */
static void on_end(void *data)
{
	const struct sim_chances calm = {
		.step_ns = sim.chances.step_ns,
		.is_ranked = sim.chances.is_ranked,
		.switches = sim.chances.switches,
	};

	sim_trace("the end begins");
	sim.is_ending = true;
	sim.end_began_ns = sim_now_ns();
	sim_at_none(AT_DEATH);
	sim_at_none(AT_STOP);
	sim_at_none(AT_RELOAD);
	sim_at_none(AT_CLIENT);
	sim_at_none(AT_OTHERS);
	sim_set_chances(&calm);
	/* Tasks may wait for memory as long as it takes. */
	sim_broker_others(0);
	for (unsigned int i = 0; i < SIM_PROCESSES; i++)
		sim_kill_at(i, 0);
	sim_clients_stop();
	sim_hostile_stop();
	sim_holders_stop();
	/* Without clients, no thread may run before the broker is asked to end. */
	is_over();
}

static void add_up(struct sim_round_figures *figures)
{
	const struct sim_client_figures *clients = sim_client_figures();

	figures->n_steps = sim_n_steps();
	figures->virtual_ns = sim_now_ns() - SIM_BEGIN_NS;
	figures->n_entries = clients->n_entries;
	figures->n_completions = clients->n_completions;
	figures->n_failed = clients->n_failed;
	figures->n_cancelled = clients->n_cancelled;
	figures->n_reattached = clients->n_reattached;
	figures->n_sessions_lost = clients->n_lost;
	figures->n_states_lost = clients->n_states_lost;
	figures->n_tasks = sim_device_n_tasks();
	figures->n_losses = sim_device_n_losses();
	figures->n_leases = sim_holders_n_leases();
	figures->n_reloads = sim.n_reloads;
}

void sim_round(uint64_t seed, const char *folder, bool is_verbose, struct sim_round_figures *ret)
{
	struct sim_machine_options options = {
		.seed = seed,
		.n_processors = 4,
		.is_verbose = is_verbose,
	};

	sim_machine_init(&options);
	sim.folder = sim.broker.folder = folder;
	snprintf(sim.socket_path, sizeof(sim.socket_path), "%s/socket", folder);
	sim.client.socket_path = sim.socket_path;
	sim.client.is_strict = true;
	choose();
	if (seed % QUIET_ROUNDS == 0)
		make_quiet();
	if (one_of(3))
		choose_failures();
	sim.holder = (struct sim_holder_options){
		.socket_path = sim.socket_path,
		.memory_bytes = sim.broker.devices[1].memory_bytes,
		.is_strict = sim.client.is_strict,
	};
	sim_set_chances(&sim.chances);
	sim_on_death(on_death);
	sim_on_end(sim_broker_stop);
	write_policy(0);
	broker_start(NULL);
	clients_start(NULL);
	sim_at(AT_END, sim_now_ns() + sim.length_ns, on_end, NULL);
	if (sim.stop_ns > 0)
		sim_at(AT_STOP, sim_now_ns() + about(sim.stop_ns), on_stop, NULL);
	if (sim.reload_ns > 0)
		sim_at(AT_RELOAD, sim_now_ns() + about(sim.reload_ns), on_reload, NULL);
	if (sim.others_ns > 0)
		sim_at(AT_OTHERS, sim_now_ns() + about(sim.others_ns), on_others, NULL);
	if (!sim_run(is_over))
		sim_violation("nothing can run any more: a wake-up is lost");
	if (sim_n_fds() > 0)
		sim_violation("%u descriptors are left", sim_n_fds());
	add_up(&sim.figures);
	*ret = sim.figures;
}
