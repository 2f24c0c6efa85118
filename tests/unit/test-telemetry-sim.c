/* SPDX-License-Identifier: MIT */
/*
 * Watching amdgpu cards, over the simulated driver
 *
 *	amdgpu-sim run --card CHIP... -- test-telemetry-sim AMDGPU-SIM card|apu|cards
 *
 * The simulator's own commands change the cards while they are watched.
 */
#include <amdgpu.h>
#include <amdgpu_drm.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/test.h"
#include "telemetry/amdgpu.h"
#include "telemetry/telemetry.h"
#include "util/clock.h"
#include "util/waker.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

/* Wait until @condition holds for the newest reading of device @index. */
#define wait_until(rig, index, condition)                                                        \
	do {                                                                                     \
		const struct device_reading *r = &(rig)->reading;                                \
		uint64_t start_ns = clock_now_ns();                                              \
                                                                                                 \
		for (;;) {                                                                       \
			assert_true(telemetry_read((rig)->telemetry, (index), &(rig)->reading)); \
			if (condition)                                                           \
				break;                                                           \
			if (clock_now_ns() - start_ns > 40000000000u)                            \
				fail_msg("in vain: %s", #condition);                             \
			pause_a_moment();                                                        \
		}                                                                                \
	} while (0)

/*
 * Handles of libdrm_amdgpu are shared within the process and counted by atomics that
 * ThreadSanitizer cannot see. Destroying a handle with its last reference therefore looks like a
 * race.
 */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "called_from_lib:libdrm_amdgpu.so.1\n";
}

static const char *sim_path;

static void pause_a_moment(void)
{
	const struct timespec moment = {0, 2000000};

	nanosleep(&moment, NULL);
}

/* Run a command of the simulator. */
static void sim(const char *command)
{
	char line[512];

	snprintf(line, sizeof(line), "'%s' %s >&2", sim_path, command);
	assert_int_equal(system(line), 0);
}

/* Another process that holds memory. */
struct hog {
	pid_t pid;
	int input, output;
};

static struct hog hog_new(const char *card, const char *vram)
{
	int input[2], output[2];
	struct hog hog;
	char c;

	assert_int_equal(pipe2(input, O_CLOEXEC), 0);
	assert_int_equal(pipe2(output, O_CLOEXEC), 0);
	hog.pid = fork();
	if (hog.pid == 0) {
		dup2(input[0], 0);
		dup2(output[1], 1);
		execl(sim_path, sim_path, "hog", card, "--vram", vram, NULL);
		_exit(127);
	}
	assert_true(hog.pid > 0);
	close(input[0]);
	close(output[1]);
	hog.input = input[1];
	hog.output = output[0];
	/* The process reports when it holds the memory. */
	do
		assert_int_equal(read(hog.output, &c, 1), 1);
	while (c != '\n');
	return hog;
}

static void hog_free(struct hog *hog)
{
	int status;

	close(hog->input);
	close(hog->output);
	assert_int_equal(waitpid(hog->pid, &status, 0), hog->pid);
}

struct rig {
	struct telemetry_device devices[4];
	unsigned int n_devices;
	struct waker waker;
	struct telemetry *telemetry;
	struct device_reading reading;
};

/* Sort by render node: card0 has the first node. */
static int compare_nodes(const void *a, const void *b)
{
	const struct telemetry_device *x = a, *y = b;

	return (int)x->render_minor - (int)y->render_minor;
}

static void rig_init(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	rig->n_devices = amdgpu_list(rig->devices, 4);
	qsort(rig->devices, rig->n_devices, sizeof(rig->devices[0]), compare_nodes);
	for (unsigned int i = 0; i < rig->n_devices; i++)
		rig->devices[i].index = i + 1;
	assert_int_equal(waker_init(&rig->waker), 0);
}

static void rig_start(struct rig *rig)
{
	assert_int_equal(telemetry_new(rig->devices, rig->n_devices, &rig->waker, &rig->telemetry),
			 0);
	telemetry_set_pace(rig->telemetry, TELEMETRY_BUSY);
}

static void rig_deinit(struct rig *rig)
{
	assert_null(telemetry_free(rig->telemetry));
	waker_deinit(&rig->waker);
}

#define RIG(name) SCOPED(rig, name, rig_init, rig_deinit)

/* Memory held by this process. */
struct holding {
	amdgpu_device_handle handle;
	amdgpu_bo_handle buffer;
};

