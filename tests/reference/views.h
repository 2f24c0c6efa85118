#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A plan of views, tensors that alias another tensor in another shape, for comparing executors with
 * the reference.
 */
#include <stdbool.h>
#include <stdint.h>

#include "support/describe.h"

/*
 * Describe views of an input, of scratch and of a constant of the reference's arena; the views are
 * an output and are copied. With @half, the type is float16.
 */
struct describe *views_describe(uint32_t max_count, bool half);
