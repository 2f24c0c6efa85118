/* SPDX-License-Identifier: MIT */
/*
 * A process that holds memory of a card, as a game would
 *
 * It opens the render node, allocates, and stays. It appears in fdinfo, and all its memory is free
 * again when it dies, even by a signal.
 */
#include "control.h"
#include "ioctl.h"
#include "sys.h"
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* Programs do not allocate gigabytes as one buffer; parts can be evicted one by one. */
#define PIECE_BYTES (256ull << 20)

static int allocate(const struct sim_fd *client, uint64_t domain, uint64_t bytes)
{
	while (bytes) {
		union drm_amdgpu_gem_create args = {
			.in =
				{
					.bo_size = bytes < PIECE_BYTES ? bytes : PIECE_BYTES,
					.alignment = SIM_PAGE_BYTES,
					.domains = domain,
					.domain_flags = AMDGPU_GEM_CREATE_NO_CPU_ACCESS,
				},
		};
		uint64_t piece = args.in.bo_size;
		int r = sim_ioctl(client, DRM_IOCTL_AMDGPU_GEM_CREATE, &args);

		if (r)
			return r;
		bytes -= piece;
	}
	return 0;
}

/* Wait until the time is over, or until the end of stdin. */
static void stay(double seconds)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	char rest[256];

	if (seconds >= 0) {
		struct timespec left = {
			.tv_sec = (time_t)seconds,
			.tv_nsec = (long)((seconds - floor(seconds)) * 1e9),
		};

		while (nanosleep(&left, &left) && errno == EINTR)
			;
		return;
	}
	while (poll(&input, 1, -1) >= 0 || errno == EINTR) {
		if (input.revents && read(STDIN_FILENO, rest, sizeof(rest)) <= 0)
			return;
	}
}

int control_hog(struct sim_card *card, const struct control_hog *hog)
{
	struct sim_fd client;
	int fd, r;

	fd = sim_client_open(card, SIM_RENDER_MINOR + sim_card_index(card), O_CLOEXEC);
	if (fd < 0)
		return control_failed("render node", fd);
	if (!sim_client_of_fd(fd, &client))
		return control_failed("render node", -ENODEV);
	r = allocate(&client, AMDGPU_GEM_DOMAIN_VRAM, hog->vram_bytes);
	if (!r)
		r = allocate(&client, AMDGPU_GEM_DOMAIN_GTT, hog->gtt_bytes);
	if (r) {
		close(fd);
		return control_failed("allocation", r);
	}
	puts("ready");
	fflush(stdout);
	stay(hog->seconds);
	close(fd);
	return 0;
}
