/* SPDX-License-Identifier: MIT */
/*
 * Filters of system calls: broker/util/sandbox.h
 *
 * A filter is for ever. So each case runs in a process of its own, in a thread that has the name of
 * a thread of brokerd.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"
#include "util/crash.h"
#include "util/sandbox-calls.h"
#include "util/sandbox.h"
#include "util/thread.h"

enum { N_STORM = 20000, N_THREADS = 3, SKIPPED = 77 };

/* Names of threads, in the order of letters */
static const char letters[] = "BSRQWCMTPN";
static const char *const threads[] = {"brokerd",      "rb-setup",  "rb-reactor", "rb-vk-0",
				      "rb-cpu-0",     "rb-closer", "metrics",    "rb-telemetry",
				      "rb-run-queue", "rb-starter"};

static pid_t parent;

/* ---- Calls that a thread tries ---- */

static long try_read(void)
{
	return open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
}

static long try_write(void)
{
	return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

static long try_socket(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

static long try_execve(void)
{
	char *const none[] = {NULL};

	return execve("/nowhere", none, none);
}

static long try_ptrace(void)
{
	return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static long try_peek(void)
{
	return process_vm_readv(getpid(), NULL, 0, NULL, 0, 0);
}

static long try_map(void)
{
	void *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? -1 : 0;
}

static long try_protect(void)
{
	void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? -1 : mprotect(at, 4096, PROT_READ | PROT_EXEC);
}

static long try_kill(void)
{
	return kill(getpid(), SIGCHLD);
}

static long try_tgkill(void)
{
	return syscall(SYS_tgkill, parent, parent, SIGCHLD);
}

static long try_ring(void)
{
	return syscall(SYS_io_uring_setup, 0, NULL);
}

static long try_bpf(void)
{
	return syscall(SYS_bpf, 0, NULL, 0);
}

static long try_gate(void)
{
	union bpf_attr attr = {.map_fd = (uint32_t)-1};

	return syscall(SYS_bpf, BPF_MAP_DELETE_ELEM, &attr, sizeof(attr));
}

static long try_stop(void)
{
	return syscall(SYS_pidfd_send_signal, -1, SIGKILL, NULL, 0);
}

static long try_disturb(void)
{
	return syscall(SYS_pidfd_send_signal, -1, SIGSTOP, NULL, 0);
}

static long try_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid;
}

static void *begin_only(void *data)
{
	return data;
}

static long try_thread(void)
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, begin_only, NULL);
	if (errno)
		return -1;
	pthread_join(thread, NULL);
	return 0;
}

static long try_clone3(void)
{
	return syscall(SYS_clone3, NULL, 0);
}

static long try_openat2(void)
{
	return syscall(SYS_openat2, -1, NULL, NULL, 0);
}

/* The threads that may make the call, by their letters; the errno of the others. */
static const struct attempt {
	long (*call)(void);
	const char *name; /* of the report; NULL: none */
	const char *may;
	int error;
} attempts[] = {
	{try_read, "openat", "BSRQMTP", EPERM},
	{try_write, "openat", "BS", EPERM},
	{try_socket, "socket", "B", EPERM},
	{try_execve, "execve", "", EPERM},
	{try_ptrace, "ptrace", "", EPERM},
	{try_peek, "process_vm_readv", "", EPERM},
	{try_map, "mmap", "BSQ", EPERM},
	{try_protect, "mprotect", "BSQ", EPERM},
	{try_kill, "kill", "", EPERM},
	{try_tgkill, "tgkill", "", EPERM},
	{try_ring, "io_uring_setup", "", ENOSYS},
	{try_bpf, "bpf", "P", EPERM},
	{try_gate, "bpf", "BRP", EPERM},
	{try_stop, "pidfd_send_signal", "BR", ENOSYS},
	{try_disturb, "pidfd_send_signal", "", ENOSYS},
	{try_fork, NULL, "", EPERM},
	{try_thread, NULL, "BSQN", EPERM},
	{try_clone3, NULL, "", ENOSYS},
	{try_openat2, "openat2", "", ENOSYS},
};

