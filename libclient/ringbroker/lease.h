#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Leases: device memory for programs that drive a device themselves
 *
 * A program that uses Vulkan itself shares the card with the broker's tenants. A lease is the
 * program's part of the memory: granted bytes, charged in the ledger to the tenant that the
 * program's user, cgroup or executable belongs to. Plans of all tenants are evicted for a lease by
 * the same rules as for other plans. The Vulkan layer VK_LAYER_RINGBROKER_lease holds an unmodified
 * program to its lease. It is built on the functions below; other programs can call them directly.
 *
 * A lease has three sizes. Below its minimum the lease is rejected. The broker grants the wish at
 * once, as far as there is room. On request the lease grows up to its maximum. A lease belongs to
 * the sessions that opened or joined it (of one tenant and user); these sessions are its members.
 * The lease ends with its last member, so a killed program leaves nothing behind. A member takes
 * credit in chunks and allocates from that credit without a request.
 *
 * Sizes are in bytes and count the device's own memory: Vulkan's device-local heaps, rounded up to
 * pages. Imports of host memory do not count. Memory that several processes share is charged once.
 *
 * A connection is a member of at most one lease of each device. When the broker has not answered a
 * request within the connection's timeout, later requests do not wait for the broker until it sends
 * a message. Meanwhile requests for credit, and requests to add an object, fail with -ETIME at
 * once; requests that give something back are sent without waiting for the answer.
 *
 * A connection that re-attaches (rbk_connect()) restores its leases first, where the broker offers
 * RBK_FEAT_RESTORE: its membership, credit, objects, sizes, cgroup and last report. Requests that
 * wait go on waiting. The page keeps its address; the number may change. The next broker accepts
 * what the members had as rbk_lease_restore() says, and grants nothing new until members have come
 * back. If it does not accept a lease within reattach_ns, the connection is lost, and the sentence
 * of later errors says what the lease had and what was available.
 *
 * Any thread may call these functions, unless stated otherwise. Beside the errors listed, functions
 * return those of a lost connection (-ECONNRESET; -ECHILD in a fork()ed child), as rbk_stats()
 * does, and -EOPNOTSUPP if the broker does not offer RBK_FEAT_LEASES.
 */
#include <stdint.h>
#include <ringbroker.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Size of the name of a region that rbk_lease_set_cgroup() returns, with its terminating zero. */
#define RBK_LEASE_REGION_BYTES 64

struct rbk_lease;

/* Options of rbk_lease_open(). Zero-initialise the struct and set the members that you need. */
struct rbk_lease_options {
	/* RBK_DEVICE_*; RBK_DEVICE_NONE: the first device with memory of its own */
	uint32_t device;
	/*
	 * Number of the lease to join; 0: open a new lease. When joining, only @uuid of the other
	 * members is used: the lease must be of that device.
	 */
	uint32_t join;
	const uint8_t *uuid; /* 16 bytes, Vulkan's deviceUUID, replaces @device; or NULL */
	uint64_t min_bytes;  /* 0: 1 byte */
	uint64_t wish_bytes; /* 0: max_bytes */
	uint64_t max_bytes;  /* 0: wish_bytes; one of the two must be set */
	/*
	 * Time to wait for room, at most an hour; 0: do not wait. Waiters of a tenant are served in
	 * order.
	 */
	uint64_t wait_ns;
	const char *program; /* program name for listings; NULL: the name given to rbk_connect() */
};

/*
 * Open or join a lease. The lease belongs to @rbk's session and ends with rbk_lease_close() or with
 * the connection. Blocks for at most wait_ns in addition to the connection's timeout.
 *
 * Return: 0;
 *   -EINVAL    the sizes are not min <= wish <= max
 *   -ENODEV    no such device
 *   -ENOENT    join: there is no such lease
 *   -EPERM     join: the lease is another tenant's or user's
 *   -EALREADY  the session has a lease of that device
 *   -EBUSY     an administrator drains the device or the tenant, or the device is lost; or 1024
 *              requests of the tenant for the device, or 64 of the session, already wait for room;
 *              or too many descriptors are in flight to clients that do not receive them
 *   -EDQUOT    more than the tenant's limits on the device ever allow
 *   -ENOMEM    no room now
 *   -ETIMEDOUT no room within wait_ns
 *   -EDEADLK   the leases that hold the memory wait for room, too
 * The sentence names the required bytes, the available bytes, and the tenant.
 */
