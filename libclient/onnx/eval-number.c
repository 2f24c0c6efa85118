/* SPDX-License-Identifier: MIT */
/*
 * Numbers of the interpreter: loading elements of any type, and storing values converted to the
 * type.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "libclient/onnx/eval.h"
#include "shm/bfloat.h"

static double half_to_double(uint16_t half)
{
	int exponent = half >> 10 & 31;
	double mantissa = half & 1023, value;

	if (exponent == 31)
		value = mantissa != 0 ? (double)NAN : (double)INFINITY;
	else if (exponent == 0)
		value = ldexp(mantissa, -24);
	else
		value = ldexp(mantissa + 1024, exponent - 25);
	return half >> 15 ? -value : value;
}

/* Round to nearest, ties to even. */
static uint16_t double_to_half(double value)
{
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	int exponent;
	double scaled;

	value = fabs(value);
	if (isnan(value))
		return sign | 0x7e00;
	if (value >= 65520)
		return sign | 0x7c00;
	if (value < ldexp(1, -14))
		return sign | (uint16_t)nearbyint(ldexp(value, 24));
	exponent = ilogb(value);
	scaled = nearbyint(ldexp(value, 10 - exponent)); /* in 1024..2048 */
	return sign | (uint16_t)(((exponent + 15) << 10) + (int)scaled - 1024);
}

double eval_load(uint32_t dtype, const void *data, uint64_t i)
{
	float value;

	switch (dtype) {
	case RBK_ONNX_F32:
		/* Denormals are zero, as on devices, so that precomputed results are the same. */
		value = ((const float *)data)[i];
		return fabsf(value) < FLT_MIN ? (double)copysignf(0, value) : (double)value;
	case RBK_ONNX_F64:
		return ((const double *)data)[i];
	case RBK_ONNX_F16:
		return half_to_double(((const uint16_t *)data)[i]);
	case RBK_ONNX_BF16:
		value = bfloat_to_float(((const uint16_t *)data)[i]);
		return fabsf(value) < FLT_MIN ? (double)copysignf(0, value) : (double)value;
	case RBK_ONNX_U64:
		return (double)((const uint64_t *)data)[i];
	default:
		return (double)eval_load_int(dtype, data, i);
	}
}

int64_t eval_load_int(uint32_t dtype, const void *data, uint64_t i)
{
	switch (dtype) {
	case RBK_ONNX_U8:
	case RBK_ONNX_BOOL:
		return ((const uint8_t *)data)[i];
	case RBK_ONNX_I8:
		return ((const int8_t *)data)[i];
	case RBK_ONNX_U16:
		return ((const uint16_t *)data)[i];
	case RBK_ONNX_I16:
		return ((const int16_t *)data)[i];
	case RBK_ONNX_I32:
		return ((const int32_t *)data)[i];
	case RBK_ONNX_U32:
		return ((const uint32_t *)data)[i];
	case RBK_ONNX_I64:
	case RBK_ONNX_U64:
		return ((const int64_t *)data)[i];
	case RBK_ONNX_U4:
		return ((const uint8_t *)data)[i / 2] >> (i % 2 * 4) & 15;
	case RBK_ONNX_I4:
		return ((((const uint8_t *)data)[i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8;
	default:
		return 0;
	}
}

void eval_store_int(uint32_t dtype, void *data, uint64_t i, int64_t value)
{
	switch (dtype) {
	case RBK_ONNX_BOOL:
		((uint8_t *)data)[i] = value != 0;
		break;
	case RBK_ONNX_U8:
	case RBK_ONNX_I8:
		((uint8_t *)data)[i] = (uint8_t)value;
		break;
	case RBK_ONNX_U16:
	case RBK_ONNX_I16:
		((uint16_t *)data)[i] = (uint16_t)value;
		break;
	case RBK_ONNX_U32:
	case RBK_ONNX_I32:
		((uint32_t *)data)[i] = (uint32_t)value;
		break;
	case RBK_ONNX_U64:
	case RBK_ONNX_I64:
		((int64_t *)data)[i] = value;
		break;
	}
}

/* Convert to an integer: cut off the fraction, and clamp to int64; NaN becomes 0. */
static int64_t double_to_int(double value)
{
	if (isnan(value))
		return 0;
	if (value >= 0x1p63)
		return INT64_MAX;
	return value < -0x1p63 ? INT64_MIN : (int64_t)value;
}

void eval_store(uint32_t dtype, void *data, uint64_t i, double value)
{
	switch (dtype) {
	case RBK_ONNX_F32:
		((float *)data)[i] = (float)value;
		break;
	case RBK_ONNX_F64:
		((double *)data)[i] = value;
		break;
	case RBK_ONNX_F16:
		((uint16_t *)data)[i] = double_to_half(value);
		break;
	case RBK_ONNX_BF16: /* rounded to float32 first, as in ONNX's reference and on devices */
		((uint16_t *)data)[i] = bfloat_from_float((float)value);
		break;
	case RBK_ONNX_BOOL:
		((uint8_t *)data)[i] = value != 0;
		break;
	default:
		eval_store_int(dtype, data, i, double_to_int(value));
	}
}

bool eval_is_float(uint32_t dtype)
{
	return dtype == RBK_ONNX_F32 || dtype == RBK_ONNX_F64 || dtype == RBK_ONNX_F16 ||
	       dtype == RBK_ONNX_BF16;
}

/* uint64 is excluded: its comparisons and divisions differ from those of int64. */
bool eval_is_int(uint32_t dtype)
{
	return onnx_dtype_size(dtype) > 0 && !eval_is_float(dtype) && dtype != RBK_ONNX_U64;
}
