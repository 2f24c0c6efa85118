#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Kinds of log lines
 *
 * Each line of the log has one of these kinds, whose names and identifiers never change: scripts
 * and alerts rely on them, while texts may change. A new kind takes a new random identifier
 * (uuidgen). A kind that is no longer logged is removed, and its identifier is never reused.
 * ringbroker-log(7) documents each kind, and a test checks that it does.
 */

/* LOG_KIND(constant, name, identifier for the journal's MESSAGE_ID) */
#define LOG_EVENTS(LOG_KIND)                                                                     \
	LOG_KIND(DETAIL, "detail", "5ed625bd512b49ce9b78196723260c71")                           \
	LOG_KIND(LINES_LOST, "lines-lost", "816e2a9634784c07878f2532ee771b29")                   \
	LOG_KIND(LINES_LIMITED, "lines-limited", "b781b0d40ef24e41910b7e055de2f2a7")             \
	LOG_KIND(START_FAILED, "start-failed", "1cf163cddd9f457aa625a644523390e4")               \
	LOG_KIND(START_WAITS, "start-waits", "89e6b30a954040b2958f04dfbdb15eea")                 \
	LOG_KIND(POLICY_INVALID, "policy-invalid", "d96d8e841d2a41a5a675f9dcbc457af6")           \
	LOG_KIND(POLICY_RELOADED, "policy-reloaded", "3c8f06d8c6e146938626118cd9739881")         \
	LOG_KIND(POLICY_KEPT, "policy-kept", "3e5828055177448e87ae78f5aa86821a")                 \
	LOG_KIND(PRIVILEGES_KEPT, "privileges-kept", "9b0a9f2047864ebab45ef310fa10e2bb")         \
	LOG_KIND(SANDBOX, "sandbox", "f295edc505c74a43920f9d780a2c9190")                         \
	LOG_KIND(CALL_REFUSED, "call-refused", "d90ff1a2830e424cbfe05f5664e429a9")               \
	LOG_KIND(UNSUPERVISED, "unsupervised", "e909a7501bd04f9ba11db231ccd5b04b")               \
	LOG_KIND(TEST_DEVICE, "test-device", "e8509f32e747495abc811a9d6b0123b7")                 \
	LOG_KIND(DEVICES_FOUND, "devices-found", "471d8728eb44495ea38ec2e47bb1f089")             \
	LOG_KIND(DEVICES_LACKING, "devices-lacking", "d42682e0c83146a4be4bef8ffaa08d9a")         \
	LOG_KIND(LISTENING, "listening", "23fa3dda197e4e64a43087e48d466203")                     \
	LOG_KIND(ADMIN_SOCKET, "admin-socket", "0ceac4907d0d43409a5e0317c088b88b")               \
	LOG_KIND(METRICS_SOCKET, "metrics-socket", "9f5d6d6e4e57479eba2e40d5c99211cc")           \
	LOG_KIND(STOPPING, "stopping", "2c7bfc441b214fc59476b8275d4db6cf")                       \
	LOG_KIND(STOPPED, "stopped", "fc37cc411760480c88c3eaba074f0b31")                         \
	LOG_KIND(STOPPED_BUSY, "stopped-busy", "3b34d5b55df94ea2af6ac4112183b026")               \
	LOG_KIND(RESTART, "restart", "051882c211ab4e8f990b7adca4e33c16")                         \
	LOG_KIND(RESTART_FAILED, "restart-failed", "9811d00b21df486b9b2157fe2718b9dd")           \
	LOG_KIND(CHECKPOINT, "checkpoint", "e94bdba835aa4073837b826c25b7a159")                   \
	LOG_KIND(LIST_INCOMPLETE, "list-incomplete", "6f1356d945a549deb5ad48b0c6bbae56")         \
	LOG_KIND(FORCE_CPU, "force-cpu", "887451c0b3fb4558b13120da0d106702")                     \
	LOG_KIND(TENANT_CHANGED, "tenant-changed", "b32df682f8834f8786d18e277dc249bb")           \
	LOG_KIND(PLANS_EVICTED, "plans-evicted", "256896f79f3040118b14735002ca047f")             \
	LOG_KIND(DRAIN, "drain", "62d567f0aba4429ba626e0812ef4b4b8")                             \
	LOG_KIND(LEVEL_CHANGED, "level-changed", "89ffda09112e4a9c81f2a19f2327ad3e")             \
	LOG_KIND(PROFILES_READY, "profiles-ready", "7fa6bd70fd1a4f61b77bbe157706a755")           \
	LOG_KIND(PROFILE_DISCARDED, "profile-discarded", "98616f5919ed4f338f1fb4ab5bc86e65")     \
	LOG_KIND(PROFILE_NOT_KEPT, "profile-not-kept", "4238a43d936d48e987af936b884a45ab")       \
	LOG_KIND(DEVICE_MEASURED, "device-measured", "85829bf943b74a6c8cf75d1fc5410aba")         \
	LOG_KIND(DEVICE_NOT_MEASURED, "device-not-measured", "275db349e1dc40389d6e8d260a7badc6") \
	LOG_KIND(DEVICE_GONE, "device-gone", "6323511e772647b6bd14d1873c6c38c5")                 \
	LOG_KIND(DEVICE_BACK, "device-back", "0fcab84b2c3e400487a68e9e609a7c3d")                 \
	LOG_KIND(DEVICE_RESET, "device-reset", "305418aac395498fadf0b0c6585ac540")               \
	LOG_KIND(DEVICE_LOST, "device-lost", "04b01b6fe251474bbf11fda1ed5c965c")                 \
	LOG_KIND(DEVICE_STALLED, "device-stalled", "2e5c4d5410a64fc09e17308c1861b1b2")           \
	LOG_KIND(DEVICE_CHANGED, "device-changed", "bdd5877daf65459ab80b53e4b0bfbaf7")           \
	LOG_KIND(DEVICE_OVERHEAD, "device-overhead", "bb6264a0b6624da78cd25c0a9b046921")         \
	LOG_KIND(DEVICE_SPILLED, "device-spilled", "e71672c86774422699ade974e46b68a5")           \
	LOG_KIND(DEVICE_UNSPILLED, "device-unspilled", "92e5970f78dc4718bf50c89695463b72")       \
	LOG_KIND(ARENAS_LOST, "arenas-lost", "f8696a6370cb42f5adf6e27819e88d3e")                 \
	LOG_KIND(BUFFER_TOO_LARGE, "buffer-too-large", "a3a5e709578e4013864bec368ea7fcca")       \
	LOG_KIND(PLAN_NO_MEMORY, "plan-no-memory", "6f1aac004abf44b0ae7b92a17bc37a18")           \
	LOG_KIND(PLAN_NOT_PREPARED, "plan-not-prepared", "132fe9d8172e4ba29f069d3707273ac5")     \
	LOG_KIND(CONTENTION_BEGAN, "contention-began", "18b35ba256254fe7beca1f81058d4892")       \
	LOG_KIND(CONTENTION_ENDED, "contention-ended", "28ea7d6078a24c57bc3f9c28c6dc2744")       \
	LOG_KIND(CONTENTION_SOURCE, "contention-source", "2fa914720efd437ebe742b33cef5d7e6")     \
	LOG_KIND(SESSION_REFUSED, "session-refused", "610a2754b03c43e885cf93d13ceb5198")         \
	LOG_KIND(SESSION_FAILED, "session-failed", "ca69b7feeab24f1f8e8c6273cf8ef9ee")           \
	LOG_KIND(SESSION_CLOSED, "session-closed", "9bc6286cedd2461384d6d6e67a6a1115")           \
	LOG_KIND(SESSION_CONNECTED, "session-connected", "c9efff018b1e4b6d93a3ad5ca92cf1be")     \
	LOG_KIND(SESSION_ENDED, "session-ended", "a09915c0c9f54d7e8d81247a9ee4e6d3")             \
	LOG_KIND(RING_RESTORED, "ring-restored", "06f640121e484516a90fbb387bea426f")             \
	LOG_KIND(TASK_GIVEN_UP, "task-given-up", "199f89fbe73f4b83a9837d1ccd07f7bd")             \
	LOG_KIND(ENTRY_REFUSED, "entry-refused", "63f02924952845208e4fdb17f5ed5828")             \
	LOG_KIND(LEASE_OPENED, "lease-opened", "7402f28d510f4028bcf070a12b12cade")               \
	LOG_KIND(LEASE_ENDED, "lease-ended", "d24364998061494e83beba44d50ce6a7")                 \
	LOG_KIND(LEASE_REFUSED, "lease-refused", "e00dcf86c6404e66b8b3b121727b212e")             \
	LOG_KIND(LEASE_RESIZED, "lease-resized", "0e6a41d2e653466e9304a9479f3e1c27")             \
	LOG_KIND(LEASE_SHARED, "lease-shared", "7fc66e5ad3cb4707b7fb80ef43f90fef")               \
	LOG_KIND(LEASE_SLEEPS, "lease-sleeps", "52bf4ce0b4ac4d4c9d2f7a1c0f6e3b18")               \
	LOG_KIND(LEASE_EXCEEDED, "lease-exceeded", "a6c3604e681b4a2a927f21f1782bfba5")           \
	LOG_KIND(LEASE_CORRECTED, "lease-corrected", "d071d719972d4e2ab45a8944fa9ac9c7")         \
	LOG_KIND(LEASE_LACKING, "lease-lacking", "b3ca19eac5d645c38d4cf18141e2a671")             \
	LOG_KIND(LEASE_LOST, "lease-lost", "a466d87315454b0da34165434fd2454a")                   \
	LOG_KIND(LEASE_BESIDE, "lease-beside", "27ed3d8562364e4e9e0827d64934fca0")               \
	LOG_KIND(OUTSIDE_TIME, "outside-time", "12d1a62e24234aee9e87b1aeac4092ff")               \
	LOG_KIND(PROCESS_STOPPED, "process-stopped", "570bef341b3546fb880b4ee3aca918b3")         \
	LOG_KIND(PROCESS_SPARED, "process-spared", "057a156f85fd47c0abf349dea693cf83")           \
	LOG_KIND(TENANT_LOWERED, "tenant-lowered", "f661c65a9ba24001b8828327659debf3")           \
	LOG_KIND(GATE_FOUND, "gate-found", "d9a81fc75e4a4527a29e150cb235cbcb")                   \
	LOG_KIND(GATE_GONE, "gate-gone", "3e0cbef161314617934ddc8f88df9796")                     \
	LOG_KIND(GATE_UNUSABLE, "gate-unusable", "aa1b122a2c614d4e9be5cfc6cf5d2402")             \
	LOG_KIND(ACCEPT_PAUSED, "accept-paused", "0a398b6bc97445f0b003ae6da41be6e5")

enum log_event {
#define LOG_KIND(constant, name, id) LOG_##constant,
	LOG_EVENTS(LOG_KIND)
#undef LOG_KIND
		LOG_N_EVENTS
};
