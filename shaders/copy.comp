#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Copy words of 4 bytes of any type: bound tensors to device memory and back. Compiled with -DBYTES
 * also for tensors whose size is not a multiple of 4.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer From { uvec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer To { uvec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer From1 { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer To1 { uint v; };

#ifdef BYTES
#extension GL_EXT_shader_8bit_storage : require
layout(buffer_reference, std430, buffer_reference_align = 1) readonly buffer FromB { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 1) writeonly buffer ToB { uint8_t v; };
#endif

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint QUADS = 1; /* per invocation */

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), words = p.w[COPY_WORDS];

	if (group >= p.w[COPY_GROUPS])
		return;
	for (uint i = 0; i < QUADS; i++) {
		uint quad = (group * QUADS + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
		uint64_t from = p.address[0] + uint64_t(quad) * 16ul;
		uint64_t to = p.address[PARAM_OUT] + uint64_t(quad) * 16ul;

		if (quad < words / 4)
			To(to).v = From(from).v;
		else if (quad == words / 4) {
			for (uint w = 0; w < words % 4; w++)
				To1(to + 4ul * w).v = From1(from + 4ul * w).v;
#ifdef BYTES
			for (uint b = 0; b < p.w[COPY_REST]; b++)
				ToB(to + 4ul * (words % 4) + b).v = FromB(from + 4ul * (words % 4) + b).v;
#endif
		}
	}
}
