/* SPDX-License-Identifier: MIT */
/*
 * The layer's timeslices: an answer of the broker that comes after the process has joined anew
 *
 * The test is the broker. A thread of the program asks for the timeslice, and before it gets the
 * answer, an administrator has the process leave and join again. The lease has the timeslice all
 * the time, since another member uses it. The broker takes members that join now for done: so the
 * answer must not count.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker/abi.h>
#include <ringbroker/lease.h>

#include "libclient/layer/dispatch.h"
#include "libclient/layer/gpu.h"
#include "libclient/layer/process.h"
#include "libclient/layer/timeslice.h"
#include "libclient/private.h"
#include "support/test.h"

/* Time in which the thread "rbk-slice" must have followed a change, in ms. */
enum { LIMIT_MS = 30000 };

static struct rbk_lease_page page;
static struct gpu gpu;
static struct device device;

/* The broker's. */
static int late_result;         /* of the first WANT */
static unsigned int n_wants;    /* atomic */
static unsigned int is_sharing; /* atomic: the process has joined */

int __wrap_client_lease_timeslice(struct rbk_lease *lease, uint32_t action, uint32_t priority,
				  uint32_t word);
int __wrap_client_lease_parts(struct rbk_lease *lease, const struct client_parts *parts);
const struct rbk_lease_page *__wrap_rbk_lease_page(const struct rbk_lease *lease);
uint32_t __wrap_rbk_lease_number(const struct rbk_lease *lease);
uint64_t __wrap_rbk_features(const struct rbk *rbk);

static void set_priority(uint32_t priority)
{
	__atomic_store_n(&page.priority, priority, __ATOMIC_RELAXED);
	__atomic_store_n(&gpu.timeslice.refused_until_ns, 0, __ATOMIC_RELAXED);
	/* The thread looks at the priority whenever the word changes. */
	__atomic_store_n(&page.timeslice, page.timeslice + 4, __ATOMIC_RELEASE);
	syscall(SYS_futex, &page.timeslice, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Wait until the thread "rbk-slice" has joined, or left. */
static void await_joined(unsigned int wanted)
{
	const struct timespec moment = {.tv_nsec = 1000000};

	for (int i = 0; i < LIMIT_MS; i++) {
		if (__atomic_load_n(&is_sharing, __ATOMIC_ACQUIRE) == wanted &&
		    (__atomic_load_n(&gpu.timeslice.joined, __ATOMIC_RELAXED) > 0) == wanted)
			return;
		nanosleep(&moment, NULL);
	}
	fail_msg("the thread has not followed the priority within %d ms", LIMIT_MS);
}

int __wrap_client_lease_timeslice(struct rbk_lease *lease, uint32_t action, uint32_t priority,
				  uint32_t word)
{
	(void)lease;
	(void)priority;
	(void)word;
	if (action == RBK_WIRE_TIMESLICE_JOIN)
		__atomic_store_n(&is_sharing, 1, __ATOMIC_RELEASE);
	if (action == RBK_WIRE_TIMESLICE_LEAVE)
		__atomic_store_n(&is_sharing, 0, __ATOMIC_RELEASE);
	if (action != RBK_WIRE_TIMESLICE_WANT ||
	    __atomic_fetch_add(&n_wants, 1, __ATOMIC_RELAXED) > 0)
		return 0;
	set_priority(0);
	await_joined(0);
	set_priority(1 + RBK_PRIORITY_NORMAL);
	await_joined(1);
	return late_result;
}

int __wrap_client_lease_parts(struct rbk_lease *lease, const struct client_parts *parts)
{
	(void)lease;
	(void)parts;
	return 0;
}

const struct rbk_lease_page *__wrap_rbk_lease_page(const struct rbk_lease *lease)
{
	(void)lease;
	return &page;
}

uint32_t __wrap_rbk_lease_number(const struct rbk_lease *lease)
{
	(void)lease;
	return 1;
}

uint64_t __wrap_rbk_features(const struct rbk *rbk)
{
	(void)rbk;
	return RBK_FEAT_TIMESLICE | RBK_FEAT_UNSHARE;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_fence(VkDevice handle, const VkFenceCreateInfo *info,
						   const VkAllocationCallbacks *allocator,
						   VkFence *ret)
{
	(void)handle;
	(void)info;
	(void)allocator;
	(void)ret;
	/* The submission is counted, and nothing follows it. */
	return VK_ERROR_OUT_OF_HOST_MEMORY;
}

/* Submit something for which the first answer comes late, with @result. */
static void submit_with(int result)
{
	struct submission submission = {.queue = VK_NULL_HANDLE};

	late_result = result;
	n_wants = 0;
	set_priority(1 + RBK_PRIORITY_NORMAL);
	if (!gpu.timeslice.is_sharing)
		timeslice_share(&gpu);
	await_joined(1);
	timeslice_begin(&device, &submission);
	assert_int_equal(__atomic_load_n(&n_wants, __ATOMIC_RELAXED), 2);
	/* The broker answers: the process is not let pass. */
	assert_true(gpu.timeslice.open_until_ns == 0);
	pthread_mutex_lock(&gpu.timeslice.lock);
	gpu.timeslice.is_using = gpu.timeslice.has_asked = false;
	pthread_mutex_unlock(&gpu.timeslice.lock);
}

TEST(test_late_answer__asks_again)
{
	submit_with(0);
}

TEST(test_late_refusal__asks_again)
{
	submit_with(-ENOENT);
}

static int begin_all(void **state)
{
	(void)state;
	page = (struct rbk_lease_page){.timeslice = RBK_TIMESLICE_HELD};
	gpu = (struct gpu){.is_ours = 1, .state = GPU_LEASED};
	device = (struct device){
		.create_fence = create_fence,
		.n_gpus = 1,
		.gpus = {&gpu},
	};
	return process_init();
}

TEST_MAIN(begin_all, NULL)
