/* SPDX-License-Identifier: MIT */
/*
 * A client that inspects decisions
 *
 * Tasks have distinct user_data, by which their records are found in the decision log. The broker
 * writes a task's record before its completion, so that a logged record is visible once the
 * completion is. Printed figures come from completions, statistics pages, rbk_plan_info() and
 * rbk_devices(). This process's clock only measures round trips and totals.
 */
#include "lab.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <ringbroker/admin.h>

#include "helpers.h"

enum { SETTLE_MS = 20000, STEP_MS = 5 };

int lab_fail(struct lab *lab, int r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(lab->error.text, sizeof(lab->error.text), format, args);
	va_end(args);
	return r;
}

bool lab_expect(struct lab *lab, bool holds, const char *format, ...)
{
	va_list args;

	if (holds)
		return true;
	fflush(stdout);
	fputs("placement: not as expected: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	lab->n_wrong++;
	return false;
}

static int connect_admin(struct lab *lab, struct rbk_options options)
{
	char path[PATH_MAX];
	int r = rbk_admin_socket_path(options.socket_path, path, sizeof(path));

	if (r)
		return r;
	options.socket_path = path;
	return rbk_admin_connect(&options, &lab->admin, &lab->error);
}

int lab_init(struct lab *lab, const char *socket_path)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = socket_path,
		.name = "placement demo",
		/* Devices compile pipelines, and a large task may be ahead in the queue. */
		.timeout_ns = 120000000000,
	};
	int r;

	*lab = (struct lab){.socket_path = socket_path, .next_id = 1};
	r = rbk_connect(&options, &lab->rbk, &lab->error);
	if (r == 0)
		r = connect_admin(lab, options);
	if (r == 0)
		r = rbk_ring_new(lab->rbk, LAB_RING_ENTRIES, &lab->ring, &lab->error);
	if (r == 0)
		r = rbk_stats_map(lab->rbk, RBK_STATS_OWN, 0, &lab->own, &lab->error);
	if (r == 0)
		r = rbk_stats_map(lab->admin, RBK_STATS_ALL, 0, &lab->whole, &lab->error);
	if (r)
		return r;
	r = rbk_devices(lab->rbk, lab->devices, RBK_MAX_DEVICES, &lab->n_devices);
	return r ? lab_fail(lab, r, "cannot list the devices: %s", strerror(-r)) : 0;
}

void lab_deinit(struct lab *lab)
{
	rbk_stats_unmap(&lab->own);
	rbk_stats_unmap(&lab->whole);
	rbk_ring_free(lab->ring);
	rbk_disconnect(lab->admin);
	rbk_disconnect(lab->rbk);
}

bool lab_has_gpu(const struct lab *lab)
{
	return lab->n_devices > RBK_DEVICE_GPU;
}

const char *lab_device(const struct lab *lab, unsigned int device)
{
	static const char *const names[] = {
		[RBK_DEVICE_KIND_CPU] = "CPU",
		[RBK_DEVICE_KIND_GPU] = "GPU",
		[RBK_DEVICE_KIND_SOFTWARE_GPU] = "software GPU",
	};

	if (device >= lab->n_devices || device >= RBK_MAX_DEVICES)
		return "nowhere";
	return lab->devices[device].kind < 3 ? names[lab->devices[device].kind] : "other device";
}

/* ---- Tasks ---- */

static int wait_cqe(struct lab *lab, const struct rbk_cqe **ret)
{
	int r;

	do
		r = rbk_wait_cqe(lab->ring, ret);
	while (r == -EINTR);
	return r ? lab_fail(lab, r, "cannot wait for a task: %s", strerror(-r)) : 0;
}

int lab_work(struct lab *lab, struct work *work, const struct work_shape *shape, uint32_t n_outputs)
{
	const struct rbk_cqe *cqe;
	struct rbk_sqe *sqe;
	int r;

	r = work_init(work, lab->rbk, shape, n_outputs, &lab->error);
	if (r || !lab_has_gpu(lab))
		return r;
	sqe = rbk_get_sqe(lab->ring);
	if (sqe) {
		rbk_prep_prefetch(sqe, rbk_plan_id(work->plan));
		rbk_sqe_set_strategy(sqe, RBK_STRATEGY_DEVICE(RBK_DEVICE_GPU));
		r = rbk_submit(lab->ring);
	} else {
		r = -ECONNRESET;
	}
	if (r < 0)
		r = lab_fail(lab, r, "cannot submit: %s", strerror(-r));
	else
		r = wait_cqe(lab, &cqe);
	if (r)
		work_deinit(work);
	else
		/*
		 * The prefetch's result is ignored: if memory is short, the tasks' reasons say so.
		 */
		rbk_cqe_seen(lab->ring, cqe);
	return r;
}

