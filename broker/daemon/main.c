/* SPDX-License-Identifier: MIT */
/*
 * brokerd: making the parts, in the order of their dependencies, and unmaking them
 *
 * Nothing here is needed but io_uring: without a GPU, without privilege, without configuration the
 * broker starts, does what it can, and says in a few lines what it found and what it could not.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "calibrate/profiles.h"
#include "calibrate/refresh.h"
#include "contention/contention.h"
#include "control/control.h"
#include "control/publish.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "daemon/allowance.h"
#include "daemon/config.h"
#include "daemon/endpoint.h"
#include "daemon/list-devices.h"
#include "daemon/options.h"
#include "daemon/service.h"
#include "daemon/test-device.h"
#include "daemon/watch.h"
#include "dispatch/dispatch.h"
#include "lease/enforce.h"
#include "lease/gate.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "loop/turn.h"
#include "memory/budget.h"
#include "memory/residency.h"
#include "session/server.h"
#include "session/sigbus.h"
#include "tenant/tenant.h"
#include "util/cgroup.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/plural.h"
#include "util/streams.h"
#include "util/thread.h"
#include "util/waker.h"
#include "vulkan/vulkan.h"

enum {
	MAIN_E_PATH = 1,  /* make_executors: vulkan_path_refusal() says why */
	MAIN_E_FILES = 2, /* make_tenants: there may be too few open files; it was said */
};

/* The reactor has nine times the share of another thread then, and still not all. */
enum { REACTOR_NICE_BELOW = 10 };

/*
 * A process has 65,530 mappings by default (vm.max_map_count). These are what tenants are charged
 * for and what the C library takes for large allocations, which may come from its heap as well. The
 * rest is for chunks of packed constants, scratch, tasks and command buffers, see util/chunks.h,
 * and for what drivers have of their own.
 */
enum { TENANTS_MAPPINGS = 24000, MALLOC_MAPPINGS = 16384 };

/* The least that the kernel gives. */
static const uint64_t reactor_slice_ns = 100000;

/* Reading the policy file again, on the setup thread: looking up users may take long. */
struct reload {
	struct offload_job job;
	struct options options; /* what they would be now */
	struct policy *policy;
	char *errors;
	int result;
	bool is_running;
	bool is_wanted; /* once more: the file may have changed since */
};

struct broker {
	struct options options;
	struct options asked;  /* what the command line says, without the file */
	struct policy *policy; /* until the tenants have it */
	struct reload reload;
	struct waker waker;
	struct loop *loop;
	struct service *service;
	struct service_sockets given; /* paths are in the options, too */
	struct offload *offload;
	struct account_book *book;
	struct tenants *tenants;
	struct vulkan *vulkan;
	struct executor *executors[RBK_MAX_DEVICES];
	uint32_t n_executors;
	struct executor *test_device; /* one of them; NULL: not wanted */
	struct profiles *profiles;
	struct waker telemetry_waker;
	struct telemetry *telemetry;
	int telemetry_error;
	int nice_error; /* of hasten_reactor() */
	struct budget *budget;
	struct residency *residency;
	struct enforce *enforce;
	char cgroups[PATH_MAX]; /* where they are mounted, for it */
	struct gate *gate;
	struct run_queue *run_queue;
	struct contention *contention;
	struct dispatch *dispatch;
	struct refresh *refresh;
	struct publish *publish;
	struct control *control;
	struct server *server;
	struct endpoint *endpoint;
	int signal_fd;
	struct loop_watch *signal_watch;
	bool is_stopping;
};

static void reload_start(struct broker *broker);

static void reload_run(struct offload_job *job)
{
	struct reload *reload = container_of(job, struct reload, job);

	reload->result = config_load(&reload->options, &reload->policy, &reload->errors);
}

/* Takes back what is above a limit now. */
static void on_limits_changed(void *context)
{
	struct broker *broker = context;

	residency_limits_changed(broker->residency);
	dispatch_limits_changed(broker->dispatch);
	budget_policy_changed(broker->budget);
	enforce_policy_changed(broker->enforce);
}

static void on_lowered(void *context)
{
	struct broker *broker = context;

	dispatch_limits_changed(broker->dispatch);
}

static void on_corrected(void *context, uint8_t device)
{
	struct broker *broker = context;

	residency_leases_changed(broker->residency, device);
}

