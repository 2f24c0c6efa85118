#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerctl: subcommands
 *
 * main.c looks the subcommand up in a table, which lists the options and operands of each
 * subcommand. options.c reads them. A subcommand connects if it needs a broker, prints, and returns
 * an exit status.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker.h>

#include "monitor/admin-socket.h"
#include "monitor/pages.h"

enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NO_BROKER = 3,
	EXIT_NOT_PERMITTED = 4,
	EXIT_HELD = 5, /* drain --wait: clients hold memory that draining does not take */
};

/* An option has the same name and meaning in every subcommand that takes it. */
enum option_id {
	OPT_ALL,
	OPT_ATOL,
	OPT_CAPABILITIES,
	OPT_CGROUP,
	OPT_CHECK,
	OPT_COLOR,
	OPT_COUNT,
	OPT_DEVICE,
	OPT_DISABLE,
	OPT_DRAIN,
	OPT_END,
	OPT_EXPECT,
	OPT_FOLLOW,
	OPT_HELP,
	OPT_HOLD,
	OPT_IF_TENANT,
	OPT_INPUT,
	OPT_INTERVAL,
	OPT_JSON,
	OPT_LAST,
	OPT_LEASE_PRIORITY,
	OPT_LEASE_SHARE,
	OPT_LEASE_VRAM,
	OPT_MAX,
	OPT_MAX_EVENTS,
	OPT_MAX_PART,
	OPT_MIN,
	OPT_NODES,
	OPT_NO_HEADER,
	OPT_NO_LAYER,
	OPT_OUTPUT,
	OPT_PRIORITY,
	OPT_PROFILE,
	OPT_QUIET,
	OPT_REPEAT,
	OPT_REPORT,
	OPT_ROOM_WAIT,
	OPT_RTOL,
	OPT_RUN_DEVICE,
	OPT_RUN_OUTPUT,
	OPT_RUN_SECONDS,
	OPT_SECONDS,
	OPT_SHARE,
	OPT_SHOWN_DEVICE,
	OPT_SLEEP,
	OPT_SORT,
	OPT_STATUS,
	OPT_SVG,
	OPT_TENANT,
	OPT_USER,
	OPT_VERBOSE,
	OPT_VRAM,
	OPT_WAIT,
	OPT_WIDE,
	N_OPTIONS,
};
#define TAKES(option) (1ull << (option))
_Static_assert(N_OPTIONS <= 64, "bits");

struct control {
	const char *socket_path;    /* NULL: the library's default */
	const char *admin_path;     /* NULL: the library's default */
	uint64_t timeout_ns;        /* timeout of each request */
	bool has_timeout;           /* --timeout is on the command line */
	struct rbk *rbk;            /* after control_connect() */
	bool is_admin;              /* rbk is connected to the administrators' socket */
	struct admin_attempt admin; /* the last attempt to connect to that socket */
	void (*sigpipe)(int); /* disposition of SIGPIPE at the start, for programs that exec runs */
};

struct arguments;
struct group;

struct command {
	const char *name;
	/* for the usage text, one line for each form of the command; NULL: none */
	const char *operands;
	const char *summary;
	uint64_t options;         /* or-ed TAKES() */
	uint32_t n_least, n_most; /* bounds of the number of operands */
	bool is_listing;          /* watch can repeat the command */
	/* Return: EXIT_* */
	int (*run)(struct control *control, const struct arguments *arguments);
	const char *const *sort_keys; /* values of --sort, ends with NULL; with OPT_SORT only */
};

/* Options that may be repeated, with their arguments, in the order of the command line. */
enum { MAX_GIVEN = 192 };
struct given {
	enum option_id option;
	const char *value;
};

/* A parsed command line. */
struct arguments {
	const struct command *command;
	/* by option; NULL: not given; "": given, takes no argument; else the last value */
	const char *values[N_OPTIONS];
	unsigned int n_given;
	struct given given[MAX_GIVEN]; /* repeatable options */
	unsigned int n_operands;
	char **operands;
};

/* Subcommands: run_NAME() is in NAME.c unless a comment names another file. */
int run_status(struct control *control, const struct arguments *arguments);
int run_devices(struct control *control, const struct arguments *arguments);
/*
 * Print the capabilities of devices @first to @end - 1 (devices --capabilities; capabilities.c).
 * Return: EXIT_*.
 */
int show_capabilities(struct control *control, const struct arguments *arguments,
		      unsigned int first, unsigned int end);
int run_tenants(struct control *control, const struct arguments *arguments);
int run_sessions(struct control *control, const struct arguments *arguments);
int run_plans(struct control *control, const struct arguments *arguments);
int run_reasons(struct control *control, const struct arguments *arguments);
int run_stats(struct control *control, const struct arguments *arguments);
int run_decisions(struct control *control, const struct arguments *arguments);
int run_contention(struct control *control, const struct arguments *arguments);
int run_why(struct control *control, const struct arguments *arguments);
int run_trace(struct control *control, const struct arguments *arguments);
int run_check(struct control *control, const struct arguments *arguments);
int run_leases(struct control *control, const struct arguments *arguments);
int run_names(struct control *control, const struct arguments *arguments);
int run_lease(struct control *control, const struct arguments *arguments);

