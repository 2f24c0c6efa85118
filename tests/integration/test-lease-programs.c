/* SPDX-License-Identifier: MIT */
/*
 * 64 unmodified Vulkan programs under the layer, at random
 *
 *	test-lease-programs MANIFEST PROGRAM [SECONDS]
 *	amdgpu-sim run --card polaris10 -- test-lease-programs ... [SECONDS] card
 *
 * Each program has a lease of its own or shares one; it allocates, frees, exports and imports (see
 * lease-random.c). It is killed at a random moment or ends, and another program takes its place.
 * Meanwhile leases are resized, and the broker is killed and restarted.
 *
 * The charge never exceeds the budget, by the ledger (requested from the broker) and by the
 * statistics page. When all programs have been killed, nothing is left; on a card, the kernel's
 * figure must agree. The kernel's maximum is printed, not checked. Driver overhead is charged only
 * once it is seen, and an object that is sent to a program which dies before it receives it is
 * charged to no tenant.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <ringbroker/lease.h>

#include "integration/harness.h"
#include "support/lease-random.h"
#include "support/scaled.h"
#include "support/test.h"

#define MIB (1ull << 20)

enum {
	N_PROGRAMS = 64,
	BUDGET_MIB = 256,
	MAX_MIB = 32,
	KILL_MS = 200,
	RESIZE_MS = 100,
	KERNEL_MS = 50,
	SETTLE_MS = 2000, /* a restored member has named its objects by then */
};

static const char *manifest, *program;
static unsigned int seconds = 10;
static bool is_card;

static char home[] = "/tmp/rbk-programs-XXXXXX";
static char socket_path[96];
static struct broker broker;
static struct rbk *admin, *client; /* for the page; for the ledger */
static struct rbk_stats_view view;
static struct lease_random_counts *counts;
static int counts_fd, pair[2];
static pid_t pids[N_PROGRAMS];
static uint64_t seed = 0x2545f4914f6cdd1du;

/* Observations so far. */
static struct seen {
	uint64_t n_ledger, n_pages, n_kills, n_resizes, n_restarts;
	uint64_t most_charged, most_granted, most_kernel; /* bytes */
	uint32_t most_leases;
	uint64_t n_updates;     /* updates of the page, at the last look */
	uint64_t n_above;       /* leases above their maximum, for a valid reason */
	unsigned int n_strange; /* pages in a row whose leases exceed the device's charge */
	uint32_t numbers[2 * N_PROGRAMS], n_numbers;
	uint64_t maxima[2 * N_PROGRAMS];
} seen;

static uint64_t pick(uint64_t n)
{
	return (harness_random(&seed) >> 20) % n;
}

/* ---- The broker ---- */

static void start_broker(void)
{
	const char *const software[] = {"--gpu=software", "--device-memory=256MiB", NULL};
	const char *const card[] = {"--device-memory=256MiB", NULL};
	const struct broker_options options = {
		.args = is_card ? card : software,
		.is_undisturbed = true,
		.socket_path = socket_path,
		.policy = "[tenant default]\nsessions-max = 1000\n",
	};

	broker_start(&broker, &options);
	client = broker_connect(&broker, "ledger");
	if (!broker_has_gpu(client)) {
		rbk_disconnect(client);
		broker_stop(&broker);
		print_message("no Vulkan device for this here\n");
		_exit(77);
	}
	admin = broker_connect_admin(&broker, "page");
	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &view, NULL), 0);
}

static void leave_broker(void)
{
	rbk_stats_unmap(&view);
	rbk_disconnect(admin);
	rbk_disconnect(client);
}

static void restart_broker(void)
{
	broker_kill(&broker);
	leave_broker();
	broker_remove(&broker);
	/* Long enough for some programs to find no broker. */
	harness_sleep_ms((unsigned int)pick(500));
	start_broker();
	seen.n_updates = 0;
	seen.n_restarts++;
}

/* ---- The programs ---- */

