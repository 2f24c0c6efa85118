/* SPDX-License-Identifier: MIT */
/*
 * Memory of simulated cards through the real libdrm_amdgpu: placement, eviction, sharing, and
 * release at a process's death
 *
 * Runs over a Polaris with 8 GiB and an APU.
 */
#include "rig.h"
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/udmabuf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xf86drm.h>

#define VRAM AMDGPU_GEM_DOMAIN_VRAM
#define GTT  AMDGPU_GEM_DOMAIN_GTT

TEST(test_allocate__is_counted)
{
	amdgpu_bo_handle big, visible, gtt;
	struct drm_amdgpu_memory_info memory;

	RIG(rig, 0);
	big = rig_allocate(&rig, VRAM, GIB, 0);
	visible = rig_allocate(&rig, VRAM, 64 * MIB, AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED);
	gtt = rig_allocate(&rig, GTT, 10 * MIB + 1, 0);
	memory = rig_memory(&rig);
	assert_true(memory.vram.heap_usage == GIB + 64 * MIB);
	assert_true(memory.cpu_accessible_vram.heap_usage == 64 * MIB);
	assert_true(memory.gtt.heap_usage == 10 * MIB + 4096);
	assert_true(rig_query(&rig, AMDGPU_INFO_VRAM_USAGE) == GIB + 64 * MIB);
	rig_free(big);
	rig_free(visible);
	rig_free(gtt);
	memory = rig_memory(&rig);
	assert_true(memory.vram.heap_usage == 0);
	assert_true(memory.cpu_accessible_vram.heap_usage == 0);
	assert_true(memory.gtt.heap_usage == 0);
}

TEST(test_map__keeps_bytes)
{
	amdgpu_bo_handle bo;
	uint8_t *bytes;

	RIG(rig, 0);
	bo = rig_allocate(&rig, VRAM, 4 * MIB, AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED);
	assert_int_equal(amdgpu_bo_cpu_map(bo, (void **)&bytes), 0);
	assert_int_equal(bytes[0], 0);
	memset(bytes + MIB, 0x5a, MIB);
	assert_int_equal(amdgpu_bo_cpu_unmap(bo), 0);
	assert_int_equal(amdgpu_bo_cpu_map(bo, (void **)&bytes), 0);
	assert_int_equal(bytes[2 * MIB - 1], 0x5a);
	assert_int_equal(bytes[2 * MIB], 0);
	assert_int_equal(amdgpu_bo_cpu_unmap(bo), 0);
	rig_free(bo);
}

TEST(test_allocate__refused)
{
	amdgpu_bo_handle bo;

	RIG(rig, 0);
	assert_int_equal(rig_try_allocate(&rig, VRAM, 1ull << 40, 0, &bo), -ENOMEM);
	assert_int_equal(rig_try_allocate(&rig, GTT, 16 * GIB, 0, &bo), -ENOMEM);
	assert_int_equal(rig_try_allocate(&rig, VRAM, UINT64_MAX, 0, &bo), -ENOMEM);
	assert_int_equal(rig_try_allocate(&rig, VRAM, 0, 0, &bo), -EINVAL);
	assert_int_equal(rig_try_allocate(&rig, 1u << 10, MIB, 0, &bo), -EINVAL);
	assert_int_equal(rig_try_allocate(&rig, VRAM, MIB, 1ull << 60, &bo), -EINVAL);
	assert_true(rig_memory(&rig).vram.heap_usage == 0);
}

/*
 * The client's own older buffer is evicted for a newer one. It returns when a submission uses it
 * and there is room.
 */
