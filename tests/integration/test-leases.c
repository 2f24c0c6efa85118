/* SPDX-License-Identifier: MIT */
/*
 * Leases through a real broker, with a software Vulkan device of 64 MiB
 *
 * The test allocates no device memory: a lease reserves memory, and members use it as they like.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <ringbroker/admin.h>
#include <ringbroker/lease.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/test.h"
#include "util/cgroup.h"

#define MIB (1ull << 20)
#define GPU RBK_DEVICE_GPU

enum {
	DEVICE_MIB = 64,
	OTHER_UID = 40001,
	ROWS = 1,
	WIDTH = 2048, /* of a plan's matrix of 16 MiB */
};

static const char two_tenants[] = "[tenant default]\n"
				  "[tenant other]\nmatch-uid = 40001\nvram-max = 40MiB\n";

static struct broker broker;
/* Reads the device memory of the tenant, to which it belongs like all other sessions. */
static struct rbk *watcher;

static void begin_with(const char *policy)
{
	watcher = broker_start_gpu(
		&broker,
		&(struct broker_options){.policy = policy,
					 .args = (const char *const[]){"--gpu=software",
								       "--device-memory=64MiB",
								       "--socket-mode=0666", NULL}},
		"watcher");
	/* Other users connect, too. */
	assert_int_equal(chmod(broker.dir, 0711), 0);
}

static int begin(void **state)
{
	begin_with(two_tenants);
	return 0;
}

/* Connect as another user and thus another tenant. Return: NULL unless root. */
static struct rbk *connect_other(void)
{
	struct rbk *rbk;

	if (geteuid() != 0)
		return NULL;
	harness_become(OTHER_UID);
	rbk = broker_connect(&broker, "other");
	harness_become(0);
	return rbk;
}

static int end(void **state)
{
	rbk_disconnect(watcher);
	broker_stop(&broker);
	broker_remove(&broker);
	return 0;
}

static int try_open(struct rbk *rbk, uint64_t min_mib, uint64_t wish_mib, uint64_t max_mib,
		    struct rbk_lease **ret, struct rbk_error *error)
{
	const struct rbk_lease_options options = {
		.device = GPU,
		.min_bytes = min_mib * MIB,
		.wish_bytes = wish_mib * MIB,
		.max_bytes = max_mib * MIB,
		.program = "test",
	};

	return rbk_lease_open(rbk, &options, ret, error);
}

static struct rbk_lease *open_lease(struct rbk *rbk, uint64_t wish_mib, uint64_t max_mib)
{
	struct rbk_lease *lease;
	struct rbk_error error;

	if (try_open(rbk, wish_mib, wish_mib, max_mib, &lease, &error))
		fail_msg("%s", error.text);
	return lease;
}

static struct rbk_lease *join(struct rbk *rbk, uint32_t number)
{
	struct rbk_lease *lease;
	struct rbk_error error;

	if (rbk_lease_open(rbk, &(struct rbk_lease_options){.join = number}, &lease, &error))
		fail_msg("%s", error.text);
	return lease;
}

static int take(struct rbk_lease *lease, uint64_t mib)
{
	uint64_t bytes = 0;
	int r = rbk_lease_take(lease, mib * MIB, mib * MIB, 0, NULL, &bytes, NULL);

	if (r == 0)
		assert_int_equal(bytes, mib * MIB);
	return r;
}

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

