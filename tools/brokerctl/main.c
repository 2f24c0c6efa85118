/* SPDX-License-Identifier: MIT */
/*
 * brokerctl: shows a broker's state, and changes what administrators may change
 *
 * Everything goes through the client library: brokerctl is an ordinary session, and the broker
 * decides by its user what it may see. Standard output contains only the requested data, so that it
 * can be piped; brokerctl ends quietly if the reader goes away.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "exec.h"
#include "util/suggest.h"
#include "monitor/text.h"
#include "output.h"
#include "util/streams.h"

#define SHOWS    TAKES(OPT_JSON) | TAKES(OPT_COLOR)
#define TABLES   SHOWS | TAKES(OPT_WIDE)
#define LISTS    TABLES | TAKES(OPT_NO_HEADER)
#define A_TENANT TAKES(OPT_TENANT)

static int run_watch(struct control *control, const struct arguments *arguments);

static const struct command commands[] = {
	{"status", NULL, "the broker's state, on one screen", SHOWS, 0, 0, true, run_status, NULL},
	{"devices", NULL, "devices, their memory paths, sensors and capabilities",
	 LISTS | TAKES(OPT_CAPABILITIES) | TAKES(OPT_SHOWN_DEVICE), 0, 0, true, run_devices, NULL},
	{"tenants", NULL, "tenants, their tasks, shares and memory",
	 LISTS | A_TENANT | TAKES(OPT_SORT), 0, 0, true, run_tenants, tenant_sort_keys},
	{"sessions", NULL, "connected clients", LISTS | A_TENANT | TAKES(OPT_SORT), 0, 0, true,
	 run_sessions, session_sort_keys},
	{"plans", NULL, "plans, their memory and their figures", LISTS | A_TENANT | TAKES(OPT_SORT),
	 0, 0, true, run_plans, plan_sort_keys},
	{"reasons", NULL, "why tasks ran where they ran", LISTS | A_TENANT, 0, 0, true, run_reasons,
	 NULL},
	{"stats", NULL, "figures of the broker, devices, tenants and plans", A_TENANT | TABLES, 0,
	 0, true, run_stats, NULL},
	{"decisions", NULL, "where tasks ran, and why",
	 A_TENANT | SHOWS | TAKES(OPT_LAST) | TAKES(OPT_FOLLOW), 0, 0, true, run_decisions, NULL},
	{"contention", NULL, "waits for processors, and the programs that ran instead", TABLES, 0,
	 0, true, run_contention, NULL},
	{"why", "[task | plan | tenant | session | lease] NAME",
	 "why a task, a plan, a tenant or a lease was slow", A_TENANT | TAKES(OPT_JSON), 1, 2, true,
	 run_why, NULL},
	{"trace", NULL, "a time line for the Perfetto UI",
	 A_TENANT | TAKES(OPT_SECONDS) | TAKES(OPT_OUTPUT) | TAKES(OPT_MAX_EVENTS) | TAKES(OPT_SVG),
	 0, 0, false, run_trace, NULL},
	{"check", NULL, "check this machine, and print remedies", SHOWS, 0, 0, true, run_check,
	 NULL},
	{"leases", NULL, "leases of device memory", LISTS | A_TENANT | TAKES(OPT_SORT), 0, 0, true,
	 run_leases, lease_sort_keys},
	{"lease",
	 "[--json] (--priority=PRIORITY | --share=N | --vram=SIZE)... NUMBER\n"
	 "[--json] [--hold] sleep NUMBER\n"
	 "[--json] wake NUMBER",
	 "change the size, the priority or the share of a lease, or let it sleep",
	 TAKES(OPT_LEASE_VRAM) | TAKES(OPT_LEASE_PRIORITY) | TAKES(OPT_LEASE_SHARE) |
		 TAKES(OPT_HOLD) | TAKES(OPT_JSON),
	 1, 2, false, run_lease, NULL},
	{"names", "(tenants | plans | devices | sessions | leases)",
	 "names for completions of shells, one per line", A_TENANT, 1, 1, false, run_names, NULL},
	{"exec", "PROGRAM [ARGUMENT...]", "run a program with a lease on device memory",
	 TAKES(OPT_IF_TENANT) | TAKES(OPT_VRAM) | TAKES(OPT_MIN) | TAKES(OPT_MAX) |
		 TAKES(OPT_DEVICE) | TAKES(OPT_ROOM_WAIT) | TAKES(OPT_NO_LAYER) |
		 TAKES(OPT_MAX_PART) | TAKES(OPT_PRIORITY) | TAKES(OPT_SHARE) | TAKES(OPT_SLEEP) |
		 TAKES(OPT_QUIET) | TAKES(OPT_VERBOSE) | TAKES(OPT_REPORT),
	 1, UINT32_MAX, false, run_exec, NULL},
	{"gate", "(on | off | status)", "close GPUs to programs without a lease",
	 TAKES(OPT_CGROUP) | TAKES(OPT_NODES) | TAKES(OPT_USER) | TAKES(OPT_JSON), 1, 1, true,
	 run_gate, NULL},
	{"run", "MODEL.onnx", "run an ONNX model over arrays in files",
	 TAKES(OPT_INPUT) | TAKES(OPT_RUN_OUTPUT) | TAKES(OPT_EXPECT) | TAKES(OPT_RUN_DEVICE) |
		 TAKES(OPT_RTOL) | TAKES(OPT_DISABLE) | TAKES(OPT_ATOL) | TAKES(OPT_COUNT) |
		 TAKES(OPT_REPEAT) | TAKES(OPT_RUN_SECONDS) | TAKES(OPT_PROFILE) |
		 TAKES(OPT_CHECK) | TAKES(OPT_JSON),
	 1, 1, false, run_model, NULL},
	{"watch", "COMMAND [ARGUMENT...]", "repeat a listing until interrupted",
	 TAKES(OPT_INTERVAL), 1, 64, false, run_watch, NULL},
	{"set", "TENANT [KEY=VALUE...]",
	 "change a tenant's limits until the broker ends, or list them", 0, 1, 64, false, run_set,
	 NULL},
	{"evict", "[TENANT [PLAN]]", "evict plans from device memory",
	 TAKES(OPT_ALL) | TAKES(OPT_DEVICE), 0, 2, false, run_evict, NULL},
	{"drain", "(tenant TENANT | device N)", "give a tenant or a device no new work",
	 TAKES(OPT_WAIT) | TAKES(OPT_END) | TAKES(OPT_STATUS), 1, 2, false, run_drain, NULL},
	{"restart", NULL, "have the next broker take over, without a gap for clients",
	 TAKES(OPT_DRAIN) | TAKES(OPT_JSON), 0, 0, false, run_restart, NULL},
	{"force-cpu", "(on | off | status)", "run everything on the CPU, or print whether it is so",
	 0, 1, 1, false, run_force_cpu, NULL},
	{"reset-stats", NULL, "reset counters and learned figures", A_TENANT | TAKES(OPT_ALL), 0, 0,
	 false, run_reset_stats, NULL},
	{"log-level", "[error | warning | info | debug]", "set the broker's log level, or print it",
	 0, 0, 1, false, run_log_level, NULL},
};

enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const double default_timeout_s = 5, max_timeout_s = 3600;
static const double default_interval_s = 2, min_interval_s = 0.1, max_interval_s = 86400;
static const char home_and_clear[] = "\033[H\033[2J\033[3J";

static const struct command *command_find(const char *name)
{
	const char *names[N_COMMANDS + 1] = {NULL}, *near;

	for (unsigned int i = 0; i < N_COMMANDS; i++) {
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
		names[i] = commands[i].name;
	}
	near = suggest(name, names);
	control_fail(EXIT_USAGE, "there is no command %s; %s%s%s", text_name(name),
		     near ? "did you mean " : "see brokerctl --help", near ? near : "",
		     near ? "?" : "");
	return NULL;
}

/* Run a command that shows something, with the looks that its options ask for. */
static int show(const struct command *command, struct control *control,
		const struct arguments *arguments)
{
	output_set_style(command->options & TAKES(OPT_COLOR) ? arguments->values[OPT_COLOR]
							     : "never",
			 command->options & TAKES(OPT_WIDE) && !arguments->values[OPT_WIDE] &&
				 !arguments->values[OPT_CAPABILITIES]);
	return command->run(control, arguments);
}

