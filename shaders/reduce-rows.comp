#version 460
/* SPDX-License-Identifier: MIT */
/* Reductions, one result per workgroup: for results of enough elements to share. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce-common.glsl"
#include "subgroup.glsl"

layout(local_size_x_id = 0) in;

void main()
{
	Params p = Params(push.params);
	uint index = linear_group(p), kind = reduce_kind(p);
	uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
	REAL value, most = 0.0;

	if (index >= p.w[REDUCE_OUTPUTS])
		return;
	if (is_ordered(kind)) {
		value = order_value(group_max_order(share_order(p, index, lane, lanes, flip_of(kind))),
				    flip_of(kind));
	} else {
		if (SUMS_ONLY == 0 && kind == LOG_SUM_EXP)
			most = order_value(group_max_order(share_order(p, index, lane, lanes, 0)), 0);
		value = share(p, kind, index, lane, lanes, shift_of(most));
		if (SUMS_ONLY == 0 && kind == PROD)
			value = group_mul(value);
		else
			value = group_add(value);
		value = finish(p, kind, value, most);
	}
	if (lane == 0)
		store1(p.address[PARAM_OUT], index, value);
}
