/* SPDX-License-Identifier: MIT */
/*
 * The rules of trust, one by one: a client must not harm the broker or another client through the
 * memory and descriptors that it shares with the broker. A neighbour computes meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integration/hostile.h"
#include "shm/ring.h"
#include "support/describe.h"
#include "support/test.h"

enum { ARENA_BYTES = 65536 };

/* Add a product of 512 x 512 matrices, which takes a millisecond or more. */
static uint32_t add_product_plan(int fd)
{
	struct describe *d = describe_new("product", 1);

	describe_input(d, "x", DESCRIBE_DIMS(512, 512));
	describe_input(d, "y", DESCRIBE_DIMS(512, 512));
	describe_output(d, "z", DESCRIBE_DIMS(512, 512));
	describe_node(d, "MatMul", "mul", "x,y", "z");
	return hostile_plan(fd, d);
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

/* Run one Add. Return: its result. */
static int run_add(struct raw_ring *ring, uint32_t plan_id, uint64_t x, uint64_t y, uint64_t z)
{
	struct rbk_cqe cqe;

	prep_add(raw_ring_next(ring), plan_id, x, y, z);
	raw_ring_publish(ring);
	assert_true(raw_ring_take(ring, &cqe));
	return cqe.res;
}

/* ---- Arenas ---- */

/*
 * Expect that the arena is rejected with @text, and that the session ends with the reason in the
 * log.
 */
static void expect_arena_refused(int memfd, uint64_t bytes, const char *text)
{
	char reason[RBK_WIRE_TEXT_BYTES];
	int fd = hostile_session();

	if (raw_arena_add(fd, memfd, bytes, NULL, reason) != -EINVAL || !strstr(reason, text))
		fail_msg("the answer says \"%s\", expected \"%s\"", reason, text);
	raw_expect_closed(fd);
	broker_wait_log(&broker, text);
	close(fd);
	close(memfd);
}

TEST(test_arena__unsealed, hostile_begin, hostile_end)
{
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, 0), ARENA_BYTES, "is not sealed");
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, F_SEAL_SHRINK), ARENA_BYTES,
			     "is not sealed");
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, F_SEAL_GROW), ARENA_BYTES,
			     "is not sealed");
}

TEST(test_arena__sparse, hostile_begin, hostile_end)
{
	int fd = raw_memfd(ARENA_BYTES, true, 0);

	/* All pages but one are allocated. */
	assert_int_equal(fallocate(fd, 0, 4096, ARENA_BYTES - 4096), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, SHRINK_GROW), 0);
	expect_arena_refused(fd, ARENA_BYTES, "is sparse");
	expect_arena_refused(raw_memfd(1ul << 30, true, SHRINK_GROW), 1ul << 30, "is sparse");
}

TEST(test_arena__wrong_size, hostile_begin, hostile_end)
{
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), 2 * ARENA_BYTES,
			     "another size");
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), ARENA_BYTES / 2,
			     "another size");
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), 0, "page size");
	expect_arena_refused(raw_memfd(5000, false, SHRINK_GROW), 5000, "page size");
}

TEST(test_arena__future_write, hostile_begin, hostile_end)
{
	expect_arena_refused(raw_memfd(ARENA_BYTES, false, SHRINK_GROW | F_SEAL_FUTURE_WRITE),
			     ARENA_BYTES, "F_SEAL_FUTURE_WRITE only");
}

TEST(test_arena__opened_read_only, hostile_begin, hostile_end)
{
	expect_arena_refused(hostile_reopen(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), O_RDONLY),
			     ARENA_BYTES, "not open for reading and writing");
	expect_arena_refused(hostile_reopen(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), O_WRONLY),
			     ARENA_BYTES, "not open for reading and writing");
}

TEST(test_arena__immutable_opened_read_only, hostile_begin, hostile_end)
{
	int memfd = hostile_reopen(raw_memfd(ARENA_BYTES, false, IMMUTABLE), O_RDONLY),
	    fd = hostile_session();

	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, NULL, NULL), 0);
	close(memfd);
	close(fd);
}

