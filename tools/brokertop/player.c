/* SPDX-License-Identifier: MIT */
/*
 * Player: moving through a recording
 *
 * A model depends on earlier moments: rates on the last second, histories on the last five minutes.
 * Going forward therefore shows each moment in turn. Going back or jumping starts over, from as far
 * before the wanted moment as histories reach. Gaps in which the broker stood still are shortened.
 */
#include "player.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "input.h"

static const uint64_t second_ns = 1000000000;
/* Longest pause between two moments, regardless of the recorded time. */
static const uint64_t longest_step_ns = 5000000000;
static const uint64_t shortest_step_ns = 1000000;
/* Plans have rates but no histories. */
static const uint64_t plans_ns = 3000000000;
/*
 * Clocks of two brokers cannot be compared, so bound the number of moments; no broker has more
 * updates within a history.
 */
enum { MAX_REMEMBERED = 10 * MODEL_SECONDS };

int player_open(struct player *player, const char *path)
{
	struct recording_moment moment = {.end = 0}, *grown;
	uint32_t room = 0;
	int r = 0;

	*player = (struct player){.fd = open(path, O_RDONLY | O_CLOEXEC)};
	if (player->fd < 0)
		return -errno;
	while (r == 0) {
		r = recording_find(player->fd, moment.end, &moment);
		if (r)
			break;
		if (player->n_moments == room) {
			room = room ? 2 * room : 64;
			grown = realloc(player->moments, room * sizeof(*grown));
			if (!grown)
				r = -ENOMEM;
			else
				player->moments = grown;
		}
		if (r == 0)
			player->moments[player->n_moments++] = moment;
	}
	/* The writer was killed, or the disk was full: the moments before are whole. */
	if (r == RECORDING_E_INVALID && player->n_moments) {
		player->is_cut = true;
		r = 0;
	}
	if (r == RECORDING_E_END)
		r = player->n_moments ? 0 : RECORDING_E_INVALID;
	if (r)
		player_close(player);
	return r;
}

void player_close(struct player *player)
{
	if (player->moments || player->fd > 0)
		close(player->fd);
	free(player->moments);
	*player = (struct player){.fd = -1};
}

/* Return the time to the next moment; a fixed value if the clocks of two brokers differ. */
static uint64_t between_ns(const struct player *player, uint32_t moment)
{
	const uint64_t from_ns = player->moments[moment].at_ns;
	const uint64_t to_ns = player->moments[moment + 1].at_ns;

	if (to_ns < from_ns)
		return second_ns;
	return to_ns - from_ns < longest_step_ns ? to_ns - from_ns : longest_step_ns;
}

/* Return the age of a moment relative to the wanted one, on the recorded clocks. */
static uint64_t age_ns(const struct player *player, uint32_t moment)
{
	const uint64_t wanted_ns = player->moments[player->wanted].at_ns;
	const uint64_t at_ns = player->moments[moment].at_ns;

	return wanted_ns > at_ns ? wanted_ns - at_ns : 0;
}

static int show_one(struct player *player, uint32_t moment, const char *tenant, struct pages *pages,
		    uint32_t *only, struct model *model)
{
	unsigned int what = age_ns(player, moment) <= plans_ns ? MODEL_PLANS : 0;
	struct pages read;
	int r = recording_read(player->fd, &player->moments[moment], &read);

	if (r)
		return r;
	pages_unmap(pages);
	*pages = read;
	*only = 0;
	/* The tenant does not exist yet: use a number that no tenant has. */
	if (tenant && pages->root.page && !pages_find_number(pages, tenant, only))
		*only = UINT32_MAX;
	if (moment == player->wanted)
		what |= MODEL_DECISIONS;
	return model_update(model, pages, *only, what);
}

/*
 * Clear the model.
 * Return: 0, or -ENOMEM.
 */
static int begin_anew(struct model *model)
{
	model_deinit(model);
	return model_init(model);
}

int player_show(struct player *player, const char *tenant, struct pages *pages, uint32_t *only,
		struct model *model)
{
	const bool is_next = player->has_shown && player->wanted > player->shown;
	uint32_t from = player->wanted;
	int r = 0;

