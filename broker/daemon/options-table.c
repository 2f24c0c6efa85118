/* SPDX-License-Identifier: MIT */
/*
 * brokerd's options, a row for each
 *
 * These rows define the text of --help, the keys of the command line and of section [broker] of the
 * policy file, the line that a reload prints, and the files for completion in shells. The manuals
 * have a sentence for each option; a test checks that.
 */
#include <sys/un.h>

#include "daemon/options-private.h"

static const struct option_choice gpu_choices[] = {{"auto", VULKAN_AUTO},
						   {"software", VULKAN_SOFTWARE},
						   {"any", VULKAN_ANY},
						   {"none", VULKAN_NONE},
						   {NULL, 0}};
static const struct option_choice path_choices[] = {
	{"auto", VULKAN_PATH_AUTO},       {"host-import", VULKAN_PATH_HOST_IMPORT},
	{"udmabuf", VULKAN_PATH_UDMABUF}, {"exported", VULKAN_PATH_EXPORTED},
	{"staged", VULKAN_PATH_STAGED},   {NULL, 0},
};
static const struct option_choice simd_choices[] = {{"auto", CPU_SIMD_AUTO},
						    {"sse2", CPU_SIMD_SSE2},
						    {"avx2", CPU_SIMD_AVX2},
						    {"avx512", CPU_SIMD_AVX512},
						    {NULL, 0}};
static const struct option_choice list_choices[] = {
	{"text", LIST_DEVICES_TEXT}, {"json", LIST_DEVICES_JSON}, {NULL, 0}};
static const struct option_choice strategy_choices[] = {{"automatic", RBK_STRATEGY_AUTO},
							{"latency", RBK_STRATEGY_LATENCY},
							{"energy", RBK_STRATEGY_ENERGY},
							{NULL, 0}};
static const struct option_choice calibration_choices[] = {
	{"auto", PROFILES_AUTO}, {"none", PROFILES_NONE}, {"now", PROFILES_NOW}, {NULL, 0}};
static const struct option_choice contention_choices[] = {
	{"auto", RUN_QUEUE_SOURCE_AUTO},
	{"ebpf", RUN_QUEUE_SOURCE_EBPF},
	{"schedstat", RUN_QUEUE_SOURCE_SCHEDSTAT},
	{"psi", RUN_QUEUE_SOURCE_PSI},
	{"stat", RUN_QUEUE_SOURCE_STAT},
	{"none", RUN_QUEUE_SOURCE_NONE},
	{NULL, 0},
};
static const struct option_choice action_choices[] = {{"act", 0}, {"observe", 1}, {NULL, 0}};
static const struct option_choice yes_no_choices[] = {{"yes", 1}, {"no", 0}, {NULL, 0}};
static const struct option_choice level_choices[] = {{"error", LOG_LEVEL_ERROR},
						     {"warning", LOG_LEVEL_WARNING},
						     {"info", LOG_LEVEL_INFO},
						     {"debug", LOG_LEVEL_DEBUG},
						     {NULL, 0}};

#define AT(member) \
	.at = offsetof(struct options, member), .bytes = sizeof(((struct options *)NULL)->member)
/* Giving the option also sets the member @member. */
#define SAYS(member) .says = offsetof(struct options, member), .has_says = true

