#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Why there are no probes, in one sentence
 *
 * This file is separate from probes.c, so that a test can check the sentences for other machines.
 */
#include <stdbool.h>
#include <stddef.h>

struct probes_facts {
	bool has_btf;          /* /sys/kernel/btf/vmlinux */
	bool has_privilege;    /* CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN */
	const char *missing;   /* a trace point that the kernel lacks or has changed; NULL: none */
	bool is_locked_down;   /* lockdown=confidentiality */
	bool has_storage;      /* task storage */
	bool may_make_map;     /* a small map */
	bool has_locked_limit; /* RLIMIT_MEMLOCK is finite */
	bool lacks_files;      /* RLIMIT_NOFILE leaves too few descriptors */
	bool is_refused;       /* the verifier rejects the probes */
	bool is_loaded;        /* loaded: attaching failed */
	int error;             /* negative errno of loading or attaching; 0: not tried */
};

/* Return @buffer, with a sentence that says what is missing and names the remedy. */
const char *probes_why(const struct probes_facts *facts, char *buffer, size_t n);
