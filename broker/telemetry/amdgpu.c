/* SPDX-License-Identifier: MIT */
/*
 * Queries of amdgpu
 *
 * All values come from the INFO ioctl (amdgpu_kms.c, amdgpu_info_ioctl()), or else from sysfs. The
 * ioctl's units are bytes, MHz, percent, watts, thousandths of a degree.
 *
 * libdrm_amdgpu keeps one handle per device and process, by the name of its card node, and RADV
 * takes its handles from there, too. This has two consequences. A handle is shared: this file only
 * queries it and never changes it. And when a card is unplugged, its dead handle stays in libdrm's
 * list as long as any user in the process holds it. Its name can no longer be found, and libdrm
 * then considers it equal to every other handle (fd_compare() in amdgpu_device.c), so that a thread
 * that opens a card gets the dead handle.
 *
 * So our handle is released as soon as it is dead, and a new one is used only if it answers and
 * belongs to the node that was opened. Otherwise the node is queried through a descriptor of our
 * own, as libdrm would do it: the other holders may be waiting for our report that the device is
 * back before they let go.
 *
 * amdgpu_device_initialize() dereferences NULL if the driver does not tell its version, so the
 * version is queried first.
 */
#include "telemetry/amdgpu.h"

#include <amdgpu.h>
#include <amdgpu_drm.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <xf86drm.h>

#include "telemetry/sysfs.h"
#include "util/error.h"

/* Newer than Debian 12's header; an older kernel answers EINVAL. */
#ifndef AMDGPU_INFO_SENSOR_GPU_INPUT_POWER
#define AMDGPU_INFO_SENSOR_GPU_INPUT_POWER 0xc
#endif

enum { MAX_NODES = 64 };

struct amdgpu {
	amdgpu_device_handle handle;   /* NULL: libdrm has only the dead handle */
	int fd;                        /* descriptor of the node if handle is NULL; else -1 */
	amdgpu_context_handle context; /* reports resets; NULL: the driver gave none */
	struct sysfs sysfs;
	struct reading n_vram_lost; /* the driver's count at the last sample */
	bool is_integrated;
	char pci[TELEMETRY_PCI_BYTES];
};

struct nodes {
	drmDevicePtr devices[MAX_NODES];
	int n;
};

static void nodes_deinit(struct nodes *nodes)
{
	if (nodes->n > 0)
		drmFreeDevices(nodes->devices, nodes->n);
}

static void nodes_init(struct nodes *nodes)
{
	nodes->n = drmGetDevices2(0, nodes->devices, MAX_NODES);
}

bool amdgpu_is_built(void)
{
	return true;
}

/*
 * Fill in the address and the number of a node. Return: false if it is not a PCI device with a
 * render node.
 */
static bool describe(drmDevicePtr node, struct telemetry_device *ret)
{
	struct telemetry_device device = {.index = 0};
	struct stat info;

	if (node->bustype != DRM_BUS_PCI || !(node->available_nodes & (1 << DRM_NODE_RENDER)))
		return false;
	device.has_pci = true;
	device.pci_domain = node->businfo.pci->domain;
	device.pci_bus = node->businfo.pci->bus;
	device.pci_device = node->businfo.pci->dev;
	device.pci_function = node->businfo.pci->func;
	if (stat(node->nodes[DRM_NODE_RENDER], &info) == 0 && S_ISCHR(info.st_mode)) {
		device.has_render = true;
		device.render_major = major(info.st_rdev);
		device.render_minor = minor(info.st_rdev);
	}
	*ret = device;
	return true;
}

static bool is_same(const struct telemetry_device *a, const struct telemetry_device *b)
{
	if (a->has_pci && b->has_pci)
		return a->pci_domain == b->pci_domain && a->pci_bus == b->pci_bus &&
		       a->pci_device == b->pci_device && a->pci_function == b->pci_function;
	return a->has_render && b->has_render && a->render_major == b->render_major &&
	       a->render_minor == b->render_minor;
}

/* Return: true if the descriptor belongs to the amdgpu driver, and the driver answers. */
static bool is_amdgpu(int fd)
{
	drmVersionPtr version = drmGetVersion(fd);
	bool is;

	if (!version)
		return false;
	is = version->name && strcmp(version->name, "amdgpu") == 0;
	drmFreeVersion(version);
	return is;
}

