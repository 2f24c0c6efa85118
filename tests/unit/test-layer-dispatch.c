/* SPDX-License-Identifier: MIT */
/* The layer's lists of instances: threads that make and destroy instances at the same time. */
#include <pthread.h>

#include "libclient/layer/dispatch.h"
#include "libclient/layer/process.h"
#include "support/test.h"

enum { THREADS = 4, ROUNDS = 50000 };

/* The loader's dispatch table of an instance: the lists know the instance by its address. */
struct handle {
	const void *table;
};

/* Make and destroy one thread's instance. Return NULL, or the round of the first foreign answer. */
static void *churn(void *data)
{
	int table;
	struct handle handle = {.table = &table};
	struct instance instance = {.handle = (VkInstance)&handle};

	(void)data;
	for (uintptr_t i = 1; i <= ROUNDS; i++) {
		struct entry *entry = dispatch_reserve_instance();

		if (!entry)
			return (void *)i;
		dispatch_add_instance(entry, &instance);
		if (dispatch_instance(&handle) != &instance ||
		    dispatch_remove_instance(instance.handle) != &instance)
			return (void *)i;
	}
	return NULL;
}

TEST(test_instances__of_several_threads)
{
	pthread_t threads[THREADS];
	void *failed = NULL;

	assert_int_equal(process_init(), 0);
	for (unsigned int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
	for (unsigned int i = 0; i < THREADS; i++) {
		void *round;

		assert_int_equal(pthread_join(threads[i], &round), 0);
		failed = round ? round : failed;
	}
	assert_null(failed);
}

int main(void)
{
	return test_run(NULL, NULL);
}
