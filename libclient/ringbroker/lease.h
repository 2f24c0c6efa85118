#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Leases: device memory for programs that drive a device themselves
 *
 * A program that uses Vulkan itself shares the card with the broker's tenants all the same. A lease
 * is its part: a charge of granted bytes in the ledger, to the tenant that the program's user,
 * cgroup or executable belongs to, so that plans of that tenant and of others make way for it by
 * the same rules as for each other. The Vulkan layer VK_LAYER_RINGBROKER_lease holds an unmodified
 * program to its lease; this is what it is made of, for who wants to do so by hand.
 *
 * A lease has a minimum, below which it is refused; a wish, granted at once as far as there is
 * room; and a maximum, up to which it grows when asked. It belongs to the sessions that opened or
 * joined it (of one tenant and user), and is gone with the last: a program that is killed leaves
 * nothing. A member draws credit in chunks and allocates out of that without asking anybody.
 *
 * What counts, in bytes, is what lies in the device's own memory: Vulkan's device-local heaps,
 * rounded up to pages; not imports of host memory. What several processes share is charged once.
 *
 * One connection is a member of at most one lease of each device. A broker that has not answered
 * one request within the connection's time limit is not waited for by the next: until it says
 * something again, what asks for credit or for an object to be added fails with -ETIME at once, and
 * what gives back leaves it with the broker to read. Any thread may call these, unless said
 * otherwise; errors beside those listed are those of a broken connection (-EPIPE, -ESTALE in a
 * fork()ed child), as of rbk_stats(). -EOPNOTSUPP: the broker does not offer RBK_FEAT_LEASES.
 */
#include <stdint.h>
#include <ringbroker.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RBK_LEASE_REGION_BYTES 64

struct rbk_lease;

/* Zero-initialised but for what is wanted. */
struct rbk_lease_options {
	uint32_t device; /* RBK_DEVICE_*; RBK_DEVICE_NONE: the first with memory of its own */
	/*
	 * The number of a lease to join, 0: a new one. Of the rest only @uuid is looked at: the
	 * lease must be of that device.
	 */
	uint32_t join;
	const uint8_t *uuid; /* 16 bytes, Vulkan's deviceUUID, instead of @device; or NULL */
	uint64_t min_bytes;  /* 0: 1 byte will do */
	uint64_t wish_bytes; /* 0: max_bytes */
	uint64_t max_bytes;  /* 0: wish_bytes, one of the two must be given */
	/* For room, in the tenant's order of asking, and at most an hour; 0: not at all. */
	uint64_t wait_ns;
	const char *program; /* for listings; NULL: what rbk_connect() was told */
};

/*
 * Opens or joins a lease. *ret belongs to @rbk's session, and is for rbk_lease_close() or the end
 * of the connection. Blocks for wait_ns beside the connection's own time limit.
 *
 * Return: 0;
 *   -EINVAL    not min <= wish <= max
 *   -ENODEV    no such device
 *   -ENOENT    join: there is no such lease
 *   -EPERM     join: it is another tenant's or user's
 *   -EALREADY  the session has a lease of that device
 *   -EBUSY     an administrator drains the device or the tenant, or the device is lost; or 1024
 *              requests of the tenant wait for room on the device, or 64 of the session, and no
 *              more may; or too many descriptors are under way to clients that do not receive them
 *   -EDQUOT    more than the tenant may ever have there
 *   -ENOMEM    no room now
 *   -ETIMEDOUT nor within wait_ns
 *   -EDEADLK   who has the room waits, too
 * The sentence names what was required, what is available, and the tenant.
 */
int rbk_lease_open(struct rbk *rbk, const struct rbk_lease_options *options, struct rbk_lease **ret,
		   struct rbk_error *error);

/*
 * Leaves the lease, all credit with it, as the end of the connection would: its memory should have
 * been freed. Since the broker keeps a member until its connection ends, this gives back credit and
 * objects, and the lease itself with rbk_disconnect(). NULL is fine. Nobody else may use it.
 */
void rbk_lease_close(struct rbk_lease *lease);

/* By which others join it, and RBK_DEVICE_*. */
uint32_t rbk_lease_number(const struct rbk_lease *lease);
uint32_t rbk_lease_device(const struct rbk_lease *lease);
/* Mapped until rbk_lease_close(), also when the broker is gone. */
const struct rbk_lease_page *rbk_lease_page(const struct rbk_lease *lease);

/* What the member says of itself whenever it asks for credit; for listings and audits. */
struct rbk_lease_use {
	uint64_t used_bytes;  /* allocated */
	uint64_t extra_bytes; /* that the driver took for itself beside it, as far as is known */
	uint32_t n_objects;   /* how many allocations that are */
	uint32_t n_refused;   /* how many were refused */
	uint64_t peak_bytes;  /* the most that both were since it last said so; 0: as they are */
};