static amdgpu_device_handle open_card(unsigned int minor)
{
	amdgpu_device_handle handle;
	uint32_t major_version, minor_version;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/dri/renderD%u", minor);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(amdgpu_device_initialize(fd, &major_version, &minor_version, &handle), 0);
	close(fd);
	return handle;
}

static struct holding hold(unsigned int minor, uint64_t bytes, uint32_t heap)
{
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = bytes, .phys_alignment = 4096, .preferred_heap = heap};
	struct holding holding = {.handle = open_card(minor)};

	assert_int_equal(amdgpu_bo_alloc(holding.handle, &request, &holding.buffer), 0);
	return holding;
}

static void let_go(struct holding *holding)
{
	assert_int_equal(amdgpu_bo_free(holding->buffer), 0);
	assert_int_equal(amdgpu_device_deinitialize(holding->handle), 0);
}

TEST_IN("card", test_card__totals)
{
	RIG(rig);
	assert_int_equal(rig.n_devices, 1);
	rig_start(&rig);
	/* The first reading is available at once. */
	assert_true(telemetry_read(rig.telemetry, 1, &rig.reading));
	assert_string_equal(rig.reading.source, "amdgpu");
	assert_string_equal(rig.reading.pci, "0000:e3:00.0");
	assert_int_equal(rig.reading.state, TELEMETRY_PRESENT);
	assert_false(rig.reading.is_integrated);
	assert_true(rig.reading.vram.total.is_valid && rig.reading.vram.usable.is_valid);
	assert_int_equal(rig.reading.vram.total.value, GIB(8));
	assert_true(rig.reading.vram.usable.value <= GIB(8) &&
		    rig.reading.vram.usable.value > GIB(7));
	assert_fields(rig.reading, (visible_vram.total.value, MIB(256)),
		      (gtt.total.value, GIB(16)));
	assert_true(rig.reading.vram.used.is_valid && rig.reading.vram.own.is_valid);
	assert_int_equal(telemetry_pool(&rig.reading).total.value, GIB(8));
	assert_null(telemetry_sentence(rig.telemetry, 0));

	sim("set card0 other-vram=2GiB other-gtt=1GiB");
	wait_until(&rig, 1, r->vram.used.value >= GIB(2) && r->gtt.used.value >= GIB(1));
	assert_true(rig.reading.vram.own.value < MIB(64));
	sim("set card0 other-vram=0 other-gtt=0");
	wait_until(&rig, 1, r->vram.used.value < GIB(1) && r->gtt.used.value < GIB(1));
}

/* This process's memory is distinguished from that of others, and does not wake the reactor. */
TEST_IN("card", test_card__own)
{
	struct pollfd pollfd = {.events = POLLIN};
	struct holding vram, gtt;
	uint64_t vram_before, gtt_before;

	RIG(rig);
	gtt = hold(128, MIB(8), AMDGPU_GEM_DOMAIN_GTT);
	rig_start(&rig);
	wait_until(&rig, 1, r->gtt.own.is_valid && r->gtt.own.value >= MIB(8));
	vram_before = rig.reading.vram.own.value;
	gtt_before = rig.reading.gtt.own.value;
	assert_true(telemetry_wait(rig.telemetry, 40000000000u));
	waker_arm(&rig.waker);
	vram = hold(128, MIB(512), AMDGPU_GEM_DOMAIN_VRAM);
	wait_until(&rig, 1, r->vram.own.value == vram_before + MIB(512));
	assert_true(rig.reading.vram.used.value >= rig.reading.vram.own.value);
	let_go(&vram);
	wait_until(&rig, 1, r->vram.own.value == vram_before);
	pollfd.fd = rig.waker.fd;
	assert_int_equal(poll(&pollfd, 1, 0), 0);
	let_go(&gtt);
	wait_until(&rig, 1, r->gtt.own.value == gtt_before - MIB(8));
}

static const struct process_reading *find_process(const struct device_reading *reading, pid_t pid)
{
	for (uint32_t i = 0; i < reading->n_processes; i++)
		if (reading->processes[i].pid == pid)
			return &reading->processes[i];
	return NULL;
}

