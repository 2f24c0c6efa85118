#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the files of libringbroker share
 *
 * Nothing here is exported: symbols are hidden unless libclient/ringbroker.map names them.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/ringbroker.h"
#include "shm/wire.h"

#define RBK_EXPORT   __attribute__((__visibility__("default")))

#define CLIENT_NEVER UINT64_MAX /* a deadline that is none */

/* ---- util.c ---- */

#define client_cleanup(function) __attribute__((__cleanup__(function)))

/* Writes a sentence into @error, if it is not NULL; %m is that of @r. Return: @r. */
int client_error(struct rbk_error *error, int r, const char *format, ...)
	__attribute__((__format__(__printf__, 3, 4)));

uint64_t client_now_ns(void); /* CLOCK_MONOTONIC */

/* @timeout_ns from now, or CLIENT_NEVER if that is beyond the clock. */
uint64_t client_deadline_ns(uint64_t timeout_ns);

/* Closes a descriptor, if it is one, and forgets it. */
void client_close(int *fd);

/*
 * A memfd of @bytes with all its pages allocated, sealed against shrinking and growing.
 * Return: 0 and a descriptor that is close-on-exec; -ENOMEM if the machine does not have as much
 * memory; negative errno.
 */
int client_memfd_new(const char *name, size_t bytes, int *ret_fd);

size_t client_page_bytes(void);

/* ---- reply.c: what the broker answers ---- */

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
	struct rbk_wire_lease lease;
	struct rbk_wire_lease_given lease_given;
	struct rbk_wire_lease_region lease_region;
	struct client_catalogue {
		struct rbk_wire_reply reply;
		uint32_t n_operators;
		uint32_t n_devices;
	} catalogue; /* struct rbk_wire_catalogue; the operators follow in what was received */
};
_Static_assert(sizeof(struct client_catalogue) == sizeof(struct rbk_wire_catalogue), "its head");

/* Of the longest answer. */
#define CLIENT_REPLY_MAX_BYTES               \
	(sizeof(struct rbk_wire_catalogue) + \
	 RBK_WIRE_MAX_OPERATORS * sizeof(struct rbk_wire_operator))
_Static_assert(sizeof(union client_reply) <= CLIENT_REPLY_MAX_BYTES, "that is the longest");

/* How many descriptors an answer to a request of @type that says yes comes with. */
unsigned int client_reply_fds(uint32_t type);

/*
 * Checks an answer to a request of @type: length, descriptors, strings, every number that the
 * library relies on. @bytes is what was received into @reply.
 * Return: 0, also for an answer that says no; -EPROTO with a sentence.
 */
int client_reply_check(const union client_reply *reply, size_t bytes, unsigned int n_fds,
		       uint32_t type, struct rbk_error *error);

/* ---- connection.c, request.c ---- */

/* The lowest that this library can work with: what came later is asked for by feature only. */
#define CLIENT_ABI_MINOR 0

struct client_request;

struct rbk {
	uint32_t refs;         /* atomic: the caller's, and one per arena, plan and ring */
	int fd;                /* control socket */
	const uint32_t *alive; /* a page that fork() wipes: 0 in a child */
	uint64_t timeout_ns;
	uint64_t features;
	char broker[RBK_WIRE_NAME_BYTES]; /* its name and version */
	uint32_t max_ring_entries;
	uint64_t segment_bytes; /* no tensor should straddle a multiple of it in a memfd; 0: may */
	bool exports;           /* the broker makes arenas that devices reach in place */
	int lost;               /* atomic: 0, or what every call returns from now on */

	pthread_mutex_t lock; /* of the rest */
	pthread_cond_t changed;
	struct client_request *requests; /* sent, not answered */
	unsigned int n_abandoned;        /* of them, without anybody who waits */
	uint32_t next_cookie;
	bool reading; /* somebody is in recvmsg() on behalf of all */
	bool stalls;  /* a request's time was up, and nothing has come since */
	struct client_ring_cold *rings;

	struct rbk *next; /* connection.c's */
};

/* A request with what follows it in the message, and a descriptor to send along, or -1. */
struct client_message {
	struct rbk_wire_request *request; /* the cookie is filled in */
	size_t request_bytes;
	const void *tail;
	size_t tail_bytes;
	int fd;
	/* Of an object that is dropped: if the broker has never heard of it, as much credit of the
	 * lease is left of it, and given back. */
	uint64_t owed_bytes;
};

struct client_answer {
	union client_reply reply;
	int fds[RBK_WIRE_MAX_FDS];
	unsigned int n_fds;                  /* owned by who has the answer; */
	struct rbk_wire_operator *operators; /* so is this, of CATALOGUE, to be freed; else NULL */
};

/*
 * Sends a request and waits for its answer. Any thread.
 * Return: 0 with a checked, positive answer; the broker's negative errno and its sentence; or
 * -ECONNRESET, -EPROTO, -ETIME, -ECHILD, -ENOMEM.
 */
int client_request(struct rbk *rbk, const struct client_message *message, struct client_answer *ret,
		   struct rbk_error *error);

/* client_request() that the broker may take @wait_ns longer to answer. */
int client_request_for(struct rbk *rbk, const struct client_message *message, uint64_t wait_ns,
		       struct client_answer *ret, struct rbk_error *error);

/*
 * Sends a request of a lease that gives something back, and waits for nothing. What it gives back
 * is the broker's from then on, whether that reads it or ends. Any thread.
 * Return: 0; -EBUSY: the broker has too much to answer, nothing was sent; -ECONNRESET, -EPROTO,
 * -ECHILD, -ENOMEM: likewise.
 */
int client_post(struct rbk *rbk, const struct client_message *message);

