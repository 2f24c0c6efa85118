#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A private broker
 *
 * brokerd from the build tree that this program lies in, or from beside an installed one, or else
 * from PATH, on a socket in a directory of its own. Whatever way this program ends, the broker ends
 * too and the directory goes: on return and on signals before this program has ended, after SIGKILL
 * a moment later.
 */
#include <stddef.h>
#include <sys/types.h>

struct broker_process;

/*
 * Starts a broker and waits until its socket answers. @arguments: further ones, ended by NULL.
 * @cpu: pins the broker's main thread, the reactor; below 0: not. Its directory lies in TMPDIR, if
 * that is set and has 32 bytes at most, else in /tmp. What the broker said before it did not start,
 * or why there is no directory, goes to standard error.
 * Return: 0; -ENOENT: there is no brokerd; -ENOTDIR: no directory can be made for it, whatever the
 * reason; -ETIMEDOUT; -ECHILD: it ended at once; other errno.
 */
int broker_process_new(const char *const *arguments, int cpu, struct broker_process **ret);

/*
 * The same, without a word to standard error if it does not start: what the broker said, of which
 * the end counts, or why there is no directory, goes to @said instead.
 */
int broker_process_try(const char *const *arguments, int cpu, struct broker_process **ret,
		       char *said, size_t said_bytes);

/* Stops it (SIGTERM, after a while SIGKILL) and removes its directory. Return: NULL. */
struct broker_process *broker_process_free(struct broker_process *broker);

const char *broker_process_socket(const struct broker_process *broker);

/* Makes the signals that end programs stop the broker first. Once, before the first broker. */
void broker_process_init(void);
