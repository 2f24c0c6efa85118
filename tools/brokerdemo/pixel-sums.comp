#version 450
/* SPDX-License-Identifier: MIT */
/* Sum each image's pixels, one image per invocation; a word holds four pixels. */
layout(local_size_x = 64) in;

layout(binding = 0, std430) readonly buffer Pixels { uint pixels[]; };
layout(binding = 1, std430) writeonly buffer Sums { uint sums[]; };
layout(push_constant) uniform Parameters { uint n_images, words_per_image; };

void main()
{
	uint image = gl_GlobalInvocationID.x, sum = 0;

	if (image >= n_images)
		return;
	for (uint i = 0; i < words_per_image; i++) {
		uint word = pixels[image * words_per_image + i];

		sum += (word & 0xff) + (word >> 8 & 0xff) + (word >> 16 & 0xff) + (word >> 24);
	}
	sums[image] = sum;
}
