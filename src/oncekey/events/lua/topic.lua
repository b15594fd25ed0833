-- Key: topic. Argument: how many jobs at the most.
local now = redis.call('TIME')[1]
return redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', now, 'LIMIT', 0, ARGV[1])
