/* SPDX-License-Identifier: MIT */
/*
 * Every operator end to end: through the socket, a ring and shared memory
 *
 * Each operator runs on the CPU, and on a Vulkan device if there is one. Results are compared with
 * the plain reference, for odd and random shapes, broadcasts and counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "integration/raw.h"
#include "reference/reference.h"
#include "support/one-op.h"
#include "support/test.h"

enum { ARENA_BYTES = 8 << 20 };

static struct broker broker;
static int fd, memfd;
static uint8_t *base;
static struct raw_ring ring;
static bool has_gpu;
static uint64_t seed = 7;

static int begin(void **state)
{
	struct rbk *rbk;
	uint32_t id;

	broker_start(&broker, &(struct broker_options){
				      .args = (const char *const[]){"--gpu=software", NULL}});
	rbk = broker_connect(&broker, "look");
	has_gpu = broker_has_gpu(rbk);
	rbk_disconnect(rbk);
	if (!has_gpu)
		print_message("no Vulkan device here: only the CPU is tested\n");
	fd = raw_connect(&broker);
	raw_hello(fd);
	memfd = raw_memfd(ARENA_BYTES, false, F_SEAL_SHRINK | F_SEAL_GROW);
	base = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, &id, NULL), 0);
	assert_int_equal(id, 1);
	raw_ring_add(fd, 16, &ring);
	return 0;
}

static int end(void **state)
{
	raw_ring_close(&ring);
	munmap(base, ARENA_BYTES);
	close(memfd);
	close(fd);
	broker_stop(&broker);
	return 0;
}

static uint32_t pick(uint32_t from, uint32_t to)
{
	return from + (uint32_t)(harness_random(&seed) >> 33) % (to - from + 1);
}

/* Run the plan at the broker and compare the results. */
static void compare(const char *what, const struct plan *plan, uint32_t plan_id, uint32_t count,
		    uint8_t strategy)
{
	struct reference_buffers given, got;
	uint64_t refs[RBK_MAX_REFS], at = 0;
	struct rbk_sqe *sqe;
	struct rbk_cqe cqe;

	reference_buffers_init(&given, plan, count, 11);
	for (unsigned int i = 0; i < given.n; i++) {
		memcpy(base + at, given.bindings[i], given.bytes[i]);
		refs[i] = RBK_REF(1, at);
		at = (at + given.bytes[i] + 63) & ~63ull;
		assert_true(at <= ARENA_BYTES);
	}
	sqe = raw_ring_next(&ring);
	*sqe = (struct rbk_sqe){
		.opcode = RBK_OP_RUN, .plan_id = plan_id, .count = count, .strategy = strategy};
	memcpy(sqe->refs, refs, given.n * sizeof(*refs));
	raw_ring_publish(&ring);
	assert_true(raw_ring_take(&ring, &cqe));
	if (cqe.res)
		fail_msg("%s: %s", what, strerror(-cqe.res));
	assert_int_equal(cqe.device,
			 strategy == RBK_STRATEGY_ONLY_CPU ? RBK_DEVICE_CPU : RBK_DEVICE_GPU);

	reference_buffers_copy(&got, &given);
	for (unsigned int i = 0; i < got.n; i++)
		memcpy(got.bindings[i], base + RBK_REF_OFFSET(refs[i]), got.bytes[i]);
	reference_run(plan, count, given.bindings);
	if (!reference_buffers_close(plan, count, &got, &given, 1e-4, 1e-4))
		fail_msg("%s on device %u, count %u", what, cqe.device, count);
	reference_buffers_deinit(&given);
	reference_buffers_deinit(&got);
}

