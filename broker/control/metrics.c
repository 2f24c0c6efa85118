/* SPDX-License-Identifier: MIT */
/*
 * The endpoint that Prometheus scrapes
 *
 * libmicrohttpd implements HTTP; this file decides when it runs, and for how long: its loop runs in
 * a thread started like the broker's other threads, without capabilities. The library's own
 * time-out begins anew with each byte, so a client that sends one byte a second would stay for
 * ever. Here a connection has life_ns from when it was accepted, answered or not. While all
 * MAX_CONNECTIONS are taken no connection is accepted, and the oldest ends after crowded_ns. So
 * however many clients connect and send nothing, every client with a request is served.
 *
 * A text is written and compressed once for each update of the page and shared by all requests
 * until the next, however many there are. It is freed with the last connection that still reads it,
 * so at most MAX_CONNECTIONS texts exist beside the newest.
 */
#include "control/metrics.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/metrics-gzip.h"
#include "control/metrics-page.h"
#include "control/metrics-process.h"
#include "control/metrics-text.h"
#include "util/crash.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/thread.h"

enum {
	MAX_CONNECTIONS = 16,
	RETRY_MS = 10,
	CONNECTION_BYTES = 16384, /* for a request's line and headers, and an answer's */
};
static const uint64_t life_ns = 5000000000;
static const uint64_t crowded_ns = 500000000;

/* A text of the page, and its responses, which requests share */
struct answer {
	struct MHD_Response *response; /* NULL: no text was written */
	struct MHD_Response *gzipped;  /* NULL: no request asked for it */
	const char *data;              /* the text, which @response owns */
	size_t bytes;
	uint64_t n_updates, n_resets; /* the page's, when it was written */
};

struct connection {
	int fd; /* libmicrohttpd's; -1: free slot */
	uint64_t since_ns;
};

struct metrics {
	struct metrics_options options;
	int fd, stop_fd;
	dev_t device; /* of the socket in the file system */
	ino_t inode;
	bool has_group;
	struct MHD_Daemon *daemon;
	pthread_t thread;
	bool has_thread;

	/* The thread's */
	struct metrics_page *page;
	struct metrics_process process;
	struct answer answers[METRICS_FORMATS];
	struct connection connections[MAX_CONNECTIONS];
	unsigned int n_connections;
};

/* ---- Answers ---- */

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned int status,
			     struct MHD_Response *response)
{
	return MHD_queue_response(connection, status, response);
}

/*
 * Add headers.
 * Return: @response; NULL: there is no memory, and the response is destroyed.
 */
static struct MHD_Response *add_headers(struct MHD_Response *response, const char *type)
{
	if (MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_NO ||
	    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_NO) {
		MHD_destroy_response(response);
		return NULL;
	}
	return response;
}

/* Reply with a text. @allowed: the allowed methods, if the request's is not; otherwise NULL. */
static enum MHD_Result reply_text(struct MHD_Connection *connection, unsigned int status,
				  const char *text, const char *allowed)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result = MHD_NO;

	if (response)
		response = add_headers(response, "text/plain; charset=utf-8");
	if (!response)
		return MHD_NO;
	if (!allowed ||
	    MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allowed) == MHD_YES)
		result = reply(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

/*
 * Make a response of a text, which it takes over; it frees the text on failure, too.
 * Return: NULL: there is no memory for it.
 */
static struct MHD_Response *own_text(char *data, size_t bytes, enum metrics_format format)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(bytes, data, MHD_RESPMEM_MUST_FREE);

	if (!response) {
		free(data);
		return NULL;
	}
	response = add_headers(response, metrics_content_type(format));
	if (response && MHD_add_response_header(response, MHD_HTTP_HEADER_VARY,
						"Accept, Accept-Encoding") == MHD_NO) {
		MHD_destroy_response(response);
		return NULL;
	}
	return response;
}

static void clear_answer(struct answer *answer)
{
	if (answer->response)
		MHD_destroy_response(answer->response);
	if (answer->gzipped)
		MHD_destroy_response(answer->gzipped);
	*answer = (struct answer){0};
}

/* Write the page as an answer; without memory it has no response. */
static void write_page(struct metrics *metrics, enum metrics_format format, struct answer *answer)
{
	struct metrics_text text = {.format = format};

	metrics_page_take(metrics->page, &metrics->options.view);
	metrics_process_take(&metrics->process);
	metrics_page_write(metrics->page, metrics->options.version, &metrics->process, &text);
	if (text.is_out_of_memory) {
		metrics_text_deinit(&text);
		return;
	}
	answer->data = text.data;
	answer->bytes = text.bytes;
	answer->response = own_text(text.data, text.bytes, format);
}

