-- Runs entries on cells, each at most once.
--
-- KEYS     per group four hashes: the generations base .. base+3 of one tag, class and bin
-- ARGV[1]  numbers (big-endian float64): time in us since 1970 (0: ask TIME), number of groups;
--            per group: length us, ticks per us, base, number of entries, number of runs;
--              per run: op, n, emission, depth, ceiling, number of entries;
--                if op > 5, n says how many numbers each entry has of its own:
--                  6         lease: n, epoch, settled, returned, take, piece, presence, origin
--                  7         touch: ops, threshold, ways, stride, end, then a split as it stands in a cell
--                  9         merge: n, start, end, free
--                  16 + op   op on a part: start, until, held (room that it takes there), level (at which the part
--                            begins), then n, or all that a lease has; the run's terms are the part's
--                  32 + op   op (1 to 6) on a window: n, epoch, piece, and of a lease returned, take, presence; the run has,
--                            in place of its terms, the window's length in us, the limit and the algorithm: 1 sliding
--                            window, 2 fixed window, 3 sliding log (which has no leases)
-- ARGV[2]  and on: the fields of the entries, in order; none stands twice in a group
-- returns  a MessagePack array: time, lag us, and per entry: granted, level (TAT - now), or a code and 0:
--            -1  the cell or its hash is damaged: this entry did not run
--            -2  the time is outside generations base+1 .. base+3: this entry did not run
--            -3  the bucket is not divided as the entry says: this entry did not run
--          and after them, if it is a lease: taken, epoch, contenders, and on a part its term in ns; if it is on a window, where
--          level is what is used: left us, epoch, what fades, or of a log the wait in us, and of a lease taken, contenders. At the end,
--          for each entry on a home that is divided, or was not long ago: its number, from 0, and the split
--
-- A field is a bucket's id, and its cell one of
--   TAT
--   TAT epoch out before seen seen_before                                                limit.Leases
--   TAT epoch out before seen seen_before start until ways stride held level closing     limit.Split
-- or 0xfe, index, start (8 bytes, big-endian), id: a part
--   TAT
--   TAT epoch out before seen seen_before
--   TAT epoch out before seen seen_before 1                                              the same, closed
-- or 0xfd, id, of which only op 7 knows
--   window ops before                                                                    limit.Load
-- or, of a window, which has hashes of its own
--   index count before                                                                   limit.Window
--   index count before epoch seen seen_before                                            limit.Window, if leases are asked for
--   float64s, big-endian: index, then the hits                                           limit.Window, of a sliding log
-- TAT and epoch count from the start of the generation, epochs of ARGV and replies, start and until (us) from 1970. An epoch is
-- limit.LeaseTTL, 2 s. A TAT of limit.MaxTicks or more is damage: no terms lead there.
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

-- From here to the loop: cells with a record. Names and arithmetic are those of limit/lease.go and limit/divide.go, bit for
-- bit; where a product may be beyond 2^53 it is cut to depth, which is below. Making functions costs, so they are made when
-- a call first needs them.

