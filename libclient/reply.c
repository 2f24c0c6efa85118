/* SPDX-License-Identifier: MIT */
/*
 * Checks of the broker's answers
 *
 * The broker is trusted with the client's data, but not with the client's memory safety: a broken
 * or foreign program behind the socket must lead to -EPROTO and not to a crash. Every answer is
 * checked here, once, before its use; the callers then rely on it.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "libclient/private.h"

struct reply_shape {
	size_t bytes;
	unsigned int n_fds;
};

static const struct reply_shape reply_shapes[] = {
	[RBK_WIRE_HELLO] = {sizeof(struct rbk_wire_welcome), 0},
	[RBK_WIRE_RING_ADD] = {sizeof(struct rbk_wire_ring), 3},
	[RBK_WIRE_RING_REMOVE] = {sizeof(struct rbk_wire_reply), 0},
	[RBK_WIRE_ARENA_ADD] = {sizeof(struct rbk_wire_id_reply), 0},
	[RBK_WIRE_ARENA_REMOVE] = {sizeof(struct rbk_wire_reply), 0},
	[RBK_WIRE_PLAN_ADD] = {sizeof(struct rbk_wire_plan), 0},
	[RBK_WIRE_PLAN_REMOVE] = {sizeof(struct rbk_wire_reply), 0},
	[RBK_WIRE_DEVICES] = {sizeof(struct rbk_wire_devices), 0},
	[RBK_WIRE_STATS] = {sizeof(struct rbk_wire_stats), 0},
	[RBK_WIRE_ARENA_NEW] = {sizeof(struct rbk_wire_id_reply), 1},
	[RBK_WIRE_PLAN_MEMORY] = {sizeof(struct rbk_wire_plan_memory), 0},
	[RBK_WIRE_TENANT] = {sizeof(struct rbk_wire_tenant), 0},
	[RBK_WIRE_STATS_PAGE] = {sizeof(struct rbk_wire_stats_page), 1},
	[RBK_WIRE_STATS_RESET] = {sizeof(struct rbk_wire_reply), 0},
	[RBK_WIRE_CONTROL] = {sizeof(struct rbk_wire_setting), 0},
	[RBK_WIRE_ADMIN_SET] = {sizeof(struct rbk_wire_reply), 0},
	[RBK_WIRE_ADMIN_EVICT] = {sizeof(struct rbk_wire_admin_result), 0},
	[RBK_WIRE_ADMIN_DRAIN] = {sizeof(struct rbk_wire_admin_result), 0},
	[RBK_WIRE_ADMIN_LIMIT] = {sizeof(struct rbk_wire_limit), 0},
	/* plus the operators that it announces */
	[RBK_WIRE_CATALOGUE] = {sizeof(struct rbk_wire_catalogue), 0},
	[RBK_WIRE_LEASE_OPEN] = {sizeof(struct rbk_wire_lease), 1},
	[RBK_WIRE_LEASE_CREDIT] = {sizeof(struct rbk_wire_lease_given), 0},
	[RBK_WIRE_LEASE_OBJECT] = {sizeof(struct rbk_wire_lease_given), 0},
	[RBK_WIRE_LEASE_RESIZE] = {sizeof(struct rbk_wire_lease_given), 0},
	[RBK_WIRE_LEASE_CGROUP] = {sizeof(struct rbk_wire_lease_region), 0},
	[RBK_WIRE_LEASE_TIMESLICE] = {sizeof(struct rbk_wire_reply), 0},
	[RBK_WIRE_LEASE_SHARE] = {sizeof(struct rbk_wire_reply), 0},
	[RBK_WIRE_WANT_ID] = {sizeof(struct rbk_wire_reply), 0},
	[RBK_WIRE_RING_RESTORE] = {sizeof(struct rbk_wire_ring), 3},
	[RBK_WIRE_ADMIN_RESTART] = {sizeof(struct rbk_wire_restart), 0},
	[RBK_WIRE_LEASE_PARTS] = {sizeof(struct rbk_wire_reply), 0},
	[RBK_WIRE_LEASE_LOST] = {sizeof(struct rbk_wire_id_reply), 0},
	[RBK_WIRE_LEASE_SLEEP] = {sizeof(struct rbk_wire_reply), 0},
	[RBK_WIRE_LEASE_MOVED] = {sizeof(struct rbk_wire_reply), 0},
};

