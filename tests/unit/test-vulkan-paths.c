/* SPDX-License-Identifier: MIT */
/*
 * test-vulkan-paths PATH
 *
 * One memory path on a software device, with real results. Skipped if the driver or the kernel does
 * not support the path. udmabuf and exported need /dev/udmabuf and a driver that imports and
 * exports dma-bufs, as Mesa's lavapipe does since version 25.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"
#include "unit/fail-alloc.h"
#include "unit/vulkan-rig.h"
#include "util/cleanup.h"
#include "util/dma-buf.h"
#include "vulkan/udmabuf.h"

enum { GPU = RBK_DEVICE_GPU, PAGE = 4096, EXPORT_BYTES = 1 << 20 };

static enum vulkan_path path;

static struct vulkan_options options_of(void)
{
	return (struct vulkan_options){.path = path};
}

/* Make a plan z = (x + x) * x. */
static struct plan *product_plan(uint32_t cols)
{
	struct describe *d = describe_new("product", 4);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, cols));
	describe_scratch(d, "twice");
	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, cols));
	describe_node(d, "Add", "", "x,x", "twice");
	describe_node(d, "Mul", "", "twice,x", "z");
	return reference_plan(d, NULL);
}

static unsigned int count_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/*
 * Run the plan with x and z at two offsets of @arena, and compare the result.
 * Return: the task's result.
 */
static int run_at(struct rig *rig, struct plan *plan, uint32_t cols, struct exec_arena *arena,
		  uint64_t x, uint64_t z)
{
	const struct exec_ref refs[2] = {{arena, x}, {arena, z}};
	struct exec_task task = {.plan = plan, .refs = refs, .count = 1};
	float *in = (float *)(arena->base + x), *out = (float *)(arena->base + z);

	for (uint32_t i = 0; i < cols; i++)
		in[i] = (float)(i % 1000) / 8;
	memset(out, 0xff, cols * sizeof(float));
	atomic_store(&task.state, EXEC_QUEUED);
	rig_submit(rig, &task);
	assert_ptr_equal(rig_reap(rig), &task);
	if (task.res)
		return task.res;
	assert_int_equal(task.copied_bytes, 0);
	for (uint32_t i = 0; i < cols; i++)
		assert_true(out[i] == 2 * in[i] * in[i]);
	return 0;
}

/* Make an arena of this path. */
static void arena_begin(struct rig *rig, uint64_t bytes, struct exec_arena *ret, int *ret_fd)
{
	*ret_fd = -1;
	if (path == VULKAN_PATH_EXPORTED)
		assert_int_equal(
			rig->executor->ops->arena_export(rig->executor, bytes, ret, ret_fd), 0);
	else
		rig_arena_init(rig, ret, bytes);
}

static void arena_end(struct rig *rig, struct exec_arena *arena, int fd)
{
	if (path != VULKAN_PATH_EXPORTED) {
		rig_arena_deinit(rig, arena);
		return;
	}
	rig->executor->ops->arena_release(rig->executor, arena);
	assert_int_equal(munmap(arena->base, arena->bytes), 0);
	close_fd(fd);
}

TEST(test_path__in_place)
{
	const struct vulkan_options options = options_of();
	struct plan *plan = product_plan(1000);
	struct exec_arena arena;
	struct rig rig;
	int fd;

	rig_init(&rig, &options);
	assert_non_null(strstr(rig.executor->info.paths, "staged"));
	assert_null(vulkan_path_refusal(rig.vulkan));
	assert_null(vulkan_path_why_not(rig.executor, path));
	assert_int_equal(rig.executor->info.exports_arenas, path == VULKAN_PATH_EXPORTED);
	arena_begin(&rig, EXPORT_BYTES, &arena, &fd);
	assert_non_null(arena.import[GPU]);
	rig_prepare(&rig, plan);
	assert_int_equal(run_at(&rig, plan, 1000, &arena, 64, 65536), 0);
	assert_int_equal(run_at(&rig, plan, 1000, &arena, EXPORT_BYTES - 4032, 0), 0);
	rig_release(&rig, plan);
	arena_end(&rig, &arena, fd);
	rig_deinit(&rig);
}

/*
 * No descriptor or mapping of the broker is left, however often this is repeated. Those of the
 * driver end with it.
 */
