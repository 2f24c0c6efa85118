/* SPDX-License-Identifier: MIT */
/* Step 5: a budget. cc tutorial-5.c $(pkg-config --cflags --libs ringbroker) */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <ringbroker.h>
#include <stdio.h>
#include <string.h>

#define N_IN        64
#define N_OUT       4
#define N_SLOTS     32
#define N_REQUESTS  1000
#define DEADLINE_US 20000

#define MAX_ROWS    1024 /* of a request */

/* The tensors of one task in flight, each with a row after the other. */
struct slot {
	float *in, *out;
};

struct service {
	struct rbk *rbk;
	struct rbk_arena *weights, *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct slot slots[N_SLOTS];
	unsigned int n_rows; /* rows of a request, as many as the budget allows */
	unsigned int n_started, n_answered, n_failed, n_late;
};

/* Store the weights in a sealed arena: output i is the sum of all inputs, times i + 1. */
static int load_weights(struct rbk *rbk, struct rbk_arena **ret, struct rbk_error *error)
{
	struct rbk_arena *arena;
	float *weights;
	int r;

	r = rbk_arena_new_flags(rbk, N_IN * N_OUT * sizeof(float), RBK_ARENA_MEMFD, &arena, error);
	if (r)
		return r;
	weights = rbk_arena_data(arena);
	for (int i = 0; i < N_IN * N_OUT; i++)
		weights[i] = (float)(i % N_OUT + 1);
	r = rbk_arena_seal(arena, error);
	if (r) {
		rbk_arena_free(arena);
		return r;
	}
	*ret = arena;
	return 0;
}

/* Describe out = Relu(in * weights), for as many rows as each task has. */
static struct rbk_builder *describe(const struct rbk_arena *weights)
{
	const uint32_t in_dims[] = {RBK_DIM_COUNT, N_IN}, weight_dims[] = {N_IN, N_OUT};
	struct rbk_builder *b = rbk_builder_new("score");
	unsigned int in = rbk_builder_input(b, "in", RBK_DTYPE_F32, 2, in_dims);
	unsigned int w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, weight_dims, weights, 0);
	unsigned int product =
		rbk_builder_scratch(b, "product", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
	unsigned int out = rbk_builder_output(b, "out", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);

	rbk_builder_binary(b, "MatMul", in, w, product);
	rbk_builder_unary(b, "Relu", product, out);
	return b;
}

/* Make an arena for as many rows as the tenant's budget allows. Return: 0, or a negative errno. */
static int make_slots(struct service *service, struct rbk_error *error)
{
	size_t row_bytes = (N_IN + N_OUT) * sizeof(float);
	int r = -EDQUOT;

	for (unsigned int n = MAX_ROWS; n >= 16 && r == -EDQUOT; n /= 2) {
		r = rbk_arena_new(service->rbk, N_SLOTS * n * row_bytes, &service->arena, error);
		if (r == -EDQUOT)
			printf("not %u rows: %s\n", n, error->text);
		service->n_rows = n;
	}
	for (unsigned int i = 0; r == 0 && i < N_SLOTS; i++) {
		struct slot *slot = &service->slots[i];

		slot->in = rbk_arena_alloc(service->arena, service->n_rows * N_IN * sizeof(float));
		slot->out =
			rbk_arena_alloc(service->arena, service->n_rows * N_OUT * sizeof(float));
	}
	return r;
}

/* Print the tenant that the broker charges, and its arenas. */
static int show_tenant(struct service *service, struct rbk_error *error)
{
	struct rbk_tenant tenant;
	int r = rbk_get_tenant(service->rbk, &tenant, error);

	if (r == 0 && tenant.arena_bytes.max == UINT64_MAX)
		printf("tenant %s: %" PRIu64 " KiB of arenas, without a limit\n", tenant.name,
		       tenant.arena_bytes.used / 1024);
	else if (r == 0)
		printf("tenant %s: %" PRIu64 " KiB of arenas, %" PRIu64 " KiB allowed\n",
		       tenant.name, tenant.arena_bytes.used / 1024, tenant.arena_bytes.max / 1024);
	return r;
}

