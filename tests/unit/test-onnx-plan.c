/* SPDX-License-Identifier: MIT */
/*
 * Tests of libclient/onnx: the plan given to a builder is the plan that the broker verifies
 *
 * The library talks to a fake broker, which parses the description as the real broker does.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/ringbroker/onnx.h"
#include "plan/executor.h"
#include "plan/plan.h"
#include "support/client-fixture.h"
#include "support/onnx-model.h"
#include "support/test.h"

static struct plan *described; /* the last plan, as parsed by the fake broker */
static struct exec_arena arena = {.bytes = 1 << 20, .immutable = true};
static uint8_t constants[4096]; /* contents of the plan's arena */

static struct exec_arena *find_arena(void *context, uint16_t id, const char **ret_why)
{
	return context;
}

int __real_rbk_plan_new(struct rbk *rbk, const struct rbk_builder *builder, uint32_t max_count,
			struct rbk_plan **ret, struct rbk_error *error);
int __wrap_rbk_plan_new(struct rbk *rbk, const struct rbk_builder *builder, uint32_t max_count,
			struct rbk_plan **ret, struct rbk_error *error);

int __wrap_rbk_plan_new(struct rbk *rbk, const struct rbk_builder *builder, uint32_t max_count,
			struct rbk_plan **ret, struct rbk_error *error)
{
	const struct plan_arena_lookup lookup = {find_arena, &arena};
	char message[PLAN_MESSAGE_BYTES] = "";
	void *desc = NULL;
	size_t bytes;

	if (rbk_builder_error(builder))
		fail_msg("%s", rbk_builder_error(builder));
	assert_int_equal(client_describe(builder, rbk, max_count, &desc, &bytes, error), 0);
	described = plan_free(described);
	if (plan_new(desc, bytes, &lookup, message, &described))
		fail_msg("%s", message);
	free(desc);
	for (size_t i = 0; i < builder->tensors.n; i++) {
		const struct builder_tensor *tensor =
			&((const struct builder_tensor *)builder->tensors.items)[i];

		if (tensor->kind == RBK_TENSOR_CONSTANT)
			memcpy(constants, tensor->arena->data, sizeof(constants));
	}
	return __real_rbk_plan_new(rbk, builder, max_count, ret, error);
}

static struct fixture fixture;
static struct rbk_onnx *model;

/* Load y = Relu(x w + b), and z = y + b under a name that is too long; b occurs twice. */
static void load(void)
{
	static const float w[] = {1, 2, 3, 4, 5, 6, 7, 8}, b[] = {-1, -2};
	const int64_t dims[] = {-1, 4}, w_dims[] = {4, 2}, b_dims[] = {2};
	struct onnx_model made;
	const uint8_t *bytes;
	size_t n_bytes;

	onnx_model_init(&made, 13);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, dims);
	onnx_model_input(&made, "unread", RBK_ONNX_F32, 2, dims);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 2, w_dims, w, sizeof(w));
	onnx_model_constant(&made, "b", RBK_ONNX_F32, 1, b_dims, b, sizeof(b));
	onnx_model_constant(&made, "c", RBK_ONNX_F32, 1, b_dims, b, sizeof(b));
	onnx_model_node(&made, "MatMul", "x w", "p");
	onnx_model_node(&made, "Add", "p b", "s");
	onnx_model_node(&made, "Relu", "s", "y");
	onnx_model_node(&made, "Add", "y c", "/model/layers.0/residual/Add_output_0");
	onnx_model_output(&made, "/model/layers.0/residual/Add_output_0");
	onnx_model_output(&made, "y");
	bytes = onnx_model_pack(&made, &n_bytes);
	assert_int_equal(rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &fixture.error), 0);
	onnx_model_deinit(&made);
}

static int begin(void **state)
{
	fixture_begin_connected(&fixture, NULL);
	load();
	return 0;
}

static int end(void **state)
{
	model = rbk_onnx_free(model);
	described = plan_free(described);
	fixture_end(&fixture);
	return 0;
}

static void compile(uint32_t max_count, uint32_t disable)
{
	const struct rbk_onnx_options options = {
		.size = sizeof(options), .max_count = max_count, .disable = disable};

	if (rbk_onnx_compile(model, &options, &fixture.error))
		fail_msg("%s", fixture.error.text);
}

static void make(const struct rbk_onnx_options *options)
{
	struct rbk_plan *plan = NULL;

	if (rbk_onnx_plan(model, fixture.rbk, options, &plan, &fixture.error))
		fail_msg("%s", fixture.error.text);
	assert_null(rbk_plan_free(plan));
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

/* Return the number of distinct addresses in the arena that the plan's constants have. */
static unsigned int n_places(void)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < described->n_constants; i++) {
		unsigned int j = 0;

		while (j < i && described->constants[j].offset != described->constants[i].offset)
			j++;
		n += j == i;
	}
	return n;
}

