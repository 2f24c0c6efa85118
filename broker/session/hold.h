#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Holds: charges for memory and descriptors that clients keep after the broker has released them
 *
 * A hold keeps the charges of an object until no client has the object any more. Call hold_new()
 * before the object is made, so that no later step can fail. Then call exactly one other function:
 * hold_free(), or one of hold_leave_*(), which take over charges and finally free the hold. Reactor
 * thread only, except hold_watch().
 */
#include <stdbool.h>
#include <sys/types.h>

#include "tenant/account.h"
#include "util/cleanup.h"
#include "util/list.h"

struct hold;
struct owner;
struct server;

enum {
	HOLD_E_IN_USE = 1,  /* an arena has the dma-buf */
	HOLD_E_FOREIGN = 2, /* another account pays for the dma-buf */
};

enum {
	HOLD_CHARGES = 3,
	HOLD_FILES = 2, /* memfds of a hold */
	/* Kernel memory of a memfd that a client keeps, in bytes: inode, names, page tables. */
	HOLD_FILE_BYTES = 2048,
	/* Kernel memory of a pair of sockets and the messages in them, in bytes. */
	HOLD_SOCKETS_BYTES = 8192,
	/* Descriptors in flight to one session, beside those charged otherwise. */
	HOLD_SENT_MAX = 8,
};

/* Approximate memory of a hold, in bytes; users of holds charge it in advance. */
enum { HOLD_BYTES = 512 };

/* Return: 0; -ENOMEM. */
int holds_init(struct server *server);
/*
 * Have the closers.h threads close the dma-bufs of all holds, whether clients still have them or
 * not. The broker ends, and need not wait for such a thread if it is stuck. Idempotent.
 */
void holds_close(struct server *server);
/* Free all holds, without regard to what clients still have: the broker ends. */
void holds_deinit(struct server *server);

/*
 * Check objects held for @account that may be gone since the last check. Call it before a client is
 * rejected for lack of room. A call visits a part of the holds of all accounts; the next call
 * continues there.
 * Return: true if charges were undone.
 */
bool holds_look(struct server *server, const struct account *account);
/* Undo the charges of memfds that are gone, at once. */
void holds_notice(struct server *server);

/*
 * Create a hold for @n_files memfds, at most HOLD_FILES, or for an object of another kind.
 * Return: 0; -ENOMEM; -EMFILE: the kernel's limit of inotify instances of our user is reached.
 */
int hold_new(struct server *server, unsigned int n_files, struct hold **ret);
/* Free a hold that keeps no charges, or NULL. Return: NULL. */
struct hold *hold_free(struct hold *hold);

/*
 * Watch the memfd @fd: the kernel reports when no process, including the broker, has a descriptor
 * or a mapping of it. Call it before a client gets the memfd. Any thread, one at a time for each
 * hold.
 * Return: 0; -ENOSPC, -EMFILE: the kernel's limit of watches of our user is reached; another
 * negative errno.
 */
int hold_watch(struct hold *hold, int fd);

/*
 * Keep @charges, in which NULL means none, until all memfds of hold_watch() are gone. Call it while
 * the broker still has each memfd. Without watched memfds it frees the hold and leaves the charges
 * with the caller.
 */
void hold_leave_files(struct hold *hold, struct charge *const charges[HOLD_CHARGES]);

/*
 * Tell for which dma-buf the hold was made, before a client has it or while hold_find_dma_buf()
 * applies. @account pays for it, for the hold's life.
 */
void hold_name_dma_buf(struct hold *hold, dev_t dev, ino_t ino, const struct account *account);

/*
 * Check that @account may pay for the dma-buf (dev, ino), of which it makes an arena at once, and
 * find the hold that an earlier arena has left. The new arena must resume that hold: two holds of
 * one dma-buf would each wait until the other has released it. Changes nothing.
 * Return: 0, with *ret NULL if there is no hold; HOLD_E_IN_USE; HOLD_E_FOREIGN.
 */
int hold_find_dma_buf(struct server *server, dev_t dev, ino_t ino, const struct account *account,
		      struct hold **ret);

/*
 * Take over the dma-buf @fd, and keep the charges until only the broker has it. @fd -1: free the
 * hold at once.
 */
void hold_leave_dma_buf(struct hold *hold, int fd, struct charge *const charges[HOLD_CHARGES]);

/*
 * Undo hold_leave_dma_buf(): move the charges to @charges, which are empty, none of them NULL. The
 * hold is as after hold_name_dma_buf().
 * Return: the dma-buf, which the caller owns.
 */
int hold_resume_dma_buf(struct hold *hold, struct charge *const charges[HOLD_CHARGES]);

/*
 * Take over @fd, one end of a socket pair whose other end a client of @user may have. Keep the
 * charges until that end is closed. Our end may at most have been shut down for writing.
 */
void hold_leave_socket(struct hold *hold, int fd, struct owner *user,
		       struct charge *const charges[HOLD_CHARGES]);

/*
 * Return the bytes that the kernel holds of messages sent over @fd and not received. A system call.
 */
unsigned int hold_unread_bytes(int fd);

/*
 * Take over the connection @fd with a client of @user, which is shut down. Keep the charges until
 * the client has received or discarded all messages sent to it. The kernel memory of these messages
 * is charged to @account, even above the limit. An administrator's session keeps its place until
 * then.
 */
void hold_leave_connection(struct hold *hold, int fd, struct owner *user, struct account *account,
			   struct charge *const charges[HOLD_CHARGES], bool is_admin);

/*
 * Unreceived descriptors in answers of a live session, of objects that others have, too: no charge
 * of such an object covers the descriptor. Empty when zero, except fd and the initialised link.
 */
struct hold_sent {
	struct list_node link;
	struct charge charge;
	int fd; /* connection; borrowed */
};

/*
 * Charge a descriptor that is about to be sent.
 * Return: 0; ACCOUNT_E_QUOTA: too many are unreceived.
 */
int hold_sent_add(struct hold_sent *sent, struct server *server, struct account *account);
/* Undo the charge. */
void hold_sent_deinit(struct hold_sent *sent);

DEFINE_CLEANUP(struct hold *, hold_free)
