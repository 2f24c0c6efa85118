#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Private brokers for integration tests
 *
 * Starts a real brokerd in a folder of its own, looks at it from outside (/proc), and ends it. Its
 * log goes to a file that is shown if the test fails. A broker dies with the test that started it.
 * For cmocka tests: what goes wrong in here fails the running test. Main thread only, but for
 * neighbours, which have a thread of their own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <ringbroker.h>
#include <ringbroker/stats.h>

#include "support/scaled.h"

/*
 * Ends the test program by SIGALRM if it takes far longer, three times that: it hangs. Multiplied
 * for slow builds.
 */
void harness_limit_seconds(unsigned int seconds);

/* A bound on how long something may take, multiplied for slow builds likewise. */
uint64_t harness_slow_ns(uint64_t ns);

/*
 * Starts a process of user @uid that runs @be and ends by itself only if that returns, with 1. It
 * dies with its parent. Root only.
 */
pid_t harness_start_as(uid_t uid, void (*be)(void));

/*
 * Changes the effective user of the calling thread, whom the kernel names where that connects. The
 * library's seteuid() does it with a signal to each other thread, which interrupts what a
 * neighbour's waits for. Root only.
 */
void harness_become(uid_t uid);

void harness_sleep_ms(unsigned int ms);
uint64_t harness_now_ns(void);

/*
 * rbk_stats_copy() of record @index of section @id: waits while the broker is at it, which on a
 * busy machine may have lost the processor in the middle of a change. Return: false only if that
 * lasts ten seconds.
 */
bool harness_stats_copy(const struct rbk_stats_view *view, unsigned int id, uint32_t index,
			void *to, size_t bytes);

/* A reproducible random number; *state must not be 0. */
uint64_t harness_random(uint64_t *state);

/* ---- Brokers ------------------------------------------------------------------------------ */

struct broker {
	pid_t pid; /* 0: not running */
	char dir[64];
	char socket_path[96];
	char admin_path[112]; /* the administrators' socket, beside it */
	char log_path[96];
	char cache_path[96];
	char config_path[96];
};

struct broker_options {
	/*
	 * Beside --socket, --cache and --calibration=none, which a later one overrides, and with
	 * --gpu=software --contention=none: where there are two devices decisions are tested, and
	 * on a machine that tests keep busy these would be others. NULL-terminated; may be NULL.
	 */
	const char *const *args;
	/* As with --gpu=software: shares and orders are tested, of times that tasks take. */
	bool is_undisturbed;
	void (*in_child)(void);  /* before exec; may be NULL */
	const char *socket_path; /* NULL: in a folder of its own */
	const char *policy;      /* text of its policy file; NULL: it has none */
};

/*
 * Have all brokers watch who contends for processors, unless their options say otherwise. Without
 * this call the first broker of a program watches, and each that has an in_child; the others start
 * with --contention=none. Loading and unloading the probes keeps a kernel busy for 0.35 s and a
 * broker waiting for 0.5 s. Call it in tests of what a broker does by default.
 */
void broker_watch_all(void);

/* Starts brokerd and waits until it accepts connections. @options may be NULL. */
void broker_start(struct broker *broker, const struct broker_options *options);

/* For brokers that may not start. Return: true if it accepts; false with its wait status. */
bool broker_try_start(struct broker *broker, const struct broker_options *options, int *ret_status);

/* Writes its policy file, of one that has one, anew; broker_reload() has it read. */
void broker_write_policy(const struct broker *broker, const char *policy);

/* SIGHUP, and waits until the log has @text more often than before; fails the test after a minute.
 */
void broker_reload(const struct broker *broker, const char *text);

/* SIGTERM: must end with status 0 within 20 s and without complaints of a sanitizer. */
void broker_stop(struct broker *broker);
#define BROKER(name, ...) SCOPED(broker, name, broker_start, broker_stop, __VA_ARGS__)

/* Waits for its end. Return: its wait status. */
int broker_wait(struct broker *broker);

/* SIGKILL. */
void broker_kill(struct broker *broker);

/* Removes its folder; nothing happens twice. Not running. */
void broker_remove(struct broker *broker);

/* Does the log contain @text? */
bool broker_log_has(const struct broker *broker, const char *text);
/*
 * Waits until it does, and fails the test after a minute: what is told to a client may come before
 * what is told to the log.
 */
void broker_wait_log(const struct broker *broker, const char *text);
/* How often? */
unsigned int broker_log_count(const struct broker *broker, const char *text);
unsigned int broker_log_lines(const struct broker *broker);
void broker_show_log(const struct broker *broker);

/* What the process holds, from /proc. */
struct broker_usage {
	unsigned int n_fds;
	unsigned int n_threads;
	unsigned int n_mappings;
	uint64_t rss_bytes;
	/*
	 * How often one of its threads stopped running: a broker that does nothing leaves it as it
	 * is, which clock ticks of 10 ms are too coarse to tell.
	 */
	uint64_t n_switches;
};
void broker_usage(const struct broker *broker, struct broker_usage *ret);

/*
 * The least of 20 looks in 100 ms, of its descriptors: a connection that has ended may not be
 * closed yet, and a file that the broker reads now and then may be open.
 */
void broker_usage_least(const struct broker *broker, struct broker_usage *ret);

/* Waits until it holds @n_fds descriptors, and fails the test after ten seconds. */
void broker_wait_fds(const struct broker *broker, unsigned int n_fds);

/* Connects, or fails the test. */
struct rbk *broker_connect(const struct broker *broker, const char *name);

/*
 * broker_start() with an argument --gpu=software, and a connection. Ends the program with 77, which
 * is skipped, where there is no such device.
 */
struct rbk *broker_start_gpu(struct broker *broker, const struct broker_options *options,
			     const char *name);

/* Likewise to the administrators' socket. */
struct rbk *broker_connect_admin(const struct broker *broker, const char *name);

/* Waits until so many sessions are left, and fails the test after a minute. */
void broker_wait_sessions(struct rbk *rbk, uint64_t n_sessions);

/*
 * Likewise until so many bytes of host memory are charged: that clients let go of what they were
 * handed is noticed a moment later than the end of their sessions.
 */
void broker_wait_host_bytes(struct rbk *rbk, uint64_t bytes);

/* Device memory of the tenant of @rbk; and waits until that is so much, 20 seconds at most. */
uint64_t broker_vram_used(struct rbk *rbk);
void broker_wait_vram(struct rbk *rbk, uint64_t bytes);

/* Is a Vulkan device there? */
bool broker_has_gpu(struct rbk *rbk);

/* ---- Neighbours --------------------------------------------------------------------------- */

/*
 * A well-behaved client in a thread of the test, with a constant, an arena and a ring: computes
 * x * W + b over changing counts, inline and on workers, without a pause, and checks every result.
 */
struct neighbour;

struct neighbour *neighbour_start(const struct broker *broker);

/* How many results were right so far. */
uint64_t neighbour_results(const struct neighbour *neighbour);

/*
 * Waits until the round that is under way has ended. A round is some tasks at once, and begins
 * where the one before has ended.
 */
void neighbour_finish_round(const struct neighbour *neighbour);

/* The longest that a round took since the start or the last call. */
uint64_t neighbour_take_longest_ns(struct neighbour *neighbour);

/* Ends it. Fails the test if a result was wrong or missing, or there was none. Return: NULL. */
struct neighbour *neighbour_stop(struct neighbour *neighbour);
