/* SPDX-License-Identifier: MIT */
/*
 * brokerd: starting, running, reloading the policy, and stopping
 *
 * brokerd requires nothing but io_uring. Without a GPU, without privileges, without configuration
 * the broker starts, does what it can, and logs in a few lines what it found and what it could not.
 */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "calibrate/profiles.h"
#include "contention/contention.h"
#include "control/publish.h"
#include "daemon/allowance.h"
#include "daemon/checkpoint.h"
#include "daemon/config.h"
#include "daemon/confine.h"
#include "daemon/endpoint.h"
#include "daemon/list-devices.h"
#include "daemon/options.h"
#include "daemon/parts.h"
#include "daemon/refresh-profiles.h"
#include "daemon/restart.h"
#include "daemon/service.h"
#include "daemon/steward.h"
#include "dispatch/dispatch.h"
#include "lease/gate.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "loop/turn.h"
#include "session/server.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"
#include "util/plural.h"
#include "util/streams.h"
#include "util/thread.h"
#include "util/waker.h"
#include "vulkan/vulkan.h"

/* At this nice level, the reactor has nine times the share of another thread, and still not all. */
enum { REACTOR_NICE_BELOW = 10 };

/* The shortest slice that the kernel gives. */
static const uint64_t reactor_slice_ns = 100000;

static void reload_start(struct broker *broker);

static void reload_run(struct offload_job *job)
{
	struct reload *reload = container_of(job, struct reload, job);

	reload->result = config_load(&reload->options, &reload->policy, &reload->errors);
}

/* Put the policy that was read into force. Return: as tenants_reload(). */
static int apply_policy(struct broker *broker)
{
	struct reload *reload = &broker->reload;
	char *changes =
		config_changes(&broker->asked, tenants_policy(broker->tenants), reload->policy);
	uint32_t n_waiting = 0;
	char *waiting = broker->started_keys ? config_waiting(&broker->asked, broker->started_keys,
							      reload->policy, &n_waiting)
					     : NULL;
	int r;

	r = tenants_reload(broker->tenants, reload->policy, &reload->errors);
	if (r == 0) {
		reload->policy = NULL;
		parts_limits_changed(broker);
		gate_check(broker->gate);
		publish_configure(broker->publish, &reload->options.place);
		contention_set_observes(broker->contention, reload->options.observes_contention);
		server_forget_tenants(broker->server);
		server_know_tenants(broker->server);
		publish_reloaded(broker->publish, waiting ? waiting : "", n_waiting);
		log_info(LOG_POLICY_RELOADED, "read %s again: %s", broker->options.config_path,
			 changes ? changes : "the new policy is in force");
	}
	free(waiting);
	free(changes);
	return r;
}

static void reload_done(struct offload_job *job)
{
	static const char nothing_changed[] = "the old policy stays in force";
	struct reload *reload = container_of(job, struct reload, job);
	struct broker *broker = container_of(reload, struct broker, reload);
	int r = reload->result;

	reload->is_running = false;
	if (!broker->is_stopping) {
		if (r == 0)
			r = apply_policy(broker);
		if (r == POLICY_E_INVALID) {
			publish_reload_refused(broker->publish, reload->errors.text,
					       reload->errors.n);
			config_log_errors(LOG_POLICY_KEPT, nothing_changed, &reload->errors);
		} else if (r) {
			publish_reload_refused(broker->publish, strerror(-r), 1);
			log_error(LOG_POLICY_KEPT, "cannot read %s again: %s; %s",
				  broker->options.config_path, strerror(-r), nothing_changed);
		}
	}
	reload->policy = policy_free(reload->policy);
	policy_errors_deinit(&reload->errors);
	if (reload->is_wanted)
		reload_start(broker);
	else
		service_reloaded(broker->service);
}

static void reload_start(struct broker *broker)
{
	struct reload *reload = &broker->reload;

	reload->is_wanted = reload->is_running;
	if (reload->is_running || broker->is_stopping)
		return;
	reload->is_running = true;
	service_reloading(broker->service);
	/* A key that the file no longer has gets its default again. */
	reload->options = broker->asked;
	reload->job = (struct offload_job){
		.run = reload_run,
		.done = reload_done,
		.cause = OFFLOAD_FILE,
	};
	offload_submit(broker->offload, &reload->job);
}

