/* SPDX-License-Identifier: MIT */
/*
 * Arenas that an earlier broker had a device make, as sessions see them: what is taken for such
 * memory, who pays for it, and which threads may use it. The devices are fakes; memfds stand for
 * dma-bufs, and the test says what the kernel knows of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

enum { BYTES = 65536, PAGE = 4096, SPARE = 2 << 20, EXPORTER = 1, GTT = 1 << 30 };

#define ALL_BUSY -1 /* value of world.busy_fd */

/* Bounds of a wait of 2 s, a part of which passes between the jobs that wait */
#define LEAST_WAIT_NS 200000000
#define MOST_WAIT_NS  2100000000

/* The kernel's answers, and what executors saw. */
static struct {
	const char *driver; /* NULL: the descriptor is no dma-buf */
	uint64_t n_holders;
	uint64_t spare_bytes; /* the dma-buf is larger than its file */
	int busy_fd;          /* of the dma-buf to which a device writes; 0: none */
	uint64_t waited_ns;   /* time passed by waits, for the threads that wait */
	bool stands_still;    /* no time passes in waits */
	int wait_error;       /* negative errno of waits; 0: none */
	unsigned int n_imported, n_released, n_waited;
	bool refuses; /* the exporter does not import the arena */
	bool makes;   /* the exporter makes arenas, too */
} world;

int __wrap_dma_buf_holders(int fd, uint64_t *ret);
int __wrap_dma_buf_holders(int fd, uint64_t *ret)
{
	assert_true(fcntl(fd, F_GETFD) >= 0);
	*ret = world.n_holders;
	return 0;
}

int __wrap_dma_buf_examine(int fd, struct dma_buf_about *ret);
int __wrap_dma_buf_examine(int fd, struct dma_buf_about *ret)
{
	struct stat status;

	if (!world.driver)
		return DMA_BUF_E_UNKNOWN;
	assert_int_equal(fstat(fd, &status), 0);
	*ret = (struct dma_buf_about){
		.bytes = (uint64_t)status.st_size + world.spare_bytes,
		.dev = status.st_dev,
		.ino = status.st_ino,
	};
	strcpy(ret->exporter, world.driver);
	return 0;
}

static pthread_t reactor;

uint64_t __real_clock_now_ns(void);
uint64_t __wrap_clock_now_ns(void);
uint64_t __wrap_clock_now_ns(void)
{
	/* The reactor's timers know the real time only. */
	if (pthread_equal(pthread_self(), reactor))
		return __real_clock_now_ns();
	return __real_clock_now_ns() + __atomic_load_n(&world.waited_ns, __ATOMIC_RELAXED);
}

static bool is_busy(int fd)
{
	struct stat busy, status;

	if (world.busy_fd == 0 || world.busy_fd == ALL_BUSY)
		return world.busy_fd == ALL_BUSY;
	assert_int_equal(fstat(world.busy_fd, &busy), 0);
	assert_int_equal(fstat(fd, &status), 0);
	return busy.st_ino == status.st_ino;
}

int __wrap_dma_buf_wait(int fd, int timeout_ms);
int __wrap_dma_buf_wait(int fd, int timeout_ms)
{
	assert_true(fcntl(fd, F_GETFD) >= 0);
	assert_true(timeout_ms > 0 && timeout_ms <= 10000);
	__atomic_fetch_add(&world.n_waited, 1, __ATOMIC_RELAXED);
	if (world.wait_error)
		return world.wait_error;
	if (!is_busy(fd))
		return 0;
	if (!__atomic_load_n(&world.stands_still, __ATOMIC_RELAXED))
		__atomic_fetch_add(&world.waited_ns, (uint64_t)timeout_ms * 1000000,
				   __ATOMIC_RELAXED);
	return DMA_BUF_E_BUSY;
}

