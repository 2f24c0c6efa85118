/* SPDX-License-Identifier: MIT */
/*
 * brokerd's command line
 *
 * Everything has a default that works without configuration. What the command line does not say may
 * be said in section [broker] of the policy file, by the same names and in the same words, and is
 * read by the same functions; only complaints differ, which name the file and the line there.
 *
 * The socket's place follows
 * $RINGBROKER_SOCKET, then the user's runtime directory, then /run/ringbroker, as the client
 * library does, so that a broker and a client of one user meet without being told.
 */
#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm/admin-path.h"
#include "util/checked.h"
#include "util/size.h"
#include "util/suggest.h"

static const char usage_text[] =
	"Usage: brokerd [OPTION...]\n"
	"Owns this machine's GPU and runs clients' tasks on it and on the CPU.\n"
	"\n"
	"  --socket PATH         listen there (default: $RINGBROKER_SOCKET, else\n"
	"                        $XDG_RUNTIME_DIR/ringbroker/brokerd.sock, else\n"
	"                        /run/ringbroker/brokerd.sock)\n"
	"  --socket-mode MODE    permissions of the socket, octal (default: 0666 in "
	"/run/ringbroker,\n"
	"                        0600 elsewhere)\n"
	"  --admin-socket PATH   listen there for administrators, or nowhere if it is 'none' "
	"(default:\n"
	"                        $RINGBROKER_ADMIN_SOCKET, else beside the other one: admin.sock\n"
	"                        for brokerd.sock, x.admin.sock for x.sock)\n"
	"  --admin-group NAME    whose members may look at everything there (default: "
	"ringbroker, if\n"
	"                        there is such a group)\n"
	"  --admin-users USER,...\n"
	"                        who may also change something, beside root and the user that "
	"brokerd\n"
	"                        runs as\n"
	"  --metrics ADDRESS     figures for Prometheus at unix:PATH, 127.0.0.1:PORT or "
	"[::1]:PORT\n"
	"                        (default: none)\n"
	"  --gpu auto|software|any|none\n"
	"                        use real GPUs (the default), a software Vulkan device, that "
	"one where\n"
	"                        there is no real one, or neither\n"
	"  --memory-path auto|host-import|udmabuf|exported|staged\n"
	"                        how devices reach arenas: the best that works (the default), or "
	"one,\n"
	"                        without which brokerd does not start; staged: by copies\n"
	"  --gpu-timeout SECONDS a task that a GPU has not finished by then loses the GPU "
	"(default:\n"
	"                        10, and 300 for a software device)\n"
	"  --device-memory SIZE  use no more memory than that on each device\n"
	"  --host-max SIZE       all tenants together get no more host memory than that (default:\n"
	"                        three quarters of the machine's, or of the cgroup's limit)\n"
	"  --cache DIR           keep compiled pipelines there, or nowhere if it is 'none' "
	"(default:\n"
	"                        /var/cache/ringbroker for root, else ringbroker in "
	"$XDG_CACHE_HOME\n"
	"                        or ~/.cache)\n"
	"  --workers N           CPU worker threads (default: one per processor)\n"
	"  --no-pin              do not pin workers to processors\n"
	"  --simd auto|sse2|avx2|avx512\n"
	"                        the highest instruction set to use (default: what there is)\n"
	"  --spin auto|MICROSECONDS\n"
	"                        how long an empty ring is polled before sleeping (default: auto)\n"
	"  --turn-budget MICROSECONDS\n"
	"                        how long the thread that serves all clients works before it looks "
	"at\n"
	"                        everything again (default: 100)\n"
	"  --reactor-nice N      nice level of that thread, -20 to 19 (default: 10 below the "
	"others')\n"
	"  --calibration auto|none|now\n"
	"                        what devices are able to do: measured once and kept in the cache "
	"(the\n"
	"                        default), not asked, or measured anew; takes a quarter of a "
	"second\n"
	"  --cpu-watts W, --gpu-watts W\n"
	"                        what all workers, or one GPU, draw at work and not while idle, "
	"for "
	"the\n"
	"                        energy strategy (default: 0, unknown)\n"
	"  --contention auto|ebpf|schedstat|psi|stat|none\n"
	"                        how the broker learns that others keep the CPU busy: by the best "
	"that\n"
	"                        can be had (the default), by that and what comes after it, or not "
	"at all\n"
	"  --log-level error|warning|info|debug\n"
	"\n"
	"Placement; brokerd.conf(5) says more of each:\n"
	"  --threshold SIZE      tasks that touch less stay on the CPU (default: 1MiB)\n"
	"  --min-count N         so do those with a smaller dynamic count (default: 64)\n"
	"  --strategy automatic|latency|energy\n"
	"                        for tasks that name none (default: automatic)\n"
	"  --energy-slack FACTOR how much longer a task may take to save energy (default: 2)\n"
	"  --speedup-threshold FACTOR\n"
	"                        what a GPU needs until both estimates are trusted (default: 1.5)\n"
	"  --window N            executions that estimates look back (default: 100)\n"
	"  --exploration SHARE   of time that may be lost to learning (default: 1%)\n"
	"  --success-rate SHARE  of a device's tasks; below it rests (default: 95%)\n"
	"  --partition-min-size SIZE, --partition-min-gain SHARE\n"
	"                        tasks that are split over devices (default: 10MiB, 20%)\n"
	"  --balance-high RATIO, --balance-low RATIO\n"
	"                        of backlogs, beyond which queued tasks move (default: 1.2, 0.8)\n"
	"  --submission-max TIME longer tasks are run in parts (default: 10ms)\n"
	"  --force-cpu yes|no    use no GPU (default: no)\n"
	"  --contention-action act|observe\n"
	"                        while others keep the CPU busy, leave some of it to them and use "
	"the\n"
	"                        GPU more (the default), or only say so\n"
	"\n"
	"  --config FILE         who may have how much, and the above as KEY = VALUE (default:\n"
	"                        /etc/ringbroker/brokerd.conf, if it is there)\n"
	"  --check-config        check that file, say what it means, and exit: 0 if it is right, 1 "
	"if\n"
	"                        not\n"
	"  --list-devices[=json] print the devices, their memory and who uses it, and exit\n"
	"  --test-device TIME    for tests of brokerd: a GPU that computes nothing and takes that "
	"long\n"
	"  --test-dmem-region NAME\n"
	"                        for tests of brokerd: what the kernel calls the memory of GPUs\n"
	"  --help, --version\n"
	"\n"
	"Signals: SIGTERM and SIGINT finish the tasks in flight and stop; a second one stops at "
	"once.\n"
	"SIGHUP reads the file again.\n"
	"Exit status: 0 after a requested stop, 1 if something broke, 2 for a wrong option or if "
	"it\n"
	"cannot start (socket in use, no permission).\n";

