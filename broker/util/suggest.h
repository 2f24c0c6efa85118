#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Suggestions for mistyped names
 *
 * An unknown name is answered with the most similar known name, if one is similar.
 */

/*
 * Return the name of @names (which ends with NULL) nearest to @word. A name is near if it is the
 * only one that begins with @word, or if few letters are wrong, missing, added or swapped.
 * Return: NULL if none is near.
 */
const char *suggest(const char *word, const char *const *names);
