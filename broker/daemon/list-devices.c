/* SPDX-License-Identifier: MIT */
/*
 * brokerd --list-devices: the devices and their samples
 *
 * One format is for people, one for programs. An absent value is "-" in the first and null in the
 * second. Programs choose their names themselves: unusual characters are replaced or escaped.
 */
#include "daemon/list-devices.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "util/error.h"

enum { USER_BYTES = 33, TEXT_BYTES = 32 };

/*
 * Get the last sample of a GPU; of a GPU that is not watched, only the size. Return: false for the
 * CPU.
 */
static bool get_reading(const struct telemetry *telemetry, const struct executor *executor,
			struct device_reading *ret)
{
	if (executor->info.kind == EXECUTOR_CPU)
		return false;
	if (!telemetry_read(telemetry, executor->index, ret))
		*ret = (struct device_reading){
			.source = "none",
			.is_integrated = executor->info.is_integrated,
			.vram.total = {executor->info.memory_bytes, true},
		};
	return true;
}

/*
 * Return the rate of large products; that of memory beyond caches: the usual figures for a device.
 */
static float profile_matmul(const struct place_profile *profile)
{
	return profile->rates[OP_FAMILY_MATMUL][3].flops_per_ns;
}

static float profile_memory(const struct place_profile *profile)
{
	return profile->rates[OP_FAMILY_ELEMENTWISE][4].bytes_per_ns;
}

/* ---- For people ---- */

/* A display unit: a figure is divided by @divisor and shown with @n_digits after the point. */
struct unit {
	const char *name;
	double divisor;
	int n_digits;
};

static const struct unit percent = {" %", 1, 0}, mhz = {" MHz", 1e6, 0}, times = {"", 1, 0},
			 celsius = {" C", 1e3, 1}, watts = {" W", 1e6, 1};

static const char *show(struct reading reading, struct unit unit, char ret[static TEXT_BYTES])
{
	if (!reading.is_valid)
		return "-";
	snprintf(ret, TEXT_BYTES, "%.*f%s", unit.n_digits, (double)reading.value / unit.divisor,
		 unit.name);
	return ret;
}

static const char *show_bytes(struct reading reading, char ret[static TEXT_BYTES])
{
	const double mib = 1 << 20, gib = 1 << 30;

	if (reading.is_valid && (double)reading.value >= gib)
		return show(reading, (struct unit){" GiB", gib, 2}, ret);
	return show(reading, (struct unit){" MiB", mib, 1}, ret);
}

static void print_memory(FILE *file, const char *name, const struct memory_reading *memory)
{
	char total[TEXT_BYTES], usable[TEXT_BYTES], used[TEXT_BYTES], own[TEXT_BYTES];

	fprintf(file, "  %-14s %12s %12s %12s %12s\n", name, show_bytes(memory->total, total),
		show_bytes(memory->usable, usable), show_bytes(memory->used, used),
		show_bytes(memory->own, own));
}

static void print_line(FILE *file, const char *name, struct reading reading, struct unit unit)
{
	char text[TEXT_BYTES];

	fprintf(file, "  %-20s %s\n", name, show(reading, unit, text));
}

static const char *user_name(uid_t uid, char ret[static USER_BYTES])
{
	const struct passwd *user = getpwuid(uid);

	if (user)
		snprintf(ret, USER_BYTES, "%s", user->pw_name);
	else
		snprintf(ret, USER_BYTES, "%" PRIu32, (uint32_t)uid);
	return ret;
}

static void print_processes(FILE *file, const struct device_reading *reading)
{
	char user[USER_BYTES], vram[TEXT_BYTES], gtt[TEXT_BYTES], busy[TEXT_BYTES];

	fprintf(file, "  %-20s %s\n", "processes",
		!reading->processes_ns.is_valid  ? "-"
		: reading->processes_are_partial ? "the list is incomplete"
		: reading->n_processes == 0      ? "none"
						 : "all");
	if (reading->n_processes == 0)
		return;
	fprintf(file, "  %8s %-12s %-16s %12s %12s %6s\n", "PID", "USER", "COMMAND", "VRAM", "GTT",
		"BUSY");
	for (uint32_t i = 0; i < reading->n_processes; i++) {
		const struct process_reading *process = &reading->processes[i];
		const struct reading vram_bytes = {process->vram_bytes, true};
		const struct reading gtt_bytes = {process->gtt_bytes, true};

		fprintf(file, "  %8d %-12s %-16s %12s %12s %6s\n", (int)process->pid,
			user_name(process->uid, user), process->comm, show_bytes(vram_bytes, vram),
			show_bytes(gtt_bytes, gtt), show(process->busy_percent, percent, busy));
	}
}

