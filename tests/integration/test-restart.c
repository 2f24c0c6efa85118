/* SPDX-License-Identifier: MIT */
/*
 * Brokers that an administrator restarts while clients work
 *
 * The clients know nothing of it: see checker.h. With $RBK_TEST_SCALE above 100 there are more
 * restarts, and figures are worth reading.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ringbroker/admin.h>

#include "integration/plans.h"
#include "integration/raw.h"
#include "integration/restart-rig.h"
#include "support/scaled.h"
#include "support/test.h"

enum {
	N_VISITORS = 8,
	STATUS_RESTART = 75, /* with which brokerd ends for its service manager */
	FIRST_PASSED = 3,    /* number of the first descriptor that a manager passes */
};

/* Return the nice level of the broker's reactor. */
static int nice_of(const struct broker *broker)
{
	char path[32], text[512], *at;
	long nice = 100;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)broker->pid);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	fclose(file);
	at = strrchr(text, ')');
	assert_non_null(at);
	assert_int_equal(
		sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %ld",
		       &nice),
		1);
	return (int)nice;
}

/* Restart the broker over and over while clients work. */
static void restart_often(const char *const *args, unsigned int n)
{
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	struct rbk_admin_restart before, last, after;
	struct rbk_error error = {""};
	uint64_t longest_ns = 0, longest_wait_ns = 0, drain_ns = 0, start_ns = 0, restore_ns = 0;
	struct checker *clients;
	struct broker broker;
	int nice;

	broker_start(&broker, &options);
	clients = restart_clients(&broker);
	nice = nice_of(&broker);
	for (unsigned int i = 0; i < n; i++) {
		assert_int_equal(restart_ask(&broker, &before, &error), 0);
		if (restart_begin(&broker, 5000, &last, &error))
			fail_msg("%s", error.text);
		assert_int_equal(last.n_sessions, RESTART_CLIENTS);
		assert_true(last.held_ns > before.ready_ns);
		assert_int_equal(last.n_left, 0);
		after = restart_await(&broker, &before, RESTART_CLIENTS);
		assert_true(after.ready_ns > last.held_ns);
		assert_int_equal(after.n_restored, RESTART_CLIENTS);
		drain_ns += last.drain_ns;
		start_ns += after.ready_ns - last.held_ns - last.drain_ns;
		restore_ns += after.restored_ns - after.ready_ns;
		if (after.restored_ns - last.held_ns > longest_ns)
			longest_ns = after.restored_ns - last.held_ns;
		checkers_await_work(clients, RESTART_CLIENTS);
	}
	/*
	 * A broker that follows another one loads the probes after a second: when its clients are
	 * back, or while it starts if that takes longer. It says so then.
	 */
	if (broker_log_has(&broker, "CPU contention: watched by eBPF"))
		broker_wait_log_times(&broker, "watched by eBPF", 2);
	assert_int_equal(nice_of(&broker), nice);
	/* It is the same process, with the same sockets. */
	assert_int_equal(waitpid(broker.pid, NULL, WNOHANG), 0);
	checkers_end(clients, RESTART_CLIENTS);
	for (unsigned int i = 0; i < RESTART_CLIENTS; i++) {
		assert_int_equal(clients[i].n_reattached, n);
		if (clients[i].longest_wait_ns > longest_wait_ns)
			longest_wait_ns = clients[i].longest_wait_ns;
	}
	print_message("%u restarts with %u plans: longest time without admission %.1f ms; longest "
		      "wait of a client %.1f ms; means: drained in %.1f ms, started in %.1f ms, "
		      "sessions restored in %.1f ms\n",
		      n, RESTART_CLIENTS * RESTART_PLANS, (double)longest_ns / 1e6,
		      (double)longest_wait_ns / 1e6, (double)drain_ns / 1e6 / n,
		      (double)start_ns / 1e6 / n, (double)restore_ns / 1e6 / n);
	broker_stop(&broker);
	free(clients);
}

