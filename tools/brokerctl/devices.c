/* SPDX-License-Identifier: MIT */
/*
 * brokerctl devices: devices, their memory paths and their state
 *
 * The figures come from the root page. Users other than administrators see only the names and
 * paths, which the broker tells every client. capabilities.c prints what runs where.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <ringbroker/admin.h>

#include "broker-process/broker-process.h"
#include "command.h"
#include "objects.h"
#include "output.h"
#include "private-broker.h"
#include "records.h"

/* Print a sensor's value; "-" if the sensor cannot be read. */
static void sensor_cell(uint64_t value, double unit, const char *format)
{
	if (value == RBK_STATS_ABSENT)
		table_cell("-");
	else
		table_cell(format, (double)value / unit);
}

static void print_devices(const struct arguments *arguments, const struct rbk_stats_view *root)
{
	static const char *const heads[] = {
		"<DEVICE",  "<NAME",      "<5KIND", "<6PATHS", "<1BREAKER", "2LOAD",
		"8CLOCK",   "4TEMP",      "5POWER", "VRAM",    "1OF",       "7GTT",
		"3TENANTS", "6EVICTIONS", "2QUEUE", "<IS",     NULL,
	};
	struct rbk_stats_device device;

	table_begin_figures(arguments->values[OPT_NO_HEADER] ? NULL : "Devices", heads,
			    device_figures);
	for (uint32_t i = 0; i < rbk_stats_count(root, RBK_STATS_SECTION_DEVICES); i++) {
		device_copy(root, i, &device);
		table_cell("%s", device_label(device.index));
		table_cell("%s", text_name(device.name));
		table_cell("%s", stats_device_kind_name(device.kind));
		table_cell("%s", device.paths[0] ? text_name(device.paths) : "-");
		table_cell("%s", stats_breaker_name(device.breaker));
		table_mark(mark_of_breaker(device.breaker));
		sensor_cell(device.load_percent, 1, "%.0f%%");
		sensor_cell(device.clock_hz, 1e6, "%.0f MHz");
		sensor_cell(device.temperature_millicelsius, 1e3, "%.0f C");
		sensor_cell(device.power_microwatts, 1e6, "%.0f W");
		table_cell("%s", text_bytes(device.memory_used));
		table_cell("%s", text_bytes(device.memory_total));
		table_cell("%s", text_bytes(device.gtt_used));
		table_cell("%s", text_bytes(device.memory_charged));
		if (device.index == RBK_DEVICE_CPU || device.n_driver_evictions == RBK_STATS_ABSENT)
			table_cell("-");
		else
			table_cell("%llu", (unsigned long long)device.n_driver_evictions);
		table_cell("%llu", (unsigned long long)(device.n_queued + device.n_released));
		table_figures(device_figures, &device);
		table_cell("%s%s", device.flags & RBK_STATS_DEVICE_DRAINED ? "drained " : "",
			   device.flags & RBK_STATS_DEVICE_LOST ? "lost" : "");
		table_mark(device.flags & RBK_STATS_DEVICE_LOST ? MARK_FAULT : MARK_NOTE);
	}
	table_end();
}

/* Print the tile sizes of devices for which the broker chose them. */
static void print_tiles(const struct rbk_stats_view *root)
{
	static const char *const heads[] = {"<DEVICE",   "<OPERATOR",    "<LARGE", "<SMALL",
					    "<FEW ROWS", "<FEW COLUMNS", NULL};
	struct rbk_stats_device device;
	bool is_begun = false;

	for (uint32_t i = 0; i < rbk_stats_count(root, RBK_STATS_SECTION_DEVICES); i++) {
		device_copy(root, i, &device);
		for (unsigned int op = 0; op < RBK_STATS_TILE_OPERATORS; op++) {
			if (device.tiles[op][0].rows == 0)
				continue;
			if (!is_begun)
				table_begin("Tiles, rows by columns of results", heads);
			is_begun = true;
			table_cell("%s", device_label(device.index));
			table_cell("%s", tiles_name(op));
			for (unsigned int class = 0; class < RBK_STATS_TILE_CLASSES; class ++)
				table_cell("%s", text_tile(&device, op, class));
		}
	}
	if (is_begun)
		table_end();
}

/* --- As every client is told --- */

