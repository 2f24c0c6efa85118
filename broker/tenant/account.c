/* SPDX-License-Identifier: MIT */
/*
 * The ledger
 *
 * An account lives as long as it has references: its tenant has one, and each charge has one. A
 * charge can therefore outlive its session and its tenant, and is still undone against the right
 * account. An example is a device buffer whose last submission is in flight.
 *
 * Invariants:
 * - A slot of an account is the sum of its charges.
 * - Only account_charge_set(), which follows existing use, takes a slot above its limit.
 * - The book's total is the sum over its accounts. It fits 64 bits, because a charge that would
 *   overflow it is rejected or cut off.
 * - The book may limit the sum over all accounts; charges observe this limit as they do the
 *   account's.
 */
#include "tenant/account.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/checked.h"
#include "util/error.h"
#include "util/number.h"
#include "util/plural.h"
#include "util/size.h"

struct account {
	struct account_book *book;
	struct account_limits limits;
	uint64_t used[ACCOUNT_SLOT_COUNT];
	uint64_t n_refs;
	enum account_slot refused_slot; /* slot of the last rejected charge */
	bool refused_by_book;           /* rejected for the book's limit, not the account's */
	uint64_t refused_amount;
	uint64_t n_refused;
	uint64_t closing_ns;
	char name[ACCOUNT_NAME_BYTES];
};

struct account_book {
	uint64_t total[ACCOUNT_SLOT_COUNT];
	uint64_t max[ACCOUNT_SLOT_COUNT];
	uint64_t n_accounts;
};

/* Names of slots for messages; the policy key that limits each, or NULL; the name of a single one.
 */
static const struct {
	const char *name, *key, *one;
} account_slots[ACCOUNT_SLOT_COUNT] = {
	[ACCOUNT_SESSIONS] = {"sessions", "sessions-max", "session"},
	[ACCOUNT_RINGS] = {"rings", NULL, "ring"},
	[ACCOUNT_ARENAS] = {"arenas", "arenas-max", "arena"},
	[ACCOUNT_PLANS] = {"plans", "plans-max", "plan"},
	[ACCOUNT_FDS] = {"descriptors", NULL, "descriptor"},
	[ACCOUNT_MAPPINGS] = {"mappings", NULL, "mapping"},
	[ACCOUNT_WATCHES] = {"inotify watches", NULL, "inotify watch"},
	[ACCOUNT_TASKS] = {"ring entries", "tasks-max", "ring entry"},
	/* These slots count bytes; their names follow a size. */
	[ACCOUNT_ARENA_BYTES] = {"of arenas", "arena-bytes-max", NULL},
	[ACCOUNT_HOST_BYTES] = {"of host memory", "host-max", NULL},
#define DEVICE(i)                                                         \
	[ACCOUNT_VRAM + i] = {"of VRAM on device " #i, "vram-max", NULL}, \
			[ACCOUNT_GTT + i] = {"of GTT on device " #i, "gtt-max", NULL}
	DEVICE(0),
	DEVICE(1),
	DEVICE(2),
	DEVICE(3),
	DEVICE(4),
	DEVICE(5),
	DEVICE(6),
	DEVICE(7),
	DEVICE(8),
	DEVICE(9),
	DEVICE(10),
	DEVICE(11),
	DEVICE(12),
	DEVICE(13),
	DEVICE(14),
	DEVICE(15),
#undef DEVICE
};
_Static_assert(RBK_MAX_DEVICES == 16, "a name for each device's slots");

int account_book_new(struct account_book **ret)
{
	struct account_book *book = calloc(1, sizeof(*book));

	if (!book)
		return error_origin(-ENOMEM);
	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++)
		book->max[slot] = UINT64_MAX;
	*ret = book;
	return 0;
}

void account_book_limit(struct account_book *book, enum account_slot slot, uint64_t max)
{
	assert(slot < ACCOUNT_SLOT_COUNT);
	book->max[slot] = max;
}

uint64_t account_book_max(const struct account_book *book, enum account_slot slot)
{
	assert(slot < ACCOUNT_SLOT_COUNT);
	return book->max[slot];
}

struct account_book *account_book_free(struct account_book *book)
{
	if (!book)
		return NULL;

	assert(book->n_accounts == 0);
	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++)
		assert(book->total[slot] == 0);
	free(book);
	return NULL;
}

