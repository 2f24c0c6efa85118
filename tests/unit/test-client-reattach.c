/* SPDX-License-Identifier: MIT */
/*
 * Re-attachment: brokers die and come back in every state of the client, and each task completes
 * once. Removals: test-client-removal.c. Connections that are lost: test-client-lost.c.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/ring.h"
#include "support/client-fixture.h"
#include "support/test.h"
#include "unit/reattach-scene.h"

TEST(test_reattach__same_objects)
{
	struct fake_options second = usual;
	struct objects objects;
	struct rbk_stats stats;
	uint64_t ids;
	int fd;

	SCENE(scene);
	second.name = "second";
	objects_make(&scene, &objects);
	fd = rbk_fd(scene.fixture.rbk);
	/* The freed arena lives on as the plan's constants. */
	objects.constants = rbk_arena_free(objects.constants);
	submit_nops(objects.ring, 3, 0);
	expect_nops(objects.ring, 3, 0);
	ids = fake_broker_ids(scene.fixture.fake);

	scene_kill(&scene);
	scene_start(&scene, &second);
	submit_nops(objects.ring, 5, 3);
	expect_nops(objects.ring, 5, 3);
	wait_told(&scene, 1);
	assert_fields(scene.told, (n_arenas, 2), (n_plans, 1), (n_rings, 2), (n_tasks, 0), (r, 0));
	assert_true(scene.told.gap_ns > 0);
	assert_int_equal(rbk_n_reattached(scene.fixture.rbk), 1);
	assert_string_equal(rbk_broker_name(scene.fixture.rbk), "second");
	assert_int_equal(rbk_fd(scene.fixture.rbk), fd);
	assert_int_equal(fake_broker_ids(scene.fixture.fake), ids);
	assert_int_equal(fake_broker_objects(scene.fixture.fake), 5);
	objects_check(&scene, &objects);
	/* The other ring notices by itself, later. */
	submit_nops(objects.other, 4, 0);
	expect_nops(objects.other, 4, 0);
	assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
	objects_free(&objects);
	assert_int_equal(fake_broker_objects(scene.fixture.fake), 0);
}

/* The next broker may not execute fences for the client, and the one after it does. */
TEST(test_reattach__fences)
{
	struct fake_options next = usual;
	struct objects objects;
	struct rbk_ring *ring;

	SCENE(scene);
	objects_make(&scene, &objects);
	ring = objects.ring;
	for (unsigned int i = 1; i < 5; i++) {
		const bool had_barriers = next.has_barriers;

		assert_int_equal(ring->may_be_unfenced, had_barriers);
		assert_false(ring->is_unfenced);
		if (had_barriers) {
			rbk_ring_leave_fences(&ring->sq->unfenced);
			ring->is_unfenced = true;
		}
		next.has_barriers = i < 4;
		scene_kill(&scene);
		scene_start(&scene, &next);
		submit_nops(ring, 1, i);
		expect_nops(ring, 1, i);
		wait_told(&scene, i);
		assert_int_equal(ring->sq->unfenced, 0);
		assert_int_equal(ring->may_be_unfenced, next.has_barriers);
	}
	objects_free(&objects);
}

/* Daemons change their directory after they have connected. */
TEST(test_reattach__relative_path)
{
	struct rbk_stats stats;
	char path[96], cwd[256];
	struct scene scene;
	char *name;

	scene_begin_without(&scene, NULL);
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	strcpy(path, scene.path);
	name = strrchr(scene.path, '/');
	*name++ = '\0';
	assert_int_equal(chdir(scene.path), 0);
	memmove(scene.path, name, strlen(name) + 1);
	scene_connect(&scene, 0, patience_ns, 5000000000);
	assert_int_equal(chdir(cwd), 0);
	strcpy(scene.path, path);
	scene_kill(&scene);
	scene_start(&scene, NULL);
	assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
	scene_end(&scene);
}

static void note_policy(struct rbk *rbk, const struct rbk_reattachment *about, void *data)
{
	(void)rbk;
	(void)about;
	atomic_store((atomic_int *)data, sched_getscheduler(0));
}

