/* SPDX-License-Identifier: MIT */
/* Lowering of element-wise operators. See lower-private.h. */
#include <math.h>

#include "shm/dtype.h"
#include "vulkan/lower-private.h"
#include "vulkan/map.glsl"

enum { F32 = RBK_DTYPE_F32, F16 = RBK_DTYPE_F16, I32 = RBK_DTYPE_I32, I64 = RBK_DTYPE_I64 };
enum { I8 = RBK_DTYPE_I8, U8 = RBK_DTYPE_U8, BOOL = RBK_DTYPE_BOOL };
enum { BF16 = RBK_DTYPE_BF16, F64 = RBK_DTYPE_F64 };

/* Each invocation computes several groups of four elements. */
#define FLOATS(label, operation)                                                     \
	[operation] = VK_PIPE(VK_INFO(label, elementwise, 1, 512, 8, operation, 16), \
			      VK_INFO(label, elementwise, 1, 2048, 256, operation, 2))
#define OF_ROW(KIND, row, onnx, ...) FLOATS(onnx, MAP_##KIND)
static const struct vk_pipe of_floats[] = {
	FLOATS("Add", MAP_ADD),
	FLOATS("Sub", MAP_SUB),
	FLOATS("Mul", MAP_MUL),
	FLOATS("Div", MAP_DIV),
	FLOATS("Pow", MAP_POW),
	FLOATS("Mod", MAP_FMOD),
	FLOATS("Min", MAP_MIN),
	FLOATS("Max", MAP_MAX),
	FLOATS("PRelu", MAP_PRELU),
	OP_FLOAT_FUNCTIONS(OF_ROW),
	FLOATS("Gelu, tanh", MAP_GELU_TANH),
};

#define TYPED_BY(code, label, operation, type, to)                        \
	VK_PIPE(VK_INFO(label, code, 1, 256, 8, operation, 32, type, to), \
		VK_INFO(label, code, 1, 1024, 256, operation, 4, type, to))
#define TYPED(label, operation, type, to) TYPED_BY(typed, label, operation, type, to)

#define SIGNED_INTEGERS(label, operation)                                     \
	TYPED(label, operation, I32, I32), TYPED(label, operation, I64, I64), \
		TYPED(label, operation, I8, I8)
#define INTEGERS(label, operation) \
	SIGNED_INTEGERS(label, operation), TYPED(label, operation, U8, U8)
#define COMPARISON(label, operation)                                                  \
	TYPED(label, operation, I32, BOOL), TYPED(label, operation, I64, BOOL),       \
		TYPED(label, operation, I8, BOOL), TYPED(label, operation, U8, BOOL), \
		OF_FLOATS(label, operation)
#define OF_FLOATS(label, operation) \
	TYPED(label, operation, F32, BOOL), TYPED(label, operation, F16, BOOL)
#define CASTS(from)                                                                     \
	TYPED("Cast", MAP_CAST, from, F32), TYPED("Cast", MAP_CAST, from, F16),         \
		TYPED("Cast", MAP_CAST, from, I32), TYPED("Cast", MAP_CAST, from, I64), \
		TYPED("Cast", MAP_CAST, from, I8), TYPED("Cast", MAP_CAST, from, U8),   \
		TYPED("Cast", MAP_CAST, from, BOOL), TYPED("Cast", MAP_CAST, from, BF16)
#define WHERE(type)                          TYPED("Where", MAP_WHERE, type, type)
#define DOUBLES(label, operation)            TYPED_BY(typed_double, label, operation, F64, F64)
#define DOUBLES_OF_ROW(KIND, row, onnx, ...) DOUBLES(onnx, MAP_##KIND)
#define OF_DOUBLES(label, operation)         TYPED_BY(typed_double, label, operation, F64, BOOL)
#define CASTS_OF_DOUBLES(type)                               \
	TYPED_BY(typed_double, "Cast", MAP_CAST, type, F64), \
		TYPED_BY(typed_double, "Cast", MAP_CAST, F64, type)

