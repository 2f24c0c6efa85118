#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A recording being played
 *
 * Moments follow one another as they did, or faster, or one at a time, in both directions.
 */
#include "model.h"
#include "recording.h"

struct player {
	int fd;
	struct recording_moment *moments;
	uint32_t n_moments;
	uint32_t shown;   /* the moment that the model is of */
	uint32_t wanted;  /* and is to be */
	bool has_shown;   /* it is of some */
	bool is_standing; /* by the user's wish, or at its end */
	int speed;        /* two to the power of it */
	uint64_t step_ns; /* each takes so long; 0: as long as it took */
	uint64_t due_ns;  /* the next one, by whoever plays */
};

enum { PLAYER_SLOWEST = -3, PLAYER_FASTEST = 6 };

/*
 * Finds all moments of a recording, and is before the first. Return: 0; RECORDING_E_INVALID;
 * -ENOMEM; -errno.
 */
int player_open(struct player *player, const char *path);
/* Also of one that is all zeros. */
void player_close(struct player *player);

/*
 * Brings the model to the wanted moment, with rates and histories as they were then. @pages and
 * @only are replaced; @tenant: show this one only (NULL: all). Return: 0; as recording_read().
 */
int player_show(struct player *player, const char *tenant, struct pages *pages, uint32_t *only,
		struct model *model);

/* Goes on as time passes. Return: has it come to its end just now? */
bool player_run(struct player *player, uint64_t now_ns);
/* When there will be something else to show; UINT64_MAX: nothing is going to happen. */
uint64_t player_next_ns(const struct player *player);

/*
 * A key: space, the left and right arrow, g, G, + and - are the player's. *ret_text gets what it
 * has to say to that, or NULL. Return: was it one?
 */
bool player_handle(struct player *player, int code, uint64_t now_ns, const char **ret_text);

/* "12/60 playing" */
void player_describe(const struct player *player, char *text, size_t bytes);
