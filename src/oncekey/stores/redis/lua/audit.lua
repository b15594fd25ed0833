-- What was done by hand is written down where it outlives the record: the moment, and who and why.
if by_hand == 1 and whole then
  redis.call('LPUSH', AUDIT_LIST, struct.pack('>I8', now) .. ARGV[#ARGV])
  redis.call('LTRIM', AUDIT_LIST, 0, AUDIT_KEPT - 1)
end
