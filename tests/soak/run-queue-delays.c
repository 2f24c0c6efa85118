/* SPDX-License-Identifier: MIT */
/*
 * A thread that waits for a processor, as the broker sees it; for run-queue-accuracy.py
 *
 *	run-queue-delays HOGS SECONDS
 *
 * The program prints its thread's number ("tid N") and waits for a line of standard input. Then the
 * thread wants a processor on which HOGS others compute, for SECONDS, and the program prints the
 * thread's waits in the broker's own report: "n N p50 NS p99 NS max NS". The thread computes for a
 * random time and sleeps a little in between, so it is both woken and preempted.
 *
 * Exit status: 77, with the reason, without the scheduler probes.
 */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "contention/run-queue.h"
#include "hogs.h"
#include "util/clock.h"

enum { SKIP = 77, MOST_US = 6000, SLEEP_NS = 500000 };

static int cpu;
static _Atomic pid_t tid;
/* Posted to begin and to end the load; the thread waits for nothing else in between. */
static sem_t go;
static atomic_bool is_over;

static void moment(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void pin(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

/* Use @ns of processor time, however long that takes. */
static void compute(uint64_t ns)
{
	volatile uint64_t value = 1;
	struct timespec time;
	uint64_t begin_ns = 0, now_ns;

	do {
		for (unsigned int i = 0; i < 1000; i++)
			value = value * 6364136223846793005u + 1;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
		now_ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
		begin_ns = begin_ns ? begin_ns : now_ns;
	} while (now_ns - begin_ns < ns && !atomic_load(&is_over));
}

static void *thread_main(void *data)
{
	uint64_t random = 1;

	prctl(PR_SET_NAME, "rb-cpu-0");
	pin();
	atomic_store(&tid, gettid());
	sem_wait(&go);
	while (!atomic_load(&is_over)) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		compute((random >> 32) % MOST_US * 1000);
		nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
	}
	sem_wait(&go);
	return NULL;
}

static bool find_report(const struct run_queue *rq, struct run_queue_report *ret)
{
	struct run_queue_thread_report report;

	for (uint32_t i = 0; run_queue_thread(rq, i, &report); i++)
		if (report.tid == atomic_load(&tid)) {
			*ret = report.report;
			return true;
		}
	return false;
}

/* Wait until the report stays the same, and return it. */
static void settle(const struct run_queue *rq, struct run_queue_report *ret)
{
	uint64_t n_waits;

	do {
		n_waits = find_report(rq, ret) ? ret->n_waits : 0;
		nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
	} while (!find_report(rq, ret) || ret->n_waits != n_waits);
}

int main(int argc, char **argv)
{
	struct hogs_options hogs_options = {.comm = "delay-hog"};
	const struct run_queue_options options = {.source = RUN_QUEUE_SOURCE_EBPF};
	struct run_queue_report report = {.n_waits = 0};
	struct run_queue *rq = NULL;
	struct hogs *hogs = NULL;
	pthread_t thread;
	cpu_set_t cpus;
	char line[16];

	if (argc != 3)
		return 2;
	hogs_options.n_per_cpu = (unsigned int)strtoul(argv[1], NULL, 10);
	clock_init();
	sched_getaffinity(0, sizeof(cpus), &cpus);
	for (int i = 0; i < CPU_SETSIZE; i++)
		cpu = CPU_ISSET(i, &cpus) ? i : cpu;
	/* The hogs inherit this processor. */
	pin();
	if (hogs_new(&hogs_options, &hogs) || run_queue_new(&options, &rq))
		return 1;
	if (run_queue_source(rq) != RUN_QUEUE_SOURCE_EBPF) {
		printf("skipped: %s\n", run_queue_sentence(rq, 0));
		return SKIP;
	}
	sched_setaffinity(0, sizeof(cpus), &cpus);
	run_queue_set_pace(rq, RUN_QUEUE_PACE_CONTENDED);
	sem_init(&go, 0, 0);
	if (pthread_create(&thread, NULL, thread_main, NULL))
		return 1;
	while (atomic_load(&tid) == 0 || !find_report(rq, &report))
		moment();
	printf("tid %d\n", (int)atomic_load(&tid));
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;

	hogs_begin(hogs);
	sem_post(&go);
	sleep((unsigned int)strtoul(argv[2], NULL, 10));
	atomic_store(&is_over, true);
	settle(rq, &report);
	hogs_end(hogs);
	printf("n %llu p50 %llu p99 %llu max %llu\n", (unsigned long long)report.n_waits,
	       (unsigned long long)report.p50_ns, (unsigned long long)report.p99_ns,
	       (unsigned long long)report.max_ns);
	fflush(stdout);
	sem_post(&go);
	pthread_join(thread, NULL);
	run_queue_free(rq);
	hogs_free(hogs);
	return 0;
}
