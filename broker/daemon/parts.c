/* SPDX-License-Identifier: MIT */
/* The parts of brokerd, each with the options that it is made with. */
#include "daemon/parts.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "calibrate/profiles.h"
#include "contention/contention.h"
#include "control/control.h"
#include "control/publish.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "daemon/admin-folder.h"
#include "daemon/allowance.h"
#include "daemon/checkpoint.h"
#include "daemon/config.h"
#include "daemon/confine.h"
#include "daemon/endpoint.h"
#include "daemon/refresh-profiles.h"
#include "daemon/restart.h"
#include "daemon/test-device.h"
#include "daemon/watch.h"
#include "dispatch/dispatch.h"
#include "lease/enforce.h"
#include "lease/gate.h"
#include "loop/loop.h"
#include "memory/budget.h"
#include "memory/residency.h"
#include "session/server.h"
#include "session/sigbus.h"
#include "tenant/tenant.h"
#include "util/cgroup.h"
#include "util/crash.h"
#include "util/error.h"
#include "util/log.h"
#include "util/thread.h"
#include "vulkan/vulkan.h"

void parts_limits_changed(void *context)
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

/* The first sample comes before there are tasks and sessions. */
static void on_engine_time(void *context, uint8_t device, uint64_t own_ns, uint64_t others_ns)
{
	struct broker *broker = context;

	if (broker->dispatch)
		dispatch_note_engine_time(broker->dispatch, device, own_ns, others_ns);
}

static void on_leased_time(void *context, const struct tenant *tenant, uint8_t device, uint64_t ns)
{
	struct broker *broker = context;

	if (broker->dispatch)
		dispatch_charge_leased(broker->dispatch, tenant, device, ns);
	if (broker->server)
		server_stats_leased_time(broker->server, tenant, device, ns);
}

static void on_count_timeslices(void *context)
{
	struct broker *broker = context;

	if (broker->server)
		server_count_timeslices(broker->server);
}

static uint64_t on_plans_used(void *context, const struct tenant *tenant, uint8_t device,
			      float *ret_factor)
{
	const struct broker *broker = context;

	return dispatch_used_ns(broker->dispatch, tenant, device, ret_factor);
}

static void on_activity(void *context, uint32_t devices, bool has_rings)
{
	struct broker *broker = context;

	budget_set_pace(broker->budget, devices != 0, has_rings);
}

static void on_share_plans(void *context, uint8_t device, struct timeslice_plans *changed)
{
	struct broker *broker = context;

	if (broker->server)
		server_share_plans(broker->server, device, changed);
}

static void on_corrected(void *context, uint8_t device)
{
	struct broker *broker = context;

	residency_leases_changed(broker->residency, device);
}

/*
 * Make the tenants, after the devices: budgets are shares of the memory of devices.
 * Return: 0; PARTS_E_FILES; as tenants_new().
 */
static int make_tenants(struct broker *broker, struct policy_errors *ret_errors)
{
	struct tenants_machine machine = {
		.host_bytes = config_host_max(&broker->options),
		.n_devices = broker->n_executors,
		.n_mappings = TENANTS_MAPPINGS,
		.n_watches = allowance_watches(),
	};
	int r = allowance_descriptors(broker->options.metrics.address.bytes > 0, &machine.n_fds);

	if (r)
		return r == ALLOWANCE_E_FILES ? PARTS_E_FILES : r;
	for (uint32_t i = 0; i < broker->n_executors; i++) {
		machine.vram_bytes[i] = broker->executors[i]->info.memory_bytes;
		machine.gtt_bytes[i] = broker->executors[i]->info.gtt_bytes;
	}
	r = account_book_new(&broker->book);
	if (r)
		return error_fold(r);
	/* By default, one tenant may have at most three quarters of this limit. */
	account_book_limit(broker->book, ACCOUNT_HOST_BYTES, machine.host_bytes);
	broker->started_keys = config_remember(broker->policy);
	r = tenants_new(broker->book, &machine, broker->policy, &broker->tenants, ret_errors);
	if (r == 0)
		broker->policy = NULL;
	return r;
}

