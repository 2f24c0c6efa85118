/* SPDX-License-Identifier: MIT */
/*
 * Terminal: curses
 *
 * The terminal's contents are kept as cells, so that redrawing a similar picture costs only a
 * comparison. Colour pairs use the terminal's background; pair N + 1 belongs to style N.
 */
#define NCURSES_WIDECHAR 1
#include "terminal.h"

#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <unistd.h>

#include "monitor/text.h"
#include "util/clock.h"

static struct {
	bool is_open;
	SCREEN *screen;
	enum canvas_colours colours;
	struct canvas shown;
	bool is_forgotten;
	/* Events of the mouse to be returned, the newest first: curses keeps as many. */
	struct input mouse[8];
	unsigned int n_mouse;
} terminal;

bool terminal_has_unicode(void)
{
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static void init_colours(void)
{
	if (!has_colors() || start_color() == ERR)
		return;
	use_default_colors();
	terminal.colours = COLORS >= 256 ? CANVAS_256_COLOURS : CANVAS_8_COLOURS;
	for (unsigned int i = 0; i < STYLE_COUNT; i++)
		init_pair((short)(i + 1), (short)canvas_colour(i, terminal.colours), -1);
}

/*
 * Check the size in the environment, which overrides the terminal's. curses stores sizes as shorts.
 * Return: true if the size is supported.
 */
static bool check_size(char *text, size_t bytes)
{
	const char *const names[] = {"COLUMNS", "LINES"};

	for (unsigned int i = 0; i < 2; i++) {
		const char *value = getenv(names[i]);

		if (!value || strtol(value, NULL, 10) <= SHRT_MAX)
			continue;
		snprintf(text, bytes,
			 "%s=%.20s in the environment is larger than any terminal; unset it to use "
			 "the terminal's own size",
			 names[i], text_name(value));
		return false;
	}
	return true;
}

int terminal_open(bool wants_colours, char *text, size_t bytes)
{
	const char *term = getenv("TERM");
	bool is_known, can_draw;
	const char *move;
	int error = 0;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		snprintf(text, bytes, "standard %s is not a terminal: use --batch or --once",
			 isatty(STDOUT_FILENO) ? "input" : "output");
		return -ENOTTY;
	}
	/* newterm() would end the program if it did not know the terminal. */
	is_known = term && term[0] && setupterm(term, STDOUT_FILENO, &error) == OK;
	move = is_known ? tigetstr("cup") : NULL;
	/* A terminal without cursor movement cannot be drawn on. */
	can_draw = move && move != (char *)-1;
	if (is_known)
		del_curterm(cur_term);
	if (is_known && !can_draw) {
		snprintf(text, bytes,
			 "this terminal cannot move its cursor, TERM=%.60s: use --batch", term);
		return -ENODEV;
	}
	if (!is_known) {
		snprintf(text, bytes, "this type of terminal is not known, TERM=%.60s: use --batch",
			 term ? term : "");
		return -ENODEV;
	}
	if (!check_size(text, bytes))
		return -EINVAL;
	terminal.screen = newterm(term, stdout, stdin);
	if (!terminal.screen) {
		snprintf(text, bytes, "curses cannot set up this terminal, TERM=%.60s", term);
		return -ENODEV;
	}
	terminal.is_open = true;
	terminal.colours = CANVAS_NO_COLOURS;
	if (wants_colours)
		init_colours();
	cbreak();
	noecho();
	nonl();
	curs_set(0);
	nodelay(stdscr, TRUE);
	keypad(stdscr, TRUE);
	set_escdelay(25);
	/*
	 * curses reads on, without a limit of time, after an event that this mask does not have:
	 * the mask has all that a terminal sends. It has no clicks, which curses makes of a press
	 * and a release, but not of those before a key in the same read.
	 */
	mousemask(BUTTON1_PRESSED | BUTTON1_RELEASED | BUTTON2_PRESSED | BUTTON2_RELEASED |
			  BUTTON3_PRESSED | BUTTON3_RELEASED | BUTTON4_PRESSED | BUTTON4_RELEASED |
			  BUTTON5_PRESSED | BUTTON5_RELEASED,
		  NULL);
	mouseinterval(0);
	return 0;
}

void terminal_close(void)
{
	if (!terminal.is_open)
		return;
	terminal.is_open = false;
	endwin();
	delscreen(terminal.screen);
	canvas_deinit(&terminal.shown);
}

int terminal_fit(struct canvas *canvas)
{
	int height, width;

	getmaxyx(stdscr, height, width);
	if (canvas->width == width && canvas->height == height)
		return 0;
	return canvas_resize(canvas, width, height);
}

