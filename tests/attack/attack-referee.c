/* SPDX-License-Identifier: MIT */
/*
 * The referee: runs one row, and watches the broker meanwhile; see attack.h
 *
 * Windows of the attacker and of the friend take turns; with --quick, the friend only visits after
 * each attack. Before each window only the neighbour runs, so every attack must leave the broker as
 * it was. A first visit of the friend, whose times do not
 * count, shows how much memory the broker keeps. From then on the friend uses as much processor
 * time as the attacker did before it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ringbroker/admin.h>

#include "attack/attack.h"
#include "support/test.h"

/* Limit of a neighbour's entry, in ns, whatever the load of the machine. */
static const uint64_t stall_ns = 1000000000;

/* Duration of the friend's first visit, in ns. */
static const uint64_t visit_ns = 100000000;

/* Longest window of the friend beside an attacker that has to reach a number of results, in ns. */
static const uint64_t longest_visit_ns = 20000000000;

/* Longest window of such an attacker, in ns. */
static const uint64_t longest_count_ns = 36000000000000;

/* Limit of the broker's memory above its charges, in bytes. */
static const uint64_t uncharged_bytes = 64ull << 20;

/* Limit of memory kept after an attack, in bytes: the C library holds freed pieces. */
static const uint64_t kept_bytes = 64ull << 20;

static const struct attack_row *row;
static uint64_t n_files; /* argument of limit_files() */

struct referee {
	struct broker broker;
	struct attack *attack;
	const struct attack_options *options;
	struct attack_result *result;
	int attack_fd;
	char dir[64];
	struct rbk *rbk; /* connection of an administrator */
	struct rbk_stats_view view;
	pid_t neighbour, other;
	struct attack_witness witness;
	uint64_t peak_bytes; /* peak of the charges in this window, in bytes */
};

/* Print an error; the row fails at its end. */
static void wrong(struct referee *referee, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void wrong(struct referee *referee, const char *format, ...)
{
	va_list arguments;
	char text[768];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	print_message("WRONG: %s\n", text);
	referee->result->n_wrong++;
}

/* ---- Members ---- */

static void copy_path(const struct referee *referee, const char *role, char path[128])
{
	/* Friend and attacker belong to one tenant. */
	snprintf(path, 128, "%s/%s", referee->dir,
		 strcmp(role, "neighbour") == 0 ? role : "attacker");
}

static pid_t start_member(const struct referee *referee, const char *role)
{
	pid_t pid = fork();
	char path[128], fd[16];

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	alarm(0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("LD_LIBRARY_PATH", LIBRARY_DIR, 1);
	copy_path(referee, role, path);
	snprintf(fd, sizeof(fd), "%d", referee->attack_fd);
	execl(path, path, "member", fd, role, (char *)NULL);
	_exit(127);
}

static bool has_ended(pid_t pid)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	       info.si_pid == pid;
}

/* Return true if a member that the referee has not killed died of a signal, and print that. */
static bool has_crashed(struct referee *referee, const char *role, int status)
{
	if (!WIFSIGNALED(status))
		return false;
	wrong(referee, "the %s has died of signal %d (%s): see above", role, WTERMSIG(status),
	      strsignal(WTERMSIG(status)));
	return true;
}

/* ---- The broker ---- */

static unsigned int count_fds(const struct referee *referee)
{
	char path[64];
	unsigned int n = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)referee->broker.pid);
	folder = opendir(path);
	while (folder && readdir(folder))
		n++;
	if (folder)
		closedir(folder);
	return n;
}

/* Print what the threads of the broker and of the members wait for. */
static void show_all_threads(const struct referee *referee)
{
	harness_show_threads("brokerd", referee->broker.pid);
	harness_show_threads("neighbour", referee->neighbour);
	if (referee->other > 0)
		harness_show_threads("friend or attacker", referee->other);
}

/*
 * Check the broker and note its peaks.
 * Return: true if no error occurred so far.
 */
