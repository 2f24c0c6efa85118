/* SPDX-License-Identifier: MIT */
/*
 * brokerctl exec: what well-known programs need
 *
 * Set for every program, since it may be a script that starts another. What the user has set is
 * better known to him. ringbroker-leases(7) has the same table.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "exec.h"

enum { VALUE_BYTES = 32 };

/*
 * llama.cpp fits itself into what a device has left but 1,024 MiB, which it leaves to others; of a
 * lease there are no others. What drivers take beside allocations needs some.
 */
static void llama_margin(uint64_t bytes, char value[VALUE_BYTES])
{
	uint64_t mib = bytes / 32 >> 20;

	if (mib < 32)
		mib = 32;
	if (mib > 1024)
		mib = 1024;
	snprintf(value, VALUE_BYTES, "%llu", (unsigned long long)mib);
}

static const struct hint {
	const char *variable;
	void (*value_of)(uint64_t bytes, char value[VALUE_BYTES]);
} hints[] = {
	{"LLAMA_ARG_FIT_TARGET", llama_margin},
};

int exec_hints_set(uint64_t bytes, void (*say)(const char *name, const char *value))
{
	char value[VALUE_BYTES];

	for (unsigned int i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
		if (getenv(hints[i].variable))
			continue;
		hints[i].value_of(bytes, value);
		if (setenv(hints[i].variable, value, 0))
			return -errno;
		if (say)
			say(hints[i].variable, value);
	}
	return 0;
}
