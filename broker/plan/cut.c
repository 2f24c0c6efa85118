/* SPDX-License-Identifier: MIT */
/*
 * Cuts: a plan as segments, which are plans of their own
 *
 * The operands of a node are read from the description: fusion has changed those of the plan's
 * nodes. Everything else about a tensor is taken from the plan, which knows the shapes that the
 * client left open.
 *
 * Nodes may share attributes, and attributes may share bytes of the blob, thousands of times. So
 * the parts of both sections that a segment needs are marked first, as begins and ends of runs, and
 * each part is copied once.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/cut.h"
#include "plan/plan-layout.h"
#include "plan/plan-parse.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/number.h"

enum { WORD_BYTES = 8 };

/* A tensor of the plan, by segments */
struct cut_tensor {
	uint16_t writer;         /* the last segment that writes it; CUT_NO_WRITER: none */
	uint64_t users, writers; /* bit i: segment i reads or writes it; writes it */
	bool crosses;
};

struct cut {
	struct plan_parsed parsed;
	const struct plan *plan;
	struct cut_tensor *tensors;
	uint64_t crossing_bytes, grain_bytes;
	uint32_t n_batches, grain_rows;
	uint32_t n_segments;
	uint32_t n_tensors; /* sum over the segments */
	/* by segment, those before it: it needs them, or one that it needs does */
	uint64_t before[CUT_MAX_SEGMENTS];
	struct cut_segment segments[];
};

/* Operands of a node, without absent ones at the end */
struct operands {
	const uint16_t *in, *out;
	uint32_t n_in, n_out;
};

/* Items of a section from first on, and the places of those that are needed among their copies */
struct extract {
	uint32_t first, n;
	uint32_t *at; /* n + 1 places; item i is needed if at[i + 1] differs from at[i] */
};

static uint32_t count_operands(const uint16_t *edges, uint32_t n, uint32_t max)
{
	/* The plan was accepted, so operands beyond the operator's maximum are absent. */
	n = n < max ? n : max;
	while (n > 0 && edges[n - 1] == RBK_PLAN_NO_TENSOR)
		n--;
	return n;
}

static struct operands node_operands(const struct cut *cut, uint32_t node)
{
	const struct rbk_plan_node *wire = &cut->parsed.nodes[node];
	struct operands operands = {
		.in = cut->parsed.edges + wire->first_in,
		.out = cut->parsed.edges + wire->first_out,
	};

	operands.n_in = count_operands(operands.in, wire->n_in, OP_MAX_INPUTS);
	operands.n_out = count_operands(operands.out, wire->n_out, OP_MAX_OUTPUTS);
	return operands;
}

/*
 * Note that segment @i reads tensor @t, or writes it too. Only states are written by several
 * segments, and each of those needs all who used the state before.
 */
static void add_use(struct cut *cut, uint16_t i, uint16_t t, bool writes)
{
	struct cut_tensor *tensor = &cut->tensors[t];

	cut->segments[i].needs |= (writes ? tensor->users : tensor->writers) & ~bit_u64(i);
	tensor->users |= bit_u64(i);
	if (!writes)
		return;
	tensor->writers |= bit_u64(i);
	tensor->writer = i;
}

/* Note which segments write and read each tensor, and whom segment @i needs: all before it. */
static void find_uses(struct cut *cut, uint16_t i)
{
	struct cut_segment *segment = &cut->segments[i];

	for (uint32_t k = 0; k < segment->n_nodes; k++) {
		const struct operands operands = node_operands(cut, segment->first_node + k);

		for (uint32_t j = 0; j < operands.n_in; j++)
			if (operands.in[j] != RBK_PLAN_NO_TENSOR)
				add_use(cut, i, operands.in[j], false);
		for (uint32_t j = 0; j < operands.n_out; j++)
			if (operands.out[j] != RBK_PLAN_NO_TENSOR)
				add_use(cut, i, operands.out[j], true);
	}
	cut->before[i] = segment->needs;
	for (uint32_t k = 0; k < i; k++)
		if (segment->needs & bit_u64(k))
			cut->before[i] |= cut->before[k];
}

