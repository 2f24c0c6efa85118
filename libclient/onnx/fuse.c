/* SPDX-License-Identifier: MIT */
/*
 * Fusing groups of steps that exporters write for one operator
 *
 * A walk over the steps in their order replaces the last step of a group by one step, where the
 * catalogue has an operator for the group's computation. The other steps of the group are removed
 * later, because they are not read any more. Patterns are small and build on each other: the root
 * of a norm becomes a normalisation without scale, the product after it adds the scale, the sum
 * after that the bias.
 *
 * Tensors inside a group must have no other readers, or fusing would save nothing. The catalogue
 * checks the new step like any other; if it refuses the step, the group stays unchanged. Steps that
 * compute in float64 are not fused: the numbers in patterns are float32 in the new step.
 */
#include "libclient/onnx/fuse.h"

#include "libclient/onnx/eval.h"

/* Return true if @a equals @b, a root or a fraction, within the precision of @x's type. */
static bool is_about(double a, double b, const struct tensor *x)
{
	return fabs(a - b) <= (x->dtype == RBK_ONNX_F16 ? 1e-3 : 2e-6) * fabs(b);
}

/* Find a known number among two operands. Return: the other operand; NULL: neither is known. */
static struct tensor *beside_number(const struct step *step, double *ret)
{
	for (unsigned int i = 0; i < 2; i++)
		if (fuse_number(step->in[i], ret))
			return step->in[1 - i];
	return NULL;
}

/* ---- Products ---- */

enum { MAX_FACTORS = 4 };

/* The tensors of a product, and its known numeric factor. */
struct product {
	struct tensor *factors[MAX_FACTORS];
	unsigned int n;
	double number;
};

static bool add_factor(struct product *product, struct tensor *tensor, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		if (product->n == MAX_FACTORS)
			return false;
		product->factors[product->n++] = tensor;
	}
	return true;
}

/* Collect the factors of a product. Return: false if there are more than MAX_FACTORS. */
static bool multiply(struct product *product, const struct step *step, unsigned int depth);

/* Collect the factors of @tensor, if only this product reads it; else add @tensor itself. */
static bool multiply_by(struct product *product, struct tensor *tensor, unsigned int depth)
{
	const struct step *step;
	double exponent;

	if (depth < MAX_FACTORS && (step = fuse_only_maker(tensor, "Mul")))
		return multiply(product, step, depth + 1);
	if (depth < MAX_FACTORS && (step = fuse_only_maker(tensor, "Div")) &&
	    fuse_number(step->in[1], &exponent))
		return multiply(product, step, depth + 1);
	if ((step = fuse_only_maker(tensor, "Pow")) && fuse_number(step->in[1], &exponent) &&
	    (exponent == 2 || exponent == 3))
		return add_factor(product, step->in[0], (unsigned int)exponent);
	return add_factor(product, tensor, 1);
}

static bool multiply(struct product *product, const struct step *step, unsigned int depth)
{
	struct tensor *other;
	double number;

	if (!strcmp(step->op, "Div")) {
		if (!fuse_number(step->in[1], &number))
			return false;
		product->number /= number;
		return multiply_by(product, step->in[0], depth);
	}
	other = beside_number(step, &number);
	if (other) {
		product->number *= number;
		return multiply_by(product, other, depth);
	}
	return multiply_by(product, step->in[0], depth) && multiply_by(product, step->in[1], depth);
}

static struct product product_of(struct tensor *tensor)
{
	struct product product = {.number = 1};

	if (!multiply_by(&product, tensor, 0))
		product.n = 0;
	return product;
}

static struct product product_of_step(const struct step *step)
{
	struct product product = {.number = 1};

	if (!multiply(&product, step, 0))
		product.n = 0;
	return product;
}

static bool is_power(const struct product *product, const struct tensor *x, unsigned int n)
{
	for (unsigned int i = 0; i < product->n; i++)
		if (product->factors[i] != x)
			return false;
	return product->n == n;
}

/* ---- Replacing a step ---- */

static bool replace_unary(struct graph *graph, struct step *step, const char *op, struct tensor *x,
			  const struct attr *attrs, unsigned int n_attrs)
{
	return fuse_replace(graph, step, op, &x, 1, attrs, n_attrs);
}

/* ---- Activations ---- */

