/* SPDX-License-Identifier: MIT */
/*
 * The kernels of quantized operators, called directly
 *
 * The kernels run at all levels of this processor, with all signs and kinds of zero points, packed
 * and unpacked, cut at random places. Their results are compared with 64-bit sums. Nothing beyond
 * the operands is read, and no sum saturates, however extreme and deep.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/int8.h"
#include "reference/reference.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/cpu-levels.h"

static uint64_t seed = 77;

static size_t pick(size_t from, size_t to)
{
	return from + reference_random(&seed) % (to - from + 1);
}

/* Memory that ends at the start of an inaccessible page. */
struct guarded {
	void *data;
	void *map;
	size_t bytes, map_bytes;
};

enum fill { FILL_RANDOM, FILL_LEAST, FILL_MOST, FILL_ENDS };

static struct guarded guarded_new(size_t bytes, bool is_signed, enum fill fill)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t rounded = (bytes + page - 1) / page * page;
	struct guarded g = {.bytes = bytes, .map_bytes = rounded + page};
	const uint8_t least = is_signed ? 0x80 : 0, most = is_signed ? 0x7f : 0xff;
	uint8_t *data;

	g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(g.map != MAP_FAILED);
	assert_int_equal(mprotect((char *)g.map + rounded, page, PROT_NONE), 0);
	g.data = data = (uint8_t *)g.map + rounded - bytes;
	for (size_t i = 0; i < bytes; i++) {
		const uint8_t random = (uint8_t)(reference_random(&seed) >> 20);

		data[i] = fill == FILL_RANDOM  ? random
			  : fill == FILL_LEAST ? least
			  : fill == FILL_MOST  ? most
			  : random & 1         ? least
					       : most;
	}
	return g;
}

static void guarded_free(struct guarded *g)
{
	munmap(g->map, g->map_bytes);
}

static int64_t value(const void *of, size_t i, bool is_signed)
{
	return is_signed ? (int64_t)((const int8_t *)of)[i] : (int64_t)((const uint8_t *)of)[i];
}

static int64_t zero_at(const struct cpu_zeros *zeros, size_t i, bool is_signed)
{
	return zeros->of ? value(zeros->of, zeros->each ? i : 0, is_signed) : 0;
}

static uint8_t requantized(int64_t sum, float scale, const struct cpu_requantize *q)
{
	const int64_t zero = q->y_zero ? value(q->y_zero, 0, q->y_signed) : 0;
	const int64_t least = q->y_signed ? -128 : 0, most = q->y_signed ? 127 : 255;
	const float product = (float)(int32_t)(uint32_t)sum * scale;
	int64_t result;

	if (product > 1e6f)
		return (uint8_t)most;
	if (!(product >= -1e6f)) /* negative, or NaN */
		return (uint8_t)least;
	result = (int64_t)nearbyintf(product) + zero;
	return (uint8_t)(result < least ? least : result > most ? most : result);
}

static void each_level(void (*check)(const struct cpu_int8_kernels *kernels, void *workspace))
{
	void *workspace = aligned_alloc(CPU_WORKSPACE_ALIGN, CPU_WORKSPACE_BYTES);

	assert_non_null(workspace);
	memset(workspace, 0xa5, CPU_WORKSPACE_BYTES);
	for (int level = 0; level < CPU_INT8_COUNT; level++) {
		const struct cpu_int8_kernels *kernels = cpu_level_int8((enum cpu_int8_level)level);

		if (!kernels) {
			fprintf(stderr, "level %d is not here: not tested\n", level);
			continue;
		}
		assert_int_equal(kernels->level, level);
		check(kernels, workspace);
	}
	free(workspace);
}

/* A product with its operands. */
struct product {
	struct cpu_int8_gemm gemm;
	struct cpu_requantize requantize;
	struct guarded a, b, a_zero, b_zero, y_zero;
	float *scales; /* of a's rows, of b's columns, of y */
	uint8_t *want;
	size_t y_bytes;
};

static void product_init(struct product *p, size_t m, size_t n, size_t k, unsigned int variant,
			 enum fill a_fill, enum fill b_fill)
{
	struct cpu_int8_gemm *gemm = &p->gemm;