static bool is_result(const struct cut *cut, uint16_t t)
{
	const uint8_t kind = cut->plan->tensors[t].kind;

	return kind == RBK_TENSOR_OUTPUT || kind == RBK_TENSOR_STATE || cut->tensors[t].crosses;
}

/*
 * A plan must have a result. Let a tensor cross that nothing reads, if the segment computes nothing
 * else.
 */
static void keep_result(struct cut *cut, const struct cut_segment *segment)
{
	uint16_t last = PLAN_NO_TENSOR;

	for (uint32_t k = 0; k < segment->n_nodes; k++) {
		const struct operands operands = node_operands(cut, segment->first_node + k);

		for (uint32_t j = 0; j < operands.n_out; j++) {
			if (operands.out[j] == RBK_PLAN_NO_TENSOR)
				continue;
			if (is_result(cut, operands.out[j]))
				return;
			last = operands.out[j];
		}
	}
	/* Every node has an output. */
	cut->tensors[last].crosses = true;
}

/*
 * Return the last segment that may run while tensor @t is in use: a later one is after all who use
 * it, one by one or at once.
 */
static uint16_t last_beside(const struct cut *cut, uint16_t t)
{
	uint16_t i = (uint16_t)(cut->n_segments - 1);

	while ((cut->tensors[t].users & ~cut->before[i]) == 0)
		i--;
	return i;
}

/*
 * Place what tensors that cross have for @n_rows of the plan's rows, their lives counted in
 * segments. Return: 0; CUT_E_BYTES; -ENOMEM.
 */
static int lay_out(struct cut *cut, struct plan *block, uint32_t n_rows)
{
	const uint16_t n = cut->plan->n_tensors;
	_cleanup_(freep) struct plan_life *lives = calloc(n, sizeof(*lives));
	char message[PLAN_MESSAGE_BYTES];
	struct layout layout;
	int r;

	block->tensors = calloc(n, sizeof(*block->tensors));
	if (!lives || !block->tensors)
		return error_origin(-ENOMEM);
	block->n_tensors = n;
	for (uint16_t t = 0; t < n; t++) {
		const struct cut_tensor *tensor = &cut->tensors[t];

		block->tensors[t].kind = tensor->crosses ? RBK_TENSOR_SCRATCH : RBK_TENSOR_INPUT;
		block->tensors[t].root = t;
		block->tensors[t].max_bytes = cut->plan->tensors[t].fixed_bytes +
					      n_rows * cut->plan->tensors[t].row_bytes;
		if (tensor->crosses)
			lives[t] = (struct plan_life){tensor->writer, last_beside(cut, t)};
	}
	r = layout_init(&layout, block, lives);
	for (uint32_t i = 0; r == 0 && i < layout.n_blocks; i++)
		layout_place(&layout, block, i);
	if (r == 0)
		r = layout_end(&layout, block, message);
	layout_deinit(&layout);
	return r > 0 ? CUT_E_BYTES : r;
}

/* Return true if rows of a plan's tensors that cross are independent. */
static bool may_stream(const struct cut *cut)
{
	const struct plan *plan = cut->plan;

	if (!plan->splits_rows || plan->has_state)
		return false;
	for (uint32_t i = 0; i < plan->n_tensors; i++)
		if (cut->tensors[i].crosses && plan->tensors[i].fixed_bytes > 0)
			return false;
	/* One that depends on no row would have to run before all micro-batches. */
	for (uint32_t i = 0; i < cut->n_segments; i++)
		if (!cut->segments[i].is_counted)
			return false;
	return true;
}

/*
 * Place what a grain of rows has of the tensors that cross: the least power of two times the plan's
 * grain for which the alignment of tensors costs less than half of the block.
 * Return: 0; -ENOMEM.
 */