TEST_IN("card", test_card__others)
{
	struct pollfd pollfd = {.events = POLLIN};
	const struct process_reading *process;
	struct hog hog;

	RIG(rig);
	rig_start(&rig);
	assert_true(telemetry_wait(rig.telemetry, 40000000000u));
	waker_arm(&rig.waker);
	hog = hog_new("card0", "1GiB");
	wait_until(&rig, 1, r->vram.used.value >= GIB(1));
	pollfd.fd = rig.waker.fd;
	assert_int_equal(poll(&pollfd, 1, 40000), 1);
	waker_disarm(&rig.waker);
	wait_until(&rig, 1, find_process(r, hog.pid));
	process = find_process(&rig.reading, hog.pid);
	assert_fields(*process, (vram_bytes, GIB(1)), (uid, getuid()));
	assert_string_equal(process->comm, "amdgpu-sim");
	/* The largest process comes first, and this process is listed. */
	assert_int_equal(rig.reading.processes[0].pid, hog.pid);
	assert_non_null(find_process(&rig.reading, getpid()));
	hog_free(&hog);
	wait_until(&rig, 1, !find_process(r, hog.pid) && r->vram.used.value < GIB(1));
	/* Newer kernels have other keys. */
	sim("set card0 kernel=6.14");
	hog = hog_new("card0", "768MiB");
	wait_until(&rig, 1, find_process(r, hog.pid));
	assert_int_equal(find_process(&rig.reading, hog.pid)->vram_bytes, MIB(768));
	hog_free(&hog);
	sim("set card0 kernel=6.1");
}

TEST_IN("card", test_card__sensors)
{
	RIG(rig);
	sim("set card0 load=0 temperature=71 power=120 sclk=1340 mclk=2000 mem-load=7");
	rig_start(&rig);
	wait_until(&rig, 1, r->temperature_millicelsius.is_valid);
	assert_int_equal(rig.reading.temperature_millicelsius.value, 71000);
	/* Zero is a value, not a missing one. */
	assert_true(rig.reading.load_percent.is_valid);
	assert_fields(rig.reading, (load_percent.value, 0), (memory_load_percent.value, 7),
		      (power_microwatts.value, 120000000), (gpu_hz.value, 1340000000),
		      (memory_hz.value, 2000000000));
	sim("set card0 load=80 temperature=absent power=absent mem-load=absent mclk=absent");
	wait_until(&rig, 1, r->load_percent.value == 80 && !r->temperature_millicelsius.is_valid);
	assert_false(rig.reading.power_microwatts.is_valid);
	assert_false(rig.reading.memory_load_percent.is_valid);
	assert_false(rig.reading.memory_hz.is_valid);
	assert_true(rig.reading.gpu_hz.is_valid);
	/* Figures that the driver does not report may be in sysfs. */
	sim("set card0 temperature=55 power=33 load=42");
	sim("fail card0 INFO_SENSOR EINVAL forever");
	wait_until(&rig, 1, r->temperature_millicelsius.value == 55000);
	wait_until(&rig, 1, r->load_percent.value == 42);
	assert_int_equal(rig.reading.power_microwatts.value, 33000000);
	sim("fail card0 INFO_SENSOR EINVAL 0");
}

TEST_IN("card", test_card__counters)
{
	RIG(rig);
	sim("set card0 evictions=5 bytes-moved=1000000 cpu-page-faults=3");
	rig_start(&rig);
	wait_until(&rig, 1, r->n_evictions.value == 5);
	assert_fields(rig.reading, (bytes_moved.value, 1000000), (n_page_faults.value, 3));
	waker_arm(&rig.waker);
	sim("set card0 evictions=6");
	wait_until(&rig, 1, r->n_evictions.value == 6);
	/* Simulate an older kernel, which lacks one of these queries. */
	sim("fail card0 INFO_NUM_EVICTIONS EINVAL forever");
	wait_until(&rig, 1, !r->n_evictions.is_valid);
	assert_true(rig.reading.bytes_moved.is_valid);
	sim("fail card0 INFO_NUM_EVICTIONS EINVAL 0");
}

TEST_IN("card", test_card__old_memory_query)
{
	RIG(rig);
	sim("set card0 other-vram=1GiB");
	sim("fail card0 INFO_MEMORY EINVAL forever");
	rig_start(&rig);
	wait_until(&rig, 1, r->vram.used.value >= GIB(1));
	assert_false(rig.reading.vram.total.is_valid);
	assert_true(rig.reading.vram.usable.value > GIB(7));
	assert_true(rig.reading.gtt.usable.value > GIB(7));
	sim("fail card0 INFO_MEMORY EINVAL 0");
	sim("set card0 other-vram=0");
}