static bool look_after(struct referee *referee)
{
	const uint64_t begin_ns = harness_now_ns();
	struct attack_result *result = referee->result;
	const bool is_attacked = referee->attack->phase == ATTACK_BESIDE_ATTACKER;
	struct rbk_stats stats;
	uint64_t answer_ns;
	unsigned int n_fds;
	int r;

	if (has_ended(referee->broker.pid)) {
		wrong(referee, "the broker has died");
		return false;
	}
	r = rbk_stats(referee->rbk, &stats);
	if (r) {
		wrong(referee, "the broker does not answer: %s", strerror(-r));
		show_all_threads(referee);
		return false;
	}
	answer_ns = harness_now_ns() - begin_ns;
	if (is_attacked && answer_ns > result->longest_answer_ns)
		result->longest_answer_ns = answer_ns;
	if (stats.host_bytes > referee->peak_bytes)
		referee->peak_bytes = stats.host_bytes;
	n_fds = count_fds(referee);
	if (is_attacked && n_fds > result->most_fds)
		result->most_fds = n_fds;
	if (referee->attack->has_failed) {
		wrong(referee, "%s", referee->attack->failure);
		show_all_threads(referee);
		return false;
	}
	return true;
}

/* Reset the kernel's peak resident size of the broker. */
static void reset_high_water(const struct referee *referee)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", (int)referee->broker.pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "5", 1), 1);
	close(fd);
}

static uint64_t high_water_bytes(const struct referee *referee)
{
	char path[64], line[256];
	uint64_t kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)referee->broker.pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "VmHWM:", 6) == 0)
			kib = strtoull(line + 6, NULL, 10);
	if (file)
		fclose(file);
	return kib * 1024;
}

/* Add the reactor's turns since the last reset. */
static void take_turns(struct referee *referee, struct attack_turns *turns)
{
	struct rbk_stats_broker broker = {0};
	struct rbk_stats_tenant tenant;

	/* The page is at most this old. */
	harness_sleep_ms(150);
	if (!harness_stats_copy(&referee->view, RBK_STATS_SECTION_BROKER, 0, &broker,
				sizeof(broker)))
		return;
	for (unsigned int i = 0; i < RBK_TURN_CAUSES; i++)
		turns->n_overruns += broker.n_turn_overruns[i];
	if (broker.longest_turn_ns <= turns->longest_ns)
		return;
	turns->longest_ns = broker.longest_turn_ns;
	turns->cause = broker.longest_turn_cause;
	turns->tenant[0] = '\0';
	for (uint32_t i = 0; i < rbk_stats_count(&referee->view, RBK_STATS_SECTION_TENANTS); i++)
		if (harness_stats_copy(&referee->view, RBK_STATS_SECTION_TENANTS, i, &tenant,
				       sizeof(tenant)) &&
		    tenant.number == broker.longest_turn_tenant && tenant.number != 0)
			memcpy(turns->tenant, tenant.name, sizeof(turns->tenant));
}

/* ---- Windows ---- */

/* Return true if the window must last longer than its time. */
static bool is_waited_for(const struct referee *referee, uint64_t n_before)
{
	const struct attack *attack = referee->attack;

	if (has_ended(referee->other))
		return false;
	if (attack->n_begun < attack->n_threads)
		return true;
	/*
	 * Let a task or request in progress complete: without a completion the window says nothing.
	 */
	return attack->phase == ATTACK_BESIDE_ATTACKER &&
	       attack->n_done + attack->n_refused <=
		       n_before + referee->options->n_least / referee->options->n_windows;
}

/* Return the processor time of a process so far, in ns; 0 after its end. */
static uint64_t processor_ns(pid_t pid)
{
	struct timespec time = {0};
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) == 0)
		clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static struct attack_load look_at_load(const struct referee *referee)
{
	return (struct attack_load){
		.wall_ns = harness_now_ns(),
		.member_ns = processor_ns(referee->other),
		.broker_ns = processor_ns(referee->broker.pid),
	};
}