enum {
	OPTION_SOCKET = 256,
	OPTION_SOCKET_MODE,
	OPTION_ADMIN_SOCKET,
	OPTION_ADMIN_GROUP,
	OPTION_ADMIN_USERS,
	OPTION_METRICS,
	OPTION_GPU,
	OPTION_MEMORY_PATH,
	OPTION_GPU_TIMEOUT,
	OPTION_DEVICE_MEMORY,
	OPTION_HOST_MAX,
	OPTION_CACHE,
	OPTION_WORKERS,
	OPTION_NO_PIN,
	OPTION_SIMD,
	OPTION_SPIN,
	OPTION_TURN_BUDGET,
	OPTION_REACTOR_NICE,
	OPTION_LOG_LEVEL,
	OPTION_CALIBRATION,
	OPTION_CPU_WATTS,
	OPTION_GPU_WATTS,
	OPTION_CONTENTION,
	/* Of placement, from here ... */
	OPTION_THRESHOLD,
	OPTION_MIN_COUNT,
	OPTION_STRATEGY,
	OPTION_ENERGY_SLACK,
	OPTION_SPEEDUP_THRESHOLD,
	OPTION_WINDOW,
	OPTION_EXPLORATION,
	OPTION_SUCCESS_RATE,
	OPTION_PARTITION_MIN_SIZE,
	OPTION_PARTITION_MIN_GAIN,
	OPTION_BALANCE_HIGH,
	OPTION_BALANCE_LOW,
	OPTION_SUBMISSION_MAX,
	OPTION_FORCE_CPU,
	OPTION_CONTENTION_ACTION,
	/* ... to here. */
	OPTION_CONFIG,
	OPTION_CHECK_CONFIG,
	OPTION_LIST_DEVICES,
	OPTION_TEST_DEVICE,
	OPTION_TEST_DMEM_REGION,
	OPTION_HELP,
	OPTION_VERSION,
	OPTION_END,
};
_Static_assert(OPTION_END - OPTION_SOCKET <= 64, "options.given has a bit for each");

enum { SOCKET_PATH_BYTES = sizeof(((struct sockaddr_un *)0)->sun_path) };

