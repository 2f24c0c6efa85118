/* SPDX-License-Identifier: MIT */
/*
 * brokertop: shows a broker's tenants as htop shows processes
 *
 * The main loop reads the pages, draws, and waits for a key or the next update. Without a terminal
 * the same picture is printed as lines. Everything shown is read from shared memory; the broker is
 * asked only for changes that the user confirms.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "util/suggest.h"
#include "monitor/text.h"
#include "picture.h"
#include "player.h"
#include "recorder.h"
#include "report.h"
#include "settings.h"
#include "source.h"
#include "terminal.h"
#include "util/clock.h"
#include "util/streams.h"

enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NO_BROKER = 3,
	EXIT_NOT_PERMITTED = 4,
};

enum {
	DEFAULT_WIDTH = 120,
	DEFAULT_HEIGHT = 40,
	MAX_SIDE = 1000,
	FIRST_ANSWER_MS = 100,
	MAX_LONGS = 31
};
static const uint64_t second_ns = 1000000000;

struct options {
	const char *socket_path, *tenant, *page_path, *record_path;
	uint64_t delay_ns;
	uint64_t n_updates; /* of --batch; 0: no limit */
	enum view view;
	int width, height; /* 0: the terminal's size */
	bool is_once, is_batch, is_json, is_ascii, has_delay;
	bool has_colours, has_colours_anywhere; /* on a terminal; also in files and pipes */
};

struct top {
	struct options options;
	struct source source;
	struct player player;
	struct model model;
	struct picture picture;
	struct origin origin;
	struct canvas canvas;
	char host[65];
	char settings_path[PATH_MAX]; /* "": not known */
};

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
	stop_signal = number;
}

/*
 * Write a line to standard error, after restoring the terminal.
 * Return: @status.
 */
static int fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int fail(int status, const char *format, ...)
{
	char text[RBK_ERROR_BYTES];
	va_list args;

	terminal_close();
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* The text may contain broker messages and file names. */
	fprintf(stderr, "brokertop: %s\n", text_name(text));
	return status;
}

static int out_of_memory(void)
{
	return fail(EXIT_FAILED, "out of memory");
}

/* --- Looking --- */

/* Return why the user may not make changes; NULL: the user may. */
static const char *why_not(const struct top *top)
{
	if (top->origin.is_recorded)
		return "this is a recording: it cannot be changed";
	if (!top->source.rbk)
		return "there is no broker: nothing can be changed";
	return top->source.why_not[0] ? top->source.why_not : NULL;
}

static void hear_of_change(struct top *top)
{
	struct picture *picture = &top->picture;
	int change_r;
	const char *said = source_said(&top->source, &change_r);

	if (!said)
		return;
	snprintf(picture->message, sizeof(picture->message), "%s", said);
	picture->message_style = change_r ? STYLE_BAD : STYLE_GOOD;
}

/* Return the data needed from tenants' pages: MODEL_*. */
static unsigned int wants(const struct top *top)
{
	return top->options.is_json ? MODEL_PLANS | MODEL_DECISIONS : picture_wants(&top->picture);
}

/*
 * Update the model from a broker's pages, unless the display is paused.
 * Return: 0, or -ENOMEM.
 */
static int look_at_pages(struct top *top)
{
	const unsigned int settled = top->source.is_settled ? 0 : MODEL_UNSETTLED;

	if (top->picture.is_paused) {
		model_resume(&top->model);
		return 0;
	}
	return model_update(&top->model, &top->source.pages, top->source.only,
			    wants(top) | settled);
}

/*
 * Update the model and the picture.
 * Return: 0, or -ENOMEM.
 */
static int look(struct top *top)
{
	const uint64_t now_ns = clock_now_ns();
	int r;

	if (top->origin.is_recorded) {
		snprintf(top->origin.warning, sizeof(top->origin.warning), "%s",
			 player_is_at_cut(&top->player)
				 ? "the recording was cut: this is its last whole moment"
				 : "");
		return picture_update(&top->picture, &top->model);
	}
	source_update(&top->source, wants(top), now_ns);
	hear_of_change(top);
	source_warning(&top->source, now_ns, top->origin.warning, sizeof(top->origin.warning));
	top->origin.now_ns = clock_read_ns(CLOCK_REALTIME);
	top->origin.may_change = !why_not(top);
	r = look_at_pages(top);
	return r ? r : picture_update(&top->picture, &top->model);
}