uint64_t account_book_total(const struct account_book *book, enum account_slot slot)
{
	assert(slot < ACCOUNT_SLOT_COUNT);
	return book->total[slot];
}

int account_new(struct account_book *book, const char *name, const struct account_limits *limits,
		struct account **ret)
{
	struct account *account = calloc(1, sizeof(*account));

	if (!account)
		return error_origin(-ENOMEM);
	assert(strlen(name) < sizeof(account->name));
	strcpy(account->name, name);
	account->book = book;
	account->limits = *limits;
	account->n_refs = 1;
	book->n_accounts++;
	*ret = account;
	return 0;
}

struct account *account_ref(struct account *account)
{
	assert(account->n_refs > 0);
	account->n_refs++;
	return account;
}

struct account *account_unref(struct account *account)
{
	if (!account)
		return NULL;

	assert(account->n_refs > 0);
	if (--account->n_refs > 0)
		return NULL;

	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++)
		assert(account->used[slot] == 0);
	assert(account->book->n_accounts > 0);
	account->book->n_accounts--;
	free(account);
	return NULL;
}

const char *account_name(const struct account *account)
{
	return account->name;
}

uint64_t account_used(const struct account *account, enum account_slot slot)
{
	assert(slot < ACCOUNT_SLOT_COUNT);
	return account->used[slot];
}

uint64_t account_limit(const struct account *account, enum account_slot slot)
{
	assert(slot < ACCOUNT_SLOT_COUNT);
	return account->limits.max[slot];
}

void account_set_limits(struct account *account, const struct account_limits *limits)
{
	account->limits = *limits;
}

/* An amount of 0 always fits, even where a limit was lowered below the use. */
static bool fits(uint64_t used, uint64_t amount, uint64_t max)
{
	uint64_t sum;

	return checked_add(used, amount, &sum) && (amount == 0 || sum <= max);
}

static bool fits_account(const struct account *account, enum account_slot slot, uint64_t amount)
{
	return fits(account->used[slot], amount, account->limits.max[slot]);
}

static bool fits_book(const struct account_book *book, enum account_slot slot, uint64_t amount)
{
	return fits(book->total[slot], amount, book->max[slot]);
}

bool account_has_room(const struct account *account, enum account_slot slot, uint64_t amount)
{
	assert(slot < ACCOUNT_SLOT_COUNT);
	return fits_account(account, slot, amount) && fits_book(account->book, slot, amount);
}

int account_charge(struct account *account, struct charge *charge, enum account_slot slot,
		   uint64_t amount)
{
	assert(!charge->account);

	if (!account_has_room(account, slot, amount)) {
		account->n_refused += slot < ACCOUNT_VRAM;
		account->refused_by_book = fits_account(account, slot, amount);
		account->refused_slot = slot;
		account->refused_amount = amount;
		return ACCOUNT_E_QUOTA;
	}

	account->used[slot] += amount;
	account->book->total[slot] += amount;
	*charge = (struct charge){
		.account = account_ref(account),
		.slot = slot,
		.amount = amount,
	};
	return 0;
}

void account_charge_set(struct account *account, struct charge *charge, enum account_slot slot,
			uint64_t amount)
{
	uint64_t others;

	assert(slot < ACCOUNT_SLOT_COUNT);
	if (!charge->account)
		*charge = (struct charge){.account = account_ref(account), .slot = slot};
	assert(charge->account == account && charge->slot == slot);

	/* Cut off an amount that would overflow the total, whatever a driver reports. */
	others = account->book->total[slot] - charge->amount;
	if (amount > UINT64_MAX - others)
		amount = UINT64_MAX - others;
	account->used[slot] += amount - charge->amount;
	account->book->total[slot] = others + amount;
	charge->amount = amount;
}

