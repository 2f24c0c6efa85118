/* SPDX-License-Identifier: MIT */
/*
 * MatMul and Gemm
 *
 * A batch that shares its b is computed as a taller a. Constant right-hand sides are packed if that
 * speeds up reading; the results are bit-identical either way. Float64 is never packed.
 */
#include "cpu/compile.h"

#include <errno.h>

#include "cpu/internal.h"
#include "cpu/run-matmul.h"
#include "util/error.h"

/*
 * Up to this size the product reads b in place as fast, and the packed form would waste most of a
 * page.
 */
enum { PACK_MIN_ELEMS = 512 };

enum { FILL_FLOATS = 1 << 19 }; /* floats packed at a time */

struct matrix_fill {
	size_t k, n, n_matrices, packed; /* floats of each */
	bool is_transposed;
};
CPU_STEP_HOLDS(struct matrix_fill);

/*
 * Pack FILL_FLOATS floats of a matrix, or one panel, at a time. The packed form is a sequence of
 * blocks of CPU_GEMM_KC rows; each block is a sequence of panels of columns.
 */
static bool fill_matrix(const struct cpu_fill *fill, uint64_t number)
{
	const struct matrix_fill *args = (const void *)fill->args;
	const struct cpu_kernels *kernels = fill->kernels;
	const size_t k = args->k, n = args->n, nr = kernels->gemm_nr;
	const size_t rs = args->is_transposed ? 1 : n, cs = args->is_transposed ? k : 1;
	const size_t depth = k < CPU_GEMM_KC ? k : CPU_GEMM_KC;
	const size_t panels = FILL_FLOATS / (depth * nr) > 0 ? FILL_FLOATS / (depth * nr) : 1;
	const size_t width = panels * nr;
	const size_t n_across = div_up(n, width), n_down = div_up(k, CPU_GEMM_KC);
	const size_t matrix = number / (n_across * n_down);
	const size_t p = number / n_across % n_down * CPU_GEMM_KC, j = number % n_across * width;
	const size_t kb = k - p < CPU_GEMM_KC ? k - p : CPU_GEMM_KC;

	kernels->pack_b(kb, n - j < width ? n - j : width,
			(const float *)fill->from[0] + matrix * k * n + p * rs + j * cs, rs, cs,
			fill->pack->data + matrix * args->packed + p * (args->packed / k) + j * kb);
	return number + 1 < args->n_matrices * n_across * n_down;
}

/* Pack b if it is constant and large enough. */
static int pack_matrix(struct compiler *c, const struct tensor *b, size_t n_matrices)
{
	const struct cpu_kernels *kernels = c->cpu->kernels;
	struct cpu_step_gemm *step = compile_args(c);
	const size_t n = step->n.fixed, k = step->k;
	const size_t packed = kernels->pack_b_size(k, n);
	const uint64_t params[] = {k, n, n_matrices, step->trans_b};
	struct cpu_fill *fill;
	uintptr_t from;
	size_t floats;
	int r;

	if (node_is_double(c) || !node_in_is_constant(c, 1) || k * n <= PACK_MIN_ELEMS)
		return 0;
	/* A narrow b is read in place: a panel would be mostly padding. */
	if (n < kernels->gemm_nr / 2)
		return 0;
	if (__builtin_mul_overflow(packed, n_matrices, &floats))
		return error_origin(-ENOMEM);
	from = c->step->in[1].offset;
	r = compile_pack(c, 1, PACK_MATRIX, params, 4, floats, &fill);
	if (r)
		return error_fold(r);
	if (fill) {
		fill->part = fill_matrix;
		*(struct matrix_fill *)fill->args = (struct matrix_fill){
			.k = k,
			.n = n,
			.n_matrices = n_matrices,
			.packed = packed,
			.is_transposed = step->trans_b,
		};
		compile_fill_from(c, fill, 0, from);
	}
	step->b_is_packed = true;
	step->b_matrix = packed;
	return 0;
}

/*
 * Add a dimension of the batch, outermost first, merged with the last one where both operands
 * allow.
 */
static void gemm_add_batch(struct cpu_step_gemm *step, struct cpu_extent extent, size_t a, size_t b)
{
	const unsigned int last = step->n_batch - 1;

	if (extent_is_one(extent))
		return;
	if (step->n_batch > 0 && extent.row == 0 && step->a_batch[last] == a * extent.fixed &&
	    step->b_batch[last] == b * extent.fixed) {
		step->batch[last] = extent_mul(step->batch[last], extent);
		step->a_batch[last] = a;
		step->b_batch[last] = b;
		return;
	}
	step->batch[step->n_batch] = extent;
	step->a_batch[step->n_batch] = a;
	step->b_batch[step->n_batch] = b;
	step->n_batch++;
}

