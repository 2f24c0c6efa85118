/* SPDX-License-Identifier: MIT */
/*
 * Simulated cards through the real libdrm_amdgpu: identity, figures, resets and unplugging
 *
 * Runs over two cards: card0 a Polaris, card1 an APU.
 */
#include "rig.h"
#include <errno.h>
#include <fcntl.h>
#include <libdrm/drm.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include <xf86drm.h>

#define PCI_FOLDER "/sys/bus/pci/devices/0000:e3:00.0"

static uint32_t sensor(const struct rig *rig, unsigned type)
{
	uint32_t value = 0;

	assert_int_equal(amdgpu_query_sensor_info(rig->device, type, sizeof(value), &value), 0);
	return value;
}

TEST(test_query__two_cards)
{
	drmDevicePtr devices[4];
	struct amdgpu_gpu_info info;
	int n = drmGetDevices2(DRM_DEVICE_GET_PCI_REVISION, devices, 4);

	assert_int_equal(n, 2);
	for (int i = 0; i < n; i++) {
		bool is_first = !strcmp(devices[i]->nodes[DRM_NODE_RENDER], "/dev/dri/renderD128");

		assert_int_equal(devices[i]->bustype, DRM_BUS_PCI);
		assert_int_equal(devices[i]->businfo.pci->bus, is_first ? 0xe3 : 0xe4);
		assert_int_equal(devices[i]->deviceinfo.pci->vendor_id, 0x1002);
		assert_int_equal(devices[i]->deviceinfo.pci->device_id, is_first ? 0x67df : 0x1638);
		assert_int_equal(devices[i]->deviceinfo.pci->revision_id, is_first ? 0xe7 : 0xc8);
	}
	drmFreeDevices(devices, n);

	RIG(rig, 0);
	assert_string_equal(amdgpu_get_marketing_name(rig.device), "AMD Radeon RX 580 Series");
	assert_int_equal(amdgpu_query_gpu_info(rig.device, &info), 0);
	assert_int_equal(info.cu_active_number, 36);
	assert_false(info.ids_flags & AMDGPU_IDS_FLAGS_FUSION);
	assert_true(rig_memory(&rig).vram.total_heap_size == 8 * GIB);
	assert_true(rig_memory(&rig).vram.usable_heap_size < 8 * GIB);
	assert_true(rig_memory(&rig).cpu_accessible_vram.total_heap_size == 256 * MIB);
	assert_true(rig_memory(&rig).gtt.total_heap_size == 16 * GIB);
}

TEST(test_query__apu)
{
	struct amdgpu_gpu_info info;

	RIG(rig, 1);
	assert_int_equal(amdgpu_query_gpu_info(rig.device, &info), 0);
	assert_true(info.ids_flags & AMDGPU_IDS_FLAGS_FUSION);
	assert_true(rig_memory(&rig).vram.total_heap_size == 512 * MIB);
	assert_true(rig_memory(&rig).cpu_accessible_vram.total_heap_size == 512 * MIB);
	assert_true(rig_memory(&rig).gtt.total_heap_size == 12 * GIB);
}