TEST(test_restart__under_load)
{
	restart_often((const char *const[]){"--gpu=none", NULL}, (unsigned int)test_scaled(5));
}

TEST(test_restart__with_a_software_gpu)
{
	restart_often((const char *const[]){"--gpu=software", NULL}, (unsigned int)test_scaled(2));
}

TEST(test_restart__with_probes)
{
	restart_often((const char *const[]){"--gpu=software", "--contention=auto", NULL},
		      (unsigned int)test_scaled(1));
}

/* --- Tasks that outlast the drain --- */

static void restart_early(struct broker *broker, const struct broker_options *options)
{
	struct rbk_admin_restart before, last;
	struct rbk_error error = {""};

	(void)options;
	assert_int_equal(restart_ask(broker, &before, &error), 0);
	assert_int_equal(restart_begin(broker, 10, &last, &error), 0);
	assert_true(last.n_left >= 1 && last.n_left + last.n_drained <= 4);
	assert_true(last.drain_ns >= 10000000);
	/* The client does not know yet. */
	restart_await(broker, &before, 0);
}

static void stop_early(struct broker *broker, const struct broker_options *options)
{
	struct broker_options next_options = *options;
	struct broker next;
	int status;

	next_options.socket_path = broker->socket_path;
	assert_int_equal(kill(broker->pid, SIGTERM), 0);
	status = broker_wait(broker);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	assert_true(broker_log_has(broker, "tasks did not finish within 1 s"));
	broker_start(&next, &next_options);
	broker_remove(broker);
	*broker = next;
}

/* Have @replace end the broker before it has done four tasks: each of them completes once. */
static void outlast(const char *const *args,
		    void (*replace)(struct broker *broker, const struct broker_options *options))
{
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	struct rbk_options client_options = {.size = sizeof(client_options)};
	char folder[] = "/tmp/rbk-outlast-XXXXXX", path[64];
	struct broker_options first_options = options;
	struct rbk_error error = {""};
	const struct rbk_cqe *cqe;
	struct rbk_arena *arena;
	struct broker broker;
	struct rbk_ring *ring;
	struct rbk_plan *plan;
	struct rbk_sqe *sqe;
	struct rbk *rbk;
	float *data;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/sock", folder);
	first_options.socket_path = path;
	broker_start(&broker, &first_options);
	client_options.socket_path = path;
	assert_int_equal(rbk_connect(&client_options, &rbk, &error), 0);
	assert_int_equal(rbk_arena_new(rbk, 1 << 20, &arena, &error), 0);
	data = rbk_arena_alloc(arena, 1 << 10);
	assert_int_equal(plan_elements(rbk, "Neg", 1, 4, 4, &plan, &error), 0);
	assert_int_equal(rbk_ring_new(rbk, 8, &ring, &error), 0);
	for (unsigned int i = 0; i < 4; i++) {
		sqe = rbk_get_sqe(ring);
		rbk_prep_run(sqe, rbk_plan_id(plan), 4,
			     (const uint64_t[]){rbk_ref(arena, data),
						rbk_ref(arena, data + 16 * (i + 1))},
			     2);
		rbk_sqe_set_strategy(sqe, RBK_STRATEGY_DEVICE(1));
		rbk_sqe_set_data64(sqe, i);
	}
	assert_int_equal(rbk_submit(ring), 4);
	harness_sleep_ms(20);
	replace(&broker, &first_options);
	for (unsigned int seen = 0; seen != 15;) {
		assert_int_equal(rbk_wait_cqe(ring, &cqe), 0);
		assert_int_equal(cqe->res, 0);
		assert_true(cqe->user_data < 4 && !(seen & 1u << cqe->user_data));
		seen |= 1u << cqe->user_data;
		rbk_cqe_seen(ring, cqe);
	}
	assert_int_equal(rbk_peek_cqe(ring, &cqe), -EAGAIN);
	assert_int_equal(rbk_n_reattached(rbk), 1);
	rbk_ring_free(ring);
	rbk_plan_free(plan);
	rbk_arena_free(arena);
	rbk_disconnect(rbk);
	broker_stop(&broker);
	snprintf(path, sizeof(path), "rm -r %s", folder);
	assert_int_equal(system(path), 0);
}

