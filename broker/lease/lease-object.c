/* SPDX-License-Identifier: MIT */
/*
 * Leases: memory that processes share
 *
 * An exported allocation lives as long as any process holds it. Without a charge for it, a process
 * could export an allocation, free it, and have another process import it: the memory would be held
 * for nothing. So shared memory is named as an object, by the device and inode numbers of its
 * descriptor. One of its holders pays until the last holder has dropped it.
 *
 * A client can name an object that it does not hold, and report any size. So each holder reports a
 * size, and the holder that reports the largest size pays. A client that names another's object
 * pays for it itself, and too small a size gains nothing against holders that know the true one.
 * When the payer drops the object, the remaining holder with the largest size pays for that size,
 * whatever the limits, because the memory is in use.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "lease/lease.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/number.h"

enum { MAX_BUCKETS = 1 << 20 };

/* A member's holding of an object. */
struct lease_holding {
	struct list_node link;      /* in lease_member.holdings */
	struct list_node of_object; /* in lease_object.holdings */
	struct lease_object *object;
	struct lease_member *member;
	uint64_t bytes; /* size reported by the member */
	struct charge charge;
};

struct lease_object {
	struct lease_object *next; /* in its bucket */
	uint32_t tenant;           /* tenant number */
	uint64_t dev, ino;
	struct lease_holding *payer; /* the holding with the most bytes */
	struct list_node holdings;
};

static struct lease_object **bucket_of(const struct leases *leases, uint32_t tenant, uint64_t dev,
				       uint64_t ino)
{
	uint64_t hash = mix_u64(mix_u64(mix_u64(leases->seed ^ tenant) ^ dev) ^ ino);

	return &leases->buckets[hash & (leases->n_buckets - 1)];
}

static void put(struct leases *leases, struct lease_object *object)
{
	struct lease_object **bucket = bucket_of(leases, object->tenant, object->dev, object->ino);

	object->next = *bucket;
	*bucket = object;
}

/* Double the buckets. Without memory for that, look-ups become slower. */
static void grow(struct leases *leases)
{
	struct lease_object **before = leases->buckets;
	uint32_t n = leases->n_buckets;
	struct lease_object **buckets = calloc((size_t)n * 2, sizeof(struct lease_object *));

	if (!buckets)
		return;
	leases->buckets = buckets;
	leases->n_buckets = n * 2;
	for (uint32_t i = 0; i < n; i++)
		while (before[i]) {
			struct lease_object *object = before[i];

			before[i] = object->next;
			put(leases, object);
		}
	free(before);
}

static struct lease_object *find(const struct lease_member *member, uint64_t dev, uint64_t ino)
{
	uint32_t tenant = member->lease->tenant->number;
	struct lease_object *object = *bucket_of(member->lease->leases, tenant, dev, ino);

	while (object && (object->tenant != tenant || object->dev != dev || object->ino != ino))
		object = object->next;
	return object;
}

static struct lease_holding *holding_of(const struct lease_object *object,
					const struct lease_member *member)
{
	list_for_each (node, &object->holdings) {
		struct lease_holding *holding = container_of(node, struct lease_holding, of_object);

		if (holding->member == member)
			return holding;
	}
	return NULL;
}

/* End the payment. The payer's lease keeps the granted bytes. */
static void unpay(struct lease_object *object)
{
	struct lease *lease = object->payer->member->lease;

	lease->credited_bytes -= object->payer->bytes;
	lease->object_bytes -= object->payer->bytes;
	object->payer = NULL;
}

static void pay(struct lease_object *object, struct lease_holding *holding)
{
	struct lease *lease = holding->member->lease;

	assert(holding->bytes <= lease_ungiven(lease));
	lease->credited_bytes += holding->bytes;
	if (lease->credited_bytes > lease->peak_credited_bytes)
		lease->peak_credited_bytes = lease->credited_bytes;
	lease->object_bytes += holding->bytes;
	object->payer = holding;
}

/*
 * Move the bytes that @heir lacks for @bytes to it from @lease, which has just ceased to pay as
 * much.
 */
static void inherit(struct lease *lease, struct lease *heir, uint64_t bytes)
{
	uint64_t more;

	if (bytes <= lease_ungiven(heir))
		return;
	more = bytes - lease_ungiven(heir);
	lease_grant(lease, lease_granted(lease) - more, true);
	lease_grant(heir, lease_granted(heir) + more, true);
}

static void settle(struct lease *lease)
{
	lease_trim(lease);
	lease_show(lease);
}

static void object_free(struct leases *leases, struct lease_object *object)
{
	struct lease_object **at = bucket_of(leases, object->tenant, object->dev, object->ino);

	while (*at != object)
		at = &(*at)->next;
	*at = object->next;
	leases->n_objects--;
	free(object);
}