/* Submit a task without waiting for it. */
static int submit(struct lab *lab, struct lab_task *task)
{
	struct rbk_sqe *sqe = rbk_get_sqe(lab->ring);
	int r;

	if (!sqe)
		return lab_fail(lab, -ECONNRESET, "the broker ended the session");
	work_prepare(task->work, task->rows, task->output, sqe);
	task->id = lab->next_id++;
	task->has_decision = false;
	rbk_sqe_set_data64(sqe, task->id);
	rbk_sqe_set_strategy(sqe, task->strategy);
	rbk_sqe_set_flags(sqe, task->flags);
	task->round_trip_ns = now_ns();
	r = rbk_submit(lab->ring);
	return r < 0 ? lab_fail(lab, r, "cannot submit: %s", strerror(-r)) : 0;
}

/* Find a task's record, searching from the newest record. */
static void find_decision(struct lab *lab, struct lab_task *task)
{
	const struct rbk_stats_tenant *tenant =
		rbk_stats_record(&lab->own, RBK_STATS_SECTION_TENANTS, 0);
	const uint64_t head = rbk_stats_load(&tenant->log_head);
	const uint64_t n = rbk_stats_count(&lab->own, RBK_STATS_SECTION_DECISIONS);

	for (uint64_t i = head; i > 0 && i + n > head; i--) {
		if (!rbk_stats_decision(&lab->own, i - 1, &task->decision))
			break;
		if (task->decision.user_data == task->id) {
			task->has_decision = true;
			return;
		}
	}
}

static bool is_finite(float ns)
{
	return ns >= 0 && ns < 1e18f;
}

/* Check the conditions that hold for every task that ran. */
static void check_task(struct lab *lab, struct lab_task *task)
{
	const struct rbk_stats_decision *d = &task->decision;
	const char *name = task->work->shape.name;

	lab_expect(lab, work_is_right(task->work, task->rows, task->output),
		   "%s of %u rows on the %s has a wrong result", name, task->rows,
		   lab_device(lab, task->cqe.device));
	lab_expect(lab, task->cqe.device < lab->n_devices, "%s ran on device %u", name,
		   task->cqe.device);
	lab_expect(lab, task->cqe.reason != RBK_REASON_NONE, "%s has no reason", name);
	if (!task->has_decision)
		return;
	lab_expect(lab, d->device == task->cqe.device && d->reason == task->cqe.reason,
		   "%s: the log says device %u and %s, its completion device %u and %s", name,
		   d->device, rbk_reason_name(d->reason), task->cqe.device,
		   rbk_reason_name(task->cqe.reason));
	lab_expect(lab, is_finite(d->predicted_ns) && is_finite(d->other_ns),
		   "%s: predicted %g and %g ns", name, (double)d->predicted_ns,
		   (double)d->other_ns);
}

/*
 * Wait for the next completion, which must belong to one of @tasks. Check its result unless the
 * task failed.
 */
static int complete(struct lab *lab, struct lab_task *tasks, unsigned int n, struct lab_task **ret)
{
	const struct rbk_cqe *cqe;
	int r = wait_cqe(lab, &cqe);

	if (r)
		return r;
	for (unsigned int i = 0; i < n; i++) {
		if (tasks[i].id != rbk_cqe_get_data64(cqe))
			continue;
		tasks[i].round_trip_ns = now_ns() - tasks[i].round_trip_ns;
		tasks[i].cqe = *cqe;
		rbk_cqe_seen(lab->ring, cqe);
		find_decision(lab, &tasks[i]);
		if (tasks[i].cqe.res == 0)
			check_task(lab, &tasks[i]);
		*ret = &tasks[i];
		return 0;
	}
	return lab_fail(lab, -EPROTO, "a completion of no task of ours");
}

int lab_run(struct lab *lab, struct lab_task *task)
{
	struct lab_task *completed;
	int r = submit(lab, task);

	return r ? r : complete(lab, task, 1, &completed);
}

int lab_run_all(struct lab *lab, struct lab_task *tasks, unsigned int n, uint64_t *ret_wall_ns)
{
	uint64_t begin_ns;
	int r;

	for (unsigned int i = 0; i < n; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(lab->ring);

		if (!sqe)
			return lab_fail(lab, -ENOSPC, "the ring is full");
		work_prepare(tasks[i].work, tasks[i].rows, tasks[i].output, sqe);
		tasks[i].id = lab->next_id++;
		tasks[i].has_decision = false;
		rbk_sqe_set_data64(sqe, tasks[i].id);
		rbk_sqe_set_strategy(sqe, tasks[i].strategy);
		rbk_sqe_set_flags(sqe, tasks[i].flags);
	}
	begin_ns = now_ns();
	for (unsigned int i = 0; i < n; i++)
		tasks[i].round_trip_ns = begin_ns;
	r = rbk_submit_and_wait(lab->ring, n);
	if (r < 0)
		return lab_fail(lab, r, "cannot submit: %s", strerror(-r));
	*ret_wall_ns = now_ns() - begin_ns;
	for (unsigned int i = 0; i < n; i++) {
		struct lab_task *task = NULL;

		r = complete(lab, tasks, n, &task);
		if (r)
			return r;
		lab_expect(lab, task->cqe.res == 0, "%s failed: %s", task->work->shape.name,
			   strerror(-task->cqe.res));
	}
	return 0;
}

