/* SPDX-License-Identifier: MIT */
/*
 * Faults on pages of arenas and rings
 *
 * A signal handler on any thread reads the table while the reactor changes it. A slot is valid
 * while its base is non-zero; base is written last when a slot is filled and first when it is
 * emptied. A slot is emptied only when no task can touch the mapping any more. The handler
 * therefore never meets a partly changed slot that covers its own fault address.
 */
#include "session/sigbus.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/crash.h"
#include "util/error.h"

enum { SIGBUS_SLOTS = 65536 };

struct sigbus_slot {
	_Atomic uintptr_t base;
	size_t bytes;
	atomic_bool *flag;
};

static struct sigbus_slot slots[SIGBUS_SLOTS];
static atomic_int n_slots_used; /* highest slot ever used, plus 1 */
static atomic_int next_free;
static atomic_bool happened;

static void handle_sigbus(int signal_number, siginfo_t *info, void *context)
{
	static const struct sigaction by_default = {.sa_handler = SIG_DFL};
	uintptr_t address = (uintptr_t)info->si_addr;
	uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	int n = atomic_load_explicit(&n_slots_used, memory_order_acquire);
	int saved_errno = errno;
	uintptr_t base;
	void *page;

	for (int i = 0; i < n; i++) {
		base = atomic_load_explicit(&slots[i].base, memory_order_acquire);
		if (base == 0 || address < base || address - base >= slots[i].bytes)
			continue;

		page = mmap((void *)(address & ~(page_bytes - 1)), page_bytes,
			    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		if (page == MAP_FAILED)
			break;
		atomic_store_explicit(slots[i].flag, true, memory_order_release);
		atomic_store_explicit(&happened, true, memory_order_release);
		errno = saved_errno;
		return;
	}

	crash_note();
	/*
	 * Not in the table: restore the default action, which dumps core, and raise the signal
	 * again.
	 */
	sigaction(SIGBUS, &by_default, NULL);
	raise(signal_number);
}

int sigbus_init(void)
{
	struct sigaction action = {
		.sa_sigaction = handle_sigbus,
		.sa_flags = SA_SIGINFO | SA_NODEFER,
	};

	sigemptyset(&action.sa_mask);
	return sigaction(SIGBUS, &action, NULL) < 0 ? error_origin(-errno) : 0;
}

int sigbus_add(void *base, size_t bytes, atomic_bool *flag, int *ret_slot)
{
	int start = atomic_load_explicit(&next_free, memory_order_relaxed);
	int slot;

	for (int i = 0; i < SIGBUS_SLOTS; i++) {
		slot = (start + i) % SIGBUS_SLOTS;
		if (atomic_load_explicit(&slots[slot].base, memory_order_acquire) != 0)
			continue;

		slots[slot].bytes = bytes;
		slots[slot].flag = flag;
		atomic_store_explicit(&slots[slot].base, (uintptr_t)base, memory_order_release);
		if (slot >= atomic_load_explicit(&n_slots_used, memory_order_relaxed))
			atomic_store_explicit(&n_slots_used, slot + 1, memory_order_release);
		atomic_store_explicit(&next_free, slot + 1, memory_order_relaxed);
		*ret_slot = slot;
		return 0;
	}
	return error_origin(-ENOSPC);
}

void sigbus_remove(int slot)
{
	if (slot < 0)
		return;
	atomic_store_explicit(&slots[slot].base, 0, memory_order_release);
	atomic_store_explicit(&next_free, slot, memory_order_relaxed);
}

bool sigbus_happened(void)
{
	if (!atomic_load_explicit(&happened, memory_order_relaxed))
		return false;
	return atomic_exchange_explicit(&happened, false, memory_order_acq_rel);
}