/* Takes over the policy that was read. Return: as tenants_reload(). */
static int apply_policy(struct broker *broker)
{
	struct reload *reload = &broker->reload;
	char *changes = config_changes(tenants_policy(broker->tenants), reload->policy);
	int r;

	r = tenants_reload(broker->tenants, reload->policy, &reload->errors);
	if (r == 0) {
		reload->policy = NULL;
		on_limits_changed(broker);
		gate_check(broker->gate);
		publish_configure(broker->publish, &reload->options.place);
		contention_set_observes(broker->contention, reload->options.observes_contention);
		server_forget_tenants(broker->server);
		server_know_tenants(broker->server);
		log_info(LOG_POLICY_RELOADED, "read %s again: %s", broker->options.config_path,
			 changes ? changes : "it is in force");
	}
	free(changes);
	return r;
}

static void reload_done(struct offload_job *job)
{
	static const char nothing_changed[] = "the policy in force stays as it was";
	struct reload *reload = container_of(job, struct reload, job);
	struct broker *broker = container_of(reload, struct broker, reload);
	int r = reload->result;

	reload->is_running = false;
	if (!broker->is_stopping) {
		if (r == 0)
			r = apply_policy(broker);
		if (r == POLICY_E_INVALID)
			config_log_errors(LOG_POLICY_KEPT, nothing_changed,
					  steal_ptr(reload->errors));
		else if (r)
			log_error(LOG_POLICY_KEPT, "cannot read %s again: %s; %s",
				  broker->options.config_path, strerror(-r), nothing_changed);
	}
	reload->policy = policy_free(reload->policy);
	free(steal_ptr(reload->errors));
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
	/* What the file does not say any more is as if it never had. */
	reload->options = broker->asked;
	reload->job = (struct offload_job){
		.run = reload_run,
		.done = reload_done,
		.cause = OFFLOAD_FILE,
	};
	offload_submit(broker->offload, &reload->job);
}

/*
 * Ends the process with threads that may not end: a thread that waits for a client's file holds the
 * process's descriptors, and a successor must not find the sockets locked.
 */
static void leave(struct broker *broker, int status)
{
	if (broker->server)
		server_unlock(broker->server);
	_exit(status);
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
		gate_stop(broker->gate);
		refresh_stop(broker->refresh);
		dispatch_stop(broker->dispatch);
	}
}