enum { N_ATTEMPTS = sizeof(attempts) / sizeof(attempts[0]) };

/* ---- Processes for cases ---- */

/* Fail in a process: cmocka's assertions belong to its parent. */
#define EXPECT(condition)                                                               \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			_exit(1);                                                       \
		}                                                                       \
	} while (0)

/* Run @be in a process; it must return. */
static int run(void (*be)(const void *context), const void *context)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		for (int i = 1; i < 32; i++)
			if (i != SIGKILL && i != SIGSTOP)
				signal(i, SIG_DFL);
		signal(SIGCHLD, SIG_IGN);
		parent = getppid();
		be(context);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void expect_good(void (*be)(const void *context), const void *context)
{
	int status = run(be, context);

	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		exit(SKIPPED);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("wait status 0x%x", status);
}

static void begin(enum sandbox_mode mode)
{
	int fd, r = sandbox_init(mode, &fd);

	if (r == SANDBOX_E_LACKING)
		_exit(SKIPPED);
	EXPECT(r == 0 && fd >= 0);
}

static void in_thread(const char *name, void *(*main)(void *data), void *data)
{
	pthread_t thread;

	EXPECT(thread_start(&thread, name, main, data) == 0);
	pthread_join(thread, NULL);
}

struct result {
	const struct attempt *attempt;
	long returned;
	int error;
};

static void *make_attempt(void *data)
{
	struct result *result = data;

	errno = 0;
	result->returned = result->attempt->call();
	result->error = errno;
	return NULL;
}

/* ---- What threads may do ---- */

/* @context: the index of the thread's name */
static void attempt_all(const void *context)
{
	const unsigned int thread = *(const unsigned int *)context;
	struct sandbox_refusal refusal;

	begin(SANDBOX_ON);
	for (unsigned int i = 0; i < N_ATTEMPTS; i++) {
		struct result result = {.attempt = &attempts[i]};
		const bool may = attempts[i].may[0] && strchr(attempts[i].may, letters[thread]);

		in_thread(threads[thread], make_attempt, &result);
		if (may) {
			/* The call came to the kernel, which may refuse it for its arguments. */
			EXPECT(result.returned >= 0 || result.error == EBADF ||
			       attempts[i].call == try_bpf);
			EXPECT(!sandbox_take(&refusal));
			continue;
		}
		if (result.returned != -1 || result.error != attempts[i].error)
			fprintf(stderr, "thread %s, attempt %u: %ld, errno %d\n", threads[thread],
				i, result.returned, result.error);
		EXPECT(result.returned == -1 && result.error == attempts[i].error);
		if (!sandbox_take(&refusal)) {
			/* The second attempt of a call is not reported again. */
			EXPECT(!attempts[i].name || attempts[i].call == try_write ||
			       attempts[i].call == try_gate || attempts[i].call == try_disturb);
			continue;
		}
		if (!attempts[i].name || strcmp(refusal.call, attempts[i].name) != 0)
			fprintf(stderr, "thread %s, attempt %u: %s\n", threads[thread], i,
				refusal.call);
		EXPECT(attempts[i].name && strcmp(refusal.call, attempts[i].name) == 0);
		EXPECT(refusal.error == attempts[i].error);
		EXPECT(strstr(refusal.thread,
			      letters[thread] == 'B' ? "brokerd" : threads[thread]) ||
		       strchr("RQW", letters[thread]));
		EXPECT(!sandbox_take(&refusal));
	}
}

TEST(test_threads__forbidden_calls)
{
	for (unsigned int i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
		expect_good(attempt_all, &i);
}

static void *start_another(void *data)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, make_attempt, data) == 0)
		pthread_join(thread, NULL);
	return NULL;
}

/* A thread that a driver starts, without thread_start(). */
static void inherit(const void *context)
{
	struct result result = {.attempt = &attempts[3]};

	begin(SANDBOX_ON);
	in_thread("rb-setup", start_another, &result);
	EXPECT(result.returned == -1 && result.error == EPERM);
	/* The steward, and programs without the sandbox */
	in_thread("rb-steward", make_attempt, &result);
	EXPECT(result.returned == -1 && result.error == ENOENT);
}

