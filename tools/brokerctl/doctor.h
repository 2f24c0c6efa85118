#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What this machine has of what a broker can use
 *
 * Each check looks at one thing: in files of the kernel, below a root that tests choose, by one
 * system call, or at the running broker's process.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum health {
	HEALTH_OK,
	HEALTH_WARN, /* works, but for less */
	HEALTH_FAIL, /* does not work */
	HEALTH_SKIP, /* cannot be told, by this user or without a broker */
};
const char *health_name(enum health health);

enum { FINDING_BYTES = 384 };

struct finding {
	const char *name; /* "io-uring" */
	const char *why;  /* why it matters */
	enum health health;
	char text[FINDING_BYTES]; /* what was found */
	char mend[FINDING_BYTES]; /* the command that mends it; "": there is nothing to mend */
};

struct doctor {
	const char *root; /* before paths of the kernel: "" */
	pid_t pid;        /* the running broker's; 0: none, or not known */
	/* Of the broker's devices, if it said so. */
	bool has_devices, has_gpu, has_software_gpu;
	bool imports_host; /* it has a GPU, and no device needs udmabuf */
	/* It watches contention by its own probes, as it says; and may this user know? */
	bool has_probes, knows_probes;
};

/* How many checks there are; each fills one finding. */
unsigned int doctor_count(void);
void doctor_check(const struct doctor *doctor, unsigned int index, struct finding *ret);

/* Fills text and mend of a finding; what needs no mending has "" for it. */
void finding_set(struct finding *finding, enum health health, const char *mend, const char *format,
		 ...) __attribute__((format(printf, 4, 5)));
