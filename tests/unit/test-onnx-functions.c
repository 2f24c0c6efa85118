/* SPDX-License-Identifier: MIT */
/* Tests of libclient/onnx: nodes in functions and branches, also hostile ones */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail-alloc.h"
#include "libclient/onnx/graph.h"
#include "support/onnx-model.h"
#include "support/test.h"

static struct onnx_model made;
static struct rbk_onnx *model;
static struct rbk_error error;

/* Begin a model that reads x, [N,4], and has the constants seven and two. */
static void start(void)
{
	onnx_model_init(&made, 17);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, (int64_t[]){-1, 4});
	onnx_model_ints(&made, "seven", 1, (int64_t[]){7});
	onnx_model_ints(&made, "two", 1, (int64_t[]){2});
}

static Onnx__FunctionProto *function(const char *name, const char *inputs, const char *outputs)
{
	return onnx_model_function(&made, "my", name, inputs, outputs, 17);
}

static Onnx__NodeProto *body(Onnx__FunctionProto *in, const char *op, const char *inputs,
			     const char *outputs)
{
	return onnx_model_function_node(&made, in, op, inputs, outputs);
}

static Onnx__NodeProto *body_call(Onnx__FunctionProto *in, const char *op, const char *inputs,
				  const char *outputs)
{
	return onnx_model_domain(&made, body(in, op, inputs, outputs), "my");
}

static Onnx__NodeProto *call(const char *op, const char *inputs, const char *outputs)
{
	return onnx_model_domain(&made, onnx_model_node(&made, op, inputs, outputs), "my");
}

static int try_load(void)
{
	const uint8_t *bytes;
	size_t n_bytes;

	bytes = onnx_model_pack(&made, &n_bytes);
	error.text[0] = 0;
	return rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &error);
}

static void load(const char *output)
{
	onnx_model_output(&made, output);
	if (try_load() || rbk_onnx_compile(model, NULL, &error))
		fail_msg("%s", error.text);
	onnx_model_deinit(&made);
}

static void expect_text(const char *words)
{
	if (!strstr(error.text, words))
		fail_msg("expected \"%s\", got \"%s\"", words, error.text);
}

static void expect_not_loaded(int r, const char *words)
{
	onnx_model_output(&made, "y");
	assert_int_equal(try_load(), r);
	expect_text(words);
	onnx_model_deinit(&made);
}

static void expect_refused(const char *words)
{
	onnx_model_output(&made, "y");
	if (try_load())
		fail_msg("%s", error.text);
	assert_int_equal(rbk_onnx_compile(model, NULL, &error), -EOPNOTSUPP);
	expect_text(words);
	model = rbk_onnx_free(model);
	onnx_model_deinit(&made);
}

/* Expect the plan's operators with their names, and free the model. */
static void expect_steps(const char *expected)
{
	char got[512] = "";

	for (unsigned int i = 0; i < rbk_onnx_n_steps(model); i++) {
		struct rbk_onnx_step step;
		size_t n = strlen(got);

		assert_int_equal(rbk_onnx_step(model, i, &step), 0);
		snprintf(got + n, sizeof(got) - n, "%s%s:%s", i ? " " : "", step.op, step.name);
	}
	assert_string_equal(got, expected);
	model = rbk_onnx_free(model);
}

/* Expect a folded value of one int64. */
static void expect_int(const char *name, int64_t expected)
{
	const struct constant *constant = NULL;

	for (uint32_t i = 0; i < model->n_values; i++)
		if (!strcmp(model->values[i].name, name) && model->graph->values[i])
			constant = model->graph->values[i]->constant;
	assert_non_null(constant);
	assert_int_equal(constant->dtype, RBK_ONNX_I64);
	assert_int_equal(*(const int64_t *)constant->data, expected);
}

/* ---- Calls ---- */

/* Inputs and outputs are matched by position, and names in a function's body are local to it. */
TEST(test_call__names)
{
	Onnx__FunctionProto *f;

	start();
	f = function("Pair", "two seven", "x y");
	body(f, "Mul", "d two", "y");
	body(f, "Sub", "seven two", "d");
	body(f, "Add", "d d", "x");
	call("Pair", "seven two", "a b");
	call("Pair", "two seven", "- c");
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	expect_int("a", -10);
	expect_int("b", -35);
	expect_int("c", 10);
	expect_steps("Relu:y");
}