void terminal_forget(void)
{
	terminal.is_forgotten = true;
}

static attr_t attributes_of(enum style style)
{
	unsigned int attributes = canvas_attributes(style);
	attr_t ret = A_NORMAL;

	if (attributes & CANVAS_IS_BOLD)
		ret |= A_BOLD;
	/* A style with a colour of its own is dim enough without the attribute. */
	if (attributes & CANVAS_IS_DIM && canvas_colour(style, terminal.colours) < 0)
		ret |= A_DIM;
	if (attributes & CANVAS_IS_REVERSE)
		ret |= A_REVERSE;
	return ret;
}

int terminal_draw(const struct canvas *canvas)
{
	struct canvas *shown = &terminal.shown;
	bool is_new = terminal.is_forgotten || shown->width != canvas->width ||
		      shown->height != canvas->height;

	if (is_new) {
		if (canvas_resize(shown, canvas->width, canvas->height))
			return -ENOMEM;
		clear();
		terminal.is_forgotten = false;
	}
	for (int i = 0; i < canvas->width * canvas->height; i++) {
		const struct cell *cell = &canvas->cells[i];
		wchar_t code[2] = {cell->code, L'\0'};
		cchar_t character;
		short pair = terminal.colours ? (short)(cell->style + 1) : 0;

		if (memcmp(cell, &shown->cells[i], sizeof(*cell)) == 0)
			continue;
		setcchar(&character, code, attributes_of(cell->style), pair, NULL);
		mvadd_wch(i / canvas->width, i % canvas->width, &character);
		shown->cells[i] = *cell;
	}
	refresh();
	return 0;
}

/* Keep what brokertop uses of the events of the mouse: curses returns the newest first. */
static void read_mouse(void)
{
	const uint64_t now_ns = clock_now_ns();
	MEVENT event;

	while (terminal.n_mouse < sizeof(terminal.mouse) / sizeof(terminal.mouse[0]) &&
	       getmouse(&event) == OK) {
		struct input *input = &terminal.mouse[terminal.n_mouse];

		*input = (struct input){
			.at_ns = now_ns,
			.x = event.x,
			.y = event.y == LINES - 1 ? -1 : event.y,
		};
		if (event.bstate & BUTTON4_PRESSED)
			input->code = INPUT_WHEEL_UP;
		else if (event.bstate & BUTTON5_PRESSED)
			input->code = INPUT_WHEEL_DOWN;
		else if (event.bstate & BUTTON1_PRESSED)
			input->code = INPUT_CLICK;
		else
			continue;
		terminal.n_mouse++;
	}
}

/* Return the code of a key; 0: not used. */
static int key_code(int key)
{
	static const struct {
		int key, code;
	} keys[] = {
		{KEY_UP, INPUT_UP},
		{KEY_DOWN, INPUT_DOWN},
		{KEY_LEFT, INPUT_LEFT},
		{KEY_RIGHT, INPUT_RIGHT},
		{KEY_PPAGE, INPUT_PAGE_UP},
		{KEY_NPAGE, INPUT_PAGE_DOWN},
		{KEY_HOME, INPUT_HOME},
		{KEY_END, INPUT_END},
		{KEY_BACKSPACE, INPUT_BACKSPACE},
		{0x7f, INPUT_BACKSPACE},
		{'\b', INPUT_BACKSPACE},
		{KEY_ENTER, INPUT_ENTER},
		{'\r', INPUT_ENTER},
		{'\n', INPUT_ENTER},
		{0x1b, INPUT_ESCAPE},
		{'\t', INPUT_TAB},
		{KEY_BTAB, INPUT_BACK_TAB},
		{KEY_DC, INPUT_DELETE},
		/* terminfo numbers the shifted function keys from 13. */
		{KEY_F(15), INPUT_SHIFT_F3},
	};

	for (unsigned int i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (keys[i].key == key)
			return keys[i].code;
	if (key >= KEY_F(1) && key <= KEY_F(10))
		return INPUT_F + key - KEY_F0;
	return key >= ' ' && key <= '~' ? key : 0;
}

bool terminal_input(struct input *ret)
{
	int key;

	*ret = (struct input){.code = 0};
	if (terminal.n_mouse) {
		*ret = terminal.mouse[--terminal.n_mouse];
		return true;
	}
	key = getch();
	if (key == ERR)
		return false;
	/* Ctrl-L */
	if (key == '\f')
		terminal_forget();
	if (key == KEY_MOUSE)
		read_mouse();
	else if (key != KEY_RESIZE)
		ret->code = key_code(key);
	return true;
}
