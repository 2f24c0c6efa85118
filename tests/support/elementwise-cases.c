/* SPDX-License-Identifier: MIT */
/* Uses of elementwise operators: see elementwise-cases.h. */
#include "support/elementwise-cases.h"

#include <math.h>
#include <string.h>

#include "shm/dtype.h"

static uint32_t pick(uint64_t *seed, uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(seed) % (to - from + 1));
}

static void add_attrs(struct describe *d, const struct op *op, uint8_t dtype, uint8_t to,
		      unsigned int round)
{
	const bool is_float = OP_ALL_FLOATS & OP_TYPE(dtype);

	switch (op->kind) {
	case OP_CAST:
		describe_attr_int(d, "to", to);
		return;
	case OP_CLIP:
		if (is_float && round % 3)
			describe_attr_float(d, "min", -1.5f);
		if (is_float && round % 2)
			describe_attr_float(d, "max", 3);
		if (!is_float && round % 3)
			describe_attr_int(d, "int_min", -7);
		if (!is_float && round % 2)
			describe_attr_int(d, "int_max", 90);
		return;
	case OP_MOD:
		describe_attr_int(d, "fmod", is_float || round % 2);
		return;
	case OP_BIT_SHIFT:
		describe_attr_string(d, "direction", round % 2 ? "LEFT" : "RIGHT");
		return;
	case OP_GELU:
		describe_attr_string(d, "approximate", round % 2 ? "tanh" : "none");
		return;
	case OP_IS_INF:
		describe_attr_int(d, "detect_negative", round % 2);
		describe_attr_int(d, "detect_positive", round % 3 != 1);
		return;
	case OP_LEAKY_RELU:
	case OP_ELU:
	case OP_CELU:
	case OP_SWISH:
	case OP_THRESHOLDED_RELU:
		if (round % 2)
			describe_attr_float(d, "alpha", 0.7f);
		return;
	default:
		return;
	}
}

static uint8_t out_dtype(const struct op *op, uint8_t dtype, uint8_t to)
{
	switch (op->out_classes[0]) {
	case 'B':
		return RBK_DTYPE_BOOL;
	case 'U':
		return to;
	default:
		return dtype;
	}
}

struct describe *elementwise_case(const struct op *op, uint8_t dtype, unsigned int round,
				  uint64_t *seed)
{
	static const uint8_t targets[] = {RBK_DTYPE_F32, RBK_DTYPE_U8,   RBK_DTYPE_I8,
					  RBK_DTYPE_I32, RBK_DTYPE_BOOL, RBK_DTYPE_I64,
					  RBK_DTYPE_F16, RBK_DTYPE_BF16, RBK_DTYPE_F64};
	/*
	 * Twice as many rounds take each target with the count and without: the number of targets
	 * is odd.
	 */
	const uint8_t to = targets[round % sizeof(targets)];
	const bool is_dynamic = round % 2, broadcasts = round % 3;
	const unsigned int rank = pick(seed, is_dynamic, 4);
	struct describe *d = describe_new("", is_dynamic ? ELEMENTWISE_MAX_COUNT : 1);
	uint32_t dims[RBK_MAX_RANK];
	char in[16] = "";

	for (unsigned int i = 0; i < rank; i++)
		dims[i] = pick(seed, 1, rank == 1 ? 1500 : rank == 2 ? 70 : 9);
	if (is_dynamic)
		dims[0] = DESCRIBE_COUNT;
	for (unsigned int j = 0; j < op->max_in; j++) {
		const bool whole = j == 0 || !broadcasts;
		const unsigned int skip = whole ? 0 : pick(seed, 0, rank);
		uint32_t mine[RBK_MAX_RANK];

		for (unsigned int i = skip; i < rank; i++)
			mine[i - skip] = !whole && pick(seed, 0, 2) == 0 ? 1 : dims[i];
		/* The count must stay the first dimension. */
		if (is_dynamic && skip > 0 && rank > skip && mine[0] == DESCRIBE_COUNT)
			mine[0] = 1;
		describe_tensor(d, (const char[]){"abc"[j], 0}, RBK_TENSOR_INPUT,
				op->in_classes[j < strlen(op->in_classes) ? j : 1] == 'B'
					? RBK_DTYPE_BOOL
					: dtype,
				0, rank - skip, mine);
		strcat(in, j ? "," : "");
		strcat(in, (const char[]){"abc"[j], 0});
	}
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, out_dtype(op, dtype, to));
	describe_node(d, op->name, "node", in, "y");
	add_attrs(d, op, dtype, to, round);
	return d;
}

