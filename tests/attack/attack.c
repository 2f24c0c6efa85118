/* SPDX-License-Identifier: MIT */
/*
 * attack ROW [--seconds N] [--sessions N] [--soak]
 *
 * One attack on a private broker, beside a neighbour; see attack.h. Prints a table of the
 * neighbour's times: beside a friend that is as busy, beside the attacker, and their ratio.
 *
 * Asserted: the broker lives, every result of the neighbour is right and none waits for a second,
 * memory is charged, others can connect afterwards, and sessions, rings, arenas, plans, charges,
 * descriptors and threads are back where they were.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/attack.h"

struct row {
	unsigned int number;
	const char *name, *what;
	void (*run)(struct attack *attack, unsigned int thread);
	enum attack_friend friend;
	unsigned int n_sessions;
	const char *policy; /* more of the attacker's section; may be NULL */
	bool must_succeed;  /* everything that the attacker asks for */
	rlim_t n_files;     /* the broker's limit of open files; 0: as it is */
	bool needs_parts;   /* the broker has measured its device, and cuts plans for it */
};

static const struct row rows[] = {
	{1, "parts", "tasks of a plan in many parts, more than slots, at once", attack_parts,
	 ATTACK_FRIEND_PRODUCTS, 1, NULL, .must_succeed = true, .needs_parts = true},
	{2, "constants", "constants that overlap, packed once per node", attack_constants,
	 ATTACK_FRIEND_SET_UP, 1, "host-max = 96MiB\n"},
	{3, "verify", "plans of 4,094 nodes", attack_verify, ATTACK_FRIEND_SET_UP, 4, NULL},
	{4, "descriptors", "sockets that linger, refused connections", attack_descriptors,
	 ATTACK_FRIEND_INLINE, 1, "sessions-max = 8\n", .n_files = 4000},
	{5, "products", "8 tasks of long products a session", attack_products,
	 ATTACK_FRIEND_PRODUCTS, 1, NULL},
	{6, "accepts", "connections without a word", attack_accepts, ATTACK_FRIEND_INLINE, 1, NULL},
	{7, "arenas", "large arenas, added and removed", attack_arenas, ATTACK_FRIEND_SET_UP, 1,
	 NULL},
	{8, "cancels", "CANCEL of what is not there, among 30,000 tasks", attack_cancels,
	 ATTACK_FRIEND_PRODUCTS, 1, NULL},
	{9, "rings", "rings of 32,768 entries, added and removed", attack_rings,
	 ATTACK_FRIEND_SET_UP, 4, NULL},
	{10, "punch", "argument tables and tensors in memory that is punched", attack_punch,
	 ATTACK_FRIEND_INLINE, 1, NULL},
	{11, "refill", "arenas that are punched and filled again", attack_refill,
	 ATTACK_FRIEND_PRODUCTS, 4, NULL},
	{12, "watch", "statistics of others", attack_watch, ATTACK_FRIEND_INLINE, 2, NULL},
	{13, "many-rings", "256 rings of one tenant, full of small tasks", attack_many_rings,
	 ATTACK_FRIEND_INLINE, 16, NULL},
	{14, "setup-flood", "plans to prepare, of many sessions", attack_setup_flood,
	 ATTACK_FRIEND_SET_UP, 16, NULL},
	{15, "bells", "bells of 960 rings, rung for nothing", attack_bells, ATTACK_FRIEND_INLINE,
	 15, NULL},
};

/*
 * A neighbour's times, to be reached; ratios of attacked to friendly. What is above them is said,
 * and fails nothing: the machine may do much else at the same time.
 */
struct limits {
	double p50, p99;
	uint64_t longest_ns;
	/* Below these a ratio says nothing: the machine's scheduler is seen, not the broker. */
	uint64_t p50_floor_ns, p99_floor_ns;
};
static const struct limits limits[ATTACK_N_KINDS] = {
	[ATTACK_INLINE] = {1.5, 2, 10000000, 100000, 2000000},
};

