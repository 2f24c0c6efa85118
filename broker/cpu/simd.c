/* SPDX-License-Identifier: MIT */
/*
 * Selection of the kernels that this processor can run, and the floating-point mode that kernels
 * expect.
 */
#include "cpu/int8.h"
#include "cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>

extern const struct cpu_kernels cpu_kernels_sse2;
extern const struct cpu_kernels cpu_kernels_avx2;
extern const struct cpu_kernels cpu_kernels_avx512;

/*
 * Not every compiler knows F16C and AVX-VNNI by name. AVX2's operating system support covers both.
 */
static bool has_f16c(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx_vnni(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

const struct cpu_kernels *cpu_kernels_get(enum cpu_simd level)
{
	__builtin_cpu_init();
	const bool avx2 =
		__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
	const bool avx512 =
		avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");

	switch (level) {
	case CPU_SIMD_AUTO:
		if (avx512)
			return &cpu_kernels_avx512;
		return avx2 ? &cpu_kernels_avx2 : &cpu_kernels_sse2;
	case CPU_SIMD_SSE2:
		return &cpu_kernels_sse2;
	case CPU_SIMD_AVX2:
		return avx2 ? &cpu_kernels_avx2 : NULL;
	case CPU_SIMD_AVX512:
		return avx512 ? &cpu_kernels_avx512 : NULL;
	case CPU_SIMD_COUNT:
		break;
	}
	return NULL;
}

extern const struct cpu_int8_kernels cpu_int8_kernels_sse2;
extern const struct cpu_int8_kernels cpu_int8_kernels_avx2;
extern const struct cpu_int8_kernels cpu_int8_kernels_avx_vnni;
extern const struct cpu_int8_kernels cpu_int8_kernels_avx512;
extern const struct cpu_int8_kernels cpu_int8_kernels_avx512_vnni;

const struct cpu_int8_kernels *cpu_int8_get(enum cpu_int8_level level)
{
	const bool avx2 = cpu_kernels_get(CPU_SIMD_AVX2), avx512 = cpu_kernels_get(CPU_SIMD_AVX512);

	switch (level) {
	case CPU_INT8_SSE2:
		return &cpu_int8_kernels_sse2;
	case CPU_INT8_AVX2:
		return avx2 ? &cpu_int8_kernels_avx2 : NULL;
	case CPU_INT8_AVX_VNNI:
		return avx2 && has_avx_vnni() ? &cpu_int8_kernels_avx_vnni : NULL;
	case CPU_INT8_AVX512:
		return avx512 ? &cpu_int8_kernels_avx512 : NULL;
	case CPU_INT8_AVX512_VNNI:
		return avx512 && __builtin_cpu_supports("avx512vnni")
			       ? &cpu_int8_kernels_avx512_vnni
			       : NULL;
	case CPU_INT8_COUNT:
		break;
	}
	return NULL;
}

void cpu_flush_denormals(void)
{
	/* MXCSR bit 15 flushes denormal results to zero, bit 6 treats denormal operands as zero. */
	_mm_setcsr(_mm_getcsr() | 1u << 15 | 1u << 6);
}
#else

extern const struct cpu_kernels cpu_kernels_generic;

const struct cpu_kernels *cpu_kernels_get(enum cpu_simd level)
{
	return level == CPU_SIMD_AUTO || level == CPU_SIMD_SSE2 ? &cpu_kernels_generic : NULL;
}

extern const struct cpu_int8_kernels cpu_int8_kernels_generic;

const struct cpu_int8_kernels *cpu_int8_get(enum cpu_int8_level level)
{
	return level == CPU_INT8_SSE2 ? &cpu_int8_kernels_generic : NULL;
}

void cpu_flush_denormals(void)
{
}
#endif

const struct cpu_int8_kernels *cpu_int8_best(enum cpu_simd within)
{
	static const enum cpu_int8_level last[CPU_SIMD_COUNT] = {
		[CPU_SIMD_AUTO] = CPU_INT8_AVX512_VNNI,
		[CPU_SIMD_SSE2] = CPU_INT8_SSE2,
		[CPU_SIMD_AVX2] = CPU_INT8_AVX_VNNI,
		[CPU_SIMD_AVX512] = CPU_INT8_AVX512_VNNI,
	};

	for (int level = last[within]; level > CPU_INT8_SSE2; level--) {
		const struct cpu_int8_kernels *kernels = cpu_int8_get((enum cpu_int8_level)level);

		if (kernels)
			return kernels;
	}
	return cpu_int8_get(CPU_INT8_SSE2);
}
