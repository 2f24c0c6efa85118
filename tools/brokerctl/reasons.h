#pragma once
/* SPDX-License-Identifier: MIT */
/* Explanations of the reasons in completions. */

/* Return the meaning of a reason (enum rbk_reason). */
const char *reason_meaning(unsigned int reason);
