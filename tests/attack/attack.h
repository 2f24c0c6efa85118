#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Attacks on a broker, and their effect on a neighbour's times
 *
 * A referee (attack.c) starts a private broker with two tenants, which the broker distinguishes by
 * their executables: copies of this program. One copy is the neighbour (attack-neighbour.c), which
 * runs closed loops of small tasks, checks each result and records each time. Another copy is the
 * attacker (rows-*.c) or the friend. The friend has honest tasks, and uses as much processor time
 * as the attacker just did.
 *
 * Attacker and friend take turns, one window of time each, so that other load on the machine
 * affects both. The table at the end (attack-report.c) compares the neighbour's times beside the
 * attacker with those beside the friend. A witness (attack-witness.c) measures for how long the
 * machine itself stood still.
 *
 * To add a row: write its function in a file rows-*.c, add it to rows[] in attack.c, and its name
 * to meson.build. A row fails for a wrong result, a broker that dies, an entry of the neighbour
 * that waits for a second, memory that is not charged, and anything left behind. Ratios of times
 * are printed beside their limits. Most tests leave the friend's windows out (--quick).
 *
 * The processes share a mapping (struct attack). Members are no cmocka tests: they end by
 * attack_fail(), whose sentence the referee prints.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ringbroker.h>
#include <ringbroker/stats.h>

#include "integration/raw.h"

enum attack_phase {
	ATTACK_BEGIN, /* nothing is recorded */
	ATTACK_BESIDE_FRIEND,
	ATTACK_BESIDE_ATTACKER,
	ATTACK_OVER, /* nothing is recorded, the neighbour ends */
};
#define ATTACK_N_PHASES 4
#define ATTACK_N_ERRORS 134

enum attack_kind {
	ATTACK_INLINE,  /* additions of 16 floats, which the reactor computes inline */
	ATTACK_PRODUCT, /* products of 64 x 64, which a worker computes */
	ATTACK_GPU,     /* additions of 4,096 floats on the Vulkan device, if there is one */
	ATTACK_SET_UP,  /* PLAN_ADD and PLAN_REMOVE of a small plan */
	ATTACK_CONNECT, /* sessions that make a ring and use it once */
};
#define ATTACK_N_KINDS 5

/* Thread of the broker that the friend keeps busy. */
enum attack_friend {
	ATTACK_FRIEND_INLINE,   /* the reactor: inline additions in a closed loop */
	ATTACK_FRIEND_PRODUCTS, /* a worker: products of 512 x 512 in a closed loop */
	ATTACK_FRIEND_SET_UP,   /* the setup thread: small plans in a closed loop */
};

/* Histogram of 16 buckets per power of two: a resolution of 6%. */
#define ATTACK_N_BUCKETS (64u * 16u)
struct attack_times {
	_Atomic uint64_t n;
	_Atomic uint64_t longest_ns;
	_Atomic uint64_t buckets[ATTACK_N_BUCKETS];
};

void attack_times_add(struct attack_times *times, uint64_t ns);
/* Return the time that @percent of the recorded times do not exceed; 0 without times. */
uint64_t attack_times_percentile(const struct attack_times *times, unsigned int percent);

struct attack {
	/* Written by the referee before members start. */
	char socket_path[96];
	char admin_path[112];
	char metrics_path[112]; /* socket of rows with has_metrics */
	unsigned int row;
	unsigned int n_sessions;
	unsigned int n_threads; /* threads of the friend or attacker, which divide the sessions */
	enum attack_friend friend;
	uint64_t arena_bytes; /* size of the large arena, in rows that have one */
	/* Written by the referee before a friend starts: attacker's load; 1000: one processor. */
	unsigned int busy_permille;
	uint32_t side;        /* rows and columns of the large products of row 5 */
	bool is_slow;         /* true: under sanitizers */
	bool neighbour_rests; /* true: the neighbour is active for a tenth of the time */

	_Atomic unsigned int phase;   /* enum attack_phase */
	_Atomic bool stop;            /* true: friend and attacker end */
	_Atomic unsigned int n_begun; /* threads of the friend or attacker that are ready */
	_Atomic unsigned int n_ready;