static void import(struct executor *executor, struct exec_arena *arena)
{
	assert_true(arena->is_restored ? __atomic_load_n(&world.n_waited, __ATOMIC_RELAXED) > 0
				       : world.makes);
	assert_true(fcntl(arena->fd, F_GETFD) >= 0);
	if (!world.refuses || executor->index != EXPORTER)
		arena->import[executor->index] = arena;
	world.n_imported++;
}

static void release(struct executor *executor, struct exec_arena *arena)
{
	assert_true(fcntl(arena->fd, F_GETFD) >= 0);
	arena->import[executor->index] = NULL;
	world.n_released++;
}

static int export(struct executor *executor, uint64_t bytes, struct exec_arena *ret, int *ret_fd)
{
	char message[ARENA_MESSAGE_BYTES];
	int fd = memfd_create("device memory", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(arena_map_dma_buf(fd, bytes, ret, message), 0);
	ret->is_restored = false;
	ret->exporter = executor;
	*ret_fd = fd;
	return 0;
}

/* Begin with device 0 (the CPU), device 1 (exports memory of the driver "card") and device 2. */
static void begin(struct rig *rig)
{
	reactor = pthread_self();
	memset(&world, 0, sizeof(world));
	world.driver = "card";
	world.n_holders = 2;
	rig_init(rig, 3);
	for (int i = 0; i < 3; i++) {
		rig->fakes[i].ops.arena_import = import;
		rig->fakes[i].ops.arena_release = release;
	}
	rig->fakes[EXPORTER].executor.info.export_name = "card";
	rig->fakes[EXPORTER].executor.info.gtt_bytes = GTT;
	rig->fakes[2].executor.info.export_name = "";
}

#define BEGIN(name) SCOPED(rig, name, begin, rig_deinit)

static int memory_new(uint64_t bytes)
{
	int fd = memfd_create("device memory", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

/* Hand a copy of @fd to the session. */
static int hand_over(struct rig *rig, int fd, uint64_t bytes, uint32_t *ret_id)
{
	struct rbk_wire_id_reply reply = {.reply.res = 1};
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), sent = -1, r;

	assert_int_equal(session_arena_restore(rig->session, ++rig->next_cookie, &copy, bytes), 0);
	r = rig_answer_fd(rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply), &sent);
	assert_int_equal(sent, -1);
	/* A descriptor that was not taken is the caller's. */
	assert_true((copy >= 0) == (r != 0));
	close_fd(copy);
	if (ret_id)
		*ret_id = reply.id;
	return r;
}

/* The same for memory that the broker refuses after it has taken the descriptor. */
static int hand_over_used(struct rig *rig, int fd, uint64_t bytes)
{
	struct rbk_wire_id_reply reply = {.reply.res = 1};
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	assert_int_equal(session_arena_restore(rig->session, ++rig->next_cookie, &copy, bytes), 0);
	assert_int_equal(copy, -1);
	return rig_answer(rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply));
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

static void wait_used(struct rig *rig, enum account_slot slot, uint64_t amount)
{
	uint64_t deadline_ns = clock_now_ns() + 10000000000ull;

	while (used(rig, slot) != amount) {
		assert_true(clock_now_ns() < deadline_ns);
		rig_settle(rig);
		usleep(1000);
	}
}

/* The memory is charged as if the device had made it, and as long as clients have it. */
TEST(test_device_arena__charged)
{
	struct session_arena *arena;
	unsigned char *data;
	uint64_t host, fds;
	uint32_t id;
	int fd;

	BEGIN(rig);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	fds = used(&rig, ACCOUNT_FDS);
	fd = memory_new(BYTES);
	data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(data, MAP_FAILED);
	memset(data, 42, BYTES);
	rig.session->wants_id = true;
	rig.session->wanted_id = 5;
	assert_int_equal(hand_over(&rig, fd, BYTES, &id), 0);
	assert_int_equal(id, 5);
	arena = rig.session->arenas[id];
	assert_int_equal(world.n_imported, 3);
	assert_ptr_equal(arena->exec.exporter, &rig.fakes[EXPORTER].executor);
	assert_true(arena->exec.is_fixed);
	assert_false(arena->exec.immutable);
	assert_int_equal(rig.session->n_unfixed, 0);
	for (unsigned int i = 0; i < BYTES; i++)
		assert_int_equal(arena->exec.base[i], 42);
	arena->exec.base[7] = 43;
	assert_int_equal(data[7], 43);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host + BYTES);
	assert_int_equal(used(&rig, account_gtt(EXPORTER)), BYTES);
	assert_int_equal(used(&rig, ACCOUNT_ARENAS), 1);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds + 1);

	assert_int_equal(take_back(&rig, id), 0);
	assert_int_equal(world.n_released, 3);
	assert_int_equal(used(&rig, ACCOUNT_ARENAS), 0);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host + BYTES);
	assert_int_equal(used(&rig, account_gtt(EXPORTER)), BYTES);
	munmap(data, BYTES);
	close(fd);
	world.n_holders = 1;
	wait_used(&rig, ACCOUNT_HOST_BYTES, host);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds);
	assert_int_equal(used(&rig, account_gtt(EXPORTER)), 0);
}

