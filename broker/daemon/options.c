/* SPDX-License-Identifier: MIT */
/*
 * brokerd's command line
 *
 * Every option has a default that works without configuration. Options that the command line does
 * not set may be set in section [broker] of the policy file, by the same names and with the same
 * values. The same functions read both; only their error messages differ, which name the file and
 * the line there. The options are in options-table.c.
 *
 * The socket's default path follows $RINGBROKER_SOCKET, then the user's runtime directory, then
 * /run/ringbroker, as in the client library, so that a broker and a client of one user meet without
 * configuration.
 */
#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/admin-folder.h"
#include "daemon/options-private.h"
#include "dispatch/dispatch.h"
#include "shm/admin-path.h"
#include "util/checked.h"
#include "util/suggest.h"

/* The value that getopt_long() returns for the first row. */
enum { FIRST_OPTION = 256 };

/* --- help --- */

enum { HELP_COLUMN = 24 };

static void print_lines(const char *lines)
{
	for (; *lines; lines++) {
		putchar(*lines);
		if (*lines == '\n')
			printf("%*s", HELP_COLUMN, "");
	}
}

/* Return: the columns that were printed. */
static int print_name(const struct option_row *row)
{
	char value[128];

	option_name_value(row, value, sizeof(value));
	return printf("--%s%s%s", row->name, value[0] && value[0] != '[' ? " " : "", value);
}

static int print_help(void)
{
	int column = 0;

	fputs("Usage: brokerd [OPTION...]\n"
	      "Owns this machine's GPU and runs clients' tasks on it and on the CPU.\n"
	      "\n",
	      stdout);
	for (const struct option_row *row = option_rows; row < option_rows + n_options; row++) {
		if (row->before)
			fputs(row->before, stdout);
		column += printf(column ? ", " : "  ");
		column += print_name(row);
		if (row->joins_next)
			continue;
		if (row->help && column >= HELP_COLUMN) {
			putchar('\n');
			column = 0;
		}
		if (row->help) {
			printf("%*s", HELP_COLUMN - column, "");
			print_lines(row->help);
		}
		putchar('\n');
		column = 0;
	}
	fputs("\n"
	      "Signals: SIGTERM and SIGINT finish the tasks in flight and stop; a second one stops "
	      "at once.\n"
	      "SIGHUP reads the policy file again.\n"
	      "Exit status: 0 after a requested stop, 1 after a failure, 2 for a wrong option or "
	      "if it\n"
	      "cannot start (socket in use, no permission), 75 for its service manager to start it "
	      "again.\n",
	      stdout);
	return 0;
}

static void default_socket_path(struct options *options)
{
	const char *path = getenv("RINGBROKER_SOCKET");
	const char *runtime_dir = getenv("XDG_RUNTIME_DIR");
	size_t bytes = sizeof(options->socket_path);

	if (path && path[0]) {
		snprintf(options->socket_path, bytes, "%s", path);
	} else if (runtime_dir && runtime_dir[0]) {
		snprintf(options->socket_path, bytes, "%s/ringbroker", runtime_dir);
		mkdir(options->socket_path, 0700);
		snprintf(options->socket_path, bytes, "%s/ringbroker/brokerd.sock", runtime_dir);
	} else {
		mkdir("/run/ringbroker", 0755);
		snprintf(options->socket_path, bytes, "/run/ringbroker/brokerd.sock");
	}
}

/* Set the default path, by that of the other socket; leave it empty if it does not fit. */
static void default_admin_path(struct options *options)
{
	const char *path = getenv("RINGBROKER_ADMIN_SOCKET");
	size_t bytes = sizeof(options->admin_socket_path);
	int r = 0;

	if (path && path[0])
		r = (size_t)snprintf(options->admin_socket_path, bytes, "%s", path) < bytes
			    ? 0
			    : -ENAMETOOLONG;
	else
		r = rbk_admin_path_of(options->socket_path, options->admin_socket_path, bytes);
	if (r)
		options->admin_socket_path[0] = '\0';
}

