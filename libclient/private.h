#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of libringbroker share
 *
 * No symbol here is exported: symbols are hidden unless libclient/ringbroker.map names them.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/ringbroker.h"
#include "shm/wire.h"

#define RBK_EXPORT   __attribute__((__visibility__("default")))

#define CLIENT_NEVER UINT64_MAX /* a deadline that never passes */

/* ---- util.c ---- */

#define client_cleanup(function) __attribute__((__cleanup__(function)))

/* Write a sentence into @error, if it is not NULL; %m is the message of @r. Return: @r. */
int client_error(struct rbk_error *error, int r, const char *format, ...)
	__attribute__((__format__(__printf__, 3, 4)));

uint64_t client_now_ns(void); /* CLOCK_MONOTONIC */

/* Return the time @timeout_ns after @begin_ns, or CLIENT_NEVER if the sum overflows. */
uint64_t client_deadline_ns(uint64_t begin_ns, uint64_t timeout_ns);

/* Close a descriptor unless it is negative, and set it to -1. */
void client_close(int *fd);

/*
 * Make a memfd of @bytes with all its pages allocated, sealed against shrinking and growing.
 * Return: 0 and a descriptor that is close-on-exec; -ENOMEM if the machine has less memory than
 * @bytes; negative errno.
 */
int client_memfd_new(const char *name, size_t bytes, int *ret_fd);

size_t client_page_bytes(void);

/* ---- reply.c: answers of the broker ---- */

union client_reply {
	struct rbk_wire_reply head;
	struct rbk_wire_welcome welcome;
	struct rbk_wire_ring ring;
	struct rbk_wire_id_reply id;
	struct rbk_wire_plan plan;
	struct rbk_wire_devices devices;
	struct rbk_wire_stats stats;
	struct rbk_wire_plan_memory plan_memory;
	struct rbk_wire_tenant tenant;
	struct rbk_wire_stats_page stats_page;
	struct rbk_wire_setting setting;
	struct rbk_wire_admin_result admin_result;
	struct rbk_wire_limit limit;
	struct rbk_wire_restart restart;
	struct rbk_wire_lease lease;
	struct rbk_wire_lease_given lease_given;
	struct rbk_wire_lease_region lease_region;
	struct client_catalogue {
		struct rbk_wire_reply reply;
		uint32_t n_operators;
		uint32_t n_devices;
	} catalogue; /* struct rbk_wire_catalogue; the operators follow in the packet */
};
_Static_assert(sizeof(struct client_catalogue) == sizeof(struct rbk_wire_catalogue), "its head");

/* Length of the longest answer. */
#define CLIENT_REPLY_MAX_BYTES               \
	(sizeof(struct rbk_wire_catalogue) + \
	 RBK_WIRE_MAX_OPERATORS * sizeof(struct rbk_wire_operator))
_Static_assert(sizeof(union client_reply) <= CLIENT_REPLY_MAX_BYTES, "that is the longest");

/* Return the number of descriptors that a positive answer to a request of @type carries. */
unsigned int client_reply_fds(uint32_t type);

/*
 * Check an answer to a request of @type: length, descriptors, strings, every number that the
 * library relies on. @bytes is the number of bytes received into @reply.
 * Return: 0, also for a negative answer; -EPROTO with a sentence.
 */
int client_reply_check(const union client_reply *reply, size_t bytes, unsigned int n_fds,
		       uint32_t type, struct rbk_error *error);

/* ---- connection.c, request.c ---- */

/* Lowest minor version that this library works with; later additions are negotiated as features. */
#define CLIENT_ABI_MINOR 0

struct client_request;

/* The name of a broker that served the connection. */
struct client_name {
	struct client_name *next;
	char text[RBK_WIRE_NAME_BYTES];
};

/*
 * Re-attachment of a connection, see reattach.c. A re-attachment begins when the broker's death is
 * noticed (is_away), and ends when all objects are restored, or with the loss of the connection.
 */
