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

static const struct option_choice gpu_choices[] = {
	{"auto", VULKAN_AUTO}, {"software", VULKAN_SOFTWARE}, {"software:2", VULKAN_SOFTWARE_TWICE},
	{"any", VULKAN_ANY},   {"none", VULKAN_NONE},         {NULL, 0}};
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
static const struct option_choice sandbox_choices[] = {
	{"on", SANDBOX_ON}, {"log", SANDBOX_LOG}, {"off", SANDBOX_OFF}, {NULL, 0}};
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
	{"socket", "PATH", OPTION_START, &option_kind_path, "path of the clients' socket",
	 "path of the clients' socket (default: $RINGBROKER_SOCKET, else\n"
	 "$XDG_RUNTIME_DIR/ringbroker/brokerd.sock, else\n"
	 "/run/ringbroker/brokerd.sock)",
	 AT(socket_path), .most = sizeof(((struct sockaddr_un *)NULL)->sun_path)},
	{"socket-mode", "MODE", OPTION_START, &option_kind_octal,
	 "permissions of the socket, octal",
	 "permissions of the socket, octal (default: 0666 in /run/ringbroker,\n"
	 "0600 elsewhere)",
	 AT(socket_mode), .most = 0777, SAYS(has_socket_mode)},
	{"admin-socket", "PATH", OPTION_START, &option_kind_path,
	 "path of the administrators' socket",
	 "path of the administrators' socket, or 'none' for no such socket\n"
	 "(default: $RINGBROKER_ADMIN_SOCKET, else beside the clients' socket:\n"
	 "admin.sock for brokerd.sock, x.admin.sock for x.sock; of a socket in\n"
	 "a folder named ringbroker, in ringbroker-admin beside that folder)",
	 AT(admin_socket_path), SAYS(has_admin_socket)},
	{"admin-group", "NAME", OPTION_START, &option_kind_group,
	 "group whose members may read everything",
	 "group whose members may read everything at the administrators'\n"
	 "socket (default: ringbroker, if that group exists)",
	 AT(admin_group), SAYS(has_admin_group)},
	{"admin-users", "USER,...", OPTION_START, &option_kind_users, "users who may make changes",
	 "users who may make changes, besides root and the user that brokerd\n"
	 "runs as",
	 AT(admin_users)},
	{"metrics", "ADDRESS", OPTION_START, &option_kind_metrics,
	 "address at which metrics for Prometheus are served",
	 "serve metrics for Prometheus at unix:PATH, 127.0.0.1:PORT or\n"
	 "[::1]:PORT (default: none)",
	 AT(metrics)},
	{"gpu", NULL, OPTION_START, &option_kind_choice, "which devices to use",
	 "use real GPUs (auto, the default), a software Vulkan device (software),\n"
	 "the same as two devices, for tests (software:2), real GPUs or else a\n"
	 "software Vulkan device (any), or neither (none)",
	 AT(vulkan.mode), .choices = gpu_choices},
	{"memory-path", NULL, OPTION_START, &option_kind_choice, "how devices reach arenas",
	 "how devices reach arenas: by the best path that works (auto, the\n"
	 "default), or by the named path; brokerd does not start if that path\n"
	 "does not work; staged: by copies",
	 AT(vulkan.path), .choices = path_choices},
	{"gpu-timeout", "SECONDS", OPTION_START, &option_kind_number,
	 "seconds after which an unfinished task makes brokerd give up the GPU",
	 "how long a GPU may take for a task before brokerd gives the GPU up\n"
	 "(default: 10, and 300 for a software device)",
	 AT(vulkan.timeout_ns), .least = 1, .most = 3600, .unit = 1000000000},
	{"device-memory", "SIZE", OPTION_START, &option_kind_size,
	 "limit on the broker's memory on each device",
	 "use at most this much memory on each device", AT(vulkan.memory_cap_bytes)},
	{"host-max", "SIZE", OPTION_START, &option_kind_size,
	 "limit on the host memory of all tenants together",
	 "limit on the host memory of all tenants together (default: three\n"
	 "quarters of the machine's memory, or of the cgroup's limit)",
	 AT(host_max_bytes)},
	{"cache", "DIR", OPTION_START, &option_kind_path,
	 "folder for compiled pipelines and profiles",
	 "folder for compiled pipelines and profiles, or 'none' to keep none\n"
	 "(default: /var/cache/ringbroker for root, else ringbroker in\n"
	 "$XDG_CACHE_HOME or ~/.cache)",
	 AT(cache_dir)},
	{"workers", "N", OPTION_START, &option_kind_number, "CPU worker threads",
	 "CPU worker threads (default: one per processor)", AT(cpu.n_workers), .least = 1,
	 .most = CPU_MAX_WORKERS},
	{"no-pin", NULL, OPTION_OWN, &option_kind_flag, "do not pin workers to processors",
	 "do not pin workers to processors", AT(cpu.no_pin)},
	{"simd", NULL, OPTION_START, &option_kind_choice, "highest instruction set to use",
	 "highest instruction set to use (default: the highest of the CPU)", AT(cpu.simd),
	 .choices = simd_choices},
	{"spin", "auto|MICROSECONDS", OPTION_START, &option_kind_spin,
	 "microseconds to poll an empty ring before sleeping, or auto",
	 "how long an empty ring is polled before sleeping (default: auto)", AT(spin_ns)},
	{"turn-budget", "MICROSECONDS", OPTION_START, &option_kind_number,
	 "microseconds after which a turn of the reactor ends",
	 "how long the reactor, the thread that serves all clients, works\n"
	 "before it checks all sources of work again (default: 100)",
	 AT(turn_ns), .least = 1, .most = 100000, .unit = 1000},
	{"reactor-task", "MICROSECONDS", OPTION_START, &option_kind_number,
	 "microseconds of the longest task that the reactor runs itself, 0 for none",
	 "longest predicted time of a task that the reactor itself runs on\n"
	 "the CPU while nobody else has work (default: 2000; 0: none)",
	 AT(reactor_task_ns), .most = 10000, .unit = 1000},
	{"cut", "SEED", OPTION_START, &option_kind_number,
	 "number by which plans are cut into random segments, for tests",
	 "cut every plan into random segments, which depend on\n"
	 "the number, and tasks that ask for partition into\n"
	 "micro-batches: for tests (default: 0, plans are cut where they are\n"
	 "faster so, or no GPU could have them whole)",
	 AT(cut_seed), .most = INT32_MAX},
	{"reactor-nice", "N", OPTION_START, &option_kind_nice,
	 "nice level of the reactor, -20 to 19",
	 "nice level of the reactor, -20 to 19 (default: 10 below that of the\n"
	 "other threads)",
	 AT(reactor_nice)},
	{"stop-timeout", "SECONDS", OPTION_START, &option_kind_number,
	 "seconds that tasks in flight may take when brokerd stops",
	 "how long tasks in flight may take to finish when brokerd stops\n"
	 "(default: 10)",
	 AT(stop_ns), .least = 1, .most = 3600, .unit = 1000000000},
	{"calibration", NULL, OPTION_START, &option_kind_choice, "when to measure the devices",
	 "when to measure the devices: once, with the result kept in the cache\n"
	 "(auto, the default), never (none), or again now (now); measuring takes\n"
	 "a quarter of a second",
	 AT(calibration), .choices = calibration_choices},
	{"cpu-watts", "W", OPTION_START, &option_kind_watts,
	 "watts that all workers draw at work beyond idle", NULL, AT(cpu_watts),
	 .joins_next = true},
	{"gpu-watts", "W", OPTION_START, &option_kind_watts,
	 "watts that one GPU draws at work beyond idle",
	 "watts that all workers, or one GPU, draw at work beyond idle, for the\n"
	 "energy strategy (default: 0, unknown)",
	 AT(gpu_watts)},
	{"contention", NULL, OPTION_START, &option_kind_choice,
	 "how to detect that other programs keep the CPU busy",
	 "how the broker detects that other programs keep the CPU busy: by the\n"
	 "best source that works (auto, the default), by the named source or one\n"
	 "listed after it, or not at all",
	 AT(contention), .choices = contention_choices},
	{"sandbox", NULL, OPTION_START, &option_kind_choice,
	 "what happens to system calls that threads do not need",
	 "what happens to system calls that brokerd's threads do not need: they\n"
	 "fail (on, the default), happen and are logged (log), or happen (off)",
	 AT(sandbox), .choices = sandbox_choices},
	{"log-level", NULL, OPTION_START, &option_kind_choice,
	 "least severe kind of line that is logged", NULL, AT(log_level), .choices = level_choices},
	{"threshold", "SIZE", OPTION_LIVE, &option_kind_size,
	 "tasks that touch less memory stay on the CPU",
	 "tasks that touch less memory stay on the CPU (default: 1MiB)", AT(place.threshold_bytes),
	 .before = "\nPlacement; brokerd.conf(5) says more of each:\n"},
	{"min-count", "N", OPTION_LIVE, &option_kind_number,
	 "tasks with a smaller dynamic count stay on the CPU",
	 "tasks with a smaller dynamic count stay on the CPU (default: 64)", AT(place.min_count),
	 .most = INT32_MAX},
	{"strategy", NULL, OPTION_LIVE, &option_kind_choice, "strategy of tasks that name none",
	 "strategy of tasks that name none (default: automatic)", AT(place.strategy),
	 .choices = strategy_choices},
	{"energy-slack", "FACTOR", OPTION_LIVE, &option_kind_factor,
	 "how much longer a task may take to save energy",
	 "how much longer a task may take to save energy (default: 2)", AT(place.energy_slack),
	 .least = 1, .most = 1000},
	{"speedup-threshold", "FACTOR", OPTION_LIVE, &option_kind_factor,
	 "speedup that a GPU needs at first",
	 "speedup that a GPU needs until both estimates are trusted (default:\n"
	 "1.5)",
	 AT(place.speedup_threshold), .least = 0.01, .most = 1000},
	{"window", "N", OPTION_LIVE, &option_kind_number,
	 "number of executions that an estimate covers",
	 "number of executions that an estimate covers (default: 100)", AT(place.window),
	 .least = 8, .most = 1000},
	{"exploration", "SHARE", OPTION_LIVE, &option_kind_share,
	 "share of execution time that may be spent on learning",
	 "share of execution time that may be spent on learning (default: 1%)",
	 AT(place.exploration), .most = 50},
	{"success-rate", "SHARE", OPTION_LIVE, &option_kind_share,
	 "success rate below which a device rests",
	 "share of successful tasks below which a device rests (default: 95%)",
	 AT(place.success_rate), .most = 100},
	{"partition-min-size", "SIZE", OPTION_LIVE, &option_kind_size,
	 "size of the smallest task that is split", NULL, AT(place.partition_min_bytes),
	 .joins_next = true},
	{"partition-min-gain", "SHARE", OPTION_LIVE, &option_kind_share,
	 "least gain for which a task is split, or a plan cut",
	 "least size and gain of tasks that are split over devices, and least\n"
	 "gain of plans that are cut (default: 10MiB, 20%)",
	 AT(place.partition_min_gain), .most = 100},
	{"balance-high", "RATIO", OPTION_LIVE, &option_kind_factor,
	 "ratio of backlogs above which queued tasks move", NULL, AT(place.balance_high),
	 .least = 1.01, .most = 100, .joins_next = true},
	{"balance-low", "RATIO", OPTION_LIVE, &option_kind_factor,
	 "ratio of backlogs below which queued tasks move",
	 "ratios of backlogs beyond which queued tasks move (default: 1.2, 0.8)",
	 AT(place.balance_low), .least = 0.01, .most = 0.99},
	{"submission-max", "TIME", OPTION_LIVE, &option_kind_time,
	 "time above which a task runs in parts",
	 "time above which a task runs in parts (default: 10ms)", AT(place.submission_max_ns),
	 .least = 0.1, .most = 1000},
	{"force-cpu", NULL, OPTION_LIVE, &option_kind_choice, "use no GPU",
	 "use no GPU (default: no)", AT(place.force_cpu), .choices = yes_no_choices},
	{"contention-action", NULL, OPTION_LIVE, &option_kind_choice,
	 "what to do while other programs keep the CPU busy",
	 "while other programs keep the CPU busy, use fewer workers and the GPU\n"
	 "more (act, the default), or only report it (observe)",
	 AT(observes_contention), .choices = action_choices},
	{"config", "FILE", OPTION_OWN, &option_kind_path, "the policy file",
	 "policy file: limits of tenants, and the options above as KEY = VALUE\n"
	 "(default: /etc/ringbroker/brokerd.conf, if it exists)",
	 AT(config_path), SAYS(config_is_required), .before = "\n"},
	{"check-config", NULL, OPTION_OWN, &option_kind_flag, "check the policy file, and exit",
	 "check the policy file, print what it means, and exit with status 0 if\n"
	 "it is valid, else with 1",
	 AT(checks_config)},
	{"list-devices", "[=json]", OPTION_OWN, &option_kind_choice, "print the devices, and exit",
	 "print the devices, their memory and the processes that use it, and\n"
	 "exit",
	 AT(list_devices), .choices = list_choices, .otherwise = "text"},
	{"test-device", "TIME", OPTION_OWN, &option_kind_time, "for tests of brokerd",
	 "for tests of brokerd: a GPU that computes nothing and takes this long\n"
	 "for each task",
	 AT(test_device_ns), .least = 0.01, .most = 1000},
	{"test-device-row", "TIME", OPTION_OWN, &option_kind_time, "for tests of brokerd",
	 "for tests of brokerd: the time that each row of a task adds there\n"
	 "(default: 0)",
	 AT(test_device_row_ns), .most = 10},
	{"test-device-rate", "GFLOPS", OPTION_OWN, &option_kind_number, "for tests of brokerd",
	 "for tests of brokerd: floating-point operations per nanosecond there\n"
	 "(default: 0, any number in no time)",
	 AT(test_device_gflops), .most = 1000000},
	{"test-device-link", "MB/S", OPTION_OWN, &option_kind_number, "for tests of brokerd",
	 "for tests of brokerd: bytes per microsecond in which plans are loaded\n"
	 "there (default: 0, any number in no time)",
	 AT(test_device_link), .most = 1000000},
	{"test-dmem-region", "NAME", OPTION_OWN, &option_kind_path, "for tests of brokerd",
	 "for tests of brokerd: the kernel's name for the memory of GPUs", AT(test_dmem_region)},
	{"help", NULL, OPTION_OWN, &option_kind_flag, "print help", NULL, AT(wants_help),
	 .joins_next = true},
	{"version", NULL, OPTION_OWN, &option_kind_flag, "print the version", NULL,
	 AT(wants_version)},
};
const unsigned int n_options = ARRAY_SIZE(option_rows);
_Static_assert(ARRAY_SIZE(option_rows) <= OPTIONS_MAX, "options-private.h has room");