-- What entries need that concern a division. c is a cell, s its split, t are terms; pass and lease are those of records.
local function divisions(pass, lease)
  local floor, max, min, match, read, format = math.floor, math.max, math.min, string.match, struct.unpack, string.format
  local call, pcall, num = redis.call, redis.pcall, tonumber
  local now, unit, ttl, span, zero, micros, hash, earlier -- of the group

  local function ticks(us) return floor((us - zero) * unit) end

  local function filled(c, t, held) return now + min((c.out + c.before + held) * t.emission, t.depth) end

  local function passed(c, t, time, held, freed)
    c.tat, c.epoch, c.out, c.before, c.seen, c.older, held = pass(c.tat, c.epoch, c.out, c.before, c.seen, c.older,
      t.emission, t.depth, ttl, time, held, freed)
    return held
  end

  local function leased(c, t, held, at, start)
    local granted, taken, epoch, contenders
    granted, c.tat, c.out, c.before, c.seen, taken, epoch, contenders = lease(c.tat, c.epoch, c.out, c.before, c.seen, c.older,
      t.emission, t.depth, ttl, now, held, zero, at, start)
    return granted, taken, epoch, contenders
  end

  local function fits(start, ends) return start <= micros + 1000000 and ends <= micros + 4000000 end

  local function whole(s) s.ways, s.stride, s.level, s.closing = 0, 0, 0, 0 end

  local function empty(c)
    c.tat, c.epoch, c.out, c.before, c.seen, c.older = now, floor(now / ttl), 0, 0, 0, 0
  end

  -- Returns what takes room besides the record; nil while the bucket is divided.
  local function open(c, t)
    local s = c.split
    if not s then
      passed(c, t, now, 0, 0)
      return 0
    end
    if s.ways > 0 then
      local last = ticks(s.ends + 500000)
      if last > now then
        empty(c)
        return nil
      end
      c.tat = last + t.depth
      whole(s)
    end
    s.held = passed(c, t, now, s.held, ticks(s.start + 2000000))
    if s.held == 0 and micros >= s.ends + 500000 and micros >= s.start + 4000000 then c.split = nil end
    return s.held
  end

  -- limit.Load: counts entries, and returns those per second.
  local function count(id, ops)
    local field = '\253' .. id
    local text = call('HMGET', hash, field)[1] or pcall('HMGET', earlier, field)[1] or ''
    local window, n, before = match(text, '^(%d+) (%d+) (%d+)$')
    window, n, before = num(window) or 0, num(n) or 0, num(before) or 0
    if window >= 2^40 or max(n, before) > 2^30 then window, n, before = 0, 0, 0 end
    local second = floor(micros / 1000000)
    if window ~= second then
      window, n, before = second, 0, window == second - 1 and n or 0
    end
    n = min(n + ops, 2^30)
    call('HSET', hash, field, format('%d %d %d', window, n, before))
    return n + floor(before * (1000000 - micros % 1000000) / 1000000)
  end

  local function touch(c, t, at, id)
    local ops, threshold, ways, stride, over, known = 0, 0, 0, 0, 0, {}
    ops, threshold, ways, stride, over, at = read('>ddddd', numbers, at)
    known.start, known.ends, known.ways, known.stride, known.held, known.level, known.closing = read('>ddddddd', numbers, at)
    local held = open(c, t)
    local newer = known.start > (c.split and c.split.start or 0)
    if newer and known.ways > 1 and known.ways <= 64 and fits(known.start, known.ends) and micros < known.ends + 500000 then
      empty(c)
      c.split, held = known, nil
    end
    if not held and known.start == c.split.start then c.split.closing = max(c.split.closing, known.closing) end
    local load, s = count(id, ops), c.split
    local ends = micros + min(3000000, floor((span - t.ceiling) / unit) - 500000)
    if held then
      ways = min(ways, 64, t.burst)
      local paused = s and micros < s.ends + 500000
      if ways > 1 and threshold > 0 and load >= threshold and over == 0 and not paused then
        c.split = {start = max(micros, (s and s.start or 0) + 1), ends = ends, ways = ways, stride = stride,
          held = min(c.out + c.before + held, 2^40), level = max(0, c.tat - now), closing = 0}
        empty(c)
      end
    elseif s.closing == 0 then
      if over == 1 or load * 4 < threshold and micros >= s.start + 2000000 then
        s.closing = 1
      else
        s.ends = max(s.ends, ends)
      end
    end
  end

  local function merge(c, t, at)
    local n, start, over, free = read('>dddd', numbers, at)
    local held, s = open(c, t), c.split
    if held or s.closing == 0 or s.start ~= start then return false end
    c.tat = now + t.depth - max(t.depth - t.ceiling, min(free, t.depth))
    c.out = min(n, 2^40)
    whole(s)
    if ticks(s.start + 2000000) <= now then s.held = 0 end
    if over == 1 then s.ends = micros + 10000000 end
    c.tat = max(c.tat, filled(c, t, s.held))
    return true
  end

  -- Returns granted, level, whether to store the cell, and of a lease taken, epoch, contenders, term.
  local function part(op, c, t, exists, at, id)
    local start, ends, held, first, from = read('>dddd', numbers, at)
    local left = ends - 500000 - micros
    if left <= 0 and op == 8 and start > 0 then
      call('HDEL', hash, id)
      pcall('HDEL', earlier, id)
    end
    if left <= 0 or not fits(start, ends) or c.closed and op ~= 8 then return -3, 0, false end
    if not exists then c.tat = now + (micros <= start + 2000000 and first or t.depth) end
    held = passed(c, t, now, held, ticks(start + 3000000))
    if op == 8 then
      c.closed = true
      return c.out + c.before, now + t.depth - c.tat, true
    elseif op == 6 then
      local granted, taken, epoch, contenders = leased(c, t, held, from)
      return granted, max(0, c.tat - now), true, taken, epoch, contenders, min(2e9, left * 1000)
    end
    local n, granted, tat, dirty = read('>d', numbers, from), nil, nil, nil
    granted, tat, dirty = apply(op, n, t.emission, t.depth, t.ceiling, c.tat, now)
    c.tat = max(tat, filled(c, t, held))
    return granted, max(0, c.tat - now), dirty or not exists
  end

  -- Reads what a cell has besides its leases; nil if it is damaged.
  local function parse(c, rest, part)
    if rest == '' then return c end
    if part then
      c.closed = true
      return rest == ' 1' and c or nil
    end
    local s, start, ends, ways, stride, held, level, closing = {}, match(rest, '^ (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([01])$')
    if not start then return nil end
    s.start, s.ends, s.ways, s.stride = start + 0, ends + 0, ways + 0, stride + 0
    s.held, s.level, s.closing = held + 0, level + 0, closing + 0
    c.split = s
    return s.start > 0 and max(s.start, s.ends) < 2^52 and s.ways <= 64 and s.stride < 2^20 and s.held <= 2^40 and
      s.level < 1e14 and c or nil
  end

  local function text(c)
    local s = c.split
    if not s and not c.closed and c.out + c.before + c.seen + c.older == 0 then return format('%d', c.tat) end
    local record = format('%d %d %d %d %d %d', c.tat, c.epoch, c.out, c.before, c.seen, c.older)
    if c.closed then return record .. ' 1' end
    return s and record .. format(' %d %d %d %d %d %d %d', s.start, s.ends, s.ways, s.stride, s.held, s.level, s.closing) or record
  end

  -- As records' function; c is nil if the cell is damaged, rest what its text has besides leases.
  return function(op, n, t, c, rest, exists, at, id, ...)
    now, unit, span, zero, hash = ...
    ttl, micros, hash, earlier = 2000000 * unit, zero + floor(now / unit), KEYS[hash], KEYS[hash - 1]
    if rest and c then c = parse(c, rest, op > 16) end
    if not c then
      if op % 16 ~= 5 then return -1, 0 end
      c = {tat = now, epoch = 0, out = 0, before = 0, seen = 0, older = 0}
    end
    local granted, level, dirty, taken, epoch, contenders, term = 0, nil, true, nil, nil, nil, nil
    if op > 16 then
      granted, level, dirty, taken, epoch, contenders, term = part(op - 16, c, t, exists, at, id)
    elseif op == 7 then
      touch(c, t, at, id)
    elseif op == 9 then
      dirty = merge(c, t, at)
      granted = dirty and 1 or 0
    else
      local held = open(c, t)
      if not held then
        granted, level, dirty = -3, 0, false
      elseif op == 6 then
        granted, taken, epoch, contenders = leased(c, t, held, at, c.split and c.split.start)
      else
        granted, c.tat, dirty = apply(op, n, t.emission, t.depth, t.ceiling, c.tat, now)
        c.tat = max(c.tat, filled(c, t, held))
      end
    end
    return granted, level or max(0, c.tat - now), dirty and text(c) or nil, c.split, taken, epoch, contenders, term
  end
