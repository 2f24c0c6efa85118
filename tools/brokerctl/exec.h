#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerctl exec: run a program under a lease
 *
 * exec.c obtains the lease and keeps it while the program runs; exec-program.c runs the program;
 * the other files set up its environment, its cgroup and the kernel's limits.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <sys/types.h>

#include "broker/util/dmem.h"

/* Exit statuses as in env(1) and timeout(1): brokerctl's own failure; not executable; not found. */
enum { EXEC_FAILED = 125, EXEC_NOT_EXECUTABLE = 126, EXEC_NOT_FOUND = 127 };

enum { EXEC_PATH_BYTES = 4096, EXEC_TEXT_BYTES = 512 };

/* exec-layer.c */

enum exec_layer {
	EXEC_LAYER_WORKS = 0,
	EXEC_LAYER_ABSENT, /* not installed */
	EXEC_LAYER_OFF,    /* the environment disables it */
	EXEC_LAYER_BROKEN, /* installed, but cannot be loaded */
};

/*
 * Check whether a Vulkan loader would find and use the lease layer in a program that inherits this
 * process's environment. @ret_text receives the path of the layer's manifest, or a sentence that
 * says what is missing. @ret_mend receives the command that repairs it, or "".
 */
enum exec_layer exec_layer_find(char ret_text[EXEC_TEXT_BYTES], const char **ret_mend);

/* exec-hints.c */

/*
 * Set the environment variables that well-known programs need to use a lease of @bytes. Variables
 * that are set already stay as they are. Call @say, unless NULL, with each variable that is set.
 * Return: 0, or a negative errno.
 */
int exec_hints_set(uint64_t bytes, bool sleeps, void (*say)(const char *name, const char *value));

/* exec-cgroup.c */

/* A cgroup for the program, below the cgroup in which this process began. */
struct exec_cgroup {
	char path[EXEC_PATH_BYTES];   /* "": no cgroup */
	char parent[EXEC_PATH_BYTES]; /* this process's cgroup when path was created */
	char own[EXEC_PATH_BYTES];    /* this process's cgroup now; "": the parent */
	int fd; /* folder of path; -1: no cgroup, or the folder cannot be opened */
};

/*
 * Create a cgroup for the program.
 * Return: false on failure, with the reason in @ret_text.
 */
bool exec_cgroup_make(struct exec_cgroup *ret, char ret_text[EXEC_TEXT_BYTES]);
/*
 * Enable the dmem controller for the cgroup, if this process may and if other processes are not
 * harmed. This may move this process to another cgroup; @may_stay is called there and returns
 * whether the process may stay.
 * Return: false on failure, with the reason in @ret_text.
 */
bool exec_cgroup_enable(struct exec_cgroup *cgroup, bool (*may_stay)(void *data), void *data,
			char ret_text[EXEC_TEXT_BYTES]);
/*
 * Move the calling process into the cgroup, or back to where it was.
 * Return: false on failure, with errno set.
 */
bool exec_cgroup_enter(const struct exec_cgroup *cgroup);
bool exec_cgroup_leave(const struct exec_cgroup *cgroup);
/*
 * Remove the cgroup unless processes remain in it. Disable the controller again in the parent if no
 * other cgroup needs it.
 */
void exec_cgroup_remove(struct exec_cgroup *cgroup);

/* exec-dmem.c */

/* The kernel's limit on a cgroup's use of one device's memory (dmem). */
struct exec_dmem {
	int fd; /* folder of the cgroup, borrowed */
	bool has_region;
	char region[DMEM_REGION_BYTES];
	uint64_t wanted_bytes, set_bytes; /* dmem.max as requested, and as read back */
	uint64_t peak_bytes;              /* largest use observed */
	bool is_held;                     /* at the last check dmem.max was at most wanted_bytes */
};

/*
 * Limit the cgroup to @max_bytes (dmem.max), and protect @low_bytes (dmem.low). @memory: the
 * broker's name of the device's memory regions.
 * Return: true if the limit is in force. @ret_text says which limits are in force and which are
 * not.
 */
bool exec_dmem_begin(struct exec_dmem *dmem, int cgroup_fd, const char *memory, uint64_t max_bytes,
		     uint64_t low_bytes, char ret_text[EXEC_TEXT_BYTES]);
/*
 * Set the limit to @max_bytes, and check that it is in force, even if it has not changed.
 * Return: true if the state has changed; @ret_text then describes the new state.
 */
bool exec_dmem_follow(struct exec_dmem *dmem, uint64_t max_bytes, char ret_text[EXEC_TEXT_BYTES]);
/* Update peak_bytes from the current use. */
void exec_dmem_note_use(struct exec_dmem *dmem);

/* exec-program.c */

struct exec_program {
	char **argv;
	/* called in the new process before it becomes the program */
	void (*prepare)(void *data);
	/* returns the connection's descriptor; -1: lost, and mend is called once a second */
	int (*fd)(void *data);
	void (*mend)(void *data);
	/* called once a second; NULL: never */
	void (*tick)(void *data);
	void *data;
	void (*sigpipe)(int); /* disposition of SIGPIPE that the program inherits */
};

/*
 * Run the program to its end, passing signals on.
 * Return: the program's exit status, or 128 plus the signal's number; if the program could not be
 * started, EXEC_* after an error message, with *@ret_was_run false.
 */
int exec_program_run(const struct exec_program *program, bool *ret_was_run);