TEST(test_threads__inherit)
{
	expect_good(inherit, NULL);
}

/* A thread that starts others which have filters of their own */
static void *start_threads(void *data)
{
	pthread_t thread;

	for (const char *const *name = data; *name; name++)
		if (thread_start(&thread, *name, begin_only, NULL) == 0)
			pthread_join(thread, NULL);
	return NULL;
}

/* Threads that start when others have filters already get their own, too. */
static void start_late(const void *context)
{
	static const char *const by_starter[] = {"rb-closer", NULL};
	static const char *const by_setup[] = {"rb-compile", "rb-vk-0", NULL};
	struct sandbox_refusal refusal;

	begin(SANDBOX_ON);
	EXPECT(sandbox_enter("brokerd") == 0);
	in_thread("rb-setup", start_threads, (void *)by_setup);
	EXPECT(!sandbox_take(&refusal));
	in_thread("rb-starter", start_threads, (void *)by_starter);
	EXPECT(!sandbox_take(&refusal));
}

TEST(test_threads__start_late)
{
	expect_good(start_late, NULL);
}

static void *nap(void *data)
{
	char *const bytes = malloc(1 << 20);

	memset(bytes, 1, 1 << 20);
	usleep(100);
	free(bytes);
	EXPECT(write(*(int *)data, "x", 1) == 1);
	return NULL;
}

