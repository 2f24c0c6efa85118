/* SPDX-License-Identifier: MIT */
/*
 * test-fight card|software|card-graphs|software-graphs [SECONDS [SEED]]
 *
 * Three tenants compete for a device of a real broker. The device is a simulated RX 580 with 8 GiB
 * (the test runs under amdgpu-sim run), or a software Vulkan device limited to 256 MiB, whose
 * results are checked. Fighters do everything that clients may do (fight-fighter.c), die and
 * restart. The referee lowers limits below use and raises them again; other processes allocate the
 * card's memory. Meanwhile no tenant allocates beyond its maximum, every claim of a reserve is
 * granted, and every task completes once with the right result. At the end the broker holds
 * nothing.
 *
 * Graphs: most plans are larger than what their tenant may have on the device, so that the broker
 * cuts them into segments, which come and go. The limits change ten times a second, and so do
 * leases (fight-lender.c). A card is reset every few seconds. It has 384 MiB, and computes nothing:
 * results of tasks that ran on the CPU alone are checked.
 *
 * Tenants are matched by user if possible, else by user and executable: copies of this program. The
 * seed, which is printed, determines what happens, but not when.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "integration/fight.h"
#include "integration/harness.h"
#include "support/test.h"

#define MIB (1ull << 20)

enum {
	SHORT_MS = 3000,
	POLICY_BYTES = 2048,
	FIRST_UID = 40101,
	TICK_MS = 10,
	/* Average intervals, in ticks. */
	KILL_EVERY = 120,
	RELOAD_EVERY = 80,
	RELOAD_EVERY_OF_GRAPHS = 10,
	HOG_EVERY = 70,
	RESET_EVERY = 300,
	QUIET_EVERY = 200,
};

/* Driver overhead; the broker's BUDGET_OVERHEAD_BYTES. */
#define OVERHEAD_BYTES (64 * MIB)

static const struct fight_tenant of_card[FIGHT_TENANTS] = {
	{"steady", 0, 4096 * MIB, 3072 * MIB, 1024 * MIB, 60, true},
	{"shared", 0, 5120 * MIB, 2560 * MIB, 1024 * MIB, 28, false},
	{"greedy", 0, 7168 * MIB, 2048 * MIB, 0, 0, false},
};
static const struct fight_tenant of_software[FIGHT_TENANTS] = {
	{"steady", 0, 128 * MIB, 96 * MIB, 64 * MIB, 14, true},
	{"shared", 0, 160 * MIB, 96 * MIB, 32 * MIB, 3, false},
	{"greedy", 0, 224 * MIB, 64 * MIB, 0, 0, false},
};

static const struct mode {
	const char *name;
	bool is_card, is_large, has_graphs; /* as in struct fight */
	uint64_t device_bytes;
	unsigned int
		host_max_mib; /* with crossing blocks of up to 64 MiB for each plan that is cut */
} modes[] = {
	{"card", true, true, false, 8192 * MIB, 320},
	{"software", false, false, false, 256 * MIB, 1024},
	{"card-graphs", true, false, true, 384 * MIB, 4096},
	{"software-graphs", false, false, true, 256 * MIB, 4096},
};

static char program[4096]; /* path of this program */
static const struct mode *mode;
static uint64_t n_ms = SHORT_MS, seed;

struct referee {
	struct fight *fight; /* shared with all members */
	int fight_fd;
	uint64_t random;
	struct broker broker;
	struct rbk *rbk;
	pid_t members[FIGHT_MEMBERS];
	pid_t hog; /* 0: none */
	int hog_fd;
	unsigned int n_kills, n_reloads, n_hogs, n_quiet, n_resets;
	uint64_t most_device_bytes, most_kernel_bytes, first_kernel_bytes;
};

static uint32_t below(struct referee *referee, uint32_t n)
{
	return (uint32_t)(harness_random(&referee->random) >> 16) % n;
}

/* ---- The policy ---- */

static void copy_path(const struct referee *referee, unsigned int tenant, char path[96])
{
	snprintf(path, 96, "%s/%s", referee->broker.dir, referee->fight->tenants[tenant].name);
}

