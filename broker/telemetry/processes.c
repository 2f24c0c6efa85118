/* SPDX-License-Identifier: MIT */
/*
 * Users of the devices: the search through /proc
 *
 * To know what a process has open, one must read every link in /proc/PID/fd, and a machine has tens
 * of thousands of links. So each look examines the processes that were seen with a DRM descriptor,
 * and of the others as many links as a budget allows, in turn. A new user is found after a while;
 * the device's own count includes its memory at once. The budget grows with the time since the last
 * look, so that the search costs the same share of a processor at any pace.
 *
 * The link is read first, because that touches nothing but /proc. Only a node in /dev, outside
 * /dev/dri, is examined more closely: its major number must be 226, DRM's (devices.txt).
 *
 * A DRM client may be open several times, in several processes (a compositor hands descriptors to
 * its clients). It is counted once, for the first process found to have it.
 */
#include "telemetry/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "telemetry/fdinfo.h"
#include "util/error.h"
#include "util/number.h"

enum {
	DRM_MAJOR = 226,
	MAX_PIDS = 32768,        /* processes that one look examines, at most */
	MAX_USERS = 1024,        /* known processes with DRM descriptors, at most */
	MAX_OWN = 64,            /* known DRM descriptors of this process, at most */
	SEEN_SLOTS = 8192,       /* a power of two; at most half of it is used */
	LINKS_PER_SECOND = 4096, /* links read of processes without known DRM descriptors */
	MIN_LINKS = 256,
	MAX_LINKS = 65536,
	PATH_BYTES = 128,
};

/* A client of a device that was counted in this look. */
struct seen {
	uint64_t client_id;
	uint32_t device;
	uint32_t look; /* number of the look; 0 or another look than this one: free */
};

/* A process at the last look, to compute its share of time. */
struct before {
	pid_t pid;
	uint64_t busy_ns; /* as the kernel told */
	uint64_t sum_ns;  /* time since it was first listed */
};

struct device {
	char pci[TELEMETRY_PCI_BYTES];
	struct before before[TELEMETRY_MAX_PROCESSES];
	uint32_t n_before;
	uint64_t before_ns;
	struct reading busy_ns[TELEMETRY_MAX_PROCESSES]; /* parallel to the reading's list */
};

/* One process's use of one device, while the process is examined. */
struct use {
	uint64_t vram_bytes, gtt_bytes;
	struct reading busy_ns;
	bool is_user;
};

struct processes {
	const char *root;
	uint32_t n_devices;
	struct device devices[RBK_MAX_DEVICES];

	pid_t users[MAX_USERS]; /* sorted by number */
	uint32_t n_users;
	pid_t cursor; /* last process examined that was no known user */
	uint64_t last_ns;
	uint64_t links_left;

	int own[MAX_OWN];
	uint32_t n_own;

	/* state of one look */
	struct device_reading *const *readings;
	bool is_partial;
	uint32_t look;
	uint32_t n_seen;
	struct seen seen[SEEN_SLOTS];
	pid_t pids[MAX_PIDS];
	char text[FDINFO_MAX_BYTES];
};

int processes_new(const char *root, uint32_t n_devices, struct processes **ret)
{
	struct processes *processes = calloc(1, sizeof(*processes));

	if (!processes)
		return error_origin(-ENOMEM);
	processes->root = root;
	processes->n_devices = n_devices < RBK_MAX_DEVICES ? n_devices : RBK_MAX_DEVICES;
	*ret = processes;
	return 0;
}

struct processes *processes_free(struct processes *processes)
{
	free(processes);
	return NULL;
}

void processes_set_pci(struct processes *processes, uint32_t i, const char *pci)
{
	snprintf(processes->devices[i].pci, sizeof(processes->devices[i].pci), "%s", pci);
}

