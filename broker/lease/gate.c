/* SPDX-License-Identifier: MIT */
/*
 * Device gate: see gate.h.
 *
 * The map outlives the broker, so that programs can open the devices of their leases while there is
 * no broker. A broker that begins therefore adds to the entries that exist. It removes entries
 * without a lease only after programs have had time to come back.
 *
 * The gate is a mount that appears complete, with everything pinned in it, and disappears as a
 * whole. The kernel reports both through /proc/self/mountinfo, so nothing is polled while nothing
 * changes.
 */
#include "lease/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/device-gate-layout.h"
#include "lease/lease.h"
#include "loop/loop.h"
#include "util/cgroup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/gate-path.h"
#include "util/log.h"
#include "util/pinned-map.h"
#include "util/proc.h"

static const uint64_t default_settle_ns = 10000000000u;
static const char own_prefix[] = "ringbroker-exec-";

struct gate {
	struct gate_options options;
	char folder[PATH_MAX], holders[PATH_MAX + sizeof(GATE_HOLDERS)];
	struct loop_watch *watch;
	struct loop_timer *timer;
	int mounts_fd;
	int fd; /* the map's; -1: no gate, or not usable */
	/* The map's file at the last look; 0: there was none. */
	dev_t dev;
	ino_t ino;
	struct device_gate_key own; /* the broker's; cgroup 0: none of its own */
	struct log_limit limit;
};

static struct device_gate_key key_of(const struct lease *lease)
{
	return (struct device_gate_key){.cgroup = lease->cgroup_id, .uid = lease->uid};
}

static bool is_same(const struct device_gate_key *a, const struct device_gate_key *b)
{
	return a->cgroup == b->cgroup && a->uid == b->uid;
}

/*
 * Return true if the cgroup was made for the lease's programs, so that no other program is in it.
 */
static bool has_own_cgroup(const struct lease *lease)
{
	char link[64], path[PATH_MAX];
	const char *name;
	ssize_t n;

	if (!lease->cgroup_id)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", lease->cgroup_fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	name = strrchr(path, '/');
	return name && strncmp(name + 1, own_prefix, sizeof(own_prefix) - 1) == 0;
}

/* Return the lease that an entry stands for; NULL: none. */
static const struct lease *find(const struct gate *gate, const struct device_gate_key *key)
{
	list_for_each (node, &gate->options.leases->all) {
		const struct lease *lease = container_of(node, struct lease, link);
		struct device_gate_key own = key_of(lease);

		if (is_same(&own, key) && has_own_cgroup(lease))
			return lease;
	}
	return NULL;
}

/* --- The map --- */

static void put(struct gate *gate, const struct device_gate_key *key, uint32_t lease)
{
	const struct device_gate_holder holder = {.lease = lease, .pid = (uint32_t)getpid()};
	uint64_t n_unlogged;
	int r = pinned_map_put(gate->fd, key, &holder);

	if (r && log_limit_pass(&gate->limit, clock_now_ns(), &n_unlogged))
		log_warning(LOG_GATE_UNUSABLE, "the gate in %s cannot be opened for lease %u: %s",
			    gate->folder, lease, r == -E2BIG ? "its map is full" : strerror(-r));
}

static void take_out(struct gate *gate, const struct device_gate_key *key)
{
	int r = pinned_map_delete(gate->fd, key);

	if (r && r != -ENOENT)
		log_debug(LOG_DETAIL, "the gate in %s cannot be closed for a lease: %s",
			  gate->folder, strerror(-r));
}

static void on_cgroup_changed(void *context, const struct lease *lease)
{
	struct device_gate_key key = key_of(lease);
	struct gate *gate = context;
	const struct lease *holder;

	if (gate->fd < 0)
		return;
	holder = find(gate, &key);
	if (holder)
		put(gate, &key, holder->number);
	else
		take_out(gate, &key);
}

/* Write all entries. Return: the number of leases among them. */
static uint32_t put_all(struct gate *gate)
{
	const struct device_gate_key presence = {.cgroup = 0};
	uint32_t n = 0;

	put(gate, &presence, 0);
	if (gate->own.cgroup)
		put(gate, &gate->own, 0);
	list_for_each (node, &gate->options.leases->all) {
		const struct lease *lease = container_of(node, struct lease, link);
		struct device_gate_key key = key_of(lease);

		if (!has_own_cgroup(lease))
			continue;
		put(gate, &key, lease->number);
		n++;
	}
	return n;
}

/* Remove entries whose programs did not come back with a lease. */
static void on_settled(void *data)
{
	struct gate *gate = data;
	struct device_gate_key *keys = calloc(DEVICE_GATE_MAX_HOLDERS, sizeof(*keys));
	uint32_t n = 0, n_removed = 0;

	/* No other process writes to the map. */
	while (keys && gate->fd >= 0 && n < DEVICE_GATE_MAX_HOLDERS &&
	       pinned_map_next(gate->fd, n ? &keys[n - 1] : NULL, &keys[n]) == 0)
		n++;
	for (uint32_t i = 0; i < n; i++) {
		if (keys[i].cgroup == 0 || is_same(&keys[i], &gate->own) || find(gate, &keys[i]))
			continue;
		take_out(gate, &keys[i]);
		n_removed++;
	}
	free(keys);
	if (n_removed)
		log_debug(LOG_DETAIL,
			  "the gate in %s is closed to %u cgroups that have no lease any more",
			  gate->folder, n_removed);
}