/* Add the load between @begin and @end; omit a member that ended by itself. */
static void add_load(struct attack_load *load, const struct attack_load *begin,
		     const struct attack_load *end)
{
	if (end->member_ns < begin->member_ns)
		return;
	load->wall_ns += end->wall_ns - begin->wall_ns;
	load->member_ns += end->member_ns - begin->member_ns;
	load->broker_ns += end->broker_ns - begin->broker_ns;
}

/*
 * Run one window.
 * Return: false after an error that ends the row.
 */
static bool run_window(struct referee *referee, enum attack_phase phase, const char *role,
		       uint64_t window_ns)
{
	struct attack *attack = referee->attack;
	const uint64_t n_before = attack->n_done + attack->n_refused;
	const uint64_t most_ns =
		harness_now_ns() +
		(referee->options->n_least ? longest_count_ns : harness_slow_ns(30000000000));
	struct attack_load begin = {0}, now;
	uint64_t end_ns = 0;
	bool goes_on = true, is_killed = false;
	int status;

	assert_int_equal(rbk_stats_reset(referee->rbk, RBK_STATS_ALL, 0, NULL), 0);
	atomic_store(&attack->stop, false);
	atomic_store(&attack->n_begun, 0);
	atomic_store(&attack->phase, phase);
	referee->other = start_member(referee, role);
	do {
		goes_on = look_after(referee);
		harness_sleep_ms(10);
		if (is_waited_for(referee, n_before) && harness_now_ns() < most_ns)
			end_ns = 0;
		else if (end_ns == 0)
			end_ns = harness_now_ns() + window_ns;
		/* A member's work before its window begins does not count as its load. */
		now = look_at_load(referee);
		if (begin.wall_ns == 0 && attack->n_begun >= attack->n_threads)
			begin = now;
	} while (goes_on && (end_ns == 0 || harness_now_ns() < end_ns));
	if (begin.wall_ns > 0)
		add_load(&referee->result->loads[phase], &begin, &now);
	atomic_store(&attack->stop, true);
	/* A restrained tenant's request takes a second. The broker clears up either way. */
	end_ns = harness_now_ns() + (row->must_succeed ? harness_slow_ns(30000000000) : 3000000000);
	while (goes_on && !has_ended(referee->other) && harness_now_ns() < end_ns) {
		goes_on = look_after(referee);
		harness_sleep_ms(2);
	}
	if (!has_ended(referee->other)) {
		kill(referee->other, SIGKILL);
		is_killed = true;
	}
	waitpid(referee->other, &status, 0);
	referee->other = 0;
	if (attack->has_failed && goes_on) {
		wrong(referee, "%s", attack->failure);
		goes_on = false;
	} else if (goes_on && WIFEXITED(status) && WEXITSTATUS(status) != 0) {
		wrong(referee, "the %s has ended with %d", role, WEXITSTATUS(status));
		goes_on = false;
	}
	if (goes_on && !is_killed && has_crashed(referee, role, status))
		goes_on = false;
	if (goes_on && row->must_succeed && is_killed) {
		wrong(referee, "what the attacker asked for was not done in 30 s");
		goes_on = false;
	}
	goes_on = goes_on && look_after(referee);
	atomic_store(&attack->phase, ATTACK_BEGIN);
	return goes_on;
}

/* ---- Between windows ---- */

/*
 * Size of the broker's arena for measuring a device. The broker measures a device whose profile is
 * stale when no task runs there; the arena is charged to the broker, and not left behind by a
 * client.
 */
static const uint64_t measuring_bytes = 17 << 20;

/* Return the sum of the tenants' charges, which exclude the broker's own measurements. */
static uint64_t tenants_bytes(const struct rbk_stats_view *view)
{
	struct rbk_stats_tenant tenant;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_TENANTS); i++)
		if (harness_stats_copy(view, RBK_STATS_SECTION_TENANTS, i, &tenant, sizeof(tenant)))
			bytes += tenant.host_used;
	return bytes;
}

/*
 * Read the charges.
 * Return: 0, or the error of rbk_stats().
 */
