/* SPDX-License-Identifier: MIT */
/*
 * Completions, and rings that have work
 *
 * Completions are posted into memory that only the broker writes, and published once per batch. The
 * client's wait word is read after each publication; the bell, a system call, is left to the end of
 * the turn. dispatch_ring_has_work() checks the room that the client has left for completions:
 * entries that could not be answered are not fetched.
 */
#include "dispatch/dispatch-private.h"
#include "dispatch/record.h"
#include "shm/ring.h"
#include "util/clock.h"

void ring_move_base(struct dispatch_ring *ring, uint32_t sq_head, uint32_t cq_tail)
{
	struct rbk_commit *base = &ring->commit_base;

	base->sq_head = record_index(base->sq_head, sq_head);
	base->cq_tail = record_index(base->cq_tail, cq_tail);
	ring->ring->cq->commit_base = *base;
}

void ring_publish(struct dispatch *dispatch, struct dispatch_ring *dispatch_ring)
{
	struct session_ring *ring = dispatch_ring->ring;
	const uint32_t sq_head = ring_sq_head(dispatch_ring);
	uint32_t token;

	if (ring->is_closing)
		return;

	if (ring->records)
		ring_commit(dispatch_ring, sq_head);
	/*
	 * In this order: a client that has seen an entry's completion finds room for another entry.
	 */
	rbk_ring_publish(&ring->cq->sq_head, sq_head);
	if (ring->cq_tail == dispatch_ring->cq_published)
		/* A client that sleeps waits for completions, not for room. */
		return;
	dispatch_ring->cq_published = ring->cq_tail;
	rbk_ring_publish(&ring->cq->cq_tail, ring->cq_tail);
	token = rbk_ring_sleep_token(&ring->sq->cq_wait);
	if (token == 0 || token == dispatch_ring->rung_token ||
	    !rbk_ring_is_wanted(&ring->sq->cq_wanted, ring->cq_tail))
		return;

	dispatch_ring->rung_token = token;
	dispatch_ring->rung_ticks = dispatch->now_ticks;
	turn_queue_submit(&dispatch->bells, &dispatch_ring->flow->wakes, &dispatch_ring->wake_job);
}

bool dispatch_ring_has_work(const struct dispatch_ring *dispatch_ring)
{
	const struct session_ring *ring = dispatch_ring->ring;
	uint32_t n = rbk_ring_observe(&ring->sq->sq_tail) - ring->sq_head;
	uint32_t unread;

	if (ring_is_restoring(dispatch_ring))
		return !ring->is_closing && !dispatch_ring->barrier && !dispatch_ring->is_fetching;
	if (n == 0 || ring->is_closing || dispatch_ring->barrier || dispatch_ring->is_fetching)
		return false;
	/* Invalid indices count as work: the poll ends the session. */
	unread = ring->cq_tail - rbk_ring_observe(&ring->sq->cq_head);
	return n > ring->n_entries || unread > ring->n_entries ||
	       unread + ring->n_in_flight < ring->n_entries;
}

/*
 * A ring that is not polled has completions. Poll it if it has entries, which may have waited, e.g.
 * behind a barrier that has completed. Poll it as well if its client is awake, and went on soon
 * after the last completion: otherwise the client would have to wake the reactor for each task that
 * is longer than a spin. A client that sleeps takes as long to wake up as the reactor does.
 */
static __attribute__((__noinline__)) void ring_go_on(struct dispatch *dispatch,
						     struct dispatch_ring *ring)
{
	const bool is_expected = ring->goes_on && !dispatch->is_holding &&
				 !dispatch->is_contended && !ring->ring->is_closing &&
				 rbk_ring_sleep_token(&ring->ring->sq->cq_wait) == 0;

	ring->done_ticks = clock_ticks();
	ring->worked_ticks = ring->last_work_ticks;
	if (is_expected || dispatch_ring_has_work(ring))
		ring_activate(dispatch, ring, ring->done_ticks);
}

void dispatch_publish_dirty(struct dispatch *dispatch)
{
	struct dispatch_ring *ring;

	while ((ring = dispatch->dirty)) {
		dispatch->dirty = ring->next_dirty;
		ring->is_dirty = false;
		/* A client that sees the completion before the ring is polled rings in vain. */
		if (__builtin_expect(!ring->is_active && !ring->is_throttled, 0))
			ring_go_on(dispatch, ring);
		ring_publish(dispatch, ring);
	}
}
