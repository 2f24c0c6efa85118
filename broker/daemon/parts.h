#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The parts of brokerd: making them in the order of their dependencies, and freeing them
 *
 * Reactor thread.
 */
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "control/publish.h"
#include "daemon/options.h"
#include "daemon/service.h"
#include "loop/offload.h"
#include "tenant/policy.h"
#include "util/waker.h"

struct account_book;
struct budget;
struct checkpoint;
struct contention;
struct control;
struct dispatch;
struct endpoint;
struct enforce;
struct executor;
struct gate;
struct loop;
struct loop_watch;
struct offload;
struct profiles;
struct refresh;
struct residency;
struct restart;
struct run_queue;
struct server;
struct service;
struct steward;
struct telemetry;
struct tenants;
struct vulkan;

enum {
	PARTS_E_PATH = 1,  /* parts_make_executors(): see vulkan_path_refusal() */
	PARTS_E_FILES = 2, /* make_tenants(): too few open files, which was logged */
};

/*
 * Shares of the mappings of a process, 65,530 by default (vm.max_map_count): the mappings that
 * tenants are charged for, and those of the C library for large allocations, which may also come
 * from its heap. The rest is for chunks of packed constants, scratch, tasks and command buffers,
 * see util/chunks.h, and for drivers.
 */
enum { TENANTS_MAPPINGS = 24000, MALLOC_MAPPINGS = 16384 };

/* Reload of the policy file, on the setup thread, because looking up users may take long. */
struct reload {
	struct offload_job job;
	struct options options; /* the options after the reload */
	struct policy *policy;
	struct policy_errors errors;
	int result;
	bool is_running;
	bool is_wanted; /* repeat: the file may have changed since */
};

struct broker {
	struct options options;
	struct options asked;  /* options of the command line, without the file */
	struct policy *policy; /* NULL once the tenants own it */
	char *started_keys;    /* from config_remember(): the keys of the start; NULL: no memory */
	struct reload reload;
	struct waker waker;
	struct loop *loop;
	struct service *service;
	struct service_sockets given; /* paths are in the options, too */
	struct offload *offload;
	struct account_book *book;
	struct tenants *tenants;
	struct vulkan *vulkan;
	struct executor *executors[RBK_MAX_DEVICES];
	uint32_t n_executors;
	struct executor *test_device; /* one of executors; NULL: none */
	struct profiles *profiles;
	struct waker telemetry_waker;
	struct telemetry *telemetry;
	int telemetry_error;
	int nice_error; /* negative errno of hasten_reactor(); 0: none */
	struct budget *budget;
	struct residency *residency;
	struct enforce *enforce;
	char cgroups[PATH_MAX]; /* where cgroups are mounted, for enforce */
	struct gate *gate;
	struct run_queue *run_queue;
	pthread_t run_queue_thread; /* while makes_run_queue: makes run_queue */
	bool makes_run_queue;
	int run_queue_result;
	struct contention *contention;
	struct dispatch *dispatch;
	struct refresh *refresh;
	struct publish *publish;
	struct publish_self self; /* shown by publish */
	struct control *control;
	struct server *server;
	struct endpoint *endpoint;
	struct checkpoint *checkpoint; /* NULL: nothing is kept */
	struct restart *restart;       /* NULL: it cannot be restarted */
	struct steward *steward;
	struct loop_watch *sandbox_watch;
	int signal_fd;
	struct loop_watch *signal_watch;
	bool is_stopping;
};

/* Return: 0 or negative errno; PARTS_E_PATH. */
int parts_make_executors(struct broker *broker);
/*
 * Make the profiles, before clients are served: measurements need all of the devices and the waker.
 * Return: as parts_make_executors().
 */
int parts_make_profiles(struct broker *broker, uint64_t budget_ns);
/*
 * Make everything between the loop and the sockets, each part after its dependencies.
 * Return: 0; PARTS_E_*; as tenants_new(), with *ret_errors; negative errno.
 */
int parts_make(struct broker *broker, struct policy_errors *ret_errors);
/* Return: as server_new(). */
int parts_make_server(struct broker *broker);
/* Make the gate after the server: then no other broker has its socket, nor the gate beside it. */
int parts_make_gate(struct broker *broker);
int parts_make_refresh(struct broker *broker);
/* Free the parts that were made, but for the steward, who may call this. */
void parts_deinit(struct broker *broker);

/* Take back what exceeds a limit now. @context: the broker. */
void parts_limits_changed(void *context);
