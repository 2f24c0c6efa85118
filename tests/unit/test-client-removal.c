/* SPDX-License-Identifier: MIT */
/*
 * Removals whose broker dies: a broker answers once no task uses the object, so the next broker
 * must have the object to finish its tasks, and is then asked to remove it.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "libclient/private.h"
#include "support/client-fixture.h"
#include "support/test.h"
#include "unit/reattach-scene.h"

enum act { SEAL, FREE_ARENA, FREE_PLAN, N_ACTS };

/* A thread that removes one object of objects_make(). */
struct remover {
	struct objects *objects;
	enum act act;
	atomic_bool ends;
	int r;
	struct rbk_error error;
	pthread_t thread;
};

/* The request, and its number: objects_make() seals an arena, too. */
static uint32_t type_of(enum act act)
{
	return act == FREE_PLAN ? RBK_WIRE_PLAN_REMOVE : RBK_WIRE_ARENA_REMOVE;
}

static uint32_t number_of(enum act act)
{
	return act == FREE_PLAN ? 0 : 1;
}

static void *remove_one(void *data)
{
	struct remover *remover = data;
	struct objects *objects = remover->objects;

	if (remover->act == SEAL)
		remover->r = rbk_arena_seal(objects->data, &remover->error);
	else if (remover->act == FREE_ARENA)
		objects->data = rbk_arena_free(objects->data);
	else
		objects->plan = rbk_plan_free(objects->plan);
	atomic_store(&remover->ends, true);
	return NULL;
}

static void remover_begin(struct remover *remover, struct objects *objects, enum act act)
{
	*remover = (struct remover){.objects = objects, .act = act};
	assert_int_equal(pthread_create(&remover->thread, NULL, remove_one, remover), 0);
}

/* Check what is left of the objects after the thread's end. */
static void remover_check(struct remover *remover, struct scene *scene)
{
	struct objects *objects = remover->objects;

	assert_int_equal(remover->r, 0);
	assert_int_equal(fake_broker_objects(scene->fixture.fake), remover->act == SEAL ? 5 : 4);
	if (remover->act == SEAL) {
		const unsigned char *bytes = rbk_arena_data(objects->data);

		assert_int_not_equal(rbk_arena_ref(objects->data, 64), RBK_REF_INVALID);
		for (unsigned int i = 0; i < 8192; i++)
			assert_int_equal(bytes[i], 7);
	}
	objects_free(objects);
	assert_int_equal(fake_broker_objects(scene->fixture.fake), 0);
}

/* Leave an entry unfinished, so that removals wait for the next broker. */
static void submit_unfinished(struct scene *scene, struct objects *objects)
{
	fake_broker_pause(scene->fixture.fake, true);
	submit_nops(objects->ring, 1, 0);
}

/* The broker waits for a task when it dies. The arena is a memfd, or memory of a device. */
TEST(test_removal__broker_dies_before_answer)
{
	for (enum act i = 0; i < 2 * N_ACTS; i++) {
		const enum act act = i / 2;
		struct fake_options options = {
			.features = fixing() | RBK_FEAT_RESTORE,
			.fault = FAKE_SILENT,
			.fault_type = type_of(act),
			.fault_at = number_of(act),
			.exports = i % 2,
		};
		const struct fake_options next = {
			.features = options.features,
			.exports = options.exports,
		};
		struct remover remover;
		struct objects objects;
		struct scene scene;

		scene_begin(&scene, &options);
		objects_make(&scene, &objects);
		submit_unfinished(&scene, &objects);
		remover_begin(&remover, &objects, act);
		while (fake_broker_requests(scene.fixture.fake, type_of(act)) <= number_of(act))
			sleep_ms(1);
		scene_kill(&scene);
		sleep_ms(10);
		assert_false(atomic_load(&remover.ends));
		scene_start(&scene, &next);
		wait_told(&scene, 1);
		assert_fields(scene.told, (n_arenas, 2), (n_plans, 1), (n_rings, 2), (r, 0));
		pthread_join(remover.thread, NULL);
		assert_int_equal(fake_broker_requests(scene.fixture.fake, type_of(act)), 1);
		submit_nops(objects.ring, 2, 1);
		expect_nops(objects.ring, 3, 0);
		remover_check(&remover, &scene);
		scene_end(&scene);
	}
}

/* Several brokers die at the removal, before or just after they answer. */
TEST(test_removal__brokers_die)
{
	for (unsigned int i = 0; i < 4 * N_ACTS; i++) {
		const enum act act = i / 4;
		const uint64_t features = fixing();
		struct fake_options options[] = {
			{.features = features,
			 .fault = i & 1 ? FAKE_DIE : FAKE_DIE_AFTER,
			 .fault_type = type_of(act),
			 .fault_at = number_of(act)},
			{.features = features,
			 .fault = i & 2 ? FAKE_DIE : FAKE_DIE_AFTER,
			 .fault_type = i & 1 ? type_of(act) : 0},
			{.features = features},
		};
		struct remover remover;
		struct objects objects;
		struct rbk_stats stats;
		struct scene scene;
		struct heirs heirs = {&scene, options + 1, 1};

		scene_begin(&scene, options);
		heirs_begin(&heirs);
		objects_make(&scene, &objects);
		submit_unfinished(&scene, &objects);
		remover_begin(&remover, &objects, act);
		pthread_join(heirs.thread, NULL);
		/* An answer that comes in time ends the removal, so the second broker lives. */
		if (i & 1) {
			heirs = (struct heirs){&scene, options + 2, 1};
			heirs_begin(&heirs);
			pthread_join(heirs.thread, NULL);
		}
		assert_int_equal(rbk_stats(scene.fixture.rbk, &stats), 0);
		pthread_join(remover.thread, NULL);
		remover_check(&remover, &scene);
		scene_end(&scene);
	}
}

