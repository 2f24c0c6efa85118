/* SPDX-License-Identifier: MIT */
/* Resets: see resets.h. */
#include "lease/resets.h"

#include <stdio.h>
#include <string.h>

#include "lease/lease.h"
#include "tenant/tenant.h"
#include "util/number.h"

/* ---- Parties ---- */

static struct resets_party party_of(const struct lease *lease, pid_t pid)
{
	struct resets_party party = {
		.lease = lease->number,
		.tenant = lease->tenant->number,
		.pid = pid,
	};

	_Static_assert(sizeof(party.name) == sizeof(lease->name), "the same");
	memcpy(party.name, lease->name, sizeof(party.name));
	snprintf(party.tenant_name, sizeof(party.tenant_name), "%s", tenant_name(lease->tenant));
	return party;
}

static bool is_same(const struct resets_party *a, const struct resets_party *b)
{
	return a->lease == b->lease && (a->pid == b->pid || a->pid == 0 || b->pid == 0);
}

/* Return the party in the list of a reset, which is added unless it is full. NULL: it is full. */
static struct resets_party *party_join(struct resets_device *device,
				       const struct resets_party *party)
{
	unsigned int n_of_tenant = 0;

	for (uint32_t i = 0; i < device->n_parties; i++) {
		if (is_same(&device->parties[i], party))
			return &device->parties[i];
		n_of_tenant += device->parties[i].tenant == party->tenant;
	}
	if (n_of_tenant == RESETS_MAX_OF_TENANT || device->n_parties == RESETS_MAX_PARTIES)
		return NULL;
	device->parties[device->n_parties] = *party;
	return &device->parties[device->n_parties++];
}

/* ---- Judging ---- */

/* Return true if a timeslice began before the one that @slow is, and took long. */
static bool is_slower(const struct resets_slice *slow, uint64_t began_ns, uint64_t ended_ns)
{
	return ended_ns >= began_ns + RESETS_LONG_NS &&
	       (slow->ended_ns == 0 || slow->ended_ns + RESETS_BEFORE_NS < ended_ns ||
		began_ns < slow->began_ns);
}

/* Return the only member's process; 0: there are several. */
static pid_t only_process(const struct lease *lease)
{
	return lease->n_members == 1
		       ? container_of(lease->members.next, struct lease_member, link)->pid
		       : 0;
}

static void note_slow(struct resets_slice *slow, const struct lease *lease, uint64_t began_ns,
		      uint64_t ended_ns)
{
	if (is_slower(slow, began_ns, ended_ns))
		*slow = (struct resets_slice){.party = party_of(lease, only_process(lease)),
					      .began_ns = began_ns,
					      .ended_ns = ended_ns};
}

void resets_note_slice(struct resets *resets, const struct lease *lease,
		       const struct timeslice_record *record)
{
	note_slow(&resets->devices[lease->device].slow, lease, record->began_ns, record->ended_ns);
}

/* Note the timeslices that have not ended yet. */
static void note_lasting(struct resets *resets, uint8_t index, uint64_t now_ns)
{
	struct leases *leases = container_of(resets, struct leases, resets);
	struct timeslice_device *device = &leases->timeslices.devices[index];

	list_for_each (node, &device->leases) {
		const struct lease *lease = container_of(node, struct lease, timeslice.link);

		if (lease->timeslice.is_under_way)
			note_slow(&resets->devices[index].slow, lease, lease->timeslice.held_ns,
				  now_ns);
	}
}

static void set_culprit(struct resets_device *device, const struct resets_party *party,
			bool is_certain)
{
	device->culprit = *party;
	device->has_culprit = true;
	device->is_certain = is_certain;
	device->is_judged = true;
}

/* Find a program that says itself that it is the culprit. */
static void judge_early(struct resets_device *device)
{
	for (uint32_t i = 0; i < device->n_parties && !device->is_certain; i++)
		if (device->parties[i].verdict == RESET_VERDICT_GUILTY)
			set_culprit(device, &device->parties[i], true);
}

/* Judge by what the broker has seen itself. */
static void judge_late(struct resets_device *device)
{
	const struct resets_slice *slow = &device->slow;

	if (device->is_seen && slow->ended_ns > 0 &&
	    slow->ended_ns + RESETS_BEFORE_NS >= device->at_ns) {
		set_culprit(device, &slow->party, false);
		device->culprit_ns = slow->ended_ns - slow->began_ns;
	}
	device->is_judged = true;
}

static struct resets_answer answer_to(const struct resets_device *device,
				      const struct resets_party *party)
{
	struct resets_answer answer = {
		.at_ns = device->at_ns,
		.is_final = device->is_judged,
		.is_seen = device->is_seen,
	};

	/* Several may be guilty: each of two cards' engines has its own culprit. */
	if (party->verdict == RESET_VERDICT_GUILTY) {
		answer.is_final = answer.is_own = answer.is_certain = true;
		answer.culprit = party;
	} else if (device->is_judged && device->has_culprit) {
		answer.culprit = &device->culprit;
		answer.is_own = is_same(&device->culprit, party);
		answer.is_certain = device->is_certain;
		answer.culprit_ns = device->culprit_ns;
	}
	return answer;
}

