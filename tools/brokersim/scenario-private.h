#pragma once
/* SPDX-License-Identifier: MIT */
/* Reading a scenario: declarations shared by lines (scenario.c) and keys (scenario-key.c) */
#include "scenario.h"

enum section {
	SECTION_NONE,
	SECTION_SCENARIO,
	SECTION_PLACEMENT,
	SECTION_TRUTH,
	SECTION_PLAN,
	SECTION_GENERATE,
	SECTION_TENANT,
	SECTION_EVENT,
	SECTION_GRAPHS,
	SECTION_EXPECT,
	SECTION_AIM,
	SECTION_COUNT,
};

struct reader {
	struct scenario *scenario;
	const char *path;
	char *message;
	unsigned int line;
	enum section section;
	unsigned int section_lines[SECTION_COUNT]; /* of the first one of each; 0: there is none */
	unsigned int devices; /* devices of [truth], as a mask of 1 << device */
	char profiles[SCENARIO_DEVICES][512];
	char trace[512];
	unsigned int trace_line;
	/* [graphs] */
	char model_profiles[SCENARIO_MAX_PROFILES][512];
	unsigned int profiles_line;
	uint32_t n_of_each; /* 0: not given */
	/* [generate] */
	uint32_t n_generated;
	bool ops[OP_KIND_COUNT];
	double bytes_min, bytes_max;
	uint64_t generate_seed;
	/* by tenant: value of the key "plans", unresolved until all plans are known */
	char (*shares)[1024];
};

/*
 * Write "FILE:LINE: " and the sentence to the reader's message.
 * Return: SCENARIO_E_INVALID.
 */
int reader_refuse(struct reader *reader, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Read one line "key = value" of the current section.
 * Return: 0, SCENARIO_E_INVALID.
 */
int reader_key(struct reader *reader, const char *key, char *value);

/* Read one line "figure >= value" or "figure <= value" of [expect] or [aim]. */
int reader_expected(struct reader *reader, const char *text);

/* Resolve the plans and shares of all tenants. Call when all plans are known. */
int reader_shares(struct reader *reader);

/*
 * Parse a time such as "1.5ms" into nanoseconds, at least 0.
 * Return: false if @text is not a time.
 */
bool reader_parse_time(const char *text, double *ret_ns);
bool reader_parse_number(const char *text, double *ret);