static void *ask_as_batch(void *data)
{
	const struct sched_param param = {.sched_priority = 0};
	struct rbk_stats stats;

	assert_int_equal(sched_setscheduler(0, SCHED_BATCH, &param), 0);
	assert_int_equal(rbk_stats(data, &stats), 0);
	return NULL;
}

/* The thread of the library does not inherit the policy of the thread that noticed the death. */
TEST(test_reattach__scheduling_policy)
{
	atomic_int policy = -1;
	struct rbk_options options = {
		.size = sizeof(options),
		.on_reattach = note_policy,
		.on_reattach_data = &policy,
	};
	struct scene scene;
	pthread_t thread;

	scene_begin_without(&scene, NULL);
	options.socket_path = scene.path;
	assert_int_equal(rbk_connect(&options, &scene.fixture.rbk, NULL), 0);
	scene_kill(&scene);
	scene_start(&scene, NULL);
	assert_int_equal(pthread_create(&thread, NULL, ask_as_batch, scene.fixture.rbk), 0);
	pthread_join(thread, NULL);
	while (atomic_load(&policy) < 0)
		sleep_ms(1);
	assert_int_equal(atomic_load(&policy), SCHED_OTHER);
	scene_end(&scene);
}

/* An arena that a broker has fixed keeps its address and bytes, again and again. */
TEST(test_reattach__fixed_arena)
{
	const struct fake_options options = {.features = fixing()};
	struct objects objects;
	struct rbk_stats stats;

	SCOPED(scene, scene, scene_begin, scene_end, &options);
	objects_make(&scene, &objects);
	for (unsigned int i = 1; i <= 3; i++) {
		scene_kill(&scene);
		scene_start(&scene, &options);
		assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
		assert_int_equal(rbk_n_reattached(scene.fixture.rbk), i);
		objects_check(&scene, &objects);
	}
	assert_int_equal(rbk_arena_seal(objects.data, &scene.fixture.error), 0);
	assert_int_equal(*(unsigned char *)rbk_arena_data(objects.data), 7);
	objects_free(&objects);
}

/* ---- Arenas in memory of a device ---- */

static const struct fake_options exporting = {
	.features = RBK_FEAT_REATTACH | RBK_FEAT_FIXED_ARENAS | RBK_FEAT_RESTORE,
	.exports = true,
};

static ino_t inode_of(int fd)
{
	struct stat status;

	assert_int_equal(fstat(fd, &status), 0);
	return status.st_ino;
}

/* The memory stays where it is: each broker gets the same dma-buf, under the same id. */
TEST(test_reattach__exported_arena)
{
	struct objects objects;
	struct rbk_stats stats;
	void *data;
	ino_t ino;

	SCOPED(scene, scene, scene_begin, scene_end, &exporting);
	objects_make(&scene, &objects);
	data = rbk_arena_data(objects.data);
	ino = inode_of(objects.data->fd);
	for (unsigned int i = 1; i <= 3; i++) {
		struct fake_options next = exporting;

		/* Segments are those of memfds. */
		next.segment_bytes = 4096;
		scene_kill(&scene);
		scene_start(&scene, &next);
		assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
		assert_int_equal(rbk_n_reattached(scene.fixture.rbk), i);
		assert_int_equal(fake_broker_requests(scene.fixture.fake, RBK_WIRE_ARENA_ADD), 2);
		assert_int_equal(fake_broker_requests(scene.fixture.fake, RBK_WIRE_ARENA_NEW), 0);
		assert_ptr_equal(rbk_arena_data(objects.data), data);
		assert_int_equal(inode_of(objects.data->fd), ino);
		assert_int_equal(objects.data->segment_bytes, 0);
		objects_check(&scene, &objects);
	}
	assert_int_equal(rbk_arena_seal(objects.data, &scene.fixture.error), 0);
	assert_int_equal(*(unsigned char *)rbk_arena_data(objects.data), 7);
	scene_kill(&scene);
	scene_start(&scene, &exporting);
	assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
	objects_free(&objects);
	assert_int_equal(fake_broker_objects(scene.fixture.fake), 0);
}

