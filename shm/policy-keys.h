#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Keys of tenants in brokerd.conf(5)
 *
 * The table has a row for each key, in the order in which --check-config prints them. Reading,
 * changing by brokerctl set, printing, and shell completion use these rows; a test looks for the
 * sentence of each key in the manual. A new key needs a row, its member of struct tenant_policy,
 * and its default in policy_section_init(), unless that is 0.
 */

/* Keys that select the tenant's clients. KEY(ID, name) */
#define POLICY_MATCH_KEYS(KEY)            \
	KEY(MATCH_UID, "match-uid")       \
	KEY(MATCH_GID, "match-gid")       \
	KEY(MATCH_CGROUP, "match-cgroup") \
	KEY(MATCH_EXE, "match-exe")

/*
 * Keys that set limits and rights. KEY(ID, name, kind of value, member, minimum and maximum of
 * numbers, true if it is printed even at its default)
 */
#define POLICY_KEYS(KEY)                                                             \
	KEY(VRAM_MAX, "vram-max", SIZE, vram_max, 0, 0, true)                        \
	KEY(VRAM_RESERVE, "vram-reserve", SIZE, vram_reserve, 0, 0, true)            \
	KEY(VRAM_HIGH, "vram-high", SIZE, vram_high, 0, 0, true)                     \
	KEY(GTT_MAX, "gtt-max", SIZE, gtt_max, 0, 0, true)                           \
	KEY(HOST_MAX, "host-max", HOST, host_max, 0, 0, true)                        \
	KEY(WEIGHT, "weight", WEIGHT, weight, 1, 10000, true)                        \
	KEY(CPU_MAX, "cpu-max", PROCESSORS, cpu_max, 0, 0, false)                    \
	KEY(PRIORITY_MAX, "priority-max", PRIORITY, priority_max, 0, 0, true)        \
	KEY(SESSIONS_MAX, "sessions-max", NUMBER, sessions_max, 0, 1000000, true)    \
	KEY(ARENAS_MAX, "arenas-max", NUMBER, arenas_max, 0, 1000000, true)          \
	KEY(ARENA_BYTES_MAX, "arena-bytes-max", BYTES, arena_bytes_max, 0, 0, false) \
	KEY(PLANS_MAX, "plans-max", NUMBER, plans_max, 0, 1000000, true)             \
	KEY(TASKS_MAX, "tasks-max", NUMBER, tasks_max, 0, 1000000000, true)          \
	KEY(LEASE_AUDIT, "lease-audit", AUDIT, lease_audit, 0, 0, false)             \
	KEY(LEASE_REQUIRED, "lease-required", SWITCH, lease_required, 0, 0, false)   \
	KEY(LEASE_TOLERANCE, "lease-tolerance", BYTES, lease_tolerance, 0, 0, false) \
	KEY(EXEC_PRIORITY, "exec-priority", PROGRAM, exec_priority, 0, 0, false)     \
	KEY(EXEC_MAX_PART, "exec-max-part", TIME, exec_max_part_ns, 0, 0, false)
