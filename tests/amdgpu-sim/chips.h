#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The table of chips that the simulator knows, one row each
 *
 * A row has the answers to AMDGPU_INFO_DEV_INFO and AMDGPU_INFO_HW_IP_INFO, and the few registers
 * that libdrm and Mesa read. Figures are those of the named card, from public sources.
 */
#include <libdrm/drm.h>
#include <libdrm/amdgpu_drm.h>
#include <stdbool.h>
#include <stdint.h>

struct sim_chip {
	const char *name; /* name in --card */
	const char *card; /* name of the product */
	uint16_t device_id;
	uint8_t revision;
	uint16_t subsystem_vendor;
	uint16_t subsystem_device;
	uint64_t vram_bytes;    /* default of --card */
	uint64_t visible_bytes; /* 256 MiB: a card without a resized BAR; vram_bytes: an APU */
	uint64_t gtt_bytes;
	uint32_t sclk_mhz; /* idle */
	uint32_t mclk_mhz;
	uint32_t idle_watts;
	uint32_t gfx_major;
	uint32_t gfx_minor;
	uint32_t sdma_major;
	uint32_t sdma_minor;
	uint32_t n_sdma_rings;
	uint32_t gb_addr_config;
	/*
	 * Without device_id and pci_rev, which are above, and without values common to all chips.
	 */
	struct drm_amdgpu_info_device device;
};

extern const struct sim_chip sim_chips[];
extern const unsigned sim_n_chips;

/* Return the row's number, or -1. */
int sim_chip_find(const char *name);

static inline bool sim_chip_is_apu(const struct sim_chip *chip)
{
	return chip->device.ids_flags & AMDGPU_IDS_FLAGS_FUSION;
}

/* Fill in the answer to AMDGPU_INFO_DEV_INFO. */
void sim_chip_device_info(const struct sim_chip *chip, struct drm_amdgpu_info_device *ret);

/*
 * Return a register that amdgpu lets user space read; 0 for registers that libdrm and Mesa do not
 * read.
 */
uint32_t sim_chip_register(const struct sim_chip *chip, uint32_t dword_offset);
