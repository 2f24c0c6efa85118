/* SPDX-License-Identifier: MIT */
/* The implementation of volk, a header-only library, compiled here and in no other file. */
#define VOLK_IMPLEMENTATION
#include <volk.h>
