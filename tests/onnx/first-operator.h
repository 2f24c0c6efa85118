#pragma once
/* SPDX-License-Identifier: MIT */
/* The operator that a case is about, to name it. */
#include <stdbool.h>
#include <stddef.h>

/* The operator of the first node of the model at @path, as printable text. Return: is there one? */
bool first_operator(const char *path, char *ret, size_t ret_bytes);
