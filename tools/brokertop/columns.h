#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Writing columns
 *
 * What the files that define them share: what goes into a cell, and what a row is sorted by, are a
 * draw_NAME() and a key_NAME() each.
 */
#include "table.h"

#define ROW  const struct model *model, const struct row *row
#define CELL ROW, struct cell_text *ret

/* The arguments are of struct column; sorted by key_NAME(), a number or a text. */
#define COLUMN(head, width, priority, flags, name)                          \
	{                                                                   \
		head, width, priority, flags, draw_##name, key_##name, NULL \
	}
/* Write key_NAME() by figure_FORMAT(). */
#define NUMBER_COLUMN(head, width, priority, flags, name, format)                           \
	{                                                                                   \
		head, width, priority, flags, NULL, key_##name, NULL, NULL, figure_##format \
	}
#define TEXT_COLUMN(head, width, priority, flags, name)                                        \
	{                                                                                      \
		head, width, priority, (flags) | COLUMN_LEFT | COLUMN_TEXT, draw_##name, NULL, \
			key_##name                                                             \
	}
/* Of the number of a record that is called @figure in JSON. */
#define FIGURE_COLUMN(head, width, priority, flags, figure)            \
	{                                                              \
		head, width, priority, flags, NULL, NULL, NULL, figure \
	}
#define DOWN COLUMN_DESCENDING

/* words.c: copy @text into a cell, cutting what is longer. */
void cell_set(struct cell_text *ret, const char *text);
