/* SPDX-License-Identifier: MIT */
/* Arenas: memory, allocation, references, sealing and all that can prevent it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fail-alloc.h"
#include "support/client-fixture.h"
#include "support/test.h"

TEST(test_arena__memory)
{
	struct rbk_arena *arena = NULL;
	struct stat stat;
	unsigned char *data;

	FIXTURE(fixture, NULL);
	assert_int_equal(rbk_arena_new(fixture.rbk, 0, &arena, &fixture.error), -EINVAL);
	assert_int_equal(rbk_arena_new(fixture.rbk, SIZE_MAX, &arena, &fixture.error), -EINVAL);
	assert_int_equal(rbk_arena_new(fixture.rbk, 1ull << 47, &arena, &fixture.error), -ENOMEM);
	assert_non_null(strstr(fixture.error.text, "140737488355328 bytes"));
	assert_int_equal(rbk_arena_new(fixture.rbk, 10000, &arena, &fixture.error), 0);
	assert_int_equal(rbk_arena_bytes(arena), 12288);
	data = rbk_arena_data(arena);
	for (size_t i = 0; i < 12288; i++)
		assert_int_equal(data[i], 0);
	memset(data, 1, 12288);

	/* As the broker requires: sealed, not sparse, closed on exec(). */
	assert_int_equal(fcntl(arena->fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
	assert_int_equal(fcntl(arena->fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fstat(arena->fd, &stat), 0);
	assert_int_equal(stat.st_size, 12288);
	assert_int_equal(stat.st_blocks, 24);
	assert_null(rbk_arena_free(arena));
	assert_null(rbk_arena_free(NULL));
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

TEST(test_arena__alloc)
{
	struct rbk_arena *arena = NULL;
	unsigned char *data;

	FIXTURE(fixture, NULL);
	assert_int_equal(rbk_arena_new(fixture.rbk, 4096, &arena, NULL), 0);
	data = rbk_arena_data(arena);
	assert_ptr_equal(rbk_arena_alloc(arena, 1), data);
	assert_ptr_equal(rbk_arena_alloc(arena, 64), data + 64);
	assert_ptr_equal(rbk_arena_alloc(arena, 65), data + 128);
	assert_null(rbk_arena_alloc(arena, 4096 - 256 + 1));
	assert_null(rbk_arena_alloc(arena, SIZE_MAX));
	assert_ptr_equal(rbk_arena_alloc(arena, 4096 - 256), data + 256);
	assert_null(rbk_arena_alloc(arena, 1));
	rbk_arena_reset(arena);
	assert_ptr_equal(rbk_arena_alloc(arena, 4096), data);

	assert_int_equal(rbk_arena_ref(arena, 128), RBK_REF(arena->id, 128));
	assert_int_equal(rbk_ref(arena, data + 128), RBK_REF(arena->id, 128));
	assert_int_equal(rbk_arena_ref(arena, 4096), RBK_REF_INVALID);
	assert_int_equal(rbk_ref(arena, data - 64), RBK_REF_INVALID);
	assert_int_equal(rbk_ref(arena, data + 4096), RBK_REF_INVALID);
	rbk_arena_free(arena);
}

/* Return true if a write to @at ends a process with SIGSEGV. */
static bool write_faults(volatile unsigned char *at)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		*at = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

TEST(test_seal__immutable)
{
	struct rbk_arena *arena = NULL;
	unsigned char *data;
	uint64_t ref;

	FIXTURE(fixture, NULL);
	assert_int_equal(rbk_arena_new(fixture.rbk, 4096, &arena, NULL), 0);
	data = rbk_arena_alloc(arena, 100);
	memset(data, 42, 100);
	ref = rbk_ref(arena, data);
	assert_false(write_faults(data));
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);

	assert_ptr_equal(rbk_arena_data(arena), data);
	assert_int_equal(data[99], 42);
	assert_true(write_faults(data));
	assert_true(fcntl(arena->fd, F_GET_SEALS) & F_SEAL_WRITE);
	assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, arena->fd, 0), MAP_FAILED);
	assert_null(rbk_arena_alloc(arena, 1));
	/* The arena was removed and shared again, so its references are new. */
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_REMOVE), 1);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_ADD), 2);
	assert_int_not_equal(rbk_ref(arena, data), ref);
	/* A second seal makes no request. */
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_ADD), 2);
	rbk_arena_free(arena);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