static void wait_s(double seconds)
{
	struct timespec pause = {.tv_sec = (time_t)seconds};

	pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
	nanosleep(&pause, NULL);
}

/*
 * Repeat a listing until interrupted. The connection stays open, so that the broker keeps its
 * figures up to date; a lost connection is retried each time. Each listing is written to a terminal
 * in one go to avoid flicker.
 */
static int run_watch(struct control *control, const struct arguments *arguments)
{
	const char *interval = arguments->values[OPT_INTERVAL];
	const bool is_terminal = isatty(STDOUT_FILENO);
	double interval_s = default_interval_s;
	const struct command *command;
	struct arguments watched;
	char buffer[1 << 16];
	int status;

	if (interval && (!control_seconds(interval, max_interval_s, &interval_s) ||
			 interval_s < min_interval_s))
		return control_misuse(arguments, "--interval takes seconds, from %g to %g",
				      min_interval_s, max_interval_s);
	command = command_find(arguments->operands[0]);
	if (!command)
		return EXIT_USAGE;
	if (!command->is_listing)
		return control_misuse(arguments, "watch cannot repeat %s", command->name);
	status = arguments_read(command, (int)arguments->n_operands, arguments->operands, &watched);
	if (status)
		return status;
	if (watched.values[OPT_FOLLOW] || watched.values[OPT_HELP])
		return control_misuse(arguments, "watch cannot repeat %s with that option",
				      command->name);

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	for (;;) {
		if (is_terminal)
			fputs(home_and_clear, stdout);
		status = show(command, control, &watched);
		if (status == EXIT_NO_BROKER)
			control_disconnect(control);
		else if (status == EXIT_USAGE || status == EXIT_NOT_PERMITTED)
			break;
		if (!output_flush()) {
			status = EXIT_OK;
			break;
		}
		wait_s(interval_s);
	}
	setvbuf(stdout, NULL, _IONBF, 0);
	return status;
}

