/* SPDX-License-Identifier: MIT */
/*
 * Triangular systems and Cholesky, of one type. triangular-hot.c includes this file once for each
 * type, with these macros: REAL, the element; VEC, a vector of VEC_N of them; VEC_SET, VEC_LOAD,
 * VEC_STORE; REAL_SQRT; and FN(name), which gives each type's functions distinct names.
 *
 * LANES right-hand sides are solved at a time, one in each lane. A panel holds CHUNK unknowns of
 * each, with the lanes of one unknown adjacent. Unknown j is its right-hand side minus the products
 * of the triangle's row j with the unknowns before it, in their order, so every split of the
 * right-hand sides gives the same bits. Chunks before the panel's are loaded again from the result.
 */

/* A lower triangle: element [j][k] is at[j * row + k * column]. */
struct FN(triangle) {
	const REAL *at;
	ptrdiff_t row, column;
	bool is_unit; /* the diagonal is 1, and not read */
};

/* Elements outside a panel: unknown j of lane i is at[j * step + i * lane], for n lanes. */
struct FN(sides) {
	REAL *at;
	ptrdiff_t step, lane;
	size_t n;
};

typedef REAL FN(quad) __attribute__((vector_size(4 * sizeof(REAL))));
typedef REAL FN(quad_unaligned)
	__attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

/* Copy four rows of four, @from_row elements apart, as columns: out[i][j] = in[j][i]. */
VEC_INLINE void FN(transpose)(const REAL *from, ptrdiff_t from_row, REAL *to, ptrdiff_t to_row)
{
	const FN(quad) in[4] = {
		*(const FN(quad_unaligned) *)from,
		*(const FN(quad_unaligned) *)(from + from_row),
		*(const FN(quad_unaligned) *)(from + 2 * from_row),
		*(const FN(quad_unaligned) *)(from + 3 * from_row),
	};
	const FN(quad) a = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
	const FN(quad) b = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
	const FN(quad) c = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
	const FN(quad) d = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);

	*(FN(quad_unaligned) *)to = __builtin_shufflevector(a, c, 0, 1, 4, 5);
	*(FN(quad_unaligned) *)(to + to_row) = __builtin_shufflevector(a, c, 2, 3, 6, 7);
	*(FN(quad_unaligned) *)(to + 2 * to_row) = __builtin_shufflevector(b, d, 0, 1, 4, 5);
	*(FN(quad_unaligned) *)(to + 3 * to_row) = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

/* Load @n unknowns from @first on. The lanes beyond those of @from are 0. */
static void FN(load)(const struct FN(sides) * from, size_t first, size_t n, REAL *panel)
{
	const REAL *at = from->at + (ptrdiff_t)first * from->step;
	size_t j = 0;

	if (from->n < LANES)
		memset(panel, 0, n * LANES * sizeof(*panel));
	/* Elements of a lane are adjacent, and so are those of an unknown in the panel. */
	for (; from->n == LANES && from->step == 1 && j + 4 <= n; j += 4)
		for (ptrdiff_t i = 0; i < LANES; i += 4) {
			const REAL *lanes = at + i * from->lane + j;

			FN(transpose)(lanes, from->lane, panel + j * LANES + i, LANES);
		}
	at += (ptrdiff_t)j * from->step;
	panel += j * LANES;
	for (; j < n; j++, at += from->step, panel += LANES) {
		if (from->lane == 1)
			memcpy(panel, at, from->n * sizeof(*panel));
		else
			for (size_t i = 0; i < from->n; i++)
				panel[i] = at[(ptrdiff_t)i * from->lane];
	}
}

static void FN(store)(const struct FN(sides) * to, size_t first, size_t n, const REAL *panel)
{
	REAL *at = to->at + (ptrdiff_t)first * to->step;
	size_t j = 0;

	for (; to->n == LANES && to->step == 1 && j + 4 <= n; j += 4)
		for (ptrdiff_t i = 0; i < LANES; i += 4) {
			REAL *lanes = at + i * to->lane + j;

			FN(transpose)(panel + j * LANES + i, LANES, lanes, to->lane);
		}
	at += (ptrdiff_t)j * to->step;
	panel += j * LANES;
	for (; j < n; j++, at += to->step, panel += LANES) {
		if (to->lane == 1)
			memcpy(at, panel, to->n * sizeof(*panel));
		else
			for (size_t i = 0; i < to->n; i++)
				at[(ptrdiff_t)i * to->lane] = panel[i];
	}
}

