#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Support for tests over the simulator: the control program, cards, buffers
 *
 * Failures end the test.
 */
#include <amdgpu.h>
#include <libdrm/amdgpu_drm.h>
#include <stdbool.h>
#include <sys/types.h>

#include "support/test.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* Path of the control program: argv[1] of every such test. */
extern const char *rig_control_path;

/*
 * Run the control program with these words.
 * Return: its exit status.
 */
__attribute__((format(printf, 1, 2))) int rig_try(const char *format, ...);
/* Run the control program, which must succeed. */
__attribute__((format(printf, 1, 2))) void rig_control(const char *format, ...);

/*
 * Start a hog and wait until it has its memory.
 * Return: its pid.
 */
__attribute__((format(printf, 1, 2))) pid_t rig_hog(const char *format, ...);
/* Kill a child of the test and wait for it. */
void rig_kill(pid_t pid);

/* A client of a card. */
struct rig {
	int fd;
	amdgpu_device_handle device;
	uint32_t minor;
};

void rig_open(struct rig *rig, unsigned card);
void rig_close(struct rig *rig);
#define RIG(name, card) SCOPED(rig, name, rig_open, rig_close, card)

struct drm_amdgpu_memory_info rig_memory(const struct rig *rig);
uint64_t rig_query(const struct rig *rig, unsigned query);

/*
 * Allocate a buffer.
 * Return: libdrm's result, 0 or a negative errno.
 */
int rig_try_allocate(const struct rig *rig, uint64_t domain, uint64_t bytes, uint64_t flags,
		     amdgpu_bo_handle *ret);
amdgpu_bo_handle rig_allocate(const struct rig *rig, uint64_t domain, uint64_t bytes,
			      uint64_t flags);
void rig_free(amdgpu_bo_handle bo);
/* Return the bytes of a key of an fdinfo file. */
uint64_t rig_fdinfo_bytes(const char *path, const char *key);
/*
 * Read a file's text.
 * Return: false if the file cannot be opened.
 */
bool rig_read(const char *path, char *text, size_t size);

/*
 * Submit an empty job that lists @bo.
 * Return: libdrm's result.
 */
int rig_submit(const struct rig *rig, amdgpu_context_handle context, amdgpu_bo_handle bo);