static int place_grain(struct cut *cut)
{
	const uint64_t most_bytes =
		min_u64(cut->crossing_bytes + cut->crossing_bytes / 2, PLAN_MAX_BYTES);
	const uint32_t max_count = cut->plan->max_count;

	for (uint32_t rows = cut->plan->row_grain; rows < max_count; rows *= 2) {
		_cleanup_(plan_freep) struct plan *block = calloc(1, sizeof(*block));
		uint64_t bytes;
		int r;

		if (!block)
			return error_origin(-ENOMEM);
		r = lay_out(cut, block, rows);
		if (r < 0)
			return error_fold(r);
		if (r > 0 ||
		    !checked_mul(block->scratch_bytes, (max_count - 1) / rows + 1, &bytes) ||
		    bytes > most_bytes)
			continue;
		for (uint32_t i = 0; i < cut->n_segments; i++)
			for (uint16_t b = 0; b < cut->segments[i].n_refs; b++) {
				struct cut_ref *ref = &cut->segments[i].refs[b];

				ref->grain_offset = block->tensors[ref->tensor].scratch_offset;
			}
		cut->n_batches = min_u32(CUT_MAX_BATCHES, CUT_MAX_SEGMENTS / cut->n_segments);
		cut->grain_rows = rows;
		cut->grain_bytes = block->scratch_bytes;
		cut->crossing_bytes = max_u64(cut->crossing_bytes, bytes);
		return 0;
	}
	return 0;
}

static int place_crossing(struct cut *cut)
{
	_cleanup_(plan_freep) struct plan *block = calloc(1, sizeof(*block));
	int r;

	if (!block)
		return error_origin(-ENOMEM);
	r = lay_out(cut, block, cut->plan->max_count);
	if (r)
		return r < 0 ? error_fold(r) : r;
	for (uint32_t i = 0; i < cut->n_segments; i++)
		for (uint16_t b = 0; b < cut->segments[i].n_refs; b++) {
			struct cut_ref *ref = &cut->segments[i].refs[b];

			ref->offset = block->tensors[ref->tensor].scratch_offset;
		}
	cut->crossing_bytes = block->scratch_bytes;
	cut->n_batches = 1;
	return may_stream(cut) ? error_fold(place_grain(cut)) : 0;
}

/* Return the kind that a tensor of the plan has in segment @i. */
static enum rbk_tensor_kind kind_in(const struct cut *cut, uint32_t i, uint16_t t)
{
	const enum rbk_tensor_kind kind = cut->plan->tensors[t].kind;
	const struct cut_tensor *tensor = &cut->tensors[t];

	if (kind == RBK_TENSOR_OUTPUT || tensor->crosses)
		return tensor->writer == i ? RBK_TENSOR_OUTPUT : RBK_TENSOR_INPUT;
	return kind;
}

/* Set *ret_used[t] for each tensor of segment @i. */
static void mark_tensors(const struct cut *cut, uint32_t i, bool *ret_used)
{
	const struct cut_segment *segment = &cut->segments[i];

	for (uint32_t k = 0; k < segment->n_nodes; k++) {
		const struct operands operands = node_operands(cut, segment->first_node + k);

		for (uint32_t j = 0; j < operands.n_in; j++)
			if (operands.in[j] != RBK_PLAN_NO_TENSOR)
				ret_used[operands.in[j]] = true;
		for (uint32_t j = 0; j < operands.n_out; j++)
			if (operands.out[j] != RBK_PLAN_NO_TENSOR)
				ret_used[operands.out[j]] = true;
	}
}