static void set(const char *name, const char *format, ...)
{
	char text[512];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	setenv(name, text, 1);
}

/* Set the lease's environment, in the new process. */
static void choose_lease(uint64_t random)
{
	static const char *const waits[] = {"0", "0", "2ms", "50ms"};
	unsigned int wish = 1 + (unsigned int)(random % 12);

	if (seen.n_numbers > 0 && (random >> 20) % 4 == 0) {
		set("RINGBROKER_LEASE", "%u", seen.numbers[(random >> 24) % seen.n_numbers]);
		return;
	}
	set("RINGBROKER_LEASE_VRAM", "%uMiB", wish);
	set("RINGBROKER_LEASE_MIN", "%uMiB", 1 + (unsigned int)(random >> 8) % wish);
	set("RINGBROKER_LEASE_MAX", "%uMiB",
	    wish + (unsigned int)(random >> 12) % (MAX_MIB - wish));
	set("RINGBROKER_LEASE_WAIT", "%s", waits[(random >> 16) % 4]);
}

static void become_program(uint64_t random)
{
	char number[32], mib[16];
	const char *sanitizer = getenv("ASAN_OPTIONS");
	glob_t icd;
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)random);
	/* Up to the lease's maximum, or well above it. */
	snprintf(mib, sizeof(mib), "%u", 4 + (unsigned int)(random >> 30) % (2 * MAX_MIB));
	set("XDG_DATA_DIRS", "%s/share:/usr/share", home);
	set("HOME", "%s", home);
	set("NODEVICE_SELECT", "1");
	set("RINGBROKER_SOCKET", "%s", socket_path);
	set("RINGBROKER_VULKAN_LEASE", "1");
	/*
	 * The layer keeps its connection to the end, in pages that LeakSanitizer does not search.
	 */
	set("ASAN_OPTIONS", "%s:detect_leaks=0", sanitizer ? sanitizer : "");
	if (!is_card && glob("/usr/share/vulkan/icd.d/lvp*.json", 0, NULL, &icd) == 0) {
		set("VK_ICD_FILENAMES", "%s", icd.gl_pathv[0]);
		set("VK_DRIVER_FILES", "%s", icd.gl_pathv[0]);
	}
	choose_lease(random);
	/* The test itself should run as often as possible. */
	if (nice(10) < 0)
		_exit(126);
	/* Move all descriptors above the target numbers first, or one could overwrite another. */
	for (int i = 0; i < 3; i++)
		if (dup2((const int[]){counts_fd, pair[0], pair[1]}[i], 200 + i) < 0)
			_exit(126);
	for (int i = 0; i < 3; i++)
		if (dup2(200 + i, LEASE_RANDOM_COUNTS_FD + i) < 0)
			_exit(126);
	/* Programs print hundreds of times why they got no lease; the reason is known. */
	dup2(null_fd, STDERR_FILENO);
	close_range(LEASE_RANDOM_RECEIVE_FD + 1, ~0u, 0);
	execl(program, program, number, mib, NULL);
	_exit(127);
}

static void start_program(unsigned int i)
{
	uint64_t random = harness_random(&seed);

	pids[i] = fork();
	assert_true(pids[i] >= 0);
	if (pids[i] == 0)
		become_program(random);
}

static void end_program(unsigned int i)
{
	kill(pids[i], SIGKILL);
	assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
}

/* Replace programs that have ended; a program that crashed fails the test. */
static void replace_ended(void)
{
	int status;

	for (unsigned int i = 0; i < N_PROGRAMS; i++) {
		if (waitpid(pids[i], &status, WNOHANG) != pids[i])
			continue;
		if (WIFSIGNALED(status) || WEXITSTATUS(status) > 1)
			fail_msg("a program ended with wait status 0x%x", status);
		start_program(i);
	}
}

/* ---- Observations ---- */

static void raise_to(uint64_t *most, uint64_t value)
{
	if (value > *most)
		*most = value;
}

