-- Held records wait for a person, so they are in a sorted set too, by the moment since when: they are
-- counted and found without reading all keys. Only a server that is not part of a cluster has it.
if status == HELD or (whole and string.byte(whole, 6) == HELD) then
  if status ~= HELD then
    redis.call('ZREM', HELD_SET, KEYS[1])
  elseif string.byte(whole, 6) ~= HELD then
    redis.call('ZADD', HELD_SET, now, KEYS[1])
  end
end
