/* SPDX-License-Identifier: MIT */
/* Commands that make, change and show cards */
#include "control.h"
#include "chips.h"
#include "client.h"
#include "engine.h"
#include "memory.h"
#include "names.h"
#include "sysroot.h"
#include "sys.h"
#include "util/size.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const sensor_names[SIM_N_SENSORS] = {
	[SIM_SENSOR_LOAD] = "load",
	[SIM_SENSOR_MEM_LOAD] = "mem-load",
	[SIM_SENSOR_SCLK] = "sclk",
	[SIM_SENSOR_MCLK] = "mclk",
	[SIM_SENSOR_TEMPERATURE] = "temperature",
	[SIM_SENSOR_POWER] = "power",
	[SIM_SENSOR_VDDGFX] = "vddgfx",
};

/* Units: the state's value of one unit on the command line, and the largest accepted number. */
static const struct {
	double factor;
	double max;
	const char *unit;
} sensors[SIM_N_SENSORS] = {
	[SIM_SENSOR_LOAD] = {1, 100, "percent"},
	[SIM_SENSOR_MEM_LOAD] = {1, 100, "percent"},
	[SIM_SENSOR_SCLK] = {1, 10000, "MHz"},
	[SIM_SENSOR_MCLK] = {1, 10000, "MHz"},
	[SIM_SENSOR_TEMPERATURE] = {1000, 200, "degrees Celsius"},
	[SIM_SENSOR_POWER] = {1000000, 2000, "W"},
	[SIM_SENSOR_VDDGFX] = {1, 5000, "mV"},
};

enum kind {
	KIND_SIZE,
	KIND_COUNT,
};

#define FIELD(name, field, kind, help)                             \
	{                                                          \
		name, offsetof(struct sim_card, field), kind, help \
	}

static const struct {
	const char *name;
	size_t offset; /* offset of a uint64_t */
	enum kind kind;
	const char *help;
} fields[] = {
	FIELD("other-vram", other_vram_bytes, KIND_SIZE,
	      "VRAM that the rest of the system uses; pushes out what does not fit"),
	FIELD("other-gtt", other_gtt_bytes, KIND_SIZE, "GTT that the rest of the system uses"),
	FIELD("evictions", n_evictions, KIND_COUNT, "the counter of evictions"),
	FIELD("bytes-moved", n_bytes_moved, KIND_SIZE, "the counter of bytes moved"),
	FIELD("cpu-page-faults", n_cpu_page_faults, KIND_COUNT,
	      "the counter of VRAM page faults of the CPU"),
	FIELD("job-ns", job_ns, KIND_COUNT, "engine time of a submission, in ns"),
	FIELD("group-ns", group_ns, KIND_COUNT,
	      "engine time of each workgroup that it dispatches, in ns"),
	FIELD("timeout-ns", timeout_ns, KIND_COUNT,
	      "time after which a submission hangs and the GPU is reset; 0: never"),
};

#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static uint64_t *field_of(struct sim_card *card, unsigned i)
{
	return (uint64_t *)((char *)card + fields[i].offset);
}

void control_keys(FILE *file)
{
	for (unsigned i = 0; i < SIM_N_SENSORS; i++)
		fprintf(file, "    %-16s a number, in %s, or \"absent\"\n", sensor_names[i],
			sensors[i].unit);
	for (unsigned i = 0; i < N_FIELDS; i++)
		fprintf(file, "    %-16s %s\n", fields[i].name, fields[i].help);
	fputs("    execution        instant: submissions are complete at once; timed: they take\n"
	      "                     their engine time, one after the other on each engine\n"
	      "    policy           between contexts: fifo, the highest priority first, or fair,\n"
	      "                     as much time for each context\n"
	      "    spill            yes: as the kernel does; no: VRAM that is full is -ENOMEM\n"
	      "    kernel           6.1 or 6.14: which keys fdinfo has, which sensors there are,\n"
	      "                     whether buffers that may be in GTT return from there\n"
	      "    drm-minor        the driver's version, 3.N\n"
	      "  of the whole simulator:\n"
	      "    udmabuf          present, absent, or host: whatever this machine has\n"
	      "    udmabuf-limit    the largest udmabuf, as its module's size_limit_mb\n",
	      file);
}

