/* SPDX-License-Identifier: MIT */
/*
 * test-memory-paths PATH
 *
 * Runs a real broker whose device reaches arenas by one path, and a real client. Results must be
 * right, and no bytes copied. Skipped where the driver or the kernel does not support the path,
 * which the broker must say. The paths udmabuf and exported need /dev/udmabuf and a Vulkan driver
 * that imports and exports dma-bufs, such as Mesa's lavapipe since 25.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/raw.h"
#include "support/test.h"

enum { COLS = 1024, BYTES = 1 << 20, PAGE = 4096 };

static const char *path;
static struct broker broker;
static struct broker first; /* owns the folder of the socket */
static struct broker_options options;

/* Make y = (x * w) * x, with w a constant of @constants. */
static struct rbk_plan *make_plan(struct rbk *rbk, struct rbk_arena *constants)
{
	const uint32_t shape[] = {RBK_DIM_COUNT, COLS}, row[] = {COLS};
	struct rbk_builder *builder = rbk_builder_new("memory-paths");
	unsigned int x, w, s, y;
	struct rbk_plan *plan = NULL;
	struct rbk_error error;

	x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 2, shape);
	w = rbk_builder_constant(builder, "w", RBK_DTYPE_F32, 1, row, constants, 0);
	s = rbk_builder_scratch(builder, "s", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
	y = rbk_builder_output(builder, "y", RBK_DTYPE_F32, 2, shape);
	rbk_builder_binary(builder, "Mul", x, w, s);
	rbk_builder_binary(builder, "Mul", s, x, y);
	if (rbk_plan_new(rbk, builder, 4, &plan, &error))
		fail_msg("%s", error.text);
	rbk_builder_free(builder);
	return plan;
}

struct kit {
	struct rbk *rbk;
	struct rbk_arena *constants;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
};

static void kit_begin(struct kit *kit)
{
	const struct rbk_options connecting = {
		.size = sizeof(connecting),
		.socket_path = broker.socket_path,
		.name = "memory-paths",
		.reattach_ns = harness_slow_ns(30000000000ull),
	};
	struct rbk_error error;
	float *w;

	if (rbk_connect(&connecting, &kit->rbk, &error))
		fail_msg("%s", error.text);
	if (rbk_arena_new(kit->rbk, PAGE, &kit->constants, &error))
		fail_msg("%s", error.text);
	w = rbk_arena_alloc(kit->constants, COLS * sizeof(float));
	for (int i = 0; i < COLS; i++)
		w[i] = (float)(i % 5);
	if (rbk_arena_seal(kit->constants, &error))
		fail_msg("%s", error.text);
	for (int i = 0; i < COLS; i++)
		assert_true(w[i] == (float)(i % 5));
	kit->plan = make_plan(kit->rbk, kit->constants);
	assert_int_equal(rbk_ring_new(kit->rbk, 8, &kit->ring, NULL), 0);
}

static void kit_end(struct kit *kit)
{
	rbk_ring_free(kit->ring);
	rbk_plan_free(kit->plan);
	rbk_arena_free(kit->constants);
	rbk_disconnect(kit->rbk);
}

/* Run the plan from @x to @y, preferring the GPU; check the device and the result. */
static void run(struct kit *kit, float *x, float *y, uint64_t x_ref, uint64_t y_ref, uint8_t device)
{
	const uint64_t refs[] = {x_ref, y_ref};
	const struct rbk_cqe *cqe;
	struct rbk_sqe *sqe;

	for (int i = 0; i < COLS; i++)
		x[i] = (float)(i % 100) / 4;
	memset(y, 0xff, COLS * sizeof(float));
	sqe = rbk_get_sqe(kit->ring);
	rbk_prep_run(sqe, rbk_plan_id(kit->plan), 1, refs, 2);
	rbk_sqe_set_strategy(sqe, RBK_STRATEGY_PREFER_GPU);
	assert_int_equal(rbk_submit(kit->ring), 1);
	assert_int_equal(rbk_wait_cqe_timeout(kit->ring, &cqe, harness_slow_ns(30000000000ull)), 0);
	assert_int_equal(cqe->res, 0);
	assert_int_equal(cqe->device, device);
	if (device == RBK_DEVICE_CPU)
		assert_int_equal(cqe->reason, RBK_REASON_CPU_FALLBACK);
	rbk_cqe_seen(kit->ring, cqe);
	for (int i = 0; i < COLS; i++)
		assert_true(y[i] == x[i] * (float)(i % 5) * x[i]);
}

