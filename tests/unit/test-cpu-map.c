/* SPDX-License-Identifier: MIT */
/*
 * The CPU's elementwise kernels beyond functions of one float
 *
 * Binary operators, integers, bools, casts and Where are compared with plain definitions, at every
 * level and for every way of broadcasting an operand. Every split gives the same bits, and no byte
 * beyond the operands is accessed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/kernels.h"
#include "reference/reference.h"
#include "support/test.h"
#include "unit/cpu-levels.h"

static uint64_t seed = 815;

static size_t pick(size_t from, size_t to)
{
	return from + reference_random(&seed) % (to - from + 1);
}

static const size_t type_bytes[CPU_TYPE_COUNT] = {
	[CPU_F32] = 4, [CPU_F16] = 2,  [CPU_I32] = 4,  [CPU_I64] = 8, [CPU_I8] = 1,
	[CPU_U8] = 1,  [CPU_BOOL] = 1, [CPU_BF16] = 2, [CPU_F64] = 8,
};

/* Any element as a number: floats as double, integers exactly. */
union value {
	double f;
	int64_t i;
};

static float half_value(uint16_t half)
{
	const int exponent = half >> 10 & 31, mantissa = half & 1023;
	double value;

	if (exponent == 31)
		value = mantissa ? NAN : INFINITY;
	else
		value = ldexp(exponent ? mantissa + 1024 : mantissa,
			      (exponent ? exponent : 1) - 25);
	return (float)(half & 0x8000 ? -value : value);
}

/* Return the nearest float16 by trying all; of two, the one whose last bit is 0. */
static uint16_t half_bits(double value)
{
	uint16_t best = 0;

	if (isnan(value))
		return 0x7e00;
	for (uint16_t half = 0; half <= 0x7c00; half++) {
		const double top = half == 0x7c00 ? 65536 : (double)half_value(half);
		const double old = best == 0x7c00 ? 65536 : (double)half_value(best);
		const double x = fabs(value);

		if (fabs(x - top) < fabs(x - old) ||
		    (fabs(x - top) == fabs(x - old) && !(half & 1)))
			best = half;
	}
	return signbit(value) ? best | 0x8000 : best;
}

static float bfloat_value(uint16_t bfloat)
{
	const int exponent = bfloat >> 7 & 255, mantissa = bfloat & 127;
	double value;

	if (exponent == 255)
		value = mantissa ? NAN : INFINITY;
	else
		value = ldexp(exponent ? mantissa + 128 : mantissa,
			      (exponent ? exponent : 1) - 134);
	return (float)(bfloat & 0x8000 ? -value : value);
}

/* Return the nearest bfloat16; of two, the one whose last bit is 0. */
static uint16_t bfloat_bits(float value)
{
	const double x = fabs((double)value), beyond = ldexp(1, 128);
	unsigned int low = 0, high = 0x7f80;
	double under, over;

	if (isnan(value))
		return 0x7fc0;
	while (high - low > 1) {
		const unsigned int middle = (low + high) / 2;

		if ((double)bfloat_value((uint16_t)middle) <= x)
			low = middle;
		else
			high = middle;
	}
	under = x - (double)bfloat_value((uint16_t)low);
	over = (high == 0x7f80 ? beyond : (double)bfloat_value((uint16_t)high)) - x;
	if (isinf(value) || over < under || (over == under && low & 1))
		low = high;
	return (uint16_t)(signbit(value) ? low | 0x8000 : low);
}

static bool is_float(enum cpu_type type)
{
	return type == CPU_F32 || type == CPU_F64 || type == CPU_F16 || type == CPU_BF16;
}

static union value get(enum cpu_type type, const void *data, size_t i)
{
	const char *at = (const char *)data + i * type_bytes[type];
	union value value = {0};
	uint16_t half;
	float f;