TEST(test_spill__least_recently_used_goes)
{
	amdgpu_context_handle context;
	amdgpu_bo_handle old, used, new;
	uint64_t n_evictions, n_moved;
	char path[64];

	RIG(rig, 0);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", rig.fd);
	rig_control("set other-vram=2GiB evictions=0 bytes-moved=0");
	used = rig_allocate(&rig, VRAM, 2 * GIB, 0);
	old = rig_allocate(&rig, VRAM, 3 * GIB, 0);
	assert_int_equal(amdgpu_cs_ctx_create(rig.device, &context), 0);
	assert_int_equal(rig_submit(&rig, context, used), 0);
	assert_true(rig_query(&rig, AMDGPU_INFO_NUM_EVICTIONS) == 0);

	new = rig_allocate(&rig, VRAM, 2 * GIB, 0);
	n_evictions = rig_query(&rig, AMDGPU_INFO_NUM_EVICTIONS);
	n_moved = rig_query(&rig, AMDGPU_INFO_NUM_BYTES_MOVED);
	assert_true(n_evictions == 1);
	assert_true(n_moved == 3 * GIB);
	assert_true(rig_memory(&rig).vram.heap_usage == 6 * GIB);
	assert_true(rig_memory(&rig).gtt.heap_usage == 3 * GIB);
	assert_true(rig_fdinfo_bytes(path, "drm-memory-vram") == 4 * GIB);
	assert_true(rig_fdinfo_bytes(path, "drm-memory-gtt") == 3 * GIB);
	rig_control("set kernel=6.14");
	assert_true(rig_fdinfo_bytes(path, "amd-evicted-vram") == 3 * GIB);
	assert_true(rig_fdinfo_bytes(path, "drm-total-vram") == 7 * GIB);
	rig_control("set kernel=6.1");

	/* 2 GiB are free, too few for the 3 GiB; without the rest of the system there is room. */
	assert_int_equal(rig_submit(&rig, context, old), 0);
	assert_true(rig_memory(&rig).gtt.heap_usage == 3 * GIB);
	rig_control("set other-vram=0");
	assert_int_equal(rig_submit(&rig, context, old), 0);
	assert_true(rig_memory(&rig).gtt.heap_usage == 0);
	assert_true(rig_memory(&rig).vram.heap_usage == 7 * GIB);
	assert_true(rig_query(&rig, AMDGPU_INFO_NUM_BYTES_MOVED) == 6 * GIB);

	/* A growing other-vram evicts too, and only as much as it needs. */
	rig_control("set other-vram=3GiB");
	assert_true(rig_memory(&rig).vram.heap_usage == 8 * GIB);
	assert_true(rig_memory(&rig).gtt.heap_usage == 2 * GIB);
	rig_control("set other-vram=0");
	amdgpu_cs_ctx_free(context);
	rig_free(old);
	rig_free(used);
	rig_free(new);
}

/*
 * When no buffer can be evicted, the new buffer itself is placed in GTT, or fails if the card is
 * set to fail.
 */
TEST(test_spill__new_buffer_or_failure)
{
	amdgpu_context_handle context;
	amdgpu_bo_handle bo;

	RIG(rig, 0);
	rig_control("set other-vram=8000MiB");
	bo = rig_allocate(&rig, VRAM, GIB, 0);
	assert_true(rig_memory(&rig).gtt.heap_usage == GIB);
	rig_free(bo);
	rig_control("set spill=no");
	assert_int_equal(rig_try_allocate(&rig, VRAM, GIB, 0, &bo), -ENOMEM);
	assert_true(rig_memory(&rig).gtt.heap_usage == 0);
	rig_control("set spill=yes other-vram=0");

	/* Buffers for VRAM or GTT do not evict. */
	rig_control("set evictions=0 other-gtt=15GiB");
	bo = rig_allocate(&rig, VRAM | GTT, 7 * GIB, 0);
	assert_true(rig_memory(&rig).vram.heap_usage == 7 * GIB);
	assert_true(rig_memory(&rig).gtt.heap_usage == 15 * GIB);
	rig_free(bo);
	rig_control("set other-gtt=0");

	/* They return to VRAM on newer kernels only. */
	assert_int_equal(amdgpu_cs_ctx_create(rig.device, &context), 0);
	rig_control("set other-vram=8GiB");
	bo = rig_allocate(&rig, VRAM | GTT, GIB, 0);
	assert_true(rig_memory(&rig).gtt.heap_usage == GIB);
	rig_control("set other-vram=0");
	assert_int_equal(rig_submit(&rig, context, bo), 0);
	assert_true(rig_memory(&rig).vram.heap_usage == 0);
	rig_control("set kernel=6.14");
	assert_int_equal(rig_submit(&rig, context, bo), 0);
	assert_true(rig_memory(&rig).vram.heap_usage == GIB);
	rig_control("set kernel=6.1");
	amdgpu_cs_ctx_free(context);
	rig_free(bo);
}

