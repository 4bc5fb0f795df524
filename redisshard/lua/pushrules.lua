-- Adds a version of the rules and puts it in force; nothing if the one in force has the same text.
--
-- KEYS[1]  head: hash, number and sum of the version in force
-- KEYS[2]  versions: hash, number -> what is known of the version (JSON)
-- KEYS[3]  texts: hash, number -> its text
-- ARGV     1 sum of the text, 2 the JSON, 3 the text, 4 number that the new one has to be above (0: any),
--          5 most versions kept, 6 most bytes of texts kept (the new one is kept in any case), 7 channel
-- Returns  number in force, 1 if it is new or 0, number in force before (0: none), 1 if it was announced or 0
local sum, story, text = ARGV[1], ARGV[2], ARGV[3]
local above, most, bytes, channel = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]

-- A number as a push writes it, small enough to be counted on from; else nil. tonumber alone takes nan, inf and 1e300.
local function whole(text)
  return text and #text <= 15 and string.match(text, '^[1-9]%d*$') and tonumber(text) or nil
end

local head = redis.call('HMGET', KEYS[1], 'number', 'sum')
local before = whole(head[1]) or 0 -- a damaged one is none
if before > above and head[2] == sum then
  return {before, 0, before, 0}
end

redis.call('HSTRLEN', KEYS[3], '~') -- for the right to it
-- The number is above every one that was given, whatever has become of the head.
local kept = {}
for _, n in ipairs(redis.call('HKEYS', KEYS[2])) do
  kept[#kept + 1] = whole(n)
end
table.sort(kept)
local number = math.max(before, above, kept[#kept] or 0) + 1
local name = string.format('%.0f', number)

-- The first write: it is the one that a full or read-only server refuses. A user who may not delete is refused next, before
-- anything counts; the text that is then left over is replaced by the next push.
redis.call('HSET', KEYS[3], name, text)
redis.call('HDEL', KEYS[2], '~')
redis.call('HSET', KEYS[2], name, story)
redis.call('HSET', KEYS[1], 'number', name, 'sum', sum)

-- The newest stay, as many as fit.
local room = bytes - #text
for i = #kept, 1, -1 do
  local n = string.format('%.0f', kept[i])
  room = room - redis.call('HSTRLEN', KEYS[3], n)
  if #kept - i + 2 > most or room < 0 then
    room = -1
    redis.call('HDEL', KEYS[2], n)
    redis.call('HDEL', KEYS[3], n)
  end
end

-- A user who may not publish may push: agents then find the version by looking.
local heard = redis.pcall('PUBLISH', channel, name)
return {number, 1, before, type(heard) == 'number' and 1 or 0}
