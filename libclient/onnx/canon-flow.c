/* SPDX-License-Identifier: MIT */
/*
 * Rules: control flow
 *
 * Plans have none. An If whose condition is known is the nodes of one of its branches.
 */
#include "libclient/onnx/canon.h"

/* Brings the branch's nodes into steps, as if they were where the node is. */
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
