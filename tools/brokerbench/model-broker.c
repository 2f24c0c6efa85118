/* SPDX-License-Identifier: MIT */
/*
 * A broker in this process: see model-broker.h.
 *
 * Brokers share only the table of the SIGBUS handler. It is written when clients connect and
 * disconnect, so clients must do so one after the other.
 */
#include "model-broker.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "dispatch/dispatch-private.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "tenant/tenant.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/waker.h"

enum { SAMPLE_NS = 10000000 };

/* fraction of the device's memory that stays free: brokerd's default */
static const double headroom = 0.05;

struct model_broker {
	struct model_broker_options options;
	struct loop *loop;
	struct waker waker;
	struct offload *offload;
	struct account_book *book;
	struct tenants *tenants;
	struct executor *executors[RBK_MAX_DEVICES];
	struct residency *residency;
	struct dispatch *dispatch;
	struct server *server;
	char directory[64];
	char socket_path[80];

	/* used by model_broker_run() */
	int stop_fd;
	struct loop_watch *stop_watch;
	struct loop_timer *sample_timer;
	uint64_t start_ns;
	uint64_t outside_bytes;

	/* used by model_broker_serve() */
	int (*client)(void *data);
	void *client_data;
	int client_result;
	atomic_bool is_client_done;
};

static int make_processor(struct model_broker *broker)
{
	const struct cpu_options options = {.n_workers = 1};
	int r = cpu_executor_new(&options, &broker->waker, &broker->executors[RBK_DEVICE_CPU]);

	if (!r)
		broker->executors[RBK_DEVICE_CPU]->index = RBK_DEVICE_CPU;
	return r;
}

static int make_executors(struct model_broker *broker)
{
	int r = broker->options.computes ? make_processor(broker) : 0;

	for (uint32_t i = broker->options.computes; i < broker->options.n_devices && !r; i++) {
		broker->options.devices[i].index = (uint8_t)i;
		broker->options.devices[i].waker = &broker->waker;
		r = model_executor_new(&broker->options.devices[i], &broker->executors[i]);
	}
	return r;
}

/* Make one tenant, whose limits no bench reaches. */
static int make_tenants(struct model_broker *broker)
{
	struct tenants_machine machine = {
		.host_bytes = 1ull << 40,
		.n_devices = broker->options.n_devices,
		.n_fds = 1u << 20,
		.n_mappings = 1u << 20,
	};
	struct policy *policy = NULL;
	struct policy_errors errors;
	int r;

	for (uint32_t i = 0; i < broker->options.n_devices; i++)
		machine.vram_bytes[i] = broker->options.devices[i].memory_bytes;
	r = account_book_new(&broker->book);
	if (!r)
		r = policy_defaults(&policy);
	if (!r)
		r = tenants_new(broker->book, &machine, policy, &broker->tenants, &errors);
	/* The defaults are valid on every machine. */
	assert(r <= 0);
	return r;
}

static int make_residency(struct model_broker *broker)
{
	const struct residency_options options = {
		.policy = broker->options.policy,
		.loop = broker->loop,
		.offload = broker->offload,
		.executors = broker->executors,
		.n_executors = broker->options.n_devices,
	};
	int r = residency_new(&options, &broker->residency);

	for (uint32_t i = 1; i < broker->options.n_devices && !r; i++)
		residency_set_usable(broker->residency, i,
				     (uint64_t)((double)broker->options.devices[i].memory_bytes *
						(1 - headroom)),
				     0);
	return r;
}

static int make_dispatch(struct model_broker *broker)
{
	struct dispatch_options options = {
		.loop = broker->loop,
		.waker = &broker->waker,
		.executors = broker->executors,
		.n_executors = broker->options.n_devices,
		.residency = broker->residency,
		.config = PLACE_CONFIG_DEFAULT,
		.spin_ns = 0,
		.n_processors = 2,
	};

	/* every task is large enough for a device */
	options.config.threshold_bytes = 1;
	options.config.min_count = 1;
	return dispatch_new(&options, &broker->dispatch);
}