	*p = (struct product){0};
	gemm->m = m;
	gemm->n = n;
	gemm->k = gemm->a_rs = k;
	gemm->b_rs = gemm->y_rs = n;
	gemm->a_signed = variant & 1;
	gemm->b_signed = variant & 2;
	p->a = guarded_new(m * k, gemm->a_signed, a_fill);
	p->b = guarded_new(k * n, gemm->b_signed, b_fill);
	p->a_zero = guarded_new(m, gemm->a_signed, FILL_RANDOM);
	p->b_zero = guarded_new(n, gemm->b_signed, FILL_RANDOM);
	p->y_zero = guarded_new(1, false, FILL_RANDOM);
	gemm->a = p->a.data;
	gemm->b = p->b.data;
	if (variant & 4)
		gemm->a_zero = (struct cpu_zeros){p->a_zero.data, variant & 8};
	if (variant & 16)
		gemm->b_zero = (struct cpu_zeros){p->b_zero.data, variant & 32};
	p->scales = malloc((m + n + 1) * sizeof(float));
	assert_non_null(p->scales);
	reference_fill(p->scales, m + n + 1, pick(1, 999));
	for (size_t i = 0; i <= m + n; i++)
		p->scales[i] = fabsf(p->scales[i]) + 0.01f;
	p->scales[m + n] *= 100.0f * sqrtf((float)(k ? k : 1));
	p->y_bytes = m * n * 4;
	if (variant & 64) {
		p->requantize = (struct cpu_requantize){
			.a = {p->scales, variant & 128},
			.b = {p->scales + m, variant & 256},
			.y = p->scales + m + n,
			.y_zero = variant & 512 ? p->y_zero.data : NULL,
			.y_signed = variant & 1024,
		};
		gemm->requantize = &p->requantize;
		p->y_bytes = m * n;
	}

	p->want = malloc(p->y_bytes);
	assert_non_null(p->want);
	for (size_t i = 0; i < m; i++) {
		const int64_t a_zero = zero_at(&gemm->a_zero, i, gemm->a_signed);

		for (size_t j = 0; j < n; j++) {
			const int64_t b_zero = zero_at(&gemm->b_zero, j, gemm->b_signed);
			int64_t sum = 0;
			uint32_t wrapped;

			for (size_t q = 0; q < k; q++)
				sum += (value(gemm->a, i * k + q, gemm->a_signed) - a_zero) *
				       (value(gemm->b, q * n + j, gemm->b_signed) - b_zero);
			wrapped = (uint32_t)sum;
			if (gemm->requantize)
				p->want[i * n + j] = requantized(
					sum,
					p->requantize.a.of[p->requantize.a.each ? i : 0] *
						p->requantize.b.of[p->requantize.b.each ? j : 0] /
						p->requantize.y[0],
					&p->requantize);
			else
				memcpy(p->want + (i * n + j) * 4, &wrapped, 4);
		}
	}
}

static void product_deinit(struct product *p)
{
	guarded_free(&p->a);
	guarded_free(&p->b);
	guarded_free(&p->a_zero);
	guarded_free(&p->b_zero);
	guarded_free(&p->y_zero);
	free(p->scales);
	free(p->want);
}

