/* SPDX-License-Identifier: MIT */
/*
 * The plain reference: running plans, memory, comparison
 *
 * The operators themselves are in operators.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "reference/moves.h"
#include "reference/reference.h"
#include "shm/half.h"
#include "shm/dtype.h"

enum { ALIGN = 64, UNWRITTEN = 0xa5 };

void *reference_alloc(size_t bytes)
{
	size_t rounded = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	void *memory = aligned_alloc(ALIGN, rounded ? rounded : ALIGN);

	if (!memory) {
		fprintf(stderr, "reference: out of memory (%zu bytes)\n", bytes);
		abort();
	}
	memset(memory, 0, rounded ? rounded : ALIGN);
	return memory;
}

void reference_arena_init(struct exec_arena *arena, size_t bytes, uint64_t seed)
{
	static ino_t next_ino = 1;

	*arena = (struct exec_arena){
		.base = reference_alloc(bytes),
		.bytes = bytes,
		.immutable = true,
		.dev = 1,
		.ino = next_ino++,
	};
	reference_fill((void *)arena->base, bytes / sizeof(float), seed);
}

void reference_arena_deinit(struct exec_arena *arena)
{
	free(arena->base);
	arena->base = NULL;
}

static struct exec_arena *find_arena(void *context, uint16_t arena_id, const char **ret_why)
{
	if (context && arena_id == REFERENCE_ARENA)
		return context;
	*ret_why = "no such arena";
	return NULL;
}

struct plan_arena_lookup reference_arena_lookup(struct exec_arena *arena)
{
	return (struct plan_arena_lookup){.find = find_arena, .context = arena};
}

struct plan *reference_plan(struct describe *describe, struct exec_arena *arena)
{
	struct plan_arena_lookup lookup = reference_arena_lookup(arena);
	char message[PLAN_MESSAGE_BYTES] = "";
	struct plan *plan = NULL;
	size_t bytes;
	void *desc;
	int r;

	desc = describe_finish(describe, &bytes);
	r = plan_new(desc, bytes, &lookup, message, &plan);
	free(desc);
	if (r) {
		fprintf(stderr, "reference: plan_new: %d: %s\n", r, message);
		abort();
	}
	return plan;
}

static void *locate(const struct plan *plan, unsigned int t, void *const *bindings, void **scratch)
{
	const struct tensor *tensor = &plan->tensors[t];
	const struct plan_constant *constant;

	switch (tensor->kind) {
	case RBK_TENSOR_CONSTANT:
		constant = &plan->constants[tensor->constant];
		return constant->arena->base + constant->offset;
	case RBK_TENSOR_SCRATCH:
		return scratch[t];
	default:
		return bindings[tensor->binding];
	}
}

/* Convert float16 numbers to floats; the caller frees them with free(). */
static float *widened(const uint16_t *data, uint64_t n)
{
	float *values = reference_alloc(n * sizeof(*values));

	for (uint64_t i = 0; i < n; i++)
		values[i] = half_to_float(data[i]);
	return values;
}

/* Operators compute in floats: convert float16 operands before and after, except for moves. */
static void run_node(const struct plan *plan, const struct node *node, uint32_t count,
		     const void *const *in, void *const *out)
{
	const void *node_in[OP_MAX_INPUTS];
	void *node_out[OP_MAX_OUTPUTS];
	struct plan as_floats = *plan;

	if (reference_moves(plan, node, count, in, out))
		return;

	for (unsigned int i = 0; i < OP_MAX_INPUTS; i++) {
		const struct tensor *tensor = in[i] ? &plan->tensors[node->in[i]] : NULL;

		node_in[i] = in[i];
		if (tensor && tensor->dtype == RBK_DTYPE_F16)
			node_in[i] = widened(in[i], shape_elems(&tensor->shape, count));
	}
	for (unsigned int i = 0; i < OP_MAX_OUTPUTS; i++) {
		const struct tensor *tensor = out[i] ? &plan->tensors[node->out[i]] : NULL;

		node_out[i] = out[i];
		if (tensor && tensor->dtype == RBK_DTYPE_F16)
			node_out[i] =
				reference_alloc(shape_elems(&tensor->shape, count) * sizeof(float));
	}
	as_floats.tensors = reference_alloc(plan->n_tensors * sizeof(struct tensor));
	memcpy(as_floats.tensors, plan->tensors, plan->n_tensors * sizeof(struct tensor));
	for (unsigned int i = 0; i < plan->n_tensors; i++)
		if (as_floats.tensors[i].dtype == RBK_DTYPE_F16)
			as_floats.tensors[i].dtype = RBK_DTYPE_F32;
	reference_node(&as_floats, node, count, node_in, node_out);
	free(as_floats.tensors);
	for (unsigned int i = 0; i < OP_MAX_INPUTS; i++)
		if (node_in[i] != in[i])
			free((void *)node_in[i]);
	for (unsigned int i = 0; i < OP_MAX_OUTPUTS; i++) {
		const float *values = node_out[i];
		uint16_t *halves = out[i];

		if (node_out[i] == out[i])
			continue;
		for (uint64_t k = 0; k < shape_elems(&plan->tensors[node->out[i]].shape, count);
		     k++)
			halves[k] = half_from_float(values[k]);
		free(node_out[i]);
	}
}