TEST_IN("card", test_card__reset)
{
	struct pollfd pollfd = {.events = POLLIN};
	uint64_t n_vram_lost;

	RIG(rig);
	rig_start(&rig);
	wait_until(&rig, 1, r->n_vram_lost.is_valid);
	n_vram_lost = rig.reading.n_vram_lost.value;
	assert_true(rig.reading.n_resets.is_valid);
	assert_int_equal(rig.reading.n_resets.value, 0);
	waker_arm(&rig.waker);
	sim("reset card0 --innocent");
	wait_until(&rig, 1, r->n_resets.value == 1);
	assert_int_equal(rig.reading.n_vram_lost.value, n_vram_lost);
	pollfd.fd = rig.waker.fd;
	assert_int_equal(poll(&pollfd, 1, 40000), 1);
	waker_disarm(&rig.waker);
	/* A reset that also loses the memory counts as one reset, not two. */
	sim("reset card0 --vram-lost");
	wait_until(&rig, 1, r->n_vram_lost.value == n_vram_lost + 1);
	assert_int_equal(rig.reading.n_resets.value, 2);
	sim("reset card0 --vram-lost");
	wait_until(&rig, 1, r->n_resets.value == 3);
	assert_int_equal(rig.reading.n_vram_lost.value, n_vram_lost + 2);
}

TEST_IN("card", test_card__unplugged)
{
	struct pollfd pollfd = {.events = POLLIN};
	uint64_t n_vram_lost;

	RIG(rig);
	rig_start(&rig);
	wait_until(&rig, 1, r->n_vram_lost.is_valid && r->load_percent.is_valid);
	for (int i = 0; i < 2; i++) {
		n_vram_lost = rig.reading.n_vram_lost.value;
		waker_arm(&rig.waker);
		sim("unplug card0");
		wait_until(&rig, 1, r->state == TELEMETRY_GONE);
		pollfd.fd = rig.waker.fd;
		assert_int_equal(poll(&pollfd, 1, 40000), 1);
		waker_disarm(&rig.waker);
		assert_false(rig.reading.vram.total.is_valid || rig.reading.vram.used.is_valid);
		assert_false(rig.reading.load_percent.is_valid);
		assert_false(rig.reading.temperature_millicelsius.is_valid);
		assert_int_equal(rig.reading.n_processes, 0);
		assert_string_equal(rig.reading.pci, "0000:e3:00.0");
		waker_arm(&rig.waker);
		sim("plug card0");
		wait_until(&rig, 1, r->state == TELEMETRY_PRESENT);
		assert_int_equal(poll(&pollfd, 1, 40000), 1);
		waker_disarm(&rig.waker);
		wait_until(&rig, 1, r->vram.total.value == GIB(8) && r->load_percent.is_valid);
		/* The memory's contents are lost. */
		assert_int_equal(rig.reading.n_vram_lost.value, n_vram_lost + 1);
	}
}

/* While this process holds the dead device, libdrm returns it in place of the new one. */
TEST_IN("card", test_card__unplugged_but_held)
{
	amdgpu_device_handle held;

	RIG(rig);
	held = open_card(128);
	rig_start(&rig);
	for (int i = 0; i < 2; i++) {
		sim("unplug card0");
		wait_until(&rig, 1, r->state == TELEMETRY_GONE);
		sim("plug card0");
		wait_until(&rig, 1, r->state == TELEMETRY_PRESENT && r->load_percent.is_valid);
		assert_int_equal(rig.reading.vram.total.value, GIB(8));
		assert_true(rig.reading.temperature_millicelsius.is_valid);
		assert_true(rig.reading.n_evictions.is_valid);
		sim("set card0 other-vram=1GiB");
		wait_until(&rig, 1, r->vram.used.value >= GIB(1));
		sim("set card0 other-vram=0");
	}
	sim("reset card0 --vram-lost");
	wait_until(&rig, 1, r->n_resets.value == 1);
	amdgpu_device_deinitialize(held);
}

/* Watching ends while the card is unplugged. */
TEST_IN("card", test_card__end_while_unplugged)
{
	struct rig rig;

	rig_init(&rig);
	rig_start(&rig);
	sim("unplug card0");
	wait_until(&rig, 1, r->state == TELEMETRY_GONE);
	rig_deinit(&rig);
	sim("plug card0");
}