	/* Written by members. */
	struct attack_times times[ATTACK_N_PHASES][ATTACK_N_KINDS];
	/* longest standstill of the machine; 0: no witness */
	_Atomic uint64_t gap_ns[ATTACK_N_PHASES];
	_Atomic uint64_t n_results; /* results of the neighbour, all of them right */
	_Atomic bool has_gpu;
	_Atomic uint64_t n_done;     /* successful requests or tasks of the attacker */
	_Atomic uint64_t n_refused;  /* refused requests or tasks of the attacker */
	_Atomic uint64_t longest_ns; /* longest time that the row notes */
	_Atomic uint64_t n_changed; /* rows 24 to 26: entries or messages that are not valid ones */
	_Atomic uint64_t n_ended;   /* row 25: sessions that the broker ended */
	_Atomic uint64_t
		n_by_errno[ATTACK_N_ERRORS]; /* rows 24, 26: completions, indexed by -res */
	_Atomic bool has_failed;
	char failure[512];
};

/* Store a message for the referee, and end the process. */
void attack_fail(struct attack *attack, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));

/* ---- Members; each runs in its own process, until it is told to stop ---- */

void attack_be_neighbour(struct attack *attack);
void attack_be_friend(struct attack *attack);

/* ---- The witness, in the referee's process ---- */

#define ATTACK_MAX_WITNESSES 64u /* most processors with a witness */
struct attack_witness {
	struct attack *attack;
	pthread_t threads[ATTACK_MAX_WITNESSES];
	unsigned int n_threads;
	_Atomic unsigned int n_begun;
	_Atomic bool stop;
};

/* Start recording gap_ns if this process has the right to; errors are ignored. */
void attack_witness_start(struct attack_witness *witness, struct attack *attack);
void attack_witness_stop(struct attack_witness *witness);

/* ---- For attackers ---- */

/*
 * Return true while the attack continues. A thread's first call says that it is ready; its window
 * then begins.
 */
bool attack_goes_on(struct attack *attack);

/* Return the number of sessions of one thread of the attacker; *ret_first is the first. */
unsigned int attack_share(const struct attack *attack, unsigned int thread,
			  unsigned int *ret_first);

/* Open a session without the library. */
int attack_connect(struct attack *attack);
/* The same with other features, RBK_FEAT_*. */
int attack_connect_with(struct attack *attack, uint64_t features);

/* Count in n_done if @res is a success, else in n_refused. */
void attack_count(struct attack *attack, int res);
void attack_note_longest(struct attack *attack, uint64_t ns);

/*
 * attack_send() sends without waiting for the answer. attack_receive() receives an answer into
 * @reply and closes its descriptors.
 */
void attack_send(struct attack *attack, int fd, const void *request, size_t bytes, const int *fds,
		 unsigned int n_fds);
int attack_receive(struct attack *attack, int fd, void *reply, size_t bytes);

/*
 * PLAN_ADD of any length, by a memfd. attack_plan_fd() writes the memfd and frees @describe;
 * attack_send_plan() sends the request. attack_plan_add() does both and waits for the answer.
 * Return: the memfd, or the answer's result; *ret_id is valid if that is 0.
 */
struct describe;
int attack_plan_fd(struct describe *describe);
void attack_send_plan(struct attack *attack, int fd, int plan_fd);
int attack_plan_add(struct attack *attack, int fd, struct describe *describe, uint32_t *ret_id);

/* Describe z[16] = x[16] + y[16]. */
struct describe *attack_describe_add(void);
/* Describe y = x * w * w ... , @n products of @side x @side. */
struct describe *attack_describe_products(uint32_t side, unsigned int n);

/* ---- Rows and the referee ---- */

struct attack_row {
	unsigned int number;
	const char *name, *what;
	void (*run)(struct attack *attack,
		    unsigned int thread); /* runs until attack_goes_on() is false */
	enum attack_friend friend;
	unsigned int n_sessions;
	const char *policy;    /* further lines of the attacker's section; may be NULL */
	const char *arguments; /* one more argument of brokerd; may be NULL */
	bool must_succeed;     /* true: all that the attacker has begun must end */
	uint64_t n_files;      /* the broker's limit of open files; 0: unchanged */
	bool needs_parts;   /* true: the broker has measured its device, and splits plans for it */
	bool has_metrics;   /* true: the broker has a socket for Prometheus */
	bool is_one_tenant; /* true: the attacker belongs to the neighbour's tenant */
};

