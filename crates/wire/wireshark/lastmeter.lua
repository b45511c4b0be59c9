-- Jetstream frames (link type USER0) and VuNet cells (USER1) for Wireshark and tshark.
--
--   wireshark -X lua_script:lastmeter.lua capture.pcapng
--
-- Layout and names as in lastmeter_wire::jetstream and lastmeter_wire::atm::vunet. Header error control and the
-- length of an AAL5 PDU are checked; its CRC is only shown. The contents of the PDU are passed to the LLC
-- dissector if they start with AA AA 03.

local jetstream = Proto("jetstream", "Jetstream MAC frame")
local vunet = Proto("vunet", "VuNet cell")

local kinds = { [0] = "data", [1] = "RING_UP", [2] = "token" }
local address_types = { [0] = "RID", [1] = "VC" }

local f = {
  kind = ProtoField.uint8("jetstream.kind", "Kind", base.DEC, kinds, 0xf0),
  crc_present = ProtoField.bool("jetstream.crc_present", "CRC present", 8, nil, 0x08),
  monitor = ProtoField.bool("jetstream.monitor", "Monitor", 8, nil, 0x04),
  address_type = ProtoField.uint8("jetstream.addr_type", "Address type", base.DEC, address_types, 0x03),
  dst = ProtoField.uint8("jetstream.dst_rid", "Destination RID", base.DEC, nil, 0xf0),
  src = ProtoField.uint8("jetstream.src_rid", "Source RID", base.DEC, nil, 0x0f),
  hops = ProtoField.uint8("jetstream.hop_count", "Hop count", base.DEC),
  vpi = ProtoField.uint16("jetstream.vpi", "VPI", base.DEC),
  vci = ProtoField.uint16("jetstream.vci", "VCI", base.DEC),
  pt = ProtoField.uint8("jetstream.pt", "Payload type", base.DEC),
  hec = ProtoField.uint8("jetstream.hec", "Header error control", base.HEX),
  pdu = ProtoField.bytes("jetstream.pdu", "PDU"),
  user = ProtoField.uint8("jetstream.aal5.uu", "User-to-user", base.HEX),
  indicator = ProtoField.uint8("jetstream.aal5.cpi", "Common part indicator", base.HEX),
  length = ProtoField.uint16("jetstream.aal5.length", "Length", base.DEC),
  crc = ProtoField.uint32("jetstream.aal5.crc", "CRC-32", base.HEX),
}
jetstream.fields = f

local bad_hec = ProtoExpert.new("jetstream.hec.bad", "Header error control is wrong",
  expert.group.CHECKSUM, expert.severity.ERROR)
local bad_length = ProtoExpert.new("jetstream.aal5.length.bad", "AAL5 length does not fit the PDU",
  expert.group.MALFORMED, expert.severity.ERROR)
local cut_short = ProtoExpert.new("jetstream.short", "Frame is truncated",
  expert.group.MALFORMED, expert.severity.ERROR)
jetstream.experts = { bad_hec, bad_length, cut_short }

-- Wireshark 4 has Lua 5.2 (bit32) to 5.4 (operators); its own bit library is available in all of them.
local band, bxor, lshift, rshift = bit.band, bit.bxor, bit.lshift, bit.rshift

local function hec_of(range)
  local crc = 0
  for at = 0, 3 do
    crc = bxor(crc, range(at, 1):uint())
    for _ = 1, 8 do
      crc = lshift(crc, 1)
      if band(crc, 0x100) ~= 0 then crc = bxor(crc, 0x107) end
    end
  end
  return bxor(crc, 0x55)
end

-- The four bytes of an ATM header at a user interface; returns VPI and VCI.
local function add_circuit(tree, range, fields)
  local word = range:uint()
  local vpi, vci = band(rshift(word, 20), 0xff), band(rshift(word, 4), 0xffff)
  tree:add(fields.vpi, range, vpi)
  tree:add(fields.vci, range, vci)
  tree:add(fields.pt, range, band(rshift(word, 1), 7))
  return vpi, vci
