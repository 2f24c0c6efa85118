#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Standard streams
 *
 * A program that is started without one of the three streams would get its number for the next
 * descriptor that it opens, a connection to a broker for example, and would print into that.
 */

/*
 * Make sure that all three streams are open; call first in main(). If standard output was closed,
 * writing to it fails as it should; the others discard data. A file at its size limit is an error
 * like a full disk (EFBIG) instead of a signal that ends the program.
 */
void streams_init(void);

/*
 * Flush the output; call last.
 * Return: @status if all output was written; otherwise 1, with a line to standard error that begins
 * with @program.
 */
int streams_finish(const char *program, int status);
