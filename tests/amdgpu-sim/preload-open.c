/* SPDX-License-Identifier: MIT */
/*
 * open() and its relatives
 *
 * Opening a card's node makes a client; /dev/udmabuf is the simulated one; fdinfo has the text that
 * the kernel would write. The rest of /dev/dri and /sys/... are the files below DIR/root. All other
 * paths are passed to the system.
 */
#include "preload.h"
#include "client.h"
#include "dma-buf.h"
#include "fdinfo.h"
#include "sysroot.h"
#include "sys.h"
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void attach(void)
{
	const char *dir = getenv("AMDGPU_SIM_DIR");
	int r;

	if (!dir || !dir[0])
		return;
	r = sim_state_open(dir);
	if (r)
		fprintf(stderr, "amdgpu-sim: AMDGPU_SIM_DIR=%s: %s\n", dir, strerror(-r));
}

bool sim_is_ready(void)
{
	int saved = errno;

	pthread_once(&once, attach);
	errno = saved;
	return sim.state;
}

int sim_result(int result)
{
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

const char *sim_absolute_path(int folder, const char *path, char buffer[SIM_PATH_MAX])
{
	char link[64], name[SIM_PATH_MAX / 2];
	const char *below;
	ssize_t n;

	if (!path || !path[0] || path[0] == '/' || folder < 0)
		return path;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
	n = sys_readlinkat(AT_FDCWD, link, name, sizeof(name) - 1);
	if (n <= 0)
		return path;
	name[n] = '\0';
	below = sim_sysroot_unmap(name);
	/* The simulator answers for paths of these folders alone. */
	if (below == name && strncmp(name, "/proc", 5) && strcmp(name, "/dev") &&
	    strncmp(name, "/sys", 4))
		return path;
	snprintf(buffer, SIM_PATH_MAX, "%s/%.*s", below, SIM_PATH_MAX / 2 - 2, path);
	return buffer;
}

const char *sim_map_path(int folder, const char *path, char buffer[SIM_PATH_MAX])
{
	char absolute[SIM_PATH_MAX];
	const char *full;

	if (!sim_is_ready() || !path)
		return path;
	full = sim_absolute_path(folder, path, absolute);
	if (full[0] != '/')
		return path;
	if (!strcmp(full, "/dev/udmabuf") && sim.state->udmabuf_mode != SIM_UDMABUF_HOST) {
		bool is_there = sim.state->udmabuf_mode == SIM_UDMABUF_PRESENT;

		snprintf(buffer, SIM_PATH_MAX, "%s/%s", sim.dir, is_there ? "udmabuf" : "absent");
		return buffer;
	}
	return sim_sysroot_map(full, buffer) ? buffer : path;
}

static bool is_sensor(const char *name)
{
	static const char *const names[] = {"gpu_busy_percent", "mem_busy_percent", "temp1_input",
					    "power1_average",   "freq1_input",      "freq2_input",
					    "in0_input",        "pp_dpm_sclk",      "pp_dpm_mclk"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(names[i], name))
			return true;
	}
	return false;
}

/* Open an up-to-date file below DIR/root. */
static int open_attribute(const char *path, int flags, unsigned mode)
{
	char link[64], real[SIM_PATH_MAX];
	const char *name;
	struct sim_card *card;
	ssize_t n;
	int fd, r = 0;

	fd = sys_openat(AT_FDCWD, path, flags, mode);
	if (fd < 0)
		return fd;
	/* Find the attribute's card by the file's resolved path. */
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = sys_readlinkat(AT_FDCWD, link, real, sizeof(real) - 1);
	if (n <= 0)
		return fd;
	real[n] = '\0';
	name = strrchr(real, '/') + 1;
	card = sim_sysroot_card_of(real);
	if (!card)
		return fd;
	sim_lock();
	if (!strncmp(name, "mem_info_", 9)) {
		sim_client_reap(card);
		sim_sysroot_refresh_memory(card);
	} else if (card->is_suspended && is_sensor(name)) {
		/* amdgpu_pm.c: "if (adev->in_suspend && !adev->in_runpm) return -EPERM". */
		r = -EPERM;
	}
	sim_unlock();
	if (r) {
		close(fd);
		return r;
	}
	return fd;
}

static int open_simulated(const char *path, int flags, unsigned mode, bool *ret_is_ours)
{
	char mapped[SIM_PATH_MAX];
	struct sim_card *card;
	uint32_t minor;
	int fd;

	*ret_is_ours = true;
	if (!strcmp(path, "/dev/udmabuf") && sim.state->udmabuf_mode != SIM_UDMABUF_HOST)
		return sim_udmabuf_open(flags);
	card = flags & (O_PATH | O_DIRECTORY) ? NULL : sim_card_of_node(path, &minor);
	if (card) {
		fd = sim_client_open(card, minor, flags);
		/* The card's node has disappeared with the card. */
		return fd == -ENODEV ? -ENOENT : fd;
	}
	if (!strncmp(path, "/proc/", 6)) {
		fd = sim_fdinfo_open(path);
		if (fd >= 0 && !(flags & O_CLOEXEC))
			fcntl(fd, F_SETFD, 0);
		*ret_is_ours = fd != -ENOENT;
		return fd;
	}
	if (sim_sysroot_map(path, mapped))
		return open_attribute(mapped, flags, mode);
	*ret_is_ours = false;
	return -ENOENT;
}

