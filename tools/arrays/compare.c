/* SPDX-License-Identifier: MIT */
/*
 * Comparing arrays
 *
 * The rule is ONNX's: NumPy's allclose() with NaN equal to NaN, that is, a tolerance relative to
 * the expected value, for floating-point numbers only. The worst element is the one that exceeds
 * its tolerance the most. A NaN or an infinity on one side only exceeds any tolerance.
 */
#include "arrays/array.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Return the amount by which the difference exceeds the tolerance; 0 if the numbers match. */
static double excess(double got, double want, double rtol, double atol, double *ret_allowed)
{
	double difference, allowed;

	*ret_allowed = 0;
	if (got == want || (isnan(got) && isnan(want)))
		return 0;
	if (!isfinite(got) || !isfinite(want))
		return INFINITY;
	difference = fabs(got - want);
	allowed = atol + rtol * fabs(want);
	*ret_allowed = allowed;
	return difference <= allowed ? 0 : difference - allowed;
}

static void note(struct array_difference *difference, uint64_t index, double by, double allowed,
		 double *worst_by)
{
	if (difference->n_different++ == 0)
		difference->first = index;
	if (difference->n_different > 1 && !(by > *worst_by))
		return;
	*worst_by = by;
	difference->worst = index;
	difference->worst_allowed = allowed;
}

/* Compare integers and booleans. */
static void compare_exact(const struct array *got, const struct array *want,
			  struct array_difference *ret)
{
	size_t width = array_dtype_bytes(want->dtype);
	double worst_by = 0;

	if (want->bytes == 0 || memcmp(got->data, want->data, want->bytes) == 0)
		return;
	for (uint64_t i = 0; i < want->n_elems; i++) {
		double a, b;

		if (memcmp((const char *)got->data + i * width,
			   (const char *)want->data + i * width, width) == 0)
			continue;
		a = array_number(got, i);
		b = array_number(want, i);
		/* Different 64-bit integers may become the same double. */
		note(ret, i, fabs(a - b) > 0 ? fabs(a - b) : 1, 0, &worst_by);
		if (fabs(a - b) > ret->largest) {
			ret->largest = fabs(a - b);
			ret->largest_of = b;
		}
	}
}

int array_compare(const struct array *got, const struct array *want, double rtol, double atol,
		  struct array_difference *ret)
{
	double worst_by = 0, by, allowed;

	*ret = (struct array_difference){.n_elems = want->n_elems};
	if (got->dtype != want->dtype)
		return ARRAY_E_DTYPE;
	if (got->rank != want->rank ||
	    memcmp(got->dims, want->dims, got->rank * sizeof(got->dims[0])) != 0)
		return ARRAY_E_SHAPE;
	if (!array_is_float(want)) {
		compare_exact(got, want, ret);
		return ret->n_different ? ARRAY_E_VALUES : 0;
	}
	for (uint64_t i = 0; i < want->n_elems; i++) {
		double a = array_number(got, i), b = array_number(want, i);

		by = excess(a, b, rtol, atol, &allowed);
		if (by > 0)
			note(ret, i, by, allowed, &worst_by);
		if (isfinite(a) && isfinite(b) && fabs(a - b) > ret->largest) {
			ret->largest = fabs(a - b);
			ret->largest_of = b;
		}
	}
	return ret->n_different ? ARRAY_E_VALUES : 0;
}

void array_difference_text(int result, const struct array *got, const struct array *want,
			   const struct array_difference *difference, char ret[ARRAY_WHY_BYTES])
{
	char a[ARRAY_TEXT_BYTES], b[ARRAY_TEXT_BYTES], at[ARRAY_TEXT_BYTES];
	int64_t place[ARRAY_MAX_RANK];
	double off;
	int n;

	if (result == ARRAY_E_DTYPE || result == ARRAY_E_SHAPE) {
		array_describe(got, a);
		array_describe(want, b);
		snprintf(ret, ARRAY_WHY_BYTES, "it is %.230s instead of %.230s", a, b);
		return;
	}
	if (result != ARRAY_E_VALUES) {
		snprintf(ret, ARRAY_WHY_BYTES, "all %" PRIu64 " elements are as expected",
			 difference->n_elems);
		return;
	}
	array_element_text(got, difference->worst, a);
	array_element_text(want, difference->worst, b);
	array_place(want, difference->worst, place);
	array_dims_text(place, want->rank, at);
	off = fabs(array_number(got, difference->worst) - array_number(want, difference->worst));
	n = snprintf(ret, ARRAY_WHY_BYTES,
		     "%" PRIu64 " of %" PRIu64 " element%s %s, %s %.200s: %.40s instead of %.40s",
		     difference->n_different, difference->n_elems,
		     difference->n_elems == 1 ? "" : "s",
		     difference->n_different == 1 ? "differs" : "differ",
		     difference->n_different == 1 ? "at" : "most of all", at, a, b);
	if (n > 0 && n < ARRAY_WHY_BYTES && isfinite(off))
		n += snprintf(ret + n, (size_t)(ARRAY_WHY_BYTES - n), ", off by %.3g", off);
	if (n > 0 && n < ARRAY_WHY_BYTES && isfinite(off) && array_is_float(want))
		snprintf(ret + n, (size_t)(ARRAY_WHY_BYTES - n), " (%.3g allowed)",
			 difference->worst_allowed);
}
