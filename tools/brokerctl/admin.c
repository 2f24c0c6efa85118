/* SPDX-License-Identifier: MIT */
/*
 * brokerctl set, evict, drain, force-cpu, reset-stats, log-level: commands that change something
 *
 * The command line names tenants and plans, and requests identify them by number: names are looked
 * up in statistics pages. The broker decides who may change what, and its error text explains a
 * rejected request.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <ringbroker/admin.h>

#include "command.h"
#include "util/suggest.h"
#include "output.h"
#include "records.h"
#include "shm/policy-keys.h"
#include "util/clock.h"
#include "util/plural.h"

/* --- Limits --- */

/* Keys of brokerd.conf(5), for early checks; the broker decides. */
static const char *const keys[] = {
#define NAME(id, name, ...) name,
	POLICY_KEYS(NAME) NULL,
#undef NAME
};

/* Units of the keys' values. */
enum unit {
	UNIT_SIZE,
	UNIT_HOST,
	UNIT_BYTES,
	UNIT_NUMBER,
	UNIT_WEIGHT,
	UNIT_PROCESSORS,
	UNIT_PRIORITY,
	UNIT_AUDIT,
	UNIT_SWITCH,
	UNIT_PROGRAM,
	UNIT_TIME,
};
static const struct {
	enum unit unit;
	uint64_t min, max; /* of numbers */
} key_values[] = {
#define VALUE(id, name, kind, member, min, max, ...) {UNIT_##kind, min, max},
	POLICY_KEYS(VALUE)
#undef VALUE
};
static const char *const unit_texts[] = {
	[UNIT_SIZE] = "size, or share of each device: 2GiB, 512MiB, 25%",
	[UNIT_HOST] = "size, or share of the broker's host-max: 8GiB, 25%",
	[UNIT_BYTES] = "size: 64MiB, 2GiB",
	[UNIT_NUMBER] = "number",
	[UNIT_WEIGHT] = "number",
	[UNIT_PROCESSORS] = "processors, or percent of one: 1.5, 150%; 0: no limit",
	[UNIT_PRIORITY] = "low, normal, high or urgent",
	[UNIT_AUDIT] = "off, warn, priority or stop",
	[UNIT_SWITCH] = "yes or no",
	[UNIT_PROGRAM] = "background, normal, urgent or no",
	[UNIT_TIME] = "time from 1us to 2s: 500us, 1.5ms; or no",
};

void set_print_keys(void)
{
	puts("\nKeys, as in brokerd.conf(5); the value default restores the file's:");
	for (unsigned int i = 0; keys[i]; i++) {
		printf("  %-16s %s", keys[i], unit_texts[key_values[i].unit]);
		if (key_values[i].max > 0)
			printf(" from %llu to %llu", (unsigned long long)key_values[i].min,
			       (unsigned long long)key_values[i].max);
		putchar('\n');
	}
	puts("\nWithout KEY=VALUE the command lists the values in force.");
}

enum { KEY_BYTES = 32 };

/*
 * Find the number of the tenant that @text names.
 * Return: EXIT_*.
 */
static int find_tenant(struct control *control, const char *text, uint32_t *ret_number)
{
	struct rbk_error error = {""};
	struct rbk_stats_tenant own;
	struct pages pages;
	unsigned int whose;
	int r = pages_find_tenant(control->rbk, text, &whose, ret_number, &error);

	if (r)
		return control_refused(control, r, &error);
	if (whose != RBK_STATS_OWN)
		return EXIT_OK;
	r = pages_map(control->rbk, text, &pages, &error);
	if (r)
		return control_refused(control, r, &error);
	tenant_copy(&pages.tenants[0].view, 0, &own);
	*ret_number = own.number;
	pages_unmap(&pages);
	return EXIT_OK;
}

/*
 * Split "KEY=VALUE".
 * Return: the value, or NULL if @text does not have that form.
 */
