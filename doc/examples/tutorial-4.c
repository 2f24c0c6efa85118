/* SPDX-License-Identifier: MIT */
/* Step 4: errors and deadlines. cc tutorial-4.c $(pkg-config --cflags --libs ringbroker) */
#include <errno.h>
#include <poll.h>
#include <ringbroker.h>
#include <stdio.h>
#include <string.h>

#define N_IN        64
#define N_OUT       4
#define N_SLOTS     32
#define N_REQUESTS  1000
#define DEADLINE_US 20000
#define BAD_REQUEST 500

/* The tensors of one task in flight. */
struct slot {
	_Alignas(RBK_REF_ALIGN) float in[N_IN];
	_Alignas(RBK_REF_ALIGN) float out[N_OUT];
};

struct service {
	struct rbk *rbk;
	struct rbk_arena *weights, *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct slot *slots;
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

/* The broker has died or was restarted: say what became of the session, for the service's log. */
static void log_reattachment(struct rbk *rbk, const struct rbk_reattachment *about, void *data)
{
	(void)rbk, (void)data;
	if (about->r)
		fprintf(stderr, "the session is lost: %s\n", about->text);
	else
		fprintf(stderr,
			"another broker has taken over within %.0f ms; %u tasks run again\n",
			(double)about->gap_ns / 1e6, about->n_tasks);
}

/* Connect and make all that the service needs. Return: 0, or a negative errno and a sentence. */
static int service_open(struct service *service, struct rbk_error *error)
{
	const struct rbk_options options = {.size = sizeof(options),
					    .on_reattach = log_reattachment};
	struct rbk_builder *b;
	int r;

	if ((r = rbk_connect(&options, &service->rbk, error)) ||
	    (r = load_weights(service->rbk, &service->weights, error)) ||
	    (r = rbk_arena_new(service->rbk, N_SLOTS * sizeof(struct slot), &service->arena,
			       error)) ||
	    (r = rbk_ring_new(service->rbk, N_SLOTS, &service->ring, error)))
		return r;
	service->slots = rbk_arena_data(service->arena);
	b = describe(service->weights);
	r = rbk_plan_new(service->rbk, b, 1, &service->plan, error);
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
	uint64_t refs[] = {rbk_ref(service->arena, slot->in), rbk_ref(service->arena, slot->out)};
	struct rbk_sqe *sqe;

	if (service->n_started == N_REQUESTS)
		return;
	sqe = rbk_get_sqe(service->ring);
	if (!sqe) /* the ring is full: not here, since it has an entry for each slot */
		return;
	for (int i = 0; i < N_IN; i++)
		slot->in[i] = (float)service->n_started;
	if (service->n_started == BAD_REQUEST) /* a defect: the input lies behind the arena */
		refs[0] = rbk_ref(service->arena, slot->in) + rbk_arena_bytes(service->arena);
	rbk_prep_run(sqe, rbk_plan_id(service->plan), 1, refs, 2);
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
	case ENOMEM:       /* no memory now: a service may try again later */
	case EIO:          /* each device that may run the task failed */
	case ECONNRESET:   /* the end of a broker cost the task */
	case ECONNABORTED: /* likewise, and the task may be the cause */
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

	if (r)
		return fprintf(stderr, "%s\n", error.text), 1;
	r = run(&service);
	if (r)
		fprintf(stderr, "the broker is gone: %s\n", strerror(-r));
	printf("%u requests: %u answered, %u failed, %u late\n", service.n_started,
	       service.n_answered, service.n_failed, service.n_late);
	service_close(&service);
	return r == 0 && service.n_answered == N_REQUESTS - 1 ? 0 : 1;
}
