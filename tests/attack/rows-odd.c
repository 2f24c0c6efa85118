/* SPDX-License-Identifier: MIT */
/* Attacks by entries and messages that are valid but for one detail: rows 24 and 25; see attack.h.
 */
#include <stdlib.h>

#include "attack/attack.h"
#include "integration/odd-entries.h"
#include "integration/odd-messages.h"

static uint64_t seed_of(unsigned int session)
{
	return 0x9e3779b97f4a7c15u * (session + 1) ^ harness_now_ns();
}

/* ---- 24: entries ---- */

static void count_entries(struct attack *attack, const struct odd_entries *odd)
{
	for (unsigned int i = 0; i < ODD_ERRORS; i++)
		if (odd->n_results[i])
			atomic_fetch_add(&attack->n_by_errno[i], odd->n_results[i]);
	atomic_fetch_add(&attack->n_changed, odd->n_changed);
}

/*
 * Each session has a ring. The results of entries are known, but for every @n_th_scribbles session,
 * which changes its entries and tables while the broker reads them.
 */
static void send_entries(struct attack *attack, unsigned int thread, unsigned int n_th_scribbles)
{
	const uint64_t patience_ns = 100000000000;
	unsigned int first, n = attack_share(attack, thread, &first), n_left;
	struct odd_entries *odd = calloc(n ? n : 1, sizeof(*odd));
	uint64_t since_ns = harness_now_ns();

	for (unsigned int i = 0; i < n; i++)
		odd_entries_begin(&odd[i],
				  attack_connect_with(attack, RBK_FEAT_FIXED_ARENAS |
								      RBK_FEAT_RESIDENCY |
								      RBK_FEAT_AFTER),
				  seed_of(first + i), (first + i + 1) % n_th_scribbles == 0);
	do {
		n_left = 0;
		for (unsigned int i = 0; i < n; i++) {
			const uint64_t n_before = odd[i].n_done;
			const bool goes_on = attack_goes_on(attack);
			const char *sentence = odd_entries_step(&odd[i], goes_on ? 256 : 0);

			if (sentence)
				attack_fail(attack, "row %u, seed %llu: %s", attack->row,
					    (unsigned long long)odd[i].seed, sentence);
			if (odd[i].n_done > n_before) {
				atomic_fetch_add(&attack->n_done, odd[i].n_done - n_before);
				since_ns = harness_now_ns();
			}
			n_left += goes_on || odd[i].n_done < odd[i].n_sent;
		}
		if (n_left > 0 && harness_now_ns() - since_ns > patience_ns)
			attack_fail(attack, "row %u: an entry has not completed", attack->row);
	} while (n_left > 0);
	for (unsigned int i = 0; i < n; i++) {
		count_entries(attack, &odd[i]);
		odd_entries_end(&odd[i]);
	}
	free(odd);
}

void attack_entries(struct attack *attack, unsigned int thread)
{
	send_entries(attack, thread, 4);
}

/* ---- 25: messages ---- */

static void check_messages(struct attack *attack, const struct odd_messages *odd,
			   const char *sentence)
{
	if (sentence)
		attack_fail(attack, "row %u, seed %llu: %s", attack->row,
			    (unsigned long long)odd->seed, sentence);
}

/* All sessions of a thread have messages under way at the same time. */
void attack_messages(struct attack *attack, unsigned int thread)
{
	struct broker broker = {.pid = 0};
	unsigned int first, n = attack_share(attack, thread, &first);
	struct odd_messages *odd = calloc(n ? n : 1, sizeof(*odd));

	snprintf(broker.socket_path, sizeof(broker.socket_path), "%s", attack->socket_path);
	for (unsigned int i = 0; i < n; i++)
		odd_messages_begin(&odd[i], &broker, seed_of(first + i));
	while (n > 0 && attack_goes_on(attack)) {
		uint64_t n_handled = 0;

		for (unsigned int i = 0; i < n; i++)
			check_messages(attack, &odd[i], odd_messages_send(&odd[i]));
		for (unsigned int i = 0; i < n; i++) {
			const uint64_t n_before = odd[i].n_handled;

			check_messages(attack, &odd[i], odd_messages_take(&odd[i]));
			n_handled += odd[i].n_handled - n_before;
		}
		atomic_fetch_add(&attack->n_done, n_handled);
	}
	for (unsigned int i = 0; i < n; i++) {
		attack_note_longest(attack, odd[i].longest_ns);
		atomic_fetch_add(&attack->n_changed, odd[i].n_changed);
		atomic_fetch_add(&attack->n_ended, odd[i].n_ended);
		odd_messages_end(&odd[i]);
	}
	free(odd);
}

/* ---- 26: entries beside a device, whose results the oracle does not know ---- */

void attack_device_entries(struct attack *attack, unsigned int thread)
{
	send_entries(attack, thread, 1);
}
