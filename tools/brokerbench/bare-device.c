/* SPDX-License-Identifier: MIT */
/* The bare device: see bare-device.h. The caller sleeps as the reactor does, on the waker. */
#include "bare-device.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "daemon/test-device.h"
#include "plan/executor.h"
#include "util/waker.h"

struct bare_device {
	struct waker waker;
	struct executor *device;
	struct plan plan; /* the device asks for its name alone */
	struct exec_task task;
};

int bare_device_new(uint32_t task_us, struct bare_device **ret)
{
	struct bare_device *bare = calloc(1, sizeof(*bare));
	int r;

	if (!bare)
		return -ENOMEM;
	bare->waker.fd = -1;
	bare->task.plan = &bare->plan;
	r = waker_init(&bare->waker);
	if (!r)
		r = test_device_new(
			&(const struct test_device_options){.latency_ns = task_us * 1000ull},
			&bare->waker, &bare->device);
	if (r) {
		bare_device_free(bare);
		return r;
	}
	*ret = bare;
	return 0;
}

struct bare_device *bare_device_free(struct bare_device *bare)
{
	if (!bare)
		return NULL;
	if (bare->device)
		bare->device->ops->free(bare->device);
	waker_deinit(&bare->waker);
	free(bare);
	return NULL;
}

int bare_device_run(struct bare_device *bare)
{
	const struct executor_ops *ops = bare->device->ops;
	struct pollfd rung = {.fd = bare->waker.fd, .events = POLLIN};
	struct exec_task *task = NULL;

	atomic_store(&bare->task.state, EXEC_QUEUED);
	if (ops->submit(bare->device, &bare->task) != 0)
		return -EBUSY;
	ops->flush(bare->device);
	while (!task) {
		waker_arm(&bare->waker);
		if (ops->reap(bare->device, &task, 1) == 0)
			poll(&rung, 1, -1);
		waker_disarm(&bare->waker);
	}
	return task->res;
}
