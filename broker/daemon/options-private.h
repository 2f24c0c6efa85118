#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Rows of the table of options, and what kinds of values they have
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/options.h"
#include "util/checked.h"

enum { OPTIONS_MAX = 64 }; /* options.given has a bit for each */

/* A value is being read: that of an option of the command line, or of a key of a file. */
struct option_source {
	const char *name;
	char *ret_wanted; /* of a key: POLICY_WANTED_BYTES for what is allowed; else NULL */
};

/* A word of a fixed choice and its value. */
struct option_choice {
	const char *word; /* NULL ends them */
	int value;
};

/* Where an option may stand. */
enum option_use {
	OPTION_OWN,   /* on the command line only */
	OPTION_START, /* as a key of the policy file, too, which counts from the next start */
	OPTION_LIVE,  /* likewise, which counts from the next reload */
};

struct option_row;

/* Functions that read and print a value. @at is the row's member of struct options. */
struct option_kind {
	/* Return: -1 to go on; else the status to exit with. */
	int (*parse)(const struct option_row *row, const struct option_source *source,
		     const char *value, void *at);
	/* As a key's value; NULL: no OPTION_LIVE is of this kind. */
	void (*print)(const struct option_row *row, FILE *stream, const void *at);
};

struct option_row {
	const char *name;
	const char *value; /* as --help calls it, in brackets if it may be left out; NULL: its
			      choices, or there is none */
	enum option_use use;
	const struct option_kind *kind;
	const char *brief;  /* what shells say of it */
	const char *help;   /* lines */
	const char *before; /* what --help says before it */
	bool joins_next;    /* it is in one line of --help with the next one, which has the help */
	size_t at, bytes;   /* in struct options */
	size_t says;        /* a bool there that is set with it, if */
	bool has_says;
	double least, most; /* of numbers, factors; percent of shares; milliseconds of times */
	uint64_t unit;      /* of numbers, what 1 is in the member; 0: 1 */
	const struct option_choice *choices;
	const char *otherwise; /* the value where it may be left out */
};

extern const struct option_row option_rows[];
extern const unsigned int n_options;

/* option-kind.c */
extern const struct option_kind option_kind_choice, option_kind_factor, option_kind_flag,
	option_kind_group, option_kind_metrics, option_kind_nice, option_kind_number,
	option_kind_octal, option_kind_path, option_kind_share, option_kind_size, option_kind_spin,
	option_kind_time, option_kind_users, option_kind_watts;

/* Is there a value, or may there be one? */
bool option_has_value(const struct option_row *row);
/* Writes what --help calls the value. */
void option_name_value(const struct option_row *row, char *ret, size_t bytes);
