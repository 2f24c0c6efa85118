/* SPDX-License-Identifier: MIT */
/*
 * Reading sysfs
 *
 * Files are opened at each look, because their device can be unplugged and another take its place.
 * A sensor whose card is asleep answers with an error. Units are the kernel's
 * (Documentation/hwmon/sysfs-interface.rst): microwatts, millidegrees Celsius, hertz; percent for
 * the busy files.
 */
#include "telemetry/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/checked.h"
#include "util/cleanup.h"

/* Return: the bytes read into @ret, which ends with NUL; 0 if nothing was read. */
static size_t read_text(const char *folder, const char *name, char *ret, size_t bytes)
{
	_cleanup_(close_fdp) int fd = -1;
	char path[SYSFS_PATH_BYTES + 64];
	ssize_t n;

	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return 0;
	n = read(fd, ret, bytes - 1);
	if (n <= 0)
		return 0;
	ret[n] = '\0';
	return (size_t)n;
}

static struct reading read_number(const char *folder, const char *name)
{
	struct reading none = {0, false}, found = {0, true};
	char text[32];
	size_t i = 0;

	if (!folder[0] || read_text(folder, name, text, sizeof(text)) == 0)
		return none;
	for (; text[i] >= '0' && text[i] <= '9'; i++)
		if (!checked_mul(found.value, 10, &found.value) ||
		    !checked_add(found.value, (uint64_t)(text[i] - '0'), &found.value))
			return none;
	if (i == 0 || (text[i] != '\n' && text[i] != '\0'))
		return none;
	return found;
}

void sysfs_init(struct sysfs *sysfs, const char *root, const char *pci)
{
	struct dirent *entry;
	char path[SYSFS_PATH_BYTES + 8];
	DIR *folder;

	memset(sysfs, 0, sizeof(*sysfs));
	if (snprintf(sysfs->device, sizeof(sysfs->device), "%s/%s", root, pci) >=
	    (int)sizeof(sysfs->device)) {
		sysfs->device[0] = '\0';
		return;
	}
	snprintf(path, sizeof(path), "%s/hwmon", sysfs->device);
	folder = opendir(path);
	if (!folder)
		return;
	while ((entry = readdir(folder))) {
		if (strncmp(entry->d_name, "hwmon", 5) != 0)
			continue;
		if (snprintf(sysfs->hwmon, sizeof(sysfs->hwmon), "%s/%.16s", path, entry->d_name) >=
		    (int)sizeof(sysfs->hwmon))
			sysfs->hwmon[0] = '\0';
		break;
	}
	closedir(folder);
}

struct reading sysfs_read(const struct sysfs *sysfs, const char *name)
{
	return read_number(sysfs->device, name);
}

struct reading sysfs_read_hwmon(const struct sysfs *sysfs, const char *name)
{
	return read_number(sysfs->hwmon, name);
}

bool sysfs_is_asleep(const struct sysfs *sysfs)
{
	char text[32];

	return sysfs->device[0] &&
	       read_text(sysfs->device, "power/runtime_status", text, sizeof(text)) > 0 &&
	       strncmp(text, "suspended", 9) == 0;
}
