#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Memory and descriptors that clients keep when we have let go of them
 *
 * A hold keeps the charges of such a thing until no client has it any more. hold_new() comes before
 * the thing is made, so that nothing can fail later; then exactly one of the hold_leave_*() takes
 * over charges and frees the hold in the end, or hold_free() does. Reactor, but for hold_watch().
 */
#include <stdbool.h>

#include "tenant/account.h"
#include "util/cleanup.h"
#include "util/list.h"

struct hold;
struct owner;
struct server;

enum {
	HOLD_CHARGES = 3,
	HOLD_FILES = 2, /* memfds of one hold */
	/* Memory of the kernel for one memfd that a client keeps: inode, names, page tables. */
	HOLD_FILE_BYTES = 2048,
	/* Likewise for a pair of sockets, and for what may wait in them. */
	HOLD_SOCKETS_BYTES = 8192,
	/* Descriptors under way to one session, beside those that are charged otherwise. */
	HOLD_SENT_MAX = 8,
};

/* The approximate memory of a hold, in bytes; its users charge it beforehand. */
enum { HOLD_BYTES = 512 };

/* Return: 0; -ENOMEM. */
int holds_init(struct server *server);
/*
 * Has the threads of closers.h close the dma-bufs that are kept, whoever else has them: the broker
 * ends, and need not wait for such a thread that is stuck. Idempotent.
 */
void holds_close(struct server *server);
/* Forgets what clients still have: the broker ends. */
void holds_deinit(struct server *server);

/*
 * Look at once for what is kept for @account and may be gone since the last look: to be called
 * before a client is refused for want of room. A call visits a part of what is kept for all
 * accounts, and the next call goes on behind it. Return: true if charges were undone.
 */
bool holds_look(struct server *server, const struct account *account);
/* Undo at once the charges of memfds that are gone. */
void holds_notice(struct server *server);

/*
 * For @n_files memfds, at most HOLD_FILES, or for one of the other things.
 * Return: 0; -ENOMEM; -EMFILE: the kernel gives our user no more inotify instances.
 */
int hold_new(struct server *server, unsigned int n_files, struct hold **ret);
/* One that keeps nothing, or NULL. Return: NULL. */
struct hold *hold_free(struct hold *hold);

/*
 * Have the kernel tell when no process, the broker included, has a descriptor or a mapping of the
 * memfd @fd any more. To be called before a client gets it. Any thread, one at a time for each
 * hold.
 * Return: 0; -ENOSPC, -EMFILE: the kernel watches no more for our user; other negative errno.
 */
int hold_watch(struct hold *hold, int fd);

/*
 * Keeps @charges, NULL for none, until all memfds that hold_watch() was called for are gone. To be
 * called while we still have each of them, for the last time before that. With none that are
 * watched it frees the hold and leaves the charges where they are.
 */
void hold_leave_files(struct hold *hold, struct charge *const charges[HOLD_CHARGES]);

/* Takes over the dma-buf @fd, and keeps the charges until only we have it; at once if it is -1. */
void hold_leave_dma_buf(struct hold *hold, int fd, struct charge *const charges[HOLD_CHARGES]);

/*
 * Takes over @fd, an end of a socket pair whose other end a client of @user may have, and keeps the
 * charges until that is closed. Of our end no more than writing may have been shut down.
 */
void hold_leave_socket(struct hold *hold, int fd, struct owner *user,
		       struct charge *const charges[HOLD_CHARGES]);

/* Return: the bytes that the kernel holds of what was sent over @fd and not received. A system
 * call. */
unsigned int hold_unread_bytes(int fd);

/*
 * Takes over the connection @fd with a client of @user, which is shut down, and keeps the charges
 * until the client has received or discarded everything that was sent to it; for what that takes
 * @account is charged as well, limit or not. An administrator's session has its place among them
 * until then.
 */
void hold_leave_connection(struct hold *hold, int fd, struct owner *user, struct account *account,
			   struct charge *const charges[HOLD_CHARGES], bool is_admin);

/*
 * Descriptors in answers of a live session that were not received: of things that others have, too,
 * so that no charge of such a thing is for the answer. Zero, but for fd and the link's list_init(),
 * it is none.
 */
struct hold_sent {
	struct list_node link;
	struct charge charge;
	int fd; /* the connection; borrowed */
};

/* @n are about to be sent. Return: 0; ACCOUNT_E_QUOTA: too many wait already. */
int hold_sent_add(struct hold_sent *sent, struct server *server, struct account *account,
		  unsigned int n);
/* Undoes the charge. */
void hold_sent_deinit(struct hold_sent *sent);

DEFINE_CLEANUP(struct hold *, hold_free)
