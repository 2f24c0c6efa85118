#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Element types
 *
 * Sizes and names of enum rbk_dtype, for both sides.
 */
#include <stdint.h>
#include <ringbroker/abi.h>

/* Return the bytes of one element; 0: no such type. */
static inline uint64_t dtype_bytes(unsigned int dtype)
{
	switch (dtype) {
	case RBK_DTYPE_U8:
	case RBK_DTYPE_I8:
	case RBK_DTYPE_BOOL:
		return 1;
	case RBK_DTYPE_F16:
	case RBK_DTYPE_BF16:
		return 2;
	case RBK_DTYPE_F32:
	case RBK_DTYPE_I32:
		return 4;
	case RBK_DTYPE_I64:
	case RBK_DTYPE_F64:
		return 8;
	}
	return 0;
}

/* Return the name as numpy spells it ("float32"), or "unknown". */
static inline const char *dtype_name(unsigned int dtype)
{
	switch (dtype) {
	case RBK_DTYPE_F32:
		return "float32";
	case RBK_DTYPE_U8:
		return "uint8";
	case RBK_DTYPE_I8:
		return "int8";
	case RBK_DTYPE_I32:
		return "int32";
	case RBK_DTYPE_I64:
		return "int64";
	case RBK_DTYPE_BOOL:
		return "bool";
	case RBK_DTYPE_F16:
		return "float16";
	case RBK_DTYPE_F64:
		return "float64";
	case RBK_DTYPE_BF16:
		return "bfloat16";
	}
	return "unknown";
}
