/* SPDX-License-Identifier: MIT */
/* See gather-cases.h. */
#include "support/gather-cases.h"

#include <string.h>

#include "shm/dtype.h"
#include "shm/half.h"

static uint32_t pick(uint64_t *seed, uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(seed) % (to - from + 1));
}

/* Choose @rank dimensions; the higher the rank, the smaller they are. */
static void pick_dims(uint64_t *seed, unsigned int rank, uint32_t *dims)
{
	const uint32_t longest = rank <= 1 ? 300 : rank == 2 ? 70 : rank == 3 ? 17 : 6;

	for (unsigned int i = 0; i < rank; i++)
		dims[i] = pick(seed, 0, 5) ? pick(seed, 1, longest) : 1;
}

struct inputs {
	struct describe *d;
	uint8_t dtype, index;
};

static void add(const struct inputs *in, const char *name, uint8_t dtype, unsigned int rank,
		const uint32_t *dims)
{
	describe_tensor(in->d, name, RBK_TENSOR_INPUT, dtype, 0, rank, dims);
}

static void end(const struct inputs *in, const struct op *op, const char *names)
{
	describe_inferred(in->d, "y", RBK_TENSOR_OUTPUT, in->dtype);
	describe_node(in->d, op->name, "node", names, "y");
}

static void add_reduction(const struct inputs *in, unsigned int round)
{
	static const char *const names[] = {"none", "add", "mul", "max", "min"};

	const bool computes = OP_ALL_NUMBERS & OP_TYPE(in->dtype);

	describe_attr_string(in->d, "reduction", computes ? names[round % 5] : "none");
}

static void describe_gather(const struct inputs *in, const struct op *op, bool is_dynamic,
			    uint64_t *seed)
{
	const unsigned int rank = pick(seed, 1, 4), at_rank = pick(seed, is_dynamic, 2);
	/* The count is the number of indices into a table, or the number of the data's own rows. */
	const bool by_indices = rank == 1 || pick(seed, 0, 1);
	const unsigned int axis = !is_dynamic  ? pick(seed, 0, rank - 1)
				  : by_indices ? 0
					       : pick(seed, 1, rank - 1);
	uint32_t dims[RBK_MAX_RANK], at[RBK_MAX_RANK];

	pick_dims(seed, rank, dims);
	pick_dims(seed, at_rank, at);
	if (is_dynamic)
		*(by_indices ? at : dims) = DESCRIBE_COUNT;
	add(in, "x", in->dtype, rank, dims);
	add(in, "at", in->index, at_rank, at);
	end(in, op, "x,at");
	describe_attr_int(in->d, "axis", (int64_t)axis - (pick(seed, 0, 1) ? rank : 0));
}

static void describe_elements(const struct inputs *in, const struct op *op, bool is_dynamic,
			      unsigned int round, uint64_t *seed)
{
	const bool scatters = op->kind == OP_SCATTER_ELEMENTS;
	const unsigned int rank = pick(seed, 1, 5);
	const bool by_indices = rank == 1 || pick(seed, 0, 1);
	const unsigned int axis = !is_dynamic  ? pick(seed, 0, rank - 1)
				  : by_indices ? 0
					       : pick(seed, 1, rank - 1);
	uint32_t dims[RBK_MAX_RANK], at[RBK_MAX_RANK];

	pick_dims(seed, rank, dims);
	for (unsigned int i = 0; i < rank; i++)
		at[i] = i == axis          ? pick(seed, 1, 9)
			: pick(seed, 0, 2) ? dims[i]
					   : pick(seed, 1, dims[i]);
	if (is_dynamic)
		at[0] = DESCRIBE_COUNT;
	if (is_dynamic && !by_indices)
		dims[0] = DESCRIBE_COUNT;
	add(in, "x", in->dtype, rank, dims);
	add(in, "at", in->index, rank, at);
	if (scatters)
		add(in, "u", in->dtype, rank, at);
	end(in, op, scatters ? "x,at,u" : "x,at");
	describe_attr_int(in->d, "axis", axis);
	if (scatters)
		add_reduction(in, round);
}

static void describe_nd(const struct inputs *in, const struct op *op, bool is_dynamic,
			unsigned int round, uint64_t *seed)
{
	const bool scatters = op->kind == OP_SCATTER_ND;
	const unsigned int rank = pick(seed, 1, 4), at_rank = pick(seed, 1 + is_dynamic, 3);
	const unsigned int least = rank < at_rank ? rank : at_rank;
	const unsigned int batch = scatters ? 0 : pick(seed, 0, least - 1);
	const unsigned int n = pick(seed, 1, rank - batch);
	uint32_t dims[RBK_MAX_RANK], at[RBK_MAX_RANK], updates[RBK_MAX_RANK];
	unsigned int n_updates = 0;

	pick_dims(seed, rank, dims);
	for (unsigned int i = 0; i < at_rank; i++)
		at[i] = i < batch ? dims[i] : pick(seed, 1, 8);
	at[at_rank - 1] = n;
	if (is_dynamic)
		at[0] = DESCRIBE_COUNT;
	if (is_dynamic && batch > 0)
		dims[0] = DESCRIBE_COUNT;
	for (unsigned int i = 0; i + 1 < at_rank; i++)
		updates[n_updates++] = at[i];
	for (unsigned int i = n; i < rank; i++)
		updates[n_updates++] = dims[i];
	add(in, "x", in->dtype, rank, dims);
	add(in, "at", in->index, at_rank, at);
	if (scatters)
		add(in, "u", in->dtype, n_updates, updates);
	end(in, op, scatters ? "x,at,u" : "x,at");
	if (scatters)
		add_reduction(in, round);
	else
		describe_attr_int(in->d, "batch_dims", batch);
}

