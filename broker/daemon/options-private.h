#pragma once
/* SPDX-License-Identifier: MIT */
/* Rows of the table of options, and the kinds of their values */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/options.h"
#include "util/checked.h"

enum { OPTIONS_MAX = 64 }; /* options.given has a bit for each */

/* The source of a value: an option of the command line, or a key of a file. */
struct option_source {
	const char *name;
	char *ret_wanted; /* for a key: POLICY_WANTED_BYTES for the allowed values; else NULL */
};

/* A word of a fixed choice and its value. */
struct option_choice {
	const char *word; /* NULL ends the choices */
	int value;
};

/* The places where an option may be given. */
enum option_use {
	OPTION_OWN,   /* on the command line only */
	OPTION_START, /* also as a key of the policy file, effective at the next start */
	OPTION_LIVE,  /* also as a key of the policy file, effective at the next reload */
};

struct option_row;

/* Functions that read and print a value. @at is the row's member of struct options. */
struct option_kind {
	/* Return: -1 to continue; else the status to exit with. */
	int (*parse)(const struct option_row *row, const struct option_source *source,
		     const char *value, void *at);
	/* Print a key's value; NULL: no OPTION_LIVE is of this kind. */
	void (*print)(const struct option_row *row, FILE *stream, const void *at);
};

struct option_row {
	const char *name;
	/* name of the value in --help, in brackets if optional; NULL: its choices, or no value */
	const char *value;
	enum option_use use;
	const struct option_kind *kind;
	const char *brief;  /* description for the completion of shells */
	const char *help;   /* lines of --help */
	const char *before; /* text before the option in --help */
	bool joins_next;    /* shares a line of --help with the next row, which has the help */
	size_t at, bytes;   /* offset and size of the member of struct options */
	size_t says;        /* offset of a bool that is set with it, if has_says */
	bool has_says;
	double least, most; /* numbers and factors; shares: percent; times: milliseconds */
	uint64_t unit;      /* numbers: the member's value for 1; 0: 1 */
	const struct option_choice *choices;
	const char *otherwise; /* value if an optional value is left out */
};

extern const struct option_row option_rows[];
extern const unsigned int n_options;

/* option-kind.c */
extern const struct option_kind option_kind_choice, option_kind_factor, option_kind_flag,
	option_kind_group, option_kind_metrics, option_kind_nice, option_kind_number,
	option_kind_octal, option_kind_path, option_kind_share, option_kind_size, option_kind_spin,
	option_kind_time, option_kind_users, option_kind_watts;

/* Return true if the option has a value, even an optional one. */
bool option_has_value(const struct option_row *row);
/* Write the name of the value as in --help. */
void option_name_value(const struct option_row *row, char *ret, size_t bytes);
