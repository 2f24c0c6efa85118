#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The kernel's dmem controller: device memory of cgroups (Linux 6.14)
 *
 * Each of its files has a line per region of device memory: the region's name and a number, or
 * "max". A cgroup is given by its folder's descriptor.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DMEM_E_NO_FILE = 1, /* the cgroup has no such controller, or is gone */
	DMEM_E_NO_REGION,   /* the file does not name the region, or has no number */
	DMEM_E_SEVERAL,     /* a device's memory has several regions */
};

enum { DMEM_REGION_BYTES = 64 };
#define DMEM_NO_LIMIT UINT64_MAX

/*
 * Write to @ret the name of the memory region of the device at that PCI address, without the number
 * that some drivers append.
 */
void dmem_name_memory(uint32_t pci_domain, uint8_t bus, uint8_t device, uint8_t function,
		      char ret[static DMEM_REGION_BYTES]);

/*
 * Find the region of a device's memory in the cgroup's dmem.max: its name is @memory, or @memory
 * and a number.
 * Return: 0; DMEM_E_*; negative errno.
 */
int dmem_find(int cgroup_fd, const char *memory, char ret[static DMEM_REGION_BYTES]);

/*
 * Read a region's number from the cgroup's @file.
 * Return: 0; DMEM_E_*; negative errno.
 */
int dmem_read(int cgroup_fd, const char *file, const char *region, uint64_t *ret);

/*
 * Write a region's number. The kernel may still ignore it.
 * Return: 0; DMEM_E_NO_FILE; negative errno.
 */
int dmem_write(int cgroup_fd, const char *file, const char *region, uint64_t value);
