/* SPDX-License-Identifier: MIT */
/*
 * Draining under difficult conditions
 *
 * One of two GPUs is drained: a software Vulkan device, which has memory, or the test device, which
 * computes nothing. A tenant's plans leave while its clients stay. Clients are killed while their
 * tenant or their device is drained. A GPU hangs while a service manager watches the broker.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ringbroker/admin.h>
#include <ringbroker/lease.h>

#include "integration/harness.h"
#include "integration/placement.h"
#include "support/failing-layer.h"
#include "support/test.h"

enum { TEST_DEVICE = RBK_DEVICE_GPU, SOFTWARE = RBK_DEVICE_GPU + 1 };

static const uint64_t patience_ns = 60000000000;

static uint64_t deadline_ns(void)
{
	return harness_now_ns() + harness_slow_ns(patience_ns);
}

static struct rbk_admin_drained drain(struct rbk *admin, uint32_t device, enum rbk_drain action)
{
	struct rbk_admin_drained drained;
	struct rbk_error error = {""};

	if (rbk_admin_drain_device(admin, device, action, &drained, &error))
		fail_msg("%s", error.text);
	return drained;
}

/* Drain a device until it has no tasks in flight and no tenants' memory. */
static void drain_wholly(struct rbk *admin, uint32_t device)
{
	const uint64_t end_ns = deadline_ns();
	struct rbk_admin_drained drained = drain(admin, device, RBK_DRAIN_BEGIN);

	while (drained.n_tasks > 0 || drained.device_bytes > 0) {
		assert_true(harness_now_ns() < end_ns);
		harness_sleep_ms(2);
		drained = drain(admin, device, RBK_DRAIN_ASK);
		assert_int_equal(drained.is_drained, 1);
	}
}

/* --- One of two --- */

/* Run tasks for @device until one runs there. */
static void run_until_on(struct customer *customer, uint8_t device)
{
	const uint64_t end_ns = deadline_ns();

	while (customer_run(customer, 8, RBK_STRATEGY_DEVICE(device)).device != device)
		assert_true(harness_now_ns() < end_ns);
}

/*
 * Drain @device while tasks for both GPUs are in flight; its tasks run on another device. Return:
 * the number of completions with reason gpu-unavailable.
 */
static unsigned int drain_under_load(struct rbk *admin, struct customer *customer, uint8_t device)
{
	const uint8_t other = device == SOFTWARE ? TEST_DEVICE : SOFTWARE;
	unsigned int n_moved = 0;
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < 20; i++) {
		customer_put(customer, 8, RBK_STRATEGY_DEVICE(device));
		customer_put(customer, 8, RBK_STRATEGY_DEVICE(other));
		customer_put(customer, 8, RBK_STRATEGY_ONLY_GPU);
	}
	customer_take(customer);
	drain(admin, device, RBK_DRAIN_BEGIN);
	while (customer_in_flight(customer) > 0) {
		cqe = customer_take(customer);
		assert_int_equal(cqe.res, 0);
		n_moved += cqe.reason == RBK_REASON_GPU_UNAVAILABLE;
	}
	drain_wholly(admin, device);
	for (unsigned int i = 0; i < 20; i++) {
		assert_int_equal(customer_run(customer, 8, RBK_STRATEGY_PREFER_GPU).device, other);
		assert_int_equal(customer_run(customer, 8, RBK_STRATEGY_ONLY_GPU).device, other);
		assert_int_equal(customer_run(customer, 8, RBK_STRATEGY_DEVICE(other)).device,
				 other);
		cqe = customer_run(customer, 8, RBK_STRATEGY_DEVICE(device));
		assert_fields(cqe, (device, RBK_DEVICE_CPU), (reason, RBK_REASON_GPU_UNAVAILABLE));
	}
	return n_moved;
}

/*
 * Run a task of a plan that is pinned to the software device, which is drained. The plan can be
 * made, as if the device were drained later; its tasks run once the drain ends.
 */