	if (player->has_shown && player->wanted == player->shown)
		return 0;
	while (from > 0 && !(is_next && from == player->shown + 1) &&
	       player->wanted - from < MAX_REMEMBERED &&
	       age_ns(player, from) <= MODEL_SECONDS * second_ns)
		from--;
	/*
	 * Start over unless the first moment to show follows the model's moment: histories would
	 * miss what was skipped.
	 */
	if (!(is_next && from == player->shown + 1))
		r = begin_anew(model);
	for (uint32_t i = from; i <= player->wanted && r == 0; i++)
		r = show_one(player, i, tenant, pages, only, model);
	player->shown = player->wanted;
	player->has_shown = true;
	return r;
}

static uint64_t step_ns(const struct player *player)
{
	uint64_t ns = player->step_ns ? player->step_ns : between_ns(player, player->wanted);

	ns = player->speed < 0 ? ns << -player->speed : ns >> player->speed;
	return ns > shortest_step_ns ? ns : shortest_step_ns;
}

static bool is_last(const struct player *player)
{
	return player->wanted + 1 == player->n_moments;
}

/* Pause or continue at the wanted moment. */
static void stand_or_go(struct player *player, bool is_standing, uint64_t now_ns)
{
	player->is_standing = is_standing || is_last(player);
	if (!player->is_standing)
		player->due_ns = now_ns + step_ns(player);
}

bool player_run(struct player *player, uint64_t now_ns)
{
	const bool was_standing = player->is_standing;

	if (player->due_ns == 0)
		stand_or_go(player, player->is_standing, now_ns);
	while (!player->is_standing && player->due_ns <= now_ns) {
		player->wanted++;
		player->is_standing = is_last(player);
		if (!player->is_standing)
			player->due_ns += step_ns(player);
	}
	return player->is_standing && !was_standing;
}

bool player_is_at_cut(const struct player *player)
{
	return player->is_cut && player->has_shown && player->shown + 1 == player->n_moments;
}

uint64_t player_next_ns(const struct player *player)
{
	return player->is_standing ? UINT64_MAX : player->due_ns;
}

bool player_handle(struct player *player, int code, uint64_t now_ns, const char **ret_text)
{
	*ret_text = NULL;
	switch (code) {
	case ' ':
	case 'Z':
		/* At the end, space starts from the beginning. */
		if (player->is_standing && is_last(player))
			player->wanted = 0;
		stand_or_go(player, !player->is_standing, now_ns);
		break;
	case INPUT_LEFT:
		if (player->wanted > 0)
			player->wanted--;
		else
			*ret_text = "this is the beginning of the recording";
		stand_or_go(player, true, now_ns);
		break;
	case INPUT_RIGHT:
		if (!is_last(player))
			player->wanted++;
		else
			*ret_text = "this is the end of the recording";
		stand_or_go(player, true, now_ns);
		break;
	case 'g':
		player->wanted = 0;
		stand_or_go(player, player->is_standing, now_ns);
		break;
	case 'G':
		player->wanted = player->n_moments - 1;
		*ret_text = "this is the end of the recording; space plays it again";
		stand_or_go(player, true, now_ns);
		break;
	case '+':
	case '=':
		player->speed += player->speed < PLAYER_FASTEST;
		stand_or_go(player, player->is_standing, now_ns);
		break;
	case '-':
		player->speed -= player->speed > PLAYER_SLOWEST;
		stand_or_go(player, player->is_standing, now_ns);
		break;
	default:
		return false;
	}
	return true;
}

void player_describe(const struct player *player, char *text, size_t bytes)
{
	int n = snprintf(text, bytes, "%u/%u ", player->shown + 1, player->n_moments);

	if (n < 0 || (size_t)n >= bytes)
		return;
	if (is_last(player))
		snprintf(text + n, bytes - (size_t)n, "the end");
	else if (player->is_standing)
		snprintf(text + n, bytes - (size_t)n, "paused");
	else if (player->speed == 0)
		snprintf(text + n, bytes - (size_t)n, "playing");
	else if (player->speed > 0)
		snprintf(text + n, bytes - (size_t)n, "playing %dx", 1 << player->speed);
	else
		snprintf(text + n, bytes - (size_t)n, "playing 1/%dx", 1 << -player->speed);
}
