#pragma once
/* SPDX-License-Identifier: MIT */
/* Changes that an administrator has confirmed. */
#include "input.h"

/*
 * Request the change from the broker. @text receives a sentence about the result.
 * Return: 0, or the broker's negative errno.
 */
int change_carry_out(struct rbk *rbk, const struct change *change, char *text, size_t bytes);
