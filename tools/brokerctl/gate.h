#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The device gate, as brokerctl closes, opens and sees it
 *
 * gate.c is the subcommand, gate-load.c loads the kernel's part, gate-view.c tells what is there,
 * for other subcommands, too. Where things are says util/gate-path.h.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/device-gate-layout.h"

struct control;

enum { GATE_TEXT_BYTES = 512, GATE_MAX = 64, GATE_PINS = 64 };

/* gate-load.c; gate-load-stub.c where programs for the kernel are not built. */

/* A gate that is about to be closed. */
struct gate_load;

struct gate_plan {
	int folder_fd; /* of the file system where it is to be pinned */
	int cgroup_fd;
	struct device_gate_record record; /* all but the counts */
	uid_t uid;                        /* the broker's user, and who may look */
	gid_t gid;
};

/*
 * Loads the program, and pins the maps, of which that of holders may be there already. Return:
 * NULL, and in @ret_text why.
 */
struct gate_load *gate_load_new(const struct gate_plan *plan, char ret_text[GATE_TEXT_BYTES]);
/* From now on it is closed. Return: false, and in @ret_text why. */
bool gate_load_attach(struct gate_load *load, char ret_text[GATE_TEXT_BYTES]);
/* A gate that is closed stays. Return: NULL. */
struct gate_load *gate_load_free(struct gate_load *load);

/* gate-view.c */

struct gate_view {
	uint64_t cgroup;
	bool is_known; /* else this user may not see the record */
	bool is_gone;  /* its cgroup is: nothing is closed any more */
	struct device_gate_record record;
};

struct gate_views {
	char folder[PATH_MAX];
	bool is_there;
	bool may_look; /* else there is nothing below */
	unsigned int n;
	struct gate_view gates[GATE_MAX];
	bool knows_holders;
	uint32_t n_holders; /* leases that may pass */
	pid_t broker;       /* that lets them in; 0: none does */
};

/* Of the broker that @control is for. */
void gate_views_read(const struct control *control, struct gate_views *ret);
/* The folder of that broker's gates. */
void gate_folder(const struct control *control, char ret[static PATH_MAX]);
/* The last ones, newest first. Return: how many. */
unsigned int gate_refusals(const struct device_gate_record *record,
			   const struct device_gate_refusal *ret[DEVICE_GATE_REFUSALS]);
/* "process 12 (glxgears) of uid 1000, device 226:128, 4 s ago". Static storage. */
const char *gate_refusal_text(const struct device_gate_refusal *refusal);
/* "12 opens refused, the last one that of process ...". Static storage. */
const char *gate_count_text(const struct device_gate_record *record);
/* The path of the cgroup, or its number. Static storage. */
const char *gate_name(const struct gate_view *gate);
/* Is this process behind one of them? Its cgroup's path goes to @ret. */
bool gate_is_over_self(const struct control *control, char ret[static PATH_MAX]);