TEST(test_path__nothing_left)
{
	const struct vulkan_options options = options_of();
	struct exec_arena arena;
	unsigned int n_fds;
	struct rig rig;
	int fd;

	rig_init(&rig, &options);
	arena_begin(&rig, EXPORT_BYTES, &arena, &fd);
	arena_end(&rig, &arena, fd);
	n_fds = count_fds();
	for (int i = 0; i < 20; i++) {
		arena_begin(&rig, EXPORT_BYTES, &arena, &fd);
		arena_end(&rig, &arena, fd);
	}
	assert_int_equal(count_fds(), n_fds);
	rig_deinit(&rig);
}

/* Several dma-bufs: tensors at their boundaries, and a tensor across a boundary. */
TEST(test_segments__boundaries)
{
	const struct vulkan_options options = options_of();
	const uint32_t cols = 1024;
	struct plan *plan;
	struct exec_arena arena;
	uint64_t segment;
	struct rig rig;

	if (path != VULKAN_PATH_UDMABUF)
		skip();
	plan = product_plan(cols);
	rig_init(&rig, &options);
	segment = rig.executor->info.arena_segment_bytes;
	assert_true(segment >= PAGE && segment % PAGE == 0);
	if (segment > 256ull << 20) {
		plan_free(plan);
		rig_deinit(&rig);
		skip();
	}
	rig_arena_init(&rig, &arena, segment + PAGE);
	assert_non_null(arena.import[GPU]);
	rig_prepare(&rig, plan);
	assert_int_equal(run_at(&rig, plan, cols, &arena, segment - PAGE, 0), 0);
	assert_int_equal(run_at(&rig, plan, cols, &arena, segment, 0), 0);
	assert_int_equal(run_at(&rig, plan, cols, &arena, 0, segment), 0);
	assert_int_equal(run_at(&rig, plan, cols, &arena, segment, segment - PAGE), 0);
	assert_int_equal(run_at(&rig, plan, cols, &arena, segment - 64, 0), -EXDEV);
	assert_int_equal(run_at(&rig, plan, cols, &arena, 0, segment - PAGE + 64), -EXDEV);
	/* The device still works. */
	assert_int_equal(run_at(&rig, plan, cols, &arena, segment - PAGE, segment), 0);
	rig_arena_deinit(&rig, &arena);

	/* Exactly one segment, and one byte less than two. */
	rig_arena_init(&rig, &arena, segment);
	assert_int_equal(run_at(&rig, plan, cols, &arena, segment - PAGE, 0), 0);
	rig_arena_deinit(&rig, &arena);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

/* Memory that cannot be wrapped is staged or not accessible, without harm. */
TEST(test_udmabuf__unsuitable)
{
	const struct vulkan_options options = options_of();
	struct exec_arena arena;
	struct rig rig;
	int fds[4], fd;

	if (path != VULKAN_PATH_UDMABUF)
		skip();
	rig_init(&rig, &options);
	fds[0] = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fds[1] = memfd_create("immutable", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fds[2] = memfd_create("shorter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fds[0], EXPORT_BYTES), 0);
	assert_int_equal(ftruncate(fds[1], EXPORT_BYTES), 0);
	assert_int_equal(ftruncate(fds[2], PAGE), 0);
	assert_int_equal(fcntl(fds[1], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
	assert_int_equal(fcntl(fds[2], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	fds[3] = memfd_create("not wrapped", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fds[3], EXPORT_BYTES), 0);
	assert_int_equal(fcntl(fds[3], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	for (int i = 0; i < 5; i++) {
		fd = i < 4 ? fds[i] : -1;
		arena = (struct exec_arena){.bytes = EXPORT_BYTES, .fd = fd, .immutable = i == 1};
		/* Importing does not wrap: the setup thread would have to wait for writers. */
		if (i != 3)
			rig.executor->ops->arena_wrap(rig.executor, &arena);
		assert_null(arena.wraps[GPU]);
		rig.executor->ops->arena_import(rig.executor, &arena);
		assert_null(arena.import[GPU]);
		rig.executor->ops->arena_release(rig.executor, &arena);
	}
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	rig_deinit(&rig);
}

/* The memfd's pages stay allocated as long as the device uses them. */
TEST(test_udmabuf__keeps_pages)
{
	const struct vulkan_options options = options_of();
	struct plan *plan;
	struct exec_arena arena;
	struct rig rig;

	if (path != VULKAN_PATH_UDMABUF)
		skip();
	plan = product_plan(1024);
	rig_init(&rig, &options);
	/* The rig closes the descriptor. A hole punched later affects only new pages. */
	rig_arena_init(&rig, &arena, EXPORT_BYTES);
	rig_prepare(&rig, plan);
	assert_int_equal(run_at(&rig, plan, 1024, &arena, 0, PAGE), 0);
	assert_int_equal(madvise(arena.base, EXPORT_BYTES, MADV_REMOVE), 0);
	{
		const struct exec_ref refs[2] = {{&arena, 0}, {&arena, 8 * PAGE}};
		struct exec_task task = {.plan = plan, .refs = refs, .count = 1};

		atomic_store(&task.state, EXEC_QUEUED);
		rig_submit(&rig, &task);
		assert_ptr_equal(rig_reap(&rig), &task);
		assert_int_equal(task.res, 0);
	}
	rig_release(&rig, plan);
	rig_arena_deinit(&rig, &arena);
	rig_deinit(&rig);
}

/* The client's view: another process maps the descriptor, writes, and reads the result. */
TEST(test_exported__shared)
{
	const struct vulkan_options options = options_of();
	struct plan *plan;
	struct exec_arena arena;
	uint64_t n_holders;
	struct rig rig;
	pid_t pid;
	float *data;
	int fd, status;

	if (path != VULKAN_PATH_EXPORTED)
		skip();
	plan = product_plan(1000);
	rig_init(&rig, &options);
	arena_begin(&rig, EXPORT_BYTES, &arena, &fd);
	assert_ptr_equal(arena.exporter, rig.executor);
	assert_int_equal(arena.fd, -1);
	assert_int_equal(arena.bytes, EXPORT_BYTES);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(lseek(fd, 0, SEEK_END), EXPORT_BYTES);
	for (uint64_t i = 0; i < EXPORT_BYTES; i++)
		assert_int_equal(arena.base[i], 0);
	data = mmap(NULL, EXPORT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(data, MAP_FAILED);
	data[0] = 42;
	assert_true(*(float *)arena.base == 42);
	rig_prepare(&rig, plan);
	assert_int_equal(run_at(&rig, plan, 1000, &arena, 0, 65536), 0);
	assert_true(data[65536 / 4 + 999] == *(float *)(arena.base + 65536 + 999 * 4));
	pid = fork();
	if (pid == 0)
		_exit(data[65536 / 4 + 8] == 2.0f ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	rig_release(&rig, plan);

	/* The memory cannot be shrunk or sealed. */
	assert_true(ftruncate(fd, PAGE) < 0);
	assert_true(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);

	/* The arena is removed while the client still holds it. */
	rig.executor->ops->arena_release(rig.executor, &arena);
	munmap(arena.base, arena.bytes);
	assert_int_equal(dma_buf_holders(fd, &n_holders), 0);
	assert_int_equal(n_holders, 2);
	data[0] = 43;
	munmap(data, EXPORT_BYTES);
	assert_int_equal(dma_buf_holders(fd, &n_holders), 0);
	assert_int_equal(n_holders, 1);
	close(fd);
	assert_int_equal(dma_buf_holders(fd, &n_holders), DMA_BUF_E_UNKNOWN);
	rig_deinit(&rig);
}

/*
 * Another device of the driver, as that of the next broker, reaches memory that was exported before
 * it was opened. It finds the bytes as they were.
 */
TEST(test_exported__restored)
{
	const struct vulkan_options options = options_of();
	struct exec_arena arena, restored;
	struct dma_buf_about about;
	struct plan *plan;
	struct rig rig;
	uint8_t *data;
	int fd;

	if (path != VULKAN_PATH_EXPORTED)
		skip();
	plan = product_plan(1000);
	rig_init(&rig, &options);
	arena_begin(&rig, EXPORT_BYTES, &arena, &fd);
	assert_int_equal(dma_buf_examine(fd, &about), 0);
	assert_string_equal(about.exporter, rig.executor->info.export_name);
	assert_true(about.exporter[0]);
	assert_int_equal(about.bytes, EXPORT_BYTES);
	assert_int_equal(about.ino, arena.ino);
	assert_int_equal(about.dev, arena.dev);
	memset(arena.base, 77, EXPORT_BYTES);
	rig.executor->ops->arena_release(rig.executor, &arena);
	munmap(arena.base, EXPORT_BYTES);
	rig_deinit(&rig);

	rig_init(&rig, &options);
	data = mmap(NULL, EXPORT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(data, MAP_FAILED);
	restored = (struct exec_arena){
		.base = data,
		.bytes = EXPORT_BYTES,
		.fd = fd,
		.exporter = rig.executor,
		.is_restored = true,
	};
	rig.executor->ops->arena_import(rig.executor, &restored);
	assert_non_null(restored.import[GPU]);
	for (int i = 0; i < EXPORT_BYTES; i++)
		assert_int_equal(data[i], 77);
	rig_prepare(&rig, plan);
	assert_int_equal(run_at(&rig, plan, 1000, &restored, 0, 65536), 0);
	rig_release(&rig, plan);
	arena_end(&rig, &restored, fd);
	rig_deinit(&rig);
}

/* Other descriptors are no dma-bufs, whatever they are. */
TEST(test_dma_buf__examine)
{
	const int files[] = {
		memfd_create("\nexp_name:\tudmabuf", MFD_CLOEXEC),
		open("/dev/null", O_RDWR | O_CLOEXEC),
		open("/proc/self/maps", O_RDONLY | O_CLOEXEC),
		-1,
	};
	struct dma_buf_about about;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		assert_int_equal(dma_buf_examine(files[i], &about), DMA_BUF_E_UNKNOWN);
		if (files[i] >= 0)
			close(files[i]);
	}
}

/* Clients name dma-bufs as they like, which must not pass for what the kernel says. */
TEST(test_dma_buf__named)
{
	const struct vulkan_options options = options_of();
	struct exec_arena arena;
	struct dma_buf_about about;
	uint64_t n_holders;
	struct rig rig;
	int fd;

	if (path != VULKAN_PATH_EXPORTED)
		skip();
	rig_init(&rig, &options);
	arena_begin(&rig, EXPORT_BYTES, &arena, &fd);
	assert_int_equal(ioctl(fd, DMA_BUF_SET_NAME_B, "\nexp_name:\tx\ncount:\t9\n"), 0);
	assert_int_equal(dma_buf_examine(fd, &about), 0);
	assert_string_equal(about.exporter, rig.executor->info.export_name);
	assert_int_equal(dma_buf_holders(fd, &n_holders), 0);
	assert_true(n_holders < 9);
	arena_end(&rig, &arena, fd);
	rig_deinit(&rig);
}

TEST(test_exported__absurd_sizes)
{
	static const uint64_t sizes[] = {1ull << 46, 1ull << 47};
	const struct vulkan_options options = options_of();
	struct exec_arena arena = {.bytes = 1};
	struct rig rig;
	int fd = -7, r;

	if (path != VULKAN_PATH_EXPORTED)
		skip();
	rig_init(&rig, &options);
	for (int i = 0; i < 2; i++) {
		r = rig.executor->ops->arena_export(rig.executor, sizes[i], &arena, &fd);
		assert_true(r == EXECUTOR_E_NO_MEMORY || r == EXECUTOR_E_UNSUPPORTED ||
			    r == -ENOMEM);
		assert_int_equal(fd, -7);
		assert_int_equal(arena.bytes, 1);
	}
	rig_deinit(&rig);
}

TEST(test_exported__failing_allocations)
{
	const struct vulkan_options options = options_of();
	struct exec_arena arena;
	unsigned int n_fds;
	struct rig rig;
	int fd, r;

	if (path != VULKAN_PATH_EXPORTED)
		skip();
	rig_init(&rig, &options);
	arena_begin(&rig, EXPORT_BYTES, &arena, &fd);
	arena_end(&rig, &arena, fd);
	n_fds = count_fds();
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = rig.executor->ops->arena_export(rig.executor, EXPORT_BYTES, &arena, &fd);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(count_fds(), n_fds);
	}
	assert_int_equal(r, 0);
	arena_end(&rig, &arena, fd);
	rig_deinit(&rig);
}

/* An import that cannot allocate leaves the arena staged. */
TEST(test_path__failing_allocations)
{
	const struct vulkan_options options = options_of();
	struct exec_arena arena;
	struct rig rig;
	bool failed;

	if (path == VULKAN_PATH_EXPORTED)
		skip();
	rig_init(&rig, &options);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		rig_arena_init(&rig, &arena, EXPORT_BYTES);
		failed = fail_alloc_stop();
		if (failed)
			assert_null(arena.import[GPU]);
		else
			assert_non_null(arena.import[GPU]);
		rig_arena_deinit(&rig, &arena);
		if (!failed)
			break;
	}
	rig_deinit(&rig);
}

static bool lose_now;

static enum vulkan_fault fault(void *context, enum vulkan_fault_point point)
{
	return lose_now ? VULKAN_FAULT_LOST : VULKAN_FAULT_NONE;
}

/* The device is lost. The memory is not, and the reopened device can access it again. */
TEST(test_path__device_lost)
{
	struct vulkan_options options = options_of();
	struct plan *plan = product_plan(1000);
	struct exec_arena arena, other;
	struct rig rig;
	int fd, other_fd = -1;

	options.fault = fault;
	rig_init(&rig, &options);
	arena_begin(&rig, EXPORT_BYTES, &arena, &fd);
	rig_prepare(&rig, plan);
	assert_int_equal(run_at(&rig, plan, 1000, &arena, 0, 65536), 0);
	lose_now = true;
	assert_int_equal(run_at(&rig, plan, 1000, &arena, 0, 65536), -EIO);
	lose_now = false;
	for (uint64_t i = 0; i < EXPORT_BYTES; i++)
		arena.base[i] = (uint8_t)i;
	if (path == VULKAN_PATH_EXPORTED) {
		uint8_t *data = mmap(NULL, EXPORT_BYTES, PROT_READ, MAP_SHARED, fd, 0);

		assert_ptr_not_equal(data, MAP_FAILED);
		assert_int_equal(memcmp(data, arena.base, EXPORT_BYTES), 0);
		munmap(data, EXPORT_BYTES);
		assert_int_equal(rig.executor->ops->arena_export(rig.executor, EXPORT_BYTES, &other,
								 &other_fd),
				 -EIO);
		assert_int_equal(other_fd, -1);
	}

	/* An arena registered while the device is lost. */
	if (path != VULKAN_PATH_EXPORTED)
		rig_arena_init(&rig, &other, EXPORT_BYTES);
	rig_unload(&rig, plan);
	arena.fd = fd;
	assert_int_equal(rig.executor->ops->reopen(rig.executor), 0);
	for (uint64_t i = 0; i < EXPORT_BYTES; i++)
		assert_int_equal(arena.base[i], (uint8_t)i);
	assert_int_equal(rig_load(&rig, plan, EXEC_TIER_VRAM, 1), 0);
	assert_int_equal(run_at(&rig, plan, 1000, &arena, 0, 65536), 0);
	if (path != VULKAN_PATH_EXPORTED) {
		assert_int_equal(run_at(&rig, plan, 1000, &other, 0, 65536), 0);
		rig_arena_deinit(&rig, &other);
	}
	rig_release(&rig, plan);
	arena_end(&rig, &arena, fd);
	rig_deinit(&rig);
}

/* By default the order of preference holds, and the list names the working paths. */
TEST(test_paths__order)
{
	static const char *const names[] = {"host-import", "udmabuf", "exported", "staged"};
	struct rig rig;
	const char *at;

	rig_init(&rig, &(struct vulkan_options){0});
	at = rig.executor->info.paths;
	for (int i = 0; i < 4; i++) {
		enum vulkan_path one = (enum vulkan_path)(VULKAN_PATH_HOST_IMPORT + i);
		const char *why = vulkan_path_why_not(rig.executor, one);
		size_t n = strlen(names[i]);

		if (why) {
			print_message("path %d is not there: %s\n", (int)one, why);
			assert_null(strstr(rig.executor->info.paths, names[i]));
			continue;
		}
		assert_int_equal(strncmp(at, names[i], n), 0);
		at += n + (at[n] == ',');
	}
	assert_int_equal(*at, '\0');
	assert_null(vulkan_path_refusal(rig.vulkan));
	rig_deinit(&rig);
}

static enum vulkan_path path_of(const char *name)
{
	return strcmp(name, "host-import") == 0 ? VULKAN_PATH_HOST_IMPORT
	       : strcmp(name, "udmabuf") == 0   ? VULKAN_PATH_UDMABUF
	       : strcmp(name, "exported") == 0  ? VULKAN_PATH_EXPORTED
						: VULKAN_PATH_STAGED;
}

int main(int argc, char **argv)
{
	struct vulkan *vulkan = NULL;
	struct vulkan_options options;
	const char *refusal;
	struct waker waker;

	if (argc != 2)
		return 2;
	if (!rig_available())
		return 77;
	path = path_of(argv[1]);
	options = options_of();
	options.mode = rig_mode();
	if (waker_init(&waker) || vulkan_open(&options, &waker, &vulkan))
		return 1;
	refusal = vulkan_path_refusal(vulkan);
	if (refusal) {
		printf("skipped: %s\n", refusal);
		vulkan_free(vulkan);
		waker_deinit(&waker);
		return 77;
	}
	vulkan_free(vulkan);
	waker_deinit(&waker);
	return test_run(NULL, NULL);
}
