#pragma once
/* SPDX-License-Identifier: MIT */
/* Steps of quantization, and products and convolutions of quantized tensors: arguments, run
 * functions. Private to broker/cpu. */
#include "cpu/int8.h"
#include "cpu/run-matmul.h"

/* Indices in cpu_step.in of the operands of an eight-bit product or convolution. */
enum cpu_integer_in {
	CPU_INTEGER_A,
	CPU_INTEGER_B, /* a convolution's weights */
	CPU_INTEGER_A_ZERO,
	CPU_INTEGER_B_ZERO,
	CPU_INTEGER_A_SCALE,
	CPU_INTEGER_B_SCALE,
	CPU_INTEGER_Y_SCALE,
	CPU_INTEGER_Y_ZERO,
	CPU_INTEGER_BIAS,
};

/* Attributes of eight-bit products and convolutions beside their shapes. */
struct cpu_integer {
	const struct cpu_int8_kernels *kernels;
	bool a_signed, b_signed, y_signed;
	bool a_zero_each, b_zero_each, a_scale_each, b_scale_each;
	bool requantizes;
};

/* MatMulInteger, QLinearMatMul. */
struct cpu_step_integer {
	struct cpu_step_gemm gemm; /* first member: see cpu_units_gemm() */
	struct cpu_integer of;
};
CPU_STEP_HOLDS(struct cpu_step_integer);

/* ConvInteger, QLinearConv. */
struct cpu_step_integer_conv {
	struct cpu_window args; /* extents */
	struct cpu_extent batch;
	struct cpu_integer of;
};
CPU_STEP_HOLDS(struct cpu_step_integer_conv);

/* QuantizeLinear, DequantizeLinear: only one of the extents may depend on the count. */
struct cpu_step_quantize {
	const struct cpu_int8_kernels *kernels;
	struct cpu_quantize args; /* strides, type */
	struct cpu_extent outer, axis, inner;
};
CPU_STEP_HOLDS(struct cpu_step_quantize);

/* DynamicQuantizeLinear: out[3] holds its partial ranges. */
struct cpu_step_ranges {
	const struct cpu_int8_kernels *kernels;
	struct cpu_extent n;
};
CPU_STEP_HOLDS(struct cpu_step_ranges);

/* MatMulNBits */
struct cpu_step_nbits {
	struct cpu_step_gemm gemm; /* first member, as above */
	struct cpu_nbits_weights weights;
	bool zeros_are_floats;
};
CPU_STEP_HOLDS(struct cpu_step_nbits);

/* Products use cpu_units_gemm(). */
cpu_run_fn cpu_run_quantize, cpu_run_dequantize, cpu_run_ranges, cpu_run_range_end,
	cpu_run_quantize_dynamic, cpu_run_integer, cpu_run_integer_pack, cpu_run_integer_conv,
	cpu_run_nbits, cpu_run_nbits_pack;
cpu_units_fn cpu_units_quantize, cpu_units_ranges, cpu_units_one, cpu_units_integer_conv,
	cpu_units_integer_pack, cpu_units_nbits_pack;
