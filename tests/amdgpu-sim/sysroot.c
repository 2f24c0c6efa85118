/* SPDX-License-Identifier: MIT */
/*
 * A card in /sys, in the layout of drm_sysfs.c, pci-sysfs.c and amdgpu_pm.c
 *
 * The PCI device is below a root bridge; its DRM minors and its hwmon are below the device. Links
 * in /sys/class, /sys/bus and /sys/dev/char refer to them. Links are relative, so they stay within
 * DIR/root.
 */
#include "sysroot.h"
#include "chips.h"
#include "memory.h"
#include "sys.h"
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BRIDGE     "sys/devices/pci0000:e0/0000:e0:03.1"
#define FIRST_CARD 0xe3
/* Above the numbers of a real machine. */
#define FIRST_HWMON 90

/* The simulator answers for every path below these. */
static const char *const prefixes[] = {
	"/dev/dri",
	"/sys/class/drm",
	"/sys/dev/char/226:",
	"/sys/devices/pci0000:e0",
	"/sys/bus/pci/devices/0000:e3:",
	"/sys/bus/pci/devices/0000:e4:",
	"/sys/bus/pci/devices/0000:e5:",
	"/sys/bus/pci/devices/0000:e6:",
	"/sys/class/hwmon/hwmon9",
	"/sys/bus/pci/drivers/amdgpu",
};

void sim_card_address(const struct sim_card *card, char address[16])
{
	snprintf(address, 16, "0000:%02x:00.0", (card->bus ? card->bus : FIRST_CARD) & 0xff);
}

static void root_path(char path[SIM_PATH_MAX], const char *format, va_list arguments)
{
	int n = snprintf(path, SIM_PATH_MAX, "%s/root/", sim.dir);

	vsnprintf(path + n, (size_t)(SIM_PATH_MAX - n), format, arguments);
}

/* Make a folder and its parents. */
__attribute__((format(printf, 1, 2))) static int make_folder(const char *format, ...)
{
	char path[SIM_PATH_MAX];
	va_list arguments;

	va_start(arguments, format);
	root_path(path, format, arguments);
	va_end(arguments);
	for (char *at = path + strlen(sim.dir) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		if (mkdir(path, 0777) && errno != EEXIST)
			return -errno;
		*at = '/';
	}
	return mkdir(path, 0777) && errno != EEXIST ? -errno : 0;
}

static int write_text(const char *path, const char *text)
{
	size_t n = strlen(text);
	int fd, r = 0;

	fd = sys_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return fd;
	/* Write in place: a descriptor kept open sees the new value. */
	if (pwrite(fd, text, n, 0) != (ssize_t)n || ftruncate(fd, (off_t)n))
		r = -errno;
	close(fd);
	return r;
}

/* Return the folder of the card's PCI device, below DIR/root. */
static void device_folder(const struct sim_card *card, char folder[128])
{
	char address[16];

	sim_card_address(card, address);
	snprintf(folder, 128, BRIDGE "/%s", address);
}

__attribute__((format(printf, 3, 4))) static int attribute(const struct sim_card *card,
							   const char *name, const char *format,
							   ...)
{
	char path[SIM_PATH_MAX + 256], folder[128], text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	device_folder(card, folder);
	snprintf(path, sizeof(path), "%s/root/%s/%s", sim.dir, folder, name);
	return write_text(path, text);
}

static void remove_attribute(const struct sim_card *card, const char *name)
{
	char path[SIM_PATH_MAX + 256], folder[128];

	device_folder(card, folder);
	snprintf(path, sizeof(path), "%s/root/%s/%s", sim.dir, folder, name);
	unlink(path);
}

__attribute__((format(printf, 2, 3))) static int make_link(const char *target, const char *format,
							   ...)
{
	char path[SIM_PATH_MAX];
	va_list arguments;

	va_start(arguments, format);
	root_path(path, format, arguments);
	va_end(arguments);
	return symlink(target, path) && errno != EEXIST ? -errno : 0;
}

int sim_sysroot_create(void)
{
	static const char *const folders[] = {
		"dev/dri",      "sys/class/drm",       "sys/class/hwmon",
		"sys/dev/char", "sys/bus/pci/devices", "sys/bus/pci/drivers/amdgpu",
		BRIDGE,
	};
	int r = 0;

	for (unsigned i = 0; i < sizeof(folders) / sizeof(folders[0]) && !r; i++)
		r = make_folder("%s", folders[i]);
	return r;
}

static unsigned hwmon_number(const struct sim_card *card)
{
	return FIRST_HWMON + sim_card_index(card);
}

