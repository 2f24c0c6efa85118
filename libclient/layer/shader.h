#pragma once
/* SPDX-License-Identifier: MIT */
/* Reading a compute shader's code: may its dispatches be sliced? */
#include <stddef.h>
#include <stdint.h>

/* Bit n: a dispatch must not be divided along axis n. */
enum { SHADER_ALL_AXES = 7 };

/*
 * Return the axes, bits 0 to 2, along which a dispatch of any of the entry points must stay whole:
 * those whose number of workgroups the shader reads (gl_NumWorkGroups), which in a slice would be
 * the slice's; all three if the workgroups may wait for each other, since the code has atomic
 * operations, or if the code is not understood. Workgroups that wait for each other without such
 * operations have a data race, and are not recognised. @n_words: 32-bit words of SPIR-V.
 */
uint32_t shader_whole_axes(const uint32_t *words, size_t n_words);
