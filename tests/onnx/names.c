/* SPDX-License-Identifier: MIT */
/* Files that name cases: parsing and search. */
#include "onnx/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void names_deinit(struct names *names)
{
	free(names->named);
	*names = (struct names){NULL};
}

/*
 * Parse @line, which has no newline.
 * Return: false if it is not an entry.
 */
static bool parse_line(const char *line, struct named *ret)
{
	size_t n = strcspn(line, " :");

	if (n == 0 || n >= sizeof(ret->name) || strlen(line) >= sizeof(ret->why))
		return false;
	memcpy(ret->name, line, n);
	line += n;
	if (strncmp(line, " cpu:", 5) == 0 || strncmp(line, " gpu:", 5) == 0) {
		memcpy(ret->device, line + 1, 3);
		line += 4;
	}
	if (line[0] != ':')
		return false;
	line += 1 + strspn(line + 1, " ");
	strcpy(ret->why, line);
	/* A name needs a reason. */
	return ret->why[0] != '\0';
}

bool names_read(const char *path, struct names *ret)
{
	FILE *file = fopen(path, "re");
	struct names names = {NULL};
	unsigned int n_lines = 0;
	char line[512];
	bool is_good = file != NULL;

	if (!file)
		fprintf(stderr, "onnx-conformance: %s: %s\n", path, strerror(errno));
	while (is_good && fgets(line, sizeof(line), file)) {
		void *more;

		n_lines++;
		line[strcspn(line, "\n")] = '\0';
		if (!line[0] || line[0] == '#')
			continue;
		more = realloc(names.named, (names.n + 1) * sizeof(*names.named));
		if (!more)
			abort();
		names.named = more;
		names.named[names.n] = (struct named){.line = n_lines};
		is_good = parse_line(line, &names.named[names.n]);
		if (!is_good)
			fprintf(stderr, "onnx-conformance: %s:%u: not 'NAME [cpu|gpu]: REASON'\n",
				path, n_lines);
		names.n++;
	}
	if (file)
		fclose(file);
	if (!is_good)
		names_deinit(&names);
	*ret = names;
	return is_good;
}

struct named *names_find(struct names *names, const char *op, const char *name, const char *device)
{
	struct named *of_op = NULL;

	for (size_t i = 0; i < names->n; i++) {
		struct named *named = &names->named[i];

		if (named->device[0] && strcmp(named->device, device) != 0)
			continue;
		if (strcmp(named->name, name) == 0)
			return named;
		if (strcmp(named->name, op) == 0)
			of_op = named;
	}
	return of_op;
}