	switch (type) {
	case CPU_F32:
		memcpy(&f, at, sizeof(f));
		value.f = (double)f;
		return value;
	case CPU_F64:
		memcpy(&value.f, at, sizeof(value.f));
		return value;
	case CPU_F16:
		memcpy(&half, at, sizeof(half));
		value.f = (double)half_value(half);
		return value;
	case CPU_BF16:
		memcpy(&half, at, sizeof(half));
		value.f = (double)bfloat_value(half);
		return value;
	case CPU_I32:
		value.i = *(const int32_t *)at;
		return value;
	case CPU_I64:
		value.i = *(const int64_t *)at;
		return value;
	case CPU_I8:
		value.i = *(const int8_t *)at;
		return value;
	case CPU_BOOL:
		value.i = *(const uint8_t *)at != 0;
		return value;
	default:
		value.i = *(const uint8_t *)at;
		return value;
	}
}

/* Return the stored value of an integer that may overflow. */
static int64_t wrapped(enum cpu_type type, int64_t value)
{
	switch (type) {
	case CPU_I32:
		return (int32_t)(uint32_t)value;
	case CPU_I8:
		return (int8_t)(uint8_t)value;
	case CPU_U8:
	case CPU_BOOL:
		return (uint8_t)value;
	default:
		return value;
	}
}

/* Memory that ends at the start of an inaccessible page. */
struct guarded {
	void *data;
	void *map;
	size_t map_bytes;
};

static struct guarded guarded_new(size_t bytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t rounded = (bytes + page - 1) / page * page;
	struct guarded g = {.map_bytes = rounded + page};

	g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(g.map != MAP_FAILED);
	assert_int_equal(mprotect((char *)g.map + rounded, page, PROT_NONE), 0);
	g.data = (char *)g.map + rounded - bytes;
	return g;
}

static void guarded_free(struct guarded *g)
{
	munmap(g->map, g->map_bytes);
}

/* Return a random double, or one at or next to the middle between two floats or two float16s. */
static double pick_double(float f)
{
	static const double doubles[] = {1e300,
					 -1e300,
					 1e-300,
					 -0x1p63,
					 0x1p63,
					 0x1.fffffffffffffp62,
					 0x1.fffffcp30,
					 0x1.fffffffcp30,
					 0x1.0000000000001p31,
					 -0x1.00000001p7,
					 255.99999999999,
					 0x1.ffdfffffffffp15,
					 3.4028235677973366e38};
	const size_t which = pick(0, 99), bit = pick(0, 1) ? 28 : 41;
	double d = (double)f;
	uint64_t bits;

	if (which < sizeof(doubles) / sizeof(doubles[0]))
		return doubles[which];
	memcpy(&bits, &d, sizeof(bits));
	if (which < 70 && isfinite(d) && d != 0)
		bits = (bits >> bit << bit) + ((uint64_t)1 << bit) - 1 + pick(0, 2);
	memcpy(&d, &bits, sizeof(d));
	return d;
}

static void fill(enum cpu_type type, void *data, size_t n)
{
	static const float floats[] = {0,
				       -0.0f,
				       1,
				       -1,
				       2,
				       -2,
				       0.5f,
				       INFINITY,
				       -INFINITY,
				       NAN,
				       1e30f,
				       -1e30f,
				       1e-30f,
				       3,
				       -3,
				       7.5f,
				       -7.5f,
				       65504,
				       65519.9f,
				       65520,
				       128,
				       -129,
				       255.5f,
				       2147483648.0f,
				       -2147483648.0f,
				       1e19f,
				       -9.3e18f,
				       3e-8f,
				       6e-8f,
				       2049,
				       -4099};
	static const int64_t integers[] = {
		0,    1,   -1,  2,   -2,   3,  -3,        7,         8,         127,      128,
		-128, 255, 256, 300, -300, 65, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};

	for (size_t i = 0; i < n; i++) {
		char *at = (char *)data + i * type_bytes[type];
		const size_t which = pick(0, 99);
		float f = which < sizeof(floats) / sizeof(floats[0])
				  ? floats[which]
				  : ((float)pick(0, 20000) - 10000) / 100;
		int64_t integer = which < sizeof(integers) / sizeof(integers[0])
					  ? integers[which]
					  : (int64_t)reference_random(&seed) >> pick(0, 63);
		uint16_t half = (uint16_t)pick(0, 0xffff);

		if (type == CPU_BOOL)
			integer = which < 40 ? 0 : which < 95 ? 1 : 2;
		if (type == CPU_F32)
			memcpy(at, &f, sizeof(f));
		else if (type == CPU_F64)
			memcpy(at, &(double){pick_double(f)}, sizeof(double));
		else if (type == CPU_F16 || type == CPU_BF16)
			memcpy(at, &half, sizeof(half));
		else
			memcpy(at, &integer, type_bytes[type]);
	}
}