/* --- Presence --- */

static void leave(struct gate *gate)
{
	if (gate->fd >= 0)
		log_info(LOG_GATE_GONE, "the gate in %s was removed", gate->folder);
	gate->fd = close_fd(gate->fd);
	loop_timer_disarm(gate->timer);
}

static const char *explain(int r)
{
	switch (r) {
	case -EACCES:
		return "may not be written by this user (brokerctl gate on --user)";
	case -EPERM:
		return "may not be written: before Linux 5.19 that requires CAP_BPF";
	case -EPROTO:
		return "belongs to another version of the gate";
	}
	return strerror(-r);
}

static void enter(struct gate *gate)
{
	uint32_t n;
	int r = pinned_map_open(gate->holders, true, sizeof(struct device_gate_key),
				sizeof(struct device_gate_holder), &gate->fd);

	if (r) {
		log_warning(LOG_GATE_UNUSABLE,
			    "the gate in %s admits no lease of this broker: its map %s",
			    gate->folder, explain(r));
		return;
	}
	n = put_all(gate);
	log_info(LOG_GATE_FOUND,
		 "the gate in %s keeps GPUs closed to programs without a lease; it is open to %u "
		 "lease%s",
		 gate->folder, n, n == 1 ? "" : "s");
	loop_timer_arm(gate->timer, gate->options.settle_ns);
}

void gate_check(struct gate *gate)
{
	struct stat status = {.st_ino = 0};

	/* The policy may also be read again while the broker ends. */
	if (!gate || !gate->options.leases->cgroup_changed)
		return;
	if (!pinned_map_is_folder(gate->folder) || stat(gate->holders, &status) < 0)
		status = (struct stat){.st_ino = 0};
	if (status.st_dev == gate->dev && status.st_ino == gate->ino)
		return;
	gate->dev = status.st_dev;
	gate->ino = status.st_ino;
	leave(gate);
	if (gate->ino)
		enter(gate);
}

static void on_mounts_changed(void *data, uint32_t events)
{
	gate_check(data);
}

/* --- Setup --- */

/*
 * Find the broker's cgroup, if it is a service's. The broker reopens GPUs after a reset, so a gate
 * above its cgroup must let it in. The gate lets in the whole cgroup: a service's cgroup contains
 * no other programs, but any other cgroup may.
 */
static void find_own_cgroup(struct gate *gate)
{
	static const char suffix[] = ".service";
	char root[PATH_MAX], path[PATH_MAX], folder[2 * PATH_MAX];
	_cleanup_(close_fdp) int fd = -1;
	struct cgroup_about about;
	size_t n;

	if (!proc_own_cgroup(path, sizeof(path)))
		return;
	n = strlen(path);
	if (n < sizeof(suffix) || strcmp(path + n - (sizeof(suffix) - 1), suffix) != 0 ||
	    !cgroup_find_root(root, sizeof(root)))
		return;
	snprintf(folder, sizeof(folder), "%s%s", root, path);
	fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && cgroup_of_fd(fd, &about))
		gate->own = (struct device_gate_key){.cgroup = about.id, .uid = getuid()};
}

int gate_new(const struct gate_options *options, struct gate **ret)
{
	_cleanup_(gate_freep) struct gate *gate = calloc(1, sizeof(*gate));
	int r;

	if (!gate)
		return error_origin(-ENOMEM);
	gate->options = *options;
	if (!gate->options.settle_ns)
		gate->options.settle_ns = default_settle_ns;
	gate->fd = gate->mounts_fd = -1;
	/* A path that is too long was refused with the socket. */
	r = gate_path_of(options->socket_path, gate->folder, sizeof(gate->folder));
	if (r)
		return error_origin(r);
	snprintf(gate->holders, sizeof(gate->holders), "%s/" GATE_HOLDERS, gate->folder);
	find_own_cgroup(gate);
	r = loop_timer_new(options->loop, on_settled, gate, &gate->timer);
	if (r)
		return error_fold(r);
	gate->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (gate->mounts_fd >= 0) {
		r = loop_watch(options->loop, gate->mounts_fd, POLLPRI, on_mounts_changed, gate,
			       &gate->watch);
		if (r)
			return error_fold(r);
	}
	options->leases->cgroup_changed = on_cgroup_changed;
	options->leases->cgroup_context = gate;
	gate_check(gate);
	*ret = steal_ptr(gate);
	return 0;
}

void gate_stop(struct gate *gate)
{
	const struct device_gate_key presence = {.cgroup = 0};

	if (!gate || !gate->options.leases->cgroup_changed)
		return;
	gate->options.leases->cgroup_changed = NULL;
	if (gate->fd >= 0)
		take_out(gate, &presence);
	loop_timer_disarm(gate->timer);
	gate->watch = loop_unwatch(gate->watch);
}

struct gate *gate_free(struct gate *gate)
{
	if (!gate)
		return NULL;
	gate->options.leases->cgroup_changed = NULL;
	if (gate->watch)
		loop_unwatch(gate->watch);
	loop_timer_free(gate->timer);
	close_fd(gate->mounts_fd);
	close_fd(gate->fd);
	free(gate);
	return NULL;
}
