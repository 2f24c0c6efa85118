/* SPDX-License-Identifier: MIT */
/*
 * See crash.h. A crash in the handler is not handled: the kernel ends a program with a fault whose
 * signal is blocked. Nor is an overflow of a stack, which leaves the handler no stack.
 */
#include "util/crash.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "util/error.h"

static const int signals[] = {SIGSEGV, SIGFPE, SIGILL, SIGABRT};
enum { N_SIGNALS = sizeof(signals) / sizeof(signals[0]) };

static struct sigaction earlier[N_SIGNALS];
static crash_fn *_Atomic blamer;
static void *_Atomic blamer_context;

_Thread_local struct crash_thread crash_thread;

void crash_watch(crash_fn *blame, void *context)
{
	atomic_store_explicit(&blamer_context, context, memory_order_relaxed);
	/* Pairs with the load in crash_note(). */
	atomic_store_explicit(&blamer, blame, memory_order_release);
}

void crash_note(void)
{
	crash_fn *blame = atomic_load_explicit(&blamer, memory_order_acquire);

	if (blame && (crash_thread.task || !crash_thread.is_own))
		blame(atomic_load_explicit(&blamer_context, memory_order_relaxed),
		      crash_thread.task);
}

static void on_crash(int signal_number, siginfo_t *info, void *context)
{
	/* kill() sends signals that are no crash; the watchdog sends SIGABRT in that way. */
	const bool is_sent = info->si_code <= 0;
	unsigned int i = 0;

	if (!is_sent || signal_number == SIGABRT)
		crash_note();
	while (signals[i] != signal_number)
		i++;
	sigaction(signal_number, &earlier[i], NULL);
	/* Otherwise the thread returns to the instruction that raises the signal again. */
	if (is_sent)
		raise(signal_number);
}

int crash_init(void)
{
	struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO};

	sigemptyset(&action.sa_mask);
	for (unsigned int i = 0; i < N_SIGNALS; i++)
		if (sigaction(signals[i], &action, &earlier[i]) < 0)
			return error_origin(-errno);
	return 0;
}