static int recording_failed(const struct top *top, int r)
{
	const char *path = top->options.page_path;

	if (r == -ENOMEM)
		return out_of_memory();
	if (r < 0)
		return fail(EXIT_FAILED, "cannot read %s: %s", path, strerror(-r));
	return fail(EXIT_FAILED, "%s is no recording of statistics pages", path);
}

/* Return: EXIT_*, after an error message if it is not EXIT_OK. */
static int show_recorded(struct top *top)
{
	int r = player_show(&top->player, top->options.tenant, &top->source.pages,
			    &top->source.only, &top->model);

	return r ? recording_failed(top, r) : EXIT_OK;
}

/* Open a recording at its last moment, which --once shows and which knows all tenants. */
static int open_recording(struct top *top)
{
	int r = player_open(&top->player, top->options.page_path), status;

	if (r)
		return recording_failed(top, r);
	top->origin.is_recorded = top->picture.is_played = true;
	top->player.step_ns = top->options.has_delay ? top->options.delay_ns : 0;
	top->player.wanted = top->player.n_moments - 1;
	status = show_recorded(top);
	if (status == EXIT_OK && top->source.only == UINT32_MAX)
		return fail(EXIT_FAILED, "there is no tenant %s in %s", top->options.tenant,
			    top->options.page_path);
	return status;
}

static int status_of(int r)
{
	switch (r) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -ECONNRESET:
		return EXIT_NO_BROKER;
	case -EACCES:
	case -EPERM:
		return EXIT_NOT_PERMITTED;
	default:
		return EXIT_FAILED;
	}
}

/*
 * Connect for the first time. On a terminal, wait for a broker that does not run yet, and show that
 * a broker does not answer. For lines, wait for every answer.
 */
static int open_source(struct top *top, bool is_terminal)
{
	int r = source_open(&top->source, top->options.socket_path, top->options.tenant,
			    !is_terminal, FIRST_ANSWER_MS);

	if (r == 0 || r == SOURCE_E_LATER || (is_terminal && status_of(r) == EXIT_NO_BROKER))
		return EXIT_OK;
	return fail(status_of(r), "%s", top->source.error.text);
}

/* --- Lines --- */

/* Sleep without reading standard input, which may be a pipe of another program. */
static void sleep_ns(uint64_t ns)
{
	const struct timespec pause = {(time_t)(ns / second_ns), (long)(ns % second_ns)};

	nanosleep(&pause, NULL);
}

static void choose_size(struct options *options)
{
	const char *columns = getenv("COLUMNS"), *lines = getenv("LINES");
	struct winsize size = {.ws_col = 0};
	uint64_t value;

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	if (!options->width && pages_number(columns ? columns : "", MAX_SIDE, &value) && value)
		options->width = (int)value;
	if (!options->height && pages_number(lines ? lines : "", MAX_SIDE, &value) && value)
		options->height = (int)value;
	if (!options->width)
		options->width = size.ws_col ? size.ws_col : DEFAULT_WIDTH;
	if (!options->height)
		options->height = size.ws_row ? size.ws_row : DEFAULT_HEIGHT;
}

/* Return: false if output failed, for example because the reader has gone. */
static bool print_picture(struct top *top, bool is_first)
{
	const struct options *options = &top->options;
	const enum canvas_colours colours =
		options->has_colours && (options->has_colours_anywhere || isatty(STDOUT_FILENO))
			? CANVAS_256_COLOURS
			: CANVAS_NO_COLOURS;

	if (top->options.is_json) {
		report_json(&top->model, &top->origin);
	} else {
		if (!is_first)
			putchar('\n');
		picture_draw(&top->picture, &top->model, &top->origin, &top->canvas, false);
		canvas_print(&top->canvas, stdout, colours);
	}
	/* Errors of earlier buffer flushes count, too. */
	return fflush(stdout) == 0 && !ferror(stdout);
}

static int write_failed(void)
{
	/* A reader that has closed the pipe is no error. */
	return errno == EPIPE ? EXIT_OK : fail(EXIT_FAILED, "cannot write: %s", strerror(errno));
}

/* Wait up to 2 s for the two broker updates that rates need. */
static int await_rates(struct top *top)
{
	const uint64_t end_ns = clock_now_ns() + 2 * second_ns;

	while (!top->model.has_rates && !stop_signal && clock_now_ns() < end_ns) {
		sleep_ns(second_ns / 20);
		if (look(top))
			return out_of_memory();
	}
	return EXIT_OK;
}

