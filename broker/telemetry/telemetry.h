#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Telemetry: the devices' memory, load, sensors and users
 *
 * A thread of its own ("rb-telemetry") samples every device and publishes the readings. It rings
 * the reactor when something changed that the reactor acts upon: memory in use outside the broker,
 * a device lost, gone, or back. amdgpu devices are read through libdrm_amdgpu, sysfs and /proc,
 * others through their executor's driver. A value that cannot be read is absent, never zero.
 *
 * The sampling period adapts. It is 20 ms while tasks run, and while there are sessions and memory
 * is tight (less than a tenth of the pool is free). It is one second while there are sessions, and
 * 10 seconds when idle. Idle devices are not sampled while all of them sleep. Per-process use is
 * sampled ten times less often. Load, clocks, temperature and power are sampled at most once a
 * second, and less often if the card answers slowly. The thread runs only if there is a device to
 * watch. If telemetry could not be made at all, NULL stands for a telemetry that watches nothing.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ringbroker/abi.h>

#include "util/cleanup.h"

struct telemetry;
struct waker;

enum {
	TELEMETRY_MAX_PROCESSES = 64, /* processes listed per device, the largest users first */
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
	struct reading total;  /* total without the driver's own reserve */
	struct reading usable; /* used by all processes */
	struct reading used;   /* used by this process */
	struct reading own;    /* by this process */
};

enum telemetry_state {
	TELEMETRY_PRESENT,
	TELEMETRY_GONE, /* unplugged: the kernel no longer has the device */
};

/*
 * Memory and load of one process, from the fdinfo of its descriptors. Each DRM client is counted
 * once.
 */
struct process_reading {
	pid_t pid;
	uid_t uid;
	char comm[TELEMETRY_COMM_BYTES];
	uint64_t vram_bytes;
	uint64_t gtt_bytes;
	struct reading busy_percent; /* all engines together, since the last look */
	/* The same as a time, since the process was first in a list. */
	struct reading busy_ns;
};

/* One sample of one device. */
struct device_reading {
	uint64_t sampled_ns; /* CLOCK_MONOTONIC; 0: never */
	uint32_t n_samples;
	enum telemetry_state state;
	char source[TELEMETRY_NAME_BYTES]; /* "amdgpu", "VK_EXT_memory_budget", "none" */
	char pci[TELEMETRY_PCI_BYTES];     /* "0000:03:00.0"; empty: unknown */
	bool is_integrated;                /* VRAM is a part of host memory; see telemetry_pool() */

	struct memory_reading vram, visible_vram, gtt;
	/* the driver's counts since it started */
	struct reading n_evictions, bytes_moved, n_page_faults;
	struct reading n_vram_lost; /* increases with each loss of VRAM contents */
	struct reading n_resets;    /* resets noticed since the broker started */
	struct reading n_suspends;  /* suspends noticed since the broker started */
	struct reading load_percent, memory_load_percent;
	struct reading gpu_hz, memory_hz;
	struct reading temperature_millicelsius;
	struct reading power_microwatts;

	struct reading processes_ns; /* time of the list below; absent: it cannot be made */
	bool processes_are_partial;  /* other users' processes are hidden from this process */
	uint32_t n_processes;
	struct process_reading processes[TELEMETRY_MAX_PROCESSES];
};

/*
 * The source of readings for a device that is not amdgpu. It is called on the telemetry thread and
 * in telemetry_new(), with all readings absent, and sets those that it can: vram, visible_vram,
 * gtt, is_integrated and source. It also supplies vram.own and gtt.own of an amdgpu device whose
 * kernel does not report what this process holds.
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
 * Start watching. When this returns, memory has been sampled once; load, sensors and processes
 * follow, see telemetry_wait(). @waker is borrowed. It is rung after a sample with a notable
 * change: a device is gone, back, reset or suspended; memory was evicted; the memory in use outside
 * this process has changed by 4 MiB. Contexts of drivers are borrowed until telemetry_free().
 * Return: 0, also if no device can be watched; negative errno (no thread, no memory).
 */
int telemetry_new(const struct telemetry_device *devices, uint32_t n_devices, struct waker *waker,
		  struct telemetry **ret);
/* Stop the thread and free @telemetry. Return: NULL. */
struct telemetry *telemetry_free(struct telemetry *telemetry);

/*
 * Return sentence @i for people about what cannot be watched, and why. Return: NULL beyond the last
 * one.
 */
const char *telemetry_sentence(const struct telemetry *telemetry, unsigned int i);

/*
 * Wait until every device was sampled in full, for callers that look once.
 * Return: true, also if nothing is watched; false after @timeout_ns.
 */
bool telemetry_wait(const struct telemetry *telemetry, uint64_t timeout_ns);

/*
 * Copy the last sample of device @device. Any thread. It is a copy under a sequence lock of about 5
 * KiB, without a system call, and never waits for the writer.
 * Return: false if the device is not watched or was never sampled.
 */
bool telemetry_read(const struct telemetry *telemetry, uint32_t device, struct device_reading *ret);
/* Return the number of samples, to detect a new one without the copy. For the reactor. */
uint32_t telemetry_n_samples(const struct telemetry *telemetry, uint32_t device);

/*
 * Return the memory that budgets refer to. It is VRAM, or on an APU VRAM and GTT together, because
 * both are host memory and the driver fills one after the other. A figure is absent if a part of it
 * is absent.
 */
struct memory_reading telemetry_pool(const struct device_reading *reading);

enum telemetry_pace {
	TELEMETRY_IDLE,
	TELEMETRY_SESSIONS,
	TELEMETRY_LEASES, /* as SESSIONS, with lists of processes at least once a second */
	TELEMETRY_BUSY,
};

/*
 * Set the pace of sampling. Reactor. Never blocks, and costs two loads while the pace does not
 * change. A faster pace takes effect at once; the thread is woken for it at most once per sample.
 */
void telemetry_set_pace(struct telemetry *telemetry, enum telemetry_pace pace);

DEFINE_CLEANUP(struct telemetry *, telemetry_free)
