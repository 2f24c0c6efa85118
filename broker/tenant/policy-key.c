/* SPDX-License-Identifier: MIT */
/*
 * Keys of the policy file and their values
 *
 * A table gives the value type and the destination of each key. A match key may be given several
 * times and continued, which adds values; any other key has one value. Keys are compared when all
 * are known: here only sizes of one kind, since a percentage and bytes can only be compared for a
 * device (policy_check_devices()).
 */
#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tenant/policy-pattern.h"
#include "tenant/policy-private.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/number.h"
#include "util/priority.h"
#include "util/size.h"
#include "util/suggest.h"

enum {
	POLICY_NSS_BYTES = 65536,  /* buffer for a name service entry */
	POLICY_MAX_MATCHES = 4096, /* values of all match keys of a section */
	POLICY_MAX_PROCESSORS = 1024,
};

const struct policy_key_row policy_key_rows[POLICY_KEY_COUNT] = {
#define MATCH(id, name) [POLICY_KEY_##id] = {name, POLICY_VALUE_MATCH, 0, 0, 0, false},
#define KEY(id, name, kind, member, ...)                                                        \
	[POLICY_KEY_##id] = {name, POLICY_VALUE_##kind, offsetof(struct tenant_policy, member), \
			     __VA_ARGS__},
	POLICY_MATCH_KEYS(MATCH) POLICY_KEYS(KEY)
#undef MATCH
#undef KEY
};

void policy_complain(struct policy_loader *loader, const char *file, unsigned int line,
		     const char *key, const char *format, ...)
{
	va_list args;

	loader->has_complained = true;
	if (loader->error)
		return;
	va_start(args, format);
	loader->error = sentences_add(&loader->errors, file, line, key, format, args);
	va_end(args);
}

void policy_warn(struct policy_loader *loader, const char *file, unsigned int line, const char *key,
		 const char *format, ...)
{
	va_list args;

	if (loader->error)
		return;
	va_start(args, format);
	loader->error = sentences_add(&loader->warnings, file, line, key, format, args);
	va_end(args);
}

#define complain_key(loader, key, ...) \
	policy_complain(loader, (loader)->file, (loader)->line, key, __VA_ARGS__)

/* ---- Sizes and numbers ---- */

/* Parse "25", "25.5" or "25.55" before a '%'. Return: false if it is no percentage up to 100. */
static bool parse_percent(const char *text, size_t length, uint64_t *ret)
{
	uint64_t value = 0;
	size_t i = 0, n_decimals = 0;

	for (; i < length && isdigit((unsigned char)text[i]) && value <= POLICY_WHOLE; i++)
		value = value * 10 + (uint64_t)(text[i] - '0');
	if (i == 0)
		return false;
	if (i < length && text[i] == '.')
		for (i++; i < length && isdigit((unsigned char)text[i]) && n_decimals < 2; i++) {
			value = value * 10 + (uint64_t)(text[i] - '0');
			n_decimals++;
		}
	if (i < length || text[length - 1] == '.')
		return false;
	for (; n_decimals < 2; n_decimals++)
		value *= 10;
	*ret = value;
	return value <= POLICY_WHOLE;
}

/*
 * Remove the blanks between a number and its unit: "512 MiB".
 * Return: false if there is no number, or if @ret is too small.
 */
static bool split_size(const char *value, char *ret, size_t bytes)
{
	size_t n_digits = strspn(value, "0123456789.");
	size_t n_blanks = strspn(value + n_digits, " \t");
	const char *unit = value + n_digits + n_blanks;

	if (n_digits == 0 || n_digits + strlen(unit) >= bytes || isdigit((unsigned char)*unit))
		return false;
	memcpy(ret, value, n_digits);
	strcpy(ret + n_digits, unit);
	return true;
}

static bool parse_size(const char *value, bool has_percent, struct policy_size *ret)
{
	struct policy_size size = {.is_percent = false};
	char text[64];
	size_t length;

	if (!split_size(value, text, sizeof(text)))
		return false;
	length = strlen(text);
	if (has_percent && text[length - 1] == '%') {
		size.is_percent = true;
		if (!parse_percent(text, length - 1, &size.value))
			return false;
	} else if (tolower(text[strspn(text, "0123456789.")]) == 'e' ||
		   !size_parse(text, &size.value)) {
		return false;
	}
	*ret = size;
	return true;
}

