/* SPDX-License-Identifier: MIT */
/*
 * Descriptions: plans' serialized forms on their way to the setup thread
 *
 * The largest description takes milliseconds to verify, and reading one from a memfd waits for the
 * disk if its pages were swapped out. Both therefore happen on the setup thread, verification in
 * parts. Charging and looking up arenas must happen on the reactor, where arenas are added and
 * removed. The list of arenas that constants name is therefore taken from the description's table
 * of tensors in advance. The table is not verified at this point, so nothing in it is trusted.
 *
 * An arena on the list cannot be removed until the plan is removed or rejected.
 *
 * Verification takes several times the memory of the description, but for one plan of a tenant at a
 * time. A description that waits for other plans is therefore charged only for the memory that it
 * holds.
 */
#include "session/description.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session/session.h"
#include "shm/plan-wire.h"
#include "shm/wire.h"
#include "util/error.h"

enum { N_ARENA_IDS = UINT16_MAX + 1, WORD_BITS = 64 };

/* Most bytes of a description's list of arenas, if each constant names another arena. */
static uint64_t pins_bytes(size_t n_bytes)
{
	return n_bytes / sizeof(struct rbk_plan_tensor) * sizeof(struct plan_pin);
}

/* Return the number of tensors in the bytes, whatever the header claims. */
static uint32_t count_tensors(const struct description *description)
{
	const struct rbk_plan_header *header = description->bytes;
	size_t n;

	if (description->n_bytes < sizeof(*header))
		return 0;
	n = (description->n_bytes - sizeof(*header)) / sizeof(struct rbk_plan_tensor);
	return header->n_tensors < n ? header->n_tensors : (uint32_t)n;
}

/* List the arenas named, each once. Return: 0; -ENOMEM. */
static int list_arenas(struct description *description)
{
	const struct rbk_plan_header *header = description->bytes;
	const struct rbk_plan_tensor *tensors = (const void *)(header + 1);
	const uint32_t n = count_tensors(description);
	uint64_t named[N_ARENA_IDS / WORD_BITS] = {0};
	uint32_t n_named = 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint16_t id = RBK_REF_ARENA(tensors[i].constant_ref);

		if (tensors[i].kind != RBK_TENSOR_CONSTANT ||
		    named[id / WORD_BITS] >> id % WORD_BITS & 1)
			continue;
		named[id / WORD_BITS] |= 1ull << id % WORD_BITS;
		n_named++;
	}
	if (n_named == 0)
		return 0;
	description->pins.of = calloc(n_named, sizeof(*description->pins.of));
	if (!description->pins.of)
		return error_origin(-ENOMEM);
	for (uint32_t word = 0; word < N_ARENA_IDS / WORD_BITS; word++)
		for (uint64_t rest = named[word]; rest; rest &= rest - 1)
			description->pins.of[description->pins.n++].id =
				(uint16_t)(word * WORD_BITS + (uint32_t)__builtin_ctzll(rest));
	return 0;
}

static uint64_t copy_bytes(const struct description *description)
{
	return description->n_bytes + pins_bytes(description->n_bytes);
}

/* Bytes held from the beginning; the contents of a memfd are copied later. */
static uint64_t waiting_bytes(const struct description *description)
{
	return sizeof(struct session_plan) + sizeof(*description) +
	       (description->fd < 0 ? copy_bytes(description) : 0);
}

/* Return: 0; ACCOUNT_E_QUOTA. */
static int charge(struct description *description, struct account *account)
{
	if (account_charge(account, &description->charges[0], ACCOUNT_HOST_BYTES,
			   waiting_bytes(description)))
		return ACCOUNT_E_QUOTA;
	if (description->fd < 0 ||
	    account_charge(account, &description->charges[1], ACCOUNT_FDS, 1) == 0)
		return 0;
	charge_deinit(&description->charges[0]);
	return ACCOUNT_E_QUOTA;
}

int description_new(struct account *account, const void *bytes, size_t n_bytes, int *fd,
		    struct description **ret)
{
	_cleanup_(freep) struct description *description = calloc(1, sizeof(*description));

	if (!description)
		return error_origin(-ENOMEM);
	description->n_bytes = n_bytes;
	description->fd = bytes ? -1 : *fd;
	description->result = -ECANCELED;
	if (charge(description, account))
		return ACCOUNT_E_QUOTA;
	if (!bytes) {
		steal_fd(fd);
		*ret = steal_ptr(description);
		return 0;
	}
	/* One byte more: an empty description exists, too, although it is invalid. */
	description->bytes = malloc(n_bytes + 1);
	if (description->bytes)
		memcpy(description->bytes, bytes, n_bytes);
	if (!description->bytes || list_arenas(description)) {
		description_free(steal_ptr(description));
		return error_origin(-ENOMEM);
	}
	*ret = steal_ptr(description);
	return 0;
}