static void describe_one_hot(const struct inputs *in, const struct op *op, bool is_dynamic,
			     uint64_t *seed)
{
	const unsigned int rank = pick(seed, is_dynamic, 3);
	uint32_t at[RBK_MAX_RANK];

	pick_dims(seed, rank, at);
	if (is_dynamic)
		at[0] = DESCRIBE_COUNT;
	add(in, "at", in->index, rank, at);
	add(in, "values", in->dtype, 1, (const uint32_t[]){2});
	end(in, op, "at,values");
	describe_attr_int(in->d, "depth", pick(seed, 1, 20));
	describe_attr_int(in->d, "axis", pick(seed, is_dynamic, rank));
}

static void describe_trilu(const struct inputs *in, const struct op *op, bool is_dynamic,
			   unsigned int round, uint64_t *seed)
{
	const unsigned int rank = pick(seed, 2, 4);
	uint32_t dims[RBK_MAX_RANK];

	pick_dims(seed, rank, dims);
	if (is_dynamic)
		dims[0] = DESCRIBE_COUNT;
	add(in, "x", in->dtype, rank, dims);
	end(in, op, "x");
	describe_attr_int(in->d, "upper", round / 2 % 2);
	describe_attr_int(in->d, "k",
			  pick(seed, 0, 5) ? (int64_t)pick(seed, 0, 20) - 10
			  : round / 2 % 2  ? INT64_MAX
					   : INT64_MIN);
}

struct describe *gather_case(const struct op *op, uint8_t dtype, unsigned int round, uint64_t *seed)
{
	const bool is_dynamic = round % 2;
	const struct inputs in = {
		.d = describe_new(op->name, is_dynamic ? GATHER_MAX_COUNT : 1),
		.dtype = dtype,
		.index = pick(seed, 0, 1) ? RBK_DTYPE_I64 : RBK_DTYPE_I32,
	};

	switch (op->kind) {
	case OP_GATHER:
		describe_gather(&in, op, is_dynamic, seed);
		break;
	case OP_GATHER_ELEMENTS:
	case OP_SCATTER_ELEMENTS:
		describe_elements(&in, op, is_dynamic, round, seed);
		break;
	case OP_GATHER_ND:
	case OP_SCATTER_ND:
		describe_nd(&in, op, is_dynamic, round, seed);
		break;
	case OP_ONE_HOT:
		describe_one_hot(&in, op, is_dynamic, seed);
		break;
	default:
		describe_trilu(&in, op, is_dynamic, round, seed);
		break;
	}
	return in.d;
}

/* Return the binding of the indices of @node. */
static unsigned int indices_of(const struct node *node)
{
	return node->op->kind == OP_ONE_HOT ? 0 : 1;
}

/* Return the limit of index @i: the size of the axis that it selects from. */
static uint32_t limit_of(const struct plan *plan, uint32_t count, uint64_t i)
{
	const struct node *node = &plan->nodes[0];
	const struct shape *x = &plan->tensors[node->in[0]].shape;
	const struct shape *at = &plan->tensors[node->in[indices_of(node)]].shape;

	switch (node->op->kind) {
	case OP_GATHER_ND:
		return shape_dim(x,
				 node->params.gather.batch_dims +
					 (unsigned int)(i % at->dims[at->rank - 1]),
				 count);
	case OP_SCATTER_ND:
		return shape_dim(x, (unsigned int)(i % at->dims[at->rank - 1]), count);
	case OP_ONE_HOT:
		return node->params.one_hot.depth;
	default:
		return shape_dim(x, node->params.gather.axis, count);
	}
}

static void put(const struct plan *plan, struct reference_buffers *buffers, uint64_t i,
		int64_t index)
{
	const struct node *node = &plan->nodes[0];
	const unsigned int binding = indices_of(node);

	if (plan->tensors[node->in[binding]].dtype == RBK_DTYPE_I64)
		((int64_t *)buffers->bindings[binding])[i] = index;
	else
		((int32_t *)buffers->bindings[binding])[i] = (int32_t)index;
}

