/* SPDX-License-Identifier: MIT */
/*
 * Brokers that die while clients work, and come back
 *
 * The clients know nothing of it: they submit tasks, wait, and check each result. Between them and
 * the broker nothing may be lost, nothing may complete twice, and no call may fail.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/checker.h"
#include "integration/harness.h"
#include "integration/plans.h"
#include "support/scaled.h"
#include "support/test.h"

enum { N_CLIENTS = 4 };

static int compare_ns(const void *a, const void *b)
{
	const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/*
 * End the broker and start another one at once, over and over, while clients work. With @slowly, it
 * is only ended when all clients are at work again.
 */
static void die_often(const char *const *args, unsigned int n_deaths, bool politely, bool slowly)
{
	struct broker first, broker;
	struct broker_options options = {.args = args, .is_undisturbed = true};
	struct checker *clients = calloc(N_CLIENTS, sizeof(*clients));
	uint64_t random = 1, n_done = 0;
	unsigned int n_gaps;

	assert_non_null(clients);
	broker_start(&first, &options);
	broker = first;
	options.socket_path = first.socket_path;
	for (unsigned int i = 0; i < N_CLIENTS; i++) {
		clients[i].by_event_loop = i % 2;
		checker_start(&clients[i], first.socket_path);
	}
	/* A client that is still connecting gets an error. */
	checkers_await_work(clients, N_CLIENTS);
	for (unsigned int i = 0; i < n_deaths; i++) {
		if (slowly)
			checkers_await_work(clients, N_CLIENTS);
		harness_sleep_ms((unsigned int)(harness_random(&random) % 40));
		if (politely) {
			assert_int_equal(kill(broker.pid, SIGTERM), 0);
			assert_int_equal(broker_wait(&broker), 0);
		} else {
			broker_kill(&broker);
		}
		if (i > 0)
			broker_remove(&broker);
		broker_start(&broker, &options);
	}
	checkers_await_work(clients, N_CLIENTS);
	checkers_end(clients, N_CLIENTS);
	for (unsigned int i = 0; i < N_CLIENTS; i++) {
		/* A death within a re-attachment makes two of them one. */
		assert_in_range(clients[i].n_reattached, 1, n_deaths);
		n_done += clients[i].n_done;
	}
	n_gaps = clients[0].n_reattached < CHECKER_GAPS ? clients[0].n_reattached : CHECKER_GAPS;
	qsort(clients[0].gaps_ns, n_gaps, sizeof(uint64_t), compare_ns);
	print_message("%llu tasks, %u deaths; gap of a client after the new broker's start: median "
		      "%.1f ms, p99 %.1f ms, longest %.1f ms\n",
		      (unsigned long long)n_done, n_deaths,
		      (double)clients[0].gaps_ns[n_gaps / 2] / 1e6,
		      (double)clients[0].gaps_ns[n_gaps * 99 / 100] / 1e6,
		      (double)clients[0].gaps_ns[n_gaps - 1] / 1e6);
	if (politely)
		assert_true(broker_log_has(&broker, "took over ring "));
	broker_stop(&broker);
	broker_remove(&first);
	free(clients);
}

TEST(test_reattach__after_kills)
{
	die_often(NULL, (unsigned int)test_scaled(25), false, false);
}

TEST(test_reattach__after_orderly_ends)
{
	die_often((const char *const[]){"--log-level=debug", NULL}, (unsigned int)test_scaled(10),
		  true, false);
}

TEST(test_reattach__with_a_software_gpu)
{
	die_often((const char *const[]){"--gpu=software", NULL}, (unsigned int)test_scaled(5),
		  false, true);
}

/*
 * The clients' arenas are in memory of the device. That takes /dev/udmabuf and a driver that
 * exports dma-bufs, as Mesa's lavapipe does since version 25.
 */
TEST(test_reattach__with_memory_of_a_device)
{
	static const char *const args[] = {"--gpu=software", "--memory-path=exported", NULL};
	const struct broker_options options = {.args = args};
	struct broker broker;
	int status;

	if (!broker_try_start(&broker, &options, &status)) {
		assert_true(broker_log_has(&broker, "--memory-path asks for does not work") ||
			    broker_log_has(&broker, "no usable Vulkan driver"));
		broker_remove(&broker);
		skip();
	}
	broker_stop(&broker);
	broker_remove(&broker);
	die_often(args, (unsigned int)test_scaled(5), false, true);
}

/* --- Plans that were removed --- */

/* Run a plan by its number. Return: the result of the entry. */
static int run_plan(struct rbk_ring *ring, const struct rbk_arena *arena, uint32_t id)
{
	const char *data = rbk_arena_data(arena);
	const struct rbk_cqe *cqe;
	struct rbk_sqe *sqe = rbk_get_sqe(ring);
	int res;

	assert_non_null(sqe);
	rbk_prep_run(sqe, id, 1, (uint64_t[]){rbk_ref(arena, data), rbk_ref(arena, data + 2048)},
		     2);
	assert_int_equal(rbk_submit(ring), 1);
	assert_int_equal(rbk_wait_cqe(ring, &cqe), 0);
	res = cqe->res;
	rbk_cq_advance(ring, 1);
	return res;
}

/*
 * Remove plans, and end the broker, with nothing left but a ring and, with @keeps, an arena. Return
 * with other plans, none of which has the number of one that was removed.
 */