static uint64_t ask_ledger(void)
{
	struct rbk_tenant tenant;
	uint64_t bytes;

	assert_int_equal(rbk_tenant(client, &tenant), 0);
	bytes = tenant.devices[RBK_DEVICE_GPU].vram.used;
	if (bytes > BUDGET_MIB * MIB)
		fail_msg("by the ledger, %llu KiB are charged", (unsigned long long)bytes >> 10);
	raise_to(&seen.most_charged, bytes);
	seen.n_ledger++;
	return bytes;
}

static uint64_t n_updates(void)
{
	return __atomic_load_n(&view.page->n_updates, __ATOMIC_ACQUIRE);
}

/*
 * Return true if a restored lease may exceed its maximum, not counting objects. No member alone
 * exceeds it. But this broker may have granted credit to one member before the next member reported
 * its own. Or a member was giving credit back when the previous broker died. And memory that
 * another member pays for by now is charged twice until the objects have been named.
 */
static bool may_be_above(const struct rbk_stats_lease *lease)
{
	uint64_t bytes = lease->granted_bytes - lease->object_bytes;
	int64_t age_ns = (int64_t)(view.page->updated_at_ns - lease->opened_at_ns);

	if (!(lease->flags & RBK_STATS_LEASE_RESTORED))
		return false;
	seen.n_above++;
	return age_ns < (int64_t)harness_slow_ns(SETTLE_MS * 1000000ull) ||
	       (lease->n_members > 1 && bytes <= lease->n_members * lease->max_bytes);
}

/*
 * Check one lease: its credit covers its objects, and its grant covers its credit, including
 * objects that other members shared and left behind.
 */
static void judge_lease(const struct rbk_stats_lease *lease)
{
	if (lease->credited_bytes > lease->granted_bytes ||
	    lease->object_bytes > lease->credited_bytes ||
	    (lease->granted_bytes - lease->object_bytes > lease->max_bytes && !may_be_above(lease)))
		fail_msg("lease %u of %u members: %llu of objects, %llu of credit, %llu granted, "
			 "%llu at most",
			 lease->number, lease->n_members, (unsigned long long)lease->object_bytes,
			 (unsigned long long)lease->credited_bytes,
			 (unsigned long long)lease->granted_bytes,
			 (unsigned long long)lease->max_bytes);
}

/*
 * Read the leases and the device from the page. Return: the number of leases; UINT32_MAX if the
 * page changed meanwhile.
 */
static uint32_t read_page(uint64_t *ret_granted, struct rbk_stats_device *ret)
{
	uint64_t before = n_updates();
	struct rbk_stats_lease lease;
	uint32_t n = 0;

	*ret_granted = 0;
	if (!harness_stats_copy(&view, RBK_STATS_SECTION_DEVICES, RBK_DEVICE_GPU, ret,
				sizeof(*ret)))
		return UINT32_MAX;
	for (uint32_t i = 0; i < rbk_stats_count(&view, RBK_STATS_SECTION_LEASES); i++) {
		if (!harness_stats_copy(&view, RBK_STATS_SECTION_LEASES, i, &lease, sizeof(lease)))
			return UINT32_MAX;
		if (lease.number == 0)
			break;
		judge_lease(&lease);
		*ret_granted += lease.granted_bytes;
		if (n < 2 * N_PROGRAMS) {
			seen.numbers[n] = lease.number;
			seen.maxima[n] = lease.max_bytes;
		}
		n++;
	}
	return n_updates() == before ? n : UINT32_MAX;
}