struct client_reattach {
	/* These never change once the connection is made. */
	bool is_possible;         /* agreed with the broker: RBK_FEAT_REATTACH */
	int news_fd;              /* eventfd that is readable when a re-attachment has ended */
	uint64_t wait_ns;         /* longest wait for a broker */
	bool lacks_userfaultfd;   /* arenas that are fixed cannot move */
	void *(*main)(void *rbk); /* the thread that restores */
	void (*on_reattach)(struct rbk *rbk, const struct rbk_reattachment *about, void *data);
	void *on_reattach_data;
	char path[108]; /* of the socket, as in struct sockaddr_un */
	char name[RBK_WIRE_NAME_BYTES];

	/*
	 * Protects the lists of arenas, plans and rings, and what the thread reads of them, while
	 * it restores them. Taken before rbk->lock, and never held by other threads while they wait
	 * for an answer.
	 */
	pthread_mutex_t objects;

	/* Under rbk->lock: */
	bool is_away;     /* also atomic: no broker, the thread restores the connection */
	bool has_thread;  /* the thread runs, perhaps in on_reattach */
	bool is_unjoined; /* thread is to be joined, whether it runs or has ended */
	pthread_t thread;
	bool is_restoring;    /* the thread sends descriptors of rings */
	uint32_t n_done;      /* also atomic: re-attachments so far; changes under objects, too */
	uint32_t n_sending;   /* threads that send on the socket without the lock */
	uint32_t n_leases;    /* leases, opened or being opened, without RBK_FEAT_RESTORE */
	uint32_t n_exported;  /* arenas in memory of a device, without RBK_FEAT_RESTORE */
	uint32_t n_unmovable; /* fixed arenas, not sealed, with lacks_userfaultfd */
	uint64_t gone_ns;     /* when the death was noticed */
	struct rbk *fresh;    /* the thread's connection to the next broker */
	/* why there was no re-attachment; written before rbk->lost, then constant */
	char reason[RBK_ERROR_BYTES];
};

struct rbk {
	uint32_t refs;         /* atomic: the caller's, and one per arena, plan and ring */
	int fd;                /* control socket */
	const uint32_t *alive; /* a page that fork() wipes: 0 in a child */
	uint64_t timeout_ns;
	uint64_t features;
	/* The next members are atomic, because another broker may have other values. */
	const char *broker; /* the broker's name and version; in names */
	uint32_t max_ring_entries;
	bool exports; /* the broker makes arenas that devices reach in place */
	/* memfd tensors should not straddle a multiple of it, in bytes; 0: no limit */
	uint64_t segment_bytes;
	int lost; /* 0, or the errno that every call returns from now on */

	struct client_reattach reattach;
	struct client_name *names; /* only the thread of a re-attachment adds to it */

	pthread_mutex_t lock; /* protects the following members */
	pthread_cond_t changed;
	struct client_request *requests; /* sent, not answered */
	unsigned int n_abandoned;        /* of these, requests without a waiter */
	uint32_t next_cookie;
	bool reading; /* a thread is in recvmsg() on behalf of all waiters */
	bool stalls;  /* a request timed out, and no answer has arrived since */
	/* These lists change under reattach.objects, too. */
	struct client_ring_cold *rings;
	struct client_known *arenas; /* in struct rbk_arena */
	struct client_known *plans;  /* in struct rbk_plan */
	uint32_t last_plan_id;       /* the latest id of a plan; under reattach.objects alone */
	struct rbk_lease *leases;    /* under reattach.objects alone */

	struct rbk *next; /* next in connection.c's list */
};

/* The broker that a request was sent to is gone; see enum client_repeat. */
#define CLIENT_E_GONE 1
/* There is no broker, and no task that would need one. */
#define CLIENT_E_IDLE 2

/* A request whose broker dies, on a connection that re-attaches */
enum client_repeat {
	CLIENT_REPEAT, /* waits for the next broker, and is sent again */
	CLIENT_ONCE,   /* waits for a broker, but is sent once: CLIENT_E_GONE if that broker died */
	CLIENT_BOUND,  /* only to the broker of message.generation, else CLIENT_E_GONE */
	CLIENT_NEEDED, /* CLIENT_REPEAT while tasks are unfinished, else CLIENT_E_IDLE */
};

