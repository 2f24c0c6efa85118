# A card on PCIe.
[device]
name = AMD Radeon RX 580 Series
source = its data sheet
servers = 1
task = 12us
node = 1500ns
memory = 8GiB
active-watts = 150 W

[link]
up = 6.2 GB/s
down = 6000 MB/s
latency = 8us

[rates]
matmul.flops = 4KiB:20, 2 MiB:900, 128MiB:2600 GFLOP/s
others.flops = 1.5 TFLOP/s
softmax.bytes = 1MiB:10
others.bytes = 180
