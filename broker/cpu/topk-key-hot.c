/* SPDX-License-Identifier: MIT */
/*
 * TopK of integers and float64
 *
 * As in topk-hot.c, the k best so far form a heap in the output itself, with the worst of them at
 * the root; elements that are no better are skipped. Elements are compared by keys of 64 bits,
 * which for integers are their values. To find the smallest, all bits of the keys are inverted.
 *
 * The output may be memory that its owner changes meanwhile. No value read back from it is used as
 * a position.
 */
#include "cpu/topk-key.h"

#include <string.h>

#include "cpu/double-key.h"

/* heap operations between two polls: each step of one may miss the cache */
enum { TOP_K_PAUSE = 1 << 7 };

/* An element with its key and its index. */
struct entry {
	int64_t key;
	int64_t value; /* bits of the element, if its type has 64 */
	int64_t index;
};

/* one column of the output */
struct heap {
	void *values;
	int64_t *indices;
	size_t first, stride; /* elements */
	enum cpu_type type;
	int64_t flip;
};

static struct entry load_entry(enum cpu_type type, const void *x, size_t i, int64_t flip,
			       int64_t index)
{
	struct entry entry = {.index = index};
	double number;

	switch (type) {
	case CPU_F64:
		number = ((const double *)x)[i];
		memcpy(&entry.value, &number, sizeof(number));
		/* A NaN comes last, among the largest and among the smallest. */
		entry.key = double_key(number, flip, INT64_MIN);
		return entry;
	case CPU_I64:
		entry.value = ((const int64_t *)x)[i];
		break;
	case CPU_I8:
		entry.value = ((const int8_t *)x)[i];
		break;
	case CPU_U8:
		entry.value = ((const uint8_t *)x)[i];
		break;
	default:
		entry.value = ((const int32_t *)x)[i];
	}
	entry.key = entry.value ^ flip;
	return entry;
}

static struct entry heap_get(const struct heap *heap, size_t at)
{
	const size_t i = heap->first + at * heap->stride;

	return load_entry(heap->type, heap->values, i, heap->flip, heap->indices[i]);
}

static void heap_put(const struct heap *heap, size_t at, struct entry entry)
{
	const size_t i = heap->first + at * heap->stride;

	switch (heap->type) {
	case CPU_F64:
		memcpy((double *)heap->values + i, &entry.value, sizeof(double));
		break;
	case CPU_I64:
		((int64_t *)heap->values)[i] = entry.value;
		break;
	case CPU_I8:
		((int8_t *)heap->values)[i] = (int8_t)entry.value;
		break;
	case CPU_U8:
		((uint8_t *)heap->values)[i] = (uint8_t)entry.value;
		break;
	default:
		((int32_t *)heap->values)[i] = (int32_t)entry.value;
	}
	heap->indices[i] = entry.index;
}

static bool is_before(struct entry a, struct entry b)
{
	return a.key != b.key ? a.key > b.key : a.index < b.index;
}

/* Replace the root of a heap of @n by an entry, and restore the heap order. */
static void heap_sift(const struct heap *heap, size_t n, struct entry entry)
{
	size_t at = 0;

	for (size_t child = 1; child < n; child = 2 * at + 1) {
		struct entry worse = heap_get(heap, child);

		if (child + 1 < n) {
			const struct entry other = heap_get(heap, child + 1);

			if (is_before(worse, other)) {
				worse = other;
				child++;
			}
		}
		if (!is_before(entry, worse))
			break;
		heap_put(heap, at, worse);
		at = child;
	}
	heap_put(heap, at, entry);
}

/* Append an entry to a heap of @n. */
static void heap_push(const struct heap *heap, size_t n, struct entry entry)
{
	size_t at = n;

	for (; at > 0; at = (at - 1) / 2) {
		const struct entry above = heap_get(heap, (at - 1) / 2);

		if (!is_before(above, entry))
			break;
		heap_put(heap, at, above);
	}
	heap_put(heap, at, entry);
}

static void top_k_column(const struct cpu_top_k_key *args, size_t outer, size_t inner)
{
	const size_t first = outer * args->len * args->inner + inner;
	const struct heap heap = {
		.values = args->values,
		.indices = args->indices,
		.first = outer * args->k * args->inner + inner,
		.stride = args->inner,
		.type = args->type,
		.flip = args->largest ? 0 : -1,
	};
	int64_t worst = 0;

	for (size_t i = 0; i < args->len; i++) {
		const struct entry entry = load_entry(args->type, args->x, first + i * args->inner,
						      heap.flip, (int64_t)i);

		cpu_pause_at(args->pause, i, TOP_K_PAUSE);
		/* The earlier of equal elements is kept already. */
		if (i < args->k)
			heap_push(&heap, i, entry);
		else if (entry.key > worst)
			heap_sift(&heap, args->k, entry);
		else
			continue;
		worst = heap_get(&heap, 0).key;
	}
	for (size_t n = args->k; n > 1; n--) {
		const struct entry last = heap_get(&heap, n - 1);

		cpu_pause_at(args->pause, n, TOP_K_PAUSE);
		heap_put(&heap, n - 1, heap_get(&heap, 0));
		heap_sift(&heap, n - 1, last);
	}
}

void cpu_top_k_key(const struct cpu_top_k_key *args, size_t begin, size_t end)
{
	for (size_t unit = begin; unit < end; unit++)
		top_k_column(args, unit / args->inner, unit % args->inner);
}