static void read_size(struct policy_loader *loader, const char *key, const char *value,
		      struct policy_size *ret)
{
	if (!parse_size(value, true, ret))
		complain_key(loader, key,
			     "'%s' is not a size; expected bytes, KiB, MiB, GiB, TiB or 0%% to "
			     "100%%, such as 512MiB or 25%%",
			     value);
}

static void read_bytes(struct policy_loader *loader, const char *key, const char *value,
		       uint64_t *ret)
{
	struct policy_size size;

	if (parse_size(value, false, &size))
		*ret = size.value;
	else
		complain_key(loader, key,
			     "'%s' is not a size; expected bytes, KiB, MiB, GiB or TiB, such as "
			     "512MiB",
			     value);
}

static bool parse_number(const char *value, uint64_t max, uint64_t *ret)
{
	uint64_t number = 0;

	if (!*value)
		return false;
	for (; isdigit((unsigned char)*value); value++) {
		number = number * 10 + (uint64_t)(*value - '0');
		if (number > max)
			return false;
	}
	*ret = number;
	return *value == '\0';
}

static bool read_number(struct policy_loader *loader, const struct policy_key_row *key,
			const char *value, uint64_t *ret)
{
	if (parse_number(value, key->max, ret) && *ret >= key->min)
		return true;
	complain_key(loader, key->name, "'%s' is not a number from %llu to %llu", value,
		     ull(key->min), ull(key->max));
	return false;
}

/*
 * Read "150%" of one processor, as systemd's CPUQuota=, or "1.5" processors. Less than one percent
 * is rejected: tasks would wait for unreasonably long.
 */
static void read_processors(struct policy_loader *loader, const char *key, const char *value,
			    float *ret)
{
	size_t n = strspn(value, "0123456789");
	double processors;
	const char *rest;

	if (value[n] == '.')
		n += 1 + strspn(value + n + 1, "0123456789");
	rest = value + n + strspn(value + n, " \t");
	processors = n > 0 && n < 32 ? strtod(value, NULL) : -1;
	if (strcmp(rest, "%") == 0) {
		processors /= 100;
		rest++;
	}
	if (isdigit((unsigned char)value[0]) && !*rest &&
	    (processors == 0 || (processors >= 0.01 && processors <= POLICY_MAX_PROCESSORS)))
		*ret = (float)processors;
	else
		complain_key(loader, key,
			     "'%s' is not a quota; expected 1%% to %d%% of one processor, such as "
			     "150%%, or a number of processors up to %d, such as 1.5, or 0 for no "
			     "quota",
			     value, POLICY_MAX_PROCESSORS * 100, POLICY_MAX_PROCESSORS);
}

const char *const policy_priority_names[RBK_PRIORITY_COUNT] = {
	[RBK_PRIORITY_LOW] = "low",
	[RBK_PRIORITY_NORMAL] = "normal",
	[RBK_PRIORITY_HIGH] = "high",
	[RBK_PRIORITY_URGENT] = "urgent",
};

static void read_priority(struct policy_loader *loader, const char *key, const char *value,
			  uint8_t *ret)
{
	for (uint8_t i = 0; i < RBK_PRIORITY_COUNT; i++) {
		if (strcmp(value, policy_priority_names[i]) == 0) {
			*ret = i;
			return;
		}
	}
	complain_key(loader, key, "'%s' is not a priority; expected low, normal, high or urgent",
		     value);
}

const char *const policy_audit_names[POLICY_AUDIT_COUNT] = {
	[POLICY_AUDIT_OFF] = "off",
	[POLICY_AUDIT_WARN] = "warn",
	[POLICY_AUDIT_PRIORITY] = "priority",
	[POLICY_AUDIT_STOP] = "stop",
};

