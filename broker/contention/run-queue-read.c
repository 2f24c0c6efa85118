/* SPDX-License-Identifier: MIT */
/*
 * The reactor's part of the run queue: reading the source, and totals
 *
 * With the probes, totals are added up here, by plain loads from their maps, including the delay or
 * stretch in progress. The scheduler may be writing, so the data of a stretch are read before and
 * after the sum of the completed ones. Even so, a delay in progress may turn out to be of another
 * kind when it ends. Figures that would decrease then keep their value until they are exceeded.
 * They do decrease if they cover other workers or processors than before.
 *
 * A delay in progress is no contention if it began by a quota's throttling, or if a processor that
 * the worker may use is idle.
 */
#include <string.h>

#include "contention/run-queue-private.h"
#include "util/clock.h"
#include "util/seqlock.h"

enum { ATTEMPTS = 3 };

enum run_queue_source run_queue_source(const struct run_queue *rq)
{
	return rq ? atomic_load_explicit(&rq->source, memory_order_acquire) : RUN_QUEUE_SOURCE_NONE;
}

static uint64_t in_progress_ns(uint64_t now_ns, uint64_t then_ns)
{
	return then_ns != 0 && now_ns > then_ns ? now_ns - then_ns : 0;
}

/* Return true if the delay in progress began by throttling, by the count of throttled delays. */
static bool is_throttled(struct run_queue_stretch *stretch, uint64_t waiting_since_ns,
			 uint64_t n_throttled)
{
	if (waiting_since_ns != stretch->waiting_since_ns) {
		stretch->is_throttled = n_throttled != stretch->n_throttled;
		stretch->waiting_since_ns = waiting_since_ns;
	}
	stretch->n_throttled = n_throttled;
	return stretch->is_throttled;
}

static void add_thread(struct run_queue *rq, uint32_t slot, bool has_room,
		       struct run_queue_totals *totals)
{
	const struct run_queue_record *record = probes_thread(rq->probes, slot);
	uint64_t waiting_ns = 0, running_ns = 0, run_ns = 0, wait_ns = 0, idle_wait_ns = 0, goes_on;

	for (unsigned int i = 0; i < ATTEMPTS; i++) {
		waiting_ns = __atomic_load_n(&record->waiting_since_ns, __ATOMIC_ACQUIRE);
		running_ns = __atomic_load_n(&record->running_since_ns, __ATOMIC_ACQUIRE);
		run_ns = __atomic_load_n(&record->run_ns, __ATOMIC_ACQUIRE);
		wait_ns = __atomic_load_n(&record->wait_ns, __ATOMIC_ACQUIRE);
		idle_wait_ns = __atomic_load_n(&record->idle_wait_ns, __ATOMIC_ACQUIRE);
		if (run_queue_load(&record->waiting_since_ns) == waiting_ns &&
		    run_queue_load(&record->running_since_ns) == running_ns)
			break;
	}
	if (is_throttled(&rq->stretches[slot], waiting_ns, run_queue_load(&record->n_throttled)))
		has_room = true;
	goes_on = in_progress_ns(totals->at_ns, waiting_ns);
	totals->run_ns += run_ns + in_progress_ns(totals->at_ns, running_ns);
	totals->wait_ns += wait_ns + (has_room ? 0 : goes_on);
	totals->idle_wait_ns += idle_wait_ns + (has_room ? goes_on : 0);
	totals->n_preemptions += run_queue_load(&record->n_preemptions);
}

/* Return true if a worker may use an idle processor. */
static bool is_there_room(const struct run_queue *rq, uint32_t slot, bool is_any_idle)
{
	uint16_t pinned = atomic_load_explicit(&rq->pinned[slot], memory_order_relaxed);

	if (pinned >= probes_n_processors(rq->probes))
		return is_any_idle;
	return __atomic_load_n(&probes_processor(rq->probes, pinned)->now, __ATOMIC_RELAXED) ==
	       RUN_QUEUE_IDLE;
}

/*
 * Add a processor's figures.
 * Return: true if it is idle now.
 */
static bool add_processor(const struct run_queue_processor *processor, uint64_t now_ns,
			  struct run_queue_totals *totals)
{
	uint64_t since_ns = 0, idle_ns = 0, others_ns = 0;
	uint32_t use = RUN_QUEUE_UNKNOWN;

