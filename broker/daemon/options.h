#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerd's command line
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "calibrate/profiles.h"
#include "contention/run-queue.h"
#include "control/metrics-address.h"
#include "cpu/cpu.h"
#include "daemon/list-devices.h"
#include "daemon/users.h"
#include "loop/turn.h"
#include "place/placer.h"
#include "tenant/policy.h"
#include "util/dmem.h"
#include "util/log.h"
#include "util/sandbox.h"
#include "vulkan/vulkan.h"

/* Exit statuses of brokerd. */
enum {
	OPTIONS_EXIT_FAILURE = 1, /* a failure while it ran */
	OPTIONS_EXIT_USAGE = 2,   /* wrong option, or it cannot start as asked */
	/* The service manager is to start it again: see RestartForceExitStatus= in the unit. */
	OPTIONS_EXIT_RESTART = 75,
};

enum { OPTIONS_NICE_DEFAULT = 100 };

struct options_metrics {
	char text[METRICS_ADDRESS_BYTES]; /* as it was written */
	struct metrics_address address;
};

struct options {
	/*
	 * Longer than a socket's path may be, so that a default that is too long is rejected, not
	 * cut.
	 */
	char socket_path[256];
	unsigned int socket_mode;
	char admin_socket_path[108]; /* empty: none */
	unsigned int admin_socket_mode;
	/* set explicitly: a broker that cannot listen on it does not start */
	bool has_admin_socket;
	bool has_admin_group;
	gid_t admin_group;
	struct users admin_users; /* users who may change something */
	struct options_metrics metrics;
	uint64_t host_max_bytes; /* limit of all tenants together; 0: see config_host_max() */
	char cache_dir[256];     /* empty: none */
	int cache_error;         /* errno: why cache_dir is not used; 0: it is used */
	struct cpu_options cpu;
	struct vulkan_options vulkan;
	struct place_config place;
	enum profiles_mode calibration;
	float cpu_watts, gpu_watts;  /* 0: unknown */
	int64_t spin_ns;             /* -1: adaptive */
	uint64_t cut_seed;           /* cut plans at random; 0: no */
	uint64_t reactor_task_ns;    /* longest task that the reactor runs itself; 0: none */
	uint64_t turn_ns;            /* the reactor's budget */
	uint64_t stop_ns;            /* time until tasks in flight are abandoned; 0: 10 s */
	int reactor_nice;            /* its nice level; OPTIONS_NICE_DEFAULT: 10 below brokerd's */
	uint64_t test_device_ns;     /* duration of a task on the test device; 0: no test device */
	uint64_t test_device_row_ns; /* what each of its rows adds */
	uint32_t test_device_gflops; /* GFLOP/s that it computes; 0: in no time */
	uint32_t test_device_link;   /* MB/s in which it is loaded; 0: in no time */
	/* The kernel's name of the memory of every GPU; empty: it is found out. */
	char test_dmem_region[DMEM_REGION_BYTES];
	enum run_queue_source contention;
	enum sandbox_mode sandbox;
	bool observes_contention; /* report contention, but do not act on it */
	enum log_level log_level;
	char config_path[256];
	bool config_is_required; /* config_path was given explicitly */
	bool checks_config;      /* --check-config: do only that */
	bool has_socket_mode;
	bool wants_help, wants_version;
	uint64_t given; /* bit mask, by row: options given on the command line */
	enum list_devices_format list_devices; /* --list-devices: do only that */
};

/*
 * Parse the command line over the defaults. Print help or version to standard output; print errors,
 * one line each, to standard error.
 * Return: -1 to continue; else the status to exit with.
 */
int options_parse(int argc, char **argv, struct options *ret);

/*
 * Read @key of section [broker] into @context, a struct options, for policy_load(). The command
 * line has precedence. Every option with a value is a key, except --config and those for tests of
 * brokerd.
 */
int options_read_key(void *context, const char *key, const char *value,
		     char ret_wanted[POLICY_WANTED_BYTES]);

/*
 * Return true if @key takes effect at SIGHUP, as keys of placement do, and not only at the next
 * start.
 */
bool options_key_is_live(const char *key);

/* Return true if the command line has @key, so that the file's value has no effect. */
bool options_is_given(const struct options *options, const char *key);

/* Print every key of placement with the value in force, in one line without a line end. */
void options_print_place(FILE *stream, const struct options *options);

/* Fill in what depends on other options, and make missing folders. */
void options_complete(struct options *options);
