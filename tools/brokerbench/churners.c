/* SPDX-License-Identifier: MIT */
/*
 * Churners: processes that make and free objects of a broker without end
 *
 * A churner's order is a word of shared memory, on which the process sleeps as a futex. Its threads
 * have a session each, except where sessions are the objects.
 */
#include "churners.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker.h>

#include "util/checked.h"
#include "util/clock.h"

enum {
	MAX_THREADS = 4,
	N_FLOATS = 1024, /* of the tensors of a plan */
	SMALL_BYTES = 64 << 10,
	LARGE_BYTES = 64 << 20,
	RING_ENTRIES = 32768,
	UNIT_STEPS = 500, /* of the burner, between two looks at the clock */
};

static const uint64_t patience_ns = 20000000000u;

/* The low bits of the word; the others count orders to work. */
enum order { SLEEP, WORK, STOP, ORDERS };

struct shared {
	_Atomic uint32_t order;
	_Atomic uint32_t n_working; /* threads that have not seen the end yet */
	_Atomic uint32_t n_ready;   /* threads that wait for orders */
	_Atomic int error;          /* the first negative errno; 0: none */
	_Atomic uint64_t n;
	_Atomic uint64_t piece_ns, pause_ns; /* of the burner */
};

struct churner {
	struct shared *shared;
	enum churn_kind kind;
	pid_t pid;
	uint32_t n_orders; /* to work */
	uint64_t begin_ns;
	struct churner_work before; /* totals at the last begin */
};

/* The child */
struct child {
	struct shared *shared;
	enum churn_kind kind;
	const char *socket_path;
};

/* A thread's session; all members but the first are of CHURN_FULL_RINGS. */
struct session {
	struct rbk *rbk; /* NULL: sessions are the objects, or there is no broker */
	struct rbk_arena *arena;
	struct rbk_plan *plan;
};

static const char *const names[] = {"plans",    "sessions",    "arenas=64KiB",    "arenas=64MiB",
				    "messages", "rings=32768", "full-rings=32768"};

const char *churn_name(enum churn_kind kind)
{
	return names[kind];
}

static unsigned int n_threads(enum churn_kind kind)
{
	return kind == CHURN_MESSAGES ? MAX_THREADS : 1;
}

/* ---- The process ---- */

static int connect_to(const struct child *child, struct rbk **ret)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = child->socket_path,
		.name = "churner",
		.flags = RBK_CONNECT_NO_REATTACH,
	};
	struct rbk_error error;
	int r = rbk_connect(&options, ret, &error);

	if (r)
		fprintf(stderr, "brokerbench: a churner: %s\n", error.text);
	return r;
}

static int plan_new(struct rbk *rbk, struct rbk_plan **ret)
{
	const uint32_t dims[] = {N_FLOATS};
	struct rbk_builder *builder = rbk_builder_new("churn");
	unsigned int x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 1, dims);
	unsigned int y = rbk_builder_input(builder, "y", RBK_DTYPE_F32, 1, dims);
	int r;

	rbk_builder_binary(builder, "Add", x, y,
			   rbk_builder_output(builder, "z", RBK_DTYPE_F32, 1, dims));
	r = rbk_plan_new(rbk, builder, 1, ret, NULL);
	rbk_builder_free(builder);
	return r;
}

static int churn_plan(struct rbk *rbk)
{
	struct rbk_plan *plan = NULL;
	int r = plan_new(rbk, &plan);

	rbk_plan_free(plan);
	return r;
}

static int churn_arena(struct rbk *rbk, size_t bytes)
{
	struct rbk_arena *arena = NULL;
	int r = rbk_arena_new(rbk, bytes, &arena, NULL);

	rbk_arena_free(arena);
	return r;
}

static int churn_ring(struct rbk *rbk)
{
	struct rbk_ring *ring = NULL;
	int r = rbk_ring_new(rbk, RING_ENTRIES, &ring, NULL);

	rbk_ring_free(ring);
	return r;
}