static void remove_plans(bool keeps)
{
	enum { N_DEATHS = 3, N_PLANS = 3 };
	const struct broker_options first_options = {.is_undisturbed = true};
	struct broker_options options = first_options;
	uint32_t removed[N_DEATHS * N_PLANS], n_removed = 0;
	struct broker first, broker;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct rbk *rbk;

	broker_start(&first, &first_options);
	options.socket_path = first.socket_path;
	broker = first;
	assert_int_equal(rbk_connect(&(struct rbk_options){.size = sizeof(struct rbk_options),
							   .socket_path = first.socket_path},
				     &rbk, NULL),
			 0);
	assert_int_equal(rbk_arena_new(rbk, 4096, &arena, NULL), 0);
	assert_int_equal(rbk_ring_new(rbk, 8, &ring, NULL), 0);
	for (unsigned int i = 0; i < N_DEATHS; i++) {
		for (unsigned int j = 0; j < N_PLANS; j++) {
			assert_int_equal(plan_elements(rbk, "Neg", 1, 4, 4, &plan, NULL), 0);
			assert_int_equal(run_plan(ring, arena, rbk_plan_id(plan)), 0);
			removed[n_removed++] = rbk_plan_id(plan);
			rbk_plan_free(plan);
		}
		if (!keeps)
			rbk_arena_free(arena);
		broker_kill(&broker);
		if (i > 0)
			broker_remove(&broker);
		broker_start(&broker, &options);
		if (!keeps)
			assert_int_equal(rbk_arena_new(rbk, 4096, &arena, NULL), 0);
		for (unsigned int j = 0; j < n_removed; j++) {
			assert_int_equal(plan_elements(rbk, "Neg", 1, 4, 4, &plan, NULL), 0);
			for (unsigned int k = 0; k < n_removed; k++)
				assert_int_equal(run_plan(ring, arena, removed[k]), -ENOENT);
			rbk_plan_free(plan);
		}
	}
	rbk_ring_free(ring);
	rbk_arena_free(arena);
	rbk_disconnect(rbk);
	broker_stop(&broker);
	broker_remove(&first);
}

TEST(test_reattach__number_of_removed_plan)
{
	remove_plans(true);
	remove_plans(false);
}

/* --- Clients that are stopped, and clients with children --- */

/* A client in a process of its own, with its state in shared memory. */
struct process {
	pid_t pid;
	struct checker *client;
};

/* ThreadSanitizer ends a child of a program with threads that starts threads itself. */
static void skip_without_forks(void)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
}

static void run_client(struct checker *client, const char *socket_path, bool has_child)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	checker_start(client, socket_path);
	while (atomic_load(&client->n_done) == 0 && !atomic_load(&client->has_ended))
		harness_sleep_ms(1);
	/* The child outlives everything; it has copies of all that fork() copies. */
	if (has_child && fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	while (!atomic_load(&client->has_ended))
		harness_sleep_ms(1);
	_exit(0);
}

static void process_start(struct process *process, const char *socket_path, bool has_child)
{
	process->client = mmap(NULL, sizeof(*process->client), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(process->client != MAP_FAILED);
	/* Less than the time for which a client is stopped; one with a child is not. */
	process->client->reattach_ns = has_child ? 0 : harness_slow_ns(400000000);
	process->pid = fork();
	assert_true(process->pid >= 0);
	if (process->pid == 0)
		run_client(process->client, socket_path, has_child);
	checkers_await_work(process->client, 1);
}

static void process_end(struct process *process, unsigned int n_reattached)
{
	atomic_store(&process->client->must_end, true);
	assert_int_equal(waitpid(process->pid, NULL, 0), process->pid);
	if (process->client->failure[0])
		fail_msg("%s", process->client->failure);
	assert_in_range(process->client->n_reattached, 1, n_reattached);
	munmap(process->client, sizeof(*process->client));
}

/*
 * Stop a client at any moment before, during and after its broker's death, for longer than it would
 * wait for a broker, and while another broker starts and dies.
 */
TEST(test_reattach__client_is_stopped)
{
	enum { N_STOPS = 4 };
	const struct broker_options first_options = {.is_undisturbed = true};
	struct broker_options options = first_options;
	struct process process;
	struct broker first, broker;
	uint64_t random = 7;

	skip_without_forks();
	broker_start(&first, &first_options);
	options.socket_path = first.socket_path;
	broker = first;
	process_start(&process, first.socket_path, false);
	for (unsigned int i = 0; i < N_STOPS; i++) {
		if (i % 2) {
			assert_int_equal(kill(process.pid, SIGSTOP), 0);
			broker_kill(&broker);
		} else {
			broker_kill(&broker);
			harness_sleep_ms((unsigned int)(harness_random(&random) % 10));
			assert_int_equal(kill(process.pid, SIGSTOP), 0);
		}
		if (i > 0)
			broker_remove(&broker);
		broker_start(&broker, &options);
		harness_sleep_ms((unsigned int)(harness_slow_ns(500000000) / 1000000));
		broker_kill(&broker);
		broker_remove(&broker);
		broker_start(&broker, &options);
		assert_int_equal(kill(process.pid, SIGCONT), 0);
		checkers_await_work(process.client, 1);
	}
	process_end(&process, 2 * N_STOPS);
	broker_stop(&broker);
	broker_remove(&first);
}

/* A child that was forked before the death neither hides it nor is drawn into it. */
TEST(test_reattach__client_has_a_child)
{
	const struct broker_options first_options = {.is_undisturbed = true};
	struct broker_options options = first_options;
	struct process process;
	struct broker first, broker;

	skip_without_forks();
	broker_start(&first, &first_options);
	options.socket_path = first.socket_path;
	process_start(&process, first.socket_path, true);
	checkers_await_work(process.client, 1);
	broker_kill(&first);
	broker_start(&broker, &options);
	checkers_await_work(process.client, 1);
	process_end(&process, 1);
	broker_stop(&broker);
	broker_remove(&first);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(115))
