-- Braid's datagrams for Wireshark and tshark: what is in the clear (docs/format-datagram.md, section 2). The
-- frames within a Data are sealed, and shown as bytes.
--
-- Where the system cuts datagrams to length (GSO, as on a loopback), a capture has several in one: of Data the
-- first header is shown. `ethtool -K lo tx-udp-segmentation off` has them apart.
--
-- Use: tshark -X lua_script:contrib/wireshark/braid_datagram.lua -d udp.port==7401,braid-datagram
-- or put the file into Wireshark's folder of personal Lua plugins. Datagrams of any port are looked at too.

local braid = Proto("braid-datagram", "Braid datagrams")

local kinds = {
    [0xb1] = "Open",
    [0xb2] = "Retry",
    [0xb3] = "Accept",
    [0xb4] = "Refused",
    [0xb5] = "Versions",
    [0xb6] = "Unknown",
    [0xb7] = "Data",
}
local refusals = { [1] = "busy", [2] = "unproved" }

local f = braid.fields
f.kind = ProtoField.uint8("braid-datagram.kind", "Kind", base.HEX, kinds)
f.version = ProtoField.uint8("braid-datagram.version", "Version")
f.to = ProtoField.uint32("braid-datagram.to", "To connection", base.HEX)
f.from = ProtoField.uint32("braid-datagram.from", "From connection", base.HEX)
f.streams = ProtoField.uint16("braid-datagram.streams", "Streams")
f.datagram = ProtoField.uint16("braid-datagram.datagram_bytes_max", "Longest datagram")
f.window = ProtoField.uint32("braid-datagram.window_bytes", "Window of a stream")
f.nonce = ProtoField.bytes("braid-datagram.nonce", "Nonce")
f.cookie = ProtoField.bytes("braid-datagram.cookie", "Cookie")
f.proof = ProtoField.bytes("braid-datagram.proof", "Proof")
f.identity = ProtoField.bytes("braid-datagram.identity", "Identity")
f.why = ProtoField.uint8("braid-datagram.why", "Reason", base.DEC, refusals)
f.min = ProtoField.uint8("braid-datagram.version_min", "Lowest version")
f.max = ProtoField.uint8("braid-datagram.version_max", "Highest version")
f.number = ProtoField.uint32("braid-datagram.number", "Number (lower 32 bits)")
f.sealed = ProtoField.bytes("braid-datagram.sealed", "Sealed frames")
f.tag = ProtoField.bytes("braid-datagram.tag", "Tag")

local function settings(tree, buffer, at)
    tree:add_le(f.streams, buffer(at, 2))
    tree:add_le(f.datagram, buffer(at + 2, 2))
    tree:add_le(f.window, buffer(at + 4, 4))
end

local lengths = { [0xb1] = 1200, [0xb2] = 32, [0xb3] = 68, [0xb4] = 8, [0xb5] = 8, [0xb6] = 8, [0xb7] = 25 }

-- Returns the kind and the length, if the datagram may be Braid's.
local function kind_of(buffer)
    if buffer:len() < 8 then return nil end
    local kind = buffer(0, 1):uint()
    local least = lengths[kind]
    if least == nil or buffer:len() < least then return nil end
    if kind == 0xb1 or kind == 0xb7 or buffer:len() == least then return kind, buffer:len() end
    -- Another may follow that the system cuts off.
    local next = buffer(least, 1):uint()
    if next < 0xb2 or next > 0xb7 then return nil end
    return kind, least
end

-- Shows one datagram, and what follows it; returns what it says in short.
local function show(buffer, root)
    local kind, length = kind_of(buffer)
    if kind == nil then return nil end
    local rest = buffer:len() > length and buffer(length):tvb() or nil
    if rest then buffer = buffer(0, length):tvb() end
    local tree = root:add(braid, buffer())
    tree:add(f.kind, buffer(0, 1))
    local text = kinds[kind]
    if kind == 0xb7 then
        local sealed = buffer:len() - 9 - 16
        tree:add_le(f.to, buffer(1, 4))
        tree:add_le(f.number, buffer(5, 4))
        if sealed > 0 then tree:add(f.sealed, buffer(9, sealed)) end
        tree:add(f.tag, buffer(9 + sealed, 16))
        text = string.format("Data to %08x number %d, %d bytes sealed", buffer(1, 4):le_uint(),
            buffer(5, 4):le_uint(), sealed)
    elseif kind == 0xb1 then
        local identity = buffer(2, 2):le_uint()
        tree:add(f.version, buffer(1, 1))
        tree:add_le(f.from, buffer(4, 4))
        if buffer(1, 1):uint() == 1 and 88 + identity <= buffer:len() then
            settings(tree, buffer, 8)
            tree:add(f.nonce, buffer(16, 32))
            tree:add(f.cookie, buffer(48, 24))
            tree:add(f.proof, buffer(72, 16))
            if identity > 0 then tree:add(f.identity, buffer(88, identity)) end
        end
        text = string.format("Open from %08x", buffer(4, 4):le_uint())
    else
        if kind == 0xb4 then
            tree:add(f.why, buffer(1, 1))
        elseif kind == 0xb5 then
            tree:add(f.min, buffer(1, 1))
            tree:add(f.max, buffer(2, 1))
        elseif kind ~= 0xb6 then
            tree:add(f.version, buffer(1, 1))
        end
        tree:add_le(f.to, buffer(4, 4))
        if kind == 0xb2 then
            tree:add(f.cookie, buffer(8, 24))
        elseif kind == 0xb3 then
            tree:add_le(f.from, buffer(8, 4))
            settings(tree, buffer, 12)
            tree:add(f.nonce, buffer(20, 32))
            tree:add(f.proof, buffer(52, 16))
        end
        text = string.format("%s to %08x", kinds[kind], buffer(4, 4):le_uint())
    end
    local more = rest and show(rest, root)
    return more and text .. "; " .. more or text
end

function braid.dissector(buffer, pinfo, root)
    local text = show(buffer, root)
    if text == nil then return 0 end
    pinfo.cols.protocol = "BRAID"
    pinfo.cols.info = text
    return buffer:len()
end

braid:register_heuristic("udp", function(buffer, pinfo, root)
    return braid.dissector(buffer, pinfo, root) > 0
end)
DissectorTable.get("udp.port"):add_for_decode_as(braid)
