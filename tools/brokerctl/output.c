/* SPDX-License-Identifier: MIT */
/*
 * Writing to standard output
 *
 * A write that fails because the reader has gone is no error: output_flush() reports it, a command
 * that follows something stops, and the exit status is unaffected.
 *
 * Scripts parse tables in pipes, which therefore always have all columns. On a terminal a table has
 * the columns for which there is room.
 */
#include "output.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "command.h"
#include "util/plural.h"

/* --- Looks --- */

static struct {
	bool has_colours;
	unsigned int columns; /* of the terminal; 0: no limit */
} style;

/* Return the width of the terminal; 0 if standard output is none, or its width is unknown. */
static unsigned int terminal_columns(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;

	if (!isatty(STDOUT_FILENO))
		return 0;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		return size.ws_col;
	return columns ? (unsigned int)strtoul(columns, NULL, 10) : 0;
}

/* Return true if a terminal shows colours and its user wants them (https://no-color.org). */
static bool wants_colours(void)
{
	const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no && no[0]) && terminal && strcmp(terminal, "dumb") != 0;
}

void output_set_style(const char *colour, bool is_fitted)
{
	if (!colour || strcmp(colour, "auto") == 0)
		style.has_colours = wants_colours();
	else
		style.has_colours = strcmp(colour, "never") != 0;
	style.columns = is_fitted ? terminal_columns() : 0;
}

const char *mark_begin(enum mark mark)
{
	static const char *const begins[] = {
		[MARK_NONE] = "",         [MARK_GOOD] = "\033[32m",
		[MARK_NOTE] = "\033[33m", [MARK_FAULT] = "\033[1;31m",
		[MARK_HEAD] = "\033[1m",
	};

	return style.has_colours ? begins[mark] : "";
}

const char *mark_end(enum mark mark)
{
	return style.has_colours && mark != MARK_NONE ? "\033[0m" : "";
}

enum mark mark_of_breaker(uint32_t breaker)
{
	return breaker == RBK_STATS_BREAKER_CLOSED ? MARK_NONE
	       : breaker == RBK_STATS_BREAKER_OPEN ? MARK_FAULT
						   : MARK_NOTE;
}

/* --- Tables --- */

enum { CUT_CHARS = 8 /* to which a text may be cut to fit */ };

struct cell {
	char text[TABLE_CELL_BYTES];
	enum mark mark;
};

struct table {
	const char *title; /* NULL: rows only */
	const char *heads[TABLE_COLUMNS];
	unsigned int n_columns, n_cells, n_room;
	unsigned int widths[TABLE_COLUMNS];
	uint8_t ranks[TABLE_COLUMNS];
	bool is_left[TABLE_COLUMNS], is_dropped[TABLE_COLUMNS];
	int n_blanks; /* to print before the next text of the row */
	struct cell *cells;
};

static struct table table;

static void add_column(const char *head, unsigned int rank)
{
	const unsigned int column = table.n_columns;

	assert(column < TABLE_COLUMNS);
	table.is_left[column] = head[0] == '<';
	head += table.is_left[column];
	if (head[0] >= '1' && head[0] <= '9')
		rank = (unsigned int)(*head++ - '0');
	table.heads[column] = head;
	table.ranks[column] = (uint8_t)rank;
	table.widths[column] = table.title ? (unsigned int)strlen(head) : 0;
	table.n_columns++;
}

void table_begin_figures(const char *title, const char *const *heads, const struct figure *figures)
{
	table = (struct table){.title = title};
	for (; *heads; heads++) {
		for (; !heads[1] && figures && !figure_is_end(figures); figures++)
			if (figures->head)
				add_column(figures->head, figures->rank);
		add_column(*heads, 0);
	}
}

void table_begin(const char *title, const char *const *heads)
{
	table_begin_figures(title, heads, NULL);
}

void table_cell(const char *format, ...)
{
	unsigned int column = table.n_cells % table.n_columns;
	struct cell *cell;
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
	cell = &table.cells[table.n_cells++];
	cell->mark = MARK_NONE;
	va_start(args, format);
	n = vsnprintf(cell->text, TABLE_CELL_BYTES, format, args);
	va_end(args);
	if (n >= TABLE_CELL_BYTES)
		n = TABLE_CELL_BYTES - 1;
	/* Each word of a list is followed by a blank. */
	while (n > 0 && cell->text[n - 1] == ' ')
		cell->text[--n] = '\0';
	if (n > 0 && (unsigned int)n > table.widths[column])
		table.widths[column] = (unsigned int)n;
}