/*
 * Write the policy into @text. Each maximum is the reserve plus @percent of the rest of the mildest
 * maximum; vram-high never exceeds the maximum.
 */
static void make_policy(const struct referee *referee, const unsigned int percent[FIGHT_TENANTS],
			char *text)
{
	size_t n = 0;

	for (unsigned int i = 0; i < FIGHT_TENANTS; i++) {
		const struct fight_tenant *tenant = &referee->fight->tenants[i];
		uint64_t max = tenant->reserve_bytes +
			       (tenant->max_bytes - tenant->reserve_bytes) / 100 * percent[i];
		uint64_t high = tenant->high_bytes < max ? tenant->high_bytes : max;

		n += (size_t)snprintf(
			text + n, POLICY_BYTES - n,
			"[tenant %s]\nmatch-uid = %u\nvram-max = %llu\nvram-high = %llu\n"
			"vram-reserve = %llu\nhost-max = %uMiB\ngtt-max = 100MiB\n",
			tenant->name, (unsigned int)tenant->uid, (unsigned long long)max,
			(unsigned long long)high, (unsigned long long)tenant->reserve_bytes,
			mode->host_max_mib);
		if (geteuid() != 0) {
			char path[96];

			copy_path(referee, i, path);
			n += (size_t)snprintf(text + n, POLICY_BYTES - n, "match-exe = %s\n", path);
		}
	}
	assert_true(n < POLICY_BYTES);
}

/* Reload a policy with random maxima, sometimes below use, sometimes the full ones. */
static void reload(struct referee *referee)
{
	static unsigned int last;
	unsigned int percent[FIGHT_TENANTS];
	char policy[POLICY_BYTES];

	for (unsigned int i = 0; i < FIGHT_TENANTS; i++)
		percent[i] = below(referee, 2) ? 100 : below(referee, 100);
	/*
	 * The policy always changes, because the broker does not log an unchanged one as a change.
	 */
	last = (last + 1) % 2;
	percent[FIGHT_TENANTS - 1] = last ? 5 + below(referee, 40) : 60 + below(referee, 41);
	make_policy(referee, percent, policy);
	broker_write_policy(&referee->broker, policy);
	broker_reload(&referee->broker, "again: ");
	referee->n_reloads++;
}

/* ---- Members ---- */

static int be_member(struct fight *fight, unsigned int member)
{
	if (member < FIGHT_FIGHTERS)
		return fight_fighter(fight, member);
	return member < FIGHT_FIGHTERS + FIGHT_TENANTS ? fight_watcher(fight, member)
						       : fight_lender(fight, member);
}

static void start_member(struct referee *referee, unsigned int member)
{
	const struct fight_tenant *tenant = &referee->fight->tenants[fight_tenant_of(member)];
	char path[96], fd[16], number[16];
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0) {
		referee->members[member] = pid;
		return;
	}
	alarm(0);
	if (geteuid() == 0) {
		if (setgid(tenant->uid) < 0 || setuid(tenant->uid) < 0)
			fight_fail(referee->fight, member, "cannot be user %u",
				   (unsigned int)tenant->uid);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(be_member(referee->fight, member));
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	copy_path(referee, fight_tenant_of(member), path);
	snprintf(fd, sizeof(fd), "%d", referee->fight_fd);
	snprintf(number, sizeof(number), "%u", member);
	execl(path, path, "member", fd, number, (char *)NULL);
	fight_fail(referee->fight, member, "%s: %s", path, strerror(errno));
}

static void fail_fight(struct referee *referee, const char *what, unsigned int member, int status)
{
	/* A member that fails has recorded the failure before it ended. */
	broker_show_log(&referee->broker);
	if (referee->fight->has_failed)
		fail_msg("seed %llu: %s", (unsigned long long)seed, referee->fight->failure);
	fail_msg("seed %llu: %s (member %u, wait status 0x%x)", (unsigned long long)seed, what,
		 member, status);
}

/* Fail if a member has ended by itself. */
static void look_after_members(struct referee *referee)
{
	int status;

	for (unsigned int i = 0; i < referee->fight->n_members; i++)
		if (waitpid(referee->members[i], &status, WNOHANG) == referee->members[i]) {
			referee->members[i] = 0;
			fail_fight(referee, "a member has died", i, status);
		}
	if (waitpid(referee->broker.pid, &status, WNOHANG) == referee->broker.pid) {
		referee->broker.pid = 0;
		fail_fight(referee, "the broker has died", 0, status);
	}
}

