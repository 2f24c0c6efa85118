/* SPDX-License-Identifier: MIT */
/*
 * The parameter block, loads and stores of every shader
 *
 * Shaders access tensors by address, without robustness checks. So each shader compares every index
 * with sizes from the parameter block, which only the broker writes. A block of zeros makes every
 * shader return without touching memory. Element indices fit into 32 bits, byte offsets may not:
 * addresses are computed in 64 bits.
 *
 * A driver in the field (lavapipe of Mesa 22) silently ends every loop of an invocation once all
 * its loops together have run 65,535 iterations. Loops over elements are unrolled by hand for that
 * reason, and broker/vulkan/lower.c counts iterations before it admits a plan to such a device.
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
 * A shader is compiled for float32 and, for devices that can store float16, also for float16
 * (-DF16): elements are float16 in memory and float32 in arithmetic. Some shaders are also compiled
 * for float64 (-DDOUBLES), in memory and in arithmetic. REAL is the type of arithmetic.
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
const uint64_t ELEMENT = 2ul; /* bytes per element */
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

/* Load the element at an address. */
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
 * Return @x with denormals replaced by zero. Float32's denormals count as zero in every
 * computation, as on the CPU; some devices flush them, others do not. Needed where a denormal and
 * zero give different results.
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
 * Return the number of this workgroup in a grid that is folded over x and y. Other dispatches run
 * the first groups.w workgroups.
 */
uint linear_group(Params p)
{
	return p.groups.w + gl_WorkGroupID.y * p.groups.x + gl_WorkGroupID.x;
}
