#pragma once
/* SPDX-License-Identifier: MIT */
/* Carrying out what an administrator has confirmed. */
#include "input.h"

/*
 * Asks the broker. @text gets a sentence that says what came of it. Return: 0; the broker's
 * negative errno.
 */
int change_carry_out(struct rbk *rbk, const struct change *change, char *text, size_t bytes);