unsigned int amdgpu_list(struct telemetry_device *ret, unsigned int max)
{
	_cleanup_(nodes_deinit) struct nodes nodes = {.n = 0};
	unsigned int n = 0;
	int fd;

	nodes_init(&nodes);
	for (int i = 0; i < nodes.n && n < max; i++) {
		if (!describe(nodes.devices[i], &ret[n]))
			continue;
		fd = open(nodes.devices[i]->nodes[DRM_NODE_RENDER], O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (is_amdgpu(fd))
			n++;
		close_fd(fd);
	}
	return n;
}

/* Call the INFO ioctl. @sensor is for AMDGPU_INFO_SENSOR only. Return: 0 or negative errno. */
static int ask(const struct amdgpu *amdgpu, unsigned int id, unsigned int sensor, void *ret,
	       unsigned int bytes)
{
	struct drm_amdgpu_info request = {
		.return_pointer = (uintptr_t)ret, .return_size = bytes, .query = id};

	if (amdgpu->handle && id == AMDGPU_INFO_SENSOR)
		return amdgpu_query_sensor_info(amdgpu->handle, sensor, bytes, ret);
	if (amdgpu->handle)
		return amdgpu_query_info(amdgpu->handle, id, bytes, ret);
	request.sensor_info.type = sensor;
	return drmCommandWrite(amdgpu->fd, DRM_AMDGPU_INFO, &request, sizeof(request));
}

/* Read one number of the INFO ioctl, of 4 or 8 bytes, as the query defines. */
static struct reading query(const struct amdgpu *amdgpu, unsigned int id, unsigned int bytes)
{
	struct reading reading = {0, false};
	uint64_t value = 0;
	uint32_t half = 0;

	if (ask(amdgpu, id, 0, bytes == sizeof(half) ? (void *)&half : (void *)&value, bytes) == 0)
		reading = (struct reading){bytes == sizeof(half) ? half : value, true};
	return reading;
}

static struct reading sensor(const struct amdgpu *amdgpu, unsigned int id, uint64_t unit)
{
	struct reading reading = {0, false};
	uint32_t value = 0;

	if (ask(amdgpu, AMDGPU_INFO_SENSOR, id, &value, sizeof(value)) == 0)
		reading = (struct reading){value * unit, true};
	return reading;
}

/*
 * Renew the context, with which resets that lose no contents are noticed. A device can be watched
 * without one.
 */
static void context_renew(struct amdgpu *amdgpu)
{
	if (amdgpu->context)
		amdgpu_cs_ctx_free(amdgpu->context);
	amdgpu->context = NULL;
	if (amdgpu->handle && amdgpu_cs_ctx_create(amdgpu->handle, &amdgpu->context))
		amdgpu->context = NULL;
}

/*
 * Return true if the handle is live and of the same node as @fd. libdrm may have had the handle
 * before; then the handle has another descriptor of the same node.
 */
static bool is_handle_of(amdgpu_device_handle handle, int fd)
{
	struct stat ours, theirs;
	uint64_t used;

	return fstat(fd, &ours) == 0 && fstat(amdgpu_device_get_fd(handle), &theirs) == 0 &&
	       ours.st_rdev == theirs.st_rdev &&
	       amdgpu_query_info(handle, AMDGPU_INFO_VRAM_USAGE, sizeof(used), &used) == 0;
}

static int open_node(const char *path, const struct telemetry_device *found, struct amdgpu **ret,
		     char ret_why[static TELEMETRY_WHY_BYTES])
{
	_cleanup_(amdgpu_freep) struct amdgpu *amdgpu = NULL;
	_cleanup_(close_fdp) int fd = -1;
	struct drm_amdgpu_info_device info = {.ids_flags = 0};
	uint32_t major_version, minor_version;
	int r;

	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
			return AMDGPU_E_NONE;
		snprintf(ret_why, TELEMETRY_WHY_BYTES, "%s: %s", path, strerror(errno));
		return AMDGPU_E_UNUSABLE;
	}
	if (!is_amdgpu(fd))
		return AMDGPU_E_NONE;

	amdgpu = calloc(1, sizeof(*amdgpu));
	if (!amdgpu)
		return error_origin(-ENOMEM);
	amdgpu->fd = -1;
	r = amdgpu_device_initialize(fd, &major_version, &minor_version, &amdgpu->handle);
	if (r) {
		amdgpu->handle = NULL;
		snprintf(ret_why, TELEMETRY_WHY_BYTES, "%s: the driver does not answer: %s", path,
			 strerror(r < 0 ? -r : EIO));
		return AMDGPU_E_UNUSABLE;
	}
	if (!is_handle_of(amdgpu->handle, fd)) {
		amdgpu_device_deinitialize(amdgpu->handle);
		amdgpu->handle = NULL;
		amdgpu->fd = steal_fd(&fd);
	}
	snprintf(amdgpu->pci, sizeof(amdgpu->pci), "%04x:%02x:%02x.%x", found->pci_domain,
		 found->pci_bus, found->pci_device, found->pci_function & 7u);
	sysfs_init(&amdgpu->sysfs, "/sys/bus/pci/devices", amdgpu->pci);
	if (ask(amdgpu, AMDGPU_INFO_DEV_INFO, 0, &info, sizeof(info)) == 0)
		amdgpu->is_integrated = (info.ids_flags & AMDGPU_IDS_FLAGS_FUSION) != 0;
	amdgpu->n_vram_lost = query(amdgpu, AMDGPU_INFO_VRAM_LOST_COUNTER, 4);
	context_renew(amdgpu);
	*ret = steal_ptr(amdgpu);
	return 0;
}

