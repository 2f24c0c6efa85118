#pragma once
/* SPDX-License-Identifier: MIT */
/* A plan of tensors that are others in another shape, for comparing executors with the reference.
 */
#include <stdbool.h>
#include <stdint.h>

#include "support/describe.h"

/*
 * Views of an input, of scratch and of a constant, which is in the reference's arena, into an
 * output and as a copy; of float16 if @half.
 */
struct describe *views_describe(uint32_t max_count, bool half);