/*
 * Subtract from @m <= ROWS unknowns the products of the triangle's rows from @at on with @n known
 * ones.
 */
VEC_INLINE void FN(subtract_rows)(const struct FN(triangle) * t, const REAL *at, size_t n,
				  const REAL *known, REAL *to, const size_t m)
{
	for (size_t lane = 0; lane < LANES; lane += 2 * VEC_N) {
		VEC sum[ROWS][2];

		VEC_UNROLL
		for (size_t r = 0; r < m; r++) {
			sum[r][0] = VEC_LOAD(to + r * LANES + lane);
			sum[r][1] = VEC_LOAD(to + r * LANES + lane + VEC_N);
		}
		for (size_t k = 0; k < n; k++) {
			const VEC first = VEC_LOAD(known + k * LANES + lane);
			const VEC second = VEC_LOAD(known + k * LANES + lane + VEC_N);

			VEC_UNROLL
			for (size_t r = 0; r < m; r++) {
				const VEC by = VEC_SET(
					at[(ptrdiff_t)r * t->row + (ptrdiff_t)k * t->column]);

				sum[r][0] -= by * first;
				sum[r][1] -= by * second;
			}
		}
		VEC_UNROLL
		for (size_t r = 0; r < m; r++) {
			VEC_STORE(to + r * LANES + lane, sum[r][0]);
			VEC_STORE(to + r * LANES + lane + VEC_N, sum[r][1]);
		}
	}
}

static void FN(subtract)(const struct FN(triangle) * t, size_t row, size_t column, size_t n,
			 const REAL *known, REAL *to, size_t m)
{
	const REAL *at = t->at + (ptrdiff_t)row * t->row + (ptrdiff_t)column * t->column;

	if (m == ROWS)
		FN(subtract_rows)(t, at, n, known, to, ROWS);
	else
		for (size_t r = 0; r < m; r++, at += t->row, to += LANES)
			FN(subtract_rows)(t, at, n, known, to, 1);
}

/* Solve @n unknowns from @first on, from which the products with those before are subtracted. */
static void FN(solve_panel)(const struct FN(triangle) * t, size_t first, size_t n, REAL *panel,
			    struct cpu_pause *pause)
{
	for (size_t j = 0; j < n; j += ROWS) {
		const size_t m = min_size(ROWS, n - j);

		cpu_pause(pause);
		FN(subtract)(t, first + j, first, j, panel, panel + j * LANES, m);
		for (size_t r = 0; r < m; r++) {
			const REAL *at = t->at + (ptrdiff_t)(first + j + r) * t->row +
					 (ptrdiff_t)(first + j) * t->column;
			const VEC over = VEC_SET(t->is_unit ? 1 : 1 / at[(ptrdiff_t)r * t->column]);
			REAL *to = panel + (j + r) * LANES;

			for (size_t lane = 0; lane < LANES; lane += VEC_N) {
				VEC x = VEC_LOAD(to + lane);

				for (size_t k = 0; k < r; k++)
					x -= VEC_SET(at[(ptrdiff_t)k * t->column]) *
					     VEC_LOAD(panel + (j + k) * LANES + lane);
				VEC_STORE(to + lane, x * over);
			}
		}
	}
}

/*
 * Solve @n unknowns from @first on of @from into @to, which has those before, and leave them in
 * the first of two panels.
 */
static void FN(solve_chunk)(const struct FN(triangle) * t, size_t first, size_t n,
			    const struct FN(sides) * from, const struct FN(sides) * to,
			    REAL *panels, struct cpu_pause *pause)
{
	REAL *known = panels + CHUNK * LANES;

	FN(load)(from, first, n, panels);
	for (size_t before = 0; before < first; before += CHUNK) {
		FN(load)(to, before, CHUNK, known);
		for (size_t j = 0; j < n; j += ROWS) {
			const size_t m = min_size(ROWS, n - j);

			cpu_pause(pause);
			FN(subtract)(t, first + j, before, CHUNK, known, panels + j * LANES, m);
		}
	}
	FN(solve_panel)(t, first, n, panels, pause);
	FN(store)(to, first, n, panels);
}

