#version 450
/* SPDX-License-Identifier: MIT */
/* A value for each pixel, which torture-graphics.c computes, too. */
layout(push_constant) uniform Push {
	uint factor;
	uint addend;
} push;

layout(location = 0) out uint value;

void main()
{
	uvec2 at = uvec2(gl_FragCoord.xy);

	value = (at.x + 31 * at.y) * push.factor + push.addend;
}