int account_charge_change(struct account *account, struct charge *charge, enum account_slot slot,
			  uint64_t amount)
{
	struct charge more = CHARGE_INIT;

	if (amount > charge->amount &&
	    account_charge(account, &more, slot, amount - charge->amount))
		return ACCOUNT_E_QUOTA;
	charge_deinit(&more);
	account_charge_set(account, charge, slot, amount);
	return 0;
}

uint64_t account_n_refused(const struct account *account)
{
	return account->n_refused;
}

void account_add_closing(struct account *account, uint64_t ns)
{
	account->closing_ns += ns;
}

uint64_t account_closing_ns(const struct account *account)
{
	return account->closing_ns;
}

static bool counts_bytes(enum account_slot slot)
{
	return slot >= ACCOUNT_ARENA_BYTES;
}

/* Write an amount of a slot: a size or a number. Return: @text. */
static const char *amount_text(enum account_slot slot, uint64_t amount,
			       char text[SIZE_ROUNDED_BYTES])
{
	if (counts_bytes(slot))
		return size_rounded(amount, text);
	snprintf(text, SIZE_ROUNDED_BYTES, "%llu", ull(amount));
	return text;
}

/*
 * Write by how many bytes a charge exceeds a limit, if the rounded sizes in the sentence look as if
 * it fitted. Return: @text, otherwise empty.
 */
static const char *excess_text(enum account_slot slot, uint64_t used, uint64_t amount, uint64_t max,
			       char text[SIZE_ROUNDED_BYTES])
{
	uint64_t wanted;

	text[0] = '\0';
	if (counts_bytes(slot) && checked_add(used, amount, &wanted) && wanted > max &&
	    strcmp(SIZE_ROUNDED(wanted), SIZE_ROUNDED(max)) == 0)
		snprintf(text, SIZE_ROUNDED_BYTES, ", %llu byte%s too many", ull(wanted - max),
			 plural(wanted - max));
	return text;
}

const char *account_explain(const struct account *account, char text[ACCOUNT_TEXT_BYTES])
{
	const bool is_of_book = account->refused_by_book;
	enum account_slot slot = account->refused_slot;
	const char *key = account_slots[slot].key;
	const uint64_t max = is_of_book ? account->book->max[slot] : account->limits.max[slot];
	const uint64_t used = is_of_book ? account->book->total[slot] : account->used[slot];
	const uint64_t amount = account->refused_amount;
	const char *name = max == 1 && account_slots[slot].one ? account_slots[slot].one
							       : account_slots[slot].name;
	char max_text[SIZE_ROUNDED_BYTES], used_text[SIZE_ROUNDED_BYTES],
		more_text[SIZE_ROUNDED_BYTES];
	char excess[SIZE_ROUNDED_BYTES];

	amount_text(slot, max, max_text);
	amount_text(slot, used, used_text);
	amount_text(slot, amount, more_text);
	excess_text(slot, used, amount, max, excess);
	if (is_of_book)
		snprintf(text, ACCOUNT_TEXT_BYTES,
			 "all tenants together may have %s %s%s%s%s, have %s, and tenant %s asks "
			 "for %s more%s",
			 max_text, name, key ? " (the broker's " : "", key ? key : "",
			 key ? ")" : "", used_text, account->name, more_text, excess);
	else
		snprintf(text, ACCOUNT_TEXT_BYTES,
			 "tenant %s may have %s %s%s%s%s, has %s, and asks for %s more%s",
			 account->name, max_text, name, key ? " (" : "", key ? key : "",
			 key ? ")" : "", used_text, more_text, excess);
	return text;
}

void charge_deinit(struct charge *charge)
{
	struct account *account = charge->account;

	if (!account)
		return;

	assert(charge->slot < ACCOUNT_SLOT_COUNT);
	assert(account->used[charge->slot] >= charge->amount);
	assert(account->book->total[charge->slot] >= charge->amount);
	account->used[charge->slot] -= charge->amount;
	account->book->total[charge->slot] -= charge->amount;
	*charge = CHARGE_INIT;
	account_unref(account);
}

struct charge charge_steal(struct charge *charge)
{
	struct charge stolen = *charge;

	*charge = CHARGE_INIT;
	return stolen;
}
