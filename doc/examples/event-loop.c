/* SPDX-License-Identifier: MIT */
/*
 * An event loop: 1000 tasks, 32 of them in flight, and a timer of the service's own in one epoll.
 *
 *	cc event-loop.c -o event-loop $(pkg-config --cflags --libs ringbroker)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <ringbroker.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#define N_SLOTS 32
#define N_TASKS 1000
#define N_ELEMS 256

/* A slot holds the tensors of one task in flight. The task's user_data is its slot's number. */
struct slot {
	float in[N_ELEMS], out[N_ELEMS];
};

struct service {
	struct rbk_ring *ring;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct slot *slots;
	unsigned int n_submitted, n_completed, n_wrong;
};

/* Prepare the next task in a free slot. The ring has an entry for each slot. */
static void start_task(struct service *service, uint64_t number)
{
	struct slot *slot = &service->slots[number];
	const uint64_t refs[] = {rbk_ref(service->arena, slot->in),
				 rbk_ref(service->arena, slot->out)};
	struct rbk_sqe *sqe;

	/* The ring is full: not here, since it has an entry for each task in flight. */
	if (service->n_submitted == N_TASKS || !(sqe = rbk_get_sqe(service->ring)))
		return;
	for (unsigned int i = 0; i < N_ELEMS; i++)
		slot->in[i] = (float)service->n_submitted;
	rbk_prep_run(sqe, rbk_plan_id(service->plan), 1, refs, 2);
	rbk_sqe_set_data64(sqe, number);
	service->n_submitted++;
}

/* Consume completions, start as many tasks, and arm the ring. Return: 0, or a negative errno. */
static int serve(struct service *service)
{
	const struct rbk_cqe *cqe;
	int r;

	do {
		while ((r = rbk_peek_cqe(service->ring, &cqe)) == 0) {
			uint64_t number = rbk_cqe_get_data64(cqe);
			const struct slot *slot = &service->slots[number];

			service->n_completed++;
			if (cqe->res || slot->out[N_ELEMS - 1] != -slot->in[0])
				service->n_wrong++;
			rbk_cqe_seen(service->ring, cqe);
			start_task(service, number);
		}
		if (r != -EAGAIN)
			return r;
		r = rbk_submit(service->ring); /* one call for all entries of this turn */
		if (r < 0)
			return r;
		r = rbk_ring_arm(service->ring);
	} while (r == 1); /* completions arrived meanwhile: do not sleep */
	return r;
}

/* Run all tasks. Return: 0; -ETIME after ten seconds; another negative errno. */
static int loop(struct service *service)
{
	const struct itimerspec limit = {.it_value.tv_sec = 10};
	int epoll = epoll_create1(EPOLL_CLOEXEC), r;
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	int ring = rbk_ring_fd(service->ring);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = ring};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, ring, &event))
		return -errno;
	event.data.fd = timer;
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) ||
	    timerfd_settime(timer, 0, &limit, NULL))
		return -errno;
	for (uint64_t number = 0; number < N_SLOTS; number++)
		start_task(service, number);
	while ((r = serve(service)) == 0 && service->n_completed < N_TASKS) {
		if (epoll_wait(epoll, &event, 1, -1) == 1 && event.data.fd == timer)
			return -ETIME;
	}
	return r; /* the process ends; a service would close both descriptors */
}

int main(void)
{
	struct rbk_error error;
	const uint32_t dims[] = {N_ELEMS};
	struct service service = {0};
	struct rbk *rbk;
	struct rbk_builder *b = rbk_builder_new("event-loop");
	unsigned int in = rbk_builder_input(b, "in", RBK_DTYPE_F32, 1, dims);
	unsigned int out = rbk_builder_output(b, "out", RBK_DTYPE_F32, 1, dims);

	rbk_builder_unary(b, "Neg", in, out);
	if (rbk_connect(NULL, &rbk, &error) ||
	    rbk_arena_new(rbk, N_SLOTS * sizeof(struct slot), &service.arena, &error) ||
	    rbk_plan_new(rbk, b, 1, &service.plan, &error) ||
	    rbk_ring_new(rbk, N_SLOTS, &service.ring, &error))
		return fprintf(stderr, "%s\n", error.text), 1;
	service.slots = rbk_arena_data(service.arena);
	int r = loop(&service);

	printf("%u tasks, %u wrong, status %d\n", service.n_completed, service.n_wrong, r);
	return r == 0 && service.n_wrong == 0 ? 0 : 1;
}