int rbk_lease_open(struct rbk *rbk, const struct rbk_lease_options *options, struct rbk_lease **ret,
		   struct rbk_error *error);

/*
 * Leave the lease and give back all credit and objects, as the end of the connection would; free
 * the memory before. The broker keeps a session as a member until its connection ends: the lease
 * itself ends with rbk_disconnect(). @lease may be NULL. No other thread may use @lease any more.
 */
void rbk_lease_close(struct rbk_lease *lease);

/* Return the number by which others join the lease, and its device (RBK_DEVICE_*). */
uint32_t rbk_lease_number(const struct rbk_lease *lease);
uint32_t rbk_lease_device(const struct rbk_lease *lease);
/* Return the lease's page, mapped until rbk_lease_close(), even when the broker is gone. */
const struct rbk_lease_page *rbk_lease_page(const struct rbk_lease *lease);

/*
 * A member's own report of its memory, sent with each request for credit; for listings and audits.
 */
struct rbk_lease_use {
	uint64_t used_bytes;  /* bytes allocated */
	uint64_t extra_bytes; /* driver overhead in bytes, as far as known */
	uint32_t n_objects;   /* number of allocations */
	uint32_t n_refused;   /* allocations refused */
	uint64_t peak_bytes;  /* peak of used + extra since the last report; 0: the current sum */
};

/*
 * Request @want_bytes of credit, at least @least_bytes. The credit granted is stored in *ret_bytes.
 * @use may be NULL. Blocks for at most @wait_ns in addition to the connection's timeout.
 * Return: 0; -ENOMEM, -ETIMEDOUT, -EDEADLK as rbk_lease_open(), and nothing was granted; -EBUSY: 64
 * requests of the session, or 1024 of the tenant for the device, already wait; -EINVAL.
 */
int rbk_lease_take(struct rbk_lease *lease, uint64_t want_bytes, uint64_t least_bytes,
		   uint64_t wait_ns, const struct rbk_lease_use *use, uint64_t *ret_bytes,
		   struct rbk_error *error);
/*
 * Give @bytes of credit back, possibly 0, and report @use, which may be NULL. From the moment the
 * request is sent the credit is the broker's, even if the answer is late: a late answer is no
 * failure.
 * Return: 0; otherwise no credit was given back: -EINVAL: the member has less credit; -EBUSY: too
 * many requests are unanswered.
 */
int rbk_lease_give(struct rbk_lease *lease, uint64_t bytes, const struct rbk_lease_use *use);

/*
 * Add an object of @bytes that other processes may hold too, identified by fstat() of its
 * descriptor; once per object. @from_credit_bytes of the member's credit pay for it: for an export,
 * the bytes of its allocation; for an import 0. The member's credit falls by that amount, whichever
 * lease pays. The bytes charged to the lease are stored in *ret_charged_bytes: 0 if another lease
 * of the tenant already pays for the object.
 *
 * Drop an object with rbk_lease_object_drop() when the process holds it no more; dropping gives no
 * credit. If dropping fails because the connection is lost, the object is dropped all the same: the
 * next broker is not told about it.
 *
 * When the answer is late, an object that was paid for counts as added, and a dropped object as
 * dropped. If the broker rejects an added object after all, its cost is given back when it is
 * dropped.
 *
 * Return: 0;
 *   -ENOMEM   the lease has no room for the object
 *   -ENOSPC   too many objects
 *   -EALREADY the member has added the object before
 *   -ENOENT   drop: the member has not added the object
 *   -ETIME    add: no answer, and nothing was paid; a late addition is dropped again
 *   -EBUSY    add: too many requests wait, as rbk_lease_take()
 *   -EBUSY    drop: too many requests are unanswered, the object is unchanged
 */