static void tell(struct resets *resets, uint8_t index, struct resets_party *party)
{
	const struct resets_answer answer = answer_to(&resets->devices[index], party);

	if (party->is_told || !answer.is_final)
		return;
	party->is_told = true;
	if (resets->judged)
		resets->judged(resets->context, index, party, &answer);
}

static void tell_all(struct resets *resets, uint8_t index)
{
	struct resets_device *device = &resets->devices[index];
	struct resets_party *culprit;

	/* A culprit may have ended, or not use the layer. */
	if (device->is_judged && device->has_culprit && !device->is_certain) {
		culprit = party_join(device, &device->culprit);
		if (culprit)
			tell(resets, index, culprit);
	}
	for (uint32_t i = 0; i < device->n_parties; i++)
		tell(resets, index, &device->parties[i]);
}

/* ---- Notices ---- */

static void begin(struct resets *resets, uint8_t index, uint64_t now_ns)
{
	struct resets_device *device = &resets->devices[index];

	/* The last one is over, without further reports. */
	if (device->at_ns > 0 && !device->is_judged) {
		judge_late(device);
		tell_all(resets, index);
	}
	device->at_ns = now_ns;
	device->is_seen = device->is_judged = device->has_culprit = device->is_certain = false;
	device->n_parties = 0;
	device->culprit_ns = 0;
	note_lasting(resets, index, now_ns);
	if (resets->changed)
		resets->changed(resets->context);
}

static void join(struct resets *resets, uint8_t index, uint64_t now_ns)
{
	const struct resets_device *device = &resets->devices[index];
	const uint64_t most_ns = device->is_seen ? RESETS_LATE_NS : RESETS_JOIN_NS;

	if (device->at_ns == 0 || now_ns > device->at_ns + most_ns)
		begin(resets, index, now_ns);
}

/* Return the answer to a party that reports now. */
static struct resets_answer report(struct resets *resets, uint8_t index, struct resets_party *party,
				   uint64_t now_ns)
{
	struct resets_device *device = &resets->devices[index];
	struct resets_party *joined;

	join(resets, index, now_ns);
	joined = party_join(device, party);
	if (!joined)
		return answer_to(device, party);
	/* The statement that speaks most against itself stays. */
	if (joined->verdict < party->verdict)
		joined->verdict = party->verdict;
	judge_early(device);
	tell_all(resets, index);
	return answer_to(device, joined);
}

struct resets_answer resets_report(struct lease_member *member, enum reset_verdict verdict,
				   uint64_t now_ns)
{
	struct lease *lease = member->lease;
	struct resets_party party = party_of(lease, member->pid);

	party.verdict = verdict;
	return report(&lease->leases->resets, lease->device, &party, now_ns);
}

void resets_own_lost(struct resets *resets, uint8_t device, enum reset_verdict verdict,
		     uint64_t now_ns)
{
	struct resets_party party = {.verdict = verdict};

	/* Its device may be lost for another reason, as one that is unplugged. */
	if (verdict != RESET_VERDICT_UNKNOWN)
		report(resets, device, &party, now_ns);
}

void resets_seen(struct resets *resets, uint8_t index, uint64_t n_resets, uint64_t now_ns)
{
	struct resets_device *device = &resets->devices[index];
	const bool is_new = device->has_seen && n_resets != device->n_seen;

	device->n_seen = n_resets;
	device->has_seen = true;
	if (!is_new)
		return;
	/* Programs that have noticed it in the last seconds meant this one. */
	if (device->at_ns == 0 || device->is_seen || now_ns > device->at_ns + RESETS_JOIN_NS)
		begin(resets, index, now_ns);
	device->is_seen = true;
}

void resets_run(struct resets *resets, uint64_t now_ns)
{
	for (uint8_t i = 0; i < RBK_MAX_DEVICES; i++) {
		struct resets_device *device = &resets->devices[i];

		if (device->at_ns == 0 || device->is_judged ||
		    now_ns < device->at_ns + RESETS_WAIT_NS)
			continue;
		judge_late(device);
		tell_all(resets, i);
	}
}

uint64_t resets_next_ns(const struct resets *resets)
{
	uint64_t next_ns = UINT64_MAX;

	for (uint8_t i = 0; i < RBK_MAX_DEVICES; i++) {
		const struct resets_device *device = &resets->devices[i];

		if (device->at_ns > 0 && !device->is_judged)
			next_ns = min_u64(next_ns, device->at_ns + RESETS_WAIT_NS);
	}
	return next_ns;
}
