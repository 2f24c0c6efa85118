/* SPDX-License-Identifier: MIT */
/*
 * Reconnecting: brokerd dies and comes back. The service notices, backs off, connects again, makes
 * its arena, plan and ring anew, and repeats the task that was lost. The library can do this by
 * itself, see rbk_connect(3): this service prefers to decide what becomes of its tasks.
 *
 *	cc reconnect.c -o reconnect $(pkg-config --cflags --libs ringbroker)
 *
 * Ends after 100 tasks of the second connection; a service would run for ever.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <ringbroker.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define N_CONNECTIONS  2
#define N_TASKS        100 /* of the last connection */
#define N_ELEMS        16
#define MIN_BACKOFF_MS 20
#define MAX_BACKOFF_MS 2000

/* All that belongs to one session, which RBK_CONNECT_NO_REATTACH lets end with its broker. */
struct session {
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	float *tensors;
};

static void sleep_ms(unsigned int ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* Free a session, also half of one, or one whose broker is gone. Pointers into its arena die. */
static void session_close(struct session *session)
{
	rbk_ring_free(session->ring);
	rbk_plan_free(session->plan);
	rbk_arena_free(session->arena);
	rbk_disconnect(session->rbk);
	*session = (struct session){0};
}

/* Builders hold no session: @b is used for every connection. Return: 0, or a negative errno. */
static int session_open(struct session *session, const struct rbk_builder *b,
			struct rbk_error *error)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.flags = RBK_CONNECT_NO_REATTACH,
	};
	int r;

	if ((r = rbk_connect(&options, &session->rbk, error)) ||
	    (r = rbk_arena_new(session->rbk, 4096, &session->arena, error)) ||
	    (r = rbk_plan_new(session->rbk, b, 1, &session->plan, error)) ||
	    (r = rbk_ring_new(session->rbk, 8, &session->ring, error))) {
		session_close(session);
		return r;
	}
	session->tensors = rbk_arena_data(session->arena);
	return 0;
}

/* Errors of a broker that is absent, or ended during a request. Another attempt may succeed. */
static bool is_temporary(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET || r == -EPROTO ||
	       r == -ETIME || r == -EAGAIN;
}

/* Connect, with twice the pause after each failure. Return: 0, or an errno that will not pass. */
static int connect_again(struct session *session, const struct rbk_builder *b)
{
	unsigned int backoff_ms = MIN_BACKOFF_MS;
	struct rbk_error error;
	int r;

	while ((r = session_open(session, b, &error)) && is_temporary(r)) {
		/* A random part keeps the services of the machine from connecting all at once. */
		sleep_ms(backoff_ms + (unsigned int)rand() % backoff_ms);
		backoff_ms = backoff_ms * 2 < MAX_BACKOFF_MS ? backoff_ms * 2 : MAX_BACKOFF_MS;
	}
	if (r)
		fprintf(stderr, "%s\n", error.text);
	return r;
}

/* Run one task. Return: 0; -ECONNRESET or -EPROTO: the session is lost; another negative errno. */
static int negate(struct session *session, float value)
{
	const uint64_t refs[] = {rbk_ref(session->arena, session->tensors),
				 rbk_ref(session->arena, session->tensors + N_ELEMS)};
	struct rbk_sqe *sqe = rbk_get_sqe(session->ring);
	const struct rbk_cqe *cqe;
	int r;

	if (!sqe) /* no task is in flight, so the ring is full only without a broker */
		return -ECONNRESET;
	session->tensors[0] = value;
	rbk_prep_run(sqe, rbk_plan_id(session->plan), 1, refs, 2);
	r = rbk_submit(session->ring);
	while (r >= 0 && (r = rbk_wait_cqe(session->ring, &cqe)) == -EINTR)
		r = 0;
	if (r)
		return r;
	r = cqe->res;
	rbk_cqe_seen(session->ring, cqe);
	return r ? r : session->tensors[N_ELEMS] == -value ? 0 : -EIO;
}

int main(void)
{
	struct rbk_builder *b = rbk_builder_new("reconnect");
	const uint32_t dims[] = {N_ELEMS};
	struct session session = {0};
	unsigned int in = rbk_builder_input(b, "in", RBK_DTYPE_F32, 1, dims);
	unsigned int out = rbk_builder_output(b, "out", RBK_DTYPE_F32, 1, dims);
	int n = 0, r;

	rbk_builder_unary(b, "Neg", in, out);
	srand((unsigned int)getpid());
	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((r = connect_again(&session, b)) == 0) {
		printf("connection %d\n", ++n);
		for (int i = 0; r == 0 && (n < N_CONNECTIONS || i < N_TASKS); i++) {
			r = negate(&session, (float)i);
			sleep_ms(1);
		}
		session_close(&session);
		if (r != -ECONNRESET && r != -EPROTO)
			break;
		printf("connection lost\n");
	}
	printf("%s\n", r ? strerror(-r) : "done");
	return r ? 1 : 0;
}