static int look_at_charges(struct referee *referee, struct attack_rest *ret)
{
	int r = rbk_stats(referee->rbk, &ret->stats);

	ret->tenants_bytes = tenants_bytes(&referee->view);
	return r;
}

static bool is_at_rest(const struct attack_rest *now, const struct attack_rest *then)
{
	const struct rbk_stats *stats = &now->stats, *before = &then->stats;

	/* The neighbour's loops add and remove one plan, one session and its ring. */
	return stats->sessions <= before->sessions + 1 && stats->rings <= before->rings + 1 &&
	       stats->arenas <= before->arenas && stats->plans <= before->plans + 1 &&
	       now->tenants_bytes <= then->tenants_bytes + (1 << 20) &&
	       stats->host_bytes <= before->host_bytes + measuring_bytes &&
	       stats->device_bytes <= before->device_bytes + (1 << 20);
}

static bool has_resources_back(const struct referee *referee, const struct broker_usage *usage,
			       const struct broker_usage *before)
{
	/* Slack for the neighbour's loops. */
	return usage->n_fds <= before->n_fds + 12 && usage->n_threads <= before->n_threads + 1 &&
	       (referee->attack->is_slow || usage->rss_bytes <= before->rss_bytes + kept_bytes);
}

/*
 * Wait until the friend's remains are no longer shrinking; *@ret is then the memory that the broker
 * keeps.
 */
static bool settle(struct referee *referee, struct attack_rest *ret)
{
	const uint64_t quiet_ns = 300000000,
		       end_ns = harness_now_ns() + harness_slow_ns(2000000000);
	uint64_t since_ns = harness_now_ns();
	struct attack_rest rest = {.usage = {.n_fds = 0}};

	do {
		*ret = rest;
		if (!look_after(referee) || look_at_charges(referee, &rest))
			return false;
		broker_usage(&referee->broker, &rest.usage);
		/* Ignore the changes by the neighbour's loops. */
		if (rest.usage.n_fds + 12 < ret->usage.n_fds ||
		    rest.usage.n_threads != ret->usage.n_threads ||
		    rest.tenants_bytes + (1 << 20) < ret->tenants_bytes)
			since_ns = harness_now_ns();
		harness_sleep_ms(20);
	} while (harness_now_ns() - since_ns < quiet_ns && harness_now_ns() < end_ns);
	*ret = rest;
	return true;
}

/*
 * Wait until all figures are back.
 * Return: false after an error that ends the row.
 */
static bool wait_for_rest(struct referee *referee)
{
	const uint64_t begin_ns = harness_now_ns(), patience_ns = harness_slow_ns(60000000000);
	const struct attack_rest *before = &referee->result->before;
	struct attack_rest *after = &referee->result->after;
	bool is_back = false;

	for (;;) {
		if (!look_after(referee) || look_at_charges(referee, after))
			return false;
		if (!is_back && is_at_rest(after, before)) {
			is_back = true;
			if (harness_now_ns() - begin_ns > referee->result->rest_ns)
				referee->result->rest_ns = harness_now_ns() - begin_ns;
		}
		broker_usage(&referee->broker, &after->usage);
		/* Threads and descriptors follow a moment later; a pool delays some of them. */
		if (is_back && has_resources_back(referee, &after->usage, &before->usage))
			return true;
		if (harness_now_ns() - begin_ns > patience_ns)
			break;
		harness_sleep_ms(is_back ? 10 : 1);
	}
	wrong(referee,
	      "left behind: %lld sessions, %lld rings, %lld arenas, %lld plans, %lld bytes "
	      "charged, "
	      "%d descriptors, %d threads, %lld bytes of memory",
	      (long long)(after->stats.sessions - before->stats.sessions),
	      (long long)(after->stats.rings - before->stats.rings),
	      (long long)(after->stats.arenas - before->stats.arenas),
	      (long long)(after->stats.plans - before->stats.plans),
	      (long long)(after->stats.host_bytes - before->stats.host_bytes),
	      (int)(after->usage.n_fds - before->usage.n_fds),
	      (int)(after->usage.n_threads - before->usage.n_threads),
	      (long long)(after->usage.rss_bytes - before->usage.rss_bytes));
	return false;
}