static const char *const kinds[ATTACK_N_KINDS] = {"inline", "product", "gpu", "set-up", "connect"};

/* No entry of a neighbour waits for so long, whatever else the machine does. */
static const uint64_t stall_ns = 1000000000;

/* The broker's memory above what it has charged. */
static const uint64_t uncharged_bytes = 64ull << 20;

static char program[4096];
static const struct row *row;
static unsigned int seconds, n_sessions;
static bool is_soak;

struct referee {
	struct broker broker;
	struct attack *attack;
	int attack_fd;
	char dir[64];
	struct rbk *rbk; /* an administrator's */
	pid_t neighbour, other;
	uint64_t peak_bytes; /* the most that was charged */
	uint64_t longest_answer_ns;
	unsigned int most_fds; /* of the broker */
	unsigned int n_wrong;
};

/* ---- Members ---- */

struct attacker_thread {
	struct attack *attack;
	unsigned int number;
	pthread_t thread;
};

static void *attacker_main(void *data)
{
	const struct attacker_thread *self = data;

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].number == self->attack->row)
			rows[i].run(self->attack, self->number);
	return NULL;
}

static void be_attacker(struct attack *attack)
{
	struct attacker_thread threads[16];

	for (unsigned int i = 0; i < attack->n_threads; i++) {
		threads[i] = (struct attacker_thread){.attack = attack, .number = i};
		if (pthread_create(&threads[i].thread, NULL, attacker_main, &threads[i]))
			attack_fail(attack, "no thread");
	}
	for (unsigned int i = 0; i < attack->n_threads; i++)
		pthread_join(threads[i].thread, NULL);
}

static int be_member(const char *fd, const char *role)
{
	struct rlimit files;
	struct attack *attack =
		mmap(NULL, sizeof(*attack), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(fd), 0);

	if (attack == MAP_FAILED)
		return 1;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (strcmp(role, "neighbour") == 0)
		attack_be_neighbour(attack);
	else if (strcmp(role, "friend") == 0)
		attack_be_friend(attack);
	else
		be_attacker(attack);
	return 0;
}

/* ---- The referee ---- */

/* Fails the test at its end. */
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
	referee->n_wrong++;
}

static void copy_path(const struct referee *referee, const char *role, char path[128])
{
	/* The friend and the attacker are one tenant. */
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

/* Return: has it ended? */
static bool has_ended(pid_t pid)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	       info.si_pid == pid;
}

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

static bool look_after(struct referee *referee)
{
	const uint64_t begin_ns = harness_now_ns();
	struct rbk_stats stats;
	unsigned int n_fds;
	int r;

	if (has_ended(referee->broker.pid)) {
		wrong(referee, "the broker has died");
		return false;
	}
	r = rbk_stats(referee->rbk, &stats);
	if (r) {
		wrong(referee, "the broker does not answer: %s", strerror(-r));
		return false;
	}
	if (harness_now_ns() - begin_ns > referee->longest_answer_ns)
		referee->longest_answer_ns = harness_now_ns() - begin_ns;
	if (stats.host_bytes > referee->peak_bytes)
		referee->peak_bytes = stats.host_bytes;
	n_fds = count_fds(referee);
	if (n_fds > referee->most_fds)
		referee->most_fds = n_fds;
	if (referee->attack->has_failed) {
		wrong(referee, "%s", referee->attack->failure);
		return false;
	}
	return true;
}