static void pin_to_drained(struct rbk *admin, struct customer *customer)
{
	const uint64_t end_ns = deadline_ns();
	struct rbk_plan *own = customer->plan, *pinned = customer_plan(customer, 1 + SOFTWARE);
	struct rbk_cqe cqe;

	customer->plan = pinned;
	customer_put(customer, 8, RBK_STRATEGY_AUTO);
	cqe = customer_take(customer);
	assert_fields(cqe, (res, -ENODEV), (reason, RBK_REASON_GPU_UNAVAILABLE));
	assert_int_equal(drain(admin, SOFTWARE, RBK_DRAIN_ASK).device_bytes, 0);
	drain(admin, SOFTWARE, RBK_DRAIN_END);
	do {
		assert_true(harness_now_ns() < end_ns);
		customer_put(customer, 8, RBK_STRATEGY_AUTO);
		cqe = customer_take(customer);
	} while (cqe.res == -ENODEV);
	assert_fields(cqe, (res, 0), (device, SOFTWARE));
	customer->plan = own;
	rbk_plan_free(pinned);
}

TEST(test_drain_one_of_two_devices)
{
	static const char *const two[] = {"--gpu=software", "--test-device=2ms", NULL};
	static const struct customer_options constant = {
		.has_constant = true,
		.has_test_device = true,
	};
	const struct broker_options options = {.args = two};
	struct customer customer;
	struct broker broker;
	struct rbk *admin;
	unsigned int n_devices = 0;

	broker_start(&broker, &options);
	admin = broker_connect_admin(&broker, "admin");
	assert_int_equal(rbk_devices(admin, NULL, 0, &n_devices), 0);
	if (n_devices < 3) {
		print_message("no software Vulkan device here\n");
		rbk_disconnect(admin);
		broker_stop(&broker);
		skip();
	}
	customer_init(&customer, &broker, &constant);
	run_until_on(&customer, SOFTWARE);
	run_until_on(&customer, TEST_DEVICE);

	drain_under_load(admin, &customer, SOFTWARE);
	/* A plan made while the device is drained is not loaded there until the drain ends. */
	rbk_plan_free(customer_plan(&customer, 0));
	assert_int_equal(drain(admin, SOFTWARE, RBK_DRAIN_ASK).device_bytes, 0);
	pin_to_drained(admin, &customer);
	run_until_on(&customer, SOFTWARE);
	assert_true(drain(admin, SOFTWARE, RBK_DRAIN_ASK).device_bytes > 0);

	/* Each task takes 2 ms there, so that most were still queued. */
	assert_true(drain_under_load(admin, &customer, TEST_DEVICE) > 0);
	drain_wholly(admin, SOFTWARE);
	customer_put(&customer, 8, RBK_STRATEGY_ONLY_GPU);
	assert_int_equal(customer_take(&customer).res, -ENODEV);
	drain(admin, TEST_DEVICE, RBK_DRAIN_END);
	assert_int_equal(customer_run(&customer, 8, RBK_STRATEGY_ONLY_GPU).device, TEST_DEVICE);
	drain(admin, SOFTWARE, RBK_DRAIN_END);
	run_until_on(&customer, SOFTWARE);
	customer_deinit(&customer);
	rbk_disconnect(admin);
	broker_stop(&broker);
}

/* --- Killed clients --- */

/*
 * Start a client that keeps tasks for the test device in flight. It writes a byte to *ret_fd after
 * its first task. Return: its process id.
 */
static pid_t fork_client(const struct broker *broker, int *ret_fd)
{
	static const struct customer_options on_device = {.has_test_device = true};
	struct customer customer;
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid > 0) {
		close(fds[1]);
		*ret_fd = fds[0];
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	customer_init(&customer, broker, &on_device);
	customer_run(&customer, 8, RBK_STRATEGY_PREFER_GPU);
	if (write(fds[1], "!", 1) != 1)
		_exit(1);
	for (;;)
		customer_feed(&customer, 48, 8, RBK_STRATEGY_PREFER_GPU);
}

/* Wait until the client's session and its charges are gone. */
static void await_nobody(struct rbk *admin, const struct rbk_stats_view *root, uint32_t tenant)
{
	const uint64_t end_ns = deadline_ns();
	struct rbk_admin_drained drained = {.n_tasks = 1};

	while (drained.n_tasks > 0 || drained.device_bytes > 0 ||
	       harness_tenant(root).n_sessions > 0 ||
	       harness_tenant(root).devices[0].memory_used > 0) {
		assert_true(harness_now_ns() < end_ns);
		harness_sleep_ms(2);
		assert_int_equal(
			rbk_admin_drain_tenant(admin, tenant, RBK_DRAIN_ASK, &drained, NULL), 0);
	}
}