/* Connect as the neighbour's tenant, and with the library. */
static void connect_afterwards(struct referee *referee)
{
	struct rbk_options options = {.size = sizeof(options),
				      .socket_path = referee->broker.socket_path,
				      .name = "afterwards",
				      .timeout_ns = harness_slow_ns(10000000000)};
	struct rbk_error error = {""};
	struct rbk_arena *arena = NULL;
	struct rbk_ring *ring = NULL;
	struct rbk *rbk = NULL;

	if (rbk_connect(&options, &rbk, &error)) {
		wrong(referee, "others cannot connect afterwards: %s", error.text);
		return;
	}
	if (rbk_ring_new(rbk, 8, &ring, &error) || rbk_arena_new(rbk, 65536, &arena, &error))
		wrong(referee, "others have nothing afterwards: %s", error.text);
	if (arena)
		rbk_arena_free(arena);
	if (ring)
		rbk_ring_free(ring);
	rbk_disconnect(rbk);
}

/* Note the window's peak of the broker's memory above its charges; judge() permits 64 MiB. */
static void judge_memory(struct referee *referee)
{
	struct attack_result *result = referee->result;
	const struct attack_rest *before = &result->before;
	uint64_t memory_bytes = high_water_bytes(referee), charged_bytes = referee->peak_bytes;

	memory_bytes -=
		memory_bytes < before->usage.rss_bytes ? memory_bytes : before->usage.rss_bytes;
	charged_bytes -=
		charged_bytes < before->stats.host_bytes ? charged_bytes : before->stats.host_bytes;
	if (memory_bytes > result->memory_bytes) {
		result->memory_bytes = memory_bytes;
		result->charged_bytes = charged_bytes;
	}
	if (memory_bytes > charged_bytes && memory_bytes - charged_bytes > result->excess_bytes)
		result->excess_bytes = memory_bytes - charged_bytes;
}

/* Return the length of the friend's window, in ns; an attacker with n_least took @attacker_ns. */
static uint64_t friend_ns(const struct referee *referee, uint64_t attacker_ns)
{
	uint64_t ns = attacker_ns / 2 < longest_visit_ns ? attacker_ns / 2 : longest_visit_ns;

	return referee->options->n_least > 0 && ns > referee->options->window_ns
		       ? ns
		       : referee->options->window_ns;
}

static bool run_windows(struct referee *referee)
{
	struct attack_result *result = referee->result;

	if (!run_window(referee, ATTACK_BEGIN, "friend", visit_ns) ||
	    !settle(referee, &result->before))
		return false;
	for (unsigned int i = 0; i < referee->options->n_windows; i++) {
		const struct attack_load *load = &result->loads[ATTACK_BESIDE_ATTACKER];

		reset_high_water(referee);
		referee->peak_bytes = 0;
		if (!run_window(referee, ATTACK_BESIDE_ATTACKER, "attacker",
				referee->options->window_ns))
			return false;
		judge_memory(referee);
		if (!wait_for_rest(referee))
			return false;
		take_turns(referee, &result->turns[ATTACK_BESIDE_ATTACKER]);
		if (load->wall_ns > 0)
			referee->attack->busy_permille =
				(unsigned int)(load->member_ns * 1000 / load->wall_ns);
		/* A quick row sees that honest tasks of the attacker's tenant still run. */
		if (!run_window(referee,
				referee->options->is_quick ? ATTACK_BEGIN : ATTACK_BESIDE_FRIEND,
				"friend",
				referee->options->is_quick
					? visit_ns
					: friend_ns(referee, load->wall_ns / (i + 1))) ||
		    !wait_for_rest(referee))
			return false;
		if (referee->options->is_quick)
			continue;
		take_turns(referee, &result->turns[ATTACK_BESIDE_FRIEND]);
	}
	connect_afterwards(referee);
	return true;
}