static const struct vk_pipe typed[] = {
	INTEGERS("Add", MAP_ADD),
	INTEGERS("Sub", MAP_SUB),
	INTEGERS("Mul", MAP_MUL),
	INTEGERS("Div", MAP_DIV),
	INTEGERS("Mod", MAP_MOD),
	INTEGERS("Mod", MAP_FMOD),
	INTEGERS("Min", MAP_MIN),
	INTEGERS("Max", MAP_MAX),
	INTEGERS("Clip", MAP_CLIP),
	INTEGERS("Abs", MAP_ABS),
	INTEGERS("Sign", MAP_SIGN),
	INTEGERS("BitwiseAnd", MAP_BITWISE_AND),
	INTEGERS("BitwiseOr", MAP_BITWISE_OR),
	INTEGERS("BitwiseXor", MAP_BITWISE_XOR),
	INTEGERS("BitwiseNot", MAP_BITWISE_NOT),
	SIGNED_INTEGERS("Neg", MAP_NEG),
	SIGNED_INTEGERS("Relu", MAP_RELU),
	TYPED("Pow", MAP_POW, I32, I32),
	TYPED("Pow", MAP_POW, I64, I64),
	TYPED("PRelu", MAP_PRELU, I32, I32),
	TYPED("PRelu", MAP_PRELU, I64, I64),
	TYPED("BitShift", MAP_BIT_SHIFT, U8, U8),
	TYPED("BitShift", MAP_SHIFT_RIGHT, U8, U8),
	TYPED("And", MAP_AND, BOOL, BOOL),
	TYPED("Or", MAP_OR, BOOL, BOOL),
	TYPED("Xor", MAP_XOR, BOOL, BOOL),
	TYPED("Not", MAP_NOT, BOOL, BOOL),
	TYPED("Equal", MAP_EQUAL, BOOL, BOOL),
	COMPARISON("Equal", MAP_EQUAL),
	COMPARISON("Less", MAP_LESS),
	COMPARISON("LessOrEqual", MAP_LESS_OR_EQUAL),
	COMPARISON("Greater", MAP_GREATER),
	COMPARISON("GreaterOrEqual", MAP_GREATER_OR_EQUAL),
	OF_FLOATS("IsNaN", MAP_IS_NAN),
	OF_FLOATS("IsInf", MAP_IS_INF),
	CASTS(F32),
	CASTS(F16),
	CASTS(I32),
	CASTS(I64),
	CASTS(I8),
	CASTS(U8),
	CASTS(BOOL),
	CASTS(BF16),
	WHERE(F32), /* one for each width */
	WHERE(F16),
	WHERE(I64),
	WHERE(U8),
	DOUBLES("Add", MAP_ADD),
	DOUBLES("Sub", MAP_SUB),
	DOUBLES("Mul", MAP_MUL),
	DOUBLES("Div", MAP_DIV),
	DOUBLES("Mod", MAP_FMOD),
	DOUBLES("Min", MAP_MIN),
	DOUBLES("Max", MAP_MAX),
	DOUBLES("PRelu", MAP_PRELU),
	OP_ALGEBRAIC(DOUBLES_OF_ROW),
	OP_CURVES(DOUBLES_OF_ROW),
	DOUBLES("Gelu, tanh", MAP_GELU_TANH),
	OF_DOUBLES("Equal", MAP_EQUAL),
	OF_DOUBLES("Less", MAP_LESS),
	OF_DOUBLES("LessOrEqual", MAP_LESS_OR_EQUAL),
	OF_DOUBLES("Greater", MAP_GREATER),
	OF_DOUBLES("GreaterOrEqual", MAP_GREATER_OR_EQUAL),
	OF_DOUBLES("IsNaN", MAP_IS_NAN),
	OF_DOUBLES("IsInf", MAP_IS_INF),
	CASTS_OF_DOUBLES(F32),
	CASTS_OF_DOUBLES(F16),
	CASTS_OF_DOUBLES(I32),
	CASTS_OF_DOUBLES(I64),
	CASTS_OF_DOUBLES(I8),
	CASTS_OF_DOUBLES(U8),
	CASTS_OF_DOUBLES(BOOL),
	CASTS_OF_DOUBLES(BF16),
	TYPED_BY(typed_double, "Cast", MAP_CAST, F64, F64),
};

enum { MAX_OPERANDS = 3 };

struct dims {
	unsigned int n;
	uint32_t size[RBK_MAX_RANK];
	uint64_t stride[RBK_MAX_RANK][MAX_OPERANDS];
};

/*
 * Append an inner dimension; join it with the last one if the strides of all operands allow that.
 */
static void dims_append(struct dims *dims, uint32_t size, const uint64_t stride[MAX_OPERANDS])
{
	bool joins = dims->n > 0;

	if (size == 1)
		return;
	for (unsigned int i = 0; joins && i < MAX_OPERANDS; i++)
		joins = dims->stride[dims->n - 1][i] == stride[i] * size;
	if (joins)
		dims->size[dims->n - 1] *= size;
	else
		dims->size[dims->n++] = size;
	memcpy(dims->stride[dims->n - 1], stride, sizeof(dims->stride[0]));
}

static void set_elementwise(const struct vk_step *step, const struct dims *dims, uint64_t total,
			    struct vk_params *params)
{
	uint32_t *w = params->w;

	w[ELEMENTWISE_TOTAL] = total;
	w[ELEMENTWISE_GROUPS] = div_up(total, step->info->tile_cols);
	w[ELEMENTWISE_RANK] = dims->n;
	for (unsigned int i = 0; i < dims->n; i++) {
		w[ELEMENTWISE_DIMS + i] = dims->size[i];
		w[ELEMENTWISE_A + i] = (uint32_t)dims->stride[i][0];
		w[ELEMENTWISE_B + i] = (uint32_t)dims->stride[i][1];
		w[ELEMENTWISE_C + i] = (uint32_t)dims->stride[i][2];
	}
	vk_set_groups(params, w[ELEMENTWISE_GROUPS], 1);
}

