// Administration of topics: create, describe, alter, add partitions, delete records, delete.

import kafkajs from 'kafkajs'

import { eventually, expect, holds, refused, scenario } from './harness.js'
import { BROKERS, numbers } from './session.js'

const { ConfigResourceTypes, ConfigSource } = kafkajs

async function configOf(session, topic) {
  const admin = await session.admin()
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }]
  })
  return Object.fromEntries(resources[0].configEntries.map(entry => [entry.configName, entry]))
}

const topicList = async session => (await session.admin()).listTopics()

scenario('describe-cluster', async session => {
  const admin = await session.admin()
  // A restarting node is missing from the metadata.
  await eventually(30, `${BROKERS} brokers`, async () => (await admin.describeCluster()).brokers.length === BROKERS)
  const { brokers, controller, clusterId } = await admin.describeCluster()
  holds(clusterId, 'the cluster has an id')
  holds(brokers.some(({ nodeId }) => nodeId === controller), 'the controller is a broker')
  holds(brokers[0].host && brokers[0].port > 0, 'the broker has an address')
})

scenario('create-topic', async session => {
  const topic = await session.topic(3, { 'retention.ms': '3600000' })
  const { topics } = await (await session.admin()).fetchTopicMetadata({ topics: [topic] })
  const partitions = topics[0].partitions.sort((a, b) => a.partitionId - b.partitionId)
  expect(partitions.map(p => p.partitionId), [0, 1, 2], 'partitions')
  for (const { leader, replicas, isr } of partitions) {
    expect(replicas.length, BROKERS, 'replicas')
    holds(isr.includes(leader) && isr.every(node => replicas.includes(node)), 'the leader is in sync, as replicas are')
  }
  expect((await configOf(session, topic))['retention.ms'].configValue, '3600000', 'config')
})

scenario('create-topic-validate-only', async session => {
  const topic = session.unique('t')
  await (await session.admin()).createTopics({ validateOnly: true, waitForLeaders: false, topics: [{ topic }] })
  holds(!(await topicList(session)).includes(topic), 'validateOnly creates nothing')
})

scenario('create-topic-refused', async session => {
  const admin = await session.admin()
  const create = options => admin.createTopics({ waitForLeaders: false, topics: [{ numPartitions: 1, replicationFactor: 1, ...options }] })
  const existing = await session.topic()
  // kafkajs reports an existing topic by `false` instead of the error.
  expect(await create({ topic: existing }), false, 'existing topic')
  for (const illegal of ['with space', 'sla/sh', '..', 'x'.repeat(250)]) {
    await refused(create({ topic: illegal }), 'INVALID_TOPIC_EXCEPTION', `name ${illegal}`)
  }
  const topic = session.unique('refused')
  await refused(create({ topic, numPartitions: 0 }), 'INVALID_PARTITIONS', 'no partitions')
  await refused(create({ topic, replicationFactor: 9 }), 'INVALID_REPLICATION_FACTOR', 'more replicas than brokers')
  await refused(create({ topic, configEntries: [{ name: 'no.such.config', value: '1' }] }), 'INVALID_CONFIG', 'unknown config')
  await refused(create({ topic, configEntries: [{ name: 'retention.ms', value: 'x' }] }), 'INVALID_CONFIG', 'ill-typed config')
  holds(!(await topicList(session)).includes(topic), 'nothing was created')
})

scenario('delete-topic', async session => {
  const admin = await session.admin()
  const topic = await session.topic(2)
  await session.produce(topic, ['old', 'older'])
  await admin.deleteTopics({ topics: [topic] })
  await eventually(10, 'gone from metadata', async () => !(await topicList(session)).includes(topic))
  await refused(admin.deleteTopics({ topics: [topic] }), 'UNKNOWN_TOPIC_OR_PARTITION', 'deleted twice')
  await session.topic(1)
  await session.produce(topic, ['new'])
  expect(await session.bounds(topic), [0, 1], 'a topic of the same name starts empty')
  expect(await session.readValues(topic, 1), ['new'], 'records')
})

scenario('create-partitions', async session => {
  const admin = await session.admin()
  const topic = await session.topic(2)
  const grow = (name, count) => admin.createPartitions({ topicPartitions: [{ topic: name, count }] })
  await session.produce(topic, [{ partition: 1, value: 'kept' }])
  await grow(topic, 5)
  await eventually(10, 'five partitions', async () => (await admin.fetchTopicOffsets(topic).catch(() => [])).length === 5)
  await session.produce(topic, [{ partition: 4, value: 'fresh' }])
  const messages = await session.read(topic, 2)
  expect(messages.map(m => `${m.partition}:${m.value}`).sort(), ['1:kept', '4:fresh'], 'records')
  await refused(grow(topic, 3), 'INVALID_PARTITIONS', 'fewer partitions')
  await refused(grow(topic, 5), 'INVALID_PARTITIONS', 'the same number')
  await refused(grow(session.unique('absent'), 2), 'UNKNOWN_TOPIC_OR_PARTITION', 'absent topic')
})

