#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The kernel's judgement of a process after a GPU was reset
 *
 * amdgpu remembers for each context whether the device was reset since the context was made, and
 * whether a submission of the context was the reason: AMDGPU_CTX_OP_QUERY_STATE2. Contexts belong
 * to an open file description, and have small numbers there, so that a process can ask about all of
 * its own, whichever library made them. The question changes nothing but the counts of memory
 * errors that the driver has yet to report, on cards with ECC. Other drivers are not asked.
 */
#include <stdint.h>

enum reset_verdict {
	RESET_VERDICT_UNKNOWN = 0,
	RESET_VERDICT_INNOCENT = 1, /* it was reset, for no work of this process */
	RESET_VERDICT_GUILTY = 2,   /* work of this process took too long, or was faulty */
	RESET_VERDICT_COUNT,
};

/*
 * Ask about the contexts of this process on the device with one of two nodes, dev_t of /dev/dri/;
 * 0: there is no such node; both 0: on any device. It looks at the process's descriptors, about 1
 * us each.
 */
enum reset_verdict reset_verdict(uint64_t render, uint64_t primary);
