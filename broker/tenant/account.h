#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The ledger: accounts and charges
 *
 * Whatever a client makes the broker hold is charged to its tenant's account before it is made, so
 * that a client meets its limit before the broker meets the end of memory. A charge is an object:
 * it is undone by exactly one charge_deinit(), and an account asserts when it is freed that it
 * balances. One account per tenant, and one of the broker's own for what drivers take for
 * themselves. Reactor thread only.
 */
#include <stdint.h>
#include <ringbroker/abi.h>

#include "util/cleanup.h"

struct account;
struct account_book;

enum account_slot {
	ACCOUNT_SESSIONS,
	ACCOUNT_RINGS,
	ACCOUNT_ARENAS,
	ACCOUNT_PLANS,
	ACCOUNT_FDS,         /* descriptors that the broker keeps open */
	ACCOUNT_MAPPINGS,    /* virtual memory areas */
	ACCOUNT_WATCHES,     /* inotify watches, of memory that clients may keep */
	ACCOUNT_TASKS,       /* entries that rings can have in flight: the sum of their sizes */
	ACCOUNT_ARENA_BYTES, /* of registered arenas; charged as host bytes, too */
	ACCOUNT_HOST_BYTES,  /* arenas, rings, packed weights, scratch, staging, GTT copies */
	ACCOUNT_VRAM,        /* constants, scratch and staging on device 0; use account_vram() */
	ACCOUNT_GTT = ACCOUNT_VRAM + RBK_MAX_DEVICES, /* likewise, account_gtt() */
	ACCOUNT_SLOT_COUNT = ACCOUNT_GTT + RBK_MAX_DEVICES,
};

enum {
	ACCOUNT_E_QUOTA = 1,
	ACCOUNT_NAME_BYTES = 64,
	ACCOUNT_TEXT_BYTES = 256, /* of account_explain(); what names of 63 bytes make of it fits */
};

/* Limits of one account, by slot; UINT64_MAX: none. */
struct account_limits {
	uint64_t max[ACCOUNT_SLOT_COUNT];
};

struct charge {
	struct account *account; /* counted; NULL: nothing is charged */
	enum account_slot slot;
	uint64_t amount;
};
#define CHARGE_INIT ((struct charge){.account = NULL})

/* The slot of the bytes of device @device (RBK_DEVICE_*), in VRAM or in GTT. */
static inline enum account_slot account_vram(unsigned int device)
{
	return (enum account_slot)(ACCOUNT_VRAM + device);
}

static inline enum account_slot account_gtt(unsigned int device)
{
	return (enum account_slot)(ACCOUNT_GTT + device);
}

int account_book_new(struct account_book **ret);
/* Asserts that every account is gone, so every charge was undone. Return: NULL. */
struct account_book *account_book_free(struct account_book *book);
/*
 * Limits what all accounts may have together; UINT64_MAX, as it is at first: no limit. A limit
 * below what there is stops new charges.
 */
void account_book_limit(struct account_book *book, enum account_slot slot, uint64_t max);
uint64_t account_book_max(const struct account_book *book, enum account_slot slot);
/* The sum of the charges of all accounts. */
uint64_t account_book_total(const struct account_book *book, enum account_slot slot);

/*
 * Makes an account with a reference for the caller. @name, shorter than ACCOUNT_NAME_BYTES, is
 * copied and used in messages: "tenant web may have ...". Return: 0 or negative errno.
 */
int account_new(struct account_book *book, const char *name, const struct account_limits *limits,
		struct account **ret);
struct account *account_ref(struct account *account);
/* Frees it with the last reference, asserting that all slots are 0. Return: NULL. */
struct account *account_unref(struct account *account);

const char *account_name(const struct account *account);
uint64_t account_used(const struct account *account, enum account_slot slot);
uint64_t account_limit(const struct account *account, enum account_slot slot);
/* A lowered limit stops new charges; what is charged above it stays until somebody undoes it. */
void account_set_limits(struct account *account, const struct account_limits *limits);

/*
 * Adds to an empty @charge. An amount of 0 is never refused.
 * Return: 0; ACCOUNT_E_QUOTA, nothing charged: account_explain() says why.
 */
int account_charge(struct account *account, struct charge *charge, enum account_slot slot,
		   uint64_t amount);
/*
 * Sets a charge to what turned out to be used, limit or not: for the broker's own account, which
 * follows what the driver says, and for what programs had before the broker knew of it. An empty
 * charge is made; another must be of this account and slot. What would not fit 64 bits in all is
 * cut off.
 */
void account_charge_set(struct account *account, struct charge *charge, enum account_slot slot,
			uint64_t amount);
/*
 * Sets a charge, likewise, to no more than the limit allows: what it amounts to may always shrink.
 * Return: 0; ACCOUNT_E_QUOTA, nothing changed.
 */
int account_charge_change(struct account *account, struct charge *charge, enum account_slot slot,
			  uint64_t amount);
/* A sentence about the last charge that was refused: which limit, how much is used, how much was
 * asked for. Return: @text. */
const char *account_explain(const struct account *account, char text[ACCOUNT_TEXT_BYTES]);
/*
 * How many charges were refused, but for those of device memory: that is asked for again and again
 * until there is room.
 */
uint64_t account_n_refused(const struct account *account);
/* Undoes it; an empty one is fine. */
void charge_deinit(struct charge *charge);
/* Moves a charge out of @charge, which is empty afterwards. */
struct charge charge_steal(struct charge *charge);
/* What a slot is called in a message: "arena bytes", "bytes of VRAM". */
const char *account_slot_name(enum account_slot slot);

DEFINE_CLEANUP(struct account_book *, account_book_free)
DEFINE_CLEANUP(struct account *, account_unref)