int amdgpu_open(struct telemetry_device *device, struct amdgpu **ret,
		char ret_why[static TELEMETRY_WHY_BYTES])
{
	_cleanup_(nodes_deinit) struct nodes nodes = {.n = 0};
	struct telemetry_device found;
	int r = AMDGPU_E_NONE;

	nodes_init(&nodes);
	for (int i = 0; i < nodes.n; i++) {
		if (!describe(nodes.devices[i], &found) || !is_same(&found, device))
			continue;
		r = open_node(nodes.devices[i]->nodes[DRM_NODE_RENDER], &found, ret, ret_why);
		break;
	}
	if (r == 0) {
		device->has_pci = true;
		device->pci_domain = found.pci_domain;
		device->pci_bus = found.pci_bus;
		device->pci_device = found.pci_device;
		device->pci_function = found.pci_function;
	}
	return r;
}

struct amdgpu *amdgpu_free(struct amdgpu *amdgpu)
{
	if (!amdgpu)
		return NULL;
	if (amdgpu->context)
		amdgpu_cs_ctx_free(amdgpu->context);
	if (amdgpu->handle)
		amdgpu_device_deinitialize(amdgpu->handle);
	close_fd(amdgpu->fd);
	free(amdgpu);
	return NULL;
}

const char *amdgpu_pci(const struct amdgpu *amdgpu)
{
	return amdgpu->pci;
}

bool amdgpu_is_asleep(const struct amdgpu *amdgpu)
{
	return sysfs_is_asleep(&amdgpu->sysfs);
}

static struct memory_reading heap(const struct drm_amdgpu_heap_info *info)
{
	/* max_allocation limits one buffer and says nothing about the heap. */
	return (struct memory_reading){
		.total = {info->total_heap_size, true},
		.usable = {info->usable_heap_size, true},
		.used = {info->heap_usage, true},
	};
}

/* Return: 0 or AMDGPU_E_GONE. */
static int sample_memory(struct amdgpu *amdgpu, struct device_reading *reading)
{
	struct drm_amdgpu_memory_info memory;
	struct drm_amdgpu_info_vram_gtt sizes;
	int r;

	r = ask(amdgpu, AMDGPU_INFO_MEMORY, 0, &memory, sizeof(memory));
	if (r == 0) {
		reading->vram = heap(&memory.vram);
		reading->visible_vram = heap(&memory.cpu_accessible_vram);
		reading->gtt = heap(&memory.gtt);
		return 0;
	}
	if (r == -ENODEV)
		return AMDGPU_E_GONE;

	/* Kernels before 4.10: sizes are usable sizes, and VRAM's total is unknown. */
	reading->vram = reading->visible_vram = reading->gtt = (struct memory_reading){
		.total = {0, false},
	};
	r = ask(amdgpu, AMDGPU_INFO_VRAM_GTT, 0, &sizes, sizeof(sizes));
	if (r == -ENODEV)
		return AMDGPU_E_GONE;
	if (r == 0) {
		reading->vram.usable = (struct reading){sizes.vram_size, true};
		reading->visible_vram.usable =
			(struct reading){sizes.vram_cpu_accessible_size, true};
		reading->gtt.usable = (struct reading){sizes.gtt_size, true};
	}
	reading->vram.used = query(amdgpu, AMDGPU_INFO_VRAM_USAGE, 8);
	reading->visible_vram.used = query(amdgpu, AMDGPU_INFO_VIS_VRAM_USAGE, 8);
	reading->gtt.used = query(amdgpu, AMDGPU_INFO_GTT_USAGE, 8);
	return 0;
}

