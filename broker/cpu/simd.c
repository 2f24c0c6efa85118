/* SPDX-License-Identifier: MIT */
/* Which kernels this processor can run, and the floating-point mode that they expect. */
#include "cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

extern const struct cpu_kernels cpu_kernels_sse2;
extern const struct cpu_kernels cpu_kernels_avx2;
extern const struct cpu_kernels cpu_kernels_avx512;

/* Not every compiler knows these by name; what they need of the system goes with AVX2. */
static bool has_f16c(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
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

void cpu_flush_denormals(void)
{
	/* MXCSR bit 15 flushes results, bit 6 takes operands as zero. */
	_mm_setcsr(_mm_getcsr() | 1u << 15 | 1u << 6);
}
#else

extern const struct cpu_kernels cpu_kernels_generic;

const struct cpu_kernels *cpu_kernels_get(enum cpu_simd level)
{
	return level == CPU_SIMD_AUTO || level == CPU_SIMD_SSE2 ? &cpu_kernels_generic : NULL;
}

void cpu_flush_denormals(void)
{
}
#endif

const char *cpu_simd_name(enum cpu_simd level)
{
	static const char *const names[CPU_SIMD_COUNT] = {"auto", "sse2", "avx2", "avx512"};

	return (unsigned int)level < CPU_SIMD_COUNT ? names[level] : "unknown";
}