static void check(const char *op, const char *inputs, const char *attrs)
{
	size_t desc_bytes;
	void *desc = describe_finish(one_op(op, inputs, attrs), &desc_bytes);
	struct plan *plan = reference_plan(one_op(op, inputs, attrs), NULL);
	uint32_t plan_id = 0, counts[3];
	char what[256];

	snprintf(what, sizeof(what), "%s %s %s", op, inputs, attrs);
	if (raw_plan_add(fd, desc, desc_bytes, &plan_id))
		fail_msg("%s is refused", what);
	counts[0] = 1;
	counts[1] = pick(1, plan->max_count);
	counts[2] = plan->max_count;
	for (unsigned int i = 0; i < (plan->max_count > 1 ? 3 : 1); i++) {
		compare(what, plan, plan_id, counts[i], RBK_STRATEGY_ONLY_CPU);
		if (has_gpu)
			compare(what, plan, plan_id, counts[i], RBK_STRATEGY_ONLY_GPU);
	}
	assert_int_equal(raw_remove(fd, RBK_WIRE_PLAN_REMOVE, plan_id), 0);
	plan_free(plan);
	free(desc);
}

TEST(test_operators__chosen)
{
	static const char *const cases[][3] = {
		{"MatMul", "[count,7] [7,3]", ""},
		{"MatMul", "[33] [33,5]", ""},
		{"MatMul", "[5,17] [17]", ""},
		{"MatMul", "[count,2,9,4] [4,11]", ""},
		{"MatMul", "[3,1,5,6] [2,6,7]", ""},
		{"Gemm", "[count,13] [13,9] [9]", "alpha=0.5 beta=2.0"},
		{"Gemm", "[8,13] [9,8] [13,1]", "transA=1 transB=1"},
		{"Add", "[count,3,5] [5]", ""},
		{"Add", "[4,1,6] [3,1]", ""},
		{"Add", "[] [7]", ""},
		{"Mul", "[count,17] [count,17]", ""},
		{"Mul", "[2,3,4,5] [3,1,5]", ""},
		{"Relu", "[count,31]", ""},
		{"Softmax", "[count,10]", ""},
		{"Softmax", "[3,7,5]", "axis=1"},
		{"ReduceSum", "[count,6,7]", "axes=[1]"},
		{"ReduceSum", "[5,6,7]", "axes=[0,2] keepdims=0"},
		{"Transpose", "[3,5,7]", "perm=[2,0,1]"},
		{"Transpose", "[count,4,6]", "perm=[0,2,1]"},
		{"Conv", "[count,3,9,11] [5,3,3,3] [5]", "pads=[1,1,1,1] strides=[2,1]"},
		{"Conv", "[2,4,8,8] [4,1,3,3]", "group=4"},
		{"TopK", "[count,37]", "k=5"},
		{"TopK", "[6,300]", "k=17 largest=0"},
		{"MaxPool", "[count,3,9,7]", "kernel_shape=[3,2] strides=[2,2] pads=[1,0,1,0]"},
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check(cases[i][0], cases[i][1], cases[i][2]);
}

TEST(test_operators__random)
{
	char inputs[128], attrs[128];

	for (uint64_t i = 0; i < test_scaled(60); i++) {
		uint32_t a = pick(1, 40), b = pick(1, 40), c = pick(1, 40);

		snprintf(inputs, sizeof(inputs), "[count,%u] [%u,%u]", a, a, b);
		check("MatMul", inputs, "");
		snprintf(inputs, sizeof(inputs), "[%u,%u] [%u,%u] [%u]", a, b, c, b, c);
		check("Gemm", inputs, "transB=1 alpha=0.25");
		snprintf(inputs, sizeof(inputs), "[count,%u,%u] [%u,%u]", a, b, pick(0, 1) ? a : 1,
			 pick(0, 1) ? b : 1);
		check(pick(0, 1) ? "Add" : "Mul", inputs, "");
		snprintf(inputs, sizeof(inputs), "[%u,%u,%u]", a, b, c);
		snprintf(attrs, sizeof(attrs), "axis=%u", pick(0, 2));
		check("Softmax", inputs, attrs);
		snprintf(attrs, sizeof(attrs), "axes=[%u]", pick(0, 2));
		check("ReduceSum", inputs, attrs);
	}
}

TEST_MAIN(begin, end, harness_limit_seconds(110))