/* A request with its tail in the message, and a descriptor to send along, or -1. */
struct client_message {
	struct rbk_wire_request *request; /* the cookie is filled in */
	size_t request_bytes;
	const void *tail;
	size_t tail_bytes;
	int fd;
	/*
	 * For dropping an object of a lease: credit to give back if the broker never knew the
	 * object.
	 */
	uint64_t owed_bytes;
	bool has_second_fd;
	int second_fd; /* sent behind fd */
	enum client_repeat repeat;
	uint32_t generation; /* CLIENT_BOUND: as in struct client_answer */
	/*
	 * If not NULL: *number, the object's number at the broker that gets the request, is copied
	 * to *number_at, in the request.
	 */
	const uint32_t *number;
	uint32_t *number_at;
};

struct client_answer {
	union client_reply reply;
	uint32_t generation; /* value of reattach.n_done when the request was sent */
	int fds[RBK_WIRE_MAX_FDS];
	unsigned int n_fds;
	/* owned by the receiver, as fds are: free() it; CATALOGUE only, else NULL */
	struct rbk_wire_operator *operators;
};

/*
 * Send a request and wait for its answer. Any thread.
 * While the connection re-attaches, the request waits for its end.
 * Return: 0 with a checked, positive answer; the broker's negative errno and its sentence; or
 * -ECONNRESET, -EPROTO, -ETIME, -ECHILD, -ENOMEM; CLIENT_E_GONE, unless message->repeat is
 * CLIENT_REPEAT.
 */
int client_request(struct rbk *rbk, const struct client_message *message, struct client_answer *ret,
		   struct rbk_error *error);

/*
 * A broker takes a connection back even if it ends it again for the next request. Return: 0, after
 * a pause of a sixteenth of the time since @begin_ns, when the request was made; -ETIME and a
 * sentence if it has been repeated for @timeout_ns. Not under a lock.
 */
int client_may_repeat(uint64_t begin_ns, uint64_t timeout_ns, struct rbk_error *error);

/* Send a request as client_request() does, with a timeout that is @wait_ns longer. */
int client_request_for(struct rbk *rbk, const struct client_message *message, uint64_t wait_ns,
		       struct client_answer *ret, struct rbk_error *error);

/*
 * Send a request of a lease that gives something back to the broker of message->generation, without
 * waiting for the answer. From then on the broker owns what the request gives back, whether it
 * reads the request or ends. Any thread. Return: 0; nothing was sent: -EBUSY: the broker has too
 * many requests to answer; -ECONNRESET, -EPROTO, -ECHILD, -ENOMEM.
 */
int client_post(struct rbk *rbk, const struct client_message *message);

/* Return true if a request timed out and the broker has sent nothing since. Does not wait. */
bool client_stalls(struct rbk *rbk);

/*
 * Remove an object that is in its list under @id, and stays there until the broker has answered:
 * the broker waits for the object's tasks, and if it dies meanwhile, the next one must know the
 * object to finish them. That one is then asked to remove the object, within the same timeout.
 * Return: as client_request(), with the lists locked (client_objects_lock()), so that the caller
 * can take the object out of its list. After -ETIME the broker still removes the object, later,
 * unless the connection re-attaches just now.
 */
int client_remove(struct rbk *rbk, uint32_t type, uint32_t id, struct rbk_error *error);

/*
 * Remove an object that is in no list any more, and that the broker of @generation knows as @id. It
 * ended with that broker if the broker is gone.
 */
void client_remove_unlisted(struct rbk *rbk, uint32_t type, uint32_t id, uint32_t generation);

/*
 * Lock the lists of objects. Between these calls no object is restored, and no request may be made.
 * All do nothing in a fork()ed child.
 * Return: the generation of the broker that knows the objects, see struct client_answer.
 */
uint32_t client_objects_lock(struct rbk *rbk);
void client_objects_unlock(struct rbk *rbk);

/*
 * Lock the lists to add an object that the broker of @generation has made.
 * Return: false, without the lock: that broker is gone, and the object with it.
 */
bool client_objects_lock_for(struct rbk *rbk, uint32_t generation);

/*
 * Connect as rbk_connect() or rbk_admin_connect(); in connection.c. @main: the thread that restores
 * the connection; NULL: it does not re-attach.
 */