struct map_case {
	enum cpu_map_op op;
	const char *name;
	bool bools; /* gives bools */
	double (*floats)(double x, double y);
	int64_t (*integers)(int64_t x, int64_t y);
};

#define FLOATS(name, expression)                   \
	static double f_##name(double x, double y) \
	{                                          \
		return (expression);               \
	}
#define INTEGERS(name, expression)                    \
	static int64_t i_##name(int64_t x, int64_t y) \
	{                                             \
		return (int64_t)(expression);         \
	}

static int64_t i_power(int64_t x, int64_t y)
{
	uint64_t result = 1;

	if (y < 0)
		return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
	/* Exponentiation by squaring, modulo 2^64. */
	for (uint64_t n = (uint64_t)y, base = (uint64_t)x; n > 0; n /= 2, base *= base)
		result *= n % 2 ? base : 1;
	return (int64_t)result;
}

static int64_t i_modulus(int64_t x, int64_t y)
{
	int64_t rest;

	if (y == 0 || y == -1)
		return 0;
	rest = x % y;
	return rest && (rest ^ y) < 0 ? rest + y : rest;
}

FLOATS(add, x + y)
FLOATS(sub, x - y)
FLOATS(mul, x *y)
FLOATS(div, x / y)
FLOATS(min, isnan(x) || isnan(y) ? NAN : fmin(x, y))
FLOATS(max, isnan(x) || isnan(y) ? NAN : fmax(x, y))
FLOATS(prelu, x < 0 ? x * y : x)
FLOATS(fmod, fmod(x, y))
FLOATS(pow, pow(x, y))
FLOATS(equal, x == y)
FLOATS(less, x < y)
FLOATS(less_equal, x <= y)
FLOATS(greater, x > y)
FLOATS(greater_equal, x >= y)
FLOATS(is_nan, isnan(x))
FLOATS(is_inf, isinf(x) != 0)

INTEGERS(abs, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)
INTEGERS(neg, 0 - (uint64_t)x)
INTEGERS(sign, (x > 0) - (x < 0))
INTEGERS(relu, x < 0 ? 0 : x)
INTEGERS(not, !x)
INTEGERS(bitwise_not, ~x)
INTEGERS(add, (uint64_t)x + (uint64_t)y)
INTEGERS(sub, (uint64_t)x - (uint64_t)y)
INTEGERS(mul, (uint64_t)x *(uint64_t)y)
INTEGERS(div, y == 0 ? 0 : y == -1 ? 0 - (uint64_t)x : (uint64_t)(x / y))
INTEGERS(fmod, y == 0 || y == -1 ? 0 : x % y)
INTEGERS(min, x < y ? x : y)
INTEGERS(max, x > y ? x : y)
INTEGERS(prelu, x < 0 ? (uint64_t)x * (uint64_t)y : (uint64_t)x)
INTEGERS(equal, x == y)
INTEGERS(less, x < y)
INTEGERS(less_equal, x <= y)
INTEGERS(greater, x > y)
INTEGERS(greater_equal, x >= y)
INTEGERS(and, x &&y)
INTEGERS(or, x || y)
INTEGERS(xor, !x != !y)
INTEGERS(bitwise_and, x &y)
INTEGERS(bitwise_or, x | y)
INTEGERS(bitwise_xor, x ^ y)
INTEGERS(shift_left, y < 8 ? x << y : 0)
INTEGERS(shift_right, y < 8 ? x >> y : 0)