int description_charge_check(struct description *description, struct account *account)
{
	const uint64_t bytes = plan_new_bytes(description->n_bytes) +
			       (description->fd < 0 ? 0 : copy_bytes(description));
	int r = account_charge(account, &description->charges[2], ACCOUNT_HOST_BYTES,
			       bytes + description->cut_bytes);

	if (r == 0 || description->cut_bytes == 0)
		return r;
	description->cut_bytes = 0;
	free(description->cut_basis);
	description->cut_basis = NULL;
	return account_charge(account, &description->charges[2], ACCOUNT_HOST_BYTES, bytes);
}

bool description_may_check(const struct description *description)
{
	return description->charges[2].account != NULL;
}

int description_take_fd(struct description *description)
{
	charge_deinit(&description->charges[1]);
	return steal_fd(&description->fd);
}

void description_uncharge(struct description *description)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(description->charges); i++)
		charge_deinit(&description->charges[i]);
}

void description_charge(struct description *description, struct account *account)
{
	assert(description->fd < 0);
	/* Not subject to the limit, which may have been lowered since. */
	account_charge_set(account, &description->charges[0], ACCOUNT_HOST_BYTES,
			   waiting_bytes(description) + plan_new_bytes(description->n_bytes) +
				   description->cut_bytes);
}

static int read_bytes(struct description *description)
{
	ssize_t n;

	description->bytes = malloc(description->n_bytes);
	if (!description->bytes)
		return error_origin(-ENOMEM);
	for (size_t done = 0; done < description->n_bytes; done += (size_t)n) {
		n = pread(description->fd, (char *)description->bytes + done,
			  description->n_bytes - done, (off_t)done);
		if (n <= 0)
			return DESCRIPTION_E_UNREADABLE;
	}
	return 0;
}

void description_read(struct description *description)
{
	description->result = read_bytes(description);
	if (description->result == 0)
		description->result = list_arenas(description);
}

void description_pin(struct description *description, struct session *session)
{
	for (uint32_t i = 0; i < description->pins.n; i++) {
		struct plan_pin *pin = &description->pins.of[i];

		pin->arena = pin->id < session->n_arenas ? session->arenas[pin->id] : NULL;
		pin->is_pinned = pin->arena && pin->arena->exec.immutable;
		if (pin->is_pinned)
			pin->arena->n_plans++;
	}
}

static int compare_id(const void *id, const void *pin)
{
	return *(const uint16_t *)id - ((const struct plan_pin *)pin)->id;
}

struct exec_arena *description_find_arena(void *context, uint16_t arena_id, const char **ret_why)
{
	const struct plan_pins *pins = context;
	const struct plan_pin *pin =
		bsearch(&arena_id, pins->of, pins->n, sizeof(*pins->of), compare_id);

	if (!pin || !pin->arena) {
		*ret_why = "there is no such arena";
		return NULL;
	}
	if (!pin->is_pinned) {
		*ret_why = "the arena is not sealed against writing";
		return NULL;
	}
	return &pin->arena->exec;
}

bool description_verify(struct description *description, struct plan **ret)
{
	const struct plan_arena_lookup lookup = {.find = description_find_arena,
						 .context = &description->pins};
	int r = 0;

	if (!description->maker)
		r = plan_maker_new(description->bytes, description->n_bytes, &lookup,
				   description->message, &description->maker);
	if (!r)
		r = plan_maker_work(description->maker, ret);
	description->result = r == PLAN_E_MORE ? -ECANCELED : r;
	return r == PLAN_E_MORE;
}

void description_free_bytes(struct description *description)
{
	description->maker = plan_maker_free(description->maker);
	free(description->bytes);
	description->bytes = NULL;
}

struct plan_pins description_take_pins(struct description *description)
{
	struct plan_pins pins = description->pins;

	description->pins = (struct plan_pins){.n = 0};
	return pins;
}

struct description *description_free(struct description *description)
{
	if (!description)
		return NULL;
	assert(description->fd < 0 && !description->maker);
	plan_pins_deinit(&description->pins);
	description_uncharge(description);
	free(description->bytes);
	free(description->cut_basis);
	free(description);
	return NULL;
}

void plan_pins_deinit(struct plan_pins *pins)
{
	for (uint32_t i = 0; i < pins->n; i++)
		if (pins->of[i].is_pinned)
			pins->of[i].arena->n_plans--;
	free(pins->of);
	*pins = (struct plan_pins){.n = 0};
}
