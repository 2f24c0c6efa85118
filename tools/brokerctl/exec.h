#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerctl exec: a program that is held to a lease
 *
 * exec.c obtains the lease and keeps it while the program runs, exec-program.c runs it, the others
 * see to what is around it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <sys/types.h>

#include "broker/util/dmem.h"

/* As of env(1) and timeout(1): our own failure; not executable; not found. */
enum { EXEC_FAILED = 125, EXEC_NOT_EXECUTABLE = 126, EXEC_NOT_FOUND = 127 };

enum { EXEC_PATH_BYTES = 4096, EXEC_TEXT_BYTES = 512 };

/* exec-layer.c */

/*
 * Would a loader of Vulkan find our layer, and would it use it, in a program that is given this
 * process's environment? Its manifest's path, or a sentence on what is missing, goes to @ret_text;
 * to @ret_mend the command that mends it, or "".
 */
bool exec_layer_find(char ret_text[EXEC_TEXT_BYTES], const char **ret_mend);

/* exec-hints.c */

/* Sets what well-known programs need to make use of a lease of @bytes. @say, if it is not NULL, is
 * called with each variable. What is set already stays. Return: 0 or a negative errno. */
int exec_hints_set(uint64_t bytes, void (*say)(const char *name, const char *value));

/* exec-cgroup.c */

/* A cgroup below this process's, for a program. */
struct exec_cgroup {
	char path[EXEC_PATH_BYTES];   /* ""; there is none */
	char parent[EXEC_PATH_BYTES]; /* where this process was when that was made */
	char own[EXEC_PATH_BYTES];    /* where it is now; "": in the parent */
	int fd;                       /* its folder; -1: there is none, or it cannot be opened */
};

/* Makes one. Return: false, and in @ret_text why not. */
bool exec_cgroup_make(struct exec_cgroup *ret, char ret_text[EXEC_TEXT_BYTES]);
/*
 * Sees to it that it has a controller, if this process may, and if it can do so without harm to
 * others. This process may be in another cgroup after that, if @may_stay says so when it is in
 * there. Return: false, and in @ret_text why not.
 */
bool exec_cgroup_enable(struct exec_cgroup *cgroup, const char *controller,
			bool (*may_stay)(void *data), void *data, char ret_text[EXEC_TEXT_BYTES]);
/* Moves the calling process there, and back. Return: false, errno says why. */
bool exec_cgroup_enter(const struct exec_cgroup *cgroup);
bool exec_cgroup_leave(const struct exec_cgroup *cgroup);
/* Unless somebody is still there. What was done for @controller is undone, if nobody needs it. */
void exec_cgroup_remove(struct exec_cgroup *cgroup, const char *controller);

/* exec-dmem.c */

/* What the kernel holds a cgroup to, of one device's memory. */
struct exec_dmem {
	int fd; /* the cgroup's folder, borrowed */
	bool has_region;
	char region[DMEM_REGION_BYTES];
	uint64_t wanted_bytes, set_bytes; /* dmem.max as it should be, and as it was read back */
	uint64_t peak_bytes;              /* that was seen in use */
	bool is_held;                     /* to wanted_bytes or less, as of the last look */
};

/*
 * Begins to hold it to @max_bytes, and protects @low_bytes. @memory: what the broker says that the
 * regions are called. Return: does it hold? @ret_text says what does and what does not.
 */
bool exec_dmem_begin(struct exec_dmem *dmem, int cgroup_fd, const char *memory, uint64_t max_bytes,
		     uint64_t low_bytes, char ret_text[EXEC_TEXT_BYTES]);
/*
 * It should be held to @max_bytes now; looks whether it is, also if that is what it was before.
 * Return: is there something new, to be said with @ret_text?
 */
bool exec_dmem_follow(struct exec_dmem *dmem, uint64_t max_bytes, char ret_text[EXEC_TEXT_BYTES]);
/* Looks how much is in use. */
void exec_dmem_note_use(struct exec_dmem *dmem);

/* exec-program.c */

struct exec_program {
	char **argv;
	/* Called in the new process before it becomes the program. */
	void (*prepare)(void *data);
	/* The connection's end, for poll(); -1: it is lost, and @mend is called once a second. */
	int (*fd)(void *data);
	void (*mend)(void *data);
	/* Called once a second; NULL: never. */
	void (*tick)(void *data);
	void *data;
	void (*sigpipe)(int); /* what SIGPIPE was */
};

/*
 * Runs it to its end, passing signals on. Return: its exit status, 128 and its number of a signal;
 * or EXEC_*, without *ret_was_run: it could not be started, of which it was said why.
 */
int exec_program_run(const struct exec_program *program, bool *ret_was_run);