/* Upper limit of a page's size; areas are multiples of pages. */
#define REPLY_PAGE_BYTES_MAX (2u << 20)
/* Lower limit of a page's size. */
#define REPLY_PAGE_BYTES_MIN 4096u

static bool text_ends(const char *text, size_t bytes)
{
	return memchr(text, '\0', bytes) != NULL;
}

static int check_welcome(const struct rbk_wire_welcome *welcome, struct rbk_error *error)
{
	if (welcome->abi_major != RBK_ABI_MAJOR)
		return client_error(error, -EPROTO,
				    "the broker accepted version %d.%d, but answered with %u.%u",
				    RBK_ABI_MAJOR, CLIENT_ABI_MINOR, welcome->abi_major,
				    welcome->abi_minor);
	if (welcome->arena_segment_bytes % REPLY_PAGE_BYTES_MIN)
		return client_error(error, -EPROTO,
				    "the broker's segments have %" PRIu64 " bytes, expected a "
				    "multiple of the page size",
				    welcome->arena_segment_bytes);
	if (!text_ends(welcome->broker, sizeof(welcome->broker)))
		return client_error(error, -EPROTO, "the broker's name is not NUL-terminated");
	return 0;
}

static int check_ring(const struct rbk_wire_ring *ring, struct rbk_error *error)
{
	uint32_t n = ring->n_entries;

	if (n == 0 || (n & (n - 1)) != 0 || n > RBK_MAX_RING_ENTRIES)
		return client_error(error, -EPROTO,
				    "the broker made a ring of %u entries, expected a power of two "
				    "up to %u",
				    n, RBK_MAX_RING_ENTRIES);
	if (ring->sq_bytes < RBK_SQ_AREA_BYTES(n) ||
	    ring->sq_bytes - RBK_SQ_AREA_BYTES(n) >= REPLY_PAGE_BYTES_MAX ||
	    ring->cq_bytes < RBK_CQ_AREA_BYTES(n) ||
	    /* Features, which the caller checks, add to the completions. */
	    ring->cq_bytes >= RBK_CQ_AFTER_BYTES(n) + REPLY_PAGE_BYTES_MAX)
		return client_error(error, -EPROTO,
				    "the broker made areas of %" PRIu64 " and %" PRIu64
				    " bytes for a ring of %u entries",
				    ring->sq_bytes, ring->cq_bytes, n);
	return 0;
}

static int check_n_devices(uint32_t n_devices, struct rbk_error *error)
{
	if (n_devices > RBK_MAX_DEVICES)
		return client_error(error, -EPROTO, "the broker listed %u devices", n_devices);
	return 0;
}

static int check_devices(const struct rbk_wire_devices *devices, struct rbk_error *error)
{
	if (check_n_devices(devices->n_devices, error))
		return -EPROTO;
	for (uint32_t i = 0; i < devices->n_devices; i++) {
		const struct rbk_wire_device *device = &devices->devices[i];

		if (!text_ends(device->name, sizeof(device->name)) ||
		    !text_ends(device->driver, sizeof(device->driver)) ||
		    !text_ends(device->paths, sizeof(device->paths)))
			return client_error(error, -EPROTO,
					    "a name of device %u is not NUL-terminated", i);
	}
	return 0;
}

static int check_tenant(const struct rbk_wire_tenant *tenant, struct rbk_error *error)
{
	if (!text_ends(tenant->name, sizeof(tenant->name)))
		return client_error(error, -EPROTO, "the tenant's name is not NUL-terminated");
	return check_n_devices(tenant->n_devices, error);
}

static int check_limit(const struct rbk_wire_limit *limit, struct rbk_error *error)
{
	if (!text_ends(limit->key, sizeof(limit->key)) ||
	    !text_ends(limit->value, sizeof(limit->value)) ||
	    !text_ends(limit->policy, sizeof(limit->policy)))
		return client_error(error, -EPROTO, "a limit's key or value does not end");
	return 0;
}

/*
 * Return the length of the answer, which depends on its contents; 0 if there are too many
 * operators. Also called before the other checks.
 */
static size_t catalogue_bytes(const struct client_catalogue *catalogue)
{
	if (catalogue->n_operators > RBK_WIRE_MAX_OPERATORS)
		return 0;
	return sizeof(*catalogue) + catalogue->n_operators * sizeof(struct rbk_wire_operator);
}

