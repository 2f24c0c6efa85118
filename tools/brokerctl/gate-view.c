/* SPDX-License-Identifier: MIT */
/*
 * State of gates: see gate.h.
 *
 * Gates are read where they are pinned, without a broker, so that they are visible when none runs.
 * The names show which cgroups are behind a gate, even to users who may not read the maps.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/util/cgroup.h"
#include "broker/util/gate-path.h"
#include "broker/util/pinned-map.h"
#include "command.h"
#include "gate.h"
#include "monitor/text.h"
#include "util/clock.h"
#include "util/plural.h"

void gate_folder(const struct control *control, char ret[static PATH_MAX])
{
	char socket_path[PATH_MAX / 2];

	control_socket_path(control, socket_path, sizeof(socket_path));
	if (gate_path_of(socket_path, ret, PATH_MAX))
		ret[0] = '\0';
}

/* Return true if the gate's cgroup no longer exists at its path. */
static bool is_gone(const struct gate_view *gate)
{
	char root[PATH_MAX / 2], path[PATH_MAX];
	struct stat status;

	if (!cgroup_find_root(root, sizeof(root)))
		return false;
	snprintf(path, sizeof(path), "%s%s", root, gate->record.path);
	return stat(path, &status) < 0 ? errno == ENOENT : status.st_ino != gate->cgroup;
}

static void read_gate(const char *folder, uint64_t cgroup, struct gate_view *ret)
{
	char path[PATH_MAX + 64];
	unsigned int zero = 0;
	int fd;

	*ret = (struct gate_view){.cgroup = cgroup};
	snprintf(path, sizeof(path), "%s/%llu" GATE_RECORD, folder, (unsigned long long)cgroup);
	if (pinned_map_open(path, false, sizeof(zero), sizeof(ret->record), &fd))
		return;
	ret->is_known = pinned_map_get(fd, &zero, &ret->record) == 0;
	close(fd);
	ret->record.path[sizeof(ret->record.path) - 1] = '\0';
	ret->is_gone = ret->is_known && is_gone(ret);
}

static void read_holders(const char *folder, struct gate_views *ret)
{
	struct device_gate_key key, next;
	struct device_gate_holder holder;
	char path[PATH_MAX + 64];
	unsigned int i = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/" GATE_HOLDERS, folder);
	if (pinned_map_open(path, false, sizeof(key), sizeof(holder), &fd))
		return;
	ret->knows_holders = true;
	/* Holders may be added and removed during the walk, so one may be counted twice. */
	while (i < DEVICE_GATE_MAX_HOLDERS && pinned_map_next(fd, i ? &key : NULL, &next) == 0) {
		i++;
		key = next;
		if (pinned_map_get(fd, &key, &holder))
			continue;
		ret->n_holders += holder.lease != 0;
		if (key.cgroup == 0 && (kill((pid_t)holder.pid, 0) == 0 || errno == EPERM))
			ret->broker = (pid_t)holder.pid;
	}
	close(fd);
}

void gate_views_read(const struct control *control, struct gate_views *ret)
{
	struct dirent *entry;
	DIR *folder;

	*ret = (struct gate_views){.n = 0};
	gate_folder(control, ret->folder);
	ret->is_there = pinned_map_is_folder(ret->folder);
	folder = ret->is_there ? opendir(ret->folder) : NULL;
	if (!folder)
		return;
	ret->may_look = true;
	while (ret->n < GATE_MAX && (entry = readdir(folder))) {
		uint64_t cgroup;
		char *end;

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		cgroup = strtoull(entry->d_name, &end, 10);
		if (*end == '\0')
			read_gate(ret->folder, cgroup, &ret->gates[ret->n++]);
	}
	closedir(folder);
	read_holders(ret->folder, ret);
}

static int by_number(const void *a, const void *b)
{
	const struct device_gate_refusal *x = *(const struct device_gate_refusal *const *)a;
	const struct device_gate_refusal *y = *(const struct device_gate_refusal *const *)b;

	return x->number < y->number ? 1 : x->number > y->number ? -1 : 0;
}

unsigned int gate_refusals(const struct device_gate_record *record,
			   const struct device_gate_refusal *ret[DEVICE_GATE_REFUSALS])
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < DEVICE_GATE_REFUSALS; i++)
		if (record->refusals[i].number)
			ret[n++] = &record->refusals[i];
	qsort(ret, n, sizeof(ret[0]), by_number);
	return n;
}

const char *gate_refusal_text(const struct device_gate_refusal *refusal)
{
	static char text[256];
	char comm[DEVICE_GATE_COMM_BYTES + 1];
	const int64_t age_ns = (int64_t)(clock_boot_ns() - refusal->at_ns);

	snprintf(comm, sizeof(comm), "%.*s", DEVICE_GATE_COMM_BYTES, refusal->comm);
	snprintf(text, sizeof(text), "process %u (%s) of uid %u, device %u:%u, %s ago",
		 refusal->pid, text_name(comm), refusal->uid, refusal->major, refusal->minor,
		 text_ns(age_ns > 0 ? (double)age_ns : 0));
	return text;
}

const char *gate_count_text(const struct device_gate_record *record)
{
	const struct device_gate_refusal *last[DEVICE_GATE_REFUSALS];
	static char text[384];

	if (record->n_refused && gate_refusals(record, last))
		snprintf(text, sizeof(text), "%llu open%s refused, the last one that of %s",
			 record->n_refused, plural(record->n_refused), gate_refusal_text(last[0]));
	else
		snprintf(text, sizeof(text), "no program was refused");
	return text;
}

const char *gate_name(const struct gate_view *gate)
{
	static char text[64];

	if (gate->is_known)
		return text_name(gate->record.path);
	snprintf(text, sizeof(text), "cgroup number %llu", (unsigned long long)gate->cgroup);
	return text;
}

bool gate_is_over_self(const struct control *control, char ret[static PATH_MAX])
{
	char folder[PATH_MAX], root[PATH_MAX], line[PATH_MAX], path[2 * PATH_MAX],
		pin[PATH_MAX + 64];
	FILE *file = fopen("/proc/self/cgroup", "re");
	struct stat status;
	bool is_known = false;

	while (file && !is_known && fgets(line, sizeof(line), file))
		is_known = strncmp(line, "0::/", 4) == 0;
	if (file)
		fclose(file);
	gate_folder(control, folder);
	if (!is_known || !pinned_map_is_folder(folder) || !cgroup_find_root(root, sizeof(root)))
		return false;
	line[strcspn(line, "\n")] = '\0';
	/* From the process's own cgroup up to the root. */
	for (char *end = line + strlen(line); end; end = strrchr(line, '/')) {
		*end = '\0';
		snprintf(path, sizeof(path), "%s%s", root, line + 3);
		snprintf(ret, PATH_MAX, "%s", line[3] ? line + 3 : "/");
		if (stat(path, &status) < 0)
			continue;
		snprintf(pin, sizeof(pin), "%s/%llu", folder, (unsigned long long)status.st_ino);
		if (access(pin, F_OK) == 0)
			return true;
	}
	return false;
}