/* A broker dies before or after it has made the memory; the program gets that of the next one. */
TEST(test_reattach__exported_arena_being_made)
{
	static const enum fake_fault faults[] = {FAKE_DIE, FAKE_DIE_AFTER};

	for (int i = 0; i < 6; i++) {
		struct fake_options dying = exporting, next = exporting;
		struct rbk_arena *arena;
		struct rbk_stats stats;
		struct scene scene;
		struct heirs heirs = {&scene, &next, 1};

		dying.fault = faults[i % 2];
		dying.fault_type = RBK_WIRE_ARENA_NEW;
		/* The next broker may make none: then it is a memfd. */
		if (i / 2 == 1)
			next.fault = FAKE_REFUSE;
		next.fault_type = RBK_WIRE_ARENA_NEW;
		next.exports = i / 2 < 2;
		scene_begin(&scene, &dying);
		heirs_begin(&heirs);
		assert_int_equal(rbk_arena_new(scene.fixture.rbk, 8192, &arena, NULL), 0);
		/* The library may not have noticed a death after the answer. */
		assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
		pthread_join(heirs.thread, NULL);
		((unsigned char *)rbk_arena_data(arena))[8191] = 1;
		wait_told(&scene, 1);
		assert_int_equal(fake_broker_objects(scene.fixture.fake), 1);
		assert_int_not_equal(rbk_arena_ref(arena, 0), RBK_REF_INVALID);
		rbk_arena_free(arena);
		assert_int_equal(fake_broker_objects(scene.fixture.fake), 0);
		scene_end(&scene);
	}
}

/* ---- Exactly once ---- */

struct killer {
	struct scene *scene;
	atomic_bool ends;
	unsigned int n_deaths;
};

static void *kill_often(void *data)
{
	struct killer *killer = data;

	for (unsigned int i = 0; i < killer->n_deaths; i++) {
		/* Every third broker lives until it has the session; others may die before. */
		while (i % 3 == 0 && rbk_n_reattached(killer->scene->fixture.rbk) < i / 3)
			sleep_ms(1);
		sleep_ms(5 + i % 7);
		/* Every other broker dies with completions that count but were not published. */
		fake_broker_hide(killer->scene->fixture.fake, i % 2);
		sleep_ms(i % 2);
		scene_kill(killer->scene);
		sleep_ms(i % 3 * 4);
		scene_start(killer->scene, NULL);
	}
	atomic_store(&killer->ends, true);
	return NULL;
}

/* The fake broker completes in order, so a task that runs twice or never breaks the sequence. */
TEST(test_reattach__exactly_once)
{
	static const uint64_t spins_ns[] = {UINT64_MAX, 0, 50000};

	for (int c = 0; c < 3; c++) {
		const struct rbk_cqe *cqes[16];
		struct killer killer = {.n_deaths = 20};
		uint64_t n_sent = 0, n_seen = 0;
		struct rbk_ring *ring;
		pthread_t thread;

		struct scene scene;

		scene_begin(&scene, NULL);
		killer.scene = &scene;
		ring = ring_make(&scene.fixture, 16);
		if (spins_ns[c] != UINT64_MAX)
			rbk_ring_set_spin_ns(ring, spins_ns[c]);
		assert_int_equal(pthread_create(&thread, NULL, kill_often, &killer), 0);
		while (!atomic_load(&killer.ends) || n_seen < n_sent) {
			struct rbk_sqe *sqe;
			uint64_t batch = atomic_load(&killer.ends) ? 0 : n_sent % 13 + 1;
			int n;

			while (batch-- > 0 && (sqe = rbk_get_sqe(ring))) {
				rbk_prep_nop(sqe);
				rbk_sqe_set_data64(sqe, n_sent++);
			}
			assert_true(rbk_submit_and_wait(ring, n_sent > n_seen) >= 0);
			n = rbk_peek_batch_cqe(ring, cqes, 16);
			assert_true(n >= 0);
			for (int i = 0; i < n; i++)
				assert_int_equal(cqes[i]->user_data, n_seen++);
			rbk_cq_advance(ring, (unsigned int)n);
		}
		pthread_join(thread, NULL);
		assert_true(rbk_n_reattached(scene.fixture.rbk) >= 6);
		rbk_ring_free(ring);
		scene_end(&scene);
	}
}