/* Return: the length; 0 if nothing could be read. @ret does not end with NUL. */
static size_t read_file(const char *path, char *ret, size_t bytes)
{
	_cleanup_(close_fdp) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t n = 0;
	ssize_t r;

	if (fd < 0)
		return 0;
	while (n < bytes) {
		r = read(fd, ret + n, bytes - n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			break;
		n += (size_t)r;
	}
	return n;
}

/* Count a client. Return: false if it was counted already, or there are too many. */
static bool see(struct processes *processes, uint32_t device, uint64_t client_id)
{
	uint64_t hash = (client_id * RBK_MAX_DEVICES + device) * 0x9e3779b97f4a7c15u;
	struct seen *seen;

	for (uint32_t i = (uint32_t)(hash >> 51);; i++) {
		seen = &processes->seen[i % SEEN_SLOTS];
		if (seen->look != processes->look)
			break;
		if (seen->device == device && seen->client_id == client_id)
			return false;
	}
	if (processes->n_seen >= SEEN_SLOTS / 2) {
		processes->is_partial = true;
		return false;
	}
	*seen = (struct seen){client_id, device, processes->look};
	processes->n_seen++;
	return true;
}

static void forget_seen(struct processes *processes)
{
	/* The look number wraps around after many years. */
	if (++processes->look == 0) {
		memset(processes->seen, 0, sizeof(processes->seen));
		processes->look = 1;
	}
	processes->n_seen = 0;
}

static void use_add(struct use *use, const struct fdinfo *info)
{
	use->is_user = true;
	if (info->vram_bytes.is_valid)
		use->vram_bytes = saturating_add(use->vram_bytes, info->vram_bytes.value);
	if (info->gtt_bytes.is_valid)
		use->gtt_bytes = saturating_add(use->gtt_bytes, info->gtt_bytes.value);
	if (info->busy_ns.is_valid)
		use->busy_ns = (struct reading){
			saturating_add(use->busy_ns.value, info->busy_ns.value), true};
}

/* Add what descriptor @fd of @process holds. Return: true if it is a DRM descriptor. */
static bool add_descriptor(struct processes *processes, const char *process, int fd,
			   struct use uses[static RBK_MAX_DEVICES])
{
	struct fdinfo info;
	char path[PATH_BYTES];
	size_t bytes;

	snprintf(path, sizeof(path), "%s/fdinfo/%d", process, fd);
	bytes = read_file(path, processes->text, sizeof(processes->text));
	if (fdinfo_parse(processes->text, bytes, &info))
		return false;
	for (uint32_t i = 0; i < processes->n_devices; i++)
		if (strcmp(processes->devices[i].pci, info.pdev) == 0 &&
		    see(processes, i, info.client_id))
			use_add(&uses[i], &info);
	return true;
}

static bool is_drm(const char *path)
{
	char target[64];
	struct statx info;
	ssize_t n;

	n = readlink(path, target, sizeof(target) - 1);
	if (n < 5)
		return false;
	target[n] = '\0';
	if (strncmp(target, "/dev/dri/", 9) == 0)
		return true;
	return strncmp(target, "/dev/", 5) == 0 &&
	       statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE, &info) == 0 &&
	       S_ISCHR(info.stx_mode) && info.stx_rdev_major == DRM_MAJOR;
}

/* Parse the number of a descriptor or process. Return: -1 if @name is not a number. */
static int parse_number(const char *name)
{
	long value = 0;

	if (!name[0])
		return -1;
	for (; *name; name++) {
		if (*name < '0' || *name > '9' || value > INT32_MAX / 10 - 1)
			return -1;
		value = value * 10 + (*name - '0');
	}
	return (int)value;
}

/*
 * Add up what a process holds; if it is this process, remember its DRM descriptors.
 * Return: true if it has any.
 */
static bool add_process(struct processes *processes, const char *process,
			struct use uses[static RBK_MAX_DEVICES], bool is_own)
{
	char folder[PATH_BYTES], path[PATH_BYTES + 32];
	struct dirent *entry;
	bool has = false;
	DIR *dir;
	int fd;

	snprintf(folder, sizeof(folder), "%s/fd", process);
	dir = opendir(folder);
	if (!dir) {
		if (errno == EACCES || errno == EPERM)
			processes->is_partial = true;
		return false;
	}
	if (is_own)
		processes->n_own = 0;
	while ((entry = readdir(dir))) {
		fd = parse_number(entry->d_name);
		if (fd < 0)
			continue;
		if (processes->links_left > 0)
			processes->links_left--;
		snprintf(path, sizeof(path), "%s/%d", folder, fd);
		if (!is_drm(path) || !add_descriptor(processes, process, fd, uses))
			continue;
		has = true;
		if (is_own && processes->n_own < MAX_OWN)
			processes->own[processes->n_own++] = fd;
	}
	closedir(dir);
	return has;
}

/*
 * Get the name and the user of a process, which may be ending. The process chooses its name itself.
 */
