/* SPDX-License-Identifier: MIT */
/*
 * Policies in memory: defaults, matching, sizes, and the check of reserves
 *
 * A section matches a client if each kind of key that it has matches with one of its values. The
 * most specific matching section wins. The order is total, so it does not depend on the order of
 * the files unless two sections are equally specific.
 *
 * Executables are looked up when a client connects, not when the file is read, because a package
 * update replaces the inode. The paths are the administrator's.
 */
#include "tenant/policy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tenant/policy-private.h"
#include "tenant/policy-pattern.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/size.h"

static struct policy_size percent(unsigned int n)
{
	return (struct policy_size){.is_percent = true, .value = n * 100ull};
}

void policy_section_init(struct policy_section *section, const char *name)
{
	*section = (struct policy_section){
		.tenant =
			{
				.vram_max = percent(100),
				.vram_reserve = percent(0),
				.vram_high = percent(100),
				.gtt_max = percent(50),
				.host_max = percent(75),
				.weight = 100,
				.priority_max = RBK_PRIORITY_URGENT,
				.sessions_max = 16384,
				.arenas_max = 65536,
				.arena_bytes_max = UINT64_MAX,
				.plans_max = 65536,
				.tasks_max = 1 << 22,
				.lease_audit = POLICY_AUDIT_WARN,
				.lease_tolerance = POLICY_LEASE_TOLERANCE_BYTES,
			},
	};
	snprintf(section->tenant.name, sizeof(section->tenant.name), "%s", name);
}

int policy_defaults(struct policy **ret)
{
	_cleanup_(policy_freep) struct policy *policy = calloc(1, sizeof(*policy));

	if (!policy)
		return error_origin(-ENOMEM);
	policy->headroom = percent(5);
	policy->sections = calloc(1, sizeof(*policy->sections));
	if (!policy->sections)
		return error_origin(-ENOMEM);
	policy->n_sections = 1;
	policy_section_init(&policy->sections[0], "default");
	*ret = steal_ptr(policy);
	return 0;
}

static void free_strings(char **strings, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		free(strings[i]);
	free(strings);
}

struct policy *policy_free(struct policy *policy)
{
	if (!policy)
		return NULL;
	for (uint32_t i = 0; i < policy->n_sections; i++) {
		struct policy_section *section = &policy->sections[i];

		free(section->uids);
		free(section->gids);
		free_strings(section->cgroups, section->n_cgroups);
		free_strings(section->exes, section->n_exes);
		free(section->reserve_place);
	}
	free(policy->sections);
	for (uint32_t i = 0; i < policy->n_settings; i++) {
		free(policy->settings[i].key);
		free(policy->settings[i].value);
		free(policy->settings[i].place);
	}
	free(policy->settings);
	free_strings(policy->files, policy->n_files);
	free(policy->warnings);
	free(policy);
	return NULL;
}

void policy_errors_deinit(struct policy_errors *errors)
{
	free(errors->text);
	free(errors->warnings);
	*errors = (struct policy_errors){.n = 0};
}

uint32_t policy_n_files(const struct policy *policy)
{
	return policy->n_files;
}

const char *policy_file(const struct policy *policy, uint32_t index)
{
	return policy->files[index];
}

const char *policy_warnings(const struct policy *policy)
{
	return policy->warnings;
}

struct policy_size policy_headroom(const struct policy *policy)
{
	return policy->headroom;
}

uint32_t policy_n_tenants(const struct policy *policy)
{
	return policy->n_sections;
}

const struct tenant_policy *policy_tenant(const struct policy *policy, uint32_t index)
{
	return &policy->sections[index].tenant;
}

uint64_t policy_size_bytes(struct policy_size size, uint64_t total_bytes)
{
	if (!size.is_percent)
		return size.value;
	/* Two products that do not overflow, because a percentage is at most the whole. */
	return total_bytes / POLICY_WHOLE * size.value +
	       total_bytes % POLICY_WHOLE * size.value / POLICY_WHOLE;
}

uint32_t policy_match_kinds(const struct policy *policy)
{
	uint32_t kinds = 0;

	for (uint32_t i = 0; i < policy->n_sections; i++)
		kinds |= policy->sections[i].match_kinds;
	return kinds;
}

