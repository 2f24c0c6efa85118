/* SPDX-License-Identifier: MIT */
/*
 * Names for a plan
 *
 * ONNX names are UTF-8 of any length; a plan's names are printable ASCII below RBK_NAME_BYTES and
 * distinct. A name that meets this is kept. Of a longer name the end is kept, which distinguishes
 * the tensors of a deep model. If the result is taken, a number is appended. Numbers increase per
 * table and not per name, so that a model of a thousand equal names takes a thousand attempts and
 * not half a million.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/graph.h"

#define NAMES_SLOTS 16384u /* four times the limit of tensors in a plan */
_Static_assert(NAMES_SLOTS >= 2 * RBK_MAX_PLAN_TENSORS, "there always are free ones");

struct names {
	uint32_t n;
	uint32_t next_number;
	char slots[NAMES_SLOTS][RBK_NAME_BYTES];
};

struct names *names_new(void)
{
	return calloc(1, sizeof(struct names));
}

struct names *names_free(struct names *names)
{
	free(names);
	return NULL;
}

/* Take @name if it is free. */
static bool take(struct names *names, const char *name)
{
	uint32_t hash = 2166136261u;

	for (const char *c = name; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619u;
	for (uint32_t i = hash;; i++) {
		char *slot = names->slots[i % NAMES_SLOTS];

		if (!strcmp(slot, name))
			return false;
		if (slot[0])
			continue;
		strcpy(slot, name);
		names->n++;
		return true;
	}
}

int names_make(struct names *names, const char *full, char ret[RBK_NAME_BYTES])
{
	char plain[RBK_NAME_BYTES];
	size_t n = strlen(full);

	if (names->n >= NAMES_SLOTS / 2)
		return -E2BIG;
	if (n >= RBK_NAME_BYTES)
		full += n - (RBK_NAME_BYTES - 1);
	snprintf(plain, sizeof(plain), "%s", full);
	for (char *c = plain; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
	if (plain[0] && take(names, plain)) {
		strcpy(ret, plain);
		return 0;
	}
	/* Append a number: "...scores#12". */
	do {
		char number[16];
		size_t n_number, room;

		snprintf(number, sizeof(number), "#%u", ++names->next_number);
		n_number = strlen(number);
		room = RBK_NAME_BYTES - 1 - n_number;
		n = strlen(plain) < room ? strlen(plain) : room;
		memcpy(ret, plain + strlen(plain) - n, n);
		memcpy(ret + n, number, n_number + 1);
	} while (!take(names, ret));
	return 0;
}
