/* SPDX-License-Identifier: MIT */
/*
 * The rules of trust, one by one: what a client must not be able to do to the broker, or to
 * another client, with what it shares with it. A neighbour computes all the while.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/raw.h"
#include "shm/ring.h"
#include "support/describe.h"
#include "support/test.h"

enum {
	SHRINK_GROW = F_SEAL_SHRINK | F_SEAL_GROW,
	IMMUTABLE = SHRINK_GROW | F_SEAL_WRITE,
	ARENA_BYTES = 65536,
};

static struct broker broker;
static struct neighbour *neighbour;

/* Sees the broker through an eye that nobody else has. */
static struct rbk *observer;

static int begin(void **state)
{
	broker_start(&broker, NULL);
	neighbour = neighbour_start(&broker);
	observer = broker_connect(&broker, "observer");
	return 0;
}

/* The broker lives, the neighbour has noticed nothing, nothing is held any more. */
static int end(void **state)
{
	neighbour = neighbour_stop_alone(neighbour, observer);
	observer = rbk_disconnect(observer);
	broker_stop(&broker);
	return 0;
}

/* A connected session. */
static int session(void)
{
	int fd = raw_connect(&broker);

	raw_hello(fd);
	return fd;
}

/* An Add of 16 floats in an arena with id 0; returns the plan's id. */
static uint32_t add_plan(int fd)
{
	struct describe *d = describe_new("add", 1);
	size_t desc_bytes;
	uint32_t id = 0;
	void *desc;

	describe_input(d, "x", DESCRIBE_DIMS(16));
	describe_input(d, "y", DESCRIBE_DIMS(16));
	describe_output(d, "z", DESCRIBE_DIMS(16));
	describe_node(d, "Add", "add", "x,y", "z");
	desc = describe_finish(d, &desc_bytes);
	assert_int_equal(raw_plan_add(fd, desc, desc_bytes, &id), 0);
	free(desc);
	return id;
}

/* A product of 512 x 512 matrices: a millisecond or more. */
static uint32_t add_product_plan(int fd)
{
	struct describe *d = describe_new("product", 1);
	size_t desc_bytes;
	uint32_t id = 0;
	void *desc;

	describe_input(d, "x", DESCRIBE_DIMS(512, 512));
	describe_input(d, "y", DESCRIBE_DIMS(512, 512));
	describe_output(d, "z", DESCRIBE_DIMS(512, 512));
	describe_node(d, "MatMul", "mul", "x,y", "z");
	desc = describe_finish(d, &desc_bytes);
	assert_int_equal(raw_plan_add(fd, desc, desc_bytes, &id), 0);
	free(desc);
	return id;
}

static void prep_add(struct rbk_sqe *sqe, uint32_t plan_id, uint64_t x, uint64_t y, uint64_t z)
{
	*sqe = (struct rbk_sqe){
		.opcode = RBK_OP_RUN,
		.plan_id = plan_id,
		.count = 1,
		.refs = {x, y, z},
	};
}

/* Runs one Add. Return: its result. */
static int run_add(struct raw_ring *ring, uint32_t plan_id, uint64_t x, uint64_t y, uint64_t z)
{
	struct rbk_cqe cqe;

	prep_add(raw_ring_next(ring), plan_id, x, y, z);
	raw_ring_publish(ring);
	assert_true(raw_ring_take(ring, &cqe));
	return cqe.res;
}

/* ---- Arenas ---- */

/* The arena must be refused with @text, and the session closed with the reason in the log. */
static void expect_arena_refused(int memfd, uint64_t bytes, const char *text)
{
	char reason[RBK_WIRE_TEXT_BYTES];
	int fd = session();

	if (raw_arena_add(fd, memfd, bytes, NULL, reason) != -EINVAL || !strstr(reason, text))
		fail_msg("the answer says \"%s\", expected \"%s\"", reason, text);
	raw_expect_closed(fd);
	broker_wait_log(&broker, text);
	close(fd);
	close(memfd);
}

