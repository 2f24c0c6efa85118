# Google TPU v5p, one chip. Published: 459 TFLOP/s in bfloat16, 2765 GB/s, 95 GB. Taken here: float by
# six passes of bfloat16 (76 TFLOP/s), 60% of that; a host link as of PCIe 4.0 x16; the start of a
# compiled program costs more than a GPU's.
[device]
name = Google TPU v5p
source = https://cloud.google.com/tpu/docs/v5p
task = 40us
node = 1us
memory = 95GiB
active-watts = 350 W

[link]
up = 25 GB/s
down = 25 GB/s
latency = 15us

[rates]
matmul.flops = 4KiB: 50, 32KiB: 400, 256KiB: 3500, 2MiB: 20000, 16MiB: 40000, 128MiB: 46000 GFLOP/s
gemm.flops = 4KiB: 50, 32KiB: 400, 256KiB: 3500, 2MiB: 20000, 16MiB: 40000, 128MiB: 46000 GFLOP/s
convolution.flops = 4KiB: 40, 32KiB: 300, 256KiB: 2800, 2MiB: 15000, 16MiB: 32000, 128MiB: 40000 GFLOP/s
softmax.flops = 32KiB: 100, 2MiB: 1000, 16MiB: 2000 GFLOP/s
selection.flops = 32KiB: 5, 2MiB: 40, 16MiB: 80 GFLOP/s
others.flops = 32KiB: 150, 2MiB: 2000, 16MiB: 4000 GFLOP/s
transpose.bytes = 4KiB: 5, 256KiB: 150, 2MiB: 700, 16MiB: 1400 GB/s
others.bytes = 4KiB: 8, 256KiB: 250, 2MiB: 1300, 16MiB: 2200, 128MiB: 2500 GB/s
