/* SPDX-License-Identifier: MIT */
/* Moving arenas: their bytes, writers that wait meanwhile, and every step that can fail. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/client-fixture.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/reattach-scene.h"

enum { MIB = 1 << 20 };

/* ---- the calls of client_arena_move() ---- */

enum step {
	STEP_NONE,
	STEP_OPEN,
	STEP_API,
	STEP_MEMFD,
	STEP_REGISTER,
	STEP_PROTECT,
	STEP_COPY,
	STEP_MAP
};

/* Faults and observations of the thread that moves an arena. */
static _Thread_local struct {
	enum step failing;
	int error;            /* errno of the failing step */
	bool is_unprivileged; /* userfaultfd() needs UFFD_USER_MODE_ONLY */
	void (*when_protected)(void);
	int fault_fd; /* the last userfaultfd, also after it was closed */
	unsigned int n_protected;
	unsigned int n_waited; /* moves with a writer that waited when the copy was mapped */
	unsigned int n_copies; /* calls of sendfile() */
} mover;

static bool is_failing(enum step step)
{
	if (mover.failing != step)
		return false;
	errno = mover.error;
	return true;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	va_list args;
	long values[6];

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		values[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_userfaultfd) {
		if (is_failing(STEP_OPEN))
			return -1;
		/* Other bits of a variadic int are undefined. */
		values[0] = (int)values[0];
		if (mover.is_unprivileged && !(values[0] & UFFD_USER_MODE_ONLY)) {
			errno = EPERM;
			return -1;
		}
		return mover.fault_fd = (int)__real_syscall(number, values[0]);
	}
	return __real_syscall(number, values[0], values[1], values[2], values[3], values[4],
			      values[5]);
}

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	int r;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if ((request == UFFDIO_API && is_failing(STEP_API)) ||
	    (request == UFFDIO_REGISTER && is_failing(STEP_REGISTER)))
		return -1;
	if (request == UFFDIO_WRITEPROTECT && mover.failing == STEP_PROTECT) {
		/* A part of the arena is protected before the call fails. */
		((struct uffdio_writeprotect *)arg)->range.len /= 2;
		assert_int_equal(__real_ioctl(fd, request, arg), 0);
		is_failing(STEP_PROTECT);
		return -1;
	}
	r = __real_ioctl(fd, request, arg);
	if (request == UFFDIO_WRITEPROTECT && r == 0) {
		mover.n_protected++;
		if (mover.when_protected)
			mover.when_protected();
	}
	return r;
}

int __real_memfd_create(const char *name, unsigned int flags);
int __wrap_memfd_create(const char *name, unsigned int flags);
int __wrap_memfd_create(const char *name, unsigned int flags)
{
	return is_failing(STEP_MEMFD) ? -1 : __real_memfd_create(name, flags);
}

ssize_t __real_sendfile64(int to, int from, off_t *offset, size_t bytes);
ssize_t __wrap_sendfile64(int to, int from, off_t *offset, size_t bytes);
ssize_t __wrap_sendfile64(int to, int from, off_t *offset, size_t bytes)
{
	/* The first half of the arena is copied before the call fails. */
	if (mover.n_copies++ > 0 && is_failing(STEP_COPY))
		return -1;
	if (mover.failing == STEP_COPY)
		bytes /= 2;
	return __real_sendfile64(to, from, offset, bytes);
}

void *__real_mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	struct pollfd fault = {.fd = mover.fault_fd, .events = POLLIN};

	if (!(flags & MAP_FIXED))
		return __real_mmap64(at, bytes, protection, flags, fd, offset);
	if (is_failing(STEP_MAP))
		return MAP_FAILED;
	/* Writers that do not wait get the time to write the old memory after its copy. */
	sleep_ms(1);
	/* The library reads no faults, so the descriptor stays readable. */
	mover.n_waited += poll(&fault, 1, 0) == 1 && (fault.revents & POLLIN);
	/* ThreadSanitizer reports mmap() over words that are written meanwhile as a data race. */
	return (void *)__real_syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* Wait until a writer waits for the move. */
static void await_writer(void)
{
	struct pollfd fault = {.fd = mover.fault_fd, .events = POLLIN};

	assert_int_equal(poll(&fault, 1, (int)(patience_ns / 1000000)), 1);
	assert_int_equal(fault.revents, POLLIN);
}

