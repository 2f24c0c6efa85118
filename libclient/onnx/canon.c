/* SPDX-License-Identifier: MIT */
/*
 * Dispatch of nodes to rules, refusals that need no rule, and the rule of If, whose branches have
 * nodes again
 */
#include "libclient/onnx/canon.h"

#include <errno.h>

#define ROW(...) {__VA_ARGS__},
#define SAME(KIND, row, onnx, n_in, since, ...)                    \
	{                                                          \
		onnx, since, 0, n_in, n_in, 1, NULL, canon_same, 0 \
	}
/* The last row of a name is used. */
static const struct canon table[] = {OP_ELEMENTWISE(SAME), CANON_LIST(ROW)};

/*
 * Return true if input @i may be absent although later inputs are present: its rule checks the
 * inputs.
 */
static bool may_be_absent(const struct canon *canon, uint32_t i)
{
	return i > 0 && (!strncmp(canon->op, "com.microsoft.QLinear", 21) ||
			 !strcmp(canon->op, "com.microsoft.QGemm"));
}

/*
 * Return the operator of a row in @domain ("" is ONNX's own); NULL: the row is of another domain.
 * Domains contain dots, operators do not; a file may split its names differently.
 */
static const char *name_in(const struct canon *canon, const char *domain)
{
	const char *dot = strrchr(canon->op, '.');
	const size_t n = dot ? (size_t)(dot - canon->op) : 0;

	if (strlen(domain) != n || strncmp(canon->op, domain, n))
		return NULL;
	return dot ? dot + 1 : canon->op;
}

static const struct canon *find_rule(const char *domain, const char *op)
{
	for (size_t i = ARRAY_SIZE(table); i-- > 0;) {
		const char *name = name_in(&table[i], domain);

		if (name && !strcmp(name, op))
			return &table[i];
	}
	return NULL;
}

static bool has_rows_of(const char *domain)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (name_in(&table[i], domain))
			return true;
	return false;
}

ONNX_EXPORT int rbk_onnx_operator(unsigned int i, struct rbk_onnx_operator *ret)
{
	for (size_t k = 0; k < ARRAY_SIZE(table); k++) {
		if (!table[k].needs || i-- > 0)
			continue;
		*ret = (struct rbk_onnx_operator){
			.name = table[k].op,
			.since = table[k].since,
			.until = table[k].until,
		};
		return 0;
	}
	return -EINVAL;
}

static void refuse_inputs(struct graph *graph, const struct canon *canon, uint32_t n_in)
{
	if (canon->max_in == CANON_ANY)
		graph_refuse(graph, "it has %u input%s, expected at least %u", n_in,
			     onnx_plural(n_in), canon->min_in);
	else if (canon->max_in == canon->min_in)
		graph_refuse(graph, "it has %u input%s, expected %u", n_in, onnx_plural(n_in),
			     canon->min_in);
	else
		graph_refuse(graph, "it has %u input%s, expected %u to %u", n_in, onnx_plural(n_in),
			     canon->min_in, canon->max_in);
}

static bool check_arity(struct graph *graph, const struct canon *canon)
{
	const struct model_node *node = graph->node;
	uint32_t n_in = node->n_in, n_out = node->n_out;

	while (n_in > 0 && node->in[n_in - 1] == ONNX_ABSENT)
		n_in--;
	while (n_out > 0 && node->out[n_out - 1] == ONNX_ABSENT)
		n_out--;
	if ((n_in > canon->max_in && canon->max_in != CANON_ANY) || n_in < canon->min_in) {
		refuse_inputs(graph, canon, n_in);
		return false;
	}
	if (n_out > canon->max_out && canon->max_out != CANON_ANY) {
		graph_refuse(graph, "it has %u output%s, expected at most %u", n_out,
			     onnx_plural(n_out), canon->max_out);
		return false;
	}
	for (uint32_t i = 0; i < canon->min_in; i++) {
		if (node->in[i] == ONNX_ABSENT && !may_be_absent(canon, i)) {
			graph_refuse(graph, "input %u is missing", i);
			return false;
		}
	}
	return true;
}

static void check_attributes(struct graph *graph)
{
	const Onnx__NodeProto *proto = graph->node->proto;

	for (size_t i = 0; i < proto->n_attribute; i++)
		if (!graph->attr_is_read[i])
			graph_refuse(graph, "attribute \"%s\" is not known",
				     proto->attribute[i]->name);
}

/*
 * Return true for operators that have not changed since before ONNX_MIN_OPSET. They are accepted in
 * older opsets: files keep the number of the opset with which their operators were defined.
 */
static bool is_of_old(const char *op)
{
	static const char *const ops[] = {
		"Constant",      "Flatten",   "Gather",   "GlobalAveragePool",
		"GlobalMaxPool", "Identity",  "LRN",      "LogSoftmax",
		"MatMul",        "Not",       "Shape",    "Size",
		"Softmax",       "Softplus",  "Softsign", "Squeeze",
		"Transpose",     "Unsqueeze",
	};

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (!strcmp(ops[i], op))
			return true;
	return false;
}