static const char *split_setting(const char *text, char key[KEY_BYTES])
{
	const char *equals = strchr(text, '=');

	if (!equals || equals == text || equals - text >= KEY_BYTES || equals[1] == '\0')
		return NULL;
	snprintf(key, KEY_BYTES, "%.*s", (int)(equals - text), text);
	return equals + 1;
}

static bool is_key(const char *name)
{
	for (unsigned int i = 0; keys[i]; i++)
		if (strcmp(keys[i], name) == 0)
			return true;
	return false;
}

/*
 * Check all settings before any is applied.
 * Return: EXIT_OK or EXIT_USAGE.
 */
static int check_settings(const struct arguments *arguments)
{
	char key[KEY_BYTES];
	const char *near;

	for (unsigned int i = 1; i < arguments->n_operands; i++) {
		const char *text = arguments->operands[i];

		if (!split_setting(text, key))
			return control_misuse(arguments, "%s is not KEY=VALUE", text_name(text));
		near = is_key(key) ? NULL : suggest(key, keys);
		if (near)
			return control_misuse(arguments, "there is no limit %s; did you mean %s?",
					      text_name(key), near);
	}
	return EXIT_OK;
}

/* Write the value of a key for people; sizes arrive in bytes. */
static const char *value_text(const char *key, const char *value, char text[64])
{
	enum unit unit = UNIT_NUMBER;
	uint64_t bytes;

	for (unsigned int i = 0; keys[i]; i++)
		if (strcmp(keys[i], key) == 0)
			unit = key_values[i].unit;
	if (unit > UNIT_BYTES || !pages_number(value, UINT64_MAX, &bytes))
		return text_name(value);
	if (bytes == UINT64_MAX)
		return "unlimited";
	/* Sizes of whole MiB in the form that set takes, others rounded. */
	if (bytes > 0 && bytes % (1ull << 30) == 0)
		snprintf(text, 64, "%lluGiB", (unsigned long long)(bytes >> 30));
	else if (bytes > 0 && bytes % (1ull << 20) == 0)
		snprintf(text, 64, "%lluMiB", (unsigned long long)(bytes >> 20));
	else
		return text_bytes(bytes);
	return text;
}

/* List a tenant's limits. Return: EXIT_*. */
static int list_limits(struct control *control, const char *name)
{
	struct rbk_error error = {""};
	struct rbk_admin_limit limit;
	char value[64], policy_value[64];
	uint32_t number = 0;
	int status, r;

	status = control_connect_as_admin(control);
	if (status == EXIT_OK)
		status = find_tenant(control, name, &number);
	if (status)
		return status;
	for (uint32_t i = 0, n = 1; i < n; i++) {
		r = rbk_admin_limit(control->rbk, number, i, &limit, &error);
		if (r)
			return control_refused(control, r, &error);
		n = limit.n_limits;
		printf("%s: %s = %s", text_name(name), text_name(limit.key),
		       value_text(limit.key, limit.value, value));
		if (limit.is_changed)
			printf(" (changed; the configuration has %s)",
			       value_text(limit.key, limit.policy_value, policy_value));
		putchar('\n');
	}
	return EXIT_OK;
}

int run_set(struct control *control, const struct arguments *arguments)
{
	const char *name = arguments->operands[0], *value;
	struct rbk_error error = {""};
	char key[KEY_BYTES];
	uint32_t number = 0;
	int status, r;

	if (arguments->n_operands == 1)
		return list_limits(control, name);
	status = check_settings(arguments);
	if (status == EXIT_OK)
		status = control_connect_to_change(control);
	if (status == EXIT_OK)
		status = find_tenant(control, name, &number);
	if (status)
		return status;
	for (unsigned int i = 1; i < arguments->n_operands; i++) {
		value = split_setting(arguments->operands[i], key);
		r = rbk_admin_set(control->rbk, number, key, value, &error);
		if (r) {
			status = control_refused(control, r, &error);
			if (arguments->n_operands > 2)
				fprintf(stderr, "brokerctl: %u of %u limits were changed\n", i - 1,
					arguments->n_operands - 1);
			return status;
		}
		printf("%s: %s = %s", text_name(name), text_name(key), text_name(value));
		if (error.text[0])
			printf(" (%s)", text_name(error.text));
		putchar('\n');
	}
	return EXIT_OK;
}