bool control_card(const char *name, struct sim_card **ret)
{
	char *end;
	unsigned long index;

	if (!strncmp(name, "card", 4) && name[4] >= '0' && name[4] <= '9') {
		index = strtoul(name + 4, &end, 10);
		if (!*end && index < sim.state->n_cards) {
			*ret = &sim.state->cards[index];
			return true;
		}
	}
	control_usage("%s: there is no such card; there are card0 to card%u", name,
		      sim.state->n_cards - 1);
	return false;
}

static bool parse_number(const char *text, double max, double *ret)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !isfinite(value) || value < 0 || value > max)
		return false;
	*ret = value;
	return true;
}

/*
 * Set a sensor. Lock held.
 * Return: 0, or EXIT_USAGE.
 */
static int set_sensor(struct sim_card *card, enum sim_sensor sensor, const char *value)
{
	double number;

	if (!strcmp(value, "absent")) {
		card->is_absent[sensor] = true;
		return 0;
	}
	if (!parse_number(value, sensors[sensor].max, &number))
		return control_usage("%s=%s: a number from 0 to %g (%s), or \"absent\"",
				     sensor_names[sensor], value, sensors[sensor].max,
				     sensors[sensor].unit);
	card->is_absent[sensor] = false;
	card->sensor[sensor] = (uint64_t)llround(number * sensors[sensor].factor);
	return 0;
}

static int set_field(struct sim_card *card, unsigned i, const char *value)
{
	double number;

	if (fields[i].kind == KIND_SIZE) {
		if (!size_parse(value, field_of(card, i)))
			return control_usage("%s=%s: a size, such as 512MiB or 6GiB",
					     fields[i].name, value);
		return 0;
	}
	if (!parse_number(value, 1e18, &number))
		return control_usage("%s=%s: a number from 0", fields[i].name, value);
	*field_of(card, i) = (uint64_t)number;
	return 0;
}

static int set_kernel(struct sim_card *card, const char *value)
{
	if (!strcmp(value, "6.1")) {
		card->kernel = SIM_KERNEL_6_1;
		card->drm_minor = 49;
	} else if (!strcmp(value, "6.14")) {
		card->kernel = SIM_KERNEL_6_14;
		card->drm_minor = 61;
	} else {
		return control_usage("kernel=%s: 6.1 or 6.14", value);
	}
	return 0;
}

static int set_choice(const char *key, const char *value, const char *yes, const char *no,
		      bool *ret)
{
	if (strcmp(value, yes) != 0 && strcmp(value, no) != 0)
		return control_usage("%s=%s: %s or %s", key, value, yes, no);
	*ret = !strcmp(value, yes);
	return 0;
}

static int set_udmabuf(const char *value)
{
	if (!strcmp(value, "present"))
		sim.state->udmabuf_mode = SIM_UDMABUF_PRESENT;
	else if (!strcmp(value, "absent"))
		sim.state->udmabuf_mode = SIM_UDMABUF_ABSENT;
	else if (!strcmp(value, "host"))
		sim.state->udmabuf_mode = SIM_UDMABUF_HOST;
	else
		return control_usage("udmabuf=%s: present, absent or host", value);
	return 0;
}

