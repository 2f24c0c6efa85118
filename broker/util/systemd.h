#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The protocols between a service manager and a service
 *
 * These are systemd's protocols, which are documented, stable, and implemented by other managers
 * too: state as datagrams to $NOTIFY_SOCKET, the watchdog's period, and listening sockets as
 * descriptors from 3 on. They are implemented here, because libsystemd's calls wait for a slow
 * manager, and the reactor must not. Without a manager the functions do nothing.
 *
 * Each variable of the environment is read once, at the start, before there is a second thread, and
 * then removed.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	SYSTEMD_E_ADDRESS = 1,   /* $NOTIFY_SOCKET names no socket */
	SYSTEMD_E_BUSY = 2,      /* the manager cannot take the message now */
	SYSTEMD_E_MALFORMED = 3, /* $LISTEN_PID or $LISTEN_FDS is no number */
	SYSTEMD_E_TOO_MANY = 4,  /* more descriptors than SYSTEMD_MAX_FDS */
};

/* Destination of state messages. */
struct notifier {
	int fd; /* -1: none */
	struct sockaddr_un address;
	socklen_t address_bytes;
};
#define NOTIFIER_INIT ((struct notifier){.fd = -1})

/*
 * Initialize from $NOTIFY_SOCKET.
 * Return: 0, also if there is no manager; SYSTEMD_E_ADDRESS; negative errno.
 */
int notifier_init(struct notifier *ret);
void notifier_deinit(struct notifier *notifier);

/*
 * Send assignments, one per line, as in sd_notify(3), completely or not at all. Never waits.
 * Return: 0, also if there is no manager; SYSTEMD_E_BUSY; negative errno.
 */
int notifier_send(const struct notifier *notifier, const char *text);

/* Return the longest period between two WATCHDOG=1 messages of this process; 0: none are needed. */
uint64_t systemd_watchdog_ns(void);

enum { SYSTEMD_FIRST_FD = 3, SYSTEMD_MAX_FDS = 8, SYSTEMD_NAME_BYTES = 64 };

/*
 * Take the descriptors from SYSTEMD_FIRST_FD on that were passed to this process. They are made
 * close-on-exec and non-blocking, and belong to the caller. Their names may be cut, or empty.
 * Return: 0; SYSTEMD_E_MALFORMED; SYSTEMD_E_TOO_MANY; negative errno, for example if one is not
 * open.
 */
int systemd_take_fds(char ret_names[SYSTEMD_MAX_FDS][SYSTEMD_NAME_BYTES], unsigned int *ret_n);
