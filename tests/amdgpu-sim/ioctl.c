/* SPDX-License-Identifier: MIT */
/*
 * Entry of DRM ioctls: drivers/gpu/drm/drm_ioctl.c, drm_ioctl(), and its tables
 *
 * One lock around each ioctl keeps the code simple; the simulator need not be fast. A call that
 * sleeps releases the lock. Before an ioctl is answered, three conditions apply in this order: an
 * unplugged card fails, a suspended card sleeps, injected failures return their error.
 */
#include "engine.h"
#include "ioctl.h"
#include "memory.h"
#include "names.h"
#include "sysroot.h"
#include "sys.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Debian 12's libdrm lacks these. */
#define CAP_SYNCOBJ          0x13
#define CAP_SYNCOBJ_TIMELINE 0x14

/* Copy as much of @text as the caller has room for; set *@n to its whole length in any case. */
static void copy_text(const char *text, char *to, __kernel_size_t *n)
{
	size_t length = strlen(text);

	if (to && *n)
		memcpy(to, text, *n < length ? *n : length);
	*n = length;
}

/* drm_version(); amdgpu_drv.h: KMS_DRIVER_*, DRIVER_NAME, DRIVER_DESC, DRIVER_DATE. */
static int version(const struct sim_card *card, struct drm_version *args)
{
	args->version_major = 3;
	args->version_minor = (int)card->drm_minor;
	args->version_patchlevel = 0;
	copy_text("amdgpu", args->name, &args->name_len);
	copy_text("20150101", args->date, &args->date_len);
	copy_text("AMD GPU", args->desc, &args->desc_len);
	return 0;
}

/* drm_getunique() */
static int unique(const struct sim_card *card, struct drm_unique *args)
{
	char address[16], text[32];

	sim_card_address(card, address);
	snprintf(text, sizeof(text), "pci:%s", address);
	copy_text(text, args->unique, &args->unique_len);
	return 0;
}

/* drm_getcap() */
static int capability(struct drm_get_cap *args)
{
	switch (args->capability) {
	case DRM_CAP_PRIME:
		args->value = DRM_PRIME_CAP_IMPORT | DRM_PRIME_CAP_EXPORT;
		return 0;
	case DRM_CAP_TIMESTAMP_MONOTONIC:
	case CAP_SYNCOBJ:
	case CAP_SYNCOBJ_TIMELINE:
		args->value = 1;
		return 0;
	default:
		args->value = 0;
		return 0;
	}
}

/* drm_getclient() */
static int get_client(const struct sim_fd *client, struct drm_client *args)
{
	if (args->idx)
		return -EINVAL;
	args->auth = 1;
	args->pid = (unsigned long)client->card->clients[client->slot].pid;
	args->uid = getuid();
	return 0;
}

static int core_call(const struct sim_fd *client, unsigned nr, void *args)
{
	switch (nr) {
	case _IOC_NR(DRM_IOCTL_VERSION):
		return version(client->card, args);
	case _IOC_NR(DRM_IOCTL_GET_UNIQUE):
		return unique(client->card, args);
	case _IOC_NR(DRM_IOCTL_GET_CLIENT):
		return get_client(client, args);
	case _IOC_NR(DRM_IOCTL_GEM_CLOSE):
		return sim_ioctl_gem_close(client, args);
	case _IOC_NR(DRM_IOCTL_GET_CAP):
		return capability(args);
	case _IOC_NR(DRM_IOCTL_SET_VERSION):
	case _IOC_NR(DRM_IOCTL_SET_CLIENT_CAP):
		return 0;
	case _IOC_NR(DRM_IOCTL_PRIME_HANDLE_TO_FD):
		return sim_ioctl_prime_export(client, args);
	case _IOC_NR(DRM_IOCTL_PRIME_FD_TO_HANDLE):
		return sim_ioctl_prime_import(client, args);
	default:
		return sim_ioctl_syncobj(client, nr, args);
	}
}