static const struct map_case cases[] = {
	{CPU_MAP_ABS, "abs", false, NULL, i_abs},
	{CPU_MAP_NEG, "neg", false, NULL, i_neg},
	{CPU_MAP_SIGN, "sign", false, NULL, i_sign},
	{CPU_MAP_RELU, "relu", false, NULL, i_relu},
	{CPU_MAP_NOT, "not", true, NULL, i_not},
	{CPU_MAP_BITWISE_NOT, "bitwise_not", false, NULL, i_bitwise_not},
	{CPU_MAP_IS_NAN, "is_nan", true, f_is_nan, NULL},
	{CPU_MAP_IS_INF, "is_inf", true, f_is_inf, NULL},
	{CPU_MAP_ADD, "add", false, f_add, i_add},
	{CPU_MAP_SUB, "sub", false, f_sub, i_sub},
	{CPU_MAP_MUL, "mul", false, f_mul, i_mul},
	{CPU_MAP_DIV, "div", false, f_div, i_div},
	{CPU_MAP_POW, "pow", false, f_pow, i_power},
	{CPU_MAP_MOD, "mod", false, NULL, i_modulus},
	{CPU_MAP_FMOD, "fmod", false, f_fmod, i_fmod},
	{CPU_MAP_MIN, "min", false, f_min, i_min},
	{CPU_MAP_MAX, "max", false, f_max, i_max},
	{CPU_MAP_PRELU, "prelu", false, f_prelu, i_prelu},
	{CPU_MAP_EQUAL, "equal", true, f_equal, i_equal},
	{CPU_MAP_LESS, "less", true, f_less, i_less},
	{CPU_MAP_LESS_OR_EQUAL, "less_equal", true, f_less_equal, i_less_equal},
	{CPU_MAP_GREATER, "greater", true, f_greater, i_greater},
	{CPU_MAP_GREATER_OR_EQUAL, "greater_equal", true, f_greater_equal, i_greater_equal},
	{CPU_MAP_AND, "and", true, NULL, i_and},
	{CPU_MAP_OR, "or", true, NULL, i_or},
	{CPU_MAP_XOR, "xor", true, NULL, i_xor},
	{CPU_MAP_BITWISE_AND, "bitwise_and", false, NULL, i_bitwise_and},
	{CPU_MAP_BITWISE_OR, "bitwise_or", false, NULL, i_bitwise_or},
	{CPU_MAP_BITWISE_XOR, "bitwise_xor", false, NULL, i_bitwise_xor},
	{CPU_MAP_SHIFT_LEFT, "shift_left", false, NULL, i_shift_left},
	{CPU_MAP_SHIFT_RIGHT, "shift_right", false, NULL, i_shift_right},
};

/* Return true if @got is @want within @ulps, in float64. */
static bool double_is(double got, double want, double ulps)
{
	if (isnan(want))
		return isnan(got);
	return got == want || fabs(got - want) <= ulps * 0x1p-52 * fabs(want);
}

/* Return true if @got is @want within @ulps: a power may be rounded differently from the double. */
static bool float_is(float got, double want, double ulps)
{
	const float rounded = (float)want;

	if (isnan(want))
		return isnan(got);
	return got == rounded || fabs((double)got - want) <= ulps * 0x1p-23 * fabs(want);
}

