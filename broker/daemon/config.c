/* SPDX-License-Identifier: MIT */
/*
 * Loading, checking and comparing policies
 *
 * Two policies are compared by the lines that --check-config prints about their tenants, which
 * contain every difference.
 */
#include "daemon/config.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/endpoint.h"
#include "util/cgroup.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"
#include "util/plural.h"
#include "util/proc.h"
#include "util/size.h"

static uint64_t machine_bytes(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * Find the least memory.max from the process's cgroup up to the root. Return: UINT64_MAX if there
 * is none, or it cannot be known.
 */
static uint64_t cgroup_memory_max(void)
{
	char root[PATH_MAX], cgroup[PATH_MAX], path[2 * PATH_MAX + 32];
	uint64_t least = UINT64_MAX;
	unsigned long long max;
	FILE *file;

	if (!proc_own_cgroup(cgroup, sizeof(cgroup)) || !cgroup_find_root(root, sizeof(root)))
		return UINT64_MAX;
	for (char *end; (end = strrchr(cgroup, '/')); *end = '\0') {
		snprintf(path, sizeof(path), "%s%s/memory.max", root, cgroup);
		file = fopen(path, "re");
		if (file && fscanf(file, "%llu", &max) == 1 && max < least)
			least = max;
		if (file)
			fclose(file);
	}
	return least;
}

uint64_t config_host_memory(void)
{
	uint64_t machine = machine_bytes(), cgroup = cgroup_memory_max();

	return cgroup < machine ? cgroup : machine;
}

uint64_t config_host_max(const struct options *options)
{
	return options->host_max_bytes > 0 ? options->host_max_bytes : config_host_memory() / 4 * 3;
}

int config_load(struct options *options, struct policy **ret, struct policy_errors *ret_errors)
{
	const struct policy_broker_keys keys = {.read = options_read_key, .context = options};

	return policy_load(options->config_path, options->config_is_required, &keys, ret,
			   ret_errors);
}

static void log_sentences(char *sentences)
{
	char *rest = sentences, *line;

	while ((line = strsep(&rest, "\n")))
		if (*line)
			log_error(LOG_POLICY_INVALID, "%s", line);
}

void config_log_errors(enum log_event event, const char *what, struct policy_errors *errors)
{
	log_sentences(errors->text);
	log_sentences(errors->warnings);
	log_error(event, "%s", what);
	policy_errors_deinit(errors);
}

/*
 * Print a line with words from a file of unknown origin, without control characters for a terminal.
 */
__attribute__((format(printf, 2, 3))) static void print_line(FILE *stream, const char *format, ...)
{
	char *line;
	va_list args;
	int n;

	va_start(args, format);
	n = vasprintf(&line, format, args);
	va_end(args);
	if (n < 0) {
		fputs("out of memory\n", stream);
		return;
	}
	log_clean(line);
	fprintf(stream, "%s\n", line);
	free(line);
}

/* Print sentences, one a line, to standard error. */
static void print_sentences(const char *sentences)
{
	for (const char *line = sentences; line && *line; line += strcspn(line, "\n") + 1)
		print_line(stderr, "%.*s", (int)strcspn(line, "\n"), line);
}

static void print_headroom(const struct policy *policy)
{
	struct policy_size headroom = policy_headroom(policy);
	char text[SIZE_TEXT_BYTES];

	if (headroom.is_percent)
		printf("broker: vram-headroom = %g%%\n", (double)headroom.value / 100);
	else
		printf("broker: vram-headroom = %s\n", size_text(headroom.value, text));
}

static void print_files(const struct policy *policy, const struct options *options)
{
	for (uint32_t i = 0; i < policy_n_files(policy); i++)
		print_line(stdout, "file: %s", policy_file(policy, i));
	if (policy_n_files(policy) == 0)
		print_line(stdout, "file: none; there is no %s", options->config_path);
}

/* ---- In place of a running broker ---- */

/* Write the options on which the devices and their sizes depend. */
static int print_device_options(const struct options *options, char *text, size_t bytes)
{
	return snprintf(text, bytes, "%d,%llu,%u,%llu,%llu,%u,%u", (int)options->vulkan.mode,
			ull(options->vulkan.memory_cap_bytes), options->vulkan.force,
			ull(options->test_device_ns), ull(options->test_device_row_ns),
			options->test_device_gflops, options->test_device_link);
}

void config_state_facts(const struct options *options, const uint64_t *device_bytes,
			uint32_t n_devices, char ret[CONFIG_FACTS_BYTES])
{
	int n = snprintf(ret, CONFIG_FACTS_BYTES, "%s=", CONFIG_FACTS);

	n += print_device_options(options, ret + n, CONFIG_FACTS_BYTES - (size_t)n);
	for (uint32_t i = 0; i < n_devices && n < CONFIG_FACTS_BYTES; i++)
		n += snprintf(ret + n, CONFIG_FACTS_BYTES - (size_t)n, "%c%llu", i ? ',' : ' ',
			      ull(device_bytes[i]));
	if (n < CONFIG_FACTS_BYTES)
		snprintf(ret + n, CONFIG_FACTS_BYTES - (size_t)n, " %s",
			 options->metrics.address.bytes > 0 ? options->metrics.text : "none");
}

/*
 * Check the policy against the devices of the running broker, if the next one has the same; and
 * listen on the metrics' address for a moment if the running broker does not.
 * Return: 0; POLICY_E_INVALID with *ret_errors, or with a sentence printed; negative errno.
 */
static int check_beside(const char *facts, const struct options *options,
			const struct policy *policy, struct policy_errors *ret_errors)
{
	const char *devices = strchr(facts, ' '),
		   *metrics = devices ? strchr(devices + 1, ' ') : NULL, *place;
	uint64_t bytes[RBK_MAX_DEVICES];
	char own[128], sentence[512];
	uint32_t n = 0;
	char *end;
	int r;

	if (!metrics)
		return 0;
	print_device_options(options, own, sizeof(own));
	if (strlen(own) == (size_t)(devices - facts) && strncmp(facts, own, strlen(own)) == 0) {
		for (const char *at = devices + 1; n < RBK_MAX_DEVICES && at < metrics;
		     at = end + 1) {
			bytes[n++] = strtoull(at, &end, 10);
			if (end == at)
				break;
		}
		r = policy_check_devices(policy, bytes, n, ret_errors);
		if (r)
			return r;
	}
	if (options->metrics.address.bytes == 0 ||
	    strcmp(metrics + 1, options->metrics.text) == 0 ||
	    endpoint_try(options, sentence, sizeof(sentence)))
		return 0;
	place = options_is_given(options, "metrics") ? NULL
						     : policy_setting_place(policy, "metrics");
	print_line(stderr, "%s: %s%s", place ? place : "brokerd", place ? "metrics: " : "",
		   sentence);
	return POLICY_E_INVALID;
}

int config_check(const struct options *options)
{
	const char *facts = getenv(CONFIG_FACTS);
	_cleanup_(policy_freep) struct policy *policy = NULL;
	_cleanup_(policy_errors_deinit) struct policy_errors errors = {.n = 0};
	struct options scratch = *options;
	uint64_t device_bytes;
	int r;

	r = config_load(&scratch, &policy, &errors);
	device_bytes = scratch.vulkan.memory_cap_bytes;
	/* The cap is the one fact about devices that is known without opening them. */
	if (r == 0 && device_bytes > 0)
		r = policy_check_devices(policy, &(uint64_t[]){0, device_bytes}[0], 2, &errors);
	if (r == 0 && facts)
		r = check_beside(facts, &scratch, policy, &errors);
	if (r == POLICY_E_INVALID) {
		print_sentences(errors.text);
		print_sentences(errors.warnings);
		return OPTIONS_EXIT_FAILURE;
	}
	if (r) {
		print_line(stderr, "brokerd: cannot check %s: %s", options->config_path,
			   strerror(-r));
		return OPTIONS_EXIT_FAILURE;
	}

	print_sentences(policy_warnings(policy));
	print_files(policy, options);
	print_headroom(policy);
	for (uint32_t i = 0; i < policy_n_settings(policy); i++) {
		const char *key, *value;

		policy_setting(policy, i, &key, &value);
		print_line(stdout, "broker: %s = %s", key, value);
	}
	fputs("placement: ", stdout);
	options_print_place(stdout, &scratch);
	putchar('\n');
	for (uint32_t i = 0; i < policy_n_tenants(policy); i++) {
		char *line = policy_describe(policy, i, config_host_max(&scratch));

		print_line(stdout, "%s", line ? line : "tenant ?: out of memory");
		free(line);
	}
	return 0;
}

/* ---- What a reload changed ---- */

static int find_tenant(const struct policy *policy, const char *name)
{
	for (uint32_t i = 0; i < policy_n_tenants(policy); i++)
		if (strcmp(policy_tenant(policy, i)->name, name) == 0)
			return (int)i;
	return -1;
}

static bool is_same_tenant(const struct policy *a, uint32_t i, const struct policy *b, uint32_t k)
{
	_cleanup_(freep) char *text_a = policy_describe(a, i, 0);
	_cleanup_(freep) char *text_b = policy_describe(b, k, 0);

	return text_a && text_b && strcmp(text_a, text_b) == 0;
}

/* List tenants of @policy that @other lacks, or (@is_changed) has with different settings. */
static void print_tenants(FILE *stream, const char *what, const struct policy *policy,
			  const struct policy *other, bool is_changed)
{
	unsigned int n = 0;
	int k;

	for (uint32_t i = 0; i < policy_n_tenants(policy); i++) {
		const char *name = policy_tenant(policy, i)->name;

		k = find_tenant(other, name);
		if (is_changed ? k < 0 || is_same_tenant(policy, i, other, (uint32_t)k) : k >= 0)
			continue;
		fprintf(stream, "%s%s", n++ ? ", " : what, name);
	}
	if (n > 0)
		fputs("; ", stream);
}

/* Return the value of @key of [broker] in @policy; NULL if it is not set. */
static const char *find_setting(const struct policy *policy, const char *key)
{
	const char *other, *value;

	for (uint32_t i = 0; i < policy_n_settings(policy); i++) {
		policy_setting(policy, i, &other, &value);
		if (strcmp(key, other) == 0)
			return value;
	}
	return NULL;
}

/* When a key of [broker] that has changed takes effect. */
enum effect {
	EFFECT_NOW,
	EFFECT_LATER, /* at the next start */
	EFFECT_NEVER, /* the command line has it, too */
	N_EFFECTS,
};

static enum effect effect_of(const struct options *options, const char *key)
{
	if (options_is_given(options, key))
		return EFFECT_NEVER;
	return options_key_is_live(key) ? EFFECT_NOW : EFFECT_LATER;
}

/*
 * List the keys of @policy with this @effect that @other lacks or, if @is_first, has with another
 * value; after @n keys. Return: @n and their number.
 */
static unsigned int print_keys(FILE *stream, const char *what, const struct options *options,
			       enum effect effect, const struct policy *policy,
			       const struct policy *other, bool is_first, unsigned int n)
{
	const char *key, *value, *there;

	for (uint32_t i = 0; i < policy_n_settings(policy); i++) {
		policy_setting(policy, i, &key, &value);
		there = find_setting(other, key);
		if ((there && (!is_first || strcmp(value, there) == 0)) ||
		    effect_of(options, key) != effect)
			continue;
		fprintf(stream, "%s%s", n++ ? ", " : what, key);
	}
	return n;
}

static void print_changed_keys(FILE *stream, const struct options *options,
			       const struct policy *before, const struct policy *after)
{
	static const char *const texts[N_EFFECTS] = {
		[EFFECT_NOW] = "placement keys changed: ",
		[EFFECT_LATER] = "keys changed that take effect at the next start (brokerctl "
				 "restart): ",
		[EFFECT_NEVER] = "keys changed that have no effect, because the command line has "
				 "them: ",
	};
	unsigned int n;

	for (enum effect effect = 0; effect < N_EFFECTS; effect++) {
		n = print_keys(stream, texts[effect], options, effect, after, before, true, 0);
		n = print_keys(stream, texts[effect], options, effect, before, after, false, n);
		if (n > 0)
			fputs("; ", stream);
	}
}

/* Write the end of the text. Return: the text; NULL if out of memory. */
static char *finish_text(FILE *stream, char **text)
{
	if (fclose(stream) == 0)
		return *text;
	free(*text);
	return NULL;
}

/* The copy has each key and its value, both with their NUL, and an empty key at the end. */
char *config_remember(const struct policy *policy)
{
	const char *key, *value;
	char *text = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&text, &bytes);

	if (!stream)
		return NULL;
	for (uint32_t i = 0; i < policy_n_settings(policy); i++) {
		policy_setting(policy, i, &key, &value);
		fprintf(stream, "%s%c%s%c", key, '\0', value, '\0');
	}
	fputc('\0', stream);
	return finish_text(stream, &text);
}

