#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What somebody meant to type
 *
 * A name that is not known is answered with the one that it most resembles, if it resembles any.
 */

/*
 * The one of @names, which NULL ends, that is nearest to @word: it begins with it and no other one
 * does, or few letters are wrong, missing, too many or swapped. Return: NULL if none is near.
 */
const char *suggest(const char *word, const char *const *names);