static int set_one(struct sim_card *card, const char *key, const char *value)
{
	double number;

	for (unsigned i = 0; i < SIM_N_SENSORS; i++) {
		if (!strcmp(key, sensor_names[i]))
			return set_sensor(card, i, value);
	}
	for (unsigned i = 0; i < N_FIELDS; i++) {
		if (!strcmp(key, fields[i].name))
			return set_field(card, i, value);
	}
	if (!strcmp(key, "spill"))
		return set_choice(key, value, "yes", "no", &card->may_spill);
	if (!strcmp(key, "execution"))
		return set_choice(key, value, "timed", "instant", &card->is_timed);
	if (!strcmp(key, "policy"))
		return set_choice(key, value, "fair", "fifo", &card->is_fair);
	if (!strcmp(key, "kernel"))
		return set_kernel(card, value);
	if (!strcmp(key, "drm-minor")) {
		if (!parse_number(value, 1000, &number))
			return control_usage("drm-minor=%s: a number from 0 to 1000", value);
		card->drm_minor = (uint32_t)number;
		return 0;
	}
	if (!strcmp(key, "udmabuf"))
		return set_udmabuf(value);
	if (!strcmp(key, "udmabuf-limit")) {
		if (!size_parse(value, &sim.state->udmabuf_limit_bytes))
			return control_usage("udmabuf-limit=%s: a size, such as 64MiB", value);
		return 0;
	}
	return control_usage("%s: there is no such key; see amdgpu-sim --help", key);
}

int control_set(struct sim_card *card, char **assignments, int n)
{
	int r = 0;

	if (!n)
		return control_usage("set: KEY=VALUE is missing");
	sim_lock();
	sim_engine_advance(card);
	for (int i = 0; i < n && !r; i++) {
		char *equals = strchr(assignments[i], '=');

		if (!equals) {
			r = control_usage("%s: not KEY=VALUE", assignments[i]);
			break;
		}
		*equals = '\0';
		r = set_one(card, assignments[i], equals + 1);
	}
	sim_client_reap(card);
	sim_memory_squeeze(card);
	sim_sysroot_refresh(card);
	sim_unlock();
	return r;
}

static void fill_card(struct sim_card *card, int chip_index)
{
	const struct sim_chip *chip = &sim_chips[chip_index];

	card->chip = (uint32_t)chip_index;
	card->bus = 0xe3 + sim_card_index(card);
	card->vram_bytes = chip->vram_bytes;
	card->visible_bytes = chip->visible_bytes;
	card->gtt_bytes = chip->gtt_bytes;
	card->may_spill = true;
	set_kernel(card, "6.1");
	card->job_ns = 1000000;
	card->is_plugged = true;
	card->sensor[SIM_SENSOR_SCLK] = chip->sclk_mhz;
	card->sensor[SIM_SENSOR_MCLK] = chip->mclk_mhz;
	card->sensor[SIM_SENSOR_TEMPERATURE] = 35000;
	card->sensor[SIM_SENSOR_POWER] = chip->idle_watts * 1000000ull;
	card->sensor[SIM_SENSOR_VDDGFX] = 800;
}

/* Parse "CHIP[,vram=SIZE][,visible=SIZE][,gtt=SIZE]". */
static int parse_card(struct sim_card *card, const char *text)
{
	char copy[256], *word, *rest;
	bool has_visible = false;
	int chip;

	if (strlen(text) >= sizeof(copy))
		return control_usage("--card %s: too long", text);
	strcpy(copy, text);
	word = strtok_r(copy, ",", &rest);
	chip = word ? sim_chip_find(word) : -1;
	if (chip < 0)
		return control_usage("--card %s: there is no such chip; see amdgpu-sim chips",
				     text);
	fill_card(card, chip);
	while ((word = strtok_r(NULL, ",", &rest))) {
		char *equals = strchr(word, '=');
		uint64_t bytes, *to;

		if (equals)
			*equals = '\0';
		to = !strcmp(word, "vram")      ? &card->vram_bytes
		     : !strcmp(word, "visible") ? &card->visible_bytes
		     : !strcmp(word, "gtt")     ? &card->gtt_bytes
						: NULL;
		if (!to)
			return control_usage("--card %s: %s is not vram, visible or gtt", text,
					     word);
		if (!equals || !size_parse(equals + 1, &bytes) || bytes < SIM_PAGE_BYTES ||
		    bytes % SIM_PAGE_BYTES || bytes >> SIM_MMAP_SHIFT)
			return control_usage("--card %s: %s is a size from 4KiB to below 1TiB, in "
					     "whole pages, such as 8GiB",
					     text, word);
		*to = bytes;
		has_visible |= to == &card->visible_bytes;
	}
	/* The CPU reaches all VRAM of an APU, and of a card with a resized BAR. */
	if (!has_visible && sim_chips[chip].visible_bytes == sim_chips[chip].vram_bytes)
		card->visible_bytes = card->vram_bytes;
	if (card->visible_bytes > card->vram_bytes) {
		if (has_visible)
			return control_usage("--card %s: visible is more than vram", text);
		card->visible_bytes = card->vram_bytes;
	}
	return 0;
}

