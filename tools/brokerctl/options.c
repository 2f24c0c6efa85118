/* SPDX-License-Identifier: MIT */
/*
 * Options and operands of subcommands
 *
 * All subcommands share one table: an option has one name, one meaning and one help text.
 */
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "util/suggest.h"
#include "monitor/text.h"
#include "output.h"

struct about {
	const char *name;
	const char *argument; /* NULL: none */
	bool is_optional;     /* the argument is optional */
	const char *help;
};

static const struct about about[N_OPTIONS] = {
	[OPT_ALL] = {"all", NULL, false, "every tenant"},
	[OPT_ATOL] = {"atol", "X", false,
		      "permitted difference, beside --rtol times the expected number (1e-6; "
		      "float16: 1e-3, float64: 1e-7, bfloat16: 1e-2)"},
	[OPT_CAPABILITIES] = {"capabilities", NULL, false,
			      "what each device runs: operators and element types"},
	[OPT_CGROUP] = {"cgroup", "PATH", false, "a cgroup of the unified hierarchy: /user.slice"},
	[OPT_CHECK] = {"check", NULL, false,
		       "run nothing: print what the model needs, and whether it can be run"},
	[OPT_COLOR] = {"color", "auto|always|never", true,
		       "use colours; auto, the default: on a terminal, unless NO_COLOR is set"},
	[OPT_COUNT] = {"count", "ROWS", false, "most rows of one task"},
	[OPT_DRAIN] = {"drain", "SECONDS", false,
		       "time for tasks in flight to complete (default: 5)"},
	[OPT_DEVICE] = {"device", "N", false, "this device only"},
	[OPT_DISABLE] = {"disable-optimisation", "NAME,...", false,
			 "switch off optimisations: fold, no-ops, dead, share, conv-bn, norm, "
			 "activation, attention, bias, fusion; or all"},
	[OPT_END] = {"end", NULL, false, "end draining"},
	[OPT_EXPECT] = {"expect", "[NAME=]FILE", false,
			"compare an output with this file; may be repeated"},
	[OPT_FOLLOW] = {"follow", NULL, false, "continue until interrupted"},
	[OPT_HELP] = {"help", NULL, false, "this text"},
	[OPT_HOLD] = {"hold", NULL, false, "with sleep: also hold the programs until wake"},
	[OPT_IF_TENANT] = {"tenant", "TENANT", false,
			   "run only if the broker assigns this process to TENANT"},
	[OPT_INPUT] = {"input", "[NAME=]FILE", false,
		       "read an input from this file; may be repeated"},
	[OPT_INTERVAL] = {"interval", "SECONDS", false,
			  "time between two listings (2); also -n SECONDS"},
	[OPT_JSON] = {"json", NULL, false, "JSON lines instead of text"},
	[OPT_LAST] = {"last", "N", false, "the last N decisions (20)"},
	[OPT_LEASE_PRIORITY] = {"priority", "urgent|normal|background|none", false,
				"all programs of the lease share the device's time with other "
				"leases, with this priority; none: they stop sharing it"},
	[OPT_LEASE_SHARE] = {"share", "N", false,
			     "1 to 10000: the lease's share; the leases of a tenant divide its "
			     "time of the device in proportion to their shares, which are no "
			     "limits (100)"},
	[OPT_LEASE_VRAM] = {"vram", "SIZE", false, "size of the lease, at most its maximum: 4GiB"},
	[OPT_MAX] = {"max", "SIZE", false,
		     "size that the lease may grow to while there is room (as --vram)"},
	[OPT_MAX_EVENTS] = {"max-events", "N", false,
			    "write at most N tasks, and as many timeslices of leases; standard "
			    "error has the number of the others (200000)"},
	[OPT_MAX_PART] = {"max-part", "TIME", false,
			  "share the device's time with other leases, and always divide command "
			  "buffers into parts of about this time: 500us"},
	[OPT_MIN] = {"min", "SIZE", false,
		     "accept this size if there is no room for all of --vram (as --vram)"},
	[OPT_NODES] = {"nodes", "FILE,...", false,
		       "gate these device files only, instead of those of all GPUs"},
	[OPT_NO_HEADER] = {"no-header", NULL, false, "rows only, without title and headings"},
	[OPT_NO_LAYER] = {"no-layer", NULL, false,
			  "reserve memory, but do not limit the program to it"},
	[OPT_OUTPUT] = {"output", "FILE", false, "write to this file instead of standard output"},
	[OPT_PRIORITY] = {"priority", "urgent|normal|background", false,
			  "share the device's time with other leases, with this priority"},
	[OPT_PROFILE] = {"profile", NULL, false, "also measure each node, on each device"},
	[OPT_QUIET] = {"quiet", NULL, false,
		       "print neither the memory use nor the time of the device at the end"},
	[OPT_REPEAT] = {"repeat", "N", false, "run the model N times, and print the times"},
	[OPT_REPORT] = {"report", "FILE", false,
			"write the memory use, the time of the device and the exit status to this "
			"file at the end, as JSON"},
	[OPT_ROOM_WAIT] = {"wait", "TIME", false,
			   "wait for room, at most this long: 30s, 5min, 1h"},
	[OPT_RTOL] = {"rtol", "X", false,
		      "|got - expected| <= atol + rtol * |expected| (1e-3; bfloat16: 1e-2)"},
	[OPT_RUN_DEVICE] = {"device", "auto|cpu|gpu|prefer-gpu|partition", false,
			    "cpu, gpu: run on that device only; prefer-gpu: on the CPU what the "
			    "GPU cannot run or has no room for; partition: split rows over the "
			    "devices, or let them stream through segments; auto, the default: "
			    "the broker decides"},
	[OPT_RUN_OUTPUT] = {"output", "[NAME=]FILE", false,
			    "write an output to this file; may be repeated"},
	[OPT_RUN_SECONDS] = {"seconds", "N", false,
			     "run the model again and again for N seconds, and print the times"},
	[OPT_SECONDS] = {"seconds", "N", false,
			 "also record for N seconds, after the logged tasks"},
	[OPT_SHARE] =
		{"share", "N", false,
		 "share the device's time with other leases; 1 to 10000: the lease's share; "
		 "the leases of a tenant divide its time in proportion to their shares, which "
		 "are no limits (100)"},
	[OPT_SHOWN_DEVICE] = {"device", "auto|cpu|gpu", false,
			      "with --capabilities: these devices only (auto, the default: all)"},
	[OPT_SLEEP] = {"sleep", NULL, false,
		       "let the memory of an idle program go to host memory on demand"},
	[OPT_SORT] = {"sort", "KEY", false, "largest first, or by name; -KEY: the reverse order"},
	[OPT_STATUS] = {"status", NULL, false, "only print how far draining is"},
	[OPT_SVG] = {"svg", NULL, false, "a picture (SVG), instead of Chrome's format"},
	[OPT_TENANT] = {"tenant", "TENANT", false, "this tenant only, by name or by number"},
	[OPT_USER] = {"user", "USER", false,
		      "the broker's user (default: the owner of its socket's folder)"},
	[OPT_VERBOSE] = {"verbose", NULL, false, "print each step"},
	[OPT_VRAM] = {"vram", "SIZE", false, "size of the lease: 4GiB"},
	[OPT_WAIT] = {"wait", "SECONDS", true, "wait until draining ends, at most this long"},
	[OPT_WIDE] = {"wide", NULL, false, "all columns, even if the terminal is too narrow"},
};