/* The reactor uses only memory that the device takes for its own; others may make it wait. */
TEST(test_device_arena__other_memory)
{
	struct session_arena *arena;
	int fd = memory_new(BYTES);
	uint32_t id;

	BEGIN(rig);
	world.refuses = true;
	assert_int_equal(hand_over(&rig, fd, BYTES, &id), 0);
	arena = rig.session->arenas[id];
	assert_false(arena->exec.is_fixed);
	assert_int_equal(rig.session->n_unfixed, 1);
	world.n_holders = 1;
	assert_int_equal(take_back(&rig, id), 0);
	assert_int_equal(rig.session->n_unfixed, 0);
	close(fd);
}

/* Without the device, the processor uses memory of the machine, but not that of other devices. */
TEST(test_device_arena__device_is_gone)
{
	static const struct {
		const char *driver;
		int expected;
	} cases[] = {
		{"amdgpu", 0}, {"udmabuf", 0}, {"vfio", -ENODEV}, {"car", -ENODEV}, {"", -ENODEV},
	};
	int fd = memory_new(BYTES);
	uint64_t host;
	uint32_t id;

	BEGIN(rig);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		world.driver = cases[i].driver;
		world.n_holders = 2;
		rig.session->wants_id = true;
		rig.session->wanted_id = 9;
		assert_int_equal(hand_over(&rig, fd, BYTES, &id), cases[i].expected);
		assert_false(rig.session->wants_id);
		if (cases[i].expected) {
			assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host);
			continue;
		}
		assert_int_equal(id, 9);
		assert_null(rig.session->arenas[id]->exec.exporter);
		assert_false(rig.session->arenas[id]->exec.is_fixed);
		assert_int_equal(used(&rig, account_gtt(EXPORTER)), 0);
		world.n_holders = 1;
		assert_int_equal(take_back(&rig, id), 0);
		wait_used(&rig, ACCOUNT_HOST_BYTES, host);
	}
	close(fd);
	/* The client broke no rule. */
	assert_false(rig.session->is_ending);
}

static int find_left(struct rig *rig, const struct stat *status, const struct account *account)
{
	struct hold *hold;

	return hold_find_dma_buf(rig->server, status->st_dev, status->st_ino, account, &hold);
}

/*
 * Two arenas of one dma-buf would wait for each other for ever when they are gone, and so would an
 * arena and what is left of an earlier one.
 */