/* --- Evicting --- */

/*
 * Send one request, and add its counts to *@n_plans and *@bytes.
 * Return: EXIT_*.
 */
static int evict(struct control *control, const struct rbk_admin_evict *what, uint64_t *n_plans,
		 uint64_t *bytes)
{
	struct rbk_error error = {""};
	uint64_t n = 0, n_bytes = 0;
	int r = rbk_admin_evict(control->rbk, what, &n, &n_bytes, &error);

	if (r)
		return control_refused(control, r, &error);
	*n_plans += n;
	*bytes += n_bytes;
	return EXIT_OK;
}

/*
 * Evict every live plan with the given name or id, in all sessions of the tenant.
 * Return: EXIT_*.
 */
static int evict_plans(struct control *control, const struct arguments *arguments,
		       struct rbk_admin_evict *what, uint64_t *n_plans, uint64_t *bytes)
{
	const char *name = arguments->operands[1];
	struct rbk_error error = {""};
	struct pages pages;
	union plan_copy copy;
	uint64_t id = 0;
	bool is_id = pages_number(name, UINT32_MAX, &id), was_found = false;
	int status = EXIT_OK, r;

	r = pages_map(control->rbk, arguments->operands[0], &pages, &error);
	if (r)
		return control_refused(control, r, &error);
	for (uint32_t i = 0;
	     i < rbk_stats_count(&pages.tenants[0].view, RBK_STATS_SECTION_PLANS) && !status; i++) {
		if (!page_copy_plan(&pages.tenants[0].view, i, &copy) ||
		    copy.plan.state != RBK_STATS_PLAN_LIVE ||
		    (strcmp(copy.plan.name, name) != 0 && !(is_id && copy.plan.plan_id == id)))
			continue;
		was_found = true;
		what->session = copy.plan.session;
		what->plan_id = copy.plan.plan_id;
		status = evict(control, what, n_plans, bytes);
	}
	pages_unmap(&pages);
	if (status == EXIT_OK && !was_found)
		return control_fail(EXIT_FAILED, "tenant %s has no plan %s now",
				    text_name(arguments->operands[0]), text_name(name));
	return status;
}

int run_evict(struct control *control, const struct arguments *arguments)
{
	struct rbk_admin_evict what = {.device = RBK_DEVICE_NONE};
	const char *device = arguments->values[OPT_DEVICE];
	uint64_t n_plans = 0, bytes = 0;
	int status;

	if (!arguments->values[OPT_ALL] == !arguments->n_operands)
		return control_misuse(arguments, "give either a tenant or --all");
	if (device && !device_number(device, &what.device))
		return control_misuse(arguments, "there is no device %s; see brokerctl devices",
				      text_name(device));
	status = control_connect_to_change(control);
	if (status == EXIT_OK && arguments->n_operands)
		status = find_tenant(control, arguments->operands[0], &what.tenant);
	if (status)
		return status;
	status = arguments->n_operands < 2
			 ? evict(control, &what, &n_plans, &bytes)
			 : evict_plans(control, arguments, &what, &n_plans, &bytes);
	if (status == EXIT_OK)
		printf("%llu plan%s%s evicted, freeing %s\n", (unsigned long long)n_plans,
		       plural(n_plans), n_plans == 1 ? " is" : " are", text_bytes(bytes));
	return status;
}

/* --- Draining --- */

struct drained_thing {
	bool is_tenant;
	uint32_t number;
	const char *name;
};