TEST(test_call__nested)
{
	Onnx__FunctionProto *f;

	start();
	f = function("Outer", "a", "b");
	body_call(f, "Inner", "a", "t")->name = (char *)"first";
	body_call(f, "Inner", "t", "b");
	f = function("Inner", "a", "b");
	body(f, "Relu", "a", "r")->name = (char *)"relu";
	body(f, "Exp", "r", "b");
	call("Outer", "x", "z")->name = (char *)"call";
	call("Inner", "z", "y");
	load("y");
	expect_steps("Relu:call/first/relu Exp:call/first/b Relu:call/b/relu Exp:call/b/b "
		     "Relu:y/relu Exp:y/b");
}

/* The function's own opset defines the body's operators: Softmax-12 flattens to two dimensions. */
TEST(test_call__opsets)
{
	Onnx__FunctionProto *f;
	struct rbk_onnx_step step;

	onnx_model_init(&made, 17);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 3, (int64_t[]){-1, 3, 4});
	f = onnx_model_function(&made, "my", "Old", "a", "b", 12);
	body(f, "Softmax", "a", "b");
	call("Old", "x", "z");
	onnx_model_node(&made, "Softmax", "z", "y");
	load("y");
	assert_int_equal(rbk_onnx_n_steps(model), 4);
	assert_int_equal(rbk_onnx_step(model, 0, &step), 0);
	assert_string_equal(step.op, "Reshape");
	assert_int_equal(rbk_onnx_step(model, 3, &step), 0);
	assert_string_equal(step.op, "Softmax");
	model = rbk_onnx_free(model);

	start();
	f = onnx_model_function(&made, "my", "New", "a", "b", 12);
	body(f, "Mish", "a", "b");
	call("New", "x", "y");
	expect_refused("the operator exists only from opset 18 on (node 0 of function \"my.New\")");

	start();
	f = onnx_model_function(&made, "my", "Newest", "a", "b", 99);
	body(f, "Relu", "a", "b");
	call("Newest", "x", "y");
	expect_not_loaded(-EOPNOTSUPP, "the opset of function \"my.Newest\" is 99");

	start();
	f = function("None", "a", "b");
	f->n_opset_import = 0;
	body(f, "Relu", "a", "b");
	call("None", "x", "y");
	expect_not_loaded(-EBADMSG, "does not say which opset");
}

TEST(test_call__absent)
{
	Onnx__FunctionProto *f;

	/* Clip without a minimum: the input is absent, or given under an empty name. */
	for (unsigned int i = 0; i < 2; i++) {
		start();
		f = function("Limit", "a low high", "b");
		body(f, "Clip", "a low high", "b");
		call("Limit", i ? "x - -" : "x", "y");
		load("y");
		expect_steps("Reshape:y");
	}

	start();
	f = function("Limit", "a low", "b");
	body(f, "Add", "a low", "b");
	call("Limit", "x", "y");
	expect_refused("it has 1 input, expected 2 (node 0 of function \"my.Limit\")");

	start();
	f = function("Limit", "a low", "b low");
	body(f, "Relu", "a", "b");
	call("Limit", "x", "y z");
	expect_not_loaded(-EBADMSG,
			  "output 1 is an input of the function that the node does not give");
}

/* Outputs that are also inputs, or that are the same value. */
TEST(test_call__copies)
{
	Onnx__FunctionProto *f;

	start();
	f = function("Same", "a b", "b c c");
	body(f, "Add", "a b", "c");
	call("Same", "seven two", "p q r");
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	expect_int("p", 2);
	expect_int("q", 9);
	expect_int("r", 9);
	expect_steps("Relu:y");
}

/* A function in the file takes precedence over the catalogue's operator of the same name. */
TEST(test_call__shadows)
{
	static const char *const domains[] = {"", "ai.onnx"};
	Onnx__FunctionProto *f;

	for (unsigned int i = 0; i < 2; i++) {
		start();
		f = onnx_model_function(&made, domains[i], "Relu", "a", "b", 17);
		body(f, "Exp", "a", "b");
		onnx_model_domain(&made, onnx_model_node(&made, "Relu", "x", "y"), domains[!i]);
		load("y");
		expect_steps("Exp:y/b");
	}
}

