#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Files that name cases
 *
 * One to a line: an operator, or operator and case ("Conv/basic"), perhaps a device, then a colon
 * and why:
 *
 *	Conv gpu: no shader yet
 *	Add/add_of_strings: there are no strings
 *
 * Empty lines, and those that begin with '#', say nothing.
 */
#include <stdbool.h>
#include <stddef.h>

struct named {
	char name[128];
	char device[8]; /* "": both */
	char why[160];
	unsigned int line;
	size_t n_used, n_good; /* the caller's: how often it applied, and how it went */
};

struct names {
	struct named *named;
	size_t n;
};

/* Return: false, having said to standard error what is wrong. */
bool names_read(const char *path, struct names *ret);
void names_deinit(struct names *names);
/*
 * The entry for case @name of operator @op on @device: one of the case before one of the operator.
 * NULL: there is none.
 */
struct named *names_find(struct names *names, const char *op, const char *name, const char *device);
