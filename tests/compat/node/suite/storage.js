// Background work of the broker on stored records: compaction and retention.

import { setTimeout as sleep } from 'node:timers/promises'

import { eventually, expect, holds, refused, scenario, slowScenario } from './harness.js'
import { numbers, text } from './session.js'

const COMPACTED = {
  'cleanup.policy': 'compact',
  'segment.ms': '100',
  'min.cleanable.dirty.ratio': '0.01',
  'delete.retention.ms': '100'
}

/** Produces filler records, so that segments roll, until `done` holds for all other records. */
async function until(session, topic, seconds, what, done) {
  await eventually(seconds, what, async () => {
    const last = await session.produce(topic, [{ key: 'filler', value: 'filler' }])
    await sleep(400)
    return done((await contents(session, topic, last)).filter(({ key }) => text(key) !== 'filler'))
  })
}

/** All records of the partition up to the offset, which compaction keeps as the last of its key. */
async function contents(session, topic, last) {
  const { consumer, messages } = await session.consumer(session.unique(`reader-${Math.random()}`), [topic])
  await eventually(20, `offset ${last} is read`, () => messages.at(-1)?.offset >= last)
  await consumer.disconnect()
  messages.forEach(({ offset }, n) => holds(n === 0 || messages[n - 1].offset < offset, 'offsets grow'))
  return messages
}

slowScenario('compaction', async session => {
  const topic = await session.topic(1, COMPACTED)
  const wanted = Object.fromEntries(numbers(10).map(n => [`key-${n}`, `4@${40 + Number(n)}`]))
  for (const version of numbers(5)) {
    await session.produce(topic, numbers(10).map(n => ({ key: `key-${n}`, value: version })))
    await sleep(150)
  }
  await until(session, topic, 60, 'one record for each key', records => {
    const last = Object.fromEntries(records.map(({ key, value, offset }) => [text(key), `${text(value)}@${offset}`]))
    // The last value of each key is always present, at its offset.
    expect(last, wanted, 'last values')
    return records.length === 10
  })
})

slowScenario('compaction-removes-tombstones', async session => {
  const topic = await session.topic(1, COMPACTED)
  await session.produce(topic, [{ key: 'dead', value: 'old' }, { key: 'alive', value: 'kept' }])
  await sleep(150)
  await session.produce(topic, [{ key: 'dead', value: null }])
  await until(session, topic, 70, 'the tombstone and what it deletes are gone', records => {
    const keys = records.map(({ key }) => text(key))
    expect(keys.filter(key => key === 'alive').length, 1, 'records of the live key')
    return !keys.includes('dead')
  })
})

scenario('compacted-topic-needs-keys', async session => {
  const topic = await session.topic(1, { 'cleanup.policy': 'compact' })
  // kafkajs is older than the error INVALID_RECORD (87) and calls it unknown.
  await refused(session.produce(topic, ['no key']), ['INVALID_RECORD', 'KAFKAJS_UNKNOWN_ERROR_CODE'], 'a record without a key')
})

slowScenario('retention-by-time', async session => {
  const topic = await session.topic(1, { 'retention.ms': '1000', 'segment.ms': '500' })
  await session.produce(topic, numbers(10))
  await eventually(60, 'all are deleted once their time is over', async () => (await session.bounds(topic))[0] === 10)
  expect(await session.produce(topic, ['new']), 10, 'offsets go on')
})

slowScenario('retention-by-size', async session => {
  const topic = await session.topic(1, { 'retention.bytes': '200000', 'segment.bytes': '1048576' })
  for (let round = 0; round < 4; round++) await session.produce(topic, Array(100).fill('x'.repeat(9000)))
  await eventually(60, 'the oldest are deleted', async () => (await session.bounds(topic))[0] > 0)
  const [low, high] = await session.bounds(topic)
  holds(low < 400, 'not all are deleted')
  expect(high, 400, 'end offset')
  const [{ offset }] = await session.read(topic, 1)
  holds(low <= offset && offset < 400, 'the first that is left, or a later one if more was deleted since')
})
