#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Shared memory objects: exported memory, and imported
 *
 * An object is identified by fstat() of its descriptors. It is charged once, however often the
 * process has imported it. The charge begins with the first export or import. It ends when the last
 * allocation of the object is freed and no descriptor of it is open: in any process if this process
 * allocated the object, else in this process. The broker identifies the object in the same way, and
 * so charges it once among all processes of a tenant.
 *
 * Any thread. These functions may send requests to the broker; only import waits for room.
 */
#include <stdbool.h>
#include <stdint.h>

struct gpu;
struct object;

/*
 * Export an allocation as descriptor @fd. @object is the allocation's object; or NULL, and the
 * allocation's @bytes of credit become the new object's.
 * Return: the allocation's object from now on; NULL: it has none, and nothing has changed.
 */
struct object *objects_export(struct gpu *gpu, struct object *object, int fd, uint64_t bytes,
			      unsigned int heap);

/*
 * Charge the import of at least @bytes by @fd. The charged bytes are stored in *ret_bytes.
 * Return: 0 with the object, or with NULL: fstat() does not identify it, and it is charged to
 * credit like an allocation; refused: -ENOMEM and other errors.
 */
int objects_import(struct gpu *gpu, int fd, uint64_t bytes, unsigned int heap, uint64_t wait_ns,
		   struct object **ret, uint64_t *ret_bytes);

/* Drop an allocation of the object. @is_undone: the allocation failed in the driver. */
void objects_drop(struct gpu *gpu, struct object *object, unsigned int heap, bool is_undone);

/* Release objects that were kept for descriptors that are closed now. */
void objects_sweep(struct gpu *gpu);

/* Add the objects that the old broker did not know to the new one. Under objects_lock. */
void objects_restore(struct gpu *gpu);
