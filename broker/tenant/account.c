/* SPDX-License-Identifier: MIT */
/*
 * Accounts and charges
 *
 * A book holds one account per user id for as long as somebody refers to it: sessions do, and so
 * does every charge. A charge can therefore outlive the session that made it (a device buffer whose
 * last submission is still in flight) and is still undone against the right account.
 *
 * Invariants: an account's slot is the sum of its charges and never above the limit; the book's
 * total is the sum over its accounts, and fits 64 bits because a charge that would not is refused.
 * Accounts are few (one per user), so they are a list.
 */
#include "tenant/account.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "util/checked.h"
#include "util/error.h"

struct account {
	struct account_book *book;
	struct account *prev, *next;
	uint64_t used[ACCOUNT_SLOT_COUNT];
	uint64_t n_refs;
	enum account_slot refused_slot; /* of the last charge that was refused */
	uint64_t refused_amount;
	uint32_t id;
	uid_t uid;
};

struct account_book {
	struct account_limits limits;
	uint64_t total[ACCOUNT_SLOT_COUNT];
	struct account *accounts;
	uint32_t last_id;
};

static const char *const account_slot_names[ACCOUNT_SLOT_COUNT] = {
	[ACCOUNT_SESSIONS] = "sessions",     [ACCOUNT_RINGS] = "rings",
	[ACCOUNT_ARENAS] = "arenas",         [ACCOUNT_PLANS] = "plans",
	[ACCOUNT_FDS] = "descriptors",       [ACCOUNT_MAPPINGS] = "mappings",
	[ACCOUNT_HOST_BYTES] = "host bytes", [ACCOUNT_DEVICE_BYTES] = "device bytes",
};

const char *account_slot_name(enum account_slot slot)
{
	assert(slot < ACCOUNT_SLOT_COUNT);
	return account_slot_names[slot];
}

int account_book_new(const struct account_limits *limits, struct account_book **ret)
{
	struct account_book *book = calloc(1, sizeof(*book));

	if (!book)
		return error_origin(-ENOMEM);
	book->limits = *limits;
	*ret = book;
	return 0;
}

struct account_book *account_book_free(struct account_book *book)
{
	if (!book)
		return NULL;

	assert(!book->accounts);
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

static bool book_has_id(const struct account_book *book, uint32_t id)
{
	for (const struct account *account = book->accounts; account; account = account->next)
		if (account->id == id)
			return true;
	return false;
}

int account_open(struct account_book *book, uid_t uid, struct account **ret)
{
	struct account *account;

	for (account = book->accounts; account; account = account->next) {
		if (account->uid == uid) {
			*ret = account_ref(account);
			return 0;
		}
	}

	account = calloc(1, sizeof(*account));
	if (!account)
		return error_origin(-ENOMEM);

	/* Counted on, so that what remembers a gone account's number does not take this one for it.
	 */
	do
		book->last_id++;
	while (book->last_id == 0 || book_has_id(book, book->last_id));

	account->book = book;
	account->n_refs = 1;
	account->id = book->last_id;
	account->uid = uid;
	account->next = book->accounts;
	if (account->next)
		account->next->prev = account;
	book->accounts = account;
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
	if (account->prev)
		account->prev->next = account->next;
	else
		account->book->accounts = account->next;
	if (account->next)
		account->next->prev = account->prev;
	free(account);
	return NULL;
}

uint64_t account_used(const struct account *account, enum account_slot slot)
{
	assert(slot < ACCOUNT_SLOT_COUNT);
	return account->used[slot];
}

uint64_t account_limit(const struct account *account, enum account_slot slot)
{
	assert(slot < ACCOUNT_SLOT_COUNT);
	return account->book->limits.max[slot];
}

uint32_t account_id(const struct account *account)
{
	return account->id;
}

int account_charge(struct account *account, struct charge *charge, enum account_slot slot,
		   uint64_t amount)
{
	uint64_t used, total;

	assert(slot < ACCOUNT_SLOT_COUNT);
	assert(!charge->account);

	if (!checked_add(account->used[slot], amount, &used) ||
	    used > account_limit(account, slot) ||
	    !checked_add(account->book->total[slot], amount, &total)) {
		account->refused_slot = slot;
		account->refused_amount = amount;
		return ACCOUNT_E_QUOTA;
	}

	account->used[slot] = used;
	account->book->total[slot] = total;
	*charge = (struct charge){
		.account = account_ref(account),
		.slot = slot,
		.amount = amount,
	};
	return 0;
}

const char *account_explain(const struct account *account, char text[ACCOUNT_TEXT_BYTES])
{
	enum account_slot slot = account->refused_slot;

	snprintf(text, ACCOUNT_TEXT_BYTES,
		 "user %u may have %llu %s held by the broker, has %llu, and asks for %llu more",
		 (unsigned int)account->uid, (unsigned long long)account_limit(account, slot),
		 account_slot_name(slot), (unsigned long long)account->used[slot],
		 (unsigned long long)account->refused_amount);
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
