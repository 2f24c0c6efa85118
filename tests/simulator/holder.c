/* SPDX-License-Identifier: MIT */
/* Holders of leases: see holder.h */
#include "simulator/holder.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "libclient/ringbroker.h"
#include "libclient/private.h"
#include "libclient/ringbroker/lease.h"
#include "shm/reset-verdict.h"
#include "simulator/machine.h"

enum { PAGE_BYTES = 4 << 20 };

static uint64_t used_bytes[SIM_PROCESSES] __attribute__((__section__("sim_variables")));
static uint64_t n_leases __attribute__((__section__("sim_variables")));
static bool must_stop __attribute__((__section__("sim_variables")));

uint64_t sim_holders_bytes(void)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < SIM_PROCESSES; i++)
		sum += used_bytes[i];
	return sum;
}

uint64_t sim_holders_n_leases(void)
{
	return n_leases;
}

void sim_holder_ended(unsigned int number)
{
	used_bytes[number] = 0;
}

void sim_holders_stop(void)
{
	must_stop = true;
}

struct holder {
	const struct sim_holder_options *options;
	struct rbk *rbk;
	struct rbk_lease *lease;
	uint64_t max_bytes;
	/* Another lease without credit, with which it shares the device's time; or NULL. */
	struct rbk *rival_rbk;
	struct rbk_lease *rival;
};

static uint64_t *credit(void)
{
	return &used_bytes[sim_process()];
}

static uint64_t some_pages(uint64_t most_bytes)
{
	if (most_bytes < PAGE_BYTES)
		return most_bytes;
	return (1 + sim_below(most_bytes / PAGE_BYTES)) * PAGE_BYTES;
}

/* Return true if an error may come although nothing fails: there is no room, or no broker. */
static bool is_expected(int r)
{
	switch (r) {
	case -ENOMEM:
	case -EDQUOT:
	case -ETIMEDOUT:
	case -EDEADLK:
	case -EBUSY:
	case -ECONNRESET:
	case -ENOENT:
	case -ETIME: /* no broker lived long enough */
		return true;
	default:
		return false;
	}
}

/* Return true if the holder goes on. */
static bool accept_result(const struct holder *holder, const char *what, int r,
			  const struct rbk_error *error)
{
	if (r == 0)
		return true;
	sim_trace("%s: %d %s", what, r, error->text);
	if (holder->options->is_strict && !is_expected(r))
		sim_violation("%s: %d %s", what, r, error->text);
	return r == -ENOMEM || r == -ETIMEDOUT || r == -EDEADLK || r == -EBUSY;
}

static void begin_rival(struct holder *holder, const struct rbk_options *options)
{
	const struct rbk_lease_options wanted = {.device = RBK_DEVICE_NONE,
						 .max_bytes = PAGE_BYTES};
	struct rbk_error error = {""};

	if (rbk_connect(options, &holder->rival_rbk, &error))
		return;
	if (rbk_lease_open(holder->rival_rbk, &wanted, &holder->rival, &error))
		sim_trace("rbk_lease_open() of the rival: %s", error.text);
}

static bool begin(struct holder *holder)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = holder->options->socket_path,
		.reattach_ns = 120000000000u,
	};
	struct rbk_lease_options wanted = {
		.device = RBK_DEVICE_NONE,
		.max_bytes = some_pages(holder->options->memory_bytes),
		.wait_ns = sim_below(2) * sim_below(1000000000),
	};
	struct rbk_error error = {""};
	int r;

	wanted.wish_bytes = some_pages(wanted.max_bytes);
	wanted.min_bytes = some_pages(wanted.wish_bytes);
	if (rbk_connect(&options, &holder->rbk, &error))
		return false;
	r = rbk_lease_open(holder->rbk, &wanted, &holder->lease, &error);
	holder->max_bytes = wanted.max_bytes;
	n_leases += r == 0;
	accept_result(holder, "rbk_lease_open()", r, &error);
	if (r == 0)
		begin_rival(holder, &options);
	return r == 0;
}