int parts_make_executors(struct broker *broker)
{
	int r;

	r = cpu_executor_new(&broker->options.cpu, &broker->waker, &broker->executors[0]);
	if (r)
		return error_fold(r);
	broker->n_executors = 1;

	if (broker->options.test_device_ns) {
		r = test_device_new(
			&(const struct test_device_options){
				.latency_ns = broker->options.test_device_ns,
				.row_ns = broker->options.test_device_row_ns,
				.flops_per_ns = broker->options.test_device_gflops,
				.link_bytes_per_us = broker->options.test_device_link,
				.memory_bytes = broker->options.vulkan.memory_cap_bytes,
			},
			&broker->waker, &broker->test_device);
		if (r)
			return error_fold(r);
		broker->executors[broker->n_executors++] = broker->test_device;
		log_warning(LOG_TEST_DEVICE,
			    "device %u is for tests: it computes nothing and takes %g us for each "
			    "task, %g us for each of its rows, and %g us for 1,000,000 of its "
			    "operations",
			    broker->n_executors - 1, (double)broker->options.test_device_ns / 1e3,
			    (double)broker->options.test_device_row_ns / 1e3,
			    broker->options.test_device_gflops
				    ? 1e3 / broker->options.test_device_gflops
				    : 0);
	}

	r = vulkan_open(&broker->options.vulkan, &broker->waker, &broker->vulkan);
	if (r)
		return error_fold(r);
	if (vulkan_path_refusal(broker->vulkan))
		return PARTS_E_PATH;
	for (unsigned int i = 0;
	     i < vulkan_n_executors(broker->vulkan) && broker->n_executors < RBK_MAX_DEVICES; i++)
		broker->executors[broker->n_executors++] = vulkan_executor(broker->vulkan, i);
	for (uint32_t i = 0; i < broker->n_executors; i++)
		broker->executors[i]->index = (uint8_t)i;

	/* Inline tasks run on this thread, with the same results as on a worker. */
	cpu_flush_denormals();

	/* A failure is not fatal: brokerd then knows less about the devices. */
	broker->telemetry_error = watch_devices(broker->executors, broker->n_executors,
						&broker->telemetry_waker, &broker->telemetry);
	return 0;
}

int parts_make_profiles(struct broker *broker, uint64_t budget_ns)
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
		.engine_time = on_engine_time,
		.leased_time = on_leased_time,
		.count_timeslices = on_count_timeslices,
		.context = broker,
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

static void *run_queue_main(void *data)
{
	struct broker *broker = data;
	const struct run_queue_options options = {
		.source = broker->options.contention,
		.defers_probes = broker->given.is_own || checkpoint_is_fresh(&broker->options),
	};

	broker->run_queue_result = run_queue_new(&options, &broker->run_queue);
	return NULL;
}

/*
 * Begin to watch the run queue. The kernel verifies the probes for a tenth of a second, while this
 * thread opens the devices. A broker that follows another one, whose clients wait, does not wait
 * for the probes at all. Call this before any other thread starts: threads inherit the
 * privileges that are left.
 */
static int watch_run_queue(struct broker *broker)
{
	int r = thread_start(&broker->run_queue_thread, "rb-probes", run_queue_main, broker);

	if (r)
		return error_fold(r);
	broker->makes_run_queue = true;
	r = run_queue_drop_privileges();
	if (r)
		log_warning(LOG_PRIVILEGES_KEPT,
			    "cannot give up the privileges that the probes needed: %s",
			    strerror(-r));
	return 0;
}

/*
 * Without privileges, the broker sees less; without memory or threads, nothing works.
 * Return: as run_queue_new().
 */
static int await_run_queue(struct broker *broker)
{
	if (!broker->makes_run_queue)
		return 0;
	pthread_join(broker->run_queue_thread, NULL);
	broker->makes_run_queue = false;
	return broker->run_queue_result;
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
		.loop = broker->loop,
		.tenants = broker->tenants,
		.dispatch = broker->dispatch,
		.residency = broker->residency,
		.publish = broker->publish,
		.n_executors = broker->n_executors,
		.limits_changed = parts_limits_changed,
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
		.reactor_task_ns = broker->options.reactor_task_ns,
		.stop_ns = broker->options.stop_ns,
		.n_processors = count_processors(),
		.has_quota = cgroup_quota() < 1000ull * count_processors(),
		.note_activity = on_activity,
		.activity_context = broker,
		.shared_devices = &residency_leases(broker->residency)->timeslices.shared_devices,
		.share_plans = on_share_plans,
		.share_context = broker,
		.work_begins = contention_work_begins,
		.work_context = broker->contention,
	};
	struct leases *leases = residency_leases(broker->residency);
	int r;

	for (uint32_t i = 0; i < broker->n_executors; i++)
		options.profiles[i] = profiles_get(broker->profiles, i);
	r = dispatch_new(&options, &broker->dispatch);
	if (r)
		return error_fold(r);
	crash_watch(dispatch_blame, broker->dispatch);
	contention_start(broker->contention, broker->dispatch);
	leases->timeslices.plans_used = on_plans_used;
	leases->timeslices.plans_context = broker;
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
		.self = &broker->self,
	};

	return publish_new(&options, &broker->publish);
}

