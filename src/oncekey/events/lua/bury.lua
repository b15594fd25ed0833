-- Keys: stream, dead stream. Arguments: group, entry, reason, deliveries, length of the dead
-- stream, then the fields of the entry and their values.
redis.call('XLEN', KEYS[2]) -- fails before any write if the key has another type
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then
  return 0
end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', 'entry', ARGV[2], 'reason', ARGV[3],
  'deliveries', ARGV[4], unpack(ARGV, 6))
return 1
