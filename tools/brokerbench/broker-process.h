#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A private broker
 *
 * brokerd from the build tree that this program lies in, or else from PATH, on a socket in a
 * directory of its own. Whatever way this program ends, the broker ends too: on return and on
 * signals by its process id, otherwise because it is told when its parent dies.
 */
#include <sys/types.h>

struct broker_process;

/*
 * Starts a broker and waits until its socket answers. @arguments: further ones, ended by NULL.
 * Its log goes to a file of the directory and is shown only if it does not start. @cpu: pins the
 * broker's main thread, the reactor; below 0: not.
 * Return: 0; -ENOENT: there is no brokerd; -ETIMEDOUT; -ECHILD: it ended at once; other errno.
 */
int broker_process_new(const char *const *arguments, int cpu, struct broker_process **ret);

/* Stops it (SIGTERM, after a while SIGKILL) and removes its directory. Return: NULL. */
struct broker_process *broker_process_free(struct broker_process *broker);

const char *broker_process_socket(const struct broker_process *broker);
pid_t broker_process_pid(const struct broker_process *broker);

/* Makes the signals that end programs stop the broker first. Once, before the first broker. */
void broker_process_init(void);
