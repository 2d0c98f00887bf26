// The registry of scenarios and the runner: one line each, many at a time.
//
// Scenarios mostly wait (for rebalances, retention, compaction), so they run concurrently and each keeps
// to names of its own; the slow ones are started first.

import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual, inspect } from 'node:util'

import { LEADERS_MOVE, Session } from './session.js'

const AT_ONCE = 12
const SECONDS_MAX = 90
/** Some clients retry several times when nodes are killed. */
const SECONDS_MAX_IN_UNREST = 180

const scenarios = []

export function scenario(name, body) {
  scenarios.push({ name, body, slow: false })
}

export function slowScenario(name, body) {
  scenarios.push({ name, body, slow: true })
}

export class Failure extends Error {}

export function expect(actual, wanted, what) {
  if (!isDeepStrictEqual(actual, wanted)) {
    throw new Failure(`${what}: wanted ${brief(wanted)}, got ${brief(actual)}`)
  }
}

export function holds(condition, what) {
  if (!condition) throw new Failure(what)
}

/** Awaits `action`, which must be refused with one of the protocol's errors named. */
export async function refused(action, wanted, what) {
  let result
  try {
    result = await action
  } catch (thrown) {
    const types = errorTypes(thrown)
    holds(types.some(type => [wanted].flat().includes(type)), `${what}: wanted ${wanted}, got ${types} ${thrown.message}`)
    return
  }
  throw new Failure(`${what}: wanted ${wanted}, got ${brief(result)}`)
}

/** The protocol's error names of a failure and all that it wraps, in either client. */
function errorTypes(error) {
  if (!error) return []
  const parts = [...(error.partitions ?? []), ...(error.groups ?? [])].map(part => part.error)
  const inner = [error.cause, ...(error.errors ?? []), ...parts].flatMap(errorTypes)
  return [error.apiId ?? error.type, ...inner].filter(Boolean)
}

export async function eventually(seconds, what, check) {
  const end = Date.now() + seconds * 1000
  for (;;) {
    const value = await check()
    if (value) return value
    holds(Date.now() < end, `not within ${seconds} s: ${what}`)
    await sleep(100)
  }
}

function brief(value) {
  const text = inspect(value, { depth: 5, breakLength: Infinity })
  return text.length <= 160 ? text : `${text.slice(0, 120)}... (${text.length} characters)`
}

/** Runs the chosen scenarios and prints their outcomes; returns how many failed. */
export async function run(nameParts) {
  const chosen = scenarios
    .filter(({ name }) => !nameParts.length || nameParts.some(part => name.includes(part)))
    .sort((a, b) => b.slow - a.slow)
  const runId = randomBytes(3).toString('hex')
  const waiting = [...chosen]
  // A scenario that waits for a lost socket leaves nothing for Node to do, and Node would end in its midst.
  const awake = setInterval(() => {}, 1000)
  let failed = 0
  const worker = async () => {
    while (waiting.length) {
      const { name, body } = waiting.shift()
      const start = Date.now()
      const reason = await attempt(name, body, runId)
      const seconds = ((Date.now() - start) / 1000).toFixed(1)
      if (reason) failed++
      console.log(reason ? `FAIL ${name} ${reason}` : `ok ${name} ${seconds}s`)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  clearInterval(awake)
  console.log(`${chosen.length - failed} passed, ${failed} failed`)
  return failed
}

async function attempt(name, body, runId) {
  const session = new Session(name, runId)
  const seconds = LEADERS_MOVE ? SECONDS_MAX_IN_UNREST : SECONDS_MAX
  const limit = sleep(seconds * 1000, `hangs: no end after ${seconds} s`, { ref: false })
  const reason = await Promise.race([limit, body(session).then(() => undefined, describe)])
  await Promise.race([session.close(), sleep(10_000, undefined, { ref: false })])
  return reason
}

function describe(error) {
  const place = error.stack?.match(/suite\/(?!harness|session)(\w+\.js:\d+)/)
  const text = error instanceof Failure ? error.message : `${error.name}: ${error.message} ${errorTypes(error)}`
  return (text + (place ? ` (${place[1]})` : '')).replaceAll('\n', ' ')
}

// A client's own stray rejection is not a scenario's outcome; what it broke will show.
process.on('unhandledRejection', error => console.error('unhandled:', error.message))