/* The broker rejects the removal because tasks use the arena: nothing changes. */
TEST(test_seal__in_use)
{
	struct fake_options options = {.fault = FAKE_REFUSE_BARE,
				       .fault_type = RBK_WIRE_ARENA_REMOVE};
	struct rbk_arena *arena = NULL;
	unsigned char *data;
	uint64_t ref;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_arena_new(fixture.rbk, 4096, &arena, NULL), 0);
	data = rbk_arena_alloc(arena, 1);
	ref = rbk_ref(arena, data);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), -EBUSY);
	*data = 1;
	assert_int_equal(rbk_ref(arena, data), ref);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);
	rbk_arena_free(arena);
}

/*
 * Tasks use the arena for too long: the broker will remove it later, so its references are invalid.
 * Afterwards it can be used as usual.
 */
TEST(test_seal__tasks_outlast_the_timeout)
{
	struct fake_options options = {.fault = FAKE_HELD, .fault_type = RBK_WIRE_ARENA_REMOVE};
	struct rbk_arena *arena = NULL;
	struct fixture fixture;
	unsigned char *data;

	fixture_begin(&fixture, &options);
	assert_int_equal(fixture_connect(&fixture, 50000000), 0);
	assert_int_equal(rbk_arena_new(fixture.rbk, 4096, &arena, NULL), 0);
	data = rbk_arena_alloc(arena, 1);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), -ETIME);
	*data = 1;
	assert_int_equal(rbk_ref(arena, data), RBK_REF_INVALID);
	fake_broker_release(fixture.fake);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);
	assert_int_not_equal(rbk_ref(arena, data), RBK_REF_INVALID);
	rbk_arena_free(arena);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
	fixture_end(&fixture);
}

/* Return an arena whose byte at *ret_data is 7, and which is also mapped writable at *ret_other. */
static struct rbk_arena *arena_mapped_twice(struct fixture *fixture, unsigned char **ret_data,
					    void **ret_other)
{
	struct rbk_arena *arena = NULL;

	assert_int_equal(rbk_arena_new(fixture->rbk, 4096, &arena, NULL), 0);
	*ret_data = rbk_arena_alloc(arena, 1);
	**ret_data = 7;
	*ret_other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);
	assert_ptr_not_equal(*ret_other, MAP_FAILED);
	return arena;
}

/* The arena is also mapped writable elsewhere: it is not sealed, but shared again, unchanged. */
TEST(test_seal__mapped_elsewhere)
{
	struct rbk_arena *arena;
	unsigned char *data;
	void *other;

	FIXTURE(fixture, NULL);
	arena = arena_mapped_twice(&fixture, &data, &other);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), -EBUSY);
	assert_non_null(strstr(fixture.error.text, "another process still maps it"));
	assert_int_equal(*data, 7);
	*data = 8;
	assert_int_equal(*(unsigned char *)other, 8);
	assert_int_not_equal(rbk_ref(arena, data), RBK_REF_INVALID);
	munmap(other, 4096);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);
	assert_int_equal(*data, 8);
	rbk_arena_free(arena);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

/* The arena also cannot be mapped writable again: a copy replaces it. */
TEST(test_seal__mapped_elsewhere_and_fixed)
{
	struct rbk_arena *arena;
	unsigned char *data;
	void *other;

	FIXTURE(fixture, NULL);
	arena = arena_mapped_twice(&fixture, &data, &other);
	assert_int_equal(fcntl(arena->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), -EBUSY);
	assert_int_equal(*data, 7);
	*data = 8;
	assert_int_equal(*(unsigned char *)other, 7);
	assert_int_not_equal(rbk_ref(arena, data), RBK_REF_INVALID);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);
	assert_int_equal(*data, 8);
	munmap(other, 4096);
	rbk_arena_free(arena);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

