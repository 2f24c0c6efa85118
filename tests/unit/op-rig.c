/* SPDX-License-Identifier: MIT */
/* See op-rig.h. */
#include "unit/op-rig.h"

#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/internal.h"
#include "shm/dtype.h"
#include "shm/half.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/cpu-levels.h"
#include "unit/cpu-rig.h"
#include "unit/vulkan-rig.h"

enum { MAX_DEVICES = 2 * CPU_SIMD_COUNT, MAX_COUNTS = 2, N_PIECES = 5 };

/* Without optimisation, a compiler fuses no multiply-adds, on which float64 kernels rely. */
#ifdef __OPTIMIZE__
enum { LEVELS_AGREE = true };
#else
enum { LEVELS_AGREE = false };
#endif

struct device {
	const char *name;
	struct executor *executor;
	struct cpu_rig cpu;
	struct rig gpu;
	bool is_gpu;
	bool is_last; /* lays out channels last where possible */
	bool is_fma;  /* gives the same bits as all FMA levels of its layout */
};

static struct device devices[MAX_DEVICES];
static unsigned int n_devices;
static struct exec_arena arenas[3]; /* float32, float16, float64 */
static uint64_t seed;
static unsigned int percent = 100; /* of the random rounds */
static bool is_short;              /* see op_rig_is_short() */

/*
 * The buffers of one count: @start holds the inputs, @want the reference's results, and @fma the
 * results of the first level with FMA.
 */
struct problem {
	uint32_t count;
	struct reference_buffers start, want, fma[2]; /* fma: by layout; zero until computed */
};

uint32_t op_rig_pick(uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(&seed) % (to - from + 1));
}

uint64_t *op_rig_seed(void)
{
	return &seed;
}

void op_rig_set_seed(uint64_t of_short_run)
{
	if (op_rig_is_short())
		seed = of_short_run;
}

struct exec_arena *op_rig_arena(enum rbk_dtype floats)
{
	return &arenas[floats == RBK_DTYPE_F16 ? 1 : floats == RBK_DTYPE_F64 ? 2 : 0];
}

bool op_rig_is_gpu(void)
{
	return devices[0].is_gpu;
}

void op_rig_set_rounds(const char *rounds)
{
	is_short = strcmp(rounds, "short") == 0;
	percent = is_short ? 100 : (unsigned int)strtoul(rounds, NULL, 10);
}

bool op_rig_is_short(void)
{
	return (is_short || percent < 100) && op_rig_is_gpu();
}

bool op_rig_wants(const char *op, enum rbk_dtype floats)
{
	return !op_rig_is_short() || !op_rig_is("shared") || floats == RBK_DTYPE_F32 ||
	       strstr("MatMul Gemm Conv ConvTranspose", op);
}

bool op_rig_takes(const struct op *op, uint8_t type)
{
	return op_types(op, op_rig_is_gpu() ? OP_ON_VULKAN : OP_ON_CPU) & OP_TYPE(type);
}

bool op_rig_samples(const struct op *op, uint8_t type)
{
	static const uint32_t narrow =
		OP_TYPE(RBK_DTYPE_I8) | OP_TYPE(RBK_DTYPE_U8) | OP_TYPE(RBK_DTYPE_I32);
	const bool is_left_out = op_rig_is_short() && op->kind != OP_CAST &&
				 (type == RBK_DTYPE_F16 ? op->kind % 2
							: narrow & OP_TYPE(type) &&
								  /* type % 5: 2, 3 and 1 */
								  (op->kind + type % 5) % 3);

	return op_rig_takes(op, type) && !is_left_out;
}

unsigned int op_rig_rounds(unsigned int cpu, unsigned int gpu)
{
	unsigned int n;

	if (!op_rig_is_gpu())
		return (unsigned int)test_scaled((cpu * percent + 99) / 100);
	n = (unsigned int)test_scaled((gpu * percent + 99) / 100);
	if (n < 2)
		n = 2;
	return n < gpu ? n : gpu;
}

