/* SPDX-License-Identifier: MIT */
/*
 * Emitting a step
 *
 * A step whose result can be known is computed (eval.c, emit-empty.c). Other steps are checked by
 * the catalogue's own shape rule (emit-infer.c) and added to the graph.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/emit.h"

void graph_add_step(struct graph *graph, struct step *step)
{
	struct step **steps = graph->steps;

	if (graph->n_steps >= GRAPH_MAX_STEPS) {
		graph_refuse(graph, "the model has more than %u steps", GRAPH_MAX_STEPS);
		return;
	}
	if (graph->n_steps == graph->n_steps_max) {
		graph->n_steps_max = graph->n_steps_max ? graph->n_steps_max * 2 : 64;
		steps = graph_take(graph, graph->n_steps_max * sizeof(*steps));
		if (!steps)
			return;
		if (graph->n_steps > 0)
			memcpy(steps, graph->steps, graph->n_steps * sizeof(*steps));
		graph->steps = steps;
	}
	steps[graph->n_steps++] = step;
}

static struct step *make_step(struct graph *graph, const char *op, struct tensor *const *in,
			      unsigned int n_in, struct tensor **out, unsigned int n_out,
			      const struct attr *attrs, unsigned int n_attrs)
{
	struct step *step = graph_zero(graph, 1, sizeof(*step));

	for (unsigned int i = 0; i < n_out; i++)
		out[i] = graph_unknown(graph);
	if (!step)
		return NULL;
	if (n_in > OP_MAX_INPUTS || n_out > OP_MAX_OUTPUTS || n_attrs > STEP_MAX_ATTRS) {
		graph_refuse(graph, "%s has %u input%s and %u output%s, expected at most %u and %u",
			     op, n_in, onnx_plural(n_in), n_out, onnx_plural(n_out), OP_MAX_INPUTS,
			     OP_MAX_OUTPUTS);
		return NULL;
	}
	step->op = op;
	step->node = graph->node;
	step->n_in = n_in;
	step->n_out = n_out;
	step->n_attrs = n_attrs;
	if (n_in > 0)
		memcpy(step->in, in, n_in * sizeof(*in));
	if (n_attrs > 0)
		memcpy(step->attrs, attrs, n_attrs * sizeof(*attrs));
	for (unsigned int i = 0; i < n_out; i++) {
		step->out[i] = out[i];
		if (out[i] && out[i] != &graph->nowhere)
			out[i]->producer = step;
	}
	return step;
}

/*
 * Return true if the step has inputs and all of them are constant. *ret_unknown: an input is
 * unknown.
 */
static bool is_constant(const struct step *step, bool *ret_unknown)
{
	bool is_constant = step->n_in > 0;

	*ret_unknown = false;
	for (unsigned int i = 0; i < step->n_in; i++) {
		if (!step->in[i])
			continue;
		is_constant &= step->in[i]->constant != NULL;
		*ret_unknown |= !step->in[i]->known;
	}
	return is_constant;
}

/*
 * Refuse constants whose elements depend on the count: they serve to compute shapes, and plans
 * cannot hold them.
 */
static bool check_rows(struct graph *graph, const struct step *step)
{
	for (unsigned int i = 0; i < step->n_in; i++) {
		if (step->in[i] && step->in[i]->constant && step->in[i]->constant->rows) {
			graph_refuse(graph,
				     "its input \"%s\" has elements that depend on the count",
				     step->in[i]->name);
			return false;
		}
	}
	return true;
}

void graph_emit(struct graph *graph, const char *op, struct tensor *const *in, unsigned int n_in,
		struct tensor **out, unsigned int n_out, const struct attr *attrs,
		unsigned int n_attrs)
{
	bool is_unknown;
	struct step *step;
	int r;

	step = make_step(graph, op, in, n_in, out, n_out, attrs, n_attrs);
	if (!step || graph->fatal)
		return;
	if (is_constant(step, &is_unknown) && !graph->keeps_constants) {
		r = eval_step(graph, step);
		if (r < 0 && !graph->fatal)
			graph->fatal = r;
		if (r <= 0)
			return;
	}
	step->row = op_by_name(op);
	if (!step->row) {
		graph_refuse(graph, "the catalogue has no operator %s", op);
		return;
	}
	if (is_unknown || !check_rows(graph, step))
		return;
	if (emit_reads_nothing(step))
		emit_empty(graph, step);
	else if (emit_infer(graph, step))
		graph_add_step(graph, step);
}

struct tensor *graph_emit_1(struct graph *graph, const char *op, struct tensor *const *in,
			    unsigned int n_in, const struct attr *attrs, unsigned int n_attrs)
{
	struct tensor *out = NULL;

	graph_emit(graph, op, in, n_in, &out, 1, attrs, n_attrs);
	return out;
}