/* Pointers to completions stay valid, and completions that count come without running again. */
TEST(test_reattach__unpublished_completions)
{
	const struct rbk_cqe *first;
	struct rbk_ring *ring;

	SCENE(scene);
	ring = ring_make(&scene.fixture, 8);
	submit_nops(ring, 2, 0);
	assert_int_equal(rbk_wait_cqe(ring, &first), 0);
	while (rbk_cq_ready(ring) < 2)
		sleep_ms(1);
	fake_broker_hide(scene.fixture.fake, true);
	submit_nops(ring, 3, 2);
	sleep_ms(20);
	assert_int_equal(rbk_cq_ready(ring), 2);
	scene_kill(&scene);
	scene_start(&scene, NULL);
	/* The next broker runs nothing, but has five completions. */
	fake_broker_pause(scene.fixture.fake, true);
	expect_nops(ring, 1, 0);
	assert_int_equal(first->user_data, 0);
	expect_nops(ring, 4, 1);
	assert_int_equal(rbk_n_reattached(scene.fixture.rbk), 1);
	rbk_ring_free(ring);
}

/* ---- While there is no broker ---- */

TEST(test_reattach__ring_while_away)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	uint64_t start_ns;

	SCENE(scene);
	ring = ring_make(&scene.fixture, 4);
	submit_nops(ring, 1, 0);
	while (rbk_cq_ready(ring) < 1)
		sleep_ms(1);
	scene_kill(&scene);
	/* Completions that were published are there; then there are none. */
	expect_nops(ring, 1, 0);
	start_ns = client_now_ns();
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 30000000), -ETIME);
	assert_true(since_ms(start_ns) >= 29);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(rbk_peek_cqe(ring, &cqe), -EAGAIN);
		assert_int_equal(rbk_submit(ring), 0);
	}
	submit_nops(ring, 4, 1);
	assert_null(rbk_get_sqe(ring));
	assert_int_equal(rbk_ring_arm(ring), 0);
	scene_start(&scene, NULL);
	expect_nops(ring, 4, 1);
	rbk_ring_free(ring);
}

/* A program that only counts notices the death and the next broker, also when it has armed. */
TEST(test_reattach__counts_alone)
{
	for (int c = 0; c < 4; c++) {
		const struct rbk_cqe *cqe;
		struct rbk_ring *ring;
		struct scene scene;

		scene_begin(&scene, NULL);
		ring = ring_make(&scene.fixture, 4);
		submit_nops(ring, 1, 0);
		while (rbk_cq_ready(ring) < 1)
			sleep_ms(1);
		fake_broker_pause(scene.fixture.fake, true);
		submit_nops(ring, 3, 1);
		if (c == 3) {
			assert_int_equal(rbk_peek_cqe(ring, &cqe), 0);
			rbk_cqe_seen(ring, cqe);
			assert_int_equal(rbk_ring_arm(ring), 0);
		}
		scene_kill(&scene);
		scene_start(&scene, NULL);
		switch (c) {
		case 0:
			while (rbk_sq_ready(ring) > 0)
				sleep_ms(1);
			break;
		case 1:
			while (rbk_sq_space_left(ring) < 4)
				sleep_ms(1);
			break;
		default:
			while (rbk_cq_ready(ring) < (c == 2 ? 4 : 3))
				sleep_ms(1);
		}
		while (rbk_cq_ready(ring) < (c == 3 ? 3 : 4))
			sleep_ms(1);
		assert_int_equal(rbk_peek_cqe(ring, &cqe), 0);
		expect_nops(ring, c == 3 ? 3 : 4, c == 3);
		rbk_ring_free(ring);
		scene_end(&scene);
	}
}