/* Fill the ring with tasks that wait for a device. */
static int fill(const struct session *session, struct rbk_ring *ring)
{
	const uint64_t bytes = N_FLOATS * sizeof(float);
	const uint64_t refs[] = {rbk_arena_ref(session->arena, 0),
				 rbk_arena_ref(session->arena, bytes),
				 rbk_arena_ref(session->arena, 2 * bytes)};
	struct rbk_sqe *sqe;
	int r = 0;

	while (r >= 0 && (sqe = rbk_get_sqe(ring))) {
		rbk_prep_run(sqe, rbk_plan_id(session->plan), 1, refs, ARRAY_SIZE(refs));
		rbk_sqe_set_strategy(sqe, RBK_STRATEGY_ONLY_GPU);
		r = rbk_submit(ring);
	}
	return r < 0 ? r : 0;
}

static int churn_full_ring(const struct session *session)
{
	struct rbk_ring *ring = NULL;
	int r = rbk_ring_new(session->rbk, RING_ENTRIES, &ring, NULL);

	if (!r)
		r = fill(session, ring);
	rbk_ring_free(ring);
	return r;
}

static int churn_session(const struct child *child)
{
	struct rbk *rbk = NULL;
	int r = connect_to(child, &rbk);

	rbk_disconnect(rbk);
	return r;
}

static void burn(const struct shared *shared)
{
	const uint64_t piece_ns = atomic_load(&shared->piece_ns);
	const uint64_t pause_ns = atomic_load(&shared->pause_ns);
	const uint64_t begin_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	const struct timespec pause = {.tv_sec = (time_t)(pause_ns / 1000000000u),
				       .tv_nsec = (long)(pause_ns % 1000000000u)};
	volatile uint64_t value = 1;

	while (clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns < piece_ns)
		for (unsigned int i = 0; i < UNIT_STEPS; i++)
			value = value * 6364136223846793005u + 1;
	nanosleep(&pause, NULL);
}

/* Make and free one object. Return: 0; a negative errno. */
static int churn_once(const struct child *child, const struct session *session)
{
	struct rbk *rbk = session->rbk;
	struct rbk_stats stats;

	switch (child->kind) {
	case CHURN_PLANS:
		return churn_plan(rbk);
	case CHURN_SESSIONS:
		return churn_session(child);
	case CHURN_ARENAS:
		return churn_arena(rbk, SMALL_BYTES);
	case CHURN_LARGE_ARENAS:
		return churn_arena(rbk, LARGE_BYTES);
	case CHURN_MESSAGES:
		return rbk_stats(rbk, &stats);
	case CHURN_RINGS:
		return churn_ring(rbk);
	case CHURN_FULL_RINGS:
		return churn_full_ring(session);
	default:
		burn(child->shared);
		return 0;
	}
}

/* Connect, and prepare what the objects have in common. */
static int session_init(struct session *session, const struct child *child)
{
	int r = 0;

	*session = (struct session){.rbk = NULL};
	if (child->kind != CHURN_SESSIONS && child->kind != CHURN_BURNER)
		r = connect_to(child, &session->rbk);
	if (r || child->kind != CHURN_FULL_RINGS)
		return r;
	r = rbk_arena_new(session->rbk, 3 * N_FLOATS * sizeof(float), &session->arena, NULL);
	return r ? r : plan_new(session->rbk, &session->plan);
}

static void session_deinit(struct session *session)
{
	rbk_plan_free(session->plan);
	rbk_arena_free(session->arena);
	rbk_disconnect(session->rbk);
}

static void *child_thread(void *data)
{
	const struct child *child = data;
	struct shared *shared = child->shared;
	struct session session;
	uint32_t word, last = 0; /* last order to sleep */
	int r = session_init(&session, child);

	atomic_fetch_add(&shared->n_ready, 1);
	while ((word = atomic_load(&shared->order)) % ORDERS != STOP) {
		if (r)
			atomic_store(&shared->error, r);
		if (word % ORDERS == WORK && !r) {
			r = churn_once(child, &session);
			atomic_fetch_add(&shared->n, 1);
			continue;
		}
		if (word % ORDERS == SLEEP && word != last) {
			last = word;
			atomic_fetch_sub(&shared->n_working, 1);
		}
		syscall(SYS_futex, &shared->order, FUTEX_WAIT, word, NULL, NULL, 0);
	}
	session_deinit(&session);
	return NULL;
}

static void child_main(struct child *child, pid_t parent)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	pthread_t threads[MAX_THREADS];

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		signal(signals[i], SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (child->kind != CHURN_BURNER) {
		if (seteuid(CHURNER_UID))
			_exit(1);
	}
	/*
	 * Threads have a user each: set the file system's user, which may reach the socket's
	 * folder, in a thread that the others come from.
	 */
	setfsuid(0);
	for (unsigned int i = 1; i < n_threads(child->kind); i++)
		if (pthread_create(&threads[i], NULL, child_thread, child))
			_exit(1);
	child_thread(child);
	_exit(0);
}

