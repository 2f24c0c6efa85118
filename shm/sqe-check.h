#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Diagnosis of submission entries
 *
 * sqe_check() finds the errno with which the broker refuses an entry, the field at fault, and a
 * sentence that says what would be right. The broker calls it for entries that its own validation
 * (broker/dispatch/validate-hot.c) has refused, for the log and for statistics; the client library
 * calls it in rbk_sqe_check(). A test compares both verdicts for mutations of every field.
 *
 * The caller knows a session to a different degree, and answers questions about it through
 * functions. sqe_check() allocates nothing and calls nothing else.
 */
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker/abi.h>

struct sqe_plan {
	const void *plan; /* the caller's own pointer, passed to find_binding() */
	uint32_t max_count;
	uint32_t n_refs;
};

/* A tensor that a task binds by a reference. */
struct sqe_binding {
	uint64_t bytes; /* at the task's count; 1 if the caller does not know the size */
	bool is_written;
	const char *name;
};

struct sqe_arena {
	uint64_t bytes;
	bool is_immutable;
	uint64_t memory[2];  /* equal for two arenas that share memory */
	const uint8_t *base; /* NULL: the contents cannot be read */
};

enum { SQE_ANY_DISTANCE = UINT16_MAX };

/* The caller's knowledge of the session that submits the entry. */
struct sqe_session {
	const void *context; /* first argument of the functions */
	uint64_t features;
	bool is_in_chain; /* the entry before this one has RBK_SQE_LINK */
	/* Entries before this one that RBK_SQE_AFTER can name; SQE_ANY_DISTANCE: not known */
	uint32_t n_nameable;
	const uint64_t *table; /* the entry's table, already copied; NULL: read it from its arena */
	/* Return: false if there is no such plan, or no such arena. */
	bool (*find_plan)(const void *context, uint32_t id, struct sqe_plan *ret);
	bool (*find_arena)(const void *context, uint32_t id, struct sqe_arena *ret);
	/* Describe the tensor of reference @index, which is below the plan's n_refs. */
	void (*find_binding)(const void *plan, uint32_t index, uint32_t count,
			     struct sqe_binding *ret);
};

struct sqe_fault {
	char field[24];   /* member of struct rbk_sqe, such as "refs[1]"; "table[7]" in a table */
	char reason[192]; /* a sentence without a full stop */
};

/*
 * Find the first fault of @sqe, in the order in which the broker looks.
 * Return: 0 if the caller's knowledge shows none; otherwise the negative errno with which the entry
 * completes, and *ret is filled.
 */
int sqe_check(const struct sqe_session *session, const struct rbk_sqe *sqe, struct sqe_fault *ret);

/* Return the name of an operation, such as "RUN"; "unknown" for other numbers. */
const char *sqe_op_name(uint8_t opcode);

/* Return the name of an errno that struct rbk_sqe lists, such as "-EINVAL"; "an error" else. */
const char *sqe_errno_name(int res);