TEST(test_arena__unsealed, begin, end)
{
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, 0), ARENA_BYTES, "is not sealed");
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, F_SEAL_SHRINK), ARENA_BYTES,
			     "is not sealed");
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, F_SEAL_GROW), ARENA_BYTES,
			     "is not sealed");
}

TEST(test_arena__sparse, begin, end)
{
	int fd = raw_memfd(ARENA_BYTES, true, 0);

	/* All but one page. */
	assert_int_equal(fallocate(fd, 0, 4096, ARENA_BYTES - 4096), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, SHRINK_GROW), 0);
	expect_arena_refused(fd, ARENA_BYTES, "is sparse");
	expect_arena_refused(raw_memfd(1ul << 30, true, SHRINK_GROW), 1ul << 30, "is sparse");
}

TEST(test_arena__wrong_size, begin, end)
{
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), 2 * ARENA_BYTES,
			     "another size");
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), ARENA_BYTES / 2,
			     "another size");
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), 0, "page size");
	expect_arena_refused(raw_memfd(5000, false, SHRINK_GROW), 5000, "page size");
}

TEST(test_arena__future_write, begin, end)
{
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, SHRINK_GROW | F_SEAL_FUTURE_WRITE),
			     ARENA_BYTES, "F_SEAL_FUTURE_WRITE only");
}

static int reopen(int fd, int flags)
{
	char path[64];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	assert_true(again >= 0);
	close(fd);
	return again;
}

TEST(test_arena__opened_read_only, begin, end)
{
	expect_arena_refused(reopen(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), O_RDONLY),
			     ARENA_BYTES, "not open for reading and writing");
	expect_arena_refused(reopen(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), O_WRONLY),
			     ARENA_BYTES, "not open for reading and writing");
}

TEST(test_arena__immutable_opened_read_only, begin, end)
{
	int memfd = reopen(raw_memfd(ARENA_BYTES, false, IMMUTABLE), O_RDONLY), fd = session();

	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, NULL, NULL), 0);
	close(memfd);
	close(fd);
}

TEST(test_arena__no_memfd, begin, end)
{
	char path[] = "/tmp/rbk-test-file-XXXXXX";
	int fds[2], fd;

	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, ARENA_BYTES), 0);
	/* "a memfd", or where /tmp is a tmpfs too, "sealed". */
	expect_arena_refused(fd, ARENA_BYTES, "is not ");
	unlink(path);
	assert_int_equal(pipe(fds), 0);
	expect_arena_refused(fds[0], ARENA_BYTES, "is not a memfd");
	expect_arena_refused(fds[1], ARENA_BYTES, "is not a memfd");
	expect_arena_refused(socket(AF_INET, SOCK_STREAM, 0), ARENA_BYTES, "is not a memfd");
	expect_arena_refused(open("/", O_RDONLY | O_DIRECTORY), ARENA_BYTES, "is not a memfd");
	expect_arena_refused(open("/dev/zero", O_RDWR), ARENA_BYTES, "is not a");
	expect_arena_refused(reopen(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), O_PATH),
			     ARENA_BYTES, "is not a memfd");
	fd = open("/dev/shm", O_RDWR | O_TMPFILE, 0600);
	if (fd >= 0) {
		assert_int_equal(posix_fallocate(fd, 0, ARENA_BYTES), 0);
		expect_arena_refused(fd, ARENA_BYTES, "is not sealed");
	}
}

TEST(test_arena__hugetlb, begin, end)
{
	const size_t bytes = 2 << 20;
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0) {
		print_message("this kernel gives no hugetlb memfd\n");
		close(fd);
		return;
	}
	assert_int_equal(fcntl(fd, F_ADD_SEALS, SHRINK_GROW), 0);
	expect_arena_refused(fd, bytes, "hugetlb is refused");
}

/* Pages that are taken away read as zeros, and harm nobody else. */
TEST(test_arena__hole_punching, begin, end)
{
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), fd = session();
	struct raw_ring ring;
	uint32_t arena, plan;
	float *data;

	data = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	assert_ptr_not_equal(data, MAP_FAILED);
	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, &arena, NULL), 0);
	plan = add_plan(fd);
	raw_ring_add(fd, 8, &ring);
	for (unsigned int i = 0; i < 16; i++)
		data[i] = data[16 + i] = 3.0f;
	assert_int_equal(
		fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, ARENA_BYTES), 0);
	assert_int_equal(
		run_add(&ring, plan, RBK_REF(arena, 0), RBK_REF(arena, 64), RBK_REF(arena, 4096)),
		0);
	assert_true(data[1024] == 0.0f);
	munmap(data, ARENA_BYTES);
	raw_ring_close(&ring);
	close(memfd);
	close(fd);
}