int amdgpu_sample(struct amdgpu *amdgpu, struct device_reading *reading,
		  struct reading *ret_n_vram_lost, bool *ret_was_reset)
{
	struct reading n_vram_lost;
	uint64_t flags = 0;
	int r;

	r = sample_memory(amdgpu, reading);
	if (r)
		return r;
	reading->is_integrated = amdgpu->is_integrated;
	reading->n_evictions = query(amdgpu, AMDGPU_INFO_NUM_EVICTIONS, 8);
	reading->bytes_moved = query(amdgpu, AMDGPU_INFO_NUM_BYTES_MOVED, 8);
	reading->n_page_faults = query(amdgpu, AMDGPU_INFO_NUM_VRAM_CPU_PAGE_FAULTS, 8);

	n_vram_lost = query(amdgpu, AMDGPU_INFO_VRAM_LOST_COUNTER, 4);
	*ret_was_reset = n_vram_lost.is_valid && amdgpu->n_vram_lost.is_valid &&
			 n_vram_lost.value != amdgpu->n_vram_lost.value;
	if (n_vram_lost.is_valid)
		amdgpu->n_vram_lost = n_vram_lost;
	*ret_n_vram_lost = n_vram_lost;

	/* A context remembers the driver's count of resets at its creation. */
	if (amdgpu->context && amdgpu_cs_query_reset_state2(amdgpu->context, &flags) == 0 &&
	    (flags & AMDGPU_CTX_QUERY2_FLAGS_RESET))
		*ret_was_reset = true;
	if (*ret_was_reset)
		context_renew(amdgpu);
	return 0;
}

/* Read the temperature; a reading cannot hold a temperature below zero. */
static struct reading temperature(const struct amdgpu *amdgpu)
{
	struct reading reading = sensor(amdgpu, AMDGPU_INFO_SENSOR_GPU_TEMP, 1);

	reading.is_valid = reading.is_valid && reading.value <= INT32_MAX;
	return reading;
}

static struct reading either(struct reading first, struct reading second)
{
	return first.is_valid ? first : second;
}

void amdgpu_sample_sensors(struct amdgpu *amdgpu, struct device_reading *reading)
{
	const struct sysfs *sysfs = &amdgpu->sysfs;
	const uint64_t mhz = 1000000, watt = 1000000;

	reading->load_percent = either(sensor(amdgpu, AMDGPU_INFO_SENSOR_GPU_LOAD, 1),
				       sysfs_read(sysfs, "gpu_busy_percent"));
	reading->memory_load_percent = sysfs_read(sysfs, "mem_busy_percent");
	reading->gpu_hz = either(sensor(amdgpu, AMDGPU_INFO_SENSOR_GFX_SCLK, mhz),
				 sysfs_read_hwmon(sysfs, "freq1_input"));
	reading->memory_hz = either(sensor(amdgpu, AMDGPU_INFO_SENSOR_GFX_MCLK, mhz),
				    sysfs_read_hwmon(sysfs, "freq2_input"));
	reading->temperature_millicelsius =
		either(temperature(amdgpu), sysfs_read_hwmon(sysfs, "temp1_input"));
	reading->power_microwatts = sensor(amdgpu, AMDGPU_INFO_SENSOR_GPU_AVG_POWER, watt);
	if (!reading->power_microwatts.is_valid)
		reading->power_microwatts =
			sensor(amdgpu, AMDGPU_INFO_SENSOR_GPU_INPUT_POWER, watt);
	if (!reading->power_microwatts.is_valid)
		reading->power_microwatts = either(sysfs_read_hwmon(sysfs, "power1_average"),
						   sysfs_read_hwmon(sysfs, "power1_input"));
}