/* List the references of segment @i, in the order in which plan_new() numbers bindings. */
static int list_refs(struct cut *cut, uint32_t i, bool *used)
{
	struct cut_segment *segment = &cut->segments[i];

	memset(used, 0, cut->plan->n_tensors * sizeof(*used));
	mark_tensors(cut, i, used);
	for (uint16_t t = 0; t < cut->plan->n_tensors; t++) {
		const struct tensor *tensor = &cut->plan->tensors[t];
		const enum rbk_tensor_kind kind = kind_in(cut, i, t);

		if (!used[t])
			continue;
		cut->n_tensors++;
		segment->is_counted |= tensor->shape.dynamic;
		if (kind == RBK_TENSOR_SCRATCH || kind == RBK_TENSOR_CONSTANT)
			continue;
		if (segment->n_refs == RBK_MAX_REFS)
			return CUT_E_REFS;
		segment->refs[segment->n_refs++] = (struct cut_ref){
			.tensor = t,
			.binding = cut->tensors[t].crosses ? CUT_NO_BINDING : tensor->binding,
			.writer = kind == RBK_TENSOR_INPUT ? cut->tensors[t].writer : CUT_NO_WRITER,
		};
	}
	return 0;
}

static int find_tensors(struct cut *cut)
{
	const uint16_t n = cut->plan->n_tensors;
	_cleanup_(freep) bool *used = calloc(n, sizeof(*used));
	int r;

	cut->tensors = calloc(n, sizeof(*cut->tensors));
	if (!cut->tensors || !used)
		return error_origin(-ENOMEM);
	for (uint16_t t = 0; t < n; t++)
		cut->tensors[t].writer = CUT_NO_WRITER;
	for (uint16_t i = 0; i < cut->n_segments; i++)
		find_uses(cut, i);
	for (uint16_t t = 0; t < n; t++)
		cut->tensors[t].crosses = cut->plan->tensors[t].kind == RBK_TENSOR_SCRATCH &&
					  cut->tensors[t].users & (cut->tensors[t].users - 1);
	for (uint16_t i = 0; i < cut->n_segments; i++)
		keep_result(cut, &cut->segments[i]);
	for (uint32_t i = 0; i < cut->n_segments; i++) {
		r = list_refs(cut, i, used);
		if (r)
			return r;
	}
	r = place_crossing(cut);
	return r < 0 ? error_fold(r) : r;
}

int cut_new(const void *desc, size_t desc_bytes, const struct plan *plan, const uint16_t *firsts,
	    uint32_t n_firsts, struct cut **ret)
{
	_cleanup_(cut_freep) struct cut *cut = NULL;
	char message[PLAN_MESSAGE_BYTES];
	int r;

	assert(n_firsts < CUT_MAX_SEGMENTS);
	cut = calloc(1, sizeof(*cut) + (n_firsts + 1) * sizeof(cut->segments[0]));
	if (!cut)
		return error_origin(-ENOMEM);
	cut->plan = plan;
	cut->n_segments = n_firsts + 1;
	r = plan_parse_header(desc, desc_bytes, message, &cut->parsed);
	assert(r == 0);
	for (uint32_t i = 0; i <= n_firsts; i++) {
		struct cut_segment *segment = &cut->segments[i];
		const uint16_t end = i < n_firsts ? firsts[i] : plan->n_nodes;

		segment->first_node = i > 0 ? firsts[i - 1] : 0;
		assert(end > segment->first_node && end <= plan->n_nodes);
		segment->n_nodes = (uint16_t)(end - segment->first_node);
	}
	r = find_tensors(cut);
	if (r)
		return r < 0 ? error_fold(r) : r;
	*ret = steal_ptr(cut);
	return 0;
}

struct cut *cut_free(struct cut *cut)
{
	if (!cut)
		return NULL;
	free(cut->tensors);
	free(cut);
	return NULL;
}

uint32_t cut_n_segments(const struct cut *cut)
{
	return cut->n_segments;
}

