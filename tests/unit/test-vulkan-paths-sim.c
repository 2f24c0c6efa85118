/* SPDX-License-Identifier: MIT */
/*
 * Memory paths below RADV, over simulated cards
 *
 *	amdgpu-sim run --card polaris10 -- test-vulkan-paths-sim AMDGPU-SIM
 *
 * The simulator executes nothing, so no path can be proven. These tests accept a path once the
 * driver has taken the memory (VULKAN_FORCE_UNPROVEN). They check the requests to the kernel, its
 * refusals and leaks. test-vulkan-paths checks results.
 */
#include <errno.h>
#include <fcntl.h>
#include <libdrm/amdgpu_drm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"
#include "util/waker.h"
#include "vulkan/udmabuf.h"
#include "vulkan/vulkan.h"

enum { GPU = RBK_DEVICE_GPU, PAGE = 4096, MIB = 1 << 20 };

static const char *sim_program;

struct card {
	struct waker waker;
	struct vulkan *vulkan;
	struct executor *executor;
};

static void card_begin(struct card *card, enum vulkan_path path, uint32_t force)
{
	const struct vulkan_options options = {.path = path, .force = force};

	assert_int_equal(waker_init(&card->waker), 0);
	assert_int_equal(vulkan_open(&options, &card->waker, &card->vulkan), 0);
	assert_int_equal(vulkan_n_executors(card->vulkan), 1);
	card->executor = vulkan_executor(card->vulkan, 0);
	card->executor->index = GPU;
}

static void card_end(struct card *card)
{
	struct vulkan_usage usage;

	vulkan_usage(card->executor, &usage);
	assert_int_equal(usage.n_imports, 0);
	card->executor->ops->free(card->executor);
	vulkan_free(card->vulkan);
	waker_deinit(&card->waker);
}

/* Run amdgpu-sim over the same cards. */
static void sim_set(const char *setting)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execl(sim_program, "amdgpu-sim", "set", setting, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static unsigned int count_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Return the GTT bytes of the card, used by all its clients. */
static uint64_t gtt_used(void)
{
	FILE *file = fopen("/sys/class/drm/renderD128/device/mem_info_gtt_used", "r");
	unsigned long long bytes = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu", &bytes), 1);
	fclose(file);
	return bytes;
}

static int make_memfd(uint64_t bytes, unsigned int seals)
{
	int fd = memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void arena_begin(struct card *card, struct exec_arena *arena, uint64_t bytes,
			unsigned int seals)
{
	int fd = make_memfd(bytes, seals);

	*arena = (struct exec_arena){
		.base = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0),
		.bytes = bytes,
		.fd = fd,
	};
	assert_ptr_not_equal(arena->base, MAP_FAILED);
	card->executor->ops->arena_wrap(card->executor, arena);
	card->executor->ops->arena_import(card->executor, arena);
	arena->fd = -1;
	close(fd);
}

static void arena_end(struct card *card, struct exec_arena *arena)
{
	card->executor->ops->arena_release(card->executor, arena);
	exec_arena_unwrap(arena);
	munmap(arena->base, arena->bytes);
}

/* amdgpu has no host-import. Without a probe that moves bytes, the two other paths are accepted. */
TEST(test_radv__order)
{
	struct card card;

	card_begin(&card, VULKAN_PATH_AUTO, VULKAN_FORCE_UNPROVEN);
	assert_string_equal(card.executor->info.paths, "udmabuf,exported,staged");
	assert_string_equal(vulkan_path_why_not(card.executor, VULKAN_PATH_HOST_IMPORT),
			    "the driver refuses to import shared memory");
	assert_false(card.executor->info.exports_arenas);
	assert_int_equal(card.executor->info.arena_segment_bytes, 64 * MIB);
	card_end(&card);

	sim_set("udmabuf=absent");
	card_begin(&card, VULKAN_PATH_AUTO, VULKAN_FORCE_UNPROVEN);
	assert_string_equal(card.executor->info.paths, "exported,staged");
	assert_string_equal(vulkan_path_why_not(card.executor, VULKAN_PATH_UDMABUF),
			    "the kernel has no /dev/udmabuf");
	assert_true(card.executor->info.exports_arenas);
	assert_int_equal(card.executor->info.arena_segment_bytes, 0);
	assert_non_null(strstr(vulkan_sentence(card.vulkan, 0), "no udmabuf"));
	card_end(&card);
	card_begin(&card, VULKAN_PATH_UDMABUF, VULKAN_FORCE_UNPROVEN);
	assert_non_null(strstr(vulkan_path_refusal(card.vulkan), "no udmabuf: the kernel has no"));
	card_end(&card);
	sim_set("udmabuf=present");
}

/* If the probe moves no bytes, no path is accepted. */
TEST(test_radv__nothing_proven)
{
	struct card card;

	card_begin(&card, VULKAN_PATH_AUTO, 0);
	assert_string_equal(card.executor->info.paths, "staged");
	assert_string_equal(vulkan_path_why_not(card.executor, VULKAN_PATH_UDMABUF),
			    "the device does not see memory imported as a dma-buf");
	assert_string_equal(vulkan_path_why_not(card.executor, VULKAN_PATH_EXPORTED),
			    "the device and the CPU see different contents in exported memory");
	card_end(&card);
}

TEST(test_udmabuf__limit)
{
	uint64_t bytes;
	int fd, dma_buf, memfd;

	sim_set("udmabuf-limit=1MiB");
	assert_int_equal(udmabuf_open(&fd, &bytes), 0);
	assert_int_equal(bytes, MIB);
	memfd = make_memfd(4 * MIB, F_SEAL_SHRINK);
	assert_int_equal(udmabuf_wrap(fd, memfd, 0, MIB + PAGE, &dma_buf), -EINVAL);
	assert_int_equal(udmabuf_wrap(fd, memfd, 0, 0, &dma_buf), -EINVAL);
	assert_int_equal(udmabuf_wrap(fd, memfd, 64, PAGE, &dma_buf), -EINVAL);
	assert_int_equal(udmabuf_wrap(fd, memfd, 3 * MIB, MIB, &dma_buf), 0);
	close(dma_buf);
	close(memfd);
	close(fd);
	sim_set("udmabuf-limit=64MiB");
}

/* Arenas around multiples of the limit, and clients' odd memfds; no descriptor stays open. */
TEST(test_udmabuf__arenas)
{
	static const uint64_t sizes[] = {PAGE,       MIB - PAGE, MIB,
					 MIB + PAGE, 3 * MIB,    4 * MIB - PAGE};
	const unsigned int good = F_SEAL_SHRINK | F_SEAL_GROW;
	struct exec_arena arena;
	unsigned int n_fds;
	struct card card;

	sim_set("udmabuf-limit=1MiB");
	card_begin(&card, VULKAN_PATH_UDMABUF, VULKAN_FORCE_UNPROVEN);
	assert_int_equal(card.executor->info.arena_segment_bytes, MIB);
	arena_begin(&card, &arena, PAGE, good);
	arena_end(&card, &arena);
	n_fds = count_fds();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		arena_begin(&card, &arena, sizes[i], good);
		assert_non_null(arena.import[GPU]);
		arena_end(&card, &arena);
		assert_int_equal(count_fds(), n_fds);
	}
	arena_begin(&card, &arena, MIB, F_SEAL_GROW);
	assert_null(arena.import[GPU]);
	arena_end(&card, &arena);
	arena_begin(&card, &arena, MIB, good | F_SEAL_WRITE);
	assert_null(arena.import[GPU]);
	arena_end(&card, &arena);
	assert_int_equal(count_fds(), n_fds);
	card_end(&card);
	sim_set("udmabuf-limit=64MiB");
}

