/* SPDX-License-Identifier: MIT */
/*
 * Arenas made by a device, as sessions see them: charges, refusals, descriptors that clients keep,
 * sessions that end meanwhile. The device is a fake whose dma-bufs are memfds, and the test sets
 * the kernel's count of holders.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session/server-private.h"
#include "support/session-rig.h"
#include "support/test.h"
#include "unit/fail-alloc.h"
#include "util/clock.h"
#include "util/dma-buf.h"

enum { BYTES = 65536, PAGE = 4096 };

static struct {
	int result;                      /* result of exporting */
	_Atomic unsigned int n_exported; /* exports, on the setup thread */
	unsigned int n_released, n_imported;
	int last_fd;
} device;

static uint64_t n_holders; /* holders of each dma-buf; 0: unknown */

int __wrap_dma_buf_holders(int fd, uint64_t *ret);
int __wrap_dma_buf_holders(int fd, uint64_t *ret)
{
	assert_true(fcntl(fd, F_GETFD) >= 0);
	if (n_holders == 0)
		return DMA_BUF_E_UNKNOWN;
	*ret = n_holders;
	return 0;
}

static int export(struct executor *executor, uint64_t bytes, struct exec_arena *ret, int *ret_fd)
{
	struct stat status;
	int fd;

	if (device.result)
		return device.result;
	fd = memfd_create("exported", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fstat(fd, &status), 0);
	*ret = (struct exec_arena){
		.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
		.bytes = bytes,
		.dev = status.st_dev,
		.ino = status.st_ino,
		.fd = -1,
		.exporter = executor,
	};
	assert_ptr_not_equal(ret->base, MAP_FAILED);
	*ret_fd = device.last_fd = fd;
	device.n_exported++;
	return 0;
}

static void import(struct executor *executor, struct exec_arena *arena)
{
	/* The exporter itself does not import the arena. */
	assert_ptr_not_equal(arena->exporter, executor);
	assert_true(!arena->exporter || arena->fd == device.last_fd);
	device.n_imported++;
}

static void release(struct executor *executor, struct exec_arena *arena)
{
	assert_non_null(arena->base);
	device.n_released++;
}

/* Begin with device 0 (the CPU), device 1 (makes arenas) and device 2. */
static void begin(struct rig *rig)
{
	memset(&device, 0, sizeof(device));
	n_holders = 2;
	rig_init(rig, 3);
	for (int i = 0; i < 3; i++) {
		rig->fakes[i].ops.arena_import = import;
		rig->fakes[i].ops.arena_release = release;
	}
	rig->fakes[1].ops.arena_export = export;
	rig->fakes[1].executor.info.exports_arenas = true;
}

#define BEGIN(name) SCOPED(rig, name, begin, rig_deinit)

static int ask(struct rig *rig, uint64_t bytes, uint32_t *ret_id, int *ret_fd)
{
	struct rbk_wire_id_reply reply = {.reply.res = 1};
	int r;

	assert_int_equal(session_arena_new(rig->session, ++rig->next_cookie, bytes), 0);
	r = rig_answer_fd(rig, RBK_WIRE_ARENA_NEW, &reply, sizeof(reply), ret_fd);
	*ret_id = reply.id;
	return r;
}

static int take_back(struct rig *rig, uint32_t id)
{
	struct rbk_wire_reply reply;

	assert_int_equal(session_arena_remove(rig->session, ++rig->next_cookie, id), 0);
	return rig_answer(rig, RBK_WIRE_ARENA_REMOVE, &reply, sizeof(reply));
}

static uint64_t used(struct rig *rig, enum account_slot slot)
{
	return account_used(rig->session->tenant->account, slot);
}

/* Turn the loop until exactly @bytes are charged as host memory, for at most ten seconds. */
static void wait_charged(struct rig *rig, uint64_t bytes)
{
	uint64_t deadline_ns = clock_now_ns() + 10000000000ull;

	while (used(rig, ACCOUNT_HOST_BYTES) != bytes) {
		assert_true(clock_now_ns() < deadline_ns);
		rig_settle(rig);
		usleep(1000);
	}
}