bool op_rig_is(const char *name)
{
	return strcmp(devices[0].name, name) == 0;
}

/* ---- Devices ---- */

static void open_arenas(void)
{
	const size_t n = OP_RIG_ARENA_BYTES / sizeof(float);

	for (unsigned int i = 0; i < 3; i++)
		reference_arena_init(&arenas[i], OP_RIG_ARENA_BYTES, 3 + i);
	for (size_t i = n; i-- > 0;) {
		const float *from = (float *)(void *)arenas[0].base;

		((uint16_t *)(void *)arenas[1].base)[i] = half_from_float(from[i]);
		if (i % 2 == 0)
			((double *)(void *)arenas[2].base)[i / 2] =
				(double)from[i] + 0x1p-30 * (double)from[i + 1];
	}
}

static void open_cpu(void)
{
	static const char *const names[CPU_SIMD_COUNT] = {
		[CPU_SIMD_SSE2] = "sse2", [CPU_SIMD_AVX2] = "avx2", [CPU_SIMD_AVX512] = "avx512"};

	for (unsigned int is_last = 0; is_last < 2; is_last++)
		for (enum cpu_simd level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
			struct device *device = &devices[n_devices];

			if (!cpu_level(level)) {
				print_message("no %s here: not tested\n", names[level]);
				continue;
			}
			cpu_rig_init(&device->cpu,
				     &(struct cpu_options){.n_workers = 3,
							   .simd = level,
							   .layout = is_last ? CPU_LAYOUT_EVERY
									     : CPU_LAYOUT_WORTH});
			device->executor = device->cpu.executor;
			device->name = names[level];
			device->is_last = is_last;
			device->is_fma = LEVELS_AGREE && level >= CPU_SIMD_AVX2;
			n_devices++;
		}
}

int op_rig_open(const char *name)
{
	static const struct {
		const char *name;
		uint32_t force;
	} gpus[] = {
		{"plain", VULKAN_FORCE_PLAIN},
		{"shared", VULKAN_FORCE_SHARED},
		{"plain-staged", VULKAN_FORCE_PLAIN | VULKAN_FORCE_STAGED},
		{"shared-upload", VULKAN_FORCE_SHARED | VULKAN_FORCE_UPLOAD},
		{"plain-staged-upload",
		 VULKAN_FORCE_PLAIN | VULKAN_FORCE_STAGED | VULKAN_FORCE_UPLOAD},
		{"no-float64", VULKAN_FORCE_NO_DOUBLES},
	};

	seed = 42;
	memset(devices, 0, sizeof(devices));
	for (size_t i = 0; i < sizeof(gpus) / sizeof(gpus[0]); i++)
		if (strcmp(name, gpus[i].name) == 0) {
			if (!rig_available())
				return 77;
			rig_init(&devices[0].gpu, &(struct vulkan_options){.force = gpus[i].force});
			devices[0].executor = devices[0].gpu.executor;
			devices[0].name = gpus[i].name;
			devices[0].is_gpu = true;
			n_devices = 1;
		}
	if (strcmp(name, "cpu") == 0)
		open_cpu();
	if (n_devices == 0) {
		fprintf(stderr, "no devices are named %s\n", name);
		return 2;
	}
	open_arenas();
	return 0;
}

void op_rig_close(void)
{
	for (; n_devices > 0; n_devices--) {
		struct device *device = &devices[n_devices - 1];

		if (device->is_gpu)
			rig_deinit(&device->gpu);
		else
			cpu_rig_deinit(&device->cpu);
	}
	for (unsigned int i = 0; i < 3; i++)
		reference_arena_deinit(&arenas[i]);
}

/* ---- Comparing ---- */

