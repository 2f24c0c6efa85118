/* SPDX-License-Identifier: MIT */
/*
 * Elements of any type, as bits
 *
 * Float16 and bfloat16 are converted here, because devices differ in how they round to them.
 */
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require

/* enum rbk_dtype */
const uint F32 = 1, U8 = 2, I8 = 3, I32 = 6, I64 = 7, BOOL = 9, F16 = 10, F64 = 11, BF16 = 16;

layout(buffer_reference, std430, buffer_reference_align = 1) readonly buffer InU8 { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 1) writeonly buffer OutU8 { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 2) readonly buffer InU16 { uint16_t v; };
layout(buffer_reference, std430, buffer_reference_align = 2) writeonly buffer OutU16 { uint16_t v; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer InU32 { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer OutU32 { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer InU64 { uint64_t v; };
layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer OutU64 { uint64_t v; };

/* Return the logarithm of an element's size in bytes. */
uint width_of(uint type)
{
	if (type == I64 || type == F64)
		return 3;
	return type == F32 || type == I32 ? 2 : type == F16 || type == BF16 ? 1 : 0;
}

uint64_t load_bits(uint type, uint64_t base, uint index)
{
	uint64_t from = base + (uint64_t(index) << width_of(type));

	switch (width_of(type)) {
	case 3:
		return InU64(from).v;
	case 2:
		return uint64_t(InU32(from).v);
	case 1:
		return uint64_t(uint(InU16(from).v));
	}
	return uint64_t(uint(InU8(from).v));
}

void store_bits(uint type, uint64_t base, uint index, uint64_t bits)
{
	uint64_t to = base + (uint64_t(index) << width_of(type));

	switch (width_of(type)) {
	case 3:
		OutU64(to).v = bits;
		break;
	case 2:
		OutU32(to).v = uint(bits & 0xfffffffful);
		break;
	case 1:
		OutU16(to).v = uint16_t(uint(bits) & 0xffffu);
		break;
	default:
		OutU8(to).v = uint8_t(uint(bits) & 0xffu);
		break;
	}
}

float half_to_float(uint bits)
{
	uint rest = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
	uint value = (rest << 13) + (112u << 23);

	if (rest >= 0x7c00u)
		value += 112u << 23;
	else if (rest < 0x400u)
		value = floatBitsToUint(float(rest) * 5.9604644775390625e-8);
	return uintBitsToFloat(value | sign);
}

uint float_to_half(float x)
{
	uint bits = floatBitsToUint(x), rest = bits & 0x7fffffffu, value;
	precise float shifted = uintBitsToFloat(rest) + 0.5;

	if (rest > 0x7f800000u)
		value = 0x7e00u;
	else if (rest >= 0x47800000u)
		value = 0x7c00u;
	else if (rest < 0x38800000u)
		value = floatBitsToUint(shifted) - 0x3f000000u;
	else
		value = (rest - (112u << 23) + 0xfffu + ((rest >> 13) & 1u)) >> 13;
	return value | (bits >> 16 & 0x8000u);
}

/* Convert to bfloat16, a float32's upper half: rounded to the nearest, ties to even. */
uint float_to_bfloat(float x)
{
	uint bits = floatBitsToUint(x);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return bits >> 16 | 0x40u;
	return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

bool is_float(uint type)
{
	return type == F32 || type == F16 || type == BF16;
}

float to_float(uint type, uint64_t bits)
{
	if (type == F16)
		return half_to_float(uint(bits));
	return uintBitsToFloat(type == BF16 ? uint(bits) << 16 : uint(bits & 0xfffffffful));
}

int64_t to_integer(uint type, uint64_t bits)
{
	/* Extend signs explicitly: not every compiler converts correctly by way of int. */
	switch (type) {
	case I8:
		return int64_t(bits ^ 0x80ul) - 0x80l;
	case I32:
		return int64_t(bits ^ 0x80000000ul) - 0x80000000l;
	case BOOL:
		return bits != 0ul ? 1l : 0l;
	}
	return int64_t(bits);
}

/*
 * Return an unsigned number in the order of the values of an integer or float64 type. For float64,
 * both zeros and all denormals are equal, and a NaN is above everything.
 */
uint64_t order_of_bits(uint type, uint64_t bits)
{
	const uint64_t sign = 1ul << 63, infinity = 0x7fful << 52;

	if (type != F64)
		return uint64_t(to_integer(type, bits)) ^ sign;
	if ((bits & ~sign) > infinity)
		return ~0ul;
	if ((bits & infinity) == 0ul)
		bits = 0ul;
	return (bits & sign) != 0ul ? ~bits : bits | sign;
}

uint64_t from_float(uint type, float x)
{
	return uint64_t(type == F16	? float_to_half(x)
			: type == BF16 ? float_to_bfloat(x)
				       : floatBitsToUint(x));
}