/*
 * Complete the options of the administrators' socket. The kernel identifies a client, and that
 * decides what it may do; the permissions of the socket only keep other users out. Users that are
 * named need not be members of the group.
 */
static void complete_admin(struct options *options)
{
	if (!options->admin_socket_path[0])
		default_admin_path(options);
	else if (strcmp(options->admin_socket_path, "none") == 0)
		options->admin_socket_path[0] = '\0';
	if (!options->has_admin_group)
		options->has_admin_group =
			users_find_group("ringbroker", &options->admin_group) == 0;
	options->admin_socket_mode = options->admin_users.n > 0 ? 0666
				     : options->has_admin_group ? 0660
								: 0600;
	if (!options->list_devices && !admin_folder_make(options))
		options->admin_socket_path[0] = '\0';
}

static void default_cache_dir(struct options *options)
{
	const char *cache_home = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	size_t bytes = sizeof(options->cache_dir);

	if (geteuid() == 0) {
		snprintf(options->cache_dir, bytes, "/var/cache/ringbroker");
	} else if (cache_home && cache_home[0]) {
		snprintf(options->cache_dir, bytes, "%s/ringbroker", cache_home);
	} else if (home && home[0]) {
		snprintf(options->cache_dir, bytes, "%s/.cache/ringbroker", home);
	}
}

static void set_defaults(struct options *options)
{
	*options = (struct options){
		.place = PLACE_CONFIG_DEFAULT,
		.spin_ns = -1,
		.reactor_task_ns = REACTOR_TASK_NS,
		.turn_ns = TURN_BUDGET_US * 1000ull,
		.reactor_nice = OPTIONS_NICE_DEFAULT,
		.log_level = LOG_LEVEL_INFO,
		.config_path = "/etc/ringbroker/brokerd.conf",
	};
}

/* Parse one option. Return: as options_parse(). */
static int parse_one(const struct option_row *row, const struct option_source *source,
		     const char *value, struct options *options)
{
	char *base = (char *)options;
	bool *says = (bool *)(base + row->says);
	int r = row->kind->parse(row, source, value, base + row->at);

	if (r < 0 && row->has_says)
		*says = true;
	return r;
}

static const struct option_row *find_row(const char *name)
{
	for (unsigned int i = 0; i < n_options; i++)
		if (strcmp(option_rows[i].name, name) == 0)
			return &option_rows[i];
	return NULL;
}

/* Find the option whose name is most like @word. Return: NULL if it is like none. */
static const char *option_near(const char *word)
{
	const char *names[OPTIONS_MAX + 1];
	char name[64];

	for (unsigned int i = 0; i < n_options; i++)
		names[i] = option_rows[i].name;
	names[n_options] = NULL;
	word += strspn(word, "-");
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	return suggest(name, names);
}

/* Print why getopt_long() rejected @argument: unknown, or without a required value. */
static int refuse_argument(int option, const char *argument)
{
	const char *near = option == '?' ? option_near(argument) : NULL;

	if (near)
		fprintf(stderr, "brokerd: there is no option %s; did you mean --%s?\n", argument,
			near);
	else
		fprintf(stderr, "brokerd: %s %s; see 'brokerd --help'\n", argument,
			option == ':' ? "is missing its value" : "is not an option");
	return OPTIONS_EXIT_USAGE;
}

static void fill_long_options(struct option ret[OPTIONS_MAX + 1])
{
	for (unsigned int i = 0; i < n_options; i++)
		ret[i] = (struct option){
			.name = option_rows[i].name,
			.has_arg = !option_has_value(&option_rows[i]) ? no_argument
				   : option_rows[i].otherwise         ? optional_argument
								      : required_argument,
			.val = FIRST_OPTION + (int)i,
		};
	ret[n_options] = (struct option){.name = NULL};
}