/* Wait until the tenant has tasks in flight. */
static void await_tasks(struct rbk *admin, uint32_t tenant)
{
	const uint64_t end_ns = deadline_ns();
	struct rbk_admin_drained drained = {.n_tasks = 0};

	for (;;) {
		assert_true(harness_now_ns() < end_ns);
		assert_int_equal(
			rbk_admin_drain_tenant(admin, tenant, RBK_DRAIN_ASK, &drained, NULL), 0);
		if (drained.n_tasks > 0)
			return;
		harness_sleep_ms(1);
	}
}

/* Kill a client at a random moment while its tenant, or the device of its tasks, is drained. */
TEST(test_killed)
{
	static const char *const with_device[] = {"--gpu=none", "--test-device=1ms", NULL};
	const struct broker_options options = {.args = with_device};
	const unsigned int n_rounds = (unsigned int)test_scaled(40);
	struct broker_usage before, usage;
	struct rbk_admin_drained drained;
	struct rbk_stats_view root;
	struct customer customer;
	struct rbk *admin;
	uint64_t seed = 1;
	uint32_t tenant;
	unsigned int n_busy = 0;
	char said;
	int fd;

	BROKER(broker, &options);
	admin = broker_connect_admin(&broker, "admin");
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, NULL), 0);
	customer_init(&customer, &broker, &(struct customer_options){.has_test_device = true});
	tenant = harness_tenant(&root).number;
	customer_deinit(&customer);
	await_nobody(admin, &root, tenant);
	/* The broker closes descriptors after the sessions have ended. */
	do {
		broker_usage(&broker, &before);
		harness_sleep_ms(200);
		broker_usage(&broker, &usage);
	} while (usage.n_fds != before.n_fds);
	for (unsigned int i = 0; i < n_rounds; i++) {
		const bool is_tenant = i % 2;
		pid_t pid = fork_client(&broker, &fd);

		assert_int_equal(read(fd, &said, 1), 1);
		close(fd);
		if (i % 4 < 2)
			await_tasks(admin, tenant);
		if (is_tenant)
			assert_int_equal(rbk_admin_drain_tenant(admin, tenant, RBK_DRAIN_BEGIN,
								&drained, NULL),
					 0);
		else
			drained = drain(admin, RBK_DEVICE_GPU, RBK_DRAIN_BEGIN);
		n_busy += drained.n_tasks > 0;
		harness_sleep_ms((unsigned int)(harness_random(&seed) % 60));
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		await_nobody(admin, &root, tenant);
		if (is_tenant)
			assert_int_equal(rbk_admin_drain_tenant(admin, tenant, RBK_DRAIN_END,
								&drained, NULL),
					 0);
		else
			drained = drain(admin, RBK_DEVICE_GPU, RBK_DRAIN_END);
		assert_int_equal(drained.n_tasks, 0);
	}
	/* At least one drain began while tasks were in flight. */
	assert_true(n_busy > 0);
	broker_wait_fds(&broker, before.n_fds);
	customer_init(&customer, &broker, &(struct customer_options){.has_test_device = true});
	assert_int_equal(customer_run(&customer, 8, RBK_STRATEGY_PREFER_GPU).device,
			 RBK_DEVICE_GPU);
	customer_deinit(&customer);
	rbk_stats_unmap(&root);
	rbk_disconnect(admin);
}

/* --- What remains --- */

/* Ask for a drain's progress until the tasks have completed and the plans have left. */
static struct rbk_admin_drained await_drained(struct rbk *admin, uint32_t tenant,
					      struct rbk_error *error)
{
	const uint64_t end_ns = deadline_ns();
	struct rbk_admin_drained drained;

	do {
		assert_true(harness_now_ns() < end_ns);
		harness_sleep_ms(2);
		if (tenant ? rbk_admin_drain_tenant(admin, tenant, RBK_DRAIN_ASK, &drained, error)
			   : rbk_admin_drain_device(admin, 1, RBK_DRAIN_ASK, &drained, error))
			fail_msg("%s", error->text);
		assert_int_equal(drained.is_drained, 1);
	} while (drained.n_tasks > 0 || (drained.device_bytes > 0 && !drained.is_held));
	return drained;
}

/*
 * A drained tenant's plans leave the devices while its clients stay connected. Memory that clients
 * hold stays, and the answer names them; likewise for a device.
 */