int client_connect(const struct rbk_options *options, void *(*main)(void *rbk), bool is_admin,
		   struct rbk **ret, struct rbk_error *error);

/*
 * Connect @rbk's thread to the next broker, within @timeout_ns. Until client_disconnect_fresh(),
 * the loss of @rbk ends the new connection too.
 * Return: 0 with rbk->reattach.fresh; negative errno with a sentence.
 */
int client_connect_fresh(struct rbk *rbk, uint64_t timeout_ns, struct rbk_error *error);
void client_disconnect_fresh(struct rbk *rbk);

/* Set the broker's name. Return: 0; -ENOMEM: the name is unchanged. */
int client_set_name(struct rbk *rbk, const char *name);

/* Return: 0; -ECHILD, or the errno of the lost connection, with a sentence. */
int client_check(const struct rbk *rbk, struct rbk_error *error);

/* Return true in a child of the process that connected. */
static inline bool client_is_child(const struct rbk *rbk)
{
	return *(const volatile uint32_t *)rbk->alive == 0;
}

/* End the connection: all its calls return @r from now on. Any thread. */
void client_lose(struct rbk *rbk, int r);

/*
 * End the connection as client_lose() does, because its re-attachment failed, as @reason says.
 * Return: false: it has already ended.
 */
bool client_give_up(struct rbk *rbk, const char *reason);

/*
 * Begin a re-attachment, if none is under way, because the broker is gone. Without one, the
 * connection is lost. Under rbk->lock.
 */
void client_broker_gone(struct rbk *rbk);

/* Return the lease's connection, referenced: pass it to client_unref(). */
struct rbk *client_lease_rbk(struct rbk_lease *lease);

/* See whether the broker has closed the socket, and then act as client_broker_gone(). Any thread.
 */
void client_look(struct rbk *rbk);

/* Return true if the connection re-attaches when its broker dies. Under rbk->lock. */
bool client_may_reattach(const struct rbk *rbk);

/*
 * Count a lease (n_leases) or an arena (n_exported, n_unmovable) of struct client_reattach, which
 * no other broker can restore: add @n, 1 or -1.
 */
void client_count_held(struct rbk *rbk, uint32_t *count, int n);

/* Free the requests that still wait for late answers. */
void client_requests_free(struct rbk *rbk);

struct rbk *client_ref(struct rbk *rbk);
struct rbk *client_unref(struct rbk *rbk);

/* ---- lease.c ---- */

struct rbk_lease;
struct rbk_lease_use;

/*
 * Give back credit or drop an object as rbk_lease_give() and rbk_lease_object_drop(), without
 * waiting.
 * Return: 0; -EBUSY: not now; -ENOENT: no such object; errors of a lost connection: the member
 * keeps its credit, and the object is dropped.
 */
int client_lease_give(struct rbk_lease *lease, uint64_t bytes, const struct rbk_lease_use *use);
int client_lease_object_drop(struct rbk_lease *lease, uint64_t dev, uint64_t ino);

/*
 * Share the time of the lease's device with other leases: @action is an enum
 * rbk_wire_timeslice_action, of which @priority (with ENDING: rest_us) or @word is a part, or 0.
 * DONE, GIVE_UP and ENDING do not wait for the answer; after a timeout the others fail at once,
 * until the broker answers.
 * Return: 0; -EOPNOTSUPP: the broker does not offer it; errors of client_post() and
 * client_request(). Any thread.
 */
int client_lease_timeslice(struct rbk_lease *lease, uint32_t action, uint32_t priority,
			   uint32_t word);

/* A member's report of how its work is divided: struct rbk_wire_lease_parts. */
struct client_parts {
	uint64_t n_submissions, n_parts, n_slices, n_whole, n_unsliced;
	uint64_t longest_ns;
};
/*
 * Report @parts of the lease, without waiting for the answer.
 * Return: 0; -EOPNOTSUPP: the broker does not take it; -EBUSY: not now; errors of client_post().
 * Any thread.
 */
int client_lease_parts(struct rbk_lease *lease, const struct client_parts *parts);