static bool has_noticed_death(struct rbk *rbk)
{
	bool has_noticed;

	pthread_mutex_lock(&rbk->lock);
	has_noticed = rbk->reattach.gone_ns > 0;
	pthread_mutex_unlock(&rbk->lock);
	return has_noticed;
}

/* The look that finds the next broker finds its completions, too. */
TEST(test_reattach__peek_finds_both)
{
	for (int i = 0; i < 10; i++) {
		const struct rbk_cqe *cqe;
		struct rbk_ring *ring;
		struct scene scene;

		scene_begin(&scene, NULL);
		ring = ring_make(&scene.fixture, 4);
		fake_broker_pause(scene.fixture.fake, true);
		submit_nops(ring, 3, 0);
		scene_kill(&scene);
		scene_start(&scene, NULL);
		/* In turn, another thread notices the death, and this one. */
		if (i % 2) {
			/* A thread that loses its processor has no time for a look. */
			do
				rbk_wait_cqe_timeout(ring, &cqe, 1000000);
			while (!has_noticed_death(scene.fixture.rbk));
		} else {
			pthread_mutex_lock(&scene.fixture.rbk->lock);
			client_broker_gone(scene.fixture.rbk);
			pthread_mutex_unlock(&scene.fixture.rbk->lock);
		}
		wait_told(&scene, 1);
		sleep_ms(30);
		/* Peeking may look at the old area as long as it has not noticed. */
		while (rbk_peek_cqe(ring, &cqe) == -EAGAIN)
			assert_non_null(ring->cold->area);
		assert_int_equal(rbk_peek_cqe(ring, &cqe), 0);
		expect_nops(ring, 3, 0);
		rbk_ring_free(ring);
		scene_end(&scene);
	}
}

/* A broker that stops, and lives on for a moment, is left; one that removes the ring is not. */
TEST(test_reattach__closed_word)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	unsigned int n;

	SCENE(scene);
	ring = ring_make(&scene.fixture, 4);
	fake_broker_close_rings(scene.fixture.fake, RBK_RING_STOPPED, false);
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 1000000), -ETIME);
	scene_kill(&scene);
	scene_start(&scene, NULL);
	submit_nops(ring, 2, 0);
	expect_nops(ring, 2, 0);
	/* The fake broker that stopped went on listening, so it may count too. */
	n = rbk_n_reattached(scene.fixture.rbk);
	assert_true(n > 0);
	fake_broker_close_rings(scene.fixture.fake, RBK_RING_CLOSED, true);
	assert_int_equal(rbk_wait_cqe(ring, &cqe), -ECONNRESET);
	assert_int_equal(rbk_n_reattached(scene.fixture.rbk), n);
	rbk_ring_free(ring);
}

static int loop_until(struct rbk_ring *ring, int epoll, uint64_t n, uint64_t *n_seen)
{
	const struct rbk_cqe *cqe;
	struct epoll_event event;
	int r, n_turns = 0;

	for (;;) {
		while (!(r = rbk_peek_cqe(ring, &cqe))) {
			assert_int_equal(cqe->user_data, (*n_seen)++);
			rbk_cqe_seen(ring, cqe);
		}
		assert_int_equal(r, -EAGAIN);
		if (*n_seen >= n)
			return n_turns;
		n_turns++;
		r = rbk_ring_arm(ring);
		assert_true(r >= 0);
		if (r == 0)
			assert_int_equal(epoll_wait(epoll, &event, 1, 60000), 1);
	}
}

static void *start_later(void *data)
{
	sleep_ms(100);
	scene_start(data, NULL);
	return NULL;
}