/*
 * Write a sensor's attribute, or remove that of an absent sensor (amdgpu_pm.c,
 * hwmon_attributes_visible()).
 */
static void sensor_attribute(const struct sim_card *card, enum sim_sensor sensor, const char *name,
			     uint64_t value)
{
	if (card->is_absent[sensor])
		remove_attribute(card, name);
	else
		attribute(card, name, "%llu\n", (unsigned long long)value);
}

static void hwmon_sensor(const struct sim_card *card, enum sim_sensor sensor, const char *name,
			 uint64_t value)
{
	char path[64];

	snprintf(path, sizeof(path), "hwmon/hwmon%u/%s", hwmon_number(card), name);
	sensor_attribute(card, sensor, path, value);
}

/*
 * Write the clocks that the card supports, with a star at the present one (amdgpu_pm.c,
 * amdgpu_get_pp_dpm_sclk).
 */
static void clock_attribute(const struct sim_card *card, enum sim_sensor sensor, const char *name,
			    uint32_t low_mhz, uint32_t high_mhz)
{
	uint32_t levels[3] = {low_mhz, (low_mhz + high_mhz) / 2, high_mhz};
	uint64_t now = card->sensor[sensor];
	unsigned at = now <= levels[0] ? 0 : now <= levels[1] ? 1 : 2;

	if (card->is_absent[sensor])
		remove_attribute(card, name);
	else
		attribute(card, name, "0: %uMhz %s\n1: %uMhz %s\n2: %uMhz %s\n", levels[0],
			  at == 0 ? "*" : "", levels[1], at == 1 ? "*" : "", levels[2],
			  at == 2 ? "*" : "");
}

void sim_sysroot_refresh_memory(const struct sim_card *card)
{
	struct sim_usage usage;

	sim_memory_usage(card, &usage);
	/* amdgpu_vram_mgr.c and amdgpu_gtt_mgr.c: mem_info_*. */
	attribute(card, "mem_info_vram_used", "%llu\n", (unsigned long long)usage.vram_bytes);
	attribute(card, "mem_info_vis_vram_used", "%llu\n",
		  (unsigned long long)usage.visible_bytes);
	attribute(card, "mem_info_gtt_used", "%llu\n", (unsigned long long)usage.gtt_bytes);
}

void sim_sysroot_refresh(const struct sim_card *card)
{
	const struct sim_chip *chip = &sim_chips[card->chip];
	const uint64_t *sensor = card->sensor;

	if (!card->is_plugged)
		return;
	attribute(card, "mem_info_vram_total", "%llu\n", (unsigned long long)card->vram_bytes);
	attribute(card, "mem_info_vis_vram_total", "%llu\n",
		  (unsigned long long)card->visible_bytes);
	attribute(card, "mem_info_gtt_total", "%llu\n", (unsigned long long)card->gtt_bytes);
	sim_sysroot_refresh_memory(card);

	sensor_attribute(card, SIM_SENSOR_LOAD, "gpu_busy_percent", sensor[SIM_SENSOR_LOAD]);
	sensor_attribute(card, SIM_SENSOR_MEM_LOAD, "mem_busy_percent",
			 sensor[SIM_SENSOR_MEM_LOAD]);
	clock_attribute(card, SIM_SENSOR_SCLK, "pp_dpm_sclk", chip->sclk_mhz,
			(uint32_t)(chip->device.max_engine_clock / 1000));
	clock_attribute(card, SIM_SENSOR_MCLK, "pp_dpm_mclk", chip->mclk_mhz,
			(uint32_t)(chip->device.max_memory_clock / 1000));

	hwmon_sensor(card, SIM_SENSOR_TEMPERATURE, "temp1_input", sensor[SIM_SENSOR_TEMPERATURE]);
	/* APUs and newer kernels have the present power, other cards its average. */
	hwmon_sensor(card, SIM_SENSOR_POWER, "power1_average", sensor[SIM_SENSOR_POWER]);
	hwmon_sensor(card, SIM_SENSOR_SCLK, "freq1_input", sensor[SIM_SENSOR_SCLK] * 1000000);
	hwmon_sensor(card, SIM_SENSOR_MCLK, "freq2_input", sensor[SIM_SENSOR_MCLK] * 1000000);
	hwmon_sensor(card, SIM_SENSOR_VDDGFX, "in0_input", sensor[SIM_SENSOR_VDDGFX]);
	attribute(card, "power/runtime_status", card->is_suspended ? "suspended\n" : "active\n");
}