/* Has the time of a request passed, and has the broker said nothing since? Does not wait. */
bool client_stalls(struct rbk *rbk);

/* client_request() of those that name an object and get nothing back. */
int client_request_id(struct rbk *rbk, uint32_t type, uint32_t id, struct rbk_error *error);

/* connection.c: rbk_connect() or rbk_admin_connect(). */
int client_connect(const struct rbk_options *options, bool is_admin, struct rbk **ret,
		   struct rbk_error *error);

/* Return: 0; -ECHILD, or why the connection is lost, with a sentence. */
int client_check(const struct rbk *rbk, struct rbk_error *error);

/* Is this a child of the process that connected? */
static inline bool client_is_child(const struct rbk *rbk)
{
	return *(const volatile uint32_t *)rbk->alive == 0;
}

/* Ends the connection for everybody who uses it: they return @r from now on. Any thread. */
void client_lose(struct rbk *rbk, int r);

/* Frees the requests whose late answers were awaited. */
void client_requests_free(struct rbk *rbk);

struct rbk *client_ref(struct rbk *rbk);
struct rbk *client_unref(struct rbk *rbk);

/* ---- lease.c ---- */

struct rbk_lease;
struct rbk_lease_use;

/*
 * rbk_lease_give() and rbk_lease_object_drop() that wait for nothing. Return: 0; -EBUSY: not now;
 * -ENOENT: no such object; errors of a lost connection: credit is the member's as before, and the
 * object is dropped.
 */
int client_lease_give(struct rbk_lease *lease, uint64_t bytes, const struct rbk_lease_use *use);
int client_lease_object_drop(struct rbk_lease *lease, uint64_t dev, uint64_t ino);

/* ---- arena.c ---- */

struct rbk_arena {
	uint32_t refs; /* atomic: the caller's, and one per constant of a plan */
	struct rbk *rbk;
	int fd;
	unsigned char *data; /* NULL: the caller has freed it */
	size_t bytes;
	size_t used;
	uint64_t segment_bytes; /* as in struct rbk, for this arena */
	bool exported;          /* the broker made it: fd is a dma-buf, which cannot be sealed */
	uint32_t id;            /* RBK_REF_ARENA(RBK_REF_INVALID): the broker does not have it */
	bool sealed;
};

struct rbk_arena *client_arena_ref(struct rbk_arena *arena);

/* The last one takes it from the broker, which keeps what plans use. Return: NULL. */
struct rbk_arena *client_arena_unref(struct rbk_arena *arena);

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
	bool written; /* by a node so far */
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
	int error; /* the first mistake, and its sentence */
	char text[CLIENT_BUILDER_ERROR_BYTES];
	bool pinned;
	uint8_t pinned_device;
	bool disables_fusion;
	bool dynamic; /* some tensor is */
	unsigned int n_refs;
	struct builder_array tensors; /* struct builder_tensor */
	struct builder_array nodes;   /* struct builder_node */
	struct builder_array attrs;   /* struct builder_attr */
	struct builder_array edges;   /* uint16_t */
	struct builder_array blob;    /* uint8_t */
};

/*
 * The description of a plan (shm/plan-wire.h), for a connection whose arenas hold the constants.
 * Return: 0 and a block to free(); -EINVAL with a sentence, also for earlier mistakes; -E2BIG,
 * -ENOMEM.
 */
int client_describe(const struct rbk_builder *builder, const struct rbk *rbk, uint32_t max_count,
		    void **ret_desc, size_t *ret_bytes, struct rbk_error *error);

/* ---- ring.c, ring-hot.c ---- */

/*
 * What a ring needs to be used. It has pages of its own, which fork() wipes: a child finds an
 * empty ring of 0 entries, and so the paths that are taken for every entry need no check for it.
 * The fields of one entry's way lie in one cache line.
 */
struct rbk_ring {
	struct rbk_sq_area *sq;
	const struct rbk_cq_area *cq;
	uint32_t n_entries;
	uint32_t mask;
	uint32_t sq_tail;      /* entries handed out */
	uint32_t sq_published; /* of them, published */
	uint32_t sq_head;      /* consumed by the broker, as last seen */
	uint32_t cq_head;      /* completions consumed */
	uint32_t cq_tail;      /* published by the broker, as last seen */
	uint32_t sq_rung;      /* the broker's sleep token that the bell was last rung for */
	uint32_t probe_in;     /* countdown to the next look at the clock, see ring_tick() */
	int lost;              /* 0, or what every call returns from now on */

	uint32_t probe_every;
	uint32_t sleep_token; /* of the last sleep */
	bool armed;           /* the wait word holds a token for an event loop */
	bool spin_is_fixed;
	uint32_t spin_skipped; /* waits without spinning since the last that spun */
	uint64_t probe_clock_ns;
	uint64_t probe_bell_ns;
	uint64_t spin_ns;              /* budget: fixed, or the most that is tried */
	uint64_t wait_mean_ns;         /* of recent waits */
	struct client_ring_cold *cold; /* NULL in a child */
};

/* What making and freeing it needs; lies behind the pages above and survives fork(). */
struct client_ring_cold {
	struct rbk *rbk;
	void *sq_map;
	size_t sq_bytes;
	void *cq_map;
	size_t cq_bytes;
	int bell;
	uint32_t id;
	bool exists;                   /* the broker has it, under id */
	struct client_ring_cold *next; /* in rbk->rings, under rbk->lock */
	struct client_ring_cold **link;
};

/* Has client_lose() wake whoever sleeps in @ring. rbk_ring_free() undoes it. */
void client_ring_link(struct rbk_ring *ring);

/* Where all indices start: at set-up 0; tests choose others to see them wrap. Both sides must. */
void client_ring_start_at(struct rbk_ring *ring, uint32_t index);