/* Compute units: LANES right-hand sides of one system. */
static void FN(solve)(const struct cpu_solve *args, size_t begin, size_t end, REAL *panels)
{
	const size_t n = args->n, blocks = div_up(args->sides, LANES);
	/* A transposed upper triangle is a lower one. An upper one is solved from its end. */
	const bool is_flipped = args->trans != !args->left;
	const bool is_backward = args->upper != is_flipped;
	const ptrdiff_t sign = is_backward ? -1 : 1, length = (ptrdiff_t)n;
	const ptrdiff_t step = args->left ? (ptrdiff_t)args->sides : 1;
	const ptrdiff_t lane = args->left ? 1 : length;

	for (size_t unit = begin; unit < end; unit++) {
		const size_t batch = unit / blocks, side = unit % blocks * LANES;
		const size_t at = batch * n * args->sides + side * (size_t)lane +
				  (is_backward ? (n - 1) * (size_t)step : 0);
		const struct FN(triangle) t = {
			.at = (const REAL *)args->a + (args->is_shared ? 0 : batch * n * n) +
			      (is_backward ? n * n - 1 : 0),
			.row = sign * (is_flipped ? 1 : length),
			.column = sign * (is_flipped ? length : 1),
			.is_unit = args->unit,
		};
		/* Only load() reads from it. */
		const struct FN(sides) from = {
			.at = (REAL *)args->b + at,
			.step = sign * step,
			.lane = lane,
			.n = min_size(LANES, args->sides - side),
		};
		struct FN(sides) to = from;

		to.at = (REAL *)args->y + at;
		for (size_t first = 0; first < n; first += CHUNK) {
			const size_t m = min_size(CHUNK, n - first);

			FN(solve_chunk)(&t, first, m, &from, &to, panels, args->pause);
		}
	}
}

/*
 * Factor a block of @n <= LANES rows, transposed as in a panel. Lanes before the diagonal have no
 * meaning.
 */
static void FN(factor_block)(REAL *block, size_t n)
{
	for (size_t j = 0; j < n; j++) {
		REAL *row = block + j * LANES;
		const REAL root = row[j] > 0 ? REAL_SQRT(row[j]) : (REAL)NAN;
		const VEC over = VEC_SET(1 / root);

		for (size_t lane = 0; lane < LANES; lane += VEC_N)
			VEC_STORE(row + lane, VEC_LOAD(row + lane) * over);
		row[j] = root;
		for (size_t i = j + 1; i < n; i++)
			for (size_t lane = 0; lane < LANES; lane += VEC_N) {
				REAL *to = block + i * LANES + lane;

				VEC_STORE(to,
					  VEC_LOAD(to) - VEC_SET(row[i]) * VEC_LOAD(row + lane));
			}
	}
}

/* Factor one matrix: LANES rows at a time, whose elements before the diagonal solve a system. */
static void FN(factor)(const REAL *a, REAL *y, size_t n, REAL *panels, struct cpu_pause *pause)
{
	const struct FN(triangle) t = {.at = y, .row = (ptrdiff_t)n, .column = 1};
	const struct FN(triangle) square = {.at = panels, .row = 1, .column = LANES};
	REAL *block = panels + 2 * CHUNK * LANES;

	for (size_t row = 0; row < n; row += LANES) {
		const size_t rows = min_size(LANES, n - row);
		const struct FN(sides) from = {
			.at = (REAL *)a + row * n, .step = 1, .lane = (ptrdiff_t)n, .n = rows};
		struct FN(sides) to = from;

		to.at = y + row * n;
		FN(load)(&from, row, rows, block);
		for (size_t first = 0; first < row; first += CHUNK) {
			const size_t known = min_size(CHUNK, row - first);

			FN(solve_chunk)(&t, first, known, &from, &to, panels, pause);
			for (size_t j = 0; j < rows; j += ROWS) {
				const size_t m = min_size(ROWS, rows - j);

				FN(subtract)(&square, j, 0, known, panels, block + j * LANES, m);
			}
		}
		FN(factor_block)(block, rows);
		for (size_t i = 0; i < rows; i++) {
			REAL *line = y + (row + i) * n;

			for (size_t j = 0; j <= i; j++)
				line[row + j] = block[j * LANES + i];
			memset(line + row + i + 1, 0, (n - row - i - 1) * sizeof(*line));
		}
	}
}

/* Compute units: matrices. */
static void FN(cholesky)(const struct cpu_cholesky *args, size_t begin, size_t end, REAL *panels)
{
	const size_t square = args->n * args->n;

	for (size_t i = begin; i < end; i++) {
		const REAL *a = (const REAL *)args->a + i * square;
		REAL *y = (REAL *)args->y + i * square;

		FN(factor)(a, y, args->n, panels, args->pause);
	}
}