	for (unsigned int i = 0; i < ATTEMPTS; i++) {
		since_ns = __atomic_load_n(&processor->since_ns, __ATOMIC_ACQUIRE);
		use = __atomic_load_n(&processor->now, __ATOMIC_ACQUIRE);
		idle_ns = __atomic_load_n(&processor->idle_ns, __ATOMIC_ACQUIRE);
		others_ns = __atomic_load_n(&processor->others_ns, __ATOMIC_ACQUIRE);
		if (run_queue_load(&processor->since_ns) == since_ns)
			break;
	}
	totals->idle_ns += idle_ns + (use == RUN_QUEUE_IDLE ? in_progress_ns(now_ns, since_ns) : 0);
	totals->others_ns +=
		others_ns + (use == RUN_QUEUE_OTHERS ? in_progress_ns(now_ns, since_ns) : 0);
	totals->n_processors++;
	return use == RUN_QUEUE_IDLE;
}

static void no_less(uint64_t *now, uint64_t *told)
{
	if (*now < *told)
		*now = *told;
	*told = *now;
}

static void read_probes(struct run_queue *rq, struct run_queue_totals *totals)
{
	const uint32_t n_processors = probes_n_processors(rq->probes);
	uint32_t n_slots, n_changes;
	bool is_any_idle = false;

	/* Pairs with the additions after changes of workers or processors. */
	n_changes = atomic_load_explicit(&rq->n_changes, memory_order_acquire);
	if (n_changes != rq->n_changes_told) {
		rq->n_changes_told = n_changes;
		memset(&rq->told, 0, sizeof(rq->told));
	}
	/* Pairs with the store in begin_thread(). */
	n_slots = atomic_load_explicit(&rq->n_slots, memory_order_acquire);
	totals->at_ns = clock_now_ns();
	for (uint32_t i = 0; i < n_processors; i++) {
		const struct run_queue_processor *processor = probes_processor(rq->probes, i);

		totals->n_dropped += run_queue_load(&processor->n_dropped);
		if (i < PROC_MAX_PROCESSORS &&
		    atomic_load_explicit(&rq->mask[i / 64], memory_order_relaxed) &
			    (uint64_t)1 << i % 64)
			is_any_idle |= add_processor(processor, totals->at_ns, totals);
	}
	totals->has_processors = totals->n_processors > 0;
	totals->steal_ns = atomic_load_explicit(&rq->steal_ns, memory_order_relaxed);
	for (uint32_t i = 0; i < n_slots; i++) {
		if (atomic_load_explicit(&rq->roles[i], memory_order_relaxed) != RUN_QUEUE_WORKER)
			continue;
		totals->has_workers = true;
		add_thread(rq, i, is_there_room(rq, i, is_any_idle), totals);
	}
	no_less(&totals->run_ns, &rq->told.run_ns);
	no_less(&totals->wait_ns, &rq->told.wait_ns);
	no_less(&totals->idle_wait_ns, &rq->told.idle_wait_ns);
	no_less(&totals->idle_ns, &rq->told.idle_ns);
	no_less(&totals->others_ns, &rq->told.others_ns);
}

void run_queue_read(struct run_queue *rq, struct run_queue_totals *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (!rq)
		return;
	if (run_queue_source(rq) == RUN_QUEUE_SOURCE_EBPF)
		read_probes(rq, ret);
	else
		seqlock_read(&rq->totals.sequence, rq->totals.words[0],
			     sizeof(*ret) / sizeof(uint64_t), ret);
	ret->n_unwatched = rq->n_unwatched;
	ret->n_dropped += atomic_load_explicit(&rq->n_dropped, memory_order_relaxed);
}

uint64_t run_queue_caused_ns(struct run_queue *rq, uint16_t tenant)
{
	uint64_t caused_ns = 0;

	if (!rq || tenant >= RUN_QUEUE_MAX_TENANTS || run_queue_source(rq) != RUN_QUEUE_SOURCE_EBPF)
		return 0;
	for (uint32_t i = 0; i < probes_n_processors(rq->probes); i++)
		caused_ns += run_queue_load(&probes_tenant(rq->probes, tenant, i)->caused_ns);
	return caused_ns;
}