TEST(test_open)
{
	struct rbk *rbk = broker_connect(&broker, "opener"), *other;
	const struct rbk_lease_page *page;
	struct rbk_lease *lease, *joined;
	struct rbk_error error;
	uint64_t bytes;

	assert_true(rbk_features(rbk) & RBK_FEAT_LEASES);
	lease = open_lease(rbk, 16, 24);
	broker_wait_vram(watcher, 16 * MIB);
	page = rbk_lease_page(lease);
	assert_fields(*page, (magic, RBK_LEASE_PAGE_MAGIC), (lease, rbk_lease_number(lease)));
	assert_int_equal(rbk_lease_device(lease), GPU);
	assert_int_equal(load(&page->granted_bytes), 16 * MIB);
	assert_int_equal(load(&page->max_bytes), 24 * MIB);
	assert_int_equal(load(&page->credited_bytes), 0);
	assert_int_equal(try_open(rbk, 1, 1, 1, &joined, &error), -EALREADY);

	/* Another member draws from the same lease. */
	other = broker_connect(&broker, "joiner");
	joined = join(other, rbk_lease_number(lease));
	assert_int_equal(take(lease, 10), 0);
	assert_int_equal(take(joined, 6), 0);
	assert_int_equal(load(&page->credited_bytes), 16 * MIB);
	broker_wait_vram(watcher, 16 * MIB);
	/* The lease grows up to its maximum, and no further. */
	assert_int_equal(take(joined, 8), 0);
	broker_wait_vram(watcher, 24 * MIB);
	assert_int_equal(take(joined, 1), -ENOMEM);
	/* A request whose least is 0 bytes always succeeds. */
	assert_int_equal(rbk_lease_take(joined, MIB, 0, 0, NULL, &bytes, &error), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(rbk_lease_give(joined, 0, NULL), 0);
	assert_int_equal(rbk_lease_give(joined, 14 * MIB + 1, NULL), -EINVAL);
	assert_int_equal(rbk_lease_give(joined, 12 * MIB, NULL), 0);
	/* The lease shrinks to its wish, and no further. */
	broker_wait_vram(watcher, 16 * MIB);

	/* The last member ends the lease. */
	rbk_disconnect(rbk);
	rbk_lease_close(lease);
	broker_wait_vram(watcher, 16 * MIB);
	rbk_lease_close(joined);
	rbk_disconnect(other);
	broker_wait_vram(watcher, 0);
}

TEST(test_refusals)
{
	struct rbk *rbk = broker_connect(&broker, "greedy"), *other;
	const struct rbk_lease_options nowhere = {.device = 7, .max_bytes = 1};
	const struct rbk_lease_options nobody = {.join = 12345678};
	struct rbk_lease *lease, *none;
	struct rbk_error error;

	assert_int_equal(try_open(rbk, 65, 65, 65, &none, &error), -EDQUOT);
	assert_non_null(strstr(error.text, "the device's memory"));
	assert_int_equal(try_open(rbk, 2, 1, 3, &none, &error), -EINVAL);
	assert_int_equal(rbk_lease_open(rbk, &nowhere, &none, &error), -ENODEV);
	assert_int_equal(rbk_lease_open(rbk, &nobody, &none, &error), -ENOENT);
	lease = open_lease(rbk, 60, 60);
	other = broker_connect(&broker, "late");
	assert_int_equal(try_open(other, 8, 8, 8, &none, &error), -ENOMEM);
	assert_non_null(strstr(error.text, "requires 8 MiB, of which 4 MiB are available"));
	assert_non_null(strstr(error.text, "tenant default"));
	/* A lease gets as much of its wish as there is. */
	assert_int_equal(try_open(other, 2, 8, 8, &none, &error), 0);
	assert_int_equal(load(&rbk_lease_page(none)->granted_bytes), 4 * MIB);
	broker_wait_vram(watcher, 64 * MIB);
	rbk_lease_close(none);
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	rbk_disconnect(other);
	broker_wait_vram(watcher, 0);
}

/* A killed member leaves nothing. */
TEST(test_kill)
{
	char byte;
	int ready[2];
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rbk *rbk = broker_connect(&broker, "victim");
		struct rbk_lease *lease = open_lease(rbk, 20, 40);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (take(lease, 30) == 0)
			(void)!write(ready[1], "x", 1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	broker_wait_vram(watcher, 30 * MIB);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	broker_wait_vram(watcher, 0);
	close(ready[0]);
	close(ready[1]);
}

TEST(test_other_tenant)
{
	struct rbk *rbk = broker_connect(&broker, "one"), *other = connect_other();
	struct rbk_lease *lease, *none;
	struct rbk_error error;

	if (!other) {
		rbk_disconnect(rbk);
		print_message("only root can be another user\n");
		skip();
	}
	lease = open_lease(rbk, 40, 40);
	assert_int_equal(
		rbk_lease_open(other, &(struct rbk_lease_options){.join = rbk_lease_number(lease)},
			       &none, &error),
		-EPERM);
	assert_int_equal(rbk_lease_resize(other, rbk_lease_number(lease), MIB, NULL, &error),
			 -EPERM);
	assert_int_equal(try_open(other, 30, 30, 30, &none, &error), -ENOMEM);
	assert_non_null(strstr(error.text, "tenant other"));
	assert_non_null(strstr(error.text, "requires 30 MiB"));
	assert_non_null(strstr(error.text, "24 MiB are available"));
	assert_int_equal(try_open(other, 41, 41, 41, &none, &error), -EDQUOT);
	broker_wait_vram(watcher, 40 * MIB);
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	broker_wait_vram(watcher, 0);
	none = open_lease(other, 30, 40);
	assert_int_equal(broker_vram_used(watcher), 0);
	rbk_lease_close(none);
	rbk_disconnect(other);
}

/* While an object is exported, freed and imported, some lease pays for it at all times. */
TEST(test_laundering)
{
	struct rbk *first = broker_connect(&broker, "exporter"),
		   *second = broker_connect(&broker, "importer"),
		   *third = broker_connect(&broker, "elsewhere"), *other = connect_other();
	struct rbk_lease *lease = open_lease(first, 20, 20), *member, *elsewhere, *theirs = NULL;
	struct rbk_error error;
	uint64_t charged;

	member = join(second, rbk_lease_number(lease));
	elsewhere = open_lease(third, 4, 4);
	assert_int_equal(take(lease, 20), 0);
	assert_int_equal(rbk_lease_object_add(lease, 3, 77, 16 * MIB, 16 * MIB, &charged, &error),
			 0);
	assert_int_equal(charged, 16 * MIB);
	assert_int_equal(rbk_lease_object_add(lease, 3, 77, 16 * MIB, 0, &charged, &error),
			 -EALREADY);
	/* The exporter has no more credit, whether another member imports the object or not. */
	assert_int_equal(take(lease, 1), -ENOMEM);
	assert_int_equal(rbk_lease_object_add(member, 3, 77, 16 * MIB, 0, &charged, &error), 0);
	assert_int_equal(charged, 0);
	assert_int_equal(rbk_lease_object_drop(lease, 3, 77), 0);
	assert_int_equal(rbk_lease_object_drop(lease, 3, 77), -ENOENT);
	assert_int_equal(take(lease, 1), -ENOMEM);
	/* In another lease of the tenant, which has no room of its own for the object. */
	assert_int_equal(rbk_lease_object_add(elsewhere, 3, 77, 16 * MIB, 0, &charged, &error), 0);
	assert_int_equal(charged, 0);
	broker_wait_vram(watcher, 24 * MIB);
	assert_int_equal(rbk_lease_object_drop(member, 3, 77), 0);
	broker_wait_vram(watcher, 24 * MIB);
	assert_int_equal(load(&rbk_lease_page(elsewhere)->granted_bytes), 16 * MIB);
	assert_int_equal(load(&rbk_lease_page(lease)->granted_bytes), 8 * MIB);
	/* Another tenant's lease pays for itself. */
	if (other) {
		theirs = open_lease(other, 1, 16);
		assert_int_equal(rbk_lease_object_add(theirs, 3, 77, 16 * MIB, 0, &charged, &error),
				 0);
		assert_int_equal(charged, 16 * MIB);
	}
	/* An object that no lease has needs room like an allocation. */
	assert_int_equal(rbk_lease_object_add(elsewhere, 3, 78, 5 * MIB, 0, &charged, &error),
			 -ENOMEM);
	rbk_lease_close(lease);
	rbk_disconnect(first);
	rbk_lease_close(member);
	rbk_disconnect(second);
	broker_wait_vram(watcher, 16 * MIB);
	rbk_lease_close(elsewhere);
	rbk_disconnect(third);
	broker_wait_vram(watcher, 0);
	rbk_lease_close(theirs);
	rbk_disconnect(other);
}

/* Waiting */

struct waiting {
	pthread_t thread;
	struct rbk *rbk;
	struct rbk_lease *lease; /* NULL: a lease of @bytes is to be opened */
	uint64_t bytes, wait_ns;
	int r;
	bool is_done; /* atomic */
	struct rbk_error error;
};

static void *wait_run(void *data)
{
	struct waiting *w = data;
	const struct rbk_lease_options options = {
		.device = GPU,
		.min_bytes = w->bytes,
		.max_bytes = w->bytes,
		.wait_ns = w->wait_ns,
	};
	uint64_t bytes;

	if (w->lease)
		w->r = rbk_lease_take(w->lease, w->bytes, w->bytes, w->wait_ns, NULL, &bytes,
				      &w->error);
	else
		w->r = rbk_lease_open(w->rbk, &options, &w->lease, &w->error);
	__atomic_store_n(&w->is_done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void wait_begin(struct waiting *w, struct rbk *rbk, struct rbk_lease *lease, uint64_t mib,
		       uint64_t wait_ns)
{
	*w = (struct waiting){.rbk = rbk, .lease = lease, .bytes = mib * MIB, .wait_ns = wait_ns};
	assert_int_equal(pthread_create(&w->thread, NULL, wait_run, w), 0);
}

static int wait_end(struct waiting *w)
{
	pthread_join(w->thread, NULL);
	return w->r;
}

/* Return the number of lease records with waiters. */
static unsigned int count_waiting(void)
{
	struct rbk_stats_view view;
	struct rbk_stats_lease lease;
	unsigned int n = 0;

	assert_int_equal(rbk_stats_map(watcher, RBK_STATS_OWN, 0, &view, NULL), 0);
	for (uint32_t i = 0; i < rbk_stats_count(&view, RBK_STATS_SECTION_LEASES); i++)
		if (harness_stats_copy(&view, RBK_STATS_SECTION_LEASES, i, &lease, sizeof(lease)) &&
		    lease.number)
			n += !!(lease.flags & RBK_STATS_LEASE_WAITING);
	rbk_stats_unmap(&view);
	return n;
}

static void expect_waiting(unsigned int n)
{
	uint64_t deadline_ns = harness_now_ns() + harness_slow_ns(10000000000);

	while (count_waiting() != n && harness_now_ns() < deadline_ns)
		harness_sleep_ms(5);
	assert_int_equal(count_waiting(), n);
}

TEST(test_wait)
{
	struct rbk *rbk[3];
	struct rbk_lease *lease;
	struct waiting first, second;

	for (unsigned int i = 0; i < 3; i++)
		rbk[i] = broker_connect(&broker, "waiter");
	lease = open_lease(rbk[0], 60, 60);
	wait_begin(&first, rbk[1], NULL, 30, 1000000);
	assert_int_equal(wait_end(&first), -ETIMEDOUT);
	assert_non_null(strstr(first.error.text, "available in time"));
	wait_begin(&first, rbk[1], NULL, 30, harness_slow_ns(60000000000));
	expect_waiting(1);
	/* A small request does not overtake; a waiting session can send other requests. */
	wait_begin(&second, rbk[2], NULL, 2, harness_slow_ns(60000000000));
	expect_waiting(2);
	broker_wait_vram(watcher, 60 * MIB);
	assert_int_equal(rbk_stats(rbk[1], &(struct rbk_stats){0}), 0);
	rbk_lease_close(lease);
	rbk_disconnect(rbk[0]);
	assert_int_equal(wait_end(&first), 0);
	assert_int_equal(wait_end(&second), 0);
	broker_wait_vram(watcher, 32 * MIB);
	/* A member that leaves while it waits leaves nothing. */
	rbk_lease_close(first.lease);
	rbk_lease_close(second.lease);
	rbk_disconnect(rbk[1]);
	rbk_disconnect(rbk[2]);
	broker_wait_vram(watcher, 0);
	expect_waiting(0);
}

/* A request that waits for ever for more than its tenant's share delays no other tenant. */
TEST(test_wait__other_tenant)
{
	struct rbk *rbk[2] = {broker_connect(&broker, "a"), broker_connect(&broker, "a too")};
	struct rbk *other[2] = {connect_other(), connect_other()};
	struct rbk_lease *mine, *theirs, *new, *none;
	struct rbk_error error;
	struct waiting waiting;

	if (!other[0]) {
		for (unsigned int i = 0; i < 2; i++)
			rbk_disconnect(rbk[i]);
		print_message("only root can be another user\n");
		skip();
	}
	theirs = open_lease(other[0], 20, 64);
	assert_int_equal(take(theirs, 20), 0);
	mine = open_lease(rbk[0], 1, 64);
	assert_int_equal(take(mine, 1), 0);
	wait_begin(&waiting, rbk[0], mine, 50, 1000 * 3600 * 1000000000ull);
	expect_waiting(1);
	assert_int_equal(take(theirs, 6), 0);
	assert_int_equal(take(theirs, 6), 0);
	new = open_lease(other[1], 8, 8);
	/* Requests of the same tenant wait; the rejection names the memory requested before. */
	assert_int_equal(try_open(rbk[1], 5, 5, 5, &none, &error), -ENOMEM);
	assert_non_null(strstr(error.text, "requires 5 MiB, of which 0 B are available"));
	assert_non_null(strstr(error.text, "requests before it have asked for 50 MiB"));
	rbk_lease_close(new);
	rbk_lease_close(theirs);
	for (unsigned int i = 0; i < 2; i++)
		rbk_disconnect(other[i]);
	assert_int_equal(wait_end(&waiting), 0);
	rbk_lease_close(mine);
	for (unsigned int i = 0; i < 2; i++)
		rbk_disconnect(rbk[i]);
	broker_wait_vram(watcher, 0);
}

TEST(test_deadlock)
{
	struct rbk *rbk[2] = {broker_connect(&broker, "a"), broker_connect(&broker, "b")};
	struct rbk_lease *lease[2] = {open_lease(rbk[0], 28, 64), open_lease(rbk[1], 1, 64)};
	struct waiting first, second;

	assert_int_equal(take(lease[0], 28), 0);
	assert_int_equal(take(lease[1], 28), 0);
	wait_begin(&first, rbk[0], lease[0], 28, 1000 * 3600 * 1000000000ull);
	expect_waiting(1);
	wait_begin(&second, rbk[1], lease[1], 28, harness_slow_ns(60000000000));
	assert_int_equal(wait_end(&second), -EDEADLK);
	assert_false(__atomic_load_n(&first.is_done, __ATOMIC_ACQUIRE));
	/* The waiter is served when credit is given back. The lease keeps its wish. */
	assert_int_equal(rbk_lease_give(lease[1], 28 * MIB, NULL), 0);
	assert_int_equal(wait_end(&first), 0);
	broker_wait_vram(watcher, 57 * MIB);
	rbk_lease_close(lease[1]);
	rbk_disconnect(rbk[1]);
	broker_wait_vram(watcher, 56 * MIB);
	rbk_lease_close(lease[0]);
	rbk_disconnect(rbk[0]);
	broker_wait_vram(watcher, 0);
}

/* If two leases are opened at the same moment and only one fits, only that one is charged. */
TEST(test_two_at_once)
{
	for (unsigned int round = 0; round < 20; round++) {
		struct rbk *rbk[2] = {broker_connect(&broker, "a"), broker_connect(&broker, "b")};
		struct waiting both[2];
		unsigned int n = 0;

		for (unsigned int i = 0; i < 2; i++)
			wait_begin(&both[i], rbk[i], NULL, 40, 0);
		for (unsigned int i = 0; i < 2; i++) {
			int r = wait_end(&both[i]);

			assert_true(r == 0 || r == -ENOMEM);
			n += r == 0;
		}
		assert_int_equal(n, 1);
		broker_wait_vram(watcher, 40 * MIB);
		for (unsigned int i = 0; i < 2; i++) {
			rbk_lease_close(both[i].lease);
			rbk_disconnect(rbk[i]);
		}
		broker_wait_vram(watcher, 0);
	}
}

/* Administration */

static struct rbk_stats_lease record_of(const struct rbk_stats_view *view, uint32_t number)
{
	struct rbk_stats_lease lease;

	for (uint32_t i = 0; i < rbk_stats_count(view, RBK_STATS_SECTION_LEASES); i++)
		if (harness_stats_copy(view, RBK_STATS_SECTION_LEASES, i, &lease, sizeof(lease)) &&
		    lease.number == number)
			return lease;
	return (struct rbk_stats_lease){0};
}

/*
 * Return the lease's record once it has @flag. A new mapping of the page brings its figures up to
 * date.
 */
static struct rbk_stats_lease see(struct rbk *admin, uint32_t number, uint32_t flag)
{
	uint64_t deadline_ns = harness_now_ns() + harness_slow_ns(10000000000);
	struct rbk_stats_lease lease;

	do {
		struct rbk_stats_view view;

		assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &view, NULL), 0);
		lease = record_of(&view, number);
		rbk_stats_unmap(&view);
		if (!flag || lease.flags & flag)
			break;
		harness_sleep_ms(20);
	} while (harness_now_ns() < deadline_ns);
	return lease;
}

TEST(test_resize_and_listing)
{
	struct rbk *admin = broker_connect_admin(&broker, "admin");
	struct rbk *rbk = broker_connect(&broker, "program");
	struct rbk_lease *lease = open_lease(rbk, 20, 40);
	const struct rbk_lease_use use = {10 * MIB, MIB, 7, 2};
	uint32_t number = rbk_lease_number(lease);
	struct rbk_stats_lease record;
	struct rbk_error error;
	uint64_t bytes;

	assert_int_equal(rbk_lease_take(lease, 16 * MIB, 16 * MIB, 0, &use, &bytes, &error), 0);
	record = see(admin, number, 0);
	assert_int_equal(record.number, number);
	assert_string_equal(record.name, "test");
	assert_fields(record, (device, GPU), (pid, getpid()), (n_members, 1), (min_bytes, 20 * MIB),
		      (wish_bytes, 20 * MIB), (max_bytes, 40 * MIB));

	assert_int_equal(rbk_lease_resize(admin, number, 8 * MIB, &bytes, &error), 0);
	assert_int_equal(bytes, 16 * MIB);
	assert_true(broker_log_has(&broker, "its wish is now"));
	assert_int_equal(load(&rbk_lease_page(lease)->wish_bytes), 8 * MIB);
	record = see(admin, number, RBK_STATS_LEASE_SHRINKING);
	assert_true(record.flags & RBK_STATS_LEASE_SHRINKING);
	assert_fields(record, (granted_bytes, 16 * MIB), (credited_bytes, 16 * MIB),
		      (used_bytes, 10 * MIB), (extra_bytes, MIB), (peak_bytes, 11 * MIB),
		      (n_objects, 7), (n_refused, 2));
	assert_int_equal(take(lease, 1), -ENOMEM);
	assert_int_equal(rbk_lease_give(lease, 12 * MIB, NULL), 0);
	assert_int_equal(load(&rbk_lease_page(lease)->granted_bytes), 8 * MIB);
	/* The session that opened the lease may resize it, too. */
	assert_int_equal(rbk_lease_resize(rbk, number, 30 * MIB, &bytes, &error), 0);
	assert_int_equal(bytes, 30 * MIB);
	assert_int_equal(rbk_lease_resize(rbk, number, 41 * MIB, &bytes, &error), -EINVAL);
	assert_int_equal(rbk_lease_resize(rbk, number, 0, &bytes, &error), -EINVAL);
	assert_int_equal(rbk_lease_resize(watcher, number, MIB, &bytes, &error), -EPERM);
	assert_int_equal(rbk_lease_resize(rbk, number + 1, MIB, &bytes, &error), -ENOENT);
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	broker_wait_vram(watcher, 0);
	assert_int_equal(see(admin, number, 0).number, 0);
	rbk_disconnect(admin);
}

TEST(test_share)
{
	const enum rbk_priority urgent = RBK_PRIORITY_URGENT, none = RBK_PRIORITY_NONE,
				unknown = RBK_PRIORITY_COUNT;
	struct rbk *admin = broker_connect_admin(&broker, "admin");
	struct rbk *rbk = broker_connect(&broker, "program");
	struct rbk_lease *lease = open_lease(rbk, 20, 40);
	const struct rbk_lease_page *page = rbk_lease_page(lease);
	uint32_t number = rbk_lease_number(lease);
	struct rbk_error error;

	assert_fields(*page, (priority, 0), (share, 100), (set, 0), (max_part_us, 0));
	assert_int_equal(rbk_lease_share(rbk, number, NULL, 10000, &error), 0);
	assert_fields(*page, (priority, 0), (share, 10000), (set, RBK_LEASE_SET_SHARE));
	assert_int_equal(rbk_lease_share(admin, number, &urgent, 0, &error), 0);
	assert_fields(*page, (priority, 1 + RBK_PRIORITY_URGENT), (share, 10000));
	assert_true(broker_log_has(&broker, "it has priority urgent; its share is 10000"));
	assert_int_equal(rbk_lease_share(rbk, number, NULL, 0, &error), -EINVAL);
	assert_int_equal(rbk_lease_share(rbk, number, NULL, 10001, &error), -EINVAL);
	assert_non_null(strstr(error.text, "a share from 1 to 10000"));
	assert_int_equal(rbk_lease_share(rbk, number, &unknown, 1, &error), -EINVAL);
	assert_int_equal(rbk_lease_share(watcher, number, NULL, 1, &error), -EPERM);
	assert_non_null(strstr(error.text, "can change it"));
	assert_int_equal(rbk_lease_share(rbk, number + 1, NULL, 1, &error), -ENOENT);
	assert_fields(*page, (priority, 1 + RBK_PRIORITY_URGENT), (share, 10000));
	assert_int_equal(rbk_lease_share(admin, number, &none, 0, &error), 0);
	assert_fields(*page, (priority, 0), (share, 10000),
		      (set, RBK_LEASE_SET_PRIORITY | RBK_LEASE_SET_SHARE));
	assert_true(broker_log_has(&broker, "its programs stop sharing the device; its share"));
	assert_int_equal(rbk_lease_share(rbk, number, &urgent, 0, &error), 0);
	assert_fields(*page, (priority, 1 + RBK_PRIORITY_URGENT), (share, 10000));
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	rbk_disconnect(admin);
	broker_wait_vram(watcher, 0);
}

/* A program that is written for leases gives memory to a request that waits, when it is asked. */
TEST(test_sleep)
{
	struct rbk *admin = broker_connect_admin(&broker, "admin");
	struct rbk *rbk = broker_connect(&broker, "program");
	struct rbk_lease *lease = open_lease(rbk, 20, 40);
	uint32_t number = rbk_lease_number(lease);
	struct rbk_error error;
	uint64_t bytes;

	assert_int_equal(rbk_lease_take(lease, 20 * MIB, 20 * MIB, 0, NULL, &bytes, NULL), 0);
	assert_int_equal(rbk_lease_await_sleep(lease, RBK_LEASE_AWAKE, 10000000), -ETIME);
	assert_int_equal(rbk_lease_report_moved(lease, 15 * MIB, 0), 0);
	assert_int_equal(rbk_lease_sleep(admin, number, RBK_LEASE_SLEEPS, &error), 0);
	assert_int_equal(rbk_lease_await_sleep(lease, RBK_LEASE_AWAKE, 0), RBK_LEASE_SLEEPS);
	assert_true(broker_log_has(&broker, "it sleeps: memory of idle programs"));
	assert_int_equal(rbk_lease_give(lease, 15 * MIB, NULL), 0);
	assert_int_equal(rbk_lease_report_moved(lease, 15 * MIB, 15 * MIB), 0);
	broker_wait_vram(watcher, 5 * MIB);
	assert_int_equal(rbk_lease_sleep(admin, number, RBK_LEASE_AWAKE, &error), 0);
	assert_int_equal(rbk_lease_await_sleep(lease, RBK_LEASE_SLEEPS, UINT64_MAX),
			 RBK_LEASE_AWAKE);
	assert_int_equal(rbk_lease_take(lease, 15 * MIB, 15 * MIB, 0, NULL, &bytes, NULL), 0);
	assert_int_equal(rbk_lease_sleep(rbk, number, RBK_LEASE_ASKED, &error), -EINVAL);
	assert_non_null(strstr(error.text, "awake (0), asleep (1) or held (2), not 3"));
	assert_int_equal(rbk_lease_sleep(watcher, number, RBK_LEASE_HELD, &error), -EPERM);
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	rbk_disconnect(admin);
	broker_wait_vram(watcher, 0);
}

/* Make a cgroup and open its folder as *ret_fd. Return: false if none can be made here. */
static bool make_cgroup(const char *name, char path[static PATH_MAX], int *ret_fd)
{
	char root[PATH_MAX - 64];

	if (!cgroup_find_root(root, sizeof(root)))
		return false;
	snprintf(path, PATH_MAX, "%s/test-leases-%d-%s", root, (int)getpid(), name);
	if (mkdir(path, 0755))
		return false;
	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(*ret_fd >= 0);
	return true;
}

TEST(test_cgroup)
{
	struct rbk *rbk = broker_connect(&broker, "test"), *second, *other;
	struct rbk_lease *lease, *another, *others;
	char paths[2][PATH_MAX];
	struct rbk_error error;
	int fds[2] = {-1, -1}, fd, r;

	if (!make_cgroup("a", paths[0], &fds[0])) {
		print_message("no cgroup can be made here\n");
		rbk_disconnect(rbk);
		skip();
	}
	assert_true(make_cgroup("b", paths[1], &fds[1]));
	lease = open_lease(rbk, 4, 4);
	second = broker_connect(&broker, "test");
	another = open_lease(second, 4, 4);
	assert_int_equal(rbk_lease_set_cgroup(lease, -1, NULL, &error), -EINVAL);
	fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(rbk_lease_set_cgroup(lease, fd, NULL, &error), -ENOTDIR);
	close(fd);
	/* A file in a cgroup's folder is rejected. */
	fd = openat(fds[0], "cgroup.procs", O_RDONLY | O_CLOEXEC);
	assert_int_equal(rbk_lease_set_cgroup(lease, fd, NULL, &error), -ENOTDIR);
	close(fd);
	r = rbk_lease_set_cgroup(lease, fds[0], NULL, &error);
	if (r)
		fail_msg("%s", error.text);
	assert_int_equal(rbk_lease_set_cgroup(lease, fds[0], NULL, &error), 0);
	assert_int_equal(rbk_lease_set_cgroup(lease, fds[1], NULL, &error), -EALREADY);
	assert_int_equal(rbk_lease_set_cgroup(another, fds[0], NULL, &error), -EBUSY);
	if (getuid() == 0) {
		other = connect_other();
		others = open_lease(other, 4, 4);
		assert_int_equal(rbk_lease_set_cgroup(others, fds[1], NULL, &error), -EPERM);
		assert_int_equal(chown(paths[1], OTHER_UID, OTHER_UID), 0);
		assert_int_equal(rbk_lease_set_cgroup(others, fds[1], NULL, &error), 0);
		rbk_lease_close(others);
		rbk_disconnect(other);
		assert_int_equal(chown(paths[1], 0, 0), 0);
	}
	/* The cgroup is free again when its lease has ended. */
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	broker_wait_vram(watcher, 4 * MIB);
	assert_int_equal(rbk_lease_set_cgroup(another, fds[0], NULL, &error), 0);
	/* The broker does not keep the cgroup from being removed. */
	for (unsigned int i = 0; i < 2; i++) {
		close(fds[i]);
		assert_int_equal(rmdir(paths[i]), 0);
	}
	rbk_lease_close(another);
	rbk_disconnect(second);
	broker_wait_vram(watcher, 0);
}

static uint32_t own_tenant(struct rbk *rbk)
{
	struct rbk_stats_view view;
	struct rbk_stats_tenant tenant;

	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_OWN, 0, &view, NULL), 0);
	assert_true(
		harness_stats_copy(&view, RBK_STATS_SECTION_TENANTS, 0, &tenant, sizeof(tenant)));
	rbk_stats_unmap(&view);
	return tenant.number;
}