/* Return: false: something went wrong that ends the test. */
static bool run_phase(struct referee *referee, enum attack_phase phase, const char *role)
{
	struct attack *attack = referee->attack;
	const uint64_t begin_ns = harness_now_ns();
	uint64_t end_ns = begin_ns + seconds * 1000000000ull;
	bool goes_on = true;
	int status;

	atomic_store(&attack->stop, false);
	atomic_store(&attack->phase, phase);
	referee->longest_answer_ns = 0;
	referee->other = start_member(referee, role);
	/* A task or a request that is under way has its time: what counts is what it did. */
	while (goes_on && (harness_now_ns() < end_ns ||
			   (phase == ATTACK_BESIDE_ATTACKER &&
			    attack->n_done + attack->n_refused == 0 && !has_ended(referee->other) &&
			    harness_now_ns() < end_ns + harness_slow_ns(20000000000)))) {
		goes_on = look_after(referee);
		harness_sleep_ms(10);
	}
	atomic_store(&attack->stop, true);
	end_ns = harness_now_ns() + harness_slow_ns(row->must_succeed ? 30000000000 : 3000000000);
	while (goes_on && !has_ended(referee->other) && harness_now_ns() < end_ns) {
		goes_on = look_after(referee);
		harness_sleep_ms(2);
	}
	if (!has_ended(referee->other))
		kill(referee->other, SIGKILL);
	atomic_store(&attack->phase, ATTACK_BEGIN);
	waitpid(referee->other, &status, 0);
	referee->other = 0;
	if (attack->has_failed && goes_on) {
		wrong(referee, "%s", attack->failure);
		goes_on = false;
	} else if (goes_on && WIFEXITED(status) && WEXITSTATUS(status) != 0) {
		wrong(referee, "the %s has ended with %d", role, WEXITSTATUS(status));
		goes_on = false;
	}
	if (goes_on && row->must_succeed && WIFSIGNALED(status)) {
		wrong(referee, "what the attacker asked for was not done in 30 s");
		goes_on = false;
	}
	return goes_on && look_after(referee);
}

/* State of the broker while only the neighbour is there. */
struct rest {
	struct rbk_stats stats;
	struct broker_usage usage;
};

static bool is_at_rest(struct rbk_stats *stats, const struct rest *rest)
{
	/* The neighbour's own loops come and go by a plan and a session. */
	return stats->sessions <= rest->stats.sessions + 1 && stats->rings <= rest->stats.rings &&
	       stats->arenas <= rest->stats.arenas && stats->plans <= rest->stats.plans + 1 &&
	       stats->host_bytes <= rest->stats.host_bytes + (1 << 20) &&
	       stats->device_bytes <= rest->stats.device_bytes + (1 << 20);
}

/*
 * Waits until everything is as it was. What is left of the friend, after a while, is what the
 * broker keeps: @is_strict is false, and it goes to @rest. Return: how long that took.
 */
