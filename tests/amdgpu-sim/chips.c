/* SPDX-License-Identifier: MIT */
/*
 * The table of chips
 *
 * A new chip needs a row, and nothing else if its generation is in the table.
 *
 * The external_rev, by which Mesa distinguishes chips of one family
 * (src/amd/addrlib/src/amdgpu_asic_addr.h), is the value that amdgpu's soc files set
 * (vi_common_early_init, soc15_common_early_init, nv_common_early_init, soc21_common_early_init).
 * GB_ADDR_CONFIG is the "golden" value of the chip's gfx block (gfx_v8_0.c, gfx_v9_0.c,
 * gfx_v10_0.c, gfx_v11_0.c).
 */
#include "chips.h"
#include <string.h>

#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* include/uapi/drm/amdgpu_drm.h of Linux 5.19; Debian 12's libdrm is older. */
#define FAMILY_GC_11_0_0        145

#define REGISTER_GB_ADDR_CONFIG 0x263e

const struct sim_chip sim_chips[] = {
	{
		.name = "polaris10",
		.card = "AMD Radeon RX 580",
		.device_id = 0x67df,
		.revision = 0xe7,
		.subsystem_vendor = 0x1da2,
		.subsystem_device = 0xe366,
		.vram_bytes = 8 * GIB,
		.visible_bytes = 256 * MIB,
		.gtt_bytes = 16 * GIB,
		.sclk_mhz = 300,
		.mclk_mhz = 300,
		.idle_watts = 34,
		.gfx_major = 8,
		.gfx_minor = 0,
		.sdma_major = 3,
		.sdma_minor = 1,
		.n_sdma_rings = 2,
		.gb_addr_config = 0x22011003,
		.device =
			{
				.external_rev = 0x50,
				.family = AMDGPU_FAMILY_VI,
				.num_shader_engines = 4,
				.num_shader_arrays_per_engine = 1,
				.max_engine_clock = 1340000,
				.max_memory_clock = 2000000,
				.cu_active_number = 36,
				.cu_bitmap = {{0x1ff}, {0x1ff}, {0x1ff}, {0x1ff}},
				.enabled_rb_pipes_mask = 0xff,
				.num_rb_pipes = 8,
				.ce_ram_size = 32768,
				.vram_type = AMDGPU_VRAM_TYPE_GDDR5,
				.vram_bit_width = 256,
				.wave_front_size = 64,
				.num_shader_visible_vgprs = 256,
				.num_cu_per_sh = 9,
				.num_tcc_blocks = 8,
			},
	},
	{
		.name = "vega10",
		.card = "AMD Radeon RX Vega 64",
		.device_id = 0x687f,
		.revision = 0xc1,
		.subsystem_vendor = 0x1002,
		.subsystem_device = 0x6b76,
		.vram_bytes = 8 * GIB,
		.visible_bytes = 256 * MIB,
		.gtt_bytes = 16 * GIB,
		.sclk_mhz = 852,
		.mclk_mhz = 167,
		.idle_watts = 15,
		.gfx_major = 9,
		.gfx_minor = 0,
		.sdma_major = 4,
		.sdma_minor = 0,
		.n_sdma_rings = 2,
		.gb_addr_config = 0x2a114042,
		.device =
			{
				.external_rev = 0x01,
				.family = AMDGPU_FAMILY_AI,
				.num_shader_engines = 4,
				.num_shader_arrays_per_engine = 1,
				.max_engine_clock = 1630000,
				.max_memory_clock = 945000,
				.cu_active_number = 64,
				.cu_bitmap = {{0xffff}, {0xffff}, {0xffff}, {0xffff}},
				.enabled_rb_pipes_mask = 0xffff,
				.num_rb_pipes = 16,
				.ce_ram_size = 32768,
				.vram_type = AMDGPU_VRAM_TYPE_HBM,
				.vram_bit_width = 2048,
				.wave_front_size = 64,
				.num_shader_visible_vgprs = 256,
				.num_cu_per_sh = 16,
				.num_tcc_blocks = 16,
			},
	},
	{
		.name = "navi21",
		.card = "AMD Radeon RX 6800 XT",
		.device_id = 0x73bf,
		.revision = 0xc1,
		.subsystem_vendor = 0x1002,
		.subsystem_device = 0x0e3a,
		.vram_bytes = 16 * GIB,
		.visible_bytes = 16 * GIB,
		.gtt_bytes = 16 * GIB,
		.sclk_mhz = 500,
		.mclk_mhz = 96,
		.idle_watts = 8,
		.gfx_major = 10,
		.gfx_minor = 3,
		.sdma_major = 5,
		.sdma_minor = 2,
		.n_sdma_rings = 2,
		.gb_addr_config = 0x00000444,
		.device =
			{
				.external_rev = 0x28,
				.family = AMDGPU_FAMILY_NV,
				.num_shader_engines = 4,
				.num_shader_arrays_per_engine = 2,
				.max_engine_clock = 2555000,
				.max_memory_clock = 1000000,
				.cu_active_number = 72,
				.cu_bitmap = {{0x3ff, 0xff},
					      {0x3ff, 0xff},
					      {0x3ff, 0xff},
					      {0x3ff, 0xff}},
				.enabled_rb_pipes_mask = 0xffff,
				.num_rb_pipes = 16,
				.vram_type = AMDGPU_VRAM_TYPE_GDDR6,
				.vram_bit_width = 256,
				.wave_front_size = 32,
				.num_shader_visible_vgprs = 1024,
				.num_cu_per_sh = 10,
				.num_tcc_blocks = 16,
			},
	},
	{
		.name = "navi31",
		.card = "AMD Radeon RX 7900 XTX",
		.device_id = 0x744c,
		.revision = 0xc8,
		.subsystem_vendor = 0x1002,
		.subsystem_device = 0x0e3b,
		.vram_bytes = 24 * GIB,
		.visible_bytes = 24 * GIB,
		.gtt_bytes = 16 * GIB,
		.sclk_mhz = 12,
		.mclk_mhz = 96,
		.idle_watts = 13,
		.gfx_major = 11,
		.gfx_minor = 0,
		.sdma_major = 6,
		.sdma_minor = 0,
		.n_sdma_rings = 2,
		.gb_addr_config = 0x00000545,
		.device =
			{
				.external_rev = 0x01,
				.family = FAMILY_GC_11_0_0,
				.num_shader_engines = 6,
				.num_shader_arrays_per_engine = 2,
				.max_engine_clock = 2526000,
				.max_memory_clock = 1249000,
				.cu_active_number = 96,
				/*
				 * Shader engines beyond the fourth are in the second half
				 * (amdgpu_drm.h).
				 */
				.cu_bitmap = {{0xff, 0xff, 0xff, 0xff},
					      {0xff, 0xff, 0xff, 0xff},
					      {0xff, 0xff},
					      {0xff, 0xff}},
				.enabled_rb_pipes_mask = 0xffffff,
				.num_rb_pipes = 24,
				.vram_type = AMDGPU_VRAM_TYPE_GDDR6,
				.vram_bit_width = 384,
				.wave_front_size = 32,
				.num_shader_visible_vgprs = 1536,
				.num_cu_per_sh = 8,
				.num_tcc_blocks = 24,
			},
	},
	{
		.name = "raven",
		.card = "AMD Ryzen 5 2400G",
		.device_id = 0x15dd,
		.revision = 0xc6,
		.subsystem_vendor = 0x1458,
		.subsystem_device = 0xd000,
		.vram_bytes = 512 * MIB,
		.visible_bytes = 512 * MIB,
		.gtt_bytes = 7 * GIB,
		.sclk_mhz = 200,
		.mclk_mhz = 1200,
		.idle_watts = 6,
		.gfx_major = 9,
		.gfx_minor = 1,
		.sdma_major = 4,
		.sdma_minor = 1,
		.n_sdma_rings = 1,
		.gb_addr_config = 0x24000042,
		.device =
			{
				.external_rev = 0x01,
				.family = AMDGPU_FAMILY_RV,
				.ids_flags = AMDGPU_IDS_FLAGS_FUSION,
				.num_shader_engines = 1,
				.num_shader_arrays_per_engine = 1,
				.max_engine_clock = 1240000,
				.max_memory_clock = 1200000,
				.cu_active_number = 11,
				.cu_bitmap = {{0x7ff}},
				.enabled_rb_pipes_mask = 0x3,
				.num_rb_pipes = 2,
				.ce_ram_size = 32768,
				.vram_type = AMDGPU_VRAM_TYPE_DDR4,
				.vram_bit_width = 128,
				.wave_front_size = 64,
				.num_shader_visible_vgprs = 256,
				.num_cu_per_sh = 11,
				.num_tcc_blocks = 4,
			},
	},
	{
		.name = "renoir",
		.card = "AMD Ryzen 7 5700G",
		.device_id = 0x1638,
		.revision = 0xc8,
		.subsystem_vendor = 0x1043,
		.subsystem_device = 0x8809,
		.vram_bytes = 512 * MIB,
		.visible_bytes = 512 * MIB,
		.gtt_bytes = 12 * GIB,
		.sclk_mhz = 400,
		.mclk_mhz = 1600,
		.idle_watts = 5,
		.gfx_major = 9,
		.gfx_minor = 3,
		.sdma_major = 4,
		.sdma_minor = 1,
		.n_sdma_rings = 1,
		.gb_addr_config = 0x24000042,
		.device =
			{
				.external_rev = 0xa1,
				.family = AMDGPU_FAMILY_RV,
				.ids_flags = AMDGPU_IDS_FLAGS_FUSION,
				.num_shader_engines = 1,
				.num_shader_arrays_per_engine = 1,
				.max_engine_clock = 2000000,
				.max_memory_clock = 1600000,
				.cu_active_number = 8,
				.cu_bitmap = {{0xff}},
				.enabled_rb_pipes_mask = 0x3,
				.num_rb_pipes = 2,
				.ce_ram_size = 32768,
				.vram_type = AMDGPU_VRAM_TYPE_DDR4,
				.vram_bit_width = 128,
				.wave_front_size = 64,
				.num_shader_visible_vgprs = 256,
				.num_cu_per_sh = 8,
				.num_tcc_blocks = 4,
			},
	},
};

