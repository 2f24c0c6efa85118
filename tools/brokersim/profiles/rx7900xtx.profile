# Published: 61.4 TFLOP/s where instructions pair (30.7 where they do not), 960 GB/s, 24 GiB, PCIe 4.0
# x16 (31.5 GB/s). Taken here: two thirds of the unpaired peak in large products, 24 GB/s over the bus.
[device]
name = AMD Radeon RX 7900 XTX
source = https://www.techpowerup.com/gpu-specs/radeon-rx-7900-xtx.c3941
task = 10us
node = 1.2us
memory = 24GiB
active-watts = 280 W

[link]
up = 24 GB/s
down = 22 GB/s
latency = 5us

[rates]
matmul.flops = 4KiB: 40, 32KiB: 300, 256KiB: 2000, 2MiB: 9000, 16MiB: 18000, 128MiB: 21000 GFLOP/s
gemm.flops = 4KiB: 40, 32KiB: 300, 256KiB: 2000, 2MiB: 9000, 16MiB: 18000, 128MiB: 21000 GFLOP/s
convolution.flops = 4KiB: 40, 32KiB: 250, 256KiB: 1800, 2MiB: 8000, 16MiB: 15000, 128MiB: 17000 GFLOP/s
softmax.flops = 32KiB: 100, 2MiB: 2000, 16MiB: 4000 GFLOP/s
selection.flops = 32KiB: 20, 2MiB: 300, 16MiB: 600 GFLOP/s
others.flops = 32KiB: 200, 2MiB: 5000 GFLOP/s
transpose.bytes = 4KiB: 6, 256KiB: 120, 2MiB: 350, 16MiB: 500 GB/s
others.bytes = 4KiB: 10, 256KiB: 200, 2MiB: 600, 16MiB: 850 GB/s
