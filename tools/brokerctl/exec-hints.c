/* SPDX-License-Identifier: MIT */
/*
 * brokerctl exec: environment variables that well-known programs need
 *
 * The variables are set for every program, since it may be a script that starts another program.
 * Variables that the user has set are kept. ringbroker-leases(7) has the same table.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "exec.h"

enum { VALUE_BYTES = 32 };

/*
 * llama.cpp uses what a device has free, except 1,024 MiB that it leaves to other programs. Within
 * a lease there are no other programs; a smaller margin covers driver overhead.
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

/* Memory that is mapped for as long as it lives cannot be moved. */
static void one(uint64_t bytes, char value[VALUE_BYTES])
{
	snprintf(value, VALUE_BYTES, "1");
}

static const struct hint {
	const char *variable;
	bool is_for_sleep; /* only with --sleep */
	void (*value_of)(uint64_t bytes, char value[VALUE_BYTES]);
} hints[] = {
	{"LLAMA_ARG_FIT_TARGET", false, llama_margin},
	{"GGML_VK_DISABLE_HOST_VISIBLE_VIDMEM", true, one},
};

int exec_hints_set(uint64_t bytes, bool sleeps, void (*say)(const char *name, const char *value))
{
	char value[VALUE_BYTES];

	for (unsigned int i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
		if (getenv(hints[i].variable) || (hints[i].is_for_sleep && !sleeps))
			continue;
		hints[i].value_of(bytes, value);
		if (setenv(hints[i].variable, value, 0))
			return -errno;
		if (say)
			say(hints[i].variable, value);
	}
	return 0;
}