/*
 * End the process while threads may never end: a thread that waits for a client's file holds the
 * process's descriptors, and a successor must not find the sockets locked.
 */
static void leave(struct broker *broker, int status)
{
	if (broker->server)
		server_unlock(broker->server);
	confine_end(broker);
	_exit(status);
}

/* Stop taking work, and remove the sockets. The steward's. @data: the broker. */
static void begin_stop(void *data)
{
	struct broker *broker = data;

	gate_stop(broker->gate);
	refresh_stop(broker->refresh);
	dispatch_stop(broker->dispatch);
}

static void on_signal(void *data, uint32_t events)
{
	struct signalfd_siginfo info;
	struct broker *broker = data;

	while (read(broker->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGHUP) {
			reload_start(broker);
			continue;
		}
		if (broker->is_stopping) {
			log_warning(LOG_STOPPED_BUSY, "stopping at once");
			leave(broker, OPTIONS_EXIT_FAILURE);
		}
		log_info(LOG_STOPPING, "stopping: finishing the tasks in flight");
		broker->is_stopping = true;
		service_stopping(broker->service);
		restart_stop(broker->restart);
		checkpoint_write(broker->checkpoint);
		steward_do(broker->steward, begin_stop, broker);
	}
}

static int watch_signals(struct broker *broker)
{
	sigset_t set, handled;

	/* Before any thread starts, so that every thread has them blocked. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return error_origin(-errno);
	/*
	 * The program that executed this one may have blocked signals. These have handlers, and the
	 * kernel ends a process that has them blocked.
	 */
	sigemptyset(&handled);
	sigaddset(&handled, SIGBUS);
	sigaddset(&handled, SIGSYS);
	if (sigprocmask(SIG_UNBLOCK, &handled, NULL) < 0)
		return error_origin(-errno);
	signal(SIGPIPE, SIG_IGN);
	/* If the program that executed this one has ignored it, no child can be waited for. */
	signal(SIGCHLD, SIG_DFL);
	broker->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (broker->signal_fd < 0)
		return error_origin(-errno);
	return loop_watch(broker->loop, broker->signal_fd, POLLIN, on_signal, broker,
			  &broker->signal_watch);
}

/* Use the sockets of a service manager instead of those of the options. */
static int take_sockets(struct broker *broker)
{
	struct service_sockets *given = &broker->given;
	struct options *options = &broker->options;
	const bool is_own = restart_was_passed();
	int r = service_take_sockets(given);

	given->is_own = is_own && given->fd;
	if (given->fd)
		snprintf(options->socket_path, sizeof(options->socket_path), "%s", given->path);
	if (given->admin_fd) {
		snprintf(options->admin_socket_path, sizeof(options->admin_socket_path), "%s",
			 given->admin_path);
		options->has_admin_socket = true;
	}
	return r;
}

/* Describe the state for the service manager's list of services. */
static void describe_state(void *context, char *text, size_t bytes)
{
	const struct broker *broker = context;
	struct contention_status contention;
	struct rbk_stats_broker figures;
	char lost[32] = "";
	uint32_t n_lost = 0;

	for (uint32_t i = 0; i < broker->n_executors; i++)
		n_lost += broker->executors[i]->ops->is_lost &&
			  broker->executors[i]->ops->is_lost(broker->executors[i]);
	contention_status(broker->contention, &contention);
	server_describe(broker->server, &figures);
	if (n_lost > 0)
		snprintf(lost, sizeof(lost), " (%u lost)", n_lost);
	snprintf(text, bytes, "%u device%s%s; %llu session%s; CPU %s", broker->n_executors,
		 plural(broker->n_executors), lost, ull(figures.n_sessions),
		 plural(figures.n_sessions),
		 contention.is_contended ? "contended" : "not contended");
}

