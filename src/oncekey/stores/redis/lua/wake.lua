-- Whoever waits for the running attempt is told that it is over. A user without the right to
-- publish may still end an attempt: those who wait find out when they ask again.
if awaited == 1 then
  awaited = 0
  redis.pcall('PUBLISH', KEYS[1] .. ':ended', '')
end
