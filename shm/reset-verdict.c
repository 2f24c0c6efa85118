/* SPDX-License-Identifier: MIT */
/*
 * The kernel's judgement of a process after a GPU was reset: see reset-verdict.h.
 *
 * The layer has no libdrm, so the two calls are declared here. Source: the kernel's
 * include/uapi/drm/drm.h and amdgpu_drm.h, amdgpu_ctx_query2().
 */
#include "shm/reset-verdict.h"

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
	DRM_MAJOR = 226,
	/* Contexts are numbered from 1; a freed number is used again. */
	MAX_CONTEXTS = 64,
	QUERY_STATE2 = 4, /* AMDGPU_CTX_OP_QUERY_STATE2 */
	FLAG_RESET = 1,   /* AMDGPU_CTX_QUERY2_FLAGS_RESET, _GUILTY */
	FLAG_GUILTY = 4,
};

/* struct drm_version */
struct version {
	int32_t major, minor, patch;
	size_t name_bytes;
	char *name;
	size_t date_bytes;
	char *date;
	size_t about_bytes;
	char *about;
};
#define IOCTL_VERSION _IOWR('d', 0x00, struct version)

/* union drm_amdgpu_ctx */
union context_query {
	struct {
		uint32_t op, flags, context;
		int32_t priority;
	} in;
	struct {
		uint64_t flags;
		uint32_t hangs, status;
	} out;
};
#define IOCTL_CONTEXT _IOWR('d', 0x42, union context_query)

static int call(int fd, unsigned long request, void *data)
{
	int r;

	do
		r = ioctl(fd, request, data);
	while (r < 0 && (errno == EINTR || errno == EAGAIN));
	return r;
}

static int is_amdgpu(int fd)
{
	char name[16] = "";
	struct version version = {.name_bytes = sizeof(name) - 1, .name = name};

	return call(fd, IOCTL_VERSION, &version) == 0 && strcmp(name, "amdgpu") == 0;
}

static enum reset_verdict verdict_of(int fd)
{
	enum reset_verdict verdict = RESET_VERDICT_UNKNOWN;

	for (uint32_t i = 1; i <= MAX_CONTEXTS; i++) {
		union context_query query = {.in = {.op = QUERY_STATE2, .context = i}};

		if (call(fd, IOCTL_CONTEXT, &query) < 0)
			continue;
		if (query.out.flags & FLAG_GUILTY)
			return RESET_VERDICT_GUILTY;
		if (query.out.flags & FLAG_RESET)
			verdict = RESET_VERDICT_INNOCENT;
	}
	return verdict;
}

enum reset_verdict reset_verdict(uint64_t render, uint64_t primary)
{
	const int before_errno = errno; /* programs rely on their errno */
	enum reset_verdict verdict = RESET_VERDICT_UNKNOWN;
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;

	while (folder && verdict != RESET_VERDICT_GUILTY && (entry = readdir(folder))) {
		const int fd = atoi(entry->d_name);
		enum reset_verdict of_fd;
		struct stat about;

		if (entry->d_name[0] == '.' || fstat(fd, &about) < 0 || !S_ISCHR(about.st_mode) ||
		    major(about.st_rdev) != DRM_MAJOR)
			continue;
		if ((render || primary) && about.st_rdev != render && about.st_rdev != primary)
			continue;
		of_fd = is_amdgpu(fd) ? verdict_of(fd) : RESET_VERDICT_UNKNOWN;
		verdict = of_fd > verdict ? of_fd : verdict;
	}
	if (folder)
		closedir(folder);
	errno = before_errno;
	return verdict;
}
