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
#include "vulkan/vulkan.h"

/* Exit statuses of brokerd. */
enum {
	OPTIONS_EXIT_FAILURE = 1, /* something broke while it ran */
	OPTIONS_EXIT_USAGE = 2,   /* wrong option, or it cannot start as asked */
};

enum { OPTIONS_NICE_DEFAULT = 100 };

struct options_metrics {
	char text[METRICS_ADDRESS_BYTES]; /* as it was written */
	struct metrics_address address;
};

struct options {
	/* Longer than a socket's may be, so that a default that is too long is refused, not cut. */
	char socket_path[256];
	unsigned int socket_mode;
	char admin_socket_path[108]; /* empty: none */
	unsigned int admin_socket_mode;
	bool has_admin_socket; /* it was named: a broker that cannot listen there does not start */
	bool has_admin_group;
	gid_t admin_group;
	struct users admin_users; /* may change something */
	struct options_metrics metrics;
	uint64_t host_max_bytes; /* of all tenants together; 0: see config_host_max() */
	char cache_dir[256];     /* empty: none */
	int cache_error;         /* errno: why cache_dir is not used; 0: it is */
	struct cpu_options cpu;
	struct vulkan_options vulkan;
	struct place_config place;
	enum profiles_mode calibration;
	float cpu_watts, gpu_watts; /* 0: unknown */
	int64_t spin_ns;            /* -1: adaptive */
	uint64_t turn_ns;           /* the reactor's budget */
	uint64_t stop_ns;           /* until tasks in flight are abandoned; 0: 10 s */
	int reactor_nice;           /* its nice level; OPTIONS_NICE_DEFAULT: 10 below brokerd's */
	uint64_t test_device_ns;    /* what a task takes there; 0: there is none */
	/* What the kernel calls the memory of every GPU; empty: it is found out. */
	char test_dmem_region[DMEM_REGION_BYTES];
	enum run_queue_source contention;
	bool observes_contention; /* watch and say it, but do nothing about it */
	enum log_level log_level;
	char config_path[256];
	bool config_is_required; /* it was named */
	bool checks_config;      /* nothing else is wanted */
	bool has_socket_mode;
	bool wants_help, wants_version;
	uint64_t given; /* options that the command line has, by their place among all */
	enum list_devices_format list_devices; /* do only that */
};

/*
 * Reads the command line over the defaults. Prints help or version to standard output, errors, one
 * line each, to standard error. Return: -1 to go on; else the status to exit with.
 */
int options_parse(int argc, char **argv, struct options *ret);

/*
 * For policy_load(): reads @key of section [broker] into @context, a struct options, under what the
 * command line says. Every option that takes a value is a key, but for --config and those for tests
 * of brokerd.
 */
int options_read_key(void *context, const char *key, const char *value,
		     char ret_wanted[POLICY_WANTED_BYTES]);

/* Does @key count from SIGHUP on, as those of placement do, and not from the next start? */
bool options_key_is_live(const char *key);

/* Every key of placement with the value in force, in one line without an end. */
void options_print_place(FILE *stream, const struct options *options);

/* Fills in what depends on other options, and makes folders that are missing. */
void options_complete(struct options *options);
