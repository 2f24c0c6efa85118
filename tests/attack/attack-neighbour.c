/* SPDX-License-Identifier: MIT */
/*
 * The neighbour and the friend; see attack.h
 *
 * The neighbour's loops are closed and have pauses: the machine has two processors for brokerd, the
 * attacker and all loops, and a loop without a pause would measure the kernel's scheduler. Each
 * kind has a thread, a session and a ring. A time counts for the phase in which its task began.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "attack/attack.h"

enum {
	SIDE = 64,
	FRIEND_SIDE = 512,
	N_GPU = 4096,
	ARENA_BYTES = 65536,
	PRODUCT_ARENA_BYTES = 4 << 20,
	MAX_LOOPS = 16, /* most loops per thread of the friend */
	MAX_BUSY = 16,
};

static const uint64_t patience_ns = 100000000000;

/* Pause between two tasks of a kind, in us. */
static const unsigned int pause_us[ATTACK_N_KINDS] = {
	[ATTACK_INLINE] = 200,   [ATTACK_PRODUCT] = 1000,  [ATTACK_GPU] = 5000,
	[ATTACK_SET_UP] = 10000, [ATTACK_CONNECT] = 20000,
};

/*
 * A neighbour that rests is active in the first of each REST_PART periods. In the others its pauses
 * are REST_FACTOR times as long, within the limit.
 */
static const uint64_t rest_period_ns = 500000000, longest_rest_ns = 300000000;
enum { REST_PART = 10, REST_FACTOR = 100 };

struct loop {
	struct attack *attack;
	enum attack_kind kind;
	pthread_t thread;
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	struct rbk_plan *plan;
	float *x, *y, *z;
	size_t n; /* elements of z */
};

static struct rbk *connect_as(struct attack *attack, const char *name)
{
	struct rbk_options options = {.size = sizeof(options),
				      .socket_path = attack->socket_path,
				      .name = name,
				      .timeout_ns = patience_ns};
	struct rbk_error error = {"no sentence"};
	struct rbk *rbk = NULL;

	if (rbk_connect(&options, &rbk, &error))
		attack_fail(attack, "%s cannot connect: %s", name, error.text);
	return rbk;
}

/*
 * Make a plan of @op on two tensors of @n x @n, or of @n if @n_dims is 1.
 * Return: the plan, or NULL if the broker refused it.
 */
static struct rbk_plan *plan_new(struct rbk *rbk, const char *op, int n_dims, uint32_t n)
{
	const uint32_t dims[] = {n, n};
	struct rbk_builder *b = rbk_builder_new("neighbour");
	unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, n_dims, dims);
	unsigned int y = rbk_builder_input(b, "y", RBK_DTYPE_F32, n_dims, dims);
	struct rbk_plan *plan = NULL;

	rbk_builder_binary(b, op, x, y, rbk_builder_output(b, "z", RBK_DTYPE_F32, n_dims, dims));
	rbk_plan_new(rbk, b, 1, &plan, NULL);
	rbk_builder_free(b);
	return plan;
}

static void loop_init(struct loop *loop, uint32_t side, const char *name)
{
	bool is_product = loop->kind == ATTACK_PRODUCT;
	uint32_t n = is_product ? side : loop->kind == ATTACK_GPU ? N_GPU : 16;

	loop->rbk = connect_as(loop->attack, name);
	loop->n = is_product ? (size_t)n * n : n;
	if (rbk_arena_new(loop->rbk, is_product ? PRODUCT_ARENA_BYTES : ARENA_BYTES, &loop->arena,
			  NULL) ||
	    rbk_ring_new(loop->rbk, 16, &loop->ring, NULL))
		attack_fail(loop->attack, "%s has no arena or ring", name);
	loop->plan = plan_new(loop->rbk, is_product ? "MatMul" : "Add", is_product ? 2 : 1, n);
	if (!loop->plan)
		attack_fail(loop->attack, "%s has no plan", name);
	loop->x = rbk_arena_alloc(loop->arena, loop->n * sizeof(float));
	loop->y = rbk_arena_alloc(loop->arena, loop->n * sizeof(float));
	loop->z = rbk_arena_alloc(loop->arena, loop->n * sizeof(float));
	for (size_t i = 0; i < loop->n; i++) {
		loop->x[i] = (float)(i % 13);
		loop->y[i] = is_product ? (i % (n + 1) == 0 ? 3.0f : 0.0f) : (float)(i % 7);
	}
}

