-- Says that a member of a fleet lives, forgets those that have not said so of late, and counts the rest.
--
-- KEYS[1]  the fleet's sorted set: members by the millisecond of their last beat
-- ARGV     [1] member  [2] life in ms  [3] most members  [4] the time in ms, or 0 for the server's
-- returns  how many live; 0 if there were most of them already, and this one was not let in
local now, life = tonumber(ARGV[4]), tonumber(ARGV[2])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - life)
-- A clock that was set back leaves members in its future: they could outlive themselves by as much.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + life, '+inf')
local n = redis.call('ZCARD', KEYS[1])
if n >= tonumber(ARGV[3]) and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], life)
return redis.call('ZCARD', KEYS[1])