static bool is_nan(uint8_t dtype, const void *at)
{
	double d;
	float f;

	switch (dtype) {
	case RBK_DTYPE_F32:
		memcpy(&f, at, sizeof(f));
		return isnan(f);
	case RBK_DTYPE_F64:
		memcpy(&d, at, sizeof(d));
		return isnan(d);
	case RBK_DTYPE_F16:
		return (*(const uint16_t *)at & 0x7fff) > 0x7c00;
	case RBK_DTYPE_BF16:
		return (*(const uint16_t *)at & 0x7fff) > 0x7f80;
	default:
		return false;
	}
}

/* Assert that the bits are the same, except that any NaN equals any other. */
static void assert_same_bits(const struct plan *plan, const char *what,
			     const struct reference_buffers *a, const struct reference_buffers *b)
{
	for (unsigned int i = 0; i < a->n; i++) {
		const struct tensor *tensor = &plan->tensors[plan->bindings[i].tensor];
		const size_t bytes = dtype_bytes(tensor->dtype);

		if (memcmp(a->bindings[i], b->bindings[i], a->bytes[i]) == 0)
			continue;
		for (size_t at = 0; at < a->bytes[i]; at += bytes) {
			const char *x = (char *)a->bindings[i] + at,
				   *y = (char *)b->bindings[i] + at;

			if (memcmp(x, y, bytes) &&
			    !(is_nan(tensor->dtype, x) && is_nan(tensor->dtype, y)))
				fail_msg("%s: element %zu of \"%s\" has other bits", what,
					 at / bytes, tensor->name);
		}
	}
}

static bool is_close_to_largest(const struct plan *plan, double rtol,
				const struct reference_buffers *got,
				const struct reference_buffers *want)
{
	bool is_close = true;

	for (unsigned int i = 0; i < plan->n_bindings; i++) {
		const struct tensor *tensor = &plan->tensors[plan->bindings[i].tensor];
		const float *w = want->bindings[i];
		const size_t n = want->bytes[i] / sizeof(*w);
		double largest = 1;

		if (!plan->bindings[i].written)
			continue;
		assert_int_equal(tensor->dtype, RBK_DTYPE_F32);
		for (size_t k = 0; k < n; k++)
			if (isfinite(w[k]))
				largest = fmax(largest, fabs((double)w[k]));
		is_close &=
			reference_close(tensor->name, got->bindings[i], w, n, 0, rtol * largest);
	}
	return is_close;
}

/* Return the current contents of the job's bindings, in place. */
static struct reference_buffers buffers_of(struct job *job)
{
	struct reference_buffers buffers = job->want;

	for (unsigned int i = 0; i < buffers.n; i++)
		buffers.bindings[i] = job_binding(job, i);
	return buffers;
}

static void expect(struct job *job, const struct device *device, const struct op_check *check,
		   const struct problem *problem)
{
	const struct plan *plan = job->task.plan;
	const struct reference_buffers got = buffers_of(job);

	if (!(check->is_of_largest
		      ? is_close_to_largest(plan, check->rtol, &got, &problem->want)
		      : reference_buffers_close(plan, problem->count, &got, &problem->want,
						check->rtol, check->atol)) ||
	    !job_is_untouched(job))
		fail_msg("%s at %s%s, count %u, inputs from %u x %u of type %u",
			 check->what ? check->what : plan->nodes[0].op->name, device->name,
			 device->is_last ? " with channels last" : "", problem->count,
			 plan->tensors[0].shape.dims[0], plan->tensors[0].shape.dims[1],
			 plan->tensors[0].dtype);
}

/* ---- Running ---- */

static int run_queued(struct device *device, struct job *job)
{
	job_reset(job);
	if (device->is_gpu) {
		rig_run(&device->gpu, job);
	} else {
		assert_int_equal(device->executor->ops->submit(device->executor, &job->task), 0);
		device->executor->ops->flush(device->executor);
		assert_ptr_equal(cpu_rig_reap(&device->cpu), &job->task);
	}
	return job->task.res;
}

