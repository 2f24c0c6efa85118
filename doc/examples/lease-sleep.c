/* SPDX-License-Identifier: MIT */
/*
 * A server whose model leaves the device while no request uses it, if the broker asks for that.
 *
 *	cc lease-sleep.c -o lease-sleep $(pkg-config --cflags --libs ringbroker)
 *
 * Each line of standard input is a request. "brokerctl lease sleep NUMBER" lets the lease sleep; so
 * does another lease that waits for room. Unmodified Vulkan programs need none of this: "brokerctl
 * exec --sleep" moves their memory.
 */
#include <errno.h>
#include <pthread.h>
#include <ringbroker.h>
#include <ringbroker/lease.h>
#include <stdbool.h>
#include <stdio.h>

#define MIB         (UINT64_C(1) << 20)
#define MODEL_BYTES (6 * MIB)
#define SECOND_NS   UINT64_C(1000000000)

static struct rbk_lease *lease;
/* A request holds the lock, so that the model does not leave under its work. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_loaded;

/* Take credit first, and then the memory. Under the lock. Return: false: there is no room. */
static bool load(void)
{
	struct rbk_error error;
	uint64_t credit_bytes;

	if (is_loaded)
		return true;
	if (rbk_lease_take(lease, MODEL_BYTES, MODEL_BYTES, 10 * SECOND_NS, NULL, &credit_bytes,
			   &error)) {
		printf("no room for the model: %s\n", error.text);
		return false;
	}
	/* Allocate device memory here, and copy the model there. */
	is_loaded = true;
	printf("loaded\n");
	/* All of it can be freed, and nothing was. */
	rbk_lease_report_moved(lease, MODEL_BYTES, 0);
	return true;
}

/* Free the memory first, and then give its credit back. Under the lock. */
static void unload(void)
{
	const struct rbk_lease_use use = {.used_bytes = 0};

	if (!is_loaded)
		return;
	/* Free the device memory here; the model is in the file from which it came. */
	is_loaded = false;
	rbk_lease_give(lease, MODEL_BYTES, &use);
	rbk_lease_report_moved(lease, MODEL_BYTES, MODEL_BYTES);
	printf("unloaded\n");
}

/* Unload when that is asked for. The next request loads again, whatever the state is then. */
static void *watch(void *unused)
{
	int state = RBK_LEASE_AWAKE;

	for (;;) {
		int r = rbk_lease_await_sleep(lease, (enum rbk_lease_sleep)state, SECOND_NS);

		if (r < 0 && r != -ETIME)
			break;
		if (r >= 0)
			state = r;
		if (state == RBK_LEASE_AWAKE)
			continue;
		/* Also a second after each request that came while the lease sleeps. */
		pthread_mutex_lock(&lock);
		unload();
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

/* Return false if the broker is gone, or if there is no room. */
static bool serve(const char *request)
{
	bool is_served;
	int r;

	/* A lease that is held does nothing until that ends. */
	do
		r = rbk_lease_await_sleep(lease, RBK_LEASE_HELD, SECOND_NS);
	while (r == -ETIME);
	if (r < 0)
		return false;
	pthread_mutex_lock(&lock);
	is_served = load();
	if (is_served)
		printf("answer: %s", request);
	pthread_mutex_unlock(&lock);
	return is_served;
}

int main(void)
{
	const struct rbk_lease_options options = {
		.device = RBK_DEVICE_NONE,
		.min_bytes = MODEL_BYTES,
		.wish_bytes = MODEL_BYTES,
	};
	struct rbk_error error;
	pthread_t watcher;
	char request[256];
	struct rbk *rbk;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (rbk_connect(NULL, &rbk, &error) || rbk_lease_open(rbk, &options, &lease, &error))
		return fprintf(stderr, "%s\n", error.text), 1;
	printf("lease %u\n", rbk_lease_number(lease));
	if (pthread_create(&watcher, NULL, watch, NULL))
		return fprintf(stderr, "no thread\n"), 1;
	while (fgets(request, sizeof(request), stdin) && serve(request))
		;
	/* The end of the program ends the lease, and the thread that uses it. */
	return 0;
}
