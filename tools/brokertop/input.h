#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Keys and the mouse: what they change of the picture, and what they ask for
 *
 * Changes of the broker are put together here and confirmed by the user; whoever calls carries them
 * out.
 */
#include "picture.h"

/* A key that is no character. */
enum {
	INPUT_UP = 0x100,
	INPUT_DOWN,
	INPUT_LEFT,
	INPUT_RIGHT,
	INPUT_PAGE_UP,
	INPUT_PAGE_DOWN,
	INPUT_HOME,
	INPUT_END,
	INPUT_BACKSPACE,
	INPUT_ENTER,
	INPUT_ESCAPE,
	INPUT_TAB,
	INPUT_CLICK, /* at x, y; y -1: on the line of keys */
	INPUT_WHEEL_UP,
	INPUT_WHEEL_DOWN,
	INPUT_F = 0x200, /* and the number of the key */
};

struct input {
	int code; /* INPUT_*, or ASCII */
	int x, y;
};

enum change_kind {
	CHANGE_NONE,
	CHANGE_BUDGET,
	CHANGE_EVICT,
	CHANGE_DRAIN,
	CHANGE_DRAIN_END,
};

/* What the administrator wants changed. */
struct change {
	enum change_kind kind;
	uint32_t tenant, session, plan_id; /* as of struct rbk_admin_evict */
	char name[RBK_STATS_NAME_BYTES];   /* of the tenant, printable */
	char plan[RBK_NAME_BYTES];
	char value[64]; /* of vram-max */
};

enum input_wish {
	INPUT_NOTHING,
	INPUT_QUIT,
	INPUT_CHANGE, /* *change is confirmed */
};

/* @change keeps what has not been confirmed yet, from call to call. */
enum input_wish input_handle(struct picture *picture, const struct model *model, bool may_change,
			     struct change *change, int width, const struct input *input);
