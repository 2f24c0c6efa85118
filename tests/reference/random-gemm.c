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

static uint32_t pick_edge(uint64_t *state, const uint32_t *edges, unsigned int n)
{
	return edges[pick(state, 0, n - 1)];
}

struct describe *random_matmul(uint64_t *state, unsigned int round, uint32_t max_count)
{
	/* Sizes at tile edges and next to them. */
	static const uint32_t heights[] = {1, 2, 5, 6, 7, 12, 13, 24, 25};
	static const uint32_t widths[] = {1,  2,  3,  4,  5,  7,  8,  9,  15,
					  16, 17, 31, 32, 33, 63, 64, 65, 100};
	const unsigned int a_rank = round % 3 ? 2 : pick(state, 1, 5);
	const unsigned int b_rank = round % 3 ? 2 : pick(state, 1, 5);
	const unsigned int rank = a_rank > b_rank ? a_rank : b_rank;
	const uint32_t k = pick(state, 1, round % 3 ? 40 : 9);
	struct describe *d = describe_new("", max_count);
	uint32_t out[RBK_MAX_RANK], a[RBK_MAX_RANK], b[RBK_MAX_RANK];

	/* Batch dimensions are aligned at the end: position i of @rank. */
	for (unsigned int i = 0; i < rank; i++)
		out[i] = pick(state, 1, 4);
	for (unsigned int i = 0; i < a_rank; i++)
		a[i] = pick(state, 0, 2) ? out[rank - a_rank + i] : 1;
	for (unsigned int i = 0; i < b_rank; i++)
		b[i] = pick(state, 0, 2) ? out[rank - b_rank + i] : 1;
	a[a_rank - 1] = b[b_rank > 1 ? b_rank - 2 : 0] = k;
	if (a_rank > 1)
		a[a_rank - 2] = pick_edge(state, heights, 9);
	if (b_rank > 1)
		b[b_rank - 1] = pick_edge(state, widths, 18);
	/* The count is the number of rows, or the first batch dimension of one or both operands. */
	if (round & 1 && a_rank > 1 && a_rank == rank)
		a[0] = DESCRIBE_COUNT;
	if (round & 1 && rank > 2 && b_rank == rank)
		b[0] = pick(state, 0, 1) || a_rank != rank ? DESCRIBE_COUNT : 1;
	describe_input(d, "a", a_rank, a);
	if (b[0] != DESCRIBE_COUNT && pick(state, 0, 1))
		describe_constant(d, "b",
				  RBK_REF(REFERENCE_ARENA, pick(state, 0, 8) * RBK_REF_ALIGN),
				  b_rank, b);
	else
		describe_input(d, "b", b_rank, b);
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "a,b", "y");
	if (a[0] != DESCRIBE_COUNT && b[0] != DESCRIBE_COUNT)
		describe_set_max_count(d, 1);
	return d;
}
