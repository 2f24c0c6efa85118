/* SPDX-License-Identifier: MIT */
/*
 * fdinfo of simulated cards
 *
 * The text is that of drivers/gpu/drm/amd/amdgpu/amdgpu_fdinfo.c, amdgpu_show_fdinfo(), and from
 * Linux 6.4 on of drivers/gpu/drm/drm_file.c, drm_show_fdinfo() and drm_print_memory_stats().
 * Documentation/gpu/drm-usage-stats.rst describes the keys.
 *
 * The kernel sums the buffers in the client's address space; the simulator sums the buffers that
 * the client has handles of.
 */
#include "fdinfo.h"
#include "engine.h"
#include "memory.h"
#include "sys.h"
#include "sysroot.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct text {
	char *at;
	size_t left;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(text->at, text->left, format, arguments);
	va_end(arguments);
	if (n > 0 && (size_t)n < text->left) {
		text->at += n;
		text->left -= (size_t)n;
	}
}

static void add_kib(struct text *text, const char *key, uint64_t bytes)
{
	add(text, "%s\t%llu KiB\n", key, (unsigned long long)(bytes >> 10));
}

/* Write a size as print_size() does, in the largest unit that divides it. */
static void add_size(struct text *text, const char *what, const char *region, uint64_t size)
{
	static const char *const units[] = {"", " KiB", " MiB"};
	unsigned unit = 0;

	while (unit < 2 && size && size % 1024 == 0) {
		size /= 1024;
		unit++;
	}
	add(text, "drm-%s-%s:\t%llu%s\n", what, region, (unsigned long long)size, units[unit]);
}

static void add_regions(struct text *text, const struct sim_client_memory *memory)
{
	static const struct {
		const char *name;
		enum sim_place place;
	} regions[] = {{"cpu", SIM_PLACE_CPU}, {"gtt", SIM_PLACE_GTT}, {"vram", SIM_PLACE_VRAM}};

	for (unsigned i = 0; i < 3; i++) {
		uint64_t resident = memory->placed_bytes[regions[i].place];

		add_size(text, "total", regions[i].name, memory->total_bytes[regions[i].place]);
		add_size(text, "shared", regions[i].name, memory->shared_bytes[regions[i].place]);
		add_size(text, "resident", regions[i].name, resident);
		add_size(text, "purgeable", regions[i].name, 0);
	}
}

/* Write the driver's part. */
static void show(struct text *text, const struct sim_fd *client)
{
	static const char *const engines[SIM_N_ENGINES] = {"gfx", "compute", "dma"};
	const struct sim_client *state = &client->card->clients[client->slot];
	uint64_t engine_ns;
	struct sim_client_memory memory;
	bool is_new = client->card->kernel == SIM_KERNEL_6_14;
	char address[16];

	sim_card_address(client->card, address);
	sim_memory_of_client(client->card, client->slot, &memory);
	if (!is_new)
		add(text, "pasid:\t%u\n", 32768 + client->slot);
	add(text, "drm-driver:\tamdgpu\n");
	if (is_new)
		add(text, "drm-client-id:\t%llu\n", (unsigned long long)state->client_id);
	add(text, "drm-pdev:\t%s\n", address);
	if (!is_new)
		add(text, "drm-client-id:\t%llu\n", (unsigned long long)state->client_id);
	if (is_new) {
		add(text, "pasid:\t%u\n", 32768 + client->slot);
		add_regions(text, &memory);
	}
	add_kib(text, "drm-memory-vram:", memory.placed_bytes[SIM_PLACE_VRAM]);
	add_kib(text, "drm-memory-gtt: ", memory.placed_bytes[SIM_PLACE_GTT]);
	add_kib(text, "drm-memory-cpu: ", memory.placed_bytes[SIM_PLACE_CPU]);
	if (is_new) {
		add_kib(text, "amd-evicted-vram:", memory.evicted_bytes);
		add_kib(text, "amd-requested-vram:", memory.requested_vram_bytes);
		add_kib(text, "amd-requested-gtt:", memory.requested_gtt_bytes);
	}
	for (unsigned i = 0; i < SIM_N_ENGINES; i++) {
		engine_ns = sim_engine_time(client->card, client->slot, i);
		if (engine_ns)
			add(text, "drm-engine-%s:\t%llu ns\n", engines[i],
			    (unsigned long long)engine_ns);
	}
}

/* Return the begin of "NAME/NUMBER" if @path is "/proc/.../NAME/NUMBER", else NULL. */
static const char *last_of(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');
	size_t n = strlen(name);

	if (strncmp(path, "/proc/", 6) || !slash || !slash[1] ||
	    strspn(slash + 1, "0123456789") != strlen(slash + 1))
		return NULL;
	if ((size_t)(slash - path) < n + 1 || strncmp(slash - n, name, n) ||
	    slash[-(long)n - 1] != '/')
		return NULL;
	return slash - n;
}

bool sim_fdinfo_find(const char *path, struct sim_fd *ret, char *text, size_t size)
{
	char link[128], info[128];
	const char *at = last_of(path, "fdinfo");
	struct stat about;
	long long offset;
	ssize_t n;
	int fd;

	if (!at)
		at = last_of(path, "fd");
	if (!at || at - path > 64)
		return false;
	snprintf(link, sizeof(link), "%.*sfd%s", (int)(at - path), path, strrchr(path, '/'));
	snprintf(info, sizeof(info), "%.*sfdinfo%s", (int)(at - path), path, strrchr(path, '/'));

	if (sys_fstatat(AT_FDCWD, link, &about, 0))
		return false;
	ret->card = sim_card_of_inode(about.st_dev, about.st_ino);
	if (!ret->card)
		return false;
	fd = sys_open(info, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	if (n < 0)
		return false;
	text[n] = '\0';
	if (sscanf(text, "pos: %lld", &offset) != 1 || offset < 1 || offset > SIM_MAX_CLIENTS)
		return false;
	ret->slot = (uint32_t)(offset - 1);
	/*
	 * Only a client's descriptor has the lock; the simulator's own descriptors of the file do
	 * not.
	 */
	return ret->card->clients[ret->slot].is_used && strstr(text, "lock:");
}

int sim_fdinfo_open(const char *path)
{
	char real[2048], text[8192], *begin, *lock;
	struct text to = {.at = text, .left = sizeof(text)};
	struct sim_fd client;
	size_t n;
	int fd, r = 0;

	if (!last_of(path, "fdinfo") || !sim_fdinfo_find(path, &client, real, sizeof(real)))
		return -ENOENT;
	/*
	 * Keep the kernel's own lines, except the position and the lock, which the simulator uses.
	 */
	begin = strchr(real, '\n');
	lock = strstr(real, "lock:");
	*lock = '\0';
	add(&to, "pos:\t0%s", begin);

	sim_lock();
	sim_engine_advance(client.card);
	show(&to, &client);
	sim_unlock();
	n = (size_t)(to.at - text);
	fd = memfd_create("amdgpu-sim-fdinfo", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET))
		r = -errno;
	if (r) {
		close(fd);
		return r;
	}
	return fd;
}
