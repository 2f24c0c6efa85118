#pragma once
/* SPDX-License-Identifier: MIT */
/* The model as JSON, for programs. */
#include "picture.h"

/* Print one object on one line of standard output. brokertop(1) documents the members. */
void report_json(const struct model *model, const struct origin *origin);