/* On a drained device, no lease is opened, and existing leases stay until their programs end. */
TEST(test_drain_and_evict)
{
	struct rbk *admin = broker_connect_admin(&broker, "admin");
	struct rbk *rbk = broker_connect(&broker, "early"), *late = broker_connect(&broker, "late");
	struct rbk_lease *lease = open_lease(rbk, 20, 40), *none;
	uint32_t tenant = own_tenant(rbk);
	struct rbk_admin_drained drained;
	struct rbk_error error;
	uint64_t n, bytes;

	assert_int_equal(rbk_admin_drain_device(admin, GPU, RBK_DRAIN_BEGIN, &drained, &error), 0);
	assert_int_equal(drained.device_bytes, 20 * MIB);
	assert_int_equal(try_open(late, 1, 1, 1, &none, &error), -EBUSY);
	assert_non_null(strstr(error.text, "drains"));
	assert_int_equal(take(lease, 20), 0);
	assert_int_equal(take(lease, 1), -ENOMEM);
	assert_int_equal(rbk_admin_drain_device(admin, GPU, RBK_DRAIN_END, NULL, &error), 0);
	assert_int_equal(rbk_admin_drain_tenant(admin, tenant, RBK_DRAIN_BEGIN, &drained, &error),
			 0);
	assert_int_equal(try_open(late, 1, 1, 1, &none, &error), -EBUSY);
	assert_non_null(strstr(error.text, "drains"));
	assert_int_equal(rbk_admin_drain_tenant(admin, tenant, RBK_DRAIN_END, NULL, &error), 0);
	assert_int_equal(rbk_admin_evict(admin, &(struct rbk_admin_evict){.device = GPU}, &n,
					 &bytes, &error),
			 0);
	broker_wait_vram(watcher, 20 * MIB);
	assert_int_equal(try_open(late, 1, 1, 1, &none, &error), 0);
	rbk_lease_close(none);
	rbk_lease_close(lease);
	rbk_disconnect(late);
	rbk_disconnect(rbk);
	rbk_disconnect(admin);
	broker_wait_vram(watcher, 0);
}

