/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing profile files
 *
 * The input is a profile file. An accepted file yields a profile whose figures are all in range,
 * and which is the same after it was written and read again. A rejected file must yield messages,
 * each of which begins with the file's name and ends with a line break.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/profile-file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_errors(const char *errors)
{
	const char *end;

	assert(errors && errors[0]);
	for (; *errors; errors = end + 1) {
		end = strchr(errors, '\n');
		assert(end);
		assert(strncmp(errors, "f:", 2) == 0);
	}
}

static void check_again(const struct place_profile *profile)
{
	struct place_profile again;
	char *text = NULL, *errors = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&text, &bytes);

	assert(stream);
	place_profile_write(stream, profile);
	assert(fclose(stream) == 0);
	assert(place_profile_parse("f", text, bytes, &again, &errors) == 0);
	assert(memcmp(again.rates, profile->rates, sizeof(again.rates)) == 0);
	for (size_t i = 0; i < sizeof(again.name) && profile->name[i]; i++)
		assert(again.name[i] == (profile->name[i] == ';' ? '?' : profile->name[i]));
	assert(again.n_servers_per_task == profile->n_servers_per_task);
	assert(again.link_ns == profile->link_ns || profile->up_bytes_per_ns == 0);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct place_profile profile;
	char *errors = NULL;
	int r;

	r = place_profile_parse("f", (const char *)data, bytes, &profile, &errors);
	if (r) {
		assert(r == PLACE_PROFILE_E_INVALID);
		check_errors(errors);
		free(errors);
	} else {
		assert(!place_profile_refusal(&profile));
		check_again(&profile);
	}
	return 0;
}