static void kill_one(struct referee *referee)
{
	unsigned int member = below(referee, FIGHT_FIGHTERS);
	int status;

	kill(referee->members[member], SIGKILL);
	assert_int_equal(waitpid(referee->members[member], &status, 0), referee->members[member]);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_fight(referee, "a member has died", member, status);
	referee->n_kills++;
	start_member(referee, member);
}

static void end_members(struct referee *referee)
{
	uint64_t start_ns = harness_now_ns();
	int status = 0;

	referee->fight->stop = true;
	for (unsigned int i = 0; i < referee->fight->n_members; i++) {
		while (waitpid(referee->members[i], &status, WNOHANG) == 0) {
			if (harness_now_ns() - start_ns > 2 * harness_slow_ns(FIGHT_BOUND_NS))
				fail_fight(referee, "does not end", i, 0);
			harness_sleep_ms(2);
		}
		referee->members[i] = 0;
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			fail_fight(referee, "ended badly", i, status);
	}
}

/* ---- The kernel's figures ---- */

/* Read one client's memory from a descriptor's fdinfo: "drm-memory-vram:\t123 KiB". */
static bool read_fdinfo(const char *path, uint64_t *ret_client, uint64_t *ret_bytes)
{
	unsigned long long client = 0, kib = 0;
	bool is_drm = false;
	FILE *file = fopen(path, "re");
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		is_drm |= sscanf(line, "drm-client-id: %llu", &client) == 1;
		sscanf(line, "drm-memory-vram: %llu KiB", &kib);
	}
	if (file)
		fclose(file);
	*ret_client = client;
	*ret_bytes = kib * 1024;
	return is_drm;
}

/* Return the card's memory that the broker holds by its fdinfo, counting each client once. */
static uint64_t kernel_bytes(const struct referee *referee)
{
	uint64_t clients[64], bytes, total = 0;
	unsigned int n = 0;
	struct dirent *entry;
	DIR *directory;
	char path[300];

	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)referee->broker.pid);
	directory = opendir(path);
	assert_non_null(directory);
	while ((entry = readdir(directory)) && n < 64) {
		unsigned int k = 0;

		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%s", (int)referee->broker.pid,
			 entry->d_name);
		if (entry->d_name[0] == '.' || !read_fdinfo(path, &clients[n], &bytes))
			continue;
		while (clients[k] != clients[n])
			k++;
		if (k < n)
			continue;
		n++;
		total += bytes;
	}
	closedir(directory);
	assert_true(n > 0);
	return total;
}

static void look_at_broker(struct referee *referee)
{
	struct rbk_stats stats;
	uint64_t bytes;

	assert_int_equal(rbk_stats(referee->rbk, &stats), 0);
	if (stats.device_bytes > referee->most_device_bytes)
		referee->most_device_bytes = stats.device_bytes;
	/* On the card, GTT is counted too. */
	if (stats.device_bytes >
	    mode->device_bytes + (mode->is_card ? FIGHT_TENANTS * 100 * MIB : 0))
		fail_fight(referee, "more is charged than there is", 0, 0);
	if (stats.sessions_ended_hostile)
		fail_fight(referee, "a session broke a rule", 0, 0);
	if (!mode->is_card)
		return;
	bytes = kernel_bytes(referee);
	if (bytes > referee->most_kernel_bytes)
		referee->most_kernel_bytes = bytes;
}

/* ---- Other processes on the card ---- */

static void start_hog(struct referee *referee)
{
	/* The hog leaves the tenants' reserves and the broker's headroom free. */
	uint64_t most = mode->device_bytes / MIB * 19 / 20 - 2 * OVERHEAD_BYTES / MIB;
	uint32_t least = mode->is_large ? 256 : 16;
	char size[32];
	int ends[2];

	for (unsigned int i = 0; i < FIGHT_TENANTS; i++)
		most -= referee->fight->tenants[i].reserve_bytes / MIB;
	snprintf(size, sizeof(size), "%uMiB", least + below(referee, (uint32_t)most - least));
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	referee->hog = fork();
	assert_true(referee->hog >= 0);
	if (referee->hog == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[0], STDIN_FILENO);
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
		execl(AMDGPU_SIM_PATH, "amdgpu-sim", "hog", "--vram", size, (char *)NULL);
		_exit(127);
	}
	close(ends[0]);
	referee->hog_fd = ends[1];
	referee->n_hogs++;
}