/*
 * An arena that the client wants to be fixed has no holes from then on, and stays writable where it
 * is mapped. Without the feature the bit means nothing, and the size is wrong.
 */
TEST(test_arena__fixed, begin, end)
{
	struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.features = RBK_FEAT_FIXED_ARENAS,
	};
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), fd = raw_connect(&broker);
	struct rbk_wire_welcome welcome;
	struct raw_ring ring;
	uint32_t arena, plan;
	float *data;

	raw_ask(fd, &hello, sizeof(hello), NULL, 0, &welcome, sizeof(welcome));
	assert_int_equal(welcome.features, RBK_FEAT_FIXED_ARENAS);
	data = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	assert_ptr_not_equal(data, MAP_FAILED);
	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES | RBK_WIRE_ARENA_FIX, &arena, NULL),
			 0);
	assert_int_equal(fcntl(memfd, F_GET_SEALS), SHRINK_GROW | F_SEAL_FUTURE_WRITE);
	assert_int_equal(
		fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, ARENA_BYTES), -1);
	assert_int_equal(madvise(data, ARENA_BYTES, MADV_REMOVE), -1);
	plan = add_plan(fd);
	raw_ring_add(fd, 8, &ring);
	for (unsigned int i = 0; i < 16; i++)
		data[i] = data[16 + i] = 3.0f;
	assert_int_equal(
		run_add(&ring, plan, RBK_REF(arena, 0), RBK_REF(arena, 64), RBK_REF(arena, 4096)),
		0);
	assert_true(data[1024] == 6.0f);
	munmap(data, ARENA_BYTES);
	raw_ring_close(&ring);
	close(memfd);
	close(fd);

	hello.features = 0;
	fd = raw_connect(&broker);
	raw_ask(fd, &hello, sizeof(hello), NULL, 0, &welcome, sizeof(welcome));
	memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW);
	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES | RBK_WIRE_ARENA_FIX, NULL, NULL),
			 -EINVAL);
	raw_expect_closed(fd);
	close(memfd);
	close(fd);
}

static int punch(const struct raw_ring *ring, size_t from)
{
	return fallocate(ring->sq_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			 (off_t)(ring->sq_bytes - from));
}

/*
 * A reader of the submission area would sleep for as long as the client punches holes there. So it
 * can do that before its first bell only, and before that nothing is read.
 */
TEST(test_ring__hole_punching, begin, end)
{
	struct raw_ring ring;
	struct rbk_cqe cqe;
	int fd = session();

	raw_ring_add(fd, 256, &ring);
	/* An entry of zeros is a NOP with user_data 0. */
	raw_ring_next(&ring)->user_data = 1;
	assert_int_equal(punch(&ring, 0), 0);
	for (unsigned int i = 0; i < 2000; i++) {
		if (i > 0)
			*raw_ring_next(&ring) = (struct rbk_sqe){.user_data = i};
		raw_ring_publish(&ring);
		assert_true(raw_ring_take(&ring, &cqe));
		assert_int_equal(cqe.res, 0);
		assert_int_equal(cqe.user_data, i);
		assert_int_equal(punch(&ring, i % 2 ? 4096 : 0), -1);
		assert_int_equal(errno, EPERM);
	}
	assert_int_equal(madvise(ring.sq, ring.sq_bytes, MADV_REMOVE), -1);
	assert_ptr_equal(
		mmap(NULL, ring.sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring.sq_fd, 0),
		MAP_FAILED);
	raw_ring_close(&ring);
	close(fd);
}

