#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A plan's description on its way to the setup thread
 *
 * Owns the private copy of what a client sent, until a plan was made of it or not, and the list of
 * arenas that its constants name. Private to session/.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"
#include "tenant/account.h"

struct session;
struct session_arena;

/* An arena that constants of a plan name. */
struct plan_pin {
	struct session_arena *arena; /* NULL: there is none of that id */
	uint16_t id;
	bool is_pinned; /* it is immutable, and cannot be removed while this is set */
};

/* Pins of one plan, in the order of ids. */
struct plan_pins {
	struct plan_pin *of;
	uint32_t n;
};

struct description {
	void *bytes;
	size_t n_bytes;
	int fd;                   /* of the memfd that it has to be read from; -1: none, any more */
	int result;               /* of the last step on the setup thread; -ECANCELED: none was */
	struct plan_pins pins;    /* of the arenas that it names; see description_pin() */
	struct charge charges[3]; /* what waits, the descriptor, what verification takes */
	char message[PLAN_MESSAGE_BYTES]; /* where result is PLAN_E_INVALID or -EDQUOT */
	struct plan_maker *maker;         /* while it is verified */
};

enum { DESCRIPTION_E_UNREADABLE = 1 };

/*
 * Begins a description of @n_bytes, at most RBK_WIRE_PLAN_MAX_BYTES: charges @account what is held
 * while it waits, then copies @bytes (at most a message). Else, where @bytes is NULL, charges for
 * *@fd too, a memfd, and takes it on success for description_read().
 * Reactor. Return: 0; ACCOUNT_E_QUOTA; -ENOMEM.
 */
int description_new(struct account *account, const void *bytes, size_t n_bytes, int *fd,
		    struct description **ret);

/*
 * Charges what reading and verification take at most, the plan included. Comes before these two.
 * Reactor. Return: 0; ACCOUNT_E_QUOTA.
 */
int description_charge_check(struct description *description, struct account *account);

/* Was that done? */
bool description_may_check(const struct description *description);

/*
 * Reads the memfd, which may sleep, and finds out which arenas are named. Setup thread. Sets
 * result: 0; DESCRIPTION_E_UNREADABLE; -ENOMEM.
 */
void description_read(struct description *description);

/*
 * Looks up the arenas that are named and keeps those that are immutable from being removed.
 * Reactor.
 */
void description_pin(struct description *description, struct session *session);

/*
 * Makes a part of a plan of it, finding arenas among those pinned; with the last part, frees the
 * copy. Setup thread. Sets result: as plan_new(), and up to the last part -ECANCELED.
 * Return: false, that was the last part.
 */
bool description_verify(struct description *description, struct plan **ret);

/* Frees the copy of a description that no plan is made of, or only parts. Setup thread. */
void description_free_bytes(struct description *description);

/*
 * Takes the memfd and its charge from a description that was read, or never will be: whoever has
 * the last reference frees all of its pages, which the reactor does not. Return: -1: there is none.
 */
int description_take_fd(struct description *description);

/* Undoes the charges, and makes those of memory again, without a memfd. Reactor. */
void description_uncharge(struct description *description);
void description_charge(struct description *description, struct account *account);

/* Hands the list of arenas to the plan that was made. Reactor. */
struct plan_pins description_take_pins(struct description *description);

/* Undoes all charges; what is still pinned is unpinned. Reactor. Return: NULL. */
struct description *description_free(struct description *description);

/* Lets the arenas be removed, and frees the list. Reactor. */
void plan_pins_deinit(struct plan_pins *pins);
