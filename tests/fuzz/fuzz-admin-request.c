/* SPDX-License-Identifier: MIT */
/* Fuzzing request_handle() with what administrators ask for. */
#define FUZZ_ADMIN true
#include "fuzz-request.c"