static uint64_t wait_for_rest(struct referee *referee, struct rest *rest, bool is_strict)
{
	const uint64_t patience_ns = harness_slow_ns(is_strict ? 60000000000 : 2000000000);
	const uint64_t begin_ns = harness_now_ns();
	struct broker_usage usage;
	struct rbk_stats stats;

	for (;;) {
		if (!look_after(referee) || rbk_stats(referee->rbk, &stats))
			return harness_now_ns() - begin_ns;
		if (is_at_rest(&stats, rest))
			break;
		if (harness_now_ns() - begin_ns > patience_ns) {
			if (!is_strict)
				break;
			wrong(referee,
			      "left behind: %llu sessions, %llu rings, %llu arenas, %llu plans, "
			      "%llu "
			      "bytes",
			      (unsigned long long)(stats.sessions - rest->stats.sessions),
			      (unsigned long long)(stats.rings - rest->stats.rings),
			      (unsigned long long)(stats.arenas - rest->stats.arenas),
			      (unsigned long long)(stats.plans - rest->stats.plans),
			      (unsigned long long)(stats.host_bytes - rest->stats.host_bytes));
			break;
		}
		harness_sleep_ms(1);
	}
	/* Threads and descriptors go a moment later, some by a pool's own decision. */
	const uint64_t rested_ns = harness_now_ns() - begin_ns;

	for (;;) {
		broker_usage(&referee->broker, &usage);
		if (!is_strict && harness_now_ns() - begin_ns > patience_ns / 4) {
			rest->stats = stats;
			rest->usage = usage;
			return rested_ns;
		}
		/* The neighbour's loops again. */
		if (is_strict && usage.n_fds <= rest->usage.n_fds + 8 &&
		    usage.n_threads <= rest->usage.n_threads + 1)
			return rested_ns;
		if (harness_now_ns() - begin_ns > harness_slow_ns(60000000000)) {
			wrong(referee,
			      "left behind: %u descriptors (were %u), %u threads (were %u)",
			      usage.n_fds, rest->usage.n_fds, usage.n_threads,
			      rest->usage.n_threads);
			return rested_ns;
		}
		harness_sleep_ms(20);
	}
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

/* Print the entries of `brokerctl status --json` about the reactor's turns verbatim, if any. */
static void print_turns(const struct referee *referee)
{
	char command[512], text[16384];
	const char *at = text;
	size_t n;
	FILE *pipe;

	snprintf(command, sizeof(command), "'%s' --socket='%s' status --json 2>/dev/null",
		 BROKERCTL_PATH, referee->broker.socket_path);
	pipe = popen(command, "re");
	if (!pipe)
		return;
	n = fread(text, 1, sizeof(text) - 1, pipe);
	text[n] = '\0';
	pclose(pipe);
	while ((at = strstr(at, "turn"))) {
		const char *begin = at, *end = at;

		while (begin > text && *begin != '"')
			begin--;
		while (*end && *end != ',' && *end != '\n' && *end != '}')
			end++;
		print_message("  %.*s\n", (int)(end - begin), begin);
		at = end;
	}
}

/* Return: is it within what is allowed? */
static bool print_kind(const struct referee *referee, unsigned int kind)
{
	const struct attack_times *friendly = &referee->attack->times[ATTACK_BESIDE_FRIEND][kind];
	const struct attack_times *attacked = &referee->attack->times[ATTACK_BESIDE_ATTACKER][kind];
	const uint64_t before[] = {attack_times_percentile(friendly, 50),
				   attack_times_percentile(friendly, 99), friendly->longest_ns};
	const uint64_t after[] = {attack_times_percentile(attacked, 50),
				  attack_times_percentile(attacked, 99), attacked->longest_ns};
	const struct limits *limit = &limits[kind];

	print_message("%3u %8u %-8s", row->number, n_sessions, kinds[kind]);
	for (unsigned int i = 0; i < 3; i++)
		print_message(" | %9.3f %9.3f %7.2f", (double)before[i] / 1e6,
			      (double)after[i] / 1e6,
			      before[i] ? (double)after[i] / (double)before[i] : 0.0);
	print_message(" | %llu %llu\n", (unsigned long long)friendly->n,
		      (unsigned long long)attacked->n);
	if (limit->longest_ns == 0 || referee->attack->is_slow)
		return true;
	return ((double)after[0] <= limit->p50 * (double)before[0] ||
		after[0] <= limit->p50_floor_ns) &&
	       ((double)after[1] <= limit->p99 * (double)before[1] ||
		after[1] <= limit->p99_floor_ns) &&
	       after[2] <= (before[2] > limit->longest_ns ? before[2] : limit->longest_ns);
}

static void limit_files(void)
{
	struct rlimit limit = {row->n_files, row->n_files};

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

static void begin(struct referee *referee)
{
	const char *const args[] = {"--gpu=software", "--device-memory=256MiB",
				    row->needs_parts ? "--calibration=auto" : NULL,
				    "--submission-max=1ms", NULL};
	char policy[1024], path[2][128], command[sizeof(program) + 512];
	const uint64_t gib = 1ull << 30;
	uint64_t arena_bytes = available_bytes() / 8 & ~(uint64_t)0xfffff;
	struct attack *attack;

	*referee = (struct referee){.dir = "/tmp/rbk-attack-XXXXXX"};
	assert_non_null(mkdtemp(referee->dir));
	copy_path(referee, "neighbour", path[0]);
	copy_path(referee, "attacker", path[1]);
	for (unsigned int i = 0; i < 2; i++) {
		snprintf(command, sizeof(command), "cp '%s' '%s'", program, path[i]);
		assert_int_equal(system(command), 0);
	}
	snprintf(policy, sizeof(policy),
		 "[tenant neighbour]\nmatch-exe = %s\n[tenant attacker]\nmatch-exe = %s\n%s",
		 path[0], path[1], row->policy ? row->policy : "");
	broker_start(&referee->broker,
		     &(struct broker_options){.args = args,
					      .policy = policy,
					      .in_child = row->n_files ? limit_files : NULL});

	referee->attack_fd = memfd_create("attack", 0);
	assert_true(referee->attack_fd >= 0);
	assert_int_equal(ftruncate(referee->attack_fd, sizeof(*attack)), 0);
	attack = mmap(NULL, sizeof(*attack), PROT_READ | PROT_WRITE, MAP_SHARED, referee->attack_fd,
		      0);
	assert_true(attack != MAP_FAILED);
	referee->attack = attack;
	snprintf(attack->socket_path, sizeof(attack->socket_path), "%s",
		 referee->broker.socket_path);
	attack->row = row->number;
	attack->friend = row->friend;
	attack->n_sessions = n_sessions;
	attack->n_threads = n_sessions < 4 ? n_sessions : 4;
	attack->is_slow = harness_slow_ns(1) > 1;
	attack->arena_bytes = attack->is_slow ? gib / 8 : arena_bytes < gib ? arena_bytes : gib;
	if (row->number == 10)
		attack->arena_bytes /= 4;
	attack->side = attack->is_slow ? 512 : 2048;
	referee->rbk = broker_connect_admin(&referee->broker, "referee");
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
	harness_sleep_ms(200);
}

/* Somebody new: the neighbour's tenant, and with the library. */
static void connect_afterwards(struct referee *referee)
{
	struct rbk_options options = {.size = sizeof(options),
				      .socket_path = referee->broker.socket_path,
				      .name = "afterwards",
				      .timeout_ns = harness_slow_ns(10000000000)};
	struct rbk_error error = {""};
	struct rbk *rbk = NULL;

	if (rbk_connect(&options, &rbk, &error))
		wrong(referee, "others cannot connect afterwards: %s", error.text);
	rbk_disconnect(rbk);
}

static void end(struct referee *referee)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	char path[128];
	int status;

	atomic_store(&referee->attack->phase, ATTACK_OVER);
	while (!has_ended(referee->neighbour) && harness_now_ns() < end_ns)
		harness_sleep_ms(2);
	if (!has_ended(referee->neighbour)) {
		wrong(referee, "the neighbour waits for a task");
		kill(referee->neighbour, SIGKILL);
	}
	waitpid(referee->neighbour, &status, 0);
	if (referee->attack->has_failed && referee->n_wrong == 0)
		wrong(referee, "%s", referee->attack->failure);
	if (referee->attack->n_results == 0)
		wrong(referee, "the neighbour has no results");
	rbk_disconnect(referee->rbk);
	if (referee->n_wrong == 0) {
		broker_stop(&referee->broker);
	} else {
		broker_show_log(&referee->broker);
		broker_kill(&referee->broker);
		broker_remove(&referee->broker);
	}
	for (unsigned int i = 0; i < 2; i++) {
		copy_path(referee, i ? "attacker" : "neighbour", path);
		unlink(path);
	}
	rmdir(referee->dir);
	munmap(referee->attack, sizeof(*referee->attack));
	close(referee->attack_fd);
}

static void print_table(const struct referee *referee, uint64_t rest_ns, uint64_t memory_bytes,
			bool *ret_within)
{
	const struct attack *attack = referee->attack;

	print_message("row %u, %s: %s\n", row->number, row->name, row->what);
	print_message("row sessions neighbour | p50 ms: friend, attack, ratio | p99 | longest | "
		      "tasks\n");
	*ret_within = true;
	for (unsigned int kind = 0; kind < ATTACK_N_KINDS; kind++)
		if (kind != ATTACK_GPU || attack->has_gpu)
			*ret_within &= print_kind(referee, kind);
	print_message("  attacker: %llu done, %llu refused; its longest %.3f ms; all gone after "
		      "%.1f ms; longest answer to an administrator %.3f ms\n",
		      (unsigned long long)attack->n_done, (unsigned long long)attack->n_refused,
		      (double)attack->longest_ns / 1e6, (double)rest_ns / 1e6,
		      (double)referee->longest_answer_ns / 1e6);
	print_message("  brokerd's memory: %.0f MiB more than before, charged %.0f MiB at most; %u "
		      "open files at most\n",
		      (double)memory_bytes / (1 << 20), (double)referee->peak_bytes / (1 << 20),
		      referee->most_fds);
	print_turns(referee);
}

static void test_attack(void **state)
{
	uint64_t memory_bytes, before_bytes, rest_ns = 0;
	struct referee referee;
	const struct attack_times *attacked;
	bool is_within = true;
	unsigned int n_wrong;
	struct rest rest;

	begin(&referee);
	attacked = &referee.attack->times[ATTACK_BESIDE_ATTACKER][ATTACK_INLINE];
	broker_usage(&referee.broker, &rest.usage);
	assert_int_equal(rbk_stats(referee.rbk, &rest.stats), 0);
	before_bytes = rest.usage.rss_bytes;
	if (run_phase(&referee, ATTACK_BESIDE_FRIEND, "friend")) {
		wait_for_rest(&referee, &rest, false);
		if (rest.usage.rss_bytes > before_bytes)
			before_bytes = rest.usage.rss_bytes;
		referee.peak_bytes = referee.most_fds = 0;
		if (run_phase(&referee, ATTACK_BESIDE_ATTACKER, "attacker")) {
			rest_ns = wait_for_rest(&referee, &rest, true);
			connect_afterwards(&referee);
		}
	}
	memory_bytes = high_water_bytes(&referee);
	memory_bytes -= memory_bytes < before_bytes ? memory_bytes : before_bytes;
	print_table(&referee, rest_ns, memory_bytes, &is_within);
	if (row->number == 12 && referee.attack->n_refused > 0)
		wrong(&referee, "the attacker saw figures of others");
	if (!is_within)
		print_message("  times: above what is to be reached\n");
	if (attacked->longest_ns > stall_ns && !referee.attack->is_slow)
		wrong(&referee, "a neighbour's entry waited for %.1f s",
		      (double)attacked->longest_ns / 1e9);
	if (memory_bytes > referee.peak_bytes + uncharged_bytes && !referee.attack->is_slow)
		wrong(&referee, "the broker has more memory than is charged");
	if (row->n_files && referee.most_fds > row->n_files / 2)
		wrong(&referee, "the broker has too many open files");
	n_wrong = referee.n_wrong;
	end(&referee);
	if (n_wrong > 0)
		fail_msg("row %u: see above", row->number);
}

static int usage(void)
{
	fprintf(stderr, "usage: attack ROW [--seconds=N] [--sessions=N] [--soak]\nrows:\n");
	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		fprintf(stderr, "  %2u %-12s %s\n", rows[i].number, rows[i].name, rows[i].what);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seconds", required_argument, NULL, 't'},
						{"sessions", required_argument, NULL, 'n'},
						{"soak", no_argument, NULL, 's'},
						{NULL, 0, NULL, 0}};
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_attack)};
	int option;

	if (argc == 4 && strcmp(argv[1], "member") == 0)
		return be_member(argv[2], argv[3]);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 't')
			seconds = (unsigned int)atoi(optarg);
		else if (option == 'n')
			n_sessions = (unsigned int)atoi(optarg);
		else if (option == 's')
			is_soak = true;
		else
			return usage();
	}
	for (unsigned int i = 0; optind < argc && i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(argv[optind], rows[i].name) == 0 ||
		    strtoul(argv[optind], NULL, 10) == rows[i].number)
			row = &rows[i];
	if (!row || readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		return usage();
	if (seconds == 0)
		seconds = is_soak ? 60 : 2;
	if (n_sessions == 0)
		n_sessions = is_soak ? 64 : row->n_sessions;
	harness_limit_seconds(120 + 2 * seconds);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