/* Values of --priority and --share, of lease or of exec. */
struct lease_sharing {
	bool has_priority;
	enum rbk_priority priority;
	uint32_t share; /* 0: not given */
};
/* lease-change.c: parse the two options. Return: EXIT_OK, or EXIT_USAGE with a sentence. */
int lease_sharing(const struct arguments *arguments, struct lease_sharing *ret);
/* Errors before the program runs return EXEC_* (exec.h). */
int run_exec(struct control *control, const struct arguments *arguments);
/* run.c */
int run_model(struct control *control, const struct arguments *arguments);

/*
 * An operator that ONNX files may use in addition to the catalogue's, with the range of opsets that
 * have it; until is 0 if the operator has not been removed.
 */
struct made_operator {
	const char *name;
	unsigned int since, until;
};
/*
 * Fetch the @i-th additional operator.
 * Return: false if @i is past the end, or if this build has no ONNX.
 */
bool run_made_operator(unsigned int i, struct made_operator *ret);
int run_restart(struct control *control, const struct arguments *arguments);
int run_gate(struct control *control, const struct arguments *arguments);
/* admin.c */
int run_set(struct control *control, const struct arguments *arguments);
/* Print the keys of set, with the units of their values. */
void set_print_keys(void);
int run_evict(struct control *control, const struct arguments *arguments);
int run_drain(struct control *control, const struct arguments *arguments);
int run_force_cpu(struct control *control, const struct arguments *arguments);
int run_reset_stats(struct control *control, const struct arguments *arguments);
int run_log_level(struct control *control, const struct arguments *arguments);

extern const char *const tenant_sort_keys[];
extern const char *const session_sort_keys[];
extern const char *const lease_sort_keys[];
extern const char *const plan_sort_keys[];

/* output.c */

/*
 * Write a line to standard error.
 * Return: @status.
 */
int control_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* options.c */

/* Options that precede the command. */
enum { N_CONTROL_OPTIONS = 5 };
extern const struct option control_options[N_CONTROL_OPTIONS + 1];

/*
 * Read the options and operands that follow @argv[0], the subcommand's name. @ret->operands points
 * into @argv.
 * Return: EXIT_OK, or EXIT_USAGE after an error message.
 */
int arguments_read(const struct command *command, int argc, char **argv, struct arguments *ret);
/* Return true if some command has the option @name (given without dashes). */
bool arguments_has_option(const char *name);
void command_print_usage(const struct command *command);

/*
 * Report an error in the command line.
 * Return: EXIT_USAGE.
 */
int control_misuse(const struct arguments *arguments, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/*
 * Report that @word is none of @words (ends with NULL), and suggest the most similar one.
 * Return: EXIT_USAGE.
 */
int control_wrong_word(const struct arguments *arguments, const char *word,
		       const char *const *words);
/* Return the option of any command that is most similar to @name (without dashes), or NULL. */
const char *arguments_option_near(const char *name);
/*
 * Parse a number of seconds, such as "0.5".
 * Return: false unless the number is from 0 to @max.
 */
bool control_seconds(const char *text, double max, double *ret);

/* connect.c */

/*
 * Connect to the administrators' socket, or as an ordinary client if that socket cannot be used. Do
 * nothing if connected already.
 * Return: EXIT_OK, or the exit status after an error message.
 */
int control_connect(struct control *control);
/*
 * Connect to the administrators' socket, and to no other.
 * Return: EXIT_OK, or the exit status after an error message.
 */
int control_connect_as_admin(struct control *control);
/*
 * Connect, and check that this user may change settings.
 * Return: EXIT_OK, or the exit status after an error message.
 */
int control_connect_to_change(struct control *control);
/*
 * Connect as an ordinary client.
 * Return: EXIT_OK, or the exit status after an error message.
 */
int control_connect_as_tenant(struct control *control);
/*
 * Connect as an ordinary client to run a model. Preparing a plan may take minutes, so requests have
 * a long timeout unless --timeout is given; the first connection still uses the short timeout, so
 * that a broker that does not answer is reported soon. If no broker listens and neither the command
 * line nor the environment names a socket, set *@ret_is_nobody_there and print nothing.
 * Return: EXIT_OK, or the exit status.
 */
int control_connect_to_run(struct control *control, bool *ret_is_nobody_there);
/*
 * Connect as control_connect() does, but set *@ret_is_nobody_there as control_connect_to_run()
 * does.
 */
int control_connect_if_there(struct control *control, bool *ret_is_nobody_there);
/*
 * Call control_connect(), then pages_map() or pages_map_root().
 * Return: EXIT_*, after an error message if it is not EXIT_OK.
 */
int control_map(struct control *control, const char *tenant, struct pages *ret);
int control_map_root(struct control *control, struct pages *ret);
void control_disconnect(struct control *control);
/*
 * Print the error text of the library or of pages_*().
 * Return: the exit status.
 */
int control_refused(const struct control *control, int error, const struct rbk_error *text);
/*
 * Name the users who may use the administrators' socket that brokerctl tries, in the words of
 * admin_socket_users().
 */
const char *control_who_may(const struct control *control);
/*
 * Return the group whose members may use the administrators' socket, or NULL if there is none.
 * Static storage.
 */
const struct group *control_admin_group(const struct control *control);
/* Write to @path the path of the administrators' socket that brokerctl tries. */
void control_admin_path(const struct control *control, char *path, size_t bytes);
void control_socket_path(const struct control *control, char *path, size_t bytes);