scenario('topic-config', async session => {
  const admin = await session.admin()
  const topic = await session.topic(1, { 'retention.ms': '60000' })
  const before = await configOf(session, topic)
  expect(before['retention.ms'].configSource, ConfigSource.TOPIC_CONFIG, 'source of a set value')
  expect(before['cleanup.policy'].configValue, 'delete', 'default cleanup.policy')
  const alter = (name, value) =>
    admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value }] }] })
  await alter('segment.ms', '70000')
  await eventually(5, 'altered', async () => (await configOf(session, topic))['segment.ms'].configValue === '70000')
  expect((await configOf(session, topic))['retention.ms'].configValue, '604800000', 'AlterConfigs resets what it leaves out')
  await refused(alter('no.such.config', '1'), 'INVALID_CONFIG', 'unknown config')
  await refused(alter('retention.ms', 'x'), 'INVALID_CONFIG', 'ill-typed value')
})

scenario('broker-config', async session => {
  const admin = await session.admin()
  const { brokers } = await admin.describeCluster()
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: ConfigResourceTypes.BROKER, name: String(brokers[0].nodeId) }]
  })
  const names = resources[0].configEntries.map(({ configName }) => configName)
  for (const name of ['message.max.bytes', 'num.partitions', 'auto.create.topics.enable']) {
    holds(names.includes(name), `${name} is described`)
  }
})

scenario('list-offsets', async session => {
  const admin = await session.admin()
  const topic = await session.topic()
  const start = Date.now() - 3_600_000
  for (const moment of [100, 300, 200]) {
    await session.produce(topic, [{ value: 'x', timestamp: String(start + moment) }])
  }
  expect(await session.bounds(topic), [0, 3], 'earliest and latest')
  const after = async moment => Number((await admin.fetchTopicOffsetsByTimestamp(topic, start + moment))[0].offset)
  expect(await after(0), 0, 'before all')
  expect(await after(101), 1, 'first at or after')
  // kafkajs returns the end offset if the broker has no offset for the timestamp.
  expect(await after(301), 3, 'after all')
})

scenario('delete-records', async session => {
  const admin = await session.admin()
  const topic = await session.topic()
  await session.produce(topic, numbers(10))
  const deleteBefore = offset => admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset }] })
  await deleteBefore('4')
  expect(await session.bounds(topic), [4, 10], 'earliest and latest')
  expect(await session.readValues(topic, 6), numbers(10).slice(4), 'what is left')
  await refused(deleteBefore('11'), 'OFFSET_OUT_OF_RANGE', 'beyond the end')
  await deleteBefore('-1')
  expect(await session.bounds(topic), [10, 10], '-1 deletes up to the end')
  expect(await session.produce(topic, ['next']), 10, 'offsets go on')
})

scenario('unknown-topic', async session => {
  const absent = session.unique('absent')
  const admin = session.client({ retry: { retries: 1 } }).admin()
  await admin.connect()
  session.closeAfterwards(() => admin.disconnect())
  await refused(admin.fetchTopicOffsets(absent), 'UNKNOWN_TOPIC_OR_PARTITION', 'offsets')
  const producer = await session.producer({ retry: { retries: 1 } })
  await refused(producer.send({ topic: absent, messages: [{ value: 'x' }] }), 'UNKNOWN_TOPIC_OR_PARTITION', 'produce')
  holds(!(await topicList(session)).includes(absent), 'nothing was created')
})

scenario('auto-create-by-producing', async session => {
  const topic = session.unique('t')
  session.deleteAfterwards(topic)
  await session.produce(topic, ['first'], { allowAutoTopicCreation: true })
  expect(await session.readValues(topic, 1), ['first'], 'records')
})

scenario('auto-create-by-consuming', async session => {
  const topic = session.unique('t')
  session.deleteAfterwards(topic)
  // The first request finds no topic yet, which kafkajs treats as final.
  await session.consumer(session.unique('g'), [topic], { allowAutoTopicCreation: true }).catch(() => {})
  await eventually(10, 'subscribing creates the topic', async () => (await topicList(session)).includes(topic))
})

scenario('auto-create-refuses-illegal-name', async session => {
  const producer = await session.producer({ allowAutoTopicCreation: true, retry: { retries: 1 } })
  await refused(producer.send({ topic: 'not a legal name', messages: [{ value: 'x' }] }), 'INVALID_TOPIC_EXCEPTION', 'produce')
})
