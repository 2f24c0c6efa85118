/* SPDX-License-Identifier: MIT */
/* Fuzz request_handle() with the requests of administrators. */
#define FUZZ_ADMIN true
#include "fuzz-request.c"
