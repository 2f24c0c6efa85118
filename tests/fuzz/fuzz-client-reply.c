/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing client_reply_check()
 *
 * The input is a byte with the type of the request, a byte with the number of descriptors, and the
 * broker's reply. A rejected reply must yield an error text. An accepted reply must be safe to use
 * as the library uses it: strings are terminated, areas hold their entries, and numbers are in
 * range.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "libclient/private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_ring(const struct rbk_wire_ring *ring)
{
	assert(ring->n_entries >= 1 && ring->n_entries <= RBK_MAX_RING_ENTRIES);
	assert((ring->n_entries & (ring->n_entries - 1)) == 0);
	assert(ring->sq_bytes >= RBK_SQ_AREA_BYTES(ring->n_entries));
	assert(ring->cq_bytes >= RBK_CQ_AREA_BYTES(ring->n_entries));
	/*
	 * The limit is the largest ring plus a page, so that mapping a ring cannot exhaust memory.
	 */
	assert(ring->sq_bytes < 8u << 20 && ring->cq_bytes < 8u << 20);
}

static void check_devices(const struct rbk_wire_devices *devices)
{
	assert(devices->n_devices <= RBK_MAX_DEVICES);
	for (uint32_t i = 0; i < devices->n_devices; i++) {
		const struct rbk_wire_device *device = &devices->devices[i];

		assert(strnlen(device->name, sizeof(device->name)) < sizeof(device->name));
		assert(strnlen(device->driver, sizeof(device->driver)) < sizeof(device->driver));
		assert(strnlen(device->paths, sizeof(device->paths)) < sizeof(device->paths));
	}
}

static void check_catalogue(const struct client_catalogue *catalogue, size_t bytes)
{
	const struct rbk_wire_operator *operators =
		(const struct rbk_wire_operator *)(catalogue + 1);

	assert(catalogue->n_devices <= RBK_MAX_DEVICES);
	assert(bytes == sizeof(*catalogue) + catalogue->n_operators * sizeof(*operators));
	for (uint32_t i = 0; i < catalogue->n_operators; i++)
		assert(strnlen(operators[i].name, sizeof(operators[i].name)) <
		       sizeof(operators[i].name));
}

static size_t yes_bytes(uint32_t type)
{
	switch (type) {
	case RBK_WIRE_HELLO:
		return sizeof(struct rbk_wire_welcome);
	case RBK_WIRE_RING_ADD:
	case RBK_WIRE_RING_RESTORE:
		return sizeof(struct rbk_wire_ring);
	case RBK_WIRE_ARENA_ADD:
	case RBK_WIRE_ARENA_NEW:
		return sizeof(struct rbk_wire_id_reply);
	case RBK_WIRE_PLAN_ADD:
		return sizeof(struct rbk_wire_plan);
	case RBK_WIRE_DEVICES:
		return sizeof(struct rbk_wire_devices);
	case RBK_WIRE_STATS:
		return sizeof(struct rbk_wire_stats);
	case RBK_WIRE_PLAN_MEMORY:
		return sizeof(struct rbk_wire_plan_memory);
	case RBK_WIRE_TENANT:
		return sizeof(struct rbk_wire_tenant);
	case RBK_WIRE_STATS_PAGE:
		return sizeof(struct rbk_wire_stats_page);
	case RBK_WIRE_CONTROL:
		return sizeof(struct rbk_wire_setting);
	case RBK_WIRE_ADMIN_LIMIT:
		return sizeof(struct rbk_wire_limit);
	case RBK_WIRE_ADMIN_EVICT:
	case RBK_WIRE_ADMIN_DRAIN:
		return sizeof(struct rbk_wire_admin_result);
	case RBK_WIRE_ADMIN_RESTART:
		return sizeof(struct rbk_wire_restart);
	case RBK_WIRE_LEASE_OPEN:
		return sizeof(struct rbk_wire_lease);
	case RBK_WIRE_LEASE_CREDIT:
	case RBK_WIRE_LEASE_OBJECT:
	case RBK_WIRE_LEASE_RESIZE:
		return sizeof(struct rbk_wire_lease_given);
	case RBK_WIRE_LEASE_CGROUP:
		return sizeof(struct rbk_wire_lease_region);
	default:
		return sizeof(struct rbk_wire_reply);
	}
}

