/* SPDX-License-Identifier: MIT */
/* Help: keys and signs. */
#include <string.h>

#include "picture.h"

enum { TEXT_X = 14, LEAST_TEXT = 20 };

/* Entries without a text are headings. */
static const struct {
	const char *key, *text;
} help[] = {
	{"Views", NULL},
	{"1 o", "overview: devices, processors, reasons, the last minutes, tenants"},
	{"2 3 4 5 6",
	 "tenants, sessions, plans, decisions, leases; also s p d l, and Tab for the next"},
	{"Enter", "the selected tenant, plan or lease in full; Esc goes back"},
	{"F5 t", "tenants with their sessions"},
	{"Rows", NULL},
	{"arrows", "PgUp PgDn Home End; the mouse: its wheel, and a click"},
	{"F3 /", "search; n for the next one"},
	{"F4 \\", "filter: only rows that contain the text; F4 Esc: all again"},
	{"F6 > .", "sort by a column; again: the other way around; or click on its head"},
	{"M P T", "sort tenants by memory, tasks, latency; I: the other way around"},
	{"F2", "columns: which are shown"},
	{"space", "stand still; again: go on"},
	{"Recordings, of --page", NULL},
	{"space", "pause, and go on; at the end: from the beginning"},
	{"left right", "one moment back, and on; g G: to the beginning, and the end"},
	{"+ -", "faster, and slower"},
	{"Changes, for administrators, after a question", NULL},
	{"F7 b", "another vram-max for the tenant"},
	{"F8 k", "evict its plans, or the plan, from device memory"},
	{"F9", "drain the tenant, or end that"},
	{"F10 q", "quit"},
	{"The bar of device memory", NULL},
	{"filled", "tenants, the largest first: what their plans have"},
	{"===", "leased by that tenant, to programs that use the device themselves"},
	{"dots", "promised to tenants (vram-reserve), and not used"},
	{"outside", "programs beside the broker"},
	{"headroom", "can be had; ///: kept free"},
	{"Columns", NULL},
	{"RESERVE", "✓ there whenever it is wanted; ▲ others have taken it"},
	{"GPU-SHARE", "of the time of GPUs; \"of\": what the weight entitles to"},
	{"P50 P99", "from admission to end, in the last second; QUEUE99: in the queue"},
	{"RQ-WAIT", "p99 of waiting for a processor, in ten seconds; BEHIND: for whom"},
	{"TENANT-RQ", "that of all processes of a session's tenant; TENANT-BEHIND likewise"},
	{"EVICT", "plans that had to leave device memory; RETURNS: that came back"},
	{"FALLBK", "tasks that failed on a GPU, and ran on the CPU"},
	{"GRANTED", "to a lease, out of its tenant's memory; DRAWN: handed out to its programs"},
	{"USED PEAK", "of a lease, as its programs say; SEEN: as the kernel says"},
	{"IS",
	 "over: more was seen than granted; waiting: for more; shrinking: has still to give back; "
	 "capped: the kernel holds it, too; restored: from a broker that ended"},
	{"NO-MEM", "tasks that ran elsewhere for want of device memory"},
};

/*
 * Return the number of bytes of @text that fit into @width columns, breaking at words if possible.
 */
static size_t words_that_fit(const char *text, int width)
{
	size_t n = 0, end = 0;
	int columns = 0;

	for (; text[n]; n++) {
		if (text[n] == ' ')
			end = n;
		/* Count the first byte of each character only. */
		if (((unsigned char)text[n] & 0xc0) != 0x80 && columns++ == width)
			return end ? end : n;
	}
	return n;
}

void help_draw(struct sheet_lines *lines)
{
	int width = lines->canvas->width - TEXT_X - 1;

	width = width < LEAST_TEXT ? LEAST_TEXT : width;
	for (unsigned int i = 0; i < sizeof(help) / sizeof(help[0]); i++) {
		const char *text = help[i].text;
		int y = sheet_next_line(lines);

		canvas_text(lines->canvas, text ? 3 : 1, y, text ? STYLE_PLAIN : STYLE_BOLD,
			    help[i].key);
		while (text && *text) {
			size_t n = words_that_fit(text, width);

			canvas_format(lines->canvas, TEXT_X, y, STYLE_PLAIN, "%.*s", (int)n, text);
			text += n + (text[n] == ' ');
			if (*text)
				y = sheet_next_line(lines);
		}
	}
}
