/* SPDX-License-Identifier: MIT */
/*
 * Tasks to be counted
 *
 * The small plan is a Relu of a few numbers, which the broker runs inline. The large plan is a
 * product of matrices, which is queued. One task is in flight at a time, so that the order is
 * known.
 */
#include "integration/stats-load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 16, N = 256, ENTRIES = 64, ARENA_BYTES = 4 << 20, STEP = N * N * sizeof(float) };

static void check(int r, const char *what, const struct rbk_error *error)
{
	if (r == 0)
		return;
	fprintf(stderr, "stats-load: %s: %s\n", what, error->text[0] ? error->text : strerror(-r));
	exit(1);
}

static struct rbk_plan *relu_new(struct rbk *rbk, const char *name)
{
	const uint32_t dims[] = {RBK_DIM_COUNT, WIDTH};
	struct rbk_builder *builder = rbk_builder_new(name);
	unsigned int x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 2, dims);
	unsigned int y = rbk_builder_output(builder, "y", RBK_DTYPE_F32, 2, dims);
	struct rbk_error error = {""};
	struct rbk_plan *plan = NULL;

	rbk_builder_unary(builder, "Relu", x, y);
	check(rbk_plan_new(rbk, builder, 4, &plan, &error), "small plan", &error);
	rbk_builder_free(builder);
	return plan;
}

static struct rbk_plan *matmul_new(struct rbk *rbk)
{
	const uint32_t left[] = {RBK_DIM_COUNT, N}, right[] = {N, N};
	struct rbk_builder *builder = rbk_builder_new("large");
	unsigned int x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 2, left);
	unsigned int w = rbk_builder_input(builder, "w", RBK_DTYPE_F32, 2, right);
	unsigned int y = rbk_builder_output(builder, "y", RBK_DTYPE_F32, 2, left);
	struct rbk_error error = {""};
	struct rbk_plan *plan = NULL;

	rbk_builder_binary(builder, "MatMul", x, w, y);
	check(rbk_plan_new(rbk, builder, N, &plan, &error), "large plan", &error);
	rbk_builder_free(builder);
	return plan;
}

void stats_load_init(struct stats_load *load, const char *socket_path, const char *name)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = socket_path,
		.timeout_ns = 60000000000,
	};
	struct rbk_error error = {""};

	*load = (struct stats_load){.rbk = NULL};
	check(rbk_connect(&options, &load->rbk, &error), "connect", &error);
	check(rbk_arena_new(load->rbk, ARENA_BYTES, &load->arena, &error), "arena", &error);
	load->small = relu_new(load->rbk, name);
	load->large = matmul_new(load->rbk);
	check(rbk_ring_new(load->rbk, ENTRIES, &load->ring, &error), "ring", &error);
}

void stats_load_deinit(struct stats_load *load)
{
	rbk_ring_free(load->ring);
	rbk_plan_free(load->small);
	rbk_plan_free(load->large);
	rbk_arena_free(load->arena);
	rbk_disconnect(load->rbk);
}

static void run_one(struct stats_load *load, const struct rbk_plan *plan, unsigned int n_refs,
		    uint32_t count)
{
	uint64_t refs[3];
	struct rbk_sqe *sqe = rbk_get_sqe(load->ring);
	const struct rbk_error none = {""};
	const struct rbk_cqe *cqe = NULL;

	for (unsigned int i = 0; i < n_refs; i++)
		refs[i] = rbk_arena_ref(load->arena, i * STEP);
	rbk_prep_run(sqe, rbk_plan_id(plan), count, refs, n_refs);
	rbk_sqe_set_data64(sqe, ++load->n_sent);
	check(rbk_submit(load->ring) == 1 ? 0 : -1, "submit", &none);
	check(rbk_wait_cqe(load->ring, &cqe), "wait", &none);
	check(cqe->res, "task", &none);
	rbk_cqe_seen(load->ring, cqe);
}

void stats_load_leave(struct stats_load *load, unsigned int n)
{
	const struct rbk_error none = {""};
	struct rbk_sqe *sqe;
	uint64_t refs[3];

	for (unsigned int i = 0; i < 3; i++)
		refs[i] = rbk_arena_ref(load->arena, i * STEP);
	for (unsigned int i = 0; i < n; i++) {
		sqe = rbk_get_sqe(load->ring);
		check(sqe ? 0 : -1, "room", &none);
		rbk_prep_run(sqe, rbk_plan_id(load->large), N, refs, 3);
		rbk_sqe_set_strategy(sqe, RBK_STRATEGY_DEVICE(RBK_DEVICE_GPU));
		rbk_sqe_set_data64(sqe, ++load->n_sent);
	}
	check(rbk_submit(load->ring) == (int)n ? 0 : -1, "submit", &none);
}

void stats_load_refuse(struct stats_load *load, unsigned int n)
{
	const struct rbk_error none = {""};
	const struct rbk_cqe *cqe = NULL;
	uint64_t refs[2];

	for (unsigned int i = 0; i < n; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(load->ring);

		refs[0] = rbk_arena_ref(load->arena, 0);
		refs[1] = rbk_arena_ref(load->arena, STEP + 4);
		rbk_prep_run(sqe, rbk_plan_id(load->small), 1, refs, 2);
		rbk_sqe_set_data64(sqe, 1000000 + i);
		check(rbk_submit(load->ring) == 1 ? 0 : -1, "submit", &none);
		check(rbk_wait_cqe(load->ring, &cqe), "wait", &none);
		check(cqe->res == -EINVAL ? 0 : -1, "refusal", &none);
		rbk_cqe_seen(load->ring, cqe);
	}
}

void stats_load_run(struct stats_load *load, unsigned int n_small, unsigned int n_large)
{
	for (unsigned int i = 0; i < n_small; i++)
		run_one(load, load->small, 2, 1);
	for (unsigned int i = 0; i < n_large; i++)
		run_one(load, load->large, 3, N);
}