static int make_server(struct model_broker *broker)
{
	struct server_options options = {
		.socket_path = broker->socket_path,
		.socket_mode = 0600,
		.limits = SERVER_LIMITS_DEFAULT,
		.loop = broker->loop,
		.offload = broker->offload,
		.tenants = broker->tenants,
		.executors = broker->executors,
		.n_executors = broker->options.n_devices,
		.residency = broker->residency,
		.hooks = dispatch_hooks(broker->dispatch),
	};
	const char *temporary = getenv("TMPDIR");
	int r;

	/* Socket paths must be short, so a long TMPDIR is not used. */
	if (!temporary || strlen(temporary) > 32)
		temporary = "/tmp";
	snprintf(broker->directory, sizeof(broker->directory), "%s/brokerbench-XXXXXX", temporary);
	if (!mkdtemp(broker->directory)) {
		broker->directory[0] = '\0';
		return -errno;
	}
	snprintf(broker->socket_path, sizeof(broker->socket_path), "%s/socket", broker->directory);
	r = server_new(&options, &broker->server);
	assert(r <= 0);
	if (r)
		return r;
	broker->dispatch->server = broker->server;
	broker->dispatch->stats = server_stats(broker->server);
	return 0;
}

/* Remove the socket: connected clients do not need it, and a killed bench leaves no file behind. */
static void remove_files(struct model_broker *broker)
{
	char lock_path[sizeof(broker->socket_path) + sizeof(".lock")];

	if (!broker->directory[0])
		return;
	snprintf(lock_path, sizeof(lock_path), "%s.lock", broker->socket_path);
	unlink(lock_path);
	unlink(broker->socket_path);
	rmdir(broker->directory);
	broker->directory[0] = '\0';
}

int model_broker_new(const struct model_broker_options *options, struct model_broker **ret)
{
	struct model_broker *broker = calloc(1, sizeof(*broker));
	int r;

	if (!broker)
		return -ENOMEM;
	broker->options = *options;
	broker->waker.fd = -1;
	log_set_level(LOG_LEVEL_ERROR);
	broker->stop_fd = eventfd(0, EFD_CLOEXEC);
	r = broker->stop_fd < 0 ? -errno : loop_new(&broker->loop);
	if (!r)
		r = waker_init(&broker->waker);
	if (!r)
		r = offload_new(broker->loop, &broker->offload);
	if (!r)
		r = make_executors(broker);
	if (!r)
		r = make_tenants(broker);
	if (!r)
		r = make_residency(broker);
	if (!r)
		r = make_dispatch(broker);
	if (!r)
		r = make_server(broker);
	if (r) {
		model_broker_free(broker);
		return r;
	}
	*ret = broker;
	return 0;
}

/* Run one turn like dispatch_run(), for a caller that does other work, too. */
static int turn(struct model_broker *broker)
{
	struct dispatch *dispatch = broker->dispatch;
	struct dispatch_ring *hostile = NULL;
	int r;

	dispatch_work(dispatch, &hostile);
	assert(!hostile);
	for (uint32_t i = 0; i < dispatch->n_executors; i++)
		if (dispatch->flush_mask & 1u << i)
			dispatch->executors[i]->ops->flush(dispatch->executors[i]);
	dispatch->flush_mask = 0;
	if (dispatch->demand->first)
		residency_turn(broker->residency);
	server_settle(broker->server);
	r = loop_turn(broker->loop, false);
	return r < 0 ? r : 0;
}

static void *run_client(void *data)
{
	struct model_broker *broker = data;

	broker->client_result = broker->client(broker->client_data);
	atomic_store(&broker->is_client_done, true);
	return NULL;
}

