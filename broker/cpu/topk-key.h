#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * TopK of integers and float64, by keys of 64 bits. Compiled once, because no vector instruction
 * that all levels have would help.
 */
#include "cpu/kernels.h"

/* Like struct cpu_top_k, for other types. */
struct cpu_top_k_key {
	enum cpu_type type; /* CPU_I64, CPU_I32, CPU_I8, CPU_U8, CPU_F64 */
	const void *x;
	void *values;
	int64_t *indices;
	size_t len, inner;
	size_t k; /* 1..len */
	bool largest;
	struct cpu_pause *pause;
};

/* Units: columns, outer * inner. */
void cpu_top_k_key(const struct cpu_top_k_key *args, size_t begin, size_t end);
