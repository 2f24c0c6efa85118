#pragma once
/* SPDX-License-Identifier: MIT */
/* A compute shader's code: may its dispatches be sliced, or those of a rewritten shader? */
#include <stdbool.h>
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

enum { SHADER_COUNTS_BYTES = 12 };

/*
 * Rewrite a shader that reads the number of workgroups, so that it reads it from push constants:
 * three numbers of 32 bits at @offset_bytes, a multiple of 4 behind all other push constants. Its
 * dispatches may be sliced along any axis.
 * Return: code, to be freed, and its number of words; NULL: it cannot be rewritten, since it reads
 * no number of workgroups, has atomic operations, or is not understood; or there is no memory.
 */
uint32_t *shader_rewrite(const uint32_t *words, size_t n_words, uint32_t offset_bytes,
			 size_t *ret_n_words);
/* Return true if the shader can be rewritten. */
bool shader_can_rewrite(const uint32_t *words, size_t n_words);