/* Return the shape without its last two dimensions. */
static struct shape shape_front(const struct shape *shape)
{
	struct shape front = *shape;

	front.rank = shape->rank > 2 ? (uint8_t)(shape->rank - 2) : 0;
	front.dynamic = shape->dynamic && front.rank > 0;
	return front;
}

bool compile_product(struct cpu_step_gemm *step, const struct shape *as, const struct shape *bs,
		     bool rows_apart)
{
	const struct shape a_front = shape_front(as), b_front = shape_front(bs);
	const unsigned int rank = a_front.rank > b_front.rank ? a_front.rank : b_front.rank;
	const struct cpu_extent b_batch = extent_range(&b_front, 0, b_front.rank);

	step->k = as->dims[as->rank - 1];
	step->m = as->rank > 1 ? extent_aligned(as, as->rank, as->rank - 2u)
			       : (struct cpu_extent){.fixed = 1};
	step->n = bs->rank > 1 ? extent_aligned(bs, bs->rank, bs->rank - 1u)
			       : (struct cpu_extent){.fixed = 1};
	step->a_matrix = step->m.fixed * step->k;
	step->b_matrix = step->n.fixed * step->k;

	/* A single b: the batch only means more rows. */
	if (extent_is_one(b_batch) && !rows_apart) {
		step->m = extent_mul(extent_range(&a_front, 0, a_front.rank), step->m);
		return true;
	}
	for (unsigned int i = 0; i < rank; i++) {
		const struct cpu_extent x = extent_aligned(&a_front, rank, i);
		const struct cpu_extent y = extent_aligned(&b_front, rank, i);

		gemm_add_batch(step, extent_is_one(x) ? y : x, stride_aligned(&a_front, rank, i),
			       stride_aligned(&b_front, rank, i));
	}
	return false;
}

static void set_run(struct compiler *c)
{
	c->step->run = node_is_double(c) ? cpu_run_gemm_f64 : cpu_run_gemm;
	c->step->units = cpu_units_gemm;
	c->step->rounds = node_is_double(c) ? cpu_rounds_gemm_f64 : cpu_rounds_gemm;
	c->step->looks = true;
	if (node_is_double(c))
		c->speed_up = COMPILE_DOUBLE_SPEED_UP;
}

/* Set the strides of a fused addend: the same for every row, or as large as the single product. */
static void set_addend(struct cpu_step_gemm *step, const struct shape *shape)
{
	if (shape->rank == 0)
		return;
	if (!extent_is_one(extent_range(shape, 0, shape->rank - 1u)))
		step->c_rs = step->n.fixed;
	step->c_cs = stride_aligned(shape, shape->rank, shape->rank - 1u);
}

static int compile_matmul(struct compiler *c)
{
	const struct tensor *a = node_in(c, 0), *b = node_in(c, 1), *addend = node_in(c, 2);
	const struct shape b_front = shape_front(&b->shape);
	struct cpu_step_gemm *step = compile_args(c);
	bool is_one;

	set_run(c);
	step->alpha = 1;
	step->beta = 1;
	is_one = compile_product(step, &a->shape, &b->shape, false);
	if (addend)
		set_addend(step, &addend->shape);
	if (is_one)
		return pack_matrix(c, b, 1);
	return pack_matrix(c, b, extent_range(&b_front, 0, b_front.rank).fixed);
}

static int compile_gemm(struct compiler *c)
{
	const struct tensor *a = node_in(c, 0), *b = node_in(c, 1), *addend = node_in(c, 2);
	struct cpu_step_gemm *step = compile_args(c);

	set_run(c);
	step->alpha = c->node->params.gemm.alpha;
	step->beta = c->node->params.gemm.beta;
	step->trans_a = c->node->params.gemm.trans_a;
	step->trans_b = c->node->params.gemm.trans_b;
	step->k = a->shape.dims[step->trans_a ? 0 : 1];
	step->m = extent_aligned(&a->shape, 2, step->trans_a ? 1 : 0);
	step->n = extent_aligned(&b->shape, 2, step->trans_b ? 0 : 1);
	step->a_matrix = step->m.fixed * step->k;
	step->b_matrix = step->n.fixed * step->k;
	/* ONNX: without beta the addend is not read. */
	if (addend && step->beta == 0)
		c->step->in[2].present = false;
	if (addend) {
		step->c_rs = stride_aligned(&addend->shape, 2, 0);
		step->c_cs = stride_aligned(&addend->shape, 2, 1);
	}
	return pack_matrix(c, b, 1);
}

const struct cpu_op cpu_op_matmul = {.compile = compile_matmul, .overhead = {30, 2, 0}};
const struct cpu_op cpu_op_gemm = {.compile = compile_gemm, .overhead = {30, 8, 0}};