/* An event loop keeps its descriptor, and sleeps while there is no broker. */
TEST(test_reattach__event_loop)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct rbk_ring *ring;
	uint64_t n_seen = 0;
	pthread_t thread;
	int epoll, fd;

	SCENE(scene);
	ring = ring_make(&scene.fixture, 8);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	fd = rbk_ring_fd(ring);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
	for (uint64_t round = 0; round < 5; round++) {
		submit_nops(ring, 3, 6 * round);
		loop_until(ring, epoll, 6 * round + 3, &n_seen);
		/* In turn, the entries are published after and before the death is noticed. */
		if (round % 2)
			fake_broker_pause(scene.fixture.fake, true);
		if (round % 2)
			submit_nops(ring, 3, 6 * round + 3);
		scene_kill(&scene);
		assert_int_equal(pthread_create(&thread, NULL, start_later, &scene), 0);
		if (round % 2 == 0)
			submit_nops(ring, 3, 6 * round + 3);
		assert_true(loop_until(ring, epoll, 6 * round + 6, &n_seen) < 10);
		pthread_join(thread, NULL);
		assert_int_equal(rbk_ring_fd(ring), fd);
	}
	/* The descriptor becomes readable when the connection is lost while it is away. */
	scene_kill(&scene);
	while (epoll_wait(epoll, &event, 1, 0) == 0 || rbk_ring_arm(ring) != 0)
		;
	while (epoll_wait(epoll, &event, 1, 0) == 1)
		assert_int_equal(rbk_ring_arm(ring), 0);
	client_lose(scene.fixture.rbk, -ECONNRESET);
	assert_int_equal(epoll_wait(epoll, &event, 1, 60000), 1);
	assert_int_equal(rbk_ring_arm(ring), -ECONNRESET);
	close(epoll);
	rbk_ring_free(ring);
}

/* A descriptor that is asked for while the ring is away becomes readable, too. */
TEST(test_reattach__late_descriptor)
{
	struct epoll_event event = {.events = EPOLLIN};
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	uint64_t n_seen = 0;
	int epoll;

	SCENE(scene);
	ring = ring_make(&scene.fixture, 8);
	scene_kill(&scene);
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 1000000), -ETIME);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, rbk_ring_fd(ring), &event), 0);
	assert_int_equal(epoll_wait(epoll, &event, 1, 10), 0);
	submit_nops(ring, 2, 0);
	scene_start(&scene, NULL);
	loop_until(ring, epoll, 2, &n_seen);
	close(epoll);
	rbk_ring_free(ring);
}

/* ---- Requests ---- */

struct asker {
	struct scene *scene;
	struct rbk_arena *constants;
	struct rbk_plan *plan;
	struct rbk_error error;
	int r;
};

static void *ask(void *data)
{
	struct asker *asker = data;
	struct rbk_stats stats;

	asker->r = rbk_get_stats(asker->scene->fixture.rbk, &stats, &asker->error);
	return NULL;
}

static void *make_plan(void *data)
{
	struct asker *asker = data;

	asker->plan = plan_make(asker->scene, asker->constants);
	return NULL;
}

/* Requests that are in flight, or are made without a broker, are answered by the next one. */
TEST(test_reattach__requests_wait)
{
	struct fake_options silent = usual;
	struct asker askers[4], maker;
	struct objects objects;
	pthread_t threads[4], thread;

	silent.fault = FAKE_SILENT;
	silent.fault_type = RBK_WIRE_PLAN_ADD;
	silent.fault_at = 1;
	SCOPED(scene, scene, scene_begin, scene_end, &silent);
	objects_make(&scene, &objects);
	maker = (struct asker){.scene = &scene, .constants = objects.constants};
	assert_int_equal(pthread_create(&thread, NULL, make_plan, &maker), 0);
	while (fake_broker_requests(scene.fixture.fake, RBK_WIRE_PLAN_ADD) < 2)
		sleep_ms(1);
	scene_kill(&scene);
	for (int i = 0; i < 4; i++) {
		askers[i] = (struct asker){.scene = &scene};
		assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
	}
	sleep_ms(20);
	scene_start(&scene, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(askers[i].r, 0);
	}
	pthread_join(thread, NULL);
	assert_int_not_equal(rbk_plan_id(maker.plan), objects.plan_id);
	assert_int_equal(fake_broker_objects(scene.fixture.fake), 6);
	rbk_plan_free(maker.plan);
	objects_free(&objects);
	assert_int_equal(fake_broker_objects(scene.fixture.fake), 0);
}