static void read_audit(struct policy_loader *loader, const char *key, const char *value,
		       uint8_t *ret)
{
	for (uint8_t i = 0; i < POLICY_AUDIT_COUNT; i++) {
		if (strcmp(value, policy_audit_names[i]) == 0) {
			*ret = i;
			return;
		}
	}
	complain_key(loader, key, "'%s' is not an action; expected off, warn, priority or stop",
		     value);
}

static void read_switch(struct policy_loader *loader, const char *key, const char *value,
			uint8_t *ret)
{
	if (strcmp(value, "yes") == 0 || strcmp(value, "no") == 0)
		*ret = value[0] == 'y';
	else
		complain_key(loader, key, "'%s' is neither yes nor no; expected one of them",
			     value);
}

static void read_program(struct policy_loader *loader, const char *key, const char *value,
			 uint8_t *ret)
{
	static const uint8_t priorities[] = {RBK_PRIORITY_LOW, RBK_PRIORITY_NORMAL,
					     RBK_PRIORITY_URGENT};

	for (unsigned int i = 0; i < ARRAY_SIZE(priorities); i++)
		if (strcmp(value, priority_of_program(priorities[i])) == 0) {
			*ret = 1 + priorities[i];
			return;
		}
	if (strcmp(value, "no") == 0)
		*ret = 0;
	else
		complain_key(loader, key,
			     "'%s' is not a priority of programs; expected background, normal, "
			     "urgent or no",
			     value);
}

/* Read "500us", "1.5ms", "2s" or "no". */
static void read_time(struct policy_loader *loader, const char *key, const char *value,
		      uint64_t *ret)
{
	/* the layer's own limits of RINGBROKER_LEASE_MAX_PART */
	const double least_ns = 1e3, most_ns = 2e9;
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
	size_t n_digits = strspn(value, "0123456789.");
	char *rest = NULL;
	double number = n_digits > 0 ? strtod(value, &rest) : 0;

	if (strcmp(value, "no") == 0) {
		*ret = 0;
		return;
	}
	for (unsigned int i = 0; rest == value + n_digits && i < ARRAY_SIZE(units); i++) {
		double ns = number * units[i].ns;

		if (strcmp(rest + strspn(rest, " \t"), units[i].name) != 0 || ns < least_ns ||
		    ns > most_ns)
			continue;
		/* The lease's page has whole microseconds. */
		*ret = (uint64_t)(ns / 1e3) * 1000;
		return;
	}
	complain_key(loader, key,
		     "'%s' is not a time; expected one from 1us to 2s, such as 500us, or no",
		     value);
}

/* ---- Matching ---- */

/*
 * Make room for one more than @n elements.
 * Return: false, with loader->error set, if out of memory.
 */
static bool grow(struct policy_loader *loader, void *array, uint32_t n, size_t element_bytes)
{
	void *grown = reallocarray(*(void **)array, n + 1, element_bytes);

	if (!grown) {
		loader->error = error_origin(-ENOMEM);
		return false;
	}
	*(void **)array = grown;
	return true;
}

static bool add_string(struct policy_loader *loader, char ***strings, uint32_t *n, const char *text)
{
	if (!grow(loader, strings, *n, sizeof(**strings)))
		return false;
	(*strings)[*n] = strdup(text);
	if (!(*strings)[*n]) {
		loader->error = error_origin(-ENOMEM);
		return false;
	}
	(*n)++;
	return true;
}

/* Look up a user's or group's number by name. Return: 0; ENOENT: no such name; another errno. */
static int look_up(bool is_user, const char *name, uint32_t *ret)
{
	_cleanup_(freep) char *buffer = malloc(POLICY_NSS_BYTES);
	struct passwd user, *found_user = NULL;
	struct group group, *found_group = NULL;
	int error;

	if (!buffer)
		return ENOMEM;
	if (is_user) {
		error = getpwnam_r(name, &user, buffer, POLICY_NSS_BYTES, &found_user);
		if (found_user)
			*ret = user.pw_uid;
	} else {
		error = getgrnam_r(name, &group, buffer, POLICY_NSS_BYTES, &found_group);
		if (found_group)
			*ret = group.gr_gid;
	}
	if (found_user || found_group)
		return 0;
	/* getpwnam(3) has many ways to report that a name does not exist. */
	return error == 0 || error == ESRCH || error == EBADF || error == EPERM ? ENOENT : error;
}

