#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Player of recordings
 *
 * The player shows a recording's moments at their original speed, faster or slower, or one at a
 * time, forwards and backwards.
 */
#include "model.h"
#include "recording.h"

struct player {
	int fd;
	struct recording_moment *moments;
	uint32_t n_moments;
	bool is_cut;      /* the file has more, which is no whole moment */
	uint32_t shown;   /* moment that the model shows */
	uint32_t wanted;  /* moment to show next */
	bool has_shown;   /* the model shows a moment */
	bool is_standing; /* paused by the user, or at the end */
	int speed;        /* log2 of the speed factor */
	uint64_t step_ns; /* time per moment; 0: as recorded */
	uint64_t due_ns;  /* time of the next moment, on the caller's clock */
};

enum { PLAYER_SLOWEST = -3, PLAYER_FASTEST = 6 };

/*
 * Find all moments of a recording, and stand before the first. If the file ends within a moment,
 * as after its writer was killed or the disk was full, the moments before are found.
 * Return: 0, RECORDING_E_INVALID, -ENOMEM or -errno.
 */
int player_open(struct player *player, const char *path);
/* Close the player; one that is all zeros is permitted. */
void player_close(struct player *player);

/*
 * Bring the model to the wanted moment, with the rates and histories of that moment. Replaces
 * @pages and @only. @tenant: show only this tenant (NULL: all).
 * Return: as recording_read().
 */
int player_show(struct player *player, const char *tenant, struct pages *pages, uint32_t *only,
		struct model *model);

/*
 * Advance with time.
 * Return: true if the end was reached just now.
 */
bool player_run(struct player *player, uint64_t now_ns);
/* Return the time of the next change; UINT64_MAX: none will come. */
uint64_t player_next_ns(const struct player *player);

/* Return: true if the model shows the last whole moment of a file that was cut. */
bool player_is_at_cut(const struct player *player);

/*
 * Handle the player's keys: space, left and right arrow, g, G, + and -. *@ret_text receives a
 * message, or NULL.
 * Return: true if the key is one of them.
 */
bool player_handle(struct player *player, int code, uint64_t now_ns, const char **ret_text);

/* Write the position and state, such as "12/60 playing". */
void player_describe(const struct player *player, char *text, size_t bytes);