TEST(test_lowered_limit)
{
	struct rbk *rbk = broker_connect(&broker, "program");
	struct rbk_lease *lease = open_lease(rbk, 30, 50);
	uint64_t deadline_ns;

	assert_int_equal(take(lease, 24), 0);
	broker_write_policy(&broker, "[tenant default]\nvram-max = 16MiB\n"
				     "[tenant other]\nmatch-uid = 40001\nvram-max = 40MiB\n");
	broker_reload(&broker, "again: changed");
	deadline_ns = harness_now_ns() + harness_slow_ns(10000000000);
	while (load(&rbk_lease_page(lease)->wish_bytes) != 16 * MIB &&
	       harness_now_ns() < deadline_ns)
		harness_sleep_ms(5);
	assert_int_equal(load(&rbk_lease_page(lease)->wish_bytes), 16 * MIB);
	assert_int_equal(load(&rbk_lease_page(lease)->granted_bytes), 24 * MIB);
	assert_int_equal(take(lease, 1), -ENOMEM);
	assert_int_equal(rbk_lease_give(lease, 20 * MIB, NULL), 0);
	broker_wait_vram(watcher, 16 * MIB);
	broker_write_policy(&broker, two_tenants);
	broker_reload(&broker, "again: changed");
	assert_int_equal(take(lease, 40), 0);
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	broker_wait_vram(watcher, 0);
}

