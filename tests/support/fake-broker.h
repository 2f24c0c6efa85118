#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A broker for tests of the client library
 *
 * A thread listens on its own socket, speaks the control protocol, and completes each entry of its
 * rings at once with result 0, whatever the opcode. Tests can make it misbehave in one way at a
 * time, at the n-th request of a type, and can kill it at once. It follows the sleeping rules of
 * abi.h in both directions.
 *
 * With RBK_FEAT_REATTACH it commits what it publishes, and takes over the objects and rings of a
 * broker that died. Its records stay empty, because no task takes long.
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
	FAKE_REFUSE_EVER,  /* -EINVAL with a sentence */
	FAKE_SHORT,        /* a truncated answer */
	FAKE_EMPTY,        /* 4 bytes */
	FAKE_LONG,         /* more bytes than the answer's size */
	FAKE_HUGE,         /* more bytes than the size of any answer */
	FAKE_COOKIE,       /* another request's cookie */
	FAKE_TYPE,         /* another request's type */
	FAKE_POSITIVE,     /* a positive result */
	FAKE_ENDLESS,      /* a sentence without a terminator */
	FAKE_TWICE,        /* the answer twice */
	FAKE_FDS_MISSING,  /* no descriptors */
	FAKE_FDS_TOO_MANY, /* one descriptor too many */
	FAKE_FDS_FLOOD,    /* more descriptors than a message may carry */
	/* HELLO */
	FAKE_VERSION, /* another major version */
	/* RING_ADD */
	FAKE_ENTRIES_0,
	FAKE_ENTRIES_3,
	FAKE_ENTRIES_OTHER, /* twice the requested number */
	FAKE_AREA_SMALL,    /* areas smaller than the entries */
	FAKE_AREA_HUGE,
	FAKE_FILE_SHORT, /* memfds smaller than announced */
	FAKE_FDS_WRONG,  /* descriptors of another kind of file */
	/* ARENA_ADD */
	FAKE_ID,
	/* ARENA_NEW */
	FAKE_ARENA_SHORT, /* one page less than requested */
	/* HELLO */
	FAKE_SEGMENT_ODD, /* segments that are no multiple of the page size */
	/* DEVICES, PLAN_MEMORY, TENANT */
	FAKE_DEVICES_17,
	FAKE_NAME_ENDLESS, /* not PLAN_MEMORY */
};

struct fake_broker;

struct fake_options {
	enum fake_fault fault;
	uint32_t fault_type;       /* enum rbk_wire_type */
	uint32_t fault_at;         /* the n-th request of that type, from 0 */
	bool fault_always;         /* that request and all later ones of the type */
	uint32_t start;            /* first value of all ring indices */
	uint32_t max_ring_entries; /* 0: RBK_MAX_RING_ENTRIES */
	uint64_t rung_early_ns;    /* it tells clients that it rang so much earlier */
	uint64_t segment_bytes;    /* bytes of an arena's segment; 0: no segments */
	bool exports;              /* true: it makes arenas */
	bool has_barriers;         /* in rings: rbk_cq_area.has_barriers */
	bool is_old;               /* true: ABI version 1.0, without features and later requests */
	uint64_t features;         /* offered beside the usual ones; RBK_FEAT_REATTACH */
	uint64_t lacks;            /* usual features that are not offered */
	const char *path;          /* where it listens; NULL: at a path of its own */
	const char *name;          /* NULL: "fake" */
};

/* Start a fake broker that listens on fake_broker_path(). Fail the test if that is impossible. */
struct fake_broker *fake_broker_new(const struct fake_options *options);

/* End it as a crash would: all its descriptors close. Its memory stays readable. */
void fake_broker_kill(struct fake_broker *fake);

/*
 * Call fake_broker_kill(), then free it.
 * Return: NULL.
 */
struct fake_broker *fake_broker_free(struct fake_broker *fake);

const char *fake_broker_path(const struct fake_broker *fake);

/* Return the name of the client that has connected last. */
const char *fake_broker_client(const struct fake_broker *fake);

/* Send the held answers in the order of their requests. Return when all are sent. */
void fake_broker_release(struct fake_broker *fake);

/* Leave entries in the rings while @paused; they complete after @paused is false again. */
void fake_broker_pause(struct fake_broker *fake, bool paused);

/*
 * End all rings as the ABI specifies: set their closed word, to a value of enum rbk_ring_end, and
 * close their bells.
 */
void fake_broker_close_rings(struct fake_broker *fake, uint32_t closed, bool close_bells);

/* With RBK_FEAT_REATTACH: commit completions, but do not publish them while @hidden. */
void fake_broker_hide(struct fake_broker *fake, bool hidden);

/* Publish impossible indices in the parts of the rings that the client reads. */
void fake_broker_spoil_rings(struct fake_broker *fake, uint32_t cq_tail_ahead,
			     uint32_t sq_head_ahead);

/* Ring all bells @n times without cause. */
void fake_broker_ring_bells(struct fake_broker *fake, unsigned int n);

/* Predict in all rings that the next completion comes @left_ns from now. */
void fake_broker_tell_due(struct fake_broker *fake, uint32_t left_ns);

/* Tell in all rings that the broker is on @processor. */
void fake_broker_tell_processor(struct fake_broker *fake, uint32_t processor);

/*
 * Count the requests of @type received, the existing objects (such as arenas), the bells received,
 * the bells sent.
 */
unsigned int fake_broker_requests(struct fake_broker *fake, uint32_t type);
unsigned int fake_broker_objects(struct fake_broker *fake);
/* Return the ids of the existing arenas and plans: bit i for id i, which is below 64. */
uint64_t fake_broker_ids(struct fake_broker *fake);
unsigned int fake_broker_wakeups(struct fake_broker *fake);
unsigned int fake_broker_wakeups_sent(struct fake_broker *fake);
