/* SPDX-License-Identifier: MIT */
/* Connections that do not re-attach: by wish, for want of a broker, and because one refuses. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "support/client-fixture.h"
#include "support/stopwatch.h"
#include "support/test.h"
#include "unit/reattach-scene.h"

/* Assert that all is lost, and that the sentence contains @why. */
static void expect_lost(struct scene *scene, struct rbk_ring *ring, const char *why)
{
	const struct rbk_cqe *cqe;
	struct rbk_error error;
	struct rbk_stats stats;

	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), -ECONNRESET);
	assert_int_equal(rbk_peek_cqe(ring, &cqe), -ECONNRESET);
	assert_int_equal(rbk_submit(ring), -ECONNRESET);
	assert_int_equal(rbk_ring_arm(ring), -ECONNRESET);
	assert_int_equal(rbk_get_stats(scene->fixture.rbk, &stats, &error), -ECONNRESET);
	if (!strstr(error.text, why))
		fail_msg("\"%s\" does not say \"%s\"", error.text, why);
	assert_int_equal(rbk_n_reattached(scene->fixture.rbk), 0);
}

TEST(test_reattach__no_broker)
{
	struct rbk_ring *ring;
	struct scene scene;
	uint64_t start_ns;

	scene_begin_without(&scene, NULL);
	scene_connect(&scene, 0, patience_ns, 50000000);
	ring = ring_make(&scene.fixture, 4);
	start_ns = client_now_ns();
	scene_kill(&scene);
	expect_lost(&scene, ring,
		    "this session: no broker came back within 0.05 s: cannot connect");
	assert_true(since_ms(start_ns) >= 49);
	wait_told(&scene, 1);
	assert_int_equal(scene.told.r, -ETIME);
	assert_true(scene.told.gap_ns >= 49000000);
	assert_non_null(strstr(scene.text, "no broker came back"));
	rbk_ring_free(ring);
	scene_end(&scene);
	assert_int_equal(scene.n_told, 1);
}

TEST(test_reattach__not_wanted)
{
	static const struct fake_options old = {.features = 0};

	for (int i = 0; i < 2; i++) {
		struct rbk_ring *ring;
		struct scene scene;

		scene_begin_without(&scene, i ? &old : NULL);
		scene_connect(&scene, i ? 0 : RBK_CONNECT_NO_REATTACH, patience_ns, 0);
		assert_false(rbk_features(scene.fixture.rbk) & RBK_FEAT_REATTACH);
		ring = ring_make(&scene.fixture, 4);
		scene_kill(&scene);
		expect_lost(&scene, ring, "gone");
		rbk_ring_free(ring);
		scene_end(&scene);
		assert_int_equal(scene.n_told, 0);
	}
}