/* Print the moments of a recording in order, or only the last one. */
static int print_recorded(struct top *top)
{
	struct player *player = &top->player;
	const uint32_t n =
		top->options.is_once ? 1
		: top->options.n_updates > 0 && top->options.n_updates < player->n_moments
			? (uint32_t)top->options.n_updates
			: player->n_moments;

	for (uint32_t i = 0; i < n && !stop_signal; i++) {
		int status;

		if (!top->options.is_once)
			player->wanted = i;
		status = show_recorded(top);
		if (status)
			return status;
		if (look(top))
			return out_of_memory();
		if (!print_picture(top, i == 0))
			return write_failed();
	}
	return EXIT_OK;
}

static int run_lines(struct top *top)
{
	uint64_t n = 0;

	choose_size(&top->options);
	if (canvas_resize(&top->canvas, top->options.width, top->options.height))
		return out_of_memory();
	if (top->origin.is_recorded)
		return print_recorded(top);
	if (look(top))
		return out_of_memory();
	if (top->source.state == SOURCE_LIVE && top->source.pages.root.page)
		pages_await_listing(&top->source.pages.root);
	if (await_rates(top) || look(top))
		return out_of_memory();
	while (!stop_signal) {
		if (!print_picture(top, n == 0))
			return write_failed();
		n++;
		if (top->options.is_once || n == top->options.n_updates)
			break;
		sleep_ns(top->options.delay_ns);
		if (look(top))
			return out_of_memory();
	}
	return EXIT_OK;
}

/* --- Recording --- */

/* Wait up to 2 s until the pages have the figures of an update after they were mapped. */
static void await_update(struct source *source)
{
	const uint64_t end_ns = clock_now_ns() + 2 * second_ns;

	while (source->state == SOURCE_LIVE && !source->is_settled && !stop_signal &&
	       clock_now_ns() < end_ns) {
		sleep_ns(second_ns / 20);
		source_update(source, true, clock_now_ns());
	}
}

static int run_record(struct top *top)
{
	const char *path = top->options.record_path;
	FILE *file = fopen(path, "w");
	/* Rates need two moments. */
	uint64_t n_moments = top->options.n_updates ? top->options.n_updates : 2, n_written = 0;
	struct recorder recorder;
	int r = 0;

	if (!file)
		return fail(EXIT_FAILED, "cannot write %s: %s", path, strerror(errno));
	recorder_init(&recorder, file);
	for (uint64_t n = 0; r == 0 && n < n_moments && !stop_signal; n++) {
		if (n > 0)
			sleep_ns(top->options.delay_ns);
		source_update(&top->source, true, clock_now_ns());
		if (n == 0)
			await_update(&top->source);
		if (top->source.state == SOURCE_GONE)
			break;
		/* The pages of a silent broker have not changed. */
		if (top->source.state != SOURCE_LIVE)
			continue;
		r = recorder_write(&recorder, &top->source.pages);
		n_written++;
	}
	recorder_deinit(&recorder);
	if (fclose(file) && r == 0)
		r = -errno;
	if (r)
		return fail(EXIT_FAILED, "cannot write %s: %s", path, strerror(-r));
	if (n_written < n_moments && !stop_signal)
		return fail(EXIT_NO_BROKER,
			    "the broker has stopped answering: %s has %llu of %llu moments", path,
			    (unsigned long long)n_written, (unsigned long long)n_moments);
	return EXIT_OK;
}

/* --- A terminal --- */

static void carry_out(struct top *top, const struct change *change)
{
	struct picture *picture = &top->picture;
	const char *said = "waiting for the broker";
	const bool is_asked = source_change(&top->source, change);

	if (!is_asked && top->source.rbk)
		said = "the last change is not complete yet: nothing else was changed";
	else if (!is_asked)
		said = "there is no broker: nothing was changed";
	snprintf(picture->message, sizeof(picture->message), "%s", said);
	picture->message_style = is_asked ? STYLE_PLAIN : STYLE_BAD;
}