/* Match 1 + f(x), where f is @op and f(x) has no other use. Return: x, or NULL. */
static struct tensor *one_plus(const struct tensor *tensor, const char *op)
{
	const struct step *sum = fuse_only_maker(tensor, "Add"), *of;
	double number;

	if (!sum)
		return NULL;
	of = fuse_only_maker(beside_number(sum, &number), op);
	return of && number == 1 ? of->in[0] : NULL;
}

/* Match (x + 0.044715 x^3) or x (1 + 0.044715 x^2), times the root of 2 / pi. */
static bool is_gelu_tanh_of(struct tensor *tensor, const struct tensor *x)
{
	static const double cubic = 0.044715, root = 0.7978845608;
	const struct product outer = product_of(tensor);
	const struct step *sum;
	struct product inner;
	struct tensor *other;
	double number;

	if (!is_about(outer.number, root, x))
		return false;
	if (outer.n == 1) {
		sum = fuse_only_maker(outer.factors[0], "Add");
		for (unsigned int i = 0; sum && i < 2; i++) {
			if (sum->in[i] != x)
				continue;
			inner = product_of(sum->in[1 - i]);
			if (is_power(&inner, x, 3) && is_about(inner.number, cubic, x))
				return true;
		}
		return false;
	}
	for (unsigned int i = 0; outer.n == 2 && i < 2; i++) {
		sum = fuse_only_maker(outer.factors[i], "Add");
		other = sum ? beside_number(sum, &number) : NULL;
		if (!other || outer.factors[1 - i] != x || number != 1)
			continue;
		inner = product_of(other);
		if (is_power(&inner, x, 2) && is_about(inner.number, cubic, x))
			return true;
	}
	return false;
}

/* Fuse 0.5 x (1 + erf(x / sqrt(2))), or its approximation by tanh. */
static bool fuse_gelu(struct graph *graph, struct step *step, struct tensor *x, struct tensor *y)
{
	const struct attr by_tanh = ATTR_STRING("approximate", "tanh");
	struct tensor *arg;
	struct product product;

	if ((arg = one_plus(y, "Erf"))) {
		product = product_of(arg);
		return is_power(&product, x, 1) && is_about(product.number, sqrt(0.5), x) &&
		       replace_unary(graph, step, "Gelu", x, NULL, 0);
	}
	arg = one_plus(y, "Tanh");
	return arg && is_gelu_tanh_of(arg, x) && replace_unary(graph, step, "Gelu", x, &by_tanh, 1);
}

/* Match Clip(x + 3) to [0, 6], a sixth of which is the gate of HardSwish. */
static bool is_hard_gate_of(const struct tensor *tensor, const struct tensor *x)
{
	const struct step *clip = fuse_only_maker(tensor, "Clip"), *sum;
	const struct attr *min = clip ? fuse_attr(clip, "min") : NULL;
	const struct attr *max = clip ? fuse_attr(clip, "max") : NULL;
	double number = 0;

	if (!min || !max || min->f != 0 || max->f != 6)
		return false;
	sum = fuse_only_maker(clip->in[0], "Add");
	return sum && beside_number(sum, &number) == x && number == 3;
}

static bool is_hard_sigmoid_of(const struct tensor *tensor, const struct tensor *x)
{
	const struct step *gate = fuse_only_maker(tensor, "HardSigmoid");
	const struct attr *alpha = gate ? fuse_attr(gate, "alpha") : NULL;
	const struct attr *beta = gate ? fuse_attr(gate, "beta") : NULL;

	return gate && gate->in[0] == x && alpha && is_about(alpha->f, 1. / 6, x) &&
	       (!beta || beta->f == 0.5f);
}

/* Fuse x times a gate of x: Swish, HardSwish, Mish. */
static bool fuse_gate(struct graph *graph, struct step *step, struct tensor *x, struct tensor *y)
{
	const struct step *gate = fuse_only_maker(y, "Sigmoid");
	struct product product;

	if (gate) {
		const struct attr one = ATTR_FLOAT("alpha", 1);

		if (gate->in[0] == x)
			return replace_unary(graph, step, "Swish", x, &one, 1);
		product = product_of(gate->in[0]);
		if (is_power(&product, x, 1)) {
			const struct attr alpha = ATTR_FLOAT("alpha", (float)product.number);

			return replace_unary(graph, step, "Swish", x, &alpha, 1);
		}
		return false;
	}
	if (is_hard_sigmoid_of(y, x))
		return replace_unary(graph, step, "HardSwish", x, NULL, 0);
	gate = fuse_only_maker(y, "Tanh");
	gate = gate ? fuse_only_maker(gate->in[0], "Softplus") : NULL;
	return gate && gate->in[0] == x && replace_unary(graph, step, "Mish", x, NULL, 0);
}

