/* SPDX-License-Identifier: MIT */
/*
 * Text of a policy
 *
 * --check-config and the log show a tenant's section in force, in the syntax of the file. Names of
 * users and groups have become numbers, defaults are filled in, and a size that is a percentage of
 * host memory has become MiB, rounded down.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tenant/policy-private.h"
#include "util/cleanup.h"
#include "util/number.h"
#include "util/priority.h"
#include "util/size.h"

static void print_ids(FILE *stream, const char *key, const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (i == 0)
			fprintf(stream, "%s = %u", key, ids[i]);
		else
			fprintf(stream, ", %u", ids[i]);
	if (n)
		fputs("; ", stream);
}

static void print_strings(FILE *stream, const char *key, char *const *strings, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (i == 0)
			fprintf(stream, "%s = %s", key, strings[i]);
		else
			fprintf(stream, ", %s", strings[i]);
	if (n)
		fputs("; ", stream);
}

static void print_bytes(FILE *stream, uint64_t bytes)
{
	char text[SIZE_TEXT_BYTES];

	fputs(size_text(bytes, text), stream);
}

static void print_size(FILE *stream, struct policy_size size)
{
	unsigned int decimals = (unsigned int)(size.value % 100);

	if (!size.is_percent)
		print_bytes(stream, size.value);
	else if (decimals == 0)
		fprintf(stream, "%u%%", (unsigned int)(size.value / 100));
	else
		fprintf(stream, "%u.%02u%%", (unsigned int)(size.value / 100), decimals);
}

static void print_host(FILE *stream, struct policy_size size, uint64_t host_bytes)
{
	uint64_t bytes = policy_size_bytes(size, host_bytes);

	print_bytes(stream, size.is_percent && bytes >> 20 ? bytes >> 20 << 20 : bytes);
}

static void print_time(FILE *stream, uint64_t ns)
{
	if (ns == 0)
		fputs("no", stream);
	else if (ns < 1000000)
		fprintf(stream, "%.10gus", (double)ns / 1e3);
	else
		fprintf(stream, "%.10gms", (double)ns / 1e6);
}

static void print_value(FILE *stream, const struct policy_key_row *key, const void *value,
			uint64_t host_bytes)
{
	switch (key->kind) {
	case POLICY_VALUE_MATCH:
		break;
	case POLICY_VALUE_SIZE:
		print_size(stream, *(const struct policy_size *)value);
		break;
	case POLICY_VALUE_HOST:
		print_host(stream, *(const struct policy_size *)value, host_bytes);
		break;
	case POLICY_VALUE_BYTES:
		print_bytes(stream, *(const uint64_t *)value);
		break;
	case POLICY_VALUE_NUMBER:
		fprintf(stream, "%llu", ull(*(const uint64_t *)value));
		break;
	case POLICY_VALUE_WEIGHT:
		fprintf(stream, "%u", *(const uint32_t *)value);
		break;
	case POLICY_VALUE_PROCESSORS:
		fprintf(stream, "%g%%", (double)*(const float *)value * 100);
		break;
	case POLICY_VALUE_PRIORITY:
		fputs(policy_priority_names[*(const uint8_t *)value], stream);
		break;
	case POLICY_VALUE_AUDIT:
		fputs(policy_audit_names[*(const uint8_t *)value], stream);
		break;
	case POLICY_VALUE_SWITCH:
		fputs(*(const uint8_t *)value ? "yes" : "no", stream);
		break;
	case POLICY_VALUE_PROGRAM:
		fputs(*(const uint8_t *)value ? priority_of_program(*(const uint8_t *)value - 1u)
					      : "no",
		      stream);
		break;
	case POLICY_VALUE_TIME:
		print_time(stream, *(const uint64_t *)value);
		break;
	}
}

bool policy_key_text(enum policy_key key, const struct tenant_policy *tenant, uint64_t host_bytes,
		     char *ret, size_t bytes)
{
	const struct policy_key_row *row = &policy_key_rows[key];
	FILE *stream = fmemopen(ret, bytes, "w");

	if (!stream)
		return false;
	print_value(stream, row, (const char *)tenant + row->offset, host_bytes);
	return fclose(stream) == 0;
}

static void print_tenant(FILE *stream, const struct policy_section *section, uint64_t host_bytes)
{
	const struct tenant_policy *tenant = &section->tenant;
	struct policy_section defaults;
	const char *before = "";

	policy_section_init(&defaults, "");
	fprintf(stream, "tenant %s: ", tenant->name);
	print_ids(stream, "match-uid", section->uids, section->n_uids);
	print_ids(stream, "match-gid", section->gids, section->n_gids);
	print_strings(stream, "match-cgroup", section->cgroups, section->n_cgroups);
	print_strings(stream, "match-exe", section->exes, section->n_exes);
	for (enum policy_key i = 0; i < POLICY_KEY_COUNT; i++) {
		const struct policy_key_row *key = &policy_key_rows[i];

		if (key->kind == POLICY_VALUE_MATCH ||
		    (!key->is_always_shown && policy_key_is_same(i, tenant, &defaults.tenant)))
			continue;
		fprintf(stream, "%s%s = ", before, key->name);
		print_value(stream, key, (const char *)tenant + key->offset, host_bytes);
		before = "; ";
	}
}

char *policy_describe(const struct policy *policy, uint32_t index, uint64_t host_bytes)
{
	char *text = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&text, &bytes);

	if (!stream)
		return NULL;
	print_tenant(stream, &policy->sections[index], host_bytes);
	if (fclose(stream) == 0)
		return text;
	free(text);
	return NULL;
}
