/* SPDX-License-Identifier: MIT */
/*
 * Scene: the broker's figures of its devices
 *
 * The main figures are in the statistics page. The rates of each family of operators are in the
 * profile files that the broker keeps (ringbroker-profile(5)). This scene reads the lines that the
 * broker writes to these files, not all that their format allows.
 *
 * On a busy machine the broker may have had no time to measure when it started. It measures later,
 * while it is idle; the scene waits for the measurements.
 */
#include "scenes.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"

enum { N_SIZES = 3, MAX_DEVICES = 4, PATIENCE_S = 30 };

/* sizes of a profile file that the table shows */
static const char *const shown[N_SIZES] = {"32KiB", "2MiB", "128MiB"};

/* Families of operators, with the key and unit of the ceiling that usually bounds them. */
static const struct family {
	const char *name;
	const char *key;
	const char *unit;
} families[] = {
	{"MatMul", "matmul.flops", "GFLOP/s"},
	{"Gemm", "gemm.flops", "GFLOP/s"},
	{"convolution", "convolution.flops", "GFLOP/s"},
	{"pooling", "pooling.flops", "GFLOP/s"},
	{"softmax", "softmax.flops", "GFLOP/s"},
	{"selection (TopK)", "selection.flops", "GFLOP/s"},
	{"elementwise", "elementwise.bytes", "GB/s"},
	{"activation", "activation.bytes", "GB/s"},
	{"reduction", "reduction.bytes", "GB/s"},
	{"transpose", "transpose.bytes", "GB/s"},
};

enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

/* Contents of a profile file */
struct profile {
	char name[128];
	double rates[N_FAMILIES][N_SIZES];
};

/* Read "4KiB: 20, 32KiB: 30 GFLOP/s", or one number for all sizes. */
static void read_curve(char *text, double ret[N_SIZES])
{
	char *next = NULL;

	for (char *point = strtok_r(text, ",", &next); point; point = strtok_r(NULL, ",", &next)) {
		char *colon = strchr(point, ':');
		const double rate = strtod(colon ? colon + 1 : point, NULL);

		point += strspn(point, " ");
		for (unsigned int i = 0; i < N_SIZES; i++)
			if (!colon || strncmp(point, shown[i], (size_t)(colon - point)) == 0)
				ret[i] = rate;
	}
}

static void read_line(struct profile *profile, char *line)
{
	char *value = strchr(line, '=');

	line[strcspn(line, "\n")] = '\0';
	if (!value)
		return;
	*value++ = '\0';
	line[strcspn(line, " ")] = '\0';
	value += strspn(value, " ");
	if (strcmp(line, "name") == 0)
		snprintf(profile->name, sizeof(profile->name), "%s", value);
	for (unsigned int i = 0; i < N_FAMILIES; i++)
		if (strcmp(line, families[i].key) == 0)
			read_curve(value, profile->rates[i]);
}