static void describe(const char *process, struct process_reading *ret)
{
	char path[PATH_BYTES + 8];
	struct stat info;
	size_t n;

	snprintf(path, sizeof(path), "%s/comm", process);
	n = read_file(path, ret->comm, sizeof(ret->comm) - 1);
	if (n > 0 && ret->comm[n - 1] == '\n')
		n--;
	ret->comm[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (!isprint((unsigned char)ret->comm[i]))
			ret->comm[i] = '?';
	ret->uid = stat(process, &info) == 0 ? info.st_uid : (uid_t)-1;
}

/* Insert a user into the list of a device, largest first; the smallest may drop out. */
static void enter(struct device_reading *reading, struct device *device, const char *process,
		  pid_t pid, const struct use *use)
{
	uint64_t bytes = saturating_add(use->vram_bytes, use->gtt_bytes);
	uint32_t at = reading->n_processes;

	while (at > 0 && saturating_add(reading->processes[at - 1].vram_bytes,
					reading->processes[at - 1].gtt_bytes) < bytes)
		at--;
	if (at == TELEMETRY_MAX_PROCESSES) {
		reading->processes_are_partial = true;
		return;
	}
	if (reading->n_processes < TELEMETRY_MAX_PROCESSES)
		reading->n_processes++;
	else
		reading->processes_are_partial = true;
	for (uint32_t i = reading->n_processes - 1; i > at; i--) {
		reading->processes[i] = reading->processes[i - 1];
		device->busy_ns[i] = device->busy_ns[i - 1];
	}
	reading->processes[at] = (struct process_reading){
		.pid = pid,
		.vram_bytes = use->vram_bytes,
		.gtt_bytes = use->gtt_bytes,
	};
	device->busy_ns[at] = use->busy_ns;
	describe(process, &reading->processes[at]);
}

/* Examine a process. Return: true if it has DRM descriptors. */
static bool look_at(struct processes *processes, pid_t pid)
{
	struct use uses[RBK_MAX_DEVICES] = {{.is_user = false}};
	char process[PATH_BYTES / 2];
	bool has;

	snprintf(process, sizeof(process), "%s/%d", processes->root, (int)pid);
	has = add_process(processes, process, uses, false);
	for (uint32_t i = 0; i < processes->n_devices; i++)
		if (uses[i].is_user && processes->readings[i])
			enter(processes->readings[i], &processes->devices[i], process, pid,
			      &uses[i]);
	return has;
}

/* Return the index of a process among the known users, or where it would be inserted. */
static uint32_t find_user(const struct processes *processes, pid_t pid, bool *ret_found)
{
	uint32_t low = 0, high = processes->n_users;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (processes->users[middle] < pid)
			low = middle + 1;
		else
			high = middle;
	}
	*ret_found = low < processes->n_users && processes->users[low] == pid;
	return low;
}

static void add_user(struct processes *processes, pid_t pid)
{
	bool found;
	uint32_t at = find_user(processes, pid, &found);

	if (found || processes->n_users == MAX_USERS)
		return;
	memmove(&processes->users[at + 1], &processes->users[at],
		(processes->n_users - at) * sizeof(processes->users[0]));
	processes->users[at] = pid;
	processes->n_users++;
}

/* Examine the known users; forget those that have no DRM descriptors any more. */
static void look_at_users(struct processes *processes)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < processes->n_users; i++)
		if (look_at(processes, processes->users[i]))
			processes->users[n++] = processes->users[i];
	processes->n_users = n;
}

/* Sort by insertion: the kernel lists processes in order, so this costs one comparison each. */
static void sort(pid_t *pids, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		for (uint32_t j = i; j > 0 && pids[j - 1] > pids[j]; j--) {
			pid_t pid = pids[j];

			pids[j] = pids[j - 1];
			pids[j - 1] = pid;
		}
}

static uint32_t list_processes(struct processes *processes)
{
	DIR *dir = opendir(processes->root);
	struct dirent *entry;
	uint32_t n = 0;
	int pid;

	if (!dir) {
		processes->is_partial = true;
		return 0;
	}
	while (n < MAX_PIDS && (entry = readdir(dir))) {
		pid = parse_number(entry->d_name);
		if (pid > 0)
			processes->pids[n++] = pid;
	}
	if (n == MAX_PIDS)
		processes->is_partial = true;
	closedir(dir);
	sort(processes->pids, n);
	return n;
}

/* Examine processes that are no known users, from where the last look ended. */
static void look_at_others(struct processes *processes, bool is_thorough)
{
	uint32_t n = list_processes(processes);
	bool found;

	for (uint32_t i = 0; i < n; i++) {
		pid_t pid = processes->pids[i];

		if (pid <= processes->cursor && !is_thorough)
			continue;
		find_user(processes, pid, &found);
		if (found)
			continue;
		if (processes->links_left == 0 && !is_thorough) {
			/* The next look begins with this process. */
			processes->cursor = pid - 1;
			return;
		}
		if (look_at(processes, pid))
			add_user(processes, pid);
	}
	processes->cursor = 0;
}

