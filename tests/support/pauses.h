#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Threads of this process that are paused at random
 *
 * On a busy machine, or in a virtual one, a thread loses its processor between any two instructions
 * for longer than everything else takes. A signal does the same: its handler sleeps.
 */
#include <stdint.h>

/*
 * Pause the calling thread and those of the broker's, whose names begin with "rb-", again and again
 * at any of their instructions. No other thread may start or end until pauses_end().
 */
void pauses_begin(void);
/* Return how long a test runs under pauses: a second, or $RBK_PAUSES_S (suite soak). */
uint64_t pauses_run_ns(void);
/* End all pauses. There must have been some. */
void pauses_end(void);