static void print_reading(FILE *file, const struct device_reading *reading)
{
	char moved[TEXT_BYTES];

	fprintf(file, "  %-20s %s\n", "PCI address", reading->pci[0] ? reading->pci : "-");
	fprintf(file, "  %-20s %s\n", "state",
		reading->state == TELEMETRY_PRESENT ? "present" : "gone");
	fprintf(file, "  %-20s %s\n", "figures from", reading->source);
	fprintf(file, "  %-14s %12s %12s %12s %12s\n", "memory", "total", "usable", "used", "own");
	print_memory(file, "VRAM", &reading->vram);
	print_memory(file, "visible VRAM", &reading->visible_vram);
	print_memory(file, "GTT", &reading->gtt);
	if (reading->is_integrated) {
		const struct memory_reading pool = telemetry_pool(reading);

		print_memory(file, "in one pool", &pool);
	}
	print_line(file, "load", reading->load_percent, percent);
	print_line(file, "memory load", reading->memory_load_percent, percent);
	print_line(file, "GPU clock", reading->gpu_hz, mhz);
	print_line(file, "memory clock", reading->memory_hz, mhz);
	print_line(file, "temperature", reading->temperature_millicelsius, celsius);
	print_line(file, "power", reading->power_microwatts, watts);
	print_line(file, "evictions", reading->n_evictions, times);
	fprintf(file, "  %-20s %s\n", "moved by the driver",
		show_bytes(reading->bytes_moved, moved));
	print_line(file, "CPU page faults", reading->n_page_faults, times);
	print_line(file, "losses of VRAM", reading->n_vram_lost, times);
	print_processes(file, reading);
}

static void print_profile(FILE *file, const struct place_profile *profile)
{
	if (!profile) {
		fprintf(file, "  %-20s -\n", "profile");
		return;
	}
	fprintf(file, "  %-20s matmul %.4g GFLOP/s, memory %.4g GB/s, on each of %u\n", "profile",
		(double)profile_matmul(profile), (double)profile_memory(profile),
		profile->n_servers);
	fprintf(file, "  %-20s task %.3g us, node %.3g us\n", "latency",
		(double)profile->task_ns / 1e3, (double)profile->node_ns / 1e3);
	if (profile->up_bytes_per_ns > 0)
		fprintf(file, "  %-20s up %.4g GB/s, down %.4g GB/s\n", "link",
			(double)profile->up_bytes_per_ns, (double)profile->down_bytes_per_ns);
	else
		fprintf(file, "  %-20s -\n", "link");
}

/* Get the tile shapes in use. Return: false if the device has no choice. */
static bool get_tiles(struct executor *executor, enum exec_tile_op op,
		      struct exec_tile ret[static EXEC_TILE_CLASSES])
{
	struct exec_tiles tiles;

	executor_get_tiles(executor, &tiles);
	for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++)
		if (!executor->ops->tile ||
		    !executor->ops->tile(executor, op, tiles.of[op][class], &ret[class]))
			return false;
	return true;
}

static void print_tiles(FILE *file, struct executor *executor, enum exec_tile_op op)
{
	struct exec_tile tiles[EXEC_TILE_CLASSES];

	if (!get_tiles(executor, op, tiles))
		return;
	fprintf(file, "  tiles of %-14s", exec_tile_op_name(op));
	for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++)
		fprintf(file, "%s %s %ux%u%s", class ? "," : "", exec_tile_class_name(class),
			tiles[class].rows, tiles[class].cols,
			tiles[class].of_matrices ? " matrices" : "");
	fputc('\n', file);
}