static int watch_signals(struct broker *broker)
{
	sigset_t set;

	/* Before any thread starts, so that every thread has them blocked. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return error_origin(-errno);
	signal(SIGPIPE, SIG_IGN);
	broker->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (broker->signal_fd < 0)
		return error_origin(-errno);
	return loop_watch(broker->loop, broker->signal_fd, POLLIN, on_signal, broker,
			  &broker->signal_watch);
}

/* After the devices, of which budgets are parts. Return: 0; MAIN_E_FILES; as tenants_new(). */
static int make_tenants(struct broker *broker, char **ret_errors)
{
	struct tenants_machine machine = {
		.host_bytes = config_host_max(&broker->options),
		.n_devices = broker->n_executors,
		.n_mappings = TENANTS_MAPPINGS,
		.n_watches = allowance_watches(),
	};
	int r = allowance_descriptors(broker->options.metrics.address.bytes > 0, &machine.n_fds);

	if (r)
		return r == ALLOWANCE_E_FILES ? MAIN_E_FILES : r;
	for (uint32_t i = 0; i < broker->n_executors; i++) {
		machine.vram_bytes[i] = broker->executors[i]->info.memory_bytes;
		machine.gtt_bytes[i] = broker->executors[i]->info.gtt_bytes;
	}
	r = account_book_new(&broker->book);
	if (r)
		return error_fold(r);
	/* By default, three quarters of it are the most that one tenant can have. */
	account_book_limit(broker->book, ACCOUNT_HOST_BYTES, machine.host_bytes);
	r = tenants_new(broker->book, &machine, broker->policy, &broker->tenants, ret_errors);
	if (r == 0)
		broker->policy = NULL;
	return r;
}

static int make_executors(struct broker *broker)
{
	int r;

	r = cpu_executor_new(&broker->options.cpu, &broker->waker, &broker->executors[0]);
	if (r)
		return error_fold(r);
	broker->n_executors = 1;

	if (broker->options.test_device_ns) {
		r = test_device_new(broker->options.test_device_ns, &broker->waker,
				    &broker->test_device);
		if (r)
			return error_fold(r);
		broker->executors[broker->n_executors++] = broker->test_device;
		log_warning(LOG_TEST_DEVICE,
			    "device %u is for tests: it computes nothing and takes %g us for it",
			    broker->n_executors - 1, (double)broker->options.test_device_ns / 1e3);
	}

	r = vulkan_open(&broker->options.vulkan, &broker->waker, &broker->vulkan);
	if (r)
		return error_fold(r);
	if (vulkan_path_refusal(broker->vulkan))
		return MAIN_E_PATH;
	for (unsigned int i = 0;
	     i < vulkan_n_executors(broker->vulkan) && broker->n_executors < RBK_MAX_DEVICES; i++)
		broker->executors[broker->n_executors++] = vulkan_executor(broker->vulkan, i);
	for (uint32_t i = 0; i < broker->n_executors; i++)
		broker->executors[i]->index = (uint8_t)i;

	/* Inline tasks run on this thread, with the same results as on a worker. */
	cpu_flush_denormals();

	/* Without it only less is known. */
	broker->telemetry_error = watch_devices(broker->executors, broker->n_executors,
						&broker->telemetry_waker, &broker->telemetry);
	return 0;
}

/* Before anybody is served: it has the devices and their waker to itself. */
static int make_profiles(struct broker *broker, uint64_t budget_ns)
{
	struct profiles_options options = {
		.mode = broker->options.calibration,
		.folder = broker->options.vulkan.cache_dir,
		.executors = broker->executors,
		.n_executors = broker->n_executors,
		.budget_ns = budget_ns,
		.waker = &broker->waker,
		.cpu_watts = broker->options.cpu_watts,
		.gpu_watts = broker->options.gpu_watts,
	};
	int r;

	if (broker->test_device)
		options.given[broker->test_device->index] =
			test_device_profile(broker->test_device);
	r = profiles_new(&options, &broker->profiles);
	if (r)
		return error_fold(r);
	profiles_set_parts(broker->profiles, broker->options.place.submission_max_ns);
	return 0;
}

static uint32_t count_processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	return (uint32_t)CPU_COUNT(&set);
}

static int make_residency(struct broker *broker)
{
	const struct residency_options residency_options = {
		.loop = broker->loop,
		.offload = broker->offload,
		.executors = broker->executors,
		.n_executors = broker->n_executors,
	};
	struct budget_options budget_options = {
		.loop = broker->loop,
		.waker = &broker->telemetry_waker,
		.telemetry = broker->telemetry,
		.tenants = broker->tenants,
		.executors = broker->executors,
		.n_executors = broker->n_executors,
		.is_capped = broker->options.vulkan.memory_cap_bytes > 0,
	};
	struct enforce_options enforce_options = {
		.loop = broker->loop,
		.telemetry = broker->telemetry,
		.tenants = broker->tenants,
		.n_devices = broker->n_executors,
		.proc = "/proc",
		.cgroups = cgroup_find_root(broker->cgroups, sizeof(broker->cgroups))
				   ? broker->cgroups
				   : NULL,
		.lowered = on_lowered,
		.corrected = on_corrected,
		.context = broker,
	};
	int r;

	r = residency_new(&residency_options, &broker->residency);
	if (r)
		return error_fold(r);
	enforce_options.leases = residency_leases(broker->residency);
	watch_name_memory(broker->executors, broker->n_executors, broker->options.test_dmem_region,
			  enforce_options.leases);
	r = enforce_new(&enforce_options, &broker->enforce);
	if (r)
		return error_fold(r);
	budget_options.residency = broker->residency;
	budget_options.enforce = broker->enforce;
	return budget_new(&budget_options, &broker->budget);
}

/*
 * While there is no other thread: what they start inherits what is given up. Without privileges
 * less is seen, without memory or threads nothing works.
 */
static int watch_run_queue(struct broker *broker)
{
	const struct run_queue_options options = {.source = broker->options.contention};
	int r = run_queue_new(&options, &broker->run_queue);

	if (r)
		return error_fold(r);
	r = run_queue_drop_privileges();
	if (r)
		log_warning(LOG_PRIVILEGES_KEPT,
			    "cannot give up the privileges that probes needed: %s", strerror(-r));
	return 0;
}