TEST(test_restart__tasks_are_left)
{
	outlast((const char *const[]){"--gpu=none", "--test-device=400", NULL}, restart_early);
}

/* systemctl restart does this. */
TEST(test_restart__tasks_are_left_by_a_stop)
{
	outlast((const char *const[]){"--gpu=none", "--test-device=600", "--stop-timeout=1", NULL},
		stop_early);
}

/* --- New clients --- */

struct visitor {
	const struct broker *broker;
	atomic_bool must_end;
	unsigned int n;
	char failure[256];
};

/* Connect, and disconnect, as fast as possible. */
static void *visit(void *data)
{
	struct visitor *visitor = data;
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = visitor->broker->socket_path,
	};
	struct rbk_error error = {""};
	struct rbk *rbk;

	while (!atomic_load(&visitor->must_end) && !visitor->failure[0]) {
		if (rbk_connect(&options, &rbk, &error))
			snprintf(visitor->failure, sizeof(visitor->failure), "%.200s", error.text);
		else
			rbk_disconnect(rbk);
		visitor->n++;
	}
	return NULL;
}

TEST(test_restart__new_clients_see_nothing)
{
	static const char *const args[] = {"--gpu=none", NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	static struct visitor visitors[N_VISITORS];
	struct rbk_admin_restart before, last;
	struct rbk_error error = {""};
	pthread_t threads[N_VISITORS];
	struct broker broker;
	int silent;

	broker_start(&broker, &options);
	for (unsigned int i = 0; i < N_VISITORS; i++) {
		visitors[i].broker = &broker;
		assert_int_equal(pthread_create(&threads[i], NULL, visit, &visitors[i]), 0);
	}
	for (unsigned int i = 0; i < test_scaled(5); i++) {
		assert_int_equal(restart_ask(&broker, &before, &error), 0);
		/* One that keeps silent does not delay the others. */
		silent = i == 0 ? raw_connect(&broker) : -1;
		assert_int_equal(restart_begin(&broker, 20000, &last, &error), 0);
		assert_true(last.drain_ns < 20000000000u);
		restart_await(&broker, &before, 0);
		if (silent >= 0)
			close(silent);
		harness_sleep_ms(5);
	}
	for (unsigned int i = 0; i < N_VISITORS; i++)
		atomic_store(&visitors[i].must_end, true);
	for (unsigned int i = 0; i < N_VISITORS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		if (visitors[i].failure[0])
			fail_msg("after %u connections: %s", visitors[i].n, visitors[i].failure);
	}
	broker_stop(&broker);
}

/* --- What is remembered --- */

/* A client that re-attaches, with a plan. */
struct learner {
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	struct rbk_plan *plan;
	float *data;
};

static void learner_begin(struct learner *learner, const char *socket_path)
{
	const struct rbk_options options = {.size = sizeof(options), .socket_path = socket_path};
	struct rbk_error error = {""};

	assert_int_equal(rbk_connect(&options, &learner->rbk, &error), 0);
	assert_int_equal(rbk_arena_new(learner->rbk, 1 << 20, &learner->arena, &error), 0);
	learner->data = rbk_arena_alloc(learner->arena, 1 << 19);
	assert_int_equal(plan_elements(learner->rbk, "Neg", 1, 512, 64, &learner->plan, &error), 0);
	assert_int_equal(rbk_ring_new(learner->rbk, 8, &learner->ring, &error), 0);
}

static void learner_end(struct learner *learner)
{
	rbk_ring_free(learner->ring);
	rbk_plan_free(learner->plan);
	rbk_arena_free(learner->arena);
	rbk_disconnect(learner->rbk);
}

/* Run @n tasks, one after the other. */
static void learner_run(struct learner *learner, unsigned int n)
{
	const struct rbk_cqe *cqe;
	struct rbk_sqe *sqe;

	for (unsigned int i = 0; i < n; i++) {
		sqe = rbk_get_sqe(learner->ring);
		assert_non_null(sqe);
		rbk_prep_run(sqe, rbk_plan_id(learner->plan), 512,
			     (const uint64_t[]){rbk_ref(learner->arena, learner->data),
						rbk_ref(learner->arena, learner->data + 512 * 64)},
			     2);
		assert_int_equal(rbk_submit(learner->ring), 1);
		assert_int_equal(rbk_wait_cqe(learner->ring, &cqe), 0);
		assert_int_equal(cqe->res, 0);
		rbk_cqe_seen(learner->ring, cqe);
	}
}

/* Return the predicted time of the only task on the CPU so far at this broker. */
static uint64_t predicted_ns(struct learner *learner)
{
	uint64_t words[512];
	const struct rbk_stats_plan *plan = (const void *)words;
	const size_t bytes = sizeof(*plan) + sizeof(plan->devices[0]);
	struct rbk_stats_view view;
	struct rbk_error error = {""};

	if (rbk_stats_map(learner->rbk, RBK_STATS_OWN, 0, &view, &error))
		fail_msg("%s", error.text);
	assert_true(bytes <= sizeof(words));
	assert_true(rbk_stats_count(&view, RBK_STATS_SECTION_PLANS) >= 1);
	for (uint32_t i = 0; i < rbk_stats_count(&view, RBK_STATS_SECTION_PLANS); i++) {
		assert_true(harness_stats_copy(&view, RBK_STATS_SECTION_PLANS, i, words, bytes));
		if (plan->plan_id == rbk_plan_id(learner->plan))
			break;
	}
	rbk_stats_unmap(&view);
	assert_int_equal(plan->plan_id, rbk_plan_id(learner->plan));
	assert_int_equal(plan->devices[RBK_DEVICE_CPU].n_predicted, 1);
	return plan->devices[RBK_DEVICE_CPU].predicted_ns;
}

/* Replace the broker at the same path by another one. */
static void replace_politely(struct broker *broker, const struct broker_options *options)
{
	struct broker next;

	assert_int_equal(kill(broker->pid, SIGTERM), 0);
	assert_int_equal(broker_wait(broker), 0);
	broker_start(&next, options);
	broker_remove(broker);
	*broker = next;
}

/*
 * The first task at the next broker is predicted from what the last one learned, after a restart
 * and after a stop; without the file, or with a damaged one, it is not.
 */
TEST(test_restart__learned_times_are_kept)
{
	char folder[] = "/tmp/rbk-cache-XXXXXX", path[64], socket_path[64];
	const char *const args[] = {"--gpu=none", "--cache", folder, "--reactor-task=0", NULL};
	struct broker_options options = {
		.args = args, .is_undisturbed = true, .socket_path = socket_path};
	struct rbk_admin_restart about;
	struct rbk_error error = {""};
	struct learner learner;
	struct broker broker;
	uint64_t unlearned_ns;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/checkpoint", folder);
	snprintf(socket_path, sizeof(socket_path), "%s/sock", folder);
	broker_start(&broker, &options);
	learner_begin(&learner, broker.socket_path);
	/* The prediction from the plan's size alone is always the same. */
	learner_run(&learner, 1);
	unlearned_ns = predicted_ns(&learner);
	learner_run(&learner, 30);

	assert_int_equal(restart_ask(&broker, &about, &error), 0);
	assert_int_equal(restart_begin(&broker, 5000, NULL, &error), 0);
	restart_await(&broker, &about, 0);
	learner_run(&learner, 1);
	assert_int_equal(rbk_n_reattached(learner.rbk), 1);
	assert_int_not_equal(predicted_ns(&learner), unlearned_ns);

	replace_politely(&broker, &options);
	learner_run(&learner, 1);
	assert_int_not_equal(predicted_ns(&learner), unlearned_ns);

	/* A kill loses what was learned since the last stop, and no more. */
	broker_kill(&broker);
	broker_remove(&broker);
	broker_start(&broker, &options);
	learner_run(&learner, 1);
	assert_int_not_equal(predicted_ns(&learner), unlearned_ns);

	broker_kill(&broker);
	broker_remove(&broker);
	assert_int_equal(truncate(path, 200), 0);
	broker_start(&broker, &options);
	broker_wait_log(&broker, "checkpoint is not used: it is damaged");
	learner_run(&learner, 1);
	assert_int_equal(predicted_ns(&learner), unlearned_ns);

	learner_end(&learner);
	broker_stop(&broker);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "rm -r %s", folder);
	assert_int_equal(system(path), 0);
}

