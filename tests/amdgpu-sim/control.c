/* SPDX-License-Identifier: MIT */
/*
 * amdgpu-sim: set up simulated cards, run programs over them, and change them meanwhile
 *
 * The control program works on the state directly, so it needs no preloading itself.
 */
#include "control.h"
#include "chips.h"
#include "client.h"
#include "engine.h"
#include "memory.h"
#include "names.h"
#include "sysroot.h"
#include "sys.h"
#include "util/size.h"
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char help_begin[] =
	"Usage: amdgpu-sim COMMAND ...\n"
	"Runs programs over simulated AMD graphics cards, and changes these while they run.\n"
	"\n"
	"  run [--dir DIR] [--card CARD]... [--lavapipe] -- PROGRAM [ARGUMENT]...\n"
	"      Makes the cards, runs PROGRAM over them and exits with its status. Without --dir in "
	"a\n"
	"      temporary folder that is removed afterwards. CARD is "
	"CHIP[,vram=SIZE][,visible=SIZE]\n"
	"      [,gtt=SIZE]; without any, one polaris10. Vulkan sees only RADV, with --lavapipe "
	"also\n"
	"      lavapipe, unless VK_DRIVER_FILES or VK_ICD_FILENAMES is set.\n"
	"  init --dir DIR [--card CARD]...\n"
	"      Makes the cards.\n"
	"  env [--dir DIR] [--lavapipe]\n"
	"      Prints the environment that a program needs, a NAME=VALUE a line.\n"
	"  chips\n"
	"      Lists the chips.\n"
	"  show [--dir DIR] [--json]\n"
	"      Shows cards, their memory and their clients.\n"
	"  set [--dir DIR] [cardN] KEY=VALUE...\n"
	"      Changes a card; keys are below.\n"
	"  reset [--dir DIR] [cardN] [--vram-lost] [--innocent]\n"
	"      Resets the GPU. Contexts that exist are told, and what they submit is refused; "
	"with\n"
	"      --innocent they are told only. --vram-lost counts a loss of VRAM too.\n"
	"  unplug [--dir DIR] [cardN], plug [--dir DIR] [cardN]\n"
	"      Takes the card out: its files are gone and what is open says ENODEV. Puts a new "
	"one\n"
	"      in.\n"
	"  suspend [--dir DIR] [cardN], resume [--dir DIR] [cardN]\n"
	"      Sends the card to sleep: VRAM is evicted, and calls wait until it is resumed.\n"
	"  fail [--dir DIR] [cardN] CALL ERROR COUNT\n"
	"      The next COUNT calls fail with ERROR, such as ENOMEM. COUNT may be \"forever\", as "
	"on a\n"
	"      kernel that lacks the call, or 0, which takes it back. Calls are below.\n"
	"  hog [--dir DIR] [cardN] [--vram SIZE] [--gtt SIZE] [--for SECONDS]\n"
	"      Holds memory as another process would. Prints \"ready\" once it has it. Without "
	"--for\n"
	"      until killed or until its standard input ends.\n"
	"\n"
	"Without --dir, commands are for the simulator in AMDGPU_SIM_DIR, which \"run\" sets. "
	"Without\n"
	"cardN they are for card0. Sizes are as 4096, 512MiB or 1.5GiB.\n"
	"Exit status: 0 done, 1 failed, 2 wrong use; of \"run\" that of PROGRAM, 127 if it cannot "
	"be\n"
	"started, 128 and the signal's number if it was killed.\n"
	"\n"
	"Keys:\n";