static int make_contention(struct broker *broker)
{
	struct contention_options options = {
		.loop = broker->loop,
		.run_queue = broker->run_queue,
		.cpu = broker->executors[RBK_DEVICE_CPU],
		.observes = broker->options.observes_contention,
	};

	for (uint32_t i = 0; i < broker->n_executors; i++)
		if (broker->executors[i]->info.kind == EXECUTOR_SOFTWARE_GPU)
			options.software_gpus |= 1u << i;
	return contention_new(&options, &broker->contention);
}

/* Those that a service manager has made go before those of the options. */
static int take_sockets(struct broker *broker)
{
	struct service_sockets *given = &broker->given;
	struct options *options = &broker->options;
	int r = service_take_sockets(given);

	if (given->fd)
		snprintf(options->socket_path, sizeof(options->socket_path), "%s", given->path);
	if (given->admin_fd) {
		snprintf(options->admin_socket_path, sizeof(options->admin_socket_path), "%s",
			 given->admin_path);
		options->has_admin_socket = true;
	}
	return r;
}

static struct server_admin_options admin_options(const struct broker *broker)
{
	const struct options *options = &broker->options;

	return (struct server_admin_options){
		.socket_path = options->admin_socket_path[0] ? options->admin_socket_path : NULL,
		.given_fd = broker->given.admin_fd,
		.socket_mode = options->admin_socket_mode,
		.has_group = options->has_admin_group,
		.gid = options->admin_group,
		.users = options->admin_users.uids,
		.n_users = options->admin_users.n,
	};
}

static int make_control(struct broker *broker)
{
	const struct control_options options = {
		.tenants = broker->tenants,
		.dispatch = broker->dispatch,
		.residency = broker->residency,
		.n_executors = broker->n_executors,
		.limits_changed = on_limits_changed,
		.context = broker,
	};

	return control_new(&options, &broker->control);
}

static int make_dispatch(struct broker *broker)
{
	struct dispatch_options options = {
		.loop = broker->loop,
		.waker = &broker->waker,
		.executors = broker->executors,
		.n_executors = broker->n_executors,
		.residency = broker->residency,
		.config = broker->options.place,
		.spin_ns = broker->options.spin_ns,
		.n_processors = count_processors(),
		.set_pace = budget_set_pace,
		.pace_context = broker->budget,
		.work_begins = contention_work_begins,
		.work_context = broker->contention,
	};
	int r;

	for (uint32_t i = 0; i < broker->n_executors; i++)
		options.profiles[i] = profiles_get(broker->profiles, i);
	r = dispatch_new(&options, &broker->dispatch);
	if (r)
		return error_fold(r);
	contention_start(broker->contention, broker->dispatch);
	return 0;
}

static int make_publish(struct broker *broker)
{
	const struct publish_options options = {
		.loop = broker->loop,
		.tenants = broker->tenants,
		.offload = broker->offload,
		.telemetry = broker->telemetry,
		.budget = broker->budget,
		.dispatch = broker->dispatch,
		.contention = broker->contention,
		.residency = broker->residency,
		.executors = broker->executors,
		.n_executors = broker->n_executors,
	};

	return publish_new(&options, &broker->publish);
}

/* Return: as server_new(). */
static int make_server(struct broker *broker)
{
	struct server_options options = {
		.socket_path = broker->options.socket_path,
		.socket_mode = broker->options.socket_mode,
		.given_fd = broker->given.fd,
		.admin = admin_options(broker),
		.limits = SERVER_LIMITS_DEFAULT,
		.loop = broker->loop,
		.offload = broker->offload,
		.tenants = broker->tenants,
		.executors = broker->executors,
		.n_executors = broker->n_executors,
		.residency = broker->residency,
		.observer = contention_observer(broker->contention),
		.hooks = dispatch_hooks(broker->dispatch),
		.publisher = publish_hooks(broker->publish),
		.control = control_hooks(broker->control),
	};
	int r;

	if (!broker->options.admin_socket_path[0] && !broker->options.has_admin_socket)
		log_warning(LOG_ADMIN_SOCKET,
			    "no socket for administrators: its path, by default beside %s, would "
			    "be longer than 107 bytes; see --admin-socket",
			    broker->options.socket_path);
	r = server_new(&options, &broker->server);
	if (r > SERVER_E_ADMIN && !broker->options.has_admin_socket) {
		/* A folder that only a manager may write to, say. */
		log_warning(LOG_ADMIN_SOCKET,
			    "no socket for administrators: %s cannot be made or is another "
			    "broker's; see --admin-socket",
			    broker->options.admin_socket_path);
		broker->options.admin_socket_path[0] = '\0';
		options.admin.socket_path = NULL;
		r = server_new(&options, &broker->server);
	}
	if (r == 0)
		publish_start(broker->publish, broker->server);
	return r;
}