TEST(test_device_arena__twice)
{
	struct account *other;
	struct stat status;
	uint64_t host;
	uint32_t id;
	int fd;

	BEGIN(rig);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	fd = memory_new(BYTES);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(hand_over(&rig, fd, BYTES, &id), 0);
	assert_int_equal(hand_over(&rig, fd, BYTES, NULL), -EBUSY);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host + BYTES);
	/* The client still has it, so it is still charged. */
	assert_int_equal(take_back(&rig, id), 0);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host + BYTES);
	other = (struct account *)&status;
	assert_int_equal(find_left(&rig, &status, other), HOLD_E_FOREIGN);
	/* Each arena takes over from what is left of the last one. */
	for (int i = 0; i < 5; i++) {
		assert_int_equal(hand_over(&rig, fd, BYTES, &id), 0);
		wait_used(&rig, ACCOUNT_HOST_BYTES, host + BYTES);
		assert_int_equal(find_left(&rig, &status, other), HOLD_E_FOREIGN);
		assert_int_equal(take_back(&rig, id), 0);
	}
	close(fd);
	world.n_holders = 1;
	wait_used(&rig, ACCOUNT_HOST_BYTES, host);
	assert_int_equal(find_left(&rig, &status, other), 0);
}

static void limit(struct rig *rig, enum account_slot slot, uint64_t max)
{
	struct account *account = rig->session->tenant->account;
	struct account_limits limits;

	for (unsigned int i = 0; i < ACCOUNT_SLOT_COUNT; i++)
		limits.max[i] = account_limit(account, i);
	limits.max[slot] = max;
	account_set_limits(account, &limits);
}

/* Charges that outlive an arena */
struct held {
	uint64_t host_bytes, n_fds, gtt_bytes;
};

/* Return what the tenant is charged once other threads have nothing to do. */
static struct held held_now(struct rig *rig)
{
	uint64_t deadline_ns = clock_now_ns() + 10000000000ull;

	do {
		assert_true(clock_now_ns() < deadline_ns);
		rig_settle(rig);
	} while (closers_n_jobs(rig->server->closers) > 0);
	return (struct held){
		.host_bytes = used(rig, ACCOUNT_HOST_BYTES),
		.n_fds = used(rig, ACCOUNT_FDS),
		.gtt_bytes = used(rig, account_gtt(EXPORTER)),
	};
}

static void expect_held(struct rig *rig, struct held expected)
{
	struct held held = held_now(rig);

	assert_int_equal(held.host_bytes, expected.host_bytes);
	assert_int_equal(held.n_fds, expected.n_fds);
	assert_int_equal(held.gtt_bytes, expected.gtt_bytes);
}

/* Make an arena of @fd and remove it. Return what is charged while a client has the memory. */
static struct held leave_hold(struct rig *rig, int fd, uint64_t bytes)
{
	struct held held = held_now(rig);
	uint32_t id;

	assert_int_equal(hand_over(rig, fd, bytes, &id), 0);
	assert_int_equal(take_back(rig, id), 0);
	held.host_bytes += bytes;
	held.n_fds++;
	held.gtt_bytes += bytes;
	expect_held(rig, held);
	return held;
}

/* Make an arena of memory that an earlier one has left, and remove it. */
static int leave_again(struct rig *rig, int fd, uint64_t bytes)
{
	uint32_t id;
	int r = hand_over(rig, fd, bytes, &id);

	if (r == 0)
		assert_int_equal(take_back(rig, id), 0);
	return r;
}