int rbk_lease_object_add(struct rbk_lease *lease, uint64_t dev, uint64_t ino, uint64_t bytes,
			 uint64_t from_credit_bytes, uint64_t *ret_charged_bytes,
			 struct rbk_error *error);
int rbk_lease_object_drop(struct rbk_lease *lease, uint64_t dev, uint64_t ino);

/*
 * Change the wish of a lease, named by its number. The lease grows at once as far as there is free
 * room, and from then on no further than the new wish; or it shrinks as members give credit back.
 * The caller's connection must be that of the lease's opener, or of an administrator who may make
 * changes. The bytes granted now are stored in *ret_granted_bytes, which may be NULL.
 *
 * Return: 0;
 *   -EPERM    another session opened the lease
 *   -ENOENT   there is no lease of that number
 *   -EINVAL   the wish is 0, or above the lease's maximum
 */
int rbk_lease_resize(struct rbk *rbk, uint32_t lease, uint64_t wish_bytes,
		     uint64_t *ret_granted_bytes, struct rbk_error *error);

#define RBK_LEASE_MAX_SHARE 10000

/*
 * Set how a lease, named by its number, shares its device's time with other leases
 * (ringbroker-leases(7), SHARING THE DEVICE). Both settings last until the lease ends, also at the
 * next broker.
 *
 * @priority, an enum rbk_priority, replaces that of all members, and members that did not share the
 * device begin to do so, if the Vulkan layer runs in them. RBK_PRIORITY_LOW is background work. One
 * above the tenant's priority-max counts as that. With RBK_PRIORITY_NONE (RBK_FEAT_UNSHARE) all
 * members stop sharing the device within about a second, until another priority is set. NULL:
 * unchanged.
 *
 * @share, 1 to RBK_LEASE_MAX_SHARE, says how the tenant's time of the device is divided among its
 * leases of one priority that want it: in proportion to their shares, by start-time fair queueing
 * (Goyal, Vin, Cheng: SIGCOMM 1996). A lease whose share was not set has 100. Other tenants are not
 * affected. 0: unchanged.
 *
 * The caller's connection must be that of the lease's opener, or of an administrator who may make
 * changes.
 *
 * Return: 0;
 *   -EPERM       another session opened the lease
 *   -ENOENT      there is no lease of that number
 *   -EINVAL      the priority is unknown, the share is above RBK_LEASE_MAX_SHARE, or neither is set
 *   -EOPNOTSUPP  the broker does not offer RBK_FEAT_SHARES, or for RBK_PRIORITY_NONE
 *                RBK_FEAT_UNSHARE
 */
int rbk_lease_share(struct rbk *rbk, uint32_t lease, const enum rbk_priority *priority,
		    uint32_t share, struct rbk_error *error);

/*
 * Say where the memory of a lease's programs should be; the lease is named by its number
 * (ringbroker-leases(7), SLEEP). RBK_LEASE_SLEEPS: idle programs whose memory can be moved have it
 * in host memory, and the lease gives it back to the device; it returns before their next
 * submission, as far as there is room. RBK_LEASE_HELD: the same, and programs submit nothing until
 * the state changes, whether their memory can be moved or not; the broker's end lets them go on.
 * RBK_LEASE_AWAKE ends both. The state lasts until the lease or the broker ends. Programs follow
 * it if the Vulkan layer runs in them; others by rbk_lease_await_sleep().
 *
 * The caller's connection must be that of the lease's opener, or of an administrator who may make
 * changes.
 *
 * Return: 0;
 *   -EPERM       another session opened the lease
 *   -ENOENT      there is no lease of that number
 *   -EINVAL      RBK_LEASE_ASKED, or an unknown state
 *   -EOPNOTSUPP  the broker does not offer RBK_FEAT_SLEEP
 */
int rbk_lease_sleep(struct rbk *rbk, uint32_t lease, enum rbk_lease_sleep state,
		    struct rbk_error *error);