/* A driver that does not even report its version. */
TEST_IN("card", test_card__driver_without_version)
{
	struct device_reading reading;
	struct rig rig;

	rig_init(&rig);
	sim("fail card0 VERSION EINVAL forever");
	rig_start(&rig);
	assert_false(telemetry_read(rig.telemetry, 1, &reading));
	assert_non_null(telemetry_sentence(rig.telemetry, 0));
	rig_deinit(&rig);
	sim("fail card0 VERSION EINVAL 0");
	rig_init(&rig);
	sim("fail card0 INFO EIO forever");
	rig_start(&rig);
	assert_false(telemetry_read(rig.telemetry, 1, &reading));
	assert_non_null(strstr(telemetry_sentence(rig.telemetry, 0), "cannot be read"));
	rig_deinit(&rig);
	sim("fail card0 INFO EIO 0");
}

TEST_IN("apu", test_apu__one_pool)
{
	RIG(rig);
	assert_int_equal(rig.n_devices, 1);
	sim("set card0 other-vram=100MiB other-gtt=50MiB");
	rig_start(&rig);
	wait_until(&rig, 1, r->vram.used.value >= MIB(100) && r->gtt.used.value >= MIB(50));
	assert_true(rig.reading.is_integrated);
	assert_int_equal(telemetry_pool(&rig.reading).total.value,
			 rig.reading.vram.total.value + rig.reading.gtt.total.value);
	assert_true(rig.reading.gtt.total.value > GIB(1));
	assert_true(telemetry_pool(&rig.reading).used.value >= MIB(150));
	assert_true(telemetry_pool(&rig.reading).own.is_valid);
}

TEST_IN("cards", test_cards__told_apart)
{
	struct holding holding;
	struct hog hog;
	uint32_t second;

	RIG(rig);
	assert_int_equal(rig.n_devices, 2);
	/* One device is identified by its address, one by its node. */
	rig.devices[0].has_render = false;
	rig.devices[1].has_pci = false;
	second = rig.devices[1].render_minor;
	rig_start(&rig);
	wait_until(&rig, 1, r->vram.total.value == GIB(8));
	sim("set card0 temperature=40 other-vram=1GiB");
	sim("set card1 temperature=90 other-vram=0");
	wait_until(&rig, 1,
		   r->temperature_millicelsius.value == 40000 && r->vram.used.value >= GIB(1));
	wait_until(&rig, 2, r->temperature_millicelsius.value == 90000);
	assert_true(rig.reading.vram.used.value < GIB(1));
	assert_int_equal(rig.reading.vram.total.value, GIB(16));

	holding = hold(second, MIB(300), AMDGPU_GEM_DOMAIN_VRAM);
	wait_until(&rig, 2, r->vram.own.value >= MIB(300));
	wait_until(&rig, 1, r->vram.own.is_valid && r->vram.own.value < MIB(300));
	let_go(&holding);

	hog = hog_new("card1", "2GiB");
	wait_until(&rig, 2, find_process(r, hog.pid));
	assert_int_equal(find_process(&rig.reading, hog.pid)->vram_bytes, GIB(2));
	assert_true(telemetry_read(rig.telemetry, 1, &rig.reading));
	assert_null(find_process(&rig.reading, hog.pid));
	hog_free(&hog);

	/* One card is unplugged; the other is not affected. */
	sim("unplug card1");
	wait_until(&rig, 2, r->state == TELEMETRY_GONE);
	wait_until(&rig, 1, r->state == TELEMETRY_PRESENT && r->vram.used.value >= GIB(1));
	sim("reset card0 --innocent");
	wait_until(&rig, 1, r->n_resets.value == 1);
	sim("plug card1");
	wait_until(&rig, 2, r->state == TELEMETRY_PRESENT && r->vram.total.value == GIB(16));
	assert_int_equal(rig.reading.n_resets.value, 0);
}

TEST_IN("cards", test_cards__foreign_card_is_not_used)
{
	RIG(rig);
	rig.n_devices = 1;
	rig_start(&rig);
	assert_non_null(telemetry_sentence(rig.telemetry, 0));
	assert_non_null(strstr(telemetry_sentence(rig.telemetry, 0), "is not used"));
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	sim_path = argv[1];
	return test_run_group(argv[2], NULL, NULL);
}
