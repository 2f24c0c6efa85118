#version 450
/* SPDX-License-Identifier: MIT */
/* A triangle that covers the viewport. */
void main()
{
	gl_Position = vec4(gl_VertexIndex == 1 ? 3 : -1, gl_VertexIndex == 2 ? 3 : -1, 0, 1);
}
