/* SPDX-License-Identifier: MIT */
/*
 * Processes: see process.h.
 *
 * User and group are read from the contents of /proc, not from the owner of the process's folder:
 * the folder of a process that forbids inspection belongs to root, so any process could hide behind
 * that.
 */
#include "lease/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lease/lease.h"
#include "tenant/tenant.h"

enum { CGROUP_BYTES = 4096 };

void process_view_init(struct process_view *view, const char *proc, const char *cgroups,
		       struct tenants *tenants)
{
	*view = (struct process_view){
		.proc = proc,
		.cgroups = cgroups,
		.tenants = tenants,
		.tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK),
	};
}

uint64_t process_start(struct process_view *view, pid_t pid)
{
	struct proc_task task;
	size_t bytes =
		proc_read(view->text, sizeof(view->text), "%s/%d/stat", view->proc, (int)pid);

	if (!proc_parse_task(view->text, bytes, &task))
		return 0;
	/* 0 means none. */
	return task.start_ticks * view->tick_ns + 1;
}

/*
 * Return the value in the line of a status file that begins with @key and a colon; NULL: no such
 * line.
 */
static const char *find_line(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (; text; text = strchr(text, '\n')) {
		text += *text == '\n';
		if (strncmp(text, key, n) == 0 && text[n] == ':')
			return text + n + 1;
	}
	return NULL;
}

bool process_user(struct process_view *view, struct peer *peer,
		  gid_t groups[static PROCESS_MAX_GROUPS])
{
	unsigned int real, effective;
	const char *line;
	char *end;

	if (!proc_read(view->text, sizeof(view->text), "%s/%d/status", view->proc, (int)peer->pid))
		return false;
	line = find_line(view->text, "Uid");
	if (!line || sscanf(line, "%u %u", &real, &effective) != 2)
		return false;
	peer->uid = effective;
	line = find_line(view->text, "Gid");
	if (!line || sscanf(line, "%u %u", &real, &effective) != 2)
		return false;
	peer->gid = effective;
	peer->groups = groups;
	line = find_line(view->text, "Groups");
	while (line && peer->n_groups < PROCESS_MAX_GROUPS) {
		line += strspn(line, " \t");
		if (*line < '0' || *line > '9')
			break;
		groups[peer->n_groups++] = (gid_t)strtoul(line, &end, 10);
		line = end;
	}
	return true;
}

static bool read_cgroup(struct process_view *view, pid_t pid, char cgroup[static CGROUP_BYTES])
{
	size_t bytes =
		proc_read(view->text, sizeof(view->text), "%s/%d/cgroup", view->proc, (int)pid);

	return proc_parse_cgroup(view->text, bytes, NULL, cgroup, CGROUP_BYTES);
}

struct tenant *process_tenant(struct process_view *view, pid_t pid)
{
	struct peer peer = {.pid = pid};
	char cgroup[CGROUP_BYTES], path[64];
	gid_t groups[PROCESS_MAX_GROUPS];
	struct statx status;

	if (!process_user(view, &peer, groups))
		return NULL;
	if (read_cgroup(view, pid, cgroup))
		peer.cgroup = cgroup;
	snprintf(path, sizeof(path), "%s/%d/exe", view->proc, (int)pid);
	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_INO, &status) == 0) {
		peer.has_exe = true;
		peer.exe_dev = makedev(status.stx_dev_major, status.stx_dev_minor);
		peer.exe_ino = status.stx_ino;
	}
	return tenants_find(view->tenants, &peer);
}

/*
 * Set *ret_id to the number of the next cgroup of a process, from its own one up to the root.
 * @path, which begins with @root_bytes of the mount point, is shortened by each call. Return:
 * false: no more cgroups.
 */
static bool next_cgroup(char *path, size_t root_bytes, uint64_t *ret_id)
{
	struct stat status;

	while (path[0]) {
		bool is_there = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
		char *slash = strrchr(path + root_bytes, '/');

		/* The root of the hierarchy comes last. */
		path[slash ? (size_t)(slash - path) : 0] = '\0';
		if (is_there) {
			*ret_id = status.st_ino;
			return true;
		}
	}
	return false;
}

/* Users may nest cgroups as deep as they like, and each level takes time. */
static bool is_too_deep(const char *cgroup)
{
	unsigned int n_levels = 0;

	for (; *cgroup; cgroup++)
		n_levels += *cgroup == '/';
	return n_levels > PROCESS_MAX_LEVELS;
}

/* Find the folder of a process's cgroup. Return: false: it is not known, or too deep. */
static bool find_folder(struct process_view *view, pid_t pid, char path[static 2 * CGROUP_BYTES])
{
	char cgroup[CGROUP_BYTES];

	if (!view->cgroups || pid <= 0 || !read_cgroup(view, pid, cgroup))
		return false;
	/* The cgroup is outside the part of the hierarchy that the broker sees. */
	if (strncmp(cgroup, "/..", 3) == 0 && (cgroup[3] == '/' || cgroup[3] == '\0'))
		return false;
	if (is_too_deep(cgroup))
		return false;
	snprintf(path, 2 * CGROUP_BYTES, "%.4000s%s", view->cgroups,
		 strcmp(cgroup, "/") == 0 ? "" : cgroup);
	return true;
}

bool process_is_in(struct process_view *view, pid_t pid, uint64_t cgroup_id)
{
	char path[2 * CGROUP_BYTES];
	uint64_t id;

	if (!find_folder(view, pid, path))
		return false;
	while (next_cgroup(path, strlen(view->cgroups), &id))
		if (id == cgroup_id)
			return true;
	return false;
}

static bool is_of(struct process_view *view, pid_t pid, const struct lease *lease)
{
	gid_t groups[PROCESS_MAX_GROUPS];
	struct peer peer = {.pid = pid};
	struct tenant *tenant;
	bool is_same;

	if (!process_user(view, &peer, groups) || peer.uid != lease->uid)
		return false;
	tenant = process_tenant(view, pid);
	is_same = tenant == lease->tenant;
	tenant_unref(tenant);
	return is_same;
}

static bool has_cgroups(const struct leases *leases, uint8_t device)
{
	list_for_each (node, &leases->all) {
		const struct lease *lease = container_of(node, struct lease, link);

		if (lease->device == device && lease->cgroup_id)
			return true;
	}
	return false;
}

struct lease *process_find_lease(struct process_view *view, const struct leases *leases,
				 uint8_t device, pid_t pid)
{
	char path[2 * CGROUP_BYTES];
	struct lease *lease = NULL;
	uint64_t id;

	if (!has_cgroups(leases, device) || !find_folder(view, pid, path))
		return NULL;
	while (!lease && next_cgroup(path, strlen(view->cgroups), &id))
		lease = lease_of_cgroup(leases, device, id);
	return lease && is_of(view, pid, lease) ? lease : NULL;
}
