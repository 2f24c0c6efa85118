/* SPDX-License-Identifier: MIT */
/*
 * A device in virtual time
 *
 * Between two changes every submission progresses evenly: first its shared part at the speed of all
 * servers that work on it, then its serial part at the speed of one server. A change is the end of
 * a part or the beginning of a submission. After each change free servers join submissions. The CPU
 * workers behave alike: a worker takes a task, idle workers join its step until no chunk is left,
 * and waiting tasks take precedence over helping. With one server the model is the queue of a GPU.
 *
 * The oracle's probe plays the same model on a copy of the running submissions. With more than
 * PROBE_LISTED listed parts, and on one server if noise is known, it divides the remaining server
 * time by the servers in use instead. The division is exact on one server, and off by less than one
 * task otherwise.
 */
#include "device.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util/error.h"

enum { PROBE_LISTED = 16 };

/* Work below a thousandth of a nanosecond counts as done. */
#define NOTHING_NS 1e-3

int device_init(struct device *device, const struct world *world, uint8_t index)
{
	const struct place_profile *profile = &world->scenario->profiles[index];

	*device = (struct device){.world = world,
				  .index = index,
				  .n_servers = profile->n_servers ? profile->n_servers : 1,
				  .n_in_use = profile->n_servers ? profile->n_servers : 1,
				  .n_per_task = profile->n_servers_per_task};
	if (device->n_per_task > device->n_servers)
		device->n_per_task = device->n_servers;
	if (device->n_per_task < 1)
		device->n_per_task = 1;
	list_init(&device->listed);
	device->running = calloc(device->n_servers, sizeof(*device->running));
	device->scratch = calloc(device->n_servers, sizeof(*device->scratch));
	device->lanes = calloc(device->n_servers, sizeof(*device->lanes));
	if (!device->running || !device->scratch || !device->lanes) {
		device_deinit(device);
		return error_origin(-ENOMEM);
	}
	return 0;
}

void device_deinit(struct device *device)
{
	free(device->running);
	free(device->scratch);
	free(device->lanes);
	*device = (struct device){0};
}

static double cost_sum(struct world_cost cost)
{
	return cost.serial_ns + cost.shared_ns;
}

/* Add the part's rows that have not begun to the device's listed work. */
static void list_part(struct device *device, struct sim_part *part, double now_ns)
{
	part->waiting_ns =
		cost_sum(world_cut_cost(device->world, part->task, device->index,
					part->n_rows - part->n_begun, part->n_cut, now_ns, true));
	device->listed_ns += part->waiting_ns;
	device->n_listed++;
	part->is_listed = true;
}

static void unlist_part(struct device *device, struct sim_part *part)
{
	if (!part->is_listed)
		return;
	device->listed_ns -= part->waiting_ns;
	device->n_listed--;
	if (!device->n_listed)
		device->listed_ns = 0;
	part->is_listed = false;
}

void device_assign(struct device *device, struct sim_part *part, double now_ns)
{
	part->device = device->index;
	list_append(&device->listed, &part->link);
	list_part(device, part, now_ns);
}

void device_unassign(struct device *device, struct sim_part *part)
{
	list_remove(&part->link);
	unlist_part(device, part);
}

void device_release(struct device *device, struct sim_part *part)
{
	if (part->is_urgent && device->first && device->n_servers > 1) {
		part->next = device->first;
		device->first = part;
		return;
	}
	part->next = NULL;
	if (device->last)
		device->last->next = part;
	else
		device->first = part;
	device->last = part;
}

static uint32_t count_free(const struct device_run *running, uint32_t n_running, uint32_t n_servers)
{
	for (uint32_t i = 0; i < n_running; i++)
		n_servers -= running[i].n_servers < n_servers ? running[i].n_servers : n_servers;
	return n_servers;
}

/*
 * Assign free servers to the oldest submissions with shared work; they stay until that work is
 * done.
 */
static void deal(struct device_run *running, uint32_t n_running, uint32_t n_servers,
		 uint32_t n_per_task)
{
	uint32_t n_free = count_free(running, n_running, n_servers);

	for (uint32_t i = 0; i < n_running && n_free > 0; i++) {
		struct device_run *run = &running[i];
		uint32_t n_most, n_more;

		n_most = world_team(run->shared_ns, n_per_task);
		if (n_most <= run->n_servers)
			continue;
		n_more = n_most - run->n_servers;
		n_more = n_more < n_free ? n_more : n_free;
		run->n_servers += n_more;
		n_free -= n_more;
	}
}