int control_usage(const char *format, ...)
{
	va_list arguments;

	fputs("amdgpu-sim: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	return EXIT_USAGE;
}

int control_failed(const char *what, int error)
{
	fprintf(stderr, "amdgpu-sim: %s: %s\n", what, strerror(-error));
	return EXIT_FAILURE;
}

/* The parsed command line. */
struct options {
	struct control_run run;
	struct control_hog hog;
	bool as_json;
	bool is_vram_lost;
	bool is_innocent;
	struct sim_card *card;
	char **words; /* remaining words */
	int n_words;
};

static int parse_options(int argc, char **argv, struct options *options)
{
	enum { DIR = 256, CARD, LAVAPIPE, JSON, VRAM_LOST, INNOCENT, VRAM, GTT, FOR };
	static const struct option known[] = {
		{"dir", required_argument, NULL, DIR},
		{"card", required_argument, NULL, CARD},
		{"lavapipe", no_argument, NULL, LAVAPIPE},
		{"json", no_argument, NULL, JSON},
		{"vram-lost", no_argument, NULL, VRAM_LOST},
		{"innocent", no_argument, NULL, INNOCENT},
		{"vram", required_argument, NULL, VRAM},
		{"gtt", required_argument, NULL, GTT},
		{"for", required_argument, NULL, FOR},
		{NULL, 0, NULL, 0},
	};
	bool is_run = !strcmp(argv[0], "run");
	char *end;
	int option;

	*options = (struct options){.hog = {.seconds = -1}};
	/* "run" leaves its program's options alone: '+' ends parsing at the first word. */
	while ((option = getopt_long(argc, argv, is_run ? "+" : "", known, NULL)) != -1) {
		switch (option) {
		case DIR:
			options->run.dir = optarg;
			break;
		case CARD:
			if (options->run.n_cards == SIM_MAX_CARDS)
				return control_usage("at most %u cards", SIM_MAX_CARDS);
			options->run.cards[options->run.n_cards++] = optarg;
			break;
		case LAVAPIPE:
			options->run.with_lavapipe = true;
			break;
		case JSON:
			options->as_json = true;
			break;
		case VRAM_LOST:
			options->is_vram_lost = true;
			break;
		case INNOCENT:
			options->is_innocent = true;
			break;
		case VRAM:
			if (!size_parse(optarg, &options->hog.vram_bytes))
				return control_usage("--vram %s: a size, such as 6GiB", optarg);
			break;
		case GTT:
			if (!size_parse(optarg, &options->hog.gtt_bytes))
				return control_usage("--gtt %s: a size, such as 6GiB", optarg);
			break;
		case FOR:
			options->hog.seconds = strtod(optarg, &end);
			if (end == optarg || *end || !(options->hog.seconds >= 0) ||
			    options->hog.seconds > 1e9)
				return control_usage("--for %s: a number of seconds", optarg);
			break;
		default:
			return EXIT_USAGE;
		}
	}
	if (!options->run.n_cards)
		options->run.cards[options->run.n_cards++] = "polaris10";
	options->words = argv + optind;
	options->n_words = argc - optind;
	return 0;
}

/* Open the state and find the named card. */
static int open_state(struct options *options)
{
	const char *dir = options->run.dir ? options->run.dir : getenv("AMDGPU_SIM_DIR");
	int r;

	if (!dir)
		return control_usage("which simulator? --dir DIR is missing, and AMDGPU_SIM_DIR");
	r = sim_state_open(dir);
	if (r == -EPROTO)
		return control_usage("%s/state is not of this version of the simulator", dir);
	if (r)
		return control_failed(dir, r);
	options->card = &sim.state->cards[0];
	if (options->n_words && !strncmp(options->words[0], "card", 4)) {
		if (!control_card(options->words[0], &options->card))
			return EXIT_USAGE;
		options->words++;
		options->n_words--;
	}
	return 0;
}

static int command_run(struct options *options)
{
	if (!options->n_words)
		return control_usage("run: which program? It comes after --");
	return control_run(&options->run, options->words);
}

static int command_init(struct options *options)
{
	if (!options->run.dir)
		return control_usage("init: --dir DIR is missing");
	if (mkdir(options->run.dir, 0777) && errno != EEXIST)
		return control_failed(options->run.dir, -errno);
	return control_init(options->run.dir, options->run.cards, options->run.n_cards);
}

static int command_chips(struct options *options)
{
	for (unsigned i = 0; i < sim_n_chips; i++) {
		const struct sim_chip *chip = &sim_chips[i];

		printf("%-10s %04x:%02x  %-24s vram=%lluMiB gtt=%lluMiB%s\n", chip->name,
		       chip->device_id, chip->revision, chip->card,
		       (unsigned long long)(chip->vram_bytes >> 20),
		       (unsigned long long)(chip->gtt_bytes >> 20),
		       sim_chip_is_apu(chip) ? " APU" : "");
	}
	return 0;
}

static int command_env(struct options *options)
{
	return control_env(sim.dir, options->run.with_lavapipe);
}

static int command_show(struct options *options)
{
	return control_show(options->as_json);
}

static int command_set(struct options *options)
{
	return control_set(options->card, options->words, options->n_words);
}

/*
 * Reset a card as amdgpu_device.c, amdgpu_device_gpu_recover(), does; amdgpu_ctx.c and amdgpu_job.c
 * decide which contexts learn of it.
 */
static int command_reset(struct options *options)
{
	struct sim_card *card = options->card;

	sim_lock();
	sim_engine_advance(card);
	sim_engine_drop_all(card);
	card->reset_counter++;
	if (options->is_vram_lost)
		card->vram_lost_counter++;
	for (uint32_t i = 0; i < card->n_contexts; i++)
		card->contexts[i].is_guilty |= !options->is_innocent;
	sim_unlock();
	return 0;
}

static int command_unplug(struct options *options)
{
	struct sim_card *card = options->card;

	sim_lock();
	if (card->is_plugged)
		sim_sysroot_unplug(card);
	sim_engine_drop_all(card);
	card->is_plugged = false;
	sim_unlock();
	return 0;
}

/*
 * Plug the card in as a new device: it keeps nothing of the old one, whose clients cannot reach it.
 */
static int command_plug(struct options *options)
{
	struct sim_card *card = options->card;
	int r = 0;

	sim_lock();
	if (!card->is_plugged) {
		for (uint32_t slot = 0; slot < SIM_MAX_CLIENTS; slot++) {
			if (card->clients[slot].is_used)
				sim_handle_close_all(card, slot);
		}
		card->generation++;
		card->is_plugged = true;
		card->n_evictions = 0;
		card->n_bytes_moved = 0;
		card->reset_counter = 0;
		card->vram_lost_counter = 0;
		r = sim_sysroot_plug(card);
		sim_sysroot_refresh(card);
	}
	sim_unlock();
	return r ? control_failed("plug", r) : 0;
}

/* Suspend as amdgpu_device.c, amdgpu_device_suspend(), does: amdgpu_device_evict_resources(). */
static int command_suspend(struct options *options)
{
	sim_lock();
	sim_memory_evict_all(options->card);
	options->card->is_suspended = 1;
	sim_sysroot_refresh(options->card);
	sim_unlock();
	return 0;
}

static int command_resume(struct options *options)
{
	sim_lock();
	options->card->is_suspended = 0;
	sim_sysroot_refresh(options->card);
	sim_unlock();
	sys_futex_wake(&options->card->is_suspended);
	return 0;
}

/* Add a failure to the table; it replaces an earlier one of the same call. */
static int add_failure(struct sim_card *card, const struct sim_failure *failure)
{
	struct sim_failure *to = NULL;

	for (unsigned i = 0; i < SIM_MAX_FAILURES; i++) {
		struct sim_failure *at = &card->failures[i];

		if (at->n_left && at->nr == failure->nr && at->query == failure->query &&
		    at->sensor == failure->sensor) {
			*at = *failure;
			return 0;
		}
		if (!at->n_left && !to)
			to = at;
	}
	if (!to)
		return control_usage("at most %u calls can fail at a time", SIM_MAX_FAILURES);
	*to = *failure;
	return 0;
}

static int command_fail(struct options *options)
{
	struct sim_failure failure;
	struct sim_call call;
	char **words = options->words, *end;
	unsigned long count;
	int r;

	if (options->n_words != 3)
		return control_usage("fail: CALL, ERROR and COUNT");
	if (!sim_call_parse(words[0], &call))
		return control_usage("fail: %s: there is no such call; see amdgpu-sim --help",
				     words[0]);
	failure.error = sim_errno_parse(words[1]);
	if (!failure.error)
		return control_usage("fail: %s: there is no such error; ENOMEM, for one", words[1]);
	count = strtoul(words[2], &end, 10);
	if (!strcmp(words[2], "forever"))
		count = SIM_FOREVER;
	else if (end == words[2] || *end || words[2][0] == '-' || count >= SIM_FOREVER)
		return control_usage("fail: %s: a number, or \"forever\"", words[2]);
	failure.nr = call.nr;
	failure.query = call.query;
	failure.sensor = call.sensor;
	failure.n_left = (uint32_t)count;

	sim_lock();
	r = add_failure(options->card, &failure);
	sim_unlock();
	return r;
}

static int command_hog(struct options *options)
{
	return control_hog(options->card, &options->hog);
}

static const struct {
	const char *name;
	int (*function)(struct options *options);
	bool needs_state;
	int max_words; /* -1: any number */
} commands[] = {
	{"run", command_run, false, -1},     {"init", command_init, false, 0},
	{"chips", command_chips, false, 0},  {"env", command_env, true, 0},
	{"show", command_show, true, 0},     {"set", command_set, true, -1},
	{"reset", command_reset, true, 0},   {"unplug", command_unplug, true, 0},
	{"plug", command_plug, true, 0},     {"suspend", command_suspend, true, 0},
	{"resume", command_resume, true, 0}, {"fail", command_fail, true, -1},
	{"hog", command_hog, true, 0},
};

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	struct options options;
	int r;

	if (!name)
		return control_usage("a command is missing; see amdgpu-sim --help");
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		fputs(help_begin, stdout);
		control_keys(stdout);
		puts("\nCalls:");
		sim_call_list(stdout);
		return 0;
	}
	for (unsigned i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, name))
			continue;
		r = parse_options(argc - 1, argv + 1, &options);
		if (!r && commands[i].needs_state)
			r = open_state(&options);
		if (!r && commands[i].max_words >= 0 && options.n_words > commands[i].max_words)
			r = control_usage("%s: %s: what is that?", name, options.words[0]);
		return r ? r : commands[i].function(&options);
	}
	return control_usage("%s: there is no such command; see amdgpu-sim --help", name);
}