static uint64_t copied_bytes(struct rbk *rbk)
{
	struct rbk_stats stats;

	assert_int_equal(rbk_stats(rbk, &stats), 0);
	return stats.session_copied_bytes;
}

static uint64_t host_bytes(struct rbk *rbk)
{
	struct rbk_stats stats;

	assert_int_equal(rbk_stats(rbk, &stats), 0);
	return stats.host_bytes;
}

/*
 * Wait until at most @bytes are charged. Less may be charged, if @bytes included arenas that were
 * freed since.
 */
static void wait_host_bytes(struct rbk *rbk, uint64_t bytes)
{
	uint64_t deadline_ns = harness_now_ns() + harness_slow_ns(20000000000ull);

	while (host_bytes(rbk) > bytes) {
		assert_true(harness_now_ns() < deadline_ns);
		harness_sleep_ms(20);
	}
}

/* Programs cannot tell which path is in use. */
TEST(test_client__in_place)
{
	struct rbk_device devices[2];
	struct rbk_arena *arena;
	struct kit kit;
	unsigned int n;
	float *x, *y;

	kit_begin(&kit);
	assert_int_equal(rbk_devices(kit.rbk, devices, 2, &n), 0);
	assert_true(n >= 2);
	assert_int_equal(strncmp(devices[1].paths, path, strlen(path)), 0);
	assert_int_equal(rbk_arena_new(kit.rbk, BYTES, &arena, NULL), 0);
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(((unsigned char *)rbk_arena_data(arena))[i], 0);
	for (int i = 0; i < 20; i++) {
		x = rbk_arena_alloc(arena, COLS * sizeof(float));
		y = rbk_arena_alloc(arena, COLS * sizeof(float));
		run(&kit, x, y, rbk_ref(arena, x), rbk_ref(arena, y), RBK_DEVICE_GPU);
	}
	assert_int_equal(copied_bytes(kit.rbk), 0);
	rbk_arena_free(arena);
	kit_end(&kit);
}

/* Kill the broker and start another one at the same socket. */
static void kill_broker(void)
{
	broker_kill(&broker);
	if (strcmp(broker.dir, first.dir) != 0)
		broker_remove(&broker);
	options.socket_path = first.socket_path;
	broker_start(&broker, &options);
}

/* The memory stays in place when the broker dies, and devices reach it as before. */
TEST(test_client__survives_brokers)
{
	struct rbk_arena *arena, *other;
	struct rbk_error error;
	struct rbk_stats stats;
	unsigned char *data;
	uint64_t x_ref, y_ref, bytes;
	struct kit kit;
	float *x, *y;

	kit_begin(&kit);
	bytes = host_bytes(kit.rbk);
	assert_int_equal(rbk_arena_new(kit.rbk, BYTES, &arena, NULL), 0);
	assert_int_equal(rbk_arena_new(kit.rbk, BYTES, &other, NULL), 0);
	data = rbk_arena_data(arena);
	x = rbk_arena_alloc(arena, COLS * sizeof(float));
	y = rbk_arena_alloc(arena, COLS * sizeof(float));
	x_ref = rbk_ref(arena, x);
	y_ref = rbk_ref(arena, y);
	memset(data + BYTES / 2, 77, BYTES / 2);
	for (unsigned int i = 1; i <= 3; i++) {
		kill_broker();
		/* Only memory of a device does not have to move. */
		if (strcmp(path, "exported") != 0 &&
		    rbk_get_stats(kit.rbk, &stats, &error) == -ECONNRESET &&
		    strstr(error.text, "userfaultfd")) {
			rbk_arena_free(arena);
			rbk_arena_free(other);
			kit_end(&kit);
			skip();
		}
		run(&kit, x, y, x_ref, y_ref, RBK_DEVICE_GPU);
		assert_int_equal(rbk_n_reattached(kit.rbk), i);
		assert_ptr_equal(rbk_arena_data(arena), data);
		for (size_t j = BYTES / 2; j < BYTES; j++)
			assert_int_equal(data[j], 77);
		assert_int_equal(copied_bytes(kit.rbk), 0);
	}
	/* A copy of the memory replaces it, now and for the next broker. */
	assert_int_equal(rbk_arena_seal(other, NULL), 0);
	rbk_arena_free(arena);
	kill_broker();
	assert_int_equal(*(unsigned char *)rbk_arena_data(other), 0);
	rbk_arena_free(other);
	wait_host_bytes(kit.rbk, bytes);
	kit_end(&kit);
}

