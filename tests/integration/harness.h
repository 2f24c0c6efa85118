#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Private brokers for integration tests
 *
 * Starts a real brokerd in a folder of its own, inspects it from outside (/proc), and ends it. The
 * broker's log goes to a file, which is printed if the test fails. A broker dies with the test that
 * started it. For cmocka tests: an error in these functions fails the running test. All functions
 * are for the main thread only, except that each neighbour has a thread of its own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <ringbroker.h>
#include <ringbroker/stats.h>

#include "support/scaled.h"

/*
 * End the test program by SIGALRM after three times @seconds, when it presumably hangs. The time is
 * multiplied for slow builds.
 */
void harness_limit_seconds(unsigned int seconds);

/* Return a time limit, multiplied for slow builds. */
uint64_t harness_slow_ns(uint64_t ns);

/*
 * Start a process of user @uid that runs @be. The process exits with 1 if @be returns, and dies
 * with its parent. Root only.
 */
pid_t harness_start_as(uid_t uid, void (*be)(void));

/*
 * Change the effective user of the calling thread alone; the kernel reports this user to the
 * socket's peer. The library's seteuid() signals every other thread, which would interrupt the
 * waits of a neighbour. Root only.
 */
void harness_become(uid_t uid);

void harness_sleep_ms(unsigned int ms);
uint64_t harness_now_ns(void);

/*
 * Copy record @index of section @id like rbk_stats_copy(), but wait while the broker is changing
 * the record. On a busy machine the broker may be preempted in the middle of a change.
 * Return: false if the record still changes after ten seconds.
 */
bool harness_stats_copy(const struct rbk_stats_view *view, unsigned int id, uint32_t index,
			void *to, size_t bytes);

/* Return the first record of tenants of a page. */
struct rbk_stats_tenant harness_tenant(const struct rbk_stats_view *view);

/* Return a reproducible random number; *state must not be 0. */
uint64_t harness_random(uint64_t *state);

/* ---- Brokers ------------------------------------------------------------------------------ */

struct broker {
	pid_t pid; /* 0: not running */
	char dir[64];
	char socket_path[96];
	char admin_path[112]; /* administrators' socket */
	char log_path[96];
	char cache_path[96];
	char config_path[96];
};

struct broker_options {
	/*
	 * Arguments after --socket, --cache and --calibration=none, which they may override.
	 * --gpu=software adds --contention=none: tests with two devices test decisions, which
	 * contention on a busy machine would change. NULL-terminated; may be NULL.
	 */
	const char *const *args;
	/*
	 * Add --contention=none, as --gpu=software does: for tests of shares and orders, which
	 * depend on how long tasks take.
	 */
	bool is_undisturbed;
	void (*in_child)(void);  /* runs before exec; may be NULL */
	const char *socket_path; /* NULL: in the broker's folder */
	const char *policy;      /* text of the policy file; NULL: none */
};

/*
 * Have all brokers watch contention for processors, unless their options say otherwise. Without
 * this call, and under a sanitizer, only brokers with an in_child watch; the others start with
 * --contention=none. Loading and unloading the probes keeps a kernel busy for 0.35 s and a broker
 * waiting for 0.5 s. For tests of the broker's default behaviour.
 */
void broker_watch_all(void);

/* Start brokerd and wait until it accepts connections. @options may be NULL. */
void broker_start(struct broker *broker, const struct broker_options *options);

/*
 * Start a broker that may fail to start.
 * Return: true if the broker accepts connections; false with its wait status.
 */
bool broker_try_start(struct broker *broker, const struct broker_options *options, int *ret_status);

/* Rewrite the policy file of a broker that has one; broker_reload() makes the broker read it. */
void broker_write_policy(const struct broker *broker, const char *policy);

/*
 * Send SIGHUP and wait until the log has one more occurrence of @text. Fails the test after a
 * minute.
 */
void broker_reload(const struct broker *broker, const char *text);

/*
 * Send SIGTERM. The broker must end with status 0 within 20 s, without a sanitizer's report and
 * without a system call that the sandbox refused.
 */
void broker_stop(struct broker *broker);
#define BROKER(name, ...) SCOPED(broker, name, broker_start, broker_stop, __VA_ARGS__)