static void product_check(const struct product *p, const struct cpu_int8_kernels *kernels,
			  void *workspace)
{
	struct cpu_int8_gemm gemm = p->gemm;
	const size_t nr = kernels->gemm_nr;
	void *packed = aligned_alloc(64, (kernels->pack_b_size(gemm.k, gemm.n) + 127) / 64 * 64);

	assert_non_null(packed);
	for (unsigned int form = 0; form < 4; form++) {
		struct guarded y = guarded_new(p->y_bytes, false, FILL_RANDOM);

		gemm.y = y.data;
		if (form == 2) {
			/* Pack the operand in two parts. */
			kernels->pack_b(&gemm, 0, 3, packed);
			kernels->pack_b(&gemm, 3, SIZE_MAX, packed);
			gemm.b_packed = packed;
			gemm.b = NULL;
		}
		if (form & 1) {
			/* Compute four tiles, cut at random places. */
			const size_t m = pick(0, gemm.m);
			const size_t n = pick(0, gemm.n / nr) * nr;
			const struct cpu_gemm_tile tiles[] = {{m, gemm.m, n, gemm.n},
							      {0, m, 0, n},
							      {m, gemm.m, 0, n},
							      {0, m, n, gemm.n}};

			for (unsigned int i = 0; i < 4; i++)
				kernels->gemm(&gemm, &tiles[i], workspace);
		} else {
			kernels->gemm(&gemm, &(struct cpu_gemm_tile){0, gemm.m, 0, gemm.n},
				      workspace);
		}
		if (memcmp(y.data, p->want, p->y_bytes)) {
			for (size_t i = 0; i < p->y_bytes; i++)
				if (((uint8_t *)y.data)[i] != p->want[i])
					fail_msg("%s, form %u, %zu x %zu x %zu: byte %zu is %u, "
						 "not %u",
						 kernels->name, form, gemm.m, gemm.k, gemm.n, i,
						 ((uint8_t *)y.data)[i], p->want[i]);
		}
		guarded_free(&y);
	}
	free(packed);
}

static void check_gemm(const struct cpu_int8_kernels *kernels, void *workspace)
{
	for (unsigned int round = 0; round < test_scaled(160); round++) {
		const size_t m = pick(1, 40), n = round % 5 ? pick(1, 90) : pick(160, 300);
		const size_t k = round % 7 ? pick(1, 70) : pick(1530, 1600);
		struct product p;

		product_init(&p, m, n, k, (unsigned int)pick(0, 2047), FILL_RANDOM, FILL_RANDOM);
		product_check(&p, kernels, workspace);
		product_deinit(&p);
	}
}

TEST(test_gemm__every_form)
{
	each_level(check_gemm);
}

/* Rows and columns beyond one block, and a sum over zero elements. */
static void check_large(const struct cpu_int8_kernels *kernels, void *workspace)
{
	static const size_t sizes[][3] = {{257, 33, 70},  {13, 1100, 40}, {300, 600, 5},
					  {25, 64, 3100}, {3, 5, 0},      {1, 1, 1}};

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned int variant = 0; variant < 2; variant++) {
			struct product p;

			product_init(&p, sizes[i][0], sizes[i][1], sizes[i][2],
				     variant ? 4 + 16 + 32 + 1 : 64 + 256 + 2 + 4, FILL_RANDOM,
				     FILL_RANDOM);
			product_check(&p, kernels, workspace);
			product_deinit(&p);
		}
	}
}

TEST(test_gemm__blocks)
{
	each_level(check_large);
}

/* The ends of all ranges against each other, with and without zero points, and deep. */
static void check_extremes(const struct cpu_int8_kernels *kernels, void *workspace)
{
	/* Variant 0 has no signs and zero points, variant 7 has all. */
	for (unsigned int variant = 0; variant < 8; variant += test_is_scaled_down() ? 7 : 1) {
		for (enum fill fill = FILL_LEAST; fill <= FILL_ENDS; fill++) {
			struct product p;

			product_init(&p, 3, 37, 4099, variant | (variant & 4) << 2, fill,
				     FILL_MOST);
			product_check(&p, kernels, workspace);
			product_deinit(&p);
			product_init(&p, 2, 18, 40001, variant, fill, FILL_LEAST);
			product_check(&p, kernels, workspace);
			product_deinit(&p);
			product_init(&p, 13, 19, 70, variant, fill, FILL_ENDS);
			product_check(&p, kernels, workspace);
			product_deinit(&p);
		}
	}
}

TEST(test_gemm__never_saturates)
{
	each_level(check_extremes);
}

/* ---- convolution ------------------------------------------------------------------------- */

/*
 * Add one tap's products to the sums of one channel. The zero point is already subtracted from @x.
 */
static void conv_tap(const struct cpu_window *w, const int16_t *x, int64_t tap, size_t r, size_t s,
		     int64_t *sums)
{
	for (size_t oy = 0; oy < w->out_height; oy++) {
		const size_t y = oy * w->stride[1] + r * w->dilation[1] - w->pad_begin[1];
		size_t at = s * w->dilation[2] - w->pad_begin[2];

		/* Unsigned wrap-around makes negative positions exceed the height and width. */
		for (size_t ox = 0; y < w->height && ox < w->out_width; ox++, at += w->stride[2])
			if (at < w->width)
				sums[oy * w->out_width + ox] += x[y * w->width + at] * tap;
	}
}

