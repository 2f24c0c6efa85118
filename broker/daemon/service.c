/* SPDX-License-Identifier: MIT */
/*
 * brokerd as a service
 *
 * The manager must know the present state, not each transition. A datagram that the manager could
 * not take is not kept; the state at that time is sent a moment later.
 */
#include "daemon/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "loop/loop.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/systemd.h"

enum state {
	STATE_STARTING,
	STATE_READY,
	STATE_RELOADING,
	STATE_RESTARTING,
	STATE_STOPPING,
};

static const uint64_t status_ns = 5000000000u;
/* A watchdog that asks for more messages gets fewer, so that they do not use all the time. */
static const uint64_t watchdog_least_ns = 10000000;
static const uint64_t retry_ns = 100000000;
/*
 * Time for a step of starting: drivers compile and devices are measured, on a machine that may be
 * busy.
 */
static const uint64_t patience_us = 120000000;

struct service {
	struct notifier notifier;
	enum state state;
	uint64_t reloading_us; /* start of the reload, by the manager's clock */
	service_describe_fn describe;
	void *context;
	char status[SERVICE_STATUS_BYTES]; /* the last status that the manager has */
	uint64_t watchdog_ns;              /* time between watchdog messages; 0: not wanted */
	struct loop_timer *watchdog_timer, *status_timer, *retry_timer;
};

static void tell_state(struct service *service)
{
	char text[64 + SERVICE_STATUS_BYTES];

	switch (service->state) {
	case STATE_STARTING:
		return;
	case STATE_READY:
		service->describe(service->context, service->status, sizeof(service->status));
		snprintf(text, sizeof(text), "READY=1\nSTATUS=%s", service->status);
		break;
	case STATE_RELOADING:
		snprintf(text, sizeof(text),
			 "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=reading the policy again",
			 service->reloading_us);
		break;
	case STATE_RESTARTING:
		snprintf(text, sizeof(text),
			 "RELOADING=1\nMONOTONIC_USEC=%" PRIu64
			 "\nSTATUS=restarting: finishing the tasks in flight",
			 service->reloading_us);
		break;
	case STATE_STOPPING:
		snprintf(text, sizeof(text), "STOPPING=1\nSTATUS=finishing the tasks in flight");
		break;
	}
	if (notifier_send(&service->notifier, text) == SYSTEMD_E_BUSY)
		loop_timer_arm(service->retry_timer, retry_ns);
}

static void on_retry(void *data)
{
	tell_state(data);
}

static void on_watchdog(void *data)
{
	struct service *service = data;

	loop_timer_arm(service->watchdog_timer, service->watchdog_ns);
	notifier_send(&service->notifier, "WATCHDOG=1");
}

static void on_status(void *data)
{
	struct service *service = data;
	char status[SERVICE_STATUS_BYTES], text[16 + SERVICE_STATUS_BYTES];

	loop_timer_arm(service->status_timer, status_ns);
	if (service->state != STATE_READY)
		return;
	service->describe(service->context, status, sizeof(status));
	if (strcmp(status, service->status) == 0)
		return;
	snprintf(text, sizeof(text), "STATUS=%s", status);
	if (notifier_send(&service->notifier, text) == 0)
		strcpy(service->status, status);
}

int service_new(struct loop *loop, struct service **ret)
{
	_cleanup_(service_freep) struct service *service = calloc(1, sizeof(*service));
	uint64_t watchdog_ns;
	int r;

	if (!service)
		return error_origin(-ENOMEM);
	r = notifier_init(&service->notifier);
	if (r == SYSTEMD_E_ADDRESS) {
		log_warning(LOG_UNSUPERVISED,
			    "$NOTIFY_SOCKET does not name a socket: brokerd reports nothing to the "
			    "service manager");
		r = 0;
	}
	if (r)
		return error_fold(r);
	watchdog_ns = systemd_watchdog_ns();
	if (service->notifier.fd >= 0) {
		service->watchdog_ns = watchdog_ns / 3;
		if (watchdog_ns && service->watchdog_ns < watchdog_least_ns)
			service->watchdog_ns = watchdog_least_ns;
		r = loop_timer_new(loop, on_watchdog, service, &service->watchdog_timer);
		if (r == 0)
			r = loop_timer_new(loop, on_status, service, &service->status_timer);
		if (r == 0)
			r = loop_timer_new(loop, on_retry, service, &service->retry_timer);
		if (r)
			return error_fold(r);
	}
	*ret = steal_ptr(service);
	return 0;
}

struct service *service_free(struct service *service)
{
	if (!service)
		return NULL;
	loop_timer_free(service->watchdog_timer);
	loop_timer_free(service->status_timer);
	loop_timer_free(service->retry_timer);
	notifier_deinit(&service->notifier);
	free(service);
	return NULL;
}

