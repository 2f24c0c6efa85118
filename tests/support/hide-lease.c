/* SPDX-License-Identifier: MIT */
/* For LD_PRELOAD: hide the lease that a program's environment names from the program */
#include <stdlib.h>

__attribute__((__constructor__)) static void hide(void)
{
	unsetenv("RINGBROKER_VULKAN_LEASE");
}