/* Run the task inline, with denormals flushed only for the executor and not for the reference. */
static int run_inline(struct device *device, struct job *job)
{
	fenv_t before;

	job_reset(job);
	fegetenv(&before);
	cpu_flush_denormals();
	device->executor->ops->run_inline(device->executor, &job->task);
	fesetenv(&before);
	return job->task.res;
}

/* Compute each step in pieces that are cut at random places, in random order. */
static void run_in_pieces(struct device *device, struct job *job)
{
	struct cpu_executor *cpu = cpu_executor_from(device->executor);
	const struct cpu_plan *plan = job->task.plan->exec[RBK_DEVICE_CPU];
	_Atomic bool is_out_of_range = false;
	struct cpu_frame frame = {.count = job->task.count, .is_out_of_range = &is_out_of_range};
	fenv_t before;

	job_reset(job);
	fegetenv(&before);
	cpu_flush_denormals();
	frame.base[CPU_BASE_SCRATCH] =
		(uintptr_t)plan->scratch + cpu->n_workers * plan->scratch_stride;
	for (unsigned int i = 0; i < plan->n_bindings; i++)
		frame.base[CPU_BASE_BINDING + i] = (uintptr_t)job_binding(job, i);
	for (const struct cpu_step *step = plan->steps; step < plan->steps + plan->n_steps;
	     step++) {
		const size_t n_units = step->units(step, frame.count);

		frame.n_rounds = step->rounds ? step->rounds(step, frame.count) : 1;
		for (frame.round = 0; frame.round < frame.n_rounds; frame.round++) {
			size_t cuts[N_PIECES + 1] = {0}, order[N_PIECES] = {0, 1, 2, 3, 4};

			for (unsigned int i = 1; i < N_PIECES; i++)
				cuts[i] = cuts[i - 1] +
					  reference_random(&seed) % (n_units - cuts[i - 1] + 1);
			cuts[N_PIECES] = n_units;
			for (unsigned int i = 0; i < N_PIECES; i++) {
				const unsigned int j = op_rig_pick(i, N_PIECES - 1);
				const size_t piece = order[j];

				order[j] = order[i];
				if (cuts[piece] < cuts[piece + 1])
					step->run(step, &frame, cuts[piece], cuts[piece + 1],
						  &cpu->inline_context);
			}
		}
	}
	fesetenv(&before);
	assert_false(is_out_of_range);
}

/* Compute the job in each way: all give the same bits, as do all levels with is_fma. */
static void check_ways(struct device *device, struct job *job, const struct op_check *check,
		       struct problem *problem)
{
	const struct plan *plan = job->task.plan;
	struct reference_buffers first;
	struct reference_buffers now = buffers_of(job);

	reference_buffers_copy(&first, &now);
	run_in_pieces(device, job);
	assert_same_bits(plan, "in pieces", &now, &first);
	assert_true(job_is_untouched(job));
	assert_int_equal(run_queued(device, job), 0);
	assert_same_bits(plan, "by several workers", &now, &first);
	if (device->is_fma && problem->fma[device->is_last].n > 0)
		assert_same_bits(plan, device->name, &first, &problem->fma[device->is_last]);
	else if (device->is_fma)
		reference_buffers_copy(&problem->fma[device->is_last], &first);
	reference_buffers_deinit(&first);
}

/* Compute spoiled contents, which must fail and must not affect the next task. */
static void check_spoiled(struct device *device, struct job *job, const struct op_check *check,
			  struct problem *problem)
{
	if (!check->spoil || !check->spoil(job->task.plan, problem->count, &job->want, &seed))
		return;
	assert_int_equal(run_queued(device, job), -EDOM);
	if (!device->is_gpu)
		assert_int_equal(run_inline(device, job), -EDOM);
	for (unsigned int i = 0; i < job->want.n; i++)
		memcpy(job->want.bindings[i], problem->start.bindings[i], problem->start.bytes[i]);
	assert_int_equal(run_queued(device, job), 0);
	expect(job, device, check, problem);
}

