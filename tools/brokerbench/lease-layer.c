/* SPDX-License-Identifier: MIT */
/* The Vulkan layer of leases: see lease-layer.h. */
#include "lease-layer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

char lease_layer_name[] = "VK_LAYER_RINGBROKER_lease";

void lease_layer_find(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);
	char *end;

	setenv("RINGBROKER_VULKAN_LEASE", "0", 1);
	if (n <= 0)
		return;
	path[n] = '\0';
	for (int i = 0; i < 2; i++) {
		end = strrchr(path, '/');
		if (!end)
			return;
		*end = '\0';
	}
	strcat(path, "/libclient/layer/built");
	if (!access(path, R_OK))
		setenv("VK_LAYER_PATH", path, 1);
}