static int driver_call(const struct sim_fd *client, unsigned nr, void *args)
{
	switch (nr) {
	case DRM_AMDGPU_GEM_CREATE:
		return sim_ioctl_gem_create(client, args);
	case DRM_AMDGPU_GEM_MMAP:
		return sim_ioctl_gem_mmap(client, args);
	case DRM_AMDGPU_CTX:
		return sim_ioctl_ctx(client, args);
	case DRM_AMDGPU_BO_LIST:
		return sim_ioctl_bo_list(client, args);
	case DRM_AMDGPU_CS:
		return sim_ioctl_cs(client, args);
	case DRM_AMDGPU_INFO:
		return sim_ioctl_info(client, args);
	case DRM_AMDGPU_GEM_METADATA:
		return sim_ioctl_gem_metadata(client, args);
	case DRM_AMDGPU_GEM_WAIT_IDLE:
		return sim_ioctl_gem_wait_idle(client, args);
	case DRM_AMDGPU_GEM_VA:
		return sim_ioctl_gem_va(client, args);
	case DRM_AMDGPU_WAIT_CS:
		return sim_ioctl_wait_cs(client, args);
	case DRM_AMDGPU_GEM_OP:
		return sim_ioctl_gem_op(client, args);
	case DRM_AMDGPU_GEM_USERPTR:
		return sim_ioctl_gem_userptr(client, args);
	case DRM_AMDGPU_WAIT_FENCES:
		return sim_ioctl_wait_fences(client, args);
	case DRM_AMDGPU_VM:
	case DRM_AMDGPU_SCHED:
		return 0;
	case DRM_AMDGPU_FENCE_TO_HANDLE:
		return sim_ioctl_fence_to_handle(client, args);
	default:
		return -EINVAL;
	}
}

/* Identify the call, down to the query of an INFO. */
static struct sim_call call_of(unsigned nr, const void *args)
{
	struct sim_call call = {.nr = nr, .query = SIM_ANY, .sensor = SIM_ANY};
	const struct drm_amdgpu_info *info = args;

	if (nr == DRM_COMMAND_BASE + DRM_AMDGPU_INFO) {
		call.query = info->query;
		if (info->query == AMDGPU_INFO_SENSOR)
			call.sensor = info->sensor_info.type;
	}
	return call;
}

/* Return 0, or the injected failure. */
static int injected(struct sim_card *card, const struct sim_call *call)
{
	for (unsigned i = 0; i < SIM_MAX_FAILURES; i++) {
		struct sim_failure *failure = &card->failures[i];

		if (!failure->n_left || failure->nr != call->nr)
			continue;
		if (failure->query != SIM_ANY && failure->query != call->query)
			continue;
		if (failure->sensor != SIM_ANY && failure->sensor != call->sensor)
			continue;
		if (failure->n_left != SIM_FOREVER)
			failure->n_left--;
		return -failure->error;
	}
	return 0;
}

/* Print each call if AMDGPU_SIM_TRACE is set. */
static void trace(const struct sim_fd *client, const struct sim_call *call, int r)
{
	static int is_wanted = -1;
	char line[160];
	int n;

	if (is_wanted < 0)
		is_wanted = getenv("AMDGPU_SIM_TRACE") != NULL;
	if (!is_wanted)
		return;
	n = snprintf(line, sizeof(line), "amdgpu-sim: card%u client %llu %s (0x%02x) -> %d\n",
		     sim_card_index(client->card),
		     (unsigned long long)client->card->clients[client->slot].client_id,
		     sim_call_name(call->nr, call->query, call->sensor), call->nr, r);
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		is_wanted = 0;
}

/*
 * Return true if the card was unplugged since the client opened it, even if it is plugged in again:
 * then drm_dev_enter() fails.
 */
static bool is_gone(const struct sim_fd *client)
{
	const struct sim_card *card = client->card;

	return !card->is_plugged || card->clients[client->slot].generation != card->generation;
}

int sim_ioctl(const struct sim_fd *client, unsigned long request, void *argument)
{
	struct sim_card *card = client->card;
	unsigned nr = _IOC_NR(request);
	struct sim_call call = call_of(nr, argument);
	int r;

	sim_lock();
	/* A suspended machine freezes its processes: this call sleeps until the card resumes. */
	while (card->is_suspended && !is_gone(client)) {
		sim_unlock();
		sys_futex_wait(&card->is_suspended, 1, NULL);
		sim_lock();
	}
	card->n_ioctls++;
	sim_engine_advance(card);
	r = is_gone(client) ? -ENODEV : injected(card, &call);
	if (!r && nr >= DRM_COMMAND_BASE && nr < DRM_COMMAND_END)
		r = driver_call(client, nr - DRM_COMMAND_BASE, argument);
	else if (!r)
		r = core_call(client, nr, argument);
	trace(client, &call, r);
	sim_unlock();
	return r;
}
