/* SPDX-License-Identifier: MIT */
/*
 * Leases and cgroups: the lease of a process by its cgroup, and limits that the kernel enforces
 *
 * Processes are real, so that they can be stopped; their cgroups, and the cgroups' files, are
 * fakes. See broker/lease/enforce.h and broker/lease/process.h.
 */
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lease/enforce.h"
#include "lease/lease.h"
#include "lease/process.h"
#include "support/test.h"
#include "tenant/policy-private.h"
#include "tenant/tenant.h"
#include "util/clock.h"

enum { DEVICE = 1, NOBODY = 65534, N_PROCESSES = 3 };
#define MIB    (1ull << 20)
#define REGION "drm/0000:03:00.0/vram"

static struct account_book *book;
static struct tenants *tenants;
static struct leases leases;
static struct enforce *enforce;
static struct lease *lease;
static struct lease_member holder; /* e.g. brokerctl exec, which uses no device memory */
static char dir[64], proc[96], cgroups[96];
static pid_t pids[N_PROCESSES];

static void on_lowered(void *context)
{
}

static void put(const char *folder, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void make_folder(const char *folder, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(mkdir(path, 0755), 0);
}

/* Write the files of a process to the fake /proc: its real ones, but with @cgroup. */
static void show(pid_t pid, const char *cgroup)
{
	static const char *const files[] = {"stat", "status"};
	char path[128], folder[128], text[8192];

	snprintf(folder, sizeof(folder), "%s/%d", proc, (int)pid);
	assert_true(mkdir(folder, 0755) == 0 || access(folder, F_OK) == 0);
	for (unsigned int i = 0; i < 2; i++) {
		FILE *file;
		size_t n;

		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i]);
		file = fopen(path, "re");
		assert_non_null(file);
		n = fread(text, 1, sizeof(text) - 1, file);
		text[n] = '\0';
		fclose(file);
		put(folder, files[i], text);
	}
	snprintf(text, sizeof(text), "1:cpu:/elsewhere\n0::%s\n", cgroup);
	put(folder, "cgroup", text);
}