/* The broker's answer about a lost device: struct rbk_wire_lease_lost. */
struct client_lost {
	bool is_final; /* the text does not change any more */
	char text[RBK_WIRE_TEXT_BYTES];
};
/*
 * Ask the broker who is the reason for the loss of a device of the lease; @verdict: an enum
 * reset_verdict, of this process.
 * Return: 0; -EOPNOTSUPP: the broker does not know; errors of client_request(). Any thread.
 */
int client_lease_lost(struct rbk_lease *lease, uint32_t verdict, struct client_lost *ret);

/*
 * Restore all leases of @rbk at the broker of @fresh. Between client_objects_lock() and
 * client_objects_unlock(). The new numbers apply from client_leases_restored() on, under rbk->lock.
 * Return: 0, and the number of leases; negative errno, with a sentence, and the number of the lease
 * that the broker refused.
 */
int client_leases_restore(struct rbk *rbk, struct rbk *fresh, uint32_t *ret_n,
			  struct rbk_error *error);
void client_leases_restored(struct rbk *rbk);

/* ---- check.c: what rbk_sqe_check() knows of a connection's objects ---- */

/* An element of rbk->arenas or rbk->plans, under rbk->lock. */
struct client_known {
	struct client_known *next;
	struct client_known **link; /* NULL: in no list; neighbours in the list change it */
	bool is_known;              /* in a list; only the owner changes and reads it */
	uint32_t id;
	bool is_sealed;            /* arenas */
	const unsigned char *data; /* arenas; NULL: unmapped, or about to be */
};

/*
 * Set what is known of an object, and put it into @list, of @rbk, if it is in none. The owner calls
 * this when the object has changed, and client_unknow() before it frees the object. Any thread;
 * both do nothing in a fork()ed child.
 */
void client_know(struct rbk *rbk, struct client_known **list, struct client_known *known,
		 uint32_t id, bool is_sealed, const unsigned char *data);
void client_unknow(struct rbk *rbk, struct client_known *known);

/* The struct rbk_arena or struct rbk_plan of an element. */
#define client_known_owner(known_, type) ((type *)((char *)(known_)-offsetof(type, known)))

/* ---- arena.c ---- */

struct rbk_arena {
	uint32_t refs; /* atomic: the caller's, and one per constant of a plan */
	struct rbk *rbk;
	struct client_known known;
	int fd;
	unsigned char *data; /* NULL: not mapped yet, or no longer */
	size_t bytes;
	size_t used;
	uint64_t segment_bytes; /* as in struct rbk, for this arena; atomic */
	bool exported; /* a broker made the memory: fd is a dma-buf, which cannot be sealed */
	uint32_t id;   /* RBK_REF_ARENA(RBK_REF_INVALID): not registered with the broker */
	bool sealed;
	bool fixed; /* sent with RBK_WIRE_ARENA_FIX: no other broker can map the memfd writable */
	uint32_t *count; /* in struct client_reattach: what the arena counts as; NULL: nothing */
};

/*
 * Register the arena with the broker of @rbk, which is the arena's connection or the next one.
 * Return: as client_request().
 */
int client_arena_add(struct rbk *rbk, struct rbk_arena *arena, struct client_answer *ret,
		     struct rbk_error *error);

struct rbk_arena *client_arena_ref(struct rbk_arena *arena);

/*
 * Drop a reference. The last one removes the arena from the broker, which keeps memory that plans
 * use. Return: NULL.
 */
struct rbk_arena *client_arena_unref(struct rbk_arena *arena);

#define CLIENT_ARENA_MEMFD "ringbroker-arena" /* name of the memfd of an arena */

/*
 * Map the memfd *@fd at the arena's address, for reading and writing, and make it the arena's
 * descriptor. The caller then owns the old descriptor, in *@fd.
 * Return: 0; negative errno with a sentence: nothing has changed.
 */
int client_arena_exchange(struct rbk_arena *arena, int *fd, struct rbk_error *error);

/* ---- fault-fd.c ---- */

/*
 * Make a userfaultfd that can write-protect memfds. Return: 0; negative errno with a sentence:
 * -EOPNOTSUPP: the kernel does not offer it to this process; -ENOMEM and others.
 */