static bool read_id(struct policy_loader *loader, bool is_user, const char *value, uint32_t *ret)
{
	const char *key = is_user ? "match-uid" : "match-gid", *what = is_user ? "user" : "group";
	uint64_t number;
	int error;

	if (isdigit((unsigned char)value[0])) {
		/* UINT32_MAX means "none" to the kernel. */
		if (parse_number(value, UINT32_MAX - 1, &number)) {
			*ret = (uint32_t)number;
			return true;
		}
		complain_key(loader, key,
			     "'%s' is neither a number from 0 to %u nor the name of a %s", value,
			     UINT32_MAX - 1, what);
		return false;
	}
	error = look_up(is_user, value, ret);
	if (error == ENOMEM)
		loader->error = error_origin(-ENOMEM);
	else if (error == ENOENT)
		complain_key(loader, key,
			     "there is no %s '%s'; expected a %s of this system, by name or number",
			     what, value, what);
	else if (error)
		complain_key(loader, key, "%s '%s' cannot be looked up: %s", what, value,
			     strerror(error));
	return error == 0;
}

static void add_match(struct policy_loader *loader, enum policy_key index, const char *value)
{
	struct policy_section *section = &loader->policy->sections[loader->tenant];
	uint32_t id;

	switch (index) {
	case POLICY_KEY_MATCH_UID:
		if (read_id(loader, true, value, &id) &&
		    grow(loader, &section->uids, section->n_uids, sizeof(uid_t)))
			section->uids[section->n_uids++] = id;
		break;
	case POLICY_KEY_MATCH_GID:
		if (read_id(loader, false, value, &id) &&
		    grow(loader, &section->gids, section->n_gids, sizeof(gid_t)))
			section->gids[section->n_gids++] = id;
		break;
	case POLICY_KEY_MATCH_CGROUP:
		if (policy_pattern_is_valid(value))
			add_string(loader, &section->cgroups, &section->n_cgroups, value);
		else
			complain_key(loader, policy_key_rows[index].name,
				     "'%s' is not a pattern of cgroups; a pattern begins with '/', "
				     "'*' matches any text within a component, '**' matches any "
				     "components",
				     value);
		break;
	default:
		if (value[0] == '/')
			add_string(loader, &section->exes, &section->n_exes, value);
		else
			complain_key(loader, policy_key_rows[index].name,
				     "'%s' is not an absolute path; it must begin with '/'", value);
		break;
	}
}

/* Read a list separated by commas. A comma at the end is allowed for a list that is continued. */
static void read_matches(struct policy_loader *loader, enum policy_key index, const char *value)
{
	static const uint32_t kinds[] = {
		[POLICY_KEY_MATCH_UID] = POLICY_MATCH_UID,
		[POLICY_KEY_MATCH_GID] = POLICY_MATCH_GID,
		[POLICY_KEY_MATCH_CGROUP] = POLICY_MATCH_CGROUP,
		[POLICY_KEY_MATCH_EXE] = POLICY_MATCH_EXE,
	};
	struct policy_section *section = &loader->policy->sections[loader->tenant];
	_cleanup_(freep) char *copy = strdup(value);
	char *rest = copy, *item, *end;

	if (!copy) {
		loader->error = error_origin(-ENOMEM);
		return;
	}
	section->match_kinds |= kinds[index];
	if (section->n_uids + section->n_gids + section->n_cgroups + section->n_exes >=
	    POLICY_MAX_MATCHES) {
		complain_key(loader, policy_key_rows[index].name,
			     "tenant %s has more than %d values to match; at most that many are "
			     "allowed",
			     section->tenant.name, POLICY_MAX_MATCHES);
		return;
	}
	while (!loader->error && (item = strsep(&rest, ","))) {
		item += strspn(item, " \t");
		for (end = item + strlen(item); end > item && strchr(" \t", end[-1]); end--)
			end[-1] = '\0';
		if (*item)
			add_match(loader, index, item);
		else if (rest || item == copy)
			complain_key(loader, policy_key_rows[index].name,
				     "a value is empty; separate values by single commas");
	}
}