int sim_open_any(int folder, const char *path, int flags, unsigned mode)
{
	if (path && sim_is_ready()) {
		char absolute[SIM_PATH_MAX];
		const char *full = sim_absolute_path(folder, path, absolute);
		bool is_ours = false;
		int fd = -ENOENT;

		if (full[0] == '/')
			fd = open_simulated(full, flags, mode, &is_ours);
		if (is_ours)
			return sim_result(fd);
	}
	return sim_result(sys_openat(folder, path, flags, mode));
}

/* The mode is passed only with these flags; otherwise va_arg() would read garbage. */
#define MODE_OF(flags)                                                     \
	({                                                                 \
		unsigned mode_ = 0;                                        \
		if ((flags)&O_CREAT || ((flags)&O_TMPFILE) == O_TMPFILE) { \
			va_list arguments_;                                \
			va_start(arguments_, flags);                       \
			mode_ = va_arg(arguments_, unsigned);              \
			va_end(arguments_);                                \
		}                                                          \
		mode_;                                                     \
	})

INTERPOSED int open(const char *path, int flags, ...)
{
	return sim_open_any(AT_FDCWD, path, flags, MODE_OF(flags));
}

INTERPOSED int open64(const char *path, int flags, ...)
{
	return sim_open_any(AT_FDCWD, path, flags | O_LARGEFILE, MODE_OF(flags));
}

INTERPOSED int openat(int folder, const char *path, int flags, ...)
{
	return sim_open_any(folder, path, flags, MODE_OF(flags));
}

INTERPOSED int openat64(int folder, const char *path, int flags, ...)
{
	return sim_open_any(folder, path, flags | O_LARGEFILE, MODE_OF(flags));
}

/* Variants that _FORTIFY_SOURCE calls. */
INTERPOSED int __open_2(const char *path, int flags);
INTERPOSED int __open64_2(const char *path, int flags);
INTERPOSED int __openat_2(int folder, const char *path, int flags);
INTERPOSED int __openat64_2(int folder, const char *path, int flags);

int __open_2(const char *path, int flags)
{
	return sim_open_any(AT_FDCWD, path, flags, 0);
}

int __open64_2(const char *path, int flags)
{
	return sim_open_any(AT_FDCWD, path, flags | O_LARGEFILE, 0);
}

int __openat_2(int folder, const char *path, int flags)
{
	return sim_open_any(folder, path, flags, 0);
}

int __openat64_2(int folder, const char *path, int flags)
{
	return sim_open_any(folder, path, flags | O_LARGEFILE, 0);
}

/*
 * Return true if libc's own fopen() must not open @path: it opens files by a call that cannot be
 * interposed.
 */
static bool is_simulated(const char *path)
{
	char buffer[SIM_PATH_MAX];

	return path && sim_is_ready() &&
	       (!strncmp(path, "/proc/", 6) || sim_map_path(AT_FDCWD, path, buffer) != path);
}

static FILE *open_stream(const char *path, const char *mode)
{
	static FILE *(*next)(const char *, const char *);
	FILE *file;
	int fd;

	/* Programs do not write to simulated files through streams. */
	if (mode[0] == 'r' && !strchr(mode, '+') && is_simulated(path)) {
		fd = sim_open_any(AT_FDCWD, path, O_RDONLY | (strchr(mode, 'e') ? O_CLOEXEC : 0),
				  0);
		if (fd < 0)
			return NULL;
		file = fdopen(fd, mode);
		if (!file)
			close(fd);
		return file;
	}
	if (!next)
		next = dlsym(RTLD_NEXT, "fopen64");
	return next(path, mode);
}

INTERPOSED FILE *fopen(const char *path, const char *mode)
{
	return open_stream(path, mode);
}

INTERPOSED FILE *fopen64(const char *path, const char *mode)
{
	return open_stream(path, mode);
}

INTERPOSED DIR *opendir(const char *path)
{
	static DIR *(*next)(const char *);
	char buffer[SIM_PATH_MAX];

	if (!next)
		next = dlsym(RTLD_NEXT, "opendir");
	return next(sim_map_path(AT_FDCWD, path, buffer));
}

INTERPOSED int scandir(const char *path, struct dirent ***ret_names,
		       int (*select)(const struct dirent *),
		       int (*compare)(const struct dirent **, const struct dirent **))
{
	static int (*next)(const char *, struct dirent ***, int (*)(const struct dirent *),
			   int (*)(const struct dirent **, const struct dirent **));
	char buffer[SIM_PATH_MAX];

	if (!next)
		next = dlsym(RTLD_NEXT, "scandir");
	return next(sim_map_path(AT_FDCWD, path, buffer), ret_names, select, compare);
}

INTERPOSED int scandir64(const char *path, struct dirent64 ***ret_names,
			 int (*select)(const struct dirent64 *),
			 int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	static int (*next)(const char *, struct dirent64 ***, int (*)(const struct dirent64 *),
			   int (*)(const struct dirent64 **, const struct dirent64 **));
	char buffer[SIM_PATH_MAX];

	if (!next)
		next = dlsym(RTLD_NEXT, "scandir64");
	return next(sim_map_path(AT_FDCWD, path, buffer), ret_names, select, compare);
}

__attribute__((constructor)) static void attach_at_start(void)
{
	sim_is_ready();
}
