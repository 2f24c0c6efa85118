/* SPDX-License-Identifier: MIT */
/*
 * brokerctl gate: closes GPUs to programs in a cgroup that have no lease, and opens them again
 *
 * Root closes gates, not the broker: attaching a program to a cgroup needs more rights than the
 * broker has. The gate's file system is mounted complete. The broker then sees it and enters the
 * holders of its leases. The gate is closed only after that, so holders of leases are not
 * interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "broker/util/cgroup.h"
#include "broker/util/gate-path.h"
#include "broker/util/pinned-map.h"
#include "command.h"
#include "gate.h"
#include "output.h"
#include "util/clock.h"
#include "util/plural.h"

enum {
	DRM_MAJOR = 226,
	NVIDIA_MAJOR = 195,
	ALL_MINORS = 0xfffff,
	LOCK_TRIES = 100,
	BROKER_TRIES = 40
};

static const struct timespec pause_time = {.tv_nsec = 50000000};

/* --- The folder --- */

/*
 * Open and lock the folder. Only root can open it, so only root can hold the lock. Another process
 * may remove the folder before it is locked; creation is then repeated.
 */
static int open_folder(const char *path, bool makes)
{
	struct stat here, there;
	int fd;

	for (unsigned int i = 0; i < LOCK_TRIES; i++) {
		if (makes && mkdir(path, 0700) && errno != EEXIST)
			return -errno;
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && !(makes && errno == ENOENT))
			return -errno;
		if (fd < 0)
			continue;
		/* The folder may have been mounted over or unmounted in the meantime. */
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &here) == 0 &&
		    stat(path, &there) == 0 && here.st_dev == there.st_dev &&
		    here.st_ino == there.st_ino)
			return fd;
		close(fd);
		nanosleep(&pause_time, NULL);
	}
	return -EBUSY;
}

/*
 * Create a BPF file system that is not mounted yet.
 * Return: the descriptor of the mount, or -errno.
 */
static int make_mount(void)
{
	int context = (int)syscall(SYS_fsopen, "bpf", FSOPEN_CLOEXEC), fd = -1, error;

	if (context < 0)
		return -errno;
	/* Names of pinned objects are public: they show only which cgroups are behind a gate. */
	if (syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "source", "ringbroker", 0) == 0 &&
	    syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "mode", "0751", 0) == 0 &&
	    syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		fd = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC,
				  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	error = errno;
	close(context);
	return fd < 0 ? -error : fd;
}

/*
 * Create the file system and lock it before it is visible: a process that opens the folder after
 * the mount waits like one that opened it before.
 * Return: the descriptor of its root, with the mount's in *@ret_mount; or -errno.
 */
static int make_file_system(gid_t gid, int *ret_mount)
{
	int mount = make_mount(), fd, r;

	if (mount < 0)
		return mount;
	fd = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && fchown(fd, 0, gid) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
		*ret_mount = mount;
		return fd;
	}
	r = -errno;
	if (fd >= 0)
		close(fd);
	close(mount);
	return r;
}