static void drop(struct lease_holding *holding)
{
	struct lease *lease = holding->member->lease;
	struct lease_object *object = holding->object;
	bool was_payer = object->payer == holding;
	struct lease_holding *next = NULL;

	if (was_payer)
		unpay(object);
	list_remove(&holding->link);
	list_remove(&holding->of_object);
	holding->member->n_holdings--;
	charge_deinit(&holding->charge);
	free(holding);
	if (list_is_empty(&object->holdings))
		object_free(lease->leases, object);
	else if (was_payer) {
		list_for_each (node, &object->holdings) {
			struct lease_holding *other =
				container_of(node, struct lease_holding, of_object);

			if (!next || other->bytes > next->bytes)
				next = other;
		}
		inherit(lease, next->member->lease, next->bytes);
		pay(object, next);
		settle(next->member->lease);
	}
	settle(lease);
}

uint64_t lease_object_cost(const struct lease_member *member, uint64_t dev, uint64_t ino,
			   uint64_t bytes, uint64_t from_credit_bytes)
{
	const struct lease_object *object = find(member, dev, ino);
	uint64_t free_bytes = from_credit_bytes;

	if (object && object->payer->bytes >= bytes)
		return 0;
	/* If its own lease is the payer, the earlier payment is returned. */
	if (object && object->payer->member->lease == member->lease)
		free_bytes += object->payer->bytes;
	return bytes > free_bytes ? bytes - free_bytes : 0;
}

static int holding_new(struct lease_member *member, uint64_t dev, uint64_t ino, uint64_t bytes,
		       struct lease_object *object, struct lease_holding **ret)
{
	struct leases *leases = member->lease->leases;
	struct lease_holding *holding;
	struct charge charge = CHARGE_INIT;

	if (account_charge(member->lease->tenant->account, &charge, ACCOUNT_HOST_BYTES,
			   sizeof(struct lease_holding) + sizeof(struct lease_object) +
				   2 * sizeof(struct lease_object *)))
		return LEASE_E_HOST_QUOTA;
	holding = calloc(1, sizeof(*holding));
	if (holding && !object) {
		object = calloc(1, sizeof(*object));
		if (object) {
			object->tenant = member->lease->tenant->number;
			object->dev = dev;
			object->ino = ino;
			list_init(&object->holdings);
			if (leases->n_objects >= leases->n_buckets &&
			    leases->n_buckets < MAX_BUCKETS)
				grow(leases);
			put(leases, object);
			leases->n_objects++;
		}
	}
	if (!holding || !object) {
		free(holding);
		charge_deinit(&charge);
		return error_origin(-ENOMEM);
	}
	holding->object = object;
	holding->member = member;
	holding->bytes = bytes;
	holding->charge = charge;
	list_append(&member->holdings, &holding->link);
	list_append(&object->holdings, &holding->of_object);
	member->n_holdings++;
	*ret = holding;
	return 0;
}

int lease_object_add(struct lease_member *member, uint64_t dev, uint64_t ino, uint64_t bytes,
		     uint64_t from_credit_bytes, uint64_t *ret_bytes)
{
	struct lease *lease = member->lease;
	struct lease_object *object = find(member, dev, ino);
	struct lease_holding *holding = NULL;
	int r;

	if (object && holding_of(object, member))
		return LEASE_E_EXISTS;
	if (from_credit_bytes > member->credit_bytes ||
	    lease_object_cost(member, dev, ino, bytes, from_credit_bytes) > lease_ungiven(lease))
		return LEASE_E_LACKING;
	r = holding_new(member, dev, ino, bytes, object, &holding);
	if (r)
		return r;
	object = holding->object;
	*ret_bytes = 0;
	/* The credit returns to the lease, which may pay for the object out of it. */
	member->credit_bytes -= from_credit_bytes;
	lease->credited_bytes -= from_credit_bytes;
	if (!object->payer || object->payer->bytes < bytes) {
		struct lease *payer = object->payer ? object->payer->member->lease : lease;

		if (object->payer)
			unpay(object);
		pay(object, holding);
		settle(payer);
		*ret_bytes = bytes;
	}
	settle(lease);
	return 0;
}

int lease_object_drop(struct lease_member *member, uint64_t dev, uint64_t ino)
{
	struct lease_object *object = find(member, dev, ino);
	struct lease_holding *holding = object ? holding_of(object, member) : NULL;

	if (!holding)
		return LEASE_E_UNKNOWN;
	drop(holding);
	return 0;
}

void lease_objects_drop(struct lease_member *member)
{
	list_for_each_safe (node, &member->holdings)
		drop(container_of(node, struct lease_holding, link));
}