static void save_columns(struct top *top)
{
	struct picture *picture = &top->picture;
	int r = top->settings_path[0] ? settings_save(picture, top->settings_path) : -ENOENT;

	if (r == 0)
		return;
	snprintf(picture->message, sizeof(picture->message),
		 "cannot save the choice of columns%s%s: %s", top->settings_path[0] ? " in " : "",
		 text_name(top->settings_path), strerror(-r));
	picture->message_style = STYLE_WARN;
}

/* Return: true if a key of the player was handled. */
static bool handle_played(struct top *top, const struct input *input)
{
	struct picture *picture = &top->picture;
	const char *text = NULL;

	if (!picture->is_played || picture->prompt != PROMPT_NONE ||
	    !player_handle(&top->player, input->code, clock_now_ns(), &text))
		return false;
	snprintf(picture->message, sizeof(picture->message), "%s", text ? text : "");
	picture->message_style = STYLE_WARN;
	return true;
}

/* Return: EXIT_OK to go on; -1 to quit; else an exit status. */
static int handle_inputs(struct top *top, struct change *change)
{
	struct input input;

	while (terminal_input(&input)) {
		/* While an arrow key repeats, only the last moment is shown. */
		if (!input.code || handle_played(top, &input))
			continue;
		switch (input_handle(&top->picture, &top->model, why_not(top), change,
				     top->canvas.width, &input)) {
		case INPUT_QUIT:
			return -1;
		case INPUT_CHANGE:
			carry_out(top, change);
			break;
		case INPUT_COLUMNS:
			save_columns(top);
			break;
		case INPUT_NOTHING:
			break;
		}
		/* The next key may refer to the new rows. */
		if (look(top))
			return out_of_memory();
	}
	return EXIT_OK;
}

/* Return: as show_recorded(). */
static int play(struct top *top)
{
	struct picture *picture = &top->picture;

	if (player_run(&top->player, clock_now_ns())) {
		snprintf(picture->message, sizeof(picture->message),
			 "this is the end of the recording; space plays it again");
		picture->message_style = STYLE_WARN;
	}
	return show_recorded(top);
}

static int run_terminal(struct top *top)
{
	struct pollfd fds[] = {
		{.fd = STDIN_FILENO, .events = POLLIN},
		{.fd = source_fd(&top->source), .events = POLLIN},
	};
	struct change change = {.kind = CHANGE_NONE};
	char text[256];
	int status = EXIT_OK;

	if (terminal_open(top->options.has_colours, text, sizeof(text)))
		return fail(EXIT_USAGE, "%s", text);
	top->canvas.is_ascii |= !terminal_has_unicode();
	top->player.wanted = 0;
	top->picture.delay_ns = top->options.delay_ns;
	if (settings_path(top->settings_path, sizeof(top->settings_path)))
		top->settings_path[0] = '\0';
	else
		settings_load(&top->picture, top->settings_path);
	while (!stop_signal && status == EXIT_OK) {
		uint64_t next_ns = clock_now_ns() + top->picture.delay_ns, now_ns;

		if (top->origin.is_recorded) {
			status = play(top);
			if (status)
				break;
			player_describe(&top->player, top->origin.player,
					sizeof(top->origin.player));
			if (player_next_ns(&top->player) < next_ns)
				next_ns = player_next_ns(&top->player);
		}
		if (look(top) || terminal_fit(&top->canvas))
			return out_of_memory();
		picture_draw(&top->picture, &top->model, &top->origin, &top->canvas, true);
		if (terminal_draw(&top->canvas))
			return out_of_memory();
		now_ns = clock_now_ns();
		if (now_ns < next_ns)
			poll(fds, 2, (int)((next_ns - now_ns + 999999) / 1000000));
		/* The terminal has been closed. */
		if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL))
			break;
		status = handle_inputs(top, &change);
	}
	terminal_close();
	return status > 0 ? status : EXIT_OK;
}

/* --- The command line --- */