TEST(test_sensors__values_and_absence)
{
	uint32_t value;
	char text[64];

	RIG(rig, 0);
	rig_control("set load=80 sclk=1340 mclk=2000 temperature=71.5 power=180 vddgfx=1100");
	assert_int_equal(sensor(&rig, AMDGPU_INFO_SENSOR_GPU_LOAD), 80);
	assert_int_equal(sensor(&rig, AMDGPU_INFO_SENSOR_GFX_SCLK), 1340);
	assert_int_equal(sensor(&rig, AMDGPU_INFO_SENSOR_GFX_MCLK), 2000);
	assert_int_equal(sensor(&rig, AMDGPU_INFO_SENSOR_GPU_TEMP), 71500);
	assert_int_equal(sensor(&rig, AMDGPU_INFO_SENSOR_GPU_AVG_POWER), 180);
	assert_int_equal(sensor(&rig, AMDGPU_INFO_SENSOR_VDDGFX), 1100);
	assert_true(rig_read(PCI_FOLDER "/gpu_busy_percent", text, sizeof(text)));
	assert_string_equal(text, "80\n");
	assert_true(rig_read(PCI_FOLDER "/hwmon/hwmon90/temp1_input", text, sizeof(text)));
	assert_string_equal(text, "71500\n");
	assert_true(rig_read("/sys/class/hwmon/hwmon90/power1_average", text, sizeof(text)));
	assert_string_equal(text, "180000000\n");

	rig_control("set temperature=absent power=absent");
	assert_int_equal(amdgpu_query_sensor_info(rig.device, AMDGPU_INFO_SENSOR_GPU_TEMP,
						  sizeof(value), &value),
			 -EINVAL);
	assert_int_equal(amdgpu_query_sensor_info(rig.device, AMDGPU_INFO_SENSOR_GPU_AVG_POWER,
						  sizeof(value), &value),
			 -EINVAL);
	assert_false(rig_read(PCI_FOLDER "/hwmon/hwmon90/temp1_input", text, sizeof(text)));
	assert_int_equal(sensor(&rig, AMDGPU_INFO_SENSOR_GPU_LOAD), 80);

	rig_control("set temperature=35 power=34 load=0");
	assert_int_equal(sensor(&rig, AMDGPU_INFO_SENSOR_GPU_TEMP), 35000);
	assert_true(rig_read(PCI_FOLDER "/hwmon/hwmon90/temp1_input", text, sizeof(text)));
}

/* Programs keep a descriptor of sysfs open and read it repeatedly. */
TEST(test_sysfs__kept_open)
{
	char text[16] = "";
	int fd = open(PCI_FOLDER "/gpu_busy_percent", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	rig_control("set load=7");
	assert_int_equal(pread(fd, text, sizeof(text), 0), 2);
	assert_string_equal(text, "7\n");
	rig_control("set load=100");
	assert_int_equal(pread(fd, text, sizeof(text), 0), 4);
	assert_string_equal(text, "100\n");
	rig_control("set load=0");
	close(fd);
}

TEST(test_node__is_a_device)
{
	char path[64], target[64];
	struct stat about;
	ssize_t n;
	int fd = open("/dev/dri/renderD129", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &about), 0);
	assert_true(S_ISCHR(about.st_mode));
	assert_int_equal(about.st_rdev, makedev(226, 129));
	assert_int_equal(stat("/dev/dri/card0", &about), 0);
	assert_true(S_ISCHR(about.st_mode));
	assert_int_equal(about.st_rdev, makedev(226, 0));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof(target) - 1);
	assert_int_equal(n, strlen("/dev/dri/renderD129"));
	target[n] = '\0';
	assert_string_equal(target, "/dev/dri/renderD129");
	assert_int_equal(stat(path, &about), 0);
	assert_int_equal(about.st_rdev, makedev(226, 129));
	close(fd);
	assert_int_equal(open("/dev/dri/renderD130", O_RDWR), -1);
	assert_int_equal(errno, ENOENT);
}

