/* SPDX-License-Identifier: MIT */
/* Acting upon audits: real processes with fake samples of their memory; broker/lease/enforce.h. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lease/audit.h"
#include "lease/enforce.h"
#include "support/test.h"
#include "tenant/policy-private.h"
#include "tenant/tenant.h"
#include "util/clock.h"
#include "util/log.h"

enum { DEVICE = 1, NOBODY = 65534 };
#define MIB (1ull << 20)

static struct account_book *book;
static struct tenants *tenants;
static struct leases leases;
static struct enforce *enforce;
static unsigned int n_lowered;
static struct device_reading reading;

static void on_lowered(void *context)
{
	n_lowered++;
}

static unsigned int n_corrected;

static void on_corrected(void *context, uint8_t device)
{
	assert_int_equal(device, DEVICE);
	n_corrected++;
}

static struct policy *load(const char *keys)
{
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};
	char text[512];

	snprintf(text, sizeof(text), "[tenant default]\nlease-tolerance = 8MiB\nweight = 50\n%s\n",
		 keys);
	assert_int_equal(policy_load_text("f", text, strlen(text), NULL, &policy, &errors), 0);
	return policy;
}

static void begin(const char *keys)
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
					  .proc = "/proc",
					  .lowered = on_lowered,
					  .corrected = on_corrected};
	struct policy_errors errors = {.n = 0};

	n_lowered = n_corrected = 0;
	reading = (struct device_reading){.n_samples = 0};
	assert_int_equal(leases_init(&leases), 0);
	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(tenants_new(book, &machine, load(keys), &tenants, &errors), 0);
	options.tenants = tenants;
	assert_int_equal(enforce_new(&options, &enforce), 0);
	/* Children must be younger than the broker, in the kernel's units of 10 ms. */
	usleep(30000);
}

static void end(void)
{
	enforce_free(enforce);
	leases_deinit(&leases);
	tenants_free(tenants);
	account_book_free(book);
}