int model_broker_serve(struct model_broker *broker, int (*client)(void *data), void *data)
{
	pthread_t thread;
	int r;

	broker->client = client;
	broker->client_data = data;
	atomic_store(&broker->is_client_done, false);
	r = pthread_create(&thread, NULL, run_client, broker);
	if (r)
		return -r;
	while (!r && !atomic_load(&broker->is_client_done)) {
		r = turn(broker);
		usleep(20);
	}
	/* A client of a broken loop would wait forever. */
	assert(r == 0);
	pthread_join(thread, NULL);
	remove_files(broker);
	return broker->client_result;
}

/* ---- Running ---- */

static void on_stop(void *data, uint32_t events)
{
	struct model_broker *broker = data;
	eventfd_t count;

	/* Orders the stopping thread's writes before later frees, also for sanitizers. */
	eventfd_read(broker->stop_fd, &count);
	broker->stop_watch = loop_unwatch(broker->stop_watch);
	dispatch_stop(broker->dispatch);
}

/*
 * Apply the sample of the last call and take a new one: frequent telemetry sees a program allocate
 * memory gradually, so the memory arrives after it was seen.
 */
static void on_sample(void *data)
{
	struct model_broker *broker = data;
	uint64_t memory_bytes = broker->options.devices[1].memory_bytes;
	uint64_t spare_bytes = (uint64_t)((double)memory_bytes * headroom);
	uint64_t bytes = broker->options.outside(clock_now_ns() - broker->start_ns);

	model_executor_set_outside(broker->executors[1], broker->outside_bytes);
	broker->outside_bytes = bytes;
	if (broker->options.is_told)
		residency_set_usable(broker->residency, 1, memory_bytes - spare_bytes - bytes, 0);
	loop_timer_arm(broker->sample_timer, SAMPLE_NS);
}

int model_broker_run(struct model_broker *broker)
{
	int r;

	r = loop_watch(broker->loop, broker->stop_fd, POLLIN, on_stop, broker, &broker->stop_watch);
	if (!r)
		r = loop_timer_new(broker->loop, on_sample, broker, &broker->sample_timer);
	if (r)
		return r;
	broker->start_ns = clock_now_ns();
	if (broker->options.outside)
		on_sample(broker);
	return dispatch_run(broker->dispatch, broker->server);
}

void model_broker_stop(struct model_broker *broker)
{
	eventfd_write(broker->stop_fd, 1);
}

const char *model_broker_socket(const struct model_broker *broker)
{
	return broker->socket_path;
}

struct executor *model_broker_device(const struct model_broker *broker, unsigned int index)
{
	return broker->executors[index];
}

struct dispatch *model_broker_dispatch(const struct model_broker *broker)
{
	return broker->dispatch;
}

struct residency *model_broker_residency(const struct model_broker *broker)
{
	return broker->residency;
}

const struct session_plan *model_broker_plan(const struct model_broker *broker, uint32_t id)
{
	list_for_each (node, &broker->dispatch->plans) {
		const struct session_plan *plan =
			container_of(node, struct session_plan, dispatched);

		if (plan->id == id)
			return plan;
	}
	return NULL;
}

struct model_broker *model_broker_free(struct model_broker *broker)
{
	if (!broker)
		return NULL;
	if (broker->server) {
		server_end_sessions(broker->server, "the bench is over");
		while (!server_is_empty(broker->server) && turn(broker) == 0)
			usleep(20);
	}
	loop_unwatch(broker->stop_watch);
	loop_timer_free(broker->sample_timer);
	close_fd(broker->stop_fd);
	server_free(broker->server);
	remove_files(broker);
	dispatch_free(broker->dispatch);
	residency_free(broker->residency);
	offload_free(broker->offload);
	for (uint32_t i = 0; i < RBK_MAX_DEVICES; i++)
		if (broker->executors[i])
			broker->executors[i]->ops->free(broker->executors[i]);
	tenants_free(broker->tenants);
	account_book_free(broker->book);
	loop_free(broker->loop);
	waker_deinit(&broker->waker);
	free(broker);
	return NULL;
}