/* Return the plans that are in the memory of the GPU, as a mask. */
static unsigned int resident(struct rbk_plan *const *plans, unsigned int n)
{
	struct rbk_plan_memory memory[RBK_MAX_DEVICES];
	unsigned int mask = 0, n_devices;

	for (unsigned int i = 0; i < n; i++) {
		assert_int_equal(
			rbk_plan_memory(plans[i], memory, RBK_MAX_DEVICES, &n_devices, NULL), 0);
		assert_true(n_devices >= 2);
		mask |= (memory[RBK_DEVICE_GPU].resident_bytes > 0) << i;
	}
	return mask;
}

/* Have the ring take an entry, and return its result. */
static int run_one(struct rbk_ring *ring, const struct rbk_sqe *entry)
{
	const struct rbk_cqe *cqe;
	struct rbk_sqe *sqe = rbk_get_sqe(ring);
	int res;

	assert_non_null(sqe);
	*sqe = *entry;
	assert_int_equal(rbk_submit(ring), 1);
	assert_int_equal(rbk_wait_cqe(ring, &cqe), 0);
	res = cqe->res;
	rbk_cqe_seen(ring, cqe);
	return res;
}

/*
 * Have tasks of a plan of 4 rows on the GPU, so that the plan is worth more than one without tasks,
 * however long it takes to make the plans.
 */