TEST(test_call__overloads)
{
	Onnx__FunctionProto *f;

	start();
	f = function("F", "a", "b");
	body(f, "Exp", "a", "b");
	f = function("F", "a", "b");
	onnx_model_function_overload(&made, f, "other");
	body(f, "Relu", "a", "b");
	onnx_model_overload(&made, call("F", "x", "z"), "other");
	call("F", "z", "y");
	load("y");
	expect_steps("Relu:z/b Exp:y/b");

	start();
	f = function("F", "a", "b");
	onnx_model_function_overload(&made, f, "other");
	body(f, "Relu", "a", "b");
	call("F", "x", "y");
	expect_refused("operators of domain \"my\" are not in the catalogue");
}

/* ---- Attributes ---- */

/*
 * A function that adds a constant from an attribute: given by the caller, by default, or through
 * another function.
 */
TEST(test_attributes)
{
	Onnx__FunctionProto *f;
	Onnx__NodeProto *node, scratch = ONNX__NODE_PROTO__INIT;

	start();
	f = function("Plus", "a", "b");
	onnx_model_attr_ref(&made, body(f, "Constant", "", "c"), "value_int", "n");
	body(f, "Add", "a c", "b");
	onnx_model_attr_int(&made, &scratch, "n", 5);
	onnx_model_function_default(&made, f, scratch.attribute[0]);
	f = function("More", "a", "b");
	onnx_model_function_attr(&made, f, "m");
	onnx_model_attr_ref(&made, body_call(f, "Plus", "a", "b"), "n", "m");
	onnx_model_attr_int(&made, call("Plus", "seven", "given"), "n", 3);
	call("Plus", "seven", "default");
	onnx_model_attr_int(&made, call("More", "seven", "through"), "m", 30);
	call("More", "seven", "nothing");
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	expect_int("given", 10);
	expect_int("default", 12);
	expect_int("through", 37);
	expect_int("nothing", 12);
	expect_steps("Relu:y");

	/* Without a default the attribute is left out, and Softmax uses its own default. */
	for (unsigned int i = 0; i < 2; i++) {
		onnx_model_init(&made, 17);
		onnx_model_input(&made, "x", RBK_ONNX_F32, 3, (int64_t[]){2, 3, 4});
		f = function("Soft", "a", "b");
		onnx_model_function_attr(&made, f, "along");
		onnx_model_attr_ref(&made, body(f, "Softmax", "a", "b"), "axis", "along");
		node = call("Soft", "x", "y");
		if (i)
			onnx_model_attr_int(&made, node, "along", 7);
		if (i) {
			expect_refused("axis 7 is not one of 3 dimensions");
		} else {
			load("y");
			expect_steps("Softmax:y/b");
		}
	}
}

TEST(test_attributes__wrong)
{
	Onnx__FunctionProto *f;

	start();
	f = function("Soft", "a", "b");
	onnx_model_attr_ref(&made, body(f, "Softmax", "a", "b"), "axis", "along");
	call("Soft", "x", "y");
	expect_not_loaded(-EBADMSG,
			  "refers to \"along\", which function \"my.Soft\" does not have");

	start();
	f = function("Soft", "a", "b");
	body(f, "Softmax", "a", "b");
	onnx_model_attr_int(&made, call("Soft", "x", "y"), "axis", 1);
	expect_not_loaded(-EBADMSG, "has attribute \"axis\", which function \"my.Soft\" does not");

	start();
	onnx_model_attr_ref(&made, onnx_model_node(&made, "Softmax", "x", "y"), "axis", "along");
	expect_not_loaded(-EBADMSG,
			  "refers to a function's attribute, but the node is not in a function");

	/* An attribute of a type that the node does not accept. */
	start();
	f = function("Soft", "a", "b");
	onnx_model_function_attr(&made, f, "along");
	onnx_model_attr_ref(&made, body(f, "Softmax", "a", "b"), "axis", "along");
	onnx_model_attr_string(&made, call("Soft", "x", "y"), "along", "last");
	expect_refused("attribute \"axis\" is not an integer (node 0 of function \"my.Soft\")");
}

