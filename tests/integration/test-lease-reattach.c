/* SPDX-License-Identifier: MIT */
/*
 * Leases of connections that re-attach, with a software Vulkan device of 64 MiB
 *
 * brokerd is killed and started again at the same socket. The members do not notice: the next
 * broker has the lease's sizes, its members, their credit and their objects, no more and no less,
 * whatever was under way. If it cannot have them, the client is told what it lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <ringbroker/admin.h>
#include <ringbroker/lease.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "integration/raw.h"
#include "support/scaled.h"
#include "support/test.h"
#include "util/cgroup.h"

#define MIB (1ull << 20)
#define GPU RBK_DEVICE_GPU

enum { COLS = 16, OTHER_UID = 40001 };

static struct broker broker;
static struct broker first; /* owns the folder of the socket */
static struct broker_options options = {
	.args = (const char *const[]){"--gpu=software", "--device-memory=64MiB",
				      "--socket-mode=0666", NULL},
	.policy = "",
};

static int begin(void **state)
{
	options.socket_path = NULL;
	options.policy = "";
	rbk_disconnect(broker_start_gpu(&broker, &options, "observer"));
	first = broker;
	options.socket_path = first.socket_path;
	return 0;
}

static int end(void **state)
{
	broker_stop(&broker);
	broker_remove(&broker);
	broker_remove(&first);
	return 0;
}

static void kill_broker(void)
{
	broker_kill(&broker);
	if (strcmp(broker.dir, first.dir) != 0)
		broker_remove(&broker);
}

static void start_broker(const char *policy)
{
	options.policy = policy;
	broker_start(&broker, &options);
}

/* A member of a lease, with what the callback was told. */
struct member {
	struct rbk *rbk;
	struct rbk_lease *lease;
	const struct rbk_lease_page *page;
	atomic_uint n_told;
	struct rbk_reattachment told;
	char text[RBK_ERROR_BYTES];
};

static void told(struct rbk *rbk, const struct rbk_reattachment *about, void *data)
{
	struct member *member = data;

	(void)rbk;
	member->told = *about;
	snprintf(member->text, sizeof(member->text), "%s", about->text ? about->text : "");
	atomic_fetch_add(&member->n_told, 1);
}

/* Connect, and open a lease, or join lease @number. */
static void member_begin(struct member *member, uint64_t reattach_ns, uint64_t wish_mib,
			 uint64_t max_mib, uint32_t number)
{
	const struct rbk_options connecting = {
		.size = sizeof(connecting),
		.socket_path = first.socket_path,
		.name = "member",
		.reattach_ns = reattach_ns,
		.on_reattach = told,
		.on_reattach_data = member,
	};
	const struct rbk_lease_options opening = {
		.device = GPU,
		.join = number,
		.wish_bytes = number ? 0 : wish_mib * MIB,
		.max_bytes = number ? 0 : max_mib * MIB,
	};
	struct rbk_error error = {""};

	*member = (struct member){.rbk = NULL};
	if (rbk_connect(&connecting, &member->rbk, &error) ||
	    rbk_lease_open(member->rbk, &opening, &member->lease, &error))
		fail_msg("%s", error.text);
	member->page = rbk_lease_page(member->lease);
}

static void member_end(struct member *member)
{
	rbk_lease_close(member->lease);
	rbk_disconnect(member->rbk);
}

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static int take(struct member *member, uint64_t bytes)
{
	const struct rbk_lease_use use = {.used_bytes = 3 * MIB, .n_objects = 3};
	uint64_t given = 0;
	int r = rbk_lease_take(member->lease, bytes, bytes, 0, &use, &given, NULL);

	if (r == 0)
		assert_int_equal(given, bytes);
	return r;
}

static void wait_told(struct member *member, unsigned int n)
{
	struct rbk_stats stats;

	rbk_stats(member->rbk, &stats);
	while (atomic_load(&member->n_told) < n)
		harness_sleep_ms(1);
}

/* Wait for the end of the memory that left sessions had. */
static void expect_free(void)
{
	struct rbk *observer = broker_connect(&broker, "observer");

	broker_wait_vram(observer, 0);
	rbk_disconnect(observer);
}

/* ---- The same lease ---- */