/* Now that no other broker has this socket, and so the gate beside it. */
static int make_gate(struct broker *broker)
{
	const struct gate_options options = {
		.socket_path = broker->options.socket_path,
		.loop = broker->loop,
		.leases = residency_leases(broker->residency),
	};

	return gate_new(&options, &broker->gate);
}

static int make_refresh(struct broker *broker)
{
	const struct refresh_options options = {
		.loop = broker->loop,
		.offload = broker->offload,
		.dispatch = broker->dispatch,
		.residency = broker->residency,
		.profiles = broker->profiles,
		.account = tenants_broker_account(broker->tenants),
		.executors = broker->executors,
		.n_executors = broker->n_executors,
	};

	if (broker->options.calibration == PROFILES_NONE)
		return 0;
	return refresh_new(&options, &broker->refresh);
}

/* For the service manager: what a look at its list of services should tell. */
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
		 plural(broker->n_executors), lost, (unsigned long long)figures.n_sessions,
		 plural(figures.n_sessions),
		 contention.is_contended ? "contended" : "not contended");
}

/* Three lines: the devices, what is missing and what that costs, where to find us. */
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
				      "%sdevices are not watched (%s): memory that other programs "
				      "take is not noticed.",
				      n ? " " : "", strerror(-broker->telemetry_error));
	if (broker->options.cache_error && n < sizeof(line))
		n += (size_t)snprintf(
			line + n, sizeof(line) - n,
			"%spipelines are compiled anew at each start: no cache in %s (%s).",
			n ? " " : "", broker->options.cache_dir,
			strerror(broker->options.cache_error));
	if (broker->nice_error && n < sizeof(line))
		n += (size_t)snprintf(line + n, sizeof(line) - n,
				      "%sclients wait behind programs that keep the processors "
				      "busy: the thread that serves them may not have nice level "
				      "%d (LimitNICE=%d in the unit, or ulimit -e %d).",
				      n ? " " : "", broker->options.reactor_nice,
				      broker->options.reactor_nice,
				      20 - broker->options.reactor_nice);
	if (broker->options.host_max_bytes > config_host_memory() && n < sizeof(line))
		n += (size_t)snprintf(line + n, sizeof(line) - n,
				      "%stenants can use up the memory: --host-max lets them have "
				      "%.1f GiB, of %.1f GiB that the machine or the cgroup has.",
				      n ? " " : "",
				      (double)broker->options.host_max_bytes / (1u << 30),
				      (double)config_host_memory() / (1u << 30));
	log_info(LOG_DEVICES_LACKING, "%s",
		 line[0] ? line : "everything that was looked for is there");
	if (broker->options.admin_socket_path[0])
		log_info(LOG_LISTENING, "listening on %s, and for administrators on %s",
			 broker->options.socket_path, broker->options.admin_socket_path);
	else
		log_info(LOG_LISTENING, "listening on %s", broker->options.socket_path);
}

