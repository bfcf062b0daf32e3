"""Kafka's descriptions of its requests, out of kafka-clients' jar: which fields a version has, and
what they are unless somebody says. And record batches, by hand."""

import base64
import json
import re
import struct
import zipfile


class Messages:
    def __init__(self, jar):
        self.jar, self.known = zipfile.ZipFile(jar), {}

    def description(self, name):
        if name not in self.known:
            text = self.jar.read(f"common/message/{name}.json").decode()
            text = re.sub(r"^\s*//.*$", "", text, flags=re.M)
            self.known[name] = json.loads(text)
        return self.known[name]

    def versions(self, api):
        return span(self.description(f"{api}Request")["validVersions"])

    def body(self, api, version, given):
        """`given` with the fields of this version, no others, and defaults for what is not said."""
        description = self.description(f"{api}Request")
        structs = {one["name"]: one["fields"] for one in description.get("commonStructs", [])}
        return fill(description["fields"], structs, version, given)


def span(text):
    low, _, high = text.rstrip("+").partition("-")
    return (int(low), int(high) if high else 10**6 if text.endswith("+") else int(low))


def fill(fields, structs, version, given):
    filled = {}
    for field in fields:
        name = field["name"][0].lower() + field["name"][1:]
        low, high = span(field["versions"])
        tagged = "tag" in field
        if not low <= version <= high or (tagged and name not in given):
            continue
        kind = field["type"].removeprefix("[]")
        inner = field.get("fields") or structs.get(kind)
        is_list = field["type"].startswith("[]")
        value = given.get(name, default(field, is_list))
        if inner and value is not None:
            value = (
                [fill(inner, structs, version, one) for one in value]
                if is_list
                else fill(inner, structs, version, value)
            )
        filled[name] = value
    return filled


def default(field, is_list):
    said = field.get("default")
    if said == "null":
        return None
    if is_list:
        return []
    kind = field["type"]
    if kind.startswith("int"):
        return int(said, 0) if isinstance(said, str) else said or 0
    if kind == "bool":
        return said in (True, "true")
    if kind == "uuid":
        return "AAAAAAAAAAAAAAAAAAAAAA"
    return said or "" if kind in ("string", "bytes") else {}


def varint(value):
    value, out = (value << 1) ^ (value >> 63), b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


TABLE = []
for start in range(256):
    for _ in range(8):
        start = (start >> 1) ^ (0x82F63B78 if start & 1 else 0)
    TABLE.append(start)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def batch(
    values,
    producer=-1,
    epoch=-1,
    sequence=-1,
    transactional=False,
    time=1_700_000_000_000,
    key=None,
):
    """One record batch of version 2, as base64."""
    records = b""
    for place, value in enumerate(values):
        parts = [
            varint(-1) if key is None else varint(len(key)) + key,
            varint(len(value)) + value,
            varint(0),
        ]
        record = b"\0" + varint(0) + varint(place) + b"".join(parts)
        records += varint(len(record)) + record
    count = len(values)
    tail = (
        struct.pack(
            ">hiqqqhii",
            16 if transactional else 0,
            count - 1,
            time,
            time,
            producer,
            epoch,
            sequence,
            count,
        )
        + records
    )
    head = struct.pack(">ib", -1, 2) + struct.pack(">I", crc32c(tail))
    whole = struct.pack(">qi", 0, len(head) + len(tail)) + head + tail
    return base64.b64encode(whole).decode()


def batches(records):
    """What a Fetch gave, as (offset, attributes, producer, epoch, sequence, values)."""
    data, told = base64.b64decode(records or ""), []
    while len(data) >= 61:
        offset, length = struct.unpack_from(">qi", data)
        if len(data) < 12 + length:
            break
        fields = struct.unpack_from(">hiqqqhii", data, 21)
        attributes, last, _, _, producer, epoch, sequence, count = fields
        told.append(
            {
                "offset": offset,
                "attributes": attributes,
                "last": last,
                "producerId": producer,
                "epoch": epoch,
                "sequence": sequence,
                "count": count,
            }
        )
        data = data[12 + length :]
    return told