static bool fuse_activation(struct graph *graph, struct step *step)
{
	const struct product product = product_of_step(step);

	for (unsigned int i = 0; product.n == 2 && i < 2; i++) {
		struct tensor *x = product.factors[i], *y = product.factors[1 - i];

		if (product.number == 1 && fuse_gate(graph, step, x, y))
			return true;
		if (product.number == 0.5 && fuse_gelu(graph, step, x, y))
			return true;
		if (is_about(product.number, 1. / 6, x) && is_hard_gate_of(y, x) &&
		    replace_unary(graph, step, "HardSwish", x, NULL, 0))
			return true;
	}
	return false;
}

/* ---- Normalisations ---- */

/* Match the mean along all dimensions from *ret_axis on, which are kept. */
static const struct step *trailing_mean(const struct tensor *tensor, int64_t *ret_axis)
{
	const struct step *mean = fuse_maker(tensor, "ReduceMean");
	const struct attr *axes = mean ? fuse_attr(mean, "axes") : NULL;
	const struct attr *keeps = mean ? fuse_attr(mean, "keepdims") : NULL;
	unsigned int rank;

	if (!axes || !keeps || !keeps->i || axes->n == 0)
		return NULL;
	rank = mean->in[0]->shape.rank;
	for (unsigned int i = 0; i < axes->n; i++)
		if (axes->ints[i] != rank - axes->n + i)
			return NULL;
	*ret_axis = rank - axes->n;
	return mean;
}

/* Match 1 / sqrt(z). Return: z, or NULL. */
static struct tensor *inverse_root(const struct tensor *tensor)
{
	const struct step *step, *root;
	double number;

	if ((step = fuse_only_maker(tensor, "Pow")))
		return fuse_number(step->in[1], &number) && number == -0.5 ? step->in[0] : NULL;
	if ((step = fuse_only_maker(tensor, "Reciprocal"))) {
		root = fuse_only_maker(step->in[0], "Sqrt");
		return root ? root->in[0] : NULL;
	}
	step = fuse_only_maker(tensor, "Div");
	if (!step || !fuse_number(step->in[0], &number) || number != 1)
		return NULL;
	root = fuse_only_maker(step->in[1], "Sqrt");
	return root ? root->in[0] : NULL;
}

static struct tensor *root_of(const struct tensor *tensor)
{
	const struct step *step;
	double number;

	if ((step = fuse_only_maker(tensor, "Sqrt")))
		return step->in[0];
	step = fuse_only_maker(tensor, "Pow");
	return step && fuse_number(step->in[1], &number) && number == 0.5 ? step->in[0] : NULL;
}

/* Match x minus its mean from @axis on. Return: x, or NULL. */
static struct tensor *centred(const struct tensor *tensor, int64_t axis)
{
	const struct step *difference = fuse_maker(tensor, "Sub"), *mean;
	int64_t mean_axis;

	mean = difference ? trailing_mean(difference->in[1], &mean_axis) : NULL;
	if (!mean || mean->in[0] != difference->in[0] || mean_axis != axis)
		return NULL;
	return difference->in[0];
}

static struct tensor *ones(struct graph *graph, const struct tensor *like, int64_t axis)
{
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));
	uint64_t n = 1;
	uint8_t *data;

	if (!constant)
		return graph_unknown(graph);
	*constant =
		(struct constant){.dtype = like->dtype, .rank = like->shape.rank - (uint32_t)axis};
	for (unsigned int i = (unsigned int)axis; i < like->shape.rank; i++) {
		constant->dims[i - axis] = like->shape.dims[i];
		n *= like->shape.dims[i];
	}
	if (!constant_measure(constant) || n > graph->n_evaluable)
		return NULL;
	graph->n_evaluable -= n;
	data = graph_take(graph, constant->n_bytes);
	for (uint64_t i = 0; data && i < n; i++)
		eval_store(like->dtype, data, i, 1);
	constant->data = data;
	return data ? graph_constant(graph, constant) : NULL;
}

