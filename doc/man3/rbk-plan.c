/* SPDX-License-Identifier: MIT */
/* Prepare the described plan for tasks of up to 32 rows, and free the description. */
#include <ringbroker.h>
#include <stdio.h>

static struct rbk_plan *prepare(struct rbk *rbk, struct rbk_builder *builder)
{
	struct rbk_plan *plan = NULL;
	struct rbk_plan_info info;
	struct rbk_error error;

	if (rbk_plan_new(rbk, builder, 32, &plan, &error)) {
		fprintf(stderr, "%s\n", error.text);
	} else {
		rbk_plan_info(plan, &info);
		printf("plan %u takes %u references\n", info.id, info.n_refs);
	}
	rbk_builder_free(builder);
	return plan;
}

int main(void)
{
	const uint32_t dims[] = {RBK_DIM_COUNT, 16};
	struct rbk_builder *b = rbk_builder_new("relu");
	unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims);
	struct rbk *rbk;

	rbk_builder_unary(b, "Relu", x, rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims));
	if (rbk_connect(NULL, &rbk, NULL))
		return 1;
	rbk_plan_free(prepare(rbk, b));
	rbk_disconnect(rbk);
	return 0;
}