TEST(test_tenant__memory)
{
	static const char *const software[] = {"--gpu=software", NULL};
	const struct broker_options options = {.args = software};
	static const struct customer_options constant = {.has_constant = true};
	const struct rbk_lease_options wish = {
		.device = 1, .min_bytes = 1 << 20, .wish_bytes = 1 << 20, .max_bytes = 1 << 20};
	struct rbk_admin_drained drained;
	struct rbk_stats_view root;
	struct rbk_error error = {""};
	struct customer customer;
	struct rbk_lease *lease;
	struct broker broker;
	struct rbk *admin, *holder;
	uint64_t end_ns;
	uint32_t number;
	char name[32];

	broker_start(&broker, &options);
	admin = broker_connect_admin(&broker, "admin");
	if (!broker_has_gpu(admin)) {
		print_message("no software Vulkan device here\n");
		rbk_disconnect(admin);
		broker_stop(&broker);
		skip();
	}
	customer_init(&customer, &broker, &constant);
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, &error), 0);
	number = harness_tenant(&root).number;
	run_until_on(&customer, RBK_DEVICE_GPU);
	for (unsigned int i = 0; i < 8; i++)
		customer_put(&customer, 8, RBK_STRATEGY_PREFER_GPU);
	assert_int_equal(rbk_admin_drain_tenant(admin, number, RBK_DRAIN_BEGIN, &drained, &error),
			 0);
	assert_int_equal(drained.is_held, 0);
	drained = await_drained(admin, number, &error);
	assert_fields(drained, (device_bytes, 0), (is_held, 0));
	/* A plan that is made meanwhile is not loaded. */
	rbk_plan_free(customer_plan(&customer, 0));
	drained = await_drained(admin, number, &error);
	assert_fields(drained, (device_bytes, 0), (is_held, 0));
	assert_int_equal(rbk_admin_drain_tenant(admin, number, RBK_DRAIN_END, &drained, &error), 0);
	run_until_on(&customer, RBK_DEVICE_GPU);
	customer_drain(&customer);

	holder = broker_connect(&broker, "holder");
	if (rbk_lease_open(holder, &wish, &lease, &error))
		fail_msg("%s", error.text);
	snprintf(name, sizeof(name), "lease %u of ", rbk_lease_number(lease));
	assert_int_equal(rbk_admin_drain_tenant(admin, number, RBK_DRAIN_BEGIN, NULL, &error), 0);
	drained = await_drained(admin, number, &error);
	assert_fields(drained, (device_bytes, 1 << 20), (is_held, 1));
	assert_non_null(strstr(error.text, name));
	assert_non_null(strstr(error.text, "(1 MiB)"));
	assert_int_equal(rbk_admin_drain_tenant(admin, number, RBK_DRAIN_END, NULL, &error), 0);

	assert_int_equal(rbk_admin_drain_device(admin, 1, RBK_DRAIN_BEGIN, NULL, &error), 0);
	error.text[0] = '\0';
	drained = await_drained(admin, 0, &error);
	assert_fields(drained, (device_bytes, 1 << 20), (is_held, 1));
	assert_non_null(strstr(error.text, name));
	rbk_lease_close(lease);
	rbk_disconnect(holder);
	end_ns = deadline_ns();
	while ((drained = await_drained(admin, 0, &error)).device_bytes > 0)
		assert_true(harness_now_ns() < end_ns);
	assert_int_equal(drained.is_held, 0);
	rbk_stats_unmap(&root);
	customer_deinit(&customer);
	rbk_disconnect(admin);
	broker_stop(&broker);
}

/* --- A GPU that hangs --- */

/* Path of the test's NOTIFY_SOCKET. */
static char notify_path[108];

static void be_watched(void)
{
	setenv("NOTIFY_SOCKET", notify_path, 1);
	setenv("WATCHDOG_USEC", "600000", 1);
}