/* Make the card's file, and the folder of its buffers. */
static int make_files(struct sim_card *card)
{
	char name[40], path[SIM_PATH_MAX + 64];
	struct stat about;
	int fd, r;

	sim_card_file_name(card, name);
	fd = sim_open_file(name, O_RDWR | O_CREAT | O_TRUNC);
	if (fd < 0)
		return fd;
	r = fchmod(fd, 0666) ? -errno : sys_fstat(fd, &about);
	close(fd);
	if (r)
		return r;
	card->ino = about.st_ino;
	snprintf(path, sizeof(path), "%s/%s-bo", sim.dir, name);
	if (mkdir(path, 0777) && errno != EEXIST)
		return -errno;
	return sim_sysroot_plug(card);
}

static int make_udmabuf(void)
{
	struct stat about;
	int fd, r;

	fd = sim_open_file("udmabuf", O_RDWR | O_CREAT);
	if (fd < 0)
		return fd;
	r = fchmod(fd, 0666) ? -errno : sys_fstat(fd, &about);
	if (!r)
		sim.state->udmabuf_ino = about.st_ino;
	close(fd);
	return r;
}

int control_init(const char *dir, const char *const *cards, unsigned n_cards)
{
	int r;

	r = sim_state_create(dir);
	if (!r)
		r = make_udmabuf();
	if (!r)
		r = sim_sysroot_create();
	if (r)
		return control_failed(dir, r);
	for (unsigned i = 0; i < n_cards; i++) {
		struct sim_card *card = &sim.state->cards[i];

		r = parse_card(card, cards[i]);
		if (r)
			return r;
		r = make_files(card);
		if (r)
			return control_failed(dir, r);
		sim.state->n_cards++;
		sim_lock();
		sim_sysroot_refresh(card);
		sim_unlock();
	}
	return 0;
}

static const char *udmabuf_mode_name(void)
{
	static const char *const names[] = {"present", "absent", "host"};

	return names[sim.state->udmabuf_mode];
}

/* Print a sensor's value as the control program accepts it, or "absent" (in JSON: null). */
static void show_sensor(const struct sim_card *card, enum sim_sensor sensor, bool as_json)
{
	if (card->is_absent[sensor])
		fputs(as_json ? "null" : "absent", stdout);
	else
		printf("%g", (double)card->sensor[sensor] / sensors[sensor].factor);
}

static void show_clients(struct sim_card *card, bool as_json)
{
	bool is_first = true;

	for (uint32_t slot = 0; slot < SIM_MAX_CLIENTS; slot++) {
		const struct sim_client *client = &card->clients[slot];
		struct sim_client_memory memory;

		if (!client->is_used)
			continue;
		sim_memory_of_client(card, slot, &memory);
		if (as_json)
			printf("%s\n      {\"id\": %llu, \"pid\": %d, \"vram\": %llu, \"gtt\": "
			       "%llu, "
			       "\"evicted\": %llu, \"submissions\": %llu}",
			       is_first ? "" : ",", (unsigned long long)client->client_id,
			       client->pid, (unsigned long long)memory.placed_bytes[SIM_PLACE_VRAM],
			       (unsigned long long)memory.placed_bytes[SIM_PLACE_GTT],
			       (unsigned long long)memory.evicted_bytes,
			       (unsigned long long)client->seq);
		else
			printf("  client %llu: pid %d, vram %llu, gtt %llu, evicted %llu, "
			       "submissions %llu\n",
			       (unsigned long long)client->client_id, client->pid,
			       (unsigned long long)memory.placed_bytes[SIM_PLACE_VRAM],
			       (unsigned long long)memory.placed_bytes[SIM_PLACE_GTT],
			       (unsigned long long)memory.evicted_bytes,
			       (unsigned long long)client->seq);
		is_first = false;
	}
}