/* ---- Keys ---- */

static const struct policy_key_row *find_key(const char *name)
{
	for (unsigned int i = 0; i < POLICY_KEY_COUNT; i++)
		if (strcmp(policy_key_rows[i].name, name) == 0)
			return &policy_key_rows[i];
	return NULL;
}

static const char *key_near(const char *name)
{
	const char *names[POLICY_KEY_COUNT + 1] = {NULL};

	for (unsigned int i = 0; i < POLICY_KEY_COUNT; i++)
		names[i] = policy_key_rows[i].name;
	return suggest(name, names);
}

/* @near: the key probably meant; NULL or empty: unknown. */
static void complain_unknown(struct policy_loader *loader, const char *name, const char *where,
			     const char *near)
{
	if (near && *near)
		complain_key(loader, name, "%s has no such key; did you mean %s?", where, near);
	else
		complain_key(loader, name, "%s has no such key; brokerd.conf(5) lists the keys",
			     where);
}

void policy_key_read(struct policy_loader *loader, const char *name, const char *value)
{
	struct policy_section *section = &loader->policy->sections[loader->tenant];
	struct policy_places *places = &loader->places[loader->tenant];
	const struct policy_key_row *key = find_key(name);
	void *field;
	uint64_t number;
	unsigned int *line;

	if (!key) {
		complain_unknown(loader, name, "a tenant", key_near(name));
		return;
	}
	line = &places->key_lines[key - policy_key_rows];
	if (*line && key->kind != POLICY_VALUE_MATCH) {
		complain_key(loader, name, "the key is in line %u already; give it once", *line);
		return;
	}
	*line = loader->line;
	field = (char *)&section->tenant + key->offset;
	switch (key->kind) {
	case POLICY_VALUE_MATCH:
		read_matches(loader, (enum policy_key)(key - policy_key_rows), value);
		break;
	case POLICY_VALUE_SIZE:
	case POLICY_VALUE_HOST:
		read_size(loader, name, value, field);
		break;
	case POLICY_VALUE_BYTES:
		read_bytes(loader, name, value, field);
		break;
	case POLICY_VALUE_NUMBER:
		if (read_number(loader, key, value, &number))
			*(uint64_t *)field = number;
		break;
	case POLICY_VALUE_WEIGHT:
		if (read_number(loader, key, value, &number))
			*(uint32_t *)field = (uint32_t)number;
		break;
	case POLICY_VALUE_PROCESSORS:
		read_processors(loader, name, value, field);
		break;
	case POLICY_VALUE_PRIORITY:
		read_priority(loader, name, value, field);
		break;
	case POLICY_VALUE_AUDIT:
		read_audit(loader, name, value, field);
		break;
	case POLICY_VALUE_SWITCH:
		read_switch(loader, name, value, field);
		break;
	case POLICY_VALUE_PROGRAM:
		read_program(loader, name, value, field);
		break;
	case POLICY_VALUE_TIME:
		read_time(loader, name, value, field);
		break;
	}
}

static void add_setting(struct policy_loader *loader, const char *key, const char *value)
{
	struct policy *policy = loader->policy;
	struct policy_setting *setting;

	if (!grow(loader, &policy->settings, policy->n_settings, sizeof(*policy->settings)))
		return;
	setting = &policy->settings[policy->n_settings++];
	*setting = (struct policy_setting){.key = strdup(key), .value = strdup(value)};
	if (asprintf(&setting->place, "%s:%u", loader->file, loader->line) < 0)
		setting->place = NULL;
	if (!setting->key || !setting->value || !setting->place)
		loader->error = error_origin(-ENOMEM);
}