/*
 * A client waits twice for this thread, which has little to do each time. No share that all have
 * the same of suffices for it: one tenant's processes may keep all processors busy, and another's
 * tasks wait for this thread then. Its turns share what it does among tenants.
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
		log_debug(LOG_DETAIL, "the reactor's slices stay as long as others': %s",
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
			  "another brokerd, or a service manager, listens on %s; give this one its "
			  "own %s",
			  path, option);
		return OPTIONS_EXIT_USAGE;
	case SERVER_E_PERMISSION:
		log_error(LOG_START_FAILED,
			  "no permission to make a socket at %s; choose another %s", path, option);
		return OPTIONS_EXIT_USAGE;
	case SERVER_E_PATH:
		log_error(LOG_START_FAILED, "cannot make a socket at %s: %s; choose another %s",
			  path,
			  strlen(path) < sizeof(broker->options.admin_socket_path)
				  ? "its folder does not exist"
				  : "the path is longer than 107 bytes",
			  option);
		return OPTIONS_EXIT_USAGE;
	case SERVER_E_NO_SOCKET:
		log_error(LOG_START_FAILED, "%s is there and is no socket; choose another %s", path,
			  option);
		return OPTIONS_EXIT_USAGE;
	default:
		if (!allowance_explain(r, broker->options.metrics.address.bytes > 0))
			log_error(LOG_START_FAILED, "cannot listen on %s: %s", path, strerror(-r));
		return OPTIONS_EXIT_FAILURE;
	}
}

/*
 * Everything between the loop and the sockets, each after what it is made of. Return: 0; MAIN_E_*;
 * as tenants_new(), with *ret_errors; negative errno.
 */
static int make_parts(struct broker *broker, char **ret_errors)
{
	int r = watch_signals(broker);

	if (r == 0)
		r = service_new(broker->loop, &broker->service);
	if (r == 0)
		r = sigbus_init();
	if (r == 0)
		r = waker_init(&broker->waker);
	if (r == 0)
		r = waker_init(&broker->telemetry_waker);
	if (r == 0)
		r = watch_run_queue(broker);
	if (r == 0)
		r = offload_new(broker->loop, &broker->offload);
	if (r == 0) {
		service_starting(broker->service, "opening the devices");
		r = make_executors(broker);
	}
	if (r == 0)
		r = make_tenants(broker, ret_errors);
	if (r == 0) {
		service_starting(broker->service, "measuring the devices");
		r = make_profiles(broker, PROFILES_BUDGET_NS);
	}
	if (r == 0)
		r = make_residency(broker);
	if (r == 0)
		r = make_contention(broker);
	if (r == 0)
		r = make_dispatch(broker);
	if (r == 0)
		r = make_publish(broker);
	if (r == 0)
		r = make_control(broker);
	return r;
}