static float pick_float(uint64_t *seed)
{
	static const float edges[] = {
		0,      -0.0f,    1,        -1,        0.5f,          -0.5f,
		2,      -2,       INFINITY, -INFINITY, NAN,           1e30f,
		-1e30f, 1e-30f,   3,        7.5f,      -7.5f,         65504,
		65520,  128,      -129,     255.5f,    2147483648.0f, -2147483648.0f,
		1e19f,  -9.3e18f, 2049,     -4099,     1e5f,          -1e5f,
		88,     -86,      1e-40f,   -1e-40f};
	const uint32_t which = pick(seed, 0, 99);

	if (which < sizeof(edges) / sizeof(edges[0]))
		return edges[which];
	/* Half of the values lie where most functions are not flat. */
	return ((float)pick(seed, 0, 200000) - 100000) / (which % 2 ? 50000 : 5000);
}

static int64_t pick_integer(uint64_t *seed)
{
	static const int64_t edges[] = {0,   1,         -1,        2,         -2,       3,
					-3,  7,         8,         127,       128,      255,
					256, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
	const uint32_t which = pick(seed, 0, 59);

	if (which < sizeof(edges) / sizeof(edges[0]))
		return edges[which];
	return (int64_t)reference_random(seed) >> pick(seed, 0, 63);
}

/* Return any float, or one at or beside the midpoint of two bfloat16s. */
static float pick_to_round(uint64_t *seed)
{
	const uint32_t upper = pick(seed, 0, 0xffff) << 16, which = pick(seed, 0, 3);
	const uint32_t bits = upper | (which ? 0x8001 - which : pick(seed, 0, 0xffff));
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Return an edge value of float64, a value of pick_float(), or one near it. */
static double pick_double(uint64_t *seed)
{
	static const double edges[] = {1e300,   -1e300,          1e-300, 700,
				       -700,    0x1p53,          0x1p63, -0x1p63,
				       65519.9, 255.99999999999, 1e155,  0x1.fffffffcp30};
	const double near = (double)pick_float(seed);
	const uint32_t which = pick(seed, 0, 99);

	if (which < sizeof(edges) / sizeof(edges[0]))
		return edges[which];
	/* Float32's denormals are ordinary float64 numbers. */
	return which % 2 ? near * (1 + (double)pick(seed, 0, 1u << 31) * 0x1p-51) : near;
}

void elementwise_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		      uint64_t *seed)
{
	const bool rounds = plan->tensors[plan->nodes[0].out[0]].dtype == RBK_DTYPE_BF16;

	for (unsigned int b = 0; b < plan->n_bindings; b++) {
		const struct tensor *tensor = &plan->tensors[plan->bindings[b].tensor];
		const uint64_t bytes = dtype_bytes(tensor->dtype);

		if (tensor->kind == RBK_TENSOR_OUTPUT)
			continue;
		for (uint64_t i = 0; i < shape_elems(&tensor->shape, count); i++) {
			char *at = (char *)buffers->bindings[b] + i * bytes;
			int64_t integer = pick_integer(seed);
			float f = pick_float(seed);

			if (rounds && i % 2)
				f = pick_to_round(seed);
			if (tensor->dtype == RBK_DTYPE_F32)
				memcpy(at, &f, sizeof(f));
			else if (tensor->dtype == RBK_DTYPE_F64)
				memcpy(at, &(double){pick_double(seed)}, bytes);
			else if (tensor->dtype == RBK_DTYPE_F16)
				/* Any float16 except denormals, which devices may flush to zero. */
				memcpy(at, &(uint16_t){(uint16_t)(integer & 0x7c00 ? integer : 0)},
				       bytes);
			else
				memcpy(at, &integer, bytes);
		}
	}
}