const unsigned sim_n_chips = sizeof(sim_chips) / sizeof(sim_chips[0]);

int sim_chip_find(const char *name)
{
	for (unsigned i = 0; i < sim_n_chips; i++) {
		if (!strcmp(sim_chips[i].name, name))
			return (int)i;
	}
	return -1;
}

/* amdgpu_kms.c, amdgpu_info_ioctl(), case AMDGPU_INFO_DEV_INFO. */
void sim_chip_device_info(const struct sim_chip *chip, struct drm_amdgpu_info_device *ret)
{
	struct drm_amdgpu_info_device info = chip->device;

	info.device_id = chip->device_id;
	info.pci_rev = chip->revision;
	info.gpu_counter_freq = 100000;
	info.num_hw_gfx_contexts = 8;
	info.gc_double_offchip_lds_buf = 1;
	info.gs_vgt_table_depth = 32;
	info.gs_prim_buffer_depth = 1792;
	info.max_gs_waves_per_vgt = 32;
	/* Older chips have a smaller address space than these 47 bits; no program fills either. */
	info.virtual_address_offset = 2 * MIB;
	info.virtual_address_max = 0x800000000000ull;
	info.virtual_address_alignment = 4096;
	info.pte_fragment_size = 2 * MIB;
	info.gart_page_size = 4096;
	/* Only from GMC 9 on do the addresses have a hole, with usable addresses above it. */
	if (chip->gfx_major >= 9) {
		info.high_va_offset = 0xffff800000000000ull;
		info.high_va_max = 0xffffffffffe00000ull;
	}
	*ret = info;
}

uint32_t sim_chip_register(const struct sim_chip *chip, uint32_t dword_offset)
{
	return dword_offset == REGISTER_GB_ADDR_CONFIG ? chip->gb_addr_config : 0;
}
