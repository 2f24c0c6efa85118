/* SPDX-License-Identifier: MIT */
/*
 * For LD_PRELOAD: a program's environment names a lease, and the program does not see that
 */
#include <stdlib.h>

__attribute__((__constructor__)) static void hide(void)
{
	unsetenv("RINGBROKER_VULKAN_LEASE");
}
