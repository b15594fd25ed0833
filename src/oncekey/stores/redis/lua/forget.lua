-- token, force
local asked, force = struct.unpack('>i8B', ARGV[1])
if alive and (token ~= asked or ((status == RUNNING or status == HELD) and force == 0)) then
  return LOST
end
redis.call('DEL', KEYS[1])
status = nil
