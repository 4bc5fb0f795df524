-- Uses every command of debit.lua once, so that a right that the user lacks shows at start.
--
-- KEYS[1]  a name that nobody uses
-- ARGV[1]  1: TIME as well
-- returns  1. Nothing is left behind: the key is made last, and dropped at once.
if ARGV[1] == '1' then redis.call('TIME') end
redis.call('EXISTS', KEYS[1])
redis.call('PEXPIRE', KEYS[1], 1000)
redis.call('UNLINK', KEYS[1])
redis.call('HDEL', KEYS[1], '~')
redis.call('HMGET', KEYS[1], '~')
redis.call('HSET', KEYS[1], '~', '0')
redis.call('UNLINK', KEYS[1])
return 1