/*
 * Compute the time for which engines worked for a process since the last look, and add it to its
 * sum. A smaller value than before: a client has ended. Drivers leave out the time of engines that
 * a process has not used yet.
 */
static void compare_one(const struct device *device, const struct reading *busy,
			struct process_reading *process, uint64_t elapsed_ns)
{
	const struct before *before = NULL;

	if (!busy->is_valid)
		return;
	for (uint32_t i = 0; i < device->n_before && !before; i++)
		if (device->before[i].pid == process->pid)
			before = &device->before[i];
	process->busy_ns = (struct reading){before ? before->sum_ns : 0, .is_valid = true};
	if (!before || busy->value < before->busy_ns || elapsed_ns == 0)
		return;
	process->busy_ns.value += busy->value - before->busy_ns;
	process->busy_percent.is_valid = true;
	process->busy_percent.value =
		(uint64_t)((unsigned __int128)(busy->value - before->busy_ns) * 100 / elapsed_ns);
}

static void compare(struct device *device, struct device_reading *reading, uint64_t now_ns)
{
	const uint64_t elapsed_ns = device->before_ns > 0 ? now_ns - device->before_ns : 0;

	for (uint32_t i = 0; i < reading->n_processes; i++)
		compare_one(device, &device->busy_ns[i], &reading->processes[i], elapsed_ns);
	for (uint32_t i = 0; i < reading->n_processes; i++)
		device->before[i] =
			(struct before){reading->processes[i].pid, device->busy_ns[i].value,
					reading->processes[i].busy_ns.value};
	device->n_before = reading->n_processes;
	device->before_ns = now_ns;
}

static uint64_t links_since(uint64_t elapsed_ns)
{
	uint64_t links = elapsed_ns / (1000000000u / LINKS_PER_SECOND);

	if (links < MIN_LINKS)
		return MIN_LINKS;
	return links < MAX_LINKS ? links : MAX_LINKS;
}

void processes_look(struct processes *processes, uint64_t now_ns, bool is_thorough,
		    struct device_reading *const *readings)
{
	struct device_reading *reading;

	processes->readings = readings;
	processes->links_left = links_since(now_ns - processes->last_ns);
	processes->last_ns = now_ns;
	processes->is_partial = !processes_see_all(processes);
	forget_seen(processes);
	for (uint32_t i = 0; i < processes->n_devices; i++) {
		if (!readings[i])
			continue;
		readings[i]->n_processes = 0;
		readings[i]->processes_are_partial = false;
		readings[i]->processes_ns = (struct reading){0, false};
		memset(readings[i]->processes, 0, sizeof(readings[i]->processes));
	}

	look_at_users(processes);
	look_at_others(processes, is_thorough);

	for (uint32_t i = 0; i < processes->n_devices; i++) {
		reading = readings[i];
		if (!reading || !processes->devices[i].pci[0])
			continue;
		compare(&processes->devices[i], reading, now_ns);
		reading->processes_ns = (struct reading){now_ns, true};
		reading->processes_are_partial |= processes->is_partial;
	}
}

void processes_own(struct processes *processes, bool is_new, struct process_use *ret)
{
	struct use uses[RBK_MAX_DEVICES] = {{.is_user = false}};
	char process[PATH_BYTES / 2];

	snprintf(process, sizeof(process), "%s/self", processes->root);
	forget_seen(processes);
	/*
	 * A known number is no DRM descriptor any more: search again, its client may have another
	 * number.
	 */
	for (uint32_t i = 0; i < processes->n_own && !is_new; i++)
		is_new = !add_descriptor(processes, process, processes->own[i], uses);
	if (is_new) {
		memset(uses, 0, sizeof(uses));
		forget_seen(processes);
		add_process(processes, process, uses, true);
	}
	for (uint32_t i = 0; i < processes->n_devices; i++) {
		ret[i].vram_bytes = (struct reading){uses[i].vram_bytes, uses[i].is_user};
		ret[i].gtt_bytes = (struct reading){uses[i].gtt_bytes, uses[i].is_user};
	}
}

bool processes_see_all(const struct processes *processes)
{
	char path[PATH_BYTES];
	DIR *dir;

	/*
	 * If process 1 is readable, all processes are. It may be missing: /proc can be mounted to
	 * hide other users' processes.
	 */
	snprintf(path, sizeof(path), "%s/1/fd", processes->root);
	dir = opendir(path);
	if (!dir)
		return false;
	closedir(dir);
	return true;
}