static bool is_pinned(int fd, uint64_t cgroup)
{
	char name[GATE_PINS];

	snprintf(name, sizeof(name), "%llu", (unsigned long long)cgroup);
	return faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* --- What is to be closed --- */

static int find_user(const struct arguments *arguments, const struct control *control,
		     struct gate_plan *plan)
{
	const struct group *group = control_admin_group(control);
	const char *name = arguments->values[OPT_USER];
	char path[PATH_MAX], *slash;
	struct stat status;

	gate_folder(control, path);
	slash = strrchr(path, '/');
	if (slash)
		*slash = '\0';
	if (name) {
		const struct passwd *user = getpwnam(name);

		if (!user)
			return control_misuse(arguments, "there is no user %s", text_name(name));
		plan->uid = user->pw_uid;
		plan->gid = user->pw_gid;
	} else if (stat(slash ? path : ".", &status) == 0) {
		plan->uid = status.st_uid;
		plan->gid = status.st_gid;
	} else {
		return control_fail(EXIT_FAILED,
				    "%s: %s: a gate lies in the folder of the broker's socket",
				    text_name(path), strerror(errno));
	}
	if (group)
		plan->gid = group->gr_gid;
	return EXIT_OK;
}

static int find_cgroup(const struct arguments *arguments, struct gate_plan *plan)
{
	const char *path = arguments->values[OPT_CGROUP];
	char root[PATH_MAX / 2], whole[PATH_MAX], real[PATH_MAX];
	struct cgroup_about about;
	size_t n;

	if (!path)
		return control_misuse(arguments, "--cgroup is missing: name the cgroup to gate, "
						 "such as --cgroup=/user.slice");
	if (!cgroup_find_root(root, sizeof(root)))
		return control_fail(EXIT_FAILED, "there are no cgroups of version 2");
	n = strlen(root);
	if (strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0'))
		path += n;
	snprintf(whole, sizeof(whole), "%s/%s", root, path);
	/* Canonical path, without dots and repeated slashes, as it is printed and compared. */
	if (realpath(whole, real))
		plan->cgroup_fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (plan->cgroup_fd < 0)
		return control_fail(EXIT_FAILED, "there is no cgroup %s: %s", text_name(whole),
				    strerror(errno));
	if (strncmp(real, root, n) != 0 || !cgroup_of_fd(plan->cgroup_fd, &about))
		return control_fail(EXIT_FAILED, "%s is no cgroup", text_name(whole));
	plan->record.cgroup = about.id;
	n = (size_t)snprintf(plan->record.path, sizeof(plan->record.path), "%s",
			     real[n] ? real + n : "/");
	if (n >= sizeof(plan->record.path))
		return control_fail(EXIT_FAILED, "the cgroup's path is too long");
	return EXIT_OK;
}

static bool add_range(struct device_gate_record *record, unsigned int major, unsigned int first,
		      unsigned int last)
{
	for (unsigned int i = 0; i < record->n_ranges; i++)
		if (record->ranges[i].major == major && record->ranges[i].first_minor <= first &&
		    last <= record->ranges[i].last_minor)
			return true;
	if (record->n_ranges == DEVICE_GATE_MAX_RANGES)
		return false;
	record->ranges[record->n_ranges++] = (struct device_gate_range){major, first, last};
	return true;
}

/*
 * Add the ranges of all GPU drivers. Some drivers have a major number only while they are loaded.
 */
static void add_all(struct device_gate_record *record)
{
	FILE *file = fopen("/proc/devices", "re");
	char line[128], name[64];
	unsigned int major;

	add_range(record, DRM_MAJOR, 0, ALL_MINORS);
	add_range(record, NVIDIA_MAJOR, 0, ALL_MINORS);
	while (file && fgets(line, sizeof(line), file) && strncmp(line, "Block", 5) != 0)
		if (sscanf(line, "%u %63s", &major, name) == 2 &&
		    (strcmp(name, "drm") == 0 || strcmp(name, "kfd") == 0 ||
		     strncmp(name, "nvidia", 6) == 0))
			add_range(record, major, 0, ALL_MINORS);
	if (file)
		fclose(file);
}

static int find_nodes(const struct arguments *arguments, struct device_gate_record *record)
{
	const char *list = arguments->values[OPT_NODES];
	char path[PATH_MAX];
	struct stat status;
	size_t n;

	if (!list) {
		add_all(record);
		return EXIT_OK;
	}
	for (;; list += n + 1) {
		n = strcspn(list, ",");
		snprintf(path, sizeof(path), "%.*s", (int)n, list);
		if (stat(path, &status) || !S_ISCHR(status.st_mode))
			return control_misuse(arguments, "%s is no device node", text_name(path));
		if (!add_range(record, major(status.st_rdev), minor(status.st_rdev),
			       minor(status.st_rdev)))
			return control_misuse(arguments, "--nodes takes %d files at most",
					      DEVICE_GATE_MAX_RANGES);
		if (!list[n])
			return EXIT_OK;
	}
}

/* --- Removing one --- */

static int detach(const char *path)
{
	union bpf_attr attr = {.pathname = (uint64_t)(uintptr_t)path};
	int fd = (int)syscall(SYS_bpf, BPF_OBJ_GET, &attr, sizeof(attr)), r;

	if (fd < 0)
		return -errno;
	attr = (union bpf_attr){.link_detach = {.link_fd = (uint32_t)fd}};
	/*
	 * Detach at once, even if other descriptors of the link remain. ENOLINK: the cgroup is
	 * gone, and the link with it.
	 */
	r = syscall(SYS_bpf, BPF_LINK_DETACH, &attr, sizeof(attr)) < 0 && errno != ENOLINK ? -errno
											   : 0;
	close(fd);
	return r;
}

/* Return: 0, or a negative errno if the gate is still closed. */
static int remove_gate(const char *folder, uint64_t cgroup)
{
	char path[PATH_MAX + GATE_PINS];
	int r;

	snprintf(path, sizeof(path), "%s/%llu", folder, (unsigned long long)cgroup);
	r = detach(path);
	if (!r && unlink(path))
		r = -errno;
	if (r)
		return r;
	snprintf(path, sizeof(path), "%s/%llu" GATE_RECORD, folder, (unsigned long long)cgroup);
	unlink(path);
	return 0;
}

/* Remove gates whose cgroups no longer exist. */
static void remove_gone(const struct control *control)
{
	struct gate_views *views = malloc(sizeof(*views));

	if (!views)
		return;
	gate_views_read(control, views);
	for (unsigned int i = 0; i < views->n; i++)
		if (views->gates[i].is_gone)
			remove_gate(views->folder, views->gates[i].cgroup);
	free(views);
}

/* --- on --- */

/* Wait until the broker, if there is one, has admitted all holders of leases. */
static void await_broker(const struct control *control)
{
	struct gate_views *views = malloc(sizeof(*views));
	char path[PATH_MAX];
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = path,
		.name = "brokerctl",
		.timeout_ns = 1000000000,
	};
	struct rbk *rbk;

	control_socket_path(control, path, sizeof(path));
	if (views && rbk_connect(&options, &rbk, NULL) == 0) {
		rbk_disconnect(rbk);
		for (unsigned int i = 0; i < BROKER_TRIES; i++) {
			gate_views_read(control, views);
			if (views->broker)
				break;
			nanosleep(&pause_time, NULL);
		}
		if (!views->broker)
			control_fail(0, "the broker has not seen the gate: its log says why");
	}
	free(views);
}

static const char *ranges_text(const struct device_gate_record *record)
{
	static char text[16 * 32];
	size_t n = 0;

	for (unsigned int i = 0; i < record->n_ranges && n < sizeof(text); i++) {
		const struct device_gate_range *range = &record->ranges[i];

		n += (size_t)snprintf(text + n, sizeof(text) - n,
				      range->first_minor == range->last_minor ? "%s%u:%u"
									      : "%s%u:*",
				      i ? " " : "", range->major, range->first_minor);
	}
	return text;
}

/*
 * @mount: mount to attach at @folder; -1: already mounted.
 * Return: false on failure, with the reason in @ret_text.
 */
static bool load_and_close(const struct control *control, const struct gate_plan *plan, int mount,
			   const char *folder, char ret_text[GATE_TEXT_BYTES])
{
	struct gate_load *load = gate_load_new(plan, ret_text);
	bool is_closed = false;

	if (!load)
		return false;
	if (mount >= 0 &&
	    syscall(SYS_move_mount, mount, "", AT_FDCWD, folder, MOVE_MOUNT_F_EMPTY_PATH)) {
		snprintf(ret_text, GATE_TEXT_BYTES, "cannot mount it at %.300s: %s", folder,
			 strerror(errno));
	} else {
		await_broker(control);
		is_closed = gate_load_attach(load, ret_text);
		if (!is_closed && mount >= 0)
			umount2(folder, MNT_DETACH | UMOUNT_NOFOLLOW);
	}
	gate_load_free(load);
	return is_closed;
}

static int close_gate(const struct control *control, struct gate_plan *plan, const char *folder)
{
	char text[GATE_TEXT_BYTES];
	int mount = -1, locked = plan->folder_fd, status = EXIT_OK;

	if (!pinned_map_is_folder(folder)) {
		plan->folder_fd = make_file_system(plan->gid, &mount);
		if (plan->folder_fd < 0)
			return control_fail(EXIT_FAILED, "cannot make a file system of BPF's: %s",
					    strerror(-plan->folder_fd));
	}
	if (!load_and_close(control, plan, mount, folder, text))
		status = control_fail(EXIT_FAILED, "%s", text);
	if (mount >= 0) {
		close(plan->folder_fd);
		close(mount);
	}
	plan->folder_fd = locked;
	return status;
}

static int turn_on(const struct control *control, const struct arguments *arguments)
{
	struct gate_plan plan = {.folder_fd = -1, .cgroup_fd = -1};
	char folder[PATH_MAX];
	int status, fd;

	gate_folder(control, folder);
	plan.record.closed_ns = clock_read_ns(CLOCK_REALTIME);
	status = find_cgroup(arguments, &plan);
	if (!status)
		status = find_nodes(arguments, &plan.record);
	if (!status)
		status = find_user(arguments, control, &plan);
	if (status)
		goto out;
	plan.folder_fd = fd = open_folder(folder, true);
	if (fd < 0) {
		status = control_fail(EXIT_FAILED, "cannot use the folder %s: %s", folder,
				      strerror(-fd));
		goto out;
	}
	remove_gone(control);
	if (pinned_map_is_folder(folder) && is_pinned(fd, plan.record.cgroup))
		printf("%s is behind a gate already\n", text_name(plan.record.path));
	else
		status = close_gate(control, &plan, folder);
	if (!status)
		printf("programs in %s open GPUs (%s) only with a lease\n",
		       text_name(plan.record.path), ranges_text(&plan.record));
	else
		rmdir(folder); /* fails if a file system is mounted there */
	close(fd);
out:
	if (plan.cgroup_fd >= 0)
		close(plan.cgroup_fd);
	return status;
}

/* --- off --- */

static int open_gate(const struct gate_views *views, const struct gate_view *gate)
{
	int r = remove_gate(views->folder, gate->cgroup);

	if (r)
		return control_fail(EXIT_FAILED, "cannot open the gate of %s: %s", gate_name(gate),
				    strerror(-r));
	printf("programs in %s open GPUs with or without a lease\n", gate_name(gate));
	return EXIT_OK;
}

/*
 * Return true if @path, the value of --cgroup, names the gate's cgroup, even if that no longer
 * exists.
 */
static bool is_named(const struct gate_view *gate, const char *path)
{
	char root[PATH_MAX / 2];
	size_t n = cgroup_find_root(root, sizeof(root)) ? strlen(root) : 0;

	if (!path)
		return true;
	if (n && strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0'))
		path += n;
	path += strspn(path, "/");
	n = strlen(path);
	while (n > 0 && path[n - 1] == '/')
		n--;
	return gate->is_known && strncmp(gate->record.path + 1, path, n) == 0 &&
	       gate->record.path[n + 1] == '\0';
}

static int turn_off(const struct control *control, const struct arguments *arguments)
{
	struct gate_views *views = malloc(sizeof(*views));
	const char *wanted = arguments->values[OPT_CGROUP];
	unsigned int n = 0;
	int status = EXIT_OK, fd = -1;

	if (!views)
		return control_fail(EXIT_FAILED, "out of memory");
	gate_views_read(control, views);
	if (views->is_there)
		fd = open_folder(views->folder, false);
	/* Without the lock another brokerctl may be half-way through closing a gate. */
	if (fd < 0 && views->is_there && fd != -ENOENT) {
		status = control_fail(EXIT_FAILED, "cannot use the folder %s: %s", views->folder,
				      strerror(-fd));
		free(views);
		return status;
	}
	gate_views_read(control, views);
	for (unsigned int i = 0; i < views->n; i++) {
		if (!is_named(&views->gates[i], wanted))
			continue;
		n++;
		if (open_gate(views, &views->gates[i]))
			status = EXIT_FAILED;
	}
	if (n == 0 && wanted)
		status = control_fail(EXIT_FAILED, "there is no gate of %s", text_name(wanted));
	else if (n == 0)
		printf("there is no gate\n");
	/* Unmount the file system with the last gate. A folder that remains is reused. */
	if (fd >= 0 && !status && n == views->n) {
		if (umount2(views->folder, MNT_DETACH | UMOUNT_NOFOLLOW))
			status = control_fail(EXIT_FAILED, "cannot unmount %s: %s", views->folder,
					      strerror(errno));
		rmdir(views->folder);
	}
	if (fd >= 0)
		close(fd);
	free(views);
	return status;
}

/* --- status --- */

static void print_gate(const struct gate_view *gate)
{
	const struct device_gate_refusal *refusals[DEVICE_GATE_REFUSALS];
	const struct device_gate_record *record = &gate->record;
	time_t closed = (time_t)(record->closed_ns / 1000000000u);
	char when[64] = "";

	strftime(when, sizeof(when), "%F %T", localtime(&closed));
	if (gate->is_gone)
		printf("gate     %s: gone with its cgroup; nothing is closed\n", gate_name(gate));
	else
		printf("gate     %s: closed to programs without a lease since %s\n",
		       gate_name(gate), when);
	printf("  devices   %s\n", ranges_text(record));
	printf("  opens     %llu with a lease, %llu refused\n", record->n_passed,
	       record->n_refused);
	for (unsigned int i = 0, n = gate_refusals(record, refusals); i < n; i++)
		printf("  refused   %s\n", gate_refusal_text(refusals[i]));
}

static void print_views(const struct gate_views *views)
{
	for (unsigned int i = 0; i < views->n; i++) {
		if (views->gates[i].is_known)
			print_gate(&views->gates[i]);
		else
			printf("gate     %s: closed; this user may not see its counters\n",
			       gate_name(&views->gates[i]));
	}
	if (views->n == 0)
		printf("there is no gate: programs open GPUs with or without a lease\n");
	else if (views->knows_holders && views->broker)
		printf("broker   process %d; %u lease%s may pass\n", (int)views->broker,
		       views->n_holders, plural(views->n_holders));
	else if (views->knows_holders)
		printf("broker   none admits new leases; %u lease%s of an ended broker may pass\n",
		       views->n_holders, plural(views->n_holders));
}

static void print_json(const struct gate_views *views)
{
	json_begin();
	json_string("type", "gates");
	json_string("folder", views->folder);
	json_optional("broker_pid", views->broker ? (uint64_t)views->broker : UINT64_MAX);
	json_optional("leases", views->knows_holders ? views->n_holders : UINT64_MAX);
	json_end();
	for (unsigned int i = 0; i < views->n; i++) {
		const struct device_gate_refusal *refusals[DEVICE_GATE_REFUSALS];
		const struct device_gate_record *record = &views->gates[i].record;
		unsigned int n = gate_refusals(record, refusals);
		bool is_known = views->gates[i].is_known;

		json_begin();
		json_string("type", "gate");
		json_unsigned("cgroup_id", views->gates[i].cgroup);
		json_string("cgroup", is_known ? record->path : "");
		json_boolean("gone", views->gates[i].is_gone);
		json_optional("closed_ns", is_known ? record->closed_ns : UINT64_MAX);
		json_optional("passed", is_known ? record->n_passed : UINT64_MAX);
		json_optional("refused", is_known ? record->n_refused : UINT64_MAX);
		json_string("devices", ranges_text(record));
		json_array("refusals");
		for (unsigned int k = 0; k < n; k++) {
			char comm[DEVICE_GATE_COMM_BYTES + 1];

			snprintf(comm, sizeof(comm), "%.*s", DEVICE_GATE_COMM_BYTES,
				 refusals[k]->comm);
			json_item();
			json_unsigned("number", refusals[k]->number);
			json_unsigned("at_boot_ns", refusals[k]->at_ns);
			json_unsigned("pid", refusals[k]->pid);
			json_unsigned("uid", refusals[k]->uid);
			json_string("comm", comm);
			json_unsigned("major", refusals[k]->major);
			json_unsigned("minor", refusals[k]->minor);
			json_object_end();
		}
		json_array_end();
		json_end();
	}
}

static int show(const struct control *control, bool is_json)
{
	struct gate_views *views = malloc(sizeof(*views));
	int status = EXIT_OK;

	if (!views)
		return control_fail(EXIT_FAILED, "out of memory");
	gate_views_read(control, views);
	if (views->is_there && !views->may_look)
		status = control_fail(EXIT_NOT_PERMITTED,
				      "there is a gate; only root and %s may see its state",
				      control_who_may(control));
	else if (is_json)
		print_json(views);
	else
		print_views(views);
	free(views);
	return status;
}

/* --- All of it --- */

static bool has_privilege(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	static const int needed[] = {CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_CHOWN};

	if (syscall(SYS_capget, &header, data) < 0)
		return geteuid() == 0;
	for (unsigned int i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!(data[CAP_TO_INDEX(needed[i])].effective & CAP_TO_MASK(needed[i])))
			return false;
	return true;
}

int run_gate(struct control *control, const struct arguments *arguments)
{
	static const char *const words[] = {"on", "off", "status", NULL};
	const char *what = arguments->operands[0];
	bool is_on = strcmp(what, "on") == 0;

	if (!is_on && strcmp(what, "off") != 0 && strcmp(what, "status") != 0)
		return control_wrong_word(arguments, what, words);
	if (strcmp(what, "status") == 0)
		return show(control, arguments->values[OPT_JSON]);
	if (!has_privilege())
		return control_fail(EXIT_NOT_PERMITTED,
				    "only root may turn a gate %s (it needs CAP_BPF, CAP_NET_ADMIN "
				    "and CAP_SYS_ADMIN)",
				    what);
	return is_on ? turn_on(control, arguments) : turn_off(control, arguments);
}
