/* SPDX-License-Identifier: MIT */
/*
 * Litmus tests, whose outcomes under C11 are known: they show that the checker tries them all, and
 * no others. J. Alglave, L. Maranget, M. Tautschnig, "Herding cats", TOPLAS 2014, has their names.
 */
#include <stddef.h>

#include "models/weak-memory.h"
#include "models/weak-scenarios.h"

unsigned int weak_outcomes;

static int x, y, first, second;

static void set_up(void)
{
	x = y = first = second = 0;
}

static void note(void)
{
	weak_outcomes |= 1u << (2 * first + second);
}

/* SB: each thread stores, and loads what the other one stores. */
static void store_x_load_y(void)
{
	__atomic_store_n(&x, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	first = __atomic_load_n(&y, __ATOMIC_RELAXED);
}

static void store_y_load_x(void)
{
	__atomic_store_n(&y, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	second = __atomic_load_n(&x, __ATOMIC_RELAXED);
}

const struct weak_scenario weak_store_buffers = {
	.name = "SB",
	.n_threads = 2,
	.set_up = set_up,
	.threads = {store_x_load_y, store_y_load_x},
	.tear_down = note,
};

/* The same, where one thread executes the fences of both. */
static void store_x_load_y_unfenced(void)
{
	__atomic_store_n(&x, 1, __ATOMIC_RELAXED);
	first = __atomic_load_n(&y, __ATOMIC_RELAXED);
}

static void store_y_fence_all_load_x(void)
{
	__atomic_store_n(&y, 1, __ATOMIC_RELAXED);
	weak_fence_all();
	second = __atomic_load_n(&x, __ATOMIC_RELAXED);
}

const struct weak_scenario weak_store_buffers_unfenced = {
	.name = "SB unfenced",
	.n_threads = 2,
	.set_up = set_up,
	.threads = {store_x_load_y_unfenced, store_y_fence_all_load_x},
	.tear_down = note,
};

/* MP: a message, then a flag. */
static void send(void)
{
	__atomic_store_n(&x, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&y, 1, __ATOMIC_RELEASE);
}

static void receive(void)
{
	first = __atomic_load_n(&y, __ATOMIC_ACQUIRE);
	second = __atomic_load_n(&x, __ATOMIC_RELAXED);
}

const struct weak_scenario weak_message = {
	.name = "MP",
	.n_threads = 2,
	.set_up = set_up,
	.threads = {send, receive},
	.tear_down = note,
};

static void send_behind_fence(void)
{
	__atomic_store_n(&x, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&y, 1, __ATOMIC_RELAXED);
}

static void receive_before_fence(void)
{
	first = __atomic_load_n(&y, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	second = __atomic_load_n(&x, __ATOMIC_RELAXED);
}

const struct weak_scenario weak_message_fences = {
	.name = "MP with fences",
	.n_threads = 2,
	.set_up = set_up,
	.threads = {send_behind_fence, receive_before_fence},
	.tear_down = note,
};

/* CoRR: loads of one location do not go back. */
static void store_x(void)
{
	__atomic_store_n(&x, 1, __ATOMIC_RELAXED);
}

static void load_x_twice(void)
{
	first = __atomic_load_n(&x, __ATOMIC_RELAXED);
	second = __atomic_load_n(&x, __ATOMIC_RELAXED);
}

const struct weak_scenario weak_coherence = {
	.name = "CoRR",
	.n_threads = 2,
	.set_up = set_up,
	.threads = {store_x, load_x_twice},
	.tear_down = note,
};

/* WRC: the flag tells of a message that its thread has only read. */
static void pass_on(void)
{
	if (__atomic_load_n(&x, __ATOMIC_RELAXED))
		__atomic_store_n(&y, 1, __ATOMIC_RELEASE);
}

const struct weak_scenario weak_causality = {
	.name = "WRC",
	.n_threads = 3,
	.set_up = set_up,
	.threads = {store_x, pass_on, receive},
	.tear_down = note,
};

/* A load that returns an old value does not put the operations after it behind the store. */
static void exchange_then_store(void)
{
	first = __atomic_exchange_n(&y, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&x, 1, __ATOMIC_RELAXED);
}

static void load_then_exchange(void)
{
	__atomic_load_n(&x, __ATOMIC_RELAXED);
	second = __atomic_exchange_n(&y, 1, __ATOMIC_RELAXED);
}

const struct weak_scenario weak_load_first = {
	.name = "load first",
	.n_threads = 2,
	.set_up = set_up,
	.threads = {exchange_then_store, load_then_exchange},
	.tear_down = note,
};

/* Two read-modify-writes do not read the same. */
static void exchange_first(void)
{
	first = __atomic_exchange_n(&x, 1, __ATOMIC_RELAXED);
}

static void exchange_second(void)
{
	second = __atomic_exchange_n(&x, 1, __ATOMIC_RELAXED);
}

const struct weak_scenario weak_exchange = {
	.name = "exchange",
	.n_threads = 2,
	.set_up = set_up,
	.threads = {exchange_first, exchange_second},
	.tear_down = note,
};
