/* SPDX-License-Identifier: MIT */
/*
 * test-probes-culprits [TRIALS [SEED]]
 *
 * Check that the right culprits are named. In each trial three hogs with random names, in cgroups
 * of their own, compete with a thread of the test. Some compute without end, some start one process
 * after the other, which compute for two milliseconds. All three must be named, by comm and cgroup,
 * and none of the hogs of the last trial.
 *
 * Other processes on that processor are culprits too, which a test cannot prevent. Those with more
 * time than the last of the hogs are printed, not judged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/probes-rig.h"
#include "support/test.h"

enum { N_HOGS = 3, MS = 1000000 };

static struct probes *probes;
static uint64_t n_trials = 10, seed = 1;
static struct rig_cgroup home;

struct hog {
	struct rig_process process;
	struct rig_cgroup cgroup;
	char comm[RUN_QUEUE_COMM_BYTES];
	char name[RUN_QUEUE_CGROUP_BYTES];
};

/* Choose a random name of any bytes but 0, at most as long as fits. */
static void random_comm(char ret[static RUN_QUEUE_COMM_BYTES])
{
	size_t n = 1 + harness_random(&seed) % (RUN_QUEUE_COMM_BYTES - 1), i;

	for (i = 0; i < n; i++)
		ret[i] = (char)(1 + harness_random(&seed) % 255);
	ret[n] = 0;
}

static void start(struct hog *hog, int trial, int i)
{
	do
		random_comm(hog->comm);
	while (strlen(hog->comm) < 3);
	snprintf(hog->name, sizeof(hog->name), "hog-%d-%d-%04x", trial, i,
		 (unsigned int)(harness_random(&seed) & 0xffff));
	rig_start(&hog->process, hog->comm);
	if (home.id) {
		assert_true(rig_cgroup_make(&hog->cgroup, &home, hog->name));
		rig_cgroup_enter(&hog->cgroup, hog->process.pid);
	}
	rig_tell(&hog->process, harness_random(&seed) % 2 ? RIG_BRIEF : RIG_SPIN);
}

static uint64_t waited_for(const struct run_queue_record *record, const struct hog *hog)
{
	const struct run_queue_causer *causer = rig_causer(record, hog->comm, hog->cgroup.id);

	return causer ? causer->wait_ns - causer->overcount_ns : 0;
}

/* Return true if the causer is in a hog's cgroup, even if it has not set its name yet. */
static bool is_in_hogs_cgroup(const struct hog *hogs, const struct run_queue_causer *causer)
{
	int i;

	for (i = 0; i < N_HOGS; i++)
		if (causer->cgroup == hogs[i].cgroup.id)
			return true;
	return false;
}

static void trial(int number)
{
	const struct run_queue_record *record = probes_thread(probes, 0);
	struct hog hogs[N_HOGS] = {0};
	uint64_t least_ns = UINT64_MAX, sum_ns = 0;
	int i;

	/* Setting the slot's thread again clears the figures of the last trial. */
	assert_int_equal(probes_set_thread(probes, 0, (pid_t)syscall(SYS_gettid)), 0);
	assert_int_equal(probes_walk(probes), 0);
	for (i = 0; i < N_HOGS; i++)
		start(&hogs[i], number, i);
	rig_until(waited_for(record, &hogs[0]) > 12 * MS &&
			  waited_for(record, &hogs[1]) > 12 * MS &&
			  waited_for(record, &hogs[2]) > 12 * MS,
		  rig_work());

	for (i = 0; i < N_HOGS; i++) {
		const struct run_queue_causer *causer =
			rig_causer(record, hogs[i].comm, hogs[i].cgroup.id);
		uint64_t ns = waited_for(record, &hogs[i]);

		if (home.id) {
			assert_true(causer->cgroup == hogs[i].cgroup.id);
			assert_string_equal(causer->cgroup_name, hogs[i].name);
		}
		assert_int_equal(causer->who, 0);
		least_ns = ns < least_ns ? ns : least_ns;
		sum_ns += ns;
	}
	assert_true(sum_ns <= record->wait_ns + record->idle_wait_ns);
	for (i = 0; i < RUN_QUEUE_CAUSERS && home.id; i++) {
		const struct run_queue_causer *causer = &record->causers[i];

		if (causer->wait_ns - causer->overcount_ns > least_ns &&
		    !is_in_hogs_cgroup(hogs, causer))
			print_message("trial %d: also %.16s in %s, %llu us\n", number, causer->comm,
				      causer->cgroup_name, causer->wait_ns / 1000);
		assert_false(strncmp(causer->cgroup_name, "hog-", 4) == 0 &&
			     !is_in_hogs_cgroup(hogs, causer));
	}
	for (i = 0; i < N_HOGS; i++) {
		rig_end(&hogs[i].process);
		rig_cgroup_remove(&hogs[i].cgroup);
	}
}

TEST(test_culprits)
{
	uint64_t i;

	for (i = 0; i < n_trials; i++)
		trial((int)i);
}

static int set_up(void **state)
{
	char name[32];

	snprintf(name, sizeof(name), "rb-culprits-%d", getpid());
	if (!rig_cgroup_make(&home, NULL, name))
		print_message("no cgroups may be made here\n");
	return 0;
}

static int tear_down(void **state)
{
	rig_cgroup_remove(&home);
	return 0;
}

int main(int argc, char **argv)
{
	int r;

	if (argc > 1)
		n_trials = strtoull(argv[1], NULL, 10);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	harness_limit_seconds(60 + (unsigned int)n_trials * 4);
	rig_pin();
	probes = rig_probes();
	if (!probes)
		return 77;
	r = test_run(set_up, tear_down);
	probes_free(probes);
	return r;
}
