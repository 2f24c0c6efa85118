#pragma once
/* SPDX-License-Identifier: MIT */
/* Reading a scenario: what the lines (scenario.c) and their keys (scenario-key.c) share. */
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
	unsigned int devices; /* [truth]: a mask */
	char profiles[SCENARIO_DEVICES][512];
	char trace[512];
	unsigned int trace_line;
	/* [generate] */
	uint32_t n_generated;
	bool ops[OP_KIND_COUNT];
	double bytes_min, bytes_max;
	uint64_t generate_seed;
	/* Shares of tenants are names until all plans are known. */
	char (*shares)[1024];
};

/* Return: SCENARIO_E_INVALID, with "FILE:LINE: " and the sentence in the message. */
int reader_refuse(struct reader *reader, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* One line "key = value" of the current section. Return: 0, SCENARIO_E_INVALID. */
int reader_key(struct reader *reader, const char *key, char *value);

/* One line "figure >= value" of [expect] or [aim]. */
int reader_expected(struct reader *reader, const char *text);

/* Tenants' shares, once all plans are known. */
int reader_shares(struct reader *reader);

/* "1.5ms" in nanoseconds, at least 0. Return: false if it is not a time. */
bool reader_parse_time(const char *text, double *ret_ns);
bool reader_parse_number(const char *text, double *ret);