/* Read a key of [broker] that another room owns. */
static void read_setting(struct policy_loader *loader, const char *key, const char *value)
{
	const struct policy_broker_keys *others = loader->broker_keys;
	char wanted[POLICY_WANTED_BYTES] = "";
	const struct policy *policy = loader->policy;
	int r;

	for (uint32_t i = 0; i < policy->n_settings; i++) {
		if (strcmp(policy->settings[i].key, key) == 0) {
			complain_key(loader, key,
				     "the key is in this section already; give it once");
			return;
		}
	}
	r = others ? others->read(others->context, key, value, wanted) : POLICY_E_UNKNOWN;
	if (r == POLICY_E_UNKNOWN)
		complain_unknown(loader, key, "[broker]", wanted);
	else if (r)
		complain_key(loader, key, "'%s' is not allowed; %s is", value,
			     *wanted ? wanted : "something else");
	else
		add_setting(loader, key, value);
}

void policy_broker_key_read(struct policy_loader *loader, const char *key, const char *value)
{
	if (strcmp(key, POLICY_HEADROOM_KEY) != 0) {
		read_setting(loader, key, value);
	} else if (loader->headroom_line) {
		complain_key(loader, key, "the key is in line %u already; give it once",
			     loader->headroom_line);
	} else {
		loader->headroom_line = loader->line;
		read_size(loader, key, value, &loader->policy->headroom);
	}
}

/* ---- Keys together ---- */

static bool is_more(struct policy_size a, struct policy_size b)
{
	return a.is_percent == b.is_percent && a.value > b.value;
}

static void check_matches(struct policy_loader *loader, const struct policy_section *section,
			  const struct policy_places *places)
{
	if (section == loader->policy->sections) {
		for (unsigned int i = 0; i < POLICY_KEY_COUNT; i++)
			if (policy_key_rows[i].kind == POLICY_VALUE_MATCH && places->key_lines[i])
				policy_complain(loader, places->file, places->key_lines[i],
						policy_key_rows[i].name,
						"tenant default takes clients that match no other "
						"tenant; it cannot have match keys");
	} else if (section->match_kinds == 0) {
		policy_complain(loader, places->file, places->line, NULL,
				"tenant %s matches no client; it needs at least one of match-uid, "
				"match-gid, match-cgroup and match-exe",
				section->tenant.name);
	}
}

static void check_sizes(struct policy_loader *loader, struct policy_section *section,
			const struct policy_places *places)
{
	struct tenant_policy *tenant = &section->tenant;
	const unsigned int *lines = places->key_lines;

	if (!lines[POLICY_KEY_VRAM_HIGH])
		tenant->vram_high = tenant->vram_max;
	else if (is_more(tenant->vram_high, tenant->vram_max))
		policy_complain(loader, places->file, lines[POLICY_KEY_VRAM_HIGH], "vram-high",
				"the value is more than vram-max; expected a value from "
				"vram-reserve to vram-max");
	else if (is_more(tenant->vram_reserve, tenant->vram_high))
		policy_complain(loader, places->file, lines[POLICY_KEY_VRAM_HIGH], "vram-high",
				"the value is less than vram-reserve; expected a value from "
				"vram-reserve to vram-max");
	if (!lines[POLICY_KEY_VRAM_RESERVE] || tenant->vram_reserve.value == 0)
		return;
	if (is_more(tenant->vram_reserve, tenant->vram_max))
		policy_complain(loader, places->file, lines[POLICY_KEY_VRAM_RESERVE],
				"vram-reserve",
				"the value is more than vram-max; expected at most vram-max");
	if (section->match_kinds == POLICY_MATCH_EXE)
		policy_complain(loader, places->file, lines[POLICY_KEY_VRAM_RESERVE],
				"vram-reserve",
				"match-exe alone cannot grant a reserve, because any user can "
				"start the program; add match-uid, match-gid or match-cgroup");
	if (asprintf(&section->reserve_place, "%s:%u", places->file,
		     lines[POLICY_KEY_VRAM_RESERVE]) < 0) {
		section->reserve_place = NULL;
		loader->error = error_origin(-ENOMEM);
	}
}