TEST(test_export__charged)
{
	uint64_t host, fds, mappings;
	struct session_arena *arena;
	uint32_t id;
	void *data;
	int fd;

	BEGIN(rig);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	fds = used(&rig, ACCOUNT_FDS);
	mappings = used(&rig, ACCOUNT_MAPPINGS);
	assert_int_equal(ask(&rig, BYTES, &id, &fd), 0);
	assert_true(fd >= 0);
	assert_int_equal(device.n_exported, 1);
	assert_int_equal(device.n_imported, 2);
	arena = rig.session->arenas[id];
	assert_non_null(arena);
	assert_int_equal(arena->exec.bytes, BYTES);
	assert_false(arena->exec.immutable);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host + BYTES);
	assert_int_equal(used(&rig, ACCOUNT_ARENA_BYTES), BYTES);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds + 1);
	assert_int_equal(used(&rig, ACCOUNT_MAPPINGS), mappings + 1);
	assert_int_equal(used(&rig, ACCOUNT_ARENAS), 1);
	data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(data, MAP_FAILED);
	*(uint32_t *)data = 42;
	assert_int_equal(*(uint32_t *)arena->exec.base, 42);

	/* The arena is removed, but the client still has its descriptor. */
	assert_int_equal(take_back(&rig, id), 0);
	assert_int_equal(device.n_released, 3);
	assert_null(rig.session->arenas[id]);
	assert_int_equal(used(&rig, ACCOUNT_ARENAS), 0);
	assert_int_equal(used(&rig, ACCOUNT_ARENA_BYTES), 0);
	assert_int_equal(used(&rig, ACCOUNT_MAPPINGS), mappings);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host + BYTES);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds + 1);
	*(uint32_t *)data = 43;
	munmap(data, BYTES);
	close(fd);
	n_holders = 1;
	wait_charged(&rig, host);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds);
}

/* If the device has GTT memory, the arena is charged as GTT, too. */
TEST(test_export__gtt)
{
	uint32_t id;
	int fd;

	BEGIN(rig);
	rig.fakes[1].executor.info.gtt_bytes = 1 << 30;
	assert_int_equal(ask(&rig, BYTES, &id, &fd), 0);
	close(fd);
	assert_int_equal(used(&rig, account_gtt(1)), BYTES);
	assert_int_equal(take_back(&rig, id), 0);
	assert_int_equal(used(&rig, account_gtt(1)), BYTES);
	n_holders = 1;
	wait_charged(&rig, used(&rig, ACCOUNT_HOST_BYTES) - BYTES);
	assert_int_equal(used(&rig, account_gtt(1)), 0);
}

/* A client keeps many exported arenas: each is checked in time, however many come before it. */
TEST(test_export__many_kept)
{
	enum { N = 50 };
	uint64_t host;
	uint32_t id;
	int fd;

	BEGIN(rig);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	for (int i = 0; i < N; i++) {
		assert_int_equal(ask(&rig, PAGE, &id, &fd), 0);
		close(fd);
		assert_int_equal(take_back(&rig, id), 0);
	}
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host + N * PAGE);
	n_holders = 0;
	usleep(300000);
	rig_settle(&rig);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host + N * PAGE);
	n_holders = 1;
	wait_charged(&rig, host);
}

