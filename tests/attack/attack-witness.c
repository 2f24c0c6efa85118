/* SPDX-License-Identifier: MIT */
/*
 * The witness: measures for how long the machine itself stood still; see attack.h
 *
 * A thread on each processor sleeps for a millisecond at a time, at a priority above all processes
 * of an attack. If it wakes late, a hypervisor or the kernel took the processor from every process:
 * no broker could have answered meanwhile. Without the right to that priority there is no witness.
 */
#include <pthread.h>
#include <sched.h>

#include "attack/attack.h"

static const uint64_t nap_ns = 1000000;

struct witness_thread {
	struct attack_witness *witness;
	int processor;
};

static void *witness_main(void *data)
{
	struct witness_thread self = *(struct witness_thread *)data;
	struct attack *attack = self.witness->attack;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(self.processor, &cpus);
	pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	atomic_fetch_add(&self.witness->n_begun, 1);
	while (!atomic_load(&self.witness->stop)) {
		unsigned int phase = atomic_load(&attack->phase);
		uint64_t begin_ns = harness_now_ns(), late_ns;

		nanosleep(&(struct timespec){0, (long)nap_ns}, NULL);
		late_ns = harness_now_ns() - begin_ns - nap_ns;
		/*
		 * Only the witness's few threads write. If a thread overwrites a larger gap, both
		 * threads saw that standstill.
		 */
		if (late_ns > atomic_load(&attack->gap_ns[phase]))
			atomic_store(&attack->gap_ns[phase], late_ns);
	}
	return NULL;
}

void attack_witness_start(struct attack_witness *witness, struct attack *attack)
{
	struct sched_param param = {.sched_priority = 1};
	struct witness_thread self = {.witness = witness};
	pthread_attr_t attr;
	cpu_set_t cpus;

	*witness = (struct attack_witness){.attack = attack};
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return;
	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
	pthread_attr_setschedparam(&attr, &param);
	for (int i = 0; i < CPU_SETSIZE && witness->n_threads < ATTACK_MAX_WITNESSES; i++) {
		if (!CPU_ISSET(i, &cpus))
			continue;
		self.processor = i;
		if (pthread_create(&witness->threads[witness->n_threads], &attr, witness_main,
				   &self))
			break;
		witness->n_threads++;
		/* A thread that has begun has copied its argument. */
		while (atomic_load(&witness->n_begun) < witness->n_threads)
			harness_sleep_ms(1);
	}
	pthread_attr_destroy(&attr);
}

void attack_witness_stop(struct attack_witness *witness)
{
	atomic_store(&witness->stop, true);
	while (witness->n_threads > 0)
		pthread_join(witness->threads[--witness->n_threads], NULL);
}