/* Log three lines: the devices; what is missing and what that costs; the sockets. */
static void say_what_was_found(const struct broker *broker)
{
	char line[1000];
	size_t n = 0;

	for (uint32_t i = 0; i < broker->n_executors && n < sizeof(line); i++) {
		const struct executor_info *info = &broker->executors[i]->info;

		n += (size_t)snprintf(line + n, sizeof(line) - n, "%sdevice %u: %s (%s)",
				      i ? "; " : "", i, info->name, info->paths);
	}
	log_info(LOG_DEVICES_FOUND, "%s; CPU contention: %s", line,
		 contention_watched_by(broker->contention));

	n = 0;
	line[0] = '\0';
	for (unsigned int i = 0; i < vulkan_n_sentences(broker->vulkan) && n < sizeof(line); i++)
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%s", i ? " " : "",
				      vulkan_sentence(broker->vulkan, i));
	for (unsigned int i = 0; telemetry_sentence(broker->telemetry, i) && n < sizeof(line); i++)
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%s", n ? " " : "",
				      telemetry_sentence(broker->telemetry, i));
	for (unsigned int i = 0; run_queue_sentence(broker->run_queue, i) && n < sizeof(line); i++)
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%s", n ? " " : "",
				      run_queue_sentence(broker->run_queue, i));
	if (broker->telemetry_error && n < sizeof(line))
		n += (size_t)snprintf(line + n, sizeof(line) - n,
				      "%sdevices are not watched (%s): the broker does not notice "
				      "memory that other programs take.",
				      n ? " " : "", strerror(-broker->telemetry_error));
	if (broker->options.cache_error && n < sizeof(line))
		n += (size_t)snprintf(
			line + n, sizeof(line) - n,
			"%spipelines are compiled again at each start: there is no cache in %s "
			"(%s).",
			n ? " " : "", broker->options.cache_dir,
			strerror(broker->options.cache_error));
	if (broker->nice_error && n < sizeof(line))
		n += (size_t)snprintf(line + n, sizeof(line) - n,
				      "%sclients wait behind programs that keep the processors "
				      "busy: the reactor thread may not have nice level %d "
				      "(LimitNICE=%d in the unit, or ulimit -e %d).",
				      n ? " " : "", broker->options.reactor_nice,
				      broker->options.reactor_nice,
				      20 - broker->options.reactor_nice);
	if (broker->options.host_max_bytes > config_host_memory() && n < sizeof(line))
		n += (size_t)snprintf(line + n, sizeof(line) - n,
				      "%stenants can exhaust the memory: --host-max allows them "
				      "%.1f GiB, of the %.1f GiB that the machine or the cgroup "
				      "has.",
				      n ? " " : "",
				      (double)broker->options.host_max_bytes / (1u << 30),
				      (double)config_host_memory() / (1u << 30));
	log_info(LOG_DEVICES_LACKING, "%s",
		 line[0] ? line : "everything that brokerd looked for was found");
	if (broker->options.admin_socket_path[0])
		log_info(LOG_LISTENING, "listening on %s, and for administrators on %s",
			 broker->options.socket_path, broker->options.admin_socket_path);
	else
		log_info(LOG_LISTENING, "listening on %s", broker->options.socket_path);
}

/*
 * Give the reactor priority. A client waits for this thread twice, and the thread has little to do
 * each time. An equal share of the processors does not suffice: one tenant's processes may keep all
 * processors busy, while another tenant's tasks wait for this thread. Its turns share its time
 * among tenants.
 */
static void hasten_reactor(struct broker *broker)
{
	int *nice = &broker->options.reactor_nice, r;

	if (*nice == OPTIONS_NICE_DEFAULT)
		*nice = thread_nice() - REACTOR_NICE_BELOW;
	if (*nice < -20)
		*nice = -20;
	broker->nice_error = thread_set_nice(*nice);
	r = thread_set_slice(reactor_slice_ns);
	if (r < 0)
		log_debug(LOG_DETAIL,
			  "the reactor keeps the same scheduler slices as other threads: %s",
			  strerror(-r));
}

