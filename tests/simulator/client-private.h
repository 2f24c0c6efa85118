#pragma once
/* SPDX-License-Identifier: MIT */
/* Declarations that the client*.c files share; no other file includes this header. */
#include <pthread.h>

#include "libclient/ringbroker.h"
#include "simulator/client.h"

enum {
	WIDTH = 16, /* words of a row */
	MAX_ROWS = 8,
	SLOTS = 24, /* tasks in flight */
	STATES = 4,
	STATE_WORDS = 2 * WIDTH, /* each row is a state of its own for the plan */
	MAX_CHAIN = 8,
	SLOT_BYTES = MAX_ROWS * WIDTH * 4,
	TABLE_BYTES = 64,
	CONSTANT_WORDS = WIDTH * WIDTH, /* of each of two constants */
	ENDED = 64,                     /* completions that are remembered */
	BATCH = 8,
};

/* Time after which a task or a request counts as lost */
#define PATIENCE_NS 120000000000u

/* The second constant is behind the first one. Plans share both. */
enum plan_kind {
	PLAN_ELEMENTS, /* the first SIM_PLANS have no state */
	PLAN_PRODUCT,  /* with the first constant */
	PLAN_SECOND,   /* with the second one */
	PLAN_BOTH,     /* one after the other */
	PLAN_BRANCHES, /* one and the other, and their product, which is no part of either */
	PLAN_STATE,
	PLAN_KINDS
};

enum task_kind {
	TASK_FREE,
	TASK_NOP,
	TASK_RUN,
	TASK_CANCEL,
	TASK_BARRIER,
	TASK_MEMORY,
	TASK_STALE,
	TASK_INVALID, /* is rejected */
};

/* An entry in flight, and what it must give */
struct task {
	enum task_kind kind;
	uint64_t id; /* its user_data */
	enum plan_kind plan;
	uint32_t n_rows;
	uint32_t *in, *out;             /* in the arena; of SLOT_BYTES each */
	unsigned int in_slot, out_slot; /* in whose slots they lie */
	uint32_t expected[MAX_ROWS * WIDTH];
	unsigned int state;                /* of PLAN_STATE */
	uint64_t predecessor;              /* id of the entry before it in its chain; 0: none */
	uint32_t index;                    /* rbk_sqe_index() */
	uint64_t named[RBK_SQE_AFTER_MAX]; /* ids of the entries that it waits for; 0: none */
	uint64_t target;                   /* id of the entry that a CANCEL names */
	bool is_cancelled;                 /* a CANCEL names it, or its chain has ended */
	bool must_fail;      /* a CANCEL has stopped it, or its predecessor has failed */
	bool waits;          /* for memory of a device, but not longer than its plan is there */
	bool may_fail;       /* its plan is removed meanwhile */
	bool is_overwritten; /* a later entry of its chain writes to @out */
	bool is_void;        /* its arena is gone */
	uint32_t old_state[STATE_WORDS];
};

/* An entry that has completed */
struct ended {
	uint64_t id;
	int res;
	uint32_t index;
	bool awaits_cancel; /* it was cancelled, and a CANCEL in flight must say so */
};

struct state {
	uint32_t *words; /* in the arena */
	uint32_t expected[STATE_WORDS];
	bool is_busy;
};

struct client {
	const struct sim_client_options *options;
	struct rbk *rbk;
	struct rbk_arena *arena, *constants;
	struct rbk_plan *plans[PLAN_KINDS];
	struct rbk_ring *ring;
	struct rbk_ring *second; /* has NOPs only; NULL: none */
	unsigned int n_second;   /* NOPs in flight there */
	uint32_t *slots_x[SLOTS], *slots_y[SLOTS];
	uint64_t *tables[SLOTS];
	struct task tasks[SLOTS];
	unsigned int n_uses[SLOTS]; /* other tasks in flight that use the slot's memory */
	unsigned int n_in_flight;
	struct state states[STATES];
	uint64_t next_id;
	uint64_t ring_from_id;    /* id of the first entry of the ring */
	struct rbk_sqe *last_sqe; /* the last entry that was put into the ring */
	uint32_t salts[PLAN_KINDS];
	uint64_t barrier; /* id of a BARRIER in flight; 0: none */
	struct ended ended[ENDED];
	unsigned int n_ended;
	uint32_t stale_plan; /* id of a plan that was removed; 0: none */
	pthread_t helpers[SIM_MAX_HELPERS];
	unsigned int n_helpers;
	bool helpers_must_end;
	bool is_lost;
};

/* --- client.c --- */

extern struct sim_client_figures client_figures;
extern bool client_must_stop;

void client_sleep_ns(uint64_t ns);
/*
 * Note an error of a call. Without failures that the simulator causes, there must be none.
 * Return: false: the client does not go on with its connection.
 */
bool client_accept_error(struct client *client, const char *what, int r,
			 const struct rbk_error *error);

/* --- client-objects.c --- */

/* Connect, and make what is needed first. Return: false: the connection is lost, or there is none.
 */
bool client_begin(struct client *client);
/* Free everything. */
void client_end(struct client *client);
/* Return the description of a plan; NULL without memory. */
struct rbk_builder *client_build_plan(struct rbk_arena *constants, enum plan_kind kind);
/* Make objects. Return: false: the connection is lost. */
bool client_make_constants(struct client *client);
bool client_make_arena(struct client *client);
bool client_make_plan(struct client *client, enum plan_kind kind);
bool client_make_ring(struct client *client, struct rbk_ring **ret);
/* Free objects, which must not take until a timeout. Return: NULL. */
struct rbk_plan *client_free_plan(const struct client *client, struct rbk_plan *plan);
struct rbk_arena *client_free_arena(const struct client *client, struct rbk_arena *arena);

/* --- client-helper.c --- */

/* The main function of a second thread. @data: struct client. */
void *client_help(void *data);

/* --- client-entries.c --- */

/* Put entries into the ring, if it has room. Return: false: the connection is lost. */
bool client_put_some(struct client *client);
/* Count the uses of other tasks' slots, or no longer, as @n is 1 or -1. */
void client_count_uses(struct client *client, const struct task *task, int n);

/* --- client-check.c --- */

/* Wait for a completion, and check it. Return: false: the connection is lost. */
bool client_consume(struct client *client);
/* Submit NOPs to the second ring, or wait for those in flight. Return: as client_consume(). */
bool client_use_second(struct client *client);
