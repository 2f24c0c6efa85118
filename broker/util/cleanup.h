#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Ownership by scope
 *
 * Locals own through _cleanup_(); ownership moves only through steal_ptr() and steal_fd().
 * Destructors accept NULL and return NULL.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((__cleanup__(function)))

/* DEFINE_CLEANUP(struct x *, x_free) defines x_freep() for _cleanup_(x_freep). */
#define DEFINE_CLEANUP(type, function)               \
	static inline void function##p(type *object) \
	{                                            \
		if (*object)                         \
			function(*object);           \
	}

/* Take the pointer out of a variable, which is NULL afterwards. */
#define steal_ptr(variable)                                     \
	({                                                      \
		__typeof__(variable) *steal_at_ = &(variable);  \
		__typeof__(variable) steal_value_ = *steal_at_; \
		*steal_at_ = NULL;                              \
		steal_value_;                                   \
	})

/* Take a descriptor out of a variable, which is -1 afterwards. */
static inline int steal_fd(int *fd)
{
	int value = *fd;

	*fd = -1;
	return value;
}

/*
 * Close a descriptor, if it is valid.
 * Return: -1, to assign back.
 */
static inline int close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
	return -1;
}

static inline void close_fdp(int *fd)
{
	close_fd(*fd);
}

static inline void fclosep(FILE **file)
{
	if (*file)
		fclose(*file);
}

static inline void freep(void *pointer)
{
	free(*(void **)pointer);
}