TEST(test_arena__no_memfd, hostile_begin, hostile_end)
{
	char path[] = "/tmp/rbk-test-file-XXXXXX";
	int fds[2], fd;

	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, ARENA_BYTES), 0);
	/* "a memfd", or "sealed" if /tmp is a tmpfs. */
	expect_arena_refused(fd, ARENA_BYTES, "is not ");
	unlink(path);
	assert_int_equal(pipe(fds), 0);
	expect_arena_refused(fds[0], ARENA_BYTES, "is not a memfd");
	expect_arena_refused(fds[1], ARENA_BYTES, "is not a memfd");
	expect_arena_refused(socket(AF_INET, SOCK_STREAM, 0), ARENA_BYTES, "is not a memfd");
	expect_arena_refused(open("/", O_RDONLY | O_DIRECTORY), ARENA_BYTES, "is not a memfd");
	expect_arena_refused(open("/dev/zero", O_RDWR), ARENA_BYTES, "is not a");
	expect_arena_refused(hostile_reopen(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), O_PATH),
			     ARENA_BYTES, "is not a memfd");
	fd = open("/dev/shm", O_RDWR | O_TMPFILE, 0600);
	if (fd >= 0) {
		assert_int_equal(posix_fallocate(fd, 0, ARENA_BYTES), 0);
		expect_arena_refused(fd, ARENA_BYTES, "is not sealed");
	}
}

TEST(test_arena__hugetlb, hostile_begin, hostile_end)
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

/* Punched pages read as zeros, and harm no other client. */
TEST(test_arena__hole_punching, hostile_begin, hostile_end)
{
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), fd = hostile_session();
	struct raw_ring ring;
	uint32_t arena, plan;
	float *data;

	data = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	assert_ptr_not_equal(data, MAP_FAILED);
	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, &arena, NULL), 0);
	plan = hostile_plan(fd, hostile_add());
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
 * An arena that the client asks to fix can get no holes afterwards, and stays writable through
 * existing mappings. Without the feature, the bit makes the size invalid.
 */
TEST(test_arena__fixed, hostile_begin, hostile_end)
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
	plan = hostile_plan(fd, hostile_add());
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
 * A reader of the submission area could sleep for as long as the client punches holes there. Holes
 * are therefore possible only before the first doorbell, and nothing is read before it.
 */
