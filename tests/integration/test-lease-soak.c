/* SPDX-License-Identifier: MIT */
/*
 * 64 processes with leases, at random
 *
 * Each process opens or joins a lease, takes and gives credit, sometimes waits, and shares objects.
 * It is killed or ends at a random moment, and another process takes its place. Meanwhile the
 * device's charge never exceeds its budget; when all have been killed the charge is 0.
 *
 * The argument is the duration in seconds.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <ringbroker/lease.h>

#include "integration/harness.h"
#include "support/test.h"

#define MIB (1ull << 20)

enum { N_PROCESSES = 64, DEVICE_MIB = 256, N_OBJECTS = 8 };

static unsigned int seconds = 5;
static struct broker broker;

/* Sums over all processes. */
static struct counts {
	atomic_uint n_taken, n_refused, n_timed_out, n_deadlocks, n_given, n_objects, n_opened,
		n_joined, n_wrong;
	atomic_int wrong;                 /* the last wrong result */
	atomic_uint numbers[N_PROCESSES]; /* lease numbers, by process */
} * counts;

/* ---- A process ---- */

static void wrong(int r)
{
	counts->n_wrong++;
	counts->wrong = r;
}

static void count(int r)
{
	if (r == 0)
		counts->n_taken++;
	else if (r == -ENOMEM)
		counts->n_refused++;
	else if (r == -ETIMEDOUT)
		counts->n_timed_out++;
	else if (r == -EDEADLK)
		counts->n_deadlocks++;
	else
		wrong(r);
}

static void be_member(struct rbk_lease *lease, uint64_t *seed)
{
	uint64_t credit = 0, bytes, charged;
	unsigned int n_left = 200 + (unsigned int)(harness_random(seed) % 2000);
	bool has[N_OBJECTS] = {false};

	while (n_left-- > 0) {
		uint64_t random = harness_random(seed);
		uint64_t size = (1 + (random >> 8) % 8192) * 4096;
		unsigned int object = (unsigned int)(random >> 40) % N_OBJECTS;
		int r;

		switch (random % 8) {
		case 0:
		case 1:
		case 2:
			r = rbk_lease_take(lease, size, size / 2, 0, NULL, &bytes, NULL);
			count(r);
			credit += r == 0 ? bytes : 0;
			break;
		case 3:
			r = rbk_lease_take(lease, size, size, random >> 50 & 1 ? 20000000 : 2000000,
					   NULL, &bytes, NULL);
			count(r);
			credit += r == 0 ? bytes : 0;
			break;
		case 4:
		case 5:
			size = size < credit ? size : credit;
			r = rbk_lease_give(lease, size,
					   &(struct rbk_lease_use){.used_bytes = credit - size});
			if (r)
				wrong(r);
			credit -= size;
			counts->n_given++;
			break;
		case 6:
			size = MIB < credit ? MIB : 0;
			r = has[object] ? rbk_lease_object_drop(lease, 1, object)
					: rbk_lease_object_add(lease, 1, object, MIB, size,
							       &charged, NULL);
			if (r == 0) {
				credit -= has[object] ? 0 : size;
				has[object] = !has[object];
				counts->n_objects++;
			} else if (r != -ENOMEM) {
				wrong(r);
			}
			break;
		default:
			usleep((unsigned int)(random >> 20) % 2000);
			break;
		}
	}
}

static void be_process(unsigned int index, uint64_t seed)
{
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = broker.socket_path,
		.timeout_ns = 60000000000,
	};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		uint64_t random = harness_random(&seed);
		struct rbk_lease_options wanted = {
			.device = RBK_DEVICE_GPU,
			.min_bytes = MIB,
			.wish_bytes = (1 + random % 8) * MIB,
			.max_bytes = (9 + (random >> 8) % 64) * MIB,
			.wait_ns = random >> 20 & 1 ? 5000000 : 0,
		};
		struct rbk_lease *lease;
		struct rbk *rbk;
		int r;

		if (rbk_connect(&options, &rbk, NULL)) {
			usleep(1000);
			continue;
		}
		if (random >> 30 & 1)
			wanted.join = counts->numbers[(random >> 32) % N_PROCESSES];
		r = rbk_lease_open(rbk, &wanted, &lease, NULL);
		if (r == 0) {
			counts->numbers[index] = rbk_lease_number(lease);
			wanted.join ? counts->n_joined++ : counts->n_opened++;
			be_member(lease, &seed);
			rbk_lease_close(lease);
		} else if (r != -ENOENT) {
			count(r);
		}
		rbk_disconnect(rbk);
	}
}