/* A broker that cannot take the session over. */
TEST(test_reattach__refused)
{
	static const struct {
		struct fake_options options;
		const char *why;
	} cases[] = {
		{{.features = RBK_FEAT_REATTACH, .lacks = RBK_FEAT_TENANTS, .name = "poor"},
		 "the new broker (poor) does not offer RBK_FEAT_TENANTS"},
		{{.features = 0}, "does not offer RBK_FEAT_REATTACH"},
		{{.features = RBK_FEAT_REATTACH,
		  .fault = FAKE_REFUSE_EVER,
		  .fault_type = RBK_WIRE_PLAN_ADD},
		 "cannot restore plan 4: that is wrong"},
		{{.features = RBK_FEAT_REATTACH,
		  .fault = FAKE_REFUSE_EVER,
		  .fault_type = RBK_WIRE_RING_RESTORE},
		 "that is wrong"},
		{{.features = RBK_FEAT_REATTACH,
		  .fault = FAKE_ENTRIES_3,
		  .fault_type = RBK_WIRE_RING_RESTORE},
		 "ring of 3 entries"},
		{{.features = RBK_FEAT_REATTACH,
		  .fault = FAKE_FDS_WRONG,
		  .fault_type = RBK_WIRE_RING_RESTORE},
		 "the bell is not a socket"},
		{{.features = RBK_FEAT_REATTACH,
		  .fault = FAKE_VERSION,
		  .fault_type = RBK_WIRE_HELLO},
		 "answered with 2.0"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct objects objects;
		struct scene scene;

		scene_begin(&scene, NULL);
		objects_make(&scene, &objects);
		scene_kill(&scene);
		scene_start(&scene, &cases[i].options);
		expect_lost(&scene, objects.ring, cases[i].why);
		wait_told(&scene, 1);
		assert_int_not_equal(scene.told.r, 0);
		assert_non_null(strstr(scene.text, cases[i].why));
		objects_free(&objects);
		scene_end(&scene);
	}
}

/* A broker that lacks something is tried again, as long as one would be looked for. */
TEST(test_reattach__refused_for_now)
{
	static const uint32_t types[] = {RBK_WIRE_ARENA_ADD, RBK_WIRE_PLAN_ADD,
					 RBK_WIRE_RING_RESTORE};

	for (unsigned int i = 0; i < 12; i++) {
		struct fake_options options = {
			.features = RBK_FEAT_REATTACH,
			.fault = i % 2 ? FAKE_REFUSE_BARE : FAKE_REFUSE,
			.fault_type = types[i / 4],
			.fault_always = i & 2,
		};
		struct objects objects;
		struct rbk_stats stats;
		struct scene scene;

		scene_begin_without(&scene, NULL);
		scene_connect(&scene, 0, patience_ns, options.fault_always ? 50000000 : 0);
		objects_make(&scene, &objects);
		scene_kill(&scene);
		scene_start(&scene, &options);
		if (options.fault_always)
			expect_lost(&scene, objects.ring, "no broker took it over within 0.05 s");
		else
			assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
		wait_told(&scene, 1);
		assert_int_equal(scene.told.r, !options.fault_always ? 0
					       : i % 2               ? -EBUSY
								     : -EDQUOT);
		objects_free(&objects);
		scene_end(&scene);
	}
}

/*
 * A broker without RBK_FEAT_RESTORE cannot restore an arena in memory of its device, unless the
 * arena is gone or sealed.
 */
TEST(test_reattach__exported_arena)
{
	const struct fake_options options = {.features = RBK_FEAT_REATTACH, .exports = true};
	struct rbk_arena *arena, *other;
	struct rbk_ring *ring;
	struct rbk_stats stats;

	SCOPED(scene, scene, scene_begin, scene_end, &options);
	ring = ring_make(&scene.fixture, 4);
	assert_int_equal(rbk_arena_new(scene.fixture.rbk, 4096, &arena, NULL), 0);
	rbk_arena_free(arena);
	assert_int_equal(rbk_arena_new(scene.fixture.rbk, 4096, &arena, NULL), 0);
	assert_int_equal(rbk_arena_seal(arena, NULL), 0);
	scene_kill(&scene);
	scene_start(&scene, &options);
	assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
	assert_int_equal(rbk_n_reattached(scene.fixture.rbk), 1);
	assert_int_equal(rbk_arena_new(scene.fixture.rbk, 4096, &other, NULL), 0);
	scene_kill(&scene);
	assert_int_equal(rbk_get_stats(scene.fixture.rbk, &stats, &scene.fixture.error),
			 -ECONNRESET);
	assert_non_null(strstr(scene.fixture.error.text, "memory of the broker's device"));
	rbk_arena_free(arena);
	rbk_arena_free(other);
	rbk_ring_free(ring);
	assert_int_equal(scene.n_told, 1);
}

static atomic_int ppoll_error; /* errno of the next call; 0: it does not fail */

int __real_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		 const sigset_t *mask);

int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	const int error = atomic_exchange(&ppoll_error, 0);

	if (error == 0)
		return __real_ppoll(fds, n, timeout, mask);
	errno = error;
	return -1;
}

/* A failure after which the connection was restored is not the reason of a later loss. */
TEST(test_reattach__after_own_failure)
{
	const struct fake_options options = {.features = RBK_FEAT_REATTACH, .exports = true};
	struct rbk_arena *arena;
	struct rbk_stats stats;

	SCOPED(scene, scene, scene_begin, scene_end, &options);
	atomic_store(&ppoll_error, ENOMEM);
	assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
	assert_int_equal(rbk_n_reattached(scene.fixture.rbk), 1);
	assert_int_equal(rbk_arena_new(scene.fixture.rbk, 4096, &arena, NULL), 0);
	scene_kill(&scene);
	assert_int_equal(rbk_get_stats(scene.fixture.rbk, &stats, &scene.fixture.error),
			 -ECONNRESET);
	assert_non_null(strstr(scene.fixture.error.text, "memory of the broker's device"));
	rbk_arena_free(arena);
}

