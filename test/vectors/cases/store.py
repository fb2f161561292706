"""Writes cases: one safetensors file each, and what index.json says of it."""

import hashlib
import json
import struct
import zlib
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent.parent
DTYPES = {"float16": "F16", "float32": "F32", "float64": "F64", "bool": "BOOL", "uint8": "U8", "int32": "I32", "int64": "I64"}
CASES = []


def container(tensors, metadata=None):
    """The bytes of a safetensors file: header length, JSON, data, tensors in order of name."""
    header = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name in sorted(tensors):
        bytes_ = np.ascontiguousarray(tensors[name]).tobytes()
        header[name] = {
            "dtype": DTYPES[str(tensors[name].dtype)],
            "shape": list(tensors[name].shape),
            "data_offsets": [len(data), len(data) + len(bytes_)],
        }
        data += bytes_
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write(entry, content):
    entry["file"] = f"{entry['folder']}/case.safetensors" if "folder" in entry else f"{entry['set']}/{entry['name']}.safetensors"
    entry["sha256"] = hashlib.sha256(content).hexdigest()
    (HERE / entry["file"]).parent.mkdir(exist_ok=True, parents=True)
    (HERE / entry["file"]).write_bytes(content)
    CASES.append(entry)


def case(set_, op, name, attributes, inputs, outputs, opset=None, tolerance=1e-5, copies=(), notes=None, folder=None):
    """Adds a case. `copies` are outputs that must be exact; `folder` holds the files of a whole model."""
    rounded = {k: np.round(v, 12) + 0.0 if v.dtype == np.float64 else v for k, v in outputs.items()}
    bounds = {"default": {"atol": tolerance, "rtol": tolerance}}
    bounds |= {name: {"atol": 0.0, "rtol": 0.0} for name in copies}
    kind = lambda tensors: {k: {"dtype": DTYPES[str(v.dtype)], "shape": list(v.shape)} for k, v in tensors.items()}
    entry = {"name": name, "set": set_, "op": op, "attributes": attributes, "tolerance": bounds}
    entry |= {"inputs": kind(inputs), "outputs": kind(rounded)}
    if opset:
        entry["opset"] = opset
    if notes:
        entry["notes"] = notes
    if folder:
        entry["folder"] = folder
    write(entry, container(inputs | rounded))


class Random:
    """Exact float32 values from raw bits: no distribution, no rounding, no library's logarithm."""

    def __init__(self, name):
        self.bits = np.random.PCG64(zlib.crc32(name.encode()))

    def __call__(self, *shape, scale=1.0):
        """Uniform in [-scale, scale), float32; keep `scale` a power of two."""
        raw = self.bits.random_raw(int(np.prod(shape))) >> np.uint64(40)
        return ((raw.astype(np.float64) * 2.0**-23 - 1) * scale).astype(np.float32).reshape(shape)

    def chance(self, *shape, of=0.5):
        raw = self.bits.random_raw(int(np.prod(shape))) >> np.uint64(40)
        return (raw.astype(np.float64) * 2.0**-24 < of).reshape(shape)
