#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What goes to standard output: JSON lines, and tables for people
 *
 * Names come from clients: text_name() is for tables what json_string() does by itself.
 */
#include <stdbool.h>
#include <stddef.h>

#include "monitor/json.h"
#include "monitor/text.h"
#include "shm/stats-figures.h"

/*
 * A table: the heads once, cells row by row, then table_end(). A "<" in front of a head: on the
 * left. Without a title neither that nor the heads are printed, nor an empty line at the end.
 */
enum { TABLE_COLUMNS = 64, TABLE_CELL_BYTES = 128 };
void table_begin(const char *title, const char *const *heads);
/* Likewise, with a column for each of @figures that has a head in front of the last one. */
void table_begin_figures(const char *title, const char *const *heads, const struct figure *figures);
/* The cells of these. */
void table_figures(const struct figure *figures, const void *record);
void table_cell(const char *format, ...) __attribute__((format(printf, 1, 2)));
void table_end(void);

/* What rows that are to be sorted begin with: the largest number comes first, or the first text. */
struct row_key {
	double number;
	char text[64];
};
/* Return: the number of @record that is called @json in JSON, to sort by; -1: not known. */
double row_number(const struct figure *figures, const char *json, const void *record);
/* By what --sort says: the other way if that begins with a '-'. */
void rows_sort(void *rows, size_t n, size_t row_bytes, const char *sort);

/* Return: false if standard output does not take anything any more. */
bool output_flush(void);
/* The end. Return: @status, or 1 if something could not be written and somebody still reads. */
int output_finish(int status);