static int check_catalogue(const struct client_catalogue *catalogue, struct rbk_error *error)
{
	const struct rbk_wire_operator *operators =
		(const struct rbk_wire_operator *)(catalogue + 1);

	for (uint32_t i = 0; i < catalogue->n_operators; i++)
		if (!text_ends(operators[i].name, sizeof(operators[i].name)))
			return client_error(error, -EPROTO,
					    "the name of operator %u is not NUL-terminated", i);
	return check_n_devices(catalogue->n_devices, error);
}

unsigned int client_reply_fds(uint32_t type)
{
	return type < sizeof(reply_shapes) / sizeof(reply_shapes[0]) ? reply_shapes[type].n_fds : 0;
}

static int check_lease(const struct rbk_wire_lease *lease, struct rbk_error *error)
{
	/* A restored lease may be granted more than its maximum. */
	if (lease->number == 0 || lease->device == RBK_DEVICE_CPU ||
	    lease->device >= RBK_MAX_DEVICES)
		return client_error(error, -EPROTO,
				    "the broker made a lease %" PRIu32 " of device %" PRIu32,
				    lease->number, lease->device);
	if (lease->page_bytes < sizeof(struct rbk_lease_page) ||
	    lease->page_bytes > REPLY_PAGE_BYTES_MAX)
		return client_error(error, -EPROTO,
				    "the broker made a page of %" PRIu64 " bytes for a lease",
				    lease->page_bytes);
	return 0;
}

int client_reply_check(const union client_reply *reply, size_t bytes, unsigned int n_fds,
		       uint32_t type, struct rbk_error *error)
{
	const struct reply_shape *shape;
	size_t wanted;

	if (bytes < sizeof(reply->head))
		return client_error(error, -EPROTO, "the broker's answer has only %zu bytes",
				    bytes);
	if (type == 0 || type >= sizeof(reply_shapes) / sizeof(reply_shapes[0]) ||
	    reply->head.type != type)
		return client_error(error, -EPROTO,
				    "the broker answered a request of type %u with type %u", type,
				    reply->head.type);
	shape = &reply_shapes[type];
	if (!text_ends(reply->head.text, sizeof(reply->head.text)))
		return client_error(error, -EPROTO,
				    "the text in the broker's answer is not NUL-terminated");
	if (reply->head.res > 0 || reply->head.res < -4095)
		return client_error(error, -EPROTO,
				    "the broker answered with the invalid result %d",
				    reply->head.res);

	wanted = shape->bytes;
	if (type == RBK_WIRE_CATALOGUE && bytes >= wanted)
		wanted = catalogue_bytes(&reply->catalogue);
	/* A negative answer may be shorter than a positive one, and carries no descriptors. */
	if (bytes != wanted && (reply->head.res == 0 || bytes != sizeof(reply->head)))
		return client_error(error, -EPROTO,
				    "the broker's answer of type %u has %zu bytes instead of %zu",
				    type, bytes, wanted);
	if (n_fds != (reply->head.res == 0 ? shape->n_fds : 0))
		return client_error(error, -EPROTO,
				    "the broker's answer of type %u came with %u descriptors", type,
				    n_fds);
	if (reply->head.res < 0)
		return 0;

	switch (type) {
	case RBK_WIRE_HELLO:
		return check_welcome(&reply->welcome, error);
	case RBK_WIRE_RING_ADD:
	case RBK_WIRE_RING_RESTORE:
		return check_ring(&reply->ring, error);
	case RBK_WIRE_ARENA_ADD:
	case RBK_WIRE_ARENA_NEW:
		if (reply->id.id >= RBK_REF_ARENA(RBK_REF_INVALID))
			return client_error(error, -EPROTO,
					    "the broker answered with the invalid arena number %u",
					    reply->id.id);
		return 0;
	case RBK_WIRE_DEVICES:
		return check_devices(&reply->devices, error);
	case RBK_WIRE_PLAN_MEMORY:
		return check_n_devices(reply->plan_memory.n_devices, error);
	case RBK_WIRE_TENANT:
		return check_tenant(&reply->tenant, error);
	case RBK_WIRE_ADMIN_LIMIT:
		return check_limit(&reply->limit, error);
	case RBK_WIRE_CATALOGUE:
		return check_catalogue(&reply->catalogue, error);
	case RBK_WIRE_LEASE_OPEN:
		return check_lease(&reply->lease, error);
	case RBK_WIRE_LEASE_CGROUP:
		if (!text_ends(reply->lease_region.region, sizeof(reply->lease_region.region)))
			return client_error(error, -EPROTO,
					    "the name of a memory region is not NUL-terminated");
		return 0;
	default:
		return 0;
	}
}