static void loop_deinit(struct loop *loop)
{
	rbk_plan_free(loop->plan);
	rbk_ring_free(loop->ring);
	rbk_arena_free(loop->arena);
	rbk_disconnect(loop->rbk);
}

/*
 * Run one task.
 * Return: its result.
 */
static int run_once(struct loop *loop, unsigned int strategy)
{
	const uint64_t refs[] = {rbk_ref(loop->arena, loop->x), rbk_ref(loop->arena, loop->y),
				 rbk_ref(loop->arena, loop->z)};
	struct rbk_sqe *sqe = rbk_get_sqe(loop->ring);
	const struct rbk_cqe *cqe;
	int r;

	rbk_prep_run(sqe, rbk_plan_id(loop->plan), 1, refs, 3);
	rbk_sqe_set_strategy(sqe, strategy);
	rbk_submit(loop->ring);
	r = rbk_wait_cqe_timeout(loop->ring, &cqe, patience_ns);
	if (r)
		attack_fail(loop->attack, "a task of kind %d has not ended: %s", (int)loop->kind,
			    strerror(-r));
	r = cqe->res;
	rbk_cqe_seen(loop->ring, cqe);
	return r;
}

static void check(const struct loop *loop)
{
	for (size_t i = 0; i < loop->n; i++) {
		float wanted =
			loop->kind == ATTACK_PRODUCT ? 3 * loop->x[i] : loop->x[i] + loop->y[i];

		if (fabsf(loop->z[i] - wanted) > 1e-3f)
			attack_fail(loop->attack, "kind %d: element %zu is %g, not %g",
				    (int)loop->kind, i, (double)loop->z[i], (double)wanted);
	}
	atomic_fetch_add(&loop->attack->n_results, 1);
}

static void task_once(struct loop *loop)
{
	static const unsigned int strategies[ATTACK_N_KINDS] = {
		[ATTACK_INLINE] = RBK_STRATEGY_ONLY_CPU,
		[ATTACK_PRODUCT] = RBK_STRATEGY_ONLY_CPU,
		[ATTACK_GPU] = RBK_STRATEGY_ONLY_GPU,
	};
	int r;

	memset(loop->z, 0xff, loop->n * sizeof(float));
	r = run_once(loop, strategies[loop->kind]);
	if (r)
		attack_fail(loop->attack, "a task of kind %d failed: %s", (int)loop->kind,
			    strerror(-r));
}

static void set_up_once(struct loop *loop)
{
	struct rbk_plan *plan = plan_new(loop->rbk, "Mul", 1, 16);

	if (!plan)
		attack_fail(loop->attack, "the neighbour's plan was refused");
	rbk_plan_free(plan);
}

/* Connect, make a ring, and run one entry. */
static void newcomer_once(struct attack *attack)
{
	struct rbk *rbk = connect_as(attack, "newcomer");
	struct rbk_error error = {""};
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;

	if (rbk_ring_new(rbk, 8, &ring, &error))
		attack_fail(attack, "a newcomer has no ring: %s", error.text);
	rbk_prep_nop(rbk_get_sqe(ring));
	rbk_submit(ring);
	if (rbk_wait_cqe_timeout(ring, &cqe, patience_ns))
		attack_fail(attack, "a newcomer's first entry has not ended");
	rbk_cqe_seen(ring, cqe);
	rbk_ring_free(ring);
	rbk_disconnect(rbk);
}

static void pause_between(const struct loop *loop)
{
	/* Tasks take longer under sanitizers; without pauses others would be restrained. */
	uint64_t ns = harness_slow_ns(pause_us[loop->kind] * 1000ull);

	if (loop->attack->neighbour_rests && harness_now_ns() / rest_period_ns % REST_PART > 0)
		ns = ns * REST_FACTOR < longest_rest_ns ? ns * REST_FACTOR : longest_rest_ns;
	nanosleep(&(struct timespec){0, (long)ns}, NULL);
}

static void *neighbour_main(void *data)
{
	struct loop *loop = data;
	struct attack *attack = loop->attack;
	unsigned int phase;

	loop_init(loop, SIDE, "neighbour");
	/* The first task on a device compiles its pipeline. */
	if (loop->kind < ATTACK_SET_UP)
		task_once(loop);
	atomic_fetch_add(&attack->n_ready, 1);
	while ((phase = atomic_load(&attack->phase)) != ATTACK_OVER) {
		uint64_t begin_ns = harness_now_ns();

		if (loop->kind == ATTACK_SET_UP)
			set_up_once(loop);
		else if (loop->kind == ATTACK_CONNECT)
			newcomer_once(attack);
		else
			task_once(loop);
		attack_times_add(&attack->times[phase][loop->kind], harness_now_ns() - begin_ns);
		if (loop->kind < ATTACK_SET_UP)
			check(loop);
		pause_between(loop);
	}
	loop_deinit(loop);
	return NULL;
}