/* ---- Branches ---- */

static void add_branch(Onnx__NodeProto *node, const char *which, const char *op, const char *inputs,
		       const char *output)
{
	Onnx__GraphProto *graph = onnx_model_branch(&made, node, which);

	onnx_model_graph_node(&made, graph, op, inputs, output);
	onnx_model_graph_output(&made, graph, output);
}

/* Add an If of two branches whose nodes read @inputs. */
static Onnx__NodeProto *add_if(const char *condition, const char *inputs, const char *output)
{
	Onnx__NodeProto *node = onnx_model_node(&made, "If", condition, output);

	add_branch(node, "then_branch", "Relu", inputs, "t");
	add_branch(node, "else_branch", "Exp", inputs, "t");
	return node;
}

TEST(test_if__constant)
{
	for (unsigned int yes = 0; yes < 2; yes++) {
		start();
		onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 0, NULL, (uint8_t[]){(uint8_t)yes},
				    1);
		add_if("c", "x", "y")->name = (char *)"if";
		load("y");
		expect_steps(yes ? "Relu:if/t" : "Exp:if/t");

		/* A condition computed from constants is a constant, too. */
		start();
		onnx_model_node(&made, yes ? "Less" : "Greater", "two seven", "c");
		add_if("c", "x", "z");
		onnx_model_node(&made, "Neg", "z", "y");
		load("y");
		expect_steps(yes ? "Relu:z/t Neg:y" : "Exp:z/t Neg:y");
	}
}

/*
 * Branches read values of nodes that come after the If in the file. Those nodes are sorted before
 * the If.
 */
TEST(test_if__order)
{
	Onnx__NodeProto *node, *inner;
	Onnx__GraphProto *graph;

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 1, (int64_t[]){1}, "\1", 1);
	node = onnx_model_node(&made, "If", "c", "y");
	graph = onnx_model_branch(&made, node, "then_branch");
	inner = onnx_model_graph_node(&made, graph, "If", "c", "i");
	add_branch(inner, "then_branch", "Add", "late own", "t");
	add_branch(inner, "else_branch", "Exp", "late", "t");
	onnx_model_graph_node(&made, graph, "Neg", "later", "own");
	onnx_model_graph_output(&made, graph, "i");
	add_branch(node, "else_branch", "Relu", "x", "t");
	onnx_model_node(&made, "Relu", "x", "late");
	onnx_model_node(&made, "Exp", "late", "later");
	load("y");
	expect_steps("Relu:late Exp:later Neg:y/own Add:y/i/t");

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 0, NULL, "\1", 1);
	add_if("c", "z", "y");
	onnx_model_node(&made, "Neg", "y", "z");
	expect_not_loaded(-EBADMSG, "the graph is cyclic");
}

/* Names defined in a branch are local to it. A branch may output a value of the enclosing graph. */
TEST(test_if__names)
{
	Onnx__NodeProto *node;
	Onnx__GraphProto *graph;

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 0, NULL, "\1", 1);
	node = onnx_model_node(&made, "If", "c", "p q");
	for (unsigned int i = 0; i < 2; i++) {
		graph = onnx_model_branch(&made, node, i ? "else_branch" : "then_branch");
		onnx_model_graph_node(&made, graph, "Sub", "seven two", "seven_");
		onnx_model_graph_node(&made, graph, "Mul", "seven_ seven_", "two_");
		onnx_model_graph_output(&made, graph, "two_");
		onnx_model_graph_output(&made, graph, "seven");
	}
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	expect_int("p", 25);
	expect_int("q", 7);
	expect_steps("Relu:y");
}

/* An If in a function: its branches see the function's attributes and absent inputs. */
TEST(test_if__function)
{
	Onnx__FunctionProto *f;
	Onnx__NodeProto *node;

	start();
	f = function("F", "c a low", "b");
	onnx_model_function_attr(&made, f, "alpha");
	node = body(f, "If", "c", "b");
	add_branch(node, "then_branch", "Clip", "a low", "t");
	add_branch(node, "else_branch", "LeakyRelu", "a", "t");
	onnx_model_attr_ref(&made, node->attribute[1]->g->node[0], "alpha", "alpha");
	onnx_model_constant(&made, "yes", RBK_ONNX_BOOL, 0, NULL, "\1", 1);
	onnx_model_constant(&made, "no", RBK_ONNX_BOOL, 0, NULL, "\0", 1);
	call("F", "yes x", "p");
	onnx_model_attr_float(&made, call("F", "no p", "y"), "alpha", 2);
	load("y");
	assert_int_equal(model->graph->steps[0]->n_attrs, 1);
	assert_true(model->graph->steps[0]->attrs[0].f == 2);
	expect_steps("LeakyRelu:y/b/t");
}

