/* SPDX-License-Identifier: MIT */
/*
 * Synchronisation objects: drivers/gpu/drm/drm_syncobj.c
 *
 * A fence is that of a submission (engine.h), or has signalled. A wait for a fence that was not
 * submitted yet, or has not signalled, sleeps until its timeout, or until that has happened.
 *
 * Sync files work; making one waits until its fence has signalled. Syncobjs themselves cannot be
 * passed to other processes: their descriptors are -EOPNOTSUPP.
 */
#include "engine.h"
#include "ioctl.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>

static struct sim_syncobj *syncobj_of(const struct sim_fd *client, uint32_t handle)
{
	struct sim_card *card = client->card;

	if (!handle || handle > card->n_syncobjs ||
	    card->syncobjs[handle - 1].owner != client->slot + 1)
		return NULL;
	return &card->syncobjs[handle - 1];
}

int sim_syncobj_create(const struct sim_fd *client, bool is_signalled, uint32_t *ret_handle)
{
	struct sim_card *card = client->card;
	uint32_t at;

	for (at = 0; at < card->n_syncobjs && card->syncobjs[at].owner; at++)
		;
	if (at == SIM_MAX_SYNCOBJS)
		return -ENOMEM;
	if (at == card->n_syncobjs)
		card->n_syncobjs++;
	card->syncobjs[at] =
		(struct sim_syncobj){.owner = client->slot + 1, .has_fence = is_signalled};
	*ret_handle = at + 1;
	return 0;
}

/* drm_syncobj_find_fence(), without DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT. */
int sim_syncobj_check(const struct sim_fd *client, uint32_t handle, uint64_t point)
{
	const struct sim_syncobj *syncobj = syncobj_of(client, handle);

	if (!syncobj)
		return -ENOENT;
	return syncobj->has_fence && syncobj->point >= point ? 0 : -EINVAL;
}

/* Return true if the fence, which is there, has signalled. */
static bool is_done(const struct sim_fd *client, uint32_t handle, uint64_t point)
{
	return sim_point_is_done(client->card, handle - 1, point);
}

int sim_syncobj_wait_for(const struct sim_fd *client, uint32_t handle, uint64_t point,
			 struct sim_job *job)
{
	int r = sim_syncobj_check(client, handle, point);

	return r ? r : sim_point_wait_for(client->card, handle - 1, point, job);
}

int sim_syncobj_will_signal(const struct sim_fd *client, uint32_t handle, uint64_t point,
			    struct sim_job *job)
{
	if (!syncobj_of(client, handle))
		return -ENOENT;
	if (job->n_signals == SIM_MAX_SIGNALS)
		return -ENOMEM;
	job->signals[job->n_signals++] = (struct sim_signal){handle - 1, point};
	return 0;
}