/* Wait until the broker ends. Return: its wait status. */
int broker_wait(struct broker *broker);

/* Kill the broker with SIGKILL. */
void broker_kill(struct broker *broker);

/* Remove the folder of a broker that is not running. Idempotent. */
void broker_remove(struct broker *broker);

/* Return true if the log contains @text. */
bool broker_log_has(const struct broker *broker, const char *text);
/*
 * Wait until the log contains @text; fails the test after a minute. The broker may answer a client
 * before it writes to the log.
 */
void broker_wait_log(const struct broker *broker, const char *text);

/* Wait until the log has at least @n occurrences of @text. */
void broker_wait_log_times(const struct broker *broker, const char *text, unsigned int n);
/* Return the number of occurrences of @text in the log. */
unsigned int broker_log_count(const struct broker *broker, const char *text);
unsigned int broker_log_lines(const struct broker *broker);
void broker_show_log(const struct broker *broker);

/*
 * Print what each thread of a process that does not answer waits for, from /proc. A thread in state
 * R that has not run between two looks waits for a processor: then the kernel or the machine is the
 * cause, not the process. Stacks and wait channels need root.
 */
void harness_show_threads(const char *name, pid_t pid);

/* Resources of the broker's process, from /proc. */
struct broker_usage {
	unsigned int n_fds;
	unsigned int n_threads;
	unsigned int n_mappings;
	uint64_t rss_bytes;
	/*
	 * Context switches of all threads. An idle broker's count stays the same; clock ticks of 10
	 * ms are too coarse to show that.
	 */
	uint64_t n_switches;
};
void broker_usage(const struct broker *broker, struct broker_usage *ret);

/*
 * Return the usage with the fewest descriptors among 20 readings in 100 ms. A connection that has
 * ended may still be open, and the broker opens some files for a moment.
 */
void broker_usage_least(const struct broker *broker, struct broker_usage *ret);

/* Wait until the broker holds @n_fds descriptors; fails the test after ten seconds. */
void broker_wait_fds(const struct broker *broker, unsigned int n_fds);

/* Connect, or fail the test. */
struct rbk *broker_connect(const struct broker *broker, const char *name);

/*
 * Call broker_start(), and connect. The arguments in @options must include --gpu=software. Exits
 * with 77 (skipped) if there is no such device.
 */
struct rbk *broker_start_gpu(struct broker *broker, const struct broker_options *options,
			     const char *name);

/* Connect to the administrators' socket, or fail the test. */
struct rbk *broker_connect_admin(const struct broker *broker, const char *name);

/* Wait until @n_sessions sessions are left; fails the test after a minute. */
void broker_wait_sessions(struct rbk *rbk, uint64_t n_sessions);

/*
 * Wait until @bytes of host memory are charged; fails the test after a minute. The broker notices
 * that a client has released what it was given shortly after the end of the client's session.
 */
void broker_wait_host_bytes(struct rbk *rbk, uint64_t bytes);

/*
 * Return the device memory of @rbk's tenant, in bytes; wait at most 20 seconds until it is @bytes.
 */
uint64_t broker_vram_used(struct rbk *rbk);
void broker_wait_vram(struct rbk *rbk, uint64_t bytes);

/* Return true if the broker has a Vulkan device. */
bool broker_has_gpu(struct rbk *rbk);

/* ---- Neighbours --------------------------------------------------------------------------- */

/*
 * A well-behaved client in a thread of the test, with a constant, an arena and a ring. It computes
 * x * W + b over changing counts, inline and on workers, in short bursts, and checks every result.
 */
struct neighbour;

struct neighbour *neighbour_start(const struct broker *broker);

/* Return the number of right results so far. */
uint64_t neighbour_results(const struct neighbour *neighbour);

/*
 * Wait until the current round has ended. A round is several tasks in flight together; each round
 * begins when the one before has ended.
 */
void neighbour_finish_round(const struct neighbour *neighbour);

/* Return the time of the longest round since the start or the last call. */
uint64_t neighbour_take_longest_ns(struct neighbour *neighbour);

/*
 * End the neighbour. Fails the test if a result was wrong or missing, or if there was none. Return:
 * NULL.
 */
struct neighbour *neighbour_stop(struct neighbour *neighbour);
