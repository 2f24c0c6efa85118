#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A broker for tests of the client library
 *
 * A thread that listens on a socket of its own, speaks the control protocol, and completes each
 * entry of its rings at once, without looking at it: NOPs and whatever else with result 0. It can
 * be made to misbehave in one way at a time, at the n-th request of a type, and to die at once.
 * It follows the sleeping rules of abi.h in both directions.
 */
#include <stdbool.h>
#include <stdint.h>

enum fake_fault {
	FAKE_OK,
	FAKE_SILENT,       /* no answer */
	FAKE_HELD,         /* answers when released */
	FAKE_DIE,          /* closes everything instead of answering */
	FAKE_DIE_AFTER,    /* answers, then closes everything */
	FAKE_REFUSE,       /* -EDQUOT with a sentence */
	FAKE_REFUSE_BARE,  /* -EBUSY with the short form and no sentence */
	FAKE_SHORT,        /* an answer cut short */
	FAKE_EMPTY,        /* 4 bytes */
	FAKE_LONG,         /* more bytes than the answer has */
	FAKE_HUGE,         /* more bytes than any answer has */
	FAKE_COOKIE,       /* another request's cookie */
	FAKE_TYPE,         /* another request's type */
	FAKE_POSITIVE,     /* a positive result */
	FAKE_ENDLESS,      /* a sentence without an end */
	FAKE_TWICE,        /* the answer, two times */
	FAKE_FDS_MISSING,  /* no descriptors */
	FAKE_FDS_TOO_MANY, /* one descriptor too many */
	FAKE_FDS_FLOOD,    /* more than a message may have */
	/* HELLO */
	FAKE_VERSION, /* another major version */
	/* RING_ADD */
	FAKE_ENTRIES_0,
	FAKE_ENTRIES_3,
	FAKE_ENTRIES_OTHER, /* twice as many as asked for */
	FAKE_AREA_SMALL,    /* areas smaller than the entries */
	FAKE_AREA_HUGE,
	FAKE_FILE_SHORT, /* memfds smaller than said */
	FAKE_FDS_WRONG,  /* descriptors of something else */
	/* ARENA_ADD */
	FAKE_ID,
	/* ARENA_NEW */
	FAKE_ARENA_SHORT, /* a page less than asked for */
	/* HELLO */
	FAKE_SEGMENT_ODD, /* segments of no page's size */
	/* DEVICES, PLAN_MEMORY, TENANT */
	FAKE_DEVICES_17,
	FAKE_NAME_ENDLESS, /* not PLAN_MEMORY */
};

struct fake_broker;

struct fake_options {
	enum fake_fault fault;
	uint32_t fault_type;       /* enum rbk_wire_type */
	uint32_t fault_at;         /* the n-th request of that type, from 0 */
	uint32_t start;            /* all indices of rings begin there */
	uint32_t max_ring_entries; /* 0: RBK_MAX_RING_ENTRIES */
	uint64_t segment_bytes;    /* of arenas; 0: none */
	bool exports;              /* makes arenas */
	bool is_old;               /* of version 1.0: no features, no requests of later ones */
};

/* Starts it, listening on fake_broker_path(). Fails the test if it cannot. */
struct fake_broker *fake_broker_new(const struct fake_options *options);

/* Ends it as a crash would: all descriptors close. Everything stays readable. */
void fake_broker_kill(struct fake_broker *fake);

/* fake_broker_kill(), then frees. Return: NULL. */
struct fake_broker *fake_broker_free(struct fake_broker *fake);

const char *fake_broker_path(const struct fake_broker *fake);

/* Answers that were held are sent, in the order of the requests. Returns when done. */
void fake_broker_release(struct fake_broker *fake);

/* Entries stay where they are; those in the rings complete after @paused is false again. */
void fake_broker_pause(struct fake_broker *fake, bool paused);

/* Ends all rings as the ABI says: sets their closed word and closes their bells. */
void fake_broker_close_rings(struct fake_broker *fake, bool set_closed, bool close_bells);

/* Writes nonsense into what the client reads of its rings. */
void fake_broker_spoil_rings(struct fake_broker *fake, uint32_t cq_tail_ahead,
			     uint32_t sq_head_ahead);

/* Rings all bells @n times for nothing. */
void fake_broker_ring_bells(struct fake_broker *fake, unsigned int n);

/* Requests of a type that came, arenas and so on that exist, bells that rang for it, seen tasks. */
unsigned int fake_broker_requests(struct fake_broker *fake, uint32_t type);
unsigned int fake_broker_objects(struct fake_broker *fake);
unsigned int fake_broker_wakeups(struct fake_broker *fake);
unsigned int fake_broker_wakeups_sent(struct fake_broker *fake);
