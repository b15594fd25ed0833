-- token, force, and whether an entry for the audit trail follows
local asked, force, by_hand = struct.unpack('>i8BB', ARGV[1])
if not whole then
  return 4 -- it was gone already, so there is nothing to write down
end
if alive and (token ~= asked or ((status == RUNNING or status == HELD) and force == 0)) then
  return LOST
end
redis.call('DEL', KEYS[1])
status = nil