/* Fuse @numerator divided by the root of @inside, the mean of the square plus epsilon. */
static bool fuse_norm(struct graph *graph, struct step *step, struct tensor *numerator,
		      struct tensor *inside)
{
	const struct step *sum = fuse_only_maker(inside, "Add"), *mean;
	struct tensor *in[2], *variance, *x;
	struct attr attrs[2];
	struct product square;
	double epsilon;
	int64_t axis;

	variance = sum ? beside_number(sum, &epsilon) : NULL;
	if (!variance || variance->n_uses != 1 || numerator->dtype != step->out[0]->dtype)
		return false;
	mean = trailing_mean(variance, &axis);
	if (!mean || (axis == 0 && numerator->shape.dynamic))
		return false;
	square = product_of(mean->in[0]);
	if (square.n != 2 || square.number != 1 || square.factors[0] != square.factors[1])
		return false;
	x = centred(numerator, axis);
	/* Some exporters compute the difference twice. */
	if (square.factors[0] != numerator && (!x || centred(square.factors[0], axis) != x))
		return false;
	attrs[0] = ATTR_INT("axis", axis);
	attrs[1] = ATTR_FLOAT("epsilon", (float)epsilon);
	in[0] = x ? x : numerator;
	in[1] = ones(graph, in[0], axis);
	return in[1] && fuse_replace(graph, step, x ? "LayerNormalization" : "RMSNormalization", in,
				     2, attrs, 2);
}

static bool is_all_ones(const struct tensor *tensor)
{
	const struct constant *constant = tensor->constant;

	for (uint64_t i = 0; constant && i < constant->n_elems; i++)
		if (eval_load(constant->dtype, constant->data, i) != 1)
			return false;
	return constant && constant->n_elems > 0 && !constant->rows;
}

/* Return the normalisation without a bias that writes @tensor, or NULL. */
static const struct step *plain_norm(const struct tensor *tensor)
{
	const struct step *norm = fuse_only_maker(tensor, "LayerNormalization");

	if (!norm)
		norm = fuse_only_maker(tensor, "RMSNormalization");
	return norm && norm->n_in == 2 ? norm : NULL;
}

/* Fuse a scale after a normalisation that has none. */
static bool fuse_norm_scale(struct graph *graph, struct step *step, const struct step *norm,
			    struct tensor *scale)
{
	struct tensor *in[] = {norm->in[0], scale};

	return is_all_ones(norm->in[1]) && scale->dtype == norm->in[0]->dtype &&
	       fuse_replace(graph, step, norm->op, in, 2, norm->attrs, norm->n_attrs);
}

static bool fuse_norm_bias(struct graph *graph, struct step *step, const struct step *norm,
			   struct tensor *bias)
{
	struct tensor *in[] = {norm->in[0], norm->in[1], bias};

	return !strcmp(norm->op, "LayerNormalization") &&
	       fuse_replace(graph, step, norm->op, in, 3, norm->attrs, norm->n_attrs);
}

/* ---- Sums after products ---- */

static bool fuse_gemm_bias(struct graph *graph, struct step *step, struct tensor *y,
			   struct tensor *bias)
{
	const struct step *product = fuse_only_maker(y, "MatMul");
	struct attr attrs[STEP_MAX_ATTRS];
	unsigned int n_attrs = 0;
	struct tensor *in[3];

	if (!product)
		product = fuse_only_maker(y, "Gemm");
	if (!product || product->n_in != 2 || product->in[0]->shape.rank != 2 ||
	    product->in[1]->shape.rank != 2)
		return false;
	memcpy(in, product->in, 2 * sizeof(*in));
	in[2] = bias;
	/* Without a bias beta had no effect; the new bias is added unscaled. */
	for (unsigned int i = 0; i < product->n_attrs; i++)
		if (strcmp(product->attrs[i].name, "beta"))
			attrs[n_attrs++] = product->attrs[i];
	return fuse_replace(graph, step, "Gemm", in, 3, attrs, n_attrs);
}

/* Return true if @bias has one number for each channel, which is dimension 1 of @y. */
static bool is_by_channel(const struct tensor *bias, const struct tensor *y)
{
	unsigned int channel = bias->shape.rank + 1u - y->shape.rank;

	if (!bias->constant || bias->shape.rank > y->shape.rank ||
	    bias->shape.rank + 1u < y->shape.rank)
		return false;
	for (unsigned int i = 0; i < bias->shape.rank; i++)
		if (bias->shape.dims[i] != (i == channel ? y->shape.dims[1] : 1))
			return false;
	return true;
}

