/* SPDX-License-Identifier: MIT */
/*
 * OpenBLAS as a baseline
 *
 * OpenBLAS chooses its kernels by processor model when it is loaded. Debian's release uses
 * Haswell's kernels on processors that are newer than the release. A baseline that is slower than
 * necessary proves nothing, so the fastest of several core types is determined first. Each is tried
 * in a child process, because the choice is made once per process, and a core type that this
 * processor cannot run kills the process.
 */
#include "library-ops.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/checked.h"
#include "util/cleanup.h"
#include "util/clock.h"

/* values of the BLAS standard from cblas.h, which a build machine need not have */
enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111 };

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
		      const float *a, int lda, const float *b, int ldb, float beta, float *c,
		      int ldc);

struct openblas {
	struct library library;
	sgemm_fn *sgemm;
};

struct openblas_matmul {
	struct library_matmul matmul;
	int m, k, n;
	const float *a, *b;
	float *c;
};

/* "": OpenBLAS's own choice */
static const char *const core_types[] = {"", "Cooperlake", "SkylakeX", "Zen", "Haswell"};

#define TRIAL_N          256
#define TRIAL_NS         20000000u
#define TRIAL_TIMEOUT_MS 5000

static int load(const char *core_type, sgemm_fn **ret)
{
	void *handle, *symbol;

	setenv("OPENBLAS_NUM_THREADS", "1", 1);
	if (*core_type)
		setenv("OPENBLAS_CORETYPE", core_type, 1);
	else
		unsetenv("OPENBLAS_CORETYPE");
	handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return -ENOENT;
	symbol = dlsym(handle, "cblas_sgemm");
	if (!symbol)
		return -ENOENT;
	*ret = (sgemm_fn *)symbol;
	return 0;
}

/* Measure a core type in a child process: write the nanoseconds of the fastest product. */
static void try_core_type(const char *core_type, int fd)
{
	uint64_t start, end_ns, ns, best = UINT64_MAX;
	float *a, *b, *c;
	sgemm_fn *sgemm;

	/* A core type that this processor cannot run ends the child here, without a message. */
	signal(SIGILL, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(TRIAL_TIMEOUT_MS / 1000);
	a = calloc(3 * TRIAL_N * TRIAL_N, sizeof(*a));
	if (!a || load(core_type, &sgemm) < 0)
		_exit(1);
	b = a + TRIAL_N * TRIAL_N;
	c = b + TRIAL_N * TRIAL_N;
	end_ns = clock_now_ns() + TRIAL_NS;
	do {
		start = clock_now_ns();
		sgemm(CBLAS_ROW_MAJOR, CBLAS_NO_TRANS, CBLAS_NO_TRANS, TRIAL_N, TRIAL_N, TRIAL_N,
		      1.0f, a, TRIAL_N, b, TRIAL_N, 0.0f, c, TRIAL_N);
		ns = clock_now_ns() - start;
		if (ns < best)
			best = ns;
	} while (clock_now_ns() < end_ns);
	if (write(fd, &best, sizeof(best)) != sizeof(best))
		_exit(1);
	_exit(0);
}

/* Return the nanoseconds of a product with a core type, UINT64_MAX if it does not work. */
static uint64_t core_type_ns(const char *core_type)
{
	uint64_t ns = UINT64_MAX;
	int fds[2];
	pid_t pid;

	if (pipe(fds) < 0)
		return UINT64_MAX;
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		try_core_type(core_type, fds[1]);
	}
	close(fds[1]);
	if (pid > 0) {
		if (read(fds[0], &ns, sizeof(ns)) != sizeof(ns))
			ns = UINT64_MAX;
		waitpid(pid, NULL, 0);
	}
	close(fds[0]);
	return ns;
}

static int openblas_matmul_new(struct library *library, uint32_t m, uint32_t k, uint32_t n,
			       const float *a, const float *b, float *c,
			       struct library_matmul **ret)
{
	struct openblas_matmul *matmul;

	matmul = malloc(sizeof(*matmul));
	if (!matmul)
		return -ENOMEM;
	*matmul = (struct openblas_matmul){
		.matmul.library = library,
		.m = (int)m,
		.k = (int)k,
		.n = (int)n,
		.a = a,
		.b = b,
		.c = c,
	};
	*ret = &matmul->matmul;
	return 0;
}

static int openblas_matmul_run(struct library_matmul *base)
{
	struct openblas_matmul *matmul = container_of(base, struct openblas_matmul, matmul);
	struct openblas *openblas = container_of(base->library, struct openblas, library);

	openblas->sgemm(CBLAS_ROW_MAJOR, CBLAS_NO_TRANS, CBLAS_NO_TRANS, matmul->m, matmul->n,
			matmul->k, 1.0f, matmul->a, matmul->k, matmul->b, matmul->n, 0.0f,
			matmul->c, matmul->n);
	return 0;
}

static void openblas_matmul_free(struct library_matmul *base)
{
	free(container_of(base, struct openblas_matmul, matmul));
}

static void openblas_free(struct library *library)
{
	free(container_of(library, struct openblas, library));
}

static const struct library_ops openblas_ops = {
	.matmul_new = openblas_matmul_new,
	.matmul_run = openblas_matmul_run,
	.matmul_free = openblas_matmul_free,
	.free = openblas_free,
};

int library_open_openblas(struct library **ret, const char **ret_reason)
{
	/* determined once, since a loaded library keeps its core type */
	static const char *core_type;
	_cleanup_(freep) struct openblas *openblas = NULL;
	uint64_t ns, best = UINT64_MAX;

	if (!core_type) {
		for (size_t i = 0; i < ARRAY_SIZE(core_types); i++) {
			ns = core_type_ns(core_types[i]);
			if (ns < best) {
				best = ns;
				core_type = core_types[i];
			}
		}
		if (!core_type) {
			*ret_reason = "libopenblas.so.0 is not installed";
			return LIBRARY_E_ABSENT;
		}
	}
	openblas = calloc(1, sizeof(*openblas));
	if (!openblas) {
		*ret_reason = "no memory for OpenBLAS";
		return LIBRARY_E_ABSENT;
	}
	if (load(core_type, &openblas->sgemm) < 0) {
		*ret_reason = "libopenblas.so.0 cannot be loaded";
		return LIBRARY_E_ABSENT;
	}
	openblas->library.ops = &openblas_ops;
	snprintf(openblas->library.name, sizeof(openblas->library.name), "openblas%s%s",
		 *core_type ? "-" : "", core_type);
	*ret = &steal_ptr(openblas)->library;
	return 0;
}
