#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The ledger: accounts and charges
 *
 * Everything that the broker holds for a client is charged to the client's tenant in advance. A
 * client therefore reaches its limit before the broker runs out of memory. A charge is an object
 * that exactly one charge_deinit() undoes; an account asserts on release that its charges add up to
 * 0. Each tenant has one account, and the broker has one for driver overhead. Reactor thread only.
 */
#include <stdbool.h>
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
	ACCOUNT_FDS,         /* open descriptors of the broker */
	ACCOUNT_MAPPINGS,    /* virtual memory areas */
	ACCOUNT_WATCHES,     /* inotify watches on memfds that clients may keep */
	ACCOUNT_TASKS,       /* entries that can be in flight: sum of ring sizes */
	ACCOUNT_ARENA_BYTES, /* registered arenas; charged to ACCOUNT_HOST_BYTES, too */
	ACCOUNT_HOST_BYTES,  /* arenas, rings, packed weights, scratch, staging, GTT copies */
	ACCOUNT_VRAM,        /* constants, scratch and staging on device 0; use account_vram() */
	ACCOUNT_GTT = ACCOUNT_VRAM + RBK_MAX_DEVICES, /* the same in GTT; use account_gtt() */
	ACCOUNT_SLOT_COUNT = ACCOUNT_GTT + RBK_MAX_DEVICES,
};

enum {
	ACCOUNT_E_QUOTA = 1,
	ACCOUNT_NAME_BYTES = 64,
	ACCOUNT_TEXT_BYTES = 384, /* account_explain(): the longest text, with 63-byte names */
};

/* Limits of one account, by slot; UINT64_MAX: unlimited. */
struct account_limits {
	uint64_t max[ACCOUNT_SLOT_COUNT];
};

struct charge {
	struct account *account; /* counted; NULL: an empty charge */
	enum account_slot slot;
	uint64_t amount;
};
#define CHARGE_INIT ((struct charge){.account = NULL})

/* Return the slot for VRAM bytes (or GTT bytes, below) of device @device (RBK_DEVICE_*). */
static inline enum account_slot account_vram(unsigned int device)
{
	return (enum account_slot)(ACCOUNT_VRAM + device);
}

static inline enum account_slot account_gtt(unsigned int device)
{
	return (enum account_slot)(ACCOUNT_GTT + device);
}

int account_book_new(struct account_book **ret);
/* Free the book. Assert that all accounts are gone, and thus all charges undone. Return: NULL. */
struct account_book *account_book_free(struct account_book *book);
/*
 * Limit the sum over all accounts. UINT64_MAX, the initial value, means unlimited. A limit below
 * the current sum rejects new charges.
 */
void account_book_limit(struct account_book *book, enum account_slot slot, uint64_t max);
uint64_t account_book_max(const struct account_book *book, enum account_slot slot);
/* Return the sum of the charges of all accounts. */
uint64_t account_book_total(const struct account_book *book, enum account_slot slot);

/*
 * Create an account with a reference for the caller. @name, shorter than ACCOUNT_NAME_BYTES, is
 * copied and used in messages: "tenant web may have ...".
 * Return: 0, or a negative errno.
 */
int account_new(struct account_book *book, const char *name, const struct account_limits *limits,
		struct account **ret);
struct account *account_ref(struct account *account);
/*
 * Drop a reference. The last one frees the account and asserts that all slots are 0.
 * Return: NULL.
 */
struct account *account_unref(struct account *account);

const char *account_name(const struct account *account);
uint64_t account_used(const struct account *account, enum account_slot slot);
uint64_t account_limit(const struct account *account, enum account_slot slot);
/*
 * Replace the limits. A limit below the current use rejects new charges; existing charges stay
 * until they are undone.
 */
void account_set_limits(struct account *account, const struct account_limits *limits);

/*
 * Charge @amount to an account through @charge, which must be empty. An amount of 0 is always
 * accepted.
 * Return: 0; ACCOUNT_E_QUOTA: nothing was charged, and account_explain() gives the reason.
 */
int account_charge(struct account *account, struct charge *charge, enum account_slot slot,
		   uint64_t amount);
/* Return true if account_charge() would accept @amount. It does not count as a rejection. */
bool account_has_room(const struct account *account, enum account_slot slot, uint64_t amount);
/*
 * Set a charge to the measured use, even above the limit. The broker's own account follows the
 * driver's figures this way, and leases charge the memory that programs had before the broker knew
 * of them. An empty charge is created; any other must belong to this account and slot. The amount
 * saturates where the book's total would exceed 64 bits.
 */
void account_charge_set(struct account *account, struct charge *charge, enum account_slot slot,
			uint64_t amount);
/*
 * Set a charge as account_charge_set() does, but within the limit. Shrinking always succeeds.
 * Return: 0; ACCOUNT_E_QUOTA: nothing changed.
 */
int account_charge_change(struct account *account, struct charge *charge, enum account_slot slot,
			  uint64_t amount);
/*
 * Describe the last rejected charge in a sentence: the limit, the use, the requested amount.
 * Return: @text.
 */
const char *account_explain(const struct account *account, char text[ACCOUNT_TEXT_BYTES]);
/*
 * Return the number of rejected charges, except those of device memory, which are retried until
 * there is room.
 */
uint64_t account_n_refused(const struct account *account);

/*
 * Count and return the processor time, in nanoseconds, that threads have spent on receiving and
 * closing descriptors for the account.
 */
void account_add_closing(struct account *account, uint64_t ns);
uint64_t account_closing_ns(const struct account *account);
/* Undo a charge; an empty one is allowed. */
void charge_deinit(struct charge *charge);
/* Move a charge out of @charge, which is empty afterwards. */
struct charge charge_steal(struct charge *charge);

DEFINE_CLEANUP(struct account_book *, account_book_free)
DEFINE_CLEANUP(struct account *, account_unref)
