/* SPDX-License-Identifier: MIT */
/* amdgpu in a build without libdrm: there are no such devices. */
#include "telemetry/amdgpu.h"

bool amdgpu_is_built(void)
{
	return false;
}

unsigned int amdgpu_list(struct telemetry_device *ret, unsigned int max)
{
	return 0;
}

int amdgpu_open(struct telemetry_device *device, struct amdgpu **ret,
		char ret_why[static TELEMETRY_WHY_BYTES])
{
	return AMDGPU_E_NONE;
}

struct amdgpu *amdgpu_free(struct amdgpu *amdgpu)
{
	return NULL;
}

const char *amdgpu_pci(const struct amdgpu *amdgpu)
{
	return "";
}

bool amdgpu_is_asleep(const struct amdgpu *amdgpu)
{
	return false;
}

int amdgpu_sample(struct amdgpu *amdgpu, struct device_reading *reading,
		  struct reading *ret_n_vram_lost, bool *ret_was_reset)
{
	return AMDGPU_E_GONE;
}

void amdgpu_sample_sensors(struct amdgpu *amdgpu, struct device_reading *reading)
{
}