static bool can_hold_up_system_calls(void)
{
	int fd = (int)__real_syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* ---- arenas ---- */

/* Make an arena of @bytes that, like one of a dead broker, cannot be mapped writable again. */
static struct rbk_arena *arena_make(struct fixture *fixture, size_t bytes)
{
	struct rbk_arena *arena = NULL;

	memset(&mover, 0, sizeof(mover));
	assert_int_equal(rbk_arena_new(fixture->rbk, bytes, &arena, &fixture->error), 0);
	assert_int_equal(fcntl(arena->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	assert_ptr_equal(mmap(NULL, bytes, PROT_WRITE, MAP_SHARED, arena->fd, 0), MAP_FAILED);
	return arena;
}

static void arena_move(struct fixture *fixture, struct rbk_arena *arena)
{
	int r = client_arena_move(arena, &fixture->error);

	if (r)
		fail_msg("%d: %s", r, fixture->error.text);
}

static ino_t arena_inode(const struct rbk_arena *arena)
{
	struct stat stat;

	assert_int_equal(fstat(arena->fd, &stat), 0);
	return stat.st_ino;
}

TEST(test_move__bytes)
{
	enum { BYTES = 3 * MIB + 4096 };
	unsigned char *data, *other, *expected = malloc(BYTES);
	struct rbk_arena *arena, before;
	ino_t inode;

	FIXTURE(fixture, NULL);
	arena = arena_make(&fixture, BYTES);
	data = rbk_arena_alloc(arena, BYTES - 64);
	assert_non_null(expected);
	for (size_t i = 0; i < BYTES; i++)
		data[i] = expected[i] = (unsigned char)(i * 7 + i / 256 + i / 65536);
	for (int i = 0; i < 3; i++) {
		fixture.rbk->segment_bytes = 65536u << i;
		before = *arena;
		inode = arena_inode(arena);
		arena_move(&fixture, arena);
		assert_ptr_equal(arena->data, data);
		assert_memory_equal(data, expected, BYTES);
		assert_fields(*arena, (bytes, BYTES), (used, before.used), (id, before.id),
			      (sealed, false), (exported, false), (segment_bytes, 65536u << i));
		/* The next broker can map the memfd writable, and forbid it thereafter. */
		assert_int_not_equal(arena_inode(arena), inode);
		assert_int_equal(fcntl(arena->fd, F_GETFD), FD_CLOEXEC);
		assert_int_equal(fcntl(arena->fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
		other = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);
		assert_ptr_not_equal(other, MAP_FAILED);
		other[5000] = data[5001] = expected[5000] = expected[5001] = (unsigned char)i;
		assert_int_equal(data[5000], i);
		assert_memory_equal(other, expected, BYTES);
		munmap(other, BYTES);
		assert_int_equal(fcntl(arena->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	}
	assert_int_equal(mover.n_protected, 3);
	free(expected);
	rbk_arena_free(arena);
}

TEST(test_move__refuses)
{
	struct fake_options options = {.exports = true};
	struct rbk_arena *arena = NULL;

	FIXTURE(fixture, &options);
	memset(&mover, 0, sizeof(mover));
	assert_int_equal(rbk_arena_new(fixture.rbk, 4096, &arena, NULL), 0);
	assert_true(arena->exported);
	assert_int_equal(client_arena_move(arena, &fixture.error), -EINVAL);
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), 0);
	assert_int_equal(client_arena_move(arena, &fixture.error), -EINVAL);
	assert_int_equal(client_arena_move(arena, NULL), -EINVAL);
	rbk_arena_free(arena);
}

/* ---- one writer that waits ---- */

static struct {
	pthread_t thread;
	unsigned char *at;
	int file; /* the writer reads a byte from it into the arena; -1: it stores the byte */
	ssize_t r;
	int pipes[2]; /* a child waits for its end */
	pid_t child;
} writer;

static void *write_byte(void *data)
{
	if (writer.file < 0)
		*(volatile unsigned char *)writer.at = 9;
	else
		writer.r = pread(writer.file, writer.at, 1, 0);
	return NULL;
}

static void start_writer(void)
{
	assert_int_equal(pthread_create(&writer.thread, NULL, write_byte, NULL), 0);
	await_writer();
}

/* Reading makes a page table entry of a page that the process has never touched. */
static void read_and_start_writer(void)
{
	assert_int_equal(*(volatile unsigned char *)writer.at, 0);
	start_writer();
}

/*
 * Move an arena whose pages no thread has touched, while @begin starts a writer of one of them. The
 * move fails with @error unless that is 0.
 */
static void move_beside_writer(void (*begin)(void), int error)
{
	struct rbk_arena *arena;
	unsigned char byte = 0;

	FIXTURE(fixture, NULL);
	arena = arena_make(&fixture, MIB);
	writer.at = arena->data + MIB / 2 + 100;
	mover.when_protected = begin;
	mover.failing = error ? STEP_MAP : STEP_NONE;
	mover.error = error;
	assert_int_equal(client_arena_move(arena, &fixture.error), -error);
	assert_int_equal(mover.n_protected, 1);
	assert_int_equal(pthread_join(writer.thread, NULL), 0);
	assert_int_equal(pread(arena->fd, &byte, 1, MIB / 2 + 100), 1);
	assert_int_equal(byte, 9);
	assert_int_equal(*writer.at, 9);
	rbk_arena_free(arena);
}

TEST(test_move__untouched_page)
{
	writer.file = -1;
	move_beside_writer(start_writer, 0);
}

TEST(test_move__page_read_while_protected)
{
	writer.file = -1;
	move_beside_writer(read_and_start_writer, 0);
}

/* Make a file that has the byte 9. */
static void open_nine(void)
{
	writer.r = -1;
	writer.file = memfd_create("nine", MFD_CLOEXEC);
	assert_true(writer.file >= 0);
	assert_int_equal(write(writer.file, "\t", 1), 1);
}

TEST(test_move__system_call_waits)
{
	if (!can_hold_up_system_calls()) {
		print_message("userfaultfd() without UFFD_USER_MODE_ONLY is not permitted\n");
		skip();
	}
	open_nine();
	move_beside_writer(start_writer, 0);
	assert_int_equal(writer.r, 1);
	close(writer.file);
}

static void read_in_vain(void)
{
	errno = 0;
	assert_int_equal(pread(writer.file, writer.at, 1, 0), -1);
	assert_int_equal(errno, EFAULT);
}

/* Without privilege, system calls that write into the arena fail during the move, and only then. */
TEST(test_move__system_call_fails_without_privilege)
{
	struct rbk_arena *arena;

	FIXTURE(fixture, NULL);
	arena = arena_make(&fixture, MIB);
	open_nine();
	writer.at = arena->data;
	mover.is_unprivileged = true;
	mover.when_protected = read_in_vain;
	arena_move(&fixture, arena);
	assert_int_equal(mover.n_protected, 1);
	assert_int_equal(*writer.at, 0);
	assert_int_equal(pread(writer.file, writer.at, 1, 0), 1);
	assert_int_equal(*writer.at, 9);
	close(writer.file);
	rbk_arena_free(arena);
}

/* A futex operation neither waits nor writes. */
static void change_futex(void)
{
	uint32_t mine = 0;

	errno = 0;
	assert_int_equal(__real_syscall(SYS_futex, &mine, FUTEX_WAKE_OP_PRIVATE, 0, NULL, writer.at,
					FUTEX_OP(FUTEX_OP_SET, 1, FUTEX_OP_CMP_EQ, 0)),
			 -1);
	assert_int_equal(errno, EFAULT);
}

TEST(test_move__futex_operation_fails)
{
	struct rbk_arena *arena;

	FIXTURE(fixture, NULL);
	arena = arena_make(&fixture, MIB);
	writer.at = arena->data;
	mover.when_protected = change_futex;
	arena_move(&fixture, arena);
	assert_int_equal(*writer.at, 0);
	rbk_arena_free(arena);
}

/* Start a writer, then a child that has the userfaultfd until the pipe ends. */
static void start_writer_and_fork(void)
{
	char byte;

	start_writer();
	writer.child = fork();
	assert_true(writer.child >= 0);
	if (writer.child == 0) {
		close(writer.pipes[1]);
		_exit(read(writer.pipes[0], &byte, 1) == 0 ? 0 : 1);
	}
}

/* Writers continue although closing the userfaultfd does not free it. */
static void move_while_forking(int error)
{
	int status;

	writer.file = -1;
	assert_int_equal(pipe2(writer.pipes, O_CLOEXEC), 0);
	move_beside_writer(start_writer_and_fork, error);
	assert_int_equal(waitpid(writer.child, &status, WNOHANG), 0);
	close(writer.pipes[0]);
	close(writer.pipes[1]);
	assert_int_equal(waitpid(writer.child, &status, 0), writer.child);
	assert_int_equal(status, 0);
}

TEST(test_move__while_forking)
{
	move_while_forking(0);
}

TEST(test_move__fails_while_forking)
{
	move_while_forking(ENOMEM);
}

/* ---- threads that count ---- */

enum { N_COUNTERS = 4 };

/* A thread that increments words of its own at random places; words of all threads share pages. */
struct counter {
	pthread_t thread;
	unsigned int index; /* its words: words[index + N_COUNTERS * i] */
	uint64_t *expected; /* expected[i]: the value of that word */
	uint64_t n_lost;    /* times that a word did not have its value */
	_Atomic uint64_t n; /* increments */
	volatile uint64_t *words;
	size_t n_words;
	const atomic_bool *ends;
};

struct counters {
	struct counter of[N_COUNTERS];
	atomic_bool ends;
};

static void *count(void *data)
{
	struct counter *counter = data;
	uint64_t random = 88172645463325252u + counter->index;
	volatile uint64_t *word;
	size_t i;

	while (!atomic_load_explicit(counter->ends, memory_order_relaxed)) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		i = random % (counter->n_words / N_COUNTERS);
		word = &counter->words[counter->index + N_COUNTERS * i];
		counter->n_lost += *word != counter->expected[i];
		*word = ++counter->expected[i];
		atomic_fetch_add_explicit(&counter->n, 1, memory_order_relaxed);
	}
	return NULL;
}

/* Start the threads. They outlive a test that fails; their state is therefore on the heap. */
static struct counters *counters_begin(struct rbk_arena *arena)
{
	struct counters *counters = calloc(1, sizeof(*counters));
	size_t n_words = arena->bytes / sizeof(uint64_t);

	assert_non_null(counters);
	for (unsigned int i = 0; i < N_COUNTERS; i++) {
		struct counter *counter = &counters->of[i];

		counter->index = i;
		counter->expected = calloc(n_words / N_COUNTERS, sizeof(uint64_t));
		counter->words = (volatile uint64_t *)(void *)arena->data;
		counter->n_words = n_words;
		counter->ends = &counters->ends;
		assert_non_null(counter->expected);
		assert_int_equal(pthread_create(&counter->thread, NULL, count, counter), 0);
	}
	return counters;
}

/* Wait until every thread has counted on. */
static void counters_await(struct counters *counters)
{
	for (unsigned int i = 0; i < N_COUNTERS; i++) {
		uint64_t n = atomic_load(&counters->of[i].n);
		uint64_t start_ns = client_now_ns();

		while (atomic_load(&counters->of[i].n) < n + 100) {
			if (client_now_ns() - start_ns > patience_ns)
				fail_msg("thread %u counts no more", i);
			sleep_ms(1);
		}
	}
}

/* Stop the threads, check every word, and free @counters. */
static void counters_end(struct counters *counters)
{
	atomic_store(&counters->ends, true);
	for (unsigned int i = 0; i < N_COUNTERS; i++)
		assert_int_equal(pthread_join(counters->of[i].thread, NULL), 0);
	for (unsigned int i = 0; i < N_COUNTERS; i++) {
		struct counter *counter = &counters->of[i];

		for (size_t j = 0; j < counter->n_words / N_COUNTERS; j++)
			counter->n_lost +=
				counter->words[i + N_COUNTERS * j] != counter->expected[j];
		if (counter->n_lost > 0)
			fail_msg("thread %u found a wrong word %ju times in %ju increments", i,
				 (uintmax_t)counter->n_lost, (uintmax_t)counter->n);
		free(counter->expected);
	}
	free(counters);
}

static void move_beside_counters(bool is_unprivileged)
{
	const unsigned int n_moves = (unsigned int)test_scaled(50);
	struct counters *counters;
	struct rbk_arena *arena;

	FIXTURE(fixture, NULL);
	arena = arena_make(&fixture, 16 * MIB);
	mover.is_unprivileged = is_unprivileged;
	mover.when_protected = await_writer;
	counters = counters_begin(arena);
	for (unsigned int i = 0; i < n_moves; i++) {
		counters_await(counters);
		arena_move(&fixture, arena);
	}
	counters_await(counters);
	counters_end(counters);
	assert_int_equal(mover.n_protected, n_moves);
	assert_int_equal(mover.n_waited, n_moves);
	rbk_arena_free(arena);
}

TEST(test_move__loses_no_write)
{
	move_beside_counters(false);
}

TEST(test_move__loses_no_write_without_privilege)
{
	move_beside_counters(true);
}

/* After a failure of any step the arena is as before, and its writers continue. */
TEST(test_move__fails)
{
	static const struct {
		enum step step;
		int error;
		int expected;
		const char *said;
	} cases[] = {
		{STEP_OPEN, ENOSYS, -EOPNOTSUPP, "CONFIG_USERFAULTFD"},
		{STEP_OPEN, EPERM, -EOPNOTSUPP, "seccomp"},
		{STEP_OPEN, EACCES, -EOPNOTSUPP, "security module"},
		{STEP_OPEN, EINVAL, -EOPNOTSUPP, "Linux 5.19"},
		{STEP_OPEN, EMFILE, -EMFILE, "cannot make a userfaultfd: Too many open files"},
		{STEP_API, EINVAL, -EOPNOTSUPP, "Linux 5.19"},
		{STEP_MEMFD, ENFILE, -ENFILE, "cannot make 1048576 bytes"},
		{STEP_REGISTER, EBUSY, -EBUSY, "cannot register the arena"},
		{STEP_PROTECT, ENOMEM, -ENOMEM, "cannot write-protect the arena"},
		{STEP_COPY, ENOSPC, -ENOSPC, "cannot copy the arena's bytes"},
		{STEP_MAP, ENOMEM, -ENOMEM, "cannot map a copy of the arena"},
	};
	struct counters *counters;
	struct rbk_arena *arena, before;
	ino_t inode;
	int n_fds;

	FIXTURE(fixture, NULL);
	arena = arena_make(&fixture, MIB);
	before = *arena;
	inode = arena_inode(arena);
	n_fds = count_fds();
	fixture.rbk->segment_bytes = 65536;
	counters = counters_begin(arena);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		counters_await(counters);
		mover.failing = cases[i].step;
		mover.error = cases[i].error;
		mover.n_copies = 0;
		fixture.error.text[0] = '\0';
		assert_int_equal(client_arena_move(arena, &fixture.error), cases[i].expected);
		mover.failing = STEP_NONE;
		if (!strstr(fixture.error.text, cases[i].said))
			fail_msg("\"%s\" does not say \"%s\"", fixture.error.text, cases[i].said);
		assert_memory_equal(arena, &before, sizeof(before));
		assert_int_equal(arena_inode(arena), inode);
		assert_int_equal(count_fds(), n_fds);
		counters_await(counters);
	}
	arena_move(&fixture, arena);
	counters_await(counters);
	counters_end(counters);
	assert_int_not_equal(arena_inode(arena), inode);
	rbk_arena_free(arena);
}

/* Return true if the kernel lets this process write-protect shared memory. */
static bool is_offered(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};
	int fd = (int)__real_syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY), r;

	r = fd < 0 ? -1 : __real_ioctl(fd, UFFDIO_API, &api);
	client_close(&fd);
	return r == 0;
}

