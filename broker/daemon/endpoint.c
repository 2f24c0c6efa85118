/* SPDX-License-Identifier: MIT */
/*
 * Metrics of this broker
 *
 * While there are scrapes, the endpoint is a watcher of the root page: figures are updated several
 * times a second, as for brokertop, and a scrape costs the reactor nothing. After a minute without
 * a scrape the endpoint rests, and costs nothing either. The next scrape wakes the reactor and is
 * answered when the page is up to date; if the reactor hangs, with the old figures.
 */
#include "daemon/endpoint.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "control/metrics.h"
#include "daemon/options.h"
#include "loop/loop.h"
#include "session/server.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"

/* Time to wait for the reactor, which may be in the middle of a turn. */
enum { PATIENCE_MS = 500 };

struct endpoint {
	struct server *server;
	struct metrics *metrics;
	struct loop_watch *watch;
	struct loop_timer *timer;
	int wake_fd;
	uint64_t awake_ns;
	bool is_watching;
	/* rests: written by the reactor; scraped_ns: written by the endpoint's thread. */
	_Atomic bool rests;
	_Atomic uint64_t scraped_ns;
};

/* Say why there are no metrics. Return: the status to exit with. */
static int explain(const struct options *options, int r, char *sentence, size_t bytes)
{
	const char *where = options->metrics.text;

	switch (r) {
	case METRICS_E_IN_USE:
		snprintf(sentence, bytes,
			 "another program listens on %s; choose another address for --metrics",
			 where);
		return OPTIONS_EXIT_USAGE;
	case METRICS_E_PERMISSION:
		snprintf(sentence, bytes,
			 "brokerd has no permission to listen on %s; choose another address for "
			 "--metrics",
			 where);
		return OPTIONS_EXIT_USAGE;
	case METRICS_E_PATH:
		snprintf(sentence, bytes,
			 "cannot make a socket at %s: the folder does not exist; choose another "
			 "address for --metrics",
			 where);
		return OPTIONS_EXIT_USAGE;
	case METRICS_E_NO_SOCKET:
		snprintf(sentence, bytes,
			 "%s exists and is not a socket; choose another address for --metrics",
			 where);
		return OPTIONS_EXIT_USAGE;
	case METRICS_E_NO_LIBRARY:
		snprintf(sentence, bytes,
			 "this brokerd was built without libmicrohttpd, which --metrics needs");
		return OPTIONS_EXIT_USAGE;
	default:
		snprintf(sentence, bytes, "cannot serve metrics on %s: %s", where, strerror(-r));
		return OPTIONS_EXIT_FAILURE;
	}
}

static int log_why(const struct options *options, int r)
{
	char sentence[512];

	r = explain(options, r, sentence, sizeof(sentence));
	log_error(LOG_START_FAILED, "%s", sentence);
	return r;
}

bool endpoint_try(const struct options *options, char *sentence, size_t bytes)
{
	const struct metrics_address *address = &options->metrics.address;
	int fd, r = metrics_listen(address, (gid_t)-1, &fd, NULL);

	if (r) {
		explain(options, r, sentence, bytes);
		return false;
	}
	close(fd);
	if (address->socket.any.sa_family == AF_UNIX)
		unlink(address->socket.local.sun_path);
	return true;
}

/* --- Resting --- */

static void on_timer(void *data)
{
	struct endpoint *endpoint = data;
	const uint64_t idle_ns = clock_now_ns() - atomic_load(&endpoint->scraped_ns);

	if (idle_ns < endpoint->awake_ns) {
		loop_timer_arm(endpoint->timer, endpoint->awake_ns - idle_ns);
		return;
	}
	server_rest_root(endpoint->server, true);
	atomic_store(&endpoint->rests, true);
}

static void on_wake(void *data, uint32_t events)
{
	struct endpoint *endpoint = data;
	eventfd_t n;

	(void)!eventfd_read(endpoint->wake_fd, &n);
	if (!atomic_load(&endpoint->rests))
		return;
	server_rest_root(endpoint->server, false);
	atomic_store(&endpoint->rests, false);
	loop_timer_arm(endpoint->timer, endpoint->awake_ns);
}

/* Runs on the endpoint's thread. */
static void on_scraped(void *context)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct endpoint *endpoint = context;

	atomic_store(&endpoint->scraped_ns, clock_now_ns());
	if (!atomic_load(&endpoint->rests))
		return;
	eventfd_write(endpoint->wake_fd, 1);
	for (unsigned int i = 0; i < PATIENCE_MS && atomic_load(&endpoint->rests); i++)
		nanosleep(&pause, NULL);
}

/* --- Start and stop --- */

/* Return: 0; as metrics_new(). */
static int start(struct endpoint *endpoint, struct loop *loop, struct metrics_options *options)
{
	int r;

	endpoint->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (endpoint->wake_fd < 0)
		return error_origin(-errno);
	r = loop_watch(loop, endpoint->wake_fd, POLLIN, on_wake, endpoint, &endpoint->watch);
	if (r == 0)
		r = loop_timer_new(loop, on_timer, endpoint, &endpoint->timer);
	if (r == 0)
		r = server_watch_root(endpoint->server, &options->view);
	if (r)
		return error_fold(r);
	endpoint->is_watching = true;
	server_rest_root(endpoint->server, true);
	atomic_store(&endpoint->rests, true);
	return metrics_new(options, &endpoint->metrics);
}

int endpoint_start(const struct options *options, struct loop *loop, struct server *server,
		   uint64_t awake_ns, struct endpoint **ret)
{
	struct endpoint *endpoint;
	struct metrics_options metrics_options = {
		.address = options->metrics.address,
		.gid = options->has_admin_group ? options->admin_group : (gid_t)-1,
		.version = RINGBROKER_VERSION,
		.scraped = on_scraped,
	};
	int r;

	*ret = NULL;
	if (options->metrics.address.bytes == 0)
		return 0;
	endpoint = calloc(1, sizeof(*endpoint));
	if (!endpoint)
		return log_why(options, error_origin(-ENOMEM));
	endpoint->server = server;
	endpoint->wake_fd = -1;
	endpoint->awake_ns = awake_ns;
	metrics_options.context = endpoint;
	r = start(endpoint, loop, &metrics_options);
	if (r) {
		endpoint_stop(endpoint);
		return log_why(options, r);
	}
	if (!metrics_has_group(endpoint->metrics))
		log_warning(LOG_METRICS_SOCKET,
			    "cannot give %s to the administrators' group: only this user may "
			    "access it",
			    options->metrics.text);
	log_info(LOG_LISTENING, "serving metrics for Prometheus on %s", options->metrics.text);
	*ret = endpoint;
	return 0;
}

struct endpoint *endpoint_stop(struct endpoint *endpoint)
{
	if (!endpoint)
		return NULL;
	metrics_free(endpoint->metrics);
	if (endpoint->is_watching && endpoint->rests)
		server_rest_root(endpoint->server, false);
	if (endpoint->is_watching)
		server_unwatch_root(endpoint->server);
	loop_unwatch(endpoint->watch);
	loop_timer_free(endpoint->timer);
	close_fd(endpoint->wake_fd);
	free(endpoint);
	return NULL;
}
