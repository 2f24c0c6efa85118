#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerd as a service
 *
 * Tells the service manager, if there is one, that the broker starts, is ready, reads its
 * configuration again and stops; what it is doing, in a line, when that has changed, at most every
 * five seconds; and that the reactor still turns, three times as often as the watchdog asks for.
 * The reactor says all of it from its own loop: if it hangs, it falls silent. What the setup thread
 * or a device is busy with does not count. Nothing waits for the manager: what it cannot take is
 * sent again later. Reactor thread.
 */
#include <stddef.h>

#include "util/cleanup.h"

struct loop;
struct service;

enum {
	SERVICE_STATUS_BYTES = 256,
	SERVICE_PATH_BYTES = 108, /* of a socket, with the NUL */
};

enum {
	SERVICE_E_SOCKETS = 1, /* what was handed over cannot be listened on; logged */
};

/* Listening sockets that the manager has handed over, and where; 0: it has not. */
struct service_sockets {
	int fd, admin_fd;
	char path[SERVICE_PATH_BYTES], admin_path[SERVICE_PATH_BYTES];
};

/*
 * Takes the sockets named brokerd.sock and admin.sock, or one of any other name for the first of
 * these. Once, before there is a second thread. Return: 0; SERVICE_E_SOCKETS.
 */
int service_take_sockets(struct service_sockets *ret);

/* Writes what the broker is doing into @text, for people. */
typedef void (*service_describe_fn)(void *context, char *text, size_t bytes);

/* @loop is borrowed. Return: 0, also if there is no manager; negative errno. */
int service_new(struct loop *loop, struct service **ret);
/* Return: NULL. */
struct service *service_free(struct service *service);

/* Starting has come to a @step that may take long, so the manager is to be patient. */
void service_starting(struct service *service, const char *step);
/* Clients are served from here on. @describe is called until service_stopping(). */
void service_ready(struct service *service, service_describe_fn describe, void *context);
void service_reloading(struct service *service);
/* What was read is in force, or nothing has changed. */
void service_reloaded(struct service *service);
void service_stopping(struct service *service);

DEFINE_CLEANUP(struct service *, service_free)
