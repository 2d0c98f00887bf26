// A second, newer Node client: it speaks the latest versions of the protocol, and KIP-848's group protocol.

import zlib from 'node:zlib'

import { Admin, Consumer, MessagesStreamModes, Producer } from '@platformatic/kafka'

import { eventually, expect, holds, refused, scenario, slowScenario } from './harness.js'
import { BROKERS, LEADERS_MOVE, bootstrap, numbers, received, text } from './session.js'

const options = { clientId: 'compat', bootstrapBrokers: bootstrap.split(','), retries: 10, retryDelay: 100 }

function adminOf(session) {
  const admin = new Admin(options)
  session.closeAfterwards(() => admin.close())
  return admin
}

async function produce(topic, messages, more = {}) {
  const producer = new Producer({ ...options, ...more })
  const { acks = -1 } = more
  try {
    return await producer.send({ acks, messages: messages.map(message => ({ topic, partition: 0, ...message })) })
  } finally {
    await producer.close()
  }
}

const values = list => list.map(value => ({ value: Buffer.from(value) }))

/** A member of a group that records its messages; `leave` commits all of them and closes it. */
async function join(session, groupId, topics, more = {}) {
  const consumer = new Consumer({ ...options, groupId, maxWaitTime: 300, autocommit: false, ...more })
  const messages = []
  const seen = new Set()
  let failure
  let left = false
  const consume = async () => {
    const stream = await consumer.consume({ topics, mode: MessagesStreamModes.COMMITTED, fallbackMode: 'earliest' })
    stream.on('data', message => {
      // A second stream begins at the committed offset, so it delivers messages of the first one again.
      const place = `${message.topic}/${message.partition}@${message.offset}`
      if (!LEADERS_MOVE || !seen.has(place)) messages.push(message)
      seen.add(place)
    })
    stream.on('error', error => {
      // A stream retries its fetch at the same node, even after NOT_LEADER_OR_FOLLOWER, and
      // then fails; only a new stream refreshes the leader.
      if (!LEADERS_MOVE || left) failure = error
      else stream.once('close', () => consume().catch(again => { failure = again }))
    })
  }
  await consume()
  const leave = async (commit = true) => {
    if (left) return
    left = true
    if (commit && messages.length) await messages.at(-1).commit()
    // The client looks up its coordinator only once: after a move of the coordinator it cannot leave.
    await consumer.close(true).catch(error => { if (!LEADERS_MOVE) throw error })
    if (failure) throw failure
  }
  session.closeAfterwards(() => leave(false))
  return { consumer, messages, leave }
}

async function read(session, topic, count) {
  const { messages, leave } = await join(session, session.unique(`reader-${Math.random()}`), [topic])
  await received(messages, count)
  await leave(false)
  return messages
}

const codecs = ['none', 'gzip', 'snappy', 'lz4', ...(zlib.zstdCompressSync ? ['zstd'] : [])]
for (const compression of codecs) {
  scenario(`platformatic-compression-${compression}`, async session => {
    const topic = await session.topic()
    const timestamp = BigInt(Date.now() - 3_600_000)
    const sent = numbers(100).map(n => ({
      key: Buffer.from(`key-${n}`),
      value: n % 10 ? Buffer.from(n.repeat(500)) : undefined,
      headers: new Map([[Buffer.from('n'), Buffer.from(n)]]),
      timestamp: timestamp + BigInt(n)
    }))
    const { offsets } = await produce(topic, sent, { compression })
    expect(offsets[0].offset, 0n, 'base offset')
    const messages = await read(session, topic, sent.length)
    messages.forEach((message, n) => {
      expect(message.offset, BigInt(n), 'offset')
      expect(text(message.key), text(sent[n].key), 'key')
      expect(message.value?.toString(), sent[n].value?.toString(), 'value')
      expect([...message.headers].map(([key, value]) => `${key}=${value}`), [`n=${n}`], 'headers')
      expect(message.timestamp, timestamp + BigInt(n), 'timestamp')
    })
  })
}

scenario('platformatic-idempotent-producer', async session => {
  const topic = await session.topic()
  const producer = new Producer({ ...options, idempotent: true })
  for (const n of numbers(200)) {
    await producer.send({ acks: -1, messages: [{ topic, partition: 0, value: Buffer.from(n) }] })
  }
  await producer.close()
  expect((await read(session, topic, 200)).map(({ value }) => text(value)), numbers(200), 'each once, in order')
})