static unsigned int yes_fds(uint32_t type)
{
	switch (type) {
	case RBK_WIRE_RING_ADD:
	case RBK_WIRE_RING_RESTORE:
		return 3;
	case RBK_WIRE_ARENA_NEW:
	case RBK_WIRE_STATS_PAGE:
	case RBK_WIRE_LEASE_OPEN:
		return 1;
	default:
		return 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct rbk_error error = {""};
	union client_reply reply;
	unsigned int n_fds;
	uint32_t type;
	int r;

	if (bytes < 2 || bytes - 2 > sizeof(reply))
		return 0;
	type = data[0];
	n_fds = data[1];
	bytes -= 2;
	/* Poison the bytes that were not received, so that reading them changes the outcome. */
	memset(&reply, 0xa5, sizeof(reply));
	memcpy(&reply, data + 2, bytes);

	r = client_reply_check(&reply, bytes, n_fds, type, &error);
	assert(client_reply_check(&reply, bytes, n_fds, type, NULL) == r);
	if (r) {
		assert(r == -EPROTO);
		assert(error.text[0]);
		return 0;
	}
	assert(type >= RBK_WIRE_HELLO && type <= RBK_WIRE_LEASE_LOST && reply.head.type == type);
	assert(strnlen(reply.head.text, sizeof(reply.head.text)) < sizeof(reply.head.text));
	assert(reply.head.res <= 0 && reply.head.res >= -4095);
	if (reply.head.res) {
		assert(n_fds == 0);
		assert(bytes == sizeof(reply.head) || bytes == yes_bytes(type) ||
		       type == RBK_WIRE_CATALOGUE);
		return 0;
	}
	assert(n_fds == yes_fds(type));
	/* Only the reply to a catalogue request has a variable length: operators follow it. */
	assert(bytes == yes_bytes(type) || type == RBK_WIRE_CATALOGUE);
	if (type == RBK_WIRE_RING_ADD || type == RBK_WIRE_RING_RESTORE)
		check_ring(&reply.ring);
	if (type == RBK_WIRE_DEVICES)
		check_devices(&reply.devices);
	if (type == RBK_WIRE_PLAN_MEMORY)
		assert(reply.plan_memory.n_devices <= RBK_MAX_DEVICES);
	if (type == RBK_WIRE_TENANT) {
		assert(reply.tenant.n_devices <= RBK_MAX_DEVICES);
		assert(strnlen(reply.tenant.name, sizeof(reply.tenant.name)) <
		       sizeof(reply.tenant.name));
	}
	if (type == RBK_WIRE_ADMIN_LIMIT)
		assert(strnlen(reply.limit.value, sizeof(reply.limit.value)) <
		       sizeof(reply.limit.value));
	if (type == RBK_WIRE_CATALOGUE)
		check_catalogue(&reply.catalogue, bytes);
	if (type == RBK_WIRE_ARENA_ADD || type == RBK_WIRE_ARENA_NEW)
		assert(RBK_REF(reply.id.id, 0) != RBK_REF_INVALID && reply.id.id <= UINT16_MAX);
	if (type == RBK_WIRE_LEASE_OPEN) {
		assert(reply.lease.number != 0);
		assert(reply.lease.device > RBK_DEVICE_CPU && reply.lease.device < RBK_MAX_DEVICES);
		assert(reply.lease.page_bytes >= sizeof(struct rbk_lease_page));
	}
	if (type == RBK_WIRE_HELLO)
		assert(reply.welcome.abi_major == RBK_ABI_MAJOR &&
		       reply.welcome.arena_segment_bytes % 4096 == 0);
	return 0;
}