static void stop_hog(struct referee *referee)
{
	int status;

	if (referee->hog <= 0)
		return;
	kill(referee->hog, below(referee, 2) ? SIGKILL : SIGTERM);
	close(referee->hog_fd);
	assert_int_equal(waitpid(referee->hog, &status, 0), referee->hog);
	referee->hog = 0;
	assert_true(WIFSIGNALED(status));
}

static void reset_card(struct referee *referee)
{
	char command[sizeof(AMDGPU_SIM_PATH) + 64];

	snprintf(command, sizeof(command), "'%s' reset card0%s", AMDGPU_SIM_PATH,
		 below(referee, 2) ? " --vram-lost" : "");
	assert_int_equal(system(command), 0);
	referee->n_resets++;
}

/* ---- The fight ---- */

static uint64_t now_charged(const struct referee *referee)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < FIGHT_TENANTS; i++)
		bytes += referee->fight->sights[i].used_bytes + referee->fight->sights[i].gtt_bytes;
	return bytes;
}

static bool is_quiet(const struct referee *referee)
{
	for (unsigned int i = 0; i < FIGHT_FIGHTERS; i++)
		if (!referee->fight->scores[i].is_quiet)
			return false;
	for (unsigned int i = 0; mode->has_graphs && i < FIGHT_LENDERS; i++)
		if (!referee->fight->loans[i].is_quiet)
			return false;
	return true;
}

/* Pause all fighters, and check that the ledger, the tenants' figures and the kernel's agree. */
static void be_quiet(struct referee *referee)
{
	uint64_t start_ns = harness_now_ns();
	struct rbk_stats stats = {0};
	uint64_t charged = 1, vram = 0, kernel = 0;

	stop_hog(referee);
	referee->fight->pause = true;
	do {
		harness_sleep_ms(5);
		look_after_members(referee);
		if (harness_now_ns() - start_ns > 2 * harness_slow_ns(FIGHT_BOUND_NS)) {
			print_message("ledger %llu, tenants %llu, kernel %llu, in flight %llu\n",
				      (unsigned long long)stats.device_bytes,
				      (unsigned long long)charged, (unsigned long long)kernel,
				      (unsigned long long)stats.tasks_in_flight);
			fail_fight(referee, "sums differ when all is quiet", 0, 0);
		}
		if (!is_quiet(referee))
			continue;
		charged = now_charged(referee);
		vram = charged;
		for (unsigned int i = 0; i < FIGHT_TENANTS; i++)
			vram -= referee->fight->sights[i].gtt_bytes;
		assert_int_equal(rbk_stats(referee->rbk, &stats), 0);
		kernel = mode->is_card ? kernel_bytes(referee) : 0;
	} while (!is_quiet(referee) || stats.device_bytes != charged || stats.tasks_in_flight > 0 ||
		 kernel > vram + OVERHEAD_BYTES);
	referee->fight->pause = false;
	referee->n_quiet++;
}

/* Return true if tasks have run on several devices, leases have been granted, and cards were lost.
 */
static bool was_fight_of_graphs(const struct referee *referee)
{
	const struct fight *fight = referee->fight;
	uint64_t n_partitioned = 0;

	for (unsigned int i = 0; i < FIGHT_FIGHTERS; i++)
		n_partitioned += fight->scores[i].n_partitioned;
	for (unsigned int i = 0; i < FIGHT_LENDERS; i++)
		if (fight->loans[i].n_taken == 0)
			return false;
	return n_partitioned > 0 && (!mode->is_card || referee->n_resets > 0);
}

/*
 * Return true if every tenant has had results and evictions, each lone fighter has claimed its
 * reserve, and the referee has killed members, reloaded policies and, on the card, started hogs.
 */
