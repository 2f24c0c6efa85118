/* SPDX-License-Identifier: MIT */
/* The doctor, on machines with something missing. */
#include <errno.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ringbroker/stats.h>

#include "brokerctl/doctor.h"
#include "support/test.h"

static char root[64];

/* Write @text to a file below the root, and create its folders. */
static void put(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s%s", root, name);
	for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static int remove_file(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s%s", root, name);
	return unlink(path);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *at)
{
	return remove(path);
}

static int begin(void **state)
{
	strcpy(root, "/tmp/rbk-doctor-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
	return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct finding check(const struct doctor *doctor, const char *name)
{
	struct finding finding;

	for (unsigned int i = 0; i < doctor_count(); i++) {
		doctor_check(doctor, i, &finding);
		if (strcmp(finding.name, name) == 0)
			return finding;
	}
	print_error("there is no check %s\n", name);
	fail();
	return finding;
}

static void assert_health(const struct doctor *doctor, const char *name, enum health health)
{
	struct finding finding = check(doctor, name);

	if (finding.health != health)
		print_error("%s is %s, not %s: %s\n", name, health_name(finding.health),
			    health_name(health), finding.text);
	assert_int_equal(finding.health, health);
}

/* On an empty machine, each check says what is missing, why it matters, and what to do. */
TEST(test_nothing, begin, end)
{
	struct doctor doctor = {.root = root};
	struct finding finding;

	for (unsigned int i = 0; i < doctor_count(); i++) {
		doctor_check(&doctor, i, &finding);
		assert_true(strlen(finding.name) > 0);
		assert_true(strlen(finding.why) > 0);
		assert_true(strlen(finding.text) > 0);
		assert_int_equal(finding.mend[0] == '\0',
				 finding.health == HEALTH_OK || finding.health == HEALTH_SKIP);
	}
	assert_health(&doctor, "btf", HEALTH_WARN);
	assert_health(&doctor, "psi", HEALTH_WARN);
	assert_health(&doctor, "render-nodes", HEALTH_WARN);
	assert_health(&doctor, "cgroup-v2", HEALTH_WARN);
	/* Without a GPU, nothing that serves GPUs is missing. */
	assert_health(&doctor, "vulkan", HEALTH_SKIP);
	assert_health(&doctor, "udmabuf", HEALTH_OK);
	assert_health(&doctor, "udmabuf-limits", HEALTH_SKIP);
	assert_health(&doctor, "dmem-cgroup", HEALTH_SKIP);
	assert_health(&doctor, "capabilities", HEALTH_SKIP);
	assert_health(&doctor, "memlock", HEALTH_SKIP);
	assert_health(&doctor, "open-files", HEALTH_SKIP);
}

/* Make io_uring_setup() fail with @error in this process from now on. */
static int refuse_io_uring(unsigned int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/*
 * Return the doctor's text if the kernel rejects io_uring with @error and has no sysctl for it;
 * NULL if this cannot be tested here.
 */
static const char *io_uring_refused(unsigned int error)
{
	static char text[FINDING_BYTES];
	struct doctor doctor = {.root = root};
	int fds[2], status;
	ssize_t n;
	pid_t child;

	assert_int_equal(pipe(fds), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct finding finding;

		if (refuse_io_uring(error))
			_exit(77);
		finding = check(&doctor, "io-uring");
		_exit(write(fds[1], finding.text, sizeof(finding.text)) !=
		      (ssize_t)sizeof(finding.text));
	}
	close(fds[1]);
	n = read(fds[0], text, sizeof(text));
	close(fds[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		return NULL;
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(n, sizeof(text));
	return text;
}

/* The text reports the kernel's error, not the missing sysctl of newer kernels. */
TEST(test_io_uring__refused, begin, end)
{
	const char *text = io_uring_refused(ENOSYS);

	if (!text)
		skip();
	assert_string_equal(text, "the kernel has none");
	assert_string_equal(io_uring_refused(EPERM),
			    "this process may not use it: Operation not permitted");
}

TEST(test_kernel, begin, end)
{
	struct doctor doctor = {.root = root};

	put("/dev/dri/renderD128", "");
	put("/sys/kernel/btf/vmlinux", "x");
	put("/proc/pressure/cpu", "some avg10=0.00\n");
	put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory dmem\n");
	put("/proc/sys/kernel/unprivileged_bpf_disabled", "2\n");
	assert_health(&doctor, "btf", HEALTH_OK);
	assert_health(&doctor, "psi", HEALTH_OK);
	assert_health(&doctor, "cgroup-v2", HEALTH_OK);
	assert_health(&doctor, "dmem-cgroup", HEALTH_OK);
	assert_health(&doctor, "bpf-sysctl", HEALTH_OK);
	/* "dmemory" contains a controller's name, but is another word. */
	put("/sys/fs/cgroup/cgroup.controllers", "cpuset io memory dmemory\n");
	put("/proc/sys/kernel/unprivileged_bpf_disabled", "0\n");
	assert_health(&doctor, "cgroup-v2", HEALTH_WARN);
	assert_health(&doctor, "dmem-cgroup", HEALTH_WARN);
	assert_health(&doctor, "bpf-sysctl", HEALTH_WARN);
	/* The probes of the broker need no substitute. */
	assert_int_equal(remove_file("/proc/pressure/cpu"), 0);
	assert_health(&doctor, "psi", HEALTH_WARN);
	doctor.has_probes = true;
	assert_health(&doctor, "psi", HEALTH_SKIP);
}

TEST(test_udmabuf, begin, end)
{
	struct doctor doctor = {.root = root};

	put("/dev/dri/renderD128", "");
	put("/dev/udmabuf", "");
	put("/sys/module/udmabuf/parameters/size_limit_mb", "64\n");
	put("/sys/module/udmabuf/parameters/list_limit", "1024\n");
	assert_health(&doctor, "udmabuf", HEALTH_OK);
	assert_health(&doctor, "udmabuf-limits", HEALTH_WARN);
	assert_non_null(strstr(check(&doctor, "udmabuf-limits").text, "64 MiB"));
	put("/sys/module/udmabuf/parameters/size_limit_mb", "4096\n");
	assert_health(&doctor, "udmabuf-limits", HEALTH_OK);
	put("/sys/module/udmabuf/parameters/list_limit", "16\n");
	assert_health(&doctor, "udmabuf-limits", HEALTH_WARN);
	/* A driver that imports clients' memory itself needs no udmabuf. */
	doctor.imports_host = true;
	assert_health(&doctor, "udmabuf-limits", HEALTH_SKIP);
	assert_int_equal(remove_file("/dev/udmabuf"), 0);
	assert_health(&doctor, "udmabuf", HEALTH_OK);
	doctor.imports_host = false;
	assert_health(&doctor, "udmabuf", HEALTH_WARN);
	/* The broker uses udmabuf, whatever this user may open. */
	doctor.has_devices = doctor.has_gpu = doctor.uses_udmabuf = true;
	assert_health(&doctor, "udmabuf", HEALTH_OK);
	/* A broker without a GPU needs none. */
	doctor = (struct doctor){.root = root, .has_devices = true};
	assert_health(&doctor, "udmabuf", HEALTH_OK);
	assert_health(&doctor, "udmabuf-limits", HEALTH_SKIP);
}

/* The devices of the running broker count, not the installed drivers. */
TEST(test_vulkan__of_broker, begin, end)
{
	struct doctor doctor = {.root = root, .has_devices = true};

	put("/dev/dri/renderD128", "");
	put("/usr/share/vulkan/icd.d/radeon_icd.x86_64.json", "{}");
	put("/usr/share/vulkan/icd.d/intel_icd.x86_64.json", "{}");
	put("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "{}");
	put("/usr/share/vulkan/icd.d/radeon_icd.json.dpkg-old", "{}");
	assert_health(&doctor, "vulkan", HEALTH_WARN);
	assert_non_null(strstr(check(&doctor, "vulkan").text, "2 Vulkan drivers of GPUs are"));
	doctor.has_software_gpu = true;
	strcpy(doctor.gpu, "llvmpipe");
	assert_health(&doctor, "vulkan", HEALTH_OK);
	assert_non_null(strstr(check(&doctor, "vulkan").text, "the broker uses llvmpipe"));
	doctor.has_gpu = true;
	strcpy(doctor.gpu, "Radeon");
	assert_health(&doctor, "vulkan", HEALTH_OK);
	assert_string_equal(check(&doctor, "vulkan").text, "the broker uses Radeon");
}

/* With and without a broker, the same drivers are counted. */
TEST(test_vulkan__drivers, begin, end)
{
	struct doctor doctor = {.root = root};
	struct finding finding;

	put("/dev/dri/renderD128", "");
	put("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "{}");
	finding = check(&doctor, "vulkan");
	assert_int_equal(finding.health, HEALTH_WARN);
	assert_non_null(strstr(finding.mend, "mesa-vulkan-drivers"));
	doctor.has_devices = true;
	assert_string_equal(check(&doctor, "vulkan").text, finding.text);
	/* Mesa's driver is not proposed for a vendor with a driver of its own. */
	put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n");
	put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
	assert_non_null(strstr(check(&doctor, "vulkan").mend, "nvidia-vulkan-icd"));
	put("/usr/share/vulkan/icd.d/nvidia_icd.json", "{}");
	assert_non_null(strstr(check(&doctor, "vulkan").text, "1 Vulkan driver of GPUs is"));
	doctor.has_devices = false;
	assert_health(&doctor, "vulkan", HEALTH_OK);
	assert_non_null(strstr(check(&doctor, "vulkan").text, "1 Vulkan driver of GPUs is"));
}

TEST(test_render_nodes, begin, end)
{
	struct doctor doctor = {.root = root};
	char link_path[128];

	put("/dev/dri/card0", "");
	assert_health(&doctor, "render-nodes", HEALTH_WARN);
	assert_non_null(strstr(check(&doctor, "render-nodes").text, "no GPU here"));
	assert_non_null(strstr(check(&doctor, "render-nodes").mend, "mesa-vulkan-drivers"));
	put("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "{}");
	assert_string_equal(check(&doctor, "render-nodes").mend,
			    "brokerd --gpu=software, to try without one");
	/* A broker that does so already needs no advice. */
	doctor.has_devices = doctor.has_software_gpu = true;
	assert_health(&doctor, "render-nodes", HEALTH_OK);
	doctor.has_devices = doctor.has_software_gpu = false;
	put("/sys/bus/pci/devices/0000:00:1f.0/class", "0x060100\n");
	put("/sys/bus/pci/devices/0000:00:1f.0/vendor", "0x1002\n");
	assert_non_null(strstr(check(&doctor, "render-nodes").text, "no GPU here"));
	put("/sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n");
	put("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
	assert_string_equal(check(&doctor, "render-nodes").mend, "modprobe i915");
	put("/sys/bus/pci/devices/0000:03:00.0/class", "0x038000\n");
	put("/sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n");
	assert_non_null(strstr(check(&doctor, "render-nodes").mend, "firmware-amd-graphics"));
	put("/dev/dri/renderD128", "");
	put("/sys/class/drm/renderD128/device/vendor", "0x1002\n");
	assert_health(&doctor, "render-nodes", HEALTH_WARN);
	snprintf(link_path, sizeof(link_path), "%s/sys/class/drm/renderD128/device/driver", root);
	assert_int_equal(symlink("../../../../bus/pci/drivers/amdgpu", link_path), 0);
	assert_health(&doctor, "render-nodes", HEALTH_OK);
}

/* NVIDIA's driver has no render nodes without its module nvidia-drm, and needs none. */
TEST(test_nvidia, begin, end)
{
	struct doctor doctor = {.root = root};
	char link_path[128];

	put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module\n");
	assert_health(&doctor, "render-nodes", HEALTH_WARN);
	assert_non_null(strstr(check(&doctor, "render-nodes").text, "/dev/nvidiactl"));
	put("/dev/nvidiactl", "");
	assert_health(&doctor, "render-nodes", HEALTH_WARN);
	put("/dev/nvidia0", "");
	assert_health(&doctor, "render-nodes", HEALTH_OK);

	put("/dev/dri/renderD128", "");
	put("/sys/class/drm/renderD128/device/vendor", "0x10de\n");
	snprintf(link_path, sizeof(link_path), "%s/sys/class/drm/renderD128/device/driver", root);
	assert_int_equal(symlink("../../../../bus/pci/drivers/nouveau", link_path), 0);
	assert_health(&doctor, "render-nodes", HEALTH_WARN);
	assert_int_equal(unlink(link_path), 0);
	assert_int_equal(symlink("../../../../bus/pci/drivers/nvidia", link_path), 0);
	assert_health(&doctor, "render-nodes", HEALTH_OK);
}

/* Each limit of the broker is reported; systemctl is proposed only for a broker that is a service.
 */
static void expect_service_mends(const struct doctor *doctor, bool is_service)
{
	static const char *const names[] = {"capabilities", "memlock", "open-files", "cgroup-v2"};

	assert_int_equal(doctor_is_service(doctor), is_service);
	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct finding finding = check(doctor, names[i]);

		assert_int_equal(finding.health, HEALTH_WARN);
		assert_true(finding.mend[0]);
		assert_int_equal(strstr(finding.mend, "systemctl") != NULL, is_service);
	}
}

TEST(test_unit, begin, end)
{
	struct doctor doctor = {.root = root};

	assert_false(doctor_has_unit(&doctor, "brokerd.service"));
	put("/lib/systemd/system/brokerd.service", "");
	assert_true(doctor_has_unit(&doctor, "brokerd.service"));
	assert_false(doctor_has_unit(&doctor, "ringbroker-gate.service"));
}

TEST(test_service, begin, end)
{
	struct doctor doctor = {.root = root, .pid = 77};

	/*
	 * Without word of the probes, the doctor cannot tell whether the broker has dropped its
	 * capabilities.
	 */
	put("/proc/77/status", "Name:\tbrokerd\nCapEff:\t0000000000000000\n");
	assert_health(&doctor, "capabilities", HEALTH_SKIP);
	doctor.knows_probes = true;
	put("/proc/77/limits", "Limit                     Soft Limit           Hard Limit\n"
			       "Max open files            1024                 524288\n"
			       "Max locked memory         65536                65536\n");
	put("/proc/77/cgroup", "0::/system.slice/brokerd.service\n");
	put("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
	put("/sys/fs/cgroup/system.slice/brokerd.service/cgroup.controllers", "memory\n");
	expect_service_mends(&doctor, true);
	/* A broker that no unit started is not mended by editing a unit. */
	put("/proc/77/cgroup", "0::/user.slice/shell\n");
	put("/sys/fs/cgroup/user.slice/shell/cgroup.controllers", "memory\n");
	expect_service_mends(&doctor, false);
	put("/proc/77/cgroup", "0::/system.slice/brokerd.service\n");

	/* CAP_PERFMON is 38, CAP_BPF 39. */
	put("/proc/77/status", "Name:\tbrokerd\nCapEff:\t000000c000000000\n");
	put("/proc/77/limits", "Max open files            65536                65536\n"
			       "Max locked memory         unlimited            unlimited\n");
	put("/sys/fs/cgroup/system.slice/brokerd.service/cgroup.controllers", "cpu memory\n");
	assert_health(&doctor, "capabilities", HEALTH_OK);
	assert_health(&doctor, "memlock", HEALTH_OK);
	assert_health(&doctor, "open-files", HEALTH_OK);
	assert_health(&doctor, "cgroup-v2", HEALTH_OK);

	/* The broker has used its capabilities and dropped them. */
	put("/proc/77/status", "Name:\tbrokerd\nCapEff:\t0000000000000000\n");
	doctor.has_probes = true;
	assert_health(&doctor, "capabilities", HEALTH_OK);
}

TEST(test_sandbox, begin, end)
{
	static const struct {
		enum rbk_stats_sandbox state;
		enum health health;
		const char *text, *mend;
	} rows[] = {
		/* of an older broker */
		{RBK_STATS_SANDBOX_UNKNOWN, HEALTH_SKIP, "another version", ""},
		{RBK_STATS_SANDBOX_ON, HEALTH_OK, "on", ""},
		{RBK_STATS_SANDBOX_LOG, HEALTH_WARN, "in mode log", "sandbox = log"},
		{RBK_STATS_SANDBOX_OFF, HEALTH_WARN, "off", "sandbox = off"},
		{RBK_STATS_SANDBOX_LACKING, HEALTH_WARN, "this kernel or container", "kernel"},
		{RBK_STATS_SANDBOX_NOT_BUILT, HEALTH_SKIP, "this build", ""},
		{RBK_STATS_SANDBOX_REFUSED, HEALTH_WARN, "incomplete", "log"},
		/* of a newer broker */
		{RBK_STATS_SANDBOXES, HEALTH_SKIP, "another version", ""},
	};

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct doctor doctor = {
			.root = root, .pid = 77, .sandbox = rows[i].state, .knows_upkeep = true};
		const struct finding finding = check(&doctor, "sandbox");

		assert_int_equal(finding.health, rows[i].health);
		assert_non_null(strstr(finding.text, rows[i].text));
		assert_non_null(strstr(finding.mend, rows[i].mend));
		assert_int_equal(finding.mend[0] == '\0', rows[i].mend[0] == '\0');
	}
}

TEST(test_sandbox__no_broker, begin, end)
{
	const struct doctor doctor = {.root = root};
	const struct finding finding = check(&doctor, "sandbox");

	assert_int_equal(finding.health, HEALTH_SKIP);
	assert_non_null(strstr(finding.text, "no broker answers"));
}
