#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the devices are doing: memory, load, sensors, who uses them
 *
 * A thread of its own ("rb-telemetry") samples every device and publishes what it saw; the reactor
 * is rung when something changed that it acts upon (memory in use outside the broker, a device
 * lost, gone, or back). amdgpu devices are read through libdrm_amdgpu, sysfs and /proc; others
 * through what their executor's driver says. A value that cannot be had is absent, never zero.
 *
 * Sampling adapts: every 20 ms while tasks run, or memory is tight (less than a tenth of the pool
 * is free) and there are sessions; every second while there are sessions; every 10 seconds when
 * idle, and not at all while a card sleeps and nobody of ours could use it. Per-process use is
 * looked at ten times less often; load, clocks, temperature and power at most once a second, and
 * less if the card is slow to tell. Without a device that can be watched there is no thread. Where
 * telemetry could not be made at all, NULL stands for one that watches nothing.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ringbroker/abi.h>

#include "util/cleanup.h"

struct telemetry;
struct waker;

enum {
	TELEMETRY_MAX_PROCESSES = 64, /* listed per device, the largest users first */
	TELEMETRY_COMM_BYTES = 16,
	TELEMETRY_NAME_BYTES = 64,
	TELEMETRY_PCI_BYTES = 24,
	TELEMETRY_WHY_BYTES = 128,
};

/* A value, or its absence. */
struct reading {
	uint64_t value;
	bool is_valid;
};

/* Bytes of one kind of memory. */
struct memory_reading {
	struct reading total;  /* that there is */
	struct reading usable; /* without what the driver keeps for itself */
	struct reading used;   /* by everybody */
	struct reading own;    /* by this process */
};

enum telemetry_state {
	TELEMETRY_PRESENT,
	TELEMETRY_GONE, /* unplugged: the kernel has no such device any more */
};

/* What one process holds, from the fdinfo of its descriptors, each DRM client counted once. */
struct process_reading {
	pid_t pid;
	uid_t uid;
	char comm[TELEMETRY_COMM_BYTES];
	uint64_t vram_bytes;
	uint64_t gtt_bytes;
	struct reading busy_percent; /* of all engines together, since the last look */
};

/* One sample of one device. */
struct device_reading {
	uint64_t sampled_ns; /* CLOCK_MONOTONIC; 0: never */
	uint32_t n_samples;
	enum telemetry_state state;
	char source[TELEMETRY_NAME_BYTES]; /* "amdgpu", "VK_EXT_memory_budget", "none" */
	char pci[TELEMETRY_PCI_BYTES];     /* "0000:03:00.0"; empty: unknown */
	bool is_integrated; /* VRAM is carved out of host memory; see telemetry_pool() */

	struct memory_reading vram, visible_vram, gtt;
	struct reading n_evictions, bytes_moved, n_page_faults; /* the driver's, since it started */
	struct reading n_vram_lost; /* grows with each loss of contents */
	struct reading n_resets;    /* noticed since the broker started */
	struct reading n_suspends;  /* likewise */
	struct reading load_percent, memory_load_percent;
	struct reading gpu_hz, memory_hz;
	struct reading temperature_millicelsius;
	struct reading power_microwatts;

	struct reading processes_ns; /* when the list below was made; absent: it cannot be */
	bool processes_are_partial;  /* other users' are hidden from this process */
	uint32_t n_processes;
	struct process_reading processes[TELEMETRY_MAX_PROCESSES];
};

/*
 * How a device that is not amdgpu is asked, on the telemetry thread and in telemetry_new(). Sets
 * what it can of vram, visible_vram, gtt, is_integrated and source; everything is absent when it is
 * called. Also asked for vram.own of an amdgpu device whose kernel does not say what this process
 * holds.
 */
struct telemetry_driver {
	void (*sample)(void *context, struct device_reading *reading);
	void *context;
};

/* A device to watch. */
struct telemetry_device {
	uint32_t index; /* RBK_DEVICE_* */
	bool has_pci;
	uint32_t pci_domain;
	uint8_t pci_bus, pci_device, pci_function;
	bool has_render;
	uint32_t render_major, render_minor;
	struct telemetry_driver driver; /* sample NULL: none */
};

/*
 * Starts watching. Memory has been sampled once when this returns; load, sensors and processes
 * follow, see telemetry_wait(). @waker is borrowed and rung after a sample that matters: a device
 * gone, back, reset or suspended, evictions, or what is used outside this process having changed by
 * 4 MiB. Contexts of drivers are borrowed until telemetry_free().
 * Return: 0, *ret also where nothing can be watched; negative errno (no thread, no memory).
 */
int telemetry_new(const struct telemetry_device *devices, uint32_t n_devices, struct waker *waker,
		  struct telemetry **ret);
/* Stops the thread. Return: NULL. */
struct telemetry *telemetry_free(struct telemetry *telemetry);

/* Sentences about what cannot be watched and why; for people. NULL beyond the last. */
const char *telemetry_sentence(const struct telemetry *telemetry, unsigned int i);

/*
 * Waits until every device was sampled in full, for who looks once. Return: false: not within
 * @timeout_ns.
 */
bool telemetry_wait(const struct telemetry *telemetry, uint64_t timeout_ns);

/*
 * The last sample of the device with that index. Any thread; a copy under a sequence lock of about
 * 5 KiB, no system call, never waits for the writer. Return: false if it is not watched or was
 * never sampled.
 */
bool telemetry_read(const struct telemetry *telemetry, uint32_t device, struct device_reading *ret);
/*
 * Without the copy, for the reactor: how many samples there were, to see that there is a new one.
 */
uint32_t telemetry_n_samples(const struct telemetry *telemetry, uint32_t device);

/*
 * What budgets are about: VRAM, or on an APU VRAM and GTT together, because both are the host's
 * memory and the driver fills one after the other. A figure is absent if a part of it is.
 */
struct memory_reading telemetry_pool(const struct device_reading *reading);

enum telemetry_pace { TELEMETRY_IDLE, TELEMETRY_SESSIONS, TELEMETRY_BUSY };

/*
 * How much is going on; reactor. Never blocks, and costs two loads while the pace stays. The next
 * sample comes as soon as a faster pace says; for that the thread is woken at most once a sample.
 */
void telemetry_set_pace(struct telemetry *telemetry, enum telemetry_pace pace);

DEFINE_CLEANUP(struct telemetry *, telemetry_free)
