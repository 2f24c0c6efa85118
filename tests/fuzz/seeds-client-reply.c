/* SPDX-License-Identifier: MIT */
/*
 * Writer of the seeds of corpus/client-reply: a success for each request, a long and a short
 * failure
 *
 *	seeds-client-reply DIRECTORY
 *
 * Run the program again when shm/wire.h changes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/private.h"

static const char *directory;

static void save(const char *name, uint8_t n_fds, const void *reply, size_t bytes)
{
	uint8_t head[2] = {(uint8_t)((const struct rbk_wire_reply *)reply)->type, n_fds};
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "wb");
	if (!file || fwrite(head, 1, 2, file) != 2 || fwrite(reply, 1, bytes, file) != bytes ||
	    fclose(file)) {
		perror(path);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct rbk_wire_welcome welcome = {.reply.type = RBK_WIRE_HELLO,
					   .abi_major = RBK_ABI_MAJOR,
					   .n_devices = 2,
					   .max_ring_entries = RBK_MAX_RING_ENTRIES,
					   .arena_segment_bytes = 64 << 20,
					   .flags = RBK_WIRE_WELCOME_EXPORTS,
					   .broker = "brokerd"};
	struct rbk_wire_ring ring = {.reply.type = RBK_WIRE_RING_ADD,
				     .id = 1,
				     .n_entries = 64,
				     .sq_bytes = 8192,
				     .cq_bytes = 4096};
	struct rbk_wire_reply removed = {.type = RBK_WIRE_RING_REMOVE};
	struct rbk_wire_id_reply arena = {.reply.type = RBK_WIRE_ARENA_ADD, .id = 3};
	struct rbk_wire_plan plan = {.reply.type = RBK_WIRE_PLAN_ADD, .id = 1, .devices = 3};
	struct rbk_wire_devices devices = {
		.reply.type = RBK_WIRE_DEVICES,
		.n_devices = 2,
		.devices = {{.name = "AMD EPYC", .paths = "avx512"},
			    {.index = 1, .kind = RBK_WIRE_DEVICE_GPU, .driver = "radv"}}};
	struct rbk_wire_stats stats = {.reply.type = RBK_WIRE_STATS, .sessions = 1};
	struct rbk_wire_plan_memory memory = {.reply.type = RBK_WIRE_PLAN_MEMORY, .n_devices = 2};
	struct rbk_wire_tenant tenant = {
		.reply.type = RBK_WIRE_TENANT, .name = "web", .n_devices = 2};
	struct rbk_wire_lease lease = {.reply.type = RBK_WIRE_LEASE_OPEN,
				       .number = 7,
				       .device = RBK_DEVICE_GPU,
				       .granted_bytes = 4096,
				       .max_bytes = 8192,
				       .page_bytes = 4096};
	struct rbk_wire_lease_given given = {
		.reply.type = RBK_WIRE_LEASE_CREDIT, .given_bytes = 4096, .granted_bytes = 4096};
	struct rbk_wire_stats_page page = {.reply.type = RBK_WIRE_STATS_PAGE, .bytes = 65536};
	struct rbk_wire_setting setting = {.reply.type = RBK_WIRE_CONTROL, .value = 1};
	struct rbk_wire_limit limit = {.reply.type = RBK_WIRE_ADMIN_LIMIT,
				       .key = "vram-max",
				       .value = "2GiB",
				       .policy = "1GiB",
				       .n_limits = 20};
	struct rbk_wire_admin_result result = {.reply.type = RBK_WIRE_ADMIN_DRAIN, .n = 1};
	struct rbk_wire_restart restart = {.reply.type = RBK_WIRE_ADMIN_RESTART, .n_sessions = 1};
	struct rbk_wire_lease_region region = {.reply.type = RBK_WIRE_LEASE_CGROUP,
					       .region = "drm/0000:03:00.0/vram"};
	struct {
		struct client_catalogue head;
		struct rbk_wire_operator operators[2];
	} catalogue = {.head = {.reply.type = RBK_WIRE_CATALOGUE, .n_operators = 2, .n_devices = 2},
		       .operators = {{.name = "Add"}, {.name = "MatMul"}}};

	if (argc != 2) {
		fprintf(stderr, "seeds-client-reply DIRECTORY\n");
		return 2;
	}
	directory = argv[1];
	save("welcome", 0, &welcome, sizeof(welcome));
	save("ring", 3, &ring, sizeof(ring));
	save("removed", 0, &removed, sizeof(removed));
	save("arena", 0, &arena, sizeof(arena));
	arena.reply.type = RBK_WIRE_ARENA_NEW;
	save("arena-new", 1, &arena, sizeof(arena));
	save("plan", 0, &plan, sizeof(plan));
	save("devices", 0, &devices, sizeof(devices));
	save("stats", 0, &stats, sizeof(stats));
	save("plan-memory", 0, &memory, sizeof(memory));
	save("tenant", 0, &tenant, sizeof(tenant));
	save("lease", 1, &lease, sizeof(lease));
	save("lease-given", 0, &given, sizeof(given));
	save("stats-page", 1, &page, sizeof(page));
	save("setting", 0, &setting, sizeof(setting));
	save("limit", 0, &limit, sizeof(limit));
	save("drained", 0, &result, sizeof(result));
	save("restart", 0, &restart, sizeof(restart));
	save("region", 0, &region, sizeof(region));
	save("catalogue", 0, &catalogue, sizeof(catalogue));
	ring.reply.type = RBK_WIRE_RING_RESTORE;
	save("ring-restored", 3, &ring, sizeof(ring));
	plan.reply.res = -EINVAL;
	strcpy(plan.reply.text, "node 3 (MatMul): inputs do not agree");
	save("refused", 0, &plan, sizeof(plan));
	removed.res = -EBUSY;
	save("refused-short", 0, &removed, sizeof(removed));
	return 0;
}
