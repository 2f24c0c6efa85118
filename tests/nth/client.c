/* SPDX-License-Identifier: MIT */
/*
 * A client for tests of failing calls
 *
 *   nth-client SOCKET [lasting|surviving]
 *   environment: NTH_SECONDS how long requests may take (60); NTH_LEASE use a lease
 *
 * Uses each kind of object of libringbroker once, reports each error with its sentence, goes on
 * with what is left, and frees everything. With "lasting" the connection may re-attach; with
 * "surviving" the client also prints "ready" before its last tasks, and waits for a line on
 * standard input. A task that was submitted must complete exactly once, with the right result,
 * unless a function or the completion has returned an error.
 *
 * Exit status: 0 all calls succeeded; 1 at least one call returned an error; 2 a call broke its
 * promise, which standard error says after "broken:".
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringbroker.h>
#include <ringbroker/lease.h>
#include <ringbroker/stats.h>

#include "nth/nth.h"

enum { N_ROWS = 128, N_COLUMNS = 16, N_TASKS = 48, TENSOR_BYTES = N_ROWS * N_COLUMNS * 4 };

/* of tasks */
static const uint64_t patience_ns = 60000000000;
/* of requests and re-attachments */
static uint64_t request_ns = 60000000000;

static unsigned int n_errors, n_broken;

#pragma weak nth_live
#pragma weak nth_pause

static void broken(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void broken(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fprintf(stderr, "broken: ");
	vfprintf(stderr, format, list);
	fprintf(stderr, "\n");
	va_end(list);
	n_broken++;
}

/* Report the result @r of @what. @error is NULL if the function gives no sentence. */
static int result(const char *what, int r, struct rbk_error *error)
{
	if (r >= 0)
		return r;
	n_errors++;
	if (error && !error->text[0])
		broken("%s returned %s without a sentence", what, strerrorname_np(-r));
	fprintf(stderr, "client: %s: %s%s%s\n", what, strerrorname_np(-r), error ? ": " : "",
		error ? error->text : "");
	if (error)
		error->text[0] = '\0';
	return r;
}

struct scene {
	struct rbk *rbk;
	struct rbk_arena *arena, *constants;
	struct rbk_plan *add, *product;
	struct rbk_ring *ring;
	struct rbk_lease *lease;
	bool is_surviving;
	bool is_done[2 * N_TASKS + 1];
};

static int connect_broker(struct scene *scene, const char *path, bool is_lasting)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = path,
		.name = "nth",
		.timeout_ns = request_ns,
		.reattach_ns = request_ns,
		.flags = is_lasting ? 0 : RBK_CONNECT_NO_REATTACH,
	};
	struct rbk_error error = {""};

	return result("rbk_connect", rbk_connect(&options, &scene->rbk, &error), &error);
}

static void ask(struct scene *scene)
{
	struct rbk_stats_view view;
	struct rbk_device devices[RBK_MAX_DEVICES];
	struct rbk_tenant tenant;
	struct rbk_stats stats;
	struct rbk_error error = {""};
	unsigned int n;

	result("rbk_get_devices", rbk_get_devices(scene->rbk, devices, RBK_MAX_DEVICES, &n, &error),
	       &error);
	result("rbk_get_stats", rbk_get_stats(scene->rbk, &stats, &error), &error);
	result("rbk_get_tenant", rbk_get_tenant(scene->rbk, &tenant, &error), &error);
	if (result("rbk_stats_map", rbk_stats_map(scene->rbk, RBK_STATS_OWN, 0, &view, &error),
		   &error) == 0)
		rbk_stats_unmap(&view);
}

static void make_arenas(struct scene *scene)
{
	struct rbk_error error = {""};

	if (result("rbk_arena_new",
		   rbk_arena_new(scene->rbk, 4 * TENSOR_BYTES, &scene->arena, &error), &error))
		return;
	for (unsigned int i = 0; i < 2 * N_ROWS * N_COLUMNS; i++)
		((float *)rbk_arena_data(scene->arena))[i] = (float)(i % 64);
	if (result("rbk_arena_new", rbk_arena_new(scene->rbk, 4096, &scene->constants, &error),
		   &error))
		return;
	for (unsigned int i = 0; i < N_COLUMNS; i++)
		((float *)rbk_arena_data(scene->constants))[i * N_COLUMNS + i] = 2;
	if (result("rbk_arena_seal", rbk_arena_seal(scene->constants, &error), &error))
		scene->constants = rbk_arena_free(scene->constants);
}