int client_fault_fd_new(int *ret_fd, struct rbk_error *error);

/* Return true if client_arena_move() may work in this process. */
bool client_may_hold_up_writers(void);

/* ---- arena-move.c ---- */

/*
 * Replace the arena's memory by a new memfd with the same bytes at the same address, which a broker
 * can map writable. Other threads may read and write the bytes meanwhile, but must not change the
 * arena otherwise; writers wait for the duration of the copy. Any thread.
 * Return: 0; negative errno with a sentence: nothing has changed: -EINVAL: the arena is sealed,
 * freed, or a device's memory; -EOPNOTSUPP: the kernel cannot hold up writers; -ENOMEM and other
 * errors of memfds, mappings and userfaultfd.
 */
int client_arena_move(struct rbk_arena *arena, struct rbk_error *error);

/* ---- builder.c, describe.c ---- */

#define CLIENT_BUILDER_ERROR_BYTES 512

struct builder_tensor {
	char name[RBK_NAME_BYTES];
	uint32_t name_hash;
	uint8_t kind;
	uint8_t dtype;
	uint8_t rank;
	bool dynamic;
	bool inferred;
	bool written; /* by an earlier node */
	uint32_t dims[RBK_MAX_RANK];
	uint64_t bytes; /* at a count of 1; 0 if inferred */
	struct rbk_arena *arena;
	uint64_t offset;
};

struct builder_node {
	char name[RBK_NAME_BYTES];
	char op[RBK_NAME_BYTES];
	uint32_t first_in;
	uint32_t first_out;
	uint16_t n_in;
	uint16_t n_out;
};

struct builder_attr {
	char name[RBK_NAME_BYTES];
	uint32_t node;
	uint32_t type;
	uint32_t n;
	uint32_t blob_offset;
};

struct builder_array {
	void *items;
	size_t n;
	size_t n_max;
};

struct rbk_builder {
	char name[RBK_NAME_BYTES];
	int error; /* errno of the first mistake, or 0; text is its sentence */
	char text[CLIENT_BUILDER_ERROR_BYTES];
	bool pinned;
	uint8_t pinned_device;
	bool disables_fusion;
	bool dynamic; /* a tensor has RBK_DIM_COUNT */
	unsigned int n_refs;
	struct builder_array tensors; /* struct builder_tensor */
	struct builder_array nodes;   /* struct builder_node */
	struct builder_array attrs;   /* struct builder_attr */
	struct builder_array edges;   /* uint16_t */
	struct builder_array blob;    /* uint8_t */
};

/*
 * Describe a plan (shm/plan-wire.h) for a connection whose arenas hold the constants.
 * Return: 0 and a block to free(); -EINVAL with a sentence, also for earlier mistakes; -E2BIG,
 * -ENOMEM.
 */
int client_describe(const struct rbk_builder *builder, const struct rbk *rbk, uint32_t max_count,
		    void **ret_desc, size_t *ret_bytes, struct rbk_error *error);

/* ---- plan.c ---- */

/* A tensor that a task binds by a reference. */
struct plan_ref {
	char name[RBK_NAME_BYTES];
	uint64_t bytes; /* at a count of 1; 0 if only the broker knows */
	bool is_dynamic;
	bool is_written;
};

struct rbk_plan {
	struct rbk *rbk;
	struct client_known known;
	struct rbk_plan_info info;
	struct plan_ref *refs; /* info.n_refs */
	void *desc;            /* what the plan was made of, for the next broker; else NULL */
	size_t desc_bytes;
	unsigned int n_arenas;
	struct rbk_arena *arenas[];
};

/* Send the description of a plan. Return: as client_request(). */
int client_plan_add(struct rbk *rbk, const void *desc, size_t bytes, struct client_answer *ret,
		    struct rbk_error *error);

/* ---- ring.c, ring-hot.c, ring-recover.c ---- */

/* struct rbk_ring.lost while the connection re-attaches */
#define CLIENT_RING_AWAY 1

/*
 * A ring's state for submitting and consuming. It lies in its own page, which fork() wipes: a child
 * finds an empty ring of 0 entries, so the hot paths need no check for a child. The members that
 * every entry needs lie in one cache line.
 */