static void print_usage(FILE *file)
{
	fputs("usage: brokertop [OPTION...]\n"
	      "Shows a broker's tenants and their figures in a terminal; ? lists the keys.\n\n"
	      "  -d, --delay=SECONDS  between two updates, 0.1 to 3600 (default: 1)\n"
	      "  -t, --tenant=TENANT  this tenant only, a name or a number\n"
	      "  --view=VIEW          begin with overview, tenants, sessions, plans,\n"
	      "                       decisions or leases\n"
	      "  --once               print one picture as lines, and end\n"
	      "  --batch              print pictures as lines, until -n or without end\n"
	      "  -n, --number=N       number of pictures, or of moments to record\n"
	      "  --json               print JSON, one object a line, instead of pictures\n"
	      "  --size=WIDTHxHEIGHT  of pictures printed as lines\n"
	      "  --ascii              use ASCII characters only\n"
	      "  --color[=WHEN]       use colours: auto (the default: on a terminal, without\n"
	      "                       NO_COLOR), always, which --color alone means, or never\n"
	      "  --no-colour          as --color=never\n"
	      "  --record=FILE        record the statistics pages to a file, and end\n"
	      "  --page=FILE          play a recording; ? lists the keys\n"
	      "  --socket=PATH        the broker's socket; see brokertop(1) for the default\n"
	      "  --help               this text\n"
	      "  --version            the version\n",
	      file);
}

static int misuse(const char *what, const char *value)
{
	return fail(EXIT_USAGE, "%s, not %s", what, text_name(value));
}

/* Parse seconds, with or without a fraction. */
static bool parse_delay(const char *text, uint64_t *ret_ns)
{
	char *end;
	double seconds;

	if (!((text[0] >= '0' && text[0] <= '9') || text[0] == '.'))
		return false;
	seconds = strtod(text, &end);
	if (*end || !(seconds >= 0.1 && seconds <= 3600))
		return false;
	*ret_ns = (uint64_t)(seconds * 1e9);
	return true;
}

static bool parse_size(const char *text, struct options *options)
{
	char width[8];
	const char *x = strchr(text, 'x');
	uint64_t columns, lines;

	if (!x || (size_t)(x - text) >= sizeof(width))
		return false;
	snprintf(width, sizeof(width), "%.*s", (int)(x - text), text);
	if (!pages_number(width, MAX_SIDE, &columns) || !pages_number(x + 1, MAX_SIDE, &lines) ||
	    !columns || !lines)
		return false;
	options->width = (int)columns;
	options->height = (int)lines;
	return true;
}

/* @text: NULL: the option has no argument. */
static bool parse_colours(const char *text, struct options *options)
{
	const char *no_colour = getenv("NO_COLOR");
	const bool is_auto = text && strcmp(text, "auto") == 0;

	options->has_colours_anywhere = !text || strcmp(text, "always") == 0;
	options->has_colours =
		options->has_colours_anywhere || (is_auto && !(no_colour && no_colour[0]));
	return options->has_colours_anywhere || is_auto || strcmp(text, "never") == 0;
}

static bool parse_view(const char *text, enum view *ret)
{
	static const char *const names[VIEW_COUNT] = {"overview", "tenants",   "sessions",
						      "plans",    "decisions", "leases"};

	for (unsigned int i = 0; i < VIEW_COUNT; i++)
		if (strcmp(names[i], text) == 0) {
			*ret = i;
			return true;
		}
	return false;
}

/*
 * Report an option that getopt_long() has rejected.
 * Return: EXIT_USAGE.
 */
static int unknown_option(char **argv, const struct option *longs, unsigned int n_longs)
{
	const char *word = argv[optind - 1], *names[MAX_LONGS + 1] = {NULL}, *near;
	char name[64];

	if (strncmp(word, "--", 2) != 0)
		return fail(EXIT_USAGE, "there is no option -%c; see brokertop --help", optopt);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	for (unsigned int i = 0; i < n_longs && i < MAX_LONGS; i++) {
		names[i] = longs[i].name;
		if (strcmp(longs[i].name, name + 2) == 0)
			return fail(EXIT_USAGE, "%s takes no argument", name);
	}
	near = suggest(name + 2, names);
	return fail(EXIT_USAGE, "there is no option %s; %s%s%s", name,
		    near ? "did you mean --" : "see brokertop --help", near ? near : "",
		    near ? "?" : "");
}