/*
 * Compress the text of an answer, once.
 * Return: NULL: there is no memory, or brokerd was built without zlib.
 */
static struct MHD_Response *gzip_answer(struct answer *answer, enum metrics_format format)
{
	char *data;
	size_t bytes;

	if (answer->gzipped || !metrics_gzip(answer->data, answer->bytes, &data, &bytes))
		return answer->gzipped;
	answer->gzipped = own_text(data, bytes, format);
	if (answer->gzipped &&
	    MHD_add_response_header(answer->gzipped, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip") ==
		    MHD_NO) {
		MHD_destroy_response(answer->gzipped);
		answer->gzipped = NULL;
	}
	return answer->gzipped;
}

static enum MHD_Result reply_metrics(struct metrics *metrics, struct MHD_Connection *connection)
{
	const char *accept =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
	const char *codings = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
							  MHD_HTTP_HEADER_ACCEPT_ENCODING);
	enum metrics_format format = metrics_accepted(accept);
	const struct rbk_stats_header *header = metrics->options.view.page;
	struct answer *answer = &metrics->answers[format];
	struct MHD_Response *gzipped = NULL;
	uint64_t n_updates, n_resets;

	if (metrics->options.scraped)
		metrics->options.scraped(metrics->options.context);
	n_updates = rbk_stats_load(&header->n_updates);
	n_resets = rbk_stats_load(&header->n_resets);
	if (!answer->response || answer->n_updates != n_updates || answer->n_resets != n_resets) {
		clear_answer(answer);
		answer->n_updates = n_updates;
		answer->n_resets = n_resets;
		write_page(metrics, format, answer);
	}
	if (!answer->response)
		return reply_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n",
				  NULL);
	if (metrics_accepts_gzip(codings))
		gzipped = gzip_answer(answer, format);
	return reply(connection, MHD_HTTP_OK, gzipped ? gzipped : answer->response);
}

/* Compare paths as they were sent: no path here needs an escape. */
static size_t on_unescape(void *data, struct MHD_Connection *connection, char *text)
{
	return strlen(text);
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_bytes, void **request)
{
	static int is_begun;

	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return reply_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
				  "only GET and HEAD are allowed\n", "GET, HEAD");
	/* The library calls again without a body, or with a part of it, which is not read. */
	if (!*request) {
		*request = &is_begun;
		return MHD_YES;
	}
	if (*upload_bytes > 0)
		return MHD_NO;
	if (strcmp(url, "/metrics") == 0)
		return reply_metrics(data, connection);
	if (strcmp(url, "/") == 0)
		return reply_text(connection, MHD_HTTP_OK,
				  "This is ringbroker. Its metrics are at /metrics.\n", NULL);
	return reply_text(connection, MHD_HTTP_NOT_FOUND,
			  "This page does not exist. Metrics are at /metrics.\n", NULL);
}

/* ---- Connections ---- */

static void on_connection(void *data, struct MHD_Connection *connection, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct metrics *metrics = data;
	struct connection *slot = *context;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (slot) {
			slot->fd = -1;
			metrics->n_connections--;
		}
		return;
	}
	/* A slot is free: there are as many as the library accepts connections. */
	for (slot = metrics->connections; slot->fd >= 0;)
		slot++;
	slot->fd =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	slot->since_ns = clock_now_ns();
	metrics->n_connections++;
	*context = slot;
}

/*
 * End the oldest connection if its time is up.
 * Return: milliseconds until the next call, -1: no connection.
 */
static int end_connections(struct metrics *metrics)
{
	uint64_t limit_ns = metrics->n_connections == MAX_CONNECTIONS ? crowded_ns : life_ns;
	uint64_t now_ns = clock_now_ns(), oldest_ns = UINT64_MAX;
	struct connection *oldest = NULL;

	for (unsigned int i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *slot = &metrics->connections[i];

		if (slot->fd < 0 || slot->since_ns >= oldest_ns)
			continue;
		oldest = slot;
		oldest_ns = slot->since_ns;
	}
	if (!oldest)
		return -1;
	if (now_ns - oldest_ns < limit_ns)
		return (int)((limit_ns - (now_ns - oldest_ns)) / 1000000) + 1;
	/* The library notices the end, and closes the connection. */
	shutdown(oldest->fd, SHUT_RDWR);
	return 0;
}

/* ---- The thread ---- */

