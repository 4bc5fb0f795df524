-- Runs a list of entries on token-bucket cells, each at most once.
--
-- KEYS     per group four hashes, the generations base .. base+3 of one class, tag and bin
-- ARGV[1]  a MessagePack array:
--            time, us since 1970 (0: ask TIME)
--            per group: length us, ticks per us, base, number of entries,
--              the entries' fields, number of runs,
--              per run: op, n, emission, depth, ceiling, number of entries
-- returns  a MessagePack array: time, lag us, then two integers per entry: granted and
--          level (now's distance to TAT), or a negative code and 0
--            -1  the cell or its hash is damaged: this entry did not run
--            -2  server time is outside base+1 .. base+3: this entry did not run
--
-- Op and arithmetic: limit.Terms.Apply, bit for bit. No field stands twice in a group.
-- Field '~' of a hash is its clock: the newest time (ticks) of a write, in steps of span/4096,
-- or span once a newer generation was opened. Time never runs back past it.
local call, pcall, floor, num = redis.call, redis.pcall, math.floor, tonumber
local a = cmsgpack.unpack(ARGV[1])
local time = a[1]
if time == 0 then
  local t = call('TIME')
  time = t[1] * 1000000 + t[2]
end
local out, o, lag, i, key = {time, 0}, 2, 0, 2, 0

-- Finds the generation in force: the one of server time, or a newer one if that was opened
-- before the clock was set back. Returns its place in KEYS and the cells with the clock first.
local function open(at, span, first, last)
  while at >= 2 and at <= 4 do
    local v = pcall('HMGET', KEYS[key + at], '~', unpack(a, first, last))
    if v.err then return at, nil end
    local clock = num(v[1])
    if not (clock and clock >= span) and
       (clock or at == 4 or call('EXISTS', KEYS[key + at + 1]) == 0) then
      return at, v, clock
    end
    at = at + 1
  end
  return nil
end

while a[i] do
  local length, unit, base, count = a[i], a[i + 1], a[i + 2], a[i + 3]
  local field, span = i + 3, length * unit
  local gen = floor(time / length)
  local at, v, clock = open(gen - base + 1, span, i + 4, i + 3 + count)
  local prev, missing, now, step, w, n = nil, 0, 0, span / 4096, nil, 1
  if v then
    local fields, f = {}, 0
    for j = 1, count do
      if not v[j + 1] then
        f = f + 1
        fields[f] = a[field + j]
      end
    end
    if f > 0 then prev = pcall('HMGET', KEYS[key + at - 1], unpack(fields)) end
    now = floor((time - (base + at - 1) * length) * unit)
    local past = clock or 0
    if past > now then
      lag = math.max(lag, math.ceil((past - now) / unit))
      now = past
    end
    w = {KEYS[key + at]}
  end

  i = i + 4 + count
  local x, runs = 1, a[i]
  i = i + 1
  for r = 1, runs do
    local op, want, emission, depth, ceiling = a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4]
    for j = 1, a[i + 5] do
      field, x = field + 1, x + 1
      local granted, tat, dirty = v and 0 or at and -1 or -2, now, false
      if v then
        local s = v[x]
        if s then
          tat = num(s)
        else
          missing = missing + 1
          s = prev[missing]
          if s then
            tat = num(s)
            tat = tat and tat - span
          elseif prev.err then
            tat = nil
          end
        end
        if op == 5 then
          tat, dirty = now, true
        elseif not tat or tat ~= floor(tat) or tat >= 1e14 or tat <= -1e14 then
          granted, tat = -1, now
        else
          if tat > now + ceiling + step then tat, dirty = now + depth, true end
          if tat < now then tat = now end
          local free = now + depth - tat
          if op == 2 then
            if want > 0 and free >= emission then
              granted = floor(free / emission)
              if granted > want then granted = want end
              tat, dirty = tat + granted * emission, true
            end
          elseif op == 1 then
            if want > 0 and want * emission <= free then
              granted, tat, dirty = want, tat + want * emission, true
            end
          elseif op == 3 then
            granted = floor((now + ceiling - tat) / emission)
            if granted > want then granted = want end
            if granted > 0 then tat, dirty = tat + granted * emission, true else granted = 0 end
          elseif tat > now then
            granted = math.min(want, floor(depth / emission))
            if granted > 0 then tat, dirty = math.max(now, tat - granted * emission), true end
          end
        end
      end
      if dirty then
        w[n + 1], w[n + 2], n = a[field], tat, n + 2
      end
      out[o + 1], out[o + 2], o = granted, tat - now, o + 2
    end
    i = i + 6
  end
  if n > 1 then
    if not clock then
      if call('EXISTS', KEYS[key + at - 1]) == 1 then pcall('HSET', KEYS[key + at - 1], '~', span) end
    end
    if not clock or now >= clock + step then
      w[n + 1], w[n + 2] = '~', now
    end
    call('HSET', unpack(w))
    if not clock or floor(now * 16 / span) ~= floor(clock * 16 / span) then
      call('PEXPIRE', w[1], math.ceil(((base + at + 1) * length - time) / 1000) + 1000)
      if at > 2 then call('UNLINK', KEYS[key + at - 2]) end
    end
  end
  key = key + 4
end
out[2] = lag
return cmsgpack.pack(out)