/*
 * Another process's allocation evicts the test's buffer; after that process is killed there is room
 * again.
 */
TEST(test_hog__evicts_until_killed)
{
	amdgpu_context_handle context;
	amdgpu_bo_handle bo;
	char path[64];
	struct rig rig;
	pid_t hog;

	rig_open(&rig, 0);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", rig.fd);
	bo = rig_allocate(&rig, VRAM, 3 * GIB, 0);
	assert_int_equal(amdgpu_cs_ctx_create(rig.device, &context), 0);
	hog = rig_hog("hog card0 --vram 6GiB");
	assert_true(rig_fdinfo_bytes(path, "drm-memory-vram") == 0);
	assert_true(rig_fdinfo_bytes(path, "drm-memory-gtt") == 3 * GIB);
	assert_true(rig_memory(&rig).vram.heap_usage == 6 * GIB);
	rig_kill(hog);
	assert_true(rig_memory(&rig).vram.heap_usage == 0);
	assert_int_equal(rig_submit(&rig, context, bo), 0);
	assert_true(rig_fdinfo_bytes(path, "drm-memory-vram") == 3 * GIB);
	assert_true(rig_memory(&rig).gtt.heap_usage == 0);
	amdgpu_cs_ctx_free(context);
	rig_free(bo);
	rig_close(&rig);
	assert_int_equal(rig_try("hog card0 --vram 1MiB --for 0"), 0);
}

static int export(amdgpu_bo_handle bo)
{
	uint32_t fd;

	assert_int_equal(amdgpu_bo_export(bo, amdgpu_bo_handle_type_dma_buf_fd, &fd), 0);
	return (int)fd;
}

TEST(test_prime__counts_once)
{
	struct amdgpu_bo_import_result imported;
	struct rig rig, other;
	struct stat first, second;
	amdgpu_bo_handle bo;
	uint8_t *bytes, *others;
	int fd, again;

	rig_open(&rig, 0);
	bo = rig_allocate(&rig, GTT, 8 * MIB, 0);
	fd = export(bo);
	again = export(bo);
	assert_int_equal(fstat(fd, &first), 0);
	assert_int_equal(fstat(again, &second), 0);
	assert_int_equal(first.st_ino, second.st_ino);
	assert_int_equal(first.st_size, 8 * MIB);
	assert_int_equal(lseek(fd, 0, SEEK_END), 8 * MIB);
	close(again);

	/*
	 * Make another client of the same card by ioctl: libdrm would find the first client by its
	 * node.
	 */
	other.fd = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);
	{
		uint32_t handle, same;

		assert_int_equal(drmPrimeFDToHandle(other.fd, fd, &handle), 0);
		assert_int_equal(drmPrimeFDToHandle(other.fd, fd, &same), 0);
		assert_int_equal(handle, same);
		assert_true(rig_memory(&rig).gtt.heap_usage == 8 * MIB);

		bytes = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(bytes, MAP_FAILED);
		assert_int_equal(amdgpu_bo_cpu_map(bo, (void **)&others), 0);
		bytes[MIB] = 77;
		assert_int_equal(others[MIB], 77);
		amdgpu_bo_cpu_unmap(bo);

		/*
		 * Without the first client's handle the buffer still exists, by the other client's
		 * handle and the descriptor.
		 */
		rig_free(bo);
		assert_true(rig_memory(&rig).gtt.heap_usage == 8 * MIB);
		drmCloseBufferHandle(other.fd, handle);
		assert_true(rig_memory(&rig).gtt.heap_usage == 8 * MIB);
	}
	/* The descriptor alone suffices to import the buffer again. */
	assert_int_equal(amdgpu_bo_import(rig.device, amdgpu_bo_handle_type_dma_buf_fd,
					  (uint32_t)fd, &imported),
			 0);
	assert_int_equal(imported.alloc_size, 8 * MIB);
	assert_int_equal(amdgpu_bo_cpu_map(imported.buf_handle, (void **)&others), 0);
	assert_int_equal(others[MIB], 77);
	amdgpu_bo_cpu_unmap(imported.buf_handle);
	rig_free(imported.buf_handle);
	assert_true(rig_memory(&rig).gtt.heap_usage == 8 * MIB);
	close(fd);
	/* A mapping keeps the buffer alive, as a descriptor does. */
	assert_true(rig_memory(&rig).gtt.heap_usage == 8 * MIB);
	assert_int_equal(bytes[MIB], 77);
	munmap(bytes, 8 * MIB);
	assert_true(rig_memory(&rig).gtt.heap_usage == 0);
	close(other.fd);
	rig_close(&rig);
}