uint32_t cut_width(const struct cut *cut)
{
	uint32_t lasts[CUT_MAX_SEGMENTS], n_ways = 0, way;

	/* Lay ways through the segments, each of which waits for the one before: one runs of each.
	 */
	for (uint32_t i = 0; i < cut->n_segments; i++) {
		way = 0;
		while (way < n_ways && !(cut->before[i] & bit_u64(lasts[way])))
			way++;
		n_ways += way == n_ways;
		lasts[way] = i;
	}
	return n_ways;
}

const struct cut_segment *cut_segment(const struct cut *cut, uint32_t i)
{
	return &cut->segments[i];
}

uint32_t cut_n_tensors(const struct cut *cut)
{
	return cut->n_tensors;
}

uint64_t cut_crossing_bytes(const struct cut *cut)
{
	return cut->crossing_bytes;
}

uint32_t cut_n_batches(const struct cut *cut)
{
	return cut->n_batches;
}

uint32_t cut_grain_rows(const struct cut *cut)
{
	return cut->grain_rows;
}

uint64_t cut_grain_bytes(const struct cut *cut)
{
	return cut->grain_bytes;
}

/* --- descriptions --- */

/* Prepare to mark items from @first to before @end. Return: 0; -ENOMEM. */
static int extract_init(struct extract *extract, uint32_t first, uint32_t end)
{
	extract->first = first;
	extract->n = end > first ? end - first : 0;
	extract->at = calloc((size_t)extract->n + 1, sizeof(*extract->at));
	return extract->at ? 0 : error_origin(-ENOMEM);
}

static void extract_mark(struct extract *extract, uint32_t first, uint32_t n)
{
	extract->at[first - extract->first]++;
	extract->at[first - extract->first + n]--;
}

/* Turn the marks into places. Return: the number of items that are needed. */
static uint32_t extract_end(struct extract *extract)
{
	uint32_t n_open = 0, n_needed = 0;

	for (uint32_t i = 0; i < extract->n; i++) {
		n_open += extract->at[i];
		extract->at[i] = n_needed;
		n_needed += n_open > 0;
	}
	extract->at[extract->n] = n_needed;
	return n_needed;
}

static bool extract_needs(const struct extract *extract, uint32_t i)
{
	return extract->at[i + 1] != extract->at[i];
}

/* Return the words of the blob that an attribute's value touches. */
static uint32_t attr_words(const struct rbk_plan_attr *attr)
{
	const uint64_t bytes = (uint64_t)attr->n * plan_attr_element_bytes(attr->type);

	return (uint32_t)((bytes + WORD_BYTES - 1) / WORD_BYTES);
}

/* The parts of a segment's description */
struct parts {
	const struct cut *cut;
	const struct cut_segment *segment;
	uint32_t index;
	uint16_t *number; /* by tensor of the plan: 1 + its number in the segment; 0: not used */
	uint16_t n_tensors;
	uint32_t n_edges, n_attrs, n_words;
	struct extract attrs, words;
};

static void parts_deinit(struct parts *parts)
{
	free(parts->number);
	free(parts->attrs.at);
	free(parts->words.at);
}

static int find_attrs(struct parts *parts)
{
	const struct rbk_plan_node *nodes = parts->cut->parsed.nodes + parts->segment->first_node;
	uint32_t first = UINT32_MAX, end = 0;
	int r;

	for (uint32_t k = 0; k < parts->segment->n_nodes; k++) {
		if (nodes[k].n_attrs == 0)
			continue;
		first = nodes[k].first_attr < first ? nodes[k].first_attr : first;
		end = (uint32_t)max_u64(end, (uint64_t)nodes[k].first_attr + nodes[k].n_attrs);
	}
	r = extract_init(&parts->attrs, first, end);
	if (r)
		return error_fold(r);
	for (uint32_t k = 0; k < parts->segment->n_nodes; k++)
		if (nodes[k].n_attrs > 0)
			extract_mark(&parts->attrs, nodes[k].first_attr, nodes[k].n_attrs);
	parts->n_attrs = extract_end(&parts->attrs);
	return 0;
}