/* A drain's progress, and who holds the remaining memory if only clients can release it. */
struct progress {
	struct rbk_admin_drained drained;
	struct rbk_error holders;
};

static int drain(struct control *control, const struct drained_thing *thing, enum rbk_drain action,
		 struct progress *ret)
{
	struct rbk_error *error = &ret->holders;
	int r = thing->is_tenant ? rbk_admin_drain_tenant(control->rbk, thing->number, action,
							  &ret->drained, error)
				 : rbk_admin_drain_device(control->rbk, thing->number, action,
							  &ret->drained, error);

	return r ? control_refused(control, r, error) : EXIT_OK;
}

static void print_drained(const struct drained_thing *thing, const struct progress *progress)
{
	const struct rbk_admin_drained *drained = &progress->drained;
	char what[160];

	snprintf(what, sizeof(what), "%s %s", thing->is_tenant ? "tenant" : "device",
		 text_name(thing->name));
	if (!drained->is_drained)
		printf("%s accepts work\n", what);
	else if (drained->n_tasks == 0 && drained->device_bytes == 0)
		printf("%s is drained\n", what);
	else if (drained->is_held)
		printf("%s is drained; %s remain: %s\n", what, text_bytes(drained->device_bytes),
		       text_name(progress->holders.text));
	else
		printf("%s is being drained: %llu task%s not ended, and %s are not freed yet\n",
		       what, (unsigned long long)drained->n_tasks,
		       drained->n_tasks == 1 ? " has" : "s have",
		       text_bytes(drained->device_bytes));
}

/*
 * Wait, at most @limit_s seconds, until the drained object has no tasks, and no device memory but
 * what clients hold.
 * Return: EXIT_*.
 */
static int await_drained(struct control *control, const struct drained_thing *thing, double limit_s,
			 struct progress *progress)
{
	const struct rbk_admin_drained *drained = &progress->drained;
	const struct timespec pause = {.tv_nsec = 50000000};
	const double end_ns = (double)clock_now_ns() + 1e9 * limit_s;
	int status = EXIT_OK;

	while (status == EXIT_OK && drained->is_drained && !drained->is_held &&
	       (drained->n_tasks > 0 || drained->device_bytes > 0)) {
		if ((double)clock_now_ns() >= end_ns) {
			print_drained(thing, progress);
			return control_fail(EXIT_FAILED, "not drained after %g s", limit_s);
		}
		nanosleep(&pause, NULL);
		status = drain(control, thing, RBK_DRAIN_ASK, progress);
	}
	if (status == EXIT_OK && !drained->is_drained)
		return control_fail(EXIT_FAILED,
				    "%s accepts work again: another administrator has ended "
				    "draining",
				    text_name(thing->name));
	return status;
}

int run_drain(struct control *control, const struct arguments *arguments)
{
	static const char *const kinds[] = {"tenant", "device", NULL};
	const char *kind = arguments->operands[0], *name = arguments->operands[1];
	const char *wait = arguments->values[OPT_WAIT];
	struct drained_thing thing = {.is_tenant = strcmp(kind, "tenant") == 0, .name = name};
	struct progress progress = {.holders = {""}};
	enum rbk_drain action = RBK_DRAIN_BEGIN;
	/* A year: no limit in practice. */
	double limit_s = 31536000;
	int status;

	if (!thing.is_tenant && strcmp(kind, "device") != 0) {
		if (!name)
			return control_misuse(
				arguments,
				"name a tenant or a device: drain tenant %s, or drain device %s",
				text_name(kind), text_name(kind));
		return control_wrong_word(arguments, kind, kinds);
	}
	if (!name)
		return control_misuse(arguments, "which %s?", kind);
	if (!thing.is_tenant && !device_number(name, &thing.number))
		return control_misuse(arguments, "there is no device %s; see brokerctl devices",
				      text_name(name));
	if (arguments->values[OPT_END])
		action = RBK_DRAIN_END;
	if (arguments->values[OPT_STATUS])
		action = RBK_DRAIN_ASK;
	if (!!wait + !!arguments->values[OPT_END] + !!arguments->values[OPT_STATUS] > 1)
		return control_misuse(arguments, "give only one of --wait, --end and --status");
	if (wait && wait[0] && !control_seconds(wait, limit_s, &limit_s))
		return control_misuse(arguments, "--wait takes seconds, not %s", text_name(wait));

	status = action == RBK_DRAIN_ASK ? control_connect_as_admin(control)
					 : control_connect_to_change(control);
	if (status == EXIT_OK && thing.is_tenant)
		status = find_tenant(control, name, &thing.number);
	if (status == EXIT_OK)
		status = drain(control, &thing, action, &progress);
	if (status == EXIT_OK && wait)
		status = await_drained(control, &thing, limit_s, &progress);
	if (status == EXIT_OK)
		print_drained(&thing, &progress);
	if (status == EXIT_OK && wait && progress.drained.is_held)
		return control_fail(EXIT_HELD, "clients hold %s, which draining does not take",
				    text_bytes(progress.drained.device_bytes));
	return status;
}