/* Return: -1 to go on, or the exit status. */
static int parse_options(int argc, char **argv, struct options *options)
{
	enum {
		VIEW = 256,
		ONCE,
		BATCH,
		JSON,
		SIZE,
		ASCII,
		COLOUR,
		NO_COLOUR,
		RECORD,
		PAGE,
		SOCKET
	};
	static const struct option longs[] = {
		{"delay", required_argument, NULL, 'd'},
		{"tenant", required_argument, NULL, 't'},
		{"view", required_argument, NULL, VIEW},
		{"once", no_argument, NULL, ONCE},
		{"batch", no_argument, NULL, BATCH},
		{"number", required_argument, NULL, 'n'},
		{"json", no_argument, NULL, JSON},
		{"size", required_argument, NULL, SIZE},
		{"ascii", no_argument, NULL, ASCII},
		{"color", optional_argument, NULL, COLOUR},
		{"colour", optional_argument, NULL, COLOUR},
		{"no-colour", no_argument, NULL, NO_COLOUR},
		{"no-color", no_argument, NULL, NO_COLOUR},
		{"record", required_argument, NULL, RECORD},
		{"page", required_argument, NULL, PAGE},
		{"socket", required_argument, NULL, SOCKET},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	const unsigned int n_longs = sizeof(longs) / sizeof(longs[0]) - 1;
	int option;

	while ((option = getopt_long(argc, argv, ":d:t:n:h", longs, NULL)) != -1) {
		switch (option) {
		case 'd':
			if (!parse_delay(optarg, &options->delay_ns))
				return misuse("-d takes seconds, 0.1 to 3600", optarg);
			options->has_delay = true;
			break;
		case 't':
			options->tenant = optarg;
			break;
		case 'n':
			if (!pages_number(optarg, UINT32_MAX, &options->n_updates) ||
			    !options->n_updates)
				return misuse("-n takes a number above 0", optarg);
			break;
		case VIEW:
			if (!parse_view(optarg, &options->view))
				return misuse("--view takes overview, tenants, sessions, plans, "
					      "decisions or leases",
					      optarg);
			break;
		case ONCE:
			options->is_once = true;
			break;
		case BATCH:
			options->is_batch = true;
			break;
		case JSON:
			options->is_json = true;
			break;
		case SIZE:
			if (!parse_size(optarg, options))
				return misuse("--size takes columns and lines, as in 120x40",
					      optarg);
			break;
		case ASCII:
			options->is_ascii = true;
			break;
		case COLOUR:
			if (!parse_colours(optarg, options))
				return misuse("--color takes auto, always or never", optarg);
			break;
		case NO_COLOUR:
			parse_colours("never", options);
			break;
		case RECORD:
			options->record_path = optarg;
			break;
		case PAGE:
			options->page_path = optarg;
			break;
		case SOCKET:
			options->socket_path = optarg;
			break;
		case 'h':
			print_usage(stdout);
			return EXIT_OK;
		case 'v':
			printf("brokertop %s\n", RINGBROKER_VERSION);
			return EXIT_OK;
		case ':':
			return fail(EXIT_USAGE, "%s needs an argument; see brokertop --help",
				    text_name(argv[optind - 1]));
		default:
			return unknown_option(argv, longs, n_longs);
		}
	}
	if (optind < argc)
		return misuse("brokertop takes options only", argv[optind]);
	if (options->page_path && options->record_path)
		return fail(EXIT_USAGE, "give either --page or --record");
	return -1;
}

static void catch_signals(void)
{
	const struct sigaction stop = {.sa_handler = on_signal};

	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGHUP, &stop, NULL);
}

static int run(struct top *top)
{
	const struct options *options = &top->options;
	const bool is_lines = options->is_once || options->is_batch || options->is_json;
	int status;

	if (model_init(&top->model))
		return out_of_memory();
	if (options->page_path)
		status = open_recording(top);
	else
		status = open_source(top, !is_lines && !options->record_path);
	if (status)
		return status;
	if (options->record_path)
		return run_record(top);
	return is_lines ? run_lines(top) : run_terminal(top);
}

int main(int argc, char **argv)
{
	struct top top = {.options = {.delay_ns = second_ns}};
	int status;

	parse_colours("auto", &top.options);
	streams_init();
	setlocale(LC_CTYPE, "");
	status = parse_options(argc, argv, &top.options);
	if (status >= 0)
		return streams_finish("brokertop", status);
	catch_signals();
	picture_init(&top.picture);
	top.picture.view = top.options.view;
	top.canvas.is_ascii = top.options.is_ascii || !terminal_has_unicode();
	if (!top.options.page_path && gethostname(top.host, sizeof(top.host) - 1) == 0)
		top.origin.host = top.host;
	status = run(&top);
	source_close(&top.source);
	player_close(&top.player);
	model_deinit(&top.model);
	picture_deinit(&top.picture);
	canvas_deinit(&top.canvas);
	return status;
}
