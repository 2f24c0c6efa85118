/* SPDX-License-Identifier: MIT */
/*
 * DRM_AMDGPU_INFO: drivers/gpu/drm/amd/amdgpu/amdgpu_kms.c, amdgpu_info_ioctl()
 *
 * Answers are truncated to the caller's buffer: "return_size" works as the size of snprintf()
 * (include/uapi/drm/amdgpu_drm.h).
 */
#include "ioctl.h"
#include "chips.h"
#include "memory.h"
#include "util/number.h"
#include <errno.h>
#include <string.h>
#include <time.h>

/* amdgpu_vm.h: AMDGPU_VM_RESERVED_VRAM, kept for page tables. */
#define RESERVED_VRAM_BYTES (8ull << 20)
/* From Linux 6.6, include/uapi/drm/amdgpu_drm.h; Debian 12's libdrm lacks them. */
#define INFO_SENSOR_PEAK_PSTATE_GFX_SCLK 0xa
#define INFO_SENSOR_PEAK_PSTATE_GFX_MCLK 0xb
#define INFO_SENSOR_GPU_INPUT_POWER      0xc

static int answer(const struct drm_amdgpu_info *info, const void *data, size_t n_bytes)
{
	size_t n = n_bytes < info->return_size ? n_bytes : info->return_size;

	memcpy((void *)(uintptr_t)info->return_pointer, data, n);
	return 0;
}

static int answer_32(const struct drm_amdgpu_info *info, uint64_t value)
{
	uint32_t word = (uint32_t)value;

	return answer(info, &word, sizeof(word));
}

static int answer_64(const struct drm_amdgpu_info *info, uint64_t value)
{
	return answer(info, &value, sizeof(value));
}

static int info_memory(const struct sim_card *card, const struct drm_amdgpu_info *info)
{
	struct drm_amdgpu_memory_info memory = {0};
	struct sim_usage usage;

	sim_memory_usage(card, &usage);
	memory.vram.total_heap_size = card->vram_bytes;
	memory.vram.usable_heap_size = saturating_sub(card->vram_bytes, RESERVED_VRAM_BYTES);
	memory.vram.heap_usage = usage.vram_bytes;
	memory.vram.max_allocation = memory.vram.usable_heap_size * 3 / 4;

	memory.cpu_accessible_vram.total_heap_size = card->visible_bytes;
	memory.cpu_accessible_vram.usable_heap_size =
		card->visible_bytes < memory.vram.usable_heap_size ? card->visible_bytes
								   : memory.vram.usable_heap_size;
	memory.cpu_accessible_vram.heap_usage = usage.visible_bytes;
	memory.cpu_accessible_vram.max_allocation =
		memory.cpu_accessible_vram.usable_heap_size * 3 / 4;

	memory.gtt.total_heap_size = card->gtt_bytes;
	memory.gtt.usable_heap_size = card->gtt_bytes;
	memory.gtt.heap_usage = usage.gtt_bytes;
	memory.gtt.max_allocation = memory.gtt.usable_heap_size * 3 / 4;
	return answer(info, &memory, sizeof(memory));
}

static int info_vram_gtt(const struct sim_card *card, const struct drm_amdgpu_info *info)
{
	struct drm_amdgpu_info_vram_gtt sizes = {
		.vram_size = saturating_sub(card->vram_bytes, RESERVED_VRAM_BYTES),
		.vram_cpu_accessible_size = card->visible_bytes,
		.gtt_size = card->gtt_bytes,
	};

	if (sizes.vram_cpu_accessible_size > sizes.vram_size)
		sizes.vram_cpu_accessible_size = sizes.vram_size;
	return answer(info, &sizes, sizeof(sizes));
}

