/* SPDX-License-Identifier: MIT */
/*
 * An ONNX model: loads, compiles and plans the file, runs it once on zeros, prints its outputs.
 *
 *	cc onnx-model.c -o onnx-model $(pkg-config --cflags --libs ringbroker-onnx ringbroker)
 *	./onnx-model model.onnx [DIMENSION=SIZE...]
 */
#include <errno.h>
#include <math.h>
#include <ringbroker.h>
#include <ringbroker/onnx.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHOWN 4

/* Return: the bytes of a tensor of a task of one row; RBK_REF_ALIGN for a tensor without bytes. */
static size_t bound_bytes(const struct rbk_onnx_bound *bound)
{
	size_t bytes = bound->bytes_fixed + bound->bytes_row;

	return bytes ? bytes : RBK_REF_ALIGN;
}

/* The author of the file chooses the names: a byte such as ESC could steer the terminal. */
static void print_name(FILE *file, const char *name)
{
	for (; *name; name++)
		fputc(*name >= ' ' && *name <= '~' ? *name : '?', file);
}

/* Print the first elements of a float32 output. Return: true if all of them are finite. */
static bool show(const struct rbk_onnx_bound *bound, const float *values)
{
	uint64_t n = (bound->bytes_fixed + bound->bytes_row) / sizeof(float);
	bool is_finite = true;

	print_name(stdout, bound->name);
	printf(":");
	for (uint64_t i = 0; i < n; i++) {
		if (i < MAX_SHOWN)
			printf(" %g", (double)values[i]);
		is_finite &= isfinite(values[i]) != 0;
	}
	printf("%s\n", n > MAX_SHOWN ? " ..." : "");
	return is_finite;
}

/* Compile the model. If it is refused, print every reason: there may be several to mend. */
static int compile(struct rbk_onnx *model, char **settings, struct rbk_error *error)
{
	struct rbk_onnx_refusal refusal;
	int r;

	for (; *settings; settings++) { /* open dimensions, such as batch=1 */
		char *size = strchr(*settings, '=');

		if (size)
			*size++ = '\0';
		r = rbk_onnx_set_dim(model, *settings, size ? atoll(size) : -1, error);
		if (r)
			return r;
	}
	r = rbk_onnx_compile(model, NULL, error);
	for (unsigned int i = 0; rbk_onnx_refusal(model, i, &refusal) == 0; i++) {
		print_name(stderr, *refusal.op ? refusal.op : "the model");
		fprintf(stderr, " ");
		print_name(stderr, refusal.name);
		fprintf(stderr, ": %s\n", refusal.reason);
	}
	return r;
}

int main(int argc, char **argv)
{
	struct rbk_error error;
	struct rbk_arena *arena;
	struct rbk_onnx_bound bound;
	struct rbk_onnx *model;
	const struct rbk_cqe *cqe;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct rbk *rbk;
	bool is_right = true;
	size_t bytes = 0;
	unsigned int n;
	int r;

	if (argc < 2)
		return fprintf(stderr, "usage: onnx-model FILE [DIMENSION=SIZE...]\n"), 2;
	if (rbk_onnx_load(argv[1], &model, &error) || compile(model, argv + 2, &error) ||
	    rbk_connect(NULL, &rbk, &error) || rbk_onnx_plan(model, rbk, NULL, &plan, &error))
		return fprintf(stderr, "%s: %s\n", argv[1], error.text), 1;

	/* One arena holds all tensors and the table of their references. A new arena is zeroed. */
	n = rbk_onnx_n_bound(model);
	for (unsigned int i = 0; i < n; i++) {
		rbk_onnx_bound(model, i, &bound);
		bytes += bound_bytes(&bound) + RBK_REF_ALIGN;
	}
	if (rbk_arena_new(rbk, bytes + n * sizeof(uint64_t), &arena, &error) ||
	    rbk_ring_new(rbk, 1, &ring, &error))
		return fprintf(stderr, "%s\n", error.text), 1;
	uint64_t *table = rbk_arena_alloc(arena, n * sizeof(*table));
	for (unsigned int i = 0; i < n; i++) {
		rbk_onnx_bound(model, i, &bound);
		table[i] = rbk_ref(arena, rbk_arena_alloc(arena, bound_bytes(&bound)));
	}

	rbk_prep_run_table(rbk_get_sqe(ring), rbk_plan_id(plan), 1, rbk_ref(arena, table), n);
	rbk_submit(ring);
	do
		r = rbk_wait_cqe(ring, &cqe);
	while (r == -EINTR); /* a signal was handled */
	if (r)
		return fprintf(stderr, "the broker is gone\n"), 1;
	if (cqe->res)
		return fprintf(stderr, "the task failed: %s\n", strerror(-cqe->res)), 1;
	for (unsigned int i = 0; i < n; i++) {
		rbk_onnx_bound(model, i, &bound);
		if (bound.is_output && bound.dtype == RBK_ONNX_F32)
			is_right &= show(&bound, (const float *)rbk_arena_data(arena) +
							 RBK_REF_OFFSET(table[i]) / sizeof(float));
	}
	return is_right ? 0 : 1;
}
