/* SPDX-License-Identifier: MIT */
/*
 * Checks of this machine: kernel, devices and the broker's rights
 *
 * The rights and limits of the service are those of the running broker's process; without one they
 * are not known. The devices and memory paths in use are those that the running broker reports:
 * what is installed matters only if no broker runs, or if the running one lacks something. A remedy
 * is proposed only for what this machine has: no driver without a GPU, no unit that is not
 * installed.
 */
#include "doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ringbroker/stats.h>

#include "monitor/text.h"
#include "shm/stats-names.h"
#include "util/plural.h"

#define BROKER_UNIT "brokerd.service"

enum { PATH_BYTES = 512, TEXT_BYTES = 4096 };

const char *health_name(enum health health)
{
	static const char *const names[] = {
		[HEALTH_OK] = "ok",
		[HEALTH_WARN] = "warn",
		[HEALTH_FAIL] = "fail",
		[HEALTH_SKIP] = "skip",
	};

	return names[health];
}

void finding_set(struct finding *finding, enum health health, const char *mend, const char *format,
		 ...)
{
	va_list args;

	finding->health = health;
	snprintf(finding->mend, sizeof(finding->mend), "%s", mend);
	va_start(args, format);
	vsnprintf(finding->text, sizeof(finding->text), format, args);
	va_end(args);
}

/* --- Files --- */

__attribute__((format(printf, 3, 4))) static void path_of(const struct doctor *doctor,
							  char path[PATH_BYTES], const char *format,
							  ...)
{
	int n = snprintf(path, PATH_BYTES, "%s", doctor->root);
	va_list args;

	va_start(args, format);
	vsnprintf(path + n, PATH_BYTES - (size_t)n, format, args);
	va_end(args);
}

/*
 * Read the beginning of a file into @text, NUL-terminated.
 * Return: 0, or a negative errno.
 */
