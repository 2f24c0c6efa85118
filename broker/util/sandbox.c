/* SPDX-License-Identifier: MIT */
/*
 * Filters of system calls, see sandbox.h
 *
 * A filter is a program of the kernel's seccomp, made of the rows of sandbox-calls.h. It belongs to
 * a thread and is inherited by new threads and by programs that the thread executes; filters add
 * up, and none is ever removed.
 *
 * A call that no row allows raises SIGSYS in its thread. The handler notes the call and sets its
 * result. It can interrupt any code, so it only sets a bit and writes an eventfd, when the bit was
 * not set before; the reactor logs. A storm of refused calls thus costs the thread that makes them
 * a signal each, and other threads nothing. A thread of a driver must not block SIGSYS, or the
 * kernel ends brokerd at a refused call; Mesa's threads do not, because browsers filter in the same
 * way. pthread_create() blocks it for a moment. So a call that makes a process fails without a
 * signal, and hence without a report; the report of the exec that it was made for is lost, too.
 *
 * In mode SANDBOX_LOG the handler makes the call on behalf of the thread, by an instruction of its
 * own, which all filters let pass.
 *
 * Filters are against a defect that lets a client choose what a thread calls. All threads share
 * their memory: whoever can write all of it can also make the steward (daemon/steward.c), which has
 * no filter, call something. The limits of the unit file hold for that, too.
 */
#include "util/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#include "util/error.h"
#include "util/sandbox-calls.h"

/*
 * Sanitizers and valgrind make calls of their own in all threads: there is no sandbox under them.
 * On other machines the handler would have to know more registers.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANDBOX  0
#define IS_SANITIZED 1
#elif defined(__x86_64__)
#define HAS_SANDBOX 1
#else
#define HAS_SANDBOX  0
#define IS_SANITIZED 0
#endif

enum condition { ALWAYS, IS, IS_OWN, HAS, LACKS };

struct row {
	int number;
	const char *letters;
	enum condition condition;
	unsigned int argument;
	uint32_t value;
};

#define CALL(name, letters, why) {SYS_##name, letters, ALWAYS, 0, 0},
#define CALL_IF(name, letters, argument, condition, value, why) \
	{SYS_##name, letters, condition, argument, value},
#ifdef __x86_64__
#define CALL_OLD CALL
#else
#define CALL_OLD(name, letters, why)
#endif
static const struct row rows[] = {SANDBOX_CALLS(CALL, CALL_OLD, CALL_IF)};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static const char *const names[] = {
#include "sandbox-names.h"
};

/* Kinds of threads. A thread is of the first kind whose prefix its name has. */
static const struct kind {
	const char *prefix, *letters, *text;
} kinds[] = {
	{"brokerd", "B", "brokerd's start, or a driver's thread"},
	{"rb-reactor", "Rr", "the reactor"},
	{"rb-setup", "S", "the setup thread (rb-setup)"},
	{"rb-compile", "S", "a compiling thread (rb-compile)"},
	{"rb-vk", "Q", "a Vulkan thread (rb-vk)"},
	{"rb-cpu-", "W", "a CPU worker (rb-cpu)"},
	{"rb-closer", "C", "a closing thread (rb-closer)"},
	{"rb-starter", "CN", "the thread that starts closing threads (rb-starter)"},
	{"metrics", "M", "the metrics thread (metrics)"},
	{"rb-telemetry", "T", "the telemetry thread (rb-telemetry)"},
	{"rb-run-queue", "P", "the thread that watches the run queue (rb-run-queue)"},
};

enum {
	N_KINDS = sizeof(kinds) / sizeof(kinds[0]),
	N_NUMBERS = 1024, /* of calls that are told apart */
	WORD_BITS = 64,
	/* Calls from this number on are newer than Linux 5.0, and have the same on all machines. */
	FIRST_NEW = 424,
	FROM_FILTER = 1, /* SYS_SECCOMP, which some C libraries do not define */
	MOST_STEPS = 16 + 5 * N_ROWS,
};

/* Set before the first thread with a filter starts */
static enum sandbox_mode mode = SANDBOX_OFF;
static int event_fd = -1;

/* True once the kernel has refused a thread's filter */
static atomic_bool is_incomplete;

/* Refused calls: the handler sets bits of noted, and sandbox_take() those of taken. */
static _Atomic uint64_t noted[N_KINDS][N_NUMBERS / WORD_BITS];
static uint64_t taken[N_KINDS][N_NUMBERS / WORD_BITS];

static int refused_with(int number)
{
	return number >= FIRST_NEW ? ENOSYS : EPERM;
}

#if HAS_SANDBOX
/* --- The handler --- */