static double left_ns(const struct device_run *run)
{
	return run->shared_ns > NOTHING_NS ? run->shared_ns / run->n_servers
					   : fmax(run->serial_ns, 0);
}

static double work(struct device_run *running, uint32_t n_running, double ns)
{
	double busy_ns = 0;

	for (uint32_t i = 0; i < n_running; i++) {
		struct device_run *run = &running[i];

		run->busy_ns += ns * run->n_servers;
		busy_ns += ns * run->n_servers;
		if (run->shared_ns > NOTHING_NS) {
			run->shared_ns -= ns * run->n_servers;
			if (run->shared_ns <= NOTHING_NS)
				run->n_servers = 1;
		} else {
			run->serial_ns -= ns;
		}
	}
	return busy_ns;
}

static bool has_ended(const struct device_run *run)
{
	return run->serial_ns <= NOTHING_NS && run->shared_ns <= NOTHING_NS;
}

static uint32_t take_lane(struct device *device)
{
	uint32_t lane = 0;

	while (device->lanes[lane])
		lane++;
	device->lanes[lane] = true;
	return lane;
}

/*
 * Find a submission with several servers, of which one can be withdrawn.
 * Return: NULL if there is none.
 */
static struct device_run *find_team(const struct device *device)
{
	for (uint32_t i = device->n_running; i-- > 0;) {
		if (device->running[i].n_servers > 1)
			return &device->running[i];
	}
	return NULL;
}

/*
 * Return true if the first released part can begin: a server is free, or the part is urgent and a
 * server can be withdrawn from a team.
 */
static bool can_begin(const struct device *device)
{
	if (!device->first)
		return false;
	return count_free(device->running, device->n_running, device->n_in_use) > 0 ||
	       (device->first->is_urgent && find_team(device));
}

static void begin(struct device *device)
{
	while (can_begin(device)) {
		struct sim_part *part = device->first;
		uint64_t fail_every = device->world->fail_every[device->index];
		struct device_run *run;
		struct world_cost cost = world_cost(device->world, part->task, device->index,
						    part->n_now, device->now_ns, true);

		if (count_free(device->running, device->n_running, device->n_in_use) == 0)
			find_team(device)->n_servers--;
		run = &device->running[device->n_running++];
		device->first = part->next;
		if (!device->first)
			device->last = NULL;
		device->n_begun++;
		*run = (struct device_run){.part = part,
					   .serial_ns = cost.serial_ns,
					   .shared_ns = cost.shared_ns,
					   .begin_ns = device->now_ns,
					   .n_servers = 1,
					   .lane = take_lane(device)};
		if (device->world->is_lost[device->index] ||
		    (fail_every && device->n_begun % fail_every == 0)) {
			run->fails = true;
			run->serial_ns /= 2;
			run->shared_ns /= 2;
		}
		unlist_part(device, part);
		part->n_begun += part->n_now;
		if (part->n_begun < part->n_rows)
			list_part(device, part, device->now_ns);
		else
			list_remove(&part->link);
	}
	deal(device->running, device->n_running, device->n_in_use, device->n_per_task);
}

double device_next_ns(const struct device *device)
{
	double ns = INFINITY;

	if (can_begin(device))
		return device->now_ns;
	for (uint32_t i = 0; i < device->n_running; i++)
		ns = fmin(ns, left_ns(&device->running[i]));
	return device->now_ns + ns;
}

static void take(struct device *device, uint32_t i, struct device_run *ret)
{
	*ret = device->running[i];
	device->lanes[ret->lane] = false;
	device->n_running--;
	memmove(device->running + i, device->running + i + 1,
		(device->n_running - i) * sizeof(device->running[0]));
}

bool device_advance(struct device *device, double now_ns, struct device_run *ret)
{
	if (now_ns > device->now_ns) {
		device->busy_ns +=
			work(device->running, device->n_running, now_ns - device->now_ns);
		device->now_ns = now_ns;
	}
	for (uint32_t i = 0; i < device->n_running; i++) {
		if (has_ended(&device->running[i])) {
			take(device, i, ret);
			begin(device);
			return true;
		}
	}
	begin(device);
	return false;
}

bool device_fail_one(struct device *device, struct device_run *ret)
{
	if (!device->n_running)
		return false;
	take(device, 0, ret);
	ret->fails = true;
	return true;
}

/*
 * Advance the copy to its next change: the end of a submission or of its shared part.
 * Return: the time of the change.
 */