/* Plans */

static struct rbk_plan *make_plan(struct rbk *rbk)
{
	struct rbk_arena *constants;
	struct rbk_plan *plan;
	struct rbk_error error;

	assert_int_equal(plan_constants(rbk, (size_t)WIDTH * WIDTH * sizeof(float), &constants), 0);
	if (plan_product(rbk, ROWS, WIDTH, WIDTH, constants, &plan, &error))
		fail_msg("%s", error.text);
	rbk_arena_free(constants);
	return plan;
}

static uint32_t state_of(struct rbk_plan *plan)
{
	struct rbk_plan_memory devices[RBK_MAX_DEVICES];
	unsigned int n;

	assert_int_equal(rbk_plan_memory(plan, devices, RBK_MAX_DEVICES, &n, NULL), 0);
	return devices[GPU].state;
}

static void expect_state(struct rbk_plan *plan, uint32_t memory_state)
{
	uint64_t deadline_ns = harness_now_ns() + harness_slow_ns(10000000000);

	while (state_of(plan) != memory_state && harness_now_ns() < deadline_ns)
		harness_sleep_ms(5);
	assert_int_equal(state_of(plan), memory_state);
}

/* A tenant's own plans are evicted for its lease, which waits for that. */
TEST(test_plans_yield)
{
	struct rbk *rbk = broker_connect(&broker, "plans");
	struct rbk_plan *plan = make_plan(rbk);
	struct rbk_lease *lease;

	expect_state(plan, RBK_MEMORY_RESIDENT);
	assert_true(broker_vram_used(watcher) >= 16 * MIB);
	lease = open_lease(rbk, 60, 60);
	expect_state(plan, RBK_MEMORY_EVICTED);
	broker_wait_vram(watcher, 60 * MIB);
	rbk_lease_close(lease);
	rbk_plan_free(plan);
	rbk_disconnect(rbk);
	broker_wait_vram(watcher, 0);
}

