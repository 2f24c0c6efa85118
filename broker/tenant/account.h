#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Accounts and charges
 *
 * Whatever a client makes the broker hold is charged to its tenant's account before it is made, so
 * that a client meets its limit before the broker meets the end of memory. A charge is an object:
 * it is undone by exactly one charge_deinit(), and an account asserts when it is freed that it
 * balances. A tenant is a user id here. Reactor thread only.
 */
#include <stdint.h>
#include <sys/types.h>

#include "util/cleanup.h"

struct account;
struct account_book;

enum account_slot {
	ACCOUNT_SESSIONS,
	ACCOUNT_RINGS,
	ACCOUNT_ARENAS,
	ACCOUNT_PLANS,
	ACCOUNT_FDS,          /* descriptors that the broker keeps open */
	ACCOUNT_MAPPINGS,     /* virtual memory areas */
	ACCOUNT_HOST_BYTES,   /* arenas, rings, packed weights, scratch, staging */
	ACCOUNT_DEVICE_BYTES, /* constants, scratch and staging on devices */
	ACCOUNT_SLOT_COUNT,
};

enum {
	ACCOUNT_E_QUOTA = 1,
	ACCOUNT_TEXT_BYTES = 192, /* of account_explain() */
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

int account_book_new(const struct account_limits *limits, struct account_book **ret);
/* Asserts that every account is gone, so every charge was undone. Return: NULL. */
struct account_book *account_book_free(struct account_book *book);
/* What is charged to all accounts together. */
uint64_t account_book_total(const struct account_book *book, enum account_slot slot);

/* Finds or makes the account of @uid and takes a reference. Return: 0 or negative errno. */
int account_open(struct account_book *book, uid_t uid, struct account **ret);
struct account *account_ref(struct account *account);
/* Frees it with the last reference, asserting that all slots are 0. Return: NULL. */
struct account *account_unref(struct account *account);
uint64_t account_used(const struct account *account, enum account_slot slot);
uint64_t account_limit(const struct account *account, enum account_slot slot);
/* A small number, never reused while the account lives: struct exec_arena.owner. */
uint32_t account_id(const struct account *account);

/* Adds to an empty @charge. Return: 0; ACCOUNT_E_QUOTA, nothing charged. */
int account_charge(struct account *account, struct charge *charge, enum account_slot slot,
		   uint64_t amount);
/* A sentence about the last charge that was refused: which limit, how much is used, how much was
 * asked for. Return: @text. */
const char *account_explain(const struct account *account, char text[ACCOUNT_TEXT_BYTES]);
/* Undoes it; an empty one is fine. */
void charge_deinit(struct charge *charge);
/* Moves a charge out of @charge, which is empty afterwards. */
struct charge charge_steal(struct charge *charge);
/* What a slot is called in a message: "arena bytes". */
const char *account_slot_name(enum account_slot slot);

DEFINE_CLEANUP(struct account_book *, account_book_free)
DEFINE_CLEANUP(struct account *, account_unref)