static void check_case(const struct cpu_kernels *kernels, const struct map_case *test,
		       enum cpu_type type, size_t n, unsigned int steps)
{
	const enum cpu_type out_type = test->bools ? CPU_BOOL : type;
	cpu_map_fn *kernel = kernels->map[type][test->op];
	struct guarded x = guarded_new((steps & 1 ? n : 1) * type_bytes[type]);
	struct guarded y = guarded_new((steps & 2 ? n : 1) * type_bytes[type]);
	struct guarded to = guarded_new(n * type_bytes[out_type]);
	struct guarded again = guarded_new(n * type_bytes[out_type]);
	struct cpu_map args = {
		.in = {x.data, y.data},
		.out = to.data,
		.step = {steps & 1, steps >> 1 & 1},
		.i = {3},
	};

	fill(type, x.data, steps & 1 ? n : 1);
	fill(type, y.data, steps & 2 ? n : 1);
	if (test->op == CPU_MAP_POW && !(steps & 2) && type == CPU_F32 && n % 3 < 2)
		*(float *)y.data = n % 3 ? 2 : 0.5f;
	if (test->op == CPU_MAP_POW && !(steps & 2) && type == CPU_F64 && n % 3 < 2)
		*(double *)y.data = n % 3 ? 2 : 0.5;
	kernel(&args, n);
	for (size_t i = 0; i < n; i++) {
		const union value a = get(type, x.data, steps & 1 ? i : 0);
		const union value b = get(type, y.data, steps & 2 ? i : 0);
		const union value got = get(out_type, to.data, i);
		bool right;

		if (!is_float(type))
			right = got.i == wrapped(out_type, test->integers(a.i, b.i));
		else if (test->bools)
			right = got.i == (int64_t)test->floats(a.f, b.f);
		else if (type == CPU_F64)
			right = double_is(got.f, test->floats(a.f, b.f),
					  test->op == CPU_MAP_POW ? 1 : 0);
		else
			right = float_is((float)got.f, test->floats(a.f, b.f),
					 test->op == CPU_MAP_POW ? 0.52 : 0);
		if (!right)
			fail_msg("%s: %s, type %d: (%g %lld, %g %lld) gives %g %lld", kernels->name,
				 test->name, type, a.f, (long long)a.i, b.f, (long long)b.i, got.f,
				 (long long)got.i);
	}
	for (size_t i = 0, some; i < n; i += some) {
		some = pick(1, n - i);
		args.in[0] = (char *)x.data + (steps & 1 ? i : 0) * type_bytes[type];
		args.in[1] = (char *)y.data + (steps & 2 ? i : 0) * type_bytes[type];
		args.out = (char *)again.data + i * type_bytes[out_type];
		kernel(&args, some);
	}
	assert_memory_equal(again.data, to.data, n * type_bytes[out_type]);
	if (!test->bools && steps & 1) {
		args.in[0] = x.data;
		args.in[1] = y.data;
		args.out = x.data;
		kernel(&args, n);
		assert_memory_equal(x.data, to.data, n * type_bytes[type]);
	}
	guarded_free(&x);
	guarded_free(&y);
	guarded_free(&to);
	guarded_free(&again);
}

static void for_each_level(void (*check)(const struct cpu_kernels *kernels))
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		const struct cpu_kernels *kernels = cpu_level((enum cpu_simd)level);

		if (kernels)
			check(kernels);
	}
}

static void check_binary(const struct cpu_kernels *kernels)
{
	static const size_t sizes[] = {1, 2, 3, 7, 16, 31, 64, 67, 131, 400};

	for (unsigned int type = 0; type < CPU_TYPE_COUNT; type++) {
		for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
			const bool unary = cases[c].op < CPU_MAP_N_UNARY;

			if (!kernels->map[type] || !kernels->map[type][cases[c].op] ||
			    !(is_float((enum cpu_type)type) ? (void *)cases[c].floats
							    : (void *)cases[c].integers))
				continue;
			for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
				for (unsigned int steps = unary ? 3 : 1; steps < 4; steps++)
					check_case(kernels, &cases[c], (enum cpu_type)type,
						   sizes[s], steps);
			}
		}
	}
}