/* Start a process that does nothing, and ends with the test. */
static pid_t start(void)
{
	int pipes[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (getuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) < 0)
			_exit(1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (write(pipes[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	close(pipes[0]);
	close(pipes[1]);
	return pid;
}

static uid_t their_uid(void)
{
	return getuid() == 0 ? NOBODY : getuid();
}

static struct policy *load(void)
{
	static const char text[] = "[tenant default]\nlease-tolerance = 8MiB\nlease-audit = stop\n"
				   "lease-required = yes\n";
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};

	assert_int_equal(policy_load_text("f", text, strlen(text), NULL, &policy, &errors), 0);
	return policy;
}

static struct lease *lend(const char *cgroup, uid_t uid, struct lease_member *member,
			  uint64_t bytes)
{
	const struct lease_about about = {
		.tenant = tenants_first(tenants),
		.uid = uid,
		.device = DEVICE,
		.min_bytes = 1,
		.wish_bytes = bytes,
		.max_bytes = 2 * bytes,
		.name = "test",
	};
	struct lease *made;
	struct stat status;
	char path[256];
	int fd;

	assert_int_equal(lease_new(&leases, &about, &made), 0);
	assert_int_equal(lease_grant(made, bytes, false), 0);
	*member = (struct lease_member){.lease = NULL};
	lease_join(made, member, 0);
	snprintf(path, sizeof(path), "%s/%s", cgroups, cgroup);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &status) == 0);
	assert_int_equal(lease_set_cgroup(made, &fd, status.st_ino), 0);
	return made;
}

static int setup(void **state)
{
	const struct tenants_machine machine = {
		.host_bytes = 1 << 30,
		.vram_bytes = {[DEVICE] = 1 << 30},
		.n_devices = 2,
		.n_fds = 1000,
		.n_mappings = 1000,
	};
	struct enforce_options options = {.leases = &leases,
					  .n_devices = 2,
					  .proc = proc,
					  .cgroups = cgroups,
					  .lowered = on_lowered};
	struct policy_errors errors = {.n = 0};

	strcpy(dir, "/tmp/test-enforce-cgroup-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(proc, sizeof(proc), "%s/proc", dir);
	snprintf(cgroups, sizeof(cgroups), "%s/cgroup", dir);
	make_folder(dir, "proc");
	make_folder(dir, "cgroup");
	make_folder(cgroups, "a");
	make_folder(cgroups, "a/lease");
	make_folder(cgroups, "a/lease/below");
	make_folder(cgroups, "a/lease-not");
	assert_int_equal(leases_init(&leases), 0);
	strcpy(leases.dmem_memory[DEVICE], REGION);
	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(tenants_new(book, &machine, load(), &tenants, &errors), 0);
	options.tenants = tenants;
	assert_int_equal(enforce_new(&options, &enforce), 0);
	usleep(30000);
	for (unsigned int i = 0; i < N_PROCESSES; i++)
		pids[i] = start();
	lease = lend("a/lease", their_uid(), &holder, 100 * MIB);
	return 0;
}

static int forget(const char *path, const struct stat *status, int type, struct FTW *where)
{
	return remove(path);
}

static int teardown(void **state)
{
	for (unsigned int i = 0; i < N_PROCESSES; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	lease_leave(&holder);
	lease_free(lease);
	enforce_free(enforce);
	leases_deinit(&leases);
	tenants_free(tenants);
	account_book_free(book);
	assert_int_equal(nftw(dir, forget, 8, FTW_DEPTH | FTW_PHYS), 0);
	return 0;
}

/* Let process i use @mib[i]; in two samples, since one is not acted upon. */
static void look(const uint64_t mib[N_PROCESSES])
{
	for (unsigned int turn = 0; turn < 2; turn++) {
		struct device_reading reading = {.n_processes = N_PROCESSES};

		reading.processes_ns = (struct reading){clock_now_ns(), true};
		for (unsigned int i = 0; i < N_PROCESSES; i++)
			reading.processes[i] = (struct process_reading){
				.pid = pids[i], .comm = "prog", .vram_bytes = mib[i] * MIB};
		enforce_look(enforce, DEVICE, &reading, clock_now_ns());
	}
	usleep(20000);
}

static bool is_running(unsigned int i)
{
	siginfo_t info = {.si_pid = 0};

	assert_int_equal(waitid(P_PID, (id_t)pids[i], &info, WEXITED | WNOHANG | WNOWAIT), 0);
	return info.si_pid == 0;
}

/* Wait until process i ends, which takes a while on a busy machine. Return: false if it lives. */
static bool ends(unsigned int i)
{
	for (unsigned int n = 0; n < 2000 && is_running(i); n++)
		usleep(5000);
	return !is_running(i);
}

/* Return the lease of a process that is no member. */
static struct lease *find_lease(uint8_t device, pid_t pid)
{
	bool is_member = true;
	struct lease *found = enforce_find_lease(enforce, device, pid, &is_member);

	assert_false(is_member);
	return found;
}

/*
 * Processes in the lease's cgroup use the lease without being members, and exceed it only together.
 */
TEST(test_audit__in_cgroup, setup, teardown)
{
	show(pids[0], "/a/lease");
	show(pids[1], "/a/lease/below");
	show(pids[2], "/a/lease");
	look((const uint64_t[]){100, 0, 0});
	assert_false(lease->is_over);
	assert_ptr_equal(find_lease(DEVICE, pids[1]), lease);
	assert_null(find_lease(DEVICE + 1, pids[1]));
	/* Each process has a tolerance; the one that uses most is stopped. */
	look((const uint64_t[]){40, 40, 44});
	assert_false(lease->is_over);
	assert_true(is_running(0) && is_running(1) && is_running(2));
	look((const uint64_t[]){40, 60, 44});
	assert_true(lease->is_over);
	assert_true(is_running(0) && is_running(2));
	assert_true(ends(1));
}

/* Processes beside the cgroup, above it, and outside the visible hierarchy have no lease. */
TEST(test_audit__not_in_cgroup, setup, teardown)
{
	show(pids[0], "/a/lease-not");
	show(pids[1], "/a");
	show(pids[2], "/../a/lease");
	for (unsigned int i = 0; i < N_PROCESSES; i++)
		assert_null(find_lease(DEVICE, pids[i]));
	look((const uint64_t[]){40, 40, 40});
	assert_false(lease->is_over);
	for (unsigned int i = 0; i < N_PROCESSES; i++)
		assert_true(ends(i));
}

/* With nested cgroups of leases, the nearest one counts. A deleted cgroup counts for none. */
TEST(test_audit__nested, setup, teardown)
{
	struct lease_member member;
	struct lease *inner = lend("a/lease/below", their_uid(), &member, 100 * MIB);

	show(pids[0], "/a/lease/below");
	show(pids[1], "/a/lease/gone (deleted)");
	show(pids[2], "/a/lease");
	assert_ptr_equal(find_lease(DEVICE, pids[0]), inner);
	assert_ptr_equal(find_lease(DEVICE, pids[1]), lease);
	assert_ptr_equal(find_lease(DEVICE, pids[2]), lease);
	lease_leave(&member);
	lease_free(inner);
	assert_ptr_equal(find_lease(DEVICE, pids[0]), lease);
}

/* Another user's process in the cgroup does not use the lease, and is judged as one without. */
TEST(test_audit__other_user, setup, teardown)
{
	struct lease_member member;
	struct lease *others = lend("a/lease-not", their_uid() + 1, &member, 100 * MIB);

	show(pids[0], "/a/lease-not");
	show(pids[1], "/a/lease");
	show(pids[2], "/a/lease");
	assert_null(find_lease(DEVICE, pids[0]));
	look((const uint64_t[]){150, 0, 0});
	assert_false(others->is_over);
	assert_true(ends(0));
	assert_true(is_running(1));
	lease_leave(&member);
	lease_free(others);
}

/*
 * A hostile depth of cgroups: looking up each level's number would take too much of the broker's
 * time.
 */
TEST(test_audit__deep, setup, teardown)
{
	char cgroup[256] = "/a/lease";

	for (unsigned int level = 2; level < PROCESS_MAX_LEVELS; level++) {
		strcat(cgroup, "/d");
		make_folder(cgroups, cgroup);
	}
	show(pids[0], cgroup);
	assert_ptr_equal(find_lease(DEVICE, pids[0]), lease);
	strcat(cgroup, "/d");
	make_folder(cgroups, cgroup);
	show(pids[0], cgroup);
	assert_null(find_lease(DEVICE, pids[0]));
}

static void put_limit(const char *value)
{
	char text[128];

	snprintf(text, sizeof(text), "lab/vram0 5\n" REGION "0 %s\n", value);
	put(cgroups, "a/lease/dmem.max", text);
}

static bool is_capped(void)
{
	enforce_look_at_caps(enforce);
	return lease->is_capped;
}

TEST(test_cap__value, setup, teardown)
{
	char path[256];

	assert_false(is_capped());
	put_limit("max");
	assert_false(is_capped());
	put_limit("209715200");
	assert_true(is_capped());
	put_limit("209715201");
	assert_false(is_capped());
	put_limit("garbage");
	assert_false(is_capped());
	put_limit("0");
	assert_true(is_capped());
	/* A lease that was made smaller still uses its earlier size. */
	lease_resize(lease, 50 * MIB);
	put_limit("52428800");
	assert_true(is_capped());
	put_limit("104857600");
	assert_false(is_capped());
	/* The region's name is unknown. */
	put_limit("0");
	leases.dmem_memory[DEVICE][0] = '\0';
	assert_false(is_capped());
	strcpy(leases.dmem_memory[DEVICE], REGION);
	assert_true(is_capped());
	snprintf(path, sizeof(path), "%s/a/lease/dmem.max", cgroups);
	assert_int_equal(unlink(path), 0);
	assert_false(is_capped());
}

/* A limit on a cgroup that does not contain all members does not count. */
TEST(test_cap__members_outside, setup, teardown)
{
	struct lease_member member = {.lease = NULL};

	put_limit("1000");
	assert_true(is_capped());
	lease_join(lease, &member, pids[0]);
	member.joined_ns = clock_boot_ns();
	show(pids[0], "/a");
	assert_true(is_capped());
	assert_int_equal(lease_take(&member, MIB), 0);
	assert_false(is_capped());
	show(pids[0], "/a/lease/below");
	assert_true(is_capped());
	show(pids[0], "/a");
	assert_false(is_capped());
	assert_int_equal(lease_give(&member, MIB), 0);
	assert_true(is_capped());
	/* A process without credit uses the device. */
	look((const uint64_t[]){60, 0, 0});
	assert_false(is_capped());
	show(pids[0], "/a/lease");
	look((const uint64_t[]){60, 0, 0});
	assert_true(is_capped());
	lease_leave(&member);
}

/* More members than are checked in one turn. */
TEST(test_cap__many_members, setup, teardown)
{
	enum { N = 100 };
	static struct lease_member members[N];

	put_limit("1000");
	show(pids[0], "/a/lease");
	show(pids[1], "/a");
	for (unsigned int i = 0; i < N; i++) {
		members[i] = (struct lease_member){.lease = NULL};
		lease_join(lease, &members[i], pids[i == N / 2 ? 1 : 0]);
		assert_int_equal(lease_take(&members[i], 4096), 0);
	}
	for (unsigned int turn = 0; turn < 20; turn++)
		assert_false(is_capped());
	show(pids[1], "/a/lease");
	for (unsigned int turn = 0; turn < 8; turn++)
		is_capped();
	assert_true(is_capped());
	/* A member that leaves the cgroup is noticed. */
	show(pids[1], "/a");
	for (unsigned int turn = 0; turn < 8; turn++)
		is_capped();
	assert_false(is_capped());
	for (unsigned int i = 0; i < N; i++)
		lease_leave(&members[i]);
}

/* More leases than are checked in one turn. */
TEST(test_cap__many_leases, setup, teardown)
{
	enum { N = 150 };
	static struct lease_member members[N];
	static struct lease *made[N];
	unsigned int n_capped = 0;
	char name[32];

	for (unsigned int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "b%u", i);
		make_folder(cgroups, name);
		strcat(name, "/dmem.max");
		put(cgroups, name, REGION " 1000\n");
		*strrchr(name, '/') = '\0';
		made[i] = lend(name, their_uid(), &members[i], MIB);
	}
	enforce_look_at_caps(enforce);
	for (unsigned int i = 0; i < N; i++)
		n_capped += made[i]->is_capped;
	assert_in_range(n_capped, 1, N - 1);
	for (unsigned int turn = 0; turn < 8; turn++)
		enforce_look_at_caps(enforce);
	for (unsigned int i = 0; i < N; i++)
		assert_true(made[i]->is_capped);
	/* A limit that is lifted is noticed. */
	put(cgroups, "b149/dmem.max", REGION " max\n");
	for (unsigned int turn = 0; turn < 8; turn++)
		enforce_look_at_caps(enforce);
	assert_false(made[149]->is_capped);
	for (unsigned int i = 0; i < N; i++) {
		lease_leave(&members[i]);
		lease_free(made[i]);
	}
}
