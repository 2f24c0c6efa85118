/* SPDX-License-Identifier: MIT */
/* fdinfo of DRM descriptors, as printed by kernels of all ages, and texts that no kernel prints. */
#include <stdio.h>
#include <string.h>

#include "support/test.h"
#include "telemetry/fdinfo.h"

#define HEAD    "pos:\t0\nflags:\t02100002\nmnt_id:\t28\nino:\t1072\n"
#define AMDGPU  "drm-driver:\tamdgpu\n"
#define CLIENT  "drm-client-id:\t17\ndrm-pdev:\t0000:03:00.0\n"
#define MINIMAL AMDGPU CLIENT

#define MIB(n)  ((uint64_t)(n) << 20)
#define assert_reading(reading, expected)                      \
	do {                                                   \
		assert_true((reading).is_valid);               \
		assert_int_equal((reading).value, (expected)); \
	} while (0)
#define assert_absent(reading) assert_false((reading).is_valid)

static struct fdinfo parse(const char *text)
{
	struct fdinfo info;

	memset(&info, 0xa5, sizeof(info));
	assert_int_equal(fdinfo_parse(text, strlen(text), &info), 0);
	return info;
}

static void refuse(const char *text)
{
	struct fdinfo info;

	assert_int_equal(fdinfo_parse(text, strlen(text), &info), FDINFO_E_NOT_DRM);
}

/* Linux 5.15: amdgpu_fdinfo.c had its own keys, which identify no client. */
TEST(test_parse__linux_5_15)
{
	refuse(HEAD "pdev:\t0000:03:00.0\npasid:\t32769\nvram mem:\t4096 kB\ngtt mem:\t16 kB\n"
		    "cpu mem:\t0 kB\ngfx:\t1.00%\n");
}

TEST(test_parse__linux_6_1)
{
	struct fdinfo info = parse(HEAD AMDGPU "drm-pdev:\t0000:0b:00.0\ndrm-client-id:\t5071\n"
					       "pasid:\t\t32798\n"
					       "drm-memory-vram:\t1048576 KiB\n"
					       "drm-memory-gtt: \t2048 KiB\n"
					       "drm-memory-cpu: \t64 KiB\n"
					       "drm-engine-gfx:\t1000000 ns\n"
					       "drm-engine-compute:\t234 ns\n");

	assert_string_equal(info.pdev, "0000:0b:00.0");
	assert_int_equal(info.client_id, 5071);
	assert_reading(info.vram_bytes, MIB(1024));
	assert_reading(info.gtt_bytes, MIB(2));
	assert_reading(info.busy_ns, 1000234);
}

/* Linux 6.14: the new keys beside the old ones, which must not be added up. */
TEST(test_parse__linux_6_14)
{
	struct fdinfo info =
		parse(HEAD MINIMAL "drm-total-cpu:\t0\ndrm-shared-cpu:\t0\ndrm-purgeable-cpu:\t0\n"
				   "drm-active-cpu:\t0\ndrm-resident-cpu:\t0\n"
				   "drm-total-gtt:\t8 MiB\ndrm-shared-gtt:\t0\n"
				   "drm-active-gtt:\t0\ndrm-resident-gtt:\t6 MiB\n"
				   "drm-purgeable-gtt:\t0\n"
				   "drm-total-vram:\t6 MiB\ndrm-shared-vram:\t5 MiB\n"
				   "drm-active-vram:\t4 MiB\ndrm-resident-vram:\t3072 KiB\n"
				   "drm-purgeable-vram:\t0\n"
				   "drm-memory-vram:\t3072 KiB\ndrm-memory-gtt: \t6144 KiB\n"
				   "drm-memory-cpu: \t0 KiB\n"
				   "amd-evicted-vram:\t3072 KiB\n");

	assert_reading(info.vram_bytes, MIB(3));
	assert_reading(info.gtt_bytes, MIB(6));
	assert_absent(info.busy_ns);
}

TEST(test_parse__total_without_resident)
{
	struct fdinfo info = parse(MINIMAL "drm-total-vram:\t7 MiB\ndrm-shared-vram:\t1 MiB\n");

	assert_reading(info.vram_bytes, MIB(7));
	assert_absent(info.gtt_bytes);
}

/* xe and i915 number their regions. */
TEST(test_parse__regions_are_added)
{
	struct fdinfo info = parse(
		"drm-driver:\txe\n" CLIENT "drm-resident-system:\t1 MiB\ndrm-resident-gtt:\t2 MiB\n"
		"drm-resident-vram0:\t4 MiB\ndrm-resident-vram1:\t8 MiB\n"
		"drm-resident-stolen:\t512 KiB\n"
		"drm-cycles-rcs:\t28257900\ndrm-total-cycles-rcs:\t7655183225\n");

	assert_reading(info.vram_bytes, MIB(12));
	/* A region with two names counts once. */
	assert_reading(info.gtt_bytes, MIB(2));
	info = parse("drm-driver:\ti915\n" CLIENT "drm-total-local0:\t3 MiB\n"
		     "drm-total-system0:\t2 MiB\ndrm-engine-render:\t5 ns\n"
		     "drm-engine-capacity-video:\t2\ndrm-engine-video:\t6 ns\n");
	assert_reading(info.vram_bytes, MIB(3));
	assert_reading(info.gtt_bytes, MIB(2));
	assert_reading(info.busy_ns, 11);
}

