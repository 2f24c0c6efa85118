/* SPDX-License-Identifier: MIT */
/*
 * Metrics of this broker
 *
 * The endpoint is one watcher of the root page, for as long as the broker runs: figures are brought
 * up to date several times a second whether somebody scrapes or not, as they are for brokertop, and
 * a scrape costs the reactor nothing.
 */
#include "endpoint.h"

#include <string.h>

#include "control/metrics.h"
#include "options.h"
#include "session/server.h"
#include "util/error.h"
#include "util/log.h"

/* Return: the status to exit with. */
static int explain(const struct options *options, int r)
{
	const char *where = options->metrics;

	switch (r) {
	case METRICS_E_IN_USE:
		log_error(LOG_START_FAILED,
			  "somebody else listens on %s; choose another address for --metrics",
			  where);
		return OPTIONS_EXIT_USAGE;
	case METRICS_E_PERMISSION:
		log_error(LOG_START_FAILED,
			  "no permission to listen on %s; choose another address for --metrics",
			  where);
		return OPTIONS_EXIT_USAGE;
	case METRICS_E_PATH:
		log_error(LOG_START_FAILED, "cannot make a socket at %s: its folder does not exist",
			  where);
		return OPTIONS_EXIT_USAGE;
	case METRICS_E_NO_SOCKET:
		log_error(LOG_START_FAILED,
			  "%s is there and is no socket; choose another address for --metrics",
			  where);
		return OPTIONS_EXIT_USAGE;
	case METRICS_E_NO_LIBRARY:
		log_error(LOG_START_FAILED,
			  "this brokerd was built without libmicrohttpd, which --metrics needs");
		return OPTIONS_EXIT_USAGE;
	default:
		log_error(LOG_START_FAILED, "cannot serve metrics on %s: %s", where, strerror(-r));
		return OPTIONS_EXIT_FAILURE;
	}
}

int endpoint_start(const struct options *options, struct server *server, struct metrics **ret)
{
	struct metrics_options metrics_options = {
		.address = options->metrics_address,
		.gid = options->has_admin_group ? options->admin_group : (gid_t)-1,
		.version = RINGBROKER_VERSION,
	};
	int r;

	*ret = NULL;
	if (options->metrics_address.bytes == 0)
		return 0;
	r = server_watch_root(server, &metrics_options.view);
	if (r)
		return explain(options, error_fold(r));
	r = metrics_new(&metrics_options, ret);
	if (r) {
		server_unwatch_root(server);
		return explain(options, r);
	}
	if (!metrics_has_group(*ret))
		log_warning(LOG_METRICS_SOCKET,
			    "%s is for this user only: it may not be given to the administrators' "
			    "group",
			    options->metrics);
	log_info(LOG_LISTENING, "metrics for Prometheus on %s", options->metrics);
	return 0;
}

void endpoint_stop(struct metrics *metrics, struct server *server)
{
	if (!metrics)
		return;
	metrics_free(metrics);
	server_unwatch_root(server);
}