end

-- What entries need that find a record or make one, or are on windows. held, freed and start are for divided buckets.
local function records()
  local floor, max, min, match, read, format = math.floor, math.max, math.min, string.match, struct.unpack, string.format

  -- Without tables, since most cells with a record are of whole buckets. Returns the cell, and what is left of held.
  local function pass(tat, epoch, out, before, seen, older, emission, depth, ttl, time, held, freed)
    local current = floor(time / ttl)
    if freed <= epoch * ttl then held = 0 end
    if out + before + seen + older == 0 then epoch = current end
    for _ = 1, 2 do
      if epoch >= current then break end
      local last = (epoch + 1) * ttl
      if held > 0 and freed <= last then
        tat, held = max(tat, freed + min((out + before + held) * emission, depth)), 0
      end
      tat = max(tat, last + min((out + before + held) * emission, depth))
      epoch, out, before, seen, older = epoch + 1, 0, out, 0, seen
    end
    if epoch < current then epoch = current end
    if held > 0 and freed <= time then
      tat, held = max(tat, freed + min((out + before + held) * emission, depth)), 0
    end
    return max(tat, time + min((out + before + held) * emission, depth)), epoch, out, before, seen, older, held
  end

  -- Settles and grants what an entry asks whose numbers are at 'at'. Only a record that began at its origin, if one is
  -- given, takes its account.
  local function lease(tat, epoch, out, before, seen, older, emission, depth, ttl, now, held, zero, at, start)
    local n, settles, settled, returned, take, piece, presence, origin = read('>dddddddd', numbers, at)
    local since = now - epoch * ttl
    epoch = zero / 2000000 + epoch
    if start and start ~= origin then
      settled = 0
    elseif settles == epoch then
      settled = min(settled, out)
      out = out - settled
    elseif settles == epoch - 1 then
      settled = min(settled, before)
      before = before - settled
    else
      settled = 0
    end
    tat = max(tat - min(min(returned, settled) * emission, depth), now + min((out + before + held) * emission, depth))

    seen = min(seen + presence, 2^25)
    local part = min(256, floor(max(0, since) * 256 / ttl))
    local contenders = max(1, floor((seen * 256 + older * (256 - part)) / 65536))
    local free = floor(max(0, now + depth - tat) / emission)
    local taken = min(take, free)
    taken = taken - taken % max(1, piece)
    free = free - taken
    local share = floor(free / (contenders + 1))
    if taken < take then share = 0 elseif share == 0 and take > 0 and free > 0 then share = 1 end
    local granted = min(n, share, 2^40 - out)
    return granted, tat + (taken + granted) * emission, out + granted, before, seen, taken, epoch, contenders
  end

  -- What entries on windows need: the twin of limit.Terms.ApplyWindow, bit for bit.
  local function windows()
    local floor, ceil, max, min, num, pack = math.floor, math.ceil, math.max, math.min, tonumber, struct.pack
    local match, format, sub, rep, read = string.match, string.format, string.sub, string.rep, struct.unpack

    local function grantable(op, n, used, limit)
      local free = max(0, limit - used)
      if op == 1 and n > free then return 0 end
      return max(0, min(n, free))
    end

    -- Grants a lease. Returns granted, taken, contenders, and who asks.
    local function lease(n, piece, at, free, micros, epoch, seen, older)
      local _, take, presence = read('>ddd', numbers, at + 24)
      local current = floor(micros / 2000000)
      if epoch == current - 1 then
        seen, older = 0, seen
      elseif epoch < current then
        seen, older = 0, 0
      end
      epoch, seen = max(epoch, current), min(seen + presence, 2^25)
      local part = min(256, floor(max(0, micros - epoch * 2000000) * 256 / 2000000))
      local contenders = max(1, floor((seen * 256 + older * (256 - part)) / 65536))
      local taken = min(take, free)
      taken = taken - taken % max(1, piece)
      free = free - taken
      local share = floor(free / (contenders + 1))
      if taken < take then share = 0 elseif share == 0 and take > 0 and free > 0 then share = 1 end
      return max(0, min(n, share)), taken, contenders, epoch, seen, older
    end

    -- Both return granted, level, what to store if anything, left, epoch, what fades or the wait, and of a lease taken, contenders.
    local function counted(op, n, epoch, piece, length, limit, slides, cell, micros, ends, at)
      local index, count, before, current, asked, seen, older = 0, 0, 0, floor(micros / length), 0, 0, 0
      if cell then
        local i, c, b, rest = match(cell, '^(%d+) (%d+) (%d+)(.*)$')
        index, count, before = num(i) or -1, num(c), num(b)
        if rest and rest ~= '' then
          asked, seen, older = match(rest, '^ (%d+) (%d+) (%d+)$')
          asked, seen, older = num(asked) or 2^53, num(seen) or 0, num(older) or 0
        end
        if index < 0 or index * length >= ends or max(count, before) > 2^40 or asked * 2000000 >= ends or max(seen, older) > 2^25 then
          if op ~= 5 then return -1, 0 end
          index, count, before, asked, seen, older = 0, 0, 0, 0, 0, 0
        end
      end
      if index < current - 1 then
        count, before = 0, 0
      elseif index < current then
        count, before = 0, count
      end
      if not slides then before = 0 end
      index = max(index, current)
      local left, faded = (index + 1) * length - micros, 0
      if before > 0 then
        local step = ceil(length / 4096)
        local steps = ceil(length / step)
        faded = floor((before * (steps - floor(max(0, length - left) / step)) + steps - 1) / steps)
      end
      local granted, dirty, taken, contenders
      if op == 6 then
        if epoch == index then count = count - max(0, min(read('>d', numbers, at + 24), count)) end
        granted, taken, contenders, asked, seen, older = lease(n, piece, at, max(0, limit - count - faded), micros, asked, seen, older)
        count, dirty = count + taken + granted, true
      elseif op == 4 then
        granted = epoch == index and max(0, min(n, count)) or 0
        count, dirty = count - granted, granted > 0
      elseif op == 5 then
        granted, count, before, faded, dirty = 0, 0, 0, 0, true
      else
        granted = grantable(op, n, count + faded, limit)
        count, dirty = count + granted, granted > 0
      end
      if not dirty then
        cell = nil
      elseif seen + older == 0 then
        cell = format('%d %d %d', index, count, before)
      else
        cell = format('%d %d %d %d %d %d', index, count, before, asked, seen, older)
      end
      return granted, count + faded, cell, left, index, before, taken, contenders
    end

    local function logged(op, n, epoch, piece, length, limit, cell, micros, ends)
      cell = cell or pack('>d', 0)
      local damaged, used = false, #cell / 8 - 1 -- of the times of hits: the i-th is at 8 * i + 1
      if used % 1 ~= 0 or used < 0 or used > 1000 then
        cell, damaged, used = pack('>d', 0), true, 0
      end
      local function hit(i)
        local t = read('>d', cell, 8 * i + 1)
        if t % 1 ~= 0 or t < 0 or t >= ends then
          damaged = true
          return 0
        end
        return t
      end
      -- How many are before a time.
      local function before(t)
        local low, high = 1, used + 1
        while low < high do
          local middle = floor((low + high) / 2)
          if hit(middle) < t then low = middle + 1 else high = middle end
        end
        return low - 1
      end
      local now = max(hit(0), micros)
      local gone = before(now - length + 1)
      cell, used = pack('>d', now) .. sub(cell, 8 * gone + 9), used - gone
      local granted, dirty = 0, false
      if op == 5 then
        cell, used, dirty, damaged = sub(cell, 1, 8), 0, true, false
      elseif op == 4 then
        local first, after = before(epoch), before(epoch + 1)
        granted = max(0, min(n, after - first))
        cell, used = sub(cell, 1, 8 * (after - granted) + 8) .. sub(cell, 8 * after + 9), used - granted
        dirty = granted > 0
      else
        granted = grantable(op, n, used, limit)
        cell, used, dirty = cell .. rep(pack('>d', now), granted), used + granted, granted > 0
      end
      local left, wait = 0, 0
      if used > 0 then
        left = hit(used) + length - micros
        if piece == 0 then piece = n end
        local k = used + piece - limit
        if k > 0 and piece <= limit then wait = hit(k) + length - micros end
      end
      if damaged then return -1, 0 end
      return granted, used, dirty and cell or nil, left, now, wait
    end

    -- cell is false if there is none, and nil with no tat if its hash is damaged. at is where the entry's numbers are.
    return function(op, length, limit, algorithm, cell, tat, at, micros, ends)
      if not cell and not tat and op ~= 5 then return -1, 0 end
      local n, epoch, piece = read('>ddd', numbers, at)
      if algorithm == 3 then return logged(op, n, epoch, piece, length, limit, cell, micros, ends) end
      return counted(op, n, epoch, piece, length, limit, algorithm == 1, cell, micros, ends, at)
    end
  end

  local divided, windowed
  -- Returns granted, level, what to store if anything, the split of a home, and of a lease taken, epoch, contenders, term, or what
  -- windows have in place of them.
  return function(op, n, emission, depth, ceiling, cell, tat, shift, at, id, now, unit, span, zero, hash)
    if op > 32 then
      windowed = windowed or windows()
      local granted, level, text, left, index, rest, taken, contenders = windowed(op - 32, emission, depth, ceiling, cell, tat, at,
        zero + now, zero + span)
      return granted, level, text, nil, left, index, rest, taken, contenders
    end
    local epoch, out, before, seen, older, ttl, rest = 0, 0, 0, 0, 0, 2000000 * unit, nil
    if cell and not tat then
      tat, epoch, out, before, seen, older, rest = match(cell, '^(-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
      if tat then
        tat, epoch, out, before, seen, older = tat - shift, epoch + 0, out + 0, before + 0, seen + 0, older + 0
        if epoch * ttl >= span or max(out, before) > 2^40 or max(seen, older) > 2^25 then tat = nil end
        epoch = epoch - shift / ttl
      end
    end
    if tat and not (tat % 1 == 0 and tat < 1e14 and tat > -1e14) then tat = nil end
    if op > 6 or rest and rest ~= '' then
      divided = divided or divisions(pass, lease)
      return divided(op, n, {emission = emission, depth = depth, ceiling = ceiling, burst = depth / emission},
        tat and {tat = tat, epoch = epoch, out = out, before = before, seen = seen, older = older}, rest, cell, at, id,
        now, unit, span, zero, hash)
    end
    if not tat then
      if op ~= 5 then return -1, 0 end
      tat, epoch, out, before, seen, older = now, 0, 0, 0, 0, 0
    end
    local granted, dirty, taken, since, contenders = 0, true, nil, nil, nil
    tat, epoch, out, before, seen, older = pass(tat, epoch, out, before, seen, older, emission, depth, ttl, now, 0, 0)
    if op == 6 then
      granted, tat, out, before, seen, taken, since, contenders = lease(tat, epoch, out, before, seen, older,
        emission, depth, ttl, now, 0, zero, at)
    else
      granted, tat, dirty = apply(op, n, emission, depth, ceiling, tat, now)
      tat = max(tat, now + min((out + before) * emission, depth))
    end
    if not dirty then
      cell = nil
    elseif out + before + seen + older == 0 then
      cell = format('%d', tat)
    else
      cell = format('%d %d %d %d %d %d', tat, epoch, out, before, seen, older)
    end
    return granted, max(0, tat - now), cell, nil, taken, since, contenders
  end
end

local run
local out, o, lag, key, arg = {time, 0, 0, 0}, 2, 0, 0, 1
local splits
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
    local leases = op == 6 or op == 22 or op > 32
    for _ = 1, entries do
      arg, c = arg + 1, c + 1
      local granted, level, dirty, taken, epoch, contenders, term, more = failed, 0, nil, nil, nil, nil, nil, nil
      if cells then
        local cell, tat = cells[c], now
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
          level = tat - now
          if dirty then
            put[p + 1], put[p + 2], p = args[arg], format('%d', tat), p + 2
          end
        else
          local begin, start, ends, held, first, tokens, micros = (base + g - 1) * length, nil, nil, nil, nil, nil, nil
          if op > 16 and op < 22 and tat and tat % 1 == 0 and tat < 1e14 and tat > -1e14 then
            start, ends, held, first, tokens = read('>ddddd', numbers, at)
            micros = begin + floor(now / unit)
          end
          if held == 0 and start <= micros + 1000000 and ends <= micros + 4000000 and micros < ends - 500000 then
            -- A part without leases is a plain cell, so it costs hardly more than one.
            if not cell then tat = now + (micros <= start + 2000000 and first or depth) end
            granted, tat, dirty = apply(op - 16, tokens, emission, depth, ceiling, tat, now)
            level = tat - now
            cell = (dirty or not cell) and format('%d', tat)
          else
            run = run or records()
            local split
            granted, level, cell, split, taken, epoch, contenders, term, more = run(op, n, emission, depth, ceiling, cell, tat,
              cells[c] and 0 or span, at, args[arg], now, unit, span, begin, key + g)
            if split then
              splits = splits or {}
              splits[#splits + 1], splits[#splits + 2] = arg - 2, split
            end
          end
          if cell then
            put[p + 1], put[p + 2], p = args[arg], cell, p + 2
          end
        end
      end
      out[o + 1], out[o + 2], o = granted, level, o + 2
      if op > 5 then
        at = at + 8 * n
        if leases then
          out[o + 1], out[o + 2], out[o + 3], o = taken or 0, epoch or 0, contenders or 0, o + 3
          if op == 22 then
            out[o + 1], o = term or 0, o + 1
          elseif op == 38 then
            out[o + 1], out[o + 2], o = term or 0, more or 0, o + 2
          end
        end
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
if splits then
  for i = 1, #splits, 2 do
    local s = splits[i + 1]
    for _, v in ipairs({splits[i], s.start, s.ends, s.ways, s.stride, s.held, s.level, s.closing}) do
      o = o + 1
      out[o] = v
    end
  end
end
return cmsgpack.pack(out)