/* A program that only waits to be asked for memory comes back, too; one that may not is told. */
TEST(test_reattach__awaits_sleep)
{
	const struct rbk_options connecting = {
		.size = sizeof(connecting),
		.socket_path = first.socket_path,
		.flags = RBK_CONNECT_NO_REATTACH,
	};
	const struct rbk_lease_options opening = {.device = GPU, .wish_bytes = MIB};
	struct rbk_lease *lease;
	struct member member;
	struct rbk *rbk;

	assert_int_equal(rbk_connect(&connecting, &rbk, NULL), 0);
	assert_int_equal(rbk_lease_open(rbk, &opening, &lease, NULL), 0);
	member_begin(&member, 0, 20, 40, 0);
	kill_broker();
	start_broker("");
	while (atomic_load(&member.n_told) == 0)
		assert_int_equal(rbk_lease_await_sleep(member.lease, RBK_LEASE_AWAKE, 10000000),
				 -ETIME);
	assert_int_equal(take(&member, MIB), 0);
	assert_int_equal(rbk_lease_await_sleep(lease, RBK_LEASE_AWAKE, UINT64_MAX), -ECONNRESET);
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	member_end(&member);
	expect_free();
}

/* Run y = x + x on a ring of the member's connection. */
static void run(struct rbk *rbk, struct rbk_plan *plan, struct rbk_ring *ring,
		struct rbk_arena *arena)
{
	const uint64_t refs[] = {rbk_arena_ref(arena, 0), rbk_arena_ref(arena, 0),
				 rbk_arena_ref(arena, 1024)};
	float *x = rbk_arena_data(arena), *y = x + 256;
	const struct rbk_cqe *cqe;
	struct rbk_sqe *sqe = rbk_get_sqe(ring);

	(void)rbk;
	x[5] = 4;
	y[5] = 0;
	rbk_prep_run(sqe, rbk_plan_id(plan), 1, refs, 3);
	assert_int_equal(rbk_submit(ring), 1);
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, harness_slow_ns(30000000000ull)), 0);
	assert_int_equal(cqe->res, 0);
	rbk_cqe_seen(ring, cqe);
	assert_true(y[5] == 8);
}

/* Credit, objects, sizes and the number stay, and so does everything else of the connection. */
TEST(test_reattach__same_lease)
{
	struct member owner, other;
	struct rbk_arena *arena;
	struct rbk_error error;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	uint64_t charged;
	uint32_t number;

	member_begin(&owner, 0, 20, 40, 0);
	number = rbk_lease_number(owner.lease);
	member_begin(&other, 0, 0, 0, number);
	assert_int_equal(rbk_arena_new(owner.rbk, 4096, &arena, &error), 0);
	assert_int_equal(plan_elements(owner.rbk, "Add", 2, 1, COLS, &plan, &error), 0);
	assert_int_equal(rbk_ring_new(owner.rbk, 4, &ring, &error), 0);
	assert_int_equal(take(&owner, 12 * MIB), 0);
	assert_int_equal(take(&other, 3 * MIB), 0);
	assert_int_equal(
		rbk_lease_object_add(owner.lease, 3, 5, 4 * MIB, 4 * MIB, &charged, &error), 0);
	assert_int_equal(rbk_lease_object_add(other.lease, 3, 5, 4 * MIB, 0, &charged, &error), 0);
	assert_int_equal(charged, 0);
	for (unsigned int i = 1; i <= 3; i++) {
		kill_broker();
		start_broker("");
		wait_told(&owner, i);
		wait_told(&other, i);
		assert_fields(owner.told, (r, 0), (n_leases, 1), (n_arenas, 1), (n_plans, 1),
			      (n_rings, 1));
		assert_fields(other.told, (r, 0), (n_leases, 1), (n_arenas, 0));
		assert_int_equal(rbk_lease_number(owner.lease), number);
		assert_int_equal(rbk_lease_number(other.lease), number);
		assert_ptr_equal(rbk_lease_page(owner.lease), owner.page);
		assert_int_equal(load(&owner.page->credited_bytes), 15 * MIB);
		assert_int_equal(load(&owner.page->granted_bytes), 20 * MIB);
		assert_int_equal(load(&owner.page->max_bytes), 40 * MIB);
		/* Its last report is there, too. */
		assert_int_equal(load(&owner.page->peak_bytes), 6 * MIB);
		run(owner.rbk, plan, ring, arena);
	}
	/* The broker knows the object: it is paid for as before. */
	assert_int_equal(rbk_lease_object_add(other.lease, 3, 5, 4 * MIB, 0, &charged, &error),
			 -EALREADY);
	assert_int_equal(rbk_lease_object_drop(owner.lease, 3, 5), 0);
	assert_int_equal(load(&owner.page->credited_bytes), 15 * MIB);
	assert_int_equal(rbk_lease_object_drop(other.lease, 3, 5), 0);
	assert_int_equal(load(&owner.page->credited_bytes), 11 * MIB);
	assert_int_equal(rbk_lease_give(owner.lease, 8 * MIB, NULL), 0);
	assert_int_equal(rbk_lease_give(owner.lease, 1, NULL), -EINVAL);
	assert_int_equal(rbk_lease_give(other.lease, 3 * MIB, NULL), 0);
	assert_int_equal(load(&owner.page->credited_bytes), 0);
	/* A lease that is closed does not come back. */
	rbk_lease_close(other.lease);
	kill_broker();
	start_broker("");
	wait_told(&other, 4);
	assert_fields(other.told, (r, 0), (n_leases, 0));
	wait_told(&owner, 4);
	rbk_ring_free(ring);
	rbk_plan_free(plan);
	rbk_arena_free(arena);
	member_end(&owner);
	rbk_disconnect(other.rbk);
	expect_free();
}

