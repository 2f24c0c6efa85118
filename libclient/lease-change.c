/* SPDX-License-Identifier: MIT */
/* Changes of leases, by their openers and by administrators, and notice of them:
 * <ringbroker/lease.h> */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker/lease.h>

#include "libclient/private.h"
#include "shm/wire.h"

/* Ask the broker, which has one of @features or lacks @what, to change a lease. */
static int change(struct rbk *rbk, struct rbk_wire_request *request, size_t bytes,
		  uint64_t features, const char *what, struct client_answer *ret_answer,
		  struct rbk_error *error)
{
	struct client_message message = {request, bytes, NULL, 0, -1};
	int r = client_check(rbk, error);

	if (!r && !(rbk->features & features))
		r = client_error(error, -EOPNOTSUPP, "this broker does not support %s", what);
	return r ? r : client_request(rbk, &message, ret_answer, error);
}

RBK_EXPORT int rbk_lease_resize(struct rbk *rbk, uint32_t lease, uint64_t wish_bytes,
				uint64_t *ret_granted_bytes, struct rbk_error *error)
{
	struct rbk_wire_lease_resize request = {
		.request.type = RBK_WIRE_LEASE_RESIZE,
		.lease = lease,
		.wish_bytes = wish_bytes,
	};
	struct client_answer answer;
	/* On the administrators' socket the broker itself checks the right to make changes. */
	int r = change(rbk, &request.request, sizeof(request), RBK_FEAT_LEASES | RBK_FEAT_ADMIN,
		       "leases", &answer, error);

	if (!r && ret_granted_bytes)
		*ret_granted_bytes = answer.reply.lease_given.granted_bytes;
	return r;
}

RBK_EXPORT int rbk_lease_share(struct rbk *rbk, uint32_t lease, const enum rbk_priority *priority,
			       uint32_t share, struct rbk_error *error)
{
	struct rbk_wire_lease_share request = {
		.request.type = RBK_WIRE_LEASE_SHARE,
		.lease = lease,
		.priority = priority ? 1 + (uint32_t)*priority : 0,
		.share = share,
	};
	struct client_answer answer;

	/* Every broker with this feature has the other one. */
	if (priority && *priority == RBK_PRIORITY_NONE)
		return change(rbk, &request.request, sizeof(request), RBK_FEAT_UNSHARE,
			      "programs that stop sharing a device", &answer, error);
	return change(rbk, &request.request, sizeof(request), RBK_FEAT_SHARES, "shares of leases",
		      &answer, error);
}

RBK_EXPORT int rbk_lease_sleep(struct rbk *rbk, uint32_t lease, enum rbk_lease_sleep state,
			       struct rbk_error *error)
{
	struct rbk_wire_lease_sleep request = {
		.request.type = RBK_WIRE_LEASE_SLEEP,
		.lease = lease,
		.sleep = (uint32_t)state,
	};
	struct client_answer answer;

	return change(rbk, &request.request, sizeof(request), RBK_FEAT_SLEEP, "sleeping leases",
		      &answer, error);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* See whether the broker is there. Return: 0, also while the connection re-attaches. */
static int look(struct rbk_lease *lease)
{
	struct rbk *rbk = client_lease_rbk(lease);
	int r = client_check(rbk, NULL);

	if (!r) {
		client_look(rbk);
		r = client_check(rbk, NULL);
	}
	client_unref(rbk);
	return r;
}

RBK_EXPORT int rbk_lease_await_sleep(struct rbk_lease *lease, enum rbk_lease_sleep state,
				     uint64_t timeout_ns)
{
	const uint32_t *word = &rbk_lease_page(lease)->sleep;
	const uint64_t begin_ns = now_ns();
	/* The page of the next broker is another futex at the same address. */
	const uint64_t most_ns = 1000000000u;
	uint32_t found;
	int r;

	while ((found = __atomic_load_n(word, __ATOMIC_ACQUIRE)) == (uint32_t)state) {
		const uint64_t passed_ns = now_ns() - begin_ns;
		uint64_t left_ns;

		/* A program that only waits would never notice that the broker has died. */
		r = look(lease);
		if (r)
			return r;
		if (passed_ns >= timeout_ns)
			return -ETIME;
		left_ns = timeout_ns - passed_ns < most_ns ? timeout_ns - passed_ns : most_ns;
		syscall(SYS_futex, word, FUTEX_WAIT, found,
			&(struct timespec){.tv_sec = (time_t)(left_ns / 1000000000u),
					   .tv_nsec = (long)(left_ns % 1000000000u)},
			NULL, 0);
	}
	return (int)found;
}