/*
 * Asks for @want_bytes of credit, at least @least_bytes; what was given goes to *ret_bytes. @use
 * may be NULL. May block for @wait_ns. Return: 0; -ENOMEM, -ETIMEDOUT, -EDEADLK, as
 * rbk_lease_open(), nothing was given; -EBUSY: as many requests of the session (64) or of the
 * tenant for the device (1024) wait as may; -EINVAL.
 */
int rbk_lease_take(struct rbk_lease *lease, uint64_t want_bytes, uint64_t least_bytes,
		   uint64_t wait_ns, const struct rbk_lease_use *use, uint64_t *ret_bytes,
		   struct rbk_error *error);
/*
 * Gives @bytes of credit back, perhaps 0, and tells @use, which may be NULL. Once the broker has
 * been told it has them, though its answer may come too late: that is no failure. Return: 0;
 * otherwise nothing was given: -EINVAL: the member has less; -EBUSY: too much is unanswered.
 */
int rbk_lease_give(struct rbk_lease *lease, uint64_t bytes, const struct rbk_lease_use *use);

/*
 * An object of @bytes that other processes may have too, by what fstat() says of its descriptor;
 * once per object. @from_credit_bytes of the member's credit pay for it: of an export, what its
 * allocation took; of an import 0. That much less credit the member has from then on, whoever pays.
 * What the lease was charged now goes to *ret_charged_bytes: 0 if somebody of the same tenant pays
 * already. rbk_lease_object_drop() when the process has no more of it; that gives no credit. Where
 * it fails because the connection is lost, the object is dropped all the same: the broker that
 * comes next does not hear of it.
 *
 * When the answer comes too late, an object that is paid for counts as added, and one that is
 * dropped as dropped. If the broker refuses it after all, what it was to cost is given back when it
 * is dropped.
 *
 * Return: 0;
 *   -ENOMEM   the lease has no room for it
 *   -ENOSPC   too many objects
 *   -EALREADY the member has named it
 *   -ENOENT   drop: it has not
 *   -ETIME    add: no answer, and nothing was paid; it is dropped if it is added after all
 *   -EBUSY    add: too many wait, as rbk_lease_take()
 *   -EBUSY    drop: too much is unanswered, the object is as it was
 */
int rbk_lease_object_add(struct rbk_lease *lease, uint64_t dev, uint64_t ino, uint64_t bytes,
			 uint64_t from_credit_bytes, uint64_t *ret_charged_bytes,
			 struct rbk_error *error);
int rbk_lease_object_drop(struct rbk_lease *lease, uint64_t dev, uint64_t ino);

/*
 * Another wish for a lease, by its number: it grows at once as far as there is free room, and no
 * further than that wish from then on, or shrinks as members give back. Its opener's connection, or
 * an administrator's who may change something. *ret_granted_bytes is what it has now; may be NULL.
 *
 * Return: 0;
 *   -EPERM    another's lease
 *   -ENOENT   there is none of that number
 *   -EINVAL   0, or above its maximum
 */
int rbk_lease_resize(struct rbk *rbk, uint32_t lease, uint64_t wish_bytes,
		     uint64_t *ret_granted_bytes, struct rbk_error *error);

/*
 * Tells the broker that the lease's programs are in a cgroup, of which @fd is the folder (open(),
 * in /sys/fs/cgroup). What processes in there and below use of the device, if they are of the
 * lease's user and tenant, is then the lease's, also of those that are no members. @fd stays the
 * caller's. A lease keeps its cgroup to its end; it has to be told to a broker that comes later.
 *
 * Where the kernel has the dmem controller, whoever may can hold that cgroup to the lease: in
 * dmem.max it is the line of *ret_region, or of that with a number behind it. Empty: not known, or
 * the device's memory is not one that the controller counts. @ret_region may be NULL. The broker
 * reads dmem.max, and shows what holds (RBK_STATS_LEASE_CAPPED).
 *
 * Return: 0;
 *   -ENOTDIR   @fd is no folder of cgroups (of version 2)
 *   -EPERM     the folder is another user's than the lease
 *   -EALREADY  the lease has another cgroup
 *   -EBUSY     another lease of the device has it
 *   -EDQUOT    the tenant has too many descriptors
 */
int rbk_lease_set_cgroup(struct rbk_lease *lease, int fd, char ret_region[RBK_LEASE_REGION_BYTES],
			 struct rbk_error *error);

/*
 * After the broker ended: the same lease on a new connection, to the broker that came after it. The
 * member had @credit_bytes of credit, beside what it paid for objects, which the library knows;
 * both are charged at once, above the lease's maximum, too, as they are there. They are believed as
 * far as nobody else has that memory or has it reserved. On success @lease is of @rbk's session;
 * its number and page may be others. Return: 0; errors as rbk_lease_open(), such as -ENOMEM: not
 * believed; and @lease is as it was.
 */
int rbk_lease_restore(struct rbk_lease *lease, struct rbk *rbk, uint64_t credit_bytes,
		      struct rbk_error *error);

#ifdef __cplusplus
}
#endif