static int explain_server(const struct broker *broker, int r)
{
	bool is_admin = r > SERVER_E_ADMIN;
	const char *path =
		is_admin ? broker->options.admin_socket_path : broker->options.socket_path;
	const char *option = is_admin ? "--admin-socket" : "--socket";

	switch (is_admin ? r - SERVER_E_ADMIN : r) {
	case SERVER_E_IN_USE:
		log_error(LOG_START_FAILED,
			  "another brokerd, or a service manager, listens on %s; give this brokerd "
			  "its own %s",
			  path, option);
		return OPTIONS_EXIT_USAGE;
	case SERVER_E_PERMISSION:
		log_error(LOG_START_FAILED,
			  "brokerd has no permission to make a socket at %s; choose another %s",
			  path, option);
		return OPTIONS_EXIT_USAGE;
	case SERVER_E_PATH:
		log_error(LOG_START_FAILED, "cannot make a socket at %s: %s; choose another %s",
			  path,
			  strlen(path) < sizeof(broker->options.admin_socket_path)
				  ? "the folder does not exist"
				  : "the path is longer than 107 bytes",
			  option);
		return OPTIONS_EXIT_USAGE;
	case SERVER_E_NO_SOCKET:
		log_error(LOG_START_FAILED, "%s exists and is not a socket; choose another %s",
			  path, option);
		return OPTIONS_EXIT_USAGE;
	case SERVER_E_STOPPED:
		log_info(LOG_STOPPED, "stopped while waiting for %s", path);
		return 0;
	default:
		if (!allowance_explain(r, broker->options.metrics.address.bytes > 0))
			log_error(LOG_START_FAILED, "cannot listen on %s: %s", path, strerror(-r));
		return OPTIONS_EXIT_FAILURE;
	}
}

static int broker_run(struct broker *broker)
{
	struct policy_errors errors = {.n = 0};
	int r;

	clock_init();
	r = loop_new(&broker->loop);
	if (r == -ENOMEM) {
		log_error(LOG_START_FAILED,
			  "the kernel has no memory for io_uring: raise the limit of locked memory "
			  "(LimitMEMLOCK= in the unit, or ulimit -l), or the memory limit of the "
			  "cgroup");
		return OPTIONS_EXIT_USAGE;
	}
	if (r) {
		log_error(LOG_START_FAILED,
			  "the kernel does not offer io_uring (%s): brokerd needs Linux 6.1 or "
			  "later, with io_uring allowed in this container",
			  strerror(-r));
		return OPTIONS_EXIT_USAGE;
	}
	turn_set_budget(loop_current(broker->loop), broker->options.turn_ns);
	r = watch_signals(broker);
	if (r == 0)
		r = parts_make(broker, &errors);
	if (errors.n > 0) {
		config_log_errors(LOG_START_FAILED, "cannot start with this policy", &errors);
		return OPTIONS_EXIT_USAGE;
	}
	if (r == PARTS_E_FILES)
		return OPTIONS_EXIT_USAGE;
	if (r == PARTS_E_PATH) {
		log_error(LOG_START_FAILED,
			  "the memory path that --memory-path asks for does not work: %s",
			  vulkan_path_refusal(broker->vulkan));
		return OPTIONS_EXIT_USAGE;
	}
	if (r) {
		if (!allowance_explain(r, broker->options.metrics.address.bytes > 0))
			log_error(LOG_START_FAILED, "cannot start: %s", strerror(-r));
		return OPTIONS_EXIT_FAILURE;
	}
	r = parts_make_server(broker);
	if (r)
		return explain_server(broker, r);
	r = parts_make_refresh(broker);
	if (r == 0)
		r = parts_make_gate(broker);
	if (r) {
		if (!allowance_explain(r, broker->options.metrics.address.bytes > 0))
			log_error(LOG_START_FAILED, "cannot start: %s", strerror(-r));
		return OPTIONS_EXIT_FAILURE;
	}

	hasten_reactor(broker);
	say_what_was_found(broker);
	r = endpoint_start(&broker->options, broker->loop, broker->server, endpoint_awake_ns,
			   &broker->endpoint);
	if (r && !broker->given.is_own)
		return r;
	/* Clients wait for this broker; the earlier one is gone, and cannot go on instead. */
	if (r)
		log_error(LOG_METRICS_SOCKET, "this broker goes on without metrics");
	service_ready(broker->service, describe_state, broker);
	restart_ready(broker->restart);
	confine_reactor(broker);
	r = dispatch_run(broker->dispatch, broker->server);
	if (r) {
		/* Tasks are still running on a device: memory that they use must not be freed. */
		log_error(LOG_STOPPED_BUSY, "stopped with tasks in flight: %s", strerror(-r));
		leave(broker, OPTIONS_EXIT_FAILURE);
	}
	restart_end(broker->restart);
	log_info(LOG_STOPPED, "stopped");
	return 0;
}