/* Without the device, the processor uses the memory; with it, the device does so again. */
TEST(test_client__device_goes_and_comes)
{
	static const char *const without[] = {"--gpu=none", NULL};
	const char *const *with = options.args;
	struct rbk_arena *arena;
	const struct rbk_cqe *cqe;
	struct rbk_sqe *sqe;
	uint64_t refs[2];
	struct kit kit;
	float *x, *y;

	if (strcmp(path, "exported") != 0)
		skip();
	kit_begin(&kit);
	assert_int_equal(rbk_arena_new(kit.rbk, BYTES, &arena, NULL), 0);
	x = rbk_arena_alloc(arena, COLS * sizeof(float));
	y = rbk_arena_alloc(arena, COLS * sizeof(float));
	refs[0] = rbk_ref(arena, x);
	refs[1] = rbk_ref(arena, y);
	run(&kit, x, y, refs[0], refs[1], RBK_DEVICE_GPU);
	options.args = without;
	kill_broker();
	memset(y, 0, COLS * sizeof(float));
	sqe = rbk_get_sqe(kit.ring);
	rbk_prep_run(sqe, rbk_plan_id(kit.plan), 1, refs, 2);
	assert_int_equal(rbk_submit(kit.ring), 1);
	assert_int_equal(rbk_wait_cqe_timeout(kit.ring, &cqe, harness_slow_ns(30000000000ull)), 0);
	assert_int_equal(cqe->res, 0);
	assert_int_equal(cqe->device, RBK_DEVICE_CPU);
	rbk_cqe_seen(kit.ring, cqe);
	for (int i = 0; i < COLS; i++)
		assert_true(y[i] == x[i] * (float)(i % 5) * x[i]);
	options.args = with;
	kill_broker();
	run(&kit, x, y, refs[0], refs[1], RBK_DEVICE_GPU);
	assert_int_equal(rbk_n_reattached(kit.rbk), 2);
	assert_int_equal(copied_bytes(kit.rbk), 0);
	rbk_arena_free(arena);
	kit_end(&kit);
}