/* A removal waits no longer than for an answer; an arena that is not sealed then stays as it was.
 */
TEST(test_removal__times_out)
{
	const struct fake_options options = {.features = fixing()};
	struct objects objects;
	struct rbk_error error;
	struct scene scene;
	uint64_t start_ns;

	scene_begin_without(&scene, &options);
	scene_connect(&scene, 0, 50000000, patience_ns);
	objects_make(&scene, &objects);
	submit_unfinished(&scene, &objects);
	scene_kill(&scene);
	for (enum act act = 0; act < N_ACTS; act++) {
		struct rbk_arena *arena = objects.constants;

		start_ns = client_now_ns();
		if (act == SEAL)
			assert_int_equal(rbk_arena_seal(objects.data, &error), -ETIME);
		if (act == FREE_PLAN)
			objects.plan = rbk_plan_free(objects.plan);
		if (act == FREE_ARENA)
			assert_null(rbk_arena_free(arena));
		/* The plan still needs the constants. */
		if (act == FREE_ARENA)
			objects.constants = NULL;
		else
			assert_true(since_ms(start_ns) >= 49);
	}
	assert_int_equal(rbk_arena_ref(objects.data, 64), objects.ref);
	memset(rbk_arena_data(objects.data), 8, 8192);
	scene_start(&scene, &options);
	wait_told(&scene, 1);
	assert_fields(scene.told, (n_arenas, 1), (n_plans, 0), (n_rings, 2), (r, 0));
	assert_int_equal(rbk_arena_seal(objects.data, &error), 0);
	objects_free(&objects);
	assert_int_equal(fake_broker_objects(scene.fixture.fake), 0);
	scene_end(&scene);
}

/* ---- While there is no broker ---- */

TEST(test_removal__while_away)
{
	for (enum act act = 0; act < N_ACTS; act++) {
		const struct fake_options options = {.features = fixing()};
		const struct rbk_cqe *cqe;
		struct remover remover;
		struct objects objects;
		struct scene scene;

		scene_begin(&scene, &options);
		objects_make(&scene, &objects);
		submit_unfinished(&scene, &objects);
		scene_kill(&scene);
		assert_int_equal(rbk_wait_cqe_timeout(objects.ring, &cqe, 1000000), -ETIME);
		remover_begin(&remover, &objects, act);
		sleep_ms(20);
		assert_false(atomic_load(&remover.ends));
		scene_start(&scene, &options);
		pthread_join(remover.thread, NULL);
		remover_check(&remover, &scene);
		scene_end(&scene);
	}
}

/* Without an unfinished entry nothing needs the objects: a program that ends waits for no broker.
 */
TEST(test_removal__while_away_and_idle)
{
	const struct rbk_cqe *cqe;
	struct objects objects;
	uint64_t start_ns;

	SCENE(scene);
	objects_make(&scene, &objects);
	submit_nops(objects.ring, 2, 0);
	expect_nops(objects.ring, 2, 0);
	scene_kill(&scene);
	assert_int_equal(rbk_wait_cqe_timeout(objects.ring, &cqe, 1000000), -ETIME);
	start_ns = client_now_ns();
	objects.plan = rbk_plan_free(objects.plan);
	objects.data = rbk_arena_free(objects.data);
	assert_true(since_ms(start_ns) < 10000);
	scene_start(&scene, NULL);
	submit_nops(objects.ring, 2, 0);
	expect_nops(objects.ring, 2, 0);
	wait_told(&scene, 1);
	assert_fields(scene.told, (n_arenas, 1), (n_plans, 0), (n_rings, 2), (r, 0));
	objects_free(&objects);
	assert_int_equal(fake_broker_objects(scene.fixture.fake), 0);
}

/* A broker that ends in order closes its sockets before it unmaps arenas. */
TEST(test_removal__seal_while_the_last_broker_still_maps)
{
	const struct rbk_cqe *cqe;
	struct remover remover;
	struct objects objects;
	unsigned char *mapping;

	SCENE(scene);
	objects_make(&scene, &objects);
	scene_kill(&scene);
	assert_int_equal(rbk_wait_cqe_timeout(objects.ring, &cqe, 1000000), -ETIME);
	mapping = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, objects.data->fd, 0);
	assert_ptr_not_equal(mapping, MAP_FAILED);
	remover_begin(&remover, &objects, SEAL);
	sleep_ms(10);
	scene_start(&scene, NULL);
	pthread_join(remover.thread, NULL);
	mapping[0] = 6;
	remover_check(&remover, &scene);
	munmap(mapping, 4096);
}

/* A ring's completions are unwanted, so freeing one waits for no broker. */
TEST(test_removal__ring_while_away)
{
	const struct rbk_cqe *cqe;
	struct objects objects;

	SCENE(scene);
	objects_make(&scene, &objects);
	scene_kill(&scene);
	assert_int_equal(rbk_wait_cqe_timeout(objects.ring, &cqe, 1000000), -ETIME);
	objects.other = rbk_ring_free(objects.other);
	scene_start(&scene, NULL);
	submit_nops(objects.ring, 2, 0);
	expect_nops(objects.ring, 2, 0);
	wait_told(&scene, 1);
	assert_fields(scene.told, (n_arenas, 2), (n_plans, 1), (n_rings, 1), (r, 0));
	assert_int_equal(fake_broker_objects(scene.fixture.fake), 4);
	objects_free(&objects);
	assert_int_equal(fake_broker_objects(scene.fixture.fake), 0);
}
