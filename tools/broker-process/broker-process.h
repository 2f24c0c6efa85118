#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A private broker
 *
 * The broker is brokerd from the build tree of this program, from beside an installed program, or
 * from PATH. Its socket is in a directory of its own. Whatever ends this program also ends the
 * broker and removes the directory: before this program has ended on a normal exit and on signals,
 * a moment later after SIGKILL.
 */
#include <stddef.h>
#include <sys/types.h>

struct broker_process;

/*
 * Start a broker and wait until its socket answers. @arguments: additional arguments, ends with
 * NULL. @cpu: processor to which the broker's main thread, the reactor, is pinned; negative: none.
 * The directory is in TMPDIR if that is set and has at most 32 bytes, else in /tmp. If the broker
 * does not start, its output, or the reason why there is no directory, is written to standard
 * error.
 * Return: 0; -ENOENT: there is no brokerd; -ENOTDIR: its directory cannot be made, for any reason;
 * -ETIMEDOUT; -ECHILD: the broker ended at once; or another errno.
 */
int broker_process_new(const char *const *arguments, int cpu, struct broker_process **ret);

/*
 * Start a broker like broker_process_new(), but if it does not start, write the end of its output,
 * or the reason why there is no directory, to @said instead of standard error.
 */
int broker_process_try(const char *const *arguments, int cpu, struct broker_process **ret,
		       char *said, size_t said_bytes);

/*
 * Stop the broker with SIGTERM, after a timeout with SIGKILL, and remove its directory.
 * Return: NULL.
 */
struct broker_process *broker_process_free(struct broker_process *broker);

const char *broker_process_socket(const struct broker_process *broker);

/* Return the process id of brokerd. */
pid_t broker_process_pid(const struct broker_process *broker);

/*
 * Install handlers that stop brokers before a signal ends the program. Call once, before the first
 * broker is started.
 */
void broker_process_init(void);
