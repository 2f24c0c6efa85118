/* SPDX-License-Identifier: MIT */
/*
 * Loading the device gate: see gate.h.
 *
 * The first gate creates the map of holders, and the other gates reuse it. Pinned objects are
 * reached through the folder's descriptor, since the folder's file system may not be mounted yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "broker/util/gate-path.h"
#include "gate.h"

/* After the layout, whose types it uses. */
#include "device-gate.skel.h"

enum { PIN_BYTES = 128 };

struct gate_load {
	const struct gate_plan *plan;
	struct device_gate_bpf *skeleton;
};

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

static void pin_path(const struct gate_plan *plan, const char *name, char ret[PIN_BYTES])
{
	snprintf(ret, PIN_BYTES, "/proc/self/fd/%d/%s", plan->folder_fd, name);
}

static bool has_helper(enum bpf_func_id helper)
{
	return libbpf_probe_bpf_helper(BPF_PROG_TYPE_CGROUP_DEVICE, helper, NULL) == 1;
}

/*
 * Reuse the map of holders of another gate, if there is one.
 * Return: 0, or a negative errno.
 */
static int use_holders(const struct gate_load *load)
{
	char path[PIN_BYTES];
	int fd, r;

	pin_path(load->plan, GATE_HOLDERS, path);
	fd = bpf_obj_get(path);
	if (fd == -ENOENT || (fd < 0 && errno == ENOENT))
		return 0;
	if (fd < 0)
		return fd;
	r = bpf_map__reuse_fd(load->skeleton->maps.holders, fd);
	close(fd);
	return r;
}

/*
 * Pin a map, unless it is pinned already.
 * Return: 0, or a negative errno.
 */
static int pin_map(const struct gate_plan *plan, struct bpf_map *map, const char *name)
{
	char path[PIN_BYTES];
	int r;

	pin_path(plan, name, path);
	if (access(path, F_OK) == 0)
		return 0;
	r = bpf_obj_pin(bpf_map__fd(map), path);
	if (!r && fchownat(plan->folder_fd, name, plan->uid, plan->gid, AT_SYMLINK_NOFOLLOW))
		r = -errno;
	if (!r && fchmodat(plan->folder_fd, name, 0640, 0))
		r = -errno;
	return r;
}

static int pin_maps(const struct gate_load *load)
{
	const struct gate_plan *plan = load->plan;
	char name[GATE_PINS];
	int r = pin_map(plan, load->skeleton->maps.holders, GATE_HOLDERS);

	snprintf(name, sizeof(name), "%llu" GATE_RECORD, plan->record.cgroup);
	/* Remove a record left by a process that ended before its gate was closed. */
	unlinkat(plan->folder_fd, name, 0);
	return r ? r : pin_map(plan, load->skeleton->maps.record, name);
}

static int load(struct gate_load *load)
{
	const struct device_gate_record *record = &load->plan->record;
	struct device_gate_bpf *skeleton = device_gate_bpf__open();
	const unsigned int zero = 0;
	int r;

	if (!skeleton)
		return -errno;
	load->skeleton = skeleton;
	skeleton->rodata->n_ranges = record->n_ranges;
	for (unsigned int i = 0; i < record->n_ranges; i++)
		skeleton->rodata->ranges[i] = record->ranges[i];
	skeleton->rodata->has_comm = has_helper(BPF_FUNC_get_current_comm);
	skeleton->rodata->has_pid = has_helper(BPF_FUNC_get_current_pid_tgid);
	r = use_holders(load);
	if (!r)
		r = device_gate_bpf__load(skeleton);
	if (!r)
		r = bpf_map_update_elem(bpf_map__fd(skeleton->maps.record), &zero, record, BPF_ANY);
	return r ? r : pin_maps(load);
}

static void explain(int r, char ret_text[GATE_TEXT_BYTES])
{
	if (r == -EPERM || r == -EACCES)
		snprintf(ret_text, GATE_TEXT_BYTES,
			 "the kernel does not let brokerctl load the program: %s", strerror(-r));
	else if (!has_helper(BPF_FUNC_get_current_ancestor_cgroup_id))
		snprintf(ret_text, GATE_TEXT_BYTES,
			 "a gate needs Linux 6.1 or later, with CONFIG_CGROUP_BPF");
	else
		snprintf(ret_text, GATE_TEXT_BYTES, "cannot load the program into the kernel: %s",
			 strerror(-r));
}

struct gate_load *gate_load_new(const struct gate_plan *plan, char ret_text[GATE_TEXT_BYTES])
{
	struct gate_load *new = calloc(1, sizeof(*new));
	int r;

	if (!new) {
		snprintf(ret_text, GATE_TEXT_BYTES, "out of memory");
		return NULL;
	}
	libbpf_set_print(quiet);
	new->plan = plan;
	r = load(new);
	if (!r)
		return new;
	explain(r, ret_text);
	return gate_load_free(new);
}

bool gate_load_attach(struct gate_load *load, char ret_text[GATE_TEXT_BYTES])
{
	struct bpf_link *link = bpf_program__attach_cgroup(load->skeleton->progs.device_gate,
							   load->plan->cgroup_fd);
	char name[GATE_PINS], path[PIN_BYTES];
	int r;

	if (!link) {
		snprintf(ret_text, GATE_TEXT_BYTES, "cannot attach the program to the cgroup: %s%s",
			 strerror(errno),
			 errno == EPERM ? " (a program attached there permits no other one)" : "");
		return false;
	}
	snprintf(name, sizeof(name), "%llu", load->plan->record.cgroup);
	pin_path(load->plan, name, path);
	r = bpf_link__pin(link, path);
	if (r)
		snprintf(ret_text, GATE_TEXT_BYTES, "cannot keep the program there: %s",
			 strerror(-r));
	/* A link that is not pinned is detached with its last descriptor. */
	bpf_link__destroy(link);
	return r == 0;
}

struct gate_load *gate_load_free(struct gate_load *load)
{
	if (!load)
		return NULL;
	device_gate_bpf__destroy(load->skeleton);
	free(load);
	return NULL;
}
