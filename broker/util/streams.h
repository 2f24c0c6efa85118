#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Standard streams
 *
 * A program that is started without one of the three would get that number for the next thing it
 * opens, a connection to a broker say, and what it prints would go there.
 */

/*
 * First of all in main(): all three are there from then on. Where standard output was closed,
 * writing to it fails as it should; the others lead nowhere. A file that may not grow any more is
 * an error like a full disk (EFBIG), and no signal that ends the program.
 */
void streams_init(void);

/*
 * Last of all: what was printed has arrived. Return: @status; 1, with a line to standard error that
 * begins with @program, if it has not.
 */
int streams_finish(const char *program, int status);
