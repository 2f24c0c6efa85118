#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Keys and mouse: changes to the picture, and requests to the broker
 *
 * This file prepares changes of the broker, which the user confirms. The caller carries them out.
 */
#include "picture.h"

/* Keys without a character. */
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
	INPUT_BACK_TAB,
	INPUT_DELETE,
	INPUT_SHIFT_F3,
	INPUT_CLICK, /* at x, y; y is -1 on the line of keys */
	INPUT_WHEEL_UP,
	INPUT_WHEEL_DOWN,
	INPUT_F = 0x200, /* plus the number of the function key */
};

struct input {
	int code; /* INPUT_*, or ASCII */
	int x, y;
	uint64_t at_ns; /* CLOCK_MONOTONIC; of a click only */
};

enum change_kind {
	CHANGE_NONE,
	CHANGE_BUDGET,
	CHANGE_EVICT,
	CHANGE_DRAIN,
	CHANGE_DRAIN_END,
};

/* A change that the administrator wants. */
struct change {
	enum change_kind kind;
	uint32_t tenant, session, plan_id; /* as in struct rbk_admin_evict */
	char name[RBK_STATS_NAME_BYTES];   /* name of the tenant, printable */
	char plan[RBK_NAME_BYTES];
	char value[64]; /* value of vram-max */
};

enum input_wish {
	INPUT_NOTHING,
	INPUT_QUIT,
	INPUT_CHANGE,  /* *change has been confirmed */
	INPUT_COLUMNS, /* the user has chosen which columns are shown */
};

/*
 * Handle one key or mouse event. @why_not: why the user may not make changes; NULL: the user may.
 * @change keeps an unconfirmed change between calls.
 */
enum input_wish input_handle(struct picture *picture, const struct model *model,
			     const char *why_not, struct change *change, int width,
			     const struct input *input);