static bool fuse_conv_bias(struct graph *graph, struct step *step, struct tensor *y,
			   struct tensor *bias)
{
	const struct step *conv = fuse_only_maker(y, "Conv");
	const struct shape list = {.rank = 1, .dims = {y->shape.dims[1]}};
	struct tensor *in[3];

	if (!conv)
		conv = fuse_only_maker(y, "ConvTranspose");
	if (!conv || conv->n_in != 2 || !is_by_channel(bias, y))
		return false;
	memcpy(in, conv->in, 2 * sizeof(*in));
	in[2] = canon_reshape(graph, bias, &list);
	return in[2]->constant &&
	       fuse_replace(graph, step, conv->op, in, 3, conv->attrs, conv->n_attrs);
}

/* ---- The walk ---- */

static bool fuse_sum(struct graph *graph, struct step *step)
{
	const uint32_t disable = graph->options.disable;

	for (unsigned int i = 0; i < 2; i++) {
		struct tensor *y = step->in[i], *other = step->in[1 - i];
		const struct step *norm = plain_norm(y);

		if (!(disable & RBK_ONNX_OPT_NORM) && norm &&
		    fuse_norm_bias(graph, step, norm, other))
			return true;
		if (!(disable & RBK_ONNX_OPT_BIAS) && (fuse_gemm_bias(graph, step, y, other) ||
						       fuse_conv_bias(graph, step, y, other)))
			return true;
	}
	return false;
}

static bool fuse_product(struct graph *graph, struct step *step)
{
	const uint32_t disable = graph->options.disable;

	for (unsigned int i = 0; !(disable & RBK_ONNX_OPT_NORM) && i < 2; i++) {
		struct tensor *y = step->in[i], *other = step->in[1 - i];
		const struct step *norm = plain_norm(y);
		struct tensor *inside = inverse_root(y);

		if ((inside && fuse_norm(graph, step, other, inside)) ||
		    (norm && fuse_norm_scale(graph, step, norm, other)))
			return true;
	}
	return !(disable & RBK_ONNX_OPT_ACTIVATION) && fuse_activation(graph, step);
}

static bool fuse_quotient(struct graph *graph, struct step *step)
{
	const uint32_t disable = graph->options.disable;
	struct tensor *inside = root_of(step->in[1]);

	if (!(disable & RBK_ONNX_OPT_NORM) && inside && fuse_norm(graph, step, step->in[0], inside))
		return true;
	return !(disable & RBK_ONNX_OPT_ACTIVATION) && fuse_activation(graph, step);
}

static bool fuse_step(struct graph *graph, struct step *step)
{
	if (step->out[0]->dtype == RBK_ONNX_F64)
		return false;
	if (!strcmp(step->op, "Add"))
		return fuse_sum(graph, step);
	if (!strcmp(step->op, "Mul"))
		return fuse_product(graph, step);
	if (!strcmp(step->op, "Div"))
		return fuse_quotient(graph, step);
	if (!strcmp(step->op, "MatMul"))
		return !(graph->options.disable & RBK_ONNX_OPT_ATTENTION) &&
		       fuse_attention(graph, step);
	return false;
}

static void count_uses(struct graph *graph)
{
	for (uint32_t i = 0; i < graph->n_steps; i++)
		for (unsigned int j = 0; j < graph->steps[i]->n_in; j++)
			if (graph->steps[i]->in[j])
				graph->steps[i]->in[j]->n_uses++;
	for (uint32_t i = 0; i < graph->model->n_outputs; i++)
		graph->outputs[i]->n_uses++;
}

void fuse(struct graph *graph)
{
	struct step **steps = graph->steps;
	const uint32_t n = graph->n_steps;

	count_uses(graph);
	graph->steps = NULL;
	graph->n_steps = graph->n_steps_max = 0;
	for (uint32_t i = 0; i < n && !graph->fatal; i++) {
		graph->node = steps[i]->node;
		if (!fuse_step(graph, steps[i]))
			graph_add_step(graph, steps[i]);
	}
	graph->node = NULL;
}
