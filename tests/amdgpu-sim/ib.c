/* SPDX-License-Identifier: MIT */
/* Indirect buffers: see ib.h. Packets: drivers/gpu/drm/amd/amdgpu/vid.h, PACKET3() and below. */
#include "ib.h"
#include "sys.h"
#include <stdbool.h>

enum {
	MAX_BUFFERS = 64, /* that one submission enters */
	MAX_CALLS = 4,
	WINDOW_DWORDS = 1024,
	PACKET3_DISPATCH_DIRECT = 0x15,
	PACKET3_DISPATCH_INDIRECT = 0x16,
	PACKET3_INDIRECT_BUFFER = 0x3f,
	PACKET3_SET_SH_REG = 0x76,
	LONGEST_PACKET_DWORDS = 5, /* of those above that are looked at, header included */
	/* Registers, as SET_SH_REG counts them: gfx_8_0_d.h, mmCOMPUTE_START_X - 0x2c00 */
	COMPUTE_START_X = 0x204,
	FORCE_START_AT_000 = 1 << 2, /* COMPUTE_DISPATCH_INITIATOR */
	CHAIN = 1 << 20,             /* INDIRECT_BUFFER does not return: sid.h, S_3F2_CHAIN() */
};

/* Commands that are being read. */
struct reader {
	struct sim_card *card;
	uint32_t slot;
	uint64_t address, end; /* of the next packet; of the buffer */
	/* the part that was read last */
	uint64_t window_address;
	uint32_t n_dwords;
	uint32_t window[WINDOW_DWORDS];
	uint32_t n_buffers;
	uint32_t start[3]; /* COMPUTE_START_X to _Z */
	/* where calls return to, outermost first */
	uint32_t n_calls;
	uint64_t return_address[MAX_CALLS], return_end[MAX_CALLS];
};

/* Read the window at reader.address. Return: false if no mapped buffer has bytes there. */
static bool read_window(struct reader *reader)
{
	const struct sim_card *card = reader->card;
	uint64_t bytes = reader->end - reader->address;
	ssize_t n = 0;
	char name[64];
	int fd;

	reader->n_dwords = 0;
	bytes = bytes < sizeof(reader->window) ? bytes : sizeof(reader->window);
	for (uint32_t i = 0; i < card->n_handles; i++) {
		const struct sim_handle *handle = &card->handles[i];
		const struct sim_object *object = &card->objects[handle->object];
		const uint64_t at = reader->address - handle->map_address;

		if (handle->owner != reader->slot + 1 || object->kind != SIM_OBJECT_MEMORY ||
		    reader->address < handle->map_address || at >= handle->map_bytes)
			continue;
		if (bytes > handle->map_bytes - at)
			bytes = handle->map_bytes - at;
		sim_object_file_name(card, object->id, name);
		fd = sim_open_file(name, O_RDONLY);
		if (fd < 0)
			return false;
		n = pread(fd, reader->window, bytes, (off_t)(handle->map_offset + at));
		close(fd);
		break;
	}
	reader->window_address = reader->address;
	reader->n_dwords = n > 0 ? (uint32_t)n / 4 : 0;
	return reader->n_dwords > 0;
}

/* Return the next dwords, of which at least one is there; NULL at the end. */
static const uint32_t *next(struct reader *reader, uint32_t *ret_n)
{
	uint64_t at = (reader->address - reader->window_address) / 4;

	while (reader->address >= reader->end) {
		if (reader->n_calls == 0)
			return NULL;
		reader->address = reader->return_address[--reader->n_calls];
		reader->end = reader->return_end[reader->n_calls];
		reader->n_dwords = 0;
	}
	at = (reader->address - reader->window_address) / 4;
	if (reader->n_dwords == 0 || at >= reader->n_dwords ||
	    (reader->n_dwords - at < LONGEST_PACKET_DWORDS &&
	     reader->end - reader->address > (reader->n_dwords - at) * 4)) {
		if (!read_window(reader))
			return NULL;
		at = 0;
	}
	*ret_n = (uint32_t)(reader->n_dwords - at);
	return reader->window + at;
}

/* Continue in the buffer that an INDIRECT_BUFFER packet names, whose next packet is at @after. */
static void enter(struct reader *reader, const uint32_t *packet, uint64_t after)
{
	const uint64_t bytes = (packet[3] & 0xfffff) * 4ull;

	if (!(packet[3] & CHAIN) && reader->n_calls < MAX_CALLS) {
		reader->return_address[reader->n_calls] = after;
		reader->return_end[reader->n_calls++] = reader->end;
	}
	reader->address = (uint64_t)packet[2] << 32 | (packet[1] & ~3u);
	reader->end = reader->address + bytes;
	reader->n_dwords = 0;
	if (++reader->n_buffers > MAX_BUFFERS)
		reader->end = reader->address;
}

/* Note the registers of a SET_SH_REG packet from which a dispatch's first workgroup is read. */
static void set_registers(struct reader *reader, const uint32_t *packet, uint32_t n)
{
	for (uint32_t i = 2; i < n; i++) {
		const uint32_t number = (packet[1] & 0xffff) + i - 2;

		if (number >= COMPUTE_START_X && number < COMPUTE_START_X + 3)
			reader->start[number - COMPUTE_START_X] = packet[i];
	}
}

/* Return the workgroups of a DISPATCH_DIRECT packet, which has their ends along each axis. */
static uint64_t dispatched(const struct reader *reader, const uint32_t *packet)
{
	uint64_t n_groups = 1;

	for (uint32_t i = 0; i < 3; i++) {
		uint32_t start = packet[4] & FORCE_START_AT_000 ? 0 : reader->start[i];

		n_groups *= packet[1 + i] > start ? packet[1 + i] - start : 0;
	}
	return n_groups;
}

uint64_t sim_ib_groups(struct sim_card *card, uint32_t slot, uint64_t address, uint64_t bytes)
{
	struct reader reader = {
		.card = card, .slot = slot, .address = address, .end = address + bytes};
	uint64_t n_groups = 0;
	const uint32_t *packet;
	uint32_t n;

	while ((packet = next(&reader, &n))) {
		const uint32_t opcode = packet[0] >> 8 & 0xff;
		const uint32_t n_body = (packet[0] >> 16 & 0x3fff) + 1;

		/* Padding is packets of type 2, and of type 3 with the greatest length. */
		if (packet[0] >> 30 != 3 || n_body == 0x4000) {
			reader.address += 4;
			continue;
		}
		if (opcode == PACKET3_SET_SH_REG && n >= 2)
			set_registers(&reader, packet, n_body + 1 < n ? n_body + 1 : n);
		if (opcode == PACKET3_DISPATCH_DIRECT && n >= 5)
			n_groups += dispatched(&reader, packet);
		else if (opcode == PACKET3_DISPATCH_INDIRECT)
			n_groups++;
		if (opcode == PACKET3_INDIRECT_BUFFER && n >= 4)
			enter(&reader, packet, reader.address + (1 + n_body) * 4ull);
		else
			reader.address += (1 + n_body) * 4ull;
	}
	/* Bounded, so that no time overflows */
	return n_groups < 1ull << 32 ? n_groups : 1ull << 32;
}