/* An arena of several dma-bufs: a task with a tensor in two of them runs on the CPU. */
TEST(test_client__segments)
{
	struct rbk_wire_hello hello = {
		.request.type = RBK_WIRE_HELLO,
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.name = "raw",
	};
	struct rbk_wire_welcome welcome = {0};
	int fd = raw_connect(&broker);
	struct rbk_arena *arena;
	struct rbk_error error;
	unsigned char *data;
	uint64_t segment;
	struct kit kit;
	float *x, *y;

	raw_ask(fd, &hello, sizeof(hello), NULL, 0, &welcome, sizeof(welcome));
	close(fd);
	segment = welcome.arena_segment_bytes;
	if (strcmp(path, "udmabuf") != 0)
		assert_int_equal(segment, 0);
	if (segment == 0 || segment > 128ull << 20)
		skip();
	kit_begin(&kit);
	if (rbk_arena_new(kit.rbk, segment + BYTES, &arena, &error))
		fail_msg("%s", error.text);
	data = rbk_arena_data(arena);
	assert_non_null(rbk_arena_alloc(arena, segment - PAGE - 64));
	/* The library's allocator avoids the boundary. */
	x = rbk_arena_alloc(arena, COLS * sizeof(float));
	y = rbk_arena_alloc(arena, COLS * sizeof(float));
	assert_ptr_equal(x, data + segment - PAGE - 64);
	assert_ptr_equal(y, data + segment);
	run(&kit, x, y, rbk_ref(arena, x), rbk_ref(arena, y), RBK_DEVICE_GPU);
	/* Up to the boundary, and from it on. */
	x = (float *)(data + segment - PAGE);
	run(&kit, x, y, rbk_ref(arena, x), rbk_ref(arena, y), RBK_DEVICE_GPU);
	/* Across the boundary: right, without a copy, on the CPU. */
	x = (float *)(data + segment - 64);
	y = (float *)data;
	run(&kit, x, y, rbk_ref(arena, x), rbk_ref(arena, y), RBK_DEVICE_CPU);
	run(&kit, y, x, rbk_ref(arena, y), rbk_ref(arena, x), RBK_DEVICE_CPU);
	x = (float *)(data + segment);
	run(&kit, x, y, rbk_ref(arena, x), rbk_ref(arena, y), RBK_DEVICE_GPU);
	assert_int_equal(copied_bytes(kit.rbk), 0);
	rbk_arena_free(arena);
	kit_end(&kit);
}

/* Descriptors do not accumulate, and the charge is refunded. */
TEST(test_client__releases_descriptors_and_charge)
{
	struct broker_usage before, after;
	struct rbk_arena *arena;
	uint64_t bytes;
	struct kit kit;

	kit_begin(&kit);
	bytes = host_bytes(kit.rbk);
	for (int round = 0; round < 2; round++) {
		broker_usage(&broker, &before);
		for (int i = 0; i < 20; i++) {
			assert_int_equal(rbk_arena_new(kit.rbk, BYTES, &arena, NULL), 0);
			memset(rbk_arena_data(arena), 1, BYTES);
			rbk_arena_free(arena);
		}
		wait_host_bytes(kit.rbk, bytes);
		broker_usage(&broker, &after);
	}
	assert_true(after.n_fds <= before.n_fds);
	assert_true(after.n_mappings <= before.n_mappings + 4);
	kit_end(&kit);
}

static int ask_for_arena(int fd, uint64_t bytes, uint32_t *ret_id, int *ret_fd)
{
	struct rbk_wire_arena_new make = {.request.type = RBK_WIRE_ARENA_NEW, .bytes = bytes};
	struct rbk_wire_id_reply reply = {0};
	unsigned int n_fds = 1;

	*ret_fd = -1;
	assert_true(raw_send(fd, &make, sizeof(make), NULL, 0) > 0);
	assert_true(raw_receive(fd, &reply, sizeof(reply), ret_fd, &n_fds, 20000) >=
		    (ssize_t)sizeof(reply.reply));
	assert_int_equal(n_fds, reply.reply.res == 0 ? 1 : 0);
	*ret_id = reply.id;
	return reply.reply.res;
}

/* Absurd sizes are answered, also where no device makes arenas. */
TEST(test_hostile__sizes)
{
	static const uint64_t sizes[] = {0,          1,          64,
					 PAGE - 1,   PAGE + 64,  1ull << 47,
					 1ull << 48, 1ull << 63, UINT64_MAX - PAGE + 1,
					 UINT64_MAX, 1ull << 40, (1ull << 45) + PAGE};
	struct rbk *rbk = broker_connect(&broker, "watcher");
	uint64_t bytes = host_bytes(rbk);
	int fd = raw_connect(&broker), dma_buf, r;
	uint32_t id;

	raw_hello(fd);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		r = ask_for_arena(fd, sizes[i], &id, &dma_buf);
		if (strcmp(path, "exported") != 0)
			assert_int_equal(r, -EOPNOTSUPP);
		else if (sizes[i] % PAGE || sizes[i] == 0 || sizes[i] > 1ull << 48)
			assert_int_equal(r, -EINVAL);
		else
			assert_true(r == -ENOMEM || r == -EDQUOT || r == -EOPNOTSUPP);
		assert_int_equal(dma_buf, -1);
	}
	close(fd);
	broker_wait_sessions(rbk, 1);
	wait_host_bytes(rbk, bytes);
	rbk_disconnect(rbk);
}