/* The session ends, but the memory is kept. Its tenant stays charged until it is freed. */
TEST(test_export__outlives_session)
{
	struct account *account;
	uint32_t id;
	int fd;

	BEGIN(rig);
	assert_int_equal(ask(&rig, BYTES, &id, &fd), 0);
	account = account_ref(rig.session->tenant->account);
	session_end(rig.session, false, "the test wants it");
	for (int i = 0; i < 10000 && !server_is_empty(rig.server); i++) {
		rig_work(&rig);
		rig_settle(&rig);
		usleep(100);
	}
	assert_true(server_is_empty(rig.server));
	/* Threads still close the session's descriptors, which are charged until then. */
	for (int i = 0; i < 10000 && account_used(account, ACCOUNT_HOST_BYTES) != BYTES; i++) {
		rig_settle(&rig);
		usleep(100);
	}
	assert_int_equal(account_used(account, ACCOUNT_HOST_BYTES), BYTES);
	assert_int_equal(account_used(account, ACCOUNT_SESSIONS), 0);
	account_unref(account);
	close(fd);
	/*
	 * The broker ends without waiting for the client: another thread closes the broker's
	 * descriptor.
	 */
	assert_int_equal(server_n_discards(rig.server), 0);
	server_end_sessions(rig.server, "the broker ends");
	assert_int_equal(server_n_discards(rig.server), 1);
}

/*
 * The session ends while the device works on its arenas. The device makes no further arena, and is
 * told of the end of each one that it has made.
 */
TEST(test_export__session_ends_meanwhile)
{
	struct rig rig;

	begin(&rig);
	n_holders = 1;
	for (int i = 0; i < 5; i++)
		assert_int_equal(session_arena_new(rig.session, ++rig.next_cookie, BYTES), 0);
	while (device.n_exported == 0)
		usleep(100);
	session_end(rig.session, false, "the test wants it");
	rig_deinit(&rig);
	assert_in_range(device.n_exported, 1, 5);
	assert_int_equal(device.n_released, 3 * device.n_exported);
}

TEST(test_export__refused)
{
	static const struct {
		uint64_t bytes;
		int device, expected;
	} cases[] = {
		{0, 0, -EINVAL},
		{1, 0, -EINVAL},
		{PAGE + 64, 0, -EINVAL},
		{UINT64_MAX, 0, -EINVAL},
		{UINT64_MAX - PAGE + 1, 0, -EINVAL},
		{(1ull << 48) + PAGE, 0, -EINVAL},
		{1ull << 48, 0, -EDQUOT},
		{(1ull << 40) + PAGE, 0, -EDQUOT},
		{BYTES, EXECUTOR_E_NO_MEMORY, -ENOMEM},
		{BYTES, EXECUTOR_E_UNSUPPORTED, -EOPNOTSUPP},
		{BYTES, -EIO, -EOPNOTSUPP},
		{BYTES, -ENOMEM, -ENOMEM},
		{BYTES, -EMFILE, -EOPNOTSUPP},
	};
	uint64_t host, fds;
	uint32_t id;
	int fd;

	BEGIN(rig);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	fds = used(&rig, ACCOUNT_FDS);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		device.result = cases[i].device;
		assert_int_equal(ask(&rig, cases[i].bytes, &id, &fd), cases[i].expected);
		assert_int_equal(fd, -1);
		assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host);
		assert_int_equal(used(&rig, ACCOUNT_FDS), fds);
		assert_int_equal(used(&rig, ACCOUNT_ARENAS), 0);
	}
	/* No device can make arenas. */
	device.result = 0;
	rig.fakes[1].executor.info.exports_arenas = false;
	assert_int_equal(ask(&rig, BYTES, &id, &fd), -EOPNOTSUPP);
	assert_int_equal(device.n_exported, 0);
}

TEST(test_export__failing_allocations)
{
	uint64_t host;
	uint32_t id;
	bool failed;
	int fd, r;

	BEGIN(rig);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	n_holders = 1;
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		assert_int_equal(session_arena_new(rig.session, ++rig.next_cookie, BYTES), 0);
		failed = fail_alloc_stop();
		{
			struct rbk_wire_id_reply reply = {.reply.res = 1};

			r = rig_answer_fd(&rig, RBK_WIRE_ARENA_NEW, &reply, sizeof(reply), &fd);
			id = reply.id;
		}
		if (!failed)
			break;
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host);
	}
	assert_int_equal(r, 0);
	close(fd);
	/* Removing the arena allocates no memory. */
	fail_alloc_at(1);
	assert_int_equal(take_back(&rig, id), 0);
	assert_false(fail_alloc_stop());
	wait_charged(&rig, host);
}
