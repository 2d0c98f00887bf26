// The registry of scenarios and the runner: one line each, many at a time, each with names of its own.

import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { inspect, isDeepStrictEqual } from 'node:util'

import { Session } from './session.js'

const AT_ONCE = 8
const SECONDS_MAX = 60

const scenarios = []

/** `needs` names an environment variable without which there is no such scenario. */
export function scenario(name, body, { needs } = {}) {
  if (!needs || process.env[needs]) scenarios.push({ name, body })
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

/** Awaits `action`, which must be refused with this reply code and a text that contains `text`. */
export async function refused(action, code, text, what) {
  let result
  try {
    result = await action
  } catch (thrown) {
    holds(thrown.code === code && thrown.message.includes(text), `${what}: wanted ${code} ${text}, got ${thrown.code} ${thrown.message}`)
    return
  }
  throw new Failure(`${what}: wanted ${code} ${text}, got ${brief(result)}`)
}

export async function eventually(seconds, what, check) {
  const end = Date.now() + seconds * 1000
  for (;;) {
    const value = await check()
    if (value) return value
    holds(Date.now() < end, `not within ${seconds} s: ${what}`)
    await sleep(50)
  }
}

export function brief(value) {
  const text = inspect(value, { depth: 6, breakLength: Infinity })
  return text.length <= 300 ? text : `${text.slice(0, 240)}... (${text.length} characters)`
}

/** Runs the chosen scenarios and prints their outcomes; returns how many failed. */
export async function run(nameParts) {
  const chosen = scenarios.filter(({ name }) => !nameParts.length || nameParts.some(part => name.includes(part)))
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
  const limit = sleep(SECONDS_MAX * 1000, `hangs: no end after ${SECONDS_MAX} s`, { ref: false })
  const reason = await Promise.race([limit, body(session).then(() => undefined, describe)])
  await Promise.race([session.close().catch(() => {}), sleep(10_000, undefined, { ref: false })])
  return reason
}

function describe(error) {
  const place = error.stack?.match(/suite\/(?!harness|session)(\w+\.js:\d+)/)
  const text = error instanceof Failure ? error.message : `${error.name}: ${error.message}`
  return (text + (place ? ` (${place[1]})` : '')).replaceAll('\n', ' ')
}

// A client's own stray rejection is not a scenario's outcome; what it broke will show.
process.on('unhandledRejection', error => console.error('unhandled:', error.message))
