-- Token and nonce, which are asked with first, are those of the attempt in the living record.
local asked, nonce, at = struct.unpack('>i8I2c0', ARGV[1])
if not alive or token ~= asked or string.sub(whole, SIZE + 1, SIZE + nonce_size) ~= nonce then
  return LOST
end
