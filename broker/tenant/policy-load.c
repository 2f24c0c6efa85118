/* SPDX-License-Identifier: MIT */
/*
 * Reading policy files
 *
 * inih parses lines, which this file feeds to it one by one. Input that inih would accept silently
 * is rejected first: lines longer than its buffer, which it would cut; text after a section's
 * bracket; lines without '='. inih gets one line for each line of the file, so that both line
 * counts agree.
 *
 * A line that ends in a backslash is continued, as in systemd units. inih has another rule: an
 * indented line continues the line above, so an indented key would become part of a value. inih
 * therefore sees indentation only where a line is continued.
 *
 * The whole input is read and all errors are reported, not only the first.
 */
#include "tenant/policy.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tenant/policy-private.h"
#include "util/error.h"

enum {
	POLICY_FILE_BYTES = 1 << 20,
	POLICY_LINE_BYTES = 190, /* inih's buffer has 200 */
};

static const char folder_name[] = "tenants.d";
static const char line_break[] = "\n";

#define complain_here(loader, ...) \
	policy_complain(loader, (loader)->file, (loader)->line, NULL, __VA_ARGS__)

/* ---- Lines ---- */

/* Check @length characters of @name, which is not terminated there. */
static bool is_name(const char *name, size_t length)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789-_.";

	for (size_t i = 0; i < length; i++)
		if (!memchr(allowed, name[i], sizeof(allowed) - 1))
			return false;
	return length > 0;
}

static void enter_tenant(struct policy_loader *loader, const char *name, size_t length)
{
	struct policy *policy = loader->policy;
	struct policy_section *sections;
	struct policy_places *places;
	char copy[ACCOUNT_NAME_BYTES];
	uint32_t i;

	loader->section = LOADER_IGNORING;
	if (length >= ACCOUNT_NAME_BYTES || !is_name(name, length)) {
		complain_here(loader,
			      "'%.*s' is not a valid name for a tenant; names have 1 to %d "
			      "letters, digits, '-', '_' and '.'",
			      (int)length, name, ACCOUNT_NAME_BYTES - 1);
		return;
	}
	memcpy(copy, name, length);
	copy[length] = '\0';
	if (strcmp(copy, "broker") == 0) {
		complain_here(loader,
			      "a tenant cannot be called broker: the broker's own use is charged "
			      "under that name");
		return;
	}

	for (i = 0; i < policy->n_sections; i++)
		if (strcmp(policy->sections[i].tenant.name, copy) == 0)
			break;
	if (i < policy->n_sections && loader->places[i].line) {
		complain_here(loader,
			      "tenant %s has a section at %s:%u already; each tenant has one "
			      "section",
			      copy, loader->places[i].file, loader->places[i].line);
		return;
	}
	if (i == POLICY_MAX_TENANTS) {
		complain_here(loader,
			      "there are too many tenants; at most %d are allowed, including the "
			      "default tenant",
			      POLICY_MAX_TENANTS);
		return;
	}
	if (i == policy->n_sections) {
		sections = reallocarray(policy->sections, i + 1, sizeof(*sections));
		if (sections)
			policy->sections = sections;
		places = reallocarray(loader->places, i + 1, sizeof(*places));
		if (places)
			loader->places = places;
		if (!sections || !places) {
			loader->error = error_origin(-ENOMEM);
			return;
		}
		policy_section_init(&policy->sections[i], copy);
		policy->n_sections++;
		loader->places[i] = (struct policy_places){.line = 0};
	}
	loader->places[i].file = loader->file;
	loader->places[i].line = loader->line;
	loader->tenant = i;
	loader->section = LOADER_TENANT;
}

static void enter_broker(struct policy_loader *loader)
{
	loader->section = LOADER_IGNORING;
	if (!loader->is_main) {
		complain_here(loader,
			      "section [broker] belongs in the main file; this file may only have "
			      "sections [tenant NAME]");
	} else if (loader->broker_line) {
		complain_here(loader, "section [broker] is in line %u already; give it once",
			      loader->broker_line);
	} else {
		loader->broker_line = loader->line;
		loader->section = LOADER_BROKER;
	}
}