const struct option control_options[N_CONTROL_OPTIONS + 1] = {
	{"socket", required_argument, NULL, 's'},  {"admin-socket", required_argument, NULL, 'a'},
	{"timeout", required_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'v'},       {NULL, 0, NULL, 0},
};

static void print_option(FILE *file, const struct about *option)
{
	fprintf(file, "--%s", option->name);
	if (option->argument)
		fprintf(file, option->is_optional ? "[=%s]" : "=%s", option->argument);
}

/* Print the forms of a command that has several: its operands include the options of each. */
static void print_forms(FILE *file, const struct command *command)
{
	const char *form = command->operands, *before = "usage:";

	for (;;) {
		const int length = (int)strcspn(form, "\n");

		fprintf(file, "%s brokerctl [OPTION...] %s %.*s\n", before, command->name, length,
			form);
		if (form[length] == '\0')
			return;
		form += length + 1;
		before = "      ";
	}
}

static void print_synopsis(FILE *file, const struct command *command)
{
	if (command->operands && strchr(command->operands, '\n')) {
		print_forms(file, command);
		return;
	}
	fprintf(file, "usage: brokerctl [OPTION...] %s", command->name);
	if (command->options & TAKES(OPT_VRAM)) {
		fputc(' ', file);
		print_option(file, &about[OPT_VRAM]);
	}
	for (unsigned int i = 0; i < N_OPTIONS; i++) {
		if (!(command->options & TAKES(i)) || i == OPT_VRAM)
			continue;
		fputs(" [", file);
		print_option(file, &about[i]);
		fputs("]", file);
	}
	if (command->operands)
		fprintf(file, " %s", command->operands);
	fputc('\n', file);
}

