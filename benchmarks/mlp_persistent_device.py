"""Builds and launches the persistent MLP kernel through the driver API alone."""

from __future__ import annotations

import ctypes
import hashlib
import pathlib
import subprocess

import numpy as np

KERNELS = pathlib.Path(__file__).resolve().parent.parent / "renaissance/runtime/csrc/kernels"
CACHE = pathlib.Path(__file__).resolve().parent / "build" / "mlp_persistent"


class Arguments(ctypes.Structure):
    _fields_ = (
        [
            (n, ctypes.c_void_p)
            for n in ("state", "work", "images", "table", "labels", "indices", "history", "trace")
        ]
        + [
            (n, ctypes.c_longlong * 9)
            for n in ("weight", "weight_m", "weight_v", "weight_half", "bias", "bias_m", "bias_v")
        ]
        + [
            (n, ctypes.c_longlong)
            for n in (
                "lr",
                "loss_scale",
                "correction1",
                "correction2",
                "lr_table",
                "applied_steps",
                "skipped_steps",
                "clean_steps",
                "overflow_run",
                "nan_flag",
            )
        ]
        + [(n, ctypes.c_longlong * 4) for n in ("result", "accumulated")]
        + [(n, ctypes.c_int) for n in ("steps", "table_length", "growth_interval")]
        + [
            (n, ctypes.c_float)
            for n in (
                "smoothing",
                "momentum",
                "beta1",
                "beta2",
                "rest1",
                "rest2_root",
                "eps",
                "weight_decay",
                "max_abs",
                "scale_maximum",
                "scale_minimum",
            )
        ]
        + [("beta1_exact", ctypes.c_double), ("beta2_exact", ctypes.c_double)]
    )


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)

    def __call__(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(status, ctypes.byref(text))
            raise RuntimeError(f"{name}: {text.value}")

    def allocate(self, data, size=None):
        pointer = ctypes.c_uint64()
        raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
        self("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size or len(raw)))
        self.upload(pointer.value, raw)
        return pointer.value

    def upload(self, pointer, raw):
        self("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), raw, ctypes.c_size_t(len(raw)))

    def download(self, pointer, size):
        raw = ctypes.create_string_buffer(size)
        self("cuMemcpyDtoH_v2", raw, ctypes.c_uint64(pointer), ctypes.c_size_t(size))
        return raw.raw

    def milliseconds(self, work):
        events = []
        for _ in range(2):
            e = ctypes.c_void_p()
            self("cuEventCreate", ctypes.byref(e), 0)
            events.append(e)
        self("cuEventRecord", events[0], None)
        work()
        self("cuEventRecord", events[1], None)
        self("cuEventSynchronize", events[1])
        t = ctypes.c_float()
        self(
            "cuEventElapsedTime_v2"
            if hasattr(self.cuda, "cuEventElapsedTime_v2")
            else "cuEventElapsedTime",
            ctypes.byref(t),
            *events,
        )
        return t.value


def build(
    widths, batch, *, rule, uint8, clusters=7, group=16, slab=112, activation=1, clip=0, trace=0
):
    """The cubin, and the number of bytes of working memory (found by the host compiler)."""
    settings = {
        "WIDTHS": ",".join(map(str, widths)),
        "BATCH": batch,
        "GROUP": group,
        "CLUSTERS": clusters,
        "INPUT_SLAB": slab,
        "ACTIVATION": activation,
        "RULE": rule,
        "INPUT": 2 if uint8 else 1,
        "CLIP": clip,
        "TRACE": trace,
    }
    text = "".join(f"#define RN_{k} {v}\n" for k, v in settings.items())
    sources = sorted(KERNELS.glob("mlp_persistent*"))
    key = hashlib.sha256("".join([text, *(s.read_text() for s in sources)]).encode()).hexdigest()[
        :16
    ]
    folder = CACHE / key
    if not (folder / "k.cubin").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.h").write_text(text)
        command = [
            "nvcc",
            "-O3",
            "-std=c++17",
            "-gencode=arch=compute_90a,code=sm_90a",
            "-cubin",
            "-Xptxas",
            "-v",
            "-include",
            "config.h",
            str(KERNELS / "mlp_persistent.cu"),
            "-o",
            "k.cubin",
        ]
        out = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if out.returncode:
            raise RuntimeError(out.stderr)
        report = " ".join(
            x.strip() for x in out.stderr.splitlines() if "spill" in x or "registers" in x
        )
        (folder / "size.cc").write_text(
            "#define __host__\n#define __device__\n#define __constant__ const\n"
            '#include "config.h"\n'
            f'#include "{KERNELS}/mlp_persistent_plan.cuh"\n#include <cstdio>\n'
            'int main() { printf("%d %d", rn::mlp::kLayout.total, rn::mlp::kSharedBytes); }\n'
        )
        subprocess.run(["g++", "-std=c++17", "size.cc", "-o", "size"], cwd=folder, check=True)
        sizes = subprocess.run(["./size"], cwd=folder, capture_output=True, text=True).stdout
        (folder / "report").write_text(f"{sizes} {report}")
    work, shared, report = (folder / "report").read_text().split(" ", 2)
    return (folder / "k.cubin").read_bytes(), int(work), int(shared), clusters * group, report


class Mlp:
    """State in one bank, launched for any number of steps."""

    def __init__(
        self,
        driver,
        program,
        widths,
        weights,
        biases,
        *,
        lr_table,
        loss_scale,
        images,
        labels,
        table=None,
        indices=None,
        growth_interval=2000,
        smoothing=0.1,
        momentum=0.9,
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        weight_decay=1e-4,
        history=4096,
        trace=False,
    ):
        self.driver, self.widths = driver, widths
        cubin, work, self.shared, self.blocks, _ = program
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        driver("cuModuleLoadData", ctypes.byref(module), cubin)
        driver("cuModuleGetFunction", ctypes.byref(self.function), module, b"mlp_persistent_kernel")
        driver("cuFuncSetAttribute", self.function, 8, self.shared)  # dynamic shared memory
        driver("cuFuncSetAttribute", self.function, 14, 1)  # clusters of more than 8 blocks
        a = self.arguments = Arguments()
        self.offsets, size = {}, 0

        def place(name, shape, dtype):
            nonlocal size
            self.offsets[name] = (size, shape, dtype)
            size += (int(np.prod(shape)) * np.dtype(dtype).itemsize + 255) // 256 * 256
            return self.offsets[name][0]

        for n, (w, b) in enumerate(zip(weights, biases, strict=True), 1):
            for kind, shape in (("weight", w.shape), ("bias", b.shape)):
                for suffix in ("", "_m", "_v"):
                    getattr(a, kind + suffix)[n] = place(f"{kind}{suffix}{n}", shape, np.float32)
            a.weight_half[n] = place(f"half{n}", w.shape, np.float16)
        for name in ("lr", "loss_scale", "correction1", "correction2"):
            setattr(a, name, place(name, (1,), np.float32))
        a.lr_table = place("lr_table", (len(lr_table),), np.float32)
        for name in ("applied_steps", "skipped_steps", "clean_steps", "overflow_run", "nan_flag"):
            setattr(a, name, place(name, (1,), np.int32))
        for name in ("result", "accumulated"):
            at = place(name, (4,), np.float32)
            getattr(a, name)[:] = [at + 4 * i for i in range(4)]
        bank = np.zeros(size, np.uint8)
        self.size = size

        def put(name, value):
            at, shape, dtype = self.offsets[name]
            raw = np.ascontiguousarray(value, dtype).reshape(-1).view(np.uint8)
            bank[at : at + raw.size] = raw

        for n, (w, b) in enumerate(zip(weights, biases, strict=True), 1):
            put(f"weight{n}", w)
            put(f"bias{n}", b)
            put(f"half{n}", np.full(w.shape, np.nan))
        put("lr_table", lr_table)
        put("loss_scale", [loss_scale])
        a.state = driver.allocate(bank)
        a.work = driver.allocate(b"\0" * 1024 + b"\xff" * (work - 1024))
        a.images, a.labels = driver.allocate(images), driver.allocate(labels.astype(np.int32))
        a.table = driver.allocate(table) if table is not None else 0
        a.indices = driver.allocate(indices.astype(np.int32)) if indices is not None else 0
        self.history_rows = history
        self.history_pointer = a.history = driver.allocate(
            np.full((history, 8), np.nan, np.float32)
        )
        self.trace_pointer = driver.allocate(np.zeros((self.blocks, 64), np.int64))
        a.trace = self.trace_pointer if trace else 0
        a.table_length, a.growth_interval = len(lr_table), growth_interval
        a.smoothing, a.momentum, a.beta1, a.beta2 = smoothing, momentum, beta1, beta2
        a.rest1, a.rest2_root, a.eps, a.weight_decay = (
            1 - beta1,
            (1 - beta2) ** 0.5,
            eps,
            weight_decay,
        )
        a.max_abs, a.scale_maximum, a.scale_minimum = 0.0, 2.0**24, 1.0
        a.beta1_exact, a.beta2_exact = beta1, beta2

    def launch(self, steps, first=0, batch=200):
        a = self.arguments
        a.steps = steps
        base = a.indices
        if base and first:
            a.indices = base + first * batch * 4
        holder = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(a), ctypes.c_void_p))
        self.driver(
            "cuLaunchKernel",
            self.function,
            self.blocks,
            1,
            1,
            384,
            1,
            1,
            self.shared,
            None,
            holder,
            None,
        )
        a.indices = base

    def wait(self):
        self.driver("cuCtxSynchronize")

    def get(self, name):
        at, shape, dtype = self.offsets[name]
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(self.driver.download(self.arguments.state + at, count), dtype).reshape(
            shape
        )

    def history(self, steps):
        raw = self.driver.download(self.history_pointer, steps * 32)
        return np.frombuffer(raw, np.float32).reshape(steps, 8)[:, :4]

    def trace(self):
        raw = self.driver.download(self.trace_pointer, self.blocks * 512)
        return np.frombuffer(raw, np.int64).reshape(self.blocks, 64)

    def sha256(self):
        """Of everything but the sums over steps, whose order the launches decide."""
        at, _, _ = self.offsets["accumulated"]
        return hashlib.sha256(self.driver.download(self.arguments.state, at)).hexdigest()[:16]