/* An arena that is refused leaves its memory charged: the client has it from an earlier arena. */
TEST(test_device_arena__refused)
{
	static const enum account_slot slots[] = {
		ACCOUNT_ARENAS,
		ACCOUNT_ARENA_BYTES,
		ACCOUNT_MAPPINGS,
	};
	static const uint32_t ids[] = {0, UINT32_MAX, 1};
	struct server_limits *limits;
	uint32_t id, n_arenas;
	struct held held;
	int fd, other_fd;
	uint64_t max;

	BEGIN(rig);
	limits = &rig.server->options.limits;
	n_arenas = rig.session->n_arenas;
	max = limits->max_arena_bytes;
	fd = memory_new(BYTES);
	other_fd = memory_new(BYTES);
	assert_int_equal(hand_over(&rig, other_fd, BYTES, &id), 0);
	assert_int_equal(id, 1);
	held = leave_hold(&rig, fd, BYTES);

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		rig.session->wants_id = true;
		rig.session->wanted_id = ids[i];
		assert_int_equal(hand_over(&rig, fd, BYTES, NULL), ids[i] == id ? -EBUSY : -EINVAL);
		expect_held(&rig, held);
	}
	rig.session->n_arenas = id + 1;
	assert_int_equal(hand_over(&rig, fd, BYTES, NULL), -EDQUOT);
	rig.session->n_arenas = n_arenas;
	expect_held(&rig, held);
	limits->max_arena_bytes = 2 * BYTES - 1;
	assert_int_equal(hand_over(&rig, fd, BYTES, NULL), -EDQUOT);
	limits->max_arena_bytes = max;
	expect_held(&rig, held);
	for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
		limit(&rig, slots[i], used(&rig, slots[i]));
		assert_int_equal(hand_over(&rig, fd, BYTES, NULL), -EDQUOT);
		assert_int_equal(hand_over(&rig, fd, BYTES, NULL), -EDQUOT);
		limit(&rig, slots[i], UINT64_MAX);
		expect_held(&rig, held);
	}

	/* The next arena takes the memory over as if none had been refused. */
	assert_int_equal(leave_again(&rig, fd, BYTES), 0);
	expect_held(&rig, held);
	close(fd);
	close(other_fd);
	world.n_holders = 1;
	wait_used(&rig, account_gtt(EXPORTER), BYTES);
	assert_int_equal(take_back(&rig, id), 0);
}

/* A tenant at its quota uses its memory again, which is charged at every moment. */
TEST(test_device_arena__at_the_quota)
{
	struct held held;
	uint32_t id;
	int fd;

	BEGIN(rig);
	fd = memory_new(BYTES);
	held = leave_hold(&rig, fd, BYTES);
	limit(&rig, ACCOUNT_HOST_BYTES, held.host_bytes);
	limit(&rig, ACCOUNT_FDS, held.n_fds);
	limit(&rig, account_gtt(EXPORTER), held.gtt_bytes);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(hand_over(&rig, fd, BYTES, &id), 0);
		assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), held.host_bytes);
		assert_int_equal(used(&rig, ACCOUNT_FDS), held.n_fds);
		assert_int_equal(used(&rig, account_gtt(EXPORTER)), held.gtt_bytes);
		expect_held(&rig, held);
		assert_int_equal(take_back(&rig, id), 0);
		expect_held(&rig, held);
	}
	/* A limit that was lowered does not take the memory away. */
	limit(&rig, ACCOUNT_HOST_BYTES, 0);
	limit(&rig, ACCOUNT_FDS, 0);
	limit(&rig, account_gtt(EXPORTER), 0);
	assert_int_equal(leave_again(&rig, fd, BYTES), 0);
	expect_held(&rig, held);
	close(fd);
	world.n_holders = 1;
	wait_used(&rig, account_gtt(EXPORTER), 0);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), held.host_bytes - BYTES);
	assert_int_equal(used(&rig, ACCOUNT_FDS), held.n_fds - 1);
}

/* An arena that takes over from an earlier one keeps one descriptor, which is in use. */
TEST(test_device_arena__one_descriptor)
{
	enum { OUT_OF_THE_WAY = 500 };
	struct rbk_wire_id_reply reply;
	int fd, copy, number;

	BEGIN(rig);
	fd = memory_new(BYTES);
	leave_hold(&rig, fd, BYTES);
	copy = number = fcntl(fd, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
	assert_true(number >= 0);
	assert_int_equal(session_arena_restore(rig.session, ++rig.next_cookie, &copy, BYTES), 0);
	assert_int_equal(copy, -1);
	assert_int_equal(fcntl(number, F_GETFD), -1);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply)), 0);
	assert_int_equal(hand_over(&rig, fd, BYTES, NULL), -EBUSY);
	close(fd);
	world.n_holders = 1;
	assert_int_equal(take_back(&rig, reply.id), 0);
	wait_used(&rig, account_gtt(EXPORTER), 0);
}

