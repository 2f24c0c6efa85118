#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Definition of columns
 *
 * Macros for the files that define columns: draw_NAME() fills a cell, and key_NAME() returns the
 * sort key of a row.
 */
#include "table.h"

#define ROW  const struct model *model, const struct row *row
#define CELL ROW, struct cell_text *ret

/*
 * Initialise a struct column. Rows are sorted by key_NAME(), a number, or a text in TEXT_COLUMN().
 */
#define COLUMN(head, width, priority, flags, name)                          \
	{                                                                   \
		head, width, priority, flags, draw_##name, key_##name, NULL \
	}
/* Write key_NAME() with figure_FORMAT(). */
#define NUMBER_COLUMN(head, width, priority, flags, name, format)                           \
	{                                                                                   \
		head, width, priority, flags, NULL, key_##name, NULL, NULL, figure_##format \
	}
#define TEXT_COLUMN(head, width, priority, flags, name)                                        \
	{                                                                                      \
		head, width, priority, (flags) | COLUMN_LEFT | COLUMN_TEXT, draw_##name, NULL, \
			key_##name                                                             \
	}
/* Show the number of a record whose JSON name is @figure. */
#define FIGURE_COLUMN(head, width, priority, flags, figure)            \
	{                                                              \
		head, width, priority, flags, NULL, NULL, NULL, figure \
	}
#define DOWN COLUMN_DESCENDING

/* Copy @text into a cell, truncating longer text (words.c). */
void cell_set(struct cell_text *ret, const char *text);