/* Check for percentages whose sum exceeds any device. */
static void check_sum(struct policy_loader *loader)
{
	const struct policy *policy = loader->policy;
	uint64_t headroom = policy->headroom.is_percent ? policy->headroom.value : 0;
	uint64_t sum = headroom;

	for (uint32_t i = 0; i < policy->n_sections; i++) {
		const struct tenant_policy *tenant = &policy->sections[i].tenant;
		const struct policy_places *places = &loader->places[i];

		if (!tenant->vram_reserve.is_percent || tenant->vram_reserve.value == 0)
			continue;
		sum += tenant->vram_reserve.value;
		if (sum <= POLICY_WHOLE)
			continue;
		policy_complain(loader, places->file, places->key_lines[POLICY_KEY_VRAM_RESERVE],
				"vram-reserve",
				"with tenant %s, tenants reserve %llu.%02llu%% of each device; at "
				"most %llu.%02llu%% may be reserved, because vram-headroom is the "
				"rest",
				tenant->name, ull((sum - headroom) / 100),
				ull((sum - headroom) % 100), ull((POLICY_WHOLE - headroom) / 100),
				ull((POLICY_WHOLE - headroom) % 100));
		return;
	}
}

/* Comparisons of ids and strings in the search for tenants with the same match. */
enum { SAME_MATCH_LOOKS = 1 << 22 };

static bool share_id(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b)
{
	for (uint32_t i = 0; i < n_a; i++)
		for (uint32_t k = 0; k < n_b; k++)
			if (a[i] == b[k])
				return true;
	return false;
}

static bool share_string(char *const *a, uint32_t n_a, char *const *b, uint32_t n_b)
{
	for (uint32_t i = 0; i < n_a; i++)
		for (uint32_t k = 0; k < n_b; k++)
			if (strcmp(a[i], b[k]) == 0)
				return true;
	return false;
}

/* Return true if both sections have the same match keys, with a common value for each. */
static bool is_same_match(const struct policy_section *a, const struct policy_section *b)
{
	const uint32_t kinds = a->match_kinds;

	return kinds && kinds == b->match_kinds &&
	       (!(kinds & POLICY_MATCH_UID) || share_id(a->uids, a->n_uids, b->uids, b->n_uids)) &&
	       (!(kinds & POLICY_MATCH_GID) || share_id(a->gids, a->n_gids, b->gids, b->n_gids)) &&
	       (!(kinds & POLICY_MATCH_CGROUP) ||
		share_string(a->cgroups, a->n_cgroups, b->cgroups, b->n_cgroups)) &&
	       (!(kinds & POLICY_MATCH_EXE) ||
		share_string(a->exes, a->n_exes, b->exes, b->n_exes));
}

/* Warn of each tenant whose clients are, in part at least, an earlier tenant's. */
static void check_same_matches(struct policy_loader *loader)
{
	const struct policy_section *sections = loader->policy->sections;
	uint64_t n_looks = 0;

	for (uint32_t i = 2; i < loader->policy->n_sections; i++)
		for (uint32_t k = 1; k < i && n_looks < SAME_MATCH_LOOKS; k++) {
			const struct policy_section *a = &sections[k], *b = &sections[i];

			n_looks += 1 + (uint64_t)a->n_uids * b->n_uids +
				   (uint64_t)a->n_gids * b->n_gids +
				   (uint64_t)a->n_cgroups * b->n_cgroups +
				   (uint64_t)a->n_exes * b->n_exes;
			if (!is_same_match(a, b))
				continue;
			policy_warn(loader, loader->places[i].file, loader->places[i].line, NULL,
				    "tenant %s has the same match as tenant %s at %s:%u; clients "
				    "that match both are the earlier one's",
				    b->tenant.name, a->tenant.name, loader->places[k].file,
				    loader->places[k].line);
			break;
		}
}

void policy_check(struct policy_loader *loader)
{
	for (uint32_t i = 0; i < loader->policy->n_sections && !loader->error; i++) {
		check_matches(loader, &loader->policy->sections[i], &loader->places[i]);
		check_sizes(loader, &loader->policy->sections[i], &loader->places[i]);
	}
	check_sum(loader);
	if (loader->errors.n == 0)
		check_same_matches(loader);
}

/* ---- A key of a policy that is in force ---- */

bool policy_size_is_same(struct policy_size a, struct policy_size b)
{
	return a.is_percent == b.is_percent && a.value == b.value;
}

