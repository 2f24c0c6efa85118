#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerd's command line
 */
#include <stdbool.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "list-devices.h"
#include "tenant/policy.h"
#include "util/log.h"
#include "vulkan/vulkan.h"

/* Exit statuses of brokerd. */
enum {
	OPTIONS_EXIT_FAILURE = 1, /* something broke while it ran */
	OPTIONS_EXIT_USAGE = 2,   /* wrong option, or it cannot start as asked */
};

struct options {
	char socket_path[108];
	unsigned int socket_mode;
	char cache_dir[256]; /* empty: none */
	int cache_error;     /* errno: why cache_dir is not used; 0: it is */
	struct cpu_options cpu;
	struct vulkan_options vulkan;
	uint64_t threshold_bytes;
	int64_t spin_ns; /* -1: adaptive */
	enum log_level log_level;
	char config_path[256];
	bool config_is_required; /* it was named */
	bool checks_config;      /* nothing else is wanted */
	bool has_socket_mode;
	uint32_t given; /* options that the command line has, by their place among all */
	enum list_devices_format list_devices; /* do only that */
};

/*
 * Reads the command line over the defaults. Prints help or version to standard output, errors, one
 * line each, to standard error. Return: -1 to go on; else the status to exit with.
 */
int options_parse(int argc, char **argv, struct options *ret);

/*
 * For policy_load(): reads @key of section [broker] into @context, a struct options, under what the
 * command line says. Every option that takes a value is a key, but for --config.
 */
int options_read_key(void *context, const char *key, const char *value,
		     char ret_wanted[POLICY_WANTED_BYTES]);

/* Fills in what depends on other options, and makes folders that are missing. */
void options_complete(struct options *options);
