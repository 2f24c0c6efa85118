#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Standard output: JSON lines, and tables for people
 *
 * Names come from clients: tables need text_name(), which escapes as json_string() does by itself.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "monitor/json.h"
#include "monitor/text.h"
#include "shm/stats-figures.h"

/*
 * Set how listings look on a terminal. @colour, the value of --color, is "auto", NULL for the same,
 * "never", or "always" and "" for colours elsewhere, too; with "auto", $NO_COLOR prevents colours.
 * If @is_fitted, tables have only columns for which the terminal has room. Without this call, and
 * if standard output is no terminal, tables are whole. Call again if the terminal may have changed.
 */
void output_set_style(const char *colour, bool is_fitted);

/* Meaning of a word, which decides its colour. */
enum mark {
	MARK_NONE = 0,
	MARK_GOOD,
	MARK_NOTE,  /* restricted, or not as by default */
	MARK_FAULT, /* failed, refused or beyond a limit */
	MARK_HEAD,
};
/* Return the text that begins or ends a coloured word; "" without colours. */
const char *mark_begin(enum mark mark);
const char *mark_end(enum mark mark);
/* Return the mark of a device's breaker: enum rbk_stats_breaker. */
enum mark mark_of_breaker(uint32_t breaker);

/*
 * A table: print the heads once and the cells row by row, then call table_end(). A head that begins
 * with "<" makes its column left-aligned. A digit before the name is the rank at which the column
 * is dropped from a narrow terminal, 9 first; a column without a digit stays. With a NULL title,
 * print neither title, heads nor the empty line at the end. Without cells, print the title and
 * "none".
 */
enum { TABLE_COLUMNS = 64, TABLE_CELL_BYTES = 128 };
void table_begin(const char *title, const char *const *heads);
/*
 * Begin a table that also has a column, before the last one, for each of @figures that has a head.
 */
void table_begin_figures(const char *title, const char *const *heads, const struct figure *figures);
/* Print the cells of @figures. */
void table_figures(const struct figure *figures, const void *record);
void table_cell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Colour the last cell. */
void table_mark(enum mark mark);
/* Print a number of faults, coloured unless it is 0. */
void table_faults(uint64_t n);
void table_end(void);

/* Sort key at the start of a row: larger numbers first, then texts in ascending order. */
struct row_key {
	double number;
	char text[64];
};
/* Return the number of @record whose JSON name is @json, as a sort key; -1: not known. */
double row_number(const struct figure *figures, const char *json, const void *record);
/* Sort rows by their keys; a leading '-' in @sort (the value of --sort) reverses the order. */
void rows_sort(void *rows, size_t n, size_t row_bytes, const char *sort);

/* Return: false if standard output accepts no more data. */
bool output_flush(void);
/*
 * Flush standard output before exit.
 * Return: @status, or 1 if data could not be written although a reader remains.
 */
int output_finish(int status);
