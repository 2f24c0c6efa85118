/* SPDX-License-Identifier: MIT */
/*
 * The simulator's heap: one for each process, which ends with it
 *
 * malloc() and its relatives are defined here for the whole program, the C library included. Each
 * process has a range of addresses, the same in every run, so that a run does not depend on where
 * memory lies. Freed blocks are kept by size. Nothing is given back to the kernel before the
 * process ends.
 */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simulator/machine.h"
#include "simulator/real.h"

enum {
	HEAP_CLASSES = 160, /* four sizes for each power of two */
	HEAP_HEAD = 16,
};

enum {
	SMALL_BYTES = 8 << 20,
	PAGE_BYTES = 4096,
	GUARD_EVERY = 16, /* ends of a process, one of which protects its memory */
};

static const uintptr_t heap_base = 0x200000000000;
static const size_t heap_bytes = (size_t)16 << 30;

struct head {
	uint32_t class;
	uint32_t is_used;
	uint64_t offset; /* from the class's block to the memory, above HEAP_HEAD if aligned */
};

struct heap {
	uintptr_t next, end;  /* end is 0: not mapped yet; next is 0: the process has no memory */
	size_t guarded_bytes; /* of the process that has ended */
	unsigned int n_ends;
	void *free[HEAP_CLASSES];
	uint64_t used_bytes;
};

static struct heap heaps[SIM_PROCESSES + 1] __attribute__((__section__("sim_variables")));

static size_t class_bytes(unsigned int class)
{
	return ((size_t)4 + class % 4) << (class / 4 + 3);
}

static unsigned int class_of(size_t bytes)
{
	unsigned int power, class;

	if (bytes <= 32)
		return 0;
	/* The class of 4 << (power - 2) is the first that may be large enough. */
	power = 63 - (unsigned int)__builtin_clzll(bytes);
	class = (power - 5) * 4;
	while (class_bytes(class) < bytes)
		class ++;
	return class;
}

static struct heap *heap_of(const void *memory)
{
	return &heaps[((uintptr_t)memory - heap_base) / heap_bytes];
}

/* Map the heap, or permit its use again after a process that has ended. */
static void heap_map(struct heap *heap)
{
	const uintptr_t base = heap_base + (uintptr_t)(heap - heaps) * heap_bytes;

	heap->next = base;
	if (heap->end) {
		if (heap->guarded_bytes > 0 &&
		    mprotect((void *)base, heap->guarded_bytes, PROT_READ | PROT_WRITE))
			_exit(3);
		heap->guarded_bytes = 0;
		return;
	}
	if (__real_mmap64((void *)base, heap_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
			  0) != (void *)base)
		_exit(3);
	heap->end = base + heap_bytes;
}

static void *take(size_t bytes, size_t align)
{
	struct heap *heap = &heaps[sim_process()];
	const size_t extra = align > HEAP_HEAD ? align : 0;
	struct head *head;
	unsigned int class;
	uintptr_t block, memory;

	if (bytes > heap_bytes / 2 || sim_alloc_fails()) {
		errno = ENOMEM;
		return NULL;
	}
	if (!heap->next)
		heap_map(heap);
	class = class_of(bytes + extra + HEAP_HEAD);
	block = (uintptr_t)heap->free[class];
	if (block) {
		heap->free[class] = *(void **)(block + HEAP_HEAD);
	} else {
		if (heap->end - heap->next < class_bytes(class)) {
			errno = ENOMEM;
			return NULL;
		}
		block = heap->next;
		heap->next += class_bytes(class);
	}
	memory = block + HEAP_HEAD;
	if (extra)
		memory = (memory + align - 1) & ~(align - 1);
	head = (struct head *)(memory - HEAP_HEAD);
	*head = (struct head){.class = class, .is_used = 1, .offset = memory - block};
	heap->used_bytes += class_bytes(class);
	return (void *)memory;
}

