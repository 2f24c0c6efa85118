/* SPDX-License-Identifier: MIT */
/* What keys do, and what signs mean. */
#include <string.h>

#include "picture.h"

static const char *const help[] = {
	"Views",
	"  1 o         overview: devices, processors, reasons, the last minutes, tenants",
	"  2 3 4 5     tenants, sessions, plans, decisions; also s p d, and Tab for the next",
	"  Enter       the selected tenant or plan in full; Esc goes back",
	"  F5 t        tenants with their sessions",
	"Rows",
	"  arrows, PgUp PgDn Home End; the mouse: its wheel, and a click",
	"  F3 /        search: n for the next one; F4 \\ filter: only rows that contain the text",
	"  F6 > .      sort by a column; again: the other way around. A click on its head likewise",
	"  M P T       sort tenants by memory, tasks, latency; I the other way around",
	"  F2          columns: which are shown",
	"  space       stand still; again: go on",
	"Recordings, of --page",
	"  space       pause, and go on; at the end: from the beginning",
	"  left right  one moment back, and on; g G: to the beginning, and the end",
	"  + -         faster, and slower",
	"Changes, for administrators, after a question",
	"  F7 b        another vram-max for the tenant",
	"  F8 k        evict its plans, or the plan, from device memory",
	"  F9          drain the tenant, or end that",
	"  F10 q       quit",
	"The bar of device memory",
	"  filled: tenants; dots: promised to them, not used; outside: other programs;",
	"  headroom: can be had; ///: kept free",
	"Columns",
	"  RESERVE     ✓ there whenever it is wanted; ▲ others have taken it",
	"  GPU-SHARE   of the time of GPUs; \"of\": what the weight entitles to",
	"  P50 P99     from admission to end, in the last second; QUEUE99: in the queue",
	"  RQ-WAIT     p99 of waiting for a processor, in ten seconds; BEHIND: for whom",
	"  EVICT FALLBK NO-MEM   plans evicted, tasks that failed on a GPU, tasks without memory",
	NULL,
};

void help_draw(struct sheet_lines *lines)
{
	for (unsigned int i = 0; help[i]; i++) {
		int y = lines->top + lines->line++ - lines->first;

		if (y >= lines->top && y < lines->end)
			canvas_text(lines->canvas, 1, y,
				    help[i][0] == ' ' ? STYLE_PLAIN : STYLE_BOLD, help[i]);
	}
}
