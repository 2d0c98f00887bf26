// Groups of the classic protocol (the one that kafkajs speaks): members, commits and administration.

import { setTimeout as sleep } from 'node:timers/promises'

import kafkajs from 'kafkajs'

import { eventually, expect, holds, refused, scenario, slowScenario } from './harness.js'
import { numbers, received, text } from './session.js'

const { PartitionAssigners } = kafkajs

/** A member that records every message and commits it before the next. */
async function join(session, groupId, topics, options = {}) {
  const consumer = session.client().consumer({
    groupId,
    maxWaitTimeInMs: 300,
    heartbeatInterval: 500,
    metadataMaxAge: 1000,
    allowAutoTopicCreation: false,
    ...options
  })
  const member = { consumer, processed: [], assigned: [], failure: undefined, leave: () => consumer.disconnect() }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.assigned = Object.entries(payload.memberAssignment).flatMap(([topic, ps]) => ps.map(p => `${topic}/${p}`))
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    member.failure = payload.error
  })
  await consumer.connect()
  session.closeAfterwards(member.leave)
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      const offset = String(Number(message.offset) + 1)
      await consumer.commitOffsets([{ topic, partition, offset }])
      member.processed.push(`${topic}/${partition}@${message.offset}`)
    }
  })
  return member
}

const partitionsOf = (topic, count) => numbers(count).map(n => `${topic}/${n}`)

/** Waits until each partition has exactly one owner, and each member at least one of them. */
async function settled(members, partitions) {
  await eventually(40, 'the group settles', () => {
    for (const { failure } of members) if (failure) throw failure
    const owned = members.flatMap(({ assigned }) => assigned)
    return (
      owned.length === partitions.length &&
      partitions.every(partition => owned.includes(partition)) &&
      members.every(({ assigned }) => assigned.length)
    )
  })
}

async function committed(session, groupId, topic, partition = 0) {
  const [{ partitions }] = await (await session.admin()).fetchOffsets({ groupId, topics: [topic] })
  return partitions.find(p => p.partition === partition)
}

// Members come and go while records flow; every record is processed exactly once.
slowScenario('classic-rebalance-roundrobin', async session => {
  const topic = await session.topic(6)
  const groupId = session.unique('g')
  const partitions = partitionsOf(topic, 6)
  const producer = await session.producer()
  let sent = 0
  let stop = false
  const feeder = (async () => {
    for (; !stop; sent++) {
      await producer.send({ topic, messages: [{ partition: sent % 6, value: String(sent) }] })
      await sleep(20)
    }
  })()
  const options = { partitionAssigners: [PartitionAssigners.roundRobin] }
  const first = await join(session, groupId, [topic], options)
  await settled([first], partitions)
  const second = await join(session, groupId, [topic], options)
  await settled([first, second], partitions)
  const third = await join(session, groupId, [topic], options)
  await settled([first, second, third], partitions)
  expect([first, second, third].map(({ assigned }) => assigned.length), [2, 2, 2], 'balanced')
  await first.leave()
  await settled([second, third], partitions)
  stop = true
  await feeder
  const processed = () => [first, second, third].flatMap(member => member.processed)
  await eventually(20, `all ${sent} records are processed`, () => processed().length >= sent)
  await second.leave()
  await third.leave()
  expect(new Set(processed()).size, sent, 'distinct records')
  expect(processed().length, sent, 'records processed')
  const ends = await (await session.admin()).fetchTopicOffsets(topic)
  for (const { partition, high } of ends) {
    expect((await committed(session, groupId, topic, partition)).offset, high, `committed of ${partition}`)
  }
})

slowScenario('classic-pattern-subscription', async session => {
  const first = await session.topic(1, {}, 'match-1')
  const second = await session.topic(1, {}, 'match-2')
  await session.topic(1, {}, 'other')
  const member = await join(session, session.unique('g'), [new RegExp(`^${session.unique('match-')}`)])
  await settled([member], [`${first}/0`, `${second}/0`])
})

slowScenario('classic-new-partitions-are-assigned', async session => {
  const topic = await session.topic(1)
  const member = await join(session, session.unique('g'), [topic])
  await settled([member], partitionsOf(topic, 1))
  await (await session.admin()).createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  // kafkajs looks at the metadata when it fetches.
  await eventually(30, 'all three are assigned', async () => {
    await session.produce(topic, ['x'])
    return member.assigned.length === 3
  })
})

