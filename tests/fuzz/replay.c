/* SPDX-License-Identifier: MIT */
/*
 * Running a fuzz target without a fuzzing engine
 *
 *	fuzz-NAME CORPUS-DIRECTORY [MUTATIONS]
 *	fuzz-NAME FILE
 *
 * The program runs every file of the corpus through the target, in the order of their names, then
 * MUTATIONS mutations of the files. The mutations are the same in every run, because the random
 * numbers have a fixed seed. An input lies in memory of exactly its length, so that a sanitizer
 * detects an overrun of one byte. If $FUZZ_LAST names a file, the running input is kept in that
 * file: after a crash, it is the culprit.
 */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MAX_BYTES = 1 << 20, MAX_EDITS = 4 };

struct input {
	uint8_t *data;
	size_t bytes;
};

struct corpus {
	struct input *inputs;
	size_t n;
};

static uint64_t random_state = 0x9e3779b97f4a7c15ull;

static uint64_t random_below(uint64_t limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % limit;
}

static void die(const char *what)
{
	fprintf(stderr, "replay: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void run(const uint8_t *data, size_t bytes)
{
	const char *last = getenv("FUZZ_LAST");
	uint8_t *exact = malloc(bytes ? bytes : 1);
	FILE *file;

	if (!exact)
		die("malloc");
	if (bytes)
		memcpy(exact, data, bytes);
	if (last) {
		file = fopen(last, "wb");
		if (!file || fwrite(exact, 1, bytes, file) != bytes || fclose(file))
			die(last);
	}
	LLVMFuzzerTestOneInput(exact, bytes);
	free(exact);
}

static struct input read_input(const char *path)
{
	struct input input = {.data = malloc(MAX_BYTES)};
	FILE *file = fopen(path, "rb");
	uint8_t *exact;

	if (!input.data || !file)
		die(path);
	input.bytes = fread(input.data, 1, MAX_BYTES, file);
	fclose(file);
	exact = realloc(input.data, input.bytes ? input.bytes : 1);
	if (!exact)
		die(path);
	input.data = exact;
	return input;
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static struct corpus read_corpus(const char *path)
{
	struct corpus corpus = {0};
	struct dirent **entries;
	int n = scandir(path, &entries, is_visible, alphasort);
	char name[4096];

	if (n < 0)
		die(path);
	corpus.inputs = calloc((size_t)n + 1, sizeof(*corpus.inputs));
	if (!corpus.inputs)
		die("calloc");
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
		corpus.inputs[corpus.n++] = read_input(name);
		free(entries[i]);
	}
	free(entries);
	return corpus;
}

/* Return a number near a power of two or another boundary. */
static uint64_t interesting(void)
{
	static const uint64_t small[] = {0, 1, 2, 3, 4, 7, 8, 9, 16, 63, 64, 65, 127, 128, 255};
	unsigned int bit = (unsigned int)random_below(64);

	switch (random_below(4)) {
	case 0:
		return small[random_below(sizeof(small) / sizeof(small[0]))];
	case 1:
		return 1ull << bit;
	case 2:
		return (1ull << bit) - 1;
	default:
		return ~0ull << bit;
	}
}

/* Apply one edit to @data, which may grow to @capacity bytes. */
static void edit(const struct corpus *corpus, uint8_t *data, size_t *bytes, size_t capacity)
{
	const struct input *other = &corpus->inputs[random_below(corpus->n)];
	size_t at = *bytes ? random_below(*bytes) : 0, width, n;
	uint64_t value = 0;

	switch (*bytes ? random_below(32) : 31) {
	case 0: /* cut the end off */
		*bytes = at;
		return;
	case 1: /* remove a piece */
		n = random_below(*bytes - at) + 1;
		memmove(data + at, data + at + n, *bytes - at - n);
		*bytes -= n;
		return;
	case 2: /* duplicate a piece */
		n = random_below(*bytes - at) + 1;
		if (*bytes + n > capacity)
			return;
		memmove(data + at + n, data + at, *bytes - at);
		*bytes += n;
		return;
	case 3: /* copy a piece of this input */
		n = random_below(*bytes - at < 128 ? *bytes - at : 128) + 1;
		memmove(data + at, data + random_below(*bytes - n + 1), n);
		return;
	case 4: /* copy a piece of another input */
		n = *bytes - at < 128 ? *bytes - at : 128;
		if (n > other->bytes)
			n = other->bytes;
		if (n)
			memcpy(data + at, other->data + random_below(other->bytes - n + 1), n);
		return;
	case 5:
	case 6: /* flip a bit */
		data[at] ^= (uint8_t)(1u << random_below(8));
		return;
	case 7: /* replace a byte */
		data[at] = (uint8_t)random_below(256);
		return;
	case 31: /* append a byte */
		if (*bytes < capacity)
			data[(*bytes)++] = (uint8_t)random_below(256);
		return;
	/* replace, or change by a bit, a number that is aligned as in the protocol's structures */
	default:
		width = (size_t)1 << random_below(4);
		at -= at % width;
		if (at + width > *bytes)
			return;
		if (random_below(2)) {
			value = interesting();
		} else {
			memcpy(&value, data + at, width);
			value += random_below(9) - 4;
		}
		memcpy(data + at, &value, width);
		return;
	}
}

int main(int argc, char **argv)
{
	uint64_t n_mutations = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	struct corpus corpus;
	struct stat status;
	uint8_t *data;

	if (argc < 2) {
		fprintf(stderr, "usage: %s CORPUS-DIRECTORY|FILE [MUTATIONS]\n", argv[0]);
		return 2;
	}
	if (stat(argv[1], &status) < 0)
		die(argv[1]);
	if (!S_ISDIR(status.st_mode)) {
		struct input input = read_input(argv[1]);

		run(input.data, input.bytes);
		free(input.data);
		return 0;
	}
	corpus = read_corpus(argv[1]);
	data = malloc(MAX_BYTES);
	if (!data)
		die("malloc");
	if (corpus.n == 0) {
		fprintf(stderr, "replay: %s is empty\n", argv[1]);
		return 1;
	}
	run(data, 0);
	for (size_t i = 0; i < corpus.n; i++)
		run(corpus.inputs[i].data, corpus.inputs[i].bytes);
	for (uint64_t i = 0; i < n_mutations; i++) {
		const struct input *input = &corpus.inputs[random_below(corpus.n)];
		size_t bytes = input->bytes;

		memcpy(data, input->data, bytes);
		for (uint64_t n_edits = 1 + random_below(2) * random_below(MAX_EDITS); n_edits > 0;
		     n_edits--)
			edit(&corpus, data, &bytes, MAX_BYTES);
		run(data, bytes);
	}
	printf("%zu inputs and %llu mutations\n", corpus.n, (unsigned long long)n_mutations);
	free(data);
	for (size_t i = 0; i < corpus.n; i++)
		free(corpus.inputs[i].data);
	free(corpus.inputs);
	return 0;
}