void service_starting(struct service *service, const char *step)
{
	char text[SERVICE_STATUS_BYTES];

	snprintf(text, sizeof(text), "EXTEND_TIMEOUT_USEC=%" PRIu64 "\nSTATUS=%s", patience_us,
		 step);
	notifier_send(&service->notifier, text);
}

static void set_state(struct service *service, enum state state)
{
	service->state = state;
	if (service->notifier.fd >= 0)
		tell_state(service);
}

void service_ready(struct service *service, service_describe_fn describe, void *context)
{
	service->describe = describe;
	service->context = context;
	set_state(service, STATE_READY);
	if (service->notifier.fd < 0)
		return;
	loop_timer_arm(service->status_timer, status_ns);
	/* systemd's watchdog starts to count now. */
	if (service->watchdog_ns)
		on_watchdog(service);
}

void service_reloading(struct service *service)
{
	service->reloading_us = clock_now_ns() / 1000;
	set_state(service, STATE_RELOADING);
}

void service_reloaded(struct service *service)
{
	if (service->state == STATE_RELOADING || service->state == STATE_RESTARTING)
		set_state(service, STATE_READY);
}

void service_restarting(struct service *service)
{
	service->reloading_us = clock_now_ns() / 1000;
	set_state(service, STATE_RESTARTING);
}

void service_stopping(struct service *service)
{
	set_state(service, STATE_STOPPING);
}

/* --- Sockets --- */

static int socket_option(int fd, int option)
{
	socklen_t bytes = sizeof(int);
	int value = -1;

	return getsockopt(fd, SOL_SOCKET, option, &value, &bytes) < 0 ? -1 : value;
}

static void describe_address(int fd, char ret[SERVICE_PATH_BYTES])
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t bytes = sizeof(address);
	size_t n = 0;

	if (getsockname(fd, (struct sockaddr *)&address, &bytes) == 0 &&
	    bytes > offsetof(struct sockaddr_un, sun_path))
		n = bytes - offsetof(struct sockaddr_un, sun_path);
	if (n >= SERVICE_PATH_BYTES)
		n = SERVICE_PATH_BYTES - 1;
	memcpy(ret, address.sun_path, n);
	ret[n] = '\0';
	if (n > 0 && ret[0] == '\0')
		ret[0] = '@';
}

static int refuse_socket(const char *name, const char *why)
{
	log_error(LOG_START_FAILED, "the inherited socket \"%s\" %s", name, why);
	return SERVICE_E_SOCKETS;
}

static int take_socket(struct service_sockets *sockets, int fd, const char *name, bool is_only)
{
	bool is_admin = strcmp(name, "admin.sock") == 0;
	int *at = is_admin ? &sockets->admin_fd : &sockets->fd;

	if (!is_admin && !is_only && strcmp(name, "brokerd.sock") != 0)
		return refuse_socket(name, "is neither brokerd.sock nor admin.sock: set "
					   "FileDescriptorName= in its unit");
	if (*at)
		return refuse_socket(name, "was passed twice");
	if (socket_option(fd, SO_DOMAIN) != AF_UNIX || socket_option(fd, SO_TYPE) != SOCK_SEQPACKET)
		return refuse_socket(name, "is not a Unix socket of packets: its unit needs "
					   "ListenSequentialPacket=");
	if (socket_option(fd, SO_ACCEPTCONN) != 1)
		return refuse_socket(name, "does not listen: its unit needs Accept=no");
	*at = fd;
	describe_address(fd, is_admin ? sockets->admin_path : sockets->path);
	return 0;
}

static int refuse_sockets(int r)
{
	if (r == SYSTEMD_E_MALFORMED)
		log_error(LOG_START_FAILED, "$LISTEN_PID and $LISTEN_FDS must be numbers");
	else if (r == SYSTEMD_E_TOO_MANY)
		log_error(LOG_START_FAILED,
			  "$LISTEN_FDS passes more than %d sockets: brokerd takes brokerd.sock and "
			  "admin.sock",
			  SYSTEMD_MAX_FDS);
	else
		log_error(LOG_START_FAILED, "cannot take the sockets of $LISTEN_FDS: %s",
			  strerror(-r));
	return SERVICE_E_SOCKETS;
}

int service_take_sockets(struct service_sockets *ret)
{
	char names[SYSTEMD_MAX_FDS][SYSTEMD_NAME_BYTES];
	unsigned int n = 0;
	int r = systemd_take_fds(names, &n);

	*ret = (struct service_sockets){.fd = 0};
	if (r)
		return refuse_sockets(r);
	for (unsigned int i = 0; i < n && r == 0; i++)
		r = take_socket(ret, SYSTEMD_FIRST_FD + (int)i, names[i], n == 1);
	return r;
}