/*
 * Wait until the lease's rbk_lease_page.sleep is not @state any more, for at most @timeout_ns; 0:
 * do not wait. A program that can free device memory and get it back later, such as a model that no
 * request uses, gives a thread of its own to this: when the state is not RBK_LEASE_AWAKE it frees
 * what it can while it is idle, gives the credit back (rbk_lease_give()), and then tells the
 * numbers by rbk_lease_report_moved() (examples/lease-sleep.c). It takes credit again for its next
 * work, and not because the state is RBK_LEASE_AWAKE: RBK_LEASE_ASKED ends as soon as the other
 * lease has the room. Of a lowered lease only rbk_lease_page.wish_bytes tells.
 *
 * About once a second the call sees whether the broker is there, and has the connection re-attach
 * if it is not. The state of a broker that has ended stays until the next one has the lease.
 *
 * Return: the state, an enum rbk_lease_sleep; -ETIME: it is still @state; -ECONNRESET: the broker
 * is gone, and the connection does not re-attach; -ECHILD: in a child of the process that
 * connected.
 */
int rbk_lease_await_sleep(struct rbk_lease *lease, enum rbk_lease_sleep state, uint64_t timeout_ns);

/*
 * Report how many bytes of the member's device memory can be freed while its program is idle, those
 * that were freed included, and how many were. While another lease waits for room, the broker asks
 * only leases that can still free some (RBK_LEASE_ASKED). Does not wait for an answer; report when
 * something has changed, and anew after rbk_lease_restore().
 * Return: 0; -EOPNOTSUPP: the broker does not offer RBK_FEAT_SLEEP; -EBUSY: too many requests are
 * unanswered.
 */
int rbk_lease_report_moved(struct rbk_lease *lease, uint64_t movable_bytes, uint64_t moved_bytes);

/*
 * Tell the broker that the lease's programs are in a cgroup. @fd is a descriptor of its folder in
 * /sys/fs/cgroup, from open(). Device memory that processes in the cgroup and below use then counts
 * as the lease's, if they are of the lease's user and tenant, even if they are not members.
 * @fd stays the caller's. A lease keeps its cgroup until it ends; repeat the call after
 * rbk_lease_restore(). A connection that re-attaches keeps a descriptor and repeats it by itself.
 *
 * Where the kernel has the dmem controller, a process with the rights can hold that cgroup to the
 * lease: the limit is the line of dmem.max whose region is *ret_region, or *ret_region with a
 * number appended. *ret_region is empty if the region is unknown, or if the controller does not
 * count the device's memory. @ret_region may be NULL. The broker reads dmem.max and publishes
 * whether a limit is in force (RBK_STATS_LEASE_CAPPED).
 *
 * Return: 0;
 *   -ENOTDIR   @fd is no cgroup folder (of version 2)
 *   -EPERM     the folder belongs to another user than the lease
 *   -EALREADY  the lease has another cgroup
 *   -EBUSY     another lease of the device has that cgroup
 *   -EDQUOT    the tenant has too many descriptors
 */
int rbk_lease_set_cgroup(struct rbk_lease *lease, int fd, char ret_region[RBK_LEASE_REGION_BYTES],
			 struct rbk_error *error);

/*
 * Restore the lease after the connection was lost with the broker: have the same lease on a new
 * connection, to the new broker. The member had @credit_bytes of credit, in addition to the cost of
 * its objects, which the library knows. Both are charged at once, even above the lease's maximum,
 * because the memory is in use. The broker accepts them as far as that memory is neither held nor
 * reserved otherwise. A wish that rbk_lease_resize() has set since the lease was opened applies
 * again, and so do the settings of rbk_lease_share(). On success
 * @lease belongs to @rbk's session; its number and page may have changed.
 * Return: 0; errors as rbk_lease_open(), such as -ENOMEM: not accepted; on errors @lease is
 * unchanged.
 */
int rbk_lease_restore(struct rbk_lease *lease, struct rbk *rbk, uint64_t credit_bytes,
		      struct rbk_error *error);

#ifdef __cplusplus
}
#endif
