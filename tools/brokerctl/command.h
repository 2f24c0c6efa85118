#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerctl: subcommands
 *
 * main.c finds the subcommand in a table, which also says what options and operands it takes;
 * options.c reads them. A subcommand connects if it needs to, prints, and returns an exit status.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker.h>

#include "monitor/pages.h"

enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NO_BROKER = 3,
	EXIT_NOT_PERMITTED = 4,
};

/* Options have the same name and meaning whichever subcommands take them. */
enum option_id {
	OPT_ALL,
	OPT_ATOL,
	OPT_CAPABILITIES,
	OPT_CGROUP,
	OPT_CHECK,
	OPT_COUNT,
	OPT_DEVICE,
	OPT_DISABLE,
	OPT_END,
	OPT_EXPECT,
	OPT_FOLLOW,
	OPT_HELP,
	OPT_IF_TENANT,
	OPT_INPUT,
	OPT_INTERVAL,
	OPT_JSON,
	OPT_LAST,
	OPT_MAX,
	OPT_MAX_EVENTS,
	OPT_MIN,
	OPT_NODES,
	OPT_NO_HEADER,
	OPT_NO_LAYER,
	OPT_OUTPUT,
	OPT_PROFILE,
	OPT_QUIET,
	OPT_REPEAT,
	OPT_REPORT,
	OPT_ROOM_WAIT,
	OPT_RTOL,
	OPT_RUN_DEVICE,
	OPT_RUN_OUTPUT,
	OPT_SECONDS,
	OPT_SHOWN_DEVICE,
	OPT_SORT,
	OPT_STATUS,
	OPT_TENANT,
	OPT_USER,
	OPT_VERBOSE,
	OPT_VRAM,
	OPT_WAIT,
	N_OPTIONS,
};
#define TAKES(option) (1ull << (option))
_Static_assert(N_OPTIONS <= 64, "bits");

struct control {
	const char *socket_path; /* NULL: the library's choice */
	const char *admin_path;  /* likewise */
	uint64_t timeout_ns;     /* of each request */
	bool has_timeout;        /* the command line has it */
	struct rbk *rbk;         /* after control_connect() */
	bool is_admin;           /* it is on the administrators' socket */
	void (*sigpipe)(int);    /* what SIGPIPE was, for other programs */
};

struct arguments;
struct group;

struct command {
	const char *name;
	const char *operands; /* for the usage; NULL: none */
	const char *summary;
	uint64_t options;         /* TAKES(), or-ed */
	uint32_t n_least, n_most; /* operands */
	bool is_listing;          /* it can be watched */
	/* Return: EXIT_* */
	int (*run)(struct control *control, const struct arguments *arguments);
	const char *const *sort_keys; /* with OPT_SORT: what --sort takes, NULL at the end */
};

/* Options of which there may be several, with their arguments, in the order of the command line. */
enum { MAX_GIVEN = 192 };
struct given {
	enum option_id option;
	const char *value;
};

/* What the command line says. */
struct arguments {
	const struct command *command;
	const char
		*values[N_OPTIONS]; /* NULL: not given; "" if it has no argument; else the last */
	unsigned int n_given;
	struct given given[MAX_GIVEN]; /* those that may be given again */
	unsigned int n_operands;
	char **operands;
};

/* Subcommands: FILE.c has run_FILE(). */
int run_status(struct control *control, const struct arguments *arguments);
int run_devices(struct control *control, const struct arguments *arguments);
/* capabilities.c: devices --capabilities, of devices from @first to @end. Return: EXIT_*. */
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
int run_lease(struct control *control, const struct arguments *arguments);
/* Whatever goes wrong before the program runs: EXEC_*, of exec.h. */
int run_exec(struct control *control, const struct arguments *arguments);
/* run.c */
int run_model(struct control *control, const struct arguments *arguments);

/* An operator that an ONNX file may have beside those of the catalogue; opsets; until 0: it still
 * is. */
struct made_operator {
	const char *name;
	unsigned int since, until;
};
/* The @i-th of them. Return: false: there are no more, or this was built without ONNX. */
bool run_made_operator(unsigned int i, struct made_operator *ret);
int run_gate(struct control *control, const struct arguments *arguments);
/* admin.c */
int run_set(struct control *control, const struct arguments *arguments);
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

/* Write a line to standard error. Return: @status. */
int control_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* options.c */

/* Options that stand in front of the command. */
enum { N_CONTROL_OPTIONS = 5 };
extern const struct option control_options[N_CONTROL_OPTIONS + 1];

/* Reads what follows @argv[0], the subcommand's name. Return: EXIT_OK, or EXIT_USAGE, having said
 * what is wrong. @ret->operands are in @argv. */
int arguments_read(const struct command *command, int argc, char **argv, struct arguments *ret);
/* Is this, without its dashes, an option that some commands have? */
bool arguments_has_option(const char *name);
void command_print_usage(const struct command *command);

/* Says what is wrong with the command line. Return: EXIT_USAGE. */
int control_misuse(const struct arguments *arguments, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Likewise that @word is none of @words, which NULL ends, and which one may have been meant. */
int control_wrong_word(const struct arguments *arguments, const char *word,
		       const char *const *words);
/* Of all options that commands have, the one that @name, without its dashes, is like, or NULL. */
const char *arguments_option_near(const char *name);
/* A number of seconds from @text, such as "0.5". Return: false unless it is from 0 to @max. */
bool control_seconds(const char *text, double max, double *ret);

/* connect.c */

/*
 * Connects to the administrators' socket, or, where that is not to be had, as a client like any
 * other; once. Return: EXIT_OK, or what to exit with: it was said why.
 */
int control_connect(struct control *control);
/* Connects, and sees that this user may change something. Return: likewise. */
int control_connect_to_change(struct control *control);
/* Connects as a client like any other. Return: likewise. */
int control_connect_as_tenant(struct control *control);
/*
 * The same to run something: preparing it may take minutes, unless --timeout says otherwise, though
 * whether there is an answer at all is seen as soon as elsewhere. Where nobody listens and neither
 * the command line nor the environment names a socket, *@ret_is_nobody_there is set and nothing is
 * said.
 */
int control_connect_to_run(struct control *control, bool *ret_is_nobody_there);
/* control_connect(), with *@ret_is_nobody_there likewise. */
int control_connect_if_there(struct control *control, bool *ret_is_nobody_there);
/* control_connect() and pages_map(), or pages_map_root(). Return: EXIT_*, having said what is
 * wrong. */
int control_map(struct control *control, const char *tenant, struct pages *ret);
int control_map_root(struct control *control, struct pages *ret);
void control_disconnect(struct control *control);
/* Says what the library, or pages_*(), says. Return: what to exit with. */
int control_refused(const struct control *control, int error, const struct rbk_error *text);
/* Who may look at everything beside root, in words: "members of group ringbroker". Static storage.
 */
const char *control_who_may(const struct control *control);
/* The group whose members may; NULL: there is none. Static storage. */
const struct group *control_admin_group(const struct control *control);
/* The path of the administrators' socket that is tried, into @path. */
void control_admin_path(const struct control *control, char *path, size_t bytes);
void control_socket_path(const struct control *control, char *path, size_t bytes);