int options_parse(int argc, char **argv, struct options *ret)
{
	struct option_source source = {.ret_wanted = NULL};
	struct option long_options[OPTIONS_MAX + 1];
	const struct option_row *row;
	int option, r;

	set_defaults(ret);
	fill_long_options(long_options);
	/* brokerd prints the error itself, in one line. */
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
		if (option == '?' || option == ':')
			return refuse_argument(option, argv[optind - 1]);
		row = &option_rows[option - FIRST_OPTION];
		source.name = row->name;
		r = parse_one(row, &source, optarg, ret);
		if (r >= 0)
			return r;
		ret->given |= 1ull << (row - option_rows);
		if (ret->wants_help)
			return print_help();
		if (ret->wants_version) {
			puts("brokerd " RINGBROKER_VERSION);
			return 0;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "brokerd: unexpected argument '%s'; see 'brokerd --help'\n",
			argv[optind]);
		return OPTIONS_EXIT_USAGE;
	}
	if ((ret->test_device_row_ns || ret->test_device_gflops || ret->test_device_link) &&
	    !ret->test_device_ns) {
		fprintf(stderr, "brokerd: --test-device-%s wants --test-device, too\n",
			ret->test_device_row_ns   ? "row"
			: ret->test_device_gflops ? "rate"
						  : "link");
		return OPTIONS_EXIT_USAGE;
	}
	return -1;
}

static const char *key_near(const char *key)
{
	const char *names[OPTIONS_MAX + 2];
	size_t n = 0;

	for (unsigned int i = 0; i < n_options; i++)
		if (option_rows[i].use != OPTION_OWN)
			names[n++] = option_rows[i].name;
	names[n++] = POLICY_HEADROOM_KEY;
	names[n] = NULL;
	return suggest(key, names);
}

int options_read_key(void *context, const char *key, const char *value,
		     char ret_wanted[POLICY_WANTED_BYTES])
{
	const struct option_source source = {.name = key, .ret_wanted = ret_wanted};
	const struct option_row *row = find_row(key);
	struct options *options = context, scratch;
	const char *near;

	if (!row || row->use == OPTION_OWN) {
		near = key_near(key);
		snprintf(ret_wanted, POLICY_WANTED_BYTES, "%s", near ? near : "");
		return POLICY_E_UNKNOWN;
	}
	/* The command line has precedence, but a wrong value in the file is still rejected. */
	scratch = *options;
	if (parse_one(row, &source, value, &scratch) >= 0)
		return POLICY_E_INVALID;
	if (!(options->given & 1ull << (row - option_rows)))
		*options = scratch;
	return 0;
}

void options_print_place(FILE *stream, const struct options *options)
{
	const char *before = "";

	for (const struct option_row *row = option_rows; row < option_rows + n_options; row++) {
		if (row->use != OPTION_LIVE)
			continue;
		fprintf(stream, "%s%s = ", before, row->name);
		row->kind->print(row, stream, (const char *)options + row->at);
		before = "; ";
	}
}

bool options_key_is_live(const char *key)
{
	const struct option_row *row = find_row(key);

	return row && row->use == OPTION_LIVE;
}

bool options_is_given(const struct options *options, const char *key)
{
	const struct option_row *row = find_row(key);

	return row && options->given & 1ull << (row - option_rows);
}

void options_complete(struct options *options)
{
	if (!options->socket_path[0])
		default_socket_path(options);
	if (!options->has_socket_mode)
		options->socket_mode =
			strncmp(options->socket_path, "/run/ringbroker/", 16) == 0 ? 0666 : 0600;
	complete_admin(options);
	if (options->vulkan.path == VULKAN_PATH_STAGED)
		options->vulkan.force |= VULKAN_FORCE_STAGED;
	if (!options->cache_dir[0])
		default_cache_dir(options);
	else if (strcmp(options->cache_dir, "none") == 0)
		options->cache_dir[0] = '\0';
	if (options->cache_dir[0]) {
		options->vulkan.cache_dir = options->cache_dir;
		if ((mkdir(options->cache_dir, 0700) < 0 && errno != EEXIST) ||
		    access(options->cache_dir, R_OK | W_OK | X_OK) < 0) {
			options->cache_error = errno;
			options->vulkan.cache_dir = NULL;
		}
	}
}
