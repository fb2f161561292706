"""Checkpoints in the form of Hugging Face: config.json beside model.safetensors in float32."""

import json
import struct


def write_checkpoint(folder, config, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "model.safetensors").write_bytes(safetensors(tensors))


def safetensors(tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        begin = len(data)
        data += tensor.detach().float().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data