/* A client that keeps the broker from sealing its area loses its session, and nothing is read. */
TEST(test_ring__cannot_be_sealed, begin, end)
{
	struct raw_ring ring;
	int fd = session();

	raw_ring_add(fd, 256, &ring);
	assert_int_equal(fcntl(ring.sq_fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	*raw_ring_next(&ring) = (struct rbk_sqe){.user_data = 1};
	raw_ring_publish(&ring);
	raw_expect_closed(fd);
	assert_int_equal(ring.cq->cq_tail, 0);
	raw_ring_close(&ring);
	close(fd);
}

/* Descriptors in a bell are never closed by the reactor: the session ends, or the kernel refuses.
 */
TEST(test_ring__descriptor_in_bell, begin, end)
{
	struct raw_ring ring;
	struct rbk_cqe cqe;
	int fd = session();

	raw_ring_add(fd, 256, &ring);
	if (raw_send(ring.bell, "", 1, &fd, 1) > 0) {
		raw_expect_closed(fd);
	} else {
		*raw_ring_next(&ring) = (struct rbk_sqe){.user_data = 1};
		raw_ring_publish(&ring);
		assert_true(raw_ring_take(&ring, &cqe));
	}
	raw_ring_close(&ring);
	close(fd);
}

TEST(test_arena__cannot_be_truncated, begin, end)
{
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), fd = session();

	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, NULL, NULL), 0);
	assert_int_equal(ftruncate(memfd, 0), -1);
	close(memfd);
	close(fd);
}

/* ---- What the broker shares ---- */

TEST(test_completions__cannot_be_written, begin, end)
{
	struct raw_ring ring;
	int fd = session(), again;
	char path[64];

	raw_ring_add(fd, 64, &ring);
	assert_ptr_equal(
		mmap(NULL, ring.cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring.cq_fd, 0),
		MAP_FAILED);
	assert_int_equal(mprotect((void *)ring.cq, ring.cq_bytes, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(pwrite(ring.cq_fd, "x", 1, 0), -1);
	assert_int_equal(ftruncate(ring.cq_fd, 0), -1);
	assert_int_equal(ftruncate(ring.cq_fd, 1 << 20), -1);
	assert_int_equal(fallocate(ring.cq_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
			 -1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ring.cq_fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0) {
		assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
		assert_int_equal(pwrite(again, "x", 1, 0), -1);
		close(again);
	}
	assert_true(fcntl(ring.cq_fd, F_GET_SEALS) & F_SEAL_SEAL);
	assert_int_equal(fcntl(ring.sq_fd, F_GET_SEALS), SHRINK_GROW);
	assert_int_equal(ftruncate(ring.sq_fd, 0), -1);
	raw_ring_close(&ring);
	close(fd);
}

/* Flags of a description that both sides hold, and of the ends that are the client's own. */
TEST(test_descriptors__flags_changed, begin, end)
{
	struct rbk_stats stats;
	struct raw_ring ring;
	struct rbk_cqe cqe;
	int fd = session(), none = 0, one = 1;
	struct linger linger = {.l_onoff = 1, .l_linger = 60};

	raw_ring_add(fd, 64, &ring);
	assert_int_equal(fcntl(ring.bell, F_SETFL, 0), 0);
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	setsockopt(ring.bell, SOL_SOCKET, SO_RCVBUF, &none, sizeof(none));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &none, sizeof(none));
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	/* A sleeper that changes its token for ever and never reads its bell. */
	for (unsigned int i = 0; i < 20000; i++) {
		rbk_ring_announce_sleep(&ring.sq->cq_wait, i + 1);
		*raw_ring_next(&ring) = (struct rbk_sqe){.user_data = i};
		raw_ring_publish(&ring);
		assert_true(raw_ring_take(&ring, &cqe));
	}
	assert_int_equal(rbk_stats(observer, &stats), 0);
	raw_ring_close(&ring);
	close(fd);
}

/* ---- References ---- */

TEST(test_refs__out_of_bounds, begin, end)
{
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), fd = session();
	int constant = raw_memfd(ARENA_BYTES, false, IMMUTABLE);
	uint32_t arena, immutable, plan;
	struct raw_ring ring;

	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, &arena, NULL), 0);
	assert_int_equal(raw_arena_add(fd, constant, ARENA_BYTES, &immutable, NULL), 0);
	plan = add_plan(fd);
	raw_ring_add(fd, 8, &ring);
	const uint64_t ok = RBK_REF(arena, 0), last = RBK_REF(arena, ARENA_BYTES - 64);

	assert_int_equal(run_add(&ring, plan, ok, ok, last), 0);
	assert_int_equal(run_add(&ring, plan, ok, ok, RBK_REF(arena, ARENA_BYTES)), -EFAULT);
	assert_int_equal(run_add(&ring, plan, ok, RBK_REF(arena, ARENA_BYTES), last), -EFAULT);
	assert_int_equal(run_add(&ring, plan, RBK_REF(arena, (1ull << 48) - 64), ok, last),
			 -EFAULT);
	assert_int_equal(run_add(&ring, plan, RBK_REF(arena, 4), ok, last), -EINVAL);
	assert_int_equal(run_add(&ring, plan, RBK_REF(1023, 0), ok, last), -EBADF);
	assert_int_equal(run_add(&ring, plan, RBK_REF(65535, 0), ok, last), -EBADF);
	assert_int_equal(run_add(&ring, plan, ok, ok, RBK_REF(immutable, 0)), -EACCES);
	assert_int_equal(run_add(&ring, plan, RBK_REF(immutable, 0), ok, last), 0);
	assert_int_equal(run_add(&ring, plan, ok, ok, ok), -EINVAL);
	raw_ring_close(&ring);
	close(memfd);
	close(constant);
	close(fd);
}

