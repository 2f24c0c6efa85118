/* SPDX-License-Identifier: MIT */
/* Wake-ups are never lost, and not sent to an awake thread */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/test.h"
#include "util/spsc.h"
#include "util/waker.h"

static bool is_rung(const struct waker *waker)
{
	struct pollfd pollfd = {.fd = waker->fd, .events = POLLIN};

	return poll(&pollfd, 1, 0) == 1;
}

TEST(test_ring__only_when_armed)
{
	struct waker waker;

	assert_int_equal(waker_init(&waker), 0);
	assert_true(fcntl(waker.fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(waker.fd, F_GETFL) & O_NONBLOCK);
	waker_ring(&waker);
	assert_false(is_rung(&waker));

	waker_arm(&waker);
	assert_false(is_rung(&waker));
	waker_ring(&waker);
	assert_true(is_rung(&waker));
	/* One write per sleep, however many threads ring. */
	for (int i = 0; i < 1000; i++)
		waker_ring(&waker);
	waker_disarm(&waker);
	assert_false(is_rung(&waker));

	/* Armed but not rung: nothing to read, and nothing is sent afterwards. */
	waker_arm(&waker);
	waker_disarm(&waker);
	waker_ring(&waker);
	assert_false(is_rung(&waker));
	waker_deinit(&waker);
	assert_int_equal(waker.fd, -1);
	waker_deinit(&waker);
}

TEST(test_init__no_descriptors)
{
	struct rlimit limit, low;
	struct waker waker;
	int r;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	r = waker_init(&waker);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(r, -EMFILE);
	waker_deinit(&waker);
}

enum { N_ITEMS = 20000 };

struct world {
	struct waker waker;
	struct spsc queue;
	_Atomic uint32_t n_received;
};

static void *produce(void *data)
{
	struct world *world = data;
	unsigned int seed = 5;

	for (uintptr_t i = 1; i <= N_ITEMS; i++) {
		while (!spsc_push(&world->queue, (void *)i))
			sched_yield();
		waker_ring(&world->waker);
		/* Sometimes let the thread fall asleep, sometimes ring while it is about to. */
		if (rand_r(&seed) % 4 == 0)
			while (atomic_load(&world->n_received) < i)
				sched_yield();
		else
			for (int spin = rand_r(&seed) % 200; spin > 0; spin--)
				atomic_signal_fence(memory_order_seq_cst);
	}
	return NULL;
}

/* A lost wake-up shows as a poll() that times out although the queue is not empty. */
TEST(test_ring__never_lost)
{
	struct world world = {.n_received = 0};
	unsigned int n_sleeps = 0, n_found_late = 0;
	pthread_t thread;

	assert_int_equal(waker_init(&world.waker), 0);
	assert_true(spsc_init(&world.queue, 64));
	assert_int_equal(pthread_create(&thread, NULL, produce, &world), 0);
	while (atomic_load(&world.n_received) < N_ITEMS) {
		void *item = spsc_pop(&world.queue);

		if (!item) {
			waker_arm(&world.waker);
			item = spsc_pop(&world.queue);
			if (!item) {
				struct pollfd pollfd = {.fd = world.waker.fd, .events = POLLIN};

				n_sleeps++;
				assert_int_equal(poll(&pollfd, 1, 10000), 1);
			} else {
				n_found_late++;
			}
			waker_disarm(&world.waker);
		}
		if (!item)
			continue;
		assert_int_equal((uintptr_t)item, atomic_load(&world.n_received) + 1);
		atomic_fetch_add(&world.n_received, 1);
	}
	pthread_join(thread, NULL);
	assert_true(n_sleeps > 0);
	print_message("%u sleeps, %u items found after arming\n", n_sleeps, n_found_late);
	spsc_deinit(&world.queue);
	waker_deinit(&world.waker);
}