static pid_t process_new(unsigned int index, uint64_t seed)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		be_process(index, seed);
		_exit(0);
	}
	return pid;
}

/* ---- The referee ---- */

static uint64_t charged(struct rbk *admin, uint64_t *ret_budget)
{
	struct rbk_stats_view view;
	struct rbk_stats_device device;

	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &view, NULL), 0);
	assert_true(harness_stats_copy(&view, RBK_STATS_SECTION_DEVICES, RBK_DEVICE_GPU, &device,
				       sizeof(device)));
	rbk_stats_unmap(&view);
	*ret_budget = device.memory_budget;
	return device.memory_charged;
}

TEST(test_soak)
{
	uint64_t seed = 0x2545f4914f6cdd1du, most = 0, budget, end_ns, bytes;
	uint64_t sampled = 0;
	pid_t pids[N_PROCESSES];
	struct rbk *admin;

	rbk_disconnect(broker_start_gpu(
		&broker,
		&(struct broker_options){.args = (const char *const[]){"--gpu=software",
								       "--device-memory=256MiB",
								       NULL},
					 .policy = "[tenant default]\nsessions-max = 1000\n"},
		"watcher"));
	admin = broker_connect_admin(&broker, "watcher");
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_ptr_not_equal(counts, MAP_FAILED);
	for (unsigned int i = 0; i < N_PROCESSES; i++)
		pids[i] = process_new(i, harness_random(&seed) | 1);
	end_ns = harness_now_ns() + seconds * 1000000000ull;
	/* For the given time, and until memory was short. */
	while (harness_now_ns() < end_ns || counts->n_refused == 0 || counts->n_taken < 1000) {
		unsigned int i = (unsigned int)(harness_random(&seed) >> 33) % N_PROCESSES;

		bytes = charged(admin, &budget);
		assert_true(budget <= DEVICE_MIB * MIB);
		assert_true(bytes <= budget);
		most = bytes > most ? bytes : most;
		sampled++;
		kill(pids[i], SIGKILL);
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
		pids[i] = process_new(i, harness_random(&seed) | 1);
		harness_sleep_ms(5);
	}
	for (unsigned int i = 0; i < N_PROCESSES; i++)
		kill(pids[i], SIGKILL);
	for (unsigned int i = 0; i < N_PROCESSES; i++)
		waitpid(pids[i], NULL, 0);
	end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	while (charged(admin, &budget) != 0 && harness_now_ns() < end_ns)
		harness_sleep_ms(10);
	assert_int_equal(charged(admin, &budget), 0);
	print_message(
		"%u opened, %u joined; credit %u times taken, %u given; %u refused, %u timed out, "
		"%u deadlocks; %u objects; %llu of %u MiB at most, looked at %llu times\n",
		counts->n_opened, counts->n_joined, counts->n_taken, counts->n_given,
		counts->n_refused, counts->n_timed_out, counts->n_deadlocks, counts->n_objects,
		(unsigned long long)(most / MIB), DEVICE_MIB, (unsigned long long)sampled);
	if (counts->n_wrong)
		fail_msg("%u times something else, such as %s", counts->n_wrong,
			 strerror(-counts->wrong));
	assert_true(counts->n_joined > 0 && counts->n_objects > 0 && counts->n_given > 0);
	/* More than half of the device was in use. */
	assert_true(most > DEVICE_MIB * MIB / 2);
	rbk_disconnect(admin);
	broker_stop(&broker);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seconds = (unsigned int)atoi(argv[1]);
	harness_limit_seconds(120 + 2 * seconds);
	return test_run(NULL, NULL);
}