/* The arena is sealed, but the broker does not take it back: the next call tries again. */
TEST(test_seal__not_shared_again)
{
	struct fake_options options = {
		.fault = FAKE_REFUSE, .fault_type = RBK_WIRE_ARENA_ADD, .fault_at = 1};
	struct rbk_arena *arena = NULL;
	unsigned char *data;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_arena_new(fixture.rbk, 4096, &arena, NULL), 0);
	data = rbk_arena_alloc(arena, 1);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), -EDQUOT);
	assert_int_equal(rbk_ref(arena, data), RBK_REF_INVALID);
	assert_int_equal(*data, 0);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);
	assert_int_not_equal(rbk_ref(arena, data), RBK_REF_INVALID);
	rbk_arena_free(arena);
}

/* Any failing allocation gives -ENOMEM and leaves nothing behind. */
TEST(test_arena__no_memory)
{
	struct rbk_arena *arena = NULL;
	struct rbk_ring *ring;
	unsigned int n_failures = 0;
	int r;

	FIXTURE(fixture, NULL);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = rbk_arena_new(fixture.rbk, 4096, &arena, &fixture.error);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		n_failures++;
	}
	assert_int_equal(r, 0);
	assert_true(n_failures >= 2);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = rbk_arena_seal(arena, &fixture.error);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_int_equal(r, 0);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = rbk_ring_new(fixture.rbk, 8, &ring, &fixture.error);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_int_equal(r, 0);
	rbk_ring_free(ring);
	rbk_arena_free(arena);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

/* The broker makes the memory; all else is as with a memfd. */
TEST(test_new__exported)
{
	struct fake_options options = {.exports = true, .segment_bytes = 4096};
	struct rbk_arena *arena = NULL, *memfd = NULL;
	unsigned char *data;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_arena_new(fixture.rbk, 10000, &arena, &fixture.error), 0);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_NEW), 1);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_ADD), 0);
	assert_int_equal(rbk_arena_bytes(arena), 12288);
	assert_int_equal(fcntl(arena->fd, F_GETFD), FD_CLOEXEC);
	/* The arena is one segment. */
	data = rbk_arena_alloc(arena, 100);
	assert_ptr_equal(data, rbk_arena_data(arena));
	assert_ptr_equal(rbk_arena_alloc(arena, 4096), data + 128);
	memset(data, 7, 12288);
	assert_int_equal(rbk_ref(arena, data + 64), RBK_REF(arena->id, 64));

	assert_int_equal(rbk_arena_new_flags(fixture.rbk, 1, 2, &memfd, &fixture.error), -EINVAL);
	assert_int_equal(rbk_arena_new_flags(fixture.rbk, 1, RBK_ARENA_MEMFD, &memfd, NULL), 0);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_NEW), 1);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_ADD), 1);
	assert_int_equal(fcntl(memfd->fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
	rbk_arena_free(memfd);
	rbk_arena_free(arena);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

/* The broker fails once: the client uses its own memory. */
TEST(test_new__falls_back)
{
	struct fake_options options = {
		.exports = true, .fault = FAKE_REFUSE, .fault_type = RBK_WIRE_ARENA_NEW};
	struct rbk_arena *arena = NULL;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_arena_new(fixture.rbk, 4096, &arena, &fixture.error), 0);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_NEW), 1);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_ADD), 1);
	assert_int_equal(fcntl(arena->fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);
	rbk_arena_free(arena);
}

/* The broker's answer comes after the timeout: the arena is given back. */
TEST(test_new__exported_after_timeout)
{
	struct fake_options options = {
		.exports = true, .fault = FAKE_HELD, .fault_type = RBK_WIRE_ARENA_NEW};
	struct rbk_arena *arena = NULL;
	struct rbk_stats stats;

	FIXTURE(fixture, &options);
	fixture.rbk->timeout_ns = 50000000;
	assert_int_equal(rbk_arena_new(fixture.rbk, 4096, &arena, &fixture.error), -ETIME);
	assert_null(arena);
	fixture.rbk->timeout_ns = 60000000000u;
	fake_broker_release(fixture.fake);
	assert_int_equal(rbk_stats(fixture.rbk, &stats), 0);
	assert_int_equal(rbk_stats(fixture.rbk, &stats), 0);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_REMOVE), 1);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

