#pragma once
/* SPDX-License-Identifier: MIT */
/* The broker's process: brokerd's parts, as daemon/parts.c makes them, with simulated devices */
#include "simulator/device.h"

enum { SIM_CARDS = 1, SIM_DEVICES = 1 + SIM_CARDS };

struct sim_broker_options {
	const char *folder; /* of the socket and the policy */
	struct sim_device_options devices[SIM_DEVICES];
	unsigned int first_hostile; /* the first process that is hostile, or a holder of leases */
	unsigned int first_holder;  /* the first process whose tenant has leases */
	uint64_t above_max_ns;      /* longest time of a tenant above a lowered maximum */
	int64_t spin_ns;
	uint64_t reactor_task_ns;
	uint64_t cut_seed; /* plans are cut by it; 0: they are whole */
	bool has_quota;
};

/* The main function of a simulated process. @data: struct sim_broker_options. */
void sim_broker_main(void *data);

/* Ask the broker to end in order, as SIGTERM does; director. Return: false if it does not listen.
 */
bool sim_broker_stop(void);
/* Ask it to read its policy again, as SIGHUP does; director. */
void sim_broker_reload(void);
/* Tell it that leased programs of some tenants used the cards; director. */
void sim_broker_charge_leased(void);

/* Tell the broker whether other programs wait for processors; any thread. */
void sim_broker_set_contended(bool is_contended);

/* Let other programs use @bytes of each card from now on; director. */
void sim_broker_others(uint64_t bytes);

/* Check that no message waits for the reactor, which is about to sleep; its thread. */
void sim_broker_check_sleep(void);

/* Check that a task may begin; the device's thread. */
void sim_broker_check_begin(const struct exec_task *exec);

/*
 * Check what must hold between any two steps of the broker; director. @is_first: no broker has died
 * before it, so it knows all leases.
 */
void sim_broker_check(bool is_first);

/*
 * Write the policy file, with tenants for the users SIM_UID + process. @generation varies limits,
 * of which the least device memory is @mib. From the process @first_poor on, tenants may have few
 * objects.
 */
void sim_policy_write(const char *folder, unsigned int generation, unsigned int mib,
		      unsigned int first_poor);

enum { SIM_UID = 2000 };