/* One memfd registered twice is still one memory. */
TEST(test_refs__overlap_through_two_arenas, begin, end)
{
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), fd = session();
	uint32_t first, second, plan;
	struct raw_ring ring;

	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, &first, NULL), 0);
	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, &second, NULL), 0);
	assert_int_not_equal(first, second);
	plan = add_plan(fd);
	raw_ring_add(fd, 8, &ring);
	assert_int_equal(
		run_add(&ring, plan, RBK_REF(first, 0), RBK_REF(first, 64), RBK_REF(second, 0)),
		-EINVAL);
	assert_int_equal(
		run_add(&ring, plan, RBK_REF(first, 0), RBK_REF(first, 64), RBK_REF(second, 64)),
		-EINVAL);
	assert_int_equal(
		run_add(&ring, plan, RBK_REF(first, 0), RBK_REF(first, 64), RBK_REF(second, 128)),
		0);
	raw_ring_close(&ring);
	close(memfd);
	close(fd);
}

TEST(test_constants__must_be_immutable, begin, end)
{
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), fd = session();
	struct describe *d = describe_new("plan", 1);
	size_t desc_bytes;
	uint32_t arena;
	void *desc;

	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, &arena, NULL), 0);
	describe_input(d, "x", DESCRIBE_DIMS(16));
	describe_constant(d, "w", RBK_REF(arena, 0), DESCRIBE_DIMS(16));
	describe_output(d, "z", DESCRIBE_DIMS(16));
	describe_node(d, "Add", "add", "x,w", "z");
	desc = describe_finish(d, &desc_bytes);
	assert_int_equal(raw_plan_add(fd, desc, desc_bytes, NULL), -EINVAL);
	free(desc);
	close(memfd);
	close(fd);
}

/* An arena of another session has no name here. */
TEST(test_refs__of_another_session, begin, end)
{
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), owner = session(),
	    thief = session();
	uint32_t arena, plan;
	struct raw_ring ring;

	assert_int_equal(raw_arena_add(owner, memfd, ARENA_BYTES, &arena, NULL), 0);
	plan = add_plan(thief);
	raw_ring_add(thief, 8, &ring);
	assert_int_equal(
		run_add(&ring, plan, RBK_REF(arena, 0), RBK_REF(arena, 64), RBK_REF(arena, 128)),
		-EBADF);
	/* Nor has its plan. */
	assert_int_equal(raw_remove(owner, RBK_WIRE_PLAN_REMOVE, plan), -ENOENT);
	raw_ring_close(&ring);
	close(memfd);
	close(owner);
	close(thief);
}