/*
 * An exported arena cannot be sealed: a copy replaces it, with the same bytes at the same address.
 */
TEST(test_seal__exported)
{
	struct fake_options options = {.exports = true};
	struct rbk_arena *arena = NULL;
	unsigned char *data;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_arena_new(fixture.rbk, 65536, &arena, NULL), 0);
	data = rbk_arena_alloc(arena, 65536);
	for (size_t i = 0; i < 65536; i++)
		data[i] = (unsigned char)(i * 7);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);
	assert_ptr_equal(rbk_arena_data(arena), data);
	for (size_t i = 0; i < 65536; i++)
		assert_int_equal(data[i], (unsigned char)(i * 7));
	assert_true(write_faults(data));
	assert_true(fcntl(arena->fd, F_GET_SEALS) & F_SEAL_WRITE);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_REMOVE), 1);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_ADD), 1);
	assert_int_not_equal(rbk_ref(arena, data), RBK_REF_INVALID);
	rbk_arena_free(arena);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

/* An allocation crosses a segment's end only if it must. */
TEST(test_alloc__segments)
{
	struct fake_options options = {.segment_bytes = 8192};
	struct rbk_arena *arena = NULL;
	unsigned char *data;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_arena_new(fixture.rbk, 5 * 8192 + 4096, &arena, NULL), 0);
	data = rbk_arena_data(arena);
	assert_ptr_equal(rbk_arena_alloc(arena, 4096), data);
	/* Exactly up to the end, and from the beginning. */
	assert_ptr_equal(rbk_arena_alloc(arena, 4096), data + 4096);
	assert_ptr_equal(rbk_arena_alloc(arena, 64), data + 8192);
	assert_ptr_equal(rbk_arena_alloc(arena, 8192), data + 2 * 8192);
	assert_ptr_equal(rbk_arena_alloc(arena, 64), data + 3 * 8192);
	assert_ptr_equal(rbk_arena_alloc(arena, 8192 - 63), data + 4 * 8192);
	/* An allocation larger than a segment begins at the current position, without a gap. */
	rbk_arena_reset(arena);
	assert_ptr_equal(rbk_arena_alloc(arena, 64), data);
	assert_ptr_equal(rbk_arena_alloc(arena, 8193), data + 64);
	/* An allocation crosses rather than fails. */
	rbk_arena_reset(arena);
	assert_ptr_equal(rbk_arena_alloc(arena, 4 * 8192 + 64), data);
	assert_ptr_equal(rbk_arena_alloc(arena, 8192), data + 4 * 8192 + 64);
	assert_null(rbk_arena_alloc(arena, 4096));
	assert_non_null(rbk_arena_alloc(arena, 4096 - 64));
	assert_null(rbk_arena_alloc(arena, 1));
	assert_null(rbk_arena_alloc(arena, SIZE_MAX));
	rbk_arena_free(arena);
}

/*
 * Allocations fail while the broker makes the arena: own memory if it can be allocated, else
 * -ENOMEM.
 */
TEST(test_new__exported_no_memory)
{
	struct fake_options options = {.exports = true};
	struct rbk_arena *arena = NULL;
	unsigned int n_tried = 0;
	bool failed;
	int r;

	FIXTURE(fixture, &options);
	do {
		fail_alloc_at(++n_tried);
		r = rbk_arena_new(fixture.rbk, 4096, &arena, &fixture.error);
		failed = fail_alloc_stop();
		assert_true(r == 0 || (failed && r == -ENOMEM));
		if (!r && failed)
			assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);
		if (!r)
			rbk_arena_free(arena);
		assert_int_equal(fake_broker_objects(fixture.fake), 0);
	} while (failed);
	assert_true(n_tried > 2);
	assert_int_equal(rbk_arena_new(fixture.rbk, 4096, &arena, NULL), 0);
	*(unsigned char *)rbk_arena_data(arena) = 9;
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = rbk_arena_seal(arena, &fixture.error);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(*(unsigned char *)rbk_arena_data(arena), 9);
	}
	assert_int_equal(r, 0);
	rbk_arena_free(arena);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}
