#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The kernel's dmem controller: device memory of cgroups (Linux 6.14)
 *
 * Each of its files has a line for each region of device memory: the region's name and a number, or
 * "max". A cgroup is meant by its folder's descriptor.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DMEM_E_NO_FILE = 1, /* the cgroup has no such controller, or is gone */
	DMEM_E_NO_REGION,   /* the file does not name it, or tells no number */
	DMEM_E_SEVERAL,     /* of a device's memory: there are several regions of it */
};

enum { DMEM_REGION_BYTES = 64 };
#define DMEM_NO_LIMIT UINT64_MAX

/* As brokerd has devices. @ret: what names of the regions of its memory begin with. */
void dmem_name_memory(uint32_t pci_domain, uint8_t bus, uint8_t device, uint8_t function,
		      char ret[static DMEM_REGION_BYTES]);

/*
 * Which region is a device's memory: that of the name @memory, or of that and a number. Asks the
 * cgroup's dmem.max. Return: 0; DMEM_E_*; negative errno.
 */
int dmem_find(int cgroup_fd, const char *memory, char ret[static DMEM_REGION_BYTES]);

/* What the cgroup's @file says of a region. Return: 0; DMEM_E_*; negative errno. */
int dmem_read(int cgroup_fd, const char *file, const char *region, uint64_t *ret);

/* Return: 0, which does not mean that the kernel has taken it; DMEM_E_NO_FILE; negative errno. */
int dmem_write(int cgroup_fd, const char *file, const char *region, uint64_t value);
