#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Files that name cases
 *
 * Each line has an operator, or operator and case ("Conv/basic"), optionally a device, then a colon
 * and a reason:
 *
 *	Conv gpu: no shader yet
 *	Add/add_of_strings: there are no strings
 *
 * Empty lines, and lines that begin with '#', are ignored.
 */
#include <stdbool.h>
#include <stddef.h>

struct named {
	char name[128];
	char device[8]; /* "": both devices */
	char why[160];
	unsigned int line;
	size_t n_used, n_good; /* cases that matched, and of these, passed; counted by the caller */
};

struct names {
	struct named *named;
	size_t n;
};

/*
 * Read the file at @path.
 * Return: false after an error, which was printed to standard error.
 */
bool names_read(const char *path, struct names *ret);
void names_deinit(struct names *names);
/*
 * Find the entry for case @name of operator @op on @device. An entry of the case precedes one of
 * the operator.
 * Return: NULL if no entry matches.
 */
struct named *names_find(struct names *names, const char *op, const char *name, const char *device);
