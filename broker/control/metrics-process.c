/* SPDX-License-Identifier: MIT */
/*
 * Figures of this process
 *
 * The names and units are those of Prometheus's client libraries, without the prefix of this
 * program, so that dashboards and alerts for any program apply to brokerd, too.
 */
#include "control/metrics-process.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker/stats.h>

#include "control/metrics-text.h"
#include "util/checked.h"
#include "util/proc.h"

enum { NS_PER_S = 1000000000, TEXT_BYTES = 4096 };

/* Return the time of a clock; RBK_STATS_ABSENT: there is no such clock. */
static uint64_t read_clock(clockid_t clock)
{
	struct timespec time;

	if (clock_gettime(clock, &time) != 0)
		return RBK_STATS_ABSENT;
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

/* Return the start of this process on CLOCK_REALTIME, or RBK_STATS_ABSENT. */
static uint64_t read_start(void)
{
	const uint64_t realtime_ns = read_clock(CLOCK_REALTIME), up_ns = read_clock(CLOCK_BOOTTIME),
		       tick_hz = (uint64_t)sysconf(_SC_CLK_TCK);
	char text[TEXT_BYTES];
	struct proc_task task;
	uint64_t start_ns;

	/* The kernel counts clock ticks from the machine's start, with the time of sleep. */
	if (!proc_parse_task(text, proc_read(text, sizeof(text), "/proc/self/stat"), &task) ||
	    !checked_mul(task.start_ticks, NS_PER_S / tick_hz, &start_ns) || start_ns > up_ns ||
	    up_ns - start_ns > realtime_ns)
		return RBK_STATS_ABSENT;
	return realtime_ns - (up_ns - start_ns);
}

static void read_memory(struct metrics_process *ret)
{
	const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	unsigned long long n_virtual, n_resident;
	char text[TEXT_BYTES];

	ret->resident_bytes = ret->virtual_bytes = RBK_STATS_ABSENT;
	if (proc_read(text, sizeof(text), "/proc/self/statm") == 0 ||
	    sscanf(text, "%llu %llu", &n_virtual, &n_resident) != 2)
		return;
	ret->virtual_bytes = n_virtual * page_bytes;
	ret->resident_bytes = n_resident * page_bytes;
}

/* Return the number of open descriptors, without the one that this function opens. */
static uint64_t count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	uint64_t n = 0;

	if (!folder)
		return RBK_STATS_ABSENT;
	while ((entry = readdir(folder)))
		n += entry->d_name[0] != '.';
	closedir(folder);
	return n > 0 ? n - 1 : RBK_STATS_ABSENT;
}

void metrics_process_take(struct metrics_process *ret)
{
	struct rlimit limit;

	if (ret->started_ns == 0)
		ret->started_ns = read_start();
	ret->cpu_ns = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	read_memory(ret);
	ret->n_fds = count_fds();
	ret->max_fds = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY
			       ? limit.rlim_cur
			       : RBK_STATS_ABSENT;
}

void metrics_process_write(const struct metrics_process *process, struct metrics_text *text)
{
	static const struct metrics_family cpu = {
		.name = "cpu_seconds",
		.help = "Processor time of all threads of brokerd, "
			"user and system",
		.type = METRICS_COUNTER,
		.of_process = true};
	const struct {
		struct metrics_family family;
		uint64_t value;
		unsigned int digits;
	} gauges[] = {
		{{"resident_memory_bytes", "Memory of brokerd that is in RAM", METRICS_GAUGE, true},
		 process->resident_bytes,
		 0},
		{{"virtual_memory_bytes", "Address space of brokerd", METRICS_GAUGE, true},
		 process->virtual_bytes,
		 0},
		{{"open_fds", "File descriptors that brokerd has open", METRICS_GAUGE, true},
		 process->n_fds,
		 0},
		{{"max_fds", "File descriptors that brokerd may have open", METRICS_GAUGE, true},
		 process->max_fds,
		 0},
		{{"start_time_seconds", "Start of the process", METRICS_GAUGE, true},
		 process->started_ns,
		 9},
	};

	metrics_begin(text, &cpu);
	if (process->cpu_ns != RBK_STATS_ABSENT)
		metrics_decimal(text, NULL, NULL, NULL, process->cpu_ns, 9);
	if (process->cpu_ns != RBK_STATS_ABSENT && process->started_ns != RBK_STATS_ABSENT)
		metrics_created(text, NULL, NULL, process->started_ns);
	for (size_t i = 0; i < ARRAY_SIZE(gauges); i++) {
		metrics_begin(text, &gauges[i].family);
		if (gauges[i].value != RBK_STATS_ABSENT)
			metrics_decimal(text, NULL, NULL, NULL, gauges[i].value, gauges[i].digits);
	}
}
