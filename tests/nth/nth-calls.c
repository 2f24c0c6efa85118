/* SPDX-License-Identifier: MIT */
/*
 * Calls that fail: see nth.h
 *
 * The linker sends each call of a function in calls.txt here (--wrap). The wrappers are generated:
 * each passes six words on, whatever its function takes. That is right for functions of integers
 * and pointers in the calling conventions of x86-64 and AArch64: unused registers are ignored, and
 * a variadic function finds its arguments where any other function does. Functions that take more
 * words or a list of arguments are written out below.
 */
#include "nth/nth.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct nth_page *page;
/* true while the thread's calls are the test's own */
static _Thread_local bool is_inside;

/* The linker's: the program's file in memory, or that of the shared library which contains this. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

__attribute__((constructor(101))) static void nth_begin(void)
{
	const char *path = getenv("RBK_TEST_NTH");
	void *frames[1];
	void *memory;
	int fd;

	if (!path)
		return;
	/* The first call loads a library. */
	backtrace(frames, 1);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		abort();
	memory = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		abort();
	close(fd);
	page = memory;
}

uint64_t nth_live(void)
{
	return page ? atomic_load(&page->n_live) : 0;
}

void nth_pause(bool is_paused)
{
	is_inside = is_paused;
}

static uint64_t hash(uint64_t key, uint64_t word)
{
	for (unsigned int i = 0; i < 8; i++, word >>= 8)
		key = (key ^ (word & 255)) * 0x100000001b3u;
	return key;
}

/* Find the place of @frames, or make it. Return: NULL if the table is full. */
static struct nth_place *find_place(const char *function, unsigned int class, unsigned int n_errors,
				    const uint64_t *frames)
{
	uint64_t key = 0xcbf29ce484222325u, expected;
	struct nth_place *place;

	for (const char *c = function; *c; c++)
		key = hash(key, (unsigned char)*c);
	for (unsigned int i = 0; i < NTH_DEPTH; i++)
		key = hash(key, frames[i]);
	key |= 1;
	for (unsigned int i = 0; i < NTH_PLACES; i++) {
		place = &page->places[(key + i) % NTH_PLACES];
		expected = atomic_load(&place->key);
		if (expected == key)
			return place;
		if (expected)
			continue;
		if (atomic_compare_exchange_strong(&place->key, &expected, key)) {
			place->class = class;
			place->n_errors = n_errors;
			memcpy(place->frames, frames, sizeof(place->frames));
			strncpy(place->function, function, sizeof(place->function) - 1);
			atomic_fetch_add(&page->n_places, 1);
			return place;
		}
		if (expected == key)
			return place;
	}
	return NULL;
}

static bool is_to_fail(struct nth_place *place, unsigned int class)
{
	const uint64_t n = atomic_fetch_add(&place->n, 1) + 1;
	const uint64_t mode = atomic_load(&page->mode);

	if (mode == NTH_RECORD)
		return false;
	if (mode == NTH_ALL && atomic_load(&page->n_failed) > 0)
		return class == atomic_load(&page->failing_class);
	if (atomic_load(&place->key) != atomic_load(&page->key))
		return false;
	return n == atomic_load(&page->occurrence) ||
	       (mode != NTH_ONCE && n > atomic_load(&page->occurrence));
}

/* Choose one of @n errors. No call is interrupted for ever. Return: 0 if there is none. */
static int choose(const int *errors, unsigned int n)
{
	const uint64_t first = atomic_load(&page->choice);

	for (unsigned int i = 0; i < n; i++) {
		const int error = errors[(first + i) % n];

		if (error != EINTR || atomic_load(&page->mode) == NTH_ONCE)
			return error;
	}
	return 0;
}

/*
 * Count a call. @errors has the errors of calls that fail, and ends with 0.
 * Return: 0, or the error with which the call must fail. Preserves errno if it is 0.
 */
__attribute__((noinline)) static int nth_error(const char *function, unsigned int class,
					       const int *errors)
{
	enum { OWN = 2 }; /* this function, and the wrapper */
	void *callers[NTH_FRAMES + OWN] = {NULL};
	uint64_t frames[NTH_FRAMES] = {0};
	unsigned int n_errors = 0;
	struct nth_place *place;
	int saved = errno, n, error;

	if (!page || is_inside || !atomic_load(&page->is_armed) || errors[0] == 0)
		return 0;
	while (errors[n_errors])
		n_errors++;
	atomic_fetch_add(class == NTH_memory ? &page->n_allocations : &page->n_calls, 1);
	n = backtrace(callers, NTH_FRAMES + OWN);
	for (int i = OWN; i < n; i++)
		if ((const char *)callers[i] >= __ehdr_start && (const char *)callers[i] < etext)
			frames[i - OWN] = (uint64_t)((const char *)callers[i] - __ehdr_start);
	place = find_place(function, class, n_errors, frames);
	errno = saved;
	if (!place || !is_to_fail(place, class))
		return 0;
	error = choose(errors, n_errors);
	if (error) {
		atomic_store(&page->failing_class, class);
		atomic_store(&page->error, (uint64_t)error);
		atomic_fetch_add(&page->n_failed, 1);
	}
	return error;
}