static int listen_as_manager(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	snprintf(notify_path, sizeof(notify_path), "/tmp/rbk-test-notify-%d", getpid());
	unlink(notify_path);
	strcpy(address.sun_path, notify_path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* Wait for @n new watchdog messages; earlier ones are discarded. */
static void await_signs(int fd, unsigned int n)
{
	const uint64_t end_ns = deadline_ns();
	char text[4096];

	while (recv(fd, text, sizeof(text), 0) > 0)
		;
	while (n > 0) {
		ssize_t bytes = recv(fd, text, sizeof(text) - 1, 0);

		assert_true(harness_now_ns() < end_ns);
		if (bytes < 0)
			harness_sleep_ms(5);
		else if (text[bytes] = '\0', strcmp(text, "WATCHDOG=1") == 0)
			n--;
	}
}

static void await_lost(const struct rbk_stats_view *root, bool is_lost)
{
	const uint64_t end_ns = deadline_ns();
	struct rbk_stats_device device;

	do {
		assert_true(harness_now_ns() < end_ns);
		harness_sleep_ms(5);
		assert_true(harness_stats_copy(root, RBK_STATS_SECTION_DEVICES, RBK_DEVICE_GPU,
					       &device, sizeof(device)));
	} while (!(device.flags & RBK_STATS_DEVICE_LOST) == is_lost);
}

/*
 * Hang the device, and submit a task of @customer to it. The plan is loaded first, so that the task
 * cannot move to the CPU. The pause lets earlier waits on the device end, so that the task is not
 * queued behind them.
 */
static void hang(struct failing_layer *layer, struct customer *customer)
{
	run_until_on(customer, RBK_DEVICE_GPU);
	harness_sleep_ms(100);
	atomic_store(&layer->is_hanging, 1);
	customer_put(customer, 8, RBK_STRATEGY_DEVICE(RBK_DEVICE_GPU));
}

TEST(test_hung)
{
	static const char *const args[] = {"--gpu=software", "--gpu-timeout=1", "--stop-timeout=1",
					   NULL};
	const struct broker_options options = {.args = args, .in_child = be_watched};
	struct failing_layer *layer = failing_layer_begin();
	struct rbk_admin_drained drained;
	struct customer stuck, other;
	struct rbk_stats_view root;
	struct broker broker;
	struct rbk_cqe cqe;
	struct rbk *admin;
	int fd, status;

	if (!layer) {
		print_message("built without Vulkan\n");
		skip();
	}
	fd = listen_as_manager();
	broker_start(&broker, &options);
	admin = broker_connect_admin(&broker, "admin");
	if (!broker_has_gpu(admin) || atomic_load(&layer->n_devices) == 0) {
		print_message("no software Vulkan device here\n");
		rbk_disconnect(admin);
		broker_stop(&broker);
		failing_layer_end(layer);
		close(fd);
		unlink(notify_path);
		skip();
	}
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, NULL), 0);
	customer_init(&stuck, &broker, NULL);
	customer_init(&other, &broker, NULL);
	run_until_on(&other, RBK_DEVICE_GPU);

	/*
	 * The task stays on the device; the broker lives, reports the loss, and serves other
	 * clients.
	 */
	hang(layer, &stuck);
	await_lost(&root, true);
	assert_true(atomic_load(&layer->n_hung) > 0);
	await_signs(fd, 3);
	assert_false(customer_has(&stuck));
	cqe = customer_run(&other, 8, RBK_STRATEGY_PREFER_GPU);
	assert_fields(cqe, (device, RBK_DEVICE_CPU), (reason, RBK_REASON_GPU_UNAVAILABLE));
	drained = drain(admin, RBK_DEVICE_GPU, RBK_DRAIN_BEGIN);
	assert_int_equal(drained.n_tasks, 1);
	await_signs(fd, 3);
	rbk_plan_free(customer_plan(&other, 0));
	assert_int_equal(drain(admin, RBK_DEVICE_GPU, RBK_DRAIN_ASK).n_tasks, 1);
	assert_false(customer_has(&stuck));

	/*
	 * The task completes with a right result once the device continues, and the device is
	 * usable again.
	 */
	atomic_store(&layer->is_hanging, 0);
	cqe = customer_take(&stuck);
	assert_fields(cqe, (res, 0), (device, RBK_DEVICE_GPU));
	drain_wholly(admin, RBK_DEVICE_GPU);
	await_lost(&root, false);
	assert_int_equal(customer_run(&other, 8, RBK_STRATEGY_PREFER_GPU).device, RBK_DEVICE_CPU);
	drain(admin, RBK_DEVICE_GPU, RBK_DRAIN_END);
	run_until_on(&other, RBK_DEVICE_GPU);

	/* A broker that is told to stop while the device hangs ends, with a failure status. */
	hang(layer, &stuck);
	await_lost(&root, true);
	assert_int_equal(kill(broker.pid, SIGTERM), 0);
	await_signs(fd, 2);
	status = broker_wait(&broker);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_true(broker_log_has(&broker, "did not finish within 1 s of"));
	assert_true(broker_log_has(&broker, "stopped with tasks in flight"));
	customer_deinit(&other);
	customer_deinit(&stuck);
	rbk_stats_unmap(&root);
	rbk_disconnect(admin);
	broker_remove(&broker);
	failing_layer_end(layer);
	close(fd);
	unlink(notify_path);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(180))