static void conv_reference(const struct cpu_int8_conv *conv, uint8_t *y)
{
	const struct cpu_window *w = &conv->window;
	const struct cpu_requantize *q = conv->requantize;
	const size_t in = w->channels / w->group, out = w->out_channels / w->group;
	const size_t n_pixels = w->out_height * w->out_width, n_plane = w->height * w->width;
	const size_t n_taps = w->kernel[1] * w->kernel[2], n_x = w->batch * w->channels * n_plane;
	const int64_t x_zero = zero_at(&conv->x_zero, 0, conv->x_signed);
	int64_t *sums = malloc(n_pixels * sizeof(*sums));
	int16_t *x = malloc(n_x * sizeof(*x));

	assert_true(sums && x);
	for (size_t i = 0; i < n_x; i++)
		x[i] = (int16_t)(value(w->x, i, conv->x_signed) - x_zero);
	for (size_t plane = 0; plane < w->batch * w->out_channels; plane++) {
		const size_t o = plane % w->out_channels, b = plane / w->out_channels;
		const int64_t zero = zero_at(&conv->weights_zero, o, conv->weights_signed);

		for (size_t p = 0; p < n_pixels; p++)
			sums[p] = conv->bias ? conv->bias[o] : 0;
		for (size_t i = 0; i < in * n_taps; i++)
			conv_tap(w, x + (b * w->channels + o / out * in + i / n_taps) * n_plane,
				 value(w->weights, o * in * n_taps + i, conv->weights_signed) -
					 zero,
				 i % n_taps / w->kernel[2], i % w->kernel[2], sums);
		for (size_t p = 0; p < n_pixels; p++) {
			const size_t at = plane * n_pixels + p;
			const uint32_t wrapped = (uint32_t)sums[p];

			if (q)
				y[at] = requantized(
					sums[p], q->b.of[0] * q->a.of[q->a.each ? o : 0] / q->y[0],
					q);
			else
				memcpy(y + at * 4, &wrapped, 4);
		}
	}
	free(sums);
	free(x);
}

static size_t conv_out(size_t in, size_t pads, size_t kernel, size_t dilation, size_t stride)
{
	const size_t reach = (kernel - 1) * dilation + 1;

	return in + pads < reach ? 0 : (in + pads - reach) / stride + 1;
}

/* Return a scale with which sums may overflow. */
static float odd_scale(void)
{
	static const float odd[] = {0.999f, 1.0f, -0.03f, -1.5f, 700.0f, 1e30f, INFINITY, NAN};

	return odd[pick(0, sizeof(odd) / sizeof(odd[0]) - 1)];
}

static void check_one_conv(const struct cpu_int8_kernels *kernels, void *workspace,
			   struct cpu_window window, unsigned int variant, enum fill fill)
{
	const size_t n_x = window.batch * window.channels * window.height * window.width;
	const size_t n_weights = window.out_channels * (window.channels / window.group) *
				 window.kernel[1] * window.kernel[2];
	const size_t n_y =
		window.batch * window.out_channels * window.out_height * window.out_width;
	struct guarded x = guarded_new(n_x, variant & 1, fill);
	struct guarded weights = guarded_new(n_weights, variant & 2, fill);
	struct guarded zeros = guarded_new(window.out_channels, variant & 1, fill);
	struct guarded bias = guarded_new(window.out_channels * 4, false, FILL_RANDOM);
	float *scales = malloc((window.out_channels + 2) * sizeof(float));
	const struct cpu_requantize requantize = {
		.a = {scales, variant & 64},
		.b = {scales + window.out_channels, false},
		.y = scales + window.out_channels + 1,
		.y_zero = variant & 128 ? zeros.data : NULL,
		.y_signed = variant & 256,
	};
	struct cpu_int8_conv conv = {
		.window = window,
		.x_signed = variant & 1,
		.weights_signed = variant & 2,
		.x_zero = {variant & 4 ? zeros.data : NULL, false},
		.weights_zero = {variant & 8 ? zeros.data : NULL, variant & 16},
		.bias = variant & 512 ? bias.data : NULL,
		.requantize = variant & 32 ? &requantize : NULL,
	};
	const size_t y_bytes = n_y * (conv.requantize ? 1 : 4);
	struct guarded want = guarded_new(y_bytes, false, FILL_LEAST);
	struct guarded got = guarded_new(y_bytes, false, FILL_RANDOM);
	void *packed = aligned_alloc(64, (kernels->pack_conv_size(&window) + 63) / 64 * 64);
	size_t units, cut, more;

