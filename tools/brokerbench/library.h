#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Math libraries as baselines: oneDNN and OpenBLAS, one thread each unless said
 *
 * Loaded when a bench asks for them, so that brokerbench runs where they are not installed and
 * nobody else's threads and signal handlers live in it.
 */
#include <stdbool.h>
#include <stdint.h>

struct library;
struct library_matmul;
struct library_operator;
struct operator_data;
struct operator_shape;

enum {
	LIBRARY_E_ABSENT = 1, /* not installed, or not built in; @ret_reason says which */
};

/* Return: 0 and the library; LIBRARY_E_ABSENT. The reason lives as long as the program. */
int library_open_openblas(struct library **ret, const char **ret_reason);
int library_open_onednn(struct library **ret, const char **ret_reason);

/* Return: NULL. The code stays loaded: neither library can be unloaded cleanly. */
struct library *library_free(struct library *library);

/* "OpenBLAS-Cooperlake": with what was chosen for this machine. */
const char *library_name(const struct library *library);

/*
 * Prepares C = A * B, row-major: A is m x k, B is k x n, C is m x n, borrowed. B is a constant: a
 * library that can lay it out beforehand does so here.
 * Return: 0; negative errno.
 */
int library_matmul_new(struct library *library, uint32_t m, uint32_t k, uint32_t n, const float *a,
		       const float *b, float *c, struct library_matmul **ret);

/* The same of eight-bit numbers. Return: 0; negative errno; -ENOSYS if the library has none. */
int library_matmul8_new(struct library *library, uint32_t m, uint32_t k, uint32_t n,
			const uint8_t *a, const int8_t *b, int32_t *c, struct library_matmul **ret);

/* Return: NULL. */
struct library_matmul *library_matmul_free(struct library_matmul *matmul);

/* Computes C, in the calling thread. Return: 0; -EIO. */
int library_matmul_run(struct library_matmul *matmul);

/*
 * Prepares an operator over @data, borrowed; weights and bias are constants, as above. @own_layout:
 * pictures lie as the library likes them best, beforehand and afterwards; else as in @data.
 * @n_threads compute, the caller of library_operator_run() among them.
 * Return: 0; negative errno; -ENOSYS if the library has no such thing.
 */
int library_operator_new(struct library *library, const struct operator_shape *shape,
			 const struct operator_data *data, bool own_layout, unsigned int n_threads,
			 struct library_operator **ret);

/* Return: NULL. */
struct library_operator *library_operator_free(struct library_operator *operator);

/* Computes y, wherever it lies. Return: 0; -EIO. */
int library_operator_run(struct library_operator *operator);

/* Brings y into @data. Return: 0; -EIO. */
int library_operator_fetch(struct library_operator *operator);