/* Calls through this instruction pass all filters of mode SANDBOX_LOG. */
long sandbox_pass(long number, const long long args[6]);
extern const char sandbox_passed[];

__asm__(".pushsection .text\n"
	".type sandbox_pass, @function\n"
	"sandbox_pass:\n"
	"	mov %rdi, %rax\n"
	"	mov %rsi, %r11\n"
	"	mov 0(%r11), %rdi\n"
	"	mov 8(%r11), %rsi\n"
	"	mov 16(%r11), %rdx\n"
	"	mov 24(%r11), %r10\n"
	"	mov 32(%r11), %r8\n"
	"	mov 40(%r11), %r9\n"
	"	syscall\n"
	"sandbox_passed:\n"
	"	ret\n"
	".size sandbox_pass, .-sandbox_pass\n"
	".popsection\n");

/* Make the descriptor readable. The counter cannot be full. */
static void tell(void)
{
	const uint64_t one = 1;

	(void)!write(event_fd, &one, sizeof(one));
}

static void note(unsigned int kind, int number)
{
	const uint64_t bit = 1ull << ((unsigned int)number % WORD_BITS);
	_Atomic uint64_t *word;

	if (kind >= N_KINDS || number < 0 || number >= N_NUMBERS)
		return;
	word = &noted[kind][number / WORD_BITS];
	if ((atomic_load_explicit(word, memory_order_relaxed) & bit) ||
	    (atomic_fetch_or_explicit(word, bit, memory_order_relaxed) & bit))
		return;
	/* The reactor looks at all bits after it has reset the descriptor. */
	tell();
}

static void on_refused(int signal_number, siginfo_t *info, void *context)
{
	greg_t *const registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	const int saved_errno = errno;

	/* Another process of this user sent the signal. */
	if (info->si_code != FROM_FILTER)
		return;
	note((unsigned int)info->si_errno, info->si_syscall);
	if (mode == SANDBOX_LOG)
		registers[REG_RAX] =
			sandbox_pass(info->si_syscall,
				     (const long long[]){registers[REG_RDI], registers[REG_RSI],
							 registers[REG_RDX], registers[REG_R10],
							 registers[REG_R8], registers[REG_R9]});
	else
		registers[REG_RAX] = -refused_with(info->si_syscall);
	errno = saved_errno;
}

/* --- Filters --- */

struct program {
	struct sock_filter steps[MOST_STEPS];
	unsigned short n;
};

static void add(struct program *program, uint16_t code, uint32_t k, uint8_t if_true,
		uint8_t if_false)
{
	program->steps[program->n++] = (struct sock_filter){code, if_true, if_false, k};
}