TEST(test_map__binary)
{
	for_each_level(check_binary);
}

/* Every operator has a kernel for each type that ONNX allows, and this file has a case for it. */
TEST(test_map__complete)
{
	const struct cpu_kernels *kernels = cpu_kernels_get(CPU_SIMD_SSE2);
	static const enum cpu_type integers[] = {CPU_I32, CPU_I64, CPU_I8, CPU_U8};

	for (unsigned int op = 0; op < CPU_MAP_COUNT; op++) {
		bool found = false;

		for (unsigned int type = 0; type < CPU_TYPE_COUNT; type++)
			found |= kernels->map[type] && kernels->map[type][op];
		assert_true(found);
		assert_int_equal(!kernels->map[CPU_F64][op], !kernels->map[CPU_F32][op]);
	}
	for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++) {
		for (unsigned int op = CPU_MAP_ADD; op <= CPU_MAP_BITWISE_XOR; op++) {
			if (op == CPU_MAP_POW || op == CPU_MAP_PRELU ||
			    (op >= CPU_MAP_AND && op <= CPU_MAP_XOR))
				continue;
			assert_non_null(kernels->map[integers[i]][op]);
		}
	}
}

static void check_clip(const struct cpu_kernels *kernels)
{
	for (unsigned int type = CPU_I32; type <= CPU_U8; type++) {
		int64_t x[70] = {0}, y[70];
		const struct cpu_map args = {
			.in = {x}, .out = y, .step = {1}, .i = {type == CPU_U8 ? 5 : -5, 100}};

		fill((enum cpu_type)type, x, 70);
		kernels->map[type][CPU_MAP_CLIP](&args, 70);
		for (size_t i = 0; i < 70; i++) {
			int64_t want = get((enum cpu_type)type, x, i).i;

			want = want < args.i[0] ? args.i[0] : want;
			want = want > args.i[1] ? args.i[1] : want;
			assert_int_equal(get((enum cpu_type)type, y, i).i, want);
		}
	}
}

TEST(test_map__clip_integers)
{
	for_each_level(check_clip);
}

/* The remainder is exact even if the quotient overflows a float. */
static void check_remainder(const struct cpu_kernels *kernels)
{
	for (unsigned int round = 0; round < 3000; round++) {
		float x[5], y[5], got[5];

		for (unsigned int i = 0; i < 5; i++) {
			x[i] = ldexpf((float)pick(1, 1 << 24), (int)pick(0, 200) - 100);
			y[i] = ldexpf((float)pick(1, 1 << 24), (int)pick(0, 200) - 100);
			if (round & 1)
				x[i] = -x[i];
		}
		kernels->map[CPU_F32][CPU_MAP_FMOD](
			&(struct cpu_map){.in = {x, y}, .out = got, .step = {1, 1}}, 5);
		for (unsigned int i = 0; i < 5; i++) {
			if (got[i] != fmodf(x[i], y[i]))
				fail_msg("%s: %a by %a leaves %a, not %a", kernels->name,
					 (double)x[i], (double)y[i], (double)got[i],
					 (double)fmodf(x[i], y[i]));
		}
	}
}

TEST(test_map__remainder_of_floats)
{
	for_each_level(check_remainder);
}

/* Return the result of a cast of one element, as map.h defines it. */
static union value cast_value(enum cpu_type from, enum cpu_type to, union value x)
{
	static const double ends[CPU_TYPE_COUNT][2] = {
		[CPU_I32] = {-0x1p31, 0x1p31},
		[CPU_I64] = {-0x1p63, 0x1p63},
		[CPU_I8] = {-128, 128},
		[CPU_U8] = {0, 256},
	};
	static const int64_t limits[CPU_TYPE_COUNT][2] = {
		[CPU_I32] = {INT32_MIN, INT32_MAX},
		[CPU_I64] = {INT64_MIN, INT64_MAX},
		[CPU_I8] = {INT8_MIN, INT8_MAX},
		[CPU_U8] = {0, UINT8_MAX},
	};
	union value y;