static bool was_fight(const struct referee *referee)
{
	const struct fight *fight = referee->fight;
	uint64_t n_results[FIGHT_TENANTS] = {0}, n_claims[FIGHT_TENANTS] = {0};

	for (unsigned int i = 0; i < FIGHT_FIGHTERS; i++) {
		n_results[fight_tenant_of(i)] += fight->scores[i].n_results;
		n_claims[fight_tenant_of(i)] += fight->scores[i].n_claims;
	}
	for (unsigned int i = 0; i < FIGHT_TENANTS; i++)
		if (n_results[i] == 0 || fight->sights[i].n_evictions == 0 ||
		    (fight->tenants[i].is_alone && !fight->may_be_lost && n_claims[i] == 0))
			return false;
	if (mode->has_graphs && !was_fight_of_graphs(referee))
		return false;
	return referee->n_kills > 0 && referee->n_reloads > 0 &&
	       (!mode->is_card || referee->n_hogs > 0);
}

static void tick(struct referee *referee)
{
	harness_sleep_ms(TICK_MS);
	look_after_members(referee);
	look_at_broker(referee);
	if (below(referee, KILL_EVERY) == 0)
		kill_one(referee);
	if (below(referee, mode->has_graphs ? RELOAD_EVERY_OF_GRAPHS : RELOAD_EVERY) == 0)
		reload(referee);
	if (below(referee, QUIET_EVERY) == 0)
		be_quiet(referee);
	if (mode->is_card && below(referee, HOG_EVERY) == 0) {
		if (referee->hog)
			stop_hog(referee);
		else
			start_hog(referee);
	}
	if (referee->fight->may_be_lost && below(referee, RESET_EVERY) == 0)
		reset_card(referee);
}

static void report(const struct referee *referee)
{
	const struct fight *fight = referee->fight;
	uint64_t n_tasks = 0;

	for (unsigned int i = 0; i < FIGHT_TENANTS; i++) {
		const struct fight_sight *sight = &fight->sights[i];
		struct fight_score sum = {0};

		for (unsigned int k = 0; k < FIGHT_FIGHTERS; k++) {
			const struct fight_score *score = &fight->scores[k];

			if (fight_tenant_of(k) != i)
				continue;
			sum.n_tasks += score->n_tasks;
			sum.n_results += score->n_results;
			sum.n_on_gpu += score->n_on_gpu;
			sum.n_partitioned += score->n_partitioned;
			sum.n_checked += score->n_checked;
			sum.n_refused += score->n_refused;
			sum.n_cancelled += score->n_cancelled;
			sum.n_plans += score->n_plans;
			sum.n_plans_refused += score->n_plans_refused;
			sum.n_claims += score->n_claims;
			if (score->longest_claim_ns > sum.longest_claim_ns)
				sum.longest_claim_ns = score->longest_claim_ns;
		}
		n_tasks += sum.n_tasks;
		print_message(
			"%s: %llu entries, %llu results (%llu on the GPU, %llu on several "
			"devices; %llu checked), %llu refused, %llu cancelled, %llu plans (%llu "
			"refused), %llu evictions, %llu returns, most "
			"used %llu of %llu MiB, %llu claims of the reserve (longest %llu ms), seen "
			"%llu times, %llu above a lowered maximum\n",
			fight->tenants[i].name, (unsigned long long)sum.n_tasks,
			(unsigned long long)sum.n_results, (unsigned long long)sum.n_on_gpu,
			(unsigned long long)sum.n_partitioned, (unsigned long long)sum.n_checked,
			(unsigned long long)sum.n_refused, (unsigned long long)sum.n_cancelled,
			(unsigned long long)sum.n_plans, (unsigned long long)sum.n_plans_refused,
			(unsigned long long)sight->n_evictions,
			(unsigned long long)sight->n_returns,
			(unsigned long long)(sight->most_bytes / MIB),
			(unsigned long long)(fight->tenants[i].max_bytes / MIB),
			(unsigned long long)sum.n_claims,
			(unsigned long long)(sum.longest_claim_ns / 1000000),
			(unsigned long long)sight->n_looks, (unsigned long long)sight->n_over);
	}
	for (unsigned int i = 0; mode->has_graphs && i < FIGHT_LENDERS; i++)
		print_message(
			"leases of %s: %llu opened, %llu times more and %llu times less, %llu "
			"times refused\n",
			fight->tenants[fight_tenant_of(FIGHT_FIRST_LENDER + i)].name,
			(unsigned long long)fight->loans[i].n_opened,
			(unsigned long long)fight->loans[i].n_taken,
			(unsigned long long)fight->loans[i].n_given,
			(unsigned long long)fight->loans[i].n_refused);
	print_message("all: %llu entries, %u kills, %u reloads, %u hogs, %u resets, %u quiet "
		      "points, most charged %llu MiB, most by fdinfo %llu MiB\n",
		      (unsigned long long)n_tasks, referee->n_kills, referee->n_reloads,
		      referee->n_hogs, referee->n_resets, referee->n_quiet,
		      (unsigned long long)(referee->most_device_bytes / MIB),
		      (unsigned long long)(referee->most_kernel_bytes / MIB));
}