/* The broker is killed; members go on, and report what they hold to the next broker. */
TEST(test_restore)
{
	struct rbk *rbk[2] = {broker_connect(&broker, "a"), broker_connect(&broker, "b")}, *anew[2];
	struct rbk_lease *lease[2] = {open_lease(rbk[0], 20, 40), NULL}, *late;
	const struct rbk_lease_page *page = rbk_lease_page(lease[0]);
	uint32_t number = rbk_lease_number(lease[0]);
	struct rbk_error error;
	uint64_t charged;

	lease[1] = join(rbk[1], number);
	assert_int_equal(take(lease[0], 16), 0);
	assert_int_equal(take(lease[1], 10), 0);
	assert_int_equal(rbk_lease_object_add(lease[0], 3, 5, 6 * MIB, 6 * MIB, &charged, &error),
			 0);
	rbk_disconnect(watcher);
	broker_kill(&broker);
	broker_remove(&broker);
	begin_with(two_tenants);
	assert_int_equal(take(lease[0], 1), -ECONNRESET);
	assert_int_equal(load(&page->granted_bytes), 26 * MIB);

	for (unsigned int i = 0; i < 2; i++)
		anew[i] = broker_connect(&broker, "again");
	/* Another lease was opened first, so there is no room for what these members hold. */
	late = open_lease(watcher, 60, 60);
	assert_int_equal(rbk_lease_restore(lease[0], anew[0], 10 * MIB, &error), -EDQUOT);
	rbk_lease_close(late);
	rbk_disconnect(watcher);
	watcher = broker_connect(&broker, "watcher");
	broker_wait_vram(watcher, 0);
	assert_int_equal(rbk_lease_restore(lease[0], anew[0], 10 * MIB, &error), 0);
	assert_int_equal(rbk_lease_restore(lease[1], anew[1], 10 * MIB, &error), 0);
	assert_int_equal(rbk_lease_number(lease[0]), number);
	assert_int_equal(rbk_lease_number(lease[1]), number);
	assert_ptr_equal(rbk_lease_page(lease[0]), page);
	assert_int_equal(load(&page->credited_bytes), 26 * MIB);
	assert_int_equal(load(&page->max_bytes), 40 * MIB);
	broker_wait_vram(watcher, 26 * MIB);
	/* The restored lease holds the object, too. */
	assert_int_equal(rbk_lease_object_add(lease[1], 3, 5, 6 * MIB, 0, &charged, &error), 0);
	assert_int_equal(charged, 0);
	assert_int_equal(take(lease[1], 14), 0);
	assert_int_equal(take(lease[1], 1), -ENOMEM);
	for (unsigned int i = 0; i < 2; i++) {
		rbk_lease_close(lease[i]);
		rbk_disconnect(anew[i]);
		rbk_disconnect(rbk[i]);
	}
	broker_wait_vram(watcher, 0);
}