/* --- Settings --- */

int run_reset_stats(struct control *control, const struct arguments *arguments)
{
	const char *tenant = arguments->values[OPT_TENANT];
	const bool is_all = arguments->values[OPT_ALL];
	unsigned int whose = is_all ? RBK_STATS_ALL : RBK_STATS_OWN;
	struct rbk_error error = {""};
	uint32_t number = 0;
	int status, r;

	if (tenant && is_all)
		return control_misuse(arguments, "give either --tenant or --all");
	status = is_all   ? control_connect_to_change(control)
		 : tenant ? control_connect(control)
			  : control_connect_as_tenant(control);
	if (status)
		return status;
	r = tenant ? pages_find_tenant(control->rbk, tenant, &whose, &number, &error) : 0;
	if (r == 0)
		r = rbk_stats_reset(control->rbk, whose, number, &error);
	return r ? control_refused(control, r, &error) : EXIT_OK;
}

int run_force_cpu(struct control *control, const struct arguments *arguments)
{
	static const char *const words[] = {"on", "off", "status", NULL};
	const char *word = arguments->operands[0];
	struct rbk_error error = {""};
	int value, status, r;

	if (strcmp(word, "on") == 0)
		value = 1;
	else if (strcmp(word, "off") == 0)
		value = 0;
	else if (strcmp(word, "status") == 0)
		value = RBK_ASK;
	else
		return control_wrong_word(arguments, word, words);

	status = value == RBK_ASK ? control_connect(control) : control_connect_to_change(control);
	if (status)
		return status;
	r = rbk_force_cpu(control->rbk, value, &value, &error);
	if (r)
		return control_refused(control, r, &error);
	puts(value ? "on" : "off");
	return EXIT_OK;
}

static const char *const level_names[] = {"error", "warning", "info", "debug", NULL};
static const int level_numbers[] = {3, 4, 6, 7};

int run_log_level(struct control *control, const struct arguments *arguments)
{
	struct rbk_error error = {""};
	int level = RBK_ASK, status, r;
	const char *name = NULL;

	for (unsigned int i = 0; level_names[i] && arguments->n_operands; i++)
		if (strcmp(level_names[i], arguments->operands[0]) == 0)
			level = level_numbers[i];
	if (arguments->n_operands && level == RBK_ASK)
		return control_wrong_word(arguments, arguments->operands[0], level_names);
	status = level == RBK_ASK ? control_connect_as_admin(control)
				  : control_connect_to_change(control);
	if (status)
		return status;
	r = rbk_admin_log_level(control->rbk, level, &level, &error);
	if (r)
		return control_refused(control, r, &error);
	for (unsigned int i = 0; level_names[i]; i++)
		if (level_numbers[i] == level)
			name = level_names[i];
	puts(name ? name : "unknown");
	return EXIT_OK;
}