int main(void)
{
	if (!is_offered()) {
		puts("skipped: userfaultfd() cannot write-protect shared memory here (Linux 5.19)");
		return 77;
	}
	return test_run(NULL, NULL);
}

/* ---- connections ---- */

/*
 * A connection whose arenas cannot move has them fixed all the same. It does not re-attach while it
 * has one. Sealed arenas and arenas in memory of a device need not move.
 */
TEST(test_move__is_impossible)
{
	const struct fake_options options = {.features = RBK_FEAT_REATTACH | RBK_FEAT_RESTORE |
							 RBK_FEAT_FIXED_ARENAS,
					     .exports = true};

	for (int i = 0; i < 2; i++) {
		struct rbk_error error = {""};
		struct rbk_arena *arena, *own, *sealed;
		struct rbk_stats stats;
		struct scene scene;

		scene_begin_without(&scene, &options);
		mover.failing = i ? STEP_API : STEP_OPEN;
		mover.error = i ? EINVAL : EPERM;
		scene_connect(&scene, 0, patience_ns, patience_ns);
		mover.failing = STEP_NONE;
		assert_int_equal(rbk_arena_new(scene.fixture.rbk, MIB, &own, NULL), 0);
		assert_true(own->exported);
		for (int j = 0; j < 2; j++) {
			struct rbk *rbk = scene.fixture.rbk;

			assert_int_equal(
				rbk_arena_new_flags(rbk, MIB, RBK_ARENA_MEMFD, &arena, NULL), 0);
			assert_true(arena->fixed);
			if (j == 0)
				rbk_arena_free(arena);
			else
				assert_int_equal(rbk_arena_seal(arena, NULL), 0);
			scene_kill(&scene);
			scene_start(&scene, &options);
			assert_int_equal(rbk_stats(rbk, &stats), 0);
			assert_int_equal(rbk_n_reattached(rbk), j + 1);
		}
		sealed = arena;
		assert_int_equal(
			rbk_arena_new_flags(scene.fixture.rbk, MIB, RBK_ARENA_MEMFD, &arena, NULL),
			0);
		assert_true(arena->fixed);
		scene_kill(&scene);
		scene_start(&scene, &options);
		assert_int_equal(rbk_get_stats(scene.fixture.rbk, &stats, &error), -ECONNRESET);
		assert_non_null(strstr(error.text, "userfaultfd"));
		rbk_arena_free(sealed);
		rbk_arena_free(own);
		rbk_arena_free(arena);
		scene_end(&scene);
	}
}