/*
 * Share the device's time, well or badly: without having joined, without telling when the timeslice
 * should end, with a word of the past, or with counts that go back.
 */
static void share_time(const struct holder *holder)
{
	struct rbk_lease *lease = holder->rival && sim_below(2) ? holder->rival : holder->lease;
	const uint32_t word = __atomic_load_n(&rbk_lease_page(lease)->timeslice, __ATOMIC_ACQUIRE);
	const uint32_t drawn = 1 + sim_below(5);
	const uint32_t action = drawn < 5 ? drawn : RBK_WIRE_TIMESLICE_ENDING;
	const uint32_t priority = action == RBK_WIRE_TIMESLICE_JOIN     ? sim_below(4)
				  : action == RBK_WIRE_TIMESLICE_ENDING ? sim_below(2000)
									: 0;
	struct client_lost lost;
	int r;

	r = client_lease_timeslice(lease, action, priority,
				   action >= RBK_WIRE_TIMESLICE_DONE ? word - sim_below(2) : 0);
	sim_trace("timeslice: %u: %d", action, r);
	if (sim_below(4) > 0)
		return;
	r = client_lease_parts(lease, &(struct client_parts){.n_submissions = sim_below(1000000),
							     .n_parts = sim_below(1000000),
							     .longest_ns = sim_below(2000000000)});
	sim_trace("parts: %d", r);
	if (sim_below(4) > 0)
		return;
	r = client_lease_lost(lease, sim_below(RESET_VERDICT_COUNT), &lost);
	sim_trace("lost: %d", r);
}

static bool act(struct holder *holder)
{
	struct rbk_error error = {""};
	uint64_t least_bytes, want_bytes, given_bytes = 0;
	int r;

	switch (sim_below(8)) {
	case 0:
		want_bytes = some_pages(holder->max_bytes);
		least_bytes = some_pages(want_bytes);
		r = rbk_lease_take(holder->lease, want_bytes, least_bytes,
				   sim_below(2) * sim_below(100000000), NULL, &given_bytes, &error);
		if (r == 0) {
			*credit() += given_bytes;
			if (given_bytes < least_bytes || *credit() > holder->max_bytes)
				sim_violation("a lease of at most %llu bytes gave %llu, of %llu "
					      "that were needed, and has given %llu",
					      (unsigned long long)holder->max_bytes,
					      (unsigned long long)given_bytes,
					      (unsigned long long)least_bytes,
					      (unsigned long long)*credit());
		}
		return accept_result(holder, "rbk_lease_take()", r, &error);
	case 1:
		if (*credit() == 0)
			return true;
		/* Free the memory, and then give the credit. */
		given_bytes = some_pages(*credit());
		*credit() -= given_bytes;
		r = rbk_lease_give(holder->lease, given_bytes, NULL);
		if (r == -EBUSY)
			*credit() += given_bytes;
		return accept_result(holder, "rbk_lease_give()", r, &error);
	case 2:
		r = rbk_lease_resize(holder->rbk, rbk_lease_number(holder->lease),
				     some_pages(holder->max_bytes), &given_bytes, &error);
		return accept_result(holder, "rbk_lease_resize()", r, &error);
	case 3:
	case 4:
	case 5:
	case 6:
		share_time(holder);
		return true;
	default:
		return sim_below(10) > 0;
	}
}

static void end(struct holder *holder)
{
	*credit() = 0;
	if (holder->rival)
		rbk_lease_close(holder->rival);
	if (holder->rival_rbk)
		rbk_disconnect(holder->rival_rbk);
	if (holder->lease)
		rbk_lease_close(holder->lease);
	if (holder->rbk)
		rbk_disconnect(holder->rbk);
}

void sim_holder_main(void *data)
{
	struct timespec time = {.tv_sec = 0};

	while (!must_stop) {
		struct holder holder = {.options = data};

		if (begin(&holder))
			while (!must_stop && act(&holder)) {
				time.tv_nsec = (long)sim_below(20000000);
				nanosleep(&time, NULL);
			}
		end(&holder);
		time.tv_nsec = (long)sim_below(30000000);
		nanosleep(&time, NULL);
	}
}