void table_mark(enum mark mark)
{
	table.cells[table.n_cells - 1].mark = mark;
}

void table_faults(uint64_t n)
{
	table_cell("%llu", (unsigned long long)n);
	table_mark(n > 0 ? MARK_FAULT : MARK_NONE);
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
		else if (figure->unit == FIGURE_PERCENT)
			table_cell("%llu%%", (unsigned long long)number);
		else
			table_cell("%llu", (unsigned long long)number);
		if (figure->is_fault && value > 0)
			table_mark(MARK_FAULT);
	}
}

/* Return the column to drop next: of the highest rank the last; n_columns if all must stay. */
static unsigned int find_droppable(void)
{
	unsigned int found = table.n_columns;

	for (unsigned int i = 0; i < table.n_columns; i++)
		if (table.ranks[i] > 0 && !table.is_dropped[i] &&
		    (found == table.n_columns || table.ranks[i] >= table.ranks[found]))
			found = i;
	return found;
}

/* Return the widest column of texts that may be cut; n_columns if there is none. */
static unsigned int find_cuttable(void)
{
	unsigned int found = table.n_columns;

	for (unsigned int i = 0; i < table.n_columns; i++)
		if (table.is_left[i] && !table.is_dropped[i] && table.widths[i] > CUT_CHARS &&
		    (found == table.n_columns || table.widths[i] > table.widths[found]))
			found = i;
	return found;
}

/* Return the width of a row. */
static unsigned int row_columns(void)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < table.n_columns; i++)
		n += table.is_dropped[i] ? 0 : 2 + table.widths[i];
	return n;
}

/*
 * Drop columns until a row fits, the least important first, then cut long texts.
 * Return: the number of columns that were dropped.
 */
static unsigned int fit(void)
{
	unsigned int n_dropped = 0, column, excess;

	while (style.columns && row_columns() > style.columns &&
	       (column = find_droppable()) < table.n_columns) {
		table.is_dropped[column] = true;
		n_dropped++;
	}
	while (style.columns && row_columns() > style.columns &&
	       (column = find_cuttable()) < table.n_columns) {
		excess = row_columns() - style.columns;
		table.widths[column] = table.widths[column] > CUT_CHARS + excess
					       ? table.widths[column] - excess
					       : CUT_CHARS;
	}
	return n_dropped;
}

static void print_cell(unsigned int column, const char *text, enum mark mark)
{
	const int width = (int)table.widths[column];
	char cut[TABLE_CELL_BYTES];
	int n_padding;

	/* A cut text ends with two full stops. */
	if (strlen(text) > (size_t)width) {
		snprintf(cut, sizeof(cut), "%.*s..", width - 2, text);
		text = cut;
	}
	n_padding = width - (int)strlen(text);
	table.n_blanks += 2 + (table.is_left[column] ? 0 : n_padding);
	if (text[0]) {
		printf("%*s%s%s%s", table.n_blanks, "", mark_begin(mark), text, mark_end(mark));
		table.n_blanks = 0;
	}
	table.n_blanks += table.is_left[column] ? n_padding : 0;
}

/* Rows end with their last text, not with the blanks of empty cells. */
static void end_row(void)
{
	putchar('\n');
	table.n_blanks = 0;
}

static void print_head(unsigned int n_dropped)
{
	if (n_dropped)
		printf("%s (--wide shows %u more column%s)\n", table.title, n_dropped,
		       plural(n_dropped));
	else
		printf("%s\n", table.title);
	for (unsigned int i = 0; i < table.n_columns; i++)
		if (!table.is_dropped[i])
			print_cell(i, table.heads[i], MARK_HEAD);
	end_row();
}

void table_end(void)
{
	const unsigned int n_dropped = fit();

	if (table.title && table.n_cells > 0)
		print_head(n_dropped);
	else if (table.title)
		printf("%s: none\n", table.title);
	for (unsigned int i = 0; i < table.n_cells; i++) {
		const unsigned int column = i % table.n_columns;

		if (!table.is_dropped[column])
			print_cell(column, table.cells[i].text, table.cells[i].mark);
		if (column + 1 == table.n_columns)
			end_row();
	}
	if (table.title)
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