/* ---- Descriptors that are sent ---- */

static unsigned int fds_of_broker(void)
{
	struct broker_usage usage;

	broker_usage(&broker, &usage);
	return usage.n_fds;
}

/* The count must come back to @n_fds; what is closed in the background may take a moment. */
static void expect_fds(unsigned int n_fds)
{
	for (unsigned int i = 0; i < 2000; i++) {
		if (fds_of_broker() == n_fds)
			return;
		harness_sleep_ms(5);
	}
	assert_int_equal(fds_of_broker(), n_fds);
}

TEST(test_descriptors__none_is_left, begin, end)
{
	static const uint32_t types[] = {0,
					 RBK_WIRE_HELLO,
					 RBK_WIRE_RING_ADD,
					 RBK_WIRE_ARENA_ADD,
					 RBK_WIRE_PLAN_ADD,
					 RBK_WIRE_STATS,
					 4711};
	unsigned int before = fds_of_broker(), n;
	int memfd = raw_memfd(4096, false, SHRINK_GROW), fds[32], fd;
	char message[128] = "";

	/* The broker may just have had a file of /proc open. */
	for (unsigned int i = 0; i < 10; i++) {
		harness_sleep_ms(2);
		n = fds_of_broker();
		before = n < before ? n : before;
	}
	for (unsigned int i = 0; i < 32; i++)
		fds[i] = memfd;
	for (unsigned int t = 0; t < sizeof(types) / sizeof(*types); t++) {
		for (unsigned int n_fds = 1; n_fds <= 32; n_fds *= 2) {
			for (unsigned int bytes = 0; bytes <= 128; bytes += 16) {
				fd = raw_connect(&broker);
				if (t > 1)
					raw_hello(fd);
				memcpy(message, &types[t], sizeof(types[t]));
				raw_send(fd, message, bytes, fds, n_fds);
				raw_send(fd, message, bytes, fds, n_fds);
				close(fd);
			}
		}
	}
	close(memfd);
	broker_wait_sessions(observer, 2);
	expect_fds(before);
}

