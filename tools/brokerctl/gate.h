#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The device gate: closing, opening and listing gates
 *
 * gate.c is the subcommand. gate-load.c loads the kernel's part. gate-view.c reads the state of
 * gates, for other subcommands too. util/gate-path.h defines the paths.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/device-gate-layout.h"

struct control;

enum { GATE_TEXT_BYTES = 512, GATE_MAX = 64, GATE_PINS = 64 };

/* gate-load.c; gate-load-stub.c in builds without BPF programs. */

/* A gate that is being closed. */
struct gate_load;

struct gate_plan {
	int folder_fd; /* folder of the BPF file system in which the gate is pinned */
	int cgroup_fd;
	struct device_gate_record record; /* everything but the counts */
	uid_t uid;                        /* owner of pinned maps: the broker's user */
	gid_t gid;                        /* group that may read pinned maps */
};

/*
 * Load the program and pin its maps; the map of holders may be pinned already.
 * Return: NULL on failure, with the reason in @ret_text.
 */
struct gate_load *gate_load_new(const struct gate_plan *plan, char ret_text[GATE_TEXT_BYTES]);
/*
 * Attach the program: from now on the gate is closed.
 * Return: false on failure, with the reason in @ret_text.
 */
bool gate_load_attach(struct gate_load *load, char ret_text[GATE_TEXT_BYTES]);
/*
 * Free @load. A gate that is closed stays closed.
 * Return: NULL.
 */
struct gate_load *gate_load_free(struct gate_load *load);

/* gate-view.c */

struct gate_view {
	uint64_t cgroup;
	bool is_known; /* false: this user may not read the record */
	bool is_gone;  /* the cgroup no longer exists, so the gate has no effect */
	struct device_gate_record record;
};

struct gate_views {
	char folder[PATH_MAX];
	bool is_there;
	bool may_look; /* false: this user may not list the folder */
	unsigned int n;
	struct gate_view gates[GATE_MAX];
	bool knows_holders;
	uint32_t n_holders; /* leases that may pass */
	pid_t broker;       /* the broker that admits leases; 0: none */
};

/* Read the gates of the broker that @control refers to. */
void gate_views_read(const struct control *control, struct gate_views *ret);
/* Write to @ret the folder of that broker's gates. */
void gate_folder(const struct control *control, char ret[static PATH_MAX]);
/*
 * List the most recent refusals, newest first.
 * Return: the number of refusals.
 */
unsigned int gate_refusals(const struct device_gate_record *record,
			   const struct device_gate_refusal *ret[DEVICE_GATE_REFUSALS]);
/* Return a text such as "process 12 (glxgears) of uid 1000, device 226:128, 4 s ago". Static. */
const char *gate_refusal_text(const struct device_gate_refusal *refusal);
/* Return a text such as "12 opens refused, the last one that of process ...". Static storage. */
const char *gate_count_text(const struct device_gate_record *record);
/* Return the cgroup's path, or its number if the path is not known. Static storage. */
const char *gate_name(const struct gate_view *gate);
/*
 * Return true if this process is behind one of the broker's gates; @ret receives that cgroup's
 * path.
 */
bool gate_is_over_self(const struct control *control, char ret[static PATH_MAX]);