const struct option_row option_rows[] = {
	{"socket", "PATH", OPTION_START, &option_kind_path, "listen there",
	 "listen there (default: $RINGBROKER_SOCKET, else\n"
	 "$XDG_RUNTIME_DIR/ringbroker/brokerd.sock, else\n"
	 "/run/ringbroker/brokerd.sock)",
	 AT(socket_path), .most = sizeof(((struct sockaddr_un *)NULL)->sun_path)},
	{"socket-mode", "MODE", OPTION_START, &option_kind_octal,
	 "permissions of the socket, octal",
	 "permissions of the socket, octal (default: 0666 in /run/ringbroker,\n"
	 "0600 elsewhere)",
	 AT(socket_mode), .most = 0777, SAYS(has_socket_mode)},
	{"admin-socket", "PATH", OPTION_START, &option_kind_path, "listen there for administrators",
	 "listen there for administrators, or nowhere if it is 'none' (default:\n"
	 "$RINGBROKER_ADMIN_SOCKET, else beside the other one: admin.sock\n"
	 "for brokerd.sock, x.admin.sock for x.sock)",
	 AT(admin_socket_path), SAYS(has_admin_socket)},
	{"admin-group", "NAME", OPTION_START, &option_kind_group,
	 "whose members may look at everything",
	 "whose members may look at everything there (default: ringbroker, if\n"
	 "there is such a group)",
	 AT(admin_group), SAYS(has_admin_group)},
	{"admin-users", "USER,...", OPTION_START, &option_kind_users,
	 "who may also change something",
	 "who may also change something, beside root and the user that brokerd\n"
	 "runs as",
	 AT(admin_users)},
	{"metrics", "ADDRESS", OPTION_START, &option_kind_metrics,
	 "serve figures for Prometheus there",
	 "figures for Prometheus at unix:PATH, 127.0.0.1:PORT or [::1]:PORT\n"
	 "(default: none)",
	 AT(metrics)},
	{"gpu", NULL, OPTION_START, &option_kind_choice, "which devices to use",
	 "use real GPUs (the default), a software Vulkan device, that one where\n"
	 "there is no real one, or neither",
	 AT(vulkan.mode), .choices = gpu_choices},
	{"memory-path", NULL, OPTION_START, &option_kind_choice, "how devices reach arenas",
	 "how devices reach arenas: the best that works (the default), or one,\n"
	 "without which brokerd does not start; staged: by copies",
	 AT(vulkan.path), .choices = path_choices},
	{"gpu-timeout", "SECONDS", OPTION_START, &option_kind_number,
	 "seconds after which a task loses the GPU",
	 "a task that a GPU has not finished by then loses the GPU (default:\n"
	 "10, and 300 for a software device)",
	 AT(vulkan.timeout_ns), .least = 1, .most = 3600, .unit = 1000000000},
	{"device-memory", "SIZE", OPTION_START, &option_kind_size,
	 "use no more memory on each device", "use no more memory than that on each device",
	 AT(vulkan.memory_cap_bytes)},
	{"host-max", "SIZE", OPTION_START, &option_kind_size, "host memory of all tenants together",
	 "all tenants together get no more host memory than that (default:\n"
	 "three quarters of the machine's, or of the cgroup's limit)",
	 AT(host_max_bytes)},
	{"cache", "DIR", OPTION_START, &option_kind_path, "keep pipelines and profiles there",
	 "keep compiled pipelines there, or nowhere if it is 'none' (default:\n"
	 "/var/cache/ringbroker for root, else ringbroker in $XDG_CACHE_HOME\n"
	 "or ~/.cache)",
	 AT(cache_dir)},
	{"workers", "N", OPTION_START, &option_kind_number, "CPU worker threads",
	 "CPU worker threads (default: one per processor)", AT(cpu.n_workers), .least = 1,
	 .most = CPU_MAX_WORKERS},
	{"no-pin", NULL, OPTION_OWN, &option_kind_flag, "do not pin workers to processors",
	 "do not pin workers to processors", AT(cpu.no_pin)},
	{"simd", NULL, OPTION_START, &option_kind_choice, "the highest instruction set to use",
	 "the highest instruction set to use (default: what there is)", AT(cpu.simd),
	 .choices = simd_choices},
	{"spin", "auto|MICROSECONDS", OPTION_START, &option_kind_spin,
	 "microseconds before sleeping, or auto",
	 "how long an empty ring is polled before sleeping (default: auto)", AT(spin_ns)},
	{"turn-budget", "MICROSECONDS", OPTION_START, &option_kind_number,
	 "microseconds that a turn of the reactor takes",
	 "how long the thread that serves all clients works before it looks at\n"
	 "everything again (default: 100)",
	 AT(turn_ns), .least = 1, .most = 100000, .unit = 1000},
	{"reactor-nice", "N", OPTION_START, &option_kind_nice,
	 "nice level of the reactor, -20 to 19",
	 "nice level of that thread, -20 to 19 (default: 10 below the others')", AT(reactor_nice)},
	{"stop-timeout", "SECONDS", OPTION_START, &option_kind_number,
	 "seconds that tasks have to finish at the end",
	 "how long tasks in flight have to finish when brokerd is to stop\n"
	 "(default: 10)",
	 AT(stop_ns), .least = 1, .most = 3600, .unit = 1000000000},
	{"calibration", NULL, OPTION_START, &option_kind_choice,
	 "measure what devices are able to do",
	 "what devices are able to do: measured once and kept in the cache (the\n"
	 "default), not asked, or measured anew; takes a quarter of a second",
	 AT(calibration), .choices = calibration_choices},
	{"cpu-watts", "W", OPTION_START, &option_kind_watts, "what all workers draw at work", NULL,
	 AT(cpu_watts), .joins_next = true},
	{"gpu-watts", "W", OPTION_START, &option_kind_watts, "what one GPU draws at work",
	 "what all workers, or one GPU, draw at work and not while idle, for the\n"
	 "energy strategy (default: 0, unknown)",
	 AT(gpu_watts)},
	{"contention", NULL, OPTION_START, &option_kind_choice,
	 "how to learn that others keep the CPU busy",
	 "how the broker learns that others keep the CPU busy: by the best that\n"
	 "can be had (the default), by that and what comes after it, or not at all",
	 AT(contention), .choices = contention_choices},
	{"log-level", NULL, OPTION_START, &option_kind_choice, "what is logged", NULL,
	 AT(log_level), .choices = level_choices},
	{"threshold", "SIZE", OPTION_LIVE, &option_kind_size,
	 "tasks that touch less stay on the CPU",
	 "tasks that touch less stay on the CPU (default: 1MiB)", AT(place.threshold_bytes),
	 .before = "\nPlacement; brokerd.conf(5) says more of each:\n"},
	{"min-count", "N", OPTION_LIVE, &option_kind_number, "so do those with a smaller count",
	 "so do those with a smaller dynamic count (default: 64)", AT(place.min_count),
	 .most = INT32_MAX},
	{"strategy", NULL, OPTION_LIVE, &option_kind_choice, "for tasks that name none",
	 "for tasks that name none (default: automatic)", AT(place.strategy),
	 .choices = strategy_choices},
	{"energy-slack", "FACTOR", OPTION_LIVE, &option_kind_factor,
	 "how much longer a task may take to save energy",
	 "how much longer a task may take to save energy (default: 2)", AT(place.energy_slack),
	 .least = 1, .most = 1000},
	{"speedup-threshold", "FACTOR", OPTION_LIVE, &option_kind_factor,
	 "what a GPU needs at first",
	 "what a GPU needs until both estimates are trusted (default: 1.5)",
	 AT(place.speedup_threshold), .least = 0.01, .most = 1000},
	{"window", "N", OPTION_LIVE, &option_kind_number, "executions that estimates look back",
	 "executions that estimates look back (default: 100)", AT(place.window), .least = 8,
	 .most = 1000},
	{"exploration", "SHARE", OPTION_LIVE, &option_kind_share,
	 "share of time that may be lost to learning",
	 "of time that may be lost to learning (default: 1%)", AT(place.exploration), .most = 50},
	{"success-rate", "SHARE", OPTION_LIVE, &option_kind_share, "below it a device rests",
	 "of a device's tasks; below it rests (default: 95%)", AT(place.success_rate), .most = 100},
	{"partition-min-size", "SIZE", OPTION_LIVE, &option_kind_size, "of tasks that are split",
	 NULL, AT(place.partition_min_bytes), .joins_next = true},
	{"partition-min-gain", "SHARE", OPTION_LIVE, &option_kind_share, "of splitting",
	 "tasks that are split over devices (default: 10MiB, 20%)", AT(place.partition_min_gain),
	 .most = 100},
	{"balance-high", "RATIO", OPTION_LIVE, &option_kind_factor,
	 "ratio of backlogs above which tasks move", NULL, AT(place.balance_high), .least = 1.01,
	 .most = 100, .joins_next = true},
	{"balance-low", "RATIO", OPTION_LIVE, &option_kind_factor, "below which they do",
	 "of backlogs, beyond which queued tasks move (default: 1.2, 0.8)", AT(place.balance_low),
	 .least = 0.01, .most = 0.99},
	{"submission-max", "TIME", OPTION_LIVE, &option_kind_time, "longer tasks are run in parts",
	 "longer tasks are run in parts (default: 10ms)", AT(place.submission_max_ns), .least = 0.1,
	 .most = 1000},
	{"force-cpu", NULL, OPTION_LIVE, &option_kind_choice, "use no GPU",
	 "use no GPU (default: no)", AT(place.force_cpu), .choices = yes_no_choices},
	{"contention-action", NULL, OPTION_LIVE, &option_kind_choice,
	 "what to do while others keep the CPU busy",
	 "while others keep the CPU busy, leave some of it to them and use the\n"
	 "GPU more (the default), or only say so",
	 AT(observes_contention), .choices = action_choices},
	{"config", "FILE", OPTION_OWN, &option_kind_path, "the policy file",
	 "who may have how much, and the above as KEY = VALUE (default:\n"
	 "/etc/ringbroker/brokerd.conf, if it is there)",
	 AT(config_path), SAYS(config_is_required), .before = "\n"},
	{"check-config", NULL, OPTION_OWN, &option_kind_flag, "check that file, and exit",
	 "check that file, say what it means, and exit: 0 if it is right, 1 if\n"
	 "not",
	 AT(checks_config)},
	{"list-devices", "[=json]", OPTION_OWN, &option_kind_choice, "print the devices, and exit",
	 "print the devices, their memory and who uses it, and exit", AT(list_devices),
	 .choices = list_choices, .otherwise = "text"},
	{"test-device", "TIME", OPTION_OWN, &option_kind_time, "for tests of brokerd",
	 "for tests of brokerd: a GPU that computes nothing and takes that long",
	 AT(test_device_ns), .least = 0.01, .most = 1000},
	{"test-dmem-region", "NAME", OPTION_OWN, &option_kind_path, "for tests of brokerd",
	 "for tests of brokerd: what the kernel calls the memory of GPUs", AT(test_dmem_region)},
	{"help", NULL, OPTION_OWN, &option_kind_flag, "print help", NULL, AT(wants_help),
	 .joins_next = true},
	{"version", NULL, OPTION_OWN, &option_kind_flag, "print the version", NULL,
	 AT(wants_version)},
};
const unsigned int n_options = ARRAY_SIZE(option_rows);
_Static_assert(ARRAY_SIZE(option_rows) <= OPTIONS_MAX, "options-private.h has room");