slowScenario('classic-session-timeout', async session => {
  const topic = await session.topic(2)
  const groupId = session.unique('g')
  const quick = { sessionTimeout: 6000, heartbeatInterval: 500 }
  const stuck = session.client().consumer({ groupId, ...quick, allowAutoTopicCreation: false })
  await stuck.connect()
  session.closeAfterwards(() => stuck.disconnect())
  await stuck.subscribe({ topics: [topic], fromBeginning: true })
  await session.produce(topic, ['x'])
  let started = false
  let release
  const blocked = new Promise(resolve => { release = resolve })
  // kafkajs heartbeats between messages only, so a long message is a silent member.
  await stuck.run({ autoCommit: false, eachMessage: () => { started = true; return blocked } })
  await eventually(20, 'the first is busy', () => started)
  const other = await join(session, groupId, [topic], quick)
  await settled([other], partitionsOf(topic, 2))
  await other.leave()
  release()
})

scenario('commit-and-resume', async session => {
  const topic = await session.topic()
  const groupId = session.unique('g')
  await session.produce(topic, numbers(20))
  const first = await session.consumer(groupId, [topic])
  await received(first.messages, 20)
  await first.consumer.commitOffsets([{ topic, partition: 0, offset: '7', metadata: 'by hand: ünïcode' }])
  expect(await committed(session, groupId, topic), { partition: 0, offset: '7', metadata: 'by hand: ünïcode' }, 'committed')
  await first.consumer.disconnect()

  const second = await session.consumer(groupId, [topic])
  await received(second.messages, 13)
  expect(second.messages.map(({ value }) => text(value)), numbers(20).slice(7), 'after the commit')
  await second.consumer.disconnect()

  const other = await session.read(topic, 20)
  expect(other[0].offset, 0, 'another group starts at the beginning')
})

scenario('auto-commit', async session => {
  const topic = await session.topic()
  const groupId = session.unique('g')
  await session.produce(topic, numbers(10))
  const { messages } = await session.consumer(groupId, [topic], { autoCommit: true })
  await received(messages, 10)
  await eventually(10, 'committed in the background', async () => (await committed(session, groupId, topic)).offset === '10')
})

scenario('list-and-describe-groups', async session => {
  const admin = await session.admin()
  const topic = await session.topic(2)
  const groupId = session.unique('g')
  const member = await join(session, groupId, [topic])
  await settled([member], partitionsOf(topic, 2))
  const { groups: listed } = await admin.listGroups()
  holds(listed.some(group => group.groupId === groupId && group.protocolType === 'consumer'), 'listed')
  const { groups } = await admin.describeGroups([groupId])
  const { state, protocol, protocolType, members } = groups[0]
  expect([state, protocol, protocolType], ['Stable', 'RoundRobinAssigner', 'consumer'], 'group')
  expect([members.length, members[0].clientId], [1, 'compat'], 'members')
  await member.leave()
  await eventually(10, 'empty once all left', async () => (await admin.describeGroups([groupId])).groups[0].state === 'Empty')
})

scenario('delete-group', async session => {
  const admin = await session.admin()
  const topic = await session.topic()
  const groupId = session.unique('g')
  await session.produce(topic, ['x'])
  const member = await join(session, groupId, [topic])
  await eventually(20, 'processed', () => member.processed.length === 1)
  await refused(admin.deleteGroups([groupId]), 'NON_EMPTY_GROUP', 'a group with members')
  await member.leave()
  await admin.deleteGroups([groupId])
  const { groups } = await admin.listGroups()
  holds(!groups.some(group => group.groupId === groupId), 'not listed')
  expect((await committed(session, groupId, topic)).offset, '-1', 'its offsets are gone')
  await refused(admin.deleteGroups([groupId]), 'GROUP_ID_NOT_FOUND', 'an absent group')
})

scenario('list-and-alter-group-offsets', async session => {
  const admin = await session.admin()
  const topic = await session.topic()
  const groupId = session.unique('g')
  await session.produce(topic, numbers(10))
  await session.setOffsets(groupId, topic, '4')
  expect((await committed(session, groupId, topic)).offset, '4', 'offset of a group made by altering')
  const member = await join(session, groupId, [topic])
  await eventually(20, 'the six records from offset 4 on', () => member.processed.length === 6)
  await member.leave()
  expect((await committed(session, groupId, topic)).offset, '10', 'after consuming')
  await session.changeOffsets(groupId, () => admin.resetOffsets({ groupId, topic, earliest: true }), () => true)
  await session.setOffsets(groupId, topic, '2')
  expect((await committed(session, groupId, topic)).offset, '2', 'rewound')
})

scenario('many-groups', async session => {
  const topic = await session.topic()
  await session.produce(topic, numbers(50))
  const all = await Promise.all(numbers(10).map(() => session.readValues(topic, 50)))
  for (const values of all) expect(values, numbers(50), 'records of a group')
})