static void make_add(struct scene *scene)
{
	const uint32_t dims[] = {RBK_DIM_COUNT, N_COLUMNS};
	struct rbk_builder *builder = rbk_builder_new("add");
	struct rbk_error error = {""};
	unsigned int a, b, c;

	a = rbk_builder_input(builder, "a", RBK_DTYPE_F32, 2, dims);
	b = rbk_builder_input(builder, "b", RBK_DTYPE_F32, 2, dims);
	c = rbk_builder_output(builder, "c", RBK_DTYPE_F32, 2, dims);
	rbk_builder_binary(builder, "Add", a, b, c);
	result("rbk_plan_new", rbk_plan_new(scene->rbk, builder, N_ROWS, &scene->add, &error),
	       &error);
	rbk_builder_free(builder);
}

/* y = Relu(x w) with constants, and operators enough for the builder's lists to grow. */
static void make_product(struct scene *scene)
{
	const uint32_t dims[] = {RBK_DIM_COUNT, N_COLUMNS}, square[] = {N_COLUMNS, N_COLUMNS};
	struct rbk_builder *builder;
	struct rbk_error error = {""};
	unsigned int x, w, y;
	char name[16];

	if (!scene->constants)
		return;
	builder = rbk_builder_new("product");
	x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 2, dims);
	w = rbk_builder_constant(builder, "w", RBK_DTYPE_F32, 2, square, scene->constants, 0);
	for (unsigned int i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		y = rbk_builder_scratch(builder, name, RBK_DTYPE_F32, 2, dims);
		if (i == 0)
			rbk_builder_binary(builder, "MatMul", x, w, y);
		else
			rbk_builder_unary(builder, "Relu", x, y);
		x = y;
	}
	y = rbk_builder_output(builder, "y", RBK_DTYPE_F32, 2, dims);
	rbk_builder_unary(builder, "Relu", x, y);
	result("rbk_plan_new", rbk_plan_new(scene->rbk, builder, N_ROWS, &scene->product, &error),
	       &error);
	rbk_builder_free(builder);
}

/* Check the result of @task, which has completed. */
static void check(const struct scene *scene, const struct rbk_plan *plan, unsigned int rows)
{
	const float *a = rbk_arena_data(scene->arena), *b = a + N_ROWS * N_COLUMNS;
	const float *c = b + N_ROWS * N_COLUMNS;

	for (unsigned int i = 0; i < rows * N_COLUMNS; i++) {
		const float expected = plan == scene->add ? a[i] + b[i] : 2 * a[i];

		if (c[i] == expected)
			continue;
		broken("element %u is %g, not %g", i, (double)c[i], (double)expected);
		return;
	}
}

/* Take a completion. Return: its task, or -1 after an error. */
static int take(struct scene *scene, bool *ret_failed)
{
	const struct rbk_cqe *cqe;
	uint64_t task;
	int r;

	do
		r = rbk_wait_cqe_timeout(scene->ring, &cqe, patience_ns);
	while (r == -EINTR);
	if (r == -ETIME)
		broken("a task does not complete");
	if (result("rbk_wait_cqe_timeout", r, NULL))
		return -1;
	task = rbk_cqe_get_data64(cqe);
	if (task > 2 * N_TASKS || scene->is_done[task]) {
		broken("task %llu completes twice, or was never submitted",
		       (unsigned long long)task);
		rbk_cqe_seen(scene->ring, cqe);
		return -1;
	}
	scene->is_done[task] = true;
	*ret_failed = cqe->res < 0;
	result("task", cqe->res, NULL);
	rbk_cqe_seen(scene->ring, cqe);
	return (int)task;
}

static bool run(struct scene *scene, const struct rbk_plan *plan, unsigned int first)
{
	const uint64_t a = rbk_arena_ref(scene->arena, 0);
	const uint64_t b = rbk_arena_ref(scene->arena, TENSOR_BYTES);
	const uint64_t c = rbk_arena_ref(scene->arena, 2 * TENSOR_BYTES);
	bool is_failed;
	unsigned int n;

	for (unsigned int i = 0; i < N_TASKS; i += n) {
		const unsigned int rows = i == 0 ? 1 : i % 5 == 0 ? N_ROWS : 16;

		for (n = 0; n < 4 && i + n < N_TASKS; n++) {
			struct rbk_sqe *sqe = rbk_get_sqe(scene->ring);

			if (!sqe) {
				if (result("rbk_get_sqe", rbk_submit(scene->ring), NULL) >= 0)
					broken("the ring is full");
				return false;
			}
			if (plan == scene->add)
				rbk_prep_run(sqe, rbk_plan_id(plan), rows, (uint64_t[]){a, b, c},
					     3);
			else
				rbk_prep_run(sqe, rbk_plan_id(plan), rows, (uint64_t[]){a, c}, 2);
			rbk_sqe_set_data64(sqe, first + i + n);
		}
		if (result("rbk_submit", rbk_submit(scene->ring), NULL) < 0)
			return false;
		for (unsigned int k = 0; k < n; k++)
			if (take(scene, &is_failed) < 0)
				return false;
		if (!is_failed)
			check(scene, plan, rows);
	}
	return true;
}

