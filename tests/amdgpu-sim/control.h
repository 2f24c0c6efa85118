#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Functions shared by the parts of the control program
 *
 * Commands return the exit status: 0, 1 for a failed operation, 2 for wrong usage.
 */
#include "state.h"
#include <stdio.h>

#define EXIT_USAGE 2

/*
 * Print "amdgpu-sim: ..." to stderr.
 * Return: EXIT_USAGE.
 */
__attribute__((format(printf, 1, 2))) int control_usage(const char *format, ...);
/*
 * Print @what, an operation or a path, and the error's text to stderr.
 * Return: 1.
 */
int control_failed(const char *what, int error);

/* Make the state in @dir, which must exist, with these cards in the form of --card. */
int control_init(const char *dir, const char *const *cards, unsigned n_cards);
/*
 * Find "cardN" among the cards of the open state.
 * Return: false, after printing a sentence, if there is no such card.
 */
bool control_card(const char *name, struct sim_card **ret);

int control_set(struct sim_card *card, char **assignments, int n);
void control_keys(FILE *file);
int control_show(bool as_json);

struct control_run {
	const char *dir; /* NULL: a temporary directory */
	const char *cards[SIM_MAX_CARDS];
	unsigned n_cards;
	bool with_lavapipe;
};

int control_run(const struct control_run *run, char **command);
/* Print the environment that a program needs: NAME=VALUE lines. */
int control_env(const char *dir, bool with_lavapipe);

struct control_hog {
	uint64_t vram_bytes;
	uint64_t gtt_bytes;
	double seconds; /* negative: until killed or end of stdin */
};

int control_hog(struct sim_card *card, const struct control_hog *hog);
