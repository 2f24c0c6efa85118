#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Checks of this machine: kernel, devices and the broker's rights
 *
 * Each check examines one thing: files of the kernel below a root folder that tests can choose, the
 * result of one system call, or the running broker's process.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum health {
	HEALTH_OK,
	HEALTH_WARN, /* works, but with restrictions */
	HEALTH_FAIL, /* does not work */
	HEALTH_SKIP, /* not needed here, or unknown to this user, or without a broker */
};
const char *health_name(enum health health);

enum { FINDING_BYTES = 384 };

struct finding {
	const char *name; /* "io-uring" */
	const char *why;  /* why the check matters */
	enum health health;
	char text[FINDING_BYTES]; /* the result, in words */
	char mend[FINDING_BYTES]; /* the remedy, a command or an instruction; "": none needed */
};

struct doctor {
	const char *root; /* prefix of the kernel's paths; "": none */
	pid_t pid;        /* the running broker's; 0: no broker, or not known */
	/* what the broker reports about its devices */
	bool has_devices, has_gpu, has_software_gpu;
	char gpu[64];      /* name of its first GPU, or of its software device */
	bool imports_host; /* the broker has such a device, and none of them needs udmabuf */
	bool uses_udmabuf; /* one of them uses it */
	/* the broker watches contention with its own probes; this user may know */
	bool has_probes, knows_probes;
	uint32_t sandbox;  /* enum rbk_stats_sandbox */
	bool knows_upkeep; /* this user may know the sandbox, if the broker reports it */
};

/* Return the number of checks; doctor_check() fills one finding for each index below it. */
unsigned int doctor_count(void);
void doctor_check(const struct doctor *doctor, unsigned int index, struct finding *ret);

/* Return true if systemd has a unit of that name: "brokerd.service". */
bool doctor_has_unit(const struct doctor *doctor, const char *name);
/* Return true if the running broker is systemd's brokerd.service. */
bool doctor_is_service(const struct doctor *doctor);

/* Fill the text and the mend of a finding; @mend is "" if nothing needs repair. */
void finding_set(struct finding *finding, enum health health, const char *mend, const char *format,
		 ...) __attribute__((format(printf, 4, 5)));
