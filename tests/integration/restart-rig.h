#pragma once
/* SPDX-License-Identifier: MIT */
/* Restarting brokers in tests, beside clients that check every result (checker.h). */
#include <stdint.h>

#include <ringbroker/admin.h>

#include "integration/checker.h"
#include "integration/harness.h"

struct rbk_wire_restart;

enum { RESTART_CLIENTS = 4, RESTART_PLANS = 25 /* of each client */ };

/* Ask the broker that is there now. Return: as rbk_admin_restart(). */
int restart_ask(const struct broker *broker, struct rbk_admin_restart *ret,
		struct rbk_error *error);
/* Have the broker restart. Return: as rbk_admin_restart(). */
int restart_begin(const struct broker *broker, uint32_t drain_ms, struct rbk_admin_restart *ret,
		  struct rbk_error *error);
/* Wait until a broker answers that began to serve later than @before, with @n sessions back. */
struct rbk_admin_restart restart_await(const struct broker *broker,
				       const struct rbk_admin_restart *before, uint32_t n);

/* Start RESTART_CLIENTS clients, and wait until they work. The caller frees them. */
struct checker *restart_clients(const struct broker *broker);

/* Copy brokerd to @path; write a script to @path, in place of what is there. */
void restart_copy_program(const char *path);
void restart_write_script(const char *path, const char *text);

/* Open an administrator's session without the library. Return: its descriptor. */
int restart_raw_admin(const struct broker *broker);
/* Ask for a restart, or about one, without the library's own check. Return: the answer. */
struct rbk_wire_restart restart_raw(int fd, uint32_t action);
