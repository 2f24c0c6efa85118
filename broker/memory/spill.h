#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Detection of device memory that the driver moved to the host
 *
 * Drivers allocate memory "in device memory or the host's", and move it to host memory when another
 * process needs the room. amdgpu before Linux 6.10 never moves such memory back by itself, so a
 * model would stay slow for ever. The only sign is that the kernel counts less device memory for
 * the broker than was allocated there.
 */
#include <stdbool.h>
#include <stdint.h>

/* Smaller differences are ignored. */
#define SPILL_BYTES (4ull << 20)

enum {
	SPILL_SAMPLES = 3, /* samples in a row, since one may fall into a load */
};

/* Zero-initialised. */
struct spill {
	uint64_t allocated_bytes; /* at the last sample */
	uint32_t n_short;         /* samples in a row that miss memory */
	bool is_noticed;
	bool is_hopeless; /* all plans were reloaded, in vain */
	uint64_t since_ns;
	uint64_t missing_bytes; /* at the last sample */
};

enum spill_event {
	SPILL_NOTHING,
	SPILL_NOTICED,
	SPILL_MENDED, /* or the memory was freed */
};

/* Evaluate a new sample: @own_bytes is the kernel's count, @allocated_bytes the broker's. */
enum spill_event spill_sample(struct spill *spill, uint64_t own_bytes, uint64_t allocated_bytes,
			      uint64_t now_ns);
/* Return true if the next samples decide something, so that they should come soon. */
bool spill_is_open(const struct spill *spill);
/*
 * Return true if enough samples in a row since the last attempt show that memory is missing. Call
 * after spill_sample().
 */
bool spill_wants_mending(const struct spill *spill);
/*
 * Note an attempt to bring the memory back, and wait for new samples. @is_hopeless: there was no
 * plan left to reload.
 */
void spill_tried(struct spill *spill, bool is_hopeless);
