-- Keys: stream. Arguments: group, consumer.
-- Deleting a consumer drops its pending entries, so delete only one that has none.
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then
  return 0
end
return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