static void print_device(FILE *file, struct executor *executor, const struct place_profile *profile,
			 const struct telemetry *telemetry)
{
	const struct executor_info *info = &executor->info;
	struct device_reading reading;

	fprintf(file, "device %u: %s\n", executor->index, info->name);
	fprintf(file, "  %-20s %s\n", "driver", info->driver);
	fprintf(file, "  %-20s %s\n",
		info->kind == EXECUTOR_CPU ? "instruction set" : "memory paths", info->paths);
	if (info->matrices && info->matrices[0])
		fprintf(file, "  %-20s %s\n", "cooperative matrices", info->matrices);
	print_profile(file, profile);
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++)
		print_tiles(file, executor, op);
	if (get_reading(telemetry, executor, &reading))
		print_reading(file, &reading);
}

/* ---- For programs ---- */

static void json_string(FILE *file, const char *key, const char *text)
{
	fprintf(file, "\"%s\": \"", key);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		/* Bytes that are not ASCII may not be UTF-8 either. */
		if (c < 0x20 || c >= 0x7f)
			fputc('?', file);
		else if (c == '"' || c == '\\')
			fprintf(file, "\\%c", c);
		else
			fputc(c, file);
	}
	fputc('"', file);
}

/* @separator is printed before the value. */
static void json_reading(FILE *file, const char *separator, const char *key, struct reading reading)
{
	fprintf(file, "%s\"%s\": ", separator, key);
	if (reading.is_valid)
		fprintf(file, "%" PRIu64, reading.value);
	else
		fputs("null", file);
}

static void json_memory(FILE *file, const char *key, const struct memory_reading *memory)
{
	fprintf(file, ",\n   \"%s\": {", key);
	json_reading(file, "", "total", memory->total);
	json_reading(file, ", ", "usable", memory->usable);
	json_reading(file, ", ", "used", memory->used);
	json_reading(file, ", ", "own", memory->own);
	fputc('}', file);
}

static void json_processes(FILE *file, const struct device_reading *reading)
{
	char user[USER_BYTES];

	if (!reading->processes_ns.is_valid) {
		fputs(",\n   \"processes\": null", file);
		return;
	}
	fprintf(file, ",\n   \"processes_are_partial\": %s,\n   \"processes\": [",
		reading->processes_are_partial ? "true" : "false");
	for (uint32_t i = 0; i < reading->n_processes; i++) {
		const struct process_reading *process = &reading->processes[i];

		fprintf(file, "%s\n    {\"pid\": %d, \"uid\": %" PRIu32 ", ", i ? "," : "",
			(int)process->pid, (uint32_t)process->uid);
		json_string(file, "user", user_name(process->uid, user));
		fputs(", ", file);
		json_string(file, "command", process->comm);
		fprintf(file, ", \"vram_bytes\": %" PRIu64 ", \"gtt_bytes\": %" PRIu64,
			process->vram_bytes, process->gtt_bytes);
		json_reading(file, ", ", "busy_percent", process->busy_percent);
		fputc('}', file);
	}
	fputc(']', file);
}

static void json_sample(FILE *file, const struct device_reading *reading)
{
	const struct memory_reading pool = telemetry_pool(reading);

	fputs(",\n   ", file);
	json_string(file, "state", reading->state == TELEMETRY_PRESENT ? "present" : "gone");
	fputs(", ", file);
	json_string(file, "source", reading->source);
	fputs(", ", file);
	json_string(file, "pci", reading->pci);
	fprintf(file, ", \"is_integrated\": %s", reading->is_integrated ? "true" : "false");
	json_memory(file, "vram", &reading->vram);
	json_memory(file, "visible_vram", &reading->visible_vram);
	json_memory(file, "gtt", &reading->gtt);
	json_memory(file, "pool", &pool);
	json_reading(file, ",\n   ", "load_percent", reading->load_percent);
	json_reading(file, ", ", "memory_load_percent", reading->memory_load_percent);
	json_reading(file, ", ", "gpu_hz", reading->gpu_hz);
	json_reading(file, ", ", "memory_hz", reading->memory_hz);
	json_reading(file, ", ", "temperature_millicelsius", reading->temperature_millicelsius);
	json_reading(file, ", ", "power_microwatts", reading->power_microwatts);
	json_reading(file, ", ", "evictions", reading->n_evictions);
	json_reading(file, ", ", "bytes_moved", reading->bytes_moved);
	json_reading(file, ", ", "page_faults", reading->n_page_faults);
	json_reading(file, ", ", "vram_lost", reading->n_vram_lost);
	json_processes(file, reading);
}

