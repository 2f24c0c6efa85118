#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Failing calls: the page by which a test controls them
 *
 * A program that links with nth-calls.c and the --wrap options of meson.build calls the functions
 * of calls.txt through it. $RBK_TEST_NTH names a file of sizeof(struct nth_page) bytes that the
 * program maps; without it no call fails. A *place* is a function of calls.txt with the return
 * addresses of its callers: the same at each run of the same program. tests/nth/nth.py reads and
 * writes the page; its FORMAT_* follow the structs here. All members are written with relaxed
 * atomics.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { NTH_PLACES = 2048, NTH_FRAMES = 8, NTH_DEPTH = 4, NTH_NAME_BYTES = 32 };

enum nth_mode {
	NTH_RECORD, /* no call fails; the page is filled */
	NTH_ONCE,   /* call number nth_page.occurrence at the place fails */
	NTH_ALWAYS, /* that call and all later ones at the place fail */
	NTH_ALL,    /* that call and all later ones of its class fail */
};

enum nth_class { NTH_memory, NTH_files, NTH_other };

struct nth_place {
	_Atomic uint64_t key; /* 0: free */
	_Atomic uint64_t n;   /* calls */
	uint64_t class;       /* enum nth_class */
	uint64_t n_errors;
	uint64_t frames[NTH_FRAMES]; /* return addresses in the program's file; 0: elsewhere, or
					none */
	char function[NTH_NAME_BYTES];
};

struct nth_page {
	/* written by the test */
	_Atomic uint64_t is_armed;
	_Atomic uint64_t mode;       /* enum nth_mode */
	_Atomic uint64_t key;        /* of the place */
	_Atomic uint64_t occurrence; /* number of the failing call, from 1 */
	_Atomic uint64_t choice;     /* index of the error, modulo the number of errors */
	/* written by the program while the page is armed */
	_Atomic uint64_t n_allocations; /* calls of class memory */
	_Atomic uint64_t n_calls;       /* calls of other classes */
	_Atomic uint64_t n_failed;
	_Atomic uint64_t error; /* of the latest failure */
	_Atomic uint64_t failing_class;
	/* allocated blocks that were not freed, armed or not */
	_Atomic uint64_t n_live;
	_Atomic uint64_t n_places;
	struct nth_place places[NTH_PLACES];
};

/* Return the number of allocated blocks of the program, or 0 without a page. */
uint64_t nth_live(void);

/* Let the calling thread's calls succeed, or no longer. */
void nth_pause(bool is_paused);