/* A new wish is that of the next broker, too, and only the opener may set another. */
TEST(test_reattach__resized)
{
	struct member owner, other;
	uint32_t number;

	member_begin(&owner, 0, 20, 40, 0);
	number = rbk_lease_number(owner.lease);
	member_begin(&other, 0, 0, 0, number);
	assert_int_equal(rbk_lease_resize(owner.rbk, number, 8 * MIB, NULL, NULL), 0);
	assert_int_equal(take(&other, 8 * MIB), 0);
	kill_broker();
	start_broker("");
	wait_told(&other, 1);
	wait_told(&owner, 1);
	assert_int_equal(load(&owner.page->wish_bytes), 8 * MIB);
	assert_int_equal(load(&owner.page->granted_bytes), 8 * MIB);
	assert_int_equal(take(&owner, 1), -ENOMEM);
	assert_int_equal(rbk_lease_resize(other.rbk, number, 9 * MIB, NULL, NULL), -EPERM);
	assert_int_equal(rbk_lease_resize(owner.rbk, number, 9 * MIB, NULL, NULL), 0);
	assert_int_equal(take(&owner, MIB), 0);
	member_end(&owner);
	member_end(&other);
	expect_free();
}

/* So are its share and its priority, which an administrator may have set. */
TEST(test_reattach__shares)
{
	const enum rbk_priority background = RBK_PRIORITY_LOW, none = RBK_PRIORITY_NONE;
	struct member owner, other;
	struct rbk *admin;
	uint32_t number;

	member_begin(&owner, 0, 20, 40, 0);
	number = rbk_lease_number(owner.lease);
	member_begin(&other, 0, 0, 0, number);
	admin = broker_connect_admin(&broker, "admin");
	assert_int_equal(rbk_lease_share(owner.rbk, number, NULL, 25, NULL), 0);
	assert_int_equal(rbk_lease_share(admin, number, &background, 0, NULL), 0);
	rbk_disconnect(admin);
	for (uint32_t n = 1; n <= 2; n++) {
		kill_broker();
		start_broker("");
		wait_told(&other, n);
		wait_told(&owner, n);
		assert_fields(*owner.page, (priority, 1 + RBK_PRIORITY_LOW), (share, 25),
			      (set, RBK_LEASE_SET_PRIORITY | RBK_LEASE_SET_SHARE));
	}
	/* So is that it does not share the device. */
	assert_int_equal(rbk_lease_share(owner.rbk, rbk_lease_number(owner.lease), &none, 0, NULL),
			 0);
	kill_broker();
	start_broker("");
	wait_told(&other, 3);
	wait_told(&owner, 3);
	assert_fields(*owner.page, (priority, 0), (share, 25),
		      (set, RBK_LEASE_SET_PRIORITY | RBK_LEASE_SET_SHARE));
	member_end(&owner);
	member_end(&other);
	expect_free();
}

/* Claim a lease of that number at the present broker, as another user, and keep it. */
static int claim_number(uint32_t number)
{
	struct rbk_wire_lease_open request = {
		.request.type = RBK_WIRE_LEASE_OPEN,
		.flags = RBK_WIRE_LEASE_RESTORE,
		.number = number,
		.device = GPU,
		.min_bytes = 1,
		.wish_bytes = 1,
		.max_bytes = 1,
	};
	struct rbk_wire_lease answer;
	int fd;

	harness_become(OTHER_UID);
	fd = raw_connect(&broker);
	harness_become(0);
	raw_hello_with(fd, RBK_FEAT_LEASES);
	raw_ask(fd, &request, sizeof(request), NULL, 0, &answer, sizeof(answer));
	assert_int_equal(answer.reply.res, 0);
	assert_int_equal(answer.number, number);
	return fd;
}