static int broker_run(struct broker *broker)
{
	char *errors = NULL;
	int r;

	clock_init();
	r = loop_new(&broker->loop);
	if (r == -ENOMEM) {
		log_error(LOG_START_FAILED,
			  "there is no memory for io_uring: raise the limit of locked memory "
			  "(LimitMEMLOCK= in the unit, or ulimit -l), or that of the cgroup");
		return OPTIONS_EXIT_USAGE;
	}
	if (r) {
		log_error(LOG_START_FAILED,
			  "the kernel offers no io_uring (%s): Linux 6.1 or later is needed, with "
			  "io_uring allowed in this container",
			  strerror(-r));
		return OPTIONS_EXIT_USAGE;
	}
	turn_set_budget(loop_current(broker->loop), broker->options.turn_ns);
	r = make_parts(broker, &errors);
	if (errors) {
		config_log_errors(LOG_START_FAILED, "cannot start with this policy", errors);
		return OPTIONS_EXIT_USAGE;
	}
	if (r == MAIN_E_FILES)
		return OPTIONS_EXIT_USAGE;
	if (r == MAIN_E_PATH) {
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
	r = make_server(broker);
	if (r)
		return explain_server(broker, r);
	r = make_refresh(broker);
	if (r == 0)
		r = make_gate(broker);
	if (r) {
		if (!allowance_explain(r, broker->options.metrics.address.bytes > 0))
			log_error(LOG_START_FAILED, "cannot start: %s", strerror(-r));
		return OPTIONS_EXIT_FAILURE;
	}

	hasten_reactor(broker);
	say_what_was_found(broker);
	r = endpoint_start(&broker->options, broker->loop, broker->server, endpoint_awake_ns,
			   &broker->endpoint);
	if (r)
		return r;
	service_ready(broker->service, describe_state, broker);
	r = dispatch_run(broker->dispatch, broker->server);
	if (r) {
		/* Something is still running on a device: memory that it uses must not be freed. */
		log_error(LOG_STOPPED_BUSY, "stopped with tasks in flight: %s", strerror(-r));
		leave(broker, OPTIONS_EXIT_FAILURE);
	}
	log_info(LOG_STOPPED, "stopped");
	return 0;
}

/* brokerd --list-devices: needs neither io_uring nor the socket. */
static int broker_list_devices(struct broker *broker)
{
	/* What a card is slow to tell may take some seconds, and the machine may be busy. */
	const uint64_t timeout_ns = 60000000000u;
	int r;

	clock_init();
	r = waker_init(&broker->waker);
	if (r == 0)
		r = waker_init(&broker->telemetry_waker);
	if (r == 0)
		r = make_executors(broker);
	if (r == 0)
		r = make_profiles(broker, PROFILES_LIST_BUDGET_NS);
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
		log_warning(LOG_LIST_INCOMPLETE, "a device has not told everything in time");
	r = list_devices(stdout, broker->options.list_devices, broker->executors,
			 broker->n_executors, broker->profiles, broker->telemetry);
	if (r)
		log_error(LOG_LIST_INCOMPLETE, "cannot write the list: %s", strerror(-r));
	return r ? OPTIONS_EXIT_FAILURE : 0;
}

static void broker_deinit(struct broker *broker)
{
	broker->endpoint = endpoint_stop(broker->endpoint);
	server_free(broker->server);
	control_free(broker->control);
	publish_free(broker->publish);
	dispatch_free(broker->dispatch);
	contention_free(broker->contention);
	run_queue_free(broker->run_queue);
	offload_free(broker->offload);
	refresh_free(broker->refresh);
	budget_free(broker->budget);
	enforce_free(broker->enforce);
	gate_free(broker->gate);
	residency_free(broker->residency);
	telemetry_free(broker->telemetry);
	profiles_free(broker->profiles);
	if (broker->executors[0])
		broker->executors[0]->ops->free(broker->executors[0]);
	if (broker->test_device)
		broker->test_device->ops->free(broker->test_device);
	vulkan_free(broker->vulkan);
	tenants_free(broker->tenants);
	policy_free(broker->policy);
	account_book_free(broker->book);
	loop_unwatch(broker->signal_watch);
	close_fd(broker->signal_fd);
	waker_deinit(&broker->waker);
	waker_deinit(&broker->telemetry_waker);
	service_free(broker->service);
	loop_free(broker->loop);
}

int main(int argc, char **argv)
{
	struct broker broker = {
		.signal_fd = -1, .waker = {.fd = -1}, .telemetry_waker = {.fd = -1}};
	char *errors = NULL;
	int r;

	streams_init();
	/*
	 * What sessions leave goes back to the system. By itself the allocator learns from large
	 * pieces that are freed to keep ever larger ones, has an arena for every thread, and takes
	 * as many mappings as there are large pieces.
	 */
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	mallopt(M_TRIM_THRESHOLD, 256 << 10);
	mallopt(M_ARENA_MAX, 2);
	mallopt(M_MMAP_MAX, MALLOC_MAPPINGS);
	/* Join small pieces as they are freed, not all at once when a large piece is freed. */
	mallopt(M_MXFAST, 0);
	log_open_journal(LOG_JOURNAL_PATH);
	r = options_parse(argc, argv, &broker.options);
	if (r >= 0)
		return streams_finish("brokerd", r);
	if (broker.options.checks_config)
		return streams_finish("brokerd", config_check(&broker.options));
	broker.asked = broker.options;
	r = config_load(&broker.options, &broker.policy, &errors);
	if (r) {
		if (r == POLICY_E_INVALID)
			config_log_errors(LOG_START_FAILED, "cannot start with this policy",
					  errors);
		else
			log_error(LOG_START_FAILED, "cannot read %s: %s",
				  broker.options.config_path, strerror(-r));
		return OPTIONS_EXIT_USAGE;
	}
	if (!broker.options.list_devices && take_sockets(&broker)) {
		policy_free(broker.policy);
		return OPTIONS_EXIT_USAGE;
	}
	options_complete(&broker.options);
	log_set_level(broker.options.log_level);
	r = broker.options.list_devices ? broker_list_devices(&broker) : broker_run(&broker);
	if (broker.server && server_n_discards(broker.server) > 0) {
		/* Its sender decides when that ends. */
		log_warning(LOG_STOPPED_BUSY, "not waiting for a client's descriptor to be closed");
		endpoint_stop(broker.endpoint);
		leave(&broker, r);
	}
	broker_deinit(&broker);
	return r;
}
