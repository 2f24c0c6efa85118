/* SPDX-License-Identifier: MIT */
/* Words and styles that tables, details and the overview share. */
#include <stdio.h>

#include "columns.h"

enum style tenant_style(uint32_t number)
{
	return STYLE_TENANT + (number - 1) % STYLE_TENANTS;
}

void cell_set(struct cell_text *ret, const char *text)
{
	snprintf(ret->text, sizeof(ret->text), "%s", text);
}

const char *device_label(uint32_t device)
{
	static const char *const labels[RBK_MAX_DEVICES] = {
		"CPU",  "GPU1", "GPU2",  "GPU3",  "GPU4",  "GPU5",  "GPU6",  "GPU7",
		"GPU8", "GPU9", "GPU10", "GPU11", "GPU12", "GPU13", "GPU14", "GPU15",
	};

	return device < RBK_MAX_DEVICES ? labels[device] : "–";
}

const char *memory_state_name(uint32_t state)
{
	static const char *const names[] = {
		[RBK_MEMORY_UNSUPPORTED] = "–",   [RBK_MEMORY_RESIDENT] = "resident",
		[RBK_MEMORY_EVICTED] = "evicted", [RBK_MEMORY_NEVER_FITS] = "never fits",
		[RBK_MEMORY_LOST] = "lost",
	};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}