/* Absent operands get the strides of the first operand. */
static void fill_elementwise(const struct vk_step *step, const struct plan *plan, uint32_t count,
			     struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *out = vk_shape_of(plan, node->out[0]);
	uint64_t strides[MAX_OPERANDS][RBK_MAX_RANK];
	struct dims dims = {0};
	bool flat;

	for (unsigned int i = 0; i < MAX_OPERANDS; i++)
		vk_broadcast_strides(vk_shape_of(plan, node->in[i < node->n_in ? i : 0]), count,
				     out->rank, strides[i]);
	for (unsigned int d = 0; d < out->rank; d++)
		dims_append(&dims, shape_dim(out, d, count),
			    (uint64_t[]){strides[0][d], strides[1][d], strides[2][d]});
	flat = dims.n == 1;
	for (unsigned int i = 0; flat && i < MAX_OPERANDS; i++)
		flat = dims.stride[0][i] == 1;
	if (flat)
		dims.n = 0;
	set_elementwise(step, &dims, shape_elems(out, count), params);
	memcpy(&params->w[ELEMENTWISE_PARAMS], node->params.elementwise.i,
	       sizeof(node->params.elementwise.i));
}

/* The functions of each operator, indexed by op_params.elementwise.form. */
#define FUNCTION_OF(KIND, ...)     [OP_##KIND - OP_ADD][0] = MAP_##KIND
#define OTHER_FORM(FUNCTION, KIND) [OP_##KIND - OP_ADD][1] = MAP_##FUNCTION
static const uint8_t functions[][2] = {
	OP_ELEMENTWISE(FUNCTION_OF),
	OP_OTHER_FORMS(OTHER_FORM),
};

static uint32_t function_of(const struct node *node)
{
	return functions[node->op->kind - OP_ADD][node->params.elementwise.form];
}

/* Return the type that stands for all element types of the same width. */
static uint8_t type_of_width(uint8_t dtype)
{
	switch (dtype_bytes(dtype)) {
	case 1:
		return RBK_DTYPE_U8;
	case 2:
		return RBK_DTYPE_F16;
	case 4:
		return RBK_DTYPE_F32;
	default:
		return RBK_DTYPE_I64;
	}
}

uint32_t vk_curve_of(const struct node *activation)
{
	switch (activation->op->kind) {
	case OP_RELU:
	case OP_LEAKY_RELU:
	case OP_CLIP:
		return 0;
	default:
		return function_of(activation);
	}
}

void vk_set_activation(const struct vk_step *step, struct vk_params *params)
{
	const struct node *node = step->activation;
	float slope = 1, low = -INFINITY, high = INFINITY;
	uint32_t *w = params->w;

	w[ACTIVATION] = node != NULL;
	if (!node)
		return;
	switch (node->op->kind) {
	case OP_RELU:
		low = 0;
		break;
	case OP_LEAKY_RELU:
		slope = node->params.elementwise.f[0];
		break;
	default:
		low = node->params.elementwise.f[0];
		high = node->params.elementwise.f[1];
	}
	w[ACTIVATION_SLOPE] = vk_float_bits(slope);
	w[ACTIVATION_LOW] = vk_float_bits(low);
	w[ACTIVATION_HIGH] = vk_float_bits(high);
}

/* Return: NULL if there is no such function of these types. */
static const struct vk_pipe *pipe_of(uint32_t function, uint8_t type, uint8_t to)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(typed); i++) {
		const uint32_t *spec = typed[i].of[VK_VARIANT_PLAIN].spec;

		if (spec[1] == function && spec[3] == type && spec[4] == to)
			return &typed[i];
	}
	return NULL;
}

static bool has_floats(uint32_t function)
{
	return function < ARRAY_SIZE(of_floats) && of_floats[function].of[VK_VARIANT_PLAIN].shader;
}

int lower_elementwise(struct lowering *l)
{
	const uint32_t function = function_of(l->node);
	uint8_t type = l->plan->tensors[l->node->in[l->node->op->kind == OP_WHERE]].dtype;
	uint8_t to = l->plan->tensors[l->node->out[0]].dtype;
	const struct vk_pipe *pipe;

	l->step->fill = fill_elementwise;
	if (has_floats(function) && to == type && OP_FLOATS & OP_TYPE(type)) {
		lower_pipe(l, &of_floats[function]);
		return 0;
	}
	if (!l->target.has_half || !l->target.has_bytes)
		return EXECUTOR_E_UNSUPPORTED;
	if (function == MAP_WHERE)
		type = to = type_of_width(type);
	l->step->numbers = VK_FLOATS;
	pipe = pipe_of(function, type, to);
	if (!pipe)
		return EXECUTOR_E_UNSUPPORTED;
	lower_pipe(l, pipe);
	return 0;
}

#define LOWERER(KIND, ...) [OP_##KIND] = lower_elementwise
static lower_fn *const lowerers[] = {OP_ELEMENTWISE(LOWERER)};
static const struct vk_pipes pipes[] = {VK_PIPES(of_floats), VK_PIPES(typed)};
VK_FAMILY(elementwise);
