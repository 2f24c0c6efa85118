#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The parts of brokerd: making them, in the order of their dependencies, and unmaking them
 *
 * Reactor thread.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/options.h"
#include "daemon/service.h"
#include "loop/offload.h"
#include "util/waker.h"

struct account_book;
struct budget;
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
struct policy;
struct profiles;
struct publish;
struct refresh;
struct residency;
struct run_queue;
struct server;
struct service;
struct telemetry;
struct tenants;
struct vulkan;

enum {
	PARTS_E_PATH = 1,  /* parts_make_executors: vulkan_path_refusal() says why */
	PARTS_E_FILES = 2, /* make_tenants: there may be too few open files; it was said */
};

/*
 * A process has 65,530 mappings by default (vm.max_map_count). These are what tenants are charged
 * for and what the C library takes for large allocations, which may come from its heap as well. The
 * rest is for chunks of packed constants, scratch, tasks and command buffers, see util/chunks.h,
 * and for what drivers have of their own.
 */
enum { TENANTS_MAPPINGS = 24000, MALLOC_MAPPINGS = 16384 };

/* Reading the policy file again, on the setup thread: looking up users may take long. */
struct reload {
	struct offload_job job;
	struct options options; /* what they would be now */
	struct policy *policy;
	char *errors;
	int result;
	bool is_running;
	bool is_wanted; /* once more: the file may have changed since */
};

struct broker {
	struct options options;
	struct options asked;  /* what the command line says, without the file */
	struct policy *policy; /* until the tenants have it */
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
	struct executor *test_device; /* one of them; NULL: not wanted */
	struct profiles *profiles;
	struct waker telemetry_waker;
	struct telemetry *telemetry;
	int telemetry_error;
	int nice_error; /* of hasten_reactor() */
	struct budget *budget;
	struct residency *residency;
	struct enforce *enforce;
	char cgroups[PATH_MAX]; /* where they are mounted, for it */
	struct gate *gate;
	struct run_queue *run_queue;
	struct contention *contention;
	struct dispatch *dispatch;
	struct refresh *refresh;
	struct publish *publish;
	struct control *control;
	struct server *server;
	struct endpoint *endpoint;
	int signal_fd;
	struct loop_watch *signal_watch;
	bool is_stopping;
};

/* Return: 0 or negative errno; PARTS_E_PATH. */
int parts_make_executors(struct broker *broker);
/* Before clients are served: it has the devices and their waker to itself. Return: as above. */
int parts_make_profiles(struct broker *broker, uint64_t budget_ns);
/*
 * Makes everything between the loop and the sockets, each after what it is made of. Return: 0;
 * PARTS_E_*; as tenants_new(), with *ret_errors; negative errno.
 */
int parts_make(struct broker *broker, char **ret_errors);
/* Return: as server_new(). */
int parts_make_server(struct broker *broker);
/* After the server: no other broker has its socket then, nor the gate beside it. */
int parts_make_gate(struct broker *broker);
int parts_make_refresh(struct broker *broker);
/* Unmakes what was made. */
void parts_deinit(struct broker *broker);

/* Takes back what is above a limit now. @context: the broker. */
void parts_limits_changed(void *context);