TEST(test_if__refused)
{
	struct rbk_onnx_value value;
	Onnx__NodeProto *node;

	start();
	onnx_model_node(&made, "ReduceMax", "x", "m");
	onnx_model_node(&made, "Cast", "m", "c");
	onnx_model_attr_int(&made, made.graph.node[1], "to", RBK_ONNX_BOOL);
	add_if("c", "x", "y");
	expect_refused("its condition, \"c\", must be known when the plan is made, but a node "
		       "computes it");

	start();
	onnx_model_input(&made, "c", RBK_ONNX_BOOL, 0, NULL);
	add_if("c", "x", "y");
	onnx_model_output(&made, "y");
	assert_int_equal(try_load(), 0);
	assert_int_equal(rbk_onnx_compile(model, NULL, &error), -EOPNOTSUPP);
	assert_int_equal(rbk_onnx_input(model, 1, &value), 0);
	assert_true(value.value_needed);
	assert_int_equal(rbk_onnx_set_input(model, "c",
					    &(struct rbk_onnx_tensor){.dtype = RBK_ONNX_BOOL,
								      .data = "\1",
								      .n_bytes = 1},
					    NULL),
			 0);
	assert_int_equal(rbk_onnx_compile(model, NULL, &error), 0);
	expect_steps("Relu:y/t");
	onnx_model_deinit(&made);

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 1, (int64_t[]){2}, "\1\1", 2);
	add_if("c", "x", "y");
	expect_refused("its condition is not a single number");

	start();
	add_if("seven", "x", "y");
	expect_refused("its condition is int64, expected bool");

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 0, NULL, "\1", 1);
	node = onnx_model_node(&made, "If", "c", "y");
	add_branch(node, "then_branch", "NonMaxSuppression", "x", "t");
	add_branch(node, "else_branch", "Relu", "x", "t");
	expect_refused("there is no such operator in the catalogue (node 0 of then_branch)");
}

TEST(test_if__broken)
{
	Onnx__NodeProto *node;

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 0, NULL, "\1", 1);
	node = onnx_model_node(&made, "If", "c", "y");
	add_branch(node, "then_branch", "Relu", "x", "t");
	expect_not_loaded(-EBADMSG, "node 0 \"\" (If) has no else_branch");

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 0, NULL, "\1", 1);
	add_if("c", "nowhere", "y");
	expect_not_loaded(-EBADMSG, "node 0 \"\" (Relu) of then_branch, in node 0 \"\" (If) reads "
				    "\"nowhere\", which no node, input or initializer defines");

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 0, NULL, "\1", 1);
	add_if("c", "x", "y z");
	expect_not_loaded(-EBADMSG, "has 2 outputs, but its then_branch has 1");

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 0, NULL, "\1", 1);
	node = add_if("c", "x", "y");
	onnx_model_graph_output(&made, node->attribute[0]->g, "gone")->name[0] = 'G';
	onnx_model_output(&made, "z");
	node->n_output = 2;
	node->output = (char *[]){(char *)"y", (char *)"z"};
	expect_not_loaded(-EBADMSG, "no node writes output 1, \"Gone\", of its then_branch");

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BOOL, 0, NULL, "\1", 1);
	node = onnx_model_node(&made, "If", "c", "y");
	add_branch(node, "then_branch", "Relu", "y", "t");
	add_branch(node, "else_branch", "Relu", "x", "t");
	expect_not_loaded(-EBADMSG, "the graph is cyclic");
}

/* ---- Hostile models ---- */

