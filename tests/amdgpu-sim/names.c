/* SPDX-License-Identifier: MIT */
/* One table of calls, for injected failures and for tracing. */
#include "names.h"
#include "state.h"
#include <errno.h>
#include <libdrm/drm.h>
#include <libdrm/amdgpu_drm.h>
#include <string.h>

#define CORE(name)                                                  \
	{                                                           \
#name,                                              \
		{                                                   \
			_IOC_NR(DRM_IOCTL_##name), SIM_ANY, SIM_ANY \
		}                                                   \
	}
#define DRIVER(name)                                                           \
	{                                                                      \
#name,                                                         \
		{                                                              \
			DRM_COMMAND_BASE + DRM_AMDGPU_##name, SIM_ANY, SIM_ANY \
		}                                                              \
	}
#define INFO(name)                                                                      \
	{                                                                               \
		"INFO_" #name,                                                          \
		{                                                                       \
			DRM_COMMAND_BASE + DRM_AMDGPU_INFO, AMDGPU_INFO_##name, SIM_ANY \
		}                                                                       \
	}
#define SENSOR(name)                                                            \
	{                                                                       \
		"SENSOR_" #name,                                                \
		{                                                               \
			DRM_COMMAND_BASE + DRM_AMDGPU_INFO, AMDGPU_INFO_SENSOR, \
				AMDGPU_INFO_SENSOR_##name                       \
		}                                                               \
	}

struct named_call {
	const char *name;
	struct sim_call call;
};

static const struct named_call calls[] = {
	CORE(VERSION),
	CORE(GET_UNIQUE),
	CORE(GET_CLIENT),
	CORE(SET_VERSION),
	CORE(GEM_CLOSE),
	CORE(GET_CAP),
	CORE(SET_CLIENT_CAP),
	CORE(PRIME_HANDLE_TO_FD),
	CORE(PRIME_FD_TO_HANDLE),
	CORE(SYNCOBJ_CREATE),
	CORE(SYNCOBJ_DESTROY),
	CORE(SYNCOBJ_HANDLE_TO_FD),
	CORE(SYNCOBJ_FD_TO_HANDLE),
	CORE(SYNCOBJ_WAIT),
	CORE(SYNCOBJ_RESET),
	CORE(SYNCOBJ_SIGNAL),
	CORE(SYNCOBJ_TIMELINE_WAIT),
	CORE(SYNCOBJ_QUERY),
	CORE(SYNCOBJ_TRANSFER),
	CORE(SYNCOBJ_TIMELINE_SIGNAL),
	DRIVER(GEM_CREATE),
	DRIVER(GEM_MMAP),
	DRIVER(CTX),
	DRIVER(BO_LIST),
	DRIVER(CS),
	DRIVER(INFO),
	DRIVER(GEM_METADATA),
	DRIVER(GEM_WAIT_IDLE),
	DRIVER(GEM_VA),
	DRIVER(WAIT_CS),
	DRIVER(GEM_OP),
	DRIVER(GEM_USERPTR),
	DRIVER(WAIT_FENCES),
	DRIVER(VM),
	DRIVER(FENCE_TO_HANDLE),
	DRIVER(SCHED),
	INFO(ACCEL_WORKING),
	INFO(HW_IP_INFO),
	INFO(HW_IP_COUNT),
	INFO(TIMESTAMP),
	INFO(FW_VERSION),
	INFO(NUM_BYTES_MOVED),
	INFO(VRAM_USAGE),
	INFO(GTT_USAGE),
	INFO(GDS_CONFIG),
	INFO(VRAM_GTT),
	INFO(READ_MMR_REG),
	INFO(DEV_INFO),
	INFO(VIS_VRAM_USAGE),
	INFO(NUM_EVICTIONS),
	INFO(MEMORY),
	INFO(VCE_CLOCK_TABLE),
	INFO(NUM_HANDLES),
	INFO(SENSOR),
	INFO(NUM_VRAM_CPU_PAGE_FAULTS),
	INFO(VRAM_LOST_COUNTER),
	INFO(RAS_ENABLED_FEATURES),
	INFO(VIDEO_CAPS),
	SENSOR(GFX_SCLK),
	SENSOR(GFX_MCLK),
	SENSOR(GPU_TEMP),
	SENSOR(GPU_LOAD),
	SENSOR(GPU_AVG_POWER),
	SENSOR(VDDNB),
	SENSOR(VDDGFX),
	SENSOR(STABLE_PSTATE_GFX_SCLK),
	SENSOR(STABLE_PSTATE_GFX_MCLK),
};

#define N_CALLS (sizeof(calls) / sizeof(calls[0]))

static const struct {
	const char *name;
	int error;
} errors[] = {
	{"EPERM", EPERM},           {"ENOENT", ENOENT},
	{"EINTR", EINTR},           {"EIO", EIO},
	{"EBADF", EBADF},           {"EAGAIN", EAGAIN},
	{"ENOMEM", ENOMEM},         {"EACCES", EACCES},
	{"EFAULT", EFAULT},         {"EBUSY", EBUSY},
	{"ENODEV", ENODEV},         {"EINVAL", EINVAL},
	{"EMFILE", EMFILE},         {"ENOTTY", ENOTTY},
	{"ENOSPC", ENOSPC},         {"ENOSYS", ENOSYS},
	{"ENODATA", ENODATA},       {"ETIME", ETIME},
	{"EOPNOTSUPP", EOPNOTSUPP}, {"ETIMEDOUT", ETIMEDOUT},
	{"ECANCELED", ECANCELED},
};

#define N_ERRORS (sizeof(errors) / sizeof(errors[0]))

bool sim_call_parse(const char *name, struct sim_call *ret)
{
	for (unsigned i = 0; i < N_CALLS; i++) {
		if (!strcmp(calls[i].name, name)) {
			*ret = calls[i].call;
			return true;
		}
	}
	return false;
}

int sim_errno_parse(const char *name)
{
	for (unsigned i = 0; i < N_ERRORS; i++) {
		if (!strcmp(errors[i].name, name))
			return errors[i].error;
	}
	return 0;
}

const char *sim_call_name(uint32_t nr, uint32_t query, uint32_t sensor)
{
	for (unsigned i = 0; i < N_CALLS; i++) {
		const struct sim_call *call = &calls[i].call;

		if (call->nr == nr && call->query == query && call->sensor == sensor)
			return calls[i].name;
	}
	/* An unnamed sensor gets the name of its query, an unnamed query that of its ioctl. */
	if (sensor != SIM_ANY)
		return sim_call_name(nr, query, SIM_ANY);
	return query != SIM_ANY ? sim_call_name(nr, SIM_ANY, SIM_ANY) : "?";
}

const char *sim_errno_name(int error)
{
	for (unsigned i = 0; i < N_ERRORS; i++) {
		if (errors[i].error == error)
			return errors[i].name;
	}
	return "?";
}

void sim_call_list(FILE *file)
{
	int column = 0;

	for (unsigned i = 0; i < N_CALLS; i++) {
		int n = (int)strlen(calls[i].name) + 1;

		if (column + n > 90) {
			fputc('\n', file);
			column = 0;
		}
		column += fprintf(file, "%s%s", column ? " " : "    ", calls[i].name);
	}
	fputc('\n', file);
}