	if (to == CPU_BOOL)
		y.i = is_float(from) ? x.f != 0 : x.i != 0;
	else if (is_float(to))
		y.f = is_float(from) ? x.f : to == CPU_F64 ? (double)x.i : (double)(float)x.i;
	else if (!is_float(from))
		y.i = wrapped(to, x.i);
	else if (isnan(x.f))
		y.i = 0;
	else if (x.f >= ends[to][1])
		y.i = limits[to][1];
	else if (x.f < ends[to][0])
		y.i = limits[to][0];
	else
		y.i = (int64_t)x.f;
	if (to == CPU_F16)
		y.f = (double)half_value(half_bits(y.f));
	if (to == CPU_F32)
		y.f = (double)(float)y.f;
	if (to == CPU_BF16)
		y.f = (double)bfloat_value(bfloat_bits((float)y.f));
	return y;
}

static void check_casts(const struct cpu_kernels *kernels)
{
	static const size_t sizes[] = {1, 3, 17, 64, 71};

	for (unsigned int from = 0; from < CPU_TYPE_COUNT; from++) {
		for (unsigned int to = 0; to < CPU_TYPE_COUNT; to++) {
			for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
				const size_t n = sizes[s];
				struct guarded x = guarded_new(n * type_bytes[from]);
				struct guarded y = guarded_new(n * type_bytes[to]);

				fill((enum cpu_type)from, x.data, n);
				kernels->cast[from][to](
					&(struct cpu_map){.in = {x.data}, .out = y.data}, n);
				for (size_t i = 0; i < n; i++) {
					const union value a = get((enum cpu_type)from, x.data, i);
					const union value want = cast_value((enum cpu_type)from,
									    (enum cpu_type)to, a);
					const union value got = get((enum cpu_type)to, y.data, i);

					if (is_float((enum cpu_type)to)
						    ? !(got.f == want.f ||
							(isnan(got.f) && isnan(want.f)))
						    : got.i != want.i)
						fail_msg("%s: %u to %u: %g %lld gives %g %lld, not "
							 "%g %lld",
							 kernels->name, from, to, a.f,
							 (long long)a.i, got.f, (long long)got.i,
							 want.f, (long long)want.i);
				}
				guarded_free(&x);
				guarded_free(&y);
			}
		}
	}
}

TEST(test_map__casts)
{
	for_each_level(check_casts);
}

/* All float16s, also with denormals flushed, and ties on conversion back. */
static void check_halves(const struct cpu_kernels *kernels)
{
	enum { N = 65536 };
	uint16_t *half = reference_alloc(N * sizeof(*half)),
		 *back = reference_alloc(N * sizeof(*back));
	float *value = reference_alloc(N * sizeof(*value));

	for (unsigned int i = 0; i < N; i++)
		half[i] = (uint16_t)i;
	kernels->cast[CPU_F16][CPU_F32](&(struct cpu_map){.in = {half}, .out = value}, N);
	kernels->cast[CPU_F32][CPU_F16](&(struct cpu_map){.in = {value}, .out = back}, N);
	for (unsigned int i = 0; i < N; i++) {
		const float want = half_value(half[i]);

		assert_true(isnan(want) ? isnan(value[i]) : memcmp(&want, &value[i], 4) == 0);
		assert_true(isnan(want) ? (back[i] & 0x7fff) > 0x7c00 : back[i] == half[i]);
	}
	for (unsigned int i = 0; i + 1 < 0x7c00; i++)
		value[i] = (half_value((uint16_t)i) + half_value((uint16_t)(i + 1))) / 2;
	kernels->cast[CPU_F32][CPU_F16](&(struct cpu_map){.in = {value}, .out = back}, 0x7bff);
	for (unsigned int i = 0; i + 1 < 0x7c00; i++)
		assert_int_equal(back[i], i & 1 ? i + 1 : i);
	free(half);
	free(back);
	free(value);
}