TEST(test_hostile__recursion)
{
	Onnx__FunctionProto *f;

	start();
	f = function("F", "a", "b");
	body_call(f, "F", "a", "b");
	call("F", "x", "y");
	expect_not_loaded(-EBADMSG, "function \"my.F\" calls itself");

	start();
	f = function("F", "a", "b");
	body_call(f, "G", "a", "b");
	f = function("G", "a", "b");
	body_call(f, "F", "a", "b")->name = (char *)"back";
	call("F", "x", "y")->name = (char *)"call";
	expect_not_loaded(-EBADMSG,
			  "function \"my.F\" calls itself, by node 0 \"back\" (F) of function "
			  "\"my.G\", in node 0 \"\" (G) of function \"my.F\", in node 0 \"call\"");

	/* A function by the name of the operator that its body uses. */
	start();
	f = onnx_model_function(&made, "", "Relu", "a", "b", 17);
	body(f, "Relu", "a", "b");
	onnx_model_node(&made, "Relu", "x", "y");
	expect_not_loaded(-EBADMSG, "calls itself");
}

/* Add @n functions, each of which calls the next function @times times. */
static void add_tower(unsigned int n, unsigned int times)
{
	for (unsigned int i = 0; i < n; i++) {
		char name[16], next[16], from[16] = "a", to[16];
		Onnx__FunctionProto *f;

		snprintf(name, sizeof(name), "F%u", i);
		snprintf(next, sizeof(next), "F%u", i + 1);
		f = function(name, "a", "b");
		for (unsigned int k = 0; k < times; k++) {
			snprintf(to, sizeof(to), k + 1 < times ? "t%u" : "b", k);
			if (i + 1 < n)
				body_call(f, next, from, to);
			else
				body(f, "Relu", from, to);
			snprintf(from, sizeof(from), "t%u", k);
		}
	}
	call("F0", "x", "y");
}

TEST(test_hostile__growth)
{
	start();
	add_tower(40, 2);
	expect_not_loaded(-EFBIG, "it has more than 65536 nodes");

	/* Calls of empty functions count, too. */
	start();
	add_tower(40, 2);
	made.proto.functions[39]->n_node = 0;
	made.proto.functions[39]->n_output = 0;
	expect_not_loaded(-EBADMSG, "has 1 input and 1 output, ");

	start();
	add_tower(40, 2);
	made.proto.functions[39]->n_node = 0;
	made.proto.functions[39]->output[0] = (char *)"a";
	expect_not_loaded(-EFBIG, "it has more than 65536 nodes");

	start();
	add_tower(100, 1);
	load("y");
	assert_int_equal(rbk_onnx_n_steps(model), 1);
	assert_int_equal(rbk_onnx_n_nodes(model), 1);
	model = rbk_onnx_free(model);
	start();
	add_tower(1000, 1);
	expect_not_loaded(-EFBIG, "functions and branches are more than 128 deep");
}

/* Inlining many calls reads the function's text again for each call; the total is limited. */
TEST(test_hostile__text)
{
	static char name[1 << 20];

	memset(name, 'n', sizeof(name) - 1);
	start();
	body(function("F", name, "b"), "Relu", name, "b");
	for (unsigned int i = 0; i < 2000; i++)
		call("F", "x", i ? "" : "y");
	expect_not_loaded(-EFBIG,
			  "functions have more than 1 GiB, inlined as often as they are called");
}

/* Each call binds many absent inputs, which costs memory; the total is limited. */
TEST(test_hostile__inputs)
{
	Onnx__FunctionProto *f;
	char *inputs = malloc(8 * 5000 + 1), *at = inputs;

	assert_non_null(inputs);
	for (unsigned int i = 0; i < 5000; i++)
		at += sprintf(at, i ? " i%u" : "i%u", i);
	start();
	f = function("Wide", inputs, "b");
	body(f, "Relu", "i0", "b");
	free(inputs);
	for (unsigned int i = 0; i < 2000; i++) {
		char name[16];

		snprintf(name, sizeof(name), i ? "y%u" : "y", i);
		call("Wide", "x", name);
	}
	expect_not_loaded(-EFBIG, "too much memory");
}

