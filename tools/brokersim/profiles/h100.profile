# NVIDIA H100 SXM5. Published: 67 TFLOP/s in FP32, 3.35 TB/s, 80 GB, PCIe 5.0 x16 (63 GB/s). Taken
# here: 70% of the peak in large products, without tensor cores, whose TF32 is not float; 50 GB/s.
[device]
name = NVIDIA H100 SXM5 80 GB
source = https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet
task = 8us
node = 2us
memory = 80GiB
active-watts = 550 W

[link]
up = 50 GB/s
down = 50 GB/s
latency = 4us

[rates]
matmul.flops = 4KiB: 30, 32KiB: 250, 256KiB: 2500, 2MiB: 15000, 16MiB: 38000, 128MiB: 47000 GFLOP/s
gemm.flops = 4KiB: 30, 32KiB: 250, 256KiB: 2500, 2MiB: 15000, 16MiB: 38000, 128MiB: 47000 GFLOP/s
convolution.flops = 4KiB: 30, 32KiB: 220, 256KiB: 2200, 2MiB: 12000, 16MiB: 30000, 128MiB: 38000 GFLOP/s
softmax.flops = 32KiB: 150, 2MiB: 4000, 16MiB: 9000 GFLOP/s
selection.flops = 32KiB: 25, 2MiB: 500, 16MiB: 1200 GFLOP/s
others.flops = 32KiB: 200, 2MiB: 10000 GFLOP/s
transpose.bytes = 4KiB: 6, 256KiB: 180, 2MiB: 900, 16MiB: 1700 GB/s
others.bytes = 4KiB: 10, 256KiB: 300, 2MiB: 1500, 16MiB: 2600, 128MiB: 2900 GB/s