/* ---- The beginning and the end ---- */

static void limit_files(void)
{
	struct rlimit limit = {n_files, n_files};

	setrlimit(RLIMIT_NOFILE, &limit);
}

static uint64_t available_bytes(void)
{
	uint64_t kib = 0;
	char line[256];
	FILE *file = fopen("/proc/meminfo", "re");

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "MemAvailable:", 13) == 0)
			kib = strtoull(line + 13, NULL, 10);
	if (file)
		fclose(file);
	return kib * 1024;
}

static void start_broker(struct referee *referee)
{
	char policy[1024] = "", path[2][128], command[sizeof(referee->dir) + 4096 + 512],
	     metrics[128];
	const char *args[8] = {"--gpu=software", "--device-memory=256MiB", "--submission-max=1ms"};
	unsigned int n_args = 3;

	copy_path(referee, "neighbour", path[0]);
	copy_path(referee, "attacker", path[1]);
	for (unsigned int i = 0; i < 2; i++) {
		snprintf(command, sizeof(command), "cp '%s' '%s'", referee->options->program,
			 path[i]);
		assert_int_equal(system(command), 0);
	}
	if (row->needs_parts)
		args[n_args++] = "--calibration=auto";
	if (row->arguments)
		args[n_args++] = row->arguments;
	snprintf(referee->attack->metrics_path, sizeof(referee->attack->metrics_path), "%s/metrics",
		 referee->dir);
	snprintf(metrics, sizeof(metrics), "--metrics=unix:%s", referee->attack->metrics_path);
	if (row->has_metrics)
		args[n_args++] = metrics;
	if (!row->is_one_tenant)
		snprintf(policy, sizeof(policy),
			 "[tenant neighbour]\nmatch-exe = %s\n[tenant attacker]\nmatch-exe = "
			 "%s\n%s",
			 path[0], path[1], row->policy ? row->policy : "");
	n_files = row->n_files;
	broker_start(&referee->broker,
		     &(struct broker_options){.args = args,
					      .policy = policy,
					      .in_child = row->n_files ? limit_files : NULL});
}

/*
 * Choose sizes so that no row exhausts the test machine's memory, whatever the number of sessions.
 */
static void choose_sizes(struct attack *attack)
{
	const uint64_t gib = 1ull << 30;
	uint64_t arena_bytes = available_bytes() / 8;

	attack->is_slow = harness_slow_ns(1) > 1;
	if (attack->is_slow)
		arena_bytes = gib / 8;
	else if (arena_bytes > gib)
		arena_bytes = gib;
	if (row->run == attack_punch)
		arena_bytes /= 4;
	if (attack->n_sessions > 4)
		arena_bytes /= attack->n_sessions / 4;
	attack->arena_bytes = (arena_bytes & ~(uint64_t)0xfffff) + (1 << 20);
	if (attack->n_sessions > 64 || attack->is_slow)
		attack->side = 256;
	else
		attack->side = attack->n_sessions > 8 ? 1024 : 2048;
}