struct taker {
	struct member *member;
	int r;
};

static void *take_later(void *data)
{
	struct taker *taker = data;
	uint64_t given;

	taker->r = rbk_lease_take(taker->member->lease, 20 * MIB, 20 * MIB,
				  harness_slow_ns(20000000000ull), NULL, &given, NULL);
	return NULL;
}

/* Another user has the number at the next broker: the members have another one, together. */
TEST(test_reattach__number_is_taken)
{
	struct member owner, other, third;
	struct taker taker = {&owner};
	pthread_t thread;
	uint32_t number;
	uint64_t charged;
	int fd;

	if (geteuid() != 0)
		skip();
	member_begin(&owner, 0, 20, 40, 0);
	number = rbk_lease_number(owner.lease);
	member_begin(&other, 0, 0, 0, number);
	assert_int_equal(take(&owner, 6 * MIB), 0);
	assert_int_equal(take(&other, 6 * MIB), 0);
	/* A request waits for room, at each broker. */
	member_begin(&third, 0, 40, 40, 0);
	assert_int_equal(take(&third, 40 * MIB), 0);
	assert_int_equal(pthread_create(&thread, NULL, take_later, &taker), 0);
	harness_sleep_ms(20);
	/* The next broker listens elsewhere at first. */
	kill_broker();
	assert_int_equal(unlink(first.socket_path), 0);
	options.socket_path = NULL;
	start_broker("");
	assert_int_equal(chmod(broker.dir, 0711), 0);
	fd = claim_number(number);
	assert_int_equal(symlink(broker.socket_path, first.socket_path), 0);
	wait_told(&owner, 1);
	wait_told(&other, 1);
	assert_int_not_equal(rbk_lease_number(owner.lease), number);
	assert_int_equal(rbk_lease_number(owner.lease), rbk_lease_number(other.lease));
	wait_told(&third, 1);
	assert_int_equal(load(&owner.page->credited_bytes), 12 * MIB);
	assert_int_equal(rbk_lease_give(third.lease, 40 * MIB, NULL), 0);
	member_end(&third);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(taker.r, 0);
	assert_int_equal(load(&owner.page->credited_bytes), 32 * MIB);
	assert_int_equal(rbk_lease_give(owner.lease, 20 * MIB, NULL), 0);
	/* The former number serves, too. */
	assert_int_equal(rbk_lease_resize(owner.rbk, number, 16 * MIB, NULL, NULL), 0);
	assert_int_equal(take(&owner, 2 * MIB), 0);
	assert_int_equal(rbk_lease_object_add(owner.lease, 3, 5, MIB, MIB, &charged, NULL), 0);
	assert_int_equal(rbk_lease_object_drop(owner.lease, 3, 5), 0);
	assert_int_equal(load(&owner.page->credited_bytes), 13 * MIB);
	assert_int_equal(rbk_lease_give(owner.lease, 7 * MIB, NULL), 0);
	assert_int_equal(load(&owner.page->credited_bytes), 6 * MIB);
	close(fd);
	kill_broker();
	assert_int_equal(unlink(first.socket_path), 0);
	options.socket_path = first.socket_path;
	start_broker("");
	wait_told(&owner, 2);
	wait_told(&other, 2);
	assert_int_equal(rbk_lease_number(owner.lease), rbk_lease_number(other.lease));
	assert_int_equal(load(&owner.page->credited_bytes), 6 * MIB);
	assert_int_equal(load(&owner.page->wish_bytes), 16 * MIB);
	member_end(&owner);
	member_end(&other);
	expect_free();
}

/* Make a cgroup. Return: false if that is impossible here. */
static bool make_cgroup(char path[PATH_MAX], int *ret_fd)
{
	char root[PATH_MAX / 2];

	if (!cgroup_find_root(root, sizeof(root)))
		return false;
	snprintf(path, PATH_MAX, "%s/test-lease-reattach-%d", root, (int)getpid());
	if (mkdir(path, 0755))
		return false;
	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(*ret_fd >= 0);
	return true;
}