int sim_sync_file(void)
{
	int fd = eventfd(1, EFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int destroy(const struct sim_fd *client, const struct drm_syncobj_destroy *args)
{
	struct sim_syncobj *syncobj = syncobj_of(client, args->handle);

	if (!syncobj)
		return -EINVAL;
	syncobj->owner = 0;
	sim_point_forget(client->card, args->handle - 1);
	return 0;
}

static int create(const struct sim_fd *client, struct drm_syncobj_create *args)
{
	if (args->flags & ~(uint32_t)DRM_SYNCOBJ_CREATE_SIGNALED)
		return -EINVAL;
	return sim_syncobj_create(client, args->flags & DRM_SYNCOBJ_CREATE_SIGNALED, &args->handle);
}

/* Reset (binary), signal (binary) or signal points of a timeline. */
static int for_each(const struct sim_fd *client, unsigned nr, uint64_t handles, uint64_t points,
		    uint32_t n)
{
	const uint32_t *handle = (const uint32_t *)(uintptr_t)handles;
	const uint64_t *point = (const uint64_t *)(uintptr_t)points;

	if (!n)
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++) {
		if (!syncobj_of(client, handle[i]))
			return -ENOENT;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct sim_syncobj *syncobj = syncobj_of(client, handle[i]);

		if (nr == _IOC_NR(DRM_IOCTL_SYNCOBJ_RESET)) {
			*syncobj = (struct sim_syncobj){.owner = syncobj->owner};
			sim_point_forget(client->card, handle[i] - 1);
			continue;
		}
		sim_point_signal(client->card, handle[i] - 1, point ? point[i] : 0);
	}
	return 0;
}

/* drm_syncobj_query_ioctl() */
static int query(const struct sim_fd *client, const struct drm_syncobj_timeline_array *args)
{
	const uint32_t *handle = (const uint32_t *)(uintptr_t)args->handles;
	uint64_t *point = (uint64_t *)(uintptr_t)args->points;

	if (!args->count_handles)
		return -EINVAL;
	for (uint32_t i = 0; i < args->count_handles; i++) {
		const struct sim_syncobj *syncobj = syncobj_of(client, handle[i]);

		if (!syncobj)
			return -ENOENT;
		point[i] = args->flags & DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED ? syncobj->point
										: syncobj->value;
	}
	return 0;
}

/* drm_syncobj_transfer_ioctl() */
static int transfer(const struct sim_fd *client, const struct drm_syncobj_transfer *args)
{
	const struct sim_syncobj *from = syncobj_of(client, args->src_handle);
	int r;

	if (!from || !syncobj_of(client, args->dst_handle))
		return -ENOENT;
	r = sim_syncobj_check(client, args->src_handle, args->src_point);
	return r ? r
		 : sim_point_copy(client->card, args->src_handle - 1, args->src_point,
				  args->dst_handle - 1, args->dst_point);
}

/* A wait, on timelines or binary syncobjs. */
struct wait {
	const uint32_t *handles;
	const uint64_t *points; /* NULL: binary */
	uint32_t n;
	uint32_t flags;
	int64_t deadline_ns; /* CLOCK_MONOTONIC */
};

/*
 * drm_syncobj_array_wait_timeout().
 * Return: 0 if done, with *ret_first set; -ETIME if not yet; -EINVAL if a syncobj has no fence and
 * the caller did not permit a later one; -ENOENT.
 */
static int look(const struct sim_fd *client, const struct wait *wait, uint32_t *ret_first)
{
	bool is_all = wait->flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL;
	bool may_come = wait->flags & (DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT |
				       DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE);
	uint32_t n_done = 0, first = 0;

	for (uint32_t i = wait->n; i--;) {
		const uint64_t point = wait->points ? wait->points[i] : 0;
		int r = sim_syncobj_check(client, wait->handles[i], point);

		if (r == -ENOENT || (r && !may_come))
			return r;
		if (!r && (wait->flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE ||
			   is_done(client, wait->handles[i], point))) {
			n_done++;
			first = i;
		}
	}
	if (is_all ? n_done < wait->n : !n_done)
		return -ETIME;
	*ret_first = first;
	return 0;
}

static int wait_for(const struct sim_fd *client, const struct wait *wait, uint32_t *ret_first)
{
	int r;

	if (!wait->n)
		return -EINVAL;
	while ((r = look(client, wait, ret_first)) == -ETIME) {
		r = sim_engine_wait(client, wait->deadline_ns);
		if (r)
			return r;
	}
	return r;
}

static int wait_binary(const struct sim_fd *client, struct drm_syncobj_wait *args)
{
	struct wait wait = {
		.handles = (const uint32_t *)(uintptr_t)args->handles,
		.n = args->count_handles,
		.flags = args->flags,
		.deadline_ns = args->timeout_nsec,
	};

	return wait_for(client, &wait, &args->first_signaled);
}

static int wait_timeline(const struct sim_fd *client, struct drm_syncobj_timeline_wait *args)
{
	struct wait wait = {
		.handles = (const uint32_t *)(uintptr_t)args->handles,
		.points = (const uint64_t *)(uintptr_t)args->points,
		.n = args->count_handles,
		.flags = args->flags,
		.deadline_ns = args->timeout_nsec,
	};

	return wait_for(client, &wait, &args->first_signaled);
}

/* drm_syncobj_handle_to_fd_ioctl(), drm_syncobj_fd_to_handle_ioctl(): sync files only. */
static int to_fd(const struct sim_fd *client, struct drm_syncobj_handle *args)
{
	int r;

	if (!syncobj_of(client, args->handle))
		return -EINVAL;
	if (!(args->flags & DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE))
		return -EOPNOTSUPP;
	while (!(r = sim_syncobj_check(client, args->handle, 0)) &&
	       !is_done(client, args->handle, 0)) {
		r = sim_engine_wait(client, INT64_MAX);
		if (r)
			return r;
	}
	if (r)
		return r;
	r = sim_sync_file();
	if (r < 0)
		return r;
	args->fd = r;
	return 0;
}

static int from_fd(const struct sim_fd *client, const struct drm_syncobj_handle *args)
{
	if (!(args->flags & DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE))
		return -EOPNOTSUPP;
	if (fcntl(args->fd, F_GETFD) < 0)
		return -EINVAL;
	if (!syncobj_of(client, args->handle))
		return -ENOENT;
	sim_point_signal(client->card, args->handle - 1, 0);
	return 0;
}

int sim_ioctl_syncobj(const struct sim_fd *client, unsigned nr, void *args)
{
	const struct drm_syncobj_array *array = args;
	const struct drm_syncobj_timeline_array *timeline = args;

	switch (nr) {
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_CREATE):
		return create(client, args);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_DESTROY):
		return destroy(client, args);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD):
		return to_fd(client, args);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE):
		return from_fd(client, args);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_WAIT):
		return wait_binary(client, args);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT):
		return wait_timeline(client, args);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_RESET):
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_SIGNAL):
		return for_each(client, nr, array->handles, 0, array->count_handles);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL):
		return for_each(client, nr, timeline->handles, timeline->points,
				timeline->count_handles);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_QUERY):
		return query(client, args);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_TRANSFER):
		return transfer(client, args);
	default:
		return -EINVAL;
	}
}
