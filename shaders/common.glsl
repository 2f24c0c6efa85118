/* SPDX-License-Identifier: MIT */
/*
 * What every shader shares: the parameter block, loads and stores.
 *
 * Tensors are reached through addresses, which no robustness feature checks. So each shader compares
 * every index with sizes from the parameter block, which only the broker writes, and
 * a block of zeros makes every shader return without touching memory. Element indices fit into 32
 * bits, byte offsets need not: addresses are computed in 64.
 *
 * A driver in the field (lavapipe of Mesa 22) silently ends every loop of an invocation once all of
 * them together have taken 65,535 turns. Loops over elements are unrolled by hand for that reason,
 * and broker/vulkan/lower.c counts turns before it lets a plan onto such a device.
 */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require
#include "params.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Params
{
	uvec4 groups;
	uint64_t address[PARAM_ADDRESSES];
	uint w[PARAM_WORDS];
};

layout(push_constant) uniform Push
{
	uint64_t params;
} push;

/*
 * A shader is compiled once for float32 and, where a device can hold such tensors, once for float16
 * (-DF16): elements are float16 in memory then, and float32 in arithmetic. Some are also compiled for
 * float64 (-DDOUBLES), of which arithmetic is as well: what they compute with is REAL.
 */
#ifdef DOUBLES
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer In1 { double v; };
layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer Out1 { double v; };
#define STORED1
#define REAL double
const uint64_t ELEMENT = 8ul;
#elif defined(F16)
#extension GL_EXT_shader_16bit_storage : require
layout(buffer_reference, std430, buffer_reference_align = 2) readonly buffer In1 { float16_t v; };
layout(buffer_reference, std430, buffer_reference_align = 2) writeonly buffer Out1 { float16_t v; };
layout(buffer_reference, std430, buffer_reference_align = 2) readonly buffer In4 { f16vec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 2) writeonly buffer Out4 { f16vec4 v; };
#define STORED1 float16_t
#define REAL float
#define STORED4 f16vec4
const uint64_t ELEMENT = 2ul; /* bytes */
#else
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer In1 { float v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Out1 { float v; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer In4 { vec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Out4 { vec4 v; };
#define STORED1
#define STORED4
#define REAL float
const uint64_t ELEMENT = 4ul;
#endif

uint64_t at(uint64_t base, uint index)
{
	return base + uint64_t(index) * ELEMENT;
}

/* At an address. */
REAL read1(uint64_t address)
{
	return REAL(In1(address).v);
}

REAL load1(uint64_t base, uint index)
{
	return read1(at(base, index));
}

void store1(uint64_t base, uint index, REAL value)
{
	Out1(at(base, index)).v = STORED1(value);
}

#ifdef DOUBLES
#include "double.glsl"
#else
vec4 read4(uint64_t address)
{
	return vec4(In4(address).v);
}

vec4 load4(uint64_t base, uint index)
{
	return read4(at(base, index));
}

void store4(uint64_t base, uint index, vec4 value)
{
	Out4(at(base, index)).v = STORED4(value);
}
#endif

/*
 * Float32's denormals count as zero wherever something is computed, as on the CPU: some devices see
 * to that themselves, others do not. Needed where next to zero is not next to the result.
 */
float flushed(float x)
{
	uint bits = floatBitsToUint(x);

	return (bits & 0x7f800000u) == 0u ? uintBitsToFloat(bits & 0x80000000u) : x;
}

vec4 flushed(vec4 x)
{
	return vec4(flushed(x.x), flushed(x.y), flushed(x.z), flushed(x.w));
}

/*
 * The number of this workgroup in a grid that is folded over x and y; groups.w of it are run by
 * other dispatches before.
 */
uint linear_group(Params p)
{
	return p.groups.w + gl_WorkGroupID.y * p.groups.x + gl_WorkGroupID.x;
}