static void check_on(struct device *device, struct plan *plan, const struct op_check *check,
		     struct problem *problem)
{
	struct job job;

	job_init(device->is_gpu ? &device->gpu : NULL, &job, plan, problem->count, 1);
	for (unsigned int i = 0; i < job.want.n; i++)
		memcpy(job.want.bindings[i], problem->start.bindings[i], problem->start.bytes[i]);
	/*
	 * A GPU runs twice: the second run uses the parameter blocks that the first left. A check
	 * of one count is of a long task, of which there is one run.
	 */
	for (unsigned int again = 0; again < (device->is_gpu && !check->count ? 2 : 1); again++) {
		assert_int_equal((device->is_gpu ? run_queued : run_inline)(device, &job), 0);
		expect(&job, device, check, problem);
	}
	if (!device->is_gpu)
		check_ways(device, &job, check, problem);
	check_spoiled(device, &job, check, problem);
	job_deinit(device->is_gpu ? &device->gpu : NULL, &job);
}

/* Return true if the device supports all types of the operators and of the memory. */
static bool takes_types(const struct device *device, const struct plan *plan)
{
	const uint32_t types = device->executor->info.types;

	for (unsigned int i = 0; types && i < plan->n_tensors; i++)
		if (!(types & OP_TYPE(plan->tensors[i].dtype)))
			return false;
	return true;
}

/* Return: false if the device rejects the plan, and is allowed to. */
static bool prepare(struct device *device, struct plan *plan, const struct op_check *check)
{
	const struct executor_ops *ops = device->executor->ops;
	const bool must_refuse = !takes_types(device, plan);

	if (device->is_gpu && (must_refuse || check->may_refuse)) {
		const int r = ops->plan_prepare(device->executor, plan);

		assert_true(r == EXECUTOR_E_UNSUPPORTED || (r == 0 && !must_refuse));
		ops->plan_release(device->executor, plan);
		if (r)
			return false;
	}
	if (device->is_gpu)
		rig_prepare(&device->gpu, plan);
	else
		cpu_rig_prepare(&device->cpu, plan);
	return true;
}

unsigned int op_check(struct plan *plan, const struct op_check *check)
{
	const uint32_t largest = plan->max_count;
	const unsigned int n = check->count || largest == 1 ? 1 : MAX_COUNTS;
	struct problem problems[MAX_COUNTS] = {0};
	unsigned int n_computed = 0;

	for (unsigned int i = 0; i < n; i++) {
		struct problem *problem = &problems[i];

		problem->count = check->count ? check->count
				 : i == 0     ? largest
					      : op_rig_pick(1, largest - 1);
		reference_buffers_init(&problem->start, plan, problem->count, op_rig_pick(1, 999));
		if (check->fill)
			check->fill(plan, problem->count, &problem->start, &seed);
		reference_buffers_copy(&problem->want, &problem->start);
		reference_run(plan, problem->count, problem->want.bindings);
	}
	for (struct device *device = devices; device < devices + n_devices; device++) {
		if ((device->is_last && !check->has_layouts) || !prepare(device, plan, check))
			continue;
		for (unsigned int i = 0; i < n; i++)
			check_on(device, plan, check, &problems[i]);
		if (device->is_gpu)
			rig_unload(&device->gpu, plan);
		device->executor->ops->plan_release(device->executor, plan);
		assert_null(plan->exec[device->executor->index]);
		n_computed++;
	}
	for (unsigned int i = 0; i < n; i++) {
		reference_buffers_deinit(&problems[i].start);
		reference_buffers_deinit(&problems[i].want);
		for (unsigned int k = 0; k < 2; k++)
			reference_buffers_deinit(&problems[i].fma[k]);
	}
	plan_free(plan);
	return n_computed;
}
