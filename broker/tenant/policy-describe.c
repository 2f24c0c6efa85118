/* SPDX-License-Identifier: MIT */
/*
 * A policy in words
 *
 * What --check-config and the log show of a tenant is what is in force, written as it could stand
 * in a file: names of users are numbers by then, defaults are filled in, and a size is in bytes
 * unless it is a part of a device.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tenant/policy-private.h"
#include "util/cleanup.h"

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

static void print_size(FILE *stream, const char *key, struct policy_size size)
{
	unsigned int decimals = (unsigned int)(size.value % 100);

	if (!size.is_percent)
		fprintf(stream, "%s = %llu; ", key, (unsigned long long)size.value);
	else if (decimals == 0)
		fprintf(stream, "%s = %u%%; ", key, (unsigned int)(size.value / 100));
	else
		fprintf(stream, "%s = %u.%02u%%; ", key, (unsigned int)(size.value / 100),
			decimals);
}

static void print_tenant(FILE *stream, const struct policy_section *section, uint64_t host_bytes)
{
	const struct tenant_policy *tenant = &section->tenant;

	fprintf(stream, "tenant %s: ", tenant->name);
	print_ids(stream, "match-uid", section->uids, section->n_uids);
	print_ids(stream, "match-gid", section->gids, section->n_gids);
	print_strings(stream, "match-cgroup", section->cgroups, section->n_cgroups);
	print_strings(stream, "match-exe", section->exes, section->n_exes);
	print_size(stream, "vram-max", tenant->vram_max);
	print_size(stream, "vram-reserve", tenant->vram_reserve);
	print_size(stream, "vram-high", tenant->vram_high);
	print_size(stream, "gtt-max", tenant->gtt_max);
	fprintf(stream, "host-max = %llu; weight = %u; ",
		(unsigned long long)policy_size_bytes(tenant->host_max, host_bytes),
		tenant->weight);
	if (tenant->cpu_max > 0)
		fprintf(stream, "cpu-max = %g%%; ", (double)tenant->cpu_max * 100);
	fprintf(stream, "priority-max = %s; sessions-max = %llu; ",
		policy_priority_names[tenant->priority_max],
		(unsigned long long)tenant->sessions_max);
	fprintf(stream, "arenas-max = %llu; ", (unsigned long long)tenant->arenas_max);
	if (tenant->arena_bytes_max != UINT64_MAX)
		fprintf(stream, "arena-bytes-max = %llu; ",
			(unsigned long long)tenant->arena_bytes_max);
	fprintf(stream, "plans-max = %llu; tasks-max = %llu", (unsigned long long)tenant->plans_max,
		(unsigned long long)tenant->tasks_max);
	if (tenant->lease_audit != POLICY_AUDIT_WARN)
		fprintf(stream, "; lease-audit = %s", policy_audit_names[tenant->lease_audit]);
	if (tenant->lease_required)
		fputs("; lease-required = yes", stream);
	if (tenant->lease_tolerance != POLICY_LEASE_TOLERANCE_BYTES)
		fprintf(stream, "; lease-tolerance = %llu",
			(unsigned long long)tenant->lease_tolerance);
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