static void run_on_gpu(struct rbk_ring *ring, const struct rbk_plan *plan,
		       const struct rbk_arena *arena)
{
	const uint64_t refs[] = {rbk_arena_ref(arena, 0), rbk_arena_ref(arena, 65536)};
	struct rbk_sqe entry;

	rbk_prep_run(&entry, rbk_plan_id(plan), 4, refs, 2);
	entry.strategy = RBK_STRATEGY_ONLY_GPU;
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(run_one(ring, &entry), 0);
}

static void await_resident(struct rbk_plan *const *plans, unsigned int n, unsigned int wanted)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000u);
	unsigned int present;

	while ((present = resident(plans, n)) != wanted) {
		if (harness_now_ns() > end_ns)
			fail_msg("resident are %x, not %x", present, wanted);
		harness_sleep_ms(5);
	}
}

/*
 * The plans whose weights were in memory are there again, although the client brings the others
 * first, and there is no room for all of them.
 */
TEST(test_restart__working_set_is_loaded_again)
{
	enum { N = 3, K = 1024, COLUMNS = 3072 };
	static const char *const args[] = {"--gpu=software", "--device-memory=32MiB", NULL};
	const struct broker_options options = {.args = args, .is_undisturbed = true};
	struct rbk_options client_options = {.size = sizeof(client_options)};
	const unsigned int working_set = (1u << (N - 1)) - 1;
	struct rbk_admin_restart about;
	struct rbk_error error = {""};
	struct rbk_arena *constants, *arena;
	struct rbk_plan *plans[N];
	struct broker broker;
	struct rbk_ring *ring;
	struct rbk_sqe sqe;
	struct rbk *rbk;

	rbk_disconnect(broker_start_gpu(&broker, &options, "look"));
	client_options.socket_path = broker.socket_path;
	assert_int_equal(rbk_connect(&client_options, &rbk, &error), 0);
	assert_int_equal(rbk_ring_new(rbk, 8, &ring, &error), 0);
	assert_int_equal(plan_constants(rbk, (size_t)K * COLUMNS * sizeof(float), &constants), 0);
	for (uint32_t i = 0; i < N; i++)
		if (plan_product(rbk, 4, K, COLUMNS - 64 * i, constants, &plans[i], &error))
			fail_msg("%s", error.text);
	assert_int_equal(rbk_arena_new(rbk, 131072, &arena, &error), 0);
	/* The last plan has no place, and is the first one that the library brings. */
	for (uint32_t i = 0; i < N - 1; i++)
		run_on_gpu(ring, plans[i], arena);
	await_resident(plans, N, working_set);

	assert_int_equal(restart_ask(&broker, &about, &error), 0);
	assert_int_equal(restart_begin(&broker, 5000, NULL, &error), 0);
	restart_await(&broker, &about, 0);
	rbk_prep_nop(&sqe);
	assert_int_equal(run_one(ring, &sqe), 0);
	assert_int_equal(rbk_n_reattached(rbk), 1);
	await_resident(plans, N, working_set);
	for (uint32_t i = 0; i < N; i++)
		rbk_plan_free(plans[i]);
	rbk_ring_free(ring);
	rbk_arena_free(arena);
	rbk_arena_free(constants);
	rbk_disconnect(rbk);
	broker_stop(&broker);
}