TEST(test_hostile__definitions)
{
	Onnx__FunctionProto *f;

	start();
	function("F", "a", "a");
	function("F", "b", "b");
	call("F", "x", "y");
	expect_not_loaded(-EBADMSG, "function \"my.F\" is defined twice");

	start();
	onnx_model_function(&made, "", "F", "a", "a", 17);
	onnx_model_function(&made, "ai.onnx", "F", "a", "a", 17);
	onnx_model_node(&made, "Relu", "x", "y");
	expect_not_loaded(-EBADMSG, "function \"F\" is defined twice");

	start();
	function("", "a", "a");
	onnx_model_node(&made, "Relu", "x", "y");
	expect_not_loaded(-EBADMSG, "a function has no name");

	start();
	f = function("F", "a", "a");
	for (unsigned int i = 0; i < 1025; i++)
		onnx_model_function_attr(&made, f, "s");
	call("F", "x", "y");
	expect_not_loaded(-EFBIG, "function \"my.F\" has more than 1024 attributes");

	start();
	f = function("F", "a", "c");
	body(f, "Relu", "a", "b");
	call("F", "x", "y");
	expect_not_loaded(-EBADMSG, "no node writes output \"c\" of function \"my.F\"");

	start();
	f = function("F", "a a", "b");
	body(f, "Relu", "a", "b");
	call("F", "x seven", "y");
	expect_not_loaded(-EBADMSG, "two values have the name \"a\" in function \"my.F\"");

	/* A body does not see the names of its caller. */
	start();
	f = function("F", "a", "b");
	body(f, "Add", "a seven", "b");
	call("F", "x", "y");
	expect_not_loaded(-EBADMSG,
			  "node 0 \"\" (Add) of function \"my.F\", in node 0 \"\" (F) reads "
			  "\"seven\", which no node, input or initializer defines");

	start();
	f = function("F", "a", "b");
	body(f, "Add", "a c", "b");
	body(f, "Relu", "b", "c");
	call("F", "x", "y");
	expect_not_loaded(-EBADMSG, "the graph is cyclic");

	start();
	f = function("F", "a", "b");
	body(f, "Relu", "a", "b");
	call("F", "x seven", "y");
	expect_not_loaded(-EBADMSG, "has 2 inputs and 1 output, but function \"my.F\" has 1 and 1");
}

TEST(test_refusal)
{
	struct rbk_onnx_refusal refusal;
	Onnx__FunctionProto *f;

	start();
	onnx_model_node(&made, "Relu", "x", "z");
	f = function("F", "a", "b");
	body(f, "Relu", "a", "t");
	body(f, "NonMaxSuppression", "t", "b")->name = (char *)"inside";
	call("F", "z", "y")->name = (char *)"call";
	onnx_model_output(&made, "y");
	assert_int_equal(try_load(), 0);
	assert_int_equal(rbk_onnx_compile(model, NULL, &error), -EOPNOTSUPP);
	assert_int_equal(rbk_onnx_refusal(model, 0, &refusal), 0);
	assert_int_equal(refusal.node, 1);
	assert_int_equal(refusal.opset, 17);
	assert_string_equal(refusal.name, "call/inside");
	assert_string_equal(refusal.op, "NonMaxSuppression");
	assert_string_equal(refusal.reason, "there is no such operator in the catalogue "
					    "(node 1 of function \"my.F\")");
	model = rbk_onnx_free(model);
	onnx_model_deinit(&made);
}

TEST(test_load__allocations_fail)
{
	Onnx__FunctionProto *f;
	Onnx__NodeProto scratch = ONNX__NODE_PROTO__INIT;
	const uint8_t *bytes;
	size_t n_bytes;
	int r;

	start();
	f = function("Plus", "a", "b");
	onnx_model_function_overload(&made, f, "other");
	onnx_model_attr_ref(&made, body(f, "Constant", "", "c"), "value_int", "n");
	body(f, "Add", "a c", "b");
	onnx_model_attr_int(&made, &scratch, "n", 5);
	onnx_model_function_default(&made, f, scratch.attribute[0]);
	onnx_model_overload(&made, call("Plus", "seven", "z"), "other");
	onnx_model_node(&made, "Relu", "x", "y");
	onnx_model_output(&made, "y");
	bytes = onnx_model_pack(&made, &n_bytes);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &error);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_int_equal(r, 0);
	model = rbk_onnx_free(model);
	onnx_model_deinit(&made);
}
