#version 450
/* SPDX-License-Identifier: MIT */
/*
 * Steps of torture-client
 *
 * Each invocation replaces a word by a function of the word, another word, the push constants, and
 * its place in the dispatch. The functions of two steps do not commute, so a step that is lost,
 * repeated or moved changes the result, as a wrong binding or base does. With SUMS, invocations
 * beyond the words add to sums instead, in any order; the layer makes no slices of such a shader,
 * since it has atomic operations. PAIRS is the number of sets that have words.
 */
#ifdef SPECIALIZED
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z = 1) in;
#else
layout(local_size_x = SIZE_X, local_size_y = SIZE_Y, local_size_z = SIZE_Z) in;
#endif

#ifdef ALONE
/* Without push constants: those of other pipelines stay as they were pushed. */
const struct {
	uint factor, addend, stride_x, stride_y;
	uint salt[4];
} push = {5, 7, 1, 1, {11, 13, 17, 19}};
#else
layout(push_constant) uniform Push {
	uint factor;
	uint addend;
	uint stride_x; /* workgroups */
	uint stride_y; /* workgroups */
	uint salt[4];
#ifdef WIDE
	uint more[8];
#endif
} push;
#endif

#ifdef IMAGE
layout(set = 0, binding = 0, r32ui) uniform uimage2D picture;
#else
layout(set = 0, binding = 0) buffer Data {
	uint data[];
};
layout(set = 0, binding = 1) readonly buffer Other {
	uint other[];
};
#endif
#if PAIRS == 2
layout(set = 1, binding = 0) buffer Data2 {
	uint data2[];
};
layout(set = 1, binding = 1) readonly buffer Other2 {
	uint other2[];
};
#endif
layout(set = PAIRS, binding = 0) buffer Sums {
	uint sums[];
};

#ifdef SHARED
shared uint cache[SIZE_X * SIZE_Y * SIZE_Z];
#endif

/* Number each workgroup differently, although a base may be added to its coordinates. */
uint number_of(uvec3 group)
{
#if defined(NUMBER_X)
	return group.x + gl_NumWorkGroups.x * (group.y + push.stride_y * group.z);
#elif defined(NUMBER_Y)
	return group.x + push.stride_x * (group.y + gl_NumWorkGroups.y * group.z);
#elif defined(NUMBER_ALL)
	uvec3 counts = gl_NumWorkGroups;

	return group.x + counts.x * (group.y + counts.y * group.z) + 0 * counts.z;
#else
	return group.x + push.stride_x * (group.y + push.stride_y * group.z);
#endif
}

uint place_of(uvec3 group, uint i)
{
	uint place = group.x * 0x9e3779b1u + group.y * 0x85ebca6bu + group.z * 0xc2b2ae35u;

	place += i * 0x27d4eb2fu + push.salt[i % 4];
#if defined(NUMBER_X)
	place += gl_NumWorkGroups.x * 7;
#elif defined(NUMBER_Y)
	place += gl_NumWorkGroups.y * 11;
#elif defined(NUMBER_Z)
	place ^= gl_NumWorkGroups.z * 13;
#elif defined(NUMBER_ALL)
	uvec3 counts = gl_NumWorkGroups;

	place += counts.x * 3 ^ counts.y * 5 ^ counts.z * 17;
#endif
#ifdef WIDE
	place += push.more[i % 8] * 3;
#endif
	return place * (2 * push.addend + 1);
}

#ifdef IMAGE
void step_word(uint i, uint place)
{
	ivec2 size = imageSize(picture);
	ivec2 at = ivec2(i % size.x, i / size.x);

	if (i >= size.x * size.y)
		return;
	imageStore(picture, at, imageLoad(picture, at) * (push.factor | 1) + place);
}

uint n_words()
{
	ivec2 size = imageSize(picture);

	return size.x * size.y;
}
#else
uint n_words()
{
	return data.length();
}

void step_word(uint i, uint place)
{
	if (i >= data.length())
		return;
	data[i] = data[i] * (push.factor | 1) + other[(i * 5 + push.addend) % other.length()] + place;
}
#endif

#ifdef ARGUMENTS
/* Write the arguments of an indirect dispatch: each is small, and rarely 0. */
void write_arguments(uint i)
{
	uint word = data[i] ^ data[i] >> 15;

	sums[4 * i] = word % 32 == 0 ? 0 : 1 + (word >> 5) % 8;
	sums[4 * i + 1] = 1 + (word >> 9) % 8;
	sums[4 * i + 2] = 1 + (word >> 13) % 4;
}
#endif

void main()
{
#ifdef GLOBAL
	uvec3 id = gl_GlobalInvocationID;
	uint i = id.x + push.stride_x * SIZE_X * (id.y + push.stride_y * SIZE_Y * id.z);
	uint place = place_of(id, 0);
#else
	uvec3 size = gl_WorkGroupSize;
	uint i = number_of(gl_WorkGroupID) * (size.x * size.y * size.z) + gl_LocalInvocationIndex;
	uint place = place_of(gl_WorkGroupID, gl_LocalInvocationIndex);
#endif

#ifdef SHARED
	cache[gl_LocalInvocationIndex] = i < data.length() ? data[i] : i;
	barrier();
	place ^= cache[SIZE_X * SIZE_Y * SIZE_Z - 1 - gl_LocalInvocationIndex] * 9;
	barrier();
	cache[gl_LocalInvocationIndex] = place;
	barrier();
	place += cache[gl_LocalInvocationIndex ^ 1];
#endif
#ifdef ATOMIC
	atomicAdd(data[(place >> 7) % data.length()], place);
#else
	step_word(i, place);
#endif
#ifdef ARGUMENTS
	if (i < 16)
		write_arguments(i);
#elif defined(SUMS)
	if (i >= n_words())
		atomicAdd(sums[place % sums.length()], place);
#endif
#if PAIRS == 2
	if (i < data2.length())
		data2[i] = (data2[i] ^ place) * 5 + other2[(i + push.salt[1]) % other2.length()];
#endif
}
