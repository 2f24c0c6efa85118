/* SPDX-License-Identifier: MIT */
/* Users of devices, found in folders that imitate /proc and /sys */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"
#include "telemetry/processes.h"
#include "telemetry/sysfs.h"
#include "tests/unit/fail-alloc.h"

#define MIB(n) ((uint64_t)(n) << 20)

static const char first[] = "0000:03:00.0", second[] = "0000:0a:00.0";
static char root[64];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
	return remove(path);
}

static int set_up(void **state)
{
	snprintf(root, sizeof(root), "/tmp/rbk-processes-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Write a file below the root, and make the folders that it needs. */
static void put(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(const char *text, const char *format, ...)
{
	char path[256];
	va_list arguments;
	int n, fd;

	n = snprintf(path, sizeof(path), "%s/", root);
	va_start(arguments, format);
	vsnprintf(path + n, sizeof(path) - (size_t)n, format, arguments);
	va_end(arguments);
	for (char *slash = strchr(path + n, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
		*slash = '/';
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void put_link(const char *process, int fd, const char *target)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s/fd", root, process);
	put("", "%s/fd/keep", process);
	snprintf(path, sizeof(path), "%s/%s/fd/%d", root, process, fd);
	unlink(path);
	assert_int_equal(symlink(target, path), 0);
}

/* Write a descriptor of a DRM node. */
static void put_drm(const char *process, int fd, const char *pci, unsigned int client,
		    unsigned int vram_mib, unsigned int gtt_mib, uint64_t busy_ns)
{
	char text[512];

	put_link(process, fd, "/dev/dri/renderD128");
	snprintf(text, sizeof(text),
		 "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t%u\ndrm-pdev:\t%s\n"
		 "drm-memory-vram:\t%u MiB\ndrm-memory-gtt:\t%u KiB\n",
		 client, pci, vram_mib, gtt_mib * 1024);
	/* As amdgpu_show_fdinfo() does, leave out an engine that was not used. */
	if (busy_ns > 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 "drm-engine-gfx:\t%llu ns\n", (unsigned long long)busy_ns);
	put(text, "%s/fdinfo/%d", process, fd);
}

struct rig {
	struct processes *processes;
	struct device_reading *readings[2];
	uint64_t now_ns;
};

static struct rig rig_new(void)
{
	struct rig rig = {.now_ns = 1000000000u};

	assert_int_equal(processes_new(root, 2, &rig.processes), 0);
	processes_set_pci(rig.processes, 0, first);
	processes_set_pci(rig.processes, 1, second);
	for (int i = 0; i < 2; i++)
		rig.readings[i] = calloc(1, sizeof(*rig.readings[i]));
	return rig;
}

static void rig_free(struct rig *rig)
{
	assert_null(processes_free(rig->processes));
	for (int i = 0; i < 2; i++)
		free(rig->readings[i]);
}

static void look(struct rig *rig, bool is_thorough)
{
	rig->now_ns += 1000000000u;
	processes_look(rig->processes, rig->now_ns, is_thorough, rig->readings);
}

TEST(test_look__users, set_up, tear_down)
{
	struct rig rig = rig_new();
	const struct process_reading *list;

	put("init\n", "1/comm");
	put_link("1", 0, "/dev/null");
	put("model\n", "300/comm");
	put_link("300", 0, "socket:[1234]");
	put_drm("300", 7, first, 1, 1024, 1, 0);
	put_drm("300", 8, first, 2, 512, 2, 0);
	put_drm("300", 9, second, 3, 64, 0, 0);
	put("\033[31mgame\n", "200/comm");
	put_drm("200", 3, first, 4, 2048, 0, 0);
	put_drm("200", 4, "0000:ff:00.0", 5, 4096, 0, 0);
	put("self-named\n", "notanumber/comm");
	put_drm("notanumber", 3, first, 6, 2048, 0, 0);

	look(&rig, true);
	assert_int_equal(rig.readings[0]->n_processes, 2);
	list = rig.readings[0]->processes;
	assert_int_equal(list[0].pid, 200);
	assert_string_equal(list[0].comm, "?[31mgame");
	assert_fields(list[0], (uid, getuid()), (vram_bytes, MIB(2048)));
	assert_int_equal(list[1].pid, 300);
	assert_string_equal(list[1].comm, "model");
	assert_fields(list[1], (vram_bytes, MIB(1536)), (gtt_bytes, MIB(3)));
	assert_true(rig.readings[0]->processes_ns.is_valid);
	assert_false(rig.readings[0]->processes_are_partial);
	assert_fields(*rig.readings[1], (n_processes, 1), (processes[0].vram_bytes, MIB(64)));
	rig_free(&rig);
}

/* Descriptors of one client, in one process or in several, are one user. */
TEST(test_look__shared_clients, set_up, tear_down)
{
	struct rig rig = rig_new();
	uint64_t total = 0;

	put_drm("10", 3, first, 77, 100, 0, 0);
	put_drm("10", 4, first, 77, 100, 0, 0);
	put_drm("11", 9, first, 77, 100, 0, 0);
	/* The same client number at another device is another client. */
	put_drm("11", 10, second, 77, 30, 0, 0);
	look(&rig, true);
	for (uint32_t i = 0; i < rig.readings[0]->n_processes; i++)
		total += rig.readings[0]->processes[i].vram_bytes;
	assert_int_equal(rig.readings[0]->n_processes, 1);
	assert_int_equal(total, MIB(100));
	assert_fields(*rig.readings[1], (n_processes, 1), (processes[0].pid, 11));
	rig_free(&rig);
}

/* A user of a device that is not watched, and a watched device without an address. */
TEST(test_look__unknown_address, set_up, tear_down)
{
	struct rig rig = rig_new();

	processes_set_pci(rig.processes, 1, "");
	put_drm("10", 3, second, 1, 100, 0, 0);
	look(&rig, true);
	assert_int_equal(rig.readings[0]->n_processes, 0);
	assert_true(rig.readings[0]->processes_ns.is_valid);
	assert_int_equal(rig.readings[1]->n_processes, 0);
	assert_false(rig.readings[1]->processes_ns.is_valid);
	/* Process 1 does not exist in this root, so it counts as unreadable. */
	assert_true(rig.readings[0]->processes_are_partial);
	rig_free(&rig);
}

TEST(test_look__only_descriptors_of_drm, set_up, tear_down)
{
	struct rig rig = rig_new();

	/* fdinfo counts only for descriptors of DRM nodes. */
	put_drm("10", 3, first, 1, 100, 0, 0);
	put_link("10", 3, "/tmp/dev/dri/renderD128");
	put_drm("10", 4, first, 2, 100, 0, 0);
	put_link("10", 4, "/dev/null");
	put_drm("10", 5, first, 3, 100, 0, 0);
	put_link("10", 5, "anon_inode:[eventfd]");
	put_drm("10", 6, first, 4, 1, 0, 0);
	put_link("10", 6, "/dev/dri/card0");
	look(&rig, true);
	assert_fields(*rig.readings[0], (n_processes, 1), (processes[0].vram_bytes, MIB(1)));
	rig_free(&rig);
}

TEST(test_look__more_than_are_listed, set_up, tear_down)
{
	struct rig rig = rig_new();
	char process[16];

	put_link("1", 0, "/dev/null");
	for (unsigned int i = 0; i < TELEMETRY_MAX_PROCESSES + 6; i++) {
		snprintf(process, sizeof(process), "%u", 1000 + i);
		put_drm(process, 3, first, i, (i * 37) % 101 + 1, 0, 0);
	}
	look(&rig, true);
	assert_int_equal(rig.readings[0]->n_processes, TELEMETRY_MAX_PROCESSES);
	assert_true(rig.readings[0]->processes_are_partial);
	for (uint32_t i = 1; i < TELEMETRY_MAX_PROCESSES; i++)
		assert_true(rig.readings[0]->processes[i - 1].vram_bytes >=
			    rig.readings[0]->processes[i].vram_bytes);
	/* The sizes of all 70 processes differ: the 6 smallest are left out, 101 MiB is first. */
	assert_int_equal(rig.readings[0]->processes[0].vram_bytes >> 20, 101);
	rig_free(&rig);
}

/* Between two looks processes start, grow, end, and close the device. */
TEST(test_look__changes, set_up, tear_down)
{
	struct rig rig = rig_new();
	char path[128];

	put_link("1", 0, "/dev/null");
	put_drm("20", 3, first, 1, 100, 0, 0);
	look(&rig, true);
	assert_int_equal(rig.readings[0]->n_processes, 1);
	put_drm("20", 3, first, 1, 300, 0, 0);
	put_drm("21", 3, first, 2, 200, 0, 0);
	look(&rig, false);
	assert_fields(*rig.readings[0], (n_processes, 2), (processes[0].vram_bytes, MIB(300)));
	snprintf(path, sizeof(path), "%s/20", root);
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	put_link("21", 3, "/dev/null");
	look(&rig, false);
	assert_int_equal(rig.readings[0]->n_processes, 0);
	rig_free(&rig);
}

TEST(test_look__busy, set_up, tear_down)
{
	struct rig rig = rig_new();

	put_drm("20", 3, first, 1, 100, 0, 5000000000u);
	put_drm("21", 3, first, 2, 50, 0, 7);
	put_drm("23", 3, first, 4, 5, 0, 0);
	look(&rig, true);
	assert_false(rig.readings[0]->processes[0].busy_percent.is_valid);
	put_drm("20", 3, first, 1, 100, 0, 5250000000u);
	put_drm("22", 3, first, 3, 10, 0, 9);
	put_drm("23", 3, first, 4, 5, 0, 500000000u);
	look(&rig, true);
	assert_true(rig.readings[0]->processes[0].busy_percent.is_valid);
	assert_int_equal(rig.readings[0]->processes[0].busy_percent.value, 25);
	assert_true(rig.readings[0]->processes[0].busy_ns.is_valid);
	assert_int_equal(rig.readings[0]->processes[0].busy_ns.value, 250000000);
	assert_true(rig.readings[0]->processes[1].busy_percent.is_valid);
	assert_int_equal(rig.readings[0]->processes[1].busy_percent.value, 0);
	/* A new process has no busy time yet. */
	assert_false(rig.readings[0]->processes[2].busy_percent.is_valid);
	/* The first time of a process that has been there. */
	assert_int_equal(rig.readings[0]->processes[3].busy_percent.value, 50);
	assert_int_equal(rig.readings[0]->processes[3].busy_ns.value, 500000000);
	/* A client of the process has ended, so the difference is unknown. */
	put_drm("20", 3, first, 1, 100, 0, 5);
	look(&rig, true);
	assert_false(rig.readings[0]->processes[0].busy_percent.is_valid);
	rig_free(&rig);
}

/*
 * Many processes without DRM descriptors: each look examines some, and all are examined in the end.
 */
TEST(test_look__in_turn, set_up, tear_down)
{
	struct rig rig = rig_new();
	char process[16];
	unsigned int n = 0;

	put_link("1", 0, "/dev/null");
	processes_look(rig.processes, rig.now_ns, false, rig.readings);
	for (unsigned int i = 0; i < 100; i++) {
		snprintf(process, sizeof(process), "%u", 100 + i);
		for (int fd = 0; fd < 8; fd++)
			put_link(process, fd, "/dev/null");
	}
	put_drm("150", 9, first, 1, 1, 0, 0);
	put_drm("199", 9, first, 2, 1, 0, 0);
	/* A look examines 256 links if no time has passed. */
	while (rig.readings[0]->n_processes < 2) {
		assert_true(++n < 20);
		processes_look(rig.processes, rig.now_ns, false, rig.readings);
	}
	assert_true(n > 1);
	rig_free(&rig);
}

TEST(test_own, set_up, tear_down)
{
	struct rig rig = rig_new();
	struct process_use own[RBK_MAX_DEVICES];

	processes_own(rig.processes, true, own);
	assert_false(own[0].vram_bytes.is_valid);
	put_drm("self", 5, first, 1, 10, 1, 0);
	put_drm("self", 6, first, 1, 10, 1, 0);
	put_drm("self", 7, first, 2, 20, 1, 0);
	put_link("self", 8, "socket:[1]");
	processes_own(rig.processes, false, own);
	assert_false(own[0].vram_bytes.is_valid);
	processes_own(rig.processes, true, own);
	assert_true(own[0].vram_bytes.is_valid);
	assert_fields(own[0], (vram_bytes.value, MIB(30)), (gtt_bytes.value, MIB(2)));
	assert_false(own[1].vram_bytes.is_valid);
	/* Only known descriptors are read again. */
	put_drm("self", 7, first, 2, 25, 1, 0);
	put_drm("self", 9, first, 3, 1000, 1, 0);
	processes_own(rig.processes, false, own);
	assert_int_equal(own[0].vram_bytes.value, MIB(35));
	/* A known descriptor is no DRM node any more, so all descriptors are examined. */
	put("pos: 0\n", "self/fdinfo/7");
	processes_own(rig.processes, false, own);
	assert_int_equal(own[0].vram_bytes.value, MIB(1010));
	rig_free(&rig);
}

TEST(test_see_all, set_up, tear_down)
{
	struct rig rig = rig_new();

	assert_false(processes_see_all(rig.processes));
	put_link("1", 0, "/dev/null");
	assert_true(processes_see_all(rig.processes));
	rig_free(&rig);
}

TEST(test_new__no_memory, set_up, tear_down)
{
	struct processes *processes;
	int r;

	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = processes_new(root, 1, &processes);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	processes_free(processes);
}

TEST(test_sysfs__numbers, set_up, tear_down)
{
	static const char *const bad[] = {"",     "\n",    "x\n",   "-5\n",
					  "5 \n", "12x\n", "0x1\n", "99999999999999999999\n"};
	struct sysfs sysfs;

	put("71000\n", "0000:03:00.0/hwmon/hwmon4/temp1_input");
	put("0\n", "0000:03:00.0/gpu_busy_percent");
	put("12", "0000:03:00.0/mem_busy_percent");
	sysfs_init(&sysfs, root, first);
	assert_true(sysfs_read_hwmon(&sysfs, "temp1_input").is_valid);
	assert_int_equal(sysfs_read_hwmon(&sysfs, "temp1_input").value, 71000);
	assert_true(sysfs_read(&sysfs, "gpu_busy_percent").is_valid);
	assert_int_equal(sysfs_read(&sysfs, "gpu_busy_percent").value, 0);
	assert_int_equal(sysfs_read(&sysfs, "mem_busy_percent").value, 12);
	assert_false(sysfs_read(&sysfs, "missing").is_valid);
	assert_false(sysfs_read_hwmon(&sysfs, "power1_average").is_valid);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		put(bad[i], "0000:03:00.0/bad");
		assert_false(sysfs_read(&sysfs, "bad").is_valid);
	}
}

TEST(test_sysfs__no_sensors, set_up, tear_down)
{
	struct sysfs sysfs;

	put("5\n", "0000:03:00.0/gpu_busy_percent");
	sysfs_init(&sysfs, root, first);
	assert_int_equal(sysfs_read(&sysfs, "gpu_busy_percent").value, 5);
	assert_false(sysfs_read_hwmon(&sysfs, "temp1_input").is_valid);
	sysfs_init(&sysfs, root, second);
	assert_false(sysfs_read(&sysfs, "gpu_busy_percent").is_valid);
}

TEST(test_sysfs__asleep, set_up, tear_down)
{
	struct sysfs sysfs;

	put("active\n", "0000:03:00.0/power/runtime_status");
	sysfs_init(&sysfs, root, first);
	assert_false(sysfs_is_asleep(&sysfs));
	put("suspended\n", "0000:03:00.0/power/runtime_status");
	assert_true(sysfs_is_asleep(&sysfs));
	put("unsupported\n", "0000:03:00.0/power/runtime_status");
	assert_false(sysfs_is_asleep(&sysfs));
	sysfs_init(&sysfs, root, second);
	assert_false(sysfs_is_asleep(&sysfs));
}
