/* SPDX-License-Identifier: MIT */
/* Submissions that take time: engines, policies, dependencies, timeouts, clients that end */
#include "rig.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull

/* A context, with a buffer that its submissions list. */
struct user {
	const struct rig *rig;
	amdgpu_context_handle context;
	amdgpu_bo_handle buffer;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void user_begin(struct user *user, const struct rig *rig, uint32_t priority)
{
	user->rig = rig;
	assert_int_equal(amdgpu_cs_ctx_create2(rig->device, priority, &user->context), 0);
	user->buffer = rig_allocate(rig, AMDGPU_GEM_DOMAIN_GTT, 4096, 0);
}

static void user_end(struct user *user)
{
	amdgpu_cs_ctx_free(user->context);
	rig_free(user->buffer);
}

#define USER(name, ...) SCOPED(user, name, user_begin, user_end, __VA_ARGS__)

static struct amdgpu_cs_fence fence_of(const struct user *user, uint64_t seq)
{
	return (struct amdgpu_cs_fence){
		.context = user->context, .ip_type = AMDGPU_HW_IP_COMPUTE, .fence = seq};
}

/*
 * Submit after another submission, unless NULL.
 * Return: libdrm's result; *ret_seq is the submission's number.
 */
static int try_submit(const struct user *user, struct amdgpu_cs_fence *after, uint64_t *ret_seq)
{
	struct amdgpu_cs_ib_info ib = {.ib_mc_address = 0x100000, .size = 16};
	amdgpu_bo_handle buffer = user->buffer;
	struct amdgpu_cs_request request = {
		.ip_type = AMDGPU_HW_IP_COMPUTE,
		.number_of_ibs = 1,
		.ibs = &ib,
		.number_of_dependencies = after != NULL,
		.dependencies = after,
	};
	int r;

	assert_int_equal(
		amdgpu_bo_list_create(user->rig->device, 1, &buffer, NULL, &request.resources), 0);
	r = amdgpu_cs_submit(user->context, 0, &request, 1);
	amdgpu_bo_list_destroy(request.resources);
	*ret_seq = request.seq_no;
	return r;
}

static uint64_t submit(const struct user *user)
{
	uint64_t seq;

	assert_int_equal(try_submit(user, NULL, &seq), 0);
	return seq;
}

static bool is_done(const struct user *user, uint64_t seq, uint64_t timeout_ns)
{
	struct amdgpu_cs_fence fence = fence_of(user, seq);
	uint32_t is_expired = 0;

	assert_int_equal(amdgpu_cs_query_fence_status(&fence, timeout_ns, 0, &is_expired), 0);
	return is_expired;
}

static void await(const struct user *user, uint64_t seq)
{
	assert_true(is_done(user, seq, AMDGPU_TIMEOUT_INFINITE));
}

static uint64_t reset_flags(const struct user *user)
{
	uint64_t flags;

	assert_int_equal(amdgpu_cs_query_reset_state2(user->context, &flags), 0);
	return flags;
}

/* Return the time of all contexts: libdrm opens a card only once in a process. */
static uint64_t engine_ns(const struct rig *rig)
{
	char path[64], text[4096], *at;
	unsigned long long ns = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", rig->fd);
	assert_true(rig_read(path, text, sizeof(text)));
	at = strstr(text, "drm-engine-compute:");
	if (at)
		assert_int_equal(sscanf(at, "drm-engine-compute: %llu ns", &ns), 1);
	return ns;
}

static void timed(const char *policy, uint64_t job_ns)
{
	rig_control("set execution=timed policy=%s job-ns=%llu timeout-ns=0 kernel=6.1", policy,
		    (unsigned long long)job_ns);
}

TEST(test_instant__by_default)
{
	RIG(rig, 0);
	USER(user, &rig, 0);

	rig_control("set execution=instant job-ns=10000000000");
	assert_true(is_done(&user, submit(&user), 0));
	assert_true(engine_ns(&rig) == 10000 * MS);
}

TEST(test_timed__takes_its_time)
{
	RIG(rig, 0);
	USER(user, &rig, 0);
	bool is_busy = false;
	uint64_t seq, begin_ns, before_ns;

	/* Long enough that no pause of this test matters */
	timed("fifo", 1000000 * MS);
	seq = submit(&user);
	assert_false(is_done(&user, seq, 0));
	assert_int_equal(amdgpu_bo_wait_for_idle(user.buffer, 0, &is_busy), 0);
	assert_true(is_busy);
	/* Its time counts from its begin. */
	usleep(1000);
	assert_in_range(engine_ns(&rig), 1 * MS, 1000000 * MS - 1);
	rig_control("reset --innocent");
	await(&user, seq);

	timed("fifo", 300 * MS);
	before_ns = engine_ns(&rig);
	begin_ns = now_ns();
	seq = submit(&user);
	await(&user, seq);
	assert_true(now_ns() - begin_ns >= 300 * MS);
	assert_int_equal(amdgpu_bo_wait_for_idle(user.buffer, 0, &is_busy), 0);
	assert_false(is_busy);
	assert_true(engine_ns(&rig) - before_ns == 300 * MS);
}

/* An engine does one thing after the other, whoever wants it. */
TEST(test_fifo__in_order)
{
	const uint64_t begin_ns = now_ns();
	uint64_t seq = 0, other_seq;

	RIG(rig, 0);
	USER(user, &rig, 0);
	USER(other, &rig, 0);
	timed("fifo", 50 * MS);
	for (int i = 0; i < 4; i++)
		seq = submit(&user);
	other_seq = submit(&other);
	await(&other, other_seq);
	assert_true(is_done(&user, seq, 0));
	assert_true(now_ns() - begin_ns >= 250 * MS);
}

TEST(test_fifo__priority)
{
	uint64_t seq = 0;

	RIG(rig, 0);
	USER(user, &rig, 0);
	USER(other, &rig, AMDGPU_CTX_PRIORITY_HIGH);
	timed("fifo", 200 * MS);
	for (int i = 0; i < 5; i++)
		seq = submit(&user);
	await(&other, submit(&other));
	assert_false(is_done(&user, seq, 0));
	await(&user, seq);
}

/* Contexts take turns, whatever they have queued. */
TEST(test_fair__shares)
{
	uint64_t seqs[10], other_seq = 0;

	RIG(rig, 0);
	USER(user, &rig, 0);
	USER(other, &rig, 0);
	timed("fair", 100 * MS);
	for (int i = 0; i < 10; i++)
		seqs[i] = submit(&user);
	for (int i = 0; i < 3; i++)
		other_seq = submit(&other);
	await(&other, other_seq);
	assert_true(is_done(&user, seqs[1], 0));
	assert_false(is_done(&user, seqs[9], 0));
	await(&user, seqs[9]);
	assert_true(engine_ns(&rig) == 1300 * MS);
}

/* A submission waits for those that it depends on, however urgent it is. */
TEST(test_dependency)
{
	struct amdgpu_cs_fence after;
	uint64_t seq, other_seq;

	RIG(rig, 0);
	USER(user, &rig, 0);
	USER(other, &rig, AMDGPU_CTX_PRIORITY_HIGH);
	timed("fifo", 100 * MS);
	submit(&user);
	seq = submit(&user);
	after = fence_of(&user, seq);
	assert_int_equal(try_submit(&other, &after, &other_seq), 0);
	await(&other, other_seq);
	assert_true(is_done(&user, seq, 0));
}

/* A submission that hangs costs its context; on Linux 6.1 all contexts lose their memory with it.
 */
TEST(test_timeout__resets_the_card)
{
	const uint64_t lost = AMDGPU_CTX_QUERY2_FLAGS_RESET | AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST;
	const uint64_t begin_ns = now_ns();
	uint64_t seq, other_seq;

	RIG(rig, 0);
	USER(user, &rig, 0);
	USER(other, &rig, 0);
	timed("fifo", 100000 * MS);
	rig_control("set timeout-ns=200000000");
	seq = submit(&user);
	other_seq = submit(&other);
	await(&user, seq);
	await(&other, other_seq);
	assert_true(now_ns() - begin_ns >= 200 * MS);
	assert_true(engine_ns(&rig) == 200 * MS);
	assert_true(reset_flags(&user) == (lost | AMDGPU_CTX_QUERY2_FLAGS_GUILTY));
	assert_true(reset_flags(&other) == lost);
	assert_int_equal(try_submit(&user, NULL, &seq), -ECANCELED);
	assert_int_equal(try_submit(&other, NULL, &other_seq), -ECANCELED);
}

TEST(test_timeout__resets_the_queue)
{
	uint64_t seq, other_seq;

	RIG(rig, 0);
	USER(user, &rig, 0);
	USER(other, &rig, 0);
	timed("fifo", 100000 * MS);
	rig_control("set kernel=6.14 timeout-ns=200000000");
	seq = submit(&user);
	rig_control("set job-ns=10000000");
	other_seq = submit(&other);
	await(&user, seq);
	await(&other, other_seq);
	assert_true(engine_ns(&rig) == 210 * MS);
	assert_true(reset_flags(&user) & AMDGPU_CTX_QUERY2_FLAGS_GUILTY);
	assert_true(reset_flags(&other) == AMDGPU_CTX_QUERY2_FLAGS_RESET);
	await(&other, submit(&other));
	rig_control("set kernel=6.1");
}

/* A client that is killed leaves the submission that runs; those that it has queued are dropped. */
TEST(test_client__is_killed)
{
	uint64_t begin_ns;
	int ready[2];
	char byte;
	pid_t pid;

	timed("fifo", 300 * MS);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct user child;
		struct rig own;

		rig_open(&own, 0);
		user_begin(&child, &own, 0);
		for (int i = 0; i < 30; i++)
			submit(&child);
		if (write(ready[1], "", 1) < 0)
			_exit(1);
		pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);

	RIG(rig, 0);
	USER(user, &rig, 0);
	rig_kill(pid);
	begin_ns = now_ns();
	await(&user, submit(&user));
	/* Nine seconds were queued. */
	assert_in_range(now_ns() - begin_ns, 300 * MS, 6000 * MS);
}

TEST(test_reset__drops_everything)
{
	uint64_t seq;

	RIG(rig, 0);
	USER(user, &rig, 0);
	timed("fifo", 100000 * MS);
	seq = submit(&user);
	assert_false(is_done(&user, seq, 0));
	rig_control("reset");
	await(&user, seq);
}

int main(int argc, char **argv)
{
	rig_control_path = argv[1];
	return test_run(NULL, NULL);
}