/* Return the broker's figures after the sessions of its start have ended. */
static struct rbk_stats at_rest(const struct referee *referee)
{
	struct rbk_stats before, stats = {.host_bytes = 0};

	broker_wait_sessions(referee->rbk, 1);
	do {
		before = stats;
		harness_sleep_ms(100);
		assert_int_equal(rbk_stats(referee->rbk, &stats), 0);
	} while (stats.host_bytes != before.host_bytes);
	return stats;
}

/*
 * Check that the log has no warnings and errors but those about memory that the card's driver moved
 * for other processes, and about the loss of the card. A machine with a journal has no levels in
 * the log.
 */
static void expect_no_complaints(struct referee *referee)
{
	FILE *log = fopen(referee->broker.log_path, "re");
	char line[1024];

	assert_non_null(log);
	while (fgets(line, sizeof(line), log)) {
		const bool is_warning = strstr(line, "<4>") || strstr(line, "<3>");

		if (!is_warning || strstr(line, "its driver moved") ||
		    (referee->fight->may_be_lost &&
		     (strstr(line, "is lost") || strstr(line, "was reset"))))
			continue;
		print_message("%s", line);
		fail_fight(referee, "the broker complained", 0, 0);
	}
	fclose(log);
}

/* Check that the broker holds nothing but the referee's own session. */
static void expect_nothing_left(struct referee *referee, const struct rbk_stats *before)
{
	uint64_t start_ns = harness_now_ns();
	struct rbk_stats stats;

	broker_wait_sessions(referee->rbk, 1);
	do {
		assert_int_equal(rbk_stats(referee->rbk, &stats), 0);
		assert_true(harness_now_ns() - start_ns < harness_slow_ns(FIGHT_BOUND_NS));
		harness_sleep_ms(5);
		/* The driver's memory is counted until the kernel has freed it. */
	} while (stats.host_bytes > before->host_bytes || stats.device_bytes > 0);
	assert_fields(stats, (host_bytes, before->host_bytes), (device_bytes, 0), (plans, 0),
		      (arenas, before->arenas), (rings, before->rings), (tasks_in_flight, 0));
	if (mode->is_card)
		assert_true(kernel_bytes(referee) <= OVERHEAD_BYTES);
	expect_no_complaints(referee);
}

static void copy_program(const struct referee *referee)
{
	char path[96], command[sizeof(program) + 128];

	for (unsigned int i = 0; i < FIGHT_TENANTS; i++) {
		copy_path(referee, i, path);
		snprintf(command, sizeof(command), "cp '%s' '%s'", program, path);
		assert_int_equal(system(command), 0);
	}
	setenv("LD_LIBRARY_PATH", LIBRARY_DIR, 1);
}

/* Make brokerd take the log for the stream to a journal, so that lines have levels. */
static void take_log_for_journal(void)
{
	char stream[64];
	struct stat status;

	if (access("/run/systemd/journal/socket", F_OK) == 0 || fstat(STDERR_FILENO, &status))
		return;
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)status.st_dev,
		 (unsigned long long)status.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
}

