/* SPDX-License-Identifier: MIT */
/*
 * Copying argument tables whose pages may be missing
 *
 * A client may punch holes into the memfd of an arena that is not fixed. A thread that touches a
 * page in the range sleeps until the punching ends, and a client that repeats it can delay the
 * thread for seconds. The pool of closers.h therefore copies a table from such an arena. The
 * account has one thread of the pool, so a client that delays the thread delays only its own
 * account. The ring admits no entry meanwhile, because entries are admitted in order.
 */
#include <errno.h>

#include "session/server-private.h"
#include "util/error.h"

static void table_run(struct closers_job *job)
{
	struct session_table *table = container_of(job, struct session_table, job);

	/* Load each element once, since the client may write there. */
	for (uint32_t i = 0; i < table->n; i++)
		table->refs[i] = __atomic_load_n(table->from + i, __ATOMIC_RELAXED);
}

static void table_done(struct closers_job *job)
{
	struct session_table *table = container_of(job, struct session_table, job);
	const struct server_hooks *hooks = &table->ring->session->server->options.hooks;
	struct session_ring *ring = table->ring;
	struct session_arena *arena = table->arena;

	ring->session->n_fetches--;
	ring->n_in_flight--;
	ring->session->server->stats.n_in_flight--;
	if (!ring->is_closing)
		hooks->table_there(hooks->context, ring);
	else if (ring->n_in_flight == 0)
		session_ring_drained(ring);
	if (--arena->n_in_flight == 0)
		session_arena_idle(arena);
}

int session_table_fetch(struct session_ring *ring, struct session_arena *arena,
			const uint64_t *from, uint32_t n, const struct rbk_sqe *sqe)
{
	struct session_table *table = ring->table;

	if (!table)
		table = ring->table = calloc(1, sizeof(*table));
	if (!table)
		return error_origin(-ENOMEM);
	table->job = (struct closers_job){.run = table_run, .done = table_done};
	table->ring = ring;
	table->arena = arena;
	table->from = from;
	table->n = n;
	table->sqe = *sqe;
	ring->session->n_fetches++;
	ring->n_in_flight++;
	ring->session->server->stats.n_in_flight++;
	arena->n_in_flight++;
	closers_submit(ring->session->server->closers, ring->session->account, &table->job);
	return 0;
}