/* --- Under a service manager --- */

static int manager_fds[2];

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 64), 0);
	return fd;
}

/* Become the service, in a child of the manager. */
static void pass_sockets(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	for (int i = 0; i < 2; i++)
		if (dup2(manager_fds[i], FIRST_PASSED + i) < 0)
			_exit(126);
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "2", 1);
	setenv("LISTEN_FDNAMES", "brokerd.sock:admin.sock", 1);
	setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
	setenv("SYSTEMD_EXEC_PID", pid, 1);
}

TEST(test_restart__by_the_service_manager)
{
	static const char *const args[] = {"--gpu=none", "--contention=none", NULL};
	char folder[] = "/tmp/rbk-manager-XXXXXX", path[64], admin_path[64];
	struct broker_options options = {.args = args, .in_child = pass_sockets};
	struct rbk_admin_restart before, last;
	struct rbk_error error = {""};
	struct checker *clients;
	struct broker broker, next;
	int status;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/brokerd.sock", folder);
	snprintf(admin_path, sizeof(admin_path), "%s/admin.sock", folder);
	/* They are above the numbers to which they are copied. */
	for (int i = 0; i < 2; i++) {
		int fd = listen_at(i ? admin_path : path);

		manager_fds[i] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
		close(fd);
	}
	options.socket_path = path;
	broker_start(&broker, &options);
	clients = restart_clients(&broker);
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(restart_ask(&broker, &before, &error), 0);
		if (restart_begin(&broker, 5000, &last, &error))
			fail_msg("%s", error.text);
		status = broker_wait(&broker);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == STATUS_RESTART);
		/* The files stay, and so do connections that are made now. */
		broker_start(&next, &options);
		broker_remove(&broker);
		broker = next;
		restart_await(&broker, &before, RESTART_CLIENTS);
		checkers_await_work(clients, RESTART_CLIENTS);
	}
	checkers_end(clients, RESTART_CLIENTS);
	assert_int_equal(kill(broker.pid, SIGTERM), 0);
	assert_int_equal(broker_wait(&broker), 0);
	broker_remove(&broker);
	for (int i = 0; i < 2; i++)
		close(manager_fds[i]);
	/* The manager's files are still there. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(admin_path), 0);
	rmdir(folder);
	free(clients);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(115))