/* Wait by the descriptor for a BARRIER. */
static bool run_polled(struct scene *scene)
{
	struct rbk_sqe *sqe = rbk_get_sqe(scene->ring);
	struct pollfd watched = {.fd = rbk_ring_fd(scene->ring), .events = POLLIN};
	bool is_failed;

	if (!sqe || result("rbk_ring_fd", watched.fd, NULL) < 0)
		return true;
	rbk_prep_barrier(sqe);
	rbk_sqe_set_data64(sqe, 2 * N_TASKS);
	if (result("rbk_submit", rbk_submit(scene->ring), NULL) < 0)
		return false;
	if (result("rbk_ring_arm", rbk_ring_arm(scene->ring), NULL) == 0 &&
	    poll(&watched, 1, (int)(patience_ns / 1000000)) == 0)
		broken("the descriptor of a ring does not become readable");
	return take(scene, &is_failed) >= 0;
}

static void use_lease(struct scene *scene)
{
	const struct rbk_lease_options options = {
		.device = RBK_DEVICE_GPU,
		.min_bytes = 1 << 20,
		.wish_bytes = 2 << 20,
		.max_bytes = 4 << 20,
	};
	struct rbk_error error = {""};
	unsigned int n_devices = 0;
	uint64_t bytes;

	if (result("rbk_get_devices", rbk_get_devices(scene->rbk, NULL, 0, &n_devices, &error),
		   &error) ||
	    n_devices < 2 || !getenv("NTH_LEASE"))
		return;
	if (result("rbk_lease_open", rbk_lease_open(scene->rbk, &options, &scene->lease, &error),
		   &error))
		return;
	if (result("rbk_lease_take",
		   rbk_lease_take(scene->lease, 1 << 20, 1 << 16, 0, NULL, &bytes, &error),
		   &error) == 0)
		result("rbk_lease_give", rbk_lease_give(scene->lease, bytes, NULL), NULL);
	rbk_lease_close(scene->lease);
}

static void play(struct scene *scene)
{
	struct rbk_error error = {""};

	ask(scene);
	make_arenas(scene);
	make_add(scene);
	make_product(scene);
	if (result("rbk_ring_new", rbk_ring_new(scene->rbk, 16, &scene->ring, &error), &error) ==
		    0 &&
	    scene->arena) {
		bool goes_on = !scene->add || run(scene, scene->add, 0);

		if (scene->is_surviving) {
			puts("ready");
			fflush(stdout);
			getchar();
		}
		if (goes_on && (!scene->product || run(scene, scene->product, N_TASKS)))
			run_polled(scene);
	}
	use_lease(scene);
	/* A plan frees its constants only when it is gone, and the other order must work, too. */
	rbk_plan_free(scene->add);
	rbk_arena_free(scene->constants);
	rbk_plan_free(scene->product);
	rbk_ring_free(scene->ring);
	rbk_arena_free(scene->arena);
}

static unsigned int count_fds(void)
{
	DIR *directory;
	unsigned int n = 0;

	if (nth_pause)
		nth_pause(true);
	directory = opendir("/proc/self/fd");
	while (directory && readdir(directory))
		n++;
	if (directory)
		closedir(directory);
	if (nth_pause)
		nth_pause(false);
	return n;
}

int main(int argc, char **argv)
{
	struct scene scene = {.is_surviving = argc > 2 && strcmp(argv[2], "surviving") == 0};
	const bool is_lasting = argc > 2;
	const unsigned int n_fds = count_fds();
	const uint64_t n_live = nth_live ? nth_live() : 0;

	if (argc < 2)
		return 2;
	if (getenv("NTH_SECONDS"))
		request_ns = strtoull(getenv("NTH_SECONDS"), NULL, 10) * 1000000000;
	if (connect_broker(&scene, argv[1], is_lasting) == 0) {
		play(&scene);
		rbk_disconnect(scene.rbk);
	}
	if (count_fds() != n_fds)
		broken("%u descriptors are open, before there were %u", count_fds(), n_fds);
	if (nth_live && nth_live() != n_live)
		broken("%lld blocks were not freed", (long long)(nth_live() - n_live));
	return n_broken ? 2 : n_errors ? 1 : 0;
}