/* The client keeps the memory, truncates and seals what it can, and pays until it releases it. */
TEST(test_hostile__pays_for_kept_memory)
{
	struct rbk *rbk = broker_connect(&broker, "watcher");
	uint64_t bytes = host_bytes(rbk);
	int fd = raw_connect(&broker), dma_buf, copy, status;
	unsigned char *data;
	uint32_t id, again;
	pid_t pid;

	if (strcmp(path, "exported") != 0) {
		close(fd);
		rbk_disconnect(rbk);
		skip();
	}
	raw_hello(fd);
	assert_int_equal(ask_for_arena(fd, BYTES, &id, &dma_buf), 0);
	data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, dma_buf, 0);
	assert_ptr_not_equal(data, MAP_FAILED);
	assert_true(ftruncate(dma_buf, 0) < 0);
	assert_true(fcntl(dma_buf, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK) < 0);
	assert_true(fallocate(dma_buf, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) < 0);
	/* A dma-buf is no memfd: in another session, ARENA_ADD with it breaks the rules. */
	{
		int other = raw_connect(&broker);

		raw_hello(other);
		assert_int_equal(raw_arena_add(other, dma_buf, BYTES, &again, NULL), -EINVAL);
		raw_expect_closed(other);
		close(other);
	}

	assert_int_equal(raw_remove(fd, RBK_WIRE_ARENA_REMOVE, id), 0);
	assert_int_equal(raw_remove(fd, RBK_WIRE_ARENA_REMOVE, id), -ENOENT);
	memset(data, 5, BYTES);
	assert_true(host_bytes(rbk) >= BYTES);
	close(fd);
	close(dma_buf);
	broker_wait_sessions(rbk, 1);
	/* The session has ended, but the mapping still exists. */
	harness_sleep_ms(700);
	assert_true(host_bytes(rbk) >= BYTES);
	munmap(data, BYTES);
	wait_host_bytes(rbk, bytes);

	/* A process that is killed with a descriptor and a mapping of its own. */
	fd = raw_connect(&broker);
	raw_hello(fd);
	assert_int_equal(ask_for_arena(fd, BYTES, &id, &dma_buf), 0);
	pid = fork();
	if (pid == 0) {
		copy = dup(dma_buf);
		data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
		if (data != MAP_FAILED)
			data[7] = 7;
		raise(SIGKILL);
	}
	close(dma_buf);
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	broker_wait_sessions(rbk, 1);
	wait_host_bytes(rbk, bytes);

	/* The client ends before it reads the reply. */
	for (int i = 0; i < 20; i++) {
		struct rbk_wire_arena_new make = {.request.type = RBK_WIRE_ARENA_NEW,
						  .bytes = BYTES};

		fd = raw_connect(&broker);
		raw_hello(fd);
		assert_true(raw_send(fd, &make, sizeof(make), NULL, 0) > 0);
		close(fd);
	}
	broker_wait_sessions(rbk, 1);
	wait_host_bytes(rbk, bytes);
	rbk_disconnect(rbk);
}

/* Send ARENA_ADD with a descriptor that is said to be a dma-buf. Return: the reply's result. */
static int hand_over(int fd, int dma_buf, uint64_t bytes, uint32_t *ret_id)
{
	return raw_arena_add(fd, dma_buf, bytes | RBK_WIRE_ARENA_DMA_BUF, ret_id, NULL);
}

/* Make a dma-buf with a driver that is no broker's. Return: -1 if the kernel has none. */
static int foreign_dma_buf(void)
{
	struct dma_heap_allocation_data data = {.len = BYTES, .fd_flags = O_RDWR | O_CLOEXEC};
	int heap = open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC), r;

	if (heap < 0)
		return -1;
	r = ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data);
	close(heap);
	return r ? -1 : (int)data.fd;
}