/* A client cannot get rid of the charges of memory that this broker had a device make. */
TEST(test_device_arena__made_here)
{
	struct rbk_wire_id_reply reply = {.reply.res = 1};
	struct held held;
	int fd = -1;

	BEGIN(rig);
	world.makes = true;
	rig.fakes[EXPORTER].ops.arena_export = export;
	rig.fakes[EXPORTER].executor.info.exports_arenas = true;
	assert_int_equal(session_arena_new(rig.session, ++rig.next_cookie, BYTES), 0);
	assert_int_equal(rig_answer_fd(&rig, RBK_WIRE_ARENA_NEW, &reply, sizeof(reply), &fd), 0);
	assert_int_equal(take_back(&rig, reply.id), 0);
	held = held_now(&rig);
	assert_int_equal(held.gtt_bytes, BYTES);
	for (int i = 0; i < 3; i++) {
		rig.session->wants_id = true;
		rig.session->wanted_id = 0;
		assert_int_equal(leave_again(&rig, fd, BYTES), -EINVAL);
		expect_held(&rig, held);
		assert_int_equal(leave_again(&rig, fd, BYTES), 0);
		expect_held(&rig, held);
	}
	close(fd);
	world.n_holders = 1;
	wait_used(&rig, account_gtt(EXPORTER), 0);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), held.host_bytes - BYTES);
}

/* The charges follow the largest arena of the memory, whatever device is found for it. */
TEST(test_device_arena__other_size)
{
	const enum account_slot slots[] = {ACCOUNT_HOST_BYTES, account_gtt(EXPORTER)};
	struct held held;
	int fd;

	BEGIN(rig);
	fd = memory_new(BYTES);
	held = leave_hold(&rig, fd, BYTES);
	world.spare_bytes = PAGE;
	for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
		limit(&rig, slots[i], used(&rig, slots[i]) + PAGE - 1);
		assert_int_equal(leave_again(&rig, fd, BYTES), -EDQUOT);
		expect_held(&rig, held);
		limit(&rig, slots[i], UINT64_MAX);
	}
	assert_int_equal(leave_again(&rig, fd, BYTES), 0);
	held.host_bytes += PAGE;
	held.gtt_bytes += PAGE;
	expect_held(&rig, held);
	world.spare_bytes = 0;
	assert_int_equal(leave_again(&rig, fd, PAGE), 0);
	expect_held(&rig, held);
	rig.fakes[2].executor.info.export_name = world.driver = "other";
	rig.fakes[2].executor.info.gtt_bytes = GTT;
	world.spare_bytes = 2 * PAGE;
	assert_int_equal(leave_again(&rig, fd, BYTES), 0);
	held.host_bytes += PAGE;
	held.gtt_bytes += PAGE;
	expect_held(&rig, held);
	assert_int_equal(used(&rig, account_gtt(2)), 0);
	world.driver = "amdgpu";
	assert_int_equal(leave_again(&rig, fd, BYTES), 0);
	expect_held(&rig, held);
	close(fd);
	world.n_holders = 1;
	wait_used(&rig, account_gtt(EXPORTER), 0);
}

/* Wait until the session, the only one, has ended. */
static void expect_ended(struct rig *rig)
{
	uint64_t deadline_ns = clock_now_ns() + 10000000000ull;

	while (!server_is_empty(rig->server)) {
		assert_true(clock_now_ns() < deadline_ns);
		rig_work(rig);
		rig_settle(rig);
		usleep(100);
	}
}