static void look_at_page(void)
{
	struct rbk_stats_device device;
	uint64_t granted, updates = n_updates();
	uint32_t n;

	if (updates == seen.n_updates)
		return;
	n = read_page(&granted, &device);
	if (n == UINT32_MAX)
		return;
	seen.n_numbers = n < 2 * N_PROGRAMS ? n : 2 * N_PROGRAMS;
	if (n > seen.most_leases)
		seen.most_leases = n;
	seen.n_updates = updates;
	seen.n_pages++;
	raise_to(&seen.most_granted, granted);
	/* A page is written in several turns; a lease may shrink in between. */
	seen.n_strange = granted > device.memory_charged ? seen.n_strange + 1 : 0;
	if (device.memory_budget > BUDGET_MIB * MIB ||
	    device.memory_charged > device.memory_budget || seen.n_strange >= 3)
		fail_msg("by the page, %u leases have %llu KiB, %llu are charged, of %llu", n,
			 (unsigned long long)granted >> 10,
			 (unsigned long long)device.memory_charged >> 10,
			 (unsigned long long)device.memory_budget >> 10);
}

/* Return the card's memory in use by all processes; 0 without a card. */
static uint64_t kernel_bytes(void)
{
	unsigned long long bytes = 0;
	FILE *file = is_card ? fopen("/sys/class/drm/card0/device/mem_info_vram_used", "re") : NULL;

	if (!file)
		return 0;
	if (fscanf(file, "%llu", &bytes) != 1)
		bytes = 0;
	fclose(file);
	return bytes;
}

static void resize_some(void)
{
	uint32_t i;
	int r;

	if (seen.n_numbers == 0)
		return;
	i = (uint32_t)pick(seen.n_numbers);
	r = rbk_lease_resize(admin, seen.numbers[i], 1 + pick(seen.maxima[i]), NULL, NULL);
	/* The lease may have ended, or its number may have been given to another lease. */
	assert_true(r == 0 || r == -ENOENT || r == -EINVAL);
	seen.n_resizes += r == 0;
}

/* ---- The test ---- */

static void set_up(void)
{
	char folder[128] = "", path[256], whole[PATH_MAX];
	const char *const parts[] = {"/share", "/vulkan", "/implicit_layer.d"};

	assert_non_null(mkdtemp(home));
	snprintf(socket_path, sizeof(socket_path), "%s/sock", home);
	strcat(folder, home);
	for (unsigned int i = 0; i < 3; i++) {
		strcat(folder, parts[i]);
		assert_int_equal(mkdir(folder, 0700), 0);
	}
	snprintf(path, sizeof(path), "%s/lease.json", folder);
	assert_non_null(realpath(manifest, whole));
	assert_int_equal(symlink(whole, path), 0);
	counts_fd = memfd_create("counts", MFD_CLOEXEC);
	assert_int_equal(ftruncate(counts_fd, sizeof(*counts)), 0);
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, counts_fd, 0);
	assert_ptr_not_equal(counts, MAP_FAILED);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
}

static void tear_down(void)
{
	const char *const paths[] = {"/share/vulkan/implicit_layer.d/lease.json",
				     "/share/vulkan/implicit_layer.d", "/share/vulkan", "/share",
				     ""};
	char path[256];

	for (unsigned int i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", home, paths[i]);
		remove(path);
	}
}

static void let_them_run(void)
{
	uint64_t begin_ns = harness_now_ns(), end_ns = begin_ns + seconds * 1000000000ull;
	uint64_t kill_ns = begin_ns, resize_ns = begin_ns, kernel_ns = begin_ns;
	unsigned int n_restarts = seconds < 60 ? 1 : seconds / 60, i;

	/* For the given time, until memory was short, and until everything has happened. */
	while (harness_now_ns() < end_ns || counts->n_refused == 0 ||
	       counts->n_allocated < test_scaled(1000) ||
	       seen.most_charged <= BUDGET_MIB * MIB / 2 || seen.n_restarts < n_restarts ||
	       seen.n_resizes == 0 || seen.n_pages == 0) {
		uint64_t now_ns = harness_now_ns();

		ask_ledger();
		look_at_page();
		if (now_ns > kernel_ns) {
			kernel_ns = now_ns + KERNEL_MS * 1000000ull;
			raise_to(&seen.most_kernel, kernel_bytes());
		}
		if (now_ns > kill_ns) {
			kill_ns = now_ns + KILL_MS * 1000000ull;
			i = (unsigned int)pick(N_PROGRAMS);
			end_program(i);
			start_program(i);
			seen.n_kills++;
			replace_ended();
		}
		if (now_ns > resize_ns) {
			resize_ns = now_ns + RESIZE_MS * 1000000ull;
			resize_some();
		}
		if (now_ns > begin_ns + (end_ns - begin_ns) / (n_restarts + 1) *
						(seen.n_restarts + 1) &&
		    seen.n_restarts < n_restarts)
			restart_broker();
		harness_sleep_ms(2);
	}
}