void command_print_usage(const struct command *command)
{
	print_synopsis(stdout, command);
	printf("  %s\n", command->summary);
	putchar('\n');
	for (unsigned int i = 0; i < N_OPTIONS; i++) {
		if (!((command->options | TAKES(OPT_HELP)) & TAKES(i)))
			continue;
		fputs("  ", stdout);
		print_option(stdout, &about[i]);
		printf("\n      %s\n", about[i].help);
		if (i == OPT_SORT) {
			fputs("      KEY:", stdout);
			for (const char *const *key = command->sort_keys; *key; key++)
				printf(" %s", *key);
			putchar('\n');
		}
	}
}

int control_misuse(const struct arguments *arguments, const char *format, ...)
{
	va_list args;

	output_flush();
	fprintf(stderr, "brokerctl %s: ", arguments->command->name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	print_synopsis(stderr, arguments->command);
	return EXIT_USAGE;
}

int control_wrong_word(const struct arguments *arguments, const char *word,
		       const char *const *words)
{
	const char *near = suggest(word, words);
	char all[256] = "";
	size_t length = 0;

	for (unsigned int i = 0; words[i] && length < sizeof(all); i++)
		length += (size_t)snprintf(all + length, sizeof(all) - length, "%s%s",
					   i == 0         ? ""
					   : words[i + 1] ? ", "
							  : " and ",
					   words[i]);
	return control_misuse(arguments, "%s is none of %s%s%s%s", text_name(word), all,
			      near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

bool control_seconds(const char *text, double max, double *ret)
{
	double value;
	char *end;

	if ((text[0] < '0' || text[0] > '9') && text[0] != '.')
		return false;
	value = strtod(text, &end);
	if (end == text || *end != '\0' || !isfinite(value) || value > max)
		return false;
	*ret = value;
	return true;
}

bool arguments_has_option(const char *name)
{
	for (unsigned int i = 0; i < N_OPTIONS; i++)
		if (strcmp(about[i].name, name) == 0)
			return true;
	return false;
}

const char *arguments_option_near(const char *name)
{
	const char *names[N_OPTIONS + 1];

	for (unsigned int i = 0; i < N_OPTIONS; i++)
		names[i] = about[i].name;
	names[N_OPTIONS] = NULL;
	return suggest(name, names);
}

/* Return true if @name, without dashes, is an option that precedes the command. */
static bool control_has_option(const char *name)
{
	for (unsigned int i = 0; control_options[i].name; i++)
		if (strcmp(control_options[i].name, name) == 0)
			return true;
	return false;
}

/* Report an unknown option, with a suggestion. */
static int unknown_option(const struct arguments *arguments, const char *word)
{
	const char *names[N_OPTIONS + 1], *near;
	unsigned int n = 0;
	char name[64];

	for (unsigned int i = 0; i < N_OPTIONS; i++)
		if ((arguments->command->options | TAKES(OPT_HELP)) & TAKES(i))
			names[n++] = about[i].name;
	names[n] = NULL;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	if (control_has_option(name + strspn(name, "-")))
		return control_misuse(arguments, "%s stands in front of the command",
				      text_name(name));
	near = suggest(name + strspn(name, "-"), names);
	return control_misuse(arguments, "there is no option %s%s%s%s", text_name(name),
			      near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
}

static int check_sort(const struct arguments *arguments)
{
	const char *key = arguments->values[OPT_SORT], *near;
	const char *const *keys = arguments->command->sort_keys;
	char all[256] = "";
	size_t length = 0;

	if (!key)
		return EXIT_OK;
	key += key[0] == '-';
	for (unsigned int i = 0; keys[i]; i++)
		if (strcmp(keys[i], key) == 0)
			return EXIT_OK;
	near = suggest(key, keys);
	if (near)
		return control_misuse(arguments, "--sort does not take %s; did you mean %s?",
				      text_name(key), near);
	for (unsigned int i = 0; keys[i] && length < sizeof(all); i++)
		length += (size_t)snprintf(all + length, sizeof(all) - length, " %s", keys[i]);
	return control_misuse(arguments, "--sort does not take %s; there are%s", text_name(key),
			      all);
}

static int check_color(const struct arguments *arguments)
{
	static const char *const words[] = {"auto", "always", "never", NULL};
	const char *value = arguments->values[OPT_COLOR];

	for (unsigned int i = 0; value && value[0]; i++) {
		if (!words[i])
			return control_wrong_word(arguments, value, words);
		if (strcmp(words[i], value) == 0)
			break;
	}
	return EXIT_OK;
}

int arguments_read(const struct command *command, int argc, char **argv, struct arguments *ret)
{
	struct option options[N_OPTIONS + 1];
	unsigned int n = 0;
	int option, first;

	*ret = (struct arguments){.command = command};
	for (unsigned int i = 0; i < N_OPTIONS; i++)
		if ((command->options | TAKES(OPT_HELP)) & TAKES(i))
			options[n++] = (struct option){about[i].name,
						       !about[i].argument     ? no_argument
						       : about[i].is_optional ? optional_argument
									      : required_argument,
						       NULL, (int)i + 256};
	options[n] = (struct option){NULL, 0, NULL, 0};
	/* Restart getopt(), and disable its messages. */
	optind = 0;
	opterr = 0;
	for (;;) {
		first = optind ? optind : 1;
		/* "+": words after a watched subcommand or a program belong to that. */
		option = getopt_long(argc, argv,
				     command->options & TAKES(OPT_INTERVAL)   ? "+:n:"
				     : command->options & TAKES(OPT_NO_LAYER) ? "+:"
									      : ":",
				     options, NULL);
		if (option == -1)
			break;
		if (option == ':')
			return control_misuse(ret, "%s needs an argument",
					      text_name(argv[optind - 1]));
		if (option == '?' && optopt >= 256)
			return control_misuse(ret, "--%s takes no argument",
					      about[optopt - 256].name);
		if (option == '?')
			return unknown_option(ret, argv[optind > first ? optind - 1 : first]);
		ret->values[option == 'n' ? OPT_INTERVAL : option - 256] = optarg ? optarg : "";
		if (option - 256 != OPT_INPUT && option - 256 != OPT_EXPECT &&
		    option - 256 != OPT_RUN_OUTPUT)
			continue;
		if (ret->n_given == MAX_GIVEN)
			return control_misuse(ret, "there are more than %d files", (int)MAX_GIVEN);
		ret->given[ret->n_given++] = (struct given){(enum option_id)(option - 256), optarg};
	}
	ret->operands = argv + optind;
	ret->n_operands = (unsigned int)(argc - optind);
	if (ret->values[OPT_HELP])
		return EXIT_OK;
	if (ret->n_operands > command->n_most)
		return control_misuse(ret, "%s is one argument too many",
				      text_name(ret->operands[command->n_most]));
	if (ret->n_operands < command->n_least)
		return control_misuse(ret, "%s is missing",
				      strchr(command->operands, '\n')
					      ? strrchr(command->operands, ' ') + 1
					      : command->operands);
	return check_color(ret) ? EXIT_USAGE : check_sort(ret);
}