end

local llc = Dissector.get("llc")

local function dissect_pdu(pdu, has_crc, pinfo, tree, root)
  local len = pdu:len()
  if not has_crc or len < 48 or len % 48 ~= 0 then
    tree:add(f.pdu, pdu)
    return
  end
  local trailer = pdu(len - 8, 8)
  local length = trailer(2, 2):uint()
  tree:add(f.user, trailer(0, 1))
  tree:add(f.indicator, trailer(1, 1))
  local item = tree:add(f.length, trailer(2, 2))
  tree:add(f.crc, trailer(4, 4))
  if length == 0 or math.ceil((length + 8) / 48) * 48 ~= len then
    item:add_proto_expert_info(bad_length)
    return
  end
  local payload = pdu(0, length)
  if length > 3 and payload(0, 3):uint() == 0xaaaa03 then
    llc:call(payload:tvb(), pinfo, root)
  else
    tree:add(f.pdu, payload)
  end
end

function jetstream.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "Jetstream"
  local tree = root:add(jetstream, buffer())
  if buffer:len() < 3 then
    tree:add_proto_expert_info(cut_short)
    return
  end
  local flags = buffer(0, 1)
  tree:add(f.kind, flags)
  tree:add(f.crc_present, flags)
  tree:add(f.monitor, flags)
  tree:add(f.address_type, flags)
  tree:add(f.dst, buffer(1, 1))
  tree:add(f.src, buffer(1, 1))
  local kind = rshift(flags:uint(), 4)
  local src, dst = band(buffer(1, 1):uint(), 0xf), rshift(buffer(1, 1):uint(), 4)
  pinfo.cols.info = string.format("%s, RID %d to %d", kinds[kind] or "unknown", src, dst)
  if kind == 2 then return end
  if kind == 1 and buffer:len() >= 4 then
    tree:add(f.hops, buffer(3, 1))
    return
  end
  if buffer:len() < 8 then
    tree:add_proto_expert_info(cut_short)
    return
  end
  local vpi, vci = add_circuit(tree, buffer(3, 4), f)
  local item = tree:add(f.hec, buffer(7, 1))
  if hec_of(buffer(3, 4)) ~= buffer(7, 1):uint() then item:add_proto_expert_info(bad_hec) end
  pinfo.cols.info = string.format("data, RID %d, VPI %d VCI %d", src, vpi, vci)
  if buffer:len() == 8 then return end
  dissect_pdu(buffer(8), band(flags:uint(), 8) ~= 0, pinfo, tree, root)
end

local v = {
  vpi = ProtoField.uint16("vunet.vpi", "VPI", base.DEC),
  vci = ProtoField.uint16("vunet.vci", "VCI", base.DEC),
  pt = ProtoField.uint8("vunet.pt", "Payload type", base.DEC),
  hec = ProtoField.uint8("vunet.hec", "Header error control, if computed in advance", base.HEX),
  payload = ProtoField.bytes("vunet.payload", "Payload"),
}
vunet.fields = v
local short_cell = ProtoExpert.new("vunet.short", "Cell is not 56 bytes long",
  expert.group.MALFORMED, expert.severity.ERROR)
vunet.experts = { short_cell }

function vunet.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "VuNet"
  local tree = root:add(vunet, buffer())
  if buffer:len() ~= 56 then
    tree:add_proto_expert_info(short_cell)
    return
  end
  local vpi, vci = add_circuit(tree, buffer(0, 4), v)
  tree:add(v.hec, buffer(4, 1))
  tree:add(v.payload, buffer(8, 48))
  pinfo.cols.info = string.format("VPI %d VCI %d", vpi, vci)
end

local encapsulations = DissectorTable.get("wtap_encap")
encapsulations:add(wtap.USER0, jetstream)
encapsulations:add(wtap.USER1, vunet)
