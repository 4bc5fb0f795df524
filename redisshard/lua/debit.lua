-- Runs entries on token-bucket cells, each at most once.
--
-- KEYS     per group four hashes: the generations base .. base+3 of one tag, class and bin
-- ARGV[1]  numbers (big-endian float64): time in us since 1970 (0: ask TIME), number of groups;
--            per group: length us, ticks per us, base, number of entries, number of runs;
--              per run: op, n, emission, depth, ceiling, number of entries
-- ARGV[2]  and on: the fields of the entries, in order; none stands twice in a group
-- returns  a MessagePack array: time, lag us, and per entry: granted, level (TAT - now), or a code and 0:
--            -1  the cell or its hash is damaged: this entry did not run
--            -2  the time is outside generations base+1 .. base+3: this entry did not run
--
-- Field '~' of a hash is its clock: the newest time of a write, in ticks, recorded in steps of
-- span/4096; or span, once a newer generation was opened. Time never runs back past it.
local call, pcall, floor, num, max, format = redis.call, redis.pcall, math.floor, tonumber, math.max, string.format
local read, args = struct.unpack, ARGV
local numbers = args[1]
local time, groups, at = read('>dd', numbers)
if time == 0 then
  local t = call('TIME')
  time = t[1] * 1000000 + t[2]
end

-- The twin of limit.Terms.Apply, bit for bit. Returns granted, the new TAT, whether to store it.
local function apply(op, n, emission, depth, ceiling, step, tat, now)
  local dirty = tat > now + ceiling + step
  if dirty then tat = now + depth elseif tat < now then tat = now end
  local free = now + depth - tat
  if op == 2 then
    if n > 0 and free >= emission then
      local granted = floor(free / emission)
      if granted > n then granted = n end
      return granted, tat + granted * emission, true
    end
  elseif op == 1 then
    if n > 0 and n * emission <= free then return n, tat + n * emission, true end
  elseif op == 3 then
    local granted = floor((now + ceiling - tat) / emission)
    if granted > n then granted = n end
    if granted > 0 then return granted, tat + granted * emission, true end
  elseif op == 4 then
    local granted = math.min(n, floor(depth / emission))
    if granted > 0 and tat > now then return granted, max(now, tat - granted * emission), true end
  end
  return 0, tat, dirty
end

local out, o, lag, key, arg = {time, 0, 0, 0}, 2, 0, 0, 1
for _ = 1, groups do
  local length, unit, base, count, runs
  length, unit, base, count, runs, at = read('>ddddd', numbers, at)
  local span = length * unit

  -- The generation in force: that of the time, or a newer one if it was opened before the clock was set back.
  local g, cells, clock = floor(time / length) - base + 1, nil, nil
  local failed = -2
  while g >= 2 and g <= 4 do
    cells = pcall('HMGET', KEYS[key + g], '~', unpack(args, arg + 1, arg + count))
    if cells.err then
      cells, failed = nil, -1
      break
    end
    clock = num(cells[1])
    clock = clock and floor(clock) -- a stranger's fraction would get into every answer
    if clock and clock < span or not clock and (g == 4 or call('EXISTS', KEYS[key + g + 1]) == 0) then break end
    g, cells = g + 1, nil
  end

  local now, step, old, o1 = 0, span / 4096, nil, 0
  if cells then
    now = floor((time - (base + g - 1) * length) * unit)
    if clock and clock > now then
      lag = max(lag, math.ceil((clock - now) / unit))
      now = clock
    end
    local fields, f = nil, 0
    for j = 1, count do
      if not cells[j + 1] then
        f = f + 1
        fields = fields or {}
        fields[f] = args[arg + j]
      end
    end
    if f > 0 then old = pcall('HMGET', KEYS[key + g - 1], unpack(fields)) end
  end

  local put, p, c = {KEYS[key + g] or false, nil, nil, nil}, 1, 1
  for _ = 1, runs do
    local op, n, emission, depth, ceiling, entries
    op, n, emission, depth, ceiling, entries, at = read('>dddddd', numbers, at)
    for _ = 1, entries do
      arg, c = arg + 1, c + 1
      local granted, tat, dirty = failed, now, false
      if cells then
        local cell = cells[c]
        if cell then
          tat = num(cell)
        else
          o1 = o1 + 1
          cell = old[o1]
          if cell then
            tat = num(cell)
            tat = tat and tat - span
          elseif old.err then
            tat = nil
          end
        end
        if op == 5 then
          granted, tat, dirty = 0, now, true
        elseif tat and tat == floor(tat) and tat < 1e14 and tat > -1e14 then
          granted, tat, dirty = apply(op, n, emission, depth, ceiling, step, tat, now)
        else
          granted, tat = -1, now
        end
      end
      if dirty then
        put[p + 1], put[p + 2], p = args[arg], format('%d', tat), p + 2
      end
      out[o + 1], out[o + 2], o = granted, tat - now, o + 2
    end
  end

  if p > 1 then
    local due = not clock or now >= clock + step
    if due then
      put[p + 1], put[p + 2] = '~', format('%d', now)
    end
    call('HSET', unpack(put))
    if due then
      call('PEXPIRE', put[1], math.ceil(((base + g + 1) * length - time) / 1000) + 1000)
    end
    if not clock then -- a generation begins: close the one before, drop the one before that
      if call('EXISTS', KEYS[key + g - 1]) == 1 then
        pcall('HSET', KEYS[key + g - 1], '~', format('%d', span))
        call('PEXPIRE', KEYS[key + g - 1], math.ceil(((base + g) * length - time) / 1000) + 1000)
      end
      if g > 2 then call('UNLINK', KEYS[key + g - 2]) end
    end
  end
  key = key + 4
end
out[2] = lag
return cmsgpack.pack(out)