TEST(test_prime__other_card)
{
	struct amdgpu_bo_import_result imported;
	amdgpu_context_handle context;
	struct rig rig, other;
	amdgpu_bo_handle bo;
	int fd;

	rig_open(&rig, 0);
	rig_open(&other, 1);
	bo = rig_allocate(&rig, GTT, 8 * MIB, 0);
	fd = export(bo);
	assert_int_equal(amdgpu_bo_import(other.device, amdgpu_bo_handle_type_dma_buf_fd,
					  (uint32_t)fd, &imported),
			 0);
	/* The buffer counts as GTT of the other card, too, once that card has used it. */
	assert_true(rig_memory(&other).gtt.heap_usage == 0);
	assert_int_equal(amdgpu_cs_ctx_create(other.device, &context), 0);
	assert_int_equal(rig_submit(&other, context, imported.buf_handle), 0);
	assert_true(rig_memory(&other).gtt.heap_usage == 8 * MIB);
	close(fd);
	rig_free(bo);
	assert_true(rig_memory(&rig).gtt.heap_usage == 8 * MIB);
	rig_free(imported.buf_handle);
	assert_true(rig_memory(&rig).gtt.heap_usage == 0);
	assert_true(rig_memory(&other).gtt.heap_usage == 0);
	amdgpu_cs_ctx_free(context);
	rig_close(&other);
	rig_close(&rig);
}

