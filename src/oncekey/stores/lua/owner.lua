-- Token and nonce, the first two arguments, are those of the attempt in the living record.
local owned = alive and m[NONCE] == ARGV[2] and m[CREATED] + m[TOKEN] == tonumber(ARGV[1])
