/* SPDX-License-Identifier: MIT */
/* Functions of single elements at chosen arguments, on the devices of test-operators.c */
#include "support/elementwise-cases.h"
#include "support/test.h"
#include "unit/op-rig.h"

static void fill_tail(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		      uint64_t *seed)
{
	const uint64_t n = buffers->bytes[0] / sizeof(double);

	for (uint64_t i = 0; i < n; i++)
		((double *)buffers->bindings[0])[i] = -3.5 + 3.0 * (double)i / (double)n;
}

/*
 * Where the normal distribution has little tail left, 1 - erf() cancels. Devices compute it so up
 * to a limit, at which the error must still be small.
 */
TEST(test_random__gelu_of_doubles)
{
	const struct op *op = op_by_kind(OP_GELU);
	const struct op_check check = {.rtol = op_rig_is_gpu() ? 5e-5 : 2e-5, .fill = fill_tail};
	uint64_t seed = 1;

	if (!op_rig_takes(op, RBK_DTYPE_F64))
		skip();
	/* Even rounds use erf(). */
	for (unsigned int round = 0; round < op_rig_rounds(24, 8); round += 2)
		op_check(reference_plan(elementwise_case(op, RBK_DTYPE_F64, round, &seed), NULL),
			 &check);
}
