-- The record is stored as the local variables have it. Redis removes it in the millisecond after
-- it expires.
whole = struct.pack(HEAD, 'once', FORMAT, status, uncertain, known, has_result, has_error, awaited,
  attempt, created, token, started, updated, lease_end, finished, expires, revision, nonce_size,
  print_size, label_size, reference_size, hand_size, error_size, noted_size) .. tail
if expires > 0 then
  redis.call('SET', KEYS[1], whole, 'PXAT', string.format('%d', math.ceil(expires / 1000)))
else
  redis.call('SET', KEYS[1], whole)
end