/* ---- The caller's side ---- */

static void tell(struct churner *churner, enum order order)
{
	churner->n_orders += order == WORK;
	atomic_store(&churner->shared->order, churner->n_orders * ORDERS + order);
	syscall(SYS_futex, &churner->shared->order, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void nap(void)
{
	const struct timespec pause = {.tv_nsec = 200000};

	nanosleep(&pause, NULL);
}

/* Wait until @counter is @value. */
static int await(struct churner *churner, const _Atomic uint32_t *counter, uint32_t value)
{
	const uint64_t end_ns = clock_now_ns() + patience_ns;
	int r;

	while (atomic_load(counter) != value) {
		r = atomic_load(&churner->shared->error);
		if (r)
			return r;
		if (waitpid(churner->pid, NULL, WNOHANG) != 0) {
			churner->pid = 0;
			return -ECHILD;
		}
		if (clock_now_ns() > end_ns)
			return -ETIMEDOUT;
		nap();
	}
	return atomic_load(&churner->shared->error);
}

/* Read the process's totals. */
static void read_work(const struct churner *churner, struct churner_work *ret)
{
	struct timespec time = {.tv_sec = 0};
	clockid_t clock;
	char line[128], path[64];
	FILE *file;

	*ret = (struct churner_work){.n = atomic_load(&churner->shared->n)};
	if (clock_getcpuclockid(churner->pid, &clock) == 0 && clock_gettime(clock, &time) == 0)
		ret->cpu_ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)churner->pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &ret->n_sleeps) == 1)
			break;
	/* The kernel counts those of the first thread. */
	ret->n_sleeps *= n_threads(churner->kind);
	if (file)
		fclose(file);
}

int churner_new(enum churn_kind kind, const char *socket_path, struct churner **ret)
{
	_cleanup_(churner_freep) struct churner *churner = calloc(1, sizeof(*churner));
	const pid_t parent = getpid();
	struct child child = {.kind = kind, .socket_path = socket_path};

	if (!churner)
		return -ENOMEM;
	churner->kind = kind;
	churner->shared = mmap(NULL, sizeof(*churner->shared), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (churner->shared == MAP_FAILED)
		return -errno;
	child.shared = churner->shared;
	churner->pid = fork();
	if (churner->pid < 0)
		return -errno;
	if (churner->pid == 0)
		child_main(&child, parent);
	*ret = steal_ptr(churner);
	return await(*ret, &(*ret)->shared->n_ready, n_threads(kind));
}

struct churner *churner_free(struct churner *churner)
{
	if (!churner)
		return NULL;
	if (churner->shared != MAP_FAILED) {
		tell(churner, STOP);
		/* It may be at a request, which takes no time that matters here. */
		if (churner->pid > 0)
			while (waitpid(churner->pid, NULL, 0) < 0 && errno == EINTR)
				;
		munmap(churner->shared, sizeof(*churner->shared));
	}
	free(churner);
	return NULL;
}

void churner_pace(struct churner *churner, uint64_t piece_ns, uint64_t pause_ns)
{
	atomic_store(&churner->shared->piece_ns, piece_ns);
	atomic_store(&churner->shared->pause_ns, pause_ns);
}

void churner_mark(struct churner *churner)
{
	read_work(churner, &churner->before);
	churner->begin_ns = clock_now_ns();
}

void churner_begin(struct churner *churner)
{
	churner_mark(churner);
	atomic_store(&churner->shared->n_working, n_threads(churner->kind));
	tell(churner, WORK);
}

int churner_end(struct churner *churner, struct churner_work *ret)
{
	struct churner_work now;
	int r;

	tell(churner, SLEEP);
	r = await(churner, &churner->shared->n_working, 0);
	if (r)
		return r;
	read_work(churner, &now);
	*ret = (struct churner_work){
		.n = now.n - churner->before.n,
		.cpu_ns = now.cpu_ns - churner->before.cpu_ns,
		.n_sleeps = now.n_sleeps - churner->before.n_sleeps,
		.elapsed_ns = clock_now_ns() - churner->begin_ns,
	};
	return 0;
}