for (const groupProtocol of ['classic', 'consumer']) {
  const prefix = `platformatic-${groupProtocol}-protocol`

  slowScenario(`${prefix}-commit-and-resume`, async session => {
    const topic = await session.topic()
    const groupId = session.unique('g')
    await produce(topic, values(numbers(10)))
    const first = await join(session, groupId, [topic], { groupProtocol })
    await received(first.messages, 10)
    await first.messages[6].commit()
    await first.leave(false)
    const second = await join(session, groupId, [topic], { groupProtocol })
    await received(second.messages, 3)
    expect(second.messages.map(({ value }) => text(value)), numbers(10).slice(7), 'after the commit')
    await second.leave()
  })

  slowScenario(`${prefix}-two-members`, async session => {
    const topic = await session.topic(4)
    // Members of an earlier try may not have left their group.
    const joined = async () => {
      const groupId = session.unique(`g-${Math.random()}`)
      return [await join(session, groupId, [topic], { groupProtocol }), await join(session, groupId, [topic], { groupProtocol })]
    }
    const count = ({ consumer }) => (consumer.assignments ?? []).flatMap(({ partitions }) => partitions).length
    const share = members => eventually(LEADERS_MOVE ? 15 : 40, 'each has two partitions', () => members.every(member => count(member) === 2))
    let members = await joined()
    // After such a move it cannot join either, so members may have to be recreated.
    for (let left = LEADERS_MOVE ? 3 : 0; ; left--) {
      try {
        await share(members)
        break
      } catch (error) {
        if (left === 0) throw error
        for (const member of members) await member.leave(false).catch(() => {})
        members = await joined()
      }
    }
    // An assignment is known a moment before its fetches begin, so records may be delivered more than once here.
    const keys = () => new Set(members.flatMap(({ messages }) => messages).map(m => `${m.partition}@${m.offset}`))
    await produce(topic, numbers(100).map(n => ({ partition: n % 4, value: Buffer.from(n) })))
    await eventually(20, 'all records are seen', () => keys().size === 100)
    for (const member of members) await member.leave(false)
  })
}

scenario('platformatic-topic-config', async session => {
  const admin = adminOf(session)
  const topic = await session.topic(1, { 'retention.ms': '60000' })
  const alter = configs => admin.incrementalAlterConfigs({ resources: [{ resourceType: 2, resourceName: topic, configs }] })
  await alter([{ name: 'segment.ms', configOperation: 0, value: '70000' }])
  const value = async name => {
    const [{ configs }] = await admin.describeConfigs({ resources: [{ resourceType: 2, resourceName: topic, configurationKeys: null }] })
    return configs.find(config => config.name === name).value
  }
  await eventually(5, 'altered', async () => (await value('segment.ms')) === '70000')
  expect(await value('retention.ms'), '60000', 'untouched by an incremental change')
  await refused(alter([{ name: 'no.such.config', configOperation: 0, value: '1' }]), 'INVALID_CONFIG', 'unknown config')
})

scenario('platformatic-delete-records', async session => {
  const admin = adminOf(session)
  const topic = await session.topic()
  await produce(topic, values(numbers(10)))
  const [{ partitions }] = await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 4n }] }] })
  expect(partitions[0].lowWatermark, 4n, 'low watermark')
  const listed = await admin.listOffsets({
    topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp: -2n }] }]
  })
  expect(listed[0].partitions[0].offset, 4n, 'earliest')
  expect((await read(session, topic, 6)).map(({ value }) => text(value)), numbers(10).slice(4), 'what is left')
})

scenario('platformatic-group-offsets', async session => {
  const admin = adminOf(session)
  const topic = await session.topic(2)
  const groupId = session.unique('g')
  const partitionOffsets = [{ partition: 0, offset: 3n }, { partition: 1, offset: 5n }]
  await admin.alterConsumerGroupOffsets({ groupId, topics: [{ name: topic, partitionOffsets }] })
  const offsets = async () => {
    const [{ topics }] = await admin.listConsumerGroupOffsets({ groups: [groupId] })
    return topics.flatMap(({ partitions }) => partitions.map(p => p.committedOffset))
  }
  expect(await offsets(), [3n, 5n], 'altered')
  await admin.deleteConsumerGroupOffsets({ groupId, topics: [{ name: topic, partitionIndexes: [0] }] })
  expect(await offsets(), [5n], 'after one was deleted')
  await admin.deleteGroups({ groups: [groupId] })
  await refused(admin.deleteGroups({ groups: [groupId] }), 'GROUP_ID_NOT_FOUND', 'deleted twice')
})

scenario('platformatic-describe-log-dirs', async session => {
  const admin = adminOf(session)
  const topic = await session.topic()
  await produce(topic, values(['x'.repeat(10_000)]))
  const places = async () => {
    // A restarting node does not reply.
    const brokers = await admin.describeLogDirs({ topics: [{ name: topic, partitions: [0] }] }).catch(() => [])
    return brokers
      .flatMap(({ results }) => results)
      .flatMap(({ topics }) => topics)
      .filter(({ name }) => name === topic)
      .flatMap(({ partitions }) => partitions.filter(p => p.partitionSize >= 10_000n))
  }
  // A follower has a committed record a moment after its acknowledgement.
  await eventually(30, 'each broker has the partition with its size', async () => (await places()).length === BROKERS)
})