/*
 * A wish that was set by rbk_lease_resize() applies again, whoever is restored first; and only the
 * opener may set another.
 */
TEST(test_restore__resized)
{
	struct rbk *rbk[2] = {broker_connect(&broker, "a"), broker_connect(&broker, "b")}, *anew[2];
	struct rbk_lease *lease[2] = {open_lease(rbk[0], 20, 40), NULL};
	const struct rbk_lease_page *page;
	uint32_t number = rbk_lease_number(lease[0]);
	struct rbk_error error;

	lease[1] = join(rbk[1], number);
	page = rbk_lease_page(lease[1]);
	assert_int_equal(take(lease[0], 6), 0);
	assert_int_equal(take(lease[1], 6), 0);
	assert_int_equal(load(&page->resized_bytes), 0);
	assert_int_equal(rbk_lease_resize(rbk[0], number, 16 * MIB, NULL, &error), 0);
	assert_int_equal(load(&page->resized_bytes), 16 * MIB);
	for (unsigned int i = 0; i < 2; i++) {
		rbk_disconnect(watcher);
		broker_kill(&broker);
		broker_remove(&broker);
		begin_with(two_tenants);
		for (unsigned int j = 0; j < 2; j++)
			anew[j] = broker_connect(&broker, "again");
		/* The one that joined is the first. */
		assert_int_equal(rbk_lease_restore(lease[1], anew[1], 6 * MIB, &error), 0);
		assert_int_equal(load(&page->wish_bytes), (i ? 2 : 16) * MIB);
		assert_int_equal(rbk_lease_resize(anew[1], number, MIB, NULL, &error), -EPERM);
		assert_int_equal(rbk_lease_restore(lease[0], anew[0], 6 * MIB, &error), 0);
		assert_int_equal(load(&page->wish_bytes), (i ? 2 : 16) * MIB);
		assert_int_equal(load(&page->max_bytes), 40 * MIB);
		broker_wait_vram(watcher, (i ? 12 : 16) * MIB);
		assert_int_equal(take(lease[0], i ? 1 : 5), -ENOMEM);
		/* Below what they have, and below the wish with which it was opened. */
		assert_int_equal(rbk_lease_resize(anew[0], number, 2 * MIB, NULL, &error), 0);
		assert_int_equal(rbk_lease_resize(anew[1], number, MIB, NULL, &error), -EPERM);
		rbk_disconnect(rbk[0]);
		rbk_disconnect(rbk[1]);
		rbk[0] = anew[0];
		rbk[1] = anew[1];
	}
	for (unsigned int i = 0; i < 2; i++) {
		rbk_lease_close(lease[i]);
		rbk_disconnect(rbk[i]);
	}
	broker_wait_vram(watcher, 0);
}

