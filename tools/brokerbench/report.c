/* SPDX-License-Identifier: MIT */
/*
 * The report
 *
 * A few fields need no JSON library, but correct JSON. Strings are escaped, since names of Vulkan
 * devices and of core types come from outside. Numbers that JSON cannot represent become null.
 */
#include "report.h"

#include <math.h>

double report_ratio(const struct report_row *row)
{
	return row->baseline_p50 != 0.0 ? row->p50 / row->baseline_p50 : NAN;
}

static void json_string(FILE *file, const char *text)
{
	const unsigned char *c;

	fputc('"', file);
	for (c = (const unsigned char *)text; *c; c++) {
		if (*c == '"' || *c == '\\')
			fprintf(file, "\\%c", *c);
		else if (*c < 0x20 || *c == 0x7f)
			fprintf(file, "\\u%04x", *c);
		else
			fputc(*c, file);
	}
	fputc('"', file);
}

static void json_number(FILE *file, double value)
{
	if (isfinite(value))
		fprintf(file, "%.6g", value);
	else
		fputs("null", file);
}

void report_json(FILE *file, const struct report_row *row)
{
	fputs("{\"bench\":", file);
	json_string(file, row->bench);
	fputs(",\"params\":", file);
	json_string(file, row->params);
	fputs(",\"unit\":", file);
	json_string(file, row->unit);
	fputs(",\"p50\":", file);
	json_number(file, row->p50);
	fputs(",\"p99\":", file);
	json_number(file, row->p99);
	fputs(",\"baseline\":", file);
	json_string(file, row->baseline);
	fputs(",\"baseline_p50\":", file);
	json_number(file, row->baseline_p50);
	fputs(",\"baseline_p99\":", file);
	json_number(file, row->baseline_p99);
	fputs(",\"ratio\":", file);
	json_number(file, report_ratio(row));
	fputs(",\"target\":", file);
	json_number(file, row->target != 0.0 ? row->target : NAN);
	fputs(",\"p999\":", file);
	json_number(file, row->p999);
	fputs(",\"baseline_p999\":", file);
	json_number(file, row->baseline_p999);
	fputs("}\n", file);
	fflush(file);
}

/* Print four significant digits without an exponent. */
static void table_number(FILE *file, int width, double value)
{
	int decimals;

	if (!isfinite(value)) {
		fprintf(file, "%*s", width, "-");
		return;
	}
	decimals = fabs(value) >= 1000.0  ? 0
		   : fabs(value) >= 100.0 ? 1
		   : fabs(value) >= 10.0  ? 2
					  : 3;
	fprintf(file, "%*.*f", width, decimals, value);
}

void report_table(FILE *file, const struct report_row *row, bool is_first)
{
	if (is_first)
		fprintf(file, "%-15s %-50s %-7s %9s %9s  %-21s %9s %9s %9s %7s\n", "bench",
			"params", "unit", "p50", "p99", "baseline", "p50", "p99", "ratio",
			"target");
	fprintf(file, "%-15s %-50s %-7s ", row->bench, row->params, row->unit);
	table_number(file, 9, row->p50);
	fputc(' ', file);
	table_number(file, 9, row->p99);
	fprintf(file, "  %-21s ", row->baseline);
	table_number(file, 9, row->baseline_p50);
	fputc(' ', file);
	table_number(file, 9, row->baseline_p99);
	fputc(' ', file);
	table_number(file, 9, report_ratio(row));
	fputc(' ', file);
	table_number(file, 7, row->target != 0.0 ? row->target : NAN);
	fputc('\n', file);
	fflush(file);
}
