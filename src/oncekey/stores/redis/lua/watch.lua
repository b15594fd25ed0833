-- token: from now on its end is told to whoever listens, if it still runs
if not alive or status ~= RUNNING or token ~= struct.unpack('>i8', ARGV[1]) then
  return 0
end
redis.call('SETRANGE', KEYS[1], 10, '\1') -- `awaited`: all else stays as it is, also when it expires
return 1
