/* SPDX-License-Identifier: MIT */
/*
 * fork(): every call in a child returns -ECHILD, freeing works there, and the parent is not
 * disturbed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/client-fixture.h"
#include "support/test.h"

struct objects {
	struct fixture fixture;
	struct rbk_ring *ring;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_builder *builder;
	unsigned char *data;
};

static void objects_make(struct objects *objects)
{
	struct fixture *fixture = &objects->fixture;
	unsigned int x, y;

	fixture_begin_connected(fixture, NULL);
	objects->builder = rbk_builder_new("forked");
	x = rbk_builder_input(objects->builder, "x", RBK_DTYPE_F32, 0, NULL);
	y = rbk_builder_output(objects->builder, "y", RBK_DTYPE_F32, 0, NULL);
	rbk_builder_unary(objects->builder, "Relu", x, y);
	assert_int_equal(rbk_ring_new(fixture->rbk, 4, &objects->ring, NULL), 0);
	assert_int_equal(rbk_arena_new(fixture->rbk, 64, &objects->arena, NULL), 0);
	assert_int_equal(rbk_plan_new(fixture->rbk, objects->builder, 1, &objects->plan, NULL), 0);
	objects->data = rbk_arena_alloc(objects->arena, 1);
	*objects->data = 5;
}

static void objects_free(struct objects *objects)
{
	rbk_builder_free(objects->builder);
	rbk_plan_free(objects->plan);
	rbk_arena_free(objects->arena);
	rbk_ring_free(objects->ring);
	rbk_disconnect(objects->fixture.rbk);
}

/* Check a condition in the child, and print it if it is false. */
#define EXPECT(condition)                                                  \
	do {                                                               \
		if (!(condition)) {                                        \
			fprintf(stderr, "%d: %s\n", __LINE__, #condition); \
			failed = 1;                                        \
		}                                                          \
	} while (0)

/* Run all checks of the child. @n_parent_fds: descriptors that its parent had. */
static int child(struct objects *objects, int n_parent_fds)
{
	struct rbk *rbk = objects->fixture.rbk;
	struct rbk_ring *ring = objects->ring, *new_ring;
	const struct rbk_cqe *cqe, *cqes[4];
	struct rbk_arena *new_arena;
	struct rbk_plan *new_plan;
	struct rbk_device device;
	struct rbk_stats stats;
	struct rbk_error error;
	struct rbk *own = NULL;
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = fake_broker_path(objects->fixture.fake),
	};
	int n_fds = count_fds(), failed = 0;
	unsigned int n;

	/* The control socket is already closed: it would keep the parent's session alive. */
	EXPECT(n_fds == n_parent_fds - 1);
	EXPECT(rbk_get_sqe(ring) == NULL);
	EXPECT(rbk_submit(ring) == -ECHILD);
	EXPECT(rbk_submit_and_wait(ring, 1) == -ECHILD);
	EXPECT(rbk_submit_and_wait(ring, 1000) == -ECHILD);
	EXPECT(rbk_peek_cqe(ring, &cqe) == -ECHILD);
	EXPECT(rbk_wait_cqe(ring, &cqe) == -ECHILD);
	EXPECT(rbk_wait_cqe_timeout(ring, &cqe, 1000000000) == -ECHILD);
	EXPECT(rbk_peek_batch_cqe(ring, cqes, 4) == -ECHILD);
	EXPECT(rbk_ring_arm(ring) == -ECHILD);
	EXPECT(rbk_ring_fd(ring) == -ECHILD);
	EXPECT(rbk_fd(rbk) == -ECHILD);
	EXPECT(rbk_cq_at(ring, 0) == NULL);
	EXPECT(rbk_cq_ready(ring) == 0);
	EXPECT(rbk_sq_ready(ring) == 0);
	EXPECT(rbk_sq_space_left(ring) == 0);
	rbk_cq_advance(ring, 1);
	rbk_ring_set_spin_ns(ring, 1);
	EXPECT(rbk_ring_new(rbk, 4, &new_ring, &error) == -ECHILD);
	EXPECT(strstr(error.text, "connect again"));
	EXPECT(rbk_arena_new(rbk, 4, &new_arena, NULL) == -ECHILD);
	EXPECT(rbk_arena_seal(objects->arena, NULL) == -ECHILD);
	EXPECT(rbk_plan_new(rbk, objects->builder, 1, &new_plan, NULL) == -ECHILD);
	EXPECT(rbk_devices(rbk, &device, 1, &n) == -ECHILD);
	EXPECT(rbk_stats(rbk, &stats) == -ECHILD);
	EXPECT(*objects->data == 5);
	*objects->data = 6;

	objects_free(objects);
	/* The bell and the arena are closed. */
	EXPECT(count_fds() == n_fds - 2);
	/* The child can make its own connection. */
	EXPECT(rbk_connect(&options, &own, NULL) == 0);
	EXPECT(own && rbk_stats(own, &stats) == 0);
	rbk_disconnect(own);
	return failed;
}

TEST(test_fork__child_is_told)
{
	struct objects objects;
	const struct rbk_cqe *cqe;
	int status, n_fds;
	pid_t pid;

	objects_make(&objects);
	/* The parent has taken entries and has completions pending; the child gets none of them. */
	rbk_prep_nop(rbk_get_sqe(objects.ring));
	assert_int_equal(rbk_submit_and_wait(objects.ring, 1), 1);
	rbk_prep_nop(rbk_get_sqe(objects.ring));

	n_fds = count_fds();
	pid = fork();
	if (pid == 0)
		_exit(child(&objects, n_fds));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);

	/* The parent continues undisturbed. */
	assert_int_equal(*objects.data, 6);
	assert_int_equal(rbk_submit(objects.ring), 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rbk_wait_cqe_timeout(objects.ring, &cqe, 60000000000u), 0);
		rbk_cqe_seen(objects.ring, cqe);
	}
	assert_int_equal(rbk_arena_seal(objects.arena, NULL), 0);
	assert_int_equal(fake_broker_objects(objects.fixture.fake), 3);
	objects_free(&objects);
	assert_int_equal(fake_broker_objects(objects.fixture.fake), 0);
	objects.fixture.rbk = NULL;
	fixture_end(&objects.fixture);
}

static void *hold_lock(void *data)
{
	struct rbk *rbk = data;

	pthread_mutex_lock(&rbk->lock);
	sleep_ms(50);
	pthread_mutex_unlock(&rbk->lock);
	return NULL;
}

/* Another thread held the connection's lock at fork(): the child must not wait for it. */
TEST(test_fork__while_locked)
{
	struct objects objects;
	pthread_t thread;
	int status, n_fds;
	pid_t pid;

	objects_make(&objects);
	pthread_create(&thread, NULL, hold_lock, objects.fixture.rbk);
	while (!pthread_mutex_trylock(&objects.fixture.rbk->lock))
		pthread_mutex_unlock(&objects.fixture.rbk->lock);
	n_fds = count_fds();
	pid = fork();
	if (pid == 0) {
		alarm(10);
		_exit(child(&objects, n_fds));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	pthread_join(thread, NULL);
	objects_free(&objects);
	objects.fixture.rbk = NULL;
	fixture_end(&objects.fixture);
}
