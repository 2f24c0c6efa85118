#pragma once
/* SPDX-License-Identifier: MIT */
/* The model as JSON, for programs. */
#include "picture.h"

/* One object on one line of standard output; brokertop(1) says what its members are. */
void report_json(const struct model *model, const struct origin *origin);
