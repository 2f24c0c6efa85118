/* SPDX-License-Identifier: MIT */
/*
 * External data
 *
 * A tensor may name a file beside the model, and a range of it. The name comes from the file's
 * author, so it may only lead to a place below the model's folder. Every component is opened below
 * the one before, without following links. "..", absolute names and files that are not regular are
 * refused. Files are mapped whole, once each, and stay mapped as long as the model.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/onnx/model.h"

#define EXTERNAL_MAX_FILES 4096u

struct external_file {
	struct external_file *next;
	const char *name;
	void *bytes; /* NULL: the file is empty */
	uint64_t n_bytes;
};

void external_deinit(struct external *external)
{
	for (struct external_file *file = external->files; file; file = file->next)
		if (file->bytes)
			munmap(file->bytes, file->n_bytes);
	external->files = NULL;
	if (external->folder >= 0)
		close(external->folder);
	external->folder = -1;
}

/* Open @name below @folder. Return: a descriptor; -EBADMSG if the name is not allowed; -errno. */
static int open_below(int folder, const char *name)
{
	int at = folder, fd = -1;
	char part[256];
	size_t n;

	if (strlen(name) >= 4096)
		return -EBADMSG;
	for (;;) {
		const char *rest = strchr(name, '/');

		n = rest ? (size_t)(rest - name) : strlen(name);
		if (n == 0 || n >= sizeof(part) || (n == 2 && !memcmp(name, "..", 2))) {
			fd = -EBADMSG;
			break;
		}
		memcpy(part, name, n);
		part[n] = 0;
		fd = openat(at, part,
			    rest ? O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC
				 : O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0)
			fd = errno == ELOOP ? -EBADMSG : -errno;
		if (fd < 0 || !rest)
			break;
		if (at != folder)
			close(at);
		at = fd;
		name = rest + 1;
	}
	if (at != folder)
		close(at);
	return fd;
}

static int map_file(struct external *external, struct mem *mem, const char *name,
		    struct external_file **ret, struct rbk_error *error)
{
	struct external_file *file = mem_zero(mem, 1, sizeof(*file));
	struct stat stat;
	int fd, r = 0;

	if (!file)
		return onnx_error(error, mem_error(mem), "out of memory");
	if (external->n_files >= EXTERNAL_MAX_FILES)
		return onnx_error(error, -EFBIG, "the model's data is in more than %u files",
				  EXTERNAL_MAX_FILES);
	fd = open_below(external->folder, name);
	if (fd == -EBADMSG)
		return onnx_error(
			error, fd,
			"external data \"%s\" is not a plain name below the model's folder", name);
	if (fd < 0)
		return onnx_error(error, fd, "cannot open external data \"%s\": %m", name);
	if (fstat(fd, &stat))
		r = -errno;
	else if (!S_ISREG(stat.st_mode))
		r = -EBADMSG;
	if (!r && stat.st_size > 0) {
		file->bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (file->bytes == MAP_FAILED)
			r = -errno;
	}
	close(fd);
	if (r == -EBADMSG)
		return onnx_error(error, r, "external data \"%s\" is not a regular file", name);
	if (r)
		return onnx_error(error, r, "cannot read external data \"%s\": %m", name);
	file->name = name;
	file->n_bytes = (uint64_t)stat.st_size;
	file->next = external->files;
	external->files = file;
	external->n_files++;
	*ret = file;
	return 0;
}

/* Parse a decimal number. Return: false if @text has any other character. */
static bool parse_number(const char *text, uint64_t *ret)
{
	uint64_t value = 0;

	if (!*text)
		return false;
	for (; *text; text++)
		if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return false;
	*ret = value;
	return true;
}

int external_find(struct external *external, struct mem *mem, const Onnx__TensorProto *proto,
		  uint64_t n_bytes, const void **ret, struct rbk_error *error)
{
	const char *name = proto->name ? proto->name : "", *location = NULL;
	uint64_t offset = 0, length = n_bytes;
	struct external_file *file;
	int r;

	for (size_t i = 0; i < proto->n_external_data; i++) {
		const char *key = proto->external_data[i]->key;
		const char *value = proto->external_data[i]->value;

		if (!key || !value)
			continue;
		if (!strcmp(key, "location"))
			location = value;
		else if (!strcmp(key, "offset") && !parse_number(value, &offset))
			return onnx_error(error, -EBADMSG,
					  "tensor \"%s\": its offset \"%s\" is not a number", name,
					  value);
		else if (!strcmp(key, "length") && !parse_number(value, &length))
			return onnx_error(error, -EBADMSG,
					  "tensor \"%s\": its length \"%s\" is not a number", name,
					  value);
	}
	if (!location)
		return onnx_error(error, -EBADMSG,
				  "tensor \"%s\" is in another file, but the file is not named",
				  name);
	if (length != n_bytes)
		return onnx_error(
			error, -EBADMSG,
			"tensor \"%s\" has %llu bytes in \"%s\", but its type and shape require "
			"%llu",
			name, (unsigned long long)length, location, (unsigned long long)n_bytes);

	for (file = external->files; file; file = file->next)
		if (!strcmp(file->name, location))
			break;
	if (!file) {
		r = map_file(external, mem, location, &file, error);
		if (r)
			return r;
	}
	if (offset > file->n_bytes || n_bytes > file->n_bytes - offset)
		return onnx_error(error, -EBADMSG,
				  "tensor \"%s\": %llu bytes at %llu end beyond the %llu of \"%s\"",
				  name, (unsigned long long)n_bytes, (unsigned long long)offset,
				  (unsigned long long)file->n_bytes, location);
	*ret = (const char *)file->bytes + offset;
	return 0;
}