static double play(struct device_run *running, uint32_t *n_running, const struct device *device,
		   double now_ns)
{
	double ns = INFINITY;

	for (uint32_t i = 0; i < *n_running; i++)
		ns = fmin(ns, left_ns(&running[i]));
	work(running, *n_running, ns);
	for (uint32_t i = 0; i < *n_running;) {
		if (has_ended(&running[i])) {
			--*n_running;
			memmove(running + i, running + i + 1,
				(*n_running - i) * sizeof(running[0]));
		} else {
			i++;
		}
	}
	deal(running, *n_running, device->n_in_use, device->n_per_task);
	return now_ns + ns;
}

static double push(struct device_run *running, uint32_t *n_running, const struct device *device,
		   struct sim_part *part, struct world_cost cost, double now_ns)
{
	while (count_free(running, *n_running, device->n_in_use) == 0)
		now_ns = play(running, n_running, device, now_ns);
	running[*n_running] = (struct device_run){.part = part,
						  .serial_ns = cost.serial_ns,
						  .shared_ns = cost.shared_ns,
						  .n_servers = 1};
	/*
	 * An assigned part gets its team before the next part begins, since policies release in
	 * order.
	 */
	if (part) {
		uint32_t n_free = count_free(running, *n_running, device->n_in_use);
		uint32_t n_most = world_team(cost.shared_ns, device->n_per_task);

		running[*n_running].n_servers = n_most < n_free ? n_most : n_free;
	}
	++*n_running;
	deal(running, *n_running, device->n_in_use, device->n_per_task);
	return now_ns;
}

/*
 * Return the expected duration of a submission that has run for @done, both as multiples of its
 * mean duration. The duration is log-normal with mean 1 and standard deviation @sigma of its
 * logarithm, given that it exceeds @done. Where erfc() underflows, return slightly more than @done.
 */
static double expect_longer(double sigma, double done)
{
	double z, above;

	if (sigma <= 0 || done <= 0)
		return fmax(done, 1);
	z = log(done) / sigma;
	above = erfc((z + sigma / 2) * M_SQRT1_2);
	if (above < 1e-12)
		return done * (1 + sigma * sigma / fmax(log(done), sigma));
	return fmax(erfc((z - sigma / 2) * M_SQRT1_2) / above, done);
}

/* Replace the submission's remaining work by its expectation without knowledge of noise. */
static void expect_left(const struct device *device, struct device_run *run)
{
	const struct scenario_truth *truth = &device->world->scenario->truth[device->index];
	struct world_cost cost = world_cost(device->world, run->part->task, device->index,
					    run->part->n_now, run->begin_ns, false);
	double done_ns = run->busy_ns, factor;

	factor = expect_longer(truth->noise, done_ns / cost_sum(cost));
	cost.shared_ns *= factor;
	cost.serial_ns *= factor;
	run->shared_ns = fmax(cost.shared_ns - done_ns, 0);
	done_ns = fmax(done_ns - cost.shared_ns, 0);
	run->serial_ns = fmax(cost.serial_ns - done_ns, 2 * NOTHING_NS);
}

double device_probe_ns(const struct device *device, struct world_cost cost,
		       enum knowledge knowledge)
{
	struct device_run *running = device->scratch;
	uint32_t n_running = device->n_running;
	double now_ns = device->now_ns;

	memcpy(running, device->running, n_running * sizeof(running[0]));
	for (uint32_t i = 0; knowledge == KNOW_MEANS && i < n_running; i++)
		expect_left(device, &running[i]);
	if (device->n_listed > PROBE_LISTED ||
	    (device->n_servers == 1 && knowledge != KNOW_MEANS)) {
		double left = device->listed_ns;

		for (uint32_t i = 0; i < n_running; i++)
			left += running[i].serial_ns + running[i].shared_ns;
		return now_ns + left / device->n_in_use +
		       world_alone_ns(device->world, device->index, cost);
	}
	list_for_each (node, &device->listed) {
		struct sim_part *part = container_of(node, struct sim_part, link);

		now_ns = push(running, &n_running, device, part,
			      world_cut_cost(device->world, part->task, device->index,
					     part->n_rows - part->n_begun, part->n_cut,
					     device->now_ns, knowledge != KNOW_MEANS),
			      now_ns);
	}
	now_ns = push(running, &n_running, device, NULL, cost, now_ns);
	for (;;) {
		bool is_there = false;

		now_ns = play(running, &n_running, device, now_ns);
		for (uint32_t i = 0; i < n_running; i++)
			is_there = is_there || !running[i].part;
		if (!is_there)
			return now_ns;
	}
}
