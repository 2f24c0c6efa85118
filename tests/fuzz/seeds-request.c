/* SPDX-License-Identifier: MIT */
/* Writer of the corpora "entry" and "request" below FOLDER: seeds-request FOLDER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/reset-verdict.h"
#include "shm/wire.h"
#include "support/describe.h"

static uint8_t input[65536];
static size_t n_input;

static void add(uint8_t fds, const void *bytes, size_t n_bytes)
{
	input[n_input++] = fds;
	input[n_input++] = (uint8_t)n_bytes;
	input[n_input++] = (uint8_t)(n_bytes >> 8);
	memcpy(input + n_input, bytes, n_bytes);
	n_input += n_bytes;
}

static void save(const char *folder, const char *corpus, const char *name)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s/%s.seed", folder, corpus, name);
	file = fopen(path, "wb");
	if (!file || fwrite(input, 1, n_input, file) != n_input || fclose(file))
		abort();
	n_input = 0;
}

static void add_hello_with(uint64_t features)
{
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.features = features,
		.name = "seed",
	};

	add(0, &hello, sizeof(hello));
}

static void add_hello(void)
{
	add_hello_with(0);
}

static void add_arena(uint8_t fds)
{
	const struct rbk_wire_arena_add arena = {.request = {.type = RBK_WIRE_ARENA_ADD},
						 .bytes = 4096};

	add(fds, &arena, sizeof(arena));
}

static void add_id(uint32_t type, uint32_t id)
{
	const struct rbk_wire_id remove = {.request = {.type = type}, .id = id};

	add(0, &remove, sizeof(remove));
}

static void add_stats_of(uint32_t type, uint32_t whose, uint32_t tenant)
{
	const struct rbk_wire_stats_of of = {
		.request = {.type = type}, .whose = whose, .tenant = tenant};

	add(0, &of, sizeof(of));
}

static void add_control(uint32_t setting, uint32_t flags, uint64_t value)
{
	const struct rbk_wire_control control = {.request = {.type = RBK_WIRE_CONTROL},
						 .setting = setting,
						 .flags = flags,
						 .value = value};

	add(0, &control, sizeof(control));
}

static void add_set(uint32_t tenant, const char *key, const char *value)
{
	struct rbk_wire_admin_set set = {.request = {.type = RBK_WIRE_ADMIN_SET}, .tenant = tenant};

	snprintf(set.key, sizeof(set.key), "%s", key);
	snprintf(set.value, sizeof(set.value), "%s", value);
	add(0, &set, sizeof(set));
}

static void add_drain(uint32_t what, uint32_t number, uint32_t action)
{
	const struct rbk_wire_admin_drain drain = {.request = {.type = RBK_WIRE_ADMIN_DRAIN},
						   .what = what,
						   .number = number,
						   .action = action};

	add(0, &drain, sizeof(drain));
}

static void add_plan(void)
{
	struct describe *d = describe_new("seed", 4);
	struct rbk_wire_plan_add *plan;
	size_t desc_bytes;
	void *desc;

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_constant(d, "w", RBK_REF(1, 0), DESCRIBE_DIMS(4, 2));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 2));
	describe_node(d, "MatMul", "", "x,w", "y");
	desc = describe_finish(d, &desc_bytes);
	plan = calloc(1, sizeof(*plan) + desc_bytes);
	if (!plan)
		abort();
	plan->request.type = RBK_WIRE_PLAN_ADD;
	plan->desc_bytes = (uint32_t)desc_bytes;
	memcpy(plan + 1, desc, desc_bytes);
	add(0, plan, sizeof(*plan) + desc_bytes);
	free(plan);
	free(desc);
}

static void add_lease(uint8_t fds, uint32_t flags, uint32_t number, uint64_t wish)
{
	const struct rbk_wire_lease_open open = {
		.request = {.type = RBK_WIRE_LEASE_OPEN},
		.flags = flags,
		.number = number,
		.device = RBK_DEVICE_GPU,
		.min_bytes = wish ? 1 : 0,
		.wish_bytes = wish,
		.max_bytes = 2 * wish,
		.held_bytes = flags & RBK_WIRE_LEASE_RESTORE ? wish : 0,
		.program = "seed",
	};

	add(fds, &open, sizeof(open));
}

static void add_credit(uint8_t fds, uint32_t lease, uint64_t want, uint64_t back, uint32_t wait_ms)
{
	const struct rbk_wire_lease_credit credit = {
		.request = {.type = RBK_WIRE_LEASE_CREDIT},
		.lease = lease,
		.wait_ms = wait_ms,
		.want_bytes = want,
		.least_bytes = want / 2,
		.return_bytes = back,
		.used_bytes = want,
		.n_objects = 1,
	};

	add(fds, &credit, sizeof(credit));
}

static void add_object(uint8_t fds, uint32_t lease, uint32_t action, uint64_t ino, uint64_t bytes)
{
	const struct rbk_wire_lease_object object = {
		.request = {.type = RBK_WIRE_LEASE_OBJECT},
		.lease = lease,
		.action = action,
		.dev = 1,
		.ino = ino,
		.bytes = bytes,
		.from_credit_bytes = bytes / 2,
	};

	add(fds, &object, sizeof(object));
}

static void add_resize(uint8_t fds, uint32_t lease, uint64_t wish)
{
	const struct rbk_wire_lease_resize resize = {
		.request = {.type = RBK_WIRE_LEASE_RESIZE}, .lease = lease, .wish_bytes = wish};

	add(fds, &resize, sizeof(resize));
}

static void add_share(uint8_t fds, uint32_t lease, uint32_t priority, uint32_t share)
{
	const struct rbk_wire_lease_share sharing = {.request = {.type = RBK_WIRE_LEASE_SHARE},
						     .lease = lease,
						     .priority = priority,
						     .share = share};

	add(fds, &sharing, sizeof(sharing));
}

static void add_sleep(uint8_t fds, uint32_t state)
{
	const struct rbk_wire_lease_sleep sleep = {
		.request = {.type = RBK_WIRE_LEASE_SLEEP}, .lease = 1, .sleep = state};

	add(fds, &sleep, sizeof(sleep));
}

static void add_moved(uint64_t movable_bytes, uint64_t moved_bytes, uint32_t reserved)
{
	const struct rbk_wire_lease_moved moved = {.request = {.type = RBK_WIRE_LEASE_MOVED},
						   .lease = 1,
						   .reserved = reserved,
						   .movable_bytes = movable_bytes,
						   .moved_bytes = moved_bytes};

	add(0, &moved, sizeof(moved));
}

static void add_cgroup(uint8_t fds, uint32_t lease, uint32_t reserved)
{
	const struct rbk_wire_lease_cgroup cgroup = {
		.request = {.type = RBK_WIRE_LEASE_CGROUP}, .lease = lease, .reserved = reserved};

	add(fds, &cgroup, sizeof(cgroup));
}

static void add_timeslice(uint8_t fds, uint32_t action, uint32_t priority, uint32_t word)
{
	const struct rbk_wire_lease_timeslice timeslice = {
		.request = {.type = RBK_WIRE_LEASE_TIMESLICE},
		.lease = 1,
		.action = action,
		.priority = priority,
		.word = word,
	};

	add(fds, &timeslice, sizeof(timeslice));
}

static void add_parts(uint8_t fds, uint64_t count, uint32_t reserved)
{
	const struct rbk_wire_lease_parts parts = {
		.request = {.type = RBK_WIRE_LEASE_PARTS},
		.lease = 1,
		.reserved = reserved,
		.n_submissions = count,
		.n_parts = count,
		.longest_ns = count,
	};

	add(fds, &parts, sizeof(parts));
}

static void add_lost(uint8_t fds, uint32_t verdict)
{
	const struct rbk_wire_lease_lost lost = {
		.request = {.type = RBK_WIRE_LEASE_LOST},
		.lease = 1,
		.verdict = verdict,
	};

	add(fds, &lost, sizeof(lost));
}

/*
 * Write sequences of lease requests. SECOND selects the second session. The device has 65,536
 * bytes.
 */