static struct head *head_of(const void *memory)
{
	return (struct head *)((uintptr_t)memory - HEAP_HEAD);
}

static size_t room_of(const void *memory)
{
	const struct head *head = head_of(memory);

	return class_bytes(head->class) - head->offset;
}

/* For the C library, too */
#pragma GCC visibility push(default)

void *malloc(size_t bytes)
{
	void *memory = take(bytes, 0);

	/* Memory that a program reads before it writes it is the same in every run. */
	if (memory)
		memset(memory, 0xa5, bytes < 4096 ? bytes : 4096);
	return memory;
}

void free(void *memory)
{
	struct head *head = head_of(memory);
	struct heap *heap;
	uintptr_t block;
	unsigned int class;

	if (!memory)
		return;
	heap = heap_of(memory);
	if (heap < heaps || heap > heaps + SIM_PROCESSES || !head->is_used)
		sim_violation("free(%p) of memory that is not allocated", memory);
	class = head->class;
	head->is_used = 0;
	block = (uintptr_t)memory - head->offset;
	memset(memory, 0x5a, room_of(memory) < 4096 ? room_of(memory) : 4096);
	*(void **)(block + HEAP_HEAD) = heap->free[class];
	heap->free[class] = (void *)block;
	heap->used_bytes -= class_bytes(class);
}

void *calloc(size_t n, size_t bytes)
{
	size_t all;
	void *memory;

	if (__builtin_mul_overflow(n, bytes, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	memory = take(all, 0);
	if (memory)
		memset(memory, 0, all);
	return memory;
}

void *realloc(void *memory, size_t bytes)
{
	void *moved;

	if (!memory)
		return malloc(bytes);
	if (bytes == 0) {
		free(memory);
		return NULL;
	}
	if (bytes <= room_of(memory) && !sim_alloc_fails())
		return memory;
	moved = take(bytes, 0);
	if (!moved)
		return NULL;
	memcpy(moved, memory, room_of(memory) < bytes ? room_of(memory) : bytes);
	free(memory);
	return moved;
}

void *reallocarray(void *memory, size_t n, size_t bytes)
{
	size_t all;

	if (__builtin_mul_overflow(n, bytes, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(memory, all);
}

int posix_memalign(void **ret, size_t align, size_t bytes)
{
	const int saved_errno = errno;
	void *memory = take(bytes, align);

	errno = saved_errno;
	if (!memory)
		return ENOMEM;
	*ret = memory;
	return 0;
}

void *aligned_alloc(size_t align, size_t bytes)
{
	return take(bytes, align);
}

void *memalign(size_t align, size_t bytes)
{
	return take(bytes, align);
}

size_t malloc_usable_size(void *memory)
{
	return memory ? room_of(memory) : 0;
}

#pragma GCC visibility pop

void sim_heap_reset(unsigned int number)
{
	struct heap *heap = &heaps[number];
	const uintptr_t base = heap_base + number * heap_bytes;
	const unsigned int n_ends = heap->n_ends + 1;
	const bool is_guarded = n_ends % GUARD_EVERY == 1;
	size_t left_bytes;

	/*
	 * A use after the process's end is noticed, in one of several ends: in a virtual machine
	 * all pages fault again after mprotect(), which took a third of the simulator's time. The
	 * next process finds what is left in blocks that are not filled, which is the same in every
	 * run.
	 */
	if (!heap->next)
		return;
	left_bytes = (heap->next - base + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
	if (left_bytes > SMALL_BYTES)
		madvise((void *)base, left_bytes, MADV_DONTNEED);
	if (is_guarded && mprotect((void *)base, left_bytes, PROT_NONE))
		_exit(3);
	*heap = (struct heap){
		.end = heap->end, .guarded_bytes = is_guarded ? left_bytes : 0, .n_ends = n_ends};
}

uint64_t sim_heap_bytes(unsigned int number)
{
	return heaps[number].used_bytes;
}
