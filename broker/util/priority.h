#pragma once
/* SPDX-License-Identifier: MIT */
/* Priorities in their order, and their names for leased programs */
#include <stdint.h>
#include <ringbroker/abi.h>

/* Return the class of an enum rbk_priority, whose numbers are not in order: 0 comes first. */
static inline uint8_t priority_class(uint32_t priority)
{
	switch (priority) {
	case RBK_PRIORITY_URGENT:
		return 0;
	case RBK_PRIORITY_HIGH:
		return 1;
	case RBK_PRIORITY_LOW:
		return 3;
	default:
		return 2;
	}
}

/* Return the name that an enum rbk_priority has for leased programs. */
static inline const char *priority_of_program(uint32_t priority)
{
	switch (priority) {
	case RBK_PRIORITY_URGENT:
		return "urgent";
	case RBK_PRIORITY_HIGH:
		return "high";
	case RBK_PRIORITY_LOW:
		return "background";
	case RBK_PRIORITY_NONE:
		return "none";
	default:
		return "normal";
	}
}