/* All threads may allocate, wait, and write to descriptors that they have. */
static void live(const void *context)
{
	struct sandbox_refusal refusal;
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	begin(SANDBOX_ON);
	for (unsigned int i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
		in_thread(threads[i], nap, &fd);
	EXPECT(!sandbox_take(&refusal));
}

TEST(test_threads__live)
{
	expect_good(live, NULL);
}

/* The C library looks at a file when a thread first gives back memory of its heap. */
static void *free_much(void *data)
{
	enum { BLOCKS = 64, BLOCK_BYTES = 100 << 10 };
	void *blocks[BLOCKS];

	for (unsigned int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(BLOCK_BYTES);
		EXPECT(blocks[i]);
		memset(blocks[i], 1, BLOCK_BYTES);
	}
	for (unsigned int i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	return NULL;
}

static void free_on_worker(const void *context)
{
	struct sandbox_refusal refusal;

	begin(SANDBOX_ON);
	in_thread("rb-cpu-0", free_much, NULL);
	EXPECT(!sandbox_take(&refusal));
}

TEST(test_threads__give_memory_back)
{
	expect_good(free_on_worker, NULL);
}

static void *be_aborted(void *data)
{
	abort();
}

static void abort_worker(const void *context)
{
	begin(SANDBOX_ON);
	EXPECT(crash_init() == 0);
	in_thread("rb-cpu-0", be_aborted, NULL);
}

TEST(test_threads__abort)
{
	const int status = run(abort_worker, NULL);

	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		exit(SKIPPED);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

/* ---- Modes and reports ---- */

static void only_log(const void *context)
{
	struct result result = {.attempt = &attempts[0]};
	struct sandbox_refusal refusal;

	begin(SANDBOX_LOG);
	in_thread("rb-cpu-0", make_attempt, &result);
	EXPECT(result.returned >= 0);
	EXPECT(sandbox_take(&refusal) && strcmp(refusal.call, "openat") == 0 && !refusal.error);
	/* An error is the kernel's. */
	result.attempt = &attempts[3];
	in_thread("rb-cpu-0", make_attempt, &result);
	EXPECT(result.returned == -1 && result.error == ENOENT);
	EXPECT(sandbox_take(&refusal) && strcmp(refusal.call, "execve") == 0);
	/* Processes can be made, too. */
	result.attempt = &attempts[15];
	in_thread("rb-cpu-0", make_attempt, &result);
	EXPECT(result.returned > 0);
}

TEST(test_modes__log)
{
	expect_good(only_log, NULL);
}

static void be_off(const void *context)
{
	struct result result = {.attempt = &attempts[0]};
	int fd;

	EXPECT(sandbox_init(SANDBOX_OFF, &fd) == 0 && fd == -1);
	in_thread("rb-cpu-0", make_attempt, &result);
	EXPECT(result.returned >= 0);
}

TEST(test_modes__off)
{
	expect_good(be_off, NULL);
}

static void *storm(void *data)
{
	for (unsigned int i = 0; i < N_STORM; i++) {
		errno = 0;
		EXPECT(socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EPERM);
	}
	return NULL;
}

static void weather(const void *context)
{
	struct sandbox_refusal refusal;
	pthread_t storms[N_THREADS];

	begin(SANDBOX_ON);
	for (unsigned int i = 0; i < N_THREADS; i++)
		EXPECT(thread_start(&storms[i], "rb-cpu-0", storm, NULL) == 0);
	for (unsigned int i = 0; i < N_THREADS; i++)
		pthread_join(storms[i], NULL);
	EXPECT(sandbox_take(&refusal) && strcmp(refusal.call, "socket") == 0);
	EXPECT(!sandbox_take(&refusal));
}

TEST(test_reports__storm)
{
	expect_good(weather, NULL);
}

/* The kernel refuses filters that add up to more than 256 KiB. */
static void *take_filters(void *data)
{
	unsigned int n = 0;

	while (sandbox_enter("brokerd") == 0)
		EXPECT(!sandbox_is_incomplete() && n++ < 10000);
	return NULL;
}

static void lack_room(const void *context)
{
	struct pollfd told = {.events = POLLIN};
	struct sandbox_refusal refusal;

	EXPECT(sandbox_init(SANDBOX_ON, &told.fd) >= 0);
	if (told.fd < 0)
		_exit(SKIPPED);
	EXPECT(poll(&told, 1, 0) == 0);
	in_thread("rb-steward", take_filters, NULL);
	EXPECT(poll(&told, 1, 0) == 1);
	EXPECT(!sandbox_take(&refusal));
	EXPECT(sandbox_is_incomplete() && poll(&told, 1, 0) == 0);
}

TEST(test_reports__refused_filter)
{
	expect_good(lack_room, NULL);
}

static void *call_unknown(void *data)
{
	EXPECT(syscall(1000) == -1 && errno == ENOSYS);
	EXPECT(syscall(100000) == -1 && errno == ENOSYS);
	return NULL;
}

/* Another process of the same user may send SIGSYS. */
static void meet_unknown(const void *context)
{
	struct sandbox_refusal refusal;

	begin(SANDBOX_ON);
	kill(getpid(), SIGSYS);
	EXPECT(!sandbox_take(&refusal));
	in_thread("rb-setup", call_unknown, NULL);
	EXPECT(sandbox_take(&refusal) && !refusal.call && refusal.number == 1000);
	EXPECT(!sandbox_take(&refusal));
}

TEST(test_reports__unknown_calls)
{
	expect_good(meet_unknown, NULL);
}

/* ---- The table ---- */

static const struct {
	const char *name, *letters;
} rows[] = {
#define CALL(name, letters, why)                                {#name, letters},
#define CALL_IF(name, letters, argument, condition, value, why) {#name, letters},
	SANDBOX_CALLS(CALL, CALL, CALL_IF)};

static bool may(const char *name, const char *kinds)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].name, name) == 0 && strpbrk(rows[i].letters, kinds))
			return true;
	return false;
}

/* A thread has the filter of the thread that starts it, too. */
TEST(test_table__threads_start_threads)
{
	static const struct {
		const char *kind, *starter;
	} pairs[] = {
		{"SQRrWCMTN", "B"},
		{"Q", "S"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (size_t j = 0; j < sizeof(pairs) / sizeof(pairs[0]); j++)
			if (strpbrk(rows[i].letters, pairs[j].kind) &&
			    !may(rows[i].name, pairs[j].starter))
				fail_msg("%s: %s, but not %s", rows[i].name, rows[i].letters,
					 pairs[j].starter);
}
