/* SPDX-License-Identifier: MIT */
/*
 * Variables of processes
 *
 * The broker's variables are all that the linker puts into .data and .bss, but for those of the
 * simulator (section sim_variables) and those of libringbroker, whose sections the build has
 * renamed (client_data, client_bss). A broker that starts finds their first values. Each client has
 * values of its own for the library's variables.
 */
#include <string.h>
#include <sys/mman.h>

#include "simulator/machine.h"
#include "simulator/real.h"

extern char __data_start[], _edata[], __bss_start[], _end[];
extern char __start_sim_variables[], __stop_sim_variables[];
extern char __start_client_data[], __stop_client_data[];
extern char __start_client_bss[] __attribute__((__weak__));
extern char __stop_client_bss[] __attribute__((__weak__));

enum { CLIENT_BYTES = 4096, PAGE_BYTES = 4096 };

static char *first_values __attribute__((__section__("sim_variables")));
static char client_first[CLIENT_BYTES] __attribute__((__section__("sim_variables")));
static char client_values[SIM_PROCESSES + 1][CLIENT_BYTES]
	__attribute__((__section__("sim_variables")));

static void client_save(char *to)
{
	const size_t n = (size_t)(__stop_client_data - __start_client_data);

	memcpy(to, __start_client_data, n);
	memcpy(to + n, __start_client_bss, (size_t)(__stop_client_bss - __start_client_bss));
}

static void client_load(const char *from)
{
	const size_t n = (size_t)(__stop_client_data - __start_client_data);

	memcpy(__start_client_data, from, n);
	memcpy(__start_client_bss, from + n, (size_t)(__stop_client_bss - __start_client_bss));
}

/* Return the end of .bss, without the library's variables, which the linker may place behind it. */
static const char *bss_end(void)
{
	const uintptr_t begin = (uintptr_t)__start_client_bss;

	return begin >= (uintptr_t)__bss_start && begin < (uintptr_t)_end ? __start_client_bss
									  : _end;
}

/* The pages of .bss, which has megabytes that a broker rarely touches: the kernel clears them. */
static char *zero_begin(void)
{
	return (char *)(((uintptr_t)__bss_start + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1));
}

/* The linker puts the C library's variables, such as stdout, at the end; they are not zero. */
static char *zero_end(void)
{
	return (char *)(((uintptr_t)bss_end() & ~(uintptr_t)(PAGE_BYTES - 1)) - PAGE_BYTES);
}

static bool is_zero(const char *from, const char *to)
{
	return *from == 0 && memcmp(from, from + 1, (size_t)(to - from) - 1) == 0;
}

void sim_variables_init(void)
{
	const size_t bytes = (size_t)(_end - __data_start);

	sim_check((size_t)(__stop_client_data - __start_client_data) +
			  (size_t)(__stop_client_bss - __start_client_bss) <=
		  CLIENT_BYTES);
	first_values = __real_mmap64(NULL, bytes, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sim_check(first_values != MAP_FAILED);
	/* Pages that are zero need no copy. */
	memcpy(first_values, __data_start, (size_t)(zero_begin() - __data_start));
	sim_check(is_zero(zero_begin(), zero_end()));
	memcpy(first_values + (zero_end() - __data_start), zero_end(), (size_t)(_end - zero_end()));
	client_save(client_first);
	for (unsigned int i = 0; i <= SIM_PROCESSES; i++)
		memcpy(client_values[i], client_first, CLIENT_BYTES);
}

/* Restore from @from up to the first exception, and after it up to the next. */
static void restore(const char *from, const char *to)
{
	const struct {
		const char *begin, *end;
	} kept[] = {
		{__start_sim_variables, __stop_sim_variables},
		{__start_client_data, __stop_client_data},
		{__start_client_bss, __stop_client_bss},
	};
	const char *next = from;

	while (next < to) {
		const char *end = to, *resume = to;

		for (unsigned int i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
			if (kept[i].begin <= next && next < kept[i].end) {
				end = next;
				resume = kept[i].end;
			} else if (kept[i].begin > next && kept[i].begin < end) {
				end = kept[i].begin;
				resume = kept[i].end;
			}
		}
		memcpy((char *)next, first_values + (next - __data_start), (size_t)(end - next));
		next = resume;
	}
}

void sim_variables_reset_broker(void)
{
	restore(__data_start, zero_begin());
	madvise(zero_begin(), (size_t)(zero_end() - zero_begin()), MADV_DONTNEED);
	restore(zero_end(), _end);
}

void sim_variables_switch(unsigned int from, unsigned int to)
{
	client_save(client_values[from]);
	client_load(client_values[to]);
}

void sim_variables_reset_client(unsigned int number)
{
	memcpy(client_values[number], client_first, CLIENT_BYTES);
}