/* Print a key and a number: a line of text, or a line of a JSON object. */
static void show_number(const char *key, uint64_t value, bool as_json)
{
	printf(as_json ? "    \"%s\": %llu,\n" : "  %s %llu\n", key, (unsigned long long)value);
}

static void show_word(const char *key, const char *value, bool as_json)
{
	printf(as_json ? "    \"%s\": \"%s\",\n" : "  %s %s\n", key, value);
}

static void show_failures(const struct sim_card *card)
{
	for (unsigned i = 0; i < SIM_MAX_FAILURES; i++) {
		const struct sim_failure *failure = &card->failures[i];

		if (!failure->n_left)
			continue;
		printf("  fail %s %s ", sim_call_name(failure->nr, failure->query, failure->sensor),
		       sim_errno_name(failure->error));
		if (failure->n_left == SIM_FOREVER)
			puts("forever");
		else
			printf("%u\n", failure->n_left);
	}
}

static void show_card(struct sim_card *card, bool as_json)
{
	const struct sim_chip *chip = &sim_chips[card->chip];
	unsigned index = sim_card_index(card);
	struct sim_usage usage;
	char address[16];

	sim_client_reap(card);
	sim_memory_usage(card, &usage);
	sim_card_address(card, address);
	if (as_json)
		printf("%s\n  \"card%u\": {\n", index ? "," : "", index);
	else
		printf("card%u\n", index);
	show_word("chip", chip->name, as_json);
	show_word("address", address, as_json);
	show_word("state",
		  !card->is_plugged    ? "unplugged"
		  : card->is_suspended ? "suspended"
				       : "running",
		  as_json);
	show_number("vram-total", card->vram_bytes, as_json);
	show_number("vram-used", usage.vram_bytes, as_json);
	show_number("visible-vram-total", card->visible_bytes, as_json);
	show_number("visible-vram-used", usage.visible_bytes, as_json);
	show_number("gtt-total", card->gtt_bytes, as_json);
	show_number("gtt-used", usage.gtt_bytes, as_json);
	for (unsigned i = 0; i < SIM_N_SENSORS; i++) {
		printf(as_json ? "    \"%s\": " : "  %s ", sensor_names[i]);
		show_sensor(card, i, as_json);
		fputs(as_json ? ",\n" : "\n", stdout);
	}
	for (unsigned i = 0; i < N_FIELDS; i++)
		show_number(fields[i].name, *field_of(card, i), as_json);
	show_word("execution", card->is_timed ? "timed" : "instant", as_json);
	show_word("policy", card->is_fair ? "fair" : "fifo", as_json);
	show_word("spill", card->may_spill ? "yes" : "no", as_json);
	show_word("kernel", card->kernel == SIM_KERNEL_6_1 ? "6.1" : "6.14", as_json);
	show_number("drm-minor", card->drm_minor, as_json);
	show_number("resets", card->reset_counter, as_json);
	show_number("vram-losses", card->vram_lost_counter, as_json);
	show_number("ioctls", card->n_ioctls, as_json);
	if (as_json)
		fputs("    \"clients\": [", stdout);
	show_clients(card, as_json);
	if (as_json)
		fputs("]\n  }", stdout);
	else
		show_failures(card);
}

int control_show(bool as_json)
{
	if (as_json)
		putchar('{');
	sim_lock();
	for (uint32_t i = 0; i < sim.state->n_cards; i++)
		show_card(&sim.state->cards[i], as_json);
	if (as_json)
		printf(",\n  \"udmabuf\": \"%s\",\n  \"udmabuf-limit\": %llu\n}\n",
		       udmabuf_mode_name(), (unsigned long long)sim.state->udmabuf_limit_bytes);
	else
		printf("udmabuf %s\nudmabuf-limit %llu\n", udmabuf_mode_name(),
		       (unsigned long long)sim.state->udmabuf_limit_bytes);
	sim_unlock();
	return 0;
}
