#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Terminal: shows a picture, and reads keys and the mouse
 *
 * Only this file uses curses. Only changed cells are written.
 */
#include "canvas.h"
#include "input.h"

/*
 * Take over the terminal. On failure @text receives a sentence.
 * Return: 0; -ENOTTY: standard input or output is no terminal; -ENODEV: its type ($TERM) is unknown
 * or cannot be used; -EINVAL: $COLUMNS or $LINES is too large.
 */
int terminal_open(bool wants_colours, char *text, size_t bytes);
/* Restore the terminal. May be called at any time, and repeatedly. */
void terminal_close(void);

/* Return true if the terminal can show the canvas's signs. */
bool terminal_has_unicode(void);
/*
 * Resize @canvas to the terminal.
 * Return: 0, or -ENOMEM.
 */
int terminal_fit(struct canvas *canvas);
/* Return: 0, or -ENOMEM. */
int terminal_draw(const struct canvas *canvas);
/* Redraw everything with the next picture, after other output on the terminal. */
void terminal_forget(void);
/*
 * Read one event.
 * Return: true if there was one. A change of size is an event with code 0.
 */
bool terminal_input(struct input *ret);
