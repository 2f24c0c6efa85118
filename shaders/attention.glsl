/* SPDX-License-Identifier: MIT */
/* Queries of Attention, and their scores. */
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Length { uvec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Word { uint v; };

#define NONE uintBitsToFloat(0xff800000u)

struct Query {
	uint batch, head, row; /* of the query */
	uint q, k, v, y, qk;   /* offsets of its elements */
	uint mask;
	uint limit;            /* keys from here on do not count */
};

Query query_of(Params p, uint batch, uint head, uint row)
{
	uint rows = p.w[ATTENTION_Q_LEN], heads = p.w[ATTENTION_Q_HEADS], total = p.w[ATTENTION_KEYS];
	Query query;
	uint kv_head, valid = total;

	query.row = row;
	query.head = head;
	query.batch = batch;
	kv_head = query.head / (heads / p.w[ATTENTION_KV_HEADS]);
	query.q = query.batch * p.w[ATTENTION_Q_BATCH] + query.head * p.w[ATTENTION_Q_HEAD] +
		  query.row * p.w[ATTENTION_Q_ROW];
	query.k = query.batch * p.w[ATTENTION_K_BATCH] + kv_head * p.w[ATTENTION_K_HEAD];
	query.v = query.batch * p.w[ATTENTION_V_BATCH] + kv_head * p.w[ATTENTION_V_HEAD];
	query.y = query.batch * p.w[ATTENTION_Y_BATCH] + query.head * p.w[ATTENTION_Y_HEAD] +
		  query.row * p.w[ATTENTION_Y_ROW];
	query.qk = ((batch * heads + head) * rows + row) * total;
	query.mask = query.batch * p.w[ATTENTION_MASK_BATCH] +
		     query.head * p.w[ATTENTION_MASK_HEAD] + query.row * p.w[ATTENTION_MASK_ROW];

	/* The length is loaded once, then clamped. */
	if ((p.w[ATTENTION_FLAGS] & ATTENTION_HAS_VALID) != 0) {
		uvec2 length = Length(p.address[4] + uint64_t(query.batch) * 8ul).v;

		if ((length.y & 0x80000000u) != 0)
			valid = 0;
		else if (length.y == 0)
			valid = min(length.x, total);
	}
	query.limit = valid;
	if ((p.w[ATTENTION_FLAGS] & ATTENTION_CAUSAL) != 0) {
		/*
		 * With valid lengths and no past keys, the last query sees all valid keys; a count
		 * below zero becomes 0.
		 */
		uint seen = query.row + 1 + p.w[ATTENTION_PAST];

		if ((p.w[ATTENTION_FLAGS] & ATTENTION_HAS_VALID) != 0 && p.w[ATTENTION_PAST] == 0)
			seen = query.row + 1 + valid >= rows ? query.row + 1 + valid - rows : 0;
		query.limit = min(valid, seen);
	}
	if ((p.w[ATTENTION_FLAGS] & ATTENTION_HAS_MASK) != 0)
		query.limit = min(query.limit, p.w[ATTENTION_MASK_COLS]);
	return query;
}

/*
 * Return the factor of one operand of each product. The scale is applied before the product,
 * because the unscaled product may overflow.
 */
float scale_of(Params p)
{
	return uintBitsToFloat(p.w[ATTENTION_SCALE]);
}

/*
 * Return the score before the softmax, from the product of a query and @key: minus infinity if the
 * key does not count. With @write, write the scores that the mode requests.
 */
float score_of(Params p, Query query, uint key, float product, bool write)
{
	uint flags = p.w[ATTENTION_FLAGS], mode = p.w[ATTENTION_QK_MODE];
	float cap = uintBitsToFloat(p.w[ATTENTION_SOFTCAP]);
	float s = product;

	if (write && mode == 0)
		store1(p.address[PARAM_OUT + 1], query.qk + key, s);
	if (cap > 0.0)
		s = tanh(s / cap) * cap;
	if (write && mode == 1)
		store1(p.address[PARAM_OUT + 1], query.qk + key, s);
	if (key >= query.limit) {
		s = NONE;
	} else if ((flags & ATTENTION_MASK_BOOL) != 0) {
		uint64_t address = p.address[3] + uint64_t(query.mask + key);
		uint word = Word(address & ~3ul).v;

		if ((word >> (uint(address & 3ul) * 8) & 0xffu) == 0)
			s = NONE;
	} else if ((flags & ATTENTION_HAS_MASK) != 0) {
		uint at = query.mask + key;
		float bias;

		/* The mask's type need not be the keys' type. */
		if ((flags & ATTENTION_MASK_HALF) != 0)
			bias = unpackHalf2x16(Word(p.address[3] + uint64_t(at / 2) * 4ul).v)[at % 2];
		else
			bias = uintBitsToFloat(Word(p.address[3] + uint64_t(at) * 4ul).v);

		s = floatBitsToUint(bias) == 0xff800000u ? NONE : s + bias;
	}
	if (write && mode == 2)
		store1(p.address[PARAM_OUT + 1], query.qk + key, s);
	return s;
}

bool counts(float s)
{
	return floatBitsToUint(s) != 0xff800000u;
}
