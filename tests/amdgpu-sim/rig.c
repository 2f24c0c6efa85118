/* SPDX-License-Identifier: MIT */
/*
 * Support for tests over the simulator
 *
 * Tests use the real libdrm_amdgpu as any program does, and control the simulator only by its
 * control program.
 */
#include "rig.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WORDS 16

const char *rig_control_path;

/* Start the control program, with its output to @out unless that is -1. */
static pid_t start(const char *format, va_list arguments, int out)
{
	char text[512], *words[MAX_WORDS + 2], *rest;
	unsigned n = 0;
	pid_t pid;
	int in[2];

	vsnprintf(text, sizeof(text), format, arguments);
	words[n++] = (char *)rig_control_path;
	for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		assert_true(n <= MAX_WORDS);
		words[n++] = word;
	}
	words[n] = NULL;
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/*
		 * The control program's input never ends, because it inherits the other end, too.
		 */
		if (!pipe(in))
			dup2(in[0], STDIN_FILENO);
		if (out >= 0)
			dup2(out, STDOUT_FILENO);
		execv(rig_control_path, words);
		_exit(127);
	}
	return pid;
}

static int await(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int rig_try(const char *format, ...)
{
	va_list arguments;
	pid_t pid;

	va_start(arguments, format);
	pid = start(format, arguments, -1);
	va_end(arguments);
	return await(pid);
}

void rig_control(const char *format, ...)
{
	va_list arguments;
	pid_t pid;

	va_start(arguments, format);
	pid = start(format, arguments, -1);
	va_end(arguments);
	assert_int_equal(await(pid), 0);
}

pid_t rig_hog(const char *format, ...)
{
	char line[16] = "";
	va_list arguments;
	int out[2];
	pid_t pid;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	va_start(arguments, format);
	pid = start(format, arguments, out[1]);
	va_end(arguments);
	close(out[1]);
	assert_int_equal(read(out[0], line, sizeof(line) - 1), 6);
	assert_string_equal(line, "ready\n");
	close(out[0]);
	return pid;
}

void rig_kill(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(await(pid), 128 + SIGKILL);
}

void rig_open(struct rig *rig, unsigned card)
{
	uint32_t major;
	char path[64];

	snprintf(path, sizeof(path), "/dev/dri/renderD%u", 128 + card);
	rig->fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(rig->fd >= 0);
	assert_int_equal(amdgpu_device_initialize(rig->fd, &major, &rig->minor, &rig->device), 0);
	assert_int_equal(major, 3);
}

void rig_close(struct rig *rig)
{
	assert_int_equal(amdgpu_device_deinitialize(rig->device), 0);
	assert_int_equal(close(rig->fd), 0);
}

struct drm_amdgpu_memory_info rig_memory(const struct rig *rig)
{
	struct drm_amdgpu_memory_info memory;

	assert_int_equal(
		amdgpu_query_info(rig->device, AMDGPU_INFO_MEMORY, sizeof(memory), &memory), 0);
	return memory;
}

uint64_t rig_query(const struct rig *rig, unsigned query)
{
	uint64_t value = 0;

	assert_int_equal(amdgpu_query_info(rig->device, query, sizeof(value), &value), 0);
	return value;
}

int rig_try_allocate(const struct rig *rig, uint64_t domain, uint64_t bytes, uint64_t flags,
		     amdgpu_bo_handle *ret)
{
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = bytes,
		.phys_alignment = 4096,
		.preferred_heap = (uint32_t)domain,
		.flags = flags,
	};

	return amdgpu_bo_alloc(rig->device, &request, ret);
}

amdgpu_bo_handle rig_allocate(const struct rig *rig, uint64_t domain, uint64_t bytes,
			      uint64_t flags)
{
	amdgpu_bo_handle bo = NULL;

	assert_int_equal(rig_try_allocate(rig, domain, bytes, flags, &bo), 0);
	return bo;
}

void rig_free(amdgpu_bo_handle bo)
{
	assert_int_equal(amdgpu_bo_free(bo), 0);
}

bool rig_read(const char *path, char *text, size_t size)
{
	ssize_t n;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	close(fd);
	return true;
}

uint64_t rig_fdinfo_bytes(const char *path, const char *key)
{
	char text[4096], unit[8] = "";
	unsigned long long value;
	const char *at;

	assert_true(rig_read(path, text, sizeof(text)));
	at = strstr(text, key);
	assert_non_null(at);
	assert_true(sscanf(at + strlen(key), ": %llu%7[ KMiB]", &value, unit) >= 1);
	return value << (strstr(unit, "KiB") ? 10 : strstr(unit, "MiB") ? 20 : 0);
}

int rig_submit(const struct rig *rig, amdgpu_context_handle context, amdgpu_bo_handle bo)
{
	amdgpu_bo_list_handle list;
	struct amdgpu_cs_ib_info ib = {.ib_mc_address = 0x100000, .size = 16};
	struct amdgpu_cs_request request = {
		.ip_type = AMDGPU_HW_IP_COMPUTE,
		.number_of_ibs = 1,
		.ibs = &ib,
	};
	int r;

	r = amdgpu_bo_list_create(rig->device, 1, &bo, NULL, &list);
	if (r)
		return r;
	request.resources = list;
	r = amdgpu_cs_submit(context, 0, &request, 1);
	amdgpu_bo_list_destroy(list);
	return r;
}