static void begin(struct referee *referee)
{
	struct attack *attack;

	snprintf(referee->dir, sizeof(referee->dir), "/tmp/rbk-attack-XXXXXX");
	assert_non_null(mkdtemp(referee->dir));
	referee->attack_fd = memfd_create("attack", 0);
	assert_true(referee->attack_fd >= 0);
	assert_int_equal(ftruncate(referee->attack_fd, sizeof(*attack)), 0);
	attack = mmap(NULL, sizeof(*attack), PROT_READ | PROT_WRITE, MAP_SHARED, referee->attack_fd,
		      0);
	assert_true(attack != MAP_FAILED);
	referee->attack = attack;
	referee->result->attack = attack;
	start_broker(referee);
	snprintf(attack->socket_path, sizeof(attack->socket_path), "%s",
		 referee->broker.socket_path);
	memcpy(attack->admin_path, referee->broker.admin_path, sizeof(attack->admin_path));
	attack->row = row->number;
	attack->friend = row->friend;
	attack->n_sessions = referee->options->n_sessions;
	attack->n_threads = attack->n_sessions < 4 ? attack->n_sessions : 4;
	attack->neighbour_rests = referee->options->neighbour_rests;
	choose_sizes(attack);
	referee->rbk = broker_connect_admin(&referee->broker, "referee");
	assert_int_equal(rbk_stats_map(referee->rbk, RBK_STATS_ALL, 0, &referee->view, NULL), 0);
	referee->neighbour = start_member(referee, "neighbour");
	for (uint64_t end_ns = harness_now_ns() + harness_slow_ns(60000000000);
	     attack->n_ready < ATTACK_N_KINDS;) {
		if (attack->has_failed || has_ended(referee->neighbour) ||
		    harness_now_ns() > end_ns) {
			broker_show_log(&referee->broker);
			fail_msg("the neighbour has not begun: %s", attack->failure);
		}
		harness_sleep_ms(2);
	}
	harness_sleep_ms(100);
	if (!attack->is_slow)
		attack_witness_start(&referee->witness, attack);
}

/* Judge everything but times. The only time judged is that of an entry that practically starved. */
static void judge(struct referee *referee)
{
	const struct attack *attack = referee->attack;
	const struct attack_times *attacked = &attack->times[ATTACK_BESIDE_ATTACKER][ATTACK_INLINE];
	const struct attack_result *result = referee->result;

	if (row->run == attack_watch && attack->n_refused > 0)
		wrong(referee, "the attacker saw figures of others");
	if (row->n_files && result->most_fds > row->n_files / 2)
		wrong(referee, "the broker has too many open files");
	if (attack->is_slow)
		return;
	if (attacked->longest_ns > stall_ns)
		wrong(referee, "a neighbour's entry waited for %.1f s",
		      (double)attacked->longest_ns / 1e9);
	if (result->excess_bytes > uncharged_bytes)
		wrong(referee, "the broker has more memory than is charged");
}

static void end(struct referee *referee)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	bool is_killed = false;
	char path[128];
	int status;

	attack_witness_stop(&referee->witness);
	atomic_store(&referee->attack->phase, ATTACK_OVER);
	while (!has_ended(referee->neighbour) && harness_now_ns() < end_ns)
		harness_sleep_ms(2);
	if (!has_ended(referee->neighbour)) {
		wrong(referee, "the neighbour waits for a task");
		show_all_threads(referee);
		kill(referee->neighbour, SIGKILL);
		is_killed = true;
	}
	waitpid(referee->neighbour, &status, 0);
	if (!is_killed)
		has_crashed(referee, "neighbour", status);
	if (referee->attack->has_failed && referee->result->n_wrong == 0)
		wrong(referee, "%s", referee->attack->failure);
	if (referee->attack->n_results == 0)
		wrong(referee, "the neighbour has no results");
	/* Now all entries of the neighbour have completed, and their times are recorded. */
	judge(referee);
	rbk_stats_unmap(&referee->view);
	rbk_disconnect(referee->rbk);
	if (referee->result->n_wrong == 0) {
		broker_stop(&referee->broker);
	} else {
		broker_show_log(&referee->broker);
		broker_kill(&referee->broker);
		broker_remove(&referee->broker);
	}
	unlink(referee->attack->metrics_path);
	for (unsigned int i = 0; i < 2; i++) {
		copy_path(referee, i ? "attacker" : "neighbour", path);
		unlink(path);
	}
	rmdir(referee->dir);
	close(referee->attack_fd);
}

void attack_referee(const struct attack_row *which, const struct attack_options *options,
		    struct attack_result *ret)
{
	struct referee referee = {.options = options, .result = ret};

	row = which;
	*ret = (struct attack_result){.row = which, .options = options};
	begin(&referee);
	run_windows(&referee);
	end(&referee);
}

void attack_result_deinit(struct attack_result *result)
{
	munmap((void *)result->attack, sizeof(*result->attack));
}