uint32_t policy_tenant_kinds(const struct policy *policy, uint32_t index)
{
	return policy->sections[index].match_kinds;
}

uint32_t policy_n_settings(const struct policy *policy)
{
	return policy->n_settings;
}

void policy_setting(const struct policy *policy, uint32_t index, const char **ret_key,
		    const char **ret_value)
{
	*ret_key = policy->settings[index].key;
	*ret_value = policy->settings[index].value;
}

const char *policy_setting_place(const struct policy *policy, const char *key)
{
	for (uint32_t i = 0; i < policy->n_settings; i++)
		if (strcmp(policy->settings[i].key, key) == 0)
			return policy->settings[i].place;
	return NULL;
}

static bool matches_gid(const struct policy_section *section, const struct peer *peer)
{
	for (uint32_t i = 0; i < section->n_gids; i++) {
		if (section->gids[i] == peer->gid)
			return true;
		for (uint32_t k = 0; k < peer->n_groups; k++)
			if (section->gids[i] == peer->groups[k])
				return true;
	}
	return false;
}

static bool matches_uid(const struct policy_section *section, const struct peer *peer)
{
	for (uint32_t i = 0; i < section->n_uids; i++)
		if (section->uids[i] == peer->uid)
			return true;
	return false;
}

static bool matches_exe(const struct policy_section *section, const struct peer *peer)
{
	struct stat status;

	for (uint32_t i = 0; peer->has_exe && i < section->n_exes; i++)
		if (stat(section->exes[i], &status) == 0 && status.st_dev == peer->exe_dev &&
		    status.st_ino == peer->exe_ino)
			return true;
	return false;
}

/* *ret_literals: the most literal characters of a matching pattern. */
static bool matches_cgroup(const struct policy_section *section, const struct peer *peer,
			   uint32_t *ret_literals)
{
	bool is_match = false;
	uint32_t n;

	for (uint32_t i = 0; peer->cgroup && i < section->n_cgroups; i++) {
		if (!policy_pattern_matches(section->cgroups[i], peer->cgroup))
			continue;
		n = policy_pattern_literals(section->cgroups[i]);
		if (!is_match || n > *ret_literals)
			*ret_literals = n;
		is_match = true;
	}
	return is_match;
}

/* Check the cheapest kinds first; the executable may need the disk. */
static bool matches(const struct policy_section *section, const struct peer *peer,
		    uint32_t *ret_literals)
{
	uint32_t kinds = section->match_kinds;

	*ret_literals = 0;
	return kinds != 0 && (!(kinds & POLICY_MATCH_UID) || matches_uid(section, peer)) &&
	       (!(kinds & POLICY_MATCH_GID) || matches_gid(section, peer)) &&
	       (!(kinds & POLICY_MATCH_CGROUP) || matches_cgroup(section, peer, ret_literals)) &&
	       (!(kinds & POLICY_MATCH_EXE) || matches_exe(section, peer));
}

/*
 * Return true if @a, with @a_literals, is more specific. Of two sets of equally many kinds, the
 * greater number has the higher kind.
 */
static bool beats(const struct policy_section *a, uint32_t a_literals,
		  const struct policy_section *b, uint32_t b_literals)
{
	int n_a = __builtin_popcount(a->match_kinds), n_b = __builtin_popcount(b->match_kinds);

	if (n_a != n_b)
		return n_a > n_b;
	if (a->match_kinds != b->match_kinds)
		return a->match_kinds > b->match_kinds;
	return a_literals > b_literals;
}

uint32_t policy_match(const struct policy *policy, const struct peer *peer)
{
	uint32_t literals, best_literals = 0, best = 0;

	for (uint32_t i = 1; i < policy->n_sections; i++) {
		const struct policy_section *section = &policy->sections[i];

		if (!matches(section, peer, &literals))
			continue;
		if (best != 0 && !beats(section, literals, &policy->sections[best], best_literals))
			continue;
		best = i;
		best_literals = literals;
	}
	return best;
}

/*
 * Add an error about a tenant's reserve. A reserve without a place was set by an administrator.
 * Return: 0; -ENOMEM.
 */