	assert_true(scales && packed);
	for (size_t i = 0; i < window.out_channels; i++)
		((int32_t *)bias.data)[i] >>= 18;
	reference_fill(scales, window.out_channels + 2, pick(1, 999));
	for (size_t i = 0; i < window.out_channels + 2; i++)
		scales[i] = fabsf(scales[i]) + 0.01f;
	scales[window.out_channels + 1] *= 1000;
	for (size_t i = 0; variant & 1024 && i < window.out_channels; i += pick(1, 20))
		scales[i] = odd_scale();
	conv.window.x = x.data;
	conv.window.weights = weights.data;
	conv.window.weights_packed = packed;
	conv.window.y = want.data;
	conv_reference(&conv, want.data);
	conv.window.y = got.data;
	kernels->pack_conv(&conv, 0, SIZE_MAX, packed);
	units = cpu_int8_conv_units(&conv.window);
	cut = pick(0, units);
	more = pick(cut, units);
	kernels->conv(&conv, more, units, workspace);
	kernels->conv(&conv, cut, more, workspace);
	kernels->conv(&conv, 0, cut, workspace);
	for (size_t i = 0; i < y_bytes; i++)
		if (((uint8_t *)got.data)[i] != ((uint8_t *)want.data)[i])
			fail_msg("%s, variant %u, %zu channels to %zu, %zu groups, %zu x %zu, "
				 "kernel %zu x %zu: byte %zu is %u, not %u",
				 kernels->name, variant, window.channels, window.out_channels,
				 window.group, window.height, window.width, window.kernel[1],
				 window.kernel[2], i, ((uint8_t *)got.data)[i],
				 ((uint8_t *)want.data)[i]);
	free(packed);
	free(scales);
	guarded_free(&x);
	guarded_free(&weights);
	guarded_free(&zeros);
	guarded_free(&bias);
	guarded_free(&want);
	guarded_free(&got);
}

static void check_conv(const struct cpu_int8_kernels *kernels, void *workspace)
{
	for (unsigned int round = 0; round < test_scaled(120); round++) {
		struct cpu_window w = {
			.batch = pick(1, 2),
			.group = round % 3 ? 1 : pick(1, 3),
			.depth = 1,
			.height = pick(1, 18),
			.width = pick(1, 18),
			.out_depth = 1,
			.kernel = {1, pick(1, 3), pick(1, 5)},
			.stride = {1, pick(1, 2), pick(1, 3)},
			.dilation = {1, pick(1, 2), pick(1, 2)},
			.pad_begin = {0, pick(0, 2), pick(0, 2)},
		};

		w.channels = w.group * pick(1, round % 10 == 1 ? 130 : 7);
		w.out_channels = w.group * pick(1, round % 10 == 2 ? 1000 : 30);
		if (round % 4 == 0)
			w.channels = w.out_channels = w.group = pick(1, 9);
		if (round % 8 == 1)
			w.kernel[1] = w.kernel[2] = w.stride[1] = w.stride[2] = 1;
		if (round % 16 == 1)
			w.pad_begin[1] = w.pad_begin[2] = 0;
		w.out_height = conv_out(w.height, w.pad_begin[1] * 2, w.kernel[1], w.dilation[1],
					w.stride[1]);
		w.out_width = conv_out(w.width, w.pad_begin[2] * 2, w.kernel[2], w.dilation[2],
				       w.stride[2]);
		if (w.out_height == 0 || w.out_width == 0)
			continue;
		check_one_conv(kernels, workspace, w, (unsigned int)pick(0, 2047),
			       pick(0, 3) ? FILL_RANDOM : (enum fill)pick(FILL_LEAST, FILL_ENDS));
	}
}