void reference_run(const struct plan *plan, uint32_t count, void *const *bindings)
{
	void **scratch = calloc(plan->n_tensors, sizeof(*scratch));

	if (!scratch)
		abort();
	for (unsigned int t = 0; t < plan->n_tensors; t++) {
		if (plan->tensors[t].kind == RBK_TENSOR_SCRATCH)
			scratch[t] = reference_alloc(tensor_bytes(&plan->tensors[t], count));
	}
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];
		const void *in[OP_MAX_INPUTS] = {NULL};
		void *out[OP_MAX_OUTPUTS] = {NULL};

		for (unsigned int j = 0; j < node->n_in; j++) {
			if (node->in[j] != PLAN_NO_TENSOR)
				in[j] = locate(plan, node->in[j], bindings, scratch);
		}
		for (unsigned int j = 0; j < node->n_out; j++) {
			if (node->out[j] != PLAN_NO_TENSOR)
				out[j] = reference_alloc(
					tensor_bytes(&plan->tensors[node->out[j]], count));
		}
		run_node(plan, node, count, in, out);
		for (unsigned int j = 0; j < node->n_out; j++) {
			if (node->out[j] != PLAN_NO_TENSOR)
				memcpy(locate(plan, node->out[j], bindings, scratch), out[j],
				       tensor_bytes(&plan->tensors[node->out[j]], count));
			free(out[j]);
		}
	}
	for (unsigned int t = 0; t < plan->n_tensors; t++)
		free(scratch[t]);
	free(scratch);
}

uint64_t reference_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

void reference_fill(float *data, uint64_t n, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;

	if (!state)
		state = 1;
	for (uint64_t i = 0; i < n; i++)
		data[i] =
			(float)(int64_t)(reference_random(&state) >> 40) / (float)(1 << 23) - 1.0f;
}