/* Drop the privileges of this thread alone. All that it needs is open. */
static void give_up_privileges(void)
{
	cap_t none = cap_init();

	/* cap_init() fails only without memory, and not serving then would gain nothing. */
	if (none) {
		cap_set_proc(none);
		cap_free(none);
	}
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int shorter(int a_ms, int b_ms)
{
	if (a_ms < 0 || b_ms < 0)
		return a_ms < 0 ? b_ms : a_ms;
	return a_ms < b_ms ? a_ms : b_ms;
}

static void *metrics_main(void *data)
{
	struct metrics *metrics = data;
	const union MHD_DaemonInfo *info =
		MHD_get_daemon_info(metrics->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	struct pollfd fds[] = {{.fd = info->epoll_fd, .events = POLLIN},
			       {.fd = metrics->stop_fd, .events = POLLIN}};
	MHD_UNSIGNED_LONG_LONG wanted_ms;
	bool was_full;
	int wait_ms;

	crash_thread.is_own = true;
	give_up_privileges();
	for (;;) {
		wait_ms = end_connections(metrics);
		if (MHD_get_timeout(metrics->daemon, &wanted_ms) == MHD_YES)
			wait_ms = shorter(wait_ms, wanted_ms < 1000 ? (int)wanted_ms : 1000);
		if (poll(fds, 2, wait_ms) < 0) {
			/* Without memory for the call, wait for some: this call needs none. */
			if (errno != EINTR)
				poll(NULL, 0, RETRY_MS);
			continue;
		}
		if (fds[1].revents)
			break;
		was_full = metrics->n_connections == MAX_CONNECTIONS;
		MHD_run(metrics->daemon);
		/*
		 * The library polls for new connections when it begins, not when a connection has
		 * ended.
		 */
		if (was_full && metrics->n_connections < MAX_CONNECTIONS)
			MHD_run(metrics->daemon);
	}
	return NULL;
}

static int start_daemon(struct metrics *metrics)
{
	metrics->daemon = MHD_start_daemon(
		MHD_USE_EPOLL, 0, NULL, NULL, on_request, metrics, MHD_OPTION_LISTEN_SOCKET,
		metrics->fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned int)MAX_CONNECTIONS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, metrics, MHD_OPTION_UNESCAPE_CALLBACK,
		on_unescape, metrics, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
	return metrics->daemon ? 0 : error_origin(-ENOMEM);
}

int metrics_new(const struct metrics_options *options, struct metrics **ret)
{
	_cleanup_(metrics_freep) struct metrics *metrics = calloc(1, sizeof(*metrics));
	struct stat status;
	int r;

	if (!metrics)
		return error_origin(-ENOMEM);
	metrics->options = *options;
	metrics->fd = metrics->stop_fd = -1;
	for (unsigned int i = 0; i < MAX_CONNECTIONS; i++)
		metrics->connections[i].fd = -1;
	r = metrics_page_new(&options->view, &metrics->page);
	if (r)
		return error_fold(r);
	metrics->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (metrics->stop_fd < 0)
		return error_origin(-errno);
	r = metrics_listen(&options->address, options->gid, &metrics->fd, &metrics->has_group);
	if (r)
		return r;
	if (options->address.socket.any.sa_family == AF_UNIX &&
	    stat(options->address.socket.local.sun_path, &status) == 0) {
		metrics->device = status.st_dev;
		metrics->inode = status.st_ino;
	}
	r = start_daemon(metrics);
	if (r)
		return error_fold(r);
	r = thread_start(&metrics->thread, "metrics", metrics_main, metrics);
	if (r)
		return error_fold(r);
	metrics->has_thread = true;
	*ret = steal_ptr(metrics);
	return 0;
}

bool metrics_has_group(const struct metrics *metrics)
{
	return metrics->has_group;
}

/* Remove the socket, unless another program has replaced it. */
static void remove_socket(const struct metrics *metrics)
{
	const char *path = metrics->options.address.socket.local.sun_path;
	struct stat status;

	if (metrics->inode && lstat(path, &status) == 0 && status.st_ino == metrics->inode &&
	    status.st_dev == metrics->device)
		unlink(path);
}

struct metrics *metrics_free(struct metrics *metrics)
{
	if (!metrics)
		return NULL;
	if (metrics->has_thread) {
		eventfd_write(metrics->stop_fd, 1);
		pthread_join(metrics->thread, NULL);
	}
	remove_socket(metrics);
	/* This closes the listening socket, and all connections. */
	if (metrics->daemon)
		MHD_stop_daemon(metrics->daemon);
	else
		close_fd(metrics->fd);
	for (unsigned int i = 0; i < METRICS_FORMATS; i++)
		clear_answer(&metrics->answers[i]);
	close_fd(metrics->stop_fd);
	metrics_page_free(metrics->page);
	free(metrics);
	return NULL;
}