/* A failure that ends the connection is its reason. */
TEST(test_reattach__own_failure)
{
	struct rbk_stats stats;
	struct scene scene;

	scene_begin_without(&scene, NULL);
	scene_connect(&scene, RBK_CONNECT_NO_REATTACH, patience_ns, 0);
	atomic_store(&ppoll_error, ENOMEM);
	assert_int_equal(rbk_get_stats(scene.fixture.rbk, &stats, &scene.fixture.error),
			 -ECONNRESET);
	assert_non_null(strstr(scene.fixture.error.text,
			       "this process cannot receive an answer: Cannot allocate memory"));
	scene_end(&scene);
}

/* Repetitions of a request pause longer each time, also without a timeout, and end with it. */
TEST(test_repeat__pauses)
{
	static const uint64_t timeouts_ns[] = {60000000000u, UINT64_MAX};
	struct rbk_error error;
	uint64_t begin_ns, pause_ns;

	for (unsigned int i = 0; i < 2; i++) {
		begin_ns = client_now_ns();
		assert_int_equal(client_may_repeat(begin_ns - 800000000u, timeouts_ns[i], &error),
				 0);
		pause_ns = client_now_ns() - begin_ns;
		assert_true(pause_ns >= 50000000u);
	}
	assert_int_equal(client_may_repeat(client_now_ns() - 2000000000u, 1999999999u, &error),
			 -ETIME);
	assert_non_null(strstr(error.text, "again and again for 2 s"));
}

/* rbk_disconnect() ends the search for a broker, and a restoration that gets no answer. */
TEST(test_reattach__disconnect_meanwhile)
{
	struct fake_options silent = usual;

	silent.fault = FAKE_SILENT;
	for (int i = 0; i < 3; i++) {
		const struct rbk_cqe *cqe;
		struct objects objects;
		struct stopwatch stopwatch;
		struct scene scene;

		scene_begin(&scene, NULL);
		objects_make(&scene, &objects);
		scene_kill(&scene);
		silent.fault_type = i == 1 ? RBK_WIRE_HELLO : RBK_WIRE_RING_RESTORE;
		if (i > 0)
			scene_start(&scene, &silent);
		assert_int_equal(rbk_wait_cqe_timeout(objects.ring, &cqe, 30000000), -ETIME);
		stopwatch_start(&stopwatch);
		scene.fixture.rbk = rbk_disconnect(scene.fixture.rbk);
		assert_true(stopwatch_stop_ms(&stopwatch) < 1000);
		assert_int_equal(rbk_wait_cqe(objects.ring, &cqe), -ECONNRESET);
		assert_int_equal(rbk_arena_seal(objects.data, NULL), -ECONNRESET);
		objects_free(&objects);
		scene_end(&scene);
		assert_int_equal(scene.n_told, 0);
	}
}

/* ---- Options ---- */

TEST(test_options__sizes)
{
	struct {
		struct rbk_options options;
		char more[8];
	} options;
	struct rbk *rbk = NULL;
	struct scene scene;

	scene_begin_without(&scene, NULL);
	memset(&options, 0xff, sizeof(options));
	options.options.socket_path = scene.path;
	options.options.name = NULL;
	options.options.timeout_ns = 0;
	/* A program that was compiled with the first version of the struct. */
	options.options.size = offsetof(struct rbk_options, flags);
	assert_int_equal(rbk_connect(&options.options, &rbk, NULL), 0);
	rbk_disconnect(rbk);
	options.options.size--;
	assert_int_equal(rbk_connect(&options.options, &rbk, NULL), -EINVAL);
	/* A program that was compiled with a later version. */
	options.options.size = sizeof(options);
	assert_int_equal(rbk_connect(&options.options, &rbk, &scene.fixture.error), -EINVAL);
	assert_string_equal(scene.fixture.error.text, "unknown flags 0xffffffff of a connection");
	options.options.flags = RBK_CONNECT_NO_REATTACH;
	assert_int_equal(rbk_connect(&options.options, &rbk, NULL), 0);
	rbk_disconnect(rbk);
	scene_end(&scene);
}