/* However late the broker came, requests to it have the connection's timeout. */
TEST(test_reattach__send_timeout)
{
	struct timeval timeouts[2];
	socklen_t bytes = sizeof(timeouts[0]);
	struct rbk_stats stats;
	struct scene scene;

	scene_begin_without(&scene, NULL);
	scene_connect(&scene, 0, patience_ns, patience_ns / 2);
	for (int i = 0; i < 2; i++) {
		if (i > 0) {
			scene_kill(&scene);
			scene_start(&scene, NULL);
			assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
		}
		assert_int_equal(getsockopt(rbk_fd(scene.fixture.rbk), SOL_SOCKET, SO_SNDTIMEO,
					    &timeouts[i], &bytes),
				 0);
	}
	assert_int_equal(timeouts[1].tv_sec, timeouts[0].tv_sec);
	assert_int_equal(timeouts[1].tv_usec, timeouts[0].tv_usec);
	scene_end(&scene);
}

/* A request waits no longer than for an answer. */
TEST(test_reattach__request_times_out)
{
	struct rbk_error error;
	struct rbk_stats stats;
	struct scene scene;
	uint64_t start_ns;

	scene_begin_without(&scene, NULL);
	scene_connect(&scene, 0, 50000000, patience_ns);
	scene_kill(&scene);
	for (int i = 0; i < 2; i++) {
		start_ns = client_now_ns();
		assert_int_equal(rbk_get_stats(scene.fixture.rbk, &stats, &error), -ETIME);
		assert_string_equal(error.text, "the broker is gone, and no broker came back "
						"within 0.05 s");
		assert_true(since_ms(start_ns) >= 49);
	}
	scene_start(&scene, NULL);
	wait_told(&scene, 1);
	assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
	scene_end(&scene);
}

/* ---- Brokers that die at a request ---- */

/* The object of an answer that came just before the death is made again; nothing is left over. */
TEST(test_reattach__dies_at_request)
{
	static const uint32_t types[] = {RBK_WIRE_ARENA_ADD, RBK_WIRE_ARENA_REMOVE,
					 RBK_WIRE_PLAN_ADD, RBK_WIRE_RING_ADD};
	const struct fake_options next = {.features = fixing()};

	for (unsigned int i = 0; i < 16; i++) {
		struct fake_options options = {
			.features = next.features,
			.fault = i & 1 ? FAKE_DIE : FAKE_DIE_AFTER,
			.fault_type = types[i / 4],
			.fault_at = i >> 1 & 1,
		};
		struct objects objects;
		struct scene scene;
		struct heirs heirs = {&scene, &next, 1};

		/* There are no second such requests. */
		if (options.fault_at && (options.fault_type == RBK_WIRE_ARENA_REMOVE ||
					 options.fault_type == RBK_WIRE_PLAN_ADD))
			continue;
		scene_begin(&scene, &options);
		heirs_begin(&heirs);
		objects_make(&scene, &objects);
		pthread_join(heirs.thread, NULL);
		submit_nops(objects.ring, 3, 0);
		expect_nops(objects.ring, 3, 0);
		wait_told(&scene, 1);
		objects_check(&scene, &objects);
		assert_int_equal(fake_broker_objects(scene.fixture.fake), 5);
		objects_free(&objects);
		assert_int_equal(fake_broker_objects(scene.fixture.fake), 0);
		scene_end(&scene);
	}
}