void policy_key_copy(enum policy_key key, struct tenant_policy *to,
		     const struct tenant_policy *from)
{
	static const size_t bytes[] = {
		[POLICY_VALUE_SIZE] = sizeof(struct policy_size),
		[POLICY_VALUE_HOST] = sizeof(struct policy_size),
		[POLICY_VALUE_BYTES] = sizeof(uint64_t),
		[POLICY_VALUE_NUMBER] = sizeof(uint64_t),
		[POLICY_VALUE_WEIGHT] = sizeof(uint32_t),
		[POLICY_VALUE_PROCESSORS] = sizeof(float),
		[POLICY_VALUE_PRIORITY] = sizeof(uint8_t),
		[POLICY_VALUE_AUDIT] = sizeof(uint8_t),
		[POLICY_VALUE_SWITCH] = sizeof(uint8_t),
		[POLICY_VALUE_PROGRAM] = sizeof(uint8_t),
		[POLICY_VALUE_TIME] = sizeof(uint64_t),
	};
	size_t offset = policy_key_rows[key].offset;

	memcpy((char *)to + offset, (const char *)from + offset, bytes[policy_key_rows[key].kind]);
}

bool policy_key_is_same(enum policy_key key, const struct tenant_policy *a,
			const struct tenant_policy *b)
{
	const char *x = (const char *)a + policy_key_rows[key].offset;
	const char *y = (const char *)b + policy_key_rows[key].offset;

	switch (policy_key_rows[key].kind) {
	case POLICY_VALUE_SIZE:
	case POLICY_VALUE_HOST:
		return policy_size_is_same(*(const struct policy_size *)x,
					   *(const struct policy_size *)y);
	case POLICY_VALUE_WEIGHT:
		return *(const uint32_t *)x == *(const uint32_t *)y;
	case POLICY_VALUE_PROCESSORS:
		return memcmp(x, y, sizeof(float)) == 0;
	case POLICY_VALUE_PRIORITY:
	case POLICY_VALUE_AUDIT:
	case POLICY_VALUE_SWITCH:
	case POLICY_VALUE_PROGRAM:
		return *x == *y;
	default:
		return *(const uint64_t *)x == *(const uint64_t *)y;
	}
}

int policy_key_change(const struct policy *policy, uint32_t index, const char *name,
		      const char *value, enum policy_key *ret_key, struct tenant_policy *tenant,
		      char **ret_errors)
{
	/* Place in front of each sentence, cut off below. */
	static const char place[] = "administrator";
	struct policy_section section = policy->sections[index];
	struct policy changed = {.sections = &section, .n_sections = 1};
	struct policy_places places = {.file = place};
	struct policy_loader loader = {
		.policy = &changed,
		.places = &places,
		.file = place,
		.section = LOADER_TENANT,
	};
	const struct policy_key_row *key = find_key(name);
	int r;

	section.tenant = *tenant;
	section.reserve_place = NULL;
	if (key && key->kind == POLICY_VALUE_MATCH)
		complain_key(&loader, name,
			     "match keys cannot be changed while brokerd runs; change them in the "
			     "policy file");
	else if (!key || value)
		policy_key_read(&loader, name, value);
	/* Count a key as given if the file or an override gives it. */
	places.key_lines[POLICY_KEY_VRAM_RESERVE] = section.tenant.vram_reserve.value > 0;
	places.key_lines[POLICY_KEY_VRAM_HIGH] =
		(key && key - policy_key_rows == POLICY_KEY_VRAM_HIGH) ||
		!policy_size_is_same(tenant->vram_high, tenant->vram_max);
	if (!loader.error && loader.errors.n == 0)
		check_sizes(&loader, &section, &places);
	free(section.reserve_place);
	r = loader.error;
	if (r == 0 && loader.errors.n > 0)
		r = policy_refuse_change(loader.errors.text, ret_errors);
	if (r == 0) {
		*ret_key = (enum policy_key)(key - policy_key_rows);
		*tenant = section.tenant;
	}
	free(loader.errors.text);
	return r;
}
