#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Math libraries as baselines: oneDNN and OpenBLAS, with one thread each unless stated otherwise
 *
 * A library is loaded when a bench asks for it. brokerbench therefore runs where the library is not
 * installed, and has its threads and signal handlers only when needed.
 */
#include <stdbool.h>
#include <stdint.h>

struct library;
struct library_matmul;
struct library_operator;
struct operator_data;
struct operator_shape;

enum {
	LIBRARY_E_ABSENT = 1, /* not installed, or not built in; see @ret_reason */
};

/*
 * Bits of the unsigned eight-bit operands whose products both sides compute exactly. Without VNNI,
 * oneDNN adds two products of an unsigned and a signed byte to 16 bits, with saturation, by
 * vpmaddubsw (oneDNN, "Nuances of int8 Computations").
 */
enum { LIBRARY_U8_BITS = 7 };

/*
 * Open a library. The reason lives as long as the program.
 * Return: 0 with the library; LIBRARY_E_ABSENT.
 */
int library_open_openblas(struct library **ret, const char **ret_reason);
int library_open_onednn(struct library **ret, const char **ret_reason);

/*
 * Free the library. Its code stays loaded, since neither library can be unloaded cleanly.
 * Return: NULL.
 */
struct library *library_free(struct library *library);

/* Return the library's name with the choice for this machine, such as "openblas-Cooperlake". */
const char *library_name(const struct library *library);

/*
 * Prepare C = A * B, row-major: A is m x k, B is k x n, C is m x n, all borrowed. B is a constant;
 * a library that can pack it does so here.
 * Return: 0; a negative errno.
 */
int library_matmul_new(struct library *library, uint32_t m, uint32_t k, uint32_t n, const float *a,
		       const float *b, float *c, struct library_matmul **ret);

/*
 * Prepare a product of eight-bit numbers in the same way.
 * Return: 0; a negative errno, -ENOSYS if the library has none.
 */
int library_matmul8_new(struct library *library, uint32_t m, uint32_t k, uint32_t n,
			const uint8_t *a, const int8_t *b, int32_t *c, struct library_matmul **ret);

/* Return: NULL. */
struct library_matmul *library_matmul_free(struct library_matmul *matmul);

/*
 * Compute C in the calling thread.
 * Return: 0; -EIO.
 */
int library_matmul_run(struct library_matmul *matmul);

/*
 * Prepare an operator over @data, borrowed; weights and bias are constants, as above. With
 * @own_layout pictures are in the library's preferred layout before and after the operator,
 * otherwise as in @data. @n_threads compute, including the caller of library_operator_run().
 * Return: 0; a negative errno, -ENOSYS if the library has no such operator.
 */
int library_operator_new(struct library *library, const struct operator_shape *shape,
			 const struct operator_data *data, bool own_layout, unsigned int n_threads,
			 struct library_operator **ret);

/* Return: NULL. */
struct library_operator *library_operator_free(struct library_operator *operator);

/*
 * Compute y in its layout.
 * Return: 0; -EIO.
 */
int library_operator_run(struct library_operator *operator);

/*
 * Copy y to @data.
 * Return: 0; -EIO.
 */
int library_operator_fetch(struct library_operator *operator);