/* The card's host memory is shared by mapping, and exists as long as a reference does. */
TEST(test_exported__memory)
{
	uint64_t before, bytes = 8 * MIB;
	struct exec_arena arena;
	struct card card;
	uint8_t *data;
	int fd;

	card_begin(&card, VULKAN_PATH_EXPORTED, VULKAN_FORCE_UNPROVEN);
	before = gtt_used();
	assert_int_equal(card.executor->ops->arena_export(card.executor, bytes, &arena, &fd), 0);
	assert_true(gtt_used() >= before + bytes);
	assert_non_null(arena.import[GPU]);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(data, MAP_FAILED);
	data[bytes - 1] = 77;
	assert_int_equal(arena.base[bytes - 1], 77);
	assert_int_equal(arena.base[0], 0);
	arena.base[5] = 78;
	assert_int_equal(data[5], 78);

	/* The arena is released and unmapped here, but the client still has its mapping. */
	card.executor->ops->arena_release(card.executor, &arena);
	munmap(arena.base, bytes);
	assert_int_equal(data[bytes - 1], 77);
	munmap(data, bytes);
	close(fd);
	card_end(&card);
}

/* Make a buffer of the card as a program that drives it itself, and export it. */
static int buffer_new(uint64_t bytes, uint64_t domain, uint64_t flags)
{
	union drm_amdgpu_gem_create create = {
		.in =
			{
				.bo_size = bytes,
				.alignment = PAGE,
				.domains = domain,
				.domain_flags = flags,
			},
	};
	struct drm_prime_handle prime = {.flags = DRM_CLOEXEC | DRM_RDWR};
	int card = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);

	assert_true(card >= 0);
	assert_int_equal(ioctl(card, DRM_IOCTL_AMDGPU_GEM_CREATE, &create), 0);
	prime.handle = create.out.handle;
	assert_int_equal(ioctl(card, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime), 0);
	close(card);
	return prime.fd;
}