/* Enter the section of @line, which reaches from the bracket to the last non-blank character. */
static void enter_section(struct policy_loader *loader, const char *line, size_t length)
{
	const char *end = memchr(line, ']', length), *name = line + 1;
	size_t n;

	loader->section = LOADER_IGNORING;
	if (!end || (size_t)(end - line) + 1 != length) {
		complain_here(loader, end ? "text follows the section's ']'; put a comment on a "
					    "line of its own"
					  : "the section's ']' is missing");
		return;
	}
	n = (size_t)(end - name);
	if (n == 6 && memcmp(name, "broker", 6) == 0) {
		enter_broker(loader);
	} else if (n > 7 && memcmp(name, "tenant", 6) == 0 && isblank((unsigned char)name[6])) {
		for (name += 6; isblank((unsigned char)*name); name++)
			;
		enter_tenant(loader, name, (size_t)(end - name));
	} else {
		complain_here(loader,
			      "there is no section [%.*s]; expected [broker] or [tenant NAME]",
			      (int)n, name);
	}
}

/* Check a line. Return: true if the line continues in the next one. */
static bool check_line(struct policy_loader *loader, const char *line, size_t length,
		       bool is_continued)
{
	for (size_t i = 0; i < length; i++) {
		if ((unsigned char)line[i] >= 0x20 && line[i] != 0x7f)
			continue;
		if (line[i] == '\t')
			continue;
		complain_here(loader,
			      "the line has a control character (0x%02x); only text and tabs are "
			      "allowed",
			      (unsigned char)line[i]);
		return false;
	}
	if (length > POLICY_LINE_BYTES) {
		complain_here(loader,
			      "the line has %zu bytes; at most %d are allowed; a backslash at the "
			      "end continues a line in the next one",
			      length, POLICY_LINE_BYTES);
		return false;
	}
	if (length == 0 || (!is_continued && (line[0] == '#' || line[0] == ';')))
		return false;
	if (!is_continued && line[0] == '[') {
		enter_section(loader, line, length);
		return false;
	}
	if (!is_continued && !memchr(line, '=', length)) {
		complain_here(loader,
			      "the line is neither a [section] nor KEY = VALUE nor a # comment");
		return false;
	}
	return line[length - 1] == '\\';
}

/* Read a line as fgets() does, for inih. A rejected line reads as empty. */
static char *next_line(char *buffer, int buffer_bytes, void *stream)
{
	struct policy_loader *loader = stream;
	const char *line = loader->text + loader->at, *end;
	bool is_continued = loader->is_continuing;
	size_t length;

	if (loader->at == loader->n_text || loader->error)
		return NULL;
	end = memchr(line, '\n', loader->n_text - loader->at);
	length = end ? (size_t)(end - line) : loader->n_text - loader->at;
	loader->at += length + (end != NULL);
	loader->line++;
	loader->has_complained = false;
	if (length > 0 && line[length - 1] == '\r')
		length--;
	while (length > 0 && isblank((unsigned char)line[0]))
		line++, length--;
	while (length > 0 && isblank((unsigned char)line[length - 1]))
		length--;

	loader->is_continuing = check_line(loader, line, length, is_continued);
	if (loader->has_complained || (size_t)buffer_bytes < length + 3)
		length = 0;
	if (loader->is_continuing)
		length--;
	snprintf(buffer, (size_t)buffer_bytes, "%s%.*s%s", is_continued ? " " : "", (int)length,
		 length ? line : "", line_break);
	return buffer;
}

/*
 * Return the comment at the end of a value, from its "#"; NULL: none. inih takes ";" for the
 * beginning of a comment, but not "#".
 */
static const char *comment_in(const char *value)
{
	if (value[0] == '#')
		return value;
	for (const char *at = value; (at = strchr(at, '#')); at++)
		if (isblank((unsigned char)at[-1]))
			return at;
	return NULL;
}