/* @per_ns is in units per nanosecond, printed per second. */
static void json_rate(FILE *file, const char *key, float per_ns)
{
	fprintf(file, ", \"%s\": ", key);
	if (per_ns > 0)
		fprintf(file, "%.0f", (double)per_ns * 1e9);
	else
		fputs("null", file);
}

static void json_profile(FILE *file, const struct place_profile *profile)
{
	if (!profile) {
		fputs(",\n   \"profile\": null", file);
		return;
	}
	fprintf(file, ",\n   \"profile\": {\"servers\": %u", profile->n_servers);
	json_rate(file, "matmul_flops_per_s", profile_matmul(profile));
	json_rate(file, "memory_bytes_per_s", profile_memory(profile));
	fprintf(file, ", \"task_ns\": %.0f, \"node_ns\": %.0f", (double)profile->task_ns,
		(double)profile->node_ns);
	fprintf(file, ", \"active_milliwatts\": ");
	if (profile->active_watts > 0)
		fprintf(file, "%.0f", (double)profile->active_watts * 1e3);
	else
		fputs("null", file);
	json_rate(file, "link_up_bytes_per_s", profile->up_bytes_per_ns);
	json_rate(file, "link_down_bytes_per_s", profile->down_bytes_per_ns);
	fputc('}', file);
}

static void json_tiles(FILE *file, struct executor *executor)
{
	struct exec_tile tiles[EXEC_TILE_CLASSES];
	bool is_first = true;

	fputs(",\n   \"tiles\": {", file);
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++) {
		if (!get_tiles(executor, op, tiles))
			continue;
		fprintf(file, "%s\"%s\": {", is_first ? "" : ", ", exec_tile_op_name(op));
		for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++)
			fprintf(file, "%s\"%s\": \"%ux%u%s\"", class ? ", " : "",
				exec_tile_class_name(class), tiles[class].rows, tiles[class].cols,
				tiles[class].of_matrices ? " matrices" : "");
		fputc('}', file);
		is_first = false;
	}
	fputc('}', file);
}

static void json_device(FILE *file, struct executor *executor, const struct place_profile *profile,
			const struct telemetry *telemetry)
{
	static const char *const kinds[] = {[EXECUTOR_CPU] = "cpu",
					    [EXECUTOR_GPU] = "gpu",
					    [EXECUTOR_SOFTWARE_GPU] = "software-gpu"};
	const struct executor_info *info = &executor->info;
	struct device_reading reading;

	fprintf(file, "  {\"index\": %u, ", executor->index);
	json_string(file, "kind", kinds[info->kind]);
	fputs(", ", file);
	json_string(file, "name", info->name);
	fputs(",\n   ", file);
	json_string(file, "driver", info->driver);
	fputs(", ", file);
	json_string(file, "paths", info->paths);
	fputs(", ", file);
	json_string(file, "cooperative_matrices", info->matrices ? info->matrices : "");
	json_profile(file, profile);
	json_tiles(file, executor);
	if (get_reading(telemetry, executor, &reading))
		json_sample(file, &reading);
	fputc('}', file);
}

int list_devices(FILE *file, enum list_devices_format format, struct executor *const *executors,
		 uint32_t n_executors, const struct profiles *profiles,
		 const struct telemetry *telemetry)
{
	bool is_json = format == LIST_DEVICES_JSON;

	if (is_json)
		fputs("{\"devices\": [\n", file);
	for (uint32_t i = 0; i < n_executors; i++) {
		if (is_json && i > 0)
			fputs(",\n", file);
		if (is_json)
			json_device(file, executors[i], profiles_get(profiles, i), telemetry);
		else
			print_device(file, executors[i], profiles_get(profiles, i), telemetry);
	}
	if (is_json)
		fputs("\n]}\n", file);
	errno = 0;
	if (fflush(file) == 0 && !ferror(file))
		return 0;
	return error_origin(errno ? -errno : -EIO);
}
