#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the control program share
 *
 * Commands return the exit status: 0, 1 what was asked for failed, 2 wrong use.
 */
#include "state.h"
#include <stdio.h>

#define EXIT_USAGE 2

/* Prints "amdgpu-sim: ..." to stderr. Return: EXIT_USAGE. */
__attribute__((format(printf, 1, 2))) int control_usage(const char *format, ...);
/* The same for what went wrong, with the error's text. Return: 1. */
int control_failed(const char *what, int error);

/* Makes the state in @dir, which must exist, with these cards as --card has them. */
int control_init(const char *dir, const char *const *cards, unsigned n_cards);
/* "cardN" as a card of the open state. Return: false, and a sentence, if there is none. */
bool control_card(const char *name, struct sim_card **ret);

int control_set(struct sim_card *card, char **assignments, int n);
void control_keys(FILE *file);
int control_show(bool as_json);

struct control_run {
	const char *dir; /* NULL: a temporary one */
	const char *cards[SIM_MAX_CARDS];
	unsigned n_cards;
	bool with_lavapipe;
};

int control_run(const struct control_run *run, char **command);
/* Prints the environment that a program needs, as NAME=VALUE, one a line. */
int control_env(const char *dir, bool with_lavapipe);

struct control_hog {
	uint64_t vram_bytes;
	uint64_t gtt_bytes;
	double seconds; /* negative: until killed or stdin ends */
};

int control_hog(struct sim_card *card, const struct control_hog *hog);