int parts_make_server(struct broker *broker)
{
	struct server_options options = {
		.socket_path = broker->options.socket_path,
		.socket_mode = broker->options.socket_mode,
		.given_fd = broker->given.fd,
		.owns_given = broker->given.is_own,
		.admin = admin_options(broker),
		.limits = SERVER_LIMITS_DEFAULT,
		.n_processors = count_processors(),
		.cut_seed = broker->options.cut_seed,
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
		.restarter = restart_hooks(broker->restart),
	};
	int r;

	if (!broker->options.admin_socket_path[0] && !broker->options.has_admin_socket)
		log_warning(
			LOG_ADMIN_SOCKET,
			"there is no socket for administrators: its default path, named after %s, "
			"would be longer than 107 bytes; see --admin-socket",
			broker->options.socket_path);
	r = server_new(&options, &broker->server);
	if (r > SERVER_E_ADMIN && r != SERVER_E_ADMIN + SERVER_E_STOPPED &&
	    !broker->options.has_admin_socket) {
		/* For example, only a service manager may write to the folder. */
		log_warning(LOG_ADMIN_SOCKET,
			    "there is no socket for administrators: %s cannot be made, or belongs "
			    "to another broker; see --admin-socket",
			    broker->options.admin_socket_path);
		broker->options.admin_socket_path[0] = '\0';
		options.admin.socket_path = NULL;
		r = server_new(&options, &broker->server);
	}
	if (r == 0) {
		admin_link_make(&broker->options);
		publish_start(broker->publish, broker->server);
	}
	return r;
}

int parts_make_gate(struct broker *broker)
{
	const struct gate_options options = {
		.socket_path = broker->options.socket_path,
		.loop = broker->loop,
		.leases = residency_leases(broker->residency),
	};

	return gate_new(&options, &broker->gate);
}

int parts_make_refresh(struct broker *broker)
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

int parts_make(struct broker *broker, struct policy_errors *ret_errors)
{
	int r = service_new(broker->loop, &broker->service);

	if (r == 0)
		r = sigbus_init();
	if (r == 0)
		r = crash_init();
	if (r == 0)
		r = waker_init(&broker->waker);
	if (r == 0)
		r = waker_init(&broker->telemetry_waker);
	if (r == 0)
		r = confine_prepare(broker);
	if (r == 0)
		r = watch_run_queue(broker);
	if (r == 0)
		r = confine_begin(broker);
	if (r == 0)
		r = offload_new(broker->loop, &broker->offload);
	if (r == 0) {
		service_starting(broker->service, "opening the devices");
		r = parts_make_executors(broker);
	}
	/* The descriptors of the probes are counted before tenants get the rest. */
	if (r == 0)
		r = await_run_queue(broker);
	if (r == 0)
		r = make_tenants(broker, ret_errors);
	if (r == 0) {
		service_starting(broker->service, "measuring the devices");
		r = parts_make_profiles(broker, PROFILES_BUDGET_NS);
	}
	if (r == 0)
		r = make_residency(broker);
	if (r == 0)
		r = make_contention(broker);
	if (r == 0)
		r = make_dispatch(broker);
	if (r == 0)
		r = checkpoint_new(broker, &broker->checkpoint);
	if (r == 0)
		r = make_publish(broker);
	if (r == 0)
		r = make_control(broker);
	return r;
}

void parts_deinit(struct broker *broker)
{
	broker->endpoint = endpoint_stop(broker->endpoint);
	/* A service manager's socket outlives the broker, and so does the link to it. */
	if (broker->server && (!broker->given.admin_fd || broker->given.is_own))
		admin_link_remove(&broker->options);
	server_free(broker->server);
	control_free(broker->control);
	publish_free(broker->publish);
	if (broker->residency)
		residency_leases(broker->residency)->timeslices.plans_used = NULL;
	dispatch_free(broker->dispatch);
	contention_free(broker->contention);
	(void)await_run_queue(broker);
	run_queue_free(broker->run_queue);
	offload_free(broker->offload);
	checkpoint_free(broker->checkpoint);
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
	free(broker->started_keys);
	account_book_free(broker->book);
	confine_end(broker);
	loop_unwatch(broker->signal_watch);
	close_fd(broker->signal_fd);
	waker_deinit(&broker->waker);
	waker_deinit(&broker->telemetry_waker);
	service_free(broker->service);
	loop_free(broker->loop);
}