TEST(test_conv__every_form)
{
	each_level(check_conv);
}

/* Whole register tiles of bytes, with one and with several blocks of the depth. */
static void check_conv_to_bytes(const struct cpu_int8_kernels *kernels, void *workspace)
{
	for (unsigned int round = 0; round < test_scaled(60); round++) {
		const size_t kernel = round % 4 == 3 ? 3 : 1, stride = kernel == 3 ? 2 : 1;
		struct cpu_window w = {
			.batch = pick(1, 2),
			.group = 1,
			.channels = pick(1, round % 8 == 0 ? 1200 : 90),
			.depth = 1,
			.height = pick(1, 16),
			.width = pick(8, 40),
			.out_channels = pick(1, 110),
			.out_depth = 1,
			.kernel = {1, kernel, kernel},
			.stride = {1, stride, stride},
			.dilation = {1, 1, 1},
			.pad_begin = {0, kernel / 2, kernel / 2},
		};
		unsigned int variant = (unsigned int)pick(0, 2047) | 32;

		/* Zero points of the weights select other tiles. */
		if (pick(0, 3))
			variant &= ~8u;
		w.out_height = conv_out(w.height, kernel / 2 * 2, kernel, 1, stride);
		w.out_width = conv_out(w.width, kernel / 2 * 2, kernel, 1, stride);
		check_one_conv(kernels, workspace, w, variant,
			       pick(0, 2) ? FILL_RANDOM : (enum fill)pick(FILL_LEAST, FILL_ENDS));
	}
}

TEST(test_conv__to_bytes)
{
	each_level(check_conv_to_bytes);
}

/*
 * Sums deep enough to compute output channels side by side, cut at random places: rows of all
 * widths, padded.
 */
static void check_conv_by_channels(const struct cpu_int8_kernels *kernels, void *workspace)
{
	unsigned int n_checked = 0, n_zero_pads = 0;

	while (n_checked < test_scaled(60) || n_zero_pads == 0) {
		const size_t group = pick(1, 8) / 7 + 1;
		struct cpu_window w = {
			.batch = pick(1, 2),
			.group = group,
			.channels = group * 4 * pick(1, 9),
			.depth = 1,
			.height = pick(1, 12),
			.width = pick(5, 47),
			.out_channels = group * (pick(0, 1) ? 16 * pick(1, 5) : pick(14, 150)),
			.out_depth = 1,
			.kernel = {1, pick(1, 5), pick(1, 5)},
			.stride = {1, pick(1, 3), 1},
			.dilation = {1, pick(1, 2), pick(1, 2)},
			.pad_begin = {0, pick(0, 3), pick(0, 3)},
		};
		const unsigned int variant = (unsigned int)pick(0, 2047);

		w.out_height = conv_out(w.height, w.pad_begin[1] * 2, w.kernel[1], w.dilation[1],
					w.stride[1]);
		w.out_width = conv_out(w.width, w.pad_begin[2] * 2, w.kernel[2], w.dilation[2], 1);
		if (w.out_height == 0 || w.out_width == 0 || !cpu_int8_conv_by_channels(&w))
			continue;
		check_one_conv(kernels, workspace, w, variant,
			       pick(0, 2) ? FILL_RANDOM : (enum fill)pick(FILL_LEAST, FILL_ENDS));
		n_zero_pads += w.pad_begin[1] > 0 && !(variant & 4);
		n_checked++;
	}
}

TEST(test_conv__by_channels)
{
	each_level(check_conv_by_channels);
}

