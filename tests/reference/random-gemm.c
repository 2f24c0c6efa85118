/* SPDX-License-Identifier: MIT */
/* See random-gemm.h. */
#include "reference/random-gemm.h"

static uint32_t pick(uint64_t *state, uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(state) % (to - from + 1));
}

struct describe *random_gemm(uint64_t *state, unsigned int round, uint32_t max_count)
{
	const bool trans_a = round & 1, trans_b = round & 2, deep = round % 16 == 5;
	const uint32_t k = deep ? 400 : pick(state, 1, 30), n = pick(state, 1, 70);
	const bool dynamic = !trans_a && round & 4;
	const uint32_t m = dynamic ? DESCRIBE_COUNT : pick(state, 1, 30);
	const uint64_t constant = RBK_REF(REFERENCE_ARENA, pick(state, 0, 8) * RBK_REF_ALIGN);
	const uint32_t a[] = {trans_a ? k : m, trans_a ? m : k};
	const uint32_t b[] = {trans_b ? n : k, trans_b ? k : n};
	const unsigned int c_form = pick(state, 0, 5);
	struct describe *d = describe_new("", dynamic ? max_count : 1);

	describe_input(d, "a", 2, a);
	if (round & 8)
		describe_constant(d, "b", constant, 2, b);
	else
		describe_input(d, "b", 2, b);
	if (c_form == 1)
		describe_input(d, "c", DESCRIBE_SCALAR);
	else if (c_form == 2)
		describe_input(d, "c", DESCRIBE_DIMS(n));
	else if (c_form == 3)
		describe_input(d, "c", DESCRIBE_DIMS(m, 1));
	else if (c_form == 4)
		describe_input(d, "c", DESCRIBE_DIMS(1, n));
	else if (c_form == 5)
		describe_input(d, "c", DESCRIBE_DIMS(m, n));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Gemm", "", c_form ? "a,b,c" : "a,b", "y");
	describe_attr_int(d, "transA", trans_a);
	describe_attr_int(d, "transB", trans_b);
	if (round & 16)
		describe_attr_float(d, "alpha", 0.7f);
	if (round & 32)
		describe_attr_float(d, "beta", pick(state, 0, 1) ? -2.3f : 0);
	return d;
}