/* Wait until no charge is left, and the card uses no more than @before_bytes. */
static void expect_nothing_left(uint64_t before_bytes)
{
	uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000), granted;
	struct rbk_stats_device device;
	uint32_t n;

	for (;;) {
		n = read_page(&granted, &device);
		if (n == 0 && device.memory_charged == 0 && ask_ledger() == 0 &&
		    kernel_bytes() <= before_bytes)
			return;
		if (harness_now_ns() > end_ns)
			fail_msg("%u leases are left; %llu bytes by the page, %llu by the ledger; "
				 "the kernel says %llu, after %llu before",
				 n, (unsigned long long)device.memory_charged,
				 (unsigned long long)ask_ledger(),
				 (unsigned long long)kernel_bytes(),
				 (unsigned long long)before_bytes);
		harness_sleep_ms(10);
	}
}

static void report(void)
{
	print_message(
		"%u devices, %u refused; %u allocations, %u refused, %u freed; %u exported, %u "
		"imported, %u imports refused; %u pools; %u budgets; %u ended; %llu killed, %llu "
		"resized, %llu brokers killed\n",
		counts->n_devices, counts->n_refused_devices, counts->n_allocated,
		counts->n_refused, counts->n_freed, counts->n_exported, counts->n_imported,
		counts->n_refused_imports, counts->n_pools, counts->n_asked, counts->n_ended,
		(unsigned long long)seen.n_kills, (unsigned long long)seen.n_resizes,
		(unsigned long long)seen.n_restarts);
	print_message("of %u MiB at most %llu KiB were charged (ledger, asked %llu times), %llu "
		      "granted (page, %llu updates, up to %u leases; restored ones were above "
		      "their maximum %llu times)",
		      BUDGET_MIB, (unsigned long long)seen.most_charged >> 10,
		      (unsigned long long)seen.n_ledger,
		      (unsigned long long)seen.most_granted >> 10, (unsigned long long)seen.n_pages,
		      seen.most_leases, (unsigned long long)seen.n_above);
	if (is_card)
		print_message(", %llu KiB in use (kernel)",
			      (unsigned long long)seen.most_kernel >> 10);
	print_message("\n");
}

TEST(test_programs)
{
	uint64_t before_bytes;

	set_up();
	start_broker();
	before_bytes = kernel_bytes();
	for (unsigned int i = 0; i < N_PROGRAMS; i++)
		start_program(i);
	let_them_run();
	for (unsigned int i = 0; i < N_PROGRAMS; i++)
		kill(pids[i], SIGKILL);
	for (unsigned int i = 0; i < N_PROGRAMS; i++)
		waitpid(pids[i], NULL, 0);
	/* Objects sent from one program to another are in flight in these sockets. */
	close(pair[0]);
	close(pair[1]);
	expect_nothing_left(before_bytes);
	report();
	if (counts->n_wrong)
		fail_msg("%u times something wrong, such as %d", counts->n_wrong, counts->wrong);
	assert_true(counts->n_imported > 0 && counts->n_freed > 0 && counts->n_asked > 0);
	leave_broker();
	broker_stop(&broker);
	tear_down();
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	manifest = argv[1];
	program = argv[2];
	if (argc > 3)
		seconds = (unsigned int)atoi(argv[3]);
	is_card = argc > 4 && strcmp(argv[4], "card") == 0;
	harness_limit_seconds(120 + 2 * seconds);
	return test_run(NULL, NULL);
}