TEST(test_prime__refused)
{
	amdgpu_bo_handle bo;
	uint32_t handle, fd;
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	RIG(rig, 0);
	assert_int_equal(drmPrimeFDToHandle(rig.fd, file, &handle), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(drmPrimeFDToHandle(rig.fd, rig.fd, &handle), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(drmPrimeFDToHandle(rig.fd, 4000, &handle), -1);
	assert_int_equal(errno, EBADF);
	bo = rig_allocate(&rig, GTT, MIB, AMDGPU_GEM_CREATE_VM_ALWAYS_VALID);
	assert_int_equal(amdgpu_bo_export(bo, amdgpu_bo_handle_type_dma_buf_fd, &fd), -EPERM);
	rig_free(bo);
	close(file);
}

static int try_udmabuf(int device, int memfd, uint64_t offset, uint64_t bytes)
{
	struct udmabuf_create create = {
		.memfd = (uint32_t)memfd,
		.flags = UDMABUF_FLAGS_CLOEXEC,
		.offset = offset,
		.size = bytes,
	};

	return ioctl(device, UDMABUF_CREATE, &create);
}

static int make_memfd(uint64_t bytes, unsigned seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void refused(int result, int error)
{
	assert_int_equal(result, -1);
	assert_int_equal(errno, error);
}

TEST(test_udmabuf__checks)
{
	int device, plain, sealed, written, file, fd;

	device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	assert_true(device >= 0);
	plain = make_memfd(MIB, 0);
	sealed = make_memfd(128 * MIB, F_SEAL_SHRINK);
	written = make_memfd(MIB, F_SEAL_SHRINK | F_SEAL_WRITE);
	file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	refused(try_udmabuf(device, plain, 0, MIB), EINVAL);
	refused(try_udmabuf(device, written, 0, MIB), EINVAL);
	refused(try_udmabuf(device, file, 0, 4096), EBADFD);
	refused(try_udmabuf(device, 4000, 0, 4096), EBADFD);
	refused(try_udmabuf(device, sealed, 1, 4096), EINVAL);
	refused(try_udmabuf(device, sealed, 0, 4097), EINVAL);
	refused(try_udmabuf(device, sealed, 0, 0), EINVAL);
	refused(try_udmabuf(device, sealed, 0, 64 * MIB + 4096), EINVAL);
	refused(try_udmabuf(device, sealed, 127 * MIB, 2 * MIB), EINVAL);
	rig_control("set udmabuf-limit=128MiB");
	fd = try_udmabuf(device, sealed, 0, 128 * MIB);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	rig_control("set udmabuf-limit=64MiB");
	rig_control("set udmabuf=absent");
	assert_int_equal(open("/dev/udmabuf", O_RDWR), -1);
	assert_int_equal(errno, ENOENT);
	rig_control("set udmabuf=present");
	close(device);
	close(plain);
	close(sealed);
	close(written);
	close(file);
}

TEST(test_udmabuf__shares_bytes)
{
	struct amdgpu_bo_import_result imported;
	uint8_t *bytes, *whole, *part;
	struct stat about;
	int device, memfd, fds[2];

	RIG(rig, 0);
	device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	memfd = make_memfd(8 * MIB, F_SEAL_SHRINK | F_SEAL_GROW);
	bytes = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	fds[0] = try_udmabuf(device, memfd, 0, 8 * MIB);
	fds[1] = try_udmabuf(device, memfd, 3 * MIB, 2 * MIB);
	assert_true(fds[0] >= 0 && fds[1] >= 0);
	assert_int_equal(lseek(fds[0], 0, SEEK_END), 8 * MIB);
	assert_int_equal(lseek(fds[1], 0, SEEK_END), 2 * MIB);
	assert_int_equal(fstat(fds[1], &about), 0);
	assert_int_equal(about.st_size, 2 * MIB);
	whole = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	part = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
	assert_ptr_not_equal(whole, MAP_FAILED);
	assert_ptr_not_equal(part, MAP_FAILED);
	part[5] = 42;
	assert_int_equal(bytes[3 * MIB + 5], 42);
	assert_int_equal(whole[3 * MIB + 5], 42);
	assert_ptr_equal(mmap(NULL, 3 * MIB, PROT_READ, MAP_SHARED, fds[1], 0), MAP_FAILED);

	assert_int_equal(amdgpu_bo_import(rig.device, amdgpu_bo_handle_type_dma_buf_fd,
					  (uint32_t)fds[1], &imported),
			 0);
	assert_int_equal(imported.alloc_size, 2 * MIB);
	/* The import lives without its descriptors. */
	close(fds[0]);
	close(fds[1]);
	close(device);
	close(memfd);
	fds[1] = export(imported.buf_handle);
	assert_int_equal(lseek(fds[1], 0, SEEK_END), 2 * MIB);
	close(fds[1]);
	rig_free(imported.buf_handle);
	munmap(bytes, 8 * MIB);
	munmap(whole, 8 * MIB);
	munmap(part, 2 * MIB);
}

/* The driver refuses CPU access to an import: SIGBUS. */
TEST(test_udmabuf__not_mapped_through_the_card)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		struct amdgpu_bo_import_result imported;
		volatile uint8_t *bytes;
		struct rig rig;
		int device, fd;

		/* The sanitizer's handler would change the exit status. */
		signal(SIGBUS, SIG_DFL);
		rig_open(&rig, 0);
		device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
		fd = try_udmabuf(device, make_memfd(MIB, F_SEAL_SHRINK), 0, MIB);
		if (amdgpu_bo_import(rig.device, amdgpu_bo_handle_type_dma_buf_fd, (uint32_t)fd,
				     &imported) ||
		    amdgpu_bo_cpu_map(imported.buf_handle, (void **)&bytes))
			_exit(1);
		bytes[0] = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
}

static int try_userptr(const struct rig *rig, void *at)
{
	struct drm_amdgpu_gem_userptr args = {
		.addr = (uintptr_t)at,
		.size = MIB,
		.flags = AMDGPU_GEM_USERPTR_ANONONLY | AMDGPU_GEM_USERPTR_REGISTER |
			 AMDGPU_GEM_USERPTR_VALIDATE,
	};

	return drmCommandWriteRead(rig->fd, DRM_AMDGPU_GEM_USERPTR, &args, sizeof(args));
}

TEST(test_userptr__anonymous_only)
{
	void *private, *shared;
	int memfd = make_memfd(MIB, 0);

	RIG(rig, 0);
	private = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	assert_int_equal(try_userptr(&rig, private), 0);
	assert_int_equal(try_userptr(&rig, shared), -EPERM);
	assert_int_equal(try_userptr(&rig, (char *)private + 1), -EINVAL);
	munmap(private, MIB);
	munmap(shared, MIB);
	close(memfd);
}

/* Allocate and free until killed. */
static void churn(unsigned seed)
{
	amdgpu_bo_handle bos[16] = {NULL};
	struct rig rig;

	rig_open(&rig, 0);
	for (unsigned i = 0;; i++) {
		amdgpu_bo_handle *bo = &bos[rand_r(&seed) % 16];

		if (*bo)
			amdgpu_bo_free(*bo);
		*bo = NULL;
		rig_try_allocate(&rig, i % 3 ? VRAM : GTT, (1 + rand_r(&seed) % 64) * 16 * MIB, 0,
				 bo);
		if (*bo && i % 5 == 0)
			close(export(*bo));
	}
}

/*
 * A process killed at any instruction, with or without the lock, leaves everything free and the
 * counts right.
 */
TEST(test_kill__at_any_time)
{
	/* No card is open yet: otherwise libdrm would give the children this process's client. */
	for (unsigned round = 0; round < 12; round++) {
		pid_t pids[2];

		for (unsigned i = 0; i < 2; i++) {
			pids[i] = fork();
			assert_true(pids[i] >= 0);
			if (!pids[i])
				churn(round * 2 + i);
		}
		usleep(10000 + round * 1777);
		for (unsigned i = 0; i < 2; i++)
			rig_kill(pids[i]);
	}
	RIG(rig, 0);
	assert_true(rig_memory(&rig).vram.heap_usage == 0);
	assert_true(rig_memory(&rig).gtt.heap_usage == 0);
	assert_true(rig_memory(&rig).cpu_accessible_vram.heap_usage == 0);
}

/* Die with the simulator's lock, as a process does whose robust mutex the kernel cannot mark. */
static void die_with_lock(void)
{
	char path[4096];
	struct robust_list_head none = {.list.next = &none.list};
	struct sim_state *state;
	int fd;

	snprintf(path, sizeof(path), "%s/state", getenv("AMDGPU_SIM_DIR"));
	fd = open(path, O_RDWR | O_CLOEXEC);
	state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (state == MAP_FAILED || pthread_mutex_lock(&state->mutex) ||
	    syscall(SYS_set_robust_list, &none, sizeof(none)))
		_exit(1);
	raise(SIGKILL);
}

TEST(test_kill__with_the_lock_unmarked)
{
	for (unsigned i = 0; i < 2; i++) {
		const bool is_zombie = i == 0;
		siginfo_t info;
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (!pid)
			die_with_lock();
		assert_int_equal(
			waitid(P_PID, (id_t)pid, &info, WEXITED | (is_zombie ? WNOWAIT : 0)), 0);
		assert_int_equal(info.si_code, CLD_KILLED);
		{
			RIG(rig, 0);
			assert_true(rig_memory(&rig).vram.heap_usage == 0);
		}
		if (is_zombie)
			assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	rig_control_path = argv[1];
	return test_run(NULL, NULL);
}
