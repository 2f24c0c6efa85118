# Published: 6.175 TFLOP/s, 256 GB/s, 8 GiB, PCIe 3.0 x16 (15.75 GB/s). Taken here: shaders in plain Vulkan
# reach half of the peak in large products, and little in small ones, which do not fill 36 compute units.
# Tensors are read over the bus in place, at 40% of the bus's rate in one direction.
[device]
name = AMD Radeon RX 580
source = https://www.techpowerup.com/gpu-specs/radeon-rx-580.c2938
task = 12us
node = 1.5us
memory = 8GiB
active-watts = 150 W

[link]
up = 6.2 GB/s
down = 6 GB/s
latency = 8us

[rates]
matmul.flops = 4KiB: 20, 32KiB: 120, 256KiB: 500, 2MiB: 1500, 16MiB: 2600, 128MiB: 3000 GFLOP/s
gemm.flops = 4KiB: 20, 32KiB: 120, 256KiB: 500, 2MiB: 1500, 16MiB: 2600, 128MiB: 3000 GFLOP/s
convolution.flops = 4KiB: 20, 32KiB: 100, 256KiB: 450, 2MiB: 1300, 16MiB: 2200, 128MiB: 2400 GFLOP/s
softmax.flops = 32KiB: 50, 2MiB: 500, 16MiB: 700 GFLOP/s
selection.flops = 32KiB: 10, 2MiB: 80, 16MiB: 120 GFLOP/s
others.flops = 32KiB: 100, 2MiB: 1000 GFLOP/s
transpose.bytes = 4KiB: 4, 256KiB: 40, 2MiB: 80, 16MiB: 110 GB/s
others.bytes = 4KiB: 6, 256KiB: 80, 2MiB: 160, 16MiB: 200 GB/s