static int read_file(struct lab *lab, const char *folder, const char *name, struct profile *profile)
{
	char path[4096], line[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "re");
	if (!file)
		return lab_fail(lab, -errno, "%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file))
		read_line(profile, line);
	fclose(file);
	return 0;
}

/* Find the profile of each device by the device's name. */
static int read_folder(struct lab *lab, const char *folder, struct profile *profiles)
{
	static const char suffix[] = ".profile";
	struct dirent *entry;
	DIR *dir;
	int r = 0;

	dir = opendir(folder);
	if (!dir)
		return lab_fail(lab, -errno, "%s: %s", folder, strerror(errno));
	while (r == 0 && (entry = readdir(dir))) {
		const size_t n = strlen(entry->d_name);
		struct profile profile = {0};

		if (n < sizeof(suffix) || strcmp(entry->d_name + n - strlen(suffix), suffix))
			continue;
		r = read_file(lab, folder, entry->d_name, &profile);
		for (unsigned int i = 0; i < lab->n_devices && i < MAX_DEVICES; i++)
			if (strncmp(profile.name, lab->devices[i].name,
				    strlen(lab->devices[i].name)) == 0)
				profiles[i] = profile;
	}
	closedir(dir);
	return r;
}

/* Wait until the broker has measured a device. */
static int await_figures(struct lab *lab, unsigned int index, struct rbk_stats_device *ret)
{
	const uint64_t end_ns = now_ns() + (uint64_t)PATIENCE_S * 1000000000;
	int r;

	do {
		r = lab_settle(lab);
		if (r == 0)
			r = lab_device_stats(lab, index, ret);
	} while (r == 0 && ret->flops_per_ns <= 0 && now_ns() < end_ns);
	return r;
}

static int print_device(struct lab *lab, unsigned int index)
{
	const struct rbk_device *device = &lab->devices[index];
	struct rbk_stats_device stats;
	int r = await_figures(lab, index, &stats);

	if (r)
		return r;
	printf("  %u: %s, %s\n", index, lab_device(lab, index), device->name);
	printf("     %-18s%s; %u at once\n",
	       index == RBK_DEVICE_CPU ? "instructions" : "reaches memory", device->paths,
	       stats.n_servers);
	printf("     %-18s%.1f GFLOP/s, %.1f GB/s, each server\n", "at best", stats.flops_per_ns,
	       stats.bytes_per_ns);
	printf("     %-18s%s\n", "starting a task", text_time(stats.launch_ns).text);
	if (stats.up_bytes_per_ns > 0)
		printf("     %-18s%.1f GB/s there, %.1f GB/s back\n", "link", stats.up_bytes_per_ns,
		       stats.down_bytes_per_ns);
	else
		printf("     %-18snone: it works in place\n", "link");
	if (device->memory_bytes)
		printf("     %-18s%s", "memory", text_bytes((double)device->memory_bytes).text);
	else
		printf("     %-18sthe host's", "memory");
	if (stats.memory_used != RBK_STATS_ABSENT && stats.memory_total != RBK_STATS_ABSENT)
		printf(", %s of %s used", text_bytes((double)stats.memory_used).text,
		       text_bytes((double)stats.memory_total).text);
	printf("\n");
	lab_expect(lab, stats.flops_per_ns > 0 && stats.bytes_per_ns > 0 && stats.n_servers > 0,
		   "nothing is known of device %u", index);
	return 0;
}

static void print_families(struct lab *lab, const struct profile *profiles)
{
	const unsigned int n = lab->n_devices < MAX_DEVICES ? lab->n_devices : MAX_DEVICES;

	printf("\n  %-27s", "one server, by bytes");
	for (unsigned int i = 0; i < n; i++)
		printf("%-*s", 10 * N_SIZES, lab_device(lab, i));
	printf("\n  %-27s", "that an operator touches");
	for (unsigned int i = 0; i < n; i++)
		for (unsigned int s = 0; s < N_SIZES; s++)
			printf("%-10s", shown[s]);
	printf("\n");
	for (unsigned int f = 0; f < N_FAMILIES; f++) {
		printf("  %-18s%-9s", families[f].name, families[f].unit);
		for (unsigned int i = 0; i < n; i++) {
			for (unsigned int s = 0; s < N_SIZES; s++) {
				printf("%-10.*f", profiles[i].rates[f][s] < 100,
				       profiles[i].rates[f][s]);
				lab_expect(lab, profiles[i].rates[f][s] > 0,
					   "device %u has no figure for %s", i, families[f].name);
			}
		}
		printf("\n");
	}
}

static bool are_complete(struct lab *lab, const struct profile *profiles)
{
	for (unsigned int i = 0; i < lab->n_devices && i < MAX_DEVICES; i++)
		for (unsigned int f = 0; f < N_FAMILIES; f++)
			if (profiles[i].rates[f][0] <= 0)
				return false;
	return true;
}

int scene_profiles(struct lab *lab, const struct scene_options *options)
{
	const uint64_t end_ns = now_ns() + (uint64_t)PATIENCE_S * 1000000000;
	struct profile profiles[MAX_DEVICES] = {0};
	int r = 0;

	for (unsigned int i = 0; i < lab->n_devices && r == 0; i++)
		r = print_device(lab, i);
	if (r || !options->profiles)
		return r;
	do {
		r = read_folder(lab, options->profiles, profiles);
		if (r == 0 && !are_complete(lab, profiles))
			r = lab_settle(lab);
	} while (r == 0 && !are_complete(lab, profiles) && now_ns() < end_ns);
	if (r == 0)
		print_families(lab, profiles);
	return r;
}