/* The next broker knows the cgroup of the lease's programs, whoever named it. */
TEST(test_reattach__cgroup)
{
	struct member owner, other, third;
	char path[PATH_MAX];
	int fd = -1;

	if (!make_cgroup(path, &fd))
		skip();
	member_begin(&owner, 0, 4, 4, 0);
	member_begin(&other, 0, 0, 0, rbk_lease_number(owner.lease));
	member_begin(&third, 0, 4, 4, 0);
	assert_int_equal(rbk_lease_set_cgroup(owner.lease, fd, NULL, NULL), 0);
	assert_int_equal(rbk_lease_set_cgroup(other.lease, fd, NULL, NULL), 0);
	for (unsigned int i = 1; i <= 2; i++) {
		kill_broker();
		start_broker("");
		wait_told(&owner, i);
		wait_told(&other, i);
		wait_told(&third, i);
		assert_int_equal(owner.told.r, 0);
		assert_int_equal(other.told.r, 0);
		assert_int_equal(rbk_lease_set_cgroup(third.lease, fd, NULL, NULL), -EBUSY);
	}
	close(fd);
	member_end(&owner);
	member_end(&other);
	member_end(&third);
	assert_int_equal(rmdir(path), 0);
	expect_free();
}

/* ---- Exactly as much ---- */

struct worker {
	struct member member;
	pthread_t thread;
	atomic_bool must_end;
	uint64_t random, credit_bytes;
	uint64_t dev;        /* of its objects, which are its own */
	uint64_t objects[8]; /* bytes of object i + 1 that the member pays for; 0: none */
	char failure[128];
};

static void check(struct worker *worker, const char *what, int r)
{
	if (r && !worker->failure[0])
		snprintf(worker->failure, sizeof(worker->failure), "%s: %s", what, strerror(-r));
}

static void *work(void *data)
{
	struct worker *worker = data;
	struct rbk_lease *lease = worker->member.lease;

	while (!atomic_load(&worker->must_end) && !worker->failure[0]) {
		const uint64_t random = harness_random(&worker->random) >> 20;
		const uint64_t bytes = (1 + random % 4) * 4096;
		uint64_t *object = &worker->objects[random / 16 % 8], charged;

		if (random / 4 % 4 < 2 && worker->credit_bytes < MIB) {
			check(worker, "take", take(&worker->member, bytes));
			worker->credit_bytes += bytes;
		} else if (random / 4 % 4 < 3 && worker->credit_bytes >= bytes) {
			check(worker, "give", rbk_lease_give(lease, bytes, NULL));
			worker->credit_bytes -= bytes;
		} else if (*object) {
			check(worker, "drop",
			      rbk_lease_object_drop(lease, worker->dev,
						    (uint64_t)(object - worker->objects) + 1));
			*object = 0;
		} else if (worker->credit_bytes >= bytes) {
			check(worker, "add",
			      rbk_lease_object_add(lease, worker->dev,
						   (uint64_t)(object - worker->objects) + 1, bytes,
						   bytes, &charged, NULL));
			worker->credit_bytes -= bytes;
			*object = bytes;
		}
	}
	return NULL;
}

/* Brokers die while members take, give back, add and drop: the books agree afterwards. */
TEST(test_reattach__books_agree)
{
	enum { N = 2 };
	static struct worker workers[N];
	uint64_t bytes = 0;

	for (int i = 0; i < N; i++) {
		workers[i] = (struct worker){.random = (uint64_t)i + 1, .dev = (uint64_t)i + 1};
		member_begin(&workers[i].member, 0, 8, 16, 0);
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < test_scaled(6); i++) {
		harness_sleep_ms(20 + i % 7 * 5);
		kill_broker();
		start_broker("");
	}
	harness_sleep_ms(20);
	for (int i = 0; i < N; i++)
		atomic_store(&workers[i].must_end, true);
	for (int i = 0; i < N; i++) {
		struct member *member = &workers[i].member;

		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		if (workers[i].failure[0])
			fail_msg("member %d: %s", i, workers[i].failure);
		assert_true(rbk_n_reattached(member->rbk) > 0);
		bytes = workers[i].credit_bytes;
		for (unsigned int j = 0; j < 8; j++)
			bytes += workers[i].objects[j];
		/* The library notices the last death now. */
		assert_int_equal(rbk_lease_give(member->lease, 0, NULL), 0);
		assert_int_equal(load(&member->page->credited_bytes), bytes);
		for (unsigned int j = 0; j < 8; j++)
			if (workers[i].objects[j])
				assert_int_equal(
					rbk_lease_object_drop(member->lease, workers[i].dev, j + 1),
					0);
		assert_int_equal(load(&member->page->credited_bytes), workers[i].credit_bytes);
		assert_int_equal(rbk_lease_give(member->lease, workers[i].credit_bytes, NULL), 0);
		assert_int_equal(load(&member->page->credited_bytes), 0);
		assert_int_equal(rbk_lease_give(member->lease, 1, NULL), -EINVAL);
		member_end(member);
	}
	expect_free();
}