static const char *remembered_value(const char *key)
{
	return key + strlen(key) + 1;
}

/* Return the value that @key had; NULL: it was not set. */
static const char *find_remembered(const char *started, const char *key)
{
	for (const char *at = started; *at;) {
		const char *value = remembered_value(at);

		if (strcmp(at, key) == 0)
			return value;
		at = value + strlen(value) + 1;
	}
	return NULL;
}

static void print_waiting(FILE *stream, const struct options *options, const char *key,
			  const char *before, const char *after, uint32_t *n)
{
	if ((before && after && strcmp(before, after) == 0) ||
	    effect_of(options, key) != EFFECT_LATER)
		return;
	fprintf(stream, "%s%s", (*n)++ ? ", " : "", key);
}

char *config_waiting(const struct options *options, const char *started,
		     const struct policy *policy, uint32_t *ret_n)
{
	const char *key, *value;
	char *text = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&text, &bytes);

	*ret_n = 0;
	if (!stream)
		return NULL;
	for (uint32_t i = 0; i < policy_n_settings(policy); i++) {
		policy_setting(policy, i, &key, &value);
		print_waiting(stream, options, key, find_remembered(started, key), value, ret_n);
	}
	for (key = started; *key; key = value + strlen(value) + 1) {
		value = remembered_value(key);
		if (!find_setting(policy, key))
			print_waiting(stream, options, key, value, NULL, ret_n);
	}
	return finish_text(stream, &text);
}

char *config_changes(const struct options *options, const struct policy *before,
		     const struct policy *after)
{
	struct policy_size a = policy_headroom(before), b = policy_headroom(after);
	char *text = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&text, &bytes);

	if (!stream)
		return NULL;
	print_tenants(stream, "new tenants: ", after, before, false);
	print_tenants(stream, "changed: ", after, before, true);
	print_tenants(stream, "gone: ", before, after, false);
	if (a.is_percent != b.is_percent || a.value != b.value)
		fputs("vram-headroom changed; ", stream);
	print_changed_keys(stream, options, before, after);
	fflush(stream);
	if (bytes == 0)
		fputs("nothing changed; ", stream);
	fprintf(stream, "%u tenant%s in all", policy_n_tenants(after),
		plural(policy_n_tenants(after)));
	return finish_text(stream, &text);
}
