#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Control messages that are valid but for one field, their length, or their descriptors
 *
 * A client without the library sends bursts of requests of all types. Most have one word, their
 * length, or the number or kind of their descriptors changed. The broker must answer each message
 * once or end the session; it must not end a session for messages that are valid. Requests that may
 * wait for memory are the exception: they may stay without an answer.
 *
 * Connecting and making objects fails the running test on errors; odd_messages_step() returns a
 * sentence instead.
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
	ODD_TYPES = RBK_WIRE_ADMIN_RESTART + 1,
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

struct odd_messages {
	const struct broker *broker;
	int fd; /* the session; -1: none */
	bool is_greeted;
	bool is_in_doubt; /* true: an earlier burst may have ended the session */
	int fds[ODD_N_FDS];
	int arena, constants, description;
	int area;      /* either area of an idle ring of up to 16 entries */
	uint8_t *plan; /* a description with constants in arena 2 */
	size_t plan_bytes;
	uint64_t seed;
	uint64_t n_sent, n_changed, n_answered, n_ended;
	uint64_t n_of_type[ODD_TYPES];
	uint64_t longest_ns; /* longest time until a burst was answered */
	char failure[256];   /* last sentence of odd_messages_step() */
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
 * Send a burst of messages and take the answers.
 * Return: NULL, or a sentence about what went wrong, valid until the next call.
 */
const char *odd_messages_step(struct odd_messages *odd);