TEST(test_ring__hole_punching, hostile_begin, hostile_end)
{
	struct raw_ring ring;
	struct rbk_cqe cqe;
	int fd = hostile_session();

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

/*
 * A client that prevents the sealing of its submission area loses its session, and nothing is read.
 */
TEST(test_ring__cannot_be_sealed, hostile_begin, hostile_end)
{
	struct raw_ring ring;
	int fd = hostile_session();

	raw_ring_add(fd, 256, &ring);
	assert_int_equal(fcntl(ring.sq_fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	*raw_ring_next(&ring) = (struct rbk_sqe){.user_data = 1};
	raw_ring_publish(&ring);
	raw_expect_closed(fd);
	assert_int_equal(ring.cq->cq_tail, 0);
	raw_ring_close(&ring);
	close(fd);
}

/*
 * The reactor never closes descriptors that a client sends to a doorbell: the session ends, or the
 * kernel rejects them.
 */
TEST(test_ring__descriptor_in_bell, hostile_begin, hostile_end)
{
	struct raw_ring ring;
	struct rbk_cqe cqe;
	int fd = hostile_session();

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

TEST(test_arena__cannot_be_truncated, hostile_begin, hostile_end)
{
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), fd = hostile_session();

	assert_int_equal(raw_arena_add(fd, memfd, ARENA_BYTES, NULL, NULL), 0);
	assert_int_equal(ftruncate(memfd, 0), -1);
	close(memfd);
	close(fd);
}

/* ---- Memory and descriptors of the broker ---- */

TEST(test_completions__cannot_be_written, hostile_begin, hostile_end)
{
	struct raw_ring ring;
	int fd = hostile_session(), again;
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

/* Change flags of descriptions that both sides share, and of the client's own ends. */
TEST(test_descriptors__flags_changed, hostile_begin, hostile_end)
{
	struct rbk_stats stats;
	struct raw_ring ring;
	struct rbk_cqe cqe;
	int fd = hostile_session(), none = 0, one = 1;
	struct linger linger = {.l_onoff = 1, .l_linger = 60};

	raw_ring_add(fd, 64, &ring);
	assert_int_equal(fcntl(ring.bell, F_SETFL, 0), 0);
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	setsockopt(ring.bell, SOL_SOCKET, SO_RCVBUF, &none, sizeof(none));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &none, sizeof(none));
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	/* A sleeper that changes its token without end and never reads its doorbell. */
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

TEST(test_constants__must_be_immutable, hostile_begin, hostile_end)
{
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), fd = hostile_session();
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

/* A session cannot refer to another session's arena. */
TEST(test_refs__of_another_session, hostile_begin, hostile_end)
{
	int memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW), owner = hostile_session(),
	    thief = hostile_session();
	uint32_t arena, plan;
	struct raw_ring ring;

	assert_int_equal(raw_arena_add(owner, memfd, ARENA_BYTES, &arena, NULL), 0);
	plan = hostile_plan(thief, hostile_add());
	raw_ring_add(thief, 8, &ring);
	assert_int_equal(
		run_add(&ring, plan, RBK_REF(arena, 0), RBK_REF(arena, 64), RBK_REF(arena, 128)),
		-EBADF);
	/* The other session cannot remove its plan either. */
	assert_int_equal(raw_remove(owner, RBK_WIRE_PLAN_REMOVE, plan), -ENOENT);
	raw_ring_close(&ring);
	close(memfd);
	close(owner);
	close(thief);
}

/* ---- Unread replies ---- */

static void send_stats(int fd, unsigned int n)
{
	const struct rbk_wire_request stats = {.type = RBK_WIRE_STATS};

	for (unsigned int i = 0; i < n; i++)
		assert_true(raw_send(fd, &stats, sizeof(stats), NULL, 0) > 0);
}

/* Return the number of replies to STATS that the broker can send before one is read. */
static unsigned int answers_that_fit(void)
{
	struct rbk_wire_stats reply;
	unsigned int n = 0;
	int fd = hostile_session();

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
 * The socket has no room for the reply to a RING_REMOVE. The session ends while the ring's removal
 * is in progress and the session's other ring has tasks in flight.
 */
TEST(test_answers__full_at_the_end_of_a_ring, hostile_begin, hostile_end)
{
	const struct rbk_wire_id remove = {.request = {.type = RBK_WIRE_RING_REMOVE}, .id = 1};
	unsigned int n_fit = answers_that_fit();
	struct raw_ring busy, removed;
	uint32_t arena, plan;
	int memfd, fd;

	assert_true(n_fit > 10);
	for (unsigned int n = n_fit - 2; n <= n_fit + 1; n++) {
		memfd = raw_memfd(8 << 20, false, SHRINK_GROW);
		fd = hostile_session();
		assert_int_equal(raw_arena_add(fd, memfd, 8 << 20, &arena, NULL), 0);
		plan = add_product_plan(fd);
		raw_ring_add(fd, 64, &busy);
		raw_ring_add(fd, 64, &removed);
		send_stats(fd, n);
		harness_sleep_ms(50);
		for (unsigned int i = 0; i < 64; i++)
			*raw_ring_next(&busy) = (struct rbk_sqe){
				.opcode = RBK_OP_RUN,
				/* One after the other, because they write the same tensor. */
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

TEST_MAIN(NULL, NULL, harness_limit_seconds(110))