/* The options of a row. */
struct attack_options {
	const char *program; /* path of this program */
	unsigned int n_sessions;
	unsigned int n_windows; /* windows of the attacker; as many of the friend unless is_quick */
	uint64_t window_ns;
	uint64_t n_least;     /* results of the attacker in all windows; 0: as many as there are */
	bool neighbour_rests; /* --rest */
	bool is_quick;        /* --quick: visits of the friend instead of windows */
};

/* Processor time in the windows of one phase. */
struct attack_load {
	uint64_t wall_ns;
	uint64_t member_ns; /* processor time of the friend or the attacker */
	uint64_t broker_ns;
};

/* The reactor's turns in the windows of one phase. */
struct attack_turns {
	uint64_t longest_ns;               /* 0: no turn took long */
	uint32_t cause;                    /* enum rbk_turn_cause */
	char tenant[RBK_STATS_NAME_BYTES]; /* empty: none, or unknown */
	uint64_t n_overruns;
};

/* The broker's statistics and resources, before or after an attack. */
struct attack_rest {
	uint64_t tenants_bytes; /* host memory charged to tenants */
	struct rbk_stats stats;
	struct broker_usage usage;
};

/* The results of a row. Times are in struct attack. */
struct attack_result {
	const struct attack_row *row;
	const struct attack *attack;
	const struct attack_options *options;
	struct attack_turns turns[ATTACK_N_PHASES];
	struct attack_load loads[ATTACK_N_PHASES];
	struct attack_rest before, after; /* the last attack */
	uint64_t rest_ns;                 /* longest time until all figures were back */
	uint64_t longest_answer_ns; /* longest answer to an administrator, beside the attacker */
	uint64_t memory_bytes;      /* peak growth of the broker's memory in a window */
	uint64_t charged_bytes;     /* growth of the charges in the same window */
	uint64_t excess_bytes;      /* peak of a window's growth of memory above its charges */
	unsigned int most_fds;      /* peak of the broker's descriptors, beside the attacker */
	unsigned int n_wrong;
	bool is_within; /* true: all times are within their limits; true if is_quick */
};

/* Run a row and print its errors. The caller passes the result to attack_result_deinit(). */
void attack_referee(const struct attack_row *row, const struct attack_options *options,
		    struct attack_result *ret);
void attack_result_deinit(struct attack_result *result);

/* Print a row's table and set is_within. */
void attack_print_table(struct attack_result *result);
/* Print a row as one line of JSON. */
void attack_print_json(const struct attack_result *result, FILE *file);

/* ---- Attacks: the part of one thread, until attack_goes_on() returns false ---- */

void attack_parts(struct attack *attack, unsigned int thread);          /* 1 */
void attack_constants(struct attack *attack, unsigned int thread);      /* 2 */
void attack_verify(struct attack *attack, unsigned int thread);         /* 3 */
void attack_descriptors(struct attack *attack, unsigned int thread);    /* 4 */
void attack_products(struct attack *attack, unsigned int thread);       /* 5 */
void attack_accepts(struct attack *attack, unsigned int thread);        /* 6 */
void attack_arenas(struct attack *attack, unsigned int thread);         /* 7 */
void attack_cancels(struct attack *attack, unsigned int thread);        /* 8 */
void attack_rings(struct attack *attack, unsigned int thread);          /* 9 */
void attack_punch(struct attack *attack, unsigned int thread);          /* 10 */
void attack_refill(struct attack *attack, unsigned int thread);         /* 11 */
void attack_watch(struct attack *attack, unsigned int thread);          /* 12 */
void attack_many_rings(struct attack *attack, unsigned int thread);     /* 13 */
void attack_setup_flood(struct attack *attack, unsigned int thread);    /* 13, the other half */
void attack_leases(struct attack *attack, unsigned int thread);         /* 15 */
void attack_links(struct attack *attack, unsigned int thread);          /* 16 */
void attack_tables(struct attack *attack, unsigned int thread);         /* 17 */
void attack_observers(struct attack *attack, unsigned int thread);      /* 18 */
void attack_oddities(struct attack *attack, unsigned int thread);       /* 19 */
void attack_bells(struct attack *attack, unsigned int thread);          /* 21 */
void attack_plan_queue(struct attack *attack, unsigned int thread);     /* 22 */
void attack_waiters(struct attack *attack, unsigned int thread);        /* 23 */
void attack_entries(struct attack *attack, unsigned int thread);        /* 24 */
void attack_messages(struct attack *attack, unsigned int thread);       /* 25 */
void attack_device_entries(struct attack *attack, unsigned int thread); /* 26 */
