#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The terminal: a picture on it, keys and the mouse from it
 *
 * Alone in using curses. Only cells that have changed are written.
 */
#include "canvas.h"
#include "input.h"

/*
 * Takes over the terminal. @text gets a sentence if it cannot be had. Return: 0; -ENOTTY: standard
 * input or output is none; -ENODEV: its kind, $TERM, is not known, or cannot be
 * had; -EINVAL: $COLUMNS or $LINES is too large.
 */
int terminal_open(bool wants_colours, char *text, size_t bytes);
/* Gives it back as it was. May be called at any time, and twice. */
void terminal_close(void);

/* Can it show our signs? */
bool terminal_has_unicode(void);
/* Fits @canvas to it. Return: 0; -ENOMEM. */
int terminal_fit(struct canvas *canvas);
/* Return: 0; -ENOMEM. */
int terminal_draw(const struct canvas *canvas);
/* Draws everything again with the next picture: something else has written on it. */
void terminal_forget(void);
/* Return: was there something? A change of size is none, but ends waiting for it. */
bool terminal_input(struct input *ret);
