#pragma once
/* SPDX-License-Identifier: MIT */
/* The first operator of a model, by which reports name a case. */
#include <stdbool.h>
#include <stddef.h>

/*
 * Return the operator of the first node of the model at @path, as printable text.
 * Return: false if there is none.
 */
bool first_operator(const char *path, char *ret, size_t ret_bytes);
