/* SPDX-License-Identifier: MIT */
/*
 * Profiles on disk
 *
 *	# ringbroker calibration 3 d04f4e0e5cf1a2b3
 *	# brokerd 0.1.0, cpu CPU, 8 workers, ringbroker, avx512, 8 threads, 0000...
 *	# measured 1795219200 complete
 *	# tiles 0232 0202 1232
 *	[device]
 *	...
 *
 * Tiles are numbers of shapes (plan/executor.h): for each operator with a choice of shapes, one
 * number for each class of problems. All are 0 for a device without a choice.
 *
 * The number in the first line is a checksum (FNV-1a, 64 bits) of everything after that line. It
 * detects files that were cut off or damaged, not forgeries. Against forgeries, the owner and the
 * mode of the file are checked. A forgery could only cause wrong estimates: figures are in their
 * ranges or the file is refused.
 *
 * A file is named after the device alone, so that a new driver's profile replaces the old one's. A
 * new file is written under a temporary name in the same folder and renamed.
 */
#include "calibrate/calibrate-cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/profile-file.h"
#include "plan/executor.h"
#include "util/checked.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/state-file.h"

static const char magic[] = "# ringbroker calibration 3 ";

enum { CHECKSUM_DIGITS = 16 };

static uint64_t hash(uint64_t state, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		state = (state ^ (unsigned char)bytes[i]) * 1099511628211u;
	return state;
}

static const uint64_t hash_begin = 14695981039346656037u;

static void print_uuid(const struct executor_info *info, char ret[static 33])
{
	for (unsigned int i = 0; i < sizeof(info->identity.uuid); i++)
		snprintf(ret + 2 * i, 3, "%02x", info->identity.uuid[i]);
}

void calibrate_cache_key(const struct executor_info *info, const char *version,
			 char ret[static CALIBRATE_KEY_BYTES])
{
	static const char *const kinds[] = {[EXECUTOR_CPU] = "cpu",
					    [EXECUTOR_GPU] = "gpu",
					    [EXECUTOR_SOFTWARE_GPU] = "software-gpu"};
	char uuid[33];

	print_uuid(info, uuid);
	snprintf(ret, CALIBRATE_KEY_BYTES, "brokerd %s, %s %s, %s, %s, %" PRIu32 " threads, %s",
		 version, kinds[info->kind], info->name, info->driver, info->paths, info->n_threads,
		 uuid);
	/* The key is a line of a file. */
	for (char *c = ret; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
}

void calibrate_cache_file(const struct executor_info *info, char ret[static CALIBRATE_FILE_BYTES])
{
	uint64_t state = hash(hash_begin, info->name, strlen(info->name));

	state = hash(state, (const char *)info->identity.uuid, sizeof(info->identity.uuid));
	snprintf(ret, CALIBRATE_FILE_BYTES, "device-%016" PRIx64 ".profile", state);
}

/* ---- Reading ---- */

/*
 * Take the first line off @text, without its line break.
 * Return: NULL if there is none.
 */
static char *take_line(char **text)
{
	return strchr(*text, '\n') ? strsep(text, "\n") : NULL;
}

/* "# measured 1795219200 complete" */
static bool parse_measured(const char *line, struct calibrate_cached *ret)
{
	static const char begin[] = "# measured ";
	char *end;

	if (!line || strncmp(line, begin, sizeof(begin) - 1) != 0)
		return false;
	line += sizeof(begin) - 1;
	if (*line < '0' || *line > '9')
		return false;
	errno = 0;
	ret->measured_s = strtoull(line, &end, 10);
	ret->is_complete = strcmp(end, " complete") == 0;
	return errno == 0 && (ret->is_complete || strcmp(end, " partial") == 0);
}

/* "# tiles 0232 0202 1232" */
static bool parse_tiles(const char *line, struct exec_tiles *ret)
{
	static const char begin[] = "# tiles";

	if (!line || strncmp(line, begin, sizeof(begin) - 1) != 0)
		return false;
	line += sizeof(begin) - 1;
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++) {
		if (*line++ != ' ')
			return false;
		for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++, line++) {
			if (*line < '0' || *line >= '0' + EXEC_MAX_TILES)
				return false;
			ret->of[op][class] = (uint8_t)(*line - '0');
		}
	}
	return *line == '\0';
}