/* Refuse a node for reasons that need no shapes. Return: @canon, or NULL. */
static const struct canon *check_node(struct graph *graph, const struct canon *canon)
{
	const struct model_node *node = graph->node;

	if (!canon) {
		nearest_refuse(graph, table, ARRAY_SIZE(table), has_rows_of(node->domain));
		return NULL;
	}
	if (node->opset == 0) {
		graph_refuse(graph, "the model does not say which opset of domain \"%s\" it uses",
			     node->domain);
		return NULL;
	}
	if (node->opset < canon->since) {
		graph_refuse(graph, "the operator exists only from opset %u on", canon->since);
		return NULL;
	}
	if (!node->domain[0] && node->opset < ONNX_MIN_OPSET && !is_of_old(canon->op)) {
		graph_refuse(graph, "the operator is supported only from opset %u on",
			     ONNX_MIN_OPSET);
		return NULL;
	}
	if (canon->until && node->opset > canon->until) {
		graph_refuse(graph, "the operator exists only up to opset %u", canon->until);
		return NULL;
	}
	return check_arity(graph, canon) ? canon : NULL;
}

/*
 * Record all values that the rule needs at once, so that the caller can set all of them before the
 * next attempt.
 */
static void need_values(struct graph *graph, const struct canon *canon)
{
	for (unsigned int i = 0; i < 8; i++) {
		struct tensor *in = canon->values >> i & 1 ? canon_in(graph, i) : NULL;

		if (in && !in->constant)
			graph_need(graph, in);
	}
}

/* Make unknown tensors for outputs without one, and record the inputs that they depend on. */
static void unknown_outputs(struct graph *graph)
{
	const struct model_node *node = graph->node;
	struct step *step = graph_zero(graph, 1, sizeof(*step));

	for (uint32_t i = 0; step && i < node->n_in && step->n_in < OP_MAX_INPUTS; i++)
		if (node->in[i] != ONNX_ABSENT)
			step->in[step->n_in++] = graph_value(graph, node->in[i]);
	for (uint32_t i = 0; i < node->n_out; i++) {
		struct tensor *tensor;

		if (node->out[i] == ONNX_ABSENT || graph->values[node->out[i]])
			continue;
		tensor = graph_unknown(graph);
		tensor->producer = step;
		canon_out(graph, i, tensor);
	}
}

void canon_node(struct graph *graph, const struct model_node *node)
{
	const struct canon *canon;
	bool is_unknown = false;

	graph->node = node;
	graph->is_refused = false;
	graph->attr_is_read = graph_zero(graph, node->proto->n_attribute, 1);
	if (!graph->attr_is_read)
		return;
	for (uint32_t i = 0; i < node->n_in; i++)
		if (node->in[i] != ONNX_ABSENT)
			is_unknown |= !graph_value(graph, node->in[i])->known;
	canon = find_rule(node->domain, node->proto->op_type);
	bfloat_begin(graph, canon);
	canon = check_node(graph, canon);
	if (canon)
		need_values(graph, canon);
	if (canon && is_unknown && !op_by_name(canon->needs ? canon->needs : canon->op))
		graph_refuse(graph, "the catalogue has no operator %s",
			     canon->needs ? canon->needs : canon->op);
	if (canon && !is_unknown && !graph->fatal) {
		canon->rule(graph);
		if (!graph->is_refused)
			check_attributes(graph);
	}
	if (!graph->fatal)
		unknown_outputs(graph);
}

/* ---- Control flow: plans have none ---- */

/* Convert the branch's nodes to steps, as if they were in the node's place. */
static void run_branch(struct graph *graph, const struct model_branch *branch)
{
	const struct model_node *node = graph->node;
	bool *attr_is_read = graph->attr_is_read;
	const bool computes_bfloat = graph->computes_bfloat;
	const bool selects_bfloat = graph->selects_bfloat;

	for (uint32_t i = 0; !graph->fatal && i < branch->n_nodes; i++)
		canon_node(graph, &branch->nodes[i]);
	graph->node = node;
	graph->attr_is_read = attr_is_read;
	graph->computes_bfloat = computes_bfloat;
	graph->selects_bfloat = selects_bfloat;
	graph->is_refused = false;
}

/* Replace an If of known condition by the nodes of one branch. */
void canon_if(struct graph *graph)
{
	const struct model_node *node = graph->node;
	struct tensor *condition = canon_in(graph, 0);
	const struct model_branch *branch;
	double value;

	canon_ignore(graph, "then_branch");
	canon_ignore(graph, "else_branch");
	if (!canon_known_number(graph, condition, "condition", &value))
		return;
	if (condition->dtype != RBK_ONNX_BOOL) {
		graph_refuse(graph, "its condition is %s, expected bool",
			     rbk_onnx_dtype_name(condition->dtype));
		return;
	}
	branch = &node->branches[value == 0];
	run_branch(graph, branch);
	for (uint32_t i = 0; !graph->fatal && i < node->n_out; i++)
		if (node->out[i] != ONNX_ABSENT)
			graph->values[node->out[i]] = graph_value(graph, branch->outputs[i]);
}
