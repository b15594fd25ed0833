-- Whoever waits for the running attempt is told that it is over. A user without the right to
-- publish may still end an attempt: those who wait find out when they ask again.
local function wake()
  if awaited then
    redis.call('HDEL', KEYS[1], 'w')
    redis.pcall('PUBLISH', KEYS[1] .. ':ended', '')
  end
end