static void load(struct program *program, size_t offset)
{
	add(program, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void finish(struct program *program, uint32_t action)
{
	add(program, BPF_RET | BPF_K, action, 0, 0);
}

/* Let calls of sandbox_pass() pass. */
static void add_pass(struct program *program)
{
	const uint64_t at = (uint64_t)(uintptr_t)sandbox_passed;

	load(program, offsetof(struct seccomp_data, instruction_pointer));
	add(program, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)at, 0, 3);
	load(program, offsetof(struct seccomp_data, instruction_pointer) + 4);
	add(program, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(at >> 32), 0, 1);
	finish(program, SECCOMP_RET_ALLOW);
}

/* Allow the call of @row if its condition holds. The accumulator has the call's number again. */
static void add_row(struct program *program, const struct row *row)
{
	const uint32_t number = (uint32_t)row->number;
	const size_t argument = offsetof(struct seccomp_data, args) + 8 * row->argument;
	/* A jump that is taken if the condition holds goes to the action. */
	const bool lacks = row->condition == LACKS;

	if (row->condition == ALWAYS) {
		add(program, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
		finish(program, SECCOMP_RET_ALLOW);
		return;
	}
	add(program, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4);
	load(program, argument);
	if (row->condition == IS || row->condition == IS_OWN)
		add(program, BPF_JMP | BPF_JEQ | BPF_K,
		    row->condition == IS ? row->value : (uint32_t)getpid(), 0, 1);
	else
		add(program, BPF_JMP | BPF_JSET | BPF_K, row->value, lacks, !lacks);
	finish(program, SECCOMP_RET_ALLOW);
	load(program, offsetof(struct seccomp_data, nr));
}

static void make_program(struct program *program, unsigned int kind)
{
	program->n = 0;
	load(program, offsetof(struct seccomp_data, arch));
	add(program, BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	finish(program, SECCOMP_RET_ERRNO | ENOSYS);
	if (mode == SANDBOX_LOG)
		add_pass(program);
	load(program, offsetof(struct seccomp_data, nr));
	for (unsigned int i = 0; i < N_ROWS; i++)
		if (strpbrk(rows[i].letters, kinds[kind].letters))
			add_row(program, &rows[i]);
	/*
	 * The C library makes these with SIGSYS blocked, and without a stack to return to. It makes
	 * a thread by clone(), whose flags a filter sees, where there is no clone3().
	 */
	add(program, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
	finish(program, SECCOMP_RET_ERRNO | ENOSYS);
	add(program, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0);
	add(program, BPF_JMP | BPF_JEQ | BPF_K, SYS_vfork, 0, 1);
	finish(program, mode == SANDBOX_LOG ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EPERM);
	finish(program, SECCOMP_RET_TRAP | kind);
}

static int install(unsigned int kind)
{
	struct program program;
	struct sock_fprog described = {.filter = program.steps};

	make_program(&program, kind);
	described.len = program.n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return error_origin(-errno);
	/* The flag: a filter must not make the thread slower by a mitigation of the processor's. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		    &described) < 0)
		return error_origin(-errno);
	return 0;
}

/*
 * Give memory of a thread's heap back to the system. When that first happens, glibc reads
 * /proc/sys/vm/overcommit_memory, and a worker may not: so it happens before there are filters.
 */
static void *shrink_heap(void *data)
{
	enum { BLOCKS = 16, BLOCK_BYTES = 64 << 10 }; /* too small for mappings of their own */
	void *blocks[BLOCKS];

	for (unsigned int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(BLOCK_BYTES);
		if (blocks[i])
			*(volatile char *)blocks[i] = 0; /* or the compiler leaves both calls out */
	}
	for (unsigned int i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	return NULL;
}

static int shrink_first(void)
{
	pthread_t thread;
	int r = pthread_create(&thread, NULL, shrink_heap, NULL);

	if (r)
		return error_origin(-r);
	pthread_join(thread, NULL);
	return 0;
}

int sandbox_init(enum sandbox_mode wanted, int *ret_fd)
{
	struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO};
	const uint32_t trap = SECCOMP_RET_TRAP;
	int r;

	*ret_fd = -1;
	if (wanted == SANDBOX_OFF)
		return 0;
	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &trap) < 0)
		return SANDBOX_E_LACKING;
	event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (event_fd < 0)
		return error_origin(-errno);
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGSYS, &action, NULL) < 0)
		return error_origin(-errno);
	r = shrink_first();
	if (r)
		return error_fold(r);
	mode = wanted;
	*ret_fd = event_fd;
	return 0;
}

int sandbox_enter(const char *thread)
{
	int r;

	if (mode == SANDBOX_OFF)
		return 0;
	for (unsigned int i = 0; i < N_KINDS; i++) {
		if (strncmp(thread, kinds[i].prefix, strlen(kinds[i].prefix)) != 0)
			continue;
		r = install(i);
		if (r) {
			atomic_store_explicit(&is_incomplete, true, memory_order_relaxed);
			tell();
		}
		return r;
	}
	return 0;
}

#else

int sandbox_init(enum sandbox_mode wanted, int *ret_fd)
{
	*ret_fd = -1;
	if (wanted == SANDBOX_OFF)
		return 0;
	return IS_SANITIZED ? SANDBOX_E_SANITIZED : SANDBOX_E_BUILD;
}

int sandbox_enter(const char *thread)
{
	return 0;
}
#endif

/* --- Reports --- */

static void describe(unsigned int kind, int number, struct sandbox_refusal *ret)
{
	const bool is_known = (size_t)number < sizeof(names) / sizeof(names[0]);

	*ret = (struct sandbox_refusal){
		.thread = kinds[kind].text,
		.call = is_known ? names[number] : NULL,
		.number = number,
		.error = mode == SANDBOX_LOG ? 0 : refused_with(number),
	};
}

bool sandbox_is_incomplete(void)
{
	return atomic_load_explicit(&is_incomplete, memory_order_relaxed);
}

bool sandbox_take(struct sandbox_refusal *ret)
{
	eventfd_t n;

	(void)!eventfd_read(event_fd, &n);
	for (unsigned int i = 0; i < N_KINDS; i++)
		for (unsigned int j = 0; j < N_NUMBERS / WORD_BITS; j++) {
			const uint64_t fresh =
				atomic_load_explicit(&noted[i][j], memory_order_relaxed) &
				~taken[i][j];

			if (!fresh)
				continue;
			taken[i][j] |= fresh & -fresh;
			describe(i, (int)(j * WORD_BITS) + __builtin_ctzll(fresh), ret);
			return true;
		}
	return false;
}
