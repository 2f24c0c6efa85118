/* SPDX-License-Identifier: MIT */
/*
 * Sums and maxima over a workgroup: within subgroups first, then across subgroups in shared memory.
 * Float64 uses shared memory alone, because not every device has subgroup operations on float64.
 */
#ifdef DOUBLES
#include "group-double.glsl"
#else
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

shared float subgroup_parts[256];
shared uint subgroup_words[256];

float group_add(float value)
{
	float part = subgroupAdd(value), sum = 0.0;

	if (subgroupElect())
		subgroup_parts[gl_SubgroupID] = part;
	barrier();
	for (uint i = 0; i < gl_NumSubgroups; i++)
		sum += subgroup_parts[i];
	barrier();
	return sum;
}

float group_max(float value)
{
	float most = subgroupMax(value);

	if (subgroupElect())
		subgroup_parts[gl_SubgroupID] = most;
	barrier();
	for (uint i = 0; i < gl_NumSubgroups; i++)
		most = max(most, subgroup_parts[i]);
	barrier();
	return most;
}

float group_mul(float value)
{
	float part = subgroupMul(value), product = 1.0;

	if (subgroupElect())
		subgroup_parts[gl_SubgroupID] = part;
	barrier();
	for (uint i = 0; i < gl_NumSubgroups; i++)
		product *= subgroup_parts[i];
	barrier();
	return product;
}

uint group_max_order(uint value)
{
	uint most = subgroupMax(value);

	if (subgroupElect())
		subgroup_words[gl_SubgroupID] = most;
	barrier();
	for (uint i = 0; i < gl_NumSubgroups; i++)
		most = max(most, subgroup_words[i]);
	barrier();
	return most;
}
#endif
