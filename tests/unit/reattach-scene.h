#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Beginning and end of tests of re-attachment
 *
 * A scene has one connection and, one after another, several fake brokers at the same path. At its
 * end the process has no more open descriptors than at its beginning.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/client-fixture.h"
#include "support/test.h"

/* A connection, its present broker, and what on_reattach was told. */
struct scene {
	struct fixture fixture;
	struct fake_broker *first; /* owns the folder of the socket */
	char path[96];
	atomic_uint n_told;
	struct rbk_reattachment told; /* of the last call */
	char text[RBK_ERROR_BYTES];
};

static inline void told(struct rbk *rbk, const struct rbk_reattachment *about, void *data)
{
	struct scene *scene = data;

	scene->told = *about;
	snprintf(scene->text, sizeof(scene->text), "%s", about->text ? about->text : "");
	scene->told.text = NULL;
	atomic_fetch_add(&scene->n_told, 1);
}

/* Return the features of a broker that fixes arenas, if the kernel lets the client move them. */
static inline uint64_t fixing(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY), r;

	r = fd < 0 ? -1 : ioctl(fd, UFFDIO_API, &api);
	client_close(&fd);
	return RBK_FEAT_REATTACH | (r ? 0 : RBK_FEAT_FIXED_ARENAS);
}

static const struct fake_options usual = {.features = RBK_FEAT_REATTACH};

/* End the present broker. */
static inline void scene_kill(struct scene *scene)
{
	fake_broker_kill(scene->fixture.fake);
	if (scene->fixture.fake != scene->first)
		fake_broker_free(scene->fixture.fake);
	scene->fixture.fake = NULL;
}

/* Start the next broker. */
static inline void scene_start(struct scene *scene, const struct fake_options *options)
{
	struct fake_options own = options ? *options : usual;

	if (scene->path[0])
		own.path = scene->path;
	scene->fixture.fake = fake_broker_new(&own);
	if (scene->path[0])
		return;
	scene->first = scene->fixture.fake;
	snprintf(scene->path, sizeof(scene->path), "%s", fake_broker_path(scene->first));
}

static inline void scene_connect(struct scene *scene, unsigned int flags, uint64_t timeout_ns,
				 uint64_t reattach_ns)
{
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = scene->path,
		.name = "test",
		.timeout_ns = timeout_ns,
		.flags = flags,
		.reattach_ns = reattach_ns,
		.on_reattach = told,
		.on_reattach_data = scene,
	};

	assert_int_equal(rbk_connect(&options, &scene->fixture.rbk, &scene->fixture.error), 0);
}

static inline void scene_begin_without(struct scene *scene, const struct fake_options *options)
{
	*scene = (struct scene){.fixture.n_fds = count_fds()};
	scene_start(scene, options);
}

static inline void scene_begin(struct scene *scene, const struct fake_options *options)
{
	scene_begin_without(scene, options);
	scene_connect(scene, 0, patience_ns, patience_ns);
}

static inline void scene_end(struct scene *scene)
{
	rbk_disconnect(scene->fixture.rbk);
	if (scene->fixture.fake && scene->fixture.fake != scene->first)
		fake_broker_free(scene->fixture.fake);
	fake_broker_free(scene->first);
	assert_int_equal(count_fds(), scene->fixture.n_fds);
}

#define SCENE(name) SCOPED(scene, name, scene_begin, scene_end, NULL)

static inline void wait_told(struct scene *scene, unsigned int n)
{
	while (atomic_load(&scene->n_told) < n)
		sleep_ms(1);
}

/* A thread that starts the next broker whenever one has died by itself. */
struct heirs {
	struct scene *scene;
	const struct fake_options *options;
	unsigned int n;
	pthread_t thread;
};

static inline void *start_heirs(void *data)
{
	struct heirs *heirs = data;

	for (unsigned int i = 0; i < heirs->n; i++) {
		while (access(heirs->scene->path, F_OK) == 0)
			sleep_ms(1);
		scene_kill(heirs->scene);
		scene_start(heirs->scene, &heirs->options[i]);
	}
	return NULL;
}

static inline void heirs_begin(struct heirs *heirs)
{
	assert_int_equal(pthread_create(&heirs->thread, NULL, start_heirs, heirs), 0);
}

static inline struct rbk_plan *plan_make(struct scene *scene, struct rbk_arena *constants)
{
	struct rbk_builder *builder = rbk_builder_new("restored");
	const uint32_t four = 4;
	unsigned int x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 1, &four);
	unsigned int c = rbk_builder_constant(builder, "c", RBK_DTYPE_F32, 1, &four, constants, 0);
	unsigned int y = rbk_builder_output(builder, "y", RBK_DTYPE_F32, 1, &four);
	struct rbk_plan *plan = NULL;

	rbk_builder_binary(builder, "Add", x, c, y);
	assert_int_equal(rbk_plan_new(scene->fixture.rbk, builder, 1, &plan, &scene->fixture.error),
			 0);
	rbk_builder_free(builder);
	return plan;
}

/* One object of each kind, and a second arena and ring. */
struct objects {
	struct rbk_arena *data, *constants;
	struct rbk_plan *plan;
	struct rbk_ring *ring, *other;
	uint64_t ref;
	uint32_t plan_id;
};

static inline void objects_make(struct scene *scene, struct objects *objects)
{
	struct rbk *rbk = scene->fixture.rbk;

	assert_int_equal(rbk_arena_new(rbk, 8192, &objects->data, NULL), 0);
	assert_int_equal(rbk_arena_new(rbk, 4096, &objects->constants, NULL), 0);
	assert_int_equal(rbk_arena_seal(objects->constants, NULL), 0);
	objects->plan = plan_make(scene, objects->constants);
	objects->ring = ring_make(&scene->fixture, 8);
	objects->other = ring_make(&scene->fixture, 4);
	objects->ref = rbk_arena_ref(objects->data, 64);
	objects->plan_id = rbk_plan_id(objects->plan);
	memset(rbk_arena_data(objects->data), 7, 8192);
}

static inline void objects_check(struct scene *scene, struct objects *objects)
{
	struct rbk_sqe sqe;
	const uint64_t refs[] = {objects->ref, objects->ref + 64};
	const unsigned char *bytes = rbk_arena_data(objects->data);

	assert_int_equal(rbk_arena_ref(objects->data, 64), objects->ref);
	assert_int_equal(rbk_plan_id(objects->plan), objects->plan_id);
	rbk_prep_run(&sqe, objects->plan_id, 1, refs, 2);
	assert_int_equal(rbk_sqe_check(scene->fixture.rbk, &sqe, NULL), 0);
	for (unsigned int i = 0; i < 8192; i++)
		assert_int_equal(bytes[i], 7);
}

static inline void objects_free(struct objects *objects)
{
	rbk_arena_free(objects->constants);
	rbk_arena_free(objects->data);
	rbk_plan_free(objects->plan);
	rbk_ring_free(objects->ring);
	rbk_ring_free(objects->other);
}