/* Files outside the simulator behave as without it. */
TEST(test_preload__ignores_other_files)
{
	/* The pointer's type does not forbid NULL, unlike the declaration. */
	int (*volatile opener)(const char *path, int flags, ...) = open;
	struct stat about;
	char text[64];

	assert_int_equal(stat("/proc/self/status", &about), 0);
	assert_true(S_ISREG(about.st_mode));
	assert_int_equal(open("/dev/dri2", O_RDONLY), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(opener(NULL, O_RDONLY), -1);
	assert_int_equal(errno, EFAULT);
	assert_true(rig_read("/proc/self/fdinfo/0", text, sizeof(text)));
	assert_null(strstr(text, "drm-"));
	assert_int_equal(ioctl(0, DRM_IOCTL_VERSION, text), -1);
}

TEST(test_fdinfo__of_another_process)
{
	char path[64], text[4096], copy_path[64];
	pid_t hog = rig_hog("hog card1 --vram 128MiB --gtt 64MiB");
	int copy;

	/* The test must search for the descriptor, as any program must. */
	for (int fd = 0; fd < 32; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", hog, fd);
		if (rig_read(path, text, sizeof(text)) && strstr(text, "drm-driver"))
			break;
	}
	assert_non_null(strstr(text, "drm-driver:\tamdgpu\n"));
	assert_non_null(strstr(text, "drm-pdev:\t0000:e4:00.0\n"));
	assert_null(strstr(text, "lock:"));
	assert_null(strstr(text, "drm-total-vram"));
	assert_true(rig_fdinfo_bytes(path, "drm-memory-vram") == 128 * MIB);
	assert_true(rig_fdinfo_bytes(path, "drm-memory-gtt") == 64 * MIB);

	rig_control("set card1 kernel=6.14");
	assert_true(rig_fdinfo_bytes(path, "drm-total-vram") == 128 * MIB);
	assert_true(rig_fdinfo_bytes(path, "drm-resident-vram") == 128 * MIB);
	assert_true(rig_fdinfo_bytes(path, "drm-shared-vram") == 0);
	assert_true(rig_fdinfo_bytes(path, "drm-memory-gtt") == 64 * MIB);
	rig_control("set card1 kernel=6.1");

	RIG(rig, 1);
	assert_true(rig_memory(&rig).vram.heap_usage == 128 * MIB);
	/* A duplicate is the same client; another open() makes another client. */
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", rig.fd);
	copy = dup(rig.fd);
	snprintf(copy_path, sizeof(copy_path), "/proc/self/fdinfo/%d", copy);
	assert_true(rig_fdinfo_bytes(path, "drm-client-id") ==
		    rig_fdinfo_bytes(copy_path, "drm-client-id"));
	close(copy);
	rig_kill(hog);
	assert_true(rig_memory(&rig).vram.heap_usage == 0);
}

TEST(test_fdinfo__engines)
{
	amdgpu_context_handle context;
	char path[64], text[4096];
	amdgpu_bo_handle bo;
	int folder, fd;
	ssize_t n;

	RIG(rig, 0);
	rig_control("set job-ns=5000000");
	bo = rig_allocate(&rig, AMDGPU_GEM_DOMAIN_GTT, MIB, 0);
	assert_int_equal(amdgpu_cs_ctx_create(rig.device, &context), 0);
	assert_int_equal(rig_submit(&rig, context, bo), 0);
	assert_int_equal(rig_submit(&rig, context, bo), 0);
	/*
	 * libdrm uses a duplicate of the descriptor. Read fdinfo as a program does that walks
	 * /proc.
	 */
	folder = open("/proc/self/fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(folder >= 0);
	snprintf(path, sizeof(path), "%d", rig.fd);
	fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
	n = read(fd, text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = '\0';
	close(fd);
	close(folder);
	assert_non_null(strstr(text, "drm-engine-compute:\t10000000 ns\n"));
	assert_null(strstr(text, "drm-engine-gfx"));
	rig_control("set job-ns=1000000");
	amdgpu_cs_ctx_free(context);
	rig_free(bo);
}

TEST(test_failure__of_one_call)
{
	struct drm_amdgpu_memory_info memory;
	amdgpu_bo_handle bo;

	RIG(rig, 0);
	rig_control("fail card0 GEM_CREATE ENOMEM 2");
	rig_control("fail card0 INFO_MEMORY EINVAL forever");
	assert_int_equal(rig_try_allocate(&rig, AMDGPU_GEM_DOMAIN_VRAM, MIB, 0, &bo), -ENOMEM);
	assert_int_equal(rig_try_allocate(&rig, AMDGPU_GEM_DOMAIN_VRAM, MIB, 0, &bo), -ENOMEM);
	assert_int_equal(rig_try_allocate(&rig, AMDGPU_GEM_DOMAIN_VRAM, MIB, 0, &bo), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(
			amdgpu_query_info(rig.device, AMDGPU_INFO_MEMORY, sizeof(memory), &memory),
			-EINVAL);
	assert_true(rig_query(&rig, AMDGPU_INFO_VRAM_USAGE) == MIB);
	rig_control("fail card0 INFO_MEMORY EINVAL 0");
	assert_true(rig_memory(&rig).vram.heap_usage == MIB);
	rig_free(bo);
}

TEST(test_version__older_driver)
{
	struct rig rig;

	rig_control("set drm-minor=27");
	rig_open(&rig, 0);
	assert_int_equal(rig.minor, 27);
	rig_close(&rig);
	rig_control("set drm-minor=49");
}

TEST(test_reset__contexts_are_told)
{
	amdgpu_context_handle context, later;
	amdgpu_bo_handle bo;
	uint32_t status, hangs;
	uint64_t flags;

	RIG(rig, 0);
	bo = rig_allocate(&rig, AMDGPU_GEM_DOMAIN_VRAM, MIB, 0);
	assert_int_equal(amdgpu_cs_ctx_create(rig.device, &context), 0);
	assert_int_equal(rig_submit(&rig, context, bo), 0);
	rig_control("reset card0 --innocent");
	assert_int_equal(amdgpu_cs_query_reset_state(context, &status, &hangs), 0);
	assert_int_equal(status, AMDGPU_CTX_UNKNOWN_RESET);
	assert_int_equal(rig_submit(&rig, context, bo), 0);

	rig_control("reset card0 --vram-lost");
	assert_int_equal(amdgpu_cs_query_reset_state2(context, &flags), 0);
	assert_int_equal(flags, AMDGPU_CTX_QUERY2_FLAGS_RESET | AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST |
					AMDGPU_CTX_QUERY2_FLAGS_GUILTY);
	assert_int_equal(rig_submit(&rig, context, bo), -ECANCELED);
	/* Kernels report ENODATA after a soft recovery. */
	rig_control("fail card0 CS ENODATA 1");
	assert_int_equal(rig_submit(&rig, context, bo), -ENODATA);
	assert_int_equal(rig_submit(&rig, context, bo), -ECANCELED);
	assert_true(rig_query(&rig, AMDGPU_INFO_VRAM_LOST_COUNTER) == 1);

	/* A context made after the reset works. */
	assert_int_equal(amdgpu_cs_ctx_create(rig.device, &later), 0);
	assert_int_equal(rig_submit(&rig, later, bo), 0);
	amdgpu_cs_ctx_free(context);
	amdgpu_cs_ctx_free(later);
	rig_free(bo);
}

TEST(test_unplug__and_plug)
{
	struct drm_amdgpu_memory_info memory;
	drmDevicePtr devices[4];
	amdgpu_bo_handle bo;
	struct rig old, rig;
	char text[64];
	int n;

	rig_open(&old, 0);
	bo = rig_allocate(&old, AMDGPU_GEM_DOMAIN_VRAM, MIB, 0);
	rig_control("unplug card0");
	assert_int_equal(amdgpu_query_info(old.device, AMDGPU_INFO_MEMORY, sizeof(memory), &memory),
			 -ENODEV);
	assert_int_equal(open("/dev/dri/renderD128", O_RDWR), -1);
	assert_int_equal(errno, ENOENT);
	assert_false(rig_read(PCI_FOLDER "/vendor", text, sizeof(text)));
	n = drmGetDevices2(0, devices, 4);
	assert_int_equal(n, 1);
	drmFreeDevices(devices, n);

	rig_control("plug card0");
	rig_control("plug card0");
	assert_true(rig_read(PCI_FOLDER "/vendor", text, sizeof(text)));
	/* A client from before stays dead: its device was another one. */
	assert_int_equal(amdgpu_query_info(old.device, AMDGPU_INFO_MEMORY, sizeof(memory), &memory),
			 -ENODEV);
	amdgpu_bo_free(bo);
	amdgpu_device_deinitialize(old.device);
	close(old.fd);
	rig_open(&rig, 0);
	assert_true(rig_memory(&rig).vram.heap_usage == 0);
	rig_close(&rig);
}

static void *query_once(void *data)
{
	static struct drm_amdgpu_memory_info memory;

	memory = rig_memory(data);
	return &memory;
}

static bool is_suspended(void)
{
	char text[32];

	return rig_read(PCI_FOLDER "/power/runtime_status", text, sizeof(text)) &&
	       !strcmp(text, "suspended\n");
}

TEST(test_suspend__calls_wait)
{
	const struct drm_amdgpu_memory_info *memory;
	amdgpu_bo_handle bo;
	pthread_t thread;
	uint64_t n_evictions;
	char text[32];

	RIG(rig, 0);
	bo = rig_allocate(&rig, AMDGPU_GEM_DOMAIN_VRAM, 64 * MIB, 0);
	n_evictions = rig_query(&rig, AMDGPU_INFO_NUM_EVICTIONS);
	rig_control("suspend card0");
	assert_true(is_suspended());
	assert_false(rig_read(PCI_FOLDER "/gpu_busy_percent", text, sizeof(text)));
	assert_int_equal(errno, EPERM);
	assert_int_equal(pthread_create(&thread, NULL, query_once, &rig), 0);
	usleep(20000);
	assert_int_equal(pthread_tryjoin_np(thread, (void **)&memory), EBUSY);
	rig_control("resume card0");
	assert_int_equal(pthread_join(thread, (void **)&memory), 0);
	/* VRAM loses power during suspend, so its content was evicted. */
	assert_true(memory->vram.heap_usage == 0);
	assert_true(memory->gtt.heap_usage == 64 * MIB);
	assert_true(rig_query(&rig, AMDGPU_INFO_NUM_EVICTIONS) == n_evictions + 1);
	rig_free(bo);
}

static int64_t in_ns(int64_t ns)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec + ns;
}

struct signaller {
	const struct rig *rig;
	uint32_t handle;
};

static void *signal_later(void *data)
{
	const struct signaller *signaller = data;
	uint32_t handle = signaller->handle;
	uint64_t point = 3;

	usleep(10000);
	assert_int_equal(
		amdgpu_cs_syncobj_timeline_signal(signaller->rig->device, &handle, &point, 1), 0);
	return NULL;
}

TEST(test_syncobj__waits)
{
	struct signaller signaller;
	uint64_t point = 3, reached;
	uint32_t handle, first;
	pthread_t thread;

	RIG(rig, 0);
	assert_int_equal(amdgpu_cs_create_syncobj(rig.device, &handle), 0);
	/*
	 * Without a submission the wait fails at once, or times out if the caller permits a later
	 * fence.
	 */
	assert_int_equal(amdgpu_cs_syncobj_wait(rig.device, &handle, 1, 0, 0, &first), -EINVAL);
	assert_int_equal(amdgpu_cs_syncobj_wait(rig.device, &handle, 1, in_ns(3000000),
						DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT, &first),
			 -ETIME);
	signaller = (struct signaller){.rig = &rig, .handle = handle};
	assert_int_equal(pthread_create(&thread, NULL, signal_later, &signaller), 0);
	assert_int_equal(amdgpu_cs_syncobj_timeline_wait(
				 rig.device, &handle, &point, 1, in_ns(60000000000ll),
				 DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT, &first),
			 0);
	pthread_join(thread, NULL);
	assert_int_equal(amdgpu_cs_syncobj_query(rig.device, &handle, &reached, 1), 0);
	assert_int_equal(reached, 3);
	assert_int_equal(amdgpu_cs_syncobj_reset(rig.device, &handle, 1), 0);
	assert_int_equal(amdgpu_cs_syncobj_wait(rig.device, &handle, 1, 0, 0, &first), -EINVAL);
	assert_int_equal(amdgpu_cs_syncobj_signal(rig.device, &handle, 1), 0);
	assert_int_equal(amdgpu_cs_syncobj_wait(rig.device, &handle, 1, 0, 0, &first), 0);
	assert_int_equal(amdgpu_cs_destroy_syncobj(rig.device, handle), 0);
}

TEST(test_control__wrong_use)
{
	assert_int_equal(rig_try("set nonsense=1"), 2);
	assert_int_equal(rig_try("set load=101"), 2);
	assert_int_equal(rig_try("set load"), 2);
	assert_int_equal(rig_try("set temperature=71000"), 2);
	assert_int_equal(rig_try("set other-vram=much"), 2);
	assert_int_equal(rig_try("set card2 load=1"), 2);
	assert_int_equal(rig_try("fail card0 GEM_CREATE ENONSENSE 1"), 2);
	assert_int_equal(rig_try("fail card0 NONSENSE ENOMEM 1"), 2);
	assert_int_equal(rig_try("fail card0 GEM_CREATE ENOMEM -1"), 2);
	assert_int_equal(rig_try("hog --vram"), 2);
	assert_int_equal(rig_try("dance"), 2);
	assert_int_equal(rig_try("show card0 twice"), 2);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	rig_control_path = argv[1];
	return test_run(NULL, NULL);
}
