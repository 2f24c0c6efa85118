#version 460
/* SPDX-License-Identifier: MIT */
/* Reductions, one result per invocation. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce-common.glsl"

layout(local_size_x_id = 0) in;

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), kind = reduce_kind(p);
	uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
	REAL most = 0.0;

	if (group >= p.w[REDUCE_GROUPS] || index >= p.w[REDUCE_OUTPUTS])
		return;
	if (is_ordered(kind)) {
		store1(p.address[PARAM_OUT], index,
		       order_value(share_order(p, index, 0, 1, flip_of(kind)), flip_of(kind)));
		return;
	}
	if (SUMS_ONLY == 0 && kind == LOG_SUM_EXP)
		most = order_value(share_order(p, index, 0, 1, 0), 0);
	store1(p.address[PARAM_OUT], index,
	       finish(p, kind, share(p, kind, index, 0, 1, shift_of(most)), most));
}