static void save_leases(const char *folder)
{
	enum { SECOND = 130 }; /* top bit: the second session; the rest: as many descriptors as 0 */
	struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.features = RBK_FEAT_LEASES,
		.name = "seed",
	};

	add(0, &hello, sizeof(hello));
	add(SECOND, &hello, sizeof(hello));
	add_lease(0, 0, 0, 16384);
	add_lease(SECOND, RBK_WIRE_LEASE_JOIN, 1, 0);
	add_credit(0, 1, 8192, 0, 0);
	add_credit(SECOND, 1, 20480, 0, 0);
	add_object(0, 1, RBK_WIRE_OBJECT_ADD, 7, 4096);
	add_object(SECOND, 1, RBK_WIRE_OBJECT_ADD, 7, 4096);
	add_object(0, 1, RBK_WIRE_OBJECT_DROP, 7, 0);
	add_credit(SECOND, 1, 0, 4096, 0);
	add_resize(0, 1, 4096);
	add_resize(SECOND, 1, 8192);
	add_credit(0, 1, 0, UINT64_MAX, 0);
	save(folder, "request", "leases-joined");

	add(0, &hello, sizeof(hello));
	add(SECOND, &hello, sizeof(hello));
	add_lease(0, 0, 0, 30000);
	add_lease(SECOND, 0, 0, 30000);
	add_credit(0, 1, 30000, 0, 0);
	add_credit(SECOND, 2, 30000, 0, 0);
	add_credit(0, 1, 30000, 0, 10000);
	add_credit(SECOND, 2, 30000, 0, 10000);
	add_object(SECOND, 2, RBK_WIRE_OBJECT_ADD, 9, 8192);
	add_credit(SECOND, 2, 0, 30000, 0);
	save(folder, "request", "leases-deadlock");

	add(0, &hello, sizeof(hello));
	add(SECOND, &hello, sizeof(hello));
	add_lease(0, RBK_WIRE_LEASE_RESTORE, 4711, 20000);
	add_lease(SECOND, RBK_WIRE_LEASE_RESTORE, 4711, 20000);
	add_credit(0, 4711, 1000, 0, 0);
	add_lease(SECOND, 0, 0, 1);
	add_credit(0, 4711, UINT64_MAX, 0, UINT32_MAX);
	add_object(0, 4711, RBK_WIRE_OBJECT_ADD, UINT64_MAX, UINT64_MAX);
	save(folder, "request", "leases-restored");

	add(0, &hello, sizeof(hello));
	add_lease(0, RBK_WIRE_LEASE_JOIN | RBK_WIRE_LEASE_RESTORE, 1, 4096);
	save(folder, "request", "lease-flags");
	add(0, &hello, sizeof(hello));
	add_lease(0, 0, 0, 4096);
	add_object(0, 1, 3, 7, 4096);
	save(folder, "request", "lease-object-action");

	add(0, &hello, sizeof(hello));
	add_lease(0, 0, 0, 4096);
	add_cgroup(1, 2, 0);
	add_cgroup(1, 1, 0);
	add_cgroup(1, 1, 1);
	save(folder, "request", "lease-cgroup");

	hello.features |= RBK_FEAT_SHARES | RBK_FEAT_UNSHARE;
	add(0, &hello, sizeof(hello));
	add(SECOND, &hello, sizeof(hello));
	add_lease(0, 0, 0, 16384);
	add_lease(SECOND, RBK_WIRE_LEASE_JOIN, 1, 0);
	add_timeslice(0, RBK_WIRE_TIMESLICE_JOIN, RBK_PRIORITY_LOW, 0);
	add_timeslice(SECOND, RBK_WIRE_TIMESLICE_WANT, 0, 0);
	add_timeslice(SECOND, RBK_WIRE_TIMESLICE_JOIN, RBK_PRIORITY_URGENT, 0);
	add_timeslice(0, RBK_WIRE_TIMESLICE_WANT, 0, 0);
	add_timeslice(0, RBK_WIRE_TIMESLICE_DONE, 0, 4);
	add_timeslice(SECOND, RBK_WIRE_TIMESLICE_DONE, 0, 7);
	add_timeslice(SECOND, RBK_WIRE_TIMESLICE_GIVE_UP, 0, 8);
	add_share(0, 1, 1 + RBK_PRIORITY_URGENT, 25);
	add_share(SECOND, 1, 0, 10001);
	add_share(0, 1, 1 + RBK_PRIORITY_NONE, 0);
	add_timeslice(SECOND, RBK_WIRE_TIMESLICE_LEAVE, 0, 0);
	add_timeslice(SECOND, RBK_WIRE_TIMESLICE_JOIN, RBK_PRIORITY_HIGH, 0);
	add_timeslice(0, RBK_WIRE_TIMESLICE_WANT, 1, 0);
	save(folder, "request", "leases-timeslice");

	add_hello_with(RBK_FEAT_LEASES | RBK_FEAT_TIMESLICE | RBK_FEAT_ENDING);
	add_lease(0, 0, 0, 4096);
	add_timeslice(0, RBK_WIRE_TIMESLICE_JOIN, RBK_PRIORITY_LOW, 0);
	add_timeslice(0, RBK_WIRE_TIMESLICE_ENDING, 500, 4);
	add_timeslice(0, RBK_WIRE_TIMESLICE_ENDING, UINT32_MAX, 0);
	save(folder, "request", "leases-ending");

	add_hello_with(RBK_FEAT_LEASES | RBK_FEAT_PARTS);
	add_lease(0, 0, 0, 4096);
	add_parts(0, 7, 0);
	add_parts(0, UINT64_MAX, 0);
	add_parts(0, 3, 1);
	save(folder, "request", "leases-parts");

	add_hello_with(RBK_FEAT_LEASES | RBK_FEAT_LOST);
	add_lease(0, 0, 0, 4096);
	add_lost(0, RESET_VERDICT_INNOCENT);
	add_lost(0, RESET_VERDICT_GUILTY);
	add_lost(0, RESET_VERDICT_COUNT);
	save(folder, "request", "leases-lost");
	add_hello_with(RBK_FEAT_LEASES | RBK_FEAT_SLEEP);
	add_lease(0, 0, 0, 4096);
	add_sleep(0, RBK_LEASE_HELD);
	add_moved(4096, 0, 0);
	add_moved(UINT64_MAX, UINT64_MAX, 0);
	add_sleep(SECOND, RBK_LEASE_SLEEPS);
	add_sleep(0, RBK_LEASE_ASKED);
	add_moved(0, 0, 1);
	save(folder, "request", "leases-sleep");

	add_hello_with(UINT64_MAX);
	add_resize(0, 1, 4096);
	add_lease(0, 0, 0, 4096);
	save(folder, "admin-request", "leases");
}