static int complain(struct sentences *errors, const struct policy_section *section,
		    const char *format, ...) __attribute__((format(printf, 3, 4)));

static int complain(struct sentences *errors, const struct policy_section *section,
		    const char *format, ...)
{
	const char *place = section->reserve_place ? section->reserve_place : "administrator";
	va_list args;
	int r;

	va_start(args, format);
	r = sentences_add(errors, place, 0, "vram-reserve", format, args);
	va_end(args);
	return r;
}

/*
 * Check the reserves of all tenants against one device of @bytes: each against its tenant's limit,
 * and their sum, which is complained about once. Return: 0; -ENOMEM.
 */
static int check_device(const struct policy *policy, unsigned int device, uint64_t bytes,
			struct sentences *errors)
{
	uint64_t headroom = policy_size_bytes(policy->headroom, bytes), sum = 0;
	uint64_t usable = headroom < bytes ? bytes - headroom : 0;
	unsigned int n = 0;
	int r = 0;

	for (uint32_t i = 0; i < policy->n_sections && r == 0; i++) {
		const struct policy_section *section = &policy->sections[i];
		uint64_t reserve = policy_size_bytes(section->tenant.vram_reserve, bytes);
		uint64_t max = policy_size_bytes(section->tenant.vram_max, bytes);
		bool did_fit = sum <= usable;

		if (reserve == 0)
			continue;
		n++;
		if (!checked_add(sum, reserve, &sum))
			sum = UINT64_MAX;
		if (reserve > max)
			r = complain(errors, section,
				     "tenant %s reserves %s of device %u, more than its "
				     "vram-max of %s on that device",
				     section->tenant.name, SIZE_BESIDE(reserve, max), device,
				     SIZE_BESIDE(max, reserve));
		else if (did_fit && sum > usable)
			r = complain(errors, section,
				     "with tenant %s, %u tenant%s %s of device %u, which has "
				     "%s; at most %s may be reserved, the rest "
				     "is " POLICY_HEADROOM_KEY,
				     section->tenant.name, n, n == 1 ? " reserves" : "s reserve",
				     SIZE_BESIDE(sum, usable), device, SIZE_ROUNDED(bytes),
				     SIZE_BESIDE(usable, sum));
	}
	return r;
}

int policy_check_devices(const struct policy *policy, const uint64_t *device_bytes,
			 uint32_t n_devices, struct policy_errors *ret_errors)
{
	struct sentences errors = {.max = POLICY_MAX_ERRORS};
	int r = 0;

	for (uint32_t i = 0; i < n_devices && r == 0; i++)
		if (device_bytes[i] > 0)
			r = check_device(policy, i, device_bytes[i], &errors);
	if (r == 0)
		r = sentences_end(&errors, policy->n_files > 0 ? policy->files[0] : "policy");
	if (r || errors.n == 0) {
		free(errors.text);
		return r;
	}
	*ret_errors = (struct policy_errors){.text = errors.text, .n = errors.n};
	return POLICY_E_INVALID;
}

int policy_refuse_change(const char *sentences, char **ret)
{
	const char *start = strchr(sentences, ' ') + 1;

	*ret = strndup(start, strcspn(start, "\n"));
	return *ret ? POLICY_E_INVALID : error_origin(-ENOMEM);
}

int policy_check_changed(const struct policy *policy, const struct tenant_policy *tenants,
			 const uint64_t *device_bytes, uint32_t n_devices, char **ret_error)
{
	struct policy_errors errors = {.n = 0};
	struct policy changed = *policy;
	int r;

	changed.sections = reallocarray(NULL, policy->n_sections, sizeof(*changed.sections));
	if (!changed.sections)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < policy->n_sections; i++) {
		changed.sections[i] = policy->sections[i];
		changed.sections[i].tenant = tenants[i];
		changed.sections[i].reserve_place = NULL;
	}
	r = policy_check_devices(&changed, device_bytes, n_devices, &errors);
	free(changed.sections);
	if (r == POLICY_E_INVALID)
		r = policy_refuse_change(errors.text, ret_error);
	policy_errors_deinit(&errors);
	return r;
}