/* ---- What is given back and opened without a broker ---- */

struct opener {
	struct member *member;
	struct rbk_lease *lease;
	int r;
};

static void *open_later(void *data)
{
	struct opener *opener = data;
	const struct rbk_lease_options opening = {.device = GPU, .max_bytes = 4 * MIB};

	opener->r = rbk_lease_open(opener->member->rbk, &opening, &opener->lease, NULL);
	return NULL;
}

TEST(test_reattach__without_a_broker)
{
	struct member owner, other;
	struct opener opener = {&other};
	struct rbk_stats stats;
	pthread_t thread;
	uint64_t charged;

	member_begin(&owner, 0, 20, 40, 0);
	member_begin(&other, 0, 4, 4, 0);
	assert_int_equal(take(&owner, 9 * MIB), 0);
	assert_int_equal(rbk_lease_object_add(owner.lease, 3, 5, 4 * MIB, 4 * MIB, &charged, NULL),
			 0);
	kill_broker();
	/* These do not wait, and the next broker is not told of what they give back. */
	assert_int_equal(rbk_lease_object_drop(owner.lease, 3, 5), 0);
	assert_int_equal(rbk_lease_give(owner.lease, 2 * MIB, NULL), 0);
	rbk_lease_close(other.lease);
	/* This waits. */
	assert_int_equal(pthread_create(&thread, NULL, open_later, &opener), 0);
	harness_sleep_ms(20);
	start_broker("");
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(opener.r, 0);
	assert_int_equal(rbk_stats(owner.rbk, &stats), 0);
	assert_int_equal(load(&owner.page->credited_bytes), 3 * MIB);
	assert_int_equal(rbk_lease_object_drop(owner.lease, 3, 5), -ENOENT);
	assert_int_equal(rbk_lease_give(owner.lease, 3 * MIB, NULL), 0);
	assert_int_equal(rbk_lease_give(owner.lease, 1, NULL), -EINVAL);
	rbk_lease_close(opener.lease);
	member_end(&owner);
	rbk_disconnect(other.rbk);
	expect_free();
}

/* ---- What cannot be restored ---- */

/* The tenant may have less than the lease has: the client is told, and others get the rest. */
TEST(test_reattach__smaller_budget)
{
	struct member owner, other;
	struct rbk_error error = {""};
	struct rbk_stats stats;

	member_begin(&owner, harness_slow_ns(200000000), 20, 40, 0);
	member_begin(&other, harness_slow_ns(20000000000), 4, 4, 0);
	assert_int_equal(take(&owner, 20 * MIB), 0);
	assert_int_equal(take(&other, 4 * MIB), 0);
	kill_broker();
	start_broker("[tenant default]\nvram-max = 16MiB\n");
	assert_int_equal(rbk_get_stats(owner.rbk, &stats, &error), -ECONNRESET);
	if (!strstr(error.text, "cannot restore lease") || !strstr(error.text, "tenant default") ||
	    !strstr(error.text, "vram-max"))
		fail_msg("it is told: %s", error.text);
	wait_told(&owner, 1);
	assert_int_equal(owner.told.r, -EDQUOT);
	assert_non_null(strstr(owner.text, "cannot restore lease"));
	assert_int_equal(take(&owner, 1), -ECONNRESET);
	assert_int_equal(rbk_stats(other.rbk, &stats), 0);
	assert_int_equal(load(&other.page->credited_bytes), 4 * MIB);
	/* It can still be restored by hand when there is room. */
	kill_broker();
	start_broker("");
	{
		struct rbk *anew = broker_connect(&broker, "again");

		assert_int_equal(rbk_lease_restore(owner.lease, anew, 20 * MIB, &error), 0);
		assert_int_equal(load(&owner.page->credited_bytes), 20 * MIB);
		rbk_lease_close(owner.lease);
		rbk_disconnect(owner.rbk);
		rbk_disconnect(anew);
	}
	member_end(&other);
	expect_free();
}

TEST_MAIN(begin, end, harness_limit_seconds(60))