static int find_words(struct parts *parts)
{
	const struct extract *attrs = &parts->attrs;
	const struct rbk_plan_attr *wire = parts->cut->parsed.attrs;
	uint32_t first = UINT32_MAX, end = 0, at, n;
	int r;

	for (uint32_t i = 0; i < attrs->n; i++) {
		at = wire[attrs->first + i].blob_offset / WORD_BYTES;
		n = attr_words(&wire[attrs->first + i]);
		if (!extract_needs(attrs, i) || n == 0)
			continue;
		first = at < first ? at : first;
		end = at + n > end ? at + n : end;
	}
	r = extract_init(&parts->words, first, end);
	if (r)
		return error_fold(r);
	for (uint32_t i = 0; i < attrs->n; i++) {
		n = attr_words(&wire[attrs->first + i]);
		if (extract_needs(attrs, i) && n > 0)
			extract_mark(&parts->words, wire[attrs->first + i].blob_offset / WORD_BYTES,
				     n);
	}
	parts->n_words = extract_end(&parts->words);
	return 0;
}

static int parts_init(struct parts *parts, const struct cut *cut, uint32_t i)
{
	const uint16_t n_tensors = cut->plan->n_tensors;
	_cleanup_(freep) bool *used = calloc(n_tensors, sizeof(*used));
	int r;

	*parts = (struct parts){.cut = cut, .segment = &cut->segments[i], .index = i};
	parts->number = calloc(n_tensors, sizeof(*parts->number));
	if (!used || !parts->number)
		return error_origin(-ENOMEM);
	mark_tensors(cut, i, used);
	for (uint16_t t = 0; t < n_tensors; t++)
		if (used[t])
			parts->number[t] = ++parts->n_tensors;
	for (uint32_t k = 0; k < parts->segment->n_nodes; k++) {
		const struct operands operands = node_operands(cut, parts->segment->first_node + k);

		parts->n_edges += operands.n_in + operands.n_out;
	}
	r = find_attrs(parts);
	if (r == 0)
		r = find_words(parts);
	return error_fold(r);
}

static uint8_t *write_tensors(const struct parts *parts, uint8_t *to)
{
	const struct cut *cut = parts->cut;

	for (uint16_t t = 0; t < cut->plan->n_tensors; t++) {
		const struct tensor *tensor = &cut->plan->tensors[t];
		struct rbk_plan_tensor *wire = (void *)to;

		if (!parts->number[t])
			continue;
		*wire = cut->parsed.tensors[t];
		wire->kind = (uint8_t)kind_in(cut, parts->index, t);
		wire->rank = tensor->shape.rank;
		wire->flags = tensor->shape.dynamic ? RBK_PLAN_TENSOR_DYNAMIC : 0;
		for (uint32_t d = 0; d < wire->rank; d++)
			wire->dims[d] = tensor->shape.dims[d];
		if (tensor->shape.dynamic)
			wire->dims[0] = 0;
		to += sizeof(*wire);
	}
	return to;
}

static uint8_t *write_nodes(const struct parts *parts, uint8_t *to)
{
	const struct cut *cut = parts->cut;
	uint32_t n_edges = 0;

	for (uint32_t k = 0; k < parts->segment->n_nodes; k++) {
		const uint32_t node = parts->segment->first_node + k;
		const struct operands operands = node_operands(cut, node);
		struct rbk_plan_node *wire = (void *)to;

		*wire = cut->parsed.nodes[node];
		wire->first_in = n_edges;
		wire->n_in = (uint16_t)operands.n_in;
		wire->first_out = n_edges + operands.n_in;
		wire->n_out = (uint16_t)operands.n_out;
		if (wire->n_attrs > 0)
			wire->first_attr = parts->attrs.at[wire->first_attr - parts->attrs.first];
		else
			wire->first_attr = 0;
		n_edges += operands.n_in + operands.n_out;
		to += sizeof(*wire);
	}
	return to;
}