static int read_file(const char *path, char text[TEXT_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	int r;

	text[0] = '\0';
	if (fd < 0)
		return -errno;
	n = read(fd, text, TEXT_BYTES - 1);
	r = n < 0 ? -errno : 0;
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return r;
}

static int read_below(const struct doctor *doctor, const char *name, char text[TEXT_BYTES])
{
	char path[PATH_BYTES];

	path_of(doctor, path, "%s", name);
	return read_file(path, text);
}

/* Return: the number in the file, or -1 if there is none. */
static long long read_number(const struct doctor *doctor, const char *name)
{
	char text[TEXT_BYTES], *end;
	long long value;

	if (read_below(doctor, name, text))
		return -1;
	value = strtoll(text, &end, 10);
	return end == text ? -1 : value;
}

/*
 * Read a file of the running broker's folder in /proc.
 * Return: as read_file().
 */
static int read_broker(const struct doctor *doctor, const char *name, char text[TEXT_BYTES])
{
	char path[PATH_BYTES];

	if (doctor->pid == 0)
		return -ESRCH;
	path_of(doctor, path, "/proc/%d/%s", (int)doctor->pid, name);
	return read_file(path, text);
}

/* Return true if @text, words separated by white space, contains @word. */
static bool has_word(const char *text, const char *word)
{
	const size_t n = strlen(word);

	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
		if ((at == text || strchr(" \t\n", at[-1])) &&
		    (at[n] == '\0' || strchr(" \t\n", at[n])))
			return true;
	return false;
}

static void skip_unknown(struct finding *finding)
{
	finding_set(finding, HEALTH_SKIP, "",
		    "not known: no broker answers, or this user may not see it");
}

bool doctor_has_unit(const struct doctor *doctor, const char *name)
{
	static const char *const folders[] = {"/etc", "/usr/local/lib", "/lib", "/usr/lib"};
	char path[PATH_BYTES];

	for (unsigned int i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		path_of(doctor, path, "%s/systemd/system/%s", folders[i], name);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

bool doctor_is_service(const struct doctor *doctor)
{
	char text[TEXT_BYTES];

	return read_broker(doctor, "cgroup", text) == 0 && strstr(text, "/" BROKER_UNIT "\n");
}

/* Report a limit of the broker: @setting repairs it in the unit, @by_hand in a shell. */
__attribute__((format(printf, 5, 6))) static void warn_service(const struct doctor *doctor,
							       struct finding *finding,
							       const char *setting,
							       const char *by_hand,
							       const char *format, ...)
{
	char text[FINDING_BYTES], mend[FINDING_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (doctor_is_service(doctor))
		snprintf(mend, sizeof(mend), "systemctl edit " BROKER_UNIT ", and add [Service] %s",
			 setting);
	else
		snprintf(mend, sizeof(mend), "%s", by_hand);
	finding_set(finding, HEALTH_WARN, mend, "%s", text);
}

/* --- The kernel --- */

static void check_io_uring(const struct doctor *doctor, struct finding *finding)
{
	struct io_uring_params params = {.flags = 0};
	int fd = (int)syscall(__NR_io_uring_setup, 1, &params), error = errno;
	long long disabled = read_number(doctor, "/proc/sys/kernel/io_uring_disabled");

	if (fd >= 0) {
		close(fd);
		finding_set(finding, HEALTH_OK, "", "the kernel has it");
	} else if (error == ENOSYS) {
		finding_set(finding, HEALTH_FAIL, "apt-get install linux-image-amd64",
			    "the kernel has none");
	} else if (disabled > 0) {
		finding_set(finding, HEALTH_FAIL, "sysctl -w kernel.io_uring_disabled=0",
			    "kernel.io_uring_disabled is %lld", disabled);
	} else {
		finding_set(finding, HEALTH_FAIL,
			    "allow io_uring_setup in the seccomp profile of this container",
			    "this process may not use it: %s", strerror(error));
	}
}

static void check_btf(const struct doctor *doctor, struct finding *finding)
{
	char path[PATH_BYTES];

	path_of(doctor, path, "/sys/kernel/btf/vmlinux");
	if (access(path, F_OK) == 0)
		finding_set(finding, HEALTH_OK, "", "the kernel describes its types");
	else
		finding_set(finding, HEALTH_WARN,
			    "boot a kernel with CONFIG_DEBUG_INFO_BTF (Debian's have it)",
			    "%s is missing", path);
}

static void check_psi(const struct doctor *doctor, struct finding *finding)
{
	char text[TEXT_BYTES];

	if (read_below(doctor, "/proc/pressure/cpu", text) == 0)
		finding_set(finding, HEALTH_OK, "", "/proc/pressure is there");
	else if (doctor->has_probes)
		finding_set(finding, HEALTH_SKIP, "", "not needed: the broker has its probes");
	else
		finding_set(finding, HEALTH_WARN, "boot with psi=1 on the kernel's command line",
			    "/proc/pressure is missing");
}

static void check_sysctl_bpf(const struct doctor *doctor, struct finding *finding)
{
	long long unprivileged = read_number(doctor, "/proc/sys/kernel/unprivileged_bpf_disabled");
	long long paranoid = read_number(doctor, "/proc/sys/kernel/perf_event_paranoid");

	if (unprivileged == 0)
		finding_set(finding, HEALTH_WARN, "sysctl -w kernel.unprivileged_bpf_disabled=2",
			    "kernel.unprivileged_bpf_disabled is 0: every user may load BPF "
			    "programs; the broker does not need that");
	else if (unprivileged < 0)
		finding_set(finding, HEALTH_SKIP, "", "the kernel does not say");
	else
		finding_set(finding, HEALTH_OK, "",
			    "unprivileged_bpf_disabled %lld, perf_event_paranoid %lld: the service "
			    "needs its capabilities",
			    unprivileged, paranoid);
}

static void check_cgroup(const struct doctor *doctor, struct finding *finding)
{
	char controllers[TEXT_BYTES], text[TEXT_BYTES], path[PATH_BYTES], *cgroup;

	if (read_below(doctor, "/sys/fs/cgroup/cgroup.controllers", controllers)) {
		finding_set(finding, HEALTH_WARN,
			    "boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command "
			    "line",
			    "cgroup v2 is not mounted at /sys/fs/cgroup");
		return;
	}
	if (!has_word(controllers, "cpu")) {
		finding_set(finding, HEALTH_WARN,
			    "echo +cpu > /sys/fs/cgroup/cgroup.subtree_control",
			    "cgroup v2 is there, but without the cpu controller");
		return;
	}
	if (read_broker(doctor, "cgroup", text) || !(cgroup = strstr(text, "0::/"))) {
		finding_set(finding, HEALTH_OK, "", "cgroup v2 with the cpu controller");
		return;
	}
	cgroup += strlen("0::");
	cgroup[strcspn(cgroup, "\n")] = '\0';
	path_of(doctor, path, "/sys/fs/cgroup%s/cgroup.controllers", cgroup);
	if (read_file(path, controllers) == 0 && !has_word(controllers, "cpu"))
		warn_service(doctor, finding, "Delegate=cpu",
			     "systemd-run --user --property=Delegate=cpu brokerd",
			     "the broker's cgroup %s has no cpu controller", cgroup);
	else
		finding_set(finding, HEALTH_OK, "", "cgroup v2; the broker is in %s", cgroup);
}

/* --- Devices --- */

/*
 * Counts of render nodes: all, with driver amdgpu, with NVIDIA's own driver; and the first node
 * that this user cannot open.
 */
struct nodes {
	unsigned int n, n_amdgpu, n_nvidia;
	char denied[64];
};

static void look_at_node(const struct doctor *doctor, const char *name, struct nodes *nodes)
{
	char path[PATH_BYTES], link[PATH_BYTES];
	const char *driver;
	ssize_t n;

	nodes->n++;
	path_of(doctor, path, "/sys/class/drm/%s/device/driver", name);
	n = readlink(path, link, sizeof(link) - 1);
	link[n > 0 ? n : 0] = '\0';
	driver = strrchr(link, '/') ? strrchr(link, '/') + 1 : link;
	nodes->n_amdgpu += strcmp(driver, "amdgpu") == 0;
	nodes->n_nvidia += strcmp(driver, "nvidia") == 0;
	path_of(doctor, path, "/dev/dri/%s", name);
	if (access(path, R_OK | W_OK) && !nodes->denied[0])
		snprintf(nodes->denied, sizeof(nodes->denied), "/dev/dri/%.40s", name);
}

static struct nodes look_at_nodes(const struct doctor *doctor)
{
	struct nodes nodes = {.n = 0};
	struct dirent *entry;
	char path[PATH_BYTES];
	DIR *folder;

	path_of(doctor, path, "/dev/dri");
	folder = opendir(path);
	while (folder && (entry = readdir(folder)))
		if (strncmp(entry->d_name, "renderD", 7) == 0)
			look_at_node(doctor, entry->d_name, &nodes);
	if (folder)
		closedir(folder);
	return nodes;
}

/* Return true if NVIDIA's own driver is loaded. */
static bool has_nvidia(const struct doctor *doctor)
{
	char path[PATH_BYTES];

	path_of(doctor, path, "/proc/driver/nvidia/version");
	return access(path, F_OK) == 0;
}

/*
 * GPU vendors by PCI vendor number, with the command that provides a render node, and the package
 * with the Vulkan driver.
 */
static const struct vendor {
	const char *number;
	const char *name;
	const char *mend;
	const char *package;
} vendors[] = {
	{"0x1002", "AMD", "apt-get install firmware-amd-graphics, then modprobe amdgpu",
	 "mesa-vulkan-drivers"},
	{"0x8086", "Intel", "modprobe i915", "mesa-vulkan-drivers"},
	{"0x10de", "NVIDIA", "apt-get install nvidia-driver, then boot again", "nvidia-vulkan-icd"},
	{NULL, NULL, NULL, NULL},
};

/*
 * Find a display controller of a known vendor, the earliest in the order of the table.
 * Return: NULL if there is none.
 */
static const struct vendor *find_gpu(const struct doctor *doctor)
{
	const struct vendor *best = NULL;
	char path[PATH_BYTES], name[PATH_BYTES], class[TEXT_BYTES], number[TEXT_BYTES];
	struct dirent *entry;
	DIR *folder;

	path_of(doctor, path, "/sys/bus/pci/devices");
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		snprintf(name, sizeof(name), "/sys/bus/pci/devices/%.64s/class", entry->d_name);
		if (read_below(doctor, name, class) || strncmp(class, "0x03", 4) != 0)
			continue;
		snprintf(name, sizeof(name), "/sys/bus/pci/devices/%.64s/vendor", entry->d_name);
		if (read_below(doctor, name, number))
			continue;
		for (const struct vendor *vendor = vendors; vendor->name; vendor++)
			if (strncmp(vendor->number, number, 6) == 0 && (!best || vendor < best))
				best = vendor;
	}
	if (folder)
		closedir(folder);
	return best;
}

/* Return true if this machine has a GPU that a program could use. */
static bool is_gpu_here(const struct doctor *doctor)
{
	return doctor->has_gpu || has_nvidia(doctor) || find_gpu(doctor) ||
	       look_at_nodes(doctor).n > 0;
}

/* The manifests of Vulkan drivers: those of GPUs, and those that compute on the processor. */
struct drivers {
	unsigned int n, n_software;
};

static void count_drivers(const struct doctor *doctor, const char *name, struct drivers *drivers)
{
	static const char suffix[] = ".json";
	struct dirent *entry;
	char path[PATH_BYTES];
	DIR *folder;

	path_of(doctor, path, "%s", name);
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		const size_t n = strlen(entry->d_name), n_suffix = sizeof(suffix) - 1;

		if (n < n_suffix || strcmp(entry->d_name + n - n_suffix, suffix) != 0)
			continue;
		if (strstr(entry->d_name, "lvp") || strstr(entry->d_name, "swiftshader"))
			drivers->n_software++;
		else
			drivers->n++;
	}
	if (folder)
		closedir(folder);
}

static struct drivers find_drivers(const struct doctor *doctor)
{
	struct drivers drivers = {.n = 0};

	count_drivers(doctor, "/usr/local/share/vulkan/icd.d", &drivers);
	count_drivers(doctor, "/usr/share/vulkan/icd.d", &drivers);
	count_drivers(doctor, "/etc/vulkan/icd.d", &drivers);
	return drivers;
}

/* Report that nothing is missing, because the broker uses a device already. */
static void say_used(const struct doctor *doctor, struct finding *finding)
{
	const char *name = doctor->gpu[0] ? text_name(doctor->gpu) : "a device";

	if (doctor->has_gpu)
		finding_set(finding, HEALTH_OK, "", "the broker uses %s", name);
	else
		finding_set(finding, HEALTH_OK, "",
			    "the broker uses %s, a software device that runs on the processor",
			    name);
}

static void check_vulkan(const struct doctor *doctor, struct finding *finding)
{
	const struct drivers drivers = find_drivers(doctor);
	const struct vendor *gpu = find_gpu(doctor);
	char mend[FINDING_BYTES];
	void *library;

	if (doctor->has_gpu || doctor->has_software_gpu) {
		say_used(doctor, finding);
		return;
	}
	if (!is_gpu_here(doctor)) {
		finding_set(finding, HEALTH_SKIP, "", "not needed: there is no GPU here");
		return;
	}
	if (!gpu && has_nvidia(doctor))
		gpu = &vendors[2];
	library = dlopen("libvulkan.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (!library || drivers.n == 0)
		snprintf(mend, sizeof(mend), "apt-get install %s%s", library ? "" : "libvulkan1 ",
			 gpu ? gpu->package : "mesa-vulkan-drivers");
	if (library)
		dlclose(library);
	if (!library)
		finding_set(finding, HEALTH_WARN, mend, "there is no libvulkan.so.1");
	else if (drivers.n == 0)
		finding_set(finding, HEALTH_WARN, mend, "no Vulkan driver of a GPU is installed%s",
			    drivers.n_software ? ", only one that runs on the processor" : "");
	else if (doctor->has_devices)
		finding_set(
			finding, HEALTH_WARN,
			"vulkaninfo --summary, of package vulkan-tools, lists what Vulkan finds",
			"%u Vulkan driver%s of GPUs %s installed, but the broker has no GPU "
			"(as --gpu=none asks for)",
			drivers.n, plural(drivers.n), drivers.n == 1 ? "is" : "are");
	else
		finding_set(finding, HEALTH_OK, "", "%u Vulkan driver%s of GPUs %s installed",
			    drivers.n, plural(drivers.n), drivers.n == 1 ? "is" : "are");
}

/*
 * Return the user whose rights to device files matter: of the running broker, or this one.
 * @ret_own: it is this user, whose rights access() shows.
 */
static const char *device_user(const struct doctor *doctor, bool *ret_own)
{
	const struct passwd *passwd;
	uid_t uid = getuid();
	char path[PATH_BYTES];
	struct stat status;

	path_of(doctor, path, "/proc/%d", (int)doctor->pid);
	if (doctor->pid && stat(path, &status) == 0)
		uid = status.st_uid;
	*ret_own = uid == getuid();
	passwd = getpwuid(uid);
	return passwd ? text_name(passwd->pw_name) : "USER";
}

/*
 * Report that this user may not open the device file @name, with the command that permits it to the
 * user of the broker.
 */
static void say_denied(const struct doctor *doctor, struct finding *finding, const char *name,
		       const char *usual_group)
{
	const struct group *group = NULL;
	char path[PATH_BYTES], mend[FINDING_BYTES];
	struct stat status;
	bool is_own;

	path_of(doctor, path, "%s", name);
	if (stat(path, &status) == 0 && status.st_gid != 0 &&
	    (status.st_mode & (S_IRGRP | S_IWGRP)) == (S_IRGRP | S_IWGRP))
		group = getgrgid(status.st_gid);
	if (group)
		snprintf(mend, sizeof(mend), "usermod -aG %s %s, and log in again",
			 text_name(group->gr_name), device_user(doctor, &is_own));
	else
		snprintf(mend, sizeof(mend), "chgrp %s %s; chmod g+rw %s", usual_group, name, name);
	finding_set(finding, HEALTH_WARN, mend, "this user may not open %s", name);
}

/* NVIDIA's driver has device files of its own, and render nodes only with its module nvidia-drm. */
static void check_nvidia(const struct doctor *doctor, struct finding *finding)
{
	static const char *const names[] = {"/dev/nvidiactl", "/dev/nvidia0"};
	char path[PATH_BYTES];

	for (unsigned int i = 0; i < 2; i++) {
		path_of(doctor, path, "%s", names[i]);
		if (access(path, F_OK)) {
			finding_set(finding, HEALTH_WARN, "nvidia-modprobe -c 0 -u",
				    "NVIDIA's driver is loaded, but %s is missing", names[i]);
			return;
		}
		if (access(path, R_OK | W_OK)) {
			finding_set(finding, HEALTH_WARN,
				    "ls -l /dev/nvidia* shows their owner and group",
				    "this user may not open %s", names[i]);
			return;
		}
	}
	finding_set(finding, HEALTH_OK, "",
		    "NVIDIA's driver, which needs none: only Vulkan's figures are known");
}

static void say_no_nodes(const struct doctor *doctor, struct finding *finding)
{
	const struct vendor *gpu = find_gpu(doctor);

	if (doctor->has_gpu)
		say_used(doctor, finding);
	else if (gpu)
		finding_set(finding, HEALTH_WARN, gpu->mend,
			    "there is a GPU by %s, but no render node in /dev/dri: its driver is "
			    "not loaded",
			    gpu->name);
	else if (doctor->has_software_gpu)
		finding_set(finding, HEALTH_OK, "",
			    "there is no GPU here; the broker uses %s instead",
			    doctor->gpu[0] ? text_name(doctor->gpu) : "a software device");
	else
		finding_set(
			finding, HEALTH_WARN,
			find_drivers(doctor).n_software
				? "brokerd --gpu=software, to try without one"
				: "apt-get install mesa-vulkan-drivers; brokerd --gpu=software, "
				  "to try without one",
			"there is no GPU here, and no render node in /dev/dri: everything "
			"runs on the CPU");
}

static void check_render_nodes(const struct doctor *doctor, struct finding *finding)
{
	const struct nodes nodes = look_at_nodes(doctor);
	bool is_own;

	device_user(doctor, &is_own);
	if (nodes.n == 0 && has_nvidia(doctor) && !doctor->has_gpu)
		check_nvidia(doctor, finding);
	else if (nodes.n == 0)
		say_no_nodes(doctor, finding);
	/* A broker that has a GPU has opened its node; of another user's rights nothing is known.
	 */
	else if (nodes.denied[0] && is_own && !doctor->has_gpu)
		say_denied(doctor, finding, nodes.denied, "render");
	else if (nodes.n_nvidia == nodes.n)
		finding_set(finding, HEALTH_OK, "",
			    "%u render node%s, of NVIDIA's driver: only Vulkan's figures are known",
			    nodes.n, plural(nodes.n));
	else if (nodes.n_amdgpu == 0)
		finding_set(finding, HEALTH_WARN, "modprobe amdgpu, if the card is by AMD",
			    "%u render node%s, none of amdgpu: only Vulkan's figures are known",
			    nodes.n, plural(nodes.n));
	else
		finding_set(finding, HEALTH_OK, "", "%u render node%s, %u of amdgpu", nodes.n,
			    plural(nodes.n), nodes.n_amdgpu);
}

static void check_dmem(const struct doctor *doctor, struct finding *finding)
{
	char controllers[TEXT_BYTES];

	if (read_below(doctor, "/sys/fs/cgroup/cgroup.controllers", controllers) == 0 &&
	    has_word(controllers, "dmem"))
		finding_set(finding, HEALTH_OK, "", "the kernel can limit device memory by cgroup");
	else if (!is_gpu_here(doctor))
		finding_set(finding, HEALTH_SKIP, "", "not needed: there is no GPU here");
	else
		finding_set(finding, HEALTH_WARN,
			    "boot Linux 6.14 or later with CONFIG_CGROUP_DMEM",
			    "this kernel has no dmem cgroup controller");
}

/* Return why no device needs udmabuf: a phrase for people; NULL if one does, or may. */
static const char *udmabuf_unneeded(const struct doctor *doctor)
{
	if (doctor->imports_host)
		return "not needed: the GPU uses clients' memory by host-import";
	if (doctor->has_devices && !doctor->has_gpu && !doctor->has_software_gpu)
		return "not needed: the broker has no GPU";
	if (!doctor->has_devices && !is_gpu_here(doctor))
		return "not needed: there is no GPU here";
	return NULL;
}

static void check_udmabuf(const struct doctor *doctor, struct finding *finding)
{
	const char *unneeded = udmabuf_unneeded(doctor);
	char path[PATH_BYTES];
	bool is_own;

	device_user(doctor, &is_own);
	path_of(doctor, path, "/dev/udmabuf");
	if (unneeded)
		finding_set(finding, HEALTH_OK, "", "%s", unneeded);
	else if (doctor->uses_udmabuf)
		finding_set(finding, HEALTH_OK, "", "the broker's GPU uses it");
	else if (access(path, F_OK))
		finding_set(finding, HEALTH_WARN,
			    "modprobe udmabuf; echo udmabuf > /etc/modules-load.d/udmabuf.conf",
			    "/dev/udmabuf is missing");
	else if (is_own && access(path, R_OK | W_OK))
		say_denied(doctor, finding, "/dev/udmabuf", "kvm");
	else
		finding_set(finding, HEALTH_OK, "", "/dev/udmabuf %s",
			    is_own ? "can be opened" : "is there");
}

/* typical size (MiB) and number of pages of arenas */
static const long long wanted_size_mb = 1024, wanted_list = 1024;

static void check_udmabuf_limits(const struct doctor *doctor, struct finding *finding)
{
	long long size_mb = read_number(doctor, "/sys/module/udmabuf/parameters/size_limit_mb");
	long long list = read_number(doctor, "/sys/module/udmabuf/parameters/list_limit");

	if (udmabuf_unneeded(doctor))
		finding_set(finding, HEALTH_SKIP, "", "udmabuf is not used");
	else if (size_mb < 0)
		finding_set(finding, HEALTH_SKIP, "", "the module is not loaded");
	else if (size_mb < wanted_size_mb || list < wanted_list)
		finding_set(finding, HEALTH_WARN,
			    "echo options udmabuf size_limit_mb=4096 list_limit=4096 > "
			    "/etc/modprobe.d/udmabuf.conf; rmmod udmabuf; modprobe udmabuf",
			    "one buffer may have %lld MiB (size_limit_mb) of %lld parts "
			    "(list_limit)",
			    size_mb, list);
	else
		finding_set(finding, HEALTH_OK, "", "one buffer may have %lld MiB, of %lld parts",
			    size_mb, list);
}

/* --- The service --- */

static void check_capabilities(const struct doctor *doctor, struct finding *finding)
{
	char text[TEXT_BYTES];
	const char *line;
	unsigned long long effective;
	bool has_bpf, has_perfmon;

	/* The broker drops these capabilities after using them. */
	if (doctor->has_probes) {
		finding_set(finding, HEALTH_OK, "", "the broker has loaded its probes");
		return;
	}
	if (read_broker(doctor, "status", text) || !(line = strstr(text, "\nCapEff:"))) {
		skip_unknown(finding);
		return;
	}
	effective = strtoull(line + strlen("\nCapEff:"), NULL, 16);
	has_bpf = effective >> CAP_BPF & 1;
	has_perfmon = effective >> CAP_PERFMON & 1;
	if (has_bpf && has_perfmon)
		finding_set(finding, HEALTH_OK, "", "the broker has CAP_BPF and CAP_PERFMON");
	else if (!doctor->knows_probes)
		finding_set(finding, HEALTH_SKIP, "",
			    "only administrators see whether the broker has loaded its probes");
	else
		warn_service(doctor, finding, "AmbientCapabilities=CAP_BPF CAP_PERFMON",
			     "setcap cap_bpf,cap_perfmon+ep $(command -v brokerd), and start "
			     "brokerd again",
			     "the broker has no probes, and %s%s%s", has_bpf ? "CAP_BPF only" : "",
			     has_perfmon ? "CAP_PERFMON only" : "",
			     has_bpf || has_perfmon ? "" : "neither CAP_BPF nor CAP_PERFMON");
}

static void check_sandbox(const struct doctor *doctor, struct finding *finding)
{
	const struct stats_word *word = stats_sandbox(doctor->sandbox);
	char mend[FINDING_BYTES] = "";
	enum health health = HEALTH_WARN;

	switch (doctor->sandbox) {
	case RBK_STATS_SANDBOX_ON:
		health = HEALTH_OK;
		break;
	case RBK_STATS_SANDBOX_LOG:
	case RBK_STATS_SANDBOX_OFF:
		snprintf(mend, sizeof(mend),
			 "remove sandbox = %s from section [broker] of brokerd.conf, or --sandbox "
			 "from brokerd's command line, and restart brokerd",
			 word->name);
		break;
	case RBK_STATS_SANDBOX_LACKING:
		snprintf(mend, sizeof(mend),
			 "boot a kernel with CONFIG_SECCOMP_FILTER, or let the container use "
			 "seccomp");
		break;
	case RBK_STATS_SANDBOX_REFUSED:
		snprintf(mend, sizeof(mend), "see the log of brokerd (sandbox)");
		break;
	case RBK_STATS_SANDBOX_NOT_BUILT:
		health = HEALTH_SKIP;
		break;
	default:
		if (doctor->knows_upkeep)
			finding_set(finding, HEALTH_SKIP, "",
				    "not known: the broker is of another version, and reports no "
				    "state that this brokerctl knows");
		else
			skip_unknown(finding);
		return;
	}
	finding_set(finding, health, mend, "the sandbox is %s", word->text);
}

/*
 * Read the soft limit from a line of /proc/PID/limits; -1: unlimited.
 * Return: true if the limit is known.
 */
static bool read_limit(const struct doctor *doctor, const char *name, long long *ret)
{
	char text[TEXT_BYTES];
	const char *line;

	if (read_broker(doctor, "limits", text) || !(line = strstr(text, name)))
		return false;
	line += strlen(name);
	line += strspn(line, " ");
	*ret = strncmp(line, "unlimited", 9) == 0 ? -1 : strtoll(line, NULL, 10);
	return true;
}

static const long long wanted_memlock_bytes = 8 << 20, wanted_files = 4096;

static void check_memlock(const struct doctor *doctor, struct finding *finding)
{
	long long bytes;

	if (!read_limit(doctor, "Max locked memory", &bytes))
		skip_unknown(finding);
	else if (bytes >= 0 && bytes < wanted_memlock_bytes)
		warn_service(doctor, finding, "LimitMEMLOCK=infinity",
			     "ulimit -l unlimited, before brokerd starts",
			     "the broker may lock %lld KiB", bytes / 1024);
	else if (bytes < 0)
		finding_set(finding, HEALTH_OK, "", "the broker may lock any amount of memory");
	else
		finding_set(finding, HEALTH_OK, "", "the broker may lock %lld KiB", bytes / 1024);
}

static void check_files(const struct doctor *doctor, struct finding *finding)
{
	long long n;

	if (!read_limit(doctor, "Max open files", &n))
		skip_unknown(finding);
	else if (n >= 0 && n < wanted_files)
		warn_service(doctor, finding, "LimitNOFILE=65536",
			     "ulimit -n 65536, before brokerd starts",
			     "the broker may open %lld files; a session takes about ten", n);
	else if (n < 0)
		finding_set(finding, HEALTH_OK, "", "the broker may open any number of files");
	else
		finding_set(finding, HEALTH_OK, "", "the broker may open %lld files", n);
}

/* --- All of them --- */

static const struct {
	const char *name, *why;
	void (*check)(const struct doctor *doctor, struct finding *finding);
} checks[] = {
	{"io-uring", "the broker's event loop is built on it: without it, it does not start",
	 check_io_uring},
	{"vulkan", "GPUs are used through Vulkan: without a driver everything runs on the CPU",
	 check_vulkan},
	{"render-nodes",
	 "GPUs are opened as render nodes, and amdgpu reports memory, load and power",
	 check_render_nodes},
	{"udmabuf", "it lets GPUs use clients' memory: without it, tensors may be copied",
	 check_udmabuf},
	{"udmabuf-limits",
	 "a tensor that lies in two udmabufs cannot be reached in place, so large ones need few of "
	 "them",
	 check_udmabuf_limits},
	{"dmem-cgroup", "it limits the device memory of programs that use the GPU themselves",
	 check_dmem},
	{"btf",
	 "the scheduler probes need it: without them, the broker cannot name the programs that "
	 "keep the CPU busy",
	 check_btf},
	{"capabilities", "the scheduler probes need CAP_BPF and CAP_PERFMON", check_capabilities},
	{"sandbox",
	 "it keeps a defect of brokerd or of a driver from calling what brokerd never needs",
	 check_sandbox},
	{"bpf-sysctl", "it decides which users may load programs into the kernel",
	 check_sysctl_bpf},
	{"psi", "it replaces the probes where they cannot be loaded", check_psi},
	{"cgroup-v2", "tenants are told apart by cgroup, and CPU work is charged to the broker's",
	 check_cgroup},
	{"memlock", "memory of rings and of GPU drivers is locked", check_memlock},
	{"open-files", "sessions, arenas and rings each take descriptors", check_files},
};

unsigned int doctor_count(void)
{
	return sizeof(checks) / sizeof(checks[0]);
}

void doctor_check(const struct doctor *doctor, unsigned int index, struct finding *ret)
{
	*ret = (struct finding){.name = checks[index].name, .why = checks[index].why};
	checks[index].check(doctor, ret);
}