/* Shapes of several blocks of pixels or channels, and taps too far apart for a slab. */
static void check_large_conv(const struct cpu_int8_kernels *kernels, void *workspace)
{
	static const struct {
		size_t channels, out_channels, group, height, width, kernel[2], stride, dilation[2],
			pad[2];
	} shapes[] = {
		{5, 13, 1, 2, 20000, {1, 3}, 1, {1, 9000}, {0, 17}},
		{3, 2, 1, 1, 60000, {1, 5}, 2, {1, 10000}, {0, 9999}},
		{2, 3, 1, 70000, 1, {5, 1}, 3, {16000, 1}, {5, 0}},
		{600, 3, 1, 20, 300, {1, 1}, 2, {1, 1}, {0, 0}},
		{70, 6, 1, 9, 700, {3, 3}, 1, {1, 1}, {1, 1}},
		{1, 9, 1, 30, 70, {3, 7}, 1, {1, 3}, {2, 5}},
		{3, 64, 1, 40, 41, {7, 7}, 2, {1, 1}, {3, 3}},
		{64, 110, 1, 14, 14, {3, 3}, 1, {1, 1}, {1, 1}},
		{20, 20, 20, 33, 57, {5, 5}, 1, {2, 1}, {4, 2}},
		{8, 24, 4, 25, 23, {3, 3}, 2, {1, 1}, {1, 0}},
		/* this row and the next ones: by channels */
		{252, 16, 1, 11, 300, {1, 2}, 1, {1, 1}, {0, 1}},
		{64, 16, 1, 5, 700, {1, 2}, 1, {1, 500}, {0, 0}},
		{4, 16, 1, 2, 8000, {5, 7}, 1, {1, 1}, {2, 3}},
		{4, 16, 1, 1, 16384, {2, 16}, 1, {1, 1}, {1, 0}},
	};

	for (unsigned int i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		struct cpu_window w = {
			.batch = 1,
			.channels = shapes[i].channels,
			.depth = 1,
			.height = shapes[i].height,
			.width = shapes[i].width,
			.out_channels = shapes[i].out_channels,
			.out_depth = 1,
			.kernel = {1, shapes[i].kernel[0], shapes[i].kernel[1]},
			.stride = {1, shapes[i].stride, shapes[i].stride},
			.dilation = {1, shapes[i].dilation[0], shapes[i].dilation[1]},
			.pad_begin = {0, shapes[i].pad[0], shapes[i].pad[1]},
			.group = shapes[i].group,
		};

		w.out_height = conv_out(w.height, w.pad_begin[1] * 2, w.kernel[1], w.dilation[1],
					w.stride[1]);
		w.out_width = conv_out(w.width, w.pad_begin[2] * 2, w.kernel[2], w.dilation[2],
				       w.stride[2]);
		assert_true(w.out_height > 0 && w.out_width > 0);
		if (!test_is_scaled_down())
			check_one_conv(kernels, workspace, w, (unsigned int)pick(0, 2047),
				       FILL_RANDOM);
		check_one_conv(kernels, workspace, w, (unsigned int)pick(0, 2047), FILL_ENDS);
	}
}

TEST(test_conv__blocks)
{
	each_level(check_large_conv);
}

/* ---- quantization ------------------------------------------------------------------------ */

static float odd_float(void)
{
	static const float odd[] = {0.0f,      -0.0f, 0.5f,   1.5f,  2.5f,   -0.5f,
				    -1.5f,     -2.5f, 1e-40f, 1e30f, -1e30f, INFINITY,
				    -INFINITY, NAN,   127.5f, 255.5f};

	return odd[pick(0, sizeof(odd) / sizeof(odd[0]) - 1)];
}