static int plug_minor(const struct sim_card *card, const char *class_name, uint32_t minor)
{
	char folder[128], target[256], address[16];
	int r;

	sim_card_address(card, address);
	device_folder(card, folder);
	r = make_folder("%s/drm/%s", folder, class_name);
	if (r)
		return r;
	snprintf(target, sizeof(target), "drm/%s/uevent", class_name);
	attribute(card, target, "MAJOR=%u\nMINOR=%u\nDEVNAME=dri/%s\nDEVTYPE=drm_minor\n",
		  SIM_DRM_MAJOR, minor, class_name);
	snprintf(target, sizeof(target), "drm/%s/dev", class_name);
	attribute(card, target, "%u:%u\n", SIM_DRM_MAJOR, minor);
	snprintf(target, sizeof(target), "../../../%s", address);
	make_link(target, "%s/drm/%s/device", folder, class_name);
	make_link("../../../../../../class/drm", "%s/drm/%s/subsystem", folder, class_name);

	/*
	 * sys/class/drm and sys/dev/char are two levels deep; the target below sys/ follows
	 * "../../".
	 */
	snprintf(target, sizeof(target), "../../%s/drm/%s", folder + 4, class_name);
	make_link(target, "sys/class/drm/%s", class_name);
	make_link(target, "sys/dev/char/%u:%u", SIM_DRM_MAJOR, minor);

	/* Only the file's name matters: the simulator answers open(). */
	snprintf(target, sizeof(target), "%s/root/dev/dri/%s", sim.dir, class_name);
	return write_text(target, "");
}

static int plug_hwmon(const struct sim_card *card, const char *folder)
{
	unsigned number = hwmon_number(card);
	char target[256];
	int r;

	r = make_folder("%s/hwmon/hwmon%u", folder, number);
	if (r)
		return r;
	snprintf(target, sizeof(target), "hwmon/hwmon%u/name", number);
	attribute(card, target, "amdgpu\n");
	snprintf(target, sizeof(target), "hwmon/hwmon%u/temp1_label", number);
	attribute(card, target, "edge\n");
	snprintf(target, sizeof(target), "hwmon/hwmon%u/freq1_label", number);
	attribute(card, target, "sclk\n");
	snprintf(target, sizeof(target), "hwmon/hwmon%u/freq2_label", number);
	attribute(card, target, "mclk\n");
	snprintf(target, sizeof(target), "hwmon/hwmon%u/in0_label", number);
	attribute(card, target, "vddgfx\n");
	make_link("../..", "%s/hwmon/hwmon%u/device", folder, number);
	snprintf(target, sizeof(target), "../../%s/hwmon/hwmon%u", folder + 4, number);
	return make_link(target, "sys/class/hwmon/hwmon%u", number);
}

/*
 * Write the first 64 bytes of PCI configuration space: libdrm reads them where an attribute is
 * missing.
 */
static int plug_config(const struct sim_card *card, const struct sim_chip *chip)
{
	uint8_t config[64] = {0x02, 0x10, (uint8_t)chip->device_id,
			      (uint8_t)(chip->device_id >> 8)};
	char path[SIM_PATH_MAX + 256], folder[128];
	int fd, r = 0;

	config[8] = chip->revision;
	config[11] = 0x03; /* class: display */
	config[44] = (uint8_t)chip->subsystem_vendor;
	config[45] = (uint8_t)(chip->subsystem_vendor >> 8);
	config[46] = (uint8_t)chip->subsystem_device;
	config[47] = (uint8_t)(chip->subsystem_device >> 8);
	device_folder(card, folder);
	snprintf(path, sizeof(path), "%s/root/%s/config", sim.dir, folder);
	fd = sys_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return fd;
	if (pwrite(fd, config, sizeof(config), 0) != (ssize_t)sizeof(config))
		r = -errno;
	close(fd);
	return r;
}