static void print_usage(FILE *file)
{
	fputs("usage: brokerctl [OPTION...] COMMAND [ARGUMENT...]\n\nCommands:\n", file);
	for (unsigned int i = 0; i < N_COMMANDS; i++)
		fprintf(file, "  %-12s %s\n", commands[i].name, commands[i].summary);
	fputs("\nOptions:\n"
	      "  --socket=PATH        the broker's socket; see brokerctl(1) for the default\n"
	      "  --admin-socket=PATH  administrators' socket (default: that of --socket, see "
	      "brokerd(8))\n"
	      "  --timeout=SECONDS    time that the broker has to answer (5)\n"
	      "  --help               this text; after a command: the command's options\n"
	      "  --version            the version\n",
	      file);
}

/*
 * Report an unknown option, with a suggestion.
 * Return: EXIT_USAGE.
 */
static int unknown_option(const char *word)
{
	const char *names[N_CONTROL_OPTIONS + 1], *near;
	char name[64];

	for (unsigned int i = 0; i <= N_CONTROL_OPTIONS; i++)
		names[i] = control_options[i].name;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	if (arguments_has_option(name + strspn(name, "-")))
		return control_fail(EXIT_USAGE,
				    "%s is an option of commands: write it after the command",
				    text_name(name));
	near = suggest(name + strspn(name, "-"), names);
	if (near)
		return control_fail(EXIT_USAGE, "there is no option %s; did you mean --%s?",
				    text_name(name), near);
	near = arguments_option_near(name + strspn(name, "-"));
	if (near)
		return control_fail(EXIT_USAGE,
				    "there is no option %s; did you mean --%s, after the command?",
				    text_name(name), near);
	return control_fail(EXIT_USAGE, "there is no option %s; see brokerctl --help",
			    text_name(name));
}

/*
 * Return: EXIT_OK, EXIT_USAGE, or -1 if the option has been carried out and brokerctl is to exit.
 */
static int read_options(struct control *control, int argc, char **argv)
{
	double timeout_s = default_timeout_s;
	int option, at;

	opterr = 0;
	for (;;) {
		at = optind;
		/* "+": options after the command's name belong to the command. */
		option = getopt_long(argc, argv, "+:h", control_options, NULL);
		switch (option) {
		case -1:
			control->timeout_ns = (uint64_t)(timeout_s * 1e9);
			return EXIT_OK;
		case 's':
			control->socket_path = optarg;
			break;
		case 'a':
			control->admin_path = optarg;
			break;
		case 't':
			control->has_timeout = true;
			if (control_seconds(optarg, max_timeout_s, &timeout_s) && timeout_s > 0)
				break;
			return control_fail(EXIT_USAGE, "--timeout takes seconds, up to %g, not %s",
					    max_timeout_s, text_name(optarg));
		case 'h':
			print_usage(stdout);
			return -1;
		case 'v':
			printf("brokerctl %s\n", RINGBROKER_VERSION);
			return -1;
		case ':':
			return control_fail(EXIT_USAGE, "%s needs an argument",
					    text_name(argv[at]));
		default:
			return unknown_option(argv[at]);
		}
	}
}

static void print_command_usage(const struct command *command)
{
	command_print_usage(command);
	if (command->run == run_set)
		set_print_keys();
}

/* Accept "help" and "help COMMAND", which users try. */
static int help(int argc, char **argv)
{
	const struct command *command = argc > 1 ? command_find(argv[1]) : NULL;

	if (argc > 1 && !command)
		return EXIT_USAGE;
	if (command)
		print_command_usage(command);
	else
		print_usage(stdout);
	return output_finish(EXIT_OK);
}

int main(int argc, char **argv)
{
	struct control control = {.socket_path = NULL};
	const struct command *command;
	struct arguments arguments;
	int status, first;

	streams_init();
	/* A closed pipe is detected by a failed write. */
	control.sigpipe = signal(SIGPIPE, SIG_IGN);
	status = read_options(&control, argc, argv);
	if (status)
		return status < 0 ? output_finish(EXIT_OK) : status;
	if (optind == argc) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	first = optind;
	if (strcmp(argv[first], "help") == 0)
		return help(argc - first, argv + first);
	command = command_find(argv[first]);
	if (!command)
		return EXIT_USAGE;
	status = arguments_read(command, argc - first, argv + first, &arguments);
	if (status)
		return command->run == run_exec ? EXEC_FAILED : status;
	if (arguments.values[OPT_HELP])
		print_command_usage(command);
	else
		status = show(command, &control, &arguments);
	control_disconnect(&control);
	return output_finish(status);
}