/* Fill bytes and integers with any bits. */
static void fill_words(uint8_t *data, uint64_t bytes, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;

	for (uint64_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(reference_random(&state) >> 32);
}

/* Fill @data with numbers that float32 cannot represent. */
static void fill_doubles(double *data, uint64_t n, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;

	for (uint64_t i = 0; i < n; i++)
		data[i] = (double)(int64_t)(reference_random(&state) >> 11) * 0x1p-52 - 1;
}

static void fill_half(uint16_t *data, uint64_t n, uint64_t seed)
{
	float *values = reference_alloc(n * sizeof(*values));

	reference_fill(values, n, seed);
	for (uint64_t i = 0; i < n; i++)
		data[i] = half_from_float(values[i]);
	free(values);
}

void reference_buffers_init(struct reference_buffers *buffers, const struct plan *plan,
			    uint32_t count, uint64_t seed)
{
	*buffers = (struct reference_buffers){.n = plan->n_bindings};
	for (unsigned int i = 0; i < plan->n_bindings; i++) {
		const struct tensor *tensor = &plan->tensors[plan->bindings[i].tensor];

		buffers->bytes[i] = tensor_bytes(tensor, count);
		buffers->bindings[i] = reference_alloc(buffers->bytes[i]);
		if (tensor->kind == RBK_TENSOR_OUTPUT)
			memset(buffers->bindings[i], UNWRITTEN, buffers->bytes[i]);
		else if (tensor->dtype == RBK_DTYPE_F32)
			reference_fill(buffers->bindings[i], buffers->bytes[i] / sizeof(float),
				       seed + i);
		else if (tensor->dtype == RBK_DTYPE_F16)
			fill_half(buffers->bindings[i], buffers->bytes[i] / sizeof(uint16_t),
				  seed + i);
		else if (tensor->dtype == RBK_DTYPE_F64)
			fill_doubles(buffers->bindings[i], buffers->bytes[i] / sizeof(double),
				     seed + i);
		else
			fill_words(buffers->bindings[i], buffers->bytes[i], seed + i);
	}
}

void reference_buffers_copy(struct reference_buffers *buffers, const struct reference_buffers *from)
{
	*buffers = *from;
	for (unsigned int i = 0; i < from->n; i++) {
		buffers->bindings[i] = reference_alloc(from->bytes[i]);
		memcpy(buffers->bindings[i], from->bindings[i], from->bytes[i]);
	}
}

void reference_buffers_deinit(struct reference_buffers *buffers)
{
	for (unsigned int i = 0; i < buffers->n; i++)
		free(buffers->bindings[i]);
	buffers->n = 0;
}

bool reference_close(const char *what, const float *got, const float *want, uint64_t n, double rtol,
		     double atol)
{
	uint64_t n_bad = 0, first = 0;
	double worst = 0;

	for (uint64_t i = 0; i < n; i++) {
		double g = (double)got[i], w = (double)want[i], difference = fabs(g - w);

		if (g == w || (isnan(g) && isnan(w)) ||
		    (isfinite(w) && difference <= atol + rtol * fabs(w)))
			continue;
		if (n_bad++ == 0)
			first = i;
		if (!(difference <= worst))
			worst = difference;
	}
	if (n_bad)
		fprintf(stderr,
			"%s: %llu of %llu elements differ, by up to %g; the first is %llu: got "
			"%.9g, "
			"expected %.9g\n",
			what, (unsigned long long)n_bad, (unsigned long long)n, worst,
			(unsigned long long)first, (double)got[first], (double)want[first]);
	return n_bad == 0;
}

static bool doubles_close(const char *what, const double *got, const double *want, uint64_t n,
			  double rtol, double atol)
{
	for (uint64_t i = 0; i < n; i++) {
		if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i])) ||
		    (isfinite(want[i]) && fabs(got[i] - want[i]) <= atol + rtol * fabs(want[i])))
			continue;
		fprintf(stderr, "%s: element %llu of %llu: got %.17g, expected %.17g\n", what,
			(unsigned long long)i, (unsigned long long)n, got[i], want[i]);
		return false;
	}
	return true;
}

bool reference_equal(const char *what, const int64_t *got, const int64_t *want, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		if (got[i] != want[i]) {
			fprintf(stderr, "%s: element %llu of %llu: got %lld, expected %lld\n", what,
				(unsigned long long)i, (unsigned long long)n, (long long)got[i],
				(long long)want[i]);
			return false;
		}
	}
	return true;
}

static bool same_bytes(const char *what, const uint8_t *got, const uint8_t *want, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		if (got[i] != want[i]) {
			fprintf(stderr, "%s: byte %llu of %llu: got %u, expected %u\n", what,
				(unsigned long long)i, (unsigned long long)n, got[i], want[i]);
			return false;
		}
	}
	return true;
}

/* Compare as reference_close() does, with one more step of float16 as tolerance. */
static bool half_close(const char *what, const uint16_t *got, const uint16_t *want, uint64_t n,
		       double rtol, double atol)
{
	float *g = widened(got, n), *w = widened(want, n);
	bool close = reference_close(what, g, w, n, rtol + 0x1p-10, atol + 0x1p-24);

	free(g);
	free(w);
	return close;
}

bool reference_buffers_close(const struct plan *plan, uint32_t count,
			     const struct reference_buffers *got,
			     const struct reference_buffers *want, double rtol, double atol)
{
	bool close = true;

	for (unsigned int i = 0; i < plan->n_bindings; i++) {
		const struct tensor *tensor = &plan->tensors[plan->bindings[i].tensor];
		uint64_t n = shape_elems(&tensor->shape, count);

		if (!plan->bindings[i].written)
			continue;
		if (tensor->dtype == RBK_DTYPE_F16)
			close &= half_close(tensor->name, got->bindings[i], want->bindings[i], n,
					    rtol, atol);
		else if (tensor->dtype == RBK_DTYPE_F64)
			close &= doubles_close(tensor->name, got->bindings[i], want->bindings[i], n,
					       rtol * 0x1p-29, atol * 0x1p-29);
		else if (tensor->dtype == RBK_DTYPE_I64)
			close &= reference_equal(tensor->name, got->bindings[i], want->bindings[i],
						 n);
		else if (tensor->dtype != RBK_DTYPE_F32)
			close &= same_bytes(tensor->name, got->bindings[i], want->bindings[i],
					    got->bytes[i]);
		else
			close &= reference_close(tensor->name, got->bindings[i], want->bindings[i],
						 n, rtol, atol);
	}
	return close;
}