/*
 * The next broker takes memory as the card exports it, but not the card's other memory, in which
 * the processor would be slow.
 */
TEST(test_exported__restored)
{
	static const struct {
		uint64_t domain, flags;
		bool is_taken;
	} cases[] = {
		{AMDGPU_GEM_DOMAIN_GTT, 0, true},
		{AMDGPU_GEM_DOMAIN_GTT, AMDGPU_GEM_CREATE_CPU_GTT_USWC, false},
		{AMDGPU_GEM_DOMAIN_VRAM, AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED, false},
		{AMDGPU_GEM_DOMAIN_VRAM, 0, false},
	};
	struct exec_arena arena;
	struct card card;
	uint8_t *data;
	int fd;

	card_begin(&card, VULKAN_PATH_EXPORTED, VULKAN_FORCE_UNPROVEN);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fd = buffer_new(MIB, cases[i].domain, cases[i].flags);
		data = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(data, MAP_FAILED);
		data[0] = 9;
		arena = (struct exec_arena){
			.base = data,
			.bytes = MIB,
			.fd = fd,
			.exporter = card.executor,
			.is_restored = true,
		};
		card.executor->ops->arena_import(card.executor, &arena);
		assert_int_equal(arena.import[GPU] != NULL, cases[i].is_taken);
		assert_int_equal(data[0], 9);
		card.executor->ops->arena_release(card.executor, &arena);
		munmap(data, MIB);
		close(fd);
	}

	/* The card restores what it exported before it was opened anew. */
	assert_int_equal(card.executor->ops->arena_export(card.executor, MIB, &arena, &fd), 0);
	card.executor->ops->arena_release(card.executor, &arena);
	data = arena.base;
	memset(data, 3, MIB);
	card_end(&card);
	card_begin(&card, VULKAN_PATH_EXPORTED, VULKAN_FORCE_UNPROVEN);
	arena = (struct exec_arena){
		.base = data,
		.bytes = MIB,
		.fd = fd,
		.exporter = card.executor,
		.is_restored = true,
	};
	card.executor->ops->arena_import(card.executor, &arena);
	assert_non_null(arena.import[GPU]);
	card.executor->ops->arena_release(card.executor, &arena);
	card_end(&card);
	assert_int_equal(data[MIB - 1], 3);
	munmap(data, MIB);
	close(fd);
}

/* The card refuses so much memory, and still works afterwards. */
TEST(test_exported__too_much)
{
	struct exec_arena arena;
	struct card card;
	int fd = -7, r;

	card_begin(&card, VULKAN_PATH_EXPORTED, VULKAN_FORCE_UNPROVEN);
	for (int i = 0; i < 3; i++) {
		r = card.executor->ops->arena_export(card.executor, 1ull << (42 + 2 * i), &arena,
						     &fd);
		assert_true(r == EXECUTOR_E_NO_MEMORY || r == EXECUTOR_E_UNSUPPORTED);
		assert_int_equal(fd, -7);
	}
	assert_int_equal(card.executor->ops->arena_export(card.executor, PAGE, &arena, &fd), 0);
	card.executor->ops->arena_release(card.executor, &arena);
	munmap(arena.base, PAGE);
	close(fd);
	card_end(&card);
}

/* The memory outlives the device: the CPU and a client continue to use it. */
TEST(test_exported__outlives_device)
{
	struct exec_arena arena;
	struct card card;
	uint8_t *data;
	int fd;

	card_begin(&card, VULKAN_PATH_EXPORTED, VULKAN_FORCE_UNPROVEN);
	assert_int_equal(card.executor->ops->arena_export(card.executor, MIB, &arena, &fd), 0);
	data = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(data, MAP_FAILED);
	memset(arena.base, 3, MIB);
	card.executor->ops->arena_release(card.executor, &arena);
	card_end(&card);
	for (int i = 0; i < MIB; i++) {
		assert_int_equal(arena.base[i], 3);
		assert_int_equal(data[i], 3);
	}
	data[0] = 4;
	assert_int_equal(arena.base[0], 4);
	munmap(arena.base, MIB);
	munmap(data, MIB);
	close(fd);
}

int main(int argc, char **argv)
{
	const struct vulkan_options options = {.mode = VULKAN_AUTO};
	struct vulkan *vulkan = NULL;
	struct waker waker;
	bool is_there;

	if (argc != 2)
		return 2;
	sim_program = argv[1];
	if (waker_init(&waker) || vulkan_open(&options, &waker, &vulkan))
		return 1;
	is_there = vulkan_n_executors(vulkan) == 1;
	if (!is_there)
		printf("skipped: RADV finds no simulated card: %s\n", vulkan_sentence(vulkan, 0));
	vulkan_free(vulkan);
	waker_deinit(&waker);
	return is_there ? test_run(NULL, NULL) : 77;
}
