"""What Redis does with what a process tells it, in one step and by its own clock.

The law of the file: telling the same again changes nothing, and what comes late does nothing.

A process says of its calls which are over, which hold a slot and which want one. Slots are leases: a sorted set of
calls by the time they lapse. Who waits stands in a queue by arrival, and beside it by the time until which it is
believed to be alive. A slot that goes to a call of another process is offered: it lapses as soon as a call that waits
would, unless that process, which is told, takes it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Reply: TypeAlias = Any

TELL = """
local leases, queue, alive, told = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit, lease, patience = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local me, number, channel = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local over, holds = tonumber(ARGV[7]), tonumber(ARGV[8])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if number <= tonumber(redis.call('GET', told) or '0') then
  return {-1, -1, {}}
end
redis.call('SET', told, number, 'PX', 600000)

local function leave(call)
  redis.call('ZREM', queue, call)
  redis.call('ZREM', alive, call)
end

for at = 9, 8 + over do
  redis.call('ZREM', leases, ARGV[at])
  leave(ARGV[at])
end
for at = 9 + over, 8 + over + holds do
  redis.call('ZADD', leases, now + lease, ARGV[at])
  leave(ARGV[at])
end
redis.call('ZREMRANGEBYSCORE', leases, '-inf', now)
local given = {}
local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2] or '0'
for at = 9 + over + holds, #ARGV do
  local call = ARGV[at]
  if redis.call('ZSCORE', leases, call) then
    redis.call('ZADD', leases, now + lease, call)
    given[#given + 1] = call
  else
    if not redis.call('ZSCORE', queue, call) then
      last = last + 1
      redis.call('ZADD', queue, last, call)
    end
    redis.call('ZADD', alive, now + patience, call)
  end
end
for _, call in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', now)) do
  leave(call)
end

local offers = {}
local free = limit - redis.call('ZCARD', leases)
if free > 0 then
  for _, call in ipairs(redis.call('ZRANGE', queue, 0, free - 1)) do
    local owner = string.match(call, '^[^.]*')
    leave(call)
    if owner == me then
      redis.call('ZADD', leases, now + lease, call)
      given[#given + 1] = call
    else
      redis.call('ZADD', leases, now + patience, call)
      offers[owner] = (offers[owner] or '') .. ' ' .. call
    end
  end
end
for owner, calls in pairs(offers) do
  redis.call('PUBLISH', channel .. owner, calls)
end

for _, key in ipairs({leases, queue, alive}) do
  redis.call('PEXPIRE', key, 2 * lease)
end
return {redis.call('ZCARD', leases), redis.call('ZCARD', queue), given}
"""

COUNT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return {redis.call('ZCOUNT', KEYS[1], now, '+inf'), redis.call('ZCOUNT', KEYS[2], now, '+inf')}
"""


def keys(account: str) -> tuple[str, str, str]:
    """Leases, queue and signs of life of an account, which lie on one node."""
    begin = f"stepwell:limit:{{{account}}}"
    return f"{begin}:leases", f"{begin}:queue", f"{begin}:alive"


def channel(process: str = "") -> str:
    """Where a process hears of slots that were given to its calls; without one, what all of them begin with."""
    return f"stepwell:limit:offers:{process}"
