/* SPDX-License-Identifier: MIT */
/*
 * The dmem controller: see dmem.h.
 *
 * DRM drivers name their regions "drm/" with the device's address and the kind of memory:
 * "drm/0000:03:00.0/vram" for amdgpu. Drivers with several regions append a number.
 */
#include "util/dmem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"

enum { TEXT_BYTES = 16384 };

void dmem_name_memory(uint32_t pci_domain, uint8_t bus, uint8_t device, uint8_t function,
		      char ret[static DMEM_REGION_BYTES])
{
	snprintf(ret, DMEM_REGION_BYTES, "drm/%04x:%02x:%02x.%x/vram", pci_domain, bus, device,
		 function & 7u);
}

/* A removed cgroup has no files, or unreadable ones. */
static int open_error(void)
{
	return errno == ENOENT || errno == ENODEV || errno == ENOTDIR ? DMEM_E_NO_FILE : -errno;
}

/* Read whole lines as a NUL-terminated text. */
static int read_lines(int cgroup_fd, const char *file, char text[static TEXT_BYTES])
{
	_cleanup_(close_fdp) int fd = openat(cgroup_fd, file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t used = 0;
	ssize_t n = 0;
	char *end;

	if (fd < 0)
		return open_error();
	while (used < TEXT_BYTES - 1 && (n = read(fd, text + used, TEXT_BYTES - 1 - used)) > 0)
		used += (size_t)n;
	if (n < 0)
		return open_error();
	text[used] = '\0';
	/* Drop a partial last line. */
	end = memrchr(text, '\n', used);
	*(end ? end + 1 : text) = '\0';
	return 0;
}

/*
 * Take the next line's name and value. A line of another form has an empty name.
 * Return: false if no line is left.
 */
static bool take_line(char **rest, char **ret_name, char **ret_value)
{
	char *line = *rest, *end = strchr(line, '\n'), *space;

	if (!end)
		return false;
	*end = '\0';
	*rest = end + 1;
	space = strchr(line, ' ');
	*ret_name = line;
	*ret_value = space ? space + 1 : end;
	if (space)
		*space = '\0';
	else
		**ret_name = '\0';
	return true;
}

static bool is_region_of(const char *name, const char *memory)
{
	size_t n = strlen(memory);

	return n > 0 && strncmp(name, memory, n) == 0 &&
	       name[n + strspn(name + n, "0123456789")] == '\0';
}

int dmem_find(int cgroup_fd, const char *memory, char ret[static DMEM_REGION_BYTES])
{
	char text[TEXT_BYTES], *rest = text, *name, *value;
	const char *found = NULL;
	int r = read_lines(cgroup_fd, "dmem.max", text);

	if (r)
		return r;
	while (take_line(&rest, &name, &value)) {
		if (!is_region_of(name, memory) || strlen(name) >= DMEM_REGION_BYTES)
			continue;
		if (found)
			return DMEM_E_SEVERAL;
		found = name;
	}
	if (!found)
		return DMEM_E_NO_REGION;
	snprintf(ret, DMEM_REGION_BYTES, "%s", found);
	return 0;
}

static bool parse(const char *text, uint64_t *ret)
{
	uint64_t value = 0;

	if (strcmp(text, "max") == 0) {
		*ret = DMEM_NO_LIMIT;
		return true;
	}
	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' ||
		    __builtin_mul_overflow(value, (uint64_t)10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return false;
	}
	*ret = value;
	return true;
}

int dmem_read(int cgroup_fd, const char *file, const char *region, uint64_t *ret)
{
	char text[TEXT_BYTES], *rest = text, *name, *value;
	int r = read_lines(cgroup_fd, file, text);

	if (r)
		return r;
	while (take_line(&rest, &name, &value))
		if (*region && strcmp(name, region) == 0)
			return parse(value, ret) ? 0 : DMEM_E_NO_REGION;
	return DMEM_E_NO_REGION;
}

int dmem_write(int cgroup_fd, const char *file, const char *region, uint64_t value)
{
	_cleanup_(close_fdp) int fd = openat(cgroup_fd, file, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	char line[DMEM_REGION_BYTES + 32];
	int n;

	if (fd < 0)
		return open_error();
	if (value == DMEM_NO_LIMIT)
		n = snprintf(line, sizeof(line), "%s max\n", region);
	else
		n = snprintf(line, sizeof(line), "%s %" PRIu64 "\n", region, value);
	if (n < 0 || n >= (int)sizeof(line))
		return -ENAMETOOLONG;
	/* A partial write would set another limit. */
	return write(fd, line, (size_t)n) == n ? 0 : open_error();
}