/* ---- Figures ---- */

int lab_settle(struct lab *lab)
{
	/* The current update may have begun before the last task, so wait for two more. */
	const struct rbk_stats_header *own = lab->own.page, *whole = lab->whole.page;
	const uint64_t want_own = rbk_stats_load(&own->n_updates) + 2;
	const uint64_t want_whole = rbk_stats_load(&whole->n_updates) + 2;

	for (unsigned int ms = 0; ms < SETTLE_MS; ms += STEP_MS) {
		if (rbk_stats_load(&own->n_updates) >= want_own &&
		    rbk_stats_load(&whole->n_updates) >= want_whole)
			return 0;
		nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
	}
	return lab_fail(lab, -ETIMEDOUT, "the broker's figures have not changed for %d s",
			SETTLE_MS / 1000);
}

static int copy(struct lab *lab, const struct rbk_stats_view *view, unsigned int section,
		uint32_t index, void *to, size_t bytes)
{
	const bool is_there = index < rbk_stats_count(view, section);

	/* Retry: the broker may have been preempted in the middle of a change. */
	for (unsigned int ms = 0; is_there && ms < SETTLE_MS; ms += STEP_MS) {
		if (rbk_stats_copy_record(view, section, index, to, bytes))
			return 0;
		nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
	}
	return lab_fail(lab, -EPROTO, "the statistics page has no record %u of section %u", index,
			section);
}

int lab_plan(struct lab *lab, const struct lab_task *task,
	     struct rbk_stats_plan_device ret[RBK_MAX_DEVICES])
{
	const size_t bytes = lab->own.n_devices * sizeof(*ret);
	/* In the page the plan's devices follow the plan without a gap. */
	uint64_t words[(sizeof(struct rbk_stats_plan) + RBK_MAX_DEVICES * sizeof(*ret)) /
		       sizeof(uint64_t)];
	int r;

	if (!task->has_decision)
		return lab_fail(lab, -ENOENT, "%s is not in the decision log",
				task->work->shape.name);
	r = copy(lab, &lab->own, RBK_STATS_SECTION_PLANS, task->decision.plan, words,
		 sizeof(struct rbk_stats_plan) + bytes);
	if (r == 0)
		memcpy(ret, (const char *)words + sizeof(struct rbk_stats_plan), bytes);
	return r;
}

int lab_device_stats(struct lab *lab, unsigned int device, struct rbk_stats_device *ret)
{
	return copy(lab, &lab->whole, RBK_STATS_SECTION_DEVICES, device, ret, sizeof(*ret));
}

int lab_tenant_stats(struct lab *lab, struct rbk_stats_tenant *ret)
{
	return copy(lab, &lab->own, RBK_STATS_SECTION_TENANTS, 0, ret, sizeof(*ret));
}

int lab_reset(struct lab *lab)
{
	int r = rbk_stats_reset(lab->admin, RBK_STATS_ALL, 0, &lab->error);

	return r ? r : lab_settle(lab);
}

/* ---- Text ---- */

/*
 * Format three significant digits with the largest fitting unit; each of @units is @step times the
 * unit before it.
 */
static struct text scale(double value, double step, const char *const *units, unsigned int n)
{
	unsigned int unit = 0;
	struct text ret;

	while (value >= 999.5 && unit + 1 < n) {
		value /= step;
		unit++;
	}
	snprintf(ret.text, sizeof(ret.text), "%.*f %s",
		 value >= 99.95   ? 0
		 : value >= 9.995 ? 1
				  : 2,
		 value, units[unit]);
	return ret;
}

struct text text_time(double ns)
{
	static const char *const units[] = {"ns", "us", "ms", "s"};

	return scale(ns, 1000, units, 4);
}

struct text text_bytes(double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB"};

	return scale(bytes, 1024, units, 4);
}

struct text text_flops(double flops)
{
	static const char *const units[] = {"FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP"};

	return scale(flops, 1000, units, 5);
}

const char *text_reason(unsigned int reason)
{
	static const char *const words[RBK_REASON_COUNT] = {
		[RBK_REASON_NONE] = "nothing was placed",
		[RBK_REASON_GPU_AVAILABLE] = "a GPU is available and much faster by its profile",
		[RBK_REASON_GPU_UNAVAILABLE] = "no GPU can run it now",
		[RBK_REASON_CPU_FALLBACK] = "it failed on a GPU and was run again on the CPU",
		[RBK_REASON_COST_MODEL] = "it is predicted to be complete there first",
		[RBK_REASON_MEMORY_CONSTRAINT] = "there is no device memory for its plan",
		[RBK_REASON_USER_PREFERENCE] = "the entry asked for it",
		[RBK_REASON_BELOW_THRESHOLD] = "it is too small to be worth a transfer",
		[RBK_REASON_CONTENTION] = "other programs keep the CPU busy",
		[RBK_REASON_BREAKER_OPEN] = "the GPU failed too often",
	};

	return reason < RBK_REASON_COUNT ? words[reason] : "for a reason of a newer broker";
}