/* Read a key and its value, or a continuation line of the value. */
static int on_key(void *data, const char *section, const char *key, const char *value)
{
	struct policy_loader *loader = data;
	const char *comment;

	if (loader->error || loader->has_complained)
		return 1;
	comment = comment_in(value);
	if (comment && loader->section != LOADER_IGNORING)
		policy_warn(loader, loader->file, loader->line, key,
			    "'%s' is part of the value; a comment has a line of its own", comment);
	switch (loader->section) {
	case LOADER_NOWHERE:
		policy_complain(loader, loader->file, loader->line, key,
				"the key is in no section; [broker] or [tenant NAME] must come "
				"first");
		break;
	case LOADER_BROKER:
		policy_broker_key_read(loader, key, value);
		break;
	case LOADER_TENANT:
		policy_key_read(loader, key, value);
		break;
	case LOADER_IGNORING:
		break;
	}
	return 1;
}

/* Parse @text as a file. @file must live as long as the loader. */
static void load_text(struct policy_loader *loader, const char *file, bool is_main,
		      const char *text, size_t n_text)
{
	int line;

	loader->file = file;
	loader->is_main = is_main;
	loader->text = text;
	loader->n_text = n_text;
	loader->at = n_text >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
	loader->line = 0;
	loader->section = LOADER_NOWHERE;
	loader->is_continuing = false;
	line = ini_parse_stream(next_line, loader, on_key, loader);
	if (line == -2)
		loader->error = error_origin(-ENOMEM);
	else if (line > 0)
		policy_complain(loader, file, (unsigned int)line, NULL,
				"the line is neither a [section] nor KEY = VALUE nor a # comment");
}

/* ---- Files ---- */

static char *add_file(struct policy_loader *loader, char *path)
{
	char **files =
		path ? reallocarray(loader->files, loader->n_files + 1, sizeof(*files)) : NULL;

	if (!files) {
		free(path);
		loader->error = error_origin(-ENOMEM);
		return NULL;
	}
	loader->files = files;
	return files[loader->n_files++] = path;
}

static bool is_null_device(const struct stat *status)
{
	return S_ISCHR(status->st_mode) && status->st_rdev == makedev(1, 3);
}

/* Note that a file was read. */
static void note_read(struct policy_loader *loader, const char *path)
{
	struct policy *policy = loader->policy;
	char **files = reallocarray(policy->files, policy->n_files + 1, sizeof(*files));

	if (files)
		policy->files = files;
	if (files && (files[policy->n_files] = strdup(path)))
		policy->n_files++;
	else
		loader->error = error_origin(-ENOMEM);
}

/* Load a file; @path is one of loader->files. */
static void load_file(struct policy_loader *loader, const char *path, bool is_main,
		      bool is_required)
{
	/* O_NONBLOCK: do not wait for the writer of a FIFO. */
	_cleanup_(close_fdp) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	_cleanup_(freep) char *text = NULL;
	struct stat status;
	size_t used = 0;
	ssize_t n = 0;

	if (fd < 0 && errno == ENOENT && !is_required)
		return;
	if (fd < 0 || fstat(fd, &status) < 0) {
		policy_complain(loader, path, 0, NULL, "cannot be opened: %s", strerror(errno));
		return;
	}
	/* A link to /dev/null switches a file off, as it does for systemd units. */
	if (is_null_device(&status))
		return;
	if (!S_ISREG(status.st_mode)) {
		policy_complain(loader, path, 0, NULL,
				"is not a file; expected a file or a link to a file");
		return;
	}
	text = malloc(POLICY_FILE_BYTES + 1);
	if (!text) {
		loader->error = error_origin(-ENOMEM);
		return;
	}
	while (used <= POLICY_FILE_BYTES &&
	       (n = read(fd, text + used, POLICY_FILE_BYTES + 1 - used)) > 0)
		used += (size_t)n;
	if (n < 0)
		policy_complain(loader, path, 0, NULL, "cannot be read: %s", strerror(errno));
	else if (used > POLICY_FILE_BYTES)
		policy_complain(loader, path, 0, NULL, "is larger than 1 MiB, which is the limit");
	else
		load_text(loader, path, is_main, text, used);
	if (!loader->error)
		note_read(loader, path);
}

