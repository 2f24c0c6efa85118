/* SPDX-License-Identifier: MIT */
/* Metrics of devices */
#include "control/metrics-private.h"

#include <stdio.h>

static void write_device_info(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family family = {
		"device",
		"Name, driver and kind of a device, and the paths by which it reaches clients' "
		"memory",
		METRICS_INFO};
	char labels[4 * METRICS_LABEL_BYTES], name[METRICS_LABEL_BYTES],
		driver[METRICS_LABEL_BYTES], paths[METRICS_LABEL_BYTES];

	metrics_begin(text, &family);
	for (uint32_t i = 0; i < page->n_devices; i++) {
		const struct rbk_stats_device *device = &page->devices[i];

		metrics_escape(name, sizeof(name), device->name);
		metrics_escape(driver, sizeof(driver), device->driver);
		metrics_escape(paths, sizeof(paths), device->paths);
		snprintf(labels, sizeof(labels),
			 "device=\"%u\",name=\"%s\",driver=\"%s\",kind=\"%s\",paths=\"%s\"", i,
			 name, driver, stats_device_kind_name(device->kind), paths);
		metrics_count(text, NULL, labels, NULL, 1);
	}
}

static void write_breakers(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family family = {
		"device_breaker_state",
		"1 for the state of the device's breaker: closed (the device is used), open (it "
		"failed too often) or probing",
		METRICS_GAUGE};
	char label[METRICS_WORD_BYTES];

	metrics_begin(text, &family);
	for (uint32_t i = 0; i < page->n_devices; i++) {
		for (uint32_t state = 0; state <= RBK_STATS_BREAKER_PROBING; state++) {
			snprintf(label, sizeof(label), "state=\"%s\"", stats_breaker_name(state));
			metrics_count(text, NULL, metrics_device_label(i), label,
				      page->devices[i].breaker == state);
		}
	}
}

void metrics_write_devices(const struct metrics_page *page, struct metrics_text *text)
{
	const char *label;

	write_device_info(page, text);
	write_breakers(page, text);
	for (const struct figure *figure = device_figures; !figure_is_end(figure); figure++) {
		if (!metrics_begin_figure(text, figure))
			continue;
		for (uint32_t i = 0; i < page->n_devices; i++) {
			label = metrics_device_label(i);
			metrics_write_figure(page, text, figure, &page->devices[i], label, NULL);
		}
	}
}