static void begin(struct referee *referee)
{
	static const unsigned int all[FIGHT_TENANTS] = {100, 100, 100};
	static const char *const card_args[] = {"--socket-mode=0666", "--threshold=0", NULL};
	static const char *const software_args[] = {"--socket-mode=0666", "--threshold=0",
						    "--gpu=software", "--device-memory=256MiB",
						    NULL};
	const struct broker_options options = {.args = mode->is_card ? card_args : software_args,
					       .policy = "",
					       .in_child = take_log_for_journal};
	char policy[POLICY_BYTES];

	*referee = (struct referee){.random = seed * 0x9e3779b97f4a7c15ull | 1};
	referee->fight_fd = memfd_create("fight", 0);
	assert_true(referee->fight_fd >= 0);
	assert_int_equal(ftruncate(referee->fight_fd, sizeof(struct fight)), 0);
	referee->fight = mmap(NULL, sizeof(struct fight), PROT_READ | PROT_WRITE, MAP_SHARED,
			      referee->fight_fd, 0);
	assert_true(referee->fight != MAP_FAILED);
	referee->fight->seed = seed;
	referee->fight->is_card = mode->is_card;
	referee->fight->is_large = mode->is_large;
	referee->fight->has_graphs = mode->has_graphs;
	referee->fight->may_be_lost = mode->is_card && mode->has_graphs;
	referee->fight->n_members = mode->has_graphs ? FIGHT_MEMBERS : FIGHT_FIRST_LENDER;
	memcpy(referee->fight->tenants, mode->is_large ? of_card : of_software, sizeof(of_card));
	for (unsigned int i = 0; i < FIGHT_TENANTS; i++)
		referee->fight->tenants[i].uid = geteuid() ? geteuid() : FIRST_UID + i;

	broker_start(&referee->broker, &options);
	assert_int_equal(chmod(referee->broker.dir, 0711), 0);
	snprintf(referee->fight->socket_path, sizeof(referee->fight->socket_path), "%s",
		 referee->broker.socket_path);
	if (geteuid() != 0)
		copy_program(referee);
	make_policy(referee, all, policy);
	broker_write_policy(&referee->broker, policy);
	broker_reload(&referee->broker, "again: ");
	referee->rbk = broker_connect_admin(&referee->broker, "referee");
	if (!broker_has_gpu(referee->rbk)) {
		rbk_disconnect(referee->rbk);
		broker_stop(&referee->broker);
		print_message("no Vulkan device here\n");
		_exit(77);
	}
}

TEST(test_fight__three_tenants)
{
	struct rbk_stats before;
	struct referee referee;
	uint64_t end_ns;

	print_message("seed %llu, %llu ms\n", (unsigned long long)seed, (unsigned long long)n_ms);
	begin(&referee);
	before = at_rest(&referee);
	for (unsigned int i = 0; i < referee.fight->n_members; i++)
		start_member(&referee, i);
	end_ns = harness_now_ns() + n_ms * 1000000;
	while (harness_now_ns() < end_ns || !was_fight(&referee)) {
		tick(&referee);
		if (harness_now_ns() > end_ns + 2 * harness_slow_ns(FIGHT_BOUND_NS))
			break;
	}
	be_quiet(&referee);
	end_members(&referee);
	report(&referee);
	assert_true(was_fight(&referee));
	expect_nothing_left(&referee, &before);
	rbk_disconnect(referee.rbk);
	broker_stop(&referee.broker);
	munmap(referee.fight, sizeof(*referee.fight));
	close(referee.fight_fd);
}

/* Run one member in a copy of this program, where it cannot become another user. */
static int be_copy(const char *fd, const char *member)
{
	struct fight *fight =
		mmap(NULL, sizeof(*fight), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(fd), 0);

	return fight == MAP_FAILED ? 1 : be_member(fight, (unsigned int)atoi(member));
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "member") == 0)
		return be_copy(argv[2], argv[3]);
	if (argc < 2 || argc > 4)
		return 2;
	if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		return 2;
	for (unsigned int i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(argv[1], modes[i].name) == 0)
			mode = &modes[i];
	if (!mode)
		return 2;
	if (argc > 2)
		n_ms = strtoull(argv[2], NULL, 10) * 1000;
	seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
	harness_limit_seconds((unsigned int)(n_ms / 1000) + 240);
	return test_run(NULL, NULL);
}
