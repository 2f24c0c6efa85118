/* SPDX-License-Identifier: MIT */
/*
 * Causers of delays: see delay-causes.h.
 *
 * An entry of the space-saving algorithm that replaces another continues from the other's count,
 * and stores that count in overcount_ns. So an entry that was there at the last look, with the same
 * overcount, grew by the difference; any other grew by its count above its overcount.
 *
 * A table may be written during a copy. An entry whose words differ between two reads is left to
 * the next look.
 */
#include "contention/delay-causes.h"

#include <stdbool.h>
#include <string.h>

static const uint64_t second_ns = 1000000000u;

enum { CAUSER_WORDS = sizeof(struct run_queue_causer) / sizeof(uint64_t), ATTEMPTS = 4 };
_Static_assert(sizeof(struct run_queue_causer) % sizeof(uint64_t) == 0, "copied by words");

size_t delay_causes_bytes(uint32_t n_tables)
{
	return sizeof(struct delay_causes) + n_tables * sizeof(struct delay_causes_seen);
}

static void copy(const struct run_queue_causer *from, struct run_queue_causer *ret)
{
	const uint64_t *words = (const uint64_t *)from;
	uint64_t copied[CAUSER_WORDS];

	for (unsigned int i = 0; i < CAUSER_WORDS; i++)
		copied[i] = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
	memcpy(ret, copied, sizeof(copied));
}

/*
 * Copy an entry.
 * Return: true if the copy is consistent.
 */
static bool copy_whole(const struct run_queue_causer *from, struct run_queue_causer *ret)
{
	struct run_queue_causer again;

	copy(from, ret);
	for (unsigned int i = 0; i < ATTEMPTS; i++) {
		copy(from, &again);
		if (memcmp(&again, ret, sizeof(again)) == 0)
			return true;
		*ret = again;
	}
	return false;
}

/* Compare by the key of the probes. */
static bool is_same_entry(const struct run_queue_causer *a, const struct run_queue_causer *b)
{
	return a->cgroup == b->cgroup && memcmp(a->comm, b->comm, sizeof(a->comm)) == 0;
}

/* An entry stays when its owner changes, but later growth belongs to the new owner. */
static bool is_same(const struct run_queue_causer *a, const struct run_queue_causer *b)
{
	return is_same_entry(a, b) && a->who == b->who;
}

void delay_causes_begin(struct delay_causes *causers, uint32_t i,
			const struct run_queue_causer *table)
{
	for (unsigned int j = 0; j < RUN_QUEUE_CAUSERS; j++)
		copy_whole(&table[j], &causers->seen[i].causers[j]);
}

/* Add to the matching one of @n in @list, which has room for @room, or replace the least. */
static void add(struct run_queue_causer *list, uint32_t *n, uint32_t room,
		const struct run_queue_causer *causer)
{
	uint32_t least = 0;

	for (uint32_t i = 0; i < *n; i++) {
		if (is_same(&list[i], causer)) {
			list[i].wait_ns += causer->wait_ns;
			list[i].n_preemptions += causer->n_preemptions;
			return;
		}
		if (list[i].wait_ns < list[least].wait_ns)
			least = i;
	}
	if (*n < room)
		list[(*n)++] = *causer;
	else if (list[least].wait_ns < causer->wait_ns)
		list[least] = *causer;
}

/* Return the growth of @now since the table was as in @seen. */
static struct run_queue_causer growth(const struct run_queue_causer *now,
				      const struct delay_causes_seen *seen)
{
	struct run_queue_causer grown = *now;

	for (unsigned int i = 0; i < RUN_QUEUE_CAUSERS; i++) {
		const struct run_queue_causer *before = &seen->causers[i];

		if (!is_same_entry(before, now) || before->overcount_ns != now->overcount_ns ||
		    before->wait_ns > now->wait_ns || before->n_preemptions > now->n_preemptions)
			continue;
		grown.wait_ns = now->wait_ns - before->wait_ns;
		grown.n_preemptions = now->n_preemptions - before->n_preemptions;
		return grown;
	}
	grown.wait_ns = now->wait_ns > now->overcount_ns ? now->wait_ns - now->overcount_ns : 0;
	return grown;
}

static bool is_empty(const struct run_queue_causer *causer)
{
	return causer->wait_ns == 0 && causer->n_preemptions == 0 && causer->comm[0] == '\0';
}

static void go_on(struct delay_causes *causers, uint64_t now_ns)
{
	if (causers->began_ns[causers->now] && now_ns - causers->began_ns[causers->now] < second_ns)
		return;
	if (causers->began_ns[causers->now])
		causers->now = (causers->now + 1) % DELAY_CAUSES_SECONDS;
	causers->began_ns[causers->now] = now_ns;
	causers->seconds[causers->now].n = 0;
}

void delay_causes_feed(struct delay_causes *causers, uint64_t now_ns, uint32_t i,
		       const struct run_queue_causer *table)
{
	struct delay_causes_second *second;
	struct delay_causes_seen now;

	go_on(causers, now_ns);
	second = &causers->seconds[causers->now];
	for (unsigned int j = 0; j < RUN_QUEUE_CAUSERS; j++) {
		struct run_queue_causer grown;

		if (!copy_whole(&table[j], &now.causers[j])) {
			now.causers[j] = causers->seen[i].causers[j];
			continue;
		}
		if (is_empty(&now.causers[j]))
			continue;
		grown = growth(&now.causers[j], &causers->seen[i]);
		if (grown.wait_ns > 0 || grown.n_preemptions > 0)
			add(second->causers, &second->n, DELAY_CAUSES_PER_SECOND, &grown);
	}
	causers->seen[i] = now;
}

void delay_causes_forget(struct delay_causes *causers, uint32_t who)
{
	for (unsigned int i = 0; i < DELAY_CAUSES_SECONDS; i++)
		for (uint32_t j = 0; j < causers->seconds[i].n; j++)
			if (causers->seconds[i].causers[j].who == who)
				causers->seconds[i].causers[j].who = RUN_QUEUE_NOBODY;
}

void delay_causes_add(const struct delay_causes *causers, uint64_t now_ns,
		      struct delay_causes_sum *sum)
{
	for (unsigned int i = 0; i < DELAY_CAUSES_SECONDS; i++) {
		const struct delay_causes_second *second = &causers->seconds[i];

		if (!causers->began_ns[i] ||
		    now_ns - causers->began_ns[i] > (DELAY_CAUSES_SECONDS + 1) * second_ns)
			continue;
		for (uint32_t j = 0; j < second->n; j++)
			add(sum->causers, &sum->n, DELAY_CAUSES_MERGED, &second->causers[j]);
	}
}

uint32_t delay_causes_top(struct delay_causes_sum *sum, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && i < sum->n; i++) {
		struct run_queue_causer most;
		uint32_t at = i;

		for (uint32_t j = i + 1; j < sum->n; j++)
			if (sum->causers[j].wait_ns > sum->causers[at].wait_ns)
				at = j;
		if (sum->causers[at].wait_ns == 0)
			break;
		most = sum->causers[at];
		sum->causers[at] = sum->causers[i];
		sum->causers[i] = most;
	}
	return i;
}