int sim_sysroot_plug(const struct sim_card *card)
{
	const struct sim_chip *chip = &sim_chips[card->chip];
	unsigned index = sim_card_index(card);
	char folder[128], address[16], name[32], target[256];
	int r;

	sim_card_address(card, address);
	device_folder(card, folder);
	r = make_folder("%s/power", folder);
	if (r)
		return r;
	/* drivers/pci/pci-driver.c, pci_uevent(). */
	r = attribute(card, "uevent",
		      "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:%04X\nPCI_SUBSYS_ID=%04X:%04X\n"
		      "PCI_SLOT_NAME=%s\n",
		      chip->device_id, chip->subsystem_vendor, chip->subsystem_device, address);
	if (r)
		return r;
	attribute(card, "vendor", "0x1002\n");
	attribute(card, "device", "0x%04x\n", chip->device_id);
	attribute(card, "revision", "0x%02x\n", chip->revision);
	attribute(card, "subsystem_vendor", "0x%04x\n", chip->subsystem_vendor);
	attribute(card, "subsystem_device", "0x%04x\n", chip->subsystem_device);
	attribute(card, "class", "0x030000\n");
	attribute(card, "boot_vga", "%d\n", index == 0);
	attribute(card, "enable", "1\n");
	attribute(card, "irq", "0\n");
	attribute(card, "numa_node", "-1\n");
	attribute(card, "resource", "0x%016x 0x%016x 0x%016x\n", 0, 0, 0);
	r = plug_config(card, chip);
	if (r)
		return r;
	make_link("../../../../bus/pci", "%s/subsystem", folder);
	make_link("../../../../bus/pci/drivers/amdgpu", "%s/driver", folder);
	snprintf(target, sizeof(target), "../../../%s", folder + 4);
	make_link(target, "sys/bus/pci/devices/%s", address);
	snprintf(target, sizeof(target), "../../../../%s", folder + 4);
	make_link(target, "sys/bus/pci/drivers/amdgpu/%s", address);

	r = plug_hwmon(card, folder);
	if (r)
		return r;
	snprintf(name, sizeof(name), "card%u", index);
	r = plug_minor(card, name, index);
	if (r)
		return r;
	snprintf(name, sizeof(name), "renderD%u", SIM_RENDER_MINOR + index);
	return plug_minor(card, name, SIM_RENDER_MINOR + index);
}

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *at)
{
	return remove(path) ? -1 : 0;
}

__attribute__((format(printf, 1, 2))) static void remove_tree(const char *format, ...)
{
	char path[SIM_PATH_MAX];
	va_list arguments;

	va_start(arguments, format);
	root_path(path, format, arguments);
	va_end(arguments);
	nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

void sim_sysroot_unplug(const struct sim_card *card)
{
	unsigned index = sim_card_index(card), render = SIM_RENDER_MINOR + index;
	char folder[128], address[16];

	sim_card_address(card, address);
	device_folder(card, folder);
	remove_tree("dev/dri/card%u", index);
	remove_tree("dev/dri/renderD%u", render);
	remove_tree("sys/class/drm/card%u", index);
	remove_tree("sys/class/drm/renderD%u", render);
	remove_tree("sys/dev/char/%u:%u", SIM_DRM_MAJOR, index);
	remove_tree("sys/dev/char/%u:%u", SIM_DRM_MAJOR, render);
	remove_tree("sys/class/hwmon/hwmon%u", hwmon_number(card));
	remove_tree("sys/bus/pci/devices/%s", address);
	remove_tree("sys/bus/pci/drivers/amdgpu/%s", address);
	remove_tree("%s", folder);
}

bool sim_sysroot_map(const char *path, char ret[SIM_PATH_MAX])
{
	for (unsigned i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		size_t n = strlen(prefixes[i]);
		char next;

		if (strncmp(path, prefixes[i], n))
			continue;
		/*
		 * A match ends at the end of a name, except for prefixes that are the begin of a
		 * name.
		 */
		next = path[n];
		if (next && next != '/' && prefixes[i][n - 1] != ':' && prefixes[i][n - 1] != '9')
			continue;
		snprintf(ret, SIM_PATH_MAX, "%s/root%s", sim.dir, path);
		return true;
	}
	return false;
}

const char *sim_sysroot_unmap(const char *path)
{
	size_t n = strlen(sim.dir);

	if (!strncmp(path, sim.dir, n) && !strncmp(path + n, "/root/", 6))
		return path + n + 5;
	return path;
}

struct sim_card *sim_sysroot_card_of(const char *path)
{
	for (uint32_t i = 0; i < sim.state->n_cards; i++) {
		struct sim_card *card = &sim.state->cards[i];
		char folder[128];

		device_folder(card, folder);
		if (strstr(path, folder))
			return card;
	}
	return NULL;
}

struct sim_card *sim_card_of_node(const char *path, uint32_t *ret_minor)
{
	unsigned number;
	int n = 0;

	if (strncmp(path, "/dev/dri/", 9))
		return NULL;
	path += 9;
	if (sscanf(path, "renderD%u%n", &number, &n) == 1 && number >= SIM_RENDER_MINOR)
		*ret_minor = number, number -= SIM_RENDER_MINOR;
	else if (sscanf(path, "card%u%n", &number, &n) == 1)
		*ret_minor = number;
	else
		return NULL;
	if (path[n] || number >= sim.state->n_cards)
		return NULL;
	return &sim.state->cards[number];
}