/*
 * Parse @text, which is modified.
 * Return: NULL if it is a profile for @key; otherwise a phrase that says why not.
 */
static const char *parse(char *text, size_t n_text, const char *key, struct calibrate_cached *ret,
			 int *ret_error)
{
	char *rest = text, *line, *errors = NULL, checksum[CHECKSUM_DIGITS + 1];
	size_t n_profile;
	int r;

	line = strlen(text) == n_text ? take_line(&rest) : NULL;
	if (!line || strncmp(line, magic, sizeof(magic) - 1) != 0)
		return "it has another format";
	snprintf(checksum, sizeof(checksum), "%016" PRIx64,
		 hash(hash_begin, rest, n_text - (size_t)(rest - text)));
	if (strcmp(line + sizeof(magic) - 1, checksum) != 0)
		return "it is damaged or truncated";
	line = take_line(&rest);
	if (!line || strncmp(line, "# ", 2) != 0 || strcmp(line + 2, key) != 0)
		return "it belongs to another device, driver or version";
	if (!parse_measured(take_line(&rest), ret))
		return "it does not say when it was measured";
	if (!parse_tiles(take_line(&rest), &ret->tiles))
		return "it does not say which tiles were fastest";
	n_profile = n_text - (size_t)(rest - text);
	r = place_profile_parse("profile", rest, n_profile, &ret->profile, &errors);
	free(errors);
	if (r < 0)
		*ret_error = error_fold(r);
	return r ? "its figures are impossible" : NULL;
}

int calibrate_cache_read(const char *folder, const struct executor_info *info, const char *key,
			 struct calibrate_cached *ret, const char **ret_why)
{
	_cleanup_(freep) char *text = NULL;
	char file[CALIBRATE_FILE_BYTES];
	const char *why;
	int error = 0, r;
	size_t n;

	calibrate_cache_file(info, file);
	r = state_file_read(folder, file, PLACE_PROFILE_FILE_BYTES, &text, &n, ret_why);
	if (r == STATE_FILE_E_ABSENT)
		return CALIBRATE_CACHE_E_ABSENT;
	if (r == STATE_FILE_E_REFUSED)
		return CALIBRATE_CACHE_E_REFUSED;
	if (r)
		return error_fold(r);
	why = parse(text, n, key, ret, &error);
	if (error)
		return error;
	if (why)
		*ret_why = why;
	return why ? CALIBRATE_CACHE_E_REFUSED : 0;
}

/* ---- Writing ---- */

static char *print_body(const char *key, const struct calibrate_cached *cached, size_t *ret_bytes)
{
	char *text = NULL;
	FILE *stream = open_memstream(&text, ret_bytes);

	if (!stream)
		return NULL;
	fprintf(stream, "# %s\n# measured %" PRIu64 " %s\n", key, cached->measured_s,
		cached->is_complete ? "complete" : "partial");
	fputs("# tiles", stream);
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++)
		for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++)
			fprintf(stream, "%s%u", class == 0 ? " " : "", cached->tiles.of[op][class]);
	fputc('\n', stream);
	place_profile_write(stream, &cached->profile);
	if (fclose(stream) == 0)
		return text;
	free(text);
	return NULL;
}

int calibrate_cache_write(const char *folder, const struct executor_info *info, const char *key,
			  const struct calibrate_cached *cached)
{
	_cleanup_(freep) char *body = NULL, *text = NULL;
	char file[CALIBRATE_FILE_BYTES];
	size_t n_body;
	int n, r;

	body = print_body(key, cached, &n_body);
	if (!body)
		return error_origin(-ENOMEM);
	n = asprintf(&text, "%s%016" PRIx64 "\n%s", magic, hash(hash_begin, body, n_body), body);
	if (n < 0) {
		text = NULL;
		return error_origin(-ENOMEM);
	}
	calibrate_cache_file(info, file);
	r = state_file_write(folder, file, text, (size_t)n);
	return r ? error_fold(r) : 0;
}
