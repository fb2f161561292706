"""Safetensors files, sound and broken, with the verdict of the format."""

import hashlib
import struct

from .store import Random, container, write


def file_cases():
    def add(name, verdict, content, reason, tensors=(), metadata=None, loader=None, lenient=False, count=None):
        entry = {"name": name, "set": "files", "op": "LoadSafetensors", "attributes": {}, "verdict": verdict, "lenient_ok": lenient, "reason": reason}
        if verdict == "accept":
            entry["tensors"] = [{"name": n, "dtype": d, "shape": s, "nbytes": len(b)} | digests(b) for n, d, s, b in tensors]
        if count is not None:
            entry |= {"tensors_listed": "a sample", "tensor_count": count}
        if metadata is not None:
            entry["metadata"] = metadata
        if loader:
            entry["loader"] = {"expect": loader, "module": "nn.MultiheadAttention(embed_dim=4, num_heads=2)"}
        write(entry, content)

    def digests(data):
        """The bytes in hex, where they are few, or their SHA-256; nothing for a tensor of no bytes."""
        if not data:
            return {}
        return {"hex": data.hex()} if len(data) == 1 else {"sha256": hashlib.sha256(data).hexdigest()}

    def raw(header, data=b"", length=None):
        text = header if isinstance(header, bytes) else header.encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    one = lambda dtype="F32", shape="[1]", begin=0, end=4: f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'
    float_ = struct.pack("<f", 1.5)

    add("no_tensors", "accept", raw("{}"), "an empty header")
    add("scalar_odd_header", "accept", raw('{"ab":' + one(shape="[]") + "}", float_), "rank 0, data not aligned in the file", [("ab", "F32", [], float_)])
    add("empty_dimension", "accept", raw('{"a":' + one(shape="[3,0]", end=0) + "}"), "a tensor of no bytes", [("a", "F32", [3, 0], b"")])
    halves = bytes.fromhex("0100 00fc 007e ff7b")
    add("f16_special", "accept", raw('{"a":' + one("F16", "[4]", 0, 8) + "}", halves), "subnormal, -inf, NaN, largest", [("a", "F16", [4], halves)])
    add("unicode_names", "accept", raw('{"__metadata__":{"é":"日本"},"ключ":' + one() + "}", float_), "names are any text",
        [("ключ", "F32", [1], float_)], [["é", "日本"]])
    add("unordered_offsets", "accept", raw('{"a":' + one(begin=4, end=8) + ',"b":' + one() + "}", float_ + float_[::-1]), "data in another order than the header",
        [("a", "F32", [1], float_[::-1]), ("b", "F32", [1], float_)])

    many = ",".join(f'"t{i}":' + (one("U8", begin=i // 2, end=i // 2 + 1) if i % 2 else one("F32", "[0]", i // 2, i // 2)) for i in range(40))
    add("many_tensors", "accept", raw("{" + many + "}", bytes(range(20))), "40 tensors, half of them of no bytes; a sample is listed",
        [("t0", "F32", [0], b""), ("t7", "U8", [1], b"\x03"), ("t39", "U8", [1], b"\x13")], count=40)

    add("seven_bytes", "reject", b"\0" * 7, "shorter than the header length")
    add("header_past_end", "reject", raw("{}", length=3), "the header ends behind the file")
    add("header_length_64_bits", "reject", raw("{}", length=2**64 - 1), "2^64 - 1 bytes of header")
    add("data_missing", "reject", raw('{"a":' + one() + "}", float_[:3]), "the last byte is missing")
    add("data_left_over", "reject", raw('{"a":' + one() + "}", float_ + b"\0"), "a byte that no tensor covers")
    add("overlap", "reject", raw('{"a":' + one() + ',"b":' + one() + "}", float_), "two tensors on the same bytes")
    add("hole", "reject", raw('{"a":' + one() + ',"b":' + one(begin=5, end=9) + "}", float_ * 2 + b"\0"), "a byte between two tensors")
    add("size_mismatch", "reject", raw('{"a":' + one(shape="[2]") + "}", float_), "two floats in four bytes")
    add("size_overflow", "reject", raw('{"a":' + one(shape="[4294967296,4294967296]", end=0) + "}"), "2^64 elements wrap to 0")
    add("negative_offset", "reject", raw('{"a":' + one(begin=-4, end=0) + "}"), "an offset below 0")
    add("unknown_dtype", "reject", raw('{"a":' + one("F31") + "}", float_), "a dtype that does not exist")
    add("not_utf8", "reject", raw(b'{"\xff":' + one().encode() + b"}", float_), "a name that is not UTF-8")
    add("not_an_object", "reject", raw("[]"), "a list at the top")
    add("nested_shape", "reject", raw('{"a":' + one(shape="[[1]]") + "}", float_), "a list as a dimension")
    add("many_brackets", "reject", raw("[" * 20000 + "]" * 20000), "20,000 nested lists")
    add("same_name_twice", "reject", raw('{"a":' + one() + ',"a":' + one() + "}", float_), "readers differ: the last one, or none", lenient=True)

    def layer(name, expect, reason, **changed):
        r = Random(name)
        state = {"in_proj_weight": r(12, 4), "in_proj_bias": r(12), "out_proj.weight": r(4, 4), "out_proj.bias": r(4)} | changed
        state = {n: t for n, t in state.items() if t is not None}
        listed = [(n, "F32", list(t.shape), t.tobytes()) for n, t in sorted(state.items())]
        add(name, "accept", container(state, {"format": "pt"}), reason, listed, [["format", "pt"]], expect)

    layer("layer_complete", "accept", "a whole state dict")
    layer("layer_no_in_proj_bias", "reject", "one bias of two", in_proj_bias=None)
    layer("layer_no_out_proj", "reject", "no output projection", **{"out_proj.weight": None})
    layer("layer_transposed", "reject", "in_proj_weight is [E, 3E]", in_proj_weight=Random("transposed")(4, 12))
