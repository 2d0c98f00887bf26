// Start, seek, wait and reset of a consumer. (kafkajs always consumes in a group.)

import { setTimeout as sleep } from 'node:timers/promises'

import { eventually, expect, holds, scenario } from './harness.js'
import { LEADERS_MOVE, numbers, received, text } from './session.js'

scenario('seek-to-offsets', async session => {
  const topic = await session.topic()
  await session.produce(topic, numbers(100))
  const { consumer, messages } = await session.consumer(session.unique('g'), [topic])
  await received(messages, 100)
  for (const offset of [50, 3, 99]) {
    messages.length = 0
    consumer.seek({ topic, partition: 0, offset: String(offset) })
    await received(messages, 100 - offset)
    expect(messages[0].offset, offset, 'after seek')
  }
})

scenario('seek-by-time', async session => {
  const topic = await session.topic()
  const start = Date.now() - 3_600_000
  await session.produce(topic, numbers(100).map(n => ({ value: n, timestamp: String(start + 1000 * n) })))
  const [{ offset }] = await (await session.admin()).fetchTopicOffsetsByTimestamp(topic, start + 39_001)
  expect(offset, '40', 'first at or after')
  const { consumer, messages } = await session.consumer(session.unique('g'), [topic])
  await received(messages, 100)
  messages.length = 0
  consumer.seek({ topic, partition: 0, offset })
  await received(messages, 60)
  expect(text(messages[0].value), '40', 'first record read')
})

scenario('start-at-the-end', async session => {
  const topic = await session.topic()
  await session.produce(topic, numbers(10))
  const { messages } = await session.consumer(session.unique('g'), [topic], { fromBeginning: false })
  // The member has joined, but its first fetch may still be in flight: produce until a record arrives.
  await eventually(15, 'a new record arrives', async () => {
    await session.produce(topic, ['new'])
    return messages.length
  })
  holds(messages.every(({ value }) => text(value) === 'new'), 'only what came later')
})

scenario('reset-when-out-of-range', async session => {
  const topic = await session.topic()
  await session.produce(topic, numbers(10))
  const admin = await session.admin()
  const groupId = session.unique('g')
  await session.setOffsets(groupId, topic, '2')
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '5' }] })
  const { messages } = await session.consumer(groupId, [topic])
  await received(messages, 5)
  expect(messages.map(({ offset }) => offset), [5, 6, 7, 8, 9], 'the position was deleted; reset to earliest')
})

// An empty fetch returns as soon as a record arrives, not when its wait is over.
scenario('fetch-waits-for-data', async session => {
  const topic = await session.topic()
  const { messages } = await session.consumer(session.unique('g'), [topic], { maxWaitTimeInMs: 5000 })
  await sleep(1000)
  const took = async count => {
    await session.produce(topic, ['x'])
    const acknowledged = Date.now()
    await received(messages, count)
    return Date.now() - acknowledged
  }
  // The node that serves the fetch may be killed meanwhile.
  const tries = LEADERS_MOVE ? 4 : 1
  for (let count = 1; (await took(count)) >= 3000; count++) {
    holds(count < tries, 'the record came within 3 s of its acknowledgement')
  }
})

// A record larger than every fetch limit is still delivered.
scenario('fetch-limits-below-a-record', async session => {
  const topic = await session.topic()
  const values = ['a'.repeat(200_000), 'b'.repeat(300_000), 'c']
  for (const value of values) await session.produce(topic, [value])
  const messages = await session.read(topic, 3, { maxBytes: 1000, maxBytesPerPartition: 1000 })
  expect(messages.map(({ value }) => text(value)), values, 'records')
})

scenario('read-uncommitted', async session => {
  const topic = await session.topic()
  await session.produce(topic, numbers(10))
  const messages = await session.read(topic, 10, { readUncommitted: true })
  expect(messages.map(({ value }) => text(value)), numbers(10), 'records')
})

scenario('pause-and-resume', async session => {
  const topic = await session.topic()
  const { consumer, messages } = await session.consumer(session.unique('g'), [topic])
  await session.produce(topic, ['before'])
  await received(messages, 1)
  consumer.pause([{ topic }])
  await sleep(500)
  await session.produce(topic, ['while paused'])
  await sleep(1000)
  expect(messages.length, 1, 'messages while paused')
  consumer.resume([{ topic }])
  await received(messages, 2)
})

scenario('many-topics', async session => {
  const topics = []
  for (let n = 0; n < 20; n++) topics.push(await session.topic(1, {}, `t${n}`))
  for (const topic of topics) await session.produce(topic, [topic])
  const { messages } = await session.consumer(session.unique('g'), topics)
  await received(messages, 20)
  expect(messages.map(({ value }) => text(value)).sort(), [...topics].sort(), 'a record of each')
})