static void print_plain(const struct arguments *arguments, const struct rbk_device *devices,
			unsigned int n)
{
	static const char *const heads[] = {"<DEVICE", "<NAME",  "<2DRIVER", "<3KIND",
					    "<4PATHS", "MEMORY", NULL};

	table_begin(arguments->values[OPT_NO_HEADER] ? NULL : "Devices", heads);
	for (unsigned int i = 0; i < n; i++) {
		table_cell("%s", device_label(devices[i].index));
		table_cell("%s", text_name(devices[i].name));
		table_cell("%s", text_name(devices[i].driver));
		table_cell("%s", stats_device_kind_name(devices[i].kind));
		table_cell("%s", devices[i].paths[0] ? text_name(devices[i].paths) : "-");
		table_cell("%s",
			   devices[i].memory_bytes ? text_bytes(devices[i].memory_bytes) : "-");
	}
	table_end();
}

static void json_plain(const struct rbk_device *devices, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		json_begin();
		json_string("type", "device");
		json_unsigned("device", devices[i].index);
		json_string("name", devices[i].name);
		json_string("driver", devices[i].driver);
		json_string("kind", stats_device_kind_name(devices[i].kind));
		json_string("paths", devices[i].paths);
		json_object("memory");
		json_unsigned("total", devices[i].memory_bytes);
		json_object_end();
		json_end();
	}
}

/* --- All of it --- */

/*
 * Store the number of devices in *@ret_n.
 * Return: EXIT_*.
 */
static int show_plain(struct control *control, const struct arguments *arguments,
		      unsigned int *ret_n)
{
	struct rbk_device devices[RBK_MAX_DEVICES];
	const struct rbk_error none = {""};
	int r = rbk_devices(control->rbk, devices, RBK_MAX_DEVICES, ret_n);

	if (r)
		return control_refused(control, r, &none);
	if (*ret_n > RBK_MAX_DEVICES)
		*ret_n = RBK_MAX_DEVICES;
	if (arguments->values[OPT_CAPABILITIES])
		return EXIT_OK;
	if (arguments->values[OPT_JSON])
		json_plain(devices, *ret_n);
	else
		print_plain(arguments, devices, *ret_n);
	return EXIT_OK;
}

static void show_root(const struct arguments *arguments, const struct rbk_stats_view *root)
{
	struct rbk_stats_device device;

	if (!arguments->values[OPT_JSON]) {
		print_devices(arguments, root);
		if (!arguments->values[OPT_NO_HEADER])
			print_tiles(root);
		return;
	}
	for (uint32_t i = 0; i < rbk_stats_count(root, RBK_STATS_SECTION_DEVICES); i++) {
		device_copy(root, i, &device);
		json_device(&device);
	}
}

/* Return: EXIT_*, after an error message if it is not EXIT_OK. */
static int show_devices(struct control *control, const struct arguments *arguments,
			enum run_device device, const struct broker_process *broker)
{
	unsigned int n_devices = 0;
	struct pages pages;
	int status = control_map_root(control, &pages);

	if (status)
		return status;
	if (!pages.root.page) {
		status = show_plain(control, arguments, &n_devices);
	} else {
		n_devices = pages.root.n_devices;
		if (!arguments->values[OPT_CAPABILITIES])
			show_root(arguments, &pages.root);
	}
	if (status == EXIT_OK && device == RUN_GPU && n_devices < 2)
		status = private_broker_no_gpu(broker);
	if (status == EXIT_OK && arguments->values[OPT_CAPABILITIES])
		status = show_capabilities(control, arguments, device == RUN_GPU,
					   device == RUN_CPU ? 1 : n_devices);
	pages_unmap(&pages);
	return status;
}

int run_devices(struct control *control, const struct arguments *arguments)
{
	struct broker_process *broker = NULL;
	bool is_nobody_there = false;
	enum run_device device;
	int status = private_broker_device(arguments, OPT_SHOWN_DEVICE, &device);

	if (status)
		return status;
	if (!arguments->values[OPT_CAPABILITIES]) {
		if (arguments->values[OPT_SHOWN_DEVICE])
			return control_misuse(arguments, "--device is for --capabilities");
		return show_devices(control, arguments, device, NULL);
	}
	status = control_connect_if_there(control, &is_nobody_there);
	if (is_nobody_there)
		status = private_broker_start(control, device, &broker);
	if (status == EXIT_OK)
		status = show_devices(control, arguments, device, broker);
	if (!broker)
		return status;
	/* The private broker's socket path ends with the broker. */
	control_disconnect(control);
	control->socket_path = NULL;
	broker_process_free(broker);
	return status;
}