TEST(test_plan__whole, begin, end)
{
	static const float w[] = {1, 2, 3, 4, 5, 6, 7, 8}, b[] = {-1, -2};
	struct rbk_onnx_bound bound;

	compile(16, RBK_ONNX_OPT_BIAS);
	make(NULL);
	assert_fields(*described, (max_count, 16), (n_nodes, 4), (n_bindings, 3));
	assert_false(described->pinned);
	assert_string_equal(described->tensors[0].name, "x");
	assert_string_equal(described->tensors[1].name,
			    &"/model/layers.0/residual/Add_output_0"[6]);
	assert_string_equal(described->tensors[2].name, "y");
	assert_fields(*described, (tensors[3].kind, RBK_TENSOR_CONSTANT),
		      (tensors[5].kind, RBK_TENSOR_CONSTANT));
	assert_int_equal(n_places(), 2);
	assert_int_equal(rbk_onnx_n_bound(model), 3);
	assert_int_equal(rbk_onnx_bound(model, 1, &bound), 0);
	assert_string_equal(bound.name, "/model/layers.0/residual/Add_output_0");
	assert_int_equal(bound.index, 0);
	assert_true(bound.is_output);
	for (unsigned int i = 0; i < described->n_constants; i++) {
		const uint8_t *place = constants + described->constants[i].offset;

		if (described->constants[i].bytes == sizeof(w))
			assert_memory_equal(place, w, sizeof(w));
		else
			assert_memory_equal(place, b, sizeof(b));
	}

	compile(16, RBK_ONNX_OPT_SHARE | RBK_ONNX_OPT_BIAS);
	make(NULL);
	assert_int_equal(n_places(), 3);
}

/* If no dimension follows the count, tasks have one row. */
TEST(test_plan__fixed, begin, end)
{
	assert_int_equal(rbk_onnx_set_dim(model, "N", 3, &fixture.error), 0);
	compile(16, RBK_ONNX_OPT_BIAS);
	make(NULL);
	assert_fields(*described, (max_count, 1), (tensors[0].shape.dims[0], 3));
}

TEST(test_plan__pinned, begin, end)
{
	const struct rbk_onnx_options options = {.size = sizeof(options), .pin = 1 + 1};

	compile(16, RBK_ONNX_OPT_BIAS);
	make(&options);
	assert_true(described->pinned);
	assert_int_equal(described->pinned_device, 1);
}

/* Each step as a plan of its own: its inputs and outputs are bound, except constants. */
TEST(test_plan__steps, begin, end)
{
	static const unsigned int n_bound[] = {2, 2, 2, 2};
	struct rbk_onnx_options options = {.size = sizeof(options), .n_steps = 1};
	struct rbk_plan *plan;

	compile(16, RBK_ONNX_OPT_BIAS);
	assert_int_equal(rbk_onnx_n_steps(model), 4);
	for (unsigned int i = 0; i < 4; i++) {
		struct rbk_onnx_bound bound;

		options.first_step = i;
		make(&options);
		assert_fields(*described, (n_nodes, 1), (n_bindings, n_bound[i]));
		assert_int_equal(rbk_onnx_n_bound(model), n_bound[i]);
		assert_int_equal(rbk_onnx_bound(model, 0, &bound), 0);
		assert_false(bound.is_output);
		assert_int_equal(rbk_onnx_bound(model, 1, &bound), 0);
		assert_true(bound.is_output);
	}
	options.first_step = 1;
	options.n_steps = 2;
	make(&options);
	assert_fields(*described, (n_nodes, 2), (n_bindings, 2));
	options.n_steps = 4;
	assert_int_equal(rbk_onnx_plan(model, fixture.rbk, &options, &plan, &fixture.error),
			 -EINVAL);
	/* All steps in one plan again. */
	options.first_step = 0;
	make(&options);
	assert_int_equal(rbk_onnx_n_bound(model), 3);
	assert_string_equal(described->tensors[2].name, "y");
}

/* The model may be freed before the plan. */
TEST(test_plan__outlives_the_model, begin, end)
{
	struct rbk_plan *plan = NULL;

	compile(16, RBK_ONNX_OPT_BIAS);
	assert_int_equal(rbk_onnx_plan(model, fixture.rbk, NULL, &plan, &fixture.error), 0);
	model = rbk_onnx_free(model);
	assert_int_equal(fake_broker_objects(fixture.fake), 2);
	assert_null(rbk_plan_free(plan));
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}
