-- Runs entries on token-bucket cells, each at most once.
--
-- KEYS     per group four hashes: the generations base .. base+3 of one tag, class and bin
-- ARGV[1]  numbers (big-endian float64): time in us since 1970 (0: ask TIME), number of groups;
--            per group: length us, ticks per us, base, number of entries, number of runs;
--              per run: op, n, emission, depth, ceiling, number of entries;
--                op 6 (lease), per entry, in place of the run's n: n, epoch, settled, returned, take, piece, presence
-- ARGV[2]  and on: the fields of the entries, in order; none stands twice in a group
-- returns  a MessagePack array: time, lag us, and per entry: granted, level (TAT - now), or a code and 0:
--            -1  the cell or its hash is damaged: this entry did not run
--            -2  the time is outside generations base+1 .. base+3: this entry did not run
--          and after them, if the op is 6: taken, epoch, contenders
--
-- A cell is its TAT or, while tokens are out on lease, "TAT epoch out before seen seen_before": the fields
-- of limit.Cell. TAT and epoch count from the start of the generation, except that an epoch of ARGV or of a reply
-- counts from 1970. An epoch is limit.LeaseTTL, 2 s.
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
local function apply(op, n, emission, depth, ceiling, tat, now)
  if tat < now then tat = now end
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
  elseif op == 5 then
    return 0, now, true
  end
  return 0, tat, false
end

-- The twin of limit.Terms.ApplyLeased, bit for bit: for op 6, and for every op on a cell that is no plain TAT. shift is
-- span if the cell was read from the generation before, first the epoch with which the one in force began. Returns
-- granted, the new TAT, what to store if anything, and taken, epoch, contenders.
--
-- Where a product may be beyond 2^53, it is cut to depth, which is below.
local function leased(op, n, emission, depth, ceiling, now, cell, tat, shift, span, ttl, first,
    settles, settled, returned, take, piece, presence)
  local epoch, out, before, seen, older = 0, 0, 0, 0, 0
  if cell and not tat then
    tat, epoch, out, before, seen, older = string.match(cell, '^(-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
    if tat then
      tat, epoch, out, before, seen, older = tonumber(tat), tonumber(epoch), tonumber(out), tonumber(before), tonumber(seen), tonumber(older)
      local valid = epoch * ttl < span and max(out, before) <= 2^40 and max(seen, older) <= 2^25
      tat, epoch = valid and tat - shift, epoch - shift / ttl
    end
  end
  if not (tat and tat % 1 == 0 and tat < 1e14 and tat > -1e14) then
    if op == 5 then return 0, now, string.format('%d', now) end
    return -1, now, nil, 0, 0, 0
  end

  local function filled(at) return at + math.min((out + before) * emission, depth) end
  local current = floor(now / ttl)
  if out + before + seen + older == 0 then epoch = current end
  for _ = 1, 2 do
    if epoch < current then
      tat = max(tat, filled((epoch + 1) * ttl))
      epoch, out, before, seen, older = epoch + 1, 0, out, 0, seen
    end
  end
  epoch = max(epoch, current)

  local granted, written, taken, contenders
  tat = max(tat, filled(now))
  if op ~= 6 then
    granted, tat, written = apply(op, n, emission, depth, ceiling, tat, now)
    tat = max(tat, filled(now))
  else
    if first + epoch == settles then
      settled = math.min(settled, out)
      out = out - settled
    elseif first + epoch - 1 == settles then
      settled = math.min(settled, before)
      before = before - settled
    else
      settled = 0
    end
    tat = max(tat - math.min(math.min(returned, settled) * emission, depth), filled(now))

    seen = math.min(seen + presence, 2^25)
    local part = math.min(256, floor(max(0, now - epoch * ttl) * 256 / ttl))
    contenders = max(1, floor((seen * 256 + older * (256 - part)) / 65536))
    local free = floor(max(0, now + depth - tat) / emission)
    taken = math.min(take, free)
    taken = taken - taken % math.max(1, piece)
    free = free - taken
    local share = floor(free / (contenders + 1))
    if taken < take then share = 0 elseif share == 0 and take > 0 and free > 0 then share = 1 end
    granted = math.min(n, share, 2^40 - out)
    out = out + granted
    tat, written = tat + (taken + granted) * emission, true
  end

  if not written then
    cell = nil
  elseif out + before + seen + older == 0 then
    cell = string.format('%d', tat)
  else
    cell = string.format('%d %d %d %d %d %d', tat, epoch, out, before, seen, older)
  end
  return granted, tat, cell, taken, first + epoch, contenders
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
    local settles, settled, returned, take, piece, presence, taken, epoch, contenders
    for _ = 1, entries do
      arg, c = arg + 1, c + 1
      local granted, tat, dirty = failed, now, false
      if op == 6 then
        n, settles, settled, returned, take, piece, presence, at = read('>ddddddd', numbers, at)
        taken, epoch, contenders = 0, 0, 0
      end
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
        if tat and op < 6 and tat % 1 == 0 and tat < 1e14 and tat > -1e14 then
          granted, tat, dirty = apply(op, n, emission, depth, ceiling, tat, now)
        else
          granted, tat, cell, taken, epoch, contenders = leased(op, n, emission, depth, ceiling, now,
            cell, tat, cells[c] and 0 or span, span, 2000000 * unit, (base + g - 1) * length / 2000000,
            settles, settled, returned, take, piece, presence)
          if cell then
            put[p + 1], put[p + 2], p = args[arg], cell, p + 2
          end
        end
      end
      if dirty then
        put[p + 1], put[p + 2], p = args[arg], format('%d', tat), p + 2
      end
      out[o + 1], out[o + 2], o = granted, tat - now, o + 2
      if op == 6 then
        out[o + 1], out[o + 2], out[o + 3], o = taken, epoch, contenders, o + 3
      end
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