/* case AMDGPU_INFO_SENSOR: -EINVAL for a sensor that is unreadable or unknown. */
static int info_sensor(const struct sim_card *card, const struct drm_amdgpu_info *info)
{
	const struct drm_amdgpu_info_device *device = &sim_chips[card->chip].device;
	enum sim_sensor sensor;
	uint64_t divisor = 1;

	switch (info->sensor_info.type) {
	case AMDGPU_INFO_SENSOR_GFX_SCLK:
		sensor = SIM_SENSOR_SCLK;
		break;
	case AMDGPU_INFO_SENSOR_GFX_MCLK:
		sensor = SIM_SENSOR_MCLK;
		break;
	case AMDGPU_INFO_SENSOR_GPU_TEMP:
		sensor = SIM_SENSOR_TEMPERATURE;
		break;
	case AMDGPU_INFO_SENSOR_GPU_LOAD:
		sensor = SIM_SENSOR_LOAD;
		break;
	case INFO_SENSOR_GPU_INPUT_POWER:
		if (card->kernel == SIM_KERNEL_6_1)
			return -EINVAL;
		__attribute__((fallthrough));
	case AMDGPU_INFO_SENSOR_GPU_AVG_POWER:
		sensor = SIM_SENSOR_POWER;
		divisor = 1000000;
		break;
	case AMDGPU_INFO_SENSOR_VDDGFX:
		sensor = SIM_SENSOR_VDDGFX;
		break;
	case AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_SCLK:
		return answer_32(info, device->max_engine_clock / 1000);
	case AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_MCLK:
		return answer_32(info, device->max_memory_clock / 1000);
	case INFO_SENSOR_PEAK_PSTATE_GFX_SCLK:
		return card->kernel == SIM_KERNEL_6_1
			       ? -EINVAL
			       : answer_32(info, device->max_engine_clock / 1000);
	case INFO_SENSOR_PEAK_PSTATE_GFX_MCLK:
		return card->kernel == SIM_KERNEL_6_1
			       ? -EINVAL
			       : answer_32(info, device->max_memory_clock / 1000);
	default:
		return -EINVAL;
	}
	if (card->is_absent[sensor])
		return -EINVAL;
	return answer_32(info, card->sensor[sensor] / divisor);
}

static int info_hw_ip(const struct sim_card *card, const struct drm_amdgpu_info *info)
{
	const struct sim_chip *chip = &sim_chips[card->chip];
	struct drm_amdgpu_info_hw_ip ip = {0};

	if (info->query_hw_ip.ip_instance >= AMDGPU_HW_IP_INSTANCE_MAX_COUNT ||
	    info->query_hw_ip.type >= AMDGPU_HW_IP_NUM)
		return -EINVAL;
	/* amdgpu_hw_ip_info(). Video engines have no rings. */
	switch (info->query_hw_ip.type) {
	case AMDGPU_HW_IP_GFX:
	case AMDGPU_HW_IP_COMPUTE:
		ip.hw_ip_version_major = chip->gfx_major;
		ip.hw_ip_version_minor = chip->gfx_minor;
		ip.ib_start_alignment = 32;
		ip.ib_size_alignment = 32;
		ip.available_rings = info->query_hw_ip.type == AMDGPU_HW_IP_GFX ? 0x1 : 0xf;
		break;
	case AMDGPU_HW_IP_DMA:
		ip.hw_ip_version_major = chip->sdma_major;
		ip.hw_ip_version_minor = chip->sdma_minor;
		ip.ib_start_alignment = 256;
		ip.ib_size_alignment = 4;
		ip.available_rings = (1u << chip->n_sdma_rings) - 1;
		break;
	}
	return answer(info, &ip, sizeof(ip));
}

/* case AMDGPU_INFO_READ_MMR_REG. */
static int info_registers(const struct sim_card *card, const struct drm_amdgpu_info *info)
{
	uint32_t registers[128];
	uint32_t n = info->read_mmr_reg.count;

	if (n > sizeof(registers) / sizeof(registers[0]))
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++)
		registers[i] = sim_chip_register(&sim_chips[card->chip],
						 info->read_mmr_reg.dword_offset + i);
	return answer(info, registers, n * sizeof(registers[0]));
}

