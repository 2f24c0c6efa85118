/* SPDX-License-Identifier: MIT */
/* Make an arena for two tensors of 16 floats, and take references to them. */
#include <ringbroker.h>
#include <stdio.h>

static int make_tensors(struct rbk *rbk, struct rbk_arena **ret, uint64_t refs[2])
{
	struct rbk_error error;
	float *in, *out;
	int r = rbk_arena_new(rbk, 4096, ret, &error);

	if (r) {
		fprintf(stderr, "%s\n", error.text);
		return r;
	}
	in = rbk_arena_alloc(*ret, 16 * sizeof(float));
	out = rbk_arena_alloc(*ret, 16 * sizeof(float));
	in[0] = 1;
	refs[0] = rbk_ref(*ret, in);
	refs[1] = rbk_ref(*ret, out);
	return 0;
}

int main(void)
{
	struct rbk_arena *arena;
	uint64_t refs[2];
	struct rbk *rbk;

	if (rbk_connect(NULL, &rbk, NULL) || make_tensors(rbk, &arena, refs))
		return 1;
	printf("arena %u, offset %llu\n", RBK_REF_ARENA(refs[1]),
	       (unsigned long long)RBK_REF_OFFSET(refs[1]));
	rbk_arena_free(arena);
	rbk_disconnect(rbk);
	return 0;
}
