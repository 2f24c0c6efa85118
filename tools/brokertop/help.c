/* SPDX-License-Identifier: MIT */
/* Help: keys and signs. */
#include <string.h>

#include "picture.h"

enum { TEXT_X = 16, LEAST_TEXT = 20 };

/* Entries without a text are headings. */
static const struct {
	const char *key, *text;
} help[] = {
	{"Views", NULL},
	{"1 o", "overview: devices, processors, reasons, the last minutes, tenants"},
	{"2 3 4 5 6", "tenants, sessions, plans, decisions, leases; also s p d l, Shift-Tab, and "
		      "Tab for the next"},
	{"Enter", "show all figures of the selected tenant, plan or lease; Esc or q goes back"},
	{"F5 t e", "tenants with their sessions"},
	{"Rows", NULL},
	{"arrows", "move, as do PgUp PgDn Home End; or turn the wheel of the mouse, or click"},
	{"double click",
	 "show all figures of the clicked row, as Enter does; a click on a view's name: that view"},
	{"F3 /", "search; F3 or n: the next match; Shift-F3 or N: the one before"},
	{"F4 \\ f", "filter: only rows that contain the text; Delete or F4 Esc: all rows again"},
	{"F6 < >", "sort by a column; again: reverse the order; or click on its heading"},
	{"M P T", "sort by memory, tasks, times; I or r: reverse the order"},
	{"F2 S", "choose the columns to show; the choice is saved"},
	{"space Z", "freeze the picture; again: continue"},
	{"+ -", "update less often, more often"},
	{"Recordings, of --page", NULL},
	{"space Z", "pause or continue; at the end: play from the beginning"},
	{"left right", "one moment back or forward; g G: to the beginning or the end"},
	{"+ -", "play faster or slower"},
	{"Changes, for administrators, each with a question first", NULL},
	{"F7 b", "change the tenant's vram-max"},
	{"F8 k", "evict the tenant's plans, or the plan, from device memory"},
	{"F9", "drain the tenant, or end draining"},
	{"F10 q", "quit"},
	{"The bar of device memory", NULL},
	{"filled", "memory of tenants' plans, the largest tenant first"},
	{"===", "that tenant's leases, for programs that use the device themselves"},
	{"dots", "reserved for tenants (vram-reserve), and not used"},
	{"outside", "memory of programs outside the broker"},
	{"free", "available memory; ///: the headroom, which is kept free"},
	{"The graphs", NULL},
	{"VRAM tasks/s", "by tenant, one upon the other; load: one line per device"},
	{"Columns", NULL},
	{"name ▲", "the tenant is drained: it gets no new work"},
	{"RESERVE", "✓ available at any time; ▲ partly used by others"},
	{"GPU-SHARE", "share of the GPUs' time; \"of\": the share that the weight entitles to"},
	{"P50 P99", "latency from admission to end, in the last second; QUEUE99: in the queue"},
	{"RQ-WAIT",
	 "p99 of waits for a processor, in ten seconds; BEHIND: the program that ran instead"},
	{"TENANT-RQ", "RQ-WAIT of all processes of a session's tenant; TENANT-BEHIND likewise"},
	{"CPU NOW", "time predicted for a task now; ALONE: without contention; GPU likewise"},
	{"ERROR", "of the latest predictions on the last device; above 50%: not trusted"},
	{"EVICT", "evictions of plans from device memory; RETURNS: loads of evicted plans"},
	{"FALLBK", "tasks that failed on a GPU, and ran on the CPU"},
	{"GRANTED", "size of a lease, charged to its tenant; DRAWN: credit drawn by its programs"},
	{"USED PEAK",
	 "memory that a lease's programs report; SEEN: that the kernel reports; MOVED: that has "
	 "gone to host memory"},
	{"BUSY", "percentage of the last second for which a device worked for a lease's programs"},
	{"HAD/s", "percentage of the last second for which a lease had the device that it shares"},
	{"WAITED/s", "percentage of the last second for which it waited for that device"},
	{"PARTS/s",
	 "parts of its command buffers behind the first ones; SUBMITS/s: all that the driver gets"},
	{"LONGEST", "longest part lately; OVERDUE: timeslices that it did not end in time"},
	{"IS",
	 "over: more seen than granted; waiting: for a larger size; shrinking: memory is still to "
	 "be freed; capped: the kernel limits it, too; restored: from an earlier broker; sharing: "
	 "it shares the device's time, with urgent, high or background if not normal; queued: it "
	 "waits for the device; sleeps: idle programs' memory belongs in the host; held: they "
	 "submit nothing"},
	{"NO-MEM", "tasks that ran on another device for lack of device memory"},
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