static void check_quantize(const struct cpu_int8_kernels *kernels, void *workspace)
{
	for (unsigned int round = 0; round < test_scaled(200); round++) {
		struct cpu_quantize args = {.outer = pick(1, 3),
					    .axis = pick(1, 7),
					    .inner = round % 20 ? pick(1, 50) : pick(8000, 20000),
					    .block = 1};
		const bool dequantize = round & 1;
		size_t n_blocks, n_scales, n, bytes, units, cut;
		struct guarded x, y, zero;
		float *scale;

		args.type = (enum cpu_quant_type)pick(0, dequantize ? 2 : 1);
		bytes = args.type == CPU_QUANT_S32 ? 4 : 1;
		switch (round / 2 % 4) {
		case 0: /* per tensor */
			n_scales = 1;
			break;
		case 1: /* per axis */
			n_scales = args.axis;
			args.scale_axis = 1;
			break;
		case 2: /* per last axis */
			n_scales = args.inner;
			args.scale_inner = 1;
			break;
		default:
			args.block = pick(1, args.axis);
			n_blocks = (args.axis + args.block - 1) / args.block;
			n_scales = args.outer * n_blocks * args.inner;
			args.scale_outer = n_blocks * args.inner;
			args.scale_axis = args.inner;
			args.scale_inner = 1;
			break;
		}
		n = args.outer * args.axis * args.inner;
		scale = malloc(n_scales * sizeof(float));
		assert_non_null(scale);
		for (size_t i = 0; i < n_scales; i++)
			scale[i] = (float)pick(1, 64) / 32.0f;
		zero = guarded_new(n_scales * bytes, false, FILL_RANDOM);
		x = guarded_new(n * (dequantize ? bytes : 4), false, FILL_RANDOM);
		y = guarded_new(n * (dequantize ? 4 : bytes), false, FILL_RANDOM);
		for (size_t i = 0; i < n && !dequantize; i++)
			((float *)x.data)[i] =
				pick(0, 3) ? (float)pick(0, 4000) / 16.0f - 125.0f : odd_float();
		args.x = x.data;
		args.y = y.data;
		args.scale = scale;
		args.zero = pick(0, 3) ? zero.data : NULL;
		units = cpu_quantize_units(&args);
		cut = pick(0, units);
		for (unsigned int part = 0; part < 2; part++)
			(dequantize ? kernels->dequantize
				    : kernels->quantize)(&args, part ? 0 : cut, part ? cut : units);
		for (size_t i = 0; i < n; i++) {
			const size_t o = i / args.inner / args.axis;
			const size_t a = i / args.inner % args.axis, j = i % args.inner;
			const size_t s = o * args.scale_outer + a / args.block * args.scale_axis +
					 j * args.scale_inner;
			const bool is_signed = args.type == CPU_QUANT_S8;
			int64_t z = 0;

			if (args.zero)
				z = bytes == 4 ? ((const int32_t *)args.zero)[s]
					       : value(args.zero, s, is_signed);
			if (dequantize) {
				const int64_t q = bytes == 4 ? ((const int32_t *)x.data)[i]
							     : value(x.data, i, is_signed);
				const float want = (float)(int32_t)(uint32_t)(q - z) * scale[s];

				assert_memory_equal(&((float *)y.data)[i], &want, 4);
			} else {
				const double least = is_signed ? -128 : 0;
				double v = nearbyintf(((const float *)x.data)[i] / scale[s]);

				v = !(v + (double)z > least)      ? least
				    : v + (double)z > least + 255 ? least + 255
								  : v + (double)z;
				assert_int_equal(value(y.data, i, is_signed), (int64_t)v);
			}
		}
		free(scale);
		guarded_free(&x);
		guarded_free(&y);
		guarded_free(&zero);
	}
}

TEST(test_quantize__every_form)
{
	each_level(check_quantize);
}

static void check_range(const struct cpu_int8_kernels *kernels, void *workspace)
{
	for (size_t n = 0; n < 70; n++) {
		struct guarded x = guarded_new(n * 4, false, FILL_RANDOM);
		float want[2] = {0, 0}, got[2];

		for (size_t i = 0; i < n; i++) {
			float *at = &((float *)x.data)[i];

			*at = pick(0, 3) ? (float)pick(0, 100) - 50.0f * (float)(n % 3)
					 : odd_float();
			want[0] = *at < want[0] ? *at : want[0];
			want[1] = *at > want[1] ? *at : want[1];
		}
		kernels->range(n, x.data, got);
		assert_true(got[0] == want[0] && got[1] == want[1]);
		guarded_free(&x);
	}
}

TEST(test_range__passes_over_nan)
{
	each_level(check_range);
}

TEST(test_best__within_a_level)
{
	if (HAS_EVERY_LEVEL)
		assert_int_equal(cpu_int8_best(CPU_SIMD_SSE2)->level, CPU_INT8_SSE2);
	assert_true(cpu_int8_best(CPU_SIMD_AVX2)->level <= CPU_INT8_AVX_VNNI);
	assert_ptr_equal(cpu_int8_best(CPU_SIMD_AUTO), cpu_int8_best(CPU_SIMD_AVX512));
	assert_null(cpu_int8_get(CPU_INT8_COUNT));
}
