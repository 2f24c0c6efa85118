#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerd as a service
 *
 * This module tells the service manager, if there is one, that the broker starts, is ready, reloads
 * its configuration and stops. It also sends a status line when it has changed, at most every five
 * seconds, and watchdog messages, three times as often as the watchdog asks for. The reactor sends
 * all messages from its own loop: if it hangs, they stop. Work of the setup thread or a device does
 * not matter. No thread waits for the manager: a message that it cannot take is sent again later.
 * Reactor thread.
 */
#include <stdbool.h>
#include <stddef.h>

#include "util/cleanup.h"

struct loop;
struct service;

enum {
	SERVICE_STATUS_BYTES = 256,
	SERVICE_PATH_BYTES = 108, /* path of a socket, with the NUL */
};

enum {
	SERVICE_E_SOCKETS = 1, /* the sockets handed over cannot be listened on; logged */
};

/* Listening sockets that the manager has handed over, and their paths. fd 0: not handed over. */
struct service_sockets {
	int fd, admin_fd;
	bool is_own; /* passed by an earlier broker: their paths are this broker's */
	char path[SERVICE_PATH_BYTES], admin_path[SERVICE_PATH_BYTES];
};

/*
 * Take the sockets named brokerd.sock and admin.sock; a single socket of any other name counts as
 * brokerd.sock. Call once, before there is a second thread. Return: 0; SERVICE_E_SOCKETS.
 */
int service_take_sockets(struct service_sockets *ret);

/* Write the broker's status for people into @text. */
typedef void (*service_describe_fn)(void *context, char *text, size_t bytes);

/* @loop is borrowed. Return: 0, also if there is no manager; negative errno. */
int service_new(struct loop *loop, struct service **ret);
/* Return: NULL. */
struct service *service_free(struct service *service);

/* Report a @step of starting that may take long, so that the manager waits. */
void service_starting(struct service *service, const char *step);
/* Report that clients are served. @describe is called until service_stopping(). */
void service_ready(struct service *service, service_describe_fn describe, void *context);
void service_reloading(struct service *service);
/* Report that the new configuration is in force, or that nothing has changed. */
void service_reloaded(struct service *service);
void service_stopping(struct service *service);
/* Report that the next broker is about to take over; service_reloaded(): it could not. */
void service_restarting(struct service *service);

DEFINE_CLEANUP(struct service *, service_free)