/* Brokers that die while they restore the session. */
TEST(test_reattach__dies_while_restoring)
{
	static const struct {
		uint32_t type, at;
	} cases[] = {
		{RBK_WIRE_HELLO, 0},        {RBK_WIRE_WANT_ID, 0},      {RBK_WIRE_ARENA_ADD, 0},
		{RBK_WIRE_ARENA_ADD, 1},    {RBK_WIRE_WANT_ID, 2},      {RBK_WIRE_PLAN_ADD, 0},
		{RBK_WIRE_RING_RESTORE, 0}, {RBK_WIRE_RING_RESTORE, 1},
	};
	enum { N = sizeof(cases) / sizeof(cases[0]) };
	struct fake_options options[2 * N + 1];
	const uint64_t features = fixing();
	struct heirs heirs = {.options = options + 1, .n = 2 * N};
	struct objects objects;
	uint64_t ids;

	for (unsigned int i = 0; i < 2 * N; i++)
		options[i + 1] = (struct fake_options){
			.features = features,
			.fault = i % 2 ? FAKE_DIE_AFTER : FAKE_DIE,
			.fault_type = cases[i / 2].type,
			.fault_at = cases[i / 2].at,
		};
	options[0] = options[2 * N] = (struct fake_options){.features = features};
	SCOPED(scene, scene, scene_begin, scene_end, options);
	heirs.scene = &scene;
	objects_make(&scene, &objects);
	ids = fake_broker_ids(scene.fixture.fake);
	submit_nops(objects.ring, 3, 0);
	while (rbk_cq_ready(objects.ring) < 3)
		sleep_ms(1);
	fake_broker_hide(scene.fixture.fake, true);
	submit_nops(objects.ring, 2, 3);
	submit_nops(objects.other, 4, 0);
	sleep_ms(10);
	scene_kill(&scene);
	scene_start(&scene, &options[1]);
	heirs.options++;
	heirs.n--;
	heirs_begin(&heirs);
	expect_nops(objects.ring, 5, 0);
	expect_nops(objects.other, 4, 0);
	pthread_join(heirs.thread, NULL);
	wait_told(&scene, 1);
	assert_fields(scene.told, (n_arenas, 2), (n_plans, 1), (n_rings, 2), (r, 0));
	assert_int_equal(fake_broker_ids(scene.fixture.fake), ids);
	objects_check(&scene, &objects);
	submit_nops(objects.ring, 8, 5);
	expect_nops(objects.ring, 8, 5);
	objects_free(&objects);
	assert_int_equal(fake_broker_objects(scene.fixture.fake), 0);
}

/* A process that was stopped during its last try, which the broker then answered too late. */
TEST(test_reattach__one_more_try)
{
	const struct fake_options silent = {
		.features = RBK_FEAT_REATTACH,
		.fault = FAKE_SILENT,
		.fault_type = RBK_WIRE_HELLO,
	};
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	struct scene scene;

	scene_begin_without(&scene, NULL);
	scene_connect(&scene, 0, patience_ns, 500000000);
	ring = ring_make(&scene.fixture, 8);
	scene_kill(&scene);
	scene_start(&scene, &silent);
	submit_nops(ring, 1, 0);
	assert_int_equal(rbk_wait_cqe(ring, &cqe), 0);
	assert_int_equal(fake_broker_requests(scene.fixture.fake, RBK_WIRE_HELLO), 2);
	rbk_cqe_seen(ring, cqe);
	rbk_ring_free(ring);
	scene_end(&scene);
}

/* ---- Children ---- */

/* A child of a process without a broker frees what it has inherited, and starts nothing. */
TEST(test_reattach__fork_while_away)
{
	const struct rbk_cqe *cqe;
	struct objects objects;
	int status, n_fds;
	pid_t pid;

	SCENE(scene);
	n_fds = count_fds();
	objects_make(&scene, &objects);
	assert_true(rbk_ring_fd(objects.ring) >= 0);
	scene_kill(&scene);
	assert_int_equal(rbk_wait_cqe_timeout(objects.ring, &cqe, 1000000), -ETIME);
	pid = fork();
	if (pid == 0) {
		bool fails;

		alarm(10);
		fails = rbk_wait_cqe(objects.ring, &cqe) != -ECHILD ||
			rbk_ring_fd(objects.ring) != -ECHILD ||
			rbk_fd(scene.fixture.rbk) != -ECHILD;
		objects_free(&objects);
		rbk_disconnect(scene.fixture.rbk);
		/* The connection had two, and the fake broker three. */
		_exit(fails || count_fds() > n_fds - 2 ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	scene_start(&scene, NULL);
	submit_nops(objects.ring, 2, 0);
	expect_nops(objects.ring, 2, 0);
	objects_free(&objects);
}