/* Work of the last broker may still write: nothing runs in the memory before that has ended. */
TEST(test_device_arena__busy)
{
	unsigned int n_waited;
	uint64_t host;
	uint32_t id;
	int fd;

	BEGIN(rig);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	fd = memory_new(BYTES);
	world.busy_fd = fd;
	assert_int_equal(hand_over_used(&rig, fd, BYTES), -EBUSY);
	assert_in_range(world.waited_ns, LEAST_WAIT_NS, MOST_WAIT_NS);
	assert_int_equal(world.n_imported, 0);
	assert_false(rig.session->is_ending);
	/* The client may try again. */
	world.busy_fd = 0;
	world.n_holders = 2;
	n_waited = world.n_waited;
	assert_int_equal(hand_over(&rig, fd, BYTES, &id), 0);
	assert_int_equal(world.n_waited, n_waited + 1);
	assert_int_equal(take_back(&rig, id), 0);
	close(fd);
	world.n_holders = 1;
	wait_used(&rig, ACCOUNT_HOST_BYTES, host);
}

/* Where the kernel refuses the wait, no thread tries again and again. */
TEST(test_device_arena__wait_refused)
{
	uint64_t host;
	int fd;

	BEGIN(rig);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	fd = memory_new(BYTES);
	world.wait_error = -EIO;
	assert_int_equal(hand_over_used(&rig, fd, BYTES), -EIO);
	assert_fields(world, (n_waited, 1), (n_imported, 0));
	assert_false(rig.session->is_ending);
	close(fd);
	world.n_holders = 1;
	wait_used(&rig, ACCOUNT_HOST_BYTES, host);
}

/* Begin to hand over a copy of @fd. */
static void hand_over_begin(struct rig *rig, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	assert_int_equal(session_arena_restore(rig->session, ++rig->next_cookie, &copy, BYTES), 0);
	assert_int_equal(copy, -1);
}

/* Memory that is busy keeps none of its tenant's other arenas waiting, and all wait at once. */
TEST(test_device_arena__busy_together)
{
	const int fds[] = {memory_new(BYTES), memory_new(BYTES)};
	struct rbk_wire_id_reply reply;

	BEGIN(rig);
	world.busy_fd = fds[0];
	world.stands_still = true;
	hand_over_begin(&rig, fds[0]);
	hand_over_begin(&rig, fds[1]);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply)), 0);
	__atomic_store_n(&world.stands_still, false, __ATOMIC_RELAXED);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, NULL, 0), -EBUSY);
	assert_int_equal(take_back(&rig, reply.id), 0);

	world.busy_fd = ALL_BUSY;
	world.waited_ns = 0;
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++)
		hand_over_begin(&rig, fds[i]);
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++)
		assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, NULL, 0), -EBUSY);
	assert_in_range(world.waited_ns, LEAST_WAIT_NS, MOST_WAIT_NS);
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	world.n_holders = 1;
	wait_used(&rig, account_gtt(EXPORTER), 0);
}

/* A client cannot have more memory than it pays for by naming a smaller size. */
TEST(test_device_arena__true_size)
{
	uint64_t host;
	uint32_t id;
	int fd;

	BEGIN(rig);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	fd = memory_new(BYTES);
	world.spare_bytes = SPARE / 2;
	assert_int_equal(hand_over(&rig, fd, PAGE, &id), 0);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host + BYTES + SPARE / 2);
	assert_int_equal(used(&rig, account_gtt(EXPORTER)), BYTES + SPARE / 2);
	assert_int_equal(used(&rig, ACCOUNT_ARENA_BYTES), BYTES + SPARE / 2);
	assert_int_equal(take_back(&rig, id), 0);
	assert_int_equal(used(&rig, ACCOUNT_ARENA_BYTES), 0);
	close(fd);
	world.n_holders = 1;
	wait_used(&rig, ACCOUNT_HOST_BYTES, host);
}

