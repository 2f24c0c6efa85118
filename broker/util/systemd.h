#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What a service manager and a service say to each other
 *
 * systemd's protocols, which are documented, stable, and spoken by others too: state as datagrams
 * to $NOTIFY_SOCKET, the period of the watchdog, and listening sockets handed over as descriptors
 * from 3 on. Spoken here directly, because libsystemd's calls wait for a manager that is slow, and
 * the reactor must not. Without a manager all of it does nothing.
 *
 * Each is read once, at the start, before there is a second thread: what is in the environment is
 * removed from it.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	SYSTEMD_E_ADDRESS = 1,   /* $NOTIFY_SOCKET names no socket */
	SYSTEMD_E_BUSY = 2,      /* the manager cannot take it now */
	SYSTEMD_E_MALFORMED = 3, /* $LISTEN_PID or $LISTEN_FDS is no number */
	SYSTEMD_E_TOO_MANY = 4,  /* descriptors: more than SYSTEMD_MAX_FDS */
};

/* Where state goes. */
struct notifier {
	int fd; /* -1: nowhere */
	struct sockaddr_un address;
	socklen_t address_bytes;
};
#define NOTIFIER_INIT ((struct notifier){.fd = -1})

/* Return: 0, also if there is no manager; SYSTEMD_E_ADDRESS; negative errno. */
int notifier_init(struct notifier *ret);
void notifier_deinit(struct notifier *notifier);

/*
 * Sends assignments, one a line, as in sd_notify(3), in whole or not at all. Never waits.
 * Return: 0, also if there is no manager; SYSTEMD_E_BUSY; negative errno.
 */
int notifier_send(const struct notifier *notifier, const char *text);

/* How often at least this process has to say WATCHDOG=1; 0: need not. */
uint64_t systemd_watchdog_ns(void);

enum { SYSTEMD_FIRST_FD = 3, SYSTEMD_MAX_FDS = 8, SYSTEMD_NAME_BYTES = 64 };

/*
 * Descriptors from SYSTEMD_FIRST_FD on that were handed to this process; they are made
 * close-on-exec and not to block, and belong to the caller. Their names may be cut, or empty.
 * Return: 0; SYSTEMD_E_MALFORMED; SYSTEMD_E_TOO_MANY; negative errno, as where one is not open.
 */
int systemd_take_fds(char ret_names[SYSTEMD_MAX_FDS][SYSTEMD_NAME_BYTES], unsigned int *ret_n);