void gather_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		 uint64_t *seed)
{
	const struct node *node = &plan->nodes[0];
	const unsigned int binding = indices_of(node);

	for (unsigned int i = 0; i < plan->n_bindings; i++) {
		const struct tensor *tensor = &plan->tensors[plan->bindings[i].tensor];
		uint8_t *bools = buffers->bindings[i];

		for (uint64_t k = 0; tensor->dtype == RBK_DTYPE_BOOL && k < buffers->bytes[i]; k++)
			bools[k] &= 1;
	}
	if (node->op->kind == OP_TRILU)
		return;
	for (uint64_t i = 0; i < shape_elems(&plan->tensors[node->in[binding]].shape, count); i++) {
		const uint32_t limit = limit_of(plan, count, i);
		int64_t index =
			(int64_t)pick(seed, 0, limit - 1) - (pick(seed, 0, 1) ? (int64_t)limit : 0);

		/* OneHot accepts any index. */
		if (node->op->kind == OP_ONE_HOT && pick(seed, 0, 3) == 0)
			index *= 3;
		put(plan, buffers, i, index);
	}
}

bool gather_spoil(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		  uint64_t *seed)
{
	const struct node *node = &plan->nodes[0];
	const struct tensor *at;
	uint64_t i;
	int64_t limit;

	if (node->op->kind == OP_ONE_HOT || node->op->kind == OP_TRILU)
		return false;
	at = &plan->tensors[node->in[1]];
	i = reference_random(seed) % shape_elems(&at->shape, count);
	limit = limit_of(plan, count, i);
	{
		const int64_t bad[] = {
			limit,     -limit - 1,    INT32_MAX,
			INT32_MIN, INT64_MAX,     INT64_MIN,
			1ll << 32, -(1ll << 32),  limit + (1ll << 32),
			3ll << 40, -limit - 1000, (1ll << 32) - 1,
		};
		const unsigned int n = at->dtype == RBK_DTYPE_I64 ? 12 : 4;

		put(plan, buffers, i, bad[reference_random(seed) % n]);
	}
	return true;
}

struct describe *sample_case(unsigned int round, bool mixes, uint64_t *seed)
{
	static const char *const modes[] = {"linear", "nearest", "cubic", "bilinear", "bicubic"};
	static const char *const paddings[] = {"zeros", "border", "reflection"};
	static const enum rbk_dtype types[] = {RBK_DTYPE_F32, RBK_DTYPE_F16, RBK_DTYPE_F64};
	const unsigned int mode = round % 5, type = round / 15 % 3;
	const unsigned int grid_type = mixes ? pick(seed, 0, 2) : type;
	const unsigned int spatial = mode == 2 || mode == 4 ? 2 : pick(seed, 2, 3);
	const bool is_dynamic = pick(seed, 0, 1);
	struct describe *d = describe_new("sample", is_dynamic ? GATHER_MAX_COUNT : 1);
	uint32_t x[RBK_MAX_RANK], grid[RBK_MAX_RANK];

	x[0] = grid[0] = is_dynamic ? DESCRIBE_COUNT : pick(seed, 1, 2);
	x[1] = pick(seed, 0, 3) ? pick(seed, 1, 5) : pick(seed, 30, 70);
	for (unsigned int i = 0; i < spatial; i++) {
		x[2 + i] = pick(seed, 0, 7) ? pick(seed, 1, 9) : 1;
		grid[1 + i] = pick(seed, 1, spatial == 2 ? 15 : 6);
	}
	grid[1 + spatial] = spatial;
	describe_tensor(d, "x", RBK_TENSOR_INPUT, types[type], 0, 2 + spatial, x);
	describe_tensor(d, "grid", RBK_TENSOR_INPUT, types[grid_type], 0, 2 + spatial, grid);
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, types[type]);
	describe_node(d, "GridSample", "", "x,grid", "y");
	describe_attr_string(d, "mode", modes[mode]);
	describe_attr_string(d, "padding_mode", paddings[round / 5 % 3]);
	describe_attr_int(d, "align_corners", pick(seed, 0, 1));
	return d;
}

void sample_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		 uint64_t *seed)
{
	const struct tensor *grid = &plan->tensors[plan->nodes[0].in[1]];
	void *to = buffers->bindings[1];

	for (uint64_t i = 0; i < shape_elems(&grid->shape, count); i++) {
		const uint32_t kind = pick(seed, 0, 9);
		const double whole = (double)pick(seed, 0, 40) - 20;
		const double n = kind < 3   ? whole / 16
				 : kind < 6 ? whole / 9
				 : kind < 9 ? (double)pick(seed, 0, 1 << 20) / (1 << 19) - 1
					    : whole / 2;

		if (grid->dtype == RBK_DTYPE_F64)
			((double *)to)[i] = n;
		else if (grid->dtype == RBK_DTYPE_F32)
			((float *)to)[i] = (float)n;
		else
			((uint16_t *)to)[i] = half_from_float((float)n);
	}
}