struct rbk_ring {
	struct rbk_sq_area *sq;
	const struct rbk_cq_area *cq;
	uint32_t n_entries;
	uint32_t mask;
	uint32_t sq_tail;      /* entries handed out */
	uint32_t sq_published; /* of these, published */
	uint32_t sq_head;      /* consumed by the broker, as last seen */
	uint32_t cq_head;      /* completions consumed */
	uint32_t cq_tail;      /* published by the broker, as last seen */
	uint32_t sq_rung;      /* the broker's sleep token for which the bell was last rung */
	uint32_t probe_in;     /* calls until the next read of the clock, see ring_tick() */
	/* 0, CLIENT_RING_AWAY, or the errno that every call returns from now on */
	int lost;
	bool is_unfenced;     /* sq->unfenced */
	bool may_be_unfenced; /* the process is registered, and cq->has_barriers is set */
	uint32_t n_fenced;    /* publications since the last bell that waited for their fence */

	uint32_t probe_every;
	uint32_t sleep_token; /* token of the last sleep */
	uint32_t processor;   /* as last written for the broker */
	bool armed;           /* the wait word holds an event loop's token */
	bool spin_is_fixed;
	uint32_t due_credit;   /* above 0: the broker predicted the end of recent waits */
	uint32_t spin_skipped; /* waits since the last wait that spun */
	uint64_t probe_clock_ns;
	uint64_t probe_bell_ns;
	uint64_t spin_ns;              /* spin budget: fixed, or its limit where sleeps are short */
	uint64_t wait_mean_ns;         /* mean of recent waits */
	uint64_t wake_lag_ns;          /* time from an event to the end of the sleep that it ends */
	uint64_t early_ns;             /* time from completions to the end that was predicted */
	struct client_ring_cold *cold; /* NULL in a child */
};

/* A ring as the next broker made it. */
struct client_ring_area {
	void *cq_map;
	int cq_fd;
	int bell;
	uint32_t id;
};

/*
 * A ring's state for making, restoring and freeing it. It lies in the page after struct rbk_ring
 * and survives fork().
 */
struct client_ring_cold {
	struct rbk *rbk;
	void *sq_map;
	size_t sq_bytes;
	void *cq_map; /* the same address for the ring's whole life, see replace_area() */
	size_t cq_bytes;
	uint32_t n_entries;
	uint32_t id;
	bool exists; /* the broker has the ring, under id */
	int sq_fd;   /* kept for the next broker, as cq_fd is; else -1 */
	int cq_fd;
	int bell;
	int epoll; /* of rbk_ring_fd(), or -1; only the ring's thread uses it */
	/*
	 * The next broker's area, for the ring's thread to install; or NULL. The members above
	 * that installing changes are changed under rbk->lock.
	 */
	struct client_ring_area *area;
	struct client_ring_cold *next; /* in rbk->rings, under rbk->lock */
	struct client_ring_cold **link;
};

/*
 * Map an area of a ring. Return: 0; negative errno, also if the memfd is shorter than announced.
 */
int client_area_map(int fd, uint64_t bytes, int protection, void **ret);

/*
 * Have the client execute the fences of its publications, and find out whether it may leave them to
 * the broker of its completion area. Changes nothing that was published before.
 */
void client_ring_keep_fences(struct rbk_ring *ring);

/* So many fences of publications in a row take as long as one membarrier(): 26 ns and 15 us. */
#define CLIENT_FENCES 512u

/* Make the client's end of a bell block. Return: 0; negative errno with a sentence. */
int client_bell_set_up(int bell, struct rbk_error *error);

/* Unmap an area of @cq_bytes, close its descriptors, and free it. Return: NULL. */
struct client_ring_area *client_area_free(struct client_ring_area *area, size_t cq_bytes);

/*
 * Find out about a ring whose broker is gone, or may be: begin a re-attachment, or install what the
 * next broker made of the ring. On the ring's thread.
 * Return: 0: the ring has a broker; CLIENT_RING_AWAY: not yet; -ECONNRESET, -EPROTO and other
 * errors: it will have none.
 */
int client_ring_recover(struct rbk_ring *ring);