/* Connect and make all that the service needs. Return: 0, or a negative errno and a sentence. */
static int service_open(struct service *service, struct rbk_error *error)
{
	struct rbk_builder *b;
	int r;

	if ((r = rbk_connect(NULL, &service->rbk, error)) ||
	    (r = load_weights(service->rbk, &service->weights, error)) ||
	    (r = make_slots(service, error)) ||
	    (r = rbk_ring_new(service->rbk, N_SLOTS, &service->ring, error)))
		return r;
	b = describe(service->weights);
	r = rbk_plan_new(service->rbk, b, service->n_rows, &service->plan, error);
	rbk_builder_free(b);
	return r;
}

static void service_close(struct service *service)
{
	rbk_ring_free(service->ring);
	rbk_plan_free(service->plan);
	rbk_arena_free(service->arena);
	rbk_arena_free(service->weights);
	rbk_disconnect(service->rbk);
}

/* Begin the next request in a free slot, if one is left. */
static void begin(struct service *service, uint64_t number)
{
	struct slot *slot = &service->slots[number];
	const uint64_t refs[] = {rbk_ref(service->arena, slot->in),
				 rbk_ref(service->arena, slot->out)};
	struct rbk_sqe *sqe;

	if (service->n_started == N_REQUESTS)
		return;
	sqe = rbk_get_sqe(service->ring);
	if (!sqe) /* the ring is full: not here, since it has an entry for each slot */
		return;
	for (unsigned int i = 0; i < service->n_rows * N_IN; i++)
		slot->in[i] = (float)service->n_started;
	rbk_prep_run(sqe, rbk_plan_id(service->plan), service->n_rows, refs, 2);
	rbk_sqe_set_data64(sqe, number);
	rbk_sqe_set_deadline_us(sqe, DEADLINE_US);
	service->n_started++;
}

/* Check the answer to a request, or report why there is none. */
static void end(struct service *service, const struct rbk_cqe *cqe)
{
	const struct slot *slot = &service->slots[rbk_cqe_get_data64(cqe)];

	switch (-cqe->res) {
	case 0:
		if (slot->out[0] == N_IN * slot->in[0])
			service->n_answered++;
		else
			service->n_failed++;
		break;
	case ENOMEM: /* no memory now: a service may try again later */
	case EIO:    /* each device that may run the task failed */
		service->n_failed++;
		break;
	default: /* a defect of the service, such as a wrong reference */
		fprintf(stderr, "request %g: %s\n", (double)slot->in[0], strerror(-cqe->res));
		service->n_failed++;
	}
	if (cqe->flags & RBK_CQE_DEADLINE_MISSED) /* the result is there all the same */
		service->n_late++;
}

/* Do what can be done without sleeping. Return: 0: the caller may sleep; or a negative errno. */
static int turn(struct service *service)
{
	const struct rbk_cqe *cqe;
	int r;

	do {
		while ((r = rbk_peek_cqe(service->ring, &cqe)) == 0) {
			uint64_t number = rbk_cqe_get_data64(cqe);

			end(service, cqe);
			rbk_cqe_seen(service->ring, cqe);
			begin(service, number);
		}
		if (r != -EAGAIN)
			return r;
		r = rbk_submit(service->ring);
		if (r >= 0)
			r = rbk_ring_arm(service->ring);
	} while (r == 1); /* a completion arrived before the ring was armed */
	return r;
}

/* Run all requests. Return: 0, or a negative errno. */
static int run(struct service *service)
{
	struct pollfd fd = {.fd = rbk_ring_fd(service->ring), .events = POLLIN};
	int r;

	for (uint64_t number = 0; number < N_SLOTS; number++)
		begin(service, number);
	while ((r = turn(service)) == 0 && service->n_answered + service->n_failed < N_REQUESTS)
		poll(&fd, 1, -1);
	return r;
}

int main(void)
{
	struct rbk_error error;
	struct service service = {0};
	int r = service_open(&service, &error);

	if (r == 0)
		r = show_tenant(&service, &error);
	if (r)
		return fprintf(stderr, "%s\n", error.text), 1;
	r = run(&service);
	if (r)
		fprintf(stderr, "the broker is gone: %s\n", strerror(-r));
	printf("%u requests: %u answered, %u failed, %u late\n", service.n_started,
	       service.n_answered, service.n_failed, service.n_late);
	fflush(stdout);
	getchar(); /* stay connected until Enter: brokerctl lists tenants that have sessions */
	service_close(&service);
	return r == 0 && service.n_answered == N_REQUESTS ? 0 : 1;
}