/* Start a process of no client, which does nothing and ends with the test. */
static pid_t start(bool is_stubborn)
{
	int pipes[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (getuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) < 0)
			_exit(1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* Makes its folder in /proc belong to root. */
		prctl(PR_SET_DUMPABLE, 0);
		if (is_stubborn)
			signal(SIGTERM, SIG_IGN);
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

/*
 * Wait for the process to end.
 * Return: the signal that ended it.
 */
static int ended_by(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	return WTERMSIG(status);
}

static bool is_running(pid_t pid)
{
	siginfo_t info = {.si_pid = 0};

	usleep(20000);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
	return info.si_pid == 0;
}

static void put_away(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(ended_by(pid), SIGKILL);
}

static void look_at(pid_t pid, uint64_t bytes, uint64_t later_ns)
{
	reading.processes_ns.is_valid = true;
	reading.processes_ns.value = clock_now_ns();
	reading.n_processes = bytes ? 1 : 0;
	reading.processes[0] =
		(struct process_reading){.pid = pid, .comm = "prog", .vram_bytes = bytes};
	enforce_look(enforce, DEVICE, &reading, clock_now_ns() + later_ns);
}

static struct tenant *tenant_of_all(void)
{
	return tenants_first(tenants);
}

/* Return a lease with the process @pid as its member. */
static struct lease *lend(struct lease_member *member, pid_t pid, uint64_t bytes)
{
	const struct lease_about about = {
		.tenant = tenant_of_all(),
		.device = DEVICE,
		.min_bytes = 1,
		.wish_bytes = bytes,
		.max_bytes = 512 * MIB,
		.name = "test",
	};
	struct lease *lease;

	assert_int_equal(lease_new(&leases, &about, &lease), 0);
	assert_int_equal(lease_grant(lease, bytes, false), 0);
	*member = (struct lease_member){.lease = NULL};
	lease_join(lease, member, pid);
	member->joined_ns = clock_boot_ns();
	return lease;
}

/*
 * A member reported too little to the restarted broker: the ledger follows the observed use, and no
 * process is stopped.
 */
TEST(test_restored__too_little)
{
	struct lease_member member;
	struct lease *lease;
	pid_t pid;

	begin("lease-audit = stop");
	pid = start(false);
	lease = lend(&member, pid, 64 * MIB);
	member.restored_ns = clock_now_ns();
	assert_int_equal(lease_take(&member, 10 * MIB), 0);
	/* Drivers may need that much. */
	look_at(pid, 18 * MIB, 0);
	assert_int_equal(n_corrected, 0);
	for (unsigned int i = 0; i < 3; i++) {
		look_at(pid, 100 * MIB, 0);
		assert_int_equal(n_corrected, 1);
		assert_int_equal(lease->credited_bytes, 100 * MIB);
		assert_int_equal(lease_granted(lease), 100 * MIB);
		assert_false(lease->is_over);
	}
	assert_true(is_running(pid));
	look_at(pid, 0, 0);
	assert_int_equal(lease->credited_bytes, 10 * MIB);
	/*
	 * The credit grows up to the lease's maximum; use beyond it is handled as for any process.
	 */
	look_at(pid, 600 * MIB, 0);
	assert_int_equal(lease->credited_bytes, 512 * MIB);
	assert_true(lease->is_over);
	look_at(pid, 600 * MIB, 0);
	assert_int_equal(ended_by(pid), SIGTERM);
	look_at(pid, 0, 0);
	lease_leave(&member);
	lease_free(lease);
	end();
}

TEST(test_restored__audit_is_off)
{
	struct lease_member member;
	struct lease *lease;
	pid_t pid;

	begin("lease-audit = off");
	pid = start(false);
	lease = lend(&member, pid, 64 * MIB);
	member.restored_ns = clock_now_ns();
	look_at(pid, 100 * MIB, 0);
	assert_int_equal(lease_granted(lease), 64 * MIB);
	assert_int_equal(n_corrected, 0);
	put_away(pid);
	lease_leave(&member);
	lease_free(lease);
	end();
}

TEST(test_stop__without_lease)
{
	pid_t pid;

	begin("lease-audit = stop\nlease-required = yes");
	pid = start(false);
	look_at(pid, 100 * MIB, 0);
	assert_true(enforce_is_urgent(enforce));
	assert_true(is_running(pid));
	/* The same list again is no new evidence. */
	enforce_look(enforce, DEVICE, &reading, clock_now_ns());
	assert_true(is_running(pid));
	look_at(pid, 100 * MIB, 0);
	assert_int_equal(ended_by(pid), SIGTERM);
	look_at(pid, 0, 0);
	assert_false(enforce_is_urgent(enforce));
	end();
}

TEST(test_stop__stubborn)
{
	pid_t pid;

	begin("lease-audit = stop\nlease-required = yes");
	pid = start(true);
	look_at(pid, 100 * MIB, 0);
	look_at(pid, 100 * MIB, 0);
	look_at(pid, 100 * MIB, AUDIT_KILL_NS - 1000000000);
	assert_true(is_running(pid));
	look_at(pid, 100 * MIB, AUDIT_KILL_NS);
	assert_int_equal(ended_by(pid), SIGKILL);
	end();
}

/* A process is not stopped if its excess shows in one list, but not in the next. */
TEST(test_stop__in_time)
{
	pid_t pid;

	begin("lease-audit = stop\nlease-required = yes");
	pid = start(false);
	for (unsigned int i = 0; i < 3; i++) {
		look_at(pid, 100 * MIB, 0);
		look_at(pid, 8 * MIB, 0);
	}
	assert_true(is_running(pid));
	put_away(pid);
	end();
}

TEST(test_stop__with_lease)
{
	struct lease_member member;
	struct lease *lease;
	pid_t pid;

	begin("lease-audit = stop\nlease-required = yes");
	pid = start(false);
	lease = lend(&member, pid, 100 * MIB);
	for (unsigned int i = 0; i < 3; i++)
		look_at(pid, 108 * MIB, 0);
	assert_false(lease->is_over);
	assert_true(is_running(pid));
	look_at(pid, 108 * MIB + 1, 0);
	assert_true(lease->is_over);
	look_at(pid, 108 * MIB + 1, 0);
	assert_int_equal(ended_by(pid), SIGTERM);
	lease_leave(&member);
	lease_free(lease);
	end();
}

/* A later process with the pid of a former member is not that member. */
TEST(test_stop__number_reused)
{
	struct lease_member member;
	struct lease *lease;
	pid_t pid;

	begin("lease-audit = stop\nlease-required = no");
	pid = start(false);
	lease = lend(&member, pid, 100 * MIB);
	member.joined_ns = 1;
	for (unsigned int i = 0; i < 3; i++)
		look_at(pid, 500 * MIB, 0);
	assert_false(lease->is_over);
	assert_true(is_running(pid));
	put_away(pid);
	lease_leave(&member);
	lease_free(lease);
	end();
}

TEST(test_spared_processes)
{
	pid_t pid = start(false);

	/* The process is older than the broker. */
	begin("lease-audit = stop\nlease-required = yes");
	for (unsigned int i = 0; i < 3; i++)
		look_at(pid, 500 * MIB, 0);
	assert_true(is_running(pid));
	assert_false(enforce_is_urgent(enforce));
	/* Neither init nor the broker itself is stopped; the test would end otherwise. */
	for (unsigned int i = 0; i < 3; i++)
		look_at(1, 500 * MIB, 0);
	for (unsigned int i = 0; i < 3; i++)
		look_at(getpid(), 500 * MIB, 0);
	put_away(pid);
	end();
}

/* Without the privilege, stopping is tried once for each process. */
TEST(test_stop__powerless)
{
	pid_t pid;

	if (getuid() != 0)
		skip();
	begin("lease-audit = stop\nlease-required = yes");
	pid = start(false);
	assert_int_equal(seteuid(1), 0);
	for (unsigned int i = 0; i < 3; i++)
		look_at(pid, 500 * MIB, i * AUDIT_KILL_NS);
	assert_int_equal(seteuid(0), 0);
	assert_true(is_running(pid));
	assert_false(enforce_is_urgent(enforce));
	put_away(pid);
	end();
}

TEST(test_off_and_warn)
{
	static const char *const policies[] = {
		"lease-audit = off\nlease-required = yes",
		"lease-audit = warn\nlease-required = yes",
		"lease-audit = stop\nlease-required = no",
	};

	for (unsigned int i = 0; i < 3; i++) {
		pid_t pid;

		begin(policies[i]);
		pid = start(false);
		for (unsigned int k = 0; k < 3; k++)
			look_at(pid, 500 * MIB, 0);
		assert_true(is_running(pid));
		assert_int_equal(n_lowered, 0);
		put_away(pid);
		end();
	}
}

TEST(test_priority)
{
	struct tenant *tenant;
	struct policy_errors errors = {.n = 0};
	pid_t pid;

	begin("lease-audit = priority\nlease-required = yes");
	tenant = tenant_of_all();
	pid = start(false);
	look_at(pid, 500 * MIB, 0);
	assert_int_equal(tenant->weight, 50);
	look_at(pid, 500 * MIB, 0);
	assert_fields(*tenant, (weight, 5), (priority_max, RBK_PRIORITY_LOW));
	assert_int_equal(n_lowered, 1);
	/* The lowered priority survives a reload of the policy. */
	assert_int_equal(tenants_reload(tenants,
					load("lease-audit = priority\nlease-required = yes"),
					&errors),
			 0);
	look_at(pid, 500 * MIB, 0);
	assert_int_equal(tenant->weight, 5);
	/* The priority is restored when the excess ends. */
	look_at(pid, 8 * MIB, 0);
	assert_fields(*tenant, (weight, 50), (priority_max, RBK_PRIORITY_URGENT));
	assert_int_equal(n_lowered, 2);
	put_away(pid);
	end();
}

/* More processes than are tracked at once. */
TEST(test_many)
{
	enum { N = TELEMETRY_MAX_PROCESSES };
	pid_t pids[N + 10];

	begin("lease-audit = stop\nlease-required = yes");
	for (unsigned int i = 0; i < N + 10; i++)
		pids[i] = start(false);
	for (unsigned int turn = 0; turn < 8; turn++) {
		unsigned int from = turn < 4 ? 0 : 10;

		reading.processes_ns = (struct reading){clock_now_ns(), true};
		reading.n_processes = N;
		for (unsigned int i = 0; i < N; i++)
			reading.processes[i] = (struct process_reading){
				.pid = pids[from + i], .comm = "prog", .vram_bytes = 100 * MIB};
		enforce_look(enforce, DEVICE, &reading, clock_now_ns());
	}
	for (unsigned int i = 0; i < N + 10; i++)
		assert_int_equal(ended_by(pids[i]), SIGTERM);
	end();
}