/* brokerd --list-devices: needs neither io_uring nor the socket. */
static int broker_list_devices(struct broker *broker)
{
	/* Some cards take seconds for their sensors, and the machine may be busy. */
	const uint64_t timeout_ns = 60000000000u;
	int r;

	clock_init();
	r = waker_init(&broker->waker);
	if (r == 0)
		r = waker_init(&broker->telemetry_waker);
	if (r == 0)
		r = parts_make_executors(broker);
	if (r == 0)
		r = parts_make_profiles(broker, PROFILES_LIST_BUDGET_NS);
	if (r) {
		log_error(LOG_START_FAILED, "cannot open the devices: %s", strerror(-r));
		return OPTIONS_EXIT_FAILURE;
	}
	for (unsigned int i = 0; telemetry_sentence(broker->telemetry, i); i++)
		log_warning(LOG_LIST_INCOMPLETE, "%s", telemetry_sentence(broker->telemetry, i));
	if (broker->telemetry_error)
		log_warning(LOG_LIST_INCOMPLETE, "devices are not watched: %s",
			    strerror(-broker->telemetry_error));
	if (!telemetry_wait(broker->telemetry, timeout_ns))
		log_warning(LOG_LIST_INCOMPLETE,
			    "a device did not report all of its figures in time");
	r = list_devices(stdout, broker->options.list_devices, broker->executors,
			 broker->n_executors, broker->profiles, broker->telemetry);
	if (r)
		log_error(LOG_LIST_INCOMPLETE, "cannot write the list: %s", strerror(-r));
	return r ? OPTIONS_EXIT_FAILURE : 0;
}

/* The steward's. @data: the broker. */
static void end_parts(void *data)
{
	parts_deinit(data);
}

/* The steward's: it removes a socket. @data: the broker. */
static void end_metrics(void *data)
{
	struct broker *broker = data;

	broker->endpoint = endpoint_stop(broker->endpoint);
}

/* Do what the command line asks for. Return: the status to exit with. */
static int run(struct broker *broker, int argc, char **argv)
{
	struct policy_errors errors = {.n = 0};
	int r;

	/*
	 * Return the memory of ended sessions to the system. By default the allocator learns from
	 * large pieces that are freed to keep ever larger ones, has an arena for every thread, and
	 * uses as many mappings as there are large pieces.
	 */
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	mallopt(M_TRIM_THRESHOLD, 256 << 10);
	mallopt(M_ARENA_MAX, 2);
	mallopt(M_MMAP_MAX, MALLOC_MAPPINGS);
	/* Join small pieces as they are freed, not all at once when a large piece is freed. */
	mallopt(M_MXFAST, 0);
	log_open_journal(LOG_JOURNAL_PATH);
	r = options_parse(argc, argv, &broker->options);
	if (r >= 0)
		return streams_finish("brokerd", r);
	if (broker->options.checks_config)
		return streams_finish("brokerd", config_check(&broker->options));
	broker->asked = broker->options;
	r = config_load(&broker->options, &broker->policy, &errors);
	if (r) {
		if (r == POLICY_E_INVALID)
			config_log_errors(LOG_START_FAILED, "cannot start with this policy",
					  &errors);
		else
			log_error(LOG_START_FAILED, "cannot read %s: %s",
				  broker->options.config_path, strerror(-r));
		return OPTIONS_EXIT_USAGE;
	}
	if (!broker->options.list_devices && take_sockets(broker)) {
		policy_free(broker->policy);
		return OPTIONS_EXIT_USAGE;
	}
	options_complete(&broker->options);
	log_set_level(broker->options.log_level);
	r = broker->options.list_devices ? broker_list_devices(broker) : broker_run(broker);
	if (broker->server && server_n_discards(broker->server) > 0) {
		/* The descriptor's sender decides when its closing ends. */
		log_warning(LOG_STOPPED_BUSY,
			    "brokerd does not wait for a client's descriptor to be closed");
		steward_do(broker->steward, end_metrics, broker);
		leave(broker, r);
	}
	steward_do(broker->steward, end_parts, broker);
	steward_free(broker->steward);
	return r;
}

int main(int argc, char **argv)
{
	struct broker broker = {
		.signal_fd = -1, .waker = {.fd = -1}, .telemetry_waker = {.fd = -1}};
	int r;

	streams_init();
	broker.restart = restart_new(argv, &broker);
	r = run(&broker, argc, argv);
	restart_free(broker.restart);
	return r;
}
