#pragma once
/* SPDX-License-Identifier: MIT */
/* What the reasons of completions mean, in words. */

/* Of enum rbk_reason. */
const char *reason_meaning(unsigned int reason);
