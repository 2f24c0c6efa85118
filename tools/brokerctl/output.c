/* SPDX-License-Identifier: MIT */
/*
 * Writing to standard output
 *
 * A write that fails because the reader has gone is no error: output_flush() reports it, a command
 * that follows something stops, and the exit status is unaffected.
 */
#include "output.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

/* --- Tables --- */

struct table {
	const char *heads[TABLE_COLUMNS];
	unsigned int n_columns, n_cells, n_room;
	unsigned int widths[TABLE_COLUMNS];
	char (*cells)[TABLE_CELL_BYTES];
	bool is_bare; /* rows only */
};

static struct table table;

static bool is_left(unsigned int column)
{
	return table.heads[column][0] == '<';
}

static const char *head_of(unsigned int column)
{
	return table.heads[column] + is_left(column);
}

static void add_column(const char *head, bool has_title)
{
	assert(table.n_columns < TABLE_COLUMNS);
	table.heads[table.n_columns] = head;
	table.widths[table.n_columns] =
		has_title ? (unsigned int)strlen(head_of(table.n_columns)) : 0;
	table.n_columns++;
}

void table_begin_figures(const char *title, const char *const *heads, const struct figure *figures)
{
	table = (struct table){.is_bare = !title};
	for (; *heads; heads++) {
		for (; !heads[1] && figures && !figure_is_end(figures); figures++)
			if (figures->head)
				add_column(figures->head, title);
		add_column(*heads, title);
	}
	if (title)
		printf("%s\n", title);
}

void table_begin(const char *title, const char *const *heads)
{
	table_begin_figures(title, heads, NULL);
}

void table_cell(const char *format, ...)
{
	unsigned int column = table.n_cells % table.n_columns;
	va_list args;
	int n;

	if (table.n_cells == table.n_room) {
		unsigned int n_room = table.n_room ? 2 * table.n_room : 256;
		void *cells = realloc(table.cells, n_room * sizeof(*table.cells));

		if (!cells)
			exit(control_fail(EXIT_FAILED, "out of memory"));
		table.cells = cells;
		table.n_room = n_room;
	}
	va_start(args, format);
	n = vsnprintf(table.cells[table.n_cells], TABLE_CELL_BYTES, format, args);
	va_end(args);
	if (n >= TABLE_CELL_BYTES)
		n = TABLE_CELL_BYTES - 1;
	if (n > 0 && (unsigned int)n > table.widths[column])
		table.widths[column] = (unsigned int)n;
	table.n_cells++;
}

void table_figures(const struct figure *figures, const void *record)
{
	for (const struct figure *figure = figures; !figure_is_end(figure); figure++) {
		const uint64_t number = figure_number(figure, record);
		const double value = figure_real(figure, record);

		if (!figure->head)
			continue;
		if (isnan(value))
			table_cell("-");
		else if (figure->unit == FIGURE_NS)
			table_cell("%s", text_ns(value));
		else if (figure->type == FIGURE_REAL || figure->unit == FIGURE_MILLI ||
			 figure->unit == FIGURE_MICRO)
			table_cell("%.4g", value);
		else if (figure->unit == FIGURE_BYTES)
			table_cell("%s", text_bytes(number));
		else
			table_cell("%llu", (unsigned long long)number);
	}
}

static void print_cell(unsigned int column, const char *text)
{
	int width = (int)table.widths[column];
	bool is_last = column + 1 == table.n_columns;

	printf("  %*s", is_left(column) ? (is_last ? 0 : -width) : width, text);
	if (is_last)
		putchar('\n');
}

void table_end(void)
{
	for (unsigned int i = 0; i < table.n_columns && !table.is_bare; i++)
		print_cell(i, head_of(i));
	for (unsigned int i = 0; i < table.n_cells; i++)
		print_cell(i % table.n_columns, table.cells[i]);
	if (!table.is_bare)
		putchar('\n');
	free(table.cells);
	table.cells = NULL;
}

/* --- Rows in order --- */

static bool is_reversed;

static int compare_rows(const void *first, const void *second)
{
	const struct row_key *a = first, *b = second;
	int order = strcmp(a->text, b->text);

	if (a->number != b->number)
		order = a->number > b->number ? -1 : 1;
	return is_reversed ? -order : order;
}

double row_number(const struct figure *figures, const char *json, const void *record)
{
	const double value = figure_real(figure_find(figures, json), record);

	return isnan(value) ? -1 : value;
}

void rows_sort(void *rows, size_t n, size_t row_bytes, const char *sort)
{
	is_reversed = sort[0] == '-';
	qsort(rows, n, row_bytes, compare_rows);
}

/* --- The end --- */

static int write_error;

bool output_flush(void)
{
	errno = 0;
	if ((fflush(stdout) || ferror(stdout)) && !write_error)
		write_error = errno ? errno : EIO;
	return !write_error;
}

int control_fail(int status, const char *format, ...)
{
	va_list args;

	output_flush();
	fputs("brokerctl: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return status;
}

int output_finish(int status)
{
	if (output_flush() || write_error == EPIPE)
		return status;
	fprintf(stderr, "brokerctl: cannot write: %s\n", strerror(write_error));
	return EXIT_FAILED;
}