TEST(test_map__all_halves)
{
	for_each_level(check_halves);
}

TEST(test_map__all_halves_with_denormals_flushed)
{
	cpu_flush_denormals();
	for_each_level(check_halves);
}

/* Return the bfloat16 NaN with the sign and the top of the payload, made quiet. */
static uint16_t quiet(uint32_t bits)
{
	return (uint16_t)(bits >> 16 | 0x40);
}

/* All bfloat16s, the middles between them and their neighbours, also of NaNs. */
static void check_bfloats(const struct cpu_kernels *kernels)
{
	enum { N = 65536 };
	uint16_t *bfloat = reference_alloc(N * sizeof(*bfloat)),
		 *back = reference_alloc(N * sizeof(*back));
	uint32_t *bits = reference_alloc(N * sizeof(*bits));

	for (unsigned int i = 0; i < N; i++)
		bfloat[i] = (uint16_t)i;
	kernels->cast[CPU_BF16][CPU_F32](&(struct cpu_map){.in = {bfloat}, .out = bits}, N);
	kernels->cast[CPU_F32][CPU_BF16](&(struct cpu_map){.in = {bits}, .out = back}, N);
	for (unsigned int i = 0; i < N; i++) {
		assert_int_equal(bits[i], i << 16);
		assert_int_equal(back[i], (i & 0x7fff) > 0x7f80 ? quiet(i << 16) : i);
	}
	for (unsigned int beside = 0; beside < 3; beside++) {
		for (unsigned int i = 0; i < N; i++)
			bits[i] = i << 16 | (0x7fff + beside);
		kernels->cast[CPU_F32][CPU_BF16](&(struct cpu_map){.in = {bits}, .out = back}, N);
		for (unsigned int i = 0; i < N; i++) {
			const bool is_up = beside == 2 || (beside == 1 && i & 1);

			assert_int_equal(back[i],
					 (i & 0x7fff) >= 0x7f80 ? quiet(bits[i]) : i + is_up);
		}
	}
	free(bfloat);
	free(back);
	free(bits);
}

TEST(test_map__all_bfloats)
{
	for_each_level(check_bfloats);
}

TEST(test_map__all_bfloats_with_denormals_flushed)
{
	cpu_flush_denormals();
	for_each_level(check_bfloats);
}

static void check_where(const struct cpu_kernels *kernels)
{
	for (unsigned int size = 0; size < 4; size++) {
		for (unsigned int steps = 1; steps < 8; steps++) {
			const size_t bytes = (size_t)1 << size, n = pick(1, 90);
			struct guarded c = guarded_new(steps & 1 ? n : 1);
			struct guarded x = guarded_new((steps & 2 ? n : 1) * bytes);
			struct guarded y = guarded_new((steps & 4 ? n : 1) * bytes);
			struct guarded to = guarded_new(n * bytes);

			fill(CPU_BOOL, c.data, steps & 1 ? n : 1);
			fill(CPU_U8, x.data, (steps & 2 ? n : 1) * bytes);
			fill(CPU_U8, y.data, (steps & 4 ? n : 1) * bytes);
			kernels->where[size](
				&(struct cpu_map){
					.in = {c.data, x.data, y.data},
					.out = to.data,
					.step = {steps & 1, steps >> 1 & 1, steps >> 2},
				},
				n);
			for (size_t i = 0; i < n; i++) {
				const char *want =
					((const char *)c.data)[steps & 1 ? i : 0]
						? (const char *)x.data + (steps & 2 ? i : 0) * bytes
						: (const char *)y.data +
							  (steps & 4 ? i : 0) * bytes;

				assert_memory_equal((const char *)to.data + i * bytes, want, bytes);
			}
			guarded_free(&c);
			guarded_free(&x);
			guarded_free(&y);
			guarded_free(&to);
		}
	}
}

TEST(test_map__where)
{
	for_each_level(check_where);
}
