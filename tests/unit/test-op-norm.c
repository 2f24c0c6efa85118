/* SPDX-License-Identifier: MIT */
/* Shape rules: normalisations, ArgMax, CumSum, RotaryEmbedding, Attention */
#include <stdlib.h>
#include <string.h>

#include "support/one-op.h"
#include "support/test.h"

TEST(test_arg__shapes)
{
	expect_infers("ArgMax", "[2,3,4]", "", "[1,3,4]");
	expect_infers("ArgMax", "[2,3,4]", "axis=-1 keepdims=0", "[2,3]");
	expect_infers("ArgMin", "[count,3]", "axis=1", "[count,1]");
	expect_infers("ArgMin", "[count,3]", "keepdims=0", "[3]");
	expect_refuses("ArgMax", "[2,3]", "axis=2", "\"axis\" is 2");
	expect_infers("CumSum", "[count,3]", "axis=1 reverse=1 exclusive=1", "[count,3]");
	expect_refuses("LpNormalization", "[2,3]", "p=3", "\"p\" is 3");
}

TEST(test_layer_norm__scales)
{
	struct plan *plan;

	expect_infers("LayerNormalization", "[count,3,4] [4]", "", "[count,3,4]");
	expect_infers("LayerNormalization", "[count,3,4] [3,4] [3,4]", "axis=1", "[count,3,4]");
	expect_infers("LayerNormalization", "[count,3,4] [1,1,3,4] [1]", "axis=1", "[count,3,4]");
	expect_infers("RMSNormalization", "[2,3,4] [2,3,4]", "axis=0", "[2,3,4]");
	expect_refuses("LayerNormalization", "[2,3,4] [3]", "", "[3], expected one element");
	expect_refuses("RMSNormalization", "[2,3,4] [4]", "axis=1", "[4], expected one element");
	expect_refuses("LayerNormalization", "[2,3] [3]", "stash_type=10", "\"stash_type\" is 10");

	plan = expect_plan(one_op("LayerNormalization", "[count,3,4] [4]", ""));
	assert_true(plan->splits_rows);
	plan_free(plan);
}

TEST(test_channel_norm__channels)
{
	expect_infers("BatchNormalization", "[count,3,4] [3] [3] [3] [3]", "", "[count,3,4]");
	expect_infers("InstanceNormalization", "[count,3,4] [3] [3]", "", "[count,3,4]");
	expect_infers("GroupNormalization", "[count,6,4] [6] [6]", "num_groups=2", "[count,6,4]");
	expect_refuses("BatchNormalization", "[2,3] [3] [3] [3] [2]", "", "each of the 3 channels");
	expect_refuses("BatchNormalization", "[2,3] [3] [3] [3] [3]", "training_mode=1",
		       "\"training_mode\" is 1");
	expect_refuses("InstanceNormalization", "[3] [3] [3]", "", "a batch and channels");
	expect_refuses("GroupNormalization", "[2,6] [6] [6]", "num_groups=4", "a divisor of the 6");
	expect_refuses("GroupNormalization", "[2,6] [6] [6]", "", "\"num_groups\" is missing");
}

TEST(test_attention__shapes)
{
	expect_infers("Attention", "[count,4,5,8] [count,2,7,8] [count,2,7,6]", "",
		      "[count,4,5,6]");
	expect_infers("Attention", "[count,5,32] [count,7,16] [count,7,12]",
		      "q_num_heads=4 kv_num_heads=2", "[count,5,24]");
	expect_infers("Attention", "[1,4,5,8] [1,2,7,8] [1,2,7,6] [5,9] [1,2,3,8] [1,2,3,6]", "",
		      "[1,4,5,6]");
	expect_refuses("Attention", "[1,5,32] [1,7,16] [1,7,12]", "q_num_heads=4",
		       "\"kv_num_heads\" is missing");
	expect_refuses("Attention", "[1,5,32] [1,7,16] [1,7,12]", "q_num_heads=3 kv_num_heads=2",
		       "expected a divisor");
	expect_refuses("Attention", "[1,3,5,8] [1,2,7,8] [1,2,7,6]", "", "do not fit together");
	expect_refuses("Attention", "[1,4,5,8] [1,2,7,9] [1,2,7,6]", "", "do not fit together");
	expect_refuses("Attention", "[1,4,5,8] [1,2,7,8] [1,2,7,6] [5,8]", "", "broadcasts to 4");
	expect_refuses("Attention", "[1,4,5,8] [1,2,7,8] [1,2,7,6] - [1,2,3,8]", "",
		       "expected both or neither");
	expect_refuses("Attention", "[1,4,5,8] [1,2,7,8] [1,2,7,6] - [1,2,3,8] [1,2,4,6]", "",
		       "expected [1,2,3,6]");
}

TEST(test_rotary__shapes)
{
	expect_infers("RotaryEmbedding", "[count,4,3,8] [count,3,4] [count,3,4]", "",
		      "[count,4,3,8]");
	expect_infers("RotaryEmbedding", "[count,3,32] [count,3,2] [count,3,2]",
		      "num_heads=4 rotary_embedding_dim=4", "[count,3,32]");
	expect_refuses("RotaryEmbedding", "[1,3,32] [1,3,4] [1,3,4]", "",
		       "\"num_heads\" is missing");
	expect_refuses("RotaryEmbedding", "[1,4,3,8] [1,3,4] [1,3,3]", "", "expected [1,3,4]");
	expect_refuses("RotaryEmbedding", "[1,4,3,8] [1,3,4] [1,3,4]", "rotary_embedding_dim=3",
		       "expected an even number");
}