/* A client that hands over something else loses its session, and leaves nothing. */
TEST(test_device_arena__hostile)
{
	static const struct {
		const char *driver;
		uint64_t bytes, spare_bytes;
		int expected;
	} cases[] = {
		{NULL, BYTES, 0, -EINVAL},
		{"card", 0, 0, -EINVAL},
		{"card", BYTES + PAGE, 0, -EINVAL},
		{"card", BYTES - 4, 0, -EINVAL},
		{"card", UINT64_MAX - PAGE + 1, 0, -EINVAL},
		{"card", BYTES, SPARE, -EINVAL},
		{"card", BYTES, SPARE - PAGE, 0},
		{"card", BYTES - PAGE, 0, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int fd = memory_new(BYTES);
		struct rig rig;

		begin(&rig);
		world.driver = cases[i].driver;
		world.spare_bytes = cases[i].spare_bytes;
		assert_int_equal(hand_over(&rig, fd, cases[i].bytes, NULL), cases[i].expected);
		if (cases[i].expected)
			expect_ended(&rig);
		else
			assert_false(rig.session->is_ending);
		world.n_holders = 1;
		rig_deinit(&rig);
		assert_int_equal(world.n_imported, cases[i].expected ? 0 : 3);
		assert_int_equal(world.n_released, world.n_imported);
		close(fd);
	}
}

/* A descriptor that cannot be mapped for writing is no memory of an arena. */
TEST(test_device_arena__unmappable)
{
	int fd = memory_new(BYTES), read_only;
	char path[64];
	struct rig rig;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_only = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(read_only >= 0);
	begin(&rig);
	{
		struct rbk_wire_id_reply reply = {.reply.res = 1};

		assert_int_equal(session_arena_restore(rig.session, 1, &read_only, BYTES), 0);
		assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply)),
				 -EINVAL);
	}
	assert_int_equal(read_only, -1);
	expect_ended(&rig);
	world.n_holders = 1;
	rig_deinit(&rig);
	assert_int_equal(world.n_imported, 0);
	close(fd);
}

TEST(test_device_arena__session_ends_meanwhile)
{
	for (int i = 0; i < 40; i++) {
		int fd = memory_new(BYTES), copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		struct rig rig;

		begin(&rig);
		/* Every other arena takes over from an earlier one. */
		if (i % 2 == 0)
			leave_hold(&rig, fd, BYTES);
		world.n_holders = 1;
		assert_int_equal(session_arena_restore(rig.session, 1, &copy, BYTES), 0);
		for (int j = 0; j < i / 2; j++)
			rig_settle(&rig);
		session_end(rig.session, false, "the test wants it");
		rig_deinit(&rig);
		assert_int_equal(world.n_released, world.n_imported);
		close(fd);
	}
}

/* Without memory nothing changes. @had_arena: there is a hold of an earlier arena. */
static void check_allocations(bool had_arena)
{
	struct rbk_wire_id_reply reply;
	bool failed;
	uint64_t host, held;
	int fd, copy, r;

	BEGIN(rig);
	host = held = used(&rig, ACCOUNT_HOST_BYTES);
	fd = memory_new(BYTES);
	if (had_arena)
		held = leave_hold(&rig, fd, BYTES).host_bytes;
	for (unsigned int n = 1;; n++) {
		copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		reply.reply.res = 1;
		fail_alloc_at(n);
		assert_int_equal(
			session_arena_restore(rig.session, ++rig.next_cookie, &copy, BYTES), 0);
		failed = fail_alloc_stop();
		r = rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply));
		close_fd(copy);
		if (!failed)
			break;
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(held_now(&rig).host_bytes, held);
	}
	assert_int_equal(r, 0);
	world.n_holders = 1;
	assert_int_equal(take_back(&rig, reply.id), 0);
	wait_used(&rig, ACCOUNT_HOST_BYTES, host);
	close(fd);
}

TEST(test_device_arena__failing_allocations)
{
	check_allocations(false);
	check_allocations(true);
}

TEST_MAIN(NULL, NULL)