/* Objects and credit released while no broker runs are not reported to the next broker. */
TEST(test_restore__dropped)
{
	struct rbk *rbk = broker_connect(&broker, "a"), *anew;
	struct rbk_lease *lease = open_lease(rbk, 1, 40);
	struct rbk_error error;
	uint64_t charged;

	assert_int_equal(take(lease, 18), 0);
	for (uint64_t ino = 1; ino <= 2; ino++) {
		assert_int_equal(
			rbk_lease_object_add(lease, 3, ino, 6 * MIB, 6 * MIB, &charged, &error), 0);
		assert_int_equal(charged, 6 * MIB);
	}
	rbk_disconnect(watcher);
	broker_kill(&broker);
	broker_remove(&broker);
	begin_with(two_tenants);
	assert_int_equal(rbk_lease_object_drop(lease, 3, 1), -ECONNRESET);
	anew = broker_connect(&broker, "again");
	assert_int_equal(rbk_lease_restore(lease, anew, 6 * MIB, &error), 0);
	broker_wait_vram(watcher, 12 * MIB);
	assert_int_equal(rbk_lease_object_drop(lease, 3, 1), -ENOENT);
	assert_int_equal(rbk_lease_object_drop(lease, 3, 2), 0);
	broker_wait_vram(watcher, 6 * MIB);
	assert_int_equal(rbk_lease_give(lease, 6 * MIB, NULL), 0);
	broker_wait_vram(watcher, MIB);
	rbk_lease_close(lease);
	rbk_disconnect(anew);
	rbk_disconnect(rbk);
	broker_wait_vram(watcher, 0);
}

TEST_MAIN(begin, end, harness_limit_seconds(120))