void attack_be_neighbour(struct attack *attack)
{
	struct rbk *rbk = connect_as(attack, "neighbour");
	struct loop loops[ATTACK_N_KINDS];
	unsigned int n = 0;

	atomic_store(&attack->has_gpu, broker_has_gpu(rbk));
	rbk_disconnect(rbk);
	for (unsigned int kind = 0; kind < ATTACK_N_KINDS; kind++) {
		if (kind == ATTACK_GPU && !attack->has_gpu) {
			atomic_fetch_add(&attack->n_ready, 1);
			continue;
		}
		loops[n] = (struct loop){.attack = attack, .kind = kind};
		if (pthread_create(&loops[n].thread, NULL, neighbour_main, &loops[n]))
			attack_fail(attack, "no thread");
		n++;
	}
	while (n > 0)
		pthread_join(loops[--n].thread, NULL);
}

static uint64_t used_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/*
 * Compute until the process uses as much processor time as the attacker did, so that the neighbour
 * shares the processors alike with both.
 */
static void *busy_main(void *data)
{
	static const uint64_t piece_ns = 100000;
	const struct attack *attack = data;
	const uint64_t begin_ns = harness_now_ns(), begin_used_ns = used_ns();

	while (!atomic_load(&attack->stop)) {
		uint64_t now_ns = harness_now_ns();

		if ((used_ns() - begin_used_ns) * 1000 >=
		    (now_ns - begin_ns) * attack->busy_permille) {
			nanosleep(&(struct timespec){0, (long)piece_ns}, NULL);
			continue;
		}
		while (harness_now_ns() - now_ns < piece_ns)
			;
	}
	return NULL;
}

struct friend_thread {
	struct attack *attack;
	unsigned int number;
	pthread_t thread;
};

static void *friend_main(void *data)
{
	const struct friend_thread *self = data;
	struct attack *attack = self->attack;
	unsigned int n = attack_share(attack, self->number, NULL);
	struct loop *loops;

	/* A thread runs one task at a time, so at most MAX_LOOPS of its sessions need operands. */
	for (; n > MAX_LOOPS; n--)
		connect_as(attack, "idle");
	loops = calloc(n ? n : 1, sizeof(*loops));
	for (unsigned int i = 0; i < n; i++) {
		loops[i] = (struct loop){.attack = attack,
					 .kind = attack->friend == ATTACK_FRIEND_PRODUCTS
							 ? ATTACK_PRODUCT
							 : ATTACK_INLINE};
		loop_init(&loops[i], FRIEND_SIDE, "friend");
	}
	while (n > 0 && attack_goes_on(attack))
		for (unsigned int i = 0; i < n && attack_goes_on(attack); i++) {
			if (attack->friend == ATTACK_FRIEND_SET_UP)
				set_up_once(&loops[i]);
			else
				task_once(&loops[i]);
		}
	for (unsigned int i = 0; i < n; i++)
		loop_deinit(&loops[i]);
	free(loops);
	return NULL;
}

void attack_be_friend(struct attack *attack)
{
	struct friend_thread *threads = calloc(attack->n_threads, sizeof(*threads));
	pthread_t busy[MAX_BUSY];
	/* A thread uses at most one processor. */
	unsigned int n_busy = attack->busy_permille / 1000 + 1;

	if (n_busy > MAX_BUSY)
		n_busy = MAX_BUSY;
	for (unsigned int i = 0; i < n_busy; i++)
		if (pthread_create(&busy[i], NULL, busy_main, attack))
			attack_fail(attack, "no thread");
	for (unsigned int i = 0; i < attack->n_threads; i++) {
		threads[i] = (struct friend_thread){.attack = attack, .number = i};
		if (pthread_create(&threads[i].thread, NULL, friend_main, &threads[i]))
			attack_fail(attack, "no thread");
	}
	for (unsigned int i = 0; i < attack->n_threads; i++)
		pthread_join(threads[i].thread, NULL);
	while (n_busy > 0)
		pthread_join(busy[--n_busy], NULL);
	free(threads);
}