TEST(test_parse__units)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{"0", 0},
		{"4096", 4096},
		{"4096 B", 4096},
		{"3 KiB", 3072},
		{"3 MiB", MIB(3)},
		{"3 GiB", MIB(3072)},
		{"3\tKiB", 3072},
		{"  3   KiB  ", 3072},
		{"18446744073709551615", UINT64_MAX},
		{"18014398509481983 KiB", 18014398509481983u << 10},
	};
	static const char *const bad[] = {
		"",
		"KiB",
		"-1 KiB",
		"+1 KiB",
		"0x10",
		"3KiB",
		"3 kB",
		"3 KiB 4",
		"3 TiB",
		"1.5 MiB",
		"3 kib",
		"18446744073709551616",
		"1 KiB\x01",
		"18014398509481984 KiB",
		"17592186044416 MiB",
		"99999999999999999999999999999999999999999999 KiB",
	};
	char text[200];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		snprintf(text, sizeof(text), MINIMAL "drm-memory-vram:\t%s\n", good[i].text);
		assert_reading(parse(text).vram_bytes, good[i].bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), MINIMAL "drm-memory-vram:\t%s\n", bad[i]);
		assert_absent(parse(text).vram_bytes);
	}
}

TEST(test_parse__sums_saturate)
{
	struct fdinfo info = parse(MINIMAL "drm-memory-vram0:\t18446744073709551615\n"
					   "drm-memory-vram1:\t1\n"
					   "drm-engine-gfx:\t18446744073709551615 ns\n"
					   "drm-engine-dma:\t2 ns\n");

	assert_reading(info.vram_bytes, UINT64_MAX);
	assert_reading(info.busy_ns, UINT64_MAX);
}

TEST(test_parse__addresses)
{
	static const char *const bad[] = {
		"",
		"0000:03:00",
		"000:03:00.0",
		"0000:03:00.00",
		"0000:03:00:0",
		"0000-03-00.0",
		"0000:0g:00.0",
		"000000000:03:00.0",
		"0000:03:00.0 x",
		"../../../etc",
		"0000:03:00.",
	};
	char text[200];

	assert_string_equal(parse("drm-client-id: 1\ndrm-pdev: 0000:AB:1f.7\n").pdev,
			    "0000:ab:1f.7");
	assert_string_equal(parse("drm-client-id: 1\ndrm-pdev: 10000abc:e1:00.0\n").pdev,
			    "10000abc:e1:00.0");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "drm-client-id: 1\ndrm-pdev: %s\n", bad[i]);
		refuse(text);
	}
}

TEST(test_parse__no_client)
{
	refuse("");
	refuse("\n\n\n");
	refuse(HEAD);
	refuse("eventfd-count:\t0\neventfd-id: 34\n");
	refuse(AMDGPU "drm-pdev:\t0000:03:00.0\n");
	refuse(AMDGPU "drm-client-id:\t3\n");
	refuse(AMDGPU "drm-client-id:\t-3\ndrm-pdev:\t0000:03:00.0\n");
	refuse(AMDGPU "drm-client-id:\t3x\ndrm-pdev:\t0000:03:00.0\n");
	refuse(AMDGPU "drm-client-id:\t99999999999999999999\ndrm-pdev:\t0000:03:00.0\n");
	/* A part of a key is not that key. */
	refuse("xdrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\n");
	refuse("drm-client-idx:\t3\ndrm-pdev:\t0000:03:00.0\n");
}

/* The text may be cut anywhere: a number without its end does not count. */
TEST(test_parse__cut)
{
	static const char text[] = MINIMAL "drm-memory-gtt:\t5 KiB\ndrm-memory-vram:\t123456 KiB\n";
	const size_t bytes = sizeof(text) - 1;
	struct fdinfo info;

	assert_reading(parse(text).vram_bytes, 123456u << 10);
	for (size_t n = 0; n < bytes; n++) {
		if (fdinfo_parse(text, n, &info) == FDINFO_E_NOT_DRM)
			continue;
		assert_absent(info.vram_bytes);
		if (info.gtt_bytes.is_valid)
			assert_int_equal(info.gtt_bytes.value, 5120);
	}
}

TEST(test_parse__bytes_that_are_no_text)
{
	static const char text[] = "\0\0:\0\n:\n::::\ndrm-\n" MINIMAL "drm-memory-\0vram: 1\n"
				   "drm-memory-gtt:\t1\0 KiB\ndrm-memory-vram:\t2 KiB\n\xff\xfe";
	struct fdinfo info;

	assert_int_equal(fdinfo_parse(text, sizeof(text) - 1, &info), 0);
	assert_reading(info.vram_bytes, 2048);
	assert_absent(info.gtt_bytes);
}

TEST(test_parse__odd_names)
{
	struct fdinfo info = parse(MINIMAL "drm-memory-:\t1\ndrm-memory-vramx:\t1\n"
					   "drm-memory-vram8:\t1\ndrm-memory-vram10:\t1\n"
					   "drm-resident-xvram:\t1\ndrm-engine-gfx:\t1\n"
					   "drm-engine-gfx:\t1 ms\ndrm-maxfreq-gfx:\t1 Hz\n");

	assert_absent(info.vram_bytes);
	assert_absent(info.gtt_bytes);
	assert_absent(info.busy_ns);
}
