#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Descriptions: plans' serialized forms on their way to the setup thread
 *
 * A description owns the private copy of the bytes that a client sent, until verification has made
 * or rejected a plan, and the list of arenas that its constants name. Private to session/.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/cut-points.h"
#include "plan/plan.h"
#include "tenant/account.h"

struct session;
struct session_arena;

/* An arena named by constants of a plan. */
struct plan_pin {
	struct session_arena *arena; /* NULL: no arena has this id */
	uint16_t id;
	bool is_pinned; /* the arena is immutable, and its removal is blocked */
};

/* Pins of one plan, in ascending order of ids. */
struct plan_pins {
	struct plan_pin *of;
	uint32_t n;
};

struct description {
	void *bytes;
	size_t n_bytes;
	int fd;     /* memfd still to be read; -1: none */
	int result; /* of the last step on the setup thread; -ECANCELED: no step finished */
	struct plan_pins pins;    /* of the arenas named; see description_pin() */
	struct charge charges[3]; /* waiting; the descriptor; verification */
	struct cut_wish wish;     /* for segments_make() */
	void *cut_basis;          /* likewise, of server_hooks.cut_begin(), or NULL */
	uint64_t cut_bytes;       /* the most that segments_make() takes; 0: the plan stays whole */
	char message[PLAN_MESSAGE_BYTES]; /* valid if result is PLAN_E_INVALID or -EDQUOT */
	struct plan_maker *maker;         /* set during verification */
};

enum { DESCRIPTION_E_UNREADABLE = 1 };

/*
 * Begin a description of @n_bytes, at most RBK_WIRE_PLAN_MAX_BYTES. Charge @account for the memory
 * held while it waits, then copy @bytes (at most a message). If @bytes is NULL, charge for the
 * memfd *@fd as well, and take it on success for description_read(). Reactor.
 * Return: 0; ACCOUNT_E_QUOTA; -ENOMEM.
 */
int description_new(struct account *account, const void *bytes, size_t n_bytes, int *fd,
		    struct description **ret);

/*
 * Charge the maximum that reading and verification take, including the plan and cut_bytes, which is
 * set to 0 if there is no room for it. Call it before either. Reactor.
 * Return: 0; ACCOUNT_E_QUOTA.
 */
int description_charge_check(struct description *description, struct account *account);

/* Return true if description_charge_check() succeeded. */
bool description_may_check(const struct description *description);

/*
 * Read the memfd, which may sleep, and list the arenas named. Setup thread. Sets result: 0;
 * DESCRIPTION_E_UNREADABLE; -ENOMEM.
 */
void description_read(struct description *description);

/* Look up the arenas named, and block the removal of those that are immutable. Reactor. */
void description_pin(struct description *description, struct session *session);

/*
 * Verify a part of the description against the pinned arenas; the last part makes the plan. The
 * copy stays until description_free_bytes(). Setup thread. Sets result: as plan_new(); -ECANCELED
 * until the last part.
 * Return: true if parts remain.
 */
bool description_verify(struct description *description, struct plan **ret);

/* Look up an arena among @context, struct plan_pins: as plan_arena_lookup.find(). Any thread. */
struct exec_arena *description_find_arena(void *context, uint16_t arena_id, const char **ret_why);

/* Free the copy, and the parts of a plan that was not finished. Setup thread. */
void description_free_bytes(struct description *description);

/*
 * Take the memfd and undo its charge, after the description was read or when it never will be. The
 * caller closes the memfd: dropping the last reference frees all of its pages, which the reactor
 * must not do.
 * Return: -1 if there is no memfd.
 */
int description_take_fd(struct description *description);

/* Undo the charges; charge the memory again, for a description without a memfd. Reactor. */
void description_uncharge(struct description *description);
void description_charge(struct description *description, struct account *account);

/* Move the list of arenas to the plan that was made. Reactor. */
struct plan_pins description_take_pins(struct description *description);

/* Undo all charges and unpin the arenas still pinned. Reactor. Return: NULL. */
struct description *description_free(struct description *description);

/* Permit the removal of the arenas, and free the list. Reactor. */
void plan_pins_deinit(struct plan_pins *pins);