static void count_live(int n)
{
	if (page)
		atomic_fetch_add(&page->n_live, (uint64_t)(int64_t)n);
}

/* ---- Generated wrappers ---- */

static long fail_minus(int error)
{
	errno = error;
	return -1;
}

static long fail_null(int error)
{
	errno = error;
	return 0;
}

#define fail_zero fail_null

static long fail_positive(int error)
{
	return error;
}

static long fail_negative(int error)
{
	return -error;
}

/* Weak: a program lacks the libraries whose functions it does not call. */
#define DECLARE(name)                                        \
	long __real_##name(long, ...) __attribute__((weak)); \
	long __wrap_##name(long a, long b, long c, long d, long e, long f);

#define CALL_OF(name, how, class, ...)                                              \
	DECLARE(name)                                                               \
	long __wrap_##name(long a, long b, long c, long d, long e, long f)          \
	{                                                                           \
		static const int errors[] = {__VA_ARGS__};                          \
		const int error = nth_error(#name, NTH_##class, errors);            \
                                                                                    \
		return error ? fail_##how(error) : __real_##name(a, b, c, d, e, f); \
	}

/* A call that has done its work when it fails. */
#define CALL_after(name, class, ...)                                       \
	DECLARE(name)                                                      \
	long __wrap_##name(long a, long b, long c, long d, long e, long f) \
	{                                                                  \
		static const int errors[] = {__VA_ARGS__};                 \
		const int error = nth_error(#name, NTH_##class, errors);   \
		const long r = __real_##name(a, b, c, d, e, f);            \
                                                                           \
		return error ? fail_minus(error) : r;                      \
	}

/* A call that makes a block for free(). */
#define BLOCK_OF(name, how, class, ...)                                    \
	DECLARE(name)                                                      \
	long __wrap_##name(long a, long b, long c, long d, long e, long f) \
	{                                                                  \
		static const int errors[] = {__VA_ARGS__};                 \
		const int error = nth_error(#name, NTH_##class, errors);   \
                                                                           \
		if (error)                                                 \
			return fail_##how(error);                          \
		count_live(1);                                             \
		return __real_##name(a, b, c, d, e, f);                    \
	}

#define CALL_minus(name, class, ...)          CALL_OF(name, minus, class, __VA_ARGS__)
#define CALL_null(name, class, ...)           CALL_OF(name, null, class, __VA_ARGS__)
#define CALL_zero(name, class, ...)           CALL_OF(name, zero, class, __VA_ARGS__)
#define CALL_positive(name, class, ...)       CALL_OF(name, positive, class, __VA_ARGS__)
#define CALL_negative(name, class, ...)       CALL_OF(name, negative, class, __VA_ARGS__)

#define CALL_block_null(name, class, ...)     BLOCK_OF(name, null, class, __VA_ARGS__)
#define CALL_block_minus(name, class, ...)    BLOCK_OF(name, minus, class, __VA_ARGS__)
#define CALL_block_positive(name, class, ...) BLOCK_OF(name, positive, class, __VA_ARGS__)

#include "nth-list.h"

/* ---- Others ---- */

void __real_free(void *block);
void __wrap_free(void *block);

void __wrap_free(void *block)
{
	if (block)
		count_live(-1);
	__real_free(block);
}

void *__real_realloc(void *block, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);

void *__wrap_realloc(void *block, size_t bytes)
{
	static const int errors[] = {ENOMEM, 0};

	if (nth_error("realloc", NTH_memory, errors)) {
		errno = ENOMEM;
		return NULL;
	}
	if (!block)
		count_live(1);
	return __real_realloc(block, bytes);
}

void *__real_reallocarray(void *block, size_t n, size_t bytes);
void *__wrap_reallocarray(void *block, size_t n, size_t bytes);

void *__wrap_reallocarray(void *block, size_t n, size_t bytes)
{
	static const int errors[] = {ENOMEM, 0};

	if (nth_error("reallocarray", NTH_memory, errors)) {
		errno = ENOMEM;
		return NULL;
	}
	if (!block)
		count_live(1);
	return __real_reallocarray(block, n, bytes);
}

int __wrap_asprintf(char **ret, const char *format, ...) __attribute__((format(printf, 2, 3)));

int __wrap_asprintf(char **ret, const char *format, ...)
{
	static const int errors[] = {ENOMEM, 0};
	va_list list;
	int r;

	if (nth_error("asprintf", NTH_memory, errors))
		return -1;
	count_live(1);
	va_start(list, format);
	r = (int)__real_vasprintf((long)ret, format, list);
	va_end(list);
	return r;
}

/* Return true if a mapping begins at @address, or ends there, or none is there. */
static bool is_edge(const char *maps, uintptr_t address)
{
	unsigned long begin, end;

	for (const char *line = maps; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (sscanf(line, "%lx-%lx", &begin, &end) == 2 && begin < address && address < end)
			return false;
	}
	return true;
}

/* Unmapping takes memory only where it splits a mapping. Return true if it does. */
static bool is_split(const void *begin, size_t bytes)
{
	static const size_t most = 1 << 20;
	const uintptr_t address = (uintptr_t)begin;
	size_t used = 0;
	ssize_t n;
	char *maps;
	bool r;
	int fd;

	is_inside = true;
	maps = calloc(1, most);
	fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	while (maps && fd >= 0 && (n = read(fd, maps + used, most - used - 1)) > 0)
		used += (size_t)n;
	r = maps && (!is_edge(maps, address) || !is_edge(maps, address + bytes));
	close(fd);
	free(maps);
	is_inside = false;
	return r;
}

int __real_munmap(void *begin, size_t bytes);
int __wrap_munmap(void *begin, size_t bytes);

int __wrap_munmap(void *begin, size_t bytes)
{
	static const int errors[] = {ENOMEM, 0};

	if (nth_error("munmap", NTH_memory, errors) && is_split(begin, bytes))
		return (int)fail_minus(ENOMEM);
	return __real_munmap(begin, bytes);
}

/* Return true if @fd is an eventfd, a timer or the like, whose calls do not fail. */
static bool is_anonymous(int fd)
{
	struct stat about;
	bool r;

	is_inside = true;
	r = fstat(fd, &about) == 0 && (about.st_mode & S_IFMT) == 0;
	is_inside = false;
	return r;
}

ssize_t __real_read(int fd, void *to, size_t bytes);
ssize_t __wrap_read(int fd, void *to, size_t bytes);

ssize_t __wrap_read(int fd, void *to, size_t bytes)
{
	static const int errors[] = {EINTR, EIO, 0};
	const int error = is_inside || is_anonymous(fd) ? 0 : nth_error("read", NTH_other, errors);

	return error ? fail_minus(error) : __real_read(fd, to, bytes);
}

ssize_t __real_write(int fd, const void *from, size_t bytes);
ssize_t __wrap_write(int fd, const void *from, size_t bytes);

ssize_t __wrap_write(int fd, const void *from, size_t bytes)
{
	static const int errors[] = {ENOSPC, EINTR, EIO, 0};
	const int error = is_inside || is_anonymous(fd) ? 0 : nth_error("write", NTH_other, errors);

	return error ? fail_minus(error) : __real_write(fd, from, bytes);
}

long __real_fcntl64(long fd, ...);
long __wrap_fcntl64(long fd, long command, long argument);

/* Reading and setting flags cannot fail. */
long __wrap_fcntl64(long fd, long command, long argument)
{
	static const int files[] = {EMFILE, 0}, others[] = {EBUSY, ENOMEM, 0};
	int error = 0;

	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		error = nth_error("fcntl64", NTH_files, files);
	else if (command != F_GETFD && command != F_SETFD && command != F_GETFL &&
		 command != F_SETFL && command != F_GET_SEALS)
		error = nth_error("fcntl64", NTH_other, others);
	return error ? fail_minus(error) : __real_fcntl64(fd, command, argument);
}

int __real_madvise(void *begin, size_t bytes, int advice);
int __wrap_madvise(void *begin, size_t bytes, int advice);

/* The kernel drops pages without needing memory. */
int __wrap_madvise(void *begin, size_t bytes, int advice)
{
	static const int errors[] = {ENOMEM, EAGAIN, 0};
	const int error = advice == MADV_DONTNEED ? 0 : nth_error("madvise", NTH_memory, errors);

	return error ? (int)fail_minus(error) : __real_madvise(begin, bytes, advice);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

/* System calls without a function of the C library. A futex's wake-ups cannot fail. */
static const int *syscall_errors(long number, long futex_operation, unsigned int *ret_class)
{
	static const int none[] = {0}, interrupted[] = {EINTR, 0}, permission[] = {EPERM, 0};
	static const int files[] = {EMFILE, ENOMEM, 0};

	*ret_class = NTH_other;
	switch (number) {
	case SYS_futex:
		return (futex_operation & 127) == 0 || (futex_operation & 127) == 9 ? interrupted
										    : none;
	case SYS_pidfd_open:
	case SYS_userfaultfd:
	case SYS_fsopen:
	case SYS_fsmount:
	case SYS_bpf:
		*ret_class = NTH_files;
		return files;
	case SYS_gettid:
		return none;
	default:
		return permission;
	}
}

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	unsigned int class;
	const int *errors = syscall_errors(number, b, &class);
	char name[] = "syscall 000";
	int error;

	name[8] = (char)('0' + number / 100 % 10);
	name[9] = (char)('0' + number / 10 % 10);
	name[10] = (char)('0' + number % 10);
	error = nth_error(name, class, errors);
	return error ? fail_minus(error) : __real_syscall(number, a, b, c, d, e, f);
}
