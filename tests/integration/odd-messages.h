#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Control messages that are valid but for one field, their length, or their descriptors
 *
 * A client without the library sends bursts of requests of all types. 5 of 8 have one word, their
 * length, or the number or kind of their descriptors changed. The broker must answer each message
 * once or end the session; it must not end a session for messages that are valid. Requests that may
 * wait for memory are the exception: they may stay without an answer.
 *
 * A broker that cannot be connected to fails the running test; other errors are sentences that
 * odd_messages_send() and odd_messages_take() return.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "integration/raw.h"

enum {
	ODD_MESSAGE_BYTES = 4096,
	ODD_MESSAGE_FDS = 16, /* above RBK_WIRE_MAX_FDS */
	ODD_ARENA_BYTES = 16384,
	ODD_MOST_IN_BURST = 16,
	ODD_TYPES = RBK_WIRE_LEASE_LOST + 1,
};

/* Descriptors of every kind. */
enum odd_fd {
	ODD_FD_PIPE_READ,
	ODD_FD_PIPE_WRITE,
	ODD_FD_SOCKET,
	ODD_FD_TCP,
	ODD_FD_FOLDER,
	ODD_FD_PATH, /* O_PATH */
	ODD_FD_READ_ONLY,
	ODD_FD_UNSEALED,
	ODD_FD_FUTURE_WRITE,
	ODD_FD_SPARSE,
	ODD_FD_EMPTY,
	ODD_FD_HUGE,
	ODD_FD_EVENT,
	ODD_FD_WRITE_ONLY,
	ODD_FD_EPOLL,
	ODD_FD_SELF, /* the other end of a socket pair through which it is sent to itself */
	ODD_N_FDS,
};

struct odd_message {
	_Alignas(8) uint8_t bytes[ODD_MESSAGE_BYTES];
	size_t n_bytes;
	int fds[ODD_MESSAGE_FDS];
	unsigned int n_fds;
};

struct odd_burst {
	unsigned int n_sent, n_may_wait;
	bool is_valid; /* true: no message gives the broker a reason to end the session */
	uint32_t last_type;
	uint32_t changed;    /* bit i: message i is not a valid one */
	uint32_t unanswered; /* bit i: message i has no answer yet */
	struct rbk_wire_request heads[ODD_MOST_IN_BURST];
};

enum odd_stage {
	ODD_GREETS,        /* the answer to HELLO is under way */
	ODD_LACKS_OBJECTS, /* the session is to get a few objects */
	ODD_OPEN,
};

struct odd_messages {
	const struct broker *broker;
	int fd; /* the session; -1: none */
	enum odd_stage stage;
	unsigned int n_expected; /* answers under way that must be good ones */
	bool is_greeted;
	bool is_in_doubt; /* true: an earlier burst may have ended the session */
	bool has_ended;   /* true: the session ended during the burst */
	struct odd_burst burst;
	uint64_t begin_ns; /* when the burst began */
	int fds[ODD_N_FDS];
	int own; /* arena 1 of some sessions, which no odd message has */
	int arena, constants, description;
	int area;      /* either area of an idle ring of up to 16 entries */
	uint8_t *plan; /* a description with constants in arena 2 */
	size_t plan_bytes;
	uint64_t seed;
	uint64_t n_handled; /* messages that were answered, that ended a session, or may wait */
	uint64_t n_changed; /* of these, messages that are not valid ones */
	uint64_t n_ended;
	uint64_t longest_ns; /* longest time until a burst was answered */
	char failure[512];   /* last sentence of odd_messages_send() and odd_messages_take() */
};

/* Make the struct that follows the content of @message. */
#define ODD_PUT(message, ...)                                                  \
	do {                                                                   \
		(message)->n_bytes = sizeof(__VA_ARGS__);                      \
		memcpy((message)->bytes, &(__VA_ARGS__), sizeof(__VA_ARGS__)); \
	} while (0)

/* Borrows @to, of which only socket_path is used. */
void odd_messages_begin(struct odd_messages *odd, const struct broker *to, uint64_t seed);
void odd_messages_end(struct odd_messages *odd);

/* Make a valid message; its description, if any, needs the constants of the session's arena 2. */
void odd_message_make(struct odd_messages *odd, enum rbk_wire_type type, struct odd_message *m);

/*
 * Send a burst of messages, or what a new session begins with. Each call must be followed by
 * odd_messages_take(); several sessions may have bursts under way.
 * Return: NULL, or a sentence about what went wrong, valid until the next call.
 */
const char *odd_messages_send(struct odd_messages *odd);

/* Take the answers. Return: as odd_messages_send(). */
const char *odd_messages_take(struct odd_messages *odd);