static int is_drop_in(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return entry->d_name[0] != '.' && length > 5 &&
	       strcmp(entry->d_name + length - 5, ".conf") == 0;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Load every *.conf of the folder beside @path, in the order of their names. */
static void load_folder(struct policy_loader *loader, const char *path)
{
	const char *slash = strrchr(path, '/');
	struct dirent **entries;
	char *folder, *file;
	int n;

	if (asprintf(&folder, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, folder_name) < 0)
		folder = NULL;
	folder = add_file(loader, folder);
	if (!folder)
		return;
	n = scandir(folder, &entries, is_drop_in, compare_names);
	if (n < 0 && errno == ENOMEM)
		loader->error = error_origin(-ENOMEM);
	else if (n < 0 && errno != ENOENT)
		policy_complain(loader, folder, 0, NULL, "cannot be read: %s", strerror(errno));
	if (n < 0)
		return;
	for (int i = 0; i < n; i++) {
		if (asprintf(&file, "%s/%s", folder, entries[i]->d_name) < 0)
			file = NULL;
		if (!loader->error && (file = add_file(loader, file)))
			load_file(loader, file, false, true);
		else
			free(file);
		free(entries[i]);
	}
	free(entries);
}

static void loader_deinit(struct policy_loader *loader)
{
	policy_free(loader->policy);
	for (uint32_t i = 0; i < loader->n_files; i++)
		free(loader->files[i]);
	free(loader->files);
	free(loader->places);
	free(loader->errors.text);
	free(loader->warnings.text);
}

static int loader_init(struct policy_loader *loader)
{
	int r = policy_defaults(&loader->policy);

	loader->errors.max = loader->warnings.max = POLICY_MAX_ERRORS;
	if (r)
		return error_fold(r);
	loader->places = calloc(1, sizeof(*loader->places));
	return loader->places ? 0 : error_origin(-ENOMEM);
}

/* Check the policy, and return it or the sentences. */
static int loader_finish(struct policy_loader *loader, struct policy **ret,
			 struct policy_errors *ret_errors)
{
	if (!loader->error)
		policy_check(loader);
	if (!loader->error)
		loader->error = sentences_end(&loader->errors, loader->files[0]);
	if (loader->error)
		return loader->error;
	if (loader->errors.n > 0) {
		*ret_errors = (struct policy_errors){
			.text = steal_ptr(loader->errors.text),
			/* A comment in a value may be why the value is wrong. */
			.warnings = steal_ptr(loader->warnings.text),
			.n = loader->errors.n,
		};
		return POLICY_E_INVALID;
	}
	loader->policy->warnings = steal_ptr(loader->warnings.text);
	*ret = steal_ptr(loader->policy);
	return 0;
}

int policy_load(const char *path, bool is_required, const struct policy_broker_keys *keys,
		struct policy **ret, struct policy_errors *ret_errors)
{
	_cleanup_(loader_deinit) struct policy_loader loader = {.broker_keys = keys};
	char *file;
	int r = loader_init(&loader);

	if (r)
		return error_fold(r);
	file = add_file(&loader, strdup(path));
	if (file)
		load_file(&loader, file, true, is_required);
	if (!loader.error)
		load_folder(&loader, path);
	return loader_finish(&loader, ret, ret_errors);
}

int policy_load_text(const char *name, const char *text, size_t n_text,
		     const struct policy_broker_keys *keys, struct policy **ret,
		     struct policy_errors *ret_errors)
{
	_cleanup_(loader_deinit) struct policy_loader loader = {.broker_keys = keys};
	char *file;
	int r = loader_init(&loader);

	if (r)
		return error_fold(r);
	file = add_file(&loader, strdup(name));
	if (file)
		load_text(&loader, file, true, text, n_text);
	if (!loader.error)
		note_read(&loader, name);
	return loader_finish(&loader, ret, ret_errors);
}
