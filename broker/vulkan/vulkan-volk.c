/* SPDX-License-Identifier: MIT */
/* The implementation of volk, which ships as a header: compiled here and nowhere else. */
#define VOLK_IMPLEMENTATION
#include <volk.h>