static int info_timestamp(const struct drm_amdgpu_info *info)
{
	struct timespec now;

	/* The unit is a period of gpu_counter_freq, which is 100 MHz. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	return answer_64(info, (uint64_t)now.tv_sec * 100000000 + (uint64_t)now.tv_nsec / 10);
}

static int info_device(const struct sim_card *card, const struct drm_amdgpu_info *info)
{
	struct drm_amdgpu_info_device device;

	sim_chip_device_info(&sim_chips[card->chip], &device);
	return answer(info, &device, sizeof(device));
}

/* Answer with zeroes: the card lacks the queried feature. */
static int info_empty(const struct drm_amdgpu_info *info, size_t n_bytes)
{
	uint8_t zeroes[512] = {0};

	return answer(info, zeroes, n_bytes);
}

int sim_ioctl_info(const struct sim_fd *client, struct drm_amdgpu_info *info)
{
	static const struct drm_amdgpu_info_firmware firmware = {.ver = 730, .feature = 49};
	struct sim_card *card = client->card;
	struct sim_usage usage;

	if (!info->return_size || !info->return_pointer)
		return -EINVAL;
	sim_client_reap(card);
	sim_memory_usage(card, &usage);

	switch (info->query) {
	case AMDGPU_INFO_ACCEL_WORKING:
		return answer_32(info, 1);
	case AMDGPU_INFO_HW_IP_INFO:
		return info_hw_ip(card, info);
	case AMDGPU_INFO_HW_IP_COUNT:
		if (info->query_hw_ip.type >= AMDGPU_HW_IP_NUM)
			return -EINVAL;
		return answer_32(info, info->query_hw_ip.type <= AMDGPU_HW_IP_DMA);
	case AMDGPU_INFO_TIMESTAMP:
		return info_timestamp(info);
	case AMDGPU_INFO_FW_VERSION:
		return answer(info, &firmware, sizeof(firmware));
	case AMDGPU_INFO_NUM_BYTES_MOVED:
		return answer_64(info, card->n_bytes_moved);
	case AMDGPU_INFO_NUM_EVICTIONS:
		return answer_64(info, card->n_evictions);
	case AMDGPU_INFO_NUM_VRAM_CPU_PAGE_FAULTS:
		return answer_64(info, card->n_cpu_page_faults);
	case AMDGPU_INFO_VRAM_USAGE:
		return answer_64(info, usage.vram_bytes);
	case AMDGPU_INFO_VIS_VRAM_USAGE:
		return answer_64(info, usage.visible_bytes);
	case AMDGPU_INFO_GTT_USAGE:
		return answer_64(info, usage.gtt_bytes);
	case AMDGPU_INFO_GDS_CONFIG:
		return info_empty(info, sizeof(struct drm_amdgpu_info_gds));
	case AMDGPU_INFO_VRAM_GTT:
		return info_vram_gtt(card, info);
	case AMDGPU_INFO_MEMORY:
		return info_memory(card, info);
	case AMDGPU_INFO_READ_MMR_REG:
		return info_registers(card, info);
	case AMDGPU_INFO_DEV_INFO:
		return info_device(card, info);
	case AMDGPU_INFO_VCE_CLOCK_TABLE:
		return info_empty(info, sizeof(struct drm_amdgpu_info_vce_clock_table));
	case AMDGPU_INFO_NUM_HANDLES:
		return info_empty(info, sizeof(struct drm_amdgpu_info_num_handles));
	case AMDGPU_INFO_SENSOR:
		return info_sensor(card, info);
	case AMDGPU_INFO_VRAM_LOST_COUNTER:
		return answer_32(info, card->vram_lost_counter);
	case AMDGPU_INFO_RAS_ENABLED_FEATURES:
		return info_empty(info, sizeof(uint64_t));
	case AMDGPU_INFO_VIDEO_CAPS:
		return info_empty(info, sizeof(struct drm_amdgpu_info_video_caps));
	default:
		return -EINVAL;
	}
}