/* Begin a session that may hand dma-bufs over. */
static int restoring_session(void)
{
	int fd = raw_connect(&broker);

	raw_hello_with(fd, RBK_FEAT_REATTACH | RBK_FEAT_RESTORE);
	return fd;
}

/* Only memory that a device can have made is taken, and only once. */
TEST(test_hostile__restores)
{
	struct rbk *rbk = broker_connect(&broker, "watcher");
	uint64_t bytes = host_bytes(rbk);
	int memfd = raw_memfd(BYTES, false, F_SEAL_SHRINK | F_SEAL_GROW), pipes[2];
	int fd, other, dma_buf, foreign;
	uint32_t id, again;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	/* Other descriptors, and a dma-buf of another size. */
	for (int i = 0; i < 3; i++) {
		const int files[] = {memfd, pipes[0], open("/dev/null", O_RDWR | O_CLOEXEC)};

		fd = restoring_session();
		assert_int_equal(hand_over(fd, files[i], BYTES, &id), -EINVAL);
		raw_expect_closed(fd);
		close(fd);
		close(files[2]);
	}
	if (strcmp(path, "exported") != 0) {
		broker_wait_sessions(rbk, 1);
		wait_host_bytes(rbk, bytes);
		rbk_disconnect(rbk);
		close(memfd);
		close(pipes[0]);
		close(pipes[1]);
		skip();
	}
	fd = restoring_session();
	assert_int_equal(ask_for_arena(fd, BYTES, &id, &dma_buf), 0);
	other = restoring_session();
	/* It is an arena, of whatever session. */
	assert_int_equal(hand_over(fd, dma_buf, BYTES, &again), -EBUSY);
	assert_int_equal(hand_over(other, dma_buf, BYTES, &again), -EBUSY);
	/* The session has ended, but the client has the memory: it is taken over. */
	close(fd);
	broker_wait_sessions(rbk, 2);
	assert_int_equal(hand_over(other, dma_buf, BYTES, &id), 0);
	assert_true(host_bytes(rbk) >= BYTES);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(raw_remove(other, RBK_WIRE_ARENA_REMOVE, id), 0);
		assert_int_equal(hand_over(other, dma_buf, BYTES, &id), 0);
	}
	foreign = foreign_dma_buf();
	if (foreign >= 0) {
		assert_int_equal(hand_over(other, foreign, BYTES, &again), -ENODEV);
		close(foreign);
	} else {
		print_message("no dma-buf of another driver here\n");
	}
	assert_int_equal(hand_over(other, dma_buf, 4 * BYTES, &again), -EINVAL);
	raw_expect_closed(other);
	close(other);
	close(dma_buf);
	broker_wait_sessions(rbk, 1);
	wait_host_bytes(rbk, bytes);
	rbk_disconnect(rbk);
	close(memfd);
	close(pipes[0]);
	close(pipes[1]);
}

int main(int argc, char **argv)
{
	static const char *args[] = {"--gpu=software", "--threshold=0", NULL, NULL};
	char option[64];
	int status = 0, r;

	if (argc != 2)
		return 2;
	path = argv[1];
	harness_limit_seconds(60);
	snprintf(option, sizeof(option), "--memory-path=%s", path);
	args[2] = option;
	options.args = args;
	if (!broker_try_start(&broker, &options, &status)) {
		bool is_told = WIFEXITED(status) && WEXITSTATUS(status) == 2 &&
			       broker_log_has(&broker, "--memory-path asks for does not work");

		printf("skipped: the broker does not start with %s:\n", option);
		broker_show_log(&broker);
		broker_remove(&broker);
		return is_told ? 77 : 1;
	}
	first = broker;
	r = test_run(NULL, NULL);
	if (r)
		broker_show_log(&broker);
	broker_stop(&broker);
	broker_remove(&broker);
	broker_remove(&first);
	return r;
}