int main(int argc, char **argv)
{
	const struct rbk_wire_ring_add ring = {.request = {.type = RBK_WIRE_RING_ADD},
					       .n_entries = 8};
	const struct rbk_wire_ring_add restored = {.request = {.type = RBK_WIRE_RING_RESTORE},
						   .n_entries = 8};
	const struct rbk_wire_plan_add by_memfd = {.request = {.type = RBK_WIRE_PLAN_ADD},
						   .desc_bytes = 4096,
						   .flags = RBK_WIRE_PLAN_FD};
	const struct rbk_wire_arena_new make = {.request = {.type = RBK_WIRE_ARENA_NEW},
						.bytes = 8192};
	const struct rbk_wire_request stats = {.type = RBK_WIRE_STATS};
	const struct rbk_wire_request devices = {.type = RBK_WIRE_DEVICES};
	const struct rbk_wire_request tenant = {.type = RBK_WIRE_TENANT};
	const struct rbk_wire_request catalogue = {.type = RBK_WIRE_CATALOGUE};
	const struct rbk_wire_admin_limit limit = {
		.request = {.type = RBK_WIRE_ADMIN_LIMIT}, .tenant = 1, .index = 2};
	const struct rbk_wire_admin_evict evict = {.request = {.type = RBK_WIRE_ADMIN_EVICT},
						   .device = RBK_DEVICE_NONE};
	const struct rbk_wire_admin_evict evict_plan = {.request = {.type = RBK_WIRE_ADMIN_EVICT},
							.tenant = 1,
							.session = 1,
							.plan_id = 1 << 16,
							.device = RBK_DEVICE_NONE};
	struct rbk_wire_admin_restart restart = {.request = {.type = RBK_WIRE_ADMIN_RESTART}};
	const struct rbk_sqe entries[] = {
		{.opcode = RBK_OP_NOP},
		{.opcode = RBK_OP_BARRIER},
		{.opcode = RBK_OP_CANCEL, .target = 1},
		{.opcode = RBK_OP_PREFETCH, .plan_id = 1 << 16},
		{.opcode = RBK_OP_RUN, .plan_id = 1 << 16, .count = 1, .refs = {RBK_REF(0, 64)}},
		{.opcode = RBK_OP_RUN,
		 .flags = RBK_SQE_LINK,
		 .plan_id = 2 << 16 | 1,
		 .count = 8,
		 .refs = {RBK_REF(0, 0), RBK_REF(1, 64), RBK_REF(2, 128)}},
		{.opcode = RBK_OP_RUN,
		 .flags = RBK_SQE_ARG_TABLE,
		 .plan_id = 3 << 16 | 2,
		 .count = 2,
		 .table = RBK_REF(0, 0),
		 .n_refs = RBK_MAX_REFS},
	};

	if (argc != 2)
		return 2;
	memcpy(input, entries, n_input = sizeof(entries));
	save(argv[1], "entry", "each-opcode");
	add_hello();
	add(0, &stats, sizeof(stats));
	add(0, &devices, sizeof(devices));
	add(0, &make, sizeof(make));
	add(0, &tenant, sizeof(tenant));
	save(argv[1], "request", "questions");
	add_hello();
	add(0, &ring, sizeof(ring));
	add(0, &ring, sizeof(ring));
	add_id(RBK_WIRE_RING_REMOVE, 0);
	save(argv[1], "request", "rings");
	add_hello();
	add_arena(9);
	add_arena(1);
	add_plan();
	add_id(RBK_WIRE_PLAN_MEMORY, 1 << 16);
	add_id(RBK_WIRE_ARENA_REMOVE, 1);
	add_id(RBK_WIRE_PLAN_REMOVE, 1 << 16);
	add_id(RBK_WIRE_ARENA_REMOVE, 1);
	add_arena(17);
	save(argv[1], "request", "arenas-and-plans");
	add_hello_with(RBK_FEAT_REATTACH);
	add_id(RBK_WIRE_WANT_ID, 1);
	add_arena(9);
	add_id(RBK_WIRE_WANT_ID, 3 << 16 | 1);
	add_plan();
	add(26, &restored, sizeof(restored));
	add_id(RBK_WIRE_ARENA_REMOVE, 1);
	add(26, &restored, sizeof(restored));
	save(argv[1], "request", "restored");
	add_hello();
	add(1, &by_memfd, sizeof(by_memfd));
	add(9, &by_memfd, sizeof(by_memfd));
	save(argv[1], "request", "plans-by-memfd");
	add_hello_with(RBK_FEAT_STATS);
	add_arena(1);
	add_arena(9);
	add_plan();
	for (uint32_t whose = RBK_WIRE_STATS_OWN; whose <= RBK_WIRE_STATS_TENANT; whose++) {
		add_stats_of(RBK_WIRE_STATS_PAGE, whose, whose == RBK_WIRE_STATS_TENANT);
		add_stats_of(RBK_WIRE_STATS_RESET, whose, whose == RBK_WIRE_STATS_TENANT);
	}
	add_control(RBK_WIRE_FORCE_CPU, 0, 0);
	add_control(RBK_WIRE_FORCE_CPU, RBK_WIRE_CONTROL_SET, 1);
	add_control(RBK_WIRE_FORCE_CPU, RBK_WIRE_CONTROL_SET, 2);
	add_control(77, 0, 0);
	save(argv[1], "request", "statistics");
	add_hello();
	add_stats_of(RBK_WIRE_STATS_PAGE, RBK_WIRE_STATS_TENANT, 99);
	add_stats_of(RBK_WIRE_STATS_RESET, 3, 0);
	save(argv[1], "request", "statistics-of-nobody");
	add_hello();
	add_control(RBK_WIRE_FORCE_CPU, 2, 0);
	save(argv[1], "request", "control-flags");
	add_hello_with(UINT64_MAX);
	add_stats_of(RBK_WIRE_STATS_PAGE, RBK_WIRE_STATS_ALL, 0);
	add_stats_of(RBK_WIRE_STATS_PAGE, RBK_WIRE_STATS_OWN, 0);
	add_stats_of(RBK_WIRE_STATS_RESET, RBK_WIRE_STATS_ALL, 0);
	add_control(RBK_WIRE_LOG_LEVEL, 0, 0);
	add_control(RBK_WIRE_LOG_LEVEL, RBK_WIRE_CONTROL_SET, 3);
	add_control(RBK_WIRE_LOG_LEVEL, RBK_WIRE_CONTROL_SET, 5);
	add(0, &catalogue, sizeof(catalogue));
	add(0, &tenant, sizeof(tenant));
	save(argv[1], "admin-request", "questions");
	add_hello_with(UINT64_MAX);
	add_set(1, "weight", "7");
	add_set(1, "vram-max", "2GiB");
	add_set(1, "vram-reserve", "90%");
	add_set(1, "cpu-max", "1.5");
	add_set(1, "priority-max", "urgent");
	add_set(1, "weight", "default");
	add_set(1, "match-uid", "0");
	add_set(2, "weight", "1");
	save(argv[1], "admin-request", "limits");
	add_hello_with(UINT64_MAX);
	add(0, &limit, sizeof(limit));
	add(0, &evict, sizeof(evict));
	add(0, &evict_plan, sizeof(evict_plan));
	for (uint32_t action = 0; action <= RBK_WIRE_DRAIN_END; action++) {
		add_drain(RBK_WIRE_DRAIN_TENANT, 1, action);
		add_drain(RBK_WIRE_DRAIN_DEVICE, 1, action);
	}
	add_drain(RBK_WIRE_DRAIN_DEVICE, 0, RBK_WIRE_DRAIN_BEGIN);
	save(argv[1], "admin-request", "evict-and-drain");
	add_hello_with(UINT64_MAX);
	add_drain(3, 1, RBK_WIRE_DRAIN_BEGIN);
	save(argv[1], "admin-request", "drain-what");
	add_hello_with(UINT64_MAX);
	for (uint32_t action = 0; action <= RBK_WIRE_RESTART_BEGIN + 1; action++) {
		restart.action = action;
		restart.drain_ms = action * 1000;
		add(0, &restart, sizeof(restart));
	}
	save(argv[1], "admin-request", "restart");
	save_leases(argv[1]);
	return 0;
}