static const struct option long_options[] = {
	{"socket", required_argument, NULL, OPTION_SOCKET},
	{"socket-mode", required_argument, NULL, OPTION_SOCKET_MODE},
	{"admin-socket", required_argument, NULL, OPTION_ADMIN_SOCKET},
	{"admin-group", required_argument, NULL, OPTION_ADMIN_GROUP},
	{"admin-users", required_argument, NULL, OPTION_ADMIN_USERS},
	{"metrics", required_argument, NULL, OPTION_METRICS},
	{"gpu", required_argument, NULL, OPTION_GPU},
	{"memory-path", required_argument, NULL, OPTION_MEMORY_PATH},
	{"gpu-timeout", required_argument, NULL, OPTION_GPU_TIMEOUT},
	{"device-memory", required_argument, NULL, OPTION_DEVICE_MEMORY},
	{"host-max", required_argument, NULL, OPTION_HOST_MAX},
	{"cache", required_argument, NULL, OPTION_CACHE},
	{"workers", required_argument, NULL, OPTION_WORKERS},
	{"no-pin", no_argument, NULL, OPTION_NO_PIN},
	{"simd", required_argument, NULL, OPTION_SIMD},
	{"spin", required_argument, NULL, OPTION_SPIN},
	{"turn-budget", required_argument, NULL, OPTION_TURN_BUDGET},
	{"reactor-nice", required_argument, NULL, OPTION_REACTOR_NICE},
	{"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
	{"calibration", required_argument, NULL, OPTION_CALIBRATION},
	{"cpu-watts", required_argument, NULL, OPTION_CPU_WATTS},
	{"gpu-watts", required_argument, NULL, OPTION_GPU_WATTS},
	{"contention", required_argument, NULL, OPTION_CONTENTION},
	{"threshold", required_argument, NULL, OPTION_THRESHOLD},
	{"min-count", required_argument, NULL, OPTION_MIN_COUNT},
	{"strategy", required_argument, NULL, OPTION_STRATEGY},
	{"energy-slack", required_argument, NULL, OPTION_ENERGY_SLACK},
	{"speedup-threshold", required_argument, NULL, OPTION_SPEEDUP_THRESHOLD},
	{"window", required_argument, NULL, OPTION_WINDOW},
	{"exploration", required_argument, NULL, OPTION_EXPLORATION},
	{"success-rate", required_argument, NULL, OPTION_SUCCESS_RATE},
	{"partition-min-size", required_argument, NULL, OPTION_PARTITION_MIN_SIZE},
	{"partition-min-gain", required_argument, NULL, OPTION_PARTITION_MIN_GAIN},
	{"balance-high", required_argument, NULL, OPTION_BALANCE_HIGH},
	{"balance-low", required_argument, NULL, OPTION_BALANCE_LOW},
	{"submission-max", required_argument, NULL, OPTION_SUBMISSION_MAX},
	{"force-cpu", required_argument, NULL, OPTION_FORCE_CPU},
	{"contention-action", required_argument, NULL, OPTION_CONTENTION_ACTION},
	{"config", required_argument, NULL, OPTION_CONFIG},
	{"check-config", no_argument, NULL, OPTION_CHECK_CONFIG},
	{"list-devices", optional_argument, NULL, OPTION_LIST_DEVICES},
	{"test-device", required_argument, NULL, OPTION_TEST_DEVICE},
	{"test-dmem-region", required_argument, NULL, OPTION_TEST_DMEM_REGION},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

/* A word of a fixed choice and its value. */
struct choice {
	const char *word;
	int value;
};

static const struct choice gpu_choices[] = {{"auto", VULKAN_AUTO},
					    {"software", VULKAN_SOFTWARE},
					    {"any", VULKAN_ANY},
					    {"none", VULKAN_NONE},
					    {NULL, 0}};
static const struct choice path_choices[] = {
	{"auto", VULKAN_PATH_AUTO},       {"host-import", VULKAN_PATH_HOST_IMPORT},
	{"udmabuf", VULKAN_PATH_UDMABUF}, {"exported", VULKAN_PATH_EXPORTED},
	{"staged", VULKAN_PATH_STAGED},   {NULL, 0},
};
static const struct choice simd_choices[] = {{"auto", CPU_SIMD_AUTO},
					     {"sse2", CPU_SIMD_SSE2},
					     {"avx2", CPU_SIMD_AVX2},
					     {"avx512", CPU_SIMD_AVX512},
					     {NULL, 0}};
static const struct choice list_choices[] = {
	{"text", LIST_DEVICES_TEXT}, {"json", LIST_DEVICES_JSON}, {NULL, 0}};
static const struct choice strategy_choices[] = {{"automatic", RBK_STRATEGY_AUTO},
						 {"latency", RBK_STRATEGY_LATENCY},
						 {"energy", RBK_STRATEGY_ENERGY},
						 {NULL, 0}};
static const struct choice calibration_choices[] = {
	{"auto", PROFILES_AUTO}, {"none", PROFILES_NONE}, {"now", PROFILES_NOW}, {NULL, 0}};
static const struct choice contention_choices[] = {
	{"auto", RUN_QUEUE_SOURCE_AUTO},
	{"ebpf", RUN_QUEUE_SOURCE_EBPF},
	{"schedstat", RUN_QUEUE_SOURCE_SCHEDSTAT},
	{"psi", RUN_QUEUE_SOURCE_PSI},
	{"stat", RUN_QUEUE_SOURCE_STAT},
	{"none", RUN_QUEUE_SOURCE_NONE},
	{NULL, 0},
};
static const struct choice action_choices[] = {{"act", 0}, {"observe", 1}, {NULL, 0}};
static const struct choice yes_no_choices[] = {{"yes", 1}, {"no", 0}, {NULL, 0}};
static const struct choice level_choices[] = {{"error", LOG_LEVEL_ERROR},
					      {"warning", LOG_LEVEL_WARNING},
					      {"info", LOG_LEVEL_INFO},
					      {"debug", LOG_LEVEL_DEBUG},
					      {NULL, 0}};

/* What is read: an option of the command line, or a key of a file. */
struct source {
	const char *option; /* its name */
	char *ret_wanted;   /* of a key: POLICY_WANTED_BYTES for what is allowed; else NULL */
};

/* Return: the status to exit with. */
static int refuse(const struct source *source, const char *value, const char *wanted)
{
	if (source->ret_wanted)
		snprintf(source->ret_wanted, POLICY_WANTED_BYTES, "%s", wanted);
	else
		fprintf(stderr, "brokerd: --%s wants %s, not '%s'\n", source->option, wanted,
			value);
	return OPTIONS_EXIT_USAGE;
}

static int parse_choice(const struct source *source, const char *value,
			const struct choice *choices, int *ret)
{
	char wanted[128] = "one of";

	for (const struct choice *c = choices; c->word; c++) {
		if (strcmp(value, c->word) == 0) {
			*ret = c->value;
			return -1;
		}
		strncat(wanted, " ", sizeof(wanted) - strlen(wanted) - 1);
		strncat(wanted, c->word, sizeof(wanted) - strlen(wanted) - 1);
	}
	return refuse(source, value, wanted);
}

static int parse_number(const struct source *source, const char *value, uint64_t min, uint64_t max,
			int base, uint64_t *ret)
{
	char wanted[64], *end;
	unsigned long long number;

	errno = 0;
	number = strtoull(value, &end, base);
	if (errno || end == value || *end || value[0] == '-' || number < min || number > max) {
		snprintf(wanted, sizeof(wanted),
			 base == 8 ? "an octal number from %llo to %llo"
				   : "a number from %llu to %llu",
			 (unsigned long long)min, (unsigned long long)max);
		return refuse(source, value, wanted);
	}
	*ret = number;
	return -1;
}

static int parse_size(const struct source *source, const char *value, uint64_t *ret)
{
	return size_parse(value, ret) ? -1 : refuse(source, value, "a size such as 64MiB");
}

/*
 * "1.5", "0.2" or "20%": digits and a point, nothing else that strtod() takes. Return: what follows
 * it, NULL if there is none.
 */
static const char *parse_decimal(const char *text, double *ret)
{
	size_t n = strspn(text, "0123456789");

	if (n == 0)
		return NULL;
	if (text[n] == '.')
		n += 1 + strspn(text + n + 1, "0123456789");
	if (n > 30 || text[n] == 'e' || text[n] == 'E')
		return NULL;
	*ret = strtod(text, NULL);
	return text + n;
}

static int parse_factor(const struct source *source, const char *value, double min, double max,
			float *ret)
{
	char wanted[64];
	double number;
	const char *rest = parse_decimal(value, &number);

	if (!rest || *rest || number < min || number > max) {
		snprintf(wanted, sizeof(wanted), "a factor from %g to %g", min, max);
		return refuse(source, value, wanted);
	}
	*ret = (float)number;
	return -1;
}

static int parse_watts(const struct source *source, const char *value, float *ret)
{
	double number;
	const char *rest = parse_decimal(value, &number);

	if (!rest || (*rest && strcmp(rest, "W") != 0) || number > 100000)
		return refuse(source, value, "a number of watts from 0 to 100000");
	*ret = (float)number;
	return -1;
}

/* A part of the whole, as a percentage or as a fraction; ends in percent. */
static int parse_share(const struct source *source, const char *value, double min_percent,
		       double max_percent, float *ret)
{
	char wanted[POLICY_WANTED_BYTES];
	double number;
	const char *rest = parse_decimal(value, &number);
	double percent = rest && strcmp(rest, "%") == 0 ? number : number * 100;

	if (!rest || (*rest && strcmp(rest, "%") != 0) || percent < min_percent ||
	    percent > max_percent) {
		snprintf(wanted, sizeof(wanted), "a share from %g%% to %g%%, such as %g%%",
			 min_percent, max_percent, max_percent / 2);
		return refuse(source, value, wanted);
	}
	*ret = (float)(percent / 100);
	return -1;
}

/* "10ms", "500us"; milliseconds without a unit. */
static int parse_time(const struct source *source, const char *value, double min_ms, double max_ms,
		      uint64_t *ret_ns)
{
	static const struct {
		const char *name;
		double ms;
	} units[] = {{"ms", 1}, {"us", 1e-3}, {"s", 1e3}, {"", 1}};
	char wanted[64];
	double number, ms;
	const char *rest = parse_decimal(value, &number);

	for (unsigned int i = 0; rest && i < sizeof(units) / sizeof(units[0]); i++) {
		ms = number * units[i].ms;
		if (strcmp(rest, units[i].name) != 0 || ms < min_ms || ms > max_ms)
			continue;
		*ret_ns = (uint64_t)(ms * 1e6);
		return -1;
	}
	snprintf(wanted, sizeof(wanted), "a time from %gms to %gms, such as %gms", min_ms, max_ms,
		 10.0);
	return refuse(source, value, wanted);
}

static int parse_spin(const struct source *source, const char *value, int64_t *ret)
{
	uint64_t us;
	int r;

	if (strcmp(value, "auto") == 0) {
		*ret = -1;
		return -1;
	}
	r = parse_number(source, value, 0, 1000000, 10, &us);
	if (r < 0)
		*ret = (int64_t)us * 1000;
	return r;
}

static int parse_nice(const struct source *source, const char *value, int *ret)
{
	char *end;
	long nice;

	errno = 0;
	nice = strtol(value, &end, 10);
	if (errno || end == value || *end || value[0] == ' ' || nice < -20 || nice > 19)
		return refuse(source, value, "a nice level from -20 to 19");
	*ret = (int)nice;
	return -1;
}

static int parse_path(const struct source *source, const char *value, char *ret, size_t bytes)
{
	char wanted[64];

	if (strlen(value) >= bytes || value[0] == '\0') {
		snprintf(wanted, sizeof(wanted), "a path of 1 to %zu characters", bytes - 1);
		return refuse(source, value, wanted);
	}
	strcpy(ret, value);
	return -1;
}

static int parse_metrics(const struct source *source, const char *value, struct options *options)
{
	if (strlen(value) >= sizeof(options->metrics) ||
	    metrics_address_parse(value, &options->metrics_address) == METRICS_E_ADDRESS)
		return refuse(source, value,
			      "unix:/PATH, 127.0.0.1:PORT, [::1]:PORT or none, such as "
			      "unix:/run/ringbroker/metrics.sock");
	if (metrics_address_parse(value, &options->metrics_address) == METRICS_E_ELSEWHERE)
		return refuse(source, value,
			      "an address that only this machine reaches, as nothing is encrypted "
			      "and nobody asked for a password: unix:/PATH, 127.0.0.1:PORT or "
			      "[::1]:PORT");
	strcpy(options->metrics, value);
	return -1;
}

static int parse_group(const struct source *source, const char *value, gid_t *ret)
{
	return users_find_group(value, ret)
		       ? refuse(source, value, "a group of this system or its number")
		       : -1;
}

static int parse_users(const struct source *source, const char *value, struct users *ret)
{
	char wanted[96];

	if (users_parse(value, ret) == 0)
		return -1;
	snprintf(wanted, sizeof(wanted),
		 "users of this system or their numbers, at most %d, separated by commas",
		 USERS_MAX);
	return refuse(source, value, wanted);
}

static void default_socket_path(struct options *options)
{
	const char *path = getenv("RINGBROKER_SOCKET");
	const char *runtime_dir = getenv("XDG_RUNTIME_DIR");
	size_t bytes = sizeof(options->socket_path);

	if (path && path[0]) {
		snprintf(options->socket_path, bytes, "%s", path);
	} else if (runtime_dir && runtime_dir[0]) {
		snprintf(options->socket_path, bytes, "%s/ringbroker", runtime_dir);
		mkdir(options->socket_path, 0700);
		snprintf(options->socket_path, bytes, "%s/ringbroker/brokerd.sock", runtime_dir);
	} else {
		mkdir("/run/ringbroker", 0755);
		snprintf(options->socket_path, bytes, "/run/ringbroker/brokerd.sock");
	}
}

/* Beside the other one, if that leaves room for it. */
static void default_admin_path(struct options *options)
{
	const char *path = getenv("RINGBROKER_ADMIN_SOCKET");
	size_t bytes = sizeof(options->admin_socket_path);
	int r = 0;

	if (path && path[0])
		r = (size_t)snprintf(options->admin_socket_path, bytes, "%s", path) < bytes
			    ? 0
			    : -ENAMETOOLONG;
	else
		r = rbk_admin_path_of(options->socket_path, options->admin_socket_path, bytes);
	if (r)
		options->admin_socket_path[0] = '\0';
}

/*
 * Who may do what there is decided by the kernel's word on each who connects; the permissions keep
 * the rest from trying. Users that are named need not be members of the group.
 */
static void complete_admin(struct options *options)
{
	if (!options->admin_socket_path[0])
		default_admin_path(options);
	else if (strcmp(options->admin_socket_path, "none") == 0)
		options->admin_socket_path[0] = '\0';
	if (!options->has_admin_group)
		options->has_admin_group =
			users_find_group("ringbroker", &options->admin_group) == 0;
	options->admin_socket_mode = options->admin_users.n > 0 ? 0666
				     : options->has_admin_group ? 0660
								: 0600;
}

static void default_cache_dir(struct options *options)
{
	const char *cache_home = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	size_t bytes = sizeof(options->cache_dir);

	if (geteuid() == 0) {
		snprintf(options->cache_dir, bytes, "/var/cache/ringbroker");
	} else if (cache_home && cache_home[0]) {
		snprintf(options->cache_dir, bytes, "%s/ringbroker", cache_home);
	} else if (home && home[0]) {
		snprintf(options->cache_dir, bytes, "%s/.cache/ringbroker", home);
	}
}

static void set_defaults(struct options *options)
{
	*options = (struct options){
		.place = PLACE_CONFIG_DEFAULT,
		.spin_ns = -1,
		.turn_ns = TURN_BUDGET_US * 1000ull,
		.reactor_nice = OPTIONS_NICE_DEFAULT,
		.log_level = LOG_LEVEL_INFO,
		.config_path = "/etc/ringbroker/brokerd.conf",
	};
}

/* Return: as options_parse(), for one option of placement. */
static int parse_place(int option, const struct source *source, const char *value,
		       struct place_config *config)
{
	uint64_t number = 0;
	int choice = 0, r;

	switch (option) {
	case OPTION_THRESHOLD:
		return parse_size(source, value, &config->threshold_bytes);
	case OPTION_MIN_COUNT:
		r = parse_number(source, value, 0, INT32_MAX, 10, &number);
		config->min_count = (uint32_t)number;
		return r;
	case OPTION_STRATEGY:
		r = parse_choice(source, value, strategy_choices, &choice);
		config->strategy = (uint8_t)choice;
		return r;
	case OPTION_ENERGY_SLACK:
		return parse_factor(source, value, 1, 1000, &config->energy_slack);
	case OPTION_SPEEDUP_THRESHOLD:
		return parse_factor(source, value, 0.01, 1000, &config->speedup_threshold);
	case OPTION_WINDOW:
		r = parse_number(source, value, 8, 1000, 10, &number);
		config->window = (uint32_t)number;
		return r;
	case OPTION_EXPLORATION:
		return parse_share(source, value, 0, 50, &config->exploration);
	case OPTION_SUCCESS_RATE:
		return parse_share(source, value, 0, 100, &config->success_rate);
	case OPTION_PARTITION_MIN_SIZE:
		return parse_size(source, value, &config->partition_min_bytes);
	case OPTION_PARTITION_MIN_GAIN:
		return parse_share(source, value, 0, 100, &config->partition_min_gain);
	case OPTION_BALANCE_HIGH:
		return parse_factor(source, value, 1.01, 100, &config->balance_high);
	case OPTION_BALANCE_LOW:
		return parse_factor(source, value, 0.01, 0.99, &config->balance_low);
	case OPTION_SUBMISSION_MAX:
		return parse_time(source, value, 0.1, 1000, &config->submission_max_ns);
	case OPTION_FORCE_CPU:
		r = parse_choice(source, value, yes_no_choices, &choice);
		config->force_cpu = choice;
		return r;
	default:
		return -1;
	}
}

/* Return: as options_parse(), for one option. */
static int parse_one(int option, const struct source *source, const char *value,
		     struct options *options)
{
	uint64_t number = 0;
	int choice = 0, r;

	switch (option) {
	case OPTION_SOCKET:
		return parse_path(source, value, options->socket_path, SOCKET_PATH_BYTES);
	case OPTION_SOCKET_MODE:
		r = parse_number(source, value, 0, 0777, 8, &number);
		options->socket_mode = (unsigned int)number;
		options->has_socket_mode = true;
		return r;
	case OPTION_ADMIN_SOCKET:
		options->has_admin_socket = true;
		return parse_path(source, value, options->admin_socket_path,
				  sizeof(options->admin_socket_path));
	case OPTION_ADMIN_GROUP:
		options->has_admin_group = true;
		return parse_group(source, value, &options->admin_group);
	case OPTION_ADMIN_USERS:
		return parse_users(source, value, &options->admin_users);
	case OPTION_METRICS:
		return parse_metrics(source, value, options);
	case OPTION_GPU:
		r = parse_choice(source, value, gpu_choices, &choice);
		options->vulkan.mode = (enum vulkan_mode)choice;
		return r;
	case OPTION_MEMORY_PATH:
		r = parse_choice(source, value, path_choices, &choice);
		options->vulkan.path = (enum vulkan_path)choice;
		options->vulkan.force |= choice == VULKAN_PATH_STAGED ? VULKAN_FORCE_STAGED : 0;
		return r;
	case OPTION_GPU_TIMEOUT:
		r = parse_number(source, value, 1, 3600, 10, &number);
		options->vulkan.timeout_ns = number * 1000000000;
		return r;
	case OPTION_DEVICE_MEMORY:
		return parse_size(source, value, &options->vulkan.memory_cap_bytes);
	case OPTION_HOST_MAX:
		return parse_size(source, value, &options->host_max_bytes);
	case OPTION_CACHE:
		return parse_path(source, value, options->cache_dir, sizeof(options->cache_dir));
	case OPTION_WORKERS:
		r = parse_number(source, value, 1, CPU_MAX_WORKERS, 10, &number);
		options->cpu.n_workers = (unsigned int)number;
		return r;
	case OPTION_NO_PIN:
		options->cpu.no_pin = true;
		return -1;
	case OPTION_SIMD:
		r = parse_choice(source, value, simd_choices, &choice);
		options->cpu.simd = (enum cpu_simd)choice;
		return r;
	case OPTION_SPIN:
		return parse_spin(source, value, &options->spin_ns);
	case OPTION_TURN_BUDGET:
		r = parse_number(source, value, 1, 100000, 10, &number);
		if (r < 0)
			options->turn_ns = number * 1000;
		return r;
	case OPTION_REACTOR_NICE:
		return parse_nice(source, value, &options->reactor_nice);
	case OPTION_LOG_LEVEL:
		r = parse_choice(source, value, level_choices, &choice);
		options->log_level = (enum log_level)choice;
		return r;
	case OPTION_CALIBRATION:
		r = parse_choice(source, value, calibration_choices, &choice);
		options->calibration = (enum profiles_mode)choice;
		return r;
	case OPTION_CPU_WATTS:
		return parse_watts(source, value, &options->cpu_watts);
	case OPTION_GPU_WATTS:
		return parse_watts(source, value, &options->gpu_watts);
	case OPTION_CONTENTION:
		r = parse_choice(source, value, contention_choices, &choice);
		options->contention = (enum run_queue_source)choice;
		return r;
	case OPTION_CONTENTION_ACTION:
		r = parse_choice(source, value, action_choices, &choice);
		options->observes_contention = choice;
		return r;
	case OPTION_CONFIG:
		options->config_is_required = true;
		return parse_path(source, value, options->config_path,
				  sizeof(options->config_path));
	case OPTION_CHECK_CONFIG:
		options->checks_config = true;
		return -1;
	case OPTION_LIST_DEVICES:
		r = parse_choice(source, value ? value : "text", list_choices, &choice);
		options->list_devices = (enum list_devices_format)choice;
		return r;
	case OPTION_TEST_DEVICE:
		return parse_time(source, value, 0.01, 1000, &options->test_device_ns);
	case OPTION_TEST_DMEM_REGION:
		return parse_path(source, value, options->test_dmem_region,
				  sizeof(options->test_dmem_region));
	case OPTION_HELP:
		fputs(usage_text, stdout);
		return 0;
	case OPTION_VERSION:
		puts("brokerd " RINGBROKER_VERSION);
		return 0;
	default:
		return parse_place(option, source, value, &options->place);
	}
}

/* The option that somebody meant who wrote @word. Return: NULL if it is like none. */
static const char *option_near(const char *word)
{
	const char *names[ARRAY_SIZE(long_options)];
	char name[64];

	for (size_t i = 0; i < ARRAY_SIZE(long_options); i++)
		names[i] = long_options[i].name;
	word += strspn(word, "-");
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	return suggest(name, names);
}

/* getopt_long() found no option in @argument, or not one that can stand so. */
static int refuse_argument(int option, const char *argument)
{
	const char *near = option == '?' ? option_near(argument) : NULL;

	if (near)
		fprintf(stderr, "brokerd: %s is no option of brokerd's; did you mean --%s?\n",
			argument, near);
	else
		fprintf(stderr, "brokerd: %s %s; see 'brokerd --help'\n", argument,
			option == ':' ? "is missing its value" : "is no option of brokerd's");
	return OPTIONS_EXIT_USAGE;
}

static const struct option *find_option(int value)
{
	const struct option *option = long_options;

	while (option->name && option->val != value)
		option++;
	return option;
}

int options_parse(int argc, char **argv, struct options *ret)
{
	struct source source = {.ret_wanted = NULL};
	int option, r;

	set_defaults(ret);
	/* One line says what is wrong, and it is ours. */
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
		if (option == '?' || option == ':')
			return refuse_argument(option, argv[optind - 1]);
		source.option = find_option(option)->name;
		r = parse_one(option, &source, optarg, ret);
		if (r >= 0)
			return r;
		ret->given |= 1ull << (option - OPTION_SOCKET);
	}
	if (optind < argc) {
		fprintf(stderr, "brokerd: unexpected argument '%s'; see 'brokerd --help'\n",
			argv[optind]);
		return OPTIONS_EXIT_USAGE;
	}
	return -1;
}

/* May it be in the configuration file, as KEY = VALUE? */
static bool is_key(const struct option *option)
{
	return option->has_arg == required_argument && option->val != OPTION_CONFIG &&
	       option->val != OPTION_TEST_DEVICE && option->val != OPTION_TEST_DMEM_REGION;
}

static const char *key_near(const char *key)
{
	const char *names[ARRAY_SIZE(long_options) + 1];
	size_t n = 0;

	for (const struct option *option = long_options; option->name; option++)
		if (is_key(option))
			names[n++] = option->name;
	names[n++] = POLICY_HEADROOM_KEY;
	names[n] = NULL;
	return suggest(key, names);
}

int options_read_key(void *context, const char *key, const char *value,
		     char ret_wanted[POLICY_WANTED_BYTES])
{
	const struct source source = {.option = key, .ret_wanted = ret_wanted};
	struct options *options = context, scratch;
	const struct option *option = long_options;
	const char *near;

	while (option->name && strcmp(option->name, key) != 0)
		option++;
	if (!option->name || !is_key(option)) {
		near = key_near(key);
		snprintf(ret_wanted, POLICY_WANTED_BYTES, "%s", near ? near : "");
		return POLICY_E_UNKNOWN;
	}
	/* What the command line says wins, but nothing wrong is left standing. */
	scratch = *options;
	if (parse_one(option->val, &source, value, &scratch) >= 0)
		return POLICY_E_INVALID;
	if (!(options->given & 1ull << (option->val - OPTION_SOCKET)))
		*options = scratch;
	return 0;
}

void options_print_place(FILE *stream, const struct options *options)
{
	const struct place_config *config = &options->place;
	const struct choice *strategy = strategy_choices;

	while (strategy->word && strategy->value != config->strategy)
		strategy++;
	fprintf(stream,
		"threshold = %llu; min-count = %u; strategy = %s; energy-slack = %g; "
		"speedup-threshold = %g; window = %u; exploration = %g%%; success-rate = %g%%; ",
		(unsigned long long)config->threshold_bytes, config->min_count, strategy->word,
		(double)config->energy_slack, (double)config->speedup_threshold, config->window,
		(double)config->exploration * 100, (double)config->success_rate * 100);
	fprintf(stream,
		"partition-min-size = %llu; partition-min-gain = %g%%; balance-high = %g; "
		"balance-low = %g; submission-max = %gms; force-cpu = %s; contention-action = %s",
		(unsigned long long)config->partition_min_bytes,
		(double)config->partition_min_gain * 100, (double)config->balance_high,
		(double)config->balance_low, (double)config->submission_max_ns / 1e6,
		config->force_cpu ? "yes" : "no", options->observes_contention ? "observe" : "act");
}

bool options_key_is_live(const char *key)
{
	const struct option *option = long_options;

	while (option->name && strcmp(option->name, key) != 0)
		option++;
	return option->val >= OPTION_THRESHOLD && option->val <= OPTION_CONTENTION_ACTION;
}

void options_complete(struct options *options)
{
	if (!options->socket_path[0])
		default_socket_path(options);
	if (!options->has_socket_mode)
		options->socket_mode =
			strncmp(options->socket_path, "/run/ringbroker/", 16) == 0 ? 0666 : 0600;
	complete_admin(options);
	if (!options->cache_dir[0])
		default_cache_dir(options);
	else if (strcmp(options->cache_dir, "none") == 0)
		options->cache_dir[0] = '\0';
	if (options->cache_dir[0]) {
		options->vulkan.cache_dir = options->cache_dir;
		if ((mkdir(options->cache_dir, 0700) < 0 && errno != EEXIST) ||
		    access(options->cache_dir, R_OK | W_OK | X_OK) < 0) {
			options->cache_error = errno;
			options->vulkan.cache_dir = NULL;
		}
	}
}