/* A TCP socket whose close() waits, longer than any test, for a peer that never reads. */
static int lingering_socket(int *ret_listener, int *ret_peer)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger linger = {.l_onoff = 1, .l_linger = 3600};
	socklen_t address_bytes = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;
	static char junk[65536];

	assert_true(listener >= 0 && fd >= 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &address_bytes), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	peer = accept(listener, NULL, NULL);
	assert_true(peer >= 0);
	while (send(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	*ret_listener = listener;
	*ret_peer = peer;
	return fd;
}

/* Closing a descriptor may take as long as its sender likes: nobody else waits for it. */
static void expect_nobody_waits(const void *request, size_t request_bytes)
{
	int fd = session(), listener, peer, slow = lingering_socket(&listener, &peer);
	struct rbk_arena *arena = NULL;
	struct rbk_stats stats;
	uint64_t n_results;

	/* Whoever closes it last waits for the peer: that must not be us. */
	kill(broker.pid, SIGSTOP);
	assert_int_equal(waitpid(broker.pid, NULL, WUNTRACED), broker.pid);
	assert_true(raw_send(fd, request, request_bytes, &slow, 1) > 0);
	close(slow);
	kill(broker.pid, SIGCONT);
	harness_sleep_ms(20);
	assert_int_equal(rbk_stats(observer, &stats), 0);
	/* Goes through the setup thread. */
	assert_int_equal(rbk_arena_new(observer, 4096, &arena, NULL), 0);
	rbk_arena_free(arena);
	/* All of this, and more tasks than are in flight, while it is not closed. */
	n_results = neighbour_results(neighbour);
	while (neighbour_results(neighbour) < n_results + 10)
		harness_sleep_ms(1);
	close(peer);
	close(listener);
	close(fd);
}

TEST(test_descriptors__slow_to_close, begin, end)
{
	const struct rbk_wire_request stats = {.type = RBK_WIRE_STATS};
	const struct rbk_wire_arena_add arena = {.request = {.type = RBK_WIRE_ARENA_ADD},
						 .bytes = 4096};
	const struct rbk_wire_plan_add plan = {.request = {.type = RBK_WIRE_PLAN_ADD},
					       .desc_bytes = 64,
					       .flags = RBK_WIRE_PLAN_FD};

	expect_nobody_waits(&stats, sizeof(stats));
	expect_nobody_waits(&arena, sizeof(arena));
	expect_nobody_waits(&plan, sizeof(plan));
}

/* ---- Answers that nobody reads ---- */

static void send_stats(int fd, unsigned int n)
{
	const struct rbk_wire_request stats = {.type = RBK_WIRE_STATS};

	for (unsigned int i = 0; i < n; i++)
		assert_true(raw_send(fd, &stats, sizeof(stats), NULL, 0) > 0);
}

/* How many answers to STATS the broker can send without one being read. */
static unsigned int answers_that_fit(void)
{
	struct rbk_wire_stats reply;
	unsigned int n = 0;
	int fd = session();

	send_stats(fd, 1);
	for (;;) {
		harness_sleep_ms(1);
		if (raw_send(fd, &(struct rbk_wire_request){.type = RBK_WIRE_STATS}, 8, NULL, 0) <
		    0)
			break;
		assert_true(n++ < 100000);
	}
	for (n = 0; raw_receive(fd, &reply, sizeof(reply), NULL, NULL, 1000) > 0; n++)
		;
	close(fd);
	return n;
}

/*
 * The answer to a RING_REMOVE is the one that has no room: the session ends while the end of its
 * ring is being worked on, and its other ring has tasks in flight.
 */
TEST(test_answers__full_at_the_end_of_a_ring, begin, end)
{
	const struct rbk_wire_id remove = {.request = {.type = RBK_WIRE_RING_REMOVE}, .id = 1};
	unsigned int n_fit = answers_that_fit();
	struct raw_ring busy, removed;
	uint32_t arena, plan;
	int memfd, fd;

	assert_true(n_fit > 10);
	for (unsigned int n = n_fit - 2; n <= n_fit + 1; n++) {
		memfd = raw_memfd(8 << 20, false, SHRINK_GROW);
		fd = session();
		assert_int_equal(raw_arena_add(fd, memfd, 8 << 20, &arena, NULL), 0);
		plan = add_product_plan(fd);
		raw_ring_add(fd, 64, &busy);
		raw_ring_add(fd, 64, &removed);
		send_stats(fd, n);
		harness_sleep_ms(50);
		for (unsigned int i = 0; i < 64; i++)
			*raw_ring_next(&busy) = (struct rbk_sqe){
				.opcode = RBK_OP_RUN,
				/* One after the other: they write the same tensor. */
				.flags = RBK_SQE_LINK,
				.plan_id = plan,
				.count = 1,
				.refs = {RBK_REF(arena, 0), RBK_REF(arena, 2 << 20),
					 RBK_REF(arena, 4 << 20)},
			};
		raw_ring_publish(&busy);
		raw_send(fd, &remove, sizeof(remove), NULL, 0);
		harness_sleep_ms(20);
		raw_ring_close(&busy);
		raw_ring_close(&removed);
		close(memfd);
		close(fd);
		broker_wait_sessions(observer, 2);
	}
}

/* ---- Scratch ---- */

/* Scratch memory never shows what another session left there. */
TEST(test_scratch__not_readable, begin, end)
{
	/*
	 * No operator reads scratch that was not written before: the description of such a plan
	 * is refused, so there is no way to look.
	 */
	struct describe *d = describe_new("peek", 1);
	size_t desc_bytes;
	int fd = session();
	void *desc;

	describe_input(d, "x", DESCRIBE_DIMS(16));
	describe_tensor(d, "s", RBK_TENSOR_SCRATCH, RBK_DTYPE_F32, 0, DESCRIBE_DIMS(16));
	describe_output(d, "z", DESCRIBE_DIMS(16));
	describe_node(d, "Add", "peek", "x,s", "z");
	desc = describe_finish(d, &desc_bytes);
	assert_int_equal(raw_plan_add(fd, desc, desc_bytes, NULL), -EINVAL);
	free(desc);
	close(fd);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(110))
