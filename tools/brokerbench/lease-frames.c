/* SPDX-License-Identifier: MIT */
/*
 * ffmpeg in a lease
 *
 * A sample is one run of ffmpeg, by its own clock, which starts when the device is open. The run
 * makes pictures, uploads them, scales them on the software device and downloads them; each of
 * these steps allocates and frees. First the bench verifies that the layer limits ffmpeg at all: in
 * a lease of a few bytes the run must fail.
 */
#include "lease-frames.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "samples.h"
#include "util/clock.h"

#define LEASE_VARIABLE "RINGBROKER_LEASE_VRAM"

enum { N_FRAMES = 60, LIMIT_MS = 60000 };

extern char **environ;

/*
 * Read the program's output and keep its end; "bench: utime=... rtime=0.307s" is nearly the last
 * line.
 * Return: true if the output ended within LIMIT_MS.
 */
static bool read_end(int fd, char *tail, size_t n_tail)
{
	uint64_t end_ns = clock_now_ns() + LIMIT_MS * 1000000ull, now_ns;
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	size_t used = 0;
	ssize_t n = 1;

	while (n > 0 && (now_ns = clock_now_ns()) < end_ns) {
		if (poll(&ready, 1, (int)((end_ns - now_ns) / 1000000u) + 1) <= 0)
			continue;
		if (used > n_tail / 2) {
			memmove(tail, tail + used - n_tail / 4, n_tail / 4);
			used = n_tail / 4;
		}
		n = read(fd, tail + used, n_tail / 2 - 1);
		used += n > 0 ? (size_t)n : 0;
	}
	tail[used] = '\0';
	return n <= 0;
}

/*
 * Run ffmpeg once. *ret is its frames per second.
 * Return: 0; -ENOENT if there is no such program; -ECANCELED if it failed; another negative errno.
 */
static int run_once(double *ret)
{
	static char frames[16];
	static const char *const words[] = {
		"ffmpeg",
		"-hide_banner",
		"-nostdin",
		"-nostats",
		"-benchmark",
		"-init_hw_device",
		"vulkan=v",
		"-filter_hw_device",
		"v",
		"-f",
		"lavfi",
		"-i",
		"testsrc2=size=1920x1080:rate=25",
		"-frames:v",
		frames,
		"-vf",
		"format=yuv420p,hwupload,scale_vulkan=w=640:h=360,hwdownload,format=yuv420p",
		"-f",
		"null",
		"-",
		NULL};
	posix_spawn_file_actions_t actions;
	char tail[4096];
	const char *time;
	int pipe_fds[2], status, r;
	double seconds;
	pid_t pid;

	snprintf(frames, sizeof(frames), "%d", N_FRAMES);
	if (pipe(pipe_fds) < 0)
		return -errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addclose(&actions, pipe_fds[0]);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
	r = posix_spawnp(&pid, words[0], &actions, NULL, (char *const *)words, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe_fds[1]);
	if (!r && !read_end(pipe_fds[0], tail, sizeof(tail)))
		kill(pid, SIGKILL);
	close(pipe_fds[0]);
	if (r)
		return -r;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	time = strstr(tail, "rtime=");
	if (status != 0 || !time || sscanf(time, "rtime=%lf", &seconds) != 1 || seconds <= 0)
		return -ECANCELED;
	*ret = N_FRAMES / seconds;
	return 0;
}

/* Run a round; @data is the name of the layer to enable, NULL: none. */
static int frames_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	double frames_per_s;
	int r;

	(void)budget_ns;
	if (data)
		setenv("VK_INSTANCE_LAYERS", data, 1);
	r = run_once(&frames_per_s);
	unsetenv("VK_INSTANCE_LAYERS");
	if (!r)
		r = samples_reserve(samples, 1);
	if (!r)
		samples_add(samples, frames_per_s);
	return r;
}

/* Return true if a program that names the layer is limited to its lease. */
static bool is_held(char *layer)
{
	struct samples samples = SAMPLES_INIT;
	char *vram = strdup(getenv(LEASE_VARIABLE));
	int r = -ENOMEM;

	if (vram) {
		setenv(LEASE_VARIABLE, "64KiB", 1);
		r = frames_round(layer, 0, &samples);
		setenv(LEASE_VARIABLE, vram, 1);
	}
	free(vram);
	samples_deinit(&samples);
	return r == -ECANCELED;
}

int lease_frames(struct bench_env *env, char *layer)
{
	const struct bench_row row = {
		.params = "ffmpeg 1080p scale_vulkan",
		.unit = "frames/s",
		.is_rate = true,
		.baseline = "without-layer",
		.target = 0.99,
	};
	const struct bench_side sides[2] = {{frames_round, layer}, {frames_round, NULL}};
	double frames_per_s;
	int r = run_once(&frames_per_s);

	if (r == -ENOENT)
		return bench_skip(env, row.params, "ffmpeg is not installed");
	if (r == -ECANCELED)
		return bench_skip(env, row.params, "ffmpeg has no Vulkan here");
	if (!r && !is_held(layer))
		return bench_fail(env, -EPROTO, "ffmpeg is not held to its lease");
	if (!r)
		r = bench_compare(env, &row, sides[0], sides[1]);
	return r ? bench_fail(env, r, "ffmpeg failed in its lease") : 0;
}