static uint8_t *write_attrs(const struct parts *parts, uint8_t *to)
{
	const struct extract *attrs = &parts->attrs, *words = &parts->words;

	for (uint32_t i = 0; i < attrs->n; i++) {
		struct rbk_plan_attr *wire = (void *)to;

		if (!extract_needs(attrs, i))
			continue;
		*wire = parts->cut->parsed.attrs[attrs->first + i];
		if (attr_words(wire) > 0)
			wire->blob_offset =
				words->at[wire->blob_offset / WORD_BYTES - words->first] *
				WORD_BYTES;
		else
			wire->blob_offset = 0;
		to += sizeof(*wire);
	}
	return to;
}

static uint16_t *write_operands(const struct parts *parts, const uint16_t *from, uint32_t n,
				uint16_t *to)
{
	for (uint32_t j = 0; j < n; j++)
		*to++ = from[j] == RBK_PLAN_NO_TENSOR ? RBK_PLAN_NO_TENSOR
						      : (uint16_t)(parts->number[from[j]] - 1);
	return to;
}

static void write_edges(const struct parts *parts, uint16_t *to)
{
	for (uint32_t k = 0; k < parts->segment->n_nodes; k++) {
		const struct operands operands =
			node_operands(parts->cut, parts->segment->first_node + k);

		to = write_operands(parts, operands.in, operands.n_in, to);
		to = write_operands(parts, operands.out, operands.n_out, to);
	}
}

static void write_words(const struct parts *parts, uint8_t *to)
{
	const uint32_t blob_bytes = parts->cut->parsed.header->blob_bytes;
	const struct extract *words = &parts->words;

	for (uint32_t i = 0; i < words->n; i++) {
		const uint32_t from = (words->first + i) * WORD_BYTES;
		const uint32_t n = blob_bytes - from < WORD_BYTES ? blob_bytes - from : WORD_BYTES;

		if (!extract_needs(words, i))
			continue;
		memcpy(to, parts->cut->parsed.blob + from, n);
		to += WORD_BYTES;
	}
}

static int describe(const struct parts *parts, void **ret_desc, size_t *ret_bytes)
{
	const size_t edge_bytes = (parts->n_edges * sizeof(uint16_t) + 7) & ~(size_t)7;
	const size_t blob_bytes = (size_t)parts->n_words * WORD_BYTES;
	const size_t bytes =
		sizeof(struct rbk_plan_header) + parts->n_tensors * sizeof(struct rbk_plan_tensor) +
		parts->segment->n_nodes * sizeof(struct rbk_plan_node) +
		parts->n_attrs * sizeof(struct rbk_plan_attr) + edge_bytes + blob_bytes;
	struct rbk_plan_header *header = calloc(1, bytes);
	uint8_t *to;

	if (!header)
		return error_origin(-ENOMEM);
	*header = *parts->cut->parsed.header;
	header->max_count = parts->segment->is_counted ? header->max_count : 1;
	header->n_tensors = parts->n_tensors;
	header->n_nodes = parts->segment->n_nodes;
	header->n_attrs = parts->n_attrs;
	header->n_edges = parts->n_edges;
	header->blob_bytes = (uint32_t)blob_bytes;
	to = write_tensors(parts, (uint8_t *)(header + 1));
	to = write_nodes(parts, to);
	to = write_attrs(parts, to);
	write_edges(parts, (uint16_t *)(void *)to);
	write_words(parts, to + edge_bytes);
	*ret_desc = header;
	*ret_bytes = bytes;
	return 0;
}

int cut_describe(const struct cut *cut, uint32_t i, void **ret_desc, size_t *ret_bytes)
{
	struct parts parts;
	int r = parts_init(&parts, cut, i);

	if (r == 0)
		r = describe(&parts, ret_desc, ret_bytes);
	parts_deinit(&parts);
	return error_fold(r);
}
